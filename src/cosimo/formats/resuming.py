"""Going on with a run from a checkpoint, as if it had never been interrupted."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cosimo.core.errors import CheckpointError, ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.checkpoints import Checkpoint, read_checkpoint
from cosimo.execution.checkpoints.entries import require_form
from cosimo.execution.checkpoints.files import EARLIER
from cosimo.execution.checkpoints.fingerprints import fingerprint, require_same
from cosimo.execution.checkpoints.requests import Moved, Request, Target, keep_apart
from cosimo.execution.recording import Position, Recorder
from cosimo.execution.running import execute
from cosimo.execution.sessions import Progress
from cosimo.formats.results import ResultFile, convert


@dataclass(frozen=True)
class Resumable:
    """A checkpoint that was read and recognised: the system and the master it belongs to, and what it holds."""

    system: System
    master: Master
    request: Request
    target: Target
    saved: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """The checkpoint file, under its usual name."""
        return Path(str(self.saved["path"]).removesuffix(EARLIER))

    def run(self, *, progress: Progress | None = None) -> Result:
        """Go on; rows and further checkpoints go where they went."""
        saved, target = self.saved, self.target
        output = _Continued(target, Position(**saved["position"]))
        checkpoint = Checkpoint(self.path, every=saved["every"])
        return execute(
            self.system,
            self.master,
            self.request,
            output=output,
            progress=progress,
            checkpoint=checkpoint,
            saved=saved,
        )


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
    moved = Moved.of(saved)
    request = _relocated(Request.from_plain(saved["request"], found), moved)
    if system is None or master is None:
        system, master = _rebuilt(request.metadata, found)
        keep_apart(system, saved["isolation"], moved, found)
    require_same(saved["fingerprint"], fingerprint(system, master, request.start), found)
    target = Target.from_plain(saved["output"], moved)
    _require_fitting(saved, system, master, request, target)
    return Resumable(system, master, request, target, saved)


def _require_fitting(
    saved: Mapping[str, Any], system: System, master: Master, request: Request, target: Target
) -> None:
    """Refuse what is possible, but not in this run."""
    found = saved["path"]
    if not saved["step"] * master.step < request.stop - request.start:
        raise CheckpointError(f"'{found}' is damaged: macro step {saved['step']} is after the end; start anew.")
    declared = {f"{name}.{variable}" for name, unit in system.units.items() for variable in unit.ranges()}
    if strangers := saved["ranges"].keys() - declared:
        raise CheckpointError(f"'{found}' is damaged: '{min(strangers)}' has no range; start anew.")
    try:
        ResultFile(target.path)
    except ConfigurationError as problem:
        raise CheckpointError(f"'{found}' does not say where its rows are: {problem}") from None


def _scenario(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Where a system came from; empty where that was not told."""
    scenario = metadata.get("scenario")
    return scenario if isinstance(scenario, dict) else {}


def _relocated(request: Request, moved: Moved) -> Request:
    """The request with the scenario file where it lies now, so that the next checkpoint says so too."""
    scenario = _scenario(request.metadata)
    if not isinstance(path := scenario.get("path"), str):
        return request
    here = {**scenario, "path": str(moved.find(path))}
    return replace(request, metadata={**request.metadata, "scenario": here})


def _rebuilt(metadata: Mapping[str, Any], found: object) -> tuple[System, Master]:
    """The system and the master of a run from the command line."""
    from cosimo.formats.loading import load
    from cosimo.masters.words import MasterOptions, build_master

    scenario = _scenario(metadata)
    if "master" not in scenario:
        raise CheckpointError(
            f"'{found}' does not say where its system comes from; give the system and the master: "
            f"resume(path, system, master)."
        )
    try:
        loaded = load(scenario.get("path", scenario["system"]), settings=scenario["settings"])
        if loaded.source is not None and "sha256" in scenario:
            digest = hashlib.sha256(loaded.source.read_bytes()).hexdigest()
            if digest != scenario["sha256"]:
                raise CheckpointError(f"'{loaded.source}' has changed since '{found}' was written; put back what was.")
        return loaded.system, build_master(loaded.system, scenario["step"], MasterOptions(**scenario["master"]))
    except CheckpointError:
        raise
    except ConfigurationError as problem:
        raise CheckpointError(f"cannot build what '{found}' belongs to: {problem}") from problem
    except CosimoError:
        raise
    except Exception as problem:  # whatever is made of words that are none of ours
        raise CheckpointError(f"'{found}' does not say how its system was run: {problem!r:.200}.") from problem


@dataclass(frozen=True)
class _Continued:
    """The output file of an interrupted run, from the checkpoint on."""

    target: Target
    position: Position

    @property
    def path(self) -> Path:
        return self.target.path

    @property
    def variables(self) -> Sequence[str] | None:
        return self.target.variables

    @property
    def every(self) -> int:
        return self.target.every

    @property
    def flush_interval(self) -> float:
        return self.target.flush_interval

    def open(self, names: Sequence[str], metadata: Mapping[str, Any]) -> Recorder:
        """A recorder that takes over the rows before the checkpoint."""
        last: Callable[..., None] | None = None if self.path.suffix == ".arrows" else convert
        return Recorder(
            self.path,
            names,
            every=self.every,
            variables=self.variables,
            flush_interval=self.flush_interval,
            metadata=metadata,
            convert=last,
            position=self.position,
        )
