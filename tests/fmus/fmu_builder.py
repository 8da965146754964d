"""Builds the test FMUs: a C source and a description of the same name become an archive.

The last character of the name is the FMI version. A test may change the description (`changes`: old text → new text),
define macros, rename the library, leave it out, or add files.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from compiling import compile_library

from cosimo.units.fmi.archive import platform_folders

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


def compiled(name: str, defines: tuple[str, ...] = ()) -> bytes:
    """The shared library."""
    flags = ("-fvisibility=hidden", *(f"-D{define}" for define in defines))
    return compile_library(HERE / f"{name}.c", flags, () if "HOST_MATH" in defines else ("-lm",))
