"""Runs of a study in a copy of this process (fork): a unit that takes it down becomes a row, and the next copy goes on.

The copy has all that this process has loaded, at no cost, and sends every row as it is made. The run in which it ends
is the first of the next copy; where that ends in it, too, it is a row with the status `crashed`. Ctrl-C and its like
are for this process, which then ends the copy; a copy whose parent is gone is ended by the system.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, NoReturn

from cosimo.core.guarding import SIGNALS, guard_options, set_handler
from cosimo.studies.rows import Row
from cosimo.studies.runner import Runner
from cosimo.units.fmi.archive import remove_left_behind
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.isolation import available
from cosimo.units.native import NativeUnit

WHILE = 0.1
"""Seconds without a row after which those that came before are put away."""
PATIENCE = 1.0
"""Seconds that a copy has for its end before it is killed."""
NEEDED = ("cosimo.analysis.analysing", "cosimo.analysis.memory", "cosimo.units.fmi.instance")
"""What every run loads: once here, not in every copy."""
PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of prctl(2)."""


def could_crash(runner: Runner) -> bool:
    """Whether units run code in this process that can take it down, and there are copies (Windows has none)."""
    if not hasattr(os, "fork") or not available():
        return False
    units = runner.recipe.nominal.units.values()
    return any(isinstance(unit, Fmu | NativeUnit) and not unit.isolated for unit in units)


def made_in_copies(runner: Runner, runs: Sequence[int]) -> Generator[Row | None, None, None]:
    """The rows of these runs, in their order; None where one lets wait for it."""
    for name in NEEDED:
        import_module(name)
    left, suspect = deque(runs), None
    while left:
        copy = _Copy(runner, tuple(left))
        try:
            for row in copy.rows():
                if row is not None:
                    left.popleft()
                yield row
        finally:
            copy.end()
        if left and left[0] == suspect:
            yield runner.crashed(left.popleft(), copy.cause)
        elif left:
            suspect = left[0]


class _Copy:
    """A copy of this process that makes runs; `cause` is why it ended, as far as it could say."""

    def __init__(self, runner: Runner, runs: Sequence[int]) -> None:
        self._runner, self.cause = runner, ""
        self._rows, to_rows = Pipe(duplex=False)
        report, to_report = os.pipe()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):
                stream.flush()  # or both processes write what is still in it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # threads: those of this process hold nothing that a run needs
                self._process = os.fork()
            if self._process == 0:
                _serve(runner, runs, to_rows, to_report)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        to_rows.close()
        os.close(to_report)
        self._report = os.fdopen(report, "rb")

    def rows(self) -> Iterator[Row | None]:
        """The rows until the end of the copy, however it comes; None whenever there was none for a while."""
        while True:
            if not self._rows.poll(WHILE):
                yield None
                continue
            try:
                found: Row | str = self._rows.recv()
            except (EOFError, OSError):
                return
            if not isinstance(found, Row):
                self._runner.note = found
                return
            yield found

    def end(self) -> None:
        """End the copy, unless it has ended; nothing of it stays."""
        self._rows.close()  # it can no longer send anything
        until = time.monotonic() + PATIENCE
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGTERM)
        while not (ended := os.waitpid(self._process, os.WNOHANG)[0]) and time.monotonic() < until:
            time.sleep(0.002)
        if not ended:
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            remove_left_behind(Path(tempfile.gettempdir()))
        with self._report, suppress(ValueError, KeyError):
            told = json.loads(self._report.read())
            cause = str(told["cause"]).partition("; with --isolate")[0]
            self.cause = f"unit '{told['unit']}' at t = {told['time']:g}: {cause}" if told["unit"] else cause


def _serve(runner: Runner, runs: Sequence[int], to_rows: Any, to_report: int) -> NoReturn:
    """What the copy does; it never comes back, whatever is raised here, into the code of the parent."""
    code = 1
    try:
        try:
            _make(runner, runs, to_rows, to_report)
            code = 0
        finally:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # the parent asks it to end once it has all rows
            for stream in (sys.stdout, sys.stderr):
                with suppress(Exception):
                    stream.flush()
    finally:
        os._exit(code)


def _make(runner: Runner, runs: Sequence[int], to_rows: Any, to_report: int) -> None:
    """Make the runs and send their rows."""
    ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    for number in SIGNALS:  # a terminal sends them to all processes at once
        set_handler(number, signal.SIG_IGN)
    set_handler(signal.SIGTERM, _stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    # The line that tells of a crash is for the row. What Python writes still goes where it went.
    if sys.stderr is not None:
        sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace", buffering=1)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    with guard_options(exits=True, document=to_report):
        with runner:
            for run in runs:
                to_rows.send(runner.evaluate(run))
        to_rows.send(runner.note)  # nothing is left to be done


def _stop(number: int, frame: object) -> NoReturn:
    raise KeyboardInterrupt
