"""What FMI 2.0 and FMI 3.0 do differently in the life of a co-simulation component."""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from cosimo.core.errors import EndRequested, EventInside, StepDiscarded, UnitError
from cosimo.core.timing import time_rounding
from cosimo.units.fmi.component import DISCARD, WARNING, Component
from cosimo.units.fmi.fmu import Capabilities, Experiment
from cosimo.units.fmi.variables import Clock, Clocks

LAST_SUCCESSFUL_TIME, TERMINATED = 2, 3
"""Kinds of status that an FMI 2.0 component can be asked for after it discarded a step."""
CHANGED = 2
"""The qualifier of an interval that was not known before (fmi3IntervalChanged)."""
EVENT_ITERATIONS = 1000
"""Updates of discrete states at one instant, and returns without progress, before a component counts as stuck."""


class Version(ABC):
    """The calls that differ; `next_event` is the time of the next known event, if any.

    `ended` is the time at which the component wants the simulation to end, once it has asked for that.
    """

    number: int
    state_functions: Mapping[str, str]

    def __init__(
        self, component: Component, capabilities: Capabilities, experiment: Experiment, clocks: Clocks
    ) -> None:
        self.component, self.capabilities, self.experiment = component, capabilities, experiment
        self.clocks = clocks
        self.event_mode = False
        self.next_event = math.inf
        self.ended: float | None = None

    @abstractmethod
    def instantiate(self, logging: bool) -> None:
        """Create the component and tell it about the experiment, as far as that comes before start values."""

    def reset(self) -> None:
        """Bring a component that has run back to where `instantiate` leaves it."""
        if self.component.running:
            self.component.call(f"fmi{self.number}Terminate")
        self.component.running = self.component.initialised = False
        self.component.call(f"fmi{self.number}Reset")

    @abstractmethod
    def enter_initialisation(self) -> None:
        """Enter initialisation mode."""

    @abstractmethod
    def exit_initialisation(self) -> None:
        """Leave initialisation mode, ready to step."""

    @abstractmethod
    def step(self, time: float, duration: float, *, final: bool) -> None:
        """Make a step, or the part of it after which the component wants the simulation to end (`ended`).

        `final` promises that no state from before it will be restored.
        """

    def refused(self, status: int, time: float, duration: float) -> NoReturn:
        """Raise what a step that ended with this status means."""
        if status == DISCARD:
            raise self._discarded(time, duration, time)
        step = f"fmi{self.number}DoStep"
        self.component.fail(step, status, f"from t = {time!r} to {time + duration!r} (step {duration!r})")

    def handle_event(self, time: float, change: Any = None) -> None:
        """Events at `time`; `change` is called where discrete inputs may be set."""
        if change is not None:
            change()

    @property
    def idle(self) -> list[str]:
        """Time-based input clocks that never tick."""
        return [clock.name for clock in self.clocks.timed]

    @property
    def agenda(self) -> Any:
        """What is known of coming events, as plain data."""
        return self.next_event

    @agenda.setter
    def agenda(self, known: Any) -> None:
        self.next_event = known

    def end_requested(self) -> EndRequested:
        """The error for going on with a component that wants the simulation to end."""
        assert self.ended is not None
        said = f"{self.component} ended the simulation at t = {self.ended!r}; set an earlier stop time."
        return EndRequested(said, self.ended)

    def stuck(self, time: float, end: float) -> UnitError:
        """The error for a component that returns early again and again."""
        return UnitError(f"{self.component} does not advance beyond t = {time!r} (step to {end!r}); it returns early.")

    def unsettled(self, time: float) -> UnitError:
        """The error for an event iteration without end."""
        return UnitError(f"{self.component} does not settle its discrete states at t = {time!r}; contact its supplier.")

    def _times(self) -> tuple[Any, ...]:
        start, stop, tolerance = self.experiment.start_time, self.experiment.stop_time, self.experiment.tolerance
        return tolerance is not None, tolerance or 0.0, start, stop is not None, stop or 0.0

    def _discarded(self, time: float, duration: float, last: float) -> StepDiscarded:
        return StepDiscarded(
            f"{self.component} discarded the step from t = {time!r} to {time + duration!r} (step {duration!r}) and "
            f"got to t = {last!r}{self.component.said}; use a shorter macro step.",
            last,
        )


