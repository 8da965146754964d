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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import numpy as np

from cosimo.core.arrays import BoolArray
from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.master import Master
from cosimo.core.system import Constant, System
from cosimo.core.unit import Unit
from cosimo.units.linear import Exact, ForwardEuler, LinearUnit, Mechanical, RungeKutta4, SymplecticEuler

__all__ = ["SuggestedExperiment", "export_ssp", "export_system", "export_unit"]

_INTEGRATORS = (Exact, ForwardEuler, RungeKutta4, SymplecticEuler)
_PLATFORMS = {"Linux": ("linux", ".so"), "Darwin": ("darwin", ".dylib")}
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
            f"binaries/{folder}/{description.identifier}{suffix}": _library(suffix),
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
            f"the compiled library 'cosimo/formats/_fmu/unit{suffix}' is missing; install cosimo again, with a C "
            f"compiler at hand."
        ) from None


def _platform(fmi: Fmi) -> tuple[str, str]:
    """The folder below `binaries/` and the suffix of libraries on this machine."""
    if platform.system() not in _PLATFORMS:
        raise ConfigurationError(
            f"FMUs can be exported on {' and '.join(_PLATFORMS)}, not on {platform.system()}, for which the compiled "
            f"library is not built."
        )
    system, suffix = _PLATFORMS[platform.system()]
    machine = platform.machine().replace("arm64", "aarch64")
    return (f"{system}64" if fmi == 2 else f"{machine}-{system}"), suffix


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
    part = path.with_name(path.name + ".part")
    try:
        try:
            part.write_bytes(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
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
    head = {**_NAMESPACES, "version": "1.0", "name": system.name, "generationTool": "cosimo"}
    root = ElementTree.Element("ssd:SystemStructureDescription", head)
    whole = ElementTree.SubElement(root, "ssd:System", {"name": system.name})
    varying = [target for target, source in system.inputs.items() if not isinstance(source, Constant)]
    _add_connectors(whole, dict.fromkeys(varying, "input"))
    elements = ElementTree.SubElement(whole, "ssd:Elements")
    for name, unit in system.units.items():
        attributes = {"name": name, "type": "application/x-fmu-sharedlibrary", "source": files[name]}
        component = ElementTree.SubElement(elements, "ssd:Component", attributes)
        _add_connectors(component, {**dict.fromkeys(unit.inputs, "input"), **dict.fromkeys(unit.outputs, "output")})
    _add_connections(whole, system, varying)
    ElementTree.SubElement(root, "ssd:DefaultExperiment", {"startTime": "0.0", "stopTime": repr(float(stop))})
    return to_bytes(root)


def _add_connectors(parent: ElementTree.Element, kinds: Mapping[str, str]) -> None:
    if not kinds:
        return
    connectors = ElementTree.SubElement(parent, "ssd:Connectors")
    for name, kind in kinds.items():
        connector = ElementTree.SubElement(connectors, "ssd:Connector", {"name": name, "kind": kind})
        ElementTree.SubElement(connector, "ssc:Real")


def _add_connections(whole: ElementTree.Element, system: System, varying: list[str]) -> None:
    if not system.links and not varying:
        return
    connections = ElementTree.SubElement(whole, "ssd:Connections")
    for link in system.links:
        source, target = system.units[link.source.unit], system.units[link.target.unit]
        attributes = {
            "startElement": link.source.unit,
            "startConnector": source.outputs[link.source.index],
            "endElement": link.target.unit,
            "endConnector": target.inputs[link.target.index],
        }
        connection = ElementTree.SubElement(connections, "ssd:Connection", attributes)
        if (link.connection.gain, link.connection.offset) != (1.0, 0.0):
            transformation = {
                "factor": repr(float(link.connection.gain)),
                "offset": repr(float(link.connection.offset)),
            }
            ElementTree.SubElement(connection, "ssc:LinearTransformation", transformation)
    for target_name in varying:
        variable = system.input(target_name)
        attributes = {
            "startConnector": target_name,
            "endElement": variable.unit,
            "endConnector": system.units[variable.unit].inputs[variable.index],
        }
        ElementTree.SubElement(connections, "ssd:Connection", attributes)


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
class ScalarVariable:
    """One variable; `state` is the value reference of the state that it is the derivative of."""

    name: str
    reference: int
    causality: Literal["input", "output", "local", "independent"]
    initial: Literal["exact", "calculated"] | None = None
    start: float | None = None
    state: int | None = None

    def attributes(self) -> dict[str, str]:
        """What both versions say about the variable itself, apart from its type."""
        initial = {} if self.initial is None else {"initial": self.initial}
        return {
            "name": self.name,
            "valueReference": str(self.reference),
            "causality": self.causality,
            "variability": "continuous",
            **initial,
        }


@dataclass(frozen=True)
class Description:
    """All that modelDescription.xml says of `unit`; `start` overrides the start values of inputs."""

    unit: LinearUnit
    name: str
    start: Mapping[str, float] = field(default_factory=dict)
    experiment: SuggestedExperiment = field(default_factory=SuggestedExperiment)

    @property
    def identifier(self) -> str:
        """The name as an identifier of C, which also names the library in the FMU."""
        return identifier(self.name)

    def input_start(self) -> list[float]:
        """The start value of every input."""
        unit = self.unit
        return [float(self.start.get(name, unit.start.get(name, 0.0))) for name in unit.inputs]

    def variables(self) -> list[ScalarVariable]:
        """In the order of their value references."""
        states = state_names(self.unit)
        n, known = len(states), len(states) + len(self.unit.inputs)
        rows = known + len(self.unit.outputs)
        initial, start = self.unit.initial_state, self.input_start()
        found = [
            *(ScalarVariable(s, i, "local", "exact", float(initial[i])) for i, s in enumerate(states)),
            *(ScalarVariable(s, n + i, "input", None, start[i]) for i, s in enumerate(self.unit.inputs)),
            *(ScalarVariable(s, known + i, "output", "calculated") for i, s in enumerate(self.unit.outputs)),
            *(ScalarVariable(f"der({s})", rows + i, "local", "calculated", state=i) for i, s in enumerate(states)),
            ScalarVariable("time", rows + n, "independent"),
        ]
        _check_names(self.name, found)
        return found

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


def write_model_description(description: Description, token: str, fmi: Fmi) -> bytes:
    """modelDescription.xml of that version."""
    root = _write_fmi2(description, token) if fmi == 2 else _write_fmi3(description, token)
    return to_bytes(root)


def to_bytes(root: ElementTree.Element) -> bytes:
    """The document as indented UTF-8."""
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def _check_names(unit: str, variables: Sequence[ScalarVariable]) -> None:
    seen: set[str] = set()
    for variable in variables:
        if not variable.name or not variable.name.isprintable():
            raise ConfigurationError(
                f"variable {variable.name!r} of unit '{unit}' cannot be exported; give it a printable name."
            )
        if variable.name in seen:
            raise ConfigurationError(
                f"unit '{unit}' has two variables called '{variable.name}' (input, output, state or time), and FMI "
                f"wants unique names; rename one."
            )
        seen.add(variable.name)


def _head(description: Description, version: str) -> dict[str, str]:
    return {
        "fmiVersion": version,
        "modelName": description.name,
        "generationTool": "cosimo",
        "variableNamingConvention": "flat",
    }


def _finish_head(root: ElementTree.Element, description: Description, able: Sequence[str]) -> None:
    """Add what the unit is `able` to do, the categories of its log, and the experiment it was made for."""
    flags = {"modelIdentifier": description.identifier, "maxOutputDerivativeOrder": "0"} | dict.fromkeys(able, "true")
    ElementTree.SubElement(root, "CoSimulation", flags)
    ElementTree.SubElement(
        ElementTree.SubElement(root, "LogCategories"),
        "Category",
        {"name": "logStatusError", "description": "Why a call was refused"},
    )
    if attributes := description.experiment.attributes():
        ElementTree.SubElement(root, "DefaultExperiment", attributes)


def _write_fmi2(description: Description, token: str) -> ElementTree.Element:
    root = ElementTree.Element("fmiModelDescription", _head(description, "2.0") | {"guid": token})
    able = (
        "canHandleVariableCommunicationStepSize",
        "canInterpolateInputs",
        "canGetAndSetFMUstate",
        "canSerializeFMUstate",
        "providesDirectionalDerivative",
    )
    _finish_head(root, description, able)
    listed = ElementTree.SubElement(root, "ModelVariables")
    # FMI 2.0 needs no variable for time; indices count from 1 in the order of the value references.
    for variable in description.variables()[:-1]:
        item = ElementTree.SubElement(listed, "ScalarVariable", variable.attributes())
        start = {} if variable.start is None else {"start": repr(variable.start)}
        state = {} if variable.state is None else {"derivative": str(variable.state + 1)}
        ElementTree.SubElement(item, "Real", start | state)
    structure = ElementTree.SubElement(root, "ModelStructure")
    unknowns = list(_unknowns(description, first=1))
    outputs = len(description.unit.outputs)
    for group, members in (("Outputs", unknowns[:outputs]), ("Derivatives", unknowns[outputs:])):
        _add_group(structure, group, [{"index": index, **_dependent(on)} for index, on in members])
    initial = [{"index": index, "dependencies": " ".join(on)} for index, on in unknowns]
    _add_group(structure, "InitialUnknowns", initial)
    return root


def _add_group(structure: ElementTree.Element, group: str, members: list[dict[str, str]]) -> None:
    if members:
        parent = ElementTree.SubElement(structure, group)
        for attributes in members:
            ElementTree.SubElement(parent, "Unknown", attributes)


def _write_fmi3(description: Description, token: str) -> ElementTree.Element:
    root = ElementTree.Element("fmiModelDescription", _head(description, "3.0") | {"instantiationToken": token})
    able = (
        "canHandleVariableCommunicationStepSize",
        "canGetAndSetFMUState",
        "canSerializeFMUState",
        "providesDirectionalDerivatives",
        "providesAdjointDerivatives",
    )
    _finish_head(root, description, able)
    listed = ElementTree.SubElement(root, "ModelVariables")
    for variable in description.variables():
        start = {} if variable.start is None else {"start": repr(variable.start)}
        state = {} if variable.state is None else {"derivative": str(variable.state)}
        ElementTree.SubElement(listed, "Float64", variable.attributes() | start | state)
    structure = ElementTree.SubElement(root, "ModelStructure")
    unknowns = list(_unknowns(description, first=0))
    outputs = len(description.unit.outputs)
    for place, (reference, on) in enumerate(unknowns):
        kind = "Output" if place < outputs else "ContinuousStateDerivative"
        ElementTree.SubElement(structure, kind, {"valueReference": reference, **_dependent(on)})
    for reference, on in unknowns:
        attributes = {"valueReference": reference, "dependencies": " ".join(on)}
        ElementTree.SubElement(structure, "InitialUnknown", attributes)
    return root


def _unknowns(description: Description, first: int) -> Iterator[tuple[str, list[str]]]:
    """Each output, then each derivative, with what it depends on; variables are counted from `first`."""
    depends = description.depends()
    for row, on in enumerate(depends):
        yield str(first + depends.shape[1] + row), [str(first + column) for column in np.flatnonzero(on)]


def _dependent(on: list[str]) -> dict[str, str]:
    # "constant": the dependence is linear with a factor that never changes.
    return {"dependencies": " ".join(on), "dependenciesKind": " ".join(["constant"] * len(on))}
