"""The first step size at which a master becomes unstable, coming from small steps.

Stability sets are not intervals: beyond the first crossing of ρ(Φ) = 1 a master may well be stable again. What is
reported is the first crossing, found on a grid and then refined. Modes at rest (`cosimo.analysis.stability`) are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby, pairwise, takewhile
from typing import Any, Literal

import numpy as np

from cosimo.algebra.batch import Batch
from cosimo.algebra.operations import Operations, needed_at_start
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.large import CLEARLY, LargePoles, LargeSpectrum, Pair
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import AT_REST, EXACTLY, IDENTIFIED, ROUNDING, find_rest, is_stable, moving_radii
from cosimo.core import dataclass
from cosimo.core.arrays import Array, balancing
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import step_text
from cosimo.core.master import ONE, Block, Master
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, timeline

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
    shares = np.clip([*np.linspace(0.0, 1.0, SECTIONS + 1), share, *(share - near), *(share + near)], 0, 1)
    inner = {step for step in np.exp(low + shares * (high - low)).tolist() if steps[0] < step < steps[1]}
    return np.array([steps[0], *sorted(inner), steps[1]])  # np.unique would load masked arrays, which takes longer


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
            sizes = -np.sort(-np.abs(self._batch.backend.on_host(np.linalg.eigvals, maps[known])), axis=-1)
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


def large_critical_step(linear: LinearSystem, poles: LargePoles, *, stable: bool = False) -> CriticalStep | None:
    """The first crossing of a large system, `between` a step proved stable and one proved unstable; None as above.

    Growth is looked for at octaves, from steps on that hardly turn the fastest mode. The eigenvalue that is found
    outside the unit circle is followed to its edge; below, decay is proved, which takes the longer the nearer it is.
    `stable`: at its own step the master was proved to be.
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
        if stable and h == step:
            continue
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
# when the step changes in its rhythm. Inputs that are polynomials through earlier samples depend on the lengths of the
# steps before; of samples at t, t − h₁, t − h₁ − h₂ their divided differences are carried instead,
#
#     f₁ = (s₀ − s₁) / h₁,    f₂ = (f₁ − (s₁ − s₂) / h₂) / (h₁ + h₂),    s(t + τ) ≈ s₀ + τ f₁ + τ (τ + h₁) f₂,
#
# so that z' = Φ(h, h₁) z: with straight lines no earlier length is left, and with parabolas one. Motion at rest or of
# constant velocity is then the same vector at all steps, and can be divided out.
#
# From below: a sequence of steps that can be repeated, and whose product has an eigenvalue beyond 1. From above: one
# norm |z|² = zᵀ P z in which no map expands. (h + h₁)^r Φ is a polynomial in h₁; in the rational Bernstein form, whose
# weights are positive and add up to 1, Φ lies between some *corners*, and norms are convex: the corners suffice.
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
SHORTEST_MOVE = 1e-6
"""Share of a step of Newton's method below which no shorter one is tried."""
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


FORMS = ((0, 0, 0), (0, 1, 1), (0, 0, 1), (1, 0, 2), (2, 0, 4), (1, 2, 4), (2, 2, 6))
"""Powers r of h + h₁ and s of h₁, and degrees of (h + h₁)^r h₁^s Φ in h₁, that are tried."""
PIECE = 16.0
"""Lengths of the step before that one set of corners spans, longest to shortest: the closer, the tighter they are."""
FITTED = 1e-9
"""How well corners must give a map that they were not fitted to, relative."""
TOO_FAR = "inputs depend on earlier steps in a way for which no norm is looked for; use hold0 or hold1."


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


@dataclass(frozen=True)
class _StepMaps:
    """The maps at N `steps`: corners (N, c, n, n), and by which weights (N, N, c) they give Φ(h_i, h_j after it)."""

    steps: Array
    corners: Array
    weights: Array

    def part(self, count: int) -> _StepMaps:
        """The shortest steps alone."""
        return _StepMaps(self.steps[:count], self.corners[:count], self.weights[:count, :count])

    def after(self, which: Any = slice(None)) -> Array:
        """Φ(h_i, h_j), (N, N, n, n), of some steps."""
        weights = self.weights[which][:, which]
        found: Array = np.einsum("ijc,icab->ijab", weights, self.corners[which])
        return found

    @property
    def even(self) -> Array:
        """Φ(h_i, h_i), (N, n, n)."""
        found: Array = np.einsum("iic,icab->iab", self.weights, self.corners)
        return found


