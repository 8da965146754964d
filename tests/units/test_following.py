"""Python units that follow polynomial inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.errors import ConfigurationError, UnitError
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.units import ForwardEuler, StateSpace
from cosimo.units.python import FollowingUnit


class Tank:
    """Forward Euler; `drain` feeds the input through."""

    inputs, outputs = ("inflow",), ("level", "drain")

    def __init__(self, level: float = 0.0) -> None:
        self.level = level
        self.inflow: float
        self.seen: list[tuple[float, float, float]] = []

    @property
    def drain(self) -> float:
        return 0.5 * self.level + self.inflow

    def step(self, time: float, duration: float) -> None:
        self.seen.append((time, duration, self.inflow))
        self.level += duration * (self.inflow - 0.5 * self.level)


def linear(micro_steps: int) -> StateSpace:
    return StateSpace(
        -0.5,
        1.0,
        [[1.0], [0.5]],
        [[0.0], [1.0]],
        initial=1.0,
        integrator=ForwardEuler(),
        micro_steps=micro_steps,
        inputs=["inflow"],
        outputs=["level", "drain"],
    )


def test_inputs_at_the_start_of_every_micro_step_and_at_the_end() -> None:
    live = FollowingUnit(Tank, micro_step=0.1).instantiate()
    live.set_input(np.array([[1.0], [2.0], [4.0]]), 1.0)
    assert live.read().tolist() == [0.0, 1.0]
    live.step(3.0, 0.25)
    times, durations, inputs = np.array(live.object.seen).T
    # 0.25 s in micro steps of at most 0.1 s: three.
    assert times == pytest.approx(3.0 + np.arange(3) / 12)
    assert durations == pytest.approx(1 / 12)
    theta = np.arange(3) / 12
    assert inputs == pytest.approx(1 + 2 * theta + 4 * theta**2)
    assert live.object.inflow == pytest.approx(1 + 0.5 + 0.25)
    # The second half of the step goes on where the first one ended.
    live.step(3.25, 0.75)
    assert live.object.inflow == pytest.approx(7.0)
    assert live.object.seen[3][2] == pytest.approx(1.75)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_does_what_a_linear_unit_with_micro_steps_does(order: int, engine: str) -> None:
    results = []
    for unit in (FollowingUnit(Tank, micro_step=0.02, level=1.0), linear(5)):
        feeder = StateSpace(-1.0, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"])
        system = System({"tank": unit, "feeder": feeder}, [("tank.drain", "feeder.u"), ("feeder.y", "tank.inflow")])
        master = masters.jacobi(system, 0.1, coupling=Hold(order))
        results.append(run(system, master, stop=2.0, record="all", engine=EngineOptions(engine)))  # type: ignore[arg-type]
    assert not any("slope" in warned.message for warned in results[0].warnings)
    assert results[0].values == pytest.approx(results[1].values, abs=1e-13)


@pytest.mark.parametrize("order", [0, 2])
def test_both_engines_agree_also_when_iterating(order: int) -> None:
    results = []
    for engine in ("kernel", "reference"):
        system = System({"tank": FollowingUnit(Tank, micro_step=0.05, level=1.0)}, inputs={"tank.inflow": np.cos})
        master = masters.iterative(system, 0.1, sweeps=3, coupling=Hold(order))
        results.append(run(system, master, stop=1.0, engine=EngineOptions(engine)))  # type: ignore[arg-type]
    assert np.array_equal(results[0].values, results[1].values)
    once = run(system, masters.jacobi(system, 0.1, coupling=Hold(order)), stop=1.0)
    assert np.array_equal(results[0].values, once.values)


@pytest.mark.parametrize(
    ("duration", "count"), [(0.012, 60), (0.02, 100), (2e-4, 1), (1e-4, 1), (3e-4, 2), (0.6, 3000)]
)
def test_rounding_adds_no_micro_step(duration: float, count: int) -> None:
    live = FollowingUnit(Tank, micro_step=2e-4).instantiate()
    live.step(0.0, duration)
    assert len(live.object.seen) == count


def test_without_a_micro_step_it_steps_once() -> None:
    live = FollowingUnit(Tank).instantiate()
    live.step(0.0, 1e6)
    assert len(live.object.seen) == 1


@pytest.mark.parametrize("micro_step", [0.0, -1.0, math.nan, "short"])
def test_wrong_micro_steps_are_refused(micro_step: Any) -> None:
    with pytest.raises(ConfigurationError, match="micro step of Tank must be positive"):
        FollowingUnit(Tank, micro_step=micro_step)


def test_far_too_short_micro_steps_are_refused_by_name() -> None:
    system = System({"tank": FollowingUnit(Tank, micro_step=1e-12)}, inputs={"tank.inflow": 1.0})
    with pytest.raises(UnitError, match=r"unit 'tank' .* in micro steps of 1e-12 s cannot be meant"):
        run(system, masters.jacobi(system, 1.0), stop=1.0)
