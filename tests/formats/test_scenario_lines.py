"""On which line a key stands, in documents that make use of all of TOML."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from cosimo.formats.scenario_lines import Lines

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
