"""The command line: arguments in, objects out. Everything heavy is imported inside the verbs."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, cast

import typer
from typer.core import TyperGroup

from cosimo.arguments import MANY, SYSTEM, Described, with_system
from cosimo.core.errors import ConfigurationError, CosimoError, Interrupted, RunError

if TYPE_CHECKING:
    from cosimo.core.result import Result
    from cosimo.engines import EngineOptions
    from cosimo.formats.results import ResultFile


class _Verbs(TyperGroup):
    """Says what an interrupt means, wherever it comes; typer itself would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            kept = (
                "; rows recorded so far are in the '.partial' file beside the output"
                if "--output-file" in sys.argv
                else ""
            )
            raise Interrupted(f"interrupted{kept}.") from None


app = typer.Typer(
    name="cosimo",
    cls=_Verbs,
    help="Co-simulation: say before running whether a coupling is stable and how wrong it is, then run it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Span(NamedTuple):
    """From when to when a run goes, in seconds."""

    start: float
    stop: float


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
    start_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    stop_time: Annotated[float | None, typer.Option(help="In seconds.")] = None,
    output_file: Annotated[Path | None, typer.Option(help="Where to write: .parquet, .csv, .arrow, .mat.")] = None,
    variable: Annotated[list[str] | None, typer.Option(help=f"Record only what matches, such as 'a.*'. {MANY}")] = None,
    every: Annotated[int, typer.Option(help="Record every N-th macro step, and the first and last.")] = 1,
    engine: Annotated[str, typer.Option(help="kernel (compiled) or reference (plain Python).")] = "kernel",
    parallel: Annotated[bool | None, typer.Option(help="Step units in threads; default: where it pays.")] = None,
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
    _run(described, Span(start, stop), output, options, json_)


def _run(described: Described, span: Span, output: ResultFile | None, engine: EngineOptions, as_json: bool) -> None:
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
        _print(fields)
        return
    for warned in result.warnings:
        print(f"warning: {warned}", file=sys.stderr)
    speed = f"{fields['steps_per_second']:,.0f} steps/s" if fields["steps_per_second"] else "no steps"
    print(f"{fields['steps']} macro steps to t = {fields['end_time']:g} s in {wall:.3g} s ({speed})")
    if path is not None:
        print(f"{len(result.names)} signals in {path}")


@app.command()
@with_system
def compensate(
    described: Described,
    target: Annotated[str, typer.Option(help="monolithic (the units' own integrator) or exact.")] = "monolithic",
    stop_time: Annotated[float | None, typer.Option(help="Until when the runs go, in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Correct the exchanged inputs; say what that does to every mode; run without and with it, side by side."""
    from cosimo.compensation import compare
    from cosimo.compensation import compensate as compensate_system
    from cosimo.reporting.compensating import compensation_fields, compensation_text

    stop = described.stop if stop_time is None else stop_time
    if stop is None:
        raise ConfigurationError("the system does not say when to stop; give --stop-time.")
    found = compensate_system(described.system, described.master, target=cast(Any, target))
    compared = compare(found, start=described.start, stop=stop)
    _print(compensation_fields(found, compared) if json_ else compensation_text(found, compared))


@app.command()
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
    json_: Json = False,
) -> None:
    """Run every combination of masters and couplings: accuracy, stability and cost in one table."""
    from cosimo.arguments import bare_system
    from cosimo.reporting.comparing import comparison_fields, comparison_lines, draw_comparison
    from cosimo.trials import combinations, try_masters
    from cosimo.trials import reference as solve

    system, step, start, stop = bare_system(target, step_size, stop_time, set_)
    wanted = solve(system, step=step, start=start, stop=stop, kind=reference)
    trials = try_masters(system, combinations(system, step, masters, couplings), wanted, start=start, stop=stop)
    drawn = draw_comparison(f"{system.name}, macro step {step:g} s", wanted, trials, figure) if figure else None
    if json_:
        _print(comparison_fields(wanted, trials, str(drawn) if drawn else None))
    else:
        _print("\n".join(comparison_lines(wanted, trials)))


@app.command()
def info(target: Annotated[str, typer.Argument(metavar="FILE", help=SYSTEM)], json_: Json = False) -> None:
    """Describe an FMU or a system: variables, capabilities, connections, feedthrough, algebraic loops."""
    from cosimo.formats.information import describe

    description = describe(target)
    _print(description.to_dict() if json_ else str(description))


@app.command()
def validate(target: Annotated[str, typer.Argument(metavar="FILE", help=SYSTEM)], json_: Json = False) -> None:
    """Check an FMU or a system without running it; every problem is one line; the exit code is 2 if there are any."""
    from cosimo.formats.information import validate as find_problems

    problems = [str(problem) for problem in find_problems(target)]
    if json_:
        _print({"valid": not problems, "problems": problems})
    else:
        print("\n".join(problems) or f"{target}: no problems found")
    raise typer.Exit(2 if problems else 0)


@app.command()
def export(
    target: Annotated[str, typer.Argument(metavar="SYSTEM", help=SYSTEM)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .fmu or .ssp file, or a folder for all units.")],
    unit: Annotated[str | None, typer.Option(help="Which unit to write as an FMU.")] = None,
    fmi: Annotated[int, typer.Option(help="Version of FMI: 2 or 3.")] = 2,
    ssp: Annotated[bool, typer.Option("--ssp", help="Pack the whole system with its connections.")] = False,
    json_: Json = False,
) -> None:
    """Write linear units as FMUs: one unit, all units into a folder, or the whole system as an SSP package."""
    from cosimo.reporting.exporting import export_files

    files = [str(path) for path in export_files(target, output, unit=unit, fmi=fmi, ssp=ssp)]
    _print({"files": files} if json_ else "\n".join(files))


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
        list[str] | None,
        typer.Argument(metavar="[PAPER]…", help="One of the papers, such as tamellin2022; all if none."),
    ] = None,
    figures: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw the papers' figures into it.")] = None,
    json_: Json = False,
) -> None:
    """Print every number of the implemented papers: published, computed, verdict, reason; draw their figures."""
    from cosimo.problems import reproduce as reproduce_papers
    from cosimo.reporting.fields import item_fields
    from cosimo.reporting.tables import item_lines

    # First: a folder that cannot be written is known before anything long has been computed.
    drawn = {} if figures is None else {"figures": _draw(papers or [], figures)}
    if json_:
        _print({"items": [item_fields(item) for item in reproduce_papers(papers or ())]} | drawn)
        return
    for path in drawn.get("figures", ()):
        print(path, flush=True)
    for item in reproduce_papers(papers or ()):
        print("\n".join(item_lines(item)), flush=True)


def _draw(papers: list[str], folder: Path) -> list[str]:
    from cosimo.reporting.figures import draw, without_figures

    files = [str(path) for path in draw(papers, folder)]
    if none := without_figures(papers):
        print(f"no figures are drawn for {', '.join(none)}", file=sys.stderr)
    return files


def _print(content: Any) -> None:
    print(content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, allow_nan=False))


def _terminate(number: int, frame: object) -> NoReturn:
    Interrupted.exit_code = 128 + number
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line; a user's mistake is one line on standard error and an exit code, never a traceback."""
    # Our matrices are small: threads inside the linear algebra cost more than they bring. Set before NumPy is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app(standalone_mode=True)
    except CosimoError as error:
        print(f"cosimo: {error}", file=sys.stderr)
        # A failed run has already printed its document, with the rows kept and the error.
        if "--json" in sys.argv and not (isinstance(error, RunError) and error.result is not None):
            _print({"error": str(error), "exit_code": error.exit_code})
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
