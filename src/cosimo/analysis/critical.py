"""The first step size at which a master becomes unstable, coming from small steps.

Stability sets are not intervals: beyond the first crossing of ρ(Φ) = 1 a master may well be stable again. What is
reported is the first crossing, found on a grid and then refined. Modes at rest (`cosimo.analysis.stability`) are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import Any, Literal

import numpy as np

from cosimo.algebra.batch import Batch
from cosimo.algebra.operations import Operations, needed_at_start
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.large import CLEARLY, LargePoles, LargeSpectrum, Pair
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import AT_REST, EXACTLY, IDENTIFIED, ROUNDING, find_rest, is_stable, moving_radii
from cosimo.core.arrays import Array, balancing
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import step_text
from cosimo.core.master import ONE, Master
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
CROSSING, SECTIONS, CLOSER = 1e-12, 16, 7
"""How near a crossing is sought, relative; into how many parts each round divides, maps of many steps at once costing
little more than of one; and up to which power of ten of the way it looks near an estimate."""
SLOWLY, OCTAVES = 0.1, 10
"""Turn of the fastest mode, in one step, at which the search in a large system begins, and octaves from there on."""
BRIEFLY, AT_LENGTH, PROOF = 256, 4096, 1e7
"""Solutions for one look of a large system: for growth, and for a proof of decay; numbers that a proof solves for."""
BELOW = (0.9, 0.7, 0.4, 0.0)
"""Parts of an unstable step of a large system at which it is tried to prove decay; the last is the shortest step."""
FIRST_SHARE, FOLLOWED, EDGE = 0.8, 8, 1e-3
"""How far an eigenvalue is followed at first, how many times, and how near to the edge of the unit circle, relative."""


@dataclass(frozen=True)
class CriticalStep:
    """`step`: the first crossing; 0: unstable already at `searched[0]`; infinite: stable up to `searched[1]`.

    Of large systems it lies `between` two steps: proved to be stable at the first, which is `step`, and unstable at the
    second. Where it was measured, in runs to the time `until`, runs fade at the first and grow at the second.
    """

    step: float
    searched: tuple[float, float]
    between: tuple[float, float] | None = None
    until: float | None = None


def critical_step(system: System, master: Master, *, identified: bool = False) -> CriticalStep | None:
    """The first crossing of `master` (its own step only sets the scale); None where the exact system is unstable.

    Radii of units that were `identified` are known less well.
    """
    linear = LinearSystem(system, master)
    if linear.sparse:
        return large_critical_step(linear, LargePoles(linear.coupled.A))
    search = EigenvalueSizes(system, master)
    spectrum = search.spectrum
    if not spectrum.exact_stable:
        return None
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

    last = int(decaying[-1])
    steps, radii = grid[[last, first]], np.array([below[last], search.without(values[first : first + 1], neutral)[0]])
    while steps[1] / steps[0] > 1 + CROSSING:
        steps = _between(steps, radii)
        radii = np.concatenate([radii[:1], search.without(search.sizes(steps[1:-1]), neutral), radii[1:]])
        place = int((radii[1:] >= 1).argmax())  # the last is
        steps, radii = steps[place : place + 2], radii[place : place + 2]
    return CriticalStep(float(steps[0]), searched)


def _between(steps: Array, radii: Array) -> Array:
    """Where a crossing is looked for between two steps: evenly, and ever closer to where log ρ, taken as straight, is
    0, so that three or four rounds find a simple crossing and no round divides by less than `SECTIONS`."""
    low, high = np.log(steps)
    below, beyond = np.log(np.maximum(radii, 1e-300))
    share = below / (below - beyond) if np.isfinite(below - beyond) and beyond > below else 0.5
    near = 10.0 ** -np.arange(1.0, CLOSER)
    shares = np.unique(np.clip([*np.linspace(0.0, 1.0, SECTIONS + 1), share, *(share - near), *(share + near)], 0, 1))
    inner = np.unique(np.exp(low + shares[1:-1] * (high - low)))
    return np.array([steps[0], *inner[(inner > steps[0]) & (inner < steps[1])], steps[1]])


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


def large_critical_step(linear: LinearSystem, poles: LargePoles) -> CriticalStep | None:
    """The first crossing of a large system, `between` a step proved stable and one proved unstable; None as above.

    Growth is looked for at octaves, from steps on that hardly turn the fastest mode. The eigenvalue that is found
    outside the unit circle is followed to its edge; below, decay is proved, which takes the longer the nearer it is.
    """
    if poles.grows:
        return None
    step, slow, spectra = linear.master.step, SLOWLY / poles.fastest, dict[float, LargeSpectrum]()

    def at(h: float) -> LargeSpectrum:
        if h not in spectra:
            other = linear if h == step else LinearSystem(linear.system, linear.master.with_step(h), like=linear)
            spectra[h] = LargeSpectrum(other, poles)
        return spectra[h]

    patience = int(min(AT_LENGTH, PROOF / linear.size))
    first = step if step < slow else step / 2.0 ** math.ceil(math.log2(step / slow))
    octaves = [first * 2.0**k for k in range(OCTAVES + max(0, round(math.log2(slow / first))))]
    searched, high, outside, open_ = (octaves[0], octaves[-1]), math.inf, None, list[float]()
    for h in octaves:
        bounded, outside = at(h).look(BRIEFLY, columns=2)
        if bounded is False:
            high = h
            break
        open_ += [] if bounded else [h]
    while outside is not None:
        if high == first:
            return CriticalStep(0.0, searched)
        high = _edge(at, high, outside)
        for h in (max(share * high, first) for share in BELOW):
            bounded, outside = at(h).look(patience)
            if bounded:
                return CriticalStep(h, searched, (h, high))
            if bounded is False:
                high = h
                break
    if high == math.inf and all(at(h).look(patience)[0] for h in open_):
        return CriticalStep(math.inf, searched)
    where = "at long steps" if high == math.inf else f"below {step_text(high)}"
    raise ConfigurationError(f"not known: {where} neither decay nor growth could be proved; compare runs.")


def _edge(at: Callable[[float], LargeSpectrum], high: float, outside: Pair) -> float:
    """About the shortest step from which on a mode, outside the unit circle at `high`, is outside."""
    (mu, shape), low, below = outside, 0.0, 0.0
    excess, share = math.log(abs(mu)), FIRST_SHARE
    for _ in range(FOLLOWED):
        h = share * high if not low else high - (high - low) * min(max(excess / (excess - below), 0.1), 0.9)
        found = at(h).followed(mu, shape)
        size = math.log(abs(found[0])) if found else -math.inf
        if found is not None and size > CLEARLY:
            # Where the line through both points reaches 0, and a little below: the next lies on the other side.
            share = max(1 - 1.2 * size * (high / h - 1) / (excess - size), FIRST_SHARE**2) if size < excess else share
            high, excess, (mu, shape) = h, size, found
        else:
            low, below = h, max(size, -10 * excess)
        if low and high / low < 1 + EDGE:
            break
    return high


# ---- steps that change: bounds of the joint spectral radius over the steps that a controller may choose --------------
# That Φ(h) is stable at each step h does not make a run stable whose steps change: a lightly damped motion is pumped
# when the step changes in its rhythm. With q = h/h_before, which inputs that are straight lines depend on,
#
#     z' = Φ(h, q) z,        Φ(h, q) = F(h) + q G(h),        0 ≤ q ≤ `grow`.
#
# From below: a sequence of steps that can be repeated, and whose product has an eigenvalue beyond 1. From above: one
# norm |z|² = zᵀ P z in which no map expands. As Φ is affine in q and norms are convex, q = 0 and q = `grow` suffice.
# (Gripenberg, Linear Algebra Appl. 234, 1996, bounds the radius by products and a norm in the same way.) P maximises t:
#
#     (P − Φᵀ P Φ) / h ≥ t I  for all maps,        I ≤ P ≤ SPREAD I,
#
# by Newton's method with logarithmic barriers (Boyd, Vandenberghe, Convex Optimization, Secs. 11.3 and 11.6). Maps are
# added as they are violated. However P was found, what is certified is that no norm of a map exceeds 1.


SPREAD = 1e5
"""How far the axes of a norm may differ, squared: norms are then computed to about 1e-13."""
CONDITIONED = 1e4
"""Up to which condition the modes of a map are used as coordinates."""
MOST_STATES = 24
"""Numbers carried from step to step up to which a norm is looked for: P has 300 of its own."""
ROUNDS, NEWTON, ADDED = 20, 200, 4
"""Times that violated maps are added, steps of Newton's method for each, and maps added at once."""
CENTRED = 0.3
"""Newton decrement, squared, below which the weight of the barriers is reduced."""
REACH = 5.0
"""A growing sequence is looked for among steps down to the longest one divided by this: what one change reaches."""
GREEDY, PERIOD, STARTS = 400, 200, 2
"""Steps of a search for a growing sequence, the most that are repeated, and motions from which it starts."""
ROOT = 1e-7
"""Distance of an eigenvalue from 1 below which it may be one of several that rounding drove apart."""
NEARLY = 0.9
"""Part of the largest rate of growth for which the shortest cycle is shown."""
SHOWN = 6
"""Runs of equal steps that are shown of a sequence."""


