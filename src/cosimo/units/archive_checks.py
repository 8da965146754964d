"""Is an archive safe to unpack? Answered from its directory alone, before a single byte is written.

Python's reader never yields more bytes of an entry than the directory declares, so that checking the declared sizes
bounds what is written. What is refused here raises `UnsafeInputError`; what is merely broken is left to the reader.
"""

from __future__ import annotations

import itertools
import re
import stat
import unicodedata
import zipfile
from collections.abc import Sequence

from cosimo.core.errors import UnsafeInputError, one_line
from cosimo.units.archives import MIB, ArchiveLimits, remedy

_HEADER = 30  # bytes before the name in the header of each entry
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def check_archive(archive: zipfile.ZipFile, label: str, limits: ArchiveLimits, *, backslashes: bool = False) -> int:
    """Refuse the archive, called `label` in messages, or return how many bytes its entries take unpacked.

    `backslashes` are taken for slashes, as some tools separate folders with them; else they are refused.
    """
    entries = archive.infolist()
    if len(entries) > limits.entries:
        raise UnsafeInputError(f"'{label}' has {len(entries):,} entries, more than {limits.entries:,}; "
                               f"{remedy('entries')}.")  # fmt: skip
    for entry in entries:
        if reason := _name_reason(entry, backslashes) or _kind_reason(entry):
            raise UnsafeInputError(f"'{label}': entry '{show(entry.orig_filename)}' {reason}; refused.")
        if entry.file_size > limits.ratio * max(entry.compress_size, 1) and entry.file_size > MIB:
            raise UnsafeInputError(
                f"'{label}': entry '{show(entry.filename)}' unpacks to {entry.file_size:,} bytes from "
                f"{entry.compress_size:,}, a ratio above {limits.ratio:g}; {remedy('ratio')}."
            )
    _check_clashes(entries, label)
    _check_overlaps(entries, label)
    total = sum(entry.file_size for entry in entries)
    if total > limits.total_size:
        raise UnsafeInputError(
            f"'{label}' would take {total:,} bytes unpacked, more than {limits.total_size:,}; {remedy('total_size')}."
        )
    return total


def show(name: str) -> str:
    """A name from a file as it can be printed in one line: control characters escaped, very long ones cut.

    >>> show("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    safe = one_line(name)
    return safe if len(safe) <= 120 else safe[:117] + "…"


def _name_reason(entry: zipfile.ZipInfo, backslashes: bool) -> str | None:
    name = entry.orig_filename.replace("\\", "/") if backslashes else entry.orig_filename
    if "\\" in name:
        return "has a backslash in its name, which leads elsewhere on some systems"
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "has an absolute name, which leads elsewhere"
    if ".." in name.split("/"):
        return "has '..' in its name, which leads elsewhere"
    if ":" in name:
        return "has a colon in its name, which leads elsewhere on some systems"
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        return "has control characters in its name"
    # "a//b" and "./a" are further names of "a/b" and "a".
    if not name or any(part in ("", ".") for part in name.removesuffix("/").split("/")):
        return "has no proper name"
    return None


def _kind_reason(entry: zipfile.ZipInfo) -> str | None:
    mode = stat.S_IFMT(entry.external_attr >> 16)
    if mode == stat.S_IFLNK:
        return "is a link; links lead elsewhere"
    if mode not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is neither a file nor a folder"
    if entry.flag_bits & 0x1:
        return "is encrypted and cannot be looked into"
    if entry.compress_type not in _COMPRESSIONS:
        how = zipfile.compressor_names.get(entry.compress_type, str(entry.compress_type))  # type: ignore[attr-defined]
        return f"is compressed with '{how}'; FMI and SSP allow 'deflate' only"
    return None


def _check_clashes(entries: Sequence[zipfile.ZipInfo], label: str) -> None:
    """Refuse names that would write over each other, here or where upper and lower case are the same."""
    files: dict[str, str] = {}
    for entry in (entry for entry in entries if not entry.is_dir()):
        if (other := files.setdefault(_key(entry.filename), entry.filename)) is not entry.filename:
            how = "twice" if other == entry.filename else f"and '{show(other)}', the same name to some systems"
            raise UnsafeInputError(f"'{label}' holds the entry '{show(entry.filename)}' {how}; refused.")
    for entry in entries:
        # A folder counts with all folders around it, whether they have entries or not.
        parts = entry.filename.removesuffix("/").replace("\\", "/").split("/")
        for count in range(1, len(parts) + entry.is_dir()):
            folder = "/".join(parts[:count])
            if _key(folder) in files:
                raise UnsafeInputError(f"'{label}' holds '{show(folder)}' as a file and as a folder; refused.")


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name.replace("\\", "/")).casefold()


def _check_overlaps(entries: Sequence[zipfile.ZipInfo], label: str) -> None:
    """Refuse entries that share their bytes: with such, a short archive declares and unpacks to petabytes."""
    placed = sorted(entries, key=lambda entry: entry.header_offset)
    for entry, following in itertools.pairwise(placed):
        end = entry.header_offset + _HEADER + entry.compress_size
        if end > following.header_offset:
            raise UnsafeInputError(
                f"'{label}': entries '{show(entry.filename)}' and '{show(following.filename)}' overlap; refused."
            )
