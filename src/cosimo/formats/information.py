"""What an FMU or a system is (`cosimo info`), what is wrong with it (`cosimo validate`): data that prints well."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.errors import ConfigurationError, CosimoError, FileError, FileFindings, Finding
from cosimo.core.formatting import counted
from cosimo.core.system import Constant, System, Table
from cosimo.core.unit import Unit
from cosimo.formats.scenario import Scenario, load
from cosimo.units.fmi.fmu import Fmu


class Description(dict[str, Any]):
    """What an FMU or a system is, as plain data for JSON; as text for people."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(self)

    def __str__(self) -> str:
        return "\n".join(_fmu_lines(self) if self["kind"] == "fmu" else _system_lines(self))


def describe(target: str | Path, **changes: Any) -> Description:
    """What a file or a built-in problem is; an `.fmu` is described by itself, all else as a system.

    `changes` are settings and an input file, as `load` takes them; an FMU with some is described as a system.
    """
    if Path(target).suffix.lower() == ".fmu" and not any(changes.values()):
        return describe_fmu(Fmu(target))
    return describe_system(load(target, **changes))


def describe_fmu(fmu: Fmu) -> Description:
    """What the FMU says about itself. `feedthrough` are pairs (input, output); `problems` keep it from running here."""
    told = ("name", "causality", "variability", "type", "unit", "start", "description")
    variables = [
        {name: getattr(info, name) for name in told}
        | {"unit": None if info.unit is None else info.unit.name, "start": _plain(info.start)}
        for info in fmu.variables.values()
    ]
    return Description(
        kind="fmu",
        file=str(fmu.path),
        fmi_version=fmu.fmi_version,
        model_name=fmu.model_name,
        description=fmu.description,
        generation_tool=fmu.generation_tool,
        platforms=fmu.platforms,
        interfaces=fmu.offered,
        solver=None if fmu.solver is None else str(fmu.solver),
        capabilities=asdict(fmu.capabilities),
        experiment=dict(fmu.default_experiment),
        variables=variables,
        feedthrough=list(_feedthrough(fmu)),
        problems=fmu.problems(),
    )


def describe_system(scenario: Scenario) -> Description:
    """What there is, what feeds what, what depends on what at once, how it is usually run.

    `feedthrough` are pairs (input, output) of the same unit; `loops` are groups of outputs that depend on each other.
    `unconnected` inputs keep the start value given here; `states` of a unit are None where they are not known.
    """
    system = scenario.system
    inlets = [inlet for row in system.inlets.values() for inlet in row]
    start = scenario.start if "start" in scenario.specified else None
    master = asdict(scenario.options) if "options" in scenario.specified else None
    return Description(
        kind="system",
        name=system.name,
        source=None if scenario.source is None else str(scenario.source),
        units=[_unit(name, unit) for name, unit in system.units.items()],
        connections=[asdict(connection) for connection in system.connections],
        external_inputs={inlet.target: _source(inlet.source) for inlet in inlets if inlet.source is not None},
        unconnected={i.target: i.start for i in inlets if i.link is None and i.source is None},
        feedthrough=[(f"{n}.{a}", f"{n}.{b}") for n, unit in system.units.items() for a, b in _feedthrough(unit)],
        loops=system.loops(),
        experiment={"start": start, "stop": scenario.stop, "step": scenario.step, "master": master},
        warnings=[str(warning) for warning in scenario.warnings],
    )


def validate(target: str | Path, **changes: Any) -> list[Finding]:
    """All that is wrong or odd with a file, without running it; errors before warnings, none means that it is fine.

    A problem in the file never raises, it is in the list. `changes` are as `load` takes them.
    """
    findings = FileFindings()
    try:
        loaded = load(target, findings=findings, **changes)
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


def _unit(name: str, unit: Unit) -> dict[str, Any]:
    file, kind = None, type(unit).__name__
    if isinstance(unit, Fmu):
        solved = "" if unit.solver is None else f" for model exchange ({unit.solver})"
        file, kind = unit.label, f"FMU {unit.fmi_version}{solved}"
    states = None if unit.linear() is None else len(unit.initial_state)
    return {
        "name": name, "kind": kind, "file": file, "inputs": unit.inputs, "outputs": unit.outputs, "states": states
    }  # fmt: skip


def _feedthrough(unit: Unit) -> Iterator[tuple[str, str]]:
    for row, column in np.argwhere(unit.feedthrough()).tolist():
        yield unit.inputs[column], unit.outputs[row]


