"""Checkpoint files: written at once or not at all, recognised, and read without running anything that is in them.

    "cosimo checkpoint 3\\n" | plain data (core/plain.py) | SHA-256 of all before (32 bytes)

A new file is written beside the old one, brought to the disk, and put in its place; the old one stays as `.earlier`.
A kill at any moment leaves at least one whole file.
"""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cosimo.core.errors import CheckpointError
from cosimo.core.plain import DamagedError, from_bytes, to_bytes
from cosimo.execution.recording import writing
from cosimo.execution.streams import bring_names_to_disk

MAGIC = b"cosimo checkpoint "
HEAD = MAGIC + b"3\n"
DIGEST = hashlib.sha256().digest_size
SUFFIX, EARLIER, NEW = ".checkpoint", ".earlier", ".new"
"""After the name of the output file; of the one before; of the one that is being written."""
REMEDY = "give a checkpoint file in a folder that exists and can be written to"


def beside(output: str | Path) -> Path:
    """Where the checkpoint of a run lies that records to `output`."""
    return Path(f"{output}{SUFFIX}")


def versions() -> dict[str, str]:
    """What must be the same for bytes to mean the same."""
    return {"cosimo": version("cosimo"), "machine": platform.machine()}


def encode(document: Mapping[str, Any]) -> bytes:
    """A checkpoint as it lies on disk."""
    data = HEAD + to_bytes(dict(document))
    return data + hashlib.sha256(data).digest()


def decode(data: bytes, path: Path) -> dict[str, Any]:
    """What `encode` was given."""
    if not data.startswith(MAGIC):
        raise CheckpointError(f"'{path}' is not a checkpoint of cosimo; give the output file of the run.")
    if not data.startswith(HEAD):
        raise CheckpointError(f"'{path}' is a checkpoint of another version of cosimo; resume it with that one.")
    if len(data) < len(HEAD) + DIGEST or hashlib.sha256(data[:-DIGEST]).digest() != data[-DIGEST:]:
        raise CheckpointError(f"'{path}' is damaged: its checksum does not fit{_hint(path)}.")
    try:
        document = from_bytes(memoryview(data)[len(HEAD) : -DIGEST])
    except DamagedError as problem:
        raise CheckpointError(f"'{path}' is damaged: {problem}") from None
    if not isinstance(document, dict):
        raise CheckpointError(f"'{path}' is damaged: it has no entries.")
    return document


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """The entries of a checkpoint, or of the one of an output file; `path` is added as where it was found."""
    found = find(Path(path))
    try:
        data = found.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read '{found}': {os.strerror(error.errno or 0)}.") from None
    document = decode(data, found)
    told = document.get("versions")
    told = told if isinstance(told, dict) and all(isinstance(text, str) for text in told.values()) else {}
    if told != versions():
        written = " on ".join(told.values()) or "of no known version"
        here = " on ".join(versions().values())
        raise CheckpointError(
            f"'{found}' was written by cosimo {written}, and this is {here}; resume it with that one."
        )
    return {**document, "path": found}


def find(path: Path) -> Path:
    """The checkpoint file that is meant: itself, the one of an output file, or the one before it."""
    for candidate in (beside(path), path):
        for file in (candidate, Path(f"{candidate}{EARLIER}")):
            if file.is_file() and (candidate != path or _recognised(file) or not _is_output(file)):
                return file
    raise CheckpointError(f"there is no checkpoint '{path}', nor one of an output file of that name; check the path.")


def write(path: Path, data: bytes) -> None:
    """Put a checkpoint in place and keep the one before."""
    new = Path(f"{path}{NEW}")
    with writing(path, REMEDY, what="the checkpoint"):
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            os.replace(path, f"{path}{EARLIER}")
        os.replace(new, path)
        bring_names_to_disk(path.parent)


def require_writable(path: Path) -> None:
    """Refuse a place that cannot be written to.

    It is tried under a name of its own, as long as the longest of ours: another run may be writing here, and whether
    it is, only the lock on the rows says, later.
    """
    with writing(path, REMEDY, what="the checkpoint"):
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder")
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name):
            pass


def remove(path: Path) -> None:
    """All files of a checkpoint."""
    for suffix in ("", EARLIER, NEW):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _hint(path: Path) -> str:
    earlier = Path(f"{path}{EARLIER}")
    return f"; the one before is '{earlier}'" if earlier.is_file() else ""


def _recognised(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _is_output(path: Path) -> bool:
    """A result file without a checkpoint: better said as such than as a damaged checkpoint."""
    return path.suffix in (".parquet", ".csv", ".arrow", ".arrows", ".mat")
