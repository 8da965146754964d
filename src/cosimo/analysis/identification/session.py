"""One identification: trials, candidates for a model in order of preference, checks, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cosimo.analysis.identification import hidden
from cosimo.analysis.identification.bench import Allowance, Bench, TrialFailed
from cosimo.analysis.identification.checks import (
    BOUND,
    ONCE_MORE,
    SHIFT,
    UNSEEN,
    FreeMotion,
    fit_error,
    free_motion,
    repeats,
    variation,
)
from cosimo.analysis.identification.continuous import Continuous, continuous_model
from cosimo.analysis.identification.excitation import LONG, SHORT
from cosimo.analysis.identification.hidden import FIRST, LOCAL, realise, realise_locally
from cosimo.analysis.identification.identified import Identified, Means
from cosimo.analysis.identification.operating import FmuStates, OperatingPoint, state_access
from cosimo.analysis.identification.powers import with_powers
from cosimo.analysis.identification.pulses import Manner, Pulses
from cosimo.analysis.identification.realisation import Realisation
from cosimo.analysis.identification.visible import from_states
from cosimo.core.arrays import Array
from cosimo.core.unit import DiscreteModel, LinearModel, Unit
from cosimo.units.integrators import Exact, discretise

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


class Session:
    """One identification: the bench, its pulses, and candidates in order of preference.

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
        self._bench: Bench | None = None
        self.started = False

    def close(self) -> None:
        """Release all instances."""
        if self._bench is not None:
            self._bench.close()

    def run(self) -> Identified:
        """The best model; raises TrialFailed where there is none."""
        quiet = self.means == "experiments"
        access = None if quiet else state_access(self.unit)
        restore = self.unit.can_restore and not quiet
        bench = self._bench = Bench(
            self.unit, self.step, self.point, restore=restore, access=access, allowance=self._allowance
        )
        self.started = True
        pulses = Pulses(bench, self._scales, self._manner)
        reasons = self._require_answers(pulses)
        if self._manner is not None:
            repeat, steady = self._manner.repeat, self._manner.steady
        else:
            repeat, steady = repeats(pulses), variation(pulses)
        local = not steady <= BOUND
        best, fit = None, np.inf
        unseen = SHORT if local else ONCE_MORE if self._manner else UNSEEN
        for candidate in self._candidates(bench, pulses, local):
            error = fit_error(candidate.model, candidate.B, pulses, unseen)
            if best is None or error < fit:
                best, fit = candidate, error
            # A model that is local anyway is best where it is from: derivatives before answers over some steps.
            if error <= (BOUND if local else candidate.good):
                break
        assert best is not None
        return self._conclude(bench, pulses, best, {"fit": fit, "steady": steady, "repeat": repeat}, reasons)

    # ---- ways to a model -----------------------------------------------------------------------------------------

    def _candidates(self, bench: Bench, pulses: Pulses, local: bool) -> Iterator[_Candidate]:
        reasons: tuple[str, ...] = ()
        own: LinearModel | None = None
        initial = pulses.base[0, bench.outputs :] if bench.access is not None else None
        if self.means == "derivatives":
            try:
                own = linearise(bench)
                exact = discretise(own, Exact(), 1, self.step)
                B = exact.B[:, : bench.powers * len(self.unit.inputs)]
                model = Realisation(exact.A, B[:, : len(self.unit.inputs)], own.C, own.D)
                yield _Candidate(model, B, initial, own, (), EXACT_FIT)
                reasons = ("the unit's solver differs from the exact solution; its map was corrected by real steps",)
            except TrialFailed as failure:
                reasons = (f"not by derivatives: {failure}",)
                self.means = "differences"
        if bench.access is not None:
            visible = from_states(pulses, FIRST if local else self._longest(pulses))
            if visible is not None:
                model, basis = visible
                seen = replace(model, C=np.vstack([model.C, basis]), D=np.vstack([model.D, 0 * (basis @ model.B)]))
                B = with_powers(seen, bench, pulses.free_motion(FIRST), pulses.amplitudes())
                whole = basis.shape[1] == basis.shape[0]
                yield _Candidate(model, B, initial if whole else None, own if whole else None, reasons)
            reasons = (*reasons, "its visible states do not explain its outputs; they were realised from answers")
        first = hidden.ONCE_MORE if self._manner else hidden.FIRST
        found = realise_locally(pulses) if local else realise(pulses, self._longest(pulses), first)
        columns = len(self.unit.inputs)
        model = Realisation(found.model.A, found.model.B[:, :columns], found.model.C, found.model.D[:, :columns])
        unsettled = 0.0 if local else found.error
        if unsettled > UNSETTLED:
            reasons = (*reasons, "slow modes may be off; allow more steps_per_input or take a longer step")
        base = pulses.free_motion(min(len(found.answers.h), POWERS))
        B = with_powers(model, bench, base, pulses.amplitudes())
        yield _Candidate(model, B, None, None, reasons, unsettled=unsettled)

    def _longest(self, pulses: Pulses) -> int:
        """How long records may be: what is left of the steps allowed, after the trials that check."""
        bench = pulses.bench
        # Saved states are there to be used: the bound is meant for fresh instances.
        most = self._most * (4 if bench.restore else 1)
        allowed = most * max(len(bench.free), 1) - (bench.steps - bench.run_up_steps)
        allowed -= UNSEEN + (POWERS if bench.powers > 1 else 0)
        return max((allowed + pulses.done) // pulses.count, FIRST)

    # ---- the verdict ---------------------------------------------------------------------------------------------

    def _require_answers(self, pulses: Pulses) -> list[str]:
        bench = pulses.bench
        names = self.unit.inputs
        reasons = [f"input '{names[i]}' is discrete and held at {bench.held[i]:g}" for i in bench.fixed]
        reasons += [f"output '{self.unit.outputs[j]}' is discrete and left out" for j in bench.constant]
        deaf = [i for i in bench.free if i not in pulses.responding]
        if bench.free and bench.outputs and pulses.still:
            pulsed = ", ".join(names[i] for i in bench.free)
            return [*reasons, f"its outputs stay constant, on their own and under pulses of {pulsed}"]
        reasons += [f"input '{names[i]}' has no effect within {LONG} steps" for i in deaf]
        for column in pulses.responding:
            probe = pulses.probes[column]
            if probe.amplitude < 0.5 * self._scales[column]:
                reasons.append(
                    f"pulses of '{names[column]}' were made as small as {probe.amplitude:g}, where two amplitudes "
                    f"agree to {probe.error:.1g}"
                )
        return reasons

    def _conclude(
        self, bench: Bench, pulses: Pulses, best: _Candidate, errors: Mapping[str, float], found: list[str]
    ) -> Identified:
        model, m = best.model, len(self.unit.inputs)
        local = not errors["steady"] <= BOUND
        motion = self._motion(bench, pulses, best, pulses.base[: LOCAL if local else None])
        wrong = [
            f"{what}: {value:.2g} where {BOUND:g} is the bound"
            for what, value in (
                ("it does not predict an answer that was not used for it", errors["fit"]),
                ("the unit does not answer linearly (two amplitudes, two signs)", pulses.linear),
                (f"the unit answers differently {SHIFT} steps later, the model is local", errors["steady"]),
                ("two equal runs of the unit differ", errors["repeat"]),
                ("its free motion is not that of the unit", motion.error),
                ("a record half as long predicts the rest otherwise", best.unsettled),
            )
            if not value <= BOUND
        ]
        logarithm = continuous_model(model.A, best.B[:, :m], model.C, model.D, self.step)
        own = Continuous(best.own) if best.own is not None else logarithm
        return Identified(
            source=self.unit,
            step=self.step,
            time=bench.time,
            model=DiscreteModel(model.A, best.B),
            C=model.C,
            D=model.D,
            initial=motion.initial,
            held=bench.held,
            input_offset=motion.input_offset,
            output_offset=motion.output_offset,
            continuous=own.model,
            means=self.means,
            unit_steps=bench.steps,
            fit=errors["fit"],
            linear=pulses.linear,
            invariant=errors["steady"],
            free=motion.error,
            amplitudes=pulses.amplitudes(),
            valid=not wrong,
            reasons=(*wrong, *best.reasons, *own.notes, *found),
            generator=logarithm.model if logarithm.model is not None else best.own,
            manner=self._manner or (None if wrong else self._found_manner(pulses, errors, best.good)),
        )

    @staticmethod
    def _found_manner(pulses: Pulses, errors: Mapping[str, float], good: float) -> Manner | None:
        """What further steps may take over; nothing where it might differ there."""
        same = pulses.straight and all(probe.responds for probe in pulses.probes.values()) and errors["fit"] <= good
        return Manner(pulses.bench.step, pulses.probes, errors["steady"], errors["repeat"]) if same else None

    @staticmethod
    def _motion(bench: Bench, pulses: Pulses, best: _Candidate, rows: Array) -> FreeMotion:
        rows = rows if pulses.straight else rows[:LONG]
        p, base = bench.outputs, rows[:, : bench.outputs]
        answers = pulses.answers(min(len(rows), LONG))
        moved = np.abs(base - base[0]).max(axis=0)
        for column in pulses.responding:
            moved = np.maximum(moved, np.abs(answers.h[:, :p, column]).max(axis=0) * pulses.probes[column].amplitude)
        sizes = np.maximum(moved, 1e-9 * np.abs(base).max(axis=0))
        return free_motion(best.model, bench.held, base, np.where(sizes > 0, sizes, 1.0), best.initial)


# ---- models from directional derivatives: the continuous A, B, C, D of an FMU that lists its states ------------------


def linearise(bench: Bench) -> LinearModel:
    """ẋ = A x + B u, y = C x + D u at the operating point, one derivative per state and continuous input."""
    access, unit = bench.access, bench.unit
    if not isinstance(access, FmuStates):
        raise TrialFailed("its description lists no continuous states, so that derivatives would miss its dynamics")
    knowns = [*access.names, *(unit.inputs[i] for i in bench.free)]
    unknowns = [*access.derivatives, *_real_outputs(unit)]
    n = len(access.names)
    jacobian = np.empty((len(unknowns), len(knowns)))
    with bench.instance() as live:
        instance: Any = live
        try:
            for column, known in enumerate(knowns):
                jacobian[:, column] = instance.directional_derivative(unknowns, [known], [1.0])
        except Exception as error:
            raise TrialFailed(f"its directional derivatives failed: {error}") from error
    if not np.isfinite(jacobian).all():
        raise TrialFailed("its directional derivatives are not all finite")
    return LinearModel(
        jacobian[:n, :n],
        _wide(jacobian[:n, n:], bench),
        _tall(jacobian[n:, :n], unit),
        _tall(_wide(jacobian[n:, n:], bench), unit),
    )


def _real_outputs(unit: Unit) -> list[str]:
    return [name for name in unit.outputs if name not in unit.discrete_outputs]


def _wide(columns: Array, bench: Bench) -> Array:
    """Columns of zeros for the inputs that are held fixed."""
    full = np.zeros((len(columns), len(bench.unit.inputs)))
    full[:, list(bench.free)] = columns
    return full


def _tall(rows: Array, unit: Unit) -> Array:
    """Rows of zeros for the outputs that have no derivatives."""
    full = np.zeros((len(unit.outputs), rows.shape[1]))
    full[[unit.outputs.index(name) for name in _real_outputs(unit)]] = rows
    return full
