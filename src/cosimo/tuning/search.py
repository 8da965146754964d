"""Searching a space: a grid, then on request NSGA-II or NSGA-III (pymoo), then local search around the front.

Everything is counted in evaluations of different candidates. A search is a function of its seed alone: resuming means
to go through it again with the evaluations that a file remembers, which are not made twice, so that an interrupted
search ends as if it had never been interrupted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from cosimo.analysis.cost import Cost
from cosimo.analysis.pilots import Standing
from cosimo.analysis.recommendation import Wanted
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.tuning.evaluation import COST, ERROR, CandidatePool
from cosimo.tuning.goals import hypervolume, nondominated
from cosimo.tuning.space import Range, Resolved

Method = Literal["auto", "nsga2", "nsga3", "grid"]
METHODS = ("auto", "nsga2", "nsga3", "grid")
GRID_SHARE, REFINE_SHARE = 0.35, 0.2
"""Parts of the evaluations that the first grid and the last local search may take."""
POPULATION = 100
REACH = 0.02
"""How far from a point of the front the local search begins to look, as part of a range."""
FAR = 0.3
"""The same where no generations came before it."""
BEYOND = 0.2
"""How far beyond another point of the front the local search looks, as part of the way to it."""
AT_ONCE = 1000
"""Candidates of a grid that are evaluated between two reports."""
DESCENT = 400
"""Evaluations of one Nelder–Mead search at most."""
PAUSE = 0.2
"""Seconds between two reports at least."""
SPARING = 10
"""The same in times of a report: the hypervolume of many points in four objectives takes a while."""
OUTER = 1.1
"""The point that hypervolumes are measured from lies this factor beyond the worst of the first front."""


@dataclass(frozen=True)
class Progress:
    """Where a search stands: evaluations made and allowed, points on the front, and the hypervolume of the front.

    The hypervolume is in the scaled goals (decades of error and cost), from a point just beyond the first front.
    `error` and `step` (in s) are of the best so far: the cheapest within the target, else the most accurate; NaN where
    errors are not asked for.
    """

    stage: str
    evaluations: int
    allowed: int
    front: int
    hypervolume: float
    error: float = math.nan
    step: float = math.nan


Report = Callable[[Progress | Standing], None]
"""Is told of the search, and of pilot runs where no model can be believed."""


@dataclass(frozen=True)
class Settings:
    """How to search and what counts: `method` ("auto": local search from a grid; "nsga2", "nsga3" with pymoo; "grid"),
    `cost` (weights of units, workers), what is `wanted` of the recommended point, at most how many `points` stand for
    the front, the `backend` of the batches ("numpy", "torch", "cupy" or "auto"), and a file to `resume` from and to
    keep. Units whose equations are not known are identified at the step `identify_at`, or near it (default: a fixed
    step, what FMUs suggest, or a thousandth of the horizon).
    """

    method: Method = "auto"
    population: int = POPULATION
    cost: Cost = field(default_factory=Cost)
    wanted: Wanted = field(default_factory=Wanted)
    points: int = 30
    backend: str = "numpy"
    resume: Path | None = None
    identify_at: float | None = None


def require_method(method: str) -> None:
    """Refuse a search that is not known, or whose library is not installed."""
    if method not in METHODS:
        raise UnknownNameError("search method", method, METHODS)
    if method.startswith("nsga"):
        try:
            import pymoo  # noqa: F401
        except ImportError:
            raise ConfigurationError(
                f"'{method}' needs pymoo: install cosimo with the extra 'tune', or search by 'auto'."
            ) from None


class MasterSearch:
    """One search; afterwards `pool` has all that was evaluated. `save` is called whenever something new is known."""

    def __init__(
        self,
        pool: CandidatePool,
        settings: Settings,
        evaluations: int,
        seed: int,
        *,
        report: Report | None = None,
        save: Callable[[CandidatePool], None] | None = None,
    ) -> None:
        if evaluations < 1 or settings.population < 4:
            raise ConfigurationError("a search needs at least one evaluation and a population of at least four.")
        self.pool, self.settings, self.allowed, self.seed = pool, settings, evaluations, seed
        self.report, self.save = report, save
        self._reference: Array | None = None
        self._next = -math.inf

    @property
    def left(self) -> int:
        """How many evaluations are still allowed."""
        return max(0, self.allowed - self.pool.count)

    def run_through(self) -> bool:
        """All stages, unless Ctrl-C ends them: whether it did not; what was evaluated until then counts."""
        try:
            self.run()
        except KeyboardInterrupt:
            if not self.pool.count:
                raise
            return False
        return True

    def run(self) -> None:
        """All stages; the grid alone where it is asked for, or nothing is continuous."""
        space, allowed = self.pool.space, self.allowed
        continuous = any(space.free(i) for i in range(len(space.structures)))
        complete = self.settings.method == "grid" or not continuous
        points = grid(space, allowed if complete else max(1, int(GRID_SHARE * allowed)))
        for first in range(0, len(points), AT_ONCE):
            self.evaluate(points[first : first + AT_ONCE], "grid")
        if complete:
            self._tell("grid", now=True)
            return
        refine = int(REFINE_SHARE * allowed)
        evolved = self.left > refine and self.settings.method.startswith("nsga")
        if evolved:
            evolve(self, self.left - refine)
        self.refine(REACH if evolved else FAR)
        self._tell("refine", now=True)

    def evaluate(self, rows: Array, stage: str) -> tuple[Array, Array]:
        """Scaled goals and violations of candidates, as far as evaluations are left (infinitely bad beyond)."""
        rows = self.pool.space.tidy(rows)
        values = np.full((len(rows), len(self.pool.goals)), np.inf)
        violation = np.full(len(rows), np.inf)
        allowed = self.pool.admit(rows, self.left)
        if allowed.any():
            columns = self.pool.evaluate(rows[allowed])
            values[allowed], violation[allowed] = self.pool.scaled(columns), self.pool.violation(columns)
        if self.save is not None:
            self.save(self.pool)
        self._tell(stage)
        return values, violation

    # The front so far.

    def front(self) -> tuple[Array, Array]:
        """Rows and scaled goals of what no other candidate dominates, among those that violate nothing."""
        columns = self.pool.columns
        good = self.pool.violation(columns) == 0
        rows, values = self.pool.rows[good], self.pool.scaled(columns[good])
        best = nondominated(values) if len(values) else np.zeros(0, dtype=bool)
        return rows[best], values[best]

    def best(self) -> tuple[float, float]:
        """Error and step of the cheapest candidate within the target, else of the most accurate; NaN without any."""
        columns = self.pool.columns
        places = np.flatnonzero((self.pool.violation(columns) == 0) & np.isfinite(columns[:, ERROR]))
        if not len(places):
            return math.nan, math.nan
        errors, costs = columns[places, ERROR], columns[places, COST]
        within = errors <= self.settings.wanted.error
        least = (
            np.where(within, costs, np.inf).argmin() if within.any() and np.isfinite(costs).any() else errors.argmin()
        )
        row = self.pool.rows[places[least]]
        return float(errors[least]), float(self.pool.space.steps_of(row[None])[0])

    def _tell(self, stage: str, *, now: bool = False) -> None:
        begin = time.monotonic()
        if self.report is None or (begin < self._next and not now):
            return
        _, values = self.front()
        if self._reference is None and len(values):
            span = np.ptp(values, axis=0)
            self._reference = values.max(axis=0) + (OUTER - 1) * np.where(span > 0, span, 1.0)
        volume = 0.0 if self._reference is None else hypervolume(values, self._reference)
        self.report(Progress(stage, self.pool.count, self.allowed, len(values), volume, *self.best()))
        self._next = time.monotonic() + max(PAUSE, SPARING * (time.monotonic() - begin))

    # Local search.

    def refine(self, reach: float = REACH) -> None:
        """First the best ρ and δ by Nelder–Mead (SciPy), then steps to all sides from all points of the front.

        The best error, robustness and cost lie at the ends of the space, or have no meaning without the others.
        """
        single = [number for number, goal in enumerate(self.pool.goals) if goal.name in ("radius", "defect")]
        share = self.left // 2
        for goal in single:
            rows, values = self.front()
            if len(rows):
                self._descend(rows[values[:, goal].argmin()], goal, min(DESCENT, share // len(single)))
        self._compass(reach)

    def _descend(self, start: Array, goal: int, evaluations: int) -> None:
        import scipy.optimize

        free = self.pool.space.free(int(self.pool.space.structure_of(start[None])[0]))
        if not free or evaluations < len(free) + 2:
            return

        def value(numbers: Array) -> float:
            row = start.copy()
            row[free] = numbers
            values, violation = self.evaluate(row[None], "refine")
            return float(values[0, goal] + 1e3 * violation[0])

        simplex = np.clip(start[free] + REACH * np.vstack([np.zeros(len(free)), np.eye(len(free))]), 0, 1)
        flat = (simplex[1:] == simplex[0]).all(axis=1)
        simplex[1:][flat] -= REACH * np.eye(len(free))[flat]
        options = {"maxfev": evaluations, "initial_simplex": simplex, "xatol": 1e-10, "fatol": 1e-12}
        bounds = [(0.0, 1.0)] * len(free)
        scipy.optimize.minimize(value, start[free], method="Nelder-Mead", bounds=bounds, options=options)

    def _compass(self, reach: float) -> None:
        """Along every free number up and down from every point of the front, and from each towards another one or a
        little beyond; shorter when nothing new is found."""
        space, random = self.pool.space, np.random.default_rng(self.seed)
        while self.left > 0 and reach > 1e-6:
            rows, before = self.front()
            share = random.uniform(-BEYOND, 1 + BEYOND, (len(rows), 1))
            crossed = np.clip(rows + share * (rows[random.permutation(len(rows))] - rows), 0, 1)
            crossed[:, 0] = rows[:, 0]
            moved = list(crossed)
            for row, number in zip(rows, space.structure_of(rows).tolist(), strict=True):
                for place in space.free(number):
                    for step in (reach, -reach):
                        other = row.copy()
                        other[place] = np.clip(row[place] + step, 0, 1)
                        moved.append(other)
            if not moved:
                return
            count = self.pool.count
            # With few evaluations left, every point of the front gets its turn.
            self.evaluate(np.array(moved)[random.permutation(len(moved))], "refine")
            _, after = self.front()
            if self.pool.count == count or (len(after) == len(before) and (after == before).all()):
                reach /= 2
            else:
                reach *= 0.7


def grid(space: Resolved, most: int) -> Array:
    """A grid of at most `most` candidates: every structure, evenly spaced steps, and evenly spaced gains.

    Structures with gains get more points than those without. Where not even one point per structure is allowed, as many
    structures as there may be, spread over the list.
    """
    count = len(space.structures)
    if most < count:
        chosen = np.unique(np.linspace(0, count - 1, most).astype(int)).tolist()
        return np.concatenate([_points(space, number, 1) for number in chosen])
    weights = np.array([1.0 + 2 * len(structure.targets) for structure in space.structures])
    shares = np.maximum(1, np.floor(most * weights / weights.sum()).astype(int))
    while shares.sum() > most:
        shares[shares.argmax()] -= 1
    return np.concatenate([_points(space, number, share) for number, share in enumerate(shares.tolist())])


def _points(space: Resolved, number: int, most: int) -> Array:
    """At most `most` points of one structure: as many in each gain, the rest for the step."""
    gains = [2 + space.targets.index(target) for target in space.structures[number].targets]
    choices = space.steps if not isinstance(space.steps, Range) else None
    fixed = len(choices) if choices is not None else (1 if space.steps.low == space.steps.high else None)  # type: ignore[union-attr]
    if fixed is None:
        # The step matters more than each gain: four times as many points.
        per = max(1, int((most / 4) ** (1 / (1 + len(gains))))) if gains else 1
        steps = max(1, most // per ** len(gains))
    else:
        steps = min(fixed, most)
        per = max(1, int((most / steps) ** (1 / len(gains)) + 1e-9)) if gains else 1
    axis = (np.arange(steps) + 0.5) / steps if choices is not None else _axis(steps)
    if per == 1:  # also of more gains than a mesh may have axes
        mesh = np.column_stack([axis, *([np.full(len(axis), 0.5)] * len(gains))])
    else:
        axes = [axis, *([_axis(per)] * len(gains))]
        mesh = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=1)
    rows = np.zeros((len(mesh), space.width))
    rows[:, 0] = space.place(number)
    rows[:, [1, *gains]] = mesh
    return rows


def _axis(count: int) -> Array:
    """Evenly spaced in [0, 1] with both ends; the middle if there is only one."""
    return np.linspace(0, 1, count) if count > 1 else np.full(1, 0.5)


# ---- NSGA-II (Deb and others, 2002) and NSGA-III (Deb and Jain, 2014) by pymoo, on batches ---------------------------
# pymoo is asked for candidates and told their values. NSGA-II keeps of equally good candidates those in the emptiest
# places of the front; with more objectives ever more of them are equally good, and NSGA-III keeps those nearest to
# evenly spread directions instead. Real numbers cross by simulated binary crossover and mutate polynomially. The number
# that names the structure is none: parents swap it, and a mutation draws another one.


OTHER_STRUCTURE = 0.1
"""How often a mutation draws another structure."""
FRUITLESS = 20
"""After so many generations in a row without a new candidate there is nothing left to find."""


def evolve(search: MasterSearch, evaluations: int) -> None:
    """Generations from all that is known, until `evaluations` more were made."""
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.algorithms.moo.nsga3 import NSGA3
    from pymoo.core.population import Population
    from pymoo.core.problem import Problem
    from pymoo.core.termination import NoTermination

    pool, space = search.pool, search.pool.space
    problem = Problem(n_var=space.width, n_obj=len(pool.goals), n_ieq_constr=1, xl=0.0, xu=1.0)
    goals, population, spread = len(pool.goals), search.settings.population, search.settings.method == "nsga3"
    if spread and goals < 2:
        raise ConfigurationError("NSGA-III needs two objectives or more; search by 'nsga2' for one.")
    method = partial(NSGA3, directions(goals, population)) if spread else NSGA2
    algorithm = method(
        pop_size=population,
        # The grid: pymoo asks for it first, and gets its values without new evaluations.
        sampling=Population.new("X", pool.rows),
        eliminate_duplicates=True,
        **_operators(len(space.structures)),
    )
    algorithm.setup(problem, termination=NoTermination(), seed=search.seed, verbose=False)
    until, fruitless = pool.count + evaluations, -1
    while pool.count < until and fruitless < FRUITLESS:
        before = pool.count
        asked = algorithm.ask()
        if asked is None or not len(asked):
            break
        rows = space.tidy(asked.get("X"))
        values, violation = search.evaluate(rows, "NSGA-III" if spread else "NSGA-II")
        asked.set("X", rows)
        asked.set("F", np.where(np.isfinite(values), values, 1e6))
        asked.set("G", np.where(np.isfinite(violation), violation, 1e6)[:, None])
        for individual in asked:
            individual.evaluated.update({"F", "G", "H"})
        algorithm.tell(infills=asked)
        fruitless = fruitless + 1 if pool.count == before else 0


def directions(goals: int, population: int) -> Any:
    """Evenly spread directions of NSGA-III (N, goals), no more than the population has members."""
    from pymoo.util.ref_dirs import get_reference_directions

    parts = 1
    while math.comb(parts + goals, goals - 1) <= population:
        parts += 1
    return get_reference_directions("das-dennis", goals, n_partitions=parts)


def _operators(structures: int) -> dict[str, Any]:
    """Crossover and mutation: the usual ones for numbers; for the structure a swap, and any other one."""
    from pymoo.core.crossover import Crossover
    from pymoo.core.mutation import Mutation
    from pymoo.operators.crossover.sbx import SBX
    from pymoo.operators.mutation.pm import PM

    crossed, mutated = SBX(eta=15, prob=0.9), PM(eta=20, prob=0.9)

    class _Crossed(Crossover):  # type: ignore[misc]
        def _do(self, problem: Any, X: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:
            found = crossed._do(problem, X, *args, random_state=random_state, **kwargs)
            swap = random_state.random(X.shape[1]) < 0.5
            found[:, :, 0] = np.where(swap, X[::-1, :, 0], X[:, :, 0])
            return found

    class _Mutated(Mutation):  # type: ignore[misc]
        def _do(self, problem: Any, X: Any, *args: Any, random_state: Any = None, **kwargs: Any) -> Any:
            found = mutated._do(problem, X, *args, random_state=random_state, **kwargs)
            other = random_state.random(len(X)) < OTHER_STRUCTURE
            drawn = (random_state.integers(structures, size=len(X)) + 0.5) / structures
            found[:, 0] = np.where(other, drawn, X[:, 0])
            return found

    return {"crossover": _Crossed(2, 2), "mutation": _Mutated()}
