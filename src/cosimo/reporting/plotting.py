"""Quick figures of results for `cosimo plot`: which signals of which runs, in the terminal or in a file.

In the terminal a curve is drawn on a grid of braille characters, each two points wide and four high. A point (x, y) of
a canvas of c columns and r rows lies at

    i = round((x − x0) / (x1 − x0) · (2 c − 1)),        j = round((y1 − y) / (y1 − y0) · (4 r − 1))

and neighbouring points are joined by lines. Of long runs the smallest and the largest value of every stretch are drawn,
so that no peak is lost.
"""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.document import Column, DocumentTable, colourful, paint, table_lines
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import counted
from cosimo.core.result import Result, decimate, draw_by_unit, stairs
from cosimo.core.storage import writing
from cosimo.execution.recording import choose

DRAWN = (".png", ".svg", ".pdf")
"""Figure files that matplotlib draws; `.html` is made with plotly."""
POINTS = 4000
"""Points per curve in a page: two per column of a wide screen."""
ROWS, LOW = 16, 8
"""Rows of a plot in the terminal, alone and where there are several."""
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")
"""Of the curves in the terminal, in turn."""


@dataclass(frozen=True)
class Curve:
    """One signal of one run: x (K,) increasing, y (K,), in the physical `unit` where that is known.

    Of a `held` input y_k is what acted from x_(k−1) to x_k.
    """

    name: str
    x: Array
    y: Array
    unit: str = ""
    held: bool = False

    @property
    def title(self) -> str:
        """The name with the unit."""
        return f"{self.name} / {self.unit}" if self.unit else self.name

    def thinned(self, points: int) -> tuple[Array, Array]:
        """At most about `points` of the rows: of every stretch its smallest and its largest value; short ones whole."""
        places = decimate(self.y, points // 2)
        if self.held and len(places) == len(self.y):
            return stairs(self.x, self.y)
        return self.x[places], self.y[places]


def gather(results: dict[str, Result], patterns: Sequence[str], span: tuple[float | None, float | None]) -> list[Curve]:
    """The signals that match, of every result; with several results, each curve names its own.

    A pattern must match in at least one result; otherwise the nearest name is suggested.
    """
    known = list(dict.fromkeys(name for result in results.values() for name in result.names))
    for pattern in patterns:
        try:
            choose(known, [pattern])
        except UnknownNameError:
            raise UnknownNameError("signal", pattern, known) from None
    wanted = [known[place] for place in choose(known, patterns)]
    begin, end = (limit if limit is not None else sign * math.inf for limit, sign in zip(span, (-1, 1), strict=True))
    curves = []
    for label, result in results.items():
        keep = (result.time >= begin) & (result.time <= end)
        if not keep.any():
            held = f"from {result.time[0]:g} s to {result.time[-1]:g} s" if len(result) else "no time at all"
            raise ConfigurationError(f"'{label}' has no rows in the chosen time range; it covers {held}.")
        for name in wanted:
            if name in result.names:
                shown = name if len(results) == 1 else f"{name} ({label})"
                unit = result.physical_units.get(name, "")
                stepwise = name in result.held_inputs
                curves.append(Curve(shown, result.time[keep], result[name][keep], unit, stepwise))
    return curves


# ---- numbers ---------------------------------------------------------------------------------------------------------


def curve_fields(curve: Curve) -> dict[str, Any]:
    """One entry of `curves` in `plot --json`, and one row of the table below a plot."""
    finite = curve.y[np.isfinite(curve.y)]
    numbers = (finite[0], finite[-1], finite.min(), finite.max()) if len(finite) else (None,) * 4
    names = ("first", "last", "smallest", "largest")
    values = {name: None if value is None else float(value) for name, value in zip(names, numbers, strict=True)}
    return {"signal": curve.name, "rows": len(curve.x), "unit": curve.unit or None, **values}


def _table(curves: Sequence[Curve]) -> list[str]:
    def show(value: float | None) -> str:
        return "–" if value is None else f"{value:.6g}"

    columns = [Column(name, name, show) for name in ("first", "last", "smallest", "largest")]
    rows = [curve_fields(curve) for curve in curves]
    if any(curve.unit for curve in curves):
        columns.append(Column("unit", "unit", lambda unit: unit or "", False))
    return table_lines(DocumentTable("", "", (Column("signal", "signal", str, False), *columns), rows, most=len(rows)))


def signals_text(results: dict[str, Result]) -> str:
    """What the results hold, as a table."""
    lines: list[str] = []
    for label, result in results.items():
        end = f" from {result.time[0]:g} s to {result.time[-1]:g} s" if len(result) else ""
        state = "" if result.complete else ", incomplete"
        lines.append(f"{label}: {counted(len(result), 'row')}{end}, {counted(len(result.names), 'signal')}{state}")
        units = result.physical_units
        lines += _table([Curve(name, result.time, result[name], units.get(name, "")) for name in result.names])
    return "\n".join(lines)


# ---- files -----------------------------------------------------------------------------------------------------------


def draw_figure(curves: Sequence[Curve], path: Path, title: str) -> Path:
    """Write the curves to a file: an image, or a page that can be zoomed."""
    suffix = path.suffix.lower()
    if suffix == ".html":
        return _write_page(curves, path, title)
    if suffix not in DRAWN:
        raise ConfigurationError(f"'{path}' is not a figure format; use {', '.join((*DRAWN, '.html'))}.")
    from cosimo.reporting import pictures

    pictures.require()
    with pictures.look():
        figure = draw_by_unit((curve.name, curve.unit, *curve.thinned(POINTS)) for curve in curves)
        figure.axes[0].set_title(title)
        pictures.write(figure, path, "choose another file")
    return path


def by_unit(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """The curves by their physical unit: each has an axis of its own."""
    found: dict[str, list[Curve]] = {}
    for curve in curves:
        found.setdefault(curve.unit, []).append(curve)
    return found


def _write_page(curves: Sequence[Curve], path: Path, title: str) -> Path:
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise ConfigurationError(f"'{path}' needs plotly; install it, or draw a .png instead.") from None
    figure = go.Figure(layout={"title": title, "xaxis_title": "time / s", "template": "plotly_white"})
    for curve in curves:
        x, y = curve.thinned(POINTS)
        figure.add_scatter(x=x, y=y, name=curve.title, mode="lines")
    with writing(path, "choose another file", what="the figure"):
        figure.write_html(path, include_plotlyjs=True)
    return path


# ---- terminal --------------------------------------------------------------------------------------------------------


def terminal_text(curves: Sequence[Curve], columns: int | None = None, *, table: bool = True) -> str:
    """One plot per physical unit where colours tell curves apart, else one per curve; a `table` underneath."""
    width = columns or min(shutil.get_terminal_size().columns, 160)
    if colourful(sys.stdout) and len(curves) <= len(COLOURS):
        together = list(by_unit(curves).values())
    else:
        together = [[curve] for curve in curves]
    parts = [plot_text(shown, width, ROWS if len(together) == 1 else LOW) for shown in together]
    return "\n".join([*parts, *(_table(curves) if table else ())])


@dataclass(frozen=True)
class Frame:
    """What is seen: x from x0 to x1, y from y0 to y1."""

    x0: float
    x1: float
    y0: float
    y1: float


def frame_of(curves: Sequence[Curve]) -> Frame:
    """The smallest frame around all that is finite; a constant gets some room above and below."""

    def ends(values: Array) -> tuple[float, float]:
        finite = values[np.isfinite(values)]
        if not len(finite):
            return 0.0, 1.0
        low, high = float(finite.min()), float(finite.max())
        # Closer than rounding is constant.
        room = (0.05 * abs(low) or 1.0) if high - low <= 1e-12 * max(abs(low), abs(high)) else 0.0
        return low - room, high + room

    x, y = (np.concatenate([getattr(curve, axis) for curve in curves]) for axis in "xy")
    return Frame(*ends(x), *ends(y))


class Canvas:
    """`columns` × `rows` characters; every character remembers the curve that was drawn there last."""

    _DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]], dtype=np.uint8)
    """The bit of each point of a character, by row and column."""

    def __init__(self, columns: int, rows: int, frame: Frame) -> None:
        self.columns, self.rows, self.frame = columns, rows, frame
        self._bits = np.zeros((rows, columns), dtype=np.uint8)
        self._owner = np.full((rows, columns), -1)

    def draw(self, curve: Curve, number: int = 0) -> None:
        """Set the points of a curve and the lines between them; what is not finite is left out."""
        frame = self.frame
        x, y = curve.thinned(8 * self.columns)
        seen = np.isfinite(x) & np.isfinite(y) & (x >= frame.x0) & (x <= frame.x1)
        if not seen.any():
            return
        i = (x[seen] - frame.x0) / (frame.x1 - frame.x0) * (2 * self.columns - 1)
        j = (frame.y1 - y[seen]) / (frame.y1 - frame.y0) * (4 * self.rows - 1)
        ends = np.rint(np.clip(np.column_stack([i, j]), 0, [2 * self.columns - 1, 4 * self.rows - 1]))
        moves = np.diff(ends, axis=0)
        counts = np.maximum(np.abs(moves).max(axis=1), 1).astype(int)
        line = np.repeat(np.arange(len(counts)), counts)
        share = (np.arange(len(line)) - np.repeat(np.cumsum(counts) - counts, counts)) / counts[line]
        points = np.vstack([np.rint(ends[line] + share[:, None] * moves[line]), ends[-1:]]).astype(int)
        place = points[:, 1] // 4, points[:, 0] // 2
        np.bitwise_or.at(self._bits, place, self._DOTS[points[:, 1] % 4, points[:, 0] % 2])
        self._owner[place] = number

    def lines(self) -> list[str]:
        """The characters, row after row, in the curves' colours where these are shown."""
        return ["".join(self._cell(row, column) for column in range(self.columns)) for row in range(self.rows)]

    def _cell(self, row: int, column: int) -> str:
        bits = int(self._bits[row, column])
        return paint(chr(0x2800 + bits), COLOURS[self._owner[row, column] % len(COLOURS)]) if bits else " "


