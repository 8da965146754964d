"""Packing: valid descriptions, equal bytes for equal units, systems as SSP packages, clear refusals."""

from __future__ import annotations

import struct
import sys
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import fmpy
import numpy as np
import pytest
from fmpy.ssp.ssd import read_ssd
from fmpy.validation import validate_fmu

sys.path.insert(0, str(Path(__file__).parent))
from exported import Exported, many_sided, oscillator
from fmu_builder import build
from hybrid import build_model

from cosimo import masters
from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.storage import file_digest
from cosimo.core.system import Connection, System, Table
from cosimo.execution.running import run
from cosimo.formats.export import SuggestedExperiment, export_ssp, export_system, export_unit, identifier, state_names
from cosimo.formats.scenario import Scenario, load
from cosimo.masters import MasterOptions
from cosimo.units import Exact, Mechanical, PythonUnit, StateSpace
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.model_exchange import Solver

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


def test_a_package_of_linear_units_keeps_its_master_and_inputs(tmp_path):
    """Its units come back as FMUs; all else is equal, and once they are FMUs, everything is, to the last byte."""
    system = pair(**{"the wheel.road": Table([0.0, 1.0], [2.0, 3.0])})
    words = MasterOptions("gauss-seidel", order="body,the wheel", couplings=("hold1",))
    scenario = Scenario.of(system, options=words, step=0.01, stop=2.0, target=0.05, outputs=("body.*",))
    first = load(export_ssp(scenario, tmp_path / "first.ssp", fmi=2, step=0.01, stop=2.0))
    second = load(export_ssp(first, tmp_path / "second.ssp", fmi=2, step=0.01, stop=2.0))
    for name in ("options", "step", "start", "stop", "target", "outputs", "power_pairs"):
        assert getattr(first, name) == getattr(second, name), name
        if name != "options":
            assert getattr(first, name) == getattr(scenario, name), name
    assert replace(first.options, couplings=tuple(first.options.couplings)) == words
    assert [file_digest(unit.path) for unit in first.system.units.values()] == [
        file_digest(unit.path) for unit in second.system.units.values()
    ]
    ours, theirs = scenario.run(), first.run()
    np.testing.assert_allclose(theirs["body.x"], ours["body.x"], rtol=0, atol=1e-12)
    assert ours["body.x"][-1] != 0.0


def test_a_package_keeps_solver_and_kind_of_an_fmu(tmp_path):
    path = build_model(tmp_path, "BALL")
    how = FmuOptions(kind="model-exchange", solver=Solver("rk4", micro_steps=7))
    scenario = Scenario.of(System({"ball": Fmu(path, options=how)}), step=0.01, stop=0.1)
    again = load(export_ssp(scenario, tmp_path / "ball.ssp", fmi=2, step=0.01, stop=0.1))
    unit = again.system.units["ball"]
    assert (unit.kind, unit.solver, unit.trial is None) == ("model-exchange", Solver("rk4", micro_steps=7), False)
    assert (
        'implementation="ModelExchange"' in zipfile.ZipFile(tmp_path / "ball.ssp").read("SystemStructure.ssd").decode()
    )


def test_a_package_keeps_sizes_of_arrays_texts_and_connections_of_both(tmp_path):
    """Elements that only a structural parameter makes, a text, and a connection of texts come back."""
    build(tmp_path, "arrays3")
    unit = Fmu(tmp_path / "arrays3.fmu", parameters={"n": 5}, start={"k": [1, 2, 3, 4, 5], "words": ["a", "b"]})
    wires = [("a.m[5]", "b.k[5]"), ("a.echo[1]", "b.words[2]")]
    scenario = Scenario.of(System({"a": unit, "b": unit}, wires), step=0.1, stop=0.5)
    again = load(export_ssp(scenario, tmp_path / "s.ssp", fmi=2, step=0.1, stop=0.5))
    assert again.warnings == ()
    assert [(c.source, c.target) for c in again.system.connections] == wires
    assert {name: one.given for name, one in again.system.units.items()} == {"a": unit.given, "b": unit.given}
    ours, theirs = scenario.run(), again.run()
    assert ours.names == theirs.names
    np.testing.assert_array_equal(ours.values, theirs.values)
    assert ours["b.m[1]"][-1] == 1.0, "the fifth input, which is the first output of the other"
    assert list(theirs["b.echo[2]"]) == list(ours["b.echo[2]"])


