"""Where uncertainty enters the one-step map: Φ(Δ) = Φ + E Δ (I − H Δ)⁻¹ F, built from the schedule itself.

An uncertain unit map acts at its own operations. At the j-th of them the stack of columns that multiplies out Φ is
read (e_j, what the map is applied to) and disturbed (d_j, what the error adds to its result):

    z' = Φ z + E d,      e = F z + H d,      d = Δ e,      Δ = diag(Δ_1, …, Δ_k)

H is not zero where a later operation of the same macro step sees what an earlier one has disturbed. With
T(z) = H + F (zI − Φ)⁻¹ E, the number z is an eigenvalue of Φ(Δ) exactly when I − Δ T(z) is singular.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from cosimo.algebra.operations import Rows, best_cut
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.robustness import Build
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError, DimensionError, UnknownNameError
from cosimo.core.timing import TimedOperation, TimedRead, TimedRepeat, TimedStep

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

    @classmethod
    def of(cls, Phi: Any, E: Any = None, F: Any = None) -> Structure:
        """One full block: Φ + E Δ F; without E and F any change of Φ at all."""
        Phi = np.atleast_2d(np.asarray(Phi, dtype=float))
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
    order = (*operations[place:], *operations[:place])
    slots = [i for block in carried for i in range(linear.layout[block].start, linear.layout[block].stop)]
    injection = _Injection(linear, unit, kinds, relative, np.eye(linear.layout.size)[:, slots], order)
    rows = injection.rows
    matrix = np.concatenate([rows[block] for block in carried])
    e, n = np.concatenate(injection.seen), len(slots)
    return Structure(matrix[:, :n], matrix[:, n:], e[:, :n], e[:, n:], tuple(injection.blocks))


class _Injection:
    """Applies operations to a stack of columns, with one more column for every number that may be disturbed."""

    def __init__(
        self,
        linear: LinearSystem,
        unit: str,
        kinds: tuple[type, ...],
        relative: bool,
        stack: Array,
        order: tuple[TimedOperation, ...],
    ) -> None:
        self.linear, self.unit, self.kinds, self.relative = linear, unit, kinds, relative
        width = sum(self._width(operation) for operation in self._disturbed(order))
        self.column = stack.shape[1]
        self.rows: Rows = linear.split(np.hstack([stack, np.zeros((len(stack), width))]))
        self.seen: list[Array] = []
        self.blocks: list[tuple[int, int]] = []
        self._apply(order)

    def _is_disturbed(self, operation: TimedOperation) -> bool:
        return isinstance(operation, self.kinds) and getattr(operation, "unit", None) == self.unit

    def _width(self, operation: TimedOperation) -> int:
        return sum(map(self.linear.layout.width, self.linear.operations.update(operation).targets))

    def _disturbed(self, operations: Sequence[TimedOperation]) -> Iterator[TimedOperation]:
        """The uncertain operations in the order in which they are made; an iteration to the limit ends in one sweep."""
        for operation in operations:
            if isinstance(operation, TimedRepeat):
                count = operation.times if isinstance(operation.times, int) else len(operation.sweeps)
                for number in range(count):
                    yield from self._disturbed(operation.sweep(number))
            elif self._is_disturbed(operation):
                yield operation

    def _apply(self, operations: Sequence[TimedOperation]) -> None:
        for operation in operations:
            if isinstance(operation, TimedRepeat):
                fixed = isinstance(operation.times, int)
                count = operation.times if isinstance(operation.times, int) else len(operation.sweeps) - 1
                for number in range(count):
                    self._apply(operation.sweep(number))
                if not fixed:
                    self._limit(operation.sweeps[-1])
            elif self._is_disturbed(operation):
                self._inject(operation)
            else:
                self.linear.apply([operation], self.rows)

    def _inject(self, operation: TimedOperation) -> None:
        update = self.linear.operations.update(operation)
        self.seen.append(np.concatenate([self.rows[block] for block in update.sources]))
        self.linear.apply([operation], self.rows)
        size = float(np.linalg.norm(update.matrix, 2)) if self.relative else 1.0
        self.blocks.append((self._width(operation), len(self.seen[-1])))
        for block in update.targets:
            width = self.linear.layout.width(block)
            disturbed = np.array(self.rows[block])
            disturbed[:, self.column : self.column + width] += size * np.eye(width)
            self.rows[block] = disturbed
            self.column += width

    def _limit(self, sweep: tuple[TimedOperation, ...]) -> None:
        """The fixed point of the sweep z = B z + E d, with d the same in all of its late sweeps: linear in z and d."""
        linear = self.linear
        size = linear.layout.size
        inner = _Injection(linear, self.unit, self.kinds, self.relative, np.eye(size), sweep)
        whole = linear.join(inner.rows)
        change = np.abs(whole - np.eye(size, whole.shape[1])).max(axis=1)
        v, f = np.flatnonzero(change), np.flatnonzero(change == 0)
        z = linear.join(self.rows)
        width = whole.shape[1] - size
        d = np.zeros((width, z.shape[1]))
        d[:, self.column : self.column + width] = np.eye(width)
        loop = np.eye(len(v)) - whole[np.ix_(v, v)]
        if np.linalg.cond(loop) > 1e13:
            raise AlgebraicLoopError("the iteration has no unique fixed point; change the step size or the master.")
        z[v] = np.linalg.solve(loop, whole[np.ix_(v, f)] @ z[f] + whole[v, size:] @ d)
        self.rows = linear.split(z)
        self.seen += [e[:, :size] @ z + e[:, size:] @ d for e in inner.seen]
        self.blocks += inner.blocks
        self.column += width


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
            raise ConfigurationError(f"parameter '{name}' is {value}; a relative change needs a nominal value not 0.")
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
