"""One identification: trials, candidates for a model in order of preference, checks, and the verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial

import numpy as np

from cosimo.analysis.identification.excitation import LONG, SHORT, Manner, Pulses, relative
from cosimo.analysis.identification.fitted_models import (
    FIRST,
    FIRST_AGAIN,
    LOCAL,
    SEED,
    FreeMotion,
    free_motion,
    from_states,
    linearise,
    realise,
    realise_locally,
    shake,
    with_powers,
)
from cosimo.analysis.identification.models import EPS, Identified, Means, Realisation, continuous_model
from cosimo.analysis.identification.test_rig import Allowance, OperatingPoint, Rig, TrialFailed, state_access
from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, IdentificationError, UnknownNameError
from cosimo.core.unit import DiscreteModel, LinearModel, Unit
from cosimo.units.linear import Exact, discretise

EXACT_FIT, GOOD_FIT = 1e-9, 1e-5
"""Errors of prediction over the trial with random inputs at which no further candidate is tried: of the exact solution
of the unit's equations, and of a map that was measured (it is known far better, as errors add up over the trial)."""
UNSETTLED = 1e-3
"""Error of prediction by half the record from which the model is reported as not settled."""
POWERS = 256
"""Rows of the trial for higher powers of the input at most."""


@dataclass(frozen=True)
class _Candidate:
    """A model by one way, `initial` where its states are known, the unit's own continuous model where that is.

    `unsettled` is the error with which half the record predicts the rest.
    """

    model: Realisation
    B: Array
    initial: Array | None
    own: LinearModel | None
    reasons: tuple[str, ...]
    good: float = GOOD_FIT
    unsettled: float = 0.0


