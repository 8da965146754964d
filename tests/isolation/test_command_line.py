"""The options of the command line, and what it says when a unit takes its own process down."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faulty import SEGFAULT, left_in

import processes
from cosimo.cli.application import spell_out
from cosimo.formats.scenario import load


@pytest.fixture
def scenario(fmu: Path, tmp_path: Path) -> Path:
    """Two units, of which the first can be given a fault."""
    path = tmp_path / "two units.toml"
    path.write_text(
        f"""step-size = 0.01
stop-time = 2.0
[units.sick]
fmu = {str(fmu)!r}
parameters = {{fault = "FAULT", fault_time = 0.3}}
[units.sound]
fmu = {str(fmu)!r}
"""
    )
    return path


def cosimo(scenario: Path, fault: str, *options: str) -> subprocess.CompletedProcess[str]:
    scenario.write_text(scenario.read_text().replace("FAULT", fault))
    folder = scenario.parent / "work"
    folder.mkdir(exist_ok=True)
    (folder / "temporary").mkdir()
    environment = {**os.environ, "TMPDIR": str(folder / "temporary"), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "cosimo.cli", "run", str(scenario), *options]
    found = processes.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert not left_in(folder / "temporary")
    return found


@pytest.mark.parametrize("options", [[], ["--json", "-o", "rows.csv"]], ids=["text", "json"])
def test_a_crash_in_an_isolated_unit(scenario: Path, options: list[str]) -> None:
    found = cosimo(scenario, "abort", "--isolate", *options)
    assert found.returncode == 4
    line = found.stderr.splitlines()[-1]
    assert line.startswith(
        "cosimo: sick · doStep · t = 0.3 s · – · crashed in fmi2DoStep: SIGABRT (aborted); it says: "
    )
    if not options:
        return
    fields = json.loads(found.stdout)
    assert (fields["unit"], fields["phase"], fields["exit_code"], fields["steps"]) == ("sick", "doStep", 4, 30)
    assert fields["time"] == pytest.approx(0.3)
    assert fields["log"] == "rows.csv.sick.log"
    assert line.endswith("rows.csv.sick.log")
    rows = (scenario.parent / "work" / "rows.csv").read_text().splitlines()
    assert len([row for row in rows if not row.startswith("#")]) == 32  # a line of names and 31 rows


@pytest.mark.parametrize(
    ("fault", "cause", "phase"),
    [
        ("segfault", f"the unit crashed: {SEGFAULT}", "doStep"),
        ("stack_overflow", f"the unit crashed: {SEGFAULT}", "doStep"),
        ("exit", "the unit ended the process (exit code 0)", "doStep"),
        ("crash_initialise", f"the unit crashed: {SEGFAULT}", "initialise"),
        ("crash_free", f"the unit crashed: {SEGFAULT}", "free"),
    ],
    ids=["segfault", "stack_overflow", "exit", "crash_initialise", "crash_free"],
)
def test_a_crash_in_the_own_process(scenario: Path, fault: str, cause: str, phase: str) -> None:
    found = cosimo(scenario, fault, "--json", "-o", "rows.csv", "--trust-units")
    assert found.returncode == 4
    assert f"cosimo: sick · {phase} · t = " in found.stderr
    assert f"{cause}; rows written so far are in 'rows.csv.partial'; with --isolate sick" in found.stderr
    fields = json.loads(found.stdout)
    assert (fields["unit"], fields["phase"], fields["exit_code"]) == ("sick", phase, 4)
    assert fields["cause"].startswith(cause)


@pytest.mark.parametrize("options", [[], ["--isolate"]], ids=["in process", "isolated"])
def test_a_hang(scenario: Path, options: list[str]) -> None:
    found = cosimo(scenario, "hang", "--unit-timeout", "2.5", "--json", "-o", "rows.arrows", *options)
    assert found.returncode == 5
    assert "cosimo: sick · doStep · t = 0.3 s" in found.stderr
    assert "limit of 2.5 s" in found.stderr
    assert json.loads(found.stdout)["exit_code"] == 5
    written = scenario.parent / "work" / ("rows.arrows" if options else "rows.arrows.partial")
    import pyarrow.ipc

    with written.open("rb") as stream:
        assert pyarrow.ipc.open_stream(stream).read_all().num_rows == 31


def test_an_isolated_unit_that_hangs_can_be_interrupted(scenario: Path) -> None:
    scenario.write_text(scenario.read_text().replace("FAULT", "hang"))
    stamp = scenario.parent / "stamp"  # where the unit notes that it hangs from now on
    environment = {**os.environ, "TMPDIR": str(scenario.parent), "OPENBLAS_NUM_THREADS": "1", "FAULT_STAMP": str(stamp)}
    command = [sys.executable, "-m", "cosimo.cli", "run", str(scenario), "--isolate", "-o", "rows.csv"]
    with processes.Popen(command, cwd=scenario.parent, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 120.0
            while not stamp.exists() and time.monotonic() < until:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)  # one that is not interrupted hangs for ever
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted at t = 0.3" in errors


def test_what_units_print_does_not_spoil_the_document(scenario: Path) -> None:
    found = cosimo(scenario, "print", "--json")
    assert found.returncode == 0
    assert json.loads(found.stdout)["steps"] == 200
    assert '{"not": "yours"' in found.stderr


def test_wrong_options(scenario: Path) -> None:
    found = cosimo(scenario, "", "--isolate", "nobody")
    assert found.returncode == 2
    assert "unknown unit 'nobody'" in found.stderr


def test_a_scenario_can_ask_for_it(scenario: Path) -> None:
    text = scenario.read_text().replace("FAULT", "")
    scenario.write_text(text + "sandbox = true\nmemory = 64\ntimeout = 2\n")
    sick, sound = load(scenario).system.units.values()
    assert sick.isolation is None  # type: ignore[attr-defined]
    assert (sound.isolation.sandbox, sound.isolation.memory, sound.isolation.timeout) == (True, 64, 2)  # type: ignore[attr-defined]


def test_limits_without_isolation_are_refused(scenario: Path) -> None:
    from cosimo.core.errors import ConfigurationError

    scenario.write_text(scenario.read_text() + "memory = 64\n")
    with pytest.raises(ConfigurationError, match="isolate = true"):
        load(scenario)


def test_isolate_alone_means_all() -> None:
    assert spell_out(["run", "a.ssp", "--isolate"]) == ["run", "a.ssp", "--isolate=*"]
    assert spell_out(["run", "--isolate", "--json", "a.ssp"]) == ["run", "--isolate=*", "--json", "a.ssp"]
    assert spell_out(["run", "a.ssp", "--isolate", "motor"]) == ["run", "a.ssp", "--isolate", "motor"]
