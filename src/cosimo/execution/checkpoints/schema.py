"""What the entries of a checkpoint must be. A checksum that fits says that nothing was lost, not that it makes sense.

What units, engines and couplings remember is theirs to check, when it is put back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from cosimo.core.errors import CheckpointError
from cosimo.execution.engines import HALVINGS

Test = Callable[[Any], bool]

MOST = 2**53  # whole numbers beyond this are counts of nothing
MOST_THREADS = 2**20
LONGEST = 1e8  # seconds that the kernel's clock, which counts nanoseconds, can wait; years of them


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _real(value: Any) -> bool:
    """Any number, also one that is not finite; truth values are none."""
    return type(value) in (int, float)


def _finite(value: Any) -> bool:
    return _real(value) and math.isfinite(value)


def _duration(value: Any) -> bool:
    return _finite(value) and value >= 0


def _limit(value: Any) -> bool:
    return _finite(value) and value > 0


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _truth(value: Any) -> bool:
    return isinstance(value, bool)


def _array(value: Any) -> bool:
    return isinstance(value, np.ndarray)


def _maybe(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _list(test: Test) -> Test:
    return lambda value: isinstance(value, list | tuple) and all(map(test, value))


def _dict(test: Test) -> Test:
    """Of anything by name."""
    return lambda value: isinstance(value, dict) and all(map(_text, value)) and all(map(test, value.values()))


def _fields(**tests: Test) -> Test:
    """Exactly these entries."""
    return lambda value: (
        isinstance(value, dict) and value.keys() == tests.keys() and all(test(value[n]) for n, test in tests.items())
    )


def _seen(value: Any) -> bool:
    """Time, value and number of values out of range (`Ranges.found`)."""
    return _list(_real)(value) and len(value) == 3 and _finite(value[0]) and _whole(value[2])


def _memory(value: Any) -> bool:
    """`level` says how often a macro step is halved, and with it how much is made at once."""
    return (
        isinstance(value, dict)
        and _whole(level := value.get("level", 0))
        and level <= HALVINGS
        and _whole(value.get("rollbacks", 0))
    )


_ENGINE = _fields(
    kind=_text,
    parallel=_maybe(_truth),
    threads=_maybe(lambda value: _whole(value) and value <= MOST_THREADS),
    monitors=_truth,
    allow_non_finite=_truth,
    interval=lambda value: _duration(value) and value <= LONGEST,
)
_ISOLATION = _fields(
    timeout=_maybe(_limit),
    memory=_maybe(_limit),
    sandbox=_truth,
    readable=_list(_text),
    spin=_truth,
    log=_maybe(_text),
)

FORM: Mapping[str, Test] = {
    "request.start": _finite,
    "request.stop": _finite,
    "request.record": lambda value: _text(value) and value in ("outputs", "all"),
    "request.engine": _ENGINE,
    "request.power_pairs": _list(_list(_text)),
    "request.stop_on_divergence": _truth,
    "request.metadata": _text,
    "output.path": _text,
    "output.variables": _maybe(_list(_text)),
    "output.every": lambda value: _whole(value) and value > 0,
    "output.flush_interval": _duration,
    "folder": _text,
    "every": _duration,
    "fingerprint.units": _dict(_text),
    "fingerprint.inputs": _dict(_text),
    "fingerprint.connections": _text,
    "fingerprint.master": _text,
    "isolation": _dict(_ISOLATION),
    "run": _text,
    "step": _whole,
    "position.taken": _whole,
    "position.written": _whole,
    "position.run": _text,
    "iterations.count": _whole,
    "iterations.sweeps": _whole,
    "iterations.failed": _whole,
    "iterations.first_failed": _whole,
    "iterations.worst": _real,
    "iterations.first_residual": _real,
    "ranges": _dict(_seen),
    "stepping": _duration,
    "resumed_at": _list(_finite),
    "careful": _truth,
    "memory": _memory,
    "after.outputs": _dict(_array),
    "after.inputs": _dict(_array),
    "after.memories": _array,
}
"""Where an entry is, and what it must be."""


def require_form(saved: Mapping[str, Any], path: object) -> None:
    """Refuse a checkpoint with an entry that is missing or is not what it must be."""
    for name, test in FORM.items():
        value: Any = saved
        parts = name.split(".")
        for depth, part in enumerate(parts):
            if not isinstance(value, Mapping):
                raise _damaged(".".join(parts[:depth]), value, path)
            if part not in value:
                raise CheckpointError(
                    f"'{path}' is not complete: '{'.'.join(parts[: depth + 1])}' is missing; start anew."
                )
            value = value[part]
        if not test(value):
            raise _damaged(name, value, path)
    taken, every = saved["position"]["taken"], saved["output"]["every"]
    if taken <= saved["step"]:
        raise _damaged("position.taken", taken, path)
    if saved["position"]["written"] != -(-taken // every):
        raise _damaged("position.written", saved["position"]["written"], path)


def _damaged(name: str, value: Any, path: object) -> CheckpointError:
    return CheckpointError(f"'{path}' is damaged: its entry '{name}' cannot be {value!r:.40}; start anew.")
