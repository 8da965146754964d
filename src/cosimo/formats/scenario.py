"""A scenario: a system with its master, step, stop time, inputs and target, and the verbs that use them.

    truck = co.load("quarter_truck.ssp")
    verdict = truck.analyse()
    result = truck.run(master=verdict.recommendation)

Every verb of the command line is a method here, and every value of the file can be overridden in a call.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cosimo
from cosimo.core import dataclass
from cosimo.core.arguments import checked, duration
from cosimo.core.errors import (
    ConfigurationError,
    FileFindings,
    Finding,
    Place,
    UnknownNameError,
    no_such_file,
    require_regular,
)
from cosimo.core.formatting import counted
from cosimo.core.master import Master
from cosimo.core.result import TARGET, Result
from cosimo.core.system import Source, System, Table
from cosimo.masters.words import MasterOptions, build_master
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.model_exchange import Solver

if TYPE_CHECKING:
    from cosimo.analysis.recommendation import Recommendation
    from cosimo.analysis.verdict import Verdict
    from cosimo.reporting.report import Report
    from cosimo.tuning import Space, Tuned

SUFFIXES = (".toml", ".ssp", ".ssd", ".xml", ".json", ".fmu")
_face: Any = cosimo
"""What the package offers, loaded when it is first used: who only runs never loads the analysis."""
FEW = 60
"""States up to which a run makes its own verdict where all equations are known: it takes about a second."""


@dataclass(frozen=True)
class Scenario:
    """What a file or a built-in problem describes; None where it specifies nothing.

    `step`, `start` and `stop` are in seconds, `target` is the acceptable error. `options` is the master in words;
    `outputs` are patterns such as `"truck.*"` of signals to record; `power_pairs` are pairs (input, output) of one unit
    whose product is the power that enters it; `warnings` list oddities of the file and how they were taken.
    `provenance` says where it came from and is stored in results; `specified` are the fields that the file gives.
    """

    system: System
    options: MasterOptions = field(default_factory=MasterOptions)
    step: float | None = None
    start: float = 0.0
    stop: float | None = None
    target: float = TARGET
    outputs: tuple[str, ...] | None = None
    power_pairs: tuple[tuple[str, str], ...] = ()
    source: Path | None = None
    warnings: tuple[Finding, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    specified: frozenset[str] = frozenset()

    @classmethod
    def of(cls, system: System, **values: Any) -> Scenario:
        """From what a file says: None stands for nothing."""
        given = {name: value for name, value in values.items() if value is not None}
        return cls(system, specified=frozenset(given), **given)

    @cached_property
    def master(self) -> Master:
        """The master of the scenario at its step: quasi-Newton starts from the units' equations where known, and inputs
        that follow a target are designed, for which other units are identified at the start.
        """
        master = build_master(self.system, self._step, replace(self.options, follow=None))
        if self.options.follow is not None:
            asked: Any = {"target": self.options.follow, "start": self.start, "horizon": self.horizon}
            return cosimo.compensate(self.system, master, **asked).master
        known = all(unit.linear() is not None for unit in self.system.units.values())
        if self.options.quasi_newton and known and len(self.system.outputs) <= FEW:
            from cosimo.analysis.model import warm_start

            return warm_start(self.system, master)
        return master

    @property
    def _step(self) -> float:
        if self.step is None:
            raise ConfigurationError(f"'{self.system.name}' does not specify a step size; give --step-size or step=.")
        return self.step

    @property
    def horizon(self) -> float | None:
        """Seconds from start to stop."""
        return None if self.stop is None else duration(self.start, self.stop)

    def changed(self, **values: Any) -> Scenario:
        """The same with other values of its fields."""
        found = replace(self, **values)
        own, others = ((s.options, s.step, s.start, s.stop) for s in (self, found))
        if "master" in vars(self) and found.system is self.system and own == others:
            vars(found)["master"] = self.master  # a design with identified units takes a second
        return found

    # ---- verbs ---------------------------------------------------------------------------------------------------

    def analyse(self, master: Master | Recommendation | None = None, **options: Any) -> Verdict:
        """Analyse the coupling (`cosimo.analyse`); the verdict is remembered."""
        chosen = self._chosen(master)
        options = self._over({"target": self.target, **options})
        verdict: Verdict = _face.analyse(self.system, chosen, **options)
        if options.get("adaptive") is None:  # what is remembered is of fixed steps
            _face.Memory().remember(verdict, self.system, chosen, options["start"])
        return verdict

    def known_verdict(self, master: Master | None = None, stop: float | None = None) -> Verdict | None:
        """The remembered verdict, or one computed now because all equations are known; else None."""
        chosen, horizon = self._chosen(master), self.horizon if stop is None else stop - self.start
        if horizon is None or horizon <= 0:
            return None
        found: Verdict | None = _face.Memory().recall(self.system, chosen, self.start, horizon, self.target)
        units = self.system.units.values()
        known = all(unit.linear() is not None for unit in units)
        if found is None and known and sum(len(unit.initial_state) for unit in units) <= FEW:
            found = self.analyse(chosen, horizon=horizon)
        return found

    def run(
        self, master: Master | Recommendation | None = None, *, stop: float | None = None, **options: Any
    ) -> Result:
        """Run the system (`cosimo.run`); the result carries the verdict where it is known."""
        stop = self.stop if stop is None else stop
        if stop is None:
            raise ConfigurationError(f"'{self.system.name}' does not specify a stop time; give --stop-time or stop=.")
        chosen = self._chosen(master)
        options = {"start": self.start, "power_pairs": self.power_pairs, **options}
        scenario = self.changed(start=options["start"])
        verdict = scenario.known_verdict(chosen, stop) if options.get("adaptive") is None else None  # of fixed steps
        known = {} if verdict is None else {"verdict": verdict.brief()}
        options["metadata"] = {**self.provenance, **known, **options.get("metadata", {})}
        return cosimo.run(self.system, chosen, stop=stop, **options)

    def tune(self, space: Space | None = None, **options: Any) -> Tuned:
        """Search for a better master (`cosimo.tune`), including the present one."""
        tuning = _face.tuning
        settings = options.pop("settings", None) or tuning.Settings(wanted=tuning.Wanted(self.target))
        if settings.identify_at is None:
            settings = replace(settings, identify_at=self.step)
        options = self._over({"present": self._present(), **options})
        return cosimo.tune(self.system, space, settings=settings, **options)

    def report(self, path: str | Path | None = None, *things: Any, **options: Any) -> Report:
        """The report on this scenario and further `things` (`cosimo.report`), written to `path` if given."""
        options = self._over({"target": self.target, **options})
        page = cosimo.report(self.system, self.master, *things, **options)
        if path is not None:
            page.write(path)
        return page

    def _over(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The options with the time range of the scenario, where they give no other."""
        start = options.get("start", self.start)
        if "horizon" in options or self.stop is None:
            return {"horizon": None, "start": start, **options}
        return {"horizon": duration(start, self.stop), "start": start, **options}

    def _chosen(self, master: Master | Recommendation | None) -> Master:
        if master is None or isinstance(master, Master):
            return master or self.master
        if master.master is None:
            raise ConfigurationError(f"no master is recommended: {master.text}")
        return master.master

    def _present(self) -> Master | None:
        return self.master if self.step is not None else None

    def __str__(self) -> str:
        units, connections = counted(len(self.system.units), "unit"), len(self.system.connections)
        lines = [f"{self.system.name}: {units}, {counted(connections, 'connection')}"]
        told = {"step": self.step, "start": self.start, "stop": self.stop, "target": self.target}
        lines += [f"  {name:<8} {value:g}" for name, value in told.items() if value is not None]
        return "\n".join([*lines, f"  {'master':<8} {self.options.name}"])


