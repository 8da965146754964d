"""Units in processes of their own: what is asked for, whether it can be had here, the worker, and first trials.

The master loads a library of ours instead of the FMU's. It has the same functions, sends every call through shared
memory to a worker process that has loaded the FMU, and notices when that one crashes, hangs or is ended. All else (the
kernel, identification, rollback, checkpoints) calls FMI functions as ever.
"""

from __future__ import annotations

import copy
import ctypes
import math
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from enum import IntEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError, CosimoError, UnitCrashed, UnitTimeout
from cosimo.core.guarding import enter, leave, time_limit
from cosimo.core.storage import Remembered, file_digest

if TYPE_CHECKING:
    from cosimo.units.fmi.fmu import Fmu

MEGABYTE = 2**20
PROXY, PROGRAM = (
    ("isolation.dll", "cosimo-worker.exe") if sys.platform == "win32" else ("isolation.so", "cosimo-worker")
)
"""The library that the master loads, and the program of the worker."""


@checked
@dataclass(frozen=True)
class Isolation:
    """How a unit is kept apart.

    `timeout`: seconds that one call may take. `memory`: megabytes that the unit may take beyond what an empty worker
    has. `sandbox`: without network, processes of its own, and all files but its own, read-only; needs bubblewrap.
    `readable`: further files or folders that a unit in a sandbox may read. `spin`: whether both sides look for each
    other's messages for a moment before they sleep; off, processors are left to others and each call costs more.
    `log`: where a unit that failed leaves what it said. `reason`: why it is kept apart, where nobody has asked for it.
    """

    timeout: float | None = None
    memory: float | None = None
    sandbox: bool = False
    readable: tuple[str, ...] = ()
    spin: bool = True
    log: Path | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        for what, value, measure in (("time", self.timeout, "seconds"), ("memory", self.memory, "megabytes")):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ConfigurationError(
                    f"the {what} limit of a unit is {value:g}; give a positive number of {measure}."
                )


Isolate = bool | Literal["auto", "all", "none"] | Isolation
"""What `Fmu(isolate=…)` takes: "auto", True or "all", False or "none", or how it is kept apart."""


def as_isolation(asked: Isolate) -> Isolation | None:
    """How an FMU is kept apart from the beginning; None where it is not."""
    if isinstance(asked, Isolation):
        return asked
    return Isolation() if asked in (True, "all") else None


def available() -> bool:
    """Whether units can be isolated on this platform."""
    return sys.platform in ("linux", "win32")


def require_available(isolation: Isolation) -> None:
    """Refuse, before anything is started, what cannot be had here."""
    if not available():
        system = {"darwin": "macOS"}.get(sys.platform, sys.platform)
        raise ConfigurationError(
            f"process isolation is not available on {system}, only on Linux and Windows; run without --isolate and "
            "--sandbox."
        )
    if isolation.sandbox and sys.platform != "linux":
        raise ConfigurationError(
            "a sandbox is available on Linux only; use --isolate, which contains crashes but does not protect files "
            "and network."
        )
    if isolation.sandbox and shutil.which("bwrap") is None:
        raise ConfigurationError(
            "a sandbox needs bubblewrap, and there is no program 'bwrap'; install the package bubblewrap, or use "
            "--isolate, which contains crashes but does not protect files and network."
        )


def part(name: str) -> Path:
    """The compiled library or the worker."""
    found: Any = resources.files("cosimo.units").joinpath("_isolation", name)
    path = Path(str(found))
    if not path.is_file():
        raise ConfigurationError(f"'{path}' is missing; reinstall cosimo with a C++ compiler available.")
    return path


# ---- one worker process, as the compiled library sees it: started, asked what became of it, let go -------------------


End = IntEnum("End", "ALIVE CRASHED EXITED TIMEOUT MEMORY NOT_STARTED BROKEN INTERRUPTED LEFT", start=0)
"""What can become of a worker."""
PRINTED, REFUSED = 100, 101
"""Kinds of records beside the statuses of FMI: what the unit printed, and files it was refused in a sandbox."""


class _Options(ctypes.Structure):
    _fields_ = (
        ("timeout", ctypes.c_double),
        ("memory_limit", ctypes.c_uint64),
        ("version", ctypes.c_int),
        ("sandboxed", ctypes.c_int),
        ("spinning", ctypes.c_int),
    )


