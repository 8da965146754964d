"""Critical steps of units known only where they were identified: the search, its bracket, orders of calling."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import product
from cosimo.analysis import limits as limiting
from cosimo.analysis.critical import CriticalStep, critical_step
from cosimo.analysis.limits import (
    CriticalStepSearch,
    _Bracket,
    _excess,
    _follow,
    best_order,
    critical_steps,
    find_base,
    orders,
)
from cosimo.analysis.linearisation import LocalSystem
from cosimo.core.errors import ConfigurationError, IdentificationError
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.masters import gauss_seidel, iterative, jacobi
from cosimo.problems import chain
from cosimo.units import Exact, StateSpace


def fed_back(gain: float, rate: float = 1.0) -> System:
    """Gauss–Seidel (lag, gain) is stable up to ln((g + 1)/(g − 1)) / rate (tests/analysis/test_critical.py)."""
    lag = StateSpace(-rate, rate, 1.0, initial=1.0, integrator=Exact(), inputs=["u"], outputs=["y"])
    passing = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), 1.0, inputs=["u"], outputs=["y"])
    return System({"lag": lag, "gain": passing}, [Connection("lag.y", "gain.u", gain=-gain), ("gain.y", "lag.u")])


# ---- the bracket -----------------------------------------------------------------------------------------------------


def test_a_bracket_closes_from_both_sides() -> None:
    bracket = _Bracket()
    assert (bracket.low, bracket.high, bracket.closed, bracket.narrow) == (0.0, math.inf, False, False)
    bracket.add(0.1, -0.5)
    assert (bracket.low, bracket.closed, bracket.inside()) == (0.1, False, None)
    bracket.add(0.05, -0.9)
    assert bracket.low == 0.1
    bracket.add(0.4, 0.3)
    assert (bracket.high, bracket.closed, bracket.narrow) == (0.4, True, False)
    assert bracket.inside() == pytest.approx(0.2)  # one unstable point has no secant: the geometric middle
    bracket.add(0.8, math.inf)
    assert bracket.high == 0.4
    assert bracket.inside() == pytest.approx(0.2)
    bracket.add(0.1 * (1 + 5e-3), 0.1)
    assert not bracket.narrow
    bracket.add(0.1 * (1 + 3e-3), 0.05)
    assert bracket.narrow


def test_only_unstable_steps_close_it() -> None:
    alone = _Bracket()
    alone.add(0.4, 0.3)
    assert not alone.closed
    assert not alone.narrow
    assert alone.inside() is None


def test_what_is_stable_is_decided_by_the_one_rule() -> None:
    bracket = _Bracket()
    bracket.add(0.1, 0.9e-10)
    assert (bracket.low, bracket.high) == (0.1, math.inf)
    bracket.add(0.2, 1.5e-10)
    assert bracket.high == 0.2


def test_the_secant_through_two_unstable_points() -> None:
    """ρ − 1 = 2 (h − 0.25): 0.1 at 0.3 and 0.3 at 0.4."""
    bracket = _Bracket()
    bracket.add(0.1, -0.05)
    bracket.add(0.4, 0.3)
    bracket.add(0.3, 0.1)
    assert bracket.inside() == pytest.approx(0.25)
    # A root outside of the bracket is not believed, nor points that fall.
    low = _Bracket()
    for step, excess in ((0.28, -0.05), (0.4, 0.3), (0.3, 0.1)):
        low.add(step, excess)
    assert low.inside() == pytest.approx(math.sqrt(0.28 * 0.3))
    falling = _Bracket()
    for step, excess in ((0.1, -0.05), (0.4, 0.1), (0.3, 0.1)):
        falling.add(step, excess)
    assert falling.inside() == pytest.approx(math.sqrt(0.1 * 0.3))


@pytest.mark.parametrize("share", [0.5, 0.98, 1.02, 1.1])
def test_large_systems_are_on_the_same_side(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the largest eigenvalue is beyond 1 is proved where it is not computed."""
    system = chain(n=20)
    limit = critical_step(system, jacobi(system, 0.01))
    assert limit is not None
    master = jacobi(system, share * limit.step)
    dense = _excess(system, master)
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    large = _excess(system, master)
    assert (dense > 0, large > 0) == (share > 1, share > 1)


# ---- the next step ---------------------------------------------------------------------------------------------------


def bracket(low: float = 0.0, high: float = math.inf) -> _Bracket:
    made = _Bracket()
    if low:
        made.add(low, -0.1)
    if math.isfinite(high):
        made.add(high, 0.1)
    return made