def _plain(value: float | int | bool | str | bytes | None) -> float | int | bool | str | None:
    """JSON has no infinity, no NaN and no bytes."""
    if isinstance(value, bytes):
        return value.hex()
    return value if not isinstance(value, float) or math.isfinite(value) else str(value)


def _source(source: object) -> str:
    if isinstance(source, Constant):
        return f"{source.value:g}"
    if isinstance(source, Table):
        return f"table from {source.times[0]:g} s to {source.times[-1]:g} s, {source.interpolation}"
    return "function of time"


# ---- descriptions of FMUs and systems as text for people -------------------------------------------------------------


SHOWN = 50  # lists are cut here; the data has all

_TIMES = {"start": "startTime", "stop": "stopTime", "step": "stepSize"}
_CAUSALITIES = ("input", "output", "parameter", "calculatedParameter", "structuralParameter", "local", "independent")


def _fmu_lines(fmu: Mapping[str, Any]) -> Iterator[str]:
    able = ", ".join(name.replace("_", " ") for name, can in fmu["capabilities"].items() if can)
    times = {name: fmu["experiment"].get(key) for name, key in _TIMES.items()}
    head = {
        "model": fmu["model_name"] + (f": {fmu['description']}" if fmu["description"] else ""),
        "tool": fmu["generation_tool"] or "not specified",
        "platforms": ", ".join(fmu["platforms"]) or "none",
        **({"solver": fmu["solver"]} if fmu["solver"] else {}),
        "capabilities": able or "none",
        "experiment": _experiment(times),
    }
    used_for, *also = ("model-exchange", "co-simulation") if fmu["solver"] else ("co-simulation", "model-exchange")
    other = f", also for {also[0]}" if also[0] in fmu["interfaces"] else ""
    yield f"{fmu['file']}: {used_for} FMU, FMI {fmu['fmi_version']}{other}"
    yield from (f"  {name:13}{text}" for name, text in head.items())
    for causality in _CAUSALITIES:
        lines = [
            f"{v['name']}  {v['type']}"
            + (f" in {v['unit']}" if v["unit"] else "")
            + ("" if v["start"] is None else f", start {v['start']}")
            + (f"  ({v['description']})" if v["description"] else "")
            for v in fmu["variables"]
            if v["causality"] == causality
        ]
        several = f"{causality} variables" if causality in ("local", "independent") else f"{causality}s"
        yield from _section(several, lines)
    yield from _section("direct feedthrough", [f"{start} → {end}" for start, end in fmu["feedthrough"]])
    yield from _section("problems", fmu["problems"])


def _system_lines(system: Mapping[str, Any]) -> Iterator[str]:
    units = [
        f"{unit['name']}: {unit['kind']}{'' if unit['file'] is None else ' ' + unit['file']}, "
        f"{counted(len(unit['inputs']), 'input')}, {counted(len(unit['outputs']), 'output')}"
        f"{'' if unit['states'] is None else ', ' + counted(unit['states'], 'state')}"
        for unit in system["units"]
    ]
    where = f" ({system['source']})" if system["source"] else ""
    yield f"{system['name']}{where}: {counted(len(units), 'unit')}, {counted(len(system['connections']), 'connection')}"
    yield f"  {'experiment':13}{_experiment(system['experiment'])}"
    yield from _section("units", units)
    yield from _section("connections", [_connection(c) for c in system["connections"]])
    yield from _section("external inputs", [f"{name} = {text}" for name, text in system["external_inputs"].items()])
    yield from _section("unconnected inputs", [f"{name} = {value:g}" for name, value in system["unconnected"].items()])
    yield from _section("direct feedthrough", [f"{start} → {end}" for start, end in system["feedthrough"]])
    yield from _section("algebraic loops", [" → ".join(loop) for loop in system["loops"]])
    yield from _section("warnings", system["warnings"])


def _experiment(given: Mapping[str, Any]) -> str:
    parts = [f"{name} {given[name]:g} s" for name in ("start", "stop", "step") if given.get(name) is not None]
    if given.get("master"):
        parts.append(f"master {given['master']['name']}")
    return ", ".join(parts) or "not specified"


def _connection(connection: Mapping[str, str | float]) -> str:
    gain, offset = float(connection["gain"]), float(connection["offset"])
    factor = f" · {gain:g}" if gain != 1.0 else ""
    shift = f" {'+' if offset > 0 else '−'} {abs(offset):g}" if offset else ""
    return f"{connection['source']}{factor}{shift} → {connection['target']}"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title} ({len(lines)})"
        yield from (f"  {line}" for line in lines[:SHOWN])
        if len(lines) > SHOWN:
            yield f"  … and {len(lines) - SHOWN} more"
