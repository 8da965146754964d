"""A loaded FMU library and one component in it: checked calls, collected log messages, release on every way out.

FMPy loads the library and instantiates. Its look-up of all functions at load time is replaced by one at first use, as
many FMUs lack functions they do not need.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import itertools
import os
import struct
import sys
import threading
import types
import typing
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NoReturn

from fmpy import calloc, free
from fmpy.fmi1 import printLogMessage
from fmpy.fmi2 import (
    FMU2Slave,
    fmi2CallbackAllocateMemoryTYPE,
    fmi2CallbackFreeMemoryTYPE,
    fmi2CallbackFunctions,
    fmi2CallbackLoggerTYPE,
)
from fmpy.fmi3 import FMU3Slave

from cosimo.core.errors import ConfigurationError, CosimoError, UnitCrashed, UnitError
from cosimo.core.guarding import (
    begin_call,
    bind_imports,
    crashed,
    end_call,
    enter,
    enter_phase,
    go_back,
    here,
    in_unit,
)
from cosimo.units.fmi.isolation import PROXY, available, part
from cosimo.units.fmi.model_exchange import Adapter

PHASES = (
    ("load", "instantiate"),
    ("Instantiate", "instantiate"),
    ("InitializationMode", "initialise"),
    ("SetupExperiment", "initialise"),
    ("SetDebugLogging", "initialise"),
    ("DoStep", "doStep"),
    ("Terminate", "terminate"),
    ("FreeInstance", "free"),
    ("GetFMUstate", "save"),
    ("GetFMUState", "save"),
    ("SetFMUstate", "restore"),
    ("SetFMUState", "restore"),
)
"""The phase of a run that a function belongs to, by part of its name."""

CRASHES = (
    ("access violation", "access violation (segmentation fault)"),
    ("integer divide by zero", "integer division by zero (floating point exception)"),
    (str(0xC00000FD - 2**32), "stack overflow"),
)
"""What crashes are called, by part of the text that ctypes has for them on Windows."""


@cache
def phase_of(function: str, *, running: bool) -> str:
    """The phase in which a function was called; values set or read before the first step belong to initialisation."""
    for part_of_name, phase in PHASES:
        if part_of_name in function:
            return phase
    if not running:
        return "initialise"
    return "get" if "Get" in function else "set" if "Set" in function else "between calls"


# ---- a loaded FMU library and one component in it: checked calls, collected log messages, release on every way out ---


STATUS = ("OK", "Warning", "Discard", "Error", "Fatal", "Pending")
WARNING, DISCARD, ERROR, FATAL = 1, 2, 3, 4
ILLEGAL = 102  # what stands for a negative status, also in compiled code
INDISPENSABLE = ("Instantiate", "InstantiateCoSimulation", "InitializationMode", "DoStep")
TROUBLE = ("logStatusWarning", "logStatusDiscard", "logStatusError", "logStatusFatal")
"""The standard's categories of messages about bad statuses."""
MESSAGES, LENGTH = 100, 2000  # how many log messages are kept, and how much of each


class LazyFunctions(dict[str, Any]):
    """FMI functions by name, looked up and given their C types when first used.

    Those of an `adapter`, where there is one; what it lacks is the FMU's own, if both know the same component.
    """

    def __init__(self, owner: Any, adapter: Any = None) -> None:
        super().__init__()
        libraries = [owner.dll] if adapter is None else [adapter, owner.dll]
        alone = adapter is not None and not hasattr(adapter, "cosimoAdapterKeepsComponent")
        self._libraries = libraries[:1] if alone else libraries
        self._kind = type(owner)

    def exported(self, name: str) -> Any:
        """The function as the library has it, without C types."""
        for library in self._libraries:
            if hasattr(library, name):
                return getattr(library, name)
        raise missing(self._libraries[-1]._name, name)

    def __missing__(self, name: str) -> Any:
        function = self.exported(name)
        function.argtypes, function.restype = _c_types(self._kind, name)  # type: ignore[arg-type]
        self[name] = found = _telling_crashes(function) if sys.platform == "win32" else function
        return found


