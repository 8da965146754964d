"""One run with equal macro steps: the live units, the engine that moves them, the rows and checkpoints they give."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import CheckpointError, ConfigurationError, EndRequested, StepDiscarded, UnitError
from cosimo.core.guarding import go_back, here
from cosimo.core.master import Master
from cosimo.core.result import Result, Warned
from cosimo.core.schedule import Convergence, Repeat, Step, flatten
from cosimo.core.system import System
from cosimo.execution.checkpoints.keeper import Keeper
from cosimo.execution.checkpoints.self_test import require_states
from cosimo.execution.engines import CarefulEngine, Engine, EngineOptions, KernelEngine, ReferenceEngine
from cosimo.execution.interrupts import Interrupts
from cosimo.execution.live import Live, Signals
from cosimo.execution.monitor_report import MonitorReport
from cosimo.execution.monitoring import Watch
from cosimo.execution.recording import Recorder

BLOCK = 4096
"""Rows per call of the engine: enough that the call costs nothing, few enough to stay in the processor's cache."""

Progress = Callable[[float, float], None]
"""Called from time to time with the simulated time reached and the stop time. If it has a method `watch`, that is
called before the first macro step with the run, whose `warnings_now()` and `busy()` can then be asked."""


class Session:
    """One run: the live units, the engine that moves them, and how far it got."""

    def __init__(
        self,
        system: System,
        master: Master,
        start: float,
        names: tuple[str, ...],
        options: EngineOptions,
        watch: Watch | None,
        keeper: Keeper | None,
    ) -> None:
        self.watch, self.keeper = watch, keeper
        self.stopped_at: float | None = None
        self.ended_by: tuple[str, float] | None = None
        """The unit that wanted the simulation to end, and when."""
        self.system, self.master, self.start, self.names, self.options = system, master, start, names, options
        self.live = self._instantiate()
        self.made = self.recorded = 0
        self.stepping = 0.0
        self.iterations, self.ranges = Iterations(master), Ranges(system, names)
        self.ready: Array | None = None
        self.resumed_at: list[float] = []
        self._resumed_from: Path | None = None
        self.interrupts = Interrupts()
        self.engine: Engine | None = None
        self._released: Live | None = None
        self._under_way: Array | None = None
        self._row: Array | None = None

    @property
    def reached(self) -> float:
        """The time of the last completed macro step, or at which a unit ended the simulation."""
        if self.ended_by is not None:
            return self.ended_by[1]
        return self.start + self.made * self.master.step

    @property
    def remedy(self) -> str:
        """How it goes on after an interruption, where there is a checkpoint."""
        if self.keeper is None or (time := self.keeper.wait()) is None:
            return ""
        return f"'cosimo resume {self.keeper.path}' goes on from t = {time:g}"

    def _instantiate(self) -> Live:
        return Live(self.system, self.master, self.start, tolerant=self.options.allow_non_finite)

    def run(self, count: int, recorder: Recorder, progress: Progress | None) -> None:
        """Make `count` macro steps; when a unit discards one and all can roll back, begin again with a safety net."""
        try:
            if self.keeper is not None and self._resumed_from is not None:
                self.keeper.go_on(self._resumed_from)
            self._steps(count, recorder, progress)
        except StepDiscarded as error:
            if reason := self._cannot_shorten():
                error.args = (f"{error} ({reason})", *error.args[1:])
                raise
            # States from before the step are gone. Units repeat what they did, so the run is made again up to here,
            # with states saved at every step; its rows are recorded already.
            self.release()
            try:
                require_states(self.system, self.master, self.start, self.system.units, as_bytes=False)
            except ConfigurationError as problem:
                error.args = (f"{error} (it cannot be made in shorter parts: {problem})", *error.args[1:])
                raise error from None
            self.live, self.engine, self.ready = self._instantiate(), None, None
            self.made, self.iterations = 0, Iterations(self.master)
            self._steps(count, recorder, progress, careful=True)

    def _cannot_shorten(self) -> str:
        """Why a discarded step cannot be made in shorter parts; empty where it can."""
        if self.master.mixers:
            return "a compensated master is designed for its macro step and cannot be run with a shorter one"
        if self.live.joints:
            return "a prediction is learned for its macro step and cannot be made for a shorter one"
        stuck = [name for name, unit in self.system.units.items() if not unit.can_restore]
        return f"rolling back needs all units to restore their states, and {', '.join(stuck)} cannot" if stuck else ""

    def take_up(self, saved: Mapping[str, Any]) -> None:
        """Go back to a checkpoint and make the macro step after it again, which must end as it did."""
        self.live.initialise()
        self.engine = engine = self._make(saved["careful"])
        self._resumed_from = path = saved["path"]
        self.made = saved["step"]
        # More than made + 1 while a run that began again with a safety net catches up with its rows.
        self.recorded = saved["position"]["taken"]
        self.iterations.load(saved["iterations"])
        self.ranges.found = dict(saved["ranges"])
        self.stepping, self.resumed_at = saved["stepping"], [*saved["resumed_at"], self.reached]
        self.ready = np.empty((1, 1 + len(self.names)))
        try:
            self._load(engine, saved)
            engine.advance(self.made, self.ready)
            after = engine.signals()
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as problem:
            raise CheckpointError(f"'{path}' does not fit this system: {problem}.") from problem
        require_replayed(saved["after"], after, self.live, path)
        if self.keeper is not None:  # there is one already, which needs the rows so far
            self.keeper.time = self.reached

    def _load(self, engine: Engine, saved: Mapping[str, Any]) -> None:
        try:
            engine.load(saved["memory"], self.made)
        except (UnitError, ConfigurationError) as problem:  # a unit that was given something else than it gave
            raise CheckpointError(f"cannot go on from '{saved['path']}': {problem}") from problem

    def _steps(self, count: int, recorder: Recorder, progress: Progress | None, *, careful: bool = False) -> None:
        """Initialise and make `count` macro steps, handing rows on block by block."""
        if self.ready is None:
            self.live.initialise()
            first = np.array([self.live.row(self.start, self.names)])
            self._record(recorder, 0, first)
            for name, instance in self.live.instances.items():
                if instance.ended is not None:
                    self.ended_by = name, self.start
                    return
            self.engine = self._make(careful)
        engine = self.engine
        assert engine is not None
        if (watch := getattr(progress, "watch", None)) is not None:
            watch(self)
        if self.ready is not None:
            self._take(engine, self.ready, recorder)
        block = np.empty((min(BLOCK, count) if isinstance(engine, KernelEngine) else 1, 1 + len(self.names)))
        try:
            while self.made < count and not (engine.diverged or engine.ended):
                if self.keeper is not None and self.keeper.due():
                    self._checkpoint(self.keeper, engine, recorder, block[:1])
                else:
                    self._advance(engine, recorder, block[: count - self.made])
                if progress is not None:
                    progress(self.reached, self.start + count * self.master.step)
        except EndRequested as asked:
            self._end(asked, recorder)
        if engine.diverged:
            self.stopped_at = self.reached
        elif engine.ended is not None:
            self.ended_by = engine.ended, self.reached

    def _end(self, asked: EndRequested, recorder: Recorder) -> None:
        """A unit ended the simulation within a macro step: the last row is its own."""
        assert self._row is not None
        assert asked.unit is not None
        last = self.live.last_row(self._row, self.names, asked)
        if last is not None:
            self._record(recorder, self.made + 1, last[None, :])
        self.ended_by = asked.unit, self.reached if last is None else asked.end

    def _advance(self, engine: Engine, recorder: Recorder, rows: Array) -> None:
        """As many macro steps as there are rows, or fewer."""
        begin, folder = time.perf_counter(), here()
        self._under_way = rows
        try:
            engine.advance(self.made, rows)
        finally:
            self._under_way = None
            self.interrupts.put_back()
            go_back(folder)
            self.stepping += time.perf_counter() - begin
            with self.interrupts.held():
                self._take(engine, rows, recorder)

    def rescue(self, recorder: Recorder) -> None:
        """Record what the engine has made in a call that does not return; the process ends next."""
        if isinstance(self.engine, KernelEngine) and self._under_way is not None:
            self._record(recorder, self.made + 1, self._under_way[: self.engine.made_so_far])
        recorder.flush()

    def _take(self, engine: Engine, rows: Array, recorder: Recorder) -> None:
        """Record what the engine made."""
        self._record(recorder, self.made + 1, rows[: engine.made])
        self.made += engine.made
        self.iterations.add(*engine.sweeps())

    def _checkpoint(self, keeper: Keeper, engine: Engine, recorder: Recorder, row: Array) -> None:
        """Take all that the run remembers, and the signals one macro step later."""
        k, reached = self.made, self.reached
        with self.interrupts.held():
            entries = {
                "step": k,
                "position": asdict(recorder.position(keeper.run)),
                "iterations": self.iterations.memory(),
                "ranges": dict(self.ranges.found),
                "stepping": self.stepping,
                "resumed_at": list(self.resumed_at),
                "careful": isinstance(engine, CarefulEngine),
                "memory": engine.memory(k),
            }
        self._advance(engine, recorder, row)
        keeper.take({**entries, "after": kept(engine.signals())}, reached, recorder.sync())

    def _make(self, careful: bool) -> Engine:
        if careful:
            return CarefulEngine(self.live, self.names, self.watch)
        if self.options.kind == "kernel":
            return KernelEngine(self.live, self.names, self.options, self.watch)
        return ReferenceEngine(self.live, self.names, self.watch)

    def _record(self, recorder: Recorder, number: int, rows: Array) -> None:
        """Hand on rows `number`, `number` + 1, …, except those recorded before a new beginning."""
        fresh = rows[max(0, self.recorded - number) :]
        if len(rows):
            self._row = rows[-1].copy()
        recorder.record(fresh)
        self.recorded += len(fresh)
        self.ranges.look(fresh)

    def warnings_now(self) -> list[Warned]:
        """What there is to warn of so far; to be asked by `progress`, between two macro steps."""
        report = self._monitored(final=False)
        return [] if report is None else report.warnings()

    def busy(self) -> str | None:
        """The unit that is being stepped, where that is known; any thread may ask."""
        return None if self.engine is None else self.engine.busy()

    def _monitored(self, *, final: bool) -> MonitorReport | None:
        if self.engine is None or self.watch is None or (seen := self.engine.findings(final)) is None:
            return None
        return MonitorReport(self.watch, seen, lambda k: self.live.time(k, 0.0), self.master.step)

    def release(self) -> None:
        """Let go of the units, then close them; once."""
        if self._released is self.live:
            return
        self._released = self.live
        if self.engine is not None:
            self.engine.close()
        self.live.close(self.reached)
        if self.keeper is not None:
            self.keeper.wait()

    def close(self, recorder: Recorder, warnings: list[Warned], *, complete: bool, ended: bool = False) -> Result:
        """End the recording; the result has all rows, or with a file none of them. `ended`: nothing is to go on."""
        info: dict[str, Any] = {"steps": self.made, "end": self.reached, "stepping_time": self.stepping}
        warned = list(warnings)
        if self.iterations.count:
            info |= self.iterations.info()
            warned += self._unconverged()
        if isinstance(self.engine, CarefulEngine):
            info["rollbacks"] = self.engine.rollbacks
        if self.live.joints:
            info["learned"] = self.live.learned()
        if (report := self._monitored(final=True)) is not None:
            warned += report.warnings()
            info |= {"monitors": report.info(), "stopped_at": self.stopped_at}
        if self.engine is not None:
            warned += _not_finite(self.engine.not_finite())
        warned += self.ranges.warnings()
        warned += self.live.notices(self.reached)
        if self.ended_by is not None:
            unit, at = self.ended_by
            info |= {"ended_by": unit, "ended_at": at}
            warned.append(Warned(f"unit '{unit}' ended the simulation; the run is complete", at))
        if self.resumed_at:
            info["resumed_at"] = self.resumed_at
        recorder.keep = not ended and self.keeper is not None and self.keeper.wait() is not None
        found = recorder.close(complete, warned, info=info)
        if ended and self.keeper is not None:
            self.keeper.remove()
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


