"""Running a system: `run` makes the macro steps, records the rows, and keeps them whatever happens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from cosimo.adaptive import Adaptive, run_adaptive
from cosimo.adaptive.session import Span
from cosimo.bonds import power_bonds
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, StepDiscarded
from cosimo.core.joint import joints
from cosimo.core.master import Master
from cosimo.core.result import Result, Warned
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.system import Inlet, System
from cosimo.engines import Engine, EngineOptions, KernelEngine, ReferenceEngine
from cosimo.interrupts import Interrupts
from cosimo.monitor_report import MonitorReport
from cosimo.monitoring import Watch
from cosimo.recording import Output, Recorder, keeping_rows
from cosimo.reference import Interpreter
from cosimo.rollback import CarefulEngine

BLOCK = 4096
"""Rows per call of the engine: enough that the call costs nothing, few enough to stay in the processor's cache."""

MOST_STEPS = 2.0**53
"""Beyond this, time stamps t0 + k·h could no longer be told apart."""

Progress = Callable[[float, float], None]
"""Called from time to time with the simulated time reached and the stop time."""


def run(
    system: System,
    master: Master,
    *,
    stop: float,
    start: float = 0.0,
    record: Literal["outputs", "all"] = "outputs",
    output: Output | None = None,
    engine: EngineOptions | None = None,
    adaptive: Adaptive | None = None,
    progress: Progress | None = None,
    metadata: Mapping[str, Any] | None = None,
    power_pairs: Sequence[tuple[str, str]] = (),
    stop_on_divergence: bool = False,
) -> Result:
    """Run `system` under `master` from `start` to `stop`; one row per macro step, the initial one included.

    Rows stay in memory, or go to `output` while the run goes on (the result then holds no rows but all else), together
    with `metadata`, plain data that says where the run comes from. Errors while running carry the rows completed so far
    in `.result`. With `adaptive`, macro steps are as long as its tolerances allow, by the plain interpreter; `step` is
    recorded too.

    Runs are watched (monitoring.py): what is found is in the result's warnings and in `info["monitors"]`. `power_pairs`
    are pairs (input, output) of one unit whose product is the power that enters it, beside those that are detected.
    `stop_on_divergence` ends a run that is found to be unstable; `info["stopped_at"]` is then the time.
    """
    if record not in ("outputs", "all"):
        raise ConfigurationError(f"record is 'outputs' or 'all', not '{record}'.")
    if adaptive is not None:
        if stop_on_divergence:
            raise ConfigurationError("an adaptive run is not watched for growth; leave stop_on_divergence out.")
        span = Span(start, stop, power_pairs)
        return _run_adaptive(system, master, adaptive, span, record, output, engine, progress, metadata)
    steps, warnings = _count(start, stop, master.step)
    warnings += _cut(system, master, start)
    options = engine or EngineOptions()
    watch = _watch(system, options, power_pairs, stop_on_divergence)
    names = system.outputs + (system.input_names if record == "all" else ())
    names += tuple(signal for joint in joints(system, master) for signal in joint.signals)
    info: dict[str, Any] = {"system": system.name, "master": master.name, "schedule": str(master), "step": master.step}
    info |= dict(metadata or {})
    recorder = output.open(names, info) if output else Recorder(None, names, metadata=info)
    with recorder:
        recorder.reserve(steps + 1)
        session = _Session(system, master, start, names, options, watch)
        try:
            with keeping_rows(session, recorder), session.interrupts:
                session.run(steps, recorder, progress)
        finally:
            session.release()
        if session.stopped_at is not None:
            warnings = [warned for warned in warnings if warned.time <= session.stopped_at]
        return session.close(recorder, warnings, complete=session.stopped_at is None)


def _run_adaptive(
    system: System,
    master: Master,
    adaptive: Adaptive,
    span: Span,
    record: str,
    output: Output | None,
    engine: EngineOptions | None,
    progress: Progress | None,
    metadata: Mapping[str, Any] | None,
) -> Result:
    if engine is not None and (engine.parallel or engine.threads):
        raise ConfigurationError("an adaptive run steps its units one after the other; leave parallel and threads out.")
    span = replace(span, warnings=_cut(system, master, span.start))
    return run_adaptive(
        system,
        master,
        adaptive,
        span,
        inputs=record == "all",
        output=output,
        progress=progress,
        metadata=metadata or {},
    )