class Identification:
    """One identification: the rig, its pulses, and candidates in order of preference.

    `started` tells that the unit has reached its operating point; `manner` is what is known of it from another step.
    """

    def __init__(
        self,
        unit: Unit,
        step: float,
        point: OperatingPoint,
        means: Means,
        scales: Array,
        steps_per_input: int,
        allowance: Allowance | None = None,
        manner: Manner | None = None,
    ) -> None:
        self._allowance = allowance
        self.unit, self.step, self.point, self.means = unit, step, point, means
        self._scales, self._most, self._manner = scales, steps_per_input, manner
        self.started = False

    def run(self) -> Identified:
        """The best model; raises TrialFailed where there is none."""
        quiet = self.means == "experiments"
        access = None if quiet else state_access(self.unit)
        restore = self.unit.can_restore and not quiet
        point, allowance = self.point, self._allowance
        with closing(Rig(self.unit, self.step, point, restore=restore, access=access, allowance=allowance)) as rig:
            self.started = True
            return self._best(rig)

    def _best(self, rig: Rig) -> Identified:
        pulses = Pulses(rig, self._scales, self._manner)
        reasons = self._require_answers(pulses)
        if self._manner is not None:
            repeat, steady = self._manner.repeat, self._manner.steady
        else:
            repeat, steady = repeats(pulses), variation(pulses)
        local = not steady <= BOUND
        best, fit = None, np.inf
        unseen = SHORT if local else UNSEEN_AGAIN if self._manner else UNSEEN
        for candidate in self._candidates(rig, pulses, local):
            error = fit_error(candidate.model, candidate.B, pulses, unseen)
            if best is None or error < fit:
                best, fit = candidate, error
            # A model that is local anyway is best where it is from: derivatives before answers over some steps.
            if error <= (BOUND if local else candidate.good):
                break
        assert best is not None
        return self._conclude(rig, pulses, best, {"fit": fit, "steady": steady, "repeat": repeat}, reasons)

    # ---- ways to a model -----------------------------------------------------------------------------------------

    def _candidates(self, rig: Rig, pulses: Pulses, local: bool) -> Iterator[_Candidate]:
        reasons: tuple[str, ...] = ()
        own: LinearModel | None = None
        initial = pulses.base[0, rig.outputs :] if rig.access is not None else None
        if self.means == "derivatives":
            try:
                own = linearise(rig)
                exact = discretise(own, Exact(), 1, self.step)
                B = exact.B[:, : rig.powers * len(self.unit.inputs)]
                model = Realisation(exact.A, B[:, : len(self.unit.inputs)], own.C, own.D)
                yield _Candidate(model, B, initial, own, (), EXACT_FIT)
                reasons = ("the unit's solver differs from the exact solution; its map was corrected by real steps",)
            except TrialFailed as failure:
                reasons = (f"not by derivatives: {failure}",)
                self.means = "differences"
        if rig.access is not None:
            visible = from_states(pulses, FIRST if local else self._longest(pulses))
            if visible is not None:
                model, basis = visible
                seen = replace(model, C=np.vstack([model.C, basis]), D=np.vstack([model.D, 0 * (basis @ model.B)]))
                B = with_powers(seen, rig, pulses.free_motion(FIRST), pulses.amplitudes())
                whole = basis.shape[1] == basis.shape[0]
                yield _Candidate(model, B, initial if whole else None, own if whole else None, reasons)
            reasons = (
                *reasons,
                "its visible states do not explain its outputs; the states were identified from responses",
            )
        first = FIRST_AGAIN if self._manner else FIRST
        found = realise_locally(pulses) if local else realise(pulses, self._longest(pulses), first)
        columns = len(self.unit.inputs)
        model = Realisation(found.model.A, found.model.B[:, :columns], found.model.C, found.model.D[:, :columns])
        unsettled = 0.0 if local else found.error
        if unsettled > UNSETTLED:
            reasons = (*reasons, "slow modes may be off; allow more steps_per_input or take a longer step")
        base = pulses.free_motion(min(len(found.answers.h), POWERS))
        B = with_powers(model, rig, base, pulses.amplitudes())
        yield _Candidate(model, B, None, None, reasons, unsettled=unsettled)

    def _longest(self, pulses: Pulses) -> int:
        """How long records may be: what is left of the steps allowed, after the trials that check."""
        rig = pulses.rig
        # Saved states are there to be used: the bound is meant for fresh instances.
        most = self._most * (4 if rig.restore else 1)
        allowed = most * max(len(rig.free), 1) - (rig.steps - rig.run_up_steps)
        allowed -= UNSEEN + (POWERS if rig.powers > 1 else 0)
        return max((allowed + pulses.done) // pulses.count, FIRST)

    # ---- the verdict ---------------------------------------------------------------------------------------------

    def _require_answers(self, pulses: Pulses) -> list[str]:
        rig = pulses.rig
        names = self.unit.inputs
        reasons = [f"input '{names[i]}' is discrete and held at {rig.held[i]:g}" for i in rig.fixed]
        reasons += [f"output '{self.unit.outputs[j]}' is discrete and left out" for j in rig.constant]
        deaf = [i for i in rig.free if i not in pulses.responding]
        if rig.free and rig.outputs and pulses.still:
            pulsed = ", ".join(names[i] for i in rig.free)
            return [*reasons, f"its outputs stay constant, on their own and under pulses of {pulsed}"]
        reasons += [f"input '{names[i]}' has no effect within {LONG} steps" for i in deaf]
        for column in pulses.responding:
            probe = pulses.probes[column]
            if probe.amplitude < 0.5 * self._scales[column]:
                reasons.append(
                    f"pulses of '{names[column]}' were reduced to {probe.amplitude:g}, where two amplitudes agree "
                    f"within {probe.error:.1g}"
                )
        return reasons

    def _conclude(
        self, rig: Rig, pulses: Pulses, best: _Candidate, errors: Mapping[str, float], found: list[str]
    ) -> Identified:
        model, m = best.model, len(self.unit.inputs)
        local = not errors["steady"] <= BOUND
        motion = self._motion(rig, pulses, best, pulses.base[: LOCAL if local else None])
        wrong = [
            f"{what} (relative difference {value:.2g}, limit {BOUND:g})"
            for what, value in (
                ("the model does not predict a response it was not fitted to", errors["fit"]),
                ("the response to pulses of two amplitudes and signs is not linear", pulses.linear),
                (f"the unit responds differently {SHIFT} steps later, so the model is only local", errors["steady"]),
                ("two identical runs of the unit differ", errors["repeat"]),
                ("the free response of the model is not that of the unit", motion.error),
                ("a model from half the record predicts the rest differently", best.unsettled),
            )
            if not value <= BOUND
        ]
        # What further steps may take over; nothing where it might differ there.
        same = pulses.straight and all(probe.responds for probe in pulses.probes.values())
        same = same and errors["fit"] <= best.good
        manner = Manner(rig.step, pulses.probes, errors["steady"], errors["repeat"])
        logarithm, notes = continuous_model(model.A, best.B[:, :m], model.C, model.D, self.step)
        return Identified(
            source=self.unit,
            step=self.step,
            time=rig.time,
            model=DiscreteModel(model.A, best.B),
            C=model.C,
            D=model.D,
            initial=motion.initial,
            held=rig.held,
            input_offset=motion.input_offset,
            output_offset=motion.output_offset,
            continuous=best.own or logarithm,
            means=self.means,
            unit_steps=rig.steps,
            fit=errors["fit"],
            linear=pulses.linear,
            invariant=errors["steady"],
            free=motion.error,
            amplitudes=pulses.amplitudes(),
            valid=not wrong,
            reasons=(*wrong, *best.reasons, *(notes if best.own is None else ()), *found),
            generator=logarithm or best.own,
            manner=self._manner or (manner if same and not wrong else None),
        )

    @staticmethod
    def _motion(rig: Rig, pulses: Pulses, best: _Candidate, rows: Array) -> FreeMotion:
        rows = rows if pulses.straight else rows[:LONG]
        p, base = rig.outputs, rows[:, : rig.outputs]
        answers = pulses.answers(min(len(rows), LONG))
        moved = np.abs(base - base[0]).max(axis=0)
        for column in pulses.responding:
            moved = np.maximum(moved, np.abs(answers.h[:, :p, column]).max(axis=0) * pulses.probes[column].amplitude)
        sizes = np.maximum(moved, 1e-9 * np.abs(base).max(axis=0))
        return free_motion(best.model, rig.held, base, np.where(sizes > 0, sizes, 1.0), best.initial)


# ---- identification of a unit by the best means it offers ------------------------------------------------------------


STEPS_PER_INPUT = 2000
"""What identification may cost, in unit steps per input, run-up to the operating point not counted."""


@checked
def identify(
    unit: Unit,
    step: float,
    *,
    point: OperatingPoint | None = None,
    means: Means | None = None,
    nominal: Mapping[str, float] | None = None,
    steps_per_input: int = STEPS_PER_INPUT,
    like: Identified | None = None,
    allowance: Allowance | None = None,
) -> Identified:
    """A linear discrete model of `unit` over one macro step of `step`, including its own solver.

    `means`: "derivatives" (directional derivatives of an FMU that lists its states, checked against real steps and
    corrected where its solver differs), "differences" (from the same saved state, states read where they can be seen),
    "experiments" (inputs and outputs of fresh instances only); by default the first of these that the unit offers, or
    "known" where it is linear by itself. `nominal` gives the size of inputs whose value at the operating point is 0.
    `like` is the same unit at the same operating point, identified by the same means at another step: where it turned
    out linear to rounding, sizes of pulses and checks of linearity are taken over, and shorter records will do.
    `allowance` limits the time that trials take.

    A unit that raises an error or accepts no perturbation is refused with an IdentificationError. All others give a
    model, and whether it is valid; the model of a unit that never changes has no states.

    >>> from cosimo.units import StateSpace
    >>> found = identify(StateSpace(-1.0, 1.0, 1.0), 0.5, means="experiments")
    >>> found.valid, found.poles.real.round(4)
    (True, array([0.6065]))
    """
    if not (math.isfinite(step) and step > 0):
        raise ConfigurationError(f"the macro step must be a positive number of seconds, not {step}.")
    point = point or OperatingPoint()
    again = partial(identify, unit, point=point, means=means, nominal=nominal, steps_per_input=steps_per_input)
    model = unit.linear()
    if model is not None and means in (None, "known"):
        return replace(_known(unit, model, step, point), again=again)
    offered = means_offered(unit)
    if means is not None and means not in offered:
        raise IdentificationError(f"{_name(unit)} cannot be identified by {means}; it offers {', '.join(offered)}.")
    scales = _scales(unit, point, nominal or {})
    ask = partial(Identification, unit, step, point, means or offered[0], scales, steps_per_input, allowance)
    found = _once_more(ask, like) if like is not None else None
    if found is None:
        session = ask()
        try:
            found = session.run()
        except TrialFailed as failure:
            if means is None and session.means != "experiments" and not session.started:
                # It cannot do what it declares; perhaps it can do with less.
                less = identify(unit, step, point=point, means="experiments", nominal=nominal, allowance=allowance)
                return replace(less, reasons=(*less.reasons, f"not by {session.means}: {failure}"), again=again)
            raise IdentificationError(
                f"{_name(unit)} could not be identified at t = {point.time:g} with the step {step:g}: {failure}"
                + (f"; on host '{unit.host}' every trial is a round trip: leave 'host' out." if unit.host else ".")
            ) from failure
    return replace(found, again=partial(again, like=found))


def _once_more(ask: Callable[..., Identification], like: Identified) -> Identified | None:
    """By what is known of the unit from another step; None where that is nothing, or does not hold here."""
    if like.manner is None:
        return None
    try:
        found = ask(manner=like.manner).run()
    except TrialFailed:
        return None
    return found if found.valid and found.means == like.means and found.fit <= GOOD_FIT else None


def means_offered(unit: Unit) -> tuple[Means, ...]:
    """What identification can use, best first."""
    offered: list[Means] = []
    access = state_access(unit)
    if access is not None and unit.provides_directional_derivatives:
        offered.append("derivatives")
    if unit.can_restore or access is not None:
        offered.append("differences")
    return (*offered, "experiments")


def _known(unit: Unit, model: LinearModel, step: float, point: OperatingPoint) -> Identified:
    """A unit that is linear by itself: nothing to find out but its state at the operating point."""
    discrete, (p, m) = unit.discrete(step), model.D.shape
    sources, x = point.sources(unit), unit.initial_state
    count = round((point.time - point.start_time) / step)
    for k in range(count):
        u = np.array([source(point.start_time + k * step) for source in sources], dtype=float)
        x = discrete.A @ x + discrete.B[:, :m] @ u
    return Identified(
        source=unit,
        step=step,
        time=point.start_time + count * step,
        model=discrete,
        C=model.C,
        D=model.D,
        initial=x,
        held=np.array([source(point.start_time + count * step) for source in sources], dtype=float),
        input_offset=np.zeros(m),
        output_offset=np.zeros(p),
        continuous=model,
        amplitudes=np.zeros(m),
        generator=model,
    )


def _scales(unit: Unit, point: OperatingPoint, nominal: Mapping[str, float]) -> Array:
    """The size of every input: as given, as it is at the operating point or at the start, or 1."""
    for name, size in nominal.items():
        if name not in unit.inputs:
            raise UnknownNameError("input", name, unit.inputs)
        if not (math.isfinite(size) and size > 0):
            raise ConfigurationError(f"the nominal size of input '{name}' must be a positive number, not {size}.")
    held = [abs(source(point.time)) for source in point.sources(unit)]
    found = [
        nominal.get(name) or size or abs(unit.start.get(name, 0.0)) or 1.0
        for name, size in zip(unit.inputs, held, strict=True)
    ]
    return np.array(found, dtype=float)


def _name(unit: Unit) -> str:
    kind = "Fmu" if unit.host else type(unit).__name__
    return f"the {kind}" + (f" '{unit.name}'" if unit.name else "")


# ---- whether the model can be trusted: data not used for it, the same at another time, the free motion ---------------


BOUND = 0.01
"""Relative error of fit, linearity, invariance or repetition beyond which a model is not valid."""
UNSEEN, UNSEEN_AGAIN = 160, 48
"""Steps of the trial under random inputs; of one at a further macro step."""
SHIFT, AFTER = 96, 48
"""Steps before a pulse is repeated, and after it."""

GENTLY = 0.1
"""Share of the pulses' amplitude for random inputs of a unit that is not linear, as their answers add up."""
WEAK = 1e6 * EPS
"""An answer smaller than this share of the output itself is judged by this share."""


def fit_error(model: Realisation, B: Array, pulses: Pulses, length: int = UNSEEN) -> float:
    """The relative error of the model over random inputs that it was not fitted to.

    `B` holds the columns of all powers; the answer is the deviation from the free motion, output by output.
    """
    rig, amplitudes = pulses.rig, pulses.amplitudes()
    if not amplitudes.any():
        return 0.0
    length = min(length, pulses.reach)
    if not pulses.straight:
        amplitudes = amplitudes * GENTLY
    base = pulses.free_motion(length)[:, : rig.outputs]
    deviations, readings = shake(rig, length, amplitudes, powers=range(rig.powers), seed=SEED + 1)
    answer = readings[:, : rig.outputs] - base
    m = len(amplitudes)
    inputs = deviations.reshape(length, -1)
    whole = Realisation(model.A, B, model.C, np.hstack([model.D, np.zeros((len(model.C), inputs.shape[1] - m))]))
    with np.errstate(over="ignore", invalid="ignore"):
        difference = whole.answer(inputs) - answer
    if not np.isfinite(difference).all():
        return np.inf
    return relative(difference, answer, WEAK * np.abs(base).max(axis=0))


def variation(pulses: Pulses) -> float:
    """How much the answer to a pulse of all inputs differs when it comes SHIFT steps later, relative to itself.

    Where that is little it is noise to whoever looks for a model that does not change: `pulses.varying`.
    """
    rig, amplitudes = pulses.rig, pulses.amplitudes()
    if not amplitudes.any():
        return 0.0
    base = pulses.free_motion(SHIFT + AFTER)
    pulse = np.zeros((SHIFT + AFTER, rig.powers, len(amplitudes)))
    pulse[SHIFT, 0] = amplitudes
    later = (rig.trial().run(pulse) - base)[SHIFT:]
    pulses.answers(LONG)
    rows = min(AFTER, pulses.reach)
    now = pulses.answers(AFTER).h[:rows] @ amplitudes
    apart, p = later[:rows] - now, rig.outputs
    found = relative(apart[:, :p], now[:, :p], WEAK * np.abs(base[:, :p]).max(axis=0))
    if found <= BOUND:
        pulses.varying = np.abs(apart).max(axis=0)
    return found


def repeats(pulses: Pulses) -> float:
    """How much a second, equal run differs, relative to the motion; 0 for a unit that computes the same every time."""
    base = pulses.base
    return relative(pulses.unlike[None, :], base - base[0], WEAK * np.abs(base).max(axis=0))
