"""Frequencies, dampings, shifts and pairing of modes, on poles that are known by hand."""

from __future__ import annotations

import cmath
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis.spectrum import Mode, Spectrum, converges, sweep_factor
from cosimo.core.arrays import match
from cosimo.core.schedule import Convergence
from cosimo.core.system import Connection, System
from cosimo.problems import two_mass
from cosimo.units import Exact, StateSpace


def lags(gain: float = -1.0, through: float = 0.0) -> System:
    """ẋ = −x + z, ż = −2 z + gain x; with `through` both outputs have feedthrough."""
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, through, initial=1.0, integrator=Exact()),
        "b": StateSpace(-2.0, 1.0, 1.0, through, integrator=Exact()),
    }
    return System(units, [Connection("b.y1", "a.u1"), Connection("a.y1", "b.u1", gain=gain)])


def stub(A: Any, Phi: Any, step: float = 0.1) -> Spectrum:
    """The spectrum of given matrices, states carried as they are."""
    n = len(Phi)
    layout = SimpleNamespace(width=lambda _: n, blocks=("x",), indices=lambda _: np.arange(len(A)))
    linear = SimpleNamespace(
        master=SimpleNamespace(step=step),
        cycle=SimpleNamespace(matrix=np.array(Phi, dtype=float), blocks=("x",), rest=()),
        coupled=SimpleNamespace(A=np.array(A, dtype=float)),
        layout=layout,
        apply=lambda _, rows: rows,
        join=lambda rows: rows["x"],
    )
    return Spectrum(linear)  # type: ignore[arg-type]


def rotation(pole: complex, step: float) -> np.ndarray:
    """The real 2 × 2 map with the eigenvalues exp(λ h) and its conjugate."""
    mu = cmath.exp(pole * step)
    return np.array([[mu.real, mu.imag], [-mu.imag, mu.real]])


# ---- one mode --------------------------------------------------------------------------------------------------------


def test_a_mode_in_figures() -> None:
    """λ = −3 ± 4j: 5 rad/s, damping 0.6; co-simulated as −2.4 ± 3.2j: 4 rad/s and the same damping."""
    mode = Mode(-3 + 4j, -2.4 + 3.2j, 1.0)
    assert mode.frequency == pytest.approx(5 / (2 * math.pi))
    assert mode.damping == pytest.approx(0.6)
    assert mode.frequency_shift == pytest.approx(-0.2)
    assert mode.damping_shift == pytest.approx(0.0)
    grown = Mode(-3 + 4j, 3 + 4j, 1.0)
    assert grown.damping_shift == pytest.approx(-1.2)
    assert grown.frequency_shift == pytest.approx(0.0)


def test_a_mode_at_rest_has_neither_frequency_nor_damping() -> None:
    mode = Mode(0j, 0.5 + 0j, None)
    assert (mode.frequency, mode.damping) == (0.0, 0.0)
    assert mode.frequency_shift == 0.5
    assert mode.damping_shift == pytest.approx(-1.0)


@given(st.floats(0.1, 100), st.floats(-1, 1), st.floats(0.5, 2))
def test_frequency_and_damping_make_up_the_pole(speed: float, ratio: float, factor: float) -> None:
    pole = complex(-ratio * speed, speed * math.sqrt(1 - ratio**2))
    mode = Mode(pole, factor * pole, None)
    assert 2 * math.pi * mode.frequency == pytest.approx(speed)
    assert mode.damping == pytest.approx(ratio, abs=1e-9)
    assert mode.frequency_shift == pytest.approx(factor - 1, abs=1e-9)
    assert mode.damping_shift == pytest.approx(0, abs=1e-9)


# ---- the spectrum ----------------------------------------------------------------------------------------------------


def test_radii_of_one_unit() -> None:
    """A lag alone: Φ is exp(−h), as is the exact system."""
    system = System({"a": StateSpace(-2.0, 1.0, 1.0, initial=1.0, integrator=Exact())}, inputs={"a.u1": 0.0})
    found = Spectrum(LinearSystem(system, masters.jacobi(system, 0.3)))
    assert found.radius == pytest.approx(math.exp(-0.6))
    assert found.moving_radius == pytest.approx(math.exp(-0.6))
    assert found.exact_radius == pytest.approx(math.exp(-0.6))
    assert found.poles == pytest.approx([-2.0])
    assert found.stable
    assert found.exact_stable