@pytest.mark.parametrize(
    ("guesses", "ends", "last", "following"),
    [
        ([], {}, 0.2, 0.1),  # nothing is known: half
        ([], {"low": 0.2}, 0.2, 0.6),  # stable: three times as far
        ([(0.2, 0.3)], {}, 0.2, 0.3),  # where the crossing is predicted
        ([(0.2, 0.9)], {}, 0.2, 0.6),  # but not more than three times as far
        ([(0.2, 0.01)], {}, 0.2, 0.2 / 3),
        # log g/h is ln 2 at 0.1 and ln 1.5 at 0.2: it vanishes at a factor 2^(ln 1.5/(ln 2 − ln 1.5)) more.
        ([(0.1, 0.2), (0.2, 0.3)], {}, 0.2, 0.2 * 2 ** (math.log(1.5) / (math.log(2) - math.log(1.5)))),
        ([(0.1, 0.2), (0.2, 0.4)], {}, 0.2, 0.4),  # the same ratio twice has no secant
        ([(0.2, 0.15)], {"low": 0.2}, 0.2, 0.6),  # below what is stable already
        ([(0.2, 0.2)], {"low": 0.2}, 0.2, 0.6),
        ([(0.2, 0.5)], {"high": 0.4}, 0.3, 0.2),  # beyond what is unstable already
        ([(0.2, 0.4)], {"high": 0.4}, 0.3, 0.2),
        ([(0.2, 0.39)], {"high": 0.4}, 0.3, 0.39),
    ],
)
def test_where_to_identify_next(
    guesses: list[tuple[float, float]], ends: dict[str, float], last: float, following: float
) -> None:
    assert _follow(guesses, bracket(**ends), last) == pytest.approx(following)


# ---- the search ------------------------------------------------------------------------------------------------------


class Drifting:
    """Units whose rate depends on the step at which they are identified, as that of a solver with an error of its own.

    `rate(h)` is the rate at step h; steps from `fails` on are not borne.
    """

    def __init__(self, gain: float, rate: Any, fails: float = math.inf, convertible: bool = True) -> None:
        self.gain, self.rate, self.fails, self.convertible = gain, rate, fails, convertible
        self.tried: list[float] = []
        self.system = fed_back(gain)

    def at(self, step: float) -> Any:
        self.tried.append(step)
        if step >= self.fails:
            raise IdentificationError("such a step is not borne.")
        system = fed_back(self.gain, self.rate(step))
        units: Any = {} if self.convertible else {"u": SimpleNamespace(generator=None, means="differences")}
        return LocalSystem(system, np.zeros(len(system.outputs)), step, units)


def searched(units: Drifting, step: float, *, exact: bool = False) -> CriticalStep | None:
    base = replace(units.at(step), exact=exact)
    return CriticalStepSearch(units, base).crossing(lambda s, h: gauss_seidel(s, h))  # type: ignore[arg-type]


def test_exact_units_need_no_search() -> None:
    units = Drifting(3.0, lambda h: 1.0)
    assert searched(units, 0.1, exact=True).step == pytest.approx(math.log(2), rel=1e-9)  # type: ignore[union-attr]
    assert units.tried == [0.1]


@pytest.mark.parametrize("slope", [0.3, -0.3, 1.0])
@pytest.mark.parametrize("step", [0.05, 0.5, 3.0])
@pytest.mark.one_in(4)
def test_the_search_ends_where_units_identified_at_h_cross_at_h(slope: float, step: float) -> None:
    """The rate is 1 + slope · h (at least 0.3): h* solves h (1 + slope h) = ln 2."""
    units = Drifting(3.0, lambda h: max(1 + slope * h, 0.3))
    expected = (-1 + math.sqrt(1 + 4 * slope * math.log(2))) / (2 * slope)
    found = searched(units, step)
    assert found is not None
    assert found.step == pytest.approx(expected, rel=4e-3)
    assert len(units.tried) <= 13  # the first, and twelve rounds


def test_steps_at_which_units_cannot_be_identified_are_not_called_unstable() -> None:
    """From 0.5 s on nothing is known, long before the crossing at ln 2."""
    units = Drifting(3.0, lambda h: 1.0 + 1e-3 * h, fails=0.5)
    with pytest.raises(
        ConfigurationError, match=r"not known; stable up to 49[\d.]+ ms at least, and at .*not be identified"
    ):
        searched(units, 0.05)
    assert searched(Drifting(3.0, units.rate, fails=0.8), 0.05).step == pytest.approx(math.log(2), rel=0.01)  # type: ignore[union-attr]


