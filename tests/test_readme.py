"""README and docs are true: their code runs, their output is what comes out, their links lead somewhere."""

from __future__ import annotations

import contextlib
import io
import os
import random
import re
import runpy
import shlex
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import typer.main

import cosimo as co
import processes
from cosimo.algebra import LinearSystem
from cosimo.analysis.model import Model
from cosimo.cli import app
from cosimo.cli.run import run_fields
from cosimo.compensation import compare
from cosimo.core import errors
from cosimo.core.coupling import Coupling
from cosimo.core.document import as_json
from cosimo.core.unit import Unit
from cosimo.formats.export import export_unit
from cosimo.formats.information import describe
from cosimo.papers import reproduce
from cosimo.reporting.documents import compensation_document, study_document
from cosimo.studies import Grid, Study, run_study
from cosimo.studies.trials import MasterComparison, combinations, reference, try_masters
from cosimo.tuning import Space
from thinning import mostly_slow

ROOT = Path(__file__).parents[1]
TEXTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXECUTED = [
    "README.md",
    *(f"docs/{name}.md" for name in ("theory", "command-line", "kernel", "fmus", "export", "compensation")),
    *(f"docs/{name}.md" for name in ("prediction", "monitors", "analysing-fmus", "tuning", "studies", "report")),
    *(f"docs/{name}.md" for name in ("checkpoints", "coming-from", "tutorial", "results")),
]
CONTINUED = ["docs/tutorial.md"]
"""Pages whose blocks of commands all follow each other in one folder; elsewhere each section begins in an empty one."""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PART = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```$|^#+ [^\n]*$", re.MULTILINE | re.DOTALL)
"""A block, or a heading."""
FILE = re.compile(r"^(?:#|//|/\*) ([\w-]+\.\w+)\b")


ONE_PROCESSOR = """
import os, runpy, sys
os.sched_setaffinity(0, {int(sys.argv.pop(1))})
runpy.run_module("cosimo.cli", run_name="__main__", alter_sys=True)
"""


class Session(NamedTuple):
    """Blocks of commands, each with the output shown below it, and the files that the page shows above them."""

    page: str
    files: dict[str, str]
    commands: list[tuple[str, str]]


def blocks(name: str) -> list[tuple[str, str]]:
    """(language, text) of all fenced blocks."""
    return BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))


def files_above(name: str, place: int) -> dict[str, str]:
    """Blocks that begin with a comment that names a file, such as `/* valve.c */`, before block number `place`."""
    return {m[1]: text for _, text in blocks(name)[:place] if (m := FILE.match(text))}


def python_blocks() -> Iterator[tuple[str, dict[str, str], str, str]]:
    """(page, files, code, the output shown below it)."""
    for name in EXECUTED:
        found = blocks(name)
        for place, (language, code) in enumerate(found):
            below, output = found[place + 1] if place + 1 < len(found) else ("", "")
            if language == "python":
                yield name, files_above(name, place), code, output if below == "output" else ""


def sessions() -> Iterator[Session]:
    """All blocks of commands; those under one heading follow each other in one folder, as one session."""
    for name in EXECUTED:
        found: list[Session] = []
        place, begins, shown = 0, True, blocks(name)
        for part in PART.finditer((ROOT / name).read_text(encoding="utf-8")):
            if part["language"] is None:
                begins = name not in CONTINUED or not found
                continue
            if part["language"] == "bash":
                if begins:
                    found.append(Session(name, {}, []))
                below, output = shown[place + 1] if place + 1 < len(shown) else ("", "")
                found[-1].files.update(files_above(name, place))
                found[-1].commands.append((part["text"], output if below == "output" else ""))
                begins = False
            place += 1
        yield from found


def write(files: dict[str, str], folder: Path) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def cosimo(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    # One thread: the matrices are small, and threads that wait for each other on a busy machine cost much more.
    # Verdicts are remembered within a session, and nowhere else.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "COSIMO_CACHE": str(cwd / "cache") if cwd else "off"}
    environment |= processes.ALL_CHARACTERS
    command = [sys.executable, "-m", "cosimo.cli", *arguments]
    if arguments[0] == "sweep" and hasattr(os, "sched_getaffinity"):
        # On one processor: with several, the time that the first runs take decides how many workers there are.
        one = random.choice(sorted(os.sched_getaffinity(0)))
        command = [sys.executable, "-c", ONE_PROCESSOR, str(one), *arguments]
    options = {"capture_output": True, "encoding": "utf-8", "check": False, "timeout": 900}
    return processes.run(command, cwd=cwd, env=environment, **options)


def matches(shown: str, real: str) -> bool:
    """Whether the output is the one shown: … stands for what differs from run to run, alone on a line for any lines."""
    parts = re.split(r"(^…$|…)", shown.strip(), flags=re.MULTILINE)
    alone = [not before.strip(" ") or before.endswith("\n") for before in parts[:-2:2]]
    gaps = [
        "(?s:.*?)" if first and after[:1] in ("", "\n") else ".*?"
        for first, after in zip(alone, parts[2::2], strict=True)
    ]
    pattern = "".join(re.escape(text) + gap for text, gap in zip(parts[::2], [*gaps, ""], strict=True))
    return re.fullmatch(pattern, real.strip()) is not None


def test_there_is_something_to_execute() -> None:
    assert len([1 for name, _, _, output in python_blocks() if name == "README.md" and output]) == 2
    shown = {session.page for session in sessions()} | {name for name, *_ in python_blocks()}
    assert shown == set(EXECUTED)
    assert sum(len(session.commands) for session in sessions()) >= 10


@pytest.mark.parametrize(("name", "files", "code", "output"), list(python_blocks()))
def test_code_prints_what_is_shown(
    name: str, files: dict[str, str], code: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(files, tmp_path)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), {"__name__": "readme"})
    assert matches(output, printed.getvalue()), printed.getvalue()


LONG = ("cosimo export quarter-truck --output fmus", "cosimo sweep quarter-truck --sample")
"""How sessions begin that take many seconds: the tutorial, and a study of 200 runs."""


def session_parameters() -> Iterator[object]:
    for session in sessions():
        first = session.commands[0][0].splitlines()[0]
        slow = session.page != "docs/command-line.md" and first.startswith(LONG)
        yield pytest.param(session, id=f"{session.page}: {first}", marks=[pytest.mark.slow] if slow else [])


@pytest.mark.parametrize("session", list(session_parameters()))
def test_commands_print_what_is_shown(session: Session, tmp_path: Path) -> None:
    write(session.files, tmp_path)
    for commands, output in session.commands:
        printed = ""
        for command in commands.splitlines():
            program, *arguments = shlex.split(command)
            assert program == "cosimo"
            done = cosimo(*arguments, cwd=tmp_path)
            printed += done.stdout + done.stderr
        slashes = printed.replace("\\", "/") if sys.platform == "win32" else printed
        assert matches(output, printed) or matches(output, slashes), printed


def test_commands_can_be_copied_alone() -> None:
    """No prompt, and no output in a block of commands."""
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        assert "```console" not in text, path.name
        assert not re.search(r"^ *\$ ", text, re.MULTILINE), path.name


