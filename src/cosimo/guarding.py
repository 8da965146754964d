"""Units that crash, hang or end the process while they run in it: said in one line, and never with exit code 0.

While a run is guarded, the compiled kernel knows which unit this thread is in. A signal such as SIGSEGV, a call of
`exit` and (by a thread that watches) a call that takes longer than its limit then end the process with a line that
names the unit, the phase and the time. All rows that were written before stay; `--isolate` keeps the others too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

CRASHED, TIMEOUT = 4, 5
"""Exit codes."""


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
    """The options that hold, and how many runs are guarded."""

    options = GuardOptions()
    runs = 0
    kernel: Any = None
    rescue: Callable[[], object] | None = None
    lock = threading.Lock()


@contextmanager
def guard_options(**changed: Any) -> Iterator[None]:
    """Other options for the runs inside."""
    before = _Present.options
    _Present.options = replace(before, **changed)
    try:
        yield
    finally:
        _Present.options = before


@contextmanager
def guarded(path: Path | None) -> Iterator[None]:
    """Guard a run whose rows go to `path`."""
    kernel: Any = import_module("cosimo._kernel")
    options = _Present.options
    kept = f"rows written so far are in '{path}.partial'" if path else "no rows were being written"
    with _Present.lock:
        document = -1 if options.document is None else options.document
        kernel.guard(options.exits, document, kept, options.timeout or 0.0, _rescue)
        _Present.kernel = kernel
        _Present.runs += 1
    folder = os.getcwd()
    try:
        yield
    finally:
        go_back(folder)
        with _Present.lock:
            _Present.runs -= 1
            _Present.rescue = None
            kernel.unguard()


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


def temporary(folder: Path) -> None:
    """A folder that shall go away also when a unit takes the process down."""
    if _Present.runs:
        _Present.kernel.temporary(str(folder))


def go_back(folder: str) -> None:
    """Undo that a unit changed the working directory."""
    with suppress(OSError):
        if os.getcwd() != folder:
            os.chdir(folder)


def leave() -> None:
    """The unit returned."""
    if _Present.runs:
        _Present.kernel.leave()
