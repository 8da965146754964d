"""From a schedule to the kernel's instruction table: every operation with its constants, over flat arrays.

    y  outputs of all units, one after the other        c  their input polynomials, c_0 of all inputs, then c_1, …
    w  memories of the couplings, link after link       e  samples of external inputs, anew for every macro step

Consecutive operations of the same kind on different units become one instruction (a stage).
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import accumulate
from math import copysign, factorial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array, external_fit, shift_matrix, value_row
from cosimo.core.coupling import Coupling, ModelCheck, Sampling, settled
from cosimo.core.errors import ConfigurationError, RunError, UnitError
from cosimo.core.master import Joint, Segment, mixer_of, mixer_offsets, segment
from cosimo.core.schedule import Convergence, Restore, Save
from cosimo.core.system import Constant, Inlet, Link, Source, Table
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedRepeat, TimedStep, settled_sweep
from cosimo.execution.live import Live, Signals, newton_correction, order_of_dependence
from cosimo.execution.monitoring import Watch
from cosimo.units.fmi.variables import allowed_within
from cosimo.units.linear import LinearInstance
from cosimo.units.native import NativeInstance
from cosimo.units.python import PythonInstance

if TYPE_CHECKING:
    from cosimo._kernel import Program
    from cosimo.units.fmi.fmu import Fmu
    from cosimo.units.fmi.instance import FmuInstance, NativeFmu
    from cosimo.units.fmi.variables import Value, VariableInfo

TYPES = (
    *("Float64", "Float32", "Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64", "Boolean"),
    "BooleanAsInt",
)
"""The kernel's numbers for the types of FMU variables; Booleans of FMI 2.0 are integers."""
SAMPLED = 4096  # macro steps whose external inputs are asked for at once: the call may make few of them
KEPT = 512  # lengths of macro steps whose constants are kept
SAME = {"Real": "Float64", "Integer": "Int32"}  # FMI 2.0's own names of types


