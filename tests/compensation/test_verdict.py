"""What is said of a compensation before running it: modes, latent eigenvalues, gain size, a wrong model."""

from __future__ import annotations

import time
from unittest.mock import patch

import numpy as np
import pytest
import scipy.linalg

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.compensation import compensate
from cosimo.compensation.target import rebuild
from cosimo.core.system import Connection, System
from cosimo.problems import four_mass, two_mass, two_mass_damped, two_mass_undamped
from cosimo.units import Mechanical, StateSpace


def poles(M: object, C: object, K: object) -> np.ndarray:
    """Of M q̈ + C q̇ + K q = 0, upper half plane, slowest first."""
    M, C, K = map(np.atleast_2d, (M, C, K))
    n = len(M)
    A = np.block([[np.zeros((n, n)), np.eye(n)], [-np.linalg.solve(M, K), -np.linalg.solve(M, C)]])
    found = np.linalg.eigvals(A)
    return np.sort_complex(found[found.imag > 0] / 1j) * 1j


def test_modes_are_matched_one_to_one() -> None:
    """Targets: the exact poles, and symplectic Euler's; before: those of the papers README; after: the targets."""
    system, h = two_mass_damped(), 4e-3
    exact = poles(np.eye(2), [[0.2, -0.1], [-0.1, 0.2]], [[110.0, -100.0], [-100.0, 1100.0]])
    aimed = compensate(system, masters.jacobi(system, h), target="exact").modes
    np.testing.assert_allclose([mode.exact for mode in aimed], exact, rtol=1e-10)
    for mode in aimed:
        assert mode.target == pytest.approx(mode.exact, rel=1e-10)
        assert mode.after == pytest.approx(mode.target, rel=1e-9)
        assert abs(mode.before - mode.exact) > 1e-4 * abs(mode.exact)
    plain = LinearSystem(system, masters.jacobi(system, h))
    radii = sorted(abs(np.exp(mode.before * h)) for mode in aimed)
    assert radii[-1] == pytest.approx(Spectrum(plain).radius, rel=1e-12)
    # Undamped symplectic Euler: cos(ω' h) = 1 − ω² h² / 2 for every mode ω.
    system = two_mass_undamped()
    for mode in compensate(system, masters.jacobi(system, h)).modes:
        assert mode.target.imag == pytest.approx(np.arccos(1 - (mode.exact.imag * h) ** 2 / 2) / h, rel=1e-10)
        assert abs(mode.target.real) < 1e-9
        assert mode.after == pytest.approx(mode.target, rel=1e-9)


def test_equal_poles_are_not_matched_twice() -> None:
    system = two_mass(k1=100.0, k2=100.0, kc=0.0, damping=0.0)
    modes = compensate(system, masters.jacobi(system, 1e-3)).modes
    assert len(modes) == 2
    assert [mode.after.imag for mode in modes] == pytest.approx([mode.target.imag for mode in modes], rel=1e-9)


def test_latent_eigenvalues_are_those_of_phi_beyond_the_target() -> None:
    system = two_mass()
    found = compensate(system, masters.jacobi_early_read(system, 4e-3), target="exact")
    values = np.linalg.eigvals(LinearSystem(system, found.master).cycle.matrix)
    targets = np.exp(4e-3 * np.array([m.exact for m in found.modes]))
    far = [v for v in values if min(abs(v - t) for t in (*targets, *targets.conj())) > 1e-6]
    assert found.latent_radius == pytest.approx(max(map(abs, far)), rel=1e-6)
    assert 0 < found.latent_radius < 0.9
    assert (np.diff(np.abs(found.latent)) <= 0).all()


def test_gain_size_is_one_for_the_hold_and_independent_of_the_units_of_measure() -> None:
    right = two_mass(kc=0.0, damping=0.0)
    assert compensate(right, masters.jacobi(right, 1e-3)).gain_size == 1
    system = two_mass(damping=0.0)
    found = compensate(system, masters.jacobi(system, 4e-3), target="exact")
    assert 1 < found.gain_size < 10
    one, two = system.units.values()
    assert isinstance(one, Mechanical)
    assert isinstance(two, Mechanical)
    # Mass 2 in millimetres: q' = 1024 q in all that belongs to it.
    scale = 1024.0
    small = rebuild(two, B=two.B * scale, displacement=two.displacement / scale, velocity=two.velocity / scale,
                    initial=two.initial_state * scale)  # fmt: skip
    same = System({"one": one, "two": small}, system.connections)
    again = compensate(same, masters.jacobi(same, 4e-3), target="exact")
    assert again.gain_size == pytest.approx(found.gain_size, rel=1e-6)


