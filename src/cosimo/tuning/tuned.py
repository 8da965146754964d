"""What tuning returns: the Pareto front, the recommended master, and the document that says so."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.analysis.linearisation import UnitReport
from cosimo.analysis.model import Measured, Model
from cosimo.analysis.recommendation import Point, Recommendation, Wanted, recommend
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.document import Column, Document, DocumentTable, Figure, Section, as_card, as_json, as_text
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import cost_text, percent, robustness_text, small, step_text
from cosimo.core.master import Master
from cosimo.tuning.goals import Goal, knee, normalised

SHOWN = 12
SHOWN_AS_NONE = 1e-6
"""Deviations of a prediction below this are shown as none."""
DOUBTFUL = 0.1
"""Part of a measured error that the reference may be wrong by without a word."""
KNEE = "the knee of the Pareto front: closest to the best value of every objective, each scaled to its range"


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
    """The result of tuning: `front`, best error first, the `recommendation`, and `chosen`, the point to use.

    Where no point is good enough `chosen` is the `knee` of the front. `evaluations` candidates were evaluated in
    `seconds`; `values` (N, goals) are the goals of all of them that no other dominates, as the search sees them.
    `priced` tells that cost is in seconds per simulated second. `model` is what is known of the system.
    """

    system: str
    goals: tuple[Goal, ...]
    front: tuple[Point, ...]
    chosen: Point
    reason: str
    knee: Point
    evaluations: int
    seconds: float
    notes: tuple[str, ...]
    model: Model = field(repr=False)
    values: Array = field(repr=False)
    wanted: Wanted = field(default_factory=Wanted)
    priced: bool = False
    recommendation: Recommendation = field(default_factory=lambda: Recommendation(""))
    verified: tuple[Verified, ...] = ()

    @classmethod
    def of(
        cls,
        model: Model,
        goals: tuple[Goal, ...],
        points: Sequence[Point],
        present: Point | None,
        wanted: Wanted,
        **rest: Any,
    ) -> Tuned:
        """Choose among the points of the front, and the present master."""
        front = tuple(sorted(points, key=lambda p: tuple(goal_values([p], goals)[0].tolist())))
        bend = front[knee(goal_values(front, goals))]
        names = {goal.name for goal in goals}
        if {"error", "cost"} <= names:
            advice = recommend(front, present, wanted, grows=model.valid and model.grows, searched="in this space")
            robust = f", stable for changes of ± {percent(wanted.robustness)}" if "robustness" in names else ""
            good = f"error within {percent(wanted.error)}"
            met = advice.point is not None and advice.point.robustness >= wanted.robustness
            lowest = f"{good}{robust if met else ''}, at the lowest cost"
            reason = lowest if advice.point is not None else f"{KNEE}; no point has an {good}"
        else:
            advice, reason = Recommendation(f"use {bend.sentence}.", options=bend.options, point=bend), KNEE
        chosen = advice.point or bend
        front = front if any(point is chosen for point in front) or advice.keep else (chosen, *front)
        return cls(model.system.name, goals, front, chosen, reason, bend, model=model, wanted=wanted,
                   recommendation=advice, **rest)  # fmt: skip

    @property
    def recommended(self) -> Master:
        """The master to use."""
        return self.chosen.master

    @property
    def horizon(self) -> float:
        """Seconds that errors are for."""
        return self.model.horizon

    @property
    def units(self) -> tuple[UnitReport, ...]:
        """How the units are known."""
        return self.model.units

    def verify(self, count: int = 1) -> tuple[Verified, ...]:
        """Run the `count` best for real: the recommended one, others good enough, then those nearest to the ideal."""
        if count < 1:
            raise ConfigurationError(f"verify at least one point, not {count}.")
        others = [point for point in self._ranked() if point is not self.chosen]
        points = [self.chosen, *others][:count]
        return tuple(Verified(point, self.model.measure(point.master)) for point in points)

    def _ranked(self) -> list[Point]:
        """Those good enough, the cheapest first; then by distance from the ideal."""
        distance = np.linalg.norm(normalised(goal_values(self.front, self.goals)), axis=1)
        order = {id(point): float(d) for point, d in zip(self.front, distance, strict=True)}
        good = {id(point) for point in self.front if point.meets(self.wanted)}
        return sorted(self.front, key=lambda p: (id(p) not in good, p.cost if id(p) in good else order[id(p)]))

    def __str__(self) -> str:
        return as_text(self.document)

    def _repr_html_(self) -> str:
        return as_card(self.document)

    def fields(self) -> dict[str, Any]:
        """The fields of `--json`."""
        return as_json(self.document)

    # ---- the document --------------------------------------------------------------------------------------------

    @cached_property
    def document(self) -> Document:
        """What is said, in its four forms."""
        advice = self.recommendation
        text = advice.text or f"use {self.chosen.sentence}."
        count = len(self.front)
        met = self.chosen.meets(self.wanted, grows=self.model.valid and self.model.grows)
        return Document(
            f"{self.system}, {count} Pareto-optimal master{'s' * (count != 1)} out of {self.evaluations:,}",
            "good" if met else "care" if self.chosen.stable is not False else "bad",
            text[:1].upper() + text[1:],
            (f"{'Nearest' if advice.point is None else 'Chosen'}: {self.chosen.sentence}.",),
            tuple(self._sections()),
            (self.chosen.options,) if self.chosen.options else (),
        )

    def _sections(self) -> Iterator[Section]:
        yield Section("tuning", "Tuning", tuple(self._figures()), (self.front_table(),))
        if self.verified:
            yield Section("verification", "Verified by running", (), (self._verified_table(),))
        yield Section("units", "Units", (), (self._unit_table(),))

    def _figures(self) -> Iterator[Figure]:
        yield Figure("system", "", self.system)
        yield Figure("objectives", "", [goal.name for goal in self.goals])
        yield Figure("horizon", "errors until", self.horizon, f"{self.model.start + self.horizon:g} s")
        yield Figure("evaluations", "", self.evaluations)
        yield Figure("wall_time", "", self.seconds)
        yield Figure("reason", "rule", self.reason, self.reason)
        yield Figure("evidence", "", "proved" if self.model.known else "identified" if self.model.valid else "measured")
        yield Figure("recommendation", "", self.recommendation.fields())
        yield Figure("recommended", "", _point_fields(self.chosen))
        yield Figure("knee", "", _point_fields(self.knee))
        yield Figure("notes", "", list(self.notes))
        for note in self.notes:
            yield Figure("", "note", None, note)

    def front_table(self, most: int = SHOWN) -> DocumentTable:
        """Best error first; of a long front every so many are shown, and always the recommended point."""
        rows = [_point_fields(point) | {"words": point.words} for point in self.front]
        chosen = next((i for i, p in enumerate(self.front) if p is self.chosen), None)
        places = set(range(len(rows)))
        if len(rows) > most:
            places = {*np.linspace(0, len(rows) - 1, most).round().astype(int).tolist(), chosen or 0}
        columns = (
            Column("error", "error", percent),
            Column("robustness", "stable for", lambda value: robustness_text(math.nan if value is None else value)),
            Column("cost", "cost s/s" if self.priced else "cost 1/s", cost_text),
            Column("spectral_radius", "ρ", lambda value: "–" if math.isnan(value) else f"{value:.6f}"),
            Column("step_size", "step", step_text),
            Column("words", "master", str, False, aside=True),
            *(Column(key) for key in ("master", "schedule", "stable", "errors", "defect")),
            *(Column(key) for key in ("cheaper_than_jacobi", "options", "sentence")),
        )
        return DocumentTable("front", "", columns, rows, chosen=chosen, places=tuple(sorted(places)))

    def _verified_table(self) -> DocumentTable:
        rows = [
            {
                "predicted": entry.point.error,
                "measured": entry.measured.error,
                "deviation": entry.deviation,
                "seconds": entry.measured.seconds,
                "diverged_at": entry.measured.diverged,
                "reference_error": entry.measured.reference_error,
                "errors": dict(entry.measured.errors.outputs),
                "master": entry.point.master.name,
                "step_size": entry.point.step,
                "words": f"{entry.point.words} at {step_text(entry.point.step)}",
            }
            for entry in self.verified
        ]
        doubtful = [e for e in self.verified if not e.measured.reference_error <= DOUBTFUL * e.measured.error]
        own = max((e.measured.reference_error for e in doubtful), default=0.0)
        columns = (
            Column("predicted", "predicted", percent),
            Column("measured", "measured", percent),
            Column("deviation", "off by", lambda value: "0 %" if value <= SHOWN_AS_NONE else percent(value)),
            Column("seconds", "stepping", lambda value: f"{value:.3g} s"),
            Column("words", "master", str, False, aside=True),
            *(Column(key) for key in ("diverged_at", "reference_error", "errors", "master", "step_size")),
        )
        note = f"the reference itself may be wrong by {small(own)}" if doubtful else ""
        return DocumentTable("verified", "", columns, rows, note)

    def _unit_table(self) -> DocumentTable:
        rows = [{"name": unit.name, "means": unit.means, "fit": unit.fit} for unit in self.units]
        names = ("", "", "") if self.model.known else ("unit", "identified by", "fit")
        columns = (
            Column("name", names[0], str, False),
            Column("means", names[1], str, False),
            Column("fit", names[2], small),
        )
        return DocumentTable("units", "", columns, rows)


def _point_fields(point: Point) -> dict[str, Any]:
    return {
        "master": point.master.name,
        "schedule": str(point.master),
        "step_size": point.step,
        "stable": point.stable,
        "error": point.error,
        "errors": dict(point.outputs) if point.errors is not None else None,
        "robustness": point.robustness,
        "cost": point.cost,
        "spectral_radius": point.radius,
        "defect": point.defect,
        "cheaper_than_jacobi": point.cheaper,
        "options": point.options,
        "sentence": point.sentence,
    }


def goal_values(points: Sequence[Point], goals: Sequence[Goal]) -> Array:
    """The scaled goals (N, goals), the smaller the better, finite."""
    columns = [goal.scaled(np.array([getattr(point, goal.name) for point in points])) for goal in goals]
    return np.nan_to_num(np.column_stack(columns), nan=1e6, posinf=1e6, neginf=-1e6)
