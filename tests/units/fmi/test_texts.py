"""Strings and binary values: exchanged at the communication points in the order of the master, and recorded as such."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmu_builder import build

import cosimo as co
from cosimo.core.errors import ConfigurationError, Interrupted, StepDiscarded
from cosimo.execution.checkpoints.fingerprints import system_fingerprint
from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions
from cosimo.formats.results import ResultFile, read_result
from cosimo.formats.resuming import resume
from cosimo.units.fmi.fmu import Fmu

STEP, STEPS = 0.25, 4
WIRES = [("a.label", "b.heard"), ("a.packet", "b.taken")]
LABELS = [f"step {k}" for k in range(STEPS + 1)]
PACKETS = [bytes(7 if i % 2 == 0 else 0 for i in range(k)) for k in range(STEPS + 1)]


def pair(folder: Path, *, isolate: bool = False, **built: Any) -> co.System:
    path = build(folder, "texts3", **built)
    return co.System({name: Fmu(path, name=name, isolate=isolate) for name in "ab"}, WIRES)


def ran(system: co.System, master: str = "jacobi", engine: str = "kernel", **options: Any) -> co.Result:
    made = getattr(co.masters, master)(system, step=STEP)
    return co.run(system, made, stop=STEP * STEPS, engine=EngineOptions(kind=engine), **options)


def before(values: list[Any]) -> list[Any]:
    """What a unit has that was given each value one macro step later; at the start both agree."""
    return [values[0], *values[:-1]]


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("master", ["jacobi", "gauss_seidel"])
def test_texts_are_exchanged_in_the_order_of_the_master(
    tmp_path: Path, engine: str, isolate: bool, master: str
) -> None:
    found = ran(pair(tmp_path, isolate=isolate), master, engine)
    late = before if master == "jacobi" else list
    assert list(found["a.label"]) == LABELS
    assert list(found["a.packet"]) == PACKETS
    assert list(found["b.echo"]) == late(LABELS)
    assert list(found["b.copy"]) == late(PACKETS)
    assert found["b.size"].tolist() == [len(t) + len(p) for t, p in zip(late(LABELS), late(PACKETS), strict=True)]
    assert found.names == ("a.size", "a.events", "b.size", "b.events")


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_steps_that_are_made_again_leave_the_texts_of_the_last(tmp_path: Path, engine: str) -> None:
    system = pair(tmp_path)
    master = co.masters.iterative(system, step=STEP, sweeps=3)
    found = co.run(system, master, stop=STEP * STEPS, engine=EngineOptions(kind=engine))
    assert list(found["a.label"]) == LABELS
    assert list(found["b.echo"]) == LABELS  # from the second sweep on


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_texts_are_given_in_event_mode_where_there_is_one(tmp_path: Path, engine: str) -> None:
    changes = {'<CoSimulation modelIdentifier="texts3"': '<CoSimulation modelIdentifier="texts3" hasEventMode="true"'}
    found = ran(pair(tmp_path, changes=changes, defines=("EVENTS",)), engine=engine)
    assert list(found["b.echo"]) == before(LABELS)
    assert found["b.events"].tolist() == [0, 0, 1, 2, 3]  # one for each change that arrives
    assert found["a.events"].tolist() == [0] * 5


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "arrows", "csv"])
def test_files_hold_texts_as_such(tmp_path: Path, suffix: str) -> None:
    system, path = pair(tmp_path), tmp_path / f"rows.{suffix}"
    ran(system, output=ResultFile(path))
    for found in (read_result(path), read_result(ran(system).save(tmp_path / f"again.{suffix}"))):
        assert list(found["a.label"]) == LABELS
        assert list(found["b.copy"]) == before(PACKETS)
        assert np.array_equal(found.values, ran(system).values)


def test_parquet_has_columns_of_strings_and_bytes(tmp_path: Path) -> None:
    from pyarrow.parquet import read_schema

    ran(pair(tmp_path), output=ResultFile(tmp_path / "rows.parquet", variables=["a.*"], every=3))
    schema = read_schema(tmp_path / "rows.parquet")
    assert schema.names == ["time", "a.size", "a.events", "a.label", "a.echo", "a.packet", "a.copy"]
    assert [str(kind) for kind in schema.types[3:]] == ["string", "string", "binary", "binary"]
    found = read_result(tmp_path / "rows.parquet")
    assert list(found["a.label"]) == ["step 0", "step 3", "step 4"]


@pytest.mark.parametrize("suffix", ["mat", "h5", "mf4"])
def test_files_of_numbers_leave_them_out(tmp_path: Path, suffix: str) -> None:
    found = read_result(ran(pair(tmp_path)).save(tmp_path / f"rows.{suffix}"))
    assert found.names == ("a.size", "a.events", "b.size", "b.events")
    assert not found.texts


def test_odd_texts_come_back_from_a_table(tmp_path: Path) -> None:
    odd = 'a "quoted",\nline, ü'
    system = co.System({"a": Fmu(build(tmp_path, "texts3"), start={"heard": odd, "taken": "00ff"}, isolate=False)})
    found = read_result(ran(system).save(tmp_path / "rows.csv"))
    assert list(found["a.echo"]) == [odd] * 5
    assert found["a.copy"][0] == b"\0\xff"
    assert list(found.to_pandas()["a.echo"]) == [odd] * 5


def test_a_run_goes_on_with_its_texts(tmp_path: Path) -> None:
    system, path = pair(tmp_path), tmp_path / "rows.parquet"
    master = co.masters.jacobi(system, step=STEP)

    def stopping(time: float, _: float) -> None:
        if time > 2 * STEP:
            raise KeyboardInterrupt

    options: dict[str, Any] = {"checkpoint": Checkpoint(every=0.0), "engine": EngineOptions(kind="reference")}
    with pytest.raises(Interrupted):
        co.run(system, master, stop=STEP * STEPS, output=ResultFile(path), progress=stopping, **options)
    assert list(read_result(path)["a.label"])[:3] == LABELS[:3]
    resume(path, system, master)
    found = read_result(path)
    assert list(found["a.label"]) == LABELS
    assert list(found["b.echo"]) == before(LABELS)


def test_a_state_as_bytes_brings_its_texts_along(tmp_path: Path) -> None:
    """They are passed on in the next macro step, before the unit is read again."""
    unit = Fmu(build(tmp_path, "texts3"), isolate=False)
    first, second = (unit.instantiate(0.0) for _ in range(2))
    for live in (first, second):
        live.take_texts({})
        live.finish_initialisation()
        live.read()
    for k in range(3):
        first.step(k * STEP, STEP)
    second.deserialise(first.serialise())
    assert (first.text("label"), second.text("label")) == ("step 0", "step 3")
    first.close()
    second.close()


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_texts_of_macro_steps_that_do_not_count_are_taken_back(tmp_path: Path, engine: str) -> None:
    """Doubling makes every pair of steps also as one, first: `label` counts only the steps that count."""
    system = pair(tmp_path)
    options: dict[str, Any] = {"adaptive": Adaptive(kind="doubling"), "engine": EngineOptions(kind=engine)}
    found = co.run(system, co.masters.jacobi(system, step=STEP), stop=4.0, **options)
    labels = [f"step {k}" for k in range(len(found))]
    assert len(labels) > 4
    assert list(found["a.label"]) == labels
    assert list(found["b.echo"]) == before(labels)


class Picky:
    """Discards steps longer than half a macro step."""

    inputs, outputs = {}, ("y",)

    def __init__(self) -> None:
        self.y = 0.0

    def step(self, time: float, duration: float) -> None:
        if duration > 0.5 * STEP:
            raise StepDiscarded("too long; use a shorter one.", time)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_a_discarded_step_is_divided_where_texts_are_passed_on(tmp_path: Path, engine: str) -> None:
    both = pair(tmp_path)
    system = co.System({**both.units, "picky": co.PythonUnit(Picky)}, both.connections)
    kind = EngineOptions(kind=engine)
    found = co.run(system, co.masters.jacobi(system, step=STEP), stop=STEP * 3, engine=kind)
    assert list(found["a.label"]) == [f"step {2 * k}" for k in range(4)]
    assert list(found["b.echo"]) == [found["b.echo"][0], "step 1", "step 3", "step 5"]
    assert found.info["rollbacks"] == 1


def test_values_of_every_type_are_taken(tmp_path: Path) -> None:
    path = build(tmp_path, "texts3")
    for seed in (b"\x09", "09"):
        unit = Fmu(path, parameters={"title": "now", "seed": seed}, isolate=False)
        found = ran(co.System({"a": unit}))
        assert found["a.label"][1] == "now 1"
        assert found["a.packet"][1] == b"\x09"
    for wrong in (9, "0", "xy"):
        with pytest.raises(ConfigurationError, match=r"of type Binary.*give bytes, or hexadecimal digits in quotes"):
            Fmu(path, parameters={"seed": wrong})


REFUSED = {
    "a number": ([("a.label", "b.size")], "unknown input of unit 'b' 'size'"),
    "another type": ([("a.label", "b.taken")], "the types String and Binary differ"),
    "an unknown one": ([("a.lable", "b.heard")], "unknown output of unit 'a' 'lable'"),
    "twice": ([("a.label", "b.heard"), ("a.echo", "b.heard")], "input b.heard is fed twice"),
    "a gain": ([co.Connection("a.label", "b.heard", gain=2.0)], "has a gain or an offset, and no numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_connections_that_do_not_fit_are_refused(tmp_path: Path, case: str) -> None:
    wires, reason = REFUSED[case]
    path = build(tmp_path, "texts3")
    with pytest.raises(ConfigurationError, match=reason):
        co.System({name: Fmu(path, name=name) for name in "ab"}, wires)


def test_a_connected_text_cannot_be_set(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"b\.heard is connected; change a value of the unit that feeds it"):
        pair(tmp_path).with_values({"b.heard": "x"})


def test_texts_do_not_enter_the_analysis(tmp_path: Path) -> None:
    system = pair(tmp_path)
    assert system.links == ()
    assert system.outputs == ("a.size", "a.events", "b.size", "b.events")
    assert len(system.text_links) == len(system.connections) == 2


def test_no_linear_model_is_believed_where_texts_are_exchanged(tmp_path: Path) -> None:
    """The size of what `b` hears changes with the texts of `a`, which no identified model of `b` can show."""
    system = co.System(
        {**pair(tmp_path).units, "c": co.StateSpace(-1.0, 1.0, 1.0, initial=1.0)}, WIRES[:1], inputs={"c.u1": 0.0}
    )
    verdict = co.analyse(system, co.masters.jacobi(system, step=0.1), horizon=1.0, pilots=False)
    assert verdict.evidence not in ("proved", "confirmed")
    assert "texts are passed on between units" in verdict.reasons["model"]


def test_a_checkpoint_knows_the_connections_of_texts(tmp_path: Path) -> None:
    system = pair(tmp_path)
    other = co.System(system.units, WIRES[:1])
    assert system_fingerprint(system)["connections"] != system_fingerprint(other)["connections"]
