"""Units of measure: base = factor · value + offset, with the exponents of the SI base units saying what base is.

Two units fit together when their exponents agree; then

    value_target = (f_s / f_t) · value_source + (o_s − o_t) / f_t

A relative quantity (a temperature difference) has no offset: 1 K and 1 °C are then the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from cosimo.core.errors import ConfigurationError

BASE = ("kg", "m", "s", "A", "K", "mol", "cd", "rad")
"""The base units whose exponents a definition gives, in this order (FMI 2.0 and 3.0, element BaseUnit)."""


class Conversion(NamedTuple):
    """target = gain · source + offset."""

    gain: float = 1.0
    offset: float = 0.0

    @property
    def identity(self) -> bool:
        """Nothing is changed."""
        return self.gain == 1.0 and self.offset == 0.0


@dataclass(frozen=True)
class UnitOfMeasure:
    """A named unit of measure; `exponents` is None where the description only names the unit.

    >>> celsius = UnitOfMeasure("degC", (0, 0, 0, 0, 1, 0, 0, 0), offset=273.15)
    >>> kelvin = UnitOfMeasure("K", (0, 0, 0, 0, 1, 0, 0, 0))
    >>> convert(celsius, kelvin)
    Conversion(gain=1.0, offset=273.15)
    """

    name: str
    exponents: tuple[int, ...] | None = None
    factor: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        if self.exponents is not None and len(self.exponents) != len(BASE):
            raise ConfigurationError(f"unit of measure '{self.name}' needs {len(BASE)} exponents: {', '.join(BASE)}.")
        if not abs(self.factor) > 0:
            raise ConfigurationError(f"unit of measure '{self.name}' has the factor {self.factor}; it must not be 0.")

    def __str__(self) -> str:
        return self.name

    @property
    def relative(self) -> UnitOfMeasure:
        """The unit for differences of such values."""
        return replace(self, offset=0.0)

    @property
    def base(self) -> str:
        """The base units written out, for messages.

        >>> UnitOfMeasure("N", (1, 1, -2, 0, 0, 0, 0, 0)).base
        'kg·m·s^-2'
        """
        parts = [
            name + (f"^{power}" if power != 1 else "")
            for name, power in zip(BASE, self.exponents or (), strict=False)
            if power
        ]
        return "·".join(parts) or "1"


def convert(source: UnitOfMeasure | None, target: UnitOfMeasure | None) -> Conversion | None:
    """What turns values in `source` into values in `target`; None when the two do not fit together.

    A missing unit fits everything. Units without a definition fit only their own name.
    """
    if source is None or target is None or source == target:
        return Conversion()
    if source.exponents is None or target.exponents is None:
        return Conversion() if source.name == target.name else None
    if source.exponents != target.exponents:
        return None
    return Conversion(source.factor / target.factor, (source.offset - target.offset) / target.factor)
