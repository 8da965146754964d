"""A study: one system run at many points, and what is kept of each run."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import Unit
from cosimo.masters.words import MasterOptions
from cosimo.studies.designs import Design, Points
from cosimo.studies.measures import USUAL
from cosimo.units.fmu import Fmu
from cosimo.units.isolation import Isolation
from cosimo.units.python import PythonUnit

STEP = "step"
"""The name under which the macro step is varied."""


@dataclass(frozen=True, eq=False)
class Study:
    """What is run and what is kept; it describes, and runs nothing.

    `source` is a file or the name of a built-in problem, with fixed `settings` of its parameters, or a `System`.
    `points` vary parameters of the problem, `"unit.variable"` (parameters and start values of FMUs, parameters of
    Python units, inputs that nothing is connected to) and `"step"`, the macro step. `master`, `step`, `start` and
    `stop` are those of the source where they are None. `measures` are words (`measures.py`); `reference` is what
    `error` is measured against: "exact", "fine", "monolithic", "auto" (see `trials.py`), or a result file; `target` the
    error that is small enough, for the trust of each run. `isolation`
    says which FMUs of a file are kept apart, and how, instead of what the file says of them; rows are the same.
    """

    source: str | Path | System
    points: Points | Design
    measures: Sequence[str] = USUAL
    master: MasterOptions | Master | None = None
    step: float | None = None
    start: float | None = None
    stop: float | None = None
    settings: Mapping[str, float] = field(default_factory=dict)
    reference: str | Path = "auto"
    stop_on_divergence: bool = False
    target: float = 0.01
    isolation: Mapping[str, Isolation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.points, Points):
            object.__setattr__(self, "points", self.points.points())
        if isinstance(self.measures, str):
            raise ConfigurationError(f"measures must be a sequence of words, such as ['{self.measures}'].")
        if both := set(self.settings) & set(self.table.names):
            raise ConfigurationError(f"{', '.join(sorted(both))} is varied and fixed at once; remove one of the two.")
        if self.step is not None and STEP in self.table.names:
            raise ConfigurationError("the macro step is varied and fixed at once; remove one of the two.")
        if isinstance(self.master, Master) and not isinstance(self.source, System):
            raise ConfigurationError("a master made for a system goes with this system; give the system as the source.")
        for name in ("step", "start", "stop"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigurationError(f"the {name} of a study is {value}; give a finite number.")

    @property
    def table(self) -> Points:
        """The points."""
        assert isinstance(self.points, Points)
        return self.points


def describe(study: Study, system: System) -> dict[str, Any]:
    """The study as plain data, for its file; two studies with the same description have the same rows.

    `system` is the nominal one. The content of files counts, not only their names.
    """
    table = study.table
    named = not isinstance(study.source, System)
    reference = Path(study.reference)
    return {
        "system": system.name,
        "source": str(study.source) if named else None,
        "settings": dict(study.settings),
        "master": _master(study.master),
        "step": study.step,
        "start": study.start,
        "stop": study.stop,
        "parameters": list(table.names),
        "runs": len(table),
        "points": hashlib.sha256(np.ascontiguousarray(table.values).tobytes()).hexdigest(),
        "measures": list(study.measures),
        "reference": _digest(reference) if reference.is_file() else str(study.reference),
        "stop_on_divergence": study.stop_on_divergence,
        "target": study.target,
        "content": _content(study.source, system),
    }


def fingerprint(description: Mapping[str, Any]) -> str:
    """A short text that differs when the description does."""
    text = json.dumps({**description, "source": None}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _master(master: MasterOptions | Master | None) -> Any:
    if isinstance(master, Master):
        couplings = {target: repr(coupling) for target, coupling in sorted(master.couplings.items())}
        return [master.name, str(master.schedule), master.step, repr(master.coupling), couplings]
    return None if master is None else repr(master)


def _content(source: str | Path | System, system: System) -> str:
    """Of the file, of all FMUs, of equations that are known, of connections, and of values that units were given."""
    digest = hashlib.sha256()
    if not isinstance(source, System) and Path(source).is_file():
        digest.update(_digest(Path(source)).encode())
    for name, unit in system.units.items():
        digest.update(repr((name, unit.inputs, unit.outputs, sorted(unit.start.items()), _values(unit))).encode())
        if (model := unit.linear()) is not None:
            one = unit.discrete(1.0)
            for part in (model.A, model.B, model.C, model.D, one.A, one.B, unit.initial_state):
                digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(repr([(str(c), c.gain, c.offset, c.convert) for c in system.connections]).encode())
    digest.update(repr(sorted((n, getattr(source, "value", None)) for n, source in system.inputs.items())).encode())
    return digest.hexdigest()


def _values(unit: Unit) -> Any:
    """What is known of a unit without equations."""
    if isinstance(unit, Fmu):
        given = sorted((name, repr(value)) for name, value in unit.given.items())
        return _digest(unit.path), given, unit.options, unit.experiment
    if isinstance(unit, PythonUnit):
        plain = {n: v for n, v in unit.parameters.items() if isinstance(v, int | float | str)}
        return unit.kind.__qualname__, sorted(plain.items())
    return type(unit).__qualname__


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
