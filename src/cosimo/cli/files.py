"""The verbs that look at files and write them: `new`, `info`, `validate`, `check-fmu`, `export`."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cosimo.cli.application import app
from cosimo.cli.console_output import present, say, warn
from cosimo.cli.isolation_options import IsolationOptions
from cosimo.cli.option_groups import SYSTEM, Json, SystemName, Texts, argument, many, option, time_option
from cosimo.cli.system_options import MasterChoice, SystemChoice
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.formatting import counted
from cosimo.core.storage import writing

if TYPE_CHECKING:
    from cosimo.formats.scenario import Scenario
    from cosimo.formats.writing import Scaffold

FileName = Annotated[str, argument("FILE", SYSTEM)]


@app.command()
def new(
    scenario: Annotated[Path, argument("SYSTEM.toml", "The scenario file to write.")],
    fmus: Annotated[list[str], argument("FMU…", "The FMUs to couple; named after their files.")],
    force: Annotated[bool, option("Replace the file if it already exists.")] = False,
    json_: Json = False,
) -> None:
    """Write a scenario for FMUs, with connections proposed by name, type and physical unit; then check it.

    Each proposed connection carries its reason. Ambiguous ones are written as comments to choose from.
    """
    from cosimo.formats.information import validate
    from cosimo.formats.writing import scaffold

    if scenario.suffix != ".toml":  # an FMU, most likely, which --force would replace
        files = shlex.join([str(scenario), *fmus])
        raise ConfigurationError(f"'{scenario}' is no scenario file; name one first: cosimo new system.toml {files}.")
    if scenario.exists() and not force:
        raise ConfigurationError(f"'{scenario}' already exists; give another name, or --force to replace it.")
    made = scaffold(scenario, fmus)
    with writing(scenario, "choose a folder that exists and can be written to", what="the scenario"):
        scenario.write_text(made.text, encoding="utf-8")
    problems = [str(problem) for problem in validate(scenario)]
    if json_:
        say(_fields(scenario, made, problems))
        return
    say("\n".join(_lines(scenario, made)))
    for problem in problems:
        warn(problem)
    say(f"next: check {scenario}, then: cosimo analyse {shlex.quote(str(scenario))}")


def _lines(path: Path, made: Scaffold) -> list[str]:
    found = made.proposals
    lines = [f"{path}: {counted(len(made.units), 'unit')}, macro step {made.step:g} s, until {made.stop:g} s"]
    lines += [f"  {one.source} → {one.target}  ({one.reason})" for one in found.connections]
    for open_ in found.undecided:
        choices = f": {', '.join(one.source for one in open_.candidates)}" if open_.candidates else ""
        lines.append(f"  ? → {open_.target}  ({open_.reason}{choices})")
    signed = [one.target for one in found.connections if one.signed]
    if signed:
        lines.append(f"  check the sign of {', '.join(signed)}: action and reaction have opposite signs")
    return lines


def _fields(path: Path, made: Scaffold, problems: list[str]) -> dict[str, Any]:
    return {
        "file": str(path),
        "units": {name: str(unit.path) for name, unit in made.units.items()},
        "step_size": made.step,
        "stop_time": made.stop,
        **made.fields(),
        "problems": problems,
    }


@app.command()
def info(target: FileName, changes: SystemChoice, json_: Json = False) -> None:
    """Describe an FMU or a system: variables, capabilities, connections, direct feedthrough, algebraic loops."""
    from cosimo.formats.information import describe

    description = describe(target, **changes.changes(target))
    say(description.to_dict() if json_ else str(description))


@app.command()
def validate(target: FileName, changes: SystemChoice, json_: Json = False) -> None:
    """Check an FMU or a system without running it: one line per problem; exit code 2 if there are any, 8 if unsafe."""
    from cosimo.formats.information import validate as find_problems

    found = find_problems(target, **changes.changes(target))
    problems = [str(problem) for problem in found]
    worst = max((problem.exit_code for problem in found), default=0)
    if json_:
        say({"valid": worst == 0, "problems": problems})
    else:
        print("\n".join([*problems, *([] if worst else [f"{target}: no problems found"])]))
    raise typer.Exit(worst)


@app.command("check-fmu")
def check_fmu(
    target: Annotated[str, argument("FMU", "The .fmu file.")],
    changes: SystemChoice,
    step_size: Annotated[float | None, time_option("Communication step size; default: what the FMU suggests.")] = None,
    json_: Json = False,
) -> None:
    """Try one FMU in a process of its own: does it keep what it declares? One row per check; exit code 3 if one fails.

    For the automated tests of whoever exports FMUs. 'cosimo analyse FMU' shows the same beside its verdict.
    """
    from cosimo.analysis.fmu_check import check_fmu
    from cosimo.units.fmi.fmu import FmuOptions

    if changes.input_file is not None:
        raise ConfigurationError("inputs are held in these checks; leave out --input-file, or give values with --set.")
    given, own = changes.changes(target), f"{Path(target).stem}."
    values = {name.removeprefix(own): value for name, value in given["settings"].items()}
    solver = given["solver"]
    kind = None if solver is None else "model-exchange"
    options = FmuOptions(kind=kind, solver=solver, compile=given["compile"])
    found = check_fmu(target, step_size, values=values, options=options)
    present(found.document, as_fields=json_)
    raise typer.Exit(0 if found.passed else 3)


@app.command()
def export(
    target: SystemName,
    changes: MasterChoice,
    isolation: IsolationOptions,
    output: Annotated[
        Path | None, option("The .fmu or .ssp file, or a folder for all units.", "--output", "-o")
    ] = None,
    unit: Annotated[str | None, option("Which unit to write as an FMU.")] = None,
    fmi: Annotated[int, option("Version of FMI: 2 or 3.")] = 2,
    ssp: Annotated[bool, option("Pack the whole system with its connections; also if the file ends in .ssp.")] = False,
    as_fmu: Annotated[
        Path | None, option("Write the whole coupling, master and units, as this one FMU.", metavar="FILE")
    ] = None,
    connector: Annotated[
        Texts, many("as-fmu: what becomes an input, output or parameter, such as 'a.*'; default: all open ends.")
    ] = None,
    json_: Json = False,
) -> None:
    """Write linear units as FMUs, or the whole system as an SSP package or, with its master, as one FMU.

    The FMU of a coupling holds the FMUs inside and the compiled master; it runs without Python, with the same numbers
    as 'cosimo run'.
    """
    if as_fmu is not None:
        if any((output, unit, ssp)):
            raise ConfigurationError(
                "--as-fmu names its file and holds the whole coupling; leave --output, --unit and --ssp out."
            )
        files = [str(_export_coupling(changes.scenario(target), as_fmu, connector, fmi))]
    else:
        ssp = ssp or (output is not None and output.suffix == ".ssp")
        _require_plain(changes, connector)
        if output is None:
            raise ConfigurationError("--output or --as-fmu is missing; say where to write.")
        files = [str(path) for path in _export(changes.load(target), output, unit=unit, fmi=fmi, ssp=ssp)]
    say({"files": files} if json_ else "\n".join(files))


def _require_plain(changes: MasterChoice, connector: list[str] | None) -> None:
    """Refuse what only the FMU of a coupling has."""
    own = {f"--{field.name.strip('_').replace('_', '-')}" for field in fields(SystemChoice)}
    other = [name for name in changes.named if name not in own] + (["--connector"] if connector else [])
    if other:
        raise ConfigurationError(f"{other[0]} belongs to --as-fmu, the FMU of the whole coupling; leave it out.")


def _export_coupling(scenario: Scenario, path: Path, connector: list[str] | None, fmi: int) -> Path:
    from cosimo.formats.export import Fmi, export_coupling

    return export_coupling(scenario, path, connectors=connector, fmi=cast("Fmi", fmi))


def _export(scenario: Scenario, output: Path, *, unit: str | None, fmi: int, ssp: bool) -> list[Path]:
    """The files written for a system: one FMU of `unit`, an SSP package, or the FMUs of all units in a folder."""
    from cosimo.formats.export import (
        Fmi,
        SuggestedExperiment,
        export_ssp,
        export_system,
        export_unit,
        held_inputs,
        require_other,
    )

    if fmi not in (2, 3):
        raise ConfigurationError(f"FMUs are written for FMI 2 or 3, not {fmi}.")
    if ssp and unit is not None:
        raise ConfigurationError("an SSP package holds the whole system; leave out --unit or --ssp.")
    version = cast("Fmi", fmi)
    step, stop = scenario.step or 1e-3, scenario.stop or 1.0
    if ssp:
        return [export_ssp(scenario, output, fmi=version, step=step, stop=stop)]
    experiment = SuggestedExperiment(step=step, stop=stop, start=scenario.start)
    if unit is None:
        return list(export_system(scenario.system, output, fmi=version, experiment=experiment).values())
    if unit not in scenario.system.units:
        raise UnknownNameError("unit", unit, scenario.system.units)
    require_other(output, scenario.system, scenario.source)
    told: dict[str, Any] = {"experiment": experiment, "start": held_inputs(scenario.system, unit)}
    return [export_unit(scenario.system.units[unit], output, name=unit, fmi=version, **told)]
