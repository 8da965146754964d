"""Variables set or got in one FMI call: those of one type, with the buffers the call works on."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import UnitError
from cosimo.units.fmu_component import Component
from cosimo.units.fmu_variables import EXACT, Value, VariableInfo

CODES = {"Float64": "Real", "Int32": "Integer", "Enumeration": "Integer", "Boolean": "Boolean", "String": "String"}
"""FMI 2.0: the end of the function name (fmi2Set…) for each type; FMI 3.0 uses the type itself."""

C_TYPES: dict[str, Any] = {
    "Float64": ctypes.c_double,
    "Float32": ctypes.c_float,
    "Int8": ctypes.c_int8,
    "UInt8": ctypes.c_uint8,
    "Int16": ctypes.c_int16,
    "UInt16": ctypes.c_uint16,
    "Int32": ctypes.c_int32,
    "UInt32": ctypes.c_uint32,
    "Int64": ctypes.c_int64,
    "UInt64": ctypes.c_uint64,
    "Boolean": ctypes.c_bool,
    "Real": ctypes.c_double,
    "Integer": ctypes.c_int32,
    "Boolean2": ctypes.c_int32,
    "String": ctypes.c_char_p,
}
"""The C type behind each code; Booleans of FMI 2.0 are integers."""


def type_code(info: VariableInfo, version: int) -> str:
    """The end of the names of the functions that set and get the variable."""
    if version == 2:
        return CODES[info.type]
    return "Int64" if info.type == "Enumeration" else info.type


class Group:
    """Variables of one type and their places in a vector; an array has one value reference and all its elements."""

    def __init__(self, version: int, code: str, members: Sequence[tuple[int, VariableInfo]]) -> None:
        self.code, self.version = code, version
        self.infos = tuple(info for _, info in members)
        self.positions = tuple(position for position, _ in members)
        self.references = tuple(info.value_reference for info in self.infos if not info.element)
        self._where = np.array(self.positions, dtype=np.intp)
        c_type = C_TYPES["Boolean2" if (version, code) == (2, "Boolean") else code]
        self.buffer = (c_type * len(members))()
        self._values: Any = None if code == "String" else np.frombuffer(self.buffer, dtype=np.dtype(c_type))
        self._bounds = self._limits(code)
        references = (ctypes.c_uint * len(self.references))(*self.references)
        count = (len(members),) if version == 3 else ()
        self._arguments = (references, len(self.references), self.buffer, *count)

    def set(self, component: Component, vector: Array) -> None:
        """Set the variables from their places in `vector`."""
        values = vector[self._where]
        if self._bounds is not None:
            self._require_whole(component, values)
        self._values[:] = values
        component.call(f"fmi{self.version}Set{self.code}", *self._arguments)

    def get(self, component: Component, vector: Array) -> None:
        """Put the variables' values into their places in `vector`."""
        component.call(f"fmi{self.version}Get{self.code}", *self._arguments)
        values = self._values
        if values.dtype.itemsize == 8 and values.dtype.kind in "iu":
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
        for number, value in enumerate(values):
            self.buffer[number] = value.encode() if isinstance(value, str) else value
        component.call(f"fmi{self.version}Set{self.code}", *self._arguments)

    def texts(self, component: Component) -> list[str]:
        """The values of strings; copied, as the FMU's memory is valid only until the next call."""
        component.call(f"fmi{self.version}Get{self.code}", *self._arguments)
        return [(text or b"").decode("utf-8", "replace") for text in self.buffer]

    def _limits(self, code: str) -> tuple[float, float] | None:
        if code == "Boolean":
            return 0.0, 1.0
        if code == "String" or self._values.dtype.kind == "f":
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

    `split` keeps continuous and discrete ones apart, for units that may be given the latter only in event mode.
    """
    members: dict[tuple[str, bool], list[tuple[int, VariableInfo]]] = {}
    for position, info in enumerate(infos):
        key = (type_code(info, version), split and info.continuous)
        members.setdefault(key, []).append((position, info))
    return tuple(Group(version, code, found) for (code, _), found in members.items())


def write_values(component: Component, version: int, values: Sequence[tuple[VariableInfo, Value]]) -> None:
    """Set variables of any type, each to its own value."""
    for found in group([info for info, _ in values], version):
        found.write(component, [values[position][1] for position in found.positions])
