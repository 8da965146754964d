"""Files that appear whole or not at all, are held by one process at a time, and are known by what they hold.

Used by everything that writes: streams of rows, result files, checkpoints, rows of studies, remembered verdicts and
candidates, folders of extracted archives. Locks are those of the system (`flock`) on the file itself, so that they end
with the process, however that ends; a library that keeps lock files beside the data would leave these behind.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from cosimo.core.errors import OutputError

try:
    import fcntl
except ImportError:  # a system without such locks: nobody is refused
    fcntl = None  # type: ignore[assignment]

CAN_LOCK = fcntl is not None


@contextmanager
def writing(path: Path, remedy: str | Callable[[], str], *, what: str = "results") -> Iterator[None]:
    """Turn a failed write into an error that names the file, the cause and the remedy (or what finds it out)."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        told = remedy if isinstance(remedy, str) else remedy()
        raise OutputError(f"cannot write {what} to '{path}': {cause}; {told}.") from None


@contextmanager
def replacing(path: Path, *, unique: bool = False) -> Iterator[Path]:
    """A new file to write beside `path`; it is brought to the disk and takes its place at the end of the block.

    It is called `<path>.new`, or has a name of its own where several processes may write at once (`unique`). Where
    anything fails, `path` stays as it was and nothing is left beside it.
    """
    new = path.with_name(path.name + ".new")
    if unique:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".new")
        os.close(handle)
        new = Path(name)
    try:
        yield new
        bring_to_disk(new)
        os.replace(new, path)
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
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def hold_path(path: Path, flags: int = 0) -> int:
    """A descriptor that holds what is at `path`, to be closed by the caller."""
    descriptor = os.open(path, os.O_RDONLY | flags)
    try:
        hold(descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def file_digest(path: Path) -> str:
    """SHA-256 of a file; computed once per state of it, however many instances and studies ask."""
    state = path.stat()
    return _digest_of(path, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=1024)
def _digest_of(path: Path, modified: int, size: int, number: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
