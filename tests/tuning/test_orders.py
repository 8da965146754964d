"""Calling orders: how many differ, which are equal, and whether the search finds the best."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from thinning import examples

sys.path.insert(0, str(Path(__file__).parent))
from networks import random_network

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum, global_error
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce
from cosimo.tuning.graph import CouplingGraph, Order, coupling_graph, orientations
from cosimo.tuning.orders import (
    ErrorOfOrders,
    RadiusOfOrders,
    Sequential,
    best_order,
    connection_weights,
    feedback_order,
)
from cosimo.units import StateSpace

SEEDS = st.integers(0, 2**32 - 1)
Edges = frozenset[frozenset[int]]


# ---- counting orientations otherwise ---------------------------------------------------------------------------------


def tutte(n: int, edges: Edges, x: int) -> int:
    """T_G(x, 0) of a simple graph from its chromatic polynomial P: T(1 − q, 0) = (−1)^(n − c) P(q) / q^c, q = 1 − x."""
    if x == 2:  # q = −1
        return abs(chromatic(n, edges, -1))
    # q = 0: P(q) / q^c at 0, as the coefficient of q^c, from values at n + 1 points.
    points = np.arange(1, n + 2)
    values = [chromatic(n, edges, int(q)) for q in points]
    coefficients = np.round(np.polynomial.polynomial.polyfit(points, values, n)).astype(int)
    return int(abs(coefficients[np.flatnonzero(coefficients)[0]]))


def chromatic(n: int, edges: Edges, q: int) -> int:
    """Deletion and contraction."""
    if not edges:
        return q**n
    edge = min(edges, key=sorted)
    keep, gone = sorted(edge)
    rest = edges - {edge}
    contracted = frozenset(frozenset(keep if v == gone else v for v in other) for other in rest)
    return chromatic(n, rest, q) - chromatic(n - 1, contracted, q)


def graph_of(n: int, edges: Edges) -> CouplingGraph:
    neighbours = [0] * n
    for i, j in map(sorted, edges):
        neighbours[i] |= 1 << j
        neighbours[j] |= 1 << i
    return CouplingGraph(tuple(f"u{i}" for i in range(n)), tuple(neighbours))


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, Edges]:
    n = draw(st.integers(1, 6))
    pairs = list(itertools.combinations(range(n), 2))
    chosen = draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    return n, frozenset(frozenset(pair) for pair, used in zip(pairs, chosen, strict=True) if used)


@given(graphs())
@settings(max_examples=examples(120))
def test_every_acyclic_orientation_comes_once(case: tuple[int, Edges]) -> None:
    n, edges = case
    graph = graph_of(n, edges)
    keys = [graph.key(order) for order in graph.orders()]
    assert len(set(keys)) == len(keys) == tutte(n, edges, 2)
    assert set(keys) == {graph.key(order) for order in itertools.permutations(graph.units)}


@given(graphs())
@settings(max_examples=examples(120))
def test_rooted_orientations_are_the_classes_under_rotation(case: tuple[int, Edges]) -> None:
    n, edges = case
    graph = graph_of(n, edges)
    keys = [graph.rooted_key(order) for order in graph.orders(rooted=True)]
    assert len(set(keys)) == len(keys) == tutte(n, edges, 1)
    for order in itertools.permutations(graph.units):
        assert graph.rooted_key(order) == graph.rooted_key((*order[1:], order[0]))
        assert graph.rooted_key(order) in keys


def test_known_counts() -> None:
    complete = frozenset(frozenset(pair) for pair in itertools.combinations(range(5), 2))
    ring = frozenset(frozenset((i, (i + 1) % 6)) for i in range(6))
    counts = [
        (len(list(graph_of(n, edges).orders())), len(list(graph_of(n, edges).orders(rooted=True))))
        for n, edges in ((5, complete), (6, ring))
    ]
    assert counts == [(120, 24), (62, 5)]  # n! and (n − 1)!; 2^n − 2 and n − 1


def test_a_chain_of_a_hundred_has_one_radius() -> None:
    chain = graph_of(100, frozenset(frozenset((i, i + 1)) for i in range(99)))
    assert len(list(chain.orders(rooted=True))) == 1
    assert len(set(map(chain.key, itertools.islice(chain.orders(), 500)))) == 500


# ---- what orders with the same orientation share ---------------------------------------------------------------------


def shuffled(graph: CouplingGraph, order: Order, rng: np.random.Generator) -> Order:
    """Another order of the same orientation: neighbours in the list that are not coupled change places."""
    names = list(order)
    for i in rng.integers(0, len(names) - 1, size=60):
        a, b = names[i], names[i + 1]
        if not graph.neighbours[graph.number[a]] >> graph.number[b] & 1:
            names[i], names[i + 1] = b, a
    return tuple(names)


@given(SEEDS, st.sampled_from([Hold(0), Hold(1), Hold(2), Nepce(0.4)]))
@settings(max_examples=examples(60))
def test_equal_orientation_means_equal_map(seed: int, coupling: Hold | Nepce) -> None:
    rng = np.random.default_rng(seed)
    system = random_network(rng, int(rng.integers(3, 8)), degree=1.5)
    graph = coupling_graph(system)
    order = tuple(rng.permutation(system.names).tolist())
    other = shuffled(graph, order, rng)
    assert graph.key(order) == graph.key(other)
    one, two = (
        LinearSystem(system, masters.gauss_seidel(system, 0.7, order=o, coupling=coupling)) for o in (order, other)
    )
    assert np.abs(one.one_step.Phi - two.one_step.Phi).max() < 1e-12
    assert abs(Spectrum(one).radius - Spectrum(two).radius) < 1e-10


@given(SEEDS, st.sampled_from([None, Nepce(0.4)]))
@settings(max_examples=examples(60))
def test_equal_class_means_equal_radius(seed: int, coupling: Nepce | None) -> None:
    rng = np.random.default_rng(seed)
    system = random_network(rng, int(rng.integers(3, 7)), degree=1.2)
    graph = coupling_graph(system, "radius")
    sequential = Sequential(system, 0.7, coupling)
    classes: dict[int, list[float]] = {}
    orders = [tuple(rng.permutation(system.names).tolist()) for _ in range(12)]
    for order, rho in zip(orders, RadiusOfOrders(sequential)(orders), strict=True):
        classes.setdefault(graph.rooted_key(order), []).append(rho)
    for radii in classes.values():
        # Multiple eigenvalues of rotated products are rounded differently.
        assert max(radii) - min(radii) < 1e-9 * max(1.0, max(radii))


def test_extrapolation_looks_at_sample_times_and_does_not_rotate() -> None:
    rng = np.random.default_rng(3)
    system = random_network(rng, 4, degree=3.0, strength=1.0)
    sequential = Sequential(system, 0.7, Hold(1))
    assert not sequential.rotates
    assert RadiusOfOrders(sequential).equal == "map"
    order = system.names
    first, rotated = RadiusOfOrders(sequential)([order, (*order[1:], order[0])])
    assert abs(first - rotated) > 1e-4


# ---- the formula for all orders --------------------------------------------------------------------------------------


@given(SEEDS)
@example(23042)  # grows to 1e165, whose square is beyond all numbers
@settings(max_examples=examples(30))
def test_formula_equals_the_schedule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_network(rng, int(rng.integers(2, 7)), strength=1.0)
    sequential = Sequential(system, 0.7)
    orders = [tuple(rng.permutation(system.names).tolist()) for _ in range(3)]
    for order, rho, error in zip(
        orders, RadiusOfOrders(sequential)(orders), ErrorOfOrders(sequential, 7.0)(orders), strict=True
    ):
        linear = sequential.linear(order)
        assert rho == pytest.approx(Spectrum(linear).radius, rel=1e-8)
        assert error == pytest.approx(global_error(linear, steps=10).relative, rel=1e-9)


def test_other_couplings_go_through_the_schedule() -> None:
    system = random_network(np.random.default_rng(1), 4)
    sequential = Sequential(system, 0.7, couplings={system.links[0].connection.target: Nepce(0.3)})
    linear = sequential.linear(system.names)
    assert not sequential.held
    assert RadiusOfOrders(sequential)([system.names]) == [Spectrum(linear).radius]
    assert ErrorOfOrders(sequential, 7.0)([system.names]) == [global_error(linear, steps=10).relative]


# ---- the search ------------------------------------------------------------------------------------------------------


def test_few_orders_are_all_scored() -> None:
    rng = np.random.default_rng(5)
    system = random_network(rng, 5, degree=2.0, strength=1.0)
    score = ErrorOfOrders(Sequential(system, 0.8), 8.0)
    best = best_order(system, score)
    assert best.complete
    assert best.evaluations == len(list(orientations(system)))
    everything = list(itertools.permutations(system.names))
    assert best.score == pytest.approx(min(score(everything)), rel=1e-12)


def test_search_is_repeatable_and_keeps_to_its_evaluations() -> None:
    system = random_network(np.random.default_rng(6), 12, strength=0.9)
    asked = 0

    def score(orders: Sequence[Order]) -> list[float]:
        nonlocal asked
        asked += len(orders)
        return ErrorOfOrders(Sequential(system, 0.8), 8.0)(orders)

    first = best_order(system, score, limit=10, evaluations=90, seed=4)
    assert asked == first.evaluations == 90
    assert not first.complete
    assert best_order(system, score, limit=10, evaluations=90, seed=4) == first
    assert first.score == score([first.order])[0]
    assert first.score < score([feedback_order(system)])[0]


def test_feedback_order_lets_a_line_of_units_run_downstream() -> None:
    unit = StateSpace(-1.0, 1.0, 1.0, inputs=["u"], outputs=["y"], start={"u": 0.0})
    names = ["c", "a", "d", "b"]
    links = [("a.y", "b.u"), ("b.y", "c.u"), ("c.y", "d.u")]
    assert feedback_order(System(dict.fromkeys(names, unit), links)) == ("a", "b", "c", "d")
    ring = System(dict.fromkeys(names, unit), [*links, ("d.y", "a.u")])
    order = feedback_order(ring)
    stale = sum(w for (s, t), w in connection_weights(ring).items() if order.index(s) > order.index(t))
    assert stale == 1.0  # A ring cannot do with less.


def test_wrong_uses_are_refused() -> None:
    system = random_network(np.random.default_rng(1), 8, degree=6.0)
    score = RadiusOfOrders(Sequential(system, 0.5))
    with pytest.raises(ConfigurationError, match="exactly once"):
        best_order(system, score, limit=1, start=["u0"])
    with pytest.raises(ConfigurationError, match="at least one evaluation"):
        best_order(system, score, evaluations=0)
    with pytest.raises(ConfigurationError, match="not a number"):
        best_order(system, lambda orders: [float("nan")] * len(orders))
    with pytest.raises(ConfigurationError, match="0 numbers"):
        best_order(system, lambda orders: [])
    rest = System({"a": StateSpace(-1.0, 1.0, 0.0, start={"u1": 0.0})})
    with pytest.raises(ConfigurationError, match="at rest"):
        ErrorOfOrders(Sequential(rest, 1.0), 2.0)([("a",)])


@pytest.mark.slow
def test_study_search_finds_the_best_order_of_small_networks() -> None:
    """40 random networks of 5 to 7 units, enumeration forbidden, at most 400 scores: the optimum in 95 %."""
    rng = np.random.default_rng(7)
    found = {"radius": 0, "error": 0}
    for _ in range(40):
        system = random_network(rng, int(rng.integers(5, 8)), strength=1.0)
        sequential = Sequential(system, 0.8)
        for name, score in (("radius", RadiusOfOrders(sequential)), ("error", ErrorOfOrders(sequential, 8.0))):
            optimum = min(score(list(orientations(system))))
            searched = best_order(system, score, limit=0, evaluations=400)
            found[name] += searched.score <= optimum * (1 + 1e-9)
    assert min(found.values()) >= 38, found


@pytest.mark.slow
@pytest.mark.parametrize("name", ["radius", "error"])
def test_study_a_hundred_units_in_under_a_minute(name: str) -> None:
    """Good: not worse than the best of 2,000 random orders."""
    rng = np.random.default_rng(2)
    system = random_network(rng, 100, strength=0.9)
    sequential = Sequential(system, 0.8)
    score = RadiusOfOrders(sequential) if name == "radius" else ErrorOfOrders(sequential, 8.0)
    begin = time.process_time()
    best = best_order(system, score)
    assert time.process_time() - begin < 60
    others = score([tuple(rng.permutation(system.names).tolist()) for _ in range(2000)])
    assert best.score < min(others)
