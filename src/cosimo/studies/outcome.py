"""What a study found: its rows, and in a few numbers what is in them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array
from cosimo.core.errors import UnknownNameError
from cosimo.studies.rows import MESSAGE, RUN, STATUS, TRUST, document_of, read_table
from cosimo.studies.runner import STATUSES

if TYPE_CHECKING:
    import pandas
    import pyarrow

QUANTILES = (0.05, 0.5, 0.95)
ENOUGH = 10
"""Runs from which a correlation says something."""


@dataclass(frozen=True)
class Spread:
    """How one measure is distributed over the runs that have it; `least_at` and `most_at` are numbers of runs.

    `correlations` are Spearman's rank correlations with the parameters: ±1 where the measure rises (falls) whenever the
    parameter rises, 0 where they have nothing to do with each other. None where a parameter does not vary, the measure
    is always the same, or runs are few.
    """

    count: int
    least: float
    low: float
    median: float
    high: float
    most: float
    mean: float
    least_at: int
    most_at: int
    correlations: dict[str, float | None]


@dataclass(frozen=True)
class Outcome:
    """The rows of a study, by number. `study[name]` is a column: floats with NaN where a run has no such measure.

    `notes` say what happened on the way; `resumed` rows were in the file before.
    """

    table: pyarrow.Table = field(repr=False)
    document: dict[str, Any] = field(repr=False)
    workers: int = 1
    wall_time: float = 0.0
    resumed: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, name: str) -> Array | npt.NDArray[np.object_]:
        if name not in self.table.schema.names:
            raise UnknownNameError("column", name, self.table.schema.names)
        column: Array = self.table.column(name).to_numpy()
        return column

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the varied parameters."""
        return tuple(self.document["parameters"])

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(self.document["columns"])

    @property
    def complete(self) -> bool:
        """Whether every point has its row."""
        return len(self) == int(self.document["runs"])

    @property
    def counts(self) -> dict[str, int]:
        """How many runs ended in which way."""
        found = Counter(self.table.column(STATUS).to_pylist())
        return {status: found.get(status, 0) for status in STATUSES}

    @property
    def trust(self) -> dict[str, int]:
        """How many runs can be trusted, with care, not, or were not assessed."""
        found = Counter(self.table.column(TRUST).to_pylist())
        return {word: found.get(word, 0) for word in ("yes", "with care", "no", "not assessed")}

    def failures(self, most: int = 5) -> list[tuple[int, str, str]]:
        """Number, status and message of the first runs that have no result."""
        rows = zip(*(self.table.column(name).to_pylist() for name in (RUN, STATUS, MESSAGE)), strict=True)
        return [row for row in rows if row[1] != "ran"][:most]

    def point(self, run: int) -> dict[str, float]:
        """The parameter values of a run."""
        place = int(np.searchsorted(np.asarray(self[RUN], dtype=int), run))
        return {name: float(self[name][place]) for name in self.parameters}

    def spread(self, measure: str) -> Spread | None:
        """How a measure is distributed; None where no run has it."""
        values, runs = np.asarray(self[measure], dtype=float), np.asarray(self[RUN], dtype=int)
        there = np.isfinite(values)
        if not there.any():
            return None
        values, runs = values[there], runs[there]
        low, median, high = np.quantile(values, QUANTILES).tolist()
        lowest, highest = int(values.argmin()), int(values.argmax())
        return Spread(
            count=len(values),
            least=float(values[lowest]),
            low=low,
            median=median,
            high=high,
            most=float(values[highest]),
            mean=float(values.mean()),
            least_at=int(runs[lowest]),
            most_at=int(runs[highest]),
            correlations={name: _correlation(np.asarray(self[name])[there], values) for name in self.parameters},
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame indexed by the number of the run (needs the extra `pandas`)."""
        return self.table.to_pandas().set_index(RUN)


def read_study(path: str | Path) -> Outcome:
    """The rows of a study from its file, or so far from the stream of one that goes on or was interrupted."""
    table = read_table(path)
    return Outcome(table, document_of(table.schema))


def _correlation(parameter: Array, measure: Array) -> float | None:
    from scipy.stats import rankdata

    if len(measure) < ENOUGH or np.ptp(parameter) == 0 or np.ptp(measure) == 0:
        return None
    ranks = np.corrcoef(rankdata(parameter), rankdata(measure))
    return float(ranks[0, 1])
