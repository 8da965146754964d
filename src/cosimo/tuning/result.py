"""What tuning returns: the front, the recommended master, and what is to be said of each point in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from cosimo.assessment.assessment import Confidence, UnitReport
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.tuning.fronts import knee, normalised
from cosimo.tuning.goals import Goal
from cosimo.tuning.predicting import Judge, Measured
from cosimo.tuning.wording import amount, cost_text, margin_text, percent, step_text

SHOWN = 12
ABOUT = 1.25
"""Costs up to this factor count as equal when the cheapest is chosen: the most robust one is taken."""
ROUNDING = 1e-6
"""Deviations of a prediction below this are shown as none."""
DOUBTFUL = 0.1
"""Part of a measured error that the reference may be wrong by without a word."""
WORTH = 1.1
"""Being cheaper by less than this factor is not worth mentioning."""


@dataclass(frozen=True)
class Wanted:
    """What is good enough: the error of the worst output, and the change of the units that must not matter."""

    error: float = 0.01
    robustness: float = 0.25

    def __post_init__(self) -> None:
        if not (self.error > 0 and self.robustness >= 0):
            raise ConfigurationError("a wanted error must be positive, a wanted robustness must not be negative.")


@dataclass(frozen=True)
class Point:
    """A master of the front. `error` is predicted over the horizon, `robustness` its relative radius, `cost` per
    simulated second, `radius` ρ(Φ), `defect` δ; NaN where not computed. `options` are those of the command line (empty
    for a compensated master), `cheaper` is how many times cheaper it is than plain Jacobi at the same error.
    """

    master: Master
    words: str
    options: str
    stable: bool
    error: float = math.nan
    robustness: float = math.nan
    cost: float = math.nan
    radius: float = math.nan
    defect: float = math.nan
    cheaper: float = math.nan
    left_out: bool = field(default=False, repr=False)

    @property
    def step(self) -> float:
        """The macro step in seconds."""
        return self.master.step

    @property
    def sentence(self) -> str:
        """The point in plain words."""
        name, _, rest = self.words.partition(", ")
        parts = [f"{name} at {step_text(self.step)}{', ' + rest if rest else ''}: "]
        facts = [] if self.stable else ["UNSTABLE"]
        if not math.isnan(self.error):
            facts.append(f"error {percent(self.error)}")
        if not math.isnan(self.robustness) and self.stable:
            facts.append(margin_text(self.robustness))
        if not math.isnan(self.defect):
            facts += [f"ρ {self.radius:.6g}", f"δ {self.defect:.6g}"]
        if self.cheaper >= WORTH:
            facts.append(f"{amount(self.cheaper)} × cheaper than Jacobi with held inputs at the same error")
        return "".join(parts) + ", ".join(facts)


@dataclass(frozen=True)
class Verified:
    """A point that was run: predicted beside measured."""

    point: Point
    measured: Measured

    @property
    def deviation(self) -> float:
        """By how much the predicted error is off, relative to the measured one."""
        if self.measured.error == self.point.error:
            return 0.0
        return abs(self.point.error - self.measured.error) / max(self.measured.error, 1e-300)


@dataclass(frozen=True)
class Tuned:
    """The result of tuning: `front`, best error first, `chosen` (the recommended point) and why, and the `knee`.

    `evaluations` candidates were evaluated in `seconds`; `values` (N, goals) are the goals of all of them that no other
    dominates, as the search sees them. `priced` tells that cost is in seconds per simulated second. Where units were
    identified, `units` says how and `confidence` how far the numbers can be trusted; otherwise they are exact.
    """

    system: str
    goals: tuple[Goal, ...]
    front: tuple[Point, ...]
    chosen: Point
    reason: str
    knee: Point
    horizon: float
    evaluations: int
    seconds: float
    notes: tuple[str, ...]
    judge: Judge = field(repr=False)
    values: Array = field(repr=False)
    wanted: Wanted = field(default_factory=Wanted)
    priced: bool = False
    confidence: Confidence | None = None
    units: tuple[UnitReport, ...] = ()

    @property
    def recommended(self) -> Master:
        """The master to use."""
        return self.chosen.master

    def verify(self, count: int = 1) -> tuple[Verified, ...]:
        """Run the `count` best for real: the recommended one, others good enough, then those nearest to the ideal."""
        if count < 1:
            raise ConfigurationError(f"verify at least one point, not {count}.")
        others = [point for point in self._ranked() if point is not self.chosen]
        points = [self.chosen, *others][:count]
        return tuple(Verified(point, self.judge.measured(point.master)) for point in points)

    def _ranked(self) -> list[Point]:
        """Those good enough, the cheapest first; then by distance from the ideal."""
        distance = np.linalg.norm(normalised(goal_values(self.front, self.goals)), axis=1)
        order = {id(point): float(d) for point, d in zip(self.front, distance, strict=True)}
        good = {id(point) for point in good_enough(self.front, self.goals, self.wanted)}
        return sorted(self.front, key=lambda p: (id(p) not in good, p.cost if id(p) in good else order[id(p)]))

    def __str__(self) -> str:
        lines = [
            f"{self.system}: {len(self.front)} masters on the front of {self.evaluations} evaluated, "
            f"horizon {self.horizon:g} s",
            f"  recommended   {self.chosen.sentence}",
            f"  why           {self.reason}",
        ]
        if self.chosen.options:
            lines.append(f"  options       {self.chosen.options}")
        if self.confidence is not None:
            lines.append(f"  confidence    {self.confidence.level}: {self.confidence.reason}")
            lines.append(f"  identified    {', '.join(f'{unit.name} by {unit.means}' for unit in self.units)}")
        lines += [f"  note          {note}" for note in self.notes]
        return "\n".join([*lines, "", *self.table()])

    def _repr_html_(self) -> str:
        """For notebooks: the recommended master and the front."""
        from cosimo.core.display import card

        facts = [("recommended", self.chosen.sentence), ("why", self.reason)]
        facts += [("options", self.chosen.options)] if self.chosen.options else []
        facts += [("note", note) for note in self.notes]
        shown = [self.chosen, *(point for point in self.front if point is not self.chosen)]
        rows = [
            [point.words, step_text(point.step), percent(point.error), _change(point.robustness), cost_text(point.cost)]
            for point in shown
        ]
        title = f"{self.system}: {len(self.front)} masters on the front of {self.evaluations} evaluated"
        return card(title, ("open", ""), facts, ("master", "step", "error", "stable up to", "cost"), rows)

    def table(self, most: int = SHOWN) -> list[str]:
        """The front as lines, best error first; of a long one every so many, and always the recommended point."""
        cost = "cost s/s" if self.priced else "cost 1/s"
        lines = [f"    {'error':>9}{'stable up to':>14}{cost:>12}{'ρ':>12}{'step':>11}  master"]
        points = list(self.front)
        if len(points) > most:
            kept = {*np.linspace(0, len(points) - 1, most).round().astype(int).tolist(), points.index(self.chosen)}
            points = [point for i, point in enumerate(points) if i in kept]
        for point in points:
            mark = "→" if point is self.chosen else " "
            margin = "–" if math.isnan(point.robustness) else _change(point.robustness)
            lines.append(
                f"  {mark} {percent(point.error):>9}{margin:>14}{cost_text(point.cost):>12}{point.radius:>12.6f}"
                f"{step_text(point.step):>11}  {point.words}{'' if point.stable else ' (UNSTABLE)'}"
            )
        return lines


def _change(robustness: float) -> str:
    return "> ± 900 %" if math.isinf(robustness) else f"± {percent(robustness)}"


def goal_values(points: Sequence[Point], goals: Sequence[Goal]) -> Array:
    """The scaled goals (N, goals), the smaller the better, finite."""
    columns = [goal.scaled(np.array([getattr(point, goal.name) for point in points])) for goal in goals]
    return np.nan_to_num(np.column_stack(columns), nan=1e6, posinf=1e6, neginf=-1e6)


def good_enough(points: Sequence[Point], goals: Sequence[Goal], wanted: Wanted) -> list[Point]:
    """Stable points with the error and, where it is a goal, the robustness that are wanted; none for other goals."""
    names = {goal.name for goal in goals}
    if not {"error", "cost"} <= names:
        return []
    margin = wanted.robustness if "robustness" in names else -math.inf
    return [p for p in points if p.stable and p.error <= wanted.error and not p.robustness < margin]


def recommend(points: Sequence[Point], goals: Sequence[Goal], wanted: Wanted) -> tuple[Point, Point, str]:
    """The recommended point, the knee, and the rule that chose it, in words.

    Rule: of the points whose error and robustness are good enough, the cheapest; of those that cost at most 25 % more,
    the most robust, or without that goal the most accurate. Where none is good enough, or these are not the goals, the
    knee: the point nearest to the ideal, each goal scaled to [0, 1] over the front (errors and costs by decades).
    """
    bend = points[knee(goal_values(points, goals))]
    names = {goal.name for goal in goals}
    where = "the knee of the front: nearest to the best of every objective, each scaled to its range"
    if not {"error", "cost"} <= names:
        return bend, bend, where
    robust = "robustness" in names
    text = f"error below {percent(wanted.error)}" + (
        f" and stable up to ± {percent(wanted.robustness)}" if robust else ""
    )
    good = good_enough(points, goals, wanted)
    if not good:
        return bend, bend, f"{where}; no point has {text}"
    least = min(point.cost for point in good)
    near = [point for point in good if point.cost <= ABOUT * least]
    best = min(near, key=lambda p: (-p.robustness if robust else 0.0, p.error))
    more = "most robust" if robust else "most accurate"
    return best, bend, f"{text}, and the {more} of the cheapest such (within {percent(ABOUT - 1)} of their cost)"


def verification_lines(found: Sequence[Verified]) -> list[str]:
    """Predicted beside measured."""
    lines = ["", "verified by running", f"    {'predicted':>11}{'measured':>11}{'off by':>10}{'stepping':>12}  master"]
    for entry in found:
        measured = entry.measured
        seconds = "diverged" if measured.diverged is not None else f"{measured.seconds:.3g} s"
        off = "0 %" if entry.deviation <= ROUNDING else percent(entry.deviation)
        lines.append(
            f"    {percent(entry.point.error):>11}{percent(measured.error):>11}{off:>10}{seconds:>12}"
            f"  {entry.point.words} at {step_text(entry.point.step)}"
        )
    doubtful = [e for e in found if not e.measured.reference_error <= DOUBTFUL * e.measured.error]
    if doubtful:
        lines.append(
            "  note          measured against finer runs that are themselves uncertain by "
            f"{percent(max(e.measured.reference_error for e in doubtful))}, or against the identified models (–)"
        )
    return lines
