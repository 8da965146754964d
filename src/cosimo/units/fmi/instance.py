"""A live FMU: instantiate, set up, give start values, initialise, step, and release on every way out."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array, product, shift_matrix
from cosimo.core.errors import ConfigurationError, RunError, UnitError, UnknownNameError
from cosimo.core.plain import from_bytes, to_bytes
from cosimo.core.unit import EventMode, Instance, Text
from cosimo.units.fmi.archive import Lease, compile_library, listing, require_whole
from cosimo.units.fmi.component import Component
from cosimo.units.fmi.exchange import (
    FmuState,
    Group,
    InputDerivatives,
    States,
    TextLog,
    directional_derivative,
    group,
    write_values,
)
from cosimo.units.fmi.isolation import Isolation, available
from cosimo.units.fmi.variables import TEXTS, Value, VariableInfo, allowed_within
from cosimo.units.fmi.versions import Fmi2, Fmi3

if TYPE_CHECKING:
    from cosimo.units.fmi.fmu import Experiment, Fmu


RETURNED_EARLY, STUCK, UNSETTLED, ENDED = 100, 104, 105, 106
"""What compiled code gives for steps of FMI 3.0 besides a status of FMI: a step that ended early although the FMU does
not declare that, no progress, discrete states that do not settle, the wish to end when it was given inputs."""
EVENT_FUNCTIONS = {1000: "fmi3EnterEventMode", 2000: "fmi3UpdateDiscreteStates", 3000: "fmi3EnterStepMode"}
"""What compiled code adds to a status that one of these functions gave."""


class NativeEvents(NamedTuple):
    """Of an FMU whose steps may be several calls: whether it has event mode, and can be stepped to any time; its next
    known event; which groups of inputs are given in event mode, when they change, and the values given last."""

    mode: bool
    variable_step: bool
    next: float
    discrete: list[bool]
    given: list[float]


@dataclass(frozen=True)
class NativeFmu:
    """What compiled code needs to run an instance; valid until the instance is closed, and keeps it alive.

    `address(symbol)` is the address of an exported function, and raises UnitError where the library has none. Of a
    group, `fmi2Set<code>` and the like take its `references` and one value per entry of `positions`.
    """

    version: int
    component: int
    address: Callable[[str], int]
    inputs: tuple[Group, ...]
    outputs: tuple[Group, ...]
    instance: FmuInstance = field(repr=False)
    isolated: bool = False
    events: NativeEvents | None = None

    @property
    def doubles(self) -> bool:
        """Whether all inputs, and all outputs, are doubles, set or got in one call, at any time, and in order."""
        both = (self.inputs, self.outputs)
        if self.events is not None and any(self.events.discrete):
            return False
        return all(not found or (len(found) == 1 and found[0].code in ("Real", "Float64")) for found in both)


class FmuInstance(Instance):
    """A live FMU. It is in initialisation mode until `finish_initialisation`, `save` or the first step."""

    def __init__(self, unit: Fmu, experiment: Experiment) -> None:
        self._unit, self._start_time = unit, experiment.start_time
        self.keep: Callable[[FmuInstance], bool] | None = None
        library, number = unit.library(), unit.major_version
        isolation = unit.isolation
        if isolation is None and unit.single_instance and available():
            isolation = Isolation()
        single = unit.single_instance and isolation is None
        folder = self._folder = unit.lease(single=single)
        self._component = _component(number, unit, isolation)
        self._component.time = experiment.start_time
        self._version = (Fmi2 if number == 2 else Fmi3)(
            self._component, unit.capabilities, experiment, unit.clocks
        )  # fmt: skip
        self._states = States(self._component, self._version.state_functions)
        self._finaliser = weakref.finalize(self, _release, self._component, self._states, folder)
        try:
            if unit.options.compile and library not in listing(unit.path, unit.options.limits).names:
                interface = "CoSimulation" if unit.solver is None else "ModelExchange"
                how = {"how": unit.options.compile, "interface": interface}
                compile_library(unit.path, folder.path, library, **how, limits=unit.options.limits)
            require_whole(Path(folder.path, library), unit.label)
            with self._component.calling("load"):
                self._component.load(Path(folder.path, library), folder.path, unit.token)
            self._prepare()
            self._initialise()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        unit, number = self._unit, self._version.number
        self._inputs = group(unit.input_infos, number, split=self._version.event_mode)
        self._outputs = group(unit.output_infos, number)
        self._continuous = np.array([info.continuous for info in unit.input_infos], dtype=bool)
        self._followed = unit.followed_inputs
        self._held = np.flatnonzero(~self._followed)
        self._derivatives = InputDerivatives(unit.input_infos, self._followed, unit.input_degree)
        self._text_outputs = group([unit.variables[name] for name in unit.text_outputs], number)
        self._text_sources: list[tuple[VariableInfo, Callable[[], Text | None]]] = []
        self._follows_texts = False
        self._read: tuple[tuple[str, ...], tuple[Group, ...], Any, int] | None = None  # of `get_variables`, the last
        self._set_out()

    def _set_out(self) -> None:
        """Nothing has happened yet."""
        unit = self._unit
        self._values = unit.start_inputs
        self._c, self._h = self._values[None, :], 1.0
        self._time = self._start_time
        self._in_initialisation, self._stepped, self._moved = True, False, False
        self.events: FmuEvents | None = None
        self._behind = 0.0
        self._texts, self._given_texts = TextLog(), dict[str, Text]()

    def _initialise(self, *, again: bool = False) -> None:
        settings, number = self._unit.settings(), self._version.number
        if again:
            self._version.reset()
        else:
            with self._component.calling("Instantiate"):
                self._version.instantiate(self._unit.options.logging)
        if not self._unit.options.logging:
            self._component.ask_for_messages(self._unit.log_categories)
        if structure := self._unit.structure:
            self._component.call("fmi3EnterConfigurationMode")
            write_values(self._component, number, structure)
            self._component.call("fmi3ExitConfigurationMode")
        # Some FMUs reset values while the experiment is set up: values are given after it, and what initialisation mode
        # allows is given once more in it.
        write_values(self._component, number, settings)
        self._version.enter_initialisation()
        write_values(self._component, number, allowed_within(settings))

    # ---- the contract --------------------------------------------------------------------------------------------

    def set_input(self, coefficients: Array, h: float) -> None:
        """Set the values at once; derivatives are handed over with the next step, for which the FMU wants them."""
        self._require_going()
        c = np.array(coefficients[: self._unit.input_degree + 1], dtype=float)
        if len(c) > 1 and len(self._held):
            c[1:, self._held] = 0.0
        self._c, self._h, self._moved, self._behind = c, h, False, 0.0
        self._set_values(c[0], () if self._waits_for_events else self._fresh_texts())
        self._require_going()

    def take_texts(self, sources: Mapping[str, Callable[[], Text | None]]) -> None:
        self._text_sources = [(self._unit.variables[name], source) for name, source in sources.items()]
        self._follows_texts = bool(sources or self._text_outputs)

    def text(self, name: str) -> Text | None:
        return self._texts.last.get(name)

    def take_back(self, time: float, texts: Mapping[str, Text | None]) -> None:
        self._texts.note(time, {name: text for name, text in texts.items() if text is not None})

    def texts_at(self, times: Array) -> list[list[Text]]:
        found = self._texts.at(times)
        return [[values[name] for values in found] for name in self._unit.text_outputs]

    def finish_initialisation(self) -> None:
        if self._in_initialisation:
            self._in_initialisation = False
            self._version.exit_initialisation()
            self._tell_of_idle_clocks()

    def _tell_of_idle_clocks(self) -> None:
        clocks, connected = self._unit.clocks, () if self.events is None else self.events.connected
        triggered = [name for name in clocks.triggered if name not in connected]
        timed = self._version.idle if self._unit.solver is None else []  # with a solver of ours, the adapter ticks them
        if idle := [*clocks.idle, *triggered, *timed]:
            names = ", ".join(idle[:5]) + (" …" if len(idle) > 5 else "")
            self._component.tell("clocks", f"has input clocks that nobody activates: {names}")

    def join_events(self, clocks: Collection[str]) -> FmuEvents | None:
        if isinstance(self._version, Fmi3) and self._version.event_mode:
            self.events = FmuEvents(self, self._version, clocks)
        return self.events

    def step(self, time: float, duration: float) -> None:
        """One step of the FMU from exactly `time`; afterwards the polynomial is moved along, once somebody needs it.

        An FMU that wants the simulation to end may get less far: see `ended`.
        """
        if not self._stepped:
            self._begin(time)
        self._require_going()
        self._follow()
        if self._moved:
            self._set_values(self._c[0])
        if len(self._c) > 1:
            self._derivatives.set(self._component, self._c, self._h)
        exact = self._unit.options.exact_difference
        given = _difference(self._start_time, time, duration) if exact else duration
        self._component.time = time
        self._version.step(time, given, final=not len(self._states))
        self._time = time + duration
        self._behind = duration / self._h if len(self._c) > 1 else 0.0

    def _follow(self) -> None:
        """Move the polynomial to the time reached."""
        if self._behind:
            self._c = product(shift_matrix(len(self._c) - 1, self._behind), self._c)
            self._moved, self._behind = True, 0.0

    def read(self) -> Array:
        values = np.empty(len(self._unit.outputs))
        for found in self._outputs:
            found.get(self._component, values)
        self._read_texts()
        return values

    def _read_texts(self) -> None:
        if self._follows_texts:
            texts: dict[str, Text] = {}
            for members in self._text_outputs:
                texts |= zip((info.name for info in members.infos), members.texts(self._component), strict=True)
            self._texts.note(self._time, {name: texts[name] for name in self._unit.text_outputs})

    def save(self) -> FmuState:
        """The FMU's own state and the input. Initialisation is finished first."""
        self._require(self._unit.can_restore, "save and restore its state", "canGetAndSetFMUstate")
        self.finish_initialisation()
        self._require_going()
        self._follow()
        beside = (self._c, self._h, self._moved, self._values, self._time, self._stepped, self._version.agenda)
        return self._states.save((*beside, dict(self._given_texts)) if self._text_sources else beside)

    def restore(self, state: FmuState) -> None:
        self._states.restore(state)
        self._behind = 0.0
        self._go_on_with(*state.beside)
        self._version.ended = None

    def _go_on_with(
        self, c: Array, h: float, moved: bool, values: Array, time: float, stepped: bool, event: Any,
        texts: Mapping[str, Text] | None = None,
    ) -> None:  # fmt: skip
        self._c, self._h, self._moved, self._values = c, h, moved, values
        self._time, self._stepped, self._version.agenda = time, stepped, event
        self._given_texts = dict(texts or {})

    def close(self) -> None:
        """Free the instance, its states and the extracted folder, unless it is kept; closing twice is harmless."""
        if self.keep is None or not self.keep(self):
            self._finaliser()

    @property
    def ended(self) -> float | None:
        return self._version.ended

    # ---- beyond the contract -------------------------------------------------------------------------------------

    def begin_again(self, unit: Fmu, experiment: Experiment) -> None:
        """Reset the component and bring it into initialisation mode, with the values of `unit`, of the same FMU."""
        self._states.free()
        self._finaliser.detach()  # states that somebody still holds must not come back as memory to write to
        self._states = States(self._component, self._version.state_functions)
        self._finaliser = weakref.finalize(self, _release, self._component, self._states, self._folder)
        self._unit, self._start_time = unit, experiment.start_time
        self._component.time = experiment.start_time
        self._version = type(self._version)(self._component, unit.capabilities, experiment, unit.clocks)
        self._component.log.clear()
        self._set_out()
        self._initialise(again=True)

    @property
    def unit(self) -> Fmu:
        """What it is an instance of."""
        return self._unit

    def went_back(self, begin: float, last: float) -> None:
        """See `Component.went_back`; compiled code met it."""
        self._component.went_back(begin, last)

    @property
    def notices(self) -> tuple[str, ...]:
        return self._component.notices

    @property
    def messages(self) -> tuple[str, ...]:
        """The last messages the FMU logged, oldest first."""
        return tuple(f"{label}: {text}" for label, text in self._component.log.messages)

    def get_string(self, name: str) -> str:
        """The value of a string variable, or of one element of an array of strings."""
        unit = self._unit
        texts = {info.name: info for info in unit.variables.values() if info.type == "String"}
        if name not in texts:
            raise UnknownNameError(f"string variable of FMU '{unit.path}'", name, texts)
        members = [info for other, info in texts.items() if unit.owners[other] == unit.owners[name]]
        (strings,) = group(members, self._version.number)
        return str(strings.texts(self._component)[texts[name].element or 0])

    def get_variables(self, names: Sequence[str]) -> Array:
        """The values of numeric variables or array elements now; FMI reads arrays whole."""
        if self._read is None or self._read[0] != tuple(names):
            unit = self._unit
            owners = dict.fromkeys(unit.owners[name] for name in names)
            whole = [element for owner in owners for element in unit.elements_of(owner)]
            groups = group([unit.variables[name] for name in whole], self._version.number)
            self._read = (
                tuple(names),
                groups,
                np.array([whole.index(name) for name in names], dtype=np.intp),
                len(whole),
            )
        _, groups, places, count = self._read
        values = np.empty(count)
        for members in groups:
            members.get(self._component, values)
        found: Array = values[places]
        return found

    def set_variables(self, names: Sequence[str], values: Sequence[float]) -> None:
        """Set numeric variables; of an array, all its elements must be named."""
        given = [(self._unit.variables[name], float(value)) for name, value in zip(names, values, strict=True)]
        write_values(self._component, self._version.number, given)

    def serialise(self) -> bytes:
        self._require(self._unit.can_serialise, "serialise its state", "canSerializeFMUstate")
        state = self.save()
        # The values are a view of the polynomial; as bytes they are two.
        beside = [part.copy() if isinstance(part, np.ndarray) else part for part in state.beside]
        return to_bytes((self._states.serialise(state), [*beside, self._derivatives.highest]))

    def deserialise(self, data: bytes) -> None:
        self._require(self._unit.can_serialise, "serialise its state", "canSerializeFMUstate")
        self.finish_initialisation()
        own, beside = from_bytes(data)
        self._states.restore(self._states.deserialise(own))
        *beside, self._derivatives.highest = beside
        self._behind = 0.0
        self._go_on_with(*beside)
        self._stepped = True
        self._read_texts()  # they are passed on in the next step

    def directional_derivative(self, unknowns: Sequence[str], knowns: Sequence[str], seed: Sequence[float]) -> Array:
        """Σ_j ∂unknown_i / ∂known_j · seed_j, by names of variables or array elements."""
        provided = self._unit.provides_directional_derivatives
        self._require(provided, "give directional derivatives", "providesDirectionalDerivative")
        return directional_derivative(self._component, self._unit, unknowns, knowns, seed)

    def native(self, powers: int) -> NativeFmu | None:
        """Addresses and variables for compiled code; finish initialisation before stepping there.

        None where that can do less than is needed: texts in a system, clocks, steps that are given as differences of
        times, and polynomials of inputs that do not all follow one.
        """
        unit, version = self._unit, self._version
        clocked = version.event_mode and bool(unit.clocks.timed)
        if self._follows_texts or clocked or unit.options.exact_difference or version.ended is not None:
            return None
        events = None
        if version.event_mode or unit.capabilities.early_return:
            discrete = [version.event_mode and not found.infos[0].continuous for found in self._inputs]
            able, given = unit.capabilities.variable_step, self._values.tolist()
            events = NativeEvents(version.event_mode, able, version.next_event, discrete, given)
        component, groups = self._component, (self._inputs, self._outputs)
        found = NativeFmu(
            version.number, component.address, component.symbol, *groups, self, component.isolated, events
        )
        if powers > 1 and not (found.doubles and self._followed.all()):
            return None
        self._stepped = True  # there, from wherever that begins
        return found

    def explain(self, doing: str, status: int, time: float, duration: float) -> NoReturn:
        which, status = (status // 1000 * 1000, status % 1000) if status > 0 else (0, status)
        self._component.note(status)
        if which:
            self._component.fail(EVENT_FUNCTIONS[which], status, f"at t = {time!r}")
        if status == STUCK:
            raise self._version.stuck(time, time + duration)
        if status == UNSETTLED:
            raise self._version.unsettled(time)
        if status == ENDED:
            self._version.ended = time
            raise self._version.end_requested()
        if status == RETURNED_EARLY:
            raise UnitError(
                f"{self._component} returned early from its step from t = {time!r} to {time + duration!r}, which it "
                f"does not declare{self._component.said}; contact its supplier."
            )
        if doing == "step":
            self._version.refused(status, time, duration)
        number, states = self._version.number, self._version.state_functions
        groups = self._inputs if doing == "set" else self._outputs
        code = groups[0].code if groups else ""
        values = {"set": f"fmi{number}Set{code}", "get": f"fmi{number}Get{code}"}
        self._component.fail((values | {"save": states["get"], "restore": states["set"]})[doing], status, "")

    # ---- small parts ---------------------------------------------------------------------------------------------

    def _begin(self, time: float) -> None:
        if time != self._start_time:
            raise UnitError(
                f"{self._component} was set up to start at t = {self._start_time!r}, but its first step starts at "
                f"t = {time!r}; give it an Experiment with this start time."
            )
        self.finish_initialisation()
        self._stepped = True

    def _require_going(self) -> None:
        if self._version.ended is not None:
            raise self._version.end_requested()

    @property
    def _waits_for_events(self) -> bool:
        return self.events is not None and not self._in_initialisation

    def _fresh_texts(self, *, look: bool = False) -> list[tuple[VariableInfo, Value]]:
        """The texts of connected inputs that are others than they were given last; FMI sets arrays whole.

        With `look` they are not yet given.
        """
        if not self._text_sources:
            return []
        unit, given, fresh = self._unit, dict(self._given_texts) if look else self._given_texts, dict[str, None]()
        for info, source in self._text_sources:
            if (value := source()) is not None and value != given.get(info.name):
                fresh[unit.owners[info.name]] = None
                given[info.name] = value
        infos = [unit.variables[element] for owner in fresh for element in unit.elements_of(owner)]
        start = {info.name: unit.given.get(info.name, info.start) for info in infos}
        return [(one, given.get(one.name) or start[one.name] or TEXTS[one.type]) for one in infos]

    def _set_values(self, values: Array, texts: Sequence[tuple[VariableInfo, Value]] = ()) -> None:
        """Set all inputs; where event mode is used, discrete ones only when they change, and in event mode."""
        before, self._values = self._values, values

        def set_all() -> None:
            self._set_groups(self._inputs)
            if texts:
                write_values(self._component, self._version.number, texts)

        if not self._version.event_mode or self._in_initialisation:
            set_all()
        elif self.events is not None or (
            np.array_equal(before[~self._continuous], values[~self._continuous]) and not texts
        ):
            if self.events is not None:  # discrete ones are set at events, for all units at once
                self._values = np.where(self._continuous, values, before)
            self._set_groups(tuple(found for found in self._inputs if found.infos[0].continuous))
        else:
            self._version.handle_event(self._time, set_all)

    def _set_groups(self, groups: tuple[Group, ...]) -> None:
        for found in groups:
            found.set(self._component, self._values)

    def _require(self, can: bool, what: str, flag: str) -> None:
        if not can:
            raise ConfigurationError(
                f"{self._component} cannot {what} (its description does not declare {flag}); choose a master or an "
                "option that does not need it."
            )


class FmuEvents(EventMode):
    """Event mode of an FMU of FMI 3.0, entered and left by the master; `connected` input clocks tick when told to."""

    def __init__(self, instance: FmuInstance, version: Fmi3, connected: Collection[str]) -> None:
        self._instance, self._version, self.connected = instance, version, connected
        self.returns_early = version.capabilities.early_return
        version.coordinated = True

    @property
    def met(self) -> bool:  # type: ignore[override]
        """Whether the last step ended with an event."""
        return self._version.met

    @property
    def entered(self) -> bool:  # type: ignore[override]
        """Whether it is in event mode."""
        return self._version.entered

    def next(self) -> float:
        return self._version.next()

    def changes(self, inputs: Array) -> bool:
        instance = self._instance
        free = np.array([not (info.continuous or info.clocks) for info in instance.unit.input_infos], dtype=bool)
        return not np.array_equal(inputs[free], instance._values[free]) or bool(instance._fresh_texts(look=True))

    def enter(self, time: float) -> None:
        self._version.enter(time)
        self._version.tick(self._version.ticking(time))

    def activate(self, clocks: Collection[str]) -> None:
        self._version.activate({name: self._version.clocks.triggered[name] for name in clocks})

    def ticked(self) -> Sequence[str]:
        return self._version.ticked()

    def give(self, inputs: Array) -> bool:
        instance = self._instance
        before, values, changed = instance._values, instance._values.copy(), False
        for found in instance._inputs:
            clocks, places = found.infos[0].clocks, list(found.positions)
            if not clocks or self._version.active.intersection(clocks):
                values[places] = inputs[places]
                if clocks or not np.array_equal(values[places], before[places]):
                    found.set(instance._component, values)
        changed = not np.array_equal(values, before)
        texts = instance._fresh_texts()
        write_values(instance._component, self._version.number, texts)
        instance._values, instance._c = values, values[None, :]
        instance._moved, instance._behind = False, 0.0
        return changed or bool(texts)

    def update(self, time: float) -> bool:
        self._version.met = False
        return self._version.update(time)

    def leave(self, time: float) -> None:
        self._version.leave(time)


def _component(number: int, unit: Fmu, isolation: Isolation | None) -> Component:
    adapter = unit.adapter
    if isolation is None:
        return Component(number, unit.label, unit.name, adapter)
    from cosimo.units.fmi.isolated_component import IsolatedComponent

    return IsolatedComponent(number, unit.label, unit.name, adapter, isolation)


def _release(component: Component, states: States, folder: Lease) -> None:
    try:
        with component.calling("Terminate"):
            if not component.dead:
                states.free()
            component.release()
    finally:
        folder.release()


def _difference(start: float, time: float, duration: float) -> float:
    """t_{k+1} − t_k with t_k = t0 + k·h, where `time` is on this grid; otherwise the rounded step to `time` + h."""
    k = round((time - start) / duration)
    if start + k * duration == time:
        return (start + (k + 1) * duration) - time
    return (time + duration) - time


# ---- live FMUs kept between runs: a study of a thousand runs loads and instantiates each FMU once --------------------
# `fmi2Reset` and `fmi3Reset` bring a component back to where it was after its instantiation. What a run closes goes
# back to the reserve and is reset when the next run wants an FMU of the same file, name and options. An FMU whose reset
# is missing or fails is instantiated anew, from the same extracted folder; so is one after an error, and every one once
# `distrust` was called, because a reset was found not to bring everything back.


# Loading a library changes the working directory for a moment, which belongs to the whole process.
_loading = threading.RLock()


class Reserve:
    """Idle instances by what they are instances of; belongs to one thread.

    `reused` counts the resets that replaced an instantiation, `fresh` the instantiations.
    """

    def __init__(self) -> None:
        self._idle: dict[Hashable, list[FmuInstance]] = {}
        self._folders: dict[Hashable, Lease] = {}
        self._keeps = True
        self.reused = self.fresh = 0

    def instance(
        self, unit: Fmu, experiment: Experiment, make: Callable[[Fmu, Experiment], FmuInstance]
    ) -> FmuInstance:
        """An instance in initialisation mode: a kept one, reset, or what `make` makes."""
        key = _key(unit)
        while idle := self._idle.get(key):
            kept = idle.pop()
            try:
                kept.begin_again(unit, experiment)
            except RunError:
                kept.keep = None
                kept.close()
            else:
                self.reused += 1
                return kept
        with _loading:
            if key not in self._folders and not unit.single_instance:
                self._folders[key] = unit.lease()
            made = make(unit, experiment)
        self.fresh += 1
        made.keep = self._take_back
        return made

    def flush(self) -> None:
        """Close what is idle: the next runs begin with fresh instances, which are kept in turn."""
        for idle in self._idle.values():
            while idle:
                kept = idle.pop()
                kept.keep = None
                kept.close()

    def distrust(self) -> None:
        """Reuse nothing from now on."""
        self._keeps = False
        self.flush()

    def close(self) -> None:
        """Close all, and remove the extracted folders."""
        self.distrust()
        while self._folders:
            self._folders.popitem()[1].release()

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the interpreter, when not much is left
            self.close()

    def _take_back(self, instance: FmuInstance) -> bool:
        """Whether an instance that is no longer used is kept: not after an error, nor before it was initialised."""
        if not (self._keeps and instance._component.running):
            return False
        self._idle.setdefault(_key(instance.unit), []).append(instance)
        return True


def _key(unit: Fmu) -> Hashable:
    return (str(unit.path.absolute()), unit.name, unit.options, unit.isolation, unit.structure)
