"""Parameter sets (.ssv) and mappings (.ssm): which value goes to which name.

A value is given in the unit of measure of its source. It is converted to the unit of what it is given to, and only then
transformed as the mapping says:  v = factor · convert(value) + offset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from xml.parsers import expat

from cosimo.core.errors import ConfigurationError, UnknownNameError, UnsafeInputError
from cosimo.core.unit import BASE, UnitOfMeasure, convert
from cosimo.formats.findings import FileFindings, Place
from cosimo.units.archives import ArchiveLimits, check_text, remedy

STANDARD = "http://ssp-standard.org/SSP1/"
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass
class Element:
    """An element by its local name, without what belongs to foreign namespaces."""

    tag: str
    attributes: dict[str, str]
    place: Place
    children: list[Element] = field(default_factory=list)

    def find(self, tag: str) -> Element | None:
        """The first child of that name."""
        return next((child for child in self.children if child.tag == tag), None)

    def each(self, *path: str) -> Iterator[Element]:
        """The grandchildren (and so on) along a path of names."""
        for child in self.children:
            if child.tag == path[0]:
                yield from child.each(*path[1:]) if len(path) > 1 else (child,)

    def get(self, name: str) -> str | None:
        """An attribute, or None."""
        return self.attributes.get(name)

    def require(self, name: str) -> str:
        """An attribute that must be there and not be empty."""
        if not (value := self.attributes.get(name)):
            raise self.place.error(f"element {self.tag} needs the attribute '{name}'.")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """An attribute that is a finite number."""
        if default is not None and name not in self.attributes:
            return default
        text = self.require(name)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.place.error(f"attribute '{name}' of {self.tag} is '{text}'; a finite number is needed.")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number."""
        if default is not None and name not in self.attributes:
            return default
        text = self.require(name)
        try:
            return int(text)
        except ValueError:
            raise self.place.error(f"attribute '{name}' of {self.tag} is '{text}'; a whole number is needed.") from None

    def flag(self, name: str, default: bool | None = None) -> bool:
        """An attribute that is true or false."""
        if default is not None and name not in self.attributes:
            return default
        text = self.require(name).strip()
        if text not in _FLAGS:
            raise self.place.error(f"attribute '{name}' of {self.tag} is '{text}'; it must be true or false.")
        return _FLAGS[text]


def parse(content: bytes, file: str, findings: FileFindings, limits: ArchiveLimits) -> Element:
    """The root element of the document; `file` names it in messages."""
    check_text(content, f"'{file}'", limits)
    return _Reader(file, findings, limits.xml_depth).read(content)


class _Reader:
    """Builds elements from the events of the parser, with a stack of open ones."""

    def __init__(self, file: str, findings: FileFindings, depth: int) -> None:
        self._file, self._findings, self._depth = file, findings, depth
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._open: list[Element | None] = []
        self._names: dict[str, list[str]] = {}  # what each prefix stands for in the open elements, the innermost last
        self._declared: list[list[str]] = []
        self._root: Element | None = None
        self._family: str | None = None

    def read(self, content: bytes) -> Element:
        try:
            self._parser.Parse(content, True)
        except expat.ExpatError as error:
            reason = expat.errors.messages.get(error.code, "syntax error")
            raise Place(self._file, error.lineno).error(f"not well-formed XML: {reason}.") from None
        except (LookupError, ValueError) as error:  # an encoding that Python does not know
            raise Place(self._file, 1).error(f"the XML cannot be decoded: {error}.") from None
        assert self._root is not None
        return self._root

    def _refuse(self, *_: object) -> None:
        raise UnsafeInputError(
            f"{self._file}:{self._parser.CurrentLineNumber}: the document has a DOCTYPE, which SSP does not need and "
            f"attacks use; refused. Remove it."
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        place = Place(self._file, self._parser.CurrentLineNumber)
        if len(self._open) >= self._depth:
            raise UnsafeInputError(
                f"{self._file}:{place.line}: elements are nested more than {self._depth} deep; {remedy('xml_depth')}."
            )
        self._declare({key[6:]: value for key, value in attributes.items() if key == "xmlns" or key[:6] == "xmlns:"})
        prefix, _, local = name.rpartition(":")
        own = {key: value for key, value in attributes.items() if key.partition(":")[0] != "xmlns"}
        element = Element(local, own, place)
        if self._root is None:
            self._root, self._family = element, self._namespace(prefix)
            self._look_at_namespace(prefix, place)
        elif not self._known(prefix) or self._open[-1] is None:
            self._open.append(None)
            return
        else:
            self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, _: str) -> None:
        self._open.pop()
        for prefix in self._declared.pop():
            self._names[prefix].pop()

    def _declare(self, namespaces: dict[str, str]) -> None:
        # A copy of all names for each element would make a long file with many of them take minutes.
        for prefix, namespace in namespaces.items():
            self._names.setdefault(prefix, []).append(namespace)
        self._declared.append(list(namespaces))

    def _namespace(self, prefix: str) -> str | None:
        found = self._names.get(prefix)
        return found[-1] if found else None

    def _known(self, prefix: str) -> bool:
        namespace = self._namespace(prefix)
        return namespace is None or namespace == self._family or "SystemStructure" in namespace

    def _look_at_namespace(self, prefix: str, place: Place) -> None:
        if self._family is None:
            what = f"the prefix '{prefix}' is not declared" if prefix else "the namespace is missing"
        elif not self._family.startswith(STANDARD):
            what = f"the namespace '{self._family}' is not that of SSP 1.0"
        else:
            return
        self._findings.warn(f"{what}; the file is read as if it were '{STANDARD}…'.", place)


