"""Periodic input clocks of FMI 3.0: ticked at their exact instants, wherever the communication points are."""

from __future__ import annotations

import math
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fmu_builder import build
from hybrid import build_model

import cosimo as co
from cosimo.core.errors import ConfigurationError, Interrupted, UnitError
from cosimo.execution.options import Adaptive, Checkpoint, EngineOptions
from cosimo.formats.export import export_ssp
from cosimo.formats.results import ResultFile, read_result
from cosimo.formats.resuming import resume
from cosimo.formats.scenario import load
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.model_exchange import Solver
from cosimo.units.fmi.variables import Clock


def ran(unit: Fmu, step: float, engine: str = "kernel", start: float = 0.0, **options: Any) -> co.Result:
    system = co.System({"a": unit}, inputs={"a.u": lambda t: 10.0 * t})
    master = co.masters.jacobi(system, step=step)
    return co.run(system, master, start=start, stop=start + 3.0, engine=EngineOptions(kind=engine), **options)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("step", [0.1, 0.125, 0.75])
def test_clocks_tick_at_their_instants(tmp_path: Path, engine: str, isolate: bool, step: float) -> None:
    found = ran(Fmu(build(tmp_path, "clocks3"), isolate=isolate), step, engine)
    for k, time in enumerate(found.time):
        exact = Fraction(step).limit_denominator(1000) * k
        ticks, slow = math.floor((exact - Fraction(1, 8)) * 4) + 1, math.floor(exact * 2) + 1
        assert found["a.count"][k] == max(ticks, 0), time
        assert found["a.slow_count"][k] == slow, time
        last = max(Fraction(1, 8) + Fraction(max(ticks, 0) - 1, 4), Fraction(slow - 1, 2))
        assert found["a.last"][k] == float(last), time  # to the bit


def test_a_tick_takes_the_input_of_its_step(tmp_path: Path) -> None:
    """With communication points on the ticks, the sample is what the step before was given: 10 (t − h)."""
    found = ran(Fmu(build(tmp_path, "clocks3"), isolate=False), 0.125)
    ticks = 0.125 + 0.25 * np.floor((found.time[1:] - 0.125) * 4)
    assert found["a.sample"][1:].tolist() == (10.0 * (ticks - 0.125)).tolist()


def test_clocks_of_one_instant_tick_in_one_event(tmp_path: Path) -> None:
    same = {'shiftDecimal="0.125"': 'shiftDecimal="0"'}
    found = ran(Fmu(build(tmp_path, "clocks3", changes=same), isolate=False), 0.25)
    assert found["a.order"].tolist() == [12 if k % 2 == 0 else 1 for k in range(13)]


def test_clocks_follow_the_start_of_the_run(tmp_path: Path) -> None:
    found = ran(Fmu(build(tmp_path, "clocks3"), isolate=False), 0.1, start=100.0)
    assert found["a.last"][-1] == 103.0
    assert (found["a.count"][-1], found["a.slow_count"][-1]) == (12, 7)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
def test_steps_that_are_made_again_tick_again(tmp_path: Path, engine: str) -> None:
    path = build(tmp_path, "clocks3")
    plain = ran(Fmu(path, isolate=False), 0.1, engine)
    system = co.System({"a": Fmu(path, isolate=False)}, inputs={"a.u": lambda t: 10.0 * t})
    master = co.masters.iterative(system, step=0.1, sweeps=3)
    found = co.run(system, master, stop=3.0, engine=EngineOptions(kind=engine))
    assert np.array_equal(found["a.count"], plain["a.count"])
    assert np.array_equal(found["a.last"], plain["a.last"])


def test_a_unit_with_fixed_steps_must_reach_its_ticks(tmp_path: Path) -> None:
    fixed = {' canHandleVariableCommunicationStepSize="true"': ""}
    unit = Fmu(build(tmp_path, "clocks3", changes=fixed), isolate=False)
    assert ran(unit, 0.125)["a.count"][-1] == 12
    said = r"unit 'a'.*the clock 'tick', which ticks at t = 0\.125, between two.*of which 0\.25 s is a multiple"
    with pytest.raises(UnitError, match=said):
        ran(unit, 0.1)


