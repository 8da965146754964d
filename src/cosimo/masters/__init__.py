"""Masters: functions that write schedules.

Each takes the system and the macro step, and the couplings as `coupling=` (for all connections) and `couplings=` (by
target input). `MASTERS` is the one list of the words by which they are chosen: the command line, completion, scenario
files, `tune` and `compare` read it. To add a master, write a function that returns a `Master` whose schedule couples,
steps and reads every unit so that each advances by exactly one macro step, and its line in `MASTERS`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import (
    Convergence,
    Couple,
    Operation,
    Read,
    Repeat,
    Restore,
    SampleOutputs,
    Save,
    Schedule,
    Step,
)
from cosimo.core.system import System
from cosimo.couplings import Hold

__all__ = [
    "MASTERS",
    "Convergence",
    "Grants",
    "MasterOptions",
    "federation",
    "gauss_seidel",
    "groups",
    "iterative",
    "jacobi",
    "jacobi_early_read",
    "multirate",
    "strang",
]

Couplings = Mapping[str, Coupling]
MOST_TICKS = 100_000
"""Base steps after which a multirate schedule must repeat: it is written out, some operations per unit and tick."""


@checked
def jacobi(
    system: System, step: float, *, coupling: Coupling | None = None, couplings: Couplings | None = None
) -> Master:
    """Couple all, step all, read all: the units may run in parallel (F1 F2 G1 G2 H1 H2)."""
    return _master("jacobi", system, step, tuple(_together(system.names)), coupling, couplings)


@checked
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


@checked
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


@checked
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


@checked
def strang(
    system: System,
    step: float,
    *,
    order: Sequence[str | Sequence[str]] | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Half a step of the first part, a full step of the last, half a step of the first (F1 G1(1/2) H1 F2 G2 H2 …).

    `order` lists the parts, each a unit or a group of units that step together (default: every unit by itself). Parts
    between the first and the last make half a step on the way there and half on the way back.

    With held inputs this is Strang splitting (Strang, SIAM J. Numer. Anal. 5, 1968): while one part steps, the
    others stand still. One macro step is symmetric in time, so its error has only even powers of h: order 2, without
    slopes and without restored states. It is of order 1 where a unit is connected with one of its own group, or where
    outputs have direct feedthrough: they show an input that has changed since. No composition with positive steps has
    an order above 2 (Sheng, IMA J. Numer. Anal. 9, 1989), and units cannot go back by a negative one; more accurate are
    `Hold(2)` for units that take slopes, and `iterative` for units that restore their state.
    """
    parts = [(part,) if isinstance(part, str) else tuple(part) for part in (system.names if order is None else order)]
    _complete(system, [name for part in parts for name in part])
    if len(parts) < 2:
        raise ConfigurationError("a splitting needs at least two parts of the system; use jacobi for one group.")
    half = [op for part in parts[:-1] for op in _together(part, Fraction(1, 2))]
    back = [op for part in parts[-2::-1] for op in _together(part, Fraction(1, 2))]
    name = "strang(" + ";".join(",".join(part) for part in parts) + ")"
    return _master(name, system, step, (*half, *_together(parts[-1]), *back), coupling, couplings)


