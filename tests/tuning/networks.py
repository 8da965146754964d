"""Random networks of linear units for studies of calling orders, and units with other rates and gains."""

from __future__ import annotations

import numpy as np

from cosimo.core.arrays import Array, BoolArray
from cosimo.core.system import Connection, System
from cosimo.core.unit import Conversion, DiscreteModel, Instance, LinearModel, Unit
from cosimo.units import StateSpace


def random_network(rng: np.random.Generator, count: int, *, degree: float = 3.0, strength: float = 0.6) -> System:
    """Stable units of one or two states, some with feedthrough, each fed by about `degree` others.

    `strength` is the gain of every unit's inputs together; the units' time constants lie between 0.3 and 3.
    """
    units, connections = {}, []
    names = [f"u{i}" for i in range(count)]
    for i, name in enumerate(names):
        others = [j for j in range(count) if j != i]
        fed = min(len(others), max(1, int(rng.poisson(degree))))
        sources = rng.choice(others, size=fed, replace=False).tolist()
        n = int(rng.integers(1, 3))
        rate = np.exp(rng.uniform(np.log(0.3), np.log(3.0), size=n))
        A = -np.diag(rate)
        if n == 2:
            A[0, 1], A[1, 0] = rate[0], -rate[1]
        B = rng.normal(size=(n, fed)) * rate[:, None]
        C = rng.normal(size=(1, n))
        D = 0.3 * rng.normal(size=(1, fed)) * (rng.random() < 0.4)
        # Static gain of all inputs together, so that strength means the same for every unit.
        gain = np.linalg.norm(D - C @ np.linalg.solve(A, B)) + 1e-9
        inputs = [f"from{j}" for j in sources]
        units[name] = StateSpace(
            A, B, C, D, initial=rng.normal(size=n), inputs=inputs, outputs=["y"], start=dict.fromkeys(inputs, 0.0)
        )
        factor = strength / max(gain, 0.2)
        connections += [Connection(f"{names[j]}.y", f"{name}.from{j}", factor) for j in sources]
    return System(units, connections, name=f"network of {count}")


class Rescaled(Unit):
    """A linear unit whose time runs `rate` times as fast and whose outputs are `gain` times as large; it is not run."""

    def __init__(self, unit: Unit, rate: float = 1.0, gain: float = 1.0) -> None:
        self.unit, self.rate, self.gain = unit, rate, gain
        self.inputs, self.outputs, self.start = unit.inputs, unit.outputs, unit.start
        self.input_degree, self.can_restore = unit.input_degree, unit.can_restore

    @property
    def initial_state(self) -> Array:
        return self.unit.initial_state

    def instantiate(self, start_time: float = 0.0) -> Instance:
        raise TypeError("a rescaled unit is analysed, not run")

    def feedthrough(self) -> BoolArray:
        return self.unit.feedthrough()

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        return self.unit.conversion(output, taker.unit if isinstance(taker, Rescaled) else taker, variable)

    def linear(self) -> LinearModel | None:
        model = self.unit.linear()
        assert model is not None
        return LinearModel(model.A * self.rate, model.B * self.rate, model.C * self.gain, model.D * self.gain)

    def discrete(self, duration: float | Array) -> DiscreteModel:
        return self.unit.discrete(duration * self.rate)


def rescaled(system: System, *, rates: dict[str, float] | None = None, gains: dict[str, float] | None = None) -> System:
    """The system with other rates and gains of some units (1 elsewhere), built anew."""
    rates, gains = rates or {}, gains or {}
    units = {name: Rescaled(unit, rates.get(name, 1.0), gains.get(name, 1.0)) for name, unit in system.units.items()}
    return System(units, system.connections, inputs=system.inputs, name=system.name)
