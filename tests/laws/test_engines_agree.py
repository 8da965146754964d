"""The law of the kernel: it gives the bits of the plain interpreter, for every unit, coupling and master."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thinning import examples

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build
from native_units import exported, lag, mixed, require_same
from random_systems import cases, couplings, systems

from cosimo import masters
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Couple, Operation, Read, Repeat, Restore, Save, Schedule, Step
from cosimo.core.system import Connection, System, Table
from cosimo.core.unit import Instance, Unit
from cosimo.couplings import Hold, Nepce
from cosimo.problems import chain, two_mass
from cosimo.units import Fmu, Mechanical, PythonUnit, StateSpace

ACCELERATED: list[dict[str, Any]] = [{}, {"anderson": 1}, {"anderson": 3}, {"quasi_newton": 2}, {"quasi_newton": 9}]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


# ---- linear units ----------------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), suppress_health_check=SLOW)
@given(cases(), st.sampled_from([0.0, 3.7, -1.25]))
def test_linear_units_under_any_schedule(case: tuple[System, Master], start: float) -> None:
    system, master = case
    require_same(system, master, steps=6, start=start)


@settings(max_examples=examples(25), suppress_health_check=SLOW)
@given(systems(), couplings(), st.sampled_from(ACCELERATED), st.booleans(), st.booleans())
def test_iterations_until_convergence(
    system: System, coupling: Any, accelerated: dict[str, Any], ordered: bool, warm: bool
) -> None:
    p = len(system.outputs)
    if warm and "quasi_newton" in accelerated:
        guess = tuple(tuple(0.3 * np.cos(i + 2.0 * j) / p for j in range(p)) for i in range(p))
        accelerated = accelerated | {"jacobian": guess}
    until = Convergence(tolerance=1e-9, limit=12, **accelerated)
    order = system.names[::-1] if ordered else None
    master = masters.iterative(system, 0.05, sweeps=until, order=order, coupling=coupling)
    result = require_same(system, master, steps=4)
    assert result.info["sweeps"] >= 4


# ---- every kind of unit in one ring ----------------------------------------------------------------------------------


class Plain:
    """Attributes in and out, a Python number as well as a NumPy one."""

    inputs, outputs = ("u",), ("y", "twice")

    def __init__(self) -> None:
        self.y, self.twice = 0.3, np.float64(0.6)

    def step(self, time: float, duration: float) -> None:
        self.y += duration * (self.u - self.y + np.sin(time))
        self.twice = np.float64(2 * self.y)


class Computed:
    """Outputs are properties: one a whole number, one with direct feedthrough from an input."""

    inputs, outputs = {"u": 0.5, "v": -0.0}, ("sign", "mix")

    def __init__(self) -> None:
        self._x = 0.2

    def step(self, time: float, duration: float) -> None:
        self._x += duration * (self.u - 2 * self._x)

    @property
    def sign(self) -> int:
        return 1 if self._x > 0 else -1

    @property
    def mix(self) -> float:
        return self._x + 0.1 * self.v


class Keeper(Plain):
    """Saves and restores itself."""

    def save(self) -> float:
        return self.y

    def restore(self, state: float) -> None:
        self.y, self.twice = state, np.float64(2 * state)


class Quadratic(Unit):
    """A unit of its own kind, known to the kernel by its contract alone; takes inputs of any degree asked for."""

    inputs, outputs, start = ("u", "v"), ("y", "slope"), {"v": 0.0}

    def __init__(self, degree: int) -> None:
        self.input_degree = degree

    def instantiate(self, start_time: float = 0.0) -> Instance:
        return QuadraticInstance(start_time)

    def feedthrough(self) -> BoolArray:
        return np.array([[False, False], [True, False]])


class QuadraticInstance(Instance):
    def __init__(self, start_time: float) -> None:
        self.x, self.c, self.h, self.begun = 0.4, np.zeros((1, 2)), 1.0, start_time

    def set_input(self, coefficients: Array, h: float) -> None:
        self.c, self.h, self.begun = coefficients, h, None  # type: ignore[assignment]

    def step(self, time: float, duration: float) -> None:
        self.begun = time if self.begun is None else self.begun
        middle = (time + duration / 2 - self.begun) / self.h
        u, v = (sum(float(c) * middle**j for j, c in enumerate(column)) for column in self.c.T)
        self.x += duration * (u - self.x * abs(self.x) + 0.1 * v)

    def read(self) -> Array:
        return np.array([self.x, 0.05 * float(self.c[0, 0]) - self.x])

    def save(self) -> Any:
        return self.x, self.c.copy(), self.h, self.begun

    def restore(self, state: Any) -> None:
        self.x, self.c, self.h, self.begun = state


def ring() -> System:
    """Linear, mechanical, Python, native and foreign units; gains, offsets, functions and tables from outside."""
    units: dict[str, Unit] = {
        "tank": StateSpace([[-1.0, 0.5], [0.0, -2.0]], [[1.0, 0.0], [0.5, 1.0]], [[1.0, -1.0]], [[0.0, 0.2]]),
        "mass": Mechanical(1.0, 0.4, 3.0, B=1.0, displacement=1.0, acceleration=0.1, initial=[0.5, -0.0]),
        "plain": PythonUnit(Plain),
        "computed": PythonUnit(Computed),
        "keeper": PythonUnit(Keeper),
        "lag": lag(0.7),
        "mixed": mixed(),
        "foreign": Quadratic(0),
        "curved": Quadratic(2),
    }
    connections = [
        Connection("tank.y1", "mass.u1", gain=-0.5),
        Connection("mass.y1", "plain.u"),
        Connection("plain.y", "computed.u", gain=0.5, offset=0.25),
        Connection("computed.mix", "keeper.u"),
        Connection("keeper.twice", "lag.u", offset=-0.1),
        Connection("lag.y", "mixed.u"),
        Connection("mixed.z", "foreign.u"),
        Connection("foreign.slope", "curved.u"),
        Connection("curved.y", "tank.u1"),
        Connection("computed.sign", "curved.v", gain=0.01),
        Connection("mixed.y", "computed.v", gain=-1.0),
    ]
    table = Table(np.linspace(-5.0, 5.0, 21), np.sin(np.arange(21.0)))
    return System(units, connections, inputs={"tank.u2": lambda t: np.cos(3 * t), "mixed.v": table})


@pytest.mark.parametrize("interpolation", ["linear", "hold"])
@pytest.mark.parametrize("degree", [0, 1, 2])
def test_a_table_that_jumps(interpolation: Any, degree: int) -> None:
    """x' = u with a jump of u between two macro steps, and one in the middle of a macro step."""
    table = Table([0.0, 0.5, 0.5, 0.825, 0.825, 2.0], [0.0, 1.0, 3.0, 3.0, -1.0, 0.5], interpolation=interpolation)
    system = System({"a": StateSpace(0.0, 1.0, 1.0)}, inputs={"a.u1": table})
    master = masters.jacobi(system, 0.25, coupling=Hold(degree))
    result = require_same(system, master, steps=8)
    if degree == 0:  # each step takes its value at the start: at 0.5 that after the jump
        wanted = [table(0.25 * k) for k in range(8)]
        assert wanted[2] == 3.0
        assert np.diff(result["a.y1"]) == pytest.approx(0.25 * np.array(wanted), abs=1e-14)


