"""The command line in a process of its own (`processes.py`), with a place for temporary files and a limit on others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
import processes

LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
del sys.argv[1]
runpy.run_module("cosimo.cli", run_name="__main__", alter_sys=True)
"""


def cosimo(folder: Path, *arguments: str, largest_file: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run `cosimo` in `folder` with "../temporary files" for what it extracts; files can be limited in size."""
    start = ["-m", "cosimo.cli"] if largest_file is None else ["-c", LIMITED, str(largest_file)]
    environment = {**os.environ, "TMPDIR": str(folder.parent / "temporary files"), **processes.ALL_CHARACTERS}
    command = [sys.executable, *start, *arguments]
    done: subprocess.CompletedProcess[str] = processes.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=300
    )
    return done
