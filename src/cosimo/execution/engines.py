"""The two ways to run a schedule on live units: the compiled kernel, and the plain-Python interpreter, its oracle."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, NamedTuple, NoReturn

import numpy as np

from cosimo.core.arrays import Array, output_values, product
from cosimo.core.coupling import Coupling, Sampling
from cosimo.core.errors import CosimoError, EventInside, StepDiscarded, UnitError
from cosimo.core.guarding import processors
from cosimo.core.timing import time_rounding
from cosimo.execution.interpreter import Interpreter
from cosimo.execution.live import Live, Signals, end_requested, named, non_finite, unit_failed
from cosimo.execution.lowering import Lowering, Quanta, VariableLowering
from cosimo.execution.monitoring import Findings, Monitor, Watch
from cosimo.execution.options import EngineOptions
from cosimo.units.native import BadStatus

OK, BAD_STATUS, NON_FINITE, STOPPED, DIVERGED, ENDED, TOO_SHORT = range(7)  # what the kernel returns
ENDED_INSIDE = 103  # the kernel's status for a unit that wants the run to end before the macro step is over
NOT_EXACT = 101  # the kernel's status for a value that the type of a variable cannot hold
EVENT_ITERATIONS = 1000  # at one instant, before units count as stuck
TWINS = 512  # interpreters of different lengths that are kept
SAMPLING = 1e-3  # seconds between two looks at which unit is at work
SEVERAL = "several at once"  # units that are stepped in parallel
FEWEST = 20  # looks that tell something: the share of a unit is then known to about a tenth
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
    events: int | None = None  # at how many instants all units met; None where each handles its own
    rollbacks: int | None = None  # how often macro steps were made again in shorter parts; None where they cannot be

    @abstractmethod
    def advance(self, first: int, rows: Array) -> None:
        """Make macro steps `first`, `first` + 1, … and fill one row for each; may stop early between two steps."""

    def filled(self, rows: Array) -> Array:
        """The rows that the last `advance`, which was given `rows`, made."""
        return rows[: self.made]

    @abstractmethod
    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        """Sweeps and last residual of every iteration since this was asked before."""

    @abstractmethod
    def findings(self, final: bool = True) -> Findings | None:
        """What was seen in the run, or without `final`, asked between two calls, so far. None where nobody watched."""

    def busy(self) -> str | None:
        """The unit that is being stepped, where that is known; any thread may ask."""
        return None

    def at_work(self) -> Mapping[str, float]:
        """The share of the time that each unit was at work, where that was measured, and long enough to tell."""
        return {}

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
    def memory(self, at: float) -> dict[str, Any]:
        """All that the run remembers between two macro steps, at time `at`, units included, as plain data."""

    @abstractmethod
    def load(self, memory: dict[str, Any], at: float) -> None:
        """Go on at time `at` from what `memory` gave."""

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

    def memory(self, at: float) -> dict[str, Any]:
        watched = None if self._monitor is None else self._monitor.memory()
        return {"live": self._interpreter.memory(), "units": self._live.states(at), "monitor": watched}

    def load(self, memory: dict[str, Any], at: float) -> None:
        self._interpreter.load(memory["live"])
        self._live.load_states(memory["units"], at)
        if self._monitor is not None:
            self._monitor.load(memory["monitor"])


class CarefulEngine(ReferenceEngine):
    """The plain interpreter with a safety net: macro steps that a unit discards are rolled back, made again in parts.

    Every macro step begins with saving all units. It is halved until it is accepted, and steps stay that short.
    Couplings that extrapolate go on with the polynomial they had, sampled as closely as the steps are now.
    """

    def __init__(self, live: Live, names: Sequence[str], watch: Watch | None = None) -> None:
        super().__init__(live, names, watch)
        self._levels = [self._interpreter]
        self._resamplings = resamplings(live)
        self.rollbacks: int = 0

    def _macro_step(self, k: int) -> None:
        saved, before = self._interpreter.save(k), len(self._levels)
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
                self._resample(len(self._levels) - before)

    def _resample(self, halvings: int) -> None:
        live = self._live
        for link, matrices in zip(live.system.links, self._resamplings, strict=True):
            sample = link.connection.gain * live.y[link.source.unit][link.source.index] + link.connection.offset
            w = self._interpreter.w[link.number]
            w[:] = product(matrices[halvings - 1], np.append(w, sample))

    def memory(self, at: float) -> dict[str, Any]:
        return {**super().memory(at), "level": len(self._levels) - 1, "rollbacks": self.rollbacks}

    def load(self, memory: dict[str, Any], at: float) -> None:
        super().load(memory, at)
        self._levels = [self._interpreter.finer(1 << n) if n else self._interpreter for n in range(memory["level"] + 1)]
        self.rollbacks = memory["rollbacks"]


def resamplings(live: Live) -> list[list[Array]]:
    """Per link the matrices (d, d + 1) that turn its memory w and the present sample s into one for steps of h / 2^n.

    At the start of a macro step, w_j is a sample from a_j macro steps after that start, s one from b; neither is later.
    With P the polynomial through the newest d of them, w_j' = P(a_j / 2^n). Couplings that do not interpolate begin
    anew, as if the signal had been constant.
    """
    found = []
    for link, stamps in zip(live.system.links, live.timeline.stamps, strict=True):
        coupling = live.master.coupling_of(link.connection.target)
        taken, now = [stamp - 1 for stamp in stamps], live.timeline.clocks[link.source.unit].read - 1
        found.append([_resampling(coupling, taken, now, n) for n in range(1, HALVINGS + 1)])
    return found


def _resampling(coupling: Coupling, taken: Sequence[Fraction], now: Fraction, halvings: int) -> Array:
    d = coupling.history
    matrix = np.zeros((d, d + 1))
    if not coupling.interpolates:
        matrix[:, d] = 1.0
        return matrix
    points = [(now, d), *((stamp, slot) for slot, stamp in enumerate(taken) if stamp < now)][:d]
    sampling = Sampling(tuple(stamp for stamp, _ in points), tuple(range(len(points) - 1)))
    uw = coupling.matrices(sampling).uw[:, : len(points)]
    for row, stamp in enumerate(taken):
        powers = np.array([[float(stamp / 2**halvings) ** j for j in range(len(uw))]])
        matrix[row, [slot for _, slot in points]] = product(powers, uw)[0]
    return matrix


class EventEngine(ReferenceEngine):
    """The plain interpreter for units that are connected by clocks: a macro step ends at every event, for all units.

    An event is where a unit announced one, where a clock ticks, where a step returned early because of one, or where
    discrete inputs change. Time stands still there for all units with event mode (FMI 3.0, section 2.1.2: super-dense
    time). Output clocks make input clocks tick, outputs are passed on, discrete states updated, until nothing changes.
    Rows before and after it have the same time. The schedule is made from event to event, as a macro step of another
    length; couplings that extrapolate begin anew where the length changes.
    """

    def __init__(self, live: Live, names: Sequence[str], watch: Watch | None = None) -> None:
        super().__init__(live, names, watch)
        self._parts, units = live.events, live.system.units
        self._targets: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for link in live.system.clock_links:
            if link.source[0] in self._parts and link.target[0] in self._parts:
                self._targets.setdefault(link.source, []).append(link.target)
        self._early = any(part.returns_early for part in self._parts.values())
        self._fixed = [name for name, unit in units.items() if not unit.can_restore]
        self._twins: dict[float, Interpreter] = {}
        self._length = live.master.step
        self._between: list[list[float]] = []
        self._filled: list[Any] = []
        self.events: int = 0

    def advance(self, first: int, rows: Array) -> None:
        made, self._filled = 0, []
        for k in range(len(rows)):
            self._between = []
            try:
                super().advance(first + k, rows[k : k + 1])
            finally:
                self._filled += [*self._between, *rows[k : k + self.made]]
                made += self.made
                self.made = made
            if self.diverged or self.ended:
                break

    def filled(self, rows: Array) -> Array:
        return np.array(self._filled if self.made else []).reshape(-1, 1 + len(self._names))

    def _macro_step(self, k: int) -> None:
        now, end = self._interpreter.time(k, 0.0), self._interpreter.time(k, 1.0)
        if any(part.entered for part in self._parts.values()):  # after initialisation
            before = self._live.row(now, self._names)
            self._event(now, end)
            after = self._live.row(now, self._names)
            self._between += [after] if after != before else []
        still = 0
        while now < end:
            reached, met = self._go(now, end, k)
            still = 0 if reached > now else still + 1
            now = reached
            if still > EVENT_ITERATIONS:
                names = ", ".join(self._parts)
                raise UnitError(f"events of {names} follow each other without end at t = {now!r}; check their clocks.")
            if met or self._due(now):
                self.events += 1
                self._between.append(self._live.row(now, self._names))
                self._event(now, end)
                if now < end:
                    self._between.append(self._live.row(now, self._names))

    def _go(self, now: float, end: float, k: int) -> tuple[float, bool]:
        """One macro step of the schedule, to the next event or the end: where it ended, and whether it could not begin.

        It cannot where a unit has an event at once.
        """
        near = time_rounding(now, end, self._live.master.step)
        known = min(part.next() for part in self._parts.values())
        stop = end if known >= end - near else max(known, now)
        saved = self._interpreter.save(k) if self._early and not self._fixed else None
        ahead: set[str] = set()
        while stop > now:
            step = self._step_of(now, stop, k)
            self._interpreter.moved.clear()
            self._interpreter.ahead.update(ahead)
            try:
                step.macro_step(k)
                return stop, False
            except EventInside as met:
                stop, unit = met.at, str(met.unit)
                if saved is not None:
                    self._interpreter.restore(saved)
                elif not ahead and self._interpreter.moved == {unit} and self._steps_once(unit):
                    ahead = {unit}  # nobody has gone further
                else:
                    raise self._too_far(met) from None
        return now, True

    def _steps_once(self, unit: str) -> bool:
        master = self._live.master
        return master.durations.get(unit) == master.step

    def _step_of(self, now: float, stop: float, k: int) -> Interpreter:
        whole = self._interpreter
        length = whole.master.step if (whole.time(k, 0.0), whole.time(k, 1.0)) == (now, stop) else stop - now
        if length != self._length:
            self._length = length
            self._forget()
        if length == whole.master.step:
            return whole
        for name, unit in self._live.system.units.items():
            if not unit.variable_step:
                raise UnitError(
                    f"unit '{name}' at t = {now:g}: an event at t = {stop!r} ends the macro step, and the unit does "
                    "not accept steps of different lengths (its description does not declare "
                    "canHandleVariableCommunicationStepSize); choose a macro step that meets all events."
                )
        if length not in self._twins:
            if len(self._twins) >= TWINS:
                self._twins.clear()
            self._twins[length] = whole.spanning(length)
        self._twins[length].span = (now, stop)
        return self._twins[length]

    def _too_far(self, met: EventInside) -> UnitError:
        stuck = ", ".join(self._fixed)
        said = (
            f"unit '{met.unit}' has an event at t = {met.at!r}, inside a macro step, and other units have gone further"
            f"; {stuck} cannot go back there (canGetAndSetFMUState is not declared). Step '{met.unit}' first: use "
            "gauss-seidel with an order that begins with it."
        )
        return UnitError(said).locate(unit=met.unit, phase="doStep", time=met.at)

    def _due(self, now: float) -> bool:
        """Whether there is an event now, for any unit."""
        near = time_rounding(now, now)
        parts, live = self._parts.items(), self._live
        if any(part.met or part.next() <= now + near for _, part in parts):
            return True
        return any(part.changes(live.connected(name, live.y, now)) for name, part in parts)

    # ---- event mode ----------------------------------------------------------------------------------------------

    def _event(self, now: float, end: float) -> None:
        """All units with event mode enter it, settle, and leave it."""
        live, again = self._live, True
        for name, part in self._parts.items():
            with live.guard(name, "given its inputs", now):
                part.enter(now)
        for _ in range(EVENT_ITERATIONS):
            if not self._exchange(now) and not again:
                break
            again = False
            for name, part in self._parts.items():
                with live.guard(name, "given its inputs", now):
                    again |= part.update(now)
            for name in self._parts:
                if live.instances[name].ended is not None:
                    self._read(now)
                    if now < end:
                        raise end_requested(name, now)
                    self._interpreter.ends[name] = now
                    return
        else:
            names = ", ".join(self._parts)
            raise UnitError(f"the event at t = {now!r} does not settle between {names}; check how they are connected.")
        for name, part in self._parts.items():
            with live.guard(name, "given its inputs", now):
                part.leave(now)
        self._begin_anew(now)

    def _exchange(self, now: float) -> bool:
        """Pass on ticks of clocks and values, until there is nothing new; whether there was something."""
        live, done, changed = self._live, set[tuple[str, str]](), False
        while True:
            new = False
            for name, part in self._parts.items():
                with live.guard(name, "read", now):
                    ticked = part.ticked()
                for unit, clock in (target for one in ticked for target in self._targets.get((name, one), ())):
                    if (unit, clock) not in done:
                        done.add((unit, clock))
                        new = True
                        with live.guard(unit, "given its inputs", now):
                            self._parts[unit].activate([clock])
            self._read(now)
            for name, part in self._parts.items():
                with live.guard(name, "given its inputs", now):
                    new |= part.give(live.connected(name, live.y, now))
            if not new:
                return changed
            changed = True

    def _read(self, now: float) -> None:
        for name in self._parts:
            with self._live.guard(name, "read", now):
                outputs = len(self._live.system.units[name].outputs)
                self._live.y[name] = output_values(self._live.instances[name].read(), outputs)
            self._live.require_finite(name, now)

    def memory(self, at: float) -> dict[str, Any]:
        return {**super().memory(at), "length": self._length, "events": self.events}

    def load(self, memory: dict[str, Any], at: float) -> None:
        super().load(memory, at)
        self._length, self.events = float(memory["length"]), int(memory["events"])

    def _begin_anew(self, now: float) -> None:
        """What units were given is what recorded inputs show, and nothing is extrapolated across an event."""
        live = self._live
        self._read(now)
        for name in self._parts:
            live.c[name] = np.zeros_like(live.c[name])
            live.c[name][0] = live.connected(name, live.y, now)
        self._forget()

    def _forget(self) -> None:
        """Couplings begin anew, as if signals had been constant before."""
        for link in self._live.system.links:
            sample = self._live.y[link.source.unit][link.source.index]
            self._live.w[link.number][:] = link.connection.gain * sample + link.connection.offset


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
        threads = options.threads or processors()
        mode = -1 if options.parallel is None else int(options.parallel)
        self._watched = watch is not None
        if watch is not None:
            self._lowering.watch(watch)
        if live.tolerant:
            self._program.tolerate()
        self._program.finish(threads, mode, options.interval)
        if options.unit_times:
            self._program.time_units(SAMPLING)

    def advance(self, first: int, rows: Array) -> None:
        self.made = 0
        given = self._lowering.given(first, len(rows))
        run, count, called = self._program.run, len(given), False
        try:
            with self._naming():
                called = True  # between here and the call no signal is handled: what was made is that of this call
                outcome = run(first, count, given, rows)
        finally:
            self.made = self._program.made if called else 0
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
            begin = at if math.isnan(found.value) else found.value  # of a step that is several calls
            self._live.instances[name].explain(VERBS[found.phase], found.status, begin, found.duration)
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

    def at_work(self) -> Mapping[str, float]:
        counts = self._program.unit_samples
        if sum(counts) < FEWEST:
            return {}
        names = (SEVERAL, *self._live.system.names)
        return {n: count / sum(counts) for n, count in zip(names, counts, strict=False) if count or n != SEVERAL}

    def busy(self) -> str | None:
        number = self._program.busy
        return None if number < 0 else self._live.system.names[number]

    def not_finite(self) -> Mapping[str, tuple[float, float]]:
        names = self._live.system.outputs
        met = {names[place]: (at, value) for place, at, value in self._program.not_finite()}
        return {**met, **self._live.not_finite}

    def signals(self) -> Signals:
        return self._lowering.signals()

    def memory(self, at: float) -> dict[str, Any]:
        live = self._live
        units = live.states(at, self._lowering.outside)
        return {"kernel": self._program.memory(), "predictors": live.predictor_states(), "units": units}

    def load(self, memory: dict[str, Any], at: float) -> None:
        live = self._live
        live.load_states({name: memory["units"][name] for name in self._lowering.outside}, at)
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
        links = []
        for link, matrices in zip(live.system.links, resamplings(live), strict=True):
            sample = lowering.y[link.source.unit] + link.source.index, link.connection.gain, link.connection.offset
            memory = lowering.w[link.number], len(live.w[link.number]), np.concatenate(matrices).ravel().tolist()
            links.append((*sample, *memory))
        lowering.program.vary(quanta.quantum, parts, (-1, 0.0), [], [])
        asked = lowering.sampled if lowering.samples else None
        lowering.program.carefully(HALVINGS, links, len(lowering.samples), asked)
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
