"""Whether a system and a master are those of a checkpoint: what makes them up, part by part, as short hashes."""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from cosimo.core.errors import CheckpointError
from cosimo.core.master import Master
from cosimo.core.plain import NotPlainError, to_bytes
from cosimo.core.storage import file_digest
from cosimo.core.system import Constant, Source, System, Table
from cosimo.core.unit import Unit


def fingerprint(system: System, master: Master, start: float) -> dict[str, Any]:
    """Hashes of the units, the external inputs, the connections and the master."""
    couplings = {target: repr(coupling) for target, coupling in master.couplings.items()}
    mixers = {name: _matrices(mixer) for name, mixer in master.mixers.items()}
    steps: list[Any] = [master.schedule.to_dict(), _exact(master.step, start), repr(master.coupling), couplings, mixers]
    steps += [[check.unit, check.places, _matrices(check)] for check in master.checks]
    return {**system_fingerprint(system), "master": _hash(steps)}


def system_fingerprint(system: System) -> dict[str, Any]:
    """Hashes of the units, the external inputs and the connections."""
    connections = [str(link.connection) + _exact(link.connection.gain, link.connection.offset) for link in system.links]
    connections += [str(tuple(link)) for link in (*system.text_links, *system.clock_links)]
    return {
        "units": {name: _hash(_unit(unit)) for name, unit in system.units.items()},
        "inputs": {target: _hash(source_parts(source)) for target, source in system.inputs.items()},
        "connections": _hash(connections),
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
            f"{' and '.join(changed)} {verb} changed since '{path}' was written; restore the original, or start the "
            "run again."
        )


def _unit(unit: Unit) -> list[Any]:
    """What is known of a unit without running it."""
    parts: list[Any] = [type(unit).__name__, list(unit.inputs), list(unit.outputs), _sorted(unit.start)]
    if (model := unit.linear()) is not None:
        parts += [_matrices(model), unit.initial_state.tobytes().hex()]
    parts += [_part(part) for part in unit.parts()]
    if not type(unit).__module__.startswith("cosimo."):
        parts.append(kind_parts(type(unit)))
    return parts


def _part(part: Any) -> Any:
    """One entry of `Unit.parts`."""
    if isinstance(part, Path):
        return file_digest(part)
    if isinstance(part, type):
        return kind_parts(part)
    return {name: value_parts(value) for name, value in part.items()} if isinstance(part, Mapping) else part


def _sorted(values: Mapping[str, Any]) -> list[list[str]]:
    return [
        [name, _exact(value) if isinstance(value, float) else repr(value)] for name, value in sorted(values.items())
    ]


def _matrices(of: Any) -> list[str]:
    parts = dict(vars(of))
    for name in ("later", "constants"):
        parts |= {f"{name} {time}": part for time, part in parts.pop(name, {}).items()}
    return [f"{name} {part.shape} {part.tobytes().hex()}" for name, part in parts.items() if hasattr(part, "tobytes")]


def _exact(*numbers: float) -> str:
    return " ".join(float(number).hex() for number in numbers)


def _hash(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


# ---- what Python code and data a system uses, as parts of a fingerprint: classes, functions, tables, paramet ---------
# Of a class the files count in which it and its bases are written. A script that is being run is one file with what it
# does with the class, which may change; there, as for functions, the compiled code counts. What they call counts only
# when it is in the same file.


def kind_parts(kind: type) -> list[Any]:
    """A class: its name, and all that it is written in."""
    own = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in sys.stdlib_module_names]
    return [kind.__qualname__, [_file(base.__module__) or _members(base) for base in own]]


def source_parts(source: Source) -> list[Any]:
    """An external input: its data, or its code."""
    if isinstance(source, Constant | Table):
        data = {name: value_parts(value) for name, value in vars(source).items()}
        return [type(source).__name__, data]
    return _callable(source)


def value_parts(value: Any) -> Any:
    """A parameter; of what is neither plain data nor a function only the kind is compared."""
    try:
        return to_bytes(value).hex()
    except NotPlainError:
        if isinstance(value, FunctionType):  # its cells may lead back to it
            return [value.__qualname__, _code(value.__code__)]
        return type(value).__qualname__


def _callable(function: Any) -> list[Any]:
    if isinstance(function, functools.partial):
        return ["partial", _callable(function.func), value_parts(function.args), value_parts(function.keywords)]
    if isinstance(function, MethodType):
        return [_callable(function.__func__), _state(function.__self__)]
    if isinstance(function, FunctionType):
        return _function(function)
    if hasattr(function, "__qualname__"):  # compiled: known by its name only
        return [str(function.__module__), function.__qualname__]
    return [kind_parts(type(function)), _state(function)]


def _function(function: FunctionType) -> list[Any]:
    """What it does, its defaults, and what it keeps from where it was made."""
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    kept = [value_parts(value) for value in (function.__defaults__, function.__kwdefaults__, *cells)]
    return [function.__qualname__, _code(function.__code__), kept]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _state(thing: Any) -> dict[str, Any]:
    return {name: value_parts(value) for name, value in sorted(getattr(thing, "__dict__", {}).items())}


def _code(code: CodeType) -> list[Any]:
    return [code.co_code.hex(), list(code.co_names), [_constant(value) for value in code.co_consts]]


def _constant(value: Any) -> Any:
    """A constant in code; sets have no order of their own."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, tuple):
        return [_constant(item) for item in value]
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _members(kind: type) -> list[Any]:
    """The code of a class that has no file of its own, and its data."""
    found: list[Any] = []
    for name, member in sorted(vars(kind).items()):
        functions = [member, getattr(member, "__func__", None), getattr(member, "fget", None)]
        found += [[name, _function(part)] for part in functions if isinstance(part, FunctionType)]
        if not name.startswith("__") and not callable(member):
            found.append([name, value_parts(member)])
    return found


def _file(module: str) -> str | None:
    """The hash of the file of a module, if it has one that holds nothing else."""
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None or module == "__main__":
        return None
    try:
        return file_digest(Path(path))
    except OSError:
        return None
