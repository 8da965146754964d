"""Linear units and systems of them as FMUs and SSP packages that any tool can run.

All FMUs hold the same compiled library (`src/fmu`); the unit itself is a small file of matrices in `resources/`. The
same unit gives the same bytes, token included.
"""

from __future__ import annotations

import hashlib
import io
import platform
import re
import struct
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from cosimo.core.arrays import BoolArray
from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.master import Master
from cosimo.core.storage import replacing
from cosimo.core.system import Constant, System, Variable
from cosimo.core.unit import Unit
from cosimo.units.fmi.archive import platform_folders
from cosimo.units.linear import Exact, ForwardEuler, LinearUnit, Mechanical, RungeKutta4, SymplecticEuler

__all__ = ["SuggestedExperiment", "export_ssp", "export_system", "export_unit"]

_INTEGRATORS = (Exact, ForwardEuler, RungeKutta4, SymplecticEuler)
_SUFFIXES = {"Linux": ".so", "Darwin": ".dylib"}
_NAMESPACES = {
    "xmlns:ssd": "http://ssp-standard.org/SSP1/SystemStructureDescription",
    "xmlns:ssc": "http://ssp-standard.org/SSP1/SystemStructureCommon",
}


def export_unit(
    unit: Unit, path: str | Path, *, name: str, fmi: Fmi, experiment: SuggestedExperiment | None = None
) -> Path:
    """Write a state-space or mechanical unit as an FMU for co-simulation, of version 2.0 or 3.0.

    States are local variables x1, … (q1, …, v1, … for a mechanical unit) that can be set until initialisation ends.
    """
    return _write(Path(path), _pack(_describe(unit, name, {}, experiment or SuggestedExperiment()), fmi))


def export_system(
    system: System,
    folder: str | Path,
    *,
    fmi: Fmi,
    master: Master | None = None,
    experiment: SuggestedExperiment | None = None,
) -> dict[str, Path]:
    """Write one FMU per unit into `folder` and return where each is; all suggest `experiment` or the step of `master`.

    External inputs become start values: constants for good, others with their value at t = 0.
    """
    folder = Path(folder)
    suggested = experiment or SuggestedExperiment(step=None if master is None else master.step)
    packed = _pack_units(system, fmi, suggested)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the folder '{folder}': {error.strerror}.") from None
    return {name: _write(folder / file, content) for name, (file, content) in packed.items()}


def export_ssp(system: System, path: str | Path, *, fmi: Fmi, step: float, stop: float) -> Path:
    """Write the system as an SSP 1.0 package: SystemStructure.ssd, and one FMU per unit in `resources/`.

    SSP has no place for a step size: each FMU suggests it. External inputs that vary become inputs of the whole
    system, which start with their value at t = 0; constant ones become start values.
    """
    if not 0 < step <= stop:
        raise ConfigurationError(f"the step ({step:g}) must be positive and at most the stop time ({stop:g}).")
    packed = _pack_units(system, fmi, SuggestedExperiment(step, stop))
    files = {name: f"resources/{file}" for name, (file, _) in packed.items()}
    entries = {"SystemStructure.ssd": _structure(system, files, stop)}
    entries |= {files[name]: content for name, (_, content) in packed.items()}
    return _write(Path(path), _archive(entries))


# ---- one FMU -----------------------------------------------------------------------------------------------------


def _describe(unit: Unit, name: str, start: Mapping[str, float], experiment: SuggestedExperiment) -> Description:
    if not isinstance(unit, LinearUnit):
        raise ConfigurationError(
            f"unit '{name}' is of kind {type(unit).__name__}; only StateSpace and Mechanical units can be exported."
        )
    if type(unit.integrator) not in _INTEGRATORS:
        known = ", ".join(kind.__name__ for kind in _INTEGRATORS)
        raise ConfigurationError(
            f"unit '{name}' has the integrator {type(unit.integrator).__name__}, which the compiled library does not "
            f"know; use one of {known}."
        )
    if unit.micro_steps >= 2**32:
        raise ConfigurationError(f"unit '{name}' makes {unit.micro_steps} micro steps; an FMU makes at most 2^32 - 1.")
    if not name.isprintable() or not name:
        raise ConfigurationError(f"a unit cannot be exported as {name!r}; give it a printable name.")
    return Description(unit, name, start, experiment)


