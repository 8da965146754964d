"""Charts as plain data for plotly: poles, the front of masters, growth over the macro step, maps of a parameter.

Colours can be told apart by everybody and seen on white and on black, always with a sign or a dash beside.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.formatting import MOST_ROBUST, cost_text, percent, robustness_text, step_text
from cosimo.reporting.pictures import OBJECTIVES

if TYPE_CHECKING:
    from cosimo.reporting.report.step_sweeps import RadiusCurve
    from cosimo.tuning import Point, Tuned

BLUE, ORANGE, GREEN, PURPLE = "#2b7bcb", "#d65f0e", "#12936b", "#b0579b"
GREY, GOLD, CYAN, INK = "#858c96", "#b08400", "#2397a8", "#1c2430"
LINES = (BLUE, ORANGE, GREEN, PURPLE, GOLD, CYAN)
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon")
ROLES = {
    "given": (ORANGE, "solid"),
    "recommended": (GREEN, "dash"),
    "nearest": (GREEN, "dash"),
    "compensated": (BLUE, "dashdot"),
    "reference": (GREY, "solid"),
}
"""Colour and dash of runs by what they are there for."""


Figure = dict[str, Any]
SHADE = "rgba(214, 95, 14, 0.09)"
"""Where things are unstable."""


def listed(values: Array) -> list[float | None]:
    """Plain numbers."""
    return [finite(value) for value in np.asarray(values, dtype=float).tolist()]


def finite(value: float) -> float | None:
    """A number, or a gap."""
    return float(value) if math.isfinite(value) else None


def plain(text: str) -> str:
    """Text that the drawing library takes as it is: it would read tags and placeholders."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("%{", "% {")


def scatter(name: str, mode: str, x: Sequence[float | None], y: Sequence[Any], **more: Any) -> dict[str, Any]:
    """A line, or points."""
    return {"type": "scatter", "mode": mode, "name": name, "x": x, "y": y, **more}


def axis(title: str, kind: str = "linear", **more: Any) -> dict[str, Any]:
    """An axis with its title."""
    return {"title": {"text": title}, "type": kind, **more}


def shade(**place: Any) -> dict[str, Any]:
    """The region where things are unstable."""
    return {"type": "rect", "fillcolor": SHADE, "line": {"width": 0}, "layer": "below", **place}


def note(text: str, **place: Any) -> dict[str, Any]:
    """A word in a figure."""
    return {"text": text, "showarrow": False, "font": {"size": 11}, "yanchor": "top", **place}


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
        hover = "mode %{customdata}<br>%{x:.6g} ± %{y:.6g} j<extra>" + name + "</extra>"
        marker = {"symbol": symbol, "color": colour, "size": size, "line": {"width": line, "color": colour}}
        x, y = [finite(value.real) for value in values], [finite(abs(value.imag)) for value in values]
        numbers = list(range(1, len(values) + 1))
        data.append(scatter(name, "markers", x, y, customdata=numbers, marker=marker, hovertemplate=hover))
    every = [v for values in modes.values() for v in values if math.isfinite(v.real) and math.isfinite(v.imag)]
    low, high = min([0.0, *(v.real for v in every)]), max([0.0, *(v.real for v in every)])
    room = 0.12 * (high - low) or 1.0
    top = max([1e-12, *(abs(v.imag) for v in every)])
    layout = {
        "xaxis": axis("real part / s⁻¹", range=[low - room, high + room], zeroline=True),
        "yaxis": axis("imaginary part / rad s⁻¹", range=[-0.06 * top, 1.12 * top]),
        "shapes": [shade(x0=0, x1=high + 100 * room, y0=0, y1=1, yref="paper")],
        "annotations": [note("grows →", x=0, y=1, xanchor="left", yref="paper", xshift=6)],
        "hovermode": "closest",
    }
    return {"data": data, "layout": layout, "kind": "poles", "label": "Poles in the complex plane"}


def front(tuned: Tuned) -> Figure:
    """The first goal over the last; the sign says the family of masters; point n is row n of the table."""
    first, last = tuned.goals[0], tuned.goals[-1]
    families: dict[str, list[int]] = {}
    for number, point in enumerate(tuned.front):
        families.setdefault(point.master.name.partition("(")[0], []).append(number)
    data: list[dict[str, Any]] = []
    for place, (family, numbers) in enumerate(families.items()):
        points = [tuned.front[number] for number in numbers]
        marker = {"symbol": SYMBOLS[place % len(SYMBOLS)], "color": LINES[place % len(LINES)], "size": 10}
        hover = {"hovertext": [_details(point) for point in points], "hoverinfo": "text"}
        x, y = ([_goal(point, goal.name) for point in points] for goal in (last, first))
        data.append(scatter(family, "markers", x, y, customdata=numbers, marker=marker, **hover))
    ring = {"symbol": "circle-open", "size": 22, "color": PURPLE, "line": {"width": 2.5, "color": PURPLE}}
    x, y = ([_goal(tuned.chosen, goal.name)] for goal in (last, first))
    data.append(scatter("recommended", "markers", x, y, marker=ring, hoverinfo="skip"))
    layout: dict[str, Any] = {
        f"{letter}axis": axis(OBJECTIVES[goal.name], "log" if goal.logarithmic else "linear")
        for letter, goal in (("x", last), ("y", first))
    }
    if first.name == "error":
        layout["yaxis"]["tickformat"] = "~%"
    layout |= {"hovermode": "closest", "height": 400}
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
    green, dashed = {"color": GREEN, "width": 2}, {"color": ORANGE, "width": 2, "dash": "dash"}
    critical = [finite(limit) or None for limit in limits]
    data = [
        scatter("critical step", "lines+markers", list(times), critical, line=green, marker={"size": 7}),
        scatter("macro step", "lines", [times[0], times[-1]], [step, step], line=dashed),
    ]
    layout = {"xaxis": axis("time / s"), "yaxis": axis("step / s", "log")}
    return {"data": data, "layout": layout, "kind": "along", "label": "Critical step along a run"}


def _goal(point: Point, name: str) -> float | None:
    value = float(getattr(point, name))
    return finite(min(value, MOST_ROBUST) if name == "robustness" else value)


# ---- over the macro step ---------------------------------------------------------------------------------------------


GROWTH, RADIUS = "growth rate / s⁻¹", "spectral radius ρ"


def steps(curves: Sequence[RadiusCurve], exact_growth: float) -> Figure:
    """Growth over the macro step for some masters, and below where each is stable; a point is where it stands now."""
    low, high = float(curves[0].steps[0]), float(curves[0].steps[-1])
    traces = [trace for number, curve in enumerate(curves) for trace in _curve(number, curve)]
    exact = {"line": {"color": GREY, "width": 1.5, "dash": "dot"}, "hoverinfo": "skip"}
    itself = scatter("the system itself", "lines", [low, high], [exact_growth] * 2, **exact)
    traces.append((itself, [math.exp(exact_growth * h) for h in (low, high)]))
    span = _span([curve.growth for curve in curves], [c.now for c in curves if c.now], exact_growth)
    names = [curve.name for curve in curves]
    layout = {
        "xaxis": axis("macro step / s", "log", anchor="y2", range=[math.log10(low), math.log10(high)]),
        "yaxis": axis(GROWTH, domain=[0.36, 1.0], range=[-span, span], zeroline=True),
        "yaxis2": {
            "domain": [0.0, 0.24],
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names[::-1],
            "range": [-0.6, len(names) - 0.4],
            "showgrid": False,
        },
        "shapes": [shade(x0=0, x1=1, xref="paper", y0=0, y1=1e3 * span)],
        "annotations": [
            note("unstable", x=0, xref="paper", y=0, yref="y", xanchor="left", yanchor="bottom"),
            note("where it is stable", x=0, xref="paper", y=0.255, yref="paper", xanchor="left", yanchor="bottom"),
        ],
        "height": 470,
    }
    growth, radius = _view(GROWTH, [-span, span], 0, 1e3 * span), _view(RADIUS, [0.9, 1.1], 1, 100)
    choices = [
        {"name": "growth rate", "y": [trace["y"] for trace, _ in traces], "layout": growth},
        {"name": "spectral radius", "y": [radii for _, radii in traces], "layout": radius},
    ]
    data = [trace for trace, _ in traces]
    return {"data": data, "layout": layout, "views": choices, "kind": "steps", "label": "Stability over the macro step"}


def _curve(number: int, curve: RadiusCurve) -> Iterator[tuple[dict[str, Any], list[Any]]]:
    """The traces of one master with y as growth, and y as spectral radius instead."""
    colour, dash, group = LINES[number % len(LINES)], DASHES[number % len(DASHES)], {"legendgroup": curve.name}
    line = {"color": colour, "dash": dash, "width": 2}
    hover = "%{x:.4g} s: %{y:.6g}<extra>" + plain(curve.name) + "</extra>"
    x, growth, radii = (listed(values) for values in (curve.steps, curve.growth, curve.radii))
    yield scatter(curve.name, "lines", x, growth, line=line, hovertemplate=hover, **group), radii
    beside = {"showlegend": False, "hoverinfo": "text", **group}
    below = {"yaxis": "y2", **beside}
    for begin, end in curve.stable_ranges():
        text, flat = f"stable from {step_text(begin)} to {step_text(end)}", [curve.name, curve.name]
        bar = {"line": {"color": colour, "width": 9}, "hovertext": text}
        yield scatter(curve.name, "lines", [begin, end], flat, **bar, **below), flat
    if curve.now is not None:
        h, rho = curve.now
        edge = {"width": 2, "color": "white"}
        ring = {"symbol": SYMBOLS[number % len(SYMBOLS)], "size": 12, "color": colour, "line": edge}
        here = {"marker": ring, "hovertext": f"{curve.name} at {step_text(h)}: ρ = {rho:.9f}"}
        yield scatter(curve.name, "markers", [h], [math.log(rho) / h if rho > 0 else None], **here, **beside), [rho]
        yield scatter(curve.name, "markers", [h], [curve.name], **here, **below), [curve.name]


def _view(title: str, span: list[float], edge: float, top: float) -> dict[str, Any]:
    """What of the layout changes between growth rate and spectral radius."""
    changed = {"yaxis.title.text": title, "yaxis.range": span, "shapes[0].y0": edge, "shapes[0].y1": top}
    return {**changed, "annotations[0].y": edge}


def parameter_map(
    name: str, values: Array, steps_: Array, radii: Array, now: tuple[float, float] | None, log: bool
) -> Figure:
    """ρ over the macro step and a parameter; the thick line is ρ = 1."""
    excess = radii - 1
    # Decades away from 1, with their sign: radii of all sizes can be told apart.
    shown = np.sign(excess) * np.log10(1 + np.abs(excess) / 1e-6)
    ticks = {"tickvals": [-5, -3, 0, 3, 5], "ticktext": ["−0.1", "−0.001", "0", "0.001", "0.1"]}
    contour = {"type": "contour", "x": listed(steps_), "y": listed(values)}
    data: list[dict[str, Any]] = [
        {
            **contour,
            "z": [listed(row) for row in shown],
            "text": [[f"{rho:.7f}" for rho in row] for row in radii],
            "zmin": -5,
            "zmax": 5,
            "colorscale": [[0, BLUE], [0.5, "#f4f4f2"], [1, ORANGE]],
            "contours": {"start": -5, "end": 5, "size": 0.5},
            "line": {"width": 0},
            "hovertemplate": "macro step %{x:.4g} s<br>" + plain(name) + " %{y:.4g}<br>ρ = %{text}<extra></extra>",
            "colorbar": {"title": {"text": "ρ − 1"}, "thickness": 12, "outlinewidth": 0, **ticks},
        },
        {
            **contour,
            "z": [listed(row) for row in np.log(radii) / steps_],
            "contours": {"type": "constraint", "operation": "=", "value": 0},
            "line": {"width": 3, "color": INK},
            "showlegend": False,
            "showscale": False,
            "hoverinfo": "skip",
        },
    ]
    if now is not None:
        star = {"symbol": "star", "size": 15, "color": INK, "line": {"width": 1.5, "color": "white"}}
        hover = {"hoverinfo": "text", "hovertext": f"now: {step_text(now[0])}, {name} = {now[1]:g}"}
        data.append(scatter("now", "markers", [now[0]], [now[1]], marker=star, showlegend=False, **hover))
    layout = {
        "xaxis": axis("macro step / s", "log"),
        "yaxis": axis(name, "log" if log else "linear"),
        "height": 400,
        "hovermode": "closest",
    }
    return {"data": data, "layout": layout, "kind": "map", "label": f"Stability over the macro step and {name}"}


def _span(growths: Sequence[Array], now: Sequence[tuple[float, float]], exact: float) -> float:
    """The growth rates that are worth seeing: some times those of now and of the system itself."""
    here = [abs(math.log(rho) / h) for h, rho in now if rho > 0]
    least = [float(np.nanmin(np.abs(growth[np.isfinite(growth)]), initial=np.inf)) for growth in growths]
    size = max([abs(exact), *here])
    return 4 * (size if size > 0 else max([1e-9, *(value for value in least if math.isfinite(value))]))
