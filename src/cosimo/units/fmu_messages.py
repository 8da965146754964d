"""Messages of FMI 2.0 components in this process, kept by compiled code where there is some.

The interpreter is not needed to take a message: an FMU may log from threads of its own while a run holds the
interpreter, or so much that calling Python for every line would take longer than the run.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from functools import cache
from typing import Any

from fmpy import calloc, free
from fmpy.fmi2 import (
    fmi2CallbackAllocateMemoryTYPE,
    fmi2CallbackFreeMemoryTYPE,
    fmi2CallbackFunctions,
    fmi2CallbackLoggerTYPE,
)

from cosimo.core.errors import ConfigurationError
from cosimo.units.fmu_component import LENGTH, MESSAGES, STATUS, Log
from cosimo.units.isolation import available, part


@cache
def _library() -> Any:
    """The compiled functions, or None where they are not to be had."""
    if not available():
        return None
    try:
        found = ctypes.CDLL(str(part("isolation.so")))
    except (ConfigurationError, OSError):
        return None
    pointer = ctypes.c_void_p
    found.cosimoMessagesNew.restype = pointer
    found.cosimoMessagesAt.restype = ctypes.c_char_p
    found.cosimoMessagesAt.argtypes = (pointer, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int))
    found.cosimoMessagesSuppressed.restype = ctypes.c_uint64
    for name in ("Free", "Clear", "Suppressed"):
        getattr(found, f"cosimoMessages{name}").argtypes = (pointer,)
    return found


class NativeLog(Log):
    """The last messages, fetched when somebody asks."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.handle: int = library.cosimoMessagesNew()
        weakref.finalize(self, library.cosimoMessagesFree, self.handle)

    @property
    def messages(self) -> deque[tuple[str, str]]:  # type: ignore[override]
        """Pairs of label and text, oldest first."""
        found: deque[tuple[str, str]] = deque(maxlen=MESSAGES)
        status = ctypes.c_int()
        for number in range(MESSAGES):
            text = self._library.cosimoMessagesAt(self.handle, number, ctypes.byref(status))
            if text is None:
                break
            label = STATUS[status.value] if 0 <= status.value < len(STATUS) else str(status.value)
            found.append((label, " ".join(text[:LENGTH].decode("utf-8", "replace").split())))
        return found

    @property
    def suppressed(self) -> int:  # type: ignore[override]
        """Messages beyond a thousand a second, which were only counted."""
        return int(self._library.cosimoMessagesSuppressed(self.handle))

    def clear(self) -> None:
        """Forget them."""
        self._library.cosimoMessagesClear(self.handle)

    def callbacks(self) -> Any:
        """FMI 2.0 callbacks that log here; memory straight from the C library."""
        callbacks = fmi2CallbackFunctions()
        address = ctypes.cast(self._library.cosimoMessagesLog2, ctypes.c_void_p).value
        callbacks.logger = fmi2CallbackLoggerTYPE(address)
        callbacks.allocateMemory = ctypes.cast(calloc, fmi2CallbackAllocateMemoryTYPE)
        callbacks.freeMemory = ctypes.cast(free, fmi2CallbackFreeMemoryTYPE)
        callbacks.componentEnvironment = self.handle
        return callbacks


def native_log() -> NativeLog | None:
    """A log kept by compiled code, where there is some."""
    library = _library()
    return None if library is None else NativeLog(library)
