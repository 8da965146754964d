"""What is exchanged with a component in one FMI call: values of one type, derivatives, saved states."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnitError, UnknownNameError
from cosimo.core.timing import time_rounding
from cosimo.core.unit import Text
from cosimo.units.fmi.component import WARNING, Component
from cosimo.units.fmi.variables import EXACT, MANTISSA, TEXTS, TYPES, Value, VariableInfo

if TYPE_CHECKING:
    from cosimo.units.fmi.fmu import Fmu


class Group:
    """Variables of one type and their places in a vector; an array has one value reference and all its elements."""

    def __init__(self, version: int, code: str, c_type: Any, members: Sequence[tuple[int, VariableInfo]]) -> None:
        self.code, self.version = code, version
        self.infos = tuple(info for _, info in members)
        self.positions = tuple(position for position, _ in members)
        self.references = tuple(info.value_reference for info in self.infos if not info.element)
        # One slice where they stand one after the other: it is found faster than places one by one.
        together = self.positions == tuple(range(self.positions[0], self.positions[0] + len(members)))
        self._where: Any = (
            slice(self.positions[0], self.positions[0] + len(members))
            if together
            else np.array(self.positions, dtype=np.intp)
        )
        self.buffer = (c_type * len(members))()
        self._values: Any = None if code in TEXTS else np.frombuffer(self.buffer, dtype=np.dtype(c_type))
        self._sizes = (ctypes.c_size_t * len(members))()  # of binary values
        self._bounds = self._limits(code)
        self._beyond_doubles = self._values is not None and self._values.dtype in (np.int64, np.uint64)
        self._setter, self._getter = f"fmi{version}Set{code}", f"fmi{version}Get{code}"
        references = (ctypes.c_uint * len(self.references))(*self.references)
        count = (len(members),) if version == 3 else ()
        sizes = (self._sizes,) if code == "Binary" else ()
        self._arguments = (references, len(self.references), *sizes, self.buffer, *count)

    def set(self, component: Component, vector: Array) -> None:
        """Set the variables from their places in `vector`."""
        values = vector[self._where]
        if self._bounds is not None:
            self._require_whole(component, values)
        self._values[:] = values
        component.call(self._setter, *self._arguments)

    def get(self, component: Component, vector: Array) -> None:
        """Put the variables' values into their places in `vector`."""
        component.call(self._getter, *self._arguments)
        values = self._values
        if self._beyond_doubles:
            large = (values > EXACT) | (values < -EXACT if values.dtype.kind == "i" else False)
            if large.any():
                which = int(np.argmax(large))
                raise UnitError(
                    f"{component}: '{self.infos[which].name}' is {values[which]}, beyond 2^53, and cannot be exchanged "
                    f"exactly; leave it unconnected or export it as a smaller number."
                )
        vector[self._where] = values

    def write(self, component: Component, values: Iterable[Value]) -> None:
        """Set the variables to `values`, one per member."""
        kept = []  # until the call is over
        for number, value in enumerate(values):
            if isinstance(value, bytes):
                kept.append((ctypes.c_uint8 * max(len(value), 1)).from_buffer_copy(value or b"\0"))
                self._sizes[number] = len(value)
                self.buffer[number] = ctypes.cast(kept[-1], type(self.buffer)._type_)
            else:
                self.buffer[number] = value.encode() if isinstance(value, str) else value
        component.call(self._setter, *self._arguments)

    def texts(self, component: Component) -> list[Text]:
        """The values of strings or binaries; copied, as the FMU's memory is valid only until the next call."""
        component.call(self._getter, *self._arguments)
        if self.code == "Binary":
            pairs = zip(self.buffer, self._sizes, strict=True)
            return [ctypes.string_at(start, size) if size else b"" for start, size in pairs]
        return [(text or b"").decode("utf-8", "replace") for text in self.buffer]

    def _limits(self, code: str) -> tuple[float, float] | None:
        if code == "Boolean":
            return 0.0, 1.0
        if code in TEXTS or self._values.dtype.kind == "f":
            return None
        limits = np.iinfo(self._values.dtype)
        return max(float(limits.min), -EXACT), min(float(limits.max), EXACT)

    def _require_whole(self, component: Component, values: Array) -> None:
        assert self._bounds is not None
        low, high = self._bounds
        bad = ~((values == np.rint(values)) & (values >= low) & (values <= high))
        if bad.any():
            which = int(np.argmax(bad))
            info = self.infos[which]
            wanted = "0 or 1" if info.type == "Boolean" else f"a whole number from {low:g} to {high:g}"
            given = float(values[which])
            raise UnitError(
                f"{component}: input '{info.name}' of type {info.type} was given {given!r}; it takes {wanted}."
            )


