"""Prediction of the other unit from the exchanged values alone (pikulinski2025, Secs. 2.3 and 2.4).

With x_k what a unit receives and u_k what it sends at t_k, applied until t_{k+1}, a model of the other unit

    x_{k+1} = S z_k + b,        z_k = [x_k; u_k]     (windowed dynamic mode decomposition with control)

is learned from the last pairs (z_j, x_{j+1}) while the run goes on, and predicts x̃_{k+1}. Over the step the unit's
input follows the line from x_k to x̃_{k+1}; outputs that feed it through are formed with x̃_{k+1}. Nothing need be known
of the units. The numbers are crunched in the kernel (`src/kernel/dmd*.cpp`), by both ways to run a schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Joint, JointCoupling

if TYPE_CHECKING:
    from cosimo._kernel import Predictor

Pairs = tuple[tuple[str, str], ...]


@checked
@dataclass(frozen=True)
class Dmd(JointCoupling):
    """Data-driven extrapolation. Give one object to all inputs of a unit that belong together, or to a whole master.

    `window`: how many pairs the model is learned from, or "auto": a bank of predictors is scored by one-step errors,
    their weighted mean predicts (the best one is recorded as UNIT.predictor), and jumps are kept out. `method`:
    "robust" (sliding least squares that never downdates, truncated, smallest change from what was known before) or
    "recursive" (the paper's update and downdate, Eqs. 12-19 with Eq. 19 corrected; loses digits with short windows and
    at rest). `centred`: learn deviations from the window's mean. `delays`: earlier samples in z, for units with hidden
    states. `pairs`: which inputs are position and velocity, ("x", "v"), so that x + h v is expected before anything is
    learned; "detect" asks the units, () declares none. Directions of z smaller than `tolerance` of the largest are not
    learned.

    >>> Dmd(window=100)
    Dmd(window=100, method='robust', centred=False, delays=0, pairs='detect', tolerance=1e-09)
    """

    window: int | Literal["auto"] = "auto"
    method: Literal["robust", "recursive"] = "robust"
    centred: bool = False
    delays: int = 0
    pairs: Pairs | Literal["detect"] = "detect"
    tolerance: float = 1e-9

    def __post_init__(self) -> None:
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
            return "dmd"
        return f"dmd:{self.window}" + (":recursive" if self.method == "recursive" else "")

    @classmethod
    def parse(cls, argument: str) -> Dmd:
        """From the text after `dmd:`, as `100` or `100:recursive`."""
        window, _, method = argument.partition(":")
        if window in ("", "auto") and not method:
            return cls()
        if not window.isdigit() or method not in ("", "robust", "recursive"):
            raise ConfigurationError(
                f"coupling 'dmd:{argument}' is not understood; write dmd, dmd:100 or dmd:100:recursive."
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
