"""Figures over the macro step: growth of some masters, and the spectral radius over a parameter as well."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.formatting import step_text
from cosimo.reporting.report.colours import DASHES, GREY, LINES, SYMBOLS
from cosimo.reporting.report.drawing import Figure, listed, note, plain, shade
from cosimo.reporting.report.masters import Curve


def steps(curves: Sequence[Curve], exact_growth: float) -> Figure:
    """Growth over the macro step for some masters, and below where each is stable; a point is where it stands now."""
    data: list[dict[str, Any]] = []
    views: dict[str, list[Any]] = {"growth rate": [], "spectral radius": []}
    names = [curve.name for curve in curves]
    low, high = float(curves[0].steps[0]), float(curves[0].steps[-1])

    def add(trace: dict[str, Any], growth: Any, radius: Any) -> None:
        data.append(trace | {"y": growth})
        views["growth rate"].append(growth)
        views["spectral radius"].append(radius)

    for number, curve in enumerate(curves):
        colour, dash = LINES[number % len(LINES)], DASHES[number % len(DASHES)]
        base = {"type": "scatter", "name": curve.name, "legendgroup": curve.name}
        line = {"mode": "lines", "line": {"color": colour, "dash": dash, "width": 2}}
        hover = {"hovertemplate": "%{x:.4g} s: %{y:.6g}<extra>" + plain(curve.name) + "</extra>"}
        growth, radius = listed(curve.growth), listed(curve.radii)
        add({**base, **line, **hover, "x": listed(curve.steps)}, growth, radius)
        for begin, end in curve.stable_ranges():
            bar = {"mode": "lines", "line": {"color": colour, "width": 9}, "showlegend": False, "yaxis": "y2"}
            text = f"stable from {step_text(begin)} to {step_text(end)}"
            flat = [curve.name, curve.name]
            add({**base, **bar, "x": [begin, end], "hoverinfo": "text", "hovertext": text}, flat, flat)
        if curve.now is not None:
            h, rho = curve.now
            ring = {
                "symbol": SYMBOLS[number % len(SYMBOLS)],
                "size": 12,
                "color": colour,
                "line": {"width": 2, "color": "white"},
            }
            point = {"mode": "markers", "marker": ring, "showlegend": False, "x": [h]}
            say = f"{curve.name} at {step_text(h)}: ρ = {rho:.9f}"
            add(
                {**base, **point, "hoverinfo": "text", "hovertext": say},
                [math.log(rho) / h if rho > 0 else None],
                [rho],
            )
            add({**base, **point, "yaxis": "y2", "hoverinfo": "text", "hovertext": say}, [curve.name], [curve.name])
    flat_growth, flat_radius = [exact_growth] * 2, [math.exp(exact_growth * h) for h in (low, high)]
    exact = {"type": "scatter", "mode": "lines", "name": "the system itself", "x": [low, high]}
    add({**exact, "line": {"color": GREY, "width": 1.5, "dash": "dot"}, "hoverinfo": "skip"}, flat_growth, flat_radius)
    span = _span([curve.growth for curve in curves], [c.now for c in curves if c.now], exact_growth)
    y = {"domain": [0.36, 1.0], "title": {"text": "growth rate / s⁻¹"}, "range": [-span, span], "zeroline": True}
    layout = {
        "xaxis": {
            "type": "log",
            "title": {"text": "macro step / s"},
            "anchor": "y2",
            "range": [math.log10(low), math.log10(high)],
        },
        "yaxis": y,
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
    radius_view = {
        "yaxis.title.text": "spectral radius ρ",
        "yaxis.range": [0.9, 1.1],
        "shapes[0].y0": 1,
        "shapes[0].y1": 100,
        "annotations[0].y": 1,
    }
    growth_view = {
        "yaxis.title.text": "growth rate / s⁻¹",
        "yaxis.range": [-span, span],
        "shapes[0].y0": 0,
        "shapes[0].y1": 1e3 * span,
        "annotations[0].y": 0,
    }
    choices = [
        {"name": name, "y": views[name], "layout": view}
        for name, view in (("growth rate", growth_view), ("spectral radius", radius_view))
    ]
    return {"data": data, "layout": layout, "views": choices, "kind": "steps", "label": "Stability over the macro step"}


def parameter_map(
    name: str, values: Array, steps_: Array, radii: Array, now: tuple[float, float] | None, log: bool
) -> Figure:
    """ρ over the macro step and a parameter; the thick line is ρ = 1."""
    excess = radii - 1
    # Decades away from 1, with their sign: radii of all sizes can be told apart.
    shown = np.sign(excess) * np.log10(1 + np.abs(excess) / 1e-6)
    ticks = [-5, -3, 0, 3, 5]
    data: list[dict[str, Any]] = [
        {
            "type": "contour",
            "x": listed(steps_),
            "y": listed(values),
            "z": [listed(row) for row in shown],
            "text": [[f"{rho:.7f}" for rho in row] for row in radii],
            "zmin": -5,
            "zmax": 5,
            "colorscale": [[0, "#2b7bcb"], [0.5, "#f4f4f2"], [1, "#d65f0e"]],
            "contours": {"start": -5, "end": 5, "size": 0.5},
            "line": {"width": 0},
            "hovertemplate": "macro step %{x:.4g} s<br>" + plain(name) + " %{y:.4g}<br>ρ = %{text}<extra></extra>",
            "colorbar": {
                "title": {"text": "ρ − 1"},
                "tickvals": ticks,
                "ticktext": ["−0.1", "−0.001", "0", "0.001", "0.1"],
                "thickness": 12,
                "outlinewidth": 0,
            },
        },
        {
            "type": "contour",
            "x": listed(steps_),
            "y": listed(values),
            "z": [listed(row) for row in np.log(radii) / steps_],
            "contours": {"type": "constraint", "operation": "=", "value": 0},
            "line": {"width": 3, "color": "#1c2430"},
            "showlegend": False,
            "showscale": False,
            "hoverinfo": "skip",
        },
    ]
    if now is not None:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "x": [now[0]],
                "y": [now[1]],
                "marker": {"symbol": "star", "size": 15, "color": "#1c2430", "line": {"width": 1.5, "color": "white"}},
                "hoverinfo": "text",
                "hovertext": f"now: {step_text(now[0])}, {name} = {now[1]:g}",
                "showlegend": False,
            }
        )
    layout = {
        "xaxis": {"type": "log", "title": {"text": "macro step / s"}},
        "yaxis": {"type": "log" if log else "linear", "title": {"text": name}},
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