OTHERS = {
    "triggered": 'intervalVariability="triggered"',
    "countdown": 'intervalVariability="countdown"',
    "without an interval": 'intervalVariability="fixed"',
    "never": 'intervalVariability="constant" intervalDecimal="0"',
}


@pytest.mark.parametrize("case", OTHERS)
def test_clocks_that_nobody_activates_are_named(tmp_path: Path, case: str) -> None:
    periodic = 'intervalVariability="constant" intervalDecimal="0.25" shiftDecimal="0.125"'
    found = ran(Fmu(build(tmp_path, "clocks3", changes={periodic: OTHERS[case]}), isolate=False), 0.25)
    assert any("unit 'a' has input clocks that nobody activates: tick" in str(warned) for warned in found.warnings)
    assert found["a.count"][-1] == 0
    assert found["a.slow_count"][-1] == 7


def test_nobody_is_warned_where_all_tick(tmp_path: Path) -> None:
    found = ran(Fmu(build(tmp_path, "clocks3"), isolate=False), 0.25)
    assert not [warned for warned in found.warnings if "clock" in str(warned)]


def test_an_interval_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path, "clocks3", changes={'resolution="8"': 'resolution="0"'})
    with pytest.raises(ConfigurationError, match=r"clocks3\.fmu.*'slow'"):
        Fmu(path)


def test_the_next_tick_is_found_by_multiplication() -> None:
    clock = Clock("c", 1, 0.1, 0.3)
    assert clock.next(0.0, -5.0) == clock.next(0.0, 0.0) == 0.3
    assert clock.next(0.0, 0.3) == 0.3 + 0.1
    assert clock.next(0.0, 0.1 + 0.2) == 0.3 + 0.1  # 0.30000000000000004 is the first tick
    assert clock.next(0.0, 1e6) == 0.3 + 9999998 * 0.1


# ---- clocks that are connected: all units meet at an event -----------------------------------------------------------

LEVEL, DELAY = 0.375, 0.0625
LINKS = [("a.crossed", "b.sample"), ("b.done", "c.sample"), ("a.x", "b.u"), ("b.value", "c.u"), ("a.count", "c.held")]


def ticks(folder: Path, name: str, changes: dict[str, str] | None = None, **parameters: float) -> Fmu:
    return Fmu(build(folder, "ticks3", file=f"{name}.fmu", changes=changes), parameters=parameters, isolate=False)


def chain(folder: Path, **units: Any) -> co.System:
    """`a` crosses its level every 0.375 s, which makes `b` take a sample of it, which makes `c` take one of `b`."""
    own = {
        "a": lambda: ticks(folder, "a", rate=1.0, level=LEVEL),
        "b": lambda: ticks(folder, "b", delay=DELAY),
        "c": lambda: ticks(folder, "c"),
    }
    return co.System({**{name: make() for name, make in own.items() if name not in units}, **units}, LINKS)


def require_chain(found: co.Result, end: float) -> None:
    """Every row against the exact answer; at an event, the rows before and after it."""
    crossings = [LEVEL * k for k in range(1, 100) if LEVEL * k <= end]
    delays = [time + DELAY for time in crossings if time + DELAY <= end]
    events = sorted({*crossings, *delays})
    grid = [0.25 * k for k in range(round(end / 0.25) + 1)]
    expected = [(time, after) for time in sorted({*grid, *events}) for after in ([0, 1] if time in events else [1])]
    assert found.time.tolist() == [time for time, _ in expected]
    assert found.info["events"] == len(events)
    for row, (time, after) in enumerate(expected):
        count = sum(event < time or (event == time and after) for event in crossings)
        late = sum(event < time or (event == time and after) for event in delays)
        last = crossings[count - 1] if count else -1.0
        shown = {name: float(found[name][row]) for name in found.names}
        assert shown["a.x"] == (time - LEVEL * count)
        assert shown["a.count"] == shown["b.samples"] == shown["c.samples"] == shown["c.seen"] == count
        assert shown["b.stamp"] == shown["c.stamp"] == last
        assert shown["b.value"] == shown["c.value"] == (LEVEL if count else 0.0)
        assert shown["b.late"] == late
        assert shown["b.late_stamp"] == (delays[late - 1] if late else -1.0)
        assert shown["c.late"] == 0


