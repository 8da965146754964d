"""Peculiarities of other people's FMUs, FMI 2.0 and 3.0: both engines, isolated or not, take them alike to the bit."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processes

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import ConfigurationError, EndRequested, Interrupted, StepDiscarded
from cosimo.core.result import Result
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.interpreter import Interpreter
from cosimo.execution.live import Live
from cosimo.execution.options import Adaptive, EngineOptions
from cosimo.execution.running import run
from cosimo.formats.resuming import resume
from cosimo.masters import gauss_seidel, iterative, jacobi, multirate
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.linear import StateSpace

pytestmark = pytest.mark.usefixtures("temporary")

VERSIONS = [2, 3]
WAYS = list(itertools.product(("kernel", "reference"), (False, True)))
"""Engines, and whether the FMU lives in a process of its own."""


def peculiar(folder: Path, version: int = 2, *, isolate: bool = False, defines: Any = (), **given: Any) -> Fmu:
    changes = {'hasEventMode="false"': 'hasEventMode="true"'} if "EVENTS" in defines else {}
    if "EVENTS" in defines:
        changes['mightReturnEarlyFromDoStep="false"'] = 'mightReturnEarlyFromDoStep="true"'
    name = f"{'-'.join(defines) or 'plain'}{version}.fmu"
    path = build(folder, f"peculiar{version}", file=name, defines=tuple(defines), changes=changes)
    return Fmu(path, parameters=given, isolate=isolate)


def same_results(make: Any, master: Any, *, stop: float, **options: Any) -> Result:
    """The result of the plain run; the other engine and FMUs in processes of their own give the same bits."""
    found = []
    for kind, isolate in WAYS:
        system = make(isolate)
        engine = EngineOptions(kind=kind)  # type: ignore[arg-type]
        found.append(run(system, master(system), stop=stop, record="all", engine=engine, **options))
    first = found[0]
    for other in found[1:]:
        assert other.to_numpy().tobytes() == first.to_numpy().tobytes()
        assert other.warnings == first.warnings
        assert other.complete == first.complete
    return first


# ---- outputs that are valid only after initialisation has ended ---------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_outputs_are_read_again_after_initialisation(tmp_path: Path, version: int) -> None:
    def make(isolate: bool) -> System:
        source = peculiar(tmp_path, version, isolate=isolate, late=1.0, x0=10.0)
        sink = peculiar(tmp_path, version, isolate=isolate, feed=2.0, x0=1.0)
        return System({"sink": sink, "source": source}, [Connection("source.y", "sink.u")])

    result = same_results(make, lambda system: jacobi(system, 0.5), stop=1.0)
    assert result["source.y"].tolist() == [10.0, 10.0, 10.0]
    # 1 + 2 · 10 at the start, and the first step already integrates 10.
    assert result["sink.y"].tolist() == [21.0, 26.0, 31.0]
    (said,) = result.warnings
    assert said.time == 0.0
    assert said.message == "source.y, source.z changed when initialisation mode ended; the new values were passed on"


def test_the_notice_has_the_time_of_the_start(tmp_path: Path) -> None:
    system = System({"a": peculiar(tmp_path, late=1.0, x0=10.0)})
    result = run(system, jacobi(system, 0.5), start=3.0, stop=5.0)
    assert [(w.time, w.message.split(" changed")[0]) for w in result.warnings] == [(3.0, "a.y, a.z")]
    adaptive = run(system, jacobi(system, 0.5), start=3.0, stop=5.0, adaptive=Adaptive("doubling"))
    assert (3.0, "a.y, a.z") in [(w.time, w.message.split(" changed")[0]) for w in adaptive.warnings]


def test_no_notice_where_nothing_changes(tmp_path: Path) -> None:
    system = System({"a": peculiar(tmp_path, x0=10.0)})
    assert run(system, jacobi(system, 0.5), stop=1.0).warnings == ()


def test_outputs_that_the_first_event_makes_valid(tmp_path: Path) -> None:
    def make(isolate: bool) -> System:
        source = peculiar(tmp_path, 3, isolate=isolate, defines=("EVENTS",), late=1.0, x0=10.0)
        return System({"source": source, "sink": StateSpace(0.0, 1.0, 1.0)}, [Connection("source.y", "sink.u1")])

    result = same_results(make, lambda system: jacobi(system, 0.5), stop=1.0)
    assert result["source.y"].tolist() == [10.0, 10.0, 10.0]
    assert result["sink.y1"] == pytest.approx([0.0, 5.0, 10.0], abs=1e-12)
    assert len(result.warnings) == 1


def test_a_loop_is_solved_again(tmp_path: Path) -> None:
    """y = 10 + 0.5 u and u = z = −y: y = 20/3, although all outputs were 0 before initialisation had ended."""

    def make(isolate: bool) -> System:
        unit = peculiar(tmp_path, isolate=isolate, late=1.0, x0=10.0, feed=0.5)
        return System({"a": unit}, [Connection("a.z", "a.u")])

    result = same_results(make, lambda system: jacobi(system, 0.5), stop=0.5)
    assert result["a.y"][0] == pytest.approx(20 / 3, rel=1e-12)


# ---- input derivatives -----------------------------------------------------------------------------------------------


def ramp(t: float) -> float:
    return 1.0 + 2.0 * t + 3.0 * t * t


HIGHEST = [(2, 2), (1, 2), (0, 2), (2, 1), (1, 1), (0, 1), (2, 0)]
"""The order that the FMU takes, and the order of the coupling."""


@pytest.mark.parametrize(("highest", "order"), HIGHEST)
def test_derivatives_of_the_orders_that_are_taken(tmp_path: Path, highest: int, order: int) -> None:
    def make(isolate: bool) -> System:
        unit = peculiar(tmp_path, isolate=isolate, highest=float(highest))
        return System({"a": unit}, inputs={"a.u": ramp})

    result = same_results(make, lambda system: jacobi(system, 0.25, coupling=Hold(order)), stop=1.0)
    taken = min(highest, order)
    # Each refused order is tried once; an empty list, which would be an error, is never handed over.
    assert result["a.refused"][-1] == max(0, order - highest)
    assert result["a.derived"][-1] == (4 if taken else 0)
    h, times = 0.25, 0.25 * np.arange(4)
    u, du = ramp(times), 2.0 + 6.0 * times  # type: ignore[arg-type]
    if order == 1:  # interpolated between both ends of the step
        du = (ramp(times + h) - u) / h  # type: ignore[arg-type]
    wanted = h * u + (h**2 / 2 * du if taken >= 1 else 0.0) + (h**3 / 6 * 6.0 if taken == 2 else 0.0)
    assert np.diff(result["a.y"]) == pytest.approx(wanted, rel=1e-12)


def test_derivatives_that_are_refused_later(tmp_path: Path) -> None:
    def make(isolate: bool) -> System:
        return System({"a": peculiar(tmp_path, isolate=isolate, refuse_at=0.5)}, inputs={"a.u": ramp})

    result = same_results(make, lambda system: jacobi(system, 0.25, coupling=Hold(1)), stop=1.0)
    assert result["a.derived"].tolist() == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert result["a.refused"].tolist() == [0.0, 0.0, 0.0, 1.0, 1.0]  # once, and no more afterwards
    assert np.diff(result["a.y"])[2:] == pytest.approx([0.25 * ramp(0.5), 0.25 * ramp(0.75)])


@pytest.mark.parametrize("name", ["gauss-seidel", "iterative", "multirate"])
def test_refused_orders_under_other_masters(tmp_path: Path, name: str) -> None:
    def make(isolate: bool) -> System:
        units = {
            "a": peculiar(tmp_path, isolate=isolate, highest=1.0, x0=1.0),
            "b": peculiar(tmp_path, isolate=isolate, highest=2.0),
        }
        return System(units, [Connection("a.z", "b.u"), Connection("b.y", "a.u")])

    masters = {
        "gauss-seidel": lambda system: gauss_seidel(system, 0.1, coupling=Hold(2)),
        "iterative": lambda system: iterative(system, 0.1, sweeps=3, coupling=Hold(2)),
        "multirate": lambda system: multirate(system, 0.05, multiples={"b": 2}, coupling=Hold(2)),
    }
    result = same_results(make, masters[name], stop=1.0)
    assert np.isfinite(result.values).all()
    assert result["b.refused"][-1] == 0.0


@pytest.mark.parametrize("kind", ["kernel", "reference"])
def test_a_resumed_run_keeps_the_orders(tmp_path: Path, kind: Any) -> None:
    """Refused once at t = 0.5 only: a run that is resumed after it must not try them again."""
    from cosimo.execution.options import Checkpoint
    from cosimo.formats.results import ResultFile, read_result

    system = System({"a": peculiar(tmp_path, refuse_at=0.5)}, inputs={"a.u": Linear()})
    master, engine = jacobi(system, 0.01, coupling=Hold(1)), EngineOptions(kind=kind, interval=1e-9)
    whole = run(system, master, stop=2.0, engine=engine)

    def interrupt(reached: float, stop: float) -> None:
        if reached > 1.0:
            raise KeyboardInterrupt

    output, kept = tmp_path / "rows.arrows", tmp_path / "rows.checkpoint"
    with pytest.raises(Interrupted):
        run(
            system,
            master,
            stop=2.0,
            engine=engine,
            output=ResultFile(output),
            progress=interrupt,
            checkpoint=Checkpoint(path=kept, every=1e-9),
        )
    resume(kept, system, master)
    rows = read_result(output)
    assert rows.values.tobytes() == whole.values.tobytes()
    assert rows["a.refused"][-1] == 1.0


class Linear:
    """u = 1 + 2 t as an object that fingerprints know."""

    def __call__(self, time: float) -> float:
        return 1.0 + 2.0 * time


# ---- what FMUs expect of their host ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_mathematics_of_the_host(tmp_path: Path, version: int) -> None:
    def make(isolate: bool) -> System:
        return System({"a": peculiar(tmp_path, version, isolate=isolate, defines=("HOST_MATH",), x0=3.0)})

    assert same_results(make, lambda system: jacobi(system, 0.5), stop=1.0)["a.y"] == pytest.approx([3.0] * 3)


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_logger_that_is_given_another_pointer(tmp_path: Path, version: int, isolate: bool) -> None:
    unit = peculiar(tmp_path, version, isolate=isolate, defines=("OWN_POINTER",), x0=3.0)
    first, second = unit.instantiate(), unit.instantiate()
    for instance in (first, second):
        instance.finish_initialisation()
        assert instance.read()[0] == 3.0
        instance.close()


def test_whose_message_it_is(tmp_path: Path) -> None:
    """Of a single instance in the process that is clear, whatever pointer the logger is given."""
    path = peculiar(tmp_path, defines=("OWN_POINTER",)).path
    script = f"from cosimo.units.fmi.fmu import Fmu; print(Fmu({str(path)!r}).instantiate().messages)"
    done = processes.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "('OK: made',)\n"


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize(("version", "function"), [(2, "fmi2Instantiate"), (3, "fmi3InstantiateCoSimulation")])
def test_a_library_that_cannot_instantiate(tmp_path: Path, version: int, function: str, isolate: bool) -> None:
    unit = peculiar(tmp_path, version, isolate=isolate, defines=("NO_INSTANTIATE",))
    with pytest.raises(
        ConfigurationError, match=f"lacks the function {function}, which is needed here; contact its supplier"
    ):
        unit.instantiate()


# ---- an end that the unit asks for -----------------------------------------------------------------------------------


def ending(folder: Path, version: int, isolate: bool, end: float, defines: Any = ()) -> System:
    """x' = 2 in the unit that ends, behind it an integrator of its output."""
    units = {
        "after": StateSpace(0.0, 1.0, 1.0),
        "pump": peculiar(folder, version, isolate=isolate, defines=defines, end_at=end),
    }
    return System(units, [Connection("pump.y", "after.u1")], inputs={"pump.u": 2.0})