def _pack(description: Description, fmi: Fmi) -> bytes:
    if fmi not in (2, 3):
        raise ConfigurationError(f"FMUs can be written for FMI 2 or 3, not {fmi}.")
    blank = _matrices(description, "") + write_model_description(description, "", fmi)
    token = f"{{{uuid.UUID(bytes=hashlib.sha256(blank).digest()[:16])}}}"
    folder, suffix = _platform(fmi)
    return _archive(
        {
            "modelDescription.xml": write_model_description(description, token, fmi),
            f"binaries/{folder}/{identifier(description.name)}{suffix}": _library(suffix),
            "resources/unit.bin": _matrices(description, token),
        }
    )


def _matrices(description: Description, token: str) -> bytes:
    """resources/unit.bin, as `src/fmu/description.h` lays it out."""
    unit, model = description.unit, description.unit.linear()
    sizes = (len(unit.initial_state), len(unit.inputs), len(unit.outputs))
    kind = _INTEGRATORS.index(type(unit.integrator))
    head = struct.pack("<8s64s6I", b"cosimo-1", token.encode(), kind, unit.micro_steps, *sizes, 0)
    numbers = (model.A, model.B, model.C, model.D, unit.initial_state, np.array(description.input_start()))
    return head + b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in numbers)


def _library(suffix: str) -> bytes:
    try:
        return resources.files("cosimo.formats").joinpath("_fmu", f"unit{suffix}").read_bytes()
    except OSError:
        raise ConfigurationError(
            f"the compiled library 'cosimo/formats/_fmu/unit{suffix}' is missing; reinstall cosimo with a C compiler "
            "available."
        ) from None


def _platform(fmi: Fmi) -> tuple[str, str]:
    """The folder below `binaries/` and the suffix of libraries on this machine."""
    if platform.system() not in _SUFFIXES:
        raise ConfigurationError(
            f"FMUs can be exported on {' and '.join(_SUFFIXES)}, not on {platform.system()}, for which the compiled "
            f"library is not built."
        )
    return platform_folders(fmi)[0], _SUFFIXES[platform.system()]


def _archive(entries: Mapping[str, bytes]) -> bytes:
    """A zip file without time stamps, so that equal contents give equal files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = (0o755 if name.startswith("binaries/") else 0o644) << 16
            archive.writestr(info, content)
    return buffer.getvalue()


def _write(path: Path, content: bytes) -> Path:
    """All or nothing: a full disk leaves no half package behind."""
    try:
        with replacing(path) as new:
            new.write_bytes(content)
    except OSError as error:
        raise OutputError(f"cannot write '{path}': {error.strerror}.") from None
    return path


# ---- the system --------------------------------------------------------------------------------------------------


def _pack_units(system: System, fmi: Fmi, experiment: SuggestedExperiment) -> dict[str, tuple[str, bytes]]:
    """The file name and content of every unit's FMU."""
    packed: dict[str, tuple[str, bytes]] = {}
    taken: set[str] = set()
    for name, unit in system.units.items():
        stem, number = identifier(name), 2
        while stem.casefold() in taken:
            stem, number = f"{identifier(name)}_{number}", number + 1
        taken.add(stem.casefold())
        start = {unit.inputs[i]: float(source(0.0)) for i, source in system.external(name).items()}
        packed[name] = (f"{stem}.fmu", _pack(_describe(unit, name, start, experiment), fmi))
    return packed


def _structure(system: System, files: Mapping[str, str], stop: float) -> bytes:
    """SystemStructure.ssd: the connectors of the system, its components, the connections between them."""
    varying = [target for target, source in system.inputs.items() if not isinstance(source, Constant)]
    components = [
        _node(
            "ssd:Component",
            {"name": name, "type": "application/x-fmu-sharedlibrary", "source": files[name]},
            _connectors({**dict.fromkeys(unit.inputs, "input"), **dict.fromkeys(unit.outputs, "output")}),
        )
        for name, unit in system.units.items()
    ]
    inside = [*_connectors(dict.fromkeys(varying, "input")), _node("ssd:Elements", children=components)]
    inside += _group("ssd:Connections", _connections(system, varying))
    experiment = _node("ssd:DefaultExperiment", {"startTime": "0.0", "stopTime": repr(float(stop))})
    head = {**_NAMESPACES, "version": "1.0", "name": system.name, "generationTool": "cosimo"}
    whole = _node("ssd:System", {"name": system.name}, inside)
    return _document(_node("ssd:SystemStructureDescription", head, [whole, experiment]))


def _connectors(kinds: Mapping[str, str]) -> list[Node]:
    named = [{"name": name, "kind": kind} for name, kind in kinds.items()]
    return _group("ssd:Connectors", [_node("ssd:Connector", attributes, [_node("ssc:Real")]) for attributes in named])


