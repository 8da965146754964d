"""The one-step maps of many masters of one system in one call, as stacks of small matrices, the masters last.

Masters that share a schedule differ in the macro step, in gains of `Nepce`, in rates and gains of the units and, if
wanted, in other parameters of the units. So each operation's matrix is known up to a few numbers per master:

    F  affine in the gains      G  the unit's flow over rate · step      H  times the unit's gain      S, R  constant

`SharedSchedule` works this out once; `BatchedMap` fills in the numbers of some masters and applies the macro step to
row blocks of z, as `LinearSystem` does for one master. `tests/laws/test_law.py` holds both to executing the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import pairwise
from math import factorial
from typing import Any

import numpy as np

from cosimo.algebra.backends import Backend, Stack
from cosimo.algebra.operations import Operations, Rows, Update, Walk, best_cut, observed_at
from cosimo.algebra.product import LinearSystem
from cosimo.core import dataclass
from cosimo.core.arrays import Array, frozen, shift_matrix
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Block, Master
from cosimo.core.system import System
from cosimo.core.timing import TimedOperation, TimedRead, TimedStep
from cosimo.core.unit import LinearModel, Unit
from cosimo.couplings import Nepce, nepce_matrices
from cosimo.units.linear import Exact, LinearUnit, StateSpace

TERMS = 19
"""Powers of δ in the series of a flow, 0 to 18: for ‖A‖ δ ≤ 1 the remainder is below 1/19! ≈ 8e-18."""


@dataclass(frozen=True)
class MasterNumbers:
    """The numbers that differ between N masters, all (N,): steps, gains by input, which system (None: the only one),
    and, by unit, `rates` (ẋ = a (A x + B u)) and `strengths` (y = b (C x + D u)), 1 for units that are not named."""

    steps: Array
    gains: Mapping[str, Array] = field(default_factory=dict)
    which: Any = None
    rates: Mapping[str, Array] = field(default_factory=dict)
    strengths: Mapping[str, Array] = field(default_factory=dict)

    def part(self, part: Any) -> MasterNumbers:
        """Some of the masters."""
        gains, rates, strengths = (
            {name: values[part] for name, values in own.items()} for own in (self.gains, self.rates, self.strengths)
        )
        return MasterNumbers(
            self.steps[part], gains, None if self.which is None else self.which[part], rates, strengths
        )


class _SharedOperations(Operations):
    """The operations of masters that differ in gains, and in the numbers of P systems; matrices (P, …, rows, columns).

    Where a matrix depends on gains it is probed: entry 0 of the next axis has all gains 0, entry g has gain g at 1.
    """

    def __init__(self, systems: Sequence[System], master: Master, gains: tuple[str, ...]) -> None:
        super().__init__(systems[0], master)
        self._probes = {
            target: row[:, None, None] for target, row in zip(gains, np.eye(len(gains) + 1)[1:], strict=True)
        }
        for target in gains:
            systems[0].input(target)
            coupling = master.coupling_of(target)
            if (coupling.history, coupling.degree) != (Nepce.history, Nepce.degree):
                raise ConfigurationError(
                    f"the input {target} is coupled by {coupling}, not by Nepce; couple it by Nepce to vary its gain."
                )
        self.others = [_SharedOperations([system], master, gains) for system in systems[1:]]
        for number, other in enumerate(self.others, 1):
            if other.fingerprint != self.fingerprint:
                raise ConfigurationError(
                    f"system {number} of the batch differs from the first in units, connections or feedthrough; "
                    "evaluate it in a separate batch."
                )

    @property
    def fingerprint(self) -> Any:
        """The layout of z, the times of the operations, and which outputs feed which inputs."""
        widths = [self.layout.width(block) for block in self.layout.blocks]
        links = [
            (link.source, link.target, bool(link.connection.gain), bool(link.connection.offset))
            for link in self.system.links
        ]
        return self.layout.blocks, widths, self.timeline, links

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        if target in self._probes:
            return nepce_matrices(self._probes[target])
        return super().coupling_matrices(target, sampling)

    def _matrix(self, operation: TimedOperation) -> Update:
        if isinstance(operation, TimedStep):
            return self._probed_step(operation.unit)
        update = super()._matrix(operation)
        return replace(
            update, matrix=np.stack([update.matrix, *(other._matrix(operation).matrix[0] for other in self.others)])
        )

    def _probed_step(self, unit: str) -> Update:
        """Which blocks a step may depend on, whatever its length: a number that is 0 at one step is not at another."""
        x, u = Block("x", unit), Block("u", unit)
        models = [own.models[unit] for own in (self, *self.others)]
        fed = any(model.B.any() for model in models)
        pattern = [np.ones((1, self.layout.width(x))), np.full((1, self.layout.width(u)), float(fed))]
        return Update((x,), (x, u), np.repeat(np.concatenate(pattern, axis=-1), self.layout.width(x), axis=0))


_Applied = tuple[list[tuple[Block, slice]], list[tuple[Block, Stack]]]
"""z[targets] ← Σ matrix · z[source]: the rows of every target, and matrices by source."""


class SharedSchedule:
    """What the masters of a batch share: operations, layout, where the schedule carries least, flows, exact systems.

    With `series` False the flows of units are always what `Unit.discrete` says, to its last digit.
    """

    def __init__(
        self, systems: Sequence[System], master: Master, gains: tuple[str, ...] = (), *, series: bool = True
    ) -> None:
        self.shared = _SharedOperations(systems, master, gains)
        self.systems, self.master, self.gains, self.series = tuple(systems), master, gains, series
        self.operations, self.layout = self.shared.timeline.operations, self.shared.layout
        self.linear = [LinearSystem(own.system, master, own) for own in (self.shared, *self.shared.others)]
        self.place, self.carried = best_cut(self.shared)
        self._flows: dict[str, Flow] = {}
        self._constant: dict[tuple[int, str], _Applied | None] = {}
        self._cuts: dict[int, tuple[list[tuple[Block, slice]], list[tuple[Block, slice]]]] = {}
        self._polynomials: dict[int, Array | None] = {}

    @cached_property
    def start_maps(self) -> Array:
        """E with z_0 = E x_0, (size, states, P)."""
        return self._each(lambda linear: linear.start_map())

    @cached_property
    def defects(self) -> Array:
        """S_u − L S_y, (inputs, size, P)."""
        return self._each(lambda linear: linear.defect(np.eye(linear.size)))

    @cached_property
    def outputs(self) -> Array:
        """S_y, (outputs, size, 1)."""
        return np.eye(self.linear[0].size)[self.layout.indices("y")][:, :, None]

    @cached_property
    def exact_outputs(self) -> Array:
        """C of the coupled system, (outputs, states, P)."""
        return self._each(lambda linear: linear.coupled.C)

    @cached_property
    def exact_flow(self) -> Flow:
        """exp(A_c δ) of the coupled system."""
        return Flow.of([linear.coupled.A for linear in self.linear])

    @property
    def halves(self) -> tuple[Sequence[TimedOperation], Sequence[TimedOperation]]:
        """The operations before and after the place where least is carried."""
        return self.operations[: self.place], self.operations[self.place :]

    @cached_property
    def observed(self) -> list[Block]:
        """What is carried there when the outputs at the end of the macro step are looked at too."""
        return observed_at(self.shared, self.place)

    def _each(self, matrix: Callable[[LinearSystem], Array]) -> Array:
        return np.ascontiguousarray(np.stack([matrix(linear) for linear in self.linear], axis=-1))

    def flow(self, unit: str) -> Flow:
        """The map of one step of a unit, for all step sizes."""
        if unit not in self._flows:
            degree = min(self.shared.degrees[unit], self.systems[0].units[unit].input_degree)
            self._flows[unit] = Flow([system.units[unit] for system in self.systems], degree, series=self.series)
        return self._flows[unit]

    def applied(self, operation: TimedOperation, matrix: Stack) -> _Applied:
        """The operation with its matrix (rows, columns, N or 1) cut by source, without what is given from outside."""
        if id(operation) not in self._cuts:
            update = self.shared.update(operation)
            rows, columns = (
                list(zip(blocks, (slice(a, b) for a, b in pairwise(ends)), strict=True))
                for blocks in (update.targets, update.sources)
                for ends in [np.cumsum([0, *map(self.layout.width, blocks)]).tolist()]
            )
            used = [
                (source, own)
                for source, own in columns
                if source.kind != "e" and update.matrix[..., own].any() and 0 not in matrix[:, own].shape
            ]
            self._cuts[id(operation)] = rows, used
        rows, used = self._cuts[id(operation)]
        return rows, [(source, matrix[:, own]) for source, own in used]

    def polynomial(self, op: TimedStep) -> Array | None:
        """K of a step: the coefficients from the step's start on, in its own measure of time; None where that is I."""
        if id(op) not in self._polynomials:
            unit = self.shared.system.units[op.unit]
            moved = op.given(self.shared.degrees[op.unit], unit.input_degree)
            scaled = np.array([float(op.fraction) ** j for j in range(len(moved))])[:, None] * moved
            same = scaled.shape[0] == scaled.shape[1] and (scaled == np.eye(len(scaled))).all()
            wide = frozen(np.kron(scaled, np.eye(len(unit.inputs)))[:, :, None])
            self._polynomials[id(op)] = None if same or not unit.inputs else wide
        return self._polynomials[id(op)]

    def constant(self, operation: TimedOperation, backend: Backend) -> _Applied | None:
        """The operation where it is the same for all masters; None where it is not."""
        key = (id(operation), backend.name)
        if key not in self._constant:
            matrix = self.shared.update(operation).matrix
            varies = isinstance(operation, TimedStep) or matrix.ndim == 4 or len(self.systems) > 1
            self._constant[key] = None if varies else self.applied(operation, backend.array(matrix[0][:, :, None]))
        return self._constant[key]


