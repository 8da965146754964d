"""Every recommendation is run: the error that it promises beside the one that it delivers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from nonlinear_pairs import PAIRS, Pair

import cosimo as co
from cosimo.analysis import Budget
from cosimo.analysis.truth import Truth, count_steps, output_errors
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System
from testbed import CASES, reference, systems

FACTOR = 1.25
"""Within which promised and delivered errors agree."""
FINE = (8, 16)
"""Parts of the recommended step that the independent reference of nonlinear pairs is run with."""
BUDGET = Budget(multiples=40, seconds=1e9)
"""By the number of steps alone, so that nothing depends on the clock."""
Solve = Callable[[Master, int], Array]
"""The true outputs at so many macro steps of a master."""


def require_delivered(name: str, system: System, master: Master, horizon: float, true: Solve) -> None:
    """Print a row of the table, and compare."""
    verdict = co.analyse(system, master, horizon=horizon, budget=BUDGET)
    advice = verdict.recommendation
    assert advice is not None, verdict.reasons
    if advice.master is None or advice.error is None:
        print(f"{name:26} {verdict.evidence:10} no recommendation: {advice.text}")
        return
    chosen = advice.master
    steps = count_steps(horizon, chosen.step)
    result = co.run(system, chosen, stop=steps * chosen.step)
    rows = result.values[:, [result.names.index(output) for output in system.outputs]]
    exact = true(chosen, steps)
    delivered = output_errors(system, chosen, rows, Truth(exact, np.abs(exact).max(axis=0)), horizon, "measured").worst
    ratio = delivered / advice.error
    words = f"{'keep ' if advice.keep else ''}{chosen.name} at {chosen.step:g} s"
    print(f"{name:26} {verdict.evidence:10} {words:44} {advice.error:9.4%} {delivered:9.4%} {ratio:6.3f}")
    assert 1 / FACTOR <= ratio <= FACTOR


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, System]:
    return systems(tmp_path_factory.mktemp("recommended"))


@pytest.mark.slow
@pytest.mark.parametrize("part", [1.0, 0.25])
@pytest.mark.parametrize("name", CASES)
def test_fmus_deliver_what_was_promised(name: str, part: float, built: dict[str, System]) -> None:
    """Against the undivided system."""
    system, case = built[name], CASES[name]
    step = part * float(np.sqrt(case.search[0] * case.search[1]))

    def true(master: Master, steps: int) -> Array:
        return reference(name, np.arange(steps + 1) * master.step)

    require_delivered(f"{name}, {step:.3g} s", system, co.masters.jacobi(system, step), case.horizon, true)


@pytest.mark.slow
@pytest.mark.parametrize("pair", [pytest.param(pair, id=pair.name) for pair in PAIRS])
def test_nonlinear_pairs_deliver_what_was_promised(pair: Pair) -> None:
    """Against two fine Gauss–Seidel runs, extrapolated: y + (y − y') for the order 1."""
    system = pair.system()

    def true(master: Master, steps: int) -> Array:
        coarse, fine = (
            co.run(system, co.masters.gauss_seidel(system, master.step / k), stop=steps * master.step).values[::k]
            for k in FINE
        )
        smooth = np.abs(fine - coarse).max(axis=0) < 0.2 * np.abs(fine).max(axis=0)
        return np.where(smooth, 2 * fine - coarse, fine)

    require_delivered(pair.name, system, co.masters.jacobi(system, pair.step), pair.horizon, true)
