"""On which line a key stands, in documents that make use of all of TOML."""

from __future__ import annotations

import tomllib
import tracemalloc
from typing import Any

import pytest

from cosimo.formats.scenario_reading import PARTS, Lines, deep_key

AWKWARD = '''# comment with [brackets] and "quotes
"quoted key" = 1
a.b."c.d" = "text # with = signs"
multi = """
x = 1
[not.a.table] \\""" still
"""
literal = \'\'\'
y = 2\'\'\'
list = [
  1,  # one, two ]
  [2, 3,
   4],
  { k = "}", inner = { z = [
     5 ] } },
]

[ table . "with dots.and" ]
k = 1979-05-27T07:32:00Z

[[several]]
n = 1
[several.sub]
m = 1
[[several]]
n = 2
[several.sub]
m = 2
'''


@pytest.mark.parametrize(
    ("key", "line"),
    [
        (["quoted key"], 2),
        (["a", "b", "c.d"], 3),
        (["multi"], 4),
        (["x"], None),
        (["literal"], 8),
        (["list", 0], 11),
        (["list", 1], 12),
        (["list", 1, 2], 13),
        (["list", 2, "inner", "z", 0], 15),
        (["list", 2, "inner", "missing"], 14),
        (["table", "with dots.and", "k"], 19),
        (["several", 0, "n"], 22),
        (["several", 1, "n"], 26),
        (["several", 0, "sub", "m"], 24),
        (["several", 1, "sub", "m"], 28),
    ],
)
def test_lines_of_keys(key: list[str | int], line: int | None) -> None:
    data: Any = tomllib.loads(AWKWARD)
    if line is not None and key[-1] != "missing":
        for part in key:  # the document says so too
            data = data[part]
    assert Lines(AWKWARD).of(key) == line


@pytest.mark.parametrize("part", ["a", '"a.b"', "'a'"])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "t = {{ {} = 1 }}"])
def test_a_key_of_too_many_parts(part: str, form: str) -> None:
    most = form.format(" . ".join([part] * PARTS))
    tomllib.loads(most)
    text = f"# a\n{AWKWARD.replace('[several.sub]', '')}"
    assert deep_key(f"{most}\n{text}") is None
    assert deep_key(f"{text}{form.format('.'.join([part] * (PARTS + 1)))}\n") == text.count("\n") + 1


@pytest.mark.parametrize("quote", ['"', "'", '"""', "'''", "#"])
def test_texts_and_comments_are_no_keys(quote: str) -> None:
    dotted = "a." * 3 * PARTS
    assert deep_key(f"k = {quote}{dotted}{quote}\n" if quote != "#" else f"k = 1 # {dotted}\n") is None
    assert deep_key(f"k = {quote}{dotted}") is None  # not TOML: somebody else says so


def test_documents_of_any_depth_take_memory_by_their_length() -> None:
    inner = ".".join(["a"] * PARTS)
    text = f"{inner} = {{" * 100 + "b = [" + "1, " * 10_000 + "]" + "}" * 100
    lines = Lines(text)
    assert lines.of(["a"] * PARTS * 100) == 1
    tracemalloc.start()
    Lines(text)
    assert tracemalloc.get_traced_memory()[1] < 20e6
    tracemalloc.stop()
