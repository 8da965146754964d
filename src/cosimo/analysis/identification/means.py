"""Identification of a unit by the best means it offers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from cosimo.analysis.identification.bench import Allowance, TrialFailed
from cosimo.analysis.identification.identified import Identified, Means
from cosimo.analysis.identification.operating import OperatingPoint, state_access
from cosimo.analysis.identification.session import GOOD_FIT, Session
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, IdentificationError, UnknownNameError
from cosimo.core.unit import LinearModel, Unit

STEPS_PER_INPUT = 2000
"""What identification may cost, in unit steps per input, run-up to the operating point not counted."""


def identify(
    unit: Unit,
    step: float,
    *,
    point: OperatingPoint | None = None,
    means: Means | None = None,
    nominal: Mapping[str, float] | None = None,
    steps_per_input: int = STEPS_PER_INPUT,
    like: Identified | None = None,
    allowance: Allowance | None = None,
) -> Identified:
    """A linear discrete model of what `unit` does over one macro step of `step`, its own solver included.

    `means`: "derivatives" (directional derivatives of an FMU that lists its states, checked against real steps and
    corrected where its solver differs), "differences" (from the same saved state, states read where they can be seen),
    "experiments" (inputs and outputs of fresh instances only); by default the first of these that the unit offers, or
    "known" where it is linear by itself. `nominal` gives the size of inputs whose value at the operating point is 0.
    `like` is the same unit at the same operating point, identified by the same means at another step: where it turned
    out linear to rounding, sizes of pulses and checks of linearity are taken over, and shorter records will do.
    `allowance` limits the time that trials take.

    A unit that raises or takes no perturbation is refused with an IdentificationError. Anything else gives a model
    together with whether it is valid; a unit that never changes has one without states.

    >>> from cosimo.units import StateSpace
    >>> found = identify(StateSpace(-1.0, 1.0, 1.0), 0.5, means="experiments")
    >>> found.valid, found.poles.real.round(4)
    (True, array([0.6065]))
    """
    if not (math.isfinite(step) and step > 0):
        raise ConfigurationError(f"the macro step must be a positive number of seconds, not {step}.")
    point = point or OperatingPoint()
    again = partial(identify, unit, point=point, means=means, nominal=nominal, steps_per_input=steps_per_input)
    model = unit.linear()
    if model is not None and means in (None, "known"):
        return replace(_known(unit, model, step, point), again=again)
    offered = means_offered(unit)
    if means is not None and means not in offered:
        raise IdentificationError(f"{_name(unit)} cannot be identified by {means}; it offers {', '.join(offered)}.")
    scales = _scales(unit, point, nominal or {})
    ask = partial(Session, unit, step, point, means or offered[0], scales, steps_per_input, allowance)
    found = _once_more(ask, like) if like is not None else None
    if found is None:
        session = ask()
        try:
            found = session.run()
        except TrialFailed as failure:
            if means is None and session.means != "experiments" and not session.started:
                # It cannot do what it declares; perhaps it can do with less.
                less = identify(unit, step, point=point, means="experiments", nominal=nominal, allowance=allowance)
                return replace(less, reasons=(*less.reasons, f"not by {session.means}: {failure}"), again=again)
            raise IdentificationError(
                f"{_name(unit)} could not be identified at t = {point.time:g} with the step {step:g}: {failure}."
            ) from failure
        finally:
            session.close()
    return replace(found, again=partial(again, like=found))


def _once_more(ask: Callable[..., Session], like: Identified) -> Identified | None:
    """By what is known of the unit from another step; None where that is nothing, or does not hold here."""
    if like.manner is None:
        return None
    session = ask(manner=like.manner)
    try:
        found = session.run()
    except TrialFailed:
        return None
    finally:
        session.close()
    return found if found.valid and found.means == like.means and found.fit <= GOOD_FIT else None


def means_offered(unit: Unit) -> tuple[Means, ...]:
    """What identification can use, best first."""
    offered: list[Means] = []
    access = state_access(unit)
    if access is not None and unit.provides_directional_derivatives:
        offered.append("derivatives")
    if unit.can_restore or access is not None:
        offered.append("differences")
    return (*offered, "experiments")


def _known(unit: Unit, model: LinearModel, step: float, point: OperatingPoint) -> Identified:
    """A unit that is linear by itself: nothing to find out but its state at the operating point."""
    discrete, (p, m) = unit.discrete(step), model.D.shape
    sources, x = point.sources(unit), unit.initial_state
    count = round((point.time - point.start_time) / step)
    for k in range(count):
        u = np.array([source(point.start_time + k * step) for source in sources], dtype=float)
        x = discrete.A @ x + discrete.B[:, :m] @ u
    return Identified(
        source=unit,
        step=step,
        time=point.start_time + count * step,
        model=discrete,
        C=model.C,
        D=model.D,
        initial=x,
        held=np.array([source(point.start_time + count * step) for source in sources], dtype=float),
        input_offset=np.zeros(m),
        output_offset=np.zeros(p),
        continuous=model,
        means="known",
        unit_steps=0,
        fit=0.0,
        linear=0.0,
        invariant=0.0,
        free=0.0,
        amplitudes=np.zeros(m),
        valid=True,
        reasons=(),
        generator=model,
    )


def _scales(unit: Unit, point: OperatingPoint, nominal: Mapping[str, float]) -> Array:
    """The size of every input: as given, as it is at the operating point or at the start, or 1."""
    for name, size in nominal.items():
        if name not in unit.inputs:
            raise UnknownNameError("input", name, unit.inputs)
        if not (math.isfinite(size) and size > 0):
            raise ConfigurationError(f"the nominal size of input '{name}' must be a positive number, not {size}.")
    held = [abs(source(point.time)) for source in point.sources(unit)]
    found = [
        nominal.get(name) or size or abs(unit.start.get(name, 0.0)) or 1.0
        for name, size in zip(unit.inputs, held, strict=True)
    ]
    return np.array(found, dtype=float)


def _name(unit: Unit) -> str:
    return f"the {type(unit).__name__}" + (f" '{unit.name}'" if unit.name else "")
