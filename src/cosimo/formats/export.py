"""Linear units and systems of them as FMUs and SSP packages that any tool can run.

All FMUs hold the same compiled library (`src/fmu`); the unit itself is a small file of matrices in `resources/`. The
same unit gives the same bytes, token included.
"""

from __future__ import annotations

import hashlib
import io
import platform
import struct
import uuid
import zipfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.master import Master
from cosimo.core.system import Constant, System
from cosimo.core.unit import Unit
from cosimo.formats.model_description import (
    Description,
    Experiment,
    Fmi,
    identifier,
    to_bytes,
    write_model_description,
)
from cosimo.units.linear import Exact, ForwardEuler, LinearUnit, RungeKutta4, SymplecticEuler

__all__ = ["Experiment", "export_ssp", "export_system", "export_unit"]

_INTEGRATORS = (Exact, ForwardEuler, RungeKutta4, SymplecticEuler)
_PLATFORMS = {"Linux": ("linux", ".so"), "Darwin": ("darwin", ".dylib")}
_NAMESPACES = {
    "xmlns:ssd": "http://ssp-standard.org/SSP1/SystemStructureDescription",
    "xmlns:ssc": "http://ssp-standard.org/SSP1/SystemStructureCommon",
}


def export_unit(unit: Unit, path: str | Path, *, name: str, fmi: Fmi, experiment: Experiment | None = None) -> Path:
    """Write a state-space or mechanical unit as an FMU for co-simulation, of version 2.0 or 3.0.

    States are local variables x1, … (q1, …, v1, … for a mechanical unit) that can be set until initialisation ends.
    """
    return _write(Path(path), _pack(_describe(unit, name, {}, experiment or Experiment()), fmi))


def export_system(
    system: System,
    folder: str | Path,
    *,
    fmi: Fmi,
    master: Master | None = None,
    experiment: Experiment | None = None,
) -> dict[str, Path]:
    """Write one FMU per unit into `folder` and return where each is; all suggest `experiment` or the step of `master`.

    External inputs become start values: constants for good, others with their value at t = 0.
    """
    folder = Path(folder)
    suggested = experiment or Experiment(step=None if master is None else master.step)
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
    packed = _pack_units(system, fmi, Experiment(step, stop))
    files = {name: f"resources/{file}" for name, (file, _) in packed.items()}
    entries = {"SystemStructure.ssd": _structure(system, files, stop)}
    entries |= {files[name]: content for name, (_, content) in packed.items()}
    return _write(Path(path), _archive(entries))


# ---- one FMU -----------------------------------------------------------------------------------------------------


def _describe(unit: Unit, name: str, start: Mapping[str, float], experiment: Experiment) -> Description:
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


def _pack_units(system: System, fmi: Fmi, experiment: Experiment) -> dict[str, tuple[str, bytes]]:
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
