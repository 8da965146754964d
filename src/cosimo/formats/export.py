"""Linear units as FMUs, and systems of FMUs and linear units as SSP packages or as one FMU, for any tool.

FMUs of units hold the same compiled library (`src/fmu`); the unit itself is a small file of matrices in `resources/`.
FMUs of whole couplings hold another one (`src/coupling`), the recorded program of the kernel, and the FMUs inside. The
same unit or coupling gives the same bytes, token included.
"""

from __future__ import annotations

import copy
import hashlib
import io
import json
import re
import struct
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import BoolArray
from cosimo.core.errors import ConfigurationError, FileFindings, OutputError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.result import TARGET
from cosimo.core.storage import file_digest, replacing
from cosimo.core.system import Constant, Source, System, Table, Variable, matches
from cosimo.core.unit import BASE, Unit, UnitOfMeasure
from cosimo.couplings import Hold
from cosimo.execution.live import Live
from cosimo.execution.lowering import ADAPTERS, RecordedLowering
from cosimo.formats.scenario import Scenario
from cosimo.formats.ssp import ssp_type
from cosimo.formats.ssp_files import ArchiveFiles, main_structure
from cosimo.formats.ssp_structure import ANNOTATION
from cosimo.masters import MasterOptions
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi import first_trials
from cosimo.units.fmi.archive import library_platforms, listing, open_archive
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.model_exchange import CVODE, sundials
from cosimo.units.fmi.variables import VariableInfo
from cosimo.units.linear import Exact, ForwardEuler, LinearUnit, Mechanical, RungeKutta4, SymplecticEuler

__all__ = ["SuggestedExperiment", "export_coupling", "export_ssp", "export_system", "export_unit"]

_INTEGRATORS = (Exact, ForwardEuler, RungeKutta4, SymplecticEuler)
_ENDS = ("input", "output")
_NAMESPACES = {
    "xmlns:ssd": "http://ssp-standard.org/SSP1/SystemStructureDescription",
    "xmlns:ssc": "http://ssp-standard.org/SSP1/SystemStructureCommon",
    "xmlns:ssv": "http://ssp-standard.org/SSP1/SystemStructureParameterValues",
}


def export_unit(
    unit: Unit,
    path: str | Path,
    *,
    name: str,
    fmi: Fmi,
    experiment: SuggestedExperiment | None = None,
    start: Mapping[str, float] | None = None,
) -> Path:
    """Write a state-space or mechanical unit as an FMU for co-simulation, of version 2.0 or 3.0.

    States are local variables x1, … (q1, …, v1, … for a mechanical unit) that can be set until initialisation ends.
    `start` are values of inputs, in place of the unit's own.
    """
    return _write(Path(path), _pack(_describe(unit, name, start or {}, experiment or SuggestedExperiment()), fmi))


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
    for file, _ in packed.values():
        require_other(folder / file, system)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create the folder '{folder}': {error.strerror}.") from None
    return {name: _write(folder / file, content) for name, (file, content) in packed.items()}


def export_ssp(system: System | Scenario, path: str | Path, *, fmi: Fmi, step: float, stop: float) -> Path:
    """Write a system as an SSP package: SystemStructure.ssd, and one FMU per unit in `resources/`.

    FMUs are packed as they are, with their values; of linear units new FMUs are written, which suggest the `step`. SSP
    has no place for a step, a master and inputs over time: they stand in an annotation of the system, which other tools
    ignore and `load` reads back. External inputs that vary become inputs of the whole system, which start with their
    value at t = 0; constant ones become start values.
    """
    scenario = system if isinstance(system, Scenario) else Scenario.of(system, step=step, stop=stop)
    if not 0 < step <= stop:
        raise ConfigurationError(f"the step ({step:g}) must be positive and at most the stop time ({stop:g}).")
    require_other(Path(path), scenario.system, scenario.source)
    packed = _pack_units(scenario.system, fmi, SuggestedExperiment(step, stop, scenario.start))
    files = {name: f"resources/{file}" for name, (file, _) in packed.items()}
    tables = {
        target: (f"resources/input{number}.csv", source)
        for number, (target, source) in enumerate(scenario.system.inputs.items(), start=1)
        if isinstance(source, Table)
    }
    own = _annotation(scenario, files, {target: file for target, (file, _) in tables.items()})
    entries = {"SystemStructure.ssd": _structure(scenario, files, stop, own)}
    entries |= {files[name]: content for name, (_, content) in packed.items()}
    entries |= {file: _rows(source) for file, source in tables.values()}
    return _write(Path(path), _archive(entries))


