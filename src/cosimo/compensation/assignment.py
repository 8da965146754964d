"""The papers' design: gains that give the co-simulated system the poles and shapes of the monolithic one.

With the virtual forces u = −ΔG_R(s) q placed by B, every monolithic pair (λ_i, w_i) shall stay a solution,

    (ΔG_c(λ_i) + B ΔG_R(λ_i)) w_i = 0                                                       (tamellin2022, Eq. 21)

which is linear in the gains k = [d f g] of acceleration, velocity and position: L k = n (Eq. 22), real and imaginary
parts one below the other (Eq. 29). It has a solution if rank L = rank [L n] (Eq. 33). That is not enough: a solution
can make the compensated pencil singular for *every* s (the four-mass system does). Singular values below `SMALL` of
the largest are therefore left out, and regularity is tested apart. Poles are those of the continuous system; for gains
that are right for the schedule which really runs see `compensate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from cosimo.analysis.laplace import PrimaryPole
from cosimo.analysis.roots import Region, refine_pair, roots_in
from cosimo.analysis.stiffness import DynamicStiffness
from cosimo.compensation.forces import Force, Signal, available_forces
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError

SMALL = 1e-6
"""Singular values of L below this part of the largest are left out: what they would add makes the pencil singular."""
REGULAR = 1e-3
"""A pencil whose smallest singular value falls below this part of the monolithic one's is singular for every s."""
SOLVED = 1e-4
"""Largest relative residual of L k = n that counts as assigned."""


@dataclass(frozen=True)
class Assignment:
    """Gains of the forces and what is known of them. `gains[i]` (3, signals of force i): rows d, f, g."""

    stiffness: DynamicStiffness
    forces: tuple[Force, ...]
    L: Array = field(repr=False)
    n: Array = field(repr=False)
    gains: tuple[Array, ...]

    @property
    def rank(self) -> int:
        """rank L."""
        return _rank(self.L)

    @property
    def rank_augmented(self) -> int:
        """rank [L n]."""
        return _rank(np.column_stack([self.L, self.n]))

    @property
    def assignable(self) -> bool:
        """Whether L k = n has a solution (Eq. 33)."""
        return self.rank == self.rank_augmented

    @property
    def residual(self) -> float:
        """max |L k − n| relative to max |n|."""
        return self.residual_of(self.gains)

    def residual_of(self, gains: Iterable[Array]) -> float:
        """The same for other gains of the same forces."""
        rest = self.L @ _flat(gains) - self.n
        return float(np.abs(rest).max(initial=0.0)) / max(float(np.abs(self.n).max(initial=0.0)), 1e-300)

    def matrix(self, s: Any) -> ComplexArray:
        """G_t(s) + ΔG_c(s) + B ΔG_R(s), (…, N, N)."""
        points = np.asarray(s, dtype=complex)
        found = self.stiffness.cosimulated(points)
        powers = np.stack([points * points, points, np.ones_like(points)], axis=-1)
        for force, gains in zip(self.forces, self.gains, strict=True):
            column, row = force.column(self.stiffness, points), force.row(self.stiffness, points)
            feedback = np.einsum("...p,ps,...sn->...n", powers, gains, row)
            found = found + column[..., :, None] * feedback[..., None, :]
        return found

    @property
    def regular(self) -> bool:
        """Whether the compensated pencil is regular: det not zero for every s."""
        # At points among the poles but off the axis; a singular pencil is singular at each of them.
        radius = 0.93 * max(abs(pair.pole) for pair in self.stiffness.eigenpairs())
        points = radius * np.exp(1j * np.array([0.4, 1.3, 2.1]))
        return bool((_distance(self.matrix(points)) > REGULAR * _distance(self.stiffness.monolithic(points))).all())

    def roots(self, region: Region) -> ComplexArray:
        """All poles of the compensated co-simulated system in a region, as many as the argument principle counts."""
        return roots_in(self.matrix, region, spacing=0.3 / self.stiffness.step)

    def primary_poles(self) -> tuple[PrimaryPole, ...]:
        """The compensated pole and shape next to each monolithic one."""
        found = []
        for pair in self.stiffness.eigenpairs():
            pole, shape = refine_pair(self.matrix, pair.pole, pair.shape)
            found.append(PrimaryPole(pair.pole, pole, pair.shape, shape / shape[np.abs(shape).argmax()]))
        return tuple(found)

    def rightmost_latent_root(self) -> complex:
        """The root with the largest real part that is not a primary pole; where all lie far left, −12 / T stands."""
        T = self.stiffness.step
        roots = self.roots(Region(-12.017 / T, 3.011 / T, -0.0313 / T, 14.03 / T))
        primary = np.array([pole.cosimulated for pole in self.primary_poles()])
        left = [s for s in roots if np.abs(primary - s).min() > 1e-6 * abs(s) and s.imag >= -1e-9 * abs(s)]
        latent = [s for s in left if np.abs(primary.conj() - s).min() > 1e-6 * abs(s)]
        return complex(max(latent, key=lambda s: s.real, default=-12.0 / T))

    def missing(self) -> tuple[str, ...]:
        """What would make the eigenstructure assignable: single signals or forces, each sufficient alone."""
        if self.assignable:
            return ()
        found = []
        for number, force, signal in _further_signals(self.stiffness, self.forces):
            more = replace(force, sees=(*force.sees, signal))
            trial = (*self.forces[:number], more, *self.forces[number + 1 :])
            if assign(self.stiffness, trial).assignable:
                where = " and ".join(str(place.coordinate) for place in force.acts_on)
                found.append(f"signal {signal} in the force on {where}")
        for force in available_forces(self.stiffness):
            if force not in self.forces and assign(self.stiffness, (*self.forces, force)).assignable:
                found.append(f"an independent {force}")
        return tuple(found)

    def require(self) -> Assignment:
        """Itself, or an error that names what is missing."""
        # Judged by what is left of the equations: near the limit of rounding the rank test alone would refuse good gains.
        if self.residual > SOLVED:
            lacks = self.missing()
            remedy = f"missing: {'; or '.join(lacks)}" if lacks else "no single signal or force would suffice; add more"
            raise ConfigurationError(
                f"the eigenstructure cannot be assigned with {'; '.join(map(str, self.forces)) or 'no forces'}: "
                f"rank L = {self.rank}, rank [L n] = {self.rank_augmented}; {remedy}."
            )
        if not self.regular:
            raise ConfigurationError("the gains make the compensated system singular for every s; choose other forces.")
        return self


