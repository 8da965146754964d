"""A system of linear units in place of any system: every unit as identified at one operating point and one macro step.

An identified unit is affine: x' = A x + B (u + d), y = C x + D (u + d) + e. Its linear part takes its place; d and e go
into the connections, the external inputs and the start values around it, so that the linear system rests, moves and is
driven as the real one:

    connection  source → target, gain g, offset o:      offset becomes o + g e_source + d_target
    external input, start value:                        + d_target
    outputs of the real system:                         those of the linear one + e
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cosimo.algebra.product import CoupledModel, coupled_model, dense
from cosimo.analysis.identification import Identified, Means
from cosimo.analysis.stability import IDENTIFIED, grows
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import CosimoError, IdentificationError
from cosimo.core.master import Master, mixer_of
from cosimo.core.result import Result
from cosimo.core.system import Connection, Constant, Source, System, Table
from cosimo.core.unit import LinearModel, Unit
from cosimo.masters import jacobi

if TYPE_CHECKING:
    from cosimo.analysis.identification.test_rig import Allowance, OperatingPoint

BRIEFLY = 300
"""Unit steps per input for the records of a unit that is identified at many times of a run."""
LARGE = 200
"""States from which the coupled system is kept as sparse matrices."""
Outcome = Identified | CosimoError
"""A unit as identified, or why it could not be."""


@dataclass(frozen=True, eq=False)
class LocalSystem:
    """`linear`: the system of linear units; `offsets` (p,): what its outputs lack; `step`: where it was identified.

    `exact` tells that what conversion to other steps gives is what the units do there (`limits.find_base`).
    """

    linear: System
    offsets: Array
    step: float
    units: Mapping[str, Identified]
    exact: bool = False

    @property
    def identified(self) -> bool:
        """Whether the equations of a unit are not known."""
        return any(found.means != "known" for found in self.units.values())

    @property
    def continuous(self) -> bool:
        """Whether every unit has a continuous model, so that there is a coupled system to compare with."""
        return all(found.continuous is not None for found in self.units.values())

    @property
    def convertible(self) -> bool:
        """Whether every one-step map can be converted to other steps."""
        return all(found.generator is not None for found in self.units.values())

    @property
    def own(self) -> bool:
        """Whether the continuous models are the units' own equations, not what their solvers make of them."""
        return all(_own(found) for found in self.units.values())

    def inside(self, master: Master, sign: float = 1.0) -> Master:
        """A master of the real system as one of the linear units, whose outputs lack the offsets; −1: the reverse."""
        if not master.mixers or not self.offsets.any():
            return master
        mixers = {}
        for name in master.mixers:
            mixer, links = mixer_of(self.linear, master, name), self.linear.incoming(name)
            assert mixer is not None
            places = [self.linear.outputs.index(link.connection.source) for link in links]
            held = np.array([link.connection.gain for link in links]) * self.offsets[places]
            mixers[name] = mixer.shifted(-sign * self.offsets, -sign * held)
        return replace(master, mixers=mixers)

    @cached_property
    def coupled(self) -> CoupledModel:
        """The coupled system without any coupling error, from the continuous models."""
        models = {name: model for name, unit in self.linear.units.items() if (model := unit.linear()) is not None}
        states = sum(len(model.A) for model in models.values())
        return coupled_model(self.linear, models, sparse=states > LARGE)

    @cached_property
    def converted(self) -> CoupledModel:
        """The same of the models by which maps are converted to other steps: the solvers' errors are in it too."""
        models: dict[str, LinearModel] = {}
        for name, unit in self.linear.units.items():
            model = (self.units[name].generator if name in self.units else None) or unit.linear()
            assert model is not None
            models[name] = model
        return coupled_model(self.linear, models, sparse=sum(len(model.A) for model in models.values()) > LARGE)

    @cached_property
    def growth_by_conversion(self) -> float:
        """max Re λ in 1/s of the converted models, where these grow and the system does not; else 0.

        They grow by the error of the units' solvers at this step. At other steps that error is another one, so that
        nothing is said of stability there.
        """
        if not (self.identified and self.continuous and self.convertible) or self.exact:
            return 0.0
        true, converted = (np.linalg.eigvals(dense(m.A)).astype(complex) for m in (self.coupled, self.converted))
        misled = grows(converted) and not grows(true, slack=IDENTIFIED / self.step)
        return float(converted.real.max()) if misled else 0.0


