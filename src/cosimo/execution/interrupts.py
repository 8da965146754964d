"""Ctrl-C and termination while a run goes on: answered at once, except where something would be left half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

SIGNALS = (signal.SIGINT, signal.SIGTERM, *((signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()))
"""What ends a run from outside."""

Handler = Callable[[int, FrameType | None], Any]


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
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._before[number] = handler
                    signal.signal(number, self._arrive)
            _count_again()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            _count_again()

    def _arrive(self, number: int, frame: FrameType | None) -> None:
        if self._holding:
            self._waiting.append((number, frame))
        else:
            self._before[number](number, frame)

    def put_back(self) -> None:
        """Handle signals again where a unit has put a handler of its own in the place of ours."""
        changed = [number for number in self._before if signal.getsignal(number) != self._arrive]
        for number in changed:
            signal.signal(number, self._arrive)
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


def _count_again() -> None:
    """Python has put its own handler in place of the one that counts signals while units are called (guarding.py)."""
    if (kernel := sys.modules.get("cosimo._kernel")) is not None:
        kernel.count_signals_again()
