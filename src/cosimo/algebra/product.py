"""Applying the matrices: a stack of columns of z goes through the macro step, operation after operation.

The stack is kept as row blocks, and an operation replaces the blocks it changes. From the identity this multiplies out
Φ; from one column it is a macro step. Blocks are dense (n, k), or CSR matrices for large systems, so that the structure
of a long chain is kept; `scipy.sparse` is loaded for these only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosimo.algebra.backends import SINGULAR
from cosimo.algebra.operations import Operations, Rows, Walk
from cosimo.algebra.sparse_step import NO_FIXED_POINT, SparseStep
from cosimo.core import dataclass
from cosimo.core.arrays import Array, block_diagonal, exponential, loop_is_singular, value_row
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError
from cosimo.core.master import ONE, Block, Master
from cosimo.core.system import Constant, Source, System
from cosimo.core.timing import TimedOperation
from cosimo.core.unit import LinearModel

if TYPE_CHECKING:
    import scipy.sparse as sp

SPARSE_FROM = 600
"""Size of z from which blocks are kept sparse."""

FED_THROUGH = 50
"""Units in a row, each fed through, up to which a large system is solved along the row."""

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class OneStepMap:
    """z' = Φ z + Γ e, with e what is given from outside; dense or sparse."""

    Phi: Any
    Gamma: Any


@dataclass(frozen=True)
class Cycle:
    """One turn of the schedule from a point inside it, on the blocks carried there; `rest` leads on to its end."""

    matrix: Any
    blocks: tuple[Block, ...]
    rest: tuple[TimedOperation, ...]