def changing_steps(
    system: System, master: Master, steps: Array, *, shrink: float, grow: float, identified: bool = False
) -> ChangingSteps:
    """Bounds for all sequences of the `steps`, shortest first; one may be `grow` times as long as the one before, and,
    in sequences that grow, `shrink` times as short."""
    ends, differences = (float(steps[0]), float(steps[-1])), _DividedDifferences(system, master)
    rest = find_rest(LinearSystem(system, master).coupled.dense().A).count

    def grows(radius: Array) -> Array:
        return ~np.asarray(is_stable(radius, identified=identified))

    maps, left = _without_rest(differences.maps(steps, grow, scaled=False), rest)
    eigenvalues = np.linalg.eigvals(maps.even)
    doubtful = bool(left) and float(np.abs(eigenvalues - 1).min(initial=1.0)) < ROOT
    radii = np.abs(eigenvalues).max(axis=1, initial=0.0)
    below = int(grows(radii).argmax()) if grows(radii).any() and not doubtful else len(steps)
    if maps.corners.shape[2] > MOST_STATES:
        why = f"more than {MOST_STATES} numbers are carried from step to step"
        return _equal_steps(radii, steps, grows) or ChangingSteps("open", *ends, reason=why)
    norms = [_Norm(maps)] if below == len(steps) else []
    other = partial(_scaled, differences, steps, grow, rest)
    if norms and grows(norms[0].sizes).any():
        norms += [_Norm(scaled) for scaled in other()]
    for norm in norms:
        if not grows(norm.sizes).any():
            lower = float((np.log(np.maximum(radii, 1e-300)) / steps).max())
            return ChangingSteps("stable", *ends, lower, norm.rate, certified=ends[1])
    if doubtful:
        return ChangingSteps("open", *ends, reason="motion at rest cannot be divided out at all steps at once")
    both = (maps, *other())
    certified = max((_longest_certified(each.part(below), grows) for each in both), default=0.0) or None
    if not norms:
        found = _equal_steps(radii, steps, grows)
        assert found is not None
        return replace(found, certified=certified)
    (rate, sequence), upper = norms[0].growing(shrink, grow), min(norm.rate for norm in norms)
    if sequence and bool(grows(np.exp(rate * sum(sequence) / len(sequence)))):
        return ChangingSteps("grows", *ends, rate, upper, sequence, certified)
    why = "no norm was found in which no step expands, and no sequence of steps that grows"
    return ChangingSteps("open", *ends, rate, upper, certified=certified, reason=why)


def _equal_steps(radii: Array, steps: Array, grows: Callable[[Array], Array]) -> ChangingSteps | None:
    """The equal steps that grow fastest, if any do."""
    rates = np.where(grows(radii), np.log(np.maximum(radii, 1e-300)) / steps, -np.inf)
    worst = int(rates.argmax())
    if not np.isfinite(rates[worst]):
        return None
    ends = float(steps[0]), float(steps[-1])
    return ChangingSteps("grows", *ends, float(rates[worst]), sequence=(float(steps[worst]),))


def _scaled(differences: _DividedDifferences, steps: Array, grow: float, rest: int) -> Iterator[_StepMaps]:
    """The maps in other coordinates, where there are such: differences that are not divided."""
    if differences.nodes:
        yield _without_rest(differences.maps(steps, grow, scaled=True), rest)[0]


def _longest_certified(maps: _StepMaps, grows: Callable[[Array], Array]) -> float:
    """The longest step up to which a norm certifies all sequences, or 0: by bisection, as fewer steps need less."""
    low, high = 0, len(maps.steps)
    while low < high:
        middle = (low + high + 1) // 2
        if grows(_Norm(maps.part(middle)).sizes).any():
            high = middle - 1
        else:
            low = middle
    return float(maps.steps[low - 1]) if low else 0.0


