"""Units: state-space and mechanical models with their integrators, FMUs, Python objects, compiled functions."""

from cosimo.core.unit import DiscreteModel, Instance, LinearModel, Unit
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.isolation import Isolation
from cosimo.units.linear import Exact, ForwardEuler, Integrator, Mechanical, RungeKutta4, StateSpace, SymplecticEuler
from cosimo.units.native import NativeUnit
from cosimo.units.python import PythonUnit

__all__ = [
    "ArchiveLimits",
    "DiscreteModel",
    "Exact",
    "Experiment",
    "Fmu",
    "FmuOptions",
    "ForwardEuler",
    "Instance",
    "Integrator",
    "Isolation",
    "LinearModel",
    "Mechanical",
    "NativeUnit",
    "PythonUnit",
    "RungeKutta4",
    "StateSpace",
    "SymplecticEuler",
    "Unit",
]
