"""Tuning from end to end: fronts, recommendations that hold when run, limits, seeds, resuming."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import cosimo as co
from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.algebra.backends import Backend
from cosimo.algebra.batched_map import MasterNumbers, SharedSchedule
from cosimo.analysis.error_norms import global_error
from cosimo.analysis.model import Model
from cosimo.core.errors import ConfigurationError, Interrupted, UnknownNameError
from cosimo.core.formatting import MOST_ROBUST
from cosimo.masters.words import command_options, describe
from cosimo.problems import find
from cosimo.tuning import Cost, Progress, Range, Settings, Space, Wanted, measured_weights, relative_radius, tune
from cosimo.tuning.evaluation import COLUMNS, CandidatePool, margins, tuning_problem
from cosimo.tuning.goals import find_goals, hypervolume, nondominated
from cosimo.tuning.search import grid
from cosimo.tuning.space import MasterStructure
from cosimo.tuning.tuner import Finish, Tuned
from thinning import mostly_slow

LINEAR = ["two-mass-damped", "quarter-truck", "dc-motor", "thermal-pair", "tank", "two-mass-glumac"]
TRUCK = ("chassis.wheel_position", "chassis.wheel_velocity", "wheel.force")
QUICK = Space(families=("jacobi", "gauss-seidel", "iterative"), kinds=(0, 1), sweeps=(2,))


@pytest.mark.parametrize("name", mostly_slow(LINEAR, ("tank",)))
def test_recommended_masters_do_what_was_predicted(name: str) -> None:
    problem = find(name)
    found = tune(problem.system(), QUICK, evaluations=250, horizon=problem.stop, settings=Settings(points=8))
    assert found.chosen.error <= 0.01
    assert found.chosen.robustness >= 0.25
    for entry in found.verify(3):
        assert entry.deviation < 0.25, entry.point.sentence
        # Linear units: the prediction is the run, to rounding.
        assert entry.measured.error == pytest.approx(entry.point.error, rel=1e-3)


def test_the_error_is_that_of_a_run_against_the_exact_solution() -> None:
    """By hand, without the code that predicts or measures: exp(A h) and a run."""
    system = co.problems.find("two-mass-glumac").system()
    found = tune(system, Space(steps=0.5, kinds=(0,), families=("gauss-seidel",)), evaluations=10, horizon=20.0)
    result = co.run(system, found.recommended, stop=20.0)
    coupled = LinearSystem(system, found.recommended).coupled
    flow, x = coupled.flow(0.01), np.array([1.0, 0.0, 0.0, 0.0])
    rows = []
    for _ in range(2001):
        rows.append(coupled.C @ x)
        x = flow @ x
    exact = np.array(rows)
    off = np.abs(result.values[:, [result.names.index(n) for n in system.outputs]] - exact[::50]).max(axis=0)
    assert found.chosen.error == pytest.approx(float((off / np.abs(exact).max(axis=0)).max()), rel=1e-9)


def test_the_front_has_no_dominated_points_and_values_are_those_of_the_masters() -> None:
    problem = find("tank")
    system = problem.system()
    found = tune(system, QUICK, evaluations=200, horizon=300.0, settings=Settings(points=10))
    values = np.array([[p.error, -p.robustness, p.cost] for p in found.front])
    assert nondominated(np.nan_to_num(values, neginf=-1e9)).all()
    for point in found.front[::4]:
        assert point.cost == pytest.approx(Cost().per_step(system, point.master) / point.master.step)
        assert point.robustness == relative_radius(system, point.master, shells=32).change
        assert point.radius == pytest.approx(co.analyse(system, point.master, details=False).spectral_radius)
    assert found.chosen in found.front
    assert found.recommended is found.chosen.master


def test_spurious_damping_is_not_rewarded() -> None:
    """The smallest ρ of this system is at h ≈ 8.6, where outputs are wrong by more than their size (glumac2018)."""
    system = co.problems.find("two-mass-glumac").system()
    chosen = tune(system, QUICK, evaluations=300, horizon=100.0, settings=Settings(points=8)).chosen
    assert chosen.radius > 0.9
    damped = masters.gauss_seidel(
        system, 8.57465146, order=["two", "one"], couplings={"two.F": co.couplings.Nepce(0.46769432)}
    )
    assert co.analyse(system, damped, details=False).spectral_radius < 0.389
    assert relative_radius(system, damped).change < chosen.robustness


def test_a_good_master_beats_plain_jacobi_by_what_the_sentence_says() -> None:
    system = find("tank").system()
    found = tune(system, QUICK, evaluations=300, horizon=300.0, settings=Settings(points=8))
    chosen = found.chosen
    assert chosen.cheaper > 5
    assert "× cheaper than Jacobi with held inputs" in chosen.sentence
    # Jacobi with held inputs at that many times the cost has about the same error.
    step = Cost().per_step(system, masters.jacobi(system, 1.0)) / (chosen.cost * chosen.cheaper)
    assert found.model.predict(masters.jacobi(system, step)).worst == pytest.approx(chosen.error, rel=0.1)


def test_limits_are_kept() -> None:
    system = find("quarter-truck").system()
    few, space = Settings(points=4), replace(QUICK, steps=2e-3, order=("wheel", "chassis"))
    fixed = tune(system, space, evaluations=50, horizon=1.0, settings=few)
    assert {point.step for point in fixed.front} == {2e-3}
    assert all("chassis → wheel" not in point.words for point in fixed.front)
    cheap = tune(system, replace(QUICK, max_cost=600.0), evaluations=150, horizon=1.0, settings=few)
    assert max(point.cost for point in cheap.front) <= 600.0
    with pytest.raises(ConfigurationError, match="larger --max-cost"):
        tune(system, replace(QUICK, steps=1e-4, max_cost=10.0), evaluations=20, horizon=0.1)


def test_units_that_cannot_roll_back_are_not_iterated() -> None:
    system = find("tank").system()
    system.units["tank"].can_restore = False
    found = tune(system, QUICK, evaluations=60, horizon=100.0, settings=Settings(points=5))
    assert not any("sweep" in point.words for point in found.front)
    assert any("tank cannot restore" in note for note in found.notes)


def test_equal_seeds_give_equal_results_and_other_seeds_others() -> None:
    system = find("tank").system()
    space = Space(families=("jacobi",), kinds=("nepce",))
    one, two, other = (
        tune(system, space, evaluations=200, horizon=100.0, seed=seed, settings=Settings(points=5, population=20))
        for seed in (1, 1, 2)
    )
    assert (one.values == two.values).all()
    assert one.values.shape != other.values.shape or (one.values != other.values).any()


def test_an_interrupted_search_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.tuning.tuner.EVERY", 0.0)
    system, space = find("tank").system(), Space(families=("jacobi",), kinds=("nepce",))
    settings = Settings(points=5, population=20, resume=tmp_path / "search.npz")

    def kill(progress: Progress) -> None:
        if progress.evaluations > 150:
            raise KeyboardInterrupt

    for pause in ("PAUSE", "SPARING"):  # a report after every evaluation, however long one takes here
        monkeypatch.setattr(f"cosimo.tuning.search.{pause}", 0.0)
    with pytest.raises(Interrupted, match="continues from"):
        tune(system, space, evaluations=250, horizon=100.0, settings=settings, progress=kill)
    kept = np.load(tmp_path / "search.npz")["rows"]
    assert 100 < len(kept) < 250
    evaluated = []
    original = co.tuning.evaluation.CandidatePool._columns
    monkeypatch.setattr(
        "cosimo.tuning.evaluation.CandidatePool._columns",
        lambda self, rows: (evaluated.append(len(rows)), original(self, rows))[1],
    )
    resumed = tune(system, space, evaluations=250, horizon=100.0, settings=settings)
    assert sum(evaluated) <= 250 - len(kept)
    whole = tune(system, space, evaluations=250, horizon=100.0, settings=replace(settings, resume=None))
    assert (resumed.values == whole.values).all()
    with pytest.raises(ConfigurationError, match="belongs to another search"):
        tune(system, space, evaluations=250, horizon=50.0, settings=settings)


def tell_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search reports whenever it could, however long a report takes."""
    for name in ("PAUSE", "SPARING"):
        monkeypatch.setattr(f"cosimo.tuning.search.{name}", 0.0)


