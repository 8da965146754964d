"""Tuning systems whose equations are not known: linear stand-ins for the search, the real units for the verdict.

Candidates differ in the macro step, and a unit's one-step map changes with it. Units are therefore identified once, at
a step from which their maps can be converted to others (`cosimo.assessment.limits.find_base`: the model found there
also holds at half that step), and the search runs on the converted maps. Conversion is right where a unit solves its
equations exactly or with micro steps of its own. Where it is not, every point of the front is identified anew at its
own step before anything is said of it: thousands of candidates cost one identification, thirty points thirty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cosimo.assessment.accuracy import Accuracy, Predicted, Prediction, compare, count_steps
from cosimo.assessment.along import Followed, Journey, follow
from cosimo.assessment.assessment import Confidence, UnitReport, confidence, report
from cosimo.assessment.limits import Base, find_base
from cosimo.assessment.local import Linearisation, LocalSystem
from cosimo.assessment.motion import undivided
from cosimo.assessment.operating import at_start
from cosimo.assessment.replaying import BOUND, departures
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, IdentificationError, NonFiniteError, RunError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.execution import run
from cosimo.masters import jacobi
from cosimo.tuning.predicting import Judge, Measured
from cosimo.tuning.scene import Scene, scene

STEPS = 1000
"""Parts of the horizon that units are identified at unless a step is known."""
WINDOWS = 12
"""Operating points along the run that errors are predicted from where the motion leaves the range of a linear model."""
SLACK = 1e-7
"""How far above 1 a spectral radius may be by the inaccuracy of identification alone."""
GROWN = 10.0
"""How far a search follows what grows by itself, in time constants, where the motion leaves the range of the models."""
INSTANT = 20.0
"""A mode that decays by more than e to this power within the step of identification counts as instantaneous."""
PARTS = (8, 16, 32)
"""Parts of a macro step that the runs have which a master is verified against."""


@dataclass(frozen=True, eq=False)
class StandIn:
    """`system` with linear units in the places of those whose equations are not known.

    `base` is what the search runs on, in the situation `scene`; errors of points follow from `prediction`, over
    `horizon` seconds. `confidence` is how far all of it can be trusted, by what is said of the `units`; `away` tells
    that the motion leaves the range where their models hold.
    """

    system: System
    linearisation: Linearisation = field(repr=False)
    base: Base = field(repr=False)
    scene: Scene = field(repr=False)
    horizon: float
    prediction: Prediction = field(repr=False)
    units: tuple[UnitReport, ...]
    confidence: Confidence
    away: bool
    notes: tuple[str, ...]

    @property
    def linear(self) -> System:
        """What is searched."""
        return self.base.local.linear

    def at(self, step: float) -> System:
        """The linear system for a master with this macro step."""
        return self.linear if self.base.exact else _able(self.linearisation.at(step), self.system).linear


def needs_stand_in(system: System) -> bool:
    """Whether the equations of some unit are not known."""
    return any(unit.linear() is None for unit in system.units.values())


def stand_in(system: System, *, step: float | None, horizon: float | None, start: float) -> StandIn:
    """Identify the units of a system at `step`, or at a shorter one from which their maps can be converted."""
    linearisation = Linearisation(system, at_start(system, start))
    base = _base(linearisation, _first_step(system, step, horizon))
    local = _able(base.local, system)
    situation = scene(
        local.linear,
        horizon,
        start=start,
        slack=SLACK / local.step,
        instant=INSTANT / local.step,
        offsets=local.offsets,
    )
    length = situation.horizon
    apart = departures(system, local, start=start, horizon=length)
    away = [name for name, share in apart.items() if share > BOUND]
    prediction: Prediction = Accuracy(linearisation, base, start=start, horizon=length)
    notes, windows = [], 0
    if away:
        if situation.grows:
            # What grows away from the start soon has nothing to do with it.
            situation = replace(situation, horizon=min(length, GROWN / float(situation.poles.real.max())))
        followed = _along(linearisation, local, Journey((), WINDOWS, start, length))
        windows, prediction = followed.windows, followed.prediction or prediction
        notes += [
            f"The motion leaves the range where the linear model of {', '.join(away)} holds: errors shown follow the "
            f"run through {windows} operating points, stability and robustness are those at its start; verify by "
            f"running.",
            *followed.reasons,
        ]
    elif not base.exact:
        notes.append(
            f"Solvers of units depend on the macro step: the search converts maps from {local.step:.3g} s, and the "
            f"points shown are identified anew at their own steps."
        )
    units = tuple(report(name, one, None, apart.get(name, math.nan)) for name, one in local.units.items())
    trust = confidence(units, BOUND, windows)
    return StandIn(system, linearisation, base, situation, length, prediction, units, trust, bool(away), tuple(notes))


def _along(linearisation: Linearisation, local: LocalSystem, journey: Journey) -> Followed:
    """Errors along a run, whose steps are much shorter than that at which units were identified."""
    system = linearisation.system
    return follow(jacobi(system, local.step), linearisation, local, system.names, journey)


def _first_step(system: System, step: float | None, horizon: float | None) -> float:
    if step is not None:
        return step
    suggested = [getattr(unit, "default_experiment", {}).get("stepSize") for unit in system.units.values()]
    known = [float(h) for h in suggested if h]
    if known:
        return min(known)
    if horizon is not None:
        return horizon / STEPS
    names = ", ".join(name for name, unit in system.units.items() if unit.linear() is None)
    raise ConfigurationError(
        f"the equations of {names} are not known, and trial steps need a length: give a horizon (--stop-time), a step "
        f"to try (--step-size), or Settings(identify_at=…)."
    )


def _base(linearisation: Linearisation, step: float) -> Base:
    """Where the units are identified; without a model for other steps there is nothing to search."""
    try:
        base = find_base(linearisation, step)
    except IdentificationError as error:
        raise ConfigurationError(
            f"{error} Without a model of every unit no master can be chosen before running; compare some by running "
            f"them ('cosimo compare')."
        ) from None
    for name, found in base.local.units.items():
        if found.generator is None:
            raise ConfigurationError(
                f"unit '{name}' as identified at {base.local.step:g} s has no model for other steps "
                f"({'; '.join(found.reasons)}); identify it at another one, with --step-size or "
                f"Settings(identify_at=…)."
            )
    return base


def _able(local: LocalSystem, system: System) -> LocalSystem:
    """What stands in for a unit can restore its state if the unit can."""
    for name, unit in local.linear.units.items():
        unit.can_restore = system.units[name].can_restore
    return local


class StandInJudge(Judge):
    """Errors of masters on the real units: predicted from what was identified, measured against a finer run."""

    def __init__(self, found: StandIn) -> None:
        super().__init__(found.system, found.horizon, found.scene.start)
        self.found = found

    def predicted(self, master: Master) -> float:
        """NaN where nothing can be said: along a motion whose linear pieces do not follow it."""
        with np.errstate(over="ignore", invalid="ignore"):
            error = float(self.found.prediction.of(master).worst)
        return math.nan if self.found.away and not error <= 1 else error

    def measured(self, master: Master) -> Measured:
        steps = count_steps(self.horizon, master.step)
        rows = self._rows(master, master, steps, 1)
        if isinstance(rows, Measured):
            return rows
        exact, own = self._reference(master, steps)
        found: Predicted = compare(self.system, master, rows[0], exact)
        return Measured(found.worst, dict(found.outputs), rows[1], reference_error=own)

    def _rows(self, master: Master, plain: Master, steps: int, parts: int) -> Any:
        """All outputs at the communication points of `master`, run as `plain` with so many parts, and the seconds."""
        stop = self.start + steps * master.step
        try:
            result = run(self.system, plain.with_step(master.step / parts), start=self.start, stop=stop)
        except NonFiniteError as error:
            reached = error.result.time[-1] if error.result is not None and len(error.result) else self.start
            return Measured(np.inf, dict.fromkeys(self.system.outputs, np.inf), 0.0, float(reached))
        places = [result.names.index(name) for name in self.system.outputs]
        return result.values[::parts][: steps + 1, places], float(result.info["stepping_time"])

    def _reference(self, master: Master, steps: int) -> tuple[Array, float]:
        """The same master with parts of its step, and what these runs tend to; how far that still is, relative.

        Where a unit does not bear shorter steps: the solution of the linear stand-in, NaN.
        """
        # A corrected master belongs to one step.
        plain = jacobi(self.system, master.step) if master.mixers else master
        levels: list[Array] = []
        try:
            for parts in PARTS:
                found = self._rows(master, plain, steps, parts)
                if not isinstance(found, Measured):
                    levels.append(found[0])
        except (RunError, ConfigurationError):
            pass
        if len(levels) < len(PARTS):
            local = self.found.base.local
            return undivided(local, step=master.step, start=self.start, steps=steps), math.nan
        return tended(levels)


def tended(levels: Sequence[Array]) -> tuple[Array, float]:
    """What runs (rows, p) with halved steps tend to by the factor their last two changes differ by, and how far the
    last one still is from it, relative to the size of each output."""
    before, after = levels[-2] - levels[-3], levels[-1] - levels[-2]
    size = np.abs(levels[-1]).max(axis=0)
    scale = np.where(size > 0, size, 1.0)
    change, earlier = (float(np.abs(part / scale).max(initial=0.0)) for part in (after, before))
    factor = earlier / change if change > 0 else math.inf
    if not 1.5 <= factor <= 70.0:
        return levels[-1], change
    return levels[-1] + after / (factor - 1), change / (factor - 1)
