"""A run that is ended from outside: Ctrl-C, termination, kill −9. Rows stay, and checkpoints can be resumed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import faulty
from contract import COSIMO, PATIENCE, command, note, once_checkpointed, once_recording, require_contract, require_rows

import cosimo as co
from cosimo.core.arrays import Array
from cosimo.core.errors import Interrupted
from cosimo.core.result import Result
from cosimo.execution.checkpoints import read_checkpoint
from cosimo.formats.results import read_result

CLOCK = """
import time
class Clock:
    inputs, outputs = {"u": 0.0}, ("wall", "spent", "x")
    def __init__(self):
        self.wall, self.spent, self.x = time.monotonic(), time.process_time(), 1.0
    def step(self, now, duration):
        self.wall, self.spent = time.monotonic(), time.process_time()
        self.x += duration * (self.u - self.x)
"""
SCENARIO = """
step-size = 1e-3
stop-time = 1e6
[units.clock]
kind = "python"
class = "clock.py:Clock"
"""
FLUSH = 1.0 + 0.25
"""Seconds between two flushes, and between two returns of the kernel."""
TICK = 1.0 / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    """A run whose rows say when they were made."""
    (tmp_path / "clock.py").write_text(CLOCK)
    (tmp_path / "s.toml").write_text(SCENARIO)
    return tmp_path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_run_at_once(number: signal.Signals, code: int, clock: Path) -> None:
    ready = once_recording(clock / "rows.parquet", rows=101)

    def disturb(process: subprocess.Popen[str]) -> None:
        ready(process)
        os.kill(process.pid, number)

    outcome = command(clock, "run", "s.toml", "--output-file", "rows.parquet", "--json", disturb=disturb)
    note(f"signal {number.name}", took=outcome.took)
    require_contract(outcome, code=code, names=["interrupted at t = ", "rows so far are kept"], within=PATIENCE)
    assert outcome.document["steps"] > 100
    rows = require_rows(clock / "rows.parquet", at_least=100)
    assert rows.time[-1] == outcome.document["end_time"]


class Lost(NamedTuple):
    """What the rows of a killed run lack: seconds on the clock, and seconds of the processor that the run had spent."""

    wall: float
    spent: float


def killed(folder: Path, after: float, *options: str) -> Lost:
    """Kill −9 some seconds after rows begin to be written."""
    for old in folder.glob("rows.*"):
        old.unlink()
    arguments = ["run", "s.toml", "--output-file", "rows.parquet", *options]
    process = subprocess.Popen([*COSIMO, *arguments], cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        stream = folder / "rows.parquet.partial"
        while not stream.exists():
            assert process.poll() is None
            time.sleep(0.01)
        began = time.monotonic(), spent_by(process.pid)
        time.sleep(after)
        ended = time.monotonic(), spent_by(process.pid)
    finally:
        process.kill()
        process.wait()
    rows = read_result(folder / "rows.parquet")
    assert not rows.complete
    assert np.array_equal(rows.time, 1e-3 * np.arange(len(rows)))
    newest = (rows["clock.wall"][-1], rows["clock.spent"][-1]) if len(rows) else began
    return Lost(ended[0] - newest[0], ended[1] - newest[1])


def spent_by(pid: int) -> float:
    """Seconds of the processor that a process has spent so far."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return TICK * (int(user) + int(system))


def require_killed(folder: Path, times: int) -> None:
    moments = random.Random(9)
    lost = [killed(folder, moments.uniform(0.0, 3.0)) for _ in range(times)]
    note("kill −9 of the master", readable=times, of=times, lost=max(each.wall for each in lost))
    # The run computes all the time: on a quiet machine both are the same, on a busy one only the clock goes on.
    assert max(each.spent for each in lost) < FLUSH + 2 * TICK, lost


def test_rows_survive_a_kill(clock: Path) -> None:
    require_killed(clock, 2)


@pytest.mark.slow
def test_rows_survive_a_kill_at_any_time(clock: Path) -> None:
    require_killed(clock, 30)


