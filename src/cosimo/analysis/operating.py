"""Where the units of a system are when they are identified: at the start with consistent inputs, or along a run.

At the start the inputs are those with which a run begins: u = L y + b with y = g(x, u) solved. Later, every unit is
led to its operating point by the inputs of a reference run. It is led with the macro step at which it is identified
and inputs that are held over each step; held is the mean of the reference over the step, so that the state reached is
that of the reference to second order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from cosimo.analysis.identification import OperatingPoint
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.sources import Source, Table
from cosimo.core.system import System
from cosimo.execution.live import Live
from cosimo.masters import jacobi


@dataclass(frozen=True)
class Situation:
    """All signals of a system at one time: inputs by unit and name, outputs by unit, and how it came there.

    `run` is the reference run that led here, None at the start.
    """

    time: float
    start: float
    inputs: Mapping[str, Mapping[str, float]]
    outputs: Mapping[str, Array]
    run: Result | None = field(default=None, repr=False)

    def point(self, system: System, unit: str, step: float) -> OperatingPoint:
        """The operating point of one unit, led there with macro steps of `step`."""
        if self.run is None or self.time == self.start:
            return OperatingPoint(self.start, self.start, dict(self.inputs[unit]))
        signals = {name: self._signal(system, unit, name, step) for name in system.units[unit].inputs}
        return OperatingPoint(self.time, self.start, signals)

    def _signal(self, system: System, unit: str, name: str, step: float) -> Source:
        assert self.run is not None
        values = self.run[f"{unit}.{name}"]
        if name in system.units[unit].discrete_inputs:
            return Table(self.run.time, values, interpolation="hold")
        return Averaged(self.run.time, values, step, self.time)


class Averaged:
    """The mean of a recorded signal over the step that begins at a time; from `until` on, its value."""

    def __init__(self, times: Array, values: Array, step: float, until: float) -> None:
        self._times, self._values, self._step = times, values, step
        # Run-ups count whole steps, which need not end exactly here.
        self._until = until - 0.75 * step
        areas = np.diff(times) * (values[1:] + values[:-1]) / 2
        self._area: Array = np.concatenate([[0.0], np.cumsum(areas)])

    def __call__(self, time: float) -> float:
        if time > self._until:
            return float(np.interp(time, self._times, self._values))
        low, high = np.interp([time, time + self._step], self._times, self._area)
        return float((high - low) / self._step)


def at_start(system: System, start: float = 0.0) -> Situation:
    """The signals with which a run begins; units are instantiated and initialised, but make no step."""
    live = Live(system, jacobi(system, 1.0), start)
    try:
        live.initialise()
        inputs = {
            name: dict(zip(unit.inputs, live.c[name][0].tolist(), strict=True)) for name, unit in system.units.items()
        }
        return Situation(start, start, inputs, {name: y.copy() for name, y in live.y.items()})
    finally:
        live.close()


def during(system: System, run: Result, time: float) -> Situation:
    """The signals of a reference run (outputs and inputs recorded) at `time`, between rows by interpolation."""

    def value(name: str) -> float:
        return float(np.interp(time, run.time, run[name]))

    inputs = {name: {v: value(f"{name}.{v}") for v in unit.inputs} for name, unit in system.units.items()}
    outputs = {
        name: np.array([value(f"{name}.{v}") for v in unit.outputs], dtype=float) for name, unit in system.units.items()
    }
    return Situation(time, float(run.time[0]), inputs, outputs, run)


def reference_run(system: System, master: Master, *, start: float, stop: float) -> Result:
    """A run that records what every unit is given; `master` should be fine enough to be trusted."""
    from cosimo.execution.running import run

    return run(system, master, start=start, stop=stop, record="all")


def moments(system: System, run: Result, count: int, step: float) -> list[float]:
    """`count` times of a run, the first at its start, that lie closer where signals between units move more.

    Half of the measure is time, half the way that the connected inputs go, each relative to its range; all are whole
    numbers of macro steps of `step` after the start.
    """
    start, stop = float(run.time[0]), float(run.time[-1])
    way = np.zeros(len(run.time))
    signals = [run[link.connection.target] for link in system.links]
    moving = [signal / span for signal in signals if (span := float(np.ptp(signal))) > 0]
    for signal in moving:
        way[1:] += np.cumsum(np.abs(np.diff(signal)))
    measure = (run.time - start) / (stop - start)
    if moving:
        measure = (measure + way / way[-1]) / 2
    found = np.interp(np.arange(count) / count, measure, run.time)
    whole = {start + round((time - start) / step) * step for time in found.tolist()}
    return sorted(time for time in whole if time < stop)
