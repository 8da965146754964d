"""Running a study: in this process, on local worker processes, or on a Dask cluster; rows are safe as they come."""

from __future__ import annotations

import importlib.util
import math
import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cosimo.core.errors import ConfigurationError, Interrupted
from cosimo.studies.outcome import Outcome
from cosimo.studies.rows import MESSAGE, RUN, SECONDS, STATUS, TRUST, Columns, Journal
from cosimo.studies.runner import Row, Runner, Take
from cosimo.studies.study import Study, describe, fingerprint

SAVED_EVERY = 0.25
"""Seconds between two batches of rows made in this process: each costs some fractions of a millisecond."""
TRIAL = 1.0
"""Seconds after which it is known how long runs take."""
PAYS = 8.0
"""Seconds of work that are worth starting processes, which takes a few."""


class Standing(NamedTuple):
    """How far a study is."""

    done: int
    total: int
    failed: int


Progress = Callable[[Standing], None]


class Pool(Protocol):
    """Where the runs are made."""

    workers: int
    notes: list[str]

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take) -> None:
        """Make these runs and hand over their rows as they come, in any order."""


class Here:
    """This process, one run after the other."""

    def __init__(self, *notes: str) -> None:
        self.workers, self.notes = 1, list(notes)

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take, *, enough: float = math.inf) -> None:
        """As `Pool`; ends early after `enough` seconds."""
        waiting: list[Row] = []
        begin = saved = time.monotonic()
        try:
            for number in runs:
                waiting.append(runner.evaluate(number))
                if time.monotonic() - begin > enough:
                    break
                if time.monotonic() - saved > SAVED_EVERY:
                    rows, waiting = waiting, []
                    take(rows)
                    saved = time.monotonic()
        finally:
            if waiting:
                take(waiting)
            if runner.note and runner.note not in self.notes:
                self.notes.append(runner.note)


class Sensible:
    """This process as long as that is quicker than starting others, then `workers` local processes."""

    def __init__(self, workers: int) -> None:
        self.workers, self.notes = 1, list[str]()
        self._most = workers

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take) -> None:
        """As `Pool`."""
        begin, made = time.monotonic(), 0

        def count(rows: Sequence[Row]) -> None:
            nonlocal made
            made += len(rows)
            take(rows)

        here = Here()
        here.evaluate(runner, runs, count, enough=TRIAL)
        left = runs[made:]
        pool: Pool = here
        if left and (time.monotonic() - begin) / made * len(left) > PAYS:
            from cosimo.studies.cluster import Cluster

            pool = Cluster(workers=min(self._most, len(left)))
        try:
            if left:
                pool.evaluate(runner, left, take)
        finally:
            self.workers, self.notes = pool.workers, list(dict.fromkeys([*here.notes, *pool.notes]))


def run_study(
    study: Study,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    client: Any = None,
    output: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Outcome:
    """Make all runs of a study.

    `workers` local processes are used (1: this process, without Dask); by default one per processor where the first
    runs, made in this process, show that it pays. `scheduler` is the address of a Dask cluster, `client` a
    `distributed.Client` that is there already. Rows go to `output` as they come (`rows.py`); with `resume` those that
    are there already are not made again. Ctrl-C ends a study with what it has.
    """
    if workers is not None and workers < 1:
        raise ConfigurationError(f"the number of workers must be at least 1, not {workers}.")
    if sum(choice is not None for choice in (workers, scheduler, client)) > 1:
        raise ConfigurationError(
            "runs are made on local workers or on a cluster; give workers, or scheduler, or client."
        )
    if resume and output is None:
        raise ConfigurationError("a study is resumed from its output file; name it.")
    begin = time.perf_counter()
    with Runner(study) as runner:
        columns = Columns(study.table.names, tuple(map(str, runner.measures)))
        _require_different(columns)
        document = describe(study, runner.recipe.nominal) | {"kind": "study", "columns": list(columns.measures)}
        document["fingerprint"] = fingerprint(document)
        journal = Journal(None if output is None else Path(output), columns, document, resume=resume)
        try:
            done = journal.done
            left = [number for number in range(len(study.table)) if number not in done]
            pool = _pool(left, workers, scheduler, client)
            _evaluate(pool, runner, left, journal, _Progress(progress, len(done), len(study.table)))
            journal.finish()
        finally:
            journal.close()
    wall = time.perf_counter() - begin
    return Outcome(journal.table(), document, pool.workers, wall, len(done), tuple(pool.notes))


def _evaluate(pool: Pool, runner: Runner, left: Sequence[int], journal: Journal, progress: _Progress) -> None:
    def take(rows: Sequence[Row]) -> None:
        journal.add(rows)
        progress.add(rows)

    progress.add(())
    try:
        if left:
            pool.evaluate(runner, left, take)
    except (KeyboardInterrupt, Interrupted):
        kept = f" in '{journal.path}.partial'; --resume goes on from there" if journal.path else ""
        raise Interrupted(
            f"interrupted after {progress.done} of {progress.total} runs, which are kept{kept}."
        ) from None


def _pool(left: Sequence[int], workers: int | None, scheduler: str | None, client: Any) -> Pool:
    if client is not None or scheduler is not None:
        from cosimo.studies.cluster import Cluster

        return Cluster(client=client, scheduler=scheduler)
    count = min(workers or len(os.sched_getaffinity(0)), max(1, len(left)))
    if count == 1:
        return Here()
    if importlib.util.find_spec("distributed") is None:
        if workers is not None:
            raise ConfigurationError("several workers need Dask: pip install 'cosimo[cluster]', or use one worker.")
        return Here("made in one process: several workers need Dask (pip install 'cosimo[cluster]')")
    if workers is None:
        return Sensible(count)
    from cosimo.studies.cluster import Cluster

    return Cluster(workers=count)


class _Progress:
    """Counts rows and tells."""

    def __init__(self, tell: Progress | None, done: int, total: int) -> None:
        self._tell, self.done, self.total, self.failed = tell, done, total, 0

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.done += 1
            self.failed += row.status != "ran"
        if self._tell is not None:
            self._tell(Standing(self.done, self.total, self.failed))


def _require_different(columns: Columns) -> None:
    names = (RUN, STATUS, TRUST, MESSAGE, SECONDS, *columns.parameters, *columns.measures)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"a parameter must not be called like another column: {', '.join(twice)}.")
