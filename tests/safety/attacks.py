"""Archives that nobody should trust, made on purpose, and the harmless FMU that hides them."""

from __future__ import annotations

import io
import stat
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))
from fmu_builder import build

MIB = 2**20
GOOD = (Path(__file__).parents[1] / "fmus" / "minimal2.xml").read_bytes()


def entry(name: str, content: bytes = b"x", *, mode: int = 0, method: int = zipfile.ZIP_STORED) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.filename = name  # ZipInfo turns some signs into others
    info.external_attr, info.compress_type = mode << 16, method
    return info


def called(name: str, other: str) -> zipfile.ZipInfo:
    """An entry that is called `other` in the extra field for names in Unicode, which Python takes from 3.12 on."""
    info = entry(name)
    data = struct.pack("<BL", 1, zlib.crc32(name.encode())) + other.encode()
    info.extra = struct.pack("<HH", 0x7075, len(data)) + data
    return info


def added(*entries: tuple[zipfile.ZipInfo | str, bytes]) -> Callable[[bytes], bytes]:
    """An attack that adds entries to an archive."""

    def attack(archive: bytes) -> bytes:
        buffer = io.BytesIO(archive)
        with zipfile.ZipFile(buffer, "a", zipfile.ZIP_DEFLATED) as file:
            for info, content in entries:
                with warnings.catch_warnings(action="ignore"):  # Python's writer warns of names that are there already
                    file.writestr(info, content)
        return buffer.getvalue()

    return attack


def patched(field: int, form: str, value: int) -> Callable[[bytes], bytes]:
    """An attack that changes a field of the first entry in the directory (and of its header, where both have it)."""

    def attack(archive: bytes) -> bytes:
        data = bytearray(archive)
        at = _directory(archive)
        struct.pack_into(form, data, at + field, value)
        if field < 28:
            struct.pack_into(form, data, field - 2, value)
        return bytes(data)

    return attack


def _directory(archive: bytes) -> int:
    """Where the directory begins, as the last 22 bytes say."""
    return int.from_bytes(archive[-6:-2], "little")


def overlapping(archive: bytes) -> bytes:
    """Two entries of the directory point to the same bytes."""
    data = bytearray(archive)
    first = _directory(archive)
    second = data.index(b"PK\x01\x02", first + 4)
    data[second + 42 : second + 46] = data[first + 42 : first + 46]
    return bytes(data)


def declared(size: int) -> Callable[[bytes], bytes]:
    """An attack that adds an entry of one byte whose size, in fields of 64 bits where it needs them, is another."""

    def attack(archive: bytes) -> bytes:
        buffer = io.BytesIO(archive)
        with zipfile.ZipFile(buffer, "a") as file:
            file.writestr(info := entry("resources/a"), b"x")
            info.file_size = size
        return buffer.getvalue()

    return attack


def other_header(archive: bytes) -> bytes:
    """The header of the first entry gives it another name than the directory."""
    data = bytearray(archive)
    data[_HEADER : _HEADER + 5] = b"../ev"
    return bytes(data)


def shared_through_headers(archive: bytes) -> bytes:
    """The header of the first entry reaches over that of the second, so that both have the same bytes."""
    data = bytearray(archive)
    second = data.index(b"PK\x03\x04", 4)
    struct.pack_into("<H", data, 28, second)
    return bytes(data)


