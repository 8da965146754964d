"""The rig a unit is put on: trials that all begin at the same operating point, and a count of the steps they cost.

A trial is a sequence of steps under the held inputs plus a deviation. Before step k the input is set and the outputs
are read at once, so that row k holds

    y_k = C x_k + D u_k,   x_{k+1} = A x_k + Σ_j B_j c_j,k

with feedthrough as the unit really has it: an output that changes only after a step has D = 0, whatever is declared.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import field, replace
from time import perf_counter
from typing import Any, NoReturn

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array, output_values, shift_matrix
from cosimo.core.errors import ConfigurationError, CosimoError, UnknownNameError
from cosimo.core.guarding import own_clock
from cosimo.core.system import Source, as_source
from cosimo.core.unit import Instance, Unit

AT_ONCE = 0.05
"""Seconds for which a unit is stepped without asking whether the budget is used up or somebody has pressed Ctrl-C."""
WORTH = 5
"""Steps from which on setting up the compiled loop takes less than what it saves."""
LIVE = 24
"""How many fresh instances are kept alive at most, to continue their trials; others are replayed from the start."""


class TrialFailed(Exception):
    """A unit raised, refused or returned something that is not a number; the text says what and when."""


def failed(doing: str, error: BaseException) -> TrialFailed:
    """What a unit raised, as a reason, which is part of a sentence."""
    kind = "" if isinstance(error, CosimoError) else f" with {type(error).__name__}"
    return TrialFailed(f"{doing} failed{kind}: {str(error).removesuffix('.')}")


class Allowance:
    """Time that identification may take from now on: `seconds` that do not depend on what else the machine does."""

    def __init__(self, seconds: float = math.inf) -> None:
        self.seconds = seconds
        self._begin, self._begin_by_clock = own_clock(), perf_counter()

    @property
    def spent(self) -> float:
        """Seconds that count so far."""
        return own_clock() - self._begin

    def check(self) -> None:
        """Refuse to go on when the time is over."""
        # Never more than by the plain clock, which takes a hundredth of the time to look at.
        if perf_counter() - self._begin_by_clock > self.seconds and self.spent > self.seconds:
            raise TrialFailed("trials take longer than the budget allows for; give a longer one (--budget)")


class Rig:
    """A unit at its operating point. With `restore`, trials share one instance whose state is put back; otherwise
    each has a fresh instance that runs up to the operating point first.

    `access` adds the visible states to what is read: rows are [y; x].
    """

    def __init__(
        self,
        unit: Unit,
        step: float,
        point: OperatingPoint,
        *,
        restore: bool,
        access: StateAccess | None = None,
        allowance: Allowance | None = None,
    ) -> None:
        self.unit, self.step, self.access = unit, step, access
        self.restore, self._allowance = restore, allowance or Allowance()
        self._sources, self._start_time = point.sources(unit), point.start_time
        self.run_up = round((point.time - point.start_time) / step)
        self.time = self.moment(0)
        self.held: Array = np.array([source(self.time) for source in self._sources], dtype=float)
        """The inputs at the operating point."""
        self.fixed = tuple(unit.inputs.index(name) for name in unit.discrete_inputs)
        self.free = tuple(i for i in range(len(unit.inputs)) if i not in self.fixed)
        """Which inputs may be varied: all but whole numbers and switches."""
        self.constant = [unit.outputs.index(name) for name in unit.discrete_outputs]
        """Which outputs are whole numbers or switches: they count as constant, read as 0."""
        self.powers = unit.input_degree + 1
        self.outputs = len(unit.outputs)
        self.width = self.outputs + (len(access.names) if access is not None else 0)
        self.steps = self.run_up_steps = 0
        self._live: list[RigTrial] = []
        self._alone = unit.single_instance
        self._shared: Instance | None = None
        self._state: Any = None
        if restore:
            self._shared = self.prepare()
            self._state = self._guard("saving its state", self._shared.save)

    def trial(self, nudge: Array | None = None) -> RigTrial:
        """A trial from the operating point; `nudge` is added to the visible states before its first step."""
        return RigTrial(self, nudge)

    def once(self, deviations: Array) -> Array:
        """The readings of a trial on an instance of its own, where the unit can have two: nothing is put back."""
        if self._alone:
            return self.trial().run(deviations)
        self._make_room()
        with closing(self.prepare()) as instance:
            return self.stepped(instance, 0, deviations)

    @contextmanager
    def instance(self) -> Iterator[Instance]:
        """A live instance at the operating point, for questions that need no steps."""
        if self._shared is not None:
            self._guard("restoring its state", self._shared.restore, self._state)
            yield self._shared
            return
        self._make_room()
        with closing(self.prepare()) as instance:
            yield instance

    def close(self) -> None:
        """Release all instances."""
        for trial in self._live:
            trial.close()
        if self._shared is not None:
            self._shared.close()
        self._live, self._shared = [], None

    def moment(self, k: int) -> float:
        """The time k macro steps after the operating point, counted from the start time."""
        return self._start_time + (self.run_up + k) * self.step

    # ---- what trials use -----------------------------------------------------------------------------------------

    def prepare(self) -> Instance:
        """A fresh instance, run up to the operating point."""
        instance: Instance = self._guard(
            f"being instantiated at t = {self._start_time:g}", self.unit.instantiate, self._start_time
        )
        try:
            for k in range(-self.run_up, 0):
                time = self.moment(k)
                values = np.array([source(time) for source in self._sources], dtype=float)
                self.set_input(instance, self.coefficients(values))
                self.advance(instance, time)
                self.run_up_steps += 1
            self.set_input(instance, self.coefficients(self.held))
            self._guard("leaving initialisation", instance.finish_initialisation)
        except BaseException:
            instance.close()
            raise
        return instance

    def begin(self, trial: RigTrial) -> Instance:
        """The instance for a trial that begins (again) or goes on, in its state."""
        if self._shared is not None:
            state = self._state if trial.state is None else trial.state
            self._guard("restoring its state", self._shared.restore, state)
            return self._shared
        self._make_room()
        instance = self.prepare()
        self._live.append(trial)
        return instance

    def _make_room(self) -> None:
        while self._live and len(self._live) >= (1 if self._alone else LIVE):
            self._live.pop(0).close()

    def set_input(self, instance: Instance, coefficients: Array) -> None:
        """Give the input for one macro step."""
        self._guard("setting its inputs", instance.set_input, coefficients, self.step)

    def advance(self, instance: Instance, time: float) -> None:
        """One macro step."""
        self.count_steps(1)
        self._guard(f"its step from t = {time:g} to {time + self.step:g}", instance.step, time, self.step)

    def count_steps(self, count: int) -> None:
        """So many are about to be made, or were just made."""
        self._allowance.check()
        self.steps += count

    def _read(self, instance: Instance, time: float) -> Array:
        """Outputs and visible states; anything that is not finite fails."""
        row = np.empty(self.width)
        row[: self.outputs] = output_values(instance.read(), self.outputs)
        if self.access is not None:
            row[self.outputs :] = self.access.read(instance)
        if self.constant:
            row[self.constant] = 0.0
        if not np.isfinite(row).all():
            names = (*self.unit.outputs, *(self.access.names if self.access else ()))
            where = int(np.flatnonzero(~np.isfinite(row))[0])
            raise TrialFailed(f"'{names[where]}' is {row[where]} at t = {time:g}")
        return row

    def save(self, instance: Instance) -> Any:
        """The state of the shared instance."""
        return self._guard("saving its state", instance.save)

    def nudge(self, instance: Instance, by: Array) -> None:
        """Add to the visible states."""
        assert self.access is not None
        values = self._guard("reading its states", self.access.read, instance) + by
        self._guard("setting its states", self.access.write, instance, values)

    def restart(self, states: Array, deviations: Array) -> Array:
        """Readings of a fresh instance that starts at the operating point in the states given, as those of a trial."""
        assert self.access is not None
        self._make_room()
        instance: Instance | None = self._guard("being restarted", self.access.restart, states, self.time)
        if instance is None:
            raise TrialFailed("its states cannot be given at a start")
        with closing(instance):
            self.set_input(instance, self.coefficients(self.held))
            self._guard("leaving initialisation", instance.finish_initialisation)
            return self.stepped(instance, 0, deviations)

    def stepped(self, instance: Instance, first: int, deviations: Array) -> Array:
        """Steps `first`, `first` + 1, … after the operating point, under deviations (N, powers, inputs) of the held
        inputs; the readings (N, width) before each."""
        if len(deviations) >= WORTH and (loop := CompiledSteps.of(self, instance)) is not None:
            with closing(loop):
                return loop.run(first, deviations)
        rows = [self._go(instance, first + k, deviation) for k, deviation in enumerate(deviations)]
        return np.array(rows).reshape(len(deviations), self.width)

    def _go(self, instance: Instance, k: int, deviation: Array) -> Array:
        time = self.moment(k)
        coefficients = deviation.copy()
        coefficients[0] += self.held
        # As `_guard`, once for three calls: units are asked for thousands of steps.
        doing = "setting its inputs"
        try:
            instance.set_input(coefficients, self.step)
            doing = "reading at t = {:g}"
            row = self._read(instance, time)
            self.count_steps(1)
            doing = "its step from t = {:g} to {:g}"
            instance.step(time, self.step)
        except TrialFailed:
            raise
        except (Exception, SystemExit) as error:
            raise failed(doing.format(time, time + self.step), error) from error
        return row

    def coefficients(self, values: Array) -> Array:
        """The polynomials (powers, inputs) of inputs that are held."""
        # Every input keeps all its powers, so that a unit never sees a polynomial shorter than the one before.
        return np.vstack([values, np.zeros((self.powers - 1, len(values)))])

    @staticmethod
    def _guard(doing: str, function: Any, *arguments: Any) -> Any:
        """Call into the unit; whatever it raises becomes a reason."""
        try:
            return function(*arguments)
        except (Exception, SystemExit) as error:
            raise failed(doing, error) from error


class RigTrial:
    """One sequence of steps from the operating point; it can be continued."""

    def __init__(self, rig: Rig, nudge: Array | None) -> None:
        self._rig, self._nudge = rig, nudge
        self.state: Any = None
        self._instance: Instance | None = None
        self._past: list[Array] = []

    def run(self, deviations: Array) -> Array:
        """Go on under these deviations (N, powers, inputs) of the held inputs; the readings before each step."""
        rig, done = self._rig, len(self._past)
        instance = self._instance
        if instance is None:
            instance = rig.begin(self)
            if not rig.restore:
                self._instance = instance
                if self._past:  # the instance of before was given up for another trial
                    self._stepped(instance, 0, np.array(self._past))
        rows = self._stepped(instance, done, deviations)
        self._past += list(deviations)
        if rig.restore:
            self.state = rig.save(instance)
        return rows

    def close(self) -> None:
        """Release the instance; the trial can still be continued, at the cost of a replay."""
        if self._instance is not None:
            self._instance.close()
        self._instance = None

    def _stepped(self, instance: Instance, first: int, deviations: Array) -> Array:
        if first == 0 and self._nudge is not None and len(deviations):
            self._rig.nudge(instance, self._nudge)
        return self._rig.stepped(instance, first, deviations)


class CompiledSteps:
    """The steps of a trial in the compiled loop: the schedule "couple, read, step" of one FMU, its inputs from outside.

    The instance must have left initialisation. Its states are read with its outputs, in one call.
    """

    def __init__(self, rig: Rig, instance: Any, native: Any) -> None:
        from cosimo._kernel import Program
        from cosimo.execution.lowering import add_fmu

        self._rig, self._instance = rig, instance
        m, powers, step = len(rig.held), rig.powers, rig.step
        given = rig.coefficients(rig.held)
        self._program = program = Program(rig.moment(-rig.run_up), step, [0.0] * rig.width, given.ravel().tolist(), [])
        program.name_units([rig.unit.name])
        add_fmu(program, 0, native, (m, rig.width), given, step)
        fit = np.eye(powers).ravel().tolist()
        for place in range(m):
            program.external(place * powers, place, m, powers, fit)
        program.couple(0, 0, 0.0)
        program.read(0, 0, 0.0)
        along = shift_matrix(powers - 1, 1.0).ravel().tolist()
        program.step(0, program.input_map(0, along) if powers > 1 and m else -1, 0.0, step)
        for place in range(rig.width):
            program.column(place, 0, [])
        if rig.restore:
            program.can_go_back()
        program.finish(1, 0, 0.0)

    @classmethod
    def of(cls, rig: Rig, instance: Instance) -> CompiledSteps | None:
        """None where Python must call the unit: it is no FMU, has events, or arrays of states."""
        from cosimo.units.fmi.exchange import group

        native = instance.native(rig.powers)
        if native is None or native.events is not None:
            return None
        if rig.access is not None:
            if not isinstance(rig.access, FmuStates):
                return None
            unit = rig.access.unit
            states = [unit.variables[name] for name in rig.access.names]
            if any(info.element is not None for info in states):
                return None
            native = replace(native, outputs=group([*unit.output_infos, *states], native.version))
            if rig.powers > 1 and not native.doubles:
                return None
        return cls(rig, instance, native)

    def run(self, first: int, deviations: Array) -> Array:
        """See `Rig.stepped`. Few steps are made at first, and more at once where these take little time."""
        rig, program = self._rig, self._program
        inputs = deviations.copy()
        inputs[:, 0] += rig.held
        given = np.ascontiguousarray(inputs.transpose(0, 2, 1)).reshape(len(inputs), -1)
        rows = np.empty((len(given), rig.width + 1))
        done, count = 0, 1
        while done < len(given):
            rig.count_steps(0)
            part = slice(done, done + count)
            begin = perf_counter()
            outcome = program.run(rig.run_up + first + done, len(given[part]), given[part], rows[part])
            took = perf_counter() - begin
            done += program.made
            rig.count_steps(program.made)
            if outcome:
                self._fail(outcome)
            count = 2 * count if took < AT_ONCE else max(1, count // 2)
        found: Array = rows[:, 1:]
        found[:, rig.constant] = 0.0
        return found

    def close(self) -> None:
        """Let go of the instance, which lives on."""
        self._program.release()

    def _fail(self, outcome: int) -> NoReturn:
        """Say what went wrong in the words of steps made by Python."""
        from cosimo.execution.engines import ENDED as AT_END
        from cosimo.execution.engines import ENDED_INSIDE, NON_FINITE, NOT_EXACT, STOPPED, VERBS
        from cosimo.units.fmi.instance import ENDED

        if outcome == STOPPED:
            raise KeyboardInterrupt
        _, phase, status, output, at, duration, value = self._program.failure
        if outcome == NON_FINITE:
            names = (*self._rig.unit.outputs, *(self._rig.access.names if self._rig.access else ()))
            raise TrialFailed(f"'{names[output]}' is {value} at t = {at:g}")
        stepping = f"its step from t = {at:g} to {at + duration:g}"
        doing = ("setting its inputs", stepping, f"reading at t = {at:g}")[phase]
        if status == NOT_EXACT:
            raise TrialFailed(f"{doing} failed: a value does not fit the type of its variable")
        try:
            if outcome == AT_END or status == ENDED_INSIDE:
                self._instance.explain("step", ENDED, at, duration)
            self._instance.explain(VERBS[phase], status, at, duration)
        except CosimoError as error:
            raise failed(doing, error) from error
        raise TrialFailed(f"{doing} failed with status {status}")


# ---- where a unit is identified, and which of its states can be seen there -------------------------------------------


@dataclass(frozen=True)
class OperatingPoint:
    """The state a unit is in at `time`, after a run from `start_time` under `inputs` (numbers or functions of time).

    Inputs that are not named keep their start values (0 without one). From `time` on all inputs are held. The run-up
    is made with the macro step, so `time` is rounded to a whole number of these.
    """

    time: float = 0.0
    start_time: float = 0.0
    inputs: Mapping[str, float | Source] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time) and math.isfinite(self.start_time) and self.time >= self.start_time):
            raise ConfigurationError(
                f"an operating point needs a time ({self.time}) that is not before the start time ({self.start_time})."
            )

    def sources(self, unit: Unit) -> list[Source]:
        """The signal of every input."""
        for name in self.inputs:
            if name not in unit.inputs:
                raise UnknownNameError("input", name, unit.inputs)
        return [as_source(name, self.inputs.get(name, unit.start.get(name, 0.0))) for name in unit.inputs]


class StateAccess(ABC):
    """The states of a unit that can be seen between steps; `names` says which."""

    names: tuple[str, ...]

    @abstractmethod
    def read(self, instance: Any) -> Array:
        """Their values now."""

    @abstractmethod
    def write(self, instance: Any, values: Array) -> None:
        """Set them; a unit that does not allow it raises."""

    def restart(self, values: Array, time: float) -> Instance | None:
        """A fresh instance that starts at `time` with these states, or None where states cannot be given at a start."""
        return None


class FmuStates(StateAccess):
    """The continuous states that the description of an FMU lists, with the names of their derivatives."""

    def __init__(self, unit: Any) -> None:
        self.unit = unit
        self.names, self.derivatives = unit.continuous_states()

    def read(self, instance: Any) -> Array:
        values: Array = instance.get_variables(self.names)
        return values

    def write(self, instance: Any, values: Array) -> None:
        instance.set_variables(self.names, values.tolist())

    def restart(self, values: Array, time: float) -> Instance | None:
        from cosimo.units.fmi.variables import SETTABLE

        if any(self.unit.variables[name].initial not in SETTABLE for name in self.names):
            return None
        changed = copy.copy(self.unit)
        changed.given = {**self.unit.given, **dict(zip(self.names, values.tolist(), strict=True))}
        instance: Instance = changed.instantiate(time)
        return instance


class NativeStates(StateAccess):
    """The array x that the functions of a native unit work on."""

    def __init__(self, unit: Any) -> None:
        self.names = tuple(f"x{number}" for number in range(1, len(unit.initial) + 1))

    def read(self, instance: Any) -> Array:
        return np.array(instance.x, dtype=float)

    def write(self, instance: Any, values: Array) -> None:
        instance.x[:] = values


def state_access(unit: Unit) -> StateAccess | None:
    """How the states of `unit` can be seen, or None where they cannot."""
    from cosimo.units.fmi.fmu import Fmu
    from cosimo.units.native import NativeUnit

    access: StateAccess | None = None
    if isinstance(unit, Fmu):
        access = FmuStates(unit)
    elif isinstance(unit, NativeUnit):
        access = NativeStates(unit)
    return access if access is not None and access.names else None
