"""OSP: a system structure (OspSystemStructure.xml) with the model descriptions beside its FMUs, as a system of units.

Open Simulation Platform, OSP-IS 1.0: simulators are FMUs, variable groups are connected as a whole, and functions
stand between them. libcosim computes functions when values are transferred, after the simulators of a step; so here
    LinearTransformation   is folded into the connection that goes through it: target = factor · source + offset,
    Sum, VectorSum         are units without states, y = Σ u, in a group of the master that follows the simulators.
A simulator whose stepSize is n base steps takes one step in n (its own multiple in a `multirate` master). Values are
passed as they are: OSP does not convert physical units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, FileFindings, Place, UnknownNameError
from cosimo.core.formatting import counted
from cosimo.core.system import Connection, System
from cosimo.core.unit import Unit, convert
from cosimo.formats.scenario import Scenario
from cosimo.formats.ssp_documents import READERS, Element, parse
from cosimo.formats.ssp_files import Files
from cosimo.masters.words import MasterOptions, build_master
from cosimo.units.archives import ArchiveLimits, validating
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.variables import check_connection
from cosimo.units.linear import StateSpace

DESCRIPTION = "_OspModelDescription.xml"
PROXY = "proxyfmu"
MOST = 10_000
"""Inputs of one function, all dimensions counted."""
NEAR = 1e-6
"""How far, relatively, a step may be from a multiple of the base step: rounding of decimal fractions."""

End = tuple[str, str]
"""A simulator or function, and its variable or signal."""


def load_osp(
    path: str | Path,
    findings: FileFindings | None = None,
    *,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
) -> Scenario:
    """The scenario in an OspSystemStructure.xml; with `findings` all that was found on the way can be seen there."""
    path, findings = Path(path), findings or FileFindings()
    limits = limits or ArchiveLimits.from_environment()
    findings.relaxed = not validating(validate)
    files = Files(path.parent, limits)
    root = parse(files.read(path.name), str(path), findings, limits, None)
    if root.tag != "OspSystemStructure":
        raise root.place.error(
            f"the root element is {root.tag}, not OspSystemStructure; only OSP system structures are .xml files."
        )
    structure = _Structure(root, files, findings, FmuOptions(limits=limits, validate=validate))
    findings.require_no_errors()
    with root.place.blame("the system"):
        system = System(structure.units, structure.connections, name=_name(path))
    step, options = structure.step, structure.options
    with findings.collect(root.place):
        build_master(system, step or 1.0, options)
    findings.require_no_errors()
    return Scenario.of(
        system,
        options=options,
        step=step,
        start=structure.start,
        source=path,
        warnings=tuple(findings.warnings),
        power_pairs=tuple(structure.power_pairs(system)) or None,
    )


def _name(path: Path) -> str:
    """The file's name; that of the folder where the file is called as OSP demands."""
    return path.stem if path.stem != "OspSystemStructure" else path.resolve().parent.name or path.stem


# ---- model descriptions: variable groups -----------------------------------------------------------------------------


@dataclass(frozen=True)
class VariableGroup:
    """A variable group: its kind (`tag`, such as Force or LinearMechanicalPort), its variables, groups inside."""

    tag: str
    name: str
    variables: tuple[str, ...]
    groups: tuple[VariableGroup, ...] = ()

    def all(self) -> tuple[str, ...]:
        """Its variables, with those of the groups inside."""
        return (*self.variables, *(name for group in self.groups for name in group.all()))

    def pairs(self, other: VariableGroup) -> list[tuple[str, str]]:
        """The variables that belong together: groups inside by their kind where each occurs once, all else by place."""
        mine, theirs = ({group.tag: group for group in one.groups} for one in (self, other))
        if mine and set(mine) == set(theirs) and len(mine) == len(self.groups) == len(other.groups):
            inner = [pair for tag, group in mine.items() for pair in group.pairs(theirs[tag])]
            return [*zip(self.variables, other.variables, strict=True), *inner]
        return list(zip(self.all(), other.all(), strict=True))

    def power(self) -> Iterator[tuple[str, str]]:
        """Pairs whose product is a power: effort and flow of a port. A quasi-port has a displacement instead."""
        if self.tag.endswith("Port") and not self.tag.endswith("QuasiPort") and len(self.groups) == 2:
            effort, flow = (group.all() for group in self.groups)
            yield from zip(effort, flow, strict=False)
        for group in self.groups:
            yield from group.power()


