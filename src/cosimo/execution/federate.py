"""A coupled system as one federate of a HELICS federation: chosen inputs come from it, chosen outputs go to it.

HELICS time is simulated time. At offset + n · period the run asks for that time; when it is granted, the outputs of
that time are published, and inputs take the newest values that others have published before (program HFG). Between two
of these times, inputs are held. The run itself is that of any system: external inputs are sources, and the session says
when a step is made.

A federate that iterates asks for the time first, takes the newest inputs, makes the macro steps that end there, and
publishes their outputs (FGH); where others publish at the same time, it goes back and makes them again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Any

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, RunError, UnknownNameError
from cosimo.core.system import Source, System
from cosimo.execution.engines import Engine, ReferenceEngine
from cosimo.execution.live import Live
from cosimo.execution.monitoring import Watch
from cosimo.units import remote
from cosimo.units.remote import Hosts, Pulse

NEAR = 1e-9
"""Of a macro step: how near a multiple must be to be one."""


@dataclass(frozen=True)
class Membership:
    """How a system joins: under which `name`, which inputs by their key in the federation, which outputs to which key.

    `period` and `offset` are multiples of the macro step; None is one macro step. `waits`: sees what others publish at
    the same time (`wait_for_current_time_update`). `iterations`: how often it makes the steps to one time at most; None
    does not iterate. Outputs that change by no more than `tolerance` are not published again.
    """

    hosts: Hosts
    name: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    period: float | None = None
    offset: float = 0.0
    waits: bool = False
    iterations: int | None = None
    tolerance: float = 0.0


class SystemFederate:
    """The run's side of the federation; given to a run as its `progress`, with `system` in place of the original."""

    def __init__(self, how: Membership, system: System, step: float, start: float) -> None:
        self.how, self._start, self._step = how, start, step
        self._every = _multiple("period", how.period, step) if how.period is not None else 1
        self._first = _multiple("offset", how.offset, step) if how.offset else 0
        if self._every < 1:
            raise ConfigurationError(f"the period is {how.period:g} s; give at least one macro step of {step:g} s.")
        if start < 0:
            raise ConfigurationError(f"the run begins at {start:g} s, and HELICS at 0 s; begin at 0 s or later.")
        if how.iterations is not None and how.iterations < 1:
            raise ConfigurationError(f"'iterations' is {how.iterations}; give at least 1, or leave it out.")
        for name in how.outputs:
            if name not in system.outputs:
                raise UnknownNameError("output", name, system.outputs)
        free = {target for target in system.input_names if target not in _connected(system)}
        for target in how.inputs:
            if target not in free:
                raise UnknownNameError("unconnected input", target, free)
        values = {target: _start_value(system, target, start) for target in how.inputs}
        self._values, self._session, self._steps = values, None, 0
        sources: dict[str, Source] = {target: self._source(target) for target in how.inputs}
        self.system = system.with_values({}, inputs=sources)

    def _source(self, target: str) -> Source:
        return lambda _: self._values[target]

    def join(self) -> None:
        """Become a member, and wait until all others are; time does not begin yet."""
        how, h = self.how, remote.helics()
        self._h = h
        self._federate = remote.join(how.hosts, how.name, self._prepare)
        self._pulse = Pulse(self._federate)
        with self._naming():
            self._publications = {
                name: h.helicsFederateRegisterGlobalTypePublication(
                    self._federate, key, "double", _measure(self.system, name)
                )
                for name, key in how.outputs.items()
            }
            self._inputs = {
                target: h.helicsFederateRegisterSubscription(self._federate, key, _measure(self.system, target))
                for target, key in how.inputs.items()
            }
            for target, subscribed in self._inputs.items():
                h.helicsInputSetDefaultDouble(subscribed, self._values[target])
            h.helicsFederateEnterInitializingModeAsync(self._federate)
            self._wait("the other members")
            h.helicsFederateEnterInitializingModeComplete(self._federate)

    def _prepare(self, h: Any, info: Any) -> None:
        h.helicsFederateInfoSetFlagOption(info, h.HELICS_FLAG_UNINTERRUPTIBLE, self.how.iterations is None)
        h.helicsFederateInfoSetFlagOption(info, h.HELICS_FLAG_WAIT_FOR_CURRENT_TIME_UPDATE, self.how.waits)

    def _naming(self) -> Any:
        return _Naming(self._h, self.how.name)

    # ---- what the session calls ----------------------------------------------------------------------------------

    def watch(self, session: Any) -> None:
        """The units are initialised: time begins when all members have published what they start with."""
        h, self._session, self._steps = self._h, session, session.count
        with self._naming():
            self._publish()
            h.helicsFederateEnterExecutingModeAsync(self._federate)
            self._wait("the begin")
            h.helicsFederateEnterExecutingModeComplete(self._federate)
        if self._start > 0:
            self._request(self._start)
        self._take()
        if self.how.iterations is not None:
            while self._iterating(self._time(self._first or self._every)):
                pass

    def __call__(self, reached: float, end: float) -> None:
        """A macro step was made."""
        made = round((reached - self._start) / self._step)
        if self.how.iterations is None and made >= self._first and (made - self._first) % self._every == 0:
            self._request(reached)
            self._publish()
            self._take()

    def engine(self, live: Live, names: Sequence[str], watch: Watch | None) -> Engine | None:
        """What makes the macro steps; None is the usual one."""
        if self.how.iterations is None:
            return None
        stuck = [name for name, unit in self.system.units.items() if not unit.can_restore]
        if stuck or live.master.mixers or live.joints or live.events:
            why = f"unit '{stuck[0]}' cannot" if stuck else "compensations, predictions and clocks do not"
            raise ConfigurationError(f"a federate that iterates goes back in time, and {why}; leave 'iterations' out.")
        return _IteratedEngine(live, names, watch, self)

    def period(self, k: int) -> int:
        """How many macro steps there are from t_k to the next exchange, where t_k is one; else 0."""
        count = self._every
        if k < self._first:
            count = self._first if k == 0 else 0
        elif (k - self._first) % self._every:
            count = 0
        return count if k + count <= self._steps else 0

    def passes(self, k: int) -> Iterator[int]:
        """How often the macro steps that end at t_k, which is granted, are to be made; inputs are newer each time."""
        made, published = 0, dict[str, float]()
        while True:
            if made < (self.how.iterations or 1):
                self._take()
                yield made
                made += 1
                outputs = self._outputs()
                if any(abs(y - published.get(name, math.inf)) > self.how.tolerance for name, y in outputs.items()):
                    self._publish()
                    published = outputs
            if not self._iterating(self._time(k + self._every)):
                return

    def leave(self) -> None:
        """No member any more; others go on."""
        with suppress(AttributeError):
            remote.within(3.0, lambda: self._h.helicsFederateDisconnect(self._federate))

    # ---- HELICS --------------------------------------------------------------------------------------------------

    def _time(self, k: int) -> float:
        return self._start + k * self._step

    def _request(self, wanted: float) -> None:
        h = self._h
        with self._naming():
            h.helicsFederateRequestTimeAsync(self._federate, wanted)
            self._wait(f"t = {wanted:g}")
            granted = float(h.helicsFederateRequestTimeComplete(self._federate))
        if granted > wanted + NEAR * self._step:
            raise RunError(
                f"the federation granted t = {granted:g} where '{self.how.name}' asked for t = {wanted:g}: it has "
                "ended, or its clock is coarser than the macro step; check period and offset."
            )

    def _iterating(self, wanted: float) -> bool:
        """Ask for a time; whether others have published something at the present one instead."""
        h = self._h
        with self._naming():
            again = h.HELICS_ITERATION_REQUEST_ITERATE_IF_NEEDED
            h.helicsFederateRequestTimeIterativeAsync(self._federate, wanted, again)
            self._wait(f"t = {wanted:g}")
            _, result = h.helicsFederateRequestTimeIterativeComplete(self._federate)
        # The library hands out a pointer here, unlike where it does not wait.
        return int(result[0]) == int(h.HELICS_ITERATION_RESULT_ITERATING)

    def _wait(self, what: str) -> None:
        """Others may take any time; a broker that does not answer is lost."""
        begin = time.monotonic()
        while not self._h.helicsFederateIsAsyncOperationCompleted(self._federate):
            waited = time.monotonic() - begin
            if waited > 1.0 and self._pulse.silent("root") > self.how.hosts.patience:
                raise RunError(
                    f"the HELICS broker at {self.how.hosts.broker} has not answered for {self.how.hosts.patience:g} s "
                    f"while '{self.how.name}' waited for {what}; start the federation again."
                )
            time.sleep(min(max(waited / 20, 2e-5), 1e-2))

    def _outputs(self) -> dict[str, float]:
        assert self._session is not None
        outputs = dict(zip(self.system.outputs, self._session.live.outputs(), strict=True))
        return {name: outputs[name] for name in self._publications}

    def _publish(self) -> None:
        for name, value in self._outputs().items():
            self._h.helicsPublicationPublishDouble(self._publications[name], value)

    def _take(self) -> None:
        for target, subscribed in self._inputs.items():
            self._values[target] = float(self._h.helicsInputGetDouble(subscribed))


