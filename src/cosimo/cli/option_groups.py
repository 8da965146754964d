"""Options of verbs: groups that several verbs share, and how the texts in them are read.

A group is a dataclass derived from `OptionGroup` whose fields are options. A verb that has a parameter of such a class
gets all its options on the command line (`compose`) and the object in the call.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args, get_origin, get_type_hints

import typer

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError

MANY = "Repeatable."
ALL = "*"
"""What stands for all units, where `--isolate` is given alone."""
SYSTEM = (
    "A .toml scenario, an .ssp, .ssd, .xml (OSP), .json (HELICS) or .fmu file, or a built-in problem (see 'cosimo "
    "problems')."
)

Texts = list[str] | None


def option(text: str, *names: str, metavar: str | None = None) -> Any:
    """An option with its help text; it is named after the parameter unless `names` are given."""
    return typer.Option(*names, help=text, metavar=metavar)


def time_option(text: str) -> Any:
    """An option for a time: seconds, or a number with its unit (`seconds`)."""
    return typer.Option(help=text, parser=lambda given: _read_time(given), metavar="TIME")


def many(text: str, *names: str, metavar: str | None = None) -> Any:
    """An option that may be given several times."""
    return option(f"{text} {MANY}", *names, metavar=metavar)


def argument(metavar: str, text: str) -> Any:
    """A positional argument with its help text."""
    return typer.Argument(metavar=metavar, help=text)


Json = Annotated[bool, option("One JSON document on standard output.", "--json")]
SystemName = Annotated[str, argument("SYSTEM", SYSTEM)]
TargetError = Annotated[
    float | None, option("The acceptable error as a fraction of an output's largest value: 0.01 is 1 %.")
]
StartTime = Annotated[float | None, time_option("When the run begins, in seconds, or as 20ms.")]
StopTime = Annotated[float | None, time_option("When the run ends, in seconds, or as 2min.")]


@dataclass(frozen=True)
class OptionGroup:
    """A group of options under a `title` in the help; `last`: they stand behind the options of the verb itself."""

    title: ClassVar[str | None] = None
    last: ClassVar[bool] = False

    @classmethod
    def parameters(cls) -> list[inspect.Parameter]:
        """The options as parameters of a function; those of a base class stand under its title."""
        bases = [base for base in reversed(cls.__mro__) if issubclass(base, OptionGroup)]
        titles = {name: base.title for base in bases for name in inspect.get_annotations(base)}
        return [titled(parameter, titles[parameter.name]) for parameter in _keywords(cls)]

    def around(self, given: Mapping[str, Any]) -> AbstractContextManager[None]:
        """What the verb runs in; `given` are all its options."""
        return nullcontext()


def compose(verb: Callable[..., None], *more: type[OptionGroup]) -> Callable[..., None]:
    """The function that typer sees: `verb` with the options of all groups among its parameters, and of `more`."""
    hints = get_type_hints(verb, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if inspect.isclass(hint) and issubclass(hint, OptionGroup)}
    parameters: list[inspect.Parameter] = []
    for parameter in _keywords(verb):
        group = groups.get(parameter.name)
        parameters += [titled(parameter, None)] if group is None else [] if group.last else group.parameters()
    behind = [group for group in (*groups.values(), *more) if group.last]
    parameters += [parameter for group in behind for parameter in group.parameters()]

    @functools.wraps(verb)
    def composed(**given: Any) -> None:
        def take(group: type[OptionGroup]) -> OptionGroup:
            return group(**{parameter.name: given[parameter.name] for parameter in group.parameters()})

        made = {name: take(group) for name, group in groups.items()}
        own = {name: given[name] for name in hints if name in given and name not in groups}
        with ExitStack() as stack:
            for group in (*map(take, more), *made.values()):
                stack.enter_context(group.around(given))
            verb(**made, **own)

    composed.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    composed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    del composed.__wrapped__
    return composed


SHOWN = {bool: "", str: "TEXT", list: "TEXT", int: "N", float: "NUMBER", Path: "PATH"}
"""What the help shows for the value of an option, by its type; nothing for a flag."""


def titled(parameter: inspect.Parameter, title: str | None) -> inspect.Parameter:
    """The parameter, its option under this title in the help, with a word for its value."""
    hint = parameter.annotation.__origin__
    kinds = [get_origin(kind) or kind for kind in (hint, *get_args(hint))]
    (info,) = map(copy.copy, parameter.annotation.__metadata__)  # one object may serve several verbs
    info.rich_help_panel = info.rich_help_panel or title
    if info.metavar is None:
        info.metavar = next((SHOWN[kind] for kind in kinds if kind in SHOWN), None)
    return parameter.replace(annotation=Annotated[hint, info])


def _keywords(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a function or a dataclass, by name only, with annotations that are objects."""
    hints = get_type_hints(function, include_extras=True)
    found = inspect.signature(function).parameters.values()
    for parameter in found:
        for info in getattr(hints[parameter.name], "__metadata__", ()):
            if parameter.default is False and info.default is ...:  # not named: typer would add a --no-… to a flag
                info.default = f"--{parameter.name.replace('_', '-')}"  # where it looks for the first name
    return [p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in found]


