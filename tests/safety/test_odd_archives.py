"""Archives that are odd but do no harm: they are used, and what they hold lies where their names say."""

from __future__ import annotations

import io
import struct
import sys
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from attacks import added, called, declared, entry, fmu, package

from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.core.storage import reason_on_windows
from cosimo.formats.ssp import load_ssp
from cosimo.formats.ssp_files import ArchiveFiles
from cosimo.units.archives import ArchiveLimits, check_archive
from cosimo.units.fmi.archive import lease
from cosimo.units.fmi.fmu import Fmu


class Pipe(io.BytesIO):
    """A target without a way back: the writer puts the sizes behind the bytes."""

    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation


def streamed(archive: bytes) -> bytes:
    """The same with data descriptors: the headers leave open how long the entries are."""
    pipe = Pipe()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    written = pipe.getvalue()
    assert struct.unpack_from("<HIII", written, 6)[0] & 8
    assert b"PK\x07\x08" in written
    return written


def spelled(archive: bytes) -> bytes:
    """The same with every name as some tools of Windows write it, behind an entry for the top folder."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as source, zipfile.ZipFile(buffer, "w") as target:
        target.writestr(entry("./"), b"")
        for name in source.namelist():
            target.writestr(entry(".\\" + name.replace("/", "\\")), source.read(name))
    return buffer.getvalue()


def wide(archive: bytes) -> bytes:
    """One more entry whose header has its sizes in fields of 64 bits without need."""
    buffer = io.BytesIO(archive)
    with zipfile.ZipFile(buffer, "a") as file, file.open("resources/a", "w", force_zip64=True) as target:
        target.write(b"x")
    return buffer.getvalue()


def repeated(archive: bytes) -> bytes:
    """A name beyond ASCII as Info-ZIP writes it: its bytes without the flag for UTF-8, and in a further field."""
    raw = "resources/é".encode()
    info = zipfile.ZipInfo(raw.decode("cp437"))
    data = struct.pack("<BL", 1, zlib.crc32(raw)) + raw
    info.extra = struct.pack("<HH", 0x7075, len(data)) + data
    buffer = io.BytesIO(archive)
    with zipfile.ZipFile(buffer, "a") as file:
        file.writestr(info, b"x")
    written = buffer.getvalue().replace(info.filename.encode(), raw)
    return _without_flag(written, raw, len(info.filename.encode()))


def _without_flag(written: bytes, raw: bytes, length: int) -> bytes:
    """The archive after `raw` took the place of a name of `length` bytes in both headers."""
    data, shorter = bytearray(written), length - len(raw)
    local, central = data.rindex(b"PK\x03\x04"), data.rindex(b"PK\x01\x02")
    for at, flags, name in ((local, 6, 26), (central, 8, 28)):
        struct.pack_into("<H", data, at + flags, 0)
        struct.pack_into("<H", data, at + name, len(raw))
    size, start = struct.unpack_from("<II", data, len(data) - 10)
    struct.pack_into("<II", data, len(data) - 10, size - shorter, start - shorter)
    return bytes(data)


NESTED = io.BytesIO()
with zipfile.ZipFile(NESTED, "w") as inner:
    inner.writestr(entry("../evil"), "x")

ODD: dict[str, tuple[Callable[[bytes], bytes], dict[str, bytes]]] = {
    "data descriptors": (streamed, {}),
    "sizes of 64 bits": (wide, {"resources/a": b"x"}),
    "bytes in front": (lambda archive: b"#!/bin/sh\n" + archive, {}),
    "names of devices": (
        added((entry("resources/aux.c"), b"1"), (entry("resources/NUL"), b"2")),
        {"resources/aux.c": b"1", "resources/NUL": b"2"},
    ),
    "final dots and spaces": (
        added((entry("resources/a."), b"1"), (entry("resources/b /c "), b"2")),
        {"resources/a.": b"1", "resources/b /c ": b"2"},
    ),
    "an archive inside": (added((entry("resources/a.zip"), NESTED.getvalue())), {"resources/a.zip": NESTED.getvalue()}),
    "all names with backslashes": (spelled, {}),
    "the top folder": (added((entry("./"), b""), (entry("./resources/a"), b"1")), {"resources/a": b"1"}),
    "a file twice": (
        added((entry("resources/a"), b"1"), (entry("resources/a"), b"1"), (entry("resources/a"), b"1")),
        {"resources/a": b"1"},
    ),
    "backslashes": (
        added((entry("resources\\b\\"), b""), (entry("resources\\b\\c"), b"1"), (entry("resources/b/c"), b"1")),
        {"resources/b/c": b"1"},
    ),
    "backslashes behind a dot": (added((entry(".\\resources\\a"), b"1")), {"resources/a": b"1"}),
    "an empty folder, twice": (added((entry("resources/b/"), b""), (entry("resources/b/"), b"")), {}),
    "a folder with bytes": (added((entry("resources/b/"), b"evil")), {}),
    "the same name in a further field": (added((called("resources/a", "resources/a"), b"x")), {"resources/a": b"x"}),
}
REFUSED = {"names of devices": "the name of a device", "final dots and spaces": "ends in a dot or a space"}
"""What Windows keeps under no such name, and what is said there."""
if sys.platform != "win32":
    REFUSED = {}


def files(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unpacked(path: Path) -> dict[str, bytes]:
    held = lease(path)
    try:
        return files(held.path)
    finally:
        held.release()


@pytest.mark.parametrize("name", ODD)
def test_an_fmu(tmp_path: Path, name: str) -> None:
    change, more = ODD[name]
    expected = unpacked(path := fmu(tmp_path))
    path.write_bytes(change(path.read_bytes()))
    if name in REFUSED:
        with pytest.raises(UnsafeInputError, match=REFUSED[name]):
            Fmu(path)
        return
    assert Fmu(path).outputs == ("y",)
    assert unpacked(path) == expected | more


@pytest.mark.parametrize("name", ODD)
def test_a_package_and_an_fmu_in_it(tmp_path: Path, name: str) -> None:
    change, more = ODD[name]
    good = fmu(tmp_path).read_bytes()
    path = package(tmp_path / "p.ssp", change(good))
    path.write_bytes(change(path.read_bytes()))
    if name in REFUSED:
        with pytest.raises(UnsafeInputError, match=REFUSED[name]):
            load_ssp(path)
        return
    assert load_ssp(path).system.units["a"].outputs == ("y",)
    held = ArchiveFiles(path, ArchiveLimits())
    try:
        assert {name: held.on_disk(name).read_bytes() for name in held.members if name in more} == more
    finally:
        held.discard()


def test_a_name_in_bytes_that_a_further_field_repeats(tmp_path: Path) -> None:
    """Python extracts it under this name from 3.12 on, and under one of code page 437 before."""
    path = fmu(tmp_path)
    path.write_bytes(repeated(path.read_bytes()))
    (name,) = (name for name in unpacked(path) if name.startswith("resources/"))
    assert name in ("resources/é", "resources/é".encode().decode("cp437"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("resources/a", ""),
        ("resources/auxiliary.c", ""),
        ("resources/console", ""),
        ("resources/.hidden", ""),
        ("resources/aux.c", "device"),
        ("NUL", "device"),
        ("resources/Com1/a", "device"),
        ("lpt9 .txt", "device"),
        ("a./b", "dot or a space"),
        ("a/b ", "dot or a space"),
    ],
)
def test_names_that_windows_does_not_keep(name: str, reason: str) -> None:
    found = reason_on_windows(name.split("/"))
    assert (found is None) == (not reason)
    assert reason in (found or "")


@pytest.mark.parametrize("other", ["../evil", "/evil", "resources/a\nb", "resources/a", "RESOURCES/A"])
def test_the_name_that_an_entry_is_extracted_to_counts(other: str) -> None:
    """As from 3.12 on, where the reader takes it from elsewhere than from the directory."""
    buffer = io.BytesIO(added((entry("resources/a"), b"1"), (entry("harmless"), b"2"))(b""))
    with zipfile.ZipFile(buffer) as archive:
        check_archive(archive, "a.fmu", ArchiveLimits())
        archive.infolist()[-1].filename = other
        with pytest.raises(UnsafeInputError):
            check_archive(archive, "a.fmu", ArchiveLimits())


def test_a_folder_that_a_package_separates_with_backslashes(tmp_path: Path) -> None:
    path = package(tmp_path / "p.ssp", fmu(tmp_path).read_bytes())
    content = path.read_bytes()
    path.write_bytes(added((entry("data\\"), b""), (entry("data\\a"), b"1"))(content))
    assert load_ssp(path).system.units["a"].outputs == ("y",)
    path.write_bytes(added((entry("data\\"), b""), (entry("data"), b"2"))(content))
    with pytest.raises(UnsafeInputError, match="'data' as a file and as a folder"):
        load_ssp(path)


def test_an_entry_that_is_longer_than_it_declares(tmp_path: Path) -> None:
    path = fmu(tmp_path)
    path.write_bytes(declared(0)(path.read_bytes()))
    with pytest.raises(ConfigurationError, match=r"damaged or incomplete \(Bad CRC-32"):
        lease(path)


def test_names_of_many_folders_take_no_time(tmp_path: Path) -> None:
    path = fmu(tmp_path)
    path.write_bytes(added(*((entry(f"{k}/" + "a/" * 20_000 + "a"), b"") for k in range(10)))(path.read_bytes()))
    begin = time.process_time()
    with pytest.raises(UnsafeInputError, match="folders deep"):
        Fmu(path)
    assert time.process_time() - begin < 2