def _not_finite(found: Mapping[str, tuple[float, float]]) -> list[Warned]:
    """One warning per output; only where the run was told to go on."""
    return [
        Warned(f"{name} became {value}; the run went on, as it was told", at) for name, (at, value) in found.items()
    ]


# ---- restoring is verified: the macro step after a checkpoint, made again, must give the same signals bit by ---------


def kept(signals: Signals) -> dict[str, Any]:
    """The signals as plain data."""
    return signals._asdict()


def require_replayed(before: dict[str, Any], now: Signals, live: Live, path: object) -> None:
    """Refuse to go on when a unit did something else than in the run that wrote the checkpoint."""
    order = dict.fromkeys(op.unit for op in flatten(live.master.schedule.operations) if isinstance(op, Step))
    for name in order:
        if not _same(before["outputs"].get(name), now.outputs[name]):
            raise CheckpointError(_said(live.system, name, before["outputs"].get(name), now.outputs[name], path))
    for name in order:
        if not _same(before["inputs"].get(name), now.inputs[name]):
            raise CheckpointError(
                f"cannot go on from '{path}': the inputs of unit '{name}' are not those of the run that wrote it."
            )
    if not _same(before["memories"], now.memories):
        raise CheckpointError(f"cannot go on from '{path}': its couplings remember something else.")