def export_coupling(
    system: System | Scenario,
    path: str | Path,
    *,
    master: Master | None = None,
    connectors: Sequence[str] | None = None,
    fmi: Fmi = 2,
) -> Path:
    """Write a whole coupling, its master included, as one FMU for co-simulation that needs no Python.

    It makes the macro steps of `master` (of the scenario, unless given) with the same bits as a run. `connectors` are
    patterns such as `"truck.*"`: open inputs become inputs, outputs and local variables outputs, parameters of FMUs
    parameters. By default it has all outputs, and the open inputs that no table feeds. The FMUs are instantiated and
    initialised here once. Python units are refused, and so are FMUs with event mode or early returns.
    """
    if fmi not in (2, 3):
        raise ConfigurationError(f"FMUs can be written for FMI 2 or 3, not {fmi}.")
    scenario = system if isinstance(system, Scenario) else Scenario.of(system)
    if Path(path).suffix.lower() != ".fmu":
        raise ConfigurationError(f"'{path}' does not end in '.fmu', as the file of an FMU does; give another name.")
    require_other(Path(path), scenario.system, scenario.source)
    chosen = scenario.master if master is None else master
    content = _pack_coupling(scenario, chosen, _choose(scenario.system, connectors), fmi)
    return _write(Path(path), content)


# ---- one FMU -----------------------------------------------------------------------------------------------------


def _describe(unit: Unit, name: str, start: Mapping[str, float], experiment: SuggestedExperiment) -> ModelDescription:
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
    return ModelDescription(unit, name, start, experiment)


def _pack(description: ModelDescription, fmi: Fmi) -> bytes:
    if fmi not in (2, 3):
        raise ConfigurationError(f"FMUs can be written for FMI 2 or 3, not {fmi}.")
    blank = _matrices(description, "") + write_model_description(description, "", fmi)
    token = f"{{{uuid.UUID(bytes=hashlib.sha256(blank).digest()[:16])}}}"
    stem = identifier(description.name)
    return _archive(
        {
            "modelDescription.xml": write_model_description(description, token, fmi),
            **{f"binaries/{folder}/{stem}{suffix}": library for folder, suffix, library in _libraries("unit", fmi)},
            "resources/unit.bin": _matrices(description, token),
        }
    )


def _matrices(description: ModelDescription, token: str) -> bytes:
    """resources/unit.bin, as `src/fmu/description.h` lays it out."""
    unit, model = description.unit, description.unit.linear()
    sizes = (len(unit.initial_state), len(unit.inputs), len(unit.outputs))
    kind = _INTEGRATORS.index(type(unit.integrator))
    head = struct.pack("<8s64s6I", b"cosimo-1", token.encode(), kind, unit.micro_steps, *sizes, 0)
    numbers = (model.A, model.B, model.C, model.D, unit.initial_state, np.array(description.input_start()))
    return head + b"".join(np.ascontiguousarray(part, dtype="<f8").tobytes() for part in numbers)


def _libraries(stem: str, fmi: Fmi, inside: Iterable[Fmu] = ()) -> list[tuple[str, str, bytes]]:
    """The folder below `binaries/`, the suffix and the content of every compiled library that was installed.

    A wheel has those of Linux, Windows and macOS; what is built from source has the one of this machine. Of a coupling
    those are taken that all FMUs `inside` have a library for.
    """
    place = resources.files("cosimo.formats").joinpath("_fmu")
    files = sorted(place.iterdir(), key=lambda file: file.name) if place.is_dir() else []
    files = [file for file in files if file.name.partition(".")[0] == stem]
    found = []
    for file in files:
        content = file.read_bytes()
        folders = tuple(one for one in library_platforms(content) if all(one in unit.libraries() for unit in inside))
        if fmi == 2:  # where the system is named only
            systems = dict.fromkeys(folder.partition("-")[2] for folder in folders)
            folders = tuple(f"{'win' if system == 'windows' else system}64" for system in systems)
        found += [(folder, Path(file.name).suffix, content) for folder in folders]
    if not found:
        raise ConfigurationError(
            f"the compiled library 'cosimo/formats/_fmu/{stem}' is missing; reinstall cosimo with a compiler available."
        )
    return found


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