def _telling_crashes(function: Any) -> Any:
    """On Windows ctypes turns a crash into an exception of Python: said as of calls that the kernel makes."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except OSError as error:
            crashed(crash_name(error))

    call.argtypes, call.restype = function.argtypes, function.restype  # type: ignore[attr-defined]  # for FMPy
    return call


def crash_name(error: OSError) -> str:
    """The name of a crash as the kernel says it, from what ctypes makes of it.

    >>> crash_name(OSError("exception: access violation reading 0x0000000000000000"))
    'access violation (segmentation fault)'
    """
    said = str(error).removeprefix("exception: ")
    return next((name for part_of_text, name in CRASHES if part_of_text in said), said)


def missing(library: str, function: str) -> CosimoError:
    """The error for a function that a library does not export; without some it is no FMU at all."""
    name = Path(library).name
    said = f"the FMU's library '{name}' lacks the function {function}, which is needed here; contact its supplier."
    return ConfigurationError(said) if function.endswith(INDISPENSABLE) else UnitError(said)


def not_loaded(file: str, reason: str, library: Path | None = None) -> ConfigurationError:
    """The error for an FMU whose library cannot be loaded, with the remedy where the machine lacks what it needs."""
    if "cannot open shared object file" in reason:
        reason += "; install the package that brings this library, or add its folder to LD_LIBRARY_PATH"
    if library is not None and (missing := _missing_libraries(library)):
        names = " and ".join(f"'{name}'" for name in missing)
        reason = f"its library '{library.name}' needs {names}, which Windows does not find; put it beside that library"
    return ConfigurationError(f"FMU '{file}' cannot be loaded: {reason}.")


def _missing_libraries(library: Path) -> list[str]:
    """The libraries that one of Windows needs and that are not found. Windows only says that something is missing."""
    if sys.platform != "win32":
        return []
    find, how = ctypes.WinDLL("kernel32").LoadLibraryExW, 0x2  # LOAD_LIBRARY_AS_DATAFILE
    find.argtypes, find.restype = (ctypes.c_wchar_p, ctypes.c_void_p, ctypes.c_uint32), ctypes.c_void_p
    names = imported_libraries(library.read_bytes()) if library.is_file() else []
    own = [name for name in names if not name.lower().startswith(("api-ms-", "ext-ms-"))]  # others are no files
    return [name for name in own if not (library.parent / name).exists() and not find(name, None, how)]


@contextmanager
def _with_path(library: Path) -> Iterator[None]:
    """On Windows, let a library find the others that it needs in PATH, where Python itself looks for none.

    It is loaded before, as the workers of isolated units load it; whoever loads it meanwhile is given the same one.
    Where that fails, the other tells why.
    """
    if sys.platform != "win32":
        yield
        return
    system = ctypes.WinDLL("kernel32")
    load, let_go = system.LoadLibraryExW, system.FreeLibrary
    load.argtypes, load.restype = (ctypes.c_wchar_p, ctypes.c_void_p, ctypes.c_uint32), ctypes.c_void_p
    let_go.argtypes = (ctypes.c_void_p,)
    handle = None
    with suppress(OSError):  # a crash as it is loaded
        handle = load(str(library), None, 0x8)  # LOAD_WITH_ALTERED_SEARCH_PATH: those beside it, then those in PATH
    try:
        yield
    finally:
        if handle:
            let_go(handle)


def imported_libraries(content: bytes) -> list[str]:
    """The names in the import table of a library of Windows; none, of what is no such library."""
    found: list[str] = []
    with suppress(struct.error, ValueError):
        begin = struct.unpack_from("<I", content, 0x3C)[0]
        count, optional, kind = struct.unpack_from("<H12xH2xH", content, begin + 6)
        sections = [struct.unpack_from("<IIII", content, begin + 32 + optional + 40 * k) for k in range(count)]

        def place(address: int) -> int:
            return next(
                (address - at + raw for size, at, _, raw in sections if at <= address < at + size), len(content)
            )

        table = place(struct.unpack_from("<I", content, begin + (144 if kind == 0x20B else 128))[0])
        for entry in range(table, table + 20_000, 20):
            name = struct.unpack_from("<I", content, entry + 12)[0]
            if not name:
                break
            found.append(content[place(name) : content.index(b"\0", place(name))].decode("ascii", "replace"))
    return found


@cache
def _c_types(kind: Any, name: str) -> tuple[list[Any], Any]:
    """The C types of the parameters of a function, and of what it returns, as FMPy annotates its method `name`."""
    signature = inspect.signature(getattr(kind, name), eval_str=False)
    found = [parameter.annotation for parameter in list(signature.parameters.values())[1:]]
    types_ = [typing.get_args(one)[0] if isinstance(one, types.UnionType) else one for one in found]
    returned = signature.return_annotation
    return types_, {bytes: ctypes.c_char_p, int: ctypes.c_int}.get(returned, returned)


@contextmanager
def in_some_folder(folder: Path) -> Iterator[None]:
    """FMPy asks for the working directory; where this one was removed, it is `folder`."""
    begun_in = here()
    if not begun_in:
        os.chdir(folder)
    try:
        yield
    finally:
        go_back(begun_in)


class FMU2Library(FMU2Slave):  # type: ignore[misc]  # FMPy is not typed
    """FMPy's FMI 2.0 instance without the look-up of all functions."""

    def _loadFunctions(self) -> None:
        self._functions = LazyFunctions(self)


