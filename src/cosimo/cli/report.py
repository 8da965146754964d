"""The verb `report`."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cosimo.cli.application import app
from cosimo.cli.completion import RESULTS
from cosimo.cli.console_output import say
from cosimo.cli.isolation_options import IsolationOptions
from cosimo.cli.option_groups import Json, argument, option, time_option
from cosimo.cli.system_options import MasterChoice
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.core.system import System
    from cosimo.formats.scenario import Scenario
    from cosimo.reporting.report import Variation


@app.command()
def report(
    targets: Annotated[list[str], argument("SYSTEM|RESULT…", "A system, result files of 'cosimo run', or both.")],
    master: MasterChoice,
    isolation: IsolationOptions,
    output_file: Annotated[Path, option("The page to write.", "--output-file", "-o")] = Path("report.html"),
    title: Annotated[str | None, option("The heading; default: the name of the system.")] = None,
    run: Annotated[
        bool | None,
        option("Run the system and its alternatives; default: if that takes a few seconds.", "--run/--no-run"),
    ] = None,
    stop_time: Annotated[float | None, time_option("Stop time of runs and errors, in seconds.")] = None,
    tune: Annotated[bool, option("Search for a better master and show the Pareto front.")] = False,
    evaluations: Annotated[int, option("tune: maximum number of candidates.")] = 600,
    compensate: Annotated[bool, option("Design a compensation and show the modes.")] = False,
    target: Annotated[str, option("compensate: monolithic, exact or converged.")] = "monolithic",
    parameter: Annotated[
        str | None, option("Also show stability over a parameter of the problem.", metavar="NAME=FROM:TO")
    ] = None,
    reference: Annotated[Path | None, option("The result file that runs are compared with.", metavar="RESULT")] = None,
    summary: Annotated[bool, option("Only what fits on one sheet: the verdict and the runs.")] = False,
    json_: Json = False,
) -> None:
    """Write one self-contained HTML page that tells whether the coupling can be trusted, and why."""
    from cosimo.reporting.progress import PilotProgress, show_on_terminal
    from cosimo.reporting.report import report as make
    from cosimo.reporting.report.computation import Asked, prepare, read_runs

    described = _system(targets, master)
    things: list[Any] = [*read_runs([name for name in targets if Path(name).suffix in RESULTS])]
    shown: dict[str, Any] = {"horizon": stop_time}
    if described is not None:
        start, stop = described.start, described.stop if stop_time is None else stop_time
        wanted: Any = {"tune": tune, "evaluations": evaluations, "compensate": compensate, "aim": target, "run": run}
        of: Any = {"start": start, "target": described.target}
        asked = Asked(described.system, described.master, stop=stop, metadata=described.provenance, **of, **wanted)
        with show_on_terminal(PilotProgress(), shown=not json_) as progress:
            ready, source = prepare(asked, progress=progress), described.provenance["scenario"]
        shown = {
            "horizon": asked.horizon,
            "model": ready.model,
            "reference": ready.reference,
            "seconds": ready.seconds,
            "source": source,
            **of,
        }
        shown["variation"] = _variation(described, parameter) if parameter else None
        things = [described.system, described.master, *ready.things, *things]
    elif run or tune or compensate or parameter:
        raise ConfigurationError("--run, --tune, --compensate and --parameter need a system; give one as well.")
    if reference:
        shown["reference"] = replace(read_runs([str(reference)])[0], role="reference")
    page = make(*things, title=title, command=shlex.join(["cosimo", *sys.argv[1:]]), summary=summary, **shown)
    written = page.write(output_file)
    size, parts = written.stat().st_size, [section.key for section in page.sections]
    if json_:
        say({"output_file": str(written), "bytes": size, "sections": parts})
    else:
        say(f"{written} ({size / 1e6:.2g} MB): {', '.join(parts)}")


def _system(targets: list[str], master: MasterChoice) -> Scenario | None:
    """The one system among result files, None where there is none."""
    systems = [target for target in targets if Path(target).suffix not in RESULTS]
    if len(systems) > 1:
        raise ConfigurationError(f"'{systems[0]}' and '{systems[1]}' are two systems; give one, and results of it.")
    if not systems and master.named:
        raise ConfigurationError(f"{master.named[0]} describes how a system is run; give the system as well.")
    return master.scenario(systems[0]) if systems else None


def _variation(described: Scenario, text: str) -> Variation:
    from cosimo.formats.scenario import load
    from cosimo.problems import CATALOGUE
    from cosimo.reporting.report.computation import parse_variation

    source = described.provenance["scenario"]
    settings = dict(source["settings"])

    def build(name: str, value: float) -> System:
        given = source.get("input_file")
        return load(source["system"], settings={**settings, name: value}, input_file=given).system

    usual = CATALOGUE[source["system"]].parameters if source["system"] in CATALOGUE else {}
    return parse_variation(text, build, {**usual, **settings})
