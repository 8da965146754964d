"""From a scenario file to a system, its master and its experiment."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError, CosimoError, FileFindings, Place, UnknownNameError, no_such_file
from cosimo.core.system import Connection, System, Table
from cosimo.core.system import Source as Signal
from cosimo.core.unit import Unit
from cosimo.formats.scenario import CsvColumns, Scenario
from cosimo.formats.scenario_reading import Source, read_scenario
from cosimo.formats.scenario_tables import (
    ConnectionTable,
    FmuTable,
    HostsTable,
    MasterTable,
    MechanicalTable,
    PythonTable,
    ScenarioTable,
    StateSpaceTable,
)
from cosimo.masters.words import MasterOptions, build_master
from cosimo.units import Mechanical, PythonUnit, StateSpace
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolation
from cosimo.units.fmi.model_exchange import Solver
from cosimo.units.linear import INTEGRATORS


def load_scenario(
    path: str | Path,
    findings: FileFindings | None = None,
    *,
    settings: Mapping[str, float] | None = None,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
) -> Scenario:
    """The system that a scenario file describes; `settings` change parameters of its built-in problem or its units."""
    path, findings = Path(path), findings or FileFindings()
    limits = limits or ArchiveLimits.from_environment()
    table, source = read_scenario(path, findings, limits)
    step, stop = table.step_size, table.stop_time
    if table.problem is not None:
        problem, system = _problem(table, source, settings or {})
        step, stop = problem.step if step is None else step, problem.stop if stop is None else stop
    else:
        system = _system(table, source, findings, limits, validate).with_values(settings or {})
    run = experiment(table, system, step, partial(source.collecting, findings))
    findings.require_no_errors()
    told = {"start": table.start_time, "stop": stop, "source": path, "warnings": tuple(findings.warnings)}
    return Scenario.of(system, step=step, **told, **run)


def experiment(
    table: ScenarioTable, system: System, step: float | None, collecting: Callable[..., AbstractContextManager[None]]
) -> dict[str, Any]:
    """Master, outputs, power pairs and target as `Scenario` has them; what is wrong under a key is collected."""
    from cosimo.execution.power_bonds import power_bonds
    from cosimo.execution.recording import choose

    options = None if table.master is None else master_options(table.master)
    if options is not None:
        with collecting("master"):
            build_master(system, step or 1.0, replace(options, follow=None))
    for number, pattern in enumerate(table.outputs or ()):
        with collecting("outputs", number):
            known = system.observing([pattern])
            choose((*known.outputs, *known.input_names), [pattern])
    pairs = tuple((into, out) for into, out in table.power_pairs)
    for number, pair in enumerate(pairs):
        with collecting("power-pairs", number):
            power_bonds(system, [pair])
    outputs = None if table.outputs is None else tuple(table.outputs)
    return {"options": options, "outputs": outputs, "power_pairs": pairs, "target": table.target_error}


def master_options(table: MasterTable) -> MasterOptions:
    """The master in the words of the command line."""
    fields: dict[str, Any] = {name: getattr(table, name) for name in type(table).model_fields}
    if isinstance(table.order, list):
        fields["order"] = (
            ",".join(table.order)  # type: ignore[arg-type]
            if all(isinstance(item, str) for item in table.order)
            else ";".join(",".join(group) for group in table.order) + ";" * (len(table.order) == 1)
        )
    return MasterOptions(**fields)


def _problem(scenario: ScenarioTable, source: Source, settings: Mapping[str, float]) -> tuple[Any, System]:
    from cosimo.problems import find

    named = scenario.problem
    name, parameters = (named, {}) if isinstance(named, str) else (named.name, named.parameters)  # type: ignore[union-attr]
    with source.place("problem").blame("problem"):
        problem = find(name)
        system = problem.system({**parameters, **settings})
    if scenario.name is not None:
        system.name = scenario.name
    return problem, system


def _system(
    scenario: ScenarioTable, source: Source, findings: FileFindings, limits: ArchiveLimits, validate: bool | None
) -> System:
    units: dict[str, Unit] = {}
    for name, table in scenario.units.items():
        with source.collecting(findings, "units", name):
            units[name] = build_unit(name, table, source, scenario.start_time or 0.0, limits, validate)
            if isinstance(table, FmuTable) and table.host is not None:
                units[name] = _elsewhere(units[name], table.host, scenario.hosts, source)
    findings.require_no_errors()
    # A system in which names can be looked up before it is known what feeds which input.
    known = System(units, inputs={f"{name}.{v}": 0.0 for name, unit in units.items() for v in unit.inputs})
    connections = []
    for number, entry in enumerate(scenario.connections):
        with source.collecting(findings, "connections", number):
            connections.append(known.fitting(_connection(entry)))
    inputs = external_inputs(scenario, known, source.near, partial(source.collecting, findings))
    findings.require_no_errors()
    with Place(str(source.path), source.place("units").line).blame("units"):
        return System(units, connections, inputs=inputs, name=scenario.name or source.path.stem)


def external_inputs(
    scenario: ScenarioTable,
    known: System,
    near: Callable[[str], Path],
    collecting: Callable[..., AbstractContextManager[None]],
) -> dict[str, float | Signal]:
    """The external inputs by name; `near` finds a file, what is wrong under a key is collected."""
    inputs: dict[str, float | Signal] = {}
    tables: dict[Path, CsvColumns] = {}
    for target, value in scenario.inputs.items():
        with collecting("inputs", target):
            known.input(target)
            if isinstance(value, float | int):
                inputs[target] = float(value)
                continue
            file = near(value.csv)
            columns = tables[file] = tables[file] if file in tables else CsvColumns(file)
            inputs[target] = Table(*columns.pair(value.time_column, value.column), interpolation=value.interpolation)
    return inputs


def _connection(entry: str | ConnectionTable) -> Connection:
    if isinstance(entry, ConnectionTable):
        return Connection(entry.from_, entry.to, entry.gain, entry.offset)
    start, _, end = entry.partition("->")
    return Connection(start.strip(), end.strip())


# ---- the units of a scenario: tables of the file become objects ------------------------------------------------------


_SOLVER = ("relative_tolerance", "micro_steps", "micro_step")
_LINEAR = ("initial", "micro_steps", "inputs", "outputs", "start")
_MECHANICAL = ("B", "displacement", "velocity", "acceleration", "feedthrough")


def build_unit(
    name: str,
    table: FmuTable | StateSpaceTable | MechanicalTable | PythonTable,
    source: Source,
    start_time: float,
    limits: ArchiveLimits | None = None,
    validate: bool | None = None,
) -> Unit:
    """The unit that a table describes; `validate` counts for FMUs whose table does not switch it off."""
    if isinstance(table, FmuTable):
        return _fmu(name, table, source, start_time, fmu_options(table, limits, validate))
    if isinstance(table, PythonTable):
        return _python(table, source)
    given: dict[str, Any] = {name: getattr(table, name) for name in _LINEAR}
    if table.integrator is not None:
        given["integrator"] = INTEGRATORS[table.integrator]()
    if isinstance(table, StateSpaceTable):
        return StateSpace(table.A, table.B, table.C, table.D, **given)
    given |= {name: getattr(table, name) for name in _MECHANICAL}
    return Mechanical(table.M, table.C, table.K, **given)


def fmu_options(table: FmuTable, limits: ArchiveLimits | None, validate: bool | None) -> dict[str, Any]:
    """How an FMU is read and run, as keywords of `Fmu`."""
    options = FmuOptions(
        exact_difference=table.exact_difference,
        logging=table.logging,
        validate=validate if table.validate_ else False,
        limits=limits,
        kind=table.kind,
        solver=_solver(table),
        compile=table.compile,
    )
    isolation = Isolation(timeout=table.timeout, memory=table.memory, sandbox=table.sandbox)
    apart = table.sandbox or table.isolate in (True, "all")
    if not apart and (table.timeout or table.memory):
        raise ConfigurationError("'timeout' and 'memory' limit isolated units only; add 'isolate = true'.")
    return {"options": options, "isolate": isolation if apart else table.isolate}


def _fmu(name: str, table: FmuTable, source: Source, start_time: float, how: Mapping[str, Any]) -> Unit:
    path = source.near(table.fmu)
    if not os.path.exists(path) and os.path.isdir(path.parent):
        near = [file.name for file in path.parent.glob("*.fmu")]
        if near:
            raise UnknownNameError(f"FMU in '{path.parent}'", path.name, near)
    values: dict[str, Any] = {"parameters": table.parameters, "start": table.start}
    return Fmu(path, name=name, experiment=Experiment(start_time=start_time), **values, **how)


def _elsewhere(unit: Unit, host: str, table: HostsTable | None, source: Source) -> Unit:
    """The FMU on another host."""
    from cosimo.units.remote import Hosts, RemoteFmu, require_helics

    require_helics()
    assert isinstance(unit, Fmu)
    assert table is not None
    given = table.model_dump() | {"token_file": None if table.token_file is None else source.near(table.token_file)}
    return RemoteFmu.of(unit, host, Hosts(**given))


def _solver(table: FmuTable) -> Solver | None:
    given = {name: value for name in _SOLVER if (value := getattr(table, name)) is not None}
    named: dict[str, Any] = {} if table.solver is None else {"name": table.solver}
    return Solver(**named, **given) if named or given else None


def _python(table: PythonTable, source: Source) -> Unit:
    where, _, class_name = table.class_.rpartition(":")
    module = _import(source.near(where) if where.endswith(".py") else where)
    kinds = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    if class_name not in kinds:
        raise UnknownNameError(f"class in '{where}'", class_name, kinds)
    kind = kinds[class_name]
    unit = PythonUnit(kind, **table.parameters)
    try:
        inspect.signature(kind).bind(**table.parameters)
    except TypeError as error:
        raise ConfigurationError(f"class {class_name} does not take these parameters: {error}.") from None
    for name in table.start:
        if name not in unit.inputs:
            raise UnknownNameError(f"input of class {class_name}", name, unit.inputs)
    unit.start = {**unit.start, **table.start}
    return unit


def _import(where: Path | str) -> Any:
    """A module by its name, or from a file, which is run anew each time."""
    try:
        if isinstance(where, str):
            return importlib.import_module(where)
        if not os.path.isfile(where):
            raise no_such_file(where, (".py",))
        name = f"cosimo_scenario_{hashlib.sha256(str(where.resolve()).encode()).hexdigest()[:16]}"
        spec = importlib.util.spec_from_file_location(name, where)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # classes look themselves up there when they are copied or pickled
        # Not by the loader: it takes compiled code of a file of the same second and size, and leaves such code behind.
        exec(compile(where.read_bytes(), str(where), "exec"), vars(module))
        return module
    except CosimoError:
        raise
    except (Exception, SystemExit) as error:  # whatever the user's file raises
        raise ConfigurationError(f"'{where}' cannot be imported: {type(error).__name__}: {error}.") from error