def test_progress_tells_a_growing_hypervolume(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_always(monkeypatch)
    seen: list[Progress] = []
    tune(
        find("tank").system(),
        QUICK,
        evaluations=300,
        horizon=100.0,
        settings=Settings(method="nsga2", points=3),
        progress=seen.append,
    )
    volumes = [progress.hypervolume for progress in seen]
    assert volumes == sorted(volumes)
    assert volumes[-1] > volumes[0] > 0
    assert {progress.stage for progress in seen} == {"grid", "NSGA-II", "refine"}
    assert seen[-1].evaluations <= 300


def test_a_long_grid_is_told_of_while_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_always(monkeypatch)
    system, seen = find("tank").system(), {}
    for at_once in (1000, 40):
        monkeypatch.setattr("cosimo.tuning.search.AT_ONCE", at_once)
        counts: list[int] = []
        settings = Settings(method="grid", points=3)
        told: Any = lambda now, counts=counts: counts.append(now.evaluations)  # noqa: E731
        found = tune(system, QUICK, evaluations=100, horizon=100.0, settings=settings, progress=told)
        seen[at_once] = counts, found.values
    assert len(seen[1000][0]) < len(seen[40][0])
    assert seen[40][0][0] == 40
    assert np.array_equal(seen[1000][1], seen[40][1])


def test_a_grid_is_every_point_of_it() -> None:
    system = find("tank").system()
    space = Space(steps=(0.1, 0.5, 1.0), families=("jacobi",), kinds=(0, 1))
    found = tune(system, space, evaluations=100, horizon=100.0)
    assert found.evaluations == 6
    by_hand = min(found.model.predict(masters.jacobi(system, 0.1, coupling=co.couplings.Hold(n))).worst for n in (0, 1))
    assert found.front[0].error == by_hand


def test_a_system_at_rest_is_judged_by_its_worst_start() -> None:
    system = co.problems.find("two-mass-glumac").system()
    units = {n: co.StateSpace(**vars(u.model), inputs=u.inputs, outputs=u.outputs) for n, u in system.units.items()}
    rest = co.System(units, system.connections)
    assert tuning_problem(Model(rest)).worst_case
    assert not tuning_problem(Model(system)).worst_case
    space = Space(steps=0.5, kinds=(0,), families=("jacobi",))
    found = tune(rest, space, evaluations=5, horizon=20.0)
    assert found.chosen.error == pytest.approx(found.values[0, 0], rel=0.05)
    worst = global_error(LinearSystem(rest, found.recommended), steps=40)
    assert found.chosen.error == max(worst.outputs.values())
    with pytest.raises(ConfigurationError, match="at rest"):
        found.verify(1)


def test_without_a_stable_master_that_is_said() -> None:
    found = tune(
        co.problems.find("two-mass-damped").system(), Space(steps=0.2, kinds=(0,), families=("jacobi",)), horizon=1.0
    )
    assert not found.chosen.stable
    assert any("No stable master" in note for note in found.notes)
    assert "UNSTABLE" in str(found)


def test_constant_drives_are_part_of_the_error() -> None:
    """Without them this motor would stay at rest."""
    problem = find("dc-motor")
    step = Space(steps=problem.step, families=("jacobi",), kinds=(0,))
    found = tune(problem.system(), step, evaluations=10, horizon=problem.stop)
    assert found.values[0, 0] == pytest.approx(found.chosen.error, rel=0.02)


def test_inputs_that_vary_are_part_of_what_is_shown() -> None:
    from cosimo.problems.masses import quarter_truck

    system = quarter_truck(profile=lambda t: 0.05 * np.sin(8 * t))
    found = tune(system, Space(steps=2e-3, families=("jacobi",), kinds=(0,)), evaluations=10, horizon=1.0)
    assert any("vary" in note for note in found.notes)
    (entry,) = found.verify(1)
    assert entry.deviation < 1e-6


def test_workers_make_units_that_do_not_see_each_other_go_together() -> None:
    system = co.problems.find("chain").system({"n": 4})
    space = Space(steps=0.01, families=("gauss-seidel",), kinds=(0,), order=("u1", "u3", "u2", "u4"))
    one, two = (
        tune(system, space, evaluations=5, horizon=1.0, settings=Settings(cost=Cost(workers=workers))).chosen
        for workers in (1, 2)
    )
    assert str(two.master) == "F1 F3 G1 G3 H1 H3 F2 F4 G2 G4 H2 H4"
    assert two.error == pytest.approx(one.error, rel=1e-9)
    assert two.cost == one.cost / 2


def test_measured_costs_are_seconds() -> None:
    system = find("tank").system()
    weights = measured_weights(system, 0.5)
    assert set(weights) == {"tank", "controller"}
    assert all(1e-8 < seconds < 1e-2 for seconds in weights.values())


def test_compensated_masters_join_the_front() -> None:
    system = co.problems.find("two-mass-damped").system()
    space = Space(steps=1.8e-3, families=("jacobi",), kinds=(0,), compensation=True)
    found = tune(system, space, evaluations=5, horizon=5.0)
    assert any(point.master.mixers for point in found.front)
    assert found.verify(1)[0].deviation < 1e-6


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"objectives": ["speed"]}, "objective"),
        ({"objectives": ["error", "error"]}, "each only once"),
        ({"evaluations": 0}, "at least one evaluation"),
        ({"horizon": -1.0}, "horizon"),
        ({"settings": Settings(method="random")}, "'random'"),  # type: ignore[arg-type]
        ({"settings": Settings(backend="abacus")}, "backend"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises((ConfigurationError, UnknownNameError), match=said):
        tune(find("tank").system(), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"families": ("seidel",)}, "family"),
        ({"steps": -1.0}, "positive"),
        ({"kinds": (3,)}, "not 3"),
        ({"gains": Range(0.0, 1.0)}, r"\[0, 1\)"),
        ({"couplings": {"tank.nothing": (0,)}}, "tank.nothing"),
        ({"order": ("tank",)}, "exactly once"),
        ({"max_cost": 0.0}, "cost"),
    ],
)
def test_wrong_spaces_are_named(wrong: dict[str, object], said: str) -> None:
    with pytest.raises((ConfigurationError, UnknownNameError), match=said):
        tune(find("tank").system(), Space(**wrong), evaluations=5)  # type: ignore[arg-type]


