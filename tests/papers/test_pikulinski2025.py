"""pikulinski2025: every number that holds, with the coupling that runs in the kernel."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.couplings import Dmd
from cosimo.papers.pikulinski2025 import (
    HELD,
    manipulator_errors,
    oscillator_error,
    oscillator_nmse,
    papers_dmd,
    pendula_error,
    predicted,
    robust_dmd,
)
from cosimo.problems.hydraulic_manipulator import Manipulator, manipulator_pressure, manipulator_steps
from cosimo.problems.oscillators import LINEAR, NONLINEAR
from thinning import mostly_slow


def rms(values: np.ndarray) -> float:  # type: ignore[type-arg]
    return float(np.sqrt(np.mean(values**2)))


def test_hold_adds_energy() -> None:
    held = predicted(LINEAR.system(), "one", HELD, step=1e-3, stop=10.0)
    assert LINEAR.energy(held)[-1] == pytest.approx(20243, rel=1e-3)


@pytest.mark.parametrize("coupling", [papers_dmd(100), Dmd(window=100)])
def test_the_model_is_equation_24_after_three_pairs(coupling: Dmd) -> None:
    (learned,) = predicted(LINEAR.system(), "one", coupling, step=0.01, stop=0.04).info["learned"]
    np.testing.assert_allclose(learned["S"], LINEAR.inferred(0.01), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("step", "expected"), [(0.01, 0.01800), (0.001, 2.00e-4)])
def test_energy_error_with_the_papers_start(step: float, expected: float) -> None:
    assert oscillator_error(LINEAR, papers_dmd(100), step).max() == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("window", [4, 100, None])
def test_energy_error_with_the_kinematic_start(window: int | None) -> None:
    assert oscillator_error(LINEAR, robust_dmd("one", window), 0.01).max() <= 1.1e-3


def test_nonlinear_spring() -> None:
    assert oscillator_nmse(NONLINEAR, papers_dmd(100)) == pytest.approx(334, rel=0.05)
    for window in (100, None):
        assert (oscillator_error(NONLINEAR, robust_dmd("one", window), 0.01) < 0.1).mean() >= 0.9


def test_pendula() -> None:
    assert pendula_error(HELD)[-1] == pytest.approx(2.031, rel=0.01)
    assert np.abs(pendula_error(robust_dmd("single", 10))).max() <= 5e-6
    assert np.abs(pendula_error(Dmd(10, pairs=()))).max() <= 5e-6


@pytest.mark.slow
def test_manipulator_with_a_sinusoid() -> None:
    force = Manipulator().system()
    for system, coupling, expected in (
        (force, HELD, 7.20),
        (manipulator_pressure(), HELD, 1.47),
        (force, Dmd(10, pairs=()), 0.870),
    ):
        assert rms(manipulator_errors(system, coupling, step=0.012)[1]) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("control", mostly_slow(["sinusoid", "steps"], ["sinusoid"]))
def test_manipulator_with_20_ms(control: str) -> None:
    system = Manipulator().system() if control == "sinusoid" else manipulator_steps()
    errors = {
        name: float(np.abs(manipulator_errors(system, coupling, step=0.02, stepped=control == "steps")[0]).max())
        for name, coupling in (("hold", HELD), ("window 10", Dmd(10, pairs=())), ("auto", robust_dmd("hydraulics")))
    }
    assert errors["hold"] > 100
    assert errors["window 10"] < 6
    assert errors["auto"] < 6
