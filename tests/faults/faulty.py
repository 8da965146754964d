"""Builds the FMU with switchable faults: `faulty.c` and `faulty.xml` become an archive."""

from __future__ import annotations

import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from cosimo.units.fmu_libraries import platform_folders

HERE = Path(__file__).parent


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
        archive.writestr(f"binaries/{platform_folders(2)[0]}/faulty.so", library())
    return path


@lru_cache
def library() -> bytes:
    """The shared library, compiled with the system's C compiler once per process."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "faulty.so")
        flags = ["-shared", "-fPIC", "-O1", "-fvisibility=hidden", "-Wall", "-Wno-infinite-recursion", "-Wno-unused"]
        subprocess.run(["cc", *flags, "-o", str(target), str(HERE / "faulty.c"), "-lm", "-lpthread"], check=True)
        return target.read_bytes()
