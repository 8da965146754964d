"""What a search has evaluated, in a file, so that it can be resumed: NumPy arrays and a line that says of what."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.system import System
from cosimo.tuning.pool import Pool

EVERY = 1.0
"""Seconds between two writings; a search that is killed loses no more than that."""
VERSION = 1


class Memory:
    """The file of one search, written while it goes on; `of` says which search it is."""

    def __init__(self, path: Path, of: dict[str, Any]) -> None:
        self.path, self.of = path, json.dumps({"version": VERSION, **of}, sort_keys=True)
        self._written, self._last = -1, 0.0

    def recall(self, pool: Pool) -> int:
        """Give the pool what the file knows; how many candidates that are, 0 if there is no file yet."""
        if not self.path.exists():
            return 0
        try:
            with np.load(self.path, allow_pickle=False) as file:
                of, rows, columns = str(file["of"]), file["rows"], file["columns"]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
            raise ConfigurationError(f"'{self.path}' is not the file of a search: {error}.") from None
        if of != self.of:
            raise ConfigurationError(
                f"'{self.path}' belongs to another search (system, space, objectives or horizon differ); remove it, or "
                f"give another file."
            )
        pool.remember(rows, columns)
        return len(rows)

    def save(self, pool: Pool, *, now: bool = False) -> None:
        """Write all that is known, if there is more than before; seldom enough not to be felt."""
        if pool.count == self._written or not (now or time.monotonic() - self._last > EVERY):
            return
        part = self.path.with_name(self.path.name + ".part")
        try:
            with part.open("wb") as file:
                rows, columns = pool.known
                np.savez(file, of=np.array(self.of), rows=rows, columns=columns)
                file.flush()
                os.fsync(file.fileno())
            part.replace(self.path)
        except OSError as error:
            raise OutputError(f"cannot write '{self.path}': {error}.") from None
        self._written, self._last = pool.count, time.monotonic()


def fingerprint(system: System) -> str:
    """A short text that differs when units, connections or anything else that a search depends on differ."""
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for part in parts:
            digest.update(part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode())

    for name, unit in system.units.items():
        model = unit.linear()
        add(name, unit.inputs, unit.outputs, sorted(unit.start.items()), unit.initial_state, unit.can_restore)
        if model is not None:
            one = unit.discrete(1.0)
            add(model.A, model.B, model.C, model.D, one.A, one.B, unit.input_degree)
    add([(c.source, c.target, c.gain, c.offset, c.convert) for c in system.connections])
    add(sorted((name, getattr(source, "value", "varies")) for name, source in system.inputs.items()))
    return digest.hexdigest()[:16]