def test_radii_of_jacobi_by_hand() -> None:
    """x' = e^−h x + (1 − e^−h) z, z' = e^−2h z − g (1 − e^−2h)/2 x: roots of a quadratic."""
    h, g = 0.4, 3.0
    system = lags(gain=-g)
    a, b, c, d = math.exp(-h), 1 - math.exp(-h), -g * (1 - math.exp(-2 * h)) / 2, math.exp(-2 * h)
    root = cmath.sqrt((a + d) ** 2 / 4 - (a * d - b * c))
    expected = max(abs((a + d) / 2 + root), abs((a + d) / 2 - root))
    found = Spectrum(LinearSystem(system, masters.jacobi(system, h)))
    assert found.radius == pytest.approx(expected, rel=1e-10)
    assert found.exact_radius == pytest.approx(math.exp(-1.5 * h))  # poles −1.5 ± 1.658j


def test_what_grows() -> None:
    itself = stub(np.diag([0.1, -1.0]), np.diag([1.01, 0.9]))
    assert not itself.exact_stable
    assert not itself.stable
    assert itself.exact_radius == pytest.approx(math.exp(0.01))
    master = stub(np.diag([-0.1, -1.0]), np.diag([1.01, 0.9]))
    assert master.exact_stable
    assert not master.stable
    resting = stub(np.diag([0.0, -1.0]), np.diag([1.0, 0.9]))
    assert resting.stable
    assert (resting.radius, resting.moving_radius, resting.rest.count) == (1.0, pytest.approx(0.9), 1)


def test_modes_of_an_exact_map_are_unchanged() -> None:
    """Poles beyond the Nyquist frequency too: of all logarithms the nearest is taken."""
    h, poles = 0.1, (-0.5 + 3j, -2 + 40j, -1 + 100j)
    A = np.zeros((6, 6))
    Phi = np.zeros((6, 6))
    for place, pole in enumerate(poles):
        two = slice(2 * place, 2 * place + 2)
        A[two, two] = [[pole.real, pole.imag], [-pole.imag, pole.real]]
        Phi[two, two] = rotation(pole, h)
    modes = stub(A, Phi, h).modes()
    assert [mode.monolithic for mode in modes] == pytest.approx(list(poles))
    for mode in modes:
        assert mode.cosimulated == pytest.approx(mode.monolithic, rel=1e-9)
        assert mode.mac == pytest.approx(1.0)


def test_modes_come_lowest_frequency_first_and_once_per_pair() -> None:
    A = np.zeros((4, 4))
    A[0, 0], A[1, 1] = -7.0, -1.0
    A[2:, 2:] = [[0.0, 3.0], [-3.0, 0.0]]
    modes = stub(A, np.eye(4) + 0.1 * A).modes()
    assert [mode.monolithic for mode in modes] == pytest.approx([-1, 3j, -7])
    assert modes[0].cosimulated == pytest.approx(math.log(0.9) / 0.1)
    assert modes[1].cosimulated == pytest.approx(cmath.log(1 + 0.3j) / 0.1)


def test_shapes_decide_between_nearly_equal_values() -> None:
    """Two states with nearly the same pole, whose values the master exchanged: the shape says which is which."""
    A, Phi = np.diag([-1.0, -1.01, -50.0]), np.diag([math.exp(-0.101), math.exp(-0.1), math.exp(-5.0)])
    slow, fast, _ = stub(A, Phi).modes()
    assert slow.cosimulated == pytest.approx(-1.01)
    assert fast.cosimulated == pytest.approx(-1.0)
    assert slow.mac == pytest.approx(1.0)


@pytest.mark.parametrize(("other", "values_win"), [(-2.5, False), (-5.0, True)])
def test_values_decide_where_they_differ(other: float, values_win: bool) -> None:
    """Shapes exchanged: values win where they differ by more than a typical mode moves in one step.

    With −1 and −2.5 per second they differ by 0.86 of that (1.75 h), with −1 and −5 by 1.3 (3 h).
    """
    h = 0.01
    A, Phi = np.diag([-1.0, other]), np.diag([math.exp(other * h), math.exp(-1.0 * h)])
    slow, fast = stub(A, Phi, h).modes()
    assert slow.cosimulated == pytest.approx(-1.0 if values_win else other)
    assert fast.cosimulated == pytest.approx(other if values_win else -1.0)
    assert slow.mac == pytest.approx(0.0 if values_win else 1.0)