class FMU3Library(FMU3Slave):  # type: ignore[misc]  # FMPy is not typed
    """FMPy's FMI 3.0 instance without the look-up of all functions; `environment` is what its logger is given."""

    environment: int | None = None
    # FMI 3.0 has no such function; our solver of model-exchange units takes that of FMI 2.0.
    fmi2SetRealInputDerivatives = FMU2Slave.fmi2SetRealInputDerivatives

    def _loadFunctions(self) -> None:
        self._functions = LazyFunctions(self)

    @functools.wraps(FMU3Slave.fmi3InstantiateCoSimulation)
    def fmi3InstantiateCoSimulation(self, *given: Any) -> Any:
        *before, _, log, update = given
        return super().fmi3InstantiateCoSimulation(*before, self.environment, log, update)


def status_label(status: int) -> str:
    """The standard's word for a status, or its number."""
    return STATUS[status] if 0 <= status < len(STATUS) else str(status)


def _entry(status: int, message: bytes | None) -> tuple[str, str]:
    return status_label(status), " ".join((message or b"")[:LENGTH].decode("utf-8", "replace").split())


class Log:
    """The last messages of one component."""

    suppressed = 0  # how many were not kept because there were too many of them

    def __init__(self) -> None:
        self.messages: deque[tuple[str, str]] = deque(maxlen=MESSAGES)

    def add(self, status: int, message: bytes | None) -> None:
        """Keep a message; never raises, as the caller is C."""
        self.messages.append(_entry(status, message))

    def clear(self) -> None:
        """Forget them."""
        self.messages.clear()

    @property
    def last(self) -> str:
        """The newest message of the worst kind: what an FMU says after its error is rarely the reason."""
        for kinds in (("Error", "Fatal"), ("Warning", "Discard"), STATUS):
            for label, message in reversed(self.messages):
                if label in kinds and message:
                    return message
        return ""


def _rounding() -> Any:
    """The C function that sets the rounding mode, or one that does nothing where there is none."""
    try:
        return ctypes.CDLL("ucrtbase" if os.name == "nt" else None).fesetround
    except (AttributeError, OSError, TypeError):
        return int


def _threads() -> frozenset[int]:
    """The threads of this process, where the system tells."""
    try:
        return frozenset(map(int, os.listdir("/proc/self/task")))
    except OSError:
        return frozenset()


_set_rounding = _rounding()
_numbers = itertools.count(1)
_logs: dict[int, Log] = {}


def _log2(environment: int | None, name: bytes | None, status: int, category: bytes | None, text: bytes | None) -> None:
    log = _logs.get(environment or 0)
    if log is not None:
        log.add(status, text)
    elif 0 <= status < len(STATUS):
        printLogMessage(environment, name, status, category, text or b"")


# One function for all components: FMPy's formatter of variadic arguments knows a single receiver per process. FMPy's
# own instances, which give no environment, keep printing.
_logger2 = fmi2CallbackLoggerTYPE(_log2)


def _callbacks(logger: Any, environment: int) -> Any:
    """FMI 2.0 callbacks; memory straight from the C library."""
    callbacks = fmi2CallbackFunctions()
    callbacks.logger = logger
    callbacks.allocateMemory = ctypes.cast(calloc, fmi2CallbackAllocateMemoryTYPE)
    callbacks.freeMemory = ctypes.cast(free, fmi2CallbackFreeMemoryTYPE)
    callbacks.componentEnvironment = environment
    return callbacks


