"""The tank about its operating point: characteristic polynomial, set point, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cosimo.algebra import coupled_model
from cosimo.core.errors import ConfigurationError
from cosimo.execution.running import run
from cosimo.masters import jacobi
from cosimo.problems import tank


def test_poles_are_the_roots_of_the_closed_loop() -> None:
    # a s² + (k + kp) s + ki
    system = tank(level=2.0)
    A = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()}).A  # type: ignore[misc]
    polynomial = [0.5, 0.02 / (2 * math.sqrt(2.0)) + 0.05, 0.002]
    assert np.sort_complex(np.linalg.eigvals(A)) == pytest.approx(np.sort_complex(np.roots(polynomial)), rel=1e-9)


def test_it_reaches_its_set_point() -> None:
    system = tank(reference=-0.2)
    end = run(system, jacobi(system, 0.5), stop=1000.0)
    assert end["tank.level"][-1] == pytest.approx(-0.2, rel=1e-9)
    assert end["controller.inflow"][-1] == pytest.approx(-0.2 * 0.02 / (2 * math.sqrt(1.5)), rel=1e-9)


def test_parameters_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="level of problem 'tank'"):
        tank(level=0.0)
