"""`cosimo.core.dataclass` is `dataclasses.dataclass`: whatever is asked of a frozen class, both answer alike."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from abc import ABC, abstractmethod
from dataclasses import field
from functools import cached_property
from typing import Any

import pytest

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError


def classes(make: Any) -> dict[str, Any]:
    """The same classes by one or the other."""

    @make(frozen=True)
    class Plain:
        one: int
        two: tuple[int, ...] = ()
        three: dict[str, int] = field(default_factory=dict, compare=False)
        hidden: int = field(default=5, repr=False)

        @cached_property
        def sum(self) -> int:
            return self.one + self.hidden

    @make(frozen=True)
    class Derived(Plain):
        four: float = 1.5

        def __post_init__(self) -> None:
            object.__setattr__(self, "four", 2 * self.four)

    @dataclasses.dataclass(frozen=True)
    class Elsewhere(Plain):
        five: int = 3

    @make(frozen=True, kw_only=True)
    class Named:
        one: int = 1
        two: int

    @make(frozen=True, eq=False)
    class Alone:
        one: list[int]

    @make(frozen=True)
    class Empty:
        pass

    @make(frozen=True)
    class Own:
        one: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.one % 2 == other.one % 2

        def __hash__(self) -> int:
            return self.one % 2

    class Contract(ABC):
        @abstractmethod
        def value(self) -> int: ...

    @make(frozen=True)
    class Kept(Contract):
        one: int
        made: list[int] = field(init=False, default_factory=list, compare=False)

        def value(self) -> int:
            return self.one

    return {own.__name__: own for own in (Plain, Derived, Elsewhere, Named, Alone, Empty, Own, Kept)}


OURS, THEIRS = classes(dataclass), classes(dataclasses.dataclass)
GIVEN: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("Plain", (1,), {}),
    ("Plain", (1, (2,), {"a": 1}, 3), {}),
    ("Plain", (), {"two": (3,), "one": 4}),
    ("Derived", (1,), {"four": 2.0}),
    ("Elsewhere", (1,), {"five": 4}),
    ("Named", (), {"two": 2}),
    ("Alone", ([1],), {}),
    ("Empty", (), {}),
    ("Own", (3,), {}),
    ("Kept", (3,), {}),
]
WRONG = [("Plain", (), {}), ("Plain", (1,), {"x": 2}), ("Named", (1,), {"two": 2}), ("Kept", (1, []), {})]


@pytest.mark.parametrize(("name", "arguments", "options"), GIVEN)
def test_instances_are_alike(name: str, arguments: Any, options: Any) -> None:
    ours, theirs = (kind[name](*arguments, **options) for kind in (OURS, THEIRS))
    again, other = (kind[name](*arguments, **options) for kind in (OURS, THEIRS))
    assert vars(ours) == vars(theirs)
    assert repr(ours) == repr(theirs)
    assert (ours == again) == (theirs == other)
    assert ours == ours
    assert ours != theirs or name == "Own"
    assert (hash(ours) == hash(again)) == (hash(theirs) == hash(other))
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert vars(copy.deepcopy(ours)) == vars(ours)
    if name not in ("Empty", "Alone"):
        assert vars(dataclasses.replace(ours, one=7)) == vars(dataclasses.replace(theirs, one=7))


@pytest.mark.parametrize("name", list(OURS))
def test_classes_are_alike(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert [one.name for one in dataclasses.fields(ours)] == [one.name for one in dataclasses.fields(theirs)]
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)


@pytest.mark.parametrize(("name", "arguments", "options"), WRONG)
def test_wrong_arguments_are_refused_in_the_same_words(name: str, arguments: Any, options: Any) -> None:
    said = []
    for kind in (OURS, THEIRS):
        with pytest.raises(TypeError) as refused:
            kind[name](*arguments, **options)
        said.append(str(refused.value).rpartition(".")[2])
    assert said[0] == said[1]


def test_nothing_can_be_changed() -> None:
    for kind in (OURS, THEIRS):
        for made in (kind["Plain"](1), kind["Derived"](1)):
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'one'"):
                made.one = 2
            with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'one'"):
                del made.one
            with pytest.raises(dataclasses.FrozenInstanceError):
                made.other = 2
            assert made.sum == 6


@dataclass(frozen=True)
class Sent:
    """What goes to another process."""

    one: int
    two: str = "a"


def test_instances_can_be_sent() -> None:
    assert pickle.loads(pickle.dumps(Sent(3, "b"))) == Sent(3, "b")


def test_a_class_without_a_method_of_its_own_is_a_standard_one_too() -> None:
    @dataclass
    class Open:
        one: int = 1

    changed = Open()
    changed.one = 2
    assert changed == Open(2)


def test_types_of_arguments_are_checked_in_the_words_of_the_class() -> None:
    @checked
    @dataclass(frozen=True)
    class Options:
        step: float
        name: str = ""

    assert str(inspect.signature(Options)) == "(step: 'float', name: 'str' = '') -> None"
    assert Options(1.0) == Options(step=1.0, name="")
    with pytest.raises(ConfigurationError, match="Options: 'step' must be a number, not 'x'"):
        Options("x")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="missing a required argument: 'step'"):
        Options()  # type: ignore[call-arg]
