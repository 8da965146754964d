"""Masters and couplings compared on one system by running them: error, trust and cost of each.

Every master is run once and measured against the true solution (`cosimo.analysis.truth`, `cosimo.analysis.pilots`). Its
trust is that of the verdict: from Φ where the equations are known, from a remembered verdict where there is one, and
otherwise from what the run showed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.analysis.analysing import analyse
from cosimo.analysis.cost import Cost
from cosimo.analysis.memory import Memory
from cosimo.analysis.model import Measured, Model
from cosimo.analysis.pilots import bounded
from cosimo.analysis.recommendation import master_cost
from cosimo.analysis.truth import Truth, count_steps, output_errors
from cosimo.analysis.verdict import Verdict
from cosimo.core import dataclass
from cosimo.core.document import Column, Document, DocumentTable, Figure, Section, as_json, as_text
from cosimo.core.errors import ConfigurationError, RunError, UnknownNameError
from cosimo.core.formatting import cost_text, percent, step_text
from cosimo.core.master import Master
from cosimo.core.result import TARGET, Result
from cosimo.core.system import System
from cosimo.couplings import parse_coupling
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel
from cosimo.masters.words import MasterOptions, build_master, describe
from cosimo.problems.oscillators import fresh

KINDS = ("auto", "exact", "fine", "monolithic")
"""What runs may be measured against: the true solution (exact, or by finer runs), or a fresh exchange at this step."""


@dataclass(frozen=True)
class Reference:
    """What runs are measured against: rows at t_k = k h, where they come from, and how wrong they are themselves."""

    kind: str
    result: Result
    own_error: float
    truth: Truth = field(repr=False)


@dataclass(frozen=True)
class MasterTrial:
    """One master on the system: its `verdict`, and what its run `measured`.

    `reason` is why a master could not be tried; it has neither then.
    """

    word: str
    coupling: str
    master: Master | None
    verdict: Verdict | None = None
    measured: Measured | None = None
    cost: float = math.nan
    seconds_per_step: float = math.nan
    reason: str = ""


def combinations(system: System, step: float, masters_: str, couplings: str) -> list[MasterTrial]:
    """Every master in words with every coupling, to be tried; what cannot be built carries the reason."""
    found = []
    for name in _words("masters", masters_):
        for coupling in _words("couplings", couplings):
            parse_coupling(coupling)  # a word that means nothing is refused at once
            try:
                built = build_master(system, step, MasterOptions(name=name, couplings=(coupling,)))
                found.append(MasterTrial(name, coupling, built))
            except UnknownNameError:
                raise
            except ConfigurationError as error:
                found.append(MasterTrial(name, coupling, None, reason=str(error)))
    return found


def _words(what: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ConfigurationError(f"give at least one of the {what} to compare.")
    return words


def reference(
    system: System, *, step: float, start: float = 0.0, stop: float, kind: str = "auto", model: Model | None = None
) -> Reference:
    """The solution at every macro step; `kind`: "exact", "fine", "monolithic" (fresh exchange, same step) or "auto"."""
    if kind not in KINDS:
        raise UnknownNameError("reference", kind, KINDS)
    model = model or Model(system, step=step, horizon=stop - start, start=start, identify=False)
    if kind == "exact" and not model.known:
        names = ", ".join(name for name, unit in system.units.items() if unit.linear() is None)
        raise ConfigurationError(f"the equations of {names} are not known; there is no exact solution; use fine.")
    if kind == "monolithic":
        count = count_steps(model.horizon, step)
        rows = run(system, fresh(system, step), start=start, stop=start + count * step).values[:, : len(system.outputs)]
        truth = Truth(rows, np.abs(rows).max(axis=0))
    elif kind == "exact" or (kind == "auto" and model.known):
        kind, truth = "exact", model.truth(step)
    else:
        kind, pilot = "fine", model.pilots.of(gauss_seidel(system, step))
        if pilot.truth is None:
            raise ConfigurationError(f"finer runs give no reference: {pilot.reason}; give a smaller step.")
        truth = pilot.truth
    times = np.asarray(start + step * np.arange(len(truth.rows)), dtype=float)
    return Reference(kind, Result(system.outputs, times, truth.rows), truth.own_error, truth)


def try_masters(
    model: Model,
    candidates: Sequence[MasterTrial],
    wanted: Reference,
    *,
    target: float = TARGET,
    memory: Memory | None = None,
) -> list[MasterTrial]:
    """Each master run, measured and judged."""
    return [_try(model, candidate, wanted, target, memory) for candidate in candidates]


def _try(model: Model, trial: MasterTrial, wanted: Reference, target: float, memory: Memory | None) -> MasterTrial:
    system, master = model.system, trial.master
    if master is None:
        return trial
    try:
        rows, diverged, grows = model.pilots.rows(master, 1)
    except (ConfigurationError, RunError) as error:
        return replace(trial, reason=str(error))
    errors = output_errors(system, master, rows, wanted.truth, model.horizon, "measured", start=model.start)
    seconds = model.pilots.stepping(master)
    verdict = memory.recall(system, master, model.start, model.horizon, target) if memory is not None else None
    if verdict is None and model.known:
        verdict = analyse(system, master, model=model, target=target, details=False)
    if verdict is None or verdict.trust == "not assessed":
        verdict = Verdict(
            system.name, master.name, describe(master, system), str(master), master.step, model.horizon, target,
            "measured", stable=bounded(rows, wanted.truth, diverged, grows), error=errors, start=model.start,
        )  # fmt: skip
    return replace(
        trial,
        verdict=verdict,
        measured=Measured(errors, seconds, diverged, wanted.own_error),
        cost=master_cost(model, master, Cost()),
        seconds_per_step=seconds / max(1, len(rows) - 1),
    )


@dataclass(frozen=True)
class MasterComparison:
    """What `cosimo compare` shows."""

    system: str
    step: float
    horizon: float
    wanted: Reference
    trials: Sequence[MasterTrial]
    figure: str | None = None
    start: float = 0.0

    def __str__(self) -> str:
        return as_text(self.document)

    def fields(self) -> dict[str, Any]:
        return as_json(self.document)

    @cached_property
    def document(self) -> Document:
        trusted = [trial for trial in self._ranked() if trial.verdict is not None and trial.verdict.trust == "yes"]
        careful = any(trial.verdict is not None and trial.verdict.trust == "with care" for trial in self.trials)
        tried = [trial for trial in self.trials if not trial.reason]
        return Document(
            f"{self.system} at {self.step:g} s until {self.start + self.horizon:g} s",
            "good" if trusted else "care" if careful else "bad",
            f"{len(trusted)} of {len(tried)} masters can be trusted",
            sections=(Section("comparison", "Comparison", tuple(self._figures()), (self._table(),)),),
        )

    def _figures(self) -> Iterator[Figure]:
        own = f"itself uncertain by {percent(self.wanted.own_error)}" if self.wanted.own_error else ""
        yield Figure("reference", "measured against", self.wanted.kind, f"the {self.wanted.kind} solution", own)
        yield Figure("reference_error", "", self.wanted.own_error)
        yield Figure("horizon", "", self.horizon)
        yield Figure("figure", "", self.figure)

    def _ranked(self) -> list[MasterTrial]:
        """Best first; what could not be tried comes last."""

        def key(trial: MasterTrial) -> tuple[bool, bool, float]:
            verdict, measured = trial.verdict, trial.measured
            unstable = verdict is not None and verdict.stable is False
            return bool(trial.reason), unstable, measured.error if measured is not None else math.inf

        return sorted(self.trials, key=key)

    def _table(self) -> DocumentTable:
        rows = []
        names = ("trust", "headline", "stable", "error_kind", "errors", "spectral_radius", "recommendation")
        for trial in self._ranked():
            measured = trial.measured
            said = trial.verdict.brief() if trial.verdict is not None else {}
            rows.append(
                {
                    "master": trial.word,
                    "coupling": trial.coupling,
                    **{name: said.get(name) for name in names},
                    "error": trial.verdict.error.worst if trial.verdict and trial.verdict.error else math.nan,
                    "measured_error": measured.error if measured else None,
                    "diverged_at": measured.diverged if measured else None,
                    "cost": trial.cost,
                    "seconds_per_step": trial.seconds_per_step,
                    "reason": trial.reason,
                }
            )
        also = ("headline", "error_kind", "errors", "spectral_radius", "recommendation", "diverged_at")
        columns = (
            Column("master", "master", str, False),
            Column("coupling", "coupling", str, False),
            Column("trust", "trust", lambda value: value or "not tried", False),
            Column("stable", "stable", lambda value: "–" if value is None else "yes" if value else "NO", False),
            Column("error", "error", percent),
            Column("measured_error", "measured", percent),
            Column("cost", "cost 1/s", cost_text),
            Column("seconds_per_step", "per step", lambda seconds: step_text(seconds) if seconds > 0 else "–"),
            Column("reason", "remark", str, False),
            *map(Column, also),
        )
        return DocumentTable("trials", "", columns, rows)
