"""Anderson acceleration of a fixed-point iteration y ← g(y) (type II, least squares over the last residuals)."""

from __future__ import annotations

import numpy as np

from cosimo.core.arrays import Array


class Anderson:
    """Remembers up to `depth` differences and proposes the next argument.

    With residuals f_k = g(y_k) − y_k it minimises |f_k − ΔF γ| and returns g(y_k) − (ΔY + ΔF) γ. For an affine g of
    dimension n and depth ≥ n it is exact after n + 1 evaluations, also where plain substitution diverges.
    """

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self._last: tuple[Array, Array] | None = None
        self._steps: list[tuple[Array, Array]] = []

    def propose(self, y: Array, g: Array) -> Array:
        """The next argument after g = g(y)."""
        residual = g - y
        if self._last is not None and self.depth:
            self._steps = [*self._steps, (y - self._last[0], residual - self._last[1])][-self.depth :]
        self._last = (y, residual)
        if not self._steps:
            return g
        dy, df = (np.column_stack(columns) for columns in zip(*self._steps, strict=True))
        scale = np.linalg.norm(df, axis=0)
        scale[scale == 0] = 1.0
        gamma = np.linalg.lstsq(df / scale, residual, rcond=1e-14)[0] / scale
        proposal: Array = g - (dy + df) @ gamma
        return proposal
