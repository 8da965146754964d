"""Steps where they matter: the weights of defects on one output, and the rates that follow."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from cosimo import load, problems, run
from cosimo.analysis import Model
from cosimo.analysis.connections import Defects, plan_goal
from cosimo.cli import app
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.formats.export import export_system
from cosimo.masters import jacobi
from cosimo.problems import chain, tank, two_mass
from cosimo.units import Fmu, StateSpace
from thinning import mostly_slow


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_effects_of_all_connections_add_up_to_the_error(order: int) -> None:
    """Against a run: to first order in the defects, hence at a step where errors are small."""
    units = {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-3.0, 2.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), Connection("b.y1", "a.u1", -2.0)])
    model = Model(system, step=0.1, horizon=8.0)
    defects = Defects(model, "b.y1")
    period = 4
    result = run(system, jacobi(system, period * defects.tick, coupling=Hold(order)), stop=8.0)
    exact = model.truth(period * defects.tick)
    place = list(model.system.outputs).index("b.y1")
    measured = (result["b.y1"] - exact.rows[:, place]) / defects.size
    total = sum(defects.effect(link, period, order) for link in model.system.links)
    predicted = np.concatenate([[0.0], np.asarray(total)])[::period][: len(measured)]
    assert np.abs(measured).max() < 0.05
    assert predicted == pytest.approx(measured[: len(predicted)], abs=0.15 * np.abs(measured).max())


def test_the_tolerance_is_met_and_what_is_not_gained_is_said() -> None:
    plan = plan_goal(Model(tank(), step=0.5, horizon=300.0), "tank.level", 0.005)
    assert 0.5 * 0.005 <= plan.measured <= 0.005
    assert plan.measured == pytest.approx(plan.predicted, rel=1e-6)
    assert plan.unit_steps == plan.common_steps
    assert "the faster one alone makes half" in plan.reason
    assert "0.44 %" in plan.document.headline


@pytest.mark.slow
def test_units_far_from_the_output_take_longer_steps() -> None:
    plan = plan_goal(Model(chain(n=16), step=0.01, horizon=10.0), "u1.x", 0.005)
    assert 0.5 * 0.005 <= plan.measured <= 0.005
    assert plan.unit_steps <= plan.common_steps / 2
    assert plan.reason == ""
    steps = list(plan.master.durations.values())
    assert steps == sorted(steps)
    weights = [plan.weights[f"u{i + 1}.x → u{i}.right"] for i in range(1, 16)]
    assert weights == sorted(weights, reverse=True)


GOALS = {  # the table of docs/tuning.md: an output within 0.5 %, and the share of the unit steps of one common step
    "two-mass": ("two.x", 0.89),
    "two-mass-undamped": ("two.x", 0.75),
    "two-mass-glumac": ("two.x", 1.0),
    "double-mass-spring-damper": ("one.x", 1.0),
    "four-mass": ("right.x4", 1.0),
    "chain": ("u1.x", 0.58),
    "motor-gearbox": ("load.angle", 1.0),
    "quarter-truck": ("chassis.position", 1.0),
    "dc-motor": ("motor.speed", 1.0),
    "tank": ("tank.level", 1.0),
    "thermal-pair": ("device.temperature", 1.0),
    "oscillator-linear": ("two.x", 0.75),
    "oscillator-nonlinear": ("two.x", "leaves the range where the linear model of two holds"),
    "pendula": ("single.x", "single grows by itself according to its linear model"),
    "manipulator": ("mechanics.s", "leaves the range where the linear model of hydraulics holds"),
}


@pytest.mark.parametrize("name", mostly_slow(GOALS, ["two-mass-undamped", "tank", "oscillator-nonlinear"]))
def test_goals_of_the_built_in_problems(name: str) -> None:
    """Met within a factor 2 with at most half of the unit steps, or a sentence why not."""
    scenario, (output, wanted) = load(name), GOALS[name]
    model = Model(scenario.system, step=scenario.step, horizon=scenario.horizon)
    if isinstance(wanted, str):
        with pytest.raises(ConfigurationError, match=wanted):
            plan_goal(model, output, 0.005)
        return
    plan = plan_goal(model, output, 0.005)
    assert 0.5 * 0.005 <= plan.measured <= 2 * 0.005
    assert plan.measured == pytest.approx(plan.predicted, rel=1e-3)
    assert plan.unit_steps / plan.common_steps == pytest.approx(wanted, abs=0.01)
    assert bool(plan.reason) == (wanted > 0.5)


def test_solver_errors_count_where_weights_do_not_know_them() -> None:
    """Unit one is ten times slower than unit two, and its symplectic solver half as wrong as the tolerance permits."""
    model = Model(problems.two_mass_undamped(), step=1e-3, horizon=20.0)
    plan = plan_goal(model, "two.x", 0.005)
    assert plan.master.durations["one"] == 2 * plan.master.durations["two"]
    assert plan.unit_steps < 0.8 * plan.common_steps


@pytest.mark.slow
def test_fmus_have_the_errors_of_their_equations(tmp_path: Path) -> None:
    """Long steps at which a unit fails are no part of the search; pilot runs measure what was found."""
    known = two_mass()
    files = export_system(known, tmp_path, fmi=2)
    system = System({name: Fmu(path) for name, path in files.items()}, known.connections)
    equations = Model(known, step=1e-3, horizon=2.0)
    wanted, found = plan_goal(equations, "two.x", 0.01), plan_goal(Model(system, step=1e-3, horizon=2.0), "two.x", 0.01)
    assert found.common.step == pytest.approx(wanted.common.step)
    assert found.predicted == pytest.approx(equations.predict(found.master).outputs["two.x"], rel=0.02)
    assert found.measured == pytest.approx(equations.measure(found.master).errors.outputs["two.x"], rel=0.05)


def test_impossible_goals_are_refused() -> None:
    model = Model(tank(), step=0.5, horizon=300.0)
    with pytest.raises(ConfigurationError, match="positive fraction, not 0"):
        plan_goal(model, "tank.level", 0.0)
    with pytest.raises(UnknownNameError, match=r"did you mean 'tank\.level'"):
        plan_goal(model, "tank.levl", 0.01)
    with pytest.raises(ConfigurationError, match="need models of the units"):
        plan_goal(model.distrusted(), "tank.level", 0.01)
    with pytest.raises(ConfigurationError, match="no step was found"):
        plan_goal(model, "tank.level", 1e-14)


def test_the_command_line_reads_percent_and_writes_json() -> None:
    done = CliRunner().invoke(app, ["tune", "tank", "--goal", "tank.level=0.5%", "--json"], catch_exceptions=False)
    fields = json.loads(done.stdout)
    assert fields["tolerance"] == 0.005
    assert fields["measured_error"] <= 0.005
    assert fields["options"].startswith("--master")
    with pytest.raises(ConfigurationError, match="OUTPUT=ERROR"):
        CliRunner().invoke(app, ["tune", "tank", "--goal", "tank.level"], catch_exceptions=False)
