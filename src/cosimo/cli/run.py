"""The verb `run`."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import MANY, Scenario, stop_of, with_system
from cosimo.cli.isolating import isolating
from cosimo.cli.voice import detail, hint, warn
from cosimo.core.errors import ConfigurationError, RunError
from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions, RunOptions

if TYPE_CHECKING:
    from cosimo.core.result import Result

Said = dict[type, dict[str, Any]]
"""By class of options, the fields that were given."""


def with_run_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Give a verb an option for every field that the options of a run offer, and hand it those given, as `said`."""
    described, _, *own = inspect.signature(verb, eval_str=True).parameters.values()
    places = {
        option.metadata["word"] or option.name: (kind, option)
        for kind in (EngineOptions, RunOptions, Checkpoint, Adaptive)
        for option in fields(kind)
        if "help" in option.metadata
    }

    @functools.wraps(verb)
    def wrapped(described: Scenario, **given: Any) -> None:
        said: Said = {kind: {} for kind, _ in places.values()}
        for word, (kind, option) in places.items():
            if (value := given.pop(word)) is not None:
                said[kind][option.name] = value
        verb(described, said, **given)

    added = [_parameter(word, get_type_hints(kind)[option.name], option) for word, (kind, option) in places.items()]
    wrapped.__signature__ = inspect.Signature([described, *own, *added])  # type: ignore[attr-defined]
    del wrapped.__wrapped__
    return wrapped


def _parameter(word: str, hint: Any, option: Field[Any]) -> inspect.Parameter:
    """An option that is None where it is not given; texts are checked by the class that takes them."""
    parts = [part for part in get_args(hint) if part is not type(None)]
    kind: Any = str if get_origin(hint) is Literal else parts[0] if parts else hint
    flags = [f"--{word.replace('_', '-')}"] if kind is bool and option.default is False else []
    annotation: Any = Annotated[kind | None, typer.Option(*flags, help=option.metadata["help"])]
    return inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