def assign(
    stiffness: DynamicStiffness, forces: Sequence[Force] | None = None, *, search: int = 0, small: float = SMALL
) -> Assignment:
    """Minimum-norm gains of the forces (default: all that units can see), or the least-squares ones where none exist.

    With `search` > 0 that many evaluations go into moving the gains in the null space of L so that the rightmost latent
    root lies as far left as possible (tamellin2022, Eq. 23, where random numbers are tried).
    """
    chosen = tuple(available_forces(stiffness) if forces is None else forces)
    L, n = _equations(stiffness, chosen)
    k: Array = np.linalg.pinv(L, rcond=small) @ n
    found = Assignment(stiffness, chosen, L, n, _shaped(k, chosen))
    return _searched(found, k, search, small) if search > 0 else found


def _equations(stiffness: DynamicStiffness, forces: tuple[Force, ...]) -> tuple[Array, Array]:
    """L and n, real and imaginary parts one below the other; rows for the coordinates that matter."""
    blocks, right = [], []
    for pair in stiffness.eigenpairs():
        s = np.asarray(pair.pole)
        columns = []
        for force in forces:
            column, row = force.column(stiffness, s), force.row(stiffness, s)
            seen = row @ pair.shape
            columns += [np.outer(column, power * seen) for power in (s * s, s, 1.0)]
        count = len(stiffness.coordinates)
        block = np.hstack(columns) if columns else np.zeros((count, 0), dtype=complex)
        wanted = -stiffness.perturbation(s) @ pair.shape
        parts = (np.real, np.imag) if pair.pole.imag else (np.real,)
        blocks += [part(block) for part in parts]
        right += [part(wanted) for part in parts]
    L, n = np.vstack(blocks), np.concatenate(right)
    used = (np.abs(L).max(axis=1, initial=0.0) > 0) | (
        np.abs(n) > 1e-14 * max(float(np.abs(n).max(initial=0.0)), 1e-300)
    )
    return L[used], n[used]


def _rank(matrix: Array) -> int:
    """The rank with columns scaled: gains of accelerations and of positions differ by orders of magnitude."""
    size = np.abs(matrix).max(axis=0, initial=0.0)
    scaled = matrix / np.where(size > 0, size, 1.0)
    return int(np.linalg.matrix_rank(scaled, tol=1e-10 * np.sqrt(matrix.size))) if matrix.size else 0


def _distance(pencil: ComplexArray) -> Array:
    """How far from singular: smallest over largest singular value, rows and columns scaled."""
    for axis in (-1, -2):
        size = np.abs(pencil).max(axis=axis, keepdims=True)
        pencil = pencil / np.where(size > 0, size, 1.0)
    sizes = np.linalg.svd(pencil, compute_uv=False).astype(float)
    part: Array = sizes[..., -1] / sizes[..., 0]
    return part


def _flat(gains: Iterable[Array]) -> Array:
    return np.concatenate([np.ravel(part) for part in gains] or [np.zeros(0)])


def _shaped(k: Array, forces: tuple[Force, ...]) -> tuple[Array, ...]:
    ends = np.cumsum([3 * len(force.sees) for force in forces])[:-1]
    return tuple(part.reshape(3, -1) for part in np.split(k, ends)) if forces else ()


def _further_signals(stiffness: DynamicStiffness, forces: tuple[Force, ...]) -> list[tuple[int, Force, Signal]]:
    """Signals that a force does not use: first those its unit can see, then those that would have to be exchanged."""
    visible = {force.acts_on[0].coordinate.unit: force.sees for force in available_forces(stiffness)}
    found = []
    for number, force in enumerate(forces):
        used = {signal.coordinate for signal in force.sees}
        own = force.acts_on[0].coordinate.unit
        found += [(number, force, signal) for signal in visible.get(own, ()) if signal.coordinate not in used]
    return found


def _searched(found: Assignment, k: Array, evaluations: int, small: float) -> Assignment:
    """Nelder and Mead's method on the free combinations, from the minimum-norm gains."""
    _, sizes, right = np.linalg.svd(found.L)
    rank = int((sizes > small * sizes[0]).sum())
    free = right[rank:].T
    if not free.shape[1]:
        return found
    T, scale = found.stiffness.step, float(np.abs(k).max())

    def at(x: Array) -> Assignment:
        return replace(found, gains=_shaped(k + scale * (free @ x), found.forces))

    def rightmost(x: Array) -> float:
        return at(x).rightmost_latent_root().real * T

    best = minimize(
        rightmost, np.zeros(free.shape[1]), method="Nelder-Mead", options={"maxfev": evaluations, "xatol": 1e-4}
    )
    return at(best.x) if best.fun < rightmost(np.zeros(free.shape[1])) else found
