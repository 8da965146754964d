"""How much `make test` tries, and how much `make test-all` does.

`make test` shall take five minutes on two cores: of long tables of cases it takes a fixed part (`mostly_slow`), of
random examples a fixed fifth (`examples`, and the profile in `conftest.py`). `make test-all` sets COSIMO_TESTS=all:
every case, new random examples in full number, and a new interpreter for every command (`processes.py`).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

ALL = os.environ.get("COSIMO_TESTS") == "all"
"""Whether all that there is shall be tried."""


def examples(count: int) -> int:
    """How many random examples are tried of a test that takes so many in `make test-all`."""
    return count if ALL else max(8, count // 5)


def mostly_slow(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """The cases as parameters of a test; those whose names or values are not in `quick` are marked slow."""
    found = []
    for case in cases:
        name = getattr(case, "name", case)
        assert isinstance(name, str | int | float)
        marks = [] if name in quick else [pytest.mark.slow]
        found.append(pytest.param(case, id=str(name), marks=marks))
    assert {getattr(case, "name", case) for case in cases} >= set(quick), "a name that no case has"
    return found
