"""Steps of FMI 3.0 that are several calls, made in the kernel: the same bits and words as the plain interpreter has."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
sys.path.insert(0, str(Path(__file__).parents[1] / "execution" / "checkpoints"))
from fmu_builder import build
from interrupted import interrupt, require_equal, whole
from native_units import KERNEL, REFERENCE, bits

from cosimo import masters
from cosimo.core.errors import CosimoError, UnitError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.execution.options import Adaptive
from cosimo.execution.running import run
from cosimo.formats.results import read_result
from cosimo.formats.resuming import resume
from cosimo.units import Fmu, PythonUnit
from cosimo.units.fmi.versions import Fmi3

STATES = {'hasEventMode="true"': 'hasEventMode="true" canGetAndSetFMUState="true" canSerializeFMUState="true"'}
FIXED = {'canHandleVariableCommunicationStepSize="true"': ""}
NO_EARLY = {'mightReturnEarlyFromDoStep="true"': ""}


class Driver:
    """Drives the unit by a slope that follows it, and by a level that changes every fifth step."""

    inputs, outputs = {"x": 0.0}, ("u", "level")

    def __init__(self) -> None:
        self.u, self.level, self._steps = 1.0, 0, 0

    def step(self, time: float, duration: float) -> None:
        self._steps += 1
        self.u, self.level = 1.0 - 0.3 * self.x + 0.1 * time, self._steps // 5

    def save(self) -> Any:
        return self.u, self.level, self._steps

    def restore(self, state: Any) -> None:
        self.u, self.level, self._steps = state


def driven(folder: Path, **made: Any) -> System:
    fmu = Fmu(build(folder, "events3", **made), isolate=made.pop("isolate", False))
    links = [("d.u", "f.u"), ("d.level", "f.level"), ("f.x", "d.x")]
    return System({"d": PythonUnit(Driver), "f": fmu}, links)


@pytest.fixture
def stepped_by_kernel(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often steps were made by Python."""
    counted: list[int] = []
    plain = Fmi3.step
    monkeypatch.setattr(Fmi3, "step", lambda self, *a, **k: (counted.append(1), plain(self, *a, **k))[1])
    return counted


def require_same(system: System, master: Master, counted: list[int], **options: Any) -> Any:
    ours = run(system, master, record="all", engine=KERNEL, **options)
    assert len(counted) < len(ours) / 3  # none but those that try whether states can be put back
    oracle = run(system, master, record="all", engine=REFERENCE, **options)
    assert len(counted) >= len(ours) - 1
    counted.clear()
    assert np.array_equal(bits(ours), bits(oracle))
    assert [str(w) for w in ours.warnings] == [str(w) for w in oracle.warnings]
    return ours


@pytest.mark.one_in(3)
@pytest.mark.parametrize("step", [0.01, 0.03, 0.1, 1 / 3])
@pytest.mark.parametrize(
    ("defines", "changes"),
    [
        ((), {}),
        (("ANNOUNCE",), {}),
        (("ANNOUNCE", "SLACK=0.0"), NO_EARLY),
        (("ANNOUNCE", "SLACK=0.5"), FIXED),
    ],
)
def test_events_are_those_of_the_interpreter(
    tmp_path: Path, step: float, defines: tuple[str, ...], changes: dict[str, str], stepped_by_kernel: list[int]
) -> None:
    system = driven(tmp_path, defines=defines, changes=changes)
    stop = round(2.2 / step) * step
    for master in (
        masters.jacobi(system, step),
        masters.gauss_seidel(system, step),
        masters.multirate(system, step / 3, multiples={"f": 3}, inputs="interpolated"),
    ):
        found = require_same(system, master, stepped_by_kernel, stop=round(stop / master.step) * master.step)
        assert found["f.count"].max() >= 8 - (defines[1:] == ("SLACK=0.5",))
        assert found["f.level_out"].max() >= 1


