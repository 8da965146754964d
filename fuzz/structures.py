"""System structures: .ssd with parameter sets and mappings, beside two FMUs, as `cosimo validate` reads them."""

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
    application/x-ssp-definition application/x-ssp-package application/x-fmu-sharedlibrary
    """,
    CUT,
)


MODULES = ("cosimo.formats.ssp", "cosimo.formats.information")


@cache
def _files() -> Path:
    text = (TESTS / "fmus" / "feedthrough2.xml").read_text(encoding="utf-8")
    for name in ("f.fmu", "g.fmu"):
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
    for root in (b.system(pair, wires), b.system(b.component("a", own), "", bound), nested, reused):
        yield CUT.join(text.encode() for text in (b.document(root), values, mapping))


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
    from cosimo.formats.findings import FileFindings
    from cosimo.formats.ssp import load_ssp

    there = _files()
    parts = [*data.split(CUT, 2), b"", b""]
    for name, content in zip(("s.ssd", "p.ssv", "m.ssm"), parts, strict=False):
        (there / name).write_bytes(content)
    findings = FileFindings()
    loaded = load_ssp(there / "s.ssd", findings)
    loaded.system.loops()
    [str(finding) for finding in findings.all]
