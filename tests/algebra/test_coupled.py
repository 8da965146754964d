"""The exact coupled system, against an independent assembly and an independent solution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from cosimo import masters
from cosimo.algebra import LinearSystem, connection_matrix, coupled_model
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.system import Connection, System
from cosimo.units import StateSpace


def test_connections_as_a_matrix(make_system: Any) -> None:
    system = make_system()
    L = connection_matrix(system).toarray()
    # Rows a.u1 … c.u3, columns a.y1 … c.y2; the external input and the start value have no entry.
    expected = np.zeros((7, 6))
    expected[0, 2], expected[1, 4], expected[2, 0], expected[3, 1], expected[4, 3] = 0.7, -0.4, 0.9, -1.1, 0.5
    assert np.array_equal(L, expected)


def test_the_coupled_model_is_the_units_with_inputs_eliminated(make_system: Any) -> None:
    """For any state, solve y = C x + D L y by substitution and look at ẋ."""
    system = make_system()
    models = {name: unit.linear() for name, unit in system.units.items()}
    coupled = coupled_model(system, models)
    L = connection_matrix(system).toarray()
    rng = np.random.default_rng(0)
    x = {name: rng.normal(size=len(unit.initial_state)) for name, unit in system.units.items()}
    y = np.zeros(6)
    for _ in range(300):
        u = np.split(L @ y, [2, 4])
        y = np.concatenate([m.C @ x[n] + m.D @ v for (n, m), v in zip(models.items(), u, strict=True)])
    u = np.split(L @ y, [2, 4])
    slope = np.concatenate([m.A @ x[n] + m.B @ v for (n, m), v in zip(models.items(), u, strict=True)])
    state = np.concatenate(list(x.values()))
    assert coupled.A @ state == pytest.approx(slope, abs=1e-12)
    assert coupled.C @ state == pytest.approx(y, abs=1e-12)


def test_the_flow_solves_the_differential_equation(make_system: Any) -> None:
    system = make_system()
    coupled = LinearSystem(system, masters.jacobi(system, 0.1)).coupled
    x = np.linspace(-1, 1, coupled.A.shape[0])
    solved = solve_ivp(lambda t, v: coupled.A @ v, (0, 1.7), x, method="DOP853", rtol=1e-12, atol=1e-13)
    assert coupled.flow(1.7) @ x == pytest.approx(solved.y[:, -1], abs=1e-10)
    assert coupled.flow(0.5) @ coupled.flow(1.2) == pytest.approx(coupled.flow(1.7), abs=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("gain", "through"), [(1.0, 1.0), (-0.5, -2.0), (4.0, 0.25), (1.0 + 1e-15, 1.0)])
def test_a_loop_of_gain_one_is_singular(gain: float, through: float, sparse: bool) -> None:
    system = System({"one": StateSpace(-1.0, 1.0, 1.0, through)}, [Connection("one.y1", "one.u1", gain)])
    with pytest.raises(AlgebraicLoopError, match=r"through one\.y1 has no unique solution"):
        coupled_model(system, {"one": system.units["one"].linear()}, sparse=sparse)  # type: ignore[dict-item]


@pytest.mark.parametrize("gain", [0.999, 1.001, -1.0, 1e6])
def test_other_loops_are_not(gain: float) -> None:
    system = System({"one": StateSpace(-1.0, 1.0, 1.0, 1.0)}, [Connection("one.y1", "one.u1", gain)])
    coupled = coupled_model(system, {"one": system.units["one"].linear()})  # type: ignore[dict-item]
    assert coupled.C[0, 0] == pytest.approx(1 / (1 - gain), rel=1e-12)


def test_only_the_singular_loop_is_named() -> None:
    units = {name: StateSpace(-1.0, 1.0, 1.0, 0.5) for name in "abcd"}
    links = [("a.y1", "b.u1"), ("b.y1", "a.u1"), Connection("c.y1", "d.u1", 4.0), ("d.y1", "c.u1")]
    system = System(units, links)
    with pytest.raises(AlgebraicLoopError, match=r"loop through c\.y1, d\.y1 has"):
        coupled_model(system, {name: unit.linear() for name, unit in units.items()})
