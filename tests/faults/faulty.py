"""Builds the FMU with switchable faults: `faulty.c` and `faulty.xml` become an archive."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from compiling import compile_library
from fmu_builder import ENDING

from cosimo.units.fmi.archive import platform_folders, remove_left_behind

HERE = Path(__file__).parent
WINDOWS = sys.platform == "win32"
SEGFAULT = "access violation (segmentation fault)" if WINDOWS else "SIGSEGV (segmentation fault)"
"""How the fault of that name is told of."""


def build(path: Path, *, early: str = "", changes: Mapping[str, str] | None = None) -> Path:
    """Write the FMU; `early` is a fault of the time before parameters are known, `changes` are made to the XML."""
    text = (HERE / "faulty.xml").read_text(encoding="utf-8")
    for old, new in (changes or {}).items():
        assert old in text, f"faulty.xml does not contain {old!r}"
        text = text.replace(old, new)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("modelDescription.xml", text)
        if early:
            archive.writestr("resources/fault.txt", early)
        archive.writestr(f"binaries/{platform_folders(2)[0]}/faulty{ENDING}", library())
    return path


def left_in(folder: Path) -> list[Path]:
    """What is left of temporary files; Windows removes no library that is loaded, the next process does it there."""
    if WINDOWS:
        remove_left_behind(folder)
    return list(folder.iterdir())


def library() -> bytes:
    """The shared library."""
    flags = ("-fvisibility=hidden", "-Wall", "-Wno-infinite-recursion", "-Wno-unused")
    return compile_library(HERE / "faulty.c", flags, ("-lm", "-lpthread"))
