"""What *stable* means: the one rule for Φ that every verb uses, and how neutral motion is treated.

    stable    ⇔    ρ_moving(Φ) ≤ 1 + ROUNDING        (+ IDENTIFIED for units that were identified)

ρ_moving is the largest |eigenvalue| of Φ without the eigenvalues 1 of modes at rest: what integrates and is not fed
back (a meter, a vehicle on a plane) has the eigenvalue 1 at all steps. It neither decays nor grows and says nothing
about the coupling, so it is divided out before the largest eigenvalue is looked for. The null space N of Φ − I is
invariant; with an orthonormal basis Q of its complement, Qᵀ Φ Q has all other eigenvalues. If that again has the
eigenvalue 1 (a chain: velocity and position), the step is repeated. Every step is a decision on singular values, which
rounding moves by rounding, where it would move the eigenvalues of a chain by its square root.

ρ is growth per macro step, and so is the tolerance: what it lets pass grows by less than 0.1 % in ten million steps.
The exact system has no step; there, growth rates count above GROWTH · |λ|max. Where no model is believed, runs decide
(`bounded` in `cosimo.analysis.pilots`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arrays import ROUNDS, Array, ComplexArray, balancing
from cosimo.core.unit import Unit
from cosimo.units.linear import Exact, LinearUnit

ROUNDING = 1e-10
"""How far ρ may exceed 1 by rounding alone: eigenvalues of Φ with some ten rows are computed to about 1e-13, those of
badly scaled ones a thousand times worse."""
LARGEST_STABLE = 1.0 + ROUNDING
"""ρ up to which a master is stable."""
RIGID = 1e-6
"""Modes slower than this share of the fastest one are rigid motion and do not set the horizon."""
GROWTH = 1e-8
"""Growth rates below this share of |λ|max are rounding: a double pole 0 is computed to the root of the precision."""
IDENTIFIED = 1e-7
"""What identification adds to the tolerance: models of linear FMUs are exact to about 1e-9, those of their own solvers
to 1e-8 (tests/analysis/test_linear_fmus.py)."""
AT_REST = 1e-9
"""Singular values of A_c below this share of the largest belong to poles 0; identified models are known no better."""
EXACTLY = 1e-12
"""Singular values of Φ − I up to which an eigenvalue is 1, where the poles 0 of the coupled system are exact."""
NEAR_ONE = 1e-3
"""Radii less than this above 1 may be multiple eigenvalues 1 that rounding drove apart; beyond, they grow."""


def is_stable(radius: Any, *, identified: bool = False) -> Any:
    """Whether a master with this ρ_moving stays bounded; a number or an array. What is not finite is unstable.

    >>> bool(is_stable(1.0)), bool(is_stable(1.001)), bool(is_stable(np.nan))
    (True, False, False)
    """
    return np.asarray(radius) <= LARGEST_STABLE + (IDENTIFIED if identified else 0.0)


def grows(poles: ComplexArray, *, slack: float = 0.0, rest: int = 0) -> bool:
    """Whether a coupled system with these poles (1/s) grows by itself: max Re λ above rounding and `slack` (1/s).

    The `rest` poles nearest to 0 are those of modes at rest, which rounding drives apart where they are multiple.
    """
    largest = float(np.abs(poles).max(initial=0.0))
    moving = poles[np.argsort(np.abs(poles))[rest:]]
    return bool(moving.real.max(initial=-np.inf) > max(GROWTH * largest, slack))


@dataclass(frozen=True)
class Rest:
    """How many poles of the coupled system are 0 (`count`), and the largest singular value that was taken for 0."""

    count: int
    spread: float


def find_rest(A: Array) -> Rest:
    """The poles 0 of ẋ = A x, chains included."""
    balanced = _balance(A[None])
    largest = np.linalg.norm(balanced, 2, axis=(1, 2)) if balanced.size else np.zeros(1)
    return count_rest(balanced[0], AT_REST * float(largest[0]), len(A))


def count_rest(matrix: Array, tolerance: float, most: int) -> Rest:
    """The eigenvalues 0 of a matrix (n, n), chains included, at most so many."""
    ((_, moving, spread),) = _divide_out(matrix[None], np.array([tolerance]), most)
    return Rest(len(matrix) - moving.shape[1], float(spread[0]))


def moving_radius(Phi: Array, rest: Rest, step: float) -> float:
    """The largest |eigenvalue| of Φ (n, n) at the macro step, at most `rest.count` eigenvalues 1 left out."""
    return float(moving_radii(Phi[None], rest, np.array([step]))[0])


def moving_radii(maps: Array, rest: Rest, steps: Array) -> Array:
    """`moving_radius` of many maps (N, n, n) at the macro steps (N,)."""
    if not rest.count or not maps.size:
        return _largest(maps)
    balanced = _balance(maps)
    size = np.maximum(1.0, np.linalg.norm(balanced, 2, axis=(1, 2)))
    # A pole of the coupled system that is 0 only up to its spread σ leads to an eigenvalue 1 up to σ h.
    tolerance = EXACTLY * size + 10 * rest.spread * steps
    radii = np.empty(len(maps))
    for places, left, _ in _divide_out(balanced - np.eye(maps.shape[1]), tolerance, rest.count):
        radii[places] = _largest(left + np.eye(left.shape[1]))
    return radii


def solver_growth(unit: Unit, step: float) -> float:
    """The factor per step by which a unit's own solver makes it grow, inputs held; 1 where the unit grows itself."""
    model = unit.linear()
    if isinstance(unit, LinearUnit) and isinstance(unit.integrator, Exact):
        return 1.0
    if model is None or not len(model.A):
        return 1.0
    rest = find_rest(model.A)
    if grows(np.linalg.eigvals(model.A).astype(complex), rest=rest.count):
        return 1.0
    return max(1.0, moving_radius(unit.discrete(step).A, rest, step))


