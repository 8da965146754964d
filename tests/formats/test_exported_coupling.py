"""A whole coupling as one FMU: the same bits as a run, in another tool; what it shows, saves, refuses and says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import fmpy
import numpy as np
import pytest
from fmpy.fmi1 import FMICallException
from fmpy.fmi2 import FMU2Slave
from fmpy.validation import validate_fmu
from fmu_builder import ENDING, build
from hybrid import build_model

import cosimo as co
import processes
from cosimo.core.errors import ConfigurationError, OutputError, UnknownNameError
from cosimo.core.system import Connection, System, Table
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.formats.export import export_coupling, export_ssp, export_system
from cosimo.formats.scenario import Scenario
from cosimo.masters import Convergence, gauss_seidel, iterative, jacobi, multirate, strang
from cosimo.units import StateSpace
from cosimo.units.fmi.archive import platform_folders
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.model_exchange import Solver

H = 1e-3
PLATFORM, FOLDER = platform_folders(3)[0], platform_folders(2)[0]
UNKNOWN = PLATFORM[:-5] + "beos!"
"""A platform with a name of the same length."""
COMMAND = (sys.executable, "-m", "cosimo.cli")
BOTH = pytest.mark.parametrize("fmi", [2, 3])


def two_mass(folder: Path, fmi: int = 2) -> System:
    """The two masses as FMUs."""
    system = co.problems.two_mass()
    files = export_system(system, folder / f"units{fmi}", fmi=fmi)  # type: ignore[arg-type]
    units = {name: Fmu(file, name=name) for name, file in files.items()}
    return System(units, system.connections, inputs=system.inputs, name="two masses")


def rows_of(path: Path, names: tuple[str, ...], stop: float, step: float, **more: Any) -> np.ndarray:
    """What FMPy, as the importer, records at every step."""
    found = fmpy.simulate_fmu(str(path), stop_time=stop, step_size=step, output_interval=step, **more)
    return np.array([found[name] for name in names]).T


def assert_same(path: Path, system: System, master: co.Master, stop: float = 0.2) -> None:
    result = co.run(system, master, stop=stop)
    rows = rows_of(path, result.names, stop, master.step)
    assert len(rows) == len(result.time)
    assert np.array_equal(rows, np.array([result[name] for name in result.names]).T)


MASTERS = {
    "jacobi": jacobi,
    "gauss-seidel": gauss_seidel,
    "strang": strang,
    "hold1": lambda system, step: jacobi(system, step, coupling=Hold(1)),
    "two sweeps": lambda system, step: iterative(system, step, sweeps=2),
    "converged": lambda system, step: iterative(system, step, sweeps=Convergence(1e-9)),
    "multirate": lambda system, step: multirate(system, step, multiples={"one": 2}),
}


@BOTH
@pytest.mark.parametrize("master", MASTERS)
@pytest.mark.one_in(2)
def test_the_same_bits_as_a_run(tmp_path: Path, master: str, fmi: Any) -> None:
    system = two_mass(tmp_path, fmi)
    made = MASTERS[master](system, H)
    path = export_coupling(system, tmp_path / "coupling.fmu", master=made, fmi=5 - fmi)
    assert_same(path, system, made)


def test_the_same_bits_for_linear_units_and_a_compensated_master(tmp_path: Path) -> None:
    system = co.problems.two_mass()
    master = co.compensate(system, jacobi(system, step=4e-3)).master
    assert master.mixers
    assert_same(export_coupling(system, tmp_path / "coupling.fmu", master=master), system, master, stop=0.4)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_the_same_bits_beside_a_constant_input(tmp_path: Path, order: int) -> None:
    """A polynomial through equal samples is that number, without slopes of the size of rounding."""
    unit = StateSpace([[-1.1, 0.3], [0.2, -0.7]], [[0.4], [0.9]], [[1.0, 0.5]], initial=[0.3, -0.2])
    system = System({"a": unit, "b": unit}, [("a.y1", "b.u1")], inputs={"a.u1": 0.7})
    master = jacobi(system, 0.03, coupling=Hold(order))
    path = export_coupling(system, tmp_path / "c.fmu", master=master)
    assert_same(path, system, master, stop=3.0)
    reference = co.run(system, master, stop=3.0, engine=EngineOptions(kind="reference"))
    assert np.array_equal(reference.to_numpy(), co.run(system, master, stop=3.0).to_numpy())


def test_it_keeps_the_standard_and_needs_no_python(tmp_path: Path) -> None:
    for fmi in (2, 3):
        path = export_coupling(
            two_mass(tmp_path), tmp_path / f"{fmi}.fmu", master=jacobi(two_mass(tmp_path), H), fmi=fmi
        )  # type: ignore[arg-type]
        assert validate_fmu(str(path)) == []
        description = fmpy.read_model_description(str(path))
        assert description.coSimulation.canGetAndSetFMUstate
        assert description.defaultExperiment.stepSize == repr(H)
        with zipfile.ZipFile(path) as archive:
            library = archive.extract(
                next(n for n in archive.namelist() if n.startswith("binaries/")), tmp_path / str(fmi)
            )
        needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
        assert "python" not in needed
        assert "stdc++" not in needed


def test_the_same_coupling_gives_the_same_bytes(tmp_path: Path) -> None:
    system = two_mass(tmp_path)
    files = [export_coupling(system, tmp_path / name, master=jacobi(system, H)) for name in ("a.fmu", "b.fmu")]
    assert files[0].read_bytes() == files[1].read_bytes()
    other = export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 2 * H))
    tokens = {fmpy.read_model_description(str(path)).guid for path in (*files, other)}
    assert len(tokens) == 2


def test_nested_twice(tmp_path: Path) -> None:
    """A coupling inside a coupling inside a coupling, each with a unit of its own beside it."""
    inner = two_mass(tmp_path)
    path = export_coupling(inner, tmp_path / "coupling.fmu", master=jacobi(inner, H))
    for depth in (1, 2):
        lag = StateSpace([[-20.0 * depth]], [[20.0 * depth]], [[1.0]], inputs=("u",), outputs=("y",))
        units = {"inner": Fmu(path, name="inner"), "lag": lag}
        seen = next(name for name in units["inner"].outputs if name.endswith("two.x"))
        system = System(units, [(f"inner.{seen}", "lag.u")], name="outer")
        master = gauss_seidel(system, 2 * H)
        path = export_coupling(system, tmp_path / f"nested{depth}.fmu", master=master)
        assert_same(path, system, master)
    alone = co.run(inner, jacobi(inner, H), stop=0.2)
    deepest = rows_of(path, ("inner.inner.two.x",), 0.2, 2 * H)
    assert np.array_equal(deepest[:, 0], alone["two.x"][::2])


# ---- connectors ------------------------------------------------------------------------------------------------------


def driven() -> System:
    """A unit driven by a table, another by a number, a third by nothing but its start value."""
    lag = {"inputs": ("u",), "outputs": ("y",)}
    units = {name: StateSpace([[-3.0]], [[2.0]], [[1.0]], **lag) for name in "ab"}
    units["c"] = StateSpace([[-1.0]], [[1.0, 0.5]], [[1.0]], inputs=("u", "v"), outputs=("y",), start={"v": 0.25})
    table = Table([0.0, 0.05, 0.05, 0.2], [0.0, 1.0, 3.0, -1.0])
    return System(units, [Connection("a.y", "c.u", gain=2.0, offset=0.5)], inputs={"a.u": table, "b.u": 1.5})


@pytest.mark.parametrize("interpolation", ["linear", "hold"])
def test_tables_stay_inside_and_numbers_become_inputs(tmp_path: Path, interpolation: Any) -> None:
    system = driven()
    times, values = np.array([0.0, 0.03, 0.0305, 0.1]), np.array([0.0, 1.0, 3.0, -1.0])
    system = System(
        system.units,
        system.connections,
        inputs={**system.inputs, "a.u": Table(times, values, interpolation=interpolation)},
    )
    master = jacobi(system, H)
    path = export_coupling(system, tmp_path / "driven.fmu", master=master)
    assert_same(path, system, master)
    shown = {v.name: (v.causality, v.start) for v in fmpy.read_model_description(str(path)).modelVariables}
    assert shown == {
        "b.u": ("input", "1.5"),
        "c.v": ("input", "0.25"),
        **{f"{unit}.y": ("output", None) for unit in "abc"},
    }


def test_what_the_importer_sets_is_what_a_run_is_given(tmp_path: Path) -> None:
    system, k = driven(), np.arange(201)
    master = jacobi(system, H)
    path = export_coupling(system, tmp_path / "driven.fmu", master=master, connectors=["a.u", "c.*"])
    shown = {v.name: v.causality for v in fmpy.read_model_description(str(path)).modelVariables}
    assert shown == {"a.u": "input", "c.v": "input", "c.y": "output"}
    wave = np.sin(k * 0.1)
    live = Live(path)
    live.initialise({"a.u": wave[0], "c.v": 2.0})
    rows = [live["c.y"]]
    for value, time in zip(wave, k * H, strict=True):
        live.set({"a.u": value})
        live.fmu.doStep(time, H)
        rows.append(live["c.y"])
    held = Table(k * H, wave, interpolation="hold")
    changed = System(
        system.units, system.connections, inputs={"a.u": lambda t: held(t + H / 4), "b.u": 1.5, "c.v": 2.0}
    )
    result = co.run(changed, jacobi(changed, H), stop=0.201)
    assert np.array_equal(rows, result["c.y"])


def test_parameters_and_local_variables_of_units(tmp_path: Path) -> None:
    """Of all types; a local variable is an output of the coupling."""
    masses = two_mass(tmp_path)
    units = {"two": masses.units["two"], "f": Fmu(build(tmp_path, "feedthrough2"), name="f", parameters={"gain": 3.0})}
    system = System(units, [("two.x", "f.real_in")], inputs={"f.int_in": 5.0})
    master = jacobi(system, 0.1)
    shown = ["f.gain", "f.*_out", "f.integral", "two.q1", "two.x", "f.int_in"]
    path = export_coupling(system, tmp_path / "c.fmu", master=master, connectors=shown)
    causality = {v.name: v.causality for v in fmpy.read_model_description(str(path)).modelVariables}
    assert causality == {
        "f.gain": "parameter",
        "f.int_in": "input",
        "two.q1": "output",
        "two.x": "output",
        **{f"f.{name}": "output" for name in ("real_out", "int_out", "bool_out", "enum_out", "integral")},
    }
    names = ("f.real_out", "f.integral", "f.int_out", "f.bool_out", "two.q1")
    for given in ({}, {"f.gain": 5.0}):
        changed = system.with_values(given).observing(["two.q1"])
        result = co.run(changed, jacobi(changed, 0.1), stop=1.0)
        rows = rows_of(path, names, 1.0, 0.1, start_values=given)
        assert np.array_equal(rows, np.array([result[name] for name in names]).T)
    assert result["f.int_out"][-1] == 5.0
    assert not np.array_equal(rows[:, 0], co.run(system, master, stop=1.0)["f.real_out"])


def test_an_algebraic_loop_is_solved_at_the_start(tmp_path: Path) -> None:
    """Substitution contracts, or Newton's method takes over; also for values that the export has not seen."""
    for gain in (-0.5, -4.0):
        ends = {"inputs": ("u", "e"), "outputs": ("y",)}
        units = {
            "a": StateSpace([[-1.0]], [[1.0, 0.0]], [[1.0]], [[0.0, 0.0]], initial=[1.0], **ends),
            "b": StateSpace([[-1.0]], [[0.0, 0.0]], [[0.5]], [[gain, 1.0]], initial=[2.0], **ends),
            "c": StateSpace([[-1.0]], [[0.0, 0.0]], [[0.5]], [[1.0, 0.0]], initial=[1.0], **ends),
        }
        fixed = {"a.u": 1.0, "a.e": 0.0, "c.e": 0.0}
        links = [("b.y", "c.u"), ("c.y", "b.u")]
        system = System(units, links, inputs={**fixed, "b.e": 0.7})
        master = jacobi(system, H)
        path = export_coupling(system, tmp_path / "loop.fmu", master=master)
        assert_same(path, system, master, stop=0.01)
        live = Live(path)
        live.initialise({"b.e": -3.0})
        changed = System(units, links, inputs={**fixed, "b.e": -3.0})
        wanted = co.run(changed, jacobi(changed, H), stop=H)["b.y"][0]
        assert live["b.y"] == pytest.approx(wanted, rel=1e-12)


