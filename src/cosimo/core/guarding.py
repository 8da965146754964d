"""Units that crash, hang or end the process while they run in it: said in one line, and never with exit code 0.

While a run, or a verb of the command line, is guarded, the compiled kernel knows which unit this thread is in. A signal
such as SIGSEGV, a call of `exit` and (by a thread that watches) a call that takes longer than its limit then end the
process with a line that names the unit, the phase and the time. All rows that were written before stay; `--isolate`
keeps the others too. Ctrl-C and termination are counted meanwhile, so that units in other processes that do not answer
are no longer waited for. `Interrupts` answers them at once, except where something would be left half done.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, ClassVar, NoReturn, Self

from cosimo.core import dataclass
from cosimo.core.errors import UnitCrashed

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK")
SIGNALS = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))
"""What ends a run from outside; the last is Ctrl-Break, which only Windows has."""

Handler = Callable[[int, FrameType | None], Any]
set_handler = signal.signal
"""For ours: while anything is guarded, `signal.signal` leaves `SIGNALS` as they are."""


def processors() -> int:
    """How many processors this process may use; where the system does not say, how many there are."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def own_clock() -> float:
    """Seconds by the clock, less those in which this thread could have gone on but others had the processors.

    What a thread takes by this clock depends on what it computes and waits for, not on what else the machine does.
    Where the system does not tell (all but Linux), this is the plain clock.
    """
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            waited = int(file.read().split()[1])  # nanoseconds on a run queue
    except (OSError, ValueError, IndexError):
        waited = 0
    return time.perf_counter() - waited / 1e9


@dataclass(frozen=True)
class GuardOptions:
    """What is done when a unit takes the process down.

    `exits`: end with exit code 4, as the command line does; otherwise crashes are passed on to whoever handled signals
    before. `document`: the descriptor of a file to which the line is also written as one JSON document. `timeout`:
    seconds that one call of a unit may take.
    """

    exits: bool = False
    document: int | None = None
    timeout: float | None = None


class _Present:
    """The options that hold, how many guards there are, and the temporary folders of this process."""

    options = GuardOptions()
    runs = 0
    kernel: Any = None
    rescue: Callable[[], object] | None = None
    interrupted = False
    folders: ClassVar[dict[str, int]] = {}  # with the process that made it: a forked child leaves it to its parent
    lock = threading.RLock()  # garbage that is collected meanwhile may remove its folders


@contextmanager
def guard_options(**changed: Any) -> Iterator[None]:
    """Other options for the runs inside."""
    before = _Present.options
    _Present.options = replace(before, **changed)
    try:
        yield
    finally:
        _Present.options = before


def time_limit() -> float | None:
    """Seconds that one call of a unit may take; None where nobody watches."""
    return _Present.options.timeout


@contextmanager
def guarded(path: Path | None, fixed: Iterable[str] = ()) -> Iterator[None]:
    """Guard a run whose rows go to `path`, or anything that calls units; inside of another guard, this one counts.

    `fixed` are the units that cannot be isolated: their crash is not answered with that advice.
    """
    kernel: Any = import_module("cosimo._kernel")
    options = _Present.options
    kept = f"rows written so far are in '{path}.partial'" if path else ""
    with _Present.lock:
        document = -1 if options.document is None else options.document
        names = "\n".join(["", *fixed, ""])
        number = kernel.guard(options.exits, document, kept, options.timeout or 0.0, _rescue, names)
        _Present.kernel = kernel
        _Present.runs += 1
        vars(signal)["signal"] = _leave_ours
        rescue = _Present.rescue
        for folder, process in list(_Present.folders.items()):
            if process == os.getpid():
                kernel.temporary(folder)
    begun_in = here()
    counted = callable(signal.getsignal(signal.SIGINT))  # with the system's own handling there is nothing to add to
    if counted:
        kernel.count_signals()
    try:
        yield
    finally:
        if counted:
            kernel.count_signals_no_more()
        go_back(begun_in)
        with _Present.lock:
            _Present.runs -= 1
            if not _Present.runs:
                vars(signal)["signal"] = set_handler
            _Present.rescue = rescue
            kernel.unguard(number, _rescue)


def _leave_ours(number: int, handler: Any, /) -> Any:
    """What a unit in Python calls as `signal.signal`: as one in an FMU, it does not take the run's signals."""
    return signal.getsignal(number) if number in SIGNALS else set_handler(number, handler)


def rescue_with(action: Callable[[], object]) -> None:
    """What saves rows when a call exceeds its limit, before the process ends."""
    _Present.rescue = action


def _rescue() -> None:
    if _Present.rescue is not None:
        _Present.rescue()


def enter(unit: str, phase: str, time: float) -> None:
    """This thread calls a unit."""
    if _Present.runs:
        _Present.kernel.enter(unit, phase, time)


def enter_phase(phase: str) -> None:
    """The unit that this thread is in is now in another phase."""
    if _Present.runs:
        _Present.kernel.phase(phase)