@checked
def load(
    target: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    input_file: str | Path | None = None,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
    findings: FileFindings | None = None,
    solver: Solver | None = None,
    compile: str | None = None,
) -> Scenario:
    """The scenario in a `.toml`, `.ssp`, `.ssd`, `.xml` (OSP), `.json` (HELICS) or `.fmu` file, or a built-in problem.

    `settings` are values of parameters: of a built-in problem by name, also of one that a scenario names; of units as
    `"unit.parameter"`, also of inputs that nothing is connected to (`System.with_values`). `input_file` is a CSV file,
    with a column of times and columns named after the inputs they feed; two rows at the same time are a jump. `limits`
    bound the size of files; without them the usual ones count, or those of the environment. `validate=False` accepts
    FMUs and packages whose descriptions violate the standard, and lists what was overlooked as warnings; None validates
    unless the environment says COSIMO_VALIDATE=off. All that is found on the way, also when it raises, is added to
    `findings`. `solver` integrates all FMUs that are used for model exchange; for it, a single `.fmu` is used so.
    `compile` ("sandbox" or "trusted") compiles FMUs that have sources and no library for this platform.

    >>> truck = load("quarter-truck")
    >>> truck.step, truck.stop, truck.master.name
    (0.001, 3.0, 'jacobi')
    """
    of_units = {name: value for name, value in (settings or {}).items() if "." in name}
    own = {name: value for name, value in (settings or {}).items() if name not in of_units}
    path = Path(target)
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        scenario = _problem(str(target), own)
    elif not os.path.isfile(path):
        raise no_such_file(path, SUFFIXES)
    elif suffix == ".toml":
        from cosimo.formats.scenario_building import load_scenario

        scenario = load_scenario(path, findings, settings=own, limits=limits, validate=validate)
    else:
        of_units |= own
        if suffix == ".fmu":
            scenario = _fmu(path, limits, validate, solver)
        else:
            scenario = _package(path, findings, limits, validate)
    if solver is not None:
        _solve(scenario.system, solver)
    if overlooked := list(_overlooked(scenario.system)):
        scenario = scenario.changed(warnings=(*scenario.warnings, *overlooked))
        for one in overlooked:
            (findings or FileFindings()).warn(one.message, Place(one.file))
    if compile is not None:
        _compile(scenario.system, compile)
    inputs: Mapping[str, Source] = {}
    if input_file is not None:
        inputs = inputs_from_csv(scenario.system, input_file)
    return scenario.changed(system=scenario.system.with_values(of_units, inputs)) if of_units or inputs else scenario


