"""The test bed itself: every system runs, is what it says, and its references and critical steps can be trusted."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from thinning import mostly_slow

sys.path.insert(0, str(Path(__file__).parents[1]))
from cosimo.algebra import coupled_model
from cosimo.analysis import critical_step
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.core.unit import LinearModel
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.masters import gauss_seidel, iterative, jacobi
from cosimo.problems import tank
from cosimo.units import Fmu
from testbed import CASES, LINEAR, NONLINEAR, critical_step_by_bisection, ending, reference, systems
from testbed.build import Model
from testbed.nonlinear import PENDULUM, TANK

Systems = dict[str, System]
Builder = Callable[[System, float], Master]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    return systems(tmp_path_factory.mktemp("full"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    return systems(tmp_path_factory.mktemp("bare"), states=False, derivatives=False)


@pytest.fixture(scope="module")
def third(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    return systems(tmp_path_factory.mktemp("third"), fmi=3)


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> Systems:
    return systems(tmp_path_factory.mktemp("resting"), near_rest=True)


def largest_error(name: str, system: System, master: Master, *, stop: float | None = None) -> np.ndarray:
    """Per output, the largest error of a run as a part of the output's size."""
    result = run(system, master, stop=stop or CASES[name].horizon)
    exact = reference(name, result.time)
    return np.abs(result.values - exact).max(axis=0) / np.abs(exact).max(axis=0)


def backwards(system: System, step: float) -> Master:
    return gauss_seidel(system, step, order=system.names[::-1])


def test_there_are_at_least_six_systems_of_fmus_only(full: Systems) -> None:
    assert set(full) == {*LINEAR, *NONLINEAR}
    assert len(full) >= 6
    for system in full.values():
        assert all(isinstance(unit, Fmu) and not unit.problems() for unit in system.units.values())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_versions_and_capabilities_do_not_change_the_run(
    name: str, full: Systems, bare: Systems, third: Systems
) -> None:
    case = CASES[name]
    here = run(full[name], jacobi(full[name], case.step), stop=case.horizon)
    assert here.complete
    assert np.isfinite(here.values).all()
    for other in (bare[name], third[name]):
        there = run(other, jacobi(other, case.step), stop=case.horizon)
        assert there.names == here.names
        assert np.abs(there.values - here.values).max() == 0


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("coupling", [Hold(0), Hold(1)], ids=["hold", "slope"])
@pytest.mark.one_in(3)
def test_linear_fmus_run_as_the_units_they_were_exported_from(name: str, coupling: Hold, full: Systems) -> None:
    case = CASES[name]
    system = case.linear()  # type: ignore[misc]
    for build in (jacobi, gauss_seidel):
        ours = run(system, build(system, case.step, coupling=coupling), stop=case.horizon)
        theirs = run(full[name], build(full[name], case.step, coupling=coupling), stop=case.horizon)
        scale = np.abs(ours.values).max(axis=0)
        assert (np.abs(theirs.values - ours.values).max(axis=0) <= 1e-10 * scale).all()


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("build", [jacobi, gauss_seidel])
@pytest.mark.one_in(3)
def test_fine_runs_tend_to_the_reference_with_order_one(name: str, build: Builder, full: Systems) -> None:
    # The undivided equations share nothing with the coupling: half the step must leave half the error.
    step = CASES[name].step
    coarse, fine = (largest_error(name, full[name], build(full[name], h)) for h in (step, step / 2))
    assert (coarse < 0.1).all()
    assert coarse / fine == pytest.approx(np.full(len(fine), 2.0), rel=0.1)


@pytest.mark.parametrize("name", LINEAR)
def test_the_flow_does_not_depend_on_which_times_are_asked_for(name: str) -> None:
    times = np.linspace(0.0, CASES[name].horizon, 101)
    some = np.sort(np.random.default_rng(1).choice(101, 20, replace=False))
    whole = reference(name, times)
    assert reference(name, times[some]) == pytest.approx(whole[some], rel=1e-9, abs=1e-9 * np.abs(whole).max())


