"""SSP packages and plain descriptions: round trips, nesting, values, units of measure, habits in use, refusals."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fmpy.ssp.ssd import read_ssd
from typer.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent))
from hybrid import build_model
from ssp_builder import (
    NAMES,
    UNITS,
    array,
    array_value,
    binding,
    bindings,
    build,
    component,
    connectors,
    dictionary,
    document,
    linear,
    pack,
    parameter_set,
    parameters,
    reference,
    system,
    table,
    wire,
    write,
)

from cosimo import masters, run
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.core.system import Connection, System
from cosimo.formats import ssp_files, ssp_structure
from cosimo.formats.export import export_ssp
from cosimo.formats.scenario import load
from cosimo.formats.ssp import load_ssp
from cosimo.problems import find
from cosimo.units.archives import ArchiveLimits, check_archive
from cosimo.units.fmi import archive as fmu_archive
from cosimo.units.fmi.archive import platform_folders
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.model_exchange import Solver

PAIR = component("a") + component("b")
A_TO_B = wire("a.real_out", "b.real_in")


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own for temporary files, so that what is left behind can be seen."""
    folder = tmp_path / "temporary files"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def connection(path: Path) -> Connection:
    (found,) = load_ssp(path).system.connections
    return found


def fmu_of(path: Path, name: str = "a") -> Fmu:
    unit = load_ssp(path).system.units[name]
    assert isinstance(unit, Fmu)
    return unit


# ---- whole systems ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fmi", [2, 3])
def test_an_exported_problem_runs_as_it_does_here(tmp_path: Path, fmi: int) -> None:
    problem = find("two-mass").system()
    loaded = load_ssp(export_ssp(problem, tmp_path / "two mass.ssp", fmi=fmi, step=1e-3, stop=20.0))
    assert (loaded.step, loaded.start, loaded.stop, loaded.warnings) == (1e-3, 0.0, 20.0, ())
    assert loaded.system.names == problem.names
    ours, theirs = ({(str(c), c.gain, c.offset) for c in s.connections} for s in (loaded.system, problem))
    assert ours == theirs
    ours, theirs = (run(s, masters.gauss_seidel(s, 1e-3), stop=0.5) for s in (problem, loaded.system))
    scale = np.abs(ours.values).max()
    assert np.abs(ours.values - theirs.values).max() <= 1e-12 * scale


def test_every_archive_is_opened_and_checked_once_to_describe_a_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = export_ssp(find("two-mass").system(), tmp_path / "m.ssp", fmi=2, step=1e-3, stop=1.0)
    opened: list[str] = []

    def count(archive: zipfile.ZipFile, label: str, limits: ArchiveLimits) -> int:
        opened.append(Path(label).name)
        return check_archive(archive, label, limits)

    monkeypatch.setattr(fmu_archive, "check_archive", count)
    monkeypatch.setattr(ssp_files, "check_archive", count)
    loaded = load_ssp(path)
    assert sorted(opened) == ["m.ssp", "one.fmu", "two.fmu"]
    for unit in loaded.system.units.values():
        unit.instantiate(0.0).close()
    assert sorted(opened[3:]) == ["one.fmu", "two.fmu"], "checked again before anything is extracted"


def test_an_fmu_of_another_platform_is_named_as_in_the_package(tmp_path: Path) -> None:
    """Not by the folder into which it was copied."""
    path, inner = export_ssp(find("two-mass").system(), tmp_path / "m.ssp", fmi=2, step=1e-3, stop=1.0), io.BytesIO()
    with zipfile.ZipFile(path) as package:
        members = {name: package.read(name) for name in package.namelist()}
    with zipfile.ZipFile(io.BytesIO(members["resources/one.fmu"])) as fmu, zipfile.ZipFile(inner, "w") as other:
        for name in fmu.namelist():
            other.writestr(name.replace(platform_folders(2)[0], "elsewhere"), fmu.read(name))
    with zipfile.ZipFile(path, "w") as package:
        for name, content in (members | {"resources/one.fmu": inner.getvalue()}).items():
            package.writestr(name, content)
    with pytest.raises(ConfigurationError, match="holds no library for this platform") as refused:
        load_ssp(path).system.units["one"].instantiate()
    assert str(refused.value).startswith(f"FMU '{path}")


def test_hand_written_descriptions_are_valid(tmp_path: Path) -> None:
    inside = connectors("real_in input Real m", "real_out output Real mm")
    elements = component("a", inside + bindings(binding(parameters(gain='Real value="3"'))))
    inner = system(component("c", inside), wire(".in", "c.real_in"), connectors("in input Real cm"), name="sub")
    wires = wire("a.real_out", "sub.in", linear(2, 1))
    path = pack(tmp_path, document(system(elements + inner, wires)))
    read_ssd(str(path), validate=True)  # FMPy checks against the schema of the standard
    assert load_ssp(path).system.names == ("a", "sub.c")


