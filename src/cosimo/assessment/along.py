"""The verdict along a reference run: where it changes, and where the linear picture does not apply."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum, critical_step
from cosimo.assessment.accuracy import MOST_STEPS
from cosimo.assessment.assessment import Moment
from cosimo.assessment.local import Linearisation, LocalSystem
from cosimo.assessment.operating import during, moments, reference_run
from cosimo.assessment.varying import VaryingAccuracy, Window
from cosimo.core.errors import CosimoError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.identification import Identified
from cosimo.masters import gauss_seidel

FINER = 32
"""How many times finer than the master the reference run steps."""
BENT = 0.01
"""Relative difference between answers to two sizes of a pulse beyond which a unit is not linear at all."""
SLACK = 1e-7


@dataclass(frozen=True, eq=False)
class Followed:
    """What a run showed: moments, the error along it (None where there is none), and what went wrong."""

    moments: tuple[Moment, ...] = ()
    prediction: VaryingAccuracy | None = None
    windows: int = 0
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Journey:
    """Which times of a run to look at: those `at`, and `along` so many of it; from `start` over `horizon` seconds."""

    at: tuple[float, ...]
    along: int | None
    start: float
    horizon: float

    @property
    def wanted(self) -> bool:
        """Whether any are."""
        return bool(self.at) or self.along is not None

    @property
    def stop(self) -> float:
        """How far the run must go."""
        return max([self.start + self.horizon, *self.at])

    def times(self, system: System, run: Result, step: float) -> list[float]:
        """All of them, the start first, as whole macro steps of `step`."""
        chosen = [self.start + round((t - self.start) / step) * step for t in self.at if t >= self.start]
        return sorted({self.start, *(moments(system, run, self.along, step) if self.along else ()), *chosen})


def follow(
    master: Master, linearisation: Linearisation, base: LocalSystem, order: tuple[str, ...], journey: Journey
) -> Followed:
    """Identify the units at the times asked for, in the states of a reference run, and compare the verdicts.

    `base` is the system at the step at which modes are no aliases; the reference is a fine Gauss–Seidel run in `order`.
    """
    if not journey.wanted:
        return Followed()
    system, start = linearisation.system, journey.start
    fine = max(master.step / FINER, (journey.stop - start) / MOST_STEPS)
    try:
        run = reference_run(system, gauss_seidel(system, fine, order=order), start=start, stop=journey.stop)
    except CosimoError as error:
        return Followed(reasons=(f"the reference run with steps of {fine:g} s failed: {error}",))
    found: list[Moment] = []
    windows: list[Window] = []
    for time in journey.times(system, run, master.step):
        here = linearisation.again(during(system, run, time) if time > start else linearisation.situation)
        moment, local = _moment(master, here, time, base.step)
        found.append(replace(moment, changes=_changes(found[-1], moment) if found else ()))
        if local is not None:
            windows.append(Window(time, local))
        linearisation.add_cost(here)
    early = [time for time in journey.at if time < start]
    reasons = tuple(f"t = {time:g} is before the start of the run and left out." for time in early)
    prediction = None
    if windows and windows[0].time == start:
        prediction = VaryingAccuracy(system, windows, run, horizon=journey.horizon)
    return Followed(tuple(found), prediction, len(windows), reasons)


def _moment(master: Master, here: Linearisation, time: float, base_step: float) -> tuple[Moment, LocalSystem | None]:
    """The verdict at one time; the critical step is converted from `base_step`, at which modes are no aliases."""
    notes = []
    for name, outcome in here.outcomes(master.step).items():
        if not isinstance(outcome, Identified):
            notes.append(f"{name}: {outcome}")
        elif outcome.linear > BENT:
            notes.append(
                f"{name}: no linear model applies, small pulses of two sizes differ by {outcome.linear:.0%} (a switch "
                f"or a limit is at this point)"
            )
        elif outcome.fit > BENT:
            notes.append(
                f"{name}: the model misses {outcome.fit:.0%} of an answer that was not used for it (a switch or a "
                f"limit is near)"
            )
    try:
        local = here.at(master.step)
        spectrum = Spectrum(LinearSystem(local.linear, master))
        base = here.at(base_step)
        limit = critical_step(base.linear, master) if base.convertible else None
    except (CosimoError, np.linalg.LinAlgError) as error:
        return Moment(time, None, math.nan, math.nan, False, (*notes, str(error))), None
    stable = spectrum.radius <= 1 + SLACK
    step = limit.step if limit is not None else math.nan
    return Moment(time, stable, spectrum.radius, step, not notes, tuple(notes)), local


def _changes(before: Moment, now: Moment) -> tuple[str, ...]:
    """What a reader should notice between two moments."""
    found = []
    if before.applies and not now.applies:
        found.append("the linear picture no longer applies")
    elif now.applies and not before.applies:
        found.append("the linear picture applies again")
    if before.stable is not None and now.stable is not None and before.stable != now.stable:
        found.append("becomes stable" if now.stable else "becomes UNSTABLE")
    if before.critical_step > 0 and now.critical_step > 0 and math.isfinite(before.critical_step + now.critical_step):
        ratio = now.critical_step / before.critical_step
        if not 2 / 3 <= ratio <= 1.5:
            found.append(f"critical step from {before.critical_step:.3g} to {now.critical_step:.3g} s")
    return tuple(found)
