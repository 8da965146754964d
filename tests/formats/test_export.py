"""Packing: valid descriptions, equal bytes for equal units, systems as SSP packages, clear refusals."""

from __future__ import annotations

import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import fmpy
import numpy as np
import pytest
from fmpy.ssp.ssd import read_ssd
from fmpy.validation import validate_fmu

sys.path.insert(0, str(Path(__file__).parent))
from exported import Exported, many_sided, oscillator

from cosimo import masters
from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.system import Connection, System, Table
from cosimo.execution.running import run
from cosimo.formats.export import SuggestedExperiment, export_ssp, export_system, export_unit, identifier, state_names
from cosimo.units import Exact, Mechanical, PythonUnit, StateSpace

BOTH = pytest.mark.parametrize("fmi", [2, 3])

UNITS = {
    "many-sided": many_sided(Exact(), 3),
    "oscillator": oscillator(),
    "source": StateSpace(-1.0, np.zeros((1, 0)), 1.0, np.zeros((1, 0)), initial=1.0),
    "gain": StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), [[3.0]]),
    "sink": StateSpace(-1.0, 1.0, np.zeros((0, 1)), np.zeros((0, 1))),
    "unicode": StateSpace(-1.0, 1.0, 1.0, inputs=["Zufluß <m³/s> & mehr"], outputs=['"Höhe"']),
}


@BOTH
@pytest.mark.parametrize("name", UNITS)
def test_validation_finds_no_problems(tmp_path, fmi, name):
    path = export_unit(
        UNITS[name], tmp_path / "unit.fmu", name=name, fmi=fmi, experiment=SuggestedExperiment(1e-3, 10.0)
    )
    assert validate_fmu(str(path)) == []
    read = fmpy.read_model_description(str(path))
    assert read.fmiVersion == f"{fmi}.0"
    assert (read.modelName, read.defaultExperiment.stepSize, read.defaultExperiment.stopTime) == (name, "0.001", "10.0")
    causalities = {c: [v.name for v in read.modelVariables if v.causality == c] for c in ("input", "output")}
    assert causalities == {"input": list(UNITS[name].inputs), "output": list(UNITS[name].outputs)}


@BOTH
def test_structure_depends_exactly_where_coefficients_are(tmp_path, fmi):
    unit = many_sided(Exact(), 1)
    model = unit.linear()
    read = fmpy.read_model_description(str(export_unit(unit, tmp_path / "unit.fmu", name="unit", fmi=fmi)))
    knowns = [*state_names(unit), *unit.inputs]
    wanted = np.block([[model.C, model.D], [model.A, model.B]]) != 0
    for listed in (read.outputs + read.derivatives, read.initialUnknowns):
        found = np.array([[name in [v.name for v in u.dependencies] for name in knowns] for u in listed])
        assert np.array_equal(found, wanted)
    assert not wanted.all()
    assert [u.variable.derivative.name for u in read.derivatives] == state_names(unit)
    starts = {v.name: float(v.start) for v in read.modelVariables if v.start is not None}
    assert [starts[name] for name in state_names(unit)] == unit.initial_state.tolist()
    assert (starts["u1"], starts["u2"]) == (0.25, 0.0)


@BOTH
def test_fmpy_simulates_it(tmp_path, fmi):
    unit, h = oscillator(Exact()), 0.1
    path = export_unit(unit, tmp_path / "unit.fmu", name="unit", fmi=fmi)
    found = fmpy.simulate_fmu(str(path), stop_time=1.0, output_interval=h, start_values={"force": 3.0})
    instance = unit.instantiate()
    instance.set_input(np.array([[3.0]]), h)
    for k in range(11):
        np.testing.assert_allclose([found[k][name] for name in unit.outputs], instance.read(), rtol=1e-12, atol=1e-13)
        instance.step(k * h, h)


@BOTH
def test_equal_units_give_equal_files_and_others_other_tokens(tmp_path, fmi):
    def write(number: int, **options) -> tuple[bytes, str]:
        path = export_unit(oscillator(**options), tmp_path / f"{number}.fmu", name="unit", fmi=fmi)
        return path.read_bytes(), fmpy.read_model_description(str(path)).guid

    first, again = write(1), write(2)
    assert first == again
    others = [
        write(3, micro_steps=2),
        write(4, initial=[1.0, -0.4]),
        write(5, integrator=Exact()),
        write(6, start={"force": 1.0}),
    ]
    assert len({token for _, token in [first, *others]}) == 5


