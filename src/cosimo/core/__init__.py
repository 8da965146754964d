"""The vocabulary everything else is written in: schedules, signals, systems, contracts, results, errors.

In this file is what keeps loading quick.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib import import_module
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
"""The version of the package; it goes into results and checkpoints."""


def loaded_when_used(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: `homes` says of each name in which module it is, loaded when first asked for.

    A module that is called as the name is the module itself.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        module = import_module(homes[name], package)
        return module if module.__name__ == f"{package}.{name}" else getattr(module, name)

    return get


# ---- dataclasses whose methods are made when they are first used -----------------------------------------------------
# Python compiles six functions for every frozen dataclass, which takes a millisecond. A command loads more than a
# hundred of them, and makes instances of a third: 0.1 s. Here only `__init__` is compiled, for the first instance; the
# other functions are the same for all classes.


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(
        cls: Any = None, /, *, frozen: bool = False, eq: bool = True, kw_only: bool = False, **others: Any
    ) -> Any:
        """As `dataclasses.dataclass`; of frozen classes methods are made late.

        >>> @dataclass(frozen=True)
        ... class Pair:
        ...     one: int
        ...     two: tuple[int, ...] = ()
        >>> Pair(1) == Pair(two=(), one=1), Pair(1, (2,)), inspect.signature(Pair)
        (True, Pair(one=1, two=(2,)), <Signature (one: 'int', two: 'tuple[int, ...]' = ()) -> None>)
        """
        if cls is None:
            return partial(dataclass, frozen=frozen, eq=eq, kw_only=kw_only, **others)
        inherits = any(map(dataclasses.is_dataclass, cls.__mro__[1:]))
        if not frozen or others or inherits:
            return dataclasses.dataclass(cls, frozen=frozen, eq=eq, kw_only=kw_only, **others)
        own = set(vars(cls))
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, kw_only=kw_only)
        methods = {"__init__": _late_init(made), "__repr__": _show, **_frozen(made), **(_compared(made) if eq else {})}
        explicit = own - {"__hash__"} if vars(cls).get("__hash__") is None else own  # as a class with __eq__ has it
        for name, method in methods.items():
            if name not in explicit:
                setattr(made, name, method)
        made.__dataclass_params__.frozen = True  # so that frozen classes may be derived from it
        made.__signature__ = _LateSignature()
        return made


def _late_init(cls: Any) -> Any:
    """An `__init__` that is compiled when it is first called, or asked for by `compiled()`."""

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        late.compiled()(self, *arguments, **options)

    late: Any = init

    @cache
    def compiled() -> Any:
        function = _compile_init(cls)
        late.__signature__ = inspect.signature(function)
        if vars(cls)["__init__"] is late:
            cls.__init__ = function
        return function

    late.__name__, late.__qualname__, late.__module__ = "__init__", f"{cls.__qualname__}.__init__", cls.__module__
    late.compiled = compiled
    return late


class _Factory:
    """Stands for a value that is made for every instance."""

    def __repr__(self) -> str:
        return "<factory>"


_LATE = _Factory()


def _compile_init(cls: Any) -> Any:
    given: dict[str, Any] = {"_set": object.__setattr__, "_late": _LATE}
    first, keywords, body = list[str](), list[str](), list[str]()
    annotations: dict[str, Any] = {}
    for one in dataclasses.fields(cls):
        name, default, factory = one.name, one.default, one.default_factory
        value = name
        if factory is not dataclasses.MISSING:
            given[f"_make_{name}"] = factory
            value = f"_make_{name}() if {name} is _late else {name}" if one.init else f"_make_{name}()"
        elif default is not dataclasses.MISSING:
            given[f"_default_{name}"] = default
        if one.init:
            ending = "=_late" if value != name else f"=_default_{name}" if f"_default_{name}" in given else ""
            (keywords if one.kw_only else first).append(name + ending)
            annotations[name] = one.type
        if one.init or factory is not dataclasses.MISSING:
            body.append(f"_set(self, {name!r}, {value})")
    body += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    parameters = ", ".join(["self", *first, *(["*", *keywords] if keywords else [])])
    lines = "\n  ".join(body or ["pass"])
    text = f"def make({', '.join(given)}):\n def __init__({parameters}):\n  {lines}\n return __init__"
    made: dict[str, Any] = {}
    exec(text, vars(sys.modules[cls.__module__]), made)
    function = made["make"](**given)
    function.__annotations__, function.__qualname__ = annotations | {"return": None}, f"{cls.__qualname__}.__init__"
    return function


class _LateSignature:
    """The signature of a class, for help; compiles its `__init__`."""

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        for kind in owner.__mro__:
            late = inspect.unwrap(vars(kind).get("__init__", _show))
            if hasattr(late, "compiled"):
                late.compiled()
        found = inspect.signature(owner.__init__)
        return found.replace(parameters=list(found.parameters.values())[1:])


@recursive_repr()
def _show(self: Any) -> str:
    shown = (one.name for one in dataclasses.fields(self) if one.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _frozen(cls: Any) -> dict[str, Any]:
    names = {one.name for one in dataclasses.fields(cls)}

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def _compared(cls: Any) -> dict[str, Any]:
    names = [one.name for one in dataclasses.fields(cls) if one.compare]
    values: Any = attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)

    def equal(self: Any, other: Any) -> Any:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    return {"__eq__": equal, "__hash__": lambda self: hash(values(self))}