MASTERS = {
    "jacobi": lambda system: co.masters.jacobi(system, step=0.25),
    "gauss-seidel": lambda system: co.masters.gauss_seidel(system, step=0.25, order=("c", "b", "a")),
    "iterative": lambda system: co.masters.iterative(system, step=0.25, sweeps=2),
}


@pytest.mark.parametrize("master", MASTERS)
def test_connected_clocks_tick_at_one_instant_in_all_units(tmp_path: Path, master: str) -> None:
    system = chain(tmp_path)
    require_chain(co.run(system, MASTERS[master](system), stop=3.0), 3.0)


def with_integrator(system: co.System) -> co.System:
    integrator = co.StateSpace(0.0, 1.0, 1.0, inputs=["u"], outputs=["y"])
    return co.System({**system.units, "d": integrator}, [*LINKS, ("a.x", "d.u")])


def test_nothing_is_extrapolated_across_an_event(tmp_path: Path) -> None:
    """A ramp that falls to 0 at 0.375, sampled at 0.25, at the event and at 0.5: held wherever the length changes."""
    system = with_integrator(chain(tmp_path, b=ticks(tmp_path, "b", delay=-1.0)))
    master = co.masters.jacobi(system, step=0.25, couplings={"d.u": co.couplings.Hold(1)})
    found = co.run(system, master, stop=1.0)
    assert found.time.tolist() == [0.0, 0.25, 0.375, 0.375, 0.5, 0.75, 0.75, 1.0]
    held = [0.0, 0.0, 0.25 * 0.125, 0.25 * 0.125, 0.25 * 0.125, 0.25 * 0.125 + 0.125 * 0.25]
    assert found["d.y"][:6].tolist() == held


def test_connected_clocks_of_isolated_units_tick(tmp_path: Path) -> None:
    path = build(tmp_path, "ticks3")
    given = {"a": {"rate": 1.0, "level": LEVEL}, "b": {"delay": DELAY}, "c": {}}
    units = {name: Fmu(path, name=name, parameters=values, isolate=True) for name, values in given.items()}
    system = co.System(units, LINKS)
    require_chain(co.run(system, co.masters.jacobi(system, step=0.25), stop=1.5), 1.5)


def test_the_run_says_that_it_is_made_in_plain_python(tmp_path: Path) -> None:
    system = chain(tmp_path)
    said = "units are connected by clocks: macro steps end at events and are made in plain Python"
    master = co.masters.jacobi(system, step=0.25)
    assert said in [warned.message for warned in co.run(system, master, stop=0.5).warnings]
    plain = co.run(system, master, stop=0.5, engine=EngineOptions(kind="reference"))
    assert said not in [warned.message for warned in plain.warnings]
    assert not [warned for warned in plain.warnings if "nobody activates" in warned.message and "'b'" in warned.message]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".h5", ".arrow"])
def test_files_have_the_values_before_and_after_an_event(tmp_path: Path, suffix: str) -> None:
    system = chain(tmp_path)
    path = tmp_path / f"rows{suffix}"
    co.run(system, co.masters.jacobi(system, step=0.25), stop=3.0, output=ResultFile(path))
    require_chain(read_result(path), 3.0)


def test_a_plot_draws_both_values(tmp_path: Path) -> None:
    system = chain(tmp_path)
    found = co.run(system, co.masters.jacobi(system, step=0.25), stop=0.5)
    (line,) = found.plot(["a.x"]).axes[0].lines
    assert [0.375, 0.375] in [line.get_xdata()[k : k + 2].tolist() for k in range(8)]
    assert [0.375, 0.0] in [line.get_ydata()[k : k + 2].tolist() for k in range(8)]


FORGETFUL = {' canGetAndSetFMUState="true" canSerializeFMUState="true"': ""}


def test_units_that_cannot_go_back_are_stepped_after_the_one_with_the_event(tmp_path: Path) -> None:
    system = chain(tmp_path, b=ticks(tmp_path, "forgetful", FORGETFUL, delay=DELAY))
    require_chain(co.run(system, co.masters.jacobi(system, step=0.25), stop=3.0), 3.0)
    master = co.masters.gauss_seidel(system, step=0.25, order=("b", "a", "c"))
    said = r"unit 'a' has an event at t = 0\.375, inside.*; b cannot go back there.*an order that begins with it"
    with pytest.raises(UnitError, match=said) as raised:
        co.run(system, master, stop=3.0)
    assert raised.value.result is not None
    assert raised.value.result.time[-1] == 0.25