# ---- the life of an instance -----------------------------------------------------------------------------------------


class Live:
    """The FMU in FMPy, function by function; `said` is what it logged."""

    def __init__(self, path: Path, folder: Path | None = None) -> None:
        self.description = fmpy.read_model_description(str(path))
        self.said: list[str] = []
        self.folder = folder or Path(fmpy.extract(str(path), unzipdir=tempfile.mkdtemp(dir=path.parent)))
        shared = self.description.coSimulation.modelIdentifier
        self.fmu = FMU2Slave(
            guid=self.description.guid, unzipDirectory=str(self.folder), modelIdentifier=shared, instanceName="it"
        )
        self.fmu.instantiate(callbacks=self._callbacks())
        self.references = {v.name: v.valueReference for v in self.description.modelVariables}

    def _callbacks(self) -> Any:
        from fmpy import calloc, free
        from fmpy.fmi2 import (
            fmi2CallbackAllocateMemoryTYPE,
            fmi2CallbackFreeMemoryTYPE,
            fmi2CallbackFunctions,
            fmi2CallbackLoggerTYPE,
        )

        self._log = fmi2CallbackLoggerTYPE(lambda env, name, status, category, text: self.said.append(text.decode()))
        found = fmi2CallbackFunctions()
        found.logger = self._log
        found.allocateMemory, found.freeMemory = (
            fmi2CallbackAllocateMemoryTYPE(calloc),
            fmi2CallbackFreeMemoryTYPE(free),
        )
        return found

    def initialise(self, values: dict[str, float] | None = None) -> None:
        self.fmu.setupExperiment(startTime=0.0)
        self.set(values or {})
        self.fmu.enterInitializationMode()
        self.fmu.exitInitializationMode()

    def set(self, values: dict[str, float]) -> None:
        for name, value in values.items():
            self.fmu.setReal([self.references[name]], [value])

    def __getitem__(self, name: str) -> float:
        return float(self.fmu.getReal([self.references[name]])[0])

    def refuses(self, call: Any, *words: str) -> None:
        with pytest.raises(FMICallException):
            call()
        for word in words:
            assert word in self.said[-1], self.said[-1]


