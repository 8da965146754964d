"""Checks of the parameters that all problems share."""

from __future__ import annotations

import math

from cosimo.core.errors import ConfigurationError


def require_positive(problem: str, **values: float) -> None:
    """Refuse parameters that are not positive finite numbers, by name.

    >>> require_positive("pendula", mass=1.0)
    """
    _require(problem, values, zero=False)


def require_not_negative(problem: str, **values: float) -> None:
    """Refuse parameters that are negative or not finite, by name."""
    _require(problem, values, zero=True)


def require_finite(problem: str, **values: float) -> None:
    """Refuse parameters that are not finite numbers, by name."""
    for name, value in values.items():
        if not _number(value):
            raise ConfigurationError(f"parameter {name} of problem '{problem}' must be a finite number, not {value!r}.")


def _require(problem: str, values: dict[str, float], *, zero: bool) -> None:
    for name, value in values.items():
        if not _number(value) or value < 0 or (value == 0 and not zero):
            kind = "a finite number, 0 or more" if zero else "a positive finite number"
            raise ConfigurationError(f"parameter {name} of problem '{problem}' must be {kind}, not {value!r}.")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
