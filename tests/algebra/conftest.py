"""A system with everything the algebra knows, and one master of every kind for it."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Couple, Read, Repeat, Restore, Save, Schedule, Step
from cosimo.core.system import Connection, Source, System
from cosimo.couplings import Hold, Nepce
from cosimo.units import Exact, ForwardEuler, Mechanical, RungeKutta4, StateSpace

STEP = 0.1

Build = Callable[[Source], System]


def build(source: Source = np.sin) -> System:
    """Three units of several inputs and outputs, feedthrough on a loop, offsets, a start value, an external input."""
    rng = np.random.default_rng(5)
    a = StateSpace(
        rng.normal(size=(2, 2)) - 2 * np.eye(2),
        rng.normal(size=(2, 2)),
        rng.normal(size=(2, 2)),
        [[0.2, 0.0], [0.0, -0.3]],
        initial=[1.0, -1.0],
        integrator=RungeKutta4(),
        micro_steps=2,
    )
    b = Mechanical(
        np.diag([1.0, 2.0]),
        0.5 * np.eye(2),
        [[6.0, -2.0], [-2.0, 4.0]],
        B=[[1.0, 0.0], [0.5, 1.0]],
        displacement=[[1.0, 0.0], [0.0, 0.0]],
        acceleration=[[0.0, 0.0], [0.0, 0.4]],
        initial=[0.3, 0.0, 0.0, -0.4],
    )
    c = StateSpace(-1.0, [[1.0, 0.5, 1.0]], [[1.0], [2.0]], initial=0.7, integrator=ForwardEuler(), start={"u3": 0.6})
    connections = [
        Connection("b.y1", "a.u1", 0.7, 0.2),
        Connection("c.y1", "a.u2", -0.4),
        Connection("a.y1", "b.u1", 0.9),
        Connection("a.y2", "b.u2", -1.1, -0.3),
        Connection("b.y2", "c.u1", 0.5),
    ]
    return System({"a": a, "b": b, "c": c}, connections, inputs={"c.u2": source})


MIXED = {"a.u1": Hold(2), "a.u2": Nepce(0.4), "b.u1": Hold(1), "b.u2": Hold(0), "c.u1": Hold(1), "c.u2": Hold(2)}


def rolled_back(system: System) -> Master:
    """Partial steps, a trial step that is undone, an early read, a fixed number of sweeps over one unit."""
    third = Fraction(1, 3)
    operations = (
        Couple("a"),
        Save("a"),
        Step("a"),
        Read("a"),
        Couple("b"),
        Restore("a"),
        Step("a", third),
        Read("a"),
        Couple("c"),
        Step("a", 2 * third),
        Save("b"),
        Repeat((Restore("b"), Couple("b"), Step("b"), Read("b")), 3),
        Step("c", third),
        Couple("c"),
        Read("c"),
        Step("c", 2 * third),
        Read("a"),
        Read("c"),
    )
    return Master("rolled back", Schedule(system.names, operations), STEP, Hold(0), MIXED)


MASTERS: dict[str, Callable[[System], Master]] = {
    "jacobi": lambda s: masters.jacobi(s, STEP, couplings=MIXED),
    "early read": lambda s: masters.jacobi_early_read(s, STEP, couplings=MIXED),
    "seidel": lambda s: masters.gauss_seidel(s, STEP, order=["b", "c", "a"], couplings=MIXED),
    "groups": lambda s: masters.groups(s, STEP, order=[["c"], ["a", "b"]], couplings=MIXED),
    "strang": lambda s: masters.strang(s, STEP, order=["c", "a", "b"], couplings=MIXED),
    "multirate held": lambda s: masters.multirate(s, STEP, multiples={"a": 2, "b": 3}, couplings=MIXED),
    "multirate interpolated": lambda s: masters.multirate(
        s, STEP, multiples={"b": 2}, inputs="interpolated", couplings=MIXED
    ),
    "three sweeps": lambda s: masters.iterative(s, STEP, sweeps=3, couplings=MIXED),
    "until converged": lambda s: masters.iterative(s, STEP, couplings=MIXED),
    "until converged, seidel": lambda s: masters.iterative(
        s, STEP, sweeps=Convergence(1e-13), order=["a", "b", "c"], couplings=MIXED
    ),
    "rolled back": rolled_back,
}


@pytest.fixture(params=MASTERS)
def make_master(request: pytest.FixtureRequest) -> Callable[[System], Master]:
    """Every master in turn."""
    return MASTERS[request.param]


@pytest.fixture
def make_system() -> Build:
    return build


@pytest.fixture
def chain() -> Callable[[int], System]:
    """n masses in a row, each a unit, joined by spring forces."""

    def make(n: int) -> System:
        spring = {"displacement": 1.0, "inputs": ["left", "right"], "outputs": ["x"], "start": {"left": 0, "right": 0}}
        units = {
            f"m{i}": Mechanical(
                1.0, 0.4, 3.0, B=[[1.0, 1.0]], initial=[float(i == 0), 0.0], integrator=Exact(), **spring
            )  # type: ignore[arg-type]
            for i in range(n)
        }
        forward = [(f"m{i}.x", f"m{i + 1}.left") for i in range(n - 1)]
        back = [(f"m{i + 1}.x", f"m{i}.right") for i in range(n - 1)]
        return System(units, [*forward, *back])

    return make
