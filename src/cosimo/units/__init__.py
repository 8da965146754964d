"""Units: state-space and mechanical models with their integrators, FMUs, Python objects, compiled functions.

Names are loaded when first used: a system of linear units does without what FMUs need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

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
    "ArchiveLimits": "units.archives",
    "DiscreteModel": "core.unit",
    "Exact": "units.linear",
    "Experiment": "units.fmi.fmu",
    "Fmu": "units.fmi.fmu",
    "FmuOptions": "units.fmi.fmu",
    "ForwardEuler": "units.linear",
    "Instance": "core.unit",
    "Integrator": "units.linear",
    "Isolation": "units.fmi.isolation",
    "LinearModel": "core.unit",
    "Mechanical": "units.linear",
    "NativeUnit": "units.native",
    "PythonUnit": "units.python",
    "RungeKutta4": "units.linear",
    "StateSpace": "units.linear",
    "SymplecticEuler": "units.linear",
    "Unit": "core.unit",
}
__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cosimo.units' has no attribute '{name}'")
    return getattr(importlib.import_module(f"cosimo.{_HOMES[name]}"), name)
