"""One recommender: what `tune` recommends `analyse` keeps, and the present master is kept unless there is a reason."""

from __future__ import annotations

import math

import pytest

import cosimo as co
from cosimo import masters
from cosimo.analysis.cost import Cost
from cosimo.analysis.model import Model
from cosimo.analysis.pilots import Budget
from cosimo.analysis.recommendation import CHEAPER, master_cost
from cosimo.core.errors import ConfigurationError
from cosimo.couplings import Hold, Nepce
from cosimo.masters import Convergence
from cosimo.problems import CATALOGUE, find
from cosimo.tuning import Range, Settings, Space, Tuned, Wanted, tune
from thinning import mostly_slow

FEW = Settings(points=8)
KNOWN = [n for n, p in CATALOGUE.items() if all(unit.linear() is not None for unit in p.system().units.values())]
OTHERS = [name for name in CATALOGUE if name not in KNOWN]


def tuned_and_analysed(name: str, budget: Budget | None = None) -> tuple[Tuned, co.analysis.Verdict]:
    """The recommendation of `tune`, and the verdict on it, each from a model of its own."""
    problem = find(name)
    system = problem.system()
    present = masters.jacobi(system, problem.step)
    model = Model(system, step=problem.step, horizon=problem.stop, budget=budget)
    found = tune(system, evaluations=200, horizon=problem.stop, settings=FEW, present=present, model=model)
    return found, co.analyse(system, found.recommended, horizon=problem.stop, budget=budget)


