"""One run while it goes on: the live units, the engine that moves them, the rows and checkpoints they give.

`Session` is what all runs have in common; `EqualSteps` makes macro steps of one length, `adaptive` those of any length.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import (
    CheckpointError,
    ConfigurationError,
    EndRequested,
    Interrupted,
    RunError,
    StepDiscarded,
    UnitError,
)
from cosimo.core.guarding import Interrupts, go_back, here
from cosimo.core.master import Master, joints
from cosimo.core.result import Result, Warned
from cosimo.core.schedule import Step, flatten
from cosimo.core.system import System
from cosimo.execution.checkpoints import CheckpointWriter, require_states
from cosimo.execution.engines import (
    CarefulEngine,
    CarefulKernelEngine,
    Engine,
    EventEngine,
    KernelEngine,
    ReferenceEngine,
)
from cosimo.execution.live import Live, Signals
from cosimo.execution.monitoring import (
    Iterations,
    MonitorReport,
    Ranges,
    Watch,
    held_steps,
    switch_warnings,
    watch_warnings,
)
from cosimo.execution.options import RunOptions
from cosimo.execution.power_bonds import power_bonds
from cosimo.execution.recording import Recorder

BLOCK, IN_PLACE = 4096, 65536
"""Rows per call of the engine: enough that the call costs little, few enough to stay in the processor's cache; and more
where they are written to where they stay. The kernel returns earlier when its interval is over."""


class Session(ABC):
    """A run that can be ended at any time with what it has; `names` are the signals of its rows.

    With a `writer`, it takes checkpoints.
    """

    def __init__(self, live: Live, names: tuple[str, ...], writer: CheckpointWriter | None) -> None:
        self.live, self.names, self.writer = live, names, writer
        self.interrupts = Interrupts()
        self.stepping = 0.0
        self.ended_by: tuple[str, float] | None = None  # the unit that wanted the simulation to end, and when
        self.stopped_at: float | None = None  # where it was found to diverge
        self.resumed_at: list[float] = []
        self._resumed_from: Path | None = None
        self._row = np.empty(0)

    @abstractmethod
    def _completed(self) -> float:
        """The time of the last completed macro step."""

    @property
    def reached(self) -> float:
        """The time of the last completed macro step, or at which a unit ended the simulation."""
        return self._completed() if self.ended_by is None else self.ended_by[1]

    @property
    def remedy(self) -> str:
        """How an interrupted run goes on; empty where it does not."""
        if self.writer is None or (time := self.writer.wait()) is None:
            return ""
        return f"'cosimo resume {self.writer.path}' continues from t = {time:g}"

    def run(self, recorder: Recorder) -> None:
        """Make all macro steps, from the beginning or from where the run was taken up."""
        if self.writer is not None and self._resumed_from is not None:
            self.writer.go_on(self._resumed_from)
        self._run(recorder)

    @abstractmethod
    def _run(self, recorder: Recorder) -> None: ...

    @abstractmethod
    def rescue(self, recorder: Recorder) -> None:
        """Record what the engine has made in a call that does not return; the process ends next."""

    @abstractmethod
    def release(self) -> None:
        """Let go of the units, then close them; once."""

    @abstractmethod
    def close(self, recorder: Recorder, warnings: Sequence[Warned], *, complete: bool, ended: bool = False) -> Result:
        """End the recording; the result has all rows, or with a file none of them. `ended`: nothing is to go on."""

    # ---- checkpoints ---------------------------------------------------------------------------------------------

    @abstractmethod
    def _entries(self) -> dict[str, Any]:
        """What a checkpoint needs to know of the run between two macro steps: `memory` is the engine's."""

    @abstractmethod
    def _put_back(self, saved: Mapping[str, Any]) -> None:
        """Be where `_entries` was asked for; the units are initialised."""

    @abstractmethod
    def _once(self, recorder: Recorder | None) -> Signals:
        """Make a macro step, or as few as are chosen together; the signals after it.

        Without a recorder, the rows wait until the run goes on.
        """

    def _checkpoint(self, writer: CheckpointWriter, recorder: Recorder) -> None:
        """Take all that the run remembers, and the signals one macro step later."""
        reached = self.reached
        with self.interrupts.held():
            position = asdict(recorder.position(writer.run))
            common = {"position": position, "stepping": self.stepping, "resumed_at": list(self.resumed_at)}
            entries = {**common, **self._entries()}
        after = self._once(recorder)
        writer.take({**entries, "after": after._asdict()}, reached, recorder.sync())

    def take_up(self, saved: Mapping[str, Any]) -> None:
        """Go back to a checkpoint and make the macro step after it again, which must end as it did."""
        self.live.initialise()
        self._resumed_from = path = saved["path"]
        self.stepping = saved["stepping"]
        try:
            self._put_back(saved)
            reached = self.reached
            after = self._once(None)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as problem:
            raise CheckpointError(f"'{path}' does not fit this system: {problem}.") from problem
        require_replayed(saved["after"], after, self.live, path)
        self.resumed_at = [*saved["resumed_at"], reached]
        if self.writer is not None:  # there is one already, which needs the rows so far
            self.writer.time = reached

    def _load(self, load: Callable[[dict[str, Any], float], None], saved: Mapping[str, Any], at: float) -> None:
        try:
            load(saved["memory"], at)
        except (UnitError, ConfigurationError) as problem:  # a unit that was given something else than it gave
            raise CheckpointError(f"cannot resume from '{saved['path']}': {problem}") from problem

    @abstractmethod
    def _record_last(self, recorder: Recorder, row: Array) -> None:
        """Record the row of a macro step within which a unit ended the simulation."""

    @contextmanager
    def keeping_rows(self, recorder: Recorder) -> Iterator[None]:
        """Whatever ends the run early, an error or Ctrl-C, carries the rows completed so far in `.result`."""
        recorder.text_source = lambda times: self.live.texts(times)
        try:
            yield
        except RunError as error:
            error.result = self.close(recorder, [], complete=False)
            raise
        except KeyboardInterrupt:
            goes_on = f"; {self.remedy}" if self.remedy else ""
            interrupted = Interrupted(f"interrupted at t = {self.reached:g}; the rows so far are kept{goes_on}.")
            interrupted.result = self.close(recorder, [], complete=False)
            raise interrupted from None

    def _ended_at_once(self, time: float) -> bool:
        """Whether a unit wants the simulation to end with its initialisation."""
        self.ended_by = next(((n, time) for n, unit in self.live.instances.items() if unit.ended is not None), None)
        return self.ended_by is not None

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Units are stepped: the time is taken, and what they do to handlers of signals and the folder undone."""
        begin, folder = time.perf_counter(), here()
        try:
            yield
        finally:
            self.interrupts.put_back()
            go_back(folder)
            self.stepping += time.perf_counter() - begin

    def _end(self, asked: EndRequested, recorder: Recorder) -> None:
        """A unit ended the simulation within a macro step: the last row is its own."""
        assert asked.unit is not None
        last = self.live.last_row(self._row, self.names, asked)
        if last is not None:
            self._record_last(recorder, last)
        self.ended_by = asked.unit, self.reached if last is None else asked.end

    def _result(
        self, recorder: Recorder, complete: bool, ended: bool, warned: list[Warned], info: dict[str, Any]
    ) -> Result:
        """Close the recorder, and say who ended the simulation."""
        if self.resumed_at:
            info["resumed_at"] = self.resumed_at
        recorder.keep = not ended and self.writer is not None and self.writer.wait() is not None
        if self.ended_by is not None:
            unit, at = self.ended_by
            info |= {"ended_by": unit, "ended_at": at}
            warned.append(Warned(f"unit '{unit}' ended the simulation; the run is complete", at))
        rows = recorder.close(complete, warned, info=info)
        if ended and self.writer is not None:
            self.writer.remove()
        if rows is None:
            empty = np.empty((0, len(recorder.names)))
            return Result(recorder.names, np.empty(0), empty, tuple(warned), complete, info)
        return rows


def recorded_names(system: System, master: Master, options: RunOptions) -> tuple[str, ...]:
    """The signals of a run's rows: outputs, inputs where they are wanted, and what predictors say."""
    names = system.outputs + (system.input_names if options.record == "all" else ())
    return names + tuple(signal for joint in joints(system, master) for signal in joint.signals)


