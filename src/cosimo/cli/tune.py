"""The verb `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from cosimo.cli.application import Json, app, say, words
from cosimo.cli.arguments import MANY, SYSTEM, load_target


@app.command()
def tune(
    target: Annotated[str, typer.Argument(metavar="SYSTEM", help=SYSTEM)],
    step_size: Annotated[float | None, typer.Option(help="A fixed macro step in seconds; default: searched.")] = None,
    order: Annotated[str | None, typer.Option(help="A fixed calling order, 'a,b,c'; default: all that differ.")] = None,
    masters: Annotated[
        str, typer.Option(help="Families to try, separated by commas.")
    ] = "jacobi,gauss-seidel,iterative",
    couplings: Annotated[str, typer.Option(help="Couplings to try, separated by commas.")] = "hold0,hold1,hold2,nepce",
    objectives: Annotated[
        str, typer.Option(help="Separated by commas: error, robustness, cost, radius, defect.")
    ] = "error,robustness,cost",
    evaluations: Annotated[int, typer.Option(help="Candidates to try at most.")] = 2000,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal results.")] = 0,
    method: Annotated[str, typer.Option(help="auto, nsga2 or grid (every point of a grid).")] = "auto",
    budget: Annotated[float | None, typer.Option(help="The most that a simulated second may cost.")] = None,
    workers: Annotated[int, typer.Option(help="Units that step side by side share the cost.")] = 1,
    measure_cost: Annotated[
        bool, typer.Option("--measure-cost", help="Time the units: cost in seconds per simulated second.")
    ] = False,
    compensation: Annotated[
        bool, typer.Option("--compensation", help="Also try corrected inputs, as by 'compensate'.")
    ] = False,
    verify: Annotated[int, typer.Option(metavar="N", help="Run the N best and show predicted beside measured.")] = 0,
    stop_time: Annotated[float | None, typer.Option(help="Horizon of the errors in seconds.")] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep evaluations here and go on from it.")
    ] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the front, such as front.png.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"NAME=VALUE of a problem parameter. {MANY}")] = None,
    json_: Json = False,
) -> None:
    """Search masters, steps and couplings: the front of accuracy, robustness and cost, and a recommended master."""
    from cosimo.reporting.tuning import draw_front, progress_bar, tuned_fields
    from cosimo.tuning import Cost, Settings, Space, measured_weights
    from cosimo.tuning import tune as tune_system
    from cosimo.tuning.result import verification_lines
    from cosimo.tuning.structures import parse_kinds

    loaded = load_target(target, set_)
    system, horizon = loaded.system, loaded.stop if stop_time is None else stop_time
    space = Space(
        steps=step_size,
        families=words(masters),
        order=words(order) if order else None,
        kinds=parse_kinds(words(couplings)),
        compensation=compensation,
        budget=budget,
    )
    weights = measured_weights(system, step_size or loaded.step or 1e-3) if measure_cost else {}
    settings = Settings(method=cast(Any, method), cost=Cost(weights, workers), resume=resume)
    goals = words(objectives)
    with progress_bar(evaluations) as report:
        found = tune_system(
            system,
            space,
            goals,
            seed=seed,
            evaluations=evaluations,
            horizon=horizon,
            settings=settings,
            progress=report,
        )
    verified = found.verify(verify) if verify else ()
    drawn = str(draw_front(found, figure)) if figure else None
    if json_:
        say(tuned_fields(found, verified, drawn))
    else:
        say("\n".join([str(found), *(verification_lines(verified) if verified else [])]))
