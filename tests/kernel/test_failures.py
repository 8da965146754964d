"""What goes wrong in the kernel: the same words as the plain interpreter says, the rows so far, and nothing left."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
import fmu_builder
from fmu_builder import build
from native_units import KERNEL, REFERENCE, address, exported, lag

from cosimo import masters
from cosimo.core.errors import CosimoError, Interrupted, NonFiniteError, RunError, UnitError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import Instance, Unit
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.problems import two_mass
from cosimo.units import Fmu, NativeUnit, PythonUnit, StateSpace

Build = Callable[..., Master]


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """All extracted folders go here, and all must be gone after a test.

    After a fatal error an FMU stays loaded, as the standard wants: Windows does not remove its library then.
    """
    lag()  # whose library stays loaded
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    if sys.platform == "win32" and "atal" in request.node.name:
        assert len(list(folder.rglob("*.dll"))) == len(list(folder.iterdir())) == 2  # one of each engine
    else:
        assert list(folder.iterdir()) == []


def failures(system: System, build_master: Build, error: type[RunError], *, rows: int) -> str:
    """The message of both engines, after checking that it is one, and that the rows before it are the same."""
    caught = []
    for engine in (REFERENCE, KERNEL):
        with pytest.raises(error) as info:
            run(system, build_master(system, 0.1), stop=2.0, engine=engine)
        caught.append(info.value)
    oracle, ours = caught
    assert str(ours) == str(oracle)
    assert type(ours) is type(oracle)
    assert ours.result is not None
    assert oracle.result is not None
    assert len(ours.result) == rows
    assert not ours.result.complete
    assert np.array_equal(ours.result.to_numpy(), oracle.result.to_numpy())
    assert "\n" not in str(ours)
    return str(ours)


# ---- units in Python -------------------------------------------------------------------------------------------------


class Trouble:
    """Does `what` where `where` says, from t = 0.5 on."""

    inputs, outputs = {"u": 0.0}, ("y",)

    def __init__(self, where: str = "", what: Any = None) -> None:
        self._where, self._what, self._time, self._y = where, what, 0.0, 1.0

    def _do(self, where: str, otherwise: Any = None) -> Any:
        if where == self._where and self._time > 0.45:
            if isinstance(self._what, BaseException):
                raise self._what
            return self._what
        return otherwise

    def step(self, time: float, duration: float) -> None:
        self._time = time
        self._do("step")
        self._y *= 0.5
        self._time = time + duration

    @property
    def y(self) -> Any:
        return self._do("read", self._y)

    @property
    def u(self) -> float:
        return 0.0

    @u.setter
    def u(self, value: float) -> None:
        self._do("set")

    def save(self) -> Any:
        self._do("save")
        return self._y, self._time

    def restore(self, state: Any) -> None:
        self._do("restore")
        self._y, self._time = state


def troubled(where: str, what: Any) -> System:
    units: dict[str, Unit] = {"calm": lag(), "trouble": PythonUnit(Trouble, where=where, what=what)}
    return System(units, [("calm.y", "trouble.u")])


@pytest.mark.parametrize(
    ("where", "doing", "rows"),
    [("set", "given its inputs", 6), ("step", "stepped", 6), ("read", "read", 5), ("save", "saved", 6)],
)
def test_a_python_unit_that_raises(where: str, doing: str, rows: int) -> None:
    system = troubled(where, ValueError("no more fuel"))
    message = failures(system, masters.iterative if where == "save" else masters.jacobi, UnitError, rows=rows)
    at = "0.5"
    assert message == f"unit 'trouble' failed at t = {at} while being {doing}: ValueError: no more fuel."


def test_a_python_unit_that_cannot_be_restored() -> None:
    message = failures(troubled("restore", OSError("tape torn")), masters.iterative, UnitError, rows=5)
    assert "unit 'trouble' failed at t = 0.4 while being restored: OSError: tape torn." in message


def test_errors_of_ours_inside_a_python_unit_pass_with_the_name_of_the_unit() -> None:
    message = failures(troubled("step", UnitError("the solver gave up")), masters.jacobi, UnitError, rows=6)
    assert "trouble" in message
    assert "the solver gave up" in message


@pytest.mark.parametrize("value", [None, "a word", [1.0, 2.0], 1j])
def test_outputs_of_a_python_unit_that_are_no_numbers(value: Any) -> None:
    message = failures(troubled("read", value), masters.jacobi, UnitError, rows=5)
    cause = f"TypeError: output 'y' is {value!r}, not a number."
    assert message == f"unit 'trouble' failed at t = 0.5 while being read: {cause}"


@pytest.mark.parametrize("engine", [KERNEL, REFERENCE])
@pytest.mark.parametrize("where", ["set", "step", "read"])
def test_keyboard_interrupt_inside_a_python_unit(where: str, engine: Any) -> None:
    system = troubled(where, KeyboardInterrupt())
    with pytest.raises(Interrupted, match=r"interrupted at t = 0\.[45]") as caught:
        run(system, masters.jacobi(system, 0.1), stop=2.0, engine=engine)
    assert caught.value.result is not None
    assert len(caught.value.result) == (5 if where == "read" else 6)


class Foreign(Unit):
    """Its outputs are whatever `values` gives."""

    inputs, outputs, start = (), ("y", "z"), {}

    def __init__(self, values: Callable[[float], Any]) -> None:
        self.values = values

    def instantiate(self, start_time: float = 0.0) -> Instance:
        return ForeignInstance(self.values)

    def feedthrough(self) -> Any:
        return np.zeros((2, 0), dtype=bool)


class ForeignInstance(Instance):
    def __init__(self, values: Callable[[float], Any]) -> None:
        self.values, self.time = values, 0.0

    def set_input(self, coefficients: Any, h: float) -> None: ...

    def step(self, time: float, duration: float) -> None:
        self.time = time + duration

    def read(self) -> Any:
        return self.values(self.time)

    def save(self) -> Any:
        return self.time

    def restore(self, state: Any) -> None:
        self.time = state


@pytest.mark.parametrize("late", [np.array([1, 2]), np.array([1.0, 0.0, 2.0])[::2], np.array([1.0, 2.0], dtype="f4")])
def test_arrays_of_any_kind_from_a_foreign_unit(late: Any) -> None:
    system = System({"foreign": Foreign(lambda t: late if t > 0.45 else np.array([1.0, 2.0]))})
    for engine in (KERNEL, REFERENCE):
        result = run(system, masters.jacobi(system, 0.1), stop=1.0, engine=engine)
        assert result.values.tolist() == [[1.0, 2.0]] * 11


@pytest.mark.parametrize("late", [np.zeros(1), np.zeros(3), np.zeros((2, 2)), None, "words"])
def test_wrong_outputs_of_a_foreign_unit(late: Any) -> None:
    system = System({"foreign": Foreign(lambda t: late if t > 0.45 else np.array([1.0, 2.0]))})
    message = failures(system, masters.jacobi, UnitError, rows=5)
    assert message.startswith("unit 'foreign' failed at t = 0.5 while being read: ")
    assert "2" in message


# ---- values that are not finite --------------------------------------------------------------------------------------


def awkward(folder: Path, **parameters: float) -> Fmu:
    return Fmu(build(folder, "awkward2"), parameters=parameters)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["python", "native", "foreign"])
def test_values_that_are_not_finite(kind: str, value: float) -> None:
    units: dict[str, Unit] = {
        "python": PythonUnit(Trouble, where="read", what=value),
        "native": lag(step="broken_step", settings=(value, 0.4)),
        "foreign": Foreign(lambda t: np.array([1.0, value if t > 0.45 else 0.0])),
    }
    system = System({"calm": lag(), "broken": units[kind]})
    message = failures(system, masters.jacobi, NonFiniteError, rows=5)
    variable = "z" if kind == "foreign" else "y"
    assert message.startswith(f"broken.{variable} became {value} at t = 0.5; ")
    failures(system, masters.gauss_seidel, NonFiniteError, rows=5)


def test_linear_units_that_overflow() -> None:
    system = System({"calm": lag(), "wild": StateSpace(400.0, np.zeros((1, 0)), 1e300, initial=1.0)})
    assert "wild.y1 became inf at t = 0.1; " in failures(system, masters.jacobi, NonFiniteError, rows=1)


def test_an_fmu_that_returns_nan(tmp_path: Path) -> None:
    system = System({"calm": lag(), "odd": awkward(tmp_path, nan_at=0.45)})
    assert "odd.y became nan at t = 0.5; " in failures(system, masters.jacobi, NonFiniteError, rows=5)


@pytest.mark.parametrize("native", [True, False])
def test_the_first_of_two_failures_is_named(native: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit whose value is not finite, before one that cannot be read in the same step."""
    odd = lag(step="broken_step", settings=(math.nan, 0.4)) if native else awkward(tmp_path, nan_at=0.45)
    stubborn = failing(tmp_path, monkeypatch, where=3, at=0.5, status=3)
    message = failures(System({"odd": odd, "stubborn": stubborn}), masters.jacobi, NonFiniteError, rows=5)
    assert message.startswith("odd.y became nan at t = 0.5; ")
    message = failures(System({"stubborn": stubborn, "odd": odd}), masters.jacobi, UnitError, rows=5)
    assert message.startswith("unit 'stubborn' at t = 0.5: ")


