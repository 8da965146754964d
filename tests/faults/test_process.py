"""Units in the master's process that do something to it: its signals, copies of it, its end, threads that live on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import suite_cases as case
from contract import once_recording, require_contract, require_rows
from suite_trials import AUTO, IN_PROCESS, ISOLATED, OPTIONS, Trial, observe, require_kept, write

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_unit_does_not_take_the_signals(number: signal.Signals, code: int, tmp_path: Path) -> None:
    case.deaf(number, code)(tmp_path, IN_PROCESS, 0)


DEAF = """
import signal
class Deaf:
    inputs, outputs = (), ("x",)
    def __init__(self):
        self.x = 0.0
    def step(self, now, duration):
        signal.signal({number}, signal.SIG_IGN)
        assert signal.signal(signal.SIGUSR1, signal.SIG_IGN) in (signal.SIG_DFL, signal.SIG_IGN)
        self.x += duration
"""


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_unit_in_python_does_not_take_the_signals(number: signal.Signals, code: int, tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF.format(number=int(number)))
    (tmp_path / "s.toml").write_text(
        'step-size = 1e-3\nstop-time = 1e6\n[units.deaf]\nkind = "python"\nclass = "deaf.py:Deaf"\n'
    )
    ready = once_recording(tmp_path / "rows.arrows", rows=2)

    def disturb(process: subprocess.Popen[str]) -> None:
        ready(process)
        os.kill(process.pid, number)

    outcome, *_ = observe(tmp_path, "--output-file", "rows.arrows", disturb=disturb)
    require_contract(outcome, code=code, names=["interrupted at t = "])
    require_rows(tmp_path / "rows.arrows")


@pytest.mark.parametrize("mode", [IN_PROCESS, ISOLATED])
def test_a_copy_of_the_process_is_ended(mode: str, tmp_path: Path) -> None:
    case.copied(tmp_path, mode, 0)


@pytest.mark.parametrize("fault", ["exit_at_once", "quick_exit", "exec"])
def test_a_unit_does_not_end_the_process_unseen(fault: str, tmp_path: Path) -> None:
    write(tmp_path, fault)
    outcome, *_ = observe(tmp_path, "--output-file", "rows.csv", *OPTIONS[IN_PROCESS])
    says = "replace the process by 'true'" if fault == "exec" else "the unit ended the process (exit code 0)"
    require_contract(outcome, code=4, names=["sick", "doStep", says])


@pytest.mark.parametrize("mode", [IN_PROCESS, ISOLATED])
def test_libraries_with_threads_stay_loaded(mode: str, tmp_path: Path) -> None:
    case.threaded(tmp_path, mode, 0)


def test_a_unit_that_handles_its_crash_itself_is_named(tmp_path: Path) -> None:
    write(tmp_path, "crash_handler")
    outcome, *_ = observe(tmp_path, "--output-file", "rows.csv", *OPTIONS[IN_PROCESS])
    require_contract(outcome, code=4, names=["sick", "doStep", "SIGSEGV"])


@pytest.mark.parametrize("mode", [IN_PROCESS, ISOLATED])
@pytest.mark.parametrize("phase", ["set", "get"])
def test_the_phase_of_a_crash(phase: str, mode: str, tmp_path: Path) -> None:
    write(tmp_path, f"crash_{phase}")
    (tmp_path / "s.toml").write_text(
        (tmp_path / "s.toml").read_text() + '[[connections]]\nfrom = "sound.y"\nto = "sick.u"\n'
    )
    outcome, *_ = observe(tmp_path, "--output-file", "rows.csv", *OPTIONS[mode])
    require_contract(outcome, code=4, names=["sick", f"· {phase} ·", "SIGSEGV"])
    require_kept(tmp_path / "rows.csv", 1 if mode == ISOLATED else 0, exactly=False)


@pytest.mark.parametrize("crash", [False, True])
def test_a_daemon_ends_with_its_unit(crash: bool, tmp_path: Path) -> None:
    case.with_daemon(crash=crash)(tmp_path, ISOLATED, 0)


@pytest.mark.parametrize("mode", [IN_PROCESS, ISOLATED])
@pytest.mark.parametrize(("word", "says"), [("Error", "valve stuck"), ("Fatal", "valve lost")])
def test_a_bad_status_from_terminate_is_said(word: str, says: str, mode: str, tmp_path: Path) -> None:
    case.ends_badly(f"{word.lower()}_terminate", f"fmi2{word}", says)(tmp_path, mode, 0)


@pytest.mark.parametrize("trial", [case.crashes_at_first, case.crashes_later], ids=lambda trial: trial.__name__)
def test_an_fmu_that_nobody_knows(trial: Trial, tmp_path: Path) -> None:
    trial(tmp_path, AUTO, 0)


def test_crashes_of_a_study_are_rows_that_are_resumed(tmp_path: Path) -> None:
    case.study(tmp_path, IN_PROCESS, 0)


@pytest.mark.parametrize("trial", [case.quits, case.named("kind")])
def test_units_in_python(trial: Trial, tmp_path: Path) -> None:
    trial(tmp_path, IN_PROCESS, 0)


@pytest.mark.parametrize("mode", [IN_PROCESS, ISOLATED])
def test_a_working_directory_that_is_removed(mode: str, tmp_path: Path) -> None:
    case.without_folder(tmp_path, mode, 0)


@pytest.mark.parametrize("trial", [case.no_file, case.without_end], ids=lambda trial: trial.__name__)
def test_scenarios_that_could_not_end(trial: Trial, tmp_path: Path) -> None:
    trial(tmp_path, "–", 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "trial", [case.loses_worker(starting=False), case.loses_worker(starting=True), case.loses_scheduler]
)
def test_studies_that_lose_a_process(trial: Trial, tmp_path: Path) -> None:
    trial(tmp_path, "–", 0)


CRASH_OUTSIDE = """
import ctypes, faulthandler
from cosimo.core.guarding import guard_options, guarded
faulthandler.disable()
with guard_options(exits=True), guarded(None):
    ctypes.string_at(8)
"""


def test_a_crash_outside_of_a_call_is_said(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CRASH_OUTSIDE], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 4
    assert done.stderr.startswith("cosimo: – · – · t = 0 s · – · crashed outside of a unit's call: SIGSEGV")


CRASHES_IN_STEP = """
import ctypes

class Crashing:
    inputs, outputs = {}, ("x",)
    def __init__(self):
        self.x = 0.0
    def step(self, now, duration):
        if now > 0.45:
            ctypes.string_at(8)
        self.x += 1.0
"""
CRASHES_IN_STEP_TOML = """
step-size = 0.1
stop-time = 1.0
[units.sick]
kind = "python"
class = "crashing.py:Crashing"
"""


def test_a_unit_in_python_that_crashes_is_not_told_of_isolation(tmp_path: Path) -> None:
    """Only FMUs can be isolated."""
    (tmp_path / "crashing.py").write_text(CRASHES_IN_STEP)
    (tmp_path / "crash.toml").write_text(CRASHES_IN_STEP_TOML)
    command = [sys.executable, "-m", "cosimo.cli", "run", "crash.toml", "-o", "rows.csv"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 4
    assert "cosimo: sick · doStep · t = 0.5 s · – · the unit crashed: SIGSEGV" in done.stderr
    assert "rows written so far are in 'rows.csv.partial'" in done.stderr
    assert "--isolate" not in done.stderr
