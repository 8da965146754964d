"""The figures of glumac2018: what they show is what was computed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.papers import PAPERS
from cosimo.papers import glumac2018_figures as drawn
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems.masses import two_mass_glumac
from cosimo.reporting.pictures import look
from cosimo.tuning import orientations


def test_curves_are_the_radii_of_the_masters() -> None:
    with look():
        figure = drawn.over_coupling(11)
    stiffness, damping = figure.axes
    for axes, parameter in ((stiffness, "ck"), (damping, "dk")):
        lines = {line.get_label(): line for line in axes.get_lines()}
        for name in drawn.MASTERS:
            value, rho = float(lines[name].get_xdata()[6]), lines[name].get_ydata()[6]
            system = two_mass_glumac(**{parameter: value})
            assert rho == pytest.approx(
                Spectrum(LinearSystem(system, paper_masters(system, 9.0)[name])).radius, rel=1e-9
            )


def test_over_the_step_the_exact_system_is_shown() -> None:
    with look():
        figure = drawn.over_step(5)
    line = next(line for line in figure.axes[0].get_lines() if line.get_label() == "exact system")
    flow = LinearSystem(two_mass_glumac(), masters.jacobi(two_mass_glumac(), 1.0)).coupled.flow(line.get_xdata()[2])
    assert line.get_ydata()[2] == pytest.approx(np.abs(np.linalg.eigvals(flow)).max())


def test_fronts_of_grid_and_search_are_drawn() -> None:
    with look():
        one, two = drawn.front_control21(300), drawn.front_control12(300)
    for axes in (one.axes[1], two.axes[0]):
        searched, grid = axes.get_lines()
        assert len(searched.get_xdata()) > 20
        assert len(grid.get_xdata()) > 20
    assert len(one.axes[0].get_lines()[0].get_xdata()) == 70  # the front that was counted independently


@pytest.mark.slow
def test_over_calling_orders_only_the_global_error_predicts() -> None:
    network = drawn.ring()
    tried = [masters.gauss_seidel(network, drawn.RING_STEP, order=order) for order in orientations(network)]
    measured, columns = drawn.study(network, tried)
    delta, rho, error = (abs(float(spearmanr(values, measured).statistic)) for values in columns.values())
    assert error > 0.7
    assert delta < 0.3
    assert rho < 0.5


def test_they_are_drawn_by_reproduce() -> None:
    assert f"cosimo.papers.{PAPERS['glumac2018']}" == drawn.pictures.__module__
