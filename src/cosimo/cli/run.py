"""The verbs that run a system: `run`, and `resume`, which goes on with an interrupted run."""

from __future__ import annotations

import importlib
import itertools
import os
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cosimo.cli import Interruption
from cosimo.cli.application import app
from cosimo.cli.console_output import detail, hint, say, warn
from cosimo.cli.isolation_options import IsolationOptions, isolate_units
from cosimo.cli.option_groups import (
    Json,
    OptionGroup,
    StartTime,
    StopTime,
    SystemName,
    Texts,
    argument,
    many,
    option,
)
from cosimo.cli.system_options import AdaptiveChoice, MasterChoice, offered_fields, stop_of
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, RunError
from cosimo.core.formatting import counted, plain
from cosimo.core.storage import RESULT_SUFFIXES
from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions, RunOptions

if TYPE_CHECKING:
    from cosimo.core.result import Result
    from cosimo.formats.results import ResultFile
    from cosimo.formats.scenario import Scenario


@dataclass(frozen=True)
class Recording(OptionGroup):
    """What a run writes, and where."""

    title: ClassVar[str | None] = "Output"
    output_file: Annotated[
        Path | None,
        option(
            f"Where to write the rows: {', '.join(RESULT_SUFFIXES)}. Default: SYSTEM.parquet beside the scenario; in "
            "the working folder for an FMU or a problem.",
            "--output-file",
            "-o",
        ),
    ] = None
    no_output: Annotated[bool, option("Write no rows.")] = False
    variable: Annotated[Texts, many("Record only these, such as 'a.*'; also local variables of FMUs.")] = None
    every: Annotated[int, option("Record every N-th macro step, plus the first and the last.")] = 1

    def build(self, scenario: Scenario, target: str) -> ResultFile | None:
        """The file, None where no rows are written; a scenario may name the variables that are usually recorded."""
        from cosimo.formats.results import ResultFile

        if self.no_output:
            if self.output_file is not None or self.variable or self.every != 1:
                raise ConfigurationError(
                    "--no-output contradicts --output-file, --variable and --every; give one only."
                )
            return None
        path = self.output_file or default_file(scenario, target)
        names = tuple(self.variable) if self.variable else scenario.outputs
        Interruption.output = path
        return ResultFile(path, variables=names, every=self.every)


def default_file(scenario: Scenario, target: str) -> Path:
    """Where rows go unless told: SYSTEM.parquet beside the scenario; in the working folder for a problem or an FMU.

    The folder of an FMU is that of a library or of a download, not that of a study.

    The file of an earlier run without `--output-file` is replaced; all else stays, and the next free number is taken.
    """
    from cosimo.execution.recording import STREAM_SUFFIX
    from cosimo.formats.results import read_document

    source = scenario.source
    scenario_there = source is not None and source.suffix.lower() != ".fmu" and os.access(source.parent, os.W_OK)
    folder = source.parent if source is not None and scenario_there else Path()
    stem, origin = (target if source is None else source.stem), scenario.provenance["scenario"]
    path = folder / f"{stem}.parquet"
    for number in itertools.count(2):
        going_on = os.path.lexists(f"{path}{STREAM_SUFFIX}")  # or interrupted, and can be resumed
        if not going_on and not os.path.lexists(path):
            break
        earlier = {} if going_on else read_document(path).get("scenario") or {}
        same = "system" if source is None else "path"
        if earlier.get("unnamed_file") and earlier.get(same) == origin[same]:
            break
        path = folder / f"{stem}-{number}.parquet"
    return path


class RunChoice(AdaptiveChoice):
    """The same for all that the options of a run offer."""

    places = offered_fields(EngineOptions, RunOptions, Checkpoint, Adaptive)

    def build(self, **values: Any) -> RunOptions:
        """The options of the run, with further `values`."""
        said = self.said
        return RunOptions(
            engine=EngineOptions(**said[EngineOptions]),
            adaptive=self.adaptive,
            checkpoint=Checkpoint(**said[Checkpoint]) if said[Checkpoint] else None,
            **said[RunOptions],
            **values,
        )


