"""The two ways to run a schedule on live units: the compiled kernel, and the plain-Python interpreter, its oracle."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.lowering import Lowering
from cosimo.monitoring import Findings, Monitor, Watch
from cosimo.reference import Interpreter, named, non_finite, unit_failed
from cosimo.units.native import BadStatus

INTERVAL = 0.25
"""Seconds after which the kernel returns between two macro steps, so that rows are written and progress is seen."""

OK, BAD_STATUS, NON_FINITE, STOPPED, DIVERGED = range(5)
"""What the kernel returns."""
NOT_EXACT = 101
"""The kernel's status for a value that the type of a variable cannot hold."""
PHASES = ("given its inputs", "stepped", "read", "saved", "restored")
VERBS = ("set", "step", "get", "save", "restore")


@dataclass(frozen=True)
class EngineOptions:
    """How a schedule is run.

    `kind`: "kernel" (compiled) or "reference" (plain Python, slow, for comparison). `parallel`: None steps the units of
    a stage in several threads where the first steps show that it pays, True always, False never; `threads` limits them
    (default: as many as there are processors). `monitors`: whether the run is watched (monitoring.py); off only to
    measure what that costs.
    """

    kind: Literal["kernel", "reference"] = "kernel"
    parallel: bool | None = None
    threads: int | None = None
    monitors: bool = True

    def __post_init__(self) -> None:
        if self.kind not in ("kernel", "reference"):
            raise ConfigurationError(f"an engine is 'kernel' or 'reference', not '{self.kind}'.")
        if self.threads is not None and self.threads < 1:
            raise ConfigurationError(f"the number of threads must be at least 1, not {self.threads}.")


class Failure(NamedTuple):
    """Where the kernel met a bad status or a value that is not finite."""

    unit: str
    phase: int
    status: int
    output: int
    at: float
    duration: float
    value: float


class Engine(Protocol):
    """Makes macro steps and fills rows (time, then the recorded signals)."""

    made: int
    """How many macro steps the last `advance` completed, also when it raised."""
    diverged: bool
    """Whether the run was found to grow and shall end here."""

    def advance(self, first: int, rows: Array) -> None:
        """Make macro steps `first`, `first` + 1, … and fill one row for each; may stop early between two steps."""

    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        """Sweeps and last residual of every iteration since this was asked before."""

    def findings(self) -> Findings | None:
        """What was seen in the run; asked once, at its end. None where nobody watched."""

    def close(self) -> None:
        """Let go of the units, before they are closed themselves."""


class ReferenceEngine:
    """The plain interpreter as an engine."""

    def __init__(self, interpreter: Interpreter, names: Sequence[str], watch: Watch | None = None) -> None:
        self._interpreter = interpreter
        told = sum(len(joint.signals) for joint in interpreter.joints)
        self._inputs = len(names) > len(interpreter.system.outputs) + told
        self.made, self.diverged = 0, False
        self._monitor: Monitor | None = None
        if watch is not None:
            places = {name: place for place, name in enumerate(interpreter.system.input_names)}
            self._watched = [places[name] for name in watch.inputs]
            self._monitor = Monitor(watch, *self._signals())

    def advance(self, first: int, rows: Array) -> None:
        """One macro step at a time."""
        self.made = 0
        # An unstable run overflows sooner or later; that is found when outputs are read, and said in our words.
        with np.errstate(over="ignore", invalid="ignore"):
            for k in range(first, first + len(rows)):
                self._macro_step(k)
                rows[self.made] = self.row(k + 1)
                self.made += 1
                if self._monitor is not None and self._monitor.observe(*self._signals()):
                    self.diverged = True
                    return

    def _macro_step(self, k: int) -> None:
        self._interpreter.macro_step(k)

    def _signals(self) -> tuple[Array, Array]:
        """All outputs, and the inputs that are watched."""
        inputs = self._interpreter.inputs()
        return np.array(self._interpreter.outputs()), np.array([inputs[place] for place in self._watched])

    def findings(self) -> Findings | None:
        """As the plain monitors saw them."""
        return None if self._monitor is None else self._monitor.findings()

    def row(self, k: int) -> list[float]:
        """The row after k macro steps."""
        values = self._interpreter.outputs() + (self._interpreter.inputs() if self._inputs else [])
        return [self._interpreter.time(k, 0.0), *values, *self._interpreter.told()]

    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        """As the interpreter counted them."""
        live = self._interpreter
        taken = live.sweeps, live.residuals
        live.sweeps, live.residuals = [], []
        return taken

    def close(self) -> None:
        """Nothing is held."""


class KernelEngine:
    """The compiled loop; what goes wrong in it is said in the same words as by the plain interpreter."""

    def __init__(
        self, interpreter: Interpreter, names: Sequence[str], options: EngineOptions, watch: Watch | None = None
    ) -> None:
        self._interpreter = interpreter
        self._lowering = Lowering(interpreter, names)
        self._program: Any = self._lowering.program
        threads = options.threads or len(os.sched_getaffinity(0))
        mode = -1 if options.parallel is None else int(options.parallel)
        self._watched = watch is not None
        if watch is not None:
            self._lowering.watch(watch)
        self._program.finish(threads, mode, INTERVAL)
        self.made, self.diverged = 0, False

    def advance(self, first: int, rows: Array) -> None:
        """As many macro steps as there are rows, or fewer when the interval is over."""
        self.made = 0
        given = self._lowering.given(first, len(rows))
        count = len(given) if self._lowering.samples else len(rows)
        try:
            outcome = self._program.run(first, count, given, rows)
        except CosimoError as error:
            found = self._failure()
            raise named(error, found.unit, found.at) from error.__cause__
        except Exception as error:
            found = self._failure()
            raise unit_failed(found.unit, PHASES[found.phase], found.at, error) from error
        finally:
            self.made = self._program.made
        if outcome == STOPPED:
            raise KeyboardInterrupt
        self.diverged = outcome == DIVERGED
        if outcome not in (OK, DIVERGED):
            self._raise(outcome)

    def _failure(self) -> Failure:
        unit, *rest = self._program.failure
        return Failure(self._interpreter.system.names[unit], *rest)

    def _raise(self, outcome: int) -> NoReturn:
        found = self._failure()
        name, at = found.unit, found.at
        if outcome == NON_FINITE:
            raise non_finite(name, self._interpreter.system.units[name].outputs[found.output], found.value, at)
        try:
            if found.status == NOT_EXACT:
                self._not_exact(name, found.phase)
            explain = getattr(self._interpreter.instances[name], "explain", None)
            if explain is not None:
                explain(VERBS[found.phase], found.status, at, found.duration)
        except CosimoError as error:
            raise named(error, name, at) from error.__cause__
        raise unit_failed(name, PHASES[found.phase], at, BadStatus(found.status))

    def _not_exact(self, name: str, phase: int) -> None:
        """Let the instance itself say which value does not fit its type: it refuses the same."""
        instance = self._interpreter.instances[name]
        if phase == 0:
            instance.set_input(self._lowering.inputs(name), self._interpreter.master.step)
        else:
            instance.read()

    @property
    def shared(self) -> bool:
        """Whether units are stepped in several threads."""
        return bool(self._program.shared)

    def sweeps(self) -> tuple[Sequence[int], Sequence[float]]:
        """As the kernel counted them."""
        return self._program.take_sweeps()  # type: ignore[no-any-return]

    def findings(self) -> Findings | None:
        """As the compiled loop saw them."""
        return Findings.told(self._program.findings()) if self._watched else None

    def close(self) -> None:
        """End the threads and free saved states."""
        self._program.release()
