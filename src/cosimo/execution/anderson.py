"""Anderson acceleration of a fixed-point iteration y ← g(y) (type II, least squares over the last residuals).

Every sum runs in a fixed order, so that the compiled kernel, which does the same, agrees to the last bit.
"""

from __future__ import annotations

import math

import numpy as np

from cosimo.core.arrays import Array

RANK = 1e-12
"""A difference of residuals that is this close to the span of newer ones is left out."""


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
            self._steps = [(y - self._last[0], residual - self._last[1]), *self._steps][: self.depth]
        self._last = (y, residual)
        return self._correct(g, residual) if self._steps else g

    def _correct(self, g: Array, rest: Array) -> Array:
        """Orthogonalise the differences, newest first, and solve the triangular system for γ."""
        q: list[Array] = []
        r: list[list[float]] = []
        right: list[float] = []
        kept: list[tuple[Array, Array]] = []
        for step in self._steps:
            column, entries = step[1], []
            size = math.sqrt(_dot(column, column))
            for direction in q:
                entries.append(_dot(direction, column))
                column = column - entries[-1] * direction
            length = math.sqrt(_dot(column, column))
            if length <= RANK * size:
                continue
            column = column / length
            along = _dot(column, rest)
            rest = rest - along * column
            q.append(column)
            r.append([*entries, length])
            right.append(along)
            kept.append(step)
        gamma = [0.0] * len(q)
        for i in reversed(range(len(q))):
            value = right[i]
            for j in range(i + 1, len(q)):
                value = value - r[j][i] * gamma[j]
            gamma[i] = value / r[i][i]
        proposal = g
        for factor, (dy, df) in zip(gamma, kept, strict=True):
            proposal = proposal - factor * (dy + df)
        return proposal


def _dot(a: Array, b: Array) -> float:
    """The scalar product, added up from first to last."""
    return float(np.add.accumulate(a * b)[-1])
