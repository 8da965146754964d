"""Whether outputs grow without bound, seen from the outputs alone. The compiled loop does the same (growth.cpp).

Every output is looked at in windows of 8, 16, 32, … and of 24, 48, 96, … macro steps; of each length the newest 20 are
kept, as the interval [low, high] of the values with the times of both ends. An unstable coupling multiplies an
oscillation by the same factor in every stretch of time as long as it is linear. An output grows when, over the shortest
run of M ≥ 6 windows that brings its range from A_1 to A_M ≥ F A_1, with F = 4, or 2 from M = 8 on,

    1. ranges increase and every interval contains the one before, but for 2 % of its range: an oscillation that swells
       to both sides (each has at least a quarter of the growth), not a drift, a ramp or a step response;
    2. log A rises in a straight line over one of two clocks: every step of it is within ±25 % of their mean, and the
       first and last half of them differ by at most 10 %. Envelopes that saturate or rise in proportion to time, or to
       its square, bend their logarithm more than that while they double. One clock counts windows. The other takes the
       times of the ends: a window that is hardly longer than a period has now one, now two peaks more than the last;
    3. A_M ≥ F times the range of everything before these windows: what returns (beats, bursts) has been as large;
    4. no output of the same unit or a neighbour oscillates less than before, its interval within the one it had:
       energy that wanders between units is no growth. A drift that slows down has moved on, and gives nothing away;
    5. A_M is not rounding (above 1e-9 of the value).

While external inputs vary, F = 30 over at least 10 windows, and none of them has grown by half: a sweep through a
resonance looks like growth for a while. Growth that is no oscillation, or is many-fold within one period of it, is
missed. A unit that excites itself up to a limit cycle is not told apart from an unstable coupling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array

WINDOW = 8  # macro steps of the shortest windows
THIRDS = 3 * WINDOW
"""Macro steps of the shortest windows between them: of lengths that only double, the one that fits is up to twice as
long as it need be."""
LENGTHS = 58  # lengths of each kind at most: their macro steps fit in 63 bits
KEPT = 20  # windows of each length that are remembered
LEAST = 6  # windows that growth must last at least
FREE, FORCED = ((8, 2.0), (6, 4.0)), ((10, 30.0),)
"""From how many windows on which factor F suffices; the same under varying external inputs."""
EVEN = 0.25  # how far steps of log A may lie from their mean, relative to it
BEND = 0.1
"""By how much the growth of log A in the first and in the last half may differ, relative to the mean. Settled on 9,000
stable and 1,600 unstable runs: 0.2 notices 1 % more of the latter and raises 48 alarms instead of 32, nearly all where
something unseen steers the amplitude."""
INPUT = 1.5  # growth of an external input that explains growth of outputs
SLACK = 0.02  # by how much of its range an interval may miss the one before: peaks fall between samples
SIDE = 0.25  # the share of the growth that each side of the interval must have
SHRUNK = 0.99
"""What a neighbouring output has become that gives energy away. At 0.95 nearly tuned oscillators that exchange energy
raise 12 alarms in 3,600 of these runs, at 0.99 none; growth is noticed as soon."""
NOISE = 1e-9  # ranges below this, relative to the values, are rounding


class Grown(NamedTuple):
    """An output that grows: found after `step` macro steps; its range went from `first` to `last` in `over` steps."""

    output: int
    step: int
    first: float
    last: float
    over: float

    @property
    def factor(self) -> float:
        """By what the range grows in one macro step."""
        return math.exp(math.log(self.last / self.first) / self.over)


class Extent(NamedTuple):
    """Per signal the interval [low, high] of its values, and when its ends were reached, to 8 macro steps."""

    high: Array
    low: Array
    high_time: Array
    low_time: Array

    def join(self, other: Extent) -> Extent:
        """The interval of both; where ends are equal, the time is the other's."""
        higher, lower = self.high > other.high, self.low < other.low
        return Extent(
            np.where(higher, self.high, other.high),
            np.where(lower, self.low, other.low),
            np.where(higher, self.high_time, other.high_time),
            np.where(lower, self.low_time, other.low_time),
        )