ENDS = [(2, ()), (3, ()), (3, ("EVENTS",))]


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize(("version", "defines"), ENDS)
def test_an_end_with_a_macro_step(tmp_path: Path, version: int, defines: Any, order: int) -> None:
    result = same_results(
        lambda isolate: ending(tmp_path, version, isolate, 0.5, defines),
        lambda system: jacobi(system, 0.1, coupling=Hold(order)),
        stop=2.0,
    )
    assert result.complete
    assert result.time == pytest.approx(0.1 * np.arange(6))
    assert result["pump.y"] == pytest.approx(0.2 * np.arange(6))
    assert result["after.y1"][-1] > result["after.y1"][-2]  # all units made the last step
    assert (result.info["ended_by"], result.info["ended_at"]) == ("pump", 0.5)
    assert result.info["steps"] == 5
    ends = [w for w in result.warnings if "ended" in w.message]
    assert [str(w) for w in ends] == ["t = 0.5: unit 'pump' ended the simulation; the run is complete"]


@pytest.mark.parametrize("master", [jacobi, gauss_seidel])
@pytest.mark.parametrize(("version", "defines"), ENDS)
def test_an_end_within_a_macro_step(tmp_path: Path, version: int, defines: Any, master: Any) -> None:
    result = same_results(
        lambda isolate: ending(tmp_path, version, isolate, 0.45, defines), lambda system: master(system, 0.1), stop=2.0
    )
    assert result.complete
    assert result.time == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.45])
    assert result["pump.y"] == pytest.approx(2 * result.time)
    assert result["after.y1"][-1] == result["after.y1"][-2]  # of the macro step before, as docs say
    assert result.info["steps"] == 4
    assert result.info["end"] == result.info["ended_at"] == result.time[-1]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_end_under_an_iteration(tmp_path: Path, version: int) -> None:
    """The sweeps before the last are taken back, and with them the wish to end."""
    result = same_results(
        lambda isolate: ending(tmp_path, version, isolate, 0.3),
        lambda system: iterative(system, 0.1, sweeps=3),
        stop=2.0,
    )
    assert result.time == pytest.approx([0.0, 0.1, 0.2, 0.3])
    assert result["pump.y"][-1] == pytest.approx(0.6)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_end_between_micro_steps(tmp_path: Path, version: int) -> None:
    result = same_results(
        lambda isolate: ending(tmp_path, version, isolate, 0.35),
        lambda system: multirate(system, 0.05, multiples={"after": 2}),
        stop=2.0,
    )
    assert result.time[-1] == pytest.approx(0.35)
    assert result["pump.y"][-1] == pytest.approx(0.7)


