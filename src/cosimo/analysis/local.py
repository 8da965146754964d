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
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cosimo.algebra import CoupledModel, coupled_model
from cosimo.analysis.identification import Identified, Means, identify, means_offered
from cosimo.analysis.identification.input_output_models import free_motion
from cosimo.analysis.identification.models import Realisation, continuous_model
from cosimo.analysis.identification.procedure import STEPS_PER_INPUT
from cosimo.analysis.identification.test_rig import Allowance
from cosimo.analysis.operating import Situation
from cosimo.core.arrays import Array
from cosimo.core.errors import CosimoError, IdentificationError
from cosimo.core.sources import Constant, Source
from cosimo.core.system import Connection, System
from cosimo.core.unit import DiscreteModel, LinearModel

BRIEFLY = 300
"""Unit steps per input for the records of a unit that is identified at many times of a run."""
LARGE = 200
"""States from which the coupled system is kept as sparse matrices."""
Outcome = Identified | CosimoError
"""A unit as identified, or why it could not be."""


@dataclass(frozen=True, eq=False)
class LocalSystem:
    """`linear`: the system of linear units; `offsets` (p,): what its outputs lack; `step`: where it was identified."""

    linear: System
    offsets: Array
    step: float
    units: Mapping[str, Identified]

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
        return coupled_model(self.linear, models)


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
        self._allowance = Allowance(allowed)
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
            begin = time.perf_counter()
            self._allowance = Allowance(self._allowance.seconds)
            self._found[step] = {name: self._identify(name, step) for name in self.system.units}
            self.seconds += time.perf_counter() - begin
            self._allowance.seconds -= self._allowance.spent
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

    def again(self, situation: Situation) -> Linearisation:
        """The same in another situation, briefly."""
        return Linearisation(self.system, situation, means=self._means, briefly=True)

    def add_cost(self, other: Linearisation) -> None:
        """Take over what another linearisation cost."""
        self.seconds += other.seconds
        self.unit_steps += other.unit_steps

    def _identify(self, name: str, step: float) -> Outcome:
        unit = self.system.units[name]
        point = self.situation.point(self.system, name, step)
        known, most = unit.linear() is not None, BRIEFLY if self._briefly else STEPS_PER_INPUT
        means = self._means if not known and self._means in means_offered(unit) else None
        try:
            with np.errstate(over="ignore", invalid="ignore"):  # a unit may diverge: that is found out and said
                like = self._like(name, step)
                found = identify(
                    unit,
                    step,
                    point=point,
                    means=means,
                    steps_per_input=most,
                    like=like,
                    allowance=self._allowance,
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
    lacking = {name: _output_offset(one, situation.outputs[name]) for name, one in found.items()}
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
                inputs[inlet.target] = _pushed(inlet.source, push)
            elif inlet.link is None and push:
                inputs[inlet.target] = inlet.start + push
    linear = System(units, connections, inputs=inputs, name=system.name)
    offsets = np.concatenate([lacking[name] for name in system.units])
    return LocalSystem(linear, offsets, step, dict(found))


def _output_offset(found: Identified, outputs: Array) -> Array:
    """Of continuous outputs as identified; discrete ones stay what they are."""
    offset = found.output_offset.copy()
    places = [found.source.outputs.index(name) for name in found.source.discrete_outputs]
    offset[places] = outputs[places]
    return offset


@dataclass(frozen=True)
class _Pushed:
    source: Source = field(repr=False)
    push: float

    def __call__(self, time: float) -> float:
        return self.source(time) + self.push


def _pushed(source: Source, push: float) -> Source:
    if not push:
        return source
    return Constant(source.value + push) if isinstance(source, Constant) else _Pushed(source, push)


# ---- models with no more states than matter, of units that are linear only for a while -------------------------------
# The answers of a unit that bends along its motion can be reproduced by ever more states: products of its motions look
# like modes of their own. They do little, but nothing of them survives into the next window of a run. What is kept are
# the directions that carry the answers: the singular values of their Hankel matrix above a small share.


ROWS = 32
"""Steps over which answers and free motion are compared."""
SHARE = 0.02
"""Singular values of the answers below this share of the largest are left out."""


def reduced(found: Identified) -> Identified:
    """The same unit with the states that matter, as its answers have it; itself where it is known.

    Its own equations by derivatives are left out: at a kink they say one side of it, answers something in between.
    """
    if found.means == "known":
        return found
    measured = continuous_model(found.model.A, found.model.B[:, : found.D.shape[1]], found.C, found.D, found.step).model
    return _reduce(replace(found, continuous=measured, generator=measured))


def _reduce(found: Identified) -> Identified:
    if found.order <= 1:
        return found
    A, B, C, m = found.model.A, found.model.B, found.C, found.D.shape[1]
    answers = np.empty((2 * ROWS, len(C), B.shape[1]))
    power = B
    for row in answers:
        row[:] = C @ power
        power = A @ power
    if not np.isfinite(answers).all():
        return found
    outputs, inputs = _sizes(np.abs(answers).max(axis=(0, 2))), _sizes(np.abs(answers).max(axis=(0, 1)))
    scaled = answers / outputs[:, None] / inputs
    hankel, shifted = _hankel(scaled, 0), _hankel(scaled, 1)
    U, s, Vt = np.linalg.svd(hankel, full_matrices=False)
    order = int((s > SHARE * s[0]).sum()) if s[0] > 0 else 0
    if order >= found.order or order == 0:
        return found
    root = np.sqrt(s[:order])
    A = (U[:, :order] / root).T @ shifted @ (Vt[:order].T / root)
    B = (root[:, None] * Vt[:order])[:, : B.shape[1]] * inputs
    C = outputs[:, None] * (U[:, :order] * root)[: len(C)]
    return _with(found, Realisation(A, B[:, :m], C, found.D), B)


def _with(found: Identified, model: Realisation, B: Array) -> Identified:
    """The model in place of that found; its free motion is fitted to that of the model it replaces."""
    base = _free_motion(found)
    sizes = _sizes(np.maximum(np.abs(base - base[0]).max(axis=0), 1e-9 * np.abs(base).max(axis=0)))
    motion = free_motion(model, found.held, base, sizes, None)
    continuous = continuous_model(model.A, model.B, model.C, model.D, found.step).model
    return replace(
        found,
        model=DiscreteModel(model.A, B),
        C=model.C,
        initial=motion.initial,
        input_offset=motion.input_offset,
        output_offset=motion.output_offset,
        free=max(found.free, motion.error),
        continuous=continuous,
        generator=continuous,
    )


def _free_motion(found: Identified) -> Array:
    """The outputs under the held inputs."""
    push, rows = found.held + found.input_offset, []
    x, B = found.initial, found.model.B[:, : len(found.held)]
    for _ in range(ROWS):
        rows.append(found.C @ x + found.D @ push + found.output_offset)
        x = found.model.A @ x + B @ push
    return np.array(rows)


def _hankel(answers: Array, first: int) -> Array:
    rows = [np.hstack(list(answers[first + i : first + i + ROWS - 1])) for i in range(ROWS)]
    return np.vstack(rows)


def _sizes(found: Array) -> Array:
    return np.where(found > 0, found, 1.0)
