"""The compiled library against the live Python unit: the same trajectories, states, derivatives, and refusals."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path

import fmpy
import numpy as np
import pytest
from fmpy.fmi1 import FMICallException

sys.path.insert(0, str(Path(__file__).parent))
from exported import Exported, many_sided, oscillator

from cosimo.units import Exact, ForwardEuler, RungeKutta4, StateSpace, SymplecticEuler

BOTH = pytest.mark.parametrize("fmi", [2, 3])


def signal(time: float, count: int) -> np.ndarray:
    return np.array([np.sin(2 * time + i) for i in range(count)])


def assert_same_run(unit, live: Exported, durations) -> None:
    """Step both through `durations` under a varying input and compare all outputs."""
    instance, time = unit.instantiate(), 0.0
    for duration in durations:
        values = signal(time, len(unit.inputs))
        instance.set_input(values[None, :], 1.0)
        live.set_inputs(values)
        np.testing.assert_allclose(live.get(), instance.read(), rtol=1e-12, atol=1e-13)
        instance.step(time, duration)
        live.step(time, duration)
        time += duration
        np.testing.assert_allclose(live.get(), instance.read(), rtol=1e-12, atol=1e-13)


@BOTH
@pytest.mark.parametrize("micro_steps", [1, 2, 7])
@pytest.mark.parametrize("integrator", [Exact(), ForwardEuler(), RungeKutta4()])
@pytest.mark.one_in(5)
def test_state_space_runs_alike(tmp_path, fmi, integrator, micro_steps):
    unit = many_sided(integrator, micro_steps)
    live = Exported(unit, tmp_path, fmi=fmi)
    live.initialise()
    assert_same_run(unit, live, [0.05] * 40)


@BOTH
@pytest.mark.parametrize("integrator", [SymplecticEuler(), Exact(), RungeKutta4(), ForwardEuler()])
def test_mechanical_runs_alike(tmp_path, fmi, integrator):
    unit = oscillator(integrator, 5)
    live = Exported(unit, tmp_path, fmi=fmi)
    live.initialise()
    assert_same_run(unit, live, [0.02] * 50)


@BOTH
def test_step_sizes_may_vary_beyond_what_is_remembered(tmp_path, fmi):
    unit = many_sided(Exact(), 1)
    live = Exported(unit, tmp_path, fmi=fmi)
    live.initialise()
    assert_same_run(unit, live, [0.01 * (1 + k % 11) for k in range(40)])


def test_unit_without_states_or_inputs(tmp_path):
    gain = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), [[3.0]])
    live = Exported(gain, tmp_path, fmi=2)
    live.initialise(u1=2.0)
    live.step(0.0, 0.1)
    assert live.get() == [6.0]
    decay = StateSpace(-1.0, np.zeros((1, 0)), 1.0, np.zeros((1, 0)), initial=1.0)
    live = Exported(decay, tmp_path, fmi=3)
    live.initialise()
    live.step(0.0, 2.0)
    assert live.get()[0] == pytest.approx(np.exp(-2.0), rel=2e-16)


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("integrator", [Exact(), ForwardEuler(), RungeKutta4()])
def test_input_derivatives(tmp_path, integrator, degree):
    unit = many_sided(integrator, 3)
    live, instance, h = Exported(unit, tmp_path, fmi=2), unit.instantiate(), 0.1
    live.initialise()
    for k in range(20):
        value, slope, bend = signal(k * h, 2), signal(k * h + 1, 2), signal(k * h + 2, 2)
        instance.set_input(np.array([value, slope * h, bend * h**2 / 2])[: degree + 1], h)
        live.set_inputs(value)
        live.set_derivatives(1, slope)
        if degree == 2:
            live.set_derivatives(2, bend)
        instance.step(k * h, h)
        live.step(k * h, h)
        np.testing.assert_allclose(live.get(), instance.read(), rtol=1e-12, atol=1e-13)


def test_derivatives_hold_for_one_step_and_leave_the_input_where_they_led(tmp_path):
    live = Exported(oscillator(Exact()), tmp_path, fmi=2)
    live.initialise(force=1.0)
    live.set_derivatives(1, [4.0])
    live.set_derivatives(2, [-2.0])
    live.step(0.0, 0.5)
    assert live.get("force") == pytest.approx(1.0 + 4.0 * 0.5 - 0.5**2, rel=1e-15)
    live.step(0.5, 0.5)
    assert live.get("force") == pytest.approx(2.75, rel=1e-15)


def test_exact_flow_is_right_to_the_last_digits(tmp_path):
    # A stiff, undamped spring: K / M = 1e8, ten radians per step; scaling by the norm of A alone would lose digits.
    omega, h = 1e4, 1e-3
    unit = StateSpace([[0, 1], [-(omega**2), 0]], [[0], [1]], np.eye(2))
    for state, wanted in ((1.0, np.cos(omega * h)), (0.0, np.sin(omega * h) / omega)):
        live = Exported(unit, tmp_path, fmi=2)
        live.initialise(x1=state, x2=1.0 - state)
        live.step(0.0, h)
        assert live.get()[0] == pytest.approx(wanted, rel=1e-15)


@BOTH
def test_saved_and_serialised_states_continue_alike(tmp_path, fmi):
    live = Exported(many_sided(RungeKutta4(), 2), tmp_path, fmi=fmi)
    live.initialise()
    live.set_inputs([1.0, -1.0])
    live.step(0.0, 0.1)
    state = live.fmu.getFMUState()
    take = live.fmu.serializeFMUstate if fmi == 2 else live.fmu.serializeFMUState
    put = live.fmu.deSerializeFMUstate if fmi == 2 else live.fmu.deserializeFMUState
    content = take(state)
    live.step(0.1, 0.1)
    wanted = live.get()
    live.fmu.setFMUState(state)
    assert not np.array_equal(live.get(), wanted)
    live.set_inputs([5.0, 5.0])
    live.fmu.setFMUState(state)
    live.step(0.1, 0.1)
    assert np.array_equal(live.get(), wanted)
    live.fmu.reset()
    live.initialise()
    again = put(content)
    live.fmu.setFMUState(again)
    live.step(0.1, 0.1)
    assert np.array_equal(live.get(), wanted)
    for one in (state, again):
        live.fmu.freeFMUState(one)
    with pytest.raises(FMICallException):
        put(content[:-8])
    damaged = put(b"x" + content[1:])
    with pytest.raises(FMICallException):
        live.fmu.setFMUState(damaged)
    assert "does not belong to this unit" in live.messages[-1]


@BOTH
def test_derivatives_of_outputs_and_states(tmp_path, fmi):
    unit = many_sided(Exact(), 1)
    live, model = Exported(unit, tmp_path, fmi=fmi), unit.linear()
    live.initialise()
    states = [f"x{i}" for i in range(1, 6)]
    slopes = [f"der({state})" for state in states]
    assert np.array_equal(live.jacobian(unit.outputs, unit.inputs), model.D)
    assert np.array_equal(live.jacobian(unit.outputs, states), model.C)
    assert np.array_equal(live.jacobian(slopes, states), model.A)
    assert np.array_equal(live.jacobian(slopes, unit.inputs), model.B)
    # Against differences of what the unit really puts out.
    before = live.get(*unit.outputs, *slopes)
    live.set(u2=live.get("u2")[0] + 1.0)
    difference = live.get(*unit.outputs, *slopes) - before
    np.testing.assert_allclose(
        live.jacobian([*unit.outputs, *slopes], ["u2"])[:, 0], difference, rtol=1e-12, atol=1e-13
    )
    if fmi == 3:
        seed = [1.0, -2.0, 0.5]
        found = live.fmu.getAdjointDerivative(live.refer(unit.outputs), live.refer(states), seed, len(states))
        np.testing.assert_allclose(found, model.C.T @ seed, rtol=1e-14)
    with pytest.raises(FMICallException):
        live.jacobian(states, unit.inputs)
    with pytest.raises(FMICallException):
        live.jacobian(unit.outputs, slopes)


@BOTH
def test_instances_are_independent_and_reset_starts_over(tmp_path, fmi):
    unit = oscillator()
    live = Exported(unit, tmp_path, fmi=fmi)
    first, second = live.fmu, live.another(live.description.guid)
    assert live.get("position") == [1.0]
    live.initialise(q1=3.0)
    live.step(0.0, 0.1)
    moved = live.get("position")
    live.fmu = second
    live.initialise()
    assert live.get("position") == [1.0]
    live.fmu = first
    assert np.array_equal(live.get("position"), moved)
    first.reset()
    assert live.get("position") == [1.0]
    if fmi == 3:
        assert live.get("time") == [0.0]


@BOTH
def test_folders_with_spaces_and_umlauts(tmp_path, fmi):
    folder = tmp_path / "Träger & 100 % Öl #1"
    folder.mkdir()
    live = Exported(oscillator(), folder, fmi=fmi)
    assert live.get("position") == [1.0]


def test_resource_locations_in_the_wild(tmp_path):
    live = Exported(oscillator(), tmp_path, fmi=2)
    path = (live.folder / "resources").as_posix()
    encoded = path.replace(" ", "%20")
    good = [f"file://{encoded}", f"file:{encoded}", f"file://localhost{encoded}/", path, f"file:///{encoded[1:]}"]
    bad = [f"file://elsewhere{encoded}", f"http://{encoded}", "", f"file://{path}/missing"]
    instantiate = ctypes.CDLL(str(next(live.folder.glob("binaries/*/*.so")))).fmi2Instantiate
    instantiate.restype = ctypes.c_void_p
    for location in good + bad:
        made = instantiate(
            b"i", 1, live.description.guid.encode(), location.encode(), ctypes.byref(live.fmu.callbacks), 0, 0
        )
        assert (made is not None) == (location in good), location
    assert len(live.messages) == len(bad)


@BOTH
def test_wrong_token_is_refused(tmp_path, fmi):
    live = Exported(oscillator(), tmp_path, fmi=fmi)
    with pytest.raises(Exception, match="Failed to instantiate"):
        live.another("{00000000-0000-0000-0000-000000000000}")
    assert "token" in live.messages[-1]
    assert live.description.guid in live.messages[-1]


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"!")


def scramble(path: Path) -> None:
    path.write_bytes(b"something else entirely" * 10)


@BOTH
@pytest.mark.parametrize(
    ("damage", "message"),
    [(Path.unlink, "cannot open"), (shorten, "damaged"), (lengthen, "damaged"), (scramble, "damaged")],
)
def test_missing_or_damaged_matrices(tmp_path, fmi, damage, message, capsys):
    live = Exported(oscillator(), tmp_path, fmi=fmi)
    damage(live.folder / "resources" / "unit.bin")
    with pytest.raises(Exception, match="Failed to instantiate"):
        live.another(live.description.guid)
    assert message in live.messages[-1]
    assert "unit.bin" in live.messages[-1]


@BOTH
def test_refusals_say_why(tmp_path, fmi):
    live = Exported(oscillator(), tmp_path, fmi=fmi)
    with pytest.raises(FMICallException):
        live.step(0.0, 0.1)
    live.initialise()

    def refused(reason: str, call, *arguments, **named) -> None:
        with pytest.raises(FMICallException):
            call(*arguments, **named)
        assert reason in live.messages[-1]

    get, typed = (live.fmu.getReal, live.fmu.getInteger) if fmi == 2 else (live.fmu.getFloat64, live.fmu.getInt32)
    refused("is a state", live.set, q1=0.0)
    refused("cannot be set", live.set, position=0.0)
    refused("not a variable", get, [99])
    refused("all variables are", typed, [0])
    refused("must be positive", live.step, 0.0, 0.0)
    refused("must be positive", live.step, 0.0, float("nan"))
    live.fmu.terminate()
    refused("not terminated", live.step, 0.0, 0.1)
    if fmi == 2:
        refused("order 1 and 2", live.set_derivatives, 3, [0.0])


def test_step_beyond_the_largest_number_is_refused(tmp_path):
    live = Exported(StateSpace(1.0, 1.0, 1.0, initial=1.0), tmp_path, fmi=2)
    live.initialise()
    with pytest.raises(FMICallException):
        live.step(0.0, 1e6)
    assert "smaller step" in live.messages[-1]
    live.step(0.0, 1.0)
    assert live.get()[0] == pytest.approx(np.e, rel=2e-16)


@pytest.mark.parametrize("fmi", [2, 3])
def test_every_function_of_the_standard_is_there(tmp_path, fmi):
    header = Path(fmpy.__file__).parent / "c-code" / f"fmi{fmi}FunctionTypes.h"
    names = set(re.findall(rf"\b(fmi{fmi}\w+)TYPE\b", header.read_text())) - {f"fmi{fmi}Callback"}
    functions = {name for name in names if not name.startswith(f"fmi{fmi}Callback")}
    assert len(functions) > 40
    live = Exported(oscillator(), tmp_path, fmi=fmi)
    library = ctypes.CDLL(str(next(live.folder.glob("binaries/*/*.so"))))
    assert [name for name in sorted(functions) if not hasattr(library, name)] == []


@BOTH
def test_every_function_has_the_signature_of_the_standard(tmp_path, fmi):
    """The compiler sees the official declarations, which FMPy carries, in the place of ours."""
    sources = Path(__file__).parents[2] / "src" / "fmu"
    ours = [line for line in (sources / f"fmi{fmi}.h").read_text().splitlines() if re.match(r"\w+ \w+\(", line)]
    assert len(ours) == 2
    header = tmp_path / "official.h"
    header.write_text("\n".join([f'#include "fmi{fmi}Functions.h"', *ours, ""]))
    official = Path(fmpy.__file__).parent / "c-code"
    for source in (f"fmi{fmi}.c", f"fmi{fmi}_unsupported.c"):
        command = ["cc", "-fsyntax-only", f"-DCOSIMO_FMI{fmi}_H", "-include", header, "-I", official, sources / source]
        subprocess.run(command, check=True)
