"""The verbs that make pages: `report`, one that is written, and `studio`, one that is served."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cosimo.cli.application import app
from cosimo.cli.completion import RESULTS
from cosimo.cli.console_output import say
from cosimo.cli.isolation_options import IsolationOptions, PassedIsolation, isolate_units
from cosimo.cli.option_groups import SYSTEM, Json, Texts, argument, many, option, time_option
from cosimo.cli.system_options import MasterChoice
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.core.system import System
    from cosimo.formats.scenario import Scenario
    from cosimo.reporting.report import Variation
    from cosimo.studio.page_state import State


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
    interactive: Annotated[bool, option("The page of 'cosimo studio', with a slider over computed steps.")] = False,
    variable: Annotated[Texts, many("interactive: show the trajectories of these outputs.")] = None,
    json_: Json = False,
) -> None:
    """Write one self-contained HTML page that tells whether the coupling can be trusted, and why."""
    if interactive:
        others = {"title": title, "run": run, "tune": tune, "compensate": compensate, "parameter": parameter}
        _require_alone({**others, "reference": reference, "summary": summary})
        _write_interactive(targets, master, isolation, stop_time, variable or (), output_file, json_)
        return
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
    _say_written(page.write(output_file), [section.key for section in page.sections], json_)


def _say_written(path: Path, parts: list[str], as_json: bool) -> None:
    size = path.stat().st_size
    if as_json:
        say({"output_file": str(path), "bytes": size, "sections": parts})
    else:
        say(f"{path} ({size / 1e6:.2g} MB): {', '.join(parts)}")


def _require_alone(others: dict[str, Any]) -> None:
    if given := [name for name, value in others.items() if value]:
        raise ConfigurationError(f"--interactive writes the page of the studio, without --{given[0]}; leave one out.")


def _write_interactive(
    targets: list[str],
    master: MasterChoice,
    isolation: IsolationOptions,
    stop_time: float | None,
    outputs: Sequence[str],
    path: Path,
    as_json: bool,
) -> None:
    from cosimo.studio.frozen import FrozenPage, freeze
    from cosimo.studio.page_state import prepare_with

    if len(targets) != 1 or Path(targets[0]).suffix in RESULTS:
        raise ConfigurationError("--interactive shows one system; give one, and no results.")
    state, _ = _state(targets[0], master, stop_time, isolation)
    prepare_with(isolate_units)
    FrozenPage(freeze(replace(state, system=targets[0]), outputs)).write(path)
    _say_written(path, ["verdict", "coupling", "pictures", "text"], as_json)


def _server() -> Any:
    """What serves the page, where the extra is installed."""
    try:
        return import_module("cosimo.studio.server")
    except ModuleNotFoundError as missing:
        raise ConfigurationError(f"the studio needs {missing.name}; install 'cosimo[studio]'.") from None


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


@app.command()
def studio(
    master: MasterChoice,
    isolation: PassedIsolation,
    targets: Annotated[
        list[str] | None,
        argument("[SYSTEM|FMU…]", f"{SYSTEM} Several FMUs are coupled as 'new' does. Default: two-mass."),
    ] = None,
    stop_time: Annotated[float | None, time_option("Stop time of runs and errors, in seconds.")] = None,
    port: Annotated[int, option("The port of the page; default: one that is free.")] = 0,
    no_browser: Annotated[bool, option("Print the address only.", "--no-browser")] = False,
    json_: Json = False,
) -> None:
    """Open a page on which the step, the master and the couplings are turned, and the verdict moves with them.

    It is served on this machine alone, at an address with a random token, until Ctrl-C. What the page sets is shown as
    a command line and as lines of the scenario; runs write ordinary result files.
    """
    server = _server()
    system = _one_system(targets or ["two-mass"], quiet=json_)
    state, folder = _state(system, master, stop_time, isolation)
    opened = server.bind(port)

    def ready(address: str) -> None:
        words = f"studio of {system}: {address}\nCtrl-C ends it."
        say({"system": system, "address": address} if json_ else words)
        sys.stdout.flush()
        if not no_browser:
            import webbrowser

            webbrowser.open(address)

    with suppress(KeyboardInterrupt):
        server.serve(server.Studio(state, folder), opened, ready)


@app.command(hidden=True)
def evaluate(isolation: IsolationOptions, json_: Json = False) -> None:
    """Answer what the page of the studio asks, one line of JSON each; the studio starts it."""
    from cosimo.studio.page_state import main

    main(isolate_units)


def _one_system(targets: list[str], *, quiet: bool) -> str:
    """The system, or the scenario that is written for several FMUs."""
    if len(targets) == 1:
        return targets[0]
    if other := [name for name in targets if Path(name).suffix.lower() != ".fmu"]:
        raise ConfigurationError(f"'{other[0]}' is not the only system; give one system, or several FMUs to couple.")
    from cosimo.studio.page_state import couple

    made = couple(Path.cwd(), targets)
    if not quiet:
        say(f"{made['system']} is written, with {len(made['connections'])} connections")
    return str(made["system"])


def _state(
    system: str, master: MasterChoice, stop_time: float | None, isolation: IsolationOptions
) -> tuple[State, Path]:
    """What the page shows first, and the folder in which it reads and writes: that of the file, or this one."""
    from cosimo.studio.page_state import State

    scenario = master.scenario(system)
    fixed = {name: getattr(master, name) for name in ("input_file", "solver", "relative_tolerance", "compile")}
    given = {name: value for name, value in {**fixed, **asdict(isolation)}.items() if value not in (None, False, ())}
    if master.input_file is not None:
        given["input_file"] = str(master.input_file.absolute())
    state = State(
        system if scenario.source is None else scenario.source.name,
        settings=master.changes(system)["settings"],
        step=master.step_size,
        master=scenario.options if set(master.named) - {"--set", "--step-size", "--target-error"} else None,
        target=master.target_error,
        stop=stop_time,
        fixed=given,
    )
    return state, Path.cwd() if scenario.source is None else scenario.source.resolve().parent