@pytest.mark.parametrize("name", mostly_slow(KNOWN, ("two-mass",)))
def test_what_tune_recommends_analyse_keeps(name: str) -> None:
    found, verdict = tuned_and_analysed(name)
    assert found.recommendation.point is found.chosen, found.recommendation.text
    advice = verdict.recommendation
    assert advice is not None
    assert advice.keep, (found.recommendation.text, advice.text)
    assert (verdict.trust, verdict.evidence) == ("yes", "proved")
    assert verdict.error is not None
    # The same error and the same cost in both.
    assert verdict.error.worst == pytest.approx(found.chosen.error, rel=1e-9)
    assert advice.cost == pytest.approx(found.chosen.cost, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_what_tune_recommends_analyse_keeps_where_units_are_not_known(name: str) -> None:
    # Many runs rather than many seconds: the clock must not decide how far pilot runs reach.
    found, verdict = tuned_and_analysed(name, Budget(multiples=20.0, seconds=math.inf))
    if found.recommendation.point is None:
        assert "no master was found" in found.recommendation.text
        return
    advice = verdict.recommendation
    assert advice is not None, verdict.reasons
    assert advice.keep, (found.recommendation.text, advice.text)


def test_every_problem_is_tried() -> None:
    assert len(KNOWN) + len(OTHERS) == len(CATALOGUE)
    assert {"pendula", "manipulator", "oscillator-nonlinear"} <= set(OTHERS)


# ---- the present master ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_present_master_that_meets_the_target_is_kept() -> None:
    problem = find("tank")
    system = problem.system()
    space = Space(steps=Range(0.1, 1.0), families=("jacobi", "gauss-seidel"), kinds=(0, 1))
    best = tune(system, space, evaluations=100, horizon=problem.stop, settings=FEW).chosen
    cases = [(best.step / 1.4, True), (best.step / 1.6, False)]
    for step, kept in cases:
        present = best.master.with_step(step)
        found = tune(system, space, evaluations=100, horizon=problem.stop, settings=FEW, present=present)
        assert found.recommendation.keep == kept, found.recommendation.text
        assert (found.recommended is present) == kept
        assert (found.recommendation.options == "") == kept
        if not kept:
            assert found.chosen.cost * CHEAPER <= found.recommendation.cost_before
            assert "× cheaper" in found.recommendation.text


def test_a_present_master_that_misses_the_target_is_replaced() -> None:
    system = find("tank").system()
    present = masters.jacobi(system, 2.0)
    space = Space(steps=(0.25, 0.5), families=("gauss-seidel",), kinds=(1,))
    found = tune(system, space, evaluations=20, horizon=300.0, settings=FEW, present=present)
    advice = found.recommendation
    assert not advice.keep
    assert advice.output is not None
    before, after = found.model.predict(present), found.model.predict(found.recommended)
    # The errors before and after are of one output, the one that is worst now.
    assert advice.output == before.output
    assert advice.output_error_before == before.outputs[advice.output] > 0.01
    assert advice.output_error == after.outputs[advice.output] <= 0.01
    assert f"{co.core.formatting.percent(advice.output_error_before)}" in advice.text


def test_without_a_good_enough_master_none_is_recommended() -> None:
    system = find("tank").system()
    space = Space(steps=2.0, families=("jacobi",), kinds=(0,))
    found = tune(system, space, evaluations=5, horizon=300.0, settings=Settings(wanted=Wanted(1e-6)))
    assert found.recommendation.point is None
    assert found.chosen is found.knee
    assert "no master was found that keeps every output within 1e-04 % in this space" in found.recommendation.text
    assert "Nearest: Jacobi at 2 s" in " ".join(str(found).split())


# ---- what is shown ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("objectives", mostly_slow([None, ("radius", "defect")], [None]))
@pytest.mark.parametrize(
    "gains", mostly_slow([Range(0.0, 0.95), Range(0.0, 1e-4), Range(0.0, 0.0)], [Range(0.0, 0.95)])
)
def test_no_filter_without_effect_is_shown(gains: Range, objectives: tuple[str, ...] | None) -> None:
    system = find("two-mass-glumac").system()
    space = Space(steps=Range(0.2, 2.0), families=("jacobi", "gauss-seidel"), kinds=("nepce",), gains=gains)
    found = tune(system, space, objectives, evaluations=60, horizon=50.0, settings=FEW)
    shown = [coupling for point in found.front for coupling in point.master.couplings.values()]
    assert not [coupling for coupling in shown if isinstance(coupling, Nepce) and coupling.alpha == 0]
    assert not any(word.endswith((":0", ":0.0")) for p in found.front for word in p.options.split())
    if gains.high > 0.5 and objectives is None:
        assert any(isinstance(coupling, Nepce) for coupling in shown)


def test_a_filter_without_effect_is_a_hold() -> None:
    from cosimo.tuning.space import MasterStructure

    system = find("two-mass-glumac").system()
    structure = MasterStructure("jacobi", (system.names,), (("one.x", "nepce"), ("two.F", "nepce")))
    made = structure.without_idle({"one.x": 0.5, "two.F": 0.0}).master(system, 1.0, {"one.x": 0.5, "two.F": 0.0})
    assert made.couplings == {"one.x": Nepce(0.5)}
    assert made.coupling == Hold(0)


# ---- cost ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tolerance", "limit"), [(1e-10, 100), (1e-4, 100), (1e-10, 3)])
def test_an_iteration_until_convergence_costs_the_sweeps_that_it_takes(tolerance: float, limit: int) -> None:
    system = co.problems.find("double-mass-spring-damper").system()
    master = masters.iterative(system, 2e-3, sweeps=Convergence(tolerance, limit))
    model = Model(system, step=2e-3, horizon=1.0)
    cost = master_cost(model, master, Cost())
    sweeps = cost * master.step / 2  # two units, one step each per sweep
    assert sweeps == int(sweeps)
    result = co.run(system, master, stop=1.0)
    taken = result.info["sweeps"] / 500
    # One more sweep than it takes tells that nothing changes any more.
    assert sweeps <= taken <= min(sweeps + 1.1, limit)
    # Once it was run, it costs what it took.
    model.measure(master)
    assert master_cost(model, master, Cost()) == pytest.approx(taken * 2 / master.step)


def test_an_iteration_of_units_that_are_not_known_costs_what_its_run_took() -> None:
    """Without a factor from Φ; the limit of 100 sweeps would make every other master look cheap."""
    system = find("oscillator-nonlinear").system()
    master = masters.iterative(system, 0.01, order=system.names)
    model = Model(system, step=0.01, horizon=1.0, identify=False)
    assert master_cost(model, master, Cost()) == 100 * len(system.units) / 0.01
    model.measure(master)
    taken = co.run(system, master, stop=1.0).info["sweeps"] / 100
    assert taken < 20
    assert master_cost(model, master, Cost()) == pytest.approx(taken * len(system.units) / 0.01)


def test_how_many_sweeps_can_be_said() -> None:
    system = find("tank").system()
    model = Model(system, step=0.5, horizon=10.0)
    master = masters.iterative(system, 0.5)
    assert master_cost(model, master, Cost(sweeps=7)) == 7 * 2 / 0.5
    with pytest.raises(ConfigurationError, match="how many sweeps"):
        Cost().per_second(system, master)
    assert math.isfinite(master_cost(model, master, Cost()))
