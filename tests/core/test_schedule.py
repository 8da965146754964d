"""Schedules print, compare, hash and serialise; what is not a schedule is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest

from cosimo.core.errors import ConfigurationError, ScheduleError, UnknownNameError
from cosimo.core.schedule import (
    Convergence,
    Couple,
    Operation,
    Read,
    Repeat,
    Restore,
    Save,
    Schedule,
    Step,
    flatten,
)

UNITS = ("tyre", "truck")


def schedule(*operations: Operation) -> Schedule:
    return Schedule(UNITS, operations)


def seidel(first: str = "tyre", second: str = "truck") -> Schedule:
    return schedule(*(kind(name) for name in (first, second) for kind in (Couple, Step, Read)))


EVERYTHING = schedule(
    Save("tyre"),
    Couple("tyre"),
    Step("tyre", Fraction(1, 3)),
    Restore("tyre"),
    Repeat((Couple("truck"), Repeat((Step("truck", Fraction(2, 7)), Read("truck")), 3)), Convergence(1e-6, 12, 2)),
    Step("tyre"),
)


@pytest.mark.parametrize(
    ("operations", "text"),
    [
        (seidel().operations, "F1 G1 H1 F2 G2 H2"),
        (seidel("truck", "tyre").operations, "F2 G2 H2 F1 G1 H1"),
        ((Step("tyre", Fraction(1, 2)), Step("tyre", Fraction(2, 4))), "G1(1/2) G1(1/2)"),
        ((Step("tyre", Fraction(1)),), "G1"),
        ((Repeat((Couple("tyre"), Step("tyre")), 3), Read("truck")), "(F1 G1)^3 H2"),
        ((Repeat((Read("tyre"),), Convergence()),), "(H1)^*"),
        ((Repeat((Repeat((Read("tyre"),), 2), Read("truck")), 4),), "((H1)^2 H2)^4"),
        ((), ""),
    ],
)
def test_prints_as_a_word(operations: tuple[Operation, ...], text: str) -> None:
    assert str(schedule(*operations)) == text


def test_prints_every_letter() -> None:
    assert str(EVERYTHING) == "S1 F1 G1(1/3) R1 (F2 (G2(2/7) H2)^3)^* G1"


def test_numbers_follow_the_units_not_the_operations() -> None:
    assert str(Schedule(("truck", "tyre"), seidel().operations)) == "F2 G2 H2 F1 G1 H1"


def test_equal_schedules_are_one_key() -> None:
    assert seidel() == seidel()
    assert {seidel(): 1}[seidel()] == 1
    assert hash(EVERYTHING) == hash(Schedule.from_dict(EVERYTHING.to_dict()))


@pytest.mark.parametrize(
    "other",
    [
        seidel("truck", "tyre"),
        Schedule(("truck", "tyre"), seidel().operations),
        schedule(*seidel().operations[:-1]),
        schedule(*seidel().operations[:-1], Save("truck")),
        schedule(*seidel().operations[:4], Step("truck", Fraction(1, 2)), Read("truck")),
    ],
)
def test_different_schedules_differ(other: Schedule) -> None:
    assert seidel() != other


def test_repeats_differ_by_their_ending() -> None:
    body = (Couple("tyre"),)
    endings = [2, 3, Convergence(), Convergence(tolerance=1e-6), Convergence(limit=7), Convergence(anderson=1)]
    endings += [Convergence(quasi_newton=1), Convergence(quasi_newton=1, jacobian=((0.5,),))]
    assert len({schedule(Repeat(body, times)) for times in endings}) == len(endings)


@pytest.mark.parametrize("given", [seidel(), EVERYTHING, schedule()])
def test_round_trip_through_json(given: Schedule) -> None:
    assert Schedule.from_dict(json.loads(json.dumps(given.to_dict()))) == given


def test_a_jacobian_survives_json() -> None:
    warm = schedule(Repeat((Couple("tyre"),), Convergence(quasi_newton=3, jacobian=((0.1, 1 / 3), (0.0, -2.5)))))
    assert Schedule.from_dict(json.loads(json.dumps(warm.to_dict()))) == warm


def test_fractions_survive_exactly() -> None:
    third = schedule(Step("tyre", Fraction(1, 3)))
    (step,) = Schedule.from_dict(json.loads(json.dumps(third.to_dict()))).operations
    assert isinstance(step, Step)
    assert step.fraction * 3 == 1


def test_plain_data_is_a_copy() -> None:
    given = schedule(Repeat((Couple("tyre"),), Convergence(limit=9)))
    given.to_dict()["operations"][0]["times"]["limit"] = 1
    assert given == schedule(Repeat((Couple("tyre"),), Convergence(limit=9)))


@pytest.mark.parametrize(
    "operation",
    [
        {},
        {"coupl": "tyre"},
        {"couple": "tyre", "read": "tyre"},
        {"couple": 3},
        {"couple": ["tyre"]},
        {"step": "tyre"},
        {"step": "tyre", "fraction": "half"},
        {"step": "tyre", "fraction": "1/0"},
        {"step": "tyre", "fraction": "3/2"},
        {"step": "tyre", "fraction": "0"},
        {"step": "tyre", "fraction": "-1/2"},
        {"repeat": [{"couple": "tyre"}], "times": 0},
        {"repeat": [{"couple": "tyre"}], "times": 2.5},
        {"repeat": [{"couple": "tyre"}], "times": None},
        {"repeat": [{"couple": "tyre"}], "times": {"tolerance": 1e-3, "sweeps": 4}},
        {"repeat": [], "times": 2},
        {"repeat": 5, "times": 2},
        {"repeat": ["couple"], "times": 2},
        "couple",
        7,
    ],
)
def test_wrong_operations_are_refused(operation: Any) -> None:
    with pytest.raises(ScheduleError):
        Schedule.from_dict({"units": list(UNITS), "operations": [operation]})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"units": ["tyre"]},
        {"units": ["tyre"], "operations": [], "step": 0.1},
        {"units": "tyre", "operations": []},
        {"units": ["tyre"], "operations": "F1"},
        {"units": ["tyre", "tyre"], "operations": []},
    ],
)
def test_wrong_data_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(ScheduleError):
        Schedule.from_dict(data)


def test_unknown_unit_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match=r"'truk'; did you mean 'truck'\?"):
        Schedule.from_dict({"units": list(UNITS), "operations": [{"read": "truk"}]})


def test_unknown_unit_inside_a_repeat_is_found() -> None:
    with pytest.raises(UnknownNameError, match="trailer"):
        schedule(Repeat((Repeat((Read("trailer"),), 2),), 2))


@pytest.mark.parametrize("fraction", [Fraction(0), Fraction(-1, 2), Fraction(5, 4)])
def test_a_step_is_a_part_of_the_macro_step(fraction: Fraction) -> None:
    with pytest.raises(ScheduleError, match=rf"'tyre' steps by {fraction} of the macro step; use \(0, 1\]"):
        schedule(Step("tyre", fraction))


@pytest.mark.parametrize("times", [0, -1, 2.5, "3", None])
def test_a_repeat_is_made_at_least_once(times: Any) -> None:
    with pytest.raises(ScheduleError, match="Repeat"):
        Repeat((Couple("tyre"),), times)


def test_a_repeat_has_a_body() -> None:
    with pytest.raises(ScheduleError, match="at least one operation"):
        Repeat((), 2)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": -1e-3}, "tolerance"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"limit": 0}, "limit"),
        ({"anderson": -1}, "Anderson"),
        ({"quasi_newton": -1}, "quasi-Newton"),
        ({"quasi_newton": 2, "anderson": 2}, "one of the two"),
        ({"jacobian": ((0.5,),)}, "quasi_newton=8"),
        ({"quasi_newton": 2, "jacobian": ((0.5, 0.1),)}, "square"),
        ({"quasi_newton": 2, "jacobian": ((float("nan"),),)}, "finite"),
    ],
)
def test_an_impossible_convergence_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Convergence(**options)


def test_flatten_lists_bodies_once_in_order() -> None:
    assert [type(op).__name__ for op in flatten(EVERYTHING.operations)] == [
        "Save",
        "Couple",
        "Step",
        "Restore",
        "Couple",
        "Step",
        "Read",
        "Step",
    ]
