"""Discarded steps: rolled back and made again in shorter parts, or refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from fmu_builder import build

from cosimo import masters
from cosimo.core.coupling import Mixer
from cosimo.core.errors import StepDiscarded
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.units import Fmu, PythonUnit, StateSpace

KINDS: tuple[Literal["kernel", "reference"], ...] = ("kernel", "reference")


class Lag:
    """y' = u − y by forward Euler; refuses steps longer than `longest` from time `since` on."""

    inputs, outputs = {"u": 0.0}, ("y",)

    def __init__(self, y: float = 1.0, longest: float = np.inf, since: float = 0.0) -> None:
        self.y, self.longest, self.since = y, longest, since
        self.u = 0.0

    def step(self, time: float, duration: float) -> None:
        if duration > self.longest and time >= self.since:
            raise StepDiscarded(f"the step {duration:g} is too long", time)
        self.y += duration * (self.u - self.y)


def ring(**options: float) -> System:
    units = {"a": PythonUnit(Lag), "b": PythonUnit(Lag, y=0.0, **options), "c": StateSpace(-1.0, 1.0, 1.0, initial=2.0)}
    return System(units, [("a.y", "b.u"), ("b.y", "c.u1"), ("c.y1", "a.u")])


@pytest.mark.parametrize("kind", ["kernel", "reference"])
def test_a_discarded_step_is_made_in_shorter_parts(kind: Literal["kernel", "reference"]) -> None:
    system = ring(longest=0.03, since=0.45)
    result = run(system, masters.jacobi(system, 0.1), stop=1.0, engine=EngineOptions(kind))
    assert result.complete
    assert result.info["rollbacks"] == 2
    assert len(result) == 11
    np.testing.assert_array_equal(result.time, np.arange(11) * 0.1)
    # Until then as without any refusal, afterwards as with a quarter of the step.
    coarse, fine = ring(), ring()
    before = run(coarse, masters.jacobi(coarse, 0.1), stop=1.0)
    np.testing.assert_array_equal(result.values[:6], before.values[:6])
    after = run(fine, masters.jacobi(fine, 0.025), stop=1.0)
    assert np.abs(result.values[-1] - after.values[-1]).max() < np.abs(before.values[-1] - after.values[-1]).max()


def test_always_refused_is_passed_on_with_the_rows() -> None:
    system = ring(longest=0.0, since=0.45)
    with pytest.raises(StepDiscarded, match=r"unit 'b'.*: the step 9\.7656\de-05 is too long") as caught:
        run(system, masters.jacobi(system, 0.1), stop=1.0)
    assert caught.value.exit_code == 3
    assert caught.value.result is not None
    assert caught.value.result.time[-1] == 0.5


def test_units_that_cannot_restore_are_named() -> None:
    system = ring(longest=0.03)
    system.units["a"].can_restore = False
    with pytest.raises(StepDiscarded, match=r"rolling back needs all units to restore their states, and a cannot"):
        run(system, masters.jacobi(system, 0.1), stop=1.0)


class Refusing:
    """Refuses steps longer than 30 ms from the time 0.45 on; its output is 1 + t − t²/4."""

    inputs, outputs = {"u": 0.0}, ("y",)

    def __init__(self) -> None:
        self.y = 1.0

    def step(self, time: float, duration: float) -> None:
        if duration > 0.03 and time >= 0.45:
            raise StepDiscarded(f"the step {duration:g} is too long", time)
        end = time + duration
        self.y = 1.0 + end - 0.25 * end**2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.multirate])
def test_extrapolation_goes_on_with_its_slope_where_the_step_changes(build: Callable[..., Any], kind: Any) -> None:
    """A parabola is extrapolated exactly, also in the steps that are divided: its integral is exact."""
    units = {"sink": StateSpace(0.0, 1.0, 1.0, inputs=["u"], outputs=["y"]), "source": PythonUnit(Refusing)}
    system = System(units, [("source.y", "sink.u")])
    options = {"multiples": {"sink": 2}} if build is masters.multirate else {}
    master = build(system, 0.1, coupling=Hold(2), **options)
    result = run(system, master, stop=1.0, engine=EngineOptions(kind))
    assert result.info["rollbacks"] == 2
    t = result.time[3:]  # before, signals count as constant
    exact = t + t**2 / 2 - t**3 / 12
    gained = result["sink.y"][3:] - exact
    np.testing.assert_allclose(gained, gained[0], atol=1e-13)


