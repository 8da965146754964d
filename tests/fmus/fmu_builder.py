"""Builds the test FMUs: a C source and a description of the same name become an archive.

The last character of the name is the FMI version. A test may change the description (`changes`: old text → new text),
define macros, rename the library, leave it out, or add files.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from cosimo.units.fmu_libraries import platform_folders

HERE = Path(__file__).parent
ENDING = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def build(
    folder: Path,
    name: str,
    *,
    file: str | None = None,
    library: str | None = None,
    platform: str | None = None,
    defines: tuple[str, ...] = (),
    changes: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
) -> Path:
    """Write the FMU into `folder` and return its path; `platform=""` leaves the library out."""
    text = (HERE / f"{name}.xml").read_text(encoding="utf-8")
    for old, new in (changes or {}).items():
        assert old in text, f"{name}.xml does not contain {old!r}"
        text = text.replace(old, new)
    path = folder / (file or f"{name}.fmu")
    path.parent.mkdir(parents=True, exist_ok=True)
    where = platform_folders(int(name[-1]))[0] if platform is None else platform
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("modelDescription.xml", text)
        for member, content in (files or {}).items():
            archive.writestr(member, content)
        if where and (HERE / f"{name}.c").exists():
            archive.writestr(f"binaries/{where}/{library or name}{ENDING}", compiled(name, defines))
    return path


@lru_cache
def compiled(name: str, defines: tuple[str, ...] = ()) -> bytes:
    """The shared library, compiled with the system's C compiler once per process."""
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, name + ENDING)
        flags = ["-shared", "-fPIC", "-O1", "-fvisibility=hidden", *(f"-D{define}" for define in defines)]
        libraries = [] if "HOST_MATH" in defines else ["-lm"]
        subprocess.run(["cc", *flags, "-o", str(target), str(HERE / f"{name}.c"), *libraries], check=True)
        return target.read_bytes()
