"""The matrix of every operation: which blocks of z it changes, from which others, and how.

For linear units every operation is linear in a few blocks of z:

    z[targets] ← matrix · z[sources]

Matrices may carry leading axes, one entry per master of a batch; everything downstream works on the last two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array, external_fit, shift_matrix, value_row
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import ONE, Block, Kind, Layout, Master, input_degree, mixer_of, mixer_offsets
from cosimo.core.schedule import Restore, Save
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedRepeat, TimedStep, timeline
from cosimo.core.unit import DiscreteModel, LinearModel
from cosimo.units.linear import discretise_units


@dataclass(frozen=True)
class Update:
    """z[targets] ← matrix · z[sources]; blocks stacked in the order listed."""

    targets: tuple[Block, ...]
    sources: tuple[Block, ...]
    matrix: Array


class Operations:
    """The layout of z and the matrix of every operation, for a system of linear units under a master."""

    def __init__(self, system: System, master: Master, like: Operations | None = None) -> None:
        """`like`: the operations of the same system under a master that differs in couplings only, or in the step only;
        what is the same in both is computed once."""
        self.system, self.master = system, master
        self._cuts: dict[Any, tuple[int, list[Block]]] = {}
        self._stepped: dict[int, Array] = {}
        self._alike_steps: list[tuple[list[TimedStep], Array]] | None = None
        self._couplings: dict[Any, CouplingMatrices] = {}
        if like is not None and like.system is system and self._only_step(like.master):
            self._take_over(like)
            return
        self.models = {name: _require_linear(system, name) for name in system.units}
        self.degrees = {name: input_degree(system, master, name) for name in system.units}
        self.timeline = timeline(system, master)
        self.layout = Layout(self._blocks())
        self._discrete: dict[Fraction, dict[str, DiscreteModel]] = {}
        self._updates: dict[int, Update] = {}
        self._steps: dict[int, Update] = {}
        if like is not None and like.system is system and like.master.step == master.step:
            self._discrete = like._discrete
            pairs = zip(flattened(self.timeline.operations), flattened(like.timeline.operations), strict=False)
            for own, other in ((own, other) for own, other in pairs if self._alike(own, other, like)):
                (self._steps if isinstance(own, TimedStep) else self._updates)[id(own)] = like.update(other)

    def _only_step(self, other: Master) -> bool:
        """Whether another master is this one at another step; mixers are designed for a step."""
        own = self.master
        same = own.schedule == other.schedule and own.coupling == other.coupling and own.couplings == other.couplings
        return same and not own.mixers and not other.mixers

    def _take_over(self, like: Operations) -> None:
        """All that does not depend on the macro step, in which times are counted: only steps of units do."""
        self.models, self.degrees, self.timeline, self.layout = like.models, like.degrees, like.timeline, like.layout
        self._step_groups = like._step_groups
        self._cuts, self._updates = like._cuts, like._updates
        same = like.master.step == self.master.step
        self._discrete, self._steps = (like._discrete, like._steps) if same else ({}, {})

    def cut(self) -> tuple[int, list[Block]]:
        """`best_cut`: masters that differ in the step have the same where their steps read the same blocks."""
        steps = (op for op in flattened(self.timeline.operations) if isinstance(op, TimedStep))
        key = tuple(self.update(op).sources for op in steps)
        if key not in self._cuts:
            self._cuts[key] = best_cut(self)
        return self._cuts[key]

    def _alike(self, own: Any, other: Any, like: Operations) -> bool:
        """Whether an operation has the matrix that it has under the other master: the same unit and moments, the same
        degree of its input and, where that is computed, the same couplings."""
        if own != other or self.degrees[own.unit] != like.degrees[own.unit]:
            return False
        inlets = self.system.inlets[own.unit] if isinstance(own, TimedCouple) else ()
        return own.unit not in {**self.master.mixers, **like.master.mixers} and all(
            self.master.coupling_of(inlet.target) == like.master.coupling_of(inlet.target) for inlet in inlets
        )

    def _blocks(self) -> Iterator[tuple[Block, int]]:
        units = self.system.units
        states = {name: model.A.shape[0] for name, model in self.models.items()}
        inputs = {name: (self.degrees[name] + 1) * len(unit.inputs) for name, unit in units.items()}
        yield from ((Block("x", name), states[name]) for name in units)
        yield from ((Block("y", name), len(unit.outputs)) for name, unit in units.items())
        yield from ((Block("u", name), inputs[name]) for name in units)
        for link in self.system.links:
            yield Block("w", link.number), self.master.coupling_of(link.connection.target).history
        yield from ((Block("m", name), len(mixer.ww)) for name, mixer in self.master.mixers.items())
        for name in dict.fromkeys(op.unit for op in flattened(self.timeline.operations) if isinstance(op, Save)):
            yield Block("X", name), states[name]
            yield Block("U", name), inputs[name]
        yield ONE, 1
        for name, moments in self.timeline.external_times().items():
            for index in self.system.external(name):
                target = self.system.inlets[name][index].target
                degree = self.master.coupling_of(target).degree
                times = [time + point for time, span in moments for point in external_fit(degree, span)[0]]
                yield from ((Block("e", target, time), 1) for time in dict.fromkeys(times))

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        """The matrices of the coupling at the input `target`; a batch has others."""
        key = self.master.coupling_of(target), sampling
        if key not in self._couplings:
            self._couplings[key] = key[0].matrices(sampling)
        return self._couplings[key]

    # The operations.

    def update(self, operation: TimedOperation) -> Update:
        """The matrix of one operation (a `Repeat` has none of its own; its sweeps have), without idle sources."""
        key, known = id(operation), self._steps if isinstance(operation, TimedStep) else self._updates
        if key not in known:
            known[key] = self._without_idle(self._matrix(operation))
        return known[key]

    def _without_idle(self, update: Update) -> Update:
        """Leave out sources that contribute nothing, such as an input without feedthrough when outputs are read."""
        parts, begin = list[tuple[Block, Array]](), 0
        for source in update.sources:
            parts.append((source, update.matrix[..., begin : (begin := begin + self.layout.width(source))]))
        used = [(source, part) for source, part in parts if part.any()] or parts[:1]
        if len(used) == len(parts):
            return update
        return Update(update.targets, tuple(s for s, _ in used), np.concatenate([part for _, part in used], axis=-1))

    def _matrix(self, operation: TimedOperation) -> Update:
        match operation:
            case TimedCouple():
                return self._couple(operation)
            case TimedStep():
                return self._step(operation)
            case TimedRead():
                return self._read(operation)
            case Save():
                return self._copy(operation.unit, ("x", "u"), ("X", "U"))
            case Restore():
                return self._copy(operation.unit, ("X", "U"), ("x", "u"))
            case TimedRepeat():
                raise TypeError("a Repeat is applied sweep by sweep")

    def _couple(self, op: TimedCouple) -> Update:
        """w' = F^ww w + F^ws (gain · y + offset), u = F^uw w'; external inputs from samples; others constant."""
        name, m = op.unit, len(self.system.units[op.unit].inputs)
        if not op.gives:
            return self._sample(op)
        u, mixed = Block("u", name), name in self.master.mixers
        memories = [Block("m", name)] if mixed else [Block("w", link.number) for link in self.system.incoming(name)]
        parts = _Parts(self.layout, (u, *memories))
        if mixed:
            self._mix(op, parts)
        samplings = iter(op.samplings)
        for index, inlet in enumerate(self.system.inlets[name]):
            if inlet.link is not None and mixed:
                continue
            if inlet.link is not None:
                f = self.coupling_matrices(inlet.target, next(samplings))
                w, y = Block("w", inlet.link.number), Block("y", inlet.link.source.unit)
                slots = range(f.ww.shape[-1])
                powers = range(index, index + m * f.uw.shape[-2], m)
                parts.add(w, slots, w, slots, f.ww)
                parts.add(u, powers, w, slots, f.uw @ f.ww)
                connection, place = inlet.link.connection, inlet.link.source.index
                for source, column, factor in ((y, place, connection.gain), (ONE, 0, connection.offset)):
                    if factor != 0:
                        parts.add(w, slots, source, [column], factor * f.ws)
                        parts.add(u, powers, source, [column], factor * (f.uw @ f.ws))
            elif inlet.source is not None:
                points, fit = external_fit(self.master.coupling_of(inlet.target).degree, op.span)
                for j, point in enumerate(points):
                    powers = range(index, index + m * len(points), m)
                    parts.add(u, powers, Block("e", inlet.target, op.time + point), [0], fit[:, j : j + 1])
            else:
                parts.add(u, [index], ONE, [0], np.array([[inlet.start]]))
        return parts.update()

    def _sample(self, op: TimedCouple) -> Update:
        """w' = F^ww w + F^ws (gain · y + offset)."""
        links = self.system.incoming(op.unit)
        parts = _Parts(self.layout, tuple(Block("w", link.number) for link in links))
        for link, sampling in zip(links, op.samplings, strict=True):
            f, w = self.coupling_matrices(link.connection.target, sampling), Block("w", link.number)
            slots = range(f.ww.shape[-1])
            parts.add(w, slots, w, slots, f.ww)
            parts.add(w, slots, Block("y", link.source.unit), [link.source.index], link.connection.gain * f.ws)
            if link.connection.offset != 0:
                parts.add(w, slots, ONE, [0], link.connection.offset * f.ws)
        return parts.update()

    def _mix(self, op: TimedCouple, parts: _Parts) -> None:
        """w' = F^ww w + F^wy y and u = F^uw w' + offset, for the connected inputs."""
        mixer, u, m = mixer_of(self.system, self.master, op.unit), Block("u", op.unit), Block("m", op.unit)
        assert mixer is not None
        links, uw = self.system.incoming(op.unit), mixer.uw_at(op.time)
        count, slots = len(self.system.units[op.unit].inputs), range(len(mixer.ww))
        targets = [power * count + link.target.index for power in range(mixer.degree + 1) for link in links]
        parts.add(m, slots, m, slots, mixer.ww)
        parts.add(u, targets, m, slots, uw @ mixer.ww)
        start = 0
        for other, unit in self.system.units.items():
            places = range(len(unit.outputs))
            part = mixer.wy[:, start : start + len(places)]
            start += len(places)
            if part.any():
                parts.add(m, slots, Block("y", other), places, part)
                parts.add(u, targets, Block("y", other), places, uw @ part)
        for target, offset in zip(targets, mixer_offsets(self.system, op.unit, mixer, op.time).tolist(), strict=True):
            if offset:
                parts.add(u, [target], ONE, [0], np.array([[offset]]))

    def _step(self, op: TimedStep) -> Update:
        """x' = A_d x + Σ_j B_j e_j; e: the input polynomial from the step's start on, as far as the unit takes it."""
        if not self._stepped:
            groups = self.steps_alike()
            self._stepped = {
                id(own): matrix for steps, matrices in groups for own, matrix in zip(steps, matrices, strict=True)
            }
        x, u = Block("x", op.unit), Block("u", op.unit)
        return Update((x,), (x, u), self._stepped[id(op)])

    def steps_alike(self) -> list[tuple[list[TimedStep], Array]]:
        """All steps of units, with their matrices (k, rows, columns): those together whose units have as many states
        and inputs, and whose polynomials begin alike."""
        if self._alike_steps is None:
            self._alike_steps = [(steps, self._step_matrices(steps)) for steps in self._step_groups]
        return self._alike_steps

    @cached_property
    def _step_groups(self) -> list[list[TimedStep]]:
        alike: dict[Any, dict[int, TimedStep]] = {}
        for op in flattened(self.timeline.operations):
            if isinstance(op, TimedStep):
                unit, states = self.system.units[op.unit], self.models[op.unit].A.shape[-1]
                key = states, len(unit.inputs), self.degrees[op.unit], unit.input_degree, op.fraction, op.offset
                alike.setdefault((*key, op.projects), {})[id(op)] = op
        return [list(group.values()) for group in alike.values()]

    def _step_matrices(self, steps: list[TimedStep]) -> Array:
        first, inputs = steps[0], len(self.system.units[steps[0].unit].inputs)
        moved = first.given(self.degrees[first.unit], self.system.units[first.unit].input_degree)
        # The unit measures time by its own step: e_j φ^j.
        given = np.array([float(first.fraction) ** j for j in range(len(moved))])[:, None] * moved
        known = self._discrete.setdefault(first.fraction, {})
        units = {op.unit: self.system.units[op.unit] for op in steps if op.unit not in known}
        known |= discretise_units(units, float(first.fraction) * self.master.step)
        maps = [known[op.unit] for op in steps]
        B = _blockwise(np.array([own.B[..., : len(given) * inputs] for own in maps]), given)
        return np.concatenate([np.array([own.A for own in maps]), B], axis=-1)

    def _read(self, op: TimedRead) -> Update:
        """y = C x + D u(now), with u as the unit was given it."""
        model = self.models[op.unit]
        seen = shift_matrix(self.degrees[op.unit], op.offset, keep=self.system.units[op.unit].input_degree)
        row = value_row(len(seen) - 1, op.elapsed) @ seen
        matrix = np.concatenate([model.C, *(share * model.D for share in row.tolist())], axis=-1)
        return Update((Block("y", op.unit),), (Block("x", op.unit), Block("u", op.unit)), matrix)

    def _copy(self, unit: str, sources: tuple[Kind, Kind], targets: tuple[Kind, Kind]) -> Update:
        source, target = (tuple(Block(kind, unit) for kind in kinds) for kinds in (sources, targets))
        return Update(target, source, np.eye(sum(map(self.layout.width, source))))