def test_a_unit_with_fixed_steps_is_named_where_an_event_divides_them(tmp_path: Path) -> None:
    fixed = {' canHandleVariableCommunicationStepSize="true"': ""}
    system = chain(tmp_path, c=ticks(tmp_path, "fixed", fixed))
    with pytest.raises(UnitError, match=r"unit 'c' at t = 0\.25: an event at t = 0\.375 ends the macro step"):
        co.run(system, co.masters.jacobi(system, step=0.25), stop=3.0)


def test_without_early_return_the_event_is_at_the_communication_point(tmp_path: Path) -> None:
    late = {' mightReturnEarlyFromDoStep="true"': ""}
    system = chain(tmp_path, a=ticks(tmp_path, "late", late, rate=1.0, level=LEVEL))
    found = co.run(system, co.masters.jacobi(system, step=0.25), stop=0.5)
    assert found.time.tolist() == [0.0, 0.25, 0.5, 0.5]
    assert found["c.stamp"].tolist() == [-1.0, -1.0, -1.0, 0.5]


def test_an_event_that_is_found_late_after_going_back_is_met(tmp_path: Path) -> None:
    path = build(tmp_path, "ticks3", file="sloppy.fmu", defines=("SLOPPY",))
    system = chain(tmp_path, a=Fmu(path, parameters={"rate": 1.0, "level": LEVEL}, isolate=False))
    found = co.run(system, co.masters.jacobi(system, step=0.25), stop=1.0)
    assert found["c.samples"][-1] == found["a.count"][-1] == 2
    assert abs(found["c.stamp"][-1] - 0.75) < 1e-8


class Stair:
    """Rises by one every 0.5 s."""

    inputs, outputs = {}, ("level",)

    def __init__(self) -> None:
        self.level = 0.0

    def step(self, time: float, duration: float) -> None:
        self.level = float(math.floor((time + duration) * 2))


def test_a_discrete_input_that_changes_is_an_event(tmp_path: Path) -> None:
    """Also with Gauss–Seidel, where the unit stands a macro step behind when its input changes."""
    units = {"stair": co.PythonUnit(Stair), "a": ticks(tmp_path, "a"), "b": ticks(tmp_path, "b")}
    system = co.System(units, [("a.crossed", "b.sample"), ("stair.level", "b.held")])
    found = co.run(system, co.masters.gauss_seidel(system, step=0.25), stop=1.0)
    assert found.time.tolist() == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 1.0]
    assert found["b.seen"].tolist() == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize("until", [0.25, 1.0])
def test_a_resumed_run_has_the_same_rows(tmp_path: Path, until: float) -> None:
    """Also from a checkpoint at the start, where units are in event mode."""
    system = chain(tmp_path)
    master, path = co.masters.jacobi(system, step=0.25), tmp_path / "rows.csv"
    calls = []

    def interrupt(now: float, stop: float) -> None:
        calls.append(now)
        if now >= until:
            raise KeyboardInterrupt

    options = {"output": ResultFile(path), "checkpoint": Checkpoint(every=0.0)}
    with pytest.raises(Interrupted):
        co.run(system, master, stop=3.0, progress=interrupt, **options)
    resume(path, system, master)
    require_chain(read_result(path), 3.0)