def test_default_experiment(tmp_path: Path) -> None:
    tail = UNITS + '<ssd:DefaultExperiment startTime="1.5" stopTime="4"/>'
    loaded = load_ssp(write(tmp_path, document(system(PAIR, A_TO_B), tail)))
    assert (loaded.start, loaded.stop, loaded.step, loaded.outputs) == (1.5, 4.0, 0.1, None)
    unit = loaded.system.units["a"]
    assert isinstance(unit, Fmu)
    assert unit.experiment.start_time == 1.5
    assert loaded.system.name == "test"


def test_without_experiment_nothing_is_said(tmp_path: Path) -> None:
    loaded = load_ssp(write(tmp_path, document(system(PAIR))))
    assert (loaded.start, loaded.stop) == (0.0, None)
    assert not loaded.specified & {"start", "stop", "options"}
    assert loaded.source == tmp_path / "s.ssd"


# ---- connections -----------------------------------------------------------------------------------------------------


def test_units_of_the_fmus_are_converted(tmp_path: Path) -> None:
    found = connection(write(tmp_path, document(system(PAIR, A_TO_B))))
    assert (found.source, found.target) == ("a.real_out", "b.real_in")
    assert (found.gain, found.offset) == (pytest.approx(1e-3), 0.0)


def test_transformation_comes_after_conversion(tmp_path: Path) -> None:
    found = connection(write(tmp_path, document(system(PAIR, wire("a.real_out", "b.real_in", linear(2, 5))))))
    assert (found.gain, found.offset) == (pytest.approx(2e-3), 5.0)


def test_conversion_can_be_suppressed(tmp_path: Path) -> None:
    more = 'suppressUnitConversion="true"'
    found = connection(write(tmp_path, document(system(PAIR, wire("a.real_out", "b.real_in", linear(2, 5), more)))))
    assert (found.gain, found.offset) == (2.0, 5.0)


def test_start_and_end_do_not_give_the_direction(tmp_path: Path) -> None:
    found = connection(write(tmp_path, document(system(PAIR, wire("b.real_in", "a.real_out")))))
    assert (found.source, found.target) == ("a.real_out", "b.real_in")


@pytest.mark.parametrize(("unit", "gain"), [("Real", 0.001 * 6), ("Real cm", 0.001 * 6), ("", 0.001 * 6)])
def test_connections_through_nested_systems(tmp_path: Path, unit: str, gain: float) -> None:
    """Two levels down on one side, one on the other: factors 2 and 3 on the way, and mm → m in all."""
    deep = system(component("c"), wire("c.real_out", ".y", linear(2, 0)), connectors(f"y output {unit}"), name="deep")
    left = system(deep, wire(".y", "deep.y"), connectors("y output Real"), name="left")
    right = system(component("d"), wire("d.real_in", ".u"), connectors("u input Real m"), name="right")
    path = write(tmp_path, document(system(left + right, wire("left.y", "right.u", linear(3, 0)))))
    found = connection(path)
    assert (found.source, found.target) == ("left.deep.c.real_out", "right.d.real_in")
    assert found.gain == pytest.approx(gain)


def test_offsets_along_the_way_are_transformed_too(tmp_path: Path) -> None:
    inner = system(
        component("c"), wire(".u", "c.real_in", linear(10, 1)), connectors("u input Real cm"), name="sub"
    )  # cm → m, then 10 v + 1
    path = write(tmp_path, document(system(component("a") + inner, wire("a.real_out", "sub.u", linear(1, 7)))))
    found = connection(path)  # mm → cm, then v + 7
    assert found.gain == pytest.approx(0.1 * 0.01 * 10)
    assert found.offset == pytest.approx(7 * 0.01 * 10 + 1)


def test_a_system_may_pass_a_value_straight_on(tmp_path: Path) -> None:
    through = system("", wire(".u", ".y"), connectors("u input", "y output"), name="through")
    through = through.replace("<ssd:Elements>\n</ssd:Elements>\n", "")
    wires = wire("a.real_out", "through.u") + wire("through.y", "b.real_in")
    found = connection(write(tmp_path, document(system(PAIR + through, wires))))
    assert found.gain == pytest.approx(1e-3)


def test_unconnected_inputs_of_the_system_keep_start_values(tmp_path: Path) -> None:
    inside = connectors("u input Real cm")
    path = write(tmp_path, document(system(component("a"), wire(".u", "a.real_in"), inside)))
    assert load_ssp(path).system.inlets["a"][0].start == 1.5
    values = bindings(binding(parameters(u='Real value="250" unit="mm"')))
    path = write(tmp_path, document(system(component("a"), wire(".u", "a.real_in"), inside + values)))
    assert load_ssp(path).system.inlets["a"][0].start == pytest.approx(0.25)


def test_fmi3_aliases_can_be_connected(tmp_path: Path) -> None:
    build(tmp_path, "feedthrough3", file="g.fmu")
    elements = component("a", source="g.fmu") + component("b", source="g.fmu")
    found = connection(write(tmp_path, document(system(elements, wire("a.sum", "b.Float64_in")))))
    assert found.source == "a.integral"


