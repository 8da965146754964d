"""External inputs: constants and tables."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Constant, Table, as_source

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


JUMPS = {
    "inside": ([0.0, 1.0, 1.0, 3.0], [0.0, 2.0, 10.0, 0.0]),
    "at the begin": ([1.0, 1.0, 3.0], [2.0, 10.0, 0.0]),
    "at the end": ([0.0, 1.0, 1.0], [0.0, 2.0, 10.0]),
    "alone": ([1.0, 1.0], [2.0, 10.0]),
    "among many": ([0.0, 0.2, 0.4, 0.6, 1.0, 1.0, 1.5, 2.0, 2.5], [0.0, 0.4, 0.8, 1.2, 2.0, 10.0, 7.5, 5.0, 2.5]),
    "one after the other": ([0.0, 0.5, 0.5, 1.0, 1.0, 3.0], [9.0, 9.0, 1.0, 2.0, 10.0, 0.0]),
}


@pytest.mark.parametrize("name", JUMPS)
def test_two_rows_of_one_time_are_a_jump(name: str) -> None:
    table, before = Table(*JUMPS[name]), float(np.nextafter(1.0, 0.0))
    assert table(before) == pytest.approx(2.0, abs=1e-14)
    assert table(1.0) == 10.0
    after = {"at the end": 10.0, "alone": 10.0}.get(name, 7.5)
    assert table(1.5) == after
    held = Table(*JUMPS[name], interpolation="hold")
    rows = dict(zip(*JUMPS[name], strict=True))  # the last row of each time
    last_before = [value for time, value in rows.items() if time < 1.0] or [2.0]
    assert (held(before), held(1.0)) == (last_before[-1], 10.0)


def test_where_a_table_jumps() -> None:
    times, values = JUMPS["one after the other"]
    assert Table(times, values).jumps.tolist() == [0.5, 1.0]
    assert Table(TIMES, VALUES).jumps.tolist() == []
    assert Table(TIMES, VALUES, interpolation="hold").jumps.tolist() == [1.0, 3.0]


def test_a_table_of_one_row() -> None:
    assert Table([2.0], [7.0])(0.0) == 7.0


@pytest.mark.parametrize(
    ("times", "values", "message"),
    [
        ([0, 1], [1, 2, 3], r"as many times as values.*\(2,\) and \(3,\)"),
        ([], [], "at least one"),
        ([[0, 1]], [[1, 2]], "as many times as values"),
        ([1, 0], [1, 2], "must not decrease; sort the rows by time"),
        ([0, 2, 2, 2, 3], [1, 2, 3, 4, 5], "more than two rows at time 2; keep only the values before and"),
        ([0, math.nan], [1, 2], "the times of a table holds a non-finite number"),
        ([0, 1], [1, math.inf], "the values of a table holds a non-finite number"),
    ],
)
def test_wrong_tables(times: Any, values: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Table(times, values)


def test_unknown_interpolation() -> None:
    with pytest.raises(ConfigurationError, match="'interpolation' must be 'linear' or 'hold', not 'cubic'"):
        Table([0], [0], interpolation="cubic")  # type: ignore[arg-type]


def test_numbers_become_constants_and_functions_stay() -> None:
    table = Table(TIMES, VALUES)
    assert as_source("a.u", 3)(1.0) == 3.0
    assert as_source("a.u", table) is table
    assert as_source("a.u", math.sin) is math.sin


def test_what_is_neither_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"external input a\.u is 'abc'"):
        as_source("a.u", "abc")  # type: ignore[arg-type]
