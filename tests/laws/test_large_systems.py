"""Large systems are judged without full matrices, and as full matrices judge them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thinning import ALL, examples

sys.path.insert(0, str(Path(__file__).parent))
from random_systems import MATRIX_SEEDS, cases, systems

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import error_norms, linearisation, truth
from cosimo.analysis.critical import EigenvalueSizes, critical_step, large_critical_step
from cosimo.analysis.large import LargePoles, LargeSpectrum
from cosimo.analysis.model import Model
from cosimo.analysis.spectrum import Spectrum, sweep_factor
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.units import Mechanical, StateSpace

some = settings(max_examples=examples(80), suppress_health_check=list(HealthCheck), deadline=None)
few = settings(some, max_examples=examples(25))


@some
@given(cases(), MATRIX_SEEDS)
def test_one_sparse_solution_is_one_macro_step(case: tuple[System, Master], seed: int) -> None:
    linear, rng = LinearSystem(*case), np.random.default_rng(seed)
    z = rng.standard_normal((linear.layout.size, 2))
    expected = linear.join(linear.macro_step(linear.split(z)))
    step = linear.sparse_step
    assert step.step(z) == pytest.approx(expected, rel=1e-9, abs=1e-9 * np.abs(expected).max())
    back = rng.standard_normal(linear.layout.size)
    assert back @ expected[:, 0] == pytest.approx(step.transposed(back) @ z[:, 0], rel=1e-8, abs=1e-8)
    inner = step.restricted(step.carried)
    x = rng.standard_normal((inner.size, 2))
    shift = complex(1.3, 0.4)
    solved = inner.inverse(shift)(inner.product(x) - shift * x)
    assert solved == pytest.approx(x, rel=1e-7, abs=1e-7)


@some
@given(cases(), st.sampled_from([0.3, 1.0, 2.0]), MATRIX_SEEDS)
def test_the_equations_of_another_step_are_taken_over(case: tuple[System, Master], factor: float, seed: int) -> None:
    """Only steps of units are put anew into the equations of the same master at another step."""
    system, master = case
    if master.mixers:
        return  # designed for one step
    linear, other = LinearSystem(system, master), master.with_step(factor * master.step)
    linear.sparse_step.step(np.zeros(linear.layout.size))
    alike, fresh = LinearSystem(system, other, like=linear), LinearSystem(system, other)
    z = np.random.default_rng(seed).standard_normal((fresh.layout.size, 2))
    expected = fresh.sparse_step.step(z)
    assert alike.sparse_step.step(z) == pytest.approx(expected, rel=1e-12, abs=1e-12 * np.abs(expected).max())
    assert (alike.sparse_step.carried == fresh.sparse_step.carried).all()


@some
@given(systems(), st.sampled_from([0.01, 0.1]), MATRIX_SEEDS)
def test_one_sparse_solution_is_the_fixed_point_of_an_iteration(system: System, step: float, seed: int) -> None:
    linear = LinearSystem(system, masters.iterative(system, step, coupling=Hold(1)))
    z = np.random.default_rng(seed).standard_normal((linear.layout.size, 1))
    try:
        expected = linear.join(linear.macro_step(linear.split(z)))
    except AlgebraicLoopError:
        return
    assert linear.sparse_step.step(z) == pytest.approx(expected, rel=1e-7, abs=1e-7 * np.abs(expected).max())
    dense, linear.sparse = sweep_factor(linear), True
    assert sweep_factor(linear) == pytest.approx(dense, rel=1e-9, abs=1e-9)


@st.composite
def networks(draw: st.DrawFn) -> System:
    """20 to 40 oscillators in a random net, with meters and carriages (poles 0, single and double), stable or not."""
    rng = np.random.default_rng(draw(MATRIX_SEEDS))
    n, damping = draw(st.integers(20, 40)), draw(st.sampled_from([0.2, 1.0, 5.0]))
    grow = draw(st.sampled_from([0, 0, 0, 1]))
    units: dict[str, StateSpace | Mechanical] = {}
    connections = []
    for i in range(n):
        own = -0.5 if grow and i == n // 2 else damping * rng.uniform(0.5, 1.5)
        stiffness = rng.uniform(20.0, 200.0)
        units[f"u{i}"] = Mechanical(
            1.0, own, stiffness, B=np.ones((1, 2)), displacement=1.0, initial=rng.standard_normal(2)
        )
        for k in (1, 2):
            other = (i + int(rng.integers(1, 4))) % n
            connections.append(Connection(f"u{other}.y1", f"u{i}.u{k}", float(rng.uniform(0.0, 0.4) * stiffness / 2)))
    for i in range(draw(st.integers(0, 3))):
        double = draw(st.booleans())
        A = [[0.0, 1.0], [0.0, 0.0]] if double else [[0.0]]
        units[f"rest{i}"] = StateSpace(A, [[0.0], [1.0]] if double else [[1.0]], [[1.0, 0.0]] if double else [[1.0]])
        connections.append(Connection(f"u{i}.y1", f"rest{i}.u1"))
    return System(units, connections, name="net")


@st.composite
def judged(draw: st.DrawFn) -> tuple[System, Master]:
    system, step = draw(networks()), draw(st.sampled_from([0.003, 0.02, 0.1, 0.3]))
    coupling = Hold(draw(st.integers(0, 1)))
    build = draw(st.sampled_from([masters.jacobi, masters.gauss_seidel, masters.iterative]))
    return system, build(system, step, coupling=coupling, **({"sweeps": 2} if build is masters.iterative else {}))


@few
@given(judged())
def test_what_is_said_of_stability_is_what_full_matrices_say(case: tuple[System, Master]) -> None:
    linear = LinearSystem(*case)
    full = Spectrum(linear)
    poles = LargePoles(sp.csr_array(linear.coupled.A))
    assert poles.rest.count == full.rest.count
    assert poles.fastest == pytest.approx(np.abs(full.poles).max(), rel=1e-6)
    largest = float(full.poles.real.max())
    assert poles.grows in (None, not full.exact_stable)
    if abs(largest) > 0.05 and not full.rest.count:
        assert poles.grows is not None
    large = LargeSpectrum(linear, poles)
    found = large.stays_bounded()
    assert found in (None, full.stable)
    if abs(full.moving_radius - 1) > 0.02:
        assert found is not None
    if large.radius is not None:
        assert large.radius == pytest.approx(full.radius, rel=1e-7)


@few
@given(networks(), st.sampled_from([0.003, 0.02]))
def test_slowest_modes_are_those_of_full_matrices(system: System, step: float) -> None:
    linear = LinearSystem(system, masters.jacobi(system, step))
    poles = LargePoles(sp.csr_array(linear.coupled.A))
    full = Spectrum(linear)
    moving = np.abs(full.poles)[np.abs(full.poles) > 1e-6 * np.abs(full.poles).max()]
    assert np.abs(poles.extremes).min() == pytest.approx(moving.min(), rel=1e-6)
    mu = full.eigenvalues
    for mode in LargeSpectrum(linear, poles).modes():
        assert np.abs(full.poles - mode.monolithic).min() <= 1e-6 * np.abs(mode.monolithic)
        assert np.abs(mu - np.exp(mode.cosimulated * step)).min() <= 1e-7


@settings(some, max_examples=80 if ALL else 5)
@given(cases())
def test_errors_are_those_of_full_matrices(case: tuple[System, Master]) -> None:
    with mock.patch.object(truth, "GRID", 60):  # places at which the sizes of outputs are looked for
        compare_errors(*case)


def compare_errors(system: System, master: Master) -> None:
    full = Model(system, step=master.step, horizon=40 * master.step)
    if full.rests or full.grows:
        return
    expected = full.predict(master)
    with mock.patch.object(linearisation, "LARGE", 0), mock.patch.object(truth, "ROWS", 7):
        sparse = Model(system, step=master.step, horizon=40 * master.step)
        linear = LinearSystem(system, master)
        asked = {"start": 0.0, "horizon": sparse.horizon, "sizes": sparse._sizes}
        found = truth.large_errors(sparse.local, linear, **asked)  # type: ignore[arg-type]
        for share in (0.0, 0.25, 0.49, 1.01):  # who asks for less is told on which side of it the errors are
            brief = truth.large_errors(sparse.local, linear, beyond=share * found.worst, **asked)  # type: ignore[arg-type]
            assert (brief.worst > share * found.worst) == (share < 1 and found.worst > 0)
    assert found.outputs.keys() == expected.outputs.keys()
    assert found.typical == pytest.approx(expected.typical, rel=1e-6, abs=1e-9)
    for name, error in expected.outputs.items():
        assert found.outputs[name] == pytest.approx(error, rel=1e-6, abs=1e-9)


@few
@given(networks(), st.sampled_from([1, 2]))
def test_defects_are_those_of_full_matrices(system: System, norm: int) -> None:
    linear = LinearSystem(system, masters.gauss_seidel(system, 0.01, coupling=Hold(1)))
    expected = error_norms.consistency(linear, k=2, norm=norm)  # type: ignore[arg-type]
    with mock.patch.object(error_norms, "COLUMNS", 7):
        sparse = LinearSystem(system, linear.master)
        sparse.sparse = True
        assert error_norms.consistency(sparse, k=2, norm=norm) == pytest.approx(expected, rel=1e-4)  # type: ignore[arg-type]


@settings(some, max_examples=examples(15))
@given(networks(), st.sampled_from([0.003, 0.1]), st.sampled_from([masters.jacobi, masters.gauss_seidel]))
def test_critical_steps_are_those_of_full_matrices(system: System, step: float, build: Callable[..., Master]) -> None:
    linear = LinearSystem(system, build(system, step))
    expected = critical_step(system, linear.master)
    stable = Spectrum(linear).stays_bounded() is True
    try:
        found = large_critical_step(linear, LargePoles(sp.csr_array(linear.coupled.A)), stable=stable)
    except ConfigurationError:
        return  # what is not known is not said
    if found is None or expected is None:
        assert found is expected is None
        return
    full = EigenvalueSizes(system, linear.master)
    if found.between is not None:
        low, high = found.between
        radii = full.sizes(np.array([low, high]))[:, 0]
        assert radii[0] <= 1 < radii[1]
        assert expected.step <= high * (1 + 1e-6)
        assert expected.step >= low * (1 - 1e-6) or expected.step < found.searched[0]
    elif found.step == 0:
        assert expected.step <= found.searched[0]
    else:
        assert expected.step == math.inf or expected.step > found.searched[1] / 2
