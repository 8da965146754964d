"""tamellin2022 and richiedei2024: poles of explicit co-simulation under the zero-order hold D(s)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.papers.other_poles import count_turns, pade_poles

from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.papers.laplace import Delay, LaplaceModel
from cosimo.papers.roots import Region
from cosimo.problems import four_mass, motor_gearbox, two_mass, two_mass_damped, two_mass_undamped

CASES = {
    "two-mass undamped, 1 ms": (two_mass_undamped, 1e-3, [-0.0044554 + 10.0000202j, 0.0544375 + 33.3155760j], 1e-6),
    "two-mass damped, 1 ms": (two_mass_damped, 1e-3, [-0.0945541 + 9.9995392j, -0.0554300 + 33.3173561j], 1e-6),
    "two-mass damped, 4 ms": (two_mass_damped, 4e-3, [-0.1079223 + 9.9994741j, 0.1074965 + 33.3074331j], 1e-6),
    "four-mass, 3 ms": (
        four_mass,
        3e-3,
        [-0.0117749 + 6.5856339j, 0.0304522 + 13.1195557j, 0.0174930 + 18.2060295j, 0.0632292 + 21.4746642j],
        1e-6,
    ),
    "motor-gearbox, 0.1 ms": (motor_gearbox, 1e-4, [0.1644385 + 59.6769542j, 1.4718320 + 746.1759282j], 1e-5),
}


@pytest.mark.parametrize("case", CASES)
def test_primary_poles(case: str) -> None:
    build, step, expected, tolerance = CASES[case]
    found = [pole.cosimulated for pole in LaplaceModel(build(), step).primary_poles()]
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)


def test_rightmost_latent_root_of_the_undamped_two_mass_system() -> None:
    roots = LaplaceModel(two_mass_undamped(), 1e-3).roots(Region(-20e3, 2e3, -25e3, 25e3)) * 1e-3
    latent = roots[np.abs(roots) > 1]
    assert latent[np.imag(latent) > 0][0] == pytest.approx(-9.061 + 2.007j, abs=1e-3)
    # The four primary ones are among the roots, and all come in conjugate pairs.
    assert (np.abs(roots) < 1).sum() == 4
    assert roots.imag.sum() == pytest.approx(0, abs=1e-9)


def test_dynamic_stiffness_of_the_paper() -> None:
    """det N(s) vanishes where the determinant of the paper's Eq. 14 does, written out by hand."""
    m, k1, k2, kc, c, T = 1.0, 10.0, 1000.0, 100.0, 0.1, 1e-3
    for pole in LaplaceModel(two_mass(), T).primary_poles():
        s = pole.cosimulated
        D, g = (1 - np.exp(-s * T)) / (s * T), s * c + kc
        stiffness = np.array(
            [[s * s * m + s * 2 * c + k1 + kc, -g * D], [-g * D, s * s * m + s * c + k2 + g * D * D]], dtype=complex
        )
        assert abs(np.linalg.det(stiffness)) < 1e-8 * np.abs(stiffness).max() ** 2


def test_without_hold_the_poles_are_monolithic() -> None:
    for pole in LaplaceModel(two_mass(), 1e-9).primary_poles():
        assert pole.cosimulated == pytest.approx(pole.monolithic, abs=1e-5)
        np.testing.assert_allclose(pole.cosimulated_shape, pole.monolithic_shape, atol=1e-6)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_spillover_vanishes_with_the_power_of_the_hold(order: int) -> None:
    shifts = []
    for step in (4e-3, 2e-3):
        poles = LaplaceModel(two_mass(), step, delay=Delay(order)).primary_poles()
        shifts.append(abs(poles[1].cosimulated - poles[1].monolithic))
    assert np.log2(shifts[0] / shifts[1]) == pytest.approx(order + 1, abs=0.1)


def test_delays_add_up_and_can_differ_per_connection() -> None:
    base = LaplaceModel(two_mass(), 1e-3).primary_poles()[1].cosimulated
    sent = LaplaceModel(two_mass(), 1e-3, delay=Delay(send=1e-3)).primary_poles()[1].cosimulated
    both = LaplaceModel(two_mass(), 1e-3, delay=Delay(send=4e-4, receive=6e-4)).primary_poles()[1].cosimulated
    single = LaplaceModel(two_mass(), 1e-3, delays={"two.f": Delay(send=1e-3)}).primary_poles()[1].cosimulated
    assert sent == pytest.approx(both, abs=1e-9)
    assert base.real < single.real < sent.real


@pytest.mark.parametrize("build", [two_mass, four_mass])
def test_roots_are_roots_and_complete(build: Callable[[], System]) -> None:
    model, region = LaplaceModel(build(), 3e-3), Region(-4e3, 500.0, -9e3, 9e3)
    roots = model.roots(region)
    assert len(roots) == count_turns(model, region, spacing=5.0)
    smallest = np.linalg.svd(model.matrix(roots), compute_uv=False)[:, -1]
    assert (smallest < 1e-6 * np.linalg.norm(model.matrix(roots), axis=(1, 2))).all()


def test_wrong_input_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="macro step"):
        LaplaceModel(two_mass(), 0.0)
    with pytest.raises(ConfigurationError, match="order"):
        Delay(3)
    with pytest.raises(ConfigurationError, match="negative"):
        Delay(send=-1.0)
    with pytest.raises(ConfigurationError, match="left < right"):
        Region(1.0, 0.0, 0.0, 1.0)
    with pytest.raises(ConfigurationError, match=r"unknown input of unit 'two'"):
        LaplaceModel(two_mass(), 1e-3, delays={"two.g": Delay()})


@pytest.mark.parametrize("case", CASES)
def test_pade_of_order_6_agrees_with_the_exact_poles(case: str) -> None:
    build, step, _, _ = CASES[case]
    model = LaplaceModel(build(), step)
    pade = pade_poles(model, order=6)
    for pole in model.primary_poles():
        assert np.abs(pade - pole.cosimulated).min() <= 1e-12 * max(1.0, abs(pole.cosimulated))


@pytest.mark.parametrize("delay", [Delay(1), Delay(2), Delay(send=2e-4, receive=1e-4), Delay(1, send=5e-4)])
def test_pade_of_other_holds_and_delays(delay: Delay) -> None:
    model = LaplaceModel(two_mass(), 1e-3, delay=delay)
    pade = pade_poles(model, order=6)
    for pole in model.primary_poles():
        assert np.abs(pade - pole.cosimulated).min() <= 1e-10 * abs(pole.cosimulated)


def test_sweep_and_critical_step() -> None:
    """Fig. 5: the second pole crosses the axis between 1 and 4 ms when damped; undamped it is always beyond."""
    model = LaplaceModel(two_mass_damped(), 1e-3)
    critical = model.critical_step()
    assert 1e-3 < critical < 4e-3
    swept = model.sweep([0.9 * critical, critical, 1.1 * critical])
    assert swept[0, 1].real < 0 < swept[2, 1].real
    assert swept[1, 1].real == pytest.approx(0, abs=1e-8)
    assert LaplaceModel(two_mass_undamped(), 1e-3).critical_step() == 0


def test_spillover_of_a_pole() -> None:
    first, second = (pole.mode for pole in LaplaceModel(two_mass_damped(), 4e-3).primary_poles())
    assert second.damping_shift < 0 < first.damping_shift
    assert 0.99 < first.mac <= 1 + 1e-12
