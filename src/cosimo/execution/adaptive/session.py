"""One run with an adaptive step: the live units, the rows they give, and what is told at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosimo.core.errors import EndRequested
from cosimo.core.master import Master
from cosimo.core.result import Result, Warned
from cosimo.core.system import System
from cosimo.execution.adaptive.doubling import DoublingStepper
from cosimo.execution.adaptive.indicators import Tolerances
from cosimo.execution.adaptive.options import Adaptive, choose_lengths, order_of, require_adaptable
from cosimo.execution.adaptive.stepping import EnergyStepper, Plan, Stepper
from cosimo.execution.adaptive.variable import VariableInterpreter
from cosimo.execution.interrupts import Interrupts
from cosimo.execution.live import Live
from cosimo.execution.power_bonds import power_bonds
from cosimo.execution.recording import Output, Recorder, keeping_rows

STEP = "step"
"""The recorded signal that holds the length of the macro step before each row; 0 at the start."""

Progress = Callable[[float, float], None]


@dataclass(frozen=True)
class Span:
    """From when to when a run goes, the power pairs that are declared, and what is warned of before it begins."""

    start: float
    stop: float
    power_pairs: Sequence[tuple[str, str]] = ()
    warnings: Sequence[Warned] = ()


def run_adaptive(
    system: System,
    master: Master,
    adaptive: Adaptive,
    span: Span,
    *,
    inputs: bool,
    output: Output | None,
    progress: Progress | None,
    metadata: Mapping[str, Any],
) -> Result:
    """As `execution.run`, with one row per accepted macro step; `inputs` are recorded too if wanted."""
    require_adaptable(system, master, adaptive)
    lengths = choose_lengths(adaptive, master.step, span.start, span.stop)
    order = adaptive.order or order_of(system, master)
    tolerances = Tolerances(adaptive.relative, adaptive.absolute)
    plan = Plan(lengths, order, tolerances, power_bonds(system, span.power_pairs))
    names = (*system.outputs, *(system.input_names if inputs else ()), STEP)
    info = {"system": system.name, "master": master.name, "schedule": str(master), "step": master.step}
    info |= {"adaptive": adaptive.to_dict(), **metadata}
    recorder = output.open(names, info) if output else Recorder(None, names, metadata=info)
    with recorder:
        first = master.with_step(lengths.first * lengths.grid.quantum)
        session = _Session(Live(system, first, span.start), master.step, plan, inputs)
        session.names = names
        try:
            with keeping_rows(session, recorder), session.interrupts, np.errstate(over="ignore", invalid="ignore"):
                session.run(adaptive, recorder, progress)
        finally:
            session.live.close()
        return session.close(recorder, span.warnings, complete=True)


class _Session:
    remedy = ""  # it cannot go on

    def __init__(self, live: Live, nominal: float, plan: Plan, inputs: bool) -> None:
        self.live, self.nominal, self.plan, self.lengths, self.inputs = live, nominal, plan, plan.lengths, inputs
        self.interrupts = Interrupts()
        self.stepper: Stepper | None = None
        self.place = self.accepted = 0
        self.extremes = (plan.lengths.grid.total, 0)
        self.names: tuple[str, ...] = ()
        self.ended_by: tuple[str, float] | None = None
        self._row = np.empty(0)
        self.stepping = 0.0

    @property
    def reached(self) -> float:
        """The time of the last accepted macro step, or at which a unit ended the simulation."""
        if self.ended_by is not None:
            return self.ended_by[1]
        return self.lengths.grid.time(self.place)

    def run(self, adaptive: Adaptive, recorder: Recorder, progress: Progress | None) -> None:
        """Initialise, and go on until the end is reached exactly."""
        self.live.initialise()
        self._row = np.array(self.row(0, 0))
        recorder.record(self._row[None, :])
        kind = EnergyStepper if adaptive.kind == "energy" else DoublingStepper
        interpreter = VariableInterpreter(self.live, self.lengths.grid, self.lengths.first, self.nominal)
        self.stepper = kind(interpreter, self.plan, self.row)
        try:
            self._steps(self.stepper, recorder, progress)
        except EndRequested as asked:
            self._end(asked, recorder)

    def _steps(self, stepper: Stepper, recorder: Recorder, progress: Progress | None) -> None:
        grid = self.lengths.grid
        while self.place < grid.total and not stepper.interpreter.ends:
            begin = time.perf_counter()
            try:
                done = stepper.advance(self.place)
            finally:
                self.stepping += time.perf_counter() - begin
            with self.interrupts.held():
                recorder.record(done.rows)
                self._row = np.array(done.rows[-1])
                self.place += sum(done.lengths)
                self.accepted += len(done.lengths)
                least, most = self.extremes
                self.extremes = min(least, *done.lengths), max(most, *done.lengths)
            if progress is not None:
                progress(self.reached, grid.stop)
        if stepper.interpreter.ends:
            self.ended_by = next(iter(stepper.interpreter.ends)), self.reached

    def _end(self, asked: EndRequested, recorder: Recorder) -> None:
        """A unit ended the simulation within a macro step: the last row is its own."""
        assert asked.unit is not None
        last = self.live.last_row(self._row, self.names, asked)
        if last is not None:
            last[-1] = asked.end - self._row[0]
            recorder.record(last[None, :])
        self.ended_by = asked.unit, self.reached if last is None else asked.end

    def row(self, place: int, length: int) -> list[float]:
        """Time, outputs, inputs if wanted, and the macro step that led here."""
        live, grid = self.live, self.lengths.grid
        values = live.outputs() + (live.inputs() if self.inputs else [])
        return [grid.time(place), *values, length * grid.quantum]

    def close(self, recorder: Recorder, warnings: Sequence[Warned], *, complete: bool) -> Result:
        """End the recording; the result has all rows, or with a file none of them."""
        quantum = self.lengths.grid.quantum
        info: dict[str, Any] = {
            "steps": self.accepted,
            "end": self.reached,
            "stepping_time": self.stepping,
            "accepted": self.accepted,
            "rejected": 0,
            "quantum": quantum,
        }
        if self.accepted:
            info |= {"shortest_step": self.extremes[0] * quantum, "longest_step": self.extremes[1] * quantum}
        warned = list(warnings)
        if self.stepper is not None:
            info |= self.stepper.told()
            warned += self.stepper.warnings()
        warned += self.live.notices(self.reached)
        if self.ended_by is not None:
            unit, at = self.ended_by
            info |= {"ended_by": unit, "ended_at": at}
            warned.append(Warned(f"unit '{unit}' ended the simulation; the run is complete", at))
        found = recorder.close(complete, warned, info=info)
        if found is None:
            empty = np.empty((0, len(recorder.names)))
            return Result(recorder.names, np.empty(0), empty, tuple(warned), complete, info)
        return found
