"""From a description to units and connections: FMUs are looked into, values find their targets, wires become one."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError, UnknownNameError, UnsafeInputError
from cosimo.core.system import Connection
from cosimo.core.unit import convert
from cosimo.formats.findings import Findings
from cosimo.formats.ssp_elements import Binding, Component, Connector, Structure, Subsystem
from cosimo.formats.ssp_files import Files
from cosimo.formats.ssp_network import Network, Port, Route, components, show
from cosimo.formats.ssp_parameters import Bound, Scalar
from cosimo.units.archives import ArchiveLimits, remedy
from cosimo.units.fmi.archive import unpacked_size
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.variables import INTEGERS, MANTISSA, VariableInfo, check_connection, parse_value


class PackedFmu(Fmu):
    """An FMU from a package, called `label`; it keeps the folder alive into which it was copied out of the package."""

    def __init__(self, component: Component, **given: Any) -> None:
        self.files: Files = component.files
        try:
            super().__init__(component.path, **given)
            self.label = component.label
        except ConfigurationError as error:
            message = str(error).replace(str(component.path), component.label)
            raise component.place.error(message) from None
        except UnsafeInputError as error:
            raise UnsafeInputError(str(error).replace(str(component.path), component.label)) from None


class Flattening:
    """Looks into all FMUs of a structure, distributes values, and yields units and connections."""

    def __init__(self, structure: Structure, findings: Findings, options: FmuOptions) -> None:
        self.structure, self.findings, self.options = structure, findings, options
        self.fmus: dict[Route, Fmu] = {}
        self._read: dict[Path, PackedFmu] = {}
        self.components: dict[Route, Component] = dict(components(structure.root))
        self.experiment = Experiment(start_time=structure.start or 0.0)
        connectors: dict[Port, Connector] = {}
        for route, component in self.components.items():
            with findings.collect(component.place):
                self.fmus[route] = fmu = self._open(route, component)
                connectors |= {(route, name): c for name, c in self._describe(fmu, component).items()}
        self.network = Network(structure.root, connectors, findings)
        self.values: defaultdict[Route, dict[str, Bound]] = defaultdict(dict)
        self._require_room(options.limits or ArchiveLimits.from_environment())
        self._bind(structure.root, (), {})

    def _open(self, route: Route, component: Component) -> Fmu:
        """The FMU of a component; one that many components share is read once."""
        name, read = ".".join(route), self._read.get(component.path)
        if read is None:
            read = PackedFmu(component, name=name, experiment=self.experiment, options=self.options)
            self._read[component.path] = read
            return read
        same = copy.copy(read)
        same.name, same.label, same.files = name, component.label, component.files
        return same

    def _require_room(self, limits: ArchiveLimits) -> None:
        """All FMUs together must stay below the limit that each of them keeps: a package may hold thousands."""
        total = sum(unpacked_size(path, limits) for path in {fmu.path for fmu in self.fmus.values()})
        if total > limits.total_size:
            raise UnsafeInputError(
                f"the FMUs of '{self.structure.root.place.file}' would take {total:,} bytes unpacked, more than "
                f"{limits.total_size:,}; {remedy('total_size')}."
            )

    def units(self) -> dict[str, Fmu]:
        """The FMUs with their parameters and start values, by their names joined with dots."""
        units: dict[str, Fmu] = {}
        for route, fmu in self.fmus.items():
            component, name = self.components[route], ".".join(route)
            with self.findings.collect(component.place):
                if name in units:
                    raise component.place.error(f"two components come out as '{name}'; rename one.")
                units[name] = self._with_values(fmu, component, self._given(route, fmu))
        return units

    def connections(self) -> list[Connection]:
        """One connection for each input of a component that an output of a component feeds."""
        found = []
        for route, fmu in self.fmus.items():
            for name in fmu.left_out:
                if (feed := self.network.feeds.get((route, name))) is not None:
                    with self.findings.collect(feed.wire.place):
                        raise _refused((route, name), fmu)
            for info in fmu.variables.values():
                feed = self.network.feeds.get((route, info.name))
                if feed is not None and info.causality == "input":
                    with self.findings.collect(feed.wire.place):
                        found.append(self._connection((route, info.name), info))
        return [connection for connection in found if connection is not None]

    # ---- what the FMUs say ---------------------------------------------------------------------------------------

    def _describe(self, fmu: Fmu, component: Component) -> dict[str, Connector]:
        """The connectors of a component: as declared where that agrees with the FMU, else as the FMU says."""
        found = {
            name: Connector(name, info.causality, component.place, unit=info.unit)
            for name, info in fmu.variables.items()
        }
        found |= {name: Connector(name, other.causality, component.place) for name, other in fmu.left_out.items()}
        for name, declared in component.connectors.items():
            with self.findings.collect(declared.place):
                if name in fmu.left_out:
                    continue
                if name not in fmu.variables:
                    raise declared.place.error(
                        str(UnknownNameError(f"variable of '{component.label}'", name, fmu.variables))
                    )
                found[name] = self._agree(declared, fmu.variables[name])
        return found

    def _agree(self, declared: Connector, info: VariableInfo) -> Connector:
        if declared.kind != info.causality:
            raise declared.place.error(
                f"connector '{declared.name}' is declared as {declared.kind}, but the FMU has the causality "
                f"{info.causality}; correct its kind."
            )
        if declared.type is not None and declared.type != _type(info):
            self.findings.warn(
                f"connector '{declared.name}' is declared as {declared.type}, but the FMU has {info.type}; "
                f"that of the FMU counts.",
                declared.place,
            )
        between = convert(declared.unit, info.unit)
        if between is None or not between.identity:
            raise declared.place.error(
                f"connector '{declared.name}' is declared in '{declared.unit}', but the FMU has '{info.unit}'; correct "
                f"the unit of the connector or leave it out."
            )
        known = info.unit if info.unit is not None and info.unit.exponents is not None else None
        return replace(declared, unit=known or declared.unit or info.unit)

    # ---- values --------------------------------------------------------------------------------------------------

    def _bind(self, element: Subsystem | Component, route: Route, above: Mapping[str, Bound]) -> set[str]:
        """Give values to an element and all in it, and return the names that meant something.

        A later binding counts before an earlier one, one of an outer system before one of an inner.
        """
        given = {name: value for binding in element.bindings for name, value in binding.values.items()} | dict(above)
        if isinstance(element, Component):
            matched = self._bind_component(route, given)
        else:
            matched = {name for name in given if name in element.connectors}
            self.values[route] |= {name: given[name] for name in matched}
            for child, inner in element.elements.items():
                passed = {name[len(child) + 1 :]: v for name, v in given.items() if name.startswith(child + ".")}
                if passed or inner.bindings or isinstance(inner, Subsystem):
                    matched |= {f"{child}.{name}" for name in self._bind(inner, (*route, child), passed)}
        for binding in element.bindings:
            self._tell_unmatched(binding, matched)
        return matched

    def _bind_component(self, route: Route, given: Mapping[str, Bound]) -> set[str]:
        fmu = self.fmus.get(route)
        if fmu is None:  # reported already; whether the names would have fitted is not known
            return set(given)
        matched = {name for name in given if name in fmu.variables}
        self.values[route] |= {name: given[name] for name in matched}
        return matched

    def _tell_unmatched(self, binding: Binding, matched: set[str]) -> None:
        ignored = sorted(set(binding.values) - matched)
        if ignored:
            names = ", ".join(ignored[:10]) + (" …" if len(ignored) > 10 else "")
            self.findings.warn(f"values for unknown names are ignored: {names}.", binding.place)

    def _given(self, route: Route, fmu: Fmu) -> dict[str, Scalar]:
        """The values of a component: bound to its own names, or coming from a connector of a system around it."""
        given: dict[str, Scalar] = {}
        for name, bound in self.values[route].items():
            with bound.place.blame(show((route, name))):
                value = bound.resolve(self.network.connectors[route, name].unit)
                given[name] = parse_value(fmu.variables[name], value)
        for name, info in fmu.variables.items():
            if (route, name) in self.network.feeds and info.causality in ("parameter", "input"):
                value_there = self._arriving((route, name), info)
                if value_there is not None:
                    given[name] = value_there
        return given

    @staticmethod
    def _with_values(fmu: Fmu, component: Component, given: Mapping[str, Scalar]) -> Fmu:
        if not given:
            return fmu
        parameters = {name: v for name, v in given.items() if fmu.variables[name].causality == "parameter"}
        start = {name: value for name, value in given.items() if name not in parameters}
        return PackedFmu(
            component,
            name=fmu.name,
            experiment=fmu.experiment,
            parameters=parameters,
            start=start,
            options=fmu.options,
        )

    def _arriving(self, port: Port, info: VariableInfo) -> Scalar | None:
        origin, way = self.network.trace(port)
        if origin[0] in self.components:
            if info.causality == "parameter":
                raise self.network.feeds[port].wire.place.error(
                    f"parameter {show(port)} is fed by {show(origin)}; parameters computed by another component are "
                    f"not supported. Give the value in a parameter set."
                )
            return None
        bound = self.values[origin[0]].get(origin[1])
        if bound is None:
            return None
        unit = self.network.connectors[origin].unit
        value = bound.resolve(unit)
        passage = self.network.follow(unit or bound.unit, way)
        if (passage.gain, passage.offset) == (1.0, 0.0):
            return value
        if isinstance(value, str | bool):
            raise bound.place.error(
                f"the value {value!r} for {show(port)} cannot be transformed like a number; remove the transformation."
            )
        return passage.gain * value + passage.offset

    # ---- connections ---------------------------------------------------------------------------------------------

    def _connection(self, port: Port, info: VariableInfo) -> Connection | None:
        origin, way = self.network.trace(port)
        if origin[0] not in self.components:
            return None
        giver, taker = self.fmus[origin[0]], self.fmus[port[0]]
        if origin[1] in giver.left_out:
            raise _refused(origin, giver)
        source, target = self._primary(giver, origin[1]), self._primary(taker, port[1])
        for end, found, kind in ((origin, source, "output"), (port, target, "input")):
            info_there = self.fmus[end[0]].variables[found]
            if info_there.causality != kind or not info_there.numeric or info_there.alias:
                variable = self.fmus[end[0]].variables[end[1]]
                raise ConfigurationError(
                    f"{show(end)} ({variable.type}, {variable.causality}) cannot be exchanged while running; only "
                    f"numbers from outputs to inputs can."
                )
        passage = self.network.follow(self.network.connectors[origin].unit, way)
        # Units of measure were converted on the way: what is left to check are the types.
        check_connection(
            replace(giver.variables[source], name=show(origin), unit=None), replace(info, name=show(port), unit=None)
        )
        ends = show((origin[0], source)), show((port[0], target))
        return Connection(*ends, passage.gain, passage.offset, convert=False)

    @staticmethod
    def _primary(fmu: Fmu, name: str) -> str:
        """The variable that `name` is, or that it is a further name of."""
        info = fmu.variables[name]
        if not info.alias:
            return name
        same = (o for o in fmu.variables.values() if not o.alias and o.value_reference == info.value_reference)
        return next((other.name for other in same if other.element == info.element), name)


def _refused(port: Port, fmu: Fmu) -> ConfigurationError:
    """The error for a variable that is not exchanged."""
    name, reason = show(port), fmu.refusal(port[1])
    return ConfigurationError(f"{name} {reason}")


def _type(info: VariableInfo) -> str:
    """The type as SSP 1.0 calls it."""
    if info.type in MANTISSA:
        return "Real"
    return "Integer" if info.type in INTEGERS and info.type != "Enumeration" else info.type