class Lowering:
    """The program of initialised live units: they go on living in the kernel."""

    def __init__(self, live: Live, names: Sequence[str]) -> None:
        self.live, self.system, self.master = live, live.system, live.master
        units = self.system.units
        self.numbers = {name: number for number, name in enumerate(units)}
        self.y = _places(units, [len(unit.outputs) for unit in units.values()])
        self.c = _places(units, [live.c[name].size for name in units])
        self.w = list(accumulate((len(w) for w in live.w), initial=0))
        self.samples: list[tuple[str, Source, float]] = []
        self._maps: dict[tuple[str, float], int] = {}
        self.outside: list[str] = []  # units whose state is not part of the kernel's memory
        self._kind: tuple[type, set[str]] | None = None
        starts = list(accumulate((len(mixer.start) for mixer in self.master.mixers.values()), initial=self.w[-1]))
        self.m = dict(zip(self.master.mixers, starts, strict=False))
        self.j = list(accumulate((nodes.size + 2 for nodes in live.nodes), initial=starts[-1]))
        self.k = list(accumulate((part.size for part in live.checked), initial=self.j[-1]))
        flat = [
            np.concatenate([np.ravel(part) for part in parts] or [np.zeros(0)]).tolist() for parts in self._signals()
        ]
        self.program = self._begin(live.start_time, self.master.step, *flat)
        self.program.name_units(list(units))
        for name in units:
            self._add(name)
        self._check()
        self._lower(live.timeline.operations)
        self._columns(names)

    def _begin(self, start: float, step: float, y: list[float], c: list[float], w: list[float]) -> Program:
        from cosimo._kernel import Program

        return Program(start, step, y, c, w)

    def _signals(self) -> tuple[list[Array], list[Array], list[Array]]:
        names, i = self.system.units, self.live
        # Of a predictor: the nodes, which expert is in charge, the last error.
        learned = [np.append(nodes, [0.0, 0.0]) for nodes in i.nodes]
        memories = [*i.w, *i.mixed.values(), *learned, *i.checked]
        return [i.y[name] for name in names], [i.c[name] for name in names], memories

    def given(self, first: int, count: int) -> Array:
        """e for macro steps `first`, `first` + 1, …: (count, samples), or fewer rows when a later sample fails, or
        than are worth asking for at once."""
        if not self.samples:
            return np.empty((count, 0))
        values: list[list[float]] = []
        sample, time = self.live.sample, self.live.time
        for k in range(first, first + min(count, SAMPLED)):
            try:
                values.append([sample(target, source, time(k, t)) for target, source, t in self.samples])
            except RunError:
                if not values:
                    raise
                break  # the steps before it are made first
        return np.array(values)

    def inputs(self, name: str) -> Array:
        """The input polynomial of a unit as it stands in the kernel now."""
        shape = self.live.c[name].shape
        begin = self.c[name]
        return np.array(self.program.polynomials[begin : begin + shape[0] * shape[1]]).reshape(shape)

    def signals(self) -> Signals:
        """All signals as they stand in the kernel now."""
        y, c, w = map(np.array, self.program.signals)
        outputs = {name: y[at : at + len(self.system.units[name].outputs)].copy() for name, at in self.y.items()}
        inputs = {name: c[at : at + self.live.c[name].size].copy() for name, at in self.c.items()}
        return Signals(outputs, inputs, w)

    # ---- units ---------------------------------------------------------------------------------------------------

    def _powers(self, name: str) -> int:
        """How many coefficients of the input polynomial the unit takes."""
        return min(self.system.units[name].input_degree + 1, len(self.live.c[name]))

    def _add(self, name: str) -> None:
        unit, instance = self.system.units[name], self.live.instances[name]
        m, p, powers = len(unit.inputs), len(unit.outputs), self._powers(name)
        if not isinstance(instance, LinearInstance | NativeInstance):
            self.outside.append(name)
        if isinstance(instance, LinearInstance):
            c = np.zeros((powers, m))
            c[: len(instance.c)] = instance.c
            output = instance.output_map.ravel().tolist()
            self.program.linear(instance.x.tolist(), c.ravel().tolist(), m, output, p, instance.feeds_through)
        elif isinstance(instance, NativeInstance):
            arrays = [part.tolist() for part in (instance.x, instance.u, instance.y)]
            self.program.compiled(instance.unit.step, instance.unit.output or 0, *arrays)
        elif isinstance(instance, PythonInstance):
            self.program.python_object(instance, instance.object, list(unit.inputs), list(unit.outputs))
        elif (native := instance.native(powers)) is not None:
            self._add_fmu(name, native, powers)
        else:
            self.program.python_instance(instance, m, p, powers)

    def _add_fmu(self, name: str, native: NativeFmu, powers: int) -> None:
        unit, given = self.system.units[name], np.zeros((powers, len(self.system.units[name].inputs)))
        given[0] = self.live.c[name][0]
        sizes = (len(unit.inputs), len(unit.outputs))
        add_fmu(self.program, self.numbers[name], native, sizes, given, self.master.step, kept=self._kept(name))

    def _kept(self, name: str) -> bool:
        """Whether states of the unit are saved."""
        return name in self.master.saved

    def _check(self) -> None:
        checks = self.master.checks
        if checks:
            constants = (ModelCheck.FADING, ModelCheck.TOLERATED, float(ModelCheck.AGAIN))
            self.program.check_models(*constants, self.k[len(checks)])
        for check, memory in zip(checks, self.k, strict=False):
            outputs = [self.y[check.unit] + place for place in check.places]
            parts = [part.ravel().tolist() for part in (check.own, check.driven, check.share, check.noise)]
            self.program.check_model(outputs, self.c[check.unit], check.width, (check.samples, memory), *parts)

    # ---- operations ----------------------------------------------------------------------------------------------

    def _lower(self, operations: Sequence[TimedOperation]) -> None:
        self._kind = None
        for operation in operations:
            self._separate(operation)
            match operation:
                case TimedCouple():
                    self._couple(operation)
                case TimedStep():
                    self._step(operation)
                case TimedRead():
                    if operation.again:
                        name, keep = operation.unit, self.system.units[operation.unit].input_degree
                        cut = shift_matrix(len(self.live.c[name]) - 1, operation.offset, keep=keep)
                        self._give_again(name, cut, float(operation.time))
                    self.program.read(self.numbers[operation.unit], self.y[operation.unit], float(operation.time))
                case Save() | Restore():
                    name = operation.unit
                    width = self.live.c[name].size
                    self.program.keep(self.numbers[name], isinstance(operation, Restore), self.c[name], width)
                case TimedRepeat():
                    self._repeat(operation)

    def _separate(self, operation: TimedOperation) -> None:
        """A unit that comes again within a run of operations of one kind begins a new stage."""
        if isinstance(operation, TimedRepeat):
            return
        if self._kind is None or self._kind[0] is not type(operation):
            self._kind = (type(operation), set())
        elif operation.unit in self._kind[1]:
            self.program.barrier()
            self._kind = (type(operation), set())
        self._kind[1].add(operation.unit)

    def _couple(self, operation: TimedCouple) -> None:
        name, m = operation.unit, len(self.system.units[operation.unit].inputs)
        samplings = dict(zip(self.system.incoming(name), operation.samplings, strict=True))
        if not operation.gives:
            for link, sampling in samplings.items():
                self._sample(link, self.master.coupling_of(link.connection.target), sampling)
            return
        if name in self.master.mixers:
            self._mix(operation)
            samplings = {}
        for number, joint in enumerate(self.live.joints):
            if joint.unit == name:
                self._predict(number, joint, segment(joint, samplings[joint.links[0]], operation.span))
                samplings = {link: sampling for link, sampling in samplings.items() if link not in joint.links}
        for index, inlet in enumerate(self.system.inlets[name]):
            coupling, place = self.master.coupling_of(inlet.target), self.c[name] + index
            if inlet.link in samplings:
                self._link(inlet.link, coupling, samplings[inlet.link], place, operation.time)
            elif inlet.source is not None and not self._is_held(inlet):
                points, fit = external_fit(coupling.degree, operation.span)
                self.program.external(len(self.samples), place, m, len(points), fit.ravel().tolist())
                self.samples += [(inlet.target, inlet.source, float(operation.time + point)) for point in points]
        self.program.couple(self.numbers[name], self.c[name], float(operation.time))

    def _is_held(self, inlet: Inlet) -> bool:
        """Whether an external input stays what it is at the start."""
        return isinstance(inlet.source, Constant)

    def _sample(self, link: Link, coupling: Coupling, sampling: Sampling) -> None:
        """What a coupling remembers of the newest output, without an input; a plain hold remembers nothing."""
        f, connection = coupling.matrices(sampling), link.connection
        if not f.plain:
            source, memory = self.y[link.source.unit] + link.source.index, self.w[link.number]
            parts = f.ww.ravel().tolist(), f.ws.ravel().tolist(), list[float]()
            self.program.link(source, 0, 1, connection.gain, connection.offset, memory, *parts)

    def _link(self, link: Link, coupling: Coupling, sampling: Sampling, place: int, _: Fraction) -> None:
        """The connection into the input whose polynomial begins at `place`."""
        f, connection = coupling.matrices(sampling), link.connection
        source = self.y[link.source.unit] + link.source.index
        if f.plain and connection.identity:
            self.program.copy(place, source)
        elif f.plain:
            self.program.scale(place, source, connection.gain, connection.offset)
        else:
            m, matrices = len(self.system.units[link.target.unit].inputs), (f.ww, f.ws, f.uw)
            flat = [part.ravel().tolist() for part in matrices]
            self.program.link(source, place, m, connection.gain, connection.offset, self.w[link.number], *flat)

    def _mix(self, operation: TimedCouple) -> None:
        name = operation.unit
        mixer, links = mixer_of(self.system, self.master, name), self.system.incoming(name)
        assert mixer is not None
        m = len(self.system.units[name].inputs)
        targets = [self.c[name] + power * m + link.target.index for power in range(mixer.degree + 1) for link in links]
        update, uw = np.hstack([mixer.ww, mixer.wy]).ravel().tolist(), mixer.uw_at(operation.time).ravel().tolist()
        offsets = mixer_offsets(self.system, name, mixer, operation.time).tolist()
        self.program.mix(targets, self.m[name], len(mixer.ww), update, uw, offsets)
        # Signs of zeros, which the short form may change, are lost in the sum with any offset but −0.
        if (short := settled(mixer)) is not None and not any(o == 0 and copysign(1.0, o) < 0 for o in offsets):
            self.program.settle(short.startup, short.shifts, short.samples, short.taps)
        if self.master.checks:
            sources = [self.y[link.source.unit] + link.source.index for link in links]
            self.program.hold(
                [(y, link.connection.gain, link.connection.offset) for y, link in zip(sources, links, strict=True)]
            )

    def _predict(self, number: int, joint: Joint, place: Segment) -> None:
        y, connections = self.y[joint.source], [(link, link.connection) for link in joint.links]
        self.program.predict(
            self.live.predictors[number],
            [(y + link.source.index, connection.gain, connection.offset) for link, connection in connections],
            [self.y[joint.unit] + output for output in joint.actions],
            [self.c[joint.unit] + link.target.index for link in joint.links],
            len(self.system.units[joint.unit].inputs),
            self.j[number],
            (place.node, place.fresh),
            place.phase,
            place.period,
        )

    def _step(self, operation: TimedStep) -> None:
        name, unit = operation.unit, self.system.units[operation.unit]
        tau, fraction = float(operation.time), float(operation.fraction)
        duration = fraction * self.master.step
        degree = len(self.live.c[name]) - 1
        if unit.input_degree < degree and (operation.offset > 0 or operation.projects):
            self._give_again(name, operation.given(degree, unit.input_degree), tau)
        self.program.step(self.numbers[name], self._map(name, fraction), tau, duration)

    def _give_again(self, name: str, cut: Array, tau: float) -> None:
        """What the unit can take of its input polynomial, by a matrix from its coefficients at the coupling."""
        m, powers = len(self.system.units[name].inputs), len(self.live.c[name])
        self.program.shift(self.numbers[name], self.c[name], m, powers, tau, cut.ravel().tolist())

    def _map(self, name: str, fraction: float) -> int:
        """What a unit needs for steps of this fraction of a macro step: the number of its map."""
        if (name, fraction) not in self._maps:
            self._maps[name, fraction] = self._add_map(name, fraction, self.master.step)
        return self._maps[name, fraction]

    def _add_map(self, name: str, fraction: float, h: float) -> int:
        number, instance, powers = self.numbers[name], self.live.instances[name], self._powers(name)
        duration = fraction * h
        if isinstance(instance, LinearInstance):
            parts = instance.step_map(duration, powers - 1, h)
            return int(self.program.linear_map(number, *(part.ravel().tolist() for part in parts)))
        if powers > 1 and instance.native(powers) is not None:
            return int(self.program.input_map(number, shift_matrix(powers - 1, duration / h).ravel().tolist()))
        return -1  # it needs nothing

    def _repeat(self, operation: TimedRepeat) -> None:
        times = operation.times
        until = times if isinstance(times, Convergence) else Convergence()
        count = 0 if isinstance(times, Convergence) else times
        self.program.begin_repeat(count, until.tolerance, until.limit, len(operation.sweeps))
        if depth := until.anderson or until.quasi_newton:
            correction = newton_correction(until, len(self.system.outputs)).ravel().tolist()
            first = settled_sweep(self.system, self.master, operation) if until.quasi_newton else 0
            self.program.accelerate(depth, until.quasi_newton > 0, first, correction)
        for number, sweep in enumerate(operation.sweeps):
            self.program.begin_sweep(number)
            self._lower(sweep)
            self.program.end_sweep()
        self.program.end_repeat()
        self._kind = None

    def watch(self, watch: Watch) -> None:
        """Let the compiled loop watch the run."""
        links = [link.connection for link in self.system.links]
        self.program.watch(
            [(place, link.gain, link.offset) for place, link in zip(watch.sources, links, strict=True)],
            [self._value_now(name) for name in watch.inputs],
            [(bond.forward.number, bond.back.number, bond.ratio) for bond in watch.bonds],
            watch.owners,
            watch.groups,
            watch.stop,
        )

    def _value_now(self, name: str) -> tuple[int, int, list[float]]:
        """Where an input's polynomial begins, how far its powers are apart, and what evaluates it at the end."""
        variable = self.system.input(name)
        clock, c = self.live.timeline.clocks[variable.unit], self.live.c[variable.unit]
        return self.c[variable.unit] + variable.index, c.shape[1], value_row(len(c) - 1, clock.now).tolist()

    # ---- rows ----------------------------------------------------------------------------------------------------

    def _columns(self, names: Sequence[str]) -> None:
        outputs = {name: place for place, name in enumerate(self.system.outputs)}
        told = {
            name: self.j[number] + 3 * len(joint.links) + place
            for number, joint in enumerate(self.live.joints)
            for place, name in enumerate(joint.signals)
        }
        for name in names:
            if name in told:
                self.program.memory_column(told[name])
                continue
            if name in outputs:
                self.program.column(outputs[name], 0, [])
                continue
            self.program.column(*self._value_now(name))


