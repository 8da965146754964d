"""What passes as a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cosimo.core.arrays import matrix, require_finite
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