def _overlooked(system: System) -> Iterator[Finding]:
    """What of the FMUs violates the standard, where validation is switched off."""
    for label, problems in {unit.label: unit.overlooked for unit in system.units.values() if unit.overlooked}.items():
        yield from (Finding(f"overlooked: {problem}.", label, severity="warning") for problem in problems)


def _problem(name: str, settings: Mapping[str, Any]) -> Scenario:
    from cosimo.problems import CATALOGUE

    if name in CATALOGUE:
        problem = CATALOGUE[name]
        return Scenario.of(problem.system(settings), step=problem.step, stop=problem.stop)
    known = ", ".join(SUFFIXES)
    if not os.path.exists(name) and Path(name).name != Path(name).stem:
        raise no_such_file(Path(name), SUFFIXES)
    if os.path.isdir(name):
        raise ConfigurationError(f"'{name}' is a folder; give a file in it ({known}).")
    if os.path.exists(name):
        raise ConfigurationError(f"'{name}' cannot be read as a system; files end in {known}.")
    beside = [file.name for file in Path().iterdir() if file.suffix in SUFFIXES]
    raise UnknownNameError("system", name, [*CATALOGUE, *beside, f"a file ({known})"])


def _package(
    path: Path, findings: FileFindings | None, limits: ArchiveLimits | None, validate: bool | None
) -> Scenario:
    if path.suffix.lower() == ".xml":
        from cosimo.formats.osp import load_osp

        return load_osp(path, findings, limits=limits, validate=validate)
    if path.suffix.lower() == ".json":
        from cosimo.formats.federation import load_federation

        return load_federation(path, findings, limits=limits, validate=validate)
    from cosimo.formats.ssp import load_ssp

    return load_ssp(path, findings, limits=limits, validate=validate)


def _solve(system: System, solver: Solver) -> None:
    """Let the solver integrate all FMUs that are used for model exchange."""
    from cosimo.units.fmi.fmu import Fmu

    exchanged = [unit for unit in system.units.values() if isinstance(unit, Fmu) and unit.solver is not None]
    if not exchanged:
        raise ConfigurationError(
            f"'{system.name}' has no FMU that is used for model exchange, so there is nothing for the solver "
            f'{solver.name}; write kind = "model-exchange" for a unit of the scenario, or leave the solver out.'
        )
    for unit in exchanged:
        unit.options = replace(unit.options, solver=solver)


def _compile(system: System, how: str) -> None:
    """Compile the sources of FMUs that have no library for this platform."""
    from cosimo.units.fmi.fmu import Fmu

    for unit in system.units.values():
        if isinstance(unit, Fmu):
            unit.options = replace(unit.options, compile=how)


def _fmu(path: Path, limits: ArchiveLimits | None, validate: bool | None, solver: Solver | None) -> Scenario:
    from cosimo.units.fmi.fmu import Fmu, FmuOptions
    from cosimo.units.fmi.model_exchange import MODEL_EXCHANGE

    kind = None if solver is None else MODEL_EXCHANGE
    fmu = Fmu(path, options=FmuOptions(limits=limits, validate=validate, kind=kind))
    given = fmu.default_experiment
    return Scenario.of(
        System({path.stem: fmu}, name=fmu.model_name),
        step=given.get("stepSize"),
        start=given.get("startTime"),
        stop=given.get("stopTime"),
        source=path,
    )


