"""`make wheel` and `make windows`: wheels that need no compiler, tests under Wine, and what a release needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from wheels import windows
from wheels.__main__ import LARGEST, TARGETS, universal
from wheels.windows import Kept, Outcome, read_left_out, read_outcome, summary

from cosimo.units.fmi.archive import library_platforms

ROOT = Path(__file__).parents[1]
Cosimo = Callable[..., str]


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel for this system and CPython 3.11, made here."""
    subprocess.run([sys.executable, "-m", "wheels", "linux", "--python", "3.11"], cwd=ROOT, check=True)
    return max((ROOT / "dist").glob("cosimo-*-cp311-cp311-manylinux_2_28_x86_64.whl"), key=os.path.getmtime)


@pytest.fixture(scope="module")
def cosimo(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Cosimo:
    """The command of an environment that holds the wheel and what it requires; no program is found but its own."""
    import venv  # not in every Python for Windows

    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "--quiet", str(wheel)], check=True)
    path = str(folder / "bin")
    assert all(shutil.which(compiler, path=path) is None for compiler in ("cc", "c++", "gcc", "g++", "clang"))
    environment = {"PATH": path, "HOME": str(folder), "COSIMO_CACHE": "off"}

    def run(*arguments: str | Path, where: Path) -> str:
        command = [str(folder / "bin" / "cosimo"), *map(str, arguments)]
        done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_the_wheel_is_small_and_has_the_libraries_of_all_systems(wheel: Path) -> None:
    assert wheel.stat().st_size <= LARGEST
    for stem in ("unit", "coupling"):
        with zipfile.ZipFile(wheel) as archive:
            files = [name for name in archive.namelist() if name.startswith(f"cosimo/formats/_fmu/{stem}.")]
            found = {platform for name in files for platform in library_platforms(archive.read(name))}
        assert found == {"x86_64-linux", "x86_64-windows", "x86_64-darwin", "aarch64-darwin"}


@pytest.mark.slow
def test_a_wheel_analyses_and_reports_without_a_compiler(cosimo: Cosimo, tmp_path: Path) -> None:
    verdict = json.loads(cosimo("analyse", "two-mass", "--step-size", "4ms", "--json", where=tmp_path))
    assert verdict["stable"] is False
    cosimo("report", "two-mass", "--step-size", "1ms", "--run", "--stop-time", "1", "-o", "a.html", where=tmp_path)
    assert "</html>" in (tmp_path / "a.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_wheel_exports_fmus_for_all_systems_and_runs_them(cosimo: Cosimo, tmp_path: Path) -> None:
    cosimo("export", "two-mass", "--ssp", "-o", "two.ssp", where=tmp_path)
    ran = json.loads(cosimo("run", "two.ssp", "--step-size", "1ms", "--stop-time", "1", "--json", where=tmp_path))
    assert ran["steps"] == 1000
    with zipfile.ZipFile(tmp_path / "two.ssp") as package:
        package.extractall(tmp_path / "inside")
    with zipfile.ZipFile(tmp_path / "inside" / "resources" / "one.fmu") as fmu:
        libraries = {name for name in fmu.namelist() if name.startswith("binaries/")}
    assert libraries == {"binaries/linux64/one.so", "binaries/win64/one.dll", "binaries/darwin64/one.dylib"}


@pytest.mark.slow
def test_the_fmu_of_a_coupling_is_run_and_left(cosimo: Cosimo, tmp_path: Path) -> None:
    """Its library has the C++ library of zig inside, and is closed before the process ends."""
    cosimo("export", "two-mass", "--as-fmu", "both.fmu", "--step-size", "1ms", where=tmp_path)
    ran = json.loads(cosimo("run", "both.fmu", "--step-size", "1ms", "--stop-time", "1", "--json", where=tmp_path))
    assert ran["steps"] == 1000


def test_what_is_left_out_under_wine_is_there_and_has_a_reason() -> None:
    """A name that no longer fits would leave nothing out, or hide that its test is gone."""
    groups = read_left_out()
    names = [name for names in groups.values() for name in names]
    assert all(reason.strip() for reason in groups)
    assert len(names) == len(set(names))
    for name in names:
        file, _, test = name.partition("::")
        assert (ROOT / file).exists(), name
        assert not test or f"def {test.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8"), name


