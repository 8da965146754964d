"""The error that units' own solvers add along a run: found unit by unit, and sent round through the couplings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cosimo.algebra import coupled_model
from cosimo.assessment.operating import reference_run
from cosimo.assessment.solvers import own_errors, sent_round
from cosimo.core.system import Connection, System
from cosimo.execution import run
from cosimo.masters import gauss_seidel, jacobi
from cosimo.units import Exact, ForwardEuler, Integrator, StateSpace

STEP, STEPS = 0.1, 60


def pair(solver: Integrator) -> System:
    """Two lags in a loop of negative feedback; the first has the solver asked for, the second none of its own error."""
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, initial=1.0, integrator=solver),
        "b": StateSpace(-2.0, 2.0, 1.0, integrator=Exact()),
    }
    return System(units, [Connection("a.y1", "b.u1"), Connection("b.y1", "a.u1", gain=-3.0)])


@pytest.fixture(scope="module")
def own() -> np.ndarray:
    system = pair(ForwardEuler())
    reference = reference_run(system, gauss_seidel(system, STEP / 32), start=0.0, stop=STEP * STEPS)
    return own_errors(system, reference, step=STEP, steps=STEPS)


def test_the_own_error_is_that_of_the_solver_under_the_same_inputs(own: np.ndarray) -> None:
    system = pair(ForwardEuler())
    reference = reference_run(system, gauss_seidel(system, STEP / 32), start=0.0, stop=STEP * STEPS)
    held = reference["a.u1"][:-1].reshape(STEPS, 32) / 2 + reference["a.u1"][1:].reshape(STEPS, 32) / 2
    euler = exact = 1.0
    expected = [0.0]
    for u in held.mean(axis=1):
        euler += STEP * (u - euler)
        exact = u + (exact - u) * math.exp(-STEP)
        expected.append(euler - exact)
    assert own[:, 0] == pytest.approx(expected, abs=2e-3 * np.abs(expected).max())
    assert np.abs(own[:, 1]).max() < 1e-12


def test_sent_round_it_is_what_two_runs_differ_by(own: np.ndarray) -> None:
    system = pair(ForwardEuler())
    coupled = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()})  # type: ignore[misc]
    found, _ = sent_round(coupled, STEP, own, np.zeros(2))
    euler, exact = (
        run(pair(solver), jacobi(system, STEP), stop=STEP * STEPS).values for solver in (ForwardEuler(), Exact())
    )
    size = np.abs(euler - exact).max(axis=0)
    assert np.abs(found).max(axis=0) == pytest.approx(size, rel=0.3)
    # Without the way round through the other unit it would be quite another error.
    assert np.abs(own[:, 1] - (euler - exact)[:, 1]).max() > 0.9 * size[1]


def test_pieces_join_without_a_seam(own: np.ndarray) -> None:
    system = pair(ForwardEuler())
    coupled = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()})  # type: ignore[misc]
    whole, end = sent_round(coupled, STEP, own, np.zeros(2))
    first, middle = sent_round(coupled, STEP, own[:21], np.zeros(2))
    second, last = sent_round(coupled, STEP, own[20:], middle)
    assert np.vstack([first, second[1:]]) == pytest.approx(whole, abs=1e-12)
    assert last == pytest.approx(end, abs=1e-12)
