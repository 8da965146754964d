"""FMU archives: reading the description without extracting, and extracting safely into a folder that goes away again.

One folder per archive content and process: instances of the same FMU share it, the last one to close removes it, and
so do garbage collection and the end of the process. Python's reader never yields more bytes of a member than its header
declares, so that checking the declared sizes beforehand bounds what is written.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import stat
import tempfile
import threading
import weakref
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from cosimo.core.errors import ConfigurationError, UnsafeInputError

GIB = 2**30
DESCRIPTION = "modelDescription.xml"
DESCRIPTION_LIMIT = GIB // 4
"""No description is this long; a longer one is an attack on the memory."""


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """The archive, opened for reading; whatever is wrong with it becomes one sentence that names the file."""
    if path.is_dir():
        raise ConfigurationError(f"'{path}' is a folder, not an FMU; give the .fmu file.")
    if not path.exists():
        raise ConfigurationError(f"FMU '{path}' does not exist; check the path.")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            begins = file.read(2) == b"PK"
        what = f"is damaged or incomplete ({error}); copy or export it again" if begins else "is not a zip archive"
        raise ConfigurationError(f"FMU '{path}' {what}.") from None
    except (EOFError, zlib.error, NotImplementedError, RuntimeError) as error:
        raise ConfigurationError(f"FMU '{path}' cannot be unpacked ({error}); export it again.") from None
    except OSError as error:
        raise ConfigurationError(f"FMU '{path}' cannot be read: {error.strerror or error}.") from None


def read_description(path: Path, *, validate: bool = True) -> tuple[Any, Any]:
    """FMPy's model description and the XML root; only the description is read from the archive.

    FMPy is handed an archive that holds nothing else, so that its reading of further files cannot fail.
    """
    from fmpy.model_description import ValidationError, read_model_description
    from lxml import etree

    with open_archive(path) as archive:
        if DESCRIPTION not in archive.namelist():
            raise ConfigurationError(f"'{path}' holds no {DESCRIPTION}; it is not an FMU.")
        if archive.getinfo(DESCRIPTION).file_size > DESCRIPTION_LIMIT:
            raise UnsafeInputError(f"FMU '{path}': {DESCRIPTION} is larger than {DESCRIPTION_LIMIT:,} bytes; refused.")
        xml = archive.read(DESCRIPTION)
    alone = io.BytesIO()
    with zipfile.ZipFile(alone, "w") as copy:
        copy.writestr(DESCRIPTION, xml)
    try:
        root = etree.fromstring(xml)
        version = root.get("fmiVersion") or "none"
        if version != "2.0" and not version.startswith("3."):
            raise ConfigurationError(f"FMU '{path}' has FMI version {version}; FMI 2.0 and 3.0 are supported.")
        return read_model_description(alone, validate=validate), root
    except etree.XMLSyntaxError as error:
        raise ConfigurationError(f"FMU '{path}': {DESCRIPTION} is not well-formed: {error.msg}.") from None
    except ValidationError as error:
        found = "; ".join(str(problem).rstrip(".") for problem in error.problems[:5])
        more = f"; and {len(error.problems) - 5} more" if len(error.problems) > 5 else ""
        raise ConfigurationError(
            f"FMU '{path}': {DESCRIPTION} is not valid: {found}{more}. Export it correctly, or try FmuOptions(validate="
            f"False) at your own risk."
        ) from None
    except ConfigurationError:
        raise
    except Exception as error:  # FMPy raises plain exceptions on descriptions it cannot make sense of
        detail = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"FMU '{path}': {DESCRIPTION} cannot be understood: {detail.rstrip('.')}.") from None


def member_names(path: Path) -> tuple[str, ...]:
    """The names of all members."""
    with open_archive(path) as archive:
        return tuple(archive.namelist())


def require_safe(path: Path, archive: zipfile.ZipFile, size_limit: int) -> None:
    """Refuse names that lead out of the folder, links, and more bytes than `size_limit` once unpacked."""
    for member in archive.infolist():
        name = PurePosixPath(member.filename)
        if name.is_absolute() or ".." in name.parts or any(sign in member.filename for sign in "\\:"):
            raise UnsafeInputError(
                f"FMU '{path}' holds the file name '{member.filename}', which leads elsewhere; refused."
            )
        if stat.S_ISLNK(member.external_attr >> 16):
            raise UnsafeInputError(f"FMU '{path}' holds the link '{member.filename}'; links are refused.")
    total = sum(member.file_size for member in archive.infolist())
    if total > size_limit:
        raise UnsafeInputError(
            f"FMU '{path}' would take {total:,} bytes unpacked, more than the limit of {size_limit:,}; "
            f"raise the limit if you trust it."
        )


class Folder:
    """The extracted content of one archive, shared by `users` live instances."""

    def __init__(self, path: Path, digest: str) -> None:
        self.path, self.digest, self.users = path, digest, 0
        self.process = os.getpid()

    def remove(self) -> None:
        """Delete the folder; a forked child leaves it to its parent."""
        if os.getpid() == self.process:
            shutil.rmtree(self.path, ignore_errors=True)


_folders: dict[str, Folder] = {}
_lock = threading.RLock()


class Lease:
    """A share in an extracted folder, given back by `release`, by garbage collection or at the end of the process."""

    def __init__(self, folder: Folder) -> None:
        self.path = folder.path
        self.release = weakref.finalize(self, _release, folder)


def lease(path: Path, *, size_limit: int, single: bool = False) -> Lease:
    """Extract the archive, unless it is there already; `single` refuses a second lease at the same time."""
    with _lock:
        digest = _digest(path)
        folder = _folders.get(digest)
        if folder is None or folder.process != os.getpid():
            folder = _folders[digest] = Folder(_extract(path, size_limit), digest)
        elif single:
            raise ConfigurationError(
                f"FMU '{path}' can be instantiated only once per process (canBeInstantiatedOnlyOncePerProcess) and is "
                f"in use already; close the other instance or run it in a process of its own."
            )
        folder.users += 1
        return Lease(folder)


def _release(folder: Folder) -> None:
    with _lock:
        folder.users -= 1
        if folder.users == 0:
            _folders.pop(folder.digest, None)
            folder.remove()


def _extract(path: Path, size_limit: int) -> Path:
    with open_archive(path) as archive:
        require_safe(path, archive, size_limit)
        folder = Path(tempfile.mkdtemp(prefix="cosimo-fmu-"))
        try:
            for member in archive.infolist():
                written = Path(archive.extract(member, folder))
                if member.external_attr >> 16 & stat.S_IXUSR and written.is_file():
                    written.chmod(0o700)  # tools that an FMU starts from its resources
            (folder / "resources").mkdir(exist_ok=True)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError):
                raise ConfigurationError(
                    f"FMU '{path}' cannot be unpacked into '{folder.parent}': {error.strerror or error}; "
                    f"make room there or set TMPDIR."
                ) from None
            raise
    return folder


def _digest(path: Path) -> str:
    try:
        status = path.stat()
    except OSError:
        raise ConfigurationError(f"FMU '{path}' does not exist; check the path.") from None
    return _content_digest(path, status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=1024)
def _content_digest(path: Path, size: int, changed: int, inode: int) -> str:
    """Hashed once per version of a file: a thousand instances of one FMU do not read it a thousand times."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
