"""C sources compiled once: libraries are kept in `.pytest_cache` by what they are made of, for all processes."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / ".pytest_cache" / "libraries"
FLAGS = ("-shared", "-fPIC", "-O1")


@functools.cache
def compile_library(source: Path, flags: Sequence[str] = (), libraries: Sequence[str] = ("-lm",)) -> bytes:
    """The shared library of a C file, made by the system's C compiler; `flags` must be a tuple."""
    # Every C file beside the source and in this folder counts, as any may be included.
    texts = [file.read_bytes() for place in (source.parent, HERE) for file in sorted(place.glob("*.[ch]"))]
    compiler = Path(shutil.which("cc") or "cc")
    made_of = [source.name, flags, libraries, compiler.stat().st_mtime_ns, texts]
    kept = KEPT / hashlib.sha256(repr(made_of).encode()).hexdigest()
    if not kept.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            target = Path(folder, "library")
            subprocess.run([compiler, *FLAGS, *flags, "-o", target, source, *libraries], check=True)
            os.replace(target, kept)  # whole, whoever else is making it
    return kept.read_bytes()
