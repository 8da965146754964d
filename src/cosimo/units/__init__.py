"""Units: state-space and mechanical models with their integrators, FMUs, Python objects, compiled functions.

Names are loaded when first used: a system of linear units does without what FMUs need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosimo.core import loaded_when_used

if TYPE_CHECKING:
    from cosimo.core.unit import DiscreteModel as DiscreteModel
    from cosimo.core.unit import Instance as Instance
    from cosimo.core.unit import LinearModel as LinearModel
    from cosimo.core.unit import Unit as Unit
    from cosimo.units.archives import ArchiveLimits as ArchiveLimits
    from cosimo.units.fmi.fmu import Experiment as Experiment
    from cosimo.units.fmi.fmu import Fmu as Fmu
    from cosimo.units.fmi.fmu import FmuOptions as FmuOptions
    from cosimo.units.fmi.isolation import Isolation as Isolation
    from cosimo.units.linear import Exact as Exact
    from cosimo.units.linear import ForwardEuler as ForwardEuler
    from cosimo.units.linear import Integrator as Integrator
    from cosimo.units.linear import Mechanical as Mechanical
    from cosimo.units.linear import RungeKutta4 as RungeKutta4
    from cosimo.units.linear import StateSpace as StateSpace
    from cosimo.units.linear import SymplecticEuler as SymplecticEuler
    from cosimo.units.native import NativeUnit as NativeUnit
    from cosimo.units.python import PythonUnit as PythonUnit

_HOMES = {
    "ArchiveLimits": "cosimo.units.archives",
    "DiscreteModel": "cosimo.core.unit",
    "Exact": "cosimo.units.linear",
    "Experiment": "cosimo.units.fmi.fmu",
    "Fmu": "cosimo.units.fmi.fmu",
    "FmuOptions": "cosimo.units.fmi.fmu",
    "ForwardEuler": "cosimo.units.linear",
    "Instance": "cosimo.core.unit",
    "Integrator": "cosimo.units.linear",
    "Isolation": "cosimo.units.fmi.isolation",
    "LinearModel": "cosimo.core.unit",
    "Mechanical": "cosimo.units.linear",
    "NativeUnit": "cosimo.units.native",
    "PythonUnit": "cosimo.units.python",
    "RungeKutta4": "cosimo.units.linear",
    "StateSpace": "cosimo.units.linear",
    "SymplecticEuler": "cosimo.units.linear",
    "Unit": "cosimo.core.unit",
}
__all__ = list(_HOMES)
__getattr__ = loaded_when_used("cosimo.units", _HOMES)