def test_without_a_model_that_can_be_converted_steps_are_bracketed() -> None:
    units = Drifting(3.0, lambda h: 1 + 0.3 * h, convertible=False)
    found = searched(units, 0.05)
    expected = (-1 + math.sqrt(1 + 1.2 * math.log(2))) / 0.6
    assert found is not None
    assert found.step == pytest.approx(expected, rel=0.01)


def test_a_master_that_seems_stable_everywhere_is_followed_some_way() -> None:
    """Three times as far, four times over."""
    units = Drifting(0.5, lambda h: 1.0)
    found = searched(units, 0.125)
    assert found is not None
    assert math.isinf(found.step)
    assert units.tried == [0.125 * 3**k for k in range(5)]
    assert found.searched[1] == 0.125 * 3**4


def test_a_search_that_finds_nothing_ends() -> None:
    """Units that are other ones at every step: twelve rounds."""
    units = Drifting(3.0, lambda h: 2.0 if int(1e6 * h) % 2 else 0.25)
    searched(units, 0.1)
    assert 2 <= len(units.tried) <= 13


def test_a_system_that_grows_has_no_crossing() -> None:
    assert searched(Drifting(-2.0, lambda h: 1.0), 0.1) is None


# ---- the base --------------------------------------------------------------------------------------------------------


class Aliases:
    """Models that agree with those at half the step from some step on."""

    def __init__(self, difference: dict[float, float]) -> None:
        self.difference = difference

    def at(self, step: float) -> Any:
        units: Any = {"u": SimpleNamespace(means="differences", step=step)}
        return LocalSystem(ring("ab"), np.zeros(2), step, units)