def test_elements_of_arrays_can_be_connected(tmp_path: Path) -> None:
    build(tmp_path, "arrays3", file="g.fmu")
    fmu = Fmu(tmp_path / "g.fmu")
    start = next(name for name in fmu.outputs if name.endswith("]"))
    kinds = {fmu.variables[name].type: name for name in fmu.inputs if name.endswith("]")}
    end = kinds[fmu.variables[start].type]
    elements = component("a", source="g.fmu") + component("b", source="g.fmu")
    found = connection(write(tmp_path, document(system(elements, wire(f"a.{start}", f"b.{end}")))))
    assert (found.source, found.target) == (f"a.{start}", f"b.{end}")


# ---- values ----------------------------------------------------------------------------------------------------------

GAIN2 = parameters(gain='Real value="2"')


def test_values_of_every_type(tmp_path: Path) -> None:
    tail = '<ssv:Enumerations><ssc:Enumeration name="Gear"><ssc:Item name="low" value="1"/></ssc:Enumeration>'
    content = parameter_set(
        {
            "gain": 'Real value="2.5"',
            "real_in": 'Real value="2500" unit="mm"',
            "int_in": 'Integer value="3"',
            "bool_in": 'Boolean value="false"',
            "enum_in": 'Enumeration value="low" name="Gear"',
            "text_in": 'String value="hi"',
            "integral": 'Real value="4"',
        },
        tail + "</ssv:Enumerations>",
    )
    fmu = fmu_of(write(tmp_path, document(system(component("a", bindings(binding(content)))))))
    assert fmu.given == {
        "gain": 2.5,
        "real_in": pytest.approx(2.5),
        "int_in": 3,
        "bool_in": False,
        "enum_in": 1,
        "text_in": "hi",
        "integral": 4.0,
    }


def test_an_external_parameter_set(tmp_path: Path) -> None:
    values = parameter_set({"gain": 'Real value="2"'}, names=NAMES)
    path = write(
        tmp_path,
        document(system(component("a", bindings(binding(more='source="values/a%20b.ssv"'))))),
        {"values/a b.ssv": values},
    )
    assert fmu_of(path).given == {"gain": 2.0}


def test_a_parameter_set_inside_the_fmu(tmp_path: Path) -> None:
    build(
        tmp_path,
        "feedthrough2",
        file="f.fmu",
        files={"resources/own.ssv": parameter_set({"gain": 'Real value="6"'}, names=NAMES)},
    )
    inside = bindings(binding(more='source="resources/own.ssv" sourceBase="component"'))
    assert fmu_of(write(tmp_path, document(system(component("a", inside))))).given == {"gain": 6.0}


def test_a_mapping_renames_converts_transforms_and_leaves_out(tmp_path: Path) -> None:
    content = parameters(k='Real value="100" unit="mm"', gain='Real value="9"', flag='Boolean value="true"')
    mapping = f"""<ssd:ParameterMapping><ssm:ParameterMapping version="1.0">
<ssm:MappingEntry source="k" target="real_in">{linear(2, 1)}</ssm:MappingEntry>
<ssm:MappingEntry source="k" target="gain" suppressUnitConversion="true">{linear(0.05, 0)}</ssm:MappingEntry>
<ssm:MappingEntry source="flag" target="bool_in"><ssc:BooleanMappingTransformation>
<ssc:MapEntry source="1" target="0"/><ssc:MapEntry source="false" target="true"/>
</ssc:BooleanMappingTransformation></ssm:MappingEntry>
</ssm:ParameterMapping></ssd:ParameterMapping>"""
    inside = bindings(binding(content, mapping=mapping))
    fmu = fmu_of(write(tmp_path, document(system(component("a", inside)))))
    assert fmu.given == {"real_in": pytest.approx(1.2), "gain": pytest.approx(5.0), "bool_in": False}


def test_an_external_mapping_with_a_prefix(tmp_path: Path) -> None:
    mapping = (
        f'<ssm:ParameterMapping version="1.0" {NAMES}><ssm:MappingEntry source="p.k" target="a.gain"/>'
        f"</ssm:ParameterMapping>"
    )
    inside = bindings(
        binding(parameters(k='Real value="7"'), more='prefix="p."', mapping='<ssd:ParameterMapping source="m.ssm"/>')
    )
    path = write(tmp_path, document(system(component("a"), inside=inside)), {"m.ssm": mapping})
    assert fmu_of(path).given == {"gain": 7.0}


