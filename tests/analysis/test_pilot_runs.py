"""Pilot runs in several processes: the same numbers to the bit, and whatever goes wrong there is made here."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

from cosimo.analysis import Budget, analyse
from cosimo.analysis import pilots as piloting
from cosimo.analysis.pilot_runs import Job, Workers, internal_steps, make_run
from cosimo.analysis.pilots import Pilots
from cosimo.core.errors import UnitError
from cosimo.core.guarding import guard_options
from cosimo.core.result import Result
from cosimo.core.system import Connection, System
from cosimo.masters import gauss_seidel, jacobi
from cosimo.units import Fmu, PythonUnit

UNLIMITED = Budget(multiples=40, seconds=math.inf)


class Cubic:
    """ẋ = −x³ + u by Euler's method; fails at long steps, or ends its process there, where it is told to."""

    inputs, outputs = ("u",), ("x",)

    def __init__(self, begin: float = 1.0, fails: str = "", maker: int = 0) -> None:
        self.u, self.x, self.fails, self.maker = 0.0, begin, fails, maker

    def step(self, time: float, duration: float) -> None:
        if duration > 0.09:
            if self.fails == "raises":
                raise ValueError("too long")
            if self.fails == "ends" and os.getpid() != self.maker:
                os._exit(1)
        self.x += duration * (self.u - self.x**3)


def pair(**options: Any) -> System:
    units = {"a": PythonUnit(Cubic, **options), "b": PythonUnit(Cubic, begin=-0.5)}
    return System(units, [Connection("b.x", "a.u", gain=-1.0), ("a.x", "b.u")], name="cubic")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of this file can be imported by their name, as those of a user's script or package."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2])


@pytest.fixture
def two() -> Any:
    """Two processes for a system; they end with the test."""
    made: list[Workers] = []

    def workers(system: System) -> Workers:
        made.append(Workers(system, 2))
        return made[-1]

    yield workers
    for one in made:
        one.close()


def jobs(system: System, steps: int = 40) -> list[Job]:
    return [Job(build(system, 0.1 / parts), parts, 0.0, steps) for build in (jacobi, gauss_seidel) for parts in (1, 2)]


def same(one: Any, other: Any) -> bool:
    return bool(
        np.array_equal(one.rows.view(np.int64), other.rows.view(np.int64))
        and (one.diverged, one.grows, one.ended, one.internal)
        == (other.diverged, other.grows, other.ended, other.internal)
    )


def test_python_units_give_the_same_numbers(two: Any) -> None:
    system = pair()
    made = two(system).make(jobs(system))
    assert all(same(ran, make_run(system, job)) for ran, job in zip(made, jobs(system), strict=True))


def test_fmus_give_the_same_numbers(two: Any, tmp_path: Path) -> None:
    fmu = build(tmp_path, "peculiar2")
    system = System({"a": Fmu(fmu), "b": Fmu(fmu)}, [Connection("b.y", "a.u", gain=-1.0), ("a.y", "b.u")])
    workers = two(system)
    made = workers.make(jobs(system))
    assert workers.started
    assert all(
        ran is not None and same(ran, make_run(system, job)) for ran, job in zip(made, jobs(system), strict=True)
    )


def test_a_run_that_fails_is_left_to_who_asked(two: Any) -> None:
    system = pair(fails="raises")
    made = two(system).make(jobs(system))
    assert [ran is None for ran in made] == [True, False, True, False]
    with pytest.raises(UnitError, match="too long"):
        make_run(system, jobs(system)[0])


def test_a_run_that_ends_its_process_is_left_to_who_asked(two: Any) -> None:
    system = pair(fails="ends", maker=os.getpid())
    workers = two(system)
    asked = jobs(system)[:1] * 2
    assert workers.make(asked) == [None, None]
    assert not workers.started
    assert workers.make(asked) == [None, None]  # and nobody tries again
    assert make_run(system, asked[0]).rows.shape == (41, 2)


def test_what_cannot_travel_is_left_to_who_asked(two: Any) -> None:
    class Stuck(Cubic):
        def __reduce__(self) -> Any:
            raise TypeError("no")

    system = pair()
    system.units["a"].stuck = Stuck()  # type: ignore[attr-defined]
    workers = two(system)
    assert workers.make(jobs(system)) == [None] * 4
    assert not workers.started


def test_a_limit_on_calls_is_watched_in_this_process_only(two: Any) -> None:
    system = pair()
    workers = two(system)
    with guard_options(timeout=5.0):
        assert workers.make(jobs(system)) == [None] * 4
    assert not workers.started


