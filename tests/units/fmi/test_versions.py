"""Steps, discarded and failing ones, time, events."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import EndRequested, NonFiniteError, StepDiscarded, UnitError
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.masters import jacobi, multirate
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.python import PythonUnit

pytestmark = pytest.mark.usefixtures("temporary")


def values(*numbers: float) -> np.ndarray:
    return np.array([numbers], dtype=float)


def test_discarded_step(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "awkward2"), parameters={"longest_step": 0.25})
    instance = fmu.instantiate()
    instance.step(0.0, 0.25)
    with pytest.raises(
        StepDiscarded, match=r"from t = 0.25 to 0.75 \(step 0.5\) and got to t = 0.5; it says: step"
    ) as e:
        instance.step(0.25, 0.5)
    assert e.value.last_successful_time == 0.5
    assert e.value.exit_code == 3


def test_discarded_step_of_fmi3(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "feedthrough3", defines=("LONGEST=0.25",))).instantiate()
    with pytest.raises(StepDiscarded, match=r"from t = 0.0 to 0.5") as caught:
        instance.step(0.0, 0.5)
    assert caught.value.last_successful_time == 0.25


def test_unit_that_ends_the_simulation(tmp_path: Path) -> None:
    newer = Fmu(build(tmp_path, "feedthrough3", defines=("END=0.05",))).instantiate()
    newer.step(0.0, 0.1)
    assert newer.ended == 0.0
    with pytest.raises(EndRequested, match=r"ended the simulation at t = 0.0; set an earlier stop time"):
        newer.step(0.1, 0.1)
    instance = Fmu(build(tmp_path, "awkward2"), parameters={"end_at": 0.15}).instantiate()
    instance.step(0.0, 0.1)
    assert instance.ended is None
    instance.step(0.1, 0.1)
    assert instance.ended == 0.1
    with pytest.raises(EndRequested, match=r"ended the simulation at t = 0.1"):
        instance.step(0.2, 0.1)


def test_error_with_the_message_of_the_unit(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "awkward2"), parameters={"fail_at": 0.15}, name="pump").instantiate()
    instance.step(0.0, 0.1)
    with pytest.raises(UnitError) as caught:
        instance.step(0.1, 0.1)
    message = str(caught.value)
    assert "(instance 'pump') returned fmi2Error from fmi2DoStep from t = 0.1 to 0.2" in message
    assert message.endswith("it says: pump ran dry at t = 0.200 after 1 steps (awkward).")
    assert instance.messages == ("Error: pump ran dry at t = 0.200 after 1 steps (awkward)",)
    assert instance.read()[0] == 0.1  # an error, but not a fatal one


def test_after_a_fatal_error_nothing_is_called(tmp_path: Path, temporary: Path) -> None:
    instance = Fmu(build(tmp_path, "awkward2"), parameters={"fatal_at": 0.05}).instantiate()
    with pytest.raises(UnitError, match=r"returned fmi2Fatal .* memory is gone"):
        instance.step(0.0, 0.1)
    with pytest.raises(UnitError, match="had a fatal error"):
        instance.read()
    instance.close()
    assert not list(temporary.iterdir())


def test_nan_is_reported_by_name_and_time(tmp_path: Path) -> None:
    system = System({"source": Fmu(build(tmp_path, "awkward2"), parameters={"nan_at": 0.35})})
    with pytest.raises(NonFiniteError, match=r"source\.y became nan at t = 0.4") as caught:
        run(system, jacobi(system, 0.1), stop=1.0)
    assert caught.value.result is not None
    assert len(caught.value.result) == 4


def test_exact_difference(tmp_path: Path) -> None:
    """A unit that adds steps up falls behind t0 + k·h, unless it is given the differences of these times."""
    path = build(tmp_path, "awkward2")

    def last(options: FmuOptions) -> int:
        system = System({"strict": Fmu(path, parameters={"strict": 1}, options=options)})
        return len(run(system, jacobi(system, 0.1), stop=10.0))

    with pytest.raises(UnitError, match=r"from t = 0.6000000000000001 to 0.7.*communication point moved"):
        last(FmuOptions())
    assert last(FmuOptions(exact_difference=True)) == 101


def test_resources(tmp_path: Path) -> None:
    path = build(tmp_path, "awkward2", file="mit Lücke.fmu", files={"resources/number.txt": "42"})
    assert Fmu(path).instantiate().read()[1] == 42.0


@pytest.mark.parametrize("defines", [(), ("ANNOUNCE",)])
def test_events_within_steps(tmp_path: Path, defines: tuple[str, ...]) -> None:
    fmu = Fmu(build(tmp_path, "events3", defines=defines))
    instance = fmu.instantiate()
    counts = []
    for k in range(10):
        instance.set_input(values(2.0, k // 5), 0.2)
        instance.step(k * 0.2, 0.2)
        x, count, level = instance.read()
        assert x == pytest.approx(2.0 * (k + 1) * 0.2, abs=1e-12)
        assert level == k // 5
        counts.append(count)
    assert counts == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8]


class Still:
    """Feeds the FMU and listens to it, so that a master has two units to order."""

    inputs, outputs = {"x": 0.0}, ("u",)

    def __init__(self) -> None:
        self.u = 1.0

    def step(self, time: float, duration: float) -> None:
        pass


FIXED = {'canHandleVariableCommunicationStepSize="true"': ""}


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(
    ("defines", "changes", "steps"),
    [
        ((), {}, (0.01, 0.03, 0.05, 0.1)),
        (("ANNOUNCE",), {}, (0.01, 0.03, 0.05, 0.1)),
        (("ANNOUNCE", "SLACK=0.0"), {}, (0.005, 0.01, 0.03, 0.05, 0.07, 0.1, 1 / 3)),
        (("ANNOUNCE",), FIXED, (0.01, 0.05, 0.125)),
    ],
)
@pytest.mark.one_in(3)
def test_events_at_ends_of_steps_that_are_rounded(
    tmp_path: Path, isolate: bool, defines: tuple[str, ...], changes: dict[str, str], steps: tuple[float, ...]
) -> None:
    """50 steps of 0.01 are 0.5, but 49 of them and one more are less: the event must not be missed in between.

    Without slack the FMU refuses a step past an event by one bit; with a step of fixed size it gets no other.
    """
    fmu = Fmu(build(tmp_path, "events3", defines=defines, changes=changes), isolate=isolate)
    system = System({"f": fmu, "s": PythonUnit(Still)}, [("s.u", "f.u"), ("f.x", "s.x")])
    for step in steps:
        for master in (
            jacobi(system, step),
            multirate(system, step, multiples={"s": 3}),
            multirate(system, step / 3, multiples={"f": 3}, inputs="interpolated"),
        ):
            result = run(system, master, stop=round(2.1 / master.step) * master.step)
            assert result["f.count"] == pytest.approx(np.floor((result.time + 1e-9) / 0.25)), (step, master)
            assert result["f.x"] == pytest.approx(result.time, abs=1e-12)


def test_an_event_that_is_due_when_a_step_begins(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "events3", defines=("ANNOUNCE",))).instantiate()
    instance.step(0.0, 0.25 - 1e-9)  # so early that it is not the same instant, but the FMU takes it for one
    assert instance.read()[1] == 0
    instance.step(0.25, 0.1)
    assert instance.read()[1] == 1


def test_units_that_never_come_to_an_end(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "events3", defines=("STUCK",))).instantiate()
    with pytest.raises(UnitError, match=r"does not advance beyond t = 0.0 \(step to 0.1\)"):
        instance.step(0.0, 0.1)
    instance = Fmu(build(tmp_path, "events3", defines=("UNSETTLED",))).instantiate()
    with pytest.raises(UnitError, match=r"does not settle its discrete states at t = 0.0"):
        instance.finish_initialisation()


def test_an_fmu_that_needs_event_mode_gets_it_only_when_declared(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "events3", changes={'hasEventMode="true"': ""}))
    with pytest.raises(UnitError, match="event mode is required"):
        fmu.instantiate()


@pytest.mark.parametrize("isolate", [False, True])
def test_an_fmu_that_refuses_the_event_mode_it_declares_runs_without(tmp_path: Path, isolate: bool) -> None:
    changes = {"<CoSimulation ": '<CoSimulation hasEventMode="true" '}
    system = System({"f": Fmu(build(tmp_path, "feedthrough3", changes=changes), isolate=isolate)})
    plain = System({"f": Fmu(build(tmp_path, "feedthrough3", file="plain.fmu"))})
    result = run(system, jacobi(system, 0.1), stop=1.0)
    assert np.array_equal(result.values, run(plain, jacobi(plain, 0.1), stop=1.0).values)
    assert any("declares event mode but refuses it; it runs without" in str(warned) for warned in result.warnings)
