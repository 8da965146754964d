"""The verdict at single times of a reference run: where it changes, and where the linear picture does not apply."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.analysis.critical import critical_step
from cosimo.analysis.identification import Identified
from cosimo.analysis.local import Linearisation
from cosimo.analysis.model import Model
from cosimo.analysis.operating import during, moments, reference_run
from cosimo.analysis.reports import Moment
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import is_stable
from cosimo.core.errors import CosimoError
from cosimo.core.master import Master
from cosimo.masters import gauss_seidel

FINER = 32
"""How many times finer than the master the reference run steps."""
MOST_STEPS = 500_000
"""Macro steps of the reference run at most."""
BENT = 0.01
"""Relative difference between answers to two sizes of a pulse beyond which a unit is not linear at all."""


def follow(
    model: Model, master: Master, at: Sequence[float], along: int | None
) -> tuple[tuple[Moment, ...], list[str]]:
    """The moments at the times `at` and at `along` times of a reference run, and what went wrong.

    The reference is a fine Gauss–Seidel run; units are identified in its states.
    """
    system, start, linearisation = model.system, model.start, model.linearisation
    stop = max([start + model.horizon, *at])
    fine = max(master.step / FINER, (stop - start) / MOST_STEPS)
    try:
        run = reference_run(system, gauss_seidel(system, fine), start=start, stop=stop)
    except CosimoError as error:
        return (), [f"the reference run with steps of {fine:g} s failed: {error}"]
    chosen = [start + round((t - start) / master.step) * master.step for t in at if t >= start]
    times = sorted({start, *(moments(system, run, along, master.step) if along else ()), *chosen})
    base_step = model.base.local.step if model.base is not None and not model.known else master.step
    found: list[Moment] = []
    for time in times:
        here = linearisation.again(during(system, run, time) if time > start else linearisation.situation)
        moment = _moment(master, here, time, base_step)
        found.append(replace(moment, changes=_changes(found[-1], moment) if found else ()))
        linearisation.add_cost(here)
    early = [f"t = {time:g} is before the start of the run and left out." for time in at if time < start]
    return tuple(found), early


def _moment(master: Master, here: Linearisation, time: float, base_step: float) -> Moment:
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
        return Moment(time, None, math.nan, math.nan, False, (*notes, str(error)))
    stable = bool(is_stable(spectrum.moving_radius, identified=not here.known))
    step = limit.step if limit is not None else math.nan
    return Moment(time, stable, spectrum.radius, step, not notes, tuple(notes))


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
