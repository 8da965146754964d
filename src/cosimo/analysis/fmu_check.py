"""One FMU on its own: does it keep what it declares, how does its solver behave, which masters does it allow?

    check                  passes where
    description            it follows the standard
    library                there is one for this platform
    initialisation, steps  no call fails and every output is a finite number
    repeatability          two runs give the same bits
    saved states           a step that is taken back and made again gives the same bits, where this is declared
    states as bytes        the same through a second instance, where this is declared
    step sizes             halves and quarters of the step are taken, where this is declared
    direct feedthrough     no output follows an input at once for which the model structure says otherwise
    input slopes           a step with input derivatives is taken, where this is declared

Trials are made in a process of their own, with all inputs held: a crash is a row, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from cosimo.analysis.pilot_runs import internal_steps
from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.document import Column, Document, DocumentTable, Figure, Section
from cosimo.core.errors import ConfigurationError, CosimoError, StepDiscarded, UnitError
from cosimo.core.formatting import counted, step_text
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.core.unit import Instance
from cosimo.execution.checkpoints import NUDGE, nudged, restoring_fault
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.isolation import LONGEST_CALL, Isolation, available

STEPS = 64
"""Communication steps of a trial: enough to see an internal step of a quarter of that."""
PARTS = (1, 2, 4, 8)
"""Into how many parts a step is divided to see whether that matters."""
ROUNDING = 1e-12
"""Outputs that differ by less, relative to how far they move, do not depend on the step."""
AGREE = 0.25
"""By how much the orders from two pairs of steps may differ; more, and nothing is said of an order."""
USUAL_STEPS, MOST_STEPS = 100, 1000
"""Steps of the default experiment where the FMU suggests no step size. With its tolerance τ they are 1/√τ, within these
limits: an input that is held for h of the T seconds leaves a local error of about (h/T)², which is then τ."""
HALVINGS = 30
"""How often a step that is not taken is halved: down to a billionth."""


@dataclass(frozen=True)
class Check:
    """One row: what was tried, whether it passed (`note`: there was nothing to hold the FMU to), and what was seen."""

    check: str
    result: Literal["pass", "fail", "note"]
    remark: str = ""


@dataclass(frozen=True)
class FmuCheck:
    """All rows of one FMU, and what was measured on the way; None where that failed or was not tried."""

    label: str
    kind: str
    step: float
    checks: tuple[Check, ...]
    seconds_per_step: float | None = None
    internal_step: float | None = None
    order: float | None = None
    masters: str = ""

    @property
    def passed(self) -> bool:
        """No row failed."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """The rows that did."""
        return tuple(row.check for row in self.checks if row.result == "fail")

    @cached_property
    def section(self) -> Section:
        """The rows and figures, as part of a verdict or on their own."""
        cost = self.seconds_per_step
        figures = [
            Figure("passed", "", self.passed),
            Figure("step_size", "communication step", self.step, step_text(self.step)),
            Figure("seconds_per_step", "" if cost is None else "time per step", cost,
                   f"{1e6 * (cost or 0):.3g} µs", "in a process of its own"),
            Figure("internal_step", "" if self.internal_step is None else "internal step", self.internal_step,
                   step_text(self.internal_step or 0.0)),
            Figure("own_order", "" if self.order is None else "order of its solver", self.order,
                   f"{self.order or 0:.1f}", "from halved steps, inputs held"),
            Figure("masters", "allows" if self.masters else "", self.masters, self.masters),
        ]  # fmt: skip
        columns = (Column("check", "check", right=False), Column("result", "result", right=False),
                   Column("remark", "remark", right=False))  # fmt: skip
        rows = [{"check": row.check, "result": row.result, "remark": row.remark} for row in self.checks]
        return Section("fmu", "The FMU on its own", tuple(figures), (DocumentTable("checks", "", columns, rows),))

    @property
    def document(self) -> Document:
        """For terminal, notebook, JSON and pages."""
        tried = sum(row.result != "note" for row in self.checks)
        told = f"{len(self.failed)} of {tried} checks failed: {', '.join(self.failed)}"
        title = f"{self.label} ({self.kind})"
        if self.passed:
            return Document(title, "good", f"All {tried} checks passed", sections=(self.section,))
        return Document(title, "bad", told, sections=(self.section,))


def check_fmu(
    path: str | Path,
    step: float | None = None,
    *,
    values: Mapping[str, Any] | None = None,
    options: FmuOptions | None = None,
) -> FmuCheck:
    """Try one FMU with communication steps of `step` (default: what it suggests, else by its experiment and tolerance).

    An FMU may discard a step that is too long for it: the step is then halved until one is accepted. Where the step
    is a guess, an error of the FMU may be due to its length as well.

    `values` are those of parameters and of inputs, which are held; what they leave out has its start value.
    """
    rows, options = [], options or FmuOptions()
    try:
        unit = _unit(path, replace(options, validate=True))
        rows.append(Check("description", "pass"))
    except ConfigurationError as error:
        unit = _unit(path, replace(options, validate=False))  # what cannot be read at all is refused here
        rows.append(Check("description", "fail", str(error)))
    unit = unit.with_values(values or {})
    given = unit.default_experiment
    start = given.get("startTime", 0.0)
    guessed = step is None and not unit.suggested_step
    if step is None:
        step = unit.suggested_step or (given.get("stopTime", start + 1.0) - start) / _steps_for(given.get("tolerance"))
    if not 0 < step < np.inf:
        raise ConfigurationError(f"the communication step size must be a positive number of seconds, not {step}.")
    trials = _Trials(unit, start, step, guessed)
    rows += trials.rows()
    ports = f"{counted(len(unit.inputs), 'input')}, {counted(len(unit.outputs), 'output')}"
    return FmuCheck(
        unit.label,
        f"FMI {unit.fmi_version} {unit.kind}, {ports}",
        trials.step,
        tuple(rows),
        trials.seconds,
        trials.internal,
        trials.order,
        trials.masters,
    )


def _steps_for(tolerance: float | None) -> float:
    """Into how many steps the experiment is divided where the FMU suggests no step size.

    >>> _steps_for(None), _steps_for(1e-3), round(_steps_for(1e-5)), _steps_for(1e-9)
    (100, 100, 316, 1000)
    """
    wanted = tolerance**-0.5 if tolerance is not None and tolerance > 0 else USUAL_STEPS
    return min(max(wanted, USUAL_STEPS), MOST_STEPS)


def _unit(path: str | Path, options: FmuOptions) -> Fmu:
    return Fmu(path, options=options, isolate=Isolation(timeout=LONGEST_CALL) if available() else False)


class _Trials:
    """Runs of one FMU, and what they say."""

    def __init__(self, unit: Fmu, start: float, step: float, guessed: bool) -> None:
        self.unit, self.start, self.step = unit, start, step
        self.too_long: tuple[type[CosimoError], ...] = (StepDiscarded, UnitError) if guessed else (StepDiscarded,)
        self.held: Array = unit.start_inputs[None, :]
        self.seconds: float | None = None
        self.internal: float | None = None
        self.order: float | None = None
        self.masters = ""
        self.base: Array = np.empty((0, 0))
        self.made: list[Check] = []

    def rows(self) -> list[Check]:
        """All rows; without a library or a first run there are no others."""
        if problems := self.unit.problems():
            return [Check("library", "fail", " ".join(problems))]
        self.made = [Check("library", "pass")]
        trials: tuple[tuple[str, Callable[[], Check | str]], ...] = (
            ("initialisation", self._initialise),
            ("steps", self._steps),
            ("repeatability", self._repeat),
            ("saved states", self._states),
            ("states as bytes", self._bytes),
            ("step sizes", self._sizes),
            ("direct feedthrough", self._feedthrough),
            ("input slopes", self._slopes),
        )
        for name, tried in trials:
            self.made.append(self._row(name, tried))
            if self.made[-1].result == "fail" and not len(self.base):
                return self.made
        self.masters = self._allowed()
        return self.made

    @staticmethod
    def _row(name: str, tried: Callable[[], Check | str]) -> Check:
        """What the trial says: a remark where it passed; an error of the unit is a row that failed."""
        try:
            found = tried()
        except CosimoError as error:
            return Check(name, "fail", str(error))
        return found if isinstance(found, Check) else Check(name, "pass", found)

    def _instance(self) -> closing[Instance]:
        """A fresh one, ready to step."""
        return closing(self.unit.started(self.start, self.step))

    def _run(self, parts: int = 1) -> Array:
        """Outputs at the communication points of a run with steps divided into so many parts, (points, outputs)."""
        h = self.step / parts
        with self._instance() as instance:
            rows, taken = [instance.read()], 0.0
            for k in range(STEPS * parts):
                instance.set_input(self.held, h)
                begin = time.perf_counter()
                instance.step(self.start + k * h, h)
                taken += time.perf_counter() - begin
                rows.append(instance.read())
                if instance.ended is not None:
                    break
        if self.seconds is None:
            self.seconds = taken / (len(rows) - 1)
        return np.array(rows)

    # ---- the trials ----------------------------------------------------------------------------------------------

    def _initialise(self) -> str:
        with self._instance() as instance:
            wrong = self._not_finite(instance.read()[None, :])
        if wrong:
            self._fail(f"{wrong} after initialisation")
        return ""

    def _steps(self) -> str:
        asked = self.step
        for halvings in range(HALVINGS + 1):
            try:
                self.base = self._run()
                break
            except self.too_long:
                if halvings == HALVINGS:
                    self.step = asked
                    raise
                self.step /= 2
        if wrong := self._not_finite(self.base):
            self._fail(f"{wrong} within {counted(len(self.base) - 1, 'step')} of {step_text(self.step)}")
        longer = "" if self.step == asked else f"; it does not take steps of {step_text(2 * self.step)}"
        return f"{len(self.base) - 1} of {step_text(self.step)}{longer}"

    def _repeat(self) -> str:
        again = self._run()
        if again.shape != self.base.shape:
            self._fail(f"one run ended after {len(self.base) - 1} steps, the next after {len(again) - 1}")
        if again.tobytes() != self.base.tobytes():
            self._fail(f"two identical runs differ by {self._apart(self.base, again):.1e} of how far outputs move")
        return "two runs give the same bits"

    def _states(self) -> Check | str:
        if not self.unit.can_restore:
            return Check("saved states", "note", "not declared (canGetAndSetFMUState)")
        fault = restoring_fault(self.unit, self.start, self.step, as_bytes=False)
        if fault:
            self._fail(fault)
        return "a step taken back and made again gives the same bits"

    def _bytes(self) -> Check | str:
        if not self.unit.can_serialise:
            return Check("states as bytes", "note", "not declared (canSerializeFMUState)")
        fault = restoring_fault(self.unit, self.start, self.step, as_bytes=True)
        if fault:
            self._fail(fault)
        return ""

    def _sizes(self) -> Check | str:
        if not self.unit.variable_step:
            return Check("step sizes", "note", "not declared (canHandleVariableCommunicationStepSize)")
        runs = {parts: self._run(parts) for parts in PARTS}
        points = min((len(rows) - 1) // parts for parts, rows in runs.items())
        self._look_inside(runs[PARTS[-1]], self.step / PARTS[-1])
        levels = [rows[: points * parts + 1 : parts] for parts, rows in runs.items()]
        coarse, fine, finest = (self._apart(one, other) for one, other in pairwise(levels))
        if not np.ptp(levels[0], axis=0).any():
            return "taken; outputs stay constant, so that nothing is seen of its solver"
        if coarse <= ROUNDING:
            return "outputs do not depend on the communication step while inputs are held"
        if self.internal is None and min(fine, finest) > ROUNDING:
            orders = np.log2([coarse / fine, fine / finest])
            self.order = float(orders[1]) if abs(orders[0] - orders[1]) < AGREE and orders[1] > AGREE else None
        return f"halving the step changes outputs by {coarse:.1e}, halving it again by {fine:.1e}"

    def _look_inside(self, rows: Array, step: float) -> None:
        """Whether outputs move only on a grid of the FMU's own."""
        names = tuple(f"{self.unit.name}.{output}" for output in self.unit.outputs)
        found = Result(names, step * np.arange(len(rows), dtype=np.float64), rows)
        self.internal = internal_steps(System({self.unit.name: self.unit}), found, step).get(self.unit.name)

    def _feedthrough(self) -> str:
        declared, seen = self.unit.feedthrough(), self._answers_at_once()
        wrong = [
            f"'{self.unit.outputs[row]}' follows '{self.unit.inputs[column]}' at once"
            for row, column in np.argwhere(seen & ~declared)
        ]
        if wrong:
            more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
            self._fail(f"{wrong[0]}{more}, which the model structure denies")
        told = f"seen for {seen.sum()} of {declared.sum()} declared pairs of output and input"
        return told if declared.any() else "none declared, none seen"

    def _answers_at_once(self) -> BoolArray:
        """Which outputs (rows) change when an input (column) is set, before any step."""
        seen = np.zeros((len(self.unit.outputs), len(self.unit.inputs)), dtype=bool)
        further = nudged(self.unit)
        with self._instance() as instance:
            for column in np.flatnonzero(further != self.held[0]):
                moved = self.held.copy()
                moved[0, column] = further[column]
                before = instance.read()
                instance.set_input(moved, self.step)
                seen[:, column] = instance.read() != before
                instance.set_input(self.held, self.step)
        return seen

    def _slopes(self) -> Check | str:
        if not self.unit.input_degree:
            return Check("input slopes", "note", "not declared: inputs are held within a step")
        with self._instance() as instance:
            slope = NUDGE * np.maximum(1.0, np.abs(self.held))
            instance.set_input(np.vstack([self.held, slope]), self.step)
            instance.step(self.start, self.step)
            wrong = self._not_finite(instance.read()[None, :])
        if wrong:
            self._fail(f"{wrong} after a step with input derivatives")
        return ""

    # ---- words ---------------------------------------------------------------------------------------------------

    @staticmethod
    def _fail(reason: str) -> NoReturn:
        raise ConfigurationError(reason)

    def _not_finite(self, rows: Array) -> str:
        bad = np.argwhere(~np.isfinite(rows))
        return f"output '{self.unit.outputs[bad[0][1]]}' is {rows[tuple(bad[0])]}" if len(bad) else ""

    @staticmethod
    def _apart(one: Array, other: Array) -> float:
        """The largest difference, relative to how far each output moves, or to its size where it does not."""
        size = np.ptp(one, axis=0)
        size = np.where(size > 0, size, np.maximum(np.abs(one).max(axis=0, initial=0.0), 1.0))
        return float((np.abs(one - other).max(axis=0, initial=0.0) / size).max(initial=0.0))

    def _allowed(self) -> str:
        good = {row.check for row in self.made if row.result == "pass"}
        words = ["Jacobi", "Gauss–Seidel"]
        words += ["multirate, Strang, adaptive steps (energy)"] if "step sizes" in good else []
        words += ["iterative"] if "saved states" in good else []
        words += ["adaptive steps (doubling)"] if {"saved states", "step sizes"} <= good else []
        words += ["extrapolation within the step"] if "input slopes" in good else []
        words += ["checkpoints"] if "states as bytes" in good else []
        return ", ".join(words)