class BatchedMap(Walk):
    """The macro step of N masters on stacks of columns (rows, columns, N). Blocks of zeros are left out of `Rows`."""

    def __init__(self, schedule: SharedSchedule, variation: MasterNumbers, backend: Backend) -> None:
        self.schedule, self.backend, self.variation = schedule, backend, variation
        self.steps = backend.array(variation.steps)
        self._applied: dict[int, _Applied] = {}
        self._flows: dict[Any, Stack] = {}
        self._durations: dict[str | None, Durations] = {}
        self._around: dict[tuple[Block, ...], tuple[Stack, Rows]] = {}

    @property
    def count(self) -> int:
        """How many masters."""
        return len(self.variation.steps)

    def durations(self, unit: str | None = None) -> Durations:
        """The macro steps, in the time of a unit."""
        unit = unit if unit in self.variation.rates else None
        if unit not in self._durations:
            steps = self.variation.steps if unit is None else self.variation.steps * self.variation.rates[unit]
            self._durations[unit] = Durations(steps, self.backend, self.variation.which)
        return self._durations[unit]

    # The maps.

    @cached_property
    def cycle(self) -> Stack:
        """Φ from the point of the schedule where least is carried, (n, n, N)."""
        return self.around(self.schedule.carried)[0]

    def around(self, carried: Sequence[Block]) -> tuple[Stack, Rows]:
        """Φ from that point, of the blocks that are carried there, and z at the end of the macro step on the way."""
        key, (before, after) = tuple(carried), self.schedule.halves
        if key not in self._around:
            rows = self.identity(carried)
            self.apply(after, rows)
            end = dict(rows)
            self.apply(before, rows)
            self._around[key] = self.full(self.gather(rows, carried)), end
        return self._around[key]

    def begin(self, carried: Sequence[Block]) -> Stack:
        """What is carried at that point in the first macro step, from the states of the start."""
        rows = self.start()
        self.apply(self.schedule.halves[0], rows)
        return self.gather(rows, carried)

    def macro_step(self, rows: Rows) -> Rows:
        """One macro step of columns of z."""
        rows = dict(rows)
        self.apply(self.schedule.operations, rows)
        return rows

    def start(self) -> Rows:
        """E, as row blocks."""
        stack, layout = self.chosen(self.schedule.start_maps), self.schedule.layout
        return {block: stack[layout[block]] for block in layout.blocks if block.kind != "e" and layout.width(block)}

    def observe(self, matrices: Array, rows: Rows) -> Stack:
        """matrix · z for constant matrices (r, size, P)."""
        matrix, layout, total = self.chosen(matrices), self.schedule.layout, None
        for block, stack in rows.items():
            places = layout[block]
            if block.kind == "e" or not matrices[:, places].any():
                continue
            part = self.backend.multiply(matrix[:, places], stack)
            total = part if total is None else total + part
        return total

    # Applying operations.

    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        (targets, parts), total = self._matrices(operation), None
        for source, matrix in parts:
            if source in rows:
                part = self.backend.multiply(matrix, rows[source])
                total = part if total is None else total + part
        for block, places in targets:
            if total is None:
                rows.pop(block, None)  # Nothing but zeros came in.
            else:
                rows[block] = total[places]

    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        """The fixed point of a sweep B: z_v = (I − B_vv)⁻¹ B_vf z_f, with v what the sweep changes."""
        layout, xp = self.schedule.layout, self.backend.xp
        blocks = [block for block in layout.blocks if block.kind != "e" and layout.width(block)]
        columns = next(iter(rows.values())).shape[1]
        moved = self.identity(blocks)
        self.apply(sweep, moved)
        B, z = self.gather(moved, blocks), self.gather(rows, blocks, columns)
        eye = self.backend.array(np.eye(B.shape[0])[:, :, None])
        change = self.backend.host(xp.amax(xp.abs(B - eye), (1, 2)))
        v, f = (self.backend.indices(np.flatnonzero(which)) for which in (change != 0, change == 0))
        solution = self.backend.solve((eye - B)[v][:, v], self.backend.multiply(B[v][:, f], z[f]))
        limit = self.backend.zeros(z.shape[0], columns, max(solution.shape[2], z.shape[2])) + z
        limit[v] = solution
        start = 0
        for block in blocks:
            rows[block] = limit[start : start + layout.width(block)]
            start += layout.width(block)

    def _matrices(self, operation: TimedOperation) -> _Applied:
        key = id(operation)
        if key not in self._applied:
            strength = self.variation.strengths.get(operation.unit) if isinstance(operation, TimedRead) else None
            constant = self.schedule.constant(operation, self.backend) if strength is None else None
            self._applied[key] = constant or self.schedule.applied(operation, self._matrix(operation, strength))
        return self._applied[key]

    def _matrix(self, operation: TimedOperation, strength: Array | None) -> Stack:
        """(rows, columns, N) with every master's numbers."""
        if isinstance(operation, TimedStep):
            return self._step(operation)
        matrix = self.schedule.shared.update(operation).matrix
        if matrix.ndim == 3:
            found = self.chosen(np.moveaxis(matrix, 0, -1))
            return found if strength is None else found * self.backend.array(strength)
        found = self.chosen(np.moveaxis(matrix[:, 0], 0, -1))
        for number, target in enumerate(self.schedule.gains, 1):
            slope = np.moveaxis(matrix[:, number] - matrix[:, 0], 0, -1)
            if slope.any():
                found = found + self.chosen(slope) * self.backend.array(self.variation.gains[target])
        return found

    def _step(self, op: TimedStep) -> Stack:
        """[A_d B K]: the unit's flow, with the polynomial from the step's start on."""
        flow = self.schedule.flow(op.unit)
        if (op.unit, op.fraction) not in self._flows:
            durations = self.durations(op.unit)
            self._flows[op.unit, op.fraction] = flow.at(durations, float(op.fraction), self.backend)
        maps, K = self._flows[op.unit, op.fraction], self.schedule.polynomial(op)
        if K is None:
            return maps
        moved = self.backend.multiply(maps[:, flow.n :], self.backend.array(K))
        return self.backend.join([maps[:, : flow.n], moved], 1)

    # Stacks.

    def chosen(self, matrices: Array) -> Stack:
        """Of matrices (r, s, P) of the host, each master's own; one for all stays one."""
        stack = self.backend.array(matrices)
        if matrices.shape[-1] == 1:
            return stack
        return self.backend.pick(stack, self.backend.indices(self.variation.which))

    def full(self, stack: Stack) -> Stack:
        """With a last axis of length N even where all masters have the same."""
        if stack.shape[-1] == self.count:
            return stack
        return self.backend.zeros(*stack.shape[:-1], self.count) + stack

    def identity(self, blocks: Sequence[Block]) -> Rows:
        """The columns of the identity that belong to `blocks`, as row blocks."""
        widths = [self.schedule.layout.width(block) for block in blocks]
        eye, ends = self.backend.array(np.eye(sum(widths))[:, :, None]), np.cumsum(widths).tolist()
        return {block: eye[end - width : end] for block, width, end in zip(blocks, widths, ends, strict=True)}

    def gather(self, rows: Rows, blocks: Sequence[Block], columns: int | None = None) -> Stack:
        """Row blocks as one stack, zeros where a block is left out."""
        layout = self.schedule.layout
        if columns is None:  # a system that carries nothing from step to step has no blocks at all
            columns = max((part.shape[1] for part in rows.values()), default=0)
        parts = [rows[b] if b in rows else self.backend.zeros(layout.width(b), columns, 1) for b in blocks]
        return self.backend.join(parts, 0) if parts else self.backend.zeros(0, columns, 1)