def known_words() -> Iterator[tuple[str, str]]:
    """What stands for the marks in help texts: the words of masters, couplings and solvers."""
    import cosimo as co
    from cosimo.units.fmi.model_exchange import SOLVERS

    yield "{masters}", ", ".join(co.masters.MASTERS)
    yield "{couplings}", ", ".join(co.couplings.coupling_forms())
    yield "{solvers}", ", ".join(SOLVERS)
    yield "{tuned masters}", ", ".join(name for name, word in co.masters.MASTERS.items() if word.tuned)
    yield "{tuned couplings}", ", ".join(co.couplings.tuned_couplings())


# ---- texts -----------------------------------------------------------------------------------------------------------


def split(text: str, mark: str = ",") -> tuple[str, ...]:
    """What stands between the marks."""
    return tuple(word.strip() for word in text.split(mark) if word.strip())


def number(option: str, text: str, kind: type[Any] = float, *, several: bool = False) -> Any:
    """The number that an option has, or one of `several`."""
    try:
        return kind(text)
    except ValueError:
        whole = "whole " if kind is int else ""
        wanted = f"{whole}numbers" if several else f"a {whole}number"
        raise ConfigurationError(f"{option} expects {wanted}, not '{text}'.") from None


UNITS_OF_TIME = {"ns": 1e9, "us": 1e6, "µs": 1e6, "μs": 1e6, "ms": 1e3, "s": 1.0, "min": 1 / 60, "h": 1 / 3600}
"""How many there are in a second; ms stands before s, which ends it too."""


def seconds(text: str) -> float:
    """A time in seconds, given as a number or with its unit; 1ms is 0.001 to the bit.

    >>> seconds("4e-3"), seconds("1ms"), seconds("50 us"), seconds("2min")
    (0.004, 0.001, 5e-05, 120.0)
    """
    text = text.strip()
    unit = next((unit for unit in UNITS_OF_TIME if text.endswith(unit)), "")
    return float(text.removesuffix(unit)) / UNITS_OF_TIME.get(unit, 1.0)


def _read_time(text: Any) -> float:
    if isinstance(text, float | int):
        return float(text)  # a default
    try:
        return seconds(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a time; write seconds, or a unit as in 4ms, 50us, 2min.") from None


def value(text: str) -> Any:
    """What a text on the command line means: a number, true or false, else the text itself, also in quotes.

    >>> value("3"), value("1e-3"), value("true"), value("road.csv"), value('"3"')
    (3, 0.001, True, 'road.csv', '3')
    """
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return {"true": True, "false": False}.get(text.lower(), text)


def numbers(
    option: str,
    text: str,
    mark: str = ",",
    form: str = "numbers",
    count: int | None = None,
    kind: Callable[[str], float] = float,
) -> tuple[float, ...]:
    """Numbers between marks, `count` of them where that is given; `form` is how they are written."""
    try:
        found = tuple(map(kind, split(text, mark)))
    except ValueError:
        found = ()
    if not found or count not in (None, len(found)):
        raise ConfigurationError(f"{option} expects {form}, not '{text}'.")
    return found


def pairs(option: str, texts: Sequence[str] | None, form: str = "NAME=VALUE") -> dict[str, str]:
    """NAME=VALUE by name; `form` is how they are written."""
    found = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise ConfigurationError(f"{option} expects {form}, not '{text}'.")
        found[name] = value
    return found
