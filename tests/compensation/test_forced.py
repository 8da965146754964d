"""External forces under a compensated master: tamellin2022, Sec. 5.3, a chirp on mass 2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.integrate

from cosimo import masters
from cosimo.compensation import compare, compensate
from cosimo.compensation.target import rebuild, require_linear
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.system import Source, System, Table
from cosimo.execution.running import run
from cosimo.problems import two_mass
from cosimo.units import Exact, Mechanical

Build = Callable[[System, float], Master]
MASTERS: tuple[Build, ...] = (masters.jacobi, masters.jacobi_early_read, masters.gauss_seidel)
DURATION = 20.0
CASES = {"undamped, 1 ms": (0.0, 1e-3), "damped, 1 ms": (0.1, 1e-3), "damped, 4 ms": (0.1, 4e-3)}


def chirp(t: float) -> float:
    """1 N, from 1 Hz to 10 Hz."""
    return float(np.sin(2 * np.pi * (1.0 * t + 9.0 * t**2 / (2 * DURATION))))


def forced(damping: float, force: Source) -> System:
    """The two-mass problem at rest, with a force on mass 2 beside the coupling force."""
    base = two_mass(damping=damping)
    one, two = base.units.values()
    assert isinstance(one, Mechanical)
    assert isinstance(two, Mechanical)
    pushed = rebuild(two, B=[[1.0, 1.0]], feedthrough=None, initial=None, inputs=["f", "force"])
    units = {"one": rebuild(one, initial=None), "two": pushed}
    return System(units, base.connections, inputs={"two.force": force}, name="forced")


def reference(damping: float, times: Array) -> Array:
    """x2 by an adaptive method of order 8."""
    c, k = damping * np.array([[2.0, -1.0], [-1.0, 2.0]]), np.array([[110.0, -100.0], [-100.0, 1100.0]])

    def slope(t: float, x: Array) -> Array:
        return np.concatenate([x[2:], np.array([0.0, chirp(t)]) - k @ x[:2] - c @ x[2:]])

    span = (0.0, float(times[-1]))
    solved = scipy.integrate.solve_ivp(slope, span, np.zeros(4), "DOP853", times, rtol=1e-10, atol=1e-14)
    return np.asarray(solved.y[1])


def nrms(signal: Array, exact: Array) -> float:
    return float(np.sqrt(np.mean((signal - exact) ** 2)) / np.ptp(exact))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(2)
def test_exact_target_under_a_chirp(case: str) -> None:
    """What is left is how the force itself is sampled, about (ω h)² / 12; the monolithic run is forty times worse."""
    damping, h = CASES[case]
    system = forced(damping, chirp)
    exact = None
    for build in MASTERS:
        found = compensate(system, build(system, h), target="exact")
        ours = run(system, found.master, stop=DURATION)
        exact = reference(damping, ours.time) if exact is None else exact
        assert nrms(ours["two.x"], exact) < (6e-4 if h == 4e-3 else 6e-5)
        assert found.gain_size < 5


@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_in(2)
def test_monolithic_target_under_a_chirp(case: str) -> None:
    """Against symplectic Euler of the whole, written out."""
    damping, h = CASES[case]
    c, k = damping * np.array([[2.0, -1.0], [-1.0, 2.0]]), np.array([[110.0, -100.0], [-100.0, 1100.0]])
    system, steps = forced(damping, chirp), round(DURATION / h)
    q, v, rows = np.zeros(2), np.zeros(2), [0.0]
    for step in range(steps):
        v = v + h * (np.array([0.0, chirp(step * h)]) - k @ q - c @ v)
        q = q + h * v
        rows.append(q[1])
    expected = np.array(rows)
    for build in MASTERS:
        found = compensate(system, build(system, h))
        ours = run(system, found.master, stop=DURATION)["two.x"]
        plain = run(system, build(system, h), stop=DURATION)["two.x"]
        # Under early read a damper's force is seen a step late: what a push did is not yet in it.
        late = build is masters.jacobi_early_read and damping > 0
        assert np.abs(ours - expected).max() <= (1e-4 if late else 1e-11) * np.abs(expected).max()
        assert np.abs(plain - expected).max() > 1e-2 * np.abs(expected).max()


def test_the_comparison_has_the_same_reference() -> None:
    damping, h = CASES["damped, 4 ms"]
    system = forced(damping, chirp)
    found = compensate(system, masters.jacobi(system, h), target="exact")
    compared = compare(found, stop=5.0)
    ours = run(system, found.master, stop=5.0)
    exact = reference(damping, ours.time)
    assert compared.exact.final["two.x"] == pytest.approx(exact[-1], abs=1e-6 * np.abs(exact).max())
    assert compared.compensated.nrms is not None
    assert compared.compensated.nrms["two.x"] == pytest.approx(nrms(ours["two.x"], exact), rel=0.02)
    assert compared.energy_start == 0


def test_a_table_is_a_force_like_any_other() -> None:
    times = np.linspace(0.0, 5.0, 5001)
    damping, h = CASES["damped, 1 ms"]
    table = forced(damping, Table(times, [chirp(t) for t in times]))
    function = forced(damping, chirp)
    ours = [
        run(system, compensate(system, masters.jacobi(system, h), target="exact").master, stop=5.0)["two.x"]
        for system in (table, function)
    ]
    assert np.abs(ours[0] - ours[1]).max() <= 1e-9 * np.abs(ours[1]).max()


@pytest.mark.parametrize("build", MASTERS)
@pytest.mark.one_in(2)
def test_exact_integrators_follow_the_force_throughout_the_step(build: Build) -> None:
    """Held over the step, as the plain master does it, the force comes half a step late: an error of 1e-2."""
    base = forced(0.1, chirp)
    units = {name: rebuild(unit, integrator=Exact()) for name, unit in require_linear(base).items()}
    system = System(units, base.connections, inputs=base.inputs)
    found = compensate(system, build(system, 4e-3), target="exact")
    ours = run(system, found.master, stop=DURATION)
    assert nrms(ours["two.x"], reference(0.1, ours.time)) < 2e-4
