"""What a step of a unit costs, by the clock, and masters that use several workers."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from cosimo.core.system import System
from cosimo.tuning.graph import coupling_graph
from cosimo.tuning.structures import Structure

ATTEMPTS = 5
LEAST = 2e-3
"""Seconds that are measured at least per attempt."""


def measured_weights(system: System, step: float) -> dict[str, float]:
    """Seconds that one step of each unit takes, the shortest of a few attempts; for `Cost(weights=…)`.

    The cost of a master is then in seconds per simulated second: below 1, on one worker, it keeps up with real time.
    """
    return {name: _seconds(system, name, step) for name in system.units}


def _seconds(system: System, name: str, step: float) -> float:
    unit = system.units[name]
    best, count = np.inf, 8
    for _ in range(ATTEMPTS):
        instance = unit.instantiate(0.0)
        try:
            instance.set_input(np.array([[float(unit.start.get(v, 0.0)) for v in unit.inputs]]), step)
            instance.finish_initialisation()
            instance.step(0.0, step)
            while True:
                begin = time.perf_counter()
                for k in range(1, count + 1):
                    instance.step(k * step, step)
                    instance.read()
                spent = time.perf_counter() - begin
                if spent >= LEAST or count >= 4096:
                    break
                instance.close()
                instance = unit.instantiate(0.0)
                instance.set_input(np.array([[float(unit.start.get(v, 0.0)) for v in unit.inputs]]), step)
                instance.finish_initialisation()
                instance.step(0.0, step)
                count *= 2
            best = min(best, spent / count)
        finally:
            instance.close()
    return float(best)


def side_by_side(system: System, structure: Structure) -> Structure:
    """The same Gauss–Seidel master with units that do not see each other stepped together; Φ is the same.

    >>> from cosimo.problems import chain
    >>> system = chain(n=4)
    >>> order = tuple((name,) for name in system.names)
    >>> [len(stage) for stage in side_by_side(system, Structure("gauss-seidel", order, ())).stages]
    [1, 1, 1, 1]
    """
    if structure.family != "gauss-seidel":
        return structure
    graph = coupling_graph(system)
    level: dict[str, int] = {}
    for name in structure.order:
        near = graph.neighbours[graph.number[name]]
        earlier = [level[other] for other in level if near >> graph.number[other] & 1]
        level[name] = 1 + max(earlier, default=-1)
    stages = [tuple(n for n in structure.order if level[n] == k) for k in range(1 + max(level.values()))]
    if len(stages) == len(structure.order):
        return structure
    return replace(structure, family="groups", stages=tuple(stages))
