"""Units that are not linear, change, refuse or fail: flagged or named, never silently modelled."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import black_boxes as boxes
from black_boxes import distance

from cosimo.analysis.identification import OperatingPoint, identify
from cosimo.core.errors import ConfigurationError, IdentificationError, UnknownNameError
from cosimo.units import Fmu, PythonUnit, StateSpace

BOTH = pytest.mark.parametrize("means", ["differences", "experiments"])


@BOTH
@pytest.mark.parametrize("angle", [0.0, 1.0, 2.5])
def test_a_pendulum_at_rest_depends_on_where(means, angle):
    """Held by a torque at any angle: θ̈ = −g cos(angle) θ − d θ̇, unstable above the pivot."""
    point = OperatingPoint(inputs={"torque": 9.81 * math.sin(angle)})
    found = identify(PythonUnit(boxes.Pendulum, angle=angle), 0.02, means=means, point=point)
    A = np.array([[0.0, 1.0], [-9.81 * math.cos(angle), -0.1]])
    assert distance(found.poles, np.exp(0.02 * np.linalg.eigvals(A))) < 1e-6
    assert distance(np.linalg.eigvals(found.continuous.A), np.linalg.eigvals(A)) < 1e-4
    assert found.linear <= 1e-3
    assert found.unit_steps <= 2000 or means == "differences"
    if angle < 2:
        assert found.valid, found


@BOTH
def test_a_swinging_pendulum_is_flagged_and_modelled_locally(means):
    found = identify(PythonUnit(boxes.Pendulum, angle=1.0), 0.02, means=means)
    assert not found.valid
    assert found.invariant > 0.01
    assert "steps later" in found.reasons[0]
    assert found.order == 2
    # Over the eight steps that a local model is made from, the angle falls by a tenth and the frequency grows by 7 %.
    A = np.array([[0.0, 1.0], [-9.81 * math.cos(1.0), -0.1]])
    assert distance(found.poles, np.exp(0.02 * np.linalg.eigvals(A))) < 0.07 * 0.02 * 2.3


@BOTH
@pytest.mark.parametrize(
    ("kind", "held", "blamed"),
    [("Saturated", 0.5, "linear"), ("Relay", 0.0, "linear"), ("Varying", 0.0, "invariant")],
)
def test_what_is_not_linear_or_changes_is_flagged(means, kind, held, blamed):
    unit = PythonUnit(getattr(boxes, kind))
    found = identify(unit, 0.05, means=means, point=OperatingPoint(inputs={"u": held}))
    assert not found.valid
    assert getattr(found, blamed) > 0.1
    assert all(np.isfinite(x).all() for x in (found.model.A, found.model.B, found.C, found.D, found.initial))


@BOTH
def test_saturation_far_from_its_limits_is_linear(means):
    found = identify(PythonUnit(boxes.Saturated), 0.05, means=means)
    assert found.valid
    assert found.amplitudes[0] <= 0.5
    assert distance(found.poles, np.array([0.95])) < 1e-9
    assert "two amplitudes agree" in found.reasons[-1]


@BOTH
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("Crashing", "its step from t = 0 to 0.05 failed with ValueError: singular matrix"),
        ("Picky", "no pulse of input 'u' from 1e-09 to 1 was taken: .*u must be 0"),
        ("NotANumber", "no pulse of input 'u' .*'y' is nan at t = 0.05"),
    ],
)
def test_failures_are_named(means, kind, reason):
    with pytest.raises(IdentificationError, match=f"PythonUnit '{kind}' could not be identified.*{reason}"):
        identify(PythonUnit(getattr(boxes, kind)), 0.05, means=means)


@BOTH
def test_a_unit_that_never_changes_has_no_states(means):
    found = identify(PythonUnit(boxes.Silent, y=3.0), 0.05, means=means)
    assert found.valid
    assert (found.order, found.D.tolist()) == (0, [[0.0]])
    assert found.output_offset == pytest.approx([3.0])
    assert "its outputs stay constant, on their own and under pulses of u" in found.reasons


@BOTH
def test_a_unit_that_takes_only_small_pulses(means):
    found = identify(PythonUnit(boxes.Cautious), 0.05, means=means)
    assert found.valid
    assert 0 < found.amplitudes[0] <= 0.01


@BOTH
def test_a_unit_whose_range_many_pulses_leave(means):
    """Foreign FMUs refuse temperatures below 0 K, to which no single pulse had led."""
    found = identify(PythonUnit(boxes.Bounded), 0.05, means=means)
    assert found.valid
    assert pytest.approx(0.95) == found.model.A
    assert found.amplitudes[0] == 1.0


@BOTH
def test_feedthrough_is_what_the_unit_does(means):
    """Both outputs are declared to depend at once on the input; one really does, the other a step later."""
    unit = PythonUnit(boxes.Late)
    assert unit.feedthrough().all()
    found = identify(unit, 0.1, means=means)
    assert found.D.tolist() == [[0.0], [2.0]]
    assert found.unit().feedthrough().tolist() == [[False], [True]]
    assert distance(found.poles, np.array([0.9, 0.0])) < 1e-9
    assert any("completely within one step" in reason for reason in found.reasons)
    steady = found.continuous.D - found.continuous.C @ np.linalg.solve(found.continuous.A, found.continuous.B)
    np.testing.assert_allclose(steady.ravel(), [4.0, 3.0], rtol=1e-9)


@BOTH
def test_offsets_carry_what_is_not_linear_but_constant(means):
    found = identify(PythonUnit(boxes.Falling), 0.1, means=means)
    assert found.valid, found
    np.testing.assert_allclose(found.input_offset, [-9.81], rtol=1e-6)
    x, rows = found.initial, []
    for _ in range(10):
        rows.append(found.C @ x + found.D @ found.input_offset + found.output_offset)
        x = found.model.A @ x + found.model.B @ found.input_offset
    t = 0.1 * np.arange(10)
    np.testing.assert_allclose(rows, np.array([5 + t - 9.81 * t**2 / 2, 1 - 9.81 * t]).T, atol=1e-6)


@BOTH
def test_discrete_inputs_are_held(means):
    found = identify(boxes.Geared(boxes.Gears), 0.05, means=means)
    assert found.valid
    assert not found.model.B[:, 1].any()
    assert "input 'gear' is discrete and held at 2" in found.reasons
    gain = found.C @ np.linalg.solve(1 - found.model.A, found.model.B)
    assert gain[0, 0] == pytest.approx(2.0)
    third = OperatingPoint(inputs={"gear": 3})
    found = identify(boxes.Geared(boxes.Gears), 0.05, means=means, point=third)
    assert (found.C @ np.linalg.solve(1 - found.model.A, found.model.B))[0, 0] == pytest.approx(3.0)


def test_whole_numbers_and_switches_of_fmus(tmp_path):
    from fmu_builder import build

    fmu = Fmu(build(tmp_path, "feedthrough2"))
    found = identify(fmu, 0.1)
    assert found.valid, found
    assert "input 'bool_in' is discrete and held at 1" in found.reasons
    assert "output 'int_out' is discrete and left out" in found.reasons
    assert found.D[0].tolist() == pytest.approx([1.0, 0.0, 0.0, 0.0])
    assert not found.D[1:].any()
    assert distance(found.poles, np.array([1.0])) < 1e-9
    counting = identify(Fmu(build(tmp_path, "events3")), 0.1)
    assert counting.valid, counting


def test_the_rest_position_is_found():
    found = identify(PythonUnit(boxes.Lag, y=1.0), 0.1, point=OperatingPoint(inputs={"u": 3.0}))
    assert (found.C @ found.deviation)[0] == pytest.approx(1.0 - 3.0)


def test_wrong_requests_are_refused():
    unit = PythonUnit(boxes.Lag)
    with pytest.raises(IdentificationError, match="cannot be identified by derivatives; it offers differences"):
        identify(unit, 0.1, means="derivatives")
    with pytest.raises(ConfigurationError, match="macro step must be a positive"):
        identify(unit, 0.0)
    with pytest.raises(UnknownNameError, match="did you mean 'u'"):
        identify(unit, 0.1, nominal={"uu": 1.0})
    with pytest.raises(UnknownNameError, match="unknown input 'v'"):
        identify(unit, 0.1, point=OperatingPoint(inputs={"v": 1.0}))
    with pytest.raises(ConfigurationError, match="positive number"):
        identify(unit, 0.1, nominal={"u": 0.0})
    with pytest.raises(ConfigurationError, match="not before the start time"):
        OperatingPoint(time=-1.0)


def test_a_unit_that_cannot_save_after_all():
    class Shared(boxes.Lag):
        def save(self):
            raise OSError("no memory")

        def restore(self, state):
            raise AssertionError

    found = identify(PythonUnit(Shared), 0.05)
    assert found.means == "experiments"
    assert any("not by differences" in reason and "no memory" in reason for reason in found.reasons)
    assert distance(found.poles, np.array([0.95])) < 1e-9


def test_two_equal_runs_that_differ():
    rng = np.random.default_rng(5)

    class Noisy(boxes.Lag):
        def drive(self, time):
            return self.u + rng.normal()

    found = identify(PythonUnit(Noisy), 0.05)
    assert not found.valid
    assert any("two identical runs" in reason for reason in found.reasons)


def test_printing():
    text = str(identify(StateSpace(-1.0, 1.0, 1.0), 0.1, means="experiments"))
    assert "1 states at the step 0.1 s, t = 0 s, by experiments: valid" in text
