"""Whole runs of coupled FMUs, beside formulas and FMPy."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmpy import simulate_fmu
from fmu_builder import build

from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, iterative, jacobi, multirate
from cosimo.units.fmi.component import FMU2Library
from cosimo.units.fmi.fmu import Fmu

pytestmark = pytest.mark.usefixtures("temporary")


@pytest.fixture
def fmpy_loads_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    """FMPy's own simulation refuses libraries without optional functions."""
    monkeypatch.setattr("fmpy.fmi1._FMU._loadFunctions", FMU2Library._loadFunctions)


@pytest.mark.usefixtures("fmpy_loads_lazily")
def test_same_trajectory_as_fmpy(tmp_path: Path) -> None:
    path = build(tmp_path, "feedthrough2")
    h, stop = 0.125, 4.0
    times = np.arange(33) * h
    signal = np.array([(t, np.sin(t)) for t in times], dtype=[("time", float), ("real_in", float)])
    theirs = simulate_fmu(
        str(path),
        start_values={"gain": 2.0},
        input=signal,
        output=["integral", "real_out"],
        stop_time=stop,
        output_interval=h,
        use_event_mode=False,
        set_input_derivatives=False,
    )
    system = System({"f": Fmu(path, parameters={"gain": 2.0})}, inputs={"f.real_in": np.sin})
    ours = run(system, jacobi(system, h), stop=stop)
    assert np.array_equal(ours.time, theirs["time"])
    assert ours["f.integral"] == pytest.approx(theirs["integral"], abs=1e-12)


@pytest.mark.usefixtures("fmpy_loads_lazily")
def test_events_have_the_same_trajectory_as_with_fmpy(tmp_path: Path) -> None:
    path = build(tmp_path, "events3")
    theirs = simulate_fmu(
        str(path), output=["x", "count"], stop_time=2.0, output_interval=0.125, use_event_mode=True,
        record_events=False, early_return_allowed=True, start_values={"u": 1.0},
    )  # fmt: skip
    system = System({"e": Fmu(path)})
    ours = run(system, jacobi(system, 0.125), stop=2.0)
    at_ends = {round(row["time"], 9): row for row in theirs}
    for time, x, count in zip(ours.time, ours["e.x"], ours["e.count"], strict=True):
        row = at_ends[round(time, 9)]
        assert (x, count) == (pytest.approx(row["x"], abs=1e-12), row["count"])


def test_coupled_fmus_agree_with_the_formula(tmp_path: Path) -> None:
    """Two lags in a ring, x_i ← x_i + h (x_j − x_i) under Jacobi, one of them twice as fast under multirate."""
    path = build(tmp_path, "minimal2")
    fmu = {name: Fmu(path, name=name, start={"y": start}) for name, start in (("a", 1.0), ("b", 0.0))}
    system = System(fmu, [("a.y", "b.u"), ("b.y", "a.u")])
    x = np.array([1.0, 0.0])
    rows = [x]
    for _ in range(20):
        x = x + 0.1 * (x[::-1] - x)
        rows.append(x)
    result = run(system, jacobi(system, 0.1), stop=2.0)
    assert result.values == pytest.approx(np.array(rows), abs=1e-15)
    assert run(system, multirate(system, 0.1, multiples={"a": 2}), stop=2.0).complete


def test_iterative_master_on_fmus_with_states(tmp_path: Path) -> None:
    """Integrators in a ring with feedback −1: implicit iteration converges; saved states start each sweep."""
    path = build(tmp_path, "feedthrough2")
    fixed = {"int_in": 0, "bool_in": 0, "enum_in": 1}
    system = System(
        {"p": Fmu(path, start=fixed), "q": Fmu(path, start=fixed | {"integral": 1.0})},
        [("p.integral", "q.real_in"), ("q.integral", "p.real_in")],
    )
    explicit = run(system, gauss_seidel(system, 0.01), stop=1.0)
    iterated = run(system, iterative(system, 0.01, coupling=Hold(1)), stop=1.0)
    assert explicit["p.integral"][-1] == pytest.approx(np.sinh(1.0), rel=2e-2)
    assert iterated["p.integral"][-1] == pytest.approx(np.sinh(1.0), rel=1e-4)
    assert iterated["q.integral"][-1] == pytest.approx(np.cosh(1.0), rel=1e-4)
