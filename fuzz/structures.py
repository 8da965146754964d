"""System structures of SSP (.ssd with parameter sets and mappings) and OSP (with a model description), beside FMUs."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fuzz.dictionary import words
from fuzz.places import folder

TESTS = Path(__file__).parents[1] / "tests"
CUT = b"\n%%%%\n"
"""Between the description, the parameter set and the mapping in one input."""
WORDS = words(
    r"""
    ssd: ssc: ssv: ssm: SystemStructureDescription System Elements Component Connectors Connector Connections
    Connection startElement startConnector endElement endConnector name kind source type input output parameter
    calculatedParameter inout Real Integer Boolean String Enumeration Binary unit Units Unit BaseUnit factor
    offset LinearTransformation BooleanMappingTransformation IntegerMappingTransformation MapEntry target
    suppressUnitConversion true false ParameterBindings ParameterBinding ParameterValues ParameterSet Parameters
    Parameter ParameterMapping MappingEntry prefix sourceBase component id Enumerations Item value Annotations
    DefaultExperiment startTime stopTime version 1.0 SignalDictionaryReference f.fmu g.fmu p.ssv m.ssm s.ssd #x
    ../f.fmu file:/// real_in real_out int_in bool_in enum_in gain text_in 1e999 nan <!DOCTYPE <!ENTITY UTF-16
    t.fmu Clock crossed sample done later held count
    SignalDictionaries SignalDictionary DictionaryEntry SignalDictionaryReference dictionary ssb:
    EnumerationMappingTransformation
    Dimension size sizeConnector Float64 Int32 MetaData b.ssb implementation ModelExchange 2.0
    OspSystemStructure Simulators Simulator stepSize InitialValues InitialValue variable BaseStepSize StartTime
    Functions
    Sum VectorSum inputCount dimension in[0] in[1] out VariableConnection VariableGroupConnection SignalConnection
    SignalGroupConnection Variable VariableGroup Signal SignalGroup simulator function OspModelDescription
    VariableGroups
    Generic LinearMechanicalPort Force LinearVelocity ref proxyfmu://localhost?file=
    Annotations Annotation cosimo.scenario {"units": {"fmu": "master": {"name": "step-size": "inputs": }} [] null 1e999
    application/x-ssp-definition application/x-ssp-package application/x-fmu-sharedlibrary
    """,
    CUT,
)


_GROUPS = """<OspModelDescription version="1.0"><VariableGroups><Generic name="in"><Variable ref="real_in"/></Generic>
<Generic name="out"><Variable ref="real_out"/></Generic><LinearMechanicalPort name="port"><Force name="f"><Variable
ref="real_in"/></Force><LinearVelocity name="v"><Variable ref="real_out"/></LinearVelocity></LinearMechanicalPort>
</VariableGroups></OspModelDescription>"""
OSP = (
    """<OspSystemStructure version="0.1"><StartTime>0</StartTime><BaseStepSize>0.1</BaseStepSize><Algorithm>fixedStep
</Algorithm><Simulators><Simulator name="a" source="f.fmu" stepSize="0.2"><InitialValues><InitialValue variable="gain">
<Real value="2"/></InitialValue></InitialValues></Simulator><Simulator name="b" source="proxyfmu://localhost?file=g.fmu"/>
</Simulators><Functions><LinearTransformation name="l" factor="2" offset="1"/><Sum name="s" inputCount="2"/><VectorSum
name="v" inputCount="1" dimension="1"/></Functions><Connections><VariableConnection><Variable simulator="a"
name="int_out"/><Variable simulator="b" name="int_in"/></VariableConnection><VariableGroupConnection><VariableGroup
simulator="b" name="out"/><VariableGroup simulator="a" name="in"/></VariableGroupConnection><SignalConnection><Variable
simulator="a" name="real_out"/><Signal function="l" name="in"/></SignalConnection><SignalConnection><Signal function="l"
name="out"/><Signal function="s" name="in[0]"/></SignalConnection><SignalConnection><Signal function="s" name="out"/>
<Variable simulator="b" name="real_in"/></SignalConnection><SignalGroupConnection><VariableGroup simulator="a"
name="out"/><SignalGroup function="v" name="in[0]"/></SignalGroupConnection></Connections></OspSystemStructure>""",
    _GROUPS,
    _GROUPS,
)

MODULES = ("cosimo.formats.ssp", "cosimo.formats.osp", "cosimo.formats.information")


@cache
def _files() -> Path:
    texts = {name: (TESTS / "fmus" / f"{name}.xml").read_text(encoding="utf-8") for name in ("feedthrough2", "ticks3")}
    for name in ("f.fmu", "g.fmu", "t.fmu"):
        text = texts["ticks3" if name == "t.fmu" else "feedthrough2"]
        with zipfile.ZipFile(folder() / name, "w") as archive:
            archive.writestr("modelDescription.xml", text)
            archive.writestr("p.ssv", _builder().parameter_set({"gain": 'Real value="2"'}, names=_builder().NAMES))
    return folder()


def _builder():  # type: ignore[no-untyped-def]
    sys.path.insert(0, str(TESTS / "formats"))
    import ssp_builder

    return ssp_builder


def seeds() -> Iterator[bytes]:
    """Systems with nesting, transformations, values, mappings and references."""
    b = _builder()
    pair = b.component("a") + b.component("b", source="g.fmu")
    given = {"gain": 'Real value="2"', "int_in": 'Integer value="3"', "bool_in": 'Boolean value="true"'}
    values = b.parameter_set(given, names=b.NAMES)
    mapping = (
        f'<ssm:ParameterMapping {b.NAMES} version="1.0"><ssm:MappingEntry source="gain" target="gain">'
        f'<ssc:LinearTransformation factor="2" offset="1"/></ssm:MappingEntry></ssm:ParameterMapping>'
    )
    wires = b.wire("a.real_out", "b.real_in", b.linear(2.0, 1.0)) + b.wire("b.int_out", "a.int_in")
    inner = b.system(
        b.component("c", b.connectors("real_in input Real m")),
        b.wire(".u", "c.real_in") + b.wire("c.real_out", ".y"),
        b.connectors("u input Real cm", "y output Real mm"),
        name="inner",
        more='id="x"',
    )
    bound = b.bindings(
        b.binding(values, more='prefix="a."'),
        b.binding(
            more='source="p.ssv" type="application/x-ssp-parameter-set"',
            mapping='<ssd:ParameterMapping source="m.ssm"/>',
        ),
    )
    own = b.bindings(b.binding(more='source="p.ssv" sourceBase="component"'))
    nested = b.system(pair + inner, wires + b.wire("a.real_out", "inner.u") + b.wire("inner.y", "a.real_in"), bound)
    reused = b.system(inner + b.component("again", source="#x"))
    bus = b.reference("bus", "force inout Real cm")
    through = b.wire("a.real_out", "bus.force") + b.wire("bus.force", "b.real_in")
    through += b.wire("a.bool_out", "b.bool_in", b.table("Boolean", "true false", "false true"))
    signals = b.system(pair + bus, through, b.dictionary("force Real cm"))
    arrays = b.system(b.component("a") + b.component("p", source=""), "", b.array("u", 2) + b.bindings(b.binding()))
    said = """{"units": {"a": {"fmu": "f.fmu", "isolate": false}}, "inputs": {"a.real_in": {"csv": "p.ssv",
"column": "x"}},
"step-size": 0.1, "outputs": ["a.*"], "master": {"name": "iterative", "tolerance": 1e-6, "couplings": ["hold1"]}}"""
    note = f'<ssc:Annotation type="cosimo.scenario"><scenario xmlns="urn:x">{said}</scenario></ssc:Annotation>'
    noted = b.system(b.component("a"), "", f"<ssd:Annotations>{note}</ssd:Annotations>")
    clocks = b.component("a", source="t.fmu") + b.component("b", source="t.fmu")
    ticking = b.system(clocks, b.wire("a.crossed", "b.sample") + b.wire("a.x", "b.u") + b.wire("a.count", "b.held"))
    plain = b.system(pair, wires), b.system(b.component("a", own), "", bound)
    for root in (*plain, nested, reused, signals, arrays, noted, ticking):
        yield CUT.join(text.encode() for text in (b.document(root), values, mapping))
    yield CUT.join(text.encode() for text in OSP)


def large() -> Iterator[bytes]:
    """Hostile by their length, at which whatever grows with its square takes longer than 5 s."""
    b = _builder()
    spaces = " ".join(f'xmlns:a{k}="u"' for k in range(60_000))
    many = "".join(b.component(f"c{k}") for k in range(1_000))
    wires = b.wire("c1.real_out", "c2.real_in") * 10_000
    declared = b.document(b.system(b.component("a"), '<b xmlns:q="z"/>' * 60_000)).replace(
        " name=", f" {spaces} name=", 1
    )
    for text in (declared, b.document(b.system(many, wires)), "<a>" * 200_000, "<a " + 'b="1" ' * 100_000 + "/>"):
        yield text.encode()


def check(data: bytes) -> None:
    """Description, parameter set and mapping, in files of their own."""
    from cosimo.core.errors import FileFindings
    from cosimo.formats.osp import load_osp
    from cosimo.formats.ssp import load_ssp

    there = _files()
    parts = [*data.split(CUT, 2), b"", b""]
    osp = b"Simulator" in parts[0]
    names = ("s.xml", "f_OspModelDescription.xml", "g_OspModelDescription.xml") if osp else ("s.ssd", "p.ssv", "m.ssm")
    for name, content in zip(names, parts, strict=False):
        (there / name).write_bytes(content)
    findings = FileFindings()
    loaded = load_osp(there / "s.xml", findings) if osp else load_ssp(there / "s.ssd", findings)
    loaded.system.loops()
    [str(finding) for finding in findings.all]
