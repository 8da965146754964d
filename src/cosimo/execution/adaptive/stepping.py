"""From one macro step to the next: how long it is, whether it is accepted, how long the one after it shall be."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import StepTooShort
from cosimo.core.result import Warned
from cosimo.core.system import Constant, Source, System, Table
from cosimo.execution.adaptive.variable import Lengths, TimeGrid, VariableInterpreter
from cosimo.execution.live import Live, Signals
from cosimo.execution.power_bonds import Bond

SAFETY, INTEGRAL, PROPORTIONAL = 0.9, 0.3, 0.4
"""Of the PI controller: aim at 0.9 of the step that would just do; exponents before division by p + 1."""
SHRINK, GROW = 0.2, 2.0  # by what a step may change at once
LEAST_ERROR = 1e-8  # errors below this are no longer told apart
SETTLING = 32
"""Accepted steps after the start, or after a jump, in which too large an error at the shortest step is no surprise: a
signal that leaves 0 has no size yet to which its error would be small."""
CHANGE = 2.0
STUCK = 200
"""By how many pairs of shortest steps those whose error is too large may outnumber the others before the run is given
up. A start from rest, or an event inside a unit, takes some; what is not smooth at any step takes all."""


class Judged(NamedTuple):
    """The error of a step as a multiple of what is tolerated, and the unit and the signal it is worst at."""

    error: float
    unit: str
    worst: str


NOTHING = Judged(0.0, "", "")  # for a system without anything to judge by


@dataclass(frozen=True)
class Tolerances:
    """`relative` to the largest size of a signal so far, and `absolute`."""

    relative: float
    absolute: float

    def of(self, sizes: Array) -> Array:
        """What is tolerated at signals of these sizes; never 0."""
        return np.maximum(self.relative * sizes + self.absolute, np.finfo(float).tiny)


@dataclass(frozen=True)
class Plan:
    """What a stepper goes by: kind, lengths, nominal step, order p of the master, tolerances, power bonds."""

    kind: Literal["energy", "doubling"]
    lengths: Lengths
    nominal: float
    order: int
    tolerances: Tolerances
    bonds: tuple[Bond, ...]

    @property
    def exponent(self) -> float:
        """The error of a step goes with h^(p + 1)."""
        return 1.0 / (self.order + 1)

    @property
    def changes(self) -> Tolerances:
        """By how much an input may change in a step that is judged by doubling."""
        return Tolerances(CHANGE * self.tolerances.relative**self.exponent, self.tolerances.absolute)


@dataclass
class Tally:
    """What came of a run so far, in quanta: where it is; steps accepted, the shortest and the longest of them; all that
    were made, those of attempts that were `rejected` included; steps of the shortest length whose error was too large,
    and the first of these; per bond the residual energy, and what passed either way."""

    place: int
    accepted: int
    extremes: tuple[int, int]
    made: int
    rejected: int
    forced: int
    forced_at: int
    first_forced: Judged
    energies: list[tuple[float, float]]


class Stepper(ABC):
    """Makes macro steps of a live system, and fills `rows`; `ended` is the unit that wants the run to end here."""

    rows: Sequence[Sequence[float]] | Array = ()
    ended: str | None = None

    def __init__(self, plan: Plan) -> None:
        self.plan, self.lengths = plan, plan.lengths
        self.tally = Tally(0, 0, (plan.lengths.grid.total, 0), 0, 0, 0, 0, NOTHING, [(0.0, 0.0) for _ in plan.bonds])

    @abstractmethod
    def advance(self, *, once: bool = False) -> None:
        """Go on by at least one accepted macro step, with `once` by no more than are chosen together.

        What was made also counts when it raises.
        """

    @abstractmethod
    def signals(self) -> Signals:
        """All signals between units as they are now."""

    @abstractmethod
    def memory(self, at: float) -> dict[str, Any]:
        """All that the run remembers after an accepted macro step, at time `at`, units included, as plain data."""

    @abstractmethod
    def load(self, memory: dict[str, Any], at: float) -> None:
        """Go on at time `at` from what `memory` gave."""

    def close(self) -> None:  # noqa: B027  the plain interpreter holds nothing
        """Let go of the units, before they are closed themselves."""

    def told(self) -> dict[str, Any]:
        """For the result."""
        plan, tally = self.plan, self.tally
        if plan.kind == "doubling":
            return {"indicator": "step doubling", "rejected": tally.rejected, "macro_steps": tally.made}
        indicator = "residual energy" if plan.bonds else "connection defect"
        bonds = [
            bond.balance(residual, exchanged)
            for bond, (residual, exchanged) in zip(plan.bonds, tally.energies, strict=True)
        ]
        return {"indicator": indicator, "rejected": tally.rejected, "macro_steps": tally.made, "bonds": bonds}

    def warnings(self) -> list[Warned]:
        """What the user should know."""
        found, grid, judged = list[Warned](), self.lengths.grid, self.tally.first_forced
        if self.plan.kind == "energy" and not self.plan.bonds:
            found.append(
                Warned("no power bond was found: the connection defects alone control the step size", grid.start)
            )
        if self.tally.forced:
            shortest = self.lengths.shortest * grid.quantum
            message = (
                f"steps of the shortest length ({shortest:.3g} s) had {judged.error:.3g} times the tolerated error, "
                f"most at {judged.worst} of unit '{judged.unit}'; allow shorter steps or a larger tolerance"
            )
            found.append(Warned(message, grid.time(self.tally.forced_at), self.tally.forced))
        return found

    def _too_short(self, judged: Judged) -> StepTooShort:
        shortest = self.lengths.shortest * self.lengths.grid.quantum
        return StepTooShort(
            f"unit '{judged.unit}' at t = {self.lengths.grid.time(self.tally.place):g}: {judged.worst} has "
            f"{judged.error:.3g} times the tolerated error even with the shortest step ({shortest:.3g} s), again "
            "and again; allow shorter steps or a larger tolerance, or use the kind 'energy'."
        )


class PlainStepper(Stepper):
    """One of the plain interpreter, the oracle for the compiled ones (kernel/stepper.hpp)."""

    pair = 1  # macro steps that are chosen together

    def __init__(self, live: Live, plan: Plan, names: Sequence[str]) -> None:
        super().__init__(plan)
        self.interpreter = VariableInterpreter(live, plan.lengths.grid, plan.lengths.first)
        self._recorded = names
        self.jumps = Jumps(live.system, plan.lengths.grid, live.sample)
        self._exchange = Exchange(self.interpreter)
        self.wanted = plan.lengths.first
        self._before, self._since = 1.0, 0

    @property
    def place(self) -> int:
        """Where the next macro step begins."""
        return self.tally.place

    def advance(self, *, once: bool = False) -> None:
        self.rows = ()
        lengths, rows = self._advance()
        tally = self.tally
        tally.place += sum(lengths)
        tally.accepted += len(lengths)
        tally.extremes = min(tally.extremes[0], *lengths), max(tally.extremes[1], *lengths)
        self.rows = rows
        self.ended = next(iter(self.interpreter.ends), None)

    def signals(self) -> Signals:
        return self.interpreter.signals()

    def memory(self, at: float) -> dict[str, Any]:
        live = self.interpreter.live
        return {"live": self.interpreter.memory(), "units": live.states(at), "stepper": self._memory()}

    def load(self, memory: dict[str, Any], at: float) -> None:
        self.interpreter.load(memory["live"])
        self.interpreter.live.load_states(memory["units"], at)
        self._load(memory["stepper"])

    def _memory(self) -> dict[str, Any]:
        tally = {**asdict(self.tally), "first_forced": list(self.tally.first_forced)}
        control = {"wanted": self.wanted, "before": self._before, "since": self._since, "tally": tally}
        return {**control, "exchange": self._exchange.memory(), "jumps": self.jumps.memory()}

    def _load(self, memory: dict[str, Any]) -> None:
        self.wanted, self._before, self._since = int(memory["wanted"]), float(memory["before"]), int(memory["since"])
        self.tally = Tally(**{**memory["tally"], "first_forced": Judged(*memory["tally"]["first_forced"])})
        self._exchange.load(memory["exchange"])
        self.jumps.load(memory["jumps"])

    @abstractmethod
    def _advance(self) -> tuple[list[int], list[list[float]]]:
        """One accepted macro step, or a pair of them: their lengths and their rows."""

    def _row(self, place: int, length: int) -> list[float]:
        """The row of the state as it is, at the end of a macro step of this length."""
        grid = self.lengths.grid
        return [*self.interpreter.live.row(grid.time(place), self._recorded), length * grid.quantum]

    def _make(self, place: int, length: int) -> VariableInterpreter:
        step = self.interpreter.lasting(length)
        self.tally.made += 1
        step.macro_step(place)
        return step

    def _length(self) -> tuple[int, bool]:
        """How far to go from here, and whether an external input jumps there; no short rest is left before it."""
        wanted, least = self.pair * self.wanted, self.pair * self.lengths.shortest
        jump = self.jumps.next(self.place, 2 * wanted)
        room = (self.lengths.grid.total if jump is None else jump) - self.place
        if room <= wanted or room < 2 * least:
            return room, jump is not None
        return (wanted, False) if room >= 2 * wanted else ((room + 1) // 2, False)

    def _choose(self, length: int, error: float, jumped: bool) -> None:
        """The next length, by the PI controller; short again after a jump."""
        self._since += 1
        if jumped:
            self.wanted, self._before, self._since = self.lengths.first, 1.0, 0
            return
        error = min(max(error, LEAST_ERROR), sys.float_info.max)
        factor = SAFETY * error ** (-(INTEGRAL + PROPORTIONAL) * self.plan.exponent)
        factor *= self._before ** (PROPORTIONAL * self.plan.exponent)
        self.wanted = self.lengths.fit(length * min(max(factor, SHRINK), GROW))
        self._before = error

    def _force(self, judged: Judged) -> None:
        """Note a step of the shortest length whose error is too large."""
        if self._since < SETTLING:
            return
        if not self.tally.forced:
            self.tally.first_forced, self.tally.forced_at = judged, self.place
        self.tally.forced += 1


@dataclass(frozen=True)
class Seen:
    """Of every link, then every external input that varies: the input used, the new sample, the one at the start, and
    the largest size so far."""

    used: Array
    new: Array
    old: Array
    sizes: Array


class Exchanged:
    """The signals that pass between the units of a system: links, then external inputs that vary."""

    def __init__(self, system: System) -> None:
        links = system.links
        self.given = [(name, source) for name, source in system.inputs.items() if not isinstance(source, Constant)]
        self.targets = [link.connection.target for link in links] + [name for name, _ in self.given]
        self.names = [str(link.connection) for link in links] + [name for name, _ in self.given]
        self.units = [system.input(name).unit for name in self.targets]
        # What is not continuous cannot be guessed better by a shorter step.
        discrete = {f"{name}.{variable}" for name, unit in system.units.items() for variable in unit.discrete_inputs}
        self.counts = np.array([name not in discrete for name in self.targets], dtype=bool)


class Exchange(Exchanged):
    """What they are in a live system."""

    def __init__(self, interpreter: VariableInterpreter) -> None:
        system = interpreter.system
        super().__init__(system)
        links = system.links
        self._source = np.array([system.outputs.index(link.connection.source) for link in links], dtype=int)
        self._target = np.array([system.input_names.index(name) for name in self.targets], dtype=int)
        self._gain = np.array([link.connection.gain for link in links])
        self._offset = np.array([link.connection.offset for link in links])
        self._old = self._samples(interpreter, 0)
        self._sizes = np.abs(self._old)

    def look(self, interpreter: VariableInterpreter, place: int) -> Seen:
        """What the macro step that ended at `place` exchanged."""
        used, new = np.array(interpreter.live.inputs())[self._target], self._samples(interpreter, place)
        return Seen(used, new, self._old, np.maximum(self._sizes, np.maximum(np.abs(new), np.abs(used))))

    def accept(self, seen: Seen) -> None:
        """The macro step counts: the next one begins here."""
        self._old, self._sizes = seen.new, seen.sizes

    def memory(self) -> list[Array]:
        """The samples at the start of the next macro step, and the largest sizes so far."""
        return [self._old.copy(), self._sizes.copy()]

    def load(self, memory: list[Array]) -> None:
        """Go on from there."""
        self._old, self._sizes = memory

    def first(self, interpreter: VariableInterpreter) -> Array:
        """The inputs as they were at the start of the step."""
        values: Array = np.concatenate([interpreter.c[name][0] for name in interpreter.system.units])[self._target]
        return values

    def counted(self, errors: Array, jumped: bool) -> Array:
        """Errors of what can be guessed: continuous, and external only where it has not `jumped`."""
        counts = self.counts.copy()
        if jumped:
            counts[len(self._source) :] = False
        return np.where(counts, errors, 0.0)

    def worst(self, errors: Array) -> Judged:
        """The largest of the errors."""
        if not len(errors):
            return NOTHING
        errors = np.where(np.isnan(errors), math.inf, errors)
        place = int(np.argmax(errors))
        return Judged(float(errors[place]), self.units[place], self.names[place])

    def _samples(self, interpreter: VariableInterpreter, place: int) -> Array:
        links = self._gain * np.array(interpreter.live.outputs())[self._source] + self._offset
        time = interpreter.grid.time(place)
        return np.concatenate([links, [interpreter.live.sample(name, source, time) for name, source in self.given]])


# ---- where external inputs jump --------------------------------------------------------------------------------------
# They are known for all times, so that a macro step can end exactly there.
# A step that passes over a jump would see it only at its end. Between two places of the grid a signal jumps when
# halving the interval again and again, always towards the larger change, leaves most of the change on one quantum; the
# change of a smooth signal would shrink with the interval.


Sample = Callable[[str, Source, float], float]  # the value of an external input at a time; errors name the input

LOOKS = 8  # parts of an interval whose ends are looked at
CLOSE = 16  # quanta below which an interval is too short to tell a jump from a slope
STAYS = 0.5  # the share of the change that must remain on one quantum


class Jumps:
    """The places, in quanta, at which some external input of the system jumps."""

    def __init__(self, system: System, grid: TimeGrid, sample: Sample) -> None:
        self._clear, self._found = 0, list[int]()
        self._signals: list[Callable[[int], float]] = []
        for target, source in system.inputs.items():
            if isinstance(source, Table):
                self._found += [math.ceil((t - grid.start) / grid.quantum) for t in source.jumps.tolist()]
            elif not isinstance(source, Constant):
                self._signals.append(partial(_value, sample, target, source, grid))
        self._found = sorted({place for place in self._found if 0 < place < grid.total})
        self._total = grid.total

    def memory(self) -> list[int]:
        """How far it has looked, and what it has found: where it looks next depends on both."""
        return [self._clear, *self._found]

    def load(self, memory: list[int]) -> None:
        """Go on from there."""
        self._clear, *self._found = map(int, memory)

    def next(self, place: int, ahead: int) -> int | None:
        """The first jump after `place`, if it lies at most `ahead` quanta away."""
        end = min(place + ahead, self._total)
        if end > self._clear:
            begin = max(place, self._clear)
            first = min(filter(None, (_first(signal, begin, end) for signal in self._signals)), default=None)
            # Beyond the first jump nothing is known yet.
            self._clear = end if first is None else first
            if first is not None and first < self._total and first not in self._found:
                self._found = sorted([*self._found, first])
        later = bisect_right(self._found, place)
        return self._found[later] if later < len(self._found) and self._found[later] <= end else None


def _value(sample: Sample, target: str, source: Source, grid: TimeGrid, place: int) -> float:
    return sample(target, source, grid.time(place))


def _first(signal: Callable[[int], float], begin: int, end: int) -> int | None:
    """The first place in (begin, end] at which the signal has jumped."""
    looks = LOOKS if end - begin >= LOOKS * CLOSE else 1
    places = [begin + (end - begin) * look // looks for look in range(looks + 1)]
    values = [signal(place) for place in places]
    changes = [abs(after - before) for before, after in pairwise(values)]
    for look, change in enumerate(changes):
        # A jump stands out among the parts; where they are alike, the signal slopes.
        if change > 0 and (looks == 1 or change * looks >= 2 * sum(changes)):
            jump = _narrow(signal, (places[look], values[look]), (places[look + 1], values[look + 1]))
            if jump is not None:
                return jump
    return None


def _narrow(signal: Callable[[int], float], low: tuple[int, float], high: tuple[int, float]) -> int | None:
    change = abs(high[1] - low[1])
    if high[0] - low[0] < CLOSE:
        return None
    while high[0] - low[0] > 1:
        place = (low[0] + high[0]) // 2
        middle = (place, signal(place))
        if abs(middle[1] - low[1]) >= abs(high[1] - middle[1]):
            high = middle
        else:
            low = middle
    return high[0] if abs(high[1] - low[1]) > STAYS * change else None
