"""What is recommended: the choice among points, when the present master is kept, and the search for candidates."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosimo.algebra.product import LinearSystem
from cosimo.analysis import recommendation as recommending
from cosimo.analysis.cost import Cost
from cosimo.analysis.model import Model
from cosimo.analysis.recommendation import (
    Point,
    Wanted,
    choose,
    judge_point,
    master_cost,
    measured_rungs,
    recommend,
    round_steps,
    untried_step,
    usual_masters,
    usual_points,
)
from cosimo.analysis.robustness import relative_radius
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.truth import OutputErrors, step_range
from cosimo.core.errors import ConfigurationError
from cosimo.core.schedule import Convergence
from cosimo.core.system import Connection, System
from cosimo.couplings import Nepce
from cosimo.masters import gauss_seidel, iterative, jacobi
from cosimo.units import Exact, PythonUnit, StateSpace


def lags(gain: float = -1.0, rate: float = 2.0) -> System:
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"], integrator=Exact()),
        "b": StateSpace(-rate, rate, 1.0, inputs=["u"], outputs=["y"], integrator=Exact()),
    }
    return System(units, [Connection("b.y", "a.u", gain=gain), ("a.y", "b.u")], name="lags")


SYSTEM = lags()


def point(
    error: float | None,
    cost: float = 10.0,
    *,
    robustness: float = math.nan,
    stable: bool | None = True,
    step: float = 0.1,
    outputs: dict[str, float] | None = None,
) -> Point:
    errors = None if error is None else OutputErrors(outputs or {"a.y": error, "b.y": error / 2}, 4.0)
    return Point(jacobi(SYSTEM, step), stable, errors, robustness, cost, system=SYSTEM)


# ---- good enough -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "grows", "good"),
    [
        (point(0.01), False, True),
        (point(math.nextafter(0.01, 1)), False, False),
        (point(None), False, False),
        (point(math.nan), False, False),
        (point(0.005, robustness=0.25), False, True),
        (point(0.005, robustness=0.24), False, False),
        (point(0.005, robustness=math.inf), False, True),
        (point(0.005, stable=False), False, False),
        (point(0.005, stable=False), True, True),
        (point(0.005, stable=None), False, True),
        (point(0.02, stable=False), True, False),
    ],
)
def test_what_is_good_enough(made: Point, grows: bool, good: bool) -> None:
    assert made.meets(Wanted(), grows=grows) is good


def test_what_is_wanted() -> None:
    assert (Wanted().error, Wanted().robustness) == (0.01, 0.25)
    for wrong in ({"error": 0.0}, {"error": -1.0}, {"error": math.nan}, {"robustness": -0.1}):
        with pytest.raises(ConfigurationError):
            Wanted(**wrong)
    Wanted(robustness=0.0)


# ---- the choice ------------------------------------------------------------------------------------------------------


def test_the_cheapest_that_is_good_enough() -> None:
    bad, dear, cheap = point(0.5, 1.0), point(0.001, 20.0), point(0.009, 10.0)
    assert choose([bad, dear, cheap], Wanted()) is cheap
    assert choose([bad], Wanted()) is None
    assert choose([], Wanted()) is None
    grown = point(0.009, 5.0, stable=False)
    assert choose([dear, grown], Wanted()) is dear
    assert choose([dear, grown], Wanted(), grows=True) is grown


@pytest.mark.parametrize(("cost", "chosen"), [(12.5, True), (12.6, False)])
def test_among_costs_about_equal_the_most_robust(cost: float, chosen: bool) -> None:
    cheap, robust = point(0.001, 10.0, robustness=0.3), point(0.009, cost, robustness=0.5)
    assert (choose([cheap, robust], Wanted()) is robust) is chosen


def test_then_the_most_accurate_then_the_cheapest() -> None:
    """Beyond ± 100 % robustness counts alike; what is not known counts as none."""
    very, enough, little = (point(e, 10.0, robustness=r) for e, r in ((0.004, 9.0), (0.003, 1.0), (0.001, 0.9)))
    assert choose([very, enough, little], Wanted()) is enough
    assert choose([very, little], Wanted()) is very
    unknown = point(0.001, 10.0)
    assert choose([unknown, little], Wanted()) is little
    dear, cheap = point(0.002, 11.0), point(0.002, 10.0)
    assert choose([dear, cheap], Wanted()) is cheap
    better = point(0.0015, 11.0)
    assert choose([better, cheap], Wanted()) is better


POINTS = st.lists(
    st.builds(
        point,
        st.floats(1e-4, 0.05),
        st.floats(1, 100),
        robustness=st.sampled_from([math.nan, 0.1, 0.5, 3.0]),
        stable=st.sampled_from([True, False, None]),
    ),
    max_size=6,
)


@given(POINTS)
def test_the_choice_is_good_enough_and_hardly_dearer_than_any_other(points: list[Point]) -> None:
    chosen = choose(points, Wanted())
    good = [p for p in points if p.stable is not False and p.error <= 0.01 and not p.robustness < 0.25]
    assert (chosen is None) is (not good)
    if chosen is not None:
        assert any(chosen is p for p in good)
        assert all(chosen.cost <= 1.25 * p.cost for p in good)
        alike = [p for p in good if all(p.cost <= 1.25 * q.cost for q in good)]
        assert all(
            (chosen.robustness if chosen.robustness == chosen.robustness else 0.0)
            >= min(p.robustness if p.robustness == p.robustness else 0.0, 1.0)
            for p in alike
        )


def test_of_points_that_read_the_same_the_order_decides_nothing() -> None:
    """`analyse` and `tune` find the same points in other orders."""
    less, more = point(0.00501, 10.0, robustness=0.501), point(0.00499, 10.0, robustness=0.499)
    assert choose([less, more], Wanted()) is choose([more, less], Wanted()) is more
    plain = point(0.005, 10.0)
    other = replace(plain, master=gauss_seidel(SYSTEM, 0.1))
    assert choose([plain, other], Wanted()) is choose([other, plain], Wanted()) is plain


# ---- keep, change, none ----------------------------------------------------------------------------------------------


def test_what_meets_the_target_is_kept() -> None:
    present = point(0.01, 10.0)
    for others in ([], [point(0.001, 10.0)], [point(0.001, 6.7)], [point(0.5, 1.0)]):
        found = recommend(others, present, Wanted())
        assert found.keep
        assert found.master is present.master
        assert found.text == "keep Jacobi at 100 ms: every output within 1 % until 4 s."
        assert (found.options, found.lines) == ("", "")
        assert (found.error, found.output, found.output_error_before, found.output_error) == (0.01, "a.y", 0.01, 0.01)


@pytest.mark.parametrize(("cost", "keep"), [(15.0, False), (14.9, True), (30.0, False)])
def test_unless_another_is_one_and_a_half_times_cheaper(cost: float, keep: bool) -> None:
    other = point(0.009, 10.0, step=0.2)
    found = recommend([other], point(0.002, cost), Wanted())
    assert found.keep is keep
    if not keep:
        assert found.master is other.master
        assert found.text.startswith("use Jacobi at 200 ms: every output within 0.9 % until 4 s")
        assert found.text.endswith(f"{cost / 10:.2g} × cheaper.")
        assert (found.cost, found.cost_before) == (10.0, cost)


def test_the_present_master_need_not_be_robust_to_be_kept() -> None:
    assert recommend([point(0.001, 10.0)], point(0.01, 10.0, robustness=0.01), Wanted()).keep


@pytest.mark.parametrize("present", [point(0.011, 10.0), point(0.001, 10.0, stable=False), point(None, 10.0)])
def test_what_misses_the_target_is_changed(present: Point) -> None:
    better = point(0.004, 25.0, step=0.04)
    found = recommend([better], present, Wanted())
    assert not found.keep
    assert found.master is better.master
    assert found.name == "jacobi"
    assert found.step_size == 0.04
    assert found.text.endswith(", at 2.5 × the cost.")
    assert found.options == "--master jacobi --step-size 0.04"
    assert found.lines == 'step-size = 0.04\n\n[master]\nname = "jacobi"'
    assert found.error == 0.004


def test_a_growing_system_may_be_kept() -> None:
    present = point(0.001, stable=False)
    assert recommend([], present, Wanted(), grows=True).keep
    assert not recommend([], present, Wanted()).keep


def test_where_none_is_good_enough() -> None:
    present = point(0.5, 10.0)
    found = recommend([point(0.2, 1.0)], present, Wanted(0.02), searched="in this space")
    assert found.text.startswith("no master was found that keeps every output within 2 % in this space;")
    assert (found.keep, found.master, found.name, found.step_size, found.error) == (False, None, None, None, None)
    assert (found.output, found.output_error, found.options, found.lines) == (None, None, "", "")
    assert found.cost_before == 10.0
    assert "within 2 %;" in recommend([], None, Wanted(0.02)).text


def test_errors_before_and_after_are_of_the_same_output() -> None:
    """The output that is worst now, not that which is worst then."""
    present = point(0.3, outputs={"a.y": 0.3, "b.y": 0.1})
    better = point(0.009, outputs={"a.y": 0.002, "b.y": 0.009})
    found = recommend([better], present, Wanted())
    assert (found.output, found.output_error_before, found.output_error) == ("a.y", 0.3, 0.002)
    assert found.error == 0.009
    assert "every output within 0.9 % until 4 s (a.y 0.2 % instead of 30 %)" in found.text


def test_without_errors_before_the_worst_then_is_named() -> None:
    better = point(0.009, outputs={"a.y": 0.002, "b.y": 0.009})
    for present in (None, point(None)):
        found = recommend([better], present, Wanted())
        assert (found.output, found.output_error_before, found.output_error) == ("b.y", None, 0.009)
        assert "instead of" not in found.text
    # An output that moves only in one of the two runs cannot be compared.
    present = point(0.3, outputs={"c.y": 0.3})
    found = recommend([better], present, Wanted())
    assert (found.output, found.output_error_before) == ("b.y", None)
    assert "instead of" not in found.text


@pytest.mark.parametrize(
    ("cost", "words"),
    [(10.0, "at the same cost"), (10.04, "at the same cost"), (10.1, "at 1 × the cost"),
     (20.0, "at 2 × the cost"), (1.0, "10 × cheaper")],
)  # fmt: skip
def test_what_it_costs_is_said(cost: float, words: str) -> None:
    assert recommend([point(0.001, cost)], point(0.5, 10.0), Wanted()).text.endswith(f", {words}.")


def test_small_costs_are_told_too() -> None:
    """In seconds per simulated second costs may be far below 1."""
    assert recommend([point(0.001, 0.004)], point(0.5, 0.002), Wanted()).text.endswith(", at 2 × the cost.")


def test_a_cost_that_is_not_known_is_not_told() -> None:
    for present in (point(0.5, math.nan), point(0.5, 0.0), None):
        assert "the cost" not in recommend([point(0.001, 10.0)], present, Wanted()).text


def test_fields_are_those_of_json() -> None:
    fields = recommend([point(0.004, 25.0)], point(0.5), Wanted()).fields()
    assert "point" not in fields
    assert fields["error"] == 0.004
    assert fields["cost"] == 25.0


def test_a_point_in_a_sentence() -> None:
    made = replace(point(0.004, 25.0, robustness=0.3), cheaper=4.0)
    assert made.sentence == (
        "Jacobi at 100 ms: error 0.4 % (predicted), stable for changes of ± 30 % in rates and gains of the "
        "units, 4 × cheaper than Jacobi with held inputs at the same error"
    )
    bad = replace(point(0.5, robustness=0.0, stable=False), cheaper=1.09, defect=0.5, radius=1.5)
    assert bad.sentence == "Jacobi at 100 ms: UNSTABLE, error 50 % (predicted), ρ 1.5, δ 0.5"
    assert "cheaper" in replace(bad, cheaper=1.1).sentence
    assert math.isnan(point(None).error)


# ---- steps and masters that are searched -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shortest", "longest", "steps"),
    [
        (0.03, 0.7, [0.5, 0.2, 0.1, 0.05]),
        (0.1, 0.1, [0.1]),
        (0.1, 1.0, [1.0, 0.5, 0.2, 0.1]),
        (0.011, 0.019, []),
        (0.1 * (1 + 5e-10), 0.2 * (1 - 5e-10), [0.2, 0.1]),
        (0.1 * (1 + 2e-9), 0.2 * (1 - 2e-9), []),
        (2.0, 60.0, [50.0, 20.0, 10.0, 5.0, 2.0]),
    ],
)
def test_round_steps(shortest: float, longest: float, steps: list[float]) -> None:
    assert round_steps(shortest, longest) == steps


@given(st.floats(1e-6, 1e3), st.floats(1, 1e4))
def test_round_steps_are_all_there_are(shortest: float, ratio: float) -> None:
    longest = shortest * ratio
    expected = [float(f"{d}e{p}") for p in range(-8, 9) for d in (1, 2, 5)]
    assert round_steps(shortest, longest) == [
        h for h in reversed(expected) if shortest * (1 - 1e-9) <= h <= longest * (1 + 1e-9)
    ]


@pytest.mark.parametrize(
    ("fastest", "horizon", "found"),
    [
        (2.0, 1e3, (0.5e-2, 5.0)),  # a thousandth to ten times 1/|λ|, and no more than 200,000 steps
        (2.0, 10.0, (0.5e-3, 2.5)),  # at most a quarter of the horizon
        (2.0, 2e5, (1.0, 5.0)),
        (0.0, 10.0, (1e-4, 1.0)),  # nothing moves: a hundredth of the horizon takes the place of 1/|λ|
        (2.0, 1e-4, (0.25e-4, 0.25e-4)),
        (1.0, 1e9, (10.0, 10.0)),
    ],
)
def test_the_range_of_steps(fastest: float, horizon: float, found: tuple[float, float]) -> None:
    assert step_range(fastest, horizon) == pytest.approx(found)


class Box:
    """A unit that takes held inputs only."""

    inputs, outputs = ("u",), ("y",)

    def __init__(self) -> None:
        self.u, self.y = 0.0, 1.0

    def step(self, time: float, duration: float) -> None:
        self.y = self.u + (self.y - self.u) * math.exp(-duration)


class Stuck(PythonUnit):
    can_restore = False


def names(system: System) -> list[tuple[str, str]]:
    return [(master.name, str(master.coupling)) for master in usual_masters(system, 0.1)]


def test_the_usual_masters() -> None:
    assert names(lags()) == [
        (name, hold)
        for hold in ("hold0", "hold1")
        for name in ("jacobi", "gauss-seidel(a,b)", "gauss-seidel(b,a)", "iterative(jacobi;2)")
    ] + [("strang(a;b)", "hold0"), ("strang(b;a)", "hold0")]
    assert {master.step for master in usual_masters(lags(), 0.1)} == {0.1}


def test_only_what_the_units_can_do() -> None:
    boxes = System({"a": PythonUnit(Box), "b": PythonUnit(Box)}, [("a.y", "b.u"), ("b.y", "a.u")])
    assert {hold for _, hold in names(boxes)} == {"hold0", "hold1:4"}
    assert any(name.startswith("iterative") for name, _ in names(boxes))
    stuck = System({"a": Stuck(Box), "b": PythonUnit(Box)}, [("a.y", "b.u"), ("b.y", "a.u")])
    assert not any(name.startswith("iterative") for name, _ in names(stuck))
    alone = System({"a": PythonUnit(Box)}, inputs={"a.u": 1.0})
    assert [name for name, _ in names(alone)] == ["jacobi", "iterative(jacobi;2)"]


def test_no_coupling_with_a_gain_of_zero_is_ever_offered() -> None:
    for made in (lags(), lags(gain=-3.0)):
        model = Model(made, step=0.1, horizon=5.0)
        for candidate in usual_points(model, Wanted(), Cost()):
            couplings = (candidate.master.coupling, *candidate.master.couplings.values())
            assert not any(isinstance(c, Nepce) and c.alpha == 0 for c in couplings)
            assert "nepce:0" not in candidate.words


# ---- one master ------------------------------------------------------------------------------------------------------


def test_a_master_is_judged_from_its_matrices() -> None:
    system = lags(gain=-3.0)
    model = Model(system, step=0.1, horizon=5.0)
    master = gauss_seidel(system, 0.1)
    found = judge_point(model, master, Cost({"a": 3.0}))
    assert found.stable is True
    assert found.errors == model.predict(master)
    assert found.cost == pytest.approx(40.0)
    assert found.robustness == relative_radius(system, master, limit=1.0, shells=16).change
    assert found.system is system
    assert math.isnan(judge_point(model, master, Cost(), robust=False).robustness)
    unstable = judge_point(model, jacobi(lags(gain=-60.0), 1.0), Cost())
    assert unstable.robustness >= 0


def test_an_unstable_master_is_not_robust() -> None:
    system = lags(gain=-60.0)
    found = judge_point(Model(system, step=0.1, horizon=5.0), jacobi(system, 1.0), Cost())
    assert (found.stable, found.robustness) == (False, 0.0)
    assert found.radius > 1


@pytest.mark.parametrize("known", [True, False])
def test_what_identification_adds_to_the_tolerance(known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A radius of 1 + 5e-8 may be an error of identified models; of known ones it is growth."""
    spectrum = Spectrum(LinearSystem(SYSTEM, jacobi(SYSTEM, 0.1)))
    spectrum.__dict__["moving_radius"] = 1 + 5e-8
    monkeypatch.setattr(recommending, "relative_radius", lambda *_, **__: SimpleNamespace(change=0.5))
    model: Any = SimpleNamespace(
        valid=True,
        known=known,
        grows=False,
        system=SYSTEM,
        local=SimpleNamespace(linear=SYSTEM, growth_by_conversion=0.0),
        at=lambda _: SYSTEM,
        conversion_misleads=lambda _: False,
        linear=lambda _: spectrum.linear,
        spectrum=lambda _: spectrum,
        states=2,
        predict=lambda _: OutputErrors({"a.y": 0.1}, 1.0),
    )
    master = jacobi(SYSTEM, 0.1)
    model.checked = lambda _: model
    model.stability = partial(Model.stability, model)
    found = judge_point(model, master, Cost())
    assert (found.stable, found.robustness) == ((False, 0.0) if known else (True, 0.5))
    misled: Any = SimpleNamespace(**{**vars(model), "conversion_misleads": lambda _: True})
    misled.checked = lambda _: misled
    assert math.isnan(judge_point(misled, master, Cost()).robustness)
    sizes = SimpleNamespace(sizes=lambda steps: np.full((len(steps), 1), 1 + 5e-8))
    monkeypatch.setattr(recommending, "EigenvalueSizes", lambda *_: sizes)
    assert recommending._SeemsStable(model, [0.1])("jacobi", master) is not known
    for changed in ({"grows": True}, {"valid": False}):  # then the error alone decides, or a run
        other: Any = SimpleNamespace(**{**vars(model), **changed})
        assert recommending._SeemsStable(other, [0.1])("jacobi", master)


