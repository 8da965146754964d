"""Archives: raw bytes, and layouts that are made on purpose. Whatever is accepted must stay where it belongs.

An input begins with a letter: `f` and `s` are raw bytes of an FMU and a package, `F` and `S` a layout, an entry a line,

    name | mode | method | flags | declared size | content

written as an archive whose directory says exactly that. After an accepted archive was extracted, everything lies inside
the private folder, below the limits, and is gone with the lease.
"""

from __future__ import annotations

import io
import struct
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fuzz.dictionary import words
from fuzz.model_description import XMLS
from fuzz.places import extracted, folder

LIMIT = 2**20
WORDS = words(
    r"""
    ../ ..\ / C: C:/ \ // ./ . .. modelDescription.xml MODELDESCRIPTION.XML binaries/ resources/ a.so | 0120777
    0100644 040755 010600 0 8 12 14 99 1 8 2048 4294967295 SystemStructure.ssd
    """,
    b"PK\x03\x04",
    b"PK\x01\x02",
    b"PK\x05\x06",
    b"PK\x06\x06",
)
_LAYOUTS = (
    "modelDescription.xml|0100644|8|0||<a/>\nresources/|040755|0|0||\nresources/x|0100644|8|0||hello\n",
    "modelDescription.xml|0|0|0||<a/>\n../evil|0|0|0||x\n",
    "a|0120777|0|0||/etc/passwd\n",
    "a|0|0|0||1\nA|0|0|0||2\na/b|0|0|0||3\n",
    "a|0|8|1||secret\nb|0|12|0||bzip\nc|0|0|0|99999999|short\n",
    "SystemStructure.ssd|0|8|2048||<a/>\nresources\\f.fmu|0|8|0||PK\n",
)


MODULES = ("cosimo.formats.ssp_files", "cosimo.units.fmi.archive")


def seeds() -> Iterator[bytes]:
    """Layouts, and the archives that they make."""
    for letter in "FS":
        for layout in _LAYOUTS:
            yield letter.encode() + layout.encode()
            yield letter.lower().encode() + _write(layout.encode())
    yield b"f" + _write(
        b"modelDescription.xml|0100644|8|0||" + (XMLS / "minimal2.xml").read_bytes().replace(b"\n", b" ")
    )


@cache
def _here() -> Path:
    there = folder() / "archives"
    there.mkdir()
    return there


def check(data: bytes) -> None:
    """Extract an FMU; read a package and copy every file out of it."""
    content = data[1:] if data[:1] in b"fs" else _write(data[1:])
    package = data[:1] in b"sS"
    path = _here() / ("a.ssp" if package else "a.fmu")
    path.write_bytes(content)
    tempfile.tempdir = str(extracted())
    try:
        (_package if package else _fmu)(path)
    finally:
        tempfile.tempdir = None
        left = list(extracted().iterdir())
        assert not left, f"left behind: {left}"
        assert {file.name for file in _here().iterdir()} <= {"a.ssp", "a.fmu"}, "written outside"


def _fmu(path: Path) -> None:
    from cosimo.core.errors import CosimoError
    from cosimo.units.archives import ArchiveLimits
    from cosimo.units.fmi.archive import lease, read_description

    limits = ArchiveLimits(total_size=LIMIT, entries=100)
    held = lease(path, limits=limits)
    try:
        size = sum(file.stat().st_size for file in held.path.rglob("*") if file.is_file())
        assert size <= LIMIT, f"{size} bytes extracted"
        assert not any(file.is_symlink() for file in held.path.rglob("*")), "a link was extracted"
    finally:
        held.release()
    try:
        read_description(path, limits=limits)
    except CosimoError:
        return


def _package(path: Path) -> None:
    from cosimo.core.errors import CosimoError
    from cosimo.formats.ssp_files import ArchiveFiles
    from cosimo.units.archives import ArchiveLimits

    files = ArchiveFiles(path, ArchiveLimits(total_size=LIMIT, entries=100))
    try:
        for name in files.members:
            try:
                files.read(name)
                there = files.on_disk(files.locate(name, "")).resolve()
                assert extracted().resolve() in there.parents, f"{there} lies outside"
            except CosimoError:
                continue
    finally:
        files.discard()


def _write(layout: bytes) -> bytes:
    """The archive that a layout describes, with every field of its directory as it is given."""
    body, directory, count = io.BytesIO(), b"", 0
    for line in layout.split(b"\n")[:200]:
        fields = line.split(b"|", 5)
        if len(fields) < 6:
            continue
        name, mode, method, flags, size, content = fields
        packed = zlib.compress(content)[2:-4] if method == b"8" else content
        declared = _number(size, 10) if size else len(content)
        head = struct.pack(
            "<HHHHIIIHH",
            *(_number(flags, 10) & 0xFFFF, _number(method, 10) & 0xFFFF, 0, 33, zlib.crc32(content), len(packed)),
            *(declared & 0xFFFFFFFF, len(name) & 0xFFFF, 0),
        )
        attributes = (_number(mode, 8) & 0xFFFF) << 16
        directory += b"PK\x01\x02" + struct.pack("<HH", 0x0314, 20) + head
        directory += struct.pack("<HHHII", 0, 0, 0, attributes, body.tell()) + name
        body.write(b"PK\x03\x04" + struct.pack("<H", 20) + head + name + packed)
        count += 1
    start = body.tell()
    end = struct.pack("<HHHHIIH", 0, 0, count, count, len(directory), start, 0)
    return body.getvalue() + directory + b"PK\x05\x06" + end


def _number(text: bytes, base: int) -> int:
    try:
        return int(text, base) & 0xFFFFFFFF
    except ValueError:
        return 0