class _Level:
    """The newest windows of one length: a ring of extents, and the interval of all that left it."""

    def __init__(self, start: Array, width: int) -> None:
        self.width, self.count = width, 0
        self.high, self.low, self.high_time, self.low_time = np.zeros((4, KEPT, len(start)))
        self.old_high, self.old_low = start.copy(), start.copy()

    def push(self, now: Extent) -> None:
        slot = self.count % KEPT
        if self.count >= KEPT:
            self.old_high = np.maximum(self.old_high, self.high[slot])
            self.old_low = np.minimum(self.old_low, self.low[slot])
        self.high[slot], self.low[slot], self.high_time[slot], self.low_time[slot] = now
        self.count += 1

    def at(self, back: int) -> int:
        """The slot of the window `back` before the newest."""
        return (self.count - 1 - back) % KEPT

    def extent(self, back: int) -> Extent:
        """The window `back` before the newest."""
        slot = self.at(back)
        return Extent(self.high[slot], self.low[slot], self.high_time[slot], self.low_time[slot])

    def sizes(self, output: int, first: int) -> list[float]:
        """The ranges from the window `first` before the newest on."""
        slots = [self.at(back) for back in range(first, -1, -1)]
        return [float(self.high[slot, output] - self.low[slot, output]) for slot in slots]

    def times(self, output: int, first: int) -> list[float]:
        """When these ranges were reached: the mean of the times of both ends."""
        slots = [self.at(back) for back in range(first, -1, -1)]
        return [0.5 * float(self.high_time[slot, output] + self.low_time[slot, output]) for slot in slots]


