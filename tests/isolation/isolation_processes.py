"""Which workers this process has started."""

from __future__ import annotations

import os
from pathlib import Path

WORKERS = ("cosimo-worker", "bwrap")


def children() -> list[int]:
    """Workers, and starters of sandboxes, that this process has started and that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name in WORKERS and int(parent) == os.getpid() and state != "Z":
            found.append(int(entry.parent.name))
    return found
