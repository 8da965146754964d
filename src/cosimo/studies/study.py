"""A study: one system run at many points, and what is kept of each run.

What is kept is one number per measure. Of a signal y at the communication points t_0 … t_K: `final` y_K, `min`, `max`,
`mean` Σ y_k / (K + 1), `rms` √(Σ y_k² / (K + 1)); `error`, the largest deviation from the true solution as a share of
its largest value, measured in the run (`cosimo.analysis.truth`), and `nrms` (tamellin2022, Eq. 42). Of the coupling:
`radius` ρ(Φ), for linear units, and `stable` (1 or 0): by the verdict where there is one, otherwise as the run shows it
beside finer ones, and no number where it cannot tell.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.guarding import time_limit
from cosimo.core.master import Master
from cosimo.core.storage import file_digest
from cosimo.core.system import System
from cosimo.execution.checkpoints.fingerprints import system_fingerprint
from cosimo.execution.recording import choose
from cosimo.formats.scenario import SUFFIXES, Scenario, load
from cosimo.masters.words import MasterOptions, build_master
from cosimo.studies.designs import Design, Points
from cosimo.units.fmi import first_trials
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.instance import Reserve
from cosimo.units.fmi.isolation import Isolation
from cosimo.units.fmi.model_exchange import Solver

SIGNALS: Mapping[str, Callable[[Array], float]] = {
    "final": lambda y: float(y[-1]),
    "min": lambda y: float(y.min()),
    "max": lambda y: float(y.max()),
    "mean": lambda y: float(y.mean()),
    "rms": lambda y: float(np.sqrt(np.mean(y * y))),
}
ERRORS = ("error", "nrms")
COUPLING = ("stable", "radius")
USUAL = ("final", "min", "max")


@dataclass(frozen=True)
class Measure:
    """One number of a run; `signal` is empty for measures of the coupling."""

    kind: str
    signal: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.signal}" if self.signal else self.kind


def find_measures(texts: Sequence[str], system: System) -> tuple[Measure, ...]:
    """Measures from words: `kind` (of all outputs), `kind:unit.variable` or `kind:pattern`, `stable`, `radius`.

    A pattern stands for the outputs it matches, or where there are none, for inputs. Errors exist for outputs only.

    >>> from cosimo.problems import two_mass
    >>> [str(measure) for measure in find_measures(["rms:*.x", "stable"], two_mass())]
    ['rms:two.x', 'stable']
    """
    found: dict[Measure, None] = {}
    for text in texts:
        kind, colon, pattern = text.strip().partition(":")
        if kind in COUPLING:
            if colon:
                raise ConfigurationError(f"'{text}': {kind} applies to the whole coupling; leave '{pattern}' out.")
            found[Measure(kind)] = None
            continue
        if kind not in (*SIGNALS, *ERRORS):
            raise UnknownNameError("measure", kind, (*SIGNALS, *ERRORS, *COUPLING))
        names = system.outputs if kind in ERRORS or not colon else (*system.outputs, *system.input_names)
        places = choose(names, [pattern]) if colon else range(len(system.outputs))
        among = [place for place in places if place < len(system.outputs)] or places
        found |= dict.fromkeys(Measure(kind, names[place]) for place in among)
    if not found:
        raise ConfigurationError("a study needs at least one measure; name one, such as final.")
    return tuple(found)


# ---- what is run -----------------------------------------------------------------------------------------------------


STEP = "step"
"""The name under which the macro step is varied."""


@dataclass(frozen=True, eq=False)
class Study:
    """What is run and what is kept; it describes, and runs nothing.

    `source` is a file or the name of a built-in problem, with fixed `settings` of its parameters, an `input_file`,
    a `solver` and `compile`, as `cosimo.load` takes them, or a `System`. `points` vary what settings change, `"step"`.
    `master`, `step`, `start` and `stop` are those of the source where they are None. `measures` are words; `reference`
    is what `error` is measured against: "exact", "fine", "monolithic", "auto" (see `trials.py`), or a result file;
    `target` the error that is small enough, for the trust of each run. `isolation` says which FMUs of a file are kept
    apart, and how, or are not (None), instead of what the file says of them; rows are the same.
    """

    source: str | Path | System
    points: Points | Design
    measures: Sequence[str] = USUAL
    master: MasterOptions | Master | None = None
    step: float | None = None
    start: float | None = None
    stop: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    input_file: str | Path | None = None
    solver: Solver | None = None
    compile: str | None = None
    reference: str | Path = "auto"
    stop_on_divergence: bool = False
    target: float = 0.01
    isolation: Mapping[str, Isolation | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.points, Points):
            object.__setattr__(self, "points", self.points.points())
        if isinstance(self.measures, str):
            raise ConfigurationError(f"measures must be a sequence of words, such as ['{self.measures}'].")
        if both := set(self.settings) & set(self.table.names):
            raise ConfigurationError(f"{', '.join(sorted(both))} is both varied and fixed; remove one of the two.")
        if self.step is not None and STEP in self.table.names:
            raise ConfigurationError("the step size is both varied and fixed; remove one of the two.")
        if isinstance(self.master, Master) and not isinstance(self.source, System):
            raise ConfigurationError(
                "a master runs only with the system it was built for; pass that system as the source."
            )
        for name in ("step", "start", "stop"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ConfigurationError(f"the {name} of a study is {value}; give a finite number.")

    @property
    def table(self) -> Points:
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
        "reference": file_digest(reference) if reference.is_file() else str(study.reference),
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


def _content(source: str | Path | System, system: System) -> list[Any]:
    """Of the file, and of all that the system is made of, options of FMUs included."""
    file = file_digest(Path(source)) if not isinstance(source, System) and Path(source).is_file() else None
    options = {name: repr(unit.options) for name, unit in system.units.items() if isinstance(unit, Fmu)}
    return [file, system_fingerprint(system), options]


# ---- from the values of a point to the system and the master that are run there --------------------------------------


class VariedName(NamedTuple):
    """What a varied name stands for."""

    kind: Literal["step", "setting", "value"]
    unit: str = ""
    variable: str = ""


class Recipe:
    """Builds the systems of a study. `nominal` is the one without variation; FMUs take instances from `reserve`."""

    def __init__(self, study: Study, reserve: Reserve) -> None:
        self._study, self._reserve = study, reserve
        found = self._load({})
        self.nominal = found.system
        self.start = found.start if study.start is None else study.start
        stop = study.stop if study.stop is not None else found.stop
        if stop is None:
            raise ConfigurationError(f"'{self.nominal.name}' does not specify a stop time; give the study a stop time.")
        self.stop = stop
        self._master: MasterOptions | Master = study.master or found.options
        given = self._master.step if isinstance(self._master, Master) else found.step
        self._step = study.step if study.step is not None else given
        self._places = [self._place(name) for name in study.table.names]
        if self._step is None and STEP not in study.table.names:
            raise ConfigurationError(f"'{self.nominal.name}' does not specify a step size; give the study a step.")
        self._check()

    def build(self, values: Sequence[float]) -> tuple[System, Master]:
        """The system and the master at one point."""
        settings: dict[str, float] = {}
        of_units: dict[str, float] = {}
        step = self._step
        for name, place, value in zip(self._study.table.names, self._places, values, strict=True):
            match place.kind:
                case "step":
                    step = value
                case "setting":
                    settings[name] = value
                case "value":
                    of_units[name] = value
        system = (self._load(settings).system if settings else self.nominal).with_values(of_units)
        for name, unit in system.units.items():
            if isinstance(unit, Fmu):
                system.units[name] = unit.with_values({}, reserve=self._reserve)
        assert step is not None
        if isinstance(self._master, Master):
            return system, self._master.with_step(step)
        return system, build_master(system, step, self._master)

    def decide_isolation(self) -> Study:
        """Make the first trials of FMUs, at the first point; the study with what they decided, wherever it is run."""
        try:
            system, master = self.build(self._study.table.values[0].tolist())
        except ConfigurationError:  # the row of this point says so, and each run decides
            return self._study
        with first_trials(system.units, self.start, master.durations):
            decided = {name: unit for name, unit in system.units.items() if isinstance(unit, Fmu)}
        limit = time_limit()
        for name, unit in decided.items():
            if limit is not None and unit.isolation is None:
                unit.isolation = Isolation(timeout=limit)  # a call that takes longer ends its worker, not the study
            nominal: Any = self.nominal.units[name]
            nominal.isolation, nominal.trial = unit.isolation, unit.trial
        if not isinstance(self._study.source, System):
            self._study = replace(self._study, isolation={name: unit.isolation for name, unit in decided.items()})
        return self._study

    def _load(self, settings: Mapping[str, float]) -> Scenario:
        source = self._study.source
        if isinstance(source, System):
            return Scenario(source)
        loaded = load(
            source,
            settings={**self._study.settings, **settings},
            input_file=self._study.input_file,
            solver=self._study.solver,
            compile=self._study.compile,
        )
        for name, isolation in self._study.isolation.items():
            unit = loaded.system.units[name]
            assert isinstance(unit, Fmu)
            unit.isolation, unit.trial = isolation, None
        return loaded

    def _place(self, name: str) -> VariedName:
        if name == STEP:
            return VariedName("step")
        if ("." in name or _problem_parameters(self._study.source) is None) and self.nominal.owner(name) is not None:
            return VariedName("value", *self.nominal.parameter(name))
        return self._setting(name)

    def _setting(self, name: str) -> VariedName:
        source, known = self._study.source, _problem_parameters(self._study.source)
        if isinstance(source, System):
            raise UnknownNameError("parameter to vary", name, (STEP, *(f"{unit}.…" for unit in self.nominal.units)))
        if known is not None and name not in known:
            raise UnknownNameError(f"parameter of '{source}'", name, (STEP, *known))
        return VariedName("setting")

    def _check(self) -> None:
        """Names that mean nothing are refused before anything runs; values that do not fit are found at their point."""
        first = self._study.table.values[0].tolist()
        try:
            self.build(first)
        except UnknownNameError:
            raise
        except ConfigurationError:
            if not isinstance(self._study.source, System) and _problem_parameters(self._study.source) is None:
                raise
            for place, value in zip(self._places, first, strict=True):
                unit = self.nominal.units.get(place.unit)
                if place.kind == "value" and isinstance(unit, Fmu):
                    unit.with_values({place.variable: value})


def _problem_parameters(source: str | Path | System) -> Mapping[str, float] | None:
    """Those of a built-in problem; None for systems and files."""
    if isinstance(source, System) or Path(source).suffix.lower() in SUFFIXES:
        return None
    from cosimo.problems import find

    return find(str(source)).parameters