class _AfterSteps(Operations):
    """The operations of a macro step that follows others; `earlier` says how long they were, newest first, in h."""

    def __init__(self, like: Operations, earlier: tuple[Fraction, ...]) -> None:
        self.earlier = earlier
        super().__init__(like.system, like.master, like)
        for operation in self.timeline.operations:
            if isinstance(operation, TimedCouple):
                self._updates.pop(id(operation), None)

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        if self.master.coupling_of(target).timed:
            sampling = Sampling(tuple(_time(stamp, self.earlier) for stamp in sampling.stamps), sampling.kept)
        return super().coupling_matrices(target, sampling)


def _time(stamp: Fraction, earlier: Sequence[Any]) -> Any:
    """When a sample so many steps ago was taken, after steps of these lengths; what lies ahead is told in steps."""
    if stamp >= 0:
        return stamp
    if stamp.denominator != 1 or -stamp > len(earlier):
        raise ConfigurationError(TOO_FAR)
    return -sum(earlier[: int(-stamp)])


class _DividedDifferences:
    """Maps on what is carried from one macro step to the next, remembered samples as divided differences."""

    def __init__(self, system: System, master: Master) -> None:
        self.system, self.master, self.layout = system, master, LinearSystem(system, master).layout
        operations = timeline(system, master).operations
        samplings = {
            link.number: (link, sampling)
            for operation in operations
            if isinstance(operation, TimedCouple)
            for link, sampling in zip(system.incoming(operation.unit), operation.samplings, strict=True)
            if master.coupling_of(link.connection.target).timed
        }
        self.slots: list[int] = []
        for block in needed_at_start(Operations(system, master)):
            part = self.layout[block]
            if block.kind == "w" and block.owner in samplings:
                self.slots += [part.start + slot for slot in samplings[int(block.owner)][1].kept]
            elif block != ONE:
                self.slots += range(part.start, part.stop)
        place = {slot: number for number, slot in enumerate(self.slots)}
        self.nodes = []
        """Of every link, newest first: the place of a sample among the slots, a factor, and how many steps ago."""
        for link, sampling in samplings.values():
            memory, outputs = (
                self.layout[Block("w", link.number)].start,
                self.layout[Block("y", link.source.unit)].start,
            )
            nodes = [(place[memory + slot], 1.0, s) for slot, s in zip(sampling.kept, sampling.stamps[1:], strict=True)]
            if sampling.stamps[0] <= 0:
                nodes.insert(0, (place[outputs + link.source.index], link.connection.gain, sampling.stamps[0]))
            self.nodes.append(nodes)

    def coordinates(self, *earlier: float, scaled: bool) -> Array:
        """S (n, n): from samples to divided differences, after steps of these lengths, newest first."""
        S = np.eye(len(self.slots))
        for nodes in self.nodes:
            times = [float(_time(stamp, earlier)) for _, _, stamp in nodes]
            table = [factor * np.eye(len(self.slots))[place] for place, factor, _ in nodes]
            for order in range(1, len(nodes)):
                for i in range(len(nodes) - 1, order - 1, -1):
                    table[i] = (table[i - 1] - table[i]) / (times[i - order] - times[i])
                S[nodes[order][0]] = table[order] * (earlier[0] ** order if scaled else 1.0)
        return S

    def maps(self, steps: Array, grow: float, *, scaled: bool) -> _StepMaps:
        """At all steps, after any that is at least 1/`grow` as long."""
        longest = float(steps[-1])
        pieces = max(1, math.ceil(math.log(grow * longest / float(steps[0])) / math.log(PIECE)))
        at = [self._at(h, scaled) for h in steps.tolist()]
        for h, one in zip(steps[[0, -1]].tolist(), (at[0], at[-1]), strict=True):
            if not _same(one(h, h), one(h, longest / 2)):
                raise ConfigurationError(TOO_FAR)
        for form in (_Bernstein(r, s, degree, pieces if degree else 1) for r, s, degree in FORMS):
            fits = (form.corners(one, h, h / grow, longest) for h, one in zip(steps.tolist(), at, strict=True))
            corners = list(takewhile(lambda part: part is not None, fits))
            if len(corners) == len(steps):
                weights = [form.weights(h, steps, h / grow, longest) for h in steps.tolist()]
                return _StepMaps(steps, np.array(corners), np.array(weights))
        raise ConfigurationError(TOO_FAR)

    def _at(self, h: float, scaled: bool) -> Callable[[float, float], Array]:
        """Φ at the step h after a step of one length, and another one before that."""
        plain = Operations(self.system, self.master.with_step(h))

        def at(before: float, earlier: float) -> Array:
            ratios = Fraction(before / h), Fraction(earlier / h)
            linear = LinearSystem(self.system, plain.master, _AfterSteps(plain, ratios))
            rows = linear.split(np.eye(self.layout.size)[:, self.slots])
            linear.apply(linear.operations.timeline.operations, rows)
            new, old = self.coordinates(h, before, scaled=scaled), self.coordinates(before, earlier, scaled=scaled)
            found: Array = new @ linear.join(rows)[self.slots] @ np.linalg.inv(old)
            return found

        return at


