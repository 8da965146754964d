"""Which workers this process has started."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

WORKERS = ("cosimo-worker", "cosimo-worker.exe", "bwrap")


def children(parent_process: int | None = None) -> list[int]:
    """Workers, and starters of sandboxes, that this process or another one has started and that still run."""
    wanted = parent_process or os.getpid()
    return [pid for pid, parent in started().items() if parent == wanted]


def descendants(parent_process: int) -> list[int]:
    """As `children`, with what those have started themselves: a sandbox starts its worker in another process."""
    parents = started()
    found = [parent_process]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def started() -> dict[int, int]:
    """All workers and starters of sandboxes that still run, and who has started them."""
    found = {}
    if sys.platform == "win32":
        return {pid: parent for pid, parent, name in _snapshot() if name in WORKERS}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = entry.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, parent = rest.split()[:2]
        if name in WORKERS and state != "Z":
            found[int(entry.parent.name)] = int(parent)
    return found


class _Entry(ctypes.Structure):
    """PROCESSENTRY32W of Windows."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("usage", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("heap", ctypes.c_void_p),
        ("module", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
        ("parent", ctypes.c_uint32),
        ("priority", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_wchar * 260),
    )


def _snapshot() -> list[tuple[int, int, str]]:
    """All processes of Windows: number, that of the process that has started it, and the program."""
    system = ctypes.WinDLL("kernel32")  # type: ignore[attr-defined]
    system.CreateToolhelp32Snapshot.restype = ctypes.c_void_p
    snapshot = ctypes.c_void_p(system.CreateToolhelp32Snapshot(2, 0))
    entry = _Entry(size=ctypes.sizeof(_Entry))
    found = []
    more = system.Process32FirstW(snapshot, ctypes.byref(entry))
    while more:
        found.append((entry.pid, entry.parent, entry.name))
        more = system.Process32NextW(snapshot, ctypes.byref(entry))
    system.CloseHandle(snapshot)
    return found