def require_other(path: Path, system: System, source: Path | None = None) -> None:
    """Refuse to write over what is exported."""
    for one in (source, *(unit.path for unit in system.units.values())):
        if one is not None and path.exists() and one.exists() and path.samefile(one):
            raise ConfigurationError(f"'{path}' is part of what is exported; give another file to write to.")


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
        packed[name] = (f"{stem}.fmu", _content(unit, name, system, fmi, experiment))
    return packed


def _content(unit: Unit, name: str, system: System, fmi: Fmi, experiment: SuggestedExperiment) -> bytes:
    """The FMU of a unit: the file itself, or one that is written."""
    if isinstance(unit, Fmu):
        return unit.path.read_bytes()
    return _pack(_describe(unit, name, held_inputs(system, name), experiment), fmi)


def held_inputs(system: System, name: str) -> dict[str, float]:
    """The external inputs of a unit at t = 0."""
    unit = system.units[name]
    return {unit.inputs[i]: float(source(0.0)) for i, source in system.external(name).items()}


def _structure(scenario: Scenario, files: Mapping[str, str], stop: float, own: Mapping[str, Any]) -> bytes:
    """SystemStructure.ssd: the connectors of the system, its components, the connections between them."""
    system = scenario.system
    varying = [target for target, source in system.inputs.items() if not isinstance(source, Constant)]
    components = [_component(system, name, file) for name, file in files.items()]
    inside = [*_connectors(dict.fromkeys(varying, ("input", "Real"))), _node("ssd:Elements", children=components)]
    inside += _group("ssd:Connections", _connections(system, varying))
    inside.append(_node("ssd:Annotations", children=[_node("ssc:Annotation", {"type": ANNOTATION}, [_said(own)])]))
    times = {"startTime": repr(float(scenario.start)), "stopTime": repr(float(stop))}
    # SSP 2.0 is what knows FMI 3.0; all that is written here has the same form in both.
    newer = any(isinstance(unit, Fmu) and unit.fmi_version.startswith("3") for unit in system.units.values())
    head = {"version": "2.0" if newer else "1.0", "name": system.name, "generationTool": "cosimo"}
    whole = _node("ssd:System", {"name": system.name}, inside)
    return _document(
        _node("ssd:SystemStructureDescription", {**_NAMESPACES, **head}, [whole, _node("ssd:DefaultExperiment", times)])
    )


def _component(system: System, name: str, file: str) -> Node:
    unit, head = system.units[name], {"name": name, "type": "application/x-fmu-sharedlibrary", "source": file}
    if not isinstance(unit, Fmu):
        kinds = {**dict.fromkeys(unit.inputs, ("input", "Real")), **dict.fromkeys(unit.outputs, ("output", "Real"))}
        return _node("ssd:Component", head, _connectors(kinds))
    texts = (unit.variables[name] for name in (*unit.text_inputs, *unit.text_outputs))
    infos = {info.name: info for info in (*unit.input_infos, *unit.output_infos, *texts)}
    kinds = {name: (info.causality, ssp_type(info)) for name, info in infos.items() if info.causality in _ENDS}
    kinds |= dict.fromkeys(unit.clock_inputs, ("input", "Clock")) | dict.fromkeys(
        unit.clock_outputs, ("output", "Clock")
    )
    head["implementation"] = "CoSimulation" if unit.solver is None else "ModelExchange"
    return _node(
        "ssd:Component", head, [*_connectors(kinds), *_values(unit, {**unit.given, **held_inputs(system, name)})]
    )


def _values(unit: Fmu, given: Mapping[str, Any]) -> list[Node]:
    """The values of an FMU as a parameter set."""
    parameters = []
    for name, value in given.items():
        kind = {"Enumeration": "Integer"}.get(ssp_type(unit.variables[name]), ssp_type(unit.variables[name]))
        value = float(value) if kind == "Real" else value
        text = value.hex() if isinstance(value, bytes) else str(value)
        content = _node(f"ssv:{kind}", {"value": text.lower() if isinstance(value, bool) else text})
        parameters.append(_node("ssv:Parameter", {"name": name}, [content]))
    if not parameters:
        return []
    values = _node("ssv:ParameterSet", {"version": "1.0", "name": "values"}, _group("ssv:Parameters", parameters))
    binding = _node("ssd:ParameterBinding", children=[_node("ssd:ParameterValues", children=[values])])
    return [_node("ssd:ParameterBindings", children=[binding])]


