"""What holds for every verb: units that take its process down, hang, or are interrupted, and the folders they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
from contract import await_orphans
from faulty import SEGFAULT, build, left_in

import processes
from cosimo.cli.isolation_options import IsolationOptions, isolate_units
from cosimo.formats.scenario import load
from cosimo.studies import read_study
from cosimo.units.fmi.fmu import Fmu
from thinning import mostly_slow

NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGKILL")
ENDS = [signal.Signals[name] for name in NAMES if hasattr(signal, name)]
LINES = """step-size = 0.01
stop-time = 0.1
[units.sick]
fmu = {fmu!r}
parameters = {{fault = "{fault}", fault_time = {at}}}
[units.sound]
fmu = {fmu!r}
[[connections]]
from = "sick.y"
to = "sound.u"
"""


def command(folder: Path, *words: str) -> dict[str, object]:
    """What starts `cosimo` in `folder`, with a folder of its own for what it extracts."""
    (folder / "temporary").mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "temporary"), "OPENBLAS_NUM_THREADS": "1"}
    environment["FAULT_STAMP"] = str(folder / "stamp")
    return {"args": [sys.executable, "-m", "cosimo.cli", *words], "cwd": folder, "env": environment, "text": True}


def cosimo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    found: subprocess.CompletedProcess[str] = processes.run(
        **command(folder, *words), capture_output=True, timeout=300, check=False
    )  # type: ignore[call-overload]
    assert not left_in(folder / "temporary")
    return found


def scenario(folder: Path, fmu: Path, fault: str = "", at: float = 0.0) -> str:
    (folder / "two.toml").write_text(LINES.format(fmu=str(fmu), fault=fault, at=at))
    return "two.toml"


# ---- in the process of the verb --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        ("analyse",),
        ("tune", "--evaluations", "5"),
        ("report",),
        ("compare",),
    ],
    ids=lambda words: words[0],
)
def test_a_unit_that_ends_the_process(words: tuple[str, ...], fmu: Path, tmp_path: Path) -> None:
    verb, *options = words
    found = cosimo(tmp_path, verb, scenario(tmp_path, fmu, "exit"), *options, "--trust-units", "--json")
    assert found.returncode == 4
    assert "cosimo: sick · doStep · t = 0 s · – · the unit ended the process (exit code 0)" in found.stderr
    fields = json.loads(found.stdout)
    assert (fields["unit"], fields["phase"], fields["exit_code"], fields["time"]) == ("sick", "doStep", 4, 0)


@pytest.mark.parametrize(
    ("fault", "code", "cause"),
    [("segfault", 4, f"the unit crashed: {SEGFAULT}"), ("hang", 5, "the unit took longer than its limit of 2.5 s")],
)
def test_a_unit_that_crashes_or_hangs_while_it_is_identified(
    fault: str, code: int, cause: str, fmu: Path, tmp_path: Path
) -> None:
    found = cosimo(tmp_path, "analyse", scenario(tmp_path, fmu, fault, 0.02), "--unit-timeout", "2.5")
    assert found.returncode == code
    assert f"cosimo: sick · doStep · t = 0.02 s · – · {cause}" in found.stderr


@pytest.mark.parametrize("option", ["--trust-units", "--isolate"])
def test_a_working_directory_that_is_gone(option: str, fmu: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    path = tmp_path / scenario(tmp_path, fmu)
    line = f'cd "{folder}" && rmdir "{folder}" && exec "{sys.executable}" -m cosimo.cli run "{path}" {option}'
    found = processes.run(["sh", "-c", line], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stderr


def test_a_unit_that_crashes_when_it_is_freed(fmu: Path, tmp_path: Path) -> None:
    found = cosimo(tmp_path, "analyse", scenario(tmp_path, fmu, "crash_free"), "--trust-units")
    assert found.returncode == 4
    assert "cosimo: sick · free · t = " in found.stderr


def test_many_slow_calls_are_not_one_that_is_too_slow(fmu: Path, tmp_path: Path) -> None:
    """Whether states are restored is tried before the run, by several steps in a row.

    Three of them take longer than the limit, and one has 0.9 s to spare, which a busy machine does not use up.
    """
    path = tmp_path / scenario(tmp_path, fmu, "slow")
    path.write_text(path.read_text().replace('"slow"', '"slow", amount = 0.6'))
    options = ("--master", "iterative", "--sweeps", "1", "--stop-time", "0.02", "--unit-timeout", "1.5")
    found = cosimo(tmp_path, "run", "two.toml", *options)
    assert found.returncode == 0, found.stderr


# ---- isolated --------------------------------------------------------------------------------------------------------


def test_a_unit_that_hangs_while_it_is_loaded_is_ended_alone(
    fmu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_FAULT_WHILE_LOADING", "hang")
    found = cosimo(tmp_path, "run", scenario(tmp_path, fmu), "--isolate", "--unit-timeout", "2.5")
    assert found.returncode == 5
    assert "cosimo: sick · instantiate · t = 0 s" in found.stderr
    assert "with --isolate" not in found.stderr


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["load", "instantiate", "identify", "step"])
@pytest.mark.one_in(3)
def test_an_isolated_unit_that_hangs_can_be_interrupted_anywhere(
    where: str, ends: signal.Signals, fmu: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = build(tmp_path / "early.fmu", early="hang_instantiate") if where == "instantiate" else fmu
    if where == "load":
        monkeypatch.setenv("LC_FAULT_WHILE_LOADING", "hang")
    words = ["analyse" if where == "identify" else "run", "--isolate"]
    words += ["-o", "rows.csv"] if where == "step" else []
    words.append(scenario(tmp_path, chosen, "hang", 0.05))
    with processes.Popen(**command(tmp_path, *words), stderr=subprocess.PIPE) as process:  # type: ignore[call-overload]
        until = time.monotonic() + 120.0
        while not (tmp_path / "stamp").exists() and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(ends)
        try:
            # One that is not interrupted hangs for ever, or ends with another code when the time for loading is up.
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 128 + ends
    assert "cosimo: interrupted" in errors
    assert not list((tmp_path / "temporary").iterdir())
    if where == "step":
        rows = (tmp_path / "rows.csv").read_text().splitlines()
        assert len([row for row in rows if not row.startswith("#")]) == 7  # a line of names and 6 rows


def test_an_error_leaves_a_log_whatever_the_unit_is_called(fmu: Path, tmp_path: Path) -> None:
    path = tmp_path / scenario(tmp_path, fmu, "error", 0.05)
    path.write_text(path.read_text().replace("units.sick", 'units."a/b"').replace("sick.y", "a/b.y"))
    found = cosimo(tmp_path, "run", "two.toml", "--isolate", "-o", "rows.csv")
    assert found.returncode == 3
    assert found.stderr.splitlines()[-1].endswith("it says: no fuel at t = 0.05 · rows.csv.a_b.log")
    assert (tmp_path / "rows.csv.a_b.log").read_text() == "Error: no fuel at t = 0.05\n"


def test_a_sweep_isolates_too(fmu: Path, tmp_path: Path) -> None:
    options = ("--vary", "sound.amount=0,1", "--workers", "1", "--isolate", "--json")
    found = cosimo(tmp_path, "sweep", scenario(tmp_path, fmu, "exit"), *options)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["crashed"] == 2


# ---- studies in one process ------------------------------------------------------------------------------------------


SWEEP = ("--vary", "sick.fault_time=0.05,1,0.02,2", "--workers", "1", "--trust-units")


@pytest.mark.parametrize("fault", mostly_slow(["segfault", "exit", "exit_at_once"], ["segfault", "exit_at_once"]))
def test_a_crash_in_one_process_is_a_row(fault: str, fmu: Path, tmp_path: Path) -> None:
    """Whatever the unit does to the process, the other points get their rows; the message says what it did.

    Where a process cannot be copied (Windows), the study ends with the unit.
    """
    ended = "the unit ended the process (exit code 0)"
    cause = f"the unit crashed: {SEGFAULT}" if fault == "segfault" else ended
    found = cosimo(tmp_path, "sweep", scenario(tmp_path, fmu, fault), *SWEEP, "--json", "-o", "rows.csv")
    if sys.platform == "win32":
        assert found.returncode == 4
        assert f"cosimo: sick · doStep · t = 0.05 s · – · {cause}" in found.stderr
        return
    assert (found.returncode, found.stderr) == (0, "")
    fields = json.loads(found.stdout)
    assert (fields["ran"], fields["crashed"]) == (2, 2)
    study = read_study(tmp_path / "rows.csv")
    assert study["status"].tolist() == ["crashed", "ran", "crashed", "ran"]
    assert [study["message"][k] for k in (0, 2)] == [f"unit 'sick' at t = {t}: {cause}" for t in (0.05, 0.02)]


def test_a_hang_in_a_study_is_a_row(fmu: Path, tmp_path: Path) -> None:
    options = ("--vary", "sick.fault_time=0.05,1", "--workers", "1", "--unit-timeout", "1.5", "--json")
    found = cosimo(tmp_path, "sweep", scenario(tmp_path, fmu, "hang"), *options)
    assert found.returncode == 0, found.stderr
    fields = json.loads(found.stdout)
    assert (fields["ran"], fields["failed"]) == (1, 1)


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.one_in(3)
def test_a_study_in_one_process_is_ended_and_resumed(ends: signal.Signals, fmu: Path, tmp_path: Path) -> None:
    """A unit that does not return holds nothing up, and nothing of it stays, also where nobody could end it."""
    words = ["sweep", scenario(tmp_path, fmu, "hang"), "--vary", "sick.fault_time=1,2,3,0.05"]
    words += ["--workers", "1", "--trust-units", "-o", "rows.csv"]
    with processes.Popen(**command(tmp_path, *words), stderr=subprocess.PIPE, start_new_session=True) as process:  # type: ignore[call-overload]
        until = time.monotonic() + 120.0
        while not ((tmp_path / "stamp").exists() and len(read_study(tmp_path / "rows.csv")) == 3):
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(ends)
        _, errors = process.communicate(timeout=120)
    if ends.name == "SIGKILL":
        assert process.returncode == -ends
    else:
        assert process.returncode == 128 + ends
        assert "interrupted after 3 of 4 runs, which are kept" in errors
        assert not list((tmp_path / "temporary").iterdir())
    assert not await_orphans(process.pid)
    found = cosimo(tmp_path, *words, "--resume", "--unit-timeout", "1.5", "--json")  # removes what a killed one left
    fields = json.loads(found.stdout)
    assert (fields["ran"], fields["failed"], fields["resumed"]) == (3, 1, 3)


@pytest.mark.sandbox
def test_a_sandbox_leaves_no_fmu_out(fmu: Path, tmp_path: Path) -> None:
    system = load(tmp_path / scenario(tmp_path, fmu)).system
    with IsolationOptions(isolate=["sick"], sandbox=True).around({}):
        isolate_units(system)
    assert [isinstance(u, Fmu) and u.isolation and u.isolation.sandbox for u in system.units.values()] == [True, True]


# ---- folders ---------------------------------------------------------------------------------------------------------


STRUCTURE = """<?xml version="1.0" encoding="UTF-8"?>
<ssd:SystemStructureDescription xmlns:ssd="http://ssp-standard.org/SSP1/SystemStructureDescription"
 xmlns:ssc="http://ssp-standard.org/SSP1/SystemStructureCommon" name="packed" version="1.0">
<ssd:System name="packed"><ssd:Elements>
<ssd:Component name="sick" type="application/x-fmu-sharedlibrary" source="resources/sick.fmu">
<ssd:Connectors><ssd:Connector name="y" kind="output"><ssc:Real/></ssd:Connector></ssd:Connectors>
</ssd:Component></ssd:Elements></ssd:System></ssd:SystemStructureDescription>"""


def test_a_crash_leaves_nothing_of_a_package(tmp_path: Path) -> None:
    sick = build(tmp_path / "sick.fmu", early="crash_instantiate")
    with zipfile.ZipFile(tmp_path / "packed.ssp", "w") as package:
        package.writestr("SystemStructure.ssd", STRUCTURE)
        package.write(sick, "resources/sick.fmu")
    found = cosimo(tmp_path, "run", "packed.ssp", "--step-size", "0.01", "--stop-time", "0.1")
    assert found.returncode == 4
    assert "cosimo: sick · instantiate" in found.stderr
