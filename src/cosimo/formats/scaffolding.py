"""A first scenario file for given FMUs: units, proposed connections with their reasons, step and stop time."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosimo.core.errors import ConfigurationError, no_such_file
from cosimo.formats.proposing import Proposal, Proposals, propose
from cosimo.units.fmi.fmu import Fmu

STEPS = 1000
"""Macro steps of a run whose length or step nobody says."""
STOP = 10.0
"""Seconds of a run of which nobody says anything."""
PARAMETERS = 6
"""Parameters that are shown per unit."""
SIGN = "check its sign; where each unit counts what acts on itself as positive, write instead"


@dataclass(frozen=True)
class Times:
    """Step and stop time in seconds, each with where it comes from."""

    step: float
    step_reason: str
    stop: float
    stop_reason: str
    start: float | None = None


@dataclass(frozen=True)
class Scaffold:
    """A scenario file to be: its text, and what was proposed."""

    text: str
    units: Mapping[str, Fmu]
    proposals: Proposals
    times: Times


def scaffold(path: Path, fmus: Sequence[str | Path]) -> Scaffold:
    """A scenario at `path` (nothing is written yet) of the FMUs, which are named after their files."""
    if path.suffix.lower() != ".toml":
        raise ConfigurationError(f"'{path}' must end in .toml; give the scenario first, then the FMUs.")
    for fmu in fmus:
        if Path(fmu).suffix.lower() != ".fmu":
            raise ConfigurationError(f"'{fmu}' does not end in .fmu; give the scenario first, then only FMUs.")
        if not Path(fmu).exists():
            raise no_such_file(Path(fmu), (".fmu",))
    if not fmus:
        raise ConfigurationError(f"no FMU was given for '{path}'; write 'cosimo new {path} A.fmu B.fmu'.")
    units = {name: Fmu(file, name=name) for name, file in name_units(fmus).items()}
    proposals, times = propose(units), _times(units)
    return Scaffold("\n".join(_lines(path, units, proposals, times)) + "\n", units, proposals, times)


def name_units(files: Sequence[str | Path]) -> dict[str, Path]:
    """Units named after their files; equal names are numbered.

    >>> list(name_units(["a/wheel.fmu", "b/wheel.fmu", "left wheel.fmu"]))
    ['wheel1', 'wheel2', 'left_wheel']
    """
    stems = [re.sub(r"[^\w-]", "_", Path(file).stem) or "unit" for file in files]
    named: dict[str, Path] = {}
    for place, (stem, file) in enumerate(zip(stems, files, strict=True)):
        name = stem if stems.count(stem) == 1 else f"{stem}{stems[:place].count(stem) + 1}"
        while name in named:
            name += "_"
        named[name] = Path(file)
    return named


def _times(units: Mapping[str, Fmu]) -> Times:
    """As the FMUs suggest; what none of them does is guessed, and said to be."""

    def told(key: str) -> dict[str, float]:
        given = {name: unit.default_experiment.get(key) for name, unit in units.items()}
        return {name: float(value) for name, value in given.items() if value is not None and math.isfinite(value)}

    steps = {name: step for name, step in told("stepSize").items() if step > 0}
    starts, stops = told("startTime"), told("stopTime")
    start = min(starts.values(), default=0.0)
    stops = {name: stop for name, stop in stops.items() if stop > start}
    if stops:
        stop, stop_reason = max(stops.values()), _suggested(stops, "the longest that")
    else:
        stop = start + (STEPS * min(steps.values()) if steps else STOP)
        stop_reason = "a guess: the FMUs suggest none"
    if steps:
        step, step_reason = min(steps.values()), _suggested(steps, "the shortest that")
    else:
        step = float(f"{(stop - start) / STEPS:.1g}")
        step_reason = "a guess: the FMUs suggest none ('cosimo analyse' says which one would do)"
    return Times(step, step_reason, stop, stop_reason, start or None)


def _suggested(given: Mapping[str, float], which: str) -> str:
    names = f"{', '.join(list(given)[:3])}{' …' * (len(given) > 3)}"
    return (
        f"as {names} suggest{'s' * (len(given) == 1)}" if len(set(given.values())) == 1 else f"{which} {names} suggest"
    )


def _lines(path: Path, units: Mapping[str, Fmu], found: Proposals, times: Times) -> Iterator[str]:
    yield f"# A scenario for cosimo, proposed by 'cosimo new' from {len(units)} FMU{'s' * (len(units) > 1)}."
    yield f"# Check it, then: cosimo analyse {path.name}"
    yield ""
    yield f"# Seconds. step-size: {times.step_reason}; stop-time: {times.stop_reason}."
    yield f"step-size = {times.step!r}"
    if times.start is not None:
        yield f"start-time = {times.start!r}"
    yield f"stop-time = {times.stop!r}"
    yield ""
    yield "connections = ["
    for proposal in found.connections:
        yield f"  {_quoted(f'{proposal.source} -> {proposal.target}')},  # {proposal.reason}"
        if proposal.signed:
            yield f"  # {SIGN}:"
            yield f"  # {_table(proposal)},"
    for undecided in found.undecided:
        yield f"  # {undecided.target} is left unconnected: {undecided.reason}."
        for candidate in undecided.candidates:
            line = _quoted(f"{candidate.source} -> {candidate.target}")
            yield f"  # {line},  # {candidate.reason or 'the types fit'}"
    yield "]"
    for name, unit in units.items():
        yield ""
        yield from _unit(path, name, unit)
    yield from _inputs(units, found)
    yield ""
    yield "# [master]"
    yield "# name = \"gauss-seidel\"  # jacobi if left out; 'cosimo tune' finds the one that suits"


def _unit(path: Path, name: str, unit: Fmu) -> Iterator[str]:
    file = os.path.relpath(unit.path.resolve(), path.resolve().parent)
    yield f"[units.{_key(name)}]"
    yield f"fmu = {_quoted(Path(file).as_posix())}"
    shown = [
        f"{_key(info.name)} = {json.dumps(info.start, ensure_ascii=False)}"
        for info in unit.variables.values()
        if info.causality == "parameter" and info.start is not None and not _odd(info.start)
    ]
    if shown:
        yield f"# parameters = {{ {', '.join(shown[:PARAMETERS])}{', …' * (len(shown) > PARAMETERS)} }}  # as they are"


def _inputs(units: Mapping[str, Fmu], found: Proposals) -> Iterator[str]:
    """Inputs that nothing feeds: those without a start value must have one, the others may."""
    open_inputs = [undecided.target for undecided in found.undecided]
    if not open_inputs:
        return
    start = {f"{name}.{variable}": value for name, unit in units.items() for variable, value in unit.start.items()}
    needed = [target for target in open_inputs if target not in start]
    yield ""
    yield '# Inputs from outside: a number, or { csv = "road.csv", column = "height" }.'
    yield "[inputs]" if needed else "# [inputs]"
    for target in open_inputs:
        note = "the FMU has no start value" if target in needed else "its start value"
        yield f"{'' if target in needed else '# '}{_quoted(target)} = {start.get(target, 0.0)!r}  # {note}"


def _table(proposal: Proposal) -> str:
    return f"{{ from = {_quoted(proposal.source)}, to = {_quoted(proposal.target)}, gain = -1.0 }}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _quoted(name)


def _odd(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
