"""Archives and descriptions that come from elsewhere: limits, checks before anything is unpacked, XML without entities.

The limits guard against files that unpack to more than the disk, or stand for more than the memory, holds. They belong
to the user, not to the file: a scenario or a package cannot raise them.
"""

from __future__ import annotations

import itertools
import math
import os
import re
import stat
import struct
import sys
import unicodedata
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from cosimo.core import dataclass
from cosimo.core.arguments import checked
from cosimo.core.errors import ConfigurationError, FileError, UnknownNameError, UnsafeInputError, one_line
from cosimo.core.storage import reason_on_windows

ENVIRONMENT = "COSIMO_ARCHIVE_LIMITS"
"""The variable with limits for all files that a process reads, as `total-size=8GiB,ratio=1000`."""
VALIDATE = "COSIMO_VALIDATE"
"""The variable that switches the validation of descriptions off for a whole process, with the value `off`."""


def validating(validate: bool | None) -> bool:
    """Whether files are held to their standard; None: unless the environment switches it off."""
    return os.environ.get(VALIDATE, "") != "off" if validate is None else validate


KIB, MIB, GIB = 2**10, 2**20, 2**30
_FACTORS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB}


@checked
@dataclass(frozen=True)
class ArchiveLimits:
    """What an FMU, a package or a description may be at most; sizes in bytes.

    >>> ArchiveLimits.parse("total-size=8GiB, ratio=1000").total_size
    8589934592
    """

    total_size: int = 2 * GIB  # all entries of one archive unpacked; all FMUs of a package together as well
    text_size: int = GIB // 4  # one description: modelDescription.xml, .ssd, .ssv, .ssm, .toml
    ratio: float = 200.0  # unpacked over packed size of one entry, counted from `MIB` bytes on: small ones harm nobody
    entries: int = 100_000  # files and folders in one archive
    nesting: int = 16  # packages and descriptions inside each other
    xml_depth: int = 100  # elements inside each other
    xml_items: int = 5_000_000  # tags and attributes of one description
    variables: int = 1_000_000  # scalars of one FMU, every element of an array counted

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0 or not math.isfinite(value):
                raise ConfigurationError(f"archive limit '{_word(field.name)}' is {value}; give a positive number.")

    @classmethod
    def parse(cls, text: str) -> ArchiveLimits:
        """The limits in `text`, separated by commas; those that it does not name keep their usual values."""
        names = {_word(field.name): field.name for field in fields(cls)}
        given: dict[str, int | float] = {}
        for item in filter(None, (part.strip() for part in text.split(","))):
            word, equals, value = (part.strip() for part in item.partition("="))
            if not equals:
                raise ConfigurationError(f"archive limits are written NAME=VALUE, not '{item}'.")
            if word not in names:
                raise UnknownNameError("archive limit", word, names)
            given[names[word]] = _number(word, value)
        return replace(cls(), **given)  # type: ignore[arg-type]

    @classmethod
    def from_environment(cls) -> ArchiveLimits:
        """The usual limits, or those that the variable COSIMO_ARCHIVE_LIMITS gives."""
        try:
            return cls.parse(os.environ.get(ENVIRONMENT, ""))
        except ConfigurationError as error:
            raise ConfigurationError(f"environment variable {ENVIRONMENT}: {error}") from None


def remedy(limit: str) -> str:
    """How to go on with a file that one trusts; `limit` is the name of the field."""
    return f"refused. If you trust the file, raise the archive limit '{_word(limit)}'"


def _word(name: str) -> str:
    return name.replace("_", "-")


def _number(word: str, text: str) -> int | float:
    found = re.fullmatch(r"(\d+(?:\.\d*)?(?:e\d{1,2})?) *([a-z]*)", text.lower())
    if found is None or found[2] not in _FACTORS:
        raise ConfigurationError(f"archive limit '{word}' is '{text}'; give a number, for sizes also as 500MB or 8GiB.")
    value = float(found[1]) * _FACTORS[found[2]]
    return value if word == "ratio" else int(value)


