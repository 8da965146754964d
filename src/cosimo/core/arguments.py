"""Types of arguments, checked at the edge: a wrong one is named, with what was expected, before anything is done.

    @checked
    def jacobi(system: System, step: float, *, coupling: Coupling | None = None) -> Master: …

    jacobi(system, "1 ms")  →  ConfigurationError: jacobi: 'step' must be a number, not '1 ms' (str).

The annotation is the check, so that there is nothing to write per argument. Whole numbers and NumPy scalars are
numbers; of lists and mappings every entry is looked at, of protocols that all members are there; what only a type
checker can tell (`ArrayLike`, names that are imported for type checkers alone) is left to it.
"""

from __future__ import annotations

import collections.abc as abc
import functools
import inspect
import math
import numbers
import os
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

from cosimo.core.errors import ConfigurationError, nearest

Function = TypeVar("Function", bound=Callable[..., Any])
Check = Callable[[Any], str | None]  # what is wrong with a value, to be read after its name; None where it has the type
NUMBERS: dict[type, type] = {float: numbers.Real, int: numbers.Integral, complex: numbers.Complex}
WORDS = {float: "a number", int: "a whole number", str: "a string", bool: "True or False", type(None): "None"}
OPEN_ENDED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
LONGEST = 60  # characters of a wrong value that are shown at most


def checked(function: Function, owner: str = "") -> Function:
    """Check the types of all arguments of a function, or of the constructor of a class, before it is called.

    Messages name it, or the `owner`.
    """
    if inspect.isclass(function):
        kind: Any = function
        kind.__init__ = checked(kind.__init__, owner or kind.__name__)
        return function
    owner = owner or function.__name__
    plan = functools.cache(functools.partial(_Plan, function))  # made at the first call: most are never called

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        own = plan()
        given = {*own.ordered[: len(arguments)], *options}
        plainly = len(arguments) <= len(own.ordered) and len(given) == len(arguments) + len(options)
        if own.open_ended or own.hidden or not (plainly and own.required <= given <= own.parameters.keys()):
            try:
                own.signature.bind(*arguments, **options)
            except TypeError as error:
                raise ConfigurationError(f"{owner}: {error}; see help({owner}).") from None
        named: Iterable[tuple[str, Any]] = options.items()
        if own.hidden:
            named = [(name, one) for name, one in options.items() if name not in own.hidden]
        for name, value in (*zip(own.ordered, arguments, strict=False), *named):
            if name in own.checks and (wrong := own.checks[name](value)) is not None:
                raise ConfigurationError(f"{owner}: '{name}'{wrong}{'' if wrong.endswith('?') else '.'}")
        return function(*arguments, **options)

    return typing.cast(Function, call)


class _Plan:
    """What is to be checked of the arguments of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        compiled = getattr(function, "compiled", None)  # of a dataclass, whose constructor is made late
        real = function if compiled is None else compiled()
        self.signature = inspect.signature(real)
        self.parameters = {name: p for name, p in self.signature.parameters.items() if p.kind not in OPEN_ENDED}
        self.ordered = [name for name, p in self.parameters.items() if p.kind is not p.KEYWORD_ONLY]
        # Positional ones: as keywords they are others.
        self.hidden = {name for name, p in self.parameters.items() if p.kind is p.POSITIONAL_ONLY}
        self.open_ended = len(self.parameters) < len(self.signature.parameters)
        self.required = {name for name, p in self.parameters.items() if p.default is p.empty}
        hints = {name: _resolve(p.annotation, real) for name, p in self.parameters.items()}
        self.checks = {name: checker(hint) for name, hint in hints.items() if hint is not Any}


def showing(options: Callable[..., Any]) -> Callable[[Function], Function]:
    """Show the fields of `options` in help, as the keywords of a function that takes them as `**keywords`."""

    def show(function: Function) -> Function:
        own = inspect.signature(function)
        shown = [p for p in own.parameters.values() if p.kind not in OPEN_ENDED]
        fields = [p.replace(kind=p.KEYWORD_ONLY) for p in inspect.signature(options).parameters.values()]
        typing.cast(Any, function).__signature__ = own.replace(parameters=[*shown, *fields])
        return function

    return show


def _resolve(annotation: Any, function: Callable[..., Any]) -> Any:
    """The type that an annotation names; Any where the names in it are known to type checkers only."""
    if isinstance(annotation, str):
        try:
            annotation = eval(annotation, function.__globals__)
        except (NameError, AttributeError, TypeError):
            return Any
    return Any if annotation is inspect.Parameter.empty else annotation


def checker(hint: Any) -> Check:
    """The check of one type.

    >>> checker(abc.Sequence[str])(["a", 3])
    '[1] must be a string, not 3 (int)'
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: None
    if origin in (typing.Union, types.UnionType):
        return _check_union(hint, inner)
    if origin is Literal:
        return lambda value: None if value in inner else _must(value, hint) + _meant(value, inner)
    if origin is None:
        return lambda value: None if _is(value, hint) else _must(value, hint)
    if not isinstance(origin, type):
        return lambda value: None
    if issubclass(origin, abc.Mapping) and len(inner) == 2:
        return _check_mapping(hint, *map(checker, inner))
    if issubclass(origin, abc.Iterable) and inner:
        return _check_entries(hint, origin, inner)
    return lambda value: None if _is(value, origin) else _must(value, hint)


