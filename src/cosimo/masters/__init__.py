"""Masters: functions that write schedules.

Each takes the system and the macro step, and the couplings as `coupling=` (for all connections) and `couplings=` (by
target input). `MASTERS` is the one list of the words by which they are chosen: the command line, completion, scenario
files, `tune` and `compare` read it. To add a master, write a function that returns a `Master` whose schedule couples,
steps and reads every unit so that each advances by exactly one macro step, and its line in `MASTERS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from cosimo.core.arguments import checked
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Couple, Operation, Read, Repeat, Restore, Save, Schedule, Step
from cosimo.core.system import System
from cosimo.couplings import Hold

__all__ = [
    "MASTERS",
    "Convergence",
    "MasterOptions",
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
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Every unit takes steps of its own multiple of the base `step` (default 1); the macro step is the hyperperiod.

    "held": at each base tick the units that are due are coupled, stepped, and read when their time has come, so that
    faster units see the last value of slower ones. "interpolated": units that start at the same tick go slowest first
    and are read at once; the faster ones see their future, and with `Hold(1)` (the default here) interpolate it.
    """
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


@checked
def iterative(
    system: System,
    step: float,
    *,
    sweeps: int | Convergence | None = None,
    tolerance: float | None = None,
    order: Sequence[str] | None = None,
    coupling: Coupling | None = None,
    couplings: Couplings | None = None,
) -> Master:
    """Repeat the macro step with newer inputs: a fixed number of `sweeps`, or until `Convergence(...)` (the default).

    `tolerance=1e-6` stands for `sweeps=Convergence(1e-6)`.
    Without `order` a sweep is Jacobi (successive substitution, gomes2018, Eq. 15); with it, Gauss–Seidel. All units
    must be able to restore their state.
    """
    for name, unit in system.units.items():
        if not unit.can_restore:
            raise ConfigurationError(f"unit '{name}' cannot restore its state; use a master that does not iterate.")
    if tolerance is not None and sweeps is not None:
        raise ConfigurationError("an iteration has a tolerance or a number of sweeps; give one of the two.")
    if sweeps is None:
        sweeps = Convergence() if tolerance is None else Convergence(tolerance)
    stages = [system.names] if order is None else [[name] for name in _complete(system, order)]
    body: tuple[Operation, ...] = (*map(Restore, system.names), *(op for stage in stages for op in _together(stage)))
    kind = "jacobi" if order is None else "gauss-seidel"
    times = f"{sweeps}" if isinstance(sweeps, int) else "until converged"
    operations: tuple[Operation, ...] = (*map(Save, system.names), Repeat(body, sweeps))
    return _master(f"iterative({kind};{times})", system, step, operations, coupling, couplings)


def _together(names: Iterable[str], fraction: Fraction = Fraction(1)) -> list[Operation]:
    names = list(names)
    return [*map(Couple, names), *(Step(name, fraction) for name in names), *map(Read, names)]


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
    return Master(name, Schedule(system.names, operations), step, coupling or Hold(0), chosen)


# ---- words -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MasterOptions:
    """A master in words.

    `couplings` are texts such as `hold1` (for all inputs) or `two.F=nepce:0.6` (for one). `order` lists units,
    separated by commas, groups by semicolons. `sweeps`, `tolerance`, `sweep_limit` and `anderson` belong to
    `iterative`, `multiples` and `inputs` to `multirate`.
    """

    name: str = "jacobi"
    order: str | None = None
    couplings: Sequence[str] = ()
    sweeps: int | None = None
    tolerance: float | None = None
    sweep_limit: int | None = None
    anderson: int | None = None
    multiples: Mapping[str, int] = field(default_factory=dict)
    inputs: Literal["held", "interpolated"] | None = None


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


def _arrows(order: str) -> str:
    return order.replace(",", " → ")


def _grouped(order: str) -> str:
    return " → ".join(f"({group.replace(',', ', ')})" for group in order.split(";"))


def _parts(order: str) -> list[tuple[str, ...]]:
    return [_names(group) or () for group in order.split(";")]


def _groups_arguments(options: MasterOptions) -> dict[str, Any]:
    if options.order is None:
        raise ConfigurationError("master 'groups' needs an order such as 'a,b;c'.")
    return {"order": _parts(options.order)}


def _strang_arguments(options: MasterOptions) -> dict[str, Any]:
    """Without a semicolon every unit is a part, as in `gauss-seidel`: a single group could not be split."""
    return {"order": _parts(options.order) if options.order and ";" in options.order else _names(options.order)}


def _multirate_options(master: Master, rest: str) -> dict[str, Any]:
    pairs, _, inputs = rest.partition(";")
    multiples = {unit: int(count) for unit, _, count in (pair.rpartition(":") for pair in pairs.split(","))}
    slower = {unit: count for unit, count in multiples.items() if count > 1}
    return {"multiples": slower, "inputs": "interpolated" if inputs == "interpolated" else None}


def _multirate_title(rest: str, options: MasterOptions | None) -> str:
    if options is None:
        return "multirate"
    rates = " and ".join(f"{unit} every {count} steps" for unit, count in options.multiples.items())
    return f"multirate, {rates or 'all units every step'}{', interpolated' if options.inputs else ''}"


_UNTIL = {"tolerance": "tolerance", "sweep_limit": "limit", "anderson": "anderson"}
"""Fields of `Convergence` by the options that set them."""


def _iterative_arguments(options: MasterOptions) -> dict[str, Any]:
    given = {name: value for option, name in _UNTIL.items() if (value := getattr(options, option)) is not None}
    if options.sweeps is not None and given:
        raise ConfigurationError(
            "an iteration has a fixed number of sweeps or runs until converged, not both; leave out sweeps or the rest."
        )
    sweeps = Convergence(**given) if options.sweeps is None else options.sweeps
    return {"sweeps": sweeps, "order": _names(options.order)}


def _iterative_options(master: Master, rest: str) -> dict[str, Any]:
    repeat = next(op for op in master.schedule.operations if isinstance(op, Repeat))
    order = ",".join(op.unit for op in repeat.body if isinstance(op, Step)) if "gauss" in rest else None
    if not isinstance(repeat.times, Convergence):
        return {"order": order, "sweeps": repeat.times}
    usual = Convergence()
    until = {option: getattr(repeat.times, name) for option, name in _UNTIL.items()}
    return {"order": order} | {o: value for o, value in until.items() if value != getattr(usual, _UNTIL[o])}


def _iterative_title(rest: str, options: MasterOptions | None) -> str:
    if options is None:
        return "iterative"
    swept = f"Gauss–Seidel {_arrows(options.order)}" if options.order else "Jacobi"
    count = options.sweeps
    return f"{swept}, " + ("iterated until converged" if count is None else f"{count} sweep{'s' * (count > 1)}")


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
        ("multiples", "inputs"),
        lambda options: {"multiples": options.multiples, "inputs": options.inputs or "held"},
        _multirate_options,
        tuned=False,  # the multiples must be given
    ),
    "iterative": MasterWord(
        iterative,
        _iterative_title,
        ("order", "sweeps", "tolerance", "sweep_limit", "anderson"),
        _iterative_arguments,
        _iterative_options,
    ),
}