@dataclass(frozen=True)
class _Bernstein:
    """Φ(h, x) for x from a to b as Σ w_i C_i with w ≥ 0, Σ w = 1, where f Φ, f = (h + x)^r x^s, is of a `degree` in x.

    On each of some `pieces`, f Φ = Σ N_i B_i(x) and f = Σ ω_i B_i(x) with Bernstein's polynomials B_i; then
    C_i = N_i / ω_i and w_i = ω_i B_i / f.
    """

    r: int
    s: int
    degree: int
    pieces: int

    def _edges(self, a: float, b: float) -> list[float]:
        return [float(edge) for edge in np.geomspace(a, b, self.pieces + 1)]

    def _factor(self, h: float, x: Array) -> Array:
        found: Array = (h + x) ** self.r * x**self.s
        return found

    def _basis(self, x: Array, a: float, b: float) -> Array:
        """B_i(x), (len(x), degree + 1)."""
        u, i = ((x - a) / (b - a))[:, None], np.arange(self.degree + 1)
        binomial = np.array([math.comb(self.degree, k) for k in i.tolist()])
        found: Array = binomial * u**i * (1 - u) ** (self.degree - i)
        return found

    def _shares(self, h: float, x: Array, a: float, b: float) -> Array:
        """w_i at x, (len(x), degree + 1)."""
        nodes = np.linspace(a, b, self.degree + 1)
        omega = np.linalg.solve(self._basis(nodes, a, b), self._factor(h, nodes))
        found: Array = omega * self._basis(x, a, b) / self._factor(h, x)[:, None]
        return found

    def corners(self, at: Callable[[float, float], Array], h: float, a: float, b: float) -> Array | None:
        """C (pieces · (degree + 1), n, n); None where Φ is not of this form."""
        found = []
        for low, high in pairwise(self._edges(a, b)):
            x = np.linspace(low, high, self.degree + 1)
            maps = np.array([at(each, each) for each in x.tolist()])
            middle = 0.7 * low + 0.3 * high
            found.append(np.linalg.solve(self._shares(h, x, low, high), maps.reshape(len(x), -1)).reshape(maps.shape))
            share = self._shares(h, np.array([middle]), low, high)[0]
            if not _same(at(middle, middle), np.tensordot(share, found[-1], 1)):
                return None
        return np.concatenate(found)

    def weights(self, h: float, before: Array, a: float, b: float) -> Array:
        """w of all corners, (len(before), …); after steps that are too short, as after the shortest."""
        x, edges = np.clip(before, a, b), self._edges(a, b)
        found = np.zeros((len(x), self.pieces, self.degree + 1))
        piece = np.clip(np.searchsorted(edges, x) - 1, 0, self.pieces - 1)
        for number, (low, high) in enumerate(pairwise(edges)):
            inside = piece == number
            found[inside, number] = self._shares(h, x[inside], low, high)
        return found.reshape(len(x), -1)


def _same(one: Array, other: Array) -> bool:
    return bool(np.allclose(one, other, rtol=FITTED, atol=FITTED * float(np.abs(one).max(initial=0.0))))


