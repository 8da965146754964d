"""Fewer points of a long signal that draw the same picture: smallest and largest of every bucket stay."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError

Places = npt.NDArray[np.intp]


def decimate(values: Array, buckets: int) -> Places:
    """The places (increasing) of the points of `values` (K,) that are kept.

    Rows are divided into `buckets` runs of nearly equal length. Of each run its smallest and its largest value are
    kept, and, where it has values that are not finite, the first of them, so that a gap stays a gap. The first and the
    last point are always kept. Signals of at most 2 · buckets points are kept whole.

    >>> decimate(np.array([0.0, 1.0, 5.0, 2.0, -3.0, 0.0, 1.0, 0.5]), 2).tolist()
    [0, 2, 4, 6, 7]
    """
    if buckets < 1:
        raise ConfigurationError(f"a signal is divided into {buckets} buckets; give a whole number of 1 or more.")
    count = len(values)
    if count <= 2 * buckets:
        return np.arange(count, dtype=np.intp)
    finite = np.isfinite(values)
    edges = np.linspace(0, count, buckets + 1).astype(np.intp)
    # All buckets as rows of one table; the shorter ones repeat their last value.
    width = int(np.diff(edges).max())
    table = np.minimum(edges[:-1, None] + np.arange(width), edges[1:, None] - 1)
    lowest, highest = np.where(finite, values, np.inf)[table], np.where(finite, values, -np.inf)[table]
    rows = np.arange(buckets)
    kept = [table[rows, lowest.argmin(axis=1)], table[rows, highest.argmax(axis=1)]]
    if not finite.all():
        broken = ~finite[table]
        some = broken.any(axis=1)
        kept.append(table[some, broken[some].argmax(axis=1)])
    found: Places = np.unique(np.concatenate([*kept, np.array([0, count - 1])]))
    return found
