"""A program with the numbers of some masters filled in: their macro step, applied to stacks of columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.algebra.walking import Rows, Walk
from cosimo.core.arrays import Array
from cosimo.core.polynomial import shift_matrix
from cosimo.core.signals import Block
from cosimo.core.timing import TimedOperation, TimedStep
from cosimo.tuning.backends import Backend, Stack
from cosimo.tuning.flows import Steps
from cosimo.tuning.program import Program, Varied


@dataclass(frozen=True)
class Applied:
    """z[targets] ← Σ matrix · z[source], matrices by source."""

    targets: tuple[Block, ...]
    parts: tuple[tuple[Block, Stack], ...]


class Bound(Walk):
    """The macro step of N masters on stacks of columns (rows, columns, N). Blocks of zeros are left out of `Rows`."""

    def __init__(self, program: Program, varied: Varied, backend: Backend) -> None:
        self.program, self.backend, self.varied = program, backend, varied
        self.grid = Steps(varied.steps, backend, varied.which)
        self.steps = self.grid.all
        self.gains = {target: backend.array(gain) for target, gain in varied.gains.items()}
        self._applied: dict[int, Applied] = {}
        self._flows: dict[Any, Stack] = {}

    @property
    def count(self) -> int:
        """How many masters."""
        return len(self.varied.steps)

    # The maps.

    @cached_property
    def cycle(self) -> Stack:
        """Φ from the point of the schedule where least is carried, (n, n, N)."""
        program = self.program
        rows = self.identity(program.carried)
        order = program.operations
        self.apply((*order[program.place :], *order[: program.place]), rows)
        return self.full(self.gather(rows, program.carried))

    def macro_step(self, rows: Rows) -> Rows:
        """One macro step of columns of z."""
        rows = dict(rows)
        self.apply(self.program.operations, rows)
        return rows

    def start(self) -> Rows:
        """E, as row blocks."""
        return self._split(self.chosen(self.program.start_maps))

    def observe(self, matrices: Array, rows: Rows) -> Stack:
        """matrix · z for constant matrices (r, size, P)."""
        matrix, layout, found = self.chosen(matrices), self.program.layout, None
        for block, stack in rows.items():
            places = layout[block]
            if block.kind == "e" or not matrices[:, places].any():
                continue
            part = self.backend.multiply(matrix[:, places], stack)
            found = part if found is None else found + part
        return found

    # Applying operations.

    def _update(self, operation: TimedOperation, rows: Rows) -> None:
        applied, found = self._matrices(operation), None
        for source, matrix in applied.parts:
            if source in rows:
                part = self.backend.multiply(matrix, rows[source])
                found = part if found is None else found + part
        start = 0
        for block in applied.targets:
            end = start + self.program.layout.width(block)
            if found is None:
                rows.pop(block, None)  # Nothing but zeros came in.
            else:
                rows[block] = found[start:end]
            start = end

    def _settle(self, sweep: tuple[TimedOperation, ...], rows: Rows) -> None:
        """The fixed point of a sweep B: z_v = (I − B_vv)⁻¹ B_vf z_f, with v what the sweep changes."""
        layout, xp = self.program.layout, self.backend.xp
        blocks = [block for block in layout.blocks if block.kind != "e" and layout.width(block)]
        columns = next(iter(rows.values())).shape[1]
        moved = self.identity(blocks)
        self.apply(sweep, moved)
        B = self.gather(moved, blocks)
        z = self.gather(rows, blocks, columns)
        eye = self.backend.array(np.eye(B.shape[0])[:, :, None])
        change = self.backend.host(xp.amax(xp.abs(B - eye), (1, 2)))
        v, f = (self.backend.indices(np.flatnonzero(which)) for which in (change != 0, change == 0))
        loop = (eye - B)[v][:, v]
        solution = self.backend.solve(loop, self.backend.multiply(B[v][:, f], z[f]))
        limit = self.backend.zeros(z.shape[0], columns, max(solution.shape[2], z.shape[2])) + z
        limit[v] = solution
        start = 0
        for block in blocks:
            rows[block] = limit[start : start + layout.width(block)]
            start += layout.width(block)

    def _matrices(self, operation: TimedOperation) -> Applied:
        key = id(operation)
        if key not in self._applied:
            update = self.program.family.update(operation)
            step = isinstance(operation, TimedStep)
            matrix = self._step(operation) if isinstance(operation, TimedStep) else self._filled(update.matrix)
            parts, start = [], 0
            for source in update.sources:
                end = start + self.program.layout.width(source)
                if 0 not in matrix[:, start:end].shape and (step or _counts(source, update.matrix[..., start:end])):
                    parts.append((source, matrix[:, start:end]))
                start = end
            self._applied[key] = Applied(update.targets, tuple(parts))
        return self._applied[key]

    def _step(self, op: TimedStep) -> Stack:
        """[A_d B K]: the unit's flow, with K the polynomial from the step's start on, in the unit's measure of time."""
        program = self.program
        unit, degree = program.family.system.units[op.unit], program.family.degrees[op.unit]
        flow, m = program.flow(op.unit), len(unit.inputs)
        if (op.unit, op.fraction) not in self._flows:
            self._flows[op.unit, op.fraction] = flow.at(self.grid, float(op.fraction), self.backend)
        maps = self._flows[op.unit, op.fraction]
        moved = shift_matrix(degree, op.offset, keep=unit.input_degree)
        scaled = np.array([float(op.fraction) ** j for j in range(len(moved))])[:, None] * moved
        if m == 0 or (scaled.shape[0] == scaled.shape[1] and (scaled == np.eye(len(scaled))).all()):
            return maps
        K = self.backend.array(np.kron(scaled, np.eye(m))[:, :, None])
        return self.backend.join([maps[:, : flow.n], self.backend.multiply(maps[:, flow.n :], K)], 1)

    def _filled(self, matrix: Array) -> Stack:
        """(P, [gains + 1,] r, s) of the host → (r, s, 1 or N) with every master's system and gains."""
        if matrix.ndim == 3:
            return self.chosen(np.moveaxis(matrix, 0, -1))
        found = self.chosen(np.moveaxis(matrix[:, 0], 0, -1))
        for number, target in enumerate(self.program.gains, 1):
            slope = np.moveaxis(matrix[:, number] - matrix[:, 0], 0, -1)
            if slope.any():
                found = found + self.chosen(slope) * self.gains[target]
        return found

    # Stacks.

    def chosen(self, matrices: Array) -> Stack:
        """Of matrices (r, s, P) of the host, each master's own; one for all stays one."""
        stack = self.backend.array(matrices)
        if matrices.shape[-1] == 1:
            return stack
        return self.backend.pick(stack, self.backend.indices(self.varied.which))

    def full(self, stack: Stack) -> Stack:
        """With a last axis of length N even where all masters have the same."""
        if stack.shape[-1] == self.count:
            return stack
        return self.backend.zeros(*stack.shape[:-1], self.count) + stack

    def identity(self, blocks: Sequence[Block]) -> Rows:
        """The columns of the identity that belong to `blocks`, as row blocks."""
        widths = [self.program.layout.width(block) for block in blocks]
        eye, ends = np.eye(sum(widths))[:, :, None], np.cumsum(widths)
        return {
            block: self.backend.array(eye[end - width : end])
            for block, width, end in zip(blocks, widths, ends, strict=True)
        }

    def gather(self, rows: Rows, blocks: Sequence[Block], columns: int | None = None) -> Stack:
        """Row blocks as one stack, zeros where a block is left out."""
        layout = self.program.layout
        columns = next(iter(rows.values())).shape[1] if columns is None else columns
        parts = [rows[b] if b in rows else self.backend.zeros(layout.width(b), columns, 1) for b in blocks]
        return self.backend.join(parts, 0)

    def _split(self, stack: Stack) -> Rows:
        layout = self.program.layout
        return {block: stack[layout[block]] for block in layout.blocks if block.kind != "e" and layout.width(block)}


def _counts(source: Block, part: Array) -> bool:
    """Whether the part of a matrix changes anything; what is given from outside is no part of Φ."""
    return source.kind != "e" and bool(part.any())
