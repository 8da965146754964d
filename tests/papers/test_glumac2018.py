"""glumac2018: the numbers that hold, with the readings under which they hold."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.algebra import Batch, LinearSystem
from cosimo.analysis import Spectrum, consistency
from cosimo.papers.glumac2018 import figure_6, first_crossing, paper_masters, pareto_front
from cosimo.problems.masses import two_mass_glumac

GRID = np.logspace(-5, 5, 100)
POINTS = {"Control21": 9.11, "Control12": 8.9}


@pytest.fixture(scope="module")
def points() -> dict[str, LinearSystem]:
    system = two_mass_glumac()
    return {name: LinearSystem(system, paper_masters(system, h)[name]) for name, h in POINTS.items()}


@pytest.mark.parametrize(("name", "rho"), [("Control21", 0.45038240), ("Control12", 0.41253314)])
def test_spectral_radius_equations_70_71(points: dict[str, LinearSystem], name: str, rho: float) -> None:
    assert Spectrum(points[name]).radius == pytest.approx(rho, abs=1e-8)


@pytest.mark.parametrize(("name", "delta"), [("Control21", 0.78253255), ("Control12", 1.07589279)])
def test_consistency_is_the_2_norm_at_k_2(points: dict[str, LinearSystem], name: str, delta: float) -> None:
    assert consistency(points[name], k=2, norm=2) == pytest.approx(delta, abs=1e-8)


@pytest.mark.parametrize(("name", "delta"), [("Control21", 3.94516000), ("Control12", 1.99880458)])
def test_consistency_in_the_stated_norm(points: dict[str, LinearSystem], name: str, delta: float) -> None:
    assert consistency(points[name], k=1, norm=1) == pytest.approx(delta, abs=1e-8)


def test_consistency_after_one_step_is_independent_of_alpha() -> None:
    system = two_mass_glumac()
    batch = Batch(system, paper_masters(system, 9.11)["Control21"], 9.11, {"two.F": np.linspace(0, 0.95, 20)})
    assert np.ptp(batch.consistency(k=1, norm=1)) < 1e-12


@pytest.mark.parametrize(
    ("parameter", "index"),
    [
        ("ck", {"Seidel12": 49, "Seidel21": 49, "Control12": 55, "Control21": 55}),
        pytest.param("dk", {"Seidel12": 53, "Seidel21": 53, "Control12": 99, "Control21": 99}, marks=pytest.mark.slow),
    ],
)
def test_stability_intervals_63_64(parameter: str, index: dict[str, int]) -> None:
    assert {name: first_crossing(name, parameter) for name in index} == {n: float(GRID[i]) for n, i in index.items()}


def test_seidel_masters_have_equal_radii() -> None:
    system = two_mass_glumac()
    for h in np.geomspace(1e-3, 10, 25):
        four = paper_masters(system, float(h))
        first, second = (Spectrum(LinearSystem(system, four[name])).radius for name in ("Seidel12", "Seidel21"))
        assert first == pytest.approx(second, abs=1e-12)


def test_figure_6() -> None:
    alpha, _, rho, delta = figure_6()
    assert np.unravel_index(rho.argmin(), rho.shape) == (54, 98)
    inside = alpha < 1
    front = pareto_front(np.column_stack([rho[inside].ravel(), delta[inside].ravel()]))
    assert front.sum() == 70


def test_seidel_is_control_without_gain() -> None:
    system = two_mass_glumac()
    zero = paper_masters(system, 3.0, control21={"two.F": 0.0})
    control, seidel = (LinearSystem(system, zero[name]) for name in ("Control21", "Seidel21"))
    np.testing.assert_array_equal(control.one_step.Phi, seidel.one_step.Phi)
