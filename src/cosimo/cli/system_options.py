"""The options that choose a system and its master, and the scenario they describe."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Mapping
from dataclasses import Field, asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from cosimo.cli.console_output import detail, warn
from cosimo.cli.isolation_options import isolate_units
from cosimo.cli.option_groups import (
    OptionGroup,
    TargetError,
    Texts,
    many,
    number,
    option,
    pairs,
    time_option,
    titled,
    value,
)
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import counted
from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions

if TYPE_CHECKING:
    from cosimo.formats.scenario import Scenario
    from cosimo.masters import MasterOptions
    from cosimo.units.fmi.model_exchange import Solver

SHOWN = 200
"""Characters of a schedule that `--verbose` shows: about two lines of a terminal."""


@dataclass(frozen=True)
class SystemChoice(OptionGroup):
    """What of a system is other than its file says."""

    title: ClassVar[str | None] = "System"
    set_: Annotated[
        Texts, many("UNIT.PARAMETER=VALUE, the same of an unconnected input, or a parameter of a problem.", "--set")
    ] = None
    input_file: Annotated[
        Path | None, option("Inputs over time: a time column, and one column per input with its name.", metavar="CSV")
    ] = None
    solver: Annotated[str | None, option("{solvers}: integrates the FMUs used for model exchange.")] = None
    relative_tolerance: Annotated[float | None, option("cvode: the relative tolerance (1e-6).")] = None
    compile: Annotated[
        str | None,
        option(
            "Compile FMUs that have only sources, in a sandbox; trusted: where there is none, without.",
            metavar="[trusted]",
        ),
    ] = None

    def changes(self, target: str) -> dict[str, Any]:
        """As `load` takes them, for the file or name `target`."""
        self._require_solver(target)
        settings = {name: value(text) for name, text in pairs("--set", self.set_).items()}
        return {"settings": settings, "input_file": self.input_file, "solver": self._solver, "compile": self.compile}

    def _require_solver(self, target: str) -> None:
        """A tolerance alone says nothing of how an FMU that offers both kinds is used."""
        if self.relative_tolerance is None or self.solver is not None or Path(target).suffix.lower() != ".fmu":
            return
        from cosimo.units.fmi.fmu import Fmu, FmuOptions

        if "co-simulation" in Fmu(target, options=FmuOptions(validate=False)).offered:
            raise ConfigurationError(
                f"'{target}' is used for co-simulation, with a solver of its own, for which --relative-tolerance means "
                "nothing; leave it out, or add --solver cvode for model exchange."
            )

    @property
    def _solver(self) -> Solver | None:
        if self.solver is None and self.relative_tolerance is None:
            return None
        from cosimo.units.fmi.model_exchange import CVODE, Solver

        return Solver(self.solver or CVODE, relative_tolerance=self.relative_tolerance)

    def words(self, target: str) -> str:
        """The system as it was named, with these options, for a command that somebody may copy."""
        given = [word for text in self.set_ or () for word in ("--set", text)]
        for name in ("input_file", "solver", "relative_tolerance", "compile"):
            if (chosen := getattr(self, name)) is not None:
                given += [f"--{name.replace('_', '-')}", str(chosen)]
        return shlex.join([target, *given])

    def load(self, target: str) -> Scenario:
        """What a file or a name stands for, isolated as the verb's options say.

        What was odd in a file goes to standard error; with `--verbose` a summary of the system as well.
        """
        from cosimo.formats.scenario import load

        scenario = load(target, **self.changes(target))
        system = scenario.system
        isolate_units(system)
        for finding in scenario.warnings:
            warn(finding)
        units, connections = counted(len(system.units), "unit"), counted(len(system.connections), "connection")
        detail(f"loaded {target}: {system.name}, {units}, {connections}")
        for name, unit in system.units.items():
            place = f" {unit.path}" if unit.path else ""
            ends = f"{counted(len(unit.inputs), 'input')}, {counted(len(unit.outputs), 'output')}"
            detail(f"  {name}: {type(unit).__name__}{place}, {ends}")
        return scenario


@dataclass(frozen=True)
class MasterChoice(SystemChoice):
    """How a system is run: the macro step, the master with its options, other values of its parameters."""

    title: ClassVar[str | None] = "Master"
    step_size: Annotated[float | None, time_option("Communication step size (macro step) in seconds.")] = None
    master: Annotated[str | None, option("{masters}; default: jacobi.")] = None
    order: Annotated[
        str | None,
        option("Calling order, 'a,b,c'; groups, strang, multirate: 'a,b;c'; federation: 'a:FGH:1,b:HFG:1/2'."),
    ] = None
    coupling: Annotated[Texts, many("{couplings}; UNIT.INPUT=… for one.")] = None
    sweeps: Annotated[int | None, option("iterative: a fixed number of sweeps.")] = None
    tolerance: Annotated[float | None, option("iterative: sweep until the outputs change by less than this.")] = None
    sweep_limit: Annotated[int | None, option("iterative: stop with a warning after this many sweeps.")] = None
    anderson: Annotated[int | None, option("iterative: Anderson acceleration with this many earlier sweeps.")] = None
    quasi_newton: Annotated[
        int | None, option("iterative: quasi-Newton (IQN-ILS) with this many differences of sweeps, kept over steps.")
    ] = None
    samples: Annotated[int | None, option("iterative: read the units so often per step, and interpolate.")] = None
    multiple: Annotated[Texts, many("multirate: UNIT=N, the unit takes steps of N base steps.")] = None
    inputs: Annotated[str | None, option("multirate: inputs held or interpolated.")] = None
    follow: Annotated[
        str | None,
        option("Correct the inputs as 'compensate' does, to follow this target: monolithic, exact or converged."),
    ] = None
    adapt: Annotated[
        bool, option("Learn models of the units along the run, and hold inputs where these do not predict what comes.")
    ] = False
    target_error: TargetError = None

    def scenario(self, target: str) -> Scenario:
        """The system that a file or a name stands for, with the master that is asked for."""
        scenario = with_experiment(target, self.load(target), self.step_size, target_error=self.target_error)
        options = self._options(scenario.options)
        how = {"step": scenario.step, "master": asdict(options)}
        provenance = {"scenario": _origin(target, scenario.source, self.changes(target)) | how}
        scenario = scenario.changed(options=options, provenance=provenance)
        schedule = str(scenario.master)
        shown = schedule if len(schedule) <= SHOWN else schedule[: SHOWN - 1] + "…"
        detail(f"master {scenario.master.name}, macro step {scenario.step:g} s, schedule {shown}")
        return scenario

    @property
    def named(self) -> list[str]:
        """The options that were given, as they are written."""
        given = [field.name for field in fields(self) if getattr(self, field.name)]
        return [f"--{name.strip('_').replace('_', '-')}" for name in given]

    def _options(self, written: MasterOptions) -> MasterOptions:
        """The master in words: of the file, as far as the command line does not say otherwise."""
        from cosimo.couplings import Dmd
        from cosimo.masters import MasterOptions
        from cosimo.masters.words import OPTIONS

        plain = (name for name in (*OPTIONS, "follow") if name != "multiples")
        said = {name: value for name in plain if (value := getattr(self, name)) is not None}
        if self.adapt and (self.coupling or self.follow):
            other = "--coupling" if self.coupling else "--follow"
            raise ConfigurationError(f"--adapt is a coupling of its own (dmd:adapt); leave out --adapt or {other}.")
        if self.coupling or self.adapt:
            said["couplings"] = tuple(self.coupling or [str(Dmd(mean=True, watched=True))])
        if self.multiple:
            said["multiples"] = {n: number(n, v, int) for n, v in pairs("--multiple", self.multiple).items()}
        if self.master is not None and self.master != written.name:
            return MasterOptions(name=self.master, **said)
        return replace(written, **said)


def with_experiment(
    target: str,
    scenario: Scenario,
    step_size: float | None = None,
    *,
    stop_time: float | None = None,
    target_error: float | None = None,
) -> Scenario:
    """The scenario with what the command line says of its experiment; one without a macro step is refused."""
    step = scenario.step if step_size is None else step_size
    if step is None:
        raise ConfigurationError(f"'{target}' does not specify a step size; give --step-size.")
    if target_error is not None and not target_error > 0:
        raise ConfigurationError(f"--target-error expects a positive fraction (0.01 is 1 %), not {target_error}.")
    error = scenario.target if target_error is None else target_error
    return scenario.changed(step=step, stop=scenario.stop if stop_time is None else stop_time, target=error)


def stop_of(scenario: Scenario, stop_time: float | None = None) -> float:
    """When a run ends; refused where nobody says."""
    stop = scenario.stop if stop_time is None else stop_time
    if stop is None:
        raise ConfigurationError(f"'{scenario.system.name}' does not specify a stop time; give --stop-time.")
    return stop


def _origin(target: str, source: Path | None, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Where a system came from, so that a result can be traced: name, settings, and a file's fingerprint."""
    from cosimo.core.storage import file_digest

    found: dict[str, Any] = {"system": target, "settings": changes["settings"]}
    if changes["input_file"] is not None:
        found["input_file"] = str(changes["input_file"].absolute())
    if changes["solver"] is not None:
        found["solver"] = asdict(changes["solver"])
    if changes["compile"] is not None:
        found["compile"] = changes["compile"]
    if source is not None:
        found["path"] = str(source.absolute())
        found["sha256"] = file_digest(source)
        if source.suffix == ".toml":
            found["text"] = source.read_text(encoding="utf-8")
    return found


