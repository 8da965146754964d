"""Units without states, inputs, outputs or motion, or that fail, are ordinary: no exception of Python's own leaves."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cosimo as co
from cosimo.analysis import Budget, Verdict
from cosimo.core.errors import CosimoError
from cosimo.core.system import System
from cosimo.units import PythonUnit
from thinning import examples

BUDGET = Budget(multiples=4, seconds=math.inf)
"""By the number of steps alone, so that nothing depends on the clock."""
STEPS = 20
LEAKS = ("argument", "Traceback", "zero-size", "index", "NoneType", "math range", "object has no")
"""Words of messages of Python's own."""


class Base:
    """y = 1 for ever."""

    inputs: ClassVar[Any] = {"u": 0.0}
    outputs: ClassVar[Any] = ("y",)

    def __init__(self, size: float = 1.0) -> None:
        self.u, self.y, self.size = 0.0, size, size

    def step(self, time: float, duration: float) -> None:
        pass


class Constant(Base):
    """No input, no states, no motion."""

    inputs = ()


class Sink(Base):
    """No output."""

    outputs = ()


class Wave(Base):
    """No input, a motion of its own."""

    inputs = ()

    def step(self, time: float, duration: float) -> None:
        self.y = self.size * math.cos(3.0 * (time + duration))


class Gain(Base):
    """No states: the output follows at once."""

    def set_inputs(self) -> None:
        self.y = -0.3 * self.u


class Delay(Base):
    """The input of a step before."""

    def step(self, time: float, duration: float) -> None:
        self.y = -0.5 * self.u


class Integrator(Base):
    """No free response."""

    def step(self, time: float, duration: float) -> None:
        self.y += duration * self.u


class Lag(Base):
    """What most units are."""

    def step(self, time: float, duration: float) -> None:
        self.y += (1 - math.exp(-duration)) * (-self.u - self.y)


class Growing(Base):
    """Leaves the range of numbers."""

    def step(self, time: float, duration: float) -> None:
        self.y *= 1e40


class NoNumber(Base):
    def step(self, time: float, duration: float) -> None:
        self.y = math.nan if time > 0.3 else self.size


class Raising(Base):
    def step(self, time: float, duration: float) -> None:
        raise RuntimeError("out of coal")


class Pole(Base):
    """Divides by what may be 0."""

    def step(self, time: float, duration: float) -> None:
        self.y = 1.0 / (self.u - 1.0)


KINDS = (Base, Constant, Sink, Wave, Gain, Delay, Integrator, Lag, Growing, NoNumber, Raising, Pole)
"""All of them take and give at most one signal, so that any two can be coupled."""


def coupled(*kinds: type[Base], size: float = 1.0) -> System:
    """A ring, open where a unit has no input or the one before no output."""
    units = {f"unit{place}": PythonUnit(kind, size=size) for place, kind in enumerate(kinds)}
    links = [
        (f"unit{place}.y", f"unit{(place + 1) % len(kinds)}.u")
        for place, kind in enumerate(kinds)
        if kind.outputs and kinds[(place + 1) % len(kinds)].inputs
    ]
    return System(units, links, name="peculiar")


def require_sound(verdict: Verdict) -> None:
    """What is not known has a reason, and no reason is a message of Python's own."""
    assert verdict.evidence in ("confirmed", "measured", "none")
    if verdict.evidence == "none":
        assert verdict.trust == "not assessed"
        assert verdict.reasons["evidence"]
        assert verdict.stable is None
        assert verdict.error is None
    for name, figure in (("critical_step", verdict.critical_step), ("recommendation", verdict.recommendation)):
        if figure is None and verdict.evidence != "none":
            assert verdict.reasons.get(name) or verdict.notes or verdict.exact_stable is False, name
    said = [*verdict.reasons.values(), *verdict.notes]
    assert not [text for text in said for leak in LEAKS if leak in text]
    assert str(verdict)


