"""Which workers this process has started."""

from __future__ import annotations

import os
from pathlib import Path

WORKERS = ("cosimo-worker", "bwrap")


def children(parent_process: int | None = None) -> list[int]:
    """Workers, and starters of sandboxes, that this process or another one has started and that still run."""
    wanted = parent_process or os.getpid()
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name in WORKERS and int(parent) == wanted and state != "Z":
            found.append(int(entry.parent.name))
    return found