def offered_fields(*kinds: type[Any]) -> dict[str, tuple[type, Field[Any]]]:
    """By their words, the options that the fields of these classes offer."""
    return {
        field.metadata["word"] or field.name: (kind, field)
        for kind in kinds
        for field in fields(kind)
        if "help" in field.metadata
    }


class AdaptiveChoice(OptionGroup):
    """An option for every field that adaptive steps offer (`execution/options.py`)."""

    titles: ClassVar[dict[type, str]] = {
        EngineOptions: "Engine",
        Checkpoint: "Checkpoint and resume",
        Adaptive: "Adaptive steps",
    }
    places: ClassVar[dict[str, tuple[type, Field[Any]]]] = offered_fields(Adaptive)

    def __init__(self, **given: Any) -> None:
        self.said: dict[type, dict[str, Any]] = {kind: {} for kind, _ in self.places.values()}
        for word, (kind, field) in self.places.items():
            if given.get(word) is not None:
                self.said[kind][field.name] = given[word]

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """Each is None where it is not given; texts are checked by the class that takes them."""
        return [
            titled(_parameter(word, get_type_hints(kind)[o.name], o), cls.titles.get(kind))
            for word, (kind, o) in cls.places.items()
        ]

    @property
    def adaptive(self) -> Adaptive | None:
        """How steps are chosen; None where they are fixed."""
        steps = self.said[Adaptive]
        if steps and "kind" not in steps:
            raise ConfigurationError(
                "tolerances and step lengths apply to adaptive runs only; give --adaptive as well."
            )
        return Adaptive(**steps) if steps else None

    @property
    def words(self) -> str:
        """The options as they are given, each after a blank."""
        given = [(word, self.said[kind].get(field.name)) for word, (kind, field) in self.places.items()]
        return "".join(f" --{word.replace('_', '-')} {value}" for word, value in given if value is not None)


