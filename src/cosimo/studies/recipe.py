"""From the values of a point to the system and the master that are run there."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.sources import Source
from cosimo.core.system import System
from cosimo.core.unit import Unit
from cosimo.formats.loaded import Loaded
from cosimo.formats.loading import SUFFIXES, load
from cosimo.masters.words import MasterOptions, build_master
from cosimo.studies.study import STEP, Study
from cosimo.units.fmu import Fmu
from cosimo.units.fmu_reserve import Reserve
from cosimo.units.python import PythonUnit


class Place(NamedTuple):
    """What a varied name stands for."""

    kind: Literal["step", "setting", "value", "input"]
    unit: str = ""
    variable: str = ""


class Recipe:
    """Builds the systems of a study. `nominal` is the one without variation; FMUs take instances from `reserve`."""

    def __init__(self, study: Study, reserve: Reserve) -> None:
        self._study, self._reserve = study, reserve
        found = self._load({})
        self.nominal = found.system
        self.start = _first(study.start, found.start, 0.0)
        stop = study.stop if study.stop is not None else found.stop
        if stop is None:
            raise ConfigurationError(f"'{self.nominal.name}' does not say when to stop; give the study a stop time.")
        self.stop = stop
        self._master: MasterOptions | Master = study.master or found.master or MasterOptions()
        given = self._master.step if isinstance(self._master, Master) else found.step
        self._step = study.step if study.step is not None else given
        self._places = [self._place(name) for name in study.table.names]
        if self._step is None and STEP not in study.table.names:
            raise ConfigurationError(f"'{self.nominal.name}' does not say the macro step; give the study a step.")
        self._check()

    def build(self, values: Sequence[float]) -> tuple[System, Master]:
        """The system and the master at one point."""
        settings: dict[str, float] = {}
        of_units: dict[str, dict[str, float]] = {}
        inputs: dict[str, float | Source] = {}
        step = self._step
        for name, place, value in zip(self._study.table.names, self._places, values, strict=True):
            match place.kind:
                case "step":
                    step = value
                case "setting":
                    settings[name] = value
                case "value":
                    of_units.setdefault(place.unit, {})[place.variable] = value
                case "input":
                    inputs[name] = value
        base = self._load(settings).system if settings else self.nominal
        units = {name: self._unit(unit, of_units.get(name, {})) for name, unit in base.units.items()}
        system = System(units, base.connections, inputs={**base.inputs, **inputs}, name=base.name)
        assert step is not None
        if isinstance(self._master, Master):
            return system, self._master.with_step(step)
        return system, build_master(system, step, self._master)

    def _load(self, settings: Mapping[str, float]) -> Loaded:
        source = self._study.source
        if isinstance(source, System):
            return Loaded(source)
        loaded = load(source, settings={**self._study.settings, **settings})
        for name, isolation in self._study.isolation.items():
            unit = loaded.system.units[name]
            assert isinstance(unit, Fmu)
            unit.isolation = isolation
        return loaded

    def _unit(self, unit: Unit, values: Mapping[str, float]) -> Unit:
        if isinstance(unit, Fmu):
            return unit.with_values(values, reserve=self._reserve)
        if values:
            assert isinstance(unit, PythonUnit)
            unit = copy.copy(unit)
            unit.parameters = {**unit.parameters, **values}
        return unit

    def _place(self, name: str) -> Place:
        if name == STEP:
            return Place("step")
        units = self.nominal.units
        owner = max((unit for unit in units if name.startswith(unit + ".")), key=len, default=None)
        if owner is None:
            return self._setting(name)
        unit, variable = units[owner], name[len(owner) + 1 :]
        if isinstance(unit, Fmu):
            return Place("value", owner, variable)
        parameters = _parameters(unit)
        if variable in parameters:
            return Place("value", owner, variable)
        if variable not in unit.inputs:
            raise UnknownNameError(f"parameter or input of unit '{owner}'", variable, (*parameters, *unit.inputs))
        fed = self.nominal.inlets[owner][unit.inputs.index(variable)].link
        if fed is not None:
            raise ConfigurationError(f"{name} is fed by {fed.connection.source} and cannot be varied; vary that unit.")
        return Place("input")

    def _setting(self, name: str) -> Place:
        source, known = self._study.source, _problem_parameters(self._study.source)
        if isinstance(source, System):
            raise UnknownNameError("parameter to vary", name, (STEP, *(f"{unit}.…" for unit in self.nominal.units)))
        if known is not None and name not in known:
            raise UnknownNameError(f"parameter of '{source}'", name, (STEP, *known))
        return Place("setting")

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
            self._check_units(first)

    def _check_units(self, first: Sequence[float]) -> None:
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


def _parameters(unit: Unit) -> tuple[str, ...]:
    """What a Python unit can be made with."""
    return tuple(inspect.signature(unit.kind).parameters) if isinstance(unit, PythonUnit) else ()


def _first(*values: float | None) -> float:
    return next(value for value in values if value is not None)
