"""The figures of glumac2018 that show results of the analysis, and one beyond it. Fig. 3 is part of that one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import spearmanr

from cosimo import masters
from cosimo.algebra.batch import Batch, Consistency
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.error_norms import consistency, global_error
from cosimo.analysis.spectrum import Spectrum
from cosimo.compensation.target import rebuild, require_linear
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import Unit
from cosimo.execution.running import run
from cosimo.papers import Picture
from cosimo.papers.glumac2018 import exact_outputs, figure_6, paper_masters, pareto_front
from cosimo.problems.masses import two_mass_glumac
from cosimo.reporting.pictures import BLUE, DARK, GREEN, GREY, PURPLE, VERMILION, legend, letter, panels
from cosimo.tuning.goals import Stability
from cosimo.units import StateSpace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MASTERS: dict[str, dict[str, Any]] = {
    "Seidel12": {"color": VERMILION, "linewidth": 2.6},
    "Seidel21": {"color": "#000000", "linewidth": 1.0, "linestyle": (0, (4, 3))},
    "Control12": {"color": BLUE, "linewidth": 1.4},
    "Control21": {"color": GREEN, "linewidth": 1.4, "linestyle": (0, (6, 2))},
}
PAPER_STEP = 9.0
EVALUATIONS = 5000
RING, RING_STEP = 5, 0.1
"""Units of the system whose calling orders are compared, and its macro step in seconds."""
HORIZON = 20.0
"""Seconds that errors are followed."""
STARTS = 15


def pictures(*, evaluations: int = EVALUATIONS, points: int = 300) -> Iterator[Picture]:
    """All figures; fronts are searched with so many `evaluations`, curves have so many `points`."""
    yield Picture("fig-04-radius-over-coupling", over_coupling(points))
    yield Picture("fig-05-radius-and-consistency-over-step", over_step(points))
    yield Picture("fig-06-front-control21", front_control21(evaluations))
    yield Picture("fig-07-front-control12", front_control12(evaluations))
    yield Picture("beyond-predictors", predictors())


def over_coupling(points: int) -> Figure:
    """ρ over the stiffness and over the damping of the coupling, at h = 9."""
    figure, axes = panels(1, 2, size=(8.6, 3.8), sharey=True)
    values = np.logspace(-5, 5, points)
    for number, (parameter, label) in enumerate((("ck", "coupling stiffness $c_k$"), ("dk", "coupling damping $d_k$"))):
        systems = [two_mass_glumac(**{parameter: float(value)}) for value in values]
        nominal = two_mass_glumac()
        for name, line in MASTERS.items():
            master = paper_masters(nominal, PAPER_STEP)[name]
            found = Batch(nominal, master, systems=systems, which=np.arange(points), **_gains(master))
            axes[number].plot(values, found.spectral_radius(), label=name, **line)
        _edge(axes[number])
        axes[number].set(xscale="log", xlabel=label, ylim=(0, 2), title=letter(number, f"h = {PAPER_STEP:g} s"))
    axes[0].set_ylabel("ρ(Φ)")
    legend(figure, axes[0])
    return figure


def over_step(points: int) -> Figure:
    """ρ and δ over the step, with ρ of the exact system: below it the damping is spurious."""
    figure, axes = panels(1, 2, size=(8.6, 3.8))
    system, steps = two_mass_glumac(), np.geomspace(1e-2, 20, points)
    for name, line in MASTERS.items():
        master = paper_masters(system, 1.0)[name]
        table = Batch(system, master, steps=steps, **_gains(master)).compute(Stability(), Consistency(2, 2))
        axes[0].plot(steps, table["spectral_radius"], label=name, **line)
        axes[1].plot(steps, table["consistency"], **line)
    growth = np.linalg.eigvals(LinearSystem(system, masters.jacobi(system, 1.0)).coupled.A).real.max()
    axes[0].plot(steps, np.exp(growth * steps), color=GREY, linewidth=3, zorder=1.5, label="exact system")
    _edge(axes[0])
    axes[0].set(
        xscale="log", xlabel="macro step h / s", ylabel="ρ(Φ)", ylim=(0, 1.5), title=letter(0, "spectral radius")
    )
    axes[1].set(xscale="log", yscale="log", xlabel="macro step h / s", title=letter(1, "consistency δ (k = 2, 2-norm)"))
    legend(figure, axes[0], columns=5)
    return figure


def front_control21(evaluations: int) -> Figure:
    """The grid of the paper in the plane of its parameters with its front, and the front that the search finds."""
    alpha, h, rho, delta = figure_6()
    inside = alpha < 1
    front = pareto_front(np.column_stack([rho[inside].ravel(), delta[inside].ravel()])).reshape(-1, len(h))
    figure, axes = panels(1, 2, size=(9.2, 3.9))
    drawn = axes[0].pcolormesh(h, alpha[inside], rho[inside], cmap="viridis", shading="nearest")
    figure.colorbar(drawn, ax=axes[0], label="ρ(Φ)")
    axes[0].contour(h, alpha[inside], rho[inside], levels=[1.0], colors="white", linewidths=1.0)
    rows, columns = np.nonzero(front)
    axes[0].plot(h[columns], alpha[inside][rows], ".", color=VERMILION, markersize=4, clip_on=False)
    axes[0].set(
        xscale="log",
        xlabel="macro step h / s",
        ylabel="gain α",
        title=letter(0, "10,000 points, their front, and ρ = 1 in white"),
    )
    brute = np.column_stack([rho[inside][front], delta[inside][front]])
    _objectives(axes[1], brute, _searched(("two", "one"), ("two.F",), evaluations), evaluations)
    axes[1].set_title(letter(1, "Control21 in (ρ, δ)"))
    axes[1].legend(loc="upper right")
    return figure


def front_control12(evaluations: int) -> Figure:
    """The front in (ρ, δ) of a grid of 10,000 points, and the one that the search finds."""
    system, gains = two_mass_glumac(), np.linspace(0, 0.99, 10)
    steps = np.geomspace(1e-3, 10, 100)
    master = paper_masters(system, 1.0)["Control12"]
    axes_of = {"one.x": gains[:, None, None], "one.v": gains[None, :, None]}
    table = Batch(system, master, steps=steps, gains=axes_of).compute(Stability(), Consistency(2, 2))
    grid = np.column_stack([table["spectral_radius"].ravel(), table["consistency"].ravel()])
    figure, (axes,) = panels(1, 1, size=(5.6, 3.9))
    _objectives(axes, grid[pareto_front(grid)], _searched(("one", "two"), ("one.x", "one.v"), evaluations), evaluations)
    axes.set_title("Control12 in (ρ, δ)")
    axes.legend(loc="upper right")
    return figure


def predictors() -> Figure:
    """What δ, ρ and the predicted error say of the errors of runs: over masters and steps, and over calling orders."""
    from cosimo.tuning import orientations

    figure, axes = panels(2, 3, size=(9.6, 5.8), sharey="row")
    system, network = two_mass_glumac(), ring()
    tried = [paper_masters(system, h)[name] for h in np.geomspace(0.02, 2.0, 12).tolist() for name in MASTERS]
    orders = [masters.gauss_seidel(network, RING_STEP, order=order) for order in orientations(network)]
    studies = (("4 masters, 12 steps", system, tried), (f"{len(orders)} orders of {RING} units", network, orders))
    for row, (title, whole, some) in enumerate(studies):
        measured, columns = study(whole, some)
        for place, (label, values) in enumerate(columns.items()):
            panel = axes[3 * row + place]
            panel.plot(values, measured, "o", color=(VERMILION, PURPLE, BLUE)[place], markersize=4, alpha=0.8)
            correlation = float(spearmanr(values, measured).statistic)
            said = f"{title}: rank corr. {correlation:+.2f}".replace("-", "−")
            panel.set(xlabel=label, title=letter(3 * row + place, said), yscale="log")
            panel.title.set_fontsize(9)
            if row == 0 and label != "spectral radius ρ":
                panel.set_xscale("log")
        axes[3 * row].set_ylabel("error of runs")
    return figure


def ring() -> System:
    """Units of second order in a ring, each coupled with both neighbours; some feed their inputs through."""
    rng = np.random.default_rng(RING)
    units: dict[str, Unit] = {}
    for i in range(RING):
        rate, through = rng.uniform(0.5, 4.0), 0.4 * (i % 2)
        A, B, C = [[0.0, 1.0], [-(rate**2), -rate]], np.vstack([np.zeros(2), rng.uniform(0.3, 1.2, 2)]), [[1.0, 0.0]]
        units[f"u{i}"] = StateSpace(A, B, C, [[through, 0.0]], inputs=["left", "right"], outputs=["y"])
    connections = [(f"u{(i - 1) % RING}.y", f"u{i}.left") for i in range(RING)]
    connections += [(f"u{(i + 1) % RING}.y", f"u{i}.right") for i in range(RING)]
    return System(units, connections, name="ring")


def study(system: System, tried: Sequence[Master]) -> tuple[Array, dict[str, Array]]:
    """Errors of runs (median over random starts of max ‖y_k − y(t_k)‖ / max ‖y(t_k)‖), and what is known before."""
    steps = [max(1, round(HORIZON / master.step)) for master in tried]
    linear = [LinearSystem(system, master) for master in tried]
    measured = [_measured(one, count) for one, count in zip(linear, steps, strict=True)]
    errors = [global_error(one, steps=count).relative for one, count in zip(linear, steps, strict=True)]
    return np.array(measured), {
        "consistency δ": np.array([consistency(one, k=2, norm=2) for one in linear]),
        "spectral radius ρ": np.array([Spectrum(one).radius for one in linear]),
        "predicted global error, any start": np.array(errors),
    }


def _measured(linear: LinearSystem, steps: int) -> float:
    system, h = linear.system, linear.master.step
    rng, widths = np.random.default_rng(0), [len(unit.initial_state) for unit in system.units.values()]
    found = []
    for _ in range(STARTS):
        x = rng.normal(size=sum(widths))
        parts = np.split(x, np.cumsum(widths)[:-1])
        units = {
            name: rebuild(unit, initial=part)
            for (name, unit), part in zip(require_linear(system).items(), parts, strict=True)
        }
        result = run(System(units, system.connections), linear.master, stop=steps * h)
        rows = result.values[:, [result.names.index(name) for name in system.outputs]]
        exact = exact_outputs(linear, x, steps + 1)
        off = np.linalg.norm(rows - exact, axis=1).max()
        found.append(float(off / np.linalg.norm(exact, axis=1).max()))
    return float(np.median(found))


def _searched(order: tuple[str, ...], targets: Sequence[str], evaluations: int) -> Array:
    from cosimo.tuning import Range, Space, tune

    space = Space(
        steps=Range(1e-3, 10.0),
        families=("gauss-seidel",),
        order=order,
        kinds=(0,),
        couplings=dict.fromkeys(targets, ("nepce",)),
        gains=Range(0.0, 0.99),
    )
    return tune(two_mass_glumac(), space, ("radius", "defect"), evaluations=evaluations, horizon=HORIZON).values


def _objectives(axes: Axes, brute: Array, searched: Array, evaluations: int) -> None:
    axes.plot(
        *searched[searched[:, 0].argsort()].T, ".", color=BLUE, markersize=4, label=f"search, {evaluations:,} points"
    )
    axes.plot(
        *brute[brute[:, 0].argsort()].T, "o", color=VERMILION, markersize=3.5, fillstyle="none", label="grid, 10,000"
    )
    axes.set(xlabel="ρ(Φ)", ylabel="δ")


def _edge(axes: Axes) -> None:
    axes.axhline(1.0, color=DARK, linewidth=0.8)


def _gains(master: Master) -> dict[str, Any]:
    return {"gains": {target: coupling.alpha for target, coupling in master.couplings.items()}}  # type: ignore[attr-defined]
