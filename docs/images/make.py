"""Draw the pictures of README and docs from the package itself.

    python docs/images/make.py [FOLDER]        writes all of PICTURES beside this file, or into FOLDER

The background is transparent, and the grey of lines and text readable on white as on black.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

import cosimo as co
from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis import critical_step
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Dmd, Hold
from cosimo.execution import Adaptive
from cosimo.problems.oscillators import run_monolithic
from cosimo.studies import Sample, Study, Uniform, run_study

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


def masters(system: System, step: float = STEP) -> tuple[Master, Master]:
    """The default of most tools, and one that works."""
    jacobi = co.masters.jacobi(system, step)
    return jacobi, co.masters.gauss_seidel(system, step, order=["two", "one"], coupling=Hold(1))


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
    axes.plot(runs[1].time, runs[1]["two.x"], color=BLUE, linewidth=0.9, label="Gauss–Seidel, linear extrapolation")
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
    axes.set(
        title="known before running", xlabel="communication step size / ms", ylabel="spectral radius of Φ", xscale="log"
    )
    axes.set(ylim=(0.998, 1.004), xlim=(0.2, 20), xticks=[0.2, 0.5, 1, 2, 5, 10, 20])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.text(18.5, 1.0021, "unstable", ha="right")
    axes.text(18.5, 0.9995, "stable", ha="right")


def two_mass() -> Figure:
    """Left: the two-mass system run at 4 ms. Right: its spectral radius over the step size, from matrices alone."""
    system = co.problems.two_mass()
    jacobi, seidel = masters(system)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    draw_runs(left, system, jacobi, seidel)
    draw_radius(right, system, jacobi, seidel)
    return figure


def wide(columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure as wide as the text, with some axes beside each other."""
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def truth(system: System, stop: float) -> co.Result:
    """A run so fine that its error cannot be seen."""
    return co.run(system, co.masters.gauss_seidel(system, stop / 40_000, coupling=Hold(1)), stop=stop)


def truck_masters(step: float) -> dict[str, Master]:
    """Usual masters of the quarter truck."""
    truck, order = co.problems.quarter_truck(), ["wheel", "chassis"]
    return {
        "Jacobi": co.masters.jacobi(truck, step),
        "Gauss–Seidel": co.masters.gauss_seidel(truck, step, order=order),
        "Gauss–Seidel, linear extrapolation": co.masters.gauss_seidel(truck, step, order=order, coupling=Hold(1)),
    }


def predicted(system: System, master: Master, stop: float) -> float:
    """The predicted error of the worst output, in percent; nan where it diverges."""
    verdict = co.analyse(system, master, horizon=stop, details=False)
    return 100 * verdict.error.worst if verdict.stable and verdict.error is not None else np.nan


def step_size() -> Figure:
    """The predicted error over the step size, and where it meets the target."""
    figure, (axes,) = wide()
    truck, steps = co.problems.quarter_truck(), np.geomspace(2.5e-4, 3e-2, 25)
    for name, colour in zip(truck_masters(1e-3), (RED, GREY, BLUE), strict=True):
        errors = [predicted(truck, truck_masters(step)[name], 3.0) for step in steps]
        axes.plot(1e3 * steps, errors, color=colour, label=name)
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.text(0.26, 1.15, "target 1 %")
    axes.set(xscale="log", yscale="log", xlabel="communication step size / ms", ylabel="error of the worst output / %")
    axes.set(title="quarter truck, 3 s: a line ends where the coupling becomes unstable", ylim=(1e-2, 1e3))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="lower right")
    return figure


def pilots() -> Figure:
    """The error that is predicted from matrices, and the one that runs show."""
    figure, (axes,) = wide()
    truck, exact = co.problems.quarter_truck(), truth(co.problems.quarter_truck(), 3.0)
    names = [name for name in exact.names if name.split(".")[1] in ("position", "velocity", "force")]
    for name, colour in zip(truck_masters(1e-3), (RED, GREY, BLUE), strict=True):
        steps = np.geomspace(2.5e-4, 8e-3, 16)
        axes.plot(1e3 * steps, [predicted(truck, truck_masters(h)[name], 3.0) for h in steps], color=colour)
        for h in (5e-4, 1e-3, 2e-3, 4e-3):
            run = co.run(truck, truck_masters(h)[name], stop=3.0)
            at = {n: np.interp(run.time, exact.time, exact[n]) for n in names}
            off = [np.abs(run[n] - at[n]).max() / np.abs(exact[n]).max() for n in names]
            axes.plot(1e3 * h, 100 * max(off), "o", color=colour, markerfacecolor="none")
        axes.plot([], [], "o-", color=colour, markerfacecolor="none", label=name)
    axes.set(xscale="log", yscale="log", xlabel="communication step size / ms", ylabel="error of the worst output / %")
    axes.set(title="lines: predicted before the run; circles: measured in runs", xticks=[0.25, 0.5, 1, 2, 4, 8])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.legend(frameon=False, loc="lower right")
    return figure