def test_a_wrong_model() -> None:
    """The nominal design on a changed system, against the same system built by hand."""
    system, h = two_mass(), 4e-3
    found = compensate(system, masters.jacobi_early_read(system, h))
    assert {(c.unit, c.matrix, c.factor) for c in found.sensitivity} == {
        (unit, matrix, factor) for unit in ("one", "two") for matrix in "MCK" for factor in (0.9, 1.1)
    }
    heavier = two_mass(m2=1.1)
    change = next(c for c in found.sensitivity if (c.unit, c.matrix, c.factor) == ("two", "M", 1.1))
    assert change.radius == pytest.approx(Spectrum(LinearSystem(heavier, found.master)).radius, rel=1e-12)
    M, K = np.diag([1.0, 1.1]), np.array([[110.0, -100.0], [-100.0, 1100.0]])
    C = np.array([[0.2, -0.1], [-0.1, 0.2]])
    velocity = np.eye(2) - h * np.linalg.solve(M, C)
    step = -h * np.linalg.solve(M, K)
    F = np.block([[np.eye(2) + h * step, h * velocity], [step, velocity]])
    assert change.target_radius == pytest.approx(np.abs(np.linalg.eigvals(F)).max(), rel=1e-12)
    assert change.stable
    worst = found.worst_change
    assert worst is not None
    assert worst.excess == max(c.excess for c in found.sensitivity)
    assert f"{worst.matrix} of '{worst.unit}'" in str(found)


def test_a_wrong_model_may_be_unstable_and_says_so() -> None:
    """Without damping, early read grows as soon as the model is wrong."""
    system = two_mass_undamped()
    found = compensate(system, masters.jacobi_early_read(system, 0.01))
    worst = found.worst_change
    assert found.stable
    assert worst is not None
    assert not worst.stable
    assert worst.radius > 1 + 1e-7
    assert worst.target_radius == pytest.approx(1.0, abs=1e-9)
    assert "UNSTABLE; at worst" in str(found)


def test_state_space_units_are_changed_in_a_and_b() -> None:
    system = System(
        {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-2.0, 1.0, 1.0)},
        [Connection("a.y1", "b.u1", gain=2.0), Connection("b.y1", "a.u1", gain=-3.0)],
    )
    found = compensate(system, masters.jacobi(system, 0.05))
    change = next(c for c in found.sensitivity if (c.unit, c.matrix, c.factor) == ("b", "B", 1.1))
    A = np.array([[-1.0, -3.0], [2.2, -2.0]])
    assert change.target_radius == pytest.approx(np.abs(np.linalg.eigvals(scipy.linalg.expm(0.05 * A))).max())
    assert {c.matrix for c in found.sensitivity} == {"A", "B"}


def test_a_target_that_grows_is_followed_and_not_called_stable() -> None:
    system = two_mass(k1=-200.0)
    found = compensate(system, masters.jacobi(system, 1e-3))
    assert found.follows
    assert not found.stable
    assert "grows as its target does" in str(found)


def test_the_spectrum_before_is_computed_once_and_the_rest_when_asked() -> None:
    system = four_mass()
    master = masters.jacobi(system, 3e-3)
    with patch.object(Spectrum, "__init__", autospec=True, side_effect=Spectrum.__init__) as made:
        found = compensate(system, master)
    plain = [call for call in made.call_args_list if call.args[1].master is master]
    assert len(plain) == 1
    assert not {"sensitivity", "modes", "gain_size"} & set(vars(found))


def test_designing_the_four_mass_compensator_takes_less_than_50_ms() -> None:
    """Of processor time: what else runs on the machine does not count."""
    system = four_mass()
    master = masters.jacobi(system, 3e-3)
    times = []
    for _ in range(5):
        begin = time.thread_time()
        compensate(system, master)
        times.append(time.thread_time() - begin)
    assert min(times) < 0.05


def test_growing_with_the_target_is_not_stable() -> None:
    """Near the limit of symplectic Euler a wrong model makes the target itself grow, and the run with it."""
    system = two_mass_undamped()
    found = compensate(system, masters.jacobi(system, 0.06))
    worst = found.worst_change
    assert worst is not None
    assert worst.target_radius > 1.9
    assert worst.follows
    assert not worst.stable
    line = next(line for line in str(found).splitlines() if "wrong model" in line)
    assert "grows as its target does; at worst" in line