def _own(found: Identified) -> bool:
    if found.means == "known":
        return True
    return found.means == "derivatives" and found.continuous is not None and found.continuous is not found.generator


class Linearisation:
    """Identifies the units of a system in one situation, at any macro step; what was found is kept.

    `means` asks for a certain way to identify where a unit offers it; `briefly` for one of many times of a run:
    short records, and only states that matter. `seconds` and `unit_steps` add up the cost; trials that take longer than
    the time `allowed` are ended.
    """

    def __init__(
        self,
        system: System,
        situation: Situation,
        *,
        means: Means | None = None,
        briefly: bool = False,
        allowed: float = math.inf,
    ) -> None:
        self._allowed = self._left = allowed
        self.system, self.situation, self._means, self._briefly = system, situation, means, briefly
        self._found: dict[float, dict[str, Outcome]] = {}
        self._systems: dict[float, LocalSystem] = {}
        self.seconds = 0.0
        self.unit_steps = 0
        self.known = all(unit.linear() is not None for unit in system.units.values())
        """Whether the equations of all units are known: then there is nothing to identify."""

    def outcomes(self, step: float) -> Mapping[str, Outcome]:
        """Every unit at this macro step."""
        if step not in self._found:
            from cosimo.analysis.identification.test_rig import Allowance

            begin, allowance = time.perf_counter(), Allowance(self._left)
            self._found[step] = {name: self._identify(name, step, allowance) for name in self.system.units}
            self.seconds += time.perf_counter() - begin
            self._left -= allowance.spent
        return self._found[step]

    def at(self, step: float) -> LocalSystem:
        """The system of linear units; an IdentificationError where a unit could not be identified."""
        if self.known:
            return self._systems.setdefault(0.0, LocalSystem(self.system, np.zeros(len(self.system.outputs)), step, {}))
        if step not in self._systems:
            found: dict[str, Identified] = {}
            for name, outcome in self.outcomes(step).items():
                if not isinstance(outcome, Identified):
                    raise IdentificationError(f"unit '{name}': {outcome}")
                found[name] = outcome
            self._systems[step] = _assemble(self.system, found, self.situation, step)
        return self._systems[step]

    def renew(self) -> None:
        """Allow all of the time again: for whoever asks of one step after the other, for as long as somebody looks."""
        self._left = self._allowed

    def again(self, situation: Situation) -> Linearisation:
        """The same in another situation, briefly."""
        return Linearisation(self.system, situation, means=self._means, briefly=True)

    def _identify(self, name: str, step: float, allowance: Allowance) -> Outcome:
        from cosimo.analysis.identification.fitted_models import reduced
        from cosimo.analysis.identification.procedure import STEPS_PER_INPUT, identify, means_offered

        unit = self.system.units[name]
        point = self.situation.point(self.system, name, step)
        known, most = unit.linear() is not None, BRIEFLY if self._briefly else STEPS_PER_INPUT
        means = self._means if not known and self._means in means_offered(unit) else None
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a unit may diverge: that is found out and said
                like = self._like(name, step)
                found = identify(
                    unit, step, point=point, means=means, steps_per_input=most, like=like, allowance=allowance
                )
        except CosimoError as error:
            return error
        except (np.linalg.LinAlgError, ArithmeticError, ValueError, IndexError) as error:
            return IdentificationError(f"no linear model was found ({type(error).__name__}: {error}).")
        self.unit_steps += found.unit_steps
        return reduced(found) if self._briefly else found

    def _like(self, name: str, step: float) -> Identified | None:
        """The unit at the nearest step at which it was identified."""
        steps = sorted(self._found, key=lambda tried: abs(math.log(tried / step)))
        outcomes = (self._found[tried][name] for tried in steps)
        return next((found for found in outcomes if isinstance(found, Identified)), None)


