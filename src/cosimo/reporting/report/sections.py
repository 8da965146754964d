"""The parts of a page, in their order: what each shows, as plain data for its template; None without content."""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosimo.analysis.trust import Grounds, judge
from cosimo.core import dataclass
from cosimo.core.document import SIGNS, Column, Document, DocumentTable, Section
from cosimo.core.document import Figure as Fact
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import amount, cost_text, percent, pole, step_text
from cosimo.masters.words import describe
from cosimo.reporting.report import charts, diagram, run_signals, step_sweeps
from cosimo.reporting.report.step_sweeps import COLUMNS, radius_map

if TYPE_CHECKING:
    from cosimo.analysis.truth import OutputErrors
    from cosimo.analysis.verdict import Verdict
    from cosimo.reporting.report.charts import Figure
    from cosimo.reporting.report.contents import Contents, ReportedRun, Role
    from cosimo.reporting.report.run_signals import Pack


@dataclass(frozen=True)
class PageSection:
    """A part: `key` names its template and its place on the page, `data` is what the template shows.

    What only a specialist asks for is `folded`.
    """

    key: str
    title: str
    data: dict[str, Any]
    folded: bool = False


def sections(contents: Contents, pack: Pack) -> list[PageSection]:
    """All parts that have content."""
    design = contents.compensation
    made: list[tuple[str, str, Callable[[], dict[str, Any] | None]]] = [
        ("verdict", "Verdict", lambda: _verdict(contents)),
        ("runs", "Runs", lambda: run_signals.signals(contents, pack) if contents.runs else None),
        ("steps", "Step size", lambda: _steps(contents)),
        ("system", "System", lambda: _system(contents)),
        ("front", "Tuning", lambda: _front(contents)),
        ("compensation", "Compensation", lambda: {"document": design.document} if design else None),
        ("modes", "Modes", lambda: _modes(contents)),
        ("monitors", "Monitors", lambda: monitors(contents, pack)),
        ("timing", "Timing", lambda: timing(contents)),
        ("units", "Units", lambda: _units(contents)),
        ("provenance", "Provenance", lambda: provenance(contents)),
    ]
    return [PageSection(key, title, data, key in FOLDED) for key, title, make in made if (data := make())]


FOLDED = ("modes", "monitors", "timing", "units", "provenance")
SUMMARY = ("verdict", "runs")
"""What fits on one sheet."""


def _verdict(contents: Contents) -> dict[str, Any] | None:
    found = opening(contents)
    if found is None:
        return None
    advice = contents.verdict.recommendation if contents.verdict else None
    return {
        "document": found,
        "sign": SIGNS[found.mark],
        "lines": advice.lines if advice is not None else "",
        "price": _price(contents),
        "alternatives": _alternatives(contents),
    }


def _price(contents: Contents) -> str:
    """What the recommended master costs beside the given one."""
    advice = contents.verdict.recommendation if contents.verdict else None
    if advice is None or advice.better is None or not advice.cost or not advice.cost_before:
        return ""
    factor = advice.cost / advice.cost_before
    more = f"{amount(factor)} × as many" if factor >= 1 else f"{amount(1 / factor)} × fewer"
    now, before = (_stepping(contents.run_of(role)) for role in ("recommended", "given"))
    spent = f"; the run took {_brief(now)} instead of {_brief(before)}" if now and before else ""
    steps = f"{cost_text(advice.cost)} per simulated second instead of {cost_text(advice.cost_before)}"
    return f"It takes {more} unit steps ({steps}){spent}."


def _brief(seconds: float) -> str:
    """Two digits: the next time it is another."""
    return step_text(float(f"{seconds:.2g}"))


def _stepping(run: ReportedRun | None) -> float | None:
    """Seconds that the steps of a whole run took."""
    return run.result.info.get("stepping_time") if run is not None and run.result.complete else None


