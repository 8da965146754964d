"""The table of docs/compensation.md: what is claimed of every row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.compensation.before_after import CASES, Case, measure

from cosimo.couplings import Hold


@pytest.mark.slow
@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_compensated_units_follow_the_iteration_and_are_never_much_worse_than_the_hold(
    case: Case, order: int, tmp_path: Path
) -> None:
    row = measure(case, Hold(order), tmp_path)
    if case.linear:
        assert row.held == 0
        assert row.compensated <= 1.1 * row.iterated
        assert bool(row.refusal) == (row.iterated >= row.plain)
    elif not np.isnan(row.compensated):
        assert row.compensated <= 1.1 * row.plain
        assert row.held == 0 or row.first is not None
    assert row.learned <= 1.1 * row.plain
