"""Going on with a run from a checkpoint, as if it had never been interrupted."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from cosimo.core import dataclass
from cosimo.core.errors import CheckpointError, ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.storage import file_digest
from cosimo.core.system import System
from cosimo.execution.checkpoints import EARLIER, read_checkpoint
from cosimo.execution.checkpoints.fingerprints import fingerprint, require_same
from cosimo.execution.engines import HALVINGS
from cosimo.execution.options import KEPT, Checkpoint, Progress, RunOptions
from cosimo.execution.recording import STREAM_SUFFIX
from cosimo.execution.running import execute, observed
from cosimo.formats.results import ResultFile
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.isolation import Isolation
from cosimo.units.fmi.model_exchange import Solver


@dataclass(frozen=True)
class Moved:
    """The folder of a checkpoint when it was written, and now: it may have been copied, or moved as a whole."""

    before: Path
    now: Path

    def find(self, stored: str | Path, suffix: str = "") -> Path:
        """The file as it lies from the checkpoint; where there is only the one that was meant once, that one.

        `suffix`: what the name of the file has beyond `stored`.
        """
        if self.before == self.now:
            return Path(stored)
        try:
            here = Path(os.path.normpath(self.now / os.path.relpath(stored, self.before)))
        except ValueError:  # it is on another drive
            return Path(stored)
        lost = not Path(f"{here}{suffix}").exists() and Path(f"{stored}{suffix}").exists()
        return Path(stored) if lost else here


@dataclass(frozen=True)
class Resumable:
    """A checkpoint that was read and recognised: the system, the master and the options of its run, what it `saved`."""

    system: System
    master: Master
    options: RunOptions
    saved: Mapping[str, Any]

    def run(self, *, progress: Progress | None = None) -> Result:
        """Go on; rows and further checkpoints go where they went."""
        return execute(self.system, self.master, replace(self.options, progress=progress), self.saved)


def resume(
    path: str | Path,
    system: System | None = None,
    master: Master | None = None,
    *,
    progress: Progress | None = None,
) -> Result:
    """Go on with the run that wrote the checkpoint `path` (or records to the output file `path`), to its end.

    Runs from the command line know their system and master; those from Python are given the same ones again.
    """
    return resumable(path, system, master).run(progress=progress)


def resumable(path: str | Path, system: System | None = None, master: Master | None = None) -> Resumable:
    """The checkpoint of a run, or the reason why it cannot be resumed; nothing on disk is changed."""
    saved = read_checkpoint(path)
    found = saved["path"]
    require_form(saved, found)
    moved = Moved(Path(saved["folder"]), Path(found).absolute().parent)
    checkpoint = Checkpoint(str(found).removesuffix(EARLIER), saved["every"])
    output = _output(saved["output"], moved, found)
    options = RunOptions.from_plain(saved["request"], found, output=output, checkpoint=checkpoint)
    options = _relocated(options, moved)
    if system is None or master is None:
        system, master = _rebuilt(options, found)
        _isolate(system, saved["isolation"], moved, found)
    system = observed(system, options)
    require_same(saved["fingerprint"], fingerprint(system, master, options.start), found)
    _require_fitting(saved, system, master, options)
    return Resumable(system, master, options, saved)


def _require_fitting(saved: Mapping[str, Any], system: System, master: Master, options: RunOptions) -> None:
    """Refuse what is possible, but not in this run."""
    found = saved["path"]
    # Adaptive steps have a place of their own, which is looked at when they are put back.
    if options.adaptive is None and not saved["step"] * master.step < options.stop - options.start:
        raise CheckpointError(
            f"'{found}' is damaged: macro step {saved['step']} is after the end; start the run again."
        )
    declared = {f"{name}.{variable}" for name, unit in system.units.items() for variable in unit.ranges()}
    if strangers := saved["ranges"].keys() - declared:
        raise CheckpointError(f"'{found}' is damaged: '{min(strangers)}' has no range; start the run again.")


def _output(stored: Mapping[str, Any], moved: Moved, found: object) -> ResultFile:
    """The file that rows go to, where it lies now."""
    variables = None if stored["variables"] is None else tuple(stored["variables"])
    try:
        path = moved.find(stored["path"], STREAM_SUFFIX)
        return ResultFile(**{**stored, "path": path, "variables": variables})
    except (ConfigurationError, TypeError) as problem:
        raise CheckpointError(f"'{found}' does not record where its rows are: {problem}") from None


def _isolate(system: System, stored: Mapping[str, Any], moved: Moved, found: object) -> None:
    """Put units back into processes of their own."""
    try:
        for name, options in stored.items():
            log = None if options["log"] is None else moved.find(options["log"])
            unit = system.units[name]
            if isinstance(unit, Fmu):
                unit.isolation = Isolation(**{**options, "log": log})
    except (KeyError, TypeError, ConfigurationError) as problem:
        raise CheckpointError(f"'{found}' does not record how its units were isolated: {problem}") from None


def _scenario(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Where a system came from; empty where that is not known."""
    scenario = metadata.get("scenario")
    return scenario if isinstance(scenario, dict) else {}


