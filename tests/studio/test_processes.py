"""Signals of runs: bounded memory, nothing lost of what is largest and smallest, and parts as fine as the file."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cosimo as co
from cosimo.core.errors import RunError
from cosimo.studio import processes
from cosimo.studio.processes import BUCKETS, Envelopes, Run, finished_rows


def rows(count: int) -> np.ndarray:
    time = np.arange(float(count))
    return np.column_stack([time, np.sin(0.01 * time), np.where(time == 1234, 50.0, 0.0)])


@pytest.mark.parametrize("block", [1, 997, 40_000, 300_000])
def test_the_past_is_as_fine_as_the_present(block: int) -> None:
    table = rows(300_000 if block > 1 else 9_000)
    signals = Envelopes()
    for begin in range(0, len(table), block):
        signals.add(("a.x", "a.y"), table[begin : begin + block])
    assert signals.rows == len(table)
    for place, name in enumerate(signals.names, 1):
        time, values = signals.of(name)
        assert len(time) <= 2 * BUCKETS + 4
        assert (np.diff(time) >= 0).all()
        assert np.diff(time).max() <= 4 * len(table) / BUCKETS
        assert (values.min(), values.max()) == (table[:, place].min(), table[:, place].max())
        assert (table[time.astype(int), place] == values).all()


def test_what_is_not_finite_stays_a_gap() -> None:
    table = rows(100_000)
    table[777, 1] = np.nan
    signals = Envelopes()
    for part in np.split(table, 10):
        signals.add(("a.x", "a.y"), part)
    assert np.isnan(signals.of("a.x")[1]).sum() == 1
    assert np.isfinite(signals.of("a.y")[1]).all()


def test_a_part_of_a_run_is_as_fine_as_its_file(tmp_path: Path) -> None:
    system = co.problems.two_mass()
    path = tmp_path / "rows.parquet"
    result = co.run(system, co.masters.jacobi(system, 1e-4), stop=2.0)
    result.save(path)
    run = Run("two-mass", tmp_path, path)
    for names, table in finished_rows(path):
        run.signals.add(names, table)
    time, values = run.signal("two.x", (1.0, 1.01))
    inside = (result.time >= 1.0) & (result.time <= 1.01)
    assert (time == result.time[inside]).all()
    assert (values == result["two.x"][inside]).all()
    assert len(run.signal("two.x", (5.0, 6.0))[0]) == 0


HANGING = """
import time

class Stuck:
    inputs, outputs = {"u": 1.0}, ("y",)
    def __init__(self, wait=0.0):
        self.wait, self.y = wait, 0.0
    def step(self, now, duration):
        time.sleep(self.wait)
        self.y += duration * (self.u - self.y)
"""


def test_a_unit_that_hangs_is_ended_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stuck.py").write_text(HANGING)
    (tmp_path / "stuck.toml").write_text(
        'step-size = 0.1\nstop-time = 1\n[units]\na = { kind = "python", class = "stuck.py:Stuck" }\n'
    )
    monkeypatch.setattr(processes, "PATIENCE", 2.0)

    async def ask() -> tuple[str, Any]:
        evaluator = processes.Evaluator(tmp_path)
        try:
            stuck = {"system": "stuck.toml", "settings": {"a.wait": 1e6}}
            with pytest.raises(RunError, match="a unit hangs") as said:
                await evaluator.ask({"kind": "describe", "state": stuck})
            assert evaluator._process is None  # it was ended
            monkeypatch.setattr(processes, "PATIENCE", 120.0)
            return str(said.value), await evaluator.ask({"kind": "describe", "state": {"system": "stuck.toml"}})
        finally:
            await evaluator.close()

    said, about = asyncio.run(ask())
    assert "within 2 s" in said
    assert about["units"] == ["a"]


DEAF = """
import pathlib, signal, time
class Deaf:
    inputs, outputs = {"u": 1.0}, ("y",)
    def __init__(self):
        self.y = 0.0
    def step(self, now, duration):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        pathlib.Path("deaf").touch()
        time.sleep(1e6)
"""


def test_a_run_that_hears_nothing_is_ended_when_it_is_asked_twice(tmp_path: Path) -> None:
    (tmp_path / "deaf.py").write_text(DEAF)
    (tmp_path / "deaf.toml").write_text(
        'step-size = 0.1\nstop-time = 1\n[units]\na = { kind = "python", class = "deaf.py:Deaf" }\n'
    )

    async def go() -> processes.Run:
        run = processes.Run("deaf.toml", tmp_path, tmp_path / "deaf-run-1.parquet")
        going = asyncio.create_task(run.go())
        while not (tmp_path / "deaf").exists():
            await asyncio.sleep(0.05)
        run.stop()
        assert (run.state, run.fields()["stopping"]) == ("running", True)
        run.stop()
        await asyncio.wait_for(going, 120.0)
        return run

    run = asyncio.run(go())
    assert (run.state, run.said) == ("failed", "it was ended")
