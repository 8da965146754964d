"""Units: state-space and mechanical models with their integrators, and plain Python objects."""

from cosimo.core.unit import DiscreteModel, Instance, LinearModel, Unit
from cosimo.units.integrators import Exact, ForwardEuler, Integrator, RungeKutta4, SymplecticEuler
from cosimo.units.linear import Mechanical, StateSpace
from cosimo.units.python import PythonUnit

__all__ = [
    "DiscreteModel",
    "Exact",
    "ForwardEuler",
    "Instance",
    "Integrator",
    "LinearModel",
    "Mechanical",
    "PythonUnit",
    "RungeKutta4",
    "StateSpace",
    "SymplecticEuler",
    "Unit",
]
