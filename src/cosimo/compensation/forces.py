"""Where a compensator acts and what it sees: derived from what crosses the interface (tamellin2022, Eqs. 24 and 47).

A compensator adds virtual forces u = −ΔG_R(s) q, each a position, velocity and acceleration feedback of the coordinates
that its unit can see: its own at once, and those of another unit with the delay D(s) of the connection bringing them.

- A connected output that is one coordinate or its derivative shows that coordinate to the receiving unit.
- Any other connected output is a force; the sender can add a feedback of all its own coordinates to it (Eqs. 37-40), so
  the receiver sees all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from cosimo.analysis.stiffness import Coordinate, DynamicStiffness, mechanical_units
from cosimo.core.arrays import ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Link, System
from cosimo.units import Mechanical


@dataclass(frozen=True)
class Signal:
    """A coordinate as one unit sees it: through the connection into the input `through`, or (None) its own."""

    coordinate: Coordinate
    through: str | None = None

    def __str__(self) -> str:
        return f"{self.coordinate}{'*' if self.through else ''}"


@dataclass(frozen=True)
class Placement:
    """Where a force acts: on a coordinate, with a gain, sent there through a connection if that is another unit's."""

    coordinate: Coordinate
    gain: float = 1.0
    through: str | None = None


@dataclass(frozen=True)
class Force:
    """One virtual force: where it acts, a column of B, and which signals are fed back, a row of ΔG_R."""

    acts_on: tuple[Placement, ...]
    sees: tuple[Signal, ...]

    def __post_init__(self) -> None:
        if not self.acts_on:
            raise ConfigurationError("a force must act on at least one coordinate; give it a Placement.")

    def __str__(self) -> str:
        where = " and ".join(str(place.coordinate) for place in self.acts_on)
        return f"force on {where} from {', '.join(map(str, self.sees)) or 'nothing'}"

    def column(self, stiffness: DynamicStiffness, s: ComplexArray) -> ComplexArray:
        """Its column of B, (…, N) for points s (…)."""
        found = np.zeros((*np.shape(s), len(stiffness.coordinates)), dtype=complex)
        for place in self.acts_on:
            found[..., _place(stiffness, place)] += place.gain * _transfer(stiffness, place, s)
        return found

    def row(self, stiffness: DynamicStiffness, s: ComplexArray) -> ComplexArray:
        """What it sees of all coordinates, (…, signals, N)."""
        found = np.zeros((*np.shape(s), len(self.sees), len(stiffness.coordinates)), dtype=complex)
        for number, signal in enumerate(self.sees):
            found[..., number, _place(stiffness, signal)] = _transfer(stiffness, signal, s)
        return found

    def without(self, coordinate: str) -> Force:
        """The force that does not feed back the coordinate written `"unit.qN"`."""
        left = tuple(signal for signal in self.sees if str(signal.coordinate) != coordinate)
        if len(left) == len(self.sees):
            seen = ", ".join(str(signal.coordinate) for signal in self.sees)
            raise ConfigurationError(f"the {self} does not use {coordinate}; it sees {seen}.")
        return replace(self, sees=left)


def _transfer(stiffness: DynamicStiffness, owner: Signal | Placement, s: ComplexArray) -> ComplexArray:
    return np.ones_like(s) if owner.through is None else stiffness.transfer(owner.through, s)


def _place(stiffness: DynamicStiffness, owner: Signal | Placement) -> int:
    if owner.coordinate not in stiffness.coordinates:
        known = ", ".join(map(str, stiffness.coordinates))
        raise ConfigurationError(f"coordinate {owner.coordinate} is not among {known}; name one of these.")
    return stiffness.coordinates.index(owner.coordinate)


def available_forces(stiffness: DynamicStiffness) -> tuple[Force, ...]:
    """One force per coordinate that the interface perturbs (rows of ΔG_c), with all signals its unit can see.

    For the two-mass system Eq. 24, for the four-mass system Eq. 47, for the motor richiedei2024, Eq. 13.
    """
    visible = {name: tuple(_visible(stiffness.system, name)) for name in stiffness.units}
    rows = perturbed(stiffness)
    return tuple(
        Force((Placement(coordinate),), visible[coordinate.unit])
        for coordinate, row in zip(stiffness.coordinates, rows, strict=True)
        if row
    )


def perturbed(stiffness: DynamicStiffness) -> list[bool]:
    """Which rows of ΔG_c(s) are not zero, looked at where D(s) is far from 1."""
    points = np.exp(1j * np.array([0.3, 1.1, 2.0])) / stiffness.step
    size = np.abs(stiffness.perturbation(points)).max(axis=(0, 2))
    whole = np.abs(stiffness.cosimulated(points)).max(axis=(0, 2))
    return [bool(part > 1e-12 * total) for part, total in zip(size, whole, strict=True)]


def _visible(system: System, name: str) -> Iterator[Signal]:
    """The coordinates that a unit sees, in the order of the coordinates of all units."""
    units = mechanical_units(system)
    arriving: dict[Coordinate, str] = {}
    for link in system.incoming(name):
        for coordinate in shown(units, link):
            arriving.setdefault(coordinate, link.connection.target)
    for other, unit in units.items():
        for index in range(len(unit.M)):
            coordinate = Coordinate(other, index)
            if other == name:
                yield Signal(coordinate)
            elif coordinate in arriving:
                yield Signal(coordinate, arriving[coordinate])


def shown(units: Mapping[str, Mechanical], link: Link) -> list[Coordinate]:
    """The coordinates of the sender that a connection can show: the one it carries, or, of a force, all."""
    unit, row = units[link.source.unit], link.source.index
    carried = {
        int(i)
        for part in (unit.displacement, unit.velocity, unit.acceleration)
        for i in np.flatnonzero(part[row]).tolist()
    }
    entries = sum(int(np.count_nonzero(part[row])) for part in (unit.displacement, unit.velocity, unit.acceleration))
    motion = entries == 1 and not unit.direct[row].any()
    return [Coordinate(link.source.unit, i) for i in (sorted(carried) if motion else range(len(unit.M)))]