def test_packages_with_fmi_3_are_ssp_2(tmp_path):
    for version, expected in ((2, "1.0"), (3, "2.0")):
        fmu = export_unit(UNITS["source"], tmp_path / f"{version}.fmu", name="a", fmi=version)
        path = export_ssp(System({"a": Fmu(fmu)}), tmp_path / f"{version}.ssp", fmi=2, step=0.1, stop=1.0)
        assert f'version="{expected}" name=' in zipfile.ZipFile(path).read("SystemStructure.ssd").decode()
        assert load(path).warnings == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"step-size"', '"step-sice"', "did you mean 'step-size'?"),
        ("{", "[", "is not JSON"),
        ('"gauss-seidel"', '"gaus"', "unknown master 'gaus'"),
        ('"body.*"', '"boby.x"', "outputs"),
        ("resources/input", "resources/no-input", "no-input"),
        ('"fmu": "resources/body.fmu"', '"kind": "python", "class": "os:path"', "no 'fmu'"),
    ],
)
def test_a_wrong_annotation_is_refused_with_file_and_line(tmp_path, old, new, said):
    system = pair(**{"the wheel.road": Table([0.0, 1.0], [2.0, 3.0])})
    scenario = Scenario.of(system, options=MasterOptions("gauss-seidel"), step=0.01, stop=2.0, outputs=("body.*",))
    right = zipfile.ZipFile(export_ssp(scenario, tmp_path / "s.ssp", fmi=2, step=0.01, stop=2.0))
    with zipfile.ZipFile(tmp_path / "wrong.ssp", "w") as wrong:
        for name in right.namelist():
            content = right.read(name)
            if name.endswith(".ssd"):
                assert old.encode() in content
                content = content.replace(old.encode(), new.encode())
            wrong.writestr(name, content)
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path / "wrong.ssp")
    assert said in str(caught.value)
    assert "SystemStructure.ssd:" in str(caught.value)


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


@pytest.mark.parametrize(
    ("fmi", "folders"),
    [
        (2, {"linux64/unit.so", "win64/unit.dll", "darwin64/unit.dylib"}),
        (
            3,
            {
                "x86_64-linux/unit.so",
                "x86_64-windows/unit.dll",
                "x86_64-darwin/unit.dylib",
                "aarch64-darwin/unit.dylib",
            },
        ),
    ],
)
def test_an_fmu_has_the_libraries_of_all_systems_that_are_installed(tmp_path, monkeypatch, fmi, folders):
    """The headers as ELF, PE and Mach-O (for two processors) lay them out."""
    place = tmp_path / "package" / "_fmu"
    place.mkdir(parents=True)
    (place / "unit.so").write_bytes(b"\x7fELF\x02\x01\x01" + bytes(11) + struct.pack("<H", 62))
    (place / "unit.dll").write_bytes(b"MZ" + bytes(58) + struct.pack("<I4sH", 64, b"PE", 0x8664))
    table = struct.pack(">5I", 0x01000007, 3, 0, 0, 12) + struct.pack(">5I", 0x0100000C, 0, 0, 0, 14)
    (place / "unit.dylib").write_bytes(struct.pack(">II", 0xCAFEBABE, 2) + table)
    monkeypatch.setattr("cosimo.formats.export.resources.files", lambda _: tmp_path / "package")
    export_unit(oscillator(), tmp_path / "unit.fmu", name="unit", fmi=fmi)
    with zipfile.ZipFile(tmp_path / "unit.fmu") as archive:
        names = archive.namelist()
    assert {name for name in names if name.startswith("binaries/")} == {f"binaries/{folder}" for folder in folders}