def _alternatives(contents: Contents) -> DocumentTable | None:
    """The given master and what would do instead, side by side: what was predicted, and what runs showed."""
    verdict, other, compensation = contents.verdict, contents.alternative, contents.compensation
    if verdict is None or not (other or compensation or contents.run_of("given")):
        return None
    units, advice = len(contents.system.units) if contents.system else math.nan, verdict.recommendation
    cost = advice.cost_before if advice is not None and advice.cost_before else units / verdict.step_size
    rows = [_row(contents, "given", verdict.description, verdict.headline, verdict.error, cost)]
    if other is not None:
        role, point = other
        over: Any = {"horizon": verdict.horizon, "seen": verdict.pilot_horizon}
        grounds = Grounds(point.stable, point.errors, verdict.evidence, verdict.target, **over)
        rows.append(_row(contents, role, point.name, judge(grounds).headline, point.errors, point.cost))
    if compensation is not None:
        master, judged = compensation.master, contents.corrected
        word = judged.headline if judged is not None else compensation.document.headline
        errors = judged.error if judged is not None else None
        rows.append(_row(contents, "compensated", describe(master), word, errors, units / master.step))
    columns = (
        Column("role", " ", str, False),
        Column("name", "master", str, False),
        Column("verdict", "verdict", str, False),
        Column("error", "predicted error", percent),
        Column("measured", "measured error", percent),
        Column("cost", "unit steps per s", cost_text),
    )
    return DocumentTable("", "", columns, rows)


def _row(
    contents: Contents, role: Role, name: str, verdict: str, errors: OutputErrors | None, cost: float
) -> dict[str, Any]:
    run, predicted = contents.run_of(role), errors is not None and errors.kind == "predicted"
    measured = run.measured if run is not None else None
    if measured is None and not predicted:
        measured = errors
    return {
        "role": role,
        "name": name,
        "verdict": verdict,
        "error": errors.worst if errors is not None and predicted else None,
        "measured": measured.worst if measured is not None else None,
        "cost": cost,
    }


def _system(contents: Contents) -> dict[str, Any] | None:
    system = contents.system
    if system is None:
        return None
    verdict = contents.verdict
    effects = {effect.connection: effect for effect in verdict.connections} if verdict else {}
    worst = verdict.worst_connection.connection if verdict and verdict.worst_connection else None
    looped = diagram.loop_links(system)
    couplings = {
        link.number: contents.master.coupling_of(link.connection.target).word if contents.master else ""
        for link in system.links
    }
    return {
        "drawing": diagram.draw(system, worst=worst),
        "rows": [
            (link.connection, link.number in looped, couplings[link.number], effects.get(str(link.connection)))
            for link in system.links[:MOST_ROWS]
        ],
        "more": max(0, len(system.links) - MOST_ROWS),
        "effects": bool(effects),
        "loops": [" → ".join(loop) for loop in contents.loops],
        "through": any(unit.feedthrough().any() for unit in system.units.values()),
        "worst": worst,
        "units": len(system.units),
        "radius": f"{verdict.spectral_radius:.6f}" if verdict and verdict.spectral_radius is not None else "",
    }


def _modes(contents: Contents) -> dict[str, Any] | None:
    verdict, design = contents.verdict, contents.compensation
    if verdict is None or not verdict.modes:
        return None
    modes = verdict.modes
    poles = {"monolithic": [m.monolithic for m in modes], "co-simulated": [m.cosimulated for m in modes]}
    exact = [mode.exact for mode in design.modes] if design else []
    pairs = zip(exact, poles["monolithic"], strict=False)
    if design and len(exact) == len(modes) and all(abs(a - b) <= 1e-6 * (1 + abs(a)) for a, b in pairs):
        poles["compensated"] = [m.after for m in design.modes]
    section = verdict.document.section("modes")
    assert section is not None
    return {
        "figure": charts.poles(poles),
        "table": section.tables[0],
        "foreign": None if verdict.foreign is None else pole(verdict.foreign),
    }


