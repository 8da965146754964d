"""FMU archives: reading the description without extracting, and extracting safely into a folder that goes away again.

One folder per archive content and process: instances of the same FMU share it, the last one to close removes it, and
so do garbage collection and the end of the process; what a killed process leaves, the next one removes. Every archive
is checked when it is opened, before anything of it is used.
"""

from __future__ import annotations

import io
import os
import platform
import shutil
import stat
import struct
import sys
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from cosimo.core.errors import ConfigurationError, CosimoError, require_regular
from cosimo.core.guarding import not_temporary, temporary, unwatched
from cosimo.core.storage import CAN_LOCK, file_digest, hold_path
from cosimo.units.archives import VALIDATE, ArchiveLimits, check_archive, parse_xml, require_text

DESCRIPTION = "modelDescription.xml"
LISTED = 1024  # archives whose members are remembered: more than a package holds, and a few megabytes
DAMAGE = (EOFError, zlib.error, NotImplementedError, RuntimeError, ValueError, struct.error, OverflowError)
"""What Python's reader raises on archives that are wrong inside, beside `BadZipFile`."""


@contextmanager
def open_archive(path: Path, limits: ArchiveLimits | None = None) -> Iterator[zipfile.ZipFile]:
    """The archive, checked and open for reading; whatever is wrong with it becomes one sentence that names the file."""
    limits = limits or ArchiveLimits.from_environment()
    _require_file(path)
    with naming_damage(path, f"FMU '{path}'", "export"), open_zip(path) as archive:
        check_archive(archive, str(path), limits)
        unpacked = sum(member.file_size for member in archive.infolist())
        if len(_listings) >= LISTED:
            _listings.clear()
        _listings[_version(path, limits)] = Listing(tuple(archive.namelist()), unpacked)
        yield archive


@contextmanager
def naming_damage(path: Path, label: str, make: str) -> Iterator[None]:
    """Whatever is wrong with an archive, called `label`, becomes one sentence; `make`: what to do with it again."""
    try:
        yield
    except zipfile.BadZipFile as error:
        begins = False
        with suppress(OSError), path.open("rb") as file:
            begins = file.read(2) == b"PK"
        damage = f"damaged or incomplete ({error})" if begins else "not a zip archive"
        raise ConfigurationError(f"{label} is {damage}; copy or {make} it again.") from None
    except DAMAGE as error:
        raise ConfigurationError(f"{label} cannot be unpacked ({error}); {make} it again.") from None
    except OSError as error:
        raise ConfigurationError(f"{label} cannot be read: {error.strerror or error}.") from None


def open_zip(path: Path) -> zipfile.ZipFile:
    """The archive; a directory in it that makes no sense is `BadZipFile`, whatever Python's reader stumbles over."""
    try:
        return zipfile.ZipFile(path)
    except (ValueError, struct.error, OverflowError, IndexError) as error:
        raise zipfile.BadZipFile(f"its directory makes no sense: {error}") from None


def read_description(
    path: Path, *, validate: bool | None = None, limits: ArchiveLimits | None = None
) -> tuple[Any, Any]:
    """FMPy's model description and the XML root; only the description is read from the archive.

    FMPy is handed an archive that holds nothing else, so that its reading of further files cannot fail. Without
    `validate` the environment decides whether the description is validated.
    """
    from fmpy.model_description import ValidationError, read_model_description

    limits = limits or ArchiveLimits.from_environment()
    if validate is None:
        validate = os.environ.get(VALIDATE, "") != "off"
    with open_archive(path, limits) as archive:
        if DESCRIPTION not in archive.namelist():
            raise ConfigurationError(f"'{path}' holds no {DESCRIPTION}; it is not an FMU.")
        require_text(archive.getinfo(DESCRIPTION).file_size, f"{path}/{DESCRIPTION}", limits)
        xml = archive.read(DESCRIPTION)
    alone = io.BytesIO()
    with zipfile.ZipFile(alone, "w") as copy:
        copy.writestr(DESCRIPTION, xml)
    try:
        root = parse_xml(xml, f"{path}/{DESCRIPTION}", limits)
        version = root.get("fmiVersion") or "none"
        if version != "2.0" and not version.startswith("3."):
            raise ConfigurationError(f"FMU '{path}' has FMI version {version}; FMI 2.0 and 3.0 are supported.")
        return read_model_description(alone, validate=validate), root
    except ValidationError as error:
        found = "; ".join(str(problem).rstrip(".") for problem in error.problems[:5])
        more = f"; and {len(error.problems) - 5} more" if len(error.problems) > 5 else ""
        raise ConfigurationError(
            f"FMU '{path}': {DESCRIPTION} is not valid: {found}{more}. Export a valid FMU, or skip validation at your "
            "own risk: 'cosimo --no-validate …', load(…, validate=False), or 'validate = false' in a scenario."
        ) from None
    except CosimoError:
        raise
    except Exception as error:  # FMPy raises plain exceptions on descriptions it cannot make sense of
        detail = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"FMU '{path}': {DESCRIPTION} cannot be understood: {detail.rstrip('.')}.") from None


@dataclass(frozen=True)
class Listing:
    """The names of all members of an archive, and how many bytes they take once they are extracted."""

    names: tuple[str, ...]
    unpacked: int


_listings: dict[tuple[object, ...], Listing] = {}


