"""Which workers this process has started."""

from __future__ import annotations

import os
from pathlib import Path

WORKERS = ("cosimo-worker", "bwrap")


def children(parent_process: int | None = None) -> list[int]:
    """Workers, and starters of sandboxes, that this process or another one has started and that still run."""
    wanted = parent_process or os.getpid()
    return [pid for pid, parent in _workers().items() if parent == wanted]


def descendants(parent_process: int) -> list[int]:
    """As `children`, with what those have started themselves: a sandbox starts its worker in another process."""
    parents = _workers()
    found = [parent_process]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _workers() -> dict[int, int]:
    """All workers and starters of sandboxes that still run, and who has started them."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name in WORKERS and state != "Z":
            found[int(entry.parent.name)] = int(parent)
    return found
