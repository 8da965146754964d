"""External inputs: signals that no unit of the system produces, known for all times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array, require_finite
from cosimo.core.errors import ConfigurationError, UnknownNameError

Source = Callable[[float], float]


@dataclass(frozen=True)
class Constant:
    """The same value at all times."""

    value: float

    def __post_init__(self) -> None:
        require_finite("a constant input", np.asarray(float(self.value)))

    def __call__(self, time: float) -> float:
        return self.value


class Table:
    """Values over time, linear in between or held from the left; constant outside the table.

    Two rows of one time are a jump: the first holds up to it, and at this time itself already the second.

    >>> Table([0.0, 1.0], [10.0, 20.0])(0.25)
    12.5
    >>> step = Table([0.0, 1.0, 1.0, 2.0], [0.0, 0.0, 5.0, 5.0])
    >>> step(0.999), step(1.0)
    (0.0, 5.0)
    """

    def __init__(
        self, times: npt.ArrayLike, values: npt.ArrayLike, *, interpolation: Literal["linear", "hold"] = "linear"
    ) -> None:
        self.times: Array = np.asarray(times, dtype=float)
        self.values: Array = np.asarray(values, dtype=float)
        self.interpolation = interpolation
        if self.times.ndim != 1 or self.times.shape != self.values.shape or not self.times.size:
            raise ConfigurationError(
                f"a table needs as many times as values, at least one; got {self.times.shape} and {self.values.shape}."
            )
        require_finite("the times of a table", self.times)
        require_finite("the values of a table", self.values)
        if (np.diff(self.times) < 0).any():
            raise ConfigurationError("the times of a table must not decrease; sort the rows by time.")
        if (self.times[2:] == self.times[:-2]).any():
            time = self.times[2:][self.times[2:] == self.times[:-2]][0]
            raise ConfigurationError(
                f"a table has more than two rows of the time {time:g}; keep the values before and after the jump."
            )
        if interpolation not in ("linear", "hold"):
            raise UnknownNameError("interpolation of a table", interpolation, ("linear", "hold"))

    @property
    def jumps(self) -> Array:
        """The times at which the value changes at once."""
        later = self.times[1:]
        found: Array = later if self.interpolation == "hold" else later[np.diff(self.times) == 0]
        return found

    def __call__(self, time: float) -> float:
        if self.interpolation == "linear":  # takes the last of two rows of one time
            return float(np.interp(time, self.times, self.values))
        return float(self.values[max(int(np.searchsorted(self.times, time, side="right")) - 1, 0)])


def as_source(target: str, value: float | Source) -> Source:
    """A number becomes a constant; a function or a table is taken as it is; errors name the input `target`."""
    if callable(value):
        return value
    try:
        return Constant(float(value))
    except (TypeError, ValueError, ConfigurationError):
        raise ConfigurationError(
            f"the external input {target} is {value!r}; give a finite number, a function of time, or a Table."
        ) from None