POINTS = 1000
"""Macro steps of `simulate` where nobody says how long they are."""


@checked
def simulate(
    target: str | Path,
    *,
    stop: float | None = None,
    step: float | None = None,
    settings: Mapping[str, Any] | None = None,
    input_file: str | Path | None = None,
    **options: Any,
) -> Result:
    """Load and run in one call: an FMU, a scenario, a package or a built-in problem (this is `cosimo.simulate`).

    `settings` and `input_file` are those of `load`, `options` those of `run`. Where neither the file nor `step` says
    the macro step, it is a thousandth of the run.

    >>> simulate("two-mass", stop=0.01)
    Result(11 rows to t = 0.01, 6 signals)
    """
    scenario = load(target, settings=settings, input_file=input_file)
    start = options.get("start", scenario.start)
    stop = scenario.stop if stop is None else stop
    step = scenario.step if step is None else step
    if step is None and stop is not None:
        step = (stop - start) / POINTS
    return scenario.changed(step=step).run(stop=stop, **{"record": "all", **options})


# ---- external inputs from CSV files: a line of names, a column of times, and columns of values ----------------------


class CsvColumns:
    """A CSV file with a line of names, read once for all inputs that use it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        require_regular(path)
        try:
            with path.open(encoding="utf-8-sig", newline="") as file:
                reader = csv.reader(file)
                self.names = [name.strip() for name in next(reader, [])]
                self._rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
        except OSError as error:
            raise ConfigurationError(f"'{path}' cannot be read: {error.strerror}.") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigurationError(f"'{path}' is not a CSV file in UTF-8: {error}.") from None
        if not self.names:
            raise ConfigurationError(
                f"'{path}' is empty; it needs a header line with column names, and rows of numbers."
            )

    def pair(self, time: str | None, column: str) -> tuple[list[float], list[float]]:
        """Times and values; times must not decrease, and of one time there are at most two rows, a jump."""
        times, values = self._column(self.names[0] if time is None else time), self._column(column)
        for (line, _), (before, now) in zip(self._rows[1:], itertools.pairwise(times), strict=True):
            if now < before:
                raise Place(str(self._path), line).error(
                    f"the time {now:g} is less than the one before ({before:g}); sort the rows."
                )
        for (line, _), first, third in zip(self._rows[2:], times, times[2:], strict=False):
            if first == third:
                raise Place(str(self._path), line).error(
                    f"this is the third row at time {third:g}; keep only the values before and after the jump."
                )
        return times, values

    def _column(self, name: str) -> list[float]:
        if name not in self.names:
            raise UnknownNameError(f"column of '{self._path}'", name, self.names)
        index = self.names.index(name)
        values = []
        for line, row in self._rows:
            text = row[index].strip() if index < len(row) else ""
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not math.isfinite(value):
                raise Place(str(self._path), line).error(f"column '{name}' has '{text}'; a finite number is needed.")
            values.append(value)
        if not values:
            raise ConfigurationError(f"'{self._path}' has column names but no rows; add some rows.")
        return values


def inputs_from_csv(system: System, path: str | Path) -> dict[str, Source]:
    """The columns of a CSV file as sources of the open inputs they are named after; the first column is the time.

    A column is named `unit.input`, or after the input alone where only one open input has this name. Values are linear
    in between, and held for inputs that are not continuous. A column that fits no open input is refused.
    """
    path = Path(path)
    if not path.exists():
        raise no_such_file(path, (".csv",))
    columns = CsvColumns(path)
    known: dict[str, list[tuple[str, str]]] = {}
    for unit, row in system.inlets.items():
        for variable, inlet in zip(system.units[unit].inputs, row, strict=True):
            for name in (f"{unit}.{variable}", variable) if inlet.link is None else ():
                known.setdefault(name, []).append((unit, variable))
    found: dict[str, Source] = {}
    for column in columns.names[1:]:
        places = known.get(column, [])
        if len(places) > 1:
            several = " and ".join(map(".".join, places))
            raise ConfigurationError(f"column '{column}' of '{path}' fits {several}; write which one.")
        if not places:
            raise UnknownNameError(f"open input (column of '{path}')", column, known)
        unit, variable = places[0]
        held = variable in system.units[unit].discrete_inputs
        source = Table(*columns.pair(None, column), interpolation="hold" if held else "linear")
        if found.setdefault(f"{unit}.{variable}", source) is not source:
            raise ConfigurationError(f"'{path}' has two columns for {unit}.{variable}; remove one of them.")
    if not found:
        raise ConfigurationError(f"'{path}' has only a time column; add one named after an open input.")
    return found
