"""Choosing the master of a system: `tune` searches a space and returns the front with a recommendation.

1. The search evaluates candidates in batches, with the error at some communication points and robustness screened.
2. What stands for the front is evaluated again, in full: error at every communication point with everything that
   drives the system, robustness as the relative radius. Points that others then dominate are dropped.
3. One point is recommended, by a rule that is stated.
"""

from __future__ import annotations

import json
import math
import time
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.cost import Cost
from cosimo.analysis.error_norms import consistency
from cosimo.analysis.limits import orders
from cosimo.analysis.model import Model
from cosimo.analysis.pilots import Budget
from cosimo.analysis.recommendation import (
    HALVINGS,
    Point,
    Wanted,
    judge_point,
    master_cost,
    round_steps,
    usual_masters,
    usual_points,
)
from cosimo.analysis.truth import step_range
from cosimo.core.arguments import checked
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, IdentificationError, Interrupted, OutputError
from cosimo.core.formatting import MOST_ROBUST, counted, step_text
from cosimo.core.master import Master
from cosimo.core.storage import replacing
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.checkpoints.fingerprints import fingerprint
from cosimo.masters import gauss_seidel, jacobi, strang
from cosimo.masters.words import command_options, describe
from cosimo.tuning.evaluation import COLUMNS, CandidatePool, tuning_problem
from cosimo.tuning.goals import GOALS, Goal, find_goals, nondominated, thinned
from cosimo.tuning.search import MasterSearch, Report, Settings, require_method
from cosimo.tuning.space import Range, Space, side_by_side
from cosimo.tuning.tuned import Tuned, goal_values


@checked
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
    budget: Budget | None = None,
    model: Model | None = None,
) -> Tuned:
    """The Pareto front of masters, and a recommended one.

    `space` defines what is searched and `objectives` what is optimised, among "error", "robustness", "cost" (the
    default), "radius" and "defect". At most `evaluations` candidates are tried; equal seeds give equal results.
    Errors are over `horizon` seconds from `start` on (default: ten periods of the slowest mode); `progress` gets a
    `Progress`, or a `Standing` of pilot runs. The `present` master is kept if it meets the target and no other is 1.5
    × cheaper. Units whose equations are not known are identified first; where their models do not hold, the usual
    masters are run instead, within `budget` as of `analyse`. Ctrl-C raises `Interrupted`, whose `result` is what was
    found so far.

    >>> from cosimo.problems import tank
    >>> best = tune(tank(), Space(steps=0.5, kinds=(0, 1)), evaluations=50, horizon=300.0)
    >>> print(best.chosen.words)
    Gauss–Seidel tank → controller, linear extrapolation (hold1)
    """
    begin = time.perf_counter()
    space, settings, goals = space or Space(), settings or Settings(), find_goals(objectives)
    require_method(settings.method)
    step = settings.identify_at or max(space.given, default=None)
    model = model or Model(system, step=step, horizon=horizon, start=start, budget=budget, progress=progress)
    if not model.valid:
        with closing(model.pilots):
            return run_front(model, space, goals, settings.cost, settings.wanted, present)
    if settings.method == "auto" and settings.resume is None and too_many(model, space, goals):
        return large_front(model, space, goals, settings, evaluations, present)
    pool = _candidates(model, space, goals, settings)
    memory = SearchFile(settings.resume, pool, space) if settings.resume is not None else None
    search = MasterSearch(pool, settings, evaluations, seed, report=progress, save=memory.save if memory else None)
    try:
        stopped = not search.run_through()
    finally:
        if memory:
            memory.save(pool, now=True)
    found, stopped = _finish(pool, space, settings, present, stopped, time.perf_counter() - begin)
    if stopped:
        kept = f"the same search continues from '{settings.resume}'" if settings.resume else ""
        done = f"{found.evaluations} of {evaluations} candidates"
        raise _interrupted(found, done, kept or "use --resume FILE to keep the evaluations")
    return found


