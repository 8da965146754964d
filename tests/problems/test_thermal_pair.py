"""The thermal pair: its steady state, how stiff it is, and which body limits the step."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.algebra import coupled_model
from cosimo.analysis import critical_step
from cosimo.core.errors import ConfigurationError
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, jacobi
from cosimo.problems import thermal_pair
from cosimo.units import Exact


def test_it_is_stiff() -> None:
    system = thermal_pair()
    A = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()}).A  # type: ignore[misc]
    slow, fast = np.sort(np.abs(np.linalg.eigvals(A)))
    assert fast / slow > 1000


def test_in_the_end_all_heat_that_comes_in_goes_out() -> None:
    system = thermal_pair(power=30.0)
    end = run(system, gauss_seidel(system, 0.2), stop=30_000.0)
    device, flow, sink = end.values[-1]
    assert flow == pytest.approx(5.0 * (device - sink), rel=1e-9)
    assert flow == pytest.approx(2.0 * sink, rel=1e-9)
    assert 0.05 * device + 2.0 * sink == pytest.approx(30.0, rel=1e-9)


@pytest.mark.parametrize(("build", "times"), [(jacobi, 1.0), (gauss_seidel, 2.0)])
def test_the_small_body_limits_the_step(build: type, times: float) -> None:
    # A body that integrates the flow of a contact: the hold delays it by one step (Jacobi: C1/G) or none (2 C1/G); the
    # losses and the finite sink move that by their share of the contact, 1 %.
    system = thermal_pair(integrator=Exact(), micro_steps=1)
    found = critical_step(system, build(system, 0.05))  # type: ignore[call-arg]
    assert found is not None
    assert found.step == pytest.approx(times * 2.0 / 5.0, rel=0.01)


def test_parameters_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="c1 of problem 'thermal-pair'"):
        thermal_pair(c1=-1.0)