@pytest.mark.parametrize("name", CASES)
def test_capabilities_are_as_declared(name: str, full: Systems, bare: Systems, third: Systems) -> None:
    for system in (full[name], third[name]):
        assert all(unit.can_restore and unit.provides_directional_derivatives for unit in system.units.values())
        result = run(system, iterative(system, CASES[name].step, sweeps=2), stop=10 * CASES[name].step)
        assert len(result) == 11
    for unit in bare[name].units.values():
        assert not any((unit.can_restore, unit.can_serialise, unit.provides_directional_derivatives))
        live = unit.instantiate(0.0)
        try:
            with pytest.raises(CosimoError):
                live.save()
            with pytest.raises(CosimoError):
                live.directional_derivative(unit.outputs[:1], unit.inputs[:1], [1.0])
        finally:
            live.close()
    with pytest.raises(ConfigurationError, match="cannot restore"):
        iterative(bare[name], CASES[name].step)


def test_each_capability_can_be_withheld_alone(tmp_path: Path) -> None:
    for states, derivatives, fmi in ((True, False, 2), (False, True, 3)):
        built = systems(tmp_path, states=states, derivatives=derivatives, fmi=fmi)  # type: ignore[arg-type]
        for system in built.values():
            for unit in system.units.values():
                assert unit.major_version == fmi
                assert unit.can_restore == states
                assert unit.provides_directional_derivatives == derivatives


POINTS = {"tank-limited": ([0.5, 0.014], [1.2, 0.03], [1.5, 0.0245]), "pendulum": ([0.0, 0.0, 0.0], [0.7, 0.15, 2.0])}
"""States at which the inflow is limited, free, and at rest; and of a pendulum at rest and in motion."""


@pytest.mark.parametrize(("name", "point"), [(name, point) for name in NONLINEAR for point in POINTS[name]])
@pytest.mark.parametrize("version", ["full", "third"])
def test_directional_derivatives_are_those_of_the_whole(
    name: str, point: list[float], version: str, request: pytest.FixtureRequest
) -> None:
    """The FMUs' derivatives put together, A + B L C, beside differences of the equations written as one model."""
    case, system = CASES[name].nonlinear, request.getfixturevalue(version)[name]
    assert case is not None
    x = np.array(point)
    given = dict(zip(system.outputs, case.outputs(x), strict=True))
    fed = {target: given[source] for source, target in case.connections} | dict(case.inputs)
    models, place = {}, 0
    for unit, model in case.models.items():
        states = dict(zip(model.states, x[place:], strict=False))
        place += len(states)
        inputs = {variable: fed[f"{unit}.{variable}"] for variable in model.inputs}
        models[unit] = _linear_part(system.units[unit].path, model, {**states, **inputs})
    together = coupled_model(system, models)
    assert _slopes(case.rates, x) == pytest.approx(together.A, rel=1e-6, abs=1e-6)


def _linear_part(path: Path, model: Model, start: dict[str, float]) -> LinearModel:
    live = Fmu(path, start=start).instantiate(0.0)
    unknowns, knowns = (*model.rates, *model.outputs), (*model.states, *model.inputs)
    try:
        live.finish_initialisation()
        J = np.column_stack(
            [live.directional_derivative(unknowns, knowns, row) for row in np.eye(len(knowns)).tolist()]
        )
    finally:
        live.close()
    n = len(model.states)
    return LinearModel(J[:n, :n], J[:n, n:], J[n:, :n], J[n:, n:])


def _slopes(rates: Callable[[np.ndarray], np.ndarray], x: np.ndarray, step: float = 1e-6) -> np.ndarray:
    return np.column_stack([(rates(x + step * e) - rates(x - step * e)) / (2 * step) for e in np.eye(len(x))])


def test_the_linear_tank_is_the_linear_part_of_the_limited_one() -> None:
    linear = tank()
    whole = coupled_model(linear, {name: unit.linear() for name, unit in linear.units.items()}).A  # type: ignore[misc]
    assert _slopes(TANK.rates, TANK.equilibrium()) == pytest.approx(whole, rel=1e-6, abs=1e-9)


