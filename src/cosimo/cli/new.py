"""The verb `new`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cosimo.cli.application import Json, app, say
from cosimo.cli.voice import warn
from cosimo.core.errors import ConfigurationError, OutputError

if TYPE_CHECKING:
    from cosimo.formats.scaffolding import Scaffold


@app.command()
def new(
    scenario: Annotated[Path, typer.Argument(metavar="SYSTEM.toml", help="The scenario file to write.")],
    fmus: Annotated[list[str], typer.Argument(metavar="FMU…", help="The FMUs to couple; named after their files.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there already.")] = False,
    json_: Json = False,
) -> None:
    """Write a scenario for FMUs, with connections proposed by name, type and unit of measure; then check it.

    Every proposed line says why. What is ambiguous is written as a comment to choose from.
    """
    from cosimo.formats.information import validate
    from cosimo.formats.scaffolding import scaffold

    if scenario.exists() and not force:
        raise ConfigurationError(f"'{scenario}' is there already; give another name, or --force to replace it.")
    made = scaffold(scenario, fmus)
    _write(scenario, made.text)
    problems = [str(problem) for problem in validate(scenario)]
    if json_:
        say(_fields(scenario, made, problems))
        return
    say("\n".join(_lines(scenario, made)))
    for problem in problems:
        warn(problem)
    say(f"next: look through {scenario}, then: cosimo analyse {shlex.quote(str(scenario))}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(
            f"cannot write '{path}': {reason}; choose a folder that exists and can be written to."
        ) from None


def _lines(path: Path, made: Scaffold) -> list[str]:
    found, times = made.proposals, made.times
    lines = [f"{path}: {len(made.units)} units, macro step {times.step:g} s, until {times.stop:g} s"]
    lines += [f"  {one.source} → {one.target}  ({one.reason})" for one in found.connections]
    for open_ in found.undecided:
        choices = f": {', '.join(one.source for one in open_.candidates)}" if open_.candidates else ""
        lines.append(f"  ? → {open_.target}  ({open_.reason}{choices})")
    signed = [one.target for one in found.connections if one.signed]
    if signed:
        lines.append(f"  check the sign of {', '.join(signed)}: what acts on one unit may act back on the other")
    return lines


def _fields(path: Path, made: Scaffold, problems: list[str]) -> dict[str, Any]:
    found = made.proposals

    def plain(one: Any) -> dict[str, Any]:
        return {"source": one.source, "target": one.target, "reason": one.reason, "check_sign": one.signed}

    return {
        "file": str(path),
        "units": {name: str(unit.path) for name, unit in made.units.items()},
        "step_size": made.times.step,
        "stop_time": made.times.stop,
        "connections": [plain(one) for one in found.connections],
        "undecided": [
            {"target": o.target, "reason": o.reason, "candidates": [plain(c) for c in o.candidates]}
            for o in found.undecided
        ],
        "problems": problems,
    }