class Quanta(NamedTuple):
    """The quantum of time in seconds, how many of them the first macro step lasts, and the time at a place."""

    quantum: float
    first: int
    time: Callable[[float], float]


class VariableLowering(Lowering):
    """The program of macro steps that last any whole number of quanta; `kept`: all units are saved."""

    def __init__(self, live: Live, names: Sequence[str], quanta: Quanta, *, kept: bool) -> None:
        self._quanta, self._saves = quanta, kept
        super().__init__(live, names)
        self._needed = [key for key, number in self._maps.items() if number >= 0]
        self._lengths = 1
        if self._needed:
            self.program.prepare_with(self._prepare)

    def given(self, first: int, count: int) -> Array:
        return np.empty((count, 0))  # samples are asked for when the step is known

    def sampled(self, place: int, parts: int) -> list[float]:
        """e for the macro step from `place` on."""
        sample, time = self.live.sample, self._quanta.time
        return [sample(target, source, time(place + t * parts)) for target, source, t in self.samples]

    def keep_all(self) -> None:
        """Let the stepper save all units."""
        for name, number in self.numbers.items():
            self.program.kept(number, self.c[name], self.live.c[name].size)

    def _prepare(self, parts: int) -> int:
        """Add the constants of a length that is new; its number."""
        if self._lengths >= KEPT:
            self.program.forget_lengths()
            self._lengths = 0
        for name, fraction in self._needed:
            self._add_map(name, fraction, parts * self._quanta.quantum)
        self._lengths += 1
        return self._lengths - 1

    def _kept(self, name: str) -> bool:
        return self._saves

    def _step(self, operation: TimedStep) -> None:
        super()._step(operation)
        self.program.fraction(float(operation.fraction))