def test_growth_that_conversion_adds_is_not_held_against_a_master(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converted models grow at 1/s by themselves: ρ = exp(0.1) at 0.1 s is theirs, anything above the coupling's."""
    local = SimpleNamespace(linear=SYSTEM, growth_by_conversion=1.0)
    model: Any = SimpleNamespace(valid=True, known=False, grows=False, system=SYSTEM, local=local, states=2)
    for radius, stable in ((math.exp(0.1), True), (math.exp(0.1) + 1e-3, False)):
        sizes = SimpleNamespace(sizes=lambda steps, radius=radius: np.full((len(steps), 1), radius))
        monkeypatch.setattr(recommending, "EigenvalueSizes", lambda *_, sizes=sizes: sizes)
        assert recommending._SeemsStable(model, [0.1])("jacobi", jacobi(SYSTEM, 0.1)) is stable


def test_an_accurate_master_is_better_than_none_though_it_is_not_robust() -> None:
    frail = replace(point(0.001, 2.0), robustness=0.01)
    found = recommend([frail], point(0.5, 1.0), Wanted())
    assert found.point is frail
    assert "No accurate master was found that stays stable for changes of ± 25 %" in found.text
    robust = replace(frail, robustness=0.3, cost=9.0)
    assert recommend([frail, robust], point(0.5, 1.0), Wanted()).point is robust


@pytest.mark.parametrize(
    ("factor", "sweeps"),
    [(None, 50.0), (1.0, 50.0), (3.0, 50.0), (0.1, 6.0), (0.5, 20.0), (0.99, 50.0), (1e-9, 1.0), (0.0, 1.0)],
)
def test_the_sweeps_of_an_iteration(factor: float | None, sweeps: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until 1e-6 is reached at this factor per sweep, 50 at most."""
    system = lags()
    master = iterative(system, 0.1, sweeps=Convergence(tolerance=1e-6, limit=50))
    monkeypatch.setattr(recommending, "sweep_factor", lambda _: factor)
    model = Model(system, step=0.1, horizon=1.0)
    assert master_cost(model, master, Cost()) == pytest.approx(20 * sweeps)
    assert master_cost(model, master, Cost(sweeps=4)) == pytest.approx(20 * 4)
    assert master_cost(model, jacobi(system, 0.1), Cost()) == pytest.approx(20)
    assert master_cost(model, iterative(system, 0.1, sweeps=3), Cost()) == pytest.approx(60)


# ---- the search ------------------------------------------------------------------------------------------------------


def brute_force(model: Model, target: float) -> list[Point]:
    """All usual masters at all round steps that meet the target and cost about as little as the cheapest of these."""
    speeds = np.abs(model.poles)
    tried = [
        (master_cost(model, master, Cost()), master)
        for h in round_steps(*step_range(float(speeds.max()), model.horizon))
        for master in usual_masters(model.system, h)
    ]
    good: list[Point] = []
    for cost, master in sorted(tried, key=lambda entry: entry[0]):
        if good and cost > 1.25 * good[0].cost:
            break
        if model.predict(master).worst <= target:
            made = judge_point(model, master, Cost())
            good += [made] if made.meets(Wanted(target)) else []
    return good


@pytest.mark.parametrize(("gain", "target"), [(-1.0, 0.01), (-3.0, 0.05), (0.5, 0.002)])
def test_the_search_finds_what_trying_all_finds(gain: float, target: float) -> None:
    model = Model(lags(gain), step=0.1, horizon=6.0)
    near = brute_force(model, target)
    found = usual_points(model, Wanted(target), Cost())
    chosen = choose(found, Wanted(target))
    assert chosen is not None
    expected = choose(near, Wanted(target))
    assert expected is not None
    assert (str(chosen.master), str(chosen.master.coupling), chosen.step) == (
        str(expected.master),
        str(expected.master.coupling),
        expected.step,
    )


class Fake:
    """A model whose errors are given by a function, and which counts what is asked of it."""

    known = valid = True
    grows = rests = False
    instant = math.inf
    horizon = 100.0
    step, states = 0.1, 2
    base = SimpleNamespace(exact=True)

    def __init__(self, error: Any, full: Any = None) -> None:
        self.system, self.error, self.full = lags(), error, full or error
        self.poles = np.array([-1.0 + 0j, -2.0])
        self.judged: list[Any] = []
        self.tried: list[Any] = []
        self.pilots = SimpleNamespace()

    def predict(self, master: Any) -> OutputErrors:
        self.tried.append(master)
        return OutputErrors({"a.y": self.error(master)}, self.horizon)

    def judge(self, _: Any, master: Any, cost: Cost, errors: Any = None) -> Point:
        self.judged.append(master)
        errors = OutputErrors({"a.y": self.full(master)}, self.horizon)
        return Point(master, True, errors, 1.0, cost.per_second(self.system, master), system=self.system)


def searching(monkeypatch: pytest.MonkeyPatch, error: Any, full: Any = None) -> tuple[Fake, list[Point]]:
    fake = Fake(error, full)
    monkeypatch.setattr(recommending, "judge_point", fake.judge)
    monkeypatch.setattr(recommending, "_SeemsStable", lambda *_: lambda *_: True)
    return fake, usual_points(fake, Wanted(0.01), Cost())  # type: ignore[arg-type]


def plain(master: Any) -> bool:
    return master.name == "jacobi" and str(master.coupling) == "hold0"


def test_the_cheapest_are_judged_first_and_no_dearer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only plain Jacobi is accurate, with an error of h / 100: good from 0.97 s on, so at 0.5 s.

    Errors of what costs more are not even computed; two sweeps at 1 s cost as much.
    """
    fake, found = searching(monkeypatch, lambda m: m.step / 100 if plain(m) else 2.0)
    assert [p.master.step for p in found] == [0.5]
    assert [m.step for m in fake.tried if plain(m)] == [5.0, 2.0, 1.0, 0.5]
    assert min(m.step for m in fake.tried if m.name.startswith("iterative")) == 1.0


def test_only_the_margin_of_the_target_is_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.0097 is wanted of the search: 0.00969 passes, 0.00971 does not."""
    _, found = searching(monkeypatch, lambda m: 0.00969 if plain(m) else 2.0)
    assert found[0].master.step == 5.0
    fake, found = searching(monkeypatch, lambda m: 0.00971 * (1 if m.step == 5.0 else 0.1) if plain(m) else 2.0)
    assert found[0].master.step == 2.0
    assert len(fake.judged) == 1


def test_steps_that_cannot_be_short_enough_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of 0.36 at 5 s: at best of second order, it is small enough at 5 √(0.01 / 0.36) = 0.83 s; with a
    hope of 1.5 times that, 1.25 s. So 2 s is not tried."""
    fake, found = searching(monkeypatch, lambda m: 0.36 * (m.step / 5) ** 2 if plain(m) else 2.0)
    assert [m.step for m in fake.tried if plain(m)] == [5.0, 1.0, 0.5]
    assert [p.master.step for p in found] == [0.5]


def test_an_error_beyond_all_says_nothing_of_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, _ = searching(monkeypatch, lambda m: (1.5 if m.step > 1 else 0.005) if plain(m) else 2.0)
    assert [m.step for m in fake.tried if plain(m)] == [5.0, 2.0, 1.0]


def test_the_search_gives_up_after_six(monkeypatch: pytest.MonkeyPatch) -> None:
    """What seems good and is not, again and again (by less than would tell that units' own solvers are to blame)."""
    fake, found = searching(monkeypatch, lambda m: 0.006, lambda m: 0.011)
    assert len(fake.judged) == 6
    assert not any(p.meets(Wanted(0.01)) for p in found)


def test_what_costs_about_as_much_is_judged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = searching(monkeypatch, lambda m: 0.005)
    costs = [p.cost for p in found]
    assert len(costs) == 6  # Jacobi and two orders of Gauss–Seidel, held and extrapolated; two sweeps are twice as dear
    assert max(costs) <= 1.25 * min(costs)
    assert {p.master.step for p in found} == {5.0}


def test_about_as_much_is_measured_from_the_cheapest(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two workers, with a unit b five times as quick: per step Jacobi costs 1, Gauss–Seidel 1.2, two sweeps 2.

    Two sweeps at 5 s cost 0.4 per second, Jacobi at 2 s 0.5: about as much. Gauss–Seidel at 2 s costs 0.6: no more.
    """
    fake = Fake(lambda m: 0.005 if m.name.startswith("iterative") or m.step < 5 else 2.0)
    monkeypatch.setattr(recommending, "judge_point", fake.judge)
    monkeypatch.setattr(recommending, "_SeemsStable", lambda *_: lambda *_: True)
    found = usual_points(fake, Wanted(0.01), Cost({"a": 1.0, "b": 0.2}, workers=2))  # type: ignore[arg-type]
    assert {(p.master.name.partition("(")[0], p.master.step) for p in found} == {("iterative", 5.0), ("jacobi", 2.0)}


def test_where_solvers_set_the_limit_only_steps_that_help_them_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predicted without the units' own solvers 0.001; with them 0.04 at 5 s, and half of it at half the step.

    0.97 · 0.01 / 0.04 of the step, with a hope of 1.5 times that: 5 s · 0.364 = 1.8 s. So 2 s is left out.
    """
    fake, found = searching(
        monkeypatch,
        lambda m: 0.001 if plain(m) else 2.0,
        lambda m: 0.04 * m.step / 5,
    )
    assert [m.step for m in fake.judged] == [5.0, 1.0]
    assert found[-1].meets(Wanted(0.01))


@pytest.mark.parametrize(("full", "judged"), [(0.0185, 6), (0.0195, 1)])
def test_solvers_are_to_blame_where_the_full_error_is_twice_as_large(
    full: float, judged: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.0095 is predicted for the coupling alone; more than 0.019 in full leaves no other master at 5 s worth a try."""
    fake, _ = searching(monkeypatch, lambda m: 0.0095, lambda m: full * m.step / 5)
    assert [m.step for m in fake.judged].count(5.0) == judged


def test_masters_that_fail_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def error(master: Any) -> float:
        if master.step > 1:
            raise ConfigurationError("too long.")
        return 0.005 if plain(master) else 2.0

    _, found = searching(monkeypatch, error)
    assert [p.master.step for p in found] == [1.0]


def test_modes_that_are_gone_at_once_do_not_set_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(lambda m: 0.005)
    fake.poles = np.array([-1.0 + 0j, -1e4])
    fake.instant = 1e3
    monkeypatch.setattr(recommending, "judge_point", fake.judge)
    monkeypatch.setattr(recommending, "_SeemsStable", lambda *_: lambda *_: True)
    found = usual_points(fake, Wanted(0.01), Cost())  # type: ignore[arg-type]
    assert found[0].master.step == 10.0


def test_unstable_candidates_are_not_tried() -> None:
    """A gain of 60: long steps are unstable, and their errors are never looked at."""
    model = Model(lags(gain=-60.0), step=0.1, horizon=2.0)
    asked: list[Any] = []
    real = model.predict

    def predict(master: Any) -> OutputErrors:
        asked.append(master)
        return real(master)

    model.predict = predict  # type: ignore[method-assign]
    found = usual_points(model, Wanted(), Cost())
    from cosimo.algebra import LinearSystem

    assert all(Spectrum(LinearSystem(model.system, master)).stable for master in asked)
    assert choose(found, Wanted()) is not None


# ---- by runs ---------------------------------------------------------------------------------------------------------


def boxes() -> System:
    return System({"a": PythonUnit(Box), "b": PythonUnit(Box)}, [Connection("b.y", "a.u", gain=-1.0), ("a.y", "b.u")])


def test_where_no_model_holds_candidates_are_run_at_halves_of_the_step() -> None:
    system = boxes()
    model = Model(system, step=0.2, horizon=4.0).distrusted()
    present = jacobi(system, 0.2)
    found = usual_points(model, Wanted(0.03), Cost(), present)
    assert found
    assert all(p.errors is not None and p.errors.kind == "measured" for p in found)
    assert {math.log2(0.2 / p.master.step) % 1 for p in found} == {0.0}
    chosen = choose(found, Wanted(0.03))
    assert chosen is not None
    # Trying all by hand: the same.
    truth = model.pilots.of(present).truth
    assert truth is not None
    tried = [
        (Cost().per_second(system, master), str(master))
        for master in itertools.chain.from_iterable(usual_masters(system, 0.2 / 2**k) for k in range(7))
        if model.pilots.against(master, truth).worst <= 0.97 * 0.03
    ]
    assert chosen.cost == pytest.approx(min(tried)[0])
    assert math.isnan(chosen.robustness)


def test_by_runs_the_step_is_halved_six_times_at_most() -> None:
    tried: list[Any] = []

    def against(master: Any, *, truth: Any) -> OutputErrors:
        tried.append(master)
        return OutputErrors({"a.y": 2.0}, 1.0, "measured")

    fake: Any = Fake(lambda m: 2.0)
    fake.valid = False
    fake.pilots = SimpleNamespace(
        of=lambda _: SimpleNamespace(truth=1, errors=1), against=against, ahead=lambda _: None
    )
    assert usual_points(fake, Wanted(), Cost(), jacobi(SYSTEM, 0.5)) == []
    assert list(dict.fromkeys(master.step for master in tried)) == [0.5 / 2**k for k in range(7)]


def test_runs_that_tell_nothing_give_no_candidates() -> None:
    class Broken(Box):
        def step(self, time: float, duration: float) -> None:
            raise ValueError("out of order")

    system = System({"a": PythonUnit(Broken)}, inputs={"a.u": 1.0})
    model = Model(system, step=0.2, horizon=4.0, identify=False)
    assert usual_points(model, Wanted(), Cost(), jacobi(system, 0.2)) == []


@pytest.mark.parametrize(("from_step", "longest"), [(0.5, 0.5), (0.2, 0.0625), (0.01, 0.0078125), (0.001, None)])
def test_candidates_are_compared_with_runs_that_converge(from_step: float, longest: float | None) -> None:
    """Where those of the present master do not, at steps 8 and 64 times shorter."""
    asked: list[float] = []

    def of(master: Any) -> Any:
        asked.append(master.step)
        good = master.step <= from_step
        return SimpleNamespace(truth=str(master.step) if good else None, errors=1 if good else None)

    model: Any = SimpleNamespace(pilots=SimpleNamespace(of=of))
    rungs, truth = measured_rungs(model, jacobi(SYSTEM, 0.5))
    assert asked == [step for step in (0.5, 0.0625, 0.0078125) if longest is None or step >= longest]
    assert truth == (None if longest is None else str(longest))
    assert rungs == [0.5 / 2**k for k in range(7) if 0.5 / 2**k <= (longest or 0.5)]


def test_where_nothing_was_tried_nothing_is_said_of_what_was_found() -> None:
    assert recommend([], None, Wanted(), untried="no other master was tried").text == "no other master was tried."


@pytest.mark.parametrize(
    ("errors", "order", "step"),
    [
        ({0.1: 0.5, 0.05: 0.2, 0.025: 0.1}, 1.0, "2 ms"),  # from the last error, not from that at 0.1 s
        ({0.1: 0.5, 0.05: 0.008, 0.025: 0.004}, 1.0, "50 ms"),
        ({0.1: 0.5, 0.05: 0.008, 0.025: 0.02}, 1.0, "10 ms"),  # a step by chance is none: shorter ones miss the target
        ({0.1: 0.5, 0.05: 0.2, 0.025: 0.1}, None, ""),
        ({}, 1.0, ""),
    ],
)
def test_a_step_is_suggested_from_the_finest_run(errors: dict[float, float], order: float | None, step: str) -> None:
    said = untried_step(errors, order, Wanted())
    assert (f"steps of {step}:" in said or f"steps of about {step}:" in said) if step else said == ""
