"""The command line in a process of its own, forked from one that has imported everything: real, but quick to start."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_FORMATS = ("information", "results", "scenario_building", "ssp")
_CONTEXT.set_forkserver_preload(
    [
        "cosimo.cli",
        "cosimo.analysis",
        "cosimo.execution.running",
        "cosimo.units.fmu",
        *(f"cosimo.formats.{n}" for n in _FORMATS),
    ]
)


def cosimo(folder: Path, *arguments: str, largest_file: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run `cosimo` in `folder` with "../temporary files" for what it extracts; files can be limited in size."""
    with tempfile.TemporaryDirectory() as kept:
        process = _CONTEXT.Process(target=_become, args=(folder, arguments, largest_file, Path(kept)))
        process.start()
        process.join(timeout=300)
        assert process.exitcode is not None, f"{arguments} did not end"
        output, errors = (Path(kept, name).read_text(encoding="utf-8") for name in ("output", "errors"))
    return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


def _become(folder: Path, arguments: tuple[str, ...], largest_file: int | None, kept: Path) -> None:
    """Turn this process into the command; ends it as the interpreter would."""
    for number, name in ((1, "output"), (2, "errors")):
        os.dup2(os.open(kept / name, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))  # noqa: SIM115
    os.chdir(folder)
    os.environ["TMPDIR"], tempfile.tempdir = str(folder.parent / "temporary files"), None
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    sys.argv = ["cosimo", *arguments]
    code: object = 0
    try:
        from cosimo.cli import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