class CallRecorder:
    """Takes the calls that build a program, in the place of the kernel's own; `src/coupling` reads and makes them.

    Each is a text, the name, and a list, the arguments; `src/coupling/recording.hpp` says how values are written.
    """

    def __init__(self) -> None:
        self.bytes = bytearray()
        self._maps: Counter[int] = Counter()

    def __getattr__(self, name: str) -> Callable[..., int]:
        return partial(self._call, name)

    def _call(self, name: str, *given: Any) -> int:
        self._write(name)
        self._write(given)
        if not name.endswith("_map"):
            return -1
        self._maps[given[0]] += 1
        return self._maps[given[0]] - 1

    def _write(self, value: Any) -> None:
        if isinstance(value, str):
            text = value.encode()
            self.bytes += struct.pack("<cI", b"s", len(text)) + text
        elif isinstance(value, float):
            self.bytes += struct.pack("<cd", b"d", value)
        elif isinstance(value, int):
            self.bytes += struct.pack("<cq", b"i", value)
        elif isinstance(value, list) and all(isinstance(one, float) for one in value):
            self.bytes += struct.pack(f"<cI{len(value)}d", b"n", len(value), *value)
        else:
            self.bytes += struct.pack("<cI", b"[", len(value))
            for one in value:
                self._write(one)


