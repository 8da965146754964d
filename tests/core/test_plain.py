"""Plain data as bytes: what goes in comes out, bit by bit; anything else is refused, whatever the bytes are."""

from __future__ import annotations

import random
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cosimo.core.plain import DamagedError, NotPlainError, from_bytes, to_bytes
from thinning import examples

LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner), st.tuples(inner, inner), st.dictionaries(st.one_of(st.text(), st.integers()), inner)
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and type(b) is float:
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


@given(VALUES)
def test_what_goes_in_comes_out(value: Any) -> None:
    assert same(value, from_bytes(to_bytes(value)))


@pytest.mark.parametrize("kind", ["f8", "f4", "c16", "i4", "u8", "?", ">f8"])
def test_arrays_keep_type_and_shape(kind: str) -> None:
    value = np.arange(12).reshape(3, 4).astype(kind)
    for part in (value, value[:, ::2], value[:0], value[1, 2]):
        found = from_bytes(to_bytes(part))
        assert (found.dtype, found.shape) == (part.dtype, part.shape)
        assert np.array_equal(found, part)


def test_generators_go_on() -> None:
    numpy, plain = np.random.default_rng(3), random.Random(4)
    numpy.normal(size=5)
    plain.gauss(0, 1)
    found = from_bytes(to_bytes([numpy, plain]))
    assert np.array_equal(found[0].normal(size=9), numpy.normal(size=9))
    assert [found[1].gauss(0, 1) for _ in range(9)] == [plain.gauss(0, 1) for _ in range(9)]


def test_what_is_not_plain_is_named() -> None:
    deep: list[Any] = []
    for _ in range(200):
        deep = [deep]
    shared = np.zeros(4)
    for value, reason in (
        ({"a": {"b": [1, object()]}}, r"a\.b\[1\] is a builtins.object"),
        ({"a": np.array([None])}, "a is a numpy.ndarray"),
        ({"a": {1, 2}}, "a is a builtins.set"),
        ({"a": shared, "b": shared[1:]}, "a and b are, or share, the same object"),
        (deep, "nested more than 100 levels"),
    ):
        with pytest.raises(NotPlainError, match=reason):
            to_bytes(value)


@settings(max_examples=examples(300))
@given(st.binary(), st.integers(0, 10_000), st.integers(1, 255))
def test_damage_is_found_or_harmless(noise: bytes, place: int, flip: int) -> None:
    good = to_bytes({"x": np.arange(5.0), "y": [1, ("a", b"bc")], "g": np.random.default_rng(1)})
    place %= len(good)
    for data in (noise, good[:place], good + noise[:3], good[:place] + bytes([good[place] ^ flip]) + good[place + 1 :]):
        try:
            from_bytes(data)
        except DamagedError:
            continue
