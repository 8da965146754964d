"""What `cosimo sweep` shows: a bar while it runs, then how the measures are spread and what failed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from cosimo.reporting.fields import number
from cosimo.reporting.terminal import table
from cosimo.studies import Outcome, Progress, Standing

FEW = 3
"""Parameters up to which a point is written out."""
SHOWN = 5
"""Failed runs that are named."""
CLEAR = 0.3
"""Rank correlations that are worth a line."""


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A bar on standard error; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[failed]} without result"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("runs", total=None, failed=0)

        def report(now: Standing) -> None:
            bar.update(task, completed=now.done, total=now.total, failed=now.failed)

        yield report


def study_fields(outcome: Outcome, output_file: str | None) -> dict[str, Any]:
    """What `sweep --json` prints."""
    made = len(outcome) - outcome.resumed
    measures: dict[str, Any] = {}
    for name in outcome.measures:
        spread = outcome.spread(name)
        measures[name] = None if spread is None else _plain(asdict(spread))
    return {
        "system": outcome.document["system"],
        "parameters": list(outcome.parameters),
        "runs": len(outcome),
        "resumed": outcome.resumed,
        **outcome.counts,
        "workers": outcome.workers,
        "wall_time": outcome.wall_time,
        "runs_per_second": made / outcome.wall_time if outcome.wall_time else None,
        "output_file": output_file,
        "measures": measures,
        "failures": [
            {"run": run, "status": status, "message": message, "point": outcome.point(run)}
            for run, status, message in outcome.failures(SHOWN)
        ],
        "notes": list(outcome.notes),
    }


def _plain(spread: dict[str, Any]) -> dict[str, Any]:
    return {name: number(value) if isinstance(value, float) else value for name, value in spread.items()}


def study_text(outcome: Outcome, output_file: str | None) -> str:
    """The same for people."""
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items() if count)
    made = len(outcome) - outcome.resumed
    before = f", {outcome.resumed} of them from before" if outcome.resumed else ""
    workers = f"{outcome.workers} worker{'s' if outcome.workers > 1 else ''}"
    speed = f"{made / outcome.wall_time:,.0f} runs/s, {workers}" if made else "nothing to do"
    lines = [f"{outcome.document['system']}: {len(outcome)} runs{before} ({counts}) in {outcome.wall_time:.3g} s"]
    lines[0] += f" ({speed})"
    lines += ["", *_spreads(outcome), *_influences(outcome)]
    failed = outcome.failures(SHOWN)
    if failed:
        lines += ["", *(f"run {run} {status} at {_point(outcome, run)}: {why}" for run, status, why in failed)]
        without = len(outcome) - outcome.counts["ok"]
        lines += [f"and {without - len(failed)} more"] if without > len(failed) else []
    lines += [f"note: {note}" for note in outcome.notes]
    return "\n".join([*lines, *([f"rows in {output_file}"] if output_file else [])])


def _spreads(outcome: Outcome) -> list[str]:
    rows = []
    for name in outcome.measures:
        spread = outcome.spread(name)
        if spread is None:
            rows.append([name, *["–"] * 5, "", ""])
            continue
        figures = (spread.least, spread.low, spread.median, spread.high, spread.most)
        ends = [_point(outcome, run) for run in (spread.least_at, spread.most_at)]
        rows.append([name, *(f"{figure:.6g}" for figure in figures), *ends])
    header = ["measure", "least", "5 %", "median", "95 %", "most", "least at", "most at"]
    return table(rows, header, numbers=range(1, 6))


def _influences(outcome: Outcome) -> list[str]:
    """Which parameters a measure goes with, the strongest first."""
    lines = []
    for name in outcome.measures:
        spread = outcome.spread(name)
        found = {} if spread is None or len(outcome.parameters) < 2 else spread.correlations
        clear = [(parameter, value) for parameter, value in found.items() if value is not None and abs(value) >= CLEAR]
        if clear:
            strongest = sorted(clear, key=lambda pair: -abs(pair[1]))[:SHOWN]
            lines.append(f"  {name} goes with " + ", ".join(f"{p} ({value:+.2f})" for p, value in strongest))
    return ["", "rank correlations", *lines] if lines else []


def _point(outcome: Outcome, run: int) -> str:
    point = outcome.point(run)
    if len(point) > FEW:
        return f"run {run}"
    return ", ".join(f"{name}={value:.6g}" for name, value in point.items())
