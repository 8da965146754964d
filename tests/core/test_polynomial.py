"""Polynomial helpers, against numpy's own polynomials and exact fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.polynomial import Polynomial

from cosimo.core.arrays import external_fit, interpolation_matrix, shift_matrix, value_row

POINTS = np.linspace(-2.0, 2.0, 7)


@pytest.mark.parametrize("degree", [0, 1, 2, 3])
@pytest.mark.parametrize("offset", [0.0, 1.0, -0.7, Fraction(1, 3)])
def test_shift_moves_the_origin(degree: int, offset: float | Fraction) -> None:
    c = np.random.default_rng(degree).normal(size=degree + 1)
    shifted = Polynomial(shift_matrix(degree, offset) @ c)
    assert shifted(POINTS) == pytest.approx(Polynomial(c)(POINTS + float(offset)), abs=1e-13)


def test_shifts_add_up() -> None:
    assert shift_matrix(2, 0.3) @ shift_matrix(2, 0.4) == pytest.approx(shift_matrix(2, 0.7), abs=1e-15)


def test_keep_cuts_high_powers_off_after_the_shift() -> None:
    whole = shift_matrix(2, 0.5)
    assert np.array_equal(shift_matrix(2, 0.5, keep=0), whole[:1])
    assert np.array_equal(shift_matrix(2, 0.5, keep=1), whole[:2])
    # A unit that takes more than there is gets what there is.
    assert np.array_equal(shift_matrix(1, 0.5, keep=2), shift_matrix(1, 0.5))


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_value_row_evaluates(degree: int) -> None:
    c = np.arange(1.0, degree + 2)
    assert value_row(degree, Fraction(1, 4)) @ c == pytest.approx(Polynomial(c)(0.25), abs=1e-15)
    assert np.array_equal(value_row(degree, 0), np.eye(degree + 1)[0])


@pytest.mark.parametrize("points", [[0], [0, -1], [1, 0, -1], [0, Fraction(-1, 3), Fraction(-5, 7)], [0.1, 0.25, -2.0]])
def test_interpolation_inverts_the_vandermonde_matrix(points: list[float | Fraction]) -> None:
    vandermonde = np.vander([float(p) for p in points], increasing=True)
    assert vandermonde @ interpolation_matrix(points) == pytest.approx(np.eye(len(points)), abs=1e-13)


def test_commensurable_points_give_exact_coefficients() -> None:
    # u(σ) through (0, s0), (−1, s1), (−2, s2), by hand.
    by_hand = np.array([[1, 0, 0], [1.5, -2, 0.5], [0.5, -1, 0.5]])
    assert np.array_equal(interpolation_matrix([0, -1, -2]), by_hand)


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_external_fit_reproduces_polynomials_over_the_span(degree: int) -> None:
    span = Fraction(1, 3)
    points, fit = external_fit(degree, span)
    assert points[0] == 0
    assert degree == 0 or points[-1] == span
    c = np.random.default_rng(1).normal(size=degree + 1)
    assert fit @ Polynomial(c)(np.array(points, dtype=float)) == pytest.approx(c, abs=1e-12)
