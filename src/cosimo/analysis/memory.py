"""Verdicts remembered by content, so that a run knows what an analysis found.

An entry is found by what it is about: the units' files and parameters, connections, inputs, master, step, start,
horizon, target, and the version of cosimo. A run never fails because of the memory: what cannot be read, written or
believed is as good as not there. An entry is believed only if it was written for just this content, names just the
outputs of this system, and does not contradict itself (`Verdict.from_brief`).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosimo.core import __version__
from cosimo.core.formatting import plain
from cosimo.core.master import Master
from cosimo.core.storage import Remembered
from cosimo.core.system import System
from cosimo.execution.checkpoints.fingerprints import fingerprint
from cosimo.masters import MASTERS

if TYPE_CHECKING:
    from cosimo.analysis.verdict import Verdict

FORMAT = 1
"""Changed with what entries mean."""


class Memory:
    """Remembered verdicts in a folder; without one nothing is remembered."""

    def __init__(self, folder: Path | None = None) -> None:
        self._answers = Remembered(folder)
        self.folder = self._answers.folder

    def remember(self, verdict: Verdict, system: System, master: Master, start: float) -> None:
        """Keep the short form of a verdict."""
        key = _key(system, master, start, verdict.horizon, verdict.target)
        if key is not None:
            self._answers.remember(key, {"verdict": plain(verdict.brief())})

    def recall(self, system: System, master: Master, start: float, horizon: float, target: float) -> Verdict | None:
        """The verdict on just this coupling; None where there is none that can be believed."""
        key = _key(system, master, start, horizon, target)
        entry = None if key is None else self._answers.recall(key)
        if entry is None:
            return None
        from cosimo.analysis.verdict import Verdict  # a run of which nothing is remembered does not load it

        try:
            verdict = Verdict.from_brief(entry["verdict"])
        except (ValueError, KeyError, TypeError, RecursionError):
            return None
        return verdict if _is_about(verdict, system, master, horizon, target) else None


def _key(system: System, master: Master, start: float, horizon: float, target: float) -> dict[str, Any] | None:
    """What a verdict is about; None where a unit cannot say what it is."""
    try:
        content = fingerprint(system, master, start)
    except Exception:  # a unit of somebody else's may raise whatever it likes
        return None
    numbers = [float(number).hex() for number in (start, horizon, target)]
    return {"cosimo": __version__, "format": FORMAT, "content": content, "numbers": numbers}


def _is_about(verdict: Verdict, system: System, master: Master, horizon: float, target: float) -> bool:
    """Whether an entry speaks of this coupling, of outputs that it has, and of masters that exist."""
    outputs = set(verdict.error.outputs) if verdict.error is not None else set()
    advised = verdict.recommendation.name if verdict.recommendation is not None else None
    return (
        (verdict.system, verdict.master, verdict.schedule) == (system.name, master.name, str(master))
        and (verdict.step_size, verdict.horizon, verdict.target) == (master.step, horizon, target)
        and outputs <= set(system.outputs)
        and (advised is None or re.split(r"[(+]", advised)[0] in MASTERS)
    )
