"""Parameter sets (.ssv), mappings (.ssm) and signal dictionaries (.ssb): which value goes to which name.

A value is given in the unit of measure of its source. It is converted to the unit of what it is given to, and only then
transformed as the mapping says:  v = factor · convert(value) + offset.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import Any, TypeVar

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, FileFindings, Place, UnknownNameError
from cosimo.core.unit import BASE, UnitOfMeasure, convert
from cosimo.units.archives import ArchiveLimits, parse_xml

ELEMENTS = 100_000
"""How many elements a system or an array may have: a short file can stand for millions."""
STANDARD = "http://ssp-standard.org/SSP1/"
T = TypeVar("T")
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass
class Element:
    """An element by its local name, without what belongs to foreign namespaces."""

    tag: str
    attributes: dict[str, str]
    place: Place
    children: list[Element] = field(default_factory=list)
    text: str = ""

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
        return self._read(name, default, _finite, "a finite number is needed")

    def whole(self, name: str, default: int | None = None) -> int:
        """An attribute that is a whole number."""
        return self._read(name, default, int, "a whole number is needed")

    def flag(self, name: str, default: bool | None = None) -> bool:
        """An attribute that is true or false."""
        return self._read(name, default, lambda text: _FLAGS[text.strip()], "it must be true or false")

    def _read(self, name: str, default: T | None, read: Callable[[str], T], wanted: str) -> T:
        if default is not None and name not in self.attributes:
            return default
        text = self.require(name)
        try:
            return read(text)
        except (ValueError, KeyError):
            raise self.place.error(f"attribute '{name}' of {self.tag} is '{text}'; {wanted}.") from None


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def parse(
    content: bytes, file: str, findings: FileFindings, limits: ArchiveLimits, standard: str | None = STANDARD
) -> Element:
    """The root element of the document; `file` names it in messages.

    Foreign namespaces are left out, except in annotations. Its own begins with `standard`; None: whatever it is.
    """
    root = parse_xml(content, file, limits, undeclared=True)
    family = _namespace(root)
    if standard is not None and (family is None or not family.startswith(standard)):
        prefix = root.tag.rpartition(":")[0]
        what = "the namespace is missing" if family is None else f"the namespace '{family}' is not that of SSP"
        what = f"the prefix '{prefix}' is not declared" if family is None and prefix else what
        findings.warn(f"{what}; the file is read as if it were '{STANDARD}…'.", Place(file, root.sourceline))

    def known(node: Any) -> bool:
        namespace = _namespace(node) if isinstance(node.tag, str) else ""  # comments have no name
        return namespace is None or namespace == family or "SystemStructure" in namespace

    def element(node: Any, foreign: bool = False) -> Element:
        name = node.tag.rpartition("}")[2].rpartition(":")[2]
        foreign = foreign or name == "Annotation"
        inside = [element(c, foreign) for c in node if known(c) or (foreign and isinstance(c.tag, str))]
        return Element(name, dict(node.attrib), Place(file, node.sourceline), inside, (node.text or "").strip())

    whole = element(root)
    if said := [child for child in descend(whole) if child.tag in ("MetaData", "Signature")]:
        named = ", ".join(dict.fromkeys(child.get("source") or child.tag for child in said))
        findings.note(f"metadata and signatures have no effect here: {named}.", said[0].place)
    return whole


def descend(element: Element) -> Iterator[Element]:
    """The element and all in it."""
    yield element
    for child in element.children:
        yield from descend(child)


def _namespace(node: Any) -> str | None:
    return node.tag[1:].rpartition("}")[0] if node.tag.startswith("{") else None


Scalar = float | int | bool | str
_WHOLE = ("Integer", *(f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)))
TYPES: Mapping[str, str] = {
    **dict.fromkeys(("Real", "Float64", "Float32"), "Real"),
    **dict.fromkeys(_WHOLE, "Integer"),
    **{name: name for name in ("Boolean", "String", "Enumeration", "Binary", "Clock")},
}
"""The types of SSP 1.0 and 2.0, by what they are called here."""

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
    items: bool = False  # the table has items of enumerations

    def linear(
        self, place: Place, source: Mapping[str, int] | None, target: Mapping[str, int] | None
    ) -> Transformation:
        """The same as factor and offset; refuses a table whose entries do not lie on one line.

        `source` and `target` are the enumerations at the two ends.
        """
        if self.table is None:
            return self
        points = [(self._number(place, a, source), self._number(place, b, target)) for a, b in self.table.items()]
        if not points:
            raise place.error("the table of the connection is empty; give its entries, or remove it.")
        (x, y), (u, v) = min(points), max(points)
        factor = (v - y) / (u - x) if u != x else 1.0
        found = Transformation(factor, y - factor * x)
        if any(factor * a + found.offset != b for a, b in points):
            entries = ", ".join(f"{a} → {b}" for a, b in points)
            raise place.error(
                f"the entries of the table ({entries}) do not lie on one line; while running only such tables can be "
                "used: map the values in a unit of its own."
            )
        if set(self.table) < {"true", "false"}:
            raise place.error("the table of the connection needs an entry for true and one for false.")
        return found

    def _number(self, place: Place, text: str, items: Mapping[str, int] | None) -> int:
        if self.items:
            if items is None:
                raise place.error(
                    f"the table names the item '{text}', but the connector names no enumeration; declare it there."
                )
            if text not in items:
                raise place.error(str(UnknownNameError("item of the enumeration", text, items)))
            return items[text]
        try:
            return int({"true": "1", "false": "0"}.get(text, text))
        except ValueError:
            raise place.error(f"the table has the entry '{text}'; a whole number is needed.") from None


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
                    f"the value {value:g} is in '{self.unit}', its target in '{target}', which are incompatible "
                    f"physical units; give it in '{target}'."
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
        content = next((child for child in parameter.children if child.tag in TYPES), None)
        if content is None:
            raise parameter.place.error(
                f"parameter '{name}' has no value: Real, Integer, Boolean, String, Enumeration."
            )
        if TYPES[content.tag] not in READERS:
            raise content.place.error(
                f"parameter '{name}' is of type {content.tag}, which is not supported; remove it."
            )
        for one, element in _spread(name, content):
            if one in found:
                raise parameter.place.error(f"parameter '{one}' is given twice; remove one.")
            items = _items(element, known) if content.tag == "Enumeration" else None
            value = READERS[TYPES[content.tag]](element)
            found[one] = BoundValue(value, content.place, known.unit(content.get("unit")), items)
    return found


def _spread(name: str, content: Element) -> Iterator[tuple[str, Element]]:
    """The elements of an array (SSP 2.0: values between blanks, its size in Dimension), or the value itself."""
    sizes = dimensions(content)
    if not sizes:
        yield name, content
        return
    values = content.require("value").split()
    if len(values) != math.prod(sizes):
        raise content.place.error(
            f"parameter '{name}' has {math.prod(sizes)} elements, but {len(values)} values; correct one."
        )
    for one, value in zip(element_names(name, sizes), values, strict=True):
        yield one, replace(content, attributes={**content.attributes, "value": value})


def dimensions(content: Element | None) -> tuple[int, ...]:
    """The size that a type declares; () for a scalar."""
    if content is None:
        return ()
    sizes: list[int] = []
    for dimension in content.each("Dimension"):
        if dimension.get("sizeConnector") is not None:
            raise dimension.place.error("the size of an array from another connector is not supported; give its size.")
        if (size := dimension.whole("size")) < 1 or math.prod((*sizes, size)) > ELEMENTS:
            raise dimension.place.error(
                f"an array of size {size} is not possible; give at least 1, at most {ELEMENTS:,}."
            )
        sizes.append(size)
    return tuple(sizes)


def element_names(name: str, sizes: tuple[int, ...]) -> list[str]:
    """The elements of an array, as units call them.

    >>> element_names("v", (1, 2))
    ['v[1,1]', 'v[1,2]']
    """
    return [f"{name}[{','.join(map(str, place))}]" for place in itertools.product(*(range(1, n + 1) for n in sizes))]


def read_dictionary(root: Element) -> Iterator[tuple[Element, Element | None]]:
    """The entries of a signal dictionary, each with its type."""
    if root.tag != "SignalDictionary":
        raise root.place.error(f"the root element is {root.tag}; a signal dictionary begins with SignalDictionary.")
    for entry in root.each("DictionaryEntry"):
        yield entry, next((child for child in entry.children if child.tag in TYPES), None)


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
            entries = {read(e, "source"): read(e, "target") for e in child.each("MapEntry")}
            return Transformation(table=entries, items=child.tag == _MAPPINGS[2])
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


READERS: Mapping[str, Callable[[Element], Scalar]] = {
    "Real": lambda e: e.number("value"),
    "Integer": lambda e: e.whole("value"),
    "Boolean": lambda e: e.flag("value"),
    "String": lambda e: e.attributes.get("value", ""),
    "Enumeration": lambda e: e.require("value"),
    "Binary": lambda e: e.attributes.get("value", ""),
}
