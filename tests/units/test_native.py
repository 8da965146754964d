"""Units given by C functions: their contract, and what compiled code leaves in them."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from native_units import KERNEL, REFERENCE, address, lag, mixed

from cosimo import masters
from cosimo.core.errors import ConfigurationError, DimensionError, UnitError
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.units.native import OUTPUT, STEP, BadStatus, NativeUnit


def test_the_description() -> None:
    unit = mixed()
    assert (unit.inputs, unit.outputs, unit.start) == (("u", "v"), ("y", "z"), {"v": 0.1})
    assert unit.input_degree == 0
    assert unit.can_restore
    assert unit.linear() is None


def test_outputs_feed_through_where_there_is_a_function_for_them() -> None:
    assert mixed().feedthrough().tolist() == [[True, True], [True, True]]
    assert lag().feedthrough().tolist() == [[False]]


def test_a_step_and_what_it_leaves() -> None:
    live = lag(1.0).instantiate()
    assert live.read().tolist() == [1.0]
    live.set_input(np.array([[3.0]]), 0.1)
    live.step(0.0, 0.5)
    assert live.read().tolist() == [2.0]


def test_outputs_are_computed_with_the_input_and_time_of_now() -> None:
    live = mixed(1.0, -0.5).instantiate(start_time=2.0)
    live.set_input(np.array([[4.0, 10.0]]), 0.1)
    assert live.read() == pytest.approx([1.0 + 1.0, -0.5 - 0.4 + 0.02])
    live.step(2.0, 0.5)
    state = (1.0 + 0.5 * (4.0 + 0.25), 0.0)
    state = (state[0], -0.5 + 0.5 * (state[0] + np.sin(2.0) - 10.0))
    assert live.read() == pytest.approx([state[0] + 1.0, state[1] - 0.4 + 0.025])


def test_save_and_restore_many_times() -> None:
    live = mixed().instantiate()
    live.set_input(np.array([[1.0, 2.0]]), 0.1)
    live.step(0.0, 0.1)
    saved, there = live.save(), live.read()
    for _ in range(2):
        live.set_input(np.array([[-5.0, 7.0]]), 0.1)
        live.step(0.1, 0.1)
        assert not np.array_equal(live.read(), there)
        live.restore(saved)
        assert np.array_equal(live.read(), there)


def test_instances_share_nothing() -> None:
    unit = lag(1.0)
    first, second = unit.instantiate(), unit.instantiate()
    first.step(0.0, 0.5)
    assert second.read().tolist() == [1.0]
    assert unit.instantiate().read().tolist() == [1.0]
    outputs = second.read()
    outputs[:] = 9.0
    assert second.read().tolist() == [1.0]


def test_a_status_other_than_0() -> None:
    live = lag(step="refusing_step", settings=(7.0, 0.0)).instantiate()
    with pytest.raises(BadStatus, match="its function returned 7"):
        live.step(0.0, 0.1)


@pytest.mark.parametrize("engine", [KERNEL, REFERENCE])
def test_python_callbacks_serve_as_compiled_functions(engine: Any) -> None:
    """Any function with this signature will do, such as one that a compiler for Python makes; u feeds through here."""

    @STEP
    def step(time: float, duration: float, x: Any, u: Any, y: Any) -> int:
        x[0] += duration * u[0]
        return 0

    @OUTPUT
    def output(time: float, x: Any, u: Any, y: Any) -> int:
        y[0] = x[0] + u[0] + time
        return 0

    where = [ctypes.cast(function, ctypes.c_void_p).value for function in (step, output)]
    unit = NativeUnit(*where, inputs=["u"], outputs=["y"], initial=0.0)  # type: ignore[arg-type]
    system = System({"sum": unit}, inputs={"sum.u": lambda t: 2.0})
    result = run(system, masters.jacobi(system, 0.5), start=1.0, stop=3.0, engine=engine)
    assert result["sum.y"].tolist() == [3.0, 4.5, 6.0, 7.5, 9.0]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((0,), {}, ConfigurationError, "needs the address of its step function"),
        ((1,), {"initial_outputs": [1.0, 2.0]}, DimensionError, "initial_outputs is"),
        ((1,), {"initial_outputs": [np.nan]}, ConfigurationError, "initial_outputs holds a non-finite number"),
        ((1,), {"inputs": ["u", "u"]}, ConfigurationError, "inputs u, u .*not all different"),
        ((1,), {"outputs": ["y", "y"]}, ConfigurationError, "outputs y, y .*not all different"),
    ],
)
def test_wrong_descriptions(arguments: Any, options: dict[str, Any], error: type, message: str) -> None:
    given: dict[str, Any] = {"inputs": ["u"], "outputs": ["y"], "initial": [0.0]}
    with pytest.raises(error, match=message):
        NativeUnit(*arguments, **given | options)


def test_the_initial_state_is_copied() -> None:
    initial = np.array([1.0])
    unit = NativeUnit(address("lag_step"), inputs=["u"], outputs=["y"], initial=initial)
    initial[:] = 5.0
    live = unit.instantiate()
    live.step(0.0, 0.0)
    assert live.read().tolist() == [1.0]


def test_inputs_without_a_value_are_refused() -> None:
    unit = NativeUnit(address("lag_step"), inputs=["u"], outputs=["y"], initial=[0.0])
    with pytest.raises(ConfigurationError, match=r"lag\.u"):
        System({"lag": unit})


def test_a_refusal_in_a_run_names_unit_and_time() -> None:
    system = System({"valve": lag(step="refusing_step", settings=(2.0, 0.3))})
    with pytest.raises(UnitError, match=r"unit 'valve' failed at t = 0\.3 while being stepped: .* returned 2"):
        run(system, masters.jacobi(system, 0.1), stop=1.0)