def _candidates(model: Model, space: Space, goals: tuple[Goal, ...], settings: Settings) -> CandidatePool:
    """What is searched: the masters of the space, with units side by side where the cost counts workers."""
    problem = tuning_problem(model)
    resolved = space.resolve(problem.system, fastest=problem.fastest, horizon=problem.horizon)
    if settings.cost.workers > 1:
        together = dict.fromkeys(side_by_side(problem.system, structure) for structure in resolved.structures)
        resolved = replace(resolved, structures=tuple(together))
    return CandidatePool(
        problem, resolved, goals, cost=settings.cost, max_cost=space.max_cost, backend=settings.backend
    )


def _finish(
    pool: CandidatePool, space: Space, settings: Settings, present: Master | None, stopped: bool, seconds: float
) -> tuple[Tuned, bool]:
    """The front evaluated in full, with few points where the user stopped the search, or does meanwhile; if so."""
    few = min(settings.points, FEW)
    try:
        points = few if stopped else settings.points
        return Finish(pool, space, settings.wanted, points, present).result(seconds), stopped
    except KeyboardInterrupt:
        if stopped:
            raise
        return Finish(pool, space, settings.wanted, few, present).result(seconds), True


def _interrupted(found: Tuned, done: str, kept: str) -> Interrupted:
    """The error of a search that was interrupted, with what it had found."""
    error = Interrupted(f"interrupted after {done}; {kept}.")
    error.result = found
    return error


def too_costly(most: float) -> ConfigurationError:
    """What is said where every master of a space costs more."""
    return ConfigurationError(
        f"no master in the space costs less than {most:g} per simulated second; allow longer steps, or a larger "
        f"--max-cost."
    )


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
    points, tried, stopped = list[Point](), 0, False
    try:
        for point in _measured(model, space, steps, cost):
            tried += 1
            points += [point] if math.isfinite(point.error) else []
        points += usual_points(model, wanted, cost, first) if space == Space() else []
    except KeyboardInterrupt:  # what was measured until then counts
        if not points:
            raise
        stopped = True
    if not tried:
        raise too_costly(space.max_cost or math.inf)
    if not points:
        raise ConfigurationError(f"no master could be measured: {model.doubt}; give a smaller --step-size.")
    known = _known_goals(goals)
    kept = nondominated(goal_values(points, known))
    here = judge_point(model, present, cost) if present is not None else None
    note = f"{model.doubt[:1].upper()}{model.doubt[1:]}: every point shown was run, and its error measured."
    found = Tuned.of(
        model,
        known,
        [point for point, keep in zip(points, kept, strict=True) if keep],
        here,
        wanted,
        evaluations=tried,
        seconds=time.perf_counter() - begin,
        notes=(*model.notes, note),
        values=np.array([[getattr(p, goal.name) for goal in known] for p in points]),
        priced=bool(cost.weights),
    )
    if stopped:
        raise _interrupted(found, f"measuring {tried} masters", "the best of these are shown")
    return found


def _known_goals(goals: tuple[Goal, ...]) -> tuple[Goal, ...]:
    """Of the goals those that every way of evaluation knows, at least one."""
    return tuple(goal for goal in goals if goal.name in ("error", "cost")) or (GOALS["error"], GOALS["cost"])


def _open_to(model: Model, space: Space, masters: Iterable[Master], cost: Cost) -> list[Master]:
    """The masters that the space is open to."""
    return [
        master
        for master in masters
        if master.name.partition("(")[0] in space.families
        and master.coupling.degree in space.kinds
        and master_cost(model, master, cost) <= (space.max_cost or math.inf)
    ]


def _measured(model: Model, space: Space, steps: Sequence[float], cost: Cost) -> Iterator[Point]:
    """The usual masters of the space at some steps, run; without an error where they could not be."""
    for step in steps:
        masters = _open_to(model, space, usual_masters(model.system, step), cost)
        model.pilots.ahead((master, parts) for master in masters for parts in (1, 2, 4))
        for master in masters:
            try:
                yield judge_point(model, master, cost)
            except CosimoError:
                yield Point(master, None)


# ---- large systems: few candidates, each by its sparse map -----------------------------------------------------------
# Batches of full maps, gains of every connection and permutations of units grow beyond all bounds with the number of
# units. Of many units the usual masters are tried instead, from the longest of round steps to shorter ones: the error
# of each by following the linear co-simulation, eigenvalues only where a candidate could be on the front.


