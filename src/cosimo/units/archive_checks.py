"""Is an archive safe to unpack? Answered from its directory and headers alone, before a single byte is written.

Python's reader never yields more bytes of an entry than the directory declares, so that checking the declared sizes
bounds what is written. What is refused here raises `UnsafeInputError`; what is merely broken is left to the reader.
"""

from __future__ import annotations

import itertools
import re
import stat
import struct
import unicodedata
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress

from cosimo.core.errors import UnsafeInputError, one_line
from cosimo.units.archives import MIB, ArchiveLimits, remedy

_HEADER = 30  # bytes before the name in the header of each entry
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UTF8 = 0x800  # the flag of names in UTF-8; others are in code page 437
_UNICODE_PATH = 0x7075  # the extra field with a further name, which Python takes from 3.12 on
_FOLDERS = 100
"""Folders inside each other, far more than anybody makes; each is looked at."""


def check_archive(archive: zipfile.ZipFile, label: str, limits: ArchiveLimits) -> int:
    """Refuse the archive, called `label` in messages, or return how many bytes its entries take unpacked.

    What tools do without harm is put right in `archive`: backslashes between folders become slashes, `./` goes, and a
    file that is there twice with the same bytes is there once.
    """
    entries = archive.infolist()
    if len(entries) > limits.entries:
        raise UnsafeInputError(f"'{label}' has {len(entries):,} entries, more than {limits.entries:,}; "
                               f"{remedy('entries')}.")  # fmt: skip
    for entry in entries:
        if reason := _name_reasons(entry) or _kind_reason(entry):
            raise UnsafeInputError(f"'{label}': entry '{show(entry.orig_filename)}' {reason}; refused.")
        if entry.file_size > limits.ratio * max(entry.compress_size, 1) and entry.file_size > MIB:
            raise UnsafeInputError(
                f"'{label}': entry '{show(entry.filename)}' unpacks to {entry.file_size:,} bytes from "
                f"{entry.compress_size:,}, a ratio above {limits.ratio:g}; {remedy('ratio')}."
            )
    twins = _check_clashes(entries, label)
    _check_headers(archive, label)
    total = sum(entry.file_size for entry in entries)
    if total > limits.total_size:
        raise UnsafeInputError(
            f"'{label}' would take {total:,} bytes unpacked, more than {limits.total_size:,}; {remedy('total_size')}."
        )
    for entry, other in twins:
        if not _same_bytes(archive, entry, other):
            raise _clash(label, entry, other)
    _tidy(archive, {id(entry) for entry, _ in twins})
    return total


def _tidy(archive: zipfile.ZipFile, left_out: set[int]) -> None:
    """Give entries the names that they are used by, and leave out repeated ones and the top folder."""
    kept = [entry for entry in archive.filelist if id(entry) not in left_out and proper_name(entry.filename)]
    for entry in kept:
        entry.filename = proper_name(entry.filename)
    archive.filelist[:] = kept
    archive.NameToInfo = {entry.filename: entry for entry in kept}


def proper_name(name: str) -> str:
    """The name with slashes between folders and without `.` for the folder itself; empty for the top folder.

    >>> proper_name(".\\\\binaries\\\\a.so"), proper_name("./")
    ('binaries/a.so', '')
    """
    *folders, last = name.replace("\\", "/").split("/")
    return "/".join([*(part for part in folders if part != "."), last])


def _same_bytes(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, other: zipfile.ZipInfo) -> bool:
    if (entry.CRC, entry.file_size) != (other.CRC, other.file_size):
        return False
    with archive.open(entry) as first, archive.open(other) as second:
        while block := first.read(MIB):
            if block != second.read(len(block)):
                return False
    return True


