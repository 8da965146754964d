"""The two ways to run a schedule on live units: the compiled kernel, and the plain-Python interpreter, its oracle."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import CosimoError, StepDiscarded
from cosimo.execution.interpreter import Interpreter
from cosimo.execution.live import Live, Signals, end_requested, named, non_finite, unit_failed
from cosimo.execution.lowering import Lowering, Quanta, VariableLowering
from cosimo.execution.monitoring import Findings, Monitor, Watch
from cosimo.execution.options import EngineOptions
from cosimo.units.native import BadStatus

OK, BAD_STATUS, NON_FINITE, STOPPED, DIVERGED, ENDED, TOO_SHORT = range(7)  # what the kernel returns
ENDED_INSIDE = 103  # the kernel's status for a unit that wants the run to end before the macro step is over
NOT_EXACT = 101  # the kernel's status for a value that the type of a variable cannot hold
HALVINGS = 10  # how often a macro step is halved before the unit's refusal is passed on
PHASES = ("given its inputs", "stepped", "read", "saved", "restored")
VERBS = ("set", "step", "get", "save", "restore")


class Failure(NamedTuple):
    """Where the kernel met a bad status or a value that is not finite."""

    unit: str
    phase: int
    status: int
    output: int
    at: float
    duration: float
    value: float


class Engine(ABC):
    """Makes macro steps and fills rows (time, then the recorded signals)."""

    made = 0  # how many macro steps the last `advance` completed, also when it raised
    diverged = False  # whether the run was found to grow and shall end here
    ended: str | None = None  # the unit that wants the run to end here
    rollbacks: int | None = None  # how often macro steps were made again in shorter parts; None where they cannot be

    @abstractmethod
    def advance(self, first: int, rows: Array) -> None:
        """Make macro steps `first`, `first` + 1, … and fill one row for each; may stop early between two steps."""

    @abstractmethod
    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        """Sweeps and last residual of every iteration since this was asked before."""

    @abstractmethod
    def findings(self, final: bool = True) -> Findings | None:
        """What was seen in the run, or without `final`, asked between two calls, so far. None where nobody watched."""

    def busy(self) -> str | None:
        """The unit that is being stepped, where that is known; any thread may ask."""
        return None

    @abstractmethod
    def not_finite(self) -> Mapping[str, tuple[float, float]]:
        """Outputs that are not finite, where that is allowed: the first time, and the value."""

    @abstractmethod
    def switches(self) -> Sequence[tuple[int, int]]:
        """Macro steps from which inputs are held, with the number of the check that failed; −1: compensated again."""

    @abstractmethod
    def signals(self) -> Signals:
        """All signals between units as they are now."""

    @abstractmethod
    def memory(self, k: int) -> dict[str, Any]:
        """All that the run remembers between two macro steps, units included, as plain data."""

    @abstractmethod
    def load(self, memory: dict[str, Any], k: int) -> None:
        """Go on after macro step k from what `memory` gave."""

    def close(self) -> None:  # noqa: B027  the plain interpreter holds nothing
        """Let go of the units, before they are closed themselves."""


class ReferenceEngine(Engine):
    """The plain interpreter as an engine."""

    def __init__(self, live: Live, names: Sequence[str], watch: Watch | None = None) -> None:
        self._live, self._interpreter, self._names = live, Interpreter(live), names
        self._monitor: Monitor | None = None
        if watch is not None:
            places = {name: place for place, name in enumerate(live.system.input_names)}
            self._watched = [places[name] for name in watch.inputs]
            self._monitor = Monitor(watch, *self._signals())

    def advance(self, first: int, rows: Array) -> None:
        self.made = 0
        # An unstable run overflows sooner or later; that is found when outputs are read, and said in our words.
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(first, first + len(rows)):
                self._macro_step(k)
                rows[self.made] = self._live.row(self._interpreter.time(k + 1, 0.0), self._names)
                self.made += 1
                if self._monitor is not None and self._monitor.observe(*self._signals()):
                    self.diverged = True
                    return
                if self._interpreter.ends:
                    self.ended = next(iter(self._interpreter.ends))
                    return

    def _macro_step(self, k: int) -> None:
        self._interpreter.macro_step(k)

    def _signals(self) -> tuple[Array, Array]:
        """All outputs, and the inputs that are watched."""
        inputs = self._live.inputs()
        return np.array(self._live.outputs()), np.array([inputs[place] for place in self._watched])

    def findings(self, final: bool = True) -> Findings | None:
        return None if self._monitor is None else self._monitor.findings(final)

    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        counted = self._interpreter
        taken = counted.sweeps, counted.residuals
        counted.sweeps, counted.residuals = [], []
        return taken

    def switches(self) -> Sequence[tuple[int, int]]:
        return self._interpreter.switches

    def not_finite(self) -> Mapping[str, tuple[float, float]]:
        return self._live.not_finite

    def signals(self) -> Signals:
        return self._interpreter.signals()

    def memory(self, k: int) -> dict[str, Any]:
        live = self._live
        units = {name: live.serialise(name, live.time(k, 0.0)) for name in live.instances}
        watched = None if self._monitor is None else self._monitor.memory()
        return {"live": self._interpreter.memory(), "units": units, "monitor": watched}

    def load(self, memory: dict[str, Any], k: int) -> None:
        live = self._live
        self._interpreter.load(memory["live"])
        for name, state in memory["units"].items():
            live.deserialise(name, state, live.time(k, 0.0))
        if self._monitor is not None:
            self._monitor.load(memory["monitor"])


class CarefulEngine(ReferenceEngine):
    """The plain interpreter with a safety net: macro steps that a unit discards are rolled back, made again in parts.

    Every macro step begins with saving all units. It is halved until it is accepted, and steps stay that short.
    Couplings that extrapolate begin anew where the step changes: their samples are no longer equally far apart.
    """

    def __init__(self, live: Live, names: Sequence[str], watch: Watch | None = None) -> None:
        super().__init__(live, names, watch)
        self._levels = [self._interpreter]
        self.rollbacks: int = 0

    def _macro_step(self, k: int) -> None:
        saved = self._interpreter.save(k)
        while True:
            level = len(self._levels) - 1
            try:
                for part in range(k << level, (k + 1) << level):
                    self._levels[-1].macro_step(part)
                    if self._interpreter.ends and part + 1 < (k + 1) << level:
                        raise end_requested(*next(iter(self._interpreter.ends.items())))
                return
            except StepDiscarded:
                if level == HALVINGS:
                    raise
                self._interpreter.restore(saved)
                self.rollbacks += 1
                self._levels.append(self._interpreter.finer(1 << (level + 1)))
                # A hold keeps its newest sample in front; before it, the signal counts as constant again.
                for w in self._interpreter.w:
                    w[:] = w[0]

    def memory(self, k: int) -> dict[str, Any]:
        return {**super().memory(k), "level": len(self._levels) - 1, "rollbacks": self.rollbacks}

    def load(self, memory: dict[str, Any], k: int) -> None:
        super().load(memory, k)
        self._levels = [self._interpreter.finer(1 << n) if n else self._interpreter for n in range(memory["level"] + 1)]
        self.rollbacks = memory["rollbacks"]


class KernelEngine(Engine):
    """The compiled loop; what goes wrong in it is said in the same words as by the plain interpreter."""

    too_short = False  # whether no macro step is short enough for the tolerance

    def __init__(
        self,
        live: Live,
        names: Sequence[str],
        options: EngineOptions,
        watch: Watch | None = None,
        lowering: Lowering | None = None,
    ) -> None:
        self._live = live
        self._lowering = lowering or Lowering(live, names)
        self._program = self._lowering.program
        threads = options.threads or len(os.sched_getaffinity(0))
        mode = -1 if options.parallel is None else int(options.parallel)
        self._watched = watch is not None
        if watch is not None:
            self._lowering.watch(watch)
        if live.tolerant:
            self._program.tolerate()
        self._program.finish(threads, mode, options.interval)

    def advance(self, first: int, rows: Array) -> None:
        self.made = 0
        given = self._lowering.given(first, len(rows))
        try:
            with self._naming():
                outcome = self._program.run(first, len(given), given, rows)
        finally:
            self.made = self._program.made
        if outcome == STOPPED:
            raise KeyboardInterrupt
        self.diverged = outcome == DIVERGED
        if outcome == ENDED:
            self.ended = self._live.system.names[self._program.ending]
        self.too_short = outcome == TOO_SHORT
        if outcome not in (OK, DIVERGED, ENDED, TOO_SHORT):
            self._raise(outcome)

    def retry(self) -> bool:
        """After an error, where macro steps vary: go back, so that a shorter one is tried next; whether one is."""
        with self._naming():
            goes_on, outcome = self._program.retry()
        if outcome != OK:
            self._raise(outcome)
        return bool(goes_on)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Turn what a unit raised in the kernel into an error that names it; others, of external inputs, pass."""
        try:
            yield
        except CosimoError as error:
            if (found := self._failure()) is None:
                raise
            raise named(error, found.unit, found.at, PHASES[found.phase]) from error.__cause__
        except (Exception, SystemExit) as error:
            if (found := self._failure()) is None:
                raise
            raise unit_failed(found.unit, PHASES[found.phase], found.at, error) from error

    def _failure(self) -> Failure | None:
        """What a unit failed at; None where none did."""
        unit, phase, status, output, at, duration, value = self._program.failure
        return None if unit < 0 else Failure(self._live.system.names[unit], phase, status, output, at, duration, value)

    def _raise(self, outcome: int) -> NoReturn:
        found = self._failure()
        assert found is not None
        name, at = found.unit, found.at
        if outcome == NON_FINITE:
            raise non_finite(name, self._live.system.units[name].outputs[found.output], found.value, at)
        if found.status == ENDED_INSIDE:
            raise end_requested(name, found.value)
        try:
            if found.status == NOT_EXACT:
                self._not_exact(name, found.phase)
            self._live.instances[name].explain(VERBS[found.phase], found.status, at, found.duration)
        except CosimoError as error:
            raise named(error, name, at, PHASES[found.phase]) from error.__cause__
        raise unit_failed(name, PHASES[found.phase], at, BadStatus(found.status))

    def _not_exact(self, name: str, phase: int) -> None:
        """Let the instance itself say which value does not fit its type: it refuses the same."""
        instance = self._live.instances[name]
        if phase == 0:
            instance.set_input(self._lowering.inputs(name), self._live.master.step)
        else:
            instance.read()

    @property
    def made_so_far(self) -> int:
        """How many macro steps the call of `advance` that is under way has completed; any thread may ask."""
        return self._program.made

    @property
    def shared(self) -> bool:
        """Whether units are stepped in several threads."""
        return self._program.shared

    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        return self._program.take_sweeps()

    def findings(self, final: bool = True) -> Findings | None:
        return Findings.told(self._program.findings(final)) if self._watched else None

    def switches(self) -> Sequence[tuple[int, int]]:
        return self._program.switches

    def busy(self) -> str | None:
        number = self._program.busy
        return None if number < 0 else self._live.system.names[number]

    def not_finite(self) -> Mapping[str, tuple[float, float]]:
        names = self._live.system.outputs
        met = {names[place]: (at, value) for place, at, value in self._program.not_finite()}
        return {**met, **self._live.not_finite}

    def signals(self) -> Signals:
        return self._lowering.signals()

    def memory(self, k: int) -> dict[str, Any]:
        live = self._live
        units = {name: live.serialise(name, live.time(k, 0.0)) for name in self._lowering.outside}
        return {"kernel": self._program.memory(), "predictors": live.predictor_states(), "units": units}

    def load(self, memory: dict[str, Any], k: int) -> None:
        live = self._live
        for name in self._lowering.outside:
            live.deserialise(name, memory["units"][name], live.time(k, 0.0))
        live.load_predictors(memory["predictors"])
        self._program.set_memory(memory["kernel"])

    def close(self) -> None:
        for unit, begin, last in self._program.went_back():
            instance: Any = self._live.instances[self._live.system.names[unit]]
            instance.went_back(begin, last)
        self._program.release()