REFUSED = {
    "a clock to a number": (("a.crossed", "b.held"), r"'b\.held' is no clock.*connect clocks to clocks"),
    "a number to a clock": (("a.x", "b.sample"), r"'a\.x' is no clock.*connect clocks to clocks"),
    "a clock that ticks by itself": (("a.crossed", "b.later"), r"b\.later is a clock that ticks by itself"),
    "a gain": (co.Connection("a.crossed", "b.sample", gain=2.0), r"has a gain or an offset, and no numbers"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_connections_that_make_no_sense_are_refused(tmp_path: Path, case: str) -> None:
    connection, said = REFUSED[case]
    units = {name: ticks(tmp_path, name) for name in ("a", "b")}
    with pytest.raises(ConfigurationError, match=said):
        co.System(units, [connection])
    with pytest.raises(ConfigurationError, match=r"b\.sample is fed twice"):
        co.System(units, [("a.crossed", "b.sample"), ("a.done", "b.sample")])


def test_clocks_without_event_mode_are_not_connected(tmp_path: Path) -> None:
    plain = {' hasEventMode="true"': ""}
    units = {"a": ticks(tmp_path, "a"), "b": ticks(tmp_path, "b", plain)}
    with pytest.raises(ConfigurationError, match=r"b\.sample is a clock, and these tick in the event mode of co-sim"):
        co.System(units, [("a.crossed", "b.sample")])


def test_masters_for_one_length_of_step_are_refused(tmp_path: Path) -> None:
    system = chain(tmp_path)
    with pytest.raises(ConfigurationError, match=r"a\.crossed → b\.sample end macro steps.*without an adaptive step"):
        co.run(system, co.masters.jacobi(system, step=0.25), stop=1.0, adaptive=Adaptive())
    system = with_integrator(system)
    master = co.masters.jacobi(system, step=0.25, couplings={"d.u": co.couplings.Nepce(0.5)})
    with pytest.raises(ConfigurationError, match=r"has the coupling .* at d\.u, which is set up for one macro step"):
        co.run(system, master, stop=1.0)


def test_a_system_with_clocks_is_analysed_by_pilot_runs(tmp_path: Path) -> None:
    system = chain(tmp_path)
    verdict = co.analyse(system, co.masters.jacobi(system, step=0.25), horizon=3.0, details=False)
    assert verdict.evidence == "measured"


def test_an_ssp_package_keeps_the_clocks(tmp_path: Path) -> None:
    system = chain(tmp_path)
    read = load(export_ssp(system, tmp_path / "chain.ssp", fmi=3, step=0.25, stop=3.0))
    assert set(read.system.clock_links) == set(system.clock_links)
    require_chain(read.run(), 3.0)


# ---- clocks whose intervals the unit gives ---------------------------------------------------------------------------


def alone(folder: Path, variability: str, defines: tuple[str, ...] = (), **parameters: float) -> co.Result:
    changes = {'intervalVariability="countdown"': f'intervalVariability="{variability}"'}
    path = build(folder, "ticks3", changes=changes, defines=defines)
    system = co.System({"a": Fmu(path, parameters=parameters, isolate=False)})
    return co.run(system, co.masters.jacobi(system, step=0.25), stop=1.0)


@pytest.mark.parametrize("variability", ["fixed", "tunable"])
def test_an_interval_that_parameters_decide_is_asked_for(tmp_path: Path, variability: str) -> None:
    found = alone(tmp_path, variability, ("PERIODIC",), delay=0.3125)
    assert found["a.late"].tolist() == [0, 1, 2, 3, 4]
    assert found["a.late_stamp"].tolist() == [-1.0, 0.0625, 0.375, 0.6875, 1.0]
    assert not [warned for warned in found.warnings if "later" in str(warned)]


@pytest.mark.parametrize("variability", ["changing", "countdown"])
def test_an_interval_of_the_first_tick_counts_from_the_start(tmp_path: Path, variability: str) -> None:
    found = alone(tmp_path, variability, ("PERIODIC",), delay=0.3125)
    assert found["a.late_stamp"].tolist() == [-1.0, -1.0, 0.3125, 0.3125, 0.3125]  # afterwards it says "unchanged"


def test_an_interval_that_is_no_time_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path, "ticks3", file="b.fmu", defines=("BACKWARDS",))
    system = chain(tmp_path, b=Fmu(path, parameters={"delay": DELAY}, isolate=False))
    said = r"unit 'b' at t = 0\.375.*gives -0\.0625 s as the interval of its clock 'later'; contact its supplier"
    with pytest.raises(UnitError, match=said):
        co.run(system, co.masters.jacobi(system, step=0.25), stop=1.0)


def test_a_countdown_of_nothing_ticks_in_the_same_event(tmp_path: Path) -> None:
    system = chain(tmp_path, b=ticks(tmp_path, "at once", delay=0.0))
    found = co.run(system, co.masters.jacobi(system, step=0.25), stop=0.5)
    assert found.time.tolist() == [0.0, 0.25, 0.375, 0.375, 0.5]
    assert found["b.late_stamp"].tolist() == [-1.0, -1.0, -1.0, 0.375, 0.375]


# ---- model exchange --------------------------------------------------------------------------------------------------


def exchanged(path: Path, step: float, kind: str = "kernel", isolate: bool = False, **more: Any) -> co.Result:
    options = FmuOptions(kind="model-exchange", solver=more.pop("solver", None))
    unit = Fmu(path, options=options, isolate=isolate, parameters=more.pop("parameters", {}))
    system = co.System({"a": unit}, inputs={"a.u": 1.0})
    master = more.pop("build", co.masters.jacobi)(system, step=step, **more.pop("master", {}))
    return co.run(system, master, stop=3.0, engine=EngineOptions(kind=kind), **more)


@pytest.mark.parametrize("solver", [Solver("rk4"), Solver(relative_tolerance=1e-10)])
@pytest.mark.parametrize("step", [0.1, 0.125, 0.75])
def test_clocks_tick_at_their_instants_in_model_exchange(tmp_path: Path, step: float, solver: Solver) -> None:
    """x = t: `tick` samples at 0.125 + 0.25 k, `later` 0.0625 s after each of them, wherever steps end."""
    path = build_model(tmp_path, "SAMPLER", 3)
    found = exchanged(path, step, solver=solver, parameters={"delay": 0.0625})
    assert not found.warnings
    for k, time in enumerate(found.time):
        exact = Fraction(step).limit_denominator(1000) * k
        ticks = max(math.floor((exact - Fraction(1, 8)) * 4) + 1, 0)
        lates = max(math.floor((exact - Fraction(3, 16)) * 4) + 1, 0)
        assert (found["a.count"][k], found["a.lates"][k]) == (ticks, lates), time
        assert found["a.sample"][k] == pytest.approx(0.25 * ticks - 0.125 if ticks else -1.0, abs=1e-9)
        assert found["a.late"][k] == pytest.approx(0.25 * lates - 0.0625 if lates else -1.0, abs=1e-9)


def test_ticks_in_model_exchange_are_made_again_and_resumed(tmp_path: Path) -> None:
    """To the bit: by both engines, isolated, under a master that repeats steps, and from a checkpoint."""
    path = build_model(tmp_path, "SAMPLER", 3)
    plain = exchanged(path, 0.1, parameters={"delay": 0.0625})
    ways: list[dict[str, Any]] = [
        {"kind": "reference"},
        {"isolate": True},
        {"build": co.masters.iterative, "master": {"sweeps": 3}},
    ]
    for way in ways:
        found = exchanged(path, 0.1, parameters={"delay": 0.0625}, **way)
        assert all(np.array_equal(found[name], plain[name]) for name in plain.names), way
    unit = Fmu(path, options=FmuOptions(kind="model-exchange"), parameters={"delay": 0.0625}, isolate=False)
    first, second = unit.instantiate(), unit.instantiate()
    for instance in (first, second):
        instance.set_input(np.array([[1.0]]), 0.3)
    first.step(0.0, 0.15)
    second.deserialise(first.serialise())
    for instance in (first, second):
        instance.step(0.15, 0.45)
    assert first.read().tolist() == second.read().tolist()
    assert first.read()[1:4:2].tolist() == [2.0, 2.0]
    first.close()
    second.close()


def test_a_clock_of_model_exchange_asks_for_its_interval(tmp_path: Path) -> None:
    path = build_model(tmp_path, "SAMPLER", 3)
    asked = path.with_name("asked.fmu")
    changes = {
        ' intervalVariability="constant" intervalDecimal="0.25" shiftDecimal="0.125"': ' intervalVariability="fixed"'
    }
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(asked, "w") as other:
        for name in archive.namelist():
            content = archive.read(name)
            for old, new in changes.items():
                content = content.replace(old.encode(), new.encode()) if name.endswith(".xml") else content
            other.writestr(name, content)
    found, wanted = exchanged(asked, 0.1), exchanged(path, 0.1)
    assert found["a.count"].tolist() == wanted["a.count"].tolist()
    assert wanted["a.count"][-1] == 12