class Component:
    """One instantiated component. Every call checks the status; after a fatal one no call is made any more."""

    isolated = False  # whether it lives in a process of its own, to which steps can be posted

    @property
    def notices(self) -> tuple[str, ...]:
        """What the user of a run should know of it, one sentence each."""
        return (*self._crowded, *self._notes.values())

    @cached_property
    def _crowded(self) -> tuple[str, ...]:
        """Asked for at the end of a run."""
        self.log.messages  # noqa: B018  a worker's are counted when they are fetched
        count = self.log.suppressed
        return (f"logged more than is kept ({count} lines suppressed)",) if count else ()

    def __init__(self, version: int, file: str, name: str, adapter: Adapter | None = None) -> None:
        self.version, self.file, self.name = version, file, name
        self.adapter = adapter
        self.log: Log = Log()
        self.dead = False
        self.initialised = self._running = False
        self._notes: dict[str, str] = {}
        self.time = 0.0  # where it is, for who reports that a call did not return
        self._fmu: Any = None
        self._talks = False
        self._threads: frozenset[int] = frozenset()
        self._number = next(_numbers)

    @property
    def running(self) -> bool:
        """Initialised and without an error, so that the standard wants it terminated before it is freed."""
        return self._running

    @running.setter
    def running(self, now: bool) -> None:
        self._running = now
        self.initialised = self.initialised or now

    @property
    def address(self) -> int:
        """The component as a number, as C sees it."""
        return int(self._fmu.component)

    def calling(self, function: str) -> AbstractContextManager[None]:
        """A context in which the unit is called, for `function`."""
        phase = phase_of(function, running=self.initialised)
        return in_unit(self.name, phase, self.time, isolated=self.isolated)

    def _opened(self, kind: Any, library: Path, folder: Path, token: str, **extra: str) -> Any:
        """FMPy's object for the library, without instantiating the component."""
        with in_some_folder(folder), _with_path(library):
            return kind(
                guid=token,
                modelIdentifier=library.stem,
                unzipDirectory=str(folder),
                instanceName=self.name,
                **extra,
            )

    def load(self, library: Path, folder: Path, token: str) -> None:
        """Load the library from the extracted `folder`."""
        kind = FMU2Library if self.version == 2 else FMU3Library
        self._threads = _threads()
        try:
            # FMPy forms the path of an FMI 3.0 library from the identifier: give it the name of the file that is there.
            extra = {"libraryPath": str(library)} if self.version == 2 else {}
            self._fmu = self._opened(kind, library, folder, token, **extra)
            bind_imports(folder)
            if self.adapter is not None:
                self._fmu._functions = LazyFunctions(self._fmu, self.adapter.library())
        except CosimoError:
            raise
        except Exception as error:  # FMPy raises plain exceptions
            reason = str(error).replace(str(folder) + os.sep, "").rstrip(".")
            raise not_loaded(self.file, reason, library) from None

    def instantiate(self, **options: Any) -> None:
        """Create the component; `options` are those of FMPy's instantiate."""
        self._talks = options["loggingOn"]
        if self.adapter is not None:
            use = self.adapter.library().cosimoAdapterUse
            if problem := use(self._fmu.dll._handle, os.fsencode(self.adapter.settings)):
                raise not_loaded(self.file, os.fsdecode(problem))
        if self.version == 2:
            options["callbacks"] = self._log_here()
        elif (library := _library()) is not None:
            self.log = native = NativeLog(library)
            self._fmu.environment, options["logMessage"] = native.handle, native.logger3()
        else:
            log = self.log
            options["logMessage"] = lambda environment, status, category, message: log.add(status, message)
        try:
            self._fmu.instantiate(**options)
        except CosimoError:  # such as a function that the library lacks
            raise
        except Exception:  # FMPy raises plain exceptions
            raise UnitError(f"{self} could not be instantiated{self.said}.") from None

    def _log_here(self) -> Any:
        """The callbacks that keep messages: compiled, or Python's where nothing is compiled."""
        library = _library()
        if library is not None:
            self.log = native = NativeLog(library)
            return native.callbacks()
        _logs[self._number] = self.log
        callbacks = _callbacks(_logger2, self._number)
        # Without a formatter for this platform messages are kept as the FMU wrote them.
        with suppress(OSError):
            from fmpy.logging import addLoggerProxy

            addLoggerProxy(ctypes.byref(callbacks))
        return callbacks

    def ask_for_messages(self, categories: Sequence[str]) -> None:
        """Switch on the messages that tell of trouble, where the FMU has such categories; without them it may be mute.

        Best effort: that an FMU cannot do this is no reason not to run it.
        """
        wanted = [name.encode() for name in categories if name in TROUBLE]
        if wanted:
            with suppress(UnitError):
                names = (ctypes.c_char_p * len(wanted))(*wanted)
                self.status(f"fmi{self.version}SetDebugLogging", True, len(wanted), names)

    def call(self, function: str, *arguments: Any, doing: str = "") -> None:
        """Call an FMI function of the component; anything worse than a warning is raised."""
        status = self.status(function, *arguments)
        if status > WARNING:
            self.fail(function, status, doing)

    def status(self, function: str, *arguments: Any) -> int:
        """Call an FMI function of the component and return its status."""
        if self.dead:
            raise UnitError(f"{self} had a fatal error and can no longer be used; instantiate it again.")
        # As `calling`, which would cost as much as the call itself.
        entered = begin_call(self.isolated)
        if not entered:
            enter(self.name, phase_of(function, running=self.initialised), self.time)
        try:
            status = int(self._fmu._functions[function](self._fmu.component, *arguments))
        except UnitCrashed:  # and this process goes on
            self.dead = True
            raise
        finally:
            end_call(entered, self.isolated)
        _set_rounding(0)  # to nearest: whatever the unit left behind, others compute with what they know
        if status > WARNING or status < 0:
            # No version of FMI knows a negative status, nor would "worse than a warning" catch it.
            status = ILLEGAL if status < 0 else status
            self.note(status)
        return status

    def note(self, status: int) -> None:
        """Remember what a status means for later calls: none at all after a fatal error."""
        if status >= ERROR:
            self.running = False
        if status == FATAL:
            self.dead = True

    def tell(self, about: str, notice: str) -> None:
        """Keep what the user of the run should know; of one kind, the first."""
        self._notes.setdefault(about, notice)

    def went_back(self, begin: float, last: float) -> None:
        """A step from `begin` on gave a last successful time before it, or none although it returned early."""
        self.tell(
            "time", f"reported {last:g} as the last successful time of its step from t = {begin:g}; it was ignored"
        )

    def fail(self, function: str, status: int, doing: str) -> NoReturn:
        """Raise the error for a bad status."""
        where = f"{function}{' ' + doing if doing else ''}"
        raise UnitError(f"{self} returned {self._label(status)} from {where}{self.said}.")

    def _label(self, status: int) -> str:
        """A status as the standard names it."""
        if status == ILLEGAL:
            return "a negative status"
        label = status_label(status)
        return f"the unknown status {label}" if label.isdigit() else f"fmi{self.version}{label}"

    def symbol(self, name: str) -> int:
        """The address of an exported function."""
        return int(ctypes.cast(self._fmu._functions.exported(name), ctypes.c_void_p).value or 0)

    def release(self) -> None:
        """Free the component and the library; a component with a fatal error is left alone, as the standard demands."""
        with suppress(UnitError):  # a component without this function can still be freed
            if self.running and (status := self.status(f"fmi{self.version}Terminate")) > WARNING:
                self.tell("end", f"returned {self._label(status)} from fmi{self.version}Terminate{self.said}")
        fmu, self._fmu = self._fmu, None
        if fmu is not None and not self.dead:
            if fmu.component:
                enter_phase("free")
                fmu._functions[f"fmi{self.version}FreeInstance"](fmu.component)
            if not self._has_threads():  # they would go on in code that is gone
                fmu.freeLibrary()
        self.dead = True
        _logs.pop(self._number, None)

    def _has_threads(self) -> bool:
        """Whether there are threads that came after the library was loaded, and that Python has not started."""
        python = {thread.native_id for thread in threading.enumerate()}
        return bool(_threads() - self._threads - python)

    def __str__(self) -> str:
        return f"FMU '{self.file}'" + (f" (instance '{self.name}')" if self.name != Path(self.file).stem else "")

    @property
    def said(self) -> str:
        """What the FMU said about its trouble, or how to make it talk."""
        if self.log.last:
            return f"; it says: {self.log.last.rstrip('.')}"
        return "" if self._talks else "; set FmuOptions(logging=True) for more detail"


# ---- messages of FMI 2.0 components in this process, kept by compiled code where there is some -----------------------
# The interpreter is not needed to take a message: an FMU may log from threads of its own while a run holds the
# interpreter, or so much that calling Python for every line would take longer than the run.


@cache
def _library() -> Any:
    """The compiled functions, or None where they are not to be had."""
    if not available():
        return None
    try:
        found = ctypes.CDLL(str(part(PROXY)))
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
            found.append(_entry(status.value, text))
        return found

    @property
    def suppressed(self) -> int:  # type: ignore[override]
        """Messages beyond a thousand a second, which were only counted."""
        return int(self._library.cosimoMessagesSuppressed(self.handle))

    def clear(self) -> None:
        self._library.cosimoMessagesClear(self.handle)

    def logger3(self) -> int | None:
        """The logger of FMI 3.0 as an address; it wants the handle as its environment."""
        return ctypes.cast(self._library.cosimoMessagesLog3, ctypes.c_void_p).value

    def callbacks(self) -> Any:
        """FMI 2.0 callbacks that log here; memory straight from the C library."""
        address = ctypes.cast(self._library.cosimoMessagesLog2, ctypes.c_void_p).value
        return _callbacks(fmi2CallbackLoggerTYPE(address), self.handle)
