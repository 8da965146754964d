"""The same results on every backend: PyTorch where it is installed, and the code for graphics processors on NumPy."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import Batch, backends
from cosimo.algebra.backends import BLAS_FROM, Backend, _Device, find_backend
from cosimo.algebra.batch import Consistency
from cosimo.core.errors import ConfigurationError
from cosimo.couplings import Hold
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems import four_mass
from cosimo.problems.masses import two_mass_glumac
from cosimo.tuning.goals import Stability, WorstOutputError

GLUMAC = two_mass_glumac()


class Other(_Device):
    """What CuPy gets, with NumPy's functions behind it."""

    name = "other"


NAMES = ["other", *(["torch"] if importlib.util.find_spec("torch") else [])]


def backend(name):
    return Other() if name == "other" else find_backend(name)


@pytest.mark.parametrize("name", NAMES)
def test_twenty_thousand_masters(name):
    rng = np.random.default_rng(0)
    master = paper_masters(GLUMAC, 1.0)["Control21"]
    steps, gains = rng.uniform(1e-3, 12, 20_000), {"two.F": rng.uniform(0, 1.1, 20_000)}
    tables = [
        Batch(GLUMAC, master, steps=steps, gains=gains, backend=b).compute(Stability(), Consistency())
        for b in (Backend(), backend(name))
    ]
    for column in ("spectral_radius", "consistency"):
        assert np.abs(tables[0][column] - tables[1][column]).max() < 1e-10
    assert (tables[0].stable == tables[1].stable).all()


@pytest.mark.parametrize("name", NAMES)
def test_masters_of_every_kind(name):
    systems = [two_mass_glumac(ck=ck) for ck in (0.5, 1.0, 3.0)]
    cases = [
        (GLUMAC, masters.iterative(GLUMAC, 1.0), 3.0, {}),
        (GLUMAC, masters.multirate(GLUMAC, 1.0, multiples={"one": 3}, coupling=Hold(2)), 3.0, {}),
        (four_mass(), masters.jacobi(four_mass(), 1.0, coupling=Hold(1)), 0.01, {}),
        (GLUMAC, masters.jacobi(GLUMAC, 1.0), 5.0, {"systems": systems, "which": np.arange(200) % 3}),
    ]
    for system, master, longest, more in cases:
        steps = np.geomspace(longest / 100, longest, 200)
        states = sum(len(unit.initial_state) for unit in system.units.values())
        sizes = np.ones(len(system.outputs))
        error = WorstOutputError(np.eye(states), sizes, longest * 20, samples=30)
        objectives = (Stability(), Consistency(k=1, norm=1), error)
        one, two = (
            Batch(system, master, steps=steps, backend=b, **more).compute(*objectives)
            for b in (Backend(), backend(name))
        )
        for column in one.columns:
            assert two[column] == pytest.approx(one[column], rel=1e-9, abs=1e-11), (master.name, column)


def test_singular_loops_are_marked_not_raised():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((3, 3, 4)), rng.standard_normal((3, 2, 4))
    a[:, :, 2] = 0
    for name in ("numpy", *NAMES):
        library = find_backend(name) if name != "other" else Other()
        found = library.host(library.solve(library.array(a), library.array(b)))
        assert np.isnan(found[:, :, 2]).all()
        for i in (0, 1, 3):
            assert found[:, :, i] == pytest.approx(np.linalg.solve(a[:, :, i], b[:, :, i]))


def test_backends_are_found_by_name(monkeypatch):
    assert find_backend("numpy").name == "numpy"
    assert find_backend("auto").name in {"numpy", "torch", "cupy"}
    with pytest.raises(ConfigurationError, match="did you mean 'torch'"):
        find_backend("torhc")
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="'cupy' is not installed"):
        find_backend("cupy")
    assert find_backend("auto").name == "numpy"


def test_no_library_is_loaded_before_it_is_wanted():
    import subprocess

    code = (
        "import sys, cosimo.algebra.batch, cosimo.tuning.goals\n"
        "print([m for m in ('torch', 'cupy', 'jax') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("depths", [(3, 3), (3, 1), (1, 3)])
@pytest.mark.parametrize("inner", [BLAS_FROM - 1, BLAS_FROM, 2 * BLAS_FROM])
def test_small_and_large_matrices_are_multiplied_alike(depths, inner):
    rng = np.random.default_rng(inner)
    a, b = rng.standard_normal((5, inner, depths[0])), rng.standard_normal((inner, 7, depths[1]))
    wanted = np.stack([a[:, :, k % depths[0]] @ b[:, :, k % depths[1]] for k in range(3)], axis=-1)
    np.testing.assert_allclose(Backend().multiply(a, b), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("count", "size", "parts"), [(40, 10, 1), (600, 20, 3), (2, 100, 2), (0, 30, 1)])
def test_eigenvalues_are_shared_by_cores_where_that_pays(monkeypatch, count, size, parts):
    monkeypatch.setattr(backends, "processors", lambda: 3)
    matrices, asked = np.random.default_rng(2).normal(size=(count, size, size)), []

    def radii(some):
        asked.append(len(some))
        return np.abs(np.linalg.eigvals(some)).max(axis=-1, initial=0.0)

    found = Backend().on_host(radii, matrices)
    assert (len(asked), sum(asked)) == (parts, count)
    assert found.tobytes() == radii(matrices).tobytes()
