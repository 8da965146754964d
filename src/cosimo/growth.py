"""Whether outputs grow without bound, seen from the outputs alone. The compiled loop does the same (growth.cpp).

Every output is looked at in windows of 8, 16, 32, … macro steps; of each length the newest 20 are kept, as the interval
[low, high] of the values. An unstable coupling multiplies an oscillation by the same factor in every window as long as
it is linear. An output grows when, over the shortest run of M ≥ 6 windows that brings its range from A_1 to
A_M ≥ F A_1, with F = 4, or 2 from M = 8 on,

    1. ranges increase and every interval contains the one before, but for 2 % of its range: an oscillation that swells
       to both sides (each has at least a quarter of the growth), not a drift, a ramp or a step response;
    2. every step of log A is within ±25 % of their mean, and the first and last half of them differ by at most 20 %:
       envelopes that saturate or rise in proportion to time bend their logarithm more than that while they double;
    3. A_M ≥ F times the range of everything before these windows: what returns (beats, bursts) has been as large;
    4. no output of the same unit or a neighbour has shrunk meanwhile: energy that wanders between units is no growth;
    5. A_M is not rounding (above 1e-9 of the value).

While external inputs vary, F = 30 over at least 10 windows, and none of them has grown by half: a sweep through a
resonance looks like growth for a while. Growth that is no oscillation, or is many-fold within one period of it, is
missed. A unit that excites itself up to a limit cycle is not told apart from an unstable coupling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array

WINDOW = 8
"""Macro steps of the shortest windows."""
KEPT = 20
"""Windows of each length that are remembered."""
LEAST = 6
"""Windows that growth must last at least."""
FREE, FORCED = ((8, 2.0), (6, 4.0)), ((10, 30.0),)
"""From how many windows on which factor F suffices; the same under varying external inputs."""
EVEN = 0.25
"""How far steps of log A may lie from their mean, relative to it."""
BEND = 0.2
"""By how much the growth of log A in the first and in the last half may differ, relative to the mean."""
INPUT = 1.5
"""Growth of an external input that explains growth of outputs."""
SLACK = 0.02
"""By how much of its range an interval may miss the one before: peaks fall between samples."""
SIDE = 0.25
"""The share of the growth that each side of the interval must have."""
SHRUNK = 0.95
"""What a neighbouring output has become that gives energy away."""
NOISE = 1e-9
"""Ranges below this, relative to the values, are rounding."""


class Grown(NamedTuple):
    """An output that grows: found after `step` macro steps; its range went from `first` to `last` in `over` steps."""

    output: int
    step: int
    first: float
    last: float
    over: int

    @property
    def factor(self) -> float:
        """By what the range grows in one macro step."""
        return math.exp(math.log(self.last / self.first) / self.over)


class _Level:
    """The newest windows of one length: a ring of intervals, and the interval of all that left it."""

    def __init__(self, start: Array, width: int) -> None:
        self.width, self.count = width, 0
        self.high, self.low = np.zeros((2, KEPT, len(start)))
        self.old_high, self.old_low = start.copy(), start.copy()

    def push(self, high: Array, low: Array) -> None:
        slot = self.count % KEPT
        if self.count >= KEPT:
            self.old_high = np.maximum(self.old_high, self.high[slot])
            self.old_low = np.minimum(self.old_low, self.low[slot])
        self.high[slot], self.low[slot] = high, low
        self.count += 1

    def at(self, back: int) -> int:
        """The slot of the window `back` before the newest."""
        return (self.count - 1 - back) % KEPT


def _copied(part: Any) -> Any:
    return part.copy() if isinstance(part, np.ndarray) else part


class Growth:
    """Takes the intervals of 8 macro steps, one after the other; `start` (outputs, then external samples) at t0."""

    def __init__(self, start: Array, neighbours: Sequence[Sequence[int]]) -> None:
        self.outputs, self.found, self._neighbours = len(neighbours), list[Grown](), neighbours
        self._start, self._steps = start, 0
        self._levels: list[_Level] = []
        self._silent = np.zeros(self.outputs, dtype=bool)

    def memory(self) -> dict[str, Any]:
        """All it remembers, as plain data."""
        levels = [{name: _copied(part) for name, part in vars(level).items()} for level in self._levels]
        found = [list(one) for one in self.found]
        return {"found": found, "steps": self._steps, "levels": levels, "silent": self._silent.copy()}

    def load(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        self.found, self._steps = [Grown(*one) for one in memory["found"]], memory["steps"]
        self._silent[:] = memory["silent"]
        self._levels = [_Level(self._start, parts["width"]) for parts in memory["levels"]]
        for level, parts in zip(self._levels, memory["levels"], strict=True):
            vars(level).update(parts)

    def window(self, high: Array, low: Array) -> None:
        """The largest and smallest value of every signal in the next 8 macro steps."""
        self._steps += WINDOW
        for number in range(64):
            if number == len(self._levels):
                self._levels.append(_Level(self._start, WINDOW << number))
            level = self._levels[number]
            level.push(high, low)
            if level.count >= LEAST:
                self._look(level)
            if level.count % 2:
                return
            before = level.at(1)
            high, low = np.maximum(high, level.high[before]), np.minimum(low, level.low[before])

    def _look(self, level: _Level) -> None:
        newest = level.at(0)
        ranges = level.high[:, : self.outputs] - level.low[:, : self.outputs]
        suspects = (ranges[newest] > ranges[level.at(1)]) & (ranges[level.at(1)] > ranges[level.at(2)]) & ~self._silent
        for output in np.flatnonzero(suspects):
            first = self._begin(level, int(output))
            if first is not None:
                begun, last = float(ranges[level.at(first), output]), float(ranges[newest, output])
                self.found.append(Grown(int(output), self._steps, begun, last, first * level.width))
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
        """Conditions 1, 3 and 4 for growth from the window `first` before the newest on."""
        high, low = level.high[:, output], level.low[:, output]
        sizes = [float(high[level.at(back)] - low[level.at(back)]) for back in range(first, -1, -1)]
        mean = math.log(sizes[-1] / sizes[0]) / first
        for before, after in pairwise(sizes):
            if not (1.0 - EVEN) * mean <= math.log(after / before) <= (1.0 + EVEN) * mean:
                return False
        half = first // 2
        early, late = math.log(sizes[half] / sizes[0]), math.log(sizes[-1] / sizes[-1 - half])
        if abs(late - early) > BEND * mean * half:
            return False
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
        """An external input that grew, or a neighbour that shrank and may have given its energy."""
        newest, oldest = level.at(0), level.at(first)
        now, then = (level.high[slot] - level.low[slot] for slot in (newest, oldest))
        grew = now[self.outputs :] > INPUT * then[self.outputs :]
        others = list(self._neighbours[output])
        return bool(grew.any() or (now[others] < SHRUNK * then[others]).any())
