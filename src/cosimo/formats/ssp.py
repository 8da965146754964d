"""SSP 1.0 and 2.0: a package (.ssp) or a plain description (.ssd) as a system of FMUs.

Nested systems are made flat, with names joined by dots; what is connected through connectors of systems becomes one
connection, with all transformations and unit conversions on the way multiplied into it. Nothing of the user's is ever
written.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from cosimo.core.errors import ConfigurationError, FileFindings, Place, UnknownNameError, UnsafeInputError
from cosimo.core.system import Connection, System
from cosimo.core.unit import UnitOfMeasure, convert
from cosimo.formats.scenario import Scenario
from cosimo.formats.ssp_documents import BoundValue, Scalar
from cosimo.formats.ssp_files import Files
from cosimo.formats.ssp_structure import (
    Connector,
    Placeholder,
    SignalReference,
    SspComponent,
    SspStructure,
    Subsystem,
    Wire,
    open_structure,
)
from cosimo.units.archives import ArchiveLimits, remedy, validating
from cosimo.units.fmi.archive import listing
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolate
from cosimo.units.fmi.variables import INTEGERS, MANTISSA, VariableInfo, check_connection, parse_value

if TYPE_CHECKING:
    from cosimo.formats.scenario_tables import ScenarioTable


def load_ssp(
    path: str | Path,
    findings: FileFindings | None = None,
    *,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
) -> Scenario:
    """The system in an .ssp or .ssd; with `findings` everything that was found on the way can be seen there.

    SSP says nothing about the step: where our own annotation does not either, the smallest that an FMU suggests is
    taken.
    """
    path, findings = Path(path), findings or FileFindings()
    limits = limits or ArchiveLimits.from_environment()
    findings.relaxed = not validating(validate)
    structure, files = open_structure(path, findings, limits)
    try:
        own = _own(structure, findings)
        flat = Flattening(structure, findings, FmuOptions(limits=limits, validate=validate), own)
        units, connections = flat.units(), flat.connections()
        findings.require_no_errors()
        with Place(str(path), structure.root.place.line if path.suffix.lower() == ".ssd" else None).blame("the system"):
            system = System(units, connections, name=structure.name)
        system, how = _apply(own, structure, system, files, findings)
        findings.require_no_errors()
    except BaseException:
        files.discard()
        raise
    finally:
        for _, component in components(structure.root):
            component.files.close()
        files.close()
    steps = [fmu.default_experiment["stepSize"] for fmu in units.values() if "stepSize" in fmu.default_experiment]
    told = {"start": structure.start, "stop": structure.stop, "source": path, "warnings": tuple(findings.warnings)}
    return Scenario.of(system, **{"step": min(steps, default=None), **told, **how})


def _own(structure: SspStructure, findings: FileFindings) -> ScenarioTable | None:
    """What our own annotation says, where there is one."""
    if structure.annotation is None:
        return None
    from cosimo.formats.scenario_reading import read_annotation

    place, content = structure.annotation.place, structure.annotation.find("scenario")
    with findings.tolerate(place, "The annotation is ignored."):
        return read_annotation("" if content is None else content.text, place)
    return None


def _apply(
    own: ScenarioTable | None, structure: SspStructure, system: System, files: Files, findings: FileFindings
) -> tuple[System, dict[str, Any]]:
    """The system with its external inputs, and master, step and all else that the annotation says."""
    if own is None or structure.annotation is None:
        return system, {}
    from cosimo.formats.scenario_building import experiment, external_inputs

    place = structure.annotation.place

    @contextmanager
    def collecting(*key: str | int) -> Iterator[None]:
        with findings.collect(place), place.blame(".".join(map(str, key))):
            yield

    def near(file: str) -> Path:
        return files.on_disk(files.locate(file, ""))

    if inputs := external_inputs(own, system, near, collecting):
        system = System(system.units, system.connections, inputs=inputs, name=system.name)
    step = {} if own.step_size is None else {"step": own.step_size}
    return system, {**step, **experiment(own, system, own.step_size, collecting)}


# ---- from a description to units and connections ---------------------------------------------------------------------


class PackedFmu(Fmu):
    """An FMU from a package, called `label`; it keeps the folder alive into which it was copied out of the package."""

    def __init__(self, component: SspComponent, **given: Any) -> None:
        self.files: Files = component.files
        try:
            super().__init__(component.path, **given)
            self.label = component.label
        except ConfigurationError as error:
            message = str(error).replace(str(component.path), component.label)
            raise component.place.error(message) from None
        except UnsafeInputError as error:
            raise UnsafeInputError(str(error).replace(str(component.path), component.label)) from None

    def library(self) -> str:
        try:
            return super().library()
        except ConfigurationError as error:
            raise ConfigurationError(str(error).replace(str(self.path), self.label)) from None


class Flattening:
    """Looks into all FMUs of a structure, distributes values, and yields units and connections."""

    def __init__(
        self, structure: SspStructure, findings: FileFindings, options: FmuOptions, own: ScenarioTable | None
    ) -> None:
        self.structure, self.findings, self.options, self.own = structure, findings, options, own
        self.fmus: dict[Route, Fmu] = {}
        self._read: dict[tuple[Path, FmuOptions, Isolate], PackedFmu] = {}
        self.components: dict[Route, SspComponent] = dict(components(structure.root))
        self.experiment = Experiment(start_time=structure.start or 0.0)
        connectors: dict[Port, Connector] = {}
        for route, component in self.components.items():
            with findings.collect(component.place):
                self.fmus[route] = fmu = self._open(route, component)
                connectors |= {(route, name): c for name, c in self._describe(fmu, component).items()}
        arrays = {(r, owner): fmu.elements_of(owner) for r, fmu in self.fmus.items() for owner in _arrays(fmu)}
        self.network = Network(structure.root, connectors, findings, arrays)
        self.values: defaultdict[Route, dict[str, BoundValue]] = defaultdict(dict)
        self._require_room(options.limits or ArchiveLimits.from_environment())
        self._bind(structure.root, (), {})

    def _open(self, route: Route, component: SspComponent) -> Fmu:
        """The FMU of a component; one that many components share is read once."""
        name = ".".join(route)
        options, isolate = self._how(name, component)
        key = (component.path, options, isolate)
        how = {"experiment": self.experiment, "options": options, "isolate": isolate}
        read = self._read.get(key)
        if read is None:
            read = self._read[key] = PackedFmu(component, name=name, **how)
        if sizes := _sizes(read, component):
            return PackedFmu(component, name=name, start=sizes, **how)
        same = copy.copy(read)
        same.name, same.label, same.files = name, component.label, component.files
        return same

    def _how(self, name: str, component: SspComponent) -> tuple[FmuOptions, Isolate]:
        """How an FMU is read and run: as the component says, and our own annotation."""
        table = None if self.own is None else self.own.units.get(name)
        if table is None:
            return replace(self.options, kind=component.kind), "auto"
        from cosimo.formats.scenario_building import fmu_options
        from cosimo.formats.scenario_tables import FmuTable

        if not isinstance(table, FmuTable):
            raise component.place.error(f"the annotation of cosimo gives component '{name}' no 'fmu'; remove it.")
        how = fmu_options(table, self.options.limits, self.options.validate)
        return replace(how["options"], kind=table.kind or component.kind), how["isolate"]

    def _require_room(self, limits: ArchiveLimits) -> None:
        """All FMUs together must stay below the limit that each of them keeps: a package may hold thousands."""
        total = sum(listing(path, limits).unpacked for path in {fmu.path for fmu in self.fmus.values()})
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
                    raise component.place.error(f"two components would be named '{name}'; rename one.")
                units[name] = self._with_values(fmu, component, self._given(route, fmu))
        return units

    def connections(self) -> list[Connection]:
        """One connection for each input of a component that an output of a component feeds."""
        found = []
        for route, fmu in self.fmus.items():
            for name in fmu.left_out:
                if (feed := self.network.feeds.get((route, name))) is not None:
                    with self.findings.collect(feed.wire.place):
                        found.append(self._clock_connection((route, name)))
            for info in fmu.variables.values():
                feed = self.network.feeds.get((route, info.name))
                if feed is not None and info.causality == "input":
                    with self.findings.collect(feed.wire.place):
                        found.append(self._connection((route, info.name), info))
        return [connection for connection in found if connection is not None]

    # ---- what the FMUs say ---------------------------------------------------------------------------------------

    def _describe(self, fmu: Fmu, component: SspComponent) -> dict[str, Connector]:
        """The connectors of a component: as declared where that agrees with the FMU, else as the FMU says."""
        found = {
            name: Connector(name, info.causality, component.place, unit=info.unit)
            for name, info in fmu.variables.items()
        }
        found |= {name: Connector(name, other.causality, component.place) for name, other in fmu.left_out.items()}
        arrays = _arrays(fmu)
        for name, declared in component.connectors.items():
            with self.findings.tolerate(declared.place, "What the FMU says is used."):
                if name in fmu.left_out or name in arrays:
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
        if declared.type is not None and declared.type != ssp_type(info):
            self.findings.warn(
                f"connector '{declared.name}' is declared as {declared.type}, but the FMU has {info.type}; the type "
                "of the FMU is used.",
                declared.place,
            )
        between = convert(declared.unit, info.unit)
        if between is None or not between.identity:
            raise declared.place.error(
                f"connector '{declared.name}' is declared in '{declared.unit}', but the FMU has '{info.unit}'; "
                "correct the physical unit of the connector or leave it out."
            )
        known = info.unit if info.unit is not None and info.unit.exponents is not None else None
        return replace(declared, unit=known or declared.unit or info.unit)

    # ---- values --------------------------------------------------------------------------------------------------

    def _bind(self, element: Subsystem | SspComponent, route: Route, above: Mapping[str, BoundValue]) -> set[str]:
        """Give values to an element and all in it, and return the names that meant something.

        A later binding counts before an earlier one, one of an outer system before one of an inner.
        """
        given = {name: value for binding in element.bindings for name, value in binding.values.items()} | dict(above)
        if isinstance(element, SspComponent):
            fmu = self.fmus.get(route)  # one that was refused is reported: whether the names would fit is not known
            matched = {name for name in given if fmu is None or name in fmu.variables}
            self.values[route] |= {} if fmu is None else {name: given[name] for name in matched}
        else:
            matched = {name for name in given if name in element.connectors}
            self.values[route] |= {name: given[name] for name in matched}
            for child, inner in element.elements.items():
                if not isinstance(inner, SspComponent | Subsystem):
                    continue
                passed = {name[len(child) + 1 :]: v for name, v in given.items() if name.startswith(child + ".")}
                if passed or inner.bindings or isinstance(inner, Subsystem):
                    matched |= {f"{child}.{name}" for name in self._bind(inner, (*route, child), passed)}
        for binding in element.bindings:
            if ignored := sorted(set(binding.values) - matched):
                names = ", ".join(ignored[:10]) + (" …" if len(ignored) > 10 else "")
                self.findings.warn(f"values for unknown names are ignored: {names}.", binding.place)
        return matched

    def _given(self, route: Route, fmu: Fmu) -> dict[str, Scalar]:
        """The values of a component: bound to its own names, or coming from a connector of a system around it."""
        given: dict[str, Scalar] = {}
        for name, bound in self.values[route].items():
            with bound.place.blame(show((route, name))):
                value = bound.resolve(self.network.connectors[route, name].unit)
                parsed = parse_value(fmu.variables[name], value)
                given[name] = parsed.hex() if isinstance(parsed, bytes) else parsed
        for name, info in fmu.variables.items():
            if (route, name) in self.network.feeds and info.causality in ("parameter", "input"):
                value_there = self._arriving((route, name), info)
                if value_there is not None:
                    given[name] = value_there
        return given

    @staticmethod
    def _with_values(fmu: Fmu, component: SspComponent, given: Mapping[str, Scalar]) -> Fmu:
        if not given:
            return fmu
        parameters = {name: v for name, v in given.items() if fmu.variables[name].causality == "parameter"}
        start = {name: value for name, value in given.items() if name not in parameters}
        same = {"name": fmu.name, "experiment": fmu.experiment, "options": fmu.options}
        changed = PackedFmu(component, parameters=parameters, start=start, **same)
        changed.isolation, changed.trial = fmu.isolation, fmu.trial
        return changed

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
            if info_there.causality != kind or info_there.alias:
                variable = self.fmus[end[0]].variables[end[1]]
                raise ConfigurationError(
                    f"{show(end)} ({variable.type}, {variable.causality}) cannot be exchanged while running; only "
                    f"values from outputs to inputs can."
                )
        passage = self.network.follow(self.network.connectors[origin].unit, way)
        # Units of measure were converted on the way: what is left to check are the types.
        check_connection(
            replace(giver.variables[source], name=show(origin), unit=None), replace(info, name=show(port), unit=None)
        )
        ends = show((origin[0], source)), show((port[0], target))
        return Connection(*ends, passage.gain, passage.offset, convert=False)

    def _clock_connection(self, port: Port) -> Connection | None:
        origin, _ = self.network.trace(port)
        if origin[0] not in self.components:
            return None
        for end, kind in ((origin, "clock_outputs"), (port, "clock_inputs")):
            fmu = self.fmus[end[0]]
            if end[1] not in getattr(fmu, kind):
                raise _refused(end, fmu)
        return Connection(show(origin), show(port), convert=False)

    @staticmethod
    def _primary(fmu: Fmu, name: str) -> str:
        """The variable that `name` is, or that it is a further name of."""
        info = fmu.variables[name]
        if not info.alias:
            return name
        same = (o for o in fmu.variables.values() if not o.alias and o.value_reference == info.value_reference)
        return next((other.name for other in same if other.element == info.element), name)


def _sizes(fmu: Fmu, component: SspComponent) -> dict[str, Scalar]:
    """The structural parameters that the component gives: they decide which elements its arrays have."""
    given = {name: value for binding in component.bindings for name, value in binding.values.items()}
    infos = (info for info in fmu.variables.values() if info.causality == "structuralParameter")
    return {info.name: given[info.name].resolve(info.unit) for info in infos if info.name in given}


def _arrays(fmu: Fmu) -> set[str]:
    """The variables that are arrays; their elements are variables too."""
    return set(fmu.owners.values()).difference(fmu.variables)


def _refused(port: Port, fmu: Fmu) -> ConfigurationError:
    name, reason = show(port), fmu.refusal(port[1])
    if reason is None:
        return ConfigurationError(f"{name} is a clock, and the other end is no input or output clock; connect clocks.")
    return ConfigurationError(f"{name} {reason}")


def ssp_type(info: VariableInfo) -> str:
    """The type as SSP 1.0 calls it, and we call those of SSP 2.0."""
    if info.type in MANTISSA:
        return "Real"
    return "Integer" if info.type in INTEGERS and info.type != "Enumeration" else info.type


# ---- nested systems made flat: which connector is fed by which, through all levels -----------------------------------
# Each connector is a port, written as the path of its element and its name. Seen from inside a system, its own inputs
# and its elements' outputs give values, its own outputs and its elements' inputs take them; so every port is fed at
# most once, and following the feeds backwards from an input ends at the output of a component, or at one nobody feeds.


Route = tuple[str, ...]
Port = tuple[Route, str]

_GIVING, _TAKING = ("output", "calculatedParameter"), ("input", "parameter", "structuralParameter")


class Feed(NamedTuple):
    """A port is given the value of `source` through `wire`."""

    source: Port
    wire: Wire


End = tuple[Port, bool | None]


class Passage(NamedTuple):
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


def components(system: Subsystem, route: Route = ()) -> Iterator[tuple[Route, SspComponent]]:
    """All components at all levels."""
    for name, element in system.elements.items():
        if isinstance(element, SspComponent):
            yield (*route, name), element
        elif isinstance(element, Subsystem):
            yield from components(element, (*route, name))


class Network:
    """The feeds of all ports; `connectors` are those of the components, systems bring their own.

    `arrays` are the names of the elements of each array of a component. An entry of a signal dictionary is a port too,
    of the system that has the dictionary: whatever is connected to a reference to it is connected to that port.
    """

    def __init__(
        self,
        root: Subsystem,
        connectors: Mapping[Port, Connector],
        findings: FileFindings,
        arrays: Mapping[Port, Sequence[str]],
    ) -> None:
        self.connectors: dict[Port, Connector] = dict(connectors)
        self.feeds: dict[Port, Feed] = {}
        self._findings, self._arrays = findings, arrays
        self._add(root, (), {})

    def trace(self, port: Port) -> tuple[Port, list[tuple[Port, Wire]]]:
        """Where the port's value comes from, and the wires from there with the ports they lead to, in this order."""
        way: list[tuple[Port, Wire]] = []
        seen = {port}
        while (feed := self.feeds.get(port)) is not None:
            way.append((port, feed.wire))
            port = feed.source
            if port in seen:
                raise feed.wire.place.error(
                    f"the connections through {show(port)} form a cycle without a component; remove one."
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
                        f"values in '{unit}' cannot be converted to '{target}' of {show(port)}; correct the physical "
                        "units, or set suppressUnitConversion."
                    )
                gain, offset = conversion.gain * gain, conversion.gain * offset + conversion.offset
                unit = target
            then = wire.transformation
            gain, offset = then.factor * gain, then.factor * offset + then.offset
        return Passage(gain, offset, unit)

    def _add(self, system: Subsystem, route: Route, around: Mapping[str, Route]) -> None:
        self.connectors |= {(route, name): connector for name, connector in system.connectors.items()}
        known = {**around, **{name: (*route, f"<{name}>") for name in system.dictionaries}}
        for name, entries in system.dictionaries.items():
            self.connectors |= {(known[name], entry): connector for entry, connector in entries.items()}
        for name, element in system.elements.items():
            if isinstance(element, Subsystem):
                self._add(element, (*route, name), known)
            elif isinstance(element, SignalReference):
                with self._findings.collect(element.place):
                    self._check_reference(element, known)
            elif isinstance(element, Placeholder):
                self._leave_out(element, system)
        missing = {name for name, element in system.elements.items() if isinstance(element, Placeholder)}
        for wire in system.wires:
            if (system.broken | missing).isdisjoint(element for element, _ in wire.ends if element is not None):
                with self._findings.collect(wire.place):
                    self._connect(system, route, wire, known)

    def _check_reference(self, element: SignalReference, known: Mapping[str, Route]) -> None:
        if element.dictionary not in known:
            raise element.place.error(str(UnknownNameError("signal dictionary", element.dictionary, known)))
        route = known[element.dictionary]
        entries = {name: connector for (owner, name), connector in self.connectors.items() if owner == route}
        for name, connector in element.connectors.items():
            if name not in entries:
                raise connector.place.error(
                    str(UnknownNameError(f"signal of dictionary '{element.dictionary}'", name, entries))
                )
            between = convert(connector.unit, entries[name].unit)
            if between is None or not between.identity:
                raise connector.place.error(
                    f"connector '{name}' is declared in '{connector.unit}', but the signal dictionary has "
                    f"'{entries[name].unit}'; correct one of the two."
                )

    def _leave_out(self, element: Placeholder, system: Subsystem) -> None:
        """A component without a source may be left out where nobody waits for its values."""
        ends = {end for wire in system.wires for end in wire.ends}
        given = [c.name for c in element.connectors.values() if c.kind in _GIVING and (element.name, c.name) in ends]
        instead = "It is left out with its connections: what it would feed keeps its start value."
        if not given:
            self._findings.warn(f"component '{element.name}' has no source. {instead}", element.place)
            return
        with self._findings.tolerate(element.place, instead):
            raise element.place.error(
                f"component '{element.name}' has no source, but its {', '.join(given)} feeds others; give it an FMU, "
                "or leave it out with 'cosimo --no-validate …' or load(…, validate=False)."
            )

    def _connect(self, system: Subsystem, route: Route, wire: Wire, known: Mapping[str, Route]) -> None:
        first, second = (self._ends(system, route, wire, end, known) for end in wire.ends)
        if first is None or second is None:
            return
        if len(first) != len(second):
            raise wire.place.error(
                f"the connection joins {len(first)} and {len(second)} values; connect arrays of the same size."
            )
        for ends in zip(first, second, strict=True):
            self._feed(wire, *ends)

    def _feed(self, wire: Wire, first: End, second: End) -> None:
        if first[1] is None and second[1] is None:
            raise wire.place.error(
                f"{show(first[0])} and {show(second[0])} are both signals; connect one to an element."
            )
        # A signal of a dictionary gives to what takes, and takes from what gives.
        first = (first[0], not second[1]) if first[1] is None else first
        second = (second[0], not first[1]) if second[1] is None else second
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
        items = self.connectors[source].items, self.connectors[target].items
        self.feeds[target] = Feed(source, replace(wire, transformation=wire.transformation.linear(wire.place, *items)))

    def _ends(
        self, system: Subsystem, route: Route, wire: Wire, end: tuple[str | None, str], known: Mapping[str, Route]
    ) -> list[End] | None:
        """One end of a wire, of an array all its elements; None when its element is broken."""
        element, connector = end
        if element is not None and element not in system.elements:
            raise wire.place.error(
                str(UnknownNameError(f"element of system '{system.name}'", element, system.elements))
            )
        owner = route if element is None else (*route, element)
        if isinstance(there := system.elements.get(element or ""), SignalReference):
            if there.dictionary not in known:
                return None
            owner = known[there.dictionary]
        names = self._arrays.get((owner, connector), ())
        if not names and (owner, connector) not in self.connectors:  # an array of a system
            names = [name for other, name in self.connectors if other == owner and name.startswith(f"{connector}[")]
        found = [self._end(system, wire, element, (owner, name)) for name in names or (connector,)]
        return None if None in found else [end for end in found if end is not None]

    def _end(self, system: Subsystem, wire: Wire, element: str | None, port: Port) -> End | None:
        """A port, and whether it gives a value inside this system; None where the wire decides that."""
        found, connector = self.connectors.get(port), port[1]
        if isinstance(system.elements.get(element or ""), SignalReference) and found is not None:
            return port, None
        if found is None:
            known = [name for owner, name in self.connectors if owner == port[0]]
            if not known and element is not None and isinstance(system.elements[element], SspComponent):
                return None
            owner = f"system '{system.name}'" if element is None else f"element '{element}'"
            raise wire.place.error(str(UnknownNameError(f"connector of {owner}", connector, known)))
        if found.kind not in (*_GIVING, *_TAKING):
            raise wire.place.error(
                f"{show(port)} is of kind {found.kind}, which cannot be connected; remove the connection."
            )
        return port, found.kind in (_TAKING if element is None else _GIVING)
