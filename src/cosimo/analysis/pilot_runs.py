"""One pilot run, and several of them side by side in processes of their own.

A run is a function of the system, the master and the times: wherever it is made, it gives the same numbers to the bit.
Processes are started as commands, not forked (a process with threads cannot be) and not by importing the caller's
script again; the system travels to them as studies send it. What cannot travel, or ends its process, is made here.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import NonFiniteError, UnitError
from cosimo.core.guarding import own_clock, processors, time_limit
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System

MOST = 4
"""Processes at most: each loads all units."""
MOVES = 10
"""Changes of outputs from which a fixed internal step can be told."""
PATIENCE = 5.0
"""Seconds that a process may take to end; a unit may not return for longer."""
SERVE = "import sys; sys.path[:] = {path!r}; from cosimo.analysis.pilot_runs import serve; serve()"


@dataclass(frozen=True)
class Job:
    """A run to be made: `steps` macro steps, each divided into `parts`, of which `master` makes one."""

    master: Master
    parts: int
    start: float
    steps: int


@dataclass(frozen=True, eq=False)
class Ran:
    """What a run gave: all outputs (N + 1, p), when it `diverged`, whether it was seen to grow, and `seconds` of steps.

    `ended` are unit and time of an end that a unit asked for; `internal` the units whose outputs change only at
    multiples of a step of their own, and that step.
    """

    rows: Array
    diverged: float | None = None
    grows: bool = False
    seconds: float = 0.0
    ended: tuple[str, float] | None = None
    sweeps: float = 0.0
    internal: dict[str, float] = field(default_factory=dict)


def make_run(system: System, job: Job) -> Ran:
    """Make a run in this process."""
    from cosimo.execution.running import run

    span = job.steps * job.parts * job.master.step
    begin, own = time.perf_counter(), own_clock()
    try:
        result = run(system, job.master, start=job.start, stop=job.start + span).at_communication_points()
    except (NonFiniteError, UnitError) as error:
        # Python raises where other languages compute infinity: x**3, exp(x) of what has grown too large.
        if isinstance(error, UnitError) and not isinstance(error.__cause__, OverflowError):
            raise
        kept = error.result
        reached = float(kept.time[-1]) if kept is not None and len(kept) else job.start
        return Ran(np.empty((0, len(system.outputs))), reached, True)
    info = result.info
    places = [result.names.index(name) for name in system.outputs]
    return Ran(
        result.values[:, places],
        grows=seen_to_grow(result),
        seconds=float(info["stepping_time"]) * (own_clock() - own) / (time.perf_counter() - begin),
        ended=(info["ended_by"], info["ended_at"]) if "ended_at" in info else None,
        sweeps=float(info.get("sweeps") or 0.0),
        internal=internal_steps(system, result, job.master.step),
    )


def seen_to_grow(result: Result) -> bool:
    """Whether the monitors of a run saw an output grow that still grows at its end."""
    growing = (result.info.get("monitors") or {}).get("growing") or ()
    return any(goes_on(result[one["output"]], one["factor"]) for one in growing)


def goes_on(values: Array, factor: float) -> bool:
    """Whether an output that was seen to grow by `factor` per macro step still grows in the last quarter of its run.

    What grew to a limit cycle or a stop has levelled off: its range became wider by less than the square root of what
    that factor makes of it in a quarter of the run.
    """
    quarter = len(values) // 4
    third, last = np.ptp(values[2 * quarter : 3 * quarter]), np.ptp(values[3 * quarter :])
    return bool(third == 0 or math.log(max(last / third, 1e-300)) >= math.log(factor) * quarter / 2)


def internal_steps(system: System, result: Result, step: float) -> dict[str, float]:
    """Units with a fixed internal step: their outputs move, but only every so many macro steps.

    What takes few values, as a switch or a limit does, moves seldom too, but when its input says so: it does not count.
    """
    found = {}
    for name, unit in system.units.items():
        columns = [result.names.index(f"{name}.{output}") for output in unit.outputs]
        values = result.values[:, columns]
        values = values[:, [len(np.unique(column)) > MOVES for column in values.T]]
        moves = np.flatnonzero((np.diff(values, axis=0) != 0).any(axis=1)) + 1
        period = _grid(moves) if len(moves) >= MOVES else None
        if period is not None:
            found[name] = period * step
    return found


def _grid(moves: npt.NDArray[np.int_]) -> float | None:
    """The period P, two macro steps or more, on whose grid from the start of the run all `moves` lie; None: none.

    Each comes with the macro step in which a multiple k P falls, 0 ≤ m − k P ≤ 1; exact multiples may come a step late,
    by rounding of the unit's own clock. Two moves are one or more periods apart. Some units make their first internal
    step with the first macro step (m = 1, k = 0), others when the first period is over.
    """
    gaps = np.diff(moves)
    usual = float(gaps[gaps <= gaps.min() + 1].mean())
    for first in sorted({math.floor(moves[0] / usual), math.ceil(moves[0] / usual)}):
        counts = first + np.concatenate([[0], np.cumsum(np.round(gaps / usual))])
        if first == 0 and moves[0] > 1:
            continue
        later, counts = moves[counts > 0], counts[counts > 0]
        low, high = float(((later - 1) / counts).max()), float((later / counts).min())
        near = float(round((low + high) / 2))
        if low <= near <= high and near >= 2:
            return near
        if 2 <= low <= high:
            return (low + high) / 2
    return None


class Workers:
    """Processes that make runs of one system; started with the first run, ended by `close`."""

    def __init__(self, system: System, count: int | None = None) -> None:
        self._system = system
        self.count = count or min(MOST, processors())
        self._processes: list[subprocess.Popen[bytes]] = []
        self._refused = False

    @property
    def started(self) -> bool:
        """Whether there are processes already."""
        return bool(self._processes)

    def make(self, jobs: Sequence[Job]) -> list[Ran | None]:
        """Make these runs, the longest first; None where one must be made here."""
        made: list[Ran | None] = [None] * len(jobs)
        if not self._start():
            return made
        waiting = sorted(range(len(jobs)), key=lambda place: jobs[place].steps * jobs[place].parts)

        def work(process: subprocess.Popen[bytes]) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            while waiting:
                place = waiting.pop()
                try:
                    _send(process.stdin, jobs[place])
                    made[place] = pickle.load(process.stdout)
                except (OSError, EOFError, pickle.UnpicklingError):
                    return  # the process has ended; what it was making is made here

        with ThreadPoolExecutor(len(self._processes)) as threads:
            try:
                for future in [threads.submit(work, process) for process in self._processes]:
                    future.result()
            except BaseException:
                waiting.clear()
                self.close()  # those who wait for an answer read the end
                raise
        if any(process.poll() is not None for process in self._processes):
            self._refused = True
            self.close()
        return made

    def close(self) -> None:
        """End all processes; they remove what they have extracted."""
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            process.terminate()
        for process in self._processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = []

    def __del__(self) -> None:
        self.close()

    def _start(self) -> bool:
        """Whether there are processes that have the system."""
        # A limit on the calls of units is watched in this process.
        if self._processes or self._refused or self.count < 2 or time_limit() is not None:
            return bool(self._processes)
        packed = _pack(self._system)
        if packed is None:
            self._refused = True
            return False
        command = [sys.executable, "-c", SERVE.format(path=sys.path)]
        try:
            for _ in range(self.count):
                process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
                self._processes.append(process)
                assert process.stdin is not None
                process.stdin.write(packed)
                process.stdin.flush()
        except OSError:
            self._refused = True
            self.close()
        return bool(self._processes)


def _pack(system: System) -> bytes | None:
    """The system as bytes; None where it cannot travel."""
    # Where it is installed, it also packs classes of the script itself.
    packer = import_module("cloudpickle" if find_spec("cloudpickle") else "pickle")
    try:
        packed: bytes = packer.dumps(system)
    except Exception:  # whatever the objects in the user's system raise
        return None
    return packed


def _send(stream: BinaryIO | Any, what: object) -> None:
    pickle.dump(what, stream)
    stream.flush()


def serve() -> None:
    """What a process does: take the system and then runs from standard input, until that ends.

    What units print goes to standard error. A run that fails is answered by None: who asked makes it again, and meets
    the same error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all processes at once
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _answer_runs()
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends anyway


def _answer_runs() -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    try:
        system: System = pickle.load(sys.stdin.buffer)
    except Exception:  # a class that only the calling process knows: it makes the runs itself
        return
    ran: Ran | None
    while True:
        try:
            job: Job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            ran = make_run(system, job)
        except Exception:
            ran = None
        _send(answers, ran)
