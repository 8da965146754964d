"""Runs that are interrupted in the middle and resumed, beside runs that are not."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosimo.checkpoints import Checkpoint
from cosimo.core.errors import Interrupted
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution import run
from cosimo.formats.results import ResultFile, read_result

STEPS = 60


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
    with pytest.raises(Interrupted, match="goes on from t = "):
        run(
            system, master, stop=stop, output=output, checkpoint=Checkpoint(every=0.0), progress=progress, **options
        )  # fmt: skip


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