def _steps(contents: Contents) -> dict[str, Any] | None:
    found = step_sweeps.curves(contents)
    section = contents.verdict.document.section("stability") if contents.verdict else None
    drawn = []
    if found:
        drawn.append(charts.steps(found, step_sweeps.own_growth(contents)))
        if contents.variation is not None:
            drawn.append(_map(contents))
    elif contents.variation is not None:
        raise ConfigurationError(
            f"parameter {contents.variation.name} cannot be varied: the report draws curves over the step size for "
            "small systems of linear units only; leave the option out."
        )
    moments = contents.verdict.along if contents.verdict else ()
    shown = [moment for moment in moments if math.isfinite(moment.critical_step)]
    if len(shown) > 1 and contents.verdict is not None:
        step = contents.verdict.step_size
        drawn.append(charts.along([m.time for m in shown], [m.critical_step for m in shown], step))
    identified = contents.linear is not contents.system
    if not (drawn or section):
        return None
    compensated = contents.compensation is not None
    return {"figures": drawn, "section": section, "identified": identified, "compensated": compensated}


def _map(contents: Contents) -> Figure:
    variation, master = contents.variation, contents.master
    assert variation is not None
    assert master is not None
    grid = step_sweeps.step_grid(contents, COLUMNS)
    values, radii = radius_map(variation, master, grid)
    now = None if variation.current is None else (master.step, variation.current)
    return charts.parameter_map(variation.name, values, grid, radii, now, variation.logarithmic)


def _front(contents: Contents) -> dict[str, Any] | None:
    tuned = contents.tuned
    if tuned is None:
        return None
    return {"figure": charts.front(tuned), "document": tuned.document, "table": tuned.front_table(len(tuned.front))}


def _units(contents: Contents) -> dict[str, Any] | None:
    if contents.verdict is None or all(unit.means == "known" for unit in contents.verdict.units):
        return None
    return {"section": contents.verdict.document.section("units")}


# ---- parts of a page that come from runs: monitors and timing --------------------------------------------------------


MOST_ROWS = 60
"""Rows of a table; the rest is counted."""


def monitors(contents: Contents, pack: Pack) -> dict[str, Any] | None:
    """What was watched in the runs: warnings, energy and defects over time, power bonds, connections."""
    panels = run_signals.watched(contents, pack)
    watched = [(run.label, run.result.info.get("monitors") or {}) for run in contents.runs]
    defects = [(label, entry) for label, found in watched for entry in found.get("connections") or ()]
    bonds = [(label, entry) for label, found in watched for entry in found.get("bonds") or ()]
    warnings = run_signals.marks(contents)
    if not (panels or defects or bonds or warnings):
        return None
    return {
        "panels": panels,
        "marks": warnings,
        "defects": sorted(defects, key=lambda row: -min(1.0, row[1]["relative"] or 0.0))[:MOST_ROWS],
        "bonds": bonds[:MOST_ROWS],
        "watched": bool(defects or bonds),
        "missing": bool(contents.runs) and not panels,
        "energy": any(panel["kind"] == "energy" for panel in panels),
    }


def timing(contents: Contents) -> dict[str, Any] | None:
    """What steps of units and of the whole take."""
    rows = []
    for run in contents.runs:
        info = run.result.info
        seconds, steps = info.get("stepping_time"), info.get("steps")
        if isinstance(seconds, int | float) and isinstance(steps, int) and steps and seconds > 0:
            simulated = float(info.get("end", run.result.time[-1] if len(run.result) else 0.0))
            rows.append((run.label, steps, seconds, simulated))
    whole = sum(contents.seconds.values())
    slowest = sorted(contents.seconds.items(), key=lambda item: -item[1])[:MOST_ROWS]
    alone = [(name, seconds / whole) for name, seconds in slowest]
    return {"runs": rows, "units": alone} if rows or alone else None


# ---- where a report comes from: what was asked, which versions answered, and fingerprints of what was read -----------


MOST_FILES = 4
PACKAGES = ("cosimo", "numpy", "scipy", "fmpy", "plotly")


def origin(contents: Contents) -> list[str]:
    """Date, version and files, for the head of the page."""
    files = [Path(str(contents.source["system"])).name] if contents.source.get("system") else []
    named = [run.label for run in contents.runs if run.role == "other"]
    return [datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), *_versions()[:1], *files, *named[:MOST_FILES]]


