"""The figures of pikulinski2025: energy errors, choice of the window, and the manipulator's motion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.system import System
from cosimo.couplings import Dmd
from cosimo.papers import Picture
from cosimo.papers.pikulinski2025 import (
    HELD,
    manipulator_errors,
    oscillator_error,
    oscillator_nmse,
    papers_dmd,
    pendula_error,
    predicted,
    robust_dmd,
)
from cosimo.problems.hydraulic_manipulator import Manipulator, manipulator_steps, steps
from cosimo.problems.oscillators import LINEAR, NONLINEAR, Oscillator
from cosimo.reporting.pictures import BLUE, GREEN, GREY, PURPLE, VERMILION, draw_panels, legend, letter, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AUTOMATIC = "DMD, automatic window"
LOOKS: dict[str, dict[str, Any]] = {
    "held": {"color": VERMILION, "linewidth": 0.9},
    "pressure": {"color": GREY, "linewidth": 1.4},
    "DMD, the paper's": {"color": BLUE, "linewidth": 1.1},
    "DMD, kinematic start": {"color": GREEN, "linewidth": 1.1},
    AUTOMATIC: {"color": PURPLE, "linewidth": 1.1},
}
SIZE = (7.2, 3.9)
FLOOR = 1e-12
"""Errors below are drawn here: logarithmic axes have no zero."""


def pictures() -> Iterator[Picture]:
    """All figures."""
    yield Picture("fig-06-nmse-over-window", windows_of_the_oscillator())
    yield Picture("fig-09-energy-error-linear", energy_errors(LINEAR, "linear springs"))
    yield Picture("fig-12-energy-error-nonlinear", energy_errors(NONLINEAR, "square-root spring"))
    yield Picture("fig-14-pendula-over-window", windows_of_the_pendula())
    yield Picture("fig-15-pendula-energy-error", energy_of_the_pendula())
    yield Picture("fig-20-manipulator-sinusoid", manipulator_motion("sinusoid", 0.012))
    yield Picture("fig-21-manipulator-steps-12ms", manipulator_motion("steps", 0.012))
    yield Picture("fig-22-manipulator-steps-20ms", manipulator_motion("steps", 0.02))
    yield Picture("beyond-predictor-in-charge", in_charge())


WINDOWS = (4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100, 150, 200)


def windows_of_the_oscillator(windows: Sequence[int] = WINDOWS) -> Figure:
    """Fig. 6: NMSE of the positions over the window, nonlinear spring; the hold and the automatic window beside it."""

    def draw(axes: Axes) -> None:
        for name, make in (("DMD, the paper's", papers_dmd), ("DMD, kinematic start", partial(robust_dmd, "one"))):
            _over_window(axes, name, {w: oscillator_nmse(NONLINEAR, make(w)) for w in windows})
        for name, coupling in (("held", HELD), (AUTOMATIC, robust_dmd("one"))):
            axes.axhline(oscillator_nmse(NONLINEAR, coupling), label=name, linestyle="--", **LOOKS[name])
        axes.set(ylabel="NMSE of the positions")

    return draw_panels({"square-root spring, 10 ms": draw}, size=SIZE)


def energy_errors(problem: Oscillator, title: str, step: float = 0.01) -> Figure:
    """Figs. 9 and 12: the relative error of the energy against the monolithic run."""

    def draw(axes: Axes) -> None:
        couplings = {"held": HELD, "DMD, the paper's": papers_dmd(100), "DMD, kinematic start": robust_dmd("one", 100)}
        for name, coupling in (couplings | {AUTOMATIC: robust_dmd("one")}).items():
            _over_time(axes, name, oscillator_error(problem, coupling, step), step)
        if problem is NONLINEAR:
            axes.axhline(0.1, color="black", linewidth=0.7, linestyle=":")
        axes.set(ylabel="relative energy error")

    return draw_panels({f"{title}, {step * 1e3:g} ms": draw}, size=SIZE)


def windows_of_the_pendula() -> Figure:
    """Fig. 14: what the window does for the pendula (largest energy error instead of NMSE)."""

    def largest(window: int | None) -> float:
        return float(np.abs(pendula_error(robust_dmd("single", window))).max())

    def draw(axes: Axes) -> None:
        _over_window(axes, "DMD, kinematic start", {w: largest(w) for w in (6, 8, 10, 15, 20, 30, 50, 70, 100)})
        axes.axhline(largest(None), label=AUTOMATIC, linestyle="--", **LOOKS[AUTOMATIC])
        axes.set(ylabel="largest energy error / J")

    return draw_panels({"pendula, 1 ms, 5 s": draw}, size=SIZE)


def energy_of_the_pendula() -> Figure:
    """Fig. 15: the error of the energy over time."""

    def draw(axes: Axes) -> None:
        couplings = {"held": HELD, "DMD, kinematic start": robust_dmd("single", 10), AUTOMATIC: robust_dmd("single")}
        for name, coupling in couplings.items():
            label = f"{name}, w = 10" if "start" in name else name
            _over_time(axes, name, np.abs(pendula_error(coupling)), 1e-3, label)
        axes.set(ylabel="energy error / J")

    return draw_panels({"pendula, 1 ms": draw}, size=SIZE)


def _over_window(axes: Axes, name: str, values: dict[int, float]) -> None:
    axes.plot(list(values), list(values.values()), marker="o", markersize=4, label=name, **LOOKS[name])
    axes.set(xlabel="window w", xscale="log", yscale="log")


def _over_time(axes: Axes, name: str, error: Array, step: float, label: str | None = None) -> None:
    axes.plot(np.arange(len(error)) * step, np.maximum(error, FLOOR), label=label or name, **LOOKS[name])
    axes.set(xlabel="time / s", yscale="log")


def manipulator_motion(name: str, step: float) -> Figure:
    """Figs. 20-22: errors of the actuator's length and rate against the monolithic run."""
    stepped = name == "steps"
    control = steps(Manipulator().equilibrium[2]) if stepped else None
    system = Manipulator(control=control).system()
    runs: dict[str, tuple[System, Coupling]] = {
        "held": (system, HELD),
        "pressure": (Manipulator(pressure=True, control=control).system(), HELD),
        "DMD, the paper's": (system, Dmd(10, pairs=())),
        AUTOMATIC: (system, robust_dmd("hydraulics")),
    }
    figure, axes = panels(2, 1, size=(7.8, 5.4), sharex=True)
    limits = [0.0, 0.0]
    for kind, (which, coupling) in runs.items():
        for number, error in enumerate(manipulator_errors(which, coupling, step=step, stepped=stepped)):
            label = "DMD, w = 10" if kind == "DMD, the paper's" else kind
            axes[number].plot(np.arange(len(error)) * step, error, label=label, **LOOKS[kind])
            if kind != "held":
                limits[number] = max(limits[number], float(np.abs(error).max()))
            else:
                note = f"held: up to {np.abs(error).max():.3g} {'mm' if number == 0 else 'mm/s'}"
                axes[number].text(0.01, 0.03, note, transform=axes[number].transAxes, color=VERMILION, fontsize=7.5)
    for number, what in enumerate(("length error / mm", "rate error / mm s⁻¹")):
        axes[number].set(ylabel=what, ylim=(-2.2 * limits[number], 2.2 * limits[number]))
        axes[number].set_title(letter(number, f"{name}, {step * 1e3:g} ms"))
    axes[1].set_xlabel("time / s")
    legend(figure, axes[0])
    return figure


def in_charge() -> Figure:
    """Beyond the paper: which predictor of the automatic bank is in charge, and how much it misses."""
    step = 0.012
    result = predicted(manipulator_steps(), "hydraulics", robust_dmd("hydraulics"), step=step, stop=833 * step)
    figure, axes = panels(2, 1, size=(7.8, 4.6), sharex=True)
    axes[0].plot(result.time, result["hydraulics.predictor"], ".", markersize=3, color=PURPLE)
    axes[0].set(ylabel="predictor in charge", title=letter(0, "manipulator, steps, 12 ms"))
    error = np.maximum(result["hydraulics.prediction_error"], FLOOR)
    axes[1].plot(result.time, error, linewidth=0.9, color=PURPLE)
    axes[1].set(ylabel="prediction error", yscale="log", xlabel="time / s", title=letter(1, "relative one-step error"))
    return figure
