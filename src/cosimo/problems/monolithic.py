"""The whole system integrated at once, by the integrators of its units: what a coupling should come near to.

With the exchange

    F_two  G_one G_two  H_two  F_one H_one          (`one` feeds its input through to its output, `two` does not)

all outputs belong to the same moment and every unit starts its step from them. Where the units' integrators use the
inputs at the start of a step, this *is* the same integrator on the undivided system, to rounding.
"""

from __future__ import annotations

from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.schedule import Couple, Operation, Read, Schedule, Step
from cosimo.core.system import System
from cosimo.couplings import Hold


def fresh(system: System, step: float) -> Master:
    """The master of the exchange above; no unit with feedthrough may be fed by another one."""
    late = [name for name, unit in system.units.items() if unit.feedthrough().any()]
    early = [name for name in system.names if name not in late]
    for link in system.links:
        if {link.source.unit, link.target.unit} <= set(late):
            raise ConfigurationError(
                f"connection {link.connection} joins two units with direct feedthrough; their outputs cannot all be "
                "read in one pass, so there is no fresh exchange."
            )
    operations: tuple[Operation, ...] = (
        *map(Couple, early),
        *map(Step, system.names),
        *map(Read, early),
        *map(Couple, late),
        *map(Read, late),
    )
    return Master("fresh", Schedule(system.names, operations), step, Hold(0))


def run_monolithic(system: System, *, step: float, stop: float) -> Result:
    """The trajectory of all outputs of the undivided system, one row per `step`."""
    from cosimo.execution.running import run

    return run(system, fresh(system, step), stop=stop)
