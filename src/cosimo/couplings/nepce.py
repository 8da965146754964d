"""The nearly energy-preserving coupling element, as an integral controller of the coupling error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError


def nepce_matrices(alpha: Array) -> CouplingMatrices:
    """The matrices of `Nepce` for an array of gains (…, 1, 1), any value."""
    return CouplingMatrices(alpha, 1.0 - alpha, np.ones((1, 1)))


@dataclass(frozen=True)
class Nepce(Coupling):
    """w' = α w + (1 − α) s, u = w', with 0 ≤ α < 1 (glumac2018, Eq. 45 with F^wy = (I − α) L).

    α = 0 is `Hold(0)`; towards 1 the coupling filters more and more. At α = 1 the input would never change.

    >>> Nepce(0.25).matrices(Sampling((), ())).ws
    array([[0.75]])
    """

    alpha: float
    history = 1
    degree = 0
    order = 1

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, int | float) or not 0 <= self.alpha < 1:
            raise ConfigurationError(f"the gain of Nepce must be in [0, 1), not {self.alpha}.")

    def __str__(self) -> str:
        return f"nepce:{self.alpha:g}"

    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        """The same whatever the sample times."""
        return nepce_matrices(np.array([[self.alpha]]))
