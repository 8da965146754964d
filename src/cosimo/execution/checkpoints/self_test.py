"""Before a run that relies on saved states: save, step, restore, step must give the same outputs twice, bit by bit.

A fresh instance of the unit is tested, and released before the run begins, so that the run's own units are untouched.
A state as bytes is put into a second one, as whoever resumes does; the first is released before. Not where that costs a
process (isolated units), nor where the unit allows one instance only: those put it back into the first.
Inputs are moved a little, and two steps are made before and after: a unit at rest, or one that has not yet remembered
anything, would give the same outputs whatever its `restore` does.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.guarding import enter, go_back, here, leave
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import Instance, Unit

STEPS = 2
NUDGE = 1e-3  # by how much inputs are moved, relative to their size or to 1

Found = tuple[Array, Array] | str
"""Outputs that should be the same, before and after; or why the state could not be put back."""

_passed: weakref.WeakKeyDictionary[Unit, set[bool]] = weakref.WeakKeyDictionary()


def require_states(system: System, master: Master, start: float, names: Iterable[str], *, as_bytes: bool) -> None:
    """Refuse units that restore something else than they saved; `as_bytes`: those that cannot be written, too."""
    durations = master.durations
    mute: dict[str, str] = {}
    for name in names:
        unit = system.units[name]
        if unit.linear() is not None or as_bytes in _passed.setdefault(unit, set()):
            continue
        if not (unit.can_restore or as_bytes):
            continue  # who restores states refuses it by name
        found = _found(name, unit, start, durations[name], as_bytes)
        if isinstance(found, ConfigurationError):
            mute[name] = str(found)
        elif found is not None:
            raise ConfigurationError(_wrong(name, unit, found, as_bytes))
        else:
            _passed[unit].add(as_bytes)
    if mute:
        raise ConfigurationError(_cannot(mute))


def restoring_fault(unit: Unit, start: float, h: float, *, as_bytes: bool) -> str:
    """What is wrong with saving and restoring a unit, also as bytes; empty where nothing is."""
    found = _found(unit.name, unit, start, h, as_bytes)
    if isinstance(found, ConfigurationError):
        return f"its state cannot be written: {found}"
    return "" if found is None else f"it {_difference(unit, found)}."


def _found(name: str, unit: Unit, start: float, h: float, as_bytes: bool) -> Found | ConfigurationError | None:
    """What is wrong with restoring; why the state cannot be written; None when all is well.

    Whatever else is wrong with the unit the run itself says.
    """
    folder = here()
    enter(name, "self-test", start)
    try:
        with ExitStack() as alive:
            instance = _begin(unit, start, h, alive)
            if as_bytes and (mute := _mute(instance)):
                return mute
            u = nudged(unit)[None, :]
            _step(instance, u, start, 0, h)
            if as_bytes and (mute := _mute(instance)):  # it may have come by something that is not plain
                return mute
            return _compare(instance, unit, u, start, h, as_bytes, alive)
    except Exception:
        return None
    finally:
        leave()
        go_back(folder)


def _begin(unit: Unit, start: float, h: float, alive: ExitStack) -> Instance:
    """A fresh instance, ready to step; `alive` closes it."""
    instance = unit.started(start, h)
    alive.callback(_close, instance)
    return instance


def _close(instance: Instance) -> None:
    with suppress(Exception):
        instance.close()


def _mute(instance: Instance) -> ConfigurationError | None:
    """Why the state cannot be written."""
    try:
        instance.serialise()
    except Exception as error:
        return ConfigurationError(str(error) or type(error).__name__)
    return None


def _compare(
    instance: Instance, unit: Unit, u: Array, start: float, h: float, as_bytes: bool, alive: ExitStack
) -> Found | None:
    """The unit has made STEPS steps; the next ones are made, taken back, and made again."""
    try:
        state = instance.serialise() if as_bytes else instance.save()
    except Exception as error:
        return f"saving it failed ({_cause(error)})"
    before = np.array(instance.read())
    ours = _step(instance, u, start, STEPS, h)
    if as_bytes and not unit.isolated and not unit.single_instance:
        alive.close()
        instance = _begin(unit, start, h, alive)
    try:
        put = instance.deserialise if as_bytes else instance.restore
        put(state)
    except Exception as error:
        return f"putting it back failed ({_cause(error)})"
    try:
        again = np.array(instance.read())
        theirs = _step(instance, u, start, STEPS, h)
    except Exception as error:
        return f"after that, it failed ({_cause(error)})"
    for a, b in ((before, again), *zip(ours, theirs, strict=True)):
        if a.tobytes() != b.tobytes():
            return a, b
    return None


def _cause(error: Exception) -> str:
    """An error in one clause; those of others with their kind."""
    return str(error).rstrip(".") if isinstance(error, CosimoError) else f"{type(error).__name__}: {error}"


def _step(instance: Instance, u: Array, start: float, first: int, h: float) -> list[Array]:
    outputs = []
    for k in range(first, first + STEPS):
        instance.set_input(u, h)
        instance.step(start + k * h, h)
        outputs.append(np.array(instance.read()))
    return outputs


def nudged(unit: Unit) -> Array:
    """The start values of the inputs (m,), a little moved within their ranges; those that are not continuous stay."""
    u, ranges = unit.start_inputs, unit.ranges()
    moved = u + NUDGE * np.maximum(1.0, np.abs(u))
    for place, name in enumerate(unit.inputs):
        low, high = ranges.get(name, (-np.inf, np.inf))
        if not low <= moved[place] <= high:
            moved[place] = 2 * u[place] - moved[place]
        if name in unit.discrete_inputs or not low <= moved[place] <= high:
            moved[place] = u[place]
    return moved


def _wrong(name: str, unit: Unit, found: Found, as_bytes: bool) -> str:
    remedy = "run without checkpoints" if as_bytes else "use a master that does not iterate, or equal steps"
    return f"unit '{name}' {_difference(unit, found)}; {remedy}."


def _difference(unit: Unit, found: Found) -> str:
    if isinstance(found, str):
        return f"does not restore its state: {found}"
    before, after = found
    place = next(i for i in range(len(before)) if before[i].tobytes() != after[i].tobytes())
    return (
        "does not restore its state: saved, stepped, restored and stepped again, its output "
        f"'{unit.outputs[place]}' is {after[place].tolist()!r:.40} instead of {before[place].tolist()!r:.40}"
    )


def _cannot(mute: Mapping[str, str]) -> str:
    if len(mute) == 1:
        ((name, reason),) = mute.items()
        return f"checkpoints need the state of unit '{name}', which cannot be written: {reason.rstrip('.')}."
    told = "; ".join(f"'{name}' ({reason.rstrip('.')})" for name, reason in mute.items())
    return f"checkpoints need the states of units that cannot be written: {told}."