def _annotation(scenario: Scenario, files: Mapping[str, str], tables: Mapping[str, str]) -> dict[str, Any]:
    """What SSP has no place for, by the keys of a scenario file."""
    inputs: dict[str, Any] = {
        target: source.value for target, source in scenario.system.inputs.items() if isinstance(source, Constant)
    }
    for target, file in tables.items():
        table = scenario.system.inputs[target]
        assert isinstance(table, Table)
        inputs[target] = {"csv": file, "column": "value", "interpolation": table.interpolation}
    found: dict[str, Any] = {
        "units": {name: {"fmu": file, **_how(scenario.system.units[name])} for name, file in files.items()},
        "inputs": inputs,
        "power-pairs": [list(pair) for pair in scenario.power_pairs],
        "step-size": scenario.step,
        "target-error": scenario.target if scenario.target != TARGET else None,
        "outputs": None if scenario.outputs is None else list(scenario.outputs),
    }
    if "options" in scenario.specified or scenario.options != MasterOptions():
        words = {key.replace("_", "-"): value for key, value in asdict(scenario.options).items()}
        found["master"] = {key: value for key, value in words.items() if value not in (None, (), [], {})}
    return {key: value for key, value in found.items() if value not in (None, [], {})}


def _how(unit: Unit) -> dict[str, Any]:
    """How an FMU is run, where that is not the usual way."""
    if not isinstance(unit, Fmu):
        return {}
    options, apart = unit.options, unit.isolation
    found: dict[str, Any] = {
        "kind": options.kind,
        "exact-difference": options.exact_difference or None,
        "logging": options.logging or None,
        "compile": options.compile or None,
        "validate": False if options.validate is False else None,
        "isolate": True if apart is not None else None if unit.trial is not None else False,
    }
    if options.solver is not None:
        found |= {key.replace("_", "-").replace("name", "solver"): v for key, v in asdict(options.solver).items()}
    if apart is not None:
        found |= {"timeout": apart.timeout, "memory": apart.memory, "sandbox": apart.sandbox or None}
    return {key: value for key, value in found.items() if value is not None}


def _said(own: Mapping[str, Any]) -> Node:
    node = _node("scenario", {"xmlns": f"urn:{ANNOTATION}"})
    node.text = json.dumps(own, ensure_ascii=False, indent=1)
    return node


def _rows(table: Table) -> bytes:
    rows = zip(table.times.tolist(), table.values.tolist(), strict=True)
    return "".join(["time,value\n", *(f"{time!r},{value!r}\n" for time, value in rows)]).encode()


def _connectors(kinds: Mapping[str, tuple[str, str]]) -> list[Node]:
    """Connectors by name, each with its kind and type; an enumeration would have to be defined to be named."""
    return _group(
        "ssd:Connectors",
        [
            _node("ssd:Connector", {"name": name, "kind": kind}, [_node(f"ssc:{of}")] if of != "Enumeration" else [])
            for name, (kind, of) in kinds.items()
        ],
    )


def _connections(system: System, varying: Sequence[str]) -> Iterator[Node]:
    for link in system.links:
        connection, output = link.connection, system.units[link.source.unit].outputs[link.source.index]
        ends = {"startElement": link.source.unit, "startConnector": output} | _end(system, link.target)
        transformation = {"factor": repr(float(connection.gain)), "offset": repr(float(connection.offset))}
        inside = [] if connection.identity else [_node("ssc:LinearTransformation", transformation)]
        # Gain and offset have the conversion of physical units in them.
        if isinstance(system.units[link.source.unit], Fmu) and isinstance(system.units[link.target.unit], Fmu):
            ends["suppressUnitConversion"] = "true"
        yield _node("ssd:Connection", ends, inside)
    for (giver, output), (taker, variable) in (*system.text_links, *system.clock_links):
        ends = {"startElement": giver, "startConnector": output, "endElement": taker, "endConnector": variable}
        yield _node("ssd:Connection", ends)
    for name in varying:
        yield _node("ssd:Connection", {"startConnector": name} | _end(system, system.input(name)))


def _end(system: System, target: Variable) -> dict[str, str]:
    return {"endElement": target.unit, "endConnector": system.units[target.unit].inputs[target.index]}


# ---- a coupling as one FMU -------------------------------------------------------------------------------------------
# Value references count through [inputs, outputs, parameters, time]. Outputs are those of the last exchange: setting an
# input changes none before the next step, so that none depends on an input, except in initialisation mode.


@dataclass(frozen=True)
class _Connectors:
    """What a coupling shows, and the system with the inputs as external ones and the further outputs."""

    system: System
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: tuple[str, ...]


