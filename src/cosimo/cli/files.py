"""The verbs that look at files and write them: `info`, `validate`, `export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import SYSTEM
from cosimo.core.errors import ConfigurationError, UnknownNameError


@app.command()
def info(target: Annotated[str, typer.Argument(metavar="FILE", help=SYSTEM)], json_: Json = False) -> None:
    """Describe an FMU or a system: variables, capabilities, connections, feedthrough, algebraic loops."""
    from cosimo.formats.information import describe

    description = describe(target)
    say(description.to_dict() if json_ else str(description))


@app.command()
def validate(target: Annotated[str, typer.Argument(metavar="FILE", help=SYSTEM)], json_: Json = False) -> None:
    """Check an FMU or a system without running it: one line per problem; exit code 2 if there are any, 8 if unsafe."""
    from cosimo.formats.information import validate as find_problems

    found = find_problems(target)
    problems = [str(problem) for problem in found]
    if json_:
        say({"valid": not problems, "problems": problems})
    else:
        print("\n".join(problems) or f"{target}: no problems found")
    raise typer.Exit(max((problem.exit_code for problem in found), default=0))


@app.command()
def export(
    target: Annotated[str, typer.Argument(metavar="SYSTEM", help=SYSTEM)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .fmu or .ssp file, or a folder for all units.")],
    unit: Annotated[str | None, typer.Option(help="Which unit to write as an FMU.")] = None,
    fmi: Annotated[int, typer.Option(help="Version of FMI: 2 or 3.")] = 2,
    ssp: Annotated[bool, typer.Option("--ssp", help="Pack the whole system with its connections.")] = False,
    json_: Json = False,
) -> None:
    """Write linear units as FMUs: one unit, all units into a folder, or the whole system as an SSP package."""
    files = [str(path) for path in _export(target, output, unit=unit, fmi=fmi, ssp=ssp)]
    say({"files": files} if json_ else "\n".join(files))


def _export(target: str, output: Path, *, unit: str | None, fmi: int, ssp: bool) -> list[Path]:
    """The files written for a system: one FMU of `unit`, an SSP package, or the FMUs of all units in a folder."""
    from cosimo.formats.export import export_ssp, export_system, export_unit
    from cosimo.formats.loading import load
    from cosimo.formats.model_description import Experiment, Fmi

    if fmi not in (2, 3):
        raise ConfigurationError(f"FMUs are written for FMI 2 or 3, not {fmi}.")
    if ssp and unit is not None:
        raise ConfigurationError("an SSP package holds the whole system; leave out --unit or --ssp.")
    version = cast("Fmi", fmi)
    loaded = load(target)
    step, stop = loaded.step or 1e-3, loaded.stop or 1.0
    if ssp:
        return [export_ssp(loaded.system, output, fmi=version, step=step, stop=stop)]
    experiment = Experiment(step=step, stop=stop)
    if unit is None:
        return list(export_system(loaded.system, output, fmi=version, experiment=experiment).values())
    if unit not in loaded.system.units:
        raise UnknownNameError("unit", unit, loaded.system.units)
    return [export_unit(loaded.system.units[unit], output, name=unit, fmi=version, experiment=experiment)]