def test_events_in_another_process_and_beside_others(tmp_path: Path, stepped_by_kernel: list[int]) -> None:
    """Their steps are not sent ahead: how far the first call goes depends on the events."""
    path = build(tmp_path, "events3", defines=("ANNOUNCE",))
    units = {name: Fmu(path, name=name, isolate=True) for name in ("a", "b")}
    system = System(units, [("a.x", "b.u"), ("b.x", "a.u")])
    require_same(system, masters.jacobi(system, 0.03), stepped_by_kernel, stop=1.5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("defines", [(), ("ANNOUNCE",)])
def test_states_that_are_put_back_have_their_next_event(
    tmp_path: Path, defines: tuple[str, ...], stepped_by_kernel: list[int]
) -> None:
    system = driven(tmp_path, defines=defines, changes=STATES)
    for master in (masters.iterative(system, 0.07, sweeps=3), masters.iterative(system, 0.1, sweeps=2)):
        found = require_same(system, master, stepped_by_kernel, stop=2.1)
        assert found["f.count"][-1] == 8
    varied = Adaptive("doubling", relative=1e-3)
    require_same(system, masters.jacobi(system, 0.1), stepped_by_kernel, stop=2.0, adaptive=varied)


def test_a_resumed_run_knows_the_next_event(tmp_path: Path) -> None:
    """Without it the unit would refuse a step past the event; its level would be given again."""
    path = build(tmp_path, "events3", defines=("ANNOUNCE", "SLACK=0.0"), changes=STATES)
    system = System({"a": Fmu(path), "b": Fmu(path)}, [("a.x", "b.u"), ("b.x", "a.u"), ("a.count", "b.level")])
    master = masters.jacobi(system, 1e-3)
    interrupt(system, master, tmp_path / "cut.parquet", at=0.3, stop=12.0)
    resume(tmp_path / "cut.parquet", system, master)
    require_equal(read_result(tmp_path / "cut.parquet"), whole(system, master, tmp_path / "all.parquet", stop=12.0))


def both(system: System, step: float = 0.1) -> list[Any]:
    """The errors, or the results, of both engines."""
    found: list[Any] = []
    for engine in (KERNEL, REFERENCE):
        try:
            found.append(run(system, masters.jacobi(system, step), stop=2.0, engine=engine))
        except CosimoError as error:
            found.append(error)
    return found


@pytest.mark.parametrize(
    ("define", "said"),
    [
        ("STUCK", "does not advance beyond t = 0.0 (step to 0.1); it returns early"),
        ("UNSETTLED=1.5", "does not settle its discrete states at t = 0.5; contact its supplier"),
        ("REFUSE=2", "returned fmi3Error from fmi3EnterEventMode at t = 0.5; it says: not now"),
    ],
)
def test_what_goes_wrong_is_said_in_the_same_words(tmp_path: Path, define: str, said: str) -> None:
    ours, oracle = both(driven(tmp_path, defines=(define,)))
    assert isinstance(ours, UnitError)
    assert said in str(ours)
    assert (str(ours), type(ours)) == (str(oracle), type(oracle))
    assert np.array_equal(bits(ours.result), bits(oracle.result))


@pytest.mark.parametrize("defines", [("END=2",), ("END=2", "ANNOUNCE"), ("END=0",)])
@pytest.mark.parametrize("step", [0.125, 0.1])
def test_a_unit_may_end_the_run_in_event_mode(tmp_path: Path, defines: tuple[str, ...], step: float) -> None:
    """At the end of a macro step, within one, or when a discrete input changes (after five steps)."""
    ours, oracle = both(driven(tmp_path, defines=defines), step)
    assert np.array_equal(bits(getattr(ours, "result", ours)), bits(getattr(oracle, "result", oracle)))
    assert str(ours) == str(oracle)
    assert type(ours) is type(oracle)


def test_a_level_that_is_no_whole_number_is_refused_by_name(tmp_path: Path) -> None:
    class Half(Driver):
        def step(self, time: float, duration: float) -> None:
            self.level = 0.5 if time > 0.45 else 0

    fmu = Fmu(build(tmp_path, "events3"))
    system = System({"d": PythonUnit(Half), "f": fmu}, [("d.level", "f.level"), ("f.x", "d.x")])
    ours, oracle = both(system)
    assert "level" in str(ours)
    assert str(ours) == str(oracle)
