"""Compensation of units whose equations are not known: designed on identified models, run on the units themselves."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.testbed.build import Options, export_linear

import processes
from cosimo import masters, problems
from cosimo.analysis import analyse
from cosimo.analysis.model import Model
from cosimo.compensation import Compensation, compensate
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_system
from cosimo.formats.scenario import load
from cosimo.formats.writing import write_master
from cosimo.problems import find
from cosimo.tuning import Settings, Space, tune
from cosimo.units import Fmu, PythonUnit, StateSpace


def fmus(name: str, folder: Path, *, restore: bool) -> System:
    """A built-in system as FMUs; without `restore`, none of them can go back."""
    system = find(name).system()
    units = {unit: Fmu(path) for unit, path in export_system(system, folder, fmi=2).items()}
    for unit in units.values():
        unit.can_restore = restore
    return System(units, system.connections, inputs=system.inputs, name=name)


def worst(rows: Array, exact: Array) -> float:
    size = np.abs(exact).max(axis=0)
    return float((np.abs(rows - exact).max(axis=0)[size > 0] / size[size > 0]).max())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("coupling", [Hold(0), Hold(1)], ids=str)
@pytest.mark.parametrize("name", ["quarter-truck", "dc-motor", "four-mass", "tank"])
def test_fmus_that_cannot_go_back_follow_the_converged_iteration(name: str, coupling: Coupling, tmp_path: Path) -> None:
    """With one step of every FMU per macro step: the error is that of the iteration, which needs to go back."""
    h = find(name).step
    forward, both = fmus(name, tmp_path, restore=False), fmus(name, tmp_path, restore=True)
    with pytest.raises(ConfigurationError, match="cannot restore its state"):
        masters.iterative(forward, h)
    found = compensate(forward, masters.jacobi(forward, h, coupling=coupling), target="converged", horizon=200 * h)
    ours = run(forward, found.master, stop=200 * h)
    iterated = run(both, masters.iterative(both, h, coupling=coupling, tolerance=1e-12), stop=200 * h)
    fine = run(both, masters.iterative(both, h / 32, coupling=Hold(1), tolerance=1e-12), stop=200 * h).values[::32]
    assert worst(ours.values, iterated.values) < 1e-6
    assert worst(ours.values, fine) <= 1.1 * worst(iterated.values, fine)


def test_models_found_by_experiments_alone_suffice(tmp_path: Path) -> None:
    """Without directional derivatives and without going back: from trial steps of fresh instances."""
    system = fmus("dc-motor", tmp_path, restore=False)
    master = masters.jacobi(system, 1e-3)
    model = Model(system, step=1e-3, horizon=0.2, means="experiments")
    assert {unit.means for unit in model.units} == {"experiments"}
    found = compensate(system, master, target="converged", model=model)
    both = fmus("dc-motor", tmp_path, restore=True)
    iterated = run(both, masters.iterative(both, 1e-3, tolerance=1e-12), stop=0.2)
    assert worst(run(system, found.master, stop=0.2).values, iterated.values) < 1e-4


class Spring:
    """An affine unit: a mass on a spring with a preload, which sees the position of the other one."""

    def __init__(self, *, load: float, at: float, gain: float = 1.0, since: float = 0.0, until: float = 1e9) -> None:
        self.x, self.v, self.load, self.u, self.time = at, 0.0, load, 0.0, 0.0
        self.gain, self.since, self.until = gain, since, until

    inputs, outputs = ("u",), ("y",)

    @property
    def y(self) -> float:
        return self.x + 5.0

    def step(self, time: float, duration: float) -> None:
        """Heun's method, in 20 micro steps."""
        h, self.time = duration / 20, time
        for _ in range(20):
            a = self._acceleration(self.x, self.v)
            b = self._acceleration(self.x + h * self.v, self.v + h * a)
            self.x, self.v = self.x + h * (self.v + h * a / 2), self.v + h * (a + b) / 2

    def _acceleration(self, x: float, v: float) -> float:
        gain = self.gain if self.since <= self.time < self.until else 1.0
        return -30 * x - v + gain * 12 * (self.u - 5.0) + self.load


