"""System structures for tests, written by hand, with real FMUs beside them."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

NAMES = " ".join(
    f'xmlns:{short}="http://ssp-standard.org/SSP1/SystemStructure{name}"'
    for short, name in (
        ("ssd", "Description"),
        ("ssc", "Common"),
        ("ssv", "ParameterValues"),
        ("ssm", "ParameterMapping"),
        ("ssb", "SignalDictionary"),
    )
)
UNITS = """<ssd:Units>
<ssc:Unit name="m"><ssc:BaseUnit m="1"/></ssc:Unit>
<ssc:Unit name="cm"><ssc:BaseUnit m="1" factor="0.01"/></ssc:Unit>
<ssc:Unit name="mm"><ssc:BaseUnit m="1" factor="0.001"/></ssc:Unit>
<ssc:Unit name="kg"><ssc:BaseUnit kg="1"/></ssc:Unit>
</ssd:Units>
"""


def component(name: str, inside: str = "", *, source: str = "f.fmu", more: str = "") -> str:
    """A component on one line, so that tests can count lines."""
    return f'<ssd:Component name="{name}" source="{source}" {more}>{inside}</ssd:Component>\n'


def connectors(*items: str) -> str:
    """Each item is 'name kind', 'name kind Type' or 'name kind Real unit'."""
    text = ""
    for item in items:
        name, kind, *rest = item.split()
        unit = f' unit="{rest[1]}"' if len(rest) > 1 else ""
        content = f"<ssc:{rest[0]}{unit}/>" if rest else ""
        text += f'<ssd:Connector name="{name}" kind="{kind}">{content}</ssd:Connector>'
    return f"<ssd:Connectors>{text}</ssd:Connectors>"


def wire(start: str, end: str, inside: str = "", more: str = "") -> str:
    """'element.connector', or '.connector' for the system itself."""
    ends = []
    for word, (element, _, name) in (("start", start.rpartition(".")), ("end", end.rpartition("."))):
        ends.append((f'{word}Element="{element}" ' if element else "") + f'{word}Connector="{name}"')
    return f"<ssd:Connection {' '.join(ends)} {more}>{inside}</ssd:Connection>\n"


def linear(factor: float, offset: float) -> str:
    return f'<ssc:LinearTransformation factor="{factor}" offset="{offset}"/>'


def table(kind: str, *entries: str) -> str:
    """A transformation by a table; each entry is 'source target'."""
    rows = "".join('<ssc:MapEntry source="{}" target="{}"/>'.format(*entry.split()) for entry in entries)
    return f"<ssc:{kind}MappingTransformation>{rows}</ssc:{kind}MappingTransformation>"


def dictionary(*items: str, name: str = "d") -> str:
    """A signal dictionary; each item is 'name Type' or 'name Real unit'."""
    entries = ""
    for item in items:
        entry, kind, *unit = item.split()
        of = f' unit="{unit[0]}"' if unit else ""
        entries += f'<ssb:DictionaryEntry name="{entry}"><ssc:{kind}{of}/></ssb:DictionaryEntry>'
    inside = f'<ssb:SignalDictionary version="1.0">{entries}</ssb:SignalDictionary>'
    inside = f'<ssd:SignalDictionary name="{name}">{inside}</ssd:SignalDictionary>'
    return f"<ssd:SignalDictionaries>{inside}</ssd:SignalDictionaries>"


def reference(name: str, *items: str, to: str = "d") -> str:
    """A reference to a signal dictionary, with connectors as `connectors` takes them."""
    inside = connectors(*items)
    return f'<ssd:SignalDictionaryReference name="{name}" dictionary="{to}">{inside}</ssd:SignalDictionaryReference>\n'


def array(name: str, size: int, kind: str = "input") -> str:
    """The connectors of a system that has one, an array (SSP 2.0)."""
    content = f'<ssc:Float64><ssc:Dimension size="{size}"/></ssc:Float64>'
    return f'<ssd:Connectors><ssd:Connector name="{name}" kind="{kind}">{content}</ssd:Connector></ssd:Connectors>'


def array_value(name: str, size: int, values: str) -> str:
    """A parameter set with one array (SSP 2.0)."""
    content = f'<ssv:Float64 value="{values}"><ssc:Dimension size="{size}"/></ssv:Float64>'
    return (
        f'<ssv:ParameterSet version="2.0" name="p"><ssv:Parameters><ssv:Parameter name="{name}">{content}'
        "</ssv:Parameter></ssv:Parameters></ssv:ParameterSet>"
    )


def parameters(**values: str) -> str:
    """A parameter set; each value is the content, such as 'Real value="1"'."""
    return parameter_set(values)


def parameter_set(values: Mapping[str, str], tail: str = "", names: str = "") -> str:
    items = "".join(f'\n<ssv:Parameter name="{name}"><ssv:{v}/></ssv:Parameter>' for name, v in values.items())
    head = f'<ssv:ParameterSet version="1.0" name="p" {names}>'
    return f"{head}<ssv:Parameters>{items}</ssv:Parameters>{tail}</ssv:ParameterSet>"


def binding(content: str = "", *, more: str = "", mapping: str = "") -> str:
    values = f"<ssd:ParameterValues>{content}</ssd:ParameterValues>" if content else ""
    return f"<ssd:ParameterBinding {more}>{values}{mapping}</ssd:ParameterBinding>"


def bindings(*items: str) -> str:
    return f"<ssd:ParameterBindings>{''.join(items)}</ssd:ParameterBindings>"


def system(elements: str, wires: str = "", inside: str = "", *, name: str = "root", more: str = "") -> str:
    connections = f"<ssd:Connections>\n{wires}</ssd:Connections>\n" if wires else ""
    return (
        f'<ssd:System name="{name}" {more}>{inside}\n<ssd:Elements>\n{elements}</ssd:Elements>\n{connections}'
        f"</ssd:System>\n"
    )


def document(root: str, tail: str = UNITS) -> str:
    head = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<ssd:SystemStructureDescription version="1.0" name="test" {NAMES}>\n'
    )
    return f"{head}{root}{tail}</ssd:SystemStructureDescription>\n"


def write(folder: Path, text: str, files: Mapping[str, str] | None = None, *, name: str = "s.ssd") -> Path:
    """A plain description with the FMU `f.fmu` (feedthrough of every type) and other files beside it."""
    if not (folder / "f.fmu").exists():
        build(folder, "feedthrough2", file="f.fmu")
    for file, content in (files or {}).items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(content, encoding="utf-8")
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def pack(folder: Path, text: str, files: Mapping[str, str | bytes] | None = None, *, name: str = "s.ssp") -> Path:
    """A package with the FMU `f.fmu` in it."""
    fmu = build(folder / "built", "feedthrough2", file="f.fmu").read_bytes()
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("SystemStructure.ssd", text)
        for file, content in {"f.fmu": fmu, **(files or {})}.items():
            archive.writestr(file, content)
    return path
