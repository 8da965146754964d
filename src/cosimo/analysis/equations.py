"""The equations of linear model-exchange FMUs, read off their derivatives without making experiments with them.

ẋ = A x + B u, y = C x + D u: the columns of the matrices are derivatives and outputs at unit vectors of x and u. A unit
counts as linear, and its equations as known, only where

1. it has no events, no discrete variables, and states that its description lists;
2. derivatives and outputs vanish at x = 0, u = 0, and are those of the matrices at `POINTS` random points, whose
   coordinates have all sizes from 10⁻⁶ to 10⁶, to rounding;
3. they still are, and the states have come where the matrices say, after each of `TIMES` steps that cover the horizon,
   from such points, so that neither time nor the past nor an event after a step plays a part;
4. its start does not depend on its inputs;
5. its solver is fixed-step, whose map is known, or CVODE with at most the usual tolerance, taken for exact.

All others are identified as any unit is.
"""

from __future__ import annotations

import copy
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import CosimoError
from cosimo.core.system import System
from cosimo.core.unit import LinearModel
from cosimo.units.fmi import fmus
from cosimo.units.fmi.model_exchange import CVODE, TOLERANCE

if TYPE_CHECKING:
    from cosimo.units.fmi.fmu import Fmu

POINTS, TIMES = 32, 8
ROUNDING = 1e-10
"""What derivatives may differ by, relative to the sum of the sizes of their terms: rounding in a hundred operations."""
FOLLOWED = 100.0
"""How many times the solver's tolerance its states may be off after a step: errors of its steps add up."""
SEED = 1


def with_equations(system: System, start: float, horizon: float) -> System:
    """The system with the equations of its linear model-exchange FMUs, which are then units like linear ones."""
    known = {name: found for name, unit in fmus(system.units).items() if (found := _known(unit, start, horizon))}
    if not known:
        return system
    return System({**system.units, **known}, system.connections, inputs=system.inputs, name=system.name)


def tolerances(system: System) -> list[str]:
    """What is to be said of units whose solver is taken for exact."""
    units = {name: unit for name, unit in fmus(system.units).items() if unit.equations is not None}
    return [
        f"unit '{name}' is integrated by CVODE to a relative tolerance of "
        f"{unit.solver.tolerance(unit.experiment.tolerance):g}; errors as small as that are not predicted"
        for name, unit in units.items()
        if unit.solver is not None and unit.solver.name == CVODE
    ]


def _known(unit: Fmu, start: float, horizon: float) -> Fmu | None:
    """The unit with its equations; None where it is not known to be linear."""
    if unit.solver is None or unit.linear() is not None:
        return None
    if unit.solver.name == CVODE and unit.solver.tolerance(unit.experiment.tolerance) > TOLERANCE:
        return None
    if unit.event_indicators or unit.clocks.timed or unit.discrete_inputs or unit.discrete_outputs or unit.text_inputs:
        return None
    if len(unit.continuous_states()[0]) != unit.state_count or not (unit.state_count or unit.inputs):
        return None
    try:
        with closing(unit.instantiate(start)) as instance, np.errstate(over="ignore", invalid="ignore"):
            found = _Trial(unit, instance).model(start, horizon)
    except CosimoError:  # identification, or a run, will say what is wrong
        return None
    if found is None:
        return None
    changed = copy.copy(unit)
    changed.equations, changed.state_at_start = found
    return changed


class _Trial:
    def __init__(self, unit: Fmu, instance: Any) -> None:
        self.unit, self.instance = unit, instance
        self.states, self.derivatives = unit.continuous_states()
        self.inputs = unit.start_inputs
        self.random = np.random.default_rng(SEED)

    def model(self, start: float, horizon: float) -> tuple[LinearModel, Array] | None:
        """The matrices and the state at the start, or None where it is not linear."""
        n, m = len(self.states), len(self.inputs)
        before = [self._start(u) for u in (self.inputs, self._sized(m))]
        initial = self._start(self.inputs)
        self.instance.finish_initialisation()
        after = self._read(self.states)
        if not all(np.array_equal(x, after) for x in (*before, initial)):
            return None
        if self._at(np.zeros(n), np.zeros(m)).any():
            return None
        columns = [self._at(z[:n], z[n:]) for z in np.eye(n + m)]
        whole = np.array(columns).T.reshape(-1, n + m)
        if not np.isfinite(whole).all() or not self._fits(whole) or not self._follows(whole, start, horizon):
            return None
        return LinearModel(whole[:n, :n], whole[:n, n:], whole[n:, :n], whole[n:, n:]), after

    def _start(self, u: Array) -> Array:
        self.instance.set_input(u[None, :], 1.0)
        return self._read(self.states)

    def _read(self, names: tuple[str, ...]) -> Array:
        return np.array(self.instance.get_variables(names)) if names else np.zeros(0)

    def _values(self) -> Array:
        """Derivatives and outputs now."""
        found: Array = np.concatenate([self._read(self.derivatives), self.instance.read()])
        return found

    def _at(self, x: Array, u: Array) -> Array:
        self.instance.set_input(u[None, :], 1.0)
        if len(x):
            self.instance.set_variables(self.states, x.tolist())
        return self._values()

    def _sized(self, count: int) -> Array:
        """Random numbers of all sizes and both signs."""
        sizes = 10.0 ** self.random.uniform(-6.0, 6.0, count)
        found: Array = sizes * self.random.choice([-1.0, 1.0], count)
        return found

    def _same(self, whole: Array, z: Array) -> bool:
        limit = ROUNDING * (np.abs(whole) @ np.abs(z))
        return bool((np.abs(self._values() - whole @ z) <= limit).all())

    def _fits(self, whole: Array) -> bool:
        n = len(self.states)
        for z in (self._sized(whole.shape[1]) for _ in range(POINTS)):
            self._at(z[:n], z[n:])
            if not self._same(whole, z):
                return False
        return True

    def _follows(self, whole: Array, start: float, horizon: float) -> bool:
        """Through steps of random lengths that end at the horizon, each from a state and with inputs of all sizes."""
        n, m = len(self.states), len(self.inputs)
        assert self.unit.solver is not None
        tolerance = FOLLOWED * self.unit.solver.tolerance(self.unit.experiment.tolerance)
        model = LinearModel(whole[:n, :n], whole[:n, n:], whole[n:, :n], whole[n:, n:])
        times = start + horizon * np.sort([*self.random.uniform(0.0, 1.0, TIMES - 1), 1.0])
        now = start
        for then in times.tolist():
            x, u = self._sized(n), self._sized(m)
            self._at(x, u)
            step = self.unit.step_map(model, then - now)
            expected = step.A @ x + step.B[:, :m] @ u
            if not np.isfinite(expected).all():
                return True  # it grows by itself: what it has been until now must do
            self.instance.step(now, then - now)
            now, found = then, self._read(self.states)
            size = max(1.0, *(np.abs(part).max(initial=0.0) for part in (expected, x, u)))
            if not np.abs(found - expected).max(initial=0.0) <= tolerance * size:
                return False
            if not self._same(whole, np.concatenate([found, u])):
                return False
        return True
