"""Running: rows and time stamps, and what is kept when something goes wrong."""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.errors import (
    ConfigurationError,
    CosimoError,
    Interrupted,
    NonFiniteError,
    RunError,
    UnitError,
    UnknownNameError,
)
from cosimo.core.system import Connection, System
from cosimo.core.unit import Instance
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.units import PythonUnit, StateSpace


class Counter:
    """Counts its steps; does what `at` says in the step that starts at this time."""

    inputs, outputs = (), ("count",)
    times: ClassVar[list[tuple[float, float]]] = []

    def __init__(self, at: float = math.inf, what: Any = None) -> None:
        self.count, self.at, self.what = 0.0, at, what

    def step(self, time: float, duration: float) -> None:
        self.times.append((time, duration))
        if time >= self.at - 1e-9:
            if isinstance(self.what, BaseException):
                raise self.what
            self.count = self.what
        else:
            self.count += 1


def counting(at: float = math.inf, what: Any = None) -> System:
    Counter.times = []
    return System({"counter": PythonUnit(Counter, at=at, what=what), "tank": StateSpace(-1.0, np.zeros((1, 0)), 1.0)})


def decay() -> System:
    return System({"decay": StateSpace(-1.0, np.zeros((1, 0)), 1.0, initial=1.0)})


# ---- rows and time stamps ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0.1, 1 / 60, 1e-3, 0.7, 1 / 3])
@pytest.mark.parametrize("count", [1, 2, 999, 2000])
def test_rows_are_exactly_counted(step: float, count: int) -> None:
    system = counting()
    result = run(system, masters.jacobi(system, step), stop=count * step)
    assert len(result) == count + 1
    assert result["counter.count"][-1] == count
    assert result.warnings == ()
    assert result.complete


@pytest.mark.parametrize(("step", "stop"), [(0.1, 200.0), (0.1, 0.3), (0.01, 0.07), (1 / 60, 10.0), (1e-3, 2.0)])
def test_decimal_stop_times_lose_no_step(step: float, stop: float) -> None:
    system = counting()
    result = run(system, masters.jacobi(system, step), stop=stop)
    assert len(result) == round(stop / step) + 1
    assert result.warnings == ()


@pytest.mark.parametrize(
    ("start", "step", "count"), [(64.0, 1e-6, 2), (32.0, 1e-6, 1), (1e6, 1e-4, 7), (-500.0, 1e-5, 3)]
)
def test_a_late_start_and_a_short_step_lose_no_step(start: float, step: float, count: int) -> None:
    # The stop time is rounded to far fewer digits of a step than the step itself has.
    system = counting()
    result = run(system, masters.jacobi(system, step), start=start, stop=start + count * step)
    assert len(result) == count + 1
    assert result.warnings == ()


def test_units_are_stepped_from_the_time_of_the_row_before() -> None:
    system = counting()
    result = run(system, masters.jacobi(system, 0.1), start=0.3, stop=5.3)
    times, durations = zip(*Counter.times, strict=True)
    assert list(times) == result.time[:-1].tolist()
    assert set(durations) == {0.1}


def test_a_row_belongs_to_its_time() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 0.25), stop=5.0)
    assert result["decay.y1"] == pytest.approx(np.exp(-result.time), abs=1e-14)


def test_the_run_starts_at_its_start_time() -> None:
    system = System({"ramp": StateSpace(0.0, 1.0, 1.0)}, inputs={"ramp.u1": lambda t: t})
    result = run(system, masters.jacobi(system, 0.5, coupling=Hold(1)), start=2.0, stop=4.0)
    assert result.time.tolist() == [2.0, 2.5, 3.0, 3.5, 4.0]
    assert result["ramp.y1"] == pytest.approx((result.time**2 - 4.0) / 2, abs=1e-14)


def test_a_stop_time_between_steps_is_reported() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 0.3), stop=1.0)
    assert result.time == pytest.approx([0.0, 0.3, 0.6, 0.9])
    (warned,) = result.warnings
    assert warned.time == pytest.approx(0.9)
    assert "the stop time 1 s is not a multiple of the step size 0.3 s" in str(warned)
    assert result.complete


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ({"stop": 0.05}, "macro step 0.1 is longer than the run from 0 to 0.05"),
        ({"stop": 0.0}, r"stop time \(0\) must be a number greater than the start time \(0\)"),
        ({"start": 2.0, "stop": 1.0}, "greater than the start time"),
        ({"stop": math.nan}, r"stop time \(nan\)"),
        ({"stop": math.inf}, r"stop time \(inf\)"),
        ({"start": math.nan, "stop": 1.0}, "start time"),
    ],
)
def test_impossible_times(times: dict[str, float], message: str) -> None:
    system = decay()
    with pytest.raises(ConfigurationError, match=message):
        run(system, masters.jacobi(system, 0.1), **times)