def test_units_of_unknown_equations_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="identify"):
        tune(find("pendula").system())


def test_what_is_wanted_decides() -> None:
    system = find("tank").system()
    loose, tight = (
        tune(system, QUICK, evaluations=250, horizon=300.0, settings=Settings(points=8, wanted=Wanted(error))).chosen
        for error in (0.05, 0.001)
    )
    assert tight.error <= 0.001 < loose.error <= 0.05
    assert loose.cost < tight.cost


def test_hypervolume_in_three_objectives_is_that_of_counting() -> None:
    rng = np.random.default_rng(0)
    points = rng.uniform(size=(40, 3))
    grid = rng.uniform(size=(200_000, 3))
    inside = np.zeros(len(grid), dtype=bool)
    for point in points:
        inside |= (grid >= point).all(axis=1)
    assert hypervolume(points, np.ones(3)) == pytest.approx(inside.mean(), abs=0.005)


def test_several_rates_are_candidates_like_any_other() -> None:
    system = find("tank").system()
    space = Space(steps=0.5, families=(), kinds=(0, 1), multiples=({"controller": 2},))
    found = tune(system, space, evaluations=10, horizon=100.0)
    assert found.chosen.step == 1.0
    assert "--multiple controller=2" in found.chosen.options
    assert found.values[:, 0].min() == pytest.approx(found.front[0].error, rel=0.05)
    # Per second two steps of the tank and one of the controller.
    assert found.chosen.cost == 3.0