class LinearSystem(Walk):
    """A system of linear units under a master: its one-step map, its initial map, its exact model."""

    def __init__(
        self,
        system: System,
        master: Master,
        operations: Operations | None = None,
        *,
        like: LinearSystem | None = None,
    ) -> None:
        """`like`: the same system under another master, which has the same exact model."""
        self.system, self.master = system, master
        self.operations: Operations = operations or Operations(system, master, like.operations if like else None)
        self.layout = self.operations.layout
        self.given = tuple(block for block in self.layout.blocks if block.kind == "e")
        self.size = self.layout.size - len(self.given)
        """How many numbers of z the master carries itself: all but what is given from outside."""
        # Stacks of matrices, one per master of a batch, are always dense.
        self.sparse = type(self.operations) is Operations and self.layout.size >= SPARSE_FROM
        self._stepped_alike: SparseStep | None = None
        if like is not None and like.system is system and like.sparse == self.sparse:
            self.coupled = like.coupled
            self._stepped_alike = vars(like).get("sparse_step", like._stepped_alike)

    @cached_property
    def one_step(self) -> OneStepMap:
        """The product of all operations of the schedule."""
        product = self.join(self.macro_step(self.identity()))
        n = self.size
        return OneStepMap(product[:n, :n], product[:n, n:])

    @cached_property
    def sparse_step(self) -> SparseStep:
        """The macro step of a large system, without its product."""
        return SparseStep(self.operations, like=self._stepped_alike)

    @cached_property
    def coupled(self) -> CoupledModel:
        """The exact coupled system, with nothing between communication points."""
        return coupled_model(self.system, self.operations.models, sparse=self.sparse)

    @cached_property
    def cycle(self) -> Cycle:
        """Φ from the point of the schedule where least is carried, on what is carried there: same spectrum, smaller."""
        place, blocks = self.operations.cut()
        order = self.operations.timeline.operations
        slots = [i for block in blocks for i in range(self.layout[block].start, self.layout[block].stop)]
        rows = self.split(_eye(self.layout.size, self.sparse)[:, slots])
        self.apply((*order[place:], *order[:place]), rows)
        return Cycle(_vstack([rows[block] for block in blocks]), tuple(blocks), order[place:])

    # Going through the macro step.

    def macro_step(self, rows: Rows) -> Rows:
        """One macro step of a stack of columns."""
        rows = dict(rows)
        self.apply(self.operations.timeline.operations, rows)
        return rows

    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        update = self.operations.update(operation)
        if not update.sources:
            return  # A unit without inputs has nothing to couple.
        stack = _vstack([rows[block] for block in update.sources])
        result, start = _like(update.matrix, stack) @ stack, 0
        for block in update.targets:
            rows[block] = result[start : start + self.layout.width(block)]
            start += self.layout.width(block)

    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        """The fixed point of a sweep B: with v what it changes and f what it leaves, z_v = (I − B_vv)⁻¹ B_vf z_f."""
        (B, v, f), z = self.sweep_matrix(sweep), self.join(rows)
        right, loop = B[v][:, f] @ z[f], _eye(len(v), self.sparse) - B[v][:, v]
        if not self.sparse:
            if np.linalg.cond(loop) > SINGULAR:
                raise AlgebraicLoopError(NO_FIXED_POINT)
            z[v] = np.linalg.solve(loop, right)
        else:
            try:
                solve = _sparse().linalg.splu(loop.tocsc()).solve
            except RuntimeError:
                raise AlgebraicLoopError(NO_FIXED_POINT) from None
            dense_right = isinstance(right, np.ndarray)
            solution = solve(right.real) + 1j * solve(right.imag) if dense_right else _like(solve(right.toarray()), z)
            place = _eye(self.layout.size, self.sparse)
            z = place[:, v] @ solution + place[:, f] @ z[f]
        rows.update(self.split(z))

    def sweep_matrix(self, sweep: tuple[TimedOperation, ...]) -> tuple[Any, Indices, Indices]:
        """The matrix B of one sweep on all of z, the places v that it changes, and the rest f."""
        rows = self.identity()
        self.apply(sweep, rows)
        B = self.join(rows)
        change = np.asarray(abs(B - _eye(self.layout.size, self.sparse)).sum(axis=1)).ravel()
        return B, np.flatnonzero(change), np.flatnonzero(change == 0)

    # Stacks of columns.

    def identity(self) -> Rows:
        """The identity as row blocks."""
        return self.split(_eye(self.layout.size, self.sparse))

    def split(self, z: Any) -> Rows:
        """A matrix with one row per number of z, as row blocks."""
        return {block: z[self.layout[block]] for block in self.layout.blocks}

    def join(self, rows: Rows) -> Any:
        """Row blocks as one matrix."""
        return _vstack([rows[block] for block in self.layout.blocks])

    # What is read off z.

    def inputs(self, z: Any) -> Any:
        """S_u z: all inputs at the end of the macro step, from rows of z."""
        found = []
        for name, unit in self.system.units.items():
            begin, m = self.layout[Block("u", name)].start, len(unit.inputs)
            row = value_row(self.operations.degrees[name], self.operations.timeline.clocks[name].now)
            powers = [z[begin + j * m : begin + (j + 1) * m] for j in range(len(row))]
            found.append(sum(float(share) * part for share, part in zip(row, powers, strict=True)))
        return _vstack(found)

    def outputs(self, z: Any) -> Any:
        """S_y z: all outputs."""
        return z[self.layout.indices("y")]

    def defect(self, z: Any) -> Any:
        """(S_u − L S_y) z: how far the inputs are from what the outputs now say (glumac2018, Eq. 53)."""
        return self.inputs(z) - self.coupled.L @ self.outputs(z)

    def defect_map(self) -> Any:
        """S_u − L S_y as a sparse matrix (m, size)."""
        entries, number = list[tuple[int, int, float]](), 0
        for name, unit in self.system.units.items():
            begin, m = self.layout[Block("u", name)].start, len(unit.inputs)
            row = value_row(self.operations.degrees[name], self.operations.timeline.clocks[name].now).tolist()
            entries += [(number + i, begin + j * m + i, share) for j, share in enumerate(row) for i in range(m)]
            number += m
        rows, columns, shares = np.array(entries).reshape(-1, 3).T
        S_u = _sparse().csr_array((shares, (rows.astype(int), columns.astype(int))), shape=(number, self.size))
        y = self.layout.indices("y")
        S_y = _sparse().csr_array((np.ones(len(y)), (np.arange(len(y)), y)), shape=(len(y), self.size))
        return S_u - self.coupled.L @ S_y

    # The start.

    def start_map(self) -> Any:
        """E with z_0 = E x_0 = Φ0^∞ R_v x_0 (glumac2018, Eqs. 34, 52): y = (I − D L)⁻¹ C x, u = L y.

        Memories are filled as if signals had been constant before the start; offsets and external inputs are left out.
        """
        coupled = self.coupled
        if self.sparse and not self.master.mixers:
            # Every number of z is one of x, y and u, or 0: which one, a column of their numbers tells.
            sources = _sparse().vstack([_eye(coupled.A.shape[0], True), coupled.C, coupled.L @ coupled.C], format="csr")
            n, p = coupled.A.shape[0], coupled.C.shape[0]
            x, y, u = np.split(np.arange(1.0, sources.shape[0] + 1), [n, n + p])
            which = self._start(x[:, None], y[:, None], u[:, None])[:, 0].astype(int)
            places = np.flatnonzero(which)
            picked = _sparse().csr_array(
                (np.ones(len(places)), (places, which[places] - 1)), shape=(len(which), sources.shape[0])
            )
            return picked @ sources
        return self._start(_eye(coupled.A.shape[0], self.sparse), coupled.C, coupled.L @ coupled.C)

    def start(self, time: float = 0.0) -> Array:
        """z_0 for the units' initial states, with offsets, start values and external inputs at `time`."""
        coupled = self.coupled
        x = np.concatenate([unit.initial_state for unit in self.system.units.values()])
        b = given_inputs(self.system, time)
        y = coupled.C @ x + coupled.solve_loop(coupled.D @ b)
        z: Array = self._start(x[:, None], y[:, None], (coupled.L @ y + b)[:, None])[:, 0]
        for name, mixer in self.master.mixers.items():
            if mixer.start_rest is not None:
                z[self.layout[Block("m", name)]] += mixer.start_rest
        return z

    def _mixer_start(self, unit: str) -> Array:
        """The map from all units' states to a mixer's memory, which needs the units in the order of its design."""
        mixer = self.master.mixers[unit]
        order = tuple(dict.fromkeys(name.partition(".")[0] for name in mixer.outputs))
        own = tuple(name for name in self.system.units if name in order)
        if order and own != order:
            raise ConfigurationError(
                f"the compensated master was designed for the units in the order {', '.join(order)}; they stand as "
                f"{', '.join(own)}. Put them in that order, or design it again."
            )
        return mixer.start_map

    def _start(self, x: Any, y: Any, u: Any) -> Any:
        """The rows of z from those of all states, outputs and inputs (constant over time)."""
        parts = {"x": x, "y": y, "u": u}
        place = {"x": 0, "y": 0, "u": 0}
        number = {name: i for i, name in enumerate(self.system.input_names)}
        rows: Rows = {}
        for block in self.layout.blocks:
            width = self.layout.width(block)
            if block.kind == "m":
                rows[block] = self._mixer_start(str(block.owner)) @ x
                continue
            if block.kind == "w":
                row = number[self.system.links[int(block.owner)].connection.target]
                rows[block] = _vstack([u[row : row + 1]] * width)
                continue
            known = 0
            if block.kind in parts:
                known = len(self.system.units[str(block.owner)].inputs) if block.kind == "u" else width
            begin = place.get(block.kind, 0)
            filled = parts.get(block.kind, u)[begin : begin + known]
            place[block.kind] = begin + known
            rows[block] = _vstack([filled, _like(np.zeros((width - known, x.shape[1])), u)])
        return self.join(rows)[: self.size]

    def given_values(self, k: Any, start_time: float = 0.0) -> Array:
        """e of macro step k, or of several (…, m): the number 1 and the samples of external inputs."""
        sources = [Constant(1.0) if block == ONE else self.system.inputs[str(block.owner)] for block in self.given]
        times = [start_time + (k + float(block.time or 0)) * self.master.step for block in self.given]
        return np.stack([samples(*pair) for pair in zip(sources, times, strict=True)], axis=-1)


