"""What counts as stable: the tolerance, and modes at rest, on matrices whose eigenvalues are known by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosimo.analysis.stability import Rest, find_rest, grows, is_stable, moving_radius
from cosimo.core.arrays import Array


@pytest.mark.parametrize(
    ("radius", "known", "identified"),
    [
        (0.0, True, True),
        (1.0, True, True),
        (1 + 0.9e-10, True, True),
        (1 + 1.5e-10, False, True),
        (1 + 0.95e-7, False, True),
        (1 + 1.5e-7, False, False),
        (1.001, False, False),
        (math.inf, False, False),
        (math.nan, False, False),
    ],
)
def test_the_tolerance(radius: float, known: bool, identified: bool) -> None:
    assert bool(is_stable(radius)) is known
    assert bool(is_stable(radius, identified=True)) is identified


def test_arrays_are_judged_one_by_one() -> None:
    assert is_stable(np.array([0.5, 1.0, 1.1])).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("poles", "slack", "answer"),
    [
        ([-1.0, -2.0], 0.0, False),
        ([0.0, -2.0], 0.0, False),
        ([1e-3, -2.0], 0.0, True),
        ([0.9e-8, -1.0], 0.0, False),  # rounding is a share of the largest |λ|
        ([1.5e-8, -1.0], 0.0, True),
        ([1.5e-8, 3j], 0.0, False),
        ([0.5, -1.0], 0.4, True),
        ([0.5, -1.0], 0.6, False),
        ([], 0.0, False),
    ],
)
def test_growth_of_the_system_itself(poles: list[complex], slack: float, answer: bool) -> None:
    assert grows(np.array(poles, dtype=complex), slack=slack) is answer


def free_masses(count: int) -> Array:
    """ẍ = −L x − 0.1 L ẋ with springs and dampers between neighbours, and none to ground."""
    L = 2.0 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    L[0, 0] = L[-1, -1] = 1.0
    return np.block([[np.zeros((count, count)), np.eye(count)], [-L, -0.1 * L]])


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_motion_of_constant_velocity_does_not_grow(count: int, seed: int) -> None:
    """However rounding drives its double pole 0 apart, in any order of the states; what pushes a mass does."""
    order = np.random.default_rng(seed).permutation(2 * count)
    A = free_masses(count)[np.ix_(order, order)]
    poles = np.linalg.eigvals(A).astype(complex)
    assert find_rest(A).count == 2
    assert not grows(poles, rest=2)
    assert grows(np.append(poles, 1e-3), rest=2)
    assert grows(np.array([-1.0, 0.0, 1e-7]), rest=1)


def test_slack_and_rounding_do_not_add_up() -> None:
    assert grows(np.array([1.5e-8, -1.0 + 0j]), slack=1e-8)


@pytest.mark.parametrize(
    ("A", "count"),
    [
        (np.diag([-1.0, -2.0]), 0),
        (np.diag([0.0, -2.0]), 1),
        (np.array([[0.0, 1.0], [0.0, 0.0]]), 2),  # position and velocity: a chain
        (np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]), 3),
        (np.array([[0.0, 1.0], [-4.0, 0.0]]), 0),  # an oscillation is no rest
        (np.array([[-1.0, 1.0], [1.0, -1.0]]), 1),
        (np.zeros((2, 2)), 2),
        (np.diag([1.0, 0.9e-9]), 1),
        (np.diag([1.0, 1.5e-9]), 0),
        (np.zeros((0, 0)), 0),
    ],
)
def test_poles_at_zero_are_counted(A: Array, count: int) -> None:
    assert find_rest(A).count == count


def test_the_spread_is_the_largest_singular_value_taken_for_zero() -> None:
    assert find_rest(np.diag([1.0, 4e-10, 2e-10])).spread == pytest.approx(4e-10)
    assert find_rest(np.diag([1.0, 2.0])).spread == 0


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_units_of_measure_do_not_matter(scale: float) -> None:
    """A chain of integrators and a decaying mode that feed each other one way, each measured in units of its own."""
    A = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])
    D = np.diag([1.0, scale, scale**2])
    assert find_rest(np.linalg.inv(D) @ A @ D).count == 2
    feedback = np.array([[-1.0, 0.5], [0.5, -1.0]])
    E = np.diag([1.0, scale])
    assert find_rest(np.linalg.inv(E) @ feedback @ E).count == 0


def test_without_rest_the_radius_is_the_largest_eigenvalue() -> None:
    Phi = np.array([[0.5, 7.0], [0.0, -0.8]])
    assert moving_radius(Phi, Rest(0, 0.0), 0.1) == pytest.approx(0.8)
    assert moving_radius(np.zeros((0, 0)), Rest(0, 0.0), 0.1) == 0


def test_eigenvalues_one_are_left_out_but_no_more_than_there_are_poles_at_zero() -> None:
    Phi = np.diag([1.0, 1.0, 0.5])
    assert moving_radius(Phi, Rest(2, 0.0), 0.1) == pytest.approx(0.5)
    assert moving_radius(Phi, Rest(1, 0.0), 0.1) == pytest.approx(1.0)
    assert moving_radius(Phi, Rest(0, 0.0), 0.1) == pytest.approx(1.0)
    assert moving_radius(np.diag([1.0, 1.2]), Rest(1, 0.0), 0.1) == pytest.approx(1.2)
    assert moving_radius(np.array([[1.0, 0.1], [0.0, 1.0]]), Rest(2, 0.0), 0.1) == 0


def test_how_far_from_one_counts_as_one() -> None:
    exact = Rest(1, 0.0)
    assert moving_radius(np.diag([1 - 0.9e-12, 0.5]), exact, 0.1) == pytest.approx(0.5)
    assert moving_radius(np.diag([1 - 1.5e-12, 0.5]), exact, 0.1) == pytest.approx(1.0)
    # Where the poles at 0 are known to 1e-6 only, over a step of 0.1: ten times 1e-7.
    spread = Rest(1, 1e-6)
    assert moving_radius(np.diag([1 - 0.9e-6, 0.5]), spread, 0.1) == pytest.approx(0.5)
    assert moving_radius(np.diag([1 - 1.05e-6, 0.5]), spread, 0.1) == pytest.approx(1.0, rel=1e-5)
    # Large entries have larger rounding: here the norm is about 4.
    skew = np.array([[1 - 3e-12, 0.0, 0.0], [0.0, 0.5, 4.0], [0.0, 0.0, 0.5]])
    assert moving_radius(skew, exact, 0.1) == pytest.approx(0.5, rel=1e-6)
    skew[0, 0] = 1 - 6e-12
    assert moving_radius(skew, exact, 0.1) == pytest.approx(1.0)


@given(st.floats(-0.99, 0.99), st.floats(-3, 3), st.integers(1, 3), st.floats(0.01, 100))
def test_a_chain_beside_any_mode_hides_nothing(value: float, fed: float, length: int, scale: float) -> None:
    """Φ of a chain of integrators that a mode feeds: its radius is that of the mode."""
    Phi = np.eye(length + 1) + np.eye(length + 1, k=1) * scale
    Phi[-2, -1] = fed * scale
    Phi[-1, -1] = value
    assert moving_radius(Phi, Rest(length, 0.0), 1.0) == pytest.approx(abs(value), abs=1e-7)
