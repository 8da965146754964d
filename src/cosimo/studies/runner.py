"""Runs of a study, one point at a time, in one thread: build, run, measure; whatever fails becomes a row that says so.

FMUs are kept between runs and reset (`units/fmi/instance.py`). The first run on reset FMUs is made a second time on
fresh ones, and every signal at every communication point must agree to the bit; where it does not, nothing is reused.
A unit error on a reset FMU counts only when a fresh one gives it too. Long runs gain nothing: they use fresh FMUs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, Interrupted, NonFiniteError, UnitCrashed, UnitError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.core.timing import timeline
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.results import read_result
from cosimo.studies.rows import MESSAGE, RUN, SECONDS, STATUS, TRUST, Columns, Journal, Outcome, Row, Status
from cosimo.studies.study import ERRORS, SIGNALS, Recipe, Study, describe, find_measures, fingerprint
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.instance import Reserve

if TYPE_CHECKING:
    from cosimo.analysis.verdict import Verdict
    from cosimo.studies.pools import RunPool


LONG = 1.0
"""Seconds from which a run counts as long: instantiating takes milliseconds."""
ONE_THREAD = EngineOptions(parallel=False, threads=1, interval=0.0)
"""Studies use the processors by making runs side by side."""


Take = Callable[[Sequence[Row]], None]
"""Takes over rows as they come."""


class Runner:
    """Makes the runs of one study; close it to release the FMUs."""

    def __init__(self, study: Study) -> None:
        self.reserve = Reserve()
        self.recipe = Recipe(study, self.reserve)
        self.study = self.recipe.decide_isolation()
        self.measures = find_measures(study.measures, self.recipe.nominal)
        self.note = ""
        self._tested = False
        outputs = set(self.recipe.nominal.outputs)
        inputs = any(measure.signal and measure.signal not in outputs for measure in self.measures)
        self._record: Literal["outputs", "all"] = "all" if inputs else "outputs"
        self._given = self._read_reference()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.reserve.close()

    def evaluate(self, number: int) -> Row:
        """The run at one point."""
        values = self._values(number)
        begin = time.perf_counter()

        def row(status: Status, trust: str, message: str, measured: Sequence[float | None] = ()) -> Row:
            found = tuple(measured) or (None,) * len(self.measures)
            return Row(number, values, status, trust, message, time.perf_counter() - begin, found)

        try:
            system, master = self.recipe.build(values)
            result = self._run(system, master)
            more = len(result.warnings) - 1
            warned = f"{result.warnings[0]}{f' (and {more} more)' if more else ''}" if result.warnings else ""
            if (stopped := result.info.get("stopped_at")) is not None:
                return row("diverged", "no", f"grows without bound; stopped at t = {stopped:g}", self._diverged())
            verdict = self._judge(system, master)
            trust = verdict.trust if verdict is not None else "no" if _grows(result) else "not assessed"
            return row("ran", trust, warned, self._measure(system, master, result, verdict))
        except Interrupted:
            raise
        except NonFiniteError as error:
            return row("diverged", "no", str(error), self._diverged())
        except UnitCrashed as error:
            return row("crashed", "no", str(error))
        except Exception as error:  # the other points are not concerned
            return row(
                "failed", "no", str(error) if isinstance(error, CosimoError) else f"{type(error).__name__}: {error}"
            )

    def crashed(self, number: int, why: str = "") -> Row:
        """The row of a run that never came back."""
        message = why or "the run crashed its process every time"
        return Row(number, self._values(number), "crashed", "no", message, 0.0, (None,) * len(self.measures))

    def _values(self, number: int) -> tuple[float, ...]:
        return tuple(self.study.table.values[number].tolist())

    # ---- running -------------------------------------------------------------------------------------------------

    def _run(self, system: System, master: Master) -> Result:
        before, begin = self.reserve.reused, time.perf_counter()
        try:
            result = self._once(system, master)
        except UnitError:
            if self.reserve.reused == before:
                raise
            fresh = self._fresh(system, master)
            self._distrust("a unit gave an error")
            return fresh
        if not self._tested and self.reserve.reused > before:
            self._tested = True
            fresh = self._fresh(system, master)
            if (different := _difference(result, fresh)) is not None:
                self._distrust(f"{different} differed")
            return fresh
        if time.perf_counter() - begin > LONG:
            self.reserve.distrust()
        return result

    def _once(self, system: System, master: Master) -> Result:
        return run(
            system,
            master,
            start=self.recipe.start,
            stop=self.recipe.stop,
            record=self._record,
            engine=ONE_THREAD,
            stop_on_divergence=self.study.stop_on_divergence,
        )

    def _fresh(self, system: System, master: Master) -> Result:
        self.reserve.flush()
        return self._once(system, master)

    def _distrust(self, why: str) -> None:
        self.reserve.distrust()
        self.note = (
            f"after a reset {why} where fresh FMUs gave another result; FMUs are instantiated again for every run"
        )

    # ---- measuring -----------------------------------------------------------------------------------------------

    def _judge(self, system: System, master: Master) -> Verdict | None:
        """The verdict at this point: made at once where equations are known, otherwise as it is remembered."""
        from cosimo.analysis.analysing import analyse
        from cosimo.analysis.memory import Memory
        from cosimo.analysis.recommendation import FEW

        horizon, target = self.recipe.stop - self.recipe.start, self.study.target
        units = system.units.values()
        if all(unit.linear() is not None for unit in units):
            if sum(len(unit.initial_state) for unit in units) > FEW:
                return None
            try:
                return analyse(system, master, horizon=horizon, start=self.recipe.start, target=target, details=False)
            except CosimoError:
                return None
        return Memory().recall(system, master, self.recipe.start, horizon, target)

    def _measure(self, system: System, master: Master, result: Result, verdict: Verdict | None) -> list[float | None]:
        kinds = {measure.kind for measure in self.measures}
        errors = self._errors(system, master, result) if kinds & set(ERRORS) else {}
        radius = verdict.spectral_radius if verdict is not None else None
        stable = self._stable(system, master, result, verdict) if "stable" in kinds else None
        coupling = {"radius": radius, "stable": None if stable is None else float(stable)}

        def number(kind: str, signal: str) -> float | None:
            if not signal:
                return coupling[kind]
            value = errors[kind].get(signal, np.nan) if kind in ERRORS else SIGNALS[kind](result[signal])
            return value if np.isfinite(value) else None

        return [number(measure.kind, measure.signal) for measure in self.measures]

    def _diverged(self) -> list[float | None]:
        """All that can be said of a run that diverged."""
        return [0.0 if measure.kind == "stable" else None for measure in self.measures]

    def _stable(self, system: System, master: Master, result: Result, verdict: Verdict | None) -> bool | None:
        """As the verdict says; without one as this run shows beside finer ones, and None where it cannot tell."""
        if verdict is not None and verdict.stable is not None:
            return verdict.stable
        if _grows(result):
            return False
        from cosimo.analysis.pilots import bounded
        from cosimo.studies.trials import reference

        try:
            wanted = reference(_alone(system), step=master.step, start=self.recipe.start, stop=self.recipe.stop)
        except ConfigurationError:
            return None
        rows = np.column_stack([result[name] for name in system.outputs])
        return bounded(rows, wanted.truth, None, grows=False)

    def _read_reference(self) -> Result | None:
        path = Path(self.study.reference)
        known = str(self.study.reference) in ("auto", "exact", "fine", "monolithic")
        if not any(measure.kind in ERRORS for measure in self.measures) or (known and not path.is_file()):
            return None
        given = read_result(path)
        for measure in self.measures:
            if measure.kind in ERRORS:
                given[measure.signal]
        return given

    def _errors(self, system: System, master: Master, result: Result) -> dict[str, dict[str, float]]:
        """Per kind and output: the error, and NRMS (tamellin2022, Eq. 42), against the true solution or a file."""
        # Not before it is needed: it takes a worker longer to load this than to make hundreds of runs.
        from cosimo.analysis.error_norms import nrms
        from cosimo.analysis.truth import Truth, output_errors
        from cosimo.studies.trials import reference

        kind, start, stop = str(self.study.reference), self.recipe.start, self.recipe.stop
        if self._given is not None:
            names = [name for name in system.outputs if name in self._given.names]
            rows = np.column_stack([_at(result.time, self._given, name) for name in names])
            truth = Truth(rows, np.abs(rows).max(axis=0))
        else:
            found = reference(_alone(system), step=master.step, start=start, stop=stop, kind=kind)
            truth, names = found.truth, list(system.outputs)
        if len(names) == len(system.outputs):
            ours = np.column_stack([result[name] for name in names])[: len(truth.rows)]
            cut = Truth(truth.rows[: len(ours)], truth.sizes, truth.own)
            errors = dict(output_errors(system, master, ours, cut, stop - start, "measured", start=start).outputs)
        else:
            size = np.where(truth.sizes > 0, truth.sizes, np.nan)
            errors = {
                n: float(np.abs(result[n][: len(truth.rows)] - truth.rows[:, i]).max() / size[i])
                for i, n in enumerate(names)
            }
        clocks = timeline(system, master).clocks
        spread = {}
        for place, name in enumerate(names):
            late = int(clocks[system.output(name).unit].read < 1)
            ours, theirs = result[name][late:], truth.rows[:, place]
            count = min(len(ours), len(theirs))
            spread[name] = nrms(ours[:count], theirs[:count])
        return {"error": errors, "nrms": spread}


def _grows(result: Result) -> bool:
    from cosimo.analysis.pilot_runs import seen_to_grow

    return seen_to_grow(result)


def _alone(system: System) -> System:
    """The system with FMUs of its own: what others are measured against must not depend on how they were reset."""
    units = {name: unit.with_values({}) if isinstance(unit, Fmu) else unit for name, unit in system.units.items()}
    return System(units, system.connections, inputs=system.inputs, name=system.name)


def _at(times: Array, wanted: Result, name: str) -> Array:
    """The reference at the communication points; in between linear, and no further than it goes."""
    if np.array_equal(times, wanted.time[: len(times)]):
        return wanted[name][: len(times)]
    inside = times[times <= wanted.time[-1]]
    found: Array = np.interp(inside, wanted.time, wanted[name])
    return found


def _difference(one: Result, other: Result) -> str | None:
    """The first signal that is not the same to the bit; None where all are."""
    if one.values.shape != other.values.shape:
        return "the number of macro steps"
    same = one.values.view(np.int64) == other.values.view(np.int64)
    return None if same.all() else f"'{one.names[int(np.flatnonzero(~same.all(axis=0))[0])]}'"


# ---- all runs of a study ---------------------------------------------------------------------------------------------


class StudyStanding(NamedTuple):
    """How far a study is."""

    done: int
    total: int
    failed: int


Progress = Callable[[StudyStanding], None]


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

    `workers` local processes are used (1: none but this one, or a copy of it, without Dask); by default one per
    processor where the first runs, made here, show that it pays. `scheduler` is the address of a Dask cluster,
    `client` a `distributed.Client` that is there already. Rows go to `output` as they come (`rows.py`); with `resume`
    those that are there already are not made again. Ctrl-C ends a study with what it has.
    """
    if workers is not None and workers < 1:
        raise ConfigurationError(f"the number of workers must be at least 1, not {workers}.")
    if sum(choice is not None for choice in (workers, scheduler, client)) > 1:
        raise ConfigurationError(
            "a study runs on local workers or on a cluster; give only one of workers, scheduler and client."
        )
    if resume and output is None:
        raise ConfigurationError("resuming a study needs its output file; name it.")
    from cosimo.studies.pools import choose_pool

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
            pool = choose_pool(left, workers, scheduler, client)
            _evaluate(pool, runner, left, journal, progress)
            journal.finish()
        finally:
            journal.close()
    wall = time.perf_counter() - begin
    return Outcome(journal.table(), document, pool.workers, wall, len(done), tuple(pool.notes))


def _evaluate(pool: RunPool, runner: Runner, left: Sequence[int], journal: Journal, tell: Progress | None) -> None:
    total = len(runner.study.table)
    now = StudyStanding(total - len(left), total, 0)

    def take(rows: Sequence[Row]) -> None:
        nonlocal now
        if rows:
            journal.add(rows)
        now = StudyStanding(now.done + len(rows), total, now.failed + sum(row.status != "ran" for row in rows))
        if tell is not None:
            tell(now)

    take(())
    try:
        if left:
            pool.evaluate(runner, left, take)
    except (KeyboardInterrupt, Interrupted):
        kept = f" in '{journal.path}.partial'; continue with --resume" if journal.path else ""
        raise Interrupted(f"interrupted after {now.done} of {total} runs, which are kept{kept}.") from None


def _require_different(columns: Columns) -> None:
    names = (RUN, STATUS, TRUST, MESSAGE, SECONDS, *columns.parameters, *columns.measures)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"a parameter cannot have the name of another column: {', '.join(twice)}.")
