"""The pendula: their equations of motion against an independent form, and parameters without meaning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, NonFiniteError
from cosimo.execution.running import run
from cosimo.problems.pendulum_chain import Pendula, PendulumChain, SinglePendulum, pendula


def newton(angles: Array, rates: Array, lengths: Array, masses: Array, g: float, force: Array) -> Array:
    """φ̈ from Newton's law for each point mass in the plane, with the links' tensions as Lagrange multipliers."""
    n = len(angles)
    along = np.column_stack([np.cos(angles), np.sin(angles)])
    across = np.column_stack([-np.sin(angles), np.cos(angles)])
    # Link i keeps its length: e_i · (a_i − a_{i−1}) = −l_i φ̇_i².
    G = np.zeros((n, 2 * n))
    for i in range(n):
        G[i, 2 * i : 2 * i + 2] = along[i]
        if i:
            G[i, 2 * i - 2 : 2 * i] = -along[i]
    load = np.tile([0.0, -g], n) * np.repeat(masses, 2)
    load[-2:] += force
    left = np.block([[np.diag(np.repeat(masses, 2)), G.T], [G, np.zeros((n, n))]])
    solution = np.linalg.solve(left, np.concatenate([load, -lengths * rates**2]))
    accelerations = solution[: 2 * n].reshape(n, 2)
    relative = np.diff(np.vstack([np.zeros(2), accelerations]), axis=0)
    angular: Array = (across * relative).sum(axis=1) / lengths
    return angular


@pytest.mark.parametrize("n", [1, 2, 3, 10, 25])
def test_the_chain_obeys_newton(n: int) -> None:
    rng = np.random.default_rng(n)
    lengths, masses = rng.uniform(0.2, 1.0, n), rng.uniform(0.1, 2.0, n)
    chain = PendulumChain(lengths, masses, anchor=7.0, g=9.81)
    angles, rates = rng.uniform(-np.pi, np.pi, n), rng.normal(size=n)
    chain.restore((angles, rates))
    chain.fx, chain.fy = force = rng.normal(size=2) * 10
    chain.step(0.0, 1e-3)
    expected = newton(angles, rates, lengths, masses, 9.81, np.array(force))
    assert (chain.rates - rates) / 1e-3 == pytest.approx(expected, rel=1e-8, abs=1e-8)
    assert chain.angles == pytest.approx(angles + 1e-3 * chain.rates, abs=1e-15)
    # The outputs belong to the new state.
    points = np.cumsum(lengths * np.array([np.cos(chain.angles), np.sin(chain.angles)]), axis=1)
    assert (chain.x, chain.y) == pytest.approx((7.0 + points[0, -1], points[1, -1]))
    assert chain.vx == pytest.approx(-(lengths * np.sin(chain.angles)) @ chain.rates)
    assert chain.vy == pytest.approx((lengths * np.cos(chain.angles)) @ chain.rates)


def test_the_single_pendulum_is_a_chain_of_one_link() -> None:
    single = SinglePendulum(length=2.0, mass=3.0, kc=50.0, g=9.81)
    chain = PendulumChain(np.array([2.0]), np.array([3.0]), anchor=0.0, g=9.81)
    single.restore((0.3, -0.7))
    chain.restore((np.array([0.3]), np.array([-0.7])))
    single.x2, single.y2 = 1.0, -0.5
    chain.fx, chain.fy = single.fx, single.fy
    for _ in range(2):
        for name in ("x", "y", "vx", "vy", "energy"):
            assert getattr(single, name) == pytest.approx(getattr(chain, name), abs=1e-13)
        single.step(0.0, 0.01)
        chain.step(0.0, 0.01)


def test_the_tips_start_in_one_place_at_rest_with_no_energy() -> None:
    for links in (1, 10, 17):
        problem = Pendula(links)
        first = problem.reference(step=1e-3, stop=1e-2)
        assert [first[f"single.{s}"][0] for s in ("x", "y", "vx", "vy")] == pytest.approx([2.0, 0, 0, 0], abs=1e-14)
        assert [first[f"chain.{s}"][0] for s in ("x", "y", "vx", "vy")] == pytest.approx([2.0, 0, 0, 0], abs=1e-14)
        assert problem.energy(first)[0] == pytest.approx(0.0, abs=1e-13)


@pytest.mark.parametrize("links", [1, 3, 10])
def test_the_reference_conserves_energy_to_first_order(links: int) -> None:
    problem = Pendula(links)
    errors = [np.abs(problem.energy(problem.reference(step=step, stop=1.0))).max() for step in (1e-3, 5e-4)]
    assert errors[0] < 0.2
    assert errors[0] / errors[1] == pytest.approx(2.0, rel=0.1)


def test_only_the_single_pendulum_has_feedthrough() -> None:
    system = pendula()
    assert system.units["single"].feedthrough().any(axis=1).tolist() == [True, True] + [False] * 5
    assert not system.units["chain"].feedthrough().any()
    assert system.units["single"].input_degree >= 1


def test_states_are_saved_and_restored() -> None:
    system = pendula(links=4)
    plain = run(system, masters.jacobi(system, 1e-3), stop=0.1)
    # Two sweeps of Jacobi with the same inputs would be the same; the second one sees newer outputs.
    swept = run(system, masters.iterative(system, 1e-3, sweeps=1), stop=0.1)
    assert np.array_equal(plain.values, swept.values)
    converged = run(system, masters.iterative(system, 1e-3), stop=0.1)
    assert not np.array_equal(plain.values, converged.values)


def test_an_unstable_coupling_ends_by_name() -> None:
    system = pendula(kc=1e9)
    with pytest.raises(NonFiniteError, match="became"):
        run(system, masters.jacobi(system, 1e-2), stop=10.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"links": 0}, "parameter links of problem 'pendula' must be a whole number from 1 to 1000, not 0"),
        ({"links": 2.5}, "whole number"),
        ({"links": True}, "whole number"),
        ({"links": 10**6}, "whole number"),
        ({"m1": 0.0}, "parameter m1"),
        ({"mass": -1.0}, "parameter mass"),
        ({"length": math.nan}, "parameter length"),
        ({"kc": -1.0}, "parameter kc"),
        ({"g": math.inf}, "parameter g"),
    ],
)
def test_parameters_without_meaning_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        pendula(**values)