Scalar = float | int | bool | str

_MAPPINGS = ("BooleanMappingTransformation", "IntegerMappingTransformation", "EnumerationMappingTransformation")


@dataclass(frozen=True)
class Definitions:
    """Units of measure and enumerations that a document defines."""

    units: Mapping[str, UnitOfMeasure] = field(default_factory=dict)
    enumerations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def unit(self, name: str | None) -> UnitOfMeasure | None:
        """The unit of that name; one without a definition fits only itself."""
        return None if not name else self.units.get(name, UnitOfMeasure(name))


@dataclass(frozen=True)
class Transformation:
    """factor · v + offset, or (for truth values, whole numbers, enumerations) a table."""

    factor: float = 1.0
    offset: float = 0.0
    table: Mapping[str, str] | None = None

    @property
    def linear(self) -> bool:
        """It has no table."""
        return self.table is None


@dataclass(frozen=True)
class BoundValue:
    """A value bound to a name, with what has to be done to it before it is given to its target."""

    value: Scalar
    place: Place
    unit: UnitOfMeasure | None = None
    items: Mapping[str, int] | None = None
    transformation: Transformation = field(default_factory=Transformation)
    suppress_conversion: bool = False

    def resolve(self, target: UnitOfMeasure | None) -> Scalar:
        """The value as its target, whose unit of measure is given, is to take it."""
        value = self.value
        if self.transformation.table is not None:
            value = self._look_up(self.transformation.table)
        if isinstance(value, str):
            return self._item(value)
        if isinstance(value, bool):
            return value
        if not self.suppress_conversion:
            conversion = convert(self.unit, target)
            if conversion is None:
                raise self.place.error(
                    f"the value {value:g} is in '{self.unit}', its target in '{target}', and these cannot be converted "
                    f"into each other; give it in '{target}'."
                )
            if not conversion.identity:
                value = conversion.gain * value + conversion.offset
        if (self.transformation.factor, self.transformation.offset) != (1.0, 0.0):
            value = self.transformation.factor * value + self.transformation.offset
        return value

    def _look_up(self, table: Mapping[str, str]) -> Scalar:
        text = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        if text not in table:
            raise self.place.error(f"the mapping has no entry for the value '{text}'; it has {', '.join(table)}.")
        found = table[text]
        if isinstance(self.value, bool):
            return found == "true"
        return found if isinstance(self.value, str) else int(found)

    def _item(self, value: str) -> Scalar:
        if self.items is None:
            return value
        if value not in self.items:
            raise self.place.error(str(UnknownNameError("item of the enumeration", value, self.items)))
        return self.items[value]


