"""The command line at a terminal: how much it says, its colours, what it completes, and a newcomer's first hour."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main

import processes
from cosimo.cli import app, completion
from cosimo.cli.application import main  # without the handlers of signals, which belong to a process of its own
from cosimo.core.errors import ConfigurationError, UnknownNameError, nearest, no_such_file
from cosimo.couplings import parse_coupling
from cosimo.formats.export import export_unit
from cosimo.formats.results import read_result
from cosimo.papers import PAPERS
from cosimo.problems import CATALOGUE
from cosimo.units import StateSpace
from processes import PLAIN, at_terminal


class Done(NamedTuple):
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


Cosimo = Callable[..., Done]


@pytest.fixture
def cosimo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[Cosimo]:
    """The command line in this process, in an empty folder: starting a new one for each command takes a second."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["cosimo", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        return Done(int(left.value.code or 0), *capsys.readouterr())

    yield call
    signal.signal(signal.SIGTERM, before)


# ---- quiet, usual, verbose -------------------------------------------------------------------------------------------


def test_every_verb_has_the_common_options() -> None:
    verbs = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    assert {"new", "analyse", "run", "plot", "info", "problems"} <= set(verbs)
    for name, verb in verbs.items():
        options = {option for parameter in verb.params for option in parameter.opts}
        assert {"--quiet", "-q", "--verbose", "-v", "--json"} <= options, name


def test_quiet_says_errors_only(tmp_path: Path, cosimo: Cosimo) -> None:
    grows = ("run", "two-mass", "--step-size", "4e-3", "--stop-time", "20")
    usual, quiet = cosimo(*grows), cosimo(*grows, "--quiet")
    assert "warning: t =" in usual.stderr
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "", "")
    wrong = cosimo("analyse", "two-mas", "-q")
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert "did you mean 'two-mass" in wrong.stderr
    (tmp_path / "bad.toml").write_text("x = 1\n", encoding="utf-8")
    assert (cosimo("validate", "bad.toml", "-q").returncode, usual.returncode) == (2, 0)


def test_quiet_json_is_still_one_document(cosimo: Cosimo) -> None:
    done = cosimo("run", "two-mass", "--step-size", "4e-3", "--json", "--quiet")
    assert json.loads(done.stdout)["steps"] == 5000
    assert done.stderr == ""


def test_verbose_tells_what_was_loaded_and_chosen(cosimo: Cosimo) -> None:
    done = cosimo("run", "two-mass", "--stop-time", "1", "--verbose")
    for wanted in (
        "loaded two-mass: two-mass, 2 units, 3 connections",
        "one: Mechanical",
        "schedule F1 F2 G1 G2 H1 H2",
    ):
        assert wanted in done.stderr
    assert "by the kernel engine" in done.stderr
    assert re.search(r"stepping the units took \S+ s of \S+ s", done.stderr)
    assert "done in" in done.stderr
    assert "macro steps" in done.stdout


def test_quiet_and_verbose_contradict_each_other(cosimo: Cosimo) -> None:
    done = cosimo("problems", "-q", "-v")
    assert done.returncode == 2
    assert "contradict each other; give one of them" in done.stderr


# ---- colours and the bar ---------------------------------------------------------------------------------------------


def test_colours_only_at_a_terminal(tmp_path: Path, cosimo: Cosimo) -> None:
    arguments = ("analyse", "two-mass", "--step-size", "4e-3")
    assert "\x1b" not in cosimo(*arguments).stdout
    _, seen = at_terminal(*arguments, cwd=tmp_path)
    assert re.search("\x1b\\[31;1m[^\x1b]*Do not trust: unstable", seen)
    _, seen = at_terminal("analyse", "two-mass", "--step-size", "4e-3", "--target-error", "10", cwd=tmp_path)
    assert re.search("\x1b\\[31;1m[^\x1b]*Do not trust: unstable", seen), "by its mark, whatever else is said"
    _, seen = at_terminal("analyse", "two-mass", "--target-error", "1", cwd=tmp_path)
    assert re.search("\x1b\\[32m[^\x1b]*Trust: every output within", seen)
    plain = {"NO_COLOR": "1"}
    code, wrong = at_terminal("analyse", "two-mass", "--coupling", "x", cwd=tmp_path, **plain)
    assert code == 2
    assert wrong.startswith("cosimo: unknown coupling 'x'")


