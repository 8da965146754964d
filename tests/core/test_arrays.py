"""What passes as a matrix, and what is computed with small ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from cosimo.core.arrays import balancing, block_diagonal, exponential, logarithm, match, matrix, require_finite
from cosimo.core.errors import ConfigurationError, DimensionError


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        (2.0, (1, 1), [[2.0]]),
        (2, (None, None), [[2.0]]),
        ([1, 2], (1, 2), [[1.0, 2.0]]),
        ([1, 2], (1, None), [[1.0, 2.0]]),
        ([1, 2], (2, 1), [[1.0], [2.0]]),
        ([[1], [2]], (2, 1), [[1.0], [2.0]]),
        (((1, 2), (3, 4)), (2, 2), [[1.0, 2.0], [3.0, 4.0]]),
        (np.ones((2, 3), dtype=int), (None, 3), np.ones((2, 3))),
    ],
)
def test_scalars_and_rows_are_promoted(value: Any, shape: Any, expected: Any) -> None:
    result = matrix("X", value, shape)
    assert result.dtype == np.float64
    assert result.tolist() == np.asarray(expected, dtype=float).tolist()


@pytest.mark.parametrize(
    ("value", "shape", "expected"),
    [
        ([], (2, None), (2, 0)),
        ([], (None, 2), (0, 2)),
        ([], (0, 1), (0, 1)),
        ([], (None, None), (0, 0)),
        (np.zeros((0, 3)), (None, 3), (0, 3)),
        (np.zeros((2, 0)), (None, 0), (2, 0)),
        (np.zeros((1, 0)), (None, None), (1, 0)),
    ],
)
def test_empty_matrices_keep_their_shape(value: Any, shape: Any, expected: tuple[int, int]) -> None:
    assert matrix("X", value, shape).shape == expected


@pytest.mark.parametrize(
    ("value", "shape", "message"),
    [
        ([1, 2, 3], (2, 1), "matrix X is 1 × 3; expected 2 × 1"),
        ([1, 2], (2, None), "matrix X is 1 × 2; expected 2 × any"),
        (np.ones((2, 2)), (2, 3), "matrix X is 2 × 2; expected 2 × 3"),
        (np.ones((1, 1, 1)), (1, 1), "matrix X is 1 × 1 × 1; expected 1 × 1"),
        # Nothing given where something is needed is not taken for zeros.
        ([], (2, 2), "expected 2 × 2"),
        (np.zeros((2, 0)), (2, 2), "matrix X is 2 × 0; expected 2 × 2"),
    ],
)
def test_shapes_that_do_not_fit(value: Any, shape: Any, message: str) -> None:
    with pytest.raises(DimensionError, match=message):
        matrix("X", value, shape)


@pytest.mark.parametrize("value", ["abc", [[1, 2], [3]], None, [object()], 1j])
def test_what_is_not_numeric(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="X"):
        matrix("X", value, (None, None))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_numbers_are_located(bad: float) -> None:
    value = np.zeros((2, 3))
    value[1, 2] = bad
    with pytest.raises(ConfigurationError, match=r"X holds a non-finite number at index \(1, 2\)"):
        matrix("X", value, (2, 3))
    with pytest.raises(ConfigurationError, match=r"index \(1,\)"):
        require_finite("X", np.array([0.0, bad]))


# ---- what SciPy has as well ------------------------------------------------------------------------------------------

SIZES, SCALES = (1, 2, 5, 16), (1e-8, 0.1, 1.0, 30.0, 1e3)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("scale", SCALES)
def test_exponentials_are_those_of_scipy(n: int, scale: float) -> None:
    random = np.random.default_rng(n).standard_normal((3, 4, n, n))
    matrices = scale * (random - (2 * n**0.5 + 2) * np.eye(n))
    np.testing.assert_allclose(exponential(matrices), scipy.linalg.expm(matrices), rtol=0, atol=1e-14)


def test_exponentials_of_one_stack_do_not_depend_on_each_other() -> None:
    slow, fast = np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[-400.0, 3.0], [0.0, -1.0]])
    both = exponential(np.array([slow, fast]))
    np.testing.assert_array_equal(both[0], exponential(slow))
    np.testing.assert_allclose(both[0], [[np.cos(1), np.sin(1)], [-np.sin(1), np.cos(1)]], rtol=0, atol=1e-15)
    np.testing.assert_allclose(both[1], scipy.linalg.expm(fast), rtol=0, atol=1e-15)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_what_integrates_does_so_exactly(size: float) -> None:
    chain = np.array([[0.0, size, 0.0], [0.0, 0.0, size], [0.0, 0.0, 0.0]])
    found = exponential(chain)
    assert np.diag(found).tolist() == [1.0, 1.0, 1.0]
    np.testing.assert_allclose(found[0], [1.0, size, size**2 / 2], rtol=1e-15)


def test_stiff_matrices_lose_no_accuracy_by_scaling() -> None:
    """Entries of 10⁶ whose powers are small: scaled by its own size alone, ten digits would be gone."""
    matrix = np.array([[1.0, 1e6], [0.0, -1.0]])
    np.testing.assert_allclose(exponential(matrix), scipy.linalg.expm(matrix), rtol=1e-14)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.5])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_logarithms_are_those_of_scipy(n: int, scale: float) -> None:
    generators = np.random.default_rng(n).normal(size=(20, n, n)) * scale
    for generator in generators:
        found = logarithm(scipy.linalg.expm(generator))
        assert found is not None
        np.testing.assert_allclose(found, generator, rtol=0, atol=1e-13)
        np.testing.assert_allclose(found, scipy.linalg.logm(scipy.linalg.expm(generator)), rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "matrix", [np.diag([1e-30, 1.0]), np.diag([0.0, 1.0]), np.diag([-1.0, 1.0]), np.array([[np.nan]])]
)
def test_no_logarithm_where_rounding_spoils_it(matrix: Any) -> None:
    assert logarithm(matrix) is None


def test_the_logarithm_of_nearly_half_a_turn_is_the_near_one() -> None:
    generator = np.array([[0.0, 3.0], [-3.0, 0.0]])
    np.testing.assert_allclose(logarithm(exponential(generator)), generator, atol=1e-12)


def test_no_exponential_of_nothing() -> None:
    assert exponential(np.zeros((0, 0))).shape == (0, 0)
    assert exponential(np.zeros((0, 2, 2))).shape == (0, 2, 2)


def test_blocks_without_rows_or_columns_keep_their_place() -> None:
    blocks = [np.ones((2, 1)), np.zeros((0, 3)), 2 * np.ones((1, 0)), 3 * np.ones((1, 2))]
    np.testing.assert_array_equal(block_diagonal(blocks), scipy.linalg.block_diag(*blocks))


def test_balanced_matrices_have_rows_and_columns_of_one_size() -> None:
    even = np.random.default_rng(7).standard_normal((2, 5, 5))
    units = np.array([[1.0, 1e3, 1e-4, 7.0, 1e6], [1e-5, 1.0, 1e5, 1.0, 2.0]])
    uneven = even * units[:, :, None] / units[:, None, :]
    scale = balancing(uneven)
    balanced = np.abs(uneven / scale[:, :, None] * scale[:, None, :])
    ratio = balanced.sum(axis=2) / balanced.sum(axis=1)
    assert ratio.min() > 0.5
    assert ratio.max() < 2


def test_what_is_not_fed_keeps_its_units() -> None:
    np.testing.assert_array_equal(balancing(np.array([[[1.0, 0.0], [5.0, 1.0]]])), [[1.0, 1.0]])


@pytest.mark.parametrize("x", [-0.5, -5.0, -27.4, -79.7, -300.0, -700.0, 40.0])
def test_what_decays_fast_keeps_its_digits(x: float) -> None:
    """The logarithm of e^M is the pole of a mode: e^-80 must not become 0."""
    assert exponential(np.array([[x]]))[0, 0] == pytest.approx(np.exp(x), rel=1e-12)


@pytest.mark.parametrize("h", [1e-3, 0.1, 1.0, 3.0, 4.0])
def test_an_integrator_is_exact(h: float) -> None:
    assert exponential(np.array([[0.0, h], [0.0, 0.0]])).tolist() == [[1.0, h], [0.0, 1.0]]


@pytest.mark.parametrize("cost", [[[np.nan, 1.0], [1.0, 0.0]], [[0.0, np.nan], [1.0, 0.0]]])
def test_nothing_is_paired_by_a_cost_that_is_not_a_number(cost: list[list[float]]) -> None:
    with pytest.raises(ValueError, match=r"invalid|numeric"):
        match(np.array(cost))