def test_one_library_of_macos_for_two_processors() -> None:
    """The table of <mach-o/fat.h>: number of parts; of each processor, variant, offset, size, alignment."""
    intel, arm = b"\xcf\xfa\xed\xfe" + b"i" * 5000, b"\xcf\xfa\xed\xfe" + b"a" * 100
    made = universal([("x86_64", intel), ("aarch64", arm)])
    assert library_platforms(made) == ("x86_64-darwin", "aarch64-darwin")
    for place, content in ((8, intel), (28, arm)):
        _, _, offset, size, power = struct.unpack_from(">5I", made, place)
        assert made[offset : offset + size] == content
        assert offset % 2**power == 0


# ---- make windows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code", "passed", "failed"),
    [
        ("..\n48 passed, 70 deselected in 10.76s\n", 0, 48, 0),
        ("FAILED a\n4 failed, 29 passed, 8 deselected in 49.99s\n", 1, 29, 4),
        ("ERROR a\n1 error in 2.00s\n", 1, 0, 1),
        ("3 passed, 2 errors in 100.00s (0:01:40)\n", 1, 3, 2),
        ("9 deselected in 1.00s\n", 5, 0, 0),
        ("...\nWindows fatal exception: code 0xc0000139\n", 3, 0, 1),
        ("12 passed in 1.00s\nWindows fatal exception\n", 134, 0, 1),
        ("12 passed in 1.00s\n", 1, 12, 1),
        ("", 0, 0, 1),
    ],
)
def test_what_became_of_a_file_of_tests(text: str, code: int, passed: int, failed: int) -> None:
    """A file that did not get to its end is a failure, whatever it printed before."""
    outcome = read_outcome(text, code, "build/a.log")
    assert (outcome.passed, outcome.failed) == (passed, failed)
    assert ("build/a.log" in outcome.said) == (failed > 0)


def test_what_lacks_a_program_is_told() -> None:
    """`tests/conftest.py` leaves it out, and the summary names the file."""
    text = "...\nLEFT OUT: 4 tests marked 'browser': there is no program 'chromium'\n3 passed, 4 deselected in 1.00s\n"
    outcome = read_outcome(text, 0, "build/a.log")
    assert (outcome.passed, outcome.lacking) == (3, "4 tests marked 'browser': there is no program 'chromium'")
    assert summary({"tests/a.py": outcome}, {})[-1] == f"  tests/a.py: {outcome.lacking}"


def test_a_run_under_wine_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "ROOT", tmp_path)
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / name).write_text("")
    record = tmp_path / "build" / "windows.json"
    kept = Kept(record, "wheel 1")
    kept.add("test_a.py", Outcome(2, 0, "2 passed"))
    kept.add("test_b.py", Outcome(1, 1, "1 failed, 1 passed"))
    again = Kept(record, "wheel 1")
    assert again.find("test_a.py") == Outcome(2, 0, "2 passed")
    assert again.find("test_b.py") is None  # what failed is tried again
    (tmp_path / "test_a.py").write_text("changed")
    assert again.find("test_a.py") is None
    assert Kept(record, "wheel 2").files == {}


def test_the_summary_has_numbers_and_names() -> None:
    outcomes = {"tests/a.py": Outcome(3, 0, "3 passed"), "tests/b.py": Outcome(1, 2, "2 failed, 1 passed")}
    lines = summary(outcomes, {"no such thing.": ["tests/c.py", "tests/d.py::test_e"]})
    assert lines[:2] == ["2 files, 6 tests run, 4 passed, 2 failed", "  failed: tests/b.py: 2 failed, 1 passed"]
    assert lines[2:] == ["left out: 2 files and tests", "  no such thing.", "    tests/c.py", "    tests/d.py::test_e"]


# ---- what a release needs --------------------------------------------------------------------------------------------


