"""What is watched in every run: connection defects, energy residuals, growth (docs/monitors.md).

After every macro step, with y the newest outputs and u(now) the values of the input polynomials at the units' time:

    defect      d_l = |gain y + offset − u(now)|                     per connection l
    residual    P_b = u_b y_b − (g_p / g_q) y_a u_a                  per power bond (bonds.py), energy h Σ P_b
    exchanged   ½ (|u_b y_b| + |(g_p / g_q) y_a u_a|)                the same summed up, to compare with

and growth of every output (growth.py). `Monitor` is the plain-Python form of what the compiled loop does (monitor.cpp),
rounding for rounding: eight macro steps are summed in halves, then added.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.system import System
from cosimo.execution.divergence import WINDOW, Grown, Growth
from cosimo.execution.power_bonds import Bond

BLOCK = WINDOW
"""Macro steps that are looked at together."""


@dataclass(frozen=True, eq=False)
class Watch:
    """What to watch in a system; `stop`: end the run when it is found to grow."""

    system: System
    bonds: tuple[Bond, ...] = ()
    stop: bool = False

    @property
    def inputs(self) -> list[str]:
        """Inputs whose values are followed: those of the links in their order, then external ones."""
        return [link.connection.target for link in self.system.links] + list(self.system.inputs)

    @property
    def sources(self) -> list[int]:
        """The place of every link's source among all outputs."""
        places = {name: place for place, name in enumerate(self.system.outputs)}
        return [places[link.connection.source] for link in self.system.links]

    @property
    def owners(self) -> list[int]:
        """The number of every output's unit."""
        return [number for number, unit in enumerate(self.system.units.values()) for _ in unit.outputs]

    @property
    def groups(self) -> list[list[int]]:
        """Per unit the outputs of itself and of units it is connected to: where its energy may come from."""
        near = [{number} for number in range(len(self.system.units))]
        numbers = {name: number for number, name in enumerate(self.system.units)}
        for link in self.system.links:
            a, b = numbers[link.source.unit], numbers[link.target.unit]
            near[a].add(b)
            near[b].add(a)
        outputs: list[list[int]] = [[] for _ in near]
        for output, owner in enumerate(self.owners):
            outputs[owner].append(output)
        return [[output for number in sorted(group) for output in outputs[number]] for group in near]


@dataclass(frozen=True)
class Findings:
    """What was seen in `steps` macro steps.

    Per link the largest defect, the number of the macro step after which it was seen, and Σ d²; per output the extremes
    (of whole blocks), Σ (y − y_0) and Σ (y − y_0)²; per bond Σ P and the sum exchanged.
    """

    steps: int
    largest: tuple[float, ...]
    when: tuple[int, ...]
    defects: tuple[float, ...]
    high: tuple[float, ...]
    low: tuple[float, ...]
    sums: tuple[float, ...]
    squares: tuple[float, ...]
    residual: tuple[float, ...]
    exchanged: tuple[float, ...]
    grown: tuple[Grown, ...]

    @classmethod
    def told(cls, told: Any) -> Findings:
        """From the fields in order, in lists, as the compiled loop hands them over."""
        names = [field.name for field in fields(cls)]
        *parts, grown = (told[0], *map(tuple, told[1:]))
        return cls(**dict(zip(names, (*parts, tuple(Grown(*one) for one in grown)), strict=True)))


