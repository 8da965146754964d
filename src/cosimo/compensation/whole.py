"""The coupled system as one unit: what monolithic integration and the exact solution are computed with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from cosimo.algebra import CoupledModel
from cosimo.analysis.stiffness import state_places
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.units import Exact, Mechanical, StateSpace, SymplecticEuler
from cosimo.units.linear import LinearUnit

UNIT = "whole"
"""The name of the one unit; its inputs and outputs are called as in the system, its states `state 1`, …"""


def require_linear(system: System) -> dict[str, LinearUnit]:
    """All units, which must be linear ones."""
    units: dict[str, LinearUnit] = {}
    for name, unit in system.units.items():
        if not isinstance(unit, LinearUnit):
            raise ConfigurationError(
                f"unit '{name}' is a {type(unit).__name__}; compensation needs linear units. Design it on linear units "
                f"with the same names, inputs and outputs, and run the master that comes of it on this system."
            )
        units[name] = unit
    return units


def rebuilt(unit: LinearUnit, **changes: Any) -> LinearUnit:
    """The unit with some of the arguments it was made with replaced."""
    given: dict[str, Any] = {
        "initial": unit.initial_state,
        "integrator": unit.integrator,
        "micro_steps": unit.micro_steps,
        "inputs": unit.inputs,
        "outputs": unit.outputs,
        "start": unit.start,
    }
    if isinstance(unit, Mechanical):
        maps = ("M", "C", "K", "B", "displacement", "velocity", "acceleration")
        given |= {name: getattr(unit, name) for name in maps} | {"feedthrough": unit.direct}
        return Mechanical(**given | changes)
    return StateSpace(**given | vars(unit.model) | changes)


def dense(coupled: CoupledModel) -> CoupledModel:
    """The same model with plain arrays."""
    return replace(
        coupled, **{name: part.toarray() if sp.issparse(part) else part for name, part in vars(coupled).items()}
    )


def monolithic_unit(system: System, coupled: CoupledModel) -> tuple[LinearUnit, npt.NDArray[np.intp]]:
    """The whole under the integrator that all units share, and which of the units' states its states are."""
    units = require_linear(system)
    kinds = {(unit.integrator, unit.micro_steps) for unit in units.values()}
    if len(kinds) != 1:
        raise ConfigurationError("the units have different integrators; only target 'exact' makes sense for them.")
    ((integrator, micro_steps),) = kinds
    order = np.arange(len(coupled.A))
    if not isinstance(integrator, SymplecticEuler):
        return _unit(system, coupled, order, integrator=integrator, micro_steps=micro_steps), order
    # Symplectic Euler wants all positions first, then all velocities.
    order = np.concatenate(state_places(len(unit.model.A) // 2 for unit in units.values())).astype(np.intp)
    return _unit(system, coupled, order, integrator=integrator, micro_steps=micro_steps), order


def exact_unit(system: System, coupled: CoupledModel) -> LinearUnit:
    """The whole without any error of integration; its states are those of the units, one after the other."""
    return _unit(system, coupled, np.arange(len(coupled.A)), integrator=Exact(), micro_steps=1)


def as_system(system: System, whole: LinearUnit) -> System:
    """The one unit with all that comes from outside: external inputs, offsets of connections, start values."""
    given: dict[str, Any] = {}
    for name in system.units:
        for inlet in system.inlets[name]:
            given[f"{UNIT}.{inlet.target}"] = (
                inlet.link.connection.offset if inlet.link else inlet.source if inlet.source else inlet.start
            )
    return System({UNIT: whole}, inputs=given, name=system.name)


def _unit(system: System, coupled: CoupledModel, order: npt.NDArray[np.intp], **solver: Any) -> LinearUnit:
    """ẋ = A_c x + B (I − L D)⁻¹ b, y = C_c x + (I − D L)⁻¹ D b, with b what reaches the inputs from outside."""
    n, through = len(order), coupled.solve_loop(coupled.D)
    A = coupled.A[np.ix_(order, order)]
    B: Array = (coupled.B + coupled.B @ coupled.L @ through)[order]
    C = np.vstack([coupled.C[:, order], np.eye(n)])
    D = np.vstack([through, np.zeros((n, B.shape[1]))])
    names: dict[str, Any] = {
        "inputs": system.input_names,
        "outputs": [*system.outputs, *(f"state {i + 1}" for i in range(n))],
        "initial": np.concatenate([unit.initial_state for unit in system.units.values()])[order],
    }
    if not isinstance(solver["integrator"], SymplecticEuler):
        return StateSpace(A, B, C, D, **names, **solver)
    half = n // 2
    return Mechanical(
        np.eye(half),
        -A[half:, half:],
        -A[half:, :half],
        B=B[half:],
        displacement=C[:, :half],
        velocity=C[:, half:],
        feedthrough=D,
        **names,
        **solver,
    )