def test_outer_values_count_before_inner_and_later_before_earlier(tmp_path: Path) -> None:
    def value(number: int, name: str = "gain") -> str:
        return binding(parameter_set({name: f'Real value="{number}"'}))

    own = component("a", bindings(value(1), value(2)))
    path = write(tmp_path, document(system(system(own, name="sub"))))
    assert fmu_of(path, "sub.a").given == {"gain": 2.0}
    path = write(tmp_path, document(system(system(own, inside=bindings(value(3, "a.gain")), name="sub"))))
    assert fmu_of(path, "sub.a").given == {"gain": 3.0}
    inner = system(own, inside=bindings(value(3, "a.gain")), name="sub")
    outer = bindings(value(4, "sub.a.gain"), binding(GAIN2.replace('"2"', '"5"'), more='prefix="sub.a."'))
    assert fmu_of(write(tmp_path, document(system(inner, inside=outer))), "sub.a").given == {"gain": 5.0}


def test_parameters_of_a_system_reach_its_components(tmp_path: Path) -> None:
    inside = connectors("k parameter Real") + bindings(binding(parameters(k='Real value="4"')))
    wires = wire(".k", "a.gain", linear(0.5, 1)) + wire(".k", "b.gain")
    path = write(tmp_path, document(system(PAIR, wires, inside)))
    assert (fmu_of(path).given, fmu_of(path, "b").given) == ({"gain": 3.0}, {"gain": 4.0})


def test_values_for_unknown_names_are_ignored_and_told(tmp_path: Path) -> None:
    inside = bindings(binding(parameters(gain='Real value="2"', gian='Real value="3"')))
    loaded = load_ssp(write(tmp_path, document(system(component("a", inside)))))
    assert [str(w) for w in loaded.warnings] == [
        f"{tmp_path / 's.ssd'}:5: warning: values for unknown names are ignored: gian."
    ]


# ---- descriptions in descriptions ------------------------------------------------------------------------------------


def test_components_may_be_descriptions_and_packages(tmp_path: Path) -> None:
    inner = document(system(component("c"), wire(".u", "c.real_in"), connectors("u input Real m"), name="inner"))
    pack(tmp_path, inner, name="inner.ssp")
    value = bindings(binding(parameter_set({"c.gain": 'Real value="2"'})))
    elements = (
        component("a")
        + component("x", value, source="inner.ssd", more='type="application/x-ssp-definition"')
        + component("y", source="inner.ssp", more='type="application/x-ssp-package"')
    )
    wires = wire("a.real_out", "x.u") + wire("a.real_out", "y.u")
    path = write(tmp_path, document(system(elements, wires)), {"inner.ssd": inner})
    loaded = load_ssp(path)
    assert loaded.system.names == ("a", "x.c", "y.c")
    assert [c.target for c in loaded.system.connections] == ["x.c.real_in", "y.c.real_in"]
    assert fmu_of(path, "x.c").given == {"gain": 2.0}
    assert fmu_of(path, "y.c").given == {}


def test_a_package_in_a_package_runs(tmp_path: Path, temporary: Path) -> None:
    inner = pack(tmp_path, document(system(component("c"), name="inner")), name="inner.ssp").read_bytes()
    elements = component("a") + component("x", source="sub/inner.ssp", more='type="application/x-ssp-package"')
    path = pack(tmp_path, document(system(elements)), {"sub/inner.ssp": inner})
    loaded = load_ssp(path)
    result = run(loaded.system, masters.jacobi(loaded.system, 0.1), stop=0.2)
    assert result["x.c.real_out"][-1] == 1.5
    assert len([path for path in temporary.glob("cosimo-ssp-*") if path.is_dir()]) == 1


def test_a_system_of_the_document_can_be_used_again(tmp_path: Path) -> None:
    first = system(component("c"), name="first", more='id="it"')
    path = write(tmp_path, document(system(first + component("second", source="#it"))))
    assert load_ssp(path).system.names == ("first.c", "second.c")


def test_a_description_that_contains_itself_is_refused(tmp_path: Path) -> None:
    own = component("x", source="s.ssd", more='type="application/x-ssp-definition"')
    with pytest.raises(ConfigurationError, match="contains itself"):
        load_ssp(write(tmp_path, document(system(own))))
    with pytest.raises(ConfigurationError, match="contains itself"):
        load_ssp(write(tmp_path, document(system(component("x", source="#it"), more='id="it"'))))


def test_references_cannot_multiply_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssp_structure, "ELEMENTS", 1_000)
    levels = [system(component("c"), name="s0", more='id="i0"')]
    for n in range(1, 20):
        twice = component("x", source=f"#i{n - 1}") + component("y", source=f"#i{n - 1}")
        levels.append(system(twice, name=f"s{n}", more=f'id="i{n}"'))
    with pytest.raises(UnsafeInputError, match="more than 1,000 elements"):
        load_ssp(write(tmp_path, document(system("".join(levels)))))


# ---- signal dictionaries, tables, arrays, placeholders ---------------------------------------------------------------


