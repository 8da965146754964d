"""Temporary folders of extracted FMUs and packages, also those that a killed process could not remove.

A folder is locked from before it has its name until its process ends, however that ends. Folders of such a name that
nobody has locked were left behind; the next process that makes one removes them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from cosimo.core.guarding import not_temporary, temporary
from cosimo.core.storage import CAN_LOCK, hold_path

KINDS = ("fmu", "ssp")
"""What is extracted: `cosimo-fmu-locked-…`."""


class TemporaryFolder:
    """A new empty folder at `path` for something of a kind in `KINDS`, this process's own until `remove`."""

    def __init__(self, kind: str = "fmu") -> None:
        self._process, self._lock = os.getpid(), -1
        self.path = Path(tempfile.mkdtemp(prefix=f"cosimo-{kind}-"))
        if CAN_LOCK:  # without locks nobody can tell what was left behind
            _once(self.path.parent, self._process)
            with suppress(OSError):  # a file system without locks
                self._lock = _locked(self.path)
                # Only now it has a name that others look for: a folder that is not locked yet is not one left behind.
                self.path = self.path.rename(self.path.with_name(self.path.name.replace(kind, f"{kind}-locked", 1)))
        temporary(self.path)

    def remove(self) -> None:
        """Delete the folder; a forked child leaves it to its parent."""
        if os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
            not_temporary(self.path)
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1


@cache
def _once(parent: Path, process: int) -> None:
    """Looking is for the first folder of a process."""
    remove_left_behind(parent)


def remove_left_behind(parent: Path) -> None:
    """Delete the folders in `parent` whose process is no more."""
    for folder in (found for kind in KINDS for found in parent.glob(f"cosimo-{kind}-locked-*")):
        with suppress(OSError):
            lock = _locked(folder)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock; raises OSError where another one does."""
    return hold_path(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