def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    """From the last checkpoint to the same file, bit by bit, as a run that nobody killed."""
    options = ["--set", "damping=1", "--step-size", "1e-4", "--stop-time", "400", "--every", "1000"]

    ready = once_checkpointed(tmp_path / "cut.csv")

    def disturb(process: subprocess.Popen[str]) -> None:
        ready(process)
        process.kill()

    cut = command(
        tmp_path, "run", "two-mass", *options, "--output-file", "cut.csv", "--checkpoint-every", "0.05", disturb=disturb
    )
    assert cut.code == -signal.SIGKILL
    step = read_checkpoint(tmp_path / "cut.csv")["step"]
    assert 0 < step < 4_000_000
    rows = len(require_rows(tmp_path / "cut.csv"))
    resumed = command(tmp_path, "resume", "cut.csv", "--json")
    assert resumed.code == 0, resumed.errors
    assert resumed.document["steps"] == 4_000_000
    assert command(tmp_path, "run", "two-mass", *options, "--output-file", "whole.csv").code == 0
    assert (tmp_path / "cut.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert not list(tmp_path.glob("cut.csv.*[!n]"))  # only cut.csv.json is left
    note("resume after kill −9", rows_before=rows, checkpoint=step)


class Swallows:
    """A unit that interrupts the run at its third step, and catches what that raises."""

    inputs, outputs = {"u": 0.0}, ("x",)

    def __init__(self) -> None:
        self.x = 0.0

    def step(self, now: float, duration: float) -> None:
        self.x += 1.0
        if self.x == 3.0:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                for _ in range(1000):
                    pass
            except KeyboardInterrupt:
                pass


def test_an_interrupt_that_somebody_catches_is_not_lost() -> None:
    system = co.System({"one": co.PythonUnit(Swallows)})
    with pytest.raises(Interrupted, match="interrupted at t = ") as found:
        co.run(system, co.masters.jacobi(system, 1e-3), stop=1e3)
    assert found.value.result is not None
    assert np.array_equal(found.value.result["one.x"], np.arange(len(found.value.result)))
    again = co.run(system, co.masters.jacobi(system, 1.0), stop=2.0)  # and it is over with the run
    assert again.complete


# ---- at any moment ---------------------------------------------------------------------------------------------------


ENDS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
KINDS = ("fmu", "deaf", "isolated", "python")
HANDLERS = """
import signal
class Deaf:
    inputs, outputs = {"u": 0.0}, ("x",)
    def __init__(self):
        self.x = 1.0
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    def step(self, now, duration):
        self.x += duration * (self.u - self.x)
"""


def write_system(folder: Path, kind: str) -> tuple[str, ...]:
    """A run without end of a unit that sets handlers of its own ("deaf", "python"), or of none; its options."""
    (folder / "deaf.py").write_text(HANDLERS)
    faulty.build(folder / "unit.fmu")
    given = 'parameters = { fault = "deaf", amount = 1e-4 }\n' if kind == "deaf" else ""
    unit = 'kind = "python"\nclass = "deaf.py:Deaf"\n' if kind == "python" else f'fmu = "unit.fmu"\n{given}'
    (folder / "s.toml").write_text(f"step-size = 1e-3\nstop-time = 1e6\n[units.one]\n{unit}")
    return ("--isolate",) if kind == "isolated" else ()


def interrupted(folder: Path, number: signal.Signals, after: float, *options: str) -> Result | None:
    """Send a signal `after` seconds from when the process handles signals on, and judge what is left: its rows."""
    for old in folder.glob("rows.*"):
        old.unlink()

    def disturb(process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not handles(process.pid, number):
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(after)
        process.send_signal(number)

    outcome = command(
        folder,
        "run",
        "s.toml",
        "--output-file",
        "rows.csv",
        *options,
        disturb=disturb,
        prepare=lambda: None,
        timeout=PATIENCE,
    )  # a new interpreter, for which what is loaded first belongs to the moments
    assert outcome.code == ENDS[number], (outcome.code, outcome.errors)
    lines = [line for line in outcome.errors.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1, outcome.errors
    assert lines[0].startswith("cosimo: interrupted"), lines
    assert not outcome.orphans
    if (folder / "rows.csv").exists() or (folder / "rows.csv.partial").exists():
        rows = read_result(folder / "rows.csv")
        assert not rows.complete
        assert np.array_equal(rows.time, 1e-3 * np.arange(len(rows)))
        return rows
    assert "nothing was written" in lines[0]
    return None


def handles(pid: int, number: signal.Signals) -> bool:
    """Whether a process has a handler for a signal."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    # Python itself handles Ctrl-C, with a traceback, from earlier on: the others are ours.
    asked = signal.SIGTERM if number is signal.SIGINT else number
    return bool(int(caught.split()[1], 16) >> (asked - 1) & 1)


def require_interrupted(folder: Path, times: int, seed: int = 18) -> None:
    draw = random.Random(seed)
    longest: dict[bool, Array] = {}
    for trial in range(times):
        kind, number = KINDS[trial % len(KINDS)], draw.choice(list(ENDS))
        rows = interrupted(folder, number, draw.uniform(0.0, 2.5), *write_system(folder, kind))
        if rows is not None:  # of two runs of the same unit one has the first rows of the other
            ours = rows["one.x" if kind == "python" else "one.y"]
            theirs = longest.setdefault(kind == "python", ours)
            count = min(len(ours), len(theirs))
            assert np.array_equal(ours[:count], theirs[:count])
            longest[kind == "python"] = max(ours, theirs, key=len)
    left = [path.name for path in (folder / "temporary").iterdir()]
    (folder / "s.toml").write_text('step-size = 1e-3\nstop-time = 1e-2\n[units.one]\nfmu = "unit.fmu"\n')
    after = command(folder, "run", "s.toml")  # the next start
    assert after.code == 0, after.errors
    assert not after.left, (left, after.left)


def test_a_run_is_interrupted_at_some_moments(tmp_path: Path) -> None:
    require_interrupted(tmp_path, 4)


@pytest.mark.slow
def test_a_run_is_interrupted_at_any_moment(tmp_path: Path) -> None:
    require_interrupted(tmp_path, 200)