def _blockwise(matrix: Array, shares: Array) -> Array:
    """M (S ⊗ I) of matrices (…, n, j m) and shares (j, k): (…, n, k m)."""
    *lead, columns = matrix.shape
    (rows, width), inputs = shares.shape, columns // len(shares)
    found: Array = (shares.T @ matrix.reshape(*lead, rows, inputs)).reshape(*lead, width * inputs)
    return found


class _Parts:
    """Collects pieces of a matrix, each for some rows of one block from some columns of another."""

    def __init__(self, layout: Layout, targets: tuple[Block, ...]) -> None:
        self.layout, self.targets = layout, targets
        self.pieces: list[tuple[Block, Any, Block, Any, Array]] = []

    def add(self, target: Block, rows: Any, source: Block, columns: Any, piece: Array) -> None:
        self.pieces.append((target, rows, source, columns, piece))

    def update(self) -> Update:
        sources = tuple(dict.fromkeys(source for _, _, source, _, _ in self.pieces))
        row, height = self._places(self.targets)
        column, width = self._places(sources)
        lead = np.broadcast_shapes(*(piece.shape[:-2] for *_, piece in self.pieces))
        matrix = np.zeros((*lead, height, width))
        for target, rows, source, columns, piece in self.pieces:
            places = [_shifted(rows, row[target]), _shifted(columns, column[source])]
            if not all(isinstance(part, slice) for part in places):
                whole = (
                    np.arange(part.start, part.stop, part.step) if isinstance(part, slice) else part for part in places
                )
                places = list(np.ix_(*whole))
            matrix[..., places[0], places[1]] += piece
        return Update(self.targets, sources, matrix)

    def _places(self, blocks: Iterable[Block]) -> tuple[dict[Block, int], int]:
        places, start = {}, 0
        for block in blocks:
            places[block] = start
            start += self.layout.width(block)
        return places, start


