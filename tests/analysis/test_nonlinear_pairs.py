"""The verdict on nonlinear units: what is shown as measured or confirmed agrees with an independent fine run."""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from thinning import mostly_slow

sys.path.insert(0, str(Path(__file__).parent))
from nonlinear_pairs import PAIRS, Duffing, Ode, Pair, Pendulum

import cosimo as co
from cosimo.analysis import Budget, Verdict
from cosimo.analysis.truth import Truth, output_errors
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.units import PythonUnit

FACTOR = 1.25
"""Within which an error that is shown must agree with the independent one."""
FINE = (32, 64)
BUDGET = Budget(multiples=40, seconds=math.inf)
"""By the number of steps alone, so that nothing depends on the clock."""
SHORT = next(replace(pair, name="one second", horizon=1.0) for pair in PAIRS if pair.name == "tyre with saturation")
"""What `make test` takes of them: the whole ten seconds cost 20 s of the processor."""


def independent_errors(system: System, master: Master, horizon: float) -> dict[str, float]:
    """Errors of the master's own run against two fine Gauss–Seidel runs, extrapolated where they converge."""
    count = int(horizon / master.step * (1 + 1e-12))
    stop = count * master.step
    rows = co.run(system, master, stop=stop)
    coarse, fine = (
        co.run(system, co.masters.gauss_seidel(system, master.step / k), stop=stop).values[::k] for k in FINE
    )
    smooth = np.abs(fine - coarse).max(axis=0) < 0.2 * np.abs(fine).max(axis=0)
    exact = np.where(smooth, 2 * fine - coarse, fine)
    places = [rows.names.index(name) for name in system.outputs]
    truth = Truth(exact, np.abs(exact).max(axis=0))
    return dict(output_errors(system, master, rows.values[:, places], truth, horizon, "measured").outputs)


def require_true(verdict: Verdict, errors: dict[str, float], *, bounded: bool = True) -> None:
    """No false word: stability, and every error that is shown."""
    assert verdict.evidence in ("confirmed", "measured", "none")
    if verdict.stable is not None:
        assert verdict.stable is bounded, verdict
    for name, shown in verdict.error.outputs.items() if verdict.error is not None else ():
        low, high = sorted((shown, errors[name]))
        assert high <= FACTOR * low + 1e-6, f"{name}: shown {shown:.4g}, true {errors[name]:.4g}"


@pytest.mark.parametrize("pair", mostly_slow((*PAIRS, SHORT), [SHORT]))
def test_errors_of_nonlinear_pairs_are_those_of_a_fine_run(pair: Pair) -> None:
    system = pair.system()
    master = co.masters.jacobi(system, pair.step)
    verdict = co.analyse(system, master, horizon=pair.horizon, budget=BUDGET)
    assert verdict.trust != "not assessed", verdict.reasons
    require_true(verdict, independent_errors(system, master, pair.horizon))
    advised = verdict.recommendation.master if verdict.recommendation is not None else None
    if advised is not None and advised is not master:
        promised = verdict.recommendation.error  # type: ignore[union-attr]
        delivered = max(independent_errors(system, advised, pair.horizon).values())
        assert promised is not None
        assert delivered <= FACTOR * promised


class SmallPendulum(Pendulum):
    start, micro = (0.01, 0.0), 5


class SmallDuffing(Duffing):
    inputs, start, micro = {"angle": 0.01}, (0.004, 0.0), 5