@app.command()
@isolating
@with_system
@with_run_options
def run(
    described: Scenario,
    said: Said,
    start_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    stop_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    output_file: Annotated[
        Path | None,
        typer.Option("--output-file", "-o", help="Where to write the rows: .parquet, .csv, .arrow, .arrows, .mat."),
    ] = None,
    variable: Annotated[list[str] | None, typer.Option(help=f"Record only what matches, such as 'a.*'. {MANY}")] = None,
    every: Annotated[int, typer.Option(help="Record every N-th macro step, and the first and last.")] = 1,
    power_pair: Annotated[
        list[str] | None, typer.Option(help=f"UNIT.INPUT,UNIT.OUTPUT whose product is a power. {MANY}")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Assess the coupling first; refuse one that cannot be trusted.")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="check: run it all the same.")] = False,
    json_: Json = False,
) -> None:
    """Run the system and write the rows; partial results are kept if the run fails or is interrupted."""
    from cosimo.formats.results import ResultFile

    start = described.start if start_time is None else start_time
    stop = stop_of(described, stop_time)
    described = described.changed(start=start, stop=stop)
    if anyway and not check:
        raise ConfigurationError("--anyway belongs to --check; give both, or leave it out.")
    adaptive = _adaptive(said[Adaptive])
    if check and adaptive is not None:
        raise ConfigurationError("--check assesses runs with a fixed step; leave out --adaptive or --check.")
    if output_file is None and (variable or every != 1):
        raise ConfigurationError("--variable and --every choose what is written; give --output-file as well.")
    patterns = tuple(variable) if variable else described.outputs
    output = ResultFile(output_file, variables=patterns, every=every) if output_file else None
    options = RunOptions(
        start=start,
        stop=stop,
        record="all",
        output=output,
        engine=EngineOptions(**said[EngineOptions]),
        adaptive=adaptive,
        power_pairs=[*described.power_pairs, *map(_pair, power_pair or ())],
        checkpoint=Checkpoint(**said[Checkpoint]) if said[Checkpoint] else None,
        **said[RunOptions],
    )
    verdict = _assessed(described, check, anyway) if options.adaptive is None else None
    described = described.changed(provenance={**described.provenance, "verdict": verdict})
    _run(described, replace(options, metadata=described.provenance), json_)


def _assessed(scenario: Scenario, check: bool, anyway: bool) -> dict[str, Any] | None:
    """What is known of the coupling before it is run; where it must be trusted, it is assessed first."""
    verdict = scenario.analyse() if check else scenario.known_verdict()
    if verdict is None:
        return None
    if check and not anyway and verdict.trust in ("no", "not assessed"):
        advice = verdict.recommendation.text if verdict.recommendation is not None else "ask 'cosimo analyse'."
        raise ConfigurationError(f"{verdict.headline[:1].lower()}{verdict.headline[1:]}; {advice} Or give --anyway.")
    return verdict.brief()


def _adaptive(said: dict[str, Any]) -> Adaptive | None:
    if said and "kind" not in said:
        raise ConfigurationError("tolerances and lengths of steps belong to an adaptive run; give --adaptive as well.")
    return Adaptive(**said) if said else None


def _pair(text: str) -> tuple[str, str]:
    into, _, out = text.partition(",")
    if not into or not out:
        raise ConfigurationError(f"--power-pair wants UNIT.INPUT,UNIT.OUTPUT, not '{text}'.")
    return into.strip(), out.strip()


def _run(described: Scenario, options: RunOptions, as_json: bool) -> None:
    from cosimo.execution.running import execute
    from cosimo.masters.words import command_options
    from cosimo.reporting.progress import DELAY, RunProgress, show_on_terminal

    begin = time.perf_counter()
    failure: RunError | None = None
    system, master = described.system, described.master
    kind = "adaptive" if options.adaptive else options.engine.kind
    detail(f"from {options.start:g} s to {options.stop:g} s by the {kind} engine")
    try:
        with show_on_terminal(RunProgress(options.start, options.stop, master.step), delay=DELAY) as progress:
            result = execute(system, master, replace(options, progress=progress))
    except RunError as error:
        if error.result is None:
            raise
        failure, result = error, error.result
    result.info.setdefault("verdict", described.provenance.get("verdict"))
    result.info.setdefault("scenario", described.provenance.get("scenario"))
    asking = f"{described.provenance['scenario']['system']} {command_options(master, system)}"
    wall = time.perf_counter() - begin
    report_run(result, wall, options.path, as_json, failure, asking=f"cosimo analyse {asking.rstrip()}")
    if failure is not None:
        raise failure


def report_run(
    result: Result,
    wall: float,
    path: object,
    as_json: bool,
    failure: RunError | None,
    *,
    asking: str = "cosimo analyse",
) -> None:
    """Say what came out of a run, also of one that failed; `asking` is the command that would assess it."""
    from cosimo.reporting.documents import run_fields

    fields = run_fields(result, wall, str(path) if path else None)
    verdict = fields["verdict"]
    detail(f"stepping the units took {result.info.get('stepping_time', 0.0):.3g} s of {wall:.3g} s")
    if as_json:
        if failure is not None:
            fields |= {"error": str(failure), "exit_code": failure.exit_code, **failure.fields()}
        say(fields)
        return
    _say_trust(verdict, asking)
    for warned in result.warnings:
        warn(warned)
    speed = f"{fields['steps_per_second']:,.0f} steps/s" if fields["steps_per_second"] else "no steps"
    if fields["stopped_at"] is not None:
        print(f"stopped at t = {fields['stopped_at']:g} s: the run grows without bound")
    print(f"{fields['steps']} macro steps to t = {fields['end_time']:g} s in {wall:.3g} s ({speed})")
    if fields.get("longest_step") is not None:
        lengths = f"of {fields['shortest_step']:.3g} s to {fields['longest_step']:.3g} s"
        print(f"steps {lengths}; {fields['rejected']} attempts rejected")
    if path is not None:
        print(f"{len(result.names)} signals in {path}")
        hint(f"cosimo plot {path}, or cosimo report {path}")
    elif failure is None:
        hint(f"give --output-file {result.info['system']}.parquet to keep the rows, for 'cosimo plot' and 'report'")


def _say_trust(verdict: dict[str, Any] | None, asking: str) -> None:
    """One line: what the verdict says of this run, or how to get one."""
    if verdict is None:
        print(f"Not assessed: '{asking}' says whether this result can be trusted.")
        return
    print(f"{verdict['headline']}.")
    advice = verdict["recommendation"]
    if verdict["trust"] != "yes" and advice is not None and not advice["keep"]:
        print(f"Fix: {advice['text']}")
