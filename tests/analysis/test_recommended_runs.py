"""Every recommendation is run: the error that it promises beside the one that it delivers."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.linalg import expm

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
from nonlinear_pairs import PAIRS, Pair

import cosimo as co
from cosimo.analysis import Budget
from cosimo.analysis.truth import Truth, count_steps, output_errors
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.units import PythonUnit
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


def test_what_was_searched_in_vain_is_said() -> None:
    """A step so long that six halvings are not enough, with units that have no error of their own to blame."""
    predator = next(pair for pair in PAIRS if "predator" in pair.name)
    system = predator.system()
    advice = co.analyse(system, co.masters.jacobi(system, 2.0), horizon=14.0, budget=BUDGET).recommendation
    assert advice is not None
    assert advice.master is None
    assert "at steps from 31.25 ms to 2 s (shorter ones were not tried)" in advice.text


class Ball:
    """ẍ = f − 0.2 ẋ − 10 x by Euler's method, in micro steps of at most 5 ms: below, its error depends on the step."""

    inputs, outputs = ("f",), ("x", "v")

    def __init__(self) -> None:
        self.f, self.x, self.v = 0.0, 1.0, 0.0

    def step(self, time: float, duration: float) -> None:
        count = max(1, math.ceil(duration / 0.005 - 1e-9))
        for _ in range(count):
            rate = self.f - 0.2 * self.v - 10 * self.x
            self.x, self.v = self.x + duration / count * self.v, self.v + duration / count * rate


class Spring:
    """f = −60 x − 1.5 v, at once."""

    inputs, outputs = {"x": 1.0, "v": 0.0}, ("f",)

    def step(self, time: float, duration: float) -> None:
        pass

    @property
    def f(self) -> float:
        return -60 * self.x - 1.5 * self.v  # type: ignore[attr-defined,no-any-return]


def test_a_micro_step_that_shrinks_with_short_macro_steps_is_counted() -> None:
    """At 20 and at 10 ms the solver is the same; at the step that is recommended it is another."""
    system = System(
        {"ball": PythonUnit(Ball), "spring": PythonUnit(Spring)},
        [("ball.x", "spring.x"), ("ball.v", "spring.v"), ("spring.f", "ball.f")],
    )

    def true(master: Master, steps: int) -> Array:
        once = expm(np.array([[0.0, 1.0], [-70.0, -1.7]]) * master.step)
        rows = [np.array([1.0, 0.0])]
        for _ in range(steps):
            rows.append(once @ rows[-1])
        return np.array([[x, v, -60 * x - 1.5 * v] for x, v in rows])

    require_delivered("Euler, at most 5 ms", system, co.masters.jacobi(system, 0.02), 4.0, true)


@functools.cache
def flow(duration: float) -> Array:
    matrix: Array = expm(np.array([[0.0, 1.0, 0.0], [-4.0, -2.0, 4.0], [0.0, 0.0, 0.0]]) * duration)
    return matrix


class Sensed:
    """ẍ = 4 u − 4 x − 2 ẋ, exact for a held u; its output comes in steps of 0.01, too coarse for short macro steps."""

    inputs, outputs = ("u",), ("y",)

    def __init__(self) -> None:
        self.u, self.state, self.y = 0.0, np.zeros(2), 0.0

    def step(self, time: float, duration: float) -> None:
        self.state = (flow(duration) @ np.append(self.state, self.u))[:2]
        self.y = math.floor(float(self.state[0]) * 100 + 0.5) / 100


class Controller:
    """u = 2 (1 − y) + 3 ∫ (1 − y)."""

    inputs, outputs = ("y",), ("u",)

    def __init__(self) -> None:
        self.y, self.sum = 0.0, 0.0

    def step(self, time: float, duration: float) -> None:
        self.sum += duration * 3 * (1 - self.y)

    @property
    def u(self) -> float:
        return 2 * (1 - self.y) + self.sum


@pytest.mark.slow
def test_what_cannot_be_identified_at_a_short_step_promises_nothing() -> None:
    system = System(
        {"plant": PythonUnit(Sensed), "control": PythonUnit(Controller)},
        [("plant.y", "control.y"), ("control.u", "plant.u")],
    )
    advice = co.analyse(system, co.masters.jacobi(system, 0.1), horizon=10.0, budget=BUDGET).recommendation
    assert advice is not None
    assert advice.error is None or 1e-4 < advice.error < 0.01
