"""Executing a schedule on real units: `run` and all that it is made of.

From the bottom up: `live` (instances and their initialisation), `reference` (the interpreter in plain Python, the
oracle), `lowering` and `engines` (the compiled kernel), `recording` and `streams` (rows), `checkpoints`, `adaptive`,
`monitoring`, `sessions` (one run while it goes on), `running` (`run`). Names are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosimo.execution.adaptive import Adaptive
    from cosimo.execution.checkpoints import Checkpoint
    from cosimo.execution.engines import EngineOptions
    from cosimo.execution.running import run

_HOMES = {"Adaptive": "adaptive", "Checkpoint": "checkpoints", "EngineOptions": "engines", "run": "running"}

__all__ = ["Adaptive", "Checkpoint", "EngineOptions", "run"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cosimo.execution' has no attribute '{name}'")
    globals()[name] = getattr(importlib.import_module(f"cosimo.execution.{_HOMES[name]}"), name)
    return globals()[name]