def test_what_is_connected_to_a_signal_is_connected_through_it(tmp_path: Path) -> None:
    """Two references to one dictionary, one of them in a nested system: mm into cm of the signal, from there to m."""
    inner = system(component("c") + reference("r", "force inout"), wire("r.force", "c.real_in"), name="sub")
    wires = wire("a.real_out", "bus.force") + wire("bus.force", "b.real_in", linear(2, 1))
    root = system(PAIR + reference("bus", "force inout Real cm") + inner, wires, dictionary("force Real cm"))
    found = load_ssp(write(tmp_path, document(root))).system.connections
    assert [(c.source, c.target) for c in found] == [("a.real_out", "b.real_in"), ("a.real_out", "sub.c.real_in")]
    assert [(c.gain, c.offset) for c in found] == [(pytest.approx(2e-3), 1.0), (pytest.approx(1e-3), 0.0)]


def test_a_signal_dictionary_in_a_file_of_its_own(tmp_path: Path) -> None:
    entry = '<ssb:DictionaryEntry name="force"><ssc:Real/></ssb:DictionaryEntry>'
    content = f'<ssb:SignalDictionary version="1.0" {NAMES}>{entry}</ssb:SignalDictionary>'
    inside = '<ssd:SignalDictionaries><ssd:SignalDictionary name="d" source="bus.ssb"/></ssd:SignalDictionaries>'
    wires = wire("bus.force", "b.real_in") + wire("a.real_out", "bus.force")
    path = write(tmp_path, document(system(PAIR + reference("bus"), wires, inside)), {"bus.ssb": content})
    assert (connection(path).source, connection(path).gain) == ("a.real_out", pytest.approx(1e-3))
    write(tmp_path, document(system(PAIR)), {"bus.ssb": content.replace("SignalDictionary ", "Other ", 1)})
    with pytest.raises(ConfigurationError, match=r"bus\.ssb"):
        load_ssp(write(tmp_path, document(system(PAIR + reference("bus"), wires, inside))))


ENUMERATIONS = (
    '<ssd:Enumerations><ssc:Enumeration name="Gear"><ssc:Item name="low" value="1"/><ssc:Item name="high" value="2"/>'
    '</ssc:Enumeration><ssc:Enumeration name="Level"><ssc:Item name="up" value="1"/><ssc:Item name="down" value="2"/>'
    "</ssc:Enumeration></ssd:Enumerations>"
)


@pytest.mark.parametrize(
    ("kind", "entries", "expected"),
    [
        ("bool", ("Boolean", "true false", "0 1"), (-1.0, 1.0)),
        ("bool", ("Boolean", "true true", "false true"), (0.0, 1.0)),
        ("int", ("Integer", "1 3", "2 5", "4 9"), (2.0, 1.0)),
        ("int", ("Integer", "7 9"), (1.0, 2.0)),
        ("enum", ("Enumeration", "low down", "high up"), (-1.0, 3.0)),
    ],
)
def test_tables_on_one_line_are_gain_and_offset(
    tmp_path: Path, kind: str, entries: tuple[str, ...], expected: tuple[float, float]
) -> None:
    named = {"enum": ('Enumeration name="Gear"', 'Enumeration name="Level"')}.get(kind, ("Real", "Real"))
    out, into = (
        f'<ssd:Connectors><ssd:Connector name="{kind}_{way}" kind="{full}"><ssc:{content}/></ssd:Connector>'
        "</ssd:Connectors>"
        for way, full, content in (("out", "output", named[0]), ("in", "input", named[1]))
    )
    elements = component("a", out if kind == "enum" else "") + component("b", into if kind == "enum" else "")
    wires = wire(f"a.{kind}_out", f"b.{kind}_in", table(*entries))
    found = connection(write(tmp_path, document(system(elements, wires), UNITS + ENUMERATIONS)))
    assert (found.gain, found.offset) == expected


def test_a_negated_switch_runs(tmp_path: Path) -> None:
    wires = wire("a.bool_out", "b.bool_in", table("Boolean", "true false", "false true"))
    values = bindings(binding(parameter_set({"a.bool_in": 'Boolean value="true"'})))
    loaded = load_ssp(write(tmp_path, document(system(PAIR, wires, values))))
    result = run(loaded.system, masters.gauss_seidel(loaded.system, 0.1), stop=0.2)
    assert (result["a.bool_out"][-1], result["b.bool_out"][-1]) == (1.0, 0.0)


def test_arrays_are_connected_and_given_as_a_whole(tmp_path: Path) -> None:
    """SSP 2.0: one connection from array to array, also through a system, and one parameter for all elements."""
    build(tmp_path, "arrays3", file="g.fmu")
    fmu = Fmu(tmp_path / "g.fmu")
    owners = {fmu.owners[name] for name in fmu.inputs if name.endswith("]")}
    into = next(o for o in sorted(owners) if fmu.variables[fmu.elements_of(o)[0]].type == "Float64")
    elements_in = fmu.elements_of(into)
    out = next(
        o
        for o in sorted({fmu.owners[name] for name in fmu.outputs})
        if len(fmu.elements_of(o)) == len(elements_in) and fmu.variables[fmu.elements_of(o)[0]].type == "Float64"
    )
    pair = component("a", source="g.fmu") + component("b", source="g.fmu")
    found = load_ssp(write(tmp_path, document(system(pair, wire(f"a.{out}", f"b.{into}"))))).system.connections
    expected = [(f"a.{x}", f"b.{y}") for x, y in zip(fmu.elements_of(out), elements_in, strict=True)]
    assert sorted((c.source, c.target) for c in found) == sorted(expected)