def read_yaml(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_wheels_are_made_on_three_systems_and_published_without_a_secret() -> None:
    text = (ROOT / ".github" / "workflows" / "wheels.yml").read_text(encoding="utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    systems = {system.partition("-")[0] for system in jobs["wheels"]["strategy"]["matrix"]["system"]}
    assert systems == {"ubuntu", "windows", "macos"}
    assert "secrets." not in text
    assert "password" not in text
    allowed = {name for name, job in jobs.items() if job.get("permissions", {}).get("id-token") == "write"}
    assert allowed == {"publish"}
    assert jobs["publish"]["environment"] == "release"
    for job in jobs.values():  # nothing is published that was not made before
        for needed in [job["needs"]] if isinstance(job.get("needs"), str) else job.get("needs", []):
            assert needed in jobs
    kept = {step["with"]["name"] for job in jobs.values() for step in job["steps"] if "upload" in step.get("uses", "")}
    assert kept == {"libraries", "wheels-${{ matrix.system }}", "wheels-source"}
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    assert "python -m wheels libraries --python 3.12" in commands


def test_wheels_of_other_machines_are_those_that_are_made_here() -> None:
    """The same versions of Python and oldest systems, and the library inside exported FMUs for all systems."""
    settings = project()["tool"]["cibuildwheel"]
    assert {word.partition("-")[0] for word in settings["build"].split()} >= {"cp311", "cp312"}
    (folder,) = settings["config-settings"].values()
    jobs = read_yaml(".github/workflows/wheels.yml")["jobs"]
    assert folder in [step.get("with", {}).get("path") for step in jobs["wheels"]["steps"]]
    assert TARGETS["linux"].tag.startswith(settings["linux"]["manylinux-x86_64-image"])
    target = settings["macos"]["environment"]["MACOSX_DEPLOYMENT_TARGET"]
    assert all(f"macos.{target}" in TARGETS[name].zig for name in ("macos-arm", "macos-intel"))
    assert TARGETS["windows"].zig in settings["windows"]["environment"]["CXX"]


def test_the_recipe_says_what_the_package_does() -> None:
    recipe, package = read_yaml("wheels/recipe.yaml"), project()["project"]
    assert recipe["context"]["version"] == package["version"]
    required = {word.replace(" ", "") for word in recipe["requirements"]["run"]}
    assert required == {*package["dependencies"], f"python{package['requires-python']}"}
    built = {word.replace(" ", "") for word in recipe["requirements"]["host"]}
    assert built == {*project()["build-system"]["requires"], "python", "pip"}
    assert recipe["about"]["license"] == package["license"]
    assert recipe["about"]["summary"] == package["description"]
    (command,) = recipe["build"]["python"]["entry_points"]
    assert dict([command.split(" = ")]) == package["scripts"]


def test_the_citation_is_that_of_this_version() -> None:
    citation, package = read_yaml("CITATION.cff"), project()["project"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # required by version 1.2.0 of the format
    assert citation["cff-version"] == "1.2.0"
    assert (str(citation["version"]), citation["license"]) == (package["version"], package["license"])
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in package["authors"]]
    assert package["description"].lower() in citation["title"].lower()


def test_the_paper_has_the_form_of_the_journal() -> None:
    """Fields and sections that the Journal of Open Source Software asks for, and every reference cited and listed."""
    _, head, text = (ROOT / "paper" / "paper.md").read_text(encoding="utf-8").split("---\n", 2)
    fields = yaml.safe_load(head)
    assert {"title", "tags", "authors", "affiliations", "date", "bibliography"} <= set(fields)
    indices = {place["index"] for place in fields["affiliations"]}
    assert all(author["affiliation"] in indices for author in fields["authors"])
    sections = re.findall(r"^# (.+)$", text, re.MULTILINE)
    assert sections == ["Summary", "Statement of need", "State of the field", "Software design", "References"]
    assert 250 <= len(text.split()) <= 1000
    listed = re.findall(
        r"^@\w+\{(\w+),", (ROOT / "paper" / fields["bibliography"]).read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(listed) == len(set(listed))
    assert set(re.findall(r"@(\w+)", text)) == set(listed)


def test_the_entry_for_the_list_of_fmi_tools() -> None:
    """The fields and words of the list, and no system that nobody has run."""
    entry = json.loads((ROOT / "wheels" / "fmi-tools.json").read_text(encoding="utf-8"))
    words = {
        "platforms": {"macOS", "Linux", "Windows"},
        "interfaces": {"GUI", "CLI", "library"},
        "fmiVersions": {"1.0", "2.0", "3.0"},
        "fmuExport": {"CS", "ME", "SE"},
        "fmuImport": {"CS", "ME", "SE"},
    }
    texts = ("name", "license", "url", "vendor", "vendorURL", "description")
    assert set(entry) == {*texts, *words, "features"}
    assert all(set(entry[field]) <= known for field, known in words.items())
    assert entry["license"] in ("commercial", "osi")
    assert not entry["description"].endswith(".")
    assert set(entry["platforms"]) == {target.system for target in TARGETS.values() if target.tried}
