"""The command line on real files: FMUs, packages and scenarios in; rows, sentences and exit codes out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import cosimo
from faulty import left_in
from fmu_builder import build
from hybrid import build_model

import processes
from cosimo import masters
from cosimo.core.result import Result
from cosimo.execution.running import run
from cosimo.formats.export import export_ssp, export_system
from cosimo.formats.results import read_result
from cosimo.problems import two_mass

COSIMO = [sys.executable, "-m", "cosimo.cli"]
NOT_A_FOLDER = "No such file or directory" if sys.platform == "win32" else "Not a directory"
INSIDE = Path("one.fmu", "x.fmu")
FORMATS = (".parquet", ".csv", ".arrow", ".arrows", ".mat")

SCENARIO = """
name = "masses and a meter"
step-size = 1e-3
stop-time = 0.5
connections = [
  { from = "one.f", to = "two.f", gain = -1.0 },
  "two.x -> one.x2",
  "two.v -> one.v2",
  "one.f -> meter.force",
]

[units.one]
fmu = "one.fmu"

[units.two]
fmu = "two.fmu"

[units.meter]
kind = "python"
class = "meter.py:Meter"
"""
METER = """
class Meter:
    inputs, outputs = ("force",), ("work",)

    def __init__(self):
        self.work = 0.0

    def step(self, time, duration):
        self.work += duration * abs(self.force)
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    """Where the processes extract FMUs; all must be gone afterwards."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    yield folder
    assert left_in(folder) == []


@pytest.fixture
def folder(tmp_path: Path, temporary: Path) -> Path:
    """A folder with the two masses as FMUs, as a package, and coupled to a Python class by a scenario."""
    there = tmp_path / "work"
    export_system(two_mass(), there, fmi=2)
    export_ssp(two_mass(), there / "two-mass.ssp", fmi=3, step=1e-3, stop=0.5)
    (there / "masses.toml").write_text(SCENARIO, encoding="utf-8")
    (there / "meter.py").write_text(METER, encoding="utf-8")
    return there


def succeed(folder: Path, *arguments: str) -> Any:
    """The JSON document of a command that does its job without a word on standard error."""
    done = cosimo(folder, *arguments, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def refuse(folder: Path, code: int, *arguments: str, largest_file: int | None = None) -> str:
    """The one line that a failing command prints, and its document says too."""
    done = cosimo(folder, *arguments, "--json", largest_file=largest_file)
    assert done.returncode == code, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("cosimo: ")
    document = json.loads(done.stdout)
    assert document["exit_code"] == code
    if document.get("unit") is None:
        assert f"cosimo: {document['error']}" == line
    else:  # unit · phase · time · variable · cause · log path, and the same as fields
        places = [
            document["phase"],
            f"t = {document['time']:.12g} s",
            document["variable"],
            document["cause"].rstrip("."),
        ]
        wanted = [document["unit"], *places, document["log"]]
        assert line == "cosimo: " + " · ".join(part or "–" for part in wanted)
    return line


def expected(stop: float = 0.5) -> Result:
    system = two_mass()
    return run(system, masters.jacobi(system, 1e-3), stop=stop, record="all")


def test_without_json_a_failure_is_one_line_on_standard_error(folder: Path) -> None:
    command = [*COSIMO, "run", "tow-mass.ssp", "--output-file", "rows.csv"]
    done = processes.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "cosimo: the file 'tow-mass.ssp' does not exist; did you mean 'two-mass.ssp'?\n"


# ---- export ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_export_a_unit_and_run_it(fmi: str, folder: Path) -> None:
    assert succeed(folder, "export", "two-mass", "--unit", "one", "--fmi", fmi, "-o", "new.fmu") == {
        "files": ["new.fmu"]
    }
    info = succeed(folder, "info", "new.fmu")
    assert info["fmi_version"].startswith(fmi)
    assert succeed(folder, "validate", "new.fmu") == {"valid": True, "problems": []}
    fields = succeed(folder, "run", "new.fmu", "--stop-time", "1", "--output-file", "rows.csv")
    assert (fields["steps"], fields["output_file"]) == (1000, "rows.csv")
    assert read_result(folder / "rows.csv").names == ("new.f", "new.x2", "new.v2")


def test_export_all_units_and_a_package(folder: Path) -> None:
    files = succeed(folder, "export", "chain", "-o", "chain")["files"]
    assert sorted(files) == sorted(str(Path("chain", f"u{i}.fmu")) for i in range(1, 11))
    assert all((folder / file).stat().st_size > 1000 for file in files)
    assert succeed(folder, "export", "two-mass", "--ssp", "--fmi", "2", "-o", "new.ssp") == {"files": ["new.ssp"]}
    assert "SystemStructure.ssd" in zipfile.ZipFile(folder / "new.ssp").namelist()
    assert succeed(folder, "validate", "new.ssp")["valid"]
    assert succeed(folder, "export", "two-mass", "-o", "named.ssp") == {"files": ["named.ssp"]}  # the name says it
    assert succeed(folder, "validate", "named.ssp")["valid"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["two-mass", "--unit", "oen", "-o", "x.fmu"], 2, "unknown unit 'oen'; did you mean 'one'?"),
        (["two-mass", "--unit", "one", "--fmi", "4", "-o", "x.fmu"], 2, "FMI 2 or 3, not 4"),
        (["masses.toml", "--unit", "meter", "-o", "x.fmu"], 2, "only StateSpace and Mechanical units can be exported"),
        (
            ["two-mass", "--unit", "one", "-o", "one.fmu/x.fmu"],
            7,
            f"cannot write '{Path('one.fmu', 'x.fmu')}': {NOT_A_FOLDER}",
        ),
        (["two-mass", "-o", "one.fmu"], 7, "cannot create the folder 'one.fmu'"),
    ],
)
def test_what_cannot_be_exported(arguments: list[str], code: int, message: str, folder: Path) -> None:
    assert message in refuse(folder, code, "export", *arguments)
    assert not (folder / "x.fmu").exists()


# ---- info, validate, analyse -----------------------------------------------------------------------------------------


def test_info_describes_every_kind_of_file(folder: Path) -> None:
    fmu = succeed(folder, "info", "one.fmu")
    assert [v["name"] for v in fmu["variables"] if v["causality"] == "input"] == ["x2", "v2"]
    for file in ("two-mass.ssp", "masses.toml"):
        system = succeed(folder, "info", file)
        assert {"one", "two"} <= {unit["name"] for unit in system["units"]}
        assert len(system["connections"]) >= 3
        assert "one.x2" in cosimo(folder, "info", file).stdout


def test_validate_says_all_that_is_wrong(folder: Path) -> None:
    text = SCENARIO.replace('"two.x -> one.x2"', '"two.xx -> one.x2"').replace("meter.force", "meter.forse")
    (folder / "wrong.toml").write_text(text, encoding="utf-8")
    done = cosimo(folder, "validate", "wrong.toml")
    assert done.returncode == 2
    assert "wrong.toml:7: " in done.stdout
    assert "'xx'" in done.stdout
    assert "Traceback" not in done.stderr
    document = json.loads(cosimo(folder, "validate", "wrong.toml", "--json").stdout)
    assert not document["valid"]
    assert document["problems"] == done.stdout.splitlines()


def test_analyse_identifies_fmus_and_python_units(folder: Path) -> None:
    package, scenario = (
        succeed(folder, "analyse", file, "--step-size", "4e-3") for file in ("two-mass.ssp", "masses.toml")
    )
    for fields in (package, scenario):
        assert {unit["name"] for unit in fields["units"]} >= {"one", "two"}
        assert fields["trust"] == "no"
        assert fields["horizon"] == fields["error_horizon"] == 0.5
    assert (package["evidence"], package["error_kind"], package["stable"]) == ("confirmed", "predicted", False)
    assert package["measured_error"] == pytest.approx(package["error"], rel=0.02)
    # The meter adds up |f|: linear where it starts, not over the whole motion. So only runs are believed.
    assert (scenario["evidence"], scenario["error_kind"]) == ("measured", "measured")
    assert scenario["spectral_radius"] is None
    assert "meter" in scenario["reasons"]["model"]
    for name in ("one.f", "two.x", "two.v"):
        assert scenario["errors"][name] == pytest.approx(package["errors"][name], rel=0.02), name


# ---- run -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_package_in_every_format(suffix: str, folder: Path) -> None:
    fields = succeed(folder, "run", "two-mass.ssp", "--output-file", f"rows{suffix}")
    assert (fields["steps"], fields["end_time"], fields["warnings"]) == (500, 0.5, [])
    rows, wanted = read_result(folder / f"rows{suffix}"), expected()
    assert rows.complete
    assert set(rows.names) == set(wanted.names)
    for name in wanted.names:
        assert rows[name] == pytest.approx(wanted[name], rel=1e-12, abs=1e-10)
    assert np.array_equal(rows.time, wanted.time)
    assert not list(folder.glob("*.partial"))


def test_a_scenario_of_fmus_and_a_python_class(folder: Path) -> None:
    fields = succeed(folder, "run", "masses.toml", "--output-file", "rows.parquet")
    assert fields["steps"] == 500
    rows = read_result(folder / "rows.parquet")
    assert rows["two.x"] == pytest.approx(expected()["two.x"], rel=1e-12, abs=1e-12)
    held = np.abs(rows["one.f"][:-1])
    assert rows["meter.work"][1:] == pytest.approx(np.cumsum(1e-3 * held), rel=1e-12)
    again = succeed(folder, "run", "masses.toml", "--engine", "reference", "--output-file", "slow.parquet")
    assert again["steps"] == 500
    assert np.array_equal(read_result(folder / "slow.parquet").to_numpy(), rows.to_numpy())


def test_masters_and_couplings_apply_to_fmus(folder: Path) -> None:
    options = "--master gauss-seidel --order two,one --coupling hold1 --step-size 2e-3 --stop-time 0.1 --parallel"
    succeed(folder, "run", "two-mass.ssp", *options.split(), "--output-file", "rows.csv")
    assert len(read_result(folder / "rows.csv")) == 51
    options = "--master iterative --tolerance 1e-9 --stop-time 0.1"
    assert succeed(folder, "run", "two-mass.ssp", *options.split())["largest_residual"] <= 1e-9


def test_variables_and_decimation(folder: Path) -> None:
    options = "--variable two.* --variable one.f --every 100 --stop-time 0.25 --output-file rows.csv"
    succeed(folder, "run", "two-mass.ssp", *options.split())
    rows = read_result(folder / "rows.csv")
    assert set(rows.names) == {"one.f", "two.x", "two.v", "two.f"}
    assert rows.time == pytest.approx([0.0, 0.1, 0.2, 0.25])
    line = refuse(folder, 2, "run", "two-mass.ssp", "--variable", "tow.*", "--output-file", "rows.csv")
    assert "unknown variable to record 'tow.*'" in line


def test_the_start_time_reaches_fmus(folder: Path) -> None:
    build(folder, "awkward2")
    options = "--start-time 2.5 --stop-time 4.5 --step-size 0.125 --output-file rows.csv"
    succeed(folder, "run", "awkward2.fmu", *options.split())
    rows = read_result(folder / "rows.csv")
    assert np.array_equal(rows["awkward2.y"], rows.time)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_rows_and_nothing_else(number: int, code: int, folder: Path) -> None:
    environment = os.environ | {"TMPDIR": str(folder.parent / "temporary files")}
    command = [*COSIMO, "run", "two-mass.ssp", "--stop-time", "1e7", "--output-file", "rows.arrow", "--json"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = processes.Popen(command, cwd=folder, env=environment, **pipes)
    deadline = time.monotonic() + 120
    stream = folder / "rows.arrow.partial"
    while not (stream.exists() and stream.stat().st_size > 100_000) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    try:
        output, errors = process.communicate(timeout=120)
    finally:
        process.kill()  # one that does not answer would write rows until the disk is full
    assert process.returncode == code
    assert errors.startswith("cosimo: interrupted at t = ")
    document = json.loads(output)
    rows = read_result(folder / "rows.arrow")
    assert len(rows) == document["steps"] + 1
    assert not rows.complete


# ---- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", [0.0, 0.3, 0.95])
def test_a_truncated_fmu(part: float, folder: Path) -> None:
    whole = (folder / "one.fmu").read_bytes()
    (folder / "one.fmu").write_bytes(whole[: int(part * len(whole))])
    for arguments in (["run", "one.fmu", "--stop-time", "1"], ["info", "one.fmu"], ["run", "masses.toml"]):
        line = refuse(folder, 2, *arguments)
        assert "one.fmu" in line
        assert ("damaged or incomplete" if part else "not a zip archive") in line


def test_an_fmu_whose_library_is_none(folder: Path) -> None:
    with zipfile.ZipFile(folder / "one.fmu") as old, zipfile.ZipFile(folder / "bad.fmu", "w") as new:
        for name in old.namelist():
            new.writestr(name, b"no library" if name.startswith("binaries") else old.read(name))
    options = "--step-size 0.1 --stop-time 1 --output-file rows.csv"
    line = refuse(folder, 2, "run", "bad.fmu", *options.split())
    assert "bad.fmu" in line
    assert "cannot be loaded" in line


def test_no_library_for_this_platform(folder: Path) -> None:
    other = "linux64" if sys.platform == "win32" else "win64"
    build(folder, "minimal2", platform=other)
    line = refuse(folder, 2, "run", "minimal2.fmu", "--stop-time", "1", "--step-size", "0.1")
    assert "minimal2.fmu" in line
    assert other in line


def test_solvers_of_model_exchange(folder: Path) -> None:
    build_model(folder, "LINEAR")
    build(folder, "minimal2")
    assert "did you mean 'rk4'" in refuse(folder, 2, "run", "linear2.fmu", "--solver", "rk45")
    assert "is -1; give a number" in refuse(folder, 2, "run", "linear2.fmu", "--relative-tolerance", "-1")
    line = refuse(folder, 2, "run", "minimal2.fmu", "--stop-time", "1", "--step-size", "0.1", "--solver", "rk4")
    assert "'minimal2.fmu' is for co-simulation only, not for model-exchange" in line
    for verb in ("run", "info", "validate", "check-fmu"):
        line = refuse(folder, 2, verb, "minimal2.fmu", "--relative-tolerance", "1e-4")
        assert (
            "is used for co-simulation, with a solver of its own, for which --relative-tolerance means nothing" in line
        )
    line = refuse(folder, 2, "run", "two-mass", "--stop-time", "1", "--solver", "rk4")
    assert "has no FMU that is used for model exchange" in line
    assert "the derivative of state 'v' is nan" in refuse(
        folder, 3, "run", "linear2.fmu", "--set", "linear2.nan_at=0.3"
    )


@pytest.mark.parametrize(
    ("old", "new", "messages"),
    [
        ('"two.x -> one.x2"', '"two.y -> one.x2"', ["masses.toml:7: ", "unknown output of unit 'two' 'y'"]),
        (
            '"two.x -> one.x2"',
            '"two.x -> one.x3"',
            ["masses.toml:7: ", "unknown input of unit 'one' 'x3'; known: v2, x2."],
        ),
        ('"two.x -> one.x2"', '"tow.x -> one.x2"', ["masses.toml:7: ", "did you mean 'two'?"]),
        ('fmu = "two.fmu"', 'fmu = "tow.fmu"', ["tow.fmu", "did you mean"]),
        ("meter.py:Meter", "meter.py:Metre", ["Metre", "meter.py"]),
        ("stop-time", "stop-tiem", ["masses.toml:4: ", "did you mean 'stop-time'?"]),
        ('name = "masses', "name = masses", ["masses.toml:2"]),
    ],
)
def test_a_wrong_scenario(old: str, new: str, messages: list[str], folder: Path) -> None:
    (folder / "masses.toml").write_text(SCENARIO.replace(old, new), encoding="utf-8")
    line = refuse(folder, 2, "run", "masses.toml", "--output-file", "rows.csv")
    for message in messages:
        assert message in line
    assert not list(folder.glob("rows*"))


def test_text_into_a_number(folder: Path) -> None:
    build(folder, "feedthrough2")
    units = '[units.a]\nfmu = "feedthrough2.fmu"\n[units.b]\nfmu = "feedthrough2.fmu"\n'
    (folder / "text.toml").write_text(
        'step-size = 0.1\nstop-time = 1\nconnections = ["a.text_out -> b.real_in"]\n' + units, encoding="utf-8"
    )
    line = refuse(folder, 2, "run", "text.toml")
    assert "text.toml:3: " in line
    assert "'b.real_in' is a number, and the other end is not" in line


AWKWARD = """
step-size = 0.1
stop-time = 1.0
[units.pump]
fmu = "awkward2.fmu"
parameters = {{ {parameter} = {value} }}
[units.tank]
kind = "state-space"
A = -0.5
B = 1
C = 1.0
initial = 1.0
start = {{ u1 = 0.0 }}
"""


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.parametrize(
    ("parameter", "code", "messages"),
    [
        ("fail_at", 3, ["'pump'", "fmi2Error", "it says: pump ran dry", "t = 0.5"]),
        ("fatal_at", 3, ["'pump'", "fmi2Fatal", "it says: memory is gone", "t = 0.5"]),
        ("nan_at", 6, ["pump.y became nan at t = 0.6"]),
    ],
)
def test_units_that_fail(parameter: str, code: int, messages: list[str], suffix: str, folder: Path) -> None:
    build(folder, "awkward2")
    text = AWKWARD.format(parameter=parameter, value=0.55)
    (folder / "pump.toml").write_text(text, encoding="utf-8")
    line = refuse(folder, code, "run", "pump.toml", "--output-file", f"rows{suffix}")
    for message in messages:
        assert message in line
    rows = read_result(folder / f"rows{suffix}")
    assert rows.time == pytest.approx(0.1 * np.arange(6))
    assert rows["pump.y"] == pytest.approx(rows.time)
    assert not rows.complete


def test_descriptions_that_break_the_standard(folder: Path) -> None:
    build(folder, "feedthrough2", file="bad.fmu", changes={'modelName="Feedthrough"': ""})
    line = refuse(folder, 2, "info", "bad.fmu")
    assert "is not valid" in line
    assert "cosimo --no-validate" in line
    assert succeed(folder, "--no-validate", "info", "bad.fmu")["fmi_version"] == "2.0"


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_a_unit_that_ends_the_simulation(suffix: str, folder: Path) -> None:
    """Exit code 0, a notice, and the last row, also where it lies within a macro step."""
    build(folder, "peculiar2")
    (folder / "pump.toml").write_text(
        'step-size = 0.1\nstop-time = 2.0\n[units.pump]\nfmu = "peculiar2.fmu"\nparameters = { end_at = 0.45 }\n'
        "[inputs]\n'pump.u' = 2.0\n",
        encoding="utf-8",
    )
    told = succeed(folder, "run", "pump.toml", "--output-file", f"rows{suffix}")
    assert (told["ended_by"], told["steps"], told["complete"]) == ("pump", 4, True)
    assert told["ended_at"] == told["end_time"] == pytest.approx(0.45)
    assert "t = 0.45: unit 'pump' ended the simulation; the run is complete" in told["warnings"]
    rows = read_result(folder / f"rows{suffix}")
    assert rows.complete
    assert rows.time == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.45])
    assert rows["pump.y"] == pytest.approx(2 * rows.time)


def test_a_python_class_that_raises(folder: Path) -> None:
    (folder / "meter.py").write_text(
        METER + "        if time > 0.2: raise ValueError('out of\\nrange')\n", encoding="utf-8"
    )
    line = refuse(folder, 3, "run", "masses.toml", "--output-file", "rows.csv")
    assert line == "cosimo: meter · doStep · t = 0.201 s · – · ValueError: out of range · –"
    assert len(read_result(folder / "rows.csv")) == 202


@pytest.mark.parametrize("target", ["one.fmu/rows.csv", "nowhere/rows.parquet", "/sys/rows.csv", "."])
def test_where_nothing_can_be_written(target: str, folder: Path) -> None:
    """A file in place of the folder, no folder, a folder that is read-only even for the administrator, a folder."""
    code = 2 if target == "." else 7
    line = refuse(folder, code, "run", "two-mass.ssp", "--stop-time", "1e6", "--output-file", target)
    assert str(Path(target)) in line


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_full_disk(suffix: str, folder: Path) -> None:
    """The stream does not fit; with all rows flushed before, they can be read."""
    options = ["--stop-time", "200", "--output-file", f"rows{suffix}"]
    line = refuse(folder, 7, "run", "two-mass.ssp", *options, largest_file=2_000_000)
    assert f"rows{suffix}" in line
    assert "File too large" in line
    rows = read_result(folder / f"rows{suffix}")
    assert 1000 < len(rows) < 200_000
    assert not rows.complete
    assert np.array_equal(rows.time, 1e-3 * np.arange(len(rows)))


def test_a_disk_that_is_full_when_the_rows_are_converted(folder: Path) -> None:
    options = ["--stop-time", "20", "--output-file", "rows.csv"]
    line = refuse(folder, 7, "run", "two-mass.ssp", *options, largest_file=2_000_000)
    assert "rows.csv" in line
    assert len(read_result(folder / "rows.csv")) == 20_001