def test_the_limited_tank_reaches_its_limit_and_leaves_it(full: Systems) -> None:
    inflow = reference("tank-limited", np.linspace(0.0, 300.0, 601))[:, 1]
    most = TANK.models["controller"].parameters["most"]
    assert inflow[0] == most
    assert inflow[-1] == pytest.approx(0.02 * np.sqrt(1.5), rel=1e-3)
    assert (np.diff(inflow == most) != 0).sum() == 1
    assert PENDULUM.equilibrium()[0] < 1.0


# ---- critical steps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("build", mostly_slow([jacobi, gauss_seidel, backwards], [backwards]))
@pytest.mark.one_in(2)
def test_runs_diverge_where_the_algebra_says(name: str, build: Builder, full: Systems) -> None:
    case = CASES[name]
    whole = case.linear()  # type: ignore[misc]
    expected = critical_step(whole, build(whole, case.step))
    assert expected is not None
    found = critical_step_by_bisection(full[name], build, *case.search, tolerance=5e-4, steps=10_000)
    assert found == pytest.approx(expected.step, rel=1e-3)


@pytest.mark.slow
def test_near_rest_the_limited_tank_diverges_where_the_linear_one_does(resting: Systems) -> None:
    linear = tank()
    for build in (jacobi, gauss_seidel):
        expected = critical_step(linear, build(linear, 0.1))
        assert expected is not None
        found = critical_step_by_bisection(
            resting["tank-limited"], build, *CASES["tank-limited"].search, tolerance=5e-4, steps=4_000
        )
        assert found == pytest.approx(expected.step, rel=1e-3)


def test_near_rest_both_orders_of_the_pendulum_diverge_at_the_same_step(resting: Systems) -> None:
    search = CASES["pendulum"].search
    found = [
        critical_step_by_bisection(resting["pendulum"], build, *search, tolerance=1e-3, steps=4_000)
        for build in (gauss_seidel, backwards)
    ]
    assert found[0] == pytest.approx(found[1], rel=2e-3)


def test_resting_elsewhere_is_not_settling(resting: Systems) -> None:
    # Two sweeps make the limited tank unstable without oscillation: its inflow runs into the limit and stays there.
    system = resting["tank-limited"]

    def twice(system: System, step: float) -> Master:
        return iterative(system, step, sweeps=2, order=system.names)

    far = ending(system, twice(system, 12.0), steps=2_000)
    assert far.dying
    assert far.rest[1] == TANK.models["controller"].parameters["most"]
    linear = tank()
    expected = critical_step(linear, twice(linear, 0.1))
    assert expected is not None
    found = critical_step_by_bisection(system, twice, 2.0, 12.0, tolerance=1e-3, steps=4_000)
    assert found == pytest.approx(expected.step, rel=2e-3)


def test_a_search_without_a_change_is_refused(full: Systems) -> None:
    with pytest.raises(ValueError, match="still settles"):
        critical_step_by_bisection(full["tank"], jacobi, 1.0, 2.0, steps=1_000)
    with pytest.raises(ValueError, match="does not settle"):
        critical_step_by_bisection(full["tank"], jacobi, 15.0, 20.0, steps=1_000)


# ---- the quarter truck ---------------------------------------------------------------------------------------------


def test_the_quarter_truck_at_50_ms_is_grossly_wrong_and_can_be_made_right(full: Systems) -> None:
    system = full["quarter-truck"]
    chassis = system.outputs.index("chassis.position")
    assert largest_error("quarter-truck", system, jacobi(system, 0.05))[chassis] > 0.79
    assert largest_error("quarter-truck", system, jacobi(system, 0.004))[chassis] < 0.01
    better = gauss_seidel(system, 0.01, order=("wheel", "chassis"), coupling=Hold(1))
    assert largest_error("quarter-truck", system, better)[chassis] < 0.01