def _connections(system: System, varying: Sequence[str]) -> Iterator[Node]:
    for link in system.links:
        connection, output = link.connection, system.units[link.source.unit].outputs[link.source.index]
        ends = {"startElement": link.source.unit, "startConnector": output} | _end(system, link.target)
        transformation = {"factor": repr(float(connection.gain)), "offset": repr(float(connection.offset))}
        inside = [] if connection.identity else [_node("ssc:LinearTransformation", transformation)]
        yield _node("ssd:Connection", ends, inside)
    for name in varying:
        yield _node("ssd:Connection", {"startConnector": name} | _end(system, system.input(name)))


def _end(system: System, target: Variable) -> dict[str, str]:
    return {"endElement": target.unit, "endConnector": system.units[target.unit].inputs[target.index]}


# ---- XML -----------------------------------------------------------------------------------------------------------


Node = ElementTree.Element


def _node(tag: str, attributes: Mapping[str, str] | None = None, children: Iterable[Node] = ()) -> Node:
    node = ElementTree.Element(tag, dict(attributes or {}))
    node.extend(children)
    return node


def _group(tag: str, members: Iterable[Node]) -> list[Node]:
    """One element with these members, or nothing where there are none."""
    inside = list(members)
    return [_node(tag, children=inside)] if inside else []


def _document(root: Node) -> bytes:
    """The document as indented UTF-8."""
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


# ---- modelDescription.xml of a linear unit, for FMI 2.0 and 3.0 ------------------------------------------------------
# Value references count through [x, u, y, ẋ, time], as the compiled library does. Outputs and derivatives are
# y = C x + D u and ẋ = A x + B u, so each depends on exactly the states and inputs whose coefficient is not zero.


Fmi = Literal[2, 3]


@dataclass(frozen=True)
class SuggestedExperiment:
    """The step and stop time that an FMU suggests to who runs it."""

    step: float | None = None
    stop: float | None = None

    def attributes(self) -> dict[str, str]:
        """As both versions write them; empty when there is nothing to suggest."""
        given = {"startTime": 0.0, "stopTime": self.stop, "stepSize": self.step}
        known = {name: repr(float(value)) for name, value in given.items() if value is not None}
        return known if self != SuggestedExperiment() else {}


@dataclass(frozen=True)
class Description:
    """All that modelDescription.xml says of `unit`; `start` overrides the start values of inputs."""

    unit: LinearUnit
    name: str
    start: Mapping[str, float] = field(default_factory=dict)
    experiment: SuggestedExperiment = field(default_factory=SuggestedExperiment)

    def input_start(self) -> list[float]:
        """The start value of every input."""
        unit = self.unit
        return [float(self.start.get(name, unit.start.get(name, 0.0))) for name in unit.inputs]

    def variables(self, first: int) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
        """What is said of each variable, and of its value; references count from 0, variables from `first`."""
        unit, states, calculated = self.unit, state_names(self.unit), {"initial": "calculated"}
        starts = [{"start": repr(float(value))} for value in (*unit.initial_state, *self.input_start())]
        n, m = len(states), len(unit.inputs)
        rows: list[tuple[str, str, dict[str, str], dict[str, str]]] = [
            *((name, "local", {"initial": "exact"}, start) for name, start in zip(states, starts[:n], strict=True)),
            *((name, "input", {}, start) for name, start in zip(unit.inputs, starts[n : n + m], strict=True)),
            *((name, "output", calculated, {}) for name in unit.outputs),
            *((f"der({s})", "local", calculated, {"derivative": str(first + i)}) for i, s in enumerate(states)),
            ("time", "independent", {}, {}),
        ]
        _check_names(self.name, [name for name, *_ in rows])
        for reference, (name, causality, initial, value) in enumerate(rows):
            head = {"name": name, "valueReference": str(reference), "causality": causality}
            yield head | {"variability": "continuous"} | initial, value

    def depends(self) -> BoolArray:
        """Which output or derivative (row) depends on which state or input (column): [C D; A B] ≠ 0."""
        model = self.unit.linear()
        found: BoolArray = np.block([[model.C, model.D], [model.A, model.B]]) != 0
        return found


def identifier(name: str) -> str:
    """`name` as an identifier of C.

    >>> identifier("left wheel.3")
    'left_wheel_3'
    """
    letters = re.sub(r"[^A-Za-z0-9_]", "_", name)[:100]
    return letters if re.match(r"[A-Za-z_]", letters) else f"unit_{letters}"


