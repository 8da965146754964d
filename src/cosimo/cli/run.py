"""The verb `run`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from cosimo.cli.application import Json, app, say
from cosimo.cli.arguments import MANY, Described, with_system
from cosimo.core.errors import ConfigurationError, RunError

if TYPE_CHECKING:
    from cosimo.adaptive import Adaptive
    from cosimo.core.result import Result
    from cosimo.engines import EngineOptions
    from cosimo.formats.results import ResultFile


class Span(NamedTuple):
    """From when to when a run goes, in seconds."""

    start: float
    stop: float


class Watching(NamedTuple):
    """What of a run is watched beyond the usual, and whether it ends when it grows."""

    stop: bool
    power_pairs: list[tuple[str, str]]


@app.command()
@with_system
def run(
    described: Described,
    start_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    stop_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    output_file: Annotated[Path | None, typer.Option(help="Where to write: .parquet, .csv, .arrow, .mat.")] = None,
    variable: Annotated[list[str] | None, typer.Option(help=f"Record only what matches, such as 'a.*'. {MANY}")] = None,
    every: Annotated[int, typer.Option(help="Record every N-th macro step, and the first and last.")] = 1,
    engine: Annotated[str, typer.Option(help="kernel (compiled) or reference (plain Python).")] = "kernel",
    parallel: Annotated[bool | None, typer.Option(help="Step units in threads; default: where it pays.")] = None,
    stop_on_divergence: Annotated[
        bool, typer.Option("--stop-on-divergence", help="End a run that becomes unstable.")
    ] = False,
    power_pair: Annotated[
        list[str] | None, typer.Option(help=f"UNIT.INPUT,UNIT.OUTPUT whose product is a power. {MANY}")
    ] = None,
    adaptive: Annotated[
        str | None, typer.Option(help="Choose macro steps by energy (residuals) or doubling (restores states).")
    ] = None,
    tolerance_relative: Annotated[
        float | None, typer.Option(help="adaptive: error per step, of the largest value so far.")
    ] = None,
    tolerance_absolute: Annotated[float | None, typer.Option(help="adaptive: added to the relative one.")] = None,
    shortest_step: Annotated[float | None, typer.Option(help="adaptive: in seconds.")] = None,
    longest_step: Annotated[float | None, typer.Option(help="adaptive: in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Run the system and write the rows; what was completed before an error or Ctrl-C is written too."""
    from cosimo.engines import EngineOptions
    from cosimo.formats.results import ResultFile

    start = described.start if start_time is None else start_time
    stop = described.stop if stop_time is None else stop_time
    if stop is None:
        raise ConfigurationError("the system does not say when to stop; give --stop-time.")
    if output_file is None and (variable or every != 1):
        raise ConfigurationError("--variable and --every choose what is written; give --output-file as well.")
    patterns = tuple(variable) if variable else described.outputs
    output = ResultFile(output_file, variables=patterns, every=every) if output_file else None
    options = EngineOptions(kind=cast(Any, engine), parallel=parallel)
    watching = Watching(stop_on_divergence, [_pair(text) for text in power_pair or ()])
    lengths = {"shortest": shortest_step, "longest": longest_step}
    chosen = _adaptive(adaptive, {"relative": tolerance_relative, "absolute": tolerance_absolute, **lengths})
    _run(described, Span(start, stop), output, options, watching, chosen, json_)


def _adaptive(kind: str | None, given: dict[str, float | None]) -> Adaptive | None:
    from cosimo.adaptive import Adaptive

    said = {name: value for name, value in given.items() if value is not None}
    if kind is None:
        if said:
            raise ConfigurationError("tolerances and lengths of steps are those of --adaptive energy or doubling.")
        return None
    return Adaptive(cast(Any, kind), **cast(Any, said))


def _pair(text: str) -> tuple[str, str]:
    into, _, out = text.partition(",")
    if not into or not out:
        raise ConfigurationError(f"--power-pair wants UNIT.INPUT,UNIT.OUTPUT, not '{text}'.")
    return into.strip(), out.strip()


def _run(
    described: Described,
    span: Span,
    output: ResultFile | None,
    engine: EngineOptions,
    watching: Watching,
    adaptive: Adaptive | None,
    as_json: bool,
) -> None:
    from cosimo.execution import run as run_system

    begin = time.perf_counter()
    failure: RunError | None = None
    system, master = described.system, described.master
    try:
        result = run_system(
            system,
            master,
            start=span.start,
            stop=span.stop,
            record="all",
            output=output,
            engine=engine,
            metadata=described.scenario,
            adaptive=adaptive,
            power_pairs=watching.power_pairs,
            stop_on_divergence=watching.stop,
        )
    except RunError as error:
        if error.result is None:
            raise
        failure, result = error, error.result
    _report_run(result, time.perf_counter() - begin, output.path if output else None, as_json, failure)
    if failure is not None:
        raise failure


def _report_run(result: Result, wall: float, path: object, as_json: bool, failure: RunError | None) -> None:
    from cosimo.reporting.fields import run_fields

    fields = run_fields(result, wall, str(path) if path else None)
    if as_json:
        if failure is not None:
            fields |= {"error": str(failure), "exit_code": failure.exit_code}
        say(fields)
        return
    for warned in result.warnings:
        print(f"warning: {warned}", file=sys.stderr)
    speed = f"{fields['steps_per_second']:,.0f} steps/s" if fields["steps_per_second"] else "no steps"
    if fields["stopped_at"] is not None:
        print(f"stopped at t = {fields['stopped_at']:g} s: the run grows without bound")
    print(f"{fields['steps']} macro steps to t = {fields['end_time']:g} s in {wall:.3g} s ({speed})")
    if fields.get("longest_step") is not None:
        lengths = f"of {fields['shortest_step']:.3g} s to {fields['longest_step']:.3g} s"
        print(f"steps {lengths}; {fields['rejected']} attempts rejected")
    if path is not None:
        print(f"{len(result.names)} signals in {path}")
