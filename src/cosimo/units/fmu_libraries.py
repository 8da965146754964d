"""Which of an FMU's libraries fits this process."""

from __future__ import annotations

import platform
import sys
from pathlib import Path, PurePosixPath

from cosimo.core.errors import ConfigurationError
from cosimo.units.fmu_archive import member_names


def platforms(path: Path) -> tuple[str, ...]:
    """The platforms the archive has libraries for, as its folder names."""
    return tuple(sorted({name.split("/")[1] for name in _libraries(path)}))


def find_library(path: Path, version: int, identifier: str) -> str:
    """The archive member to load: named after the model identifier, or the only one there is for this platform."""
    names, folders = _libraries(path), platform_folders(version)
    for folder in folders:
        here = [name for name in names if name.startswith(f"binaries/{folder}/") and name.count("/") == 2]
        named = [name for name in here if PurePosixPath(name).stem == identifier]
        if named or len(here) == 1:
            return (named or here)[0]
        if here:
            others = ", ".join(PurePosixPath(name).name for name in here)
            raise ConfigurationError(
                f"FMU '{path}' holds no library '{identifier}' for {folder} but several others ({others}); keep one."
            )
    raise ConfigurationError(
        f"FMU '{path}' holds no library for this platform ({folders[0]}); it has: "
        f"{', '.join(platforms(path)) or 'none'}. Export it for this platform."
    )


def platform_folders(version: int) -> tuple[str, ...]:
    """The folders of libraries that fit this process, the standard's own name first."""
    machine = platform.machine().lower()
    wide = sys.maxsize > 2**32
    architecture = "aarch64" if machine in ("arm64", "aarch64") else "x86_64" if wide else "x86"
    system = {"linux": "linux", "darwin": "darwin", "win32": "windows"}.get(sys.platform, sys.platform)
    named = f"{architecture}-{system}"
    if version == 3:
        return (named,)
    return {"windows": "win"}.get(system, system) + ("64" if wide else "32"), named


def _libraries(path: Path) -> list[str]:
    ends = (".so", ".dll", ".dylib")
    return [name for name in member_names(path) if name.startswith("binaries/") and name.endswith(ends)]