def test_recording() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), Connection("b.y1", "a.u1", -2.0, 0.5)])
    master = masters.jacobi(system, 0.1)
    outputs, everything = run(system, master, stop=1.0), run(system, master, stop=1.0, record="all")
    assert outputs.names == ("a.y1", "b.y1")
    assert everything.names == ("a.y1", "b.y1", "a.u1", "b.u1")
    assert np.array_equal(everything.values[:, :2], outputs.values)
    # What was held over a step is recorded at its end; at the start, what is consistent.
    assert everything["a.u1"][0] == -2.0 * outputs["b.y1"][0] + 0.5
    assert everything["a.u1"][1:] == pytest.approx(-2.0 * outputs["b.y1"][:-1] + 0.5, abs=1e-15)
    with pytest.raises(ConfigurationError, match="'record' must be 'outputs' or 'all', not 'some'"):
        run(system, master, stop=1.0, record="some")  # type: ignore[arg-type]


def test_what_a_result_says_of_its_run() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 0.1), stop=1.0)
    assert {"master": "jacobi", "schedule": "F1 G1 H1", "step": 0.1}.items() <= result.info.items()
    assert "sweeps" not in result.info


def test_instability_is_a_result() -> None:
    system = System({"a": StateSpace(5.0, np.zeros((1, 0)), 1.0, initial=1.0)})
    result = run(system, masters.jacobi(system, 1.0), stop=20.0)
    assert result["a.y1"][-1] == pytest.approx(math.exp(100.0), rel=1e-12)


# ---- things go wrong -----------------------------------------------------------------------------------------------


def failing(what: Any, step: float = 0.1) -> RunError:
    system = counting(at=0.5, what=what)
    with pytest.raises(RunError) as caught:
        run(system, masters.jacobi(system, step), stop=1.0)
    return caught.value


def assert_rows_before_the_failure(error: RunError) -> None:
    assert error.result is not None
    assert not error.result.complete
    assert error.result.time == pytest.approx(np.arange(6) * 0.1)
    assert error.result["counter.count"].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_unit_that_raises_is_named_with_time_and_cause() -> None:
    cause = ValueError("valve stuck")
    error = failing(cause)
    assert isinstance(error, UnitError)
    assert str(error) == "unit 'counter' failed at t = 0.5 while being stepped: ValueError: valve stuck."
    assert error.__cause__ is cause
    assert_rows_before_the_failure(error)


def test_a_unit_that_raises_without_words() -> None:
    assert str(failing(ZeroDivisionError())).endswith("stepped: ZeroDivisionError.")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_output_is_named_with_its_time(value: float) -> None:
    error = failing(value)
    assert isinstance(error, NonFiniteError)
    assert str(error).startswith(f"counter.count became {value} at t = 0.6;")
    assert_rows_before_the_failure(error)


def test_an_interrupt_keeps_the_rows() -> None:
    error = failing(KeyboardInterrupt())
    assert isinstance(error, Interrupted)
    assert "interrupted at t = 0.5" in str(error)
    assert error.exit_code == 130
    assert_rows_before_the_failure(error)


def test_an_interrupt_before_the_first_row() -> None:
    class Impatient:
        inputs, outputs = (), ("y",)

        @property
        def y(self) -> float:
            raise KeyboardInterrupt

        def step(self, time: float, duration: float) -> None: ...

    system = System({"impatient": PythonUnit(Impatient)})
    with pytest.raises(Interrupted, match=r"at t = 2;") as caught:
        run(system, masters.jacobi(system, 0.1), start=2.0, stop=3.0)
    assert caught.value.result is not None
    assert len(caught.value.result) == 0


def test_times_inside_a_macro_step() -> None:
    """The fast unit fails in its eighth small step, from 0.7 on; the macro step is a whole second."""
    for what, kind, at in ((RuntimeError("broken"), UnitError, "t = 0.7 "), (math.nan, NonFiniteError, "t = 0.8;")):
        system = counting(at=0.7, what=what)
        with pytest.raises(kind, match=at):
            run(system, masters.multirate(system, 0.1, multiples={"tank": 10}), stop=2.0)


def test_an_external_input_that_fails_is_named_and_the_rows_are_kept() -> None:
    def data(t: float) -> float:
        if t > 0.45:
            raise LookupError("no data")
        return 1.0

    system = System({"tank": StateSpace(-1.0, 1.0, 1.0)}, inputs={"tank.u1": data})
    with pytest.raises(RunError, match=r"external input tank\.u1 failed at t = 0\.5: LookupError: no data") as caught:
        run(system, masters.jacobi(system, 0.1), stop=1.0)
    assert caught.value.result is not None
    assert len(caught.value.result) == 6


def test_an_external_input_that_is_not_a_number() -> None:
    system = System({"tank": StateSpace(-1.0, 1.0, 1.0)}, inputs={"tank.u1": lambda t: 1.0 if t < 0.45 else math.nan})
    with pytest.raises(NonFiniteError, match=r"external input tank\.u1 became nan at t = 0\.5"):
        run(system, masters.jacobi(system, 0.1), stop=1.0)


