"""What z must carry at each point of the schedule: everything that is read before it is written again.

The macro step is a cycle of operations, and Φ may be taken from any point of it to the same point one step later:
the products AB and BA have the same non-zero eigenvalues. Where little is carried, Φ is small; and slots that nobody
reads (outputs of no consequence, unused save slots, memories of a plain hold) are not carried at all, so that they
never show up as eigenvalues 0 or 1.

Slots may also be carried several times over: every compensated unit remembers the same samples of the same outputs.
Where rows of Φ are equal, their slots are equal after one step, so that every eigenvector with μ ≠ 0 has the form
z = Q y, with Q handing one number to all slots of a group. With R picking one row of each group, R Φ Q has the same
non-zero eigenvalues as Φ: if Φ Q y = μ Q y then R Φ Q y = μ y, and back, as rows of a group are equal. Slots of empty
rows are 0 after one step and belong to no group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cosimo.algebra.operations import Operations
from cosimo.core.signals import Block
from cosimo.core.timing import TimedOperation, TimedRepeat


def best_cut(operations: Operations) -> tuple[int, list[Block]]:
    """The operation before which the fewest numbers are carried, and the blocks that hold them, in the order of z."""
    layout = operations.layout
    effects = [_effect(operations, [operation]) for operation in operations.timeline.operations]
    needed: set[Block] = set()
    while True:
        start = set(needed)
        _walk_back(effects, needed, 0)
        if needed == start:
            break
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
            inner = [_effect(operations, sweep) for sweep in _unrolled(operation)]
        else:
            update = operations.update(operation)
            inner = [({block for block in update.sources if block.kind != "e"}, set(update.targets))]
        for inner_reads, inner_writes in inner:
            reads |= inner_reads - writes
            writes |= inner_writes
    return reads, writes


def _unrolled(repeat: TimedRepeat) -> Iterable[tuple[TimedOperation, ...]]:
    """The listed sweeps, and the last once more when it is made again."""
    last = not isinstance(repeat.times, int) or repeat.times > len(repeat.sweeps)
    return (*repeat.sweeps, repeat.sweeps[-1]) if last else repeat.sweeps


def merge_equal(matrix: sp.csr_array) -> tuple[sp.csr_array, npt.NDArray[np.intp]]:
    """R Φ Q with equal rows merged until none are equal, and for every slot its number there (−1: always 0)."""
    place = np.arange(matrix.shape[0])
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
        Q = sp.csr_array((np.ones(len(kept)), (kept, rows[kept])), shape=(len(rows), len(groups)))
        matrix = sp.csr_array(matrix[first] @ Q)
