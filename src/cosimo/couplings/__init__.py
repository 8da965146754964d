"""Couplings: what turns the outputs of other units into the next input, and the words by which they are chosen.

`COUPLINGS` is the one list of these words: the command line, completion, scenario files, `tune` and `compare` read it.
To add a coupling, write its class (the contract is in `cosimo.core.coupling`) and its line in `COUPLINGS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array, interpolation_matrix
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Joint, JointCoupling

if TYPE_CHECKING:
    from cosimo._kernel import Predictor


__all__ = ["COUPLINGS", "Coupling", "CouplingMatrices", "Dmd", "Hold", "Nepce", "Sampling", "parse_coupling"]


MOST_SUBSTEPS = 1000
SUBSTEPS = 4
"""Substeps that are tried: of the error of a line that is held in pieces a sixteenth is left."""


@checked
@dataclass(frozen=True)
class Hold(Coupling):
    """The polynomial of degree `order` through the last `order` + 1 samples, at their true times.

    Order 0 holds the newest sample (glumac2018, Eq. 44), 1, 2 and 3 extrapolate linearly, quadratically and cubically.
    A source that has already made its step delivers a sample from the end of the macro step: the same polynomial then
    interpolates. A unit that does not take so many powers makes `substeps` steps per coupling, and is given in each
    what is nearest to the polynomial: of `Hold(1, substeps=4)` four mean values.

    >>> from fractions import Fraction
    >>> Hold(1).matrices(Sampling((Fraction(0), Fraction(-1)), (0,))).uw
    array([[ 1.,  0.],
           [ 1., -1.]])
    """

    degree: int = 0
    substeps: int = 1
    interpolates = True

    def __init__(self, order: int = 0, *, substeps: int = 1) -> None:
        if type(order) is not int or order not in (0, 1, 2, 3):
            raise ConfigurationError(f"a hold has order 0, 1, 2 or 3, not {order}.")
        if type(substeps) is not int or not 1 <= substeps <= MOST_SUBSTEPS:
            raise ConfigurationError(f"a hold has 1 to {MOST_SUBSTEPS} substeps, not {substeps}.")
        if substeps > 1 and order == 0:
            raise ConfigurationError("a held input is the same in every substep; use Hold(1, substeps=…) or higher.")
        object.__setattr__(self, "degree", order)
        object.__setattr__(self, "substeps", substeps)

    @classmethod
    def parse(cls, order: int, argument: str) -> Hold:
        """From the text after `hold1:`."""
        try:
            return cls(order, substeps=int(argument or 1))
        except ValueError:
            raise ConfigurationError(
                f"coupling 'hold{order}:{argument}' needs the number of substeps, such as 'hold{order}:4'."
            ) from None

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
        return f"hold{self.degree}" + (f":{self.substeps}" if self.substeps > 1 else "")

    def __repr__(self) -> str:
        return f"Hold(order={self.degree}" + (f", substeps={self.substeps})" if self.substeps > 1 else ")")

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


# ---- learned while running -------------------------------------------------------------------------------------------


Pairs = tuple[tuple[str, str], ...]


@checked
@dataclass(frozen=True)
class Dmd(JointCoupling):
    """Data-driven extrapolation of what the other unit sends (pikulinski2025, Secs. 2.3 and 2.4).

    With x_k what a unit receives and u_k what it sends at t_k, applied until t_{k+1}, a model of the other unit

        x_{k+1} = S z_k + b,        z_k = [x_k; u_k]     (windowed dynamic mode decomposition with control)

    is learned from the last pairs (z_j, x_{j+1}) while the run goes on, and predicts x̃_{k+1}. Over the step the unit's
    input follows the line from x_k to x̃_{k+1}; outputs that feed it through are formed with x̃_{k+1}. Nothing need be
    known of the units. The numbers are crunched in the kernel (`src/kernel/dmd*.cpp`), by both ways to run a schedule.
    Give one object to all inputs of a unit that belong together, or to a whole master.

    `window`: how many pairs the model is learned from, or "auto": a bank of predictors is scored by one-step errors,
    their weighted mean predicts (the best one is recorded as UNIT.predictor), and jumps are kept out. `method`:
    "robust" (sliding least squares that never downdates, truncated, smallest change from what was known before) or
    "recursive" (the paper's update and downdate, Eqs. 12-19 with Eq. 19 corrected; loses digits with short windows and
    at rest). `centred`: learn deviations from the window's mean. `delays`: earlier samples in z, for units with hidden
    states. `pairs`: which inputs are position and velocity, ("x", "v"), so that x + h v is expected before anything is
    learned; "detect" asks the units, () declares none. Directions of z smaller than `tolerance` of the largest are not
    learned. `mean`: units that take no slopes are given the mean of the predicted line over their step, instead of its
    beginning; that is of second order also for them, unless their solvers use inputs of the start of a step anyway.
    `watched` (with `mean`; `dmd:adapt`): what the model predicts is used only while it misses less than a third of what
    a hold does, in the last samples and of every signal; before and meanwhile samples are held, or extrapolated by a
    straight line where the unit takes slopes or feeds the input through. A run tells when.

    >>> Dmd(window=100).method, Dmd(window=100).watched
    ('robust', False)
    """

    window: int | Literal["auto"] = "auto"
    method: Literal["robust", "recursive"] = "robust"
    centred: bool = False
    delays: int = 0
    pairs: Pairs | Literal["detect"] = "detect"
    tolerance: float = 1e-9
    mean: bool = False
    watched: bool = False

    def __post_init__(self) -> None:
        if self.watched and not self.mean:
            raise ConfigurationError("a Dmd is watched together with mean=True only; write dmd:adapt.")
        if self.window != "auto" and (not isinstance(self.window, int) or self.window < 1):
            raise ConfigurationError(
                f"the window of a Dmd is a number of pairs, 1 or more, or 'auto', not {self.window!r}."
            )
        if self.method not in ("robust", "recursive"):
            raise UnknownNameError("Dmd method", str(self.method), ("robust", "recursive"))
        if self.window == "auto" and (self.method != "robust" or self.centred or self.delays):
            raise ConfigurationError(
                "with window 'auto' a Dmd chooses method and model itself; give a window to set them."
            )
        if not isinstance(self.delays, int) or not 0 <= self.delays <= 20:
            raise ConfigurationError(
                f"the delays of a Dmd must be a number of samples from 0 to 20, not {self.delays!r}."
            )
        if not 0 < self.tolerance < 1:
            raise ConfigurationError(f"the tolerance of a Dmd lies between 0 and 1, not {self.tolerance}.")
        if self.pairs != "detect":
            for pair in self.pairs:
                if isinstance(pair, str) or len(pair) != 2:
                    raise ConfigurationError(f"a pair of a Dmd is (position, velocity), two inputs, not {pair!r}.")

    def __str__(self) -> str:
        if self.window == "auto":
            return "dmd:adapt" if self.watched else "dmd:mean" if self.mean else "dmd"
        return f"dmd:{self.window}" + (":recursive" if self.method == "recursive" else "")

    @classmethod
    def parse(cls, argument: str) -> Dmd:
        """From the text after `dmd:`, as `adapt`, `mean`, `100` or `100:recursive`."""
        window, _, method = argument.partition(":")
        if argument in ("mean", "adapt"):
            return cls(mean=True, watched=argument == "adapt")
        if window in ("", "auto") and not method:
            return cls()
        if not window.isdigit() or method not in ("", "robust", "recursive"):
            raise ConfigurationError(
                f"coupling 'dmd:{argument}' is not understood; write dmd, dmd:mean, dmd:adapt, dmd:100 or "
                "dmd:100:recursive."
            )
        return cls(window=int(window), method="recursive" if method == "recursive" else "robust")

    def predictor(self, joint: Joint, period: float) -> Predictor:
        from cosimo._kernel import Predictor

        return Predictor(
            len(joint.links),
            len(joint.actions),
            method="auto" if self.window == "auto" else self.method,
            window=1 if self.window == "auto" else self.window,
            centred=self.centred,
            delays=self.delays,
            pairs=list(self._places(joint)),
            step=period,
            tolerance=self.tolerance,
            watched=self.watched,
            lines=joint.lines,
        )

    def _places(self, joint: Joint) -> tuple[tuple[int, int], ...]:
        """Which of the joint's signals are positions and velocities."""
        if self.pairs == "detect":
            return joint.pairs
        names = [link.connection.target.partition(".")[2] for link in joint.links]
        found = []
        for position, velocity in self.pairs:
            # A pair of another joint of the same master is none of ours; half a pair is a mistake.
            present = [name in names for name in (position, velocity)]
            if any(present) and not all(present):
                raise ConfigurationError(
                    f"the pair ({position}, {velocity}) of a Dmd is not complete among the inputs of '{joint.unit}' "
                    f"that come from '{joint.source}': {', '.join(names)}."
                )
            if all(present):
                found.append((names.index(position), names.index(velocity)))
        return tuple(found)


