"""The verbs that run masters side by side: `compensate` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import MANY, SYSTEM, Described, bare_system, with_system
from cosimo.cli.isolating import isolating
from cosimo.core.errors import ConfigurationError


@app.command()
@isolating
@with_system
def compensate(
    described: Described,
    target: Annotated[str, typer.Option(help="monolithic (the units' own integrator) or exact.")] = "monolithic",
    stop_time: Annotated[float | None, typer.Option(help="Until when the runs go, in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Correct the exchanged inputs; say what that does to every mode; run without and with it, side by side."""
    from cosimo.compensation import compare
    from cosimo.compensation import compensate as compensate_system
    from cosimo.reporting.compensating import compensation_fields, compensation_text

    stop = described.stop if stop_time is None else stop_time
    if stop is None:
        raise ConfigurationError(f"'{described.system.name}' does not say when to stop; give --stop-time.")
    found = compensate_system(described.system, described.master, target=cast(Any, target))
    compared = compare(found, start=described.start, stop=stop)
    say(compensation_fields(found, compared) if json_ else compensation_text(found, compared))


@app.command()
@isolating
def compare(
    target: Annotated[str, typer.Argument(metavar="SYSTEM", help=SYSTEM)],
    couplings: Annotated[
        str, typer.Option(help="Separated by commas: hold0, hold1, hold2, nepce:GAIN, dmd, dmd:N.")
    ] = ("hold0,hold1,hold2,nepce:0.5,dmd"),
    masters: Annotated[
        str, typer.Option(help="Separated by commas, such as jacobi,gauss-seidel.")
    ] = "jacobi,gauss-seidel",
    step_size: Annotated[float | None, typer.Option(help="Macro step in seconds.")] = None,
    stop_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    reference: Annotated[
        str, typer.Option(help="exact (linear systems), fine, monolithic (fresh exchange, same step), or auto.")
    ] = "auto",
    figure: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw error against cost, such as out.png.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"NAME=VALUE of a problem parameter. {MANY}")] = None,
    json_: Json = False,
) -> None:
    """Run every combination of masters and couplings: accuracy, stability and cost in one table."""
    from cosimo.reporting.comparing import comparison_fields, comparison_lines, draw_comparison
    from cosimo.trials import combinations, try_masters
    from cosimo.trials import reference as solve

    system, step, start, stop = bare_system(target, step_size, stop_time, set_)
    wanted = solve(system, step=step, start=start, stop=stop, kind=reference)
    trials = try_masters(system, combinations(system, step, masters, couplings), wanted, start=start, stop=stop)
    drawn = draw_comparison(f"{system.name}, macro step {step:g} s", wanted, trials, figure) if figure else None
    if json_:
        say(comparison_fields(wanted, trials, str(drawn) if drawn else None))
    else:
        say("\n".join(comparison_lines(wanted, trials)))
