"""Runs that are interrupted in the middle and resumed, beside runs that are not."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosimo.core.errors import Interrupted, StepDiscarded
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.checkpoints import encode, read_checkpoint
from cosimo.execution.options import Checkpoint
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile, read_result
from cosimo.formats.scenario import load
from cosimo.masters.words import MasterOptions, build_master

STEPS = 60


class Choosy:
    """Refuses steps longer than 3 ms from the time `since` on."""

    inputs, outputs = {"u": 0.0}, ("y",)

    def __init__(self, since: float) -> None:
        self.y, self.since = 1.0, since

    def step(self, time: float, duration: float) -> None:
        if duration > 3e-3 and time >= self.since:
            raise StepDiscarded("too long", time)
        self.y += duration * (self.u - self.y)


def wait_for_checkpoints() -> None:
    """Until those that are being written are on disk."""
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join()


def interrupt(system: System, master: Master, path: Path, *, at: float, stop: float, **options: Any) -> None:
    """A run with a checkpoint after every block of steps, interrupted by Ctrl-C soon after `at`."""

    def progress(now: float, _: float) -> None:
        wait_for_checkpoints()
        if now >= at:
            raise KeyboardInterrupt

    output = ResultFile(path, **options.pop("file", {}))
    with pytest.raises(Interrupted, match="continues from t = "):
        run(
            system, master, stop=stop, output=output, checkpoint=Checkpoint(every=0.0), progress=progress, **options
        )  # fmt: skip


UNIT = """
class Tank:
    inputs, outputs = {"inflow": 0.0, "valve": 1.0}, ("level",)

    def __init__(self, area=1.0):
        self.level, self.area = 1.0, area

    def step(self, time, duration):
        self.level += duration * (self.inflow - 0.5 * self.valve * self.level) / self.area
"""
SCENARIO = """
step-size = 0.01
stop-time = 1.0
[units.tank]
kind = "python"
class = "tank.py:Tank"
[inputs]
"tank.inflow" = {csv = "inflow.csv", column = "v"}
"""


def write_scenario(folder: Path) -> Path:
    """A Python unit and a table in files of their own, beside their scenario."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tank.py").write_text(UNIT)
    (folder / "inflow.csv").write_text("time,v\n0,0\n1,2\n")
    (folder / "tank.toml").write_text(SCENARIO)
    return folder / "tank.toml"


def described(
    target: Path | str, changes: Mapping[str, Any] | None = None, **master: Any
) -> tuple[System, Master, dict[str, Any]]:
    """What the command line makes of a file or a problem: system, master, and the metadata that tell where from."""
    changes = {"settings": {}, **(changes or {})}
    loaded = load(target, **changes)
    options = MasterOptions(**master)
    assert loaded.step is not None
    found = {"system": str(target), **changes, "step": loaded.step, "master": asdict(options)}
    if loaded.source is not None:
        found |= {"path": str(loaded.source.absolute())}
        found |= {"sha256": hashlib.sha256(loaded.source.read_bytes()).hexdigest()}
    return loaded.system, build_master(loaded.system, loaded.step, options), {"scenario": found}


def interrupt_scenario(scenario: Path, output: Path, changes: Mapping[str, Any] | None = None, **master: Any) -> Result:
    """Run a scenario as the command line does and interrupt it in the middle; the whole result."""
    system, made, metadata = described(scenario, changes, **master)
    output.parent.mkdir(parents=True, exist_ok=True)
    interrupt(system, made, output, at=0.5, stop=1.0, metadata=metadata)
    return run(system, made, stop=1.0)


def change(checkpoint: Path, **entries: Any) -> None:
    """Write a checkpoint anew with other entries."""
    found = {name: value for name, value in read_checkpoint(checkpoint).items() if name != "path"}
    checkpoint.write_bytes(encode({**found, **entries}))


def whole(system: System, master: Master, path: Path, *, stop: float, **options: Any) -> Result:
    run(system, master, stop=stop, output=ResultFile(path, **options.pop("file", {})), **options)
    return read_result(path)


def require_equal(ours: Result, theirs: Result) -> None:
    """All rows bit by bit, and all that is told of the run but for wall times."""
    assert ours.complete
    assert ours.names == theirs.names
    np.testing.assert_array_equal(
        np.ascontiguousarray(ours.to_numpy()).view(np.int64), np.ascontiguousarray(theirs.to_numpy()).view(np.int64)
    )
    assert ours.warnings == theirs.warnings
    own = {"started", "stepping_time", "resumed_at", "run"}
    assert {k: v for k, v in ours.info.items() if k not in own} == {
        k: v for k, v in theirs.info.items() if k not in own
    }