def read_definitions(root: Element) -> Definitions:
    """The units and enumerations of a description or a parameter set."""
    units = {}
    for element in root.each("Units", "Unit"):
        name, base = element.require("name"), element.find("BaseUnit")
        if base is None:
            units[name] = UnitOfMeasure(name)
            continue
        exponents = tuple(base.whole(letter, 0) for letter in BASE)
        try:
            units[name] = UnitOfMeasure(name, exponents, base.number("factor", 1.0), base.number("offset", 0.0))
        except ConfigurationError as error:
            raise base.place.error(str(error)) from None
    enumerations = {
        element.require("name"): {item.require("name"): item.whole("value") for item in element.each("Item")}
        for element in root.each("Enumerations", "Enumeration")
    }
    return Definitions(units, enumerations)


def read_parameter_set(root: Element, surrounding: Definitions) -> dict[str, BoundValue]:
    """The values of a ParameterSet by name; definitions of the `surrounding` description count where it has none."""
    if root.tag != "ParameterSet":
        raise root.place.error(f"the root element is {root.tag}; a parameter set begins with ParameterSet.")
    own = read_definitions(root)
    known = Definitions({**surrounding.units, **own.units}, {**surrounding.enumerations, **own.enumerations})
    found: dict[str, BoundValue] = {}
    for parameter in root.each("Parameters", "Parameter"):
        name = parameter.require("name")
        content = next((child for child in parameter.children if child.tag in (*_READERS, "Binary")), None)
        if content is None:
            raise parameter.place.error(
                f"parameter '{name}' has no value: Real, Integer, Boolean, String, Enumeration."
            )
        if content.tag == "Binary":
            raise content.place.error(f"parameter '{name}' is binary; binary values are not supported.")
        if name in found:
            raise parameter.place.error(f"parameter '{name}' is given twice; remove one.")
        items = None
        if content.tag == "Enumeration":
            items = _items(content, known)
        value = _READERS[content.tag](content)
        found[name] = BoundValue(value, content.place, known.unit(content.get("unit")), items)
    return found


def read_mapping(root: Element, values: Mapping[str, BoundValue]) -> dict[str, BoundValue]:
    """The values under the names that a ParameterMapping gives them; only mapped ones are applied."""
    if root.tag != "ParameterMapping":
        raise root.place.error(f"the root element is {root.tag}; a parameter mapping begins with ParameterMapping.")
    mapped: dict[str, BoundValue] = {}
    for entry in root.each("MappingEntry"):
        source, target = entry.require("source"), entry.require("target")
        if source not in values:
            raise entry.place.error(str(UnknownNameError("parameter in the mapping", source, values)))
        if target in mapped:
            raise entry.place.error(f"two parameters are mapped to '{target}'; remove one.")
        mapped[target] = replace(
            values[source],
            transformation=read_transformation(entry),
            suppress_conversion=entry.flag("suppressUnitConversion", False),
        )
    return mapped


def read_transformation(parent: Element) -> Transformation:
    """The transformation of a connection or a mapping entry; none is the identity."""
    linear = parent.find("LinearTransformation")
    if linear is not None:
        return Transformation(linear.number("factor", 1.0), linear.number("offset", 0.0))
    for child in parent.children:
        if child.tag in _MAPPINGS:
            # Truth values may be written as 1 and 0; they are compared as words.
            read: Callable[[Element, str], str] = _word if child.tag == _MAPPINGS[0] else Element.require
            return Transformation(table={read(e, "source"): read(e, "target") for e in child.each("MapEntry")})
    return Transformation()


def _word(element: Element, name: str) -> str:
    return "true" if element.flag(name) else "false"


def _items(content: Element, known: Definitions) -> Mapping[str, int]:
    """The enumeration that a value belongs to; without its name, the only one that has such an item."""
    name, value = content.get("name"), content.require("value")
    if name is not None:
        if name not in known.enumerations:
            raise content.place.error(str(UnknownNameError("enumeration", name, known.enumerations)))
        return known.enumerations[name]
    fitting = [items for items in known.enumerations.values() if value in items]
    if len({items[value] for items in fitting}) != 1:
        raise content.place.error(f"'{value}' is not an item of exactly one enumeration; name the enumeration.")
    return fitting[0]


_READERS: Mapping[str, Callable[[Element], Scalar]] = {
    "Real": lambda e: e.number("value"),
    "Integer": lambda e: e.whole("value"),
    "Boolean": lambda e: e.flag("value"),
    "String": lambda e: e.attributes.get("value", ""),
    "Enumeration": lambda e: e.require("value"),
}