def test_an_eigenvalue_zero_is_gone_at_once() -> None:
    assert stub([[-1.0]], [[0.0]]).modes()[0].cosimulated == complex(-math.inf)


def test_of_many_states_modes_are_paired_by_value() -> None:
    rates = -np.linspace(1, 5, 401)
    found = stub(np.diag(rates), np.diag(np.exp(0.1 * rates)))
    modes = found.modes()
    assert len(modes) == 401
    assert {mode.mac for mode in modes} == {None}
    assert [mode.monolithic.real for mode in modes] == pytest.approx(sorted(rates, reverse=True))
    assert all(mode.cosimulated == pytest.approx(mode.monolithic) for mode in modes)
    assert found.foreign() is None
    fewer = stub(np.diag(rates[:400]), np.diag(np.exp(0.1 * rates[:400])))
    assert fewer.modes()[0].mac == pytest.approx(1.0)


def test_a_mode_that_the_master_adds() -> None:
    """Φ carries one value more than there are states; where it is the largest, its pole is named."""
    larger = stub([[-1.0]], np.diag([math.exp(-0.1), -0.95]))
    larger.linear.layout.indices = lambda _: np.arange(1)  # type: ignore[method-assign, assignment]
    assert larger.foreign() == pytest.approx(complex(math.log(0.95), math.pi) / 0.1)
    smaller = stub([[-1.0]], np.diag([math.exp(-0.1), -0.5]))
    smaller.linear.layout.indices = lambda _: np.arange(1)  # type: ignore[method-assign, assignment]
    assert smaller.foreign() is None
    assert stub(np.zeros((0, 0)), np.zeros((0, 0))).foreign() is None


def test_shapes_are_those_of_the_states() -> None:
    """Of a real master, what is carried is more than the states; shapes are compared in these."""
    system = two_mass()
    found = Spectrum(LinearSystem(system, masters.jacobi(system, 1e-4)))
    assert [mode.mac for mode in found.modes()] == pytest.approx([1.0, 1.0], abs=1e-4)


# ---- iterations ------------------------------------------------------------------------------------------------------


def test_the_factor_per_sweep_is_the_loop_gain() -> None:
    """Both units have the feedthrough 0.5: a sweep of Jacobi multiplies the error by the root of 0.25, that of
    Gauss–Seidel by all of it, in the limit of small steps."""
    system = lags(through=0.5)
    for order, factor in ((None, 0.5), (("a", "b"), 0.25)):
        master = masters.iterative(system, 1e-7, sweeps=Convergence(), order=order)
        assert sweep_factor(LinearSystem(system, master)) == pytest.approx(factor, rel=1e-5)
    assert sweep_factor(LinearSystem(system, masters.iterative(system, 0.1, sweeps=2))) is None
    assert sweep_factor(LinearSystem(system, masters.jacobi(system, 0.1))) is None


def test_when_an_iteration_converges() -> None:
    system = lags()
    plain = masters.iterative(system, 0.1, sweeps=Convergence())
    helped = masters.iterative(system, 0.1, sweeps=Convergence(anderson=3))
    assert converges(plain, None) is None
    assert converges(plain, 0.999) is True
    assert converges(plain, 1.0) is False
    assert converges(plain, 3.0) is False
    assert converges(helped, 3.0) is True
    assert converges(masters.iterative(system, 0.1, sweeps=2), 3.0) is False


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 7), (7, 3), (0, 3), (3, 0)])
def test_pairs_have_the_smallest_sum(shape: tuple[int, int]) -> None:
    """Also where several have the same nearest one."""
    random = np.random.default_rng(sum(shape))
    for crowded in (1.0, 5.0):
        cost = random.random(shape) * np.linspace(1.0, crowded, shape[1])
        rows, columns = match(cost)
        assert cost[rows, columns].sum() == pytest.approx(cost[scipy.optimize.linear_sum_assignment(cost)].sum())
        assert len(set(columns.tolist())) == len(rows) == min(shape)
