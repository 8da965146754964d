"""The verb `tune`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import MANY, SYSTEM, load_target
from cosimo.cli.isolating import isolating
from cosimo.cli.tune_options import Plan, assembled, plan_of, space_of
from cosimo.core.errors import Interrupted

if TYPE_CHECKING:
    from cosimo.formats.loaded import Loaded
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
    set_: Annotated[list[str] | None, typer.Option("--set", help=f"NAME=VALUE of a problem parameter. {MANY}")] = None,
    json_: Json = False,
) -> None:
    """Search masters, steps and couplings: the front of accuracy, robustness and cost, and a recommended master."""
    from cosimo.reporting.tuning import draw_front, tuned_fields
    from cosimo.tuning.result import verification_lines

    found = _tuned(load_target(target, set_), space, plan, stop_time)
    verified = found.verify(verify) if verify else ()
    drawn = str(draw_front(found, figure)) if figure else None
    if json_:
        say(tuned_fields(found, verified, drawn))
    else:
        say("\n".join([str(found), *(verification_lines(verified) if verified else [])]))


def _tuned(loaded: Loaded, space: Space, plan: Plan, stop_time: float | None) -> Tuned:
    from dataclasses import replace

    from cosimo.reporting.tuning import progress_bar
    from cosimo.tuning import tune as tune_system

    start, stop = loaded.start or 0.0, loaded.stop if stop_time is None else stop_time
    step = max(space.given, default=loaded.step)
    plan = plan.timed(loaded.system, step or 1e-3)
    try:
        with progress_bar(plan.evaluations) as report:
            return tune_system(
                loaded.system,
                space,
                plan.objectives,
                seed=plan.seed,
                evaluations=plan.evaluations,
                horizon=None if stop is None else stop - start,
                start=start,
                settings=replace(plan.settings, identify_at=step),
                progress=report,
            )
    except KeyboardInterrupt:
        kept = plan.settings.resume
        text = f"all evaluations are kept, the same command goes on from '{kept}'" if kept else "nothing was kept"
        raise Interrupted(f"interrupted; {text}{'' if kept else '; --resume FILE keeps evaluations'}.") from None
