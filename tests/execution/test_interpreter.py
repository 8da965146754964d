"""The plain interpreter, operation by operation, against recurrences written out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.errors import UnitError
from cosimo.core.master import Master
from cosimo.core.schedule import Couple, Operation, Read, Repeat, Restore, Save, Schedule, Step
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.interpreter import Interpreter
from cosimo.execution.live import Live
from cosimo.units import ForwardEuler, PythonUnit, StateSpace

H, STEPS = 0.2, 12


def pair() -> System:
    """x1' = −x1 + u1, y1 = x1 + u1/2 and x2' = −3 x2 + u2, y2 = 2 x2, by one Euler step per macro step."""
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, 0.5, initial=1.0, integrator=ForwardEuler()),
        "b": StateSpace(-3.0, 1.0, 2.0, initial=-1.0, integrator=ForwardEuler()),
    }
    return System(units, [Connection("b.y1", "a.u1", 0.7, 0.1), ("a.y1", "b.u1")])


def execute(system: System, master: Master, steps: int = STEPS) -> Array:
    """Rows of outputs and inputs from the plain interpreter itself, the initial one included."""
    live = Live(system, master, 0.0)
    live.initialise()
    interpreter = Interpreter(live)
    rows = [live.outputs() + live.inputs()]
    for k in range(steps):
        interpreter.macro_step(k)
        rows.append(live.outputs() + live.inputs())
    live.close()
    return np.array(rows)


class ByHand:
    """The same two units as plain numbers."""

    def __init__(self) -> None:
        self.x1, self.x2 = 1.0, -1.0
        self.y2 = 2 * self.x2
        self.u1 = 0.7 * self.y2 + 0.1
        self.y1 = self.x1 + self.u1 / 2
        self.u2 = self.y1

    def couple_a(self) -> None:
        self.u1 = 0.7 * self.y2 + 0.1

    def couple_b(self) -> None:
        self.u2 = self.y1

    def step_a(self, part: float = 1.0) -> None:
        self.x1 += part * H * (-self.x1 + self.u1)

    def step_b(self, part: float = 1.0) -> None:
        self.x2 += part * H * (-3 * self.x2 + self.u2)

    def read_a(self) -> None:
        self.y1 = self.x1 + self.u1 / 2

    def read_b(self) -> None:
        self.y2 = 2 * self.x2

    def row(self) -> list[float]:
        return [self.y1, self.y2, self.u1, self.u2]


def jacobi(z: ByHand) -> None:
    for act in (z.couple_a, z.couple_b, z.step_a, z.step_b, z.read_a, z.read_b):
        act()


def seidel(z: ByHand) -> None:
    for act in (z.couple_a, z.step_a, z.read_a, z.couple_b, z.step_b, z.read_b):
        act()


def seidel_reversed(z: ByHand) -> None:
    for act in (z.couple_b, z.step_b, z.read_b, z.couple_a, z.step_a, z.read_a):
        act()


def early_read(z: ByHand) -> None:
    for act in (z.couple_b, z.couple_a, z.read_a, z.step_a, z.step_b, z.read_b):
        act()


def two_sweeps(z: ByHand) -> None:
    x1, x2 = z.x1, z.x2
    jacobi(z)
    z.x1, z.x2 = x1, x2
    jacobi(z)


def slow_a(z: ByHand) -> None:
    """a once, b twice, inputs held."""
    z.couple_a()
    z.couple_b()
    z.step_a()
    z.step_b(0.5)
    z.read_b()
    z.couple_b()
    z.step_b(0.5)
    z.read_a()
    z.read_b()


@pytest.mark.parametrize(
    ("build", "by_hand"),
    [
        (lambda s: masters.jacobi(s, H), jacobi),
        (lambda s: masters.gauss_seidel(s, H), seidel),
        (lambda s: masters.gauss_seidel(s, H, order=["b", "a"]), seidel_reversed),
        (lambda s: masters.jacobi_early_read(s, H), early_read),
        (lambda s: masters.iterative(s, H, sweeps=2), two_sweeps),
        (lambda s: masters.multirate(s, H / 2, multiples={"a": 2}), slow_a),
    ],
    ids=["jacobi", "seidel", "seidel-reversed", "early-read", "two-sweeps", "multirate"],
)
def test_masters_against_recurrences(build: Any, by_hand: Any) -> None:
    system, z = pair(), ByHand()
    for row in execute(system, build(system)):
        assert row == pytest.approx(z.row(), abs=1e-14)
        by_hand(z)


def word(*operations: Operation) -> Master:
    return Master("word", Schedule(("a", "b"), operations), H, Hold(0))


B = (Couple("b"), Step("b"), Read("b"))


def test_save_and_restore_undo_a_step() -> None:
    tried = word(Couple("a"), Save("a"), Step("a"), Restore("a"), Step("a"), Read("a"), *B)
    plain = masters.gauss_seidel(pair(), H)
    assert np.array_equal(execute(pair(), tried), execute(pair(), plain))


def test_restore_brings_back_the_input() -> None:
    # a is coupled a second time with a newer output of b, then put back: the older input counts.
    undone = word(Couple("a"), Save("a"), *B, Couple("a"), Restore("a"), Step("a"), Read("a"))
    plain = word(Couple("a"), *B, Step("a"), Read("a"))
    assert np.array_equal(execute(pair(), undone), execute(pair(), plain))


def test_a_step_in_thirds_under_one_input() -> None:
    third = Fraction(1, 3)
    parts = word(Couple("a"), Repeat((Step("a", third),), 3), Read("a"), *B)
    z = ByHand()
    for row in execute(pair(), parts):
        assert row == pytest.approx(z.row(), abs=1e-14)
        z.couple_a()
        for _ in range(3):
            z.step_a(1 / 3)
        z.read_a()
        z.couple_b()
        z.step_b()
        z.read_b()


def test_units_that_take_no_powers_get_the_value_at_each_step() -> None:
    """Hold(1) forms a ramp; a unit without powers, stepped twice under it, sees it where each step begins."""
    received: list[float] = []

    class Logger:
        inputs, outputs = ("u",), ("y",)
        y = 0.0

        def step(self, time: float, duration: float) -> None:
            received.append(self.u)  # type: ignore[attr-defined]

    ramp = StateSpace(0.0, 1.0, 1.0, start={"u1": 1.0})
    system = System({"ramp": ramp, "log": PythonUnit(Logger)}, [("ramp.y1", "log.u")])
    half = Fraction(1, 2)
    operations = (
        Couple("log"),
        Step("log", half),
        Step("log", half),
        Read("log"),
        Step("ramp"),
        Couple("ramp"),
        Read("ramp"),
    )
    master = Master("word", Schedule(("ramp", "log"), operations), 1.0, Hold(1))
    execute(system, master, 4)
    # The first macro step has a constant past.
    assert received == pytest.approx([0.0, 0.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5])


def test_units_that_take_one_power_get_the_tangent_at_each_step() -> None:
    """Hold(2) reproduces u = t²; an integrator that takes value and slope sees the tangent of each of its steps."""
    integrator = StateSpace(0.0, 1.0, 1.0)
    integrator.input_degree = 1
    system = System({"sum": integrator}, inputs={"sum.u1": lambda t: t**2})
    quarter = Fraction(1, 4)
    operations = (Couple("sum"), Step("sum", quarter), Step("sum", 3 * quarter), Read("sum"))
    master = Master("word", Schedule(("sum",), operations), 2.0, Hold(2))
    x, t = 0.0, 0.0
    for row in execute(system, master, 4):
        assert row[0] == pytest.approx(x, abs=1e-12)
        for duration in (0.5, 1.5):
            x += duration * t**2 + duration**2 / 2 * 2 * t
            t += duration


def test_offsets_and_gains_reach_the_input() -> None:
    live = Live(pair(), masters.jacobi(pair(), H), 0.0)
    live.initialise()
    assert live.outputs() == pytest.approx([1.0 + (0.7 * -2.0 + 0.1) / 2, -2.0])
    assert live.inputs() == pytest.approx([0.7 * -2.0 + 0.1, live.outputs()[0]])


def test_times_are_multiplied_not_added() -> None:
    live = Live(pair(), masters.jacobi(pair(), 0.1), 0.3)
    assert live.time(10**6, 0.5) == Interpreter(live).time(10**6, 0.5) == 0.3 + (10**6 + 0.5) * 0.1


@pytest.mark.parametrize(
    ("method", "doing"),
    [("step", "stepped"), ("save", "saved"), ("restore", "restored")],
)
def test_what_a_unit_was_doing_when_it_failed(method: str, doing: str) -> None:
    class Fragile:
        inputs, outputs = ("u",), ("y",)
        y = 0.0

        def step(self, time: float, duration: float) -> None: ...
        def save(self) -> None: ...
        def restore(self, state: None) -> None: ...

    def fail(self: Any, *args: Any) -> None:
        raise RuntimeError("broken")

    setattr(Fragile, method, fail)
    system = System({"weak": PythonUnit(Fragile)}, inputs={"weak.u": 0.0})
    with pytest.raises(UnitError, match=f"unit 'weak' failed at t = 0 while being {doing}: RuntimeError: broken"):
        execute(system, masters.iterative(system, 0.1))


def test_an_input_that_cannot_be_taken() -> None:
    class Guarded:
        inputs, outputs = ("u",), ("y",)
        y = 0.0

        @property
        def u(self) -> float:
            return 0.0

        @u.setter
        def u(self, value: float) -> None:
            if value > 0.25:
                raise OverflowError("too much")

        def step(self, time: float, duration: float) -> None: ...

    system = System({"valve": PythonUnit(Guarded)}, inputs={"valve.u": lambda t: t})
    with pytest.raises(UnitError, match=r"'valve' failed at t = 0\.3 while being given its inputs: OverflowError"):
        execute(system, masters.jacobi(system, 0.1))
