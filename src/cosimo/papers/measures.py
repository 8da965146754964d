"""How far one trajectory is from another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, DimensionError


def nmse(reference: npt.ArrayLike, found: npt.ArrayLike) -> float:
    """The normalised squared error of pikulinski2025, Eq. 21, of trajectories (l samples, s coordinates):

        (1 / s) Σ_i Σ_j ε_ij² / σ_i²,       ε = found − reference,   σ_i the standard deviation of reference i

    It *sums* over the samples j, so that it grows with the length of the run.

    >>> nmse([-1.0, 1.0, -1.0, 1.0], [-1.0, 1.0, -1.0, 2.0])
    1.0
    """
    truth, values = _columns(reference), _columns(found)
    if truth.shape != values.shape:
        raise DimensionError(f"trajectories of shapes {truth.shape} and {values.shape} cannot be compared; align them.")
    spread = truth.var(axis=0)
    if not (spread > 0).all():
        still = int(np.argmin(spread > 0))
        raise ConfigurationError(f"coordinate {still} of the reference never moves (or is not a number): no NMSE.")
    return float((((values - truth) ** 2).sum(axis=0) / spread).mean())


def relative_error(reference: npt.ArrayLike, found: npt.ArrayLike) -> Array:
    """|found − reference| / |reference| sample by sample, as the papers measure errors of energy."""
    truth, values = np.asarray(reference, dtype=float), np.asarray(found, dtype=float)
    if truth.shape != values.shape:
        raise DimensionError(f"trajectories of shapes {truth.shape} and {values.shape} cannot be compared; align them.")
    if not np.abs(truth).min(initial=np.inf) > 0:
        raise ConfigurationError(
            "the reference is zero (or not a number) somewhere: there is no relative error; use the absolute one."
        )
    error: Array = np.abs(values - truth) / np.abs(truth)
    return error


def _columns(values: npt.ArrayLike) -> Array:
    array = np.asarray(values, dtype=float)
    if array.ndim not in (1, 2) or not array.size:
        raise DimensionError(f"a trajectory has samples in rows and coordinates in columns, not shape {array.shape}.")
    return array[:, None] if array.ndim == 1 else array
