"""The figures of tamellin2022, and one beyond it. Its CPU times (Figs. 13, 23) are a matter of the benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo import masters
from cosimo.compensation import compensate
from cosimo.core.arrays import Array
from cosimo.papers import Picture
from cosimo.papers.mechanics import Motion, cosimulated_motion, coupling_signal
from cosimo.papers.mechanics_figures import (
    DISCRETE_EXACT,
    DISCRETE_MONOLITHIC,
    IMAGINARY,
    LINES,
    REAL,
    SignalHistory,
    draw_energy,
    draw_histories,
    draw_latent_roots,
    draw_primary_poles,
)
from cosimo.papers.stiffness import DynamicStiffness
from cosimo.papers.tamellin2022 import CASES, COUNT, Case, RandomOutcome, forced_response, free_evolution, random_study
from cosimo.reporting.pictures import BLUE, DARK, VERMILION, draw_panels, legend, letter, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Motions = dict[str, Motion]
TWO_MASS = ("undamped 1 ms", "damped 1 ms", "damped 4 ms")
LONGEST = 5e-3
"""Up to which macro step Fig. 5 follows the poles."""
MAGNIFIED = 1.5
"""Length of the magnified views in seconds, at the end of a run, where the differences are largest."""
CUT = 1e3
"""Where the bars of Fig. 18 are cut: some unstable runs reach errors with dozens of digits."""


def pictures(*, count: int = COUNT) -> Iterator[Picture]:
    """All figures; the random study takes `count` systems."""
    yield Picture("fig-03-primary-poles", primary_poles("undamped 1 ms", compensated=False))
    yield Picture("fig-04-latent-roots", latent_roots(compensated=False))
    yield Picture("fig-05-poles-over-step", pole_sweep())
    yield Picture("fig-07-eigenloci", primary_poles("undamped 1 ms"))
    yield Picture("fig-08-latent-roots-compensated", latent_roots(compensated=True))
    yield Picture("fig-09-primary-poles-damped", primary_poles("damped 1 ms", "damped 4 ms"))
    free = {key: free_evolution(case) for key, case in CASES.items()}
    yield Picture("fig-11-free-undamped", histories("undamped 1 ms", free["undamped 1 ms"]))
    yield Picture("fig-12-energy-undamped", energies({"undamped 1 ms": free["undamped 1 ms"]}))
    yield Picture("fig-14-free-damped-1ms", histories("damped 1 ms", free["damped 1 ms"]))
    yield Picture("fig-15-energy-damped", energies({key: free[key] for key in ("damped 1 ms", "damped 4 ms")}))
    yield Picture("fig-16-free-damped-4ms", histories("damped 4 ms", free["damped 4 ms"]))
    yield Picture("fig-17-energy-chirp", energies({key: forced_response(CASES[key]) for key in TWO_MASS}))
    yield Picture("fig-18-random-systems", random_systems(random_study(count=count)))
    yield Picture("fig-20-primary-poles-four-mass", primary_poles("four-mass"))
    yield Picture("fig-21-energy-four-mass", energies({"four-mass": free["four-mass"]}))
    yield Picture("fig-22-free-four-mass", histories("four-mass", free["four-mass"]))
    yield Picture("beyond-discrete-design", discrete_design({key: CASES[key] for key in TWO_MASS}))


def primary_poles(*keys: str, compensated: bool = True) -> Figure:
    """Figs. 3, 7, 9 and 20: primary poles, one panel per case."""
    found = {
        _title(key): partial(draw_primary_poles, assignment=CASES[key].assignment(), compensated=compensated)
        for key in keys
    }
    return draw_panels(found, size=(2.6 + 4.6 * len(keys), 4.8), columns=3)


def latent_roots(*, compensated: bool) -> Figure:
    """Figs. 4 and 8: all roots around the origin, undamped two-mass system."""
    key = "undamped 1 ms"
    draw = partial(draw_latent_roots, assignment=CASES[key].assignment(), compensated=compensated)
    return draw_panels({_title(key): draw}, size=(7.2, 4.8), columns=3)


def pole_sweep(*, points: int = 51) -> Figure:
    """Fig. 5: the primary poles of the damped system while the macro step grows from 0 to 5 ms, mode by mode."""
    model = DynamicStiffness(CASES["damped 1 ms"].build(), LONGEST).laplace
    steps = np.linspace(0.0, LONGEST, points)
    monolithic = np.array([[pole.monolithic for pole in model.primary_poles()]])
    poles = np.vstack([monolithic, model.sweep(steps[1:].tolist())])
    marked = model.sweep([1e-3, 4e-3])
    figure, axes = panels(1, 2, size=(9.6, 4.2))
    for mode, axis in enumerate(axes):
        path = poles[:, mode]
        shown = axis.scatter(path.real, path.imag, c=1e3 * steps, cmap="cividis_r", s=18, zorder=3)
        axis.plot(
            path.real[:1], path.imag[:1], "o", color="black", fillstyle="none", markersize=10, label="monolithic, 0 ms"
        )
        for value, text in zip(marked[:, mode], ("1 ms", "4 ms"), strict=True):
            axis.plot(value.real, value.imag, "o", color=VERMILION, fillstyle="none", markersize=9, zorder=4)
            axis.annotate(text, (value.real, value.imag), xytext=(8, 5), textcoords="offset points", fontsize=8)
        axis.set(xlabel=REAL, ylabel=IMAGINARY, title=letter(mode, f"mode {mode + 1}, upper pole"))
        axis.ticklabel_format(useOffset=False)
        axis.margins(0.12)
    _critical(axes[1], model.critical_step())
    figure.colorbar(shown, ax=axes, label="macro step / ms", shrink=0.9)
    legend(figure, axes[0])
    return figure


def _critical(axes: Axes, step: float) -> None:
    low, high = axes.get_xlim()
    axes.axvspan(0.0, high, color=VERMILION, alpha=0.06, linewidth=0, zorder=0)
    axes.axvline(0.0, color=DARK, linewidth=0.8, zorder=1)
    axes.set_xlim(low, high)
    axes.text(
        0.0, 0.97, f" unstable beyond {1e3 * step:.2f} ms", transform=axes.get_xaxis_transform(), va="top", fontsize=8
    )


def histories(key: str, found: Motions) -> Figure:
    """Figs. 11, 14, 16 and 22: the two coupling signals over the run, and at its end."""
    case = CASES[key]
    coordinate, force = (2, "left.f") if key == "four-mass" else (1, "one.f")
    positions = {kind: motion.positions[:, coordinate] for kind, motion in found.items()}
    forces = {kind: coupling_signal(case.build(), motion, force) for kind, motion in found.items()}
    signals = [SignalHistory(f"$x_{coordinate + 1}$", "m", positions), SignalHistory("$f_c$", "N", forces)]
    return draw_histories(found["exact"].time, signals, MAGNIFIED)


def energies(cases: dict[str, Motions]) -> Figure:
    """Figs. 12, 15, 17 and 21: the mechanical energy, one panel per case."""
    # As in the paper the monolithic energy is left out: it lies over the exact one.
    drawings = {
        _title(key): partial(
            draw_energy, CASES[key].build(), {kind: m for kind, m in found.items() if kind != "monolithic"}
        )
        for key, found in cases.items()
    }
    return draw_panels(drawings, size=(3.3 + 3.9 * len(cases), 3.9))


def random_systems(study: Sequence[RandomOutcome]) -> Figure:
    """Fig. 18: NRMS error of the energy of every random system, and average and median; '*' over unstable ones."""
    results = {
        "without compensation": np.array([(o.plain_error, o.plain_radius) for o in study]).T,
        "with compensation": np.array([(o.feedback_error, o.feedback_radius) for o in study]).T,
    }
    figure, (axes, summary) = panels(1, 2, size=(11.5, 4.2), sharey=True, width_ratios=[7, 1])
    number = np.arange(1.0, len(study) + 1)
    for (name, (errors, radii)), (shift, color) in zip(results.items(), ((-0.2, VERMILION), (0.2, BLUE)), strict=True):
        unstable = radii > 1
        label = f"co-simulated {name}: {unstable.sum()} of {len(study)} unstable"
        axes.bar(number + shift, np.minimum(errors, CUT), width=0.4, color=color, label=label)
        for at, error in zip((number + shift)[unstable], errors[unstable], strict=True):
            _over_bar(axes, at, error, "*" if error <= CUT else f"* {_power(error)}", color)
        averages = np.array([errors.mean(), np.median(errors)])
        summary.bar(np.arange(2.0) + shift, np.minimum(averages, CUT), width=0.4, color=color)
        for at, error in zip(np.arange(2.0) + shift, averages, strict=True):
            _over_bar(summary, at, error, f"{error:.2g}" if error <= CUT else _power(error), DARK)
    least = min(float(errors.min()) for errors, _ in results.values())
    axes.set(yscale="log", ylim=(10 ** np.floor(np.log10(least)), 30 * CUT), xlim=(0.2, len(study) + 0.8))
    axes.set(xlabel="random system", ylabel="NRMS error of the mechanical energy, logarithmic")
    axes.set_title(f"bars are cut at {CUT:g}; longer ones carry their value", fontsize=8)
    summary.set(xticks=[0, 1], xticklabels=["average", "median"], xlim=(-0.6, 1.6))
    for panel in (axes, summary):
        panel.grid(visible=False, axis="x")
    legend(figure, axes)
    return figure


def _over_bar(axes: Axes, place: float, height: float, text: str, color: str) -> None:
    style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8, "rotation": 90, "color": color}
    axes.annotate(text, (place, min(height, CUT)), xytext=(0, 2), textcoords="offset points", **style)


def _power(value: float) -> str:
    """A number by its first digit and power of ten, 4·10³; what overflowed is infinite."""
    if not np.isfinite(value):
        return "∞"
    digit, power = f"{value:.0e}".split("e")
    return f"${digit}{{\\cdot}}10^{{{int(power)}}}$"


def _title(key: str) -> str:
    name = CASES[key].name
    return name if key == "four-mass" else f"two-mass {name}"


# ---- beyond the paper: the compensator designed on the one-step map, beside the one designed on D(s) -----------------


WINDOW = 0.2
"""Errors oscillate; what is drawn is the largest one in every such stretch of time, in seconds."""
PAPERS = ("without compensation", "with compensation")
FROM_MONOLITHIC = (*PAPERS, DISCRETE_MONOLITHIC)
FROM_EXACT = (*PAPERS, "monolithic", DISCRETE_EXACT)
LABELS_HERE = {"monolithic": "monolithic run", "with compensation": "with the papers' compensator"}
"""How solutions are called, where that differs from their names."""


def discrete_design(cases: Mapping[str, Case]) -> Figure:
    """Upper row: how far x₂ is from the monolithic run; lower row: from the exact motion. One column per case."""
    found, axes = panels(2, len(cases), size=(4.0 * len(cases), 6.4), sharex=True, sharey=True)
    for column, case in enumerate(cases.values()):
        runs = designed_motions(case)
        rows = (("monolithic", "monolithic run", FROM_MONOLITHIC), ("exact", "exact motion", FROM_EXACT))
        for row, (reference, name, kinds) in enumerate(rows):
            number = row * len(cases) + column
            axis = axes[number]
            for kind in kinds:
                axis.plot(
                    *error_over_time(runs[kind], runs[reference]), label=LABELS_HERE.get(kind, kind), **LINES[kind]
                )
            axis.set_title(letter(number, f"two-mass {case.name}"))
            axis.set(yscale="log", xlim=(0.0, case.stop))
            if column == 0:
                axis.set_ylabel(f"distance of $x_2$ from the {name}\n(largest $x_2$ = 1), logarithmic")
            if row == 1:
                axis.set_xlabel("time / s")
    legend(found, axes[0], axes[-1], columns=5)
    return found


def designed_motions(case: Case) -> Motions:
    """All motions, with those by both targets of the discrete design."""
    runs = free_evolution(case)
    system, steps = case.build(), round(case.stop / case.step)
    plain = masters.jacobi_early_read(system, case.step)
    for name, design in (
        (DISCRETE_MONOLITHIC, compensate(system, plain, target="monolithic")),
        (DISCRETE_EXACT, compensate(system, plain, target="exact")),
    ):
        runs[name] = cosimulated_motion(system, design.master, steps)
    return runs


def error_over_time(motion: Motion, reference: Motion) -> tuple[Array, Array]:
    """Ends of windows, and max |x₂ − x₂,ref| in each of them over the largest |x₂,ref| of the whole run."""
    length = round(WINDOW / float(reference.time[1]))
    difference = np.abs(motion.positions[:, 1] - reference.positions[:, 1]) / np.abs(reference.positions[:, 1]).max()
    windows = difference[1:][: (len(difference) - 1) // length * length].reshape(-1, length)
    return reference.time[length::length][: len(windows)], windows.max(axis=1)
