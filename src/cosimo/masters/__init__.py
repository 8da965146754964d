"""Masters: functions that write schedules.

Each takes the system and the macro step, and the couplings as `coupling=` (for all connections) and `couplings=` (by
target input). To add a master, return a `Master` whose schedule couples, steps and reads every unit so that each
advances by exactly one macro step; the analysis and both interpreters then know it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Literal

from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Couple, Operation, Read, Repeat, Restore, Save, Schedule, Step
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce

__all__ = ["Convergence", "gauss_seidel", "groups", "iterative", "jacobi", "jacobi_early_read", "multirate"]

Couplings = Mapping[str, Coupling]


def jacobi(
    system: System, step: float, *, coupling: Coupling | None = None, couplings: Couplings | None = None
) -> Master:
    """Couple all, step all, read all: the units may run in parallel (F1 F2 G1 G2 H1 H2)."""
    return _master("jacobi", system, step, tuple(_together(system.names)), coupling, couplings)


def jacobi_early_read(
    system: System, step: float, *, coupling: Coupling | None = None, couplings: Couplings | None = None
) -> Master:
    """Jacobi in which units with feedthrough are read after coupling and before the step (F2 F1 H1 G1 G2 H2).

    Their outputs then belong to the start of the step and are delivered at the next exchange; this is the order of
    operations in tamellin2022 and richiedei2024.
    """
    early = [name for name, unit in system.units.items() if unit.feedthrough().any()]
    late = [name for name in system.names if name not in early]
    operations: tuple[Operation, ...] = (
        *map(Couple, late),
        *map(Couple, early),
        *map(Read, early),
        *map(Step, system.names),
        *map(Read, late),
    )
    return _master("jacobi-early-read", system, step, operations, coupling, couplings)


def gauss_seidel(
    system: System,
    step: float,
    *,
    order: Sequence[str] | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Couple, step and read unit after unit, in `order` (default: that of the system) (F1 G1 H1 F2 G2 H2)."""
    order = _complete(system, order)
    operations = tuple(op for name in order for op in _together([name]))
    return _master(f"gauss-seidel({','.join(order)})", system, step, operations, coupling, couplings)


def groups(
    system: System,
    step: float,
    *,
    order: Sequence[Sequence[str]],
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Groups one after the other, Jacobi inside each."""
    _complete(system, [name for group in order for name in group])
    operations = tuple(op for group in order for op in _together(group))
    name = "groups(" + ";".join(",".join(group) for group in order) + ")"
    return _master(name, system, step, operations, coupling, couplings)


def multirate(
    system: System,
    step: float,
    *,
    multiples: Mapping[str, int],
    inputs: Literal["held", "interpolated"] = "held",
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Every unit steps by its own multiple of the base `step` (1 where not given); the macro step is the hyperperiod.

    "held": at each base tick the units that are due are coupled, stepped, and read when their time has come, so that
    faster units see the last value of slower ones. "interpolated": units that start at the same tick go slowest first
    and are read at once; the faster ones see their future, and with `Hold(1)` (the default here) interpolate it.
    """
    for name, multiple in multiples.items():
        if name not in system.units:
            raise UnknownNameError("unit", name, system.units)
        if not isinstance(multiple, int) or multiple < 1:
            raise ConfigurationError(f"unit '{name}' steps by {multiple} base steps; give a positive whole number.")
    if inputs not in ("held", "interpolated"):
        raise UnknownNameError("kind of inputs of a multirate master", inputs, ("held", "interpolated"))
    every = {name: multiples.get(name, 1) for name in system.names}
    period = math.lcm(*every.values())
    operations: list[Operation] = []
    for tick in range(period):
        due = sorted((n for n in every if tick % every[n] == 0), key=lambda n: -every[n])
        steps = {name: Step(name, Fraction(every[name], period)) for name in due}
        if inputs == "interpolated":
            operations += [op for name in due for op in (Couple(name), steps[name], Read(name))]
        else:
            operations += [*map(Couple, due), *steps.values()]
            operations += [Read(name) for name in every if (tick + 1) % every[name] == 0]
    name = f"multirate({','.join(f'{n}:{m}' for n, m in every.items())};{inputs})"
    return _master(
        name, system, step * period, tuple(operations), coupling or Hold(int(inputs == "interpolated")), couplings
    )


def iterative(
    system: System,
    step: float,
    *,
    sweeps: int | Convergence | None = None,
    order: Sequence[str] | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Repeat the macro step with newer inputs: a fixed number of `sweeps`, or until `Convergence(...)` (the default).

    Without `order` a sweep is Jacobi (successive substitution, gomes2018, Eq. 15); with it, Gauss–Seidel. All units
    must be able to restore their state.
    """
    for name, unit in system.units.items():
        if not unit.can_restore:
            raise ConfigurationError(f"unit '{name}' cannot restore its state; use a master that does not iterate.")
    sweeps = Convergence() if sweeps is None else sweeps
    stages = [system.names] if order is None else [[name] for name in _complete(system, order)]
    body: tuple[Operation, ...] = (*map(Restore, system.names), *(op for stage in stages for op in _together(stage)))
    kind = "jacobi" if order is None else "gauss-seidel"
    times = f"{sweeps}" if isinstance(sweeps, int) else "until converged"
    operations: tuple[Operation, ...] = (*map(Save, system.names), Repeat(body, sweeps))
    return _master(f"iterative({kind};{times})", system, step, operations, coupling, couplings)


def _together(names: Iterable[str]) -> list[Operation]:
    names = list(names)
    return [*map(Couple, names), *map(Step, names), *map(Read, names)]


def _complete(system: System, order: Sequence[str] | None) -> tuple[str, ...]:
    if isinstance(order, str):
        raise ConfigurationError(f"an order is a sequence of unit names, not the text '{order}'.")
    order = system.names if order is None else tuple(order)
    for name in order:
        if name not in system.units:
            raise UnknownNameError("unit", name, system.units)
    if sorted(order) != sorted(system.names):
        raise ConfigurationError(
            f"the order {', '.join(order)} must name each of the units {', '.join(system.names)} exactly once."
        )
    return order


def _master(
    name: str,
    system: System,
    step: float,
    operations: tuple[Operation, ...],
    coupling: Coupling | None,
    couplings: Couplings | None,
) -> Master:
    chosen = dict(couplings or {})
    for target in chosen:
        system.input(target)
    for unit_name, unit in system.units.items():
        for variable in unit.discrete_inputs:
            held = chosen.setdefault(f"{unit_name}.{variable}", Hold(0))
            if held.degree > 0 or held.history > 1 or isinstance(held, Nepce):
                raise ConfigurationError(
                    f"input {unit_name}.{variable} is not continuous; it can only be held (Hold(0))."
                )
    return Master(name, Schedule(system.names, operations), step, coupling or Hold(0), chosen)