def test_an_array_of_values(tmp_path: Path) -> None:
    build(tmp_path, "arrays3", file="g.fmu")
    fmu = Fmu(tmp_path / "g.fmu")
    name = next(fmu.owners[n] for n in fmu.inputs if n.endswith("]") and fmu.variables[n].type == "Float64")
    shape = [int(part) for part in fmu.elements_of(name)[-1].rpartition("[")[2].rstrip("]").split(",")]
    numbers = [float(k) for k in range(len(fmu.elements_of(name)))]
    sizes = "".join(f'<ssc:Dimension size="{size}"/>' for size in shape)
    content = array_value(name, 1, " ".join(map(str, numbers))).replace('<ssc:Dimension size="1"/>', sizes)
    path = write(tmp_path, document(system(component("a", bindings(binding(content)), source="g.fmu"))))
    assert fmu_of(path).given == dict(zip(fmu.elements_of(name), numbers, strict=True))


def test_arrays_pass_through_a_system(tmp_path: Path) -> None:
    inner = system(component("c"), wire(".u[2]", "c.real_in"), array("u", 2), name="sub")
    wires = wire("a.real_out", "sub.u[2]")
    found = connection(write(tmp_path, document(system(component("a") + inner, wires))))
    assert (found.source, found.target) == ("a.real_out", "sub.c.real_in")


def test_a_component_without_a_source_is_left_out_where_nobody_waits_for_it(tmp_path: Path) -> None:
    elements = component("a") + component("p", connectors("u input"), source="")
    loaded = load_ssp(write(tmp_path, document(system(elements, wire("a.real_out", "p.u")))))
    assert (loaded.system.names, loaded.system.connections) == (("a",), ())
    assert [str(w) for w in loaded.warnings if "component 'p' has no source. It is left out" in str(w)]


def test_an_empty_binding_gives_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, document(system(component("a", bindings(binding(more='source=""'))))))
    assert fmu_of(path).given == {}
    assert ["the parameter binding is empty" in str(w) for w in load_ssp(path).warnings] == [True]


def test_metadata_are_named_in_a_notice_and_are_no_problem(tmp_path: Path) -> None:
    meta = '<ssc:MetaData kind="general" type="application/x-srmd-meta-data" source="m.srmd"/>'
    text = document(system(component("a", meta), inside=meta))
    path = write(tmp_path, text.replace('version="1.0" name="test"', 'version="2.0" name="test"'))
    (said,) = load_ssp(path).warnings
    assert (said.severity, said.exit_code) == ("notice", 0)
    assert str(said).endswith("notice: metadata and signatures have no effect here: m.srmd.")
    done = CliRunner().invoke(app, ["validate", str(path), "--json"])
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"valid": True, "problems": [str(said)]})
    done = CliRunner().invoke(app, ["validate", str(path)])
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, f"{path}: no problems found")


RELAXED = [
    ("kind", component("a", connectors("real_in output")), "", "has the causality input; correct its kind."),
    ("unknown variable", component("a", connectors("nothing input")), "", "unknown variable of"),
    ("unit", component("a", connectors("real_in input Real mm")), "", "but the FMU has 'm'"),
    ("twice", component("a", connectors("real_in input", "real_in input")), "", "is declared twice; remove one."),
    (
        "no source",
        component("a") + component("p", connectors("y output"), source=""),
        wire("p.y", "a.real_in"),
        "component 'p' has no source",
    ),
]


@pytest.mark.parametrize(("elements", "wires", "said"), [r[1:] for r in RELAXED], ids=[r[0] for r in RELAXED])
def test_relaxed_validation_lists_what_was_overlooked(tmp_path: Path, elements: str, wires: str, said: str) -> None:
    path = write(tmp_path, document(system(elements, wires)))
    with pytest.raises(ConfigurationError):
        load(path)
    loaded = load(path, validate=False)
    assert loaded.system.names == ("a",)
    (found,) = loaded.warnings
    assert found.message.startswith("overlooked: ")
    assert said in found.message


# ---- habits of the field ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "warning"),
    [
        (NAMES, "", "the prefix 'ssd' is not declared"),
        ("SSP1/SystemStructure", "Draft/SystemStructure", "is not that of SSP;"),
        ('version="1.0" name="test"', 'name="test"', "the version is missing"),
        ('version="1.0" name="test"', 'version="3.0" name="test"', "the version is 3.0"),
    ],
)
def test_descriptions_as_they_are_found(tmp_path: Path, old: str, new: str, warning: str) -> None:
    loaded = load_ssp(write(tmp_path, document(system(PAIR, A_TO_B)).replace(old, new)))
    assert len(loaded.system.connections) == 1
    assert [w for w in loaded.warnings if warning in str(w)]