def test_the_ten_lines_are_ten() -> None:
    code = next(code for name, _, code, _ in python_blocks() if name == "README.md")
    assert len([line for line in code.splitlines() if line.strip()]) == 10


def test_errors_named_in_the_readme() -> None:
    """Off by 464 %, and by 8.8 %, of the largest true displacement within 20 s."""
    system, h = co.problems.two_mass(), 4e-3
    jacobi = co.masters.jacobi(system, h)
    seidel = co.masters.gauss_seidel(system, h, order=["two", "one"], coupling=co.couplings.Hold(1))
    flow = LinearSystem(system, jacobi).coupled.flow(h)
    states = [np.concatenate([unit.initial_state for unit in system.units.values()])]
    for _ in range(5000):
        states.append(flow @ states[-1])
    exact = np.array(states)[:, 2]
    errors = [
        np.abs(co.run(system, master, stop=20.0)["two.x"] - exact).max() / np.abs(exact).max()
        for master in (jacobi, seidel)
    ]
    assert errors == pytest.approx([4.64, 0.088], rel=0.006)
    told = [co.analyse(system, master, horizon=20.0, details=False).error for master in (jacobi, seidel)]
    assert [error.outputs["two.x"] for error in told] == pytest.approx(errors, rel=1e-6)


PICTURES = runpy.run_path(str(ROOT / "docs" / "images" / "make.py"))


@pytest.mark.parametrize("name", mostly_slow(PICTURES["PICTURES"], {"two-mass", "results", "isolation", "structure"}))
def test_pictures_are_those_the_script_draws(name: str, tmp_path: Path) -> None:
    PICTURES["main"](tmp_path, (name,))
    drawn, kept = ((folder / f"{name}.svg").read_text() for folder in (tmp_path, ROOT / "docs" / "images"))
    # Fonts and renderers differ a little between versions; the drawing has the same number of parts.
    assert drawn.count("<path") == kept.count("<path")
    assert abs(len(drawn) - len(kept)) < 0.1 * len(kept)


def test_every_page_that_answers_a_question_has_a_picture() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("- How-to:")[1].split("- Symptoms:")[0]
    pages = re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)
    assert len(pages) > 10
    without = [name for name in pages if "](images/" not in (ROOT / "docs" / name).read_text(encoding="utf-8")]
    assert without == ["coming-from.md"]  # a table of other tools


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = [unicodedata.normalize("NFKD", title).encode("ascii", "ignore").decode().lower() for title in titles]
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", title).strip()) for title in plain}


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("https://"):
            place, _, anchor = target.partition("#")
            page = path.parent / place if place else path
            assert page.exists(), target
            assert not anchor or anchor in anchors(page), target
    named = re.findall(r"\[([^\]]*\.md`?)\]\(", path.read_text(encoding="utf-8"))
    assert not named, f"a link is called by the title of its page, not {named}"