@checked
def multirate(
    system: System,
    step: float,
    *,
    multiples: Mapping[str, int],
    inputs: Literal["held", "interpolated"] = "held",
    order: Sequence[Sequence[str]] | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Every unit takes steps of its own multiple of the base `step` (default 1); the macro step is the hyperperiod.

    "held": at each base tick the units that are due are coupled, stepped, and read when their time has come, so that
    faster units see the last value of slower ones. "interpolated": units that start at the same tick go slowest first
    and are read at once; the faster ones see their future, and with `Hold(1)` (the default here) interpolate it.
    `order` lists groups that go one after the other at each tick, as in `groups`; one group if left out.
    """
    parts = [system.names] if order is None else order
    _complete(system, [name for part in parts for name in part])
    if order is not None and inputs == "interpolated":
        raise ConfigurationError("a multirate master with interpolated inputs goes slowest first; leave out the order.")
    for name, multiple in multiples.items():
        if name not in system.units:
            raise UnknownNameError("unit", name, system.units)
        if not isinstance(multiple, int) or multiple < 1:
            raise ConfigurationError(f"unit '{name}' steps by {multiple} base steps; give a positive whole number.")
    every = {name: multiples.get(name, 1) for name in system.names}
    period = math.lcm(*every.values())
    if period > MOST_TICKS:
        raise ConfigurationError(
            f"a multirate master repeats after {period:,} base steps, the least common multiple of {multiples}; "
            f"at most {MOST_TICKS:,} are possible: choose multiples that divide each other."
        )
    operations: list[Operation] = []
    for tick in range(period):
        for part in parts:
            due = sorted((n for n in part if tick % every[n] == 0), key=lambda n: -every[n])
            steps = {name: Step(name, Fraction(every[name], period)) for name in due}
            if inputs == "interpolated":
                operations += [op for name in due for op in (Couple(name), steps[name], Read(name))]
            else:
                operations += [*map(Couple, due), *steps.values()]
                operations += [Read(name) for name in part if (tick + 1) % every[name] == 0]
    name = f"multirate({';'.join(','.join(f'{n}:{every[n]}' for n in part) for part in parts)};{inputs})"
    return _master(
        name, system, step * period, tuple(operations), coupling or Hold(int(inputs == "interpolated")), couplings
    )


@checked
def iterative(
    system: System,
    step: float,
    *,
    sweeps: int | Convergence | None = None,
    tolerance: float | None = None,
    samples: int = 1,
    order: Sequence[str] | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Repeat the macro step with newer inputs: a fixed number of `sweeps`, or until `Convergence(...)` (the default).

    `tolerance=1e-6` stands for `sweeps=Convergence(1e-6)`.
    Without `order` a sweep is Jacobi (successive substitution, gomes2018, Eq. 15); with it, Gauss–Seidel. All units
    must be able to restore their state.

    With `samples=3` units are read at thirds of the macro step, and every sweep interpolates what the sweep before it
    has sampled (waveform iteration): with `Hold(q)` through q + 1 samples the inputs are in error by O(h^(q+1)), which
    is the order of the master where the units' own solvers have it too.
    """
    for name, unit in system.units.items():
        if not unit.can_restore:
            raise ConfigurationError(f"unit '{name}' cannot restore its state; use a master that does not iterate.")
    if tolerance is not None and sweeps is not None:
        raise ConfigurationError("an iteration has a tolerance or a number of sweeps; give one of the two.")
    if sweeps is None:
        sweeps = Convergence() if tolerance is None else Convergence(tolerance)
    if samples < 1:
        raise ConfigurationError(f"units are sampled at least once per macro step, not {samples} times.")
    if samples > 1 and isinstance(sweeps, Convergence) and (sweeps.anderson or sweeps.quasi_newton):
        raise ConfigurationError(
            "Anderson acceleration and quasi-Newton correct the outputs at the end of the macro step, not the samples "
            "before it; leave out one of the two."
        )
    stages = [system.names] if order is None else [[name] for name in _complete(system, order)]
    swept = (op for stage in stages for op in _sampled(system, stage, samples))
    body: tuple[Operation, ...] = (*map(Restore, system.names), *swept)
    kind = "jacobi" if order is None else "gauss-seidel"
    times = f"{sweeps}" if isinstance(sweeps, int) else "until converged"
    times += f";{samples} samples" if samples > 1 else ""
    operations: tuple[Operation, ...] = (*map(Save, system.names), Repeat(body, sweeps))
    return _master(f"iterative({kind};{times})", system, step, operations, coupling, couplings)


# ---- federations: the order of operations that HELICS settings mean --------------------------------------------------
# A federate is granted the times offset + n · period. A value that is published at the granted time s is seen at the
# granted time t where s < t; by a federate that waits for the others' current update where s ≤ t. What a federate does
# with a grant is its own program, a cycle of F (take the inputs), G (step) and H (publish the outputs):
#
#     FGH   the step that ends at t is made with the inputs of t, and its outputs are published at t
#     FHG   inputs are taken at t, outputs of t are published, then the step that begins at t is made
#     HFG   outputs of t are published, inputs are taken at t, then the step that begins at t is made
#
# At each granted time this is a partial order of the letters of all federates: that of each program, and for a value
# from i to j "H_i before F_j" where j waits and "F_j before H_i" where it does not. A schedule is any order that keeps
# it. Steps that begin at a grant are written just before the next one: nothing that others see lies in between.


@checked
@dataclass(frozen=True)
class Grants:
    """When one federate is granted times, in fractions of the macro step, and what its program does then.

    >>> print(Grants("tyre", Fraction(1, 2), offset=Fraction(1, 4), program="FGH", waits=True))
    tyre:FGH:1/2+1/4:wait
    """

    unit: str
    period: Fraction = Fraction(1)
    offset: Fraction = Fraction(0)
    program: Literal["FGH", "FHG", "HFG"] = "HFG"
    waits: bool = False

    def __post_init__(self) -> None:
        if self.period <= 0 or (1 / self.period).denominator != 1 or 1 / self.period > MOST_TICKS:
            raise ConfigurationError(
                f"federate '{self.unit}' has the period {self.period} of the macro step; a whole number of periods, at "
                f"most {MOST_TICKS:,}, must make one macro step."
            )
        if not 0 <= self.offset < self.period:
            raise ConfigurationError(
                f"federate '{self.unit}' has the offset {self.offset} and the period {self.period}; the offset must "
                "not be negative, and less than the period."
            )

    def __str__(self) -> str:
        offset = f"+{self.offset}" if self.offset else ""
        return f"{self.unit}:{self.program}:{self.period}{offset}{':wait' * self.waits}"

    @classmethod
    def parse(cls, text: str) -> Grants:
        """From the text that `str` gives."""
        found = re.fullmatch(r"(.+):(FGH|FHG|HFG):(\d+(?:/\d+)?)(?:\+(\d+(?:/\d+)?))?(:wait)?", text.strip())
        try:
            if found is None:
                raise ValueError
            unit, program, period, offset, waits = found.groups()
            times = Fraction(period), Fraction(offset or 0)
        except (ValueError, ZeroDivisionError):
            raise ConfigurationError(
                f"'{text}' says not when a federate is granted times; write 'UNIT:FGH:1/2' with its program (FGH, FHG "
                "or HFG) and its period as a part of the macro step, '+1/4' for an offset and ':wait' at the end."
            ) from None
        return cls(unit, times[0], offset=times[1], program=program, waits=bool(waits))  # type: ignore[arg-type]

    @property
    def times(self) -> list[Fraction]:
        """The times that are granted in (0, 1], one macro step."""
        first = self.offset or self.period
        return [first + n * self.period for n in range(int((1 - first) / self.period) + 1)]

    @property
    def ahead(self) -> bool:
        """Whether the step that ends at the first grant of a macro step begins in the one before it."""
        return self.program == "FGH" and self.offset > 0


@checked
def federation(
    system: System,
    step: float,
    *,
    members: Sequence[Grants],
    sweeps: int | Convergence | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """The order in which the federates of a HELICS federation exchange values; every unit is one federate.

    `sweeps`: all federates iterate at each granted time, so often or until the outputs no longer change; those with the
    program FGH repeat their step.
    """
    _complete(system, [member.unit for member in members])
    grants = {member.unit: member for member in members}
    for member in members:
        _check_ahead(system, grants, member)
    ticks = sorted({time for member in members for time in member.times})
    operations: list[Operation] = []
    local = dict.fromkeys(grants, Fraction(0))
    for tick in ticks:
        due = [member for member in members if tick in member.times]
        steps = {member.unit: Step(member.unit, tick - local[member.unit]) for member in due}
        local |= dict.fromkeys(steps, tick)
        operations += _granted(system, due, steps, tick)
    for member in members:
        if member.ahead:
            operations.append(Couple(member.unit))
        if local[member.unit] < 1:
            operations.append(Step(member.unit, 1 - local[member.unit]))
    if sweeps is not None:
        operations = _iterated(members, operations, sweeps)
    name = f"federation({','.join(map(str, members))})"
    return _master(name, system, step, tuple(operations), coupling, couplings)


def _granted(system: System, due: Sequence[Grants], steps: Mapping[str, Step], tick: Fraction) -> list[Operation]:
    """What the federates that are granted the same time do, in an order that shows each what it sees in HELICS."""
    before: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for member in due:
        chain = {"FGH": "FGH", "FHG": "GFH", "HFG": "GHF"}[member.program]
        if member.ahead and tick == member.offset:
            chain = "GH"  # its inputs were taken at the end of the macro step before
        letters = [(letter, member.unit) for letter in chain]
        before |= {letter: set(letters[:place]) for place, letter in enumerate(letters)}
        if member.program == "HFG" and not system.units[member.unit].feedthrough().any():
            before["F", member.unit].discard(("H", member.unit))  # the outputs do not show which input is there
    for member in due:
        for source in {link.source.unit for link in system.incoming(member.unit)}:
            taken, given = ("F", member.unit), ("H", source)
            if taken in before and given in before:
                sees = member.waits and source != member.unit  # nobody waits for what it publishes itself
                before[taken if sees else given].add(given if sees else taken)
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError as error:
        around = sorted({unit for _, unit in error.args[1]})
        raise ConfigurationError(
            f"at one granted time the federates {', '.join(around)} each need what another one publishes later; let "
            "one of them not wait (wait_for_current_time_update), or take its inputs before it publishes (program FHG)."
        ) from None
    places = {member.unit: place for place, member in enumerate(due)}
    operations: list[Operation] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=lambda letter: (letter[0], places[letter[1]]))
        operations += [steps[u] if kind == "G" else Couple(u) if kind == "F" else Read(u) for kind, u in ready]
        sorter.done(*ready)
    return operations


def _check_ahead(system: System, grants: Mapping[str, Grants], member: Grants) -> None:
    """Refuse a step across the end of the macro step whose inputs are not known there."""
    if not member.ahead:
        return
    for source in {link.source.unit for link in system.incoming(member.unit)} - {member.unit}:
        first = grants[source].offset or grants[source].period
        if first < member.offset or (member.waits and first == member.offset):
            raise ConfigurationError(
                f"federate '{member.unit}' makes the step that ends at its first grant with values that '{source}' "
                "publishes while it lasts; such a step cannot begin in one macro step and end in the next: let "
                f"'{member.unit}' step after its grants (program FHG or HFG), or give it no offset."
            )


def _iterated(members: Sequence[Grants], operations: Sequence[Operation], sweeps: int | Convergence) -> list[Operation]:
    """The operations of one granted time, repeated: the step too where it ends there."""
    for member in members:
        if member.period != 1 or member.offset or member.waits or member.program == "HFG":
            raise ConfigurationError(
                f"federate '{member.unit}' cannot iterate: federates that iterate have one period, no offset, do not "
                "wait for the current update, and publish after they have taken their inputs (program FGH or FHG)."
            )
    repeated = [member.unit for member in members if member.program == "FGH"]
    steps = [op for op in operations if isinstance(op, Step) and op.unit not in repeated]
    body = (*map(Restore, repeated), *(op for op in operations if op not in steps))
    return [*steps, *map(Save, repeated), Repeat(body, sweeps)]


def _together(names: Iterable[str], fraction: Fraction = Fraction(1)) -> list[Operation]:
    names = list(names)
    return [*map(Couple, names), *(Step(name, fraction) for name in names), *map(Read, names)]


def _sampled(system: System, names: Iterable[str], count: int) -> list[Operation]:
    """Couple and step together, read `count` times; those that see the outputs remember all but the last for later."""
    names, part = list(names), Fraction(1, count)
    seen = [n for n in system.names if any(link.source.unit in names for link in system.incoming(n))]
    once: list[Operation] = [*(Step(name, part) for name in names), *map(Read, names)]
    return [*map(Couple, names), *([*once, *map(SampleOutputs, seen)] * (count - 1)), *once]


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
            if not chosen.setdefault(f"{unit_name}.{variable}", Hold(0)).held:
                raise ConfigurationError(
                    f"input {unit_name}.{variable} is not continuous; it can only be held (Hold(0))."
                )
    master = Master(name, Schedule(system.names, operations), step, coupling or Hold(0), chosen)
    parts = {name: _substeps(system, master, name) for name in system.names}
    if all(count == 1 for count in parts.values()):
        return master
    return replace(master, schedule=Schedule(system.names, _divided(operations, parts)))


def _substeps(system: System, master: Master, unit: str) -> int:
    """In how many steps a unit follows the polynomials of its inputs that it cannot take as they are."""
    couplings = [master.coupling_of(inlet.target) for inlet in system.inlets[unit] if inlet.link or inlet.source]
    return max((c.substeps for c in couplings if c.degree > system.units[unit].input_degree), default=1)


def _divided(operations: Iterable[Operation], parts: Mapping[str, int]) -> tuple[Operation, ...]:
    """Every step in as many parts as its unit needs."""
    found: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Repeat):
            found.append(Repeat(_divided(operation.body, parts), operation.times))
        elif isinstance(operation, Step):
            count = parts[operation.unit]
            found += [Step(operation.unit, operation.fraction / count)] * count
        else:
            found.append(operation)
    return tuple(found)


