"""The DC motor beside its characteristic polynomial and its steady state."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.algebra import coupled_model
from cosimo.core.errors import ConfigurationError
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel
from cosimo.problems import dc_motor

R, L, K, J, B, KP, KI = 0.5, 1.5e-3, 0.05, 2.5e-4, 1e-4, 0.25, 5.0


def test_poles_are_the_roots_of_the_closed_loop() -> None:
    # s ((L s + R)(J s + b) + K²) + K (kp s + ki)
    system = dc_motor()
    A = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()}).A  # type: ignore[misc]
    polynomial = [L * J, L * B + R * J, R * B + K**2 + K * KP, K * KI]
    assert np.sort_complex(np.linalg.eigvals(A)) == pytest.approx(np.sort_complex(np.roots(polynomial)), rel=1e-9)


def test_it_reaches_its_speed_and_carries_its_load() -> None:
    system = dc_motor(reference=80.0, load=0.1)
    end = run(system, gauss_seidel(system, 5e-4), stop=3.0)
    current = (0.1 + B * 80.0) / K
    assert end["motor.speed"][-1] == pytest.approx(80.0, rel=1e-9)
    assert end["motor.current"][-1] == pytest.approx(current, rel=1e-9)
    assert end["controller.voltage"][-1] == pytest.approx(R * current + K * 80.0, rel=1e-9)


def test_parameters_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="inductance of problem 'dc-motor'"):
        dc_motor(inductance=0.0)