def test_an_end_in_several_threads(tmp_path: Path) -> None:
    system = ending(tmp_path, 2, True, 0.5)
    found = [
        run(system, jacobi(system, 0.1), stop=2.0, engine=EngineOptions(parallel=parallel))
        for parallel in (True, False)
    ]
    assert found[0].values.tobytes() == found[1].values.tobytes()
    assert len(found[0]) == 6


def test_an_end_at_the_start(tmp_path: Path) -> None:
    result = same_results(
        lambda isolate: ending(tmp_path, 3, isolate, 0.0, ("EVENTS",)), lambda system: jacobi(system, 0.1), stop=2.0
    )
    assert result.time.tolist() == [0.0]
    assert result.complete
    assert result.info["ended_by"] == "pump"


@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.parametrize("version", VERSIONS)
def test_an_end_of_an_adaptive_run(tmp_path: Path, version: int, kind: Any) -> None:
    system = ending(tmp_path, version, False, 0.45)
    result = run(system, jacobi(system, 0.1), stop=2.0, adaptive=Adaptive(kind))
    assert result.complete
    assert result.time[-1] == pytest.approx(0.45)
    assert result["pump.y"][-1] == pytest.approx(0.9)
    assert result.info["ended_by"] == "pump"


def test_without_the_functions_it_is_a_discarded_step(tmp_path: Path) -> None:
    system = System({"pump": peculiar(tmp_path, defines=("NO_STATUS",), end_at=0.5)})
    with pytest.raises(StepDiscarded, match="discarded"):
        run(system, jacobi(system, 0.2), stop=2.0)


