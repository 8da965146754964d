"""The first step size at which a master becomes unstable, coming from small steps.

Stability sets are not intervals: beyond the first crossing of ρ(Φ) = 1 a master may well be stable again. What is
reported is the first crossing, found on a grid and then refined. Modes at rest (`cosimo.analysis.stability`) are left
out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.algebra.batch import Batch
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import IDENTIFIED, ROUNDING, is_stable, moving_radii
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System

MARGINAL = 1e-13
"""How far a radius must lie under 1 to count as decay and not as rounding."""
NEUTRAL = 1e-12
"""How near to 1 an eigenvalue must be in size, at every step, to belong to motion that the coupling does not touch."""
AT_ONCE, FINE = 1e3, 1e-9
"""How many times the tolerance a radius grows to from one grid point to the next that was 1 all the way before, and no
growth that vanishes with a power of h: motion that is neither damped nor fed, until it grows at once. How near that is
sought, relative."""
POINTS = 240
"""Grid points per search; with six decades they lie 6 % apart."""
CROSSING, SECTIONS = 1e-12, 32
"""How near a crossing is sought, relative, and into how many parts each round divides: maps of many steps at once cost
little more than of one."""


@dataclass(frozen=True)
class CriticalStep:
    """`step`: the first crossing; 0: unstable already at `searched[0]`; infinite: stable up to `searched[1]`.

    Where it was measured, in runs to the time `until`, it lies `between` two steps: at the first, which is `step`, runs
    fade, at the second they grow.
    """

    step: float
    searched: tuple[float, float]
    between: tuple[float, float] | None = None
    until: float | None = None


def critical_step(system: System, master: Master, *, identified: bool = False) -> CriticalStep | None:
    """The first crossing of `master` (its own step only sets the scale); None where the exact system is unstable.

    Radii of units that were `identified` are known less well.
    """
    search = EigenvalueSizes(system, master)
    spectrum = search.spectrum
    if not spectrum.exact_stable:
        return None
    if spectrum.linear.sparse:
        return _large(system, master)
    fastest = float(np.abs(spectrum.poles).max(initial=0.0)) or 1.0 / master.step
    grid = np.geomspace(min(1e-4 / fastest, master.step), max(100.0 / fastest, 10 * master.step), POINTS)

    values = search.sizes(grid)
    radius = values[:, 0]
    unstable = np.flatnonzero(~is_stable(radius, identified=identified) & ~np.isnan(radius))
    searched = (float(grid[0]), float(grid[-1]))
    if not len(unstable):
        return CriticalStep(np.inf, searched)
    first = int(unstable[0])
    neutral = 0
    # Below the first step that is clearly unstable, a radius that never falls under 1 is growth too small to be seen
    # (it vanishes with a power of h), not stability; unless it is 1 all the way, as of an undamped generator that
    # nothing feeds: such eigenvalues say nothing of the coupling and are left out.
    if not (radius[:first] < 1 - MARGINAL).any():
        neutral = int((np.abs(values[: first + 1] - 1) <= NEUTRAL).sum(axis=1).min())
    below = search.without(values, neutral)
    decaying = np.flatnonzero(below[:first] < 1 - MARGINAL)
    if not len(decaying):
        slack = ROUNDING + (IDENTIFIED if identified else 0.0)
        if not first or radius[first] - 1 <= AT_ONCE * slack:
            return CriticalStep(0.0, searched)
        low, high = float(grid[first - 1]), float(grid[first])
        while high / low > 1 + FINE:
            middle = (low * high) ** 0.5
            stable = is_stable(search.sizes(np.array([middle]))[0, 0], identified=identified)
            low, high = (middle, high) if stable else (low, middle)
        return CriticalStep(low, searched)

    low, high = float(grid[decaying[-1]]), float(grid[first])
    while high / low > 1 + CROSSING:
        within = np.geomspace(low, high, SECTIONS + 1)
        beyond = search.without(search.sizes(within[1:-1]), neutral) >= 1
        place = int(beyond.argmax()) if beyond.any() else SECTIONS - 1
        low, high = float(within[place]), float(within[place + 1])
    return CriticalStep(low, searched)


class EigenvalueSizes:
    """The sizes of all eigenvalues of Φ at many steps, those of modes at rest left out."""

    def __init__(self, system: System, master: Master) -> None:
        self.spectrum = Spectrum(LinearSystem(system, master))
        self._batch = None if self.spectrum.linear.sparse else Batch(system, master, series=False)

    def sizes(self, steps: Array) -> Array:
        """(N, n), largest first; NaN at steps at which the master has no map (an iteration without fixed point).

        Of large systems, whose maps a batch would keep as full matrices, the largest alone.
        """
        linear, rest = self.spectrum.linear, self.spectrum.rest
        if self._batch is None:
            large = (LinearSystem(linear.system, linear.master.with_step(h)) for h in steps.tolist())
            return np.array([[Spectrum(one).moving_radius] for one in large])
        maps = self._batch.again(steps).maps
        known = np.isfinite(maps).all(axis=(-2, -1))
        if rest.count:
            sizes = moving_radii(maps[known], rest, steps[known])[:, None]
        else:
            sizes = -np.sort(-np.abs(np.linalg.eigvals(maps[known])), axis=-1)
        found = np.full((len(steps), max(1, sizes.shape[-1])), np.nan)
        found[known] = sizes if sizes.shape[-1] else 0.0
        return found

    @staticmethod
    def without(sizes: Array, neutral: int) -> Array:
        """The largest size (N,) when the `neutral` ones nearest to 1 are left out."""
        if not neutral:
            return np.array(sizes[:, 0])
        order = np.argsort(np.abs(sizes - 1), axis=1)[:, neutral:]
        left = np.take_along_axis(sizes, order, axis=1)
        return np.asarray(left.max(axis=1, initial=0.0))


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