def test_a_long_run_shows_a_bar_and_warns_at_once(tmp_path: Path) -> None:
    # The plain engine takes some seconds for so many steps, and the amplitudes do not overflow in that time.
    code, seen = at_terminal(
        "run", "two-mass", "--step-size", "4e-3", "--stop-time", "60", "--engine", "reference", cwd=tmp_path
    )
    assert code == 0
    assert "of 60 s" in seen
    assert "real time" in seen
    assert seen.count("grows by the factor") >= 2, "at once, and in the summary"


def test_a_run_says_what_is_next(tmp_path: Path, cosimo: Cosimo) -> None:
    code, seen = at_terminal("run", "two-mass", "--stop-time", "1", "-o", "r.parquet", cwd=tmp_path)
    assert code == 0
    assert "next: cosimo plot r.parquet" in seen
    assert "next: cosimo plot two-mass.parquet" in at_terminal("run", "two-mass", "--stop-time", "1", cwd=tmp_path)[1]
    assert "next:" not in cosimo("run", "two-mass", "--stop-time", "1").stderr


# ---- completion ------------------------------------------------------------------------------------------------------


def completed(line: str, cwd: Path) -> list[str]:
    words = line.split(" ")
    more = {"_COSIMO_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    code = "import sys; sys.argv[0] = 'cosimo'; from cosimo.cli import main; main()"
    environment = {**PLAIN, **more}
    done = processes.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False, timeout=300, env=environment
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout.split()


def test_the_shell_completes_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text("", encoding="utf-8")
    (tmp_path / "two.txt").write_text("", encoding="utf-8")
    (tmp_path / "r.csv").write_text("time,two.x,two.v\n0,1,2\n", encoding="utf-8")
    assert set(completed("cosimo analyse two", tmp_path)) == {
        *(n for n in CATALOGUE if n.startswith("two")),
        "two.toml",
    }
    assert completed("cosimo run x --master gau", tmp_path) == ["gauss-seidel"]
    assert completed("cosimo compare x --masters jacobi,gau", tmp_path) == ["jacobi,gauss-seidel"]
    assert completed("cosimo reproduce tam", tmp_path) == ["tamellin2022"]
    assert completed("cosimo plot r.csv two.", tmp_path)[:2] == ["two.x", "two.v"]
    assert "analyse" in completed("cosimo an", tmp_path)


def test_completed_words_are_those_that_exist(tmp_path: Path) -> None:
    assert completion.problems() == list(CATALOGUE)
    assert completion.papers() == sorted(PAPERS)
    for word in completion.couplings():
        parse_coupling(word + {"nepce:": "0.5", "dmd:": "100"}.get(word, ""))
    (tmp_path / ".hidden.fmu").write_text("", encoding="utf-8")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.fmu").write_text("", encoding="utf-8")
    assert completion.complete_files(f"{tmp_path}/", (".fmu",)) == [f"{tmp_path}/a.fmu", f"{tmp_path}/folder/"]
    assert completion.complete_files(f"{tmp_path}/nowhere/", (".fmu",)) == []
    assert list(completion.variables(tmp_path / "missing.parquet")) == []


def test_variables_are_completed_from_every_format(tmp_path: Path, cosimo: Cosimo) -> None:
    for suffix in ("parquet", "csv", "arrow", "arrows"):
        file = f"r.{suffix}"
        assert cosimo("run", "two-mass", "--stop-time", "0.01", "-o", file).returncode == 0
        assert list(completion.variables(tmp_path / file))[:3] == ["one.f", "two.x", "two.v"], suffix


# ---- a newcomer ------------------------------------------------------------------------------------------------------


def test_from_two_fmus_to_a_figure_without_reading_anything(tmp_path: Path, cosimo: Cosimo) -> None:
    assert "cosimo new system.toml A.fmu B.fmu" in " ".join(cosimo("--help").stdout.split())
    assert cosimo("export", "quarter-truck", "-o", "fmus").returncode == 0
    made = cosimo("new", "truck.toml", "fmus/chassis.fmu", "fmus/wheel.fmu")
    assert made.returncode == 0, made.stderr
    assert "cosimo analyse truck.toml" in made.stdout.split("\n")[-2]
    assert "chassis.force → wheel.force  (same name)" in made.stdout
    assert cosimo("validate", "truck.toml").returncode == 0
    verdict = cosimo("analyse", "truck.toml", "--json")
    direct = cosimo("analyse", "quarter-truck", "--json")
    told, known = json.loads(verdict.stdout), json.loads(direct.stdout)
    assert told["stable"] is known["stable"]
    assert told["spectral_radius"] == pytest.approx(known["spectral_radius"], rel=1e-6)
    assert told["step_size"] == known["step_size"]
    assert cosimo("run", "truck.toml", "-o", "truck.parquet").returncode == 0
    listed = cosimo("plot", "truck.parquet")
    assert "wheel.position" in listed.stdout
    assert cosimo("plot", "truck.parquet", "wheel.*", "-o", "wheel.svg").stdout.strip() == "wheel.svg"
    assert (tmp_path / "wheel.svg").stat().st_size > 1000
    assert "wheel.position" in cosimo("plot", "truck.parquet", "wheel.position").stdout


def test_new_replaces_nothing_unless_told(tmp_path: Path, cosimo: Cosimo) -> None:
    cosimo("export", "two-mass", "-o", ".")
    (tmp_path / "system.toml").write_text("mine", encoding="utf-8")
    refused = cosimo("new", "system.toml", "one.fmu", "two.fmu")
    assert refused.returncode == 2
    assert "--force to replace it" in refused.stderr
    assert (tmp_path / "system.toml").read_text(encoding="utf-8") == "mine"
    fmu = (tmp_path / "one.fmu").read_bytes()
    forgotten = cosimo("new", "one.fmu", "two.fmu", "--force")
    assert forgotten.returncode == 2
    assert "cosimo new system.toml one.fmu two.fmu" in forgotten.stderr
    assert (tmp_path / "one.fmu").read_bytes() == fmu
    done = cosimo("new", "system.toml", "one.fmu", "two.fmu", "--force", "--json")
    fields = json.loads(done.stdout)
    assert {(c["source"], c["target"]) for c in fields["connections"]} == {
        ("one.f", "two.f"),
        ("two.x", "one.x2"),
        ("two.v", "one.v2"),
    }
    assert [c["target"] for c in fields["connections"] if c["check_sign"]] == ["two.f"]
    assert (fields["step_size"], fields["stop_time"], fields["problems"]) == (0.001, 20.0, [])
    text = (tmp_path / "system.toml").read_text(encoding="utf-8")
    turned = '{ from = "one.f", to = "two.f", gain = -1.0 },'
    (tmp_path / "turned.toml").write_text(re.sub(r'  "one.f -> two.f",.*\n', f"  {turned}\n", text), encoding="utf-8")
    short = ("--step-size", "4e-3", "--stop-time", "0.2")
    verdict = json.loads(cosimo("analyse", "turned.toml", *short, "--json").stdout)
    known = json.loads(cosimo("analyse", "two-mass", *short, "--json").stdout)
    assert verdict["spectral_radius"] == pytest.approx(known["spectral_radius"], rel=1e-6)


def test_plot_json_and_several_results(tmp_path: Path, cosimo: Cosimo) -> None:
    for master in ("jacobi", "gauss-seidel"):
        cosimo("run", "two-mass", "--stop-time", "1", "--master", master, "-o", f"{master}.csv")
    done = cosimo("plot", "jacobi.csv", "gauss-seidel.csv", "two.x", "--json")
    curves = json.loads(done.stdout)["curves"]
    assert [curve["signal"] for curve in curves] == ["two.x (jacobi.csv)", "two.x (gauss-seidel.csv)"]
    assert curves[0]["last"] != curves[1]["last"]
    names = json.loads(cosimo("plot", "jacobi.csv", "--json").stdout)["results"]
    assert names["jacobi.csv"][0] == "one.f"


def test_plot_draws_the_first_signals_where_none_are_named(tmp_path: Path, cosimo: Cosimo) -> None:
    (tmp_path / "r.csv").write_text("time,a.x,a.v,b.x,b.v\n0,1,2,3,4\n1,2,3,4,7\n", encoding="utf-8")
    lines = cosimo("plot", "r.csv").stdout.split("\n")
    assert [line for line in lines if line in ("a.x", "a.v", "b.x", "b.v")] == ["a.x", "a.v", "b.x"], "titles of plots"
    assert "r.csv: 2 rows from 0 s to 1 s, 4 signals" in lines
    assert lines[-2].split() == ["b.v", "4", "7", "4", "7"], "all are listed, once"
    assert "".join(lines).count("b.v") == 1
    told = json.loads(cosimo("plot", "r.csv", "--variable", "b.*", "-o", "r.svg", "--json").stdout)
    assert [curve["signal"] for curve in told["curves"]] == ["b.x", "b.v"]
    assert told["figure"] == "r.svg"
    assert "results" not in told


# ---- where rows go ---------------------------------------------------------------------------------------------------


def test_rows_of_a_single_fmu_go_to_the_working_folder(tmp_path: Path, cosimo: Cosimo) -> None:
    """The folder of an FMU is that of a library, not of a study; the last line says where the rows are."""
    (tmp_path / "library").mkdir()
    unit = StateSpace(-1.0, 1.0, 1.0, initial=1.0, start={"u1": 0.0})
    export_unit(unit, tmp_path / "library" / "lag.fmu", name="lag", fmi=2)
    done = cosimo("run", "library/lag.fmu", "--step-size", "0.1", "--stop-time", "1")
    assert "2 signals in lag.parquet" in done.stdout
    assert [path.name for path in (tmp_path / "library").iterdir()] == ["lag.fmu"]
    assert (tmp_path / "lag.parquet").exists()


def test_rows_go_beside_the_scenario_unless_told(tmp_path: Path, cosimo: Cosimo) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "truck.toml").write_text('problem = "quarter-truck"\nstop-time = 0.01\n')
    done = cosimo("run", "deep/truck.toml")
    assert f"9 signals in {Path('deep', 'truck.parquet')}" in done.stdout
    assert len(read_result(tmp_path / "deep" / "truck.parquet")) == 11
    told = json.loads(cosimo("run", "two-mass", "--stop-time", "0.01", "--variable", "two.x", "--json").stdout)
    assert told["output_file"] == "two-mass.parquet"
    assert read_result(tmp_path / "two-mass.parquet").names == ("two.x",)
    told = json.loads(cosimo("run", "tank", "--stop-time", "1", "--no-output", "--json").stdout)
    assert told["output_file"] is None
    assert not (tmp_path / "tank.parquet").exists()
    assert "contradicts" in cosimo("run", "tank", "--no-output", "--every", "2").stderr


