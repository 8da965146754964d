"""Polynomial extrapolation (or, where the source has already stepped, interpolation) of the last samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.polynomial import interpolation_matrix


@dataclass(frozen=True)
class Hold(Coupling):
    """The polynomial of degree `order` through the last `order` + 1 samples, at the times they really belong to.

    Order 0 holds the newest sample (glumac2018, Eq. 44), 1 and 2 extrapolate linearly and quadratically. A source that
    has already made its step delivers a sample from the end of the macro step: the same polynomial then interpolates.

    >>> from fractions import Fraction
    >>> Hold(1).matrices(Sampling((Fraction(0), Fraction(-1)), (0,))).uw
    array([[ 1.,  0.],
           [ 1., -1.]])
    """

    degree: int = 0

    def __init__(self, order: int = 0) -> None:
        if type(order) is not int or order not in (0, 1, 2):
            raise ConfigurationError(f"a hold has order 0, 1 or 2, not {order}.")
        object.__setattr__(self, "degree", order)

    @property
    def history(self) -> int:  # type: ignore[override]
        """As many samples as the polynomial has coefficients."""
        return self.degree + 1

    @property
    def order(self) -> int:  # type: ignore[override]
        """The error of the input, and with it the global error, is O(h^(degree + 1))."""
        return self.degree + 1

    def __str__(self) -> str:
        return f"hold{self.degree}"

    def __repr__(self) -> str:
        return f"Hold(order={self.degree})"

    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        """Shift the memory by one and pass the polynomial through what is in it."""
        d, known = self.history, len(sampling.stamps)
        ww, ws, uw = np.zeros((d, d)), np.zeros((d, 1)), np.zeros((d, d))
        ws[0, 0] = 1.0
        for new, old in enumerate(sampling.kept, 1):
            ww[new, old] = 1.0
        uw[:known, :known] = interpolation_matrix(sampling.stamps)
        return CouplingMatrices(ww, ws, uw)
