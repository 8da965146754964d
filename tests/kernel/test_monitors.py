"""The compiled monitors find what the plain ones find, number for number."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from thinning import examples

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "laws"))
from native_units import exported, lag
from random_systems import cases

from cosimo import masters
from cosimo.core.errors import NonFiniteError
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold, Nepce
from cosimo.execution.engines import Engine, KernelEngine, ReferenceEngine
from cosimo.execution.live import Live
from cosimo.execution.monitoring import Findings, Watch
from cosimo.execution.options import EngineOptions
from cosimo.execution.power_bonds import power_bonds
from cosimo.problems import chain, four_mass, quarter_truck, two_mass


def both(system: System, master: Master, steps: int, *, watch: Watch | None = None, parts: int = 1) -> list[Findings]:
    """What either engine finds in a run of `steps` macro steps, made in several calls."""
    found = []
    watch = watch or Watch(system, power_bonds(system))
    for kind in (KernelEngine, ReferenceEngine):
        live = Live(system, master, 0.0)
        live.initialise()
        options = (EngineOptions(parallel=False),) if kind is KernelEngine else ()
        engine: Engine = kind(live, system.outputs, *options, watch=watch)  # type: ignore[arg-type]
        made = 0
        while made < steps and not engine.diverged:
            rows = np.zeros((min(-(-steps // parts), steps - made), 1 + len(system.outputs)))
            try:
                engine.advance(made, rows)
            except NonFiniteError:
                break
            finally:
                made += engine.made
        told = engine.findings()
        assert told is not None
        assert told.steps == made
        found.append(told)
        engine.close()
        live.close()
    return found


@settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(cases())
def test_random_systems_and_schedules(case: tuple[System, Master]) -> None:
    ours, oracle = both(*case, steps=45)
    assert ours == oracle


SYSTEMS: list[tuple[System, float, int, int]] = [
    (two_mass(damping=0.0), 1e-2, 500, 1),
    (quarter_truck(), 5e-2, 60, 4),
    (four_mass(), 3e-3, 300, 0),
    (chain(n=12), 0.1, 200, 4),
]


@pytest.mark.parametrize(("system", "h", "steps", "growing"), SYSTEMS, ids=lambda value: getattr(value, "name", None))
@pytest.mark.parametrize(
    "options",
    [{}, {"coupling": Hold(1)}, {"coupling": Hold(2)}, {"coupling": Nepce(0.4)}],
    ids=["hold0", "hold1", "hold2", "nepce"],
)
@pytest.mark.one_in(5)
def test_problems(system: System, h: float, steps: int, growing: int, options: dict[str, Any]) -> None:
    ours, oracle = both(system, masters.jacobi(system, h, **options), steps)
    assert ours == oracle
    if not options:
        assert len(ours.grown) >= growing


@pytest.mark.parametrize("parts", [1, 3, 7, 100])
def test_calls_of_the_engine_leave_no_trace(parts: int) -> None:
    system = quarter_truck()
    master = masters.gauss_seidel(system, 1e-2)
    whole, *_ = both(system, master, 101)
    ours, oracle = both(system, master, 101, parts=parts)
    assert ours == oracle == whole


@pytest.mark.parametrize(
    "build",
    [
        lambda s: masters.iterative(s, 1e-2),
        lambda s: masters.iterative(s, 1e-2, sweeps=2, coupling=Hold(1)),
        lambda s: masters.multirate(s, 1e-2, multiples={"chassis": 2, "wheel": 1}),
        lambda s: masters.jacobi_early_read(s, 1e-3),
    ],
    ids=["iterative", "two-sweeps", "multirate", "early-read"],
)
def test_masters(build: Any) -> None:
    system = quarter_truck(profile=lambda t: 0.1 * np.sin(20.0 * t))
    ours, oracle = both(system, build(system), 60)
    assert ours == oracle
    assert ours.exchanged[0] > 0


def test_fmus_and_native_units(tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    watch = Watch(system, power_bonds(system, [("two.f", "two.v")]))
    ours, oracle = both(system, masters.jacobi(system, 4e-3), 900, watch=watch)
    assert ours == oracle
    assert len(watch.bonds) == 1
    ring = System(
        {f"n{i}": lag(1.0 + i) for i in range(3)},
        [Connection(f"n{i}.y", f"n{(i + 1) % 3}.u", -8.0, 0.5) for i in range(3)],
    )
    ours, oracle = both(ring, masters.jacobi(ring, 0.2), 200)
    assert ours == oracle
    assert len(ours.grown) == 3


def test_both_stop_at_the_same_step() -> None:
    system = quarter_truck()
    watch = Watch(system, power_bonds(system), stop=True)
    ours, oracle = both(system, masters.jacobi(system, 5e-2), 400, watch=watch)
    assert ours == oracle
    assert ours.steps == ours.grown[0].step == 48


def test_an_overflow_comes_later() -> None:
    system = quarter_truck()
    ours, oracle = both(system, masters.jacobi(system, 5e-2), 40_000, parts=40)
    assert ours.steps == oracle.steps < 40_000
    assert ours.grown == oracle.grown
    assert ours.grown[0].step == 48
