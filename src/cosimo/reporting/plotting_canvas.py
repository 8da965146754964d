"""Curves in a terminal: a grid of braille characters, each two points wide and four high, with axes.

A point (x, y) of a canvas of c columns and r rows lies at

    i = round((x − x0) / (x1 − x0) · (2 c − 1)),        j = round((y1 − y) / (y1 − y0) · (4 r − 1))

Of the many rows of a run that fall on one column of points, the whole range from the smallest to the largest is set, so
that no peak is lost.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array
from cosimo.reporting.terminal import paint, width_of

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each point of a character, by row and column."""
COLOURS = ("cyan", "yellow", "magenta", "green", "red", "blue")
"""Of the curves, in turn."""


@dataclass(frozen=True)
class Curve:
    """One signal of one run: x (K,) increasing, y (K,)."""

    name: str
    x: Array
    y: Array


@dataclass(frozen=True)
class Frame:
    """What is seen: x from x0 to x1, y from y0 to y1."""

    x0: float
    x1: float
    y0: float
    y1: float


def frame_of(curves: Sequence[Curve]) -> Frame:
    """The smallest frame around all that is finite; a constant gets some room above and below."""

    def ends(parts: list[Array]) -> tuple[float, float]:
        finite = [part[np.isfinite(part)] for part in parts]
        known = [part for part in finite if len(part)]
        if not known:
            return 0.0, 1.0
        low, high = float(min(part.min() for part in known)), float(max(part.max() for part in known))
        if high - low <= 1e-12 * max(abs(low), abs(high)):
            room = 0.05 * abs(low) or 1.0
            low, high = low - room, high + room
        return low, high

    return Frame(*ends([curve.x for curve in curves]), *ends([curve.y for curve in curves]))


class Canvas:
    """`columns` × `rows` characters; every character remembers the curve that was drawn there last."""

    def __init__(self, columns: int, rows: int, frame: Frame) -> None:
        self.columns, self.rows, self.frame = columns, rows, frame
        self._bits = np.zeros((rows, columns), dtype=np.uint8)
        self._owner = np.full((rows, columns), -1)

    def draw(self, curve: Curve, number: int = 0) -> None:
        """Set the points of a curve; gaps where it is not finite."""
        keep = np.isfinite(curve.x) & np.isfinite(curve.y)
        i = self._places(curve.x[keep], self.frame.x0, self.frame.x1, 2 * self.columns)
        j = self._places(-curve.y[keep], -self.frame.y1, -self.frame.y0, 4 * self.rows)
        inside = (curve.x[keep] >= self.frame.x0) & (curve.x[keep] <= self.frame.x1)
        i, j = i[inside], j[inside]
        if not len(i):
            return
        starts = np.flatnonzero(np.diff(i, prepend=i[0] - 1))
        top, bottom = np.minimum.reduceat(j, starts), np.maximum.reduceat(j, starts)
        before: tuple[int, int] | None = None
        for column, high, low, first, last in zip(
            i[starts], top, bottom, j[starts], j[[*starts[1:] - 1, len(j) - 1]], strict=True
        ):
            if before is not None:
                self._line(before, (int(column), int(first)), number)
            for row in range(high, low + 1):
                self._set(int(column), row, number)
            before = int(column), int(last)

    def lines(self) -> list[str]:
        """The characters, row after row, in the curves' colours where these are shown."""
        return ["".join(self._cell(row, column) for column in range(self.columns)) for row in range(self.rows)]

    def _cell(self, row: int, column: int) -> str:
        bits = int(self._bits[row, column])
        return paint(chr(0x2800 + bits), COLOURS[self._owner[row, column] % len(COLOURS)]) if bits else " "

    @staticmethod
    def _places(values: Array, low: float, high: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        placed = np.rint((values - low) / (high - low) * (count - 1)).astype(np.int64)
        clipped: np.ndarray[tuple[int], np.dtype[np.int64]] = np.clip(placed, 0, count - 1)
        return clipped

    def _line(self, start: tuple[int, int], end: tuple[int, int], number: int) -> None:
        (i0, j0), (i1, j1) = start, end
        steps = max(abs(i1 - i0), abs(j1 - j0))
        for step in range(1, steps):
            self._set(i0 + round((i1 - i0) * step / steps), j0 + round((j1 - j0) * step / steps), number)

    def _set(self, i: int, j: int, number: int) -> None:
        self._bits[j // 4, i // 2] |= _DOTS[j % 4][i % 2]
        self._owner[j // 4, i // 2] = number


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
    left = max(width_of(text) for text in marks.values())
    inner = max(10, columns - left - 3)
    canvas = Canvas(inner, rows, frame)
    for number, curve in enumerate(curves):
        canvas.draw(curve, number)
    lines = [legend(curves)]
    for row, text in enumerate(canvas.lines()):
        lines.append(f"{marks.get(row, ''):>{left}} {'┤' if row in marks else '│'}{text}".rstrip())
    lines.append(f"{'':{left}} └┬{'─' * (inner - 2)}┬")
    first, last = number_text(frame.x0, frame.x1 - frame.x0), number_text(frame.x1, frame.x1 - frame.x0)
    middle = f"{x_label:^{max(0, inner - len(first) - len(last))}}"
    lines.append(f"{'':{left}}  {first}{middle}{last}".rstrip())
    return "\n".join(lines)


def legend(curves: Sequence[Curve]) -> str:
    """The names in the curves' colours."""
    return "  ".join(paint(curve.name, COLOURS[number % len(COLOURS)]) for number, curve in enumerate(curves))


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
    found: dict[int, str] = {}
    # From coarse to fine, until there are about as many as there is room for.
    for step in (factor * size for factor in (5, 2, 1, 0.5, 0.2, 0.1, 0.05)):
        if len(found) >= max(2, rows // 4):
            break
        found = {}
        for place in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1):
            row = round((high - place * step) / span * (4 * rows - 1)) // 4
            found[min(max(row, 0), rows - 1)] = f"{place * step:.12g}" if place else "0"
    return found
