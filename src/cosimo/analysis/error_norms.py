"""How wrong the co-simulation will be, from Φ and the exact system alone.

With y_k = S_y Φ^k E x_0 and y(k h) = C_c exp(A_c k h) x_0 the error of a run from the initial state x_0 is a linear
map of x_0, and its norm bounds the error of every run:

    e = max_k ‖S_y Φ^k E − C_c exp(A_c k h)‖₂
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.algebra.spectral_radius import Norm
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System

OPERATOR_UP_TO = 100
"""Number of states up to which the error is computed for all initial states; beyond, for the given one only."""
COLUMNS = 400
"""Columns of a large system that are formed at a time."""
NORM = 1e-2
"""The square root of the relative error to which the square of the norm of a large matrix is computed."""
BLOCK = 256
"""Steps whose norms are computed in one call: calls of NumPy cost more than the arithmetic on small matrices."""
SMALL = 48
"""Numbers that small matrices change at most: of larger ones, products of matrices take longer than the calls."""


@dataclass(frozen=True)
class GlobalError:
    """`absolute`: max over k of ‖y_k − y(k h)‖; `relative`: divided by max ‖y(k h)‖; `outputs`: relative, per output.

    For all initial states of norm 1 (`worst_case`), or for the initial state of the system; `final` is the error at the
    last of the `steps`. Infinite when it overflows.
    """

    absolute: float
    final: float
    relative: float
    outputs: dict[str, float]
    steps: int
    worst_case: bool


def global_error(linear: LinearSystem, *, steps: int) -> GlobalError:
    """The largest error of the outputs over `steps` macro steps; external inputs and offsets are left out."""
    coupled, n = linear.coupled, linear.coupled.A.shape[0]
    worst = n <= OPERATOR_UP_TO
    x: Any = np.eye(n) if worst else np.concatenate([u.initial_state for u in linear.system.units.values()])[:, None]
    z = linear.start_map() @ x
    C, places = coupled.C, linear.layout.indices("y")
    p = C.shape[0]
    error, size = np.zeros(p), np.zeros(p)
    total, scale, final = 0.0, 0.0, 0.0
    seen, true = _courses(_step(linear), z, steps + 1), _courses(_exact_step(linear), x, steps + 1)
    with np.errstate(over="ignore", invalid="ignore"):
        for ours, theirs in zip(seen, true, strict=True):
            exact = C @ theirs if isinstance(C, np.ndarray) else np.stack([C @ now for now in theirs])
            differences = ours[:, places] - exact
            if not np.isfinite(differences).all():
                return GlobalError(np.inf, np.inf, np.inf, dict.fromkeys(linear.system.outputs, np.inf), steps, worst)
            error = np.maximum(error, _row_norms(differences).max(axis=0))
            size = np.maximum(size, _row_norms(exact).max(axis=0))
            norms = np.linalg.norm(differences, 2, axis=(1, 2))
            total, final = max(total, float(norms.max())), float(norms[-1])
            scale = max(scale, float(np.linalg.norm(exact, 2, axis=(1, 2)).max()))
    relative = dict(zip(linear.system.outputs, (error / np.where(size > 0, size, 1.0)).tolist(), strict=True))
    # A system at rest that is not driven here has no size to compare with.
    return GlobalError(total, final, total / scale if scale else np.nan, relative, steps, worst)


def _row_norms(rows: Array) -> Array:
    """2-norms of rows whose squares may overflow."""
    largest = np.abs(rows).max(axis=-1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    norms: Array = scale * np.linalg.norm(rows / scale[..., None], axis=-1)
    return norms


def _courses(step: Array | Callable[[Array], Array], first: Array, count: int) -> Iterator[Array]:
    """What becomes of the columns `first` in 0, 1, … `count` − 1 steps, up to `BLOCK` at a time (k, rows, columns).

    Of a small matrix M by doubling: [S; M^k S] from the first k, and M^BLOCK times a whole block for the next.
    """
    if not isinstance(step, np.ndarray) or len(step) > SMALL:
        advance = partial(np.matmul, step) if isinstance(step, np.ndarray) else step
        for begin in range(0, count, BLOCK):
            block = np.empty((min(BLOCK, count - begin), *first.shape))
            for k in range(len(block)):
                block[k] = first
                first = advance(first)
            yield block
        return
    with np.errstate(over="ignore", invalid="ignore"):
        block, leap = first[None], step
        while len(block) < min(BLOCK, count):
            block, leap = np.concatenate([block, leap @ block]), leap @ leap
        for begin in range(0, count, len(block)):
            yield block[: count - begin]
            block = leap @ block


def _step(linear: LinearSystem) -> Array | Callable[[Array], Array]:
    """One macro step of columns of z, nothing given from outside."""
    if not linear.sparse:
        Phi: Array = linear.one_step.Phi
        return Phi

    def step(z: Array) -> Array:
        return linear.sparse_step.step(np.concatenate([z, np.zeros((len(linear.given), z.shape[1]))]))[: linear.size]

    return step


def _exact_step(linear: LinearSystem) -> Array | Callable[[Array], Array]:
    A, h = linear.coupled.A, linear.master.step
    if isinstance(A, np.ndarray):
        flow: Array = linear.coupled.flow(h)
        return flow
    from scipy.sparse.linalg import expm_multiply

    return partial(expm_multiply, (A * h).tocsc())


def convergence_order(system: System, master: Master, *, horizon: float) -> float:
    """The power of h with which the error at `horizon` vanishes, from the steps h/8 and h/16.

    Measured at the end: the very first rows of an extrapolating master are of lower order, since it has no history yet.
    """
    errors = []
    for divisor in (8, 16):
        finer = master.with_step(master.step / divisor)
        steps = max(1, round(horizon / finer.step))
        error = global_error(LinearSystem(system, finer), steps=steps)
        if not 0 < error.relative < 1:
            return float("nan")  # far from convergence, or exact: there is no order to measure
        errors.append(error.final)
    if min(errors) == 0:
        return float("nan")
    return float(np.log2(errors[0] / errors[1]))


# ---- how far inputs and outputs are apart at a communication point, for the worst initial state ----------------------
#     δ = ‖(S_u − L S_y) Φ^k E‖        (glumac2018, Eq. 59, read as u = L y; E = Φ0^∞ R_v is the initial map)
#
# k and the norm are part of the measure: the paper's values are those of k = 2 and the 2-norm.


def consistency(linear: LinearSystem, *, k: int, norm: Norm) -> float:
    """δ after k macro steps in the induced 1- or 2-norm."""
    if linear.sparse:
        return _large_consistency(linear, k, norm)
    z: Any = linear.start_map()
    for _ in range(k):
        z = linear.one_step.Phi @ z
    defect = linear.defect(z)
    return float(np.linalg.norm(defect, ord=norm)) if defect.size else 0.0


def _large_consistency(linear: LinearSystem, k: int, norm: Norm) -> float:
    """The same without the matrix: its products with vectors, some columns at a time or by Lanczos's method."""
    E, step, rows = linear.start_map(), linear.sparse_step, linear.defect_map()
    given, n = np.zeros(len(linear.given)), E.shape[1]
    back_E, back_rows = E.T.tocsr(), rows.T.tocsr()

    def forth(x: Array) -> Array:
        z = np.concatenate([E @ x, np.zeros((len(given), *x.shape[1:]))])
        for _ in range(k):
            z = step.step(z)
        return np.asarray(rows @ z[: linear.size])

    def back(y: Array) -> Array:
        z = np.concatenate([back_rows @ np.ravel(y), given])
        for _ in range(k):
            z = step.transposed(z)
        return np.asarray(back_E @ z[: linear.size])

    if not rows.shape[0]:
        return 0.0
    if norm == 1 or n <= COLUMNS:
        identity = np.eye(n, min(n, COLUMNS))
        parts = [forth(np.roll(identity, begin, axis=0)[:, : n - begin]) for begin in range(0, n, COLUMNS)]
        return float(max(np.linalg.norm(part, ord=norm) for part in parts))
    from scipy.sparse.linalg import LinearOperator, svds

    start = np.random.default_rng(0).standard_normal(n)
    # The iteration for the largest singular value cannot start from a map that is zero.
    if not forth(start).any():
        return 0.0
    operator = LinearOperator((rows.shape[0], n), matvec=forth, rmatvec=back, dtype=float)
    return float(
        svds(operator, k=1, ncv=min(40, min(operator.shape) - 1), tol=NORM, return_singular_vectors=False, rng=0)[0]
    )


# ---- how far a signal is from what it should be ----------------------------------------------------------------------


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
