"""The verb `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosimo.cli.analyse import require_file, write_advice
from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import MANY, SYSTEM, load_target
from cosimo.cli.isolating import isolating
from cosimo.cli.tune_options import Plan, assembled, plan_of, space_of
from cosimo.cli.voice import present
from cosimo.core.errors import Interrupted

if TYPE_CHECKING:
    from cosimo.scenario import Scenario
    from cosimo.tuning import Space, Tuned


@app.command()
@isolating
@assembled(space=space_of, plan=plan_of)
def tune(
    target: Annotated[str, typer.Argument(metavar="SYSTEM", help=SYSTEM)],
    space: Space,
    plan: Plan,
    verify: Annotated[int, typer.Option(metavar="N", help="Run the N best and show predicted beside measured.")] = 0,
    stop_time: Annotated[float | None, typer.Option(help="Horizon of the errors in seconds.")] = None,
    figure: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the front, such as front.png.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Put the recommended master into the scenario file; keep the old beside it.")
    ] = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"NAME=VALUE of a problem parameter. {MANY}")] = None,
    json_: Json = False,
) -> None:
    """Search masters, steps and couplings: the front of accuracy, robustness and cost, and a recommended master."""
    from dataclasses import replace

    from cosimo.reporting.pictures import draw_front
    from cosimo.scenario import Scenario

    scenario = Scenario.of(load_target(target, set_))
    scenario = scenario if stop_time is None else scenario.changed(stop=stop_time)
    if write:
        require_file(scenario)
    found = _tuned(scenario, space, plan, shown=not json_)
    found = replace(found, verified=found.verify(verify)) if verify else found
    drawn = str(draw_front(found, figure)) if figure else None
    if json_:
        say(found.fields() | {"figure": drawn})
    else:
        present(found.document, as_fields=False)
    if write:
        write_advice(scenario, found.recommendation)


def _tuned(scenario: Scenario, space: Space, plan: Plan, *, shown: bool) -> Tuned:
    from dataclasses import replace

    from cosimo.reporting.progress import SearchProgress, show_on_terminal

    step = max(space.given, default=scenario.step)
    plan = plan.timed(scenario.system, step or 1e-3)
    if plan.target is None:
        wanted = replace(plan.settings.wanted, error=scenario.target)
        plan = replace(plan, settings=replace(plan.settings, wanted=wanted))
    try:
        with show_on_terminal(SearchProgress(plan.evaluations), shown=shown) as report:
            return scenario.tune(
                space,
                objectives=plan.objectives,
                seed=plan.seed,
                evaluations=plan.evaluations,
                settings=replace(plan.settings, identify_at=step),
                progress=report,
            )
    except KeyboardInterrupt:
        kept = plan.settings.resume
        text = f"all evaluations are kept, the same command goes on from '{kept}'" if kept else "nothing was kept"
        raise Interrupted(f"interrupted; {text}{'' if kept else '; --resume FILE keeps evaluations'}.") from None
