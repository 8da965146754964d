"""Couplings: what turns the outputs of other units into the next input, and the words by which they are chosen.

`COUPLINGS` is the one list of these words: the command line, completion, scenario files, `tune` and `compare` read it.
To add a coupling, write its class (the contract is in `cosimo.core.coupling`) and its line in `COUPLINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, interpolation_matrix
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.couplings.dmd import Dmd

__all__ = ["COUPLINGS", "Coupling", "CouplingMatrices", "Dmd", "Hold", "Nepce", "Sampling", "parse_coupling"]


@checked
@dataclass(frozen=True)
class Hold(Coupling):
    """The polynomial of degree `order` through the last `order` + 1 samples, at their true times.

    Order 0 holds the newest sample (glumac2018, Eq. 44), 1 and 2 extrapolate linearly and quadratically. A source that
    has already made its step delivers a sample from the end of the macro step: the same polynomial then interpolates.

    >>> from fractions import Fraction
    >>> Hold(1).matrices(Sampling((Fraction(0), Fraction(-1)), (0,))).uw
    array([[ 1.,  0.],
           [ 1., -1.]])
    """

    degree: int = 0
    interpolates = True

    def __init__(self, order: int = 0) -> None:
        if type(order) is not int or order not in (0, 1, 2):
            raise ConfigurationError(f"a hold has order 0, 1 or 2, not {order}.")
        object.__setattr__(self, "degree", order)

    @property
    def history(self) -> int:  # type: ignore[override]
        """As many samples as the polynomial has coefficients."""
        return self.degree + 1

    @property
    def error_order(self) -> int:  # type: ignore[override]
        """The error of the input, and with it the global error, is O(h^(degree + 1))."""
        return self.degree + 1

    @property
    def timed(self) -> bool:  # type: ignore[override]
        """One sample is held whenever it was taken."""
        return self.degree > 0

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


def nepce_matrices(alpha: Array) -> CouplingMatrices:
    """The matrices of `Nepce` for an array of gains (…, 1, 1), any value."""
    return CouplingMatrices(alpha, 1.0 - alpha, np.ones((1, 1)))


@checked
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
    error_order = 1
    timed = False

    def __post_init__(self) -> None:
        if not isinstance(self.alpha, int | float) or not 0 <= self.alpha < 1:
            raise ConfigurationError(f"the gain of Nepce must be in [0, 1), not {self.alpha}.")

    def __str__(self) -> str:
        return f"nepce:{self.alpha:g}"

    @classmethod
    def parse(cls, argument: str) -> Nepce:
        """From the text after `nepce:`."""
        try:
            return cls(float(argument))
        except ValueError:
            raise ConfigurationError(
                f"coupling 'nepce:{argument}' needs its gain as a number, such as 'nepce:0.6'."
            ) from None

    @property
    def word(self) -> str:
        return f"nepce:{float(self.alpha)!r}"

    def matrices(self, sampling: Sampling) -> CouplingMatrices:
        return nepce_matrices(np.array([[self.alpha]]))


# ---- words -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CouplingWord:
    """How a coupling is written, as `hold1` or `nepce:0.6`, and what it is called.

    `build` makes it from what follows the colon (empty where nothing does). `forms` are what help shows, `example` is
    what `compare` tries, `title` is what people read. `tuned`: `tune` can try it, a gain by numbers of its own.
    """

    build: Callable[[str], Coupling]
    forms: tuple[str, ...]
    example: str
    title: str = ""
    tuned: bool = True


COUPLINGS: Mapping[str, CouplingWord] = {
    "hold0": CouplingWord(lambda _: Hold(0), ("hold0",), "hold0"),
    "hold1": CouplingWord(lambda _: Hold(1), ("hold1",), "hold1", "linear extrapolation"),
    "hold2": CouplingWord(lambda _: Hold(2), ("hold2",), "hold2", "quadratic extrapolation"),
    "nepce": CouplingWord(Nepce.parse, ("nepce:GAIN",), "nepce:0.5"),
    # It has no matrices before it has run: nothing to tune.
    "dmd": CouplingWord(Dmd.parse, ("dmd", "dmd:WINDOW"), "dmd", "data-driven extrapolation", tuned=False),
}


def coupling_forms() -> list[str]:
    """All couplings as help shows them: hold0, …, nepce:GAIN, …"""
    return [form for word in COUPLINGS.values() for form in word.forms]


def tuned_couplings() -> list[str]:
    """The words that `tune` can try."""
    return [name for name, word in COUPLINGS.items() if word.tuned]


@checked
def parse_coupling(text: str) -> Coupling:
    """`hold0`, `hold1`, `hold2`, `nepce:0.6`, `dmd` (automatic window), `dmd:100`, or `dmd:100:recursive`.

    >>> parse_coupling("nepce:0.6")
    Nepce(alpha=0.6)
    """
    name, colon, argument = text.strip().partition(":")
    if name not in COUPLINGS or (colon and COUPLINGS[name].forms == (name,)):
        raise UnknownNameError("coupling", text, coupling_forms())
    return COUPLINGS[name].build(argument)