@pytest.mark.parametrize("serialised", [False, True])
@pytest.mark.parametrize("master", ["jacobi", "hold1", "converged"])
def test_a_saved_state_is_gone_on_from(tmp_path: Path, master: str, serialised: bool) -> None:
    system = two_mass(tmp_path)
    path = export_coupling(system, tmp_path / "c.fmu", master=MASTERS[master](system, H))
    live = Live(path)
    live.initialise()

    def on(first: int, count: int) -> list[tuple[float, ...]]:
        found = []
        for k in range(first, first + count):
            live.fmu.doStep(k * H, H)
            found.append(tuple(live[name] for name in system.outputs))
        return found

    on(0, 5)
    state = live.fmu.getFMUstate()
    ahead = on(5, 10)
    if serialised:
        kept = live.fmu.serializeFMUstate(state)
        live.fmu.freeFMUstate(state)
        state = live.fmu.deSerializeFMUstate(kept)
    live.fmu.setFMUstate(state)
    assert on(5, 10) == ahead
    assert len(set(ahead)) == 10
    live.fmu.freeFMUstate(state)
    live.fmu.reset()
    live.initialise()
    assert on(0, 15)[5:] == ahead
    live.fmu.terminate()
    live.fmu.freeInstance()


def test_saved_states_are_freed_before_the_units(tmp_path: Path) -> None:
    """Of some FMUs that use the instance for it, the other order is a crash."""
    system = System({"a": Fmu(build(tmp_path, "feedthrough2"), name="a")})
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=iterative(system, 0.1, sweeps=2)))
    live.initialise()
    live.fmu.doStep(0.0, 0.1)
    live.fmu.terminate()
    live.fmu.freeInstance()
    assert live.said == []