def analysed(monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[Any, int]:
    """The verdict with pilot runs in so many processes however short they are, and how many runs were made there."""
    made = 0
    real = Workers.make

    def make(self: Workers, asked: Any) -> Any:
        nonlocal made
        found = real(self, asked)
        made += sum(ran is not None for ran in found)
        return found

    monkeypatch.setattr(piloting, "STARTING", 0.0)
    monkeypatch.setattr(piloting, "HANDING", 0.0)
    monkeypatch.setattr(Workers, "make", make)
    monkeypatch.setattr(piloting, "Workers", lambda system: Workers(system, count))
    system = pair()
    return analyse(system, jacobi(system, 0.1), horizon=4.0, budget=UNLIMITED), made


@pytest.mark.slow
def test_the_verdict_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alone, none = analysed(monkeypatch, 1)
    together, some = analysed(monkeypatch, 2)
    assert none == 0
    assert some >= 4
    assert alone.evidence == "measured"
    fields, other = alone.fields(), together.fields()
    assert fields | {"identification_time": 0.0} == other | {"identification_time": 0.0}


@pytest.mark.parametrize(
    ("pace", "parts", "handed"),
    [
        (1e-3, (2, 4), False),  # 40 steps of 1 ms: processes are not worth it
        (0.03, (2, 4), True),  # 2.4 s beside 4.8 s
        (0.02, (2, 4), False),  # 1.6 s are saved
        (0.03, (4,), False),  # a single run saves nothing
    ],
)
def test_processes_are_started_where_it_pays(
    pace: float, parts: tuple[int, ...], handed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    class Counting:
        count, started = 2, False

        def __init__(self, system: System) -> None: ...

        def make(self, jobs: list[Job]) -> list[None]:
            asked.extend(jobs)
            return [None] * len(jobs)

        def close(self) -> None: ...

    monkeypatch.setattr(piloting, "Workers", Counting)
    system = pair()
    pilots = Pilots(system, start=0.0, horizon=4.0)
    pilots._pace = pace
    pilots.ahead((jacobi(system, 0.1), part) for part in parts)
    assert bool(asked) is handed
    pilots.close()


def moved(values: Any) -> dict[str, float]:
    """What is said of a unit with these values of its output, one per macro step of 1 ms."""
    system = System({"a": PythonUnit(Cubic)}, inputs={"a.u": 0.0})
    rows = np.asarray(values, dtype=float)[:, None]
    result = Result(["a.x"], 1e-3 * np.arange(len(rows)), rows)
    return internal_steps(system, result, 1e-3)


@pytest.mark.parametrize("period", [2.0, 2.5, 3.0, 7.0, 10.0, 12.3])
def test_a_unit_that_moves_only_by_a_step_of_its_own_is_recognised(period: float) -> None:
    count = np.floor(np.arange(400) / period + 1e-9)
    assert moved(np.sin(0.3 * count))["a"] == pytest.approx(1e-3 * period, rel=0.02)


@pytest.mark.parametrize("period", [7.0, 10.0, 40.0])
def test_the_first_internal_step_may_come_with_the_first_macro_step(period: float) -> None:
    """Moves at 1, P, 2 P, …, now and then a macro step late."""
    places = np.arange(1200)
    late = places - (places // period % 5 == 2)
    count = np.where(places > 0, np.floor(np.maximum(late, 0) / period + 1e-9) + 1, 0)
    assert moved(np.sin(0.3 * count))["a"] == pytest.approx(1e-3 * period, rel=0.02)


def test_rounding_of_its_clock_hides_no_internal_step() -> None:
    late = np.arange(400) - np.where(np.arange(400) // 10 % 7 == 3, 1, 0)
    assert moved(np.sin(0.3 * (late // 10)))["a"] == pytest.approx(1e-2)


@pytest.mark.parametrize("seed", range(20))
def test_a_unit_that_meets_its_limits_has_no_internal_step(seed: int) -> None:
    """Held at a limit, now for two steps and now for three, with values between that are never the same."""
    rng = np.random.default_rng(seed)
    pieces = [[side * 1.5] * int(rng.integers(1, 4)) + [float(rng.uniform(-1, 1))] for side in (1, -1) * 20]
    assert moved(np.concatenate(pieces)) == {}


@pytest.mark.parametrize("gap", [2, 3, 8])
def test_a_switch_that_repeats_has_no_internal_step(gap: int) -> None:
    assert moved(np.arange(300) // gap % 2) == {}


def test_a_unit_that_rests_now_and_then_has_no_internal_step() -> None:
    values = np.sin(0.3 * np.arange(300.0))
    values[[50, 120, 250]] = values[[49, 119, 249]]
    assert moved(values) == {}
