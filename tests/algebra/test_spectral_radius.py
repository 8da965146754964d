"""The spectral radius by squaring: values against eigenvalues, and labels that are never wrong."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import Batch
from cosimo.algebra.backends import Backend
from cosimo.algebra.spectral_radius import _Roots, _Search, norms, spectral_radii, spectral_radius
from cosimo.couplings import Hold
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems import four_mass, quarter_truck, two_mass
from cosimo.problems.masses import two_mass_glumac
from thinning import examples


class Untiring(Backend):
    """Squares to the end whatever the size, as on a graphics processor."""

    squares_up_to = 64
    squares_from = 0
    impatient = False


@pytest.fixture(params=[Backend, Untiring], ids=["host", "device"])
def backend(request):
    return request.param()


def stack(matrices):
    return np.ascontiguousarray(np.moveaxis(matrices, 0, -1))


def eigenvalue_radius(matrices):
    return np.abs(np.linalg.eigvals(matrices)).max(axis=-1)


def orthogonal(rng, count, n):
    return np.linalg.qr(rng.standard_normal((count, n, n)))[0]


def turned(rng, blocks):
    """Q T Qᵀ with random orthogonal Q: the eigenvalues stay, to rounding times their condition."""
    Q = orthogonal(rng, len(blocks), blocks.shape[-1])
    return Q @ blocks @ Q.transpose(0, 2, 1)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8, 12, 16])
@pytest.mark.one_in(3)
def test_random_matrices_have_the_right_value_and_label(n, backend):
    rng = np.random.default_rng(n)
    count = examples(20_000 if n <= 8 else 8_000)
    matrices = rng.standard_normal((count, n, n))
    # Radii close to 1 on both sides, down to differences of 1e-9.
    reference = eigenvalue_radius(matrices)
    offsets = rng.choice([-1, 1], count) * 10.0 ** rng.uniform(-9, -0.1, count)
    matrices *= ((1 + offsets) / reference)[:, None, None]
    reference = eigenvalue_radius(matrices)
    found = spectral_radii(stack(matrices), backend, limit=1.0)
    assert np.abs(found.value - reference).max() < 1e-10
    wrong = found.stable != (offsets < 0)
    assert not wrong[np.abs(offsets) > 1e-12].any()


def test_most_matrices_need_no_eigenvalues():
    rng = np.random.default_rng(0)
    matrices = rng.standard_normal((20_000, 5, 5)) / 5
    assert spectral_radii(stack(matrices), Backend()).solved < 100


@pytest.mark.parametrize("n", [3, 6, 12])
@pytest.mark.parametrize("excess", [-1e-12, 1e-12, -1e-10, 1e-10, -1e-7, 1e-7, -1e-3, 1e-3])
@pytest.mark.one_in(5)
def test_radius_a_hair_from_one(n, excess, backend):
    """Normal matrices with a real, a negative or a complex dominant eigenvalue of modulus 1 + excess, known exactly."""
    rng = np.random.default_rng(n)
    blocks = np.zeros((600, n, n))
    blocks[:, range(n), range(n)] = rng.uniform(-0.99, 0.99, (600, n))
    blocks[:200, 0, 0], blocks[200:400, 0, 0] = 1 + excess, -1 - excess
    angle = rng.uniform(0.01, 3.1, 200)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]).transpose(2, 0, 1)
    blocks[400:, :2, :2] = (1 + excess) * rotation
    found = spectral_radii(stack(turned(rng, blocks)), backend, limit=1.0)
    assert (found.stable == (excess < 0)).all()
    assert np.abs(found.value - (1 + excess)).max() < 1e-10


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("radius", [0.5, 0.9, 0.99, 1.01, 1.1])
@pytest.mark.one_in(4)
def test_defective_matrices(size, radius, backend):
    """One Jordan block: eigenvalues move by the size-th root of rounding, labels must not."""
    rng = np.random.default_rng(size)
    blocks = np.zeros((500, size + 2, size + 2))
    blocks[:, range(size), range(size)] = radius
    blocks[:, range(size - 1), range(1, size)] = rng.choice([1e-3, 1.0, 30.0], (500, 1))
    blocks[:, size, size], blocks[:, size + 1, size + 1] = 0.3, -0.2
    matrices = turned(rng, blocks)
    found = spectral_radii(stack(matrices), backend, limit=1.0)
    truth = radius < 1
    # Where the eigenvalue solver itself cannot tell, neither can this; elsewhere it must.
    solver = (eigenvalue_radius(matrices) <= 1) == truth
    assert (found.stable == truth)[solver].all()
    if size == 2 and abs(radius - 1) >= 0.01:
        assert solver.all()


def test_clusters_at_one(backend):
    """Many eigenvalues of modulus almost 1: nothing dies away, only eigenvalues decide."""
    rng = np.random.default_rng(3)
    for spread in (1e-3, 1e-6, 1e-9, 1e-12):
        blocks = np.zeros((1000, 6, 6))
        largest = 1 + spread * rng.uniform(0.1, 1, 1000) * rng.choice([-1, 1], 1000)
        moduli = largest[:, None] - spread * np.linspace(0, 1, 6)
        blocks[:, range(6), range(6)] = moduli * rng.choice([-1, 1], (1000, 6))
        found = spectral_radii(stack(turned(rng, blocks)), backend, limit=1.0)
        assert (found.stable == (largest < 1)).all(), spread
        assert np.abs(found.value - largest).max() < 1e-12 + 1e-10


def test_nilpotent_zero_and_huge_matrices(backend):
    rng = np.random.default_rng(4)
    nilpotent = np.triu(rng.standard_normal((200, 5, 5)), 1)
    found = spectral_radii(stack(nilpotent), backend)
    assert (found.value == 0).all()
    assert found.stable.all()
    assert spectral_radii(stack(turned(rng, nilpotent)), backend).stable.all()
    assert spectral_radius(np.zeros((3, 4, 4))).tolist() == [0, 0, 0]
    for scale in (1e-200, 1e200):
        matrices = rng.standard_normal((50, 4, 4))
        assert spectral_radius(scale * matrices) == pytest.approx(scale * eigenvalue_radius(matrices), rel=1e-10)


def test_the_certificate_encloses_the_radius_wherever_it_says_so():
    """Nearly rank-2 matrices of all sorts, with and without an allowed error E of the matrix itself."""
    rng = np.random.default_rng(10)
    n, count = 5, 40_000
    dominant = rng.standard_normal((count, n, 2)) @ rng.standard_normal((count, 2, n))
    matrices = dominant + 10.0 ** rng.uniform(-12, 0, (count, 1, 1)) * rng.standard_normal((count, n, n))
    search = _Search(Backend(), stack(matrices), 1e-10, 0.0)
    P = np.moveaxis(search.P, -1, 0)
    roots = _Roots(search, stack(P @ P))
    for E in (np.zeros(count), 10.0 ** rng.uniform(-12, -3, count)):
        error = rng.standard_normal(P.shape)
        off = P + error * (E / np.linalg.norm(error, axis=(1, 2)))[:, None, None]
        R, spread, good = roots.enclosure(E)
        assert 0.2 < good.mean() < 0.99
        assert (np.abs(eigenvalue_radius(off) - R)[good] <= spread[good]).all()


def test_nearly_nilpotent_pairs_keep_their_accuracy(backend):
    """ρ far below the norm: s and d lose digits, and what loses too many must go to the solver."""
    rng = np.random.default_rng(9)
    blocks = np.zeros((20_000, 2, 2))
    blocks[:, 0, 1] = 1.0
    matrices = turned(rng, blocks) + 10.0 ** rng.uniform(-9, -1, (20_000, 1, 1)) * rng.standard_normal((20_000, 2, 2))
    wide = matrices.astype(np.longdouble)
    s = wide[:, 0, 0] + wide[:, 1, 1]
    d = wide[:, 0, 0] * wide[:, 1, 1] - wide[:, 0, 1] * wide[:, 1, 0]
    root = s * s - 4 * d
    truth = np.where(root > 0, (np.abs(s) + np.sqrt(np.abs(root))) / 2, np.sqrt(np.abs(d))).astype(float)
    error = np.abs(spectral_radii(stack(matrices), backend).value / truth - 1)
    solver = np.abs(eigenvalue_radius(matrices) / truth - 1)
    assert (error < np.maximum(1e-10, 1.01 * solver)).all()


def test_empty_and_non_finite_matrices(backend):
    assert spectral_radius(np.zeros((2, 0, 0))).tolist() == [0, 0]
    matrices = np.stack([0.5 * np.eye(3), np.full((3, 3), np.nan), np.full((3, 3), np.inf)])
    found = spectral_radii(stack(matrices), backend)
    assert found.value.tolist() == [0.5, np.inf, np.inf]
    assert found.stable.tolist() == [True, False, False]


def test_badly_scaled_matrices_are_balanced():
    """Units of measure that differ by ten powers of ten: still settled by squaring."""
    rng = np.random.default_rng(5)
    matrices = rng.standard_normal((2000, 5, 5)) / 3
    scale = 10.0 ** np.array([0, 5, -5, 3, 0])
    found = spectral_radii(stack(matrices * scale[:, None] / scale), Backend())
    assert np.abs(found.value - eigenvalue_radius(matrices)).max() < 1e-10
    assert found.solved < 20


def real_batches():
    """Φ of real systems: damped and undamped, many steps, couplings with memory."""
    rng = np.random.default_rng(6)
    count = examples(25_000)
    glumac, steps = two_mass_glumac(), rng.uniform(1e-3, 12, count)
    for name, gains in (("Control21", ("two.F",)), ("Control12", ("one.x", "one.v")), ("Seidel12", ())):
        alphas = {target: rng.uniform(0, 1.1, count) for target in gains}
        yield name, Batch(glumac, paper_masters(glumac, 1.0)[name], steps, alphas).maps
    for system, longest in ((two_mass(), 0.05), (four_mass(), 0.1), (quarter_truck(), 0.02)):
        for coupling in (Hold(0), Hold(1), Hold(2)):
            for make in (masters.jacobi, masters.gauss_seidel):
                batch = Batch(
                    system, make(system, 1e-3, coupling=coupling), np.geomspace(1e-5, longest, examples(3000))
                )
                yield f"{system.name} {make.__name__} {coupling}", batch.maps


def test_real_one_step_maps_have_no_wrong_label(backend):
    for name, matrices in real_batches():
        reference = eigenvalue_radius(matrices)
        found = spectral_radii(stack(matrices), backend, limit=1 + 1e-10)
        assert (found.stable == (reference <= 1 + 1e-10)).all(), name
        assert np.abs(found.value / reference - 1).max() < 1e-10, name


@pytest.mark.parametrize("shape", [(1, 4), (3, 4), (4, 3), (2, 2), (6, 6)])
@pytest.mark.parametrize("norm", [1, 2])
def test_norms(shape, norm):
    rng = np.random.default_rng(7)
    matrices = rng.standard_normal((5000, *shape)) * 10.0 ** rng.uniform(-200, 150, (5000, 1, 1))
    reference = np.linalg.norm(matrices, ord=norm, axis=(-2, -1))
    assert norms(stack(matrices), Backend(), norm=norm) == pytest.approx(reference, rel=1e-13)


def test_norms_of_special_matrices():
    equal = turned(np.random.default_rng(8), np.broadcast_to(3 * np.eye(4), (50, 4, 4)))
    assert norms(stack(equal), Backend(), norm=2) == pytest.approx(3.0, rel=1e-12)
    special = np.stack([np.zeros((2, 2)), np.full((2, 2), np.nan), np.full((2, 2), np.inf)])
    assert norms(stack(special), Backend(), norm=2).tolist() == [0, np.inf, np.inf]
    assert norms(stack(special), Backend(), norm=1).tolist() == [0, np.inf, np.inf]
