"""What a compensation brings, by running: monolithic, uncompensated and compensated beside the exact solution.

Errors are those of tamellin2022, Eq. 42: the root mean square of the difference, divided by the range of the exact
signal. A run that diverges is a result like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import lcm

import numpy as np

from cosimo import masters
from cosimo.algebra.product import LinearSystem
from cosimo.analysis.error_norms import nrms
from cosimo.analysis.spectrum import Spectrum
from cosimo.compensation.assessment import Compensation
from cosimo.compensation.target import (
    UNIT,
    as_system,
    exact_unit,
    monolithic_unit,
    rebuild,
    require_linear,
    state_places,
)
from cosimo.core import dataclass
from cosimo.core.arrays import Array, block_diagonal
from cosimo.core.errors import ConfigurationError, NonFiniteError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.timing import TimedRead
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.units import Mechanical
from cosimo.units.linear import DEGREE, LinearUnit

FINER = 8
"""Into how many parts the exact solution divides a macro step, where external inputs change within it."""


@dataclass(frozen=True)
class Trajectory:
    """One run: whether it is stable and with which spectral radius per macro step, and how it ended.

    `final` and `nrms` are per output: the last value, and the error against the exact solution (None for the exact
    solution itself). A run that left the range of numbers says when (`diverged`), and has neither. `energy` is the
    mechanical energy at the end in J, None where the system has none (units that are no mechanical ones, forces without
    a potential).
    """

    stable: bool
    radius: float
    final: dict[str, float]
    nrms: dict[str, float] | None
    energy: float | None
    diverged: float | None = None


@dataclass(frozen=True)
class Comparison:
    """The runs side by side; `monolithic` is None where units with different integrators have no common one.

    `fed_through` are outputs that show a unit's corrected input of the step before rather than the target's signal:
    they are read at the end of a step and feed the input, as it was given at its start, through.
    """

    stop: float
    energy_start: float | None
    exact: Trajectory
    monolithic: Trajectory | None
    uncompensated: Trajectory
    compensated: Trajectory
    fed_through: tuple[str, ...] = ()

    @property
    def runs(self) -> dict[str, Trajectory]:
        """All runs by name, the exact solution first."""
        found = {name: getattr(self, name) for name in ("exact", "monolithic", "uncompensated", "compensated")}
        return {name: trajectory for name, trajectory in found.items() if trajectory is not None}


def compare(found: Compensation, *, start: float = 0.0, stop: float) -> Comparison:
    """Run the system of a compensation without and with it, the whole system monolithically and exactly."""
    return _Runs(found, start, stop).compare()


Verdict = tuple[bool, float]
"""What eigenvalues say of a run: whether it is stable, and its spectral radius."""


class _Runs:
    """All that the runs share: the exact solution on a grid that holds every moment at which outputs are read."""

    def __init__(self, found: Compensation, start: float, stop: float) -> None:
        self.found, self.path, self.start, self.stop = found, found.path, start, stop
        self.system, self.h = found.system, found.path.h
        require_linear(found.system)
        clocks = self.path.linear.operations.timeline.clocks
        self.read = {name: clocks[name].read for name in self.system.units}
        self.parts = lcm(*(moment.denominator for moment in self.read.values())) * (FINER if self.system.inputs else 1)
        self.weight = _energy_matrix(self.system, self.path.coupled.A)
        whole = exact_unit(self.system, self.path.coupled)
        try:
            self.exact = self._whole(whole, self.h / self.parts, dict.fromkeys(self.system.inputs, DEGREE))
        except NonFiniteError:
            raise ConfigurationError(
                f"the exact solution of '{self.system.name}' itself overflows before t = {stop:g}; choose an earlier "
                "stop time."
            ) from None

    def compare(self) -> Comparison:
        before, after, rows, p = (
            self.found.before,
            self.found.after,
            self.exact[:: self.parts],
            len(self.system.outputs),
        )
        last = dict(zip(self.system.outputs, rows[-1, :p].tolist(), strict=True))
        states = rows[:, p:]
        return Comparison(
            stop=self.stop,
            energy_start=self._energy(states[0]),
            exact=Trajectory(before.exact_stable, before.exact_radius, last, None, self._energy(states[-1])),
            monolithic=self._monolithic(),
            uncompensated=self._cosimulated(self.path.master, (before.stable, before.radius)),
            compensated=self._cosimulated(self.found.master, (self.found.stable, after.radius)),
            fed_through=tuple(self._fed_through()),
        )

    def _fed_through(self) -> Iterator[str]:
        late = {op.unit for op in self.path.operations if isinstance(op, TimedRead) and op.elapsed > 0}
        for name in self.system.outputs:
            place = self.system.output(name)
            links = [link.target.index for link in self.system.incoming(place.unit)]
            if place.unit in late and self.path.units[place.unit].model.D[place.index, links].any():
                yield name

    def _monolithic(self) -> Trajectory | None:
        try:
            whole, order = monolithic_unit(self.system, self.path.coupled)
        except ConfigurationError:
            return None
        degrees = {name: self.path.master.coupling_of(name).degree for name in self.system.inputs}
        ticks = self.path.pattern.ticks
        alone = as_system(self.system, whole)
        # Its own step is the base step; all runs are judged per macro step.
        spectrum = Spectrum(LinearSystem(alone, masters.jacobi(alone, self.h / ticks)))
        verdict = (spectrum.stable, spectrum.radius**ticks)
        try:
            rows = self._whole(whole, self.h / ticks, degrees)[::ticks]
        except NonFiniteError as error:
            return self._diverged(verdict, error)
        p = len(self.system.outputs)
        at_once = dict.fromkeys(self.system.units, Fraction(1))
        energy = self._energy(rows[-1, p:][np.argsort(order)])
        return self._trajectory(verdict, rows[:, :p], at_once, energy)

    def _cosimulated(self, master: Master, verdict: Verdict) -> Trajectory:
        system, shown = observed(self.system, master)
        try:
            result = run(system, shown, start=self.start, stop=self.stop)
        except NonFiniteError as error:
            return self._diverged(verdict, error)
        places = [result.names.index(name) for name in self.system.outputs]
        # The energy at the last moment for which all rows are there: units read early are one row behind.
        behind = max(int(moment < 1) for moment in self.read.values())
        states = [
            result.values[-1 - behind * int(self.read[system.output(name).unit] == 1), column]
            for column, name in enumerate(result.names)
            if name not in self.system.outputs
        ]
        return self._trajectory(verdict, result.values[:, places], self.read, self._energy(np.array(states)))

    def _whole(self, whole: LinearUnit, step: float, degrees: dict[str, int]) -> Array:
        """The rows of a run of the undivided system; external inputs as polynomials of these degrees within a step."""
        system = as_system(self.system, whole)
        couplings = {f"{UNIT}.{name}": Hold(degree) for name, degree in degrees.items()}
        master = masters.jacobi(system, step, couplings=couplings)
        values: Array = run(system, master, start=self.start, stop=self.stop).values
        return values

    def _trajectory(self, verdict: Verdict, rows: Array, read: dict[str, Fraction], energy: float | None) -> Trajectory:
        """Final values and errors; a row's outputs belong to the moment at which they were read."""
        errors = {}
        for column, name in enumerate(self.system.outputs):
            late = int((1 - read[self.system.output(name).unit]) * self.parts)
            first = int(late > 0)
            exact = self.exact[first * self.parts - late :: self.parts, column]
            ours = rows[first:, column]
            count = min(len(exact), len(ours))
            errors[name] = nrms(ours[:count], exact[:count])
        final = dict(zip(self.system.outputs, rows[-1].tolist(), strict=True))
        return Trajectory(*verdict, final, errors, energy)

    def _diverged(self, verdict: Verdict, error: NonFiniteError) -> Trajectory:
        when = error.result.time[-1] if error.result is not None and len(error.result) else self.start
        return Trajectory(*verdict, {}, {}, None, diverged=float(when))

    def _energy(self, state: Array) -> float | None:
        return None if self.weight is None else float(state @ self.weight @ state / 2)