def _check_union(hint: Any, inner: tuple[Any, ...]) -> Check:
    checks = [checker(one) for one in inner]

    def check(value: Any) -> str | None:
        deeper = None
        for one in checks:
            wrong = one(value)
            if wrong is None:
                return None
            if not wrong.startswith(" must"):  # of a list, say, one entry is wrong
                deeper = wrong
        return deeper or _must(value, hint)

    return check


def _check_mapping(hint: Any, key_check: Check, value_check: Check) -> Check:
    def check(value: Any) -> str | None:
        if not isinstance(value, abc.Mapping):
            return _must(value, hint)
        for key, one in value.items():
            if (wrong := key_check(key)) is not None:
                return f": the key{wrong}"
            if (wrong := value_check(one)) is not None:
                return f"[{key!r}]{wrong}"
        return None

    return check


def _check_entries(hint: Any, origin: type, inner: tuple[Any, ...]) -> Check:
    """Of lists, tuples and sets every entry; iterators are not used up."""
    fixed = origin is tuple and inner[-1] is not ...
    checks = [checker(one) for one in inner if one is not ...]

    def check(value: Any) -> str | None:
        if not isinstance(value, origin) or isinstance(value, str):
            return _must(value, hint)
        if not isinstance(value, abc.Collection) or hasattr(value, "__array__"):
            return None
        if fixed and len(value) != len(checks):
            return _must(value, hint)
        for place, one in enumerate(value):
            if (wrong := checks[place if fixed else 0](one)) is not None:
                return f"[{place}]{wrong}"
        return None

    return check


def _is(value: Any, kind: Any) -> bool:
    if kind is None or kind is type(None):
        return value is None
    if type(value) is kind or not isinstance(kind, type):
        return True
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in dir(kind) if not name.startswith("_"))
    if kind in NUMBERS:
        return isinstance(value, NUMBERS[kind]) or (
            not isinstance(value, numbers.Number) and getattr(value, "ndim", 1) == 0
        )
    if kind is bool:
        return type(value).__name__ in ("bool", "bool_")  # NumPy's, without loading it
    return isinstance(value, kind)


def _meant(value: Any, words: tuple[Any, ...]) -> str:
    near = nearest(value, [word for word in words if isinstance(word, str)]) if isinstance(value, str) else None
    return f"; did you mean '{near}'?" if near else ""


def _must(value: Any, hint: Any) -> str:
    shown = repr(value)
    shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
    return f" must be {_name(hint)}, not {shown} ({type(value).__name__})"


def _name(hint: Any, many: bool = False) -> str:
    """A type in words, of one or of many values."""
    origin: Any
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name(one, many) for one in inner))
    if origin is Literal:
        return " or ".join(repr(one) for one in inner)
    if origin is tuple and inner[-1] is not ...:
        return f"({', '.join(_name(one) for one in inner)})"
    if isinstance(origin, type) and issubclass(origin, abc.Mapping) and inner:
        return f"a mapping from {_name(inner[0], True)} to {_name(inner[1], True)}"
    if isinstance(origin, type) and issubclass(origin, abc.Iterable) and inner:
        return f"a list of {_name(inner[0], True)}"
    if origin is typing.get_origin(Callable[..., Any]):
        return "a function"
    if hint in WORDS or hint is None:
        word = WORDS[type(None) if hint is None else hint]
    elif isinstance(hint, type) and issubclass(hint, os.PathLike):
        word = "a path"
    else:
        name = str(getattr(origin or hint, "__name__", hint))
        word = f"{'an' if name[0] in 'AEIO' else 'a'} {name}"
    return f"{word.split(' ', 1)[1]}s" if many and " " in word and word[:2] in ("a ", "an") else word


def duration(start: float, stop: float) -> float:
    """Seconds from start to stop; refused where that is no time range.

    >>> duration(10.0, 20.0)
    10.0
    """
    if not (math.isfinite(start) and math.isfinite(stop) and stop > start):
        raise ConfigurationError(f"the stop time ({stop:g}) must be a number greater than the start time ({start:g}).")
    return stop - start
