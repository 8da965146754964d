"""The dynamic stiffness of coupled mechanical units, and what holding the coupling signals adds to it.

Units M q̈ + C q̇ + K q = B u with outputs y = (P + sV + s²A) q + F u and connections u = L_s y form

    G(s) q = 0,   G(s) = s²M + sC + K − B (I − L_s F)⁻¹ L_s (P + sV + s²A),   L_s = L with every entry times its D(s)

(units side by side). D = 1 gives the monolithic G_t(s) (tamellin2022, Eq. 4); the rest, ΔG_c(s) = G(s) − G_t(s), is
the perturbation by the co-simulation interface (Eq. 6). Both follow from units and connections; nothing is typed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosimo.analysis.continuation import upper_pairs
from cosimo.analysis.laplace import Delay, LaplaceModel, block_diagonal, held_signals
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
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
        self.coordinates = tuple(_coordinates(self.units))
        self._parts = {letter: _side_by_side(self.units, letter) for letter in _LETTERS}

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
                "outputs of accelerations close a loop: the coupled system has no M, C and K; remove one of them."
            )
        return M, C, K

    def eigenpairs(self) -> tuple[EigenPair, ...]:
        """(λ_i, w_i) with G_t(λ_i) w_i = 0, slowest first (tamellin2022, Eq. 5)."""
        positions, _ = state_places(len(unit.M) for unit in self.units.values())
        found = []
        for pole, states in upper_pairs(self.laplace.coupled.A):
            shape = states[positions]
            found.append(EigenPair(pole, shape / shape[np.abs(shape).argmax()]))
        return tuple(found)

    def _assemble(self, s: ComplexArray, held: Any) -> ComplexArray:
        p, z = self._parts, s[..., None, None]
        L = held[..., None] * self.laplace.connections
        seen = L @ (p["displacement"] + z * p["velocity"] + z * z * p["acceleration"])
        if p["direct"].any():
            seen = np.linalg.solve(np.eye(L.shape[-2]) - L @ p["direct"], seen)
        G: ComplexArray = z * z * p["M"] + z * p["C"] + p["K"] - p["B"] @ seen
        return G


_LETTERS = ("M", "C", "K", "B", "displacement", "velocity", "acceleration", "direct")


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


def state_places(counts: Iterable[int]) -> tuple[list[int], list[int]]:
    """Where all positions, and all velocities, stand among the states [q; q̇] of units with so many coordinates each."""
    positions: list[int] = []
    velocities: list[int] = []
    begin = 0
    for n in counts:
        positions += range(begin, begin + n)
        velocities += range(begin + n, begin + 2 * n)
        begin += 2 * n
    return positions, velocities


def _coordinates(units: Mapping[str, Mechanical]) -> Iterator[Coordinate]:
    for name, unit in units.items():
        for index in range(len(unit.M)):
            yield Coordinate(name, index)


def _side_by_side(units: Mapping[str, Mechanical], letter: str) -> Array:
    return block_diagonal([getattr(unit, letter) for unit in units.values()])
