"""Consistent outputs at the start, with and without algebraic loops."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.core.errors import AlgebraicLoopError, NonFiniteError
from cosimo.core.result import Result
from cosimo.core.system import Connection, System
from cosimo.execution import live
from cosimo.execution.running import run
from cosimo.units import PythonUnit, StateSpace


def unit(gain: float, state: float = 1.0) -> StateSpace:
    """y = x + gain·u."""
    return StateSpace(-1.0, 1.0, 1.0, gain, initial=state)


def loop(first: float, second: float, offset: float = 0.0) -> System:
    """y1 = 1 + first·y2 and y2 = 2 + second·(y1 + offset) at the start."""
    return System(
        {"one": unit(first, 1.0), "two": unit(second, 2.0)},
        [("two.y1", "one.u1"), Connection("one.y1", "two.u1", offset=offset)],
    )


def start(system: System) -> Result:
    return run(system, masters.jacobi(system, 0.1), stop=0.1, record="all")


def solve(first: float, second: float, offset: float = 0.0) -> list[float]:
    return np.linalg.solve([[1.0, -first], [-second, 1.0]], [1.0, 2.0 + second * offset]).tolist()


# ---- loops that can be solved --------------------------------------------------------------------------------------

CASES = [
    (0.5, 0.5),  # contracts
    (0.5, -0.5),
    (0.9, 0.99),  # contracts, too slowly to wait for
    (2.0, 3.0),  # gain product above 1: substitution diverges
    (-30.0, 40.0),
    (1.0, -1.0),  # substitution goes in circles
    (1e3, -2e3),
    (1.0, 1.0 + 1e-4),  # nearly singular
]


@pytest.mark.parametrize(("first", "second"), CASES)
def test_outputs_solve_the_loop(first: float, second: float) -> None:
    result = start(loop(first, second, offset=0.25))
    expected = solve(first, second, 0.25)
    scale = max(map(abs, expected)) * np.linalg.cond([[1.0, -first], [-second, 1.0]])
    assert result.values[0, :2] == pytest.approx(expected, abs=1e-13 * scale + 1e-12)
    # Inputs agree with the outputs they are formed from.
    assert result["one.u1"][0] == pytest.approx(result["two.y1"][0], rel=1e-12)
    assert result["two.u1"][0] == pytest.approx(result["one.y1"][0] + 0.25, rel=1e-12)


@pytest.mark.parametrize(("first", "second"), CASES)
def test_execution_and_algebra_start_alike(first: float, second: float) -> None:
    system = loop(first, second, offset=0.25)
    linear = LinearSystem(system, masters.jacobi(system, 0.1))
    expected = linear.outputs(linear.start()[:, None])[:, 0]
    assert start(system).values[0, :2] == pytest.approx(expected, rel=1e-9)


def test_newton_is_used_only_where_substitution_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    # One Newton step is enough to confirm what substitution has found, and not enough to find it.
    monkeypatch.setattr(live, "NEWTON", 1)
    start(loop(0.5, 0.5))
    with pytest.raises(AlgebraicLoopError, match=r"one\.y1, two\.y1 could not be solved for .* in 1 Newton steps"):
        start(loop(2.0, 3.0))


def test_a_unit_that_feeds_itself() -> None:
    system = System({"one": unit(3.0, 2.0)}, [("one.y1", "one.u1")])
    assert start(system)["one.y1"][0] == pytest.approx(2.0 / (1.0 - 3.0), abs=1e-12)


# ---- no loop -------------------------------------------------------------------------------------------------------


def test_a_chain_settles_whatever_the_order_of_its_units() -> None:
    names = [f"u{i}" for i in range(12)]
    for order in (names, names[::-1], names[::2] + names[1::2]):
        units = {name: unit(1.0, 1.0) for name in order}
        links = [(f"{a}.y1", f"{b}.u1") for a, b in pairwise(names)]
        result = start(System(units, links, inputs={"u0.u1": 5.0}))
        assert [result[f"{name}.y1"][0] for name in names] == [6.0 + i for i in range(12)]


def test_a_way_that_winds_through_two_units() -> None:
    """Each unit is passed many times, by other variables: no loop, and yet more than one pass."""
    n = 8
    a = StateSpace(-1.0, np.zeros((1, n)), np.zeros((n, 1)), np.eye(n))
    b = StateSpace(-1.0, np.zeros((1, n)), np.zeros((n, 1)), 2 * np.eye(n))
    links = [(f"a.y{i}", f"b.u{i}") for i in range(1, n + 1)] + [(f"b.y{i}", f"a.u{i + 1}") for i in range(1, n)]
    system = System({"b": b, "a": a}, links, inputs={"a.u1": 1.0})
    assert system.loops() == []
    result = start(system)
    assert [result[f"b.y{i}"][0] for i in range(1, n + 1)] == pytest.approx([2.0**i for i in range(1, n + 1)], rel=1e-9)


def test_external_inputs_count_from_the_start_time() -> None:
    system = System({"one": unit(2.0, 0.0)}, inputs={"one.u1": lambda t: t})
    assert run(system, masters.jacobi(system, 0.1), start=3.0, stop=3.1)["one.y1"][0] == 6.0


# ---- nonlinear loops ---------------------------------------------------------------------------------------------


class Soft:
    """y = 1 − 3·tanh(u): the loop through a unit gain has slope −3 at the origin."""

    inputs, outputs = ("u",), ("y",)

    @property
    def y(self) -> float:
        return 1.0 - 3.0 * float(np.tanh(self.u))  # type: ignore[attr-defined]

    def step(self, time: float, duration: float) -> None: ...


class Rootless(Soft):
    """y = u² + 1 has no fixed point."""

    @property
    def y(self) -> float:
        return float(self.u**2 + 1.0)  # type: ignore[attr-defined]


class Bent(Soft):
    """y = u − 5 arctan(u − 3): full Newton steps lead ever farther away from the solution 3."""

    @property
    def y(self) -> float:
        return float(self.u - 5.0 * np.arctan(self.u - 3.0))  # type: ignore[attr-defined]


class Poisoned(Soft):
    @property
    def y(self) -> float:
        return float("nan")


def closed(kind: type) -> System:
    gain = StateSpace([], [], [], 1.0, inputs=["u"], outputs=["y"])
    return System({"soft": PythonUnit(kind), "gain": gain}, [("soft.y", "gain.u"), ("gain.y", "soft.u")])


def test_a_nonlinear_python_loop() -> None:
    y = start(closed(Soft))["soft.y"][0]
    assert y == pytest.approx(1.0 - 3.0 * np.tanh(y), abs=1e-12)


def test_newton_steps_are_shortened_where_they_lead_astray() -> None:
    assert start(closed(Bent))["soft.y"][0] == pytest.approx(3.0, abs=1e-12)


def test_a_nonlinear_loop_without_solution_names_it_and_the_residual() -> None:
    told = r"soft\.y, gain\.y could not be solved for at the start .* \(residual \d\.\de[+-]\d\d\)"
    with pytest.raises(AlgebraicLoopError, match=told):
        start(closed(Rootless))


def test_nan_on_a_loop_is_the_units_fault_not_the_loops() -> None:
    with pytest.raises(NonFiniteError, match=r"soft\.y became nan at t = 0"):
        start(closed(Poisoned))


def test_nan_without_a_loop_is_named() -> None:
    class Broken:
        inputs, outputs = (), ("fine", "broken")
        fine, broken = 1.0, float("inf")

        def step(self, time: float, duration: float) -> None: ...

    with pytest.raises(NonFiniteError, match=r"unit\.broken became inf at t = 0"):
        start(System({"unit": PythonUnit(Broken)}))


# ---- loops without solution ----------------------------------------------------------------------------------------


def singular() -> System:
    """det(I − D L) = 1 − 2·½ = 0, between two innocent units."""
    units = {"before": unit(1.0), "one": unit(2.0), "two": unit(0.5), "after": unit(1.0)}
    links = [("one.y1", "two.u1"), ("two.y1", "one.u1"), ("two.y1", "after.u1")]
    return System(units, links, inputs={"before.u1": 0.0})


@pytest.mark.parametrize("way", ["run", "algebra"])
def test_a_singular_loop_names_its_variables(way: str) -> None:
    system = singular()
    master = masters.jacobi(system, 0.1)
    with pytest.raises(
        AlgebraicLoopError, match=r"one\.y1, two\.y1 has no unique solution: det\(I − D L\) = 0"
    ) as caught:
        run(system, master, stop=1.0) if way == "run" else LinearSystem(system, master).start()
    assert "before" not in str(caught.value)
    assert "after" not in str(caught.value)
    assert "remove one connection" in str(caught.value)


def test_a_singular_loop_of_one_unit() -> None:
    system = System({"one": unit(1.0)}, [("one.y1", "one.u1")])
    with pytest.raises(AlgebraicLoopError, match=r"one\.y1"):
        start(system)
    with pytest.raises(AlgebraicLoopError, match=r"one\.y1"):
        LinearSystem(system, masters.jacobi(system, 0.1)).start_map()


def test_a_singular_loop_at_rest_is_found_although_zero_satisfies_it() -> None:
    system = System({"one": unit(2.0, 0.0), "two": unit(0.5, 0.0)}, [("one.y1", "two.u1"), ("two.y1", "one.u1")])
    with pytest.raises(AlgebraicLoopError, match=r"one\.y1, two\.y1 has no unique solution"):
        start(system)
