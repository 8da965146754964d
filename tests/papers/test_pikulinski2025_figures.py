"""Figures of pikulinski2025 show the data they name."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.papers import pikulinski2025_figures as drawn
from cosimo.papers.pikulinski2025 import HELD, manipulator_errors, oscillator_error, oscillator_nmse, robust_dmd
from cosimo.problems.hydraulic_manipulator import manipulator, manipulator_steps
from cosimo.problems.oscillators import NONLINEAR
from cosimo.reporting.pictures import look
from thinning import mostly_slow


def curves(axes: object) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    return {line.get_label(): np.asarray(line.get_ydata()) for line in axes.get_lines()}  # type: ignore[attr-defined]


def test_energy_errors() -> None:
    with look():
        found = curves(drawn.energy_errors(NONLINEAR, "square-root spring").axes[0])
    np.testing.assert_allclose(found["held"], np.maximum(oscillator_error(NONLINEAR, HELD, 0.01), drawn.FLOOR))
    automatic = oscillator_error(NONLINEAR, robust_dmd("one"), 0.01)
    np.testing.assert_allclose(found["DMD, automatic window"], np.maximum(automatic, drawn.FLOOR))


def test_windows() -> None:
    with look():
        found = curves(drawn.windows_of_the_oscillator((10, 100)).axes[0])
    expected = [oscillator_nmse(NONLINEAR, robust_dmd("one", window)) for window in (10, 100)]
    np.testing.assert_allclose(found["DMD, kinematic start"], expected)
    assert found["held"][0] > 100 * max(expected)


@pytest.mark.parametrize("control", mostly_slow(["sinusoid", "steps"], ["sinusoid"]))
def test_manipulator(control: str) -> None:
    with look():
        figure = drawn.manipulator_motion(control, 0.02)
    length, rate = (curves(axes) for axes in figure.axes[:2])
    system = manipulator_steps() if control == "steps" else manipulator()
    wanted = manipulator_errors(system, robust_dmd("hydraulics"), step=0.02, stepped=control == "steps")
    np.testing.assert_allclose(length["DMD, automatic window"], wanted[0])
    np.testing.assert_allclose(rate["DMD, automatic window"], wanted[1])
    assert np.abs(length["held"]).max() > 100


def test_predictor_in_charge() -> None:
    with look():
        figure = drawn.in_charge()
    (numbers,) = curves(figure.axes[0]).values()
    assert len(set(numbers.tolist())) > 1
