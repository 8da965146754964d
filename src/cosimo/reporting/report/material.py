"""What a report is made of, before it is said or drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cosimo.analysis.truth import OutputErrors
from cosimo.analysis.verdict import Verdict
from cosimo.compensation import Compensation
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.reporting.report.parameters import Variation
from cosimo.tuning import Tuned

Role = Literal["given", "tuned", "compensated", "reference", "other"]


@dataclass(frozen=True)
class Run:
    """A run with the name it has on the page, what it is there for, and its errors where they were measured."""

    label: str
    result: Result
    role: Role = "other"
    measured: OutputErrors | None = None


@dataclass(frozen=True)
class Material:
    """All that was given or worked out; what there is not is None or empty.

    `seconds` are those that one step of each unit takes; `reference` is the run that the others are compared with;
    `corrected` the verdict on the compensated master.
    """

    title: str
    system: System | None = None
    master: Master | None = None
    verdict: Verdict | None = None
    tuned: Tuned | None = None
    compensation: Compensation | None = None
    corrected: Verdict | None = None
    runs: tuple[Run, ...] = ()
    reference: Run | None = None
    variation: Variation | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    command: str = ""
    source: Mapping[str, Any] = field(default_factory=dict)

    @property
    def loops(self) -> tuple[tuple[str, ...], ...]:
        """The algebraic loops, as far as they are known."""
        if self.system is not None:
            return tuple(self.system.loops())
        return self.verdict.loops if self.verdict else ()

    def run_of(self, role: Role) -> Run | None:
        """The run with this role."""
        return next((run for run in self.runs if run.role == role), None)
