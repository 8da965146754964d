"""What is counted along a run, as sums, so that long runs take no more memory: iterations, values out of range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.result import Warned
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.system import System


class Iterations:
    """What happened in iterations until convergence."""

    def __init__(self, master: Master) -> None:
        repeats = [op.times for op in master.schedule.operations if isinstance(op, Repeat)]
        self.until = next((times for times in repeats if isinstance(times, Convergence)), None)
        self.count = self.sweeps = self.failed = self.first_failed = 0
        self.worst = self.first_residual = 0.0

    def add(self, sweeps: Sequence[int], residuals: Sequence[float]) -> None:
        """Take over what an engine counted."""
        if not sweeps or self.until is None:
            return
        found = np.asarray(residuals)
        over = np.flatnonzero(found > self.until.tolerance)
        if len(over) and not self.failed:
            self.first_failed, self.first_residual = self.count + int(over[0]), float(found[over[0]])
        self.failed += len(over)
        self.count += len(found)
        self.sweeps += int(np.sum(sweeps))
        self.worst = max(self.worst, float(found.max()))

    def info(self) -> dict[str, Any]:
        """For the result: all sweeps, the largest residual at the end of an iteration, and how many failed."""
        return {"sweeps": self.sweeps, "largest_residual": self.worst, "unconverged": self.failed}

    def memory(self) -> dict[str, Any]:
        """All that is counted, as plain data."""
        return {name: value for name, value in vars(self).items() if name != "until"}

    def load(self, memory: Mapping[str, Any]) -> None:
        """Go on counting from what `memory` gave."""
        vars(self).update({name: memory[name] for name in self.memory()})


class Ranges:
    """Values outside the range that their unit declares; looked at in the rows, so only what is recorded is seen."""

    def __init__(self, system: System, names: Sequence[str]) -> None:
        declared = {
            f"{unit}.{variable}": limits
            for unit, described in system.units.items()
            for variable, limits in described.ranges().items()
        }
        self._names = [name for name in names if name in declared]
        self._columns = [1 + place for place, name in enumerate(names) if name in declared]
        self._low, self._high = np.array([declared[name] for name in self._names]).reshape(-1, 2).T
        self._limits = declared
        self.found: dict[str, tuple[float, float, int]] = {}
        """By name: the time and the value of the first, and how many there were."""

    def look(self, rows: Array) -> None:
        """At the next rows, time first."""
        if not self._columns or not len(rows):
            return
        values = rows[:, self._columns]
        outside = (values < self._low) | (values > self._high)
        if not outside.any():
            return
        for place in np.flatnonzero(outside.any(axis=0)):
            name, hits = self._names[place], np.flatnonzero(outside[:, place])
            first = float(rows[hits[0], 0]), float(values[hits[0], place])
            time, value, count = self.found.get(name, (*first, 0))
            self.found[name] = (time, value, count + len(hits))

    def warnings(self) -> list[Warned]:
        """One per variable."""
        return [
            Warned(
                f"{name} is {value:.6g}, outside its declared range {_show(self._limits[name])}; the unit is used "
                f"beyond what it was made for",
                time,
                count,
            )
            for name, (time, value, count) in self.found.items()
        ]


def _show(limits: tuple[float, float]) -> str:
    low, high = limits
    left = "(−∞" if low == -math.inf else f"[{low:g}"
    return f"{left}, {'∞)' if high == math.inf else f'{high:g}]'}"
