"""`analyse`: the one call that judges a coupling, whatever its units are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.connections import effects, worst_connection
from cosimo.analysis.cost import Cost
from cosimo.analysis.critical import ChangingSteps, CriticalStep, changing_steps, critical_step, large_critical_step
from cosimo.analysis.error_norms import consistency, convergence_order
from cosimo.analysis.identification import Identified
from cosimo.analysis.large import LargePoles, LargeSpectrum
from cosimo.analysis.limits import CriticalStepSearch, critical_steps
from cosimo.analysis.linearisation import Linearisation, during, moments
from cosimo.analysis.model import AnalysisOptions, Model
from cosimo.analysis.pilot_runs import Ran
from cosimo.analysis.pilots import bounded
from cosimo.analysis.recommendation import (
    FEW,
    Point,
    Wanted,
    master_cost,
    measured_rungs,
    recommend,
    searched_steps,
    untried_step,
    usual_points,
)
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import is_stable, solver_growth
from cosimo.analysis.truth import OutputErrors, Truth, offset_notes
from cosimo.analysis.verdict import Moment, Verdict
from cosimo.core.arguments import checked, showing
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.formatting import percent, step_text
from cosimo.core.master import Master, joints
from cosimo.core.system import System
from cosimo.execution.options import Adaptive
from cosimo.masters import gauss_seidel
from cosimo.masters.words import describe

AGREE = 1.25
"""Factor within which a predicted and a measured error agree."""
ALONE = 1e-3
"""By how much less a unit may grow alone than in the coupling to be called the cause."""
NEGLIGIBLE = 0.1
"""Part of the target below which it does not matter by what factor two errors differ."""

NOTHING_TRIED = (
    "no other master was tried, as runs of the present one were not seen to converge at {}; give a smaller --step-size "
    "or a larger --budget"
)

T = TypeVar("T")


@showing(AnalysisOptions)
@checked
def analyse(
    system: System,
    master: Master,
    *,
    model: Model | None = None,
    options: AnalysisOptions | None = None,
    **keywords: Any,
) -> Verdict:
    """Analyse `system` under `master`: stability, errors, a recommendation; keywords are those of `AnalysisOptions`.

    Units whose equations are known are analysed from Φ alone; others are identified, and `pilots` (short runs of the
    coupling itself, within `budget`) confirm or replace the prediction of their models. `start` and `horizon` set the
    time range in seconds, `target` the acceptable error; `at` and `along` request verdicts at times of a reference
    run, `means` a way of identification; `details=False` leaves out everything except trust, stability and error.
    `progress` gets a `Standing` before and after every pilot run. `model` is what is already known. With `adaptive` the
    verdict is that of a run with adaptive steps: measured in one, and certified for all steps that may be chosen.

    >>> from cosimo import masters, problems
    >>> system = problems.quarter_truck()
    >>> verdict = analyse(system, masters.jacobi(system, 0.05), horizon=3.0)
    >>> verdict.trust, verdict.headline
    ('no', 'Do not trust: unstable')
    """
    asked = replace(options or AnalysisOptions(), **keywords)
    if asked.horizon is not None and master.step > asked.horizon * (1 + 1e-9):
        raise ConfigurationError(
            f"the macro step {master.step:g} is longer than the horizon of {asked.horizon:g} s; shorten it, or stop "
            f"later."
        )
    try:
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            model = model or Model(system, step=master.step, options=asked)
            with closing(model.pilots):
                return _Analysis(model, master, asked).verdict()
    except (np.linalg.LinAlgError, ArithmeticError, ValueError, IndexError) as error:
        raise ConfigurationError(
            f"'{system.name}' cannot be analysed at the macro step {master.step:g}: its values overflow double "
            f"precision ({error}); check parameters and step size."
        ) from None


class _Analysis:
    """One analysis; what fails leaves its figure out and the others alone."""

    def __init__(self, model: Model, master: Master, asked: AnalysisOptions) -> None:
        self.model, self.master, self.asked = model, master, asked
        self.reasons: dict[str, str] = {}
        self.notes = list(model.notes)
        self.system = model.system

    def attempt(self, what: str, make: Callable[[], T]) -> T | None:
        """A figure, or None with the reason."""
        try:
            return make()
        except (CosimoError, np.linalg.LinAlgError, ArithmeticError, ValueError, IndexError) as error:
            self.reasons.setdefault(what, str(error) or type(error).__name__)
            return None

    def verdict(self) -> Verdict:
        model, master = self.model, self.master
        empty = Verdict(
            system=self.system.name,
            master=master.name,
            description=describe(master, self.system),
            schedule=str(master),
            step_size=master.step,
            start=model.start,
            horizon=model.horizon,
            target=self.asked.target,
            evidence="none",
            loops=tuple(self.system.loops()),
        )
        learns = bool(joints(self.system, master))
        if self.asked.adaptive is not None:
            return self._adaptive(empty, self.asked.adaptive)
        verdict = empty
        if model.valid and not learns:
            # Known equations out of the range of numbers are refused; of identified units, runs can still tell.
            linear = self._linear(empty) if model.known else self.attempt("model", lambda: self._linear(empty))
            verdict = linear or empty
        if learns:
            self.reasons["model"] = "a coupling that learns while running has no matrices"
        if model.known and learns:
            verdict = self._measured(empty)
        elif not model.known:
            verdict = self._piloted(verdict)
        if not model.valid:
            self.reasons["model"] = model.doubt
        if verdict.spectral_radius is None and "spectral_radius" not in self.reasons:
            unknown = f"no linear model is believed: {self.reasons.get('model', 'there is none')}"
            for name in ("critical_step", "limits", "modes", "connections"):
                if not getattr(verdict, name):
                    self.reasons.setdefault(name, unknown)
        if verdict.stable is None and verdict.evidence == "measured":
            self.reasons.setdefault("stable", "the run stays bounded over the simulated time but does not decay")
        if verdict.evidence in ("proved", "confirmed") and self.asked.details:
            verdict = self._details(verdict)
        if verdict.evidence != "none" and self.asked.details:
            verdict = replace(verdict, recommendation=self.attempt("recommendation", lambda: self._advice(verdict)))
        if verdict.error is not None and (truth := self._truth()) is not None:
            self.notes += offset_notes(self.system, verdict.error, truth, self.asked.target)
        if self.asked.at or self.asked.along is not None:
            moments, wrong = follow(model, master, self.asked.at, self.asked.along)
            self.notes += wrong
            verdict = replace(verdict, along=moments)
        return replace(
            verdict,
            units=model.units,
            reasons=self.reasons,
            notes=tuple(self.notes),
            unit_steps=model.linearisation.unit_steps,
            seconds=model.linearisation.seconds,
        )

    def _truth(self) -> Truth | None:
        """The true solution that errors were taken against, where it is there already."""
        if not self.model.known:
            return self.model.pilots.of(self.master).truth if self.asked.pilots else None
        return None if self.model.large is not None or self.model.rests else self.model.truth(self.master.step)

    # ---- from the linear picture ---------------------------------------------------------------------------------

    def _linear(self, verdict: Verdict) -> Verdict:
        """What Φ says of stability and error: enough to be compared with pilot runs."""
        model, master = self.model, self.master
        linear = model.linear(master)
        here, (stable, converging, factor) = self._here, model.stability(master)
        self._left_open(stable, here.radius, converging, iterates=factor is not None)
        if stable is False and converging is not False:
            self._blame_solvers(here.radius)
        return replace(
            verdict,
            evidence="proved" if model.known else "none",
            stable=stable,
            error=self.attempt("error", lambda: model.predict(master)),
            spectral_radius=here.radius,
            exact_spectral_radius=self._picture.exact_radius,
            exact_stable=model.exact_stable,
            sweep_factor=None if factor is None or math.isnan(factor) else factor,
            converges=converging,
            loops=verdict.loops if linear.system is self.system else tuple(linear.system.loops()),
        )

    @cached_property
    def _here(self) -> Spectrum | LargeSpectrum:
        """The eigenvalues of the maps at this very step."""
        return self.model.spectrum(self.master)

    @cached_property
    def _picture(self) -> Spectrum | LargeSpectrum:
        """The eigenvalues of models that are no aliases, for the modes."""
        model, master = self.model, self.master
        if model.known or model.large or model.local.step == master.step:
            return self._here
        return Spectrum(LinearSystem(model.local.linear, master))

    def _details(self, verdict: Verdict) -> Verdict:
        """All else that follows from Φ, where it is believed: modes, critical steps, single connections."""
        model, master = self.model, self.master
        linear, spectrum = model.linear(master), self._picture
        verdict = replace(
            verdict,
            modes=self.attempt("modes", spectrum.modes) or (),
            foreign=self.attempt("foreign", spectrum.foreign),
            defect=self.attempt("defect", lambda: consistency(linear, k=2, norm=2)),
        )
        if model.large is not None:
            shown = (
                f"only {len(verdict.modes)} of the slowest are shown" if verdict.modes else "none could be told apart"
            )
            self.reasons.setdefault("modes", f"of so large a system {shown}")
        if sum(len(unit.initial_state) for unit in linear.system.units.values()) > FEW:
            left = f"left out: more than {FEW} states"
            self.reasons |= {"limits": left, "connections": left}
            return replace(verdict, critical_step=self.attempt("critical_step", self._critical))
        limits = self.attempt("limits", lambda: critical_steps(model.linearisation, model.local, master))
        if limits is not None:
            self.notes += limits.reasons
        found = self.attempt("connections", lambda: effects(linear.system, master, model)) or []
        radius = math.nan if verdict.spectral_radius is None else verdict.spectral_radius
        typical = verdict.error.typical if verdict.error is not None else math.nan
        return replace(
            verdict,
            limits=limits,
            critical_step=limits.own if limits is not None else None,
            order=self.attempt("order", self._order) if model.known else None,
            connections=tuple(found),
            worst_connection=worst_connection(found, radius, typical),
        )

    def _critical(self) -> CriticalStep | None:
        """Of a system of more states than `FEW`: the critical step of this master alone."""
        model, master = self.model, self.master
        linear = model.linear(master)
        if not (linear.sparse and model.known):
            search = CriticalStepSearch(model.linearisation, model.local)
            return search.crossing(lambda _, h: master.with_step(h))
        stable = model.stability(master).stable is True
        return large_critical_step(linear, model.large or LargePoles(linear.coupled.A), stable=stable)

    def _left_open(self, stable: bool | None, radius: float | None, converging: bool | None, *, iterates: bool) -> None:
        """Why figures of a large system are not known."""
        if stable is None:
            self.reasons["stable"] = "neither decay nor growth could be proved for so large a system"
        if iterates and converging is None:
            self.reasons["converges"] = "the factor per sweep was not found for so large a system"
        if radius is None:
            self.reasons["spectral_radius"] = "the largest eigenvalues lie too close together to be told apart"

    def _blame_solvers(self, radius: float | None) -> None:
        """Where a unit's own solver grows as fast as the whole, the coupling is not the cause."""
        durations, step = self.master.durations, self.master.step
        growth = {
            name: solver_growth(unit, durations[name]) ** (step / durations[name])
            for name, unit in self.system.units.items()
        }
        names = [name for name, factor in growth.items() if not is_stable(factor)]
        if names and radius is not None and max(growth.values()) >= (1 - ALONE) * radius:
            at = step_text(durations[names[0]])
            self.reasons["stable"] = f"the solver of {', '.join(names)} is unstable at its step of {at}"

    def _order(self) -> float | None:
        seconds = min(self.model.horizon, 100 * self.master.step)
        order = convergence_order(self.system, self.master, horizon=seconds)
        return order if math.isfinite(order) else None

    def _measured(self, verdict: Verdict) -> Verdict:
        """Of known units under a coupling without matrices: one run against the exact solution."""
        measured = self.attempt("error", lambda: self.model.measure(self.master))
        if measured is None:
            self.reasons["evidence"] = self.reasons["error"]
            return verdict
        rows, diverged, grows = self.model.pilots.rows(self.master, 1)
        stable = bounded(rows, self.model.truth(self.master.step), diverged, grows)
        return replace(verdict, evidence="measured", stable=stable, error=measured.errors, pilot_runs=1)

    def _adaptive(self, verdict: Verdict, adaptive: Adaptive) -> Verdict:
        """Of steps that change: one run against the exact solution, and what every sequence of steps does."""
        from cosimo.execution.adaptive import require_adaptable

        model, master = self.model, self.master
        require_adaptable(self.system, master, adaptive)
        measured = self.attempt("error", lambda: model.measure_adaptive(master, adaptive))
        steps = self.attempt("changing_steps", lambda: self._changing(adaptive))
        if measured is None:
            self.reasons["evidence"] = self.reasons["error"]
        self.reasons["model"] = "the length of every step is chosen in the run"
        for name in ("spectral_radius", "critical_step", "limits", "modes", "connections", "recommendation"):
            self.reasons[name] = "computed for fixed steps only; leave --adaptive out"
        if steps is not None and steps.outcome != "stable":
            self.reasons["stable"] = steps.reason or "steps that may be chosen lead to growth"
        return replace(
            verdict,
            description=f"{verdict.description}, adaptive steps ({adaptive.kind})",
            evidence="none" if measured is None else "measured",
            stable=True if steps is not None and steps.outcome == "stable" and model.known else None,
            exact_stable=model.exact_stable if model.valid else None,
            error=None if measured is None else measured.errors,
            pilot_runs=0 if measured is None else 1,
            changing_steps=steps,
            units=model.units,
            reasons=self.reasons,
            notes=tuple(self.notes),
            unit_steps=model.linearisation.unit_steps,
            seconds=model.linearisation.seconds,
        )

    def _changing(self, adaptive: Adaptive) -> ChangingSteps:
        """What is known of all sequences of steps that the controller may choose."""
        from cosimo.execution.adaptive.stepping import GROW, SHRINK
        from cosimo.execution.adaptive.variable import choose_lengths

        model, master = self.model, self.master
        if not model.valid:
            raise ConfigurationError(model.doubt)
        if model.grows:
            raise ConfigurationError("the coupled system itself grows, whatever the steps; check its parameters.")
        local = model.local
        if sum(len(unit.initial_state) for unit in local.linear.units.values()) > FEW:
            raise ConfigurationError(f"the system has more than {FEW} states; use fixed steps for a verdict.")
        lengths = choose_lengths(adaptive, master.step, model.start, model.start + model.horizon)
        steps = np.array(lengths.usual) * lengths.grid.quantum
        return changing_steps(local.linear, master, steps, shrink=SHRINK, grow=GROW, identified=not model.known)

    # ---- from pilot runs -----------------------------------------------------------------------------------------

    def _piloted(self, verdict: Verdict) -> Verdict:
        """Confirm the prediction by runs, or replace it."""
        if not self.asked.pilots:
            why = "pilot runs were switched off, and identified models alone prove nothing"
            self.reasons["evidence"] = why if self.model.valid else f"{self.model.doubt}, and {why}"
            return self._nothing(verdict)
        pilot = self.model.pilots.of(self.master)
        verdict = replace(verdict, pilot_runs=pilot.runs + 1)
        follows = [unit.name for unit in self.model.units if unit.valid and not unit.poles]  # without states of its own
        self.notes += [
            f"unit '{name}' steps by {step_text(step)} internally: its outputs change only then, whatever the macro "
            "step"
            for name, step in self.model.pilots.internal.items()
            if name not in follows
        ]
        if pilot.faint:
            self.notes.append(
                f"of {', '.join(pilot.faint)} the error is a bound: runs differ by the noise of the units' solvers"
            )
        if pilot.errors is None and pilot.bounded is not False:
            why = f"pilot runs did not converge ({pilot.reason})"
        elif not any(unit.outputs for unit in self.system.units.values()):
            why = "no unit has outputs, so there is nothing to compare"
        elif pilot.errors is not None and not pilot.errors.outputs:
            inlets = (inlet for row in self.model.system.inlets.values() for inlet in row)
            free = next((inlet.target for inlet in inlets if inlet.link is None), None)
            remedy = "initial states or inputs" if free is None else f"an input a value, such as --set {free}=1"
            why = f"every output stays 0, so pilot runs show nothing; give {remedy}"
        else:
            why = ""
        if why:
            self.reasons["evidence"] = why if self.model.valid else f"{self.model.doubt}, and {why}"
            return self._nothing(verdict)
        linear = self.model.valid and verdict.spectral_radius is not None
        if linear and self._agrees(verdict, pilot.bounded, pilot.errors):
            reach, left = self._confirmed_until(verdict)
            if left is None:
                error, measured = verdict.error or pilot.errors, pilot.errors
                return replace(verdict, evidence="confirmed", error=error, measured_error=measured, pilot_horizon=reach)
            self.reasons["model"] = f"the run leaves the prediction of the identified models by t = {left:g} s"
            pilot = replace(pilot, bounded=None)
        elif self.model.valid:
            self.reasons["model"] = "the prediction of the identified models does not agree with pilot runs"
        ran = self._run_beyond()
        if ran is not None and (ran.grows or ran.diverged is not None) and not pilot.itself:
            pilot = replace(pilot, bounded=False)
        if pilot.errors is None:
            self.reasons["error"] = pilot.reason or "the run diverges"
        critical = None
        if self.asked.details:
            critical = self.attempt("critical_step", lambda: self.model.pilots.critical(self.master))
        return replace(
            self._nothing(verdict),
            evidence="measured",
            stable=pilot.bounded,
            exact_stable=False if pilot.itself else None,
            error=pilot.errors,
            order=pilot.order,
            critical_step=critical,
        )

    def _nothing(self, verdict: Verdict) -> Verdict:
        """A model that is not confirmed is used for no statement."""
        kept = {"pilot_runs": verdict.pilot_runs, "loops": verdict.loops, "evidence": "none"}
        names = ("system", "master", "description", "schedule", "step_size", "start", "horizon", "target")
        return Verdict(**{name: getattr(verdict, name) for name in names}, **kept)  # type: ignore[arg-type]

    def _run_beyond(self) -> Ran | None:
        """The run itself over the whole horizon, where finer ones end before: a unit may change meanwhile."""
        pilots = self.model.pilots
        return pilots.whole(self.master) if pilots.reach < self.model.horizon * (1 - 1e-9) else None

    def _confirmed_until(self, verdict: Verdict) -> tuple[float, float | None]:
        """Seconds until which runs confirm the prediction; and when the run leaves it, None where it does not."""
        model, master = self.model, self.master
        ran = self._run_beyond() if verdict.stable else None
        if ran is None or verdict.error is None:
            return model.pilots.reach, None
        if ran.diverged is not None:
            return model.pilots.reach, ran.diverged
        rows, truth = model.courses(master)
        count, outputs = min(len(rows), len(ran.rows)), verdict.error.outputs
        errors = np.array([outputs.get(name, 0.0) for name in self.system.outputs])
        allowed = np.maximum((AGREE - 1) * errors, NEGLIGIBLE * self.asked.target) * truth.sizes
        apart = (np.abs(ran.rows[:count] - rows[:count]) > allowed).any(axis=1)
        left = model.start + float(np.argmax(apart)) * master.step if apart.any() else None
        return (count - 1) * master.step, left

    def _agrees(self, verdict: Verdict, bounded: bool | None, measured: OutputErrors | None) -> bool:
        predicted = verdict.error
        if measured is None or predicted is None:
            # That a run stays bounded is not enough to believe in a model; that it grows as predicted is.
            return verdict.stable is False and bounded is False
        if (
            bounded is not None
            and verdict.exact_stable
            and bounded != verdict.stable
            and not (verdict.stable is False and measured.worst < 1)
        ):
            return False
        for name, value in measured.outputs.items():
            other = predicted.outputs.get(name, 0.0)
            low, high = sorted((value, other))
            grown = verdict.stable is False and low > 10  # how far a run that grows has come says little
            if high > max(AGREE * low, NEGLIGIBLE * self.asked.target) and not grown:
                return False
        return True

    # ---- what to do ----------------------------------------------------------------------------------------------

    def _advice(self, verdict: Verdict) -> Any:
        if "recommendation" in self.reasons:
            raise ConfigurationError(self.reasons["recommendation"])
        if verdict.error is None and verdict.evidence != "measured":
            raise ConfigurationError(self.reasons.get("error", "no error is known"))
        model, wanted, cost = self.model, Wanted(self.asked.target), Cost()
        # A fixed internal step is none of the linear models: what it does at another macro step, only runs show.
        linear = model.valid and verdict.evidence in ("proved", "confirmed") and not model.pilots.internal
        believed = model.known or linear
        model = model if believed else model.distrusted()
        radius = verdict.spectral_radius or math.nan
        price = master_cost(model, self.master, cost)
        present = Point(self.master, verdict.stable, verdict.error, cost=price, radius=radius, system=self.system)
        points = usual_points(model, wanted, cost, self.master)
        searched, untried = "within the budget of pilot runs" if model.pilots.exhausted else "", ""
        if model.valid:
            steps, complete = searched_steps(model)
            if not (searched or complete):
                searched = f"at steps from {step_text(steps[-1])} on (shorter ones were not tried)"
                untried = f"a system of {model.states} states takes long there: try a shorter --step-size"
        else:
            rungs, truth = measured_rungs(model, self.master)
            tried = f"steps from {step_text(rungs[-1])} to {step_text(rungs[0])}"
            searched = searched or f"at {tried} (shorter ones were not tried)"
            untried = untried_step(model.pilots.errors_by_step(self.master), verdict.order, wanted)
            if truth is None:
                searched, untried = "", NOTHING_TRIED.format(tried)
        grows = verdict.exact_stable is False
        return recommend(points, present, wanted, grows=grows, searched=searched, untried=untried)