def test_slower_units_may_be_interpolated() -> None:
    system = find("tank").system()
    space = Space(steps=0.5, families=(), kinds=(1,), multiples=({"controller": 2},))
    resolved = space.resolve(system, fastest=1.0, horizon=100.0)
    assert [structure.family for structure in resolved.structures] == ["multirate", "interpolated"]
    built = resolved.structures[1].master(system, 0.5)
    assert built == masters.multirate(
        system, 0.5, multiples={"controller": 2}, inputs="interpolated", coupling=co.couplings.Hold(1)
    )
    assert "--inputs interpolated" in command_options(built)


def test_groups_are_those_given_or_all_that_differ() -> None:
    system = co.problems.find("chain").system({"n": 3})
    wanted = Space(families=(), kinds=(0,), groups=[[("u1", "u3"), ("u2",)]])
    (structure,) = wanted.resolve(system, fastest=1.0, horizon=1.0).structures
    assert str(structure.master(system, 1.0)) == "F1 F3 G1 G3 H1 H3 F2 G2 H2"
    assert describe(structure.master(system, 1.0), step=False) == "groups (u1, u3) → u2"
    every = Space(families=("groups",), kinds=(0,)).resolve(system, fastest=1.0, horizon=1.0).structures
    maps = [LinearSystem(system, one.master(system, 0.01)).one_step.Phi for one in every]
    assert len(maps) == 4
    assert all(np.abs(a - b).max() > 1e-6 for i, a in enumerate(maps) for b in maps[:i])
    with pytest.raises(ConfigurationError, match="exactly once"):
        Space(groups=[[("u1",)]]).resolve(system, fastest=1.0, horizon=1.0)
    with pytest.raises(ConfigurationError, match="too many ways"):
        Space(families=("groups",)).resolve(co.problems.find("chain").system({"n": 6}), fastest=1.0, horizon=1.0)