def test_extrapolation_lasts_where_the_step_changes() -> None:
    system = ring(longest=0.03, since=0.45)
    result = run(system, masters.jacobi(system, 0.1, coupling=Hold(1)), stop=2.0)
    plain = ring()
    coarse, exact = (run(plain, masters.jacobi(plain, h, coupling=Hold(1)), stop=2.0) for h in (0.1, 0.1 / 64))
    error = np.abs(result.values[-1] - exact.values[-1]).max()
    assert 0 < error < 0.8 * np.abs(coarse.values[-1] - exact.values[-1]).max()


def test_an_fmu_that_discards_and_cannot_restore(tmp_path: Path) -> None:
    system = System({"awkward": Fmu(build(tmp_path, "awkward2"), parameters={"longest_step": 0.25})})
    with pytest.raises(StepDiscarded, match=r"unit 'awkward'.*discarded the step from t = 0.0.*awkward cannot"):
        run(system, masters.jacobi(system, 0.5), stop=2.0)


def test_a_compensated_master_keeps_its_step() -> None:
    """Its gains hold for one macro step only; shorter parts would be silently wrong."""
    system = ring(longest=0.03)
    mixer = Mixer(np.zeros((1, 1)), np.array([[1.0, 0.0, 0.0]]), np.ones((1, 1)), np.zeros(1), np.zeros((1, 1)))
    master = replace(masters.jacobi(system, 0.1), mixers={"b": mixer})
    with pytest.raises(StepDiscarded, match="a compensated master is designed for its macro step"):
        run(system, master, stop=1.0)


@pytest.mark.parametrize("hold", [0, 1, 2])
@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.multirate, masters.iterative])
@pytest.mark.one_in(5)
def test_both_engines_make_the_same_shorter_parts(build: Callable[..., Any], hold: int) -> None:
    units = ring(longest=0.03, since=0.45)
    system = System(
        {**units.units, "d": StateSpace(-1.0, [[1.0, 0.5]], 1.0, inputs=["u", "v"], outputs=["y"])},
        [*units.connections, Connection("a.y", "d.u", gain=-2.0, offset=0.5)],
        inputs={"d.v": np.sin},
    )
    options = {"multiples": {"c": 2}} if build is masters.multirate else {}
    master = build(system, 0.1, coupling=Hold(hold), **options)
    ours, oracle = (run(system, master, stop=1.0, record="all", engine=EngineOptions(kind)) for kind in KINDS)
    assert ours.info["rollbacks"] == oracle.info["rollbacks"] > 0
    assert ours.to_numpy().tobytes() == oracle.to_numpy().tobytes()
    assert ours.info["monitors"] == oracle.info["monitors"]
    assert list(map(str, ours.warnings)) == list(map(str, oracle.warnings))


def test_both_engines_pass_on_the_same_refusal() -> None:
    system = ring(longest=0.0, since=0.45)
    found = []
    for kind in KINDS:
        with pytest.raises(StepDiscarded) as caught:
            run(system, masters.jacobi(system, 0.1), stop=1.0, engine=EngineOptions(kind))
        found.append((str(caught.value), caught.value.time, caught.value.result.to_numpy().tobytes()))  # type: ignore[union-attr]
    assert found[0] == found[1]


def test_the_kernel_makes_the_shorter_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Except where the schedule itself saves states, of which a unit has one in the kernel."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the plain interpreter")

    monkeypatch.setattr("cosimo.execution.session.CarefulEngine.__init__", refuse)
    system = ring(longest=0.03, since=0.45)
    assert run(system, masters.jacobi(system, 0.1), stop=1.0).info["rollbacks"] == 2
    with pytest.raises(AssertionError, match="plain"):
        run(system, masters.iterative(system, 0.1), stop=1.0)
