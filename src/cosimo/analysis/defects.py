"""How far inputs and outputs are apart at a communication point, for the worst initial state.

    δ = ‖(S_u − L S_y) Φ^k E‖        (glumac2018, Eq. 59, read as u = L y; E = Φ0^∞ R_v is the initial map)

k and the norm are part of the measure: the paper's values are those of k = 2 and the 2-norm.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from cosimo.algebra import LinearSystem
from cosimo.algebra.batch import Norm


def consistency(linear: LinearSystem, *, k: int, norm: Norm) -> float:
    """δ after k macro steps in the induced 1- or 2-norm."""
    z: Any = linear.start_map()
    for _ in range(k):
        z = linear.one_step.Phi @ z
    return matrix_norm(linear.defect(z), norm)


def matrix_norm(matrix: Any, norm: Literal[1, 2]) -> float:
    """The induced norm of a dense or sparse matrix."""
    if not sp.issparse(matrix):
        return float(np.linalg.norm(matrix, ord=norm)) if matrix.size else 0.0
    if norm == 1:
        return float(spl.norm(matrix, 1))
    if min(matrix.shape) <= 400:
        return float(np.linalg.norm(matrix.toarray(), ord=2))
    # The iteration for the largest singular value cannot start from a matrix that is zero.
    return float(spl.svds(matrix, k=1, return_singular_vectors=False, rng=0)[0]) if matrix.count_nonzero() else 0.0