MANY_UNITS, MANY_STATES = 8, 20
"""Beyond so many units or states, the usual masters are tried instead of a search."""
ACCURATE = 0.1
"""Part of the target error below which no shorter steps of a master are tried."""
BEHIND, TWICE = 3.0, 2
"""By what factor, and at how many steps in succession, an error lies above that of a master that costs no more, until
the master is given up."""


def too_many(model: Model, space: Space, goals: tuple[Goal, ...]) -> bool:
    """Whether the usual masters are tried instead of a search: of a large system, where the space leaves that open."""
    plain = Space()
    usual = replace(space, steps=None, max_cost=None, families=plain.families, kinds=plain.kinds) == plain
    named = {"error", "cost"} <= {goal.name for goal in goals} <= {"error", "robustness", "cost"}
    large = len(model.system.units) > MANY_UNITS or model.states > MANY_STATES
    return large and usual and named and bool(_tried_of(model, replace(space, max_cost=None), 1.0, Cost()))


def _tried_of(model: Model, space: Space, step: float, cost: Cost) -> list[Master]:
    """The usual masters, and the same with quadratic extrapolation where units take that, as far as space is open."""
    system, found = model.system, list(usual_masters(model.system, step))
    if any(unit.input_degree > 1 for unit in system.units.values()):
        found.append(jacobi(system, step, coupling=Hold(2)))
        for order in orders(system):
            found += [build(system, step, order=order, coupling=Hold(2)) for build in (gauss_seidel, strang)]
    return _open_to(model, space, found, cost)


def large_front(
    model: Model, space: Space, goals: tuple[Goal, ...], settings: Settings, evaluations: int, present: Master | None
) -> Tuned:
    """The usual masters of a large system at round steps, or at those of the space; see above."""
    begin, cost = time.perf_counter(), settings.cost
    steps = sorted(space.given, reverse=True)
    if not steps:
        speeds = np.abs(model.poles)
        within = step_range(float(speeds[speeds < model.instant].max(initial=0.0)), model.horizon)
        low, high = (space.steps.low, space.steps.high) if isinstance(space.steps, Range) else within
        steps = round_steps(low, high) or [high]
    tried, stopped = list[Point](), False
    try:
        for point in islice(_predicted(model, space, steps, settings), evaluations):
            tried.append(point)
    except KeyboardInterrupt:  # what was predicted until then counts
        if not tried:
            raise
        stopped = True
    if not tried:
        raise too_costly(space.max_cost or math.inf)
    known = _known_goals(goals)
    front, any_stable = _judged_front(model, tried, known, cost)
    families = ", ".join(dict.fromkeys(point.master.name.partition("(")[0] for point in tried))
    notes = [
        *model.notes,
        f"Of so many units ({len(model.system.units)}, with {model.states} states) the usual masters are tried "
        f"({families}) at steps from {step_text(min(p.step for p in tried))} to {step_text(steps[0])}, each until it "
        "is ten times as accurate as wanted, or clearly behind another. Gains, mixed couplings, other calling orders "
        "and robustness are not looked at.",
    ]
    if model.grows:
        notes.append("The coupled system itself is unstable, whatever the master: stability is not required.")
    elif not any_stable:
        notes.append("No stable master was found in this search space; all masters shown are unstable.")
    found = Tuned.of(
        model,
        known,
        front,
        judge_point(model, present, cost, robust=False) if present is not None else None,
        settings.wanted,
        evaluations=len(tried),
        seconds=time.perf_counter() - begin,
        notes=tuple(notes),
        values=np.array([[getattr(p, goal.name) for goal in known] for p in front]),
        priced=bool(cost.weights),
    )
    if stopped:
        raise _interrupted(found, f"{len(tried)} masters", "the best of these are shown")
    return found


def _predicted(model: Model, space: Space, steps: Sequence[float], settings: Settings) -> Iterator[Point]:
    """Masters with their errors and costs, from long steps to short ones; whether they are stable is not asked yet."""
    behind: dict[str, int] = {}
    done: set[str] = set()
    for step in steps:
        here: list[tuple[str, Point]] = []
        for master in _tried_of(model, space, step, settings.cost):
            kind = f"{master} {master.coupling}"
            if kind in done:
                continue
            try:
                errors = model.predict(master)
            except CosimoError:
                continue
            price = master_cost(model, master, settings.cost)
            here.append((kind, Point(master, None, errors, cost=price, system=model.system)))
            yield here[-1][1]
        for kind, point in here:
            least = min(other.error for _, other in here if other.cost <= point.cost * (1 + 1e-9))
            late = least < 1 and point.error > BEHIND * least
            behind[kind] = behind.get(kind, 0) + 1 if late else 0
            if behind[kind] >= TWICE or point.error < ACCURATE * settings.wanted.error:
                done.add(kind)


