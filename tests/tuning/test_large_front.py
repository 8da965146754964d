"""Tuning of systems of many units: few candidates, each as exact as the dense way finds it."""

from __future__ import annotations

import pytest

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.model import Model
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.errors import ConfigurationError
from cosimo.problems import chain, two_mass
from cosimo.tuning.goals import find_goals
from cosimo.tuning.space import Space
from cosimo.tuning.tuner import too_many, tune

GOALS = find_goals(None)


def test_the_front_of_many_units_is_that_of_their_maps() -> None:
    system = chain(n=12)
    found = tune(system)
    assert "the usual masters are tried" in found.notes[-1]
    assert "robustness" in found.notes[-1]
    model = Model(system)
    errors = [point.error for point in found.front]
    assert errors == sorted(errors)
    costs = [point.cost for point in found.front]
    assert costs == sorted(costs, reverse=True)
    for point in found.front:
        assert point.stable is Spectrum(LinearSystem(system, point.master)).stable is True
        assert point.error == pytest.approx(model.predict(point.master).worst, rel=1e-9)
    assert found.chosen.error <= 0.01
    assert found.recommendation.point is found.chosen


@pytest.mark.parametrize("n", [40, pytest.param(100, marks=pytest.mark.slow)])
def test_many_units_are_tuned_with_few_candidates(n: int) -> None:
    """Full maps of candidates took 11.7 GB on 20 units already."""
    found = tune(chain(n=n), Space(families=("jacobi",)))
    assert found.evaluations < 40
    assert {point.master.name for point in found.front} == {"jacobi"}
    assert found.chosen.error <= 0.01
    assert found.chosen.stable


def test_what_is_unstable_is_not_on_the_front() -> None:
    """Jacobi is unstable at 0.1 s, where its error is the smallest of the two, and stable at 0.5 s."""
    system = chain(n=20)
    both = tune(system, Space(steps=(0.1, 0.5), families=("jacobi",), kinds=(0,)))
    assert [(point.step, point.stable) for point in both.front] == [(0.5, True)]
    none = tune(system, Space(steps=0.1, families=("jacobi",), kinds=(0,)))
    assert [point.stable for point in none.front] == [False]
    assert "No stable master was found" in none.notes[-1]


def test_the_number_of_evaluations_and_the_cost_are_kept_to() -> None:
    system = chain(n=12)
    assert tune(system, evaluations=3).evaluations == 3
    assert all(point.cost <= 200 for point in tune(system, Space(max_cost=200.0)).front)
    with pytest.raises(ConfigurationError, match="no master in the space costs less than"):
        tune(system, Space(max_cost=1e-9))


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (Space(kinds=("nepce",)), None),
        (Space(mixed=True), None),
        (Space(order=[f"u{i}" for i in range(1, 13)]), None),
        (Space(), ("error", "radius")),
    ],
)
def test_a_space_that_asks_for_more_is_searched_as_before(space: Space, names: tuple[str, ...] | None) -> None:
    model = Model(chain(n=12))
    assert too_many(model, Space(), GOALS)
    assert not too_many(model, space, find_goals(names))
    assert not too_many(Model(two_mass()), Space(), GOALS)