def _choose(system: System, patterns: Sequence[str] | None) -> _Connectors:
    """What each pattern means: open inputs, outputs, parameters of FMUs, or else local variables."""
    inlets = [inlet for name in system.units for inlet in system.inlets[name] if inlet.link is None]
    if patterns is None:
        inputs = tuple(one.target for one in inlets if one.source is None or isinstance(one.source, Constant))
        return _Connectors(_opened(system, inputs), inputs, system.outputs, ())
    parameters = tuple(
        f"{name}.{variable}"
        for name, unit in system.units.items()
        if isinstance(unit, Fmu)
        for variable, info in unit.variables.items()
        if variable in unit.parameter_names and info.causality == "parameter" and info.numeric and not info.alias
    )
    kinds = ([one.target for one in inlets], system.outputs, parameters)
    texts = {name for name, info in _infos(system).items() if not info.numeric}
    for pattern in patterns:
        known = dict.fromkeys([*system.input_names, *system.outputs, *parameters, *system.observable])
        if pattern in texts:
            raise ConfigurationError(f"{pattern} is a text, and the FMU of a coupling has numbers only; leave it out.")
        if not any(matches(name, pattern) for name in known):
            raise UnknownNameError("connector", pattern, known)
        if pattern in system.input_names and pattern not in kinds[0]:
            system.parameter(pattern)  # says what feeds it
    found = [tuple(n for n in names if any(matches(n, pattern) for pattern in patterns)) for names in kinds]
    local = [pattern for pattern in patterns if not any(matches(n, pattern) for n in (*found[0], *found[1], *found[2]))]
    observed = system.observing(local)
    added = tuple(n for n in observed.outputs if n not in system.outputs and any(matches(n, one) for one in local))
    return _Connectors(_opened(observed, found[0]), found[0], (*found[1], *added), found[2])


def _opened(system: System, inputs: Sequence[str]) -> System:
    """The system with `inputs` from outside: each is fed, at first by what it would be without."""
    start: dict[str, Source] = {
        inlet.target: inlet.source or Constant(inlet.start)
        for name in system.units
        for inlet in system.inlets[name]
        if inlet.target in inputs
    }
    if system.text_links:
        giver, output = system.text_links[0].source
        raise ConfigurationError(
            f"{giver}.{output} is a text, and the FMU of a coupling passes on numbers only; leave its connection out."
        )
    units = dict(system.units)
    for name, unit in units.items():
        if unit.text_outputs:
            units[name] = mute = copy.copy(unit)
            mute.text_outputs = {}  # nobody asks for them
    return System(units, system.connections, inputs={**system.inputs, **start}, name=system.name)


def _pack_coupling(scenario: Scenario, master: Master, shown: _Connectors, fmi: Fmi) -> bytes:
    """The FMU of a coupling; its units are instantiated and initialised for it."""
    system = shown.system
    # Whoever runs the FMU gives one value per step: it is held.
    master = replace(master, couplings={**master.couplings, **dict.fromkeys(shown.inputs, Hold(0))})
    folders, files = _inside(system)
    with first_trials(system.units, scenario.start, master.durations):
        live = Live(system, master, scenario.start)
        try:
            if live.joints:
                raise ConfigurationError(
                    f"the inputs of unit '{live.joints[0].unit}' are predicted by a model that is learned in the run, "
                    "which an FMU does not do yet; choose another coupling."
                )
            live.initialise()
            start = [live.sample(target, system.inputs[target], scenario.start) for target in shown.inputs]
            lowering = RecordedLowering(live, folders, {name: place for place, name in enumerate(shown.inputs)})
            variables = _record_variables(lowering, shown, start)
        finally:
            live.close()
    able = {"restore": all(unit.can_restore for unit in system.units.values())}
    able["serialise"] = able["restore"] and all(
        unit.can_serialise for unit in system.units.values() if isinstance(unit, Fmu)
    )
    if able["restore"]:
        lowering.program.can_restore()
    files |= {f"extra/cosimo/{name}": content for name, content in _said_of(scenario, master).items()}
    recorded = bytes(lowering.program.bytes)
    told = _Coupled(system, variables, able, SuggestedExperiment(master.step, scenario.stop, scenario.start))
    digest = hashlib.sha256(recorded + told.describe("", fmi))
    for name, content in sorted(files.items()):
        digest.update(name.encode() + hashlib.sha256(content).digest())
    token = f"{{{uuid.UUID(bytes=digest.digest()[:16])}}}"
    stem, fmus = identifier(system.name), [unit for unit in system.units.values() if isinstance(unit, Fmu)]
    return _archive(
        {
            "modelDescription.xml": told.describe(token, fmi),
            **{f"binaries/{folder}/{stem}{end}": library for folder, end, library in _libraries("coupling", fmi, fmus)},
            "resources/coupling.bin": b"cosimo-coupling-1\n" + struct.pack("64s", token.encode()) + recorded,
            **files,
        }
    )