class Growth:
    """Takes the intervals of 8 macro steps, one after the other; `start` (outputs, then external samples) at t0."""

    def __init__(self, start: Array, neighbours: Sequence[Sequence[int]]) -> None:
        self.outputs, self.found, self._neighbours = len(neighbours), list[Grown](), neighbours
        self._start, self._steps = start, 0
        self._ladders: dict[int, list[_Level]] = {WINDOW: [], THIRDS: []}
        self._silent = np.zeros(self.outputs, dtype=bool)

    def memory(self) -> dict[str, Any]:
        """All it remembers, as plain data."""
        ladders = [
            [{name: copy(part) for name, part in vars(level).items()} for level in levels]
            for levels in self._ladders.values()
        ]
        found = [list(one) for one in self.found]
        return {"found": found, "steps": self._steps, "ladders": ladders, "silent": self._silent.copy()}

    def load(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.found, self._steps = [Grown(*one) for one in memory["found"]], memory["steps"]
        self._silent[:] = memory["silent"]
        for levels, kept in zip(self._ladders.values(), memory["ladders"], strict=True):
            levels[:] = [_Level(self._start, parts["width"]) for parts in kept]
            for level, parts in zip(levels, kept, strict=True):
                vars(level).update(parts)

    def window(self, high: Array, low: Array) -> None:
        """The largest and smallest value of every signal in the next 8 macro steps."""
        self._steps += WINDOW
        time = np.full(len(high), float(self._steps))
        self._climb(WINDOW, Extent(high, low, time, time))
        blocks = self._ladders[WINDOW][0]
        if blocks.count % 3 == 0:
            self._climb(THIRDS, blocks.extent(0).join(blocks.extent(1).join(blocks.extent(2))))

    def _climb(self, width: int, now: Extent) -> None:
        """Two windows of one length make one of the next."""
        levels = self._ladders[width]
        for number in range(LENGTHS):
            if number == len(levels):
                levels.append(_Level(self._start, width << number))
            level = levels[number]
            level.push(now)
            if level.count >= LEAST:
                self._look(level)
            if level.count % 2:
                return
            now = now.join(level.extent(1))

    def _look(self, level: _Level) -> None:
        newest = level.at(0)
        ranges = level.high[:, : self.outputs] - level.low[:, : self.outputs]
        suspects = (ranges[newest] > ranges[level.at(1)]) & (ranges[level.at(1)] > ranges[level.at(2)]) & ~self._silent
        for output in np.flatnonzero(suspects):
            first = self._begin(level, int(output))
            if first is not None:
                begun, last = float(ranges[level.at(first), output]), float(ranges[newest, output])
                times = level.times(int(output), first)
                self.found.append(Grown(int(output), self._steps, begun, last, times[-1] - times[0]))
                self._silent[output] = True

    def _begin(self, level: _Level, output: int) -> int | None:
        """How many windows ago steady growth began; None where it is none."""
        high, low = level.high[:, output], level.low[:, output]
        newest = level.at(0)
        last = float(high[newest] - low[newest])
        if not NOISE * max(abs(high[newest]), abs(low[newest])) < last < math.inf:
            return None
        rules = FORCED if self._forced(level) else FREE
        later = newest
        for back in range(1, min(level.count, KEPT)):
            slot = level.at(back)
            size, next_ = float(high[slot] - low[slot]), float(high[later] - low[later])
            if not 0.0 < size < next_:
                return None
            slack = SLACK * next_
            if high[slot] > high[later] + slack or low[slot] < low[later] - slack:
                return None
            wanted = next((factor for windows, factor in rules if back + 1 >= windows), math.inf)
            if last >= wanted * size:
                return back if self._steady(level, output, back, wanted) else None
            later = slot
        return None

    def _steady(self, level: _Level, output: int, first: int, factor: float) -> bool:
        """Conditions 1 to 4 for growth from the window `first` before the newest on."""
        sizes, windows = level.sizes(output, first), range(first + 1)
        if not _straight(sizes, windows) and not _straight(sizes, level.times(output, first)):
            return False
        high, low = level.high[:, output], level.low[:, output]
        newest, oldest = level.at(0), level.at(first)
        least = SIDE * (sizes[-1] - sizes[0])
        if high[newest] - high[oldest] < least or low[oldest] - low[newest] < least:
            return False
        top, bottom = float(level.old_high[output]), float(level.old_low[output])
        for back in range(first + 1, min(level.count, KEPT)):
            top, bottom = max(top, float(high[level.at(back)])), min(bottom, float(low[level.at(back)]))
        return sizes[-1] >= factor * (top - bottom) and not self._explained(level, output, first)

    def _forced(self, level: _Level) -> bool:
        given = slice(self.outputs, None)
        return bool((level.high[level.at(0), given] > level.low[level.at(0), given]).any())

    def _explained(self, level: _Level, output: int, first: int) -> bool:
        """An external input that grew, or a neighbour that oscillates less and may have given its energy."""
        now, then = level.extent(0), level.extent(first)
        size_now, size_then = now.high - now.low, then.high - then.low
        grew = size_now[self.outputs :] > INPUT * size_then[self.outputs :]
        gave = (size_now < SHRUNK * size_then) & (now.high <= then.high) & (now.low >= then.low)
        return bool(grew.any() or gave[list(self._neighbours[output])].any())


def _straight(sizes: Sequence[float], times: Sequence[float]) -> bool:
    """Whether log A rises in a straight line over the time of one clock."""

    def rate(earlier: int, later: int) -> float:
        return math.log(sizes[later] / sizes[earlier]) / (times[later] - times[earlier])

    last = len(sizes) - 1
    mean = rate(0, last)
    if not all((1.0 - EVEN) * mean <= rate(k, k + 1) <= (1.0 + EVEN) * mean for k in range(last)):
        return False
    half = last // 2
    return abs(rate(last - half, last) - rate(0, half)) <= BEND * mean
