"""What is asked of a run and where its rows go, as plain data: whoever resumes it needs nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from cosimo.core.errors import CheckpointError, ConfigurationError
from cosimo.core.system import System
from cosimo.execution.engines import EngineOptions
from cosimo.execution.recording import STREAM_SUFFIX, as_plain
from cosimo.units.fmu import Fmu
from cosimo.units.isolation import Isolation


@dataclass(frozen=True)
class Moved:
    """The folder of a checkpoint when it was written, and now: it may have been copied, or moved as a whole."""

    before: Path
    now: Path

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Moved:
        """The folders of a checkpoint that was read."""
        return cls(Path(saved["folder"]), Path(saved["path"]).absolute().parent)

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
class Request:
    """The arguments of a run but for the system, the master and the output."""

    start: float
    stop: float
    record: Literal["outputs", "all"] = "outputs"
    engine: EngineOptions = field(default_factory=EngineOptions)
    power_pairs: tuple[tuple[str, str], ...] = ()
    stop_on_divergence: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def to_plain(self) -> dict[str, Any]:
        """Numbers, texts, lists and dicts."""
        metadata = json.dumps(self.metadata, default=as_plain)
        return {**asdict(self), "power_pairs": [list(pair) for pair in self.power_pairs], "metadata": metadata}

    @classmethod
    def from_plain(cls, found: Mapping[str, Any], path: object) -> Request:
        """What `to_plain` gave."""
        try:
            engine = EngineOptions(**found["engine"])
            pairs = tuple((str(into), str(out)) for into, out in found["power_pairs"])
            metadata = json.loads(found["metadata"])
            if not isinstance(metadata, dict):
                raise TypeError(f"its metadata are {metadata!r:.40}")
            return cls(**{**found, "engine": engine, "power_pairs": pairs, "metadata": metadata})
        except (KeyError, TypeError, ValueError, RecursionError, ConfigurationError) as problem:
            raise CheckpointError(f"'{path}' does not say what was run: {str(problem).rstrip('.')}.") from None


def kept_apart(system: System) -> dict[str, dict[str, Any]]:
    """The units that live in processes of their own, and how."""
    found = {name: unit.isolation for name, unit in system.units.items() if isinstance(unit, Fmu)}
    plain = {name: asdict(isolation) for name, isolation in found.items() if isolation is not None}
    for fields in plain.values():
        fields["log"] = None if fields["log"] is None else str(Path(fields["log"]).absolute())
    return plain


def keep_apart(system: System, found: Mapping[str, Any], moved: Moved, path: object) -> None:
    """Put units back into processes of their own."""
    try:
        for name, fields in found.items():
            log = None if fields["log"] is None else moved.find(fields["log"])
            unit = system.units[name]
            if isinstance(unit, Fmu):
                unit.isolation = Isolation(**{**fields, "log": log})
    except (KeyError, TypeError, AttributeError) as problem:
        raise CheckpointError(f"'{path}' does not say how its units were isolated: {problem}.") from None


@dataclass(frozen=True)
class Target:
    """The file that rows go to; the fields of a `ResultFile`."""

    path: Path
    variables: tuple[str, ...] | None
    every: int
    flush_interval: float

    @classmethod
    def of(cls, output: Any) -> Target:
        """Where an output writes; refuses rows that are kept in memory, which are lost with the run."""
        if output is None or not hasattr(output, "path"):
            raise ConfigurationError("checkpoints need the rows in a file; give an output file as well.")
        variables = None if output.variables is None else tuple(output.variables)
        return cls(Path(output.path).absolute(), variables, output.every, output.flush_interval)

    def to_plain(self) -> dict[str, Any]:
        """Numbers, texts and lists."""
        variables = None if self.variables is None else list(self.variables)
        return {**asdict(self), "path": str(self.path), "variables": variables}

    @classmethod
    def from_plain(cls, found: Mapping[str, Any], moved: Moved) -> Target:
        """What `to_plain` gave, where its rows lie now."""
        variables = None if found["variables"] is None else tuple(found["variables"])
        return cls(moved.find(found["path"], STREAM_SUFFIX), variables, found["every"], found["flush_interval"])
