"""The sandbox: an almost empty file system made by bubblewrap, in which the worker is started."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt"),
    *("/etc/ld.so.cache", "/etc/localtime"),
)
"""What is readable: programs and libraries, none of the user's files, none of the machine's secrets.

No more than a library needs: each of them adds a tenth of a millisecond to the start."""
KEPT = ("PATH", "LANG", "LANGUAGE", "TZ", "LD_LIBRARY_PATH")
"""Environment variables that a unit may see, beside LC_… and OMP_…: others may hold keys."""
WORKER = "/cosimo-worker"
TEMPORARY = "/tmp"
SPACE = 2**30
"""Bytes that the unit's own temporary folder may hold; it is in memory and goes away with the unit."""


def sandboxed(worker: Path, library: Path, folder: Path, readable: Sequence[str]) -> list[str]:
    """The command that starts the worker with the FMU's library: a folder of its own is all it can write to."""
    found = shutil.which("bwrap") or "bwrap"
    command = [found, "--unshare-all", "--new-session", "--cap-drop", "ALL"]
    for path in SYSTEM:
        # Many systems have /bin and its like as links into /usr.
        if os.path.islink(path):
            command += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            command += ["--ro-bind", path, path]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(SPACE), "--tmpfs", TEMPORARY]
    for path in (*map(str, readable), str(folder)):
        command += ["--ro-bind", path, path]
    command += ["--ro-bind", str(worker), WORKER]
    # Also of what bubblewrap itself has made: a process of its own in there has no filter of system calls, and could be
    # written to through /proc.
    for path in ("/proc", "/dev", "/"):
        command += ["--remount-ro", path]
    command += ["--chdir", TEMPORARY, "--info-fd", "6"]
    return [*command, "--", WORKER, str(library)]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The variables that pass into a sandbox, and to bubblewrap, whose own can be read in there."""
    kept = {k: v for k, v in given.items() if k in KEPT or k.startswith(("LC_", "OMP_"))}
    return {**kept, "HOME": TEMPORARY, "TMPDIR": TEMPORARY}