@pytest.mark.parametrize("set_before", [False, True])
def test_a_state_from_before_the_start_is_gone_back_to(tmp_path: Path, set_before: bool) -> None:
    """With the parameters as they were set by then, or not yet."""
    system = System({"lag": Fmu(build(tmp_path, "feedthrough2"), name="lag", start={"real_in": 2.0})})
    connectors = ["lag.real_in", "lag.real_out", "lag.gain"]
    path = export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1), connectors=connectors)
    live, other = Live(path), Live(path)
    first, second = ({"lag.gain": 3.0}, {"lag.gain": 5.0})
    if set_before:
        live.set(first)
    before = live.fmu.getFMUstate()
    live.set(second)
    live.initialise()
    live.fmu.doStep(0.0, 0.3)
    assert live["lag.real_out"] == 10.0
    live.fmu.terminate()
    live.fmu.setFMUstate(before)
    live.initialise()
    other.initialise(first if set_before else {})
    for one in (live, other):
        one.fmu.doStep(0.0, 0.3)
    assert live["lag.real_out"] == other["lag.real_out"] == (6.0 if set_before else 2.0)


def test_a_failed_coupling_goes_on_from_a_saved_state(tmp_path: Path) -> None:
    system = System({"a": Fmu(build(tmp_path, "feedthrough2"), name="a", start={"real_in": 1.0})})
    path = export_coupling(
        system, tmp_path / "c.fmu", master=jacobi(system, 0.1), connectors=["a.real_in", "a.real_out", "a.int_in"]
    )
    live = Live(path)
    live.initialise()
    live.fmu.doStep(0.0, 0.1)
    state = live.fmu.getFMUstate()
    live.set({"a.int_in": 0.5})
    live.refuses(lambda: live.fmu.doStep(0.1, 0.1), "unit 'a' was given a value that the type of its variable cannot")
    live.refuses(lambda: live.fmu.doStep(0.1, 0.1), "failed in an earlier step")
    live.refuses(live.fmu.getFMUstate, "after a failed step")
    live.fmu.setFMUstate(state)
    live.fmu.doStep(0.1, 0.1)
    assert live["a.real_out"] == 1.0


def test_bytes_that_are_no_state_are_refused(tmp_path: Path) -> None:
    system = two_mass(tmp_path)
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, H)))
    live.initialise()
    kept = live.fmu.serializeFMUstate(live.fmu.getFMUstate())
    for damaged in (kept[:-9], b"x" * len(kept), kept + b"x"):
        live.refuses(lambda damaged=damaged: live.fmu.deSerializeFMUstate(damaged), "not those of a saved state")