class CarefulKernelEngine(KernelEngine):
    """The same safety net as `CarefulEngine` in the compiled loop, for schedules that save no states themselves."""

    def __init__(self, live: Live, names: Sequence[str], options: EngineOptions, watch: Watch | None = None) -> None:
        parts, h = 1 << HALVINGS, live.master.step
        quanta = Quanta(h / parts, parts, lambda place: live.start_time + place * (h / parts))
        lowering = VariableLowering(live, names, quanta, kept=True)
        holds = [(first, len(w)) for first, w in zip(lowering.w, live.w, strict=False)]
        lowering.program.vary(quanta.quantum, parts, (-1, 0.0), [], [])
        asked = lowering.sampled if lowering.samples else None
        lowering.program.carefully(HALVINGS, holds, len(lowering.samples), asked)
        lowering.keep_all()
        super().__init__(live, names, options, watch, lowering)

    @property
    def rollbacks(self) -> int:  # type: ignore[override]
        """How often macro steps were made again in shorter parts."""
        return self._program.tally[4]

    def advance(self, first: int, rows: Array) -> None:
        while True:
            try:
                return super().advance(first, rows)
            except StepDiscarded:
                if not self.retry():
                    raise
                if self.made:
                    return None

    def memory(self, k: int) -> dict[str, Any]:
        return {**super().memory(k), "level": self._program.level, "rollbacks": self.rollbacks}

    def load(self, memory: dict[str, Any], k: int) -> None:
        super().load(memory, k)
        self._program.set_steps(k, memory["level"], memory["rollbacks"])
