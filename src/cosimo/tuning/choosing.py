"""Choosing the master of a system: `tune` searches a space and returns the front with a recommendation.

1. The search evaluates candidates in batches, with the error at some communication points and robustness screened.
2. What stands for the front is evaluated again, in full: error at every communication point with everything that
   drives the system, robustness as the relative radius. Points that others then dominate are dropped.
3. One point is recommended, by a rule that is stated.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import zipfile
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.analysis.model import Model
from cosimo.analysis.recommendation import HALVINGS, Point, Wanted, judge_point, usual_masters, usual_points
from cosimo.core.errors import ConfigurationError, CosimoError, OutputError
from cosimo.core.master import Master
from cosimo.core.storage import replacing
from cosimo.core.system import System
from cosimo.masters import gauss_seidel
from cosimo.masters.words import describe
from cosimo.tuning.evaluation import Pool
from cosimo.tuning.finishing import Finish
from cosimo.tuning.fronts import nondominated
from cosimo.tuning.goals import GOALS, Cost, Goal, find_goals
from cosimo.tuning.problem import tuning_problem
from cosimo.tuning.result import Tuned, goal_values
from cosimo.tuning.search import Method, Options, Report, Search
from cosimo.tuning.space import Space
from cosimo.tuning.structures import side_by_side


@dataclass(frozen=True)
class Settings:
    """How to search and what counts: `method` ("auto" and "nsga2", "nsga3", or "grid"), `cost` (weights of units,
    workers), what is `wanted` of the recommended point, at most how many `points` stand for the front, the `backend` of
    the batches ("numpy", "torch", "cupy" or "auto"), and a file to `resume` from and to keep. Units whose equations are
    not known are identified at the step `identify_at`, or near it (default: a fixed step, what FMUs suggest, or a
    thousandth of the horizon).
    """

    method: Method = "auto"
    population: int = 100
    cost: Cost = field(default_factory=Cost)
    wanted: Wanted = field(default_factory=Wanted)
    points: int = 30
    backend: str = "numpy"
    resume: Path | None = None
    identify_at: float | None = None


def tune(
    system: System,
    space: Space | None = None,
    objectives: Sequence[str] | None = None,
    *,
    seed: int = 0,
    evaluations: int = 2000,
    horizon: float | None = None,
    start: float = 0.0,
    settings: Settings | None = None,
    progress: Report | None = None,
    present: Master | None = None,
    model: Model | None = None,
) -> Tuned:
    """The Pareto front of masters, and a recommended one.

    `space` says what is open and `objectives` what counts, among "error", "robustness", "cost" (the default),
    "radius" and "defect". At most `evaluations` candidates are tried; equal seeds give equal results. Errors are over
    `horizon` seconds from `start` on (default: ten periods of the slowest mode); `progress` gets a `Progress`, or a
    `Standing` of pilot runs. The `present` master is kept if it meets the target and no other is 1.5 × cheaper. Units
    whose equations are not known are identified first; where their models do not hold, the usual masters are run
    instead.

    >>> from cosimo.problems import tank
    >>> best = tune(tank(), Space(steps=0.5, kinds=(0, 1)), evaluations=50, horizon=300.0)
    >>> print(best.chosen.words)
    Gauss–Seidel tank → controller (gauss-seidel), linear extrapolation (hold1)
    """
    begin = time.perf_counter()
    space, settings, goals = space or Space(), settings or Settings(), find_goals(objectives)
    step = settings.identify_at or max(space.given, default=None)
    model = model or Model(system, step=step, horizon=horizon, start=start, progress=progress)
    if not model.valid:
        with closing(model.pilots):
            return run_front(model, space, goals, settings.cost, settings.wanted, present)
    problem = tuning_problem(model)
    resolved = space.resolve(problem.system, fastest=problem.fastest, horizon=problem.horizon)
    if settings.cost.workers > 1:
        together = dict.fromkeys(side_by_side(problem.system, structure) for structure in resolved.structures)
        resolved = replace(resolved, structures=tuple(together))
    pool = Pool(problem, resolved, goals, cost=settings.cost, budget=space.budget, backend=settings.backend)
    options = Options(settings.method, evaluations, seed, settings.population)
    memory = _memory(settings.resume, problem.system, pool, space)
    search = Search(pool, options, report=progress, save=memory.save if memory else None)
    try:
        search.run()
    finally:
        # Also of a search that is interrupted.
        if memory:
            memory.save(pool, now=True)
    return Finish(pool, space, settings.wanted, settings.points, present).result(time.perf_counter() - begin)


def run_front(
    model: Model, space: Space, goals: tuple[Goal, ...], cost: Cost, wanted: Wanted, present: Master | None
) -> Tuned:
    """Where no model can be believed: the usual masters at halved steps, each run and measured."""
    begin = time.perf_counter()
    first = present or gauss_seidel(model.system, max(space.given, default=model.step))
    pilot = model.pilots.of(first)
    if pilot.errors is None:
        raise ConfigurationError(
            f"no master can be chosen: {model.doubt}, and runs of {describe(first)} do not converge ({pilot.reason}); "
            f"give a smaller --step-size or a shorter --stop-time."
        )
    steps = space.given or tuple(first.step / 2**halving for halving in range(HALVINGS))
    points, tried = list[Point](), 0
    for step in steps:
        masters = [
            master
            for master in usual_masters(model.system, step)
            if master.name.partition("(")[0] in space.families and master.coupling.degree in space.kinds
        ]
        model.pilots.ahead((master, parts) for master in masters for parts in (1, 2, 4))
        for master in masters:
            tried += 1
            with suppress(CosimoError):
                points.append(judge_point(model, master, cost))
    points = [point for point in points if point.errors is not None and math.isfinite(point.error)]
    points += usual_points(model, wanted, cost, first) if space == Space() else []
    if not points:
        raise ConfigurationError(f"no master could be measured: {model.doubt}; give a smaller --step-size.")
    known = [goal for goal in goals if goal.name in ("error", "cost")] or [GOALS["error"], GOALS["cost"]]
    kept = nondominated(goal_values(points, known))
    here = judge_point(model, present, cost) if present is not None else None
    note = f"{model.doubt[:1].upper()}{model.doubt[1:]}: every point shown was run, and its error measured."
    return Tuned.of(
        model,
        tuple(known),
        [point for point, keep in zip(points, kept, strict=True) if keep],
        here,
        wanted,
        evaluations=tried,
        seconds=time.perf_counter() - begin,
        notes=(*model.notes, note),
        values=np.array([[getattr(p, goal.name) for goal in known] for p in points]),
        priced=bool(cost.weights),
    )


def _memory(path: Path | None, system: System, pool: Pool, space: Space) -> Memory | None:
    if path is None:
        return None
    of = {
        "system": fingerprint(system),
        "space": json_ready(space),
        "structures": len(pool.space.structures),
        "steps": json_ready(pool.space.steps),
        "objectives": [goal.name for goal in pool.goals],
        "horizon": pool.problem.horizon,
        "cost": json_ready(pool.cost),
    }
    memory = Memory(Path(path), of)
    memory.recall(pool)
    return memory


def json_ready(value: Any) -> Any:
    """Plain data for a fingerprint."""
    if is_dataclass(value) and not isinstance(value, type):
        return json_ready(asdict(value))
    if isinstance(value, dict):
        return {str(key): json_ready(entry) for key, entry in sorted(value.items())}
    if isinstance(value, list | tuple):
        return [json_ready(entry) for entry in value]
    return value if isinstance(value, str | int | float | None) else repr(value)


# ---- what a search has evaluated, in a file, so that it can be resumed: NumPy arrays and a line that says of ---------


EVERY = 1.0
"""Seconds between two writings; a search that is killed loses no more than that."""
VERSION = 1


class Memory:
    """The file of one search, written while it goes on; `of` says which search it is."""

    def __init__(self, path: Path, of: dict[str, Any]) -> None:
        self.path, self.of = path, json.dumps({"version": VERSION, **of}, sort_keys=True)
        self._written, self._last = -1, 0.0

    def recall(self, pool: Pool) -> int:
        """Give the pool what the file knows; how many candidates that are, 0 if there is no file yet."""
        if not self.path.exists():
            return 0
        try:
            with np.load(self.path, allow_pickle=False) as file:
                of, rows, columns = str(file["of"]), file["rows"], file["columns"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
            raise ConfigurationError(f"'{self.path}' is not the file of a search: {error}.") from None
        if of != self.of:
            raise ConfigurationError(
                f"'{self.path}' belongs to another search (system, space, objectives or horizon differ); remove it, or "
                f"give another file."
            )
        pool.remember(rows, columns)
        return len(rows)

    def save(self, pool: Pool, *, now: bool = False) -> None:
        """Write all that is known, if there is more than before; seldom enough not to be felt."""
        if pool.count == self._written or not (now or time.monotonic() - self._last > EVERY):
            return
        rows, columns = pool.known
        try:
            with replacing(self.path) as new, new.open("wb") as file:
                np.savez(file, of=np.array(self.of), rows=rows, columns=columns)
        except OSError as error:
            raise OutputError(f"cannot write '{self.path}': {error}.") from None
        self._written, self._last = pool.count, time.monotonic()


def fingerprint(system: System) -> str:
    """A short text that differs when units, connections or anything else that a search depends on differ."""
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())

    for name, unit in system.units.items():
        model = unit.linear()
        add(name, unit.inputs, unit.outputs, sorted(unit.start.items()), unit.initial_state, unit.can_restore)
        if model is not None:
            one = unit.discrete(1.0)
            add(model.A, model.B, model.C, model.D, one.A, one.B, unit.input_degree)
    add([(c.source, c.target, c.gain, c.offset, c.convert) for c in system.connections])
    add(sorted((name, getattr(source, "value", "varies")) for name, source in system.inputs.items()))
    return digest.hexdigest()[:16]