# ---- words -----------------------------------------------------------------------------------------------------------


Target = Literal["monolithic", "exact", "converged"]
"""What a run with compensated inputs follows."""


@dataclass(frozen=True)
class MasterOptions:
    """A master in words.

    `couplings` are texts such as `hold1` (for all inputs) or `two.F=nepce:0.6` (for one). `order` lists units,
    separated by commas, groups by semicolons. `sweeps`, `tolerance`, `sweep_limit`, `anderson`, `quasi_newton`
    and `samples` belong to `iterative`, `multiples` and `inputs` to `multirate`. With `follow` the inputs are corrected
    so that the run follows this target (`cosimo.compensate`), which needs the system: a `Scenario` does it.
    """

    name: str = "jacobi"
    order: str | None = None
    couplings: Sequence[str] = ()
    sweeps: int | None = None
    tolerance: float | None = None
    sweep_limit: int | None = None
    anderson: int | None = None
    quasi_newton: int | None = None
    samples: int | None = None
    multiples: Mapping[str, int] = field(default_factory=dict)
    inputs: Literal["held", "interpolated"] | None = None
    follow: Target | None = None


@dataclass(frozen=True)
class MasterWord:
    """A master as files and the command line name it.

    `build` takes system and step, `coupling=`, `couplings=` and what `arguments` makes of `MasterOptions`, of which it
    knows those in `options`; `read` is the inverse: options from the master and from what its name has in brackets.
    `title` is what people read, from these two (options are None where the master cannot be written in words).
    `tuned`: `tune` can search it by its word, in all orders where `order` is one of its options.
    """

    build: Callable[..., Master]
    title: Callable[[str, MasterOptions | None], str]
    options: tuple[str, ...] = ()
    arguments: Callable[[MasterOptions], dict[str, Any]] = lambda options: {}
    read: Callable[[Master, str], dict[str, Any]] = lambda master, rest: {}
    tuned: bool = True


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


