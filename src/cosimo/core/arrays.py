"""Array types, the checks every matrix passes on its way in, and polynomials as coefficient columns."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.core.errors import ConfigurationError, DimensionError

Array = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
BoolArray = npt.NDArray[np.bool_]


def frozen(value: npt.ArrayLike) -> Array:
    """A read-only copy: what a user does to an array later changes no unit, system or result made from it.

    >>> frozen([1, 2]).flags.writeable
    False
    """
    copy = np.array(value, dtype=float)
    copy.setflags(write=False)
    return copy


def matrix(name: str, value: npt.ArrayLike, shape: tuple[int | None, int | None]) -> Array:
    """A read-only copy of `value` as a finite float matrix of `shape` (None: any), scalars and rows promoted.

    Errors name the matrix.

    >>> matrix("B", [1.0, 2.0], (1, None))
    array([[1., 2.]])
    """
    try:
        result = np.atleast_2d(np.array(value, dtype=float))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"matrix {name} is not numeric: {error}.") from None
    if np.shape(value) == (0,) and 0 in (shape[0] or 0, shape[1] or 0):
        # An empty list is the empty matrix of whatever shape is wanted, where an empty one is.
        result = np.zeros((shape[0] or 0, shape[1] or 0))
    if result.shape == (1, shape[0]) and shape[1] == 1:
        result = result.T
    if result.ndim != 2 or any(
        want is not None and want != have for want, have in zip(shape, result.shape, strict=True)
    ):
        wanted = " × ".join("any" if n is None else str(n) for n in shape)
        raise DimensionError(f"matrix {name} is {' × '.join(map(str, result.shape))}; expected {wanted}.")
    require_finite(name, result)
    result.setflags(write=False)
    return result


def output_values(found: Any, count: int) -> Array:
    """What a unit's `read` returned, as the vector of its outputs; a TypeError or ValueError says what is wrong.

    >>> output_values([1, 2], 2)
    array([1., 2.])
    """
    if found is None or isinstance(found, str):
        raise TypeError(f"read() must return {count} numbers, not {found!r}")
    values = np.ascontiguousarray(found, dtype=float)
    if np.shape(found) != (count,):
        raise ValueError(f"read() must return {count} numbers, not an array of shape {np.shape(found)}")
    return values


def loop_is_singular(gain: Array, tolerance: float) -> bool:
    """Whether det(I − gain) = 0 to within `tolerance`: the smallest singular value against the size of the loop gain.

    The condition number would not do: it is 1 for every loop through a single variable.
    """
    smallest = np.linalg.svd(np.eye(len(gain)) - gain, compute_uv=False)[-1]
    return bool(smallest <= tolerance * max(1.0, float(np.linalg.norm(gain))))


def product(M: Array, v: Array) -> Array:
    """M v for a vector v (k,), or a stack of columns (k, m), added up column by column from the first to the last.

    The compiled kernel adds in the same order, without fused operations; that is why both agree to the last bit.
    """
    if M.shape[1] == 0:
        return np.zeros((M.shape[0], *v.shape[1:]))
    columns = M.T if v.ndim == 1 else M.T[:, :, None]
    total = columns[0] * v[0]
    for column, factor in zip(columns[1:], v[1:], strict=True):
        total = total + column * factor
    return np.asarray(total, dtype=np.float64)


def require_finite(name: str, value: Array) -> None:
    """Refuse NaN and infinity by name."""
    if not np.isfinite(value).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
        raise ConfigurationError(f"{name} holds a non-finite number at index {where}; give a finite value.")


# ---- polynomials c_0 + c_1 σ + … + c_q σ^q as coefficient columns: shift, evaluate, interpolate, all as small --------


Time = float | Fraction


def shift_matrix(degree: int, offset: Time, *, keep: int | None = None) -> Array:
    """T with c' = T c the coefficients around `offset`: T_ij = binom(j, i) offset^(j−i); `keep` cuts higher powers off.

    >>> shift_matrix(2, 1.0)
    array([[1., 1., 1.],
           [0., 1., 2.],
           [0., 0., 1.]])
    """
    rows = (degree if keep is None else min(keep, degree)) + 1
    return np.array([[comb(j, i) * float(offset) ** max(j - i, 0) for j in range(degree + 1)] for i in range(rows)])


def value_row(degree: int, at: Time) -> Array:
    """The row that evaluates at `at`: [1, at, at², …]."""
    return np.array([float(at) ** j for j in range(degree + 1)])


def interpolation_matrix(points: Sequence[Time]) -> Array:
    """The matrix that turns values at distinct `points` into coefficients: the inverse of the Vandermonde matrix.

    Computed in exact fractions, so that holds on commensurable sample times have exact coefficients.

    >>> interpolation_matrix([0, -1])
    array([[ 1.,  0.],
           [ 1., -1.]])
    """
    nodes = [Fraction(point) for point in points]
    columns = []
    for i, node in enumerate(nodes):
        # The Lagrange basis polynomial that is 1 at this node and 0 at the others.
        basis = [Fraction(1)]
        for other in nodes[:i] + nodes[i + 1 :]:
            scale = node - other
            raised = [Fraction(0), *basis]
            for power, coefficient in enumerate(basis):
                raised[power] -= other * coefficient
            basis = [coefficient / scale for coefficient in raised]
        columns.append([float(coefficient) for coefficient in basis])
    return np.array(columns).T


def external_fit(degree: int, span: Fraction) -> tuple[list[Fraction], Array]:
    """Where an external signal is sampled over `span`, and the matrix from the samples to the coefficients.

    An external signal is known ahead, so a coupling of degree q interpolates it at q + 1 points of the step.
    """
    points = [span * j / degree for j in range(degree + 1)] if degree else [Fraction(0)]
    return points, interpolation_matrix(points)