TWO_BEFORE = "inputs depend on the lengths of two steps before, for which no norm is looked for; use hold0 or hold1."


@dataclass(frozen=True)
class ChangingSteps:
    """What is known of runs whose steps change between `shortest` and `longest`, whatever the controller does.

    `outcome` is "stable" (certified for every sequence of steps), "grows" (`sequence`, repeated, grows by the rate
    `lower` in 1/s) or "open". `upper`, in 1/s, bounds the rate of every sequence in the best norm found. `certified` is
    the longest step up to which all sequences are certified stable; None where no step is.
    """

    outcome: Literal["stable", "grows", "open"]
    shortest: float
    longest: float
    lower: float | None = None
    upper: float | None = None
    sequence: tuple[float, ...] = ()
    certified: float | None = None
    reason: str = ""

    @property
    def words(self) -> str:
        """The steps that grow, equal ones together; of many the first."""
        if len(self.sequence) == 1:
            return step_text(self.sequence[0])
        runs = [f"{len(list(same))} × {step_text(h)}" for h, same in groupby(self.sequence)]
        return ", ".join(runs[:SHOWN]) + (f", … ({len(self.sequence)} steps)" if len(runs) > SHOWN else "")


class _AfterStep(Operations):
    """The operations of a macro step that is `ratio` times as long as the one before."""

    def __init__(self, system: System, master: Master, ratio: Fraction) -> None:
        self.ratio = ratio
        super().__init__(system, master)

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        if self.master.coupling_of(target).timed and min(sampling.stamps) < -1:
            raise ConfigurationError(TWO_BEFORE)
        stamps = tuple(stamp if stamp >= 0 else stamp / self.ratio for stamp in sampling.stamps)
        return super().coupling_matrices(target, Sampling(stamps, sampling.kept))