def _relocated(options: RunOptions, moved: Moved) -> RunOptions:
    """The options with the files of the scenario where they lie now, so that the next checkpoint says so too."""
    scenario = _scenario(options.metadata)
    stored = {name: scenario[name] for name in ("path", "input_file") if isinstance(scenario.get(name), str)}
    here = {**scenario, **{name: str(moved.find(path)) for name, path in stored.items()}}
    if not stored:
        return options
    return replace(options, metadata={**options.metadata, "scenario": here})


def _rebuilt(options: RunOptions, found: object) -> tuple[System, Master]:
    """The system and the master of a run from the command line."""
    from cosimo.formats.scenario import load
    from cosimo.masters.words import MasterOptions

    scenario = _scenario(options.metadata)
    if "master" not in scenario:
        raise CheckpointError(
            f"'{found}' does not record where its system comes from; give the system and the master: resume(path, "
            "system, master)."
        )
    try:
        changes = {"settings": scenario["settings"], "input_file": scenario.get("input_file")}
        solver = Solver(**scenario["solver"]) if "solver" in scenario else None
        changes |= {"solver": solver, "compile": scenario.get("compile")}
        loaded = load(scenario.get("path", scenario["system"]), **changes)
        if loaded.source is not None and "sha256" in scenario:
            digest = file_digest(loaded.source)
            if digest != scenario["sha256"]:
                raise CheckpointError(
                    f"'{loaded.source}' has changed since '{found}' was written; restore the original."
                )
        again = {"options": MasterOptions(**scenario["master"]), "step": scenario["step"]}
        return loaded.system, loaded.changed(**again, start=options.start, stop=options.stop).master
    except CheckpointError:
        raise
    except ConfigurationError as problem:
        raise CheckpointError(f"cannot build what '{found}' belongs to: {problem}") from problem
    except CosimoError:
        raise
    except Exception as problem:  # whatever is made of words that are none of ours
        raise CheckpointError(f"'{found}' does not record how its system was run: {problem!r:.200}.") from problem


# ---- what the entries of a checkpoint must be ------------------------------------------------------------------------
# A checksum that fits says that nothing was lost, not that it makes sense. What units, engines and couplings remember
# is theirs to check, when it is put back; so are the values of options.


Whole = Annotated[int, Field(ge=0, le=2**53)]  # larger ones are counts of nothing
Finite = Annotated[float, Field(allow_inf_nan=False)]
Duration = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _with(names: Iterable[str]) -> AfterValidator:
    """Exactly these entries."""
    known = set(names)

    def check(value: dict[str, Any]) -> dict[str, Any]:
        if value.keys() != known:
            raise ValueError("other entries")
        return value

    return AfterValidator(check)


class _Entries(BaseModel):
    model_config = ConfigDict(strict=True, arbitrary_types_allowed=True)


class _Output(_Entries):
    path: str
    variables: list[str] | None
    every: Annotated[int, Field(gt=0, le=2**53)]
    flush_interval: Duration


class _Fingerprint(_Entries):
    units: dict[str, str]
    inputs: dict[str, str]
    connections: str
    master: str


class _Position(_Entries):
    taken: Whole
    written: Whole
    run: str


class _Iterations(_Entries):
    count: Whole
    sweeps: Whole
    failed: Whole
    first_failed: Whole
    worst: float
    first_residual: float


class _Memory(_Entries):
    level: Annotated[int, Field(ge=0, le=HALVINGS)] = 0  # how often a macro step is halved
    rollbacks: Whole = 0


class _Signals(_Entries):
    outputs: dict[str, np.ndarray]
    inputs: dict[str, np.ndarray]
    memories: np.ndarray


class Form(_Entries):
    """All entries of a checkpoint but its versions."""

    request: Annotated[dict[str, Any], _with(KEPT)]
    output: _Output
    folder: str
    every: Duration
    fingerprint: _Fingerprint
    isolation: dict[str, Annotated[dict[str, Any], _with(field.name for field in fields(Isolation))]]
    run: str
    step: Whole
    position: _Position
    iterations: _Iterations
    ranges: dict[str, tuple[Finite, float, Whole]]
    stepping: Duration
    resumed_at: list[Finite]
    careful: bool
    memory: _Memory
    after: _Signals


def require_form(saved: Mapping[str, Any], path: object) -> None:
    """Refuse a checkpoint with an entry that is missing or is not what it must be."""
    try:
        form = Form.model_validate(dict(saved))
    except ValidationError as found:
        first = found.errors(include_url=False)[0]
        name = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise CheckpointError(f"'{path}' is not complete: '{name}' is missing; start the run again.") from None
        raise _damaged(name, first["input"], path) from None
    if form.position.taken <= form.step:
        raise _damaged("position.taken", form.position.taken, path)
    if form.position.written != -(-form.position.taken // form.output.every):
        raise _damaged("position.written", form.position.written, path)


def _damaged(name: str, value: Any, path: object) -> CheckpointError:
    return CheckpointError(f"'{path}' is damaged: its entry '{name}' cannot be {value!r:.40}; start the run again.")