def listing(path: Path, limits: ArchiveLimits | None = None) -> Listing:
    """What is in the archive; one that was opened before, and has not changed since, is not opened again."""
    limits = limits or ArchiveLimits.from_environment()
    if (key := _version(path, limits)) not in _listings:
        with open_archive(path, limits):
            key = _version(path, limits)
    return _listings[key]


def _version(path: Path, limits: ArchiveLimits) -> tuple[object, ...]:
    """Other for every change of a file, and for other limits."""
    try:
        status = path.stat()
    except OSError:
        return (path, limits)
    return (path, status.st_size, status.st_mtime_ns, status.st_ino, limits)


class Folder:
    """The extracted content of one archive, shared by `users` live instances."""

    def __init__(self, place: TemporaryFolder, digest: str) -> None:
        self.path, self.remove, self.digest, self.users = place.path, place.remove, digest, 0
        self.process = os.getpid()


_folders: dict[str, Folder] = {}
_lock = threading.RLock()


class Lease:
    """A share in an extracted folder, given back by `release`, by garbage collection or at the end of the process."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path
        self.release = weakref.finalize(self, _release, folder)


def lease(path: Path, *, limits: ArchiveLimits | None = None, single: bool = False) -> Lease:
    """Extract the archive, unless it is there already; `single` refuses a second lease at the same time."""
    with unwatched(), _lock:
        _require_file(path)
        digest = file_digest(path)
        folder = _folders.get(digest)
        if folder is None or folder.process != os.getpid():
            folder = _folders[digest] = Folder(_extract(path, limits), digest)
        elif single:
            raise ConfigurationError(
                f"FMU '{path}' can be instantiated only once per process (canBeInstantiatedOnlyOncePerProcess) and is "
                "already in use; close the other instance or isolate the FMU (--isolate)."
            )
        folder.users += 1
        return Lease(folder)


def _release(folder: Folder) -> None:
    with _lock:
        folder.users -= 1
        if folder.users == 0:
            _folders.pop(folder.digest, None)
            folder.remove()


def _extract(path: Path, limits: ArchiveLimits | None) -> TemporaryFolder:
    with open_archive(path, limits) as archive:
        place = TemporaryFolder()
        folder = place.path
        try:
            for member in archive.infolist():
                written = Path(archive.extract(member, folder))
                if member.external_attr >> 16 & stat.S_IXUSR and written.is_file():
                    written.chmod(0o700)  # tools that an FMU starts from its resources
            (folder / "resources").mkdir(exist_ok=True)
        except BaseException as error:
            place.remove()
            if isinstance(error, OSError):
                raise ConfigurationError(
                    f"FMU '{path}' cannot be unpacked into '{folder.parent}': {error.strerror or error}; free some "
                    "space there or set TMPDIR."
                ) from None
            raise
    return place


def _require_file(path: Path) -> None:
    if not os.path.exists(path):
        raise ConfigurationError(f"FMU '{path}' does not exist; check the path.")
    require_regular(path)


# ---- which of an FMU's libraries fits this process -------------------------------------------------------------------


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
                f"FMU '{path}' holds no library '{identifier}' for {folder} but several others ({others}); keep only "
                "one."
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
        f"FMU '{label}' cannot be loaded: its library '{library.name}' is truncated; export it again."
    )


def _libraries(path: Path, limits: ArchiveLimits | None = None) -> list[str]:
    ends = (".so", ".dll", ".dylib")
    return [name for name in listing(path, limits).names if name.startswith("binaries/") and name.endswith(ends)]


# ---- temporary folders of extracted FMUs and packages, also those that a killed process could not remove -------------
# A folder is locked from before it has its name until its process ends, however that ends. Folders of such a name that
# nobody has locked were left behind; the next process that makes one removes them.


KINDS = ("fmu", "ssp")  # what is extracted: `cosimo-fmu-locked-…`


class TemporaryFolder:
    """A new empty folder at `path` for something of a kind in `KINDS`, this process's own until `remove`."""

    def __init__(self, kind: str = "fmu") -> None:
        self._process, self._lock = os.getpid(), -1
        self.path = Path(tempfile.mkdtemp(prefix=f"cosimo-{kind}-"))
        if CAN_LOCK:  # without locks nobody can tell what was left behind
            _once(self.path.parent, self._process)
            with suppress(OSError):  # a file system without locks
                self._lock = _locked(self.path)
                # Only now it has a name that others look for: a folder that is not locked yet is not one left behind.
                self.path = self.path.rename(self.path.with_name(self.path.name.replace(kind, f"{kind}-locked", 1)))
        temporary(self.path)

    def remove(self) -> None:
        """Delete the folder; a forked child leaves it to its parent."""
        if os.getpid() == self._process:
            shutil.rmtree(self.path, ignore_errors=True)
            not_temporary(self.path)
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1


@cache
def _once(parent: Path, process: int) -> None:
    """Looking is for the first folder of a process."""
    remove_left_behind(parent)


def remove_left_behind(parent: Path) -> None:
    """Delete the folders in `parent` whose process is no more."""
    for folder in (found for kind in KINDS for found in parent.glob(f"cosimo-{kind}-locked-*")):
        with suppress(OSError):
            lock = _locked(folder)
            try:
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(folder: Path) -> int:
    """A descriptor that holds the folder's lock; raises OSError where another one does."""
    return hold_path(folder, os.O_DIRECTORY | os.O_NOFOLLOW)