def watch_of(system: System, options: RunOptions) -> Watch | None:
    """What is watched, or nothing."""
    if not options.engine.monitors:
        return None
    return Watch(system, power_bonds(system, options.power_pairs), options.stop_on_divergence)


class EqualSteps(Session):
    """A run with `count` macro steps of one length, `watch`ed."""

    def __init__(
        self,
        system: System,
        master: Master,
        options: RunOptions,
        count: int,
        watch: Watch | None,
        writer: CheckpointWriter | None = None,
    ) -> None:
        self.system, self.master, self.options, self.count, self.watch = system, master, options, count, watch
        super().__init__(self._instantiate(), recorded_names(system, master, options), writer)
        self._federate = getattr(options.progress, "engine", None)  # where the system is a member of a federation
        self.made = self.recorded = 0
        self.between = 0  # rows at events, beyond one for each macro step
        self.iterations, self.ranges = Iterations(master), Ranges(system, self.names)
        self.ready: Array | None = None
        self.engine: Engine | None = None
        self._released: Live | None = None
        self._under_way: Array | None = None

    def _completed(self) -> float:
        return self.options.start + self.made * self.master.step

    def _instantiate(self) -> Live:
        options = self.options
        return Live(self.system, self.master, options.start, tolerant=options.engine.allow_non_finite)

    def _run(self, recorder: Recorder) -> None:
        """Make all macro steps; when a unit discards one and all can roll back, begin again with a safety net."""
        try:
            self._steps(recorder)
        except StepDiscarded as error:
            if reason := self._cannot_shorten():
                error.args = (f"{error} ({reason})", *error.args[1:])
                raise
            # States from before the step are gone. Units repeat what they did, so the run is made again up to here,
            # with states saved at every step; its rows are recorded already.
            self.release()
            try:
                require_states(self.system, self.master, self.options.start, self.system.units, as_bytes=False)
            except ConfigurationError as problem:
                error.args = (f"{error} (it cannot be divided into shorter steps: {problem})", *error.args[1:])
                raise error from None
            self.live, self.engine, self.ready = self._instantiate(), None, None
            self.made, self.iterations = 0, Iterations(self.master)
            self._steps(recorder, careful=True)

    def _cannot_shorten(self) -> str:
        """Why a discarded step cannot be made in shorter parts; empty where it can."""
        if self._federate:
            return "the other members of a federation do not go back in time"
        if self.master.mixers:
            return "a compensated master is designed for its macro step and cannot be run with a shorter one"
        if self.system.clock_links:
            return "macro steps end at events, and events are not made again"
        if self.live.joints:
            return "a prediction is learned for its macro step and cannot be made for a shorter one"
        stuck = [name for name, unit in self.system.units.items() if not unit.can_restore]
        return f"rolling back needs all units to restore their states, and {', '.join(stuck)} cannot" if stuck else ""

    def _put_back(self, saved: Mapping[str, Any]) -> None:
        self.engine = engine = self._make(saved["careful"])
        self.made = saved["step"]
        # More than made + 1 while a run that began again with a safety net catches up with its rows.
        self.recorded = saved["position"]["taken"]
        self.between = 0 if engine.events is None else self.recorded - self.made - 1
        self.iterations.load(saved["iterations"])
        self.ranges.found = dict(saved["ranges"])
        self._load(engine.load, saved, self.reached)

    def _entries(self) -> dict[str, Any]:
        assert self.engine is not None
        return {
            "step": self.made,
            "iterations": self.iterations.memory(),
            "ranges": dict(self.ranges.found),
            "careful": self.engine.rollbacks is not None,
            "memory": self.engine.memory(self.reached),
        }

    def _once(self, recorder: Recorder | None) -> Signals:
        assert self.engine is not None
        row = np.empty((1, 1 + len(self.names)))
        if recorder is None:
            self.ready = row
            self.engine.advance(self.made, row)
        else:
            self._advance(self.engine, recorder, row)
        return self.engine.signals()

    def _steps(self, recorder: Recorder, *, careful: bool = False) -> None:
        """Initialise and make the macro steps, handing rows on block by block."""
        if self.ready is None:
            self.live.initialise()
            first = np.array([self.live.row(self.options.start, self.names)])
            self._record(recorder, 0, first)
            if self._ended_at_once(self.options.start):
                return
            self.engine = self._make(careful)
        engine, progress, count = self.engine, self.options.progress, self.count
        assert engine is not None
        if (watch := getattr(progress, "watch", None)) is not None:
            watch(self)
        if self.ready is not None:
            self._take(engine, self.ready, recorder)
        compiled = isinstance(engine, KernelEngine)
        block = np.empty((min(BLOCK, count) if compiled else 1, 1 + len(self.names)))
        try:
            while self.made < count and not (engine.diverged or engine.ended):
                if self.writer is not None and self.writer.due():
                    self._checkpoint(self.writer, recorder)
                else:
                    left = count - self.made
                    direct = compiled and self.recorded == self.made + 1  # all rows are new
                    room = recorder.room(min(IN_PLACE, left)) if direct else None
                    self._advance(engine, recorder, block[:left] if room is None else room)
                if progress is not None:
                    progress(self.reached, self.options.start + count * self.master.step)
        except EndRequested as asked:
            self._end(asked, recorder)
        if engine.diverged:
            self.stopped_at = self.reached
        elif engine.ended is not None:
            self.ended_by = engine.ended, self.reached

    def _record_last(self, recorder: Recorder, row: Array) -> None:
        self._record(recorder, self.made + 1 + self.between, row[None, :])

    def _advance(self, engine: Engine, recorder: Recorder, rows: Array) -> None:
        """As many macro steps as there are rows, or fewer."""
        engine.made = 0  # an interrupt may come before it is called, with the rows of the last call still there
        self._under_way = rows
        try:
            with self._calling():
                engine.advance(self.made, rows)
        finally:
            self._under_way = None
            with self.interrupts.held():
                self._take(engine, rows, recorder)

    def rescue(self, recorder: Recorder) -> None:
        if isinstance(self.engine, KernelEngine) and self._under_way is not None:
            self._record(recorder, self.made + 1, self._under_way[: self.engine.made_so_far])
        recorder.flush()

    def _take(self, engine: Engine, rows: Array, recorder: Recorder) -> None:
        """Record what the engine made."""
        filled = engine.filled(rows)
        self._record(recorder, self.made + 1 + self.between, filled)
        self.made += engine.made
        self.between += len(filled) - engine.made
        self.iterations.add(*engine.sweeps())

    def _make(self, careful: bool) -> Engine:
        own: Engine | None = self._federate(self.live, self.names, self.watch) if self._federate else None
        if own is not None:
            return own
        if self.live.events:
            return EventEngine(self.live, self.names, self.watch)
        # The compiled loop cannot take back texts that were passed on.
        plain = self.options.engine.kind == "reference" or bool(self.system.text_links)
        if careful and (plain or self.master.saved):
            return CarefulEngine(self.live, self.names, self.watch)
        if careful:
            return CarefulKernelEngine(self.live, self.names, self.options.engine, self.watch)
        if self.options.engine.kind == "kernel":
            return KernelEngine(self.live, self.names, self.options.engine, self.watch)
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
        if self._released is self.live:
            return
        self._released = self.live
        if self.engine is not None:
            self.engine.close()
        self.live.close(self.reached)
        if self.writer is not None:
            self.writer.wait()

    def close(self, recorder: Recorder, warnings: Sequence[Warned], *, complete: bool, ended: bool = False) -> Result:
        info: dict[str, Any] = {"steps": self.made, "end": self.reached, "stepping_time": self.stepping}
        warned = list(warnings)
        if self.iterations.count:
            info |= self.iterations.info()
            warned += self.iterations.warnings(self.options.start, self.master.step, self.made)
        if self.engine is not None and self.engine.rollbacks is not None:
            info["rollbacks"] = self.engine.rollbacks
        if self.engine is not None and self.engine.events is not None:
            info["events"] = self.engine.events
        if self.engine is not None and (shares := self.engine.at_work()):
            info["unit_times"] = {name: share * self.stepping for name, share in shares.items()}
        if self.live.joints:
            info["learned"] = self.live.learned()
            warned += watch_warnings(self.live)
        if (report := self._monitored(final=True)) is not None:
            warned += report.warnings()
            info |= {"monitors": report.info(), "stopped_at": self.stopped_at}
        if self.engine is not None:
            met = self.engine.not_finite().items()
            warned += [Warned(f"{name} became {v}; the run continued, as requested", at) for name, (at, v) in met]
            switches = self.engine.switches()
            warned += switch_warnings(self.master.checks, switches, self.live.time)
            info |= {"held": held_steps(switches, self.made)} if self.master.checks else {}
        warned += self.ranges.warnings()
        warned += self.live.notices(self.reached)
        return self._result(recorder, complete, ended, warned, info)


