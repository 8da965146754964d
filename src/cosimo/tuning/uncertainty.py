"""Where uncertainty enters the one-step map: Φ(Δ) = Φ + E Δ (I − H Δ)⁻¹ F, built from the schedule itself.

An uncertain unit map acts at its own operations. At the j-th of them the stack of columns that multiplies out Φ is
read (e_j, what the map is applied to) and disturbed (d_j, what the error adds to its result):

    z' = Φ z + E d,      e = F z + H d,      d = Δ e,      Δ = diag(Δ_1, …, Δ_k)

H is not zero where a later operation of the same macro step sees what an earlier one has disturbed. With
T(z) = H + F (zI − Φ)⁻¹ E, the number z is an eigenvalue of Φ(Δ) exactly when I − Δ T(z) is singular.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from cosimo.algebra.backends import SINGULAR
from cosimo.algebra.operations import Rows, Walk, best_cut
from cosimo.algebra.product import LinearSystem, dense
from cosimo.algebra.sparse_step import NO_FIXED_POINT
from cosimo.analysis.robustness import Build
from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError, DimensionError, UnknownNameError
from cosimo.core.timing import TimedOperation, TimedRead, TimedStep

Part = Literal["step", "read"]
"""Which map of a unit is uncertain: [A_d B_d] of its steps, or [C D] of its reads."""


@dataclass(frozen=True, eq=False)
class Structure:
    """Φ (n, n), E (n, q), F (p, n), H (p, q), and the sizes (q_j, p_j) of the blocks Δ_j on the diagonal of Δ (q, p).

    >>> simple = Structure.of([[0.5]], E=[[2.0]], F=[[1.0]])
    >>> simple.transfer(np.array([1.0])).ravel()
    array([4.+0.j])
    """

    Phi: Array
    E: Array
    F: Array
    H: Array
    blocks: tuple[tuple[int, int], ...]

    @cached_property
    def places(self) -> tuple[tuple[slice, slice], ...]:
        """The rows and the columns of Δ that each block takes."""
        ends = np.cumsum([(0, 0), *self.blocks], axis=0).tolist()
        return tuple((slice(a, c), slice(b, d)) for (a, b), (c, d) in pairwise(ends))

    @classmethod
    def of(cls, Phi: Any, E: Any = None, F: Any = None) -> Structure:
        """One full block: Φ + E Δ F; without E and F any change of Φ (a matrix, or that of a `LinearSystem`) at all."""
        Phi = Phi.cycle.matrix if isinstance(Phi, LinearSystem) else Phi
        Phi = np.atleast_2d(np.asarray(dense(Phi), dtype=float))
        n = len(Phi)
        E = np.eye(n) if E is None else np.asarray(E, dtype=float)
        F = np.eye(n) if F is None else np.asarray(F, dtype=float)
        if Phi.shape != (n, n) or E.ndim != 2 or F.ndim != 2 or len(E) != n or F.shape[1] != n:
            raise DimensionError(f"Φ {Phi.shape}, E {E.shape}, F {F.shape} must fit together as Φ + E Δ F.")
        for name, value in (("Φ", Phi), ("E", E), ("F", F)):
            if not np.isfinite(value).all():
                raise ConfigurationError(f"{name} holds a non-finite number; a stability radius needs finite ones.")
        return cls(Phi, E, F, np.zeros((len(F), E.shape[1])), ((E.shape[1], len(F)),))

    def transfer(self, z: ComplexArray) -> ComplexArray:
        """T(z) = H + F (zI − Φ)⁻¹ E, for an array of z, (…, p, q)."""
        shifted = z[..., None, None] * np.eye(len(self.Phi)) - self.Phi
        right = np.broadcast_to(self.E, (*z.shape, *self.E.shape)).astype(complex)
        return np.asarray(self.H + self.F @ np.linalg.solve(shifted, right), dtype=np.complex128)

    def perturbed(self, Delta: Any) -> Any:
        """Φ(Δ)."""
        loop = np.eye(len(self.H)) - self.H @ Delta
        return self.Phi + self.E @ Delta @ np.linalg.solve(loop, self.F.astype(np.result_type(Delta, float)))


def unit_structure(
    linear: LinearSystem, unit: str, *, parts: Sequence[Part] = ("step",), relative: bool = False
) -> Structure:
    """The uncertain discrete map of one unit: [A_d B_d] + Δ at every step, and with "read" [C D] + Δ at every read.

    With `relative`, ‖Δ‖ is measured by the 2-norm of the matrix that it changes. Where the master steps the unit once
    in a macro step there is one block, and radii are exact; where it steps it several times every step has a block of
    its own, and radii hold even for errors that differ from step to step. Inputs that do not enter the matrix at all
    stay outside. Φ is taken where the schedule carries least (`LinearSystem.cycle`), without idle slots.

    >>> from cosimo import masters
    >>> from cosimo.problems import two_mass_glumac
    >>> system = two_mass_glumac()
    >>> unit_structure(LinearSystem(system, masters.gauss_seidel(system, 1.0)), "two").blocks
    ((2, 3),)
    """
    if unit not in linear.system.units:
        raise UnknownNameError("unit", unit, linear.system.units)
    kinds = tuple({"step": TimedStep, "read": TimedRead}[part] for part in parts)
    operations = linear.operations.timeline.operations
    place, carried = best_cut(linear.operations)
    slots = [i for block in carried for i in range(linear.layout[block].start, linear.layout[block].stop)]
    injection = _Injection(linear, unit, kinds, relative)
    rows = linear.split(np.eye(linear.layout.size)[:, slots])
    injection.apply((*operations[place:], *operations[:place]), rows)
    matrix, n = np.concatenate([rows[block] for block in carried]), len(slots)
    e = np.concatenate([_widened(seen, matrix.shape[1]) for seen in injection.seen])
    return Structure(matrix[:, :n], matrix[:, n:], e[:, :n], e[:, n:], tuple(injection.blocks))


class _Injection(Walk):
    """Applies operations to a stack of columns, which gets one more column for every number that may be disturbed.

    `seen` is what the uncertain map is applied to each time; an iteration to the limit ends in one sweep.
    """

    def __init__(self, linear: LinearSystem, unit: str, kinds: tuple[type, ...], relative: bool) -> None:
        self.linear, self.unit, self.kinds, self.relative = linear, unit, kinds, relative
        self.seen: list[Array] = []
        self.blocks: list[tuple[int, int]] = []

    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        if not isinstance(operation, self.kinds) or getattr(operation, "unit", None) != self.unit:
            self.linear.apply([operation], rows)
            return
        update = self.linear.operations.update(operation)
        self.seen.append(np.concatenate([rows[block] for block in update.sources]))
        self.linear.apply([operation], rows)
        begin, added = self.seen[-1].shape[1], sum(map(self.linear.layout.width, update.targets))
        self.blocks.append((added, len(self.seen[-1])))
        size = float(np.linalg.norm(update.matrix, 2)) if self.relative else 1.0
        rows.update({block: _widened(part, begin + added) for block, part in rows.items()})
        for block in update.targets:
            width = self.linear.layout.width(block)
            rows[block][:, begin : begin + width] = size * np.eye(width)
            begin += width

    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        """The fixed point of the sweep z = B z + E d, with d the same in all of its late sweeps: linear in z and d."""
        linear, size = self.linear, self.linear.layout.size
        inner, moved = _Injection(linear, self.unit, self.kinds, self.relative), linear.identity()
        inner.apply(sweep, moved)
        whole, z = linear.join(moved), linear.join(rows)
        change = np.abs(whole - np.eye(size, whole.shape[1])).max(axis=1)
        v, f = np.flatnonzero(change), np.flatnonzero(change == 0)
        width = whole.shape[1] - size
        d = np.hstack([np.zeros((width, z.shape[1])), np.eye(width)])
        z = _widened(z, d.shape[1])
        loop = np.eye(len(v)) - whole[np.ix_(v, v)]
        if np.linalg.cond(loop) > SINGULAR:
            raise AlgebraicLoopError(NO_FIXED_POINT)
        z[v] = np.linalg.solve(loop, whole[np.ix_(v, f)] @ z[f] + whole[v, size:] @ d)
        rows.update(linear.split(z))
        seen = (_widened(e, whole.shape[1]) for e in inner.seen)
        self.seen += [e[:, :size] @ z + e[:, size:] @ d for e in seen]
        self.blocks += inner.blocks


def _widened(matrix: Array, width: int) -> Array:
    """With columns of zeros up to a width."""
    return np.pad(matrix, ((0, 0), (0, width - matrix.shape[1])))


def parameter_structure(build: Build, values: Mapping[str, float], *, difference: float = 1e-4) -> Structure:
    """Uncertain named parameters to first order: Φ(p) ≈ Φ + Σ_i δ_i ∂Φ/∂(ln p_i), one block δ_i I for each.

    `values` are the parameters' nominal values, none of them 0, and δ_i the relative change of p_i. The derivatives are
    central differences of relative size `difference`, each factored by its singular values. Radii speak of the
    linearised map only: for changes of some size use `first_crossing`, which rebuilds the system.

    >>> from cosimo import masters
    >>> from cosimo.problems import two_mass_glumac
    >>> def build(p):
    ...     system = two_mass_glumac(**p)
    ...     return system, masters.gauss_seidel(system, 4.0)
    >>> parameter_structure(build, {"ck": 1.0}).blocks
    ((3, 3),)
    """

    def cycle(changed: Mapping[str, float]) -> Array:
        matrix: Array = LinearSystem(*build({**values, **changed})).cycle.matrix
        return matrix

    Phi = cycle({})
    if not isinstance(Phi, np.ndarray):
        raise ConfigurationError("the system is too large for derivatives of Φ; use first_crossing.")
    left, right, blocks = [], [], []
    for name, value in values.items():
        if not (np.isfinite(value) and value != 0):
            raise ConfigurationError(f"parameter '{name}' is {value}; a relative change needs a nonzero nominal value.")
        ends = [cycle({name: value * (1 + sign * difference)}) for sign in (1, -1)]
        if any(end.shape != Phi.shape for end in ends):
            raise ConfigurationError(f"parameter '{name}' changes the size of Φ; no derivative exists.")
        U, sizes, V = np.linalg.svd((ends[0] - ends[1]) / (2 * difference))
        # Differences carry rounding of about ε / difference; what is below it is no direction of the derivative.
        rank = max(1, int((sizes > max(1e-9, difference**2) * sizes[0]).sum()))
        left.append(U[:, :rank] * np.sqrt(sizes[:rank]))
        right.append(np.sqrt(sizes[:rank])[:, None] * V[:rank])
        blocks.append((rank, rank))
    E, F = np.hstack(left), np.vstack(right)
    return Structure(Phi, E, F, np.zeros((len(F), E.shape[1])), tuple(blocks))