def springs(**changes: float) -> System:
    """Two of them; `changes` are of the second: how much more than its model says it feels of its input, and when."""
    units: dict[str, Any] = {
        "a": PythonUnit(Spring, load=3.0, at=1.0),
        "b": PythonUnit(Spring, load=-1.0, at=0.0, **changes),
    }
    return System(units, [Connection("a.y", "b.u", 0.9, 0.4), ("b.y", "a.u")], name="springs")


def test_offsets_of_affine_units_are_carried_along() -> None:
    """Outputs with an offset, preloads, and a connection with gain and offset: the run ends at the true rest."""
    system, h = springs(), 0.02
    found = compensate(system, masters.jacobi(system, h), target="converged", horizon=4.0)
    assert any(constant.any() for mixer in found.master.mixers.values() for constant in mixer.constants.values())
    ours = run(system, found.master, stop=4.0)
    iterated = run(system, masters.iterative(system, h, tolerance=1e-12), stop=4.0)
    plain = run(system, masters.jacobi(system, h), stop=4.0)
    assert worst(ours.values, iterated.values) < 1e-6
    assert worst(plain.values, iterated.values) > 0.01
    # The linear picture is that of the real run, offsets and all.
    assert found.verdicts is not None
    _, after = found.verdicts
    assert after.evidence == "confirmed"
    assert after.error is not None
    assert after.measured_error is not None
    assert after.error.worst == pytest.approx(after.measured_error.worst, rel=0.05)
    assert "with it and" in found.refusal  # held inputs are of first order, iterated or not


@pytest.mark.slow
def test_units_without_slopes_are_given_the_mean_of_the_line() -> None:
    """hold1 as a target is of second order also where units take constant inputs only."""
    system, exact = springs(), run(springs(), masters.strang(springs(), 0.02 / 32), stop=4.0).values
    assert {unit.input_degree for unit in system.units.values()} == {0}
    errors = {}
    for h in (0.02, 0.01):
        found = compensate(system, masters.jacobi(system, h, coupling=Hold(1)), target="converged", horizon=4.0)
        true = exact[:: round(h / 0.02 * 32)]
        plain = worst(run(system, found.path.master, stop=4.0).values, true)
        errors[h] = worst(run(system, found.master, stop=4.0).values, true)
        assert errors[h] < plain / 10
        assert found.refusal == ""
    assert errors[0.02] / errors[0.01] == pytest.approx(4, rel=0.3)


def test_both_engines_agree_to_the_bit() -> None:
    system = springs()
    master = compensate(system, masters.jacobi(system, 0.02), target="converged", horizon=2.0).master
    plain, compiled = (run(system, master, stop=2.0, engine=EngineOptions(kind)) for kind in ("reference", "kernel"))
    assert np.array_equal(plain.values, compiled.values)


def test_known_equations_follow_the_converged_iteration_too() -> None:
    """With offsets, start values, feedthrough and a constant external input."""
    one = StateSpace([[0.0, 1.0], [-20.0, -0.5]], [[0.0, 0.0], [5.0, 1.0]], [[1.0, 0.0]], initial=[1.0, 0.0])
    two = StateSpace([[0.0, 1.0], [-30.0, -0.3]], [[0.0], [7.0]], [[1.0, 0.0]], [[0.4]], initial=[0.2, 0.0])
    links = [Connection("one.y1", "two.u1", 1.0, 0.7), Connection("two.y1", "one.u1", 1.5, -0.3)]
    system = System({"one": one, "two": two}, links, inputs={"one.u2": 3.0})
    for build in (masters.jacobi, masters.gauss_seidel):
        for coupling in (Hold(0), Hold(1)):
            found = compensate(system, build(system, 0.05, coupling=coupling), target="converged")
            iterated = run(system, masters.iterative(system, 0.05, coupling=coupling, tolerance=1e-13), stop=20.0)
            assert found.stable
            assert found.verdicts is None
            assert worst(run(system, found.master, stop=20.0).values, iterated.values) < 1e-10


