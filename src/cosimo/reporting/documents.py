"""What `compensate` and `sweep` show: a design beside its runs, the spread of measures.

The fields of `--json` are what others script against: change them only by adding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cosimo.core.document import Column, Document, DocumentTable, Figure, Mark, Section
from cosimo.core.formatting import counted

if TYPE_CHECKING:  # a run that is interrupted must not wait for them before it says so
    from cosimo.analysis.verdict import Verdict
    from cosimo.compensation import Compensation
    from cosimo.compensation.comparison import Comparison, Trajectory
    from cosimo.studies import Outcome

FEW = 3
"""Parameters up to which a point is written out."""
SHOWN = 5
"""Failed runs that are named."""
CLEAR = 0.3
"""Rank correlations that are worth a line."""


# ---- compensate ------------------------------------------------------------------------------------------------------


def compensation_document(design: Compensation, compared: Comparison | None) -> Document:
    """The document of the design with one column per run, where equations are known."""
    if compared is None:
        return design.document
    figures = (
        Figure("stop_time", "", compared.stop),
        Figure("energy_start", "", compared.energy_start),
        Figure("runs", "", {name: _run(trajectory) for name, trajectory in compared.runs.items()}),
    )
    section = Section("compared", "Runs", figures, (_side_by_side(compared),))
    return replace(design.document, sections=(*design.document.sections, section))


def _run(trajectory: Trajectory) -> dict[str, Any]:
    return {
        "stable": trajectory.stable,
        "spectral_radius": trajectory.radius,
        "diverged_at": trajectory.diverged,
        "energy_end": trajectory.energy,
        "final": trajectory.final,
        "nrms": trajectory.nrms,
    }


def _side_by_side(compared: Comparison) -> DocumentTable:
    runs = compared.runs
    rows: list[dict[str, str]] = []

    def add(label: str, cells: list[str]) -> None:
        rows.append({"label": label, **dict(zip(runs, cells, strict=True))})

    add("stable", ["yes" if t.stable else "NO" for t in runs.values()])
    add("spectral radius", [f"{t.radius:.9f}" for t in runs.values()])
    if any(t.diverged is not None for t in runs.values()):
        add("diverged at", ["–" if t.diverged is None else f"{t.diverged:g} s" for t in runs.values()])
    if compared.energy_start is not None:
        cells = ["–" if t.energy is None else f"{t.energy:.5g} J" for t in runs.values()]
        add(f"energy ({compared.energy_start:.5g} J)", cells)
    for name in compared.exact.final:
        mark = "*" if name in compared.fed_through else ""
        add(f"{name}{mark}, end", [_value(t.final.get(name)) for t in runs.values()])
        add("  NRMS", [_share((t.nrms or {}).get(name), t) for t in runs.values()])
    until = f"until t = {compared.stop:g} s"
    columns = (Column("label", until, str, False), *(Column(name, name) for name in runs))
    note = (
        "* compensated: shows the corrected input of the step, not the force at its end" if compared.fed_through else ""
    )
    return DocumentTable("", "", columns, rows, note)


def _value(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"


def _share(value: float | None, trajectory: Trajectory) -> str:
    if value is None:
        return "–" if trajectory.nrms is None else "unbounded"
    return f"{value:.2e}" if math.isfinite(value) else "unbounded"


# ---- sweep -----------------------------------------------------------------------------------------------------------


def study_document(outcome: Outcome, output_file: str | None, verdict: Verdict | None) -> Document:
    """What `cosimo sweep` shows; `verdict` is that of the coupling as it stands, None where it was not assessed."""
    trust = outcome.trust
    trusted = ", ".join(f"{count} {_TRUST[word]}" for word, count in trust.items() if count)
    mark: Mark = "good" if trust["yes"] == len(outcome) else "bad" if trust["no"] else "care"
    if trust["not assessed"] == len(outcome):
        mark = "open"
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items() if count)
    made = len(outcome) - outcome.resumed
    before = f", {outcome.resumed} of them from before" if outcome.resumed else ""
    workers = f"{outcome.workers} worker{'s' if outcome.workers > 1 else ''}"
    speed = f"{made / outcome.wall_time:,.0f} runs/s, {workers}" if made else "nothing to do"
    failed = outcome.failures(SHOWN)
    without = len(outcome) - outcome.counts["ran"]
    sentences = [f"{counted(len(outcome), 'run')}{before} ({counts}) in {outcome.wall_time:.3g} s ({speed})."]
    sentences += [f"run {run} {status} at {_point(outcome, run)}: {why}" for run, status, why in failed]
    sentences += [f"and {without - len(failed)} more"] if without > len(failed) else []
    sentences += [f"rows in {output_file}"] if output_file else []
    spreads = {name: outcome.spread(name) for name in outcome.measures}
    figures = [
        Figure("system", "", outcome.document["system"]),
        Figure("parameters", "", list(outcome.parameters)),
        Figure("runs", "", len(outcome)),
        Figure("resumed", "", outcome.resumed),
        *(Figure(status, "", count) for status, count in outcome.counts.items()),
        Figure("trust", "", trust),
        Figure("verdict", "", verdict.brief() if verdict is not None else None),
        Figure("workers", "", outcome.workers),
        Figure("wall_time", "", outcome.wall_time),
        Figure("runs_per_second", "", made / outcome.wall_time if outcome.wall_time else None),
        Figure("output_file", "", output_file),
        Figure("measures", "", {n: None if spread is None else asdict(spread) for n, spread in spreads.items()}),
        Figure(
            "failures", "", [{"run": r, "status": s, "message": m, "point": outcome.point(r)} for r, s, m in failed]
        ),
        Figure("notes", "", list(outcome.notes)),
        *(Figure("", "note", None, note) for note in outcome.notes),
        *(Figure("", f"{name} goes with", None, text) for name, text in _influences(outcome)),
    ]
    sections = (Section("study", "Study", tuple(figures), (_spread_table(outcome),)),)
    return Document(str(outcome.document["system"]), mark, trusted or "no runs", tuple(sentences), sections)


_TRUST = {"yes": "to be trusted", "with care": "with care", "no": "not to be trusted", "not assessed": "not assessed"}


def _spread_table(outcome: Outcome) -> DocumentTable:
    rows = []
    for name in outcome.measures:
        spread = outcome.spread(name)
        row: dict[str, Any] = {"measure": name}
        for key in ("least", "low", "median", "high", "most"):
            row[key] = None if spread is None else getattr(spread, key)
        row |= {key: "" if spread is None else _point(outcome, getattr(spread, key)) for key in ("least_at", "most_at")}
        rows.append(row)

    def figure(value: float | None) -> str:
        return "–" if value is None else f"{value:.6g}"

    names = {"least": "least", "low": "5 %", "median": "median", "high": "95 %", "most": "most"}
    columns = (
        Column("measure", "measure", str, False),
        *(Column(key, name, figure) for key, name in names.items()),
        Column("least_at", "least at", str, False),
        Column("most_at", "most at", str, False),
    )
    return DocumentTable("", "", columns, rows)


def _influences(outcome: Outcome) -> Iterator[tuple[str, str]]:
    """Which parameters a measure goes with (rank correlation), the strongest first."""
    for name in outcome.measures:
        spread = outcome.spread(name)
        found = {} if spread is None or len(outcome.parameters) < 2 else spread.correlations
        clear = [(parameter, value) for parameter, value in found.items() if value is not None and abs(value) >= CLEAR]
        if clear:
            strongest = sorted(clear, key=lambda pair: -abs(pair[1]))[:SHOWN]
            yield name, ", ".join(f"{p} ({value:+.2f})" for p, value in strongest)


def _point(outcome: Outcome, run: int) -> str:
    point = outcome.point(run)
    if len(point) > FEW:
        return f"run {run}"
    return ", ".join(f"{name}={value:.6g}" for name, value in point.items())
