"""Poles in the complex plane: monolithic, and co-simulated without and with compensation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from cosimo.core.arrays import ComplexArray
from cosimo.papers.assignment import Assignment
from cosimo.papers.figures.style import DARK, LABELS, MARKERS, VERMILION
from cosimo.papers.laplace import LaplaceModel
from cosimo.papers.roots import Region

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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


def loci(model: LaplaceModel) -> ComplexArray:
    """The primary poles while the macro step grows from 0 (monolithic) to its value, (steps, modes)."""
    steps = model.step * np.arange(1, POINTS + 1) / POINTS
    start = np.array([[pole.monolithic for pole in model.primary_poles()]])
    return np.vstack([start, model.sweep(steps.tolist())])


def draw_primary_poles(axes: Axes, assignment: Assignment, *, compensated: bool = True) -> None:
    """Both halves of the plane; a thin line is the way of a pole as the macro step grows from 0."""
    poles = primary_poles(assignment, compensated=compensated)
    paths = loci(assignment.stiffness.laplace)
    for path in [*paths.T, *paths.conj().T]:
        axes.plot(path.real, path.imag, color=VERMILION, linewidth=0.9, alpha=0.7, zorder=2)
    draw_markers(axes, poles)
    _annotate(axes, poles["without compensation"], poles["monolithic"])
    everything = np.concatenate(list(poles.values()))
    _limits(axes, everything)
    axes.set(xlabel=REAL, ylabel=IMAGINARY)


def draw_markers(axes: Axes, poles: Mapping[str, ComplexArray]) -> None:
    """Each kind of pole with its marker, conjugates included."""
    for name, values in poles.items():
        both = np.concatenate([values, values.conj()])
        axes.plot(both.real, both.imag, linestyle="none", label=LABELS[name], zorder=3, **MARKERS[name])


def latent_roots(assignment: Assignment, *, compensated: bool) -> dict[str, ComplexArray]:
    """All roots, primary and latent, in −12 ≤ Re s T ≤ 3, |Im s T| ≤ 32: as many as the argument principle counts."""
    T = assignment.stiffness.step
    # Odd edges: roots like to lie on even ones.
    region = Region(-12.017 / T, 3.011 / T, -32.031 / T, 32.03 / T)
    found = {"without compensation": assignment.stiffness.laplace.roots(region)}
    if compensated:
        found["with compensation"] = assignment.roots(region)
    return found


def draw_latent_roots(axes: Axes, assignment: Assignment, *, compensated: bool) -> None:
    """Latent roots around the primary poles, which at this scale lie together at the origin."""
    T = assignment.stiffness.step
    monolithic = primary_poles(assignment, compensated=False)["monolithic"]
    draw_markers(axes, {"monolithic": monolithic})
    for name, roots in latent_roots(assignment, compensated=compensated).items():
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
