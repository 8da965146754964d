"""When a schedule couples, steps and reads each unit, in whole ticks: the largest part of the macro step in all of it.

A compensation follows its target from tick to tick. At every coupling of a unit, the outputs it sees were read at some
earlier (or, of units that went ahead, later) tick, and those that feed inputs through show inputs given at yet another.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedStep


@dataclass(frozen=True)
class Sighting:
    """How a coupling sees one unit: it was read `read` ticks later, under inputs given `given` ticks later.

    Both count from the moment of the coupling, so that they are mostly negative or 0; `elapsed` is the time from giving
    the inputs to reading, in macro steps.
    """

    read: int
    given: int
    elapsed: Fraction


@dataclass(frozen=True)
class Rhythm:
    """`ticks` per macro step; per unit the ticks of one step (`spans`), and what its couplings see of all units.

    `seen[name][p]` belongs to the coupling at tick p · spans[name].
    """

    ticks: int
    spans: dict[str, int]
    seen: dict[str, tuple[dict[str, Sighting], ...]]


def rhythm(system: System, operations: tuple[TimedOperation, ...]) -> Rhythm:
    """The rhythm of a schedule; refused are those that iterate or in which couplings and steps do not alternate."""
    plain: list[TimedCouple | TimedStep | TimedRead] = []
    for operation in operations:
        if not isinstance(operation, TimedCouple | TimedStep | TimedRead):
            raise ConfigurationError(
                "compensation is for masters that do not iterate: it replaces iteration; use jacobi or gauss_seidel."
            )
        plain.append(operation)
    steps = {name: [op for op in plain if isinstance(op, TimedStep) and op.unit == name] for name in system.units}
    ticks = lcm(*(op.fraction.denominator for ops in steps.values() for op in ops))
    for name, own in steps.items():
        couples = [op.time for op in plain if isinstance(op, TimedCouple) and op.unit == name]
        if len({op.fraction for op in own}) > 1 or (system.incoming(name) and couples != [op.time for op in own]):
            raise ConfigurationError(
                f"unit '{name}' is not coupled exactly once before each of its steps, all equally long; a compensation "
                f"corrects its inputs step by step."
            )
    spans = {name: int(own[0].fraction * ticks) for name, own in steps.items()}
    return Rhythm(ticks, spans, _seen(system, plain, ticks))


def _seen(
    system: System, operations: list[TimedCouple | TimedStep | TimedRead], ticks: int
) -> dict[str, tuple[dict[str, Sighting], ...]]:
    """Follow the schedule until its pattern has settled: the second macro step is like all later ones."""
    read = dict.fromkeys(system.units, 0)
    shown = dict.fromkeys(system.units, 0)
    given = dict.fromkeys(system.units, 0)
    elapsed = dict.fromkeys(system.units, Fraction(0))
    found: dict[str, list[dict[str, Sighting]]] = {}
    for begin in (0, ticks):
        found = {name: [] for name in system.units}
        for operation in operations:
            name, now = operation.unit, begin + int(operation.time * ticks)
            if isinstance(operation, TimedCouple):
                found[name].append({o: Sighting(read[o] - now, shown[o] - now, elapsed[o]) for o in system.units})
                given[name] = now
            elif isinstance(operation, TimedRead):
                read[name], shown[name], elapsed[name] = now, given[name], operation.offset + operation.elapsed
    return {name: tuple(positions) for name, positions in found.items()}
