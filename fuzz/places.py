"""Where a target writes the file that it then reads: a private folder in memory, where there is one."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path

PLACE = "COSIMO_FUZZ_FOLDER"


def memory() -> str | None:
    """A folder in memory, where there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@cache
def folder() -> Path:
    """A fresh folder for this process, removed at its end; what the package itself extracts goes to `extracted()`."""
    # libFuzzer ends a process without ceremony: what it leaves lies in a folder of the process that started it.
    _keep.append(tempfile.TemporaryDirectory(prefix="cosimo-fuzz-", dir=os.environ.get(PLACE) or memory()))
    return Path(_keep[0].name)


@cache
def extracted() -> Path:
    """Where archives are unpacked."""
    there = folder() / "extracted"
    there.mkdir()
    return there


_keep: list[tempfile.TemporaryDirectory[str]] = []