def plot_text(curves: Sequence[Curve], columns: int = 80, rows: int = 16, x_label: str = "time / s") -> str:
    """The curves with axes and a legend, `columns` characters wide at most.

    >>> x = np.linspace(0.0, 1.0, 50)
    >>> print(plot_text([Curve("ramp", x, x)], columns=24, rows=3))
    ramp
    1 ┤             ⢀⣀⠤⠤⠒⠚⠉
      │      ⢀⣀⡠⠤⠒⠊⠉⠁
    0 ┤⣀⡤⠤⠒⠒⠉⠁
      └┬──────────────────┬
       0     time / s     1
    """
    frame = frame_of(curves)
    marks = _marks(frame.y0, frame.y1, rows)
    left = max(map(len, marks.values()))
    inner = max(10, columns - left - 3)
    canvas = Canvas(inner, rows, frame)
    for number, curve in enumerate(curves):
        canvas.draw(curve, number)
    lines = ["  ".join(paint(curve.title, COLOURS[number % len(COLOURS)]) for number, curve in enumerate(curves))]
    for row, text in enumerate(canvas.lines()):
        lines.append(f"{marks.get(row, ''):>{left}} {'┤' if row in marks else '│'}{text}".rstrip())
    lines.append(f"{'':{left}} └┬{'─' * (inner - 2)}┬")
    first, last = (number_text(value, frame.x1 - frame.x0) for value in (frame.x0, frame.x1))
    lines.append(f"{'':{left}}  {first}{x_label:^{max(0, inner - len(first) - len(last))}}{last}".rstrip())
    return "\n".join(lines)


def number_text(value: float, span: float) -> str:
    """With so many digits that values a hundredth of `span` apart differ.

    >>> number_text(1000.5, 2.0), number_text(0.0, 1.0), number_text(1.5e-7, 1e-6)
    ('1000.5', '0', '1.5e-07')
    """
    if value == 0.0 or span <= 0.0:
        return f"{value:g}"
    digits = max(2, 3 + math.floor(math.log10(max(abs(value), span))) - math.floor(math.log10(span)))
    return f"{value:.{min(digits, 15)}g}"


def _marks(low: float, high: float, rows: int) -> dict[int, str]:
    """Round numbers, by the row in which they lie."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span))
    marks: dict[int, str] = {}
    # From coarse to fine, until there are about as many as there is room for.
    for step in (factor * size for factor in (5, 2, 1, 0.5, 0.2, 0.1, 0.05)):
        if len(marks) >= max(2, rows // 4):
            break
        marks = {}
        for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
            row = round((high - place * step) / span * (4 * rows - 1)) // 4
            marks[min(max(row, 0), rows - 1)] = f"{place * step:.12g}" if place else "0"
    return marks