@app.command()
def run(
    system: SystemName,
    master: MasterChoice,
    recording: Recording,
    choice: RunChoice,
    isolation: IsolationOptions,
    start_time: StartTime = None,
    stop_time: StopTime = None,
    power_pair: Annotated[
        Texts, many("UNIT.INPUT,UNIT.OUTPUT whose product is a power, watched for energy errors.")
    ] = None,
    check: Annotated[bool, option("Analyse the coupling first; do not run one that cannot be trusted.")] = False,
    anyway: Annotated[bool, option("check: run it anyway.")] = False,
    recommended: Annotated[bool, option("Analyse the coupling first, and run the master that is recommended.")] = False,
    json_: Json = False,
) -> None:
    """Run the system and write the rows; partial results are kept if the run fails or is interrupted."""
    from cosimo.execution.running import execute
    from cosimo.masters.words import command_options

    scenario = master.scenario(system)
    start, stop = scenario.start if start_time is None else start_time, stop_of(scenario, stop_time)
    scenario = scenario.changed(start=start, stop=stop)
    if recommended:
        if choice.adaptive is not None:
            raise ConfigurationError("--recommended chooses a fixed step; leave out --adaptive or --recommended.")
        scenario = _recommended(scenario, quiet=json_)
    if anyway and not check:
        raise ConfigurationError("--anyway belongs to --check; give both, or leave it out.")
    pairs = [*scenario.power_pairs, *map(_pair, power_pair or ())]
    output = recording.build(scenario, system)
    options = choice.build(start=start, stop=stop, record="all", output=output, power_pairs=pairs)
    if check and options.adaptive is not None:
        raise ConfigurationError("--check assesses runs with a fixed step; leave out --adaptive or --check.")
    verdict = _assessed(scenario, check or recommended, anyway or not check) if options.adaptive is None else None
    metadata: dict[str, Any] = {**scenario.provenance, "verdict": verdict}
    if recording.output_file is None:
        metadata["scenario"] = {**metadata["scenario"], "unnamed_file": True}
    detail(f"from {start:g} s to {stop:g} s by the {'adaptive' if options.adaptive else options.engine.kind} engine")

    def go(progress: Any) -> Result:
        return execute(scenario.system, scenario.master, replace(options, metadata=metadata, progress=progress))

    asking = f"cosimo analyse {master.words(system)} {command_options(scenario.master, scenario.system)}".rstrip()
    run_and_report(go, (start, stop, scenario.master.step), options.path, json_, asking, metadata)


@app.command()
def resume(
    file: Annotated[
        Path, argument("CHECKPOINT|OUTPUT", "A checkpoint, or the output file of a run with --checkpoint-every.")
    ],
    isolation: IsolationOptions,
    json_: Json = False,
) -> None:
    """Resume an interrupted run from its last checkpoint; the result is that of an uninterrupted run.

    The macro step after the checkpoint is repeated first and must give bit-identical values.
    """
    from cosimo.formats.resuming import resumable

    found = resumable(file)
    isolate_units(found.system)
    start = found.options.start + found.saved["step"] * found.master.step
    detail(f"resuming from t = {start:g} s to {found.options.stop:g} s")
    span = (start, found.options.stop, found.master.step)
    run_and_report(lambda progress: found.run(progress=progress), span, found.options.path, json_)


def _assessed(scenario: Scenario, check: bool, anyway: bool) -> dict[str, Any] | None:
    """What is known of the coupling before it is run; where it must be trusted, it is assessed first."""
    verdict = scenario.analyse() if check else scenario.known_verdict()
    if verdict is None:
        return None
    if check and not anyway and verdict.trust in ("no", "not assessed"):
        advice = verdict.recommendation.text if verdict.recommendation is not None else "ask 'cosimo analyse'."
        raise ConfigurationError(f"{verdict.headline[:1].lower()}{verdict.headline[1:]}; {advice} Or give --anyway.")
    return verdict.brief()


def _recommended(scenario: Scenario, *, quiet: bool) -> Scenario:
    """The scenario with the master that its verdict recommends, which may be the present one."""
    from cosimo.masters.words import base_step, options_of

    verdict = scenario.analyse()
    advice = verdict.recommendation
    if advice is None or advice.master is None:
        why = verdict.reasons.get("recommendation", verdict.headline) if advice is None else advice.text
        raise ConfigurationError(f"no master is recommended: {why.rstrip('.')}; leave --recommended out.")
    if not quiet:
        print(f"{advice.text[:1].upper()}{advice.text[1:]}")
    options = options_of(advice.master, scenario.system)
    if advice.keep or options is None:
        return scenario
    step = base_step(advice.master)
    how = {"step": step, "master": asdict(options)}
    provenance = {**scenario.provenance, "scenario": {**scenario.provenance["scenario"], **how}}
    return scenario.changed(step=step, options=options, provenance=provenance)