@contextmanager
def in_unit(unit: str, phase: str, time: float, *, isolated: bool) -> Iterator[None]:
    """One call of a unit, by whoever: named here, unless this thread has entered the unit already.

    The time of an `isolated` unit is not watched: its worker has its own limit, and is ended alone.
    """
    entered = begin_call(isolated)
    if not entered:
        enter(unit, phase, time)
    try:
        yield
    finally:
        end_call(entered, isolated)


def begin_call(isolated: bool) -> bool:
    """Count a call that begins; whether this thread has entered the unit, or nobody wants to know."""
    return not _Present.runs or _Present.kernel.call(isolated)


def end_call(entered: bool, isolated: bool) -> None:
    """The call returned for which `begin_call` gave `entered`."""
    if not entered:
        leave()
    elif isolated and _Present.runs:
        _Present.kernel.returned()


def crashed(fault: str) -> NoReturn:
    """What was called crashed, and the system came back from it: say it, and end, as where it does not come back.

    Where the process is not to end by it, this is an error of the unit as any other.
    """
    if _Present.kernel is not None:
        _Present.kernel.crashed(fault)
    raise UnitCrashed(f"the unit crashed: {fault}; a unit may have damaged the memory of this process.")


@contextmanager
def unwatched() -> Iterator[None]:
    """What takes its time here is ours, although this thread has entered a unit."""
    begin_call(isolated=True)
    try:
        yield
    finally:
        end_call(entered=True, isolated=True)


def bind_imports(folder: Path) -> None:
    """Give the libraries in `folder` ours of the functions that end the process, replace it, or handle its signals."""
    import_module("cosimo._kernel").bind_imports(str(folder))


def copies_ended() -> tuple[int, str]:
    """How many copies of this process ended since this was asked before, and the unit that made (fork) the first."""
    return _Present.kernel.take_copies() if _Present.kernel is not None else (0, "")


def copies_text(count: int) -> str:
    """What is said of the unit that made copies of its process."""
    made = "a copy" if count == 1 else f"{count} copies"
    return f"made {made} of its process (fork) that came back from its call; the run continues without"


def temporary(folder: Path) -> None:
    """A folder that shall go away also when a unit takes the process down."""
    with _Present.lock:
        _Present.folders[str(folder)] = os.getpid()
        if _Present.runs:
            _Present.kernel.temporary(str(folder))


def not_temporary(folder: Path) -> None:
    """The folder is gone."""
    with _Present.lock:
        _Present.folders.pop(str(folder), None)
        if _Present.kernel is not None:
            _Present.kernel.not_temporary(str(folder))


def here() -> str:
    """The working directory; empty where it was removed meanwhile, and there is nothing to go back to."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def go_back(folder: str) -> None:
    """Undo that a unit changed the working directory."""
    with suppress(OSError):
        if os.getcwd() != folder:
            os.chdir(folder)


def leave() -> None:
    """The unit returned."""
    if _Present.runs:
        _Present.kernel.leave()


def interrupt() -> NoReturn:
    """Raise what ends a run from outside. Where it gets lost, as in what is called by the garbage collector, the run
    raises it again.
    """
    _Present.interrupted = True
    raise KeyboardInterrupt


def raise_lost_interrupt() -> None:
    """Raise the interrupt that came where exceptions get lost, if one did: for loops that only an interrupt ends."""
    if _Present.interrupted:
        _Present.interrupted = False
        raise KeyboardInterrupt


class Interrupts:
    """As a context: signals pass on to whoever handled them before, and wait while `held` is active.

    Python calls handlers between any two instructions of the main thread; one that raises while rows are being written
    would make them appear twice or not at all. In other threads nothing is raised, and nothing has to be held.
    """

    def __init__(self) -> None:
        self._before: dict[int, Handler] = {}
        self._holding = False
        self._waiting: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            raise_lost_interrupt()
            try:
                with self.held():
                    for number in SIGNALS:
                        handler = signal.getsignal(number)
                        if callable(handler):
                            self._before[number] = handler
                            set_handler(number, self._arrive)
                    _count_again()
            except BaseException:  # a signal came meanwhile
                self._restore()
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.clear()  # of a block that failed: the error comes first
        with self.held():  # one that comes now is handled when all handlers are as they were
            _Present.interrupted = False
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            set_handler(number, handler)
        if self._before:
            _count_again()

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            self._waiting.append((number, frame))
        else:
            _Present.interrupted = self._before[number] is signal.default_int_handler
            self._before[number](number, frame)

    def put_back(self) -> None:
        """Handle signals again where a unit has put a handler of its own in the place of ours."""
        changed = [number for number in self._before if signal.getsignal(number) != self._arrive]
        for number in changed:
            set_handler(number, self._arrive)
        if changed:
            _count_again()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Signals wait until the end of the block."""
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        while self._waiting:
            number, frame = self._waiting.pop()
            self._before[number](number, frame)
        if self._before:
            raise_lost_interrupt()


def _count_again() -> None:
    """Python has put its own handler in place of the one that counts signals while units are called."""
    if (kernel := sys.modules.get("cosimo._kernel")) is not None:
        kernel.count_signals_again()