def _parameter(word: str, hint: Any, field: Field[Any]) -> inspect.Parameter:
    parts = [part for part in get_args(hint) if part is not type(None)]
    kind: Any = str if get_origin(hint) is Literal else parts[0] if parts else hint
    flags = [f"--{word.replace('_', '-')}"] if kind is bool and field.default is False else []
    text = field.metadata["help"]
    annotation: Any = Annotated[kind | None, time_option(text) if field.metadata["time"] else option(text, *flags)]
    return inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def require_file(scenario: Scenario) -> Path:
    """The file that `--write` changes; refused before anything is computed where there is none."""
    if scenario.source is None:
        raise ConfigurationError(
            "a built-in problem has no file to write to; write a scenario with 'problem = …', or use the options."
        )
    path: Path = scenario.source
    return path


def write_advice(scenario: Scenario, advice: Any) -> None:
    """Put a recommended master into the scenario file."""
    from cosimo.formats.writing import write_master

    if advice is None or advice.point is None or advice.keep:
        warn(
            "nothing was written: " + ("the present master is kept" if advice and advice.keep else "there is no advice")
        )
        return
    path = require_file(scenario)
    kept = write_master(path, advice.point.master, scenario.system)
    warn(f"'{path}' now has the recommended master; the old file is '{kept}'")
