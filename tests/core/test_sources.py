"""External inputs: constants and tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo.core.errors import ConfigurationError
from cosimo.core.sources import Constant, Table, as_source

TIMES, VALUES = [0.0, 1.0, 3.0], [10.0, 20.0, 0.0]


def test_a_constant_is_constant() -> None:
    assert [Constant(2.5)(t) for t in (-1.0, 0.0, 1e9)] == [2.5, 2.5, 2.5]


@pytest.mark.parametrize(("time", "value"), [(0.0, 10.0), (0.25, 12.5), (1.0, 20.0), (2.0, 10.0), (3.0, 0.0)])
def test_linear_table(time: float, value: float) -> None:
    assert Table(TIMES, VALUES)(time) == value


@pytest.mark.parametrize(
    ("time", "value"),
    [(0.0, 10.0), (0.999, 10.0), (1.0, 20.0), (np.nextafter(1.0, 0.0), 10.0), (2.999, 20.0), (3.0, 0.0)],
)
def test_held_table_jumps_at_the_stamp(time: float, value: float) -> None:
    assert Table(TIMES, VALUES, interpolation="hold")(time) == value


@pytest.mark.parametrize("interpolation", ["linear", "hold"])
def test_outside_the_table_the_ends_are_held(interpolation: Any) -> None:
    table = Table(TIMES, VALUES, interpolation=interpolation)
    assert (table(-5.0), table(99.0)) == (10.0, 0.0)


def test_a_table_of_one_row() -> None:
    assert Table([2.0], [7.0])(0.0) == 7.0


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ([0, 1], [1, 2, 3], r"as many times as values.*\(2,\) and \(3,\)"),
        ([], [], "at least one"),
        ([[0, 1]], [[1, 2]], "as many times as values"),
        ([0, 0], [1, 2], "increase strictly; sort them"),
        ([1, 0], [1, 2], "increase strictly"),
        ([0, math.nan], [1, 2], "the times of a table holds a non-finite number"),
        ([0, 1], [1, math.inf], "the values of a table holds a non-finite number"),
    ],
)
def test_wrong_tables(times: Any, values: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Table(times, values)


def test_unknown_interpolation() -> None:
    with pytest.raises(ConfigurationError, match="unknown interpolation of a table 'cubic'"):
        Table([0], [0], interpolation="cubic")  # type: ignore[arg-type]


def test_numbers_become_constants_and_functions_stay() -> None:
    table = Table(TIMES, VALUES)
    assert as_source("a.u", 3)(1.0) == 3.0
    assert as_source("a.u", table) is table
    assert as_source("a.u", math.sin) is math.sin


def test_what_is_neither_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"external input a\.u is 'abc'"):
        as_source("a.u", "abc")  # type: ignore[arg-type]