@settings(max_examples=examples(25), derandomize=True)
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    step=st.sampled_from([0.5, 0.05, 1e-3]),
    size=st.sampled_from([1.0, 0.0, 1e-9, 1e9]),
)
def test_no_exception_of_pythons_own_leaves(kinds: list[type[Base]], step: float, size: float) -> None:
    system = coupled(*kinds, size=size)
    try:
        verdict = co.analyse(system, co.masters.jacobi(system, step), horizon=STEPS * step, budget=BUDGET)
    except CosimoError:
        assert Gain in kinds  # only an algebraic loop may be refused as a whole
        return
    require_sound(verdict)


@pytest.mark.parametrize("kind", [Base, Constant, Sink, Wave, Gain, Delay, Integrator])
@pytest.mark.one_in(3)
def test_peculiar_units_beside_a_usual_one_are_judged(kind: type[Base]) -> None:
    system = coupled(kind, Lag)
    verdict = co.analyse(system, co.masters.jacobi(system, 0.01), horizon=1.0, budget=BUDGET)
    require_sound(verdict)
    assert verdict.evidence == "confirmed", verdict.reasons
    assert all(unit.valid for unit in verdict.units)


def test_runs_that_never_end_in_numbers_are_no_instability() -> None:
    system = coupled(NoNumber, Lag)
    verdict = co.analyse(system, co.masters.jacobi(system, 0.05), horizon=1.0, budget=BUDGET)
    assert (verdict.evidence, verdict.stable, verdict.exact_stable) == ("none", None, None)
    assert "every run overflows" in verdict.reasons["evidence"]


def test_nothing_that_moves() -> None:
    system = coupled(Gain, Integrator, size=0.0)
    verdict = co.analyse(system, co.masters.jacobi(system, 0.05), horizon=1.0, budget=BUDGET)
    assert verdict.trust == "not assessed"
    assert "every output stays 0, so pilot runs show nothing; give initial states or" in verdict.reasons["evidence"]
    alone = System({"tank": PythonUnit(Integrator, size=0.0)})
    verdict = co.analyse(alone, co.masters.jacobi(alone, 0.05), horizon=1.0, budget=BUDGET)
    assert "give an input a value, such as --set tank.u=1" in verdict.reasons["evidence"]


class Quantised(Base):
    """A lag whose output comes in steps of 0.02: short pulses are not answered at all."""

    def __init__(self, size: float = 1.0) -> None:
        super().__init__(size)
        self.x = self.y = 0.0

    def step(self, time: float, duration: float) -> None:
        self.x += (self.u - self.x) * (1 - math.exp(-duration))
        self.y = round(50 * self.x) / 50


class Decaying(Base):
    def step(self, time: float, duration: float) -> None:
        self.y += (self.u - self.y) * (1 - math.exp(-duration))


@pytest.mark.parametrize("step", [0.1, 0.02])
def test_an_output_that_comes_in_steps_is_judged(step: float) -> None:
    units = {"a": PythonUnit(Quantised), "b": PythonUnit(Decaying)}
    system = System(units, [co.Connection("b.y", "a.u", gain=-1.0), ("a.y", "b.u")])
    verdict = co.analyse(system, co.masters.jacobi(system, step), horizon=2.0, budget=BUDGET, details=False)
    assert verdict.stable is not False
    assert not any(word in reason for reason in verdict.reasons.values() for word in LEAKS)


class Twice(Base):
    """No states, and an answer that comes with the next step."""

    def step(self, time: float, duration: float) -> None:
        self.y = 1.5 * self.u + 1.0


def test_a_loop_of_gains_that_grows_has_no_stable_step() -> None:
    """What is gone within a step has a rate that nobody knows: shorter steps are no help, whatever a model says."""
    units = {"a": PythonUnit(Twice), "b": PythonUnit(Twice)}
    system = System(units, [co.Connection("b.y", "a.u", gain=-1.0), ("a.y", "b.u")])
    verdict = co.analyse(system, co.masters.jacobi(system, 0.1), horizon=10.0, budget=BUDGET)
    assert verdict.stable is False
    assert verdict.critical_step is None or verdict.critical_step.step == 0