def group(infos: Iterable[VariableInfo], version: int, *, split: bool = False) -> tuple[Group, ...]:
    """The variables in groups by type, in the order in which the types first occur.

    `split` keeps apart continuous, discrete and clocked ones, for units that take the latter only in event mode.
    """
    members: dict[tuple[tuple[str, Any], Any], list[tuple[int, VariableInfo]]] = {}
    for position, info in enumerate(infos):
        kind = TYPES[info.type]
        call = kind.fmi2 if version == 2 and kind.fmi2 is not None else kind.fmi3
        members.setdefault((call, split and (info.continuous, info.clocks)), []).append((position, info))
    return tuple(Group(version, code, c_type, found) for ((code, c_type), _), found in members.items())


class TextLog:
    """What the text outputs of a component were, as far as somebody records them: the times at which they changed."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, dict[str, Text]]] = []
        self._recorded = False

    @property
    def last(self) -> Mapping[str, Text]:
        """What they were at the last reading."""
        return self._entries[-1][1] if self._entries else {}

    def note(self, time: float, values: dict[str, Text]) -> None:
        """They were read; a reading at a time that was passed before tells of a step that is made again."""
        near = time_rounding(time, time)
        while self._entries and (not self._recorded or self._entries[-1][0] >= time - near):
            self._entries.pop()
        if values != self.last or not self._entries:
            self._entries.append((time, values))

    def at(self, times: Array) -> list[dict[str, Text]]:
        """What they were at increasing times; from now on all changes are kept until they were asked for."""
        self._recorded = True
        found, place = [], 0
        for time in times.tolist():
            while place + 1 < len(self._entries) and self._entries[place + 1][0] <= time + time_rounding(time, time):
                place += 1
            found.append(self._entries[place][1])
        del self._entries[:place]
        return found


def write_values(component: Component, version: int, values: Sequence[tuple[VariableInfo, Value]]) -> None:
    """Set variables of any type, each to its own value."""
    for found in group([info for info, _ in values], version):
        found.write(component, [values[position][1] for position in found.positions])


# ---- derivatives exchanged with an FMU: those of inputs in time, and those of outputs with respect to inputs ---------


class InputDerivatives:
    """d^j u / dt^j = j! c_j / h^j of the inputs that are `followed` (m,), for the next step.

    Only the orders that the coupling forms are handed over, and never an empty list: some FMUs refuse either. An order
    that an FMU refuses is left out from then on (`highest`), as in the compiled loop.
    """

    def __init__(self, infos: Sequence[VariableInfo], followed: BoolArray, degree: int) -> None:
        self._columns = np.flatnonzero(followed).tolist()
        references = [infos[column].value_reference for column in self._columns]
        self._count, self.highest = len(references), degree
        self._references = (ctypes.c_uint * (self._count * degree))(*references * degree)
        orders = [order for order in range(1, degree + 1) for _ in references]
        self._orders = (ctypes.c_int * len(orders))(*orders)
        self._values = (ctypes.c_double * len(orders))()
        self._table: Array = np.frombuffer(memoryview(self._values)).reshape(degree, self._count)
        self._h, self._factors = 0.0, np.zeros((degree, 1))

    def set(self, component: Component, coefficients: Array, h: float) -> None:
        """Hand over all orders of the polynomial in one call."""
        if h != self._h:
            self._h, self._factors[:, 0] = h, [math.factorial(j) / h**j for j in range(1, len(self._factors) + 1)]
        while (orders := min(len(coefficients) - 1, self.highest)) and self._count:
            np.multiply(coefficients[1 : orders + 1, self._columns], self._factors[:orders], out=self._table[:orders])
            arguments = (self._references, orders * self._count, self._orders, self._values)
            status = component.status("fmi2SetRealInputDerivatives", *arguments)
            if status <= WARNING:
                return
            if component.dead:
                component.fail("fmi2SetRealInputDerivatives", status, "")
            component.running = True  # the refusal concerns this call alone
            self.highest = orders - 1


def directional_derivative(
    component: Component, unit: Fmu, unknowns: Sequence[str], knowns: Sequence[str], seed: Sequence[float]
) -> Array:
    """Σ_j ∂unknown_i / ∂known_j · seed_j. FMI 3.0 knows whole arrays only: elements are put in and picked out."""
    if len(seed) != len(knowns):
        raise ConfigurationError(f"{len(knowns)} knowns need as many seeds, not {len(seed)}.")
    wanted, given = _Whole(unit, unknowns), _Whole(unit, knowns)
    seeds, result = (ctypes.c_double * given.size)(), (ctypes.c_double * wanted.size)()
    for place, value in zip(given.places, seed, strict=True):
        seeds[place] += value
    references = (wanted.references, len(wanted.references), given.references, len(given.references))
    sizes = unit.major_version == 3
    values = (seeds, given.size, result, wanted.size) if sizes else (seeds, result)
    component.call(f"fmi{unit.major_version}GetDirectionalDerivative", *references, *values)
    return np.array(result, dtype=float)[wanted.places]


class _Whole:
    """The whole variables behind the named ones, and where the named ones are among their elements."""

    def __init__(self, unit: Fmu, names: Sequence[str]) -> None:
        first: dict[str, int] = {}
        references = []
        self.places = []
        self.size = 0
        for name in names:
            if name not in unit.variables:
                raise UnknownNameError(f"variable of FMU '{unit.path}'", name, unit.variables)
            info, owner = unit.variables[name], unit.owners[name]
            if info.type not in MANTISSA:
                raise ConfigurationError(f"FMU '{unit.path}': '{name}' is of type {info.type} and has no derivatives.")
            if owner not in first:
                first[owner] = self.size
                self.size += len(unit.elements_of(owner))
                references.append(info.value_reference)
            self.places.append(first[owner] + (info.element or 0))
        self.references = (ctypes.c_uint * len(references))(*references)


# ---- saved states of a component: memory the FMU owns, taken again when nobody needs it, freed before the component --


class FmuState:
    """A saved state and what belongs to it outside the FMU (`beside`).

    Its memory goes back to the pool when nobody holds the state any more, so that saving again and again allocates
    nothing: the functions of FMI overwrite a state they are given.
    """

    def __init__(self, pointer: int, pool: list[int], beside: Any) -> None:
        self.pointer, self.pool, self.beside = pointer, pool, beside

    def __del__(self) -> None:
        self.pool.append(self.pointer)


class States:
    """All states of one component; `functions` names the FMI functions by what they do."""

    def __init__(self, component: Component, functions: Mapping[str, str]) -> None:
        self._component, self._functions = component, functions
        self._idle: list[int] = []
        self._all: set[int] = set()

    def __len__(self) -> int:
        """How many states hold memory in the FMU."""
        return len(self._all)

    def save(self, beside: Any) -> FmuState:
        """Take the present state."""
        pointer = ctypes.c_void_p(self._idle.pop() if self._idle else None)
        self._call("get", ctypes.byref(pointer))
        return self._own(pointer, beside)

    def restore(self, state: FmuState) -> None:
        """Put a state back."""
        if state.pool is not self._idle:
            raise ConfigurationError(
                f"{self._component} was given a state that another instance saved; restore its own."
            )
        self._call("set", ctypes.c_void_p(state.pointer))

    def serialise(self, state: FmuState) -> bytes:
        """The state as bytes."""
        size = ctypes.c_size_t()
        self._call("size", ctypes.c_void_p(state.pointer), ctypes.byref(size))
        buffer = self._bytes(size.value)
        self._call("serialise", ctypes.c_void_p(state.pointer), buffer, size.value)
        return bytes(buffer)

    def deserialise(self, data: bytes) -> FmuState:
        """The state that `serialise` wrote."""
        pointer, buffer = ctypes.c_void_p(), self._bytes(len(data))
        ctypes.memmove(buffer, data, len(data))
        self._call("deserialise", buffer, len(data), ctypes.byref(pointer))
        return self._own(pointer, None)

    def free(self) -> None:
        """Free all memory; states that are still held cannot be restored afterwards."""
        while self._all and not self._component.dead:
            pointer = ctypes.c_void_p(self._all.pop())
            self._component.status(self._functions["free"], ctypes.byref(pointer))

    def _own(self, pointer: ctypes.c_void_p, beside: Any) -> FmuState:
        if not pointer.value:
            raise UnitError(
                f"{self._component} returned no state from {self._functions['get']}; use a master that does not save "
                "states."
            )
        self._all.add(pointer.value)
        return FmuState(pointer.value, self._idle, beside)

    def _bytes(self, size: int) -> Any:
        # fmi2Byte is char, fmi3Byte unsigned char.
        return ((ctypes.c_char if self._component.version == 2 else ctypes.c_uint8) * size)()

    def _call(self, what: str, *arguments: Any) -> None:
        self._component.call(self._functions[what], *arguments)