@pytest.mark.slow
def test_the_critical_step_does_not_depend_on_the_step_it_is_asked_from() -> None:
    """Nearly linear, stable at 2 ms and unstable at 30 ms: one crossing between, where the spectral radius is 1."""
    units = {"pendulum": PythonUnit(SmallPendulum), "duffing": PythonUnit(SmallDuffing)}
    links = [("pendulum.angle", "duffing.angle"), ("duffing.torque", "pendulum.torque")]
    system = System(units, links, name="small swings")
    found = {}
    for step, stable in ((0.002, True), (0.03, False)):
        verdict = co.analyse(system, co.masters.jacobi(system, step), horizon=150 * step, budget=BUDGET)
        assert (verdict.evidence, verdict.stable) == ("confirmed", stable)
        assert [len(unit.poles) <= 3 for unit in verdict.units] == [True, True]
        assert verdict.critical_step is not None
        found[step] = verdict.critical_step.step
    assert found[0.03] == pytest.approx(found[0.002], rel=1e-3)
    below, above = (
        co.analyse(system, co.masters.jacobi(system, share * found[0.002]), horizon=3.0, details=False, budget=BUDGET)
        for share in (0.98, 1.02)
    )
    assert below.spectral_radius is not None
    assert above.spectral_radius is not None
    assert below.spectral_radius < 1 < above.spectral_radius


@pytest.mark.slow
def test_a_unit_that_grows_by_itself_is_judged_by_runs() -> None:
    """Led outside the loop, an inverted pendulum falls: that says nothing of its model, and so nothing is predicted."""
    pair = next(pair for pair in PAIRS if pair.name == "inverted pendulum and PD")
    system = pair.system()
    master = co.masters.jacobi(system, 0.01)
    verdict = co.analyse(system, master, horizon=2.0, budget=BUDGET, details=False)
    assert verdict.evidence == "measured"
    assert verdict.spectral_radius is None
    assert "inverted grows by itself" in verdict.reasons["model"]
    require_true(verdict, independent_errors(system, master, 2.0))


class Random(Ode):
    """ẍ = −k x − c ẋ − n(x) + g u with a random nonlinearity, and outputs that a loose solver makes noisy."""

    inputs, outputs, start = {"u": 0.0}, ("y",), (0.0, 0.0)
    u: float

    def __init__(self, seed: int = 0, noise: float = 0.0) -> None:
        rng = np.random.default_rng(seed)
        self.k, self.c, self.g = float(rng.uniform(1, 30)), float(rng.uniform(0.3, 3)), float(rng.uniform(-4, 4))
        self.kind, self.size = int(rng.integers(5)), float(rng.uniform(0.5, 8))
        self.noise, self.calls = noise, 0
        super().__init__()
        self.x = rng.uniform(-1, 1, 2).tolist()
        self.look()

    def bend(self, x: float) -> float:
        if self.kind == 0:
            return self.size * x**3
        if self.kind == 1:
            return self.size * math.tanh(4 * x)
        if self.kind == 2:
            return self.size * math.copysign(max(abs(x) - 0.3, 0.0), x)
        if self.kind == 3:
            return self.size * abs(x) * x
        return self.size * math.sin(2 * x)

    def f(self, t: float, x: list[float]) -> list[float]:
        return [x[1], -self.k * x[0] - self.c * x[1] - self.bend(x[0]) + self.g * self.u]

    def look(self) -> None:
        # The same state gives the same number, as of a solver whose tolerance is loose.
        self.y = self.x[0] + self.noise * math.sin(1e6 * self.x[0] + 1e5 * self.x[1])


def random_pair(seed: int) -> tuple[System, Master, float]:
    """Two random units in a ring, with a step of some per cent of their periods."""
    rng = np.random.default_rng(10_000 + seed)
    noise = float(rng.choice([0.0, 0.0, 1e-7, 1e-5]))
    units = {name: PythonUnit(Random, seed=2 * seed + place, noise=noise) for place, name in enumerate("ab")}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")], name=f"random {seed}")
    step = float(rng.choice([0.01, 0.02, 0.05]))
    return system, co.masters.jacobi(system, step), 150 * step


@pytest.mark.slow
def test_no_false_word_on_random_nonlinear_units() -> None:
    """200 pairs with fixed seeds; prints how many are confirmed, measured and not assessed."""
    counts: dict[str, int] = {}
    for seed in range(200):
        system, master, horizon = random_pair(seed)
        verdict = co.analyse(system, master, horizon=horizon, budget=BUDGET)
        counts[verdict.evidence] = counts.get(verdict.evidence, 0) + 1
        require_true(verdict, independent_errors(system, master, horizon))
    print(counts)
    assert counts.get("none", 0) <= 40
