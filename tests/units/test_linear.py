"""Linear units: assembly, names, and live instances."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import signal

from cosimo import masters
from cosimo.core.errors import ConfigurationError, DimensionError
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.units import Exact, ForwardEuler, Mechanical, StateSpace, SymplecticEuler

M, C, K = np.array([[2.0, 0.5], [0.5, 1.0]]), np.diag([0.3, 0.1]), np.array([[9.0, -4.0], [-4.0, 6.0]])
B = np.array([[1.0, 0.0], [2.0, -1.0]])


# ---- state space ---------------------------------------------------------------------------------------------------


def test_scalars_make_a_unit() -> None:
    unit = StateSpace(-0.5, 2.0, 3.0, initial=4.0)
    assert (unit.inputs, unit.outputs) == (("u1",), ("y1",))
    assert unit.model.D == [[0.0]]
    assert unit.initial_state.tolist() == [4.0]
    assert unit.integrator == Exact()


def test_feedthrough_is_where_d_is_not_zero() -> None:
    unit = StateSpace(-1.0, [[1.0, 1.0]], [[1.0], [1.0]], [[0.0, 2.0], [0.0, 0.0]])
    assert unit.feedthrough().tolist() == [[False, True], [False, False]]


def test_a_unit_may_have_no_state() -> None:
    doubler = StateSpace([], [], [], 2.0, inputs=["u"], outputs=["y"])
    assert doubler.model.A.shape == (0, 0)
    system = System({"gain": doubler}, inputs={"gain.u": lambda t: t})
    result = run(system, masters.jacobi(system, 0.5), stop=2.0)
    # Jacobi: the value read at the end of the step is that of the input held over it.
    assert result["gain.y"].tolist() == [0.0, 0.0, 1.0, 2.0, 3.0]


def test_a_unit_may_have_no_input() -> None:
    decay = StateSpace(-1.0, np.zeros((1, 0)), 1.0, initial=1.0)
    system = System({"decay": decay})
    result = run(system, masters.jacobi(system, 0.1), stop=1.0)
    assert result["decay.y1"] == pytest.approx(np.exp(-result.time), abs=1e-14)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"inputs": ["a", "b"]}, DimensionError, "B is 1 × 1; expected 1 × 2"),
        ({"outputs": []}, DimensionError, "C is 1 × 1; expected 0 × 1"),
        ({"initial": [1.0, 2.0]}, DimensionError, "initial is 1 × 2; expected 1 × 1"),
        ({"start": {"v": 0.0}}, ConfigurationError, "unknown input with a start value 'v'"),
        ({"integrator": SymplecticEuler()}, ConfigurationError, "describe the unit as Mechanical"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        StateSpace(-1.0, 1.0, 1.0, **options)


def test_names_must_differ() -> None:
    with pytest.raises(ConfigurationError, match="inputs a, a are not all different"):
        StateSpace(-1.0, [[1.0, 1.0]], 1.0, inputs=["a", "a"])


def test_matrices_must_be_numbers() -> None:
    with pytest.raises(ConfigurationError, match="matrix A is not numeric"):
        StateSpace("fast", 1.0, 1.0)
    with pytest.raises(ConfigurationError, match="matrix M is not numeric"):
        Mechanical("heavy", 1.0, 1.0, B=1.0, displacement=1.0)


# ---- mechanical ----------------------------------------------------------------------------------------------------


def mechanical(**options: Any) -> Mechanical:
    given: dict[str, Any] = {"displacement": np.eye(2)} | options
    return Mechanical(M, C, K, B=B, **given)


def test_outputs_satisfy_the_equation_of_motion() -> None:
    p = np.array([[1.0, 0.0], [0.5, -2.0], [0.0, 0.0]])
    v = np.array([[0.0, 1.0], [0.0, 0.0], [3.0, 1.0]])
    a = np.array([[0.0, 0.0], [1.0, 1.0], [0.0, -1.0]])
    d = np.array([[0.1, 0.0], [0.0, 0.0], [0.0, 7.0]])
    model = mechanical(displacement=p, velocity=v, acceleration=a, feedthrough=d).linear()
    rng = np.random.default_rng(0)
    q, qd, u = rng.normal(size=(3, 2))
    qdd = np.linalg.inv(M) @ (B @ u - C @ qd - K @ q)
    x = np.concatenate([q, qd])
    assert model.A @ x + model.B @ u == pytest.approx(np.concatenate([qd, qdd]), abs=1e-13)
    assert model.C @ x + model.D @ u == pytest.approx(p @ q + v @ qd + a @ qdd + d @ u, abs=1e-13)


def test_acceleration_outputs_feed_through() -> None:
    assert not mechanical().feedthrough().any()
    unit = mechanical(displacement=None, acceleration=np.eye(2))
    assert unit.feedthrough().tolist() == (np.abs(np.linalg.solve(M, B)) > 0).tolist()


def test_acceleration_read_is_that_of_the_motion() -> None:
    unit = Mechanical(
        M, C, K, B=B, velocity=[[1, 0], [0, 0]], acceleration=[[0, 0], [1, 0]], initial=[1, 0, 0, 1],
        integrator=Exact(), start={"u1": 0.5, "u2": 0.0},
    )  # fmt: skip
    system = System({"m": unit})
    result = run(system, masters.jacobi(system, 1e-3), stop=0.2)
    central = (result["m.y1"][2:] - result["m.y1"][:-2]) / 2e-3
    assert result["m.y2"][1:-1] == pytest.approx(central, abs=2e-5)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"displacement": None}, DimensionError, r"output maps \(none given\)"),
        ({"velocity": np.ones((3, 2))}, DimensionError, "displacement, velocity must have equally many rows"),
        ({"displacement": np.ones((1, 3))}, DimensionError, "displacement is 1 × 3; expected any × 2"),
        ({"feedthrough": np.ones((1, 2))}, DimensionError, "feedthrough is 1 × 2; expected 2 × 2"),
        ({"initial": [0.0, 0.0]}, DimensionError, "initial is 1 × 2; expected 4 × 1"),
        ({"outputs": ["only"]}, DimensionError, "displacement is 2 × 2; expected 1 × 2"),
    ],
)
def test_wrong_mechanical_options(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mechanical(**options)


def test_wrong_mechanical_shapes() -> None:
    with pytest.raises(DimensionError, match="matrix K is 1 × 1; expected 2 × 2"):
        Mechanical(M, C, 1.0, B=B, displacement=np.eye(2))
    with pytest.raises(DimensionError, match="matrix M is 2 × 3; expected 2 × 2"):
        Mechanical(np.ones((2, 3)), C, K, B=B, displacement=np.eye(2))


def test_a_massless_degree_of_freedom_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="mass matrix M is singular; remove massless"):
        Mechanical(np.diag([1.0, 0.0]), C, K, B=B, displacement=np.eye(2))


def test_the_papers_integrator_is_the_default() -> None:
    assert mechanical().integrator == SymplecticEuler()


# ---- live ----------------------------------------------------------------------------------------------------------


def test_a_step_in_parts_is_the_step() -> None:
    """The exact unit follows the polynomial on its own, wherever it is stopped."""
    whole, parts = (mechanical(initial=[1, 0, 0, -1], integrator=Exact()).instantiate() for _ in range(2))
    c = np.array([[1.0, 0.5], [-2.0, 0.3], [0.7, 4.0]])
    whole.set_input(c, 0.6)
    parts.set_input(c, 0.6)
    whole.step(0.0, 0.6)
    for part in (0.1, 0.2, 0.3):
        parts.step(0.0, part)
    assert parts.read() == pytest.approx(whole.read(), abs=1e-13)


def test_read_uses_the_input_as_it_is_now() -> None:
    live = StateSpace(-1.0, 1.0, 0.0, 1.0).instantiate()
    live.set_input(np.array([[1.0], [2.0], [4.0]]), 0.5)
    assert live.read().tolist() == [1.0]
    live.step(0.0, 0.25)
    assert live.read() == pytest.approx([1.0 + 2.0 / 2 + 4.0 / 4], abs=1e-15)


def test_restore_brings_back_state_and_input_many_times() -> None:
    live = StateSpace(-1.0, 1.0, 1.0, 0.5, initial=2.0, integrator=ForwardEuler()).instantiate()
    live.set_input(np.array([[1.0], [3.0]]), 0.1)
    live.step(0.0, 0.05)
    kept, before = live.save(), live.read()
    ends = []
    for _ in range(3):
        live.step(0.05, 0.05)
        ends.append(live.read())
        live.set_input(np.array([[99.0]]), 0.1)
        live.step(0.1, 0.1)
        live.restore(kept)
        assert np.array_equal(live.read(), before)
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], ends[2])


def test_instances_do_not_share_state() -> None:
    unit = StateSpace(-1.0, 1.0, 1.0, initial=1.0)
    first, second = unit.instantiate(), unit.instantiate()
    first.step(0.0, 1.0)
    assert first.read() == pytest.approx([math.exp(-1)])
    assert second.read().tolist() == [1.0]
    assert unit.initial_state.tolist() == [1.0]


@pytest.mark.parametrize(
    "lti",
    [
        signal.TransferFunction([2.0], [1.0, 3.0, 2.0]),
        signal.ZerosPolesGain([], [-1.0, -2.0], 2.0),
        signal.StateSpace([[0.0, 1.0], [-2.0, -3.0]], [[0.0], [1.0]], [[2.0, 0.0]], [[0.0]]),
        ([2.0], [1.0, 3.0, 2.0]),
    ],
    ids=["transfer function", "zeros and poles", "state space", "tuple"],
)
def test_systems_of_scipy_answer_a_step_as_they_do_there(lti: Any) -> None:
    """2 / ((s + 1) (s + 2)): y = 1 − 2 exp(−t) + exp(−2 t)."""
    unit = StateSpace.from_scipy(lti, inputs=["u"], outputs=["y"], start={"u": 1.0})
    system = System({"plant": unit})
    rows = run(system, masters.jacobi(system, 0.1), stop=3.0)
    t = rows.time
    np.testing.assert_allclose(rows["plant.y"], 1 - 2 * np.exp(-t) + np.exp(-2 * t), atol=1e-12)


class OfControl:
    """What python-control's state space has."""

    A, B, C, D, dt = [[-1.0]], [[2.0]], [[3.0]], [[0.5]], 0
    input_labels, output_labels = ["u[0]"], ["y[0]"]


def test_systems_of_python_control() -> None:
    unit = StateSpace.from_control(OfControl())
    model = unit.linear()
    assert (model.A, model.B, model.C, model.D) == (-1.0, 2.0, 3.0, 0.5)
    assert (unit.inputs, unit.outputs) == (("u[0]",), ("y[0]",))
    assert StateSpace.from_control(OfControl(), inputs=["force"]).inputs == ("force",)


@pytest.mark.parametrize("lti", [signal.dlti([1.0], [1.0, 0.5], dt=0.1), ([1.0, 0.0, 0.0], [1.0, 1.0]), "plant", 3.0])
def test_what_is_no_continuous_system_is_refused(lti: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"sampling time 0\.1|no continuous LTI system"):
        StateSpace.from_scipy(lti)
    sampled = OfControl()
    sampled.dt = 1
    with pytest.raises(ConfigurationError, match="sampling time 1"):
        StateSpace.from_control(sampled)