def test_a_package_as_omsimulator_writes_it(tmp_path: Path) -> None:
    """Empty element names for the system itself, annotations of its own, values for the root in files."""
    inner = (
        '<ssd:System name="sub"><ssd:Connectors><ssd:Connector name="u" kind="input"><ssc:Real/></ssd:Connector>'
        '</ssd:Connectors><ssd:Annotations><ssc:Annotation type="org.openmodelica"><oms:Annotations>'
        '<oms:SimulationInformation><oms:FixedStepMaster description="oms-ma" stepSize="1e-2"/>'
        "</oms:SimulationInformation></oms:Annotations></ssc:Annotation></ssd:Annotations><ssd:Elements>"
        '<ssd:Component name="c" type="application/x-fmu-sharedlibrary" source="resources/0001_c.fmu">'
        '<ssd:Connectors><ssd:Connector name="real_in" kind="input"><ssc:Real/></ssd:Connector></ssd:Connectors>'
        '</ssd:Component></ssd:Elements><ssd:Connections><ssd:Connection startElement="" startConnector="u" '
        'endElement="c" endConnector="real_in"/></ssd:Connections></ssd:System>\n'
    )
    bound = bindings(
        binding(more='source="resources/root.ssv"', mapping='<ssd:ParameterMapping source="resources/root.ssm"/>')
    )
    text = document(system(component("a", source="resources/0000_a.fmu") + inner, wire("a.real_out", "sub.u"), bound))
    text = text.replace(NAMES, f'{NAMES} xmlns:oms="https://example.org/oms.xsd"')
    fmu = build(tmp_path / "fmu", "feedthrough2", file="f.fmu").read_bytes()
    mapping = f'<ssm:ParameterMapping version="1.0" {NAMES}><ssm:MappingEntry source="k" target="sub.c.gain"/>'
    files: dict[str, str | bytes] = {
        "resources/0000_a.fmu": fmu,
        "resources/0001_c.fmu": fmu,
        "resources/root.ssv": parameter_set({"k": 'Real value="3"'}, names=NAMES),
        "resources/root.ssm": f"{mapping}</ssm:ParameterMapping>",
    }
    loaded = load_ssp(pack(tmp_path, text, files))
    assert (loaded.system.names, loaded.warnings) == (("a", "sub.c"), ())
    assert fmu_of(loaded.source, "sub.c").given == {"gain": 3.0}
    result = run(loaded.system, masters.gauss_seidel(loaded.system, 0.1), stop=0.2)
    assert result["sub.c.real_out"][-1] == pytest.approx(3.0 * 1e-3 * result["a.real_out"][-1])


def test_a_package_as_fmpy_reads_it(tmp_path: Path) -> None:
    """Geometry in every element, two bindings of which the later one counts, a file without namespace."""
    geometry = '<ssd:ElementGeometry x1="0" y1="0" x2="1" y2="1"/>'
    plain = parameter_set({"gain": 'Real value="4"'}).replace("ssv:", "")
    inside = geometry + bindings(binding(parameters(gain='Real value="2"')), binding(more='source="p.ssv"'))
    drawn = '<ssd:SystemGeometry x1="0" y1="0" x2="9" y2="9"/>'
    path = write(tmp_path, document(system(component("a", inside), inside=drawn)), {"p.ssv": plain})
    assert fmu_of(path).given == {"gain": 4.0}
    assert ["the namespace is missing" in str(w) for w in load_ssp(path).warnings] == [True]


@pytest.mark.parametrize(
    "inside", [wire(".u", "c.real_in", more='startElement=""'), wire("c.real_in", ".u", more='endElement=""')]
)
def test_an_empty_name_for_the_system_itself(tmp_path: Path, inside: str) -> None:
    inner = system(component("c"), inside, connectors("u input Real m"), name="sub")
    found = connection(write(tmp_path, document(system(component("a") + inner, wire("a.real_out", "sub.u")))))
    assert (found.source, found.target) == ("a.real_out", "sub.c.real_in")
    assert found.gain == pytest.approx(1e-3)


def test_validation_can_be_switched_off_in_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = build(tmp_path, "feedthrough2", file="bad.fmu", changes={'modelName="Feedthrough"': ""})
    packed = pack(tmp_path, document(system(component("a", source="bad.fmu"))), {"bad.fmu": bad.read_bytes()})
    with pytest.raises(
        ConfigurationError, match=r"is not valid: .*'cosimo --no-validate …', load\(…, validate=False\)"
    ):
        load_ssp(packed)
    assert load(packed, validate=False).system.names == ("a",)
    assert load(bad, validate=False).system.names == ("bad",)
    for path, label in ((packed, f"{packed}/bad.fmu"), (bad, str(bad))):
        (overlooked,) = load(path, validate=False).warnings
        assert (overlooked.file, overlooked.message[:12]) == (label, "overlooked: ")
        assert "modelName" in overlooked.message
    scenario = tmp_path / "s.toml"
    scenario.write_text('step-size = 0.1\n[units.a]\nfmu = "bad.fmu"\n', encoding="utf-8")
    assert load(scenario, validate=False).system.names == ("a",)
    with pytest.raises(ConfigurationError, match="is not valid"):
        load(scenario)
    monkeypatch.setenv("COSIMO_VALIDATE", "off")
    assert load_ssp(packed).system.names == ("a",)
    with pytest.raises(ConfigurationError, match="is not valid"):
        load(packed, validate=True)