def test_tune_and_the_command_line_offer_it(tmp_path: Path) -> None:
    def cosimo(*arguments: str) -> Any:
        command = [sys.executable, "-m", "cosimo.cli", *arguments]
        return processes.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path)

    system = fmus("quarter-truck", tmp_path, restore=False)
    space = Space(steps=2e-3, families=("jacobi",), kinds=(0,), compensation=True)
    found = tune(system, space, evaluations=50, horizon=0.3, settings=Settings(points=5))
    best = min(found.front, key=lambda point: point.error)
    assert best.master.mixers
    assert best.master.name == "jacobi+converged"

    done = cosimo("export", "quarter-truck", "--output", "truck.ssp")
    assert done.returncode == 0, done.stderr
    done = cosimo("compensate", "truck.ssp", "--target", "converged", "--stop-time", "0.3")
    assert done.returncode == 0, done.stderr
    assert "Offered." in done.stdout
    assert "stable for errors of the models' rates and gains up to" in done.stdout


# ---- refused, before any work ----------------------------------------------------------------------------------------


class Switch:
    """No linear model holds: the output is the sign of the input."""

    inputs, outputs = ("u",), ("y",)
    u = y = 0.0

    def step(self, time: float, duration: float) -> None:
        self.y = 1.0 if self.u > 0 else -1.0


def test_a_unit_without_a_valid_model_is_refused_with_the_reason() -> None:
    units = {"relay": PythonUnit(Switch), "plant": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("relay.y", "plant.u1"), Connection("plant.y1", "relay.u", -1.0)], name="relay")
    with pytest.raises(ConfigurationError, match=r"'relay' cannot be compensated at 10 ms: unit 'relay': .*strang"):
        compensate(system, masters.jacobi(system, 0.01), target="converged", horizon=1.0)


def test_masters_and_couplings_without_a_converged_target_are_refused() -> None:
    system = problems.two_mass()
    with pytest.raises(ConfigurationError, match="step every unit once in a macro step"):
        compensate(system, masters.multirate(system, 1e-3, multiples={"one": 2}), target="converged")
    with pytest.raises(ConfigurationError, match=r"with the coupling hold2 of 'two\.f' is not possible; use hold0"):
        compensate(system, masters.jacobi(system, 1e-3, coupling=Hold(2)), target="converged")


def test_nothing_is_identified_before_the_master_and_the_size_are_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("identified")

    monkeypatch.setattr("cosimo.compensation.design.Model", never)
    system = springs()
    with pytest.raises(ConfigurationError, match="masters that do not iterate"):
        compensate(system, masters.iterative(system, 0.01))
    monkeypatch.setattr("cosimo.compensation.design.ROOM", 100)
    with pytest.raises(ConfigurationError, match=r"compensating 2 units .* is the limit"):
        compensate(system, masters.jacobi(system, 0.01))


def test_a_worse_target_is_not_offered(tmp_path: Path) -> None:
    """The four masses gain energy under the converged iteration with held inputs: the plain run is better."""
    system = fmus("four-mass", tmp_path, restore=False)
    found: Compensation = compensate(system, masters.jacobi(system, 3e-3), target="converged", horizon=1.5)
    assert not found.stable
    assert "with it and" in found.refusal
    assert found.document.headline == f"Not offered: {found.refusal}"


# ---- while running: models against units -----------------------------------------------------------------------------


def switched(result: Any) -> list[tuple[float, str]]:
    """When inputs were held, and for which unit, and when they were compensated again."""
    found = []
    for warning in result.warnings:
        if "no longer responds as its model" in str(warning):
            found.append((warning.time, str(warning).split("'")[1]))
        elif "all models fit again" in str(warning):
            found.append((warning.time, ""))
    return found


@pytest.fixture(scope="module")
def designed() -> Any:
    system = springs()
    return compensate(system, masters.jacobi(system, 0.02, coupling=Hold(1)), target="converged", horizon=4.0).master


@pytest.mark.parametrize("gain", [0.9, 1.1, 1.5, -1.0])
def test_a_wrong_model_is_noticed_within_20_macro_steps(gain: float, designed: Any) -> None:
    """The unit feels its input by so much more, or with the wrong sign: from then on the run is that of the hold."""
    system = springs(gain=gain)
    result = run(system, designed, stop=4.0)
    ((time, unit),) = switched(result)
    assert time <= 20 * 0.02
    assert unit == "b"
    assert len(result) == 201
    assert result.complete
    assert result.info["held"] == 200 - round(time / 0.02)
    exact = run(system, masters.strang(system, 0.02 / 32), stop=4.0).values[::32]
    plain = run(system, masters.jacobi(system, 0.02), stop=4.0).values
    assert worst(result.values, exact) <= 1.1 * worst(plain, exact)