@pytest.mark.parametrize("count", [2, 40])
def test_finite_values_with_a_sum_that_is_not(count: int) -> None:
    units = {f"large{number}": StateSpace(0.0, np.zeros((1, 0)), 1.0, initial=1.7e308) for number in range(count)}
    system = System(units)
    ran = [run(system, masters.jacobi(system, 0.1), stop=1.0, engine=engine) for engine in (REFERENCE, KERNEL)]
    assert np.array_equal(ran[0].to_numpy(), ran[1].to_numpy())
    assert np.all(ran[1].to_numpy()[:, -1] == 1.7e308)


class Sick:
    """Has a second output that is not a number from 0.1 s on."""

    inputs, outputs = {"u": 0.0}, ("y", "z")

    def __init__(self) -> None:
        self.y, self.z = 0.3, 0.0

    def step(self, time: float, duration: float) -> None:
        self.y += duration * (self.u - self.y)  # type: ignore[attr-defined]
        self.z = math.nan if time >= 0.1 else 0.0

    def save(self) -> tuple[float, float]:
        return self.y, self.z

    def restore(self, state: tuple[float, float]) -> None:
        self.y, self.z = state


def test_an_iteration_does_not_converge_while_an_output_is_no_number() -> None:
    decay = StateSpace(-1.0, 1.0, 1.0, initial=1.0)
    system = System({"sick": PythonUnit(Sick), "decay": decay}, [("sick.y", "decay.u1"), ("decay.y1", "sick.u")])
    master = masters.iterative(system, 0.05, sweeps=masters.Convergence(1e-9, limit=20))
    ran = [
        run(system, master, stop=0.5, engine=EngineOptions(kind=kind, allow_non_finite=True))
        for kind in ("reference", "kernel")
    ]
    assert np.array_equal(ran[0].to_numpy(), ran[1].to_numpy(), equal_nan=True)
    for result in ran:
        assert (result.info["sweeps"], result.info["unconverged"]) == (174, 8)
        assert result.info["largest_residual"] == math.inf
    assert ran[0].warnings == ran[1].warnings


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("build_master", [masters.jacobi, masters.gauss_seidel])
def test_of_two_units_that_end_the_run_the_first_is_named(
    names: tuple[str, str], build_master: Build, tmp_path: Path
) -> None:
    path = build(tmp_path, "peculiar2")
    units = {name: Fmu(path, name=name, parameters={"x0": 1.0, "end_at": 0.5}) for name in names}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
    ran = [run(system, build_master(system, 0.05), stop=1.0, engine=engine) for engine in (REFERENCE, KERNEL)]
    assert [result.info["ended_by"] for result in ran] == [names[0], names[0]]
    assert ran[0].warnings == ran[1].warnings
    assert np.array_equal(ran[0].to_numpy(), ran[1].to_numpy())