# ---- the macro step after a checkpoint, made again, must give the same signals bit by bit ----------------------------


def require_replayed(before: dict[str, Any], now: Signals, live: Live, path: object) -> None:
    """Refuse to go on when a unit did something else than in the run that wrote the checkpoint."""
    order = dict.fromkeys(op.unit for op in flatten(live.master.schedule.operations) if isinstance(op, Step))
    for name in order:
        if not _same(before["outputs"].get(name), now.outputs[name]):
            raise CheckpointError(_said(live.system, name, before["outputs"].get(name), now.outputs[name], path))
    for name in order:
        if not _same(before["inputs"].get(name), now.inputs[name]):
            raise CheckpointError(
                f"cannot resume from '{path}': the inputs of unit '{name}' are not those of the run that wrote it."
            )
    if not _same(before["memories"], now.memories):
        raise CheckpointError(f"cannot resume from '{path}': its couplings store different data.")


def _said(system: System, name: str, before: Any, now: Array, path: object) -> str:
    head = f"cannot resume from '{path}': unit '{name}' does not continue as it did"
    if before is None or before.shape != now.shape:
        return f"{head}."
    place = next(i for i in range(len(now)) if before[i].tobytes() != now[i].tobytes())
    return (
        f"{head}: one macro step after the checkpoint its output '{system.units[name].outputs[place]}' is "
        f"{now[place]!r:.40} instead of {before[place]!r:.40}; its state is not restored completely, or it has changed."
    )


def _same(before: Any, now: Array) -> bool:
    return before is not None and before.shape == now.shape and before.tobytes() == now.tobytes()
