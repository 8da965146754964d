"""The verbs that run a system many times: `compensate`, `compare`, `sweep`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from cosimo.cli.application import app
from cosimo.cli.console_output import present
from cosimo.cli.isolation_options import IsolationOptions
from cosimo.cli.option_groups import (
    UNITS_OF_TIME,
    Json,
    OptionGroup,
    StartTime,
    StopTime,
    SystemName,
    TargetError,
    Texts,
    many,
    option,
    pairs,
    seconds,
    time_option,
)
from cosimo.cli.system_options import MasterChoice, SystemChoice, stop_of, with_experiment
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError

if TYPE_CHECKING:
    from cosimo.studies import Points

_TIME = re.compile(rf"[\d.][\d.eE+-]*\s*(?:{'|'.join(UNITS_OF_TIME)})\b")


@app.command()
def compensate(
    system: SystemName,
    master: MasterChoice,
    isolation: IsolationOptions,
    target: Annotated[
        str, option("monolithic (the units' own integrator), exact, or converged (the iteration at this step).")
    ] = "monolithic",
    stop_time: Annotated[float | None, time_option("Stop time of the runs, in seconds.")] = None,
    json_: Json = False,
) -> None:
    """Correct the exchanged inputs, show the effect on every mode, and run with and without the correction."""
    from cosimo.compensation import compare
    from cosimo.compensation import compensate as compensate_system
    from cosimo.reporting.documents import compensation_document

    scenario = master.scenario(system)
    stop = stop_of(scenario, stop_time)
    asked: Any = {"target": target, "start": scenario.start, "horizon": stop - scenario.start}
    found = compensate_system(scenario.system, scenario.master, **asked)
    compared = None if found.verdicts else compare(found, start=scenario.start, stop=stop)
    present(compensation_document(found, compared), as_fields=json_)


@app.command()
def compare(
    target: SystemName,
    changes: SystemChoice,
    isolation: IsolationOptions,
    couplings: Annotated[str | None, option("Separated by commas: {couplings}; default: one of each.")] = None,
    masters: Annotated[str, option("Separated by commas: {masters}.")] = "jacobi,gauss-seidel",
    step_size: Annotated[float | None, time_option("Communication step size (macro step) in seconds.")] = None,
    stop_time: StopTime = None,
    reference: Annotated[
        str, option("exact (linear systems), fine, monolithic (fresh exchange, same step), or auto.")
    ] = "auto",
    figure: Annotated[
        Path | None, option("Plot error against cost to this file, such as out.png.", metavar="FILE")
    ] = None,
    target_error: TargetError = None,
    json_: Json = False,
) -> None:
    """Run every combination of masters and couplings: trust, error and cost in one table."""
    from cosimo.analysis.memory import Memory
    from cosimo.analysis.model import Model
    from cosimo.couplings import COUPLINGS
    from cosimo.reporting.pictures import draw_comparison
    from cosimo.reporting.pictures import require as require_figures
    from cosimo.studies.trials import MasterComparison, combinations, try_masters
    from cosimo.studies.trials import reference as solve

    if figure:
        require_figures()
    scenario = with_experiment(target, changes.load(target), step_size, stop_time=stop_time, target_error=target_error)
    system, step, stop = scenario.system, scenario.step or 1.0, stop_of(scenario)
    model = Model(system, step=step, horizon=scenario.horizon, start=scenario.start, identify=False)
    wanted = solve(system, step=step, start=scenario.start, stop=stop, kind=reference, model=model)
    words = couplings or ",".join(word.example for word in COUPLINGS.values() if word.example)
    candidates = combinations(system, step, masters, words)
    trials = try_masters(model, candidates, wanted, target=scenario.target, memory=Memory())
    drawn = draw_comparison(f"{system.name}, macro step {step:g} s", wanted, trials, figure) if figure else None
    picture = str(drawn) if drawn else None
    found = MasterComparison(system.name, step, model.horizon, wanted, trials, picture, scenario.start)
    present(found.document, as_fields=json_)


@dataclass(frozen=True)
class SweptPoints(OptionGroup):
    """What is varied, and how."""

    title: ClassVar[str | None] = "What is varied"
    vary: Annotated[
        Texts, many("NAME=LOW:HIGH:COUNT (…:log for logarithmic spacing) or NAME=V1,V2,…: all combinations are run.")
    ] = None
    sample: Annotated[
        Texts,
        many("NAME=uniform:LOW:HIGH, log-uniform:LOW:HIGH or normal:MEAN:DEVIATION: the distribution to draw from."),
    ] = None
    runs: Annotated[int | None, option("Number of points to draw for --sample.")] = None
    seed: Annotated[int, option("Equal seeds draw equal points.")] = 0
    sampling: Annotated[str, option("latin (hypercube: evenly spread) or random (independent).")] = "latin"

    def points(self) -> Points:
        """All combinations of what is given, each with every drawn point."""
        from cosimo.studies import Grid, Sample, cross, parse_distribution, parse_values

        grids = {name: parse_values(text) for name, text in _once("--vary", self.vary).items()}
        laws = {name: parse_distribution(text) for name, text in _once("--sample", self.sample).items()}
        if not grids and not laws:
            raise ConfigurationError("nothing is varied; give --vary NAME=a:b:n or --sample NAME=uniform:a:b.")
        if laws and self.runs is None:
            raise ConfigurationError("--sample needs --runs, the number of points to draw.")
        if self.runs is not None and not laws:
            raise ConfigurationError("--runs sets how many points --sample draws; with --vary, leave it out.")
        designs: list[Any] = [Grid(grids)] if grids else []
        if laws:
            designs.append(Sample(laws, cast(int, self.runs), self.seed, cast(Any, self.sampling)))
        return cross(*designs)


def _once(option: str, texts: Texts) -> dict[str, str]:
    """What is given for each name; `step` is also called as its option is, and may have units of time."""
    parts = [pairs(option, [text], "NAME=…") for text in texts or []]
    found = [("step" if name == "step-size" else name, given) for part in parts for name, given in part.items()]
    names = [name for name, _ in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigurationError(f"{option} names '{twice}' twice; once is enough.")
    return {
        name: _TIME.sub(lambda time: repr(seconds(time[0])), given) if name == "step" else given
        for name, given in found
    }


@app.command()
def sweep(
    system: SystemName,
    master: MasterChoice,
    isolation: IsolationOptions,
    swept: SweptPoints,
    measure: Annotated[
        Texts, many("final, min, max, mean, rms, error, nrms, each also as rms:UNIT.OUTPUT; stable, radius.")
    ] = None,
    reference: Annotated[
        str, option("For error: exact, fine, monolithic, auto, or a result file to compare with.")
    ] = "auto",
    start_time: StartTime = None,
    stop_time: StopTime = None,
    stop_on_divergence: Annotated[bool, option("Stop runs that become unstable.")] = False,
    workers: Annotated[
        int | None,
        option("Number of local processes; default: one per processor where that is faster; 1: this process only."),
    ] = None,
    scheduler: Annotated[str | None, option("A Dask cluster, such as tcp://head:8786.", metavar="ADDRESS")] = None,
    output_file: Annotated[
        Path | None, option("One row per run: .parquet, .csv, .arrow, .arrows.", "--output-file", "-o")
    ] = None,
    resume: Annotated[bool, option("Continue the study whose rows are in --output-file.")] = False,
    json_: Json = False,
) -> None:
    """Run many variants (parameter sweep, Monte Carlo) on all processors or a cluster; keep a few numbers of each run.

    What can be varied: what --set changes (UNIT.PARAMETER, parameters of a built-in problem), and step-size.
    """
    from cosimo.reporting.documents import study_document
    from cosimo.reporting.progress import StudyProgress, show_on_terminal
    from cosimo.studies import Study, run_study
    from cosimo.studies.study import USUAL
    from cosimo.units.fmi.fmu import Fmu

    if workers is not None and scheduler is not None:
        raise ConfigurationError("--workers runs on this machine and --scheduler on a cluster; give only one of them.")
    described = master.scenario(system)
    points = swept.points()
    origin, units = described.provenance["scenario"], described.system.units
    study = Study(
        origin["system"],
        points,
        measures=tuple(measure or USUAL),
        master=described.options,
        step=None if "step" in points.names else described.step,
        start=described.start if start_time is None else start_time,
        stop=described.stop if stop_time is None else stop_time,
        **master.changes(system),
        reference=reference,
        stop_on_divergence=stop_on_divergence,
        target=described.target,
        isolation={n: u.isolation for n, u in units.items() if isinstance(u, Fmu) and (u.isolation or not u.trial)},
    )
    where: Any = {"workers": workers, "scheduler": scheduler, "output": output_file, "resume": resume}
    with show_on_terminal(StudyProgress()) as report:
        found = run_study(study, **where, progress=report)
    path = None if output_file is None else str(output_file)
    base = described if "step" in points.names else described.changed(stop=study.stop, start=study.start or 0.0)
    present(study_document(found, path, base.known_verdict()), as_fields=json_)
