"""From what a search evaluated to the result: the points that stand for the front, in full, and the recommendation."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import cached_property

import numpy as np

from cosimo.algebra import LinearSystem
from cosimo.analysis.accuracy import consistency
from cosimo.analysis.recommendation import Point, Wanted, judge_point, usual_points
from cosimo.compensation import compensate
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, IdentificationError
from cosimo.core.formatting import MOST_ROBUST
from cosimo.core.master import Master
from cosimo.masters import jacobi
from cosimo.tuning.evaluation import COLUMNS, Pool
from cosimo.tuning.fronts import nondominated, thinned
from cosimo.tuning.result import Tuned, goal_values
from cosimo.tuning.space import Range, Space

COMPENSATED = 10
"""Steps at which a compensation is designed."""
SPARE = 6
"""Candidates beyond those that stand for the front: the cheapest that seem good enough."""
SHELLS = 32
"""Changes of the units up to `MOST_ROBUST` that are tried, evenly spaced by their logarithm."""
ROUND = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0)
"""First digits of steps at which units are identified anew: points that share a step share the identification."""


def _fewer_digits(step: float) -> float:
    """The next smaller number of three digits."""
    size = 10.0 ** (math.floor(math.log10(step)) - 2)
    return float(f"{math.floor(step / size * (1 + 1e-12)) * size:.3g}")


def _round(step: float) -> float:
    """The next smaller number with few first digits."""
    size = 10.0 ** math.floor(math.log10(step))
    return float(f"{max(d for d in ROUND if d <= step / size * (1 + 1e-12)) * size:.3g}")


class Finish:
    """From what was evaluated to the result; `present` is the master in use, judged beside the others."""

    def __init__(self, pool: Pool, space: Space, wanted: Wanted, points: int, present: Master | None = None) -> None:
        self.pool, self.space, self.wanted, self.most, self.master = pool, space, wanted, points, present
        self.problem, self.resolved, self.model = pool.problem, pool.space, pool.problem.model
        self.anew = not (self.model.base is not None and self.model.base.exact)
        self.values = np.zeros((0, len(pool.goals)))
        self.notes = [*self.model.notes, *self.resolved.notes]
        if self.anew:
            self.notes.append(
                f"Solvers of units depend on the macro step: the search converts maps from {self.model.local.step:.3g} "
                f"s, and the points shown are identified anew at their own steps."
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
            self.notes.append("The coupled system itself is unstable, whatever the master: stability is not asked for.")
        elif not allowed:
            self.notes.append("No stable master was found in this space; what is shown is unstable.")
        points = allowed or points
        points = [p for p, keep in zip(points, nondominated(goal_values(points, self.pool.goals)), strict=True) if keep]
        if self.problem.worst_case and not self.problem.left_out:
            self.notes.append(
                "The system is at rest and nothing drives it: errors are those of the worst initial state."
            )
        if self.problem.left_out:
            self.notes.append("External inputs that vary are left out while searching; the errors shown include them.")
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
            within = violation <= np.quantile(violation, 0.1)
            if self.space.budget is not None and (columns[:, COLUMNS.index("cost")] > self.space.budget).all():
                raise ConfigurationError(
                    f"no master in the space costs less than {self.space.budget:g} per simulated second; allow longer "
                    f"steps, or a larger budget."
                )
            good = within
        rows, columns = rows[good], columns[good]
        values = self.pool.scaled(columns)
        best = nondominated(values)
        rows, columns, values = rows[best], columns[best], values[best]
        self.values = columns[:, [COLUMNS.index(goal.name) for goal in self.pool.goals]]
        chosen = list(dict.fromkeys([*thinned(values, self.most), *self._spare(columns)]))
        return self._tried([self._master(row) for row in rows[chosen]]) + self._usual()

    def _usual(self) -> list[Point]:
        """What `analyse` would recommend, where the space is open to it: so that it never knows better."""
        if self.space != Space() or not {"error", "robustness", "cost"} <= {goal.name for goal in self.pool.goals}:
            return []
        return self._tried([p.master for p in usual_points(self.model, self.wanted, self.pool.cost, self.master)])

    def _tried(self, masters: list[Master]) -> list[Point]:
        """The points; those at whose step a unit could not be identified are left out."""
        found, refusals = dict[str, Point](), list[str]()
        for master in masters:
            try:
                point = self._judged(master)
                found.setdefault(point.options, point)
            except IdentificationError as error:
                refusals.append(str(error))
        if refusals:
            self.notes.append(f"{len(refusals)} points of the front are left out: {refusals[0]}")
        if masters and not found:
            raise ConfigurationError(f"no point of the front could be evaluated: {refusals[0]}")
        return list(found.values())

    def _spare(self, columns: Array) -> list[int]:
        """The cheapest that seem good enough: one of them will be recommended."""
        error, margin, cost = (columns[:, COLUMNS.index(name)] for name in ("error", "robustness", "cost"))
        if np.isnan(error).all() or np.isnan(cost).all():
            return []
        wanted = self.wanted
        fine = error <= 0.97 * wanted.error
        if self.robust:
            fine &= margin >= wanted.robustness
        places = np.flatnonzero(fine)
        return [int(i) for i in places[cost[places].argsort(kind="stable")][:SPARE]]

    def _master(self, row: Array) -> Master:
        structure = self.resolved.structures[int(self.resolved.structure_of(row[None])[0])]
        step = float(self.resolved.steps_of(row[None])[0])
        gains = {target: float(gain[0]) for target, gain in self.resolved.gains_of(row[None], structure).items()}
        if isinstance(self.resolved.steps, Range) and (self.rounded or self.anew):
            step = max(_round(step) if self.anew else _fewer_digits(step), self.resolved.steps.low)
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
        """Jacobi corrected by `compensate` with the target "exact", where there is a design that follows it."""
        steps = self.resolved.steps
        tried = np.geomspace(steps.low, steps.high, COMPENSATED).tolist() if isinstance(steps, Range) else list(steps)
        found, refusal = [], ""
        for step in tried:
            try:
                corrected = compensate(self.problem.system, jacobi(self.problem.system, step), target="exact")
                if not corrected.stable:
                    continue
                point = self._judged(corrected.master)
            except CosimoError as error:
                refusal = str(error)
                continue
            if point.error <= 1 and (self.space.budget is None or point.cost <= self.space.budget):
                found.append(point)
        if not found:
            self.notes.append(f"No compensation is on the front: {refusal or 'no design is stable.'}")
        return found