def _inside(system: System) -> tuple[dict[str, str], dict[str, bytes]]:
    """The folder of each FMU in `resources/`, and the files there: one folder for a file, however many units it is."""
    folders: dict[str, str] = {}
    files: dict[str, bytes] = {}
    known: dict[str, str] = {}
    for name, unit in system.units.items():
        if not isinstance(unit, Fmu):
            continue
        if unit.options.compile and unit.library() not in listing(unit.path, unit.options.limits).names:
            raise ConfigurationError(
                f"unit '{name}' has only sources, which were compiled for this run; build an FMU with a library of it."
            )
        digest = file_digest(unit.path)
        if digest in known and unit.single_instance:
            raise ConfigurationError(
                f"unit '{name}' is an FMU that allows one instance per process, and another unit is one of it; an FMU "
                "is one process."
            )
        folders[name] = known.setdefault(digest, f"units/{len(known) + 1}")
        files |= {f"resources/{folders[name]}/{file}": content for file, content in _needed(unit)}
        adapter = unit.adapter
        if adapter is not None:
            solver = unit.solver is not None and unit.solver.name == CVODE
            for library in (adapter.path, *(sundials() if solver else ())):
                files[f"resources/{ADAPTERS}/{library.name}"] = library.read_bytes()
    return folders, files


def _needed(unit: Fmu) -> Iterator[tuple[str, bytes]]:
    """What an FMU needs to run: its description, its resources, the folders of its libraries."""
    folders = {f"{library.rpartition('/')[0]}/" for library in unit.libraries().values()}
    with open_archive(unit.path, unit.options.limits) as archive:
        for member in archive.infolist():
            if not member.is_dir() and member.filename.startswith(("modelDescription.xml", "resources/", *folders)):
                yield member.filename, archive.read(member)


def _record_variables(lowering: RecordedLowering, shown: _Connectors, start: Sequence[float]) -> list[_Shown]:
    """Record what each value reference means; and what is said of it."""
    found, system, program = [], shown.system, lowering.program
    infos = _infos(system)
    for name, value in zip(shown.inputs, start, strict=True):
        program.input(name, value)
        found.append(_Shown(name, "input", infos.get(name), value))
    places = {name: place for place, name in enumerate(system.outputs)}
    for name in shown.outputs:
        program.output(places[name])
        found.append(_Shown(name, "output", infos.get(name)))
    for name in shown.parameters:
        owner, variable = system.parameter(name)
        unit = system.units[owner]
        assert isinstance(unit, Fmu)
        found.append(_Shown(name, "parameter", infos.get(name), lowering.parameter(name, owner, unit, variable)))
    return found


def _infos(system: System) -> dict[str, VariableInfo]:
    """What the FMUs inside say of their variables."""
    fmus = {name: unit for name, unit in system.units.items() if isinstance(unit, Fmu)}
    return {f"{name}.{variable}": info for name, unit in fmus.items() for variable, info in unit.variables.items()}


def _said_of(scenario: Scenario, master: Master) -> dict[str, bytes]:
    """The scenario and the verdict of the coupling, for who opens the FMU."""
    source = scenario.source
    words = {key: value for key, value in asdict(scenario.options).items() if value not in (None, (), [], {})}
    told = {"system": scenario.system.name, "step_size": master.step, "master": master.name, "options": words}
    told["values"] = {
        f"{name}.{variable}": value.hex() if isinstance(value, bytes) else value
        for name, unit in scenario.system.units.items()
        for variable, value in {
            **(unit.given if isinstance(unit, Fmu) else {}),
            **held_inputs(scenario.system, name),
        }.items()
    }
    verdict = scenario.known_verdict(master)
    found = {"coupling.json": told, "verdict.json": None if verdict is None else verdict.brief()}
    files = {name: json.dumps(said, ensure_ascii=False, indent=1).encode() for name, said in found.items() if said}
    if source is not None and source.suffix in (".toml", ".ssd", ".xml"):
        files[f"scenario{source.suffix}"] = source.read_bytes()
    elif source is not None and source.suffix == ".ssp":
        package = ArchiveFiles(source, ArchiveLimits.from_environment())
        try:
            files["scenario.ssd"] = package.read(main_structure(package, FileFindings()))
        finally:
            package.discard()
    return files


