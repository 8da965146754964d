"""XML with line numbers and without document types.

A document type can define entities that expand without bound or read files; no SSP file needs one, so it is refused
at the first sight of it. Namespaces are tolerated as found in the field: missing, undeclared, or of a draft.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from cosimo.core.errors import UnsafeInputError
from cosimo.formats.findings import Findings, Place
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


def parse(content: bytes, file: str, findings: Findings, limits: ArchiveLimits) -> Element:
    """The root element of the document; `file` names it in messages."""
    check_text(content, f"'{file}'", limits)
    return _Reader(file, findings, limits.xml_depth).read(content)


class _Reader:
    """Builds elements from the events of the parser, with a stack of open ones."""

    def __init__(self, file: str, findings: Findings, depth: int) -> None:
        self._file, self._findings, self._depth = file, findings, depth
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._open: list[Element | None] = []
        self._names: dict[str, list[str]] = {}
        """What each prefix stands for in the open elements, the innermost last."""
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
