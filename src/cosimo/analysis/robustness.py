"""A radius that may be compared across step sizes: how much faster, or stronger, may units be?

Every unit i gets two factors, the same for every master and every step, and independent of coordinates:

    rate   ẋ_i = a_i (A_i x_i + B_i u_i)          the unit's whole generator; the same as a step of a_i h
    gain   y_i = b_i (C_i x_i + D_i u_i)          the strength of its response

The relative radius is the smallest s such that factors in [1/(1 + s), 1 + s] bring ρ to 1 (first crossing). It does not
reward spurious damping: all rates times 1 + s is the step h (1 + s), so that the radius at step h is at most h*/h − 1,
with h* the next step at which the master becomes unstable, however small ρ is at h. Units that are passive stay so
under both changes, so that passive units in a lossless coupling lose their stability only by the co-simulation.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, TypedDict

import numpy as np

from cosimo.algebra.backends import Backend
from cosimo.algebra.batched_map import BatchedMap, MasterNumbers, SharedSchedule
from cosimo.algebra.product import LinearSystem
from cosimo.algebra.spectral_radius import spectral_radii
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import LARGEST_STABLE, NEAR_ONE, find_rest, is_stable, moving_radii
from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.system import System, components

Change = Literal["rate", "gain"]
ALL_SIGNS_UP_TO = 6
"""Number of factors up to which every combination of growing, staying and shrinking is searched."""
WORK = 2_000_000
"""Numbers of Φ held at once while many changes are evaluated."""
DIFFERENCE = 1e-4
"""Change of the logarithm of a factor for derivatives of ρ and Φ, good to its square."""


class RescaledRadii:
    """ρ(Φ) of a master for many factors on rates and gains of units, `names` saying which; overflow counts as infinite.

    Modes at rest do not count (`cosimo.analysis.stability`): other rates and gains leave poles at 0 where they are.
    """

    def __init__(self, system: System, master: Master, names: Sequence[tuple[Change, str]]) -> None:
        self.names, self.step, self.backend = names, master.step, Backend()
        self.schedule = SharedSchedule([system], master)
        self.rest = find_rest(self.schedule.linear[0].coupled.A)
        width = sum(map(self.schedule.layout.width, self.schedule.carried))
        self.most = max(1, WORK // max(1, width**2))

    def __call__(self, factors: Array) -> Array:
        """ρ for factors (N, k) on the k rates and gains."""
        parts = [factors[begin : begin + self.most] for begin in range(0, len(factors), self.most)]
        return np.concatenate([self._radii(part) for part in parts])

    def slopes(self, factors: Array) -> Array:
        """d ln ρ / d ln f of every factor (k,) at one point, from the eigenvectors of the largest eigenvalue λ:

            d ln ρ = Re(w dΦ v / λ),    Φ v = λ v,  w Φ = λ w,  w v = 1.

        Modes at rest do not count. Zeros where there are none: Φ is not finite, or λ has no eigenvector of its own.
        """
        Phi = self._maps(factors[None])[:, :, 0]
        if not np.isfinite(Phi).all() or not Phi.size:
            return np.zeros(len(factors))
        values, right = np.linalg.eig(Phi)
        size, still = np.abs(values), np.abs(values - 1)
        resting = np.argsort(still)[: self.rest.count]
        size[resting[still[resting] < NEAR_ONE]] = 0.0
        place = int(size.argmax())
        try:
            left = np.linalg.inv(right)[place]
        except np.linalg.LinAlgError:
            return np.zeros(len(factors))
        shift, found = np.exp(DIFFERENCE * np.eye(len(factors))), []
        for begin in range(0, len(factors), self.most):
            up, down = (self._maps(other[begin : begin + self.most]) for other in (factors * shift, factors / shift))
            moved = np.einsum("i,ijk,j->k", left, up - down, right[:, place]) / (2 * DIFFERENCE)
            found.append((moved / values[place]).real if values[place] else np.zeros(len(moved)))
        slope = np.concatenate(found)
        return np.where(np.isfinite(slope), slope, 0.0)

    def _maps(self, factors: Array) -> Any:
        of: dict[Change, dict[str, Array]] = {"rate": {}, "gain": {}}
        for (change, unit), column in zip(self.names, factors.T, strict=True):
            of[change][unit] = column
        variation = MasterNumbers(np.full(len(factors), self.step), rates=of["rate"], strengths=of["gain"])
        with self.backend.quiet():
            return BatchedMap(self.schedule, variation, self.backend).cycle

    def _radii(self, factors: Array) -> Array:
        Phi, steps = self._maps(factors), np.full(len(factors), self.step)
        rho: Array = spectral_radii(Phi, self.backend, limit=LARGEST_STABLE).value
        if self.rest.count and (near := np.abs(rho - 1) < NEAR_ONE).any():
            rho[near] = moving_radii(np.moveaxis(Phi[:, :, near], -1, 0), self.rest, steps[near])
        return rho


def relative_radius(
    system: System,
    master: Master,
    *,
    changes: Sequence[Change] = ("rate", "gain"),
    units: Sequence[str] | None = None,
    limit: float = 9.0,
    norm: Norm = "box",
    shells: int = 48,
) -> Crossing:
    """The smallest change s of the units' rates and gains (factors within 1/(1 + s) … 1 + s) at which ρ crosses 1.

    `changes` and `units` say what may change. Searched are, up to six factors, all combinations of growing, staying
    and shrinking, and the best of these is improved; beyond, all rates or gains together, the signs of the gradient of
    ρ, there and where it crosses 1, and each factor alone that is unstable at the size found so. What is and is not
    guaranteed is that of `first_crossing`; in addition the result is never above h*/h − 1, with h* the next unstable
    step of the same spacing, if all rates may change.

    >>> from cosimo import masters
    >>> from cosimo.problems import two_mass_glumac
    >>> system = two_mass_glumac()
    >>> for h in (1.0, 4.0, 8.0):
    ...     print(h, round(relative_radius(system, masters.gauss_seidel(system, h)).change, 3))
    1.0 1.144
    4.0 0.259
    8.0 0.098
    """
    units = system.names if units is None else tuple(units)
    for name in units:
        if name not in system.units:
            raise UnknownNameError("unit", name, system.units)
    if not units or not changes or set(changes) - {"rate", "gain"}:
        raise ConfigurationError("a relative radius needs at least one unit and changes among 'rate' and 'gain'.")
    names: list[tuple[Change, str]] = [(change, unit) for change in changes for unit in units]
    radii = RescaledRadii(system, master, names)
    labels = tuple(f"{unit} {change}" for change, unit in names)
    options: _Options = {"limit": limit, "norm": norm, "shells": shells, "ahead": 7}
    if len(names) <= ALL_SIGNS_UP_TO:
        edges = frozenset((link.source.unit, link.target.unit) for link in system.links)
        return search(radii, labels, _combinations(system.names, edges, tuple(names)), **options)
    found = search(radii, labels, _selected(radii, names, limit), slopes=radii.slopes, **options)
    alone = np.concatenate([np.eye(len(names)), -np.eye(len(names))])
    if found.change > 0 and len(alone := alone[~is_stable(radii((1 + min(found.change, limit)) ** alone))]):
        other = search(radii, labels, alone, slopes=radii.slopes, **options)
        found = other if other.change < found.change else found
    return found


@lru_cache
def _combinations(
    own_names: tuple[str, ...], linked: frozenset[tuple[str, str]], names: tuple[tuple[Change, str], ...]
) -> Array:
    """Directions in which each factor of the units of one loop grows, stays or shrinks, once of those alike in ρ.

    Units in no common loop make Φ block triangular: each loop is searched by itself, and the gain of a unit that feeds
    none does not matter. Within a loop, x_i / d_i and u_i / d_i in place of x_i and u_i, and y_i / e_i in place of y_i,
    with e_i = d_j for all j that unit i feeds, make Φ that with gains b_i d_i / e_i: these have the same ρ.
    """
    units = {unit: number for number, unit in enumerate(own_names)}
    edges = {(units[source], units[target]) for source, target in linked}
    loops = components([*edges, *((number, number) for number in units.values())])
    found: dict[tuple[float, ...], Array] = {}
    for loop in loops:
        inner = sorted((source, target) for source, target in edges if source in loop and target in loop)
        own = [
            place
            for place, (change, unit) in enumerate(names)
            if units[unit] in loop and (change == "rate" or any(source == units[unit] for source, _ in inner))
        ]
        # ln b + shifts · ln d, where units that a common one feeds share their d.
        shared = {target: min(group) for group in _joined(inner) for target in group}
        shifts = np.zeros((len(units), len(units)))
        for source, target in dict(inner).items():
            shifts[source, shared[target]] += 1.0
            shifts[source, shared.get(source, source)] -= 1.0
        invariant = np.eye(len(units)) - shifts @ np.linalg.pinv(shifts)
        for signs in _signs(len(own)):
            direction, gains = np.zeros(len(names)), np.zeros(len(units))
            direction[own] = signs
            for place in own:
                if names[place][0] == "gain":
                    gains[units[names[place][1]]] = direction[place]
            rates = [direction[place] for place in own if names[place][0] == "rate"]
            key = (float(loop[0]), *rates, *(np.round(invariant @ gains, 9) + 0.0).tolist())
            if any(key[1:]):
                found.setdefault(key, direction)
    return np.array(list(found.values()) or np.eye(len(names))[:1])


def _joined(edges: Sequence[tuple[int, int]]) -> list[set[int]]:
    """Targets in groups: those of one source together, and with all that share one of them."""
    groups: list[set[int]] = []
    for source in {source for source, _ in edges}:
        targets = {target for own, target in edges if own == source}
        near = [group for group in groups if group & targets]
        groups = [group for group in groups if group not in near] + [targets.union(*near)]
    return groups


def _selected(radii: RescaledRadii, names: Sequence[tuple[Change, str]], limit: float) -> Array:
    """Directions for many factors: each kind together, and where ρ grows fastest."""
    kinds = [np.array([float(change == kind) for change, _ in names]) for kind in dict.fromkeys(c for c, _ in names)]
    found = [sum(s * kind for s, kind in zip(signs, kinds, strict=True)) for signs in _signs(len(kinds))]
    d = np.zeros(len(names))
    # The gradient of ρ, first without a change, then further out in the direction found before.
    for size in np.geomspace(0.05, max(0.1, limit / 3), 5):
        slope = radii.slopes((1 + size) ** d)
        if not slope.any():
            break
        d = np.sign(slope)
        found += [d, slope / np.abs(slope).max()]
    return np.unique(np.array(found), axis=0)


def _signs(count: int) -> list[tuple[float, ...]]:
    return [s for s in itertools.product((-1.0, 0.0, 1.0), repeat=count) if any(s)]


# ---- first crossing: the smallest change of some parameters at which ρ crosses 1, searched outwards along dire -------
# A change of size s in direction d makes each parameter p_i into p_i · (1 + s)^(d_i) ("factor": growing and shrinking
# by the same factor count alike) or p_i · (1 + s d_i) ("relative"). Directions have norm 1: the largest |d_i| ("box")
# or the root of the sum of squares ("ellipsoid"). Stability sets are not intervals and not convex; what is found is the
# *first* crossing along the directions searched: at every point tried below it ρ < 1, and between those nothing is
# proven.


Norm = Literal["box", "ellipsoid"]


class _Options(TypedDict):
    limit: float
    norm: Norm
    shells: int
    ahead: int


Build = Callable[[Mapping[str, float]], tuple[System, Master]]
"""A system and its master from values of named parameters."""
Scale = Literal["factor", "relative"]
Radii = Callable[[Array], Array]
"""ρ for an array of factors (N, k) on the k parameters."""
AT_ONCE = 128
"""Points of brackets that are evaluated in one call where many take hardly longer than few: of a small system, a call
costs as much as about so many points."""
PRECISION = 1e-9
"""How closely the size of a crossing is bracketed, relative to 1 + s."""


@dataclass(frozen=True)
class Crossing:
    """`change`: the size s of the first crossing (0: unstable from the start; infinite: none up to `limit`).

    `direction` and `factors` say which way and what the parameters are multiplied by there. `tried` points were
    evaluated along `directions` directions.
    """

    change: float
    direction: dict[str, float]
    factors: dict[str, float]
    limit: float
    directions: int
    tried: int

    def __str__(self) -> str:
        where = f"along {self.directions} searched directions ({self.tried} points)"
        if self.change == 0:
            return "unstable even without a change"
        if np.isinf(self.change):
            return f"no crossing up to a change of {self.limit:.0%} {where}"
        moved = ", ".join(f"{name} × {factor:.4g}" for name, factor in self.factors.items() if factor != 1)
        return f"first crossing at a change of {self.change:.2%} ({moved}) {where}"


def first_crossing(
    build: Build,
    parameters: Mapping[str, float],
    *,
    limit: float = 9.0,
    norm: Norm = "box",
    scale: Scale = "factor",
    shells: int = 48,
    resolution: int = 5,
) -> Crossing:
    """The smallest relative change of up to three named parameters at which ρ crosses 1, up to `limit`.

    `build` makes system and master from values of the parameters; `parameters` are the nominal ones. Directions: all
    points of a grid with `resolution` points per edge on the surface of the box; then the best one is improved.
    Points: `shells` sizes, evenly spaced in ln(1 + s), from the inside out, then bisection to 9 digits.

    Guaranteed: at the crossing returned ρ ≥ 1, just before it on the same line ρ < 1, and ρ < 1 at every point tried
    that lies further in. Not guaranteed: that no narrow island of instability lies between points that were tried.

    >>> from cosimo import masters
    >>> from cosimo.problems import two_mass_glumac
    >>> def build(p):
    ...     system = two_mass_glumac(**p)
    ...     return system, masters.gauss_seidel(system, 4.0)
    >>> print(first_crossing(build, {"ck": 1.0}))
    first crossing at a change of 73.93% (ck × 1.739) along 2 searched directions (51 points)
    """
    names = tuple(parameters)
    nominal = np.array([float(parameters[name]) for name in names])
    if not 1 <= len(names) <= 3:
        raise ConfigurationError(f"first_crossing searches one to three parameters, not {len(names)}.")
    for name, value in parameters.items():
        if not (np.isfinite(value) and value != 0):
            raise ConfigurationError(f"parameter '{name}' is {value}; a relative change needs a nonzero nominal value.")

    def radii(factors: Array) -> Array:
        values = [dict(zip(names, row.tolist(), strict=True)) for row in factors * nominal]
        return np.array([Spectrum(LinearSystem(*build(own))).radius for own in values])

    grid = np.linspace(-1, 1, resolution if len(names) > 1 else 2)
    directions = np.array([d for d in itertools.product(grid, repeat=len(names)) if max(map(abs, d)) == 1])
    return search(radii, names, directions, limit=limit, norm=norm, scale=scale, shells=shells)


def search(
    radii: Radii,
    names: tuple[str, ...],
    directions: Array,
    *,
    limit: float,
    norm: Norm = "box",
    scale: Scale = "factor",
    shells: int = 48,
    ahead: int = 1,
    slopes: Callable[[Array], Array] | None = None,
) -> Crossing:
    """The first crossing of ρ = 1 along `directions` (N, k), improved around the best of them.

    `ahead` shells, then twice as many and so on, and points of a bracket are evaluated in one call, for `radii` that
    take many as fast as few. Where the gradient of ρ is at hand (`slopes` of factors), it leads the improvement, before
    each component is moved.
    """
    if not limit > 0 or (scale == "relative" and limit >= 1):
        raise ConfigurationError(f"the limit of a change must be positive (and below 1 where relative), not {limit}.")
    walk = _Walk(radii, norm, scale, ahead)
    directions = walk.normed(directions)

    def result(change: float, d: Array) -> Crossing:
        factors = walk.factors(np.array([change]), d[None])[0] if np.isfinite(change) else np.full(len(names), np.nan)
        shown, there = (dict(zip(names, values.tolist(), strict=True)) for values in (d, factors))
        return Crossing(change, shown, there, limit, len(directions), walk.tried)

    if walk.unstable(np.zeros(1), directions[:1])[0]:
        return result(0.0, np.zeros(len(names)))
    sizes = np.expm1(np.linspace(0, np.log1p(limit), shells + 1))
    for begin, end in _portions(1, len(sizes), ahead):
        part = sizes[begin:end]
        lines = np.tile(directions, (len(part), 1))
        unstable = walk.unstable(np.repeat(part, len(directions)), lines).reshape(len(part), len(directions))
        for place in np.flatnonzero(unstable.any(axis=1))[:1].tolist():
            inner, outer, bad = sizes[begin + place - 1], part[place], directions[unstable[place]]
            crossed = walk.bisect(np.full(len(bad), inner), np.full(len(bad), outer), bad)
            first = int(crossed.argmin())
            change, d = float(crossed[first]), bad[first]
            if slopes is not None:
                change, d = walk.lead(slopes, change, d)
            return result(*walk.improve(change, d, at_once=slopes is None))
    return result(np.inf, np.zeros(len(names)))


def _portions(begin: int, end: int, count: int) -> Iterator[tuple[int, int]]:
    """From `begin` to `end` in portions, each twice as long as the one before; one by one where the first is one.

    >>> list(_portions(1, 33, 7))
    [(1, 8), (8, 22), (22, 33)]
    """
    while begin < end:
        yield begin, min(begin + count, end)
        begin, count = begin + count, count if count == 1 else 2 * count


class _Walk:
    """Evaluates points given by size and direction, and counts them."""

    def __init__(self, radii: Radii, norm: Norm, scale: Scale, ahead: int) -> None:
        if norm not in ("box", "ellipsoid") or scale not in ("factor", "relative"):
            raise ConfigurationError(
                f"a change is measured by 'box' or 'ellipsoid', not '{norm}', and is a 'factor' or "
                f"'relative', not '{scale}'."
            )
        self.radii, self.norm, self.scale, self.ahead, self.tried = radii, norm, scale, ahead, 0

    def normed(self, directions: Array) -> Array:
        """Directions of norm 1."""
        size = np.abs(directions).max(axis=1) if self.norm == "box" else np.linalg.norm(directions, axis=1)
        return np.asarray(directions / size[:, None])

    def factors(self, sizes: Array, directions: Array) -> Array:
        """What the parameters are multiplied by, (N, k)."""
        if self.scale == "relative":
            return np.asarray(1 + sizes[:, None] * directions)
        return np.asarray((1 + sizes)[:, None] ** directions)

    def unstable(self, sizes: Array, directions: Array) -> BoolArray:
        """Whether ρ ≥ 1 beyond rounding at each point; a ρ that is no number at all is refused."""
        rho = self.radii(self.factors(sizes, directions))
        self.tried += len(rho)
        if np.isnan(rho).any():
            raise ConfigurationError("the spectral radius of a changed system is not a number; check its parameters.")
        beyond: BoolArray = ~is_stable(rho)
        return beyond

    def bisect(self, low: Array, high: Array, directions: Array) -> Array:
        """Where stability turns into instability between stable `low` and unstable `high`, all lines at once.

        Each bracket is divided by `ahead` points at a time, by more where there are few lines, and its first unstable
        part is kept.
        """
        # Lines that can no longer have the smallest crossing are left as they are.
        while len(live := np.flatnonzero((low <= high.min()) & (high - low > PRECISION * (1 + low)))):
            count = self.ahead if self.ahead == 1 else max(self.ahead, AT_ONCE // len(live))
            points = low[live, None] + (high - low)[live, None] * (np.arange(1, count + 1) / (count + 1))
            bad = self.unstable(points.ravel(), np.repeat(directions[live], count, axis=0)).reshape(points.shape)
            ends = np.column_stack([low[live], points, high[live]])
            first = np.where(bad.any(axis=1), bad.argmax(axis=1), count)
            rows = np.arange(len(live))
            low[live], high[live] = ends[rows, first], ends[rows, first + 1]
        return high

    def improve(self, change: float, d: Array, *, at_once: bool) -> tuple[float, Array]:
        """Move one component of the direction at a time, by less and less, as long as ρ ≥ 1 is met further in.

        Of few components all widths are tried `at_once`, where many points take hardly longer than few.
        """
        widths = [0.5 / 2**halving for halving in range(9)]
        while widths and len(d) > 1:
            inner = change - max(1e-6 * change, PRECISION * (1 + change))
            if inner <= 0:  # the slightest change makes it unstable: there is nothing further in
                break
            tried = [self._around(d, width) for width in (widths if at_once and self.ahead > 1 else widths[:1])]
            unstable = self.unstable(np.full(sum(map(len, tried)), inner), np.concatenate(tried))
            each = np.split(unstable, np.cumsum([len(near) for near in tried])[:-1])
            place = next((place for place, part in enumerate(each) if part.any()), None)
            if place is None:
                widths = widths[len(tried) :]
                continue
            widths, bad = widths[place:], tried[place][each[place]]
            # From outside in: the innermost of eight equal parts that ends unstable, then by bisection.
            parts = np.linspace(0, inner, 9)[1:]
            grid = self.unstable(np.tile(parts, len(bad)), np.repeat(bad, 8, axis=0)).reshape(len(bad), 8)
            first = np.where(grid.any(axis=1), grid.argmax(axis=1), 7)
            crossed = self.bisect(parts[first] - inner / 8, parts[first], bad)
            best = int(crossed.argmin())
            change, d = float(crossed[best]), bad[best]
        return change, d

    def lead(self, slopes: Callable[[Array], Array], change: float, d: Array) -> tuple[float, Array]:
        """Go where ρ grows fastest from the crossing, as long as it crosses further in: to that corner of the box, or
        that point of the sphere."""
        while (slope := slopes(self.factors(np.array([change]), d[None])[0])).any():
            there = self.normed((np.sign(slope) if self.norm == "box" else slope)[None])
            inner = change - max(1e-6 * change, PRECISION * (1 + change))
            if inner <= 0 or not self.unstable(np.array([inner]), there)[0]:
                break
            parts = np.linspace(0, inner, 9)[1:]
            first = int(self.unstable(parts, np.repeat(there, 8, axis=0)).argmax())
            crossed = self.bisect(parts[first : first + 1] - inner / 8, parts[first : first + 1], there)
            change, d = float(crossed[0]), there[0]
        return change, d

    def _around(self, d: Array, width: float) -> Array:
        """Directions in which one component differs from that of `d` by the width."""
        near = d + np.concatenate([width * np.eye(len(d)), -width * np.eye(len(d))])
        if self.norm == "box":
            near = np.clip(near, -1, 1)
        near = self.normed(near[np.abs(near).max(axis=1) > 0])
        return np.asarray(near[np.abs(near - d).max(axis=1) > 1e-12])