def samples(source: Source, moments: Any) -> Array:
    """The values of an external input at some times, of any shape."""
    if isinstance(source, Constant):
        return np.full(np.shape(moments), source.value)
    return np.array([source(moment) for moment in np.ravel(moments).tolist()], dtype=float).reshape(np.shape(moments))


def given_inputs(system: System, time: float) -> Array:
    """What reaches all inputs from outside at a time: offsets of connections, external inputs, start values."""
    given = [
        inlet.link.connection.offset if inlet.link else inlet.source(time) if inlet.source else inlet.start
        for name in system.units
        for inlet in system.inlets[name]
    ]
    return np.array(given, dtype=float)


def dense(matrix: Any) -> Array:
    """A dense or sparse matrix as a plain array."""
    found: Array = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    return found


def _sparse() -> Any:
    """`scipy.sparse` with its solvers."""
    import scipy.sparse.linalg

    return scipy.sparse


def _eye(size: int, sparse: bool) -> Any:
    return _sparse().eye_array(size, format="csr") if sparse else np.eye(size)


def _like(matrix: Array, other: Any) -> Any:
    """The matrix, as CSR where the other one is."""
    return matrix if isinstance(other, np.ndarray) else _sparse().csr_array(matrix)


def _vstack(blocks: list[Any]) -> Any:
    if all(isinstance(block, np.ndarray) for block in blocks):
        return np.concatenate(blocks)
    return _sparse().vstack(blocks, format="csr")


