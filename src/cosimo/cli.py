"""The command line: arguments in, objects out. Everything heavy is imported inside the verbs."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from cosimo.arguments import Described, with_system
from cosimo.core.errors import ConfigurationError, CosimoError, Interrupted, OutputError, RunError

if TYPE_CHECKING:
    from cosimo.core.result import Result

app = typer.Typer(
    name="cosimo",
    help="Co-simulation: say before running whether a coupling is stable and how wrong it is, then run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]


def _version(show: bool) -> None:
    if show:
        from cosimo import __version__

        print(f"cosimo {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Options before the verb."""


@app.command()
@with_system
def analyse(
    described: Described,
    stop_time: Annotated[float | None, typer.Option(help="Horizon of the global error in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Say whether the coupling is stable, how wrong it will be, which modes move; nothing is simulated."""
    from cosimo.analysis import analyse as analyse_system
    from cosimo.reporting.fields import verdict_fields

    verdict = analyse_system(described.system, described.master, horizon=stop_time)
    _print(verdict_fields(verdict) if json_ else str(verdict))


@app.command()
@with_system
def run(
    described: Described,
    start_time: Annotated[float, typer.Option(help="In seconds.")] = 0.0,
    stop_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    output_file: Annotated[Path | None, typer.Option(help="Where to write the rows (.csv).")] = None,
    json_: Json = False,
) -> None:
    """Run the system and write the rows; what was completed before an error or Ctrl-C is written too."""
    from cosimo.execution import run as run_system

    _require_writable(output_file)
    stop = start_time + described.stop if stop_time is None else stop_time
    begin = time.perf_counter()
    failure: RunError | None = None
    try:
        result = run_system(described.system, described.master, start=start_time, stop=stop, record="all")
    except RunError as error:
        if error.result is None:
            raise
        failure, result = error, error.result
    _report_run(result, time.perf_counter() - begin, output_file, json_, failure)
    if failure is not None:
        raise failure


def _report_run(result: Result, wall: float, path: Path | None, as_json: bool, failure: RunError | None) -> None:
    from cosimo.reporting.fields import run_fields

    if path is not None:
        result.write_csv(path)
    fields = run_fields(result, wall, str(path) if path else None)
    if as_json:
        if failure is not None:
            fields |= {"error": str(failure), "exit_code": failure.exit_code}
        _print(fields)
        return
    for warned in result.warnings:
        print(f"warning: {warned}", file=sys.stderr)
    end = f"to t = {result.time[-1]:g} s" if len(result) else "before the first row"
    speed = f"{fields['steps_per_second']:,.0f} steps/s" if fields["steps_per_second"] else "no steps"
    print(f"{fields['steps']} macro steps {end} in {wall:.3g} s ({speed})")
    if path is not None:
        print(f"{len(result)} rows of {len(result.names)} signals in {path}")


@app.command()
def problems(json_: Json = False) -> None:
    """List the built-in problems and their parameters."""
    from cosimo.problems import CATALOGUE

    if json_:
        listed = [
            {"name": p.name, "title": p.title, "citation": p.citation, "step_size": p.step, "parameters": p.parameters}
            for p in CATALOGUE.values()
        ]
        _print({"problems": listed})
        return
    for problem in CATALOGUE.values():
        print(f"{problem.name:28} {problem.title} ({problem.citation}); usual step {problem.step:g} s")
        if problem.parameters:
            print(f"{'':28}   {', '.join(f'{n}={v:g}' for n, v in problem.parameters.items())}")


@app.command()
def reproduce(
    papers: Annotated[
        list[str] | None, typer.Argument(metavar="[PAPER]…", help="glumac2018, gomes2018; all if none.")
    ] = None,
    json_: Json = False,
) -> None:
    """Print every number of the implemented papers: published, computed, verdict, reason."""
    from cosimo.problems import reproduce as reproduce_papers
    from cosimo.reporting.fields import item_fields
    from cosimo.reporting.tables import item_lines

    if json_:
        _print({"items": [item_fields(item) for item in reproduce_papers(papers or ())]})
        return
    for item in reproduce_papers(papers or ()):
        print("\n".join(item_lines(item)), flush=True)


def _require_writable(path: Path | None) -> None:
    """Refuse an output file that cannot be written before anything runs."""
    if path is None:
        return
    if path.suffix != ".csv":
        raise ConfigurationError(f"results are written as .csv; '{path}' has another ending.")
    if not path.parent.is_dir():
        raise OutputError(f"cannot write results to '{path}': the folder '{path.parent}' does not exist.")
    try:
        path.touch()
    except OSError as error:
        raise OutputError(f"cannot write results to '{path}': {error.strerror}.") from None


def _print(content: Any) -> None:
    print(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, allow_nan=False))


def _terminate(number: int, frame: object) -> NoReturn:
    Interrupted.exit_code = 128 + number
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and an exit code, never a traceback."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=True)
    except CosimoError as error:
        print(f"cosimo: {error}", file=sys.stderr)
        # A failed run has already printed its document, with the rows kept and the error.
        if "--json" in sys.argv and not (isinstance(error, RunError) and error.result is not None):
            _print({"error": str(error), "exit_code": error.exit_code})
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("cosimo: interrupted.", file=sys.stderr)
        sys.exit(Interrupted.exit_code)


if __name__ == "__main__":
    main()
