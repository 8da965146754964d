"""How results show themselves in notebooks: one small HTML table, without scripts, in the colours of the page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.decimation import decimate

if TYPE_CHECKING:
    from cosimo.core.result import Result

SHOWN = 12
"""Rows of a table; the rest is counted."""
_MARKS = {"good": ("✓", "#12805c"), "bad": ("✕", "#c8500a"), "open": ("?", "#6b7280")}


@dataclass(frozen=True)
class Html:
    """Text that is already HTML, as a cell of a table."""

    text: str


Cell = str | Html


def card(
    title: str,
    mark: tuple[str, str],
    facts: Iterable[tuple[str, str]] = (),
    head: Sequence[str] = (),
    rows: Sequence[Sequence[Cell]] = (),
) -> str:
    """A title with a verdict, facts below each other, and a table; `mark` is ("good" | "bad" | "open", word)."""
    kind, word = mark
    sign, colour = _MARKS[kind]
    verdict = f'<span style="color:{colour};font-weight:600">{sign} {escape(word)}</span>' if word else ""
    parts = [f'<div style="margin:.3em 0"><strong>{escape(title)}</strong> {verdict}</div>']
    lines = "".join(f"<tr>{_cell(name, 'left', 0.65)}{_cell(text, 'left')}</tr>" for name, text in facts)
    if lines:
        parts.append(f'<table style="margin:.3em 0">{lines}</table>')
    if rows:
        top = "".join(f'<th style="text-align:{_side(place)}">{escape(name)}</th>' for place, name in enumerate(head))
        body = "".join(
            f"<tr>{''.join(_cell(cell, _side(place)) for place, cell in enumerate(row))}</tr>" for row in rows[:SHOWN]
        )
        parts.append(f'<table style="margin:.3em 0"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>')
    if len(rows) > SHOWN:
        parts.append(f'<div style="opacity:.65">… {len(rows) - SHOWN} more</div>')
    return f'<div class="cosimo">{"".join(parts)}</div>'


def sparkline(values: Array, *, width: int = 150, height: int = 26) -> Html:
    """A signal as a small drawing, with its extremes where they are; gaps where it is not finite."""
    places = decimate(values, width)
    shown, low, high = values[places], np.nan, np.nan
    finite = np.isfinite(shown)
    if not finite.any():
        return Html("–")
    low, high = float(shown[finite].min()), float(shown[finite].max())
    # Halves first: the range of a signal that blew up may not be a number itself.
    span = high / 2 - low / 2 or 1.0
    x = places / max(1, len(values) - 1) * width
    y = height - 1 - (shown / 2 - low / 2) / span * (height - 2)
    path, pen = [], "M"
    for ok, across, down in zip(finite.tolist(), x.tolist(), y.tolist(), strict=True):
        if ok:
            path.append(f"{pen}{across:.1f},{down:.1f}")
        pen = "L" if ok else "M"
    return Html(
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="over time">'
        f'<path d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="1"/></svg>'
    )


def result_card(result: Result) -> str:
    """A run: warnings, and one row per signal with its range and its course."""
    warned = [("warning", str(entry)) for entry in result.warnings]
    info = [(name, str(result.info[name])) for name in ("system", "master") if name in result.info]
    rows: list[list[Cell]] = []
    for name in result.names[: SHOWN + 1]:
        values = result[name]
        finite = values[np.isfinite(values)]
        ends = (finite.min(), finite.max(), values[-1]) if len(finite) else (np.nan, np.nan, np.nan)
        rows.append([name, *(f"{value:.5g}" for value in ends), sparkline(values)])
    rows += [[name] for name in result.names[SHOWN + 1 :]]  # beyond what is shown, they are only counted
    state = ("good", "complete") if result.complete else ("bad", "incomplete")
    return card(repr(result), state, [*info, *warned], ("signal", "least", "largest", "last", "course"), rows)


def share(value: float) -> str:
    """A part of something, or how many times it.

    >>> share(0.0123), share(-5.61), share(250.0), share(np.inf)
    ('1.23 %', '-561 %', '2.5e+02 ×', 'unbounded')
    """
    if np.isnan(value):
        return "unknown"
    if np.isinf(value):
        return "unbounded"
    return f"{value:.1e} ×" if abs(value) >= 10 else f"{100 * value:.3g} %"


def _cell(content: Cell, side: str, opacity: float = 1.0) -> str:
    text = content.text if isinstance(content, Html) else escape(content)
    return f'<td style="text-align:{side};opacity:{opacity:g}">{text}</td>'


def _side(place: int) -> str:
    return "right" if place else "left"
