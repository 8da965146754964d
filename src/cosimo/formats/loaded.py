"""What a file or a name stands for: a system, and what the file says about running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cosimo.core.system import System
from cosimo.formats.findings import Finding
from cosimo.masters.words import MasterOptions


@dataclass(frozen=True)
class Loaded:
    """A system with its default experiment; what the file does not say is None.

    `step`, `start` and `stop` are in seconds. `outputs` are patterns such as `"truck.*"` on the names to record.
    `warnings` tell what was odd in the file and how it was taken. `power_pairs` are pairs (input, output) of one unit
    whose product is the power that enters it; `target` the error that is small enough.
    """

    system: System
    master: MasterOptions | None = None
    step: float | None = None
    start: float | None = None
    stop: float | None = None
    outputs: tuple[str, ...] | None = None
    source: Path | None = None
    warnings: tuple[Finding, ...] = ()
    power_pairs: tuple[tuple[str, str], ...] = ()
    target: float | None = None