_HEADER = 30
FINAL = "ends in a dot or a space" if sys.platform == "win32" else "the same name to some systems"
"""What is said of names that differ in these only: on Windows one of them is refused in any case."""
ATTACKS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "parent folder": (added((entry("../evil"), b"x")), "'../evil' has '..' in its name"),
    "parent inside": (added((entry("resources/../../evil"), b"x")), "'..' in its name"),
    "absolute": (added((entry("/tmp/evil"), b"x")), "absolute name"),
    "backslash to the parent folder": (added((entry("..\\evil"), b"x")), r"'..\evil' has '..' in its name"),
    "backslash to the parent inside": (added((entry("a\\..\\..\\evil"), b"x")), "'..' in its name"),
    "backslash of the top folder": (added((entry("\\evil"), b"x")), "absolute name"),
    "backslashes of a server": (added((entry("\\\\host\\evil"), b"x")), "absolute name"),
    "drive behind a dot": (added((entry(".\\C:\\evil"), b"x")), "absolute name"),
    "absolute behind a dot": (added((entry(".//evil"), b"x")), "absolute name"),
    "parent behind a dot": (added((entry("./../evil"), b"x")), "'..' in its name"),
    "file called dot": (added((entry("resources/."), b"x")), "no proper name"),
    "drive": (added((entry("C:/evil"), b"x")), "absolute name"),
    "stream": (added((entry("resources/a:evil"), b"x")), "colon in its name"),
    "no name": (added((entry("resources//a"), b"x")), "no proper name"),
    "control": (added((entry("resources/\x1b[2Ja\nb"), b"x")), r"'resources/\x1b[2Ja\nb' has control characters"),
    "link": (added((entry("resources/link", mode=stat.S_IFLNK | 0o777), b"/etc/passwd")), "is a link"),
    "device": (added((entry("resources/d", mode=stat.S_IFCHR | 0o600), b"")), "neither a file nor a folder"),
    "twice": (
        added((entry("resources/a"), b"1"), (entry("resources/a"), b"2")),
        "'resources/a' twice, with different content",
    ),
    "twice by a backslash": (
        added((entry("resources/a"), b"1"), (entry("resources\\a"), b"2")),
        "twice, with different content",
    ),
    "twice by a dot": (added((entry("resources/a"), b"1"), (entry("./resources/a"), b"2")), "different content"),
    "twice of one checksum": (
        added((entry("resources/a"), b"plumless"), (entry("resources/a"), b"buckeroo")),
        "twice, with different content",
    ),
    "case": (added((entry("resources/a"), b"1"), (entry("resources/A"), b"2")), "the same name to some systems"),
    "accent": (added((entry("resources/\u00e9"), b"1"), (entry("resources/e\u0301"), b"2")), "the same name to some"),
    "file and folder": (
        added((entry("resources/a"), b"1"), (entry("resources/a/b"), b"2")),
        "as a file and as a folder",
    ),
    "ratio": (added(("resources/zeros", bytes(8 * MIB))), "a ratio above 200"),
    "encrypted": (patched(8, "<H", 1), "is encrypted"),
    "compression": (added((entry("resources/a", method=zipfile.ZIP_BZIP2), b"x")), "compressed with 'bzip2'"),
    "name in a further field": (
        added((called("resources/harmless", "../modelDescription.xml"), b"evil")),
        "'resources/harmless' is called '../modelDescription.xml' in a further field",
    ),
    "plain name in a further field": (added((called("resources/a", "resources/b"), b"x")), "in a further field"),
    "name in the header": (other_header, "in its own header"),
    "final dot": (added((entry("resources/a"), b"1"), (entry("resources/a."), b"2")), FINAL),
    "final space": (added((entry("resources/a"), b"1"), (entry("resources /A"), b"2")), FINAL),
    "dots and spaces": (added((entry("resources/.. /a"), b"x")), "no proper name"),
    "file and empty folder": (added((entry("resources/a"), b"1"), (entry("resources/A/"), b"")), "and as a folder"),
    "deep": (added((entry("a/" * 200 + "a"), b"x")), "more than 100 folders deep"),
    "size of 64 bits": (declared(2**40), "1,099,511,627,776 bytes from 1, a ratio above 200"),
    "shared through headers": (shared_through_headers, "overlap"),
    "overlap": (overlapping, "overlap"),
}


def fmu(folder: Path, name: str = "a.fmu") -> Path:
    """A good FMU with a library, which every attack begins with."""
    return build(folder, "minimal2", file=name)


def package(path: Path, inside: bytes, name: str = "f.fmu", kind: str = "") -> Path:
    """An SSP package with one component."""
    from ssp_builder import component, document, system

    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("SystemStructure.ssd", document(system(component("a", source=name, more=kind))))
        archive.writestr(name, inside)
    return path
