"""Whole runs of coupled FMUs, beside formulas and FMPy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmpy import simulate_fmu
from fmu_builder import build

from cosimo.core.errors import FileError, UnknownNameError
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile, read_result
from cosimo.formats.scenario import load
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


# ---- local variables and parameters in the rows ----------------------------------------------------------------------

LOCAL = {'name="x" valueReference="0" causality="output"': 'name="x" valueReference="0" causality="local"',
         '<Outputs><Unknown index="1" dependencies=""/></Outputs>': ""}  # fmt: skip


def lag_with_both(folder: Path) -> Path:
    """x as an output, and once more as the local variable `inside`."""
    inside = '<ScalarVariable name="inside" valueReference="0"><Real/></ScalarVariable>\n  </ModelVariables>'
    return build(folder, "lag2", file="both.fmu", changes={"</ModelVariables>": inside})


@pytest.mark.parametrize("options", [{}, {"isolate": True}, {"engine": EngineOptions("reference")}])
def test_local_variables_and_parameters_are_recorded_by_name(tmp_path: Path, options: dict[str, Any]) -> None:
    engine = {name: value for name, value in options.items() if name == "engine"}
    system = System(
        {"lag": Fmu(lag_with_both(tmp_path), parameters={"gain": 3.0}, isolate=bool(options.get("isolate")))}
    )
    master, output = jacobi(system, 0.1), tmp_path / "rows.csv"
    run(system, master, stop=1.0, output=ResultFile(output, variables=["lag.x", "lag.inside", "lag.g*"]), **engine)
    rows, plain = read_result(output), run(system, master, stop=1.0)
    assert rows.names == ("lag.x", "lag.gain", "lag.inside")
    assert np.array_equal(rows["lag.x"], plain["lag.x"])
    assert np.array_equal(rows["lag.inside"], plain["lag.x"])
    assert set(rows["lag.gain"]) == {3.0}
    assert system.outputs == ("lag.x",)


def test_a_pattern_means_outputs_and_inputs_first(tmp_path: Path) -> None:
    system = System({"lag": Fmu(lag_with_both(tmp_path))})
    assert system.observing(["lag.*"]) is system
    assert system.observing(["lag.i*"]).outputs == ("lag.x", "lag.inside")
    assert "lag.inside" in system.observable


def test_what_is_only_recorded_has_no_say_in_the_length_of_steps(tmp_path: Path) -> None:
    one = System({"f": Fmu(build(tmp_path, "feedthrough2"))}, inputs={"f.real_in": np.sin})
    further = one.observing(one.observable)
    assert len(further.outputs) > len(one.outputs)
    assert further.units["f"].derivatives() == one.units["f"].derivatives()
    assert set(further.units["f"].outputs) - set(one.units["f"].outputs) <= set(further.units["f"].discrete_outputs)


def test_a_run_that_records_only_the_time_says_so(tmp_path: Path) -> None:
    system = System({"lag": Fmu(build(tmp_path, "lag2", changes=LOCAL))})
    result = run(system, jacobi(system, 0.1), stop=1.0)
    assert [str(warned) for warned in result.warnings] == [
        "t = 0: only the time is recorded: no unit has outputs; record local variables with --variable, such as 'lag.x'"
    ]
    with pytest.raises(UnknownNameError, match=r"unknown variable to record 'lag\.gian'; did you mean 'lag\.gain'"):
        run(system, jacobi(system, 0.1), stop=1.0, output=ResultFile(tmp_path / "r.csv", variables=["lag.gian"]))
    assert system.observing(["lag.x"]).outputs == ("lag.x",)


def test_a_scenario_may_list_local_variables(tmp_path: Path) -> None:
    text = '[units.lag]\nfmu = "both.fmu"\n'
    lag_with_both(tmp_path)
    (tmp_path / "s.toml").write_text(f'step-size = 0.1\nstop-time = 1.0\noutputs = ["lag.inside"]\n{text}')
    scenario = load(tmp_path / "s.toml")
    assert scenario.outputs == ("lag.inside",)
    (tmp_path / "t.toml").write_text(f'step-size = 0.1\nstop-time = 1.0\noutputs = ["lag.outside"]\n{text}')
    with pytest.raises(FileError, match=r"unknown variable to record 'lag\.outside'"):
        load(tmp_path / "t.toml")


def test_arrays_are_read_whole(tmp_path: Path) -> None:
    system = System({"a": Fmu(build(tmp_path, "arrays3"))})
    assert system.observing(["a.offset[2]"]).outputs == (*system.outputs, "a.offset[1]", "a.offset[2]")
    assert system.observing(["a.offset[*]"]).outputs == (*system.outputs, "a.offset[1]", "a.offset[2]")
