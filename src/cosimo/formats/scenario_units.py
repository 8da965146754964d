"""The units of a scenario: tables of the file become objects."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosimo.core.errors import ConfigurationError, CosimoError, UnknownNameError, no_such_file
from cosimo.core.unit import Unit
from cosimo.formats.scenario import FmuTable, MechanicalTable, PythonTable, StateSpaceTable
from cosimo.formats.scenario_reading import Source
from cosimo.units import (
    Exact,
    ForwardEuler,
    Integrator,
    Mechanical,
    PythonUnit,
    RungeKutta4,
    StateSpace,
    SymplecticEuler,
)
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolation

_INTEGRATORS: Mapping[str, type[Integrator]] = {
    "exact": Exact,
    "forward-euler": ForwardEuler,
    "runge-kutta-4": RungeKutta4,
    "symplectic-euler": SymplecticEuler,
}

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
        options = FmuOptions(
            exact_difference=table.exact_difference,
            logging=table.logging,
            validate=validate if table.validate_ else False,
            limits=limits,
        )
        return _fmu(name, table, source, start_time, options)
    if isinstance(table, PythonTable):
        return _python(table, source)
    given: dict[str, Any] = {name: getattr(table, name) for name in _LINEAR}
    if table.integrator is not None:
        given["integrator"] = _INTEGRATORS[table.integrator]()
    if isinstance(table, StateSpaceTable):
        return StateSpace(table.A, table.B, table.C, table.D, **given)
    given |= {name: getattr(table, name) for name in _MECHANICAL}
    return Mechanical(table.M, table.C, table.K, **given)


def _fmu(name: str, table: FmuTable, source: Source, start_time: float, options: FmuOptions) -> Unit:
    path = source.near(table.fmu)
    if not os.path.exists(path) and os.path.isdir(path.parent):
        near = [file.name for file in path.parent.glob("*.fmu")]
        if near:
            raise UnknownNameError(f"FMU in '{path.parent}'", path.name, near)
    isolation = Isolation(timeout=table.timeout, memory=table.memory, sandbox=table.sandbox)
    if not (table.isolate or table.sandbox) and (table.timeout or table.memory):
        raise ConfigurationError("'timeout' and 'memory' limit isolated units only; add 'isolate = true'.")
    return Fmu(
        path,
        name=name,
        parameters=table.parameters,
        start=table.start,
        isolate=isolation if table.isolate or table.sandbox else False,
        experiment=Experiment(start_time=start_time),
        options=options,
    )


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
    except Exception as error:  # whatever the user's file raises
        raise ConfigurationError(f"'{where}' cannot be imported: {type(error).__name__}: {error}.") from error
