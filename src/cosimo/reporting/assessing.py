"""What `analyse` prints: the verdict of linear systems, the assessment of all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cosimo.analysis import analyse
from cosimo.assessment import Assessment, assess
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.reporting.fields import assessment_fields, verdict_fields

FEW = 60
"""States up to which linear systems are assessed beside their verdict."""


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

    @property
    def known(self) -> bool:
        """Whether the equations of all units are known and nothing else is asked: nothing need be identified."""
        plain = not self.at and self.along is None
        return plain and all(unit.linear() is not None for unit in self.system.units.values())

    def assess(self, horizon: float | None = None) -> Assessment:
        """The answer for any units."""
        seconds = horizon or self.horizon or self.usual
        return assess(self.system, self.master, at=self.at, along=self.along, horizon=seconds, start=self.start)


def analysis_text(question: Question) -> str:
    """For the terminal."""
    if question.known:
        return str(analyse(question.system, question.master, horizon=question.horizon))
    return str(question.assess())


def analysis_fields(question: Question) -> dict[str, Any]:
    """The document of `--json`."""
    if not question.known:
        found = question.assess()
        return verdict_fields(found.verdict, found) | assessment_fields(found)
    system = question.system
    verdict = analyse(system, question.master, horizon=question.horizon)
    states = sum(len(unit.initial_state) for unit in system.units.values())
    beside = question.assess(verdict.horizon) if states <= FEW else None
    return verdict_fields(verdict) | assessment_fields(beside)
