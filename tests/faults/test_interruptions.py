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
from contract import COSIMO, PATIENCE, command, note, once_checkpointed, once_recording, require_contract, require_rows

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
