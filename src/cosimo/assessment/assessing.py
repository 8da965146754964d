"""Assessing a system of any units under a master: identify, couple the linear models, and say what follows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.analysis import GlobalError, Spectrum, Verdict, analyse, consistency, sweep_factor
from cosimo.assessment.accuracy import Accuracy, Predicted, Prediction
from cosimo.assessment.along import Journey, follow
from cosimo.assessment.assessment import Assessment, UnitReport, confidence, poles_of, report
from cosimo.assessment.connections import effects, worst_connection
from cosimo.assessment.limits import Base, Builder, Limits, critical_steps, find_base
from cosimo.assessment.local import Linearisation, LocalSystem
from cosimo.assessment.operating import Situation, at_start
from cosimo.assessment.recommending import Recommendation, recommend
from cosimo.assessment.replaying import BOUND, departures
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.system import System
from cosimo.identification import Identified, Means

SLACK = 1e-7
"""How far above 1 a spectral radius may be by the inaccuracy of identification alone."""
FEW = 60
"""States up to which systems whose equations are known are assessed beyond their verdict."""
LONGEST = 10_000
"""Macro steps of the horizon that is taken where none is given."""


def assess(
    system: System,
    master: Master,
    *,
    at: Sequence[float] = (),
    along: int | None = None,
    horizon: float | None = None,
    start: float = 0.0,
    means: Means | None = None,
) -> Assessment:
    """Assess `system` under `master` from `start` on, over `horizon` seconds.

    Units that are not linear by themselves are identified at the start of the run, with consistent inputs. `at` asks
    for the verdict at these times as well, `along` at so many times of a reference run. `means` prescribes how to
    identify (see `cosimo.identification.identify`) where a unit offers it. Where all units are linear by themselves the
    verdict is that of `cosimo.analysis.analyse`; of many states it is all that is said.

    >>> from cosimo import masters, problems
    >>> system = problems.quarter_truck()
    >>> found = assess(system, masters.jacobi(system, 0.05), horizon=3.0)
    >>> found.verdict.stable, found.recommendation.master.name
    (False, 'gauss-seidel(wheel,chassis)')
    """
    _check(at, along, horizon)
    known: Verdict | None = None
    if all(unit.linear() is not None for unit in system.units.values()):
        known = analyse(system, master, horizon=horizon)
        if sum(len(unit.initial_state) for unit in system.units.values()) > FEW:
            return _verdict_only(system, master, known)
        horizon = known.horizon
    situation, first = _beginning(system, start)
    linearisation = Linearisation(system, situation, means=means)
    outcomes = linearisation.outcomes(master.step)
    failed = [name for name, outcome in outcomes.items() if not isinstance(outcome, Identified)]
    try:
        if failed:
            return _partial(system, master, linearisation, first)
        with np.errstate(over="ignore", invalid="ignore"):
            return _whole(_Task(system, master, linearisation, start, horizon, first, known), at, along)
    except (CosimoError, np.linalg.LinAlgError, ArithmeticError) as error:
        return _partial(system, master, linearisation, (*first, f"the coupled system cannot be analysed: {error}"))


def _check(at: Sequence[float], along: int | None, horizon: float | None) -> None:
    if horizon is not None and not (math.isfinite(horizon) and horizon > 0):
        raise ConfigurationError(f"the horizon of an assessment must be a positive number of seconds, not {horizon}.")
    if along is not None and along < 2:
        raise ConfigurationError(f"a run is followed at two times or more, not {along}.")
    for time in at:
        if not math.isfinite(time):
            raise ConfigurationError(f"an operating point needs a finite time, not {time}.")


def _beginning(system: System, start: float) -> tuple[Situation, tuple[str, ...]]:
    """Consistent inputs; where the units do not get so far together, each with its own start values."""
    try:
        return at_start(system, start), ()
    except CosimoError as error:
        inputs = {name: {v: float(u.start.get(v, 0.0)) for v in u.inputs} for name, u in system.units.items()}
        outputs = {name: np.zeros(len(unit.outputs)) for name, unit in system.units.items()}
        return Situation(start, start, inputs, outputs), (f"the system does not initialise: {error}",)


def _verdict_only(system: System, master: Master, verdict: Verdict) -> Assessment:
    """Of a large linear system: predicted errors and critical steps of many masters would take too long."""
    reason = f"errors from the given initial state and other masters are left out: more than {FEW} states."
    return Assessment(
        system.name,
        master.name,
        master.step,
        (),
        confidence((), BOUND, 0),
        verdict,
        loops=verdict.loops,
        reasons=(reason,),
    )


def _partial(system: System, master: Master, linearisation: Linearisation, reasons: tuple[str, ...]) -> Assessment:
    """What can be said without a model of the whole: every unit by itself, and the declared loops."""
    units = _reports(linearisation, master.step, {})
    trust = confidence(units, BOUND, 0)
    if trust.level != "none":
        trust = replace(trust, level="none", reason="the coupled system could not be analysed")
    return Assessment(
        system.name,
        master.name,
        master.step,
        units,
        trust,
        loops=tuple(system.loops()),
        reasons=reasons,
        identification_seconds=linearisation.seconds,
        unit_steps=linearisation.unit_steps,
    )


def _reports(
    linearisation: Linearisation, step: float, apart: dict[str, float], base: LocalSystem | None = None
) -> tuple[UnitReport, ...]:
    """Every unit as identified at `step`; its poles are those at the step where they are no aliases."""
    found = []
    for name, outcome in linearisation.outcomes(step).items():
        one = base.units[name] if base is not None else outcome
        found.append(report(name, outcome, poles_of(one), apart.get(name, math.nan)))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class _Task:
    """What is asked, and the means to answer it."""

    system: System
    master: Master
    linearisation: Linearisation
    start: float
    horizon: float | None
    reasons: tuple[str, ...]
    known: Verdict | None

    def build(self, system: System, step: float) -> Master:
        """The master at another step."""
        return self.master.with_step(step)


def _whole(task: _Task, at: Sequence[float], along: int | None) -> Assessment:
    system, master, linearisation = task.system, task.master, task.linearisation
    local = linearisation.at(master.step)
    base = find_base(linearisation, master.step)
    horizon = task.horizon or _default_horizon(base.local, master.step)
    reasons = list(task.reasons)
    apart = departures(system, base.local, start=task.start, horizon=horizon)
    away = [name for name, share in apart.items() if share > BOUND]
    if away:
        reasons.append(
            f"the motion leaves the range where the linear model of {', '.join(away)} holds (outputs differ by "
            f"{max(apart.values()):.0%}); from the start alone no error is predicted."
        )
    limits = _limits(task, base, reasons)
    order = limits.order if limits is not None else system.names
    followed = follow(master, linearisation, base.local, order, Journey(tuple(at), along, task.start, horizon))
    reasons += followed.reasons
    prediction: Prediction | None = followed.prediction
    if not away:
        prediction = Accuracy(linearisation, base, start=task.start, horizon=horizon)
    error = _error(prediction, master, reasons)
    verdict = task.known or _verdict(task, local, base, limits, error, horizon)
    found = effects(local.linear, master, prediction) if not _large(local, master) else []
    typical = error.typical if error is not None else math.nan
    advice = _advice(system, master, prediction, error, bool(away))
    units = _reports(linearisation, master.step, apart, base.local)
    return Assessment(
        system.name,
        master.name,
        master.step,
        units,
        confidence(units, BOUND, followed.windows),
        verdict,
        error,
        _included(system, bool(away)) if error is not None else "",
        limits,
        worst_connection(found, verdict.spectral_radius, typical),
        tuple(found),
        advice,
        followed.moments,
        verdict.loops,
        (*reasons, *(limits.reasons if limits else ())),
        linearisation.seconds,
        linearisation.unit_steps,
    )


def _large(local: LocalSystem, master: Master) -> bool:
    return LinearSystem(local.linear, master).sparse


def _limits(task: _Task, base: Base, reasons: list[str]) -> Limits | None:
    if _large(base.local, task.master):
        reasons.append("critical steps are left out: the system is large.")
        return None
    build: Builder = task.build
    return critical_steps(task.linearisation, base, task.master, build)


def _error(prediction: Prediction | None, master: Master, reasons: list[str]) -> Predicted | None:
    if prediction is None:
        return None
    try:
        found = prediction.of(master)
    except CosimoError as error:
        reasons.append(f"no error is predicted: {error}")
        return None
    if math.isnan(found.relative):
        reasons.append("no error is predicted: from the given initial states, and by the given inputs, nothing moves.")
        return None
    return found


def _advice(
    system: System, master: Master, prediction: Prediction | None, error: Predicted | None, away: bool
) -> Recommendation:
    if prediction is None or error is None:
        hint = "follow a run (--along) to have the error predicted and a master recommended." if away else ""
        return Recommendation(f"no master can be recommended without a predicted error; {hint}".strip("; ") or "")
    return recommend(system, master, prediction, error)


def _included(system: System, away: bool) -> str:
    parts = ["initial states", "offsets"] + (["external inputs"] if system.inputs else [])
    where = " along the run" if away else ""
    return f"coupling and the units' solvers{where}, from the given {', '.join(parts)}"


def _default_horizon(local: LocalSystem, step: float) -> float:
    """Ten periods or time constants of the slowest mode, as in `cosimo.analysis.analyse`."""
    speeds = np.abs(np.linalg.eigvals(np.asarray(local.coupled.A)))
    slowest = float(speeds[speeds > 1e-9].min(initial=np.inf))
    seconds = 20 * math.pi / slowest if math.isfinite(slowest) else 100 * step
    return min(max(10 * step, seconds), LONGEST * step)


def _verdict(
    task: _Task, local: LocalSystem, base: Base, limits: Limits | None, error: Predicted | None, horizon: float
) -> Verdict:
    master = task.master
    linear = LinearSystem(local.linear, master)
    # Modes are those of models that are no aliases; the radius is that of the maps at this very step.
    picture = local if base.local.step == master.step else base.local
    spectrum, here = Spectrum(LinearSystem(picture.linear, master)), Spectrum(linear)
    factor = sweep_factor(linear)
    converges = None if factor is None else factor < 1 or _accelerated(master)
    growth = float(spectrum.poles.real.max(initial=-math.inf))
    stable = here.radius <= 1 + SLACK or here.stable
    nothing = GlobalError(math.nan, math.nan, math.nan, {}, 0, False)
    return Verdict(
        system=task.system.name,
        master=master.name,
        schedule=str(master),
        step_size=master.step,
        stable=stable and converges is not False,
        spectral_radius=here.radius,
        exact_spectral_radius=spectrum.exact_radius,
        exact_stable=spectrum.exact_stable or growth * master.step <= SLACK,
        modes=spectrum.modes(),
        foreign=spectrum.foreign(),
        defect=consistency(linear, k=2, norm=2),
        global_error=error or nothing,
        horizon=horizon,
        order=None,
        critical_step=limits.own if limits else None,
        sweep_factor=factor,
        converges=converges,
        left_out=False,
        loops=tuple(local.linear.loops()),
    )


def _accelerated(master: Master) -> bool:
    repeats = [operation.times for operation in master.schedule.operations if isinstance(operation, Repeat)]
    return any(isinstance(times, Convergence) and times.anderson for times in repeats)