# ---- bad status ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [1, 3, -7])
def test_native_units_that_refuse(status: int) -> None:
    unit = lag(step="refusing_step", settings=(float(status), 0.5))
    system = System({"calm": lag(), "stubborn": unit})
    message = failures(system, masters.jacobi, UnitError, rows=6)
    assert message.startswith("unit 'stubborn' failed at t = 0.5 while being stepped: ")
    assert f"returned {status}." in message


def test_native_outputs_that_refuse() -> None:
    functions = address("lag_step"), address("refusing_output")
    unit = NativeUnit(*functions, inputs=["u"], outputs=["y"], initial=[1.0, 4.0, 0.5], start={"u": 0.0})
    message = failures(System({"stubborn": unit}), masters.jacobi, UnitError, rows=5)
    assert message.startswith("unit 'stubborn' failed at t = 0.5 while being read: ")
    assert "returned 4." in message


def failing(folder: Path, monkeypatch: pytest.MonkeyPatch, **parameters: float) -> Fmu:
    monkeypatch.setattr(fmu_builder, "HERE", Path(__file__).parent)
    return Fmu(build(folder, "failing2"), parameters=parameters)


WHERE = {"SetReal": 1, "DoStep": 2, "GetReal": 3, "GetFMUstate": 4, "SetFMUstate": 5}


