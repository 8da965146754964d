"""A schedule as a short program on stacks of columns, the masters of a batch going through it together.

Masters that share a schedule differ in the macro step, in gains of `Nepce` and, if wanted, in parameters of the units.
So each operation's matrix is known up to a few numbers per master:

    F  affine in the gains         G  the unit's flow over the step         H, S, R  constant (or one per system)

`Program` works this out once; `cosimo.tuning.binding.Bound` fills in the numbers of some masters and applies the macro
step to row blocks of z, as `LinearSystem` does for one master.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.algebra.batch import require_gains
from cosimo.algebra.liveness import best_cut
from cosimo.algebra.operations import Operations, Update
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.stability import Rest, find_rest
from cosimo.core.arrays import Array
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.signals import Block
from cosimo.core.system import System
from cosimo.core.timing import TimedOperation, TimedRepeat, TimedStep
from cosimo.couplings import nepce_matrices
from cosimo.tuning.flows import Flow


class Family(Operations):
    """The operations of masters that differ in gains and systems.

    Where a matrix depends on gains it is probed: entry 0 of a leading axis has all gains 0, entry g has gain g at 1.
    """

    def __init__(self, system: System, master: Master, gains: tuple[str, ...]) -> None:
        super().__init__(system, master)
        self._probes = {
            target: np.eye(len(gains) + 1)[1 + number][:, None, None] for number, target in enumerate(gains)
        }
        require_gains(system, master, gains)

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        if target in self._probes:
            return nepce_matrices(self._probes[target])
        return super().coupling_matrices(target, sampling)


class Families(Family):
    """The same for P systems that differ in the units' numbers only; matrices get another leading axis."""

    def __init__(self, systems: Sequence[System], master: Master, gains: tuple[str, ...]) -> None:
        super().__init__(systems[0], master, gains)
        self.members = [Family(system, master, gains) for system in systems[1:]]
        for number, member in enumerate(self.members, 1):
            if not _alike(member, self):
                raise ConfigurationError(
                    f"system {number} of the batch has other units, connections or feedthrough than the first; "
                    f"evaluate it in a batch of its own."
                )

    def _matrix(self, operation: TimedOperation) -> Update:
        update = super()._matrix(operation)
        if isinstance(operation, TimedStep):
            return update
        matrices = [update.matrix, *(member._matrix(operation).matrix for member in self.members)]
        return replace(update, matrix=np.stack(matrices))


def _alike(one: Operations, other: Operations) -> bool:
    """Whether z has the same layout, operations happen at the same times, and the same outputs feed the same inputs."""
    ends = [
        [
            (link.source, link.target, bool(link.connection.gain), bool(link.connection.offset))
            for link in o.system.links
        ]
        for o in (one, other)
    ]
    widths = [[o.layout.width(block) for block in o.layout.blocks] for o in (one, other)]
    return (one.layout.blocks, one.timeline) == (other.layout.blocks, other.timeline) and (
        ends[0] == ends[1] and widths[0] == widths[1]
    )


@dataclass(frozen=True)
class Varied:
    """The numbers that differ between N masters: steps (N,), gains by input (N,), which system (N,) or None."""

    steps: Array
    gains: Mapping[str, Array]
    which: Any = None

    def part(self, part: slice) -> Varied:
        """Some of the masters."""
        which = None if self.which is None else self.which[part]
        return Varied(self.steps[part], {target: gain[part] for target, gain in self.gains.items()}, which)


class Program:
    """What the masters of a batch share."""

    def __init__(self, systems: Sequence[System], master: Master, gains: tuple[str, ...] = ()) -> None:
        self.family = Families(systems, master, gains)
        self.systems, self.master, self.gains = tuple(systems), master, gains
        self.operations = self.family.timeline.operations
        self.layout = self.family.layout
        self.linear = [LinearSystem(system, master) for system in systems]
        self.place, self.carried = best_cut(self.family)
        self._flows: dict[str, Flow] = {}

    @cached_property
    def start_maps(self) -> Array:
        """E with z_0 = E x_0, (size, states, P)."""
        return _stacked([_dense(linear.start_map()) for linear in self.linear])

    @cached_property
    def defects(self) -> Array:
        """S_u − L S_y, (inputs, size, P)."""
        return _stacked([_dense(linear.defect(np.eye(linear.size))) for linear in self.linear])

    @cached_property
    def outputs(self) -> Array:
        """S_y, (outputs, size, 1)."""
        return np.eye(self.linear[0].size)[self.layout.indices("y")][:, :, None]

    @cached_property
    def exact_outputs(self) -> Array:
        """C of the coupled system, (outputs, states, P)."""
        return _stacked([_dense(linear.coupled.C) for linear in self.linear])

    @cached_property
    def exact_flow(self) -> Flow:
        """exp(A_c δ) of the coupled system."""
        return Flow.of([_dense(linear.coupled.A) for linear in self.linear])

    @cached_property
    def rest(self) -> tuple[Rest, ...]:
        """The poles 0 of every system."""
        return tuple(find_rest(_dense(linear.coupled.A)) for linear in self.linear)

    def flow(self, unit: str) -> Flow:
        """The map of one step of a unit, for all step sizes."""
        if unit not in self._flows:
            degree = min(self.family.degrees[unit], self.family.system.units[unit].input_degree)
            self._flows[unit] = Flow([system.units[unit] for system in self.systems], degree)
        return self._flows[unit]

    def needed(self) -> list[Block]:
        """What the macro step reads before writing it, at its start."""
        effects = list(self._effects(self.operations))
        needed: set[Block] = set()
        while True:
            before = set(needed)
            for reads, writes in reversed(effects):
                needed = (needed - writes) | reads
            if needed == before:
                return [block for block in self.layout.blocks if block in needed]

    def _effects(self, operations: Iterable[TimedOperation]) -> Iterable[tuple[set[Block], set[Block]]]:
        for operation in operations:
            if isinstance(operation, TimedRepeat):
                # The last sweep twice: what it leaves for itself must be carried too.
                for sweep in (*operation.sweeps, operation.sweeps[-1]):
                    yield from self._effects(sweep)
            else:
                update = self.family.update(operation)
                yield {block for block in update.sources if block.kind != "e"}, set(update.targets)


def _dense(matrix: Any) -> Array:
    dense: Array = matrix.toarray() if hasattr(matrix, "toarray") else np.asarray(matrix)
    return dense


def _stacked(matrices: list[Array]) -> Array:
    return np.ascontiguousarray(np.stack(matrices, axis=-1))
