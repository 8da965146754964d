"""What an assessment says: of the units, of the coupling, of its limits, and along a run."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cosimo.analysis import Verdict
from cosimo.assessment.accuracy import Predicted
from cosimo.assessment.connections import ConnectionEffect
from cosimo.assessment.limits import Limits
from cosimo.assessment.recommending import Recommendation
from cosimo.core.arrays import ComplexArray
from cosimo.identification import Identified, Means

Level = Literal["high", "fair", "low", "none"]
SURE = 1e-3
"""Errors of identification up to which confidence is high."""


@dataclass(frozen=True)
class UnitReport:
    """How a unit was identified: `fit`, `linear` and `invariant` are relative errors, NaN where it failed.

    `departure` is how far the unit comes apart from its linear model when it is led through the motion that the linear
    picture predicts; `rates` are its poles in 1/s. `error` says why it could not be identified.
    """

    name: str
    means: Means | None
    valid: bool
    fit: float
    linear: float
    invariant: float
    unit_steps: int
    reasons: tuple[str, ...]
    rates: tuple[complex, ...] = ()
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


@dataclass(frozen=True)
class Confidence:
    """How far the numbers can be trusted, and why."""

    level: Level
    reason: str


@dataclass(frozen=True)
class Assessment:
    """A system of any units under a master, assessed before it is run.

    `verdict` is None where a unit could not be identified; `error` where no error can be predicted honestly; `included`
    says what the error takes in. `reasons` names everything that has no number, and why. Where the equations of all
    units are known, `verdict` is that of `cosimo.analysis.analyse`, for all initial states; `error` is always that of
    the given one.
    """

    system: str
    master: str
    step_size: float
    units: tuple[UnitReport, ...]
    confidence: Confidence
    verdict: Verdict | None = None
    error: Predicted | None = None
    included: str = ""
    limits: Limits | None = None
    worst_connection: ConnectionEffect | None = None
    connections: tuple[ConnectionEffect, ...] = ()
    recommendation: Recommendation | None = None
    along: tuple[Moment, ...] = ()
    loops: tuple[tuple[str, ...], ...] = ()
    reasons: tuple[str, ...] = ()
    identification_seconds: float = 0.0
    unit_steps: int = field(default=0)

    def __str__(self) -> str:
        from cosimo.assessment.text import assessment_text

        return assessment_text(self)

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, what can be trusted, and what to do."""
        from cosimo.core.display import card, share

        verdict, title = self.verdict, f"{self.system} under {self.master} at the macro step {self.step_size:g} s"
        mark = ("open", "no verdict")
        if verdict is not None:
            mark = ("good", "stable") if verdict.stable else ("bad", "unstable")
        facts = [("spectral radius", f"{verdict.spectral_radius:.9f}")] if verdict is not None else []
        facts += [("expected error", share(self.error.worst))] if self.error is not None else []
        facts += [("hurts most", self.worst_connection.connection)] if self.worst_connection is not None else []
        facts.append(("confidence", f"{self.confidence.level}: {self.confidence.reason}"))
        facts += [("note", reason) for reason in self.reasons]
        facts += [("recommendation", self.recommendation.text)] if self.recommendation is not None else []
        rows = [
            [
                unit.name,
                unit.means or "not identified",
                f"{unit.fit:.1e}",
                f"{unit.linear:.1e}",
                f"{unit.invariant:.1e}",
            ]
            for unit in self.units
        ]
        return card(title, mark, facts, ("unit", "means", "fit", "linear", "invariant"), rows)


def report(name: str, outcome: Identified | Exception, rates: ComplexArray | None, departure: float) -> UnitReport:
    """What is said of one unit."""
    if not isinstance(outcome, Identified):
        nan = math.nan
        return UnitReport(name, None, False, nan, nan, nan, 0, (str(outcome),), error=str(outcome))
    found = tuple(complex(rate) for rate in rates) if rates is not None else ()
    return UnitReport(
        name,
        outcome.means,
        outcome.valid,
        outcome.fit,
        outcome.linear,
        outcome.invariant,
        outcome.unit_steps,
        outcome.reasons,
        found,
        departure,
    )


def poles_of(found: Identified | Exception) -> ComplexArray | None:
    """The poles of a unit in 1/s."""
    if not isinstance(found, Identified):
        return None
    if found.continuous is not None:
        values: ComplexArray = np.linalg.eigvals(found.continuous.A).astype(complex)
        return values
    poles = found.poles
    logarithms: ComplexArray = np.log(poles[np.abs(poles) > 0]).astype(complex)
    return logarithms / found.step


def confidence(units: tuple[UnitReport, ...], bound: float, windows: int) -> Confidence:
    """From how the units were identified; `bound` is the departure up to which the linear picture holds."""
    failed = [unit.name for unit in units if unit.error]
    if failed:
        return Confidence(
            "none", f"{', '.join(failed)} could not be identified; no verdict on the coupling is possible"
        )
    invalid = [unit.name for unit in units if not unit.valid]
    away = [unit.name for unit in units if unit.departure > bound]
    followed = f"; its motion was followed through {windows} operating points" if windows > 1 else ""
    if away:
        names = ", ".join(away)
        level: Level = "fair" if windows >= 6 else "low"
        return Confidence(level, f"the motion leaves the range where the linear model of {names} holds{followed}")
    if invalid:
        return Confidence("low", f"the linear models of {', '.join(invalid)} do not pass all checks{followed}")
    if all(unit.means == "known" for unit in units):
        return Confidence("high", "the equations of all units are known")
    worst = max((unit.worst for unit in units), default=0.0)
    if worst <= SURE:
        return Confidence("high", f"every unit answers as its model predicts, to {max(worst, 1e-15):.0e} or better")
    return Confidence("fair", f"units answer as their models predict to {worst:.1g}")
