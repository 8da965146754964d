"""Saved states of a component: memory the FMU owns, taken again when nobody needs it, freed before the component."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from cosimo.core.errors import ConfigurationError, UnitError
from cosimo.units.fmu_component import Component


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
                f"{self._component} returned no state from {self._functions['get']}; use a master that saves none."
            )
        self._all.add(pointer.value)
        return FmuState(pointer.value, self._idle, beside)

    def _bytes(self, size: int) -> Any:
        # fmi2Byte is char, fmi3Byte unsigned char.
        return ((ctypes.c_char if self._component.version == 2 else ctypes.c_uint8) * size)()

    def _call(self, what: str, *arguments: Any) -> None:
        self._component.call(self._functions[what], *arguments)
