"""Macro steps that vary, chosen in the kernel and by the plain interpreter: the same rows and reports, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lags
import numpy as np
import pytest
from lags import Lag, Noisy
from native_units import KERNEL, REFERENCE, bits, exported, lag, mixed

from cosimo.core.errors import CosimoError, RunError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import Connection, System, Table
from cosimo.couplings import Hold
from cosimo.execution.options import Adaptive
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, groups, jacobi, jacobi_early_read
from cosimo.problems import quarter_truck, two_mass
from cosimo.problems.oscillators import fresh
from cosimo.units import Fmu, PythonUnit, StateSpace
from cosimo.units.fmi.isolation import Isolation

KINDS = ("energy", "doubling")


def both(system: System, master: Master, stop: float, kind: Any, start: float = 0.0, **options: Any) -> list[Any]:
    """The results of both engines, or the errors they ended with."""
    found = []
    for engine in (KERNEL, REFERENCE):
        try:
            made = run(
                system, master, start=start, stop=stop, record="all", engine=engine, adaptive=Adaptive(kind, **options)
            )
        except CosimoError as error:
            found.append(error)
        else:
            found.append(made)
    return found


def told(result: Result) -> dict[str, Any]:
    return {key: value for key, value in result.info.items() if key not in ("stepping_time", "wall_time")}


def require_same(system: System, master: Master, stop: float, kind: Any, **options: Any) -> Result:
    ours, oracle = both(system, master, stop, kind, **options)
    assert isinstance(ours, Result)
    assert np.array_equal(bits(ours), bits(oracle))
    assert told(ours) == told(oracle)
    assert [str(w) for w in ours.warnings] == [str(w) for w in oracle.warnings]
    return ours


def bumpy(time: float) -> float:
    """A wave with a jump."""
    return 0.05 * math.sin(7 * time) + (0.1 if time >= 0.031 else 0.0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hold", [0, 1, 2])
@pytest.mark.parametrize("build", [jacobi, gauss_seidel, jacobi_early_read])
@pytest.mark.one_in(5)
def test_linear_units_with_external_inputs_that_jump(kind: str, hold: int, build: Callable[..., Master]) -> None:
    system = quarter_truck(profile=bumpy)
    result = require_same(system, build(system, 5e-3, coupling=Hold(hold)), 0.06, kind)
    assert result["step"].max() > 3 * result["step"][1:].min()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.parametrize("hold", [0, 1, 2])
@pytest.mark.one_in(5)
def test_fmus(kind: str, fmi: int, hold: int, tmp_path: Path) -> None:
    system = exported(two_mass(velocities=(1.0, -1.0), damping=1.0), tmp_path, fmi=fmi)
    for build in (jacobi, gauss_seidel):
        assert require_same(system, build(system, 1e-2, coupling=Hold(hold)), 0.1, kind).info["accepted"] > 20


@pytest.mark.parametrize("kind", KINDS)
def test_fmus_with_power_pairs_tables_and_constants(kind: str, tmp_path: Path) -> None:
    table = Table([0.0, 0.02, 0.02, 0.05], [0.0, 0.1, 0.3, 0.3])
    system = exported(quarter_truck(profile=table), tmp_path, fmi=2)
    require_same(system, jacobi(system, 5e-3), 0.06, kind)
    system = exported(quarter_truck(profile=0.1), tmp_path / "constant", fmi=3)
    require_same(system, gauss_seidel(system, 5e-3), 0.06, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_fmus_in_processes_of_their_own(kind: str, tmp_path: Path) -> None:
    inside = exported(two_mass(velocities=(1.0, -1.0), damping=1.0), tmp_path, fmi=2)
    units = {name: Fmu(unit.path, name=name, isolate=Isolation()) for name, unit in inside.units.items()}  # type: ignore[attr-defined]
    system = System(units, inside.connections)
    require_same(system, jacobi(system, 1e-2, coupling=Hold(1)), 0.05, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_more_lengths_than_are_kept(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.execution.lowering.KEPT", 3)
    system = quarter_truck(profile=0.1)
    result = require_same(system, jacobi(system, 5e-3), 0.06, kind)
    assert len(set(result["step"].tolist())) > 6


class Impatient(lags.Impatient):
    span = (0.05, 0.1)


class Dying(lags.Dying):
    end = 0.05


class Failing(Lag):
    def step(self, time: float, duration: float) -> None:
        if time > 0.05:
            raise ValueError("no more")
        super().step(time, duration)


def ring(first: Any) -> System:
    """Three kinds of units; the native one in the middle feeds inputs through."""
    units = {"p": first, "n": mixed(), "s": StateSpace(-2.0, 1.0, 1.0, initial=0.5, inputs=["u"], outputs=["y"])}
    links = [("n.y", "p.u"), Connection("p.y", "n.u", gain=-0.7, offset=0.1), ("s.y", "n.v"), ("n.z", "s.u")]
    return System(units, links)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hold", [0, 1, 2])
@pytest.mark.one_in(5)
def test_units_of_all_kinds(kind: str, hold: int) -> None:
    for first in (PythonUnit(Lag), lag(0.3)):
        system = ring(first)
        for order in ([["p"], ["n"], ["s"]], [["n", "s"], ["p"]], [["p", "n", "s"]]):
            master = groups(system, 0.02, order=order, coupling=Hold(hold))
            require_same(system, master, 0.4, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_held_inputs_that_are_exchanged_at_the_end(kind: str) -> None:
    system = quarter_truck(profile=bumpy)
    require_same(system, fresh(system, 5e-3), 0.06, kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("start", "stop"), [(-0.03, 0.01), (1e4, 1e4 + 0.03)])
def test_any_time(kind: str, start: float, stop: float) -> None:
    system = two_mass(velocities=(1.0, -1.0), damping=1.0)
    require_same(system, jacobi(system, 1e-3, coupling=Hold(2)), stop, kind, start=start, relative=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_to_judge_by(kind: str) -> None:
    system = System({"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0, start={"u1": 0.0})})
    require_same(system, jacobi(system, 0.01), 2.0, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_steps_that_are_forced_to_be_shortest(kind: str) -> None:
    system = ring(PythonUnit(Lag))
    result = require_same(system, jacobi(system, 0.02), 1.0, kind, relative=1e-7, shortest=0.01, first=0.02)
    assert any("shortest" in w.message for w in result.warnings)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", [Impatient, Noisy, Dying, Failing])
def test_what_goes_wrong_does_so_in_both(kind: str, unit: type) -> None:
    system = System({"a": PythonUnit(unit), "b": PythonUnit(Lag)}, [("a.y", "b.u"), ("b.y", "a.u")])
    ours, oracle = both(system, jacobi(system, 0.01), 0.12, kind)
    assert type(ours) is type(oracle)
    if isinstance(ours, Result):
        assert unit is Impatient or (unit, kind) == (Noisy, "energy")
        assert np.array_equal(bits(ours), bits(oracle))
        assert told(ours) == told(oracle)
        assert [str(w) for w in ours.warnings] == [str(w) for w in oracle.warnings]
    else:
        assert str(ours) == str(oracle)
        assert (ours.unit, ours.time, ours.phase) == (oracle.unit, oracle.time, oracle.phase)
        assert np.array_equal(bits(ours.result), bits(oracle.result))
        assert told(ours.result) == told(oracle.result)


@pytest.mark.parametrize("kind", KINDS)
def test_an_external_input_that_fails_is_named(kind: str) -> None:
    def road(time: float) -> float:
        if time > 0.04:
            raise KeyError("no road")
        return math.sin(time)

    system = quarter_truck(profile=road)
    ours, oracle = both(system, jacobi(system, 5e-3), 0.1, kind)
    assert isinstance(ours, RunError)
    assert "external input wheel.road failed" in str(ours)
    assert str(ours) == str(oracle)
    assert np.array_equal(bits(ours.result), bits(oracle.result))