def merge_equal(matrix: Any) -> tuple[sp.csr_array, npt.NDArray[np.intp]]:
    """R Φ Q with equal rows merged until none are equal, and for every slot its number there (−1: always 0).

    Slots may be carried several times over: every compensated unit remembers the same samples of the same outputs.
    Where rows of Φ are equal, their slots are equal after one step, so that every eigenvector with μ ≠ 0 has the form
    z = Q y, with Q handing one number to all slots of a group. With R picking one row of each group, R Φ Q has the same
    non-zero eigenvalues as Φ: if Φ Q y = μ Q y then R Φ Q y = μ y, and back, as rows of a group are equal. Slots of
    empty rows are 0 after one step and belong to no group.
    """
    matrix, place = _sparse().csr_array(matrix), np.arange(matrix.shape[0])
    while True:
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        groups: dict[tuple[bytes, bytes], int] = {}
        rows, first = np.full(matrix.shape[0], -1), list[int]()
        for row in range(matrix.shape[0]):
            part = slice(matrix.indptr[row], matrix.indptr[row + 1])
            if part.start < part.stop:
                key = matrix.indices[part].tobytes(), matrix.data[part].tobytes()
                rows[row] = groups.setdefault(key, len(groups))
                if len(groups) > len(first):
                    first.append(row)
        if len(groups) == len(rows):
            return matrix, place
        place = np.where(place >= 0, rows[place], -1)
        kept = np.flatnonzero(rows >= 0)
        Q = _sparse().csr_array((np.ones(len(kept)), (kept, rows[kept])), shape=(len(rows), len(groups)))
        matrix = _sparse().csr_array(matrix[first] @ Q)


# ---- the coupled system itself, as if it were one model: what every co-simulation is measured against ----------------


