"""Whether a system and a master are those of a checkpoint: what makes them up, part by part, as short hashes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.errors import CheckpointError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import Unit
from cosimo.execution.checkpoints.programs import kind_parts, source_parts, value_parts


def fingerprint(system: System, master: Master, start: float) -> dict[str, Any]:
    """Hashes of the units, the external inputs, the connections and the master."""
    connections = [str(link.connection) + _exact(link.connection.gain, link.connection.offset) for link in system.links]
    couplings = {target: repr(coupling) for target, coupling in master.couplings.items()}
    mixers = {name: _matrices(mixer) for name, mixer in master.mixers.items()}
    return {
        "units": {name: _hash(_unit(unit)) for name, unit in system.units.items()},
        "inputs": {target: _hash(source_parts(source)) for target, source in system.inputs.items()},
        "connections": _hash(connections),
        "master": _hash(
            [master.schedule.to_dict(), _exact(master.step, start), repr(master.coupling), couplings, mixers]
        ),
    }


def require_same(found: Mapping[str, Any], here: Mapping[str, Any], path: object) -> None:
    """Refuse a checkpoint of another system or master, and say what differs."""
    units, ours = found["units"], here["units"]
    if list(units) != list(ours):
        raise CheckpointError(
            f"'{path}' belongs to a system with the units {', '.join(units)}, not {', '.join(ours)}; resume that one."
        )
    changed = [f"unit '{name}'" for name in ours if units[name] != ours[name]]
    inputs, fed = found["inputs"], here["inputs"]
    changed += [f"external input '{name}'" for name in inputs | fed if inputs.get(name) != fed.get(name)]
    changed += [f"the {part}" for part in ("connections", "master") if found[part] != here[part]]
    if changed:
        verb = "has" if len(changed) == 1 and changed != ["the connections"] else "have"
        raise CheckpointError(
            f"{' and '.join(changed)} {verb} changed since '{path}' was written; put back what was, or start anew."
        )


def _unit(unit: Unit) -> list[Any]:
    """What is known of a unit without running it."""
    inner = getattr(unit, "unit", None)
    if isinstance(inner, Unit):  # lives in another process, say; what it computes is the same
        return _unit(inner)
    parts: list[Any] = [type(unit).__name__, list(unit.inputs), list(unit.outputs), _sorted(unit.start)]
    if isinstance(path := getattr(unit, "path", None), Path):
        parts += [_digest(path), _sorted(getattr(unit, "given", {}))]
        parts.append(repr(getattr(unit, "experiment", "")))
    if (model := unit.linear()) is not None:
        parts += [_matrices(model), unit.initial_state.tobytes().hex(), repr(getattr(unit, "integrator", ""))]
        parts.append(getattr(unit, "micro_steps", 1))
    if isinstance(initial := getattr(unit, "initial", None), np.ndarray):
        parts.append(initial.tobytes().hex())
    if isinstance(kind := getattr(unit, "kind", None), type):
        parts += [kind_parts(kind), {name: value_parts(v) for name, v in getattr(unit, "parameters", {}).items()}]
    if not type(unit).__module__.startswith("cosimo."):
        parts.append(kind_parts(type(unit)))
    return parts


def _digest(path: Path) -> str:
    """Of a file; once per state of it, as studies ask again and again."""
    state = path.stat()
    return _digest_of(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=256)
def _digest_of(path: Path, modified: int, size: int, number: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sorted(values: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name, _exact(value) if isinstance(value, float) else repr(value)] for name, value in sorted(values.items())
    ]


def _matrices(of: Any) -> list[str]:
    return [
        f"{name} {part.shape} {part.tobytes().hex()}" for name, part in vars(of).items() if hasattr(part, "tobytes")
    ]


def _exact(*numbers: float) -> str:
    return " ".join(float(number).hex() for number in numbers)


def _hash(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]