def test_rows_of_an_iteration_that_fails() -> None:
    system = counting(at=0.5, what=RuntimeError("no"))
    with pytest.raises(UnitError) as caught:
        run(system, masters.iterative(system, 0.1), stop=1.0)
    assert caught.value.result is not None
    assert len(caught.value.result) == 6
    assert caught.value.result.info["sweeps"] >= 5


class Closing(StateSpace):
    """Notes which of its instances have been closed."""

    def __init__(self, log: list[str], name: str) -> None:
        super().__init__(-1.0, np.zeros((1, 0)), 1.0)
        self.log, self.name = log, name

    def instantiate(self, start_time: float = 0.0) -> Any:
        live: Instance = super().instantiate()
        live.close = lambda: self.log.append(self.name)  # type: ignore[method-assign]
        return live


class Unlicensed:
    inputs, outputs = (), ("y",)

    def __init__(self) -> None:
        raise OSError("no licence")

    def step(self, time: float, duration: float) -> None: ...


def test_units_are_released_on_every_way_out() -> None:
    log: list[str] = []
    good = {"a": Closing(log, "a"), "b": Closing(log, "b")}
    master = masters.jacobi
    run(System(good), master(System(good), 0.1), stop=1.0)
    assert log == ["a", "b"]
    log.clear()
    failing = System({**good, "c": PythonUnit(Counter, at=0.5, what=RuntimeError("no"))})
    with pytest.raises(UnitError):
        run(failing, master(failing, 0.1), stop=1.0)
    assert log == ["a", "b"]
    log.clear()
    unborn = System({**good, "c": PythonUnit(Unlicensed)})
    with pytest.raises(UnitError, match="unit 'c' failed at t = 0 while being instantiated: OSError: no licence"):
        run(unborn, master(unborn, 0.1), stop=1.0)
    assert log == ["a", "b"]


def test_a_wrong_schedule_is_refused_before_any_unit_lives() -> None:
    log: list[str] = []
    system, other = System({"a": Closing(log, "a")}), System({"b": Closing(log, "b")})
    with pytest.raises(CosimoError, match="the schedule is for units b"):
        run(system, masters.jacobi(other, 0.1), stop=1.0)
    assert log == []


# ---- export --------------------------------------------------------------------------------------------------------


def test_a_run_reads_back_from_csv_to_the_same_bits(tmp_path: Path) -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 1 / 60), stop=2.0)
    with result.write_csv(tmp_path / "decay.csv").open(encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["time", "decay.y1"]
    assert np.array(rows, dtype=float).tobytes() == result.to_numpy().tobytes()


def test_pandas() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 0.5), stop=2.0)
    frame = result.to_pandas()
    assert frame.loc[1.5, "decay.y1"] == result["decay.y1"][3]


def test_an_unknown_signal_suggests() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 0.5), stop=2.0)
    with pytest.raises(UnknownNameError, match=r"unknown signal 'deca\.y1'; did you mean 'decay\.y1'\?"):
        result["deca.y1"]


# ---- a long run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("step", "rows", "start"), [(0.1, 100_000, 0.0), (1 / 60, 20_000, 0.0), (0.1, 20_000, 7.3)])
def test_time_stamps_stay_within_one_unit_in_the_last_place(step: float, rows: int, start: float) -> None:
    system = System({"count": StateSpace([], np.zeros((0, 0)), np.zeros((0, 0)))})
    result = run(system, masters.jacobi(system, step), start=start, stop=start + rows * step)
    assert len(result) == rows + 1
    for k in [*range(0, rows, 97), rows]:
        true = Fraction(start) + k * Fraction(step)
        assert abs(Fraction(float(result.time[k])) - true) <= Fraction(math.ulp(result.time[k]))
    assert (np.diff(result.time) > 0).all()


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("master", [masters.jacobi, masters.gauss_seidel])
@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_a_row_is_one_state_of_each_unit(degree: int, master: Any, engine: Literal["kernel", "reference"]) -> None:
    """The outputs of units with direct feedthrough follow from the inputs of the same row; held inputs are named."""
    lag = StateSpace([[-1.0]], [[1.0]], [[1.0]], [[0.0]], initial=[1.0], inputs=["u"], outputs=["y"])
    gain = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), [[-2.0]], inputs=["u"], outputs=["y"])
    system = System({"lag": lag, "gain": gain}, [Connection("lag.y", "gain.u"), Connection("gain.y", "lag.u")])
    chosen = master(system, 0.1, coupling=Hold(degree))
    found = run(system, chosen, stop=1.0, record="all", engine=EngineOptions(kind=engine))
    assert np.ptp(found["gain.u"]) > 0.1
    assert found["gain.y"] == pytest.approx(-2.0 * found["gain.u"], abs=1e-12)
    assert set(found.held_inputs) == (set() if degree else {"lag.u", "gain.u"})
