"""Archives: damaged and unsafe ones, extraction, sharing and removal of the extracted folder."""

from __future__ import annotations

import os
import stat
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import ConfigurationError, UnsafeInputError
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.archive import lease, read_description


def archive(path: Path, members: dict[str, bytes | str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"FMU '.*nowhere.fmu' does not exist"):
        read_description(tmp_path / "nowhere.fmu")
    with pytest.raises(ConfigurationError, match="does not exist"):
        lease(tmp_path / "nowhere.fmu")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a folder; give a file"):
        read_description(tmp_path)


def test_not_a_zip(tmp_path: Path) -> None:
    path = tmp_path / "text.fmu"
    path.write_text("no archive")
    with pytest.raises(ConfigurationError, match="is not a zip archive"):
        read_description(path)


def test_truncated(tmp_path: Path) -> None:
    path = build(tmp_path, "minimal2")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ConfigurationError, match="is damaged or incomplete"):
        read_description(path)


def test_damaged_content(tmp_path: Path) -> None:
    path = tmp_path / "damaged.fmu"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("modelDescription.xml", "<a/>" * 50)
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(ConfigurationError, match="is damaged or incomplete"):
        read_description(path)


def test_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    path = build(tmp_path, "minimal2")
    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    with pytest.raises(ConfigurationError, match="cannot be read: Permission denied"):
        read_description(path)


def test_no_description(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no modelDescription"):
        read_description(archive(tmp_path / "a.fmu", {"readme.txt": "x"}))


def test_broken_xml_gives_the_line(tmp_path: Path) -> None:
    path = build(tmp_path, "minimal2", changes={"</ModelVariables>": "</Variables>"})
    with pytest.raises(ConfigurationError, match=r"modelDescription\.xml:7: not well-formed XML"):
        read_description(path)


def test_invalid_description_gives_the_line(tmp_path: Path) -> None:
    path = build(tmp_path, "minimal2", changes={'causality="input"': 'causality="inward"'})
    with pytest.raises(ConfigurationError, match=r"not valid: .*line 6.*inward"):
        read_description(path)


def test_rules_beyond_the_schema_are_checked_unless_told_otherwise(tmp_path: Path) -> None:
    path = build(tmp_path, "minimal2", changes={'<Real start="1"/>': "<Real/>"})
    with pytest.raises(ConfigurationError, match=r'Variable "u" \(line 6\) has no start value'):
        read_description(path)
    description, _, overlooked = read_description(path, validate=False)
    assert any("no start value" in problem for problem in overlooked)
    assert description.modelName == "Minimal"


def test_nonsense_that_is_not_validated(tmp_path: Path) -> None:
    path = build(tmp_path, "minimal2", changes={'index="1"': 'index="99"'})
    with pytest.raises(ConfigurationError, match="cannot be understood: IndexError"):
        read_description(path, validate=False)


@pytest.mark.parametrize("version", ["0.9", "4.0"])
def test_other_versions_are_refused(tmp_path: Path, version: str) -> None:
    path = build(tmp_path, "minimal2", changes={'fmiVersion="2.0"': f'fmiVersion="{version}"'})
    with pytest.raises(ConfigurationError, match=f"has FMI version {version}; FMI 1.0, 2.0 and 3.0 are supported"):
        read_description(path)


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/etc/evil", "C:/evil", "..\\evil"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, temporary: Path, name: str) -> None:
    path = archive(tmp_path / "evil.fmu", {"modelDescription.xml": "<x/>", name: "x"})
    with pytest.raises(UnsafeInputError, match="leads elsewhere") as caught:
        lease(path)
    assert caught.value.exit_code == 8
    assert not list(temporary.iterdir())


def test_links_are_refused(tmp_path: Path, temporary: Path) -> None:
    path = tmp_path / "link.fmu"
    info = zipfile.ZipInfo("resources/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(info, "/etc/passwd")
    with pytest.raises(UnsafeInputError, match="'resources/link' is a link"):
        lease(path)


def test_more_bytes_than_allowed_are_refused(tmp_path: Path, temporary: Path) -> None:
    path = archive(tmp_path / "bomb.fmu", {"resources/zeros": bytes(10**7)})
    assert path.stat().st_size < 10**5
    with pytest.raises(UnsafeInputError, match="would take 10,000,000 bytes unpacked"):
        lease(path, limits=ArchiveLimits(total_size=10**6, ratio=1e9))
    assert not list(temporary.iterdir())


def test_a_huge_description_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeInputError, match="larger than 100 bytes"):
        read_description(build(tmp_path, "minimal2"), limits=ArchiveLimits(text_size=100))


def test_content_is_extracted_once_and_removed_with_the_last_user(tmp_path: Path, temporary: Path) -> None:
    path = build(tmp_path, "minimal2")
    copy = tmp_path / "copy.fmu"
    copy.write_bytes(path.read_bytes())
    first, second = lease(path), lease(copy)
    assert first.path == second.path
    assert (first.path / "modelDescription.xml").is_file()
    assert (first.path / "resources").is_dir()
    first.release()
    first.release()
    assert second.path.is_dir()
    del second
    assert not list(temporary.iterdir())


def test_single_use(tmp_path: Path, temporary: Path) -> None:
    path = build(tmp_path, "minimal2")
    first = lease(path, single=True)
    with pytest.raises(ConfigurationError, match="only once per process"):
        lease(path, single=True)
    first.release()
    lease(path, single=True).release()
    assert not list(temporary.iterdir())


def test_a_changed_archive_is_extracted_anew(tmp_path: Path, temporary: Path) -> None:
    path = archive(tmp_path / "a.fmu", {"resources/x": "old"})
    first = lease(path)
    archive(path, {"resources/x": "newer"})
    second = lease(path)
    assert (first.path / "resources/x").read_text() == "old"
    assert (second.path / "resources/x").read_text() == "newer"


def test_executables_stay_executable(tmp_path: Path, temporary: Path) -> None:
    path = tmp_path / "tool.fmu"
    info = zipfile.ZipInfo("resources/tool")
    info.external_attr = (stat.S_IFREG | 0o755) << 16
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(info, "#!/bin/sh\n")
    held = lease(path)
    assert os.access(held.path / "resources/tool", os.X_OK)


def test_failing_extraction_leaves_nothing(tmp_path: Path, temporary: Path) -> None:
    path = archive(tmp_path / "long.fmu", {"resources/a": "file", "resources/" + 300 * "b": "too long a name"})
    with pytest.raises(ConfigurationError, match="cannot be unpacked into"):
        lease(path)
    assert not list(temporary.iterdir())