# ---- the verdict at single times of a reference run: where it changes, and where the linear picture does not ---------


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
    from cosimo.execution.running import run as reference_run

    system, start, linearisation = model.system, model.start, model.linearisation
    stop = max([start + model.horizon, *at])
    fine = max(master.step / FINER, (stop - start) / MOST_STEPS)
    try:
        run = reference_run(system, gauss_seidel(system, fine), start=start, stop=stop, record="all")
    except CosimoError as error:
        return (), [f"the reference run with steps of {fine:g} s failed: {error}"]
    chosen = [start + round((t - start) / master.step) * master.step for t in at if t >= start]
    times = sorted({start, *(moments(system, run, along, master.step) if along else ()), *chosen})
    base_step = model.base.step if model.base is not None and not model.known else master.step
    found: list[Moment] = []
    for time in times:
        here = linearisation.again(during(system, run, time) if time > start else linearisation.situation)
        moment = _moment(master, here, time, base_step)
        found.append(replace(moment, changes=_changes(found[-1], moment) if found else ()))
        linearisation.seconds += here.seconds
        linearisation.unit_steps += here.unit_steps
    early = [f"t = {time:g} is before the start of the run and was ignored." for time in at if time < start]
    return tuple(found), early


def _moment(master: Master, here: Linearisation, time: float, base_step: float) -> Moment:
    """The verdict at one time; the critical step is converted from `base_step`, at which modes are no aliases."""
    notes = []
    for name, outcome in here.outcomes(master.step).items():
        if not isinstance(outcome, Identified):
            notes.append(f"{name}: {outcome}")
        elif outcome.linear > BENT:
            notes.append(
                f"{name}: no linear model applies, small pulses of two sizes differ by {percent(outcome.linear)} (a "
                f"switch or a limit is at this point)"
            )
        elif outcome.fit > BENT:
            notes.append(
                f"{name}: the model misses {percent(outcome.fit)} of a response it was not fitted to (a switch or a "
                "limit is near)"
            )
    try:
        local = here.at(master.step)
        spectrum = Spectrum(LinearSystem(local.linear, master))
        base = here.at(base_step)
        limit = critical_step(base.linear, master, identified=base.identified) if base.convertible else None
    except (CosimoError, np.linalg.LinAlgError) as error:
        return Moment(time, None, math.nan, math.nan, False, (*notes, str(error)))
    stable = bool(is_stable(spectrum.moving_radius, identified=not here.known))
    step = limit.step if limit is not None else math.nan
    return Moment(time, stable, spectrum.radius, step, not notes, tuple(notes))


def _changes(before: Moment, now: Moment) -> tuple[str, ...]:
    """What a reader should notice between two moments."""
    found = []
    if before.applies and not now.applies:
        found.append("the linear model no longer applies")
    elif now.applies and not before.applies:
        found.append("the linear model applies again")
    if before.stable is not None and now.stable is not None and before.stable != now.stable:
        found.append("becomes stable" if now.stable else "becomes UNSTABLE")
    if before.critical_step > 0 and now.critical_step > 0 and math.isfinite(before.critical_step + now.critical_step):
        ratio = now.critical_step / before.critical_step
        if not 2 / 3 <= ratio <= 1.5:
            found.append(f"critical step from {before.critical_step:.3g} to {now.critical_step:.3g} s")
    return tuple(found)
