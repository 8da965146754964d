"""Figures as plain data for the drawing library: poles, the front of masters, moments of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cosimo.core.formatting import MOST_ROBUST, cost_text, percent, robustness_text, step_text
from cosimo.reporting.report.colours import BLUE, GREEN, GREY, LINES, ORANGE, PURPLE, SYMBOLS
from cosimo.reporting.report.drawing import Figure, finite, note, plain, shade
from cosimo.tuning import Point, Tuned

POLES = {
    "monolithic": ("circle-open", GREY, 13, 2),
    "co-simulated": ("x-thin-open", ORANGE, 10, 2.5),
    "compensated": ("cross-thin-open", BLUE, 12, 2.5),
}


def poles(modes: Mapping[str, Sequence[complex]]) -> Figure:
    """The upper half of the plane of poles; point n of every kind is mode n of the table."""
    data = []
    for name, values in modes.items():
        symbol, colour, size, line = POLES[name]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "x": [finite(value.real) for value in values],
                "y": [finite(abs(value.imag)) for value in values],
                "customdata": [number + 1 for number in range(len(values))],
                "marker": {"symbol": symbol, "color": colour, "size": size, "line": {"width": line, "color": colour}},
                "hovertemplate": "mode %{customdata}<br>%{x:.6g} ± %{y:.6g} j<extra>" + name + "</extra>",
            }
        )
    every = [v for values in modes.values() for v in values if math.isfinite(v.real) and math.isfinite(v.imag)]
    low, high = min([0.0, *(v.real for v in every)]), max([0.0, *(v.real for v in every)])
    room = 0.12 * (high - low) or 1.0
    top = max([1e-12, *(abs(v.imag) for v in every)])
    layout = {
        "xaxis": {"title": {"text": "real part / s⁻¹"}, "range": [low - room, high + room], "zeroline": True},
        "yaxis": {"title": {"text": "imaginary part / rad s⁻¹"}, "range": [-0.06 * top, 1.12 * top]},
        "shapes": [shade(x0=0, x1=high + 100 * room, y0=0, y1=1, yref="paper")],
        "annotations": [note("grows →", x=0, y=1, xanchor="left", yref="paper", xshift=6)],
        "hovermode": "closest",
    }
    return {"data": data, "layout": layout, "kind": "poles", "label": "Poles in the complex plane"}


TITLES = {
    "error": "error of the worst output",
    "robustness": "change that rates and gains may have",
    "cost": "cost per simulated second",
    "radius": "spectral radius ρ",
    "defect": "consistency δ",
}


def front(tuned: Tuned) -> Figure:
    """The first goal over the last; the sign says the family of masters; point n is row n of the table."""
    first, last = tuned.goals[0], tuned.goals[-1]
    families: dict[str, list[int]] = {}
    for number, point in enumerate(tuned.front):
        families.setdefault(point.master.name.partition("(")[0], []).append(number)
    data: list[dict[str, Any]] = []
    for place, (family, numbers) in enumerate(families.items()):
        points = [tuned.front[number] for number in numbers]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": family,
                "x": [_goal(point, last.name) for point in points],
                "y": [_goal(point, first.name) for point in points],
                "customdata": numbers,
                "hovertext": [_details(point) for point in points],
                "hoverinfo": "text",
                "marker": {"symbol": SYMBOLS[place % len(SYMBOLS)], "color": LINES[place % len(LINES)], "size": 10},
            }
        )
    ring = {"symbol": "circle-open", "size": 22, "color": PURPLE, "line": {"width": 2.5, "color": PURPLE}}
    data.append(
        {
            "type": "scatter",
            "mode": "markers",
            "name": "recommended",
            "x": [_goal(tuned.chosen, last.name)],
            "y": [_goal(tuned.chosen, first.name)],
            "marker": ring,
            "hoverinfo": "skip",
        }
    )
    layout: dict[str, Any] = {
        "xaxis": {"type": "log" if last.logarithmic else "linear", "title": {"text": TITLES[last.name]}},
        "yaxis": {"type": "log" if first.logarithmic else "linear", "title": {"text": TITLES[first.name]}},
        "hovermode": "closest",
        "height": 400,
    }
    if first.name == "error":
        layout["yaxis"]["tickformat"] = "~%"
    return {"data": data, "layout": layout, "kind": "front", "label": "Front of masters"}


def _details(point: Point) -> str:
    rows = [f"<b>{plain(point.words)}</b>", f"macro step {step_text(point.step)}"]
    if not math.isnan(point.error):
        rows.append(f"error {percent(point.error)}")
    if not math.isnan(point.robustness):
        rows.append(f"stable for changes of {robustness_text(point.robustness)}")
    if not math.isnan(point.cost):
        rows.append(f"cost {cost_text(point.cost)} per simulated second")
    if not math.isnan(point.radius):
        rows.append(f"ρ = {point.radius:.6f}")
    return "<br>".join(rows)


def along(times: Sequence[float], limits: Sequence[float], step: float) -> Figure:
    """Critical steps at the times of a reference run, and the macro step beside them."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": "critical step",
            "x": list(times),
            "y": [finite(limit) or None for limit in limits],
            "line": {"color": GREEN, "width": 2},
            "marker": {"size": 7},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "macro step",
            "x": [times[0], times[-1]],
            "y": [step, step],
            "line": {"color": ORANGE, "width": 2, "dash": "dash"},
        },
    ]
    layout = {"xaxis": {"title": {"text": "time / s"}}, "yaxis": {"type": "log", "title": {"text": "step / s"}}}
    return {"data": data, "layout": layout, "kind": "along", "label": "Critical step along a run"}


def _goal(point: Point, name: str) -> float | None:
    value = float(getattr(point, name))
    return finite(min(value, MOST_ROBUST) if name == "robustness" else value)