def state_names(unit: LinearUnit) -> list[str]:
    """q1, …, v1, … for a mechanical unit, x1, … for others; `state.x1`, … where an input or output is called so."""
    n = len(unit.initial_state)
    half = n // 2
    if isinstance(unit, Mechanical):
        names = [f"{letter}{i}" for letter in "qv" for i in range(1, half + 1)]
    else:
        names = [f"x{i}" for i in range(1, n + 1)]
    taken = {*unit.inputs, *unit.outputs}
    clash = any(name in taken or f"der({name})" in taken for name in names)
    return [f"state.{name}" for name in names] if clash else names


def _check_names(unit: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or not name.isprintable():
            raise ConfigurationError(
                f"variable {name!r} of unit '{unit}' cannot be exported; give it a printable name."
            )
        if name in seen:
            raise ConfigurationError(
                f"unit '{unit}' has two variables called '{name}' (input, output, state or time), and FMI requires "
                "unique names; rename one."
            )
        seen.add(name)


_ABLE = {
    2: (
        "canHandleVariableCommunicationStepSize",
        "canInterpolateInputs",
        "canGetAndSetFMUstate",
        "canSerializeFMUstate",
        "providesDirectionalDerivative",
    ),
    3: (
        "canHandleVariableCommunicationStepSize",
        "canGetAndSetFMUState",
        "canSerializeFMUState",
        "providesDirectionalDerivatives",
        "providesAdjointDerivatives",
    ),
}


def write_model_description(description: Description, token: str, fmi: Fmi) -> bytes:
    """modelDescription.xml of that version."""
    head = {
        "fmiVersion": f"{fmi}.0",
        "modelName": description.name,
        "generationTool": "cosimo",
        "variableNamingConvention": "flat",
        "guid" if fmi == 2 else "instantiationToken": token,
    }
    flags = {"modelIdentifier": identifier(description.name), "maxOutputDerivativeOrder": "0"}
    category = {"name": "logStatusError", "description": "Why a call was refused"}
    experiment = description.experiment.attributes()
    parts = [
        _node("CoSimulation", flags | dict.fromkeys(_ABLE[fmi], "true")),
        _node("LogCategories", children=[_node("Category", category)]),
        *([_node("DefaultExperiment", experiment)] if experiment else []),
        *(_fmi2_model(description) if fmi == 2 else _fmi3_model(description)),
    ]
    return _document(_node("fmiModelDescription", head, parts))


def _fmi2_model(description: Description) -> tuple[Node, Node]:
    # FMI 2.0 needs no variable for time; indices count from 1 in the order of the value references.
    listed = [_node("ScalarVariable", head, [_node("Real", value)]) for head, value in [*description.variables(1)][:-1]]
    unknowns, outputs = list(_unknowns(description, "index", first=1)), len(description.unit.outputs)
    groups = {
        "Outputs": [known | kinds for known, kinds in unknowns[:outputs]],
        "Derivatives": [known | kinds for known, kinds in unknowns[outputs:]],
        "InitialUnknowns": [known for known, _ in unknowns],
    }
    structure = [
        node for name, rows in groups.items() for node in _group(name, [_node("Unknown", row) for row in rows])
    ]
    return _node("ModelVariables", children=listed), _node("ModelStructure", children=structure)


def _fmi3_model(description: Description) -> tuple[Node, Node]:
    listed = [_node("Float64", head | value) for head, value in description.variables(0)]
    unknowns, outputs = list(_unknowns(description, "valueReference", first=0)), len(description.unit.outputs)
    structure = [
        *(_node("Output", known | kinds) for known, kinds in unknowns[:outputs]),
        *(_node("ContinuousStateDerivative", known | kinds) for known, kinds in unknowns[outputs:]),
        *(_node("InitialUnknown", known) for known, _ in unknowns),
    ]
    return _node("ModelVariables", children=listed), _node("ModelStructure", children=structure)


def _unknowns(description: Description, key: str, first: int) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Each output, then each derivative, with what it depends on; variables are counted from `first`."""
    depends = description.depends()
    for row, on in enumerate(depends):
        columns = np.flatnonzero(on)
        names = " ".join(str(first + column) for column in columns)
        # "constant": the dependence is linear with a factor that never changes.
        kinds = {"dependenciesKind": " ".join(["constant"] * len(columns))}
        yield {key: str(first + depends.shape[1] + row), "dependencies": names}, kinds