def show(name: str) -> str:
    """A name from a file as it can be printed in one line: control characters escaped, very long ones cut.

    >>> show("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    safe = one_line(name)
    return safe if len(safe) <= 120 else safe[:117] + "…"


def _name_reasons(entry: zipfile.ZipInfo) -> str | None:
    """What is wrong with one of the names that an entry has: that of the directory, and that it is extracted to."""
    # The same bytes are the same name: tools that do not set the flag for UTF-8 repeat them in the extra field.
    same = (entry.orig_filename.encode("utf-8", "surrogatepass"), _raw_name(entry))
    if other := next((name for name in _further_names(entry) if name not in same), None):
        return f"is called '{show(other.decode('utf-8', 'replace'))}' in a further field: two names for one file"
    names = dict.fromkeys((entry.orig_filename, entry.filename))
    return next(filter(None, (_name_reason(name) for name in names)), None)


def _further_names(entry: zipfile.ZipInfo) -> Iterator[bytes]:
    """The names in extra fields; each begins with a version and a checksum, 5 bytes."""
    at = 0
    while at + 4 <= len(entry.extra):
        kind, length = struct.unpack_from("<HH", entry.extra, at)
        if kind == _UNICODE_PATH:
            yield entry.extra[at + 9 : at + 4 + length]
        at += 4 + length


def _raw_name(entry: zipfile.ZipInfo) -> bytes:
    """The name as the directory has it."""
    if entry.flag_bits & _UTF8:
        return entry.orig_filename.encode("utf-8", "surrogatepass")
    return entry.orig_filename.encode("cp437", "replace")


def _name_reason(name: str) -> str | None:
    if not name:
        return "has no proper name"
    name = proper_name(name)
    if name.startswith("/") or re.match("[A-Za-z]:", name):
        return "has an absolute name, which leads elsewhere"
    if ".." in name.split("/"):
        return "has '..' in its name, which leads elsewhere"
    if ":" in name:
        return "has a colon in its name, which leads elsewhere on some systems"
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        return "has control characters in its name"
    # "a//b" is a further name of "a/b"; some systems leave out dots and spaces at the end.
    parts = name.removesuffix("/").split("/")
    if name and not all(part.rstrip(" .") for part in parts):
        return "has no proper name"
    if len(parts) > _FOLDERS:
        return f"lies more than {_FOLDERS} folders deep"
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


def _check_clashes(entries: Sequence[zipfile.ZipInfo], label: str) -> list[tuple[zipfile.ZipInfo, zipfile.ZipInfo]]:
    """Refuse names that would write over each other, here or where upper and lower case are the same.

    Entries of exactly the same name are returned, each with the one before it: their bytes may be the same.
    """
    files: dict[str, zipfile.ZipInfo] = {}
    folders: list[str] = []
    twins = []
    for entry in entries:
        name = proper_name(entry.filename)
        key = _key(name)
        if not name or name.endswith("/"):
            folders.append(key)
            continue
        folders.append(key.rpartition("/")[0])
        if (other := files.setdefault(key, entry)) is entry:
            continue
        if proper_name(other.filename) != name:
            raise _clash(label, entry, other)
        twins.append((entry, other))
    seen: set[str] = set()
    for folder in folders:  # each counts with all folders around it, whether they have entries or not
        while folder and folder not in seen:
            if folder in files:
                name = show(files[folder].filename)
                raise UnsafeInputError(f"'{label}' holds '{name}' as a file and as a folder; refused.")
            seen.add(folder)
            folder = folder.rpartition("/")[0]
    return twins


def _clash(label: str, entry: zipfile.ZipInfo, other: zipfile.ZipInfo) -> UnsafeInputError:
    """The error for two entries that would be one file."""
    if proper_name(other.filename) == proper_name(entry.filename):
        how = "twice, with different content"
    else:
        how = f"and '{show(other.filename)}', the same name to some systems"
    return UnsafeInputError(f"'{label}' holds the entry '{show(entry.filename)}' {how}; refused.")


def _key(name: str) -> str:
    """The same for names that are one on systems without case, with one way to write accents, or without final dots."""
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
    return "/".join(part.rstrip(" .") for part in folded.removesuffix("/").split("/"))


def _check_headers(archive: zipfile.ZipFile, label: str) -> None:
    """Refuse entries that share their bytes, with which a short archive unpacks to petabytes, or have two names."""
    placed = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    for entry, following in itertools.zip_longest(placed, placed[1:]):
        name, size = _header(archive, entry)
        if name is not None and name != _raw_name(entry):
            raise UnsafeInputError(
                f"'{label}': entry '{show(entry.filename)}' is called '{show(name.decode('utf-8', 'replace'))}' in its "
                f"own header; refused."
            )
        if following is not None and entry.header_offset + size + entry.compress_size > following.header_offset:
            raise UnsafeInputError(
                f"'{label}': entries '{show(entry.filename)}' and '{show(following.filename)}' overlap; refused."
            )


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[bytes | None, int]:
    """The name in the header before the bytes of an entry, and the size of the header; a broken one has no name."""
    assert archive.fp is not None
    with suppress(OSError, ValueError, OverflowError):  # the place makes no sense
        archive.fp.seek(entry.header_offset)
        head = archive.fp.read(_HEADER)
        if len(head) == _HEADER and head.startswith(b"PK\x03\x04"):
            length, extra = struct.unpack_from("<HH", head, 26)
            return archive.fp.read(length), _HEADER + length + extra
    return None, _HEADER