def _without_rest(maps: _StepMaps, rest: int) -> tuple[_StepMaps, int]:
    """The same maps on what moves, and how many eigenvalues 1 could not be divided out of all of them at once.

    What no map leads to, and what no map sees, is left out: the sum of all images and the common null space.
    """
    count, corners = maps.corners.shape[:2]
    both = maps.corners.reshape(count * corners, *maps.corners.shape[2:])
    scale = balancing(np.abs(both).sum(axis=0)[None])[0]
    both = both / scale[:, None] * scale
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
        _, singular, rows = np.linalg.svd((both - np.eye(n)).reshape(-1, n), full_matrices=False)
        null = min(int((singular <= AT_REST * max(1.0, singular[0])).sum()), rest)
        if not null:
            break
        kept_rows = rows[: n - null]
        both, rest = kept_rows @ both @ kept_rows.T, rest - null
    return replace(maps, corners=both.reshape(count, corners, *both.shape[1:])), rest


class _Norm:
    """A norm in which maps at all steps expand as little as possible: `sizes` of all maps in it."""

    def __init__(self, all_maps: _StepMaps) -> None:
        self.all, (count, corners, n, _) = all_maps, all_maps.corners.shape
        maps, self._times = all_maps.corners.reshape(-1, n, n), np.repeat(all_maps.steps, corners)
        modes = _real_modes(all_maps.even[count // 2])
        modes = modes if np.linalg.cond(modes) < CONDITIONED else np.eye(n)
        self._maps = np.linalg.solve(modes, maps @ modes)
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a search that leads nowhere; what it finds is checked
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
            length = 1.0 if decrement < CENTRED else 1 / (1 + decrement**0.5)
            way = (basis @ change[:-1]).reshape(n, n)
            while not self._inside(P + length * way, t + length * float(change[-1]), which):
                length /= 2
                if not length >= SHORTEST_MOVE:  # also NaN: rounding has the last word
                    return (P + P.T) / 2, t
            P = P + length * way
            t += length * float(change[-1])
            if decrement < CENTRED:
                if weight < (0.1 * t if t > 0 else 1e-6 * abs(t)):
                    break
                weight *= 0.2
        return (P + P.T) / 2, t

    def _inside(self, P: Array, t: float, which: Any) -> bool:
        """Whether the constraints hold, strictly: Newton's method stays inside but for rounding."""
        eye = np.eye(len(P))
        try:
            for slack in (self._decay(P, which) - t * eye, P - eye, SPREAD * eye - P):
                np.linalg.cholesky(slack)
        except np.linalg.LinAlgError:
            return False
        return True

    def growing(self, shrink: float, grow: float) -> tuple[float, tuple[float, ...]]:
        """The rate in 1/s of the sequence that grows most, or decays least, and that sequence.

        From some motions, always the step that makes the norm grow fastest is taken; of what comes of it, every last
        part is tried as a cycle.
        """
        steps = self.all.steps
        near = steps >= steps[-1] / REACH * (1 - 1e-9)
        h, maps = steps[near], self.into @ self.all.after(near) @ np.linalg.inv(self.into)
        ratio = h / h[:, None]
        allowed = (ratio <= grow * (1 + 1e-9)) & (ratio >= shrink * (1 - 1e-9))
        best: tuple[float, tuple[float, ...]] = (-np.inf, ())
        for z in np.random.default_rng(0).standard_normal((STARTS, maps.shape[2])):
            taken = [len(h) - 1]
            for _ in range(GREEDY):
                after = maps[:, taken[-1]] @ z
                size = np.maximum(np.linalg.norm(after, axis=1), 1e-300)
                taken.append(int(np.where(allowed[taken[-1]], np.log(size) / h, -np.inf).argmax()))
                z = after[taken[-1]] / size[taken[-1]]
            products, tail, last = [], np.eye(maps.shape[2]), taken[-1]
            for place in range(1, PERIOD + 1):
                first = taken[-place]
                products.append(tail @ maps[first, last])
                tail = tail @ maps[first, taken[-place - 1]]
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
