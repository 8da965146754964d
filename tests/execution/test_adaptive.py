"""Adaptive macro steps: better than equal ones of the same number, exact in time, honest about what they cannot do."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lags import Dying, Impatient, Lag, Noisy
from typer.testing import CliRunner

from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, NonFiniteError, StepDiscarded, StepTooShort
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System, Table
from cosimo.couplings import Hold, Nepce
from cosimo.execution.adaptive.stepping import Jumps
from cosimo.execution.adaptive.variable import TimeGrid
from cosimo.execution.options import Adaptive, EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_system
from cosimo.formats.results import ResultFile, read_result
from cosimo.masters import gauss_seidel, groups, iterative, jacobi, jacobi_early_read, multirate
from cosimo.problems import quarter_truck, thermal_pair, two_mass
from cosimo.problems.oscillators import fresh
from cosimo.units import Exact, Fmu, PythonUnit, StateSpace
from testbed import _flow, reference, systems
from thinning import mostly_slow

Builder = Callable[..., Master]
PLAIN = EngineOptions("reference")
EVENT, STOP, STEP = 0.5, 2.5, 5e-3
"""The road rises at EVENT, in every fifth of the run, so that equal steps can meet it exactly."""


def road(time: float) -> float:
    # A hair early: k h may round to just below the event, and equal steps would see it a whole step late.
    return 0.1 if time >= EVENT - 1e-9 else 0.0


def wheel_first(system: System, step: float, **options: Any) -> Master:
    return gauss_seidel(system, step, order=("wheel", "chassis"), **options)


def truck_after_event(times: np.ndarray) -> np.ndarray:
    """The exact outputs: at rest, then the flow of the undivided system from the event on."""
    values = np.zeros((len(times), 5))
    later = times >= EVENT
    values[later] = _flow(quarter_truck(), np.concatenate([[0.0], times[later] - EVENT]))[1:]
    return values


def errors(result: Result, exact: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Per output, the largest error over all rows as a part of the output's size."""
    wanted = exact(result.time)
    found = result.values[:, : wanted.shape[1]]
    return np.abs(found - wanted).max(axis=0) / np.abs(wanted).max(axis=0)


