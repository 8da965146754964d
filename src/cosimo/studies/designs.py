"""The points of a study: tables of parameter values, from grids, from samples, or given.

A point is one row of values, one per name. `Grid` takes all combinations, `Sample` draws from distributions: with
u (R, P) in (0, 1), evenly spread over each axis (Latin hypercube) or independent, and the quantile function F⁻¹ of each
parameter, x_rp = F_p⁻¹(u_rp). Equal seeds give equal points. `cross` combines designs: every row with every row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError

MOST_POINTS = 10_000_000
"""More points than this cannot be meant."""


@dataclass(frozen=True, eq=False)
class Points:
    """`values` (R, P): one row per run, one column per parameter in `names`.

    >>> Points(("m1", "step"), [[1.0, 0.001], [2.0, 0.001]])
    Points(2 of m1, step)
    """

    names: tuple[str, ...]
    values: Array

    def __init__(self, names: Sequence[str], values: npt.ArrayLike) -> None:
        table = np.array(values, dtype=float)
        if table.ndim != 2 or table.shape[1] != len(names) or not len(table):
            raise ConfigurationError(
                f"points of {len(names)} parameters need a table with that many columns and at least one row; this "
                f"one has the shape {table.shape}."
            )
        if len(set(names)) != len(names):
            raise ConfigurationError(f"parameters are varied twice: {', '.join(names)}; name each once.")
        bad = np.argwhere(~np.isfinite(table))
        if len(bad):
            row, column = bad[0]
            raise ConfigurationError(f"point {row} has {names[column]} = {table[row, column]}; give finite numbers.")
        table.setflags(write=False)
        object.__setattr__(self, "names", tuple(names))
        object.__setattr__(self, "values", table)

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        return f"Points({len(self):,} of {', '.join(self.names)})"


class Design(Protocol):
    """Whatever yields points."""

    def points(self) -> Points:
        """The table."""


@dataclass(frozen=True)
class Grid:
    """All combinations of the given values; the last parameter changes fastest.

    >>> Grid({"k": [1.0, 2.0], "step": [0.1]}).points().values.tolist()
    [[1.0, 0.1], [2.0, 0.1]]
    """

    values: Mapping[str, Sequence[float]]

    def points(self) -> Points:
        _require_few(math.prod(len(column) for column in self.values.values()))
        columns = np.meshgrid(*(np.asarray(column, dtype=float) for column in self.values.values()), indexing="ij")
        return Points(tuple(self.values), np.column_stack([column.ravel() for column in columns]))


@dataclass(frozen=True)
class Uniform:
    """Equally likely between `low` and `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigurationError(f"uniform:{self.low:g}:{self.high:g} needs two numbers, the smaller one first.")

    def quantile(self, u: Array) -> Array:
        """low + u (high − low)."""
        return self.low + u * (self.high - self.low)


@dataclass(frozen=True)
class LogUniform:
    """The logarithm equally likely between those of `low` and `high`, both positive."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (0 < self.low < self.high < math.inf):
            raise ConfigurationError(
                f"log-uniform:{self.low:g}:{self.high:g} needs two positive numbers, the smaller one first."
            )

    def quantile(self, u: Array) -> Array:
        """low (high / low)^u."""
        found: Array = self.low * (self.high / self.low) ** u
        return found


@dataclass(frozen=True)
class Normal:
    """Gaussian with `mean` and standard deviation `deviation`."""

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mean) and 0 < self.deviation < math.inf):
            raise ConfigurationError(
                f"normal:{self.mean:g}:{self.deviation:g} needs a mean and a positive standard deviation."
            )

    def quantile(self, u: Array) -> Array:
        """mean + deviation · Φ⁻¹(u)."""
        from scipy.special import ndtri

        found: Array = self.mean + self.deviation * ndtri(u)
        return found


Distribution = Uniform | LogUniform | Normal


@dataclass(frozen=True)
class Sample:
    """`runs` points drawn from a distribution per parameter; `method`: "latin" (hypercube) or "random".

    >>> found = Sample({"k": Uniform(0.0, 4.0)}, runs=4, seed=1).points().values
    >>> sorted(int(value) for value in found.ravel())  # one in each quarter of the range
    [0, 1, 2, 3]
    """

    distributions: Mapping[str, Distribution]
    runs: int
    seed: int = 0
    method: Literal["latin", "random"] = "latin"

    def __post_init__(self) -> None:
        if not isinstance(self.runs, int) or self.runs < 1:
            raise ConfigurationError(f"the number of runs must be a whole number of at least 1, not {self.runs}.")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise ConfigurationError(f"a seed must be a whole number of 0 or more, not {self.seed}.")
        if self.method not in ("latin", "random"):
            raise UnknownNameError("sampling method", self.method, ("latin", "random"))
        _require_few(self.runs)

    def points(self) -> Points:
        generator = np.random.default_rng(self.seed)
        shape = (self.runs, len(self.distributions))
        if self.method == "latin":
            from scipy.stats import qmc

            u = qmc.LatinHypercube(d=shape[1], seed=generator).random(self.runs)
        else:
            u = generator.random(shape)
        u = np.maximum(u, np.finfo(float).tiny)  # the quantile of exactly 0 may be infinite
        columns = [law.quantile(u[:, place]) for place, law in enumerate(self.distributions.values())]
        return Points(tuple(self.distributions), np.column_stack(columns))


def cross(*designs: Design | Points) -> Points:
    """Every row of the first with every row of the second, and so on; the last changes fastest.

    A grid crossed with a sample repeats the same sample at each of its points: differences between the points are then
    not blurred by different draws.
    """
    tables = [design if isinstance(design, Points) else design.points() for design in designs]
    _require_few(math.prod(map(len, tables)))
    names = tuple(name for table in tables for name in table.names)
    rows = np.indices([len(table) for table in tables]).reshape(len(tables), -1)
    return Points(names, np.hstack([table.values[which] for table, which in zip(tables, rows, strict=True)]))


def _require_few(count: int) -> None:
    if count > MOST_POINTS:
        raise ConfigurationError(f"the study would have {count:,} runs, more than {MOST_POINTS:,}; use fewer values.")
    if count < 1:
        raise ConfigurationError("a parameter has no values; give at least one for each.")


# ---- in words -------------------------------------------------------------------------------------------------------

_LAWS: Mapping[str, type[Distribution]] = {"uniform": Uniform, "log-uniform": LogUniform, "normal": Normal}


def parse_values(text: str) -> tuple[float, ...]:
    """`a:b:n` (n values, equally far apart), `a:b:n:log` (equal ratios), or `v1,v2,…`.

    >>> parse_values("1:100:3:log")
    (1.0, 10.0, 100.0)
    """
    form = "values are written a:b:n, a:b:n:log, or v1,v2,…"
    if ":" not in text:
        return tuple(_number(word, text, form) for word in text.split(","))
    first, last, *rest = text.split(":")
    if len(rest) not in (1, 2) or rest[1:] not in ([], ["log"]):
        raise ConfigurationError(f"'{text}' is not understood; {form}.")
    ends = _number(first, text, form), _number(last, text, form)
    count = int(rest[0]) if rest[0].strip().isdigit() else 0
    if count < 1:
        raise ConfigurationError(f"'{text}' needs a whole number of values of at least 1; {form}.")
    _require_few(count)
    if len(rest) == 1:
        return tuple(np.linspace(*ends, count).tolist())
    if min(ends) <= 0:
        raise ConfigurationError(
            f"'{text}' has values of 0 or below, which cannot be spaced logarithmically; leave 'log' out."
        )
    return tuple(np.geomspace(*ends, count).tolist())


def parse_distribution(text: str) -> Distribution:
    """`uniform:low:high`, `log-uniform:low:high` or `normal:mean:deviation`.

    >>> parse_distribution("normal:10:0.5")
    Normal(mean=10.0, deviation=0.5)
    """
    name, *arguments = text.split(":")
    if name not in _LAWS:
        raise UnknownNameError("distribution", name, _LAWS)
    form = "distributions are written uniform:low:high, log-uniform:low:high, normal:mean:deviation"
    if len(arguments) != 2:
        raise ConfigurationError(f"'{text}' is not understood; {form}.")
    return _LAWS[name](*(_number(word, text, form) for word in arguments))


def _number(word: str, text: str, form: str) -> float:
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigurationError(f"'{word}' in '{text}' is not a finite number; {form}.")
    return value