def _assemble(system: System, found: Mapping[str, Identified], situation: Situation, step: float) -> LocalSystem:
    units = {name: one.unit(stand_in=True) for name, one in found.items()}
    for name, unit in units.items():  # what stands in for a unit can do what the unit can
        unit.can_restore = system.units[name].can_restore
    lacking = {name: one.output_offset.copy() for name, one in found.items()}
    for name, one in found.items():  # of continuous outputs as identified; discrete ones stay what they are
        places = [one.source.outputs.index(output) for output in one.source.discrete_outputs]
        lacking[name][places] = situation.outputs[name][places]
    pushed = {name: one.input_offset for name, one in found.items()}
    connections = []
    for link in system.links:
        source, target, own = link.source, link.target, link.connection
        offset = own.offset + own.gain * lacking[source.unit][source.index] + pushed[target.unit][target.index]
        connections.append(Connection(own.source, own.target, own.gain, float(offset), convert=False))
    inputs: dict[str, float | Source] = {}
    for name in system.units:
        for index, inlet in enumerate(system.inlets[name]):
            push = float(pushed[name][index])
            if inlet.source is not None:
                inputs[inlet.target] = _Pushed(inlet.source, push) if push else inlet.source
                if isinstance(inlet.source, Constant):
                    inputs[inlet.target] = inlet.source.value + push
            elif inlet.link is None and push:
                inputs[inlet.target] = inlet.start + push
    linear = System(units, connections, inputs=inputs, name=system.name)
    offsets = np.concatenate([lacking[name] for name in system.units])
    return LocalSystem(linear, offsets, step, dict(found))


@dataclass(frozen=True)
class _Pushed:
    source: Source = field(repr=False)
    push: float

    def __call__(self, time: float) -> float:
        return self.source(time) + self.push


# ---- where the units of a system are when they are identified: at the start with consistent inputs, or along a -------
# At the start the inputs are those with which a run begins: u = L y + b with y = g(x, u) solved. Later, every unit is
# led to its operating point by the inputs of a reference run. It is led with the macro step at which it is identified
# and inputs that are held over each step; held is the mean of the reference over the step, so that the state reached is
# that of the reference to second order.


@dataclass(frozen=True)
class Situation:
    """All signals of a system at one time: inputs by unit and name, outputs by unit, and how it came there.

    `run` is the reference run that led here, None at the start.
    """

    time: float
    start: float
    inputs: Mapping[str, Mapping[str, float]]
    outputs: Mapping[str, Array]
    run: Result | None = field(default=None, repr=False)

    def point(self, system: System, unit: str, step: float) -> OperatingPoint:
        """The operating point of one unit, led there with macro steps of `step`."""
        from cosimo.analysis.identification.test_rig import OperatingPoint

        if self.run is None or self.time == self.start:
            return OperatingPoint(self.start, self.start, dict(self.inputs[unit]))
        signals = {name: self._signal(system, unit, name, step) for name in system.units[unit].inputs}
        return OperatingPoint(self.time, self.start, signals)

    def _signal(self, system: System, unit: str, name: str, step: float) -> Source:
        assert self.run is not None
        values = self.run[f"{unit}.{name}"]
        if name in system.units[unit].discrete_inputs:
            return Table(self.run.time, values, interpolation="hold")
        return Averaged(self.run.time, values, step, self.time)


class Averaged:
    """The mean of a recorded signal over the step that begins at a time; from `until` on, its value."""

    def __init__(self, times: Array, values: Array, step: float, until: float) -> None:
        self._times, self._values, self._step = times, values, step
        # Run-ups count whole steps, which need not end exactly here.
        self._until = until - 0.75 * step
        areas = np.diff(times) * (values[1:] + values[:-1]) / 2
        self._area: Array = np.concatenate([[0.0], np.cumsum(areas)])

    def __call__(self, time: float) -> float:
        if time > self._until:
            return float(np.interp(time, self._times, self._values))
        low, high = np.interp([time, time + self._step], self._times, self._area)
        return float((high - low) / self._step)


