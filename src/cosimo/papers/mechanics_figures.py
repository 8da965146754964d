"""What the figures of tamellin2022 and richiedei2024 share: poles in the complex plane, time histories, energies.

Every kind of solution (exact, monolithic, co-simulated without and with compensation) has one colour, line and marker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.system import System
from cosimo.papers.assignment import Assignment
from cosimo.papers.mechanics import Motion, energy
from cosimo.papers.roots import Region
from cosimo.reporting.pictures import BLACK, BLUE, DARK, GREEN, GREY, PAPER, PURPLE, VERMILION, legend, letter, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DISCRETE_MONOLITHIC, DISCRETE_EXACT = "discrete design, target monolithic", "discrete design, target exact"
LINES: dict[str, dict[str, Any]] = {
    # What is followed is wide and pale; what should follow it runs thin on top.
    "exact": {"color": GREY, "linewidth": 3.2, "zorder": 2.2},
    "monolithic": {"color": BLACK, "linewidth": 1.1, "zorder": 2.7, "linestyle": (0, (4, 3))},
    "without compensation": {"color": VERMILION, "linewidth": 0.9, "zorder": 2.1},
    "with compensation": {"color": BLUE, "linewidth": 1.2, "zorder": 2.5},
    DISCRETE_MONOLITHIC: {"color": GREEN, "linewidth": 1.3, "zorder": 2.6},
    DISCRETE_EXACT: {"color": PURPLE, "linewidth": 1.3, "zorder": 2.6},
}
WIDE_MONOLITHIC = {"color": BLACK, "linewidth": 2.6, "zorder": 2.2}
"""The monolithic run where it is the one to follow, because no exact motion is shown."""
MARKERS: dict[str, dict[str, Any]] = {
    "monolithic": {"color": BLACK, "marker": "o", "markersize": 10, "fillstyle": "none", "markeredgewidth": 1.3},
    "without compensation": {"color": VERMILION, "marker": "x", "markersize": 7, "markeredgewidth": 1.8},
    "with compensation": {"color": BLUE, "marker": "+", "markersize": 8, "markeredgewidth": 1.8},
}
LABELS = {"monolithic": "monolithic", "exact": "exact"} | {
    f"{word} compensation": f"co-simulated {word} compensation" for word in ("without", "with")
}
"""How a solution is called in legends, where that differs from its name."""


# ---- poles in the complex plane --------------------------------------------------------------------------------------


REAL, IMAGINARY = "real part / s⁻¹", "imaginary part / rad s⁻¹"
POINTS = 30
"""Macro steps from 0 to that of the system at which the loci are computed."""


def primary_poles(assignment: Assignment, *, compensated: bool = True) -> dict[str, ComplexArray]:
    """The upper poles by kind of solution, slowest first."""
    plain = assignment.stiffness.laplace.primary_poles()
    found = {
        "monolithic": np.array([pole.monolithic for pole in plain]),
        "without compensation": np.array([pole.cosimulated for pole in plain]),
    }
    if compensated:
        found["with compensation"] = np.array([pole.cosimulated for pole in assignment.primary_poles()])
    return found


def draw_primary_poles(axes: Axes, assignment: Assignment, *, compensated: bool = True) -> None:
    """Both halves of the plane; a thin line is the way of a pole as the macro step grows from 0."""
    poles = primary_poles(assignment, compensated=compensated)
    model = assignment.stiffness.laplace
    steps = model.step * np.arange(1, POINTS + 1) / POINTS
    paths = np.vstack([poles["monolithic"], model.sweep(steps.tolist())])
    for path in [*paths.T, *paths.conj().T]:
        axes.plot(path.real, path.imag, color=VERMILION, linewidth=0.9, alpha=0.7, zorder=2)
    draw_markers(axes, poles)
    _annotate(axes, poles["without compensation"], poles["monolithic"])
    _limits(axes, np.concatenate(list(poles.values())))
    axes.set(xlabel=REAL, ylabel=IMAGINARY)


def draw_markers(axes: Axes, poles: Mapping[str, ComplexArray]) -> None:
    """Each kind of pole with its marker, conjugates included."""
    for name, values in poles.items():
        both = np.concatenate([values, values.conj()])
        axes.plot(both.real, both.imag, linestyle="none", label=LABELS[name], zorder=3, **MARKERS[name])


def draw_latent_roots(axes: Axes, assignment: Assignment, *, compensated: bool) -> None:
    """All roots, primary and latent, in −12 ≤ Re s T ≤ 3, |Im s T| ≤ 32; the primary ones lie at the origin."""
    T = assignment.stiffness.step
    # Odd edges: roots like to lie on even ones.
    region = Region(-12.017 / T, 3.011 / T, -32.031 / T, 32.03 / T)
    found = {"without compensation": assignment.stiffness.laplace.roots(region)}
    if compensated:
        found["with compensation"] = assignment.roots(region)
    draw_markers(axes, {"monolithic": primary_poles(assignment, compensated=False)["monolithic"]})
    for name, roots in found.items():
        axes.plot(roots.real, roots.imag, linestyle="none", label=LABELS[name], zorder=3, **MARKERS[name])
    axes.annotate(
        "primary poles", (0, 0), xytext=(-11, 0), textcoords="offset points", ha="right", va="center", fontsize=8
    )
    axes.set(xlabel=REAL, ylabel=IMAGINARY, xlim=(-12.0 / T, 3.0 / T), ylim=(-32.0 / T, 32.0 / T))
    shade_unstable(axes)


def shade_unstable(axes: Axes) -> None:
    """The right half of the plane in a pale tone, the axes as lines."""
    right = axes.get_xlim()[1]
    axes.axvspan(0.0, right, color=VERMILION, alpha=0.06, linewidth=0, zorder=0)
    axes.axvline(0.0, color=DARK, linewidth=0.8, zorder=1)
    axes.set_xlim(right=right)


def _annotate(axes: Axes, poles: ComplexArray, origins: ComplexArray) -> None:
    """The numbers of the upper poles, beside them on the side they went to: the imaginary part moves invisibly."""
    for pole, before in zip(poles, origins, strict=True):
        side = 1 if pole.real > before.real else -1
        axes.annotate(
            f"{pole.real:.4f} + {pole.imag:.4f}j".replace("-", "−"),
            (pole.real, pole.imag),
            xytext=(9 * side, 0),
            textcoords="offset points",
            ha="left" if side > 0 else "right",
            va="center",
            fontsize=8,
            color=VERMILION,
        )


def _limits(axes: Axes, poles: ComplexArray) -> None:
    """Room for the numbers on both sides; the imaginary axis is always seen."""
    low, high = min(float(poles.real.min()), 0.0), max(float(poles.real.max()), 0.0)
    margin = 0.44 * (high - low)
    top = 1.18 * float(poles.imag.max())
    axes.set(xlim=(low - margin, high + margin), ylim=(-top, top))
    shade_unstable(axes)


# ---- time histories with magnified views, and mechanical energies ----------------------------------------------------


EXPLODED = 8.0
"""An uncompensated signal this many times larger than the one to follow would make it unreadable."""
SPREAD = 10.0
"""An uncompensated energy this many times larger than the others calls for a logarithmic scale."""
FOLLOWED = ("exact", "monolithic", "with compensation")


class SignalHistory(NamedTuple):
    """One signal by kind of solution, with its unit of measure."""

    name: str
    unit: str
    values: Mapping[str, Array]


def draw_signal(axes: Axes, time: Array, signal: SignalHistory, window: tuple[float, float]) -> None:
    """All solutions in a window of time; where the uncompensated one explodes the view is cut, and that is said."""
    inside = (time >= window[0] - 1e-12) & (time <= window[1] + 1e-12)
    draw_lines(axes, time[inside], {name: values[inside] for name, values in signal.values.items()})
    followed = max(float(np.abs(signal.values[name][inside]).max()) for name in FOLLOWED if name in signal.values)
    largest = max(float(np.abs(values[inside]).max()) for values in signal.values.values())
    top = 1.08 * largest if largest <= EXPLODED * followed else 2.0 * followed
    axes.set(xlabel="time / s", ylabel=f"{signal.name} / {signal.unit}", xlim=window, ylim=(-top, top))
    if largest > top:
        note = f"view cut: without compensation up to ±{largest:,.{0 if largest >= 100 else 1}f} {signal.unit}"
        place: dict[str, Any] = {"transform": axes.transAxes, "ha": "center", "va": "top", "fontsize": 8, "zorder": 5}
        axes.text(0.5, 0.985, note, bbox=PAPER | {"alpha": 0.9}, **place)


def draw_lines(axes: Axes, time: Array, values: Mapping[str, Array]) -> None:
    """Every solution in its line."""
    wide = {} if "exact" in values else {"monolithic": WIDE_MONOLITHIC}
    for name, column in values.items():
        axes.plot(time, column, label=LABELS[name], **{**LINES, **wide}[name])


def draw_histories(time: Array, signals: Sequence[SignalHistory], magnified: float) -> Figure:
    """Two rows: every signal over the whole run, and below over its last `magnified` seconds.

    The monolithic run is drawn only there: over the whole run it could not be told from the others.
    """
    figure, axes = panels(2, len(signals), size=(4.9 * len(signals), 5.6))
    end = end_of(time)
    for row, begin in enumerate((float(time[0]), end - magnified)):
        for column, signal in enumerate(signals):
            number = row * len(signals) + column
            values = {kind: values for kind, values in signal.values.items() if row or kind != "monolithic"}
            draw_signal(axes[number], time, signal._replace(values=values), (begin, end))
            axes[number].set_title(letter(number, signal.name + (", magnified view" if row else "")))
    legend(figure, *axes)
    return figure


def end_of(time: Array) -> float:
    """The last time, rounded: with a macro step of 3 ms a run of 10 s ends at 9.999 s."""
    return round(float(time[-1]), 2)


def draw_energy(system: System, motions: Mapping[str, Motion], axes: Axes) -> None:
    """The mechanical energy of every solution, in logarithmic scale where one of them explodes."""
    time = next(iter(motions.values())).time
    energies = {kind: energy(system, motion) for kind, motion in motions.items()}
    draw_lines(axes, time, energies)
    largest = max(float(values.max()) for values in energies.values())
    followed = max(float(energies[name].max()) for name in FOLLOWED if name in energies)
    axes.set(xlabel="time / s", xlim=(time[0], end_of(time)))
    if largest > SPREAD * followed:
        axes.set(yscale="log", ylabel="mechanical energy / J, logarithmic")
    else:
        axes.set(ylim=(0.0, 1.06 * largest), ylabel="mechanical energy / J")
