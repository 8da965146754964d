"""Studies: one system run at many points (parameter sweeps, Monte-Carlo), on all cores or on a Dask cluster.

    from cosimo.studies import Sample, Study, Uniform, run_study

    points = Sample({"k1": Uniform(90.0, 110.0)}, runs=200, seed=1)
    found = run_study(Study("two-mass", points, measures=["max:two.x"], stop=5.0), output="study.parquet")
    found["max:two.x"], found.counts, found.spread("max:two.x")

A study is frozen data (`study.py`), its points come from a design (`designs.py`), each run is reduced to a few numbers
and becomes one row, also when it fails (`runner.py`), made here, by other processes or on a cluster (`pools.py`). Rows
are on disk as they come (`rows.py`), so that a study which was interrupted can be resumed.
"""

from cosimo.studies.designs import (
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
from cosimo.studies.rows import Outcome, Spread, read_study
from cosimo.studies.runner import Progress, StudyStanding, run_study
from cosimo.studies.study import Study

__all__ = [
    "Grid",
    "LogUniform",
    "Normal",
    "Outcome",
    "Points",
    "Progress",
    "Sample",
    "Spread",
    "Study",
    "StudyStanding",
    "Uniform",
    "cross",
    "parse_distribution",
    "parse_values",
    "read_study",
    "run_study",
]