def at_start(system: System, start: float = 0.0) -> Situation:
    """The signals with which a run begins; units are instantiated and initialised, but make no step."""
    from cosimo.execution.live import Live

    live = Live(system, jacobi(system, 1.0), start)
    try:
        live.initialise()
        inputs = {
            name: dict(zip(unit.inputs, live.c[name][0].tolist(), strict=True)) for name, unit in system.units.items()
        }
        return Situation(start, start, inputs, {name: y.copy() for name, y in live.y.items()})
    finally:
        live.close()


def during(system: System, run: Result, time: float) -> Situation:
    """The signals of a reference run (outputs and inputs recorded) at `time`, between rows by interpolation."""

    def value(name: str) -> float:
        return float(np.interp(time, run.time, run[name]))

    inputs = {name: {v: value(f"{name}.{v}") for v in unit.inputs} for name, unit in system.units.items()}
    outputs = {
        name: np.array([value(f"{name}.{v}") for v in unit.outputs], dtype=float) for name, unit in system.units.items()
    }
    return Situation(time, float(run.time[0]), inputs, outputs, run)


def moments(system: System, run: Result, count: int, step: float) -> list[float]:
    """`count` times of a run, the first at its start, that lie closer where signals between units move more.

    Half of the measure is time, half the way that the connected inputs go, each relative to its range; all are whole
    numbers of macro steps of `step` after the start.
    """
    start, stop = float(run.time[0]), float(run.time[-1])
    way = np.zeros(len(run.time))
    signals = [run[link.connection.target] for link in system.links]
    moving = [signal / span for signal in signals if (span := float(np.ptp(signal))) > 0]
    for signal in moving:
        way[1:] += np.cumsum(np.abs(np.diff(signal)))
    measure = (run.time - start) / (stop - start)
    if moving:
        measure = (measure + way / way[-1]) / 2
    found = np.interp(np.arange(count) / count, measure, run.time)
    whole = {start + round((time - start) / step) * step for time in found.tolist()}
    return sorted(time for time in whole if time < stop)


# ---- what is said of single units, and of single moments of a run ----------------------------------------------------


@dataclass(frozen=True)
class UnitReport:
    """How a unit was identified: `fit`, `linear` and `invariant` are relative errors, NaN where it failed.

    `departure` is how far the unit comes apart from its linear model when it is led through the motion that the linear
    picture predicts; `poles` are its own, in 1/s. `error` says why it could not be identified.
    """

    name: str
    means: Means | None
    valid: bool
    fit: float
    linear: float
    invariant: float
    unit_steps: int
    reasons: tuple[str, ...]
    poles: tuple[complex, ...] = ()
    departure: float = math.nan
    error: str = ""

    @property
    def worst(self) -> float:
        """The largest of the errors."""
        return max(self.fit, self.linear, self.invariant)


def known_unit(name: str, unit: Unit) -> UnitReport:
    """A unit whose equations are known."""
    model = unit.linear()
    assert model is not None
    poles = tuple(complex(pole) for pole in np.linalg.eigvals(model.A)) if len(model.A) <= 100 else ()
    return UnitReport(name, "known", True, 0.0, 0.0, 0.0, 0, (), poles)


def unit_report(name: str, outcome: Identified | Exception, like: Identified | None, departure: float) -> UnitReport:
    """A unit that was identified, or could not be; its poles are those of `like`, at a step where they show."""
    if not isinstance(outcome, Identified):
        nan = math.nan
        return UnitReport(name, None, False, nan, nan, nan, 0, (str(outcome),), error=str(outcome))
    seen = like or outcome
    if seen.continuous is not None:
        poles = np.linalg.eigvals(seen.continuous.A)
    else:
        poles = np.log(seen.poles[np.abs(seen.poles) > 0]) / seen.step
    errors = (outcome.fit, outcome.linear, outcome.invariant)
    found = tuple(complex(pole) for pole in poles)
    return UnitReport(
        name, outcome.means, outcome.valid, *errors, outcome.unit_steps, outcome.reasons, found, departure
    )
