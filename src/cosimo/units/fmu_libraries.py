"""Which of an FMU's libraries fits this process."""

from __future__ import annotations

import platform
import struct
import sys
from pathlib import Path, PurePosixPath

from cosimo.core.errors import ConfigurationError
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmu_archive import member_names


def platforms(path: Path, limits: ArchiveLimits | None = None) -> tuple[str, ...]:
    """The platforms the archive has libraries for, as its folder names."""
    return tuple(sorted({name.split("/")[1] for name in _libraries(path, limits)}))


def find_library(path: Path, version: int, identifier: str, limits: ArchiveLimits | None = None) -> str:
    """The archive member to load: named after the model identifier, or the only one there is for this platform."""
    names, folders = _libraries(path, limits), platform_folders(version)
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


def require_whole(library: Path, label: str) -> None:
    """Refuse a Linux library that is cut off: the system would load it, and end this process at the first missing page.

    Every segment in the table of an ELF file (64 bits: 56 bytes each, offset at 8 and size at 32) must lie in the file.
    """
    size = library.stat().st_size
    with library.open("rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":
            return  # what else is no library of this platform is told by the system
        if len(head) == 64:
            start, count = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
            file.seek(min(start, size))
            table = file.read(56 * count)
            segments = (struct.unpack_from("<Q16xQ", table, at + 8) for at in range(0, 56 * count, 56))
            if len(table) == 56 * count and all(offset + length <= size for offset, length in segments):
                return
    raise ConfigurationError(
        f"FMU '{label}' cannot be loaded: its library '{library.name}' is cut off; export it again."
    )


def _libraries(path: Path, limits: ArchiveLimits | None = None) -> list[str]:
    ends = (".so", ".dll", ".dylib")
    return [name for name in member_names(path, limits) if name.startswith("binaries/") and name.endswith(ends)]