MOST_NAMES = 12
"""Units or groups that people are shown of an order."""


def _arrows(order: str) -> str:
    return _chain(order.split(","))


def _grouped(order: str) -> str:
    return _chain([f"({group.replace(',', ', ')})" if "," in group else group for group in order.split(";")])


def _chain(parts: list[str]) -> str:
    """
    >>> _chain([f"u{i}" for i in range(100)])
    'u0 → u1 → u2 → … → u98 → u99'
    """
    return " → ".join(parts if len(parts) <= MOST_NAMES else [*parts[:3], "…", *parts[-2:]])


def _parts(order: str) -> list[tuple[str, ...]]:
    return [names for group in order.split(";") if (names := _names(group))]


def _groups_arguments(options: MasterOptions) -> dict[str, Any]:
    if options.order is None:
        raise ConfigurationError("master 'groups' needs an order such as 'a,b;c'.")
    return {"order": _parts(options.order)}


def _strang_arguments(options: MasterOptions) -> dict[str, Any]:
    """Without a semicolon every unit is a part, as in `gauss-seidel`; 'a,b;' is one group, which cannot be split."""
    if not options.order or ";" not in options.order:
        return {"order": _names(options.order)}
    return {"order": _parts(options.order)}


def _multirate_options(master: Master, rest: str) -> dict[str, Any]:
    *groups, inputs = rest.split(";")
    parts = [[pair.rpartition(":") for pair in group.split(",")] for group in groups]
    slower = {unit: int(count) for part in parts for unit, _, count in part if int(count) > 1}
    order = ";".join(",".join(unit for unit, _, _ in part) for part in parts) if len(parts) > 1 else None
    return {"multiples": slower, "inputs": "interpolated" if inputs == "interpolated" else None, "order": order}


