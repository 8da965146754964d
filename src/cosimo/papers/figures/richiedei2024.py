"""The figures of richiedei2024: poles, speeds and energy of motor, gearbox and load."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from cosimo.papers.assignment import assign
from cosimo.papers.figures.histories import Signal, draw_energy, draw_signal, end_of
from cosimo.papers.figures.picture import Picture
from cosimo.papers.figures.poles import draw_primary_poles
from cosimo.papers.figures.style import legend, letter, panels
from cosimo.papers.mechanics import Motion, energy
from cosimo.papers.richiedei2024 import STEP, motions
from cosimo.papers.stiffness import DynamicStiffness
from cosimo.problems.plants import motor_gearbox

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAGNIFIED = 0.05
"""Length of the magnified view at the end, in seconds."""


def pictures() -> Iterator[Picture]:
    """All figures."""
    yield Picture("fig-03-dominant-poles", dominant_poles())
    found = {name: motion for name, motion in motions().items() if name != "exact"}
    yield Picture("fig-04-motor-speed", speed(found, 0, "motor speed"))
    yield Picture("fig-05-load-speed", speed(found, 1, "load speed"))
    yield Picture("fig-06-energy", energies(found))


def dominant_poles() -> Figure:
    """Fig. 3: the primary poles, monolithic and co-simulated without and with compensation."""
    figure, (axes,) = panels(1, 1, size=(7.2, 4.8))
    draw_primary_poles(axes, assign(DynamicStiffness(motor_gearbox(), STEP)).require())
    axes.set_title("motor, gearbox and load, 0.1 ms")
    legend(figure, axes, columns=3)
    return figure


def speed(found: dict[str, Motion], coordinate: int, name: str) -> Figure:
    """Figs. 4 and 5: one speed over the run, and at its end."""
    figure, axes = panels(1, 2, size=(9.8, 3.6), width_ratios=[1.5, 1])
    time = found["monolithic"].time
    signal = Signal(name, "rad s⁻¹", {kind: motion.velocities[:, coordinate] for kind, motion in found.items()})
    stop = end_of(time)
    for number, window in enumerate(((0.0, stop), (stop - MAGNIFIED, stop))):
        draw_signal(axes[number], time, signal, window)
        axes[number].set_title(letter(number, name + (", magnified view" if number else "")))
    legend(figure, axes[0])
    return figure


def energies(found: dict[str, Motion]) -> Figure:
    """Fig. 6: the mechanical energy."""
    figure, (axes,) = panels(1, 1, size=(7.2, 3.9))
    system = motor_gearbox()
    draw_energy(axes, found["monolithic"].time, {kind: energy(system, motion) for kind, motion in found.items()})
    axes.set_title("motor, gearbox and load, 0.1 ms")
    legend(figure, axes)
    return figure
