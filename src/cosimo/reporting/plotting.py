"""Quick figures of results: which signals of which runs, in the terminal or in a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, OutputError, UnknownNameError
from cosimo.core.result import Result
from cosimo.execution.recording import choose
from cosimo.reporting.plotting_canvas import COLOURS, Curve, plot_text
from cosimo.reporting.terminal import colourful, table

DRAWN = (".png", ".svg", ".pdf")
"""Figure files that matplotlib draws; `.html` is made with plotly."""
POINTS = 4000
"""Points per curve in a page: two per column of a wide screen."""
ROWS, LOW = 16, 8
"""Rows of a plot in the terminal, alone and where there are several."""


@dataclass(frozen=True)
class Plotted:
    """The curves of a figure, and the names of the signals they show."""

    curves: tuple[Curve, ...]
    signals: tuple[str, ...]


def gather(results: dict[str, Result], patterns: Sequence[str], span: tuple[float | None, float | None]) -> Plotted:
    """The signals that match, of every result; with several results, each curve names its own.

    A pattern must match in at least one result; otherwise the nearest name is suggested.
    """
    known = list(dict.fromkeys(name for result in results.values() for name in result.names))
    try:
        wanted = [known[place] for place in choose(known, patterns)]
    except UnknownNameError:
        missing = next(p for p in patterns if not _matching(known, p))
        raise UnknownNameError("signal", missing, known) from None
    curves = []
    for label, result in results.items():
        begin, end = span
        keep = np.ones(len(result.time), dtype=bool)
        keep &= result.time >= begin if begin is not None else True
        keep &= result.time <= end if end is not None else True
        if not keep.any():
            held = f"from {result.time[0]:g} s to {result.time[-1]:g} s" if len(result) else "no time at all"
            raise ConfigurationError(f"'{label}' has no row in the chosen time; it holds {held}.")
        for name in wanted:
            if name in result.names:
                shown = name if len(results) == 1 else f"{name} ({label})"
                curves.append(Curve(shown, result.time[keep], result[name][keep]))
    return Plotted(tuple(curves), tuple(wanted))


def _matching(names: Sequence[str], pattern: str) -> bool:
    try:
        return bool(choose(names, [pattern]))
    except UnknownNameError:
        return False


def terminal_text(plotted: Plotted, columns: int | None = None) -> str:
    """All curves in one plot where colours tell them apart, else one below the other; numbers underneath."""
    import sys

    width = columns or min(shutil.get_terminal_size().columns, 160)
    together = len(plotted.curves) == 1 or (colourful(sys.stdout) and len(plotted.curves) <= len(COLOURS))
    if together:
        parts = [plot_text(plotted.curves, width, ROWS)]
    else:
        parts = [plot_text([curve], width, LOW) for curve in plotted.curves]
    return "\n".join([*parts, *table([_numbers(curve) for curve in plotted.curves], HEADER, numbers=(1, 2, 3, 4))])


HEADER = ("signal", "first", "last", "smallest", "largest")


def curve_fields(curve: Curve) -> dict[str, Any]:
    """One entry of `curves` in `plot --json`."""
    first, last, low, high = _extent(curve)
    return {
        "signal": curve.name,
        "rows": len(curve.x),
        "first": first,
        "last": last,
        "smallest": low,
        "largest": high,
    }


def signals_text(results: dict[str, Result]) -> str:
    """What the results hold, as a table."""
    lines: list[str] = []
    for label, result in results.items():
        end = f" from {result.time[0]:g} s to {result.time[-1]:g} s" if len(result) else ""
        state = "" if result.complete else ", incomplete"
        lines.append(f"{label}: {len(result)} rows{end}, {len(result.names)} signals{state}")
        rows = [_numbers(Curve(name, result.time, result[name])) for name in result.names]
        lines += [f"  {line}" for line in table(rows, HEADER, numbers=(1, 2, 3, 4))]
    return "\n".join(lines)


def _extent(curve: Curve) -> tuple[float | None, float | None, float | None, float | None]:
    finite = curve.y[np.isfinite(curve.y)]
    if not len(finite):
        return None, None, None, None
    return float(finite[0]), float(finite[-1]), float(finite.min()), float(finite.max())


def _numbers(curve: Curve) -> list[str]:
    return [curve.name, *("–" if value is None else f"{value:.6g}" for value in _extent(curve))]


def draw_figure(plotted: Plotted, path: Path, title: str) -> Path:
    """Write the curves to a file: an image, or a page that can be zoomed."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        return _write_page(plotted, path, title)
    if suffix not in DRAWN:
        raise ConfigurationError(f"'{path}' is no kind of figure; use {', '.join((*DRAWN, '.html'))}.")
    from cosimo.papers.figures.style import DOTS_PER_INCH, look, panels, require

    require()
    with look():
        figure, (axes,) = panels(1, 1, size=(7.6, 4.2))
        for curve in plotted.curves:
            axes.plot(*thinned(curve, POINTS), label=curve.name, linewidth=1.1)
        axes.set(xlabel="time / s", title=title)
        axes.legend(fontsize=8)
        try:
            figure.savefig(path, dpi=DOTS_PER_INCH, metadata={"Software": None} if suffix == ".png" else None)
        except OSError as error:
            raise OutputError(f"cannot write '{path}': {error.strerror or error}; choose another file.") from None
    return path


def _write_page(plotted: Plotted, path: Path, title: str) -> Path:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise ConfigurationError(f"'{path}' needs plotly; install it, or draw a .png instead.") from None
    figure = go.Figure(layout={"title": title, "xaxis_title": "time / s", "template": "plotly_white"})
    for curve in plotted.curves:
        x, y = thinned(curve, POINTS)
        figure.add_scatter(x=x, y=y, name=curve.name, mode="lines")
    try:
        figure.write_html(path, include_plotlyjs=True)
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror or error}; choose another file.") from None
    return path


def thinned(curve: Curve, points: int) -> tuple[Array, Array]:
    """At most `points` of the rows: of every stretch its smallest and its largest value, so that no peak is lost."""
    count = len(curve.x)
    if count <= points:
        return curve.x, curve.y
    chosen = sorted({0, count - 1, *_extremes(curve.y, np.linspace(0, count, points // 2, dtype=int)[:-1])})
    return curve.x[chosen], curve.y[chosen]


def _extremes(y: Array, starts: np.ndarray[Any, np.dtype[Any]]) -> Iterator[int]:
    for begin, end in zip(starts, [*starts[1:], len(y)], strict=True):
        part = y[begin:end]
        finite = np.flatnonzero(np.isfinite(part))
        if len(finite):
            yield int(begin + finite[part[finite].argmin()])
            yield int(begin + finite[part[finite].argmax()])
