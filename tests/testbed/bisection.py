"""The critical step found by trying: run, see whether the motion dies out, halve the interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cosimo.core.errors import NonFiniteError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.execution.running import run

Array = npt.NDArray[np.float64]
DEAD = 1e-8
"""Part of its largest change below which an output has come to rest. Near the critical step rounding is amplified, so
that what remains of a motion that has died never gets smaller than about 1e-13 of it."""
SHRINKS = 0.98
"""What the size over the last quarter of a run must be of that over the quarter before, to count as decay. The size of
a bounded oscillation differs by less, from where its samples fall; the critical step hardly moves: a radius under
1 − 4e-6 passes in 20,000 steps."""
ELSEWHERE = 1e-3
"""Part of its size by which an output must end away from where it should rest, to have left it for good."""


@dataclass(frozen=True)
class Ending:
    """How a run ends: whether its motion shrinks or is over, and per output where it came to rest (else NaN).

    `size` is the largest value of each output on the way.
    """

    dying: bool
    rest: Array
    size: Array


def ending(system: System, master: Master, *, steps: int = 20_000) -> Ending:
    """Whether the changes Δ_k = y_k − y_{k−1} of every output die out in a run of `steps` macro steps.

    With constant external inputs Δ_k = S_y Φ^k v for a linear system: whatever it tends to is not seen, only the modes
    are. The first half lets the stable modes die; then the root mean square over the last quarter is compared with that
    over the quarter before. A bounded oscillation that never dies (a limit cycle) is not dying.
    """
    try:
        values = run(system, master, stop=steps * master.step).values
    except NonFiniteError:
        unknown = np.full(len(system.outputs), np.nan)
        return Ending(False, unknown, unknown)
    with np.errstate(over="ignore", invalid="ignore"):
        changes = np.diff(values, axis=0)
        quarter = len(changes) // 4
        before, last = (_size(changes[part]) for part in (slice(-2 * quarter, -quarter), slice(-quarter, None)))
        over = last <= DEAD * np.abs(changes).max(axis=0)
        dying = bool((over | (last < SHRINKS * before)).all())
    return Ending(dying, np.where(over, values[-1], np.nan), np.abs(values).max(axis=0))


def critical_step_by_bisection(
    system: System,
    master_builder: Callable[[System, float], Master],
    low: float,
    high: float,
    *,
    tolerance: float = 1e-4,
    steps: int = 20_000,
) -> float:
    """The macro step between `low` (where runs must settle) and `high` (where they must not) at which that changes.

    Where they settle at `low` is where they should at all steps: external inputs must be constant.

    Found to a part of `tolerance`. Between `low` and `high` there should be one change only: stability sets need not be
    intervals, and of several changes any one is found.
    """

    first = ending(system, master_builder(system, low), steps=steps)

    def settles(step: float) -> bool:
        found = ending(system, master_builder(system, step), steps=steps)
        # Limits may stop what is unstable: it then rests, but elsewhere. Where either has not come to rest yet, NaN
        # compares as not away.
        away = np.abs(found.rest - first.rest) > ELSEWHERE * first.size
        return found.dying and not away.any()

    if not first.dying:
        raise ValueError(f"{system.name} does not settle at the lower end {low:g} of the search.")
    if settles(high):
        raise ValueError(f"{system.name} still settles at the upper end {high:g} of the search.")
    while high / low > 1 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if settles(middle) else (low, middle)
    return math.sqrt(low * high)


def _size(changes: Array) -> Array:
    """Root mean square per column, without overflow."""
    largest = np.abs(changes).max(axis=0)
    scaled = changes / np.where(largest > 0, largest, 1.0)
    size: Array = largest * np.sqrt(np.mean(scaled**2, axis=0))
    return size