@pytest.mark.parametrize("path", [ROOT / "CONTRIBUTING.md", ROOT / "README.md"], ids=lambda path: path.name)
def test_files_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for name in re.findall(r"`((?:src|tests|docs|examples)/[\w/.-]+)`", text):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize("contract", [Coupling, Unit])
def test_contributing_has_the_contracts_of_the_docstrings(contract: type) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.split(f"## How to add a {contract.__name__.lower()}\n")[1].split("\n## ")[0]
    points = re.findall(r"^ *\d+\. (.*?)(?=^ *\d+\. |\Z)", contract.__doc__ or "", re.MULTILINE | re.DOTALL)
    wanted = [word for point in points for word in re.findall(r"`(\w+(?:\(\w*\))?)`", point)]
    assert len(points) >= 4
    assert not [word for word in wanted if f"`{word}`" not in section]


@pytest.mark.parametrize(("page", "least"), [("theory", 10), ("kernel", 8)])
def test_pages_name_modules_that_exist(page: str, least: int) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    modules = re.findall(r"`((?:algebra|analysis|core|execution|units)/\w+\.py|\w+\.py)`", text)
    sources = re.findall(r"`(\w+\.[hc]pp)`", text)
    assert len(modules) + len(sources) > least
    for folder, names in (("cosimo", modules), ("kernel", sources)):
        for name in names:
            assert (ROOT / "src" / folder / name).exists(), name


def test_command_line_page_has_every_verb_and_option() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    options = {o for verb in verbs.values() for p in verb.params for o in p.opts if o.startswith("--")}
    missing = [word for word in (*verbs, *options) if word not in text]
    assert not missing, f"docs/command-line.md does not mention {missing}"


def documents(folder: Path) -> dict[str, dict[str, object]]:
    """What the verbs print with `--json`."""
    system, step = co.problems.two_mass(), 1e-3
    jacobi, iterative = co.masters.jacobi(system, step), co.masters.iterative(system, step)
    model = Model(system, step=step, horizon=0.1)
    wanted = reference(system, step=step, stop=0.1, model=model)
    trials = try_masters(model, combinations(system, step, "jacobi", "hold0"), wanted)
    tuned = co.tune(system, Space(steps=step, families=("jacobi",), kinds=(0, 1)), evaluations=4, horizon=0.1)
    designed = co.compensate(system, jacobi)
    verdict = co.analyse(system, jacobi, horizon=0.1, at=[0.0])
    study = run_study(Study(system, Grid({"step": [1e-3, 2e-3]}), ["max:two.x"], stop=0.1), workers=1)
    fmu = export_unit(system.units["one"], folder / "one.fmu", name="one", fmi=2)
    return {
        "analyse": verdict.fields(),
        "run": run_fields(co.run(system, iterative, stop=0.01), 1.0, None),
        "compare": MasterComparison(system.name, step, 0.1, wanted, trials).fields(),
        "tune": replace(tuned, verified=tuned.verify(1)).fields(),
        "sweep": as_json(study_document(study, None, verdict)),
        "compensate": as_json(compensation_document(designed, compare(designed, stop=0.1))),
        "reproduce": next(iter(reproduce(["gomes2018"]))).fields,
        "info": describe("two-mass").to_dict(),
        "info of an FMU": describe(fmu).to_dict(),
    }


NAMED = {"samples", "runs", "errors", "measures", "final", "nrms", "capabilities", "external_inputs", "unconnected",
         "correlations", "point", "experiment", "verdict", "monitors", "monolithic", "reasons", "trust"}  # fmt: skip
"""Fields whose keys are names of the user's, or are described elsewhere on the page."""


def field_names(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in NAMED:
                yield from field_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from field_names(inner)


def test_command_line_page_has_every_json_field(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    missing = {
        verb: [name for name in dict.fromkeys(field_names(fields)) if f"`{name}`" not in text]
        for verb, fields in documents(tmp_path).items()
    }
    assert not any(missing.values()), f"docs/command-line.md does not mention {missing}"


def test_command_line_page_has_every_exit_code() -> None:
    text = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8").split("## Exit codes")[1]
    kinds = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    codes = {kind.exit_code for kind in kinds if "exit_code" in vars(kind)}
    shown = {int(code) for cells in re.findall(r"^\| ([\d, ]+) \|", text, re.MULTILINE) for code in cells.split(",")}
    assert shown == codes | {0, 129, 143}  # the last two of signals, as 130
