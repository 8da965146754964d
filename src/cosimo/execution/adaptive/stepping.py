"""From one macro step to the next: how long it is, whether it is accepted, how long the one after it shall be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cosimo.core.result import Warned
from cosimo.execution.adaptive.indicators import Defects, Judged, Tolerances
from cosimo.execution.adaptive.jumps import Jumps
from cosimo.execution.adaptive.options import Lengths
from cosimo.execution.adaptive.variable import VariableInterpreter
from cosimo.execution.power_bonds import Bond

SAFETY, INTEGRAL, PROPORTIONAL = 0.9, 0.3, 0.4
"""Of the PI controller: aim at 0.9 of the step that would just do; exponents before division by p + 1."""
SHRINK, GROW = 0.2, 2.0
"""By what a step may change at once."""
LEAST_ERROR = 1e-8
"""Errors below this are no longer told apart."""
SETTLING = 32
"""Accepted steps after the start, or after a jump, in which too large an error at the shortest step is no surprise: a
signal that leaves 0 has no size yet to which its error would be small."""

Row = Callable[[int, int], list[float]]
"""The row of the state as it is: given the place, and the quanta of the macro step that led there."""


@dataclass(frozen=True)
class Plan:
    """What a stepper goes by: lengths, the order p of the master, tolerances, and the power bonds."""

    lengths: Lengths
    order: int
    tolerances: Tolerances
    bonds: tuple[Bond, ...]


class Advance(NamedTuple):
    """Accepted macro steps: their lengths in quanta and their rows."""

    lengths: list[int]
    rows: list[list[float]]


class Stepper(ABC):
    """Makes macro steps of a live system. `made` counts all of them, `rejected` attempts that were not accepted."""

    indicator: str
    pair = 1
    """Macro steps that are chosen together."""

    def __init__(self, live: VariableInterpreter, plan: Plan, row: Row) -> None:
        self.live, self.lengths, self.row = live, plan.lengths, row
        self.jumps = Jumps(live.system, plan.lengths.grid, live.sample)
        self.made = self.rejected = 0
        self.wanted = plan.lengths.first
        self._exponent = 1.0 / (plan.order + 1)
        self._before, self._since = 1.0, 0
        self._forced: list[Warned] = []

    @abstractmethod
    def advance(self, place: int) -> Advance:
        """Go on from `place` by one accepted macro step, or a pair of them."""

    def told(self) -> dict[str, Any]:
        """For the result."""
        return {"indicator": self.indicator, "rejected": self.rejected, "macro_steps": self.made}

    def warnings(self) -> list[Warned]:
        """What the user should know."""
        if not self._forced:
            return []
        return [Warned(self._forced[0].message, self._forced[0].time, len(self._forced))]

    def _length(self, place: int) -> tuple[int, bool]:
        """How far to go from `place`, and whether an external input jumps there; no short rest is left before it."""
        wanted, least = self.pair * self.wanted, self.pair * self.lengths.shortest
        jump = self.jumps.next(place, 2 * wanted)
        room = (self.lengths.grid.total if jump is None else jump) - place
        if room <= wanted or room < 2 * least:
            return room, jump is not None
        return (wanted, False) if room >= 2 * wanted else ((room + 1) // 2, False)

    def _choose(self, length: int, error: float, jumped: bool) -> None:
        """The next length, by the PI controller; short again after a jump."""
        self._since += 1
        if jumped:
            self.wanted, self._before, self._since = self.lengths.first, 1.0, 0
            return
        error = max(error, LEAST_ERROR)
        factor = SAFETY * error ** (-(INTEGRAL + PROPORTIONAL) * self._exponent)
        factor *= self._before ** (PROPORTIONAL * self._exponent)
        self.wanted = self.lengths.fit(length * min(max(factor, SHRINK), GROW))
        self._before = error

    def _force(self, judged: Judged, place: int) -> None:
        """Note a step of the shortest length whose error is too large."""
        if self._since < SETTLING:
            return
        shortest, time = self.lengths.shortest * self.lengths.grid.quantum, self.lengths.grid.time(place)
        message = (
            f"steps of the shortest length ({shortest:.3g} s) had {judged.error:.3g} times the tolerated error, most "
            f"at {judged.worst} of unit '{judged.unit}'; allow shorter steps or a larger tolerance"
        )
        self._forced.append(Warned(message, time))


class EnergyStepper(Stepper):
    """Every step is accepted; what it left of residual energy and defects decides on the next."""

    def __init__(self, live: VariableInterpreter, plan: Plan, row: Row) -> None:
        super().__init__(live, plan, row)
        self._defects = Defects(live, plan.bonds, plan.tolerances)
        self.indicator = "residual energy" if self._defects.bonds else "connection defect"

    def advance(self, place: int) -> Advance:
        """One macro step."""
        length, jumped = self._length(place)
        step = self.live.lasting(length)
        self.made += 1
        step.macro_step(place)
        end = place + length
        judged = self._defects.judge(step, end, jumped)
        if judged.error > 1 and length <= self.lengths.shortest:
            self._force(judged, place)
        self._choose(length, judged.error, jumped)
        return Advance([length], [self.row(end, length)])

    def told(self) -> dict[str, Any]:
        """With the energies of the bonds."""
        return super().told() | {"bonds": self._defects.told()}

    def warnings(self) -> list[Warned]:
        """Also that there is no bond."""
        if self._defects.bonds:
            return super().warnings()
        message = "no power bond was found: the connection defects alone govern the step"
        return [Warned(message, self.lengths.grid.start), *super().warnings()]
