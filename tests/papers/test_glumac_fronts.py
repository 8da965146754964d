"""glumac2018, Sec. 5: fronts in (ρ, δ) that the search finds, against a brute force of 10,000 points."""

from __future__ import annotations

import numpy as np
import pytest

from cosimo.algebra.batch import Batch, Consistency
from cosimo.core.arrays import Array
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems.masses import two_mass_glumac
from cosimo.tuning import Range, Space, tune
from cosimo.tuning.goals import Stability, hypervolume, nondominated
from thinning import mostly_slow

STEPS = Range(1e-3, 10.0)
GAINS = Range(0.0, 0.99)
MASTERS = {"Control21": (("two", "one"), ("two.F",)), "Control12": (("one", "two"), ("one.x", "one.v"))}
BEST = {"Control21": 0.3881, "Control12": 0.3588}


def brute_force(name: str, shape: tuple[int, ...]) -> Array:
    """ρ and δ (N, 2) on a grid: gains evenly, steps by decades, as in Eq. 68."""
    system, targets = two_mass_glumac(), MASTERS[name][1]
    axes = np.ix_(*(np.linspace(GAINS.low, GAINS.high, n) for n in shape[:-1]), np.geomspace(1e-3, 10, shape[-1]))
    gains = dict(zip(targets, axes[:-1], strict=True))
    found = Batch(system, paper_masters(system, 1.0)[name], steps=axes[-1], gains=gains)
    table = found.compute(Stability(), Consistency(k=2, norm=2))
    return np.column_stack([table["spectral_radius"].ravel(), table["consistency"].ravel()])


@pytest.mark.parametrize("name", mostly_slow(MASTERS, ["Control21"]))
def test_fronts_and_optima_beat_the_brute_force(name: str) -> None:
    order, targets = MASTERS[name]
    space = Space(
        steps=STEPS,
        families=("gauss-seidel",),
        order=order,
        kinds=(0,),
        couplings=dict.fromkeys(targets, ("nepce",)),
        gains=GAINS,
    )
    found = tune(two_mass_glumac(), space, ("radius", "defect"), evaluations=5000, horizon=100.0)
    assert found.evaluations <= 5000
    assert found.values[:, 0].min() <= BEST[name]
    assert min(point.radius for point in found.front) <= BEST[name]
    shapes = [(100, 100)] if len(targets) == 1 else [(22, 22, 20), (10, 10, 100)]
    for shape in shapes:
        grid = brute_force(name, shape)
        reference = np.array([1.0, 1.1 * grid[nondominated(grid), 1].max()])
        assert hypervolume(found.values, reference) >= hypervolume(grid, reference)
