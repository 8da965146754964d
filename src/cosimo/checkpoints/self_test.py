"""Before a run that relies on saved states: save, step, restore, step must give the same outputs twice, bit by bit.

A fresh instance of the unit is tested, and released before the run begins, so that the run's own units are untouched.
Inputs are moved a little, and two steps are made before and after: a unit at rest, or one that has not yet remembered
anything, would give the same outputs whatever its `restore` does.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Save, Step, flatten
from cosimo.core.system import System
from cosimo.core.unit import Instance, Unit
from cosimo.guarding import enter, leave

STEPS = 2
NUDGE = 1e-3
"""By how much inputs are moved, relative to their size or to 1."""

Found = tuple[Array, Array]
"""Outputs that should be the same: before and after."""

_passed: weakref.WeakKeyDictionary[Unit, set[bool]] = weakref.WeakKeyDictionary()


def saved_units(master: Master) -> list[str]:
    """The units that a schedule saves and restores."""
    return list(dict.fromkeys(op.unit for op in flatten(master.schedule.operations) if isinstance(op, Save)))


def require_states(system: System, master: Master, start: float, names: Iterable[str], *, as_bytes: bool) -> None:
    """Refuse units that restore something else than they saved; `as_bytes`: those that cannot be written, too."""
    durations = {
        op.unit: float(op.fraction) * master.step for op in flatten(master.schedule.operations) if isinstance(op, Step)
    }
    mute: dict[str, str] = {}
    for name in names:
        unit = system.units[name]
        if unit.linear() is not None or as_bytes in _passed.setdefault(unit, set()):
            continue
        found = _found(name, unit, start, durations.get(name, master.step), as_bytes)
        if isinstance(found, ConfigurationError):
            mute[name] = str(found)
        elif found is not None:
            raise ConfigurationError(_wrong(name, unit, found, as_bytes))
        else:
            _passed[unit].add(as_bytes)
    if mute:
        raise ConfigurationError(_cannot(mute))


def _found(name: str, unit: Unit, start: float, h: float, as_bytes: bool) -> Found | ConfigurationError | None:
    """Outputs that should be the same and are not; why the state cannot be written; None when all is well.

    Whatever else is wrong with the unit the run itself says.
    """
    instance: Instance | None = None
    enter(name, "self-test", start)
    try:
        instance = unit.instantiate(start)
        u = np.array([[unit.start.get(variable, 0.0) for variable in unit.inputs]], dtype=float)
        instance.set_input(u, h)
        instance.read()
        instance.finish_initialisation()
        if as_bytes and (mute := _mute(instance)):
            return mute
        u = _nudged(unit, u)
        _step(instance, u, start, 0, h)
        if as_bytes and (mute := _mute(instance)):  # it may have come by something that is not plain
            return mute
        take, put = (instance.serialise, instance.deserialise) if as_bytes else (instance.save, instance.restore)
        return _compare(instance, take, put, u, start, h)
    except Exception:
        return None
    finally:
        with suppress(Exception):
            if instance is not None:
                instance.close()
        leave()


def _mute(instance: Instance) -> ConfigurationError | None:
    """Why the state cannot be written."""
    try:
        instance.serialise()
    except Exception as error:
        return ConfigurationError(str(error) or type(error).__name__)
    return None


def _compare(
    instance: Instance, take: Callable[[], Any], put: Callable[[Any], None], u: Array, start: float, h: float
) -> Found | None:
    """The unit has made STEPS steps; the next ones are made, taken back, and made again."""
    state, before = take(), np.array(instance.read())
    ours = _step(instance, u, start, STEPS, h)
    put(state)
    again = np.array(instance.read())
    theirs = _step(instance, u, start, STEPS, h)
    for a, b in ((before, again), *zip(ours, theirs, strict=True)):
        if a.tobytes() != b.tobytes():
            return a, b
    return None


def _step(instance: Instance, u: Array, start: float, first: int, h: float) -> list[Array]:
    outputs = []
    for k in range(first, first + STEPS):
        instance.set_input(u, h)
        instance.step(start + k * h, h)
        outputs.append(np.array(instance.read()))
    return outputs


def _nudged(unit: Unit, u: Array) -> Array:
    """Inputs a little moved, within their range; those that are not continuous stay."""
    moved = u + NUDGE * np.maximum(1.0, np.abs(u))
    ranges = unit.ranges()
    for place, name in enumerate(unit.inputs):
        low, high = ranges.get(name, (-np.inf, np.inf))
        if name in unit.discrete_inputs or not low <= moved[0, place] <= high:
            moved[0, place] = u[0, place]
    return moved


def _wrong(name: str, unit: Unit, found: Found, as_bytes: bool) -> str:
    before, after = found
    place = next(i for i in range(len(before)) if before[i].tobytes() != after[i].tobytes())
    remedy = "run without checkpoints" if as_bytes else "use a master that does not iterate, or equal steps"
    return (
        f"unit '{name}' does not restore its state: saved, stepped, restored and stepped again, its output "
        f"'{unit.outputs[place]}' is {after[place].tolist()!r:.40} instead of {before[place].tolist()!r:.40}; {remedy}."
    )


def _cannot(mute: Mapping[str, str]) -> str:
    if len(mute) == 1:
        ((name, reason),) = mute.items()
        return f"checkpoints need the state of unit '{name}', which cannot be written: {reason.rstrip('.')}."
    told = "; ".join(f"'{name}' ({reason.rstrip('.')})" for name, reason in mute.items())
    return f"checkpoints need the states of units that cannot be written: {told}."
