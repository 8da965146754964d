"""Reading a system structure description (.ssd), with all that it refers to, into the data at the end of this file."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

from cosimo.core import dataclass
from cosimo.core.errors import FileFindings, Place, UnknownNameError, UnsafeInputError
from cosimo.core.unit import UnitOfMeasure
from cosimo.formats.ssp_documents import (
    ELEMENTS,
    TYPES,
    BoundValue,
    Definitions,
    Element,
    Transformation,
    descend,
    dimensions,
    element_names,
    parse,
    read_definitions,
    read_dictionary,
    read_mapping,
    read_parameter_set,
    read_transformation,
)
from cosimo.formats.ssp_files import ArchiveFiles, Files, main_structure
from cosimo.units.archives import ArchiveLimits, remedy
from cosimo.units.fmi.model_exchange import CO_SIMULATION, MODEL_EXCHANGE

IMPLEMENTATIONS = {"any": None, "CoSimulation": CO_SIMULATION, "ModelExchange": MODEL_EXCHANGE}
"""What a component is used for; None is whatever its FMU offers."""
ANNOTATION = "cosimo.scenario"
"""The type of the annotation with what SSP has no place for: master, step, couplings, external inputs, options."""
FMU, DEFINITION, PACKAGE = (
    "application/x-fmu-sharedlibrary",
    "application/x-ssp-definition",
    "application/x-ssp-package",
)
KINDS = ("input", "output", "parameter", "calculatedParameter", "structuralParameter", "constant", "local", "inout")


@dataclass
class Reading:
    """What has been read so far: findings, the chain of references that led here, the number of elements."""

    findings: FileFindings
    limits: ArchiveLimits
    chain: list[str] = field(default_factory=list)
    elements: int = 0

    def enter(self, target: str, element: Element) -> None:
        """Follow a reference: not in a circle, and not too deep, as a package may hold a copy of itself."""
        if target in self.chain:
            raise element.place.error(f"'{element.get('source')}' contains itself; remove the circular reference.")
        if len(self.chain) >= self.limits.nesting:
            place = element.place
            raise UnsafeInputError(
                f"{place.file}:{place.line}: descriptions are nested more than {self.limits.nesting} deep; "
                f"{remedy('nesting')}."
            )
        self.chain.append(target)

    def count(self, element: Element) -> None:
        """One more element."""
        self.elements += 1
        if self.elements > ELEMENTS:
            place = element.place
            raise UnsafeInputError(
                f"{place.file}:{place.line}: the system has more than {ELEMENTS:,} elements; refused."
            )


def read_structure(files: Files, name: str, reading: Reading) -> SspStructure:
    """The description in the file `name`; what can be skipped and reported is, the rest raises."""
    label, findings = files.label(name), reading.findings
    root = parse(files.read(name), label, findings, reading.limits)
    if root.tag != "SystemStructureDescription":
        raise root.place.error(
            f"the root element is {root.tag}, not SystemStructureDescription; this is not an SSD file."
        )
    version = root.get("version")
    if version is None or not version.startswith(("1.", "2.")):
        findings.warn(f"the version is {version or 'missing'}; the file is read as SSP 2.0.", root.place)
    system = root.find("System")
    if system is None:
        raise root.place.error("the description has no System; an SSD needs one.")
    reader = _StructureReader(files, posixpath.dirname(name), root, reading)
    experiment = root.find("DefaultExperiment")
    times: dict[str, float | None] = dict.fromkeys(("startTime", "stopTime"))
    if experiment is not None:
        with findings.collect(experiment.place):
            times |= {key: experiment.number(key) for key in times if experiment.get(key) is not None}
    called = root.get("name") or system.get("name") or posixpath.splitext(posixpath.basename(name))[0]
    own = next((a for a in system.each("Annotations", "Annotation") if a.get("type") == ANNOTATION), None)
    return SspStructure(called, reader.system(system, called), times["startTime"], times["stopTime"], own)


class _StructureReader:
    """Reads one document: where it lies, what it defines."""

    def __init__(self, files: Files, base: str, root: Element, reading: Reading) -> None:
        self.files, self.base, self.root, self.reading = files, base, root, reading
        self.findings = reading.findings
        self.definitions = Definitions()
        with self.findings.collect(root.place):
            self.definitions = read_definitions(root)

    def system(self, element: Element, name: str) -> Subsystem:
        """A System element, at the root or nested."""
        dictionaries: dict[str, Mapping[str, Connector]] = {}
        for item in element.each("SignalDictionaries", "SignalDictionary"):
            with self.findings.collect(item.place):
                dictionaries[item.require("name")] = self._dictionary(item)
        elements: dict[str, SspElement] = {}
        for child in (e for group in element.each("Elements") for e in group.children):
            self.reading.count(child)
            with self.findings.collect(child.place):
                if (read := self._element(child)) is None:
                    continue
                if read.name in elements:
                    raise child.place.error(f"two elements of system '{name}' are called '{read.name}'; rename one.")
                elements[read.name] = read
        wires = []
        for connection in element.each("Connections", "Connection"):
            with self.findings.collect(connection.place):
                wires.append(self._wire(connection))
        connectors, bindings = self._connectors(element), self._bindings(element, None)
        named = (child.get("name") or "" for group in element.each("Elements") for child in group.children)
        broken = frozenset(named).difference(elements)
        return Subsystem(name, element.place, connectors, bindings, elements, tuple(wires), broken, dictionaries)

    def _dictionary(self, element: Element) -> dict[str, Connector]:
        """The signals of a dictionary, inside this document or from another one (.ssb)."""
        if element.get("source"):
            root = self._content(element, "SignalDictionary", None, None)
        else:
            root = element.find("SignalDictionary") or element
        return {entry.require("name"): self._connector(entry, "inout", kind) for entry, kind in read_dictionary(root)}

    def _element(self, element: Element) -> SspElement | None:
        if element.tag == "System":
            return self.system(element, element.require("name"))
        if element.tag == "SignalDictionaryReference":
            name, dictionary = element.require("name"), element.require("dictionary")
            return SignalReference(name, element.place, dictionary, self._connectors(element))
        if element.tag == "Component":
            return self._component(element)
        if element.tag != "Annotations":
            self.findings.warn(f"element {element.tag} is unknown; it was ignored.", element.place)
        return None

    def _component(self, element: Element) -> SspElement:
        name, source = element.require("name"), element.get("source")
        if not source:
            return Placeholder(name, element.place, self._connectors(element))
        kind = element.get("type") or _guess_type(source)
        if kind == FMU and not source.startswith("#"):
            with element.place.blame(f"component '{name}'"):
                file = self.files.locate(source, self.base)
                path = self.files.on_disk(file)
            bindings = self._bindings(element, path)
            connectors = self._connectors(element)
            label, used_for = self.files.label(file), element.get("implementation") or "any"
            if used_for not in IMPLEMENTATIONS:
                known = ", ".join(IMPLEMENTATIONS)
                raise element.place.error(f"component '{name}' has the implementation {used_for}; it can be {known}.")
            used = IMPLEMENTATIONS[used_for]
            return SspComponent(name, path, label, element.place, connectors, bindings, self.files, used)
        if kind not in (FMU, DEFINITION, PACKAGE):
            raise element.place.error(f"component '{name}' has the type '{kind}'; FMUs, .ssd and .ssp can be read.")
        inner = self._referenced(element, source, kind)
        # Bindings of the component count as the last ones of the system it refers to.
        return replace(inner, name=name, bindings=(*inner.bindings, *self._bindings(element, None)))

    def _referenced(self, element: Element, source: str, kind: str) -> Subsystem:
        """A system from elsewhere: another element of this document, another description, another package."""
        file, _, fragment = source.partition("#")
        with element.place.blame(f"component '{element.get('name')}'"):
            name = self.files.locate(file, self.base) if file else element.place.file
            target = f"{self.files.label(name) if file else name}#{fragment}"
            self.reading.enter(target, element)
            try:
                if not file:
                    return self._embedded(element, fragment)
                files: Files = self.files
                if kind == PACKAGE:
                    path = self.files.on_disk(name)
                    shared = self.files.workspace if isinstance(self.files, ArchiveFiles) else None
                    files = ArchiveFiles(path, self.reading.limits, shared, self.files.label(name))
                    name = fragment or main_structure(files, self.findings)
                return read_structure(files, name, self.reading).root
            finally:
                self.reading.chain.pop()

    def _embedded(self, element: Element, identity: str) -> Subsystem:
        found = [e for e in descend(self.root) if e.tag == "System" and e.get("id") == identity]
        if not found:
            raise element.place.error(f"no System of this document has the id '{identity}'; correct the reference.")
        return self.system(found[0], identity)

    def _connectors(self, element: Element) -> dict[str, Connector]:
        connectors: dict[str, Connector] = {}
        for item in element.each("Connectors", "Connector"):
            with self.findings.tolerate(item.place, "The connector is left out."):
                name, kind = item.require("name"), item.require("kind")
                if kind not in KINDS:
                    raise item.place.error(f"connector '{name}': {UnknownNameError('kind', kind, KINDS)}")
                if name in connectors:
                    raise item.place.error(f"connector '{name}' is declared twice; remove one.")
                content = next((child for child in item.children if child.tag in TYPES), None)
                connector = self._connector(item, kind, content)
                sizes = dimensions(content)
                names = element_names(name, sizes) if sizes else [name]
                connectors |= {one: replace(connector, name=one) for one in names}
        return connectors

    def _connector(self, item: Element, kind: str, content: Element | None) -> Connector:
        """What a connector, or an entry of a signal dictionary, says of itself."""
        name = item.require("name")
        if content is None:
            return Connector(name, kind, item.place)
        items = self.definitions.enumerations.get(content.get("name") or "")
        unit = self.definitions.unit(content.get("unit"))
        return Connector(name, kind, item.place, TYPES[content.tag], unit, items)

    def _wire(self, element: Element) -> Wire:
        # Some tools write an empty name for the system itself, where SSP leaves the attribute out.
        start = (element.get("startElement") or None, element.require("startConnector"))
        end = (element.get("endElement") or None, element.require("endConnector"))
        suppressed = element.flag("suppressUnitConversion", False)
        return Wire((start, end), element.place, read_transformation(element), suppressed)

    def _bindings(self, element: Element, component: Path | None) -> tuple[Binding, ...]:
        bindings = []
        for item in element.each("ParameterBindings", "ParameterBinding"):
            with self.findings.collect(item.place):
                bindings.append(Binding(self._binding(item, component), item.place))
        return tuple(bindings)

    def _binding(self, element: Element, component: Path | None) -> dict[str, BoundValue]:
        if not element.get("source") and element.find("ParameterValues") is None:
            self.findings.warn("the parameter binding is empty: it gives no values.", element.place)
            return {}
        root = self._content(element, "ParameterSet", "ParameterValues", component)
        prefix = element.get("prefix") or ""
        values = {prefix + name: value for name, value in read_parameter_set(root, self.definitions).items()}
        mapping = element.find("ParameterMapping")
        if mapping is None:
            return values
        return read_mapping(self._content(mapping, "ParameterMapping", None, component), values)

    def _content(self, element: Element, tag: str, inline: str | None, component: Path | None) -> Element:
        """The root of a parameter set or mapping, from another file or from inside this one."""
        source = element.get("source")
        if not source:
            holder = element if inline is None else element.find(inline)
            content = None if holder is None else holder.find(tag)
            if content is None:
                raise element.place.error(f"{element.tag} has neither a source nor a {tag} inside; give one.")
            return content
        files, base = self.files, self.base
        if element.get("sourceBase") == "component":
            if component is None:
                raise element.place.error(
                    f"'{source}' is relative to the component, but this is a system; set sourceBase to SSD."
                )
            files, base = ArchiveFiles(component, self.reading.limits), ""
        try:
            with element.place.blame(element.tag):
                name = files.locate(source, base)
                return parse(files.read(name), files.label(name), self.findings, self.reading.limits)
        finally:
            if files is not self.files:
                files.close()


def open_structure(path: Path, findings: FileFindings, limits: ArchiveLimits) -> tuple[SspStructure, Files]:
    """The description in an .ssd or the main one of an .ssp, and the files it lives on."""
    if path.suffix.lower() == ".ssd":
        folder = Files(path.parent, limits)
        return read_structure(folder, path.name, Reading(findings, limits)), folder
    files = ArchiveFiles(path, limits)
    try:
        return read_structure(files, main_structure(files, findings), Reading(findings, limits)), files
    except BaseException:
        files.discard()
        raise


def _guess_type(source: str) -> str:
    """The type that a source without one has: by its ending, an FMU by default."""
    ending = posixpath.splitext(source.partition("#")[0])[1].lower()
    return {".ssd": DEFINITION, ".ssp": PACKAGE}.get(ending, FMU)


# ---- a system structure description as data: systems in systems, components, connectors, wires, bound values ---------


@dataclass(frozen=True)
class Connector:
    """What an element shows to the outside; `type` and `unit` are None where the description is silent."""

    name: str
    kind: str
    place: Place
    type: str | None = None
    unit: UnitOfMeasure | None = None
    items: Mapping[str, int] | None = None


@dataclass(frozen=True)
class Wire:
    """A connection as written: two ends (element or None for the system itself, connector), in either direction."""

    ends: tuple[tuple[str | None, str], tuple[str | None, str]]
    place: Place
    transformation: Transformation
    suppress_conversion: bool


@dataclass(frozen=True)
class Binding:
    """Values for an element by name; `place` is that of the binding."""

    values: Mapping[str, BoundValue]
    place: Place


@dataclass(frozen=True)
class SspComponent:
    """An FMU in a system; `label` is the FMU as messages call it, `files` keeps its file on disk alive.

    `kind` is what it is to be used for, where the package says so.
    """

    name: str
    path: Path
    label: str
    place: Place
    connectors: Mapping[str, Connector]
    bindings: tuple[Binding, ...]
    files: Files
    kind: str | None = None


@dataclass(frozen=True)
class SignalReference:
    """Signals of the `dictionary` of a system around: all references to an entry are the same signal."""

    name: str
    place: Place
    dictionary: str
    connectors: Mapping[str, Connector]


@dataclass(frozen=True)
class Placeholder:
    """A component without a source: it can be described, but not run."""

    name: str
    place: Place
    connectors: Mapping[str, Connector]


@dataclass(frozen=True)
class Subsystem:
    """A system: its own connectors, its elements, the wires among them; `broken` elements could not be read."""

    name: str
    place: Place
    connectors: Mapping[str, Connector]
    bindings: tuple[Binding, ...]
    elements: Mapping[str, SspElement] = field(default_factory=dict)
    wires: tuple[Wire, ...] = ()
    broken: frozenset[str] = frozenset()
    dictionaries: Mapping[str, Mapping[str, Connector]] = field(default_factory=dict)


SspElement = SspComponent | Subsystem | SignalReference | Placeholder


@dataclass(frozen=True)
class SspStructure:
    """A whole description."""

    name: str
    root: Subsystem
    start: float | None
    stop: float | None
    annotation: Element | None = None
