"""Plain Python classes as units."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.core.errors import ConfigurationError, RunError, UnitCrashed, UnitError
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.units import PythonUnit, StateSpace


class Tank:
    inputs, outputs = ("inflow",), ("level", "drain")

    def __init__(self, level: float = 0.0) -> None:
        self.level = level
        self.inflow: float
        self.log: list[float] = []

    @property
    def drain(self) -> float:
        return 0.5 * self.level + self.inflow

    def step(self, time: float, duration: float) -> None:
        self.log.append(time)
        self.level += duration * (self.inflow - 0.5 * self.level)


class OwnSave(Tank):
    """Keeps only the level, and counts."""

    saves: ClassVar[int] = 0

    def save(self) -> float:
        type(self).saves += 1
        return self.level

    def restore(self, state: float) -> None:
        self.level = state


def test_names_parameters_and_start_values() -> None:
    class Heater:
        inputs: ClassVar = {"power": 3.0, "ambient": 20}
        outputs = ("heat",)

        def __init__(self, scale: float) -> None:
            self.scale = scale

        @property
        def heat(self) -> float:
            return self.scale * (self.power + self.ambient)  # type: ignore[attr-defined, no-any-return]

        def step(self, time: float, duration: float) -> None:
            pass

    unit = PythonUnit(Heater, scale=2.0)
    assert (unit.inputs, unit.outputs, unit.start) == (("power", "ambient"), ("heat",), {"power": 3.0, "ambient": 20})
    assert unit.instantiate().read().tolist() == [46.0]
    # Inputs with a start value may stay unconnected.
    system = System({"heater": unit})
    assert run(system, masters.jacobi(system, 1.0), stop=2.0)["heater.heat"].tolist() == [46.0] * 3


def test_a_property_counts_as_feedthrough_an_attribute_does_not() -> None:
    assert PythonUnit(Tank).feedthrough().tolist() == [[False], [True]]


def test_no_powers_of_the_input() -> None:
    assert PythonUnit(Tank).input_degree == 0


def test_runs_as_the_forward_euler_unit_it_is() -> None:
    from cosimo.units import ForwardEuler

    linear = StateSpace(-0.5, 1.0, [[1.0], [0.5]], [[0.0], [1.0]], initial=2.0, integrator=ForwardEuler())
    results = []
    for unit in (PythonUnit(Tank, level=2.0), linear):
        system = System({"tank": unit}, inputs={f"tank.{unit.inputs[0]}": np.cos})
        results.append(run(system, masters.jacobi(system, 0.1), stop=2.0).values)
    assert results[0] == pytest.approx(results[1], abs=1e-14)


@pytest.mark.parametrize("kind", [Tank, OwnSave])
def test_save_and_restore(kind: type) -> None:
    live = PythonUnit(kind, level=1.0).instantiate()
    live.set_input(np.array([[3.0]]), 1.0)
    kept, before = live.save(), live.read()
    for _ in range(2):
        live.set_input(np.array([[-1.0]]), 1.0)
        live.step(0.0, 0.5)
        assert not np.array_equal(live.read(), before)
        live.restore(kept)
        # The input comes back too, also where the class's own `save` leaves it out.
        assert np.array_equal(live.read(), before)


def test_the_default_copies_deeply() -> None:
    live = PythonUnit(Tank).instantiate()
    live.set_input(np.array([[0.0]]), 1.0)
    kept = live.save()
    live.step(7.0, 1.0)
    live.restore(kept)
    assert live.object.log == []
    live.step(8.0, 1.0)
    live.restore(kept)
    assert live.object.log == []


def test_own_save_is_used() -> None:
    OwnSave.saves = 0
    system = System({"tank": PythonUnit(OwnSave)}, inputs={"tank.inflow": 1.0})
    run(system, masters.iterative(system, 0.1, sweeps=3), stop=0.5)
    # Once in each of five macro steps, and once before the run, where restoring is put to the test.
    assert OwnSave.saves == 5 + 1


@pytest.mark.parametrize("kind", [Tank, OwnSave])
def test_iterating_a_converged_unit_changes_nothing(kind: type) -> None:
    system = System({"tank": PythonUnit(kind, level=1.0)}, inputs={"tank.inflow": 1.0})
    plain = run(system, masters.jacobi(system, 0.1), stop=1.0)
    swept = run(system, masters.iterative(system, 0.1, sweeps=4), stop=1.0)
    assert np.array_equal(plain.values, swept.values)


def test_each_run_starts_from_a_fresh_object() -> None:
    system = System({"tank": PythonUnit(Tank, level=1.0)}, inputs={"tank.inflow": 0.0})
    first, second = (run(system, masters.jacobi(system, 0.1), stop=1.0) for _ in range(2))
    assert np.array_equal(first.values, second.values)


class NoInputs:
    outputs = ("y",)

    def step(self, time: float, duration: float) -> None: ...


class NoOutputs:
    inputs = ("u",)

    def step(self, time: float, duration: float) -> None: ...


class NoStep:
    inputs, outputs = ("u",), ("y",)


class OneString:
    inputs, outputs = "u", ("y",)

    def step(self, time: float, duration: float) -> None: ...


class Numbered:
    inputs, outputs = ("u",), 3

    def step(self, time: float, duration: float) -> None: ...


class SaveOnly(Tank):
    def save(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoInputs, "class NoInputs has no 'inputs'; a Python unit needs inputs, outputs, step"),
        (NoOutputs, "class NoOutputs has no 'outputs'"),
        (NoStep, "class NoStep has no 'step'"),
        (OneString, "'inputs' of class OneString must be a sequence of names, not 'u'"),
        (Numbered, "'outputs' of class Numbered must be a sequence of names, not 3"),
        (SaveOnly, "class SaveOnly must have both 'save' and 'restore', or neither"),
    ],
)
def test_wrong_classes_are_refused(kind: type, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        PythonUnit(kind)


class Silent:
    inputs, outputs = (), ("y",)

    def step(self, time: float, duration: float) -> None: ...


class Picky:
    inputs, outputs = (), ("y",)

    def __init__(self, required: int) -> None: ...

    def step(self, time: float, duration: float) -> None: ...


class Wordy(Silent):
    y = "high"


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Silent, "unit 'odd' failed at t = 0 while being initialised: AttributeError: .*'y'"),
        (Picky, "unit 'odd' failed at t = 0 while being instantiated: TypeError: .*required"),
        (Wordy, "unit 'odd' failed at t = 0 while being initialised: TypeError: output 'y' is 'high', not a number"),
    ],
)
def test_broken_objects_are_named(kind: type, message: str) -> None:
    system = System({"odd": PythonUnit(kind)})
    with pytest.raises(UnitError, match=message):
        run(system, masters.jacobi(system, 0.1), stop=1.0)


def test_the_algebra_says_that_it_cannot_know() -> None:
    system: Any = System({"tank": PythonUnit(Tank)}, inputs={"tank.inflow": 0.0})
    with pytest.raises(ConfigurationError, match="unit 'tank' is a PythonUnit, whose equations are not known"):
        LinearSystem(system, masters.jacobi(system, 0.1))


class Quitter(Tank):
    """Ends the process, as a script does that was never meant to be a unit."""

    def step(self, time: float, duration: float) -> None:
        if time > 0.35:
            raise SystemExit(0)
        super().step(time, duration)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_a_unit_that_exits_does_not_end_the_run_with_success(engine: Any) -> None:
    system = System({"tank": PythonUnit(Quitter, level=1.0)}, inputs={"tank.inflow": 0.0})
    with pytest.raises(UnitCrashed, match=r"unit 'tank' ended at t = 0.4 .*it called exit\(0\)") as raised:
        run(system, masters.jacobi(system, 0.1), stop=1.0, engine=EngineOptions(engine))
    assert raised.value.exit_code == 4
    assert raised.value.result is not None
    assert len(raised.value.result) == 5


def test_an_external_input_that_exits_is_named() -> None:
    def leave(time: float) -> float:
        raise SystemExit(0)

    system = System({"tank": PythonUnit(Tank)}, inputs={"tank.inflow": leave})
    with pytest.raises(RunError, match=r"external input tank\.inflow failed at t = 0"):
        run(system, masters.jacobi(system, 0.1), stop=1.0)


class Kind(Tank):
    """A class with a parameter that the constructor of the unit has too, and one that it changes."""

    def __init__(self, kind: str, levels: list[float]) -> None:
        super().__init__(levels.pop())
        self.kind = kind


def test_parameters_of_any_name_are_copied_for_every_object() -> None:
    levels = [1.0, 2.0]
    unit = PythonUnit(Kind, kind="round", levels=levels)
    levels[:] = [7.0]
    assert [unit.instantiate().object.level for _ in range(3)] == [2.0, 2.0, 2.0]
    assert unit.instantiate().object.kind == "round"