class Fmi2(Version):
    """FMI 2.0."""

    number = 2
    state_functions: Mapping[str, str] = {
        "get": "fmi2GetFMUstate",
        "set": "fmi2SetFMUstate",
        "free": "fmi2FreeFMUstate",
        "size": "fmi2SerializedFMUstateSize",
        "serialise": "fmi2SerializeFMUstate",
        "deserialise": "fmi2DeSerializeFMUstate",
    }

    def instantiate(self, logging: bool) -> None:
        self.component.instantiate(visible=False, loggingOn=logging)
        self.component.call("fmi2SetupExperiment", *self._times())

    def reset(self) -> None:
        super().reset()
        self.component.call("fmi2SetupExperiment", *self._times())

    def enter_initialisation(self) -> None:
        self.component.call("fmi2EnterInitializationMode")

    def exit_initialisation(self) -> None:
        self.component.call("fmi2ExitInitializationMode", doing=f"at t = {self.experiment.start_time!r}")
        self.component.running = True

    def step(self, time: float, duration: float, *, final: bool) -> None:
        status = self.component.status("fmi2DoStep", time, duration, final)
        if status == DISCARD and self._terminated():
            self.ended = min(max(self._last_successful_time(time), time), time + duration)
        elif status > WARNING:
            self.refused(status, time, duration)

    def refused(self, status: int, time: float, duration: float) -> NoReturn:
        if status == DISCARD:
            raise self._discarded(time, duration, self._last_successful_time(time))
        super().refused(status, time, duration)

    def _terminated(self) -> bool:
        """Whether the step was discarded because the component wants the simulation to end."""
        terminated = ctypes.c_int(0)
        found = self._asked("fmi2GetBooleanStatus", TERMINATED, ctypes.byref(terminated))
        return found and bool(terminated.value)

    def _last_successful_time(self, time: float) -> float:
        """How far a discarded step got; its start where the component does not say."""
        last = ctypes.c_double(time)
        found = self._asked("fmi2GetRealStatus", LAST_SUCCESSFUL_TIME, ctypes.byref(last))
        return last.value if found and last.value >= time else time

    def _asked(self, function: str, *arguments: Any) -> bool:
        try:
            return self.component.status(function, *arguments) <= WARNING
        except UnitError:
            return False  # the function is optional


