"""Time stamps of long runs: as many rows as steps, each stamp k·h within one unit in the last place, the end exact."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.units import StateSpace


def decay() -> System:
    return System({"decay": StateSpace(-1e-3, [[]], 1.0, initial=1.0)})


def pair() -> System:
    units = {"fast": StateSpace(-2.0, 1.0, 1.0, initial=1.0), "slow": StateSpace(-1.0, 1.0, 1.0, initial=0.5)}
    return System(units, [("fast.y1", "slow.u1"), ("slow.y1", "fast.u1")])


def require_stamps(result: Result, exact: np.ndarray[Any, Any]) -> None:
    """`exact` are the correctly rounded times."""
    assert len(result) == len(exact)
    assert np.all(np.abs(result.time - exact) <= np.spacing(exact))


def test_a_million_steps_of_a_tenth() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 0.1), stop=100_000.0)
    require_stamps(result, np.arange(1_000_001) / 10)
    assert result.time[-1] == 100_000.0
    assert not [warned for warned in result.warnings if "ends here" in warned.message]


def test_an_hour_in_sixtieths_of_a_second() -> None:
    system = decay()
    result = run(system, masters.jacobi(system, 1 / 60), stop=3600.0)
    require_stamps(result, np.arange(216_001) / 60)
    assert result.time[-1] == 3600.0


@pytest.mark.parametrize("kind", ["kernel", "reference"])
def test_multirate_that_does_not_fit(kind: Literal["kernel", "reference"]) -> None:
    """One unit by 0.3, one by 0.1, to 1.0: three macro steps, and the remainder is said."""
    system = pair()
    master = masters.multirate(system, 0.1, multiples={"slow": 3})
    result = run(system, master, stop=1.0, engine=EngineOptions(kind))
    require_stamps(result, np.array([0.0, 0.3, 0.6, 0.9]))
    assert result.complete
    (warned,) = (warned for warned in result.warnings if "ends here" in warned.message)
    assert warned.time == result.time[-1]
    assert "the stop time 1 s is not a multiple of the step size 0.3 s" in warned.message


@pytest.mark.parametrize(
    ("h", "stop", "steps"), [(0.1, 0.3, 3), (1e-3, 1.1, 1100), (1 / 3, 1e4, 30_000), (0.7, 2.1, 3)]
)
def test_quotients_that_are_not_whole_only_by_rounding(h: float, stop: float, steps: int) -> None:
    system = decay()
    result = run(system, masters.jacobi(system, h), stop=stop)
    assert len(result) == steps + 1
    assert abs(result.time[-1] - stop) <= np.spacing(stop)
    assert not result.warnings


def test_a_late_start() -> None:
    """t0 + k·h, not a sum of steps."""
    system = decay()
    result = run(system, masters.jacobi(system, 0.1), start=1e6, stop=1e6 + 100.0)
    require_stamps(result, (10_000_000 + np.arange(1001)) / 10)
    assert result.time[-1] == 1e6 + 100.0