def _judged_front(
    model: Model, tried: Sequence[Point], goals: tuple[Goal, ...], cost: Cost
) -> tuple[list[Point], bool]:
    """The front of what is stable, and whether anything is: what is not makes room for what was behind it."""
    left = [point for point in tried if point.error <= 1] or list(tried)
    judged: dict[int, Point] = {}
    unstable: list[Point] = []
    while left:
        front = _best(left, goals)
        unknown = [point for point in front if id(point) not in judged]
        if not unknown:
            return [judged[id(point)] for point in front], True
        for point in unknown:
            found = judge_point(model, point.master, cost, robust=False, errors=point.errors)
            judged[id(point)] = found
            if found.stable is False and not model.grows:
                unstable.append(found)
                left = [other for other in left if other is not point]
    return _best(unstable, goals), False


def _best(points: Sequence[Point], goals: tuple[Goal, ...]) -> list[Point]:
    """The points that no other dominates."""
    return [point for point, keep in zip(points, nondominated(goal_values(points, goals)), strict=True) if keep]


# ---- what a search has evaluated, in a file, so that it can be resumed -----------------------------------------------


EVERY = 1.0
"""Seconds between two writings; a search that is killed loses no more than that."""
VERSION = 3


class SearchFile:
    """The file of one search, written while it goes on; what it knows already, the pool is given."""

    def __init__(self, path: Path, pool: CandidatePool, space: Space) -> None:
        system = pool.problem.system
        of = {
            "version": VERSION,
            "system": fingerprint(system, jacobi(system, 1.0), 0.0),
            "space": space,
            "structures": len(pool.space.structures),
            "steps": pool.space.steps,
            "objectives": [goal.name for goal in pool.goals],
            "horizon": pool.problem.horizon,
            "cost": pool.cost,
        }
        self.path, self.of = Path(path), json.dumps(of, sort_keys=True, default=repr)
        self._written, self._last = -1, 0.0
        if self.path.exists():
            self._recall(pool)

    def _recall(self, pool: CandidatePool) -> None:
        try:
            with np.load(self.path, allow_pickle=False) as file:
                of, rows, columns = str(file["of"]), file["rows"], file["columns"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
            raise ConfigurationError(f"'{self.path}' is not a search file: {error}.") from None
        if of != self.of:
            raise ConfigurationError(
                f"'{self.path}' belongs to another search (system, space, objectives or horizon differ); remove it, or "
                f"give another file."
            )
        pool.remember(rows, columns)

    def save(self, pool: CandidatePool, *, now: bool = False) -> None:
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


# ---- from what a search evaluated to the result: the points that stand for the front, in full ------------------------


FEW = 8
"""Points that stand for the front of a search that was interrupted: somebody waits for them."""
COMPENSATED = 10
"""Steps at which a compensation is designed."""
SPARE = 6
"""Candidates beyond those that stand for the front: the cheapest that seem good enough."""
SHELLS = 32
"""Changes of the units up to `MOST_ROBUST` that are tried, evenly spaced by their logarithm."""
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""First digits of steps at which units are identified anew: points that share a step share the identification."""
THREE_DIGITS = tuple(number / 100 for number in range(100, 1000))


def _round_down(step: float, firsts: Sequence[float]) -> float:
    """The next smaller number that begins with one of these first digits."""
    size = 10.0 ** math.floor(math.log10(step))
    return float(f"{max(d for d in firsts if d <= step / size * (1 + 1e-12)) * size:.3g}")


class Finish:
    """From what was evaluated to the result; `present` is the master in use, judged beside the others."""

    def __init__(
        self, pool: CandidatePool, space: Space, wanted: Wanted, points: int, present: Master | None = None
    ) -> None:
        self.pool, self.space, self.wanted, self.most, self.master = pool, space, wanted, points, present
        self.problem, self.resolved, self.model = pool.problem, pool.space, pool.problem.model
        self.anew = not (self.model.base is not None and self.model.base.exact)
        self.values = np.zeros((0, len(pool.goals)))
        self.notes = [*self.model.notes, *self.resolved.notes]
        if self.anew:
            self.notes.append(
                "Solvers of units depend on the macro step: the search converts maps from "
                f"{self.model.local.step:.3g} s, and the points shown are identified again at their own steps."
            )
        names = {goal.name for goal in pool.goals}
        self.robust = "robustness" in names
        # What is shown is what is used; only an optimum of ρ or δ needs all its digits.
        self.rounded = not names & {"radius", "defect"}

    def result(self, seconds: float) -> Tuned:
        """The front, best first goal first; `seconds` were spent before."""
        begin = time.perf_counter()
        points = self._points()
        if self.space.compensation:
            points += self._compensated()
        names = {goal.name for goal in self.pool.goals}
        allowed = [p for p in points if p.stable or self.problem.grows]
        allowed = [p for p in allowed if "error" not in names or p.error <= 1] or allowed
        if self.problem.grows:
            self.notes.append("The coupled system itself is unstable, whatever the master: stability is not required.")
        elif not allowed:
            self.notes.append("No stable master was found in this search space; all masters shown are unstable.")
        points = allowed or points
        points = [p for p, keep in zip(points, nondominated(goal_values(points, self.pool.goals)), strict=True) if keep]
        if self.problem.worst_case and not self.problem.left_out:
            self.notes.append(
                "The system is at rest and has no external inputs: errors are those of the worst initial state."
            )
        if self.problem.left_out:
            self.notes.append("The search ignores time-varying external inputs; the errors shown include them.")
        return Tuned.of(
            self.model,
            self.pool.goals,
            points,
            self._present(),
            self.wanted,
            evaluations=self.pool.count,
            seconds=seconds + time.perf_counter() - begin,
            notes=tuple(self.notes),
            values=self.values,
            priced=bool(self.pool.cost.weights),
        )

    def _present(self) -> Point | None:
        if self.master is None:
            return None
        try:
            return judge_point(self.model, self.master, self.pool.cost, robust=False)
        except CosimoError:
            return None

    def _points(self) -> list[Point]:
        """The points that represent the front, evaluated in full, and the usual masters that are good enough."""
        rows, columns = self.pool.rows, self.pool.columns
        violation = self.pool.violation(columns)
        good = violation == 0
        if not good.any():
            # Nothing is allowed: what comes nearest to it.
            good = violation <= np.quantile(violation, 0.1)
            if self.space.max_cost is not None and (columns[:, COLUMNS.index("cost")] > self.space.max_cost).all():
                raise too_costly(self.space.max_cost)
        rows, columns = rows[good], columns[good]
        values = self.pool.scaled(columns)
        best = nondominated(values)
        rows, columns, values = rows[best], columns[best], values[best]
        self.values = columns[:, [COLUMNS.index(goal.name) for goal in self.pool.goals]]
        chosen = list(dict.fromkeys([*thinned(values, self.most), *self._spare(columns)]))
        return self._tried([*map(self._master, rows[chosen]), *self._usual()])

    def _usual(self) -> list[Master]:
        """What `analyse` would recommend, where the space is open to it: so that it never knows better."""
        if self.space != Space() or not {"error", "robustness", "cost"} <= {goal.name for goal in self.pool.goals}:
            return []
        return [p.master for p in usual_points(self.model, self.wanted, self.pool.cost, self.master)]

    def _tried(self, masters: list[Master]) -> list[Point]:
        """The points, one of those with the same options; where a unit could not be identified at the step, none."""
        found, refusals = dict[str, Point](), list[str]()
        for master in masters:
            options = command_options(master, self.model.system)
            try:
                if options not in found:
                    found[options] = self._judged(master)
            except IdentificationError as error:
                refusals.append(str(error))
        if refusals:
            self.notes.append(f"{counted(len(refusals), 'point')} of the front left out: {refusals[0]}")
        if masters and not found:
            raise ConfigurationError(f"no point of the front could be evaluated: {refusals[0]}")
        return list(found.values())

    def _spare(self, columns: Array) -> list[int]:
        """The cheapest that seem good enough: one of them will be recommended."""
        error, margin, cost = (columns[:, COLUMNS.index(name)] for name in ("error", "robustness", "cost"))
        if np.isnan(error).all() or np.isnan(cost).all():
            return []
        fine = error <= 0.97 * self.wanted.error
        if self.robust:
            fine &= margin >= self.wanted.robustness
        places = np.flatnonzero(fine)
        return [int(i) for i in places[cost[places].argsort(kind="stable")][:SPARE]]

    def _master(self, row: Array) -> Master:
        structure = self.resolved.structures[int(self.resolved.structure_of(row[None])[0])]
        step = float(self.resolved.steps_of(row[None])[0])
        gains = {target: float(gain[0]) for target, gain in self.resolved.gains_of(row[None], structure).items()}
        if isinstance(self.resolved.steps, Range) and (self.rounded or self.anew):
            step = max(_round_down(step, ROUND if self.anew else THREE_DIGITS), self.resolved.steps.low)
        gains = {target: round(gain, 3) if self.rounded else gain for target, gain in gains.items()}
        return structure.without_idle(gains).master(self.model.system, step, gains)

    def _judged(self, master: Master) -> Point:
        point = judge_point(self.model, master, self.pool.cost, robust=self.robust, limit=MOST_ROBUST, shells=SHELLS)
        if any(goal.name == "defect" for goal in self.pool.goals):
            linear = LinearSystem(self.model.at(master.step), master)
            point = replace(point, defect=float(consistency(linear, k=2, norm=2)))
        return replace(point, cheaper=self._cheaper(point.error, point.cost))

    def _cheaper(self, error: float, cost: float) -> float:
        """How many times cheaper than plain Jacobi at the same error, by its candidates: between them, and up to a
        decade beyond the most accurate one by the slope of the last two (its error is of first order).
        """
        costs, errors = self._plain
        if len(errors) < 2 or not 0.1 * errors[0] <= error <= errors[-1]:
            return float("nan")
        e, c = np.log(errors), np.log(costs)
        beyond = min(0.0, float(np.log(error) - e[0])) * (c[1] - c[0]) / (e[1] - e[0])
        return float(np.exp(np.interp(np.log(error), e, c) + beyond) / cost)

    @cached_property
    def _plain(self) -> tuple[Array, Array]:
        """Costs and errors of stable plain Jacobi masters, most accurate first, without those that others beat."""
        plain = [
            i
            for i, s in enumerate(self.resolved.structures)
            if s.family == "jacobi" and all(kind == 0 for _, kind in s.kinds)
        ]
        columns = self.pool.columns[np.isin(self.resolved.structure_of(self.pool.rows), plain)]
        error, cost = columns[:, COLUMNS.index("error")], columns[:, COLUMNS.index("cost")]
        good = (columns[:, 0] == 1) & np.isfinite(error) & (error > 0) & np.isfinite(cost)
        pairs = np.column_stack([error[good], cost[good]])
        pairs = pairs[nondominated(pairs)] if len(pairs) else pairs
        pairs = pairs[pairs[:, 0].argsort()]
        return pairs[:, 1], pairs[:, 0]

    def _compensated(self) -> list[Point]:
        """Jacobi corrected by `compensate`, where there is a design that follows the target.

        That is "exact", or the converged iteration where units were identified.
        """
        from cosimo.compensation import compensate

        steps = self.resolved.steps
        tried = np.geomspace(steps.low, steps.high, COMPENSATED).tolist() if isinstance(steps, Range) else list(steps)
        found, refusal = [], ""
        for step in tried:
            try:
                plain = jacobi(self.model.system, step)
                target: Any = "exact" if self.model.known else "converged"
                corrected = compensate(self.model.system, plain, target=target, model=self.model)
                if not corrected.stable or corrected.refusal:
                    refusal = corrected.refusal
                    continue
                point = self._judged(corrected.master)
            except CosimoError as error:
                refusal = str(error)
                continue
            if point.error <= 1 and point.cost <= (self.space.max_cost or math.inf):
                found.append(point)
        if not found:
            self.notes.append(f"No compensation is on the front: {refusal or 'no design is stable.'}")
        return found