def _multirate_title(rest: str, options: MasterOptions | None) -> str:
    if options is None:
        return "multirate"
    rates = " and ".join(f"{unit} every {count} steps" for unit, count in options.multiples.items())
    order = f", {_grouped(options.order)}" if options.order else ""
    return f"multirate, {rates or 'all units every step'}{order}{', interpolated' if options.inputs else ''}"


_UNTIL = {"tolerance": "tolerance", "sweep_limit": "limit", "anderson": "anderson", "quasi_newton": "quasi_newton"}
"""Fields of `Convergence` by the options that set them."""


def _iterative_arguments(options: MasterOptions) -> dict[str, Any]:
    given = {name: value for option, name in _UNTIL.items() if (value := getattr(options, option)) is not None}
    if options.sweeps is not None and given:
        raise ConfigurationError(
            "an iteration has a fixed number of sweeps or runs until converged, not both; leave out sweeps or the rest."
        )
    sweeps = Convergence(**given) if options.sweeps is None else options.sweeps
    return {"sweeps": sweeps, "order": _names(options.order), "samples": options.samples or 1}


def _iterative_options(master: Master, rest: str) -> dict[str, Any]:
    repeat = next(op for op in master.schedule.operations if isinstance(op, Repeat))
    order = ",".join(dict.fromkeys(op.unit for op in repeat.body if isinstance(op, Step))) if "gauss" in rest else None
    read = sum(op == Read(master.schedule.units[0]) for op in repeat.body)
    own = {"order": order, "samples": read if read > 1 else None}
    if not isinstance(repeat.times, Convergence):
        return own | {"sweeps": repeat.times}
    usual = Convergence()
    until = {option: getattr(repeat.times, name) for option, name in _UNTIL.items()}
    return own | {o: value for o, value in until.items() if value != getattr(usual, _UNTIL[o])}


