"""The first step size at which a master becomes unstable, coming from small steps.

Stability sets are not intervals: beyond the first crossing of ρ(Φ) = 1 a master may well be stable again. What is
reported is the first crossing, found on a grid and then refined. Modes at rest (`cosimo.analysis.rest`) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis.rest import moving_radius
from cosimo.analysis.spectrum import ROUNDING, Spectrum
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System

MARGINAL = 1e-13
"""How far a radius must lie under 1 to count as decay and not as rounding."""
POINTS = 240
"""Grid points per search; with six decades they lie 6 % apart."""


@dataclass(frozen=True)
class CriticalStep:
    """`step`: the first crossing; 0: unstable already at `searched[0]`; infinite: stable up to `searched[1]`."""

    step: float
    searched: tuple[float, float]


def critical_step(system: System, master: Master) -> CriticalStep | None:
    """The first crossing of `master` (its own step only sets the scale); None where the exact system is unstable."""
    linear = LinearSystem(system, master)
    spectrum = Spectrum(linear)
    if not spectrum.exact_stable:
        return None
    if linear.sparse:
        return _large(system, master)
    fastest = float(np.abs(spectrum.poles).max(initial=0.0)) or 1.0 / master.step
    grid = np.geomspace(min(1e-4 / fastest, master.step), max(100.0 / fastest, 10 * master.step), POINTS)

    def radii(steps: Array) -> Array:
        if not spectrum.rest.count:
            return Batch(system, master, steps).spectral_radius()
        Phi = Batch(system, master, steps).linear.cycle.matrix
        maps = np.broadcast_to(Phi, (len(steps), *Phi.shape[-2:]))
        return np.array([moving_radius(one, spectrum.rest, h) for one, h in zip(maps, steps.tolist(), strict=True)])

    radius = radii(grid)
    unstable = np.flatnonzero(radius > 1 + ROUNDING)
    searched = (float(grid[0]), float(grid[-1]))
    if not len(unstable):
        return CriticalStep(np.inf, searched)
    first = int(unstable[0])
    # Below the first step that is clearly unstable, a radius that never falls under 1 is growth too small to be seen
    # (it vanishes with a power of h), not stability.
    decaying = np.flatnonzero(radius[:first] < 1 - MARGINAL)
    if not len(decaying):
        return CriticalStep(0.0, searched)

    def excess(h: float) -> float:
        return float(radii(np.array([h]))[0]) - 1

    return CriticalStep(float(brentq(excess, grid[decaying[-1]], grid[first], rtol=1e-12)), searched)


def _large(system: System, master: Master) -> CriticalStep:
    """For large systems each radius is costly: octaves around the given step, then bisection to 1 %."""

    def stable(h: float) -> bool:
        return Spectrum(LinearSystem(system, master.with_step(h))).stable

    octaves = [master.step * 2.0**power for power in range(-3, 4)]
    below = 0.0
    for h in octaves:
        if stable(h):
            below = h
            continue
        if below == 0.0:
            break
        above = h
        while above / below > 1.01:
            middle = (above * below) ** 0.5
            below, above = (middle, above) if stable(middle) else (below, middle)
        return CriticalStep(below, (octaves[0], octaves[-1]))
    return CriticalStep(np.inf if below else 0.0, (octaves[0], octaves[-1]))
