"""A system structure description as data: systems in systems, components, connectors, wires, bound values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cosimo.core.unit import UnitOfMeasure
from cosimo.formats.findings import Place
from cosimo.formats.ssp_files import Files
from cosimo.formats.ssp_parameters import Bound, Transformation


@dataclass(frozen=True)
class Connector:
    """What an element shows to the outside; `type` and `unit` are None where the description is silent."""

    name: str
    kind: str
    place: Place
    type: str | None = None
    unit: UnitOfMeasure | None = None


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

    values: Mapping[str, Bound]
    place: Place


@dataclass(frozen=True)
class Component:
    """An FMU in a system; `label` is the FMU as messages call it, `files` keeps its file on disk alive."""

    name: str
    path: Path
    label: str
    place: Place
    connectors: Mapping[str, Connector]
    bindings: tuple[Binding, ...]
    files: Files


@dataclass(frozen=True)
class Subsystem:
    """A system: its own connectors, its elements, the wires among them; `broken` elements could not be read."""

    name: str
    place: Place
    connectors: Mapping[str, Connector]
    bindings: tuple[Binding, ...]
    elements: Mapping[str, Component | Subsystem] = field(default_factory=dict)
    wires: tuple[Wire, ...] = ()
    broken: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Structure:
    """A whole description."""

    name: str
    root: Subsystem
    start: float | None
    stop: float | None
