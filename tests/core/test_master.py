"""A master holds a positive step and finds the coupling of an input."""

from __future__ import annotations

import math

import pytest

from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Read, Schedule, Step
from cosimo.couplings import Hold, Nepce

SCHEDULE = Schedule(("a",), (Couple("a"), Step("a"), Read("a")))


@pytest.mark.parametrize("step", [0.0, -0.1, math.nan, math.inf])
def test_the_step_must_be_positive(step: float) -> None:
    with pytest.raises(ConfigurationError, match=f"macro step must be a positive number, not {step}"):
        Master("m", SCHEDULE, step, Hold(0))


def test_couplings_by_target() -> None:
    master = Master("m", SCHEDULE, 0.1, Hold(1), {"a.u": Nepce(0.5)})
    assert master.coupling_of("a.u") == Nepce(0.5)
    assert master.coupling_of("a.v") == Hold(1)
    assert str(master) == "F1 G1 H1"


def test_with_step_changes_only_the_step() -> None:
    master = Master("m", SCHEDULE, 0.1, Hold(1), {"a.u": Nepce(0.5)})
    finer = master.with_step(0.05)
    assert (finer.step, master.step) == (0.05, 0.1)
    assert finer.with_step(0.1) == master
    with pytest.raises(ConfigurationError):
        master.with_step(-1.0)
