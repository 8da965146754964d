"""How much `make test` tries, and how much `make test-all` does.

`make test` shall take five minutes on two cores: of long tables of cases it takes a fixed part (`mostly_slow`, which
names them, or the marker `one_in(n)`, every n-th; an n that shares no factor with the numbers of values of the inner
parameters meets all of these), of random examples a fixed eighth (`examples`, and the profile in `conftest.py`). `make
test-all` sets COSIMO_TESTS=all: every case, new random examples in full number, and a new interpreter for every command
(`processes.py`).
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
    return count if ALL else max(5, count // 8)


def mostly_slow(cases: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """The cases as parameters of a test; those that are not in `quick`, by their names or values, are marked slow."""
    names = {_name(case): case for case in cases}
    wanted = {_name(case) for case in quick}
    assert wanted <= set(names), "a name that no case has"
    return [pytest.param(c, id=n, marks=() if n in wanted else pytest.mark.slow) for n, c in names.items()]


def _name(case: Any) -> str:
    return str(getattr(case, "name", getattr(case, "__name__", case)))