def changing_steps(
    system: System, master: Master, steps: Array, *, shrink: float, grow: float, identified: bool = False
) -> ChangingSteps:
    """Bounds for all sequences of the `steps`, shortest first; one may be `grow` times as long as the one before, and,
    in sequences that grow, `shrink` times as short."""
    rest = find_rest(LinearSystem(system, master).coupled.dense().A).count
    F, G, left = _without_rest(*_maps(system, master, steps), rest)
    ends = float(steps[0]), float(steps[-1])
    if left and float(np.abs(np.linalg.eigvals(F + G) - 1).min(initial=1.0)) < ROOT:
        return ChangingSteps("open", *ends, reason="motion at rest cannot be divided out at all steps at once")

    def grows(radius: Array) -> Array:
        return ~np.asarray(is_stable(radius, identified=identified))

    radii = np.abs(np.linalg.eigvals(F + G)).max(axis=1, initial=0.0)
    below = int(grows(radii).argmax()) if grows(radii).any() else len(steps)
    norm = _Norm(F, G, steps, grow) if F.shape[1] <= MOST_STATES and below == len(steps) else None
    if norm is not None and not grows(norm.sizes).any():
        lower = float((np.log(np.maximum(radii, 1e-300)) / steps).max())
        return ChangingSteps("stable", *ends, lower, norm.rate, certified=ends[1])
    if below < len(steps):
        worst = int(np.where(grows(radii), np.log(np.maximum(radii, 1e-300)) / steps, -np.inf).argmax())
        rate = float(np.log(radii[worst]) / steps[worst])
        sequence: tuple[float, ...] = (float(steps[worst]),)
    elif norm is None:
        why = f"more than {MOST_STATES} numbers are carried from step to step"
        return ChangingSteps("open", *ends, reason=why)
    else:
        rate, sequence = norm.growing(shrink)
    certified = _longest_certified(F[:below], G[:below], steps[:below], grow, grows)
    if sequence and bool(grows(np.exp(rate * sum(sequence) / len(sequence)))):
        return ChangingSteps("grows", *ends, rate, None if norm is None else norm.rate, sequence, certified)
    assert norm is not None
    why = "no norm was found in which no step expands, and no sequence of steps that grows"
    return ChangingSteps("open", *ends, rate, norm.rate, certified=certified, reason=why)


