"""The papers' compensator: what is derived from units and connections, and wrong input."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.papers.assignment import assign, with_feedback
from cosimo.papers.laplace import Delay
from cosimo.papers.mechanics import cosimulated_motion, exact_motion, nrms
from cosimo.papers.stiffness import Coordinate, DynamicStiffness, Force, Placement, Signal, available_forces
from cosimo.problems import four_mass, motor_gearbox, two_mass, two_mass_glumac
from cosimo.units import Exact, Mechanical


def test_monolithic_matrices_are_those_of_the_paper() -> None:
    """Eq. 45 written out by hand."""
    M, C, K = DynamicStiffness(four_mass(), 3e-3).matrices()
    k = 100.0 * np.arange(1, 6)
    expected = np.diag(k[:-1] + k[1:]) - np.diag(k[1:-1], 1) - np.diag(k[1:-1], -1)
    np.testing.assert_allclose(M, np.diag([1.0, 2, 3, 4]), atol=1e-9)
    np.testing.assert_allclose(K, expected, rtol=1e-12)
    np.testing.assert_allclose(C, expected * 1e-4, atol=1e-9)


def test_perturbation_is_that_of_the_paper() -> None:
    """Eq. 15, and Eq. 10 of richiedei2024 with the gear ratio."""
    T = 1e-3
    for system, g, ratio in ((two_mass(), (100.0, 0.1), 1.0), (motor_gearbox(), (3.5e4, 1e-5), 1 / 32)):
        s = -3.0 + 40.0j
        D = (1 - np.exp(-s * T)) / (s * T)
        force = g[0] + s * g[1]
        expected = np.array([[0, ratio * force * (1 - D)], [ratio * force * (1 - D), force * (D * D - 1)]])
        found = DynamicStiffness(system, T).perturbation(s)
        np.testing.assert_allclose(found, expected, atol=1e-8 * abs(force))


def test_what_forces_see_follows_from_the_connections() -> None:
    """Eq. 47: unit 1 sees x3* only, unit 2 sees x1* and x2* because it receives a force."""
    first, second = available_forces(DynamicStiffness(four_mass(), 3e-3))
    assert str(first) == "force on left.q2 from left.q1, left.q2, right.q1*"
    assert str(second) == "force on right.q1 from left.q1*, left.q2*, right.q1, right.q2"


def test_delays_per_connection_enter_the_design() -> None:
    delays = {"two.f": Delay(send=2e-3), "one.x2": Delay(1), "one.v2": Delay(1)}
    assignment = assign(DynamicStiffness(two_mass(), 1e-3, delays=delays)).require()
    for pole in assignment.primary_poles():
        assert abs(pole.cosimulated - pole.monolithic) < 1e-10


def test_no_forces_are_needed_where_nothing_is_coupled() -> None:
    unit = Mechanical(1.0, 0.1, 10.0, B=1.0, displacement=1.0, inputs=["f"], outputs=["x"], start={"f": 0.0})
    assignment = assign(DynamicStiffness(System({"a": unit, "b": unit}), 1e-3))
    assert assignment.forces == ()
    assert assignment.require().gains == ()


def test_missing_signals_and_forces_are_named() -> None:
    stiffness = DynamicStiffness(two_mass(), 1e-3)
    first, second = available_forces(stiffness)
    with pytest.raises(ConfigurationError, match=r"missing: signal two\.q1\* in the force on one\.q1"):
        assign(stiffness, (first.without("two.q1"), second)).require()
    with pytest.raises(ConfigurationError, match=r"missing: an independent force on two\.q1"):
        assign(stiffness, (first,)).require()
    with pytest.raises(ConfigurationError, match="no forces"):
        assign(stiffness, ()).require()
    with pytest.raises(ConfigurationError, match=r"does not use two\.q7"):
        first.without("two.q7")
    alien = Force((Placement(Coordinate("one", 5)),), (Signal(Coordinate("one", 0)),))
    with pytest.raises(ConfigurationError, match=r"one\.q6 is not among"):
        assign(stiffness, (alien,))


def test_systems_that_are_not_mechanical_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="unit 'one' is a StateSpace"):
        DynamicStiffness(two_mass_glumac(), 1e-3)


def test_runs_refuse_what_the_papers_do_not_cover() -> None:
    exact = two_mass(integrator=Exact())
    with pytest.raises(ConfigurationError, match="SymplecticEuler"):
        with_feedback(assign(DynamicStiffness(exact, 1e-3)), masters.jacobi)
    good = assign(DynamicStiffness(two_mass(), 1e-3))
    with pytest.raises(ConfigurationError, match=r"Hold\(0\)"):
        with_feedback(good, lambda system, step: masters.jacobi(system, step, coupling=Hold(1)))


@pytest.mark.parametrize("build", [two_mass, four_mass, motor_gearbox])
def test_a_compensated_system_is_a_system_like_any_other(build: object) -> None:
    """It is analysed by its Φ, and its run follows the exact motion."""
    system = build()  # type: ignore[operator]
    step = 1e-4
    changed, master = with_feedback(assign(DynamicStiffness(system, step)).require(), masters.jacobi_early_read)
    motion = cosimulated_motion(changed, master, 2000)
    assert Spectrum(LinearSystem(changed, master)).radius < 1 + 1e-6
    exact = exact_motion(system, step, 2000)
    for column in range(motion.positions.shape[1]):
        assert nrms(motion.positions[:, column], exact.positions[:, column]) < 0.05


def test_undamped_and_free_systems_give_no_nan() -> None:
    """A rigid-body mode (both masses free): poles at 0 are assigned or refused, never NaN."""
    free = two_mass(k1=0.0, k2=0.0, damping=0.0)
    assignment = assign(DynamicStiffness(free, 1e-3))
    assert all(np.isfinite(part).all() for part in assignment.gains)
    assert np.isfinite(assignment.residual)