def test_importers_may_add_up_a_long_time(tmp_path: Path) -> None:
    """Steps of 10 µs from 10,000 s on: what adding up rounds is soon more than a thousandth of a step."""
    system, step, start, count = two_mass(tmp_path), 1e-5, 1e4, 100_000
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, step)))
    live.fmu.setupExperiment(startTime=start)
    live.fmu.enterInitializationMode()
    live.fmu.exitInitializationMode()
    live.fmu.doStep(start, count * step)
    time = start
    for _ in range(count):
        time += step
    assert abs(time - (start + count * step)) > 1e-3 * step
    live.fmu.doStep(time, step)
    live.refuses(lambda: live.fmu.doStep(time + 1.2 * step, step), "and the step begins at t = 10001.0000")
    live.refuses(lambda: live.fmu.doStep(float("nan"), step), "begins at t = nan")


def test_logging_is_switched_on_and_off(tmp_path: Path) -> None:
    system = System({"pump": Fmu(build(tmp_path, "awkward2"), name="pump", parameters={"fail_at": 0.55})})
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1)))
    live.fmu.setDebugLogging(True, ["logAll"])
    live.initialise()
    live.fmu.doStep(0.0, 0.2)
    said = len(live.said)
    live.fmu.setDebugLogging(False, [])
    live.fmu.doStep(0.2, 0.2)
    assert len(live.said) == said
    live.refuses(lambda: live.fmu.doStep(0.4, 0.2), "pump ran dry")


def test_a_unit_without_states_leaves_the_coupling_without(tmp_path: Path) -> None:
    system = System({"a": Fmu(build(tmp_path, "awkward2"), name="a")})
    path = export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1))
    assert not fmpy.read_model_description(str(path)).coSimulation.canGetAndSetFMUstate
    live = Live(path)
    live.initialise()
    live.refuses(live.fmu.getFMUstate, "canGetAndSetFMUstate")


def test_a_communication_step_is_any_number_of_macro_steps(tmp_path: Path) -> None:
    system = two_mass(tmp_path)
    master = jacobi(system, H)
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=master))
    live.initialise()
    time, rows = 0.0, []
    for count in (1, 3, 10, 6):
        live.fmu.doStep(time, count * H)
        time += count * H  # added up, as importers do
        rows.append(live["two.x"])
    assert rows == [co.run(system, master, stop=0.02)["two.x"][k] for k in (1, 4, 14, 20)]
    live.refuses(lambda: live.fmu.doStep(time, 1.5 * H), "0.0015 s is no multiple of the macro step 0.001 s")
    live.refuses(lambda: live.fmu.doStep(time, 0.0), "no multiple")
    live.refuses(lambda: live.fmu.doStep(0.0, H), "at t = 0.02", "begins at t = 0;")
    live.refuses(lambda: live.fmu.setReal([live.references["two.x"]], [1.0]), "cannot be set")
    live.refuses(lambda: live.fmu.getReal([99]), "value reference 99")


AWKWARD = {
    "fail_at": ("unit 'pump' returned fmi2Error from fmi2DoStep at t = 0.3; it says: pump ran dry at t = 0.400",),
    "fatal_at": ("unit 'pump' returned fmi2Fatal from fmi2DoStep at t = 0.3; it says: memory is gone",),
    "nan_at": ("pump.y became nan at t = 0.4",),
}


@pytest.mark.parametrize("fault", AWKWARD)
def test_errors_name_the_unit_and_the_time(tmp_path: Path, fault: str) -> None:
    unit = Fmu(build(tmp_path, "awkward2"), name="pump", parameters={fault: 0.35})
    system = System({"pump": unit})
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1)))
    live.initialise()
    live.fmu.doStep(0.0, 0.3)
    live.refuses(lambda: live.fmu.doStep(0.3, 0.1), *AWKWARD[fault])
    live.refuses(lambda: live.fmu.doStep(0.4, 0.1), "failed in an earlier step")
    live.fmu.freeInstance()


def test_a_unit_that_ends_the_simulation_ends_the_step_early(tmp_path: Path) -> None:
    unit = Fmu(build(tmp_path, "awkward2"), name="pump", parameters={"end_at": 0.35})
    system = System({"pump": unit})
    live = Live(export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1)))
    live.initialise()
    with pytest.raises(FMICallException, match="discard"):
        live.fmu.doStep(0.0, 1.0)
    assert live.said[-1] == "unit 'pump' ended the simulation at t = 0.3"
    assert live.fmu.getBooleanStatus(3)
    assert live.fmu.getRealStatus(2) == pytest.approx(0.3, rel=1e-15)
    live.refuses(lambda: live.fmu.doStep(0.3, 0.1), "ended the simulation at t = 0.3")