RING = ring()
MULTIPLES = {"tank": 2, "plain": 3, "curved": 2, "mixed": 3}


def _masters() -> dict[str, Any]:
    names = RING.names
    until = {a: Convergence(1e-11, limit=15, anderson=a) for a in (0, 1, 4)}
    return {
        "jacobi": lambda c: masters.jacobi(RING, 0.05, coupling=c),
        "early read": lambda c: masters.jacobi_early_read(RING, 0.05, coupling=c),
        "gauss-seidel": lambda c: masters.gauss_seidel(RING, 0.05, order=names[::-1], coupling=c),
        "groups": lambda c: masters.groups(RING, 0.05, order=[names[4:], names[:4]], coupling=c),
        "strang": lambda c: masters.strang(RING, 0.05, order=[names[4:], names[:4]], coupling=c),
        "held": lambda c: masters.multirate(RING, 0.02, multiples=MULTIPLES, coupling=c),
        "interpolated": lambda c: masters.multirate(RING, 0.02, multiples=MULTIPLES, inputs="interpolated", coupling=c),
        "three sweeps": lambda c: masters.iterative(RING, 0.05, sweeps=3, coupling=c),
        "converged": lambda c: masters.iterative(RING, 0.05, sweeps=until[0], order=names, coupling=c),
        "anderson 1": lambda c: masters.iterative(RING, 0.05, sweeps=until[1], coupling=c),
        "waveform": lambda c: masters.iterative(RING, 0.05, sweeps=until[0], samples=2, coupling=c),
        "quasi-newton": lambda c: masters.iterative(
            RING, 0.05, sweeps=Convergence(1e-11, 15, quasi_newton=6), coupling=c
        ),
        "anderson 4": lambda c: masters.iterative(RING, 0.05, sweeps=until[4], order=names, coupling=c),
    }


