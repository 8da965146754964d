"""Where a unit is identified, and which of its states can be seen there."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.sources import Source, as_source
from cosimo.core.unit import Instance, Unit


@dataclass(frozen=True)
class OperatingPoint:
    """The state a unit is in at `time`, after a run from `start_time` under `inputs` (numbers or functions of time).

    Inputs that are not named keep their start values (0 without one). From `time` on all inputs are held. The run-up
    is made with the macro step, so `time` is rounded to a whole number of these.
    """

    time: float = 0.0
    start_time: float = 0.0
    inputs: Mapping[str, float | Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time) and math.isfinite(self.start_time) and self.time >= self.start_time):
            raise ConfigurationError(
                f"an operating point needs a time ({self.time}) that is not before the start time ({self.start_time})."
            )

    def sources(self, unit: Unit) -> list[Source]:
        """The signal of every input."""
        for name in self.inputs:
            if name not in unit.inputs:
                raise UnknownNameError("input", name, unit.inputs)
        return [as_source(name, self.inputs.get(name, unit.start.get(name, 0.0))) for name in unit.inputs]


class StateAccess(ABC):
    """The states of a unit that can be seen between steps; `names` says which."""

    names: tuple[str, ...]

    @abstractmethod
    def read(self, instance: Any) -> Array:
        """Their values now."""

    @abstractmethod
    def write(self, instance: Any, values: Array) -> None:
        """Set them; a unit that does not allow it raises."""

    def restart(self, values: Array, time: float) -> Instance | None:
        """A fresh instance that starts at `time` with these states, or None where states cannot be given at a start."""
        return None


class FmuStates(StateAccess):
    """The continuous states that the description of an FMU lists, with the names of their derivatives."""

    def __init__(self, unit: Any) -> None:
        from cosimo.units.fmu_access import continuous_states

        found = continuous_states(unit)
        self.unit, self.names, self.derivatives = unit, found.states, found.derivatives

    def read(self, instance: Any) -> Array:
        from cosimo.units.fmu_access import get_variables

        return get_variables(instance, self.unit, self.names)

    def write(self, instance: Any, values: Array) -> None:
        from cosimo.units.fmu_access import set_variables

        set_variables(instance, self.unit, self.names, values.tolist())

    def restart(self, values: Array, time: float) -> Instance | None:
        from cosimo.units.fmu_variables import SETTABLE

        if any(self.unit.variables[name].initial not in SETTABLE for name in self.names):
            return None
        changed = copy.copy(self.unit)
        changed.given = {**self.unit.given, **dict(zip(self.names, values.tolist(), strict=True))}
        instance: Instance = changed.instantiate(time)
        return instance


class NativeStates(StateAccess):
    """The array x that the functions of a native unit work on."""

    def __init__(self, unit: Any) -> None:
        self.names = tuple(f"x{number}" for number in range(1, len(unit.initial) + 1))

    def read(self, instance: Any) -> Array:
        return np.array(instance.x, dtype=float)

    def write(self, instance: Any, values: Array) -> None:
        instance.x[:] = values


def state_access(unit: Unit) -> StateAccess | None:
    """How the states of `unit` can be seen, or None where they cannot."""
    from cosimo.units.fmu import Fmu
    from cosimo.units.native import NativeUnit

    access: StateAccess | None = None
    if isinstance(unit, Fmu):
        access = FmuStates(unit)
    elif isinstance(unit, NativeUnit):
        access = NativeStates(unit)
    return access if access is not None and access.names else None