@pytest.mark.parametrize("kind", ["kernel", "reference"])
def test_a_discarded_step_that_cannot_be_made_again(tmp_path: Path, kind: Any) -> None:
    """Another unit only says that it can save its state: the sentence is about the step, and who discarded it when."""
    units = {
        "end": peculiar(tmp_path, defines=("NO_STATE",)),
        "test": peculiar(tmp_path, defines=("NO_STATUS",), end_at=0.15),
    }
    system = System(units)
    with pytest.raises(StepDiscarded) as caught:
        run(system, jacobi(system, 0.1), stop=1.0, engine=EngineOptions(kind=kind))
    assert "discarded the step from t = 0.1 to 0.2" in str(caught.value)
    assert "it cannot be divided into shorter steps: unit 'end' does not restore its state" in str(caught.value)
    assert caught.value.unit == "test"
    assert caught.value.time == pytest.approx(0.1)
    assert caught.value.result is not None
    assert len(caught.value.result) == 2


@pytest.mark.parametrize("version", VERSIONS)
def test_who_goes_on_all_the_same_is_refused(tmp_path: Path, version: int) -> None:
    instance = peculiar(tmp_path, version, end_at=0.15).instantiate()
    instance.set_input(np.array([[2.0]]), 0.1)
    instance.finish_initialisation()
    state = instance.save()
    instance.step(0.0, 0.1)
    assert instance.ended is None
    instance.step(0.1, 0.1)
    assert instance.ended == pytest.approx(0.15)
    assert instance.read()[0] == pytest.approx(0.3)
    calls = [lambda: instance.step(0.2, 0.1), lambda: instance.set_input(np.array([[2.0]]), 0.1), instance.save]
    for call in calls:
        with pytest.raises(EndRequested, match=r"ended the simulation at t = 0\.15") as caught:
            call()
        assert caught.value.end == pytest.approx(0.15)
    instance.restore(state)
    assert instance.ended is None
    instance.step(0.0, 0.1)
    instance.close()


