"""How the result of a run shows itself in notebooks: one small HTML table without scripts."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.decimation import decimate
from cosimo.core.document import CARD_ROWS, COLOURS, SIGNS, Mark

if TYPE_CHECKING:
    from cosimo.core.result import Result


def result_card(result: Result) -> str:
    """A run: whether it is complete, its warnings, and one row per signal with its range and its course."""
    mark: Mark = "open" if result.complete else "bad"
    word = "complete" if result.complete else f"{SIGNS[mark]} incomplete"
    named = [name for name in ("system", "master") if name in result.info]
    facts: list[tuple[str, str]] = [(name, str(result.info[name])) for name in named]
    facts += [("warning", str(entry)) for entry in result.warnings]
    lines = "".join(
        f"<tr>{_cell(escape(name), 'left', 0.65)}{_cell(escape(text), 'left')}</tr>" for name, text in facts
    )
    top = "".join(
        f'<th style="text-align:{side}">{name}</th>'
        for name, side in zip(("signal", "least", "largest", "last", "course"), _SIDES, strict=True)
    )
    rows = "".join(f"<tr>{_signal(name, result[name])}</tr>" for name in result.names[:CARD_ROWS])
    left = len(result.names) - CARD_ROWS
    return (
        f'<div class="cosimo"><div style="margin:.3em 0"><strong>{escape(repr(result))}</strong> '
        f'<span style="color:{COLOURS[mark]};font-weight:600">{word}</span></div>'
        + (f'<table style="margin:.3em 0">{lines}</table>' if lines else "")
        + f'<table style="margin:.3em 0"><thead><tr>{top}</tr></thead><tbody>{rows}</tbody></table>'
        + (f'<div style="opacity:.65">… {left} more</div>' if left > 0 else "")
        + "</div>"
    )


def sparkline(values: Array, *, width: int = 150, height: int = 26) -> str:
    """A signal as a small drawing, with its extremes where they are; gaps where it is not finite."""
    places = decimate(values, width)
    shown, low, high = values[places], np.nan, np.nan
    finite = np.isfinite(shown)
    if not finite.any():
        return "–"
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
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="over time">'
        f'<path d="{"".join(path)}" fill="none" stroke="currentColor" stroke-width="1"/></svg>'
    )


_SIDES = ("left", "right", "right", "right", "right")


def _signal(name: str, values: Array) -> str:
    finite = values[np.isfinite(values)]
    ends = (finite.min(), finite.max(), values[-1]) if len(finite) else (np.nan, np.nan, np.nan)
    cells = (escape(name), *(f"{value:.5g}" for value in ends), sparkline(values))
    return "".join(_cell(cell, side) for cell, side in zip(cells, _SIDES, strict=True))


def _cell(content: str, side: str, opacity: float = 1.0) -> str:
    return f'<td style="text-align:{side};opacity:{opacity:g}">{content}</td>'
