"""The spectral radius over a parameter of the system and the macro step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosimo.algebra import Batch
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.system import System

ROWS, COLUMNS = 41, 61
"""Values of the parameter, and of the macro step."""


@dataclass(frozen=True)
class Variation:
    """A parameter that is varied: `build(value)` makes the system; from `low` to `high`, now at `current`."""

    name: str
    low: float
    high: float
    build: Callable[[float], System]
    current: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise ConfigurationError(
                f"parameter {self.name} is varied from {self.low:g} to {self.high:g}; give a smaller number first."
            )

    @property
    def logarithmic(self) -> bool:
        """Ranges of a decade and more are divided by ratios."""
        return self.low > 0 and self.high / self.low >= 10

    def values(self) -> Array:
        """Where the system is looked at."""
        spaced = np.geomspace if self.logarithmic else np.linspace
        found: Array = spaced(self.low, self.high, ROWS)
        return found


def radius_map(variation: Variation, master: Master, steps: Array) -> tuple[Array, Array]:
    """The values (N,) and ρ(Φ) (N, steps) of `master`; NaN where the system has no meaning with a value."""
    values = variation.values()
    radii = np.full((len(values), len(steps)), np.nan)
    reason: CosimoError | None = None
    for row, value in enumerate(values):
        try:
            radii[row] = Batch(variation.build(float(value)), master, steps).spectral_radius()
        except CosimoError as error:
            reason = error
    if reason is not None and np.isnan(radii).all():
        raise ConfigurationError(f"parameter {variation.name} cannot be varied: {reason}")
    return values, radii