class _IteratedEngine(ReferenceEngine):
    """The plain interpreter for a federate that iterates: the macro steps of a period are made again and again."""

    def __init__(self, live: Live, names: Sequence[str], watch: Watch | None, member: SystemFederate) -> None:
        super().__init__(live, names, watch)
        self._member = member

    def _macro_step(self, k: int) -> None:
        made = self._interpreter
        if count := self._member.period(k):
            saved, sweeps = made.save(k), len(made.sweeps)
            for number in self._member.passes(k + count):
                if number:
                    made.restore(saved)
                    del made.sweeps[sweeps:], made.residuals[sweeps:]
                for step in range(k, k + count):
                    made.macro_step(step)
            if count == 1:
                return
            made.restore(saved)  # once more with the last inputs, for the rows
            del made.sweeps[sweeps:], made.residuals[sweeps:]
        made.macro_step(k)


class _Naming:
    """Turns what HELICS raises into our error."""

    def __init__(self, h: Any, name: str) -> None:
        self._h, self._name = h, name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, _: object) -> None:
        if isinstance(error, self._h.HelicsException):
            raise RunError(f"federate '{self._name}': HELICS says: {' '.join(str(error).split())}.") from None


def _multiple(what: str, value: float, step: float) -> int:
    count = round(value / step)
    if value < 0 or abs(value / step - count) > NEAR:
        raise ConfigurationError(f"the {what} is {value:g} s; give a multiple of the macro step of {step:g} s.")
    return count


def _connected(system: System) -> set[str]:
    return {connection.target for connection in system.connections}


def _start_value(system: System, target: str, start: float) -> float:
    if target in system.inputs:
        return float(system.inputs[target](start))
    unit, variable = system.parameter(target)
    return float(system.units[unit].start.get(variable, 0.0))


def _measure(system: System, name: str) -> str:
    unit, variable = system.owner(name) or ("", name)
    measure = system.units[unit].measure(variable)
    return "" if measure is None else str(measure)
