"""Derivatives exchanged with an FMU: those of inputs in time, and those of outputs with respect to inputs."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.units.fmu_component import WARNING, Component
from cosimo.units.fmu_variables import MANTISSA, VariableInfo

if TYPE_CHECKING:
    from cosimo.units.fmu import Fmu


class InputDerivatives:
    """d^j u / dt^j = j! c_j / h^j of the continuous inputs, for the next step (FMI 2.0).

    Only the orders that the coupling forms are handed over, and never an empty list: some FMUs refuse either. An order
    that an FMU refuses is left out from then on (`highest`), as in the compiled loop.
    """

    def __init__(self, infos: Sequence[VariableInfo], degree: int) -> None:
        self._columns = [number for number, info in enumerate(infos) if info.continuous]
        references = [infos[column].value_reference for column in self._columns]
        self._count, self.highest = len(references), degree
        self._references = (ctypes.c_uint * (self._count * degree))(*references * degree)
        orders = [order for order in range(1, degree + 1) for _ in references]
        self._orders = (ctypes.c_int * len(orders))(*orders)
        self._values = (ctypes.c_double * len(orders))()

    def set(self, component: Component, coefficients: Array, h: float) -> None:
        """Hand over all orders of the polynomial in one call."""
        powers = coefficients[1:, self._columns]
        scaled = [row * (math.factorial(j) / h**j) for j, row in enumerate(powers, 1)]
        while (orders := min(len(scaled), self.highest)) and self._count:
            count = orders * self._count
            self._values[:count] = np.concatenate(scaled[:orders]).tolist()
            arguments = (self._references, count, self._orders, self._values)
            status = component.status("fmi2SetRealInputDerivatives", *arguments)
            if status <= WARNING:
                return
            if component.dead:
                component.fail("fmi2SetRealInputDerivatives", status, "")
            component.running = True  # the refusal concerns this call alone
            self.highest = orders - 1


def directional_derivative(
    component: Component, unit: Fmu, unknowns: Sequence[str], knowns: Sequence[str], seed: Sequence[float]
) -> Array:
    """Σ_j ∂unknown_i / ∂known_j · seed_j. FMI 3.0 knows whole arrays only: elements are put in and picked out."""
    if len(seed) != len(knowns):
        raise ConfigurationError(f"{len(knowns)} knowns need as many seeds, not {len(seed)}.")
    wanted, given = _Whole(unit, unknowns), _Whole(unit, knowns)
    seeds, result = (ctypes.c_double * given.size)(), (ctypes.c_double * wanted.size)()
    for place, value in zip(given.places, seed, strict=True):
        seeds[place] += value
    references = (wanted.references, len(wanted.references), given.references, len(given.references))
    sizes = unit.major_version == 3
    values = (seeds, given.size, result, wanted.size) if sizes else (seeds, result)
    component.call(f"fmi{unit.major_version}GetDirectionalDerivative", *references, *values)
    return np.array(result, dtype=float)[wanted.places]


class _Whole:
    """The whole variables behind the named ones, and where the named ones are among their elements."""

    def __init__(self, unit: Fmu, names: Sequence[str]) -> None:
        first: dict[str, int] = {}
        references = []
        self.places = []
        self.size = 0
        for name in names:
            if name not in unit.variables:
                raise UnknownNameError(f"variable of FMU '{unit.path}'", name, unit.variables)
            info, owner = unit.variables[name], unit.owners[name]
            if info.type not in MANTISSA:
                raise ConfigurationError(f"FMU '{unit.path}': '{name}' is of type {info.type} and has no derivatives.")
            if owner not in first:
                first[owner] = self.size
                self.size += unit.size(name)
                references.append(info.value_reference)
            self.places.append(first[owner] + (info.element or 0))
        self.references = (ctypes.c_uint * len(references))(*references)