@dataclass(frozen=True)
class CoupledModel:
    """ẋ = A x, y = C x of the coupled system (glumac2018, Eq. 16), with the connections L and all units' B and D.

    A = A_units + B L (I − D L)⁻¹ C_units,   C = (I − D L)⁻¹ C_units;   dense or sparse.
    """

    A: Any
    B: Any
    C: Any
    D: Any
    L: Any
    loop: Any

    def solve_loop(self, right: Any) -> Any:
        """(I − D L)⁻¹ right."""
        return _solve(self.loop, right)

    def flow(self, h: float) -> Array:
        """exp(A h), the exact one-step map of the states."""
        return exponential(dense(self.A) * h)

    def dense(self) -> CoupledModel:
        """The same model with plain arrays."""
        return replace(self, **{name: dense(part) for name, part in vars(self).items()})


def coupled_model(system: System, models: Mapping[str, LinearModel], *, sparse: bool = False) -> CoupledModel:
    """Assemble the coupled model; a loop with det(I − D L) = 0 is refused, naming its variables."""
    parts = {letter: [getattr(models[name], letter) for name in system.units] for letter in "ABCD"}
    L = connection_matrix(system, sparse=sparse)
    if sparse:
        sp = _sparse()
        A, B, C, D = map(_block_diagonal, parts.values())
        loop: Any = sp.csc_array(sp.eye_array(D.shape[0]) - D @ L)
    else:
        A, B, C, D = map(block_diagonal, parts.values())
        loop = np.eye(len(D)) - D @ L
    place = {name: i for i, name in enumerate(system.outputs)}
    for group in system.loops():
        own = [place[name] for name in group]
        if loop_is_singular(np.eye(len(own)) - dense(loop[own][:, own]), 1e-12):
            raise AlgebraicLoopError.singular(group)
    outputs = _solve(loop, C)
    return CoupledModel(A + B @ (L @ outputs), B, outputs, D, L, loop)


def _block_diagonal(blocks: list[Array]) -> Any:
    """Matrices along the diagonal of a sparse one."""
    shapes = np.array([block.shape for block in blocks])
    begins = np.vstack([np.zeros((1, 2), dtype=int), np.cumsum(shapes, axis=0)])
    places = [np.nonzero(block) for block in blocks]
    rows, columns = (np.concatenate([p[i] + b for p, b in zip(places, begins[:-1, i], strict=True)]) for i in (0, 1))
    values = np.concatenate([block[place] for block, place in zip(blocks, places, strict=True)])
    return _sparse().csr_array((values, (rows, columns)), shape=tuple(begins[-1]))


def connection_matrix(system: System, *, sparse: bool = True) -> Any:
    """L with u = L y + …, gains included (inputs, outputs)."""
    outputs = {name: i for i, name in enumerate(system.outputs)}
    inputs = {name: i for i, name in enumerate(system.input_names)}
    rows = [inputs[link.connection.target] for link in system.links]
    columns = [outputs[link.connection.source] for link in system.links]
    gains = [link.connection.gain for link in system.links]
    if sparse:
        return _sparse().csr_array((gains, (rows, columns)), shape=(len(inputs), len(outputs)))
    found = np.zeros((len(inputs), len(outputs)))
    found[rows, columns] = gains  # every input has one source at most
    return found


def _solve(loop: Any, right: Any) -> Any:
    if isinstance(loop, np.ndarray):
        return np.linalg.solve(loop, right)
    sp = _sparse()
    if isinstance(right, np.ndarray):
        return sp.linalg.splu(loop).solve(right)
    # (I − D L)⁻¹ = I + D L + (D L)² + …, which ends where values are fed through in no loop.
    through = sp.csr_array(sp.eye_array(loop.shape[0]) - loop)
    total = power = sp.csr_array(right)
    for _ in range(FED_THROUGH):
        power = through @ power
        if not power.count_nonzero():
            return total
        total = total + power
    # The solver returns a single column as a plain vector.
    return sp.csr_array(sp.linalg.spsolve(loop, sp.csc_array(right))).reshape(right.shape)