CONFIGURING, BEFORE, WITHIN = range(3)
"""When a value is given to an FMU: in configuration mode, before initialisation mode, once more in it."""


ADAPTERS = "adapters"
"""The folder of libraries that stand between us and FMUs, and of what these need, beside the folders of the FMUs."""


class RecordedLowering(Lowering):
    """The program as recorded calls, with all that is needed to begin it without Python (`src/coupling`).

    `folders` says where each FMU is; `inputs` are the external inputs that whoever runs it sets, by the number of their
    variable.
    """

    program: Any  # a CallRecorder

    def __init__(self, live: Live, folders: Mapping[str, str], inputs: Mapping[str, int]) -> None:
        self._folders, self._inputs = folders, inputs
        super().__init__(live, ())
        self.program.name_outputs(list(self.system.outputs))
        sources: dict[str, int] = {}
        for name in self.system.units:
            self.program.layout(self.y[name], self.c[name], live.c[name].size)
            for place, inlet in enumerate(self.system.inlets[name]):
                where = (self.numbers[name], place)
                if inlet.link is not None:
                    source, connection = inlet.link.source, inlet.link.connection
                    gain, offset = float(connection.gain), float(connection.offset)
                    self.program.linked(*where, self.y[source.unit] + source.index, gain, offset)
                elif inlet.source is not None:
                    sources[inlet.target] = len(sources)
                    self._source(inlet.target, inlet.source, inputs)
                    self.program.fed(*where, sources[inlet.target])
                else:
                    self.program.held(*where, float(inlet.start))
        for target, _, time in self.samples:
            self.program.sample(sources[target], time)
        for link, first, memory in zip(self.system.links, self.w, live.w, strict=False):
            self.program.remembers(first, len(memory), self.c[link.target.unit] + link.target.index)
        places = {name: place for place, name in enumerate(self.system.outputs)}
        loops = [places[name] for loop in self.system.loops() for name in loop]
        self.program.guess([value for name in self.system.units for value in live.settled[name].tolist()])
        self.program.order([self.numbers[name] for name in order_of_dependence(self.system)], loops)

    def parameter(self, name: str, owner: str, unit: Fmu, variable: str) -> float:
        """Let a parameter of an FMU be a variable of the coupling, called `name`; its value where nobody sets it."""
        from cosimo.units.fmi.exchange import group

        info = unit.variables[variable]
        start = unit.given.get(variable, info.start)
        if info.element is not None or start is None or isinstance(start, str | bytes) or float(start) != start:
            raise ConfigurationError(
                f"{name} cannot be a parameter of the FMU; choose scalar numbers with a start value."
            )
        (found,) = group([info], unit.major_version)
        kind = _type_number(unit.major_version, found.code)
        within = bool(allowed_within([(info, start)]))
        self.program.parameter(name, self.numbers[owner], found.code, kind, info.value_reference, float(start), within)
        return float(start)

    def _begin(self, start: float, step: float, y: list[float], c: list[float], w: list[float]) -> Any:
        recorder = CallRecorder()
        recorder.begin(start, step, y, c, w)
        return recorder

    def _source(self, target: str, source: Source, inputs: Mapping[str, int]) -> None:
        if target in inputs:
            self.program.variable(inputs[target])
        elif isinstance(source, Constant):
            self.program.constant(float(source.value))
        elif isinstance(source, Table):
            self.program.table(source.times.tolist(), source.values.tolist(), source.interpolation == "hold")
        else:
            raise ConfigurationError(
                f"the external input {target} is a function in Python, which an FMU cannot call; choose it as a "
                "connector, so that it becomes an input, or give a table."
            )

    def _add(self, name: str) -> None:
        if not isinstance(self.live.instances[name], LinearInstance):
            native = self.live.instances[name].native(self._powers(name))
            if native is None or native.events is not None:
                raise ConfigurationError(f"unit '{name}' cannot be part of an FMU: {self._reason(name)}.")
            self._fmu(self._folders[name], native.instance)
        super()._add(name)

    def _is_held(self, inlet: Inlet) -> bool:
        return inlet.target not in self._inputs and super()._is_held(inlet)

    def _reason(self, name: str) -> str:
        unit: Any = self.system.units[name]
        if unit.path is None:
            return f"it is of kind {type(unit).__name__}, which needs Python; export it as an FMU of its own first"
        if unit.options.exact_difference:
            return "it is given exact differences of times, which the FMU of a coupling does not do; leave that out"
        why = "has event mode" if unit.capabilities.event_mode else "returns early from its steps"
        return f"it {why}, which the FMU of a coupling does not support; run the coupling itself"

    def _add_fmu(self, name: str, native: NativeFmu, powers: int) -> None:
        # The names of functions stand for their addresses, and "component" for the instance.
        component: Any = "component"
        named: Callable[[str], Any] = str
        super()._add_fmu(name, replace(native, component=component, address=named, isolated=False), powers)

    def _fmu(self, folder: str, instance: FmuInstance) -> None:
        from cosimo.units.fmi.component import TROUBLE

        unit, number = instance.unit, instance.unit.major_version
        adapter, settings = unit.adapter, ""
        if adapter is not None:
            settings = adapter.settings
            for beside in adapter.readable:
                settings = settings.replace(f"{beside}{os.sep}", "@/")
        times = (unit.experiment.tolerance, unit.experiment.stop_time)
        self.program.fmu(
            *(unit.name, folder, sorted(unit.libraries().items()), number, unit.token),
            *("" if adapter is None else f"{ADAPTERS}/{adapter.name}", settings, unit.options.logging),
            [name for name in unit.log_categories if name in TROUBLE and not unit.options.logging],
            *([] if time is None else [float(time)] for time in times),
        )
        given = unit.settings()
        self._values(unit.label, number, CONFIGURING, unit.structure)
        self._values(unit.label, number, BEFORE, given)
        self._values(unit.label, number, WITHIN, allowed_within(given))

    def _values(self, label: str, version: int, stage: int, values: Sequence[tuple[VariableInfo, Value]]) -> None:
        from cosimo.units.fmi.exchange import group

        for found in group([info for info, _ in values], version):
            given = [values[position][1] for position in found.positions]
            if found.code == "String":
                self.program.give_texts(stage, found.code, found.references, [str(one) for one in given])
            elif found.code == "Binary" or any(float(one) != one for one in given):
                raise ConfigurationError(
                    f"FMU '{label}': the value of '{found.infos[0].name}' cannot be written into the FMU of a "
                    "coupling; leave it out."
                )
            else:
                kind = _type_number(version, found.code)
                self.program.give_numbers(stage, found.code, kind, found.references, [float(one) for one in given])