@pytest.mark.one_in(3)
@pytest.mark.parametrize("coupling", [Hold(0), Hold(1), Hold(2), Hold(1, substeps=3), Hold(3), Nepce(0.3)], ids=str)
@pytest.mark.parametrize("kind", _masters())
@pytest.mark.one_in(3)
def test_all_kinds_of_units_under_every_master(kind: str, coupling: Any) -> None:
    require_same(RING, _masters()[kind](coupling), steps=10, start=0.5)


def test_couplings_of_single_inputs() -> None:
    chosen = {"tank.u1": Hold(2), "tank.u2": Hold(1), "mixed.v": Hold(2), "curved.u": Hold(1), "foreign.u": Nepce(0.5)}
    for master in (masters.jacobi, masters.gauss_seidel):
        require_same(RING, master(RING, 0.05, coupling=Hold(0), couplings=chosen), steps=10)


# ---- FMUs ------------------------------------------------------------------------------------------------------------


def _problem(name: str) -> System:
    driven = {"driven": StateSpace([[0.0, 1.0], [-4.0, -0.2]], [[0.0], [1.0]], np.eye(2))}
    return {"two-mass": two_mass(), "chain": chain(n=3)}.get(name) or System(driven, inputs={"driven.u1": np.sin})


@pytest.mark.parametrize("coupling", [Hold(0), Hold(1), Hold(2), Nepce(0.2)], ids=["hold0", "hold1", "hold2", "nepce"])
@pytest.mark.parametrize("name", ["two-mass", "chain", "driven"])
@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.one_in(5)
def test_fmus_under_every_master(fmi: int, name: str, coupling: Any, tmp_path: Path) -> None:
    system = exported(_problem(name), tmp_path, fmi=fmi)
    first, last = system.names[0], system.names[-1]
    options: dict[str, Any] = {"coupling": coupling}
    until = Convergence(1e-9, limit=8, anderson=2)
    for master in (
        masters.jacobi(system, 1e-3, **options),
        masters.jacobi_early_read(system, 1e-3, **options),
        masters.gauss_seidel(system, 1e-3, order=system.names[::-1], **options),
        masters.multirate(system, 1e-3, multiples={first: 2}, **options),
        masters.multirate(system, 1e-3, multiples={last: 3}, inputs="interpolated", **options),
        masters.iterative(system, 1e-3, sweeps=2, **options),
        masters.iterative(system, 1e-3, sweeps=until, **options),
        masters.iterative(system, 1e-3, sweeps=Convergence(1e-9, limit=8, quasi_newton=5), **options),
    ):
        require_same(system, master, steps=8, start=0.25)


@pytest.mark.parametrize("fmi", [2, 3])
def test_fmus_beside_other_units(fmi: int, tmp_path: Path) -> None:
    masses = exported(two_mass(), tmp_path, fmi=fmi)
    units = {**masses.units, "plain": PythonUnit(Plain), "lag": lag(), "curved": Quadratic(1)}
    more = [Connection("two.x", "plain.u"), Connection("plain.y", "lag.u"), Connection("lag.y", "curved.u", gain=0.1)]
    system = System(units, [*masses.connections, *more])
    for coupling in (Hold(0), Hold(1)):
        require_same(system, masters.jacobi(system, 1e-3, coupling=coupling))
        require_same(system, masters.iterative(system, 1e-3, coupling=coupling))
        require_same(system, masters.multirate(system, 1e-3, multiples={"one": 2, "lag": 2}, coupling=coupling))


@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_fmus_that_step_twice_on_one_input_and_go_back_in_between(fmi: int, order: int, tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=fmi)
    half = Fraction(1, 2)
    body: tuple[Operation, ...] = (Restore("one"), Step("one", half), Read("one"))
    operations: tuple[Operation, ...] = (
        *map(Couple, system.names),
        *(op for name in system.names for op in (Step(name, half), Read(name))),
        *(Save("one"), Repeat(body, 3), Couple("two"), Step("two", half)),
        *map(Read, system.names),
    )
    require_same(system, Master("halves", Schedule(system.names, operations), 1e-3, Hold(order), {}), steps=20)


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("name", ["feedthrough2", "feedthrough3", "arrays3", "events3"])
def test_fmus_with_other_types_and_events(name: str, texts: bool, tmp_path: Path) -> None:
    """Numbers in the kernel itself; where there are texts, through the contract of units."""
    fmu = Fmu(build(tmp_path, name))
    fmu.text_outputs = fmu.text_outputs if texts else {}
    system = System({"f": fmu}, inputs={f"f.{fmu.inputs[0]}": lambda t: float(t > 0.3)})
    require_same(system, masters.jacobi(system, 0.125), steps=16)
