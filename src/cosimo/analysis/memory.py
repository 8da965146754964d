"""Verdicts remembered by content, so that a run knows what an analysis found.

An entry is found by what it is about: the units' files and parameters, connections, inputs, master, step, start,
horizon, target, and the version of cosimo. A run never fails because of the memory: what cannot be read, written or
believed is as good as not there. An entry is believed only if it was written for just this content, names just the
outputs of this system, and does not contradict itself (`Verdict.from_brief`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosimo.core.document import plain
from cosimo.core.master import Master
from cosimo.core.storage import replacing
from cosimo.core.system import System
from cosimo.execution.checkpoints.fingerprints import fingerprint
from cosimo.masters import MASTERS

if TYPE_CHECKING:
    from cosimo.analysis.verdict import Verdict

ENVIRONMENT = "COSIMO_CACHE"
"""A folder for the memory, or "off"."""
FORMAT = 1
"""Changed with what entries mean."""
MOST, DROPPED = 5000, 1000
"""Entries that are kept, and how many of the oldest go when there are more."""
LARGEST = 1_000_000
"""Bytes of an entry that is still read."""


def default_folder() -> Path | None:
    """The folder of the user's cache; None where there is none to be had or it was switched off."""
    said = os.environ.get(ENVIRONMENT, "")
    if said:
        return None if said.lower() == "off" else Path(said)
    base = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "cosimo" / "verdicts"
    except RuntimeError:  # nobody's home
        return None


class Memory:
    """Remembered verdicts in a folder; without one nothing is remembered."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def remember(self, verdict: Verdict, system: System, master: Master, start: float) -> None:
        """Keep the short form of a verdict."""
        key = _key(system, master, start, verdict.horizon, verdict.target)
        if self.folder is None or key is None:
            return
        text = json.dumps({"key": key, "verdict": plain(verdict.brief())}, sort_keys=True, allow_nan=False)
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, unique=True) as new:
                new.write_text(text, encoding="utf-8")
            self._prune()

    def recall(self, system: System, master: Master, start: float, horizon: float, target: float) -> Verdict | None:
        """The verdict on just this coupling; None where there is none that can be believed."""
        key = _key(system, master, start, horizon, target)
        if self.folder is None or key is None:
            return None
        path = self._path(key)
        try:
            if path.stat().st_size > LARGEST:
                return None
            entry = json.loads(path.read_text(encoding="utf-8"))
            if entry["key"] != key:
                return None
            from cosimo.analysis.verdict import Verdict  # a run of which nothing is remembered does not load it

            verdict = Verdict.from_brief(entry["verdict"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None
        return verdict if _is_about(verdict, system, master, horizon, target) else None

    def _path(self, key: dict[str, Any]) -> Path:
        assert self.folder is not None
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:32]}.json"

    def _prune(self) -> None:
        assert self.folder is not None
        entries = [entry for entry in os.scandir(self.folder) if entry.name.endswith(".json")]
        if len(entries) > MOST:
            for entry in sorted(entries, key=lambda e: e.stat().st_mtime)[:DROPPED]:
                with suppress(OSError):
                    os.unlink(entry.path)


def _key(system: System, master: Master, start: float, horizon: float, target: float) -> dict[str, Any] | None:
    """What a verdict is about; None where a unit cannot say what it is."""
    try:
        content = fingerprint(system, master, start)
    except Exception:  # a unit of somebody else's may raise whatever it likes
        return None
    numbers = [float(number).hex() for number in (start, horizon, target)]
    return {"cosimo": version("cosimo"), "format": FORMAT, "content": content, "numbers": numbers}


def _is_about(verdict: Verdict, system: System, master: Master, horizon: float, target: float) -> bool:
    """Whether an entry speaks of this coupling, of outputs that it has, and of masters that exist."""
    outputs = set(verdict.error.outputs) if verdict.error is not None else set()
    advised = verdict.recommendation.name if verdict.recommendation is not None else None
    return (
        (verdict.system, verdict.master, verdict.schedule) == (system.name, master.name, str(master))
        and (verdict.step_size, verdict.horizon, verdict.target) == (master.step, horizon, target)
        and outputs <= set(system.outputs)
        and (advised is None or advised.partition("(")[0] in MASTERS)
    )