def read_groups(root: Element) -> dict[str, VariableGroup]:
    """The variable groups of an OspModelDescription, by name."""
    if root.tag != "OspModelDescription":
        raise root.place.error(f"the root element is {root.tag}, not OspModelDescription; correct the file.")

    def group(element: Element) -> VariableGroup:
        variables = tuple(child.require("ref") for child in element.children if child.tag == "Variable")
        inside = tuple(group(child) for child in element.children if child.tag != "Variable")
        return VariableGroup(element.tag, (element.get("name") or "").strip(), variables, inside)

    found = [group(child) for holder in root.each("VariableGroups") for child in holder.children]
    return {one.name: one for one in reversed(found)}


# ---- functions -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function: how many inputs, of which dimension; factor and offset of a linear transformation."""

    name: str
    kind: str
    place: Place
    count: int = 1
    dimension: int | None = None
    factor: float = 1.0
    offset: float = 0.0
    inputs: tuple[str, ...] = field(default=(), compare=False)
    outputs: tuple[str, ...] = field(default=(), compare=False)

    def group(self, name: str) -> list[str]:
        """The signals of a signal group: `in[0]` or `out` of a vector."""
        return [
            signal for signal in (*self.inputs, *self.outputs) if re.fullmatch(re.escape(name) + r"(\[\d+\])?", signal)
        ]

    def unit(self) -> StateSpace:
        """A sum as a unit without states: y_j = Σ_i u_ij."""
        n, m = len(self.outputs), len(self.inputs)
        through = np.zeros((n, m))
        for column in range(m):
            through[column % n, column] = 1.0
        empty = np.zeros((0, 0)), np.zeros((0, m)), np.zeros((n, 0))
        start = dict.fromkeys(self.inputs, 0.0)
        return StateSpace(*empty, through, inputs=self.inputs, outputs=self.outputs, start=start)


def read_function(element: Element) -> Function:
    """A function with the names of its signals, which count from 0."""
    name, kind = element.require("name"), element.tag
    if kind == "LinearTransformation":
        factor, offset = element.number("factor", 1.0), element.number("offset", 0.0)
        return Function(name, kind, element.place, 1, None, factor, offset, ("in",), ("out",))
    if kind not in ("Sum", "VectorSum"):
        known = ("LinearTransformation", "Sum", "VectorSum")
        raise element.place.error(str(UnknownNameError("function", kind, known)))
    count = element.whole("inputCount")
    dimension = element.whole("dimension") if kind == "VectorSum" else None
    if min(count, dimension or 1) < 1 or count * (dimension or 1) > MOST:
        raise element.place.error(
            f"function '{name}' has {count} inputs of dimension {dimension or 1}; give at least 1, together at most "
            f"{MOST:,}."
        )
    parts = [""] if dimension is None else [f"[{j}]" for j in range(dimension)]
    inputs = tuple(f"in[{i}]{part}" for i in range(count) for part in parts)
    return Function(name, kind, element.place, count, dimension, inputs=inputs, outputs=tuple(f"out{p}" for p in parts))


# ---- the structure ---------------------------------------------------------------------------------------------------