# ---- the maps of one step of a linear unit, for many step sizes at once ----------------------------------------------


class Durations:
    """The steps of N masters on the backend, what is distinct among them, and which system each master runs."""

    def __init__(self, steps: Array, backend: Backend, which: Any = None) -> None:
        self.all, self.which = steps, which
        self.distinct, inverse = backend.distinct(backend.array(steps))
        self.inverse = inverse.reshape(-1)


class Flow:
    """[A_d B_0 … B_q] of a unit, or of the same unit in P systems with other parameters, for stacks of steps.

    With the input u(θ) = Σ_j c_j θ^j over the step, the exact map x' = A_d x + Σ_j B_j c_j of a step δ is the series

        A_d = Σ_i (A δ)^i / i!,        B_j = Σ_i j! A^i B δ^(i+1) / (i + j + 1)!,

    whose coefficients do not depend on δ: for all steps together it is one product of a constant matrix with the powers
    of δ. It is used for ‖A‖ δ ≤ 1; longer steps are halved s times first and the map is doubled s times, each doubling
    being one product of stacks, as two steps with the same polynomial do,

        A_d ← A_d²,        B ← (A_d B + B moved along) scaled by 2^-j.

    Steps come in rising order, so that each doubling concerns a tail of them. Units with other integrators, and with
    maps of their own (identified ones), are asked themselves.
    """

    def __init__(self, units: Sequence[Unit], degree: int, *, series: bool = True) -> None:
        self.units, self.degree = units, degree
        models = [model for unit in units if (model := unit.linear()) is not None]
        self.exact = series and all(
            isinstance(unit, LinearUnit)
            and isinstance(unit.integrator, Exact)
            and type(unit).discrete is LinearUnit.discrete
            for unit in units
        )
        self.n, self.m = models[0].B.shape
        if self.exact:
            self.series = np.stack([_series(model, degree) for model in models], axis=-1)
            self.norms = np.array([np.abs(model.A).sum(axis=0).max(initial=0.0) for model in models])

    @classmethod
    def of(cls, states: Sequence[Array]) -> Flow:
        """The flows exp(A δ) of free systems ẋ = A x."""
        return cls([StateSpace(A, np.zeros((len(A), 0)), np.zeros((0, len(A)))) for A in states], 0)

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.n + (self.degree + 1) * self.m)

    def at(self, durations: Durations, factor: float, backend: Backend) -> Stack:
        """(n, width, N) for `factor` times the steps."""
        if durations.which is not None and len(self.units) > 1:
            return self._mixed(durations.all * factor, durations.which, backend)
        steps = durations.distinct * factor
        maps = (
            self._exact(steps, backend, None) if self.exact else backend.array(self._discrete(0, backend.host(steps)))
        )
        return backend.pick(maps, durations.inverse)

    def _mixed(self, durations: Array, which: Any, backend: Backend) -> Stack:
        """Every master has a system of its own, or some share one: in the order of ‖A‖ δ, or system by system."""
        if self.exact:
            order = np.argsort(self.norms[which] * durations, kind="stable")
            maps = self._exact(backend.array(durations[order]), backend, which[order])
        else:
            order = np.argsort(which, kind="stable")
            each = [self._discrete(p, durations[which == p]) for p in np.unique(which).tolist()]
            maps = backend.array(np.concatenate(each, axis=-1))
        return backend.pick(maps, backend.indices(np.argsort(order, kind="stable")))

    def _discrete(self, number: int, steps: Array) -> Array:
        """What the unit itself says, on the host: other integrators than the exact one, and units of other kinds."""
        own = self.units[number].discrete(steps)
        return np.moveaxis(np.concatenate([own.A, own.B[..., : self.width - self.n]], axis=-1), 0, -1)

    def _exact(self, durations: Stack, backend: Backend, which: Any) -> Stack:
        """The series and the doublings, for durations with rising ‖A‖ δ."""
        xp = backend.xp
        sizes = durations * (float(self.norms[0]) if which is None else backend.array(self.norms[which]))
        longest = float(sizes[-1])
        limits = [2.0**s for s in range(int(np.ceil(np.log2(longest))) if longest > 1 else 0)]
        places = xp.searchsorted(sizes, backend.array(limits), side="right") if limits else backend.zeros(0)
        tails = backend.host(places).tolist()
        delta = 1.0 * durations
        for tail in tails:
            delta[tail:] *= 0.5
        if which is None:
            powers = backend.zeros(TERMS, len(delta)) + 1.0
            for i in range(1, TERMS):
                powers[i] = powers[i - 1] * delta
            maps = backend.array(self.series[..., 0].reshape(-1, TERMS)) @ powers
            maps = maps.reshape(self.n, self.width, len(delta))
        else:
            series, own = backend.array(self.series), backend.indices(which)
            maps = backend.pick(series[:, :, -1], own)
            for i in reversed(range(TERMS - 1)):
                maps = maps * delta + backend.pick(series[:, :, i], own)
        for tail in tails:
            maps[:, :, tail:] = self._doubled(maps[:, :, tail:], backend)
        return maps

    def _doubled(self, maps: Stack, backend: Backend) -> Stack:
        n, m = self.n, self.m
        product = backend.multiply(maps[:, :n], maps)
        along = shift_matrix(self.degree, 1.0)
        for j in range(self.degree + 1 if m else 0):
            columns = slice(n + j * m, n + (j + 1) * m)
            moved = sum(along[i, j] * maps[:, n + i * m : n + (i + 1) * m] for i in range(j + 1))
            product[:, columns] = (product[:, columns] + moved) * 0.5**j
        return product


def _series(model: LinearModel, degree: int) -> Array:
    """The coefficients (n, width, TERMS) of the powers of δ."""
    n, m = model.B.shape
    found = np.zeros((n, n + (degree + 1) * m, TERMS))
    power = np.eye(n)
    for i in range(TERMS):
        found[:, :n, i] = power / factorial(i)
        for j in range(degree + 1 if i + 1 < TERMS else 0):
            found[:, n + j * m : n + (j + 1) * m, i + 1] = power @ model.B * (factorial(j) / factorial(i + j + 1))
        power = power @ model.A
    return found