def _said(system: System, name: str, before: Any, now: Array, path: object) -> str:
    head = f"cannot go on from '{path}': unit '{name}' does not continue as it did"
    if before is None or before.shape != now.shape:
        return f"{head}."
    place = next(i for i in range(len(now)) if before[i].tobytes() != now[i].tobytes())
    return (
        f"{head}: one macro step after the checkpoint its output '{system.units[name].outputs[place]}' is "
        f"{now[place]!r:.40} instead of {before[place]!r:.40}; its state is not restored completely, or it has changed."
    )


def _same(before: Any, now: Array) -> bool:
    return before is not None and before.shape == now.shape and before.tobytes() == now.tobytes()


# ---- what is counted along a run, as sums, so that long runs take no more memory: iterations, values out of  ---------


class Iterations:
    """What happened in iterations until convergence."""

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

    def memory(self) -> dict[str, Any]:
        """All that is counted, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "until"}

    def load(self, memory: Mapping[str, Any]) -> None:
        """Go on counting from what `memory` gave."""
        vars(self).update({name: memory[name] for name in self.memory()})


class Ranges:
    """Values outside the range that their unit declares; looked at in the rows, so only what is recorded is seen."""

    def __init__(self, system: System, names: Sequence[str]) -> None:
        declared = {
            f"{unit}.{variable}": limits
            for unit, described in system.units.items()
            for variable, limits in described.ranges().items()
        }
        self._names = [name for name in names if name in declared]
        self._columns = [1 + place for place, name in enumerate(names) if name in declared]
        self._low, self._high = np.array([declared[name] for name in self._names]).reshape(-1, 2).T
        self._limits = declared
        self.found: dict[str, tuple[float, float, int]] = {}
        """By name: the time and the value of the first, and how many there were."""

    def look(self, rows: Array) -> None:
        """At the next rows, time first."""
        if not self._columns or not len(rows):
            return
        values = rows[:, self._columns]
        outside = (values < self._low) | (values > self._high)
        if not outside.any():
            return
        for place in np.flatnonzero(outside.any(axis=0)):
            name, hits = self._names[place], np.flatnonzero(outside[:, place])
            first = float(rows[hits[0], 0]), float(values[hits[0], place])
            time, value, count = self.found.get(name, (*first, 0))
            self.found[name] = (time, value, count + len(hits))

    def warnings(self) -> list[Warned]:
        """One per variable."""
        return [
            Warned(
                f"{name} is {value:.6g}, outside its declared range {_show(self._limits[name])}; the unit is used "
                f"beyond what it was made for",
                time,
                count,
            )
            for name, (time, value, count) in self.found.items()
        ]


def _show(limits: tuple[float, float]) -> str:
    low, high = limits
    left = "(−∞" if low == -math.inf else f"[{low:g}"
    return f"{left}, {'∞)' if high == math.inf else f'{high:g}]'}"
