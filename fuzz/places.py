"""Where a target writes the file that it then reads: a private folder in memory, where there is one."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path


@cache
def folder() -> Path:
    """A fresh folder for this process, removed at its end; what the package itself extracts goes to `extracted()`."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    _keep.append(tempfile.TemporaryDirectory(prefix="cosimo-fuzz-", dir=memory))
    return Path(_keep[0].name)


@cache
def extracted() -> Path:
    """Where archives are unpacked."""
    there = folder() / "extracted"
    there.mkdir()
    return there


_keep: list[tempfile.TemporaryDirectory[str]] = []