class Fmi3(Version):
    """FMI 3.0; event mode is used with components that have one."""

    number = 3
    state_functions: Mapping[str, str] = {
        "get": "fmi3GetFMUState",
        "set": "fmi3SetFMUState",
        "free": "fmi3FreeFMUState",
        "size": "fmi3SerializedFMUStateSize",
        "serialise": "fmi3SerializeFMUState",
        "deserialise": "fmi3DeserializeFMUState",
    }

    def __init__(
        self, component: Component, capabilities: Capabilities, experiment: Experiment, clocks: Clocks
    ) -> None:
        super().__init__(component, capabilities, experiment, clocks)
        self.event_mode = capabilities.event_mode
        self.coordinated = False
        """Whether somebody else handles events, at one instant for all units: a step ends at them."""
        self.entered = self.met = False
        """Whether it is in event mode, and whether its last step ended with an event."""
        self.active: set[str] = set()
        """Input clocks that tick now."""
        self._flags = [ctypes.c_bool() for _ in range(5)]
        self._time = ctypes.c_double()
        self._timed = list(clocks.timed)
        self._due: dict[str, float] = {}  # when aperiodic clocks tick next
        self._since = -math.inf  # up to when clocks have ticked

    def instantiate(self, logging: bool) -> None:
        options = {"visible": False, "loggingOn": logging, "earlyReturnAllowed": self.capabilities.early_return}
        try:
            self.component.instantiate(**options, eventModeUsed=self.event_mode)
        except UnitError:
            if not self.event_mode:
                raise
            # Some declare event mode and refuse it; without it, they handle their events themselves.
            self.component.instantiate(**options, eventModeUsed=False)
            self.event_mode = False
            self.component.tell("event mode", "declares event mode but refuses it; it runs without")

    def enter_initialisation(self) -> None:
        self.component.call("fmi3EnterInitializationMode", *self._times())

    def exit_initialisation(self) -> None:
        if self.event_mode:
            self._ask_before_start()
        self.component.call("fmi3ExitInitializationMode", doing=f"at t = {self.experiment.start_time!r}")
        self.component.running = True
        self.entered = self.event_mode
        if self.event_mode and not self.coordinated:
            self.handle_event(self.experiment.start_time, ticking=self.ticking(self.experiment.start_time))

    def step(self, time: float, duration: float, *, final: bool) -> None:
        """Step to the end, as often as the component returns early, an event lies between or a clock ticks.

        An event that is due at the end, but for rounding, is met exactly and ends the step: otherwise the next step,
        which begins at a time of its own rounding, would go past it.
        """
        end, now = time + duration, time
        near = time_rounding(time, end, duration)
        self.met = False
        if self.coordinated:
            return self._step_to_event(time, duration, near, final=final)
        self._since = time
        if self.next_event <= now:
            self.handle_event(now)
            if self.ended is not None:
                return None
        stuck = 0
        while True:
            ahead_of = self.next()
            met = now < ahead_of <= end + near and self.capabilities.variable_step
            target = ahead_of if met else end
            ahead = duration if (now, target) == (time, end) else target - now
            event, early = self._do_step(now, ahead, final=final)
            if self.ended is not None:
                return None
            reached = target if early is None else early
            stuck = stuck + 1 if reached <= now else 0
            if stuck > EVENT_ITERATIONS:
                raise self.stuck(now, end)
            ticking = self.ticking(reached)
            if event or ticking or reached >= self.next_event - near:
                self.handle_event(reached, ticking=ticking)
            if self.ended is not None:
                return None
            if reached >= end - near:
                return None
            now = reached

    def _step_to_event(self, time: float, duration: float, near: float, *, final: bool) -> None:
        """One step in a run whose units meet at events; early returns without an event are continued."""
        end, now = time + duration, time
        for _ in range(EVENT_ITERATIONS):
            self.met, early = self._do_step(now, duration if now == time else end - now, final=final)
            if self.ended is not None or early is None or early >= end - near:
                return
            if self.met:
                raise EventInside(
                    f"{self.component} has an event at t = {early!r}, inside its step from {time!r} to {end!r}; "
                    "use a shorter macro step.",
                    early,
                )
            now = early
        raise self.stuck(now, end)

    # ---- event mode ----------------------------------------------------------------------------------------------

    def handle_event(self, time: float, change: Any = None, ticking: Sequence[Clock] = ()) -> None:
        self.enter(time)
        self.tick(ticking)
        if change is not None:
            change()
        if not self.event_mode:
            return
        for _ in range(EVENT_ITERATIONS):
            if not self.update(time):
                break
        else:
            raise self.unsettled(time)
        if self.ended is None:
            self.leave(time)

    def enter(self, time: float) -> None:
        """Enter event mode, unless it is there already."""
        if self.event_mode and not self.entered:
            self.component.call("fmi3EnterEventMode", doing=f"at t = {time!r}")
            self.entered = True

    def update(self, time: float) -> bool:
        """Update the discrete states once; whether that is needed again. Clocks that ticked are inactive then."""
        need, terminate, *_, defined = self._flags
        pointers = [ctypes.byref(flag) for flag in self._flags]
        self.component.call("fmi3UpdateDiscreteStates", *pointers, ctypes.byref(self._time), doing=f"at t = {time!r}")
        self.active.clear()
        if terminate.value:
            self.ended = time
            return False
        if need.value:
            return True
        self.next_event = self._time.value if defined.value else math.inf
        self._ask_intervals(time)
        at_once = [clock for clock in self._timed if self._due.get(clock.name, math.inf) <= time]
        self.tick(at_once)
        return bool(at_once)

    def leave(self, time: float) -> None:
        """Go back to step mode."""
        self.component.call("fmi3EnterStepMode", doing=f"at t = {time!r}")
        self.entered = False

    # ---- clocks --------------------------------------------------------------------------------------------------

    def next(self) -> float:
        """When the next known event is: one that the component announced, or the tick of a clock."""
        return min([self.next_event, *map(self._next_tick, self._timed if self.event_mode else ())])

    def _next_tick(self, clock: Clock) -> float:
        if clock.aperiodic:
            return self._due.get(clock.name, math.inf)
        return clock.next(self.experiment.start_time, self._since)

    def ticking(self, until: float) -> list[Clock]:
        """The clocks that tick at `until`; refuses ticks before it, which a component that cannot step there misses."""
        near, found = time_rounding(until, until), []
        for clock in self._timed if self.event_mode else ():
            due = self._next_tick(clock)
            if due < until - near:
                remedy = f"of which {clock.interval:g} s is a multiple" if clock.interval else "that ends there"
                raise UnitError(
                    f"{self.component} has the clock '{clock.name}', which ticks at t = {due!r}, between two "
                    "communication points, and cannot be stepped there (canHandleVariableCommunicationStepSize); "
                    f"choose a macro step {remedy}."
                )
            if due <= until + near:
                found.append(clock)
        self._since = until
        return found

    def tick(self, clocks: Sequence[Clock]) -> None:
        """Activate clocks, in event mode."""
        for clock in clocks:
            self._due.pop(clock.name, None)
        self.activate({clock.name: clock.value_reference for clock in clocks})

    def activate(self, clocks: Mapping[str, int]) -> None:
        """The same by names and value references."""
        if clocks:
            references = (ctypes.c_uint * len(clocks))(*clocks.values())
            values = (ctypes.c_bool * len(clocks))(*(True for _ in clocks))
            self.component.call("fmi3SetClock", references, len(clocks), values)
            self.active |= {*clocks}

    def ticked(self) -> list[str]:
        """The output clocks that are active, in event mode."""
        outputs = self.clocks.outputs
        if not outputs:
            return []
        references = (ctypes.c_uint * len(outputs))(*outputs.values())
        values = (ctypes.c_bool * len(outputs))()
        self.component.call("fmi3GetClock", references, len(outputs), values)
        return [name for name, active in zip(outputs, values, strict=True) if active]

    def _ask_before_start(self) -> None:
        """Ask for intervals that the description leaves open; a clock of which nothing is learned ticks never."""
        for clock in [clock for clock in self._timed if clock.aperiodic or not clock.interval]:
            self._timed.remove(clock)
            try:
                interval, qualifier = self._interval(clock)
                first = clock.first if clock.aperiodic or clock.first else self._shift(clock)
            except UnitError:
                continue
            if clock.aperiodic:
                self._timed.append(clock)
                if qualifier == CHANGED:
                    self._due[clock.name] = self.experiment.start_time + interval
            elif interval > 0 and 0 <= first < math.inf:
                self._timed.append(replace(clock, interval=interval, first=first))

    def _ask_intervals(self, time: float) -> None:
        """When aperiodic clocks tick next; T = t_event + interval, wherever a new interval is known."""
        for clock in self._timed:
            if clock.aperiodic:
                interval, qualifier = self._interval(clock)
                if qualifier == CHANGED:
                    self._due[clock.name] = time + interval

    def _interval(self, clock: Clock) -> tuple[float, int]:
        """The time until the next tick, and whether that is new."""
        references, interval = (ctypes.c_uint * 1)(clock.value_reference), (ctypes.c_double * 1)()
        qualifier = (ctypes.c_int * 1)()
        self.component.call("fmi3GetIntervalDecimal", references, 1, interval, qualifier)
        if qualifier[0] and not 0 <= interval[0] < math.inf:
            raise UnitError(
                f"{self.component} gives {interval[0]!r} s as the interval of its clock '{clock.name}'; contact its "
                "supplier."
            )
        return interval[0], qualifier[0]

    def _shift(self, clock: Clock) -> float:
        shift = (ctypes.c_double * 1)()
        self.component.call("fmi3GetShiftDecimal", (ctypes.c_uint * 1)(clock.value_reference), 1, shift)
        return shift[0]

    @property
    def idle(self) -> list[str]:
        ticking = {clock.name for clock in self._timed} if self.event_mode else set()
        return [clock.name for clock in self.clocks.timed if clock.name not in ticking]

    @property
    def agenda(self) -> Any:
        if not (self.coordinated or self._due):
            return self.next_event
        return [self.next_event, dict(self._due), self._since, self.met, self.entered]

    @agenda.setter
    def agenda(self, known: Any) -> None:
        plain = known if isinstance(known, list) else (known, {}, -math.inf, False, False)
        self.next_event, due, self._since, self.met, self.entered = plain
        self._due = dict(due)

    def _do_step(self, time: float, duration: float, *, final: bool) -> tuple[bool, float | None]:
        """One call; returns whether there is an event, and the time reached if the component returned early."""
        event, terminate, early = self._flags[:3]
        self._time.value = math.nan  # units may leave it alone
        pointers = [ctypes.byref(flag) for flag in (event, terminate, early)]
        status = self.component.status("fmi3DoStep", time, duration, final, *pointers, ctypes.byref(self._time))
        last = self._time.value
        if status == DISCARD:
            raise self._discarded(time, duration, time if math.isnan(last) else last)
        if status > WARNING:
            self.component.fail("fmi3DoStep", status, f"from t = {time!r} to {time + duration!r} (step {duration!r})")
        if terminate.value:
            end = time + duration
            self.ended = end if math.isnan(last) else min(max(last, time), end)
        if not last >= time and (early.value or not math.isnan(last)):
            self.component.went_back(time, last)
            last = time
        return event.value, last if early.value else None