def _shifted(places: Sequence[int], begin: int) -> Any:
    """The places from `begin` on; evenly spaced ones as a slice, which indexes much faster."""
    if isinstance(places, range):
        return slice(begin + places.start, begin + places.stop, places.step)
    return slice(begin + places[0], begin + places[0] + 1) if len(places) == 1 else np.asarray(places) + begin


def _require_linear(system: System, name: str) -> LinearModel:
    model = system.units[name].linear()
    if model is None:
        raise ConfigurationError(
            f"unit '{name}' is a {type(system.units[name]).__name__}, whose equations are not known; "
            f"only systems of linear units can be analysed."
        )
    return model


def flattened(operations: Iterable[TimedOperation]) -> Iterator[Any]:
    """All operations, those of every sweep that differs in place of a repetition."""
    for operation in operations:
        if isinstance(operation, TimedRepeat):
            for sweep in operation.sweeps:
                yield from flattened(sweep)
        else:
            yield operation


# ---- going through a schedule ---------------------------------------------------------------------------------------

Rows = dict[Block, Any]
"""A stack of columns of z, as row blocks."""


class Walk(ABC):
    """Base class of all that applies a schedule as matrices: operations change row blocks, one after the other; an
    iteration until convergence is its fixed point."""

    def apply(self, operations: Iterable[TimedOperation], rows: Rows) -> None:
        """Apply the operations to `rows`, in place."""
        for operation in operations:
            if not isinstance(operation, TimedRepeat):
                self._update(operation, rows)
            elif isinstance(operation.times, int):
                for number in range(operation.times):
                    self.apply(operation.sweep(number), rows)
            else:
                for sweep in operation.sweeps[:-1]:
                    self.apply(sweep, rows)
                self._settle(operation.sweeps[-1], rows)

    @abstractmethod
    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        """Apply one operation that is no iteration."""

    @abstractmethod
    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        """Put the fixed point of a sweep in the place of `rows`."""


