"""Wrong types are named at the edge, and what users give is theirs to change afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cosimo as co
from cosimo import couplings, execution, masters, problems, units
from cosimo.core.arguments import checked, checker
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.units import NativeUnit

WRONG: list[Any] = [None, 3.5, "text", b"bytes", object(), [object()], {"a": object()}, {1: 2}, lambda: None, int, {3}]
"""Arguments that at least most parameters cannot take."""


def public_callables() -> list[Callable[..., Any]]:
    """Every public class and function but abstract ones, errors, and data that the package makes itself."""
    left_out = [co.CosimoError, co.Unit, units.Instance, units.Integrator, co.Result, co.Scenario, co.Schedule]
    left_out += [units.LinearModel, units.DiscreteModel, couplings.CouplingMatrices, couplings.Sampling]
    left_out += [co.report]  # takes things of many kinds, and names those it cannot show
    homes = (co, units, couplings, masters, execution)
    found = {name: getattr(home, name) for home in homes for name in home.__all__}
    return [one for one in found.values() if callable(one) and not inspect.isabstract(one) and one not in left_out]


def arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Sound arguments for the parameters that are needed."""
    system = problems.quarter_truck()
    sound = {
        "system": system,
        "master": masters.jacobi(system, 0.01),
        "step": 0.01,
        "stop": 0.02,
        "units": dict(system.units),
        "unit": next(iter(system.units.values())),
        "multiples": {"wheel": 2},
        "groups": [["wheel"], ["chassis"]],
    }
    needed = inspect.signature(function).parameters.values()
    return {p.name: sound.get(p.name, 1.0) for p in needed if p.default is p.empty and p.kind not in (2, 4)}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("function", public_callables(), ids=lambda f: f.__name__)
def test_wrong_types_raise_one_of_our_errors(function: Callable[..., Any], tmp_path: Path, monkeypatch: Any) -> None:
    """Every parameter of every public function, one after the other, with whatever comes to mind."""
    monkeypatch.chdir(tmp_path)
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        for wrong in WRONG if inspect.isclass(function) or function.__module__ == masters.__name__ else WRONG[4:5]:
            with suppress(CosimoError):  # anything else fails the test
                function(**{**arguments(function), name: wrong}) if parameter.kind else function(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: masters.jacobi(s, "1 ms"), "jacobi: 'step' must be a number, not '1 ms' (str)."),
        (lambda s: masters.gauss_seidel(s, 0.1, order="ab"), "'order' must be a list of strings or None, not 'ab'"),
        (lambda s: masters.gauss_seidel(s, 0.1, order=["a", 2]), "gauss_seidel: 'order'[1] must be a string, not 2"),
        (lambda s: co.System({"a": 3.0}), "System: 'units'['a'] must be a Unit, not 3.0 (float)."),
        (lambda s: co.run(s, masters.jacobi(s, 0.1)), "run: missing a required argument: 'stop'"),
        (lambda s: co.run(s, masters.jacobi(s, 0.1), stop=1.0, pace=2), "unexpected keyword argument 'pace'"),
        (lambda s: co.StateSpace(-1.0, 1.0, 1.0, micro_steps=2.5), "'micro_steps' must be a whole number, not 2.5"),
        (lambda s: co.Table("ab", [1.0]), "a table holds numbers only"),
        (lambda s: couplings.Dmd(window="all"), "Dmd: 'window' must be a whole number or 'auto', not 'all' (str)."),
    ],
)
def test_the_argument_and_what_was_expected_are_named(call: Callable[[co.System], Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        call(problems.quarter_truck())
    assert message in str(raised.value)


@given(st.one_of(st.integers(), st.floats(), st.text(), st.none(), st.booleans(), st.lists(st.text())))
def test_a_union_is_what_one_of_its_types_is(value: Any) -> None:
    inner: list[Any] = [int, str, None, Sequence[str], Literal["a", 1]]
    union = checker(int | str | Sequence[str] | Literal["a", 1] | None)
    assert (union(value) is None) == any(checker(one)(value) is None for one in inner)


def test_numpy_numbers_are_numbers() -> None:
    assert checker(float)(np.float32(1.0)) is None
    assert checker(float)(np.int64(1)) is None
    assert checker(int)(np.int64(1)) is None
    assert checker(int)(np.float64(1.0)) is not None
    assert checker(bool)(np.True_) is None
    assert checker(bool)(1) is not None


def test_anything_is_anything() -> None:
    assert checker(Mapping[str, Any])({"a": object(), "b": None}) is None
    assert checker(Mapping[str, Any])({1: 2}) == ": the key must be a string, not 1 (int)"


def test_names_that_only_type_checkers_know_are_not_checked() -> None:
    @checked
    def take(value: Unheard) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return value

    assert take(3) == 3


def test_what_users_give_is_copied_and_read_only() -> None:
    """Systems made in a loop from one array that changes do not share it."""
    A, x, times, values = np.array([[-1.0]]), np.array([2.0]), np.array([0.0, 1.0]), np.array([3.0, 4.0])
    unit, table = co.StateSpace(A, 1.0, 1.0, initial=x), co.Table(times, values)
    mechanical = co.Mechanical(A, A, A, B=A, displacement=A, initial=np.array([1.0, 2.0]))
    native = NativeUnit(1, inputs=["u"], outputs=["y"], initial=x)
    for array in (A, x, times, values):
        array[...] = 99.0
    assert unit.linear().A.item() == -1.0
    assert unit.initial_state.item() == 2.0
    assert native.initial.item() == 2.0
    assert mechanical.M.item() == -1.0
    assert table(0.0) == 3.0
    for kept in (unit.linear().A, unit.initial_state, mechanical.M, mechanical.K, table.times, table.values):
        with pytest.raises(ValueError, match="read-only"):
            kept[...] = 0.0


def test_results_are_read_only() -> None:
    system = problems.quarter_truck()
    result = co.run(system, masters.jacobi(system, 0.01), stop=0.1)
    with pytest.raises(ValueError, match="read-only"):
        result.values[0, 0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        result.time[0] = 1.0


def test_entries_that_may_be_anything_are_not_asked() -> None:
    assert checker(Mapping[str, Any])({"a": object()}) is None
