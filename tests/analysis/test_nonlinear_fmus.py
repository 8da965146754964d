"""Systems that are linear only near rest, or only piece by piece."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from thinning import mostly_slow

sys.path.insert(0, str(Path(__file__).parents[1]))
from cosimo.analysis import Model, analyse
from cosimo.analysis.limits import critical_steps, find_base
from cosimo.analysis.linearisation import Linearisation, at_start
from cosimo.analysis.pilots import Budget
from cosimo.analysis.truth import count_steps
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, jacobi
from testbed import CASES, NONLINEAR, critical_step_by_bisection, reference, systems

Systems = dict[str, System]
STEPS = {"tank-limited": (3.0, 1.0), "pendulum": (0.027, 0.014)}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    return systems(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    return systems(tmp_path_factory.mktemp("resting"), near_rest=True)


@pytest.mark.slow
@pytest.mark.parametrize("means", ["derivatives", "differences", "experiments"])
@pytest.mark.parametrize("name", NONLINEAR)
def test_critical_steps_near_rest(name, means, resting):
    system, (low, high) = resting[name], CASES[name].search
    linearisation = Linearisation(system, at_start(system), means=means)
    found = critical_steps(linearisation, find_base(linearisation, low), jacobi(system, low))
    masters = {"jacobi": jacobi, "gauss_seidel": lambda s, h: gauss_seidel(s, h, order=found.order)}
    for kind, build in masters.items():
        measured = critical_step_by_bisection(system, build, low, high, tolerance=1e-3, steps=8_000)
        predicted = getattr(found, kind).step
        print(f"{name:16} {means:12} {kind:13} predicted {predicted:10.5g} measured {measured:10.5g}")
        assert predicted == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("name", NONLINEAR)
def test_a_model_that_the_motion_leaves_is_used_for_nothing(name, full):
    system, case = full[name], CASES[name]
    model = Model(system, step=STEPS[name][0], horizon=case.horizon)
    assert not model.valid
    assert model.away
    assert "leaves the range" in model.doubt


@pytest.mark.parametrize("name", ["tank-limited", pytest.param("pendulum", marks=pytest.mark.slow)])
def test_near_rest_the_linear_picture_holds(name, resting):
    system, case, step = resting[name], CASES[name], STEPS[name][1]
    # As many seconds as it takes: a busy machine, where the system does not tell that it is, would only be "measured".
    budget = Budget(seconds=math.inf)
    found = analyse(system, jacobi(system, step), horizon=case.horizon, details=False, budget=budget)
    assert found.evidence == "confirmed"
    stop = count_steps(case.horizon, step) * step
    coarse, fine = (run(system, jacobi(system, step / parts), stop=stop).values[::parts] for parts in (32, 64))
    exact = 2 * fine - coarse  # the error of the coupling is of first order
    rows = run(system, jacobi(system, step), stop=stop).values
    measured = np.abs(rows - exact).max(axis=0) / np.abs(exact).max(axis=0)
    assert np.array(list(found.error.outputs.values())) == pytest.approx(measured, rel=0.1)


def errors_of_a_run(name, system, master, horizon):
    """The largest error of every output, relative to its size."""
    result = run(system, master, stop=max(1, round(horizon / master.step)) * master.step)
    exact = reference(name, result.time)
    return np.abs(result.values - exact).max(axis=0) / np.abs(exact).max(axis=0)


@pytest.mark.parametrize("step", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("build", [jacobi, pytest.param(gauss_seidel, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", mostly_slow(NONLINEAR, ["tank-limited"]))
def test_errors_measured_by_pilot_runs(name, build, step, full):
    """Against the undivided system: what pilot runs show is the error, and what they advise meets the target."""
    system, case, h = full[name], CASES[name], STEPS[name][step]
    found = analyse(system, build(system, h), horizon=case.horizon)
    measured = errors_of_a_run(name, system, build(system, h), case.horizon)
    ratio = np.array(list(found.error.outputs.values())) / measured
    print(f"{name:16} {build.__name__:14} h = {h:8.3g} found / measured {ratio.round(2)} {found.headline}")
    assert found.evidence == "measured"
    assert "leaves the range" in found.reasons["model"]
    assert found.spectral_radius is None
    assert ratio == pytest.approx(np.ones(len(ratio)), rel=0.15)
    advice = found.recommendation
    if advice.master is None:  # the solvers of actuator and controller have an error of their own at every step
        assert "no master was found" in advice.text
        return
    worst = errors_of_a_run(name, system, advice.master, case.horizon).max()
    print(f"  {advice.master.name} at {advice.master.step:g}: expected {advice.error:.4f} measured {worst:.4f}")
    assert advice.error < 0.01
    assert advice.error == pytest.approx(worst, rel=0.25)


def test_a_limit_that_is_left_on_the_way_is_named(full):
    """The controller's limit holds the inflow at first: nothing is fed back until it lets go."""
    system = full["tank-limited"]
    found = analyse(system, jacobi(system, 1.0), horizon=300.0, along=6, details=False)
    assert found.along[0].time == 0
    marked = [moment for moment in found.along if not moment.applies]
    assert marked
    assert any("controller" in note for moment in marked for note in moment.notes)
    assert found.along[-1].applies
    assert any(moment.changes for moment in found.along)
    assert "no longer applies" in str(found) or "applies again" in str(found)


@pytest.mark.slow
def test_chosen_times(full):
    system = full["pendulum"]
    found = analyse(system, jacobi(system, 0.01), horizon=4.0, at=[0.5, 3.0], details=False)
    assert [moment.time for moment in found.along] == pytest.approx([0.0, 0.5, 3.0])
    # Saturated at first; at rest the loop is closed and bears steps of 0.0565 s only.
    assert found.along[-1].critical_step == pytest.approx(0.0565, rel=0.02)
    assert found.along[0].critical_step > 2 * found.along[-1].critical_step
    assert any("critical step" in change for moment in found.along for change in moment.changes)
