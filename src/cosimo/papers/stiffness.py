"""The dynamic stiffness of coupled mechanical units, and what holding the coupling signals adds to it.

Units M q̈ + C q̇ + K q = B u with outputs y = (P + sV + s²A) q + F u and connections u = L_s y form

    G(s) q = 0,   G(s) = s²M + sC + K − B (I − L_s F)⁻¹ L_s (P + sV + s²A),   L_s = L with every entry times its D(s)

(units side by side). D = 1 gives the monolithic G_t(s) (tamellin2022, Eq. 4); the rest, ΔG_c(s) = G(s) − G_t(s), is
the perturbation by the co-simulation interface (Eq. 6). Both follow from units and connections; nothing is typed in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from cosimo.compensation.target import state_places
from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Link, System
from cosimo.papers.laplace import Delay, LaplaceModel, held_signals, normalised
from cosimo.papers.roots import upper_pairs
from cosimo.units import Mechanical


@dataclass(frozen=True)
class Coordinate:
    """One degree of freedom: coordinate number `index` (from 0) of a mechanical unit; printed from 1."""

    unit: str
    index: int

    def __str__(self) -> str:
        return f"{self.unit}.q{self.index + 1}"


@dataclass(frozen=True)
class EigenPair:
    """A pole λ of the monolithic system (of a conjugate pair the upper one) and its shape w, largest entry 1."""

    pole: complex
    shape: ComplexArray


class DynamicStiffness:
    """G_t(s) and ΔG_c(s) of mechanical units co-simulated with macro step `step`; `delays` by target input."""

    def __init__(
        self, system: System, step: float, *, delay: Delay | None = None, delays: Mapping[str, Delay] | None = None
    ) -> None:
        self.system, self.step = system, step
        self.units = mechanical_units(system)
        self.laplace = LaplaceModel(system, step, delay=delay, delays=delays)
        self.coordinates = tuple(Coordinate(name, i) for name, unit in self.units.items() for i in range(len(unit.M)))
        self.positions, self.velocities = state_places(len(unit.M) for unit in self.units.values())
        """Their places, and those of their derivatives, among the states [q; q̇] of the units one after the other."""
        letters = ("M", "C", "K", "B", "displacement", "velocity", "acceleration", "direct")
        self._parts = {a: block_diag(*(getattr(unit, a) for unit in self.units.values())) for a in letters}

    def transfer(self, target: str, s: Any) -> ComplexArray:
        """D(s) of the connection into the input `target`."""
        self.system.input(target)  # refuses a name nobody knows
        delay = self.laplace.delays[self.system.input_names.index(target)]
        return delay.transfer(np.asarray(s, dtype=complex), self.step)

    def monolithic(self, s: Any) -> ComplexArray:
        """G_t(s), (…, N, N) for points s (…)."""
        points = np.asarray(s, dtype=complex)
        return self._assemble(points, np.ones((*points.shape, len(self.laplace.delays))))

    def cosimulated(self, s: Any) -> ComplexArray:
        """G_t(s) + ΔG_c(s), (…, N, N)."""
        points = np.asarray(s, dtype=complex)
        return self._assemble(points, held_signals(self.laplace.delays, points, self.step))

    def perturbation(self, s: Any) -> ComplexArray:
        """ΔG_c(s), (…, N, N)."""
        return self.cosimulated(s) - self.monolithic(s)

    def matrices(self) -> tuple[Array, Array, Array]:
        """M, C and K of the monolithic system, from G_t(0) and G_t(±1)."""
        K, plus, minus = (self.monolithic(s).real for s in (0.0, 1.0, -1.0))
        M, C = (plus + minus) / 2 - K, (plus - minus) / 2
        if not np.allclose(self.monolithic(2.0), 4 * M + 2 * C + K, rtol=1e-9):
            raise ConfigurationError(
                "acceleration outputs form an algebraic loop: the coupled system has no M, C and K; remove one of them."
            )
        return M, C, K

    def eigenpairs(self) -> tuple[EigenPair, ...]:
        """(λ_i, w_i) with G_t(λ_i) w_i = 0, slowest first (tamellin2022, Eq. 5)."""
        pairs = upper_pairs(self.laplace.coupled.A)
        return tuple(EigenPair(pole, normalised(states[self.positions])) for pole, states in pairs)

    def _assemble(self, s: ComplexArray, held: Any) -> ComplexArray:
        p, z = self._parts, s[..., None, None]
        L = held[..., None] * self.laplace.connections
        seen = L @ (p["displacement"] + z * p["velocity"] + z * z * p["acceleration"])
        if p["direct"].any():
            seen = np.linalg.solve(np.eye(L.shape[-2]) - L @ p["direct"], seen)
        G: ComplexArray = z * z * p["M"] + z * p["C"] + p["K"] - p["B"] @ seen
        return G


def mechanical_units(system: System) -> dict[str, Mechanical]:
    """The units, all of them mechanical."""
    found = {}
    for name, unit in system.units.items():
        if not isinstance(unit, Mechanical):
            raise ConfigurationError(
                f"unit '{name}' is a {type(unit).__name__}; a dynamic stiffness needs M, C and K (Mechanical)."
            )
        found[name] = unit
    return found


# ---- where a compensator acts and what it sees (tamellin2022, Eqs. 24 and 47) ----------------------------------------
# A compensator adds virtual forces u = −ΔG_R(s) q, each a position, velocity and acceleration feedback of the
# coordinates that its unit can see: its own at once, and those of another unit with the delay D(s) of the connection
# bringing them.
#
# - A connected output that is one coordinate or its derivative shows that coordinate to the receiving unit.
# - Any other connected output is a force; the sender can add a feedback of all its own coordinates to it
#   (Eqs. 37-40), so the receiver sees all of them.


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
            raise ConfigurationError(f"the {self} does not use {coordinate}; it uses {seen}.")
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
    # Rows of ΔG_c(s) that are not zero, looked at where D(s) is far from 1.
    points = np.exp(1j * np.array([0.3, 1.1, 2.0])) / stiffness.step
    size = np.abs(stiffness.perturbation(points)).max(axis=(0, 2))
    whole = np.abs(stiffness.cosimulated(points)).max(axis=(0, 2))
    visible = {name: tuple(_visible(stiffness, name)) for name in stiffness.units}
    return tuple(
        Force((Placement(coordinate),), visible[coordinate.unit])
        for coordinate, part, total in zip(stiffness.coordinates, size, whole, strict=True)
        if part > 1e-12 * total
    )


def _visible(stiffness: DynamicStiffness, name: str) -> Iterator[Signal]:
    """The coordinates that a unit sees, in the order of the coordinates of all units."""
    arriving: dict[Coordinate, str] = {}
    for link in stiffness.system.incoming(name):
        for coordinate in _shown(stiffness.units, link):
            arriving.setdefault(coordinate, link.connection.target)
    for coordinate in stiffness.coordinates:
        if coordinate.unit == name or coordinate in arriving:
            yield Signal(coordinate, None if coordinate.unit == name else arriving[coordinate])


def _shown(units: Mapping[str, Mechanical], link: Link) -> list[Coordinate]:
    """The coordinates of the sender that a connection can show: the one it carries, or, of a force, all."""
    unit, row = units[link.source.unit], link.source.index
    carried = np.concatenate([np.flatnonzero(p[row]) for p in (unit.displacement, unit.velocity, unit.acceleration)])
    motion = len(carried) == 1 and not unit.direct[row].any()
    return [Coordinate(link.source.unit, i) for i in (carried.tolist() if motion else range(len(unit.M)))]