def test_damaged_files_are_refused_by_name(tmp_path: Path) -> None:
    system = two_mass(tmp_path)
    path = export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, H))
    good = Live(path)
    recorded = good.folder / "resources" / "coupling.bin"
    whole = recorded.read_bytes()
    for content in (whole[:40], whole[:200], whole[:-3], whole.replace(b"couple", b"kouple")):
        recorded.write_bytes(content)
        with pytest.raises(Exception, match="instantiate"):
            Live(path, good.folder)
    recorded.write_bytes(whole)
    other = Path(shutil.copytree(good.folder, tmp_path / "other"))
    next(other.glob(f"resources/units/1/binaries/{FOLDER}/*")).unlink()  # not of a folder whose libraries are loaded
    silent = Live.__new__(Live)
    with pytest.raises(Exception, match="instantiate"):
        silent.__init__(path, other)  # type: ignore[misc]
    assert "unit 'one' cannot be loaded" in silent.said[-1]
    recorded = other / "resources" / "coupling.bin"
    recorded.write_bytes(whole.replace(PLATFORM.encode(), UNKNOWN.encode()))
    with pytest.raises(Exception, match="instantiate"):
        silent.__init__(path, other)  # type: ignore[misc]
    before, _, has = silent.said[-1].partition("; it has: ")
    assert before.endswith(f"unit 'one' has no library for this platform ({PLATFORM})")
    assert UNKNOWN in has  # beside those of other systems, where cosimo has them
    assert ". Export the coupling again" in has


# ---- what cannot be exported -----------------------------------------------------------------------------------------


def test_units_that_need_python_are_refused_by_name(tmp_path: Path) -> None:
    nonlinear = co.problems.find("oscillator-nonlinear")
    system = nonlinear.system()
    with pytest.raises(ConfigurationError, match="unit 'two' cannot be part of an FMU: it is of kind PythonUnit"):
        export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, nonlinear.step))
    events = System({"e": Fmu(build(tmp_path, "events3"), name="e")})
    with pytest.raises(ConfigurationError, match="unit 'e' cannot be part of an FMU: it has event mode"):
        export_coupling(events, tmp_path / "c.fmu", master=jacobi(events, 0.1))
    plain = driven()
    python = System(plain.units, plain.connections, inputs={"a.u": np.sin, "b.u": 1.5})
    with pytest.raises(ConfigurationError, match=r"external input a\.u is a function in Python.*connector"):
        export_coupling(python, tmp_path / "c.fmu", master=jacobi(python, H))
    assert not (tmp_path / "c.fmu").exists()


def test_connectors_that_do_not_exist(tmp_path: Path) -> None:
    system = driven()
    for name, problem, words in (
        ("a.z", UnknownNameError, "connector 'a.z'"),
        ("c.u", ConfigurationError, "c.u is fed by a.y"),
    ):
        with pytest.raises(problem, match=words):
            export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, H), connectors=[name])


def test_an_fmu_without_a_library_for_this_platform(tmp_path: Path) -> None:
    path = build(tmp_path, "lag2")
    foreign = tmp_path / "foreign.fmu"
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(foreign, "w") as other:
        for name in archive.namelist():
            other.writestr(name.replace(FOLDER, "darwin64").replace(ENDING, ".dylib"), archive.read(name))
    system = System({"lag": Fmu(foreign, name="lag")})
    with pytest.raises(ConfigurationError, match="darwin64"):
        export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1))