def _longest_certified(F: Array, G: Array, steps: Array, grow: float, grows: Callable[[Array], Array]) -> float | None:
    """The longest step up to which a norm certifies all sequences: by bisection, as fewer steps need less of a norm."""
    low, high = 0, len(steps)
    if F.shape[1] > MOST_STATES:
        return None
    while low < high:
        middle = (low + high + 1) // 2
        if grows(_Norm(F[:middle], G[:middle], steps[:middle], grow).sizes).any():
            high = middle - 1
        else:
            low = middle
    return float(steps[low - 1]) if low else None


def _maps(system: System, master: Master, steps: Array) -> tuple[Array, Array]:
    """F and G (N, n, n) on what is carried from one macro step to the next."""
    layout = LinearSystem(system, master).layout
    carried = [block for block in needed_at_start(Operations(system, master)) if block != ONE]
    slots = [i for block in carried for i in range(layout[block].start, layout[block].stop)]

    def at(step: float, ratio: Fraction) -> Array:
        timed = master.with_step(step)
        linear = LinearSystem(system, timed, _AfterStep(system, timed, ratio))
        rows = linear.split(np.eye(layout.size)[:, slots])
        linear.apply(linear.operations.timeline.operations, rows)
        found: Array = linear.join(rows)[slots]
        return found

    even = np.array([at(h, Fraction(1)) for h in steps.tolist()])
    if not any(master.coupling_of(link.connection.target).degree for link in system.links):
        return even, np.zeros_like(even)
    G = np.array([at(h, Fraction(2)) for h in steps.tolist()]) - even
    for place in (0, len(steps) - 1):
        half = at(float(steps[place]), Fraction(1, 2))
        if not np.allclose(half, even[place] - G[place] / 2, rtol=1e-9, atol=1e-9 * np.abs(half).max()):
            raise ConfigurationError(TWO_BEFORE)
    return even - G, G


def _without_rest(F: Array, G: Array, rest: int) -> tuple[Array, Array, int]:
    """The same maps on what moves, and how many eigenvalues 1 could not be divided out of all of them at once.

    What no map leads to, and what no map sees, is left out: the sum of all images and the common null space.
    """
    scale = balancing((np.abs(F) + np.abs(G)).sum(axis=0)[None])[0]
    both, count = np.concatenate([F, G]) / scale[:, None] * scale, len(F)
    while both.shape[1]:
        n = both.shape[1]
        images, sizes, _ = np.linalg.svd(both.transpose(1, 0, 2).reshape(n, -1), full_matrices=False)
        _, seen, rows = np.linalg.svd(both.reshape(-1, n), full_matrices=False)
        for basis, singular in ((images, sizes), (rows.T, seen)):
            kept = int((singular > EXACTLY * max(singular[0], 1e-300)).sum())
            if kept < n:
                both = basis[:, :kept].T @ both @ basis[:, :kept]
                break
        else:
            break
    while rest and both.shape[1]:
        n = both.shape[1]
        still = np.concatenate([both[:count] - np.eye(n), both[count:]]).reshape(-1, n)
        _, singular, rows = np.linalg.svd(still, full_matrices=False)
        null = min(int((singular <= AT_REST * max(1.0, singular[0])).sum()), rest)
        if not null:
            break
        kept_rows = rows[: n - null]
        both, rest = kept_rows @ both @ kept_rows.T, rest - null
    return both[:count], both[count:], rest


