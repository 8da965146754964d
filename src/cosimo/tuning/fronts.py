"""Pareto fronts: who is dominated, how much a front covers, which points stand for it, where its knee is."""

from __future__ import annotations

import numpy as np

from cosimo.core.arrays import Array, BoolArray

CHUNK = 400


def nondominated(values: Array) -> BoolArray:
    """Which rows (N, m), the smaller the better, no other row dominates; of equal rows the first.

    >>> nondominated(np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 1.0], [1.0, 1.0]]))
    array([ True,  True, False, False])
    """
    order = np.lexsort(values.T[::-1])
    rows = values[order]
    keep: BoolArray = np.asarray(np.isfinite(rows).all(axis=1))
    front = np.zeros((0, values.shape[1]))
    # In this order a row is dominated, if at all, by rows before it.
    for begin in range(0, len(rows), CHUNK):
        part = rows[begin : begin + CHUNK]
        alive = keep[begin : begin + CHUNK].copy()
        if len(front):
            alive &= ~_beaten(front, part)
        index = np.flatnonzero(alive)
        inner = part[index]
        before = np.tri(len(inner), k=-1, dtype=bool)
        beaten = ((inner[None] <= inner[:, None]).all(axis=-1) & before).any(axis=1)
        alive[index[beaten]] = False
        keep[begin : begin + CHUNK] = alive
        front = np.concatenate([front, part[alive]])
    found = np.zeros(len(values), dtype=bool)
    found[order[keep]] = True
    return found


def _beaten(front: Array, rows: Array) -> BoolArray:
    """Which rows some row of the front is at least as good as everywhere."""
    found: BoolArray = np.any(np.all(front[None] <= rows[:, None], axis=-1), axis=1)
    return found


def hypervolume(values: Array, reference: Array) -> float:
    """The volume that rows (N, m) dominate below `reference` (m,); rows beyond it count nothing.

    By slices along the last objective, down to two objectives, where it is a staircase.

    >>> hypervolume(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([2.0, 2.0]))
    3.0
    """
    reference = np.asarray(reference, dtype=float)
    inside = values[(values < reference).all(axis=1)]
    return _volume(inside[nondominated(inside)], reference) if len(inside) else 0.0


def _volume(rows: Array, reference: Array) -> float:
    if len(reference) == 1:
        return float(reference[0] - rows.min())
    if len(reference) == 2:
        rows = rows[np.argsort(rows[:, 0])]
        heights = np.minimum.accumulate(rows[:, 1])
        widths = np.diff(np.append(rows[:, 0], reference[0]))
        return float((widths * (reference[1] - heights)).sum())
    rows = rows[np.argsort(rows[:, -1])]
    depths = np.diff(np.append(rows[:, -1], reference[-1]))
    total, front = 0.0, np.zeros((0, rows.shape[1] - 1))
    for row, depth in zip(rows[:, :-1], depths.tolist(), strict=True):
        if not (front <= row).all(axis=1).any():
            front = np.vstack([front[~(row <= front).all(axis=1)], row])
        total += depth * _volume(front, reference[:-1])
    return total


def normalised(values: Array) -> Array:
    """Each column from 0 (its best) to 1 (its worst); a column without a range is 0."""
    low, high = values.min(axis=0), values.max(axis=0)
    found: Array = (values - low) / np.where(high > low, high - low, 1.0)
    return found


def knee(values: Array) -> int:
    """The row nearest to the ideal, the best of every column, after each column is scaled to [0, 1]."""
    return int(np.linalg.norm(normalised(values), axis=1).argmin())


def thinned(values: Array, count: int) -> list[int]:
    """At most `count` rows that stand for all: the best of each column and the knee, then always the farthest.

    Farthest from those chosen, in the scaled columns; the rows come in the order of the first column.
    """
    scaled = normalised(values)
    chosen = list(dict.fromkeys([*values.argmin(axis=0).tolist(), knee(values)]))[:count]
    distance = np.min([np.linalg.norm(scaled - scaled[i], axis=1) for i in chosen], axis=0)
    while len(chosen) < min(count, len(values)) and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[chosen[-1]], axis=1))
    return sorted(chosen, key=lambda i: values[i].tolist())