# ---- what z must carry: everything that is read before it is written again ------------------------------------------


def best_cut(operations: Operations) -> tuple[int, list[Block]]:
    """The operation before which the fewest numbers are carried, and the blocks that hold them, in the order of z.

    The macro step is a cycle of operations, and Φ may be taken from any point of it to the same point one step later:
    the products AB and BA have the same non-zero eigenvalues. Where little is carried, Φ is small; and slots that
    nobody reads (outputs of no consequence, unused save slots, memories of a plain hold) are not carried at all, so
    that they never show up as eigenvalues 0 or 1.
    """
    layout = operations.layout
    effects = [_effect(operations, [operation]) for operation in operations.timeline.operations]
    start = _fixed_point(effects)
    needed = set(start)
    width = best = sum(map(layout.width, needed))
    place = 0
    for i in reversed(range(1, len(effects))):
        reads, writes = effects[i]
        width += sum(map(layout.width, reads - needed)) - sum(map(layout.width, (writes & needed) - reads))
        needed -= writes
        needed |= reads
        if width < best:
            best, place = width, i
    # One more walk, from the end of the schedule to the place found.
    _walk_back(effects, needed := start, place)
    return place, [block for block in layout.blocks if block in needed]


def observed_at(operations: Operations, place: int) -> list[Block]:
    """The blocks needed before operation `place` for all that follows and for the outputs at the end of the step."""
    effects = [_effect(operations, [operation]) for operation in operations.timeline.operations]
    needed = _fixed_point(effects) | {block for block in operations.layout.blocks if block.kind == "y"}
    _walk_back(effects, needed, place)
    return [block for block in operations.layout.blocks if block in needed]