def add_fmu(
    program: Program,
    number: int,
    native: NativeFmu,
    sizes: tuple[int, int],
    given: Array,
    step: float,
    *,
    kept: bool = False,
) -> None:
    """Add an FMU with so many inputs and outputs, `given` the input polynomial (powers, inputs) of macro steps `step`.

    `kept`: its states are saved. Only what will be called is looked up: FMUs lack functions that they, or this
    schedule, do not need.
    """
    symbol, powers, (m, p) = native.address, len(given), sizes
    groups = (native.inputs, native.outputs)
    plain = native.doubles
    references = [[r for group in found for r in group.references] if plain else [] for found in groups]
    value = "Real" if native.version == 2 else "Float64"
    state = "FMUstate" if native.version == 2 else "FMUState"
    prefix = f"fmi{native.version}"
    used = [
        symbol(f"{prefix}{verb}{value}") if found else 0 for verb, found in zip(("Set", "Get"), references, strict=True)
    ]
    states = [symbol(f"{prefix}{verb}{state}") if kept else 0 for verb in ("Get", "Set", "Free")]
    functions = [*used, symbol(f"{prefix}DoStep"), *states]
    if native.version == 2:
        functions += [_optional(symbol, f"{prefix}Get{kind}Status") for kind in ("Real", "Boolean")]
        program.fmi2(native.component, functions, *references)
    else:
        given_here, read_here = sizes if plain else (0, 0)
        program.fmi3(native.component, functions, references[0], references[1], given_here, read_here)
    events = native.events
    if events is not None:
        modes = ("EnterEventMode", "EnterStepMode", "UpdateDiscreteStates") if events.mode else ()
        called = [symbol(f"{prefix}{mode}") for mode in modes]
        program.events(number, called, events.variable_step, events.next)
    if native.isolated:
        program.post(number, native.version, symbol(f"cosimoPostStep{native.version}"))
    if not plain:
        program.typed(number, native.version, native.component, m, p)
        for input_, found in zip((True, False), groups, strict=True):
            for group in found:
                function = symbol(f"{prefix}{'Set' if input_ else 'Get'}{group.code}")
                kind = _type_number(native.version, group.code)
                program.typed_group(number, input_, kind, group.references, group.positions, function)
        if events is not None and any(events.discrete):
            program.discrete_inputs(number, events.discrete, events.given)
    elif powers > 1 and m:
        orders = [j for j in range(1, powers) for _ in range(m)]
        scale = [factorial(j) / step**j for j in orders]
        derive = symbol("fmi2SetRealInputDerivatives")
        each = [info.value_reference for group in native.inputs for info in group.infos] * (powers - 1)
        program.input_derivatives(number, derive, each, orders, scale, given.ravel().tolist())


def _type_number(version: int, code: str) -> int:
    """The kernel's number for the type of the variables that `fmi2Set<code>` sets."""
    return TYPES.index("BooleanAsInt" if (version, code) == (2, "Boolean") else SAME.get(code, code))


def _places(names: Iterable[str], widths: Sequence[int]) -> dict[str, int]:
    return dict(zip(names, accumulate(widths, initial=0), strict=False))


def _optional(symbol: Callable[[str], int], name: str) -> int:
    """The address of a function, or 0 where the FMU has none."""
    try:
        return symbol(name)
    except UnitError:
        return 0