def test_libraries_of_all_platforms_go_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what their headers say; the coupling itself is for the platforms that all of its FMUs have."""
    windows = b"MZ" + bytes(58) + b"\x40\0\0\0" + b"PE\0\0" + b"\x64\x86" + bytes(20)
    installed = tmp_path / "_fmu"
    installed.mkdir()
    here = resources.files("cosimo.formats").joinpath("_fmu", "coupling.so").read_bytes()
    (installed / "coupling.so").write_bytes(here)
    (installed / "coupling.dll").write_bytes(windows)
    monkeypatch.setattr("cosimo.formats.export.resources.files", lambda _: tmp_path)
    both, one = build(tmp_path, "lag2"), build(tmp_path, "feedthrough2")
    with zipfile.ZipFile(both, "a") as archive:
        archive.writestr("binaries/win64/lag2.dll", windows)
    for units, expected in (([both], {"linux64", "win64"}), ([both, one], {"linux64"})):
        system = System({path.stem: Fmu(path, name=path.stem) for path in units}, name="it")
        path = export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1))
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        assert {name.split("/")[1] for name in names if name.startswith("binaries/")} == expected
        assert "resources/units/1/binaries/win64/lag2.dll" in names
        assert_same(path, system, jacobi(system, 0.1), stop=1.0)


def test_two_fmus_of_one_name_and_one_fmu_twice(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    paths = [build(tmp_path / "here", "lag2"), build(tmp_path / "there", "feedthrough2")]
    same = tmp_path / "there" / paths[0].name
    paths[1].rename(same)
    units = {
        "a": Fmu(paths[0], name="a"),
        "b": Fmu(paths[0], name="b", parameters={"gain": 7.0}),
        "c": Fmu(same, name="c"),
    }
    system = System(units)
    master = jacobi(system, 0.1)
    path = export_coupling(system, tmp_path / "c.fmu", master=master)
    assert_same(path, system, master, stop=1.0)
    with zipfile.ZipFile(path) as archive:
        assert len([name for name in archive.namelist() if name.endswith("modelDescription.xml")]) == 3


def test_a_long_path_and_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    deep = tmp_path / "/".join(["a" * 60] * 5)
    deep.mkdir(parents=True)
    assert len(str(deep)) > 300
    system = two_mass(deep)
    master = jacobi(system, H)
    path = export_coupling(system, deep / "coupling.fmu", master=master)
    if sys.platform == "win32":  # FMPy makes the long folder the current one, and Wine 8 finds no new libraries then
        import_module("pydantic")
    live = Live(path, Path(fmpy.extract(str(path), unzipdir=str(deep / "ä %20 folder"))))
    live.initialise()
    live.fmu.doStep(0.0, 0.1)
    assert live["two.x"] == co.run(system, master, stop=0.1)["two.x"][-1]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        export_coupling(system, tmp_path / "file" / "c.fmu", master=master)


def test_an_fmu_for_model_exchange_is_inside_with_its_solver(tmp_path: Path) -> None:
    for version, solver in ((2, "cvode"), (3, "rk4")):
        ball = Fmu(build_model(tmp_path, "BALL", version), name="ball", options=FmuOptions(solver=Solver(solver)))
        linear = Fmu(build_model(tmp_path, "LINEAR", version), name="linear", options=FmuOptions(solver=Solver(solver)))
        system = System({"ball": ball, "linear": linear}, inputs={"linear.u": 1.0})
        path = export_coupling(
            system,
            tmp_path / f"{solver}.fmu",
            master=jacobi(system, 0.05),
            connectors=["ball.h", "linear.x", "linear.y"],
        )
        seen = system.observing(["ball.h", "linear.x"])
        result = co.run(seen, jacobi(seen, 0.05), stop=2.0)
        names = ("ball.h", "linear.x", "linear.y")
        assert np.array_equal(rows_of(path, names, 2.0, 0.05), np.array([result[name] for name in names]).T)
        assert np.abs(np.diff(np.sign(np.diff(result["ball.h"])))).any()  # it bounced


def test_an_fmu_of_fmi_1_is_inside(tmp_path: Path) -> None:
    system = System({"lag": Fmu(build(tmp_path, "lag1"), name="lag")})
    master = jacobi(system, 0.1)
    assert_same(export_coupling(system, tmp_path / "c.fmu", master=master), system, master, stop=1.0)


# ---- the command line ------------------------------------------------------------------------------------------------


def cosimo(*words: str, cwd: Path, **more: Any) -> Any:
    return processes.run([*COMMAND, *words], cwd=cwd, capture_output=True, text=True, **more)


def test_the_command_line(tmp_path: Path) -> None:
    done = cosimo(
        "export", "two-mass", "--step-size", "2ms", "--master", "gauss-seidel", "--as-fmu", "two.fmu", cwd=tmp_path
    )
    assert (done.stdout, done.stderr, done.returncode) == ("two.fmu\n", "", 0)
    scenario = co.load("two-mass")
    assert_same(tmp_path / "two.fmu", scenario.system, gauss_seidel(scenario.system, 2e-3))
    with zipfile.ZipFile(tmp_path / "two.fmu") as archive:
        assert {"extra/cosimo/coupling.json", "extra/cosimo/verdict.json"} <= {*archive.namelist()}
        assert b'"master": "gauss-seidel' in archive.read("extra/cosimo/coupling.json")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--as-fmu two.fmu -o other", "leave --output, --unit and --ssp out"),
        ("-o two.fmu --unit one --connector one.f", "--connector belongs to --as-fmu"),
        ("-o two.fmu --unit one --master strang", "--master belongs to --as-fmu"),
        ("", "--output or --as-fmu is missing"),
        ("--as-fmu two.fmu --fmi 4", "FMI 2 or 3, not 4"),
        ("--as-fmu two.fmu --connector one.z", "one.z"),
        ("--as-fmu no/folder/two.fmu", f"cannot write '{Path('no', 'folder', 'two.fmu')}'"),
    ],
)
def test_what_the_command_line_refuses(tmp_path: Path, words: str, said: str) -> None:
    done = cosimo("export", "two-mass", *words.split(), cwd=tmp_path)
    assert done.returncode != 0
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_console_that_cannot_be_written_to(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = processes.run(
            [*COMMAND, "export", "two-mass", "--as-fmu", "two.fmu"],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert done.returncode != 0
    assert len(done.stderr.splitlines()) == 1
    assert (tmp_path / "two.fmu").exists()


@pytest.mark.parametrize("name", ["lag.toml", "lag2.fmu", "coupling.txt", "."])
def test_nothing_is_written_over_what_is_exported(tmp_path: Path, name: str) -> None:
    build(tmp_path, "lag2")
    file = tmp_path / "lag.toml"
    file.write_text('step-size = 0.1\nstop-time = 1.0\n[units.lag]\nfmu = "lag2.fmu"\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(ConfigurationError, match=r"does not end in '\.fmu'|is part of what is exported"):
        export_coupling(co.load(file), tmp_path / name)
    if name.endswith("fmu"):
        with pytest.raises(ConfigurationError, match="is part of what is exported"):
            export_system(System({"lag2": Fmu(tmp_path / "lag2.fmu")}), tmp_path, fmi=2)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@BOTH
def test_physical_units_and_limits_are_those_of_the_units_inside(tmp_path: Path, fmi: Any) -> None:
    """So that whoever couples the coupling converts as before."""
    inside = Fmu(build(tmp_path, "feedthrough2"), name="u")
    system, shown = System({"u": inside}), ["u.real_in", "u.real_out", "u.gain", "u.int_in"]
    path = export_coupling(system, tmp_path / "c.fmu", master=jacobi(system, 0.1), fmi=fmi, connectors=shown)
    assert validate_fmu(str(path)) == []
    outside = Fmu(path)
    assert [str(outside.measure(name)) for name in shown] == ["m", "mm", "None", "None"]
    for name in shown:
        one, other = outside.variables[name], inside.variables[name.removeprefix("u.")]
        assert (one.unit, one.minimum, one.maximum) == (other.unit, other.minimum, other.maximum)
        assert one.description == other.description


@pytest.mark.parametrize("output", ["lin.toml", "lag2.fmu"])
def test_one_unit_keeps_its_inputs_and_is_written_over_nothing(tmp_path: Path, output: str) -> None:
    build(tmp_path, "lag2")
    (tmp_path / "lin.toml").write_text(
        'step-size = 0.1\n[units.lag]\nfmu = "lag2.fmu"\n[units.l]\nkind = "state-space"\nA = [[-1.0]]\nB = [[1.0]]\n'
        'C = [[1.0]]\ninitial = [0.0]\ninputs = ["a"]\noutputs = ["y"]\n[inputs]\n"l.a" = 1.5\n',
        encoding="utf-8",
    )
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    words = [*COMMAND, "export", "lin.toml", "--unit", "l", "-o"]
    done = subprocess.run([*words, output], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "is part of what is exported" in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    subprocess.run([*words, "l.fmu"], cwd=tmp_path, capture_output=True, check=True)
    started = {one.name: one.start for one in fmpy.read_model_description(str(tmp_path / "l.fmu")).modelVariables}
    assert float(started["a"]) == 1.5


def test_the_scenario_is_inside(tmp_path: Path) -> None:
    build(tmp_path, "lag2")
    file = tmp_path / "lag.toml"
    file.write_text('step-size = 0.1\nstop-time = 1.0\n[units.lag]\nfmu = "lag2.fmu"\n')
    loaded = co.load(file)
    assert isinstance(loaded, Scenario)
    path = export_coupling(loaded, tmp_path / "c.fmu")
    with zipfile.ZipFile(path) as archive:
        assert archive.read("extra/cosimo/scenario.toml") == file.read_bytes()
    assert fmpy.read_model_description(str(path)).defaultExperiment.stopTime == "1.0"
    package = export_ssp(loaded, tmp_path / "a.ssp", fmi=2, step=0.1, stop=1.0)
    other = tmp_path / "other.ssp"  # whose description has another name
    with zipfile.ZipFile(package) as archive, zipfile.ZipFile(other, "w") as renamed:
        for name in archive.namelist():
            renamed.writestr(name.replace("SystemStructure", "Main"), archive.read(name))
    for source in (package, other):
        with zipfile.ZipFile(export_coupling(co.load(source), tmp_path / "s.fmu")) as archive:
            assert b"SystemStructureDescription" in archive.read("extra/cosimo/scenario.ssd")
    later = export_coupling(loaded.changed(start=0.5), tmp_path / "later.fmu")
    assert fmpy.read_model_description(str(later)).defaultExperiment.startTime == "0.5"
