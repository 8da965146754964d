"""What a master costs: unit steps per simulated second, weighted by the time that a step of each unit takes.

cost = Σ_i n_i w_i / h        n_i steps of unit i in one macro step h, w_i = 1 unless it is known
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Operation, Repeat, Step
from cosimo.core.system import System
from cosimo.core.unit import Unit


@dataclass(frozen=True)
class Cost:
    """`weights` is the cost of one step of each unit (1 where not given).

    Steps that stand side by side in the schedule run in parallel on `workers`. An iteration until convergence counts as
    `sweeps` sweeps.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    workers: int = 1
    sweeps: float | None = None

    def per_second(self, system: System, master: Master) -> float:
        """The cost of one simulated second."""
        return self.per_step(system, master) / master.step

    def per_step(self, system: System, master: Master) -> float:
        """The cost of one macro step."""
        for name in self.weights:
            if name not in system.units:
                raise UnknownNameError("unit", name, system.units)
        return self._of(master.schedule.operations)

    def _of(self, operations: Iterable[Operation]) -> float:
        total, side_by_side = 0.0, []
        for operation in operations:
            if isinstance(operation, Step):
                side_by_side.append(float(self.weights.get(operation.unit, 1.0)))
                continue
            total += self._together(side_by_side)
            side_by_side = []
            if isinstance(operation, Repeat):
                times = self.sweeps if isinstance(operation.times, Convergence) else operation.times
                if times is None:
                    raise ConfigurationError(
                        "the master iterates until convergence; say with Cost(sweeps=…) how many sweeps that takes."
                    )
                total += times * self._of(operation.body)
        return total + self._together(side_by_side)

    def _together(self, weights: list[float]) -> float:
        """Steps in parallel take as long as the longest, or as all of them shared out."""
        return max(max(weights), sum(weights) / self.workers) if weights else 0.0


ATTEMPTS = 5
LEAST = 2e-3
"""Seconds that are measured at least per attempt."""
MOST = 4096
"""Steps that are timed together at most."""


def measured_weights(system: System, step: float) -> dict[str, float]:
    """Seconds that one step of each unit takes, the shortest of a few attempts; for `weights`.

    The cost of a master is then in seconds per simulated second: below 1, on one worker, it keeps up with real time.
    """
    return {name: _seconds(unit, step) for name, unit in system.units.items()}


def _seconds(unit: Unit, step: float) -> float:
    best, count = math.inf, 8
    for _ in range(ATTEMPTS):
        spent = _timed(unit, step, count)
        while spent < LEAST and count < MOST:
            count *= 2
            spent = _timed(unit, step, count)
        best = min(best, spent / count)
    return best


def _timed(unit: Unit, step: float, count: int) -> float:
    """Seconds for `count` steps of a fresh instance, after a first one."""
    instance = unit.instantiate(0.0)
    try:
        instance.set_input(np.array([[float(unit.start.get(v, 0.0)) for v in unit.inputs]]), step)
        instance.finish_initialisation()
        instance.step(0.0, step)
        begin = time.perf_counter()
        for k in range(1, count + 1):
            instance.step(k * step, step)
            instance.read()
        return time.perf_counter() - begin
    finally:
        instance.close()
