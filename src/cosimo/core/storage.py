"""Files that appear whole or not at all, are held by one process at a time, and are known by what they hold.

Used by everything that writes: streams of rows, result files, checkpoints, rows of studies, remembered verdicts and
candidates, folders of extracted archives. Locks are those of the system (`flock`; on Windows `LockFile`) on the file
itself, so that they end with the process, however that ends; a library that keeps lock files beside the data would
leave these behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from cosimo.core.errors import OutputError

if sys.platform == "win32":
    import ctypes
    import errno
    import msvcrt
else:
    import fcntl

FAR = 2**62
"""The byte that is locked on Windows, where what is locked cannot be read: no file is as long."""

_DEVICE = re.compile(r"con|prn|aux|nul|com[0-9¹²³]|lpt[0-9¹²³]|conin\$|conout\$", re.IGNORECASE)

RESULT_SUFFIXES = (".parquet", ".csv", ".arrow", ".arrows", ".mat", ".h5", ".mf4")
"""Result files, the usual first; `formats.results` says how each is written and read."""


@contextmanager
def writing(path: Path, remedy: str | Callable[[], str], *, what: str = "results") -> Iterator[None]:
    """Turn a failed write into an error that names the file, the cause and the remedy (or what finds it out)."""
    if sys.platform == "win32" and (reason := reason_on_windows([path.name])):
        raise OutputError(f"cannot write {what} to '{path}': it {reason}; give another name.")
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        told = remedy if isinstance(remedy, str) else remedy()
        raise OutputError(f"cannot write {what} to '{path}': {cause}; {told}.") from None


def reason_on_windows(parts: Sequence[str]) -> str | None:
    """Why Windows keeps no file of this name, given by its folders and its own name; the system itself does not say.

    >>> reason_on_windows(["resources", "aux.c"])
    'has the name of a device, which is no file on Windows'
    """
    if any(_DEVICE.fullmatch(part.partition(".")[0].rstrip()) for part in parts):
        return "has the name of a device, which is no file on Windows"
    if any(part.endswith((".", " ")) for part in parts if part != "."):
        return "has a name that ends in a dot or a space, which Windows leaves out"
    return None


@contextmanager
def replacing(path: Path, *, unique: bool = False, durable: bool = True) -> Iterator[Path]:
    """A new file to write beside `path`; it is brought to the disk and takes its place at the end of the block.

    It is called `<path>.new`, or has a name of its own where several processes may write at once (`unique`). Where
    anything fails, `path` stays as it was and nothing is left beside it. Without `durable` it does not wait for the
    disk: a loss of power may take what can be had again.
    """
    new = path.with_name(path.name + ".new")
    if unique:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".new")
        os.close(handle)
        new = Path(name)
    try:
        yield new
        if durable:
            bring_to_disk(new)
        os.replace(new, path)
        if durable:
            bring_names_to_disk(path.parent)
    finally:
        new.unlink(missing_ok=True)


def bring_to_disk(path: Path) -> None:
    """Wait until a file would survive a loss of power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def bring_names_to_disk(folder: Path) -> None:
    """The same for the names of the files in a folder; not all file systems have that."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def hold(descriptor: int) -> None:
    """Hold an open file or folder for this process until it is closed; `BlockingIOError` where another one does."""
    if sys.platform == "win32":  # msvcrt.locking cannot lock beyond 2^31
        handle = ctypes.c_void_p(msvcrt.get_osfhandle(descriptor))
        if not ctypes.windll.kernel32.LockFile(handle, 0, FAR >> 32, 1, 0):
            raise BlockingIOError(errno.EAGAIN, "held by another process")
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def hold_path(path: Path, flags: int = 0) -> int:
    """A descriptor that holds what is at `path`, to be closed by the caller."""
    return _held(os.open(path, os.O_RDONLY | flags))


def hold_folder(folder: Path) -> int:
    """The same for a folder; on Windows, which cannot open one, by a file beside it that goes when it is closed."""
    if sys.platform == "win32":
        return _held(os.open(f"{folder}.lock", os.O_RDWR | os.O_CREAT | os.O_TEMPORARY))
    return hold_path(folder, os.O_DIRECTORY | os.O_NOFOLLOW)


def _held(descriptor: int) -> int:
    try:
        hold(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def let_move(file: IO[bytes]) -> None:
    """Close a file that is moved or deleted next where it cannot be while it is open: on Windows."""
    if sys.platform == "win32":
        file.close()


def file_digest(path: Path) -> str:
    """SHA-256 of a file; computed once per state of it, however many instances and studies ask."""
    state = path.stat()
    return _digest_of(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=1024)
def _digest_of(path: Path, modified: int, size: int, number: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- answers that are remembered from one process to the next --------------------------------------------------------


ENVIRONMENT = "COSIMO_CACHE"
"""A folder for remembered answers, or "off"."""
MOST, DROPPED = 5000, 1000
"""Answers that are kept, and how many of the oldest go when there are more."""
LARGEST = 1_000_000
"""Bytes of an answer that is still read."""


def default_folder() -> Path | None:
    """The folder of the user's cache; None where there is none to be had or it was switched off."""
    said = os.environ.get(ENVIRONMENT, "")
    if said:
        return None if said.lower() == "off" else Path(said)
    base = os.environ.get("LOCALAPPDATA") if sys.platform == "win32" else os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base or Path.home() / ".cache") / "cosimo" / "verdicts"
    except RuntimeError:  # nobody's home
        return None


class Remembered:
    """Answers in a folder, found by what they are about (`key`); without a folder nothing is remembered.

    Nothing fails because of them: what cannot be read or written is as good as not there, and an answer is given only
    where it was written for just this key.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or default_folder()

    def remember(self, key: Mapping[str, Any], answer: Mapping[str, Any]) -> None:
        """Keep an answer of plain data."""
        if self.folder is None:
            return
        text = json.dumps({"key": key, **answer}, sort_keys=True, allow_nan=False)
        path = self._path(key)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, unique=True, durable=False) as new:
                new.write_text(text, encoding="utf-8")
            self._prune()

    def recall(self, key: Mapping[str, Any]) -> dict[str, Any] | None:
        """The answer to just this; None where there is none."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            if path.stat().st_size > LARGEST:
                return None
            entry = json.loads(path.read_text(encoding="utf-8"))
            return entry if entry["key"] == key else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _path(self, key: Mapping[str, Any]) -> Path:
        assert self.folder is not None
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.folder / f"{digest[:32]}.json"

    def _prune(self) -> None:
        assert self.folder is not None
        entries = [entry for entry in os.scandir(self.folder) if entry.name.endswith(".json")]
        if len(entries) > MOST:
            for entry in sorted(entries, key=lambda e: e.stat().st_mtime)[:DROPPED]:
                with suppress(OSError):
                    os.unlink(entry.path)