@dataclass(frozen=True)
class _Shown:
    """A variable of a coupling; outputs have no start value."""

    name: str
    causality: str
    info: VariableInfo | None = None
    start: float | None = None

    def attributes(self, reference: int, measures: _Measures) -> tuple[dict[str, str], dict[str, str]]:
        """What is said of it, and of its value."""
        head = {"name": self.name, "valueReference": str(reference), "causality": self.causality}
        if self.info is not None and self.info.description:
            head["description"] = self.info.description
        head["variability"] = "fixed" if self.causality == "parameter" else "continuous"
        if self.causality != "input":
            head["initial"] = "calculated" if self.start is None else "exact"
        value = {} if self.start is None else {"start": repr(float(self.start))}
        if self.info is not None:
            limits = {"min": self.info.minimum, "max": self.info.maximum}
            value |= {name: repr(float(limit)) for name, limit in limits.items() if limit is not None}
            value |= measures.attributes(self.info.unit)
        return head, value


class _Measures:
    """The physical units of a coupling by name; those of one name that differ get names of their own."""

    def __init__(self) -> None:
        self.named: dict[str, UnitOfMeasure] = {}

    def attributes(self, measure: UnitOfMeasure | None) -> dict[str, str]:
        """What a variable with this physical unit says of it."""
        if measure is None:
            return {}
        name, number = measure.name, 2
        while name in self.named and self.named[name] != measure:
            if self.named[name].relative == measure:  # a difference of such values
                return {"unit": name, "relativeQuantity": "true"}
            name, number = f"{measure.name} ({number})", number + 1
        self.named[name] = measure
        return {"unit": name}

    def definitions(self) -> list[Node]:
        """For modelDescription.xml, the same in both versions."""
        units = []
        for name, one in self.named.items():
            exponents = zip(BASE, one.exponents or (), strict=False)
            base = {letter: str(exponent) for letter, exponent in exponents if exponent}
            scaling = {"factor": (one.factor, 1.0), "offset": (one.offset, 0.0)}
            base |= {word: repr(value) for word, (value, usual) in scaling.items() if value != usual}
            units.append(_node("Unit", {"name": name}, [_node("BaseUnit", base)] if one.exponents is not None else []))
        return _group("UnitDefinitions", units)


@dataclass(frozen=True)
class _Coupled:
    """All that modelDescription.xml says of a coupling."""

    system: System
    variables: Sequence[_Shown]
    able: Mapping[str, bool]
    experiment: SuggestedExperiment

    def describe(self, token: str, fmi: Fmi) -> bytes:
        """modelDescription.xml of that version."""
        names = [one.name for one in self.variables]
        _check_names(f"coupling '{self.system.name}'", names)
        state = "FMUstate" if fmi == 2 else "FMUState"
        flags = {"modelIdentifier": identifier(self.system.name), "canHandleVariableCommunicationStepSize": "true"}
        flags |= {f"canGetAndSet{state}": "true"} if self.able["restore"] else {}
        flags |= {f"canSerialize{state}": "true"} if self.able["serialise"] else {}
        if any(isinstance(unit, Fmu) and unit.single_instance for unit in self.system.units.values()):
            flags["canBeInstantiatedOnlyOncePerProcess"] = "true"
        measures = _Measures()
        rows = [one.attributes(reference, measures) for reference, one in enumerate(self.variables)]
        outputs = [place for place, one in enumerate(self.variables) if one.causality == "output"]
        if fmi == 2:
            listed = [_node("ScalarVariable", head, [_node("Real", value)]) for head, value in rows]
            known = [_node("Unknown", {"index": str(place + 1), "dependencies": ""}) for place in outputs]
            initial = [_node("Unknown", {"index": str(place + 1)}) for place in outputs]
            structure = [*_group("Outputs", known), *_group("InitialUnknowns", initial)]
        else:
            flags["fixedInternalStepSize"] = repr(float(self.experiment.step or 0.0))
            time = {"name": "time", "valueReference": str(len(rows)), "causality": "independent"}
            listed = [
                _node("Float64", head | value) for head, value in [*rows, (time | {"variability": "continuous"}, {})]
            ]
            structure = [_node("Output", {"valueReference": str(place), "dependencies": ""}) for place in outputs]
            structure += [_node("InitialUnknown", {"valueReference": str(place)}) for place in outputs]
        parts = [_node("ModelVariables", children=listed), _node("ModelStructure", children=structure)]
        told: dict[str, Any] = {"categories": SAID, "definitions": measures.definitions()}
        return _model_description(self.system.name, token, fmi, flags, self.experiment, parts, **told)


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
    """The step, and the stop and start time, that an FMU suggests to who runs it."""

    step: float | None = None
    stop: float | None = None
    start: float = 0.0

    def attributes(self) -> dict[str, str]:
        """As both versions write them; empty when there is nothing to suggest."""
        given = {"startTime": self.start, "stopTime": self.stop, "stepSize": self.step}
        known = {name: repr(float(value)) for name, value in given.items() if value is not None}
        return known if self != SuggestedExperiment() else {}