class _Session:
    """One run: the live units, the engine that moves them, and how far it got."""

    def __init__(
        self,
        system: System,
        master: Master,
        start: float,
        names: tuple[str, ...],
        options: EngineOptions,
        watch: Watch | None,
    ) -> None:
        self.watch = watch
        self.stopped_at: float | None = None
        self.system, self.master, self.start, self.names, self.options = system, master, start, names, options
        self.interpreter = Interpreter(system, master, start)
        self.made = self.recorded = 0
        self.stepping = 0.0
        self.iterations = _Iterations(master)
        self.interrupts = Interrupts()
        self.engine: Engine | None = None

    @property
    def reached(self) -> float:
        """The time of the last completed macro step."""
        return self.start + self.made * self.master.step

    def run(self, count: int, recorder: Recorder, progress: Progress | None) -> None:
        """Make `count` macro steps; when a unit discards one and all can roll back, begin again with a safety net."""
        try:
            self._steps(count, recorder, progress)
        except StepDiscarded as error:
            if reason := self._cannot_shorten():
                error.args = (f"{error} ({reason})", *error.args[1:])
                raise
            # States from before the step are gone. Units repeat what they did, so the run is made again up to here,
            # with states saved at every step; its rows are recorded already.
            self.release()
            self.interpreter, self.engine = Interpreter(self.system, self.master, self.start), None
            self.made, self.iterations = 0, _Iterations(self.master)
            self._steps(count, recorder, progress, careful=True)

    def _cannot_shorten(self) -> str:
        """Why a discarded step cannot be made in shorter parts; empty where it can."""
        if self.master.mixers:
            return "a compensated master is designed for its macro step and cannot be run with a shorter one"
        if self.interpreter.joints:
            return "a prediction is learned for its macro step and cannot be made for a shorter one"
        stuck = [name for name, unit in self.system.units.items() if not unit.can_restore]
        return f"rolling back needs all units to restore their states, and {', '.join(stuck)} cannot" if stuck else ""

    def _steps(self, count: int, recorder: Recorder, progress: Progress | None, *, careful: bool = False) -> None:
        """Initialise and make `count` macro steps, handing rows on block by block."""
        self.interpreter.initialise()
        first = np.array([ReferenceEngine(self.interpreter, self.names).row(0)])
        self._record(recorder, 0, first)
        engine = self.engine = self._make(careful)
        block = np.empty((min(BLOCK, count) if isinstance(engine, KernelEngine) else 1, 1 + len(self.names)))
        while self.made < count:
            rows = block[: count - self.made]
            begin = time.perf_counter()
            try:
                engine.advance(self.made, rows)
            finally:
                self.stepping += time.perf_counter() - begin
                with self.interrupts.held():
                    self._record(recorder, self.made + 1, rows[: engine.made])
                    self.made += engine.made
                    self.iterations.add(*engine.sweeps())
            if progress is not None:
                progress(self.reached, self.start + count * self.master.step)
            if engine.diverged:
                self.stopped_at = self.reached
                return

    def _make(self, careful: bool) -> Engine:
        if careful:
            return CarefulEngine(self.interpreter, self.names, self.watch)
        if self.options.kind == "kernel":
            return KernelEngine(self.interpreter, self.names, self.options, self.watch)
        return ReferenceEngine(self.interpreter, self.names, self.watch)

    def _record(self, recorder: Recorder, number: int, rows: Array) -> None:
        """Hand on rows `number`, `number` + 1, …, except those recorded before a new beginning."""
        fresh = rows[max(0, self.recorded - number) :]
        recorder.record(fresh)
        self.recorded += len(fresh)

    def release(self) -> None:
        """Let go of the units, then close them."""
        if self.engine is not None:
            self.engine.close()
        self.interpreter.close()

    def close(self, recorder: Recorder, warnings: list[Warned], *, complete: bool) -> Result:
        """End the recording; the result has all rows, or with a file none of them."""
        info: dict[str, Any] = {"steps": self.made, "end": self.reached, "stepping_time": self.stepping}
        warned = list(warnings)
        if self.iterations.count:
            info |= self.iterations.info()
            warned += self._unconverged()
        if isinstance(self.engine, CarefulEngine):
            info["rollbacks"] = self.engine.rollbacks
        if self.interpreter.joints:
            info["learned"] = self.interpreter.learned()
        if self.engine is not None and self.watch is not None and (seen := self.engine.findings()) is not None:
            report = MonitorReport(self.watch, seen, lambda k: self.interpreter.time(k, 0.0), self.master.step)
            warned += report.warnings()
            info |= {"monitors": report.info(), "stopped_at": self.stopped_at}
        found = recorder.close(complete, warned, info=info)
        if found is None:
            empty = np.empty(0)
            return Result(recorder.names, empty, np.empty((0, len(recorder.names))), tuple(warned), complete, info)
        return found

    def _unconverged(self) -> list[Warned]:
        """One warning for all iterations that did not converge, with the time of the first."""
        found, until = self.iterations, self.iterations.until
        if until is None or not found.failed:
            return []
        per_step = found.count // max(1, self.made) or 1
        first = self.start + float(found.first_failed // per_step) * self.master.step
        message = (
            f"the iteration did not converge in {until.limit} sweeps (residual {found.first_residual:.1e}, wanted "
            f"{until.tolerance:g}); use Anderson acceleration, a smaller step, or a larger limit"
        )
        return [Warned(message, first, found.failed)]


class _Iterations:
    """What happened in iterations until convergence, as sums, so that a run of any length takes no memory."""

    def __init__(self, master: Master) -> None:
        repeats = [op.times for op in master.schedule.operations if isinstance(op, Repeat)]
        self.until = next((times for times in repeats if isinstance(times, Convergence)), None)
        self.count = self.sweeps = self.failed = self.first_failed = 0
        self.worst = self.first_residual = 0.0

    def add(self, sweeps: Sequence[int], residuals: Sequence[float]) -> None:
        """Take over what an engine counted."""
        if not sweeps or self.until is None:
            return
        found = np.asarray(residuals)
        over = np.flatnonzero(found > self.until.tolerance)
        if len(over) and not self.failed:
            self.first_failed, self.first_residual = self.count + int(over[0]), float(found[over[0]])
        self.failed += len(over)
        self.count += len(found)
        self.sweeps += int(np.sum(sweeps))
        self.worst = max(self.worst, float(found.max()))

    def info(self) -> dict[str, Any]:
        """For the result: all sweeps, the largest residual at the end of an iteration, and how many failed."""
        return {"sweeps": self.sweeps, "largest_residual": self.worst, "unconverged": self.failed}


def _watch(
    system: System, options: EngineOptions, pairs: Sequence[tuple[str, str]], stop_on_divergence: bool
) -> Watch | None:
    """What is watched, or nothing."""
    if options.monitors:
        return Watch(system, power_bonds(system, pairs), stop_on_divergence)
    if stop_on_divergence or pairs:
        raise ConfigurationError("monitors are switched off; nothing can be said of power pairs or divergence.")
    return None


def _cut(system: System, master: Master, start: float) -> list[Warned]:
    """A warning for inputs whose unit takes less of the polynomial than their coupling forms."""
    cut = [
        inlet.target
        for name, unit in system.units.items()
        for inlet in system.inlets[name]
        if _formed(master, name, inlet) > unit.input_degree
    ]
    if not cut:
        return []
    names = f"{', '.join(cut[:5])}{' …' if len(cut) > 5 else ''}"
    return [Warned(f"{names} cannot take the slope of the input: each step holds its value at the start", start)]


def _formed(master: Master, unit: str, inlet: Inlet) -> int:
    """The degree of the polynomial that the master forms for one input."""
    if inlet.link is None and inlet.source is None:
        return 0
    mixer = master.mixers.get(unit) if inlet.link is not None else None
    return master.coupling_of(inlet.target).degree if mixer is None else mixer.degree


def _count(start: float, stop: float, step: float) -> tuple[int, list[Warned]]:
    """How many macro steps fit, and a warning when they do not end at `stop`."""
    if not (math.isfinite(start) and math.isfinite(stop) and stop > start):
        raise ConfigurationError(f"the stop time ({stop:g}) must be a number greater than the start time ({start:g}).")
    ratio = (stop - start) / step
    if ratio > MOST_STEPS:
        raise ConfigurationError(f"the run has {ratio:.1e} macro steps of {step:g}; that cannot be meant.")
    steps = round(ratio)
    # The stop time itself is rounded, which counts when the start is late and the step short.
    rounding = 2 * math.ulp(max(abs(start), abs(stop))) / step
    if abs(ratio - steps) <= 1e-9 * max(1.0, ratio) + rounding and steps > 0:
        return steps, []
    steps = math.floor(ratio)
    if steps < 1:
        raise ConfigurationError(f"the macro step {step:g} is longer than the run from {start:g} to {stop:g}.")
    end = start + steps * step
    return steps, [Warned(f"the run ends here: {stop:g} is not a whole number of macro steps of {step:g} away", end)]