def test_an_interpreter_closes_what_ended(tmp_path: Path) -> None:
    system = ending(tmp_path, 2, False, 0.05)
    live = Live(system, jacobi(system, 0.1), 0.0)
    live.initialise()
    with pytest.raises(EndRequested):
        Interpreter(live).macro_step(0)
    live.close()


def test_a_step_that_goes_back_in_time_is_said(tmp_path: Path) -> None:
    def make(isolate: bool) -> System:
        return System({"back": peculiar(tmp_path, 3, isolate=isolate, defines=("BACKWARDS",))})

    result = same_results(make, lambda system: jacobi(system, 0.5), stop=2.0)
    (told,) = [warned for warned in result.warnings if "last successful time" in warned.message]
    assert told.message == "unit 'back' reported -1 as the last successful time of its step from t = 0; it was ignored"


@pytest.mark.parametrize("isolate", [False, True])
def test_floods_of_messages_are_counted_and_not_kept(isolate: bool, tmp_path: Path) -> None:
    unit = peculiar(tmp_path, 3, isolate=isolate, defines=("TALKS",))
    system = System({"talks": unit})
    result = run(system, jacobi(system, 0.5), stop=1.0)
    (told,) = [warned.message for warned in result.warnings if "suppressed" in warned.message]
    assert told.startswith("unit 'talks' logged more than is kept (")