class _Structure:
    """Reads a structure: units, connections, and how they are run."""

    def __init__(self, root: Element, files: Files, findings: FileFindings, options: FmuOptions) -> None:
        self.root, self.files, self.findings, self.fmu_options = root, files, findings, options
        self.start = self._text_number("StartTime")
        self.fmus: dict[str, Fmu] = {}
        self.steps: dict[str, tuple[float, Place]] = {}
        self.groups: dict[str, dict[str, VariableGroup]] = {}
        self.functions: dict[str, Function] = {}
        self.feeds: dict[End, tuple[End, Place]] = {}
        broken: set[str] = set()
        for element in root.each("Simulators", "Simulator"):
            with findings.collect(element.place):
                broken.add((element.get("name") or "").strip())
                name = self._new_name(element)
                self._simulator(name, element)
                broken.discard(name)
        for holder in root.each("Functions"):
            for element in holder.children:
                with findings.collect(element.place):
                    self._new_name(element)
                    self.functions[element.require("name")] = read_function(element)
        for holder in root.each("Connections"):
            for element in holder.children:
                with findings.collect(element.place):
                    if broken.isdisjoint((child.get("simulator") or "").strip() for child in element.children):
                        self._connect(element)
        if not self.fmus and not findings.errors:
            raise root.place.error("the structure has no Simulator; it needs one.")
        self.sums = {name: f for name, f in self.functions.items() if f.kind != "LinearTransformation"}
        self.units: dict[str, Unit] = {**self.fmus, **{name: function.unit() for name, function in self.sums.items()}}
        self.connections: list[Connection] = []
        for target, (_, place) in self.feeds.items():
            if target[0] in self.units:
                with findings.collect(place):
                    self.connections.append(self._connection(target, place))
        self.step = self._base_step()
        self.options = self._options()

    def _new_name(self, element: Element) -> str:
        name = element.require("name").strip()
        if name in self.fmus or name in self.functions:
            raise element.place.error(f"two simulators or functions are called '{name}'; rename one.")
        return name

    def _text_number(self, tag: str) -> float | None:
        element = self.root.find(tag)
        if element is None or not element.text:
            return None
        return replace(element, attributes={tag: element.text}).number(tag)

    # ---- simulators ----------------------------------------------------------------------------------------------

    def _simulator(self, name: str, element: Element) -> None:
        source, apart = element.require("source"), False
        parts = urlsplit(source)
        if parts.scheme == PROXY:  # another program that runs the FMU in a process of its own
            named = parse_qs(parts.query).get("file", [""])[0]
            if parts.hostname not in (None, "localhost", "127.0.0.1") or not named:
                raise element.place.error(
                    f"simulator '{name}' runs on another machine ('{source}'); give the FMU as a local file."
                )
            source, apart = named, True
        values = {}
        for item in element.each("InitialValues", "InitialValue"):
            content = next((child for child in item.children if child.tag in READERS), None)
            if content is None:
                raise item.place.error(
                    f"the initial value of '{item.get('variable')}' is missing: {', '.join(READERS)}."
                )
            values[item.require("variable")] = READERS[content.tag](content)
        with element.place.blame(f"simulator '{name}'"):
            path = self.files.on_disk(self.files.locate(source, ""))
            fmu = Fmu(
                path,
                name=name,
                start=values,
                experiment=Experiment(start_time=self.start or 0.0),
                options=self.fmu_options,
                isolate=True if apart else "auto",
            )
        if element.get("stepSize") is not None:
            if (step := element.number("stepSize")) <= 0:
                raise element.place.error(f"simulator '{name}' has the step size {step:g}; give a positive one.")
            self.steps[name] = (step, element.place)
        self.fmus[name] = fmu
        self.groups[name] = self._model_description(fmu)

    def _model_description(self, fmu: Fmu) -> dict[str, VariableGroup]:
        """The groups in the file that is named after the FMU or its model, beside the FMU or the structure."""
        wanted = {f"{name}{DESCRIPTION}".casefold() for name in (fmu.path.stem, fmu.model_name)}
        for folder in (fmu.path.parent, self.files.folder):
            for file in sorted(folder.iterdir()):
                if file.name.casefold() in wanted and file.is_file():
                    content = Files(folder, self.files.limits).read(file.name)
                    return read_groups(parse(content, str(file), self.findings, self.files.limits, None))
        return {}

    # ---- connections ---------------------------------------------------------------------------------------------

    def _connect(self, element: Element) -> None:
        ends = [
            child for child in element.children if child.tag in ("Variable", "Signal", "VariableGroup", "SignalGroup")
        ]
        if len(ends) != 2:
            raise element.place.error(f"{element.tag} has {counted(len(ends), 'end')}; a connection needs two.")
        if element.tag in ("VariableConnection", "SignalConnection"):
            first, second = ([self._single(end)] for end in ends)
        elif element.tag in ("VariableGroupConnection", "SignalGroupConnection"):
            first, second = self._members(ends[0], ends[1], element)
        else:
            raise element.place.error(f"{element.tag} is no connection; use VariableConnection or SignalConnection.")
        for one, two in zip(first, second, strict=True):
            self._feed(one, two, element.place)

    def _owner(self, end: Element) -> str:
        word, known = ("function", self.functions) if end.tag.startswith("Signal") else ("simulator", self.fmus)
        name = end.require(word).strip()
        if name not in known:
            raise end.place.error(str(UnknownNameError(word, name, known)))
        return name

    def _single(self, end: Element) -> End:
        owner, name = self._owner(end), end.require("name").strip()
        if owner in self.functions:
            function = self.functions[owner]
            if name not in (*function.inputs, *function.outputs):
                known = (*function.inputs, *function.outputs)
                raise end.place.error(str(UnknownNameError(f"signal of function '{owner}'", name, known)))
        elif name not in self.fmus[owner].variables:
            raise end.place.error(
                str(UnknownNameError(f"variable of simulator '{owner}'", name, self.fmus[owner].variables))
            )
        return owner, name

    def _members(self, first: Element, second: Element, connection: Element) -> tuple[list[End], list[End]]:
        """The variables at both ends of a connection of groups, those that belong together at the same place."""
        one, two = self._group(first), self._group(second)
        if len(one.all()) != len(two.all()):
            raise connection.place.error(
                f"the groups have {len(one.all())} and {len(two.all())} variables; connect groups of the same size."
            )
        try:
            pairs = one.pairs(two)
        except ValueError:
            raise connection.place.error(
                "the groups inside the groups differ in size; connect them one by one."
            ) from None
        owners = self._owner(first), self._owner(second)
        return [(owners[0], a) for a, _ in pairs], [(owners[1], b) for _, b in pairs]

    def _group(self, end: Element) -> VariableGroup:
        owner, name = self._owner(end), end.require("name").strip()
        if owner in self.functions:
            if not (signals := self.functions[owner].group(name)):
                raise end.place.error(f"function '{owner}' has no group of signals '{name}'; write in[0] or out.")
            return VariableGroup("Generic", name, tuple(signals))
        groups, path = self.groups[owner], self.fmus[owner].path
        if not groups:
            raise end.place.error(
                f"simulator '{owner}' has no variable groups: there is no '{path.stem}{DESCRIPTION}' beside its FMU or "
                "this file; add it, or connect single variables."
            )
        if name not in groups:
            raise end.place.error(str(UnknownNameError(f"variable group of simulator '{owner}'", name, groups)))
        for variable in groups[name].all():
            if variable not in self.fmus[owner].variables:
                known = self.fmus[owner].variables
                unknown = UnknownNameError(f"variable of simulator '{owner}'", variable, known)
                raise end.place.error(f"group '{name}': {unknown}")
        return groups[name]

    def _feed(self, first: End, second: End, place: Place) -> None:
        """The direction follows from the causalities, not from which end is named first."""
        gives = [self._gives(end) for end in (first, second)]
        if gives[0] == gives[1]:
            both = "both give" if gives[0] else "both take"
            raise place.error(
                f"{'.'.join(first)} and {'.'.join(second)} {both} a value; connect an output to an input."
            )
        source, target = (first, second) if gives[0] else (second, first)
        if target in self.feeds:
            other = ".".join(self.feeds[target][0])
            raise place.error(
                f"{'.'.join(target)} is fed twice: by {other} and by {'.'.join(source)}; add them in a Sum."
            )
        self.feeds[target] = (source, place)

    def _gives(self, end: End) -> bool:
        owner, name = end
        if owner in self.functions:
            return name in self.functions[owner].outputs
        return self.fmus[owner].variables[name].causality not in ("input", "parameter")

    def _connection(self, target: End, place: Place) -> Connection:
        """One connection to `target`, with all linear transformations on the way, from the last to the first."""
        gain, offset, seen = 1.0, 0.0, {target}
        source, _ = self.feeds[target]
        while source[0] in self.functions and source[0] not in self.units:
            function = self.functions[source[0]]
            gain, offset = gain * function.factor, gain * function.offset + offset
            into = (source[0], function.inputs[0])
            if into not in self.feeds:
                raise function.place.error(f"function '{source[0]}' has no input; connect something to its 'in'.")
            if into in seen:
                raise function.place.error(f"the functions form a loop through '{source[0]}'; remove a connection.")
            seen.add(into)
            source, _ = self.feeds[into]
        names = ".".join(source), ".".join(target)
        if source[0] in self.fmus and target[0] in self.fmus:
            self._check(source, target, place)
        return Connection(*names, gain, offset, convert=False)

    def _check(self, source: End, target: End, place: Place) -> None:
        """Types must fit; physical units are not converted by OSP, so a difference is only told."""
        given, taken = (self.fmus[owner].variables[name] for owner, name in (source, target))
        names = ".".join(source), ".".join(target)
        check_connection(replace(given, name=names[0], unit=None), replace(taken, name=names[1], unit=None))
        between = convert(given.unit, taken.unit)
        if between is None or not between.identity:
            self.findings.warn(
                f"{names[0]} is in '{given.unit}', {names[1]} in '{taken.unit}': OSP passes values as they are. To "
                "convert them, insert a LinearTransformation.",
                place,
            )

    # ---- how it is run -------------------------------------------------------------------------------------------

    def _base_step(self) -> float | None:
        given = self._text_number("BaseStepSize")
        if given is not None and given <= 0:
            raise self.root.place.error(f"BaseStepSize is {given:g}; give a positive number of seconds.")
        suggested = (fmu.suggested_step for fmu in self.fmus.values())
        steps = [step for step, _ in self.steps.values()] or [step for step in suggested if step]
        return min(steps, default=None) if given is None else given

    def _options(self) -> MasterOptions:
        algorithm = self.root.find("Algorithm")
        if algorithm is not None and algorithm.text not in ("", "fixedStep"):
            self.findings.warn(
                f"the algorithm '{algorithm.text}' is not available; fixed steps are made. See --adaptive.",
                algorithm.place,
            )
        multiples: dict[str, int] = {}
        for name, (step, place) in self.steps.items():
            count = max(1, round(step / (self.step or step)))
            if abs(step - count * (self.step or step)) > NEAR * step:
                self.findings.warn(
                    f"the step size {step:g} of simulator '{name}' is no multiple of the base step {self.step:g}; "
                    f"it takes steps of {count * (self.step or step):g}.",
                    place,
                )
            if count > 1:
                multiples[name] = count
        parts = [tuple(self.fmus), *self._levels()]
        order = ";".join(",".join(part) for part in parts) if len(parts) > 1 else None
        if multiples:
            return MasterOptions("multirate", order=order, multiples=multiples)
        return MasterOptions("jacobi") if order is None else MasterOptions("groups", order=order)

    def _levels(self) -> list[tuple[str, ...]]:
        """The sums, those that others feed after these: each level is a group of the master."""
        ends = {f"{n}.{v}": n for n, f in self.sums.items() for v in (*f.inputs, *f.outputs)}
        waiting: dict[str, set[str]] = {name: set() for name in self.sums}
        for connection in self.connections:
            if connection.source in ends and connection.target in ends:
                waiting[ends[connection.target]].add(ends[connection.source])
        levels: list[tuple[str, ...]] = []
        while waiting:
            ready = tuple(name for name, needs in waiting.items() if not needs & set(waiting))
            if not ready:
                place = self.functions[next(iter(waiting))].place
                raise place.error(f"the functions {', '.join(waiting)} form a loop; remove a connection.")
            levels.append(ready)
            waiting = {name: needs for name, needs in waiting.items() if name not in ready}
        return levels

    def power_pairs(self, system: System) -> Iterator[tuple[str, str]]:
        """The pairs of ports that are connected in both directions to one other unit, each bond once."""
        from cosimo.execution.power_bonds import power_bonds

        taken: set[frozenset[int]] = set()
        for name, groups in self.groups.items():
            fmu = self.fmus[name]
            for pair in (pair for group in groups.values() for pair in group.power()):
                into, out = sorted(pair, key=lambda variable: variable in fmu.outputs)
                if into not in fmu.inputs or out not in fmu.outputs:
                    continue
                try:
                    bond = power_bonds(system, [(f"{name}.{into}", f"{name}.{out}")])[0]
                except ConfigurationError:  # not connected, or with an offset: it carries no power here
                    continue
                key = frozenset((bond.forward.number, bond.back.number))
                if key not in taken:
                    taken.add(key)
                    yield f"{name}.{into}", f"{name}.{out}"
