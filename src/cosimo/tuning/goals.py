"""What a good master is: the goals of the search, and how a batch of masters is measured by them.

    error        largest error of any output within the horizon, relative to the largest value of that output
    robustness   relative radius: how much faster or stronger the units may be until the coupling is unstable; maximised
    cost         unit steps per simulated second
    radius       ρ(Φ), glumac2018
    defect       δ, glumac2018, Eq. 59, with k = 2 in the 2-norm

`error`, `robustness` and `cost` are the default: none of them rewards spurious damping, as ρ does across step sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cosimo.algebra.backends import Backend, Stack
from cosimo.algebra.batch import Columns, Objective
from cosimo.algebra.batched_map import BatchedMap
from cosimo.algebra.spectral_radius import Radii, spectral_radii
from cosimo.analysis.stability import LARGEST_STABLE, NEAR_ONE, Rest, find_rest, is_stable, moving_radius
from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import MOST_ROBUST

SMALLEST = 1e-12
"""Errors below this are rounding; they count alike."""
SEGMENT = 24
"""Samples per segment of the early steps."""
WORK = 2**21
"""Numbers of a sequence of samples held at once."""


@dataclass(frozen=True)
class Goal:
    """One number to make small, or with `maximise` large; `logarithmic`: what counts is its ratio."""

    name: str
    maximise: bool = False
    logarithmic: bool = False

    def scaled(self, values: Array) -> Array:
        """Values in which the search measures distances, the smaller the better; dominance stays as it is."""
        if self.name == "robustness":
            found: Array = -np.log10(1 + np.clip(values, 0.0, MOST_ROBUST))
        elif self.logarithmic:
            found = np.log10(np.maximum(values, SMALLEST))
        else:
            found = -values if self.maximise else values
        return found


GOALS = {
    goal.name: goal
    for goal in (
        Goal("error", logarithmic=True),
        Goal("robustness", maximise=True),
        Goal("cost", logarithmic=True),
        Goal("radius"),
        Goal("defect"),
    )
}
DEFAULT = ("error", "robustness", "cost")


def find_goals(names: Sequence[str] | None) -> tuple[Goal, ...]:
    """The goals by name; the default without names.

    >>> [goal.name for goal in find_goals(None)]
    ['error', 'robustness', 'cost']
    """
    chosen = DEFAULT if names is None else tuple(names)
    for name in chosen:
        if name not in GOALS:
            raise UnknownNameError("objective", name, GOALS)
    if not chosen or len(set(chosen)) != len(chosen):
        raise ConfigurationError("give at least one objective, and each only once.")
    return tuple(GOALS[name] for name in chosen)


@dataclass(frozen=True)
class Stability(Objective):
    """`spectral_radius` ρ(Φ) to a relative `accuracy`, and whether the master is `stable`, as `Spectrum` says it.

    ρ is infinite where Φ is not finite (an iteration without a fixed point, or overflow).
    """

    accuracy: float = 1e-10

    def compute(self, maps: BatchedMap) -> Columns:
        radii = spectral_radii(maps.cycle, maps.backend, accuracy=self.accuracy, limit=LARGEST_STABLE)
        rests = [find_rest(linear.coupled.A) for linear in maps.schedule.linear]
        which = np.zeros(maps.count, dtype=int) if maps.variation.which is None else maps.variation.which
        stable = without_rest(maps, radii, [rests[int(number)] for number in which])
        return {"spectral_radius": radii.value, "stable": stable}


def without_rest(maps: BatchedMap, radii: Radii, rests: Sequence[Rest]) -> Any:
    """Whether masters are stable when modes at rest (`cosimo.analysis.stability`, one `Rest` per master) do not count:
    where ρ is near 1, they are divided out of Φ."""
    stable, radius = maps.backend.host(radii.stable).copy(), maps.backend.host(radii.value)
    for place in np.flatnonzero(~stable & (radius < 1 + NEAR_ONE)).tolist():
        if rests[place].count:
            Phi = maps.backend.host(maps.cycle[:, :, place])
            stable[place] = is_stable(moving_radius(Phi, rests[place], float(maps.variation.steps[place])))
    return stable


# ---- errors of many masters at once ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trajectories:
    """Co-simulation and exact solution of N masters, side by side.

    y_k = Y Φ^(k−1) z (p, c, N) and exactly C F^k x: Φ (n, n, N), Y (p, n, N), z (n, c, N); C (p, s, 1), F (s, s, N), x.
    """

    steps: Array
    Phi: Stack
    Y: Stack
    z: Stack
    C: Stack
    flow: Stack
    x: Stack


@dataclass(frozen=True, eq=False)
class WorstOutputError(Objective):
    """`error` = max over outputs j and k h ≤ `horizon` of ‖(S_y Φ^k E − C_c exp(A_c k h))_j X‖ / size_j.

    X (n, c) are the initial states, c = 1: the error of the run from there; the unit matrix: of the worst start.
    `sizes` (p,) are those of the outputs; outputs of size 0 are left out. All communication points count where there
    are at most `samples` of them. Of more, every q-th does, with the smallest power of two q that makes them few
    enough, so that Φ^q is a repeated square; and for what happens early the first `SEGMENT` ones, then as many every 4
    steps, every 16 steps, …
    """

    columns: Array
    sizes: Array
    horizon: float
    samples: int = 320

    def compute(self, maps: BatchedMap) -> Columns:
        return {"error": self.errors(self.trajectories(maps), maps.backend)}

    def points(self, steps: Array) -> tuple[Array, Array]:
        """How many macro steps lie between two samples, and how many samples there are; at least one each."""
        count = self._counts(steps)
        stride = np.exp2(np.ceil(np.log2(np.ceil(count / self.samples))))
        return stride.astype(np.int64), np.floor(count / stride).astype(np.int64)

    def _counts(self, steps: Array) -> Array:
        # A horizon of a whole number of steps must not lose the last one by rounding.
        return np.maximum(np.floor(self.horizon / steps * (1 + 1e-12)), 1.0)

    def trajectories(self, maps: BatchedMap) -> Trajectories:
        """What the errors of the masters of one schedule follow from."""
        schedule, backend = maps.schedule, maps.backend
        Phi, end = maps.around(schedule.observed)
        X = backend.array(self.columns[:, :, None])
        return Trajectories(
            maps.variation.steps,
            Phi,
            maps.full(maps.observe(schedule.outputs, end)),
            maps.full(backend.multiply(maps.begin(schedule.observed), X)),
            maps.chosen(schedule.exact_outputs),
            schedule.exact_flow.at(maps.durations(), 1.0, backend),
            maps.full(X),
        )

    def errors(self, own: Trajectories, backend: Backend) -> Stack:
        """The error of every master (N,), infinite where numbers are not finite."""
        moving = self.sizes > 0
        weight = np.where(moving, 1 / np.where(moving, self.sizes, 1.0), 0.0)
        counts, (stride, samples) = self._counts(own.steps), self.points(own.steps)
        with backend.quiet():
            pair = _Pair(own, backend.array(weight[:, None, None, None]), backend)
            error, _ = pair.error([motion.strided(stride) for motion in pair.motions], samples)
            leap, done, begins = 1, 0, [motion.first for motion in pair.motions]
            while done < counts.max() and (stride > leap).any():
                inside = np.clip(np.ceil((counts - done) / leap), 0, SEGMENT).astype(np.int64)
                k = leap.bit_length() - 1
                early, last = pair.error([(m.squares(k), v) for m, v in zip(pair.motions, begins, strict=True)], inside)
                error = backend.xp.maximum(error, early)
                begins = [backend.multiply(m.square(k + 2), v) for m, v in zip(pair.motions, last, strict=True)]
                done += SEGMENT * leap
                leap *= 4
        return error


class _Pair:
    """Both solutions of all masters, sampled at will."""

    def __init__(self, own: Trajectories, weight: Stack, backend: Backend) -> None:
        self.weight, self.backend, self.columns = weight, backend, own.z.shape[1]
        exact = _Motion(own.flow, own.C, backend.multiply(own.flow, own.x), backend)
        self.motions = (_Motion(own.Phi, own.Y, own.z, backend), exact)

    def error(self, from_: Sequence[tuple[_Powers, Stack]], samples: Any) -> tuple[Stack, list[Stack]]:
        """The largest error among `samples` of each master, and the states at the last of the longest sequence.

        Of both solutions, the powers that lead from one sample to the next, and the state of the first.
        """
        backend, xp, columns = self.backend, self.backend.xp, self.columns
        most, count = int(samples.max(initial=0)), len(samples)
        error, number, done = backend.zeros(count), backend.array(samples), 0
        states = [state for _, state in from_]
        block = max(1, WORK // (max(state.shape[0] for state in states) * columns * count))
        while done < most:
            length = min(block, most - done)
            outputs = []
            for place, (motion, (powers, _)) in enumerate(zip(self.motions, from_, strict=True)):
                begin = backend.multiply(powers.square(0), states[place]) if done else states[place]
                sequence = powers.sequence(begin, length)
                outputs.append(backend.multiply(motion.observe, sequence).reshape(-1, length, columns, count))
                states[place] = sequence[:, (length - 1) * columns :]
            off = (outputs[0] - outputs[1]) * self.weight
            worst = xp.amax((off * off).sum(2) ** 0.5, 0)
            worst = xp.where(xp.isfinite(worst), worst, float("inf"))
            sampled = backend.array(np.arange(done + 1, done + length + 1)[:, None]) <= number
            error = xp.maximum(error, xp.amax(xp.where(sampled, worst, 0.0), 0))
            done += length
        return error, states


class _Powers:
    """Repeated squares of every matrix of a stack, each made once."""

    def __init__(self, squares: list[Stack], backend: Backend) -> None:
        self.found, self.backend = squares, backend

    def square(self, k: int) -> Stack:
        """stack^(2^k)."""
        while len(self.found) <= k:
            self.found.append(self.backend.multiply(self.found[-1], self.found[-1]))
        return self.found[k]

    def squares(self, k: int) -> _Powers:
        """The powers of stack^(2^k)."""
        self.square(k)
        return _Powers(self.found[k:], self.backend)

    def sequence(self, columns: Stack, length: int) -> Stack:
        """[columns, stack · columns, …, stack^(length − 1) · columns], (n, length · c, N), by doubling."""
        width, k, done = columns.shape[1], 0, 1
        while done < length:
            more = min(done, length - done)
            columns = self.backend.join([columns, self.backend.multiply(self.square(k), columns[:, : more * width])], 1)
            done, k = done + more, k + 1
        return columns


class _Motion(_Powers):
    """One solution y_k = observe · stack^(k−1) · first of all masters."""

    def __init__(self, stack: Stack, observe: Stack, first: Stack, backend: Backend) -> None:
        super().__init__([backend.packed(stack)], backend)
        self.observe, self.first = observe, backend.packed(first)

    def strided(self, stride: Array) -> tuple[_Powers, Stack]:
        """The powers of stack^stride, and stack^(stride − 1) · first, for a power of two for every matrix."""
        found, state = self.square(0), self.first
        for k in range(int(stride.max()).bit_length() - 1):
            longer = self.backend.array(stride > 2**k) > 0
            state = self.backend.xp.where(longer, self.backend.multiply(self.square(k), state), state)
            found = self.backend.xp.where(longer, self.square(k + 1), found)
        return _Powers([found], self.backend), state


# ---- pareto fronts: who is dominated, how much a front covers, which points stand for it, where its knee is ----------


def nondominated(values: Array) -> BoolArray:
    """Which rows (N, m), the smaller the better, no other row dominates; of equal rows the first.

    >>> nondominated(np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 1.0], [1.0, 1.0]]))
    array([ True,  True, False, False])
    """
    order = np.lexsort(values.T[::-1])
    order, place = order[np.isfinite(values[order]).all(axis=1)], 0
    # In this order a row is dominated, if at all, by rows before it: what is left at a place is on the front.
    while place < len(order):
        kept = (values[order] < values[order[place]]).any(axis=1)
        kept[: place + 1] = True
        order, place = order[kept], place + 1
    found = np.zeros(len(values), dtype=bool)
    found[order] = True
    return found


def hypervolume(values: Array, reference: Array) -> float:
    """The volume that rows (N, m) dominate below `reference` (m,); rows beyond it count nothing.

    By slices along the last objective, down to two objectives, where it is a staircase.

    >>> hypervolume(np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([2.0, 2.0]))
    3.0
    """
    inside = values[(values < reference).all(axis=1)]
    return _volume(inside[nondominated(inside)], np.asarray(reference, dtype=float)) if len(inside) else 0.0


def _volume(rows: Array, reference: Array) -> float:
    if len(reference) == 1:
        return float(reference[0] - rows.min())
    if len(reference) == 2:
        rows = rows[np.argsort(rows[:, 0])]
        heights = np.minimum.accumulate(rows[:, 1])
        widths = np.diff(np.append(rows[:, 0], reference[0]))
        return float((widths * (reference[1] - heights)).sum())
    rows = rows[np.argsort(rows[:, -1])]
    depths = np.diff(np.append(rows[:, -1], reference[-1]))
    total, front = 0.0, np.zeros((0, rows.shape[1] - 1))
    for row, depth in zip(rows[:, :-1], depths.tolist(), strict=True):
        if not (front <= row).all(axis=1).any():
            front = np.vstack([front[~(row <= front).all(axis=1)], row])
        total += depth * _volume(front, reference[:-1])
    return total


def normalised(values: Array) -> Array:
    """Each column from 0 (its best) to 1 (its worst); a column without a range is 0."""
    low, high = values.min(axis=0), values.max(axis=0)
    found: Array = (values - low) / np.where(high > low, high - low, 1.0)
    return found


def knee(values: Array) -> int:
    """The row nearest to the ideal, the best of every column, after each column is scaled to [0, 1]."""
    return int(np.linalg.norm(normalised(values), axis=1).argmin())


def thinned(values: Array, count: int) -> list[int]:
    """At most `count` rows that stand for all: the best of each column and the knee, then always the farthest.

    Farthest from those chosen, in the scaled columns; the rows come in the order of the first column.
    """
    scaled = normalised(values)
    chosen = list(dict.fromkeys([*values.argmin(axis=0).tolist(), knee(values)]))[:count]
    distance = np.min([np.linalg.norm(scaled - scaled[i], axis=1) for i in chosen], axis=0)
    while len(chosen) < min(count, len(values)) and distance.max() > 0:
        chosen.append(int(distance.argmax()))
        distance = np.minimum(distance, np.linalg.norm(scaled - scaled[chosen[-1]], axis=1))
    return sorted(chosen, key=lambda i: values[i].tolist())
