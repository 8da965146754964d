"""What Python code and data a system uses, as parts of a fingerprint: classes, functions, tables, parameters.

Of a class the files count in which it and its bases are written. A script that is being run is one file with what it
does with the class, which may change; there, as for functions, the compiled code counts. What they call counts only
when it is in the same file.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

from cosimo.core.plain import NotPlainError, to_bytes
from cosimo.core.sources import Constant, Source, Table


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
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None