def test_the_user_may_say_which_units_cannot_be_rolled_back() -> None:
    system = find("tank").system()
    space = Space(families=("jacobi", "iterative"), kinds=(0,), cannot_restore=("controller",))
    resolved = space.resolve(system, fastest=1.0, horizon=10.0)
    assert {structure.family for structure in resolved.structures} == {"jacobi"}
    assert any("controller cannot restore" in note for note in resolved.notes)
    with pytest.raises(UnknownNameError, match="valve"):
        replace(space, cannot_restore=("valve",)).resolve(system, fastest=1.0, horizon=10.0)


def test_offsets_of_connections_are_part_of_the_search() -> None:
    """They drive this system alone: without them it would be at rest."""
    slow = co.StateSpace(-1.0, 1.0, 1.0, inputs=["u"], outputs=["y"])
    fast = co.StateSpace(-3.0, 2.0, -1.0, inputs=["u"], outputs=["y"])
    links = [co.Connection("a.y", "b.u", offset=0.5), co.Connection("b.y", "a.u", gain=2.0, offset=-0.2)]
    system = co.System({"a": slow, "b": fast}, links, name="pushed")
    assert not tuning_problem(Model(system)).worst_case
    space = Space(steps=0.1, kinds=(0, 1), families=("jacobi",))
    found = tune(system, space, evaluations=5, horizon=5.0)
    assert not found.notes
    assert found.values[:, 0].min() == pytest.approx(found.front[0].error, rel=0.01)
    assert found.verify(1)[0].deviation < 1e-6


@pytest.mark.slow
def test_nsga3_finds_nearly_as_much_as_nsga2(monkeypatch: pytest.MonkeyPatch) -> None:
    """In three objectives; in two, or with few evaluations in four, NSGA-II finds some per cent more."""
    tell_always(monkeypatch)
    system, volumes = find("tank").system(), {}
    for method in ("nsga2", "nsga3"):
        seen: list[Progress] = []
        settings = Settings(method=method, points=3, population=40)  # type: ignore[arg-type]
        tune(system, QUICK, evaluations=200, horizon=50.0, settings=settings, progress=seen.append)
        volumes[method] = seen[-1].hypervolume
        assert {"nsga2": "NSGA-II", "nsga3": "NSGA-III"}[method] in {progress.stage for progress in seen}
        assert seen[-1].hypervolume > 1.02 * seen[0].hypervolume
    assert volumes["nsga3"] > 0.95 * volumes["nsga2"]


def test_nsga3_needs_several_objectives_and_spreads_directions() -> None:
    with pytest.raises(ConfigurationError, match="two objectives or more"):
        tune(find("tank").system(), QUICK, ("error",), evaluations=60, settings=Settings(method="nsga3"))
    from cosimo.tuning.search import directions

    for goals in (2, 3, 5):
        found = directions(goals, 100)
        assert 50 <= len(found) <= 100
        assert found.sum(axis=1) == pytest.approx(np.ones(len(found)))


def test_kinds_of_coupling_may_be_mixed_or_given_per_input() -> None:
    system = co.problems.find("two-mass-glumac").system()
    plain = Space(families=("jacobi",), kinds=(0, 1))
    for space, count in ((plain, 2), (replace(plain, mixed=True), 8), (replace(plain, couplings={"two.F": (2,)}), 2)):
        resolved = space.resolve(system, fastest=1.0, horizon=10.0)
        assert len(resolved.structures) == count
    couplings = resolved.structures[0].master(system, 1.0).couplings
    assert couplings == {"two.F": co.couplings.Hold(2)}


