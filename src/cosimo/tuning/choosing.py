"""Choosing the master of a system: `tune` searches a space and returns the front with a recommendation.

1. The search evaluates candidates in batches, with the error at some communication points and robustness screened.
2. What stands for the front is evaluated again, in full: error at every communication point with everything that
   drives the system, robustness as the relative radius. Points that others then dominate are dropped.
3. One point is recommended, by a rule that is stated.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any

from cosimo.core.system import System
from cosimo.tuning.costing import side_by_side
from cosimo.tuning.finishing import Finish
from cosimo.tuning.goals import find_goals
from cosimo.tuning.memory import Memory, fingerprint
from cosimo.tuning.objectives import Cost
from cosimo.tuning.pool import Pool
from cosimo.tuning.result import Tuned, Wanted
from cosimo.tuning.scene import scene
from cosimo.tuning.search import Method, Options, Report, Search
from cosimo.tuning.space import Space
from cosimo.tuning.stand_in import needs_stand_in, stand_in


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
) -> Tuned:
    """The Pareto front of masters, and a recommended one.

    `space` says what is open and `objectives` what counts, among "error", "robustness", "cost" (the default),
    "radius" and "defect". At most `evaluations` candidates are tried; equal seeds give equal results. Errors are over
    `horizon` seconds from `start` on (default: ten periods of the slowest mode); `progress` gets a `Progress`.
    Units whose equations are not known (FMUs, Python units) are identified first; the result says how well.

    >>> from cosimo.problems import tank
    >>> best = tune(tank(), Space(steps=0.5, kinds=(0, 1)), evaluations=50, horizon=300.0)
    >>> print(best.chosen.words)
    Gauss–Seidel tank → controller, inputs extrapolated linearly
    """
    begin = time.perf_counter()
    space, settings, goals = space or Space(), settings or Settings(), find_goals(objectives)
    found = None
    if needs_stand_in(system):
        fixed = max(space.given, default=None)
        found = stand_in(system, step=settings.identify_at or fixed, horizon=horizon, start=start)
    situation = found.scene if found else scene(system, horizon, start=start)
    linear = situation.system
    resolved = space.resolve(linear, fastest=situation.fastest, horizon=situation.horizon)
    if settings.cost.workers > 1:
        together = dict.fromkeys(side_by_side(linear, structure) for structure in resolved.structures)
        resolved = replace(resolved, structures=tuple(together))
    pool = Pool(situation, resolved, goals, cost=settings.cost, budget=space.budget, backend=settings.backend)
    options = Options(settings.method, evaluations, seed, settings.population)
    memory = _memory(settings.resume, linear, pool, space)
    search = Search(pool, options, report=progress, save=memory.save if memory else None)
    try:
        search.run()
    finally:
        # Also of a search that is interrupted.
        if memory:
            memory.save(pool, now=True)
    return Finish(pool, space, settings.wanted, settings.points, found).result(time.perf_counter() - begin)


def _memory(path: Path | None, system: System, pool: Pool, space: Space) -> Memory | None:
    if path is None:
        return None
    of = {
        "system": fingerprint(system),
        "space": json_ready(space),
        "structures": len(pool.space.structures),
        "steps": json_ready(pool.space.steps),
        "objectives": [goal.name for goal in pool.goals],
        "horizon": pool.scene.horizon,
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
