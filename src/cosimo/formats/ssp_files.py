"""The files of a system structure: beside a plain .ssd, or inside an .ssp package.

A package is read in place. Only what must be a file on disk (an FMU, a package in the package) is copied into a private
folder, which goes when nobody uses it any more: with the last unit that lives on it, at the latest with the process,
or by the next process where this one was killed.
"""

from __future__ import annotations

import os
import posixpath
import shutil
import tempfile
import weakref
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from cosimo.core.errors import ConfigurationError, FileFindings, Place, UnknownNameError, UnsafeInputError, no_such_file
from cosimo.units.archives import ArchiveLimits, check_archive, read_text, require_text
from cosimo.units.fmi.archive import TemporaryFolder, naming_damage, open_zip

STRUCTURE = "SystemStructure.ssd"


class Files:
    """The files named in a description, beside a plain .ssd; names are relative and separated by slashes."""

    def __init__(self, folder: Path, limits: ArchiveLimits) -> None:
        self.folder, self.limits = folder, limits

    def label(self, name: str) -> str:
        """The file as messages call it: its path, short where the folder was given so."""
        return str(self.folder / name)

    def holds(self, name: str) -> bool:
        """Whether there is such a file."""
        return os.path.isfile(self.folder / name)

    def read(self, name: str) -> bytes:
        """The content of a small file."""
        return read_text(self.on_disk(name), self.limits)

    def on_disk(self, name: str) -> Path:
        """The file as one that can be opened by its path."""
        path = self.folder / name
        if os.path.isfile(path):
            return path
        here = path.parent.glob("*") if os.path.isdir(path.parent) else ()
        near = [other.name for other in here if other.suffix == path.suffix]
        if near:
            raise UnknownNameError(f"file in '{path.parent}'", path.name, near)
        raise no_such_file(path)

    def close(self) -> None:
        """Reading is over; what was copied stays."""

    def discard(self) -> None:
        """Remove what was copied: reading failed."""

    def locate(self, source: str, base: str) -> str:
        """The name of the file that the URI `source` in a document in folder `base` means."""
        parts = urlsplit(source)
        if parts.scheme not in ("", "file") or (parts.netloc and parts.netloc != "localhost"):
            raise ConfigurationError(f"'{source}' is not a local file; only files inside the package can be read.")
        if parts.scheme == "file":
            from urllib.request import url2pathname

            return self._absolute(source, url2pathname(parts.path))
        # Some tools percent-encode, as URIs demand, some write names as they are.
        names = [posixpath.normpath(posixpath.join(base, name)) for name in (source, unquote(source))]
        return next((name for name in names if self.holds(name)), names[0])

    def _absolute(self, source: str, path: str) -> str:
        return path


class Workspace:
    """A private folder that is removed by `close`, by garbage collection or at the end of the process."""

    def __init__(self) -> None:
        try:
            folder = TemporaryFolder("ssp")
        except OSError as error:
            raise ConfigurationError(f"no temporary folder can be made: {error.strerror}; set TMPDIR.") from None
        self.path = folder.path
        self.close = weakref.finalize(self, folder.remove)

    def __copy__(self) -> Workspace:
        return self

    def __deepcopy__(self, memo: object) -> Workspace:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # In another process the folder is only borrowed: it goes when this process no longer needs it.
        return _borrow, (self.path,)


def _borrow(path: Path) -> Workspace:
    workspace = Workspace.__new__(Workspace)
    workspace.path = path
    return workspace


class ArchiveFiles(Files):
    """Files inside a zip archive, which is checked before any of them is used; `name` is what messages call it."""

    def __init__(
        self, path: Path, limits: ArchiveLimits, workspace: Workspace | None = None, name: str | None = None
    ) -> None:
        self._path, self._name, self.limits = path, name or str(path), limits
        self.workspace = workspace  # the folder that holds what was copied, if anything was
        self._copies: Path | None = None
        self._copied: set[str] = set()
        self._archive: zipfile.ZipFile | None = None
        with self._open() as archive:
            check_archive(archive, self._name, limits)
            self.members = {entry.filename: entry for entry in archive.infolist() if not entry.is_dir()}

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()
            self._archive = None

    def discard(self) -> None:
        self.close()
        if self.workspace is not None:
            self.workspace.close()

    def label(self, name: str) -> str:
        return f"{self._name}/{name}"

    def holds(self, name: str) -> bool:
        return name in self.members

    def read(self, name: str) -> bytes:
        with self._open() as archive:
            member = self._member(name)
            require_text(member.file_size, self.label(name), self.limits)
            return archive.read(member)

    def on_disk(self, name: str) -> Path:
        self.workspace = self.workspace or Workspace()
        if self._copies is None:  # one for each archive: a package in the package may hold files of the same names
            self._copies = Path(tempfile.mkdtemp(dir=self.workspace.path))
        path = self._copies / name
        if name in self._copied:
            return path
        with self._open() as archive:
            member = self._member(name)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, path.open("wb") as target:
                    shutil.copyfileobj(source, target, 2**20)
            except OSError as error:
                with suppress(OSError):  # the name itself may be what is wrong
                    path.unlink(missing_ok=True)
                raise ConfigurationError(
                    f"'{self.label(name)}' cannot be unpacked into '{self.workspace.path.parent}': "
                    f"{error.strerror or error}; free some space there or set TMPDIR."
                ) from None
        self._copied.add(name)
        return path

    def _absolute(self, source: str, path: str) -> str:
        raise ConfigurationError(
            f"'{source}' lies outside the package '{self._name}'; a package must contain all its files."
        )

    def _member(self, name: str) -> zipfile.ZipInfo:
        if name.startswith(("../", "/")) or name == "..":
            raise UnsafeInputError(f"'{self._name}' names the file '{name}', which lies outside the package; refused.")
        if name not in self.members:
            raise UnknownNameError(f"file in '{self._name}'", name, self.members)
        return self.members[name]

    @contextmanager
    def _open(self) -> Iterator[zipfile.ZipFile]:
        """The archive, which stays open until `close`: its directory is read once, however many files are copied."""
        with naming_damage(self._path, f"'{self._name}'", "pack"):
            if self._archive is None:
                self._archive = open_zip(self._path)
            yield self._archive


def main_structure(files: ArchiveFiles, findings: FileFindings) -> str:
    """The description to start from: SystemStructure.ssd, or the only one there is."""
    if files.holds(STRUCTURE):
        return STRUCTURE
    others = [name for name in files.members if name.endswith(".ssd") and "/" not in name]
    if len(others) != 1:
        several = (
            f"but {', '.join(others)}; rename the one to use" if others else "and is no package, or an incomplete one"
        )
        raise ConfigurationError(f"'{files.label('')[:-1]}' holds no {STRUCTURE} {several}; an SSP package needs one.")
    findings.warn(
        f"{STRUCTURE} is missing; the only description in the package was read.", Place(files.label(others[0]))
    )
    return others[0]