def needed_at_start(operations: Operations) -> list[Block]:
    """The blocks that the macro step reads before writing them, at its start, in the order of z."""
    needed = _fixed_point([_effect(operations, [operation]) for operation in operations.timeline.operations])
    return [block for block in operations.layout.blocks if block in needed]


def _fixed_point(effects: Sequence[tuple[set[Block], set[Block]]]) -> set[Block]:
    """What is needed at the start of a macro step when the same is needed at its end."""
    needed: set[Block] = set()
    while True:
        before = set(needed)
        _walk_back(effects, needed, 0)
        if needed == before:
            return needed


def _walk_back(effects: Sequence[tuple[set[Block], set[Block]]], needed: set[Block], place: int) -> None:
    """From what is needed after the last operation to what is needed before operation `place`."""
    for reads, writes in reversed(effects[place:]):
        needed -= writes
        needed |= reads


def _effect(operations: Operations, sequence: Sequence[TimedOperation]) -> tuple[set[Block], set[Block]]:
    """What a sequence reads before writing it, and what it writes."""
    reads: set[Block] = set()
    writes: set[Block] = set()
    for operation in sequence:
        if isinstance(operation, TimedRepeat):
            # The last sweep counts once more where it is made again.
            again = not isinstance(operation.times, int) or operation.times > len(operation.sweeps)
            sweeps = (*operation.sweeps, operation.sweeps[-1]) if again else operation.sweeps
            inner = [_effect(operations, sweep) for sweep in sweeps]
        else:
            update = operations.update(operation)
            inner = [({block for block in update.sources if block.kind != "e"}, set(update.targets))]
        for inner_reads, inner_writes in inner:
            reads |= inner_reads - writes
            writes |= inner_writes
    return reads, writes
