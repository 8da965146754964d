"""What is said of single units, and of single moments of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cosimo.analysis.identification import Identified, Means
from cosimo.core.arrays import ComplexArray
from cosimo.core.unit import Unit


@dataclass(frozen=True)
class UnitReport:
    """How a unit was identified: `fit`, `linear` and `invariant` are relative errors, NaN where it failed.

    `departure` is how far the unit comes apart from its linear model when it is led through the motion that the linear
    picture predicts; `poles` are its own, in 1/s. `error` says why it could not be identified.
    """

    name: str
    means: Means | None
    valid: bool
    fit: float
    linear: float
    invariant: float
    unit_steps: int
    reasons: tuple[str, ...]
    poles: tuple[complex, ...] = ()
    departure: float = math.nan
    error: str = ""

    @property
    def worst(self) -> float:
        """The largest of the errors."""
        return max(self.fit, self.linear, self.invariant)


@dataclass(frozen=True)
class Moment:
    """The verdict at one time of a reference run.

    `applies` is False where the linear picture does not apply: a unit answers small pulses of two sizes differently,
    as at a switch or a limit, or could not be identified; `notes` names it. `changes` says what differs from the
    moment before.
    """

    time: float
    stable: bool | None
    spectral_radius: float
    critical_step: float
    applies: bool
    notes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def known_unit(name: str, unit: Unit) -> UnitReport:
    """A unit whose equations are known."""
    model = unit.linear()
    assert model is not None
    poles = tuple(complex(pole) for pole in np.linalg.eigvals(model.A)) if len(model.A) <= 100 else ()
    return UnitReport(name, "known", True, 0.0, 0.0, 0.0, 0, (), poles)


def unit_report(name: str, outcome: Identified | Exception, like: Identified | None, departure: float) -> UnitReport:
    """A unit that was identified, or could not be; its poles are those of `like`, at a step where they show."""
    if not isinstance(outcome, Identified):
        nan = math.nan
        return UnitReport(name, None, False, nan, nan, nan, 0, (str(outcome),), error=str(outcome))
    poles = _poles(like or outcome)
    return UnitReport(
        name,
        outcome.means,
        outcome.valid,
        outcome.fit,
        outcome.linear,
        outcome.invariant,
        outcome.unit_steps,
        outcome.reasons,
        tuple(complex(pole) for pole in poles),
        departure,
    )


def _poles(found: Identified) -> ComplexArray:
    """In 1/s."""
    if found.continuous is not None:
        values: ComplexArray = np.linalg.eigvals(found.continuous.A).astype(complex)
        return values
    poles = found.poles
    logarithms: ComplexArray = np.log(poles[np.abs(poles) > 0]).astype(complex)
    return logarithms / found.step