def observed(system: System, master: Master) -> tuple[System, Master]:
    """The same system and master with the states of mechanical units as further outputs, which nobody uses."""
    units = {
        name: _with_states(unit) if isinstance(unit, Mechanical) else unit
        for name, unit in require_linear(system).items()
    }
    return System(units, system.connections, inputs=system.inputs, name=system.name), master


def _with_states(unit: Mechanical) -> LinearUnit:
    """The unit with its positions and velocities after its own outputs."""
    n = len(unit.M)
    one, none = np.eye(n), np.zeros((n, n))
    rows = {"displacement": (one, none), "velocity": (none, one), "acceleration": (none, none)}
    maps = {name: np.vstack([getattr(unit, name), *parts]) for name, parts in rows.items()}
    feedthrough = np.vstack([unit.direct, np.zeros((2 * n, len(unit.inputs)))])
    outputs = [*unit.outputs, *(f"state {i + 1}" for i in range(2 * n))]
    return rebuild(unit, **maps, feedthrough=feedthrough, outputs=outputs)


def _energy_matrix(system: System, A: Array) -> Array | None:
    """W with the mechanical energy ½ xᵀ W x of the coupled system: M on velocities, K = −M A_vq on positions."""
    masses = [unit.M for unit in system.units.values() if isinstance(unit, Mechanical)]
    if len(masses) < len(system.units):
        return None
    positions, velocities = state_places(map(len, masses))
    M = block_diagonal(masses)
    K = -M @ A[np.ix_(velocities, positions)]
    if np.abs(K - K.T).max() > 1e-9 * np.abs(K).max(initial=1e-300):
        return None  # forces that depend on positions without a potential
    W = np.zeros_like(A)
    W[np.ix_(positions, positions)], W[np.ix_(velocities, velocities)] = K, M
    return W
