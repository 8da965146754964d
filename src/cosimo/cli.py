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
from typer.core import TyperCommand, TyperGroup

from cosimo.arguments import MANY, SYSTEM, Described, load_target, with_system
from cosimo.core.errors import ConfigurationError, CosimoError, Interrupted, RunError

if TYPE_CHECKING:
    from cosimo.adaptive import Adaptive
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


ALONG = 12
"""Times of a run at which `analyse --along` looks, unless it is told."""


class Span(NamedTuple):
    """From when to when a run goes, in seconds."""

    start: float
    stop: float


class Watching(NamedTuple):
    """What of a run is watched beyond the usual, and whether it ends when it grows."""

    stop: bool
    power_pairs: list[tuple[str, str]]


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


class _Analyse(TyperCommand):
    """Lets `--along` stand alone: as many times of the run as are usual."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        given: list[str] = []
        for word, following in zip(args, [*args[1:], ""], strict=True):
            given += [word, str(ALONG)] if word == "--along" and not following.lstrip("-").isdigit() else [word]
        return super().parse_args(ctx, given)


@app.command(cls=_Analyse)
@with_system
def analyse(
    described: Described,
    stop_time: Annotated[float | None, typer.Option(help="Horizon of the global error in seconds.")] = None,
    at: Annotated[str | None, typer.Option(help="Also at these times of a reference run, such as 0,1.5,3.")] = None,
    along: Annotated[
        int | None, typer.Option(metavar="[N]", help=f"Also along a reference run, at N times (alone: {ALONG}).")
    ] = None,
    json_: Json = False,
) -> None:
    """Say whether the coupling is stable, how wrong it will be, which modes move, and what to do.

    Units that are not linear are identified by small experiments; the system itself is run only for --at and --along.
    """
    from cosimo.reporting.assessing import Question, analysis_fields, analysis_text

    start, stop = described.start, described.stop
    usual = stop - start if stop is not None and stop > start else None
    asked = Question(described.system, described.master, start, usual, stop_time, _times(at), along)
    _print(analysis_fields(asked) if json_ else analysis_text(asked))


def _times(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in (text or "").split(",") if word.strip())
    except ValueError:
        raise ConfigurationError(f"--at wants times in seconds separated by commas, not '{text}'.") from None


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
        _print(fields)
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
        families=_words(masters),
        order=_words(order) if order else None,
        kinds=parse_kinds(_words(couplings)),
        compensation=compensation,
        budget=budget,
    )
    weights = measured_weights(system, step_size or loaded.step or 1e-3) if measure_cost else {}
    settings = Settings(method=cast(Any, method), cost=Cost(weights, workers), resume=resume)
    goals = _words(objectives)
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
        _print(tuned_fields(found, verified, drawn))
    else:
        _print("\n".join([str(found), *(verification_lines(verified) if verified else [])]))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


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