def _pair(text: str) -> tuple[str, str]:
    into, _, out = text.partition(",")
    if not into or not out:
        raise ConfigurationError(f"--power-pair expects UNIT.INPUT,UNIT.OUTPUT, not '{text}'.")
    return into.strip(), out.strip()


def run_and_report(
    go: Callable[[Any], Result],
    span: tuple[float, float, float],
    path: Path | None,
    as_json: bool,
    asking: str = "cosimo analyse",
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Run with a bar from start to stop by a step (`span`), and say what came out, also where the run fails.

    `asking` is the command that would assess the run; `metadata` is what a result without a file does not carry.
    """
    from cosimo.reporting.progress import DELAY, RunProgress, show_on_terminal

    if path is not None:
        name = "pyarrow.parquet" if path.suffix.lower() == ".parquet" else "pyarrow"
        importlib.import_module(name)  # takes longer than many a run, whose time is told
    begin = time.perf_counter()
    failure: RunError | None = None
    try:
        with show_on_terminal(RunProgress(*span), delay=DELAY) as progress:
            result = go(progress)
    except RunError as error:
        if error.result is None:
            raise
        failure, result = error, error.result
    for key in ("verdict", "scenario") if metadata is not None else ():
        result.info.setdefault(key, (metadata or {}).get(key))
    _report_run(result, time.perf_counter() - begin, path, as_json, failure, asking)
    if failure is not None:
        raise failure


def run_fields(result: Result, wall_time: float, output_file: str | None) -> dict[str, Any]:
    """What `run --json` prints; what is infinite or was not computed is null.

    Others script against these fields: change them only by adding.
    """
    info = result.info
    fields: dict[str, Any] = {
        "steps": int(info["steps"]),
        "end_time": info["end"],
        "wall_time": wall_time,
        "steps_per_second": info["steps"] / wall_time if wall_time > 0 else None,
        "output_file": output_file,
        "complete": result.complete,
        "verdict": info.get("verdict"),
        "stopped_at": info.get("stopped_at"),
        "warnings": [str(warned) for warned in result.warnings],
    }
    further = ("ended_by", "ended_at", "monitors", "rollbacks", "rejected", "unit_times")
    fields |= {name: info[name] for name in further if name in info}
    if "rejected" in info:
        fields |= {name: info.get(name) for name in ("shortest_step", "longest_step")}
    fields |= {name: info[name] for name in ("sweeps", "largest_residual", "unconverged") if "sweeps" in info}
    found: dict[str, Any] = plain(fields)
    return found


def _report_run(
    result: Result, wall: float, path: Path | None, as_json: bool, failure: RunError | None, asking: str
) -> None:
    fields = run_fields(result, wall, str(path) if path else None)
    detail(f"stepping the units took {result.info.get('stepping_time', 0.0):.3g} s of {wall:.3g} s")
    if as_json:
        if failure is not None:
            fields |= {"error": str(failure), "exit_code": failure.exit_code, **failure.fields()}
        say(fields)
        return
    _say_trust(fields["verdict"], asking)
    for warned in result.warnings:
        warn(warned)
    speed = f"{fields['steps_per_second']:,.0f} steps/s" if fields["steps_per_second"] else "no steps"
    if fields["stopped_at"] is not None:
        print(f"stopped at t = {fields['stopped_at']:g} s: the run grows without bound")
    print(f"{counted(fields['steps'], 'macro step')} to t = {fields['end_time']:g} s in {wall:.3g} s ({speed})")
    if fields.get("longest_step") is not None:
        lengths = f"of {fields['shortest_step']:.3g} s to {fields['longest_step']:.3g} s"
        print(f"steps {lengths}; {fields['rejected']} attempts rejected")
    if path is not None:
        print(f"{counted(len(result.names), 'signal')} in {path}")
        named = shlex.quote(str(path))
        hint(f"cosimo plot {named}, or cosimo report {named}")


def _say_trust(verdict: dict[str, Any] | None, asking: str) -> None:
    """One line: what the verdict says of this run, or how to get one."""
    if verdict is None:
        print(f"Not assessed: run '{asking}' to find out whether this result can be trusted.")
        return
    print(f"{verdict['headline']}.")
    advice = verdict["recommendation"]
    if verdict["trust"] != "yes" and advice is not None and not advice["keep"]:
        print(f"Fix: {advice['text']}")