def binary(folder: Path) -> None:
    """An FMU with a binary output and a binary input."""
    changes = {
        "  </ModelVariables>": '    <Binary name="raw" valueReference="50" causality="output"/>\n'
        '    <Binary name="blob" valueReference="51" causality="input"><Start value="00"/></Binary>\n'
        "  </ModelVariables>",
        '    <InitialUnknown valueReference="0"/>': '    <Output valueReference="50"/>\n'
        '    <InitialUnknown valueReference="0"/>\n    <InitialUnknown valueReference="50"/>',
    }
    build(folder, "peculiar3", file="g.fmu", changes=changes)


@pytest.mark.parametrize("declared", ["", connectors("raw output Binary", "blob input Binary", "u input", "y output")])
@pytest.mark.parametrize(("start", "end"), [("a.raw", "b.u"), ("a.y", "b.blob")])
def test_binary_variables_are_connected_to_their_like_only(tmp_path: Path, start: str, end: str, declared: str) -> None:
    binary(tmp_path)
    elements = component("a", declared, source="g.fmu") + component("b", declared, source="g.fmu")
    assert load_ssp(write(tmp_path, document(system(elements)))).system.names == ("a", "b")
    with pytest.raises(ConfigurationError) as caught:
        load_ssp(write(tmp_path, document(system(elements, wire(start, end)))))
    assert "a text or a binary value can be connected only to its like" in str(caught.value)
    same = load_ssp(write(tmp_path, document(system(elements, wire("a.raw", "b.blob"))))).system
    assert same.text_links == ((("a", "raw"), ("b", "blob")),)
    scenario = tmp_path / "s.toml"
    units = "".join(f'[units.{name}]\nfmu = "g.fmu"\n' for name in "ab")
    scenario.write_text(f'connections = ["{start} -> {end}"]\n{units}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"a text or a binary value is connected to its like only"):
        load(scenario)
    unit = Fmu(tmp_path / "g.fmu")
    with pytest.raises(ConfigurationError, match=r"a text or a binary value is connected to its like only"):
        System({"a": unit, "b": unit}, [Connection(start, end)])


def test_without_any_namespace(tmp_path: Path) -> None:
    text = document(system(PAIR, A_TO_B)).replace(NAMES, "")
    for prefix in ("ssd:", "ssc:"):
        text = text.replace(prefix, "")
    loaded = load_ssp(write(tmp_path, text))
    assert loaded.system.names == ("a", "b")
    assert "the namespace is missing" in str(loaded.warnings[0])


def test_annotations_of_vendors_are_neither_needed_nor_read(tmp_path: Path) -> None:
    vendor = '<v:System xmlns:v="urn:vendor"><v:Elements><v:Component/></v:Elements></v:System>'
    note = f'<ssd:Annotations><ssc:Annotation type="v">{vendor}</ssc:Annotation></ssd:Annotations>'
    path = write(tmp_path, document(vendor + system(PAIR, A_TO_B), UNITS + note))
    assert load_ssp(path).warnings == ()


def test_a_package_with_another_name_for_its_description(tmp_path: Path) -> None:
    path = pack(tmp_path, document(system(component("a"))))
    other = tmp_path / "other.ssp"
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(other, "w") as target:
        for name in source.namelist():
            target.writestr(name.replace("SystemStructure", "Main"), source.read(name))
    assert "SystemStructure.ssd is missing" in str(load_ssp(other).warnings[0])


def test_backslashes_in_a_package(tmp_path: Path) -> None:
    fmu = build(tmp_path, "feedthrough2", file="f.fmu").read_bytes()
    text = document(system(component("a", source="resources/g.fmu")))
    assert load_ssp(pack(tmp_path, text, {"resources\\g.fmu": fmu})).system.names == ("a",)


def test_components_for_model_exchange(tmp_path: Path) -> None:
    build_model(tmp_path, "LINEAR", file="l.fmu")
    asked = [component(n, source="l.fmu", more=m) for n, m in (("a", 'implementation="ModelExchange"'), ("b", ""))]
    text = document(system("".join(asked), wire("a.y", "b.u")))
    units = load_ssp(write(tmp_path, text)).system.units
    assert [unit.solver for unit in units.values() if isinstance(unit, Fmu)] == [Solver(), Solver()]
    other = document(system(component("a", source="l.fmu", more='implementation="CoSimulation"')))
    with pytest.raises(ConfigurationError, match=r"s.ssd:5: .*l.fmu' is for model-exchange only, not for"):
        load_ssp(write(tmp_path, other))
