"""Can the result of a run be used? The one place that decides it, from stability, error and evidence.

| trust | when |
| --- | --- |
| yes | stable, every output within the target, and that is proved, confirmed or measured |
| with care | the worst output misses the target by at most five times; or no error is known; or pilot runs end before
the horizon; or the system grows; or steps that an adaptive run may choose grow when they are repeated |
| no | unstable, the iteration diverges, or an output is off by more than five times the target; by more than the target
where pilot runs end before the horizon, as the largest error only grows from there |
| not assessed | there is no evidence |
"""

from __future__ import annotations

from typing import Literal

from cosimo.analysis.truth import OutputErrors
from cosimo.core import dataclass
from cosimo.core.document import Mark
from cosimo.core.formatting import DIVERGED, percent
from cosimo.core.result import TARGET as TARGET

Trust = Literal["yes", "with care", "no", "not assessed"]
Evidence = Literal["proved", "confirmed", "measured", "none"]
"""proved: all equations are known; confirmed: units were identified and pilot runs agree; measured: pilot runs only."""
CARE = 5.0
"""Errors up to this many targets are used with care: 5 % at the usual target, the accuracy of many parameters."""
WORDS: dict[Trust, str] = {
    "yes": "Trust",
    "with care": "Trust with care",
    "no": "Do not trust",
    "not assessed": "Not assessed",
}
MARKS: dict[Trust, Mark] = {"yes": "good", "with care": "care", "no": "bad", "not assessed": "open"}


@dataclass(frozen=True)
class Judgement:
    """Whether to trust, and why, in a few words."""

    trust: Trust
    because: str

    @property
    def headline(self) -> str:
        """Both in one line."""
        return f"{WORDS[self.trust]}: {self.because}"

    @property
    def mark(self) -> Mark:
        """The traffic light."""
        return MARKS[self.trust]


@dataclass(frozen=True)
class Grounds:
    """What trust rests on: None where it is not known, with the `reason`.

    `converges` is that of an iteration (None without one), `system_grows` whether the coupled system itself is
    unstable, whatever the master.
    """

    stable: bool | None
    errors: OutputErrors | None
    evidence: Evidence
    target: float = TARGET
    converges: bool | None = None
    system_grows: bool = False
    reason: str = ""
    horizon: float | None = None
    """Seconds that were asked for; errors may reach less far."""
    steps_grow: bool = False
    """Whether some sequence of the steps that an adaptive run may choose grows; the run itself need not meet it."""
    seen: float | None = None
    """Seconds until which pilot runs confirm a prediction; None where it needs none."""


def judge(found: Grounds) -> Judgement:
    """Decide.

    >>> errors = OutputErrors({"motor.speed": 0.55}, 2.0)
    >>> judge(Grounds(True, errors, "proved")).headline
    'Do not trust: motor.speed is off by 55 %'
    >>> judge(Grounds(True, OutputErrors({"motor.speed": 0.004}, 20.0), "proved")).headline
    'Trust: every output within 0.4 % until 20 s'
    """
    errors, reason = found.errors, found.reason.rstrip(".")
    if found.evidence == "none":
        return Judgement("not assessed", reason or "nothing is known of this coupling")
    if found.converges is False:
        return Judgement("no", "the iteration diverges")
    if found.stable is False and not found.system_grows:
        return Judgement("no", "unstable")
    if errors is None:
        state = "stable" if found.stable else "the system itself grows" if found.system_grows else "it stays bounded"
        return Judgement("with care", f"{state}, but {reason or 'its error is not known'}")
    off = f"{errors.output} is off by {percent(errors.worst)}"
    if errors.worst >= DIVERGED:
        off = f"{errors.output} diverges"
    cut = found.horizon is not None and errors.horizon < found.horizon * (1 - 1e-9)
    unseen = f"pilot runs did not reach {errors.start + found.horizon:g} s" if cut and found.horizon else ""
    if not cut and found.horizon and found.seen is not None and found.seen < found.horizon * (1 - 1e-9):
        unseen = f"pilot runs confirm that until {errors.start + found.seen:g} s only"
    if not errors.worst <= CARE * found.target:
        return Judgement("no", f"{off} until {errors.until}; {unseen}" if cut and errors.worst < DIVERGED else off)
    if errors.worst > found.target and cut:
        return Judgement("no", f"{off} until {errors.until}, more than the target of {percent(found.target)}; {unseen}")
    if errors.worst > found.target:
        if percent(errors.worst) == percent(found.target):
            off = f"{errors.output} is off by slightly more than {percent(found.target)}, the target"
        else:
            off += f", more than the target of {percent(found.target)}"
        return Judgement("with care", f"{off}; {unseen}" if unseen else off)
    within = f"every output within {percent(errors.worst)} until {errors.until}"
    if errors.any_start:
        within += " from any initial state"
    if unseen:
        within += f"; {unseen}"
    if found.system_grows:
        return Judgement("with care", f"the system itself grows; {within}")
    if errors.unsettled:
        names = f"{', '.join(errors.unsettled[:3])}{' …' if len(errors.unsettled) > 3 else ''}"
        others = within.replace("every output", "other outputs")
        return Judgement("with care", f"{names} differ from run to run as the step shrinks; {others}")
    if unseen:
        return Judgement("with care", within)
    if found.steps_grow:
        return Judgement("with care", f"{within} in the run made, but other steps that may be chosen grow")
    if found.stable is None and found.evidence != "measured":
        return Judgement("with care", f"{within}, but whether it stays bounded is not known")
    return Judgement("yes", within)