@pytest.mark.slow
def test_only_a_file_of_its_own_is_replaced(tmp_path: Path, cosimo: Cosimo) -> None:
    run = ("run", "two-mass", "--stop-time")
    for stop in ("0.01", "0.02"):
        assert "in two-mass.parquet" in cosimo(*run, stop).stdout
    assert len(read_result(tmp_path / "two-mass.parquet")) == 21, "that of the last run"
    cosimo(*run, "0.03", "-o", "two-mass.parquet")
    assert "in two-mass-2.parquet" in cosimo(*run, "0.04").stdout
    assert len(read_result(tmp_path / "two-mass.parquet")) == 31, "somebody named it"
    (tmp_path / "two-mass-2.parquet").write_text("mine")
    assert "in two-mass-3.parquet" in cosimo(*run, "0.04").stdout
    assert (tmp_path / "two-mass-2.parquet").read_text() == "mine"
    (tmp_path / "two-mass-3.parquet.partial").write_text("of a run that was killed")
    assert "in two-mass-4.parquet" in cosimo(*run, "0.04").stdout
    (tmp_path / "two-mass.toml").write_text('problem = "two-mass"\nstop-time = 0.01\n')
    assert "in two-mass-5.parquet" in cosimo("run", "two-mass.toml").stdout, "the others are of the problem"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plot", "two.x"], "no result file was named"),
        (["plot", "missing.parquet", "two.x"], "missing.parquet"),
        (["plot", "r.csv", "two.xx"], "did you mean 'two.x'?"),
        (["plot", "r.cvs", "two.x"], "did you mean 'r.csv'?"),
        (["plot", "rr.csv", "two.x"], "did you mean 'r.csv'?"),
        (["plot", "r.csv", "--variable", "two.xx"], "did you mean 'two.x'?"),
        (["plot", "r.csv", "two.x", "-o", "r.xyz"], "is not a figure format"),
    ],
)
def test_plot_refuses_with_a_remedy(arguments: list[str], message: str, tmp_path: Path, cosimo: Cosimo) -> None:
    (tmp_path / "r.csv").write_text("time,two.x,two.v\n0,1,2\n1,2,3\n", encoding="utf-8")
    done = cosimo(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# ---- unknown names suggest the nearest -------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("arguments", "near"),
    [
        (["analyse", "two-mas"], "two-mass"),
        (["analyse", "pupm.toml"], "pump.toml"),
        (["analyse", "two-mass", "--master", "gauss-sidel"], "gauss-seidel"),
        (["analyse", "two-mass", "--master", "multirate", "--inputs", "hold"], "held"),
        (["analyse", "two-mass", "--master", "gauss-seidel", "--order", "one,tow"], "two"),
        (["analyse", "two-mass", "--coupling", "hold11"], "hold1"),
        (["analyse", "two-mass", "--coupling", "two.F=hold1"], "f"),
        (["analyse", "two-mass", "--coupling", "tow.f=hold1"], "two"),
        (["analyse", "two-mass", "--master", "multirate", "--multiple", "oen=2"], "one"),
        (["analyse", "two-mass", "--set", "dampning=1"], "damping"),
        (["run", "two-mass", "--variable", "two.xx", "-o", "r.csv"], "two.x"),
        (["run", "two-mass", "--engine", "kernal"], "kernel"),
        (["run", "two-mass", "--adaptive", "enrgy"], "energy"),
        (["run", "two-mass", "--power-pair", "two.ff,two.v"], "f"),
        (["compensate", "two-mass", "--target", "exakt"], "exact"),
        (["compare", "two-mass", "--reference", "fime"], "fine"),
        (["compare", "two-mass", "--masters", "jakobi"], "jacobi"),
        (["export", "two-mass", "--unit", "onee", "-o", "x.fmu"], "one"),
        (["reproduce", "glumac2019"], "glumac2018"),
        (["new", "s.toml", "pupm.fmu"], "pump.fmu"),
        (["validate", "key.toml"], "step-size"),
        (["validate", "kind.toml"], "state-space"),
        (["validate", "unit.toml"], "tank"),
        (["validate", "variable.toml"], "level"),
        (["validate", "literal.toml"], "exact"),
        (["validate", "problem.toml"], "two-mass"),
    ],
)
def test_unknown_names_suggest_the_nearest(arguments: list[str], near: str, tmp_path: Path, cosimo: Cosimo) -> None:
    tank = '[units.tank]\nkind = "state-space"\nA = -1.0\nB = 1.0\nC = 1.0\ninputs = ["u"]\noutputs = ["level"]\n'
    files = {
        "pump.toml": tank,
        "pump.fmu": "",
        "key.toml": "step-siz = 1.0\n" + tank,
        "kind.toml": tank.replace("state-space", "state-spcae"),
        "unit.toml": 'connections = ["tnak.level -> tank.u"]\n' + tank,
        "variable.toml": 'connections = ["tank.levl -> tank.u"]\n' + tank,
        "literal.toml": tank + 'integrator = "exakt"\n',
        "problem.toml": 'problem = "two-mas"\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = cosimo(*arguments)
    assert done.returncode == 2
    assert f"did you mean '{near}'" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("arguments", "near"), [(["analyse", "two-mass", "--masterr", "x"], "--master"), (["analise"], "analyse")]
)
def test_unknown_options_and_verbs_suggest_the_nearest(arguments: list[str], near: str, cosimo: Cosimo) -> None:
    done = cosimo(*arguments)
    assert done.returncode == 2
    assert near in done.stderr


def test_the_nearest_name() -> None:
    assert nearest("one.X", ["one.x", "one.v"]) == "one.x"
    assert nearest("F", ["f", "F2"]) == "F2"
    assert nearest("qqq", ["one", "two"]) is None
    assert str(UnknownNameError("unit", "on", [])) == "unknown unit 'on'; known: none."


def test_a_missing_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "truck.toml").write_text("", encoding="utf-8")
    (tmp_path / "trunk.txt").write_text("", encoding="utf-8")
    error = no_such_file(tmp_path / "truk.toml", (".toml",))
    assert isinstance(error, ConfigurationError)
    assert f"did you mean '{tmp_path / 'truck.toml'}'?" in str(error)
    assert "check the path" in str(no_such_file(tmp_path / "nowhere" / "x.toml"))
