"""Points of studies: grids, samples, seeds, and what is said of wrong ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.studies import (
    Grid,
    LogUniform,
    Normal,
    Points,
    Sample,
    Uniform,
    cross,
    parse_distribution,
    parse_values,
)

LAWS = {"a": Uniform(-1.0, 3.0), "b": LogUniform(1e-3, 1e3), "c": Normal(5.0, 0.5)}


def test_a_grid_has_all_combinations_the_last_fastest() -> None:
    points = Grid({"a": [1.0, 2.0], "b": [10.0, 20.0, 30.0]}).points()
    assert points.names == ("a", "b")
    assert points.values.tolist() == [[a, b] for a in (1.0, 2.0) for b in (10.0, 20.0, 30.0)]


@pytest.mark.parametrize("method", ["latin", "random"])
def test_samples_follow_their_distributions(method: str) -> None:
    found = Sample(LAWS, runs=2000, seed=7, method=method).points().values  # type: ignore[arg-type]
    laws = [stats.uniform(-1, 4), stats.loguniform(1e-3, 1e3), stats.norm(5, 0.5)]
    for column, law in zip(found.T, laws, strict=True):
        assert stats.kstest(column, law.cdf).pvalue > 0.001
    # Drawn for each parameter on its own.
    assert np.abs(np.corrcoef(stats.rankdata(found, axis=0).T) - np.eye(3)).max() < 0.08


def test_a_latin_hypercube_has_one_point_in_every_slice() -> None:
    column = Sample({"a": Uniform(0.0, 1.0), "b": Uniform(0.0, 1.0)}, runs=50, seed=3).points().values
    assert (np.sort(np.floor(column * 50), axis=0) == np.arange(50)[:, None]).all()


def test_seeds_decide() -> None:
    first, again, other = (Sample(LAWS, runs=20, seed=seed).points().values for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.isclose(first, other).any()


def test_crossing_repeats_the_sample_at_every_point_of_the_grid() -> None:
    sample = Sample({"k": Uniform(0.0, 1.0)}, runs=4, seed=1)
    points = cross(Grid({"step": [0.1, 0.2]}), sample)
    assert points.names == ("step", "k")
    assert points.values[:, 0].tolist() == [0.1] * 4 + [0.2] * 4
    assert np.array_equal(points.values[:4, 1], points.values[4:, 1])
    assert np.array_equal(points.values[:4, 1:], sample.points().values)


def test_points_do_not_change() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Points(["a"], [[1.0]]).values[0, 0] = 2.0


def test_values_in_words() -> None:
    assert parse_values("1:3:3") == (1.0, 2.0, 3.0)
    assert parse_values("1, 5,2.5") == (1.0, 5.0, 2.5)
    assert parse_values("0.01:1:3:log") == pytest.approx((0.01, 0.1, 1.0))
    assert parse_distribution("log-uniform:1:10") == LogUniform(1.0, 10.0)


@pytest.mark.parametrize("text", ["", "a", "1:2", "1:2:0", "1:2:x", "1:2:3:lin", "-1:1:3:log", "1,nan", "1:inf:3"])
def test_values_that_mean_nothing(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"values|finite"):
        parse_values(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gauss:1:2", "did you mean|known: log-uniform, normal, uniform"),
        ("uniform:1", "uniform:low:high"),
        ("uniform:2:1", "smaller one first"),
        ("log-uniform:-1:1", "positive"),
        ("normal:1:0", "positive standard deviation"),
        ("normal:x:1", "not a finite number"),
    ],
)
def test_distributions_that_mean_nothing(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_distribution(text)


def test_tables_that_mean_nothing() -> None:
    with pytest.raises(ConfigurationError, match="that many columns"):
        Points(["a", "b"], [[1.0]])
    with pytest.raises(ConfigurationError, match="point 1 has b = nan"):
        Points(["a", "b"], [[1.0, 2.0], [1.0, np.nan]])
    with pytest.raises(ConfigurationError, match="twice"):
        cross(Grid({"a": [1.0]}), Grid({"a": [2.0]}))
    with pytest.raises(ConfigurationError, match="10,000,000"):
        Grid({name: list(range(1000)) for name in "abc"}).points()
    with pytest.raises(ConfigurationError, match="no values"):
        Grid({"a": []}).points()
    for options in ({"runs": 0}, {"runs": 3, "seed": -1}):
        with pytest.raises(ConfigurationError, match="whole number"):
            Sample(LAWS, **options)
    with pytest.raises(UnknownNameError, match="latin"):
        Sample(LAWS, runs=3, method="latn")  # type: ignore[arg-type]