# ---- is an archive safe to unpack? Answered from its directory and headers alone, before a single byte is written ----
# Python's reader never yields more bytes of an entry than the directory declares, so that checking the declared sizes
# bounds what is written. What is refused here raises `UnsafeInputError`; what is merely broken is left to the reader.


_HEADER = 30  # bytes before the name in the header of each entry
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UTF8 = 0x800  # the flag of names in UTF-8; others are in code page 437
_UNICODE_PATH = 0x7075  # the extra field with a further name, which Python takes from 3.12 on
_FOLDERS = 100  # folders inside each other, far more than anybody makes; each is looked at


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
    return reason_on_windows(parts) if sys.platform == "win32" else None


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


# ---- descriptions in XML, read without entities, without a network and within limits ---------------------------------


_TYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))


def require_text(size: int, label: str, limits: ArchiveLimits) -> None:
    """Refuse a description, called `label` in messages, of too many bytes."""
    if size > limits.text_size:
        raise UnsafeInputError(f"'{label}' is larger than {limits.text_size:,} bytes; {remedy('text_size')}.")


def read_text(path: Path, limits: ArchiveLimits) -> bytes:
    """The content of a description that is a file of its own."""
    try:
        require_text(path.stat().st_size, str(path), limits)
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"'{path}' cannot be read: {error.strerror}.") from None


def parse_xml(content: bytes, file: str, limits: ArchiveLimits, *, undeclared: bool = False) -> Any:
    """The root element of a document (lxml), called `file` in messages, without a document type and deep nesting.

    Every tag costs a '<' and every attribute a '=' in all encodings that XML is written in; an element takes about 100
    times its four shortest bytes in memory, which the size alone does not bound. Entities are not replaced while
    reading, so that a document type does nothing before it is found and refused. `huge_tree` stays off: the library
    then also refuses single texts of more than 10 MB and entities that multiply. With `undeclared`, prefixes of
    namespaces that nobody declared are taken as part of the name.
    """
    from lxml import etree

    require_text(len(content), file, limits)
    items = content.count(b"<") + content.count(b"=")
    if items > limits.xml_items:
        raise UnsafeInputError(f"'{file}' has {items:,} tags and attributes, more than {limits.xml_items:,}; "
                               f"{remedy('xml_items')}.")  # fmt: skip
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, recover=True)
    try:
        root = etree.fromstring(content, parser)
        borne = ("NS_ERR_UNDEFINED_NAMESPACE",) if undeclared else ()
        log = [error for error in parser.error_log if error.level_name != "WARNING"]
        wrong = [(error.line, error.message) for error in log if error.type_name not in borne]
    except (
        etree.XMLSyntaxError,
        ValueError,
    ) as error:  # nothing that could be read, or bytes that lxml does not look at
        root, wrong = None, [(getattr(error, "lineno", None) or 1, str(getattr(error, "msg", error)))]
    typed = root is not None and root.getroottree().docinfo.doctype
    if typed or (wrong and any(mark in content for mark in _TYPES)):
        raise UnsafeInputError(
            f"'{file}' has a DOCTYPE, which FMI and SSP do not need and attackers exploit; remove it."
        )
    for line, reason in wrong:
        if "XML_PARSE_HUGE" in reason:  # it is not the syntax that is wrong but the size
            raise UnsafeInputError(f"'{file}' exceeds a limit: {_one_line(reason)}; refused.")
        raise FileError(f"not well-formed XML: {_one_line(reason)}.", file=file, line=line)
    if etree.XPath("boolean(" + "/*" * (limits.xml_depth + 1) + ")")(root):
        raise UnsafeInputError(f"'{file}' nests elements more than {limits.xml_depth} deep; {remedy('xml_depth')}.")
    return root


def _one_line(reason: object) -> str:
    # The library repeats what it found, line ends and all.
    return show(" ".join(str(reason).split()).rstrip("."))
