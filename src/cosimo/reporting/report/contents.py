"""What a report is made of: the things that are given, sorted by kind, and what is missing computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import step_text
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System

if TYPE_CHECKING:
    from cosimo.analysis.model import Model
    from cosimo.analysis.recommendation import Point, Recommendation
    from cosimo.analysis.truth import OutputErrors
    from cosimo.analysis.verdict import Verdict
    from cosimo.compensation import Compensation
    from cosimo.tuning import Tuned

VALUES = 41
"""Values of a parameter that is varied: rows of a map that the eye cannot tell apart."""
Role = Literal["given", "recommended", "nearest", "compensated", "reference", "other"]


@dataclass(frozen=True)
class ReportedRun:
    """A run with the name it has on the page, what it is there for, and its errors where they were measured."""

    label: str
    result: Result
    role: Role = "other"
    measured: OutputErrors | None = None


@dataclass(frozen=True)
class Variation:
    """A parameter that is varied: `build(value)` makes the system; from `low` to `high`, now at `current`."""

    name: str
    low: float
    high: float
    build: Callable[[float], System]
    current: float | None = None

    def __post_init__(self) -> None:
        if not (np.isfinite([self.low, self.high]).all() and self.low < self.high):
            raise ConfigurationError(
                f"parameter {self.name} is varied from {self.low:g} to {self.high:g}; give the smaller number first."
            )

    @property
    def logarithmic(self) -> bool:
        """Ranges of a decade and more are divided by ratios."""
        return self.low > 0 and self.high / self.low >= 10

    def values(self) -> Array:
        """Where the system is looked at."""
        spaced = np.geomspace if self.logarithmic else np.linspace
        found: Array = spaced(self.low, self.high, VALUES)
        return found


@dataclass(frozen=True)
class Contents:
    """All that was given or worked out; what there is not is None or empty.

    `seconds` are those that one step of each unit takes; `reference` is the run that the others are compared with;
    `corrected` the verdict on the compensated master; `model` what is known of units without equations.
    """

    title: str
    system: System | None = None
    master: Master | None = None
    verdict: Verdict | None = None
    model: Model | None = None
    tuned: Tuned | None = None
    compensation: Compensation | None = None
    corrected: Verdict | None = None
    runs: tuple[ReportedRun, ...] = ()
    reference: ReportedRun | None = None
    variation: Variation | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    command: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def linear(self) -> System | None:
        """The system by equations: those of its units, or of models that hold at all steps; None without."""
        system, model = self.system, self.model
        if system is None or all(unit.linear() is not None for unit in system.units.values()):
            return system
        return model.local.linear if model is not None and model.valid and model.local.exact else None

    @property
    def alternative(self) -> tuple[Role, Point] | None:
        """The master to use instead of the given one, as `alternative`."""
        return alternative(self.verdict.recommendation if self.verdict else None, self.tuned)

    def run_of(self, role: Role) -> ReportedRun | None:
        """The run that is there for something."""
        return next((run for run in self.runs if run.role == role), None)

    @property
    def loops(self) -> tuple[tuple[str, ...], ...]:
        """The algebraic loops, as far as they are known."""
        if self.system is not None:
            return tuple(self.system.loops())
        return self.verdict.loops if self.verdict else ()


def alternative(advice: Recommendation | None, tuned: Tuned | None) -> tuple[Role, Point] | None:
    """What is recommended instead of the given master, or what a search that found nothing good enough came nearest."""
    if advice is not None and advice.better is not None:
        return "recommended", advice.better
    return None if tuned is None or (advice is not None and advice.keep) else ("nearest", tuned.chosen)


KNOWN = "systems, masters, verdicts, tuned fronts, compensations, results, and runs (a name and a result)"


def collect(
    things: Iterable[Any],
    *,
    horizon: float | None,
    start: float,
    target: float,
    title: str | None,
    reference: Result | ReportedRun | None,
    model: Model | None = None,
    **more: Any,
) -> Contents:
    """Sort the things by kind; a system and a master without a verdict are analysed.

    `horizon` in seconds bounds the errors; `more` are fields of `Contents` as they are.
    """
    from cosimo.analysis.analysing import analyse
    from cosimo.analysis.model import AnalysisOptions, Model

    found, runs = _sorted(things)
    system, master = found.get("System"), found.get("Master")
    compensation = found.get("Compensation")
    if compensation is not None:
        system, master = system or compensation.system, master or compensation.path.master
    verdict = found.get("Verdict")
    if verdict is None and system is not None and master is not None:
        options = AnalysisOptions(horizon, start, target)
        model = Model(system, step=master.step, options=options)
        verdict = analyse(system, master, model=model, options=options)
    if verdict is not None and "Tuned" in found:
        # One page, one recommendation: the search that looked at more.
        verdict = replace(verdict, recommendation=found["Tuned"].recommendation)
    corrected = None
    if compensation is not None and verdict is not None:
        asked: dict[str, Any] = {"horizon": verdict.horizon, "start": start, "target": verdict.target}
        corrected = analyse(compensation.system, compensation.master, details=False, model=compensation.model, **asked)
    wanted = None if reference is None else _run(reference, "reference")
    return Contents(
        title=title or _title(system, verdict, found.get("Tuned"), runs),
        system=system,
        master=master,
        verdict=verdict,
        model=model,
        tuned=found.get("Tuned"),
        compensation=compensation,
        corrected=corrected,
        runs=tuple(_distinct(run for run in runs if wanted is None or run.label != wanted.label)),
        reference=wanted,
        **more,
    )


def _sorted(things: Iterable[Any]) -> tuple[dict[str, Any], list[ReportedRun]]:
    """What a report takes once, by the name of its kind, and the runs."""
    from cosimo.analysis.verdict import Verdict
    from cosimo.compensation import Compensation
    from cosimo.tuning import Tuned

    found: dict[str, Any] = {}
    runs: list[ReportedRun] = []
    for thing in things:
        if isinstance(thing, Result | ReportedRun) or _named(thing):
            runs.append(_run(thing))
            continue
        kinds = (System, Master, Verdict, Tuned, Compensation)
        kind = next((kind.__name__ for kind in kinds if isinstance(thing, kind)), None)
        if kind is None:
            text = repr(thing)
            short = text if len(text) <= 60 else f"{text[:57]}…"
            raise ConfigurationError(f"a report cannot show {short}; it takes {KNOWN}.")
        if kind in found:
            raise ConfigurationError(f"a report shows one system; remove one of the two arguments of the kind {kind}.")
        found[kind] = thing
    if not (found or runs):
        raise ConfigurationError(f"a report needs something to show: {KNOWN}.")
    return found, runs


def _named(thing: Any) -> bool:
    return isinstance(thing, tuple) and len(thing) == 2 and isinstance(thing[0], str) and isinstance(thing[1], Result)


def _run(thing: Any, role: Role = "other") -> ReportedRun:
    if isinstance(thing, ReportedRun):
        return thing
    if _named(thing):
        return ReportedRun(thing[0], thing[1], role)
    return ReportedRun(_label(thing), thing, role)


def _label(result: Result) -> str:
    info = result.info
    if "master" not in info:
        return "run"
    step = f", {step_text(float(info['step']))}" if isinstance(info.get("step"), int | float) else ""
    return f"{info['master']}{step}"


def _distinct(runs: Iterable[ReportedRun]) -> Iterator[ReportedRun]:
    seen: dict[str, int] = {}
    for run in runs:
        seen[run.label] = seen.get(run.label, 0) + 1
        number = seen[run.label]
        yield run if number == 1 else replace(run, label=f"{run.label} ({number})")


def _title(system: System | None, verdict: Verdict | None, tuned: Tuned | None, runs: list[ReportedRun]) -> str:
    names = [system.name] if system is not None else []
    names += [found.system for found in (verdict, tuned) if found is not None]
    names += [str(run.result.info["system"]) for run in runs if "system" in run.result.info]
    return next(iter(names), "co-simulation")
