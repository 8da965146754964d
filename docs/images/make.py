"""Draw the picture of the README from the package itself.

    python docs/images/make.py [FOLDER]        writes two-mass.svg beside this file, or into FOLDER

Left: the two-mass system run at 4 ms. Right: its spectral radius over the step size, from matrices alone. The
background is transparent, and the grey of lines and text readable on white as on black.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import cosimo as co
from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis import critical_step
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold

STEP, STOP = 4e-3, 8.0
GREY, RED, BLUE = "#808890", "#e0503a", "#3a8fe0"
STYLE = {
    "axes.edgecolor": GREY,
    "axes.labelcolor": GREY,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "svg.hashsalt": "cosimo",
    "text.color": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
}


def masters(system: System) -> tuple[Master, Master]:
    """The default of most tools, and one that works."""
    jacobi = co.masters.jacobi(system, STEP)
    return jacobi, co.masters.gauss_seidel(system, STEP, order=["two", "one"], coupling=Hold(1))


def draw_runs(axes: Axes, system: System, jacobi: Master, seidel: Master) -> None:
    """The displacement of mass 2 in both runs, and exactly."""
    flow = LinearSystem(system, jacobi).coupled.flow(STEP)
    x = np.concatenate([unit.initial_state for unit in system.units.values()])
    exact = []
    for _ in range(round(STOP / STEP) + 1):
        exact.append(x[2])
        x = flow @ x
    runs = [co.run(system, master, stop=STOP) for master in (jacobi, seidel)]
    axes.plot(runs[0].time, runs[0]["two.x"], color=RED, linewidth=0.9, label="Jacobi")
    axes.plot(runs[0].time, exact, color=GREY, linewidth=4, alpha=0.5, label="exact")
    axes.plot(runs[1].time, runs[1]["two.x"], color=BLUE, linewidth=0.9, label="Gauss–Seidel, hold 1")
    axes.set(
        title="run at 4 ms", xlabel="time / s", ylabel="displacement of mass 2 / m", xlim=(0, STOP), ylim=(-8.8, 8)
    )
    axes.legend(frameon=False, loc="lower left", ncols=3, fontsize=8)


def draw_radius(axes: Axes, system: System, jacobi: Master, seidel: Master) -> None:
    """ρ(Φ) of both masters and of the exact system, and where Jacobi's crosses 1."""
    steps = np.geomspace(2e-4, 2e-2, 300)
    curves = [Batch(system, master, steps) for master in (jacobi, seidel)]
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.plot(1e3 * steps, curves[0].exact_spectral_radius(), color=GREY, linewidth=4, alpha=0.5)
    axes.plot(1e3 * steps, curves[0].spectral_radius(), color=RED)
    axes.plot(1e3 * steps, curves[1].spectral_radius(), color=BLUE)
    critical = critical_step(system, jacobi)
    assert critical is not None, "the coupled system itself is stable"
    axes.plot(1e3 * critical.step, 1.0, "o", color=RED)
    axes.annotate(
        f"critical step\n{1e3 * critical.step:.3g} ms",
        (1e3 * critical.step, 1.0),
        xytext=(-10, 26),
        textcoords="offset points",
        ha="right",
        arrowprops={"arrowstyle": "-", "color": GREY},
    )
    axes.axvline(1e3 * STEP, color=GREY, linewidth=0.8, linestyle="--")
    axes.annotate("4 ms", (1e3 * STEP, 0.9985), xytext=(4, 0), textcoords="offset points")
    axes.set(title="known before running", xlabel="macro step / ms", ylabel="spectral radius of Φ", xscale="log")
    axes.set(ylim=(0.998, 1.004), xlim=(0.2, 20), xticks=[0.2, 0.5, 1, 2, 5, 10, 20])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.text(18.5, 1.0021, "unstable", ha="right")
    axes.text(18.5, 0.9995, "stable", ha="right")


def picture() -> Figure:
    """Both panels."""
    system = co.problems.two_mass()
    jacobi, seidel = masters(system)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    draw_runs(left, system, jacobi, seidel)
    draw_radius(right, system, jacobi, seidel)
    return figure


def main(folder: Path) -> None:
    """Write the picture; equal input gives an equal file."""
    with mpl.rc_context(STYLE):
        picture().savefig(folder / "two-mass.svg", transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
