"""Executing a schedule on real units: `run` and all that it is made of.

From the bottom up: `options` (what a run takes), `live` (instances and their initialisation), `interpreter` (plain
Python, the oracle), `lowering` and `engines` (the compiled kernel), `recording` (rows),
`checkpoints`, `monitoring`, `session` (one run while it goes on), `adaptive` (one whose steps vary), `running` (`run`).
Names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions, RunOptions
    from cosimo.execution.running import run

__all__ = ["Adaptive", "Checkpoint", "EngineOptions", "RunOptions", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'cosimo.execution' has no attribute '{name}'")
    home = importlib.import_module(f"cosimo.execution.{'running' if name == 'run' else 'options'}")
    globals()[name] = getattr(home, name)
    return globals()[name]
