"""Restoring is verified: the macro step after a checkpoint, made again, must give the same signals bit by bit."""

from __future__ import annotations

from typing import Any

from cosimo.core.arrays import Array
from cosimo.core.errors import CheckpointError
from cosimo.core.schedule import Step, flatten
from cosimo.core.system import System
from cosimo.execution.reference import Interpreter, Signals


def kept(signals: Signals) -> dict[str, Any]:
    """The signals as plain data."""
    return signals._asdict()


def require_replayed(before: dict[str, Any], now: Signals, live: Interpreter, path: object) -> None:
    """Refuse to go on when a unit did something else than in the run that wrote the checkpoint."""
    order = dict.fromkeys(op.unit for op in flatten(live.master.schedule.operations) if isinstance(op, Step))
    for name in order:
        if not _same(before["outputs"].get(name), now.outputs[name]):
            raise CheckpointError(_said(live.system, name, before["outputs"].get(name), now.outputs[name], path))
    for name in order:
        if not _same(before["inputs"].get(name), now.inputs[name]):
            raise CheckpointError(
                f"cannot go on from '{path}': the inputs of unit '{name}' are not those of the run that wrote it."
            )
    if not _same(before["memories"], now.memories):
        raise CheckpointError(f"cannot go on from '{path}': its couplings remember something else.")


def _said(system: System, name: str, before: Any, now: Array, path: object) -> str:
    head = f"cannot go on from '{path}': unit '{name}' does not continue as it did"
    if before is None or before.shape != now.shape:
        return f"{head}."
    place = next(i for i in range(len(now)) if before[i].tobytes() != now[i].tobytes())
    return (
        f"{head}: one macro step after the checkpoint its output '{system.units[name].outputs[place]}' is "
        f"{now[place]!r:.40} instead of {before[place]!r:.40}; its state is not restored completely, or it has changed."
    )


def _same(before: Any, now: Array) -> bool:
    return before is not None and before.shape == now.shape and before.tobytes() == now.tobytes()
