"""The oscillators: their units, and parameters without meaning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.errors import ConfigurationError
from cosimo.execution.running import run
from cosimo.formats.export import export_ssp
from cosimo.formats.scenario import load
from cosimo.problems.masses import two_mass_undamped
from cosimo.problems.oscillators import LINEAR, NONLINEAR, Oscillator, oscillator_linear, oscillator_nonlinear


def test_only_unit_one_has_feedthrough_and_only_of_the_displacement() -> None:
    for system in (oscillator_linear(), oscillator_nonlinear()):
        assert system.units["one"].feedthrough().tolist() == [[True, False], [False, False], [False, False]]
        assert not system.units["two"].feedthrough().any()


def test_the_linear_one_is_the_undamped_two_mass_system() -> None:
    ours, theirs = oscillator_linear(), two_mass_undamped()
    results = [run(s, masters.jacobi(s, 1e-3), stop=1.0) for s in (ours, theirs)]
    assert results[0]["one.f"] == pytest.approx(results[1]["one.f"], abs=1e-9)
    assert results[0]["two.x"] == pytest.approx(results[1]["two.x"], abs=1e-9)


def test_the_linear_one_can_be_exported(tmp_path: Path) -> None:
    system = oscillator_linear()
    again = load(export_ssp(system, tmp_path / "oscillator.ssp", fmi=2, step=1e-3, stop=1.0)).system
    results = [run(s, masters.jacobi(s, 1e-3), stop=0.1) for s in (system, again)]
    assert results[0]["two.x"] == pytest.approx(results[1]["two.x"], abs=1e-12)


def test_power_one_makes_the_nonlinear_unit_linear() -> None:
    # Just off 1, so that it is built as the nonlinear unit.
    near = Oscillator(power=1.0 - 1e-12)
    assert near.reference(step=0.01, stop=2.0).values == pytest.approx(
        LINEAR.reference(step=0.01, stop=2.0).values, abs=1e-6
    )


@pytest.mark.parametrize("problem", [LINEAR, NONLINEAR], ids=["linear", "nonlinear"])
def test_the_reference_conserves_energy_to_first_order(problem: Oscillator) -> None:
    errors = []
    for step in (2e-3, 1e-3):
        energy = problem.energy(problem.reference(step=step, stop=5.0))
        assert energy[0] == 10_000.0
        errors.append(np.abs(energy / energy[0] - 1).max())
    assert errors[1] < 0.05
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)


def test_own_parameters_reach_system_and_energy() -> None:
    problem = Oscillator(m1=2.0, m2=3.0, k1=1.0, k2=2.0, kc=3.0, speed=4.0)
    assert problem.energy(problem.reference(step=1e-3, stop=1e-2))[0] == pytest.approx(0.5 * (2 + 3) * 16)
    energy = problem.energy(problem.reference(step=1e-4, stop=5.0))
    assert np.abs(energy / energy[0] - 1).max() < 1e-3


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"m1": 0.0}, "parameter m1 of problem 'oscillator-linear' must be a positive finite number, not 0.0"),
        ({"m2": -1.0}, "parameter m2"),
        ({"k2": -1.0}, "parameter k2 .* must be a finite number, 0 or more"),
        ({"kc": math.inf}, "parameter kc"),
        ({"speed": math.nan}, "parameter speed .* must be a finite number, not nan"),
        ({"k1": "stiff"}, "parameter k1"),
    ],
)
def test_parameters_without_meaning_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        oscillator_linear(**values)


@pytest.mark.parametrize("power", [0.0, 2.0, math.nan])
def test_powers_without_meaning_are_refused(power: float) -> None:
    with pytest.raises(ConfigurationError, match="parameter power of problem 'oscillator-nonlinear'"):
        oscillator_nonlinear(power=power)


@pytest.mark.parametrize(("step", "stop"), [(0.0, 1.0), (math.nan, 1.0), (0.1, -1.0)])
def test_references_need_a_step_and_a_stop(step: float, stop: float) -> None:
    with pytest.raises(ConfigurationError):
        LINEAR.reference(step=step, stop=stop)
