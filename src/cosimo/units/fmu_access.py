"""Variables of a live FMU beyond its inputs and outputs: the continuous states that its description lists.

Co-simulation FMUs need not list any. Where they do, a state can be read at every communication point; whether it can
also be set there is for the FMU to say (the standard only promises it until initialisation ends).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array
from cosimo.units.fmu import Fmu
from cosimo.units.fmu_archive import read_description
from cosimo.units.fmu_groups import group, write_values
from cosimo.units.fmu_instance import FmuInstance


@dataclass(frozen=True)
class ContinuousStates:
    """Names of the states and of their derivatives, element by element, in the order of the model structure."""

    states: tuple[str, ...]
    derivatives: tuple[str, ...]


def continuous_states(unit: Fmu) -> ContinuousStates:
    """What the model structure lists; empty where the FMU keeps its states to itself."""
    description, _ = read_description(unit.path, validate=unit.options.validate, limits=unit.options.limits)
    pairs = [(unknown.variable.derivative, unknown.variable) for unknown in description.derivatives]
    states: list[str] = []
    derivatives: list[str] = []
    for state, derivative in pairs:
        if state is None:
            return ContinuousStates((), ())  # a derivative of nothing: the list cannot be trusted
        states += _elements(unit, state.name)
        derivatives += _elements(unit, derivative.name)
    if len(states) != len(derivatives) or len(set(states)) != len(states):
        return ContinuousStates((), ())
    return ContinuousStates(tuple(states), tuple(derivatives))


def get_variables(instance: FmuInstance, unit: Fmu, names: Sequence[str]) -> Array:
    """The values of numeric variables or array elements now."""
    values = np.empty(len(names))
    whole = _whole(unit, names)
    place = {name: number for number, name in enumerate(whole)}
    found = np.empty(len(whole))
    for members in group([unit.variables[name] for name in whole], unit.major_version):
        members.get(instance._component, found)
    values[:] = found[[place[name] for name in names]]
    return values


def set_variables(instance: FmuInstance, unit: Fmu, names: Sequence[str], values: Sequence[float]) -> None:
    """Set numeric variables; of an array, all its elements must be named."""
    given = [(unit.variables[name], float(value)) for name, value in zip(names, values, strict=True)]
    write_values(instance._component, unit.major_version, given)


def _elements(unit: Fmu, owner: str) -> list[str]:
    return [name for name, whole in unit.owners.items() if whole == owner]


def _whole(unit: Fmu, names: Sequence[str]) -> list[str]:
    """All elements of the variables that `names` are part of: FMI reads arrays whole."""
    owners = dict.fromkeys(unit.owners[name] for name in names)
    return [element for owner in owners for element in _elements(unit, owner)]