def test_local_search_needs_no_pymoo_and_finds_nearly_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_always(monkeypatch)
    system = find("tank").system()
    seen: dict[str, list[Progress]] = {"nsga2": [], "auto": []}
    for method, progress in seen.items():
        if method == "auto":
            monkeypatch.setitem(sys.modules, "pymoo", None)
        told, settings = cast(Any, progress.append), Settings(method=cast(Any, method), points=3)
        found = tune(system, QUICK, evaluations=200, horizon=100.0, settings=settings, progress=told)
        assert found.chosen.meets(found.wanted)
    assert {progress.stage for progress in seen["auto"]} == {"grid", "refine"}
    assert "NSGA-II" in {progress.stage for progress in seen["nsga2"]}
    assert seen["auto"][-1].hypervolume > 0.95 * seen["nsga2"][-1].hypervolume
    asked: list[Any] = []
    with pytest.raises(ConfigurationError, match="'nsga3' needs pymoo: install cosimo with the extra 'tune'"):
        tune(system, QUICK, horizon=100.0, settings=Settings(method="nsga3"), progress=asked.append)
    assert not asked, "it is said before anything is computed"


def test_ctrl_c_keeps_what_was_found() -> None:
    system = find("tank").system()

    def interrupt(now: Any) -> None:
        if now.evaluations >= 100:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"interrupted after \d+ of 2000 candidates") as caught:
        tune(system, QUICK, evaluations=2000, horizon=100.0, progress=interrupt)
    found: Any = caught.value.result
    assert 100 <= found.evaluations < 2000
    assert found.front
    assert found.chosen.stable


def test_ctrl_c_after_the_last_candidate_keeps_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = Finish.result, list[int]()

    def interrupted(self: Finish, seconds: float) -> Tuned:
        calls.append(self.most)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return whole(self, seconds)

    monkeypatch.setattr(Finish, "result", interrupted)
    with pytest.raises(Interrupted, match="interrupted after 60 of 60 candidates") as caught:
        tune(find("tank").system(), QUICK, evaluations=60, horizon=100.0)
    assert cast(Any, caught.value.result).front
    assert calls == [30, 8]  # a few points, quickly


def test_progress_tells_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    tell_always(monkeypatch)
    seen: list[Progress] = []
    system = find("tank").system()
    found = tune(system, QUICK, evaluations=200, horizon=100.0, settings=Settings(points=3), progress=seen.append)
    assert seen[-1].error <= found.wanted.error
    assert seen[-1].step == pytest.approx(found.chosen.master.step, rel=0.2)


def test_robustness_is_left_out_only_where_the_front_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without the figures of candidates that others dominate whatever theirs are: the same front."""
    problem = tuning_problem(Model(find("two-mass").system(), horizon=5.0))
    resolved = Space().resolve(problem.system, fastest=problem.fastest, horizon=problem.horizon)
    rows, fronts, zeros = grid(resolved, 150), [], []
    for most in (MOST_ROBUST, np.inf):
        monkeypatch.setattr("cosimo.tuning.evaluation.BEYOND_ALL", most)
        pool = CandidatePool(problem, resolved, find_goals(None), cost=Cost(), max_cost=None)
        columns = np.concatenate([pool.evaluate(part) for part in np.array_split(rows, 3)])
        allowed = (pool.violation(columns) == 0) & (columns[:, 0] == 1)
        zeros.append(int((columns[allowed, COLUMNS.index("robustness")] == 0).sum()))
        values = pool.scaled(columns)
        fronts.append(values[allowed][nondominated(values[allowed])])
    assert zeros[0] > zeros[1] + 10
    assert (fronts[0] == fronts[1]).all()


def test_screened_robustness_is_close_to_the_relative_radius() -> None:
    """Wherever the search looks: never far above, or the front would be of the wrong masters."""
    system = find("quarter-truck").system()
    steps = np.geomspace(1e-4, 2e-2, 6)
    for kind in (0, 1):
        structure = MasterStructure("gauss-seidel", (("wheel",), ("chassis",)), tuple((t, kind) for t in TRUCK))
        schedule = SharedSchedule([system], structure.master(system, 1.0))
        rough = margins([(schedule, MasterNumbers(steps))], Backend())
        exact = [relative_radius(system, structure.master(system, h)).change for h in steps.tolist()]
        assert rough == pytest.approx(exact, rel=0.25, abs=0.05)