class WorkerState(ctypes.Structure):
    """How a worker is doing; texts are empty where there is nothing to say."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("end", "number", "overflow", "pid")),
        *((name, ctypes.c_uint32) for name in ("forks", "sockets")),
        ("waited", ctypes.c_double),
        *((name, ctypes.c_uint64) for name in ("suppressed", "records")),
        *((name, ctypes.c_char_p) for name in ("problem", "during", "refused")),
    )

    def text(self, name: str) -> str:
        """One of the texts."""
        return (getattr(self, name) or b"").decode("utf-8", "replace")


class Record(NamedTuple):
    """Something the unit said: a status of FMI, `PRINTED` or `REFUSED`, and the text."""

    kind: int
    text: str


@cache
def library() -> Any:
    """The compiled library, with its functions' types."""
    from cosimo._kernel import interrupts

    found = ctypes.CDLL(str(part(PROXY)))
    pointer, texts = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
    signatures: dict[str, tuple[Any, tuple[Any, ...]]] = {
        "Open": (pointer, (texts, texts, ctypes.POINTER(_Options))),
        "Use": (None, (pointer,)),
        "Close": (None, (pointer,)),
        "End": (None, (pointer,)),
        "Free": (None, (pointer,)),
        "State": (None, (pointer, ctypes.POINTER(WorkerState))),
        "Record": (ctypes.c_char_p, (pointer, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int))),
        "Copies": (ctypes.c_uint32, (pointer,)),
        "Has": (ctypes.c_int, (pointer, ctypes.c_char_p)),
        "Interrupts": (None, (pointer,)),
    }
    for name, (returned, taken) in signatures.items():
        function = getattr(found, f"cosimoIsolation{name}")
        function.restype, function.argtypes = returned, taken
    # Ctrl-C during a run: a unit that does not answer is then no longer waited for.
    found.cosimoIsolationInterrupts(interrupts())
    return found


class Worker:
    """A started worker that has loaded `unit_library` from the extracted `folder`, or says why it has not."""

    def __init__(
        self, unit_library: Path, folder: Path, version: int, isolation: Isolation, adapter: Sequence[str] = ()
    ) -> None:
        self._library = library()
        program = part(PROGRAM)
        words = [str(unit_library), *adapter]
        command = [str(program), *words]
        if isolation.sandbox:
            command = sandboxed(program, words, folder, isolation.readable)
        options = _Options(
            isolation.timeout or 0.0,
            int((isolation.memory or 0.0) * MEGABYTE),
            version,
            isolation.sandbox,
            isolation.spin,
        )
        given = environment(os.environ) if isolation.sandbox else os.environ
        variables = [f"{name}={value}" for name, value in given.items()]
        self.handle: int = self._library.cosimoIsolationOpen(_texts(command), _texts(variables), ctypes.byref(options))
        self._process = os.getpid()

    def use(self) -> None:
        """The instance that this thread creates next lives in this worker."""
        self._library.cosimoIsolationUse(self.handle)

    def has(self, function: str) -> bool:
        """Whether the FMU's own library exports a function."""
        return bool(self._library.cosimoIsolationHas(self.handle, function.encode()))

    @property
    def state(self) -> WorkerState:
        """How it is doing."""
        found = WorkerState()
        self._library.cosimoIsolationState(self.handle, ctypes.byref(found))
        return found

    @property
    def copies(self) -> int:
        """How many copies of itself (fork) came back from a call of the unit, and ended there."""
        return int(self._library.cosimoIsolationCopies(self.handle)) if self.handle else 0

    def records(self) -> Iterator[Record]:
        """What the unit said last, oldest first."""
        kind = ctypes.c_int()
        for number in range(self.state.records):
            text = self._library.cosimoIsolationRecord(self.handle, number, ctypes.byref(kind))
            yield Record(kind.value, " ".join((text or b"").decode("utf-8", "replace").split()))

    def leave(self) -> None:
        """Let the worker unload the FMU and end."""
        if os.getpid() == self._process:  # a forked child leaves it to its parent
            self._library.cosimoIsolationClose(self.handle)

    def end(self) -> None:
        """End the worker at once."""
        if os.getpid() == self._process:
            self._library.cosimoIsolationEnd(self.handle)

    def free(self) -> None:
        """Forget it; nothing may be asked any more."""
        if self.handle and os.getpid() == self._process:
            self._library.cosimoIsolationFree(self.handle)
        self.handle = 0


EXCEPTIONS = {
    0xC0000005: "access violation (segmentation fault)",
    0xC0000006: "page error (bus error)",
    0xC000001D: "illegal instruction",
    0xC0000094: "integer division by zero (floating point exception)",
    0xC00000FD: "stack overflow",
}
"""What ends processes of Windows, by the numbers of NTSTATUS."""


def signal_text(number: int) -> str:
    """SIGSEGV (segmentation fault), or what Windows calls it."""
    if (code := number & 0xFFFFFFFF) >= 2**31:
        return EXCEPTIONS.get(code, f"exception 0x{code:08X} of Windows")
    try:
        found = signal.Signals(number)
        meaning = (signal.strsignal(found) or "").lower()
    except ValueError:  # Windows has names for what is no signal
        return f"signal {number}"
    return f"{found.name} ({meaning})" if meaning else found.name


def _texts(words: list[str]) -> Any:
    encoded = [os.fsencode(word) for word in words]
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


# ---- the sandbox: an almost empty file system made by bubblewrap, in which the worker is started ---------------------


SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
    *("/etc/ld.so.cache", "/etc/localtime"),
)
"""What is readable: programs and libraries, none of the user's files, none of the machine's secrets.

No more than a library needs: each of them adds a tenth of a millisecond to the start."""
KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
"""Environment variables that a unit may see, beside LC_… and OMP_…: others may hold keys."""
WORKER = "/cosimo-worker"
TEMPORARY = "/tmp"
SPACE = 2**30  # bytes that the unit's own temporary folder may hold; it is in memory and goes away with the unit


def sandboxed(worker: Path, words: Sequence[str], folder: Path, readable: Sequence[str]) -> list[str]:
    """The command that starts the worker with `words`, the FMU's library first: it can write to its own folder only."""
    command = box((*readable, str(folder)))
    command += ["--ro-bind", str(worker), WORKER]
    return [*closed(command), "--info-fd", "6", "--", WORKER, *words]


def box(readable: Sequence[str]) -> list[str]:
    """Bubblewrap with an almost empty file system: programs and libraries, `readable`, and a temporary folder."""
    found = shutil.which("bwrap") or "bwrap"
    command = [found, "--unshare-all", "--new-session", "--cap-drop", "ALL"]
    for path in SYSTEM:
        # Many systems have /bin and its like as links into /usr.
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            command += ["--ro-bind", path, path]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(SPACE), "--tmpfs", TEMPORARY]
    for path in map(str, readable):
        command += ["--ro-bind", path, path]
    return command


def closed(command: list[str]) -> list[str]:
    """The command of `box` with nothing to write to but its temporary folder and what was bound on purpose."""
    # Also of what bubblewrap itself has made: a process of its own in there has no filter of system calls, and could be
    # written to through /proc.
    locked = [word for path in ("/proc", "/dev", "/") for word in ("--remount-ro", path)]
    return [*command, *locked, "--chdir", TEMPORARY]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that pass into a sandbox, and to bubblewrap, whose own can be read in there."""
    kept = {k: v for k, v in given.items() if k in KEPT or k.startswith(("LC_", "OMP_"))}
    return {**kept, "HOME": TEMPORARY, "TMPDIR": TEMPORARY}


# ---- FMUs that nobody knows yet: a first trial decides whether they are let into the master's process ----------------
#
# The trial instantiates and initialises the FMU with its start values, makes two macro steps, saves and restores where
# it can, and terminates it. An FMU that gets through stays in the master's process and is remembered by the content of
# its archive. One that crashes, ends its process or does not return is isolated, and named in a notice. One that
# returns an error endangers nobody: it stays, for the run to say, and is not remembered; so is one that cannot be
# isolated.

TRIAL_FORMAT = 1
"""Changed with what a trial is."""
TRIAL_STEPS = 2
LONGEST_CALL = 10.0
"""Seconds that one call may take in the trial: one that takes longer may never return."""
_passed: set[str] = set()
"""The contents that this process has seen get through: also without a folder to remember them, once is enough."""


@contextmanager
def decided_isolation(units: Mapping[str, Fmu], start: float, steps: Mapping[str, float]) -> Iterator[None]:
    """Make the first trials that are still to be made; `steps` are the units' communication step sizes.

    In the block `isolation` holds of every FMU, and has the reason where the trial decided; what was extracted for the
    trials stays, for whoever instantiates the units there.
    """
    with ExitStack() as extracted:
        for name, unit in units.items():
            if unit.trial is None:
                continue
            if unit.isolation is None and available() and not unit.single_instance:
                limited = replace(unit.trial, timeout=unit.trial.timeout or time_limit())
                reason = _refusal(name, unit, limited, start, steps[name], extracted)
                unit.isolation = replace(limited, reason=reason) if reason else None
            unit.trial = None
        yield


def _refusal(name: str, unit: Fmu, isolation: Isolation, start: float, step: float, extracted: ExitStack) -> str:
    """Why an FMU is isolated; empty where it stays in the master's process."""
    try:
        digest = file_digest(unit.path)
        digest += "" if unit.solver is None else unit.kind
    except OSError:  # whoever loads it says so
        return ""
    key = {"trial": digest, "format": TRIAL_FORMAT}
    answers = Remembered()
    if digest in _passed or answers.recall(key) is not None:
        return ""
    enter(name, "first trial", start)
    try:
        extracted.callback(unit.lease().release)
        _try(unit, isolation, start, step)
    except (UnitCrashed, UnitTimeout) as error:
        cause = str(error.fields()["cause"]).rstrip(".")
        return f"is isolated after a first trial ({cause}); --trust-units would run it in the master's process"
    except CosimoError:
        return ""
    finally:
        leave()
    _passed.add(digest)
    answers.remember(key, {"passed": True})
    return ""


def _try(unit: Fmu, isolation: Isolation, start: float, h: float) -> None:
    tried = copy.copy(unit)
    tried.isolation = replace(isolation, timeout=isolation.timeout or LONGEST_CALL, log=None)
    tried.reserve = None
    with closing(tried.started(start, h)) as instance:
        for k in range(TRIAL_STEPS):
            instance.set_input(unit.start_inputs[None, :], h)
            instance.step(start + k * h, h)
            instance.read()
        if unit.can_restore:
            instance.restore(instance.save())
