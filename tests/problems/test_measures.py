"""Errors between trajectories, and the reference they are measured against."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.core.errors import ConfigurationError, DimensionError
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.papers.pikulinski2025 import nmse, relative_error
from cosimo.problems.oscillators import LINEAR, fresh
from cosimo.units import Mechanical, StateSpace


def test_nmse_sums_over_samples_and_averages_over_coordinates() -> None:
    reference = np.array([[0.0, 0.0], [2.0, 20.0]] * 5)
    assert nmse(reference, reference + np.array([1.0, 0.0])) == pytest.approx(10 / 2)
    assert nmse(reference, reference + np.array([1.0, 10.0])) == pytest.approx(10.0)
    assert nmse(reference, reference) == 0.0


@pytest.mark.parametrize(
    ("reference", "found", "message"),
    [
        ([[1.0, 2.0]], [[1.0], [2.0]], "cannot be compared"),
        ([], [], "samples in rows"),
        (1.0, 1.0, "samples in rows"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(reference: object, found: object, message: str) -> None:
    with pytest.raises(DimensionError, match=message):
        nmse(reference, found)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_reference_that_does_not_move_has_no_nmse(value: float) -> None:
    with pytest.raises(ConfigurationError, match="coordinate 1 of the reference is constant"):
        nmse([[0.0, value], [1.0, value]], [[0.0, 1.0], [1.0, 1.0]])


def test_relative_error() -> None:
    assert relative_error([2.0, -4.0], [3.0, -3.0]) == pytest.approx([0.5, 0.25])
    with pytest.raises(ConfigurationError, match="zero"):
        relative_error([1.0, 0.0], [1.0, 1.0])
    with pytest.raises(ConfigurationError, match="zero"):
        relative_error([1.0, np.nan], [1.0, 1.0])
    with pytest.raises(DimensionError, match="cannot be compared"):
        relative_error([1.0], [1.0, 1.0])


def test_the_fresh_exchange_is_the_undivided_system() -> None:
    whole = Mechanical(
        np.eye(2),
        np.zeros((2, 2)),
        [[110.0, -100.0], [-100.0, 1100.0]],
        B=np.zeros((2, 0)),
        displacement=np.vstack([np.eye(2), np.zeros((2, 2))]),
        velocity=np.vstack([np.zeros((2, 2)), np.eye(2)]),
        initial=[0.0, 0.0, 100.0, -100.0],
    )
    undivided = System({"whole": whole})
    expected = run(undivided, fresh(undivided, 0.01), stop=10.0)
    found = LINEAR.reference(step=0.01, stop=10.0)
    signals = ("one.x", "two.x", "one.v", "two.v")
    assert np.column_stack([found[s] for s in signals]) == pytest.approx(expected.values, abs=1e-8)
    # All outputs of one row belong to one moment.
    assert found["one.f"] == pytest.approx(-100 * (found["one.x"] - found["two.x"]), abs=1e-9)


def test_no_fresh_exchange_between_two_units_with_feedthrough() -> None:
    a, b = (StateSpace(-1.0, 1.0, 1.0, 0.5, inputs=["u"], outputs=["y"]) for _ in range(2))
    system = System({"a": a, "b": b}, [("a.y", "b.u"), ("b.y", "a.u")])
    with pytest.raises(ConfigurationError, match=r"a\.y → b\.u joins two units with direct feedthrough"):
        fresh(system, 0.1)
