"""A compensated master on the same system in another order: the same run, or a refusal, never something else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.compensation import compensate
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.problems import two_mass
from cosimo.units import Mechanical

SYSTEM = two_mass()
MASTER = compensate(SYSTEM, masters.jacobi(SYSTEM, 4e-3)).master
WANTED = run(SYSTEM, MASTER, stop=8.0)["two.x"]


def second(outputs: list[str], displacement: list[list[float]], velocity: list[list[float]]) -> Mechanical:
    two = SYSTEM.units["two"]
    assert isinstance(two, Mechanical)
    return Mechanical(
        two.M,
        two.C,
        two.K,
        B=two.B,
        displacement=displacement,
        velocity=velocity,
        initial=two.initial_state,
        inputs=["f"],
        outputs=outputs,
    )


OTHERS = {
    "units": {"two": SYSTEM.units["two"], "one": SYSTEM.units["one"]},
    "outputs": {"one": SYSTEM.units["one"], "two": second(["v", "x"], [[0.0], [1.0]], [[1.0], [0.0]])},
    "one more": {
        "one": SYSTEM.units["one"],
        "two": second(["twice", "x", "v"], [[2.0], [1.0], [0.0]], [[0.0], [0.0], [1.0]]),
    },
}


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("change", OTHERS)
@pytest.mark.one_in(5)
def test_variables_are_found_by_name(change: str, engine: str) -> None:
    other = System(OTHERS[change], SYSTEM.connections)
    schedule = replace(MASTER.schedule, units=other.names)
    found = run(other, replace(MASTER, schedule=schedule), stop=8.0, engine=EngineOptions(engine))  # type: ignore[arg-type]
    np.testing.assert_allclose(found["two.x"], WANTED, atol=1e-9)


def test_units_in_another_order_are_refused_by_the_algebra() -> None:
    other = System(OTHERS["units"], SYSTEM.connections)
    with pytest.raises(ConfigurationError, match="in the order one, two"):
        LinearSystem(other, MASTER).start()


def test_variables_that_are_missing_are_refused() -> None:
    less = System(
        {"one": SYSTEM.units["one"], "two": second(["y", "v"], [[1.0], [0.0]], [[0.0], [1.0]])},
        [("one.f", "two.f"), ("two.y", "one.x2"), ("two.v", "one.v2")],
    )
    with pytest.raises(ConfigurationError, match=r"designed for a system with output two\.x"):
        run(less, MASTER, stop=0.1)