def provenance(contents: Contents) -> dict[str, Any]:
    """Facts, texts of scenarios, and one line per run."""
    facts: list[tuple[str, str]] = [("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))]
    if contents.command:
        facts.append(("command", contents.command))
    if contents.master is not None:
        facts.append(("master", f"{contents.master.name}, {step_text(contents.master.step)}, {contents.master}"))
    source = contents.source
    if source.get("system"):
        given = (source.get("settings") or {}).items()
        settings = ", ".join(f"{name} = {value if isinstance(value, str) else f'{value:g}'}" for name, value in given)
        facts.append(("system", f"{source['system']}{f' with {settings}' if settings else ''}"))
    if source.get("sha256"):
        facts.append(("SHA-256", str(source["sha256"])))
    facts.append(("versions", ", ".join([f"Python {platform.python_version()}", *_versions()])))
    facts.append(("platform", f"{platform.system()} {platform.machine()}"))
    scenarios = [run.result.info.get("scenario") or {} for run in contents.runs]
    texts = {str(source["text"]) for source in [contents.source, *scenarios] if source.get("text")}
    rows = [
        {
            "run": run.label,
            "system": str(info.get("system", "–")),
            "master": str(info.get("master", "–")),
            "schedule": str(info.get("schedule", "–")),
            "step": step_text(float(info["step"])) if isinstance(info.get("step"), int | float) else "–",
            "started": str(info.get("started", "–"))[:16].replace("T", " "),
            "versions": ", ".join(f"{name} {value}" for name, value in (info.get("versions") or {}).items()) or "–",
            "hash": str((info.get("scenario") or {}).get("sha256", ""))[:16],
            "rows": f"{len(run.result):,}",
            "complete": run.result.complete,
        }
        for run in contents.runs
        for info in (run.result.info,)
    ]
    return {"facts": facts, "texts": sorted(texts), "rows": rows}


def _versions() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found


# ---- what the page begins with: the document of the verdict; of runs alone, what they carry with them ----------------


def opening(contents: Contents) -> Document | None:
    """The verdict first; runs alone are as good as the verdict that was made before them, or not assessed."""
    if contents.verdict is not None:
        return contents.verdict.document
    if not contents.runs:
        return None
    verdicts = [carried_verdict(run) for run in contents.runs]
    known = [verdict for verdict in verdicts if verdict is not None]
    sentences = tuple(f"{run.label} {', '.join(_states(run))}." for run in contents.runs)
    if len(contents.runs) == 1 and known:
        document = known[0].document
        return Document(document.title, document.mark, document.headline, (*sentences, *document.sentences),
                        document.sections[:1], document.commands, document.advice)  # fmt: skip
    figures = tuple(
        Fact("", run.label, None, verdict.headline if verdict else "Not assessed")
        for run, verdict in zip(contents.runs, verdicts, strict=True)
    )
    worst = max(
        known, key=lambda verdict: ["yes", "not assessed", "with care", "no"].index(verdict.trust), default=None
    )
    if worst is None or (len(known) < len(verdicts) and worst.trust == "yes"):
        advice = "A result file alone does not tell whether it can be trusted; run 'cosimo analyse SYSTEM'."
        return Document("Results", "open", "Not assessed", sentences, (Section("verdict", "", figures),), (), advice)
    return Document("Results", worst.judgement.mark, worst.headline, sentences, (Section("verdict", "", figures),))


def carried_verdict(run: ReportedRun) -> Verdict | None:
    """The verdict that a run was made with; None where there was none, or it contradicts itself."""
    from cosimo.analysis.verdict import Verdict

    said = run.result.info.get("verdict")
    try:
        return Verdict.from_brief(said) if isinstance(said, dict) else None
    except ValueError:
        return None


def _states(run: ReportedRun) -> Iterator[str]:
    result = run.result
    end = f"{result.time[-1]:g} s" if len(result) else "its start"
    yield f"reached {end} in {len(result):,} rows" if result.complete else f"is incomplete: it ended at {end}"
    growing = (result.info.get("monitors") or {}).get("growing") or ()
    if growing:
        yield f"{growing[0]['output']} grows as in an unstable coupling"
    count = len(result.warnings)
    yield f"{'no' if count == 0 else count} warning{'' if count == 1 else 's'}"