def test_names_of_states():
    assert state_names(oscillator()) == ["q1", "v1"]
    assert state_names(StateSpace(np.eye(2), np.eye(2), np.eye(2))) == ["x1", "x2"]
    clashing = StateSpace(np.eye(2), np.eye(2), np.eye(2), outputs=["x2", "y"])
    assert state_names(clashing) == ["state.x1", "state.x2"]
    assert [identifier(name) for name in ("a b.c", "3d", "ä", "")] == ["a_b_c", "unit_3d", "_", "unit_"]


class Twice:
    inputs = ("u",)
    outputs = ("y",)

    def step(self, time, duration):
        self.y = 2 * self.u


@dataclass(frozen=True)
class Midpoint(Exact):
    """An integrator that the compiled library has never heard of."""


@pytest.mark.parametrize(
    ("unit", "name", "fmi", "message"),
    [
        (PythonUnit(Twice), "twice", 2, "'twice' is of kind PythonUnit; only StateSpace and Mechanical"),
        (oscillator(Midpoint()), "unit", 2, "Midpoint.*use one of Exact"),
        (oscillator(micro_steps=2**32), "unit", 2, "micro steps"),
        (oscillator(), "unit", 1, "FMI 2 or 3, not 1"),
        (oscillator(), "", 2, "printable"),
        (oscillator(), "a\nb", 3, "printable"),
        (StateSpace(-1.0, 1.0, 1.0, inputs=["a"], outputs=["a"]), "unit", 3, "two variables called 'a'"),
        (StateSpace(-1.0, 1.0, 1.0, inputs=["time"]), "unit", 2, "two variables called 'time'"),
        (StateSpace(-1.0, 1.0, 1.0, inputs=["a\x07"]), "unit", 2, "printable"),
    ],
)
def test_what_cannot_be_exported(tmp_path, unit, name, fmi, message):
    with pytest.raises(ConfigurationError, match=message):
        export_unit(unit, tmp_path / "unit.fmu", name=name, fmi=fmi)
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_written(tmp_path):
    with pytest.raises(OutputError, match=r"cannot write .*unit\.fmu"):
        export_unit(oscillator(), tmp_path / "missing" / "unit.fmu", name="unit", fmi=2)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot create the folder"):
        export_system(pair(), tmp_path / "file" / "folder", fmi=2)
    (tmp_path / "taken.fmu").mkdir()
    with pytest.raises(OutputError, match="cannot write"):
        export_unit(oscillator(), tmp_path / "taken.fmu", name="unit", fmi=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken.fmu"]


def pair(**inputs) -> System:
    """A wheel whose position pulls a body, which pushes back; both have an input from outside."""
    wheel = oscillator(Exact(), B=[[1.0, 1.0]], inputs=["force", "road"], start={"road": 0.5})
    body = Mechanical(1.0, 0.1, 10.0, B=[[1.0, 0.5]], displacement=1.0, inputs=["pull", "wind"], outputs=["x"])
    back = Connection("body.x", "the wheel.force", gain=-3.0, offset=0.25)
    units = {"the wheel": wheel, "body": body}
    return System(
        units, [("the wheel.position", "body.pull"), back], inputs={"body.wind": 0.125, **inputs}, name="pair"
    )


@BOTH
def test_system_as_fmus(tmp_path, fmi):
    system = pair()
    master = masters.jacobi(system, 0.01)
    paths = export_system(system, tmp_path / "new" / "folder", fmi=fmi, master=master)
    assert {name: path.name for name, path in paths.items()} == {"the wheel": "the_wheel.fmu", "body": "body.fmu"}
    for path in paths.values():
        assert validate_fmu(str(path)) == []
        assert fmpy.read_model_description(str(path)).defaultExperiment.stepSize == "0.01"
    starts = {v.name: v.start for v in fmpy.read_model_description(str(paths["body"])).modelVariables}
    assert (starts["pull"], starts["wind"]) == ("0.0", "0.125")


@BOTH
def test_exported_system_runs_as_the_system_does(tmp_path, fmi):
    system, h, steps = pair(), 0.01, 300
    wanted = run(system, masters.gauss_seidel(system, h), stop=steps * h)
    live = {}
    for name, unit in system.units.items():
        (tmp_path / name).mkdir()
        live[name] = Exported(unit, tmp_path / name, fmi=fmi)
        live[name].initialise()
    wheel, body = live["the wheel"], live["body"]
    body.set(wind=0.125)
    for k in range(steps):
        wheel.set(force=-3.0 * body.get("x")[0] + 0.25)
        wheel.step(k * h, h)
        body.set(pull=wheel.get("position")[0])
        body.step(k * h, h)
        np.testing.assert_allclose([*wheel.get(), *body.get()], wanted.values[k + 1], rtol=0, atol=1e-12)


def test_units_whose_files_would_be_called_alike(tmp_path):
    system = System({"a b": UNITS["source"], "a_b": UNITS["source"], "A B": UNITS["source"]})
    paths = export_system(system, tmp_path, fmi=2)
    assert [path.name for path in paths.values()] == ["a_b.fmu", "a_b_2.fmu", "A_B_3.fmu"]


@BOTH
def test_system_as_ssp(tmp_path, fmi):
    system = pair(**{"the wheel.road": Table([0.0, 1.0], [2.0, 3.0])})
    path = export_ssp(system, tmp_path / "pair.ssp", fmi=fmi, step=0.01, stop=2.0)
    read = read_ssd(str(path), validate=True)
    assert read.name == "pair"
    assert {e.name: e.source for e in read.system.elements} == {
        "the wheel": "resources/the_wheel.fmu",
        "body": "resources/body.fmu",
    }
    connectors = {e.name: [(c.name, c.kind) for c in e.connectors] for e in read.system.elements}
    assert connectors["body"] == [("pull", "input"), ("wind", "input"), ("x", "output")]
    assert [(c.name, c.kind) for c in read.system.connectors] == [("the wheel.road", "input")]
    ends = [(c.startElement, c.startConnector, c.endElement, c.endConnector) for c in read.system.connections]
    assert ends == [
        ("the wheel", "position", "body", "pull"),
        ("body", "x", "the wheel", "force"),
        (None, "the wheel.road", "the wheel", "road"),
    ]
    text = zipfile.ZipFile(path).read("SystemStructure.ssd").decode()
    assert '<ssd:DefaultExperiment startTime="0.0" stopTime="2.0" />' in text
    assert text.count("LinearTransformation") == 1
    assert '<ssc:LinearTransformation factor="-3.0" offset="0.25" />' in text
    inner = tmp_path / "inner.fmu"
    inner.write_bytes(zipfile.ZipFile(path).read("resources/the_wheel.fmu"))
    assert validate_fmu(str(inner)) == []
    variables = {v.name: v.start for v in fmpy.read_model_description(str(inner)).modelVariables}
    assert variables["road"] == "2.0"


def test_ssp_of_what_cannot_be_exported(tmp_path):
    mixed = System({"a": UNITS["source"], "b": PythonUnit(Twice)}, [("a.y1", "b.u")])
    with pytest.raises(ConfigurationError, match="unit 'b' is of kind PythonUnit"):
        export_ssp(mixed, tmp_path / "mixed.ssp", fmi=2, step=0.1, stop=1.0)
    for step, stop in ((0.0, 1.0), (2.0, 1.0), (float("nan"), 1.0)):
        with pytest.raises(ConfigurationError, match="step"):
            export_ssp(pair(), tmp_path / "pair.ssp", fmi=2, step=step, stop=stop)
    assert list(tmp_path.iterdir()) == []


def test_missing_library_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("cosimo.formats.export.resources.files", lambda package: tmp_path)
    with pytest.raises(ConfigurationError, match=r"_fmu/unit.* is missing; reinstall cosimo"):
        export_unit(oscillator(), tmp_path / "unit.fmu", name="unit", fmi=2)


def test_machines_without_a_library_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr("cosimo.formats.export.platform.system", lambda: "Plan9")
    with pytest.raises(ConfigurationError, match="on Linux and Darwin, not on Plan9"):
        export_unit(oscillator(), tmp_path / "unit.fmu", name="unit", fmi=2)
