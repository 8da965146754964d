"""The macro step of a large system as one sparse set of equations, in which no matrix is multiplied by another.

Every operation writes new numbers, each a sum over a few earlier ones. With all that a macro step writes as a vector w
(what is copied is not written again), and z what is carried into it,

    K w = E z,      z' = P_w w + P_z z,

K is the identity less what operations take from earlier ones: as sparse as the operations, whatever Φ is (Gauss–Seidel
along a chain fills half of Φ). It is triangular unless the schedule iterates until convergence: there what a sweep ends
with is what it begins with, two equations more in the same set. One macro step is one solution, and so is

    (Φ − σ I)⁻¹ r:      [ K    −E     ] [w]   [0]
                        [ P_w  P_z − σ] [z] = [r]

Where operations follow each other a few times only, as those of Jacobi do however many units there are, K = I − N with
N^k = 0 for a small k, and Φ = P_w (I + N + N² + …) E + P_z is as sparse as they are: it is multiplied then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.algebra.operations import Operations, Rows, Walk, flattened, needed_at_start
from cosimo.core.arrays import Array
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.timing import TimedOperation, TimedStep

DEEP, FILLED = 12, 4
"""Operations in a row, and how many times the numbers of all operations, up to which Φ itself is formed."""
NO_FIXED_POINT = "the iteration has no unique fixed point; change the step size or the master."

Indices = npt.NDArray[np.intp]


class SparseStep(Walk):
    """The macro step, or `sequence` of its operations, applied to columns of z, and solved for what led to them."""

    def __init__(
        self,
        operations: Operations,
        sequence: Iterable[TimedOperation] | None = None,
        *,
        like: SparseStep | None = None,
    ) -> None:
        """`like`: the whole macro step of the same master at another step, which differs in steps of units alone."""
        self._operations, self.layout = operations, operations.layout
        self.size = self.layout.size
        if like is not None and sequence is None and like._operations.timeline is operations.timeline:
            values = like._with_steps_of(operations)
            if values is not None:
                self._take_over(like, values)
                return
        self._count = self.size
        self._rows, self._columns = list[int](), list[int]()
        self._values: Any = list[float]()
        self._begun: dict[int, list[int]] = {}
        self.triangular = True
        # The place of every number of z in [z, w] as it is now.
        self._places = list(range(self.size))
        self.apply(operations.timeline.operations if sequence is None else sequence, {})
        self._now: Indices = np.array(self._places, dtype=np.intp)

    @cached_property
    def _step_places(self) -> list[tuple[Array, Indices, Indices]]:
        """Of steps that are alike: their matrices, and which numbers of these stand at which of the equations."""
        found = []
        for steps, matrices in self._operations.steps_alike():
            entries, ones = matrices != 0, matrices == 1
            entries &= ~((entries.sum(axis=2) == 1) & ones.any(axis=2))[:, :, None]  # what is copied is not written
            taken, put = list[Indices](), list[Indices]()
            for number, operation in enumerate(steps):
                places = np.flatnonzero(entries[number]) + number * entries[number].size
                for begin in self._begun.get(id(operation), ()):
                    taken.append(places)
                    put.append(begin + np.arange(len(places)))
            none = np.zeros(0, dtype=np.intp)
            found.append((matrices, np.concatenate([none, *taken]), np.concatenate([none, *put])))
        return found

    def _with_steps_of(self, operations: Operations) -> Array | None:
        """The numbers with steps of units that have the same zeros and ones; None where they have others."""
        values = np.array(self._values)
        for (matrices, taken, put), (_, others) in zip(self._step_places, operations.steps_alike(), strict=True):
            same = others.shape == matrices.shape and ((others != 0) == (matrices != 0)).all()
            if not same or ((others == 1) != (matrices == 1)).any():
                return None
            values[put] = others.ravel()[taken]
        return values

    def _take_over(self, like: SparseStep, values: Array) -> None:
        self._count, self._rows, self._columns, self._values = like._count, like._rows, like._columns, values
        self._begun, self._step_places, self.triangular = like._begun, like._step_places, like.triangular
        self._places, self._now, self.carried = like._places, like._now, like.carried

    def _slots(self, blocks: Iterable[Any]) -> list[int]:
        return [i for place in map(self.layout.__getitem__, blocks) for i in range(place.start, place.stop)]

    def _new(self, count: int) -> range:
        self._count += count
        return range(self._count - count, self._count)

    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        update = self._operations.update(operation)
        if not update.sources:
            return
        places, written = [self._places[source] for source in self._slots(update.sources)], list[int]()
        if isinstance(operation, TimedStep):
            self._begun.setdefault(id(operation), []).append(len(self._values))
        for row in update.matrix.tolist():  # a few numbers each: faster so than as arrays
            entries = [(place, value) for place, value in zip(places, row, strict=True) if value]
            if len(entries) == 1 and entries[0][1] == 1.0:
                written.append(entries[0][0])
                continue
            written += (new := self._new(1))
            self._rows += len(entries) * [*new]
            self._columns += [place for place, _ in entries]
            self._values += [value for _, value in entries]
        for target, place in zip(self._slots(update.targets), written, strict=True):
            self._places[target] = place

    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        written = {b for op in flattened(sweep) for b in self._operations.update(op).targets}
        slots = self._slots(block for block in self.layout.blocks if block in written)
        before, begun = [self._places[slot] for slot in slots], self._new(len(slots))
        for slot, place in zip(slots, begun, strict=True):
            self._places[slot] = place
        self.apply(sweep, rows)
        ended = (self._places[slot] for slot in slots)
        self._rows += begun
        # What the sweep hands on as it got it keeps the value from before the iteration.
        self._columns += [old if end == own else end for end, own, old in zip(ended, begun, before, strict=True)]
        self._values += len(slots) * [1.0]
        self.triangular = False

    # ---- the equations -------------------------------------------------------------------------------------------

    @cached_property
    def _equations(self) -> tuple[Any, Any]:
        """K and E."""
        import scipy.sparse as sp

        rows, columns = (np.array(part, dtype=np.intp) for part in (self._rows, self._columns))
        shape = self._count - self.size, self._count
        taken = sp.csc_array((np.array(self._values), (rows - self.size, columns)), shape=shape)
        return sp.csc_array(sp.eye_array(self._count - self.size) - taken[:, self.size :]), taken[:, : self.size]

    @cached_property
    def _solve(self) -> Callable[..., Array]:
        K = self._equations[0]
        return _factorise(K, triangular=self.triangular).solve if K.shape[0] else lambda right, trans="N": right

    @cached_property
    def product(self) -> Any:
        """Φ itself where it is sparse, else None."""
        import scipy.sparse as sp

        if not self.triangular or not self._count > self.size:
            return None
        K, E = self._equations
        most, written = FILLED * (K.nnz + E.nnz), self._now >= self.size
        N, term = (sp.eye_array(K.shape[0]) - K).tocsr(), E.tocsr()
        N.eliminate_zeros()
        total = term
        for _ in range(DEEP):
            term = N @ term
            if not term.nnz:
                slots = np.arange(self.size)
                P_w = _picking(slots[written], self._now[written] - self.size, (self.size, K.shape[0]))
                return P_w @ total + _picking(slots[~written], self._now[~written], (self.size, self.size))
            total = total + term
            if total.nnz > most:
                break
        return None

    def step(self, z: Array) -> Array:
        """One macro step of z (size,) or of columns of it."""
        if self.product is not None:
            return np.asarray(self.product @ z)
        if np.iscomplexobj(z):
            return np.asarray(self.step(z.real) + 1j * self.step(z.imag))
        found: Array = np.concatenate([z, self._solve(self._equations[1] @ z)])[self._now]
        return found

    @cached_property
    def _E_back(self) -> Any:
        return self._equations[1].T.tocsr()

    def transposed(self, z: Array) -> Array:
        """Φᵀ z."""
        if self.product is not None:
            return np.asarray(self.product.T @ z)
        back = np.bincount(self._now, weights=z, minlength=self._count)
        found: Array = back[: self.size] + self._E_back @ self._solve(back[self.size :], trans="T")
        return found

    @cached_property
    def changed(self) -> Indices:
        """The places of z that are not left as they are."""
        return np.flatnonzero(self._now != np.arange(self.size))

    @cached_property
    def carried(self) -> Indices:
        """The places of z that the macro step reads before it writes them: what has eigenvalues."""
        return np.array(self._slots(needed_at_start(self._operations)), dtype=np.intp)

    def restricted(self, places: Indices) -> Restricted:
        """The map of some places of z to themselves, all others 0."""
        return Restricted(self, places)


class Restricted:
    """Φ on the `places` of z: its product with columns, and the solution of (Φ − σ I) x = r."""

    def __init__(self, whole: SparseStep, places: Indices) -> None:
        import scipy.sparse as sp

        self._whole, self.size, self._own = whole, len(places), None
        if whole.product is not None:
            self._own = whole.product[places][:, places].tocsr()
            return
        K, E = whole._equations
        self._E = sp.csc_array(E)[:, places]
        inner = np.full(whole.size, -1)
        inner[places] = np.arange(self.size)
        now = whole._now[places]
        written = now >= whole.size
        own = np.where(written, -1, inner[np.where(written, 0, now)])
        rows = np.arange(self.size)
        self._P_w = _picking(rows[written], now[written] - whole.size, (self.size, K.shape[0]))
        self._P_z = _picking(rows[own >= 0], own[own >= 0], (self.size, self.size))

    def product(self, x: Array) -> Array:
        """Φ x."""
        if self._own is not None:
            return np.asarray(self._own @ x)
        found: Array = self._P_w @ self._whole._solve(self._E @ x) + self._P_z @ x
        return found

    def inverse(self, shift: complex) -> Callable[[Array], Array]:
        """The function that solves (Φ − shift · I) x = r."""
        import scipy.sparse as sp

        if self._own is not None:
            solved: Callable[[Array], Array] = _factorise((self._own - sp.eye_array(self.size) * shift).tocsc()).solve
            return solved
        K, own = self._whole._equations[0], sp.eye_array(self.size) * shift
        joined = sp.block_array([[K, -self._E], [self._P_w, self._P_z - own]], format="csc")
        solve, inner = _factorise(joined).solve, K.shape[0]

        def apply(right: Array) -> Array:
            whole = np.zeros((joined.shape[0], *right.shape[1:]), dtype=np.result_type(right, joined.dtype))
            whole[inner:] = right
            found: Array = solve(whole)[inner:]
            return found

        return apply


def _picking(rows: Indices, columns: Indices, shape: tuple[int, int]) -> Any:
    import scipy.sparse as sp

    return sp.csr_array((np.ones(len(rows)), (rows, columns)), shape=shape)


def _factorise(matrix: Any, *, triangular: bool = False) -> Any:
    from scipy.sparse.linalg import splu

    try:
        if triangular:
            return splu(matrix, permc_spec="NATURAL", diag_pivot_thresh=0.0)
        return splu(matrix)
    except RuntimeError:
        raise AlgebraicLoopError(NO_FIXED_POINT) from None
