"""What a run remembers, taken at any macro step and put into fresh units, continues to the same bits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from native_units import exported, lag, mixed
from random_systems import cases, couplings, systems

from cosimo import masters
from cosimo.core.coupling import Mixer, ModelCheck
from cosimo.core.master import Master
from cosimo.core.plain import from_bytes, to_bytes
from cosimo.core.schedule import Convergence
from cosimo.core.system import System
from cosimo.couplings import Dmd, Hold
from cosimo.execution.engines import Engine, KernelEngine, ReferenceEngine
from cosimo.execution.live import Live
from cosimo.execution.monitoring import Watch
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.problems import two_mass
from cosimo.units import PythonUnit, StateSpace
from thinning import examples

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
KINDS = ("kernel", "reference")


class Running:
    """A system that runs in one of the engines."""

    def __init__(self, system: System, master: Master, kind: str) -> None:
        self.live = Live(system, master, 0.0)
        self.live.initialise()
        told = [signal for joint in self.live.joints for signal in joint.signals]
        names = [*system.outputs, *system.input_names, *told]
        watch = Watch(system)
        self.engine: Engine = (
            KernelEngine(self.live, names, EngineOptions(parallel=False), watch)
            if kind == "kernel"
            else ReferenceEngine(self.live, names, watch)
        )
        self.width = 1 + len(names)

    def steps(self, first: int, count: int) -> np.ndarray[Any, Any]:
        rows = np.zeros((count, self.width))
        made = 0
        while made < count:
            self.engine.advance(first + made, rows[made:])
            made += self.engine.made
        return rows

    def close(self) -> None:
        self.engine.close()
        self.live.close()


def require_continued(system: System, master: Master, kind: str, k: int, count: int) -> None:
    """k steps, then `count` more: by the same units, and by fresh ones that were given the memory as bytes."""
    first, second = Running(system, master, kind), Running(system, master, kind)
    try:
        first.steps(0, k)
        second.engine.load(from_bytes(to_bytes(first.engine.memory(k))), k)
        ours, theirs = (live.steps(k, count) for live in (first, second))
        np.testing.assert_array_equal(ours.view(np.int64), theirs.view(np.int64))
        assert first.engine.findings() == second.engine.findings()
        kept = [{**live.engine.memory(k + count), "units": None} for live in (first, second)]
        assert to_bytes(kept[0]) == to_bytes(kept[1])
    finally:
        first.close()
        second.close()


@settings(max_examples=examples(40), suppress_health_check=SLOW)
@given(cases(), st.sampled_from(KINDS), st.integers(0, 40))
def test_linear_units_under_any_schedule(case: tuple[System, Master], kind: str, k: int) -> None:
    require_continued(*case, kind, k, 12)


@settings(max_examples=examples(10), suppress_health_check=SLOW)
@given(systems(), couplings(), st.sampled_from(KINDS), st.sampled_from(["anderson", "quasi_newton"]), st.integers(0, 3))
def test_iterations_until_convergence(system: System, coupling: Any, kind: str, how: str, depth: int) -> None:
    until = Convergence(tolerance=1e-9, limit=12, **{how: depth})
    require_continued(system, masters.iterative(system, 0.05, sweeps=until, coupling=coupling), kind, 7, 9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("coupling", [Dmd(), Dmd(window=20), Dmd(window=20, method="recursive")], ids=str)
def test_predictors_with_all_they_learned(coupling: Dmd, kind: str) -> None:
    system = two_mass()
    require_continued(system, masters.jacobi(system, 2e-3, coupling=coupling), kind, 150, 60)
    seidel = masters.gauss_seidel(system, 2e-3, couplings={"two.f": coupling})
    require_continued(system, seidel, kind, 150, 60)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [0, 1, 2, 3, 50])
def test_mixers_also_while_they_start_up(k: int, kind: str) -> None:
    """A mixer that delays by three samples; after its start-up the kernel uses a shorter form of it."""
    system = System(
        {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-2.0, 1.0, 1.0, initial=0.5)},
        [("a.y1", "b.u1"), ("b.y1", "a.u1")],
    )
    ww = np.zeros((3, 3))
    ww[1, 0] = ww[2, 1] = 1.0
    wy = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    mixer = Mixer(ww, wy, np.array([[0.5, 0.3, 0.2]]), np.full(3, 0.7), np.zeros((1, 1)))
    require_continued(system, replace(masters.jacobi(system, 0.05), mixers={"b": mixer}), kind, k, 12)
    # A model of another unit: it does not fit from the third step on, until hardly anything moves.
    model = [np.array([[0.5]]), np.zeros((1, 2)), np.zeros(1), np.array([1e-3])]
    checked = replace(masters.jacobi(system, 0.05), mixers={"b": mixer}, checks=(ModelCheck("a", (0,), 1, 1, *model),))
    require_continued(system, checked, kind, k, 12)
    result = run(system, checked, stop=20.0, engine=EngineOptions(kind))
    assert 50 < result.info["held"] < 390
    assert [text for text in map(str, result.warnings) if "unit 'a' no longer responds as its model" in text]
    assert [text for text in map(str, result.warnings) if "all models fit again" in text]


class Plain:
    """Remembers numbers, an array, a list, and where its random numbers are."""

    inputs, outputs = ("u",), ("y", "noise")

    def __init__(self) -> None:
        self.y, self.noise, self.past = 0.3, 0.0, [0.0, 0.0]
        self.state, self.random = np.zeros(3), np.random.default_rng(5)

    def step(self, time: float, duration: float) -> None:
        self.past = [self.y, self.past[0]]
        self.state += duration * self.u
        self.noise = float(self.random.normal())
        self.y += duration * (self.u - self.past[1]) + 1e-3 * self.noise * self.state.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_unit(kind: str, tmp_path: Path) -> None:
    units = {"p": PythonUnit(Plain), "n": lag(), "m": mixed(), "l": StateSpace(-1.0, 1.0, 1.0, initial=2.0)}
    links = [("p.y", "n.u"), ("n.y", "m.u"), ("m.z", "l.u1"), ("l.y1", "p.u"), ("p.noise", "m.v")]
    system = System(units, links)
    require_continued(system, masters.gauss_seidel(system, 0.05), kind, 13, 9)
    for fmi in (2, 3):
        fmus = exported(two_mass(), tmp_path, fmi=fmi)
        for order in (0, 1, 2):
            require_continued(fmus, masters.jacobi(fmus, 1e-3, coupling=Hold(order)), kind, 13, 9)
        require_continued(fmus, masters.iterative(fmus, 1e-3, sweeps=2), kind, 13, 9)
        require_continued(fmus, masters.multirate(fmus, 1e-3, multiples={"one": 3}), kind, 13, 9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [395, 1003])
@pytest.mark.one_in(3)
def test_growth_is_noticed_where_it_would_have_been(kind: str, k: int) -> None:
    """Growth is found after 704, 864 and 1792 macro steps; 395 and 1003 lie within windows of every length."""
    system = two_mass(damping=0.0, kc=4000.0)
    master = masters.jacobi(system, 1e-3)
    assert [one["time"] for one in run(system, master, stop=1.9).info["monitors"]["growing"]] == [0.704, 0.864, 1.792]
    require_continued(system, master, kind, k, 900)
