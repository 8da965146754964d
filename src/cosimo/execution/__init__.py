"""Executing a schedule on real units: `run` and all that it is made of.

From the bottom up: `options` (what a run takes), `live` (instances and their initialisation), `interpreter` (plain
Python, the oracle), `lowering` and `engines` (the compiled kernel), `recording` (rows),
`checkpoints`, `monitoring`, `session` (one run while it goes on), `adaptive` (one whose steps vary), `running` (`run`).
Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosimo.core import loaded_when_used

if TYPE_CHECKING:
    from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions, RunOptions
    from cosimo.execution.running import run

_HOMES = dict.fromkeys(("Adaptive", "Checkpoint", "EngineOptions", "RunOptions"), ".options") | {"run": ".running"}
__all__ = ["Adaptive", "Checkpoint", "EngineOptions", "RunOptions", "run"]
__getattr__ = loaded_when_used("cosimo.execution", _HOMES)
