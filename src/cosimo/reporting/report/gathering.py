"""From the things that are given to what a report is made of: sorted by kind, and what is missing worked out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cosimo.analysis import Verdict, analyse
from cosimo.assessment import Assessment, assess
from cosimo.compensation import Compensation
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.reporting.assessing import FEW
from cosimo.reporting.report.material import Material, Role, Run
from cosimo.reporting.report.parameters import Variation
from cosimo.tuning import Tuned
from cosimo.tuning.wording import step_text

ONCE = (System, Master, Verdict, Assessment, Tuned, Compensation)
KNOWN = "systems, masters, verdicts, assessments, tuned fronts, compensations, results, and runs (a name and a result)"


def gather(
    things: Iterable[Any],
    *,
    title: str | None = None,
    reference: Result | Run | None = None,
    variation: Variation | None = None,
    horizon: float | None = None,
    seconds: Mapping[str, float] | None = None,
    command: str = "",
    source: Mapping[str, Any] | None = None,
) -> Material:
    """Sort the things; a system and a master without a verdict are analysed (`horizon` in seconds bounds errors)."""
    found: dict[type, Any] = {}
    runs: list[Run] = []
    for thing in things:
        if isinstance(thing, Result | Run) or _named(thing):
            runs.append(_run(thing))
            continue
        kind = next((kind for kind in ONCE if isinstance(thing, kind)), None)
        if kind is None:
            raise ConfigurationError(f"a report cannot show {_short(thing)}; it takes {KNOWN}.")
        if kind in found:
            raise ConfigurationError(
                f"a report is about one system; two things of the kind {kind.__name__} were given."
            )
        found[kind] = thing
    system, master = found.get(System), found.get(Master)
    compensation = found.get(Compensation)
    if compensation is not None:
        system, master = system or compensation.path.system, master or compensation.path.master
    verdict, assessment = _judged(found.get(Verdict), found.get(Assessment), system, master, horizon)
    if not (found or runs):
        raise ConfigurationError(f"a report needs something to show: {KNOWN}.")
    wanted = None if reference is None else _run(reference, "reference")
    return Material(
        title=title or _title(system, verdict, assessment, found.get(Tuned), runs),
        system=system,
        master=master,
        verdict=verdict,
        assessment=assessment,
        tuned=found.get(Tuned),
        compensation=compensation,
        runs=tuple(_distinct(run for run in runs if wanted is None or run.label != wanted.label)),
        reference=wanted,
        variation=variation,
        seconds=seconds or {},
        command=command,
        source=source or {},
    )


def _judged(
    verdict: Verdict | None,
    assessment: Assessment | None,
    system: System | None,
    master: Master | None,
    horizon: float | None,
) -> tuple[Verdict | None, Assessment | None]:
    """The verdict of linear systems, the assessment of others and of small linear ones."""
    if system is not None and master is not None and verdict is None and assessment is None:
        linear = all(unit.linear() is not None for unit in system.units.values())
        states = sum(len(unit.initial_state) for unit in system.units.values())
        if linear:
            try:
                verdict = analyse(system, master, horizon=horizon)
            except ConfigurationError:
                verdict = None  # couplings that learn have no matrices; the assessment says what can be said
        if verdict is None or states <= FEW:
            try:
                assessment = assess(system, master, horizon=horizon or (verdict.horizon if verdict else None))
            except CosimoError:
                if verdict is None:
                    raise
    if verdict is None and assessment is not None:
        verdict = assessment.verdict
    return verdict, assessment


def _named(thing: Any) -> bool:
    return isinstance(thing, tuple) and len(thing) == 2 and isinstance(thing[0], str) and isinstance(thing[1], Result)


def _run(thing: Any, role: Role = "other") -> Run:
    if isinstance(thing, Run):
        return thing
    if _named(thing):
        return Run(thing[0], thing[1], role)
    return Run(_label(thing), thing, role)


def _label(result: Result) -> str:
    info = result.info
    if "master" not in info:
        return "run"
    step = f", {step_text(float(info['step']))}" if isinstance(info.get("step"), int | float) else ""
    return f"{info['master']}{step}"


def _distinct(runs: Iterable[Run]) -> Iterator[Run]:
    """Equal names get numbers."""
    seen: dict[str, int] = {}
    for run in runs:
        seen[run.label] = seen.get(run.label, 0) + 1
        number = seen[run.label]
        yield run if number == 1 else Run(f"{run.label} ({number})", run.result, run.role)


def _title(
    system: System | None,
    verdict: Verdict | None,
    assessment: Assessment | None,
    tuned: Tuned | None,
    runs: list[Run],
) -> str:
    if system is not None:
        return system.name
    for found in (verdict, assessment, tuned):
        if found is not None:
            return found.system
    return str(next((run.result.info["system"] for run in runs if "system" in run.result.info), "co-simulation"))


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:57]}…"