class _Norm:
    """A norm in which maps at all steps expand as little as possible: `sizes` of all maps in it."""

    def __init__(self, F: Array, G: Array, steps: Array, grow: float) -> None:
        self.F, self.G, self.steps, self.grow, n = F, G, steps, grow, F.shape[1]
        ends = [F, F + grow * G] if G.any() else [F]
        maps, self._times = np.concatenate(ends), np.tile(steps, len(ends))
        modes = _real_modes((F + G)[len(F) // 2])
        modes = modes if np.linalg.cond(modes) < CONDITIONED else np.eye(n)
        self._maps = np.linalg.solve(modes, maps @ modes)
        try:
            root = np.linalg.cholesky(self._found()).T
        except np.linalg.LinAlgError:
            root = np.eye(n)
        self.into: Array = root @ np.linalg.inv(modes)
        back = np.linalg.inv(self.into)
        self.sizes = np.linalg.norm(self.into @ maps @ back, 2, axis=(1, 2)) if n else np.zeros(len(maps))
        self.rate = float((np.log(np.maximum(self.sizes, 1e-300)) / self._times).max())

    def _found(self) -> Array:
        """P (n, n)."""
        n, every = self._maps.shape[1], np.arange(len(self._maps))
        P, active = 2 * np.eye(n), list[int]()
        for _ in range(ROUNDS):
            least = np.linalg.eigvalsh(self._decay(P, every))[:, 0]
            worst = int(least.argmin())
            if least[worst] > 0 or worst in active:
                break
            active += [k for k in np.argsort(least)[:ADDED].tolist() if k not in active]
            P, margin = self._centred(P, np.array(active))
            if margin <= 0:
                break
        return P

    def _decay(self, P: Array, which: Any) -> Array:
        M = self._maps[which]
        found: Array = (P - M.transpose(0, 2, 1) @ P @ M) / self._times[which, None, None]
        return found

    def _centred(self, P: Array, which: Any) -> tuple[Array, float]:
        """P and t for some of the maps; with W the inverse slack, second derivatives are products of W, M W, M W Mᵀ."""
        n, M, per = len(P), self._maps[which], 1 / self._times[which, None, None]
        low, columns = np.tril_indices(n), n * (n + 1) // 2
        D = np.zeros((n, n, columns))
        D[low[0], low[1], np.arange(columns)] = D[low[1], low[0], np.arange(columns)] = 1.0
        basis = (D / np.linalg.norm(D, axis=(0, 1))).reshape(n * n, columns)
        eye, Mt = np.eye(n), M.transpose(0, 2, 1)

        def pairs(X: Array, Y: Array) -> Array:
            """tr(E X E' Y) of all entries of E and E', summed over maps."""
            found: Array = X.reshape(-1, n * n).T @ Y.reshape(-1, n * n)  # jk, li
            return found.reshape(n, n, n, n).transpose(3, 0, 1, 2).reshape(n * n, n * n)

        t = float(np.linalg.eigvalsh(self._decay(P, which)).min())
        t -= 0.1 * abs(t) + 1e-6
        weight = 10 * abs(t)
        for _ in range(NEWTON):
            W: Array = np.linalg.inv(self._decay(P, which) - t * eye).astype(float)
            above: Array = np.linalg.inv(P - eye)[None].astype(float)
            under: Array = np.linalg.inv(SPREAD * eye - P)[None].astype(float)
            N, W2 = M @ W, W @ W
            B = N @ Mt
            slope = basis.T @ (((W - B) * per).sum(axis=0) + above[0] - under[0]).ravel()
            gradient = -np.append(slope, 1 / weight - np.trace(W, axis1=1, axis2=2).sum())
            squared, Nt = per * per, N.transpose(0, 2, 1)
            H = pairs(W * squared, W) - pairs(Nt * squared, N) - pairs(N * squared, Nt) + pairs(B * squared, B)
            H = basis.T @ (H + pairs(above, above) + pairs(under, under)) @ basis
            cross = -basis.T @ ((W2 - M @ W2 @ Mt) * per).sum(axis=0).ravel()
            H = np.block([[H, cross[:, None]], [cross, np.trace(W2, axis1=1, axis2=2).sum()]])
            unit = 1 / np.sqrt(np.maximum(np.diag(H), 1e-300))
            change = -unit * np.linalg.solve(H * unit * unit[:, None] + 1e-13 * np.eye(len(unit)), unit * gradient)
            decrement = float(-gradient @ change)
            length = 1.0 if decrement < CENTRED else 1 / (1 + max(decrement, 0.0) ** 0.5)
            P = P + length * (basis @ change[:-1]).reshape(n, n)
            t += length * float(change[-1])
            if decrement < CENTRED:
                if weight < (0.1 * t if t > 0 else 1e-6 * abs(t)):
                    break
                weight *= 0.2
        return (P + P.T) / 2, t

    def growing(self, shrink: float) -> tuple[float, tuple[float, ...]]:
        """The rate in 1/s of the sequence that grows most, or decays least, and that sequence.

        From some motions, always the step that makes the norm grow fastest is taken; of what comes of it, every last
        part is tried as a cycle.
        """
        near = self.steps >= self.steps[-1] / REACH * (1 - 1e-9)
        back, h = np.linalg.inv(self.into), self.steps[near]
        F, G = (self.into @ part[near] @ back for part in (self.F, self.G))
        ratio = h / h[:, None]
        allowed = (ratio <= self.grow * (1 + 1e-9)) & (ratio >= shrink * (1 - 1e-9))
        best: tuple[float, tuple[float, ...]] = (-np.inf, ())
        for z in np.random.default_rng(0).standard_normal((STARTS, F.shape[1])):
            taken = [len(h) - 1]
            for _ in range(GREEDY):
                after = F @ z + ratio[taken[-1]][:, None] * (G @ z)
                size = np.maximum(np.linalg.norm(after, axis=1), 1e-300)
                taken.append(int(np.where(allowed[taken[-1]], np.log(size) / h, -np.inf).argmax()))
                z = after[taken[-1]] / size[taken[-1]]
            products, tail, last = [], np.eye(F.shape[1]), taken[-1]
            for place in range(1, PERIOD + 1):
                first = taken[-place]
                products.append(tail @ (F[first] + ratio[last, first] * G[first]))
                tail = tail @ (F[first] + ratio[taken[-place - 1], first] * G[first])
            cycle = np.array(taken[::-1][:PERIOD])
            radii = np.abs(np.linalg.eigvals(np.array(products))).max(axis=1)
            rates = np.log(np.maximum(radii, 1e-300)) / np.cumsum(h[cycle])
            rates = np.where(allowed[last, cycle], rates, -np.inf)
            most = float(rates.max())
            shown = int((rates >= NEARLY * most).argmax()) if most > 0 else int(rates.argmax())
            if rates[shown] > best[0]:
                best = float(rates[shown]), tuple(h[taken[-shown - 1 :]].tolist())
        return best


def _real_modes(matrix: Array) -> Array:
    """Real columns that span the eigenvectors of a matrix (n, n), of pairs the real and the imaginary part."""
    values, vectors = np.linalg.eig(matrix)
    order = np.argsort(values.imag, kind="stable")
    parts = [vectors[:, k].real if values[k].imag >= 0 else vectors[:, k].imag for k in order]
    columns = np.array(parts).T if parts else np.zeros((0, 0))
    found: Array = columns / np.maximum(np.linalg.norm(columns, axis=0), 1e-300)
    return found