def mean_errors(result: Result, exact: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Per output, the root mean square over time (rows weighted with their steps)."""
    wanted = exact(result.time)
    squares = (result.values[:, : wanted.shape[1]] - wanted) ** 2
    weights = np.gradient(result.time)[:, None]
    return np.sqrt((weights * squares).sum(axis=0) / weights.sum()) / np.abs(wanted).max(axis=0)


@pytest.fixture(scope="module")
def fmus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, System]:
    return systems(tmp_path_factory.mktemp("adaptive"))


# ---- what it must show -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("units", ["linear", "fmu"])
@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.parametrize("build", mostly_slow([jacobi, gauss_seidel, wheel_first, jacobi_early_read], [wheel_first]))
def test_quarter_truck_errs_less_than_with_as_many_equal_steps(
    units: str, kind: Any, build: Builder, fmus: dict[str, System]
) -> None:
    system = quarter_truck(profile=road)
    if units == "fmu":
        parts = fmus["quarter-truck"]
        system = System(parts.units, parts.connections, inputs={"wheel.road": road}, name="quarter-truck")
    adapted = run(system, build(system, STEP), stop=STOP, adaptive=Adaptive(kind))
    count = math.ceil(adapted.info["accepted"] / 5) * 5
    equal = run(system, build(system, STOP / count), stop=STOP, engine=PLAIN)
    assert len(equal) >= len(adapted)
    assert (errors(adapted, truck_after_event) < 0.85 * errors(equal, truck_after_event)).all()
    assert (mean_errors(adapted, truck_after_event) < 0.85 * mean_errors(equal, truck_after_event)).all()


@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.parametrize(("relative", "bound"), [(3e-2, 0.7), pytest.param(3e-3, 0.4, marks=pytest.mark.slow)])
def test_other_tolerances_do_as_well(kind: Any, relative: float, bound: float) -> None:
    system = quarter_truck(profile=road)
    adapted = run(system, wheel_first(system, STEP), stop=STOP, adaptive=Adaptive(kind, relative=relative))
    count = math.ceil(adapted.info["accepted"] / 5) * 5
    equal = run(system, wheel_first(system, STOP / count), stop=STOP, engine=PLAIN)
    assert (errors(adapted, truck_after_event) < bound * errors(equal, truck_after_event)).all()


@pytest.mark.parametrize("kind", ["energy", "doubling"])
def test_with_all_attempts_counted_it_still_pays(kind: Any) -> None:
    system = quarter_truck(profile=road)
    adapted = run(system, jacobi(system, STEP), stop=STOP, adaptive=Adaptive(kind))
    made = math.ceil(adapted.info["macro_steps"] / 5) * 5
    equal = run(system, jacobi(system, STOP / made), stop=STOP, engine=PLAIN)
    assert (errors(adapted, truck_after_event) < 0.5 * errors(equal, truck_after_event)).all()


@pytest.mark.parametrize("kind", ["energy", "doubling"])
def test_a_stiff_transient_pays_clearly(kind: Any) -> None:
    # The device warms in a second, the sink in minutes: equal steps would have to be short all the time.
    system = thermal_pair(integrator=Exact())
    adapted = run(system, gauss_seidel(system, 0.05), stop=60.0, adaptive=Adaptive(kind))
    equal = run(system, gauss_seidel(system, 60.0 / adapted.info["accepted"]), stop=60.0, engine=PLAIN)

    def exact(times: np.ndarray) -> np.ndarray:
        return _flow(system, times)

    assert adapted["step"].max() > 100 * adapted["step"][1:].min()
    assert (errors(adapted, exact) < 0.2 * errors(equal, exact)).all()


@pytest.mark.parametrize(
    ("name", "step", "stop"),
    [
        pytest.param("two-oscillators", 5e-3, 5.0, marks=pytest.mark.slow),
        ("quarter-truck", 5e-3, 3.0),
        ("dc-motor", 5e-4, 0.5),
        pytest.param("pendulum", 5e-3, 4.0, marks=pytest.mark.slow),
        ("tank-limited", 0.5, 300.0),
    ],
)
@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.one_in(2)
def test_all_kinds_of_fmus_err_less(name: str, step: float, stop: float, kind: Any, fmus: dict[str, System]) -> None:
    system = fmus[name]
    adapted = run(system, jacobi(system, step), stop=stop, adaptive=Adaptive(kind))
    equal = run(system, jacobi(system, stop / adapted.info["accepted"]), stop=stop, engine=PLAIN)

    def exact(times: np.ndarray) -> np.ndarray:
        return reference(name, times)

    assert (errors(adapted, exact) < 0.8 * errors(equal, exact)).all()


@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.parametrize("hold", mostly_slow([0, 1, 2], [1]))
def test_a_smaller_tolerance_leaves_a_smaller_error(kind: Any, hold: int) -> None:
    system = quarter_truck(profile=road)
    master = gauss_seidel(system, STEP, coupling=Hold(hold))
    # The road is held within a step, as a unit would see it; only the coupling extrapolates.
    master = Master(master.name, master.schedule, STEP, Hold(hold), {"wheel.road": Hold(0)})
    coarse, fine = (
        errors(run(system, master, stop=STOP, adaptive=Adaptive(kind, relative=r)), truck_after_event).max()
        for r in (3e-2, 3e-4)
    )
    # The local error goes with h^(p+1) and the tolerance, so the global one with its power p / (p + 1), at least 1/2.
    assert fine < 0.25 * coarse


# ---- time --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.parametrize(("start", "stop"), [(0.0, 0.7), (-0.3, 0.1), (1e4, 1e4 + 0.3)])
def test_rows_are_sums_of_their_steps_and_end_exactly(kind: Any, start: float, stop: float) -> None:
    system = two_mass(velocities=(1.0, -1.0), damping=1.0)
    result = run(system, jacobi(system, 1e-3), start=start, stop=stop, adaptive=Adaptive(kind))
    assert result.time[0] == start
    assert result.time[-1] == stop == result.info["end"]
    steps = result["step"]
    assert steps[0] == 0
    assert (steps[1:] > 0).all()
    assert len(result) == 1 + result.info["steps"] == 1 + result.info["accepted"]
    # Every step is a whole number of quanta, and so is every time: nothing is added up in rounding.
    quantum = result.info["quantum"]
    lengths = np.round(steps / quantum)
    assert (steps == lengths * quantum).all()
    places = np.cumsum(lengths)
    assert places[-1] == (stop - start) / quantum == 2.0 ** round(math.log2(places[-1]))
    assert (result.time[:-1] == start + places[:-1] * quantum).all()
    assert (steps[1:].min(), steps.max()) == (result.info["shortest_step"], result.info["longest_step"])


@pytest.mark.parametrize("hold", [0, 1, 2])
@pytest.mark.parametrize("build", mostly_slow([jacobi, gauss_seidel, jacobi_early_read], [jacobi_early_read]))
@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.one_in(5)
def test_steps_forced_to_be_equal_give_the_usual_run(kind: Any, build: Builder, hold: int) -> None:
    system = two_mass(velocities=(1.0, -1.0), damping=1.0, force=lambda t: math.sin(9 * t))
    step = 0.5 / 512
    master = build(system, step, coupling=Hold(hold))
    same = Adaptive(kind, relative=1e9, first=step, shortest=step, longest=step)
    ours, usual = run(system, master, stop=0.5, adaptive=same), run(system, master, stop=0.5, engine=PLAIN)
    assert (ours.time == usual.time).all()
    assert ours.values[:, :-1] == pytest.approx(usual.values, rel=1e-9, abs=1e-12)


def test_extrapolation_uses_the_true_times_of_samples() -> None:
    # Both units only pass on polynomials in time: Hold(1) is exact on a line and Hold(2) on a parabola at any steps.
    for hold, start in ((1, (1.0, 2.0, 0.0)), (2, (1.0, 2.0, 3.0))):
        clock = StateSpace([[0, 1, 0], [0, 0, 1], [0, 0, 0]], [[0]] * 3, [[1.0, 0, 0]], initial=start, inputs=["u"])
        taker = StateSpace(0.0, 1.0, 1.0, inputs=["u"], outputs=["y"])
        system = System({"clock": clock, "taker": taker}, [("clock.y1", "taker.u"), ("taker.y", "clock.u")])
        master = jacobi(system, 0.01, coupling=Hold(hold))
        adaptive = Adaptive("energy", relative=1e9, first=0.001, shortest=0.001, longest=0.05)
        result = run(system, master, stop=1.0, adaptive=adaptive)
        steps = result["step"][1:]
        assert steps.max() > 20 * steps.min()
        t, (a, b, c) = result.time, start
        wrong = result["taker.y"] - (a * t + b * t**2 / 2 + c * t**3 / 6)
        # At the start there are no samples yet; from then on nothing is lost.
        begun = hold + 1
        assert wrong[begun:] == pytest.approx(np.full(len(t) - begun, wrong[begun]), abs=1e-12)


def test_steps_stay_between_their_limits() -> None:
    system = quarter_truck(profile=road)
    for kind in ("energy", "doubling"):
        adaptive = Adaptive(kind, relative=1e-2, shortest=1e-3, longest=1e-2)  # type: ignore[arg-type]
        steps = run(system, jacobi(system, STEP), stop=STOP, adaptive=adaptive)["step"][1:]
        ends = np.abs(np.cumsum(steps)[:, None] - [EVENT, STOP]).min(axis=1) < 1e-4
        assert steps.max() <= 1e-2 * (1 + 1e-12)
        assert (steps[~ends] >= 1e-3 * (1 - 1e-12)).all()


# ---- external inputs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["energy", "doubling"])
@pytest.mark.parametrize(
    "source",
    [
        road,
        Table([0.0, EVENT], [0.0, 0.1], interpolation="hold"),
        Table([0.0, EVENT, EVENT, STOP], [0.0, 0.0, 0.1, 0.1]),
    ],
)
def test_a_step_ends_where_an_external_input_jumps(kind: Any, source: Any) -> None:
    system = quarter_truck(profile=source)
    result = run(system, jacobi(system, STEP), stop=STOP, record="all", adaptive=Adaptive(kind))
    first = int(np.argmax(result.time >= EVENT))
    assert result.time[first] - EVENT < 1e-5
    assert (result["wheel.road"][: first + 1] == 0).all()
    assert result["wheel.road"][first + 1] == 0.1
    assert result["step"][first] > 20 * result["step"][first + 1]


def test_slopes_are_no_jumps_and_jumps_on_slopes_are() -> None:
    grid = TimeGrid(0.0, 1.0, 20)

    def jumps(source: Any) -> list[int]:
        found, system = [], quarter_truck(profile=source)
        watch = Jumps(system, grid, lambda target, signal, time: signal(time))
        place = 0
        while (jump := watch.next(place, grid.total)) is not None:
            found.append(jump)
            place = jump
        return found

    assert jumps(lambda t: math.sin(40 * t)) == []
    assert jumps(lambda t: max(0.0, t - 0.3)) == []
    assert jumps(Table([0.0, 0.2, 0.3], [0.0, 1.0, 1.0])) == []
    assert jumps(Table([0.0, 0.25, 0.25, 0.5], [0.0, 1.0, 2.0, 0.0])) == [2**18]
    assert jumps(lambda t: math.sin(6 * t) + 2.0 * (t >= 0.7)) == [math.ceil(0.7 * 2**20)]
    assert jumps(lambda t: float(t >= 0.25) + float(t >= 0.75)) == [2**18, 3 * 2**18]
    assert jumps(Table([0.0, 0.25, 0.25 + 2.0**-20], [0, 1, 2], interpolation="hold")) == [2**18, 2**18 + 1]


def test_a_smooth_road_shortens_the_step() -> None:
    adaptive = Adaptive(relative=1e-2)
    longest = []
    for rate in (1.0, 10.0):
        system = quarter_truck(profile=lambda t, rate=rate: 0.1 * math.sin(rate * t))
        longest.append(run(system, jacobi(system, STEP), stop=2.0, adaptive=adaptive).info["longest_step"])
    assert longest[1] < 0.5 * longest[0]


# ---- what governs the step ---------------------------------------------------------------------------------------


def test_power_bonds_are_told_and_their_absence_too(fmus: dict[str, System]) -> None:
    system = quarter_truck(profile=road)
    result = run(system, jacobi(system, STEP), stop=STOP, adaptive=Adaptive())
    assert result.info["indicator"] == "residual energy"
    assert not result.warnings
    (bond,) = result.info["bonds"]
    assert {"source": "chassis.force", "target": "wheel.force"} in bond["connections"]
    fixed = run(system, jacobi(system, STEP), stop=STOP).info["monitors"]["bonds"][0]  # the same words of every run
    assert [*fixed] == [*bond]
    assert 0 < abs(bond["residual_energy"]) < 0.1 * bond["exchanged_energy"]
    # The residual is what the rows say it is.
    rows = run(system, jacobi(system, STEP), stop=STOP, adaptive=Adaptive(), record="all")
    sent = rows["chassis.wheel_velocity"] * rows["chassis.force"]
    received = rows["wheel.force"] * rows["wheel.velocity"]
    assert bond["residual_energy"] == pytest.approx(((received - sent) * rows["step"]).sum(), rel=1e-9)

    plain = fmus["quarter-truck"]
    silent = run(plain, jacobi(plain, STEP), stop=0.5, adaptive=Adaptive())
    assert silent.info["indicator"] == "connection defect"
    assert "no power bond" in silent.warnings[0].message
    pairs = [("wheel.force", "wheel.velocity")]
    declared = run(plain, jacobi(plain, STEP), stop=0.5, adaptive=Adaptive(), power_pairs=pairs)
    assert declared.info["indicator"] == "residual energy"
    assert declared.info["bonds"][0]["kind"] == "declared"


def test_doubling_goes_back_and_counts() -> None:
    system = quarter_truck(profile=road)
    result = run(system, jacobi(system, STEP), stop=STOP, adaptive=Adaptive("doubling", first=0.02))
    assert result.info["rejected"] > 0
    assert result.info["macro_steps"] == 3 * (result.info["accepted"] // 2 + result.info["rejected"])
    energy = run(system, jacobi(system, STEP), stop=STOP, adaptive=Adaptive("energy", first=0.02))
    assert (energy.info["rejected"], energy.info["macro_steps"]) == (0, energy.info["accepted"])


def with_lag(kind: type) -> System:
    return System({"a": PythonUnit(kind), "b": PythonUnit(Lag)}, [("a.y", "b.u"), ("b.y", "a.u")])


def test_a_discarded_step_is_made_shorter_by_doubling() -> None:
    system = with_lag(Impatient)
    result = run(system, jacobi(system, 0.01), stop=1.0, adaptive=Adaptive("doubling"))
    assert result.complete
    assert result.info["rejected"] > 0
    with pytest.raises(StepDiscarded, match="unit 'a'"):
        run(system, jacobi(system, 0.01), stop=1.0, adaptive=Adaptive("energy"))


def test_a_step_that_cannot_be_short_enough_is_named() -> None:
    system = with_lag(Noisy)
    with pytest.raises(StepTooShort, match=r"unit 'a' at t = .*: a\.y has .* times the tolerated error") as found:
        run(system, jacobi(system, 0.01), stop=1.0, adaptive=Adaptive("doubling"))
    assert found.value.result is not None
    assert not found.value.result.complete
    steps = found.value.result["step"][1:]
    assert steps.min() >= 0.01 / 128 * (1 - 1e-12)
    # Without going back, the shortest step is made all the same, and warned of.
    (warned,) = [
        w
        for w in run(system, jacobi(system, 0.01), stop=0.1, adaptive=Adaptive("energy")).warnings
        if "shortest" in w.message
    ]
    assert warned.count > 100
    assert "a.y → b.u of unit 'b'" in warned.message


@pytest.mark.parametrize("kind", ["energy", "doubling"])
def test_a_value_that_is_not_finite_ends_the_run_by_name(kind: Any) -> None:
    system = with_lag(Dying)
    with pytest.raises(NonFiniteError, match=r"a\.y became nan at t = 0\.[56]") as found:
        run(system, jacobi(system, 0.01), stop=1.0, adaptive=Adaptive(kind))
    assert found.value.result is not None
    assert np.isfinite(found.value.result.values).all()
    assert 0.3 < found.value.result.time[-1] <= 0.5


@pytest.mark.parametrize("kind", ["energy", "doubling"])
def test_nothing_to_exchange_lets_steps_grow(kind: Any) -> None:
    system = System({"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0, start={"u1": 0.0})})
    result = run(system, jacobi(system, 0.01), stop=10.0, adaptive=Adaptive(kind))
    assert result.info["longest_step"] == pytest.approx(0.16, rel=0.1)
    assert result["a.y1"] == pytest.approx(np.exp(-result.time), rel=1e-12)


def test_a_fresh_exchange_can_be_adapted_with_held_inputs() -> None:
    system = quarter_truck(profile=road)
    for kind in ("energy", "doubling"):
        adapted = run(system, fresh(system, STEP), stop=STOP, adaptive=Adaptive(kind))  # type: ignore[arg-type]
        count = math.ceil(adapted.info["accepted"] / 5) * 5
        equal = run(system, fresh(system, STOP / count), stop=STOP, engine=PLAIN)
        assert (errors(adapted, truck_after_event) < 0.7 * errors(equal, truck_after_event)).all()


# ---- what is refused ---------------------------------------------------------------------------------------------


def test_what_cannot_be_adapted_is_refused_by_name(tmp_path: Path) -> None:
    system = quarter_truck()

    def refuse(message: str, master: Master, kind: Any = "energy", of: System = system, **options: Any) -> None:
        with pytest.raises(ConfigurationError, match=message):
            run(of, master, stop=0.1, adaptive=Adaptive(kind), **options)

    refuse(r"master 'iterative\(.*' iterates", iterative(system, STEP))
    several = multirate(system, STEP, multiples={"chassis": 2})
    refuse(r"master 'multirate\(.*' iterates or steps units several times", several)
    refuse(r"coupling nepce:0\.5 of input wheel\.force", jacobi(system, STEP, couplings={"wheel.force": Nepce(0.5)}))
    refuse(r"coupling hold3 of input wheel\.force", jacobi(system, STEP, couplings={"wheel.force": Hold(3)}))
    master = fresh(system, STEP)
    refuse("at the end of the macro step", Master("fresh", master.schedule, STEP, Hold(1)))
    refuse("one after the other", jacobi(system, STEP), engine=EngineOptions(parallel=True))
    refuse("no divergence monitor", jacobi(system, STEP), stop_on_divergence=True)
    refuse("'record' must be 'outputs' or 'all'", jacobi(system, STEP), record="inputs")
    assert run(system, groups(system, STEP, order=[["wheel", "chassis"]]), stop=0.1, adaptive=Adaptive()).complete

    paths = export_system(system, tmp_path, fmi=2)
    rigid = _without(paths["wheel"], "canHandleVariableCommunicationStepSize")
    units = {"chassis": Fmu(paths["chassis"]), "wheel": rigid}
    coupled = System(units, system.connections, inputs=system.inputs)
    refuse("unit 'wheel' does not accept steps of different lengths", jacobi(coupled, STEP), of=coupled)
    units["wheel"] = _without(paths["wheel"], "canGetAndSetFMUstate", "canSerializeFMUstate")
    coupled = System(units, system.connections, inputs=system.inputs)
    refuse("unit 'wheel' cannot restore its state", jacobi(coupled, STEP), "doubling", of=coupled)
    assert run(coupled, jacobi(coupled, STEP), stop=0.1, adaptive=Adaptive()).complete


def _without(path: Path, *flags: str) -> Fmu:
    """The FMU with capabilities no longer declared."""
    import zipfile

    changed = path.with_name(f"{path.stem}-{flags[0]}.fmu")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(changed, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            for flag in flags:
                content = content.replace(f'{flag}="true"'.encode(), f'{flag}="false"'.encode())
            new.writestr(info, content)
    return Fmu(changed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "euler"}, "'kind' must be 'energy' or 'doubling', not 'euler'"),
        ({"relative": 0.0}, "'relative' .* positive number"),
        ({"relative": math.nan}, "'relative' .* positive number"),
        ({"absolute": -1.0}, "'absolute' .* 0 or positive"),
        ({"shortest": -1.0}, "'shortest' .* positive number"),
        ({"shortest": 0.1, "longest": 0.01}, "shortest step .* longer than the longest"),
        ({"first": 0.1, "longest": 0.01}, "first step .* longer than the longest"),
        ({"order": 0}, "whole number of 1 or more"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Adaptive(**options)


def test_lengths_that_do_not_fit_the_run_are_refused() -> None:
    system = quarter_truck()
    master = jacobi(system, STEP)
    for adaptive, stop, message in (
        (Adaptive(shortest=1.0), 0.5, "longest"),
        (Adaptive(shortest=1e-20), 0.5, "give a longer one"),
        (Adaptive(), 0.0, "greater than the start time"),
        (Adaptive(), math.inf, "greater than the start time"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            run(system, master, stop=stop, adaptive=adaptive)


# ---- files and the command line ----------------------------------------------------------------------------------


def test_rows_go_to_a_file_and_progress_is_told(tmp_path: Path) -> None:
    system, path, seen = quarter_truck(), tmp_path / "rows.parquet", list[float]()
    master = jacobi(system, STEP)
    told = run(
        system, master, stop=0.5, adaptive=Adaptive(), output=ResultFile(path), progress=lambda t, _: seen.append(t)
    )
    rows = read_result(path)
    direct = run(system, master, stop=0.5, adaptive=Adaptive())
    assert (rows.time == direct.time).all()
    assert (rows["step"] == direct["step"]).all()
    assert rows.info["accepted"] == told.info["accepted"] == len(rows) - 1
    assert rows.info["adaptive"]["kind"] == "energy"
    assert all(a < b for a, b in pairwise(seen))
    assert seen[-1] == 0.5


def test_command_line(tmp_path: Path) -> None:
    def cosimo(*arguments: str) -> Any:
        return CliRunner().invoke(
            app, ["run", "quarter-truck", "--step-size", "5e-3", "--stop-time", "0.5", *arguments]
        )

    options = "--adaptive doubling --tolerance-relative 1e-3 --tolerance-absolute 1e-8 --json"
    lengths = f"--shortest-step 1e-5 --longest-step 0.02 --output-file {tmp_path / 'rows.csv'}"
    fields = json.loads(cosimo(*options.split(), *lengths.split()).stdout)
    rows = np.genfromtxt(tmp_path / "rows.csv", delimiter=",", names=True)
    assert len(rows) == fields["steps"] + 1
    assert (rows["step"][1:].min(), rows["step"].max()) == (fields["shortest_step"], fields["longest_step"])
    assert fields["longest_step"] <= 0.02
    assert fields["end_time"] == 0.5
    assert "attempts rejected" in cosimo("--adaptive", "energy", "--no-output").stdout
    for wrong, message in (
        (["--tolerance-relative", "1e-3"], "give --adaptive as well"),
        (["--adaptive", "magic"], "'kind' must be 'energy' or 'doubling', not 'magic'"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            raise cosimo(*wrong).exception
