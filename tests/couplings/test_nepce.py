"""The nearly energy-preserving coupling element."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce
from cosimo.execution.running import run
from cosimo.units import StateSpace


def pair() -> System:
    units = {"a": StateSpace(-1.0, 1.0, 1.0, 0.2, initial=1.0), "b": StateSpace(-2.0, 1.0, 1.0, initial=-1.0)}
    return System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])


def test_without_gain_it_is_the_zero_order_hold() -> None:
    held = run(pair(), masters.jacobi(pair(), 0.1, coupling=Hold(0)), stop=2.0, record="all")
    nepce = run(pair(), masters.jacobi(pair(), 0.1, coupling=Nepce(0.0)), stop=2.0, record="all")
    assert np.array_equal(nepce.values, held.values)


def test_towards_no_gain_it_tends_to_the_hold() -> None:
    held = run(pair(), masters.jacobi(pair(), 0.1, coupling=Hold(0)), stop=2.0).values
    distance = [
        np.abs(run(pair(), masters.jacobi(pair(), 0.1, coupling=Nepce(alpha)), stop=2.0).values - held).max()
        for alpha in (1e-2, 1e-4, 1e-6)
    ]
    assert distance[0] / distance[1] == pytest.approx(100, rel=0.05)
    assert distance[1] / distance[2] == pytest.approx(100, rel=0.05)


def follower(source: StateSpace) -> System:
    return System({"source": source, "late": StateSpace(-1.0, 1.0, 1.0)}, [("source.y1", "late.u1")])


def test_a_constant_passes_unchanged_from_the_beginning() -> None:
    system = follower(StateSpace(0.0, np.zeros((1, 0)), 1.0, initial=1.0))
    result = run(system, masters.jacobi(system, 0.1, coupling=Nepce(0.25)), stop=1.0, record="all")
    assert np.array_equal(result["late.u1"], np.ones(11))


def test_samples_are_filtered() -> None:
    system = follower(StateSpace(0.0, 1.0, 1.0, start={"u1": 1.0}))
    result = run(system, masters.jacobi(system, 1.0, coupling=Nepce(0.25)), stop=3.0, record="all")
    # The ramp's samples 0, 1, 2 arrive at t = 0, 1, 2 and are held over the step that ends a row later.
    assert result["late.u1"] == pytest.approx([0.0, 0.0, 0.75, 0.25 * 0.75 + 0.75 * 2.0])


@pytest.mark.parametrize("alpha", [-0.1, 1.0, 1.5, math.nan, math.inf])
def test_gains_outside_the_unit_interval_are_refused(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match=rf"gain of Nepce must be in \[0, 1\), not {alpha}"):
        Nepce(alpha)


def test_declarations() -> None:
    assert (Nepce(0.5).history, Nepce(0.5).degree, Nepce(0.5).error_order, str(Nepce(0.5))) == (1, 0, 1, "nepce:0.5")
