"""Descriptions of FMUs and systems as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cosimo.formats.information import FmuDescription, SystemDescription

SHOWN = 50
"""Lists are cut here; the data has all."""

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
