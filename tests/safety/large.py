"""Large inputs, written by code: FMUs with many variables, systems with many connections."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))


def kinds(total: int, ends: int) -> list[str]:
    """`ends` inputs, as many outputs, a tenth parameters, the rest local."""
    fixed = [*["input"] * ends, *["output"] * ends, *["parameter"] * (total // 10)]
    return [*fixed, *["local"] * (total - len(fixed))]


def write_fmu2(path: Path, total: int, ends: int) -> Path:
    other = '<Real unit="m"/>'
    real = {"input": '<Real start="0" unit="m"/>', "parameter": '<Real start="1.5" unit="m"/>'}
    lines = [
        f'<ScalarVariable name="body.part{i // 100}.v[{i}]" valueReference="{i}" causality="{kind}" variability='
        f'"{"fixed" if kind == "parameter" else "continuous"}" description="variable {i}">'
        f"{real.get(kind, other)}</ScalarVariable>"
        for i, kind in enumerate(kinds(total, ends))
    ]
    unknowns = "".join(f'<Unknown index="{ends + 1 + k}" dependencies="{k + 1}"/>' for k in range(ends))
    text = (
        '<fmiModelDescription fmiVersion="2.0" modelName="Large" guid="1"><CoSimulation modelIdentifier="large"/>'
        '<UnitDefinitions><Unit name="m"><BaseUnit m="1"/></Unit></UnitDefinitions><ModelVariables>\n'
        + "\n".join(lines)
        + f"</ModelVariables><ModelStructure><Outputs>{unknowns}</Outputs><InitialUnknowns>{unknowns}</InitialUnknowns>"
        "</ModelStructure></fmiModelDescription>"
    )
    return _pack(path, text)


def write_fmu3(path: Path, total: int, ends: int) -> Path:
    more = {"input": 'start="0"', "parameter": 'variability="fixed" start="1.5"'}
    lines = [
        f'<Float64 name="body.part{i // 100}.v[{i}]" valueReference="{i + 1}" causality="{kind}" {more.get(kind, "")}/>'
        for i, kind in enumerate(kinds(total, ends))
    ]
    outputs = "".join(f'<Output valueReference="{ends + 1 + k}" dependencies="{k + 1}"/>' for k in range(ends))
    text = (
        '<fmiModelDescription fmiVersion="3.0" modelName="Large" instantiationToken="1">'
        '<CoSimulation modelIdentifier="large"/><ModelVariables>'
        '<Float64 name="time" valueReference="0" causality="independent" variability="continuous"/>\n'
        + "\n".join(lines)
        + f"</ModelVariables><ModelStructure>{outputs}</ModelStructure></fmiModelDescription>"
    )
    return _pack(path, text)


def write_scenario(path: Path, units: int, ends: int) -> Path:
    """A ring of linear units, each of which feeds the next through `ends` connections."""
    wires = [f'  "unit{u}.y{k} -> unit{(u + 1) % units}.u{k}",' for u in range(units) for k in range(ends)]
    row, column = ", ".join(["0.01"] * ends), ", ".join(["[1.0]"] * ends)
    names = {letter: ", ".join(f'"{letter}{k}"' for k in range(ends)) for letter in "uy"}
    tables = [
        f'[units.unit{u}]\nkind = "state-space"\nA = [[-1.0]]\nB = [[{row}]]\nC = [{column}]\n'
        f"inputs = [{names['u']}]\noutputs = [{names['y']}]\n"
        for u in range(units)
    ]
    path.write_text("\n".join(["step-size = 1e-3\nconnections = [", *wires, "]", *tables]), encoding="utf-8")
    return path


def write_structure(path: Path, units: int, ends: int) -> Path:
    """The same ring of FMUs in an .ssd."""
    from ssp_builder import component, document, system

    write_fmu2(path.parent / "large.fmu", 2 * ends, ends)
    name = "body.part{}.v[{}]"
    wires = "".join(
        f'<ssd:Connection startElement="unit{u}" startConnector="{name.format((ends + k) // 100, ends + k)}" '
        f'endElement="unit{(u + 1) % units}" endConnector="{name.format(k // 100, k)}"/>\n'
        for u in range(units)
        for k in range(ends)
    )
    elements = "".join(component(f"unit{u}", source="large.fmu") for u in range(units))
    path.write_text(document(system(elements, wires)), encoding="utf-8")
    return path


def _pack(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", text)
    return path
