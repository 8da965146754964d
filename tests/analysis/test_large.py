"""The verdict on systems of more than 400 states: what is proved is said, and what is not known is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosimo import analyse, masters
from cosimo.algebra import LinearSystem, product
from cosimo.analysis import analysing, large, linearisation, recommendation, truth
from cosimo.analysis.cost import Cost
from cosimo.analysis.critical import critical_step
from cosimo.analysis.model import Model
from cosimo.analysis.recommendation import Wanted, choose, usual_points
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Connection, System
from cosimo.formats.export import export_system
from cosimo.problems import chain
from cosimo.units import Fmu, StateSpace


def test_a_long_chain_is_proved_to_be_stable() -> None:
    system = chain(n=210)
    verdict = analyse(system, masters.gauss_seidel(system, 0.01), horizon=0.5)
    assert (verdict.stable, verdict.exact_stable, verdict.evidence) == (True, True, "proved")
    assert verdict.error is not None
    assert set(verdict.error.outputs) < set(system.outputs)  # the far end rests
    # 420 eigenvalues of nearly one size: which is the largest is not known, and not said.
    assert verdict.spectral_radius is None
    assert "too close together" in verdict.reasons["spectral_radius"]
    assert verdict.fields()["spectral_radius"] is None


def test_a_long_chain_is_proved_to_be_unstable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommendation, "MOST_NUMBERS", 1e5)
    system = chain(n=210)
    verdict = analyse(system, masters.jacobi(system, 0.3), horizon=3.0)
    assert (verdict.stable, verdict.exact_stable, verdict.trust) == (False, True, "no")
    # Below 0.3 s the chain is stable, then unstable, then stable again: what counts is the first crossing, which full
    # matrices put at 0.0521 s for long chains.
    limit = verdict.critical_step
    assert limit is not None
    assert limit.between is not None
    assert limit.step == limit.between[0] < 0.0521 < limit.between[1] < 1.2 * limit.step
    assert "the first proved stable, the second unstable" in str(verdict)
    advice = verdict.recommendation
    assert advice is not None
    assert "(shorter ones were not tried)" in advice.text  # motion has hardly reached the last units: errors are large


def test_few_states_behind_many_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large is what has many signals: of four states Arnoldi's method finds no four eigenvalues."""
    units = {
        name: StateSpace([[-1.0, rate], [-rate, -2.0]], [[0.0], [1.0]], [[1.0, 0.0]], initial=[1.0, 0.0])
        for name, rate in (("a", 3.0), ("b", 4.0))
    }
    system = System(units, [Connection("a.y1", "b.u1"), Connection("b.y1", "a.u1", gain=-2.0)])
    dense = analyse(system, masters.jacobi(system, 0.05), horizon=2.0)
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    monkeypatch.setattr(linearisation, "LARGE", 0)
    found = analyse(system, masters.jacobi(system, 0.05), horizon=2.0)
    assert (found.stable, found.exact_stable) == (dense.stable, dense.exact_stable) == (True, True)
    assert found.error is not None
    assert dense.error is not None
    assert found.error.worst == pytest.approx(dense.error.worst, rel=1e-6)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_all_eigenvalues_of_a_small_map(size: int) -> None:
    A = np.random.default_rng(size).standard_normal((size, size))
    for shift in (0.3, 0.3 + 0.2j):
        inverse = np.linalg.inv(A - shift * np.eye(size))
        values, vectors = large.nearest(lambda x, inverse=inverse: inverse @ x, shift, size, 4)
        assert np.allclose(A @ vectors, vectors * values)
        assert np.abs(values[:, None] - np.linalg.eigvals(A)).min(axis=0).max() < 1e-9


def test_large_systems_of_fmus_have_a_critical_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twelve of them stand for many: full matrices of the known equations say where it is."""
    system = chain(n=12)
    units = {name: Fmu(path) for name, path in export_system(system, tmp_path, fmi=2).items()}
    fmus = System(units, system.connections)
    known = critical_step(system, masters.jacobi(system, 0.01))
    assert known is not None
    monkeypatch.setattr(analysing, "FEW", 20)
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    found = analyse(fmus, masters.jacobi(fmus, 0.01), horizon=1.0).critical_step
    assert found is not None
    assert found.between is not None
    low, high = found.between
    assert found.step == low < known.step < high < 1.2 * low


@pytest.mark.parametrize(
    ("units", "horizon", "target"), [(35, 2.0, 0.01), pytest.param(210, 6.28, 0.3, marks=pytest.mark.slow)]
)
def test_what_is_recommended_for_many_states_holds_in_a_run(units: int, horizon: float, target: float) -> None:
    """Of 35 units Gauss–Seidel is tried too, of 210 Jacobi alone."""
    system = chain(n=units)
    model = Model(system, step=0.01, horizon=horizon)
    points = usual_points(model, Wanted(target), Cost())
    best = choose(points, Wanted(target))
    assert best is not None
    assert best.master.name.startswith("jacobi" if units > 200 else "gauss-seidel")
    measured = model.measure(best.master)
    assert measured.error == pytest.approx(best.error, rel=1e-6)
    assert measured.error < target


def test_a_chain_that_grows_by_itself() -> None:
    system = chain(n=210, damping=-0.5)
    verdict = analyse(system, masters.jacobi(system, 0.01), horizon=0.5)
    assert (verdict.stable, verdict.exact_stable) == (False, False)


def test_what_neither_fades_nor_grows_is_not_said_to_be_stable() -> None:
    system = chain(n=210, damping=0.0, coupling=0.0)
    verdict = analyse(system, masters.jacobi(system, 1e-3), horizon=0.01)
    assert (verdict.stable, verdict.exact_stable, verdict.trust) == (None, None, "with care")
    assert verdict.reasons["stable"].startswith("neither decay nor growth")


@pytest.mark.parametrize("n", [60, pytest.param(210, marks=pytest.mark.slow)])
def test_a_chain_that_hardly_grows_is_judged_as_by_full_matrices(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linearisation, "LARGE", n)
    monkeypatch.setattr(large, "SMALL", n)
    system = chain(n=n, damping=0.0)
    master = masters.iterative(system, 1e-3, sweeps=2)
    verdict = analyse(system, master, horizon=0.01, details=False)
    full = Spectrum(LinearSystem(system, master))
    assert 1e-10 < full.moving_radius - 1 < 1e-4
    assert verdict.stable is full.stable is False


def test_tables_beyond_the_memory_are_refused_before_they_are_made() -> None:
    with pytest.raises(ConfigurationError, match=r"2,000,001 rows of 10,000 outputs need 149 GiB, and 2 GiB is"):
        truth.require_room(2_000_001, 10_000)
    truth.require_room(20_000, 10_000)
