"""The first crossing of ρ = 1 for systems that also have modes at rest.

What integrates and is not fed back (a meter, a vehicle on a plane) keeps an eigenvalue 1 at every step. It neither
decays nor grows, and says nothing about the coupling; it is left out before the largest eigenvalue is looked for.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis import CriticalStep, Spectrum, critical_step
from cosimo.analysis.critical import MARGINAL, POINTS
from cosimo.analysis.spectrum import ROUNDING
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.master import Master
from cosimo.core.system import System

AT_REST = 1e-9
"""Poles of the coupled system below this share of the fastest one are at rest."""
NEAR_ONE = 1e-4
"""How far from 1 the eigenvalues of several modes at rest may lie, by rounding."""


def first_crossing(system: System, master: Master) -> CriticalStep | None:
    """As `cosimo.analysis.critical_step`, which is used where no mode is at rest."""
    spectrum = Spectrum(LinearSystem(system, master))
    resting = modes_at_rest(spectrum)
    if not resting or not spectrum.exact_stable:
        return critical_step(system, master)
    fastest = float(np.abs(spectrum.poles).max(initial=0.0)) or 1.0 / master.step
    grid = np.geomspace(min(1e-4 / fastest, master.step), max(100.0 / fastest, 10 * master.step), POINTS)
    searched = (float(grid[0]), float(grid[-1]))
    radius = moving_radius(np.linalg.eigvals(Batch(system, master, grid).linear.cycle.matrix), resting)
    unstable = np.flatnonzero(radius > 1 + ROUNDING)
    if not len(unstable):
        return CriticalStep(math.inf, searched)
    decaying = np.flatnonzero(radius[: unstable[0]] < 1 - MARGINAL)
    if not len(decaying):
        return CriticalStep(0.0, searched)

    def excess(h: float) -> float:
        values = np.linalg.eigvals(Batch(system, master, np.array([h])).linear.cycle.matrix)
        return float(moving_radius(values, resting)[0]) - 1

    return CriticalStep(float(brentq(excess, grid[decaying[-1]], grid[unstable[0]], rtol=1e-12)), searched)


def modes_at_rest(spectrum: Spectrum) -> int:
    """How many poles of the coupled system are 0."""
    speeds = np.abs(spectrum.poles)
    return int((speeds <= AT_REST * speeds.max(initial=0.0)).sum()) if speeds.any() else 0


def moving_radius(values: ComplexArray, resting: int) -> Array:
    """The largest of eigenvalues (…, n) without the `resting` ones nearest to 1, where these are near it."""
    away = np.abs(values - 1)
    order = np.argsort(away, axis=-1)[..., :resting]
    nearest = np.take_along_axis(away, order, axis=-1)
    sizes = np.abs(values)
    np.put_along_axis(sizes, order, np.where(nearest <= NEAR_ONE, 0.0, np.take_along_axis(sizes, order, -1)), axis=-1)
    largest: Array = sizes.max(axis=-1)
    return largest
