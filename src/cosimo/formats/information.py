"""What an FMU or a system is (`cosimo info`), what is wrong with it (`cosimo validate`): data that prints well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.system import Constant, System, Table
from cosimo.core.unit import Unit
from cosimo.formats.findings import FileFindings, Finding
from cosimo.formats.loading import Loaded, load, load_with
from cosimo.units.fmi.fmu import Fmu


@dataclass(frozen=True)
class VariableDescription:
    """One variable of an FMU; `unit` is its unit of measure."""

    name: str
    causality: str
    variability: str
    type: str
    unit: str | None
    start: float | int | bool | str | None
    description: str


@dataclass(frozen=True)
class FmuDescription:
    """What an FMU says about itself. `feedthrough` are pairs (input, output); `problems` keep it from running here."""

    file: str
    fmi_version: str
    model_name: str
    description: str
    generation_tool: str | None
    platforms: tuple[str, ...]
    capabilities: Mapping[str, bool]
    experiment: Mapping[str, float]
    variables: tuple[VariableDescription, ...]
    feedthrough: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"kind": "fmu", **asdict(self)}

    def __str__(self) -> str:
        return fmu_text(self)


@dataclass(frozen=True)
class UnitDescription:
    """One unit of a system; `states` is None where they are not known."""

    name: str
    kind: str
    file: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: int | None


@dataclass(frozen=True)
class SystemDescription:
    """A coupled system: what there is, what feeds what, what depends on what at once, how it is usually run.

    `feedthrough` are pairs (input, output) of the same unit; `loops` are groups of outputs that depend on each other.
    `unconnected` inputs keep the start value given here.
    """

    name: str
    source: str | None
    units: tuple[UnitDescription, ...]
    connections: tuple[Mapping[str, str | float], ...]
    external_inputs: Mapping[str, str]
    unconnected: Mapping[str, float]
    feedthrough: tuple[tuple[str, str], ...]
    loops: tuple[tuple[str, ...], ...]
    experiment: Mapping[str, Any]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {"kind": "system", **asdict(self)}

    def __str__(self) -> str:
        return system_text(self)


def describe(target: str | Path) -> FmuDescription | SystemDescription:
    """What a file or a built-in problem is; an `.fmu` is described by itself, all else as a system."""
    if Path(target).suffix.lower() == ".fmu":
        return describe_fmu(Fmu(target))
    return describe_system(load(target))


def describe_fmu(fmu: Fmu) -> FmuDescription:
    """What the FMU says about itself."""
    variables = tuple(
        VariableDescription(
            info.name,
            info.causality,
            info.variability,
            info.type,
            None if info.unit is None else info.unit.name,
            _plain(info.start),
            info.description,
        )
        for info in fmu.variables.values()
    )
    return FmuDescription(
        file=str(fmu.path),
        fmi_version=fmu.fmi_version,
        model_name=fmu.model_name,
        description=fmu.description,
        generation_tool=fmu.generation_tool,
        platforms=fmu.platforms,
        capabilities=asdict(fmu.capabilities),
        experiment=dict(fmu.default_experiment),
        variables=variables,
        feedthrough=tuple(_feedthrough(fmu)),
        problems=fmu.problems(),
    )


def describe_system(loaded: Loaded) -> SystemDescription:
    """What the system is made of."""
    system = loaded.system
    inlets = [inlet for row in system.inlets.values() for inlet in row]
    experiment = {"start": loaded.start, "stop": loaded.stop, "step": loaded.step}
    return SystemDescription(
        name=system.name,
        source=None if loaded.source is None else str(loaded.source),
        units=tuple(_unit(name, unit) for name, unit in system.units.items()),
        connections=tuple(asdict(connection) for connection in system.connections),
        external_inputs={inlet.target: _source(inlet.source) for inlet in inlets if inlet.source is not None},
        unconnected={i.target: i.start for i in inlets if i.link is None and i.source is None},
        feedthrough=tuple((f"{n}.{a}", f"{n}.{b}") for n, unit in system.units.items() for a, b in _feedthrough(unit)),
        loops=tuple(system.loops()),
        experiment=experiment | {"master": None if loaded.master is None else asdict(loaded.master)},
        warnings=tuple(str(warning) for warning in loaded.warnings),
    )


def validate(target: str | Path) -> list[Finding]:
    """All that is wrong or odd with a file, without running it; errors before warnings, none means that it is fine.

    A problem in the file never raises, it is in the list.
    """
    findings = FileFindings()
    try:
        loaded = load_with(target, findings)
    except ConfigurationError as error:
        if not findings.errors:
            return [_finding(error, target), *findings.warnings]
    except CosimoError as error:
        return [Finding(str(error), exit_code=error.exit_code), *findings.errors, *findings.warnings]
    else:
        found = [Finding(problem, str(target)) for problem in _unready(loaded.system)]
        return [*found, *findings.warnings]
    return [*findings.errors, *findings.warnings]


def _finding(error: ConfigurationError, target: str | Path) -> Finding:
    from cosimo.core.errors import FileError

    if isinstance(error, FileError):
        return Finding(error.reason, error.file, error.line)
    return Finding(str(error), "" if str(target) in str(error) else str(target))


def _unready(system: System) -> Iterator[str]:
    """What would keep the FMUs from being instantiated, in words that name the file the user knows."""
    told = set()
    for unit in system.units.values():
        if isinstance(unit, Fmu):
            for problem in unit.problems():
                said = problem.replace(str(unit.path), unit.label)
                if said not in told:
                    told.add(said)
                    yield said


def _unit(name: str, unit: Unit) -> UnitDescription:
    file = unit.label if isinstance(unit, Fmu) else None
    kind = f"FMU {unit.fmi_version}" if isinstance(unit, Fmu) else type(unit).__name__
    states = None if unit.linear() is None else len(unit.initial_state)
    return UnitDescription(name, kind, file, unit.inputs, unit.outputs, states)


def _feedthrough(unit: Unit) -> Iterator[tuple[str, str]]:
    for row, column in np.argwhere(unit.feedthrough()).tolist():
        yield unit.inputs[column], unit.outputs[row]


def _plain(value: float | int | bool | str | None) -> float | int | bool | str | None:
    """JSON has no infinity and no NaN."""
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _source(source: object) -> str:
    if isinstance(source, Constant):
        return f"{source.value:g}"
    if isinstance(source, Table):
        return f"table from {source.times[0]:g} s to {source.times[-1]:g} s, {source.interpolation}"
    return "function of time"


# ---- descriptions of FMUs and systems as text for people -------------------------------------------------------------


SHOWN = 50  # lists are cut here; the data has all

_CAUSALITIES = ("input", "output", "parameter", "calculatedParameter", "structuralParameter", "local", "independent")


def fmu_text(fmu: FmuDescription) -> str:
    """Several lines."""
    able = ", ".join(name.replace("_", " ") for name, can in fmu.capabilities.items() if can)
    times = {"start": fmu.experiment.get("startTime"), "stop": fmu.experiment.get("stopTime")}
    head = {
        "model": fmu.model_name + (f": {fmu.description}" if fmu.description else ""),
        "tool": fmu.generation_tool or "not told",
        "platforms": ", ".join(fmu.platforms) or "none",
        "capabilities": able or "none",
        "experiment": _experiment({**times, "step": fmu.experiment.get("stepSize")}),
    }
    return "\n".join(
        [
            f"{fmu.file}: co-simulation FMU, FMI {fmu.fmi_version}",
            *_pairs(head),
            *_variables(fmu),
            *_section("depends at once", [f"{end} on {start}" for start, end in fmu.feedthrough]),
            *_section("problems", fmu.problems),
        ]
    )


def system_text(system: SystemDescription) -> str:
    """Several lines."""
    units = [
        f"{unit.name}: {unit.kind}{f' {unit.file}' if unit.file else ''}, {_count(len(unit.inputs), 'input')}, "
        f"{_count(len(unit.outputs), 'output')}{'' if unit.states is None else ', ' + _count(unit.states, 'state')}"
        for unit in system.units
    ]
    where = f" ({system.source})" if system.source else ""
    return "\n".join(
        [
            f"{system.name}{where}: {_count(len(units), 'unit')}, {_count(len(system.connections), 'connection')}",
            *_pairs({"experiment": _experiment(system.experiment)}),
            *_section("units", units),
            *_section("connections", [_connection(c) for c in system.connections]),
            *_section("external inputs", [f"{name} = {text}" for name, text in system.external_inputs.items()]),
            *_section("unconnected inputs", [f"{name} = {value:g}" for name, value in system.unconnected.items()]),
            *_section("depends at once", [f"{end} on {start}" for start, end in system.feedthrough]),
            *_section("algebraic loops", [" → ".join(loop) for loop in system.loops]),
            *_section("warnings", system.warnings),
        ]
    )


def _variables(fmu: FmuDescription) -> Iterator[str]:
    for causality in _CAUSALITIES:
        lines = [
            f"{v.name}  {v.type}"
            + (f" in {v.unit}" if v.unit else "")
            + ("" if v.start is None else f", start {v.start}")
            + (f"  ({v.description})" if v.description else "")
            for v in fmu.variables
            if v.causality == causality
        ]
        yield from _section(
            f"{causality} variables" if causality in ("local", "independent") else f"{causality}s", lines
        )


def _experiment(given: Mapping[str, Any]) -> str:
    parts = [f"{name} {given[name]:g} s" for name in ("start", "stop", "step") if given.get(name) is not None]
    if given.get("master"):
        parts.append(f"master {given['master']['name']}")
    return ", ".join(parts) or "not told"


def _connection(connection: Mapping[str, str | float]) -> str:
    gain, offset = float(connection["gain"]), float(connection["offset"])
    factor = f" · {gain:g}" if gain != 1.0 else ""
    shift = f" {'+' if offset > 0 else '−'} {abs(offset):g}" if offset else ""
    return f"{connection['source']}{factor}{shift} → {connection['target']}"


def _pairs(pairs: Mapping[str, str]) -> list[str]:
    return [f"  {name:13}{text}" for name, text in pairs.items()]


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title} ({len(lines)})"
        yield from (f"  {line}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"  … and {len(lines) - SHOWN} more"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
