"""The quarter truck beside its textbook polynomial, its place of rest, and its answer to a wavy road."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cosimo.algebra import coupled_model
from cosimo.core.errors import ConfigurationError
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, jacobi
from cosimo.problems import find, quarter_truck

MS, MU, KS, CS, KT = 400.0, 40.0, 18_000.0, 1_200.0, 180_000.0
POLYNOMIAL = [MS * MU, CS * (MS + MU), KS * (MS + MU) + MS * KT, CS * KT, KS * KT]


def test_poles_are_the_roots_of_the_textbook_polynomial() -> None:
    system = quarter_truck()
    A = coupled_model(system, {name: unit.linear() for name, unit in system.units.items()}).A  # type: ignore[misc]
    assert np.sort_complex(np.linalg.eigvals(A)) == pytest.approx(np.sort_complex(np.roots(POLYNOMIAL)), rel=1e-9)


def test_it_comes_to_rest_on_the_step_of_the_road() -> None:
    system = quarter_truck(road=0.05)
    end = run(system, gauss_seidel(system, 2e-3), stop=20.0).values[-1]
    rest = dict(zip(system.outputs, end, strict=True))
    assert rest["chassis.position"] == pytest.approx(0.05, rel=1e-9)
    assert rest["wheel.position"] == pytest.approx(0.05, rel=1e-9)
    assert rest["chassis.force"] == pytest.approx(0.0, abs=1e-6)


def test_a_wavy_road_moves_the_body_as_its_transfer_function_says() -> None:
    omega, height = 8.0, 0.02
    system = quarter_truck(profile=lambda t: height * math.sin(omega * t))
    result = run(system, gauss_seidel(system, 1e-4), stop=12.0)
    s = 1j * omega
    gain = abs(KT * (CS * s + KS) / np.polyval(POLYNOMIAL, s))
    late = result["chassis.position"][result.time > 10.0]
    assert np.abs(late).max() == pytest.approx(gain * height, rel=2e-3)


def test_jacobi_at_50_ms_is_of_no_use() -> None:
    system = find("quarter-truck").system()
    positions = run(system, jacobi(system, 0.05), stop=3.0)["chassis.position"]
    assert np.abs(positions).max() > 1.0  # the road is 0.1 m high


def test_parameters_without_meaning_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="mu of problem 'quarter-truck' must be a positive"):
        quarter_truck(mu=0.0)
    with pytest.raises(ConfigurationError, match="road"):
        quarter_truck(road=math.nan)