@pytest.mark.parametrize(
    ("differences", "step", "exact"),
    [
        ([0.0], 1.0, True),
        ([1e-5], 1.0, True),
        ([1.5e-5], 1.0, False),
        ([0.1], 1.0, False),
        ([0.15, 1e-9], 0.5, True),
        ([1.0, 1.0, 0.05], 0.25, False),
        ([1.0] * 6, 2**-6, False),  # six halvings at most
    ],
)
def test_the_step_whose_models_hold_at_half_the_step(
    differences: list[float], step: float, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = {2.0**-k: value for k, value in enumerate(differences)}
    monkeypatch.setattr(limiting, "apart", lambda one, other: known[one.step] if other.step == one.step / 2 else 99)
    found = find_base(Aliases(known), 1.0)  # type: ignore[arg-type]
    assert (found.step, found.exact) == (step, exact)


def test_known_units_are_exact_at_any_step() -> None:
    known: Any = {"u": SimpleNamespace(means="known")}
    local = LocalSystem(ring("ab"), np.zeros(2), 0.3, known)
    found = find_base(SimpleNamespace(at=lambda _: local), 0.3)  # type: ignore[arg-type]
    assert found.exact
    assert (found.linear, found.step) == (local.linear, local.step)


# ---- orders ----------------------------------------------------------------------------------------------------------


def ring(names: str, through: str = "") -> System:
    units = {
        name: StateSpace(-1.0, 1.0, 1.0, 0.1 if name in through else 0.0, initial=1.0, inputs=["u"], outputs=["y"])
        for name in names
    }
    links = [Connection(f"{a}.y", f"{b}.u", gain=-0.5) for a, b in zip(names, names[1:] + names[0], strict=True)]
    return System(units, links)


def test_orders_that_differ() -> None:
    """In a pair, who is first; in a ring of three, on which connections the source is first: 6 of 8 patterns."""
    assert orders(ring("ab")) == [("a", "b"), ("b", "a")]
    assert len(orders(ring("abc"))) == 6
    chain = System(
        {name: StateSpace(-1.0, 1.0, 1.0) for name in "abc"}, [("a.y1", "b.u1"), ("b.y1", "c.u1")], inputs={"a.u1": 0.0}
    )
    assert len(orders(chain)) == 4
    alone = System({"a": StateSpace(-1.0, 1.0, 1.0)}, inputs={"a.u1": 0.0})
    assert orders(alone) == [("a",)]
    assert len(orders(ring("abcd"))) == 14  # all 16 patterns but the two that go round


def test_of_many_units_four_orders() -> None:
    found = orders(ring("abcde", through="bd"))
    assert found == [
        ("a", "b", "c", "d", "e"),
        ("e", "d", "c", "b", "a"),
        ("a", "c", "e", "b", "d"),
        ("b", "d", "a", "c", "e"),
    ]


def test_no_more_than_twenty_four() -> None:
    names = "abcd"
    units = {
        name: StateSpace(-np.eye(3), np.eye(3), np.eye(3), initial=[1.0] * 3, inputs=["u", "v", "w"]) for name in names
    }
    links = [
        (f"{a}.y{k + 1}", f"{b}.{'uvw'[k]}") for a in names for k, b in enumerate(name for name in names if name != a)
    ]
    taken: set[str] = set()
    fits = []
    for source, target in links:  # each input once
        place = next(f"{target[0]}.{v}" for v in "uvw" if f"{target[0]}.{v}" not in taken)
        taken.add(place)
        fits.append((source, place))
    assert len(orders(System(units, fits))) == 24


def linearised(system: System) -> Any:
    local = LocalSystem(system, np.zeros(len(system.outputs)), 0.1, {})
    return SimpleNamespace(system=system, at=lambda _: local), replace(local, exact=True)


def test_the_best_order_has_the_largest_step() -> None:
    """Three lags in a ring: two connections, or one, can be of this very step."""
    units = {name: StateSpace(-1.0, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"]) for name in "abc"}
    system = System(units, [Connection(f"{a}.y", f"{b}.u", gain=-1.5) for a, b in ("ab", "bc", "ca")])
    search = CriticalStepSearch(*linearised(system))
    found = {order: critical_step(system, gauss_seidel(system, 0.1, order=order)) for order in orders(system)}
    steps = {order: limit.step for order, limit in found.items() if limit is not None}
    good = [order for order, step in steps.items() if step > 0.999 * max(steps.values())]
    assert len(steps) == 6
    assert 0 < len(good) < 6
    assert best_order(search, list(steps)) == good[0]
    assert best_order(search, list(steps)[::-1]) == good[-1]


def test_of_equals_the_first_order() -> None:
    system = ring("ab")
    search = CriticalStepSearch(*linearised(system))
    for candidates in ([("a", "b"), ("b", "a")], [("b", "a"), ("a", "b")]):
        assert best_order(search, candidates) == candidates[0]  # type: ignore[arg-type]


# ---- all together ----------------------------------------------------------------------------------------------------


def test_the_limits_of_the_usual_masters() -> None:
    system = fed_back(3.0)
    linearisation, base = linearised(system)
    own = jacobi(system, 0.1)
    found = critical_steps(linearisation, base, own)
    assert found.jacobi == critical_step(system, jacobi(system, 0.1))
    assert found.own is found.jacobi
    assert found.order == best_order(CriticalStepSearch(linearisation, base), orders(system))
    assert found.gauss_seidel == critical_step(system, gauss_seidel(system, 0.1, order=found.order))
    assert found.iterative == critical_step(system, iterative(system, 0.1, sweeps=2))
    assert found.reasons == ()


@pytest.mark.parametrize("kind", ["extrapolated", "one connection extrapolated", "three sweeps"])
def test_its_own_limit_is_that_of_the_master_as_it_is(kind: str) -> None:
    system = fed_back(3.0)
    linearisation, base = linearised(system)
    own = {
        "extrapolated": jacobi(system, 0.1, coupling=Hold(1)),
        "one connection extrapolated": jacobi(system, 0.1, couplings={"lag.u": Hold(1)}),
        "three sweeps": iterative(system, 0.1, sweeps=3),
    }[kind]
    found = critical_steps(linearisation, base, own)
    assert found.own == critical_step(system, own)
    assert found.own != found.jacobi


def test_units_that_cannot_restore_have_no_iteration() -> None:
    system = fed_back(3.0)
    system.units["lag"].can_restore = False
    linearisation, base = linearised(system)
    own = jacobi(system, 0.1)
    found = critical_steps(linearisation, base, own)
    assert found.iterative is None
    assert found.reasons == ("no iterative master: lag cannot restore the state",)


def test_a_master_that_does_not_fit_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    system = fed_back(3.0)
    linearisation, base = linearised(system)
    own = gauss_seidel(system, 0.1)

    def refuse(*_: Any) -> masters.Master:
        raise IdentificationError("no such step.")

    monkeypatch.setattr(type(own), "with_step", refuse)
    found = critical_steps(linearisation, base, own)
    assert found.own is None
    assert found.reasons == ("critical step of gauss-seidel(lag,gain): no such step.",)
    assert found.jacobi is not None