def symptoms() -> Figure:
    """Four ways in which a coupling goes wrong, each beside the true solution."""
    figure, (grows, zigzag, phase, late) = wide(4)
    masses, truck = co.problems.two_mass(), co.problems.quarter_truck()
    shown: list[tuple[Axes, str, System, Master, float, str]] = [
        (grows, "(a) grows slowly", masses, co.masters.jacobi(masses, 6e-3), 6.0, "two.x"),
        (zigzag, "(b) alternates step by step", truck, co.masters.jacobi(truck, 0.02), 0.42, "chassis.force"),
        (phase, "(c) drifts out of phase", masses, masters(masses, 0.02)[1], 6.0, "two.x"),
    ]
    for axes, title, system, master, stop, name in shown:
        exact, run = truth(system, stop), co.run(system, master, stop=stop)
        axes.plot(exact.time, exact[name], color=GREY, linewidth=3, alpha=0.5)
        axes.plot(run.time, run[name], color=RED, linewidth=0.9)
        axes.set(title=title, xlabel="time / s", yticks=[])
    phase.set(xlim=(5, 6))
    run = co.run(truck, co.masters.jacobi(truck, 0.01), stop=0.3, record="all")
    exact = truth(truck, 0.3)
    late.plot(exact.time, exact["wheel.position"], color=GREY, linewidth=3, alpha=0.5)
    late.step(run.time, run["chassis.wheel_position"], color=RED, linewidth=0.9, where="post")
    late.set(title="(d) input lags its source", xlabel="time / s", yticks=[])
    return figure


class Controller:
    """The PI controller of docs/fmus.md."""

    inputs, outputs = ("level",), ("inflow",)

    def __init__(self) -> None:
        self.level, self.integral, self.inflow = 0.0, 0.0, 0.0

    def step(self, time: float, duration: float) -> None:
        """One step with what is missing."""
        missing = 2.0 - self.level
        self.integral += missing * duration
        self.inflow = max(0.0, 0.1 * missing + 0.004 * self.integral)


def controller() -> Figure:
    """A tank under a PI controller: the level and the inflow."""
    figure, (left, right) = wide(2)
    tank = co.StateSpace(-0.02, 0.5, 1.0, inputs=["inflow"], outputs=["level"])
    ends = [("tank.level", "controller.level"), ("controller.inflow", "tank.inflow")]
    system = co.System({"tank": tank, "controller": co.PythonUnit(Controller)}, ends)
    run = co.run(system, co.masters.gauss_seidel(system, 1.0), stop=200.0)
    left.plot(run.time, run["tank.level"], color=BLUE)
    left.set(title="level of the tank / m", xlabel="time / s")
    right.plot(run.time, run["controller.inflow"], color=RED)
    right.set(title="inflow from the controller / (m³/s)", xlabel="time / s")
    return figure


def results() -> Figure:
    """Two signals of a result."""
    figure, (axes,) = wide()
    run = co.run(co.problems.quarter_truck(), truck_masters(2e-3)["Gauss–Seidel, linear extrapolation"], stop=3.0)
    for name, colour in (("chassis.position", BLUE), ("wheel.position", RED)):
        axes.plot(run.time, run[name], color=colour, label=name)
    axes.set(xlabel="time / s", ylabel="position / m")
    axes.legend(frameon=False)
    return figure


