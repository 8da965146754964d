"""Nested systems made flat: which connector is fed by which, through all levels.

Each connector is a port, written as the path of its element and its name. Seen from inside a system, its own inputs and
its elements' outputs give values, its own outputs and its elements' inputs take them; so every port is fed at most
once, and following the feeds backwards from an input ends at the output of a component, or at a port nobody feeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from cosimo.core.errors import UnknownNameError
from cosimo.core.unit import UnitOfMeasure, convert
from cosimo.formats.findings import Findings
from cosimo.formats.ssp_elements import Component, Connector, Subsystem, Wire

Route = tuple[str, ...]
Port = tuple[Route, str]

_GIVING, _TAKING = ("output", "calculatedParameter"), ("input", "parameter")


@dataclass(frozen=True)
class Feed:
    """A port is given the value of `source` through `wire`."""

    source: Port
    wire: Wire


@dataclass(frozen=True)
class Passage:
    """What happens to a value on its way: gain · v + offset, then in `unit`."""

    gain: float
    offset: float
    unit: UnitOfMeasure | None


def show(port: Port) -> str:
    """`"element.element.connector"`.

    >>> show((("truck", "axle"), "force"))
    'truck.axle.force'
    """
    return ".".join((*port[0], port[1]))


def components(system: Subsystem, route: Route = ()) -> Iterator[tuple[Route, Component]]:
    """All components at all levels."""
    for name, element in system.elements.items():
        if isinstance(element, Component):
            yield (*route, name), element
        else:
            yield from components(element, (*route, name))


class Network:
    """The feeds of all ports; `connectors` are those of the components, systems bring their own."""

    def __init__(self, root: Subsystem, connectors: Mapping[Port, Connector], findings: Findings) -> None:
        self.connectors: dict[Port, Connector] = dict(connectors)
        self.feeds: dict[Port, Feed] = {}
        self._findings = findings
        self._add(root, ())

    def trace(self, port: Port) -> tuple[Port, list[tuple[Port, Wire]]]:
        """Where the port's value comes from, and the wires from there with the ports they lead to, in this order."""
        way: list[tuple[Port, Wire]] = []
        seen = {port}
        while (feed := self.feeds.get(port)) is not None:
            way.append((port, feed.wire))
            port = feed.source
            if port in seen:
                raise feed.wire.place.error(
                    f"the connections through {show(port)} form a circle without a component; remove one."
                )
            seen.add(port)
        return port, way[::-1]

    def follow(self, unit: UnitOfMeasure | None, way: list[tuple[Port, Wire]]) -> Passage:
        """The transformations and unit conversions along the wires, one after the other.

        A connector without a unit of measure takes the value as it comes, and passes its unit on.
        """
        gain, offset = 1.0, 0.0
        for port, wire in way:
            target = self.connectors[port].unit
            if wire.suppress_conversion:
                unit = target
            elif target is not None:
                conversion = convert(unit, target)
                if conversion is None:
                    raise wire.place.error(
                        f"values in '{unit}' cannot be converted to '{target}' of {show(port)}; correct the units, or "
                        f"set suppressUnitConversion."
                    )
                gain, offset = conversion.gain * gain, conversion.gain * offset + conversion.offset
                unit = target
            then = wire.transformation
            gain, offset = then.factor * gain, then.factor * offset + then.offset
        return Passage(gain, offset, unit)

    def _add(self, system: Subsystem, route: Route) -> None:
        self.connectors |= {(route, name): connector for name, connector in system.connectors.items()}
        for name, element in system.elements.items():
            if isinstance(element, Subsystem):
                self._add(element, (*route, name))
        for wire in system.wires:
            if not system.broken.isdisjoint(element for element, _ in wire.ends if element is not None):
                continue
            with self._findings.collect(wire.place):
                self._connect(system, route, wire)

    def _connect(self, system: Subsystem, route: Route, wire: Wire) -> None:
        first, second = (self._end(system, route, wire, *end) for end in wire.ends)
        if first is None or second is None:
            return
        # The direction follows from the kinds, not from what is called start and end.
        (source, gives), (target, takes) = (first, second) if first[1] else (second, first)
        if gives == takes:
            kinds = " and ".join(f"{show(port)} ({self.connectors[port].kind})" for port in (first[0], second[0]))
            raise wire.place.error(
                f"{kinds} {'both give' if gives else 'both take'} a value; connect an output to an input."
            )
        if target in self.feeds:
            other = show(self.feeds[target].source)
            raise wire.place.error(f"{show(target)} is fed twice: by {other} and by {show(source)}; remove one.")
        self.feeds[target] = Feed(source, wire)

    def _end(
        self, system: Subsystem, route: Route, wire: Wire, element: str | None, connector: str
    ) -> tuple[Port, bool] | None:
        """One end of a wire, and whether it gives a value inside this system; None when its element is broken."""
        if element is not None and element not in system.elements:
            raise wire.place.error(
                str(UnknownNameError(f"element of system '{system.name}'", element, system.elements))
            )
        port = (route if element is None else (*route, element), connector)
        found = self.connectors.get(port)
        if found is None:
            known = [name for owner, name in self.connectors if owner == port[0]]
            if not known and element is not None and isinstance(system.elements[element], Component):
                return None
            owner = f"system '{system.name}'" if element is None else f"element '{element}'"
            raise wire.place.error(str(UnknownNameError(f"connector of {owner}", connector, known)))
        if found.kind not in (*_GIVING, *_TAKING):
            raise wire.place.error(
                f"{show(port)} is of kind {found.kind}, which cannot be connected; remove the connection."
            )
        return port, found.kind in (_TAKING if element is None else _GIVING)