def _largest(maps: Array) -> Array:
    return np.asarray(np.abs(np.linalg.eigvals(maps)).max(axis=1, initial=0.0))


def _balance(matrices: Array) -> Array:
    """The same eigenvalues of each of (N, n, n) in units in which rows and columns are alike in size: D⁻¹ M D."""
    scale = balancing(matrices)
    balanced: Array = matrices / scale[:, :, None] * scale[:, None, :]
    return balanced


def balanced(A: Any) -> tuple[Any, Array]:
    """The same for one sparse matrix, and the diagonal of D: powers of 2, so that nothing is rounded."""
    import scipy.sparse as sp

    matrix = sp.csr_array(A)
    sizes = abs(matrix - sp.diags_array(matrix.diagonal()))
    scale = np.ones(matrix.shape[0])
    for _ in range(ROUNDS):
        rows, columns = (sizes @ scale) / scale, scale * (sizes.T @ (1 / scale))
        both = (rows > 0) & (columns > 0)
        scale *= np.divide(rows, columns, out=np.ones_like(rows), where=both) ** 0.25
    scale = np.exp2(np.round(np.log2(scale))).astype(float)
    return sp.csr_array(sp.diags_array(1 / scale) @ matrix @ sp.diags_array(scale)), scale


def _divide_out(matrices: Array, tolerance: Array, most: int) -> Iterator[tuple[npt.NDArray[np.intp], Array, Array]]:
    """What is left of (N, n, n) without at most so many eigenvalues 0: places, matrices of one size, and spreads.

    The spread is the largest singular value that counted as 0.
    """
    waiting = [(np.arange(len(matrices)), matrices, np.zeros(len(matrices)), most)]
    while waiting:
        places, matrices, spreads, most = waiting.pop()
        if not most or not matrices.size:
            yield places, matrices, spreads
            continue
        sizes, rows = np.linalg.svd(matrices)[1:]
        null = np.minimum((sizes <= tolerance[places, None]).sum(axis=1), most)
        for count in sorted(set(null.tolist())):  # np.unique loads masked arrays
            which = null == count
            if not count:
                yield places[which], matrices[which], spreads[which]
                continue
            kept = rows[which, : matrices.shape[1] - count]
            left = kept @ matrices[which] @ kept.transpose(0, 2, 1)
            waiting.append((places[which], left, np.maximum(spreads[which], sizes[which, -count]), most - count))