@pytest.mark.parametrize("gain", [1.0, 1.03])
def test_a_model_that_is_nearly_right_is_kept(gain: float, designed: Any) -> None:
    system = springs(gain=gain)
    result = run(system, designed, stop=4.0)
    assert switched(result) == []
    assert result.info["held"] == 0
    exact = run(system, masters.strang(system, 0.02 / 32), stop=4.0).values[::32]
    assert worst(result.values, exact) < 0.1 * worst(run(system, masters.jacobi(system, 0.02), stop=4.0).values, exact)


def test_inputs_are_compensated_again_where_the_model_fits_again(designed: Any) -> None:
    """Both engines, to the bit: the unit is another one from 1 s to 2 s."""
    system = springs(gain=3.0, since=1.0, until=2.0)
    plain, compiled = (run(system, designed, stop=4.0, engine=EngineOptions(kind)) for kind in ("reference", "kernel"))
    assert np.array_equal(plain.values, compiled.values)
    for result in (plain, compiled):
        (begin, unit), (end, none) = switched(result)
        assert (unit, none) == ("b", "")
        assert 1.0 < begin <= 1.4
        assert 2.0 < end <= 3.0
        assert result.info["held"] == round((end - begin) / 0.02)


class Stop(Spring):
    """The same before a stop: below x = −0.05 another spring, twenty times as stiff."""

    def _acceleration(self, x: float, v: float) -> float:
        return super()._acceleration(x, v) - 600 * min(0.0, x + 0.05)


def test_a_stop_that_identification_has_not_met_is_noticed() -> None:
    units: dict[str, Any] = {"a": PythonUnit(Spring, load=3.0, at=1.0), "b": PythonUnit(Stop, load=-1.0, at=0.0)}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")], name="stop")
    master = masters.jacobi(system, 0.02, coupling=Hold(1))
    found = compensate(system, master, target="converged", horizon=4.0)
    result = run(system, found.master, stop=4.0)
    assert found.model is not None
    assert found.model.away == ("b",)
    assert switched(result)[0][1] == "b"
    exact = run(system, masters.strang(system, 0.02 / 32), stop=4.0).values[::32]
    assert worst(result.values, exact) <= 1.1 * worst(run(system, master, stop=4.0).values, exact)


class Driven(Spring):
    """The same with a force from elsewhere."""

    inputs: tuple[str, ...] = ("u", "push")
    push = 0.0

    def _acceleration(self, x: float, v: float) -> float:
        return super()._acceleration(x, v) + self.push


class Steps:
    """An output that is not continuous: it jumps at 1 s."""

    inputs: tuple[str, ...] = ()
    outputs = ("y",)
    y = 0.5

    def step(self, time: float, duration: float) -> None:
        self.y = 0.5 if time < 1.0 else 4.0


class Discrete(PythonUnit):
    """A push that is not continuous, given or taken."""

    @property
    def discrete_outputs(self) -> tuple[str, ...]:
        return () if "u" in self.inputs else self.outputs

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        return ("push",) if "push" in self.inputs else ()


def test_outputs_that_jump_are_held_and_not_checked() -> None:
    units: dict[str, Any] = {
        "a": PythonUnit(Driven, load=3.0, at=1.0),
        "b": PythonUnit(Spring, load=-1.0, at=0.0),
        "jump": Discrete(Steps),
    }
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u"), ("jump.y", "a.push")])
    found = compensate(system, masters.jacobi(system, 0.02, coupling=Hold(1)), target="converged", horizon=0.9)
    assert [check.unit for check in found.master.checks] == ["a", "b"]
    result = run(system, found.master, stop=4.0)
    assert switched(result) == []
    exact = run(system, masters.strang(system, 0.02 / 32), stop=4.0).values[::32]
    plain = run(system, masters.jacobi(system, 0.02), stop=4.0).values
    assert worst(result.values[:, :2], exact[:, :2]) < worst(plain[:, :2], exact[:, :2])