def compensated() -> Figure:
    """The two masses at 4 ms: held inputs, corrected inputs, and the exact solution."""
    figure, (axes,) = wide()
    system = co.problems.two_mass()
    jacobi = co.masters.jacobi(system, STEP)
    repaired = co.compensate(system, jacobi, target="exact").master
    runs = [co.run(system, master, stop=STOP) for master in (jacobi, repaired)]
    exact = truth(system, STOP)
    axes.plot(runs[0].time, runs[0]["two.x"], color=RED, linewidth=0.9, label="Jacobi, inputs held")
    axes.plot(exact.time[::20], exact["two.x"][::20], color=GREY, linewidth=4, alpha=0.5, label="exact")
    axes.plot(runs[1].time, runs[1]["two.x"], color=BLUE, linewidth=0.9, label="Jacobi, inputs compensated")
    axes.set(title="the same 4 ms, with and without compensation", xlabel="time / s", ylabel="displacement / m")
    axes.legend(frameon=False, loc="lower left", ncols=3)
    return figure


def adaptive() -> Figure:
    """The motion of the quarter truck, and the steps that were taken."""
    figure, (left, right) = wide(2)
    truck = co.problems.quarter_truck()
    run = co.run(truck, co.masters.gauss_seidel(truck, 5e-3), stop=3.0, adaptive=Adaptive("energy", relative=1e-2))
    left.plot(run.time, run["wheel.velocity"], color=BLUE)
    left.set(title="velocity of the wheel / (m/s)", xlabel="time / s")
    right.step(run.time[1:], 1e3 * run["step"][1:], color=RED, where="pre")
    right.set(title="communication step size / ms", xlabel="time / s", yscale="log")
    right.yaxis.set_major_formatter("{x:g}")
    return figure


def prediction() -> Figure:
    """The distance from the monolithic run: held, extrapolated, and predicted inputs."""
    figure, (axes,) = wide()
    system = co.problems.oscillator_linear()
    whole = run_monolithic(system, step=0.01, stop=10.0)["two.x"]
    shown = (
        ("held", Hold(0), RED),
        ("linear extrapolation", Hold(1), GREY),
        ("data-driven (DMD)", Dmd(window=100), BLUE),
    )
    for label, coupling, colour in shown:
        master = co.masters.jacobi(system, step=0.01, couplings={"one.x2": coupling, "one.v2": coupling})
        run = co.run(system, master, stop=10.0)
        worst = np.maximum.accumulate(np.abs(run["two.x"] - whole))
        axes.plot(run.time[5:], worst[5:], color=colour, label=label)
    axes.set(yscale="log", xlabel="time / s", ylabel="largest error so far / m")
    axes.legend(frameon=False, loc="upper left")
    return figure


def study() -> Figure:
    """A Monte-Carlo study of the quarter truck: one point per run."""
    figure, (axes,) = wide()
    points = Sample({"cs": Uniform(600.0, 2400.0), "ks": Uniform(15e3, 21e3)}, 60, seed=1)
    found = run_study(Study("quarter-truck", points, ["max:chassis.position"], stop=1.0), workers=1)
    drawn = axes.scatter(found["cs"], found["max:chassis.position"], c=found["ks"], cmap="viridis", s=24)
    bar = figure.colorbar(drawn, ax=axes)
    bar.set_label("suspension stiffness ks / (N/m)")
    axes.set(xlabel="damping cs / (N s/m)", ylabel="largest position / m", title="60 runs")
    return figure


def federation() -> Figure:
    """The predicted error over the period, for what federates do with a grant."""
    figure, (axes,) = wide()
    system, steps = co.problems.two_mass(), np.geomspace(5e-5, 2e-2, 25)
    settings = {
        "each takes inputs, steps, publishes": ("one:FGH:1", "two:FGH:1"),
        "each publishes first": ("one:HFG:1", "two:HFG:1"),
        "one of them waits for the other": ("one:FGH:1", "two:FGH:1:wait"),
    }
    for (name, texts), colour in zip(settings.items(), (RED, GREY, BLUE), strict=True):
        members = [co.masters.Grants.parse(text) for text in texts]
        errors = [predicted(system, co.masters.federation(system, step, members=members), 2.0) for step in steps]
        axes.plot(1e3 * steps, errors, color=colour, label=name)
    axes.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.text(11.0, 1.15, "target 1 %")
    axes.set(xscale="log", yscale="log", xlabel="period of both federates / ms", ylabel="error of the worst output / %")
    axes.set(title="two masses as two federates, 2 s: a line ends where the federation becomes unstable")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, loc="lower right")
    return figure