def _iterative_title(rest: str, options: MasterOptions | None) -> str:
    if options is None:
        return "iterative"
    swept = f"Gauss–Seidel {_arrows(options.order)}" if options.order else "Jacobi"
    count = options.sweeps
    return (
        f"{swept}, "
        + ("iterated until converged" if count is None else f"{count} sweep{'s' * (count > 1)}")
        + (f", {options.samples} samples per step" if options.samples else "")
    )


def _federation_arguments(options: MasterOptions) -> dict[str, Any]:
    if options.order is None:
        raise ConfigurationError("master 'federation' needs an order such as 'a:FGH:1,b:HFG:1/2:wait'.")
    iterated = any(getattr(options, name) is not None for name in ("sweeps", *_UNTIL))
    sweeps = _iterative_arguments(replace(options, order=None))["sweeps"] if iterated else None
    return {"members": [Grants.parse(text) for text in _names(options.order) or ()], "sweeps": sweeps}


def _federation_options(master: Master, rest: str) -> dict[str, Any]:
    repeat = next((op for op in master.schedule.operations if isinstance(op, Repeat)), None)
    if repeat is None:
        return {"order": rest}
    if not isinstance(repeat.times, Convergence):
        return {"order": rest, "sweeps": repeat.times}
    return {"order": rest, "tolerance": repeat.times.tolerance, "sweep_limit": repeat.times.limit}


def _federation_title(rest: str, options: MasterOptions | None) -> str:
    if options is None:
        return "federation"
    swept = ", iterated until converged" if options.tolerance else ""
    if options.sweeps is not None:
        swept = f", {options.sweeps} sweep{'s' * (options.sweeps > 1)}"
    return f"federation {rest.replace(',', ', ')}{swept}"


MASTERS: Mapping[str, MasterWord] = {
    "jacobi": MasterWord(jacobi, lambda rest, options: "Jacobi"),
    "jacobi-early-read": MasterWord(jacobi_early_read, lambda rest, options: "Jacobi with early read"),
    "gauss-seidel": MasterWord(
        gauss_seidel,
        lambda rest, options: f"Gauss–Seidel {_arrows(rest)}",
        ("order",),
        lambda options: {"order": _names(options.order)},
        lambda master, rest: {"order": rest},
    ),
    "groups": MasterWord(
        groups,
        lambda rest, options: f"groups {_grouped(rest)}",
        ("order",),
        _groups_arguments,
        lambda master, rest: {"order": rest},
    ),
    "strang": MasterWord(
        strang,
        lambda rest, options: f"Strang splitting {_grouped(rest)}",
        ("order",),
        _strang_arguments,
        lambda master, rest: {"order": rest},
    ),
    "multirate": MasterWord(
        multirate,
        _multirate_title,
        ("multiples", "inputs", "order"),
        lambda options: {
            "multiples": options.multiples,
            "inputs": options.inputs or "held",
            "order": None if options.order is None else _parts(options.order),
        },
        _multirate_options,
        tuned=False,  # the multiples must be given
    ),
    "iterative": MasterWord(
        iterative,
        _iterative_title,
        ("order", "sweeps", "tolerance", "sweep_limit", "anderson", "quasi_newton", "samples"),
        _iterative_arguments,
        _iterative_options,
    ),
    "federation": MasterWord(
        federation,
        _federation_title,
        ("order", "sweeps", "tolerance", "sweep_limit"),
        _federation_arguments,
        _federation_options,
        tuned=False,  # what federates do is their own program
    ),
}
