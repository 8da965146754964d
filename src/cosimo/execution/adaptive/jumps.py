"""Where external inputs jump. They are known for all times, so that a macro step can end exactly there.

A step that passes over a jump would see it only at its end. Between two places of the grid a signal jumps when halving
the interval again and again, always towards the larger change, leaves most of the change on one quantum; the change of
a smooth signal would shrink with the interval.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from cosimo.core.sources import Constant, Source, Table
from cosimo.core.system import System
from cosimo.execution.adaptive.variable import Grid

Sample = Callable[[str, Source, float], float]
"""The value of an external input at a time; errors name the input."""

LOOKS = 8
"""Parts of an interval whose ends are looked at."""
CLOSE = 16
"""Quanta below which an interval is too short to tell a jump from a slope."""
STAYS = 0.5
"""The share of the change that must remain on one quantum."""


class Jumps:
    """The places, in quanta, at which some external input of the system jumps."""

    def __init__(self, system: System, grid: Grid, sample: Sample) -> None:
        self._clear, self._found = 0, list[int]()
        self._signals: list[Callable[[int], float]] = []
        for target, source in system.inputs.items():
            if isinstance(source, Table):
                self._found += [math.ceil((t - grid.start) / grid.quantum) for t in source.jumps.tolist()]
            elif not isinstance(source, Constant):
                self._signals.append(partial(_value, sample, target, source, grid))
        self._found = sorted({place for place in self._found if 0 < place < grid.total})
        self._total = grid.total

    def next(self, place: int, ahead: int) -> int | None:
        """The first jump after `place`, if it lies at most `ahead` quanta away."""
        end = min(place + ahead, self._total)
        if end > self._clear:
            begin = max(place, self._clear)
            first = min(filter(None, (_first(signal, begin, end) for signal in self._signals)), default=None)
            # Beyond the first jump nothing is known yet.
            self._clear = end if first is None else first
            if first is not None and first < self._total and first not in self._found:
                self._found = sorted([*self._found, first])
        later = bisect_right(self._found, place)
        return self._found[later] if later < len(self._found) and self._found[later] <= end else None


def _value(sample: Sample, target: str, source: Source, grid: Grid, place: int) -> float:
    return sample(target, source, grid.time(place))


def _first(signal: Callable[[int], float], begin: int, end: int) -> int | None:
    """The first place in (begin, end] at which the signal has jumped."""
    looks = LOOKS if end - begin >= LOOKS * CLOSE else 1
    places = [begin + (end - begin) * look // looks for look in range(looks + 1)]
    values = [signal(place) for place in places]
    changes = [abs(after - before) for before, after in pairwise(values)]
    for look, change in enumerate(changes):
        # A jump stands out among the parts; where they are alike, the signal slopes.
        if change > 0 and (looks == 1 or change * looks >= 2 * sum(changes)):
            jump = _narrow(signal, (places[look], values[look]), (places[look + 1], values[look + 1]))
            if jump is not None:
                return jump
    return None


def _narrow(signal: Callable[[int], float], low: tuple[int, float], high: tuple[int, float]) -> int | None:
    change = abs(high[1] - low[1])
    if high[0] - low[0] < CLOSE:
        return None
    while high[0] - low[0] > 1:
        place = (low[0] + high[0]) // 2
        middle = (place, signal(place))
        if abs(middle[1] - low[1]) >= abs(high[1] - middle[1]):
            high = middle
        else:
            low = middle
    return high[0] if abs(high[1] - low[1]) > STAYS * change else None