def boxes(axes: Axes, texts: list[tuple[float, float, float, str, str]]) -> None:
    """Boxes with text: left edge, bottom edge, width, text, colour."""
    axes.set(xlim=(0, 10), ylim=(0, 3))
    axes.axis("off")
    for x, y, width, text, colour in texts:
        axes.add_patch(FancyBboxPatch((x, y), width, 0.8, boxstyle="round,pad=0.08", fill=False, edgecolor=colour))
        axes.text(x + width / 2, y + 0.4, text, ha="center", va="center", color=colour)


def isolation() -> Figure:
    """Where an isolated FMU lives, and what its crash leaves."""
    figure, (axes,) = wide()
    left = [
        (0.3, 1.9, 3.4, "cosimo\nmaster, rows, checkpoints", BLUE),
        (0.3, 0.3, 3.4, "result file\nall completed rows", BLUE),
    ]
    right = [
        (6.2, 1.9, 3.4, "worker process\nmotor.fmu", GREY),
        (6.2, 0.3, 3.4, "worker process\nload.fmu crashes", RED),
    ]
    boxes(axes, left + right)
    arrow = {"arrowstyle": "<->", "color": GREY}
    axes.annotate("", (6.1, 2.3), xytext=(3.85, 2.3), arrowprops=arrow)
    axes.annotate("", (6.1, 0.8), xytext=(3.85, 2.1), arrowprops={**arrow, "color": RED})
    axes.annotate("", (2.0, 1.25), xytext=(2.0, 1.8), arrowprops={**arrow, "arrowstyle": "->"})
    axes.text(5.0, 2.45, "shared memory", ha="center")
    axes.text(
        4.75,
        0.65,
        "exit code 4: unit, phase,\ntime and cause in one line",
        ha="center",
        va="top",
        color=RED,
        fontsize=9,
    )
    return figure


def checkpoint() -> Figure:
    """A run that is interrupted, and what resuming does."""
    figure, (axes,) = wide()
    axes.set(xlim=(0, 20), ylim=(0, 3), xlabel="simulated time / s", yticks=[])
    axes.spines["left"].set_visible(False)
    axes.plot([0, 13.2], [2.2, 2.2], color=RED, linewidth=6, solid_capstyle="butt")
    axes.plot([12, 20], [1.0, 1.0], color=BLUE, linewidth=6, solid_capstyle="butt")
    axes.plot([4, 8, 12], [2.2, 2.2, 2.2], "o", color=GREY, markersize=9)
    axes.text(13.4, 2.13, "interrupted: rows are kept", color=RED)
    axes.text(4, 2.5, "checkpoints", ha="center")
    axes.text(
        11.8, 0.93, "cosimo resume repeats one step,\nchecks it bit by bit, and continues", ha="right", color=BLUE
    )
    axes.annotate("", (12, 1.15), xytext=(12, 2.0), arrowprops={"arrowstyle": "->", "color": GREY})
    return figure


def structure() -> Figure:
    """The system of the scenario on the page: units and connections."""
    figure, (axes,) = wide()
    boxes(axes, [(0.6, 1.1, 2.6, "chassis", BLUE), (6.8, 1.1, 2.6, "wheel", BLUE)])
    for y, text, ends in ((1.7, "wheel.position, wheel.velocity", "<-"), (1.25, "chassis.force", "->")):
        axes.annotate("", (6.65, y), xytext=(3.35, y), arrowprops={"arrowstyle": ends, "color": GREY})
        axes.text(5.0, y + 0.08, text, ha="center")
    axes.annotate("", (8.1, 2.05), xytext=(8.1, 2.7), arrowprops={"arrowstyle": "->", "color": GREY})
    axes.text(8.25, 2.4, "road: external input")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "two-mass": two_mass,
    "step-size": step_size,
    "pilots": pilots,
    "symptoms": symptoms,
    "controller": controller,
    "results": results,
    "compensation": compensated,
    "adaptive": adaptive,
    "prediction": prediction,
    "study": study,
    "federation": federation,
    "isolation": isolation,
    "checkpoint": checkpoint,
    "structure": structure,
}
"""Name of the file, and what draws it."""


def main(folder: Path, names: tuple[str, ...] = tuple(PICTURES)) -> None:
    """Write the pictures; equal input gives equal files."""
    with mpl.rc_context(STYLE):
        for name in names:
            PICTURES[name]().savefig(folder / f"{name}.svg", transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
