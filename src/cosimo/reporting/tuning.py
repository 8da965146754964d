"""What `cosimo tune` shows: a bar while it searches, the front, predicted beside measured, and a picture."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.analysis.pilots import Standing as Pilots
from cosimo.core.errors import OutputError
from cosimo.core.formatting import step_text
from cosimo.papers.figures.style import BLUE, DOTS_PER_INCH, VERMILION, look, panels, require
from cosimo.tuning import Progress as Standing
from cosimo.tuning import Tuned
from cosimo.tuning.goals import MOST_ROBUST
from cosimo.tuning.search import Report

LABELS = {
    "error": "error of the worst output",
    "robustness": "change that rates and gains may have",
    "cost": "cost per simulated second",
    "radius": "spectral radius ρ",
    "defect": "consistency δ",
}


@contextmanager
def progress_bar(evaluations: int, *, shown: bool) -> Iterator[Report | None]:
    """A bar on standard error with the hypervolume of the front so far, or the budget that pilot runs have used;
    nothing where that is no terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from cosimo.reporting.terminal_progress import PilotProgress

    columns = (
        TextColumn("{task.description:8}"),
        BarColumn(),
        TextColumn("{task.fields[done]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("grid", total=evaluations, done="")
        pilots = PilotProgress()

        def report(now: Standing | Pilots) -> None:
            if isinstance(now, Pilots):
                pilots(now)
                bar.update(task, description="pilots", completed=now.seconds, total=pilots.allowed, done=pilots.line())
                return
            done = f"{now.evaluations}/{evaluations} front {now.front}, hypervolume {now.hypervolume:.4f}"
            bar.update(task, description=now.stage, completed=now.evaluations, total=evaluations, done=done)

        yield report


def draw_front(tuned: Tuned, path: Path) -> Path:
    """The first goal against the last; the colour is the one in between; a ring marks the recommended point."""
    require()
    first, last = tuned.goals[0], tuned.goals[-1]
    with look():
        figure, (axes,) = panels(1, 1, size=(7.2, 4.4))

        def values(name: str) -> Any:
            found = [getattr(point, name) for point in tuned.front]
            return np.minimum(found, MOST_ROBUST) if name == "robustness" else np.array(found)

        x, y = values(last.name), values(first.name)
        if len(tuned.goals) > 2:
            middle = tuned.goals[1]
            shown = axes.scatter(x, y, c=values(middle.name), cmap="viridis", s=36, zorder=3)
            bar = figure.colorbar(shown, ax=axes, label=LABELS[middle.name])
            if middle.name == "robustness":
                bar.ax.yaxis.set_major_formatter(lambda value, _: f"± {value:.0%}")
        else:
            axes.scatter(x, y, color=BLUE, s=36, zorder=3)
        x_chosen, y_chosen = ([getattr(tuned.chosen, goal.name)] for goal in (last, first))
        ring: dict[str, Any] = {"facecolors": "none", "edgecolors": VERMILION, "linewidths": 1.8}
        axes.scatter(x_chosen, y_chosen, s=160, zorder=4, label="recommended", **ring)
        axes.legend(loc="best")
        axes.set(xlabel=LABELS[last.name], ylabel=LABELS[first.name])
        axes.set(xscale="log" if last.logarithmic else "linear", yscale="log" if first.logarithmic else "linear")
        axes.set_title(f"{tuned.system}: {tuned.chosen.words} at {step_text(tuned.chosen.step)}", fontsize=9, wrap=True)
        try:
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None} if path.suffix == ".png" else None)
        except (OSError, ValueError) as error:
            raise OutputError(f"cannot write '{path}': {error}; choose another file, such as front.png.") from None
    return path
