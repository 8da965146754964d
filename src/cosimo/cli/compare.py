"""The verbs that run masters side by side: `compensate` and `compare`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from cosimo.cli.application import Json, app
from cosimo.cli.arguments import MANY, SYSTEM, Scenario, bare_scenario, stop_of, with_system
from cosimo.cli.isolating import isolating
from cosimo.cli.voice import present


@app.command()
@isolating
@with_system
def compensate(
    described: Scenario,
    target: Annotated[str, typer.Option(help="monolithic (the units' own integrator) or exact.")] = "monolithic",
    stop_time: Annotated[float | None, typer.Option(help="Until when the runs go, in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Correct the exchanged inputs; say what that does to every mode; run without and with it, side by side."""
    from cosimo.compensation import compare
    from cosimo.compensation import compensate as compensate_system
    from cosimo.reporting.documents import compensation_document

    stop = stop_of(described, stop_time)
    found = compensate_system(described.system, described.master, target=cast(Any, target))
    compared = compare(found, start=described.start, stop=stop)
    document = compensation_document(found, compared)
    present(document, as_fields=json_)


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
    target_error: Annotated[float | None, typer.Option(help="The error that is small enough: 0.01 is 1 %.")] = None,
    json_: Json = False,
) -> None:
    """Run every combination of masters and couplings: trust, error and cost in one table."""
    from cosimo.analysis.memory import Memory
    from cosimo.analysis.model import Model
    from cosimo.reporting.pictures import draw_comparison
    from cosimo.studies.trials import MasterComparison, combinations, try_masters
    from cosimo.studies.trials import reference as solve

    scenario = bare_scenario(target, step_size, stop_time, set_, target_error)
    system, step, horizon = scenario.system, scenario.step or 1.0, scenario.horizon
    model = Model(system, step=step, horizon=horizon, start=scenario.start, identify=False)
    wanted = solve(system, step=step, start=scenario.start, stop=scenario.stop or 1.0, kind=reference, model=model)
    candidates = combinations(system, step, masters, couplings)
    trials = try_masters(model, candidates, wanted, target=scenario.target, memory=Memory())
    drawn = draw_comparison(f"{system.name}, macro step {step:g} s", wanted, trials, figure) if figure else None
    found = MasterComparison(system.name, step, model.horizon, wanted, trials, str(drawn) if drawn else None)
    present(found.document, as_fields=json_)