# ---- words -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CouplingWord:
    """How a coupling is written, as `hold1` or `nepce:0.6`, and what it is called.

    `build` makes it from what follows the colon (empty where nothing does). `forms` are what help shows, `example` is
    what `compare` tries (empty: it does not), `title` what people read. `tuned`: `tune` can try it, a gain by numbers
    of its own.
    """

    build: Callable[[str], Coupling]
    forms: tuple[str, ...]
    example: str
    title: str = ""
    tuned: bool = True


COUPLINGS: Mapping[str, CouplingWord] = {
    "hold0": CouplingWord(lambda _: Hold(0), ("hold0",), "hold0"),
    "hold1": CouplingWord(partial(Hold.parse, 1), ("hold1", "hold1:SUBSTEPS"), "hold1", "linear extrapolation"),
    "hold2": CouplingWord(partial(Hold.parse, 2), ("hold2", "hold2:SUBSTEPS"), "hold2", "quadratic extrapolation"),
    # Beyond the newest sample a cubic leads far astray; it is for waveforms, which interpolate.
    "hold3": CouplingWord(partial(Hold.parse, 3), ("hold3", "hold3:SUBSTEPS"), "", "cubic extrapolation", tuned=False),
    "nepce": CouplingWord(Nepce.parse, ("nepce:GAIN",), "nepce:0.5"),
    # It has no matrices before it has run: nothing to tune.
    "dmd": CouplingWord(
        Dmd.parse, ("dmd", "dmd:mean", "dmd:adapt", "dmd:WINDOW"), "dmd", "data-driven extrapolation", tuned=False
    ),
}


def coupling_forms() -> list[str]:
    """All couplings as help shows them: hold0, …, nepce:GAIN, …"""
    return [form for word in COUPLINGS.values() for form in word.forms]


def tuned_couplings() -> list[str]:
    """The words that `tune` can try."""
    return [name for name, word in COUPLINGS.items() if word.tuned]


@checked
def parse_coupling(text: str) -> Coupling:
    """`hold0`, `hold1`, `hold1:4` (substeps), …, `nepce:0.6`, `dmd` (automatic window), or `dmd:100:recursive`.

    >>> parse_coupling("nepce:0.6")
    Nepce(alpha=0.6)
    """
    name, colon, argument = text.strip().partition(":")
    if name not in COUPLINGS or (colon and COUPLINGS[name].forms == (name,)):
        raise UnknownNameError("coupling", text, coupling_forms())
    return COUPLINGS[name].build(argument)
