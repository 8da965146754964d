"""When every operation of a schedule happens, worked out before anything runs.

A unit's local time, the time to which its last-read outputs belong, and the times of the samples that a coupling
remembers do not depend on values. Following them through the schedule once, in exact fractions of the macro step,
gives each operation its constants, and both interpreters the same ones. The pattern repeats from macro step to macro
step; the start is made to fit it by taking signals as constant before the beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property, lru_cache

from cosimo.core import dataclass
from cosimo.core.arrays import Array, projection_matrix, shift_matrix
from cosimo.core.coupling import Sampling
from cosimo.core.errors import ScheduleError
from cosimo.core.master import Master, input_degree
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
    flatten,
)
from cosimo.core.system import System

ULPS = 8
"""Units in the last place by which two times may differ and still be one instant: masters count steps, k·h, and
components add them up."""


def time_rounding(begin: float, end: float, step: float = math.inf) -> float:
    """By how much a time in a step from `begin` to `end` may miss the end and still have reached it."""
    return min(ULPS * math.ulp(max(abs(begin), abs(end))), 0.01 * step)


@dataclass(frozen=True)
class TimedCouple:
    """F at local `time`; one `Sampling` per link into the unit; `span`: how far the unit steps until the next one.

    W is the same where it does not `give` the unit its input.
    """

    unit: str
    time: Fraction
    samplings: tuple[Sampling, ...]
    span: Fraction
    gives: bool = True


@dataclass(frozen=True)
class TimedStep:
    """G from local `time` by `fraction`; the input polynomial began `offset` ago.

    `projects`: a unit that takes fewer powers than the master forms is given their best approximation over the step.
    """

    unit: str
    time: Fraction
    fraction: Fraction
    offset: Fraction
    projects: bool = False

    def given(self, degree: int, keep: int) -> Array:
        """The coefficients of the input from the start of the step on, (up to `keep` + 1, `degree` + 1), from those at
        the coupling."""
        if self.projects:
            return projection_matrix(degree, self.offset, self.fraction, keep)
        return shift_matrix(degree, self.offset, keep=keep)


@dataclass(frozen=True)
class TimedRead:
    """H at local `time`: the unit was given its input `offset` after the coupling and has advanced `elapsed` since.

    `again`: the unit takes fewer powers than the master forms and feeds inputs through, so that it is given the value
    of now before it is read.
    """

    unit: str
    time: Fraction
    offset: Fraction
    elapsed: Fraction
    again: bool = False


@dataclass(frozen=True)
class TimedRepeat:
    """The sweeps of an iteration; all sweeps after the listed ones are like the last."""

    sweeps: tuple[tuple[TimedOperation, ...], ...]
    times: int | Convergence

    def sweep(self, number: int) -> tuple[TimedOperation, ...]:
        """The operations of sweep `number`, counted from 0."""
        return self.sweeps[min(number, len(self.sweeps) - 1)]


TimedOperation = TimedCouple | TimedStep | TimedRead | Save | Restore | TimedRepeat


@dataclass(frozen=True)
class UnitClock:
    """Of one unit: local time; where in the input polynomial it stands and was last given it; time of its outputs."""

    time: Fraction = Fraction(0)
    now: Fraction = Fraction(0)
    given: Fraction = Fraction(0)
    read: Fraction = Fraction(0)


@dataclass(frozen=True)
class Timeline:
    """The timed operations of one macro step, and the clocks at its end (outputs and inputs are stamped with these).

    `stamps`: when the samples were taken that the coupling of each link remembers then, newest first.
    """

    operations: tuple[TimedOperation, ...]
    clocks: Mapping[str, UnitClock]
    stamps: tuple[tuple[Fraction, ...], ...]

    def external_times(self) -> dict[str, list[tuple[Fraction, Fraction]]]:
        """Per unit the (time, span) of its couplings, in order, for sampling external inputs."""
        found: dict[str, list[tuple[Fraction, Fraction]]] = {}

        def walk(operations: tuple[TimedOperation, ...]) -> None:
            for operation in operations:
                if isinstance(operation, TimedRepeat):
                    for sweep in operation.sweeps:
                        walk(sweep)
                elif isinstance(operation, TimedCouple) and operation.gives:
                    times = found.setdefault(operation.unit, [])
                    if (operation.time, operation.span) not in times:
                        times.append((operation.time, operation.span))

        walk(self.operations)
        return found


def settled_sweep(system: System, master: Master, repeat: TimedRepeat) -> int:
    """The first sweep that maps the outputs as all sweeps after it do, counted from 0.

    Its couplings see samples of the same times as the last kind of sweep does, or hold the newest sample anyway.
    """
    couplings = {link.number: master.coupling_of(link.connection.target) for link in system.links}

    def seen(sweep: tuple[TimedOperation, ...]) -> list[object]:
        return [
            op.samplings[place].stamps
            for op in sweep
            if isinstance(op, TimedCouple)
            for place, link in enumerate(system.incoming(op.unit))
            if couplings[link.number].history > 1 or couplings[link.number].timed
        ]

    return next(number for number, sweep in enumerate(repeat.sweeps) if seen(sweep) == seen(repeat.sweeps[-1]))


@dataclass(frozen=True)
class _State:
    """Everything about time at one point of the walk; hashable, so that a repeating pattern is recognised."""

    clocks: tuple[tuple[str, UnitClock], ...]
    stamps: tuple[tuple[Fraction, ...], ...]
    saved: tuple[tuple[str, UnitClock], ...] = ()

    def next_macro_step(self) -> _State:
        clocks = tuple((name, UnitClock(Fraction(0), c.now, c.given, c.read - 1)) for name, c in self.clocks)
        return _State(clocks, tuple(tuple(s - 1 for s in row) for row in self.stamps))


def timeline(system: System, master: Master) -> Timeline:
    """The times of all operations; refuses what is not one macro step. Masters that differ in the step share them."""
    _check(system, master.schedule)
    units = system.units.items()
    walk = _Walk(
        master.schedule.operations,
        tuple((name, bool(unit.inputs), bool(unit.outputs)) for name, unit in units),
        tuple(
            (name, tuple((link.number, link.source.unit) for link in system.incoming(name))) for name in system.units
        ),
        tuple(master.coupling_of(link.connection.target).history for link in system.links),
        frozenset(
            name
            for name, unit in units
            if unit.input_degree < input_degree(system, master, name) and unit.feedthrough().any()
        ),
        frozenset(
            name
            for name, unit in units
            if unit.input_degree < input_degree(system, master, name)
            and any(master.coupling_of(inlet.target).projected for inlet in system.inlets[name])
        ),
    )
    return _follow(walk)


@lru_cache(maxsize=16)  # the usual masters of one system
def _follow(walk: _Walk) -> Timeline:
    """Follow the clocks through the schedule until the pattern repeats."""
    state = _State(tuple((name, UnitClock()) for name, *_ in walk.units), tuple((Fraction(0),) for _ in walk.history))
    for _ in range(3 * max([2, *walk.history]) + 4):
        operations, end = walk.follow(walk.operations, state)
        for name, clock in end.clocks:
            if clock.time != 1:
                raise ScheduleError(f"unit '{name}' advances by {clock.time} of the macro step; it must be exactly 1.")
        after = end.next_macro_step()
        if after == state:
            return Timeline(operations, dict(end.clocks), end.stamps)
        state = after
    raise ScheduleError("the schedule does not repeat from one macro step to the next; save before each restore.")


def _check(system: System, schedule: Schedule) -> None:
    if set(schedule.units) != set(system.units):
        raise ScheduleError(
            f"the schedule is for units {', '.join(schedule.units)}; the system has {', '.join(system.units)}."
        )
    bodies = [op.body for op in schedule.operations if isinstance(op, Repeat)]
    if len(_searches(schedule.operations)) > 1 or any(map(_searches, bodies)):
        raise ScheduleError(
            "a schedule iterates until convergence at most once, and not inside another repetition; give the others a "
            "fixed number of times."
        )
    done = {(type(operation), operation.unit) for operation in flatten(schedule.operations)}
    for name, unit in system.units.items():
        for kind, word, needed in (
            (Step, "stepped", True),
            (Couple, "coupled", bool(unit.inputs)),
            (Read, "read", bool(unit.outputs)),
        ):
            if needed and (kind, name) not in done:
                raise ScheduleError(f"unit '{name}' is never {word} in the schedule; add that operation.")


def _searches(operations: tuple[Operation, ...]) -> list[Convergence]:
    """The iterations until convergence among the operations, also inside others."""
    found = []
    for operation in operations:
        if isinstance(operation, Repeat):
            found += [operation.times] if isinstance(operation.times, Convergence) else []
            found += _searches(operation.body)
    return found


@dataclass(frozen=True)
class _Walk:
    """All that the times of operations depend on; follows operations and notes their times.

    `units` are names with whether there are inputs and outputs, `links` by unit the numbers of those that end there,
    in the order of its inputs, and the units where they begin. Units `given_again` are given the end of the input
    polynomial before they are read; for units that `project` it is approximated in each step.
    """

    operations: tuple[Operation, ...]
    units: tuple[tuple[str, bool, bool], ...]
    links: tuple[tuple[str, tuple[tuple[int, str], ...]], ...]
    history: tuple[int, ...]
    given_again: frozenset[str]
    project: frozenset[str]

    @cached_property
    def incoming(self) -> dict[str, tuple[tuple[int, str], ...]]:
        """`links` by name."""
        return dict(self.links)

    @cached_property
    def without(self) -> tuple[set[str], set[str]]:
        """The units without inputs, and those without outputs."""
        return {name for name, fed, _ in self.units if not fed}, {name for name, _, read in self.units if not read}

    def follow(self, operations: tuple[Operation, ...], state: _State) -> tuple[tuple[TimedOperation, ...], _State]:
        clocks, stamps, saved = dict(state.clocks), list(state.stamps), dict(state.saved)
        timed: list[TimedOperation] = []
        spans = self.next_steps(operations)
        for place, operation in enumerate(operations):
            if isinstance(operation, Repeat):
                here = _State(tuple(clocks.items()), tuple(stamps), tuple(saved.items()))
                repeat, after = self.repeat(operation, here)
                clocks, stamps, saved = dict(after.clocks), list(after.stamps), dict(after.saved)
                timed.append(repeat)
                continue
            unit = operation.unit
            clock = clocks[unit]
            if isinstance(operation, Couple | SampleOutputs):
                samplings = []
                for link, source in self.incoming[unit]:
                    sampling = self.sample(stamps[link], clocks[source].read, self.history[link])
                    stamps[link] = sampling.stamps
                    shifted = tuple(s - clock.time for s in sampling.stamps) if clock.time else sampling.stamps
                    samplings.append(Sampling(shifted, sampling.kept))
                if isinstance(operation, SampleOutputs):
                    timed.append(TimedCouple(unit, clock.time, tuple(samplings), Fraction(0), gives=False))
                    continue
                timed.append(TimedCouple(unit, clock.time, tuple(samplings), spans[place]))
                clocks[unit] = replace(clock, now=Fraction(0), given=Fraction(0))
            elif isinstance(operation, Step):
                timed.append(TimedStep(unit, clock.time, operation.fraction, clock.now, unit in self.project))
                clocks[unit] = self.advance(unit, clock, operation.fraction)
            elif isinstance(operation, Read):
                again = unit in self.given_again and clock.now != clock.given
                clock = replace(clock, given=clock.now) if again else clock
                timed.append(TimedRead(unit, clock.time, clock.given, clock.now - clock.given, again))
                clocks[unit] = replace(clock, read=clock.time)
            elif isinstance(operation, Save):
                timed.append(operation)
                saved[unit] = clock
            else:
                if unit not in saved:
                    raise ScheduleError(f"unit '{unit}' is restored before it was saved in the macro step; add a Save.")
                timed.append(operation)
                clocks[unit] = replace(saved[unit], read=clock.read)
        return tuple(timed), _State(tuple(clocks.items()), tuple(stamps), tuple(saved.items()))

    def next_steps(self, operations: tuple[Operation, ...]) -> dict[int, Fraction]:
        """For the place of every coupling, how far its unit steps until the next one."""
        steps = [operation for operation in flatten(self.operations) if isinstance(operation, Step)]
        ahead, spans = {step.unit: step.fraction for step in reversed(steps)}, {}
        made: dict[str, Fraction] = {}
        for place in reversed(range(len(operations))):
            operation = operations[place]
            if isinstance(operation, Couple):
                spans[place] = ahead[operation.unit]
            for inner in reversed(list(flatten((operation,)))):
                if isinstance(inner, Step):
                    ahead[inner.unit] = made[inner.unit] = made.get(inner.unit, Fraction(0)) + inner.fraction
                elif isinstance(inner, Couple):
                    made.pop(inner.unit, None)
        return spans

    def repeat(self, operation: Repeat, state: _State) -> tuple[TimedRepeat, _State]:
        # Early sweeps may see other sample times than later ones (the first extrapolates, the next ones interpolate).
        sweeps: list[tuple[TimedOperation, ...]] = []
        limit = operation.times if isinstance(operation.times, int) else operation.times.limit
        for _ in range(limit):
            timed, after = self.follow(operation.body, state)
            sweeps.append(timed)
            if after == state:
                break
            state = after
            if isinstance(operation.times, Convergence) and len(sweeps) > 8:
                raise ScheduleError("an iteration must bring every unit back to the same time: restore it first.")
        return TimedRepeat(tuple(sweeps), operation.times), state

    def advance(self, unit: str, clock: UnitClock, fraction: Fraction) -> UnitClock:
        time = clock.time + fraction
        if time > 1:
            raise ScheduleError(f"unit '{unit}' advances beyond the macro step; restore it first or step by less.")
        unfed, unread = self.without
        if unit in unread:
            clock = replace(clock, read=time)  # Nothing to read: never behind.
        if unit in unfed:
            return replace(clock, time=time)
        return replace(clock, time=time, given=clock.now, now=clock.now + fraction)

    @staticmethod
    def sample(old: tuple[Fraction, ...], new: Fraction, history: int) -> Sampling:
        kept = tuple(slot for slot, stamp in enumerate(old) if stamp < new)[: history - 1]
        return Sampling((new, *(old[slot] for slot in kept)), kept)
