"""Macro steps as long as accuracy allows: `run(system, master, stop=…, adaptive=Adaptive(...))`.

Steps are whole multiples of a quantum of time (`variable.py`). Lengths are rounded to eight per octave, so that the
constants of a length are worked out once. With ε the error of a step as a multiple of what is tolerated, and
p the order of the master, the next step is that of a PI controller,

    h' = 0.9 h ε^(−0.7 / (p + 1)) ε_before^(0.4 / (p + 1)),        h/5 ≤ h' ≤ 2 h.

"energy" takes ε from power bonds and connection defects: nothing is repeated, every step is accepted. "doubling" makes
every two steps also as one of twice the length, and again when ε > 1 (`steppers.py`). Steps end where external inputs
jump (`stepping.py`); afterwards, as at the start, they begin short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, EndRequested
from cosimo.core.master import Master
from cosimo.core.result import Result, Warned
from cosimo.core.schedule import Repeat, Restore, Save, Step
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, timeline
from cosimo.execution.adaptive.steppers import DoublingStepper, EnergyStepper, KernelStepper
from cosimo.execution.adaptive.stepping import Plan, Stepper, Tolerances
from cosimo.execution.adaptive.variable import choose_lengths
from cosimo.execution.checkpoints import CheckpointWriter
from cosimo.execution.live import Live, Signals
from cosimo.execution.monitoring import Iterations
from cosimo.execution.options import Adaptive, RunOptions
from cosimo.execution.power_bonds import power_bonds
from cosimo.execution.recording import Recorder
from cosimo.execution.session import Session, recorded_names

STEP = "step"  # the recorded signal that holds the length of the macro step before each row; 0 at the start


def plan_of(system: System, master: Master, options: RunOptions) -> Plan:
    """What the macro steps of a run go by; refuses what cannot be run with steps of different lengths, by name."""
    adaptive = options.adaptive
    assert adaptive is not None
    require_adaptable(system, master, adaptive)
    lengths = choose_lengths(adaptive, master.step, options.start, options.stop)
    order = adaptive.order or order_of(system, master)
    tolerances = Tolerances(adaptive.relative, adaptive.absolute)
    bonds = power_bonds(system, options.power_pairs)
    return Plan(adaptive.kind, lengths, master.step, order, tolerances, bonds)


class AdaptiveSteps(Session):
    """A run with macro steps of any length: one row per accepted macro step."""

    def __init__(
        self,
        system: System,
        master: Master,
        options: RunOptions,
        plan: Plan,
        writer: CheckpointWriter | None = None,
    ) -> None:
        first = master.with_step(plan.lengths.first * plan.lengths.grid.quantum)
        names = (*recorded_names(system, master, options), STEP)
        super().__init__(Live(system, first, options.start), names, writer)
        self.options, self.plan, self.grid = options, plan, plan.lengths.grid
        self.stepper: Stepper | None = None
        self._released = False

    def _completed(self) -> float:
        return self.grid.time(0 if self.stepper is None else self.stepper.tally.place)

    def _run(self, recorder: Recorder) -> None:
        """Initialise, and go on until the end is reached exactly."""
        if self.stepper is None:
            self.live.initialise()
            self._row = np.array([*self.live.row(self.grid.start, self.names[:-1]), 0.0])
            recorder.record(self._row[None, :])
            if self._ended_at_once(self.grid.start):
                return
            self.stepper = self._make()
        else:
            self._take(self.stepper, recorder)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                self._steps(self.stepper, recorder)
        except EndRequested as asked:
            self._end(asked, recorder)

    def _entries(self) -> dict[str, Any]:
        assert self.stepper is not None
        nothing = {"iterations": Iterations(self.live.master).memory(), "ranges": {}, "careful": False}
        return {**nothing, "step": self.stepper.tally.accepted, "memory": self.stepper.memory(self._completed())}

    def _put_back(self, saved: Mapping[str, Any]) -> None:
        self.stepper = self._make()
        self._load(self.stepper.load, saved, self.grid.start)
        if not (self.stepper.tally.accepted == saved["step"] and 0 <= self.stepper.tally.place < self.grid.total):
            raise ValueError("its macro steps are not those of this run")

    def _once(self, recorder: Recorder | None) -> Signals:
        assert self.stepper is not None
        if recorder is None:
            with np.errstate(over="ignore", invalid="ignore"):
                self.stepper.advance(once=True)
        else:
            self._advance(self.stepper, recorder, once=True)
        return self.stepper.signals()

    def _make(self) -> Stepper:
        live, plan, names, engine = self.live, self.plan, self.names[:-1], self.options.engine
        # The compiled loop cannot take back texts that were passed on.
        if engine.kind == "kernel" and not (plan.kind == "doubling" and live.system.text_links):
            return KernelStepper(live, plan, names, engine)
        return (EnergyStepper if plan.kind == "energy" else DoublingStepper)(live, plan, names)

    def _steps(self, stepper: Stepper, recorder: Recorder) -> None:
        progress = self.options.progress
        while stepper.tally.place < self.grid.total and stepper.ended is None:
            if self.writer is not None and self.writer.due():
                self._checkpoint(self.writer, recorder)
            else:
                self._advance(stepper, recorder)
            if progress is not None:
                progress(self.reached, self.grid.stop)
        if stepper.ended is not None:
            self.ended_by = stepper.ended, self.reached

    def _advance(self, stepper: Stepper, recorder: Recorder, *, once: bool = False) -> None:
        try:
            with self._calling():
                stepper.advance(once=once)
        finally:
            with self.interrupts.held():
                self._take(stepper, recorder)

    def _take(self, stepper: Stepper, recorder: Recorder) -> None:
        if len(stepper.rows):
            recorder.record(stepper.rows)
            self._row = np.array(stepper.rows[-1])

    def rescue(self, recorder: Recorder) -> None:
        if isinstance(self.stepper, KernelStepper):
            recorder.record(self.stepper.made_so_far())
        recorder.flush()

    def release(self) -> None:
        if self._released:
            return
        self._released = True
        if self.stepper is not None:
            self.stepper.close()
        self.live.close(self.reached)
        if self.writer is not None:
            self.writer.wait()

    def _record_last(self, recorder: Recorder, row: Array) -> None:
        row[-1] = row[0] - self._row[0]
        recorder.record(row[None, :])

    def close(self, recorder: Recorder, warnings: Sequence[Warned], *, complete: bool, ended: bool = False) -> Result:
        quantum, tally = self.grid.quantum, None if self.stepper is None else self.stepper.tally
        accepted = 0 if tally is None else tally.accepted
        info: dict[str, Any] = {
            "steps": accepted,
            "end": self.reached,
            "stepping_time": self.stepping,
            "accepted": accepted,
            "rejected": 0,
            "quantum": quantum,
        }
        warned = list(warnings)
        if self.stepper is not None and tally is not None:
            if accepted:
                info |= {"shortest_step": tally.extremes[0] * quantum, "longest_step": tally.extremes[1] * quantum}
            info |= self.stepper.told()
            warned += self.stepper.warnings()
        warned += self.live.notices(self.reached)
        return self._result(recorder, complete, ended, warned, info)


def require_adaptable(system: System, master: Master, adaptive: Adaptive) -> None:
    """Refuse what cannot be run with steps of different lengths, by name."""
    if master.mixers:
        raise ConfigurationError(
            "a compensated master works only at the step size it was designed for; leave out the adaptive step or "
            "the compensation."
        )
    if system.clock_links:
        source, target = (".".join(end) for end in system.clock_links[0])
        raise ConfigurationError(
            f"the clocks {source} → {target} end macro steps at events, which adaptive steps do not follow; run it "
            "without an adaptive step."
        )
    for operation in master.schedule.operations:
        if isinstance(operation, Repeat | Save | Restore) or (isinstance(operation, Step) and operation.fraction != 1):
            raise ConfigurationError(
                f"master '{master.name}' iterates or steps units several times, which adaptive steps cannot follow; "
                f"use jacobi, gauss-seidel, groups or jacobi-early-read."
            )
    couples = [op for op in timeline(system, master).operations if isinstance(op, TimedCouple)]
    for name, unit in system.units.items():
        for inlet in system.inlets[name]:
            coupling = master.coupling_of(inlet.target)
            if (inlet.link or inlet.source) and not coupling.follows_step_lengths:
                raise ConfigurationError(
                    f"the coupling {coupling} of input {inlet.target} does not follow steps of different lengths; an "
                    f"adaptive step needs Hold(0), Hold(1) or Hold(2)."
                )
            if coupling.degree and any(op.unit == name and op.time > 0 for op in couples):
                raise ConfigurationError(
                    f"input {inlet.target} is formed at the end of the macro step, for a step whose length is not yet "
                    f"known; use Hold(0) there."
                )
        if not unit.variable_step:
            raise ConfigurationError(
                f"unit '{name}' does not accept steps of different lengths (its description does not declare "
                f"canHandleVariableCommunicationStepSize); run it without an adaptive step."
            )
        if adaptive.kind == "doubling" and not unit.can_restore:
            raise ConfigurationError(
                f"unit '{name}' cannot restore its state, which step doubling needs; use the kind 'energy'."
            )


def order_of(system: System, master: Master) -> int:
    """The order of the master for exact units: the least of its couplings."""
    return min((master.coupling_of(link.connection.target).error_order for link in system.links), default=1)
