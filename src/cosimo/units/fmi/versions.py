"""What FMI 2.0 and FMI 3.0 do differently in the life of a co-simulation component."""

from __future__ import annotations

import ctypes
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NoReturn

from cosimo.core.errors import EndRequested, StepDiscarded, UnitError
from cosimo.core.timing import time_rounding
from cosimo.units.fmi.component import DISCARD, WARNING, Component
from cosimo.units.fmi.fmu import Capabilities, Experiment

LAST_SUCCESSFUL_TIME, TERMINATED = 2, 3
"""Kinds of status that an FMI 2.0 component can be asked for after it discarded a step."""
EVENT_ITERATIONS = 1000
"""Updates of discrete states at one instant, and returns without progress, before a component counts as stuck."""


class Version(ABC):
    """The calls that differ; `next_event` is the time of the next known event, if any.

    `ended` is the time at which the component wants the simulation to end, once it has asked for that.
    """

    number: int
    state_functions: Mapping[str, str]

    def __init__(self, component: Component, capabilities: Capabilities, experiment: Experiment) -> None:
        self.component, self.capabilities, self.experiment = component, capabilities, experiment
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

    def end_requested(self) -> EndRequested:
        """The error for going on with a component that wants the simulation to end."""
        assert self.ended is not None
        said = f"{self.component} ended the simulation at t = {self.ended!r}; set an earlier stop time."
        return EndRequested(said, self.ended)

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

    def __init__(self, component: Component, capabilities: Capabilities, experiment: Experiment) -> None:
        super().__init__(component, capabilities, experiment)
        self.event_mode = capabilities.event_mode
        self._flags = [ctypes.c_bool() for _ in range(5)]
        self._time = ctypes.c_double()

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
        self.component.call("fmi3ExitInitializationMode", doing=f"at t = {self.experiment.start_time!r}")
        self.component.running = True
        if self.event_mode:
            self._update(self.experiment.start_time)
            if self.ended is None:
                self.component.call("fmi3EnterStepMode")

    def step(self, time: float, duration: float, *, final: bool) -> None:
        """Step to the end, as often as the component returns early or an event lies between.

        An event that is due at the end, but for rounding, is met exactly and ends the step: otherwise the next step,
        which begins at a time of its own rounding, would go past it.
        """
        end, now = time + duration, time
        near = time_rounding(time, end, duration)
        if self.next_event <= now:
            self.handle_event(now)
        stuck = 0
        while True:
            met = now < self.next_event <= end + near and self.capabilities.variable_step
            target = self.next_event if met else end
            ahead = duration if (now, target) == (time, end) else target - now
            event, early = self._do_step(now, ahead, final=final)
            if self.ended is not None:
                return
            reached = target if early is None else early
            stuck = stuck + 1 if reached <= now else 0
            if stuck > EVENT_ITERATIONS:
                raise UnitError(
                    f"{self.component} does not advance beyond t = {now!r} (step to {end!r}); it returns early."
                )
            if event or reached >= self.next_event - near:
                self.handle_event(reached)
            if self.ended is not None:
                return
            if reached >= end - near:
                return
            now = reached

    def handle_event(self, time: float, change: Any = None) -> None:
        if self.event_mode:
            self.component.call("fmi3EnterEventMode", doing=f"at t = {time!r}")
        if change is not None:
            change()
        if self.event_mode:
            self._update(time)
            if self.ended is None:
                self.component.call("fmi3EnterStepMode", doing=f"at t = {time!r}")

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

    def _update(self, time: float) -> None:
        """Update discrete states until they settle."""
        need, terminate, *_, defined = self._flags
        pointers = [ctypes.byref(flag) for flag in self._flags]
        for _ in range(EVENT_ITERATIONS):
            self.component.call(
                "fmi3UpdateDiscreteStates", *pointers, ctypes.byref(self._time), doing=f"at t = {time!r}"
            )
            if terminate.value:
                self.ended = time
                return
            if not need.value:
                self.next_event = self._time.value if defined.value else math.inf
                return
        raise UnitError(f"{self.component} does not settle its discrete states at t = {time!r}; contact its supplier.")
