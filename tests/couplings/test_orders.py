"""Every coupling converges with the order it declares."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling, Sampling
from cosimo.core.system import Connection, System
from cosimo.couplings import COUPLINGS, Hold, Nepce, parse_coupling
from cosimo.execution.running import run
from cosimo.units import StateSpace

KNOWN = [*(parse_coupling(word.example) for word in COUPLINGS.values() if word.tuned), Nepce(0.3)]
"""Every coupling that has matrices, as the registry writes it."""

A1, B1, C1 = np.array([[0.0, 1.0], [-3.0, -0.4]]), np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[1.0, 0.2]])
A2, B2, C2 = np.array([[-1.0, 0.5], [0.0, -2.0]]), np.array([[0.3], [1.0]]), np.array([[1.0, 1.0]])
FORWARD, BACK = 0.8, -1.5
STOP = 4.0


def push(t: float) -> float:
    """Smooth, with value and first three derivatives zero at the start: the memory's constant past is then true."""
    return float(np.sin(t) ** 4)


def system() -> System:
    """Two exact units that feed each other, started at rest and driven from outside."""
    units = {"one": StateSpace(A1, B1, C1), "two": StateSpace(A2, B2, C2)}
    connections = [Connection("one.y1", "two.u1", FORWARD), Connection("two.y1", "one.u2", BACK)]
    return System(units, connections, inputs={"one.u1": push})


@pytest.fixture(scope="module")
def exact() -> Array:
    """(t, y1, y2) of the coupled system, written out as one and solved independently."""
    A = np.block([[A1, BACK * B1[:, 1:] @ C2], [FORWARD * B2 @ C1, A2]])
    drive = np.concatenate([B1[:, 0], np.zeros(2)])
    times = np.linspace(0.0, STOP, 11)
    solved = solve_ivp(
        lambda t, x: A @ x + drive * push(t),
        (0.0, STOP),
        np.zeros(4),
        t_eval=times,
        method="DOP853",
        rtol=1e-12,
        atol=1e-14,
        max_step=0.05,
    )
    return np.vstack([times, C1 @ solved.y[:2], C2 @ solved.y[2:]])


def errors(coupling: Coupling, exact: Array, kind: str) -> Array:
    found = []
    for step in (0.04, 0.02, 0.01, 0.005):
        # The external input is known ahead and interpolated by Hold(2), so that it does not limit the order.
        options = {"coupling": coupling, "couplings": {"one.u1": Hold(2)}}
        make = {"jacobi": masters.jacobi, "gauss-seidel": masters.gauss_seidel}[kind]
        result = run(system(), make(system(), step, **options), stop=STOP)
        rows = np.round(exact[0] / step).astype(int)
        assert result.time[rows] == pytest.approx(exact[0], abs=1e-12)
        found.append(np.abs(result.values[rows].T - exact[1:]).max())
    return np.array(found)


@pytest.mark.parametrize("kind", ["jacobi", "gauss-seidel"])
@pytest.mark.parametrize("coupling", KNOWN, ids=str)
def test_measured_order_is_the_declared_one(coupling: Coupling, kind: str, exact: Array) -> None:
    found = errors(coupling, exact, kind)
    orders = np.log2(found[:-1] / found[1:])
    assert orders[-1] == pytest.approx(coupling.error_order, abs=0.1)
    assert orders == pytest.approx(coupling.error_order, abs=0.4)


def test_higher_orders_are_more_accurate_here(exact: Array) -> None:
    last = [errors(Hold(order), exact, "jacobi")[-1] for order in (0, 1, 2)]
    assert last[0] > 20 * last[1] > 400 * last[2]


@pytest.mark.parametrize("coupling", KNOWN, ids=str)
def test_what_a_coupling_declares_of_sample_times_its_matrices_do(coupling: Coupling) -> None:
    samples = np.array([3.0, -1.0, 0.5])[: coupling.history]
    kept = tuple(range(coupling.history - 1))
    evenly = tuple(Fraction(-k) for k in range(coupling.history))
    oddly = tuple(Fraction(1, 3) - Fraction(k * k + 3 * k, 2) for k in range(coupling.history))
    found = {}
    for stamps in (evenly, oddly):
        made = coupling.matrices(Sampling(stamps, kept))
        w = made.ww @ np.array([*samples[1:], 0.0]) + made.ws @ samples[:1]
        found[stamps] = np.concatenate([np.ravel(part) for part in (made.ww, made.ws, made.uw)])
        through = [np.polyval((made.uw @ w)[::-1], float(stamp)) for stamp in stamps[: coupling.degree + 1]]
        assert np.allclose(through, samples[: coupling.degree + 1], rtol=1e-12) is coupling.interpolates
    assert np.array_equal(found[evenly], found[oddly]) is not coupling.timed
    assert coupling.held is (str(coupling) == "hold0")
