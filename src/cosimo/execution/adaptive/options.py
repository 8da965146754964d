"""What is asked of an adaptive step, which lengths it may have, and what cannot be run with one."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Literal

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import Repeat, Restore, Save, Step
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, timeline
from cosimo.couplings import Hold
from cosimo.execution.adaptive.variable import Grid

KINDS = ("energy", "doubling")
SHORTEST, LONGEST, FIRST = 1 / 128, 16.0, 1 / 16
"""The shortest, longest and first step, in macro steps of the master. Where nothing is repeated, steps get as short as
the tolerance: what has that length does even if all inputs are guessed wrong."""
FINER = 4
"""The quantum is at least 2^FINER times smaller than the shortest step, so that steps grow evenly."""
MOST_BITS = 50
"""Beyond this, places of the grid could no longer be told apart."""


@dataclass(frozen=True)
class Adaptive:
    """How macro steps are chosen: `kind` "energy" (nothing is repeated) or "doubling" (units must restore states).

    `relative` and `absolute` are the tolerances: the error of a signal in a step may be `relative` times the largest
    size it has had, plus `absolute`. The step of the master is the nominal one: with "energy", errors are those that a
    step of that length would have. `first` (at the start, and after external inputs jump), `shortest` and `longest`
    step are in seconds; by default 1/16, 1/128 and 16 times the nominal one, the first two with "energy" at most
    `relative` times it. `order` of the master: by default that of
    its couplings, which holds when the solvers inside the units are at least as good.

    >>> Adaptive("doubling", relative=1e-3).absolute
    1e-09
    """

    kind: Literal["energy", "doubling"] = "energy"
    relative: float = 1e-2
    absolute: float = 1e-9
    first: float | None = None
    shortest: float | None = None
    longest: float | None = None
    order: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UnknownNameError("kind of adaptive step", str(self.kind), KINDS)
        for name in ("relative", "first", "shortest", "longest"):
            value = getattr(self, name)
            if value is not None and not (_number(value) and value > 0):
                raise ConfigurationError(f"'{name}' of an adaptive step must be a positive number, not {value}.")
        if not (_number(self.absolute) and self.absolute >= 0):
            raise ConfigurationError(f"'absolute' of an adaptive step must be 0 or positive, not {self.absolute}.")
        if self.order is not None and (type(self.order) is not int or self.order < 1):
            raise ConfigurationError(f"the order of a master is a whole number of 1 or more, not {self.order}.")
        given = [(name, getattr(self, name)) for name in ("shortest", "first", "longest")]
        known = [(name, value) for name, value in given if value is not None]
        for (small, less), (large, more) in pairwise(known):
            if less > more:
                raise ConfigurationError(
                    f"the {small} step ({less:g} s) is longer than the {large} one ({more:g} s); swap them."
                )

    def to_dict(self) -> dict[str, object]:
        """Plain data for the result."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class Lengths:
    """The grid of a run, and its first, shortest and longest step in quanta."""

    grid: Grid
    first: int
    shortest: int
    longest: int

    def fit(self, wanted: float) -> int:
        """The length used for a wanted one: within the limits, rounded down to four binary digits."""
        parts = int(min(max(wanted, self.shortest), self.longest))
        low = max(parts.bit_length() - 4, 0)
        return max((parts >> low) << low, self.shortest)


def choose_lengths(adaptive: Adaptive, nominal: float, start: float, stop: float) -> Lengths:
    """The quantum and the limits of steps for a run from `start` to `stop`."""
    if not (math.isfinite(start) and math.isfinite(stop) and stop > start):
        raise ConfigurationError(f"the stop time ({stop:g}) must be a number greater than the start time ({start:g}).")
    span = stop - start
    pair = 2 if adaptive.kind == "doubling" else 1
    most = adaptive.relative if adaptive.kind == "energy" else math.inf
    longest = min(adaptive.longest or LONGEST * nominal, span / pair)
    shortest = adaptive.shortest or min(SHORTEST * nominal, most * nominal, longest, adaptive.first or math.inf)
    first = adaptive.first or min(max(min(FIRST, most) * nominal, shortest), longest)
    if shortest > longest:
        raise ConfigurationError(
            f"the shortest step ({shortest:g} s) is longer than the longest ({longest:g} s) that is possible between "
            f"{start:g} and {stop:g}; give a shorter one."
        )
    bits = FINER + max(0, math.ceil(math.log2(span / shortest)))
    if bits > MOST_BITS:
        raise ConfigurationError(f"{span / shortest:.1e} steps of {shortest:g} s fit into the run; give a longer one.")
    quantum = Grid(start, stop, bits).quantum
    least = max(1, math.ceil(shortest / quantum * (1 - 1e-12)))
    greatest = max(least, math.floor(longest / quantum * (1 + 1e-12)))
    return Lengths(Grid(start, stop, bits), min(max(least, round(first / quantum)), greatest), least, greatest)


def require_adaptable(system: System, master: Master, adaptive: Adaptive) -> None:
    """Refuse what cannot be run with steps of different lengths, by name."""
    if master.mixers:
        raise ConfigurationError(
            "a compensated master is designed for its macro step; leave the adaptive step or the compensation out."
        )
    for operation in master.schedule.operations:
        if isinstance(operation, Repeat | Save | Restore) or (isinstance(operation, Step) and operation.fraction != 1):
            raise ConfigurationError(
                f"master '{master.name}' iterates or has several rates, which an adaptive step cannot follow; use "
                f"jacobi, gauss-seidel, groups or jacobi-early-read."
            )
    couples = [op for op in timeline(system, master).operations if isinstance(op, TimedCouple)]
    for name, unit in system.units.items():
        for inlet in system.inlets[name]:
            coupling = master.coupling_of(inlet.target)
            if (inlet.link or inlet.source) and not isinstance(coupling, Hold):
                raise ConfigurationError(
                    f"the coupling {coupling} of input {inlet.target} is set up for one macro step; an adaptive step "
                    f"needs Hold(0), Hold(1) or Hold(2)."
                )
            if coupling.degree and any(op.unit == name and op.time > 0 for op in couples):
                raise ConfigurationError(
                    f"input {inlet.target} is formed at the end of the macro step, for a step whose length is not yet "
                    f"known; use Hold(0) there."
                )
        if not unit.variable_step:
            raise ConfigurationError(
                f"unit '{name}' does not accept steps of different lengths (its description does not declare "
                f"canHandleVariableCommunicationStepSize); run it without an adaptive step."
            )
        if adaptive.kind == "doubling" and not unit.can_restore:
            raise ConfigurationError(
                f"unit '{name}' cannot restore its state, which step doubling needs; use the kind 'energy'."
            )


def order_of(system: System, master: Master) -> int:
    """The order of the master for exact units: the least of its couplings."""
    return min((master.coupling_of(link.connection.target).order for link in system.links), default=1)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
