"""cosimo: co-simulation that says before running whether a coupling is stable and how wrong it will be.

A coupled system is made of *units* (simulators with their own solvers) whose outputs are *connected* to inputs of
others. They exchange values only at communication points. A *master* says in which order: its *schedule* is a short
list of operations on one signal vector z (`cosimo.core.schedule`, the idea in one file). The same schedule is

- executed on live units: `run(system, master, stop=10.0)`, or
- multiplied as matrices into the one-step map Φ: `analyse(system, master)`; for known equations nothing is simulated.

    import cosimo as co

    truck = co.load("quarter_truck.ssp")                     # a scenario: system, master, step, stop time, target
    verdict = truck.analyse()
    result = truck.run(master=verdict.recommendation)

    system = co.problems.two_mass()                          # or in code
    master = co.masters.gauss_seidel(system, step=1e-3)
    print(co.analyse(system, master))
    print(co.run(system, master, stop=10.0)["two.x"])

Names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cosimo.core import __version__ as __version__
from cosimo.core import loaded_when_used

if TYPE_CHECKING:
    from cosimo import couplings, masters, problems
    from cosimo.analysis.analysing import analyse
    from cosimo.analysis.identification import identify
    from cosimo.compensation import compensate
    from cosimo.core.errors import CosimoError
    from cosimo.core.master import Master
    from cosimo.core.result import Result
    from cosimo.core.schedule import Schedule
    from cosimo.core.system import Connection, System, Table
    from cosimo.core.unit import Unit
    from cosimo.execution.running import run
    from cosimo.formats.scenario import Scenario, load, simulate
    from cosimo.reporting.report import report
    from cosimo.studio.frozen import explore
    from cosimo.tuning import tune
    from cosimo.units import Fmu, Mechanical, PythonUnit, StateSpace

_HOMES = {
    "Connection": "cosimo.core.system",
    "CosimoError": "cosimo.core.errors",
    "Fmu": "cosimo.units",
    "Master": "cosimo.core.master",
    "Mechanical": "cosimo.units",
    "PythonUnit": "cosimo.units",
    "Result": "cosimo.core.result",
    "Schedule": "cosimo.core.schedule",
    "StateSpace": "cosimo.units",
    "System": "cosimo.core.system",
    "Table": "cosimo.core.system",
    "Unit": "cosimo.core.unit",
    "analyse": "cosimo.analysis",
    "compensate": "cosimo.compensation",
    "couplings": "cosimo.couplings",
    "explore": "cosimo.studio.frozen",
    "identify": "cosimo.analysis.identification",
    "masters": "cosimo.masters",
    "problems": "cosimo.problems",
    "report": "cosimo.reporting.report",
    "load": "cosimo.formats.scenario",
    "Scenario": "cosimo.formats.scenario",
    "run": "cosimo.execution.running",
    "simulate": "cosimo.formats.scenario",
    "tune": "cosimo.tuning",
    # Not public: what scenarios need of packages that a plain run never loads.
    "Memory": "cosimo.analysis.memory",
    "tuning": "cosimo.tuning",
}

__all__ = [
    "Connection",
    "CosimoError",
    "Fmu",
    "Master",
    "Mechanical",
    "PythonUnit",
    "Result",
    "Scenario",
    "Schedule",
    "StateSpace",
    "System",
    "Table",
    "Unit",
    "analyse",
    "compensate",
    "couplings",
    "explore",
    "identify",
    "load",
    "masters",
    "problems",
    "report",
    "run",
    "simulate",
    "tune",
]
__getattr__ = loaded_when_used("cosimo", _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