def test_inputs_that_are_not_continuous_are_refused() -> None:
    units: dict[str, Any] = {"a": Discrete(Driven, load=3.0, at=1.0), "jump": Discrete(Steps)}
    system = System(units, [("jump.y", "a.push")], inputs={"a.u": 1.0})
    with pytest.raises(ConfigurationError, match=r"input 'a\.push' is not continuous"):
        compensate(system, masters.jacobi(system, 0.02))


@pytest.mark.slow
def test_a_drifting_operating_point_does_not_matter() -> None:
    """Constants drop out of the check: an external input that moves the rest position slowly."""
    units: dict[str, Any] = {"a": PythonUnit(Driven, load=3.0, at=1.0), "b": PythonUnit(Spring, load=-1.0, at=0.0)}
    system = System(units, [("a.y", "b.u"), ("b.y", "a.u")], inputs={"a.push": lambda t: 50.0 * np.sin(0.3 * t)})
    found = compensate(system, masters.jacobi(system, 0.02, coupling=Hold(1)), target="converged", horizon=4.0)
    result = run(system, found.master, stop=8.0)
    assert switched(result) == []
    exact = run(system, masters.strang(system, 0.02 / 32), stop=8.0).values[::32]
    assert worst(result.values, exact) < 0.3 * worst(run(system, masters.jacobi(system, 0.02), stop=8.0).values, exact)


def test_masters_with_several_rates_are_refused_for_identified_units() -> None:
    system = springs()
    with pytest.raises(ConfigurationError, match="at which identified models cannot be checked; use jacobi"):
        compensate(system, masters.multirate(system, 0.01, multiples={"a": 2}))


# ---- among the recommendations ---------------------------------------------------------------------------------------


def test_it_is_recommended_written_and_run_where_units_cannot_go_back(tmp_path: Path) -> None:
    """What `analyse` promises of the compensated master, the run of the written scenario keeps."""
    problem = find("dc-motor")
    paths = export_linear(problem.system(), tmp_path, Options(states=False))
    units = "".join(f'[units.{name}]\nfmu = "{path.name}"\n' for name, path in paths.items())
    links = ", ".join(f'"{link.connection.source} -> {link.connection.target}"' for link in problem.system().links)
    inputs = "".join(f'"{name}" = {source.value}\n' for name, source in problem.system().inputs.items())  # type: ignore[attr-defined]
    text = f"step-size = 0.001\nstop-time = 0.2\nconnections = [{links}]\n{units}[inputs]\n{inputs}"
    (tmp_path / "case.toml").write_text(text, encoding="utf-8")
    scenario = load(tmp_path / "case.toml")
    advice = scenario.analyse().recommendation
    assert advice is not None
    assert advice.master is not None
    assert advice.options == "--master jacobi --follow converged --coupling hold1 --step-size 0.002"
    assert "stable for errors of their rates and gains up to" in advice.text
    assert advice.cost is not None
    assert advice.cost_before is not None
    assert advice.cost < advice.cost_before

    write_master(tmp_path / "case.toml", advice.master, scenario.system)
    written = load(tmp_path / "case.toml")
    assert (written.options.follow, written.step) == ("converged", 0.002)
    rows = written.run().values
    assert worst(rows, scenario.run(advice).values) < 1e-9  # designed again, from models of this very step
    assert np.array_equal(rows, load(tmp_path / "case.toml").run().values)
    fine = masters.iterative(problem.system(), 0.002 / 32, coupling=Hold(1), tolerance=1e-12)
    exact = run(problem.system(), fine, stop=0.2).values[::32]
    assert advice.error is not None
    assert worst(rows, exact) == pytest.approx(advice.error, rel=0.05)
    with pytest.raises(ConfigurationError, match="is compensated already; give the plain one"):
        compensate(written.system, written.master)


def test_it_is_not_recommended_where_units_can_go_back(tmp_path: Path) -> None:
    system = fmus("dc-motor", tmp_path, restore=True)
    verdict = analyse(system, masters.jacobi(system, 1e-3), horizon=0.2)
    assert verdict.recommendation is not None
    assert verdict.recommendation.master is not None
    assert not verdict.recommendation.master.mixers
