"""What a compensated co-simulation shall follow, and what units and couplings see when it does."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedStep
from cosimo.core.unit import DiscreteModel, LinearModel
from cosimo.units.integrators import SymplecticEuler, discretise
from cosimo.units.linear import LinearUnit

SOLVED = 1e-9
"""Relative residual below which an equation counts as solved."""
SMALL = 1e-11
"""Relative size of singular values that are cut off."""


class Target:
    """Maps on the target's trajectories: F, and of every unit its state X, its input U, and what its coupling sees."""

    def __init__(self, system: System, master: Master, target: str) -> None:
        self.system, self.master, self.h = system, master, master.step
        linear = LinearSystem(system, master)
        self.coupled, self.operations = linear.coupled, linear.operations.timeline.operations
        _require_once(system, self.operations)
        self.units: dict[str, LinearUnit] = {}
        for name, unit in system.units.items():
            if not isinstance(unit, LinearUnit):
                raise ConfigurationError(f"unit '{name}' is a {type(unit).__name__}; compensation needs linear units.")
            self.units[name] = unit
        self.n = self.coupled.A.shape[0]
        begins = np.cumsum([0, *(len(unit.model.A) for unit in self.units.values())])
        self.place = {name: slice(a, b) for name, a, b in zip(self.units, begins[:-1], begins[1:], strict=True)}
        self.F = self._monolithic() if target == "monolithic" else self.coupled.flow(self.h)
        self.back = np.linalg.inv(self.F)
        identity = np.eye(self.n)
        self.X = {name: identity[part] for name, part in self.place.items()}
        if target == "exact":
            self.X = {name: self._followed(name) for name in self.units}
        self.discrete = {name: self._step(name) for name in self.units}
        self.U = {name: self._inputs(name) for name in self.units}
        self.used = [i for i, name in enumerate(system.outputs) if name in {c.source for c in system.connections}]

    def _monolithic(self) -> Array:
        """The coupled system under the integrator that all units share; symplectic Euler wants all positions first."""
        kinds = {(unit.integrator, unit.micro_steps) for unit in self.units.values()}
        if len(kinds) != 1:
            raise ConfigurationError("the units have different integrators; only target 'exact' makes sense for them.")
        ((integrator, micro_steps),) = kinds
        order = np.arange(self.n)
        if isinstance(integrator, SymplecticEuler):
            halves = [np.array_split(np.arange(p.start, p.stop), 2) for p in self.place.values()]
            order = np.concatenate([h[0] for h in halves] + [h[1] for h in halves])
        model = LinearModel(
            self.coupled.A[np.ix_(order, order)], *(np.zeros(s) for s in ((self.n, 0), (0, self.n), (0, 0)))
        )
        F = np.zeros((self.n, self.n))
        F[np.ix_(order, order)] = discretise(model, integrator, micro_steps, self.h).A
        return F

    def _followed(self, name: str) -> Array:
        """What the unit's state must be so that its positions are exact; a symplectic velocity is (q − q(−h)) / h."""
        unit, part = self.units[name], self.place[name]
        whole = np.eye(self.n)[part]
        if not isinstance(unit.integrator, SymplecticEuler):
            return whole
        q = whole[: len(whole) // 2]
        return np.vstack([q, (q - q @ self.back) / self.h])

    def _step(self, name: str) -> DiscreteModel:
        unit = self.units[name]
        model = unit.discrete(self.h)
        return DiscreteModel(model.A, model.B[:, : len(unit.inputs)])

    def _inputs(self, name: str) -> Array:
        """U with B_d U = X F − A_d X: the true coupling where that solves it, otherwise the smallest change of it."""
        step, X = self.discrete[name], self.X[name]
        needed = X @ self.F - step.A @ X
        owners = np.repeat(list(self.units), [len(unit.inputs) for unit in self.units.values()])
        true: Array = (self.coupled.L @ self.coupled.C)[owners == name]
        missing = needed - step.B @ true
        scale = max(float(np.abs(step.B @ true).max(initial=0.0)), float(np.abs(needed).max(initial=0.0)), 1e-300)
        if np.abs(missing).max(initial=0.0) <= SOLVED * scale:
            return true
        U: Array = true + np.linalg.pinv(step.B, rcond=SMALL) @ missing
        if np.abs(step.B @ U - needed).max() > SOLVED * scale:
            raise ConfigurationError(
                f"unit '{name}' cannot follow the target: its connected inputs do not reach all of its states in one "
                f"step; use target 'monolithic', or connect a force to every degree of freedom."
            )
        return U

    @cached_property
    def seen(self) -> dict[str, tuple[Array, Array]]:
        """At every unit's coupling, all outputs as S0 ξ(k) + S1 ξ(k − 1)."""
        none, one = np.zeros((self.n, self.n)), np.eye(self.n)
        now, before = np.hstack([one, none]), np.hstack([none, one])
        outputs = {name: np.zeros((len(unit.outputs), 2 * self.n)) for name, unit in self.units.items()}
        found: dict[str, tuple[Array, Array]] = {}
        # Two macro steps: in the first the outputs settle into their pattern, the second is looked at.
        for start, end in ((before, now), (now, self.F @ now)):
            state = {name: self.X[name] @ start for name in self.units}
            given = {name: self.U[name] @ (self.back @ before if start is before else before) for name in self.units}
            for operation in self.operations:
                name = unit_of(operation)
                if isinstance(operation, TimedCouple):
                    stacked = np.vstack(list(outputs.values()))
                    found[name] = (stacked[:, : self.n], stacked[:, self.n :])
                    given[name] = self.U[name] @ start
                elif isinstance(operation, TimedStep):
                    state[name] = self.X[name] @ end
                else:
                    model = self.units[name].model
                    outputs[name] = model.C @ state[name] + model.D @ given[name]
        return found

    @cached_property
    def pushes(self) -> Array:
        """Where external forces take the state within a step: of mechanical units any force on any mass."""
        columns = []
        for name, unit in self.units.items():
            size = len(unit.model.A)
            if isinstance(unit.integrator, SymplecticEuler):
                half = np.eye(size // 2)
                local = np.vstack([self.h * half, half])
            else:
                local = self.discrete[name].B / max(float(np.abs(self.discrete[name].B).max(initial=0.0)), 1e-300)
            whole = np.zeros((self.n, local.shape[1]))
            whole[self.place[name]] = local
            columns.append(whole)
        return np.hstack(columns)

    def samples(self, name: str) -> Array:
        """S with the outputs seen at the unit's coupling equal to S ξ(k) on the target."""
        now, before = self.seen[name]
        return now + before @ self.back


def unit_of(operation: TimedOperation) -> str:
    """The unit of a plain operation."""
    assert isinstance(operation, TimedCouple | TimedStep | TimedRead), "masters that iterate were refused before"
    return operation.unit


def _require_once(system: System, operations: tuple[TimedOperation, ...]) -> None:
    for name in system.units:
        steps = [op for op in operations if isinstance(op, TimedStep) and op.unit == name]
        couples = [op for op in operations if isinstance(op, TimedCouple) and op.unit == name]
        plain = all(isinstance(op, TimedCouple | TimedStep | TimedRead) for op in operations)
        if not plain or len(steps) != 1 or len(couples) > 1:
            raise ConfigurationError(
                f"unit '{name}' is not coupled and stepped exactly once per macro step; compensation is for masters "
                f"that neither iterate nor run at several rates."
            )