@dataclass(frozen=True)
class ModelDescription:
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
        _check_names(f"unit '{self.name}'", [name for name, *_ in rows])
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


def _check_names(owner: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or not name.isprintable():
            raise ConfigurationError(f"variable {name!r} of {owner} cannot be exported; give it a printable name.")
        if name in seen:
            raise ConfigurationError(
                f"{owner} has two variables called '{name}', and FMI requires unique names; rename a unit or one of "
                "them."
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


def write_model_description(description: ModelDescription, token: str, fmi: Fmi) -> bytes:
    """modelDescription.xml of that version."""
    flags = {"modelIdentifier": identifier(description.name), "maxOutputDerivativeOrder": "0"}
    flags |= dict.fromkeys(_ABLE[fmi], "true")
    parts = _fmi2_model(description) if fmi == 2 else _fmi3_model(description)
    return _model_description(description.name, token, fmi, flags, description.experiment, parts)


REFUSED = {"logStatusError": "Why a call was refused"}
SAID = {
    "logAll": "What the units inside tell",
    "logStatusWarning": "Warnings of units, and their wish to end the simulation",
    "logStatusDiscard": "Why a unit discarded a step",
    **REFUSED,
    "logStatusFatal": "Why a unit cannot go on",
}
"""Categories of what is logged, by a unit and by a coupling."""


def _model_description(
    name: str,
    token: str,
    fmi: Fmi,
    flags: Mapping[str, str],
    experiment: SuggestedExperiment,
    parts: Iterable[Node],
    *,
    categories: Mapping[str, str] = REFUSED,
    definitions: Iterable[Node] = (),
) -> bytes:
    """The document of a model with these capabilities, variables and structure."""
    head = {
        "fmiVersion": f"{fmi}.0",
        "modelName": name,
        "generationTool": "cosimo",
        "variableNamingConvention": "flat",
        "guid" if fmi == 2 else "instantiationToken": token,
    }
    suggested = experiment.attributes()
    before = [
        _node("CoSimulation", flags),
        *definitions,
        _node(
            "LogCategories", children=[_node("Category", {"name": n, "description": d}) for n, d in categories.items()]
        ),
        *([_node("DefaultExperiment", suggested)] if suggested else []),
    ]
    return _document(_node("fmiModelDescription", head, [*before, *parts]))


def _fmi2_model(description: ModelDescription) -> tuple[Node, Node]:
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


def _fmi3_model(description: ModelDescription) -> tuple[Node, Node]:
    listed = [_node("Float64", head | value) for head, value in description.variables(0)]
    unknowns, outputs = list(_unknowns(description, "valueReference", first=0)), len(description.unit.outputs)
    structure = [
        *(_node("Output", known | kinds) for known, kinds in unknowns[:outputs]),
        *(_node("ContinuousStateDerivative", known | kinds) for known, kinds in unknowns[outputs:]),
        *(_node("InitialUnknown", known) for known, _ in unknowns),
    ]
    return _node("ModelVariables", children=listed), _node("ModelStructure", children=structure)


def _unknowns(description: ModelDescription, key: str, first: int) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Each output, then each derivative, with what it depends on; variables are counted from `first`."""
    depends = description.depends()
    for row, on in enumerate(depends):
        columns = np.flatnonzero(on)
        names = " ".join(str(first + column) for column in columns)
        # "constant": the dependence is linear with a factor that never changes.
        kinds = {"dependenciesKind": " ".join(["constant"] * len(columns))}
        yield {key: str(first + depends.shape[1] + row), "dependencies": names}, kinds
