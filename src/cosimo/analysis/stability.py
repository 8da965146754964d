"""What *stable* means: the one rule that every verb uses, and how neutral motion is treated.

    stable    ⇔    ρ_moving(Φ) ≤ 1 + ROUNDING        (+ IDENTIFIED for units that were identified)

ρ_moving is the largest |eigenvalue| of Φ without the eigenvalues 1 of modes at rest: what integrates and is not fed
back (a meter, a vehicle on a plane) has the eigenvalue 1 at all steps. It neither decays nor grows and says nothing
about the coupling, so it is divided out before the largest eigenvalue is looked for. The null space N of Φ − I is
invariant; with an orthonormal basis Q of its complement, Qᵀ Φ Q has all other eigenvalues. If that again has the
eigenvalue 1 (a chain: velocity and position), the step is repeated. Every step is a decision on singular values, which
rounding moves by rounding, where it would move the eigenvalues of a chain by its square root.

ρ is growth per macro step, and so is the tolerance: what it lets pass grows by less than 0.1 % in ten million steps.
The exact system has no step; there, growth rates count above GROWTH · |λ|max.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cosimo.core.arrays import Array, ComplexArray

ROUNDING = 1e-10
"""How far ρ may exceed 1 by rounding alone: eigenvalues of Φ with some ten rows are computed to about 1e-13, those of
badly scaled ones a thousand times worse."""
GROWTH = 1e-8
"""Growth rates below this share of |λ|max are rounding: a double pole 0 is computed to the root of the precision."""
IDENTIFIED = 1e-7
"""What identification adds to the tolerance: models of linear FMUs are exact to about 1e-9, those of their own solvers
to 1e-8 (tests/analysis/test_linear_fmus.py)."""
AT_REST = 1e-9
"""Singular values of A_c below this share of the largest belong to poles 0; identified models are known no better."""
EXACTLY = 1e-12
"""Singular values of Φ − I up to which an eigenvalue is 1, where the poles 0 of the coupled system are exact."""
ROUNDS = 12
"""Rounds of balancing."""
NEAR_ONE = 1e-3
"""Radii less than this above 1 may be multiple eigenvalues 1 that rounding drove apart; beyond, they grow."""


def is_stable(radius: Any, *, identified: bool = False) -> Any:
    """Whether a master with this ρ_moving stays bounded; a number or an array. What is not finite is unstable.

    >>> bool(is_stable(1.0)), bool(is_stable(1.001)), bool(is_stable(np.nan))
    (True, False, False)
    """
    return np.asarray(radius) <= 1.0 + ROUNDING + (IDENTIFIED if identified else 0.0)


def grows(poles: ComplexArray, *, slack: float = 0.0) -> bool:
    """Whether a coupled system with these poles (1/s) grows by itself: max Re λ above rounding and `slack` (1/s)."""
    largest = float(np.abs(poles).max(initial=0.0))
    return bool(poles.real.max(initial=-np.inf) > max(GROWTH * largest, slack))


@dataclass(frozen=True)
class Rest:
    """How many poles of the coupled system are 0 (`count`), and the largest singular value that was taken for 0."""

    count: int
    spread: float


def find_rest(A: Array) -> Rest:
    """The poles 0 of ẋ = A x, chains included."""
    balanced = _balance(A)
    largest = float(np.linalg.norm(balanced, 2)) if balanced.size else 0.0
    moving, spread = _divide_out(balanced, AT_REST * largest, len(A))
    return Rest(len(A) - len(moving), spread)


def moving_radius(Phi: Array, rest: Rest, step: float) -> float:
    """The largest |eigenvalue| of Φ (n, n) at the macro step, at most `rest.count` eigenvalues 1 left out."""
    if rest.count:
        balanced = _balance(Phi)
        size = max(1.0, float(np.linalg.norm(balanced, 2)))
        # A pole of the coupled system that is 0 only up to its spread σ leads to an eigenvalue 1 up to σ h.
        moved = balanced - np.eye(len(Phi))
        Phi = _divide_out(moved, EXACTLY * size + 10 * rest.spread * step, rest.count)[0]
        Phi = Phi + np.eye(len(Phi))
    return float(np.abs(np.linalg.eigvals(Phi)).max(initial=0.0))


def _balance(matrix: Array) -> Array:
    """The same eigenvalues in units of measure in which rows and columns are alike in size: D⁻¹ M D.

    A few rounds only: what feeds others and is not fed would be scaled for ever.
    """
    balanced = matrix.copy()
    for _ in range(ROUNDS):
        sizes = np.abs(balanced)
        np.fill_diagonal(sizes, 0.0)
        rows, columns = sizes.sum(axis=1), sizes.sum(axis=0)
        both = (rows > 0) & (columns > 0)
        # The fourth root, as rows and columns change at once.
        scale = np.divide(rows, columns, out=np.ones(len(rows)), where=both) ** 0.25
        balanced = balanced / scale[:, None] * scale
    return balanced


def _divide_out(matrix: Array, tolerance: float, most: int) -> tuple[Array, float]:
    """What is left without at most so many eigenvalues 0, and the largest singular value that counted as 0."""
    spread = 0.0
    while most > 0 and len(matrix):
        sizes, rows = np.linalg.svd(matrix)[1:]
        null = min(int((sizes <= tolerance).sum()), most)
        if not null:
            break
        spread, most = max(spread, float(sizes[-null])), most - null
        kept = rows[: len(matrix) - null]
        matrix = kept @ matrix @ kept.T
    return matrix, spread