class Monitor:
    """The plain interpreter's monitors: takes all outputs and the watched inputs after every macro step."""

    _KEPT = (
        *("_start", "_largest", "_when", "_defects", "_high", "_low"),
        *("_sums", "_squares", "_residual", "_exchanged"),
    )

    def __init__(self, watch: Watch, y: Array, u: Array) -> None:
        links, p = watch.system.links, len(y)
        self._watch, self._start, self._rows = watch, y.copy(), list[Array]()
        self._from = np.array(watch.sources, dtype=int)
        self._gain, self._offset = (np.array([getattr(n.connection, k) for n in links]) for k in ("gain", "offset"))
        self._links, self._p, self._steps = len(links), p, 0
        self._forward, self._back = (
            np.array([getattr(bond, end).number for bond in watch.bonds], dtype=int) for end in ("forward", "back")
        )
        self._ratio = np.array([bond.ratio for bond in watch.bonds])
        self._largest, self._when, self._defects = np.zeros(len(links)), [0] * len(links), np.zeros(len(links))
        self._high, self._low, self._sums, self._squares = y.copy(), y.copy(), np.zeros(p), np.zeros(p)
        self._residual, self._exchanged = np.zeros((2, len(watch.bonds)))
        groups, owners = watch.groups, watch.owners
        self._growth = Growth(np.concatenate([y, u[len(links) :]]), [groups[owner] for owner in owners])

    def observe(self, y: Array, u: Array) -> bool:
        """The signals after a macro step; whether the run shall end here."""
        self._rows.append(np.concatenate([y, u]))
        if len(self._rows) < BLOCK:
            return False
        rows = np.array(self._rows)
        self._sum_up(rows, BLOCK)
        self._window(rows)
        self._steps += BLOCK
        self._rows.clear()
        return self._watch.stop and bool(self._growth.found)

    def findings(self, final: bool = True) -> Findings:
        """What was seen; `final`, once at the end: the macro steps since the last whole block included."""
        if self._rows and final:
            count = len(self._rows)
            self._sum_up(np.array(self._rows + [self._rows[-1]] * (BLOCK - count)), count)
            self._steps += count
            self._rows.clear()
        seen = (self._largest, np.array(self._when, dtype=int), self._defects, self._high, self._low)
        sums = (self._sums, self._squares, self._residual, self._exchanged)
        return Findings.told((self._steps, *(part.tolist() for part in (*seen, *sums)), self._growth.found))

    def memory(self) -> dict[str, Any]:
        """All it remembers, as plain data."""
        kept = {name: np.array(getattr(self, name)) for name in self._KEPT}
        return {
            **kept,
            "rows": [row.copy() for row in self._rows],
            "steps": self._steps,
            "growth": self._growth.memory(),
        }

    def load(self, memory: dict[str, Any]) -> None:
        """Go on from what `memory` gave."""
        for name in self._KEPT:
            setattr(self, name, memory[name])
        self._when = memory["_when"].tolist()
        self._rows, self._steps = list(memory["rows"]), memory["steps"]
        self._growth.load(memory["growth"])

    def _sum_up(self, rows: Array, count: int) -> None:
        y, u = rows[:, : self._p], rows[:, self._p :]

        def cleared(x: Array) -> Array:
            x[count:] = 0.0
            return x

        with np.errstate(over="ignore", invalid="ignore"):
            moved = y - self._start
            self._sums += _sum(cleared(moved))
            self._squares += _sum(cleared(moved * moved))
            missed = cleared(np.abs(self._gain * y[:, self._from] + self._offset - u[:, : self._links]))
            self._defects += _sum(missed * missed)
            most = _largest(missed)
            for link in np.flatnonzero(most > self._largest):
                self._largest[link] = most[link]
                self._when[link] = self._steps + int(np.flatnonzero(missed[:, link] == most[link])[0]) + 1
            effort, flow = y[:, self._from[self._forward]], y[:, self._from[self._back]]
            received = u[:, self._forward] * flow
            given = self._ratio * (effort * u[:, self._back])
            self._residual += _sum(cleared(received - given))
            self._exchanged += _sum(cleared(0.5 * (np.abs(received) + np.abs(given))))

    def _window(self, rows: Array) -> None:
        watched = np.column_stack([rows[:, : self._p], rows[:, self._p + self._links :]])
        high, low = watched.max(axis=0), watched.min(axis=0)
        self._high = np.maximum(self._high, high[: self._p])
        self._low = np.minimum(self._low, low[: self._p])
        self._growth.window(high, low)


def _sum(x: Array) -> Array:
    """Over 8 rows, in halves."""
    four = x[:4] + x[4:]
    two = four[:2] + four[2:]
    total: Array = two[0] + two[1]
    return total


def _largest(x: Array) -> Array:
    four = np.where(x[:4] > x[4:], x[:4], x[4:])
    two = np.where(four[:2] > four[2:], four[:2], four[2:])
    largest: Array = np.where(two[0] > two[1], two[0], two[1])
    return largest
