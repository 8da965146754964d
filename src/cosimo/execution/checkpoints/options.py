"""What is asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from cosimo.core.errors import ConfigurationError


@dataclass(frozen=True)
class Checkpoint:
    """Write a checkpoint to `path` (default: beside the output file) every so many seconds of wall time.

    The one before is kept as `<path>.earlier`. Both are removed when the run completes.
    """

    path: str | Path | None = None
    every: float = 60.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.every) and self.every >= 0):
            raise ConfigurationError(f"checkpoints are written every 0 or more seconds, not every {self.every}.")
