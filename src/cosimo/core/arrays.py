"""Array types, the checks every matrix passes on its way in, polynomials as coefficient columns, pairs by cost."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb, factorial
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
    terms = np.multiply(M.T if v.ndim == 1 else M.T[:, :, None], v[:, None], order="C")
    total: Array = np.add.accumulate(terms, axis=0)[-1]  # one after the other, which a sum does not promise
    return total


def require_finite(name: str, value: Array) -> None:
    """Refuse NaN and infinity by name."""
    if not np.isfinite(value).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
        raise ConfigurationError(f"{name} holds a non-finite number at index {where}; give a finite value.")


# ---- what SciPy has as well: loading that takes longer than all that is computed for a small system ------------------


PADE = [factorial(26 - k) * comb(13, k) / factorial(26) for k in range(14)]  # the first is 1: integrators stay exact
THETA, LEADING = 4.25, 1 / (comb(26, 13) * factorial(27))
"""The size up to which the Padé approximant of order 13 (its coefficients: PADE) gives the exponential to rounding, and
the first coefficient of its backward error (Al-Mohy, Higham 2009, SIAM J. Matrix Anal. Appl. 31, Eqs. 3.1 and 5.1)."""
ROUNDS = 12
"""Rounds of balancing: what feeds others and is not fed would be scaled for ever."""


def exponential(matrices: Array) -> Array:
    """e^M of each of the matrices (…, n, n), by scaling and squaring (Al-Mohy, Higham 2009, Algorithm 5.1).

    How far M is scaled down follows from the sizes of its powers, not from its own: a stiffness of 10⁹ whose square is
    0 costs no accuracy.

    >>> exponential(np.array([[0.0, 0.1], [0.0, 0.0]])).tolist()
    [[1.0, 0.1], [0.0, 1.0]]
    """
    if not matrices.size:
        return matrices.copy()
    M = matrices.reshape(-1, *matrices.shape[-2:])
    M2 = M @ M
    M4, one = M2 @ M2, np.eye(M.shape[-1])
    M6 = M4 @ M2
    size = _size(M)
    if size.max() > THETA:
        d4, d6, d8, d10 = (_size(power) ** (1 / k) for k, power in ((4, M4), (6, M6), (8, M4 @ M4), (10, M4 @ M6)))
        size = np.minimum(size, np.minimum(np.maximum(d4, d6), np.maximum(d8, d10)))
    halvings = np.ceil(np.log2(np.maximum(size / THETA, 1.0)))
    halvings += _more_halvings(M * 0.5 ** halvings[:, None, None])
    if halvings.any():
        scale = 0.5 ** halvings[:, None, None]
        M, M2, M4, M6 = M * scale, M2 * scale**2, M4 * scale**4, M6 * scale**6
    b = PADE
    odd = M @ (M6 @ (b[13] * M6 + b[11] * M4 + b[9] * M2) + b[7] * M6 + b[5] * M4 + b[3] * M2 + b[1] * one)
    even = M6 @ (b[12] * M6 + b[10] * M4 + b[8] * M2) + b[6] * M6 + b[4] * M4 + b[2] * M2 + b[0] * one
    found = np.asarray(np.linalg.solve(even - odd, even + odd), dtype=np.float64)
    for done in range(int(halvings.max())):
        left = halvings > done
        found[left] = found[left] @ found[left]
    return found.reshape(matrices.shape)


def _size(matrices: Array) -> Array:
    """The 1-norm of each of (N, n, n)."""
    largest: Array = np.abs(matrices).sum(axis=-2).max(axis=-1)
    return largest


def _more_halvings(M: Array) -> Array:
    """By how many powers of two more (N, n, n) must be scaled, by a bound of the backward error from |M|²⁷."""
    absolute, sums, own = np.abs(M), np.ones((len(M), 1, M.shape[-1])), _size(M)
    if own.max() <= THETA:
        return np.zeros(len(M))
    for _ in range(27):
        sums = sums @ absolute
    error = LEADING * sums.max(axis=(1, 2)) / np.where(own > 0, own, 1.0) / np.finfo(float).eps * 2
    return np.asarray(np.maximum(np.ceil(np.log2(np.maximum(error, 1e-300)) / 26), 0.0))


NODES, WEIGHTS = np.polynomial.legendre.leggauss(7)
NEAR_ONE, MOST_ROOTS, BACK, FORTH = 0.25, 40, 1e-13, 1e-10
"""How near to I a root must be for seven nodes to give its logarithm to rounding, how often roots are taken, and how
far the exponential of the logarithm may be from the matrix, relative, and its product with the inverse one from I."""


def logarithm(matrix: Array) -> Array | None:
    """The real log of a matrix (n, n) by square roots and a Padé approximant; None where rounding spoils it.

    Roots are taken by the product form of the iteration of Denman and Beavers, and the approximant by its partial
    fractions, log(I + X) = Σ_j w_j X (I + x_j X)⁻¹ with the nodes and weights of Gauss and Legendre on [0, 1] (Cheng,
    Higham, Kenney, Laub 2001, SIAM J. Matrix Anal. Appl. 22, Eqs. 3.6 and 4.4).

    >>> logarithm(np.array([[1.0, 0.1], [0.0, 1.0]])).round(15).tolist()
    [[0.0, 0.1], [0.0, 0.0]]
    """
    root, one, halvings = matrix, np.eye(len(matrix)), 0
    with np.errstate(all="ignore"):
        try:
            while not np.abs(root - one).sum(axis=0).max(initial=0.0) <= NEAR_ONE:
                halvings += 1
                if halvings > MOST_ROOTS:
                    return None
                M, before = root, np.inf
                for _ in range(MOST_ROOTS):
                    inverse = np.linalg.inv(M)
                    root, M = root @ (one + inverse) / 2, (one + (M + inverse) / 2) / 2
                    left = np.abs(M - one).max()
                    if left < 1e-12 and not left < before / 2:
                        break
                    before = left
            X = root - one
            terms = (w / 2 * np.linalg.solve(one + (1 + x) / 2 * X, X) for x, w in zip(NODES, WEIGHTS, strict=True))
            found = np.asarray(sum(terms, np.zeros_like(X)) * 2.0**halvings)
        except np.linalg.LinAlgError:
            return None
        back = np.abs(exponential(found) - matrix).max(initial=0.0) <= BACK * np.abs(matrix).max(initial=1.0)
        # What decays fast hardly shows in the exponential of the logarithm, but in that of its negative.
        forth = np.abs(exponential(-found) @ matrix - one).max(initial=0.0) <= FORTH
    return found if back and forth else None


def block_diagonal(blocks: Sequence[Array]) -> Array:
    """The matrix with these blocks on its diagonal; blocks may have no rows or no columns."""
    rows, columns = (np.cumsum([0, *(block.shape[axis] for block in blocks)]) for axis in (0, 1))
    whole = np.zeros((rows[-1], columns[-1]))
    for block, row, column in zip(blocks, rows[:-1], columns[:-1], strict=True):
        whole[row : row + block.shape[0], column : column + block.shape[1]] = block
    return whole


def balancing(matrices: Array) -> Array:
    """Units of measure d (N, n) in which rows and columns of each of (N, n, n), M_ij d_j / d_i, are alike in size."""
    sizes, diagonal = np.abs(matrices), np.arange(matrices.shape[-1])
    sizes[:, diagonal, diagonal] = 0.0
    total = np.ones(sizes.shape[:2])
    for _ in range(ROUNDS):
        rows, columns = sizes.sum(axis=2), sizes.sum(axis=1)
        both = (rows > 0) & (columns > 0)
        # The fourth root, as rows and columns change at once.
        scale = np.divide(rows, columns, out=np.ones_like(rows), where=both) ** 0.25
        sizes = sizes / scale[:, :, None] * scale[:, None, :]
        total *= scale
    return total


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


def projection_matrix(degree: int, offset: Time, length: Time, keep: int) -> Array:
    """As `shift_matrix`, with the best approximation of degree `keep` over the next `length`, in the mean square.

    With G_ij = length^(i+j+1) / (i+j+1), the products of the powers over the interval, the approximation p̂ of p has
    Ĝ p̂ = G p. What is left out has no mean, no first moment, … up to `keep`: over a step it moves the state by
    O(length^(keep + 2)) less than what is cut off does.

    >>> projection_matrix(1, 0.0, 0.5, 0)
    array([[1.  , 0.25]])
    """
    shifted = shift_matrix(degree, offset)
    if keep >= degree:
        return shifted
    powers = np.arange(degree + 1)
    exponents = powers[: keep + 1, None] + powers + 1.0
    G = 1.0 / exponents  # over [0, 1]; the length scales the coefficients
    scale = float(length) ** powers
    found: Array = np.linalg.solve(G[:, : keep + 1], G * scale) / scale[: keep + 1, None]
    return found @ shifted


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


def match(cost: Array) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Rows and columns of the pairs, one to one, whose costs have the smallest sum; a ValueError where one is NaN."""
    nearest = cost.argmin(axis=1) if cost.size else np.zeros(len(cost), dtype=np.intp)
    if len(set(nearest.tolist())) == len(cost) and not np.isnan(cost).any():  # each at its own best
        return np.arange(len(cost)), nearest
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(cost)
    return rows, columns
