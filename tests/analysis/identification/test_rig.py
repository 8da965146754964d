"""Trials of units: those of FMUs are made in the compiled loop, with the rows and the words of those in Python."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from black_boxes import NO_STATES, chain, exported, many_sided
from fmu_builder import build

from cosimo.analysis.identification import OperatingPoint, test_rig
from cosimo.analysis.identification.test_rig import Allowance, CompiledSteps, Rig, TrialFailed, state_access
from cosimo.core.arrays import Array
from cosimo.units import Fmu, FmuOptions, RungeKutta4, StateSpace

STEP = 0.03


@contextmanager
def rigs(unit: Fmu, *, time: float = 0.0, **options: bool) -> Iterator[tuple[Rig, Rig]]:
    """Two of the same unit: one for the compiled loop, one for Python."""
    point = OperatingPoint(time)
    with closing(Rig(unit, STEP, point, **options)) as one, closing(Rig(unit, STEP, point, **options)) as other:
        yield one, other


@contextmanager
def python_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CompiledSteps, "of", classmethod(lambda *_: None))
        yield


def random_deviations(rig: Rig, length: int, seed: int) -> Array:
    found = 0.1 * np.random.default_rng(seed).normal(size=(length, rig.powers, len(rig.held)))
    found[:, :, list(rig.fixed)] = 0.0
    return found


UNITS = {
    "chain": lambda folder, fmi, without: exported(chain(2), folder, fmi=fmi, without=without),
    "inputs with derivatives": lambda folder, fmi, without: exported(
        many_sided(integrator=RungeKutta4(), micro_steps=3), folder, fmi=fmi, without=without
    ),
    "no inputs": lambda folder, fmi, without: exported(
        StateSpace(-1.0, np.zeros((1, 0)), 2.0, initial=3.0), folder, fmi=fmi, without=without
    ),
}


@pytest.mark.parametrize("time", [0.0, 7 * STEP])
@pytest.mark.parametrize("restore", [True, False])
@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.parametrize("name", UNITS)
def test_rows_are_those_of_python_to_the_bit(tmp_path, monkeypatch, name, fmi, restore, time):
    """Also where a trial goes on in either way, after the other."""
    compiled = []
    run = CompiledSteps.run
    monkeypatch.setattr(CompiledSteps, "run", lambda loop, *given: (compiled.append(given), run(loop, *given))[1])
    unit = UNITS[name](tmp_path, fmi, () if restore else NO_STATES)
    access = state_access(unit)
    assert access is not None
    for seen in (None, access):
        with rigs(unit, time=time, restore=restore, access=seen) as (one, other):
            first, second = one.trial(), other.trial()
            for part, length in enumerate((2, 40, 3, 9, test_rig.WORTH - 1, test_rig.WORTH)):
                deviations = random_deviations(one, length, part)
                rows = first.run(deviations)
                with python_only():
                    expected = second.run(deviations)
                assert rows.tobytes() == expected.tobytes(), part
            assert one.steps == other.steps
            assert one.once(deviations).tobytes() == other.once(deviations).tobytes()
    assert len(compiled) > 6


def test_rows_of_all_types_are_those_of_python(tmp_path):
    unit = Fmu(build(tmp_path, "feedthrough3"))
    with rigs(unit, restore=False) as (one, other):
        deviations = random_deviations(one, 30, 3)
        # Numbers that single precision holds, which no rounding may change.
        deviations = np.round(deviations * 64) / 64
        assert CompiledSteps.of(one, one.begin(one.trial())) is not None
        rows = one.trial().run(deviations)
        with python_only():
            assert rows.tobytes() == other.trial().run(deviations).tobytes()


FAILING = {
    "fail_at": "pump ran dry",
    "fatal_at": "memory is gone",
    "longest_step": "step too long",
    "end_at": "ended the simulation at t = 0.4",
    "nan_at": "'y' is nan at t = 0.48",
}


@pytest.mark.parametrize("parameter", FAILING)
def test_failures_are_those_of_python(tmp_path, parameter):
    """The same words; that a unit wants to end is noticed in its step, and by Python at its next call."""
    value = 0.02 if parameter == "longest_step" else 15.5 * STEP
    unit = Fmu(build(tmp_path, "awkward2"), parameters={parameter: value})
    told = []
    with rigs(unit, restore=False) as both:
        for rig, way in zip(both, (pytest.MonkeyPatch.context, python_only), strict=True):
            with way(), pytest.raises(TrialFailed) as refused:
                rig.trial().run(np.zeros((40, rig.powers, 0)))
            told.append(str(refused.value))
    assert told[0] == told[1].replace("setting its inputs", "its step from t = 0.45 to 0.48")
    assert FAILING[parameter] in told[0]
    assert not told[0].endswith(".")  # of the sentence that it becomes a part of


def test_the_budget_is_asked_between_parts(tmp_path, monkeypatch):
    """A trial that takes long ends within it, however many steps it has."""
    unit = exported(chain(2), tmp_path)
    allowance = Allowance(1.0)
    spent = iter(range(100))
    monkeypatch.setattr(Allowance, "check", lambda self: next(spent) < 8 or self._over())
    monkeypatch.setattr(Allowance, "_over", lambda self: (_ for _ in ()).throw(TrialFailed("over")), raising=False)
    with closing(Rig(unit, STEP, OperatingPoint(), restore=False, allowance=allowance)) as rig:
        with pytest.raises(TrialFailed, match="over"):
            rig.trial().run(np.zeros((100_000, rig.powers, len(rig.held))))
        assert rig.steps < 100


@pytest.mark.parametrize("what", ["a linear model", "events", "exact times", "whole numbers beside polynomials"])
def test_units_that_python_must_call(tmp_path, what):
    if what == "events":
        unit = Fmu(build(tmp_path, "events3"))
    elif what == "exact times":
        unit = Fmu(exported(chain(1), tmp_path).path, options=FmuOptions(exact_difference=True))
    elif what == "whole numbers beside polynomials":
        unit = Fmu(build(tmp_path, "feedthrough2"))
    else:
        unit = chain(1)
    with closing(Rig(unit, STEP, OperatingPoint(), restore=False)) as rig:
        instance = rig.begin(rig.trial())
        assert CompiledSteps.of(rig, instance) is None
        assert np.isfinite(rig.stepped(instance, 0, np.zeros((9, rig.powers, len(rig.held))))).all()
