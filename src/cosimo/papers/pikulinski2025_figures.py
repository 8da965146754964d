"""The figures of pikulinski2025: energy errors, choice of the window, and the manipulator's motion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

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
from cosimo.reporting.pictures import BLUE, GREEN, GREY, PURPLE, VERMILION, legend, letter, panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "held": {"color": VERMILION, "linewidth": 0.9},
    "pressure": {"color": GREY, "linewidth": 1.4},
    "DMD, the paper's": {"color": BLUE, "linewidth": 1.1},
    "DMD, kinematic start": {"color": GREEN, "linewidth": 1.1},
    "DMD, automatic window": {"color": PURPLE, "linewidth": 1.1},
}
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


def windows_of_the_oscillator(windows: tuple[int, ...] = (4, 5, 6, 8, 10, 15, 20, 30, 50, 70, 100, 150, 200)) -> Figure:
    """Fig. 6: NMSE of the positions over the window, nonlinear spring; the hold and the automatic window beside it."""
    figure, (axes,) = panels(1, 1, size=(7.2, 3.9))
    methods = {
        "DMD, the paper's": [papers_dmd(window) for window in windows],
        "DMD, kinematic start": [robust_dmd("one", window) for window in windows],
    }
    for name, couplings in methods.items():
        values = [oscillator_nmse(NONLINEAR, coupling) for coupling in couplings]
        axes.plot(windows, values, marker="o", markersize=4, label=name, **LOOKS[name])
    for name, coupling in (("held", HELD), ("DMD, automatic window", robust_dmd("one"))):
        axes.axhline(oscillator_nmse(NONLINEAR, coupling), label=name, linestyle="--", **LOOKS[name])
    axes.set(
        xlabel="window w", ylabel="NMSE of the positions", yscale="log", xscale="log", title="square-root spring, 10 ms"
    )
    legend(figure, axes)
    return figure


def energy_errors(problem: Oscillator, title: str, step: float = 0.01) -> Figure:
    """Figs. 9 and 12: the relative error of the energy against the monolithic run."""
    figure, (axes,) = panels(1, 1, size=(7.2, 3.9))
    couplings = {
        "held": HELD,
        "DMD, the paper's": papers_dmd(100),
        "DMD, kinematic start": robust_dmd("one", 100),
        "DMD, automatic window": robust_dmd("one"),
    }
    for name, coupling in couplings.items():
        error = oscillator_error(problem, coupling, step)
        axes.plot(np.arange(len(error)) * step, np.maximum(error, FLOOR), label=name, **LOOKS[name])
    if problem is NONLINEAR:
        axes.axhline(0.1, color="black", linewidth=0.7, linestyle=":")
    axes.set(xlabel="time / s", ylabel="relative energy error", yscale="log", title=f"{title}, {step * 1e3:g} ms")
    legend(figure, axes)
    return figure


def windows_of_the_pendula(windows: tuple[int, ...] = (6, 8, 10, 15, 20, 30, 50, 70, 100)) -> Figure:
    """Fig. 14: what the window does for the pendula (largest energy error instead of NMSE)."""
    figure, (axes,) = panels(1, 1, size=(7.2, 3.9))
    values = [float(np.abs(pendula_error(robust_dmd("single", window))).max()) for window in windows]
    axes.plot(windows, values, marker="o", markersize=4, label="DMD, kinematic start", **LOOKS["DMD, kinematic start"])
    automatic = float(np.abs(pendula_error(robust_dmd("single"))).max())
    axes.axhline(automatic, label="DMD, automatic window", linestyle="--", **LOOKS["DMD, automatic window"])
    axes.set(
        xlabel="window w", ylabel="largest energy error / J", xscale="log", yscale="log", title="pendula, 1 ms, 5 s"
    )
    legend(figure, axes)
    return figure


def energy_of_the_pendula() -> Figure:
    """Fig. 15: the error of the energy over time."""
    figure, (axes,) = panels(1, 1, size=(7.2, 3.9))
    couplings = {
        "held": HELD,
        "DMD, kinematic start": robust_dmd("single", 10),
        "DMD, automatic window": robust_dmd("single"),
    }
    for name, coupling in couplings.items():
        error = np.abs(pendula_error(coupling))
        label = f"{name}, w = 10" if "start" in name else name
        axes.plot(np.arange(len(error)) * 1e-3, np.maximum(error, FLOOR), label=label, **LOOKS[name])
    axes.set(xlabel="time / s", ylabel="energy error / J", yscale="log", title="pendula, 1 ms")
    legend(figure, axes)
    return figure


def manipulator_motion(control: str, step: float) -> Figure:
    """Figs. 20-22: errors of the actuator's length and rate against the monolithic run."""
    stepped = control == "steps"
    system = manipulator_steps() if stepped else Manipulator().system()
    runs: dict[str, tuple[System, Coupling]] = {
        "held": (system, HELD),
        "pressure": (_pressure(stepped), HELD),
        "DMD, the paper's": (system, Dmd(10, pairs=())),
        "DMD, automatic window": (system, robust_dmd("hydraulics")),
    }
    figure, axes = panels(2, 1, size=(7.8, 5.4), sharex=True)
    limits = [0.0, 0.0]
    for name, (which, coupling) in runs.items():
        for number, error in enumerate(manipulator_errors(which, coupling, step=step, stepped=stepped)):
            label = "DMD, w = 10" if name == "DMD, the paper's" else name
            axes[number].plot(np.arange(len(error)) * step, error, label=label, **LOOKS[name])
            if name != "held":
                limits[number] = max(limits[number], float(np.abs(error).max()))
            else:
                _cut(axes[number], float(np.abs(error).max()), "mm" if number == 0 else "mm/s")
    for number, what in enumerate(("length error / mm", "rate error / mm s⁻¹")):
        axes[number].set(ylabel=what, ylim=(-2.2 * limits[number], 2.2 * limits[number]))
        axes[number].set_title(letter(number, f"{control}, {step * 1e3:g} ms"))
    axes[1].set_xlabel("time / s")
    legend(figure, axes[0])
    return figure


def _cut(axes: Axes, size: float, unit: str) -> None:
    axes.text(0.01, 0.03, f"held: up to {size:.3g} {unit}", transform=axes.transAxes, color=VERMILION, fontsize=7.5)


def _pressure(stepped: bool) -> System:
    plain = Manipulator(pressure=True)
    return Manipulator(pressure=True, control=steps(plain.equilibrium[2])).system() if stepped else plain.system()


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