@pytest.mark.parametrize("status", ["Error", "Fatal"])
@pytest.mark.parametrize("function", WHERE)
def test_a_bad_status_of_an_fmu(function: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = tmp_path / "calls.txt"
    monkeypatch.setenv("CALLS_AFTER_FATAL", str(calls))
    code = {"Error": 3, "Fatal": 4}[status]
    fmu = failing(tmp_path, monkeypatch, where=WHERE[function], at=0.5, status=code)
    system = System({"calm": lag(), "tap": fmu}, [("calm.y", "tap.u")])
    master = masters.iterative if function.endswith("FMUstate") else masters.jacobi
    rows = 5 if function == "GetReal" else 6
    message = failures(system, master, UnitError, rows=rows)
    assert f"returned fmi2{status} from fmi2{function}" in message
    assert "it says: valve stuck at 0.5" in message
    assert "t = 0.5" in message
    assert "'tap'" in message
    assert not calls.exists(), calls.read_text()


@pytest.mark.parametrize("parameter", ["fail_at", "fatal_at", "longest_step"])
def test_steps_that_an_fmu_refuses(parameter: str, tmp_path: Path) -> None:
    given = {parameter: 0.05 if parameter == "longest_step" else 0.55}
    system = System({"calm": lag(), "pump": awkward(tmp_path, **given)})
    message = failures(system, masters.jacobi, RunError, rows=1 if parameter == "longest_step" else 6)
    said = {"fail_at": "pump ran dry", "fatal_at": "memory is gone", "longest_step": "step too long"}
    assert said[parameter] in message
    assert ("t = 0.0" if parameter == "longest_step" else "t = 0.5") in message


def test_the_step_in_the_message_is_that_of_the_unit(tmp_path: Path) -> None:
    system = System({"calm": lag(), "pump": awkward(tmp_path, fail_at=0.95)})

    def halves(s: System, h: float) -> Master:
        return masters.multirate(s, h, multiples={"calm": 2})

    assert "(step 0.1)" in failures(system, halves, UnitError, rows=5)


def test_steps_that_end_early(tmp_path: Path) -> None:
    live = exported(two_mass(), tmp_path, fmi=3).units["two"].instantiate(0.0)
    with pytest.raises(UnitError, match=r"returned early from its step from t = 0\.5 to 0\.6"):
        live.explain("step", 100, 0.5, 0.1)  # type: ignore[attr-defined]
    live.close()


# ---- afterwards ------------------------------------------------------------------------------------------------------


def test_runs_after_a_failure_are_like_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = System({"pump": awkward(tmp_path, fail_at=0.55)})
    good = System({"pump": awkward(tmp_path, fail_at=5.0)})
    before = run(good, masters.jacobi(good, 0.1), stop=1.0)
    for _ in range(3):
        with pytest.raises(CosimoError):
            run(bad, masters.jacobi(bad, 0.1), stop=1.0)
        after = run(good, masters.jacobi(good, 0.1), stop=1.0)
        assert np.array_equal(after.to_numpy(), before.to_numpy())
