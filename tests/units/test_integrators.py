"""Integrators: measured order against the declared one, and `discretise` against plain loops of micro steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.core.unit import LinearModel
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.units import Exact, ForwardEuler, Integrator, Mechanical, RungeKutta4, StateSpace, SymplecticEuler
from cosimo.units.linear import discretise, require_micro_steps

FINITE: list[Integrator] = [ForwardEuler(), SymplecticEuler(), RungeKutta4()]
ALL: list[Integrator] = [*FINITE, Exact()]


def oscillator(integrator: Integrator, **options: Any) -> Mechanical:
    """A damped oscillator with two degrees of freedom; every integrator takes it."""
    return Mechanical(
        [[2.0, 0.3], [0.3, 1.0]],
        0.2 * np.eye(2),
        [[5.0, -2.0], [-2.0, 3.0]],
        B=[[1.0], [0.5]],
        displacement=np.eye(2),
        initial=[0.4, -0.1, 0.2, 0.3],
        integrator=integrator,
        **options,
    )


def rhs(model: LinearModel, u: Any) -> Any:
    return lambda t, x: model.A @ x + model.B @ np.atleast_1d(u(t))


def error(integrator: Integrator, u: Any, step: float, stop: float = 2.0) -> float:
    """The largest over the rows of an executed run, the input being known ahead."""
    unit = oscillator(integrator)
    system = System({"mass": unit}, inputs={"mass.u1": u})
    result = run(system, masters.jacobi(system, step, coupling=Hold(2)), stop=stop)
    exact = solve_ivp(
        rhs(unit.model, u), (0, stop), unit.initial_state, t_eval=result.time, rtol=1e-12, atol=1e-14, method="DOP853"
    )
    return float(np.abs(result.values - exact.y[:2].T).max())


@pytest.mark.parametrize("integrator", FINITE, ids=lambda i: type(i).__name__)
def test_measured_order_is_the_declared_one(integrator: Integrator) -> None:
    errors = [error(integrator, np.sin, step) for step in (0.02, 0.01, 0.005)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx(integrator.order, abs=0.1)


def test_exact_has_no_error_for_quadratic_inputs() -> None:
    assert Exact.order == np.inf
    for step in (1.0, 0.5, 0.1):
        assert error(Exact(), lambda t: 1.0 - t + 0.7 * t**2, step) <= 1e-11


# ---- discretise ------------------------------------------------------------------------------------------------------


def naive(integrator: Integrator, model: LinearModel, x: Array, c: Array, micro_steps: int, duration: float) -> Array:
    """Micro step after micro step, the formulas written out."""
    delta = duration / micro_steps

    def u(t: float) -> Array:
        theta = t / duration
        return c[0] + theta * c[1] + theta**2 * c[2]

    def slope(t: float, state: Array) -> Array:
        return model.A @ state + model.B @ u(t)

    for i in range(micro_steps):
        t = i * delta
        if isinstance(integrator, ForwardEuler):
            x = x + delta * slope(t, x)
        elif isinstance(integrator, SymplecticEuler):
            n = len(x) // 2
            velocity = x[n:] + delta * slope(t, x)[n:]
            x = np.concatenate([x[:n] + delta * velocity, velocity])
        elif isinstance(integrator, RungeKutta4):
            k1 = slope(t, x)
            k2 = slope(t + delta / 2, x + delta / 2 * k1)
            k3 = slope(t + delta / 2, x + delta / 2 * k2)
            k4 = slope(t + delta, x + delta * k3)
            x = x + delta / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        else:
            solved = solve_ivp(slope, (t, t + delta), x, rtol=1e-12, atol=1e-13, method="DOP853")
            x = solved.y[:, -1]
    return x


@pytest.mark.parametrize("integrator", ALL, ids=lambda i: type(i).__name__)
@pytest.mark.parametrize("micro_steps", [1, 2, 7])
def test_discretise_is_the_loop_of_micro_steps(integrator: Integrator, micro_steps: int) -> None:
    rng = np.random.default_rng(micro_steps)
    model = oscillator(integrator).model
    model = LinearModel(
        model.A, np.column_stack([model.B, rng.normal(size=4) * [0, 0, 1, 1]]), model.C, np.zeros((2, 2))
    )
    x, c = rng.normal(size=4), rng.normal(size=(3, 2))
    discrete = discretise(model, integrator, micro_steps, 0.4)
    expected = naive(integrator, model, x, c, micro_steps, 0.4)
    assert discrete.A @ x + discrete.B @ c.ravel() == pytest.approx(
        expected, abs=1e-10 if integrator == Exact() else 1e-14
    )


@pytest.mark.parametrize("integrator", ALL, ids=lambda i: type(i).__name__)
def test_many_durations_at_once(integrator: Integrator) -> None:
    model, durations = oscillator(integrator).model, np.array([[0.1, 0.2, 0.5], [1.0, 1e-3, 0.2]])
    stack = discretise(model, integrator, 3, durations)
    assert stack.A.shape == (2, 3, 4, 4)
    for place in np.ndindex(durations.shape):
        one = discretise(model, integrator, 3, float(durations[place]))
        assert stack.A[place] == pytest.approx(one.A, abs=1e-14)
        assert stack.B[place] == pytest.approx(one.B, abs=1e-14)


@pytest.mark.parametrize(
    "A", [np.zeros((2, 2)), [[0.0, 1.0], [0.0, 0.0]], [[0.0, 1.0], [-4.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]]]
)
def test_exact_with_quadratic_input_also_where_a_is_singular(A: Any) -> None:
    unit = StateSpace(A, [[1.0, 0.0], [0.5, -1.0]], np.eye(2), initial=[1.0, -2.0])
    c, duration = np.array([[1.0, -0.5], [0.3, 2.0], [-0.8, 0.1]]), 0.9
    discrete = unit.discrete(duration)
    exact = solve_ivp(
        rhs(unit.model, lambda t: c[0] + c[1] * (t / duration) + c[2] * (t / duration) ** 2),
        (0, duration),
        unit.initial_state,
        rtol=1e-12,
        atol=1e-13,
        method="DOP853",
    )
    assert discrete.A @ unit.initial_state + discrete.B @ c.ravel() == pytest.approx(exact.y[:, -1], abs=1e-10)


def test_exact_ignores_the_number_of_micro_steps() -> None:
    model = oscillator(Exact()).model
    one, many = discretise(model, Exact(), 1, 0.8), discretise(model, Exact(), 16, 0.8)
    assert np.abs(many.A - one.A).max() < 1e-13
    assert np.abs(many.B - one.B).max() < 1e-13


def test_a_unit_without_states_has_an_empty_map() -> None:
    model = LinearModel(np.zeros((0, 0)), np.zeros((0, 2)), np.zeros((1, 0)), np.ones((1, 2)))
    for integrator in (Exact(), ForwardEuler(), RungeKutta4()):
        discrete = discretise(model, integrator, 2, 0.1)
        assert (discrete.A.shape, discrete.B.shape) == ((0, 0), (0, 6))


# ---- symplectic Euler --------------------------------------------------------------------------------------------


def energies(integrator: Integrator, steps: int) -> Array:
    """Energy of the undamped oscillator q̈ = −q, q(0) = 1, along the steps of its own map (δ = 0.1)."""
    unit = Mechanical(1.0, 0.0, 1.0, B=1.0, displacement=1.0, integrator=integrator)
    map_ = unit.discrete(0.1).A
    x, found = np.array([1.0, 0.0]), []
    for _ in range(steps):
        x = map_ @ x
        found.append(0.5 * float(x @ x))
    return np.array(found)


def test_symplectic_euler_neither_gains_nor_loses_energy() -> None:
    energy = energies(SymplecticEuler(), 100_000)
    assert np.abs(energy - 0.5).max() < 0.06 * 0.5
    # No drift: the last ten thousand steps look like the first.
    assert energy[-10_000:].mean() == pytest.approx(energy[:10_000].mean(), rel=1e-4)


def test_symplectic_euler_keeps_its_own_invariant_and_area() -> None:
    map_ = oscillator(SymplecticEuler()).discrete(0.1).A
    undamped = Mechanical(1.0, 0.0, 1.0, B=1.0, displacement=1.0).discrete(0.1).A
    assert np.linalg.det(undamped) == pytest.approx(1.0, abs=1e-15)
    assert np.linalg.det(map_) < 1.0
    # q² − δ q v + v² is conserved exactly by the velocity-first step.
    form = np.array([[1.0, -0.05], [-0.05, 1.0]])
    assert undamped.T @ form @ undamped == pytest.approx(form, abs=1e-15)


def test_forward_euler_gains_energy() -> None:
    energy = energies(ForwardEuler(), 100)
    assert energy[-1] == pytest.approx(0.5 * 1.01**100, rel=1e-12)


# ---- refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, -3, 1.5, "2", None])
def test_micro_steps_are_a_positive_whole_number(count: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"positive whole number, not {count}"):
        require_micro_steps(count)
    with pytest.raises(ConfigurationError, match="micro_steps"):
        StateSpace(-1.0, 1.0, 1.0, micro_steps=count)
