"""How far a signal is from what it should be."""

from __future__ import annotations

import numpy as np

from cosimo.core.arrays import Array


def nrms(signal: Array, reference: Array) -> float:
    """√(mean (y − y_ref)²) / (max y_ref − min y_ref), tamellin2022, Eq. 42.

    0 where both are the same, also at rest; infinite for an error of a reference that does not move, and for a signal
    that left the range of numbers.

    >>> nrms(np.array([0.0, 1.0]), np.array([0.0, 2.0])) == 0.5**1.5
    True
    """
    with np.errstate(over="ignore", invalid="ignore"):
        error = float(np.sqrt(np.mean((signal - reference) ** 2)))
        span = float(np.ptp(reference))
    if error == 0:
        return 0.0
    size = error / span if span > 0 else np.inf
    return size if np.isfinite(size) else np.inf
