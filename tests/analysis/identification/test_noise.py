"""Units with noise have as many states as they have; units with switches are no noisy linear units.

The thresholds were settled on other units (one output, oscillators of 0.3 and 0.9 Hz).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import black_boxes as boxes
from black_boxes import distance

from cosimo.analysis.identification import identify
from cosimo.units import PythonUnit

BOTH = pytest.mark.parametrize("means", ["differences", "experiments"])
STEP = 0.04
POLES = np.exp(STEP * np.linalg.eigvals(boxes.Masses.A))


@BOTH
@pytest.mark.parametrize(
    ("noise", "size"),
    [
        ("none", 0.0),
        ("random", 1e-10),
        ("random", 1e-7),
        ("random", 1e-5),
        ("single", 0.0),
        ("steps", 1e-7),
        ("steps", 1e-5),
        ("solver", 1e-3),
        ("solver", 1e-6),
        ("solver", 1e-9),
    ],
)
@pytest.mark.one_in(3)
def test_a_noisy_unit_has_as_many_states_as_it_has(noise: str, size: float, means: str) -> None:
    found = identify(PythonUnit(boxes.Masses, noise=noise, size=size), STEP, means=means)
    assert found.valid, found
    assert found.order == 4
    assert distance(found.poles, POLES) < 1e-3


@BOTH
@pytest.mark.parametrize(("noise", "size"), [("random", 0.01), ("steps", 0.02)])
def test_a_unit_that_is_mostly_noise_is_not_believed(noise: str, size: float, means: str) -> None:
    found = identify(PythonUnit(boxes.Masses, noise=noise, size=size), STEP, means=means)
    assert not found.valid
    assert found.order <= 4


def test_pulses_are_made_larger_above_noise() -> None:
    quiet, loud = (identify(PythonUnit(boxes.Masses, noise="random", size=size), STEP) for size in (0.0, 1e-5))
    assert quiet.amplitudes[0] == 1.0
    assert loud.amplitudes[0] > 10.0


@BOTH
@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("SmallRelay", {}),
        ("DeadZone", {"gap": 0.1}),
        ("DeadZone", {"gap": 5.0}),
        ("Play", {"gap": 0.1}),
        ("Play", {"gap": 5.0}),
        ("Sticking", {"hold": 0.3}),
        ("Sticking", {"hold": 4.0}),
        ("Hysteresis", {}),
    ],
)
def test_switches_are_not_taken_for_noise(kind: str, given: dict[str, float], means: str) -> None:
    """Pulses of 1 and more at rest: below and above the gap, the jump or the force that holds."""
    found = identify(PythonUnit(getattr(boxes, kind), **given), 0.05, means=means)
    assert not found.valid
    assert found.linear > 0.01
