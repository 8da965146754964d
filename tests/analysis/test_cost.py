"""Unit steps per simulated second, counted by hand; times of steps on a clock that the units themselves move."""

from __future__ import annotations

import pytest

from cosimo import masters
from cosimo.analysis import cost as costing
from cosimo.analysis.cost import Cost, measured_weights
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.schedule import Convergence
from cosimo.core.system import System
from cosimo.units import PythonUnit, StateSpace


def three() -> System:
    units = {name: StateSpace(-1.0, 1.0, 1.0, initial=1.0) for name in "abc"}
    return System(units, [("a.y1", "b.u1"), ("b.y1", "c.u1"), ("c.y1", "a.u1")])


SYSTEM = three()
WEIGHTS = {"a": 5.0, "b": 2.0}


@pytest.mark.parametrize(
    ("cost", "master", "per_step"),
    [
        (Cost(), masters.jacobi(SYSTEM, 0.1), 3),
        (Cost(), masters.gauss_seidel(SYSTEM, 0.1), 3),
        (Cost(), masters.iterative(SYSTEM, 0.1, sweeps=4), 12),
        (Cost(WEIGHTS), masters.jacobi(SYSTEM, 0.1), 8),
        # Three in a row on two workers: as long as the longest, or as all shared out.
        (Cost(workers=2), masters.jacobi(SYSTEM, 0.1), 1.5),
        (Cost(WEIGHTS, workers=2), masters.jacobi(SYSTEM, 0.1), 5),
        (Cost(WEIGHTS, workers=2), masters.gauss_seidel(SYSTEM, 0.1), 8),
        (Cost(WEIGHTS, workers=2), masters.iterative(SYSTEM, 0.1, sweeps=2), 10),
        (Cost(sweeps=7), masters.iterative(SYSTEM, 0.1, sweeps=Convergence()), 21),
        (Cost(sweeps=7), masters.iterative(SYSTEM, 0.1, sweeps=2), 6),
    ],
)
def test_steps_are_counted(cost: Cost, master: masters.Master, per_step: float) -> None:
    assert cost.per_step(SYSTEM, master) == pytest.approx(per_step)
    assert cost.per_second(SYSTEM, master) == pytest.approx(10 * per_step)


def test_what_cannot_be_counted_is_refused() -> None:
    with pytest.raises(UnknownNameError):
        Cost({"d": 1.0}).per_step(SYSTEM, masters.jacobi(SYSTEM, 0.1))
    with pytest.raises(ConfigurationError, match="sweeps"):
        Cost().per_step(SYSTEM, masters.iterative(SYSTEM, 0.1, sweeps=Convergence()))


class Clock:
    """Time that only moves when a unit steps."""

    now = 0.0
    steps = 0
    length = 1e-3

    def perf_counter(self) -> float:
        return self.now

    def tick(self) -> None:
        self.steps += 1
        self.now += self.length


class Sleeper:
    inputs, outputs = ("u",), ("y",)
    clock = Clock()

    def __init__(self) -> None:
        self.u = self.y = 0.0

    def step(self, time: float, duration: float) -> None:
        self.clock.tick()


@pytest.mark.parametrize(
    ("seconds", "steps"),
    [
        (1e-3, 5 * (1 + 8)),  # eight steps take longer than 2 ms
        # 8, 16, 32 are too few to be timed, 64 take 2.56 ms; then four more attempts with so many.
        (4e-5, (1 + 8) + (1 + 16) + (1 + 32) + 5 * (1 + 64)),
        (2e-9, sum(1 + 2**k for k in range(3, 12)) + 5 * (1 + 4096)),
    ],
)
def test_times_of_steps(seconds: float, steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    clock.length = seconds
    monkeypatch.setattr(costing, "time", clock)
    monkeypatch.setattr(Sleeper, "clock", clock)
    system = System({"s": PythonUnit(Sleeper)}, inputs={"s.u": 1.0})
    assert measured_weights(system, 0.1) == {"s": pytest.approx(seconds, rel=1e-6)}
    assert clock.steps == steps


def test_timed_steps_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time goes on from step to step, as in a run: a unit may look into a table, or refuse to go back."""
    asked: list[tuple[float, float]] = []

    class Strict(Sleeper):
        def step(self, time: float, duration: float) -> None:
            asked.append((time, duration))
            super().step(time, duration)

    clock = Clock()
    monkeypatch.setattr(costing, "time", clock)
    monkeypatch.setattr(Sleeper, "clock", clock)
    measured_weights(System({"s": PythonUnit(Strict)}, inputs={"s.u": 1.0}), 0.5)
    assert asked == [(0.5 * k, 0.5) for _ in range(5) for k in range(9)]


def test_the_quickest_attempt_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy at times is not taken for a slow unit."""

    class Busy(Clock):
        def tick(self) -> None:
            super().tick()
            if self.steps < 30:
                self.now += 9e-3

    clock = Busy()
    monkeypatch.setattr(costing, "time", clock)
    monkeypatch.setattr(Sleeper, "clock", clock)
    system = System({"s": PythonUnit(Sleeper)}, inputs={"s.u": 1.0})
    assert measured_weights(system, 0.1)["s"] == pytest.approx(1e-3, rel=1e-6)
