"""What `analyse` prints, of systems of any units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosimo.assessment import Assessment, assess
from cosimo.assessment.assessing import FEW
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.reporting.fields import assessment_fields, verdict_fields

__all__ = ["FEW", "Question", "analysis_fields", "analysis_text"]


@dataclass(frozen=True)
class Question:
    """What is to be analysed: from `start` on over `horizon` seconds (None: `usual` ones), and at which other times."""

    system: System
    master: Master
    start: float = 0.0
    usual: float | None = None
    horizon: float | None = None
    at: tuple[float, ...] = ()
    along: int | None = None

    def assess(self) -> Assessment:
        """The answer. What is usual for a run says little of linear units, whose own modes set the horizon."""
        known = all(unit.linear() is not None for unit in self.system.units.values())
        horizon = self.horizon or (None if known else self.usual)
        return assess(self.system, self.master, at=self.at, along=self.along, horizon=horizon, start=self.start)


def analysis_text(question: Question) -> str:
    """For the terminal."""
    return str(question.assess())


def analysis_fields(question: Question) -> dict[str, Any]:
    """The document of `--json`."""
    found = question.assess()
    return verdict_fields(found.verdict, found) | assessment_fields(found)
