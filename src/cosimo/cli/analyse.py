"""The verb `analyse`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from cosimo.cli.application import ALONG, app
from cosimo.cli.console_output import hint, present
from cosimo.cli.isolation_options import IsolationOptions
from cosimo.cli.option_groups import Json, SystemName, numbers, option, seconds, time_option
from cosimo.cli.system_options import AdaptiveChoice, MasterChoice, require_file, write_advice
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.analysis.verdict import Verdict
    from cosimo.core.document import Document
    from cosimo.formats.scenario import Scenario


@app.command("analyze", hidden=True)  # as it is spelt elsewhere
@app.command()
def analyse(
    system: SystemName,
    master: MasterChoice,
    steps: AdaptiveChoice,
    isolation: IsolationOptions,
    stop_time: Annotated[float | None, time_option("Time until which errors are evaluated, in seconds.")] = None,
    at: Annotated[str | None, option("Also analyse at these times of a reference run, such as 0,1.5,3.")] = None,
    along: Annotated[
        int | None, option(f"Also analyse along a reference run, at N times (without N: {ALONG}).", metavar="[N]")
    ] = None,
    pilots: Annotated[
        bool, option("Confirm predictions of identified models by short runs.", "--pilots/--no-pilots")
    ] = True,
    budget: Annotated[
        str | None,
        option(
            "Budget of the pilot runs: seconds, or multiples of the run such as 50x. Default: 20x, or more of quick "
            "runs; at most 10 s."
        ),
    ] = None,
    details: Annotated[bool, option("Also print modes and connections.")] = False,
    write: Annotated[
        bool, option("Write the recommended master to the scenario file; keep a copy of the old file.")
    ] = False,
    json_: Json = False,
) -> None:
    """Tell whether the results of this coupling can be trusted, how large the errors will be, and what to change.

    Units with unknown equations are identified by small experiments; short pilot runs confirm the prediction.
    """
    scenario = master.scenario(system)
    scenario = scenario if stop_time is None else scenario.changed(stop=stop_time)
    from cosimo.analysis.pilots import Budget
    from cosimo.masters.words import command_options
    from cosimo.reporting.progress import PilotProgress, show_on_terminal

    if write:
        require_file(scenario)
    if steps.adaptive is not None and (write or at or along is not None):
        raise ConfigurationError("--write, --at and --along are for fixed steps; leave them or --adaptive out.")
    allowed = Budget.parse(budget) if budget is not None else None
    with show_on_terminal(PilotProgress(), shown=not json_) as progress:
        times = numbers("--at", at, form="times in seconds separated by commas", kind=seconds) if at else ()
        verdict = scenario.analyse(
            at=times, along=along, pilots=pilots, budget=allowed, progress=progress, adaptive=steps.adaptive
        )
    present(_document(scenario, verdict), as_fields=json_, details=details)
    advice = verdict.recommendation
    if write:
        write_advice(scenario, advice)
    if json_:
        return
    words = master.words(system) + ("" if stop_time is None else f" --stop-time {stop_time:g}")
    if advice is not None and advice.options:
        hint(f"cosimo run {words} {advice.options}")
    elif verdict.trust in ("yes", "with care"):
        hint(f"cosimo run {words} {command_options(scenario.master, scenario.system)}{steps.words}")
    else:
        hint(f"cosimo report {words}")


def _document(scenario: Scenario, verdict: Verdict) -> Document:
    """The verdict; of an FMU alone with what it is by itself, which says more."""
    document = verdict.document
    if scenario.source is None or scenario.source.suffix.lower() != ".fmu":
        return document
    from cosimo.analysis.fmu_check import check_fmu

    unit: Any = next(iter(scenario.system.units.values()))
    alone = check_fmu(scenario.source, verdict.step_size, values=unit.given, options=unit.options).section
    return replace(document, sections=(*document.sections, alone))
