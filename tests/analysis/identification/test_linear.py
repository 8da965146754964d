"""Linear units: the poles of the true one-step map, by every means, at the cost allowed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from thinning import mostly_slow

sys.path.insert(0, str(Path(__file__).parent))
from black_boxes import NO_DERIVATIVES, NO_STATES, chain, distance, exported, many_sided, stiff

from cosimo.analysis.identification import OperatingPoint, identify, means_offered
from cosimo.units import Exact, ForwardEuler, Mechanical, RungeKutta4, StateSpace

MEANS = {"derivatives": 1e-6, "differences": 1e-6, "experiments": 1e-4}
BOXES = {
    "two masses": (chain(2), 1e-3),
    "five masses": (chain(5), 1e-2),
    "five masses, hardly damped": (chain(5, damping=1e-6), 3e-3),
    "five masses by Runge-Kutta": (chain(5, integrator=RungeKutta4(), micro_steps=2), 2e-2),
    "ten stiff states": (stiff(10), 1e-3),
    "ten stiff states, long step": (stiff(10), 1e-2),
    "four stiff states by Euler": (stiff(4, integrator=ForwardEuler(), micro_steps=5), 5e-4),
    "many-sided": (many_sided(), 0.05),
    "rigid body": (Mechanical(1025.0, 0.0, 0.0, B=1.0, displacement=[[1.0], [0]], velocity=[[0], [1.0]]), 1e-4),
}


@pytest.mark.parametrize("fmi", mostly_slow([2, 3], [3]))
@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("name", BOXES)
@pytest.mark.one_in(4)
def test_poles_of_the_true_map(tmp_path, name, means, fmi):
    unit, h = BOXES[name]
    found = identify(exported(unit, tmp_path, fmi=fmi), h, means=means)
    true = unit.discrete(h)
    assert found.means == means
    assert found.valid, found
    assert distance(found.poles, np.linalg.eigvals(true.A)) < MEANS[means]
    np.testing.assert_allclose(found.D, unit.linear().D, rtol=1e-9, atol=0)
    assert max(found.fit, found.linear, found.invariant, found.free) < 1e-5
    assert not found.output_offset.any()
    assert not found.input_offset.any()
    if means == "experiments":
        assert found.unit_steps <= 2000 * len(unit.inputs)


@pytest.mark.parametrize("means", MEANS)
def test_answers_in_full(tmp_path, means):
    """Not only poles: the identified unit answers any input, of any power it takes, as the FMU does."""
    unit, h = many_sided(integrator=RungeKutta4(), micro_steps=3), 0.05
    fmu = exported(unit, tmp_path, fmi=2)
    found = identify(fmu, h, means=means)
    mine, real = found.unit().instantiate(), fmu.instantiate()
    rng = np.random.default_rng(3)
    try:
        for k in range(200):
            c = rng.normal(size=(3, 2))
            for one in (mine, real):
                one.set_input(c, h)
            np.testing.assert_allclose(mine.read(), real.read(), rtol=1e-7, atol=1e-7)
            for one in (mine, real):
                one.step(k * h, h)
    finally:
        real.close()


def test_the_best_means_is_chosen(tmp_path):
    unit = chain(1)
    whole = exported(unit, tmp_path)
    assert means_offered(whole) == ("derivatives", "differences", "experiments")
    assert identify(whole, 0.1).means == "derivatives"
    assert identify(exported(unit, tmp_path, without=NO_DERIVATIVES), 0.1).means == "differences"
    assert means_offered(exported(unit, tmp_path, without=NO_DERIVATIVES)) == ("differences", "experiments")
    bare = exported(unit, tmp_path, without=NO_DERIVATIVES + NO_STATES)
    # Its states can still be seen: runs of fresh instances are compared instead of restored ones.
    assert means_offered(bare) == ("differences", "experiments")
    found = identify(bare, 0.1)
    assert distance(found.poles, np.linalg.eigvals(unit.discrete(0.1).A)) < 1e-9
    assert identify(unit, 0.1).means == "known"
    assert identify(unit, 0.1).unit_steps == 0


@pytest.mark.parametrize("size", [1e5, 1e-6])
def test_units_of_any_size(tmp_path, size):
    """Inputs around 1e5 or 1e-6, outputs the other way round, at an operating point that is not 0."""
    A = np.array([[0.0, 1.0], [-40.0, -0.4]])
    unit = StateSpace(A, [[0], [1 / size]], [[1 / size, 0.0]], initial=[0.5, 0], start={"u1": 20 * size})
    for means in MEANS:
        found = identify(exported(unit, tmp_path), 0.02, means=means)
        assert found.valid, found
        assert distance(found.poles, np.linalg.eigvals(unit.discrete(0.02).A)) < 1e-8
        assert found.amplitudes[0] >= size / 10


def test_operating_point_after_a_run(tmp_path):
    unit, h = chain(2), 0.05
    point = OperatingPoint(time=1.0, inputs={"u1": np.sin})
    x = unit.initial_state
    for k in range(20):
        x = unit.discrete(h).A @ x + unit.discrete(h).B[:, 0] * np.sin(k * h)
    for means in MEANS:
        found = identify(exported(unit, tmp_path), h, means=means, point=point)
        assert found.time == 1.0
        assert found.held == np.sin(1.0)
        free = [found.C @ np.linalg.matrix_power(found.model.A, k) @ found.initial for k in range(4)]
        true = [unit.linear().C @ np.linalg.matrix_power(unit.discrete(h).A, k) @ x for k in range(4)]
        np.testing.assert_allclose(free, true, atol=1e-8)
        assert distance(found.poles, np.linalg.eigvals(unit.discrete(h).A)) < 1e-9
    known = identify(unit, h, point=point)
    np.testing.assert_allclose(known.initial, x)


def test_modes_that_no_input_reaches(tmp_path):
    """They show in the free motion, and the coupled system has them too."""
    unit = StateSpace(np.diag([-1.0, -5.0]), [[0.0], [1.0]], [[1.0, 1.0]], initial=[2.0, 1.0])
    for means in MEANS:
        found = identify(exported(unit, tmp_path), 0.1, means=means)
        assert distance(found.poles, np.exp([-0.1, -0.5])) < 1e-9
    alone = StateSpace(-1.0, np.zeros((1, 0)), 1.0, np.zeros((1, 0)), initial=1.0)
    for means in MEANS:
        found = identify(exported(alone, tmp_path), 0.1, means=means)
        assert distance(found.poles, np.exp([-0.1])) < 1e-9


def test_units_without_states_and_without_outputs(tmp_path):
    gain = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), [[3.0]])
    found = identify(exported(gain, tmp_path), 0.1)
    assert (found.order, found.D, found.valid) == (0, 3.0, True)
    sink = StateSpace(-1.0, 1.0, np.zeros((0, 1)), np.zeros((0, 1)))
    assert identify(exported(sink, tmp_path), 0.1).valid


def test_only_one_instance_at_a_time(tmp_path):
    unit = chain(2)
    alone = 'canBeInstantiatedOnlyOncePerProcess="true"'
    fmu = exported(unit, tmp_path, without=NO_DERIVATIVES + NO_STATES, extra=alone)
    for means in ("differences", "experiments"):
        found = identify(fmu, 0.05, means=means)
        assert distance(found.poles, np.linalg.eigvals(unit.discrete(0.05).A)) < 1e-6
    fmu.instantiate().close()  # everything was released


def test_derivatives_that_fail_give_way(tmp_path, monkeypatch):
    from cosimo.core.errors import UnitError
    from cosimo.units.fmi.instance import FmuInstance

    def refuse(self, *given):
        raise UnitError("not today")

    monkeypatch.setattr(FmuInstance, "directional_derivative", refuse)
    found = identify(exported(chain(1), tmp_path), 0.1)
    assert found.means == "differences"
    assert any("not today" in reason for reason in found.reasons)


def test_states_that_can_be_set_between_steps():
    from native_units import mixed

    found = identify(mixed(), 0.1)
    assert found.means == "differences"
    assert found.valid, found
    again = identify(mixed(), 0.1, means="experiments")
    assert distance(found.poles, again.poles) < 1e-9
    np.testing.assert_allclose(found.D, again.D)


def test_solver_is_named_and_corrected(tmp_path):
    unit = chain(2, integrator=ForwardEuler())
    found = identify(exported(unit, tmp_path), 0.01)
    assert found.means == "derivatives"
    assert any("corrected by real steps" in reason for reason in found.reasons)
    np.testing.assert_allclose(found.model.A, unit.discrete(0.01).A, atol=1e-10)
    np.testing.assert_allclose(found.continuous.A, unit.linear().A)
    exact = identify(exported(chain(2, integrator=Exact()), tmp_path), 0.01)
    assert not any("corrected" in reason for reason in exact.reasons)
