"""Temporary folders of extracted FMUs and packages: removed by their process, or by the next one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

import processes
from cosimo.units.fmi.archive import TemporaryFolder, remove_left_behind


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_a_folder_goes_away_with_its_owner_only(tmp_path: Path) -> None:
    place = TemporaryFolder()
    assert place.path.name.startswith("cosimo-fmu-locked-")
    (place.path / "resources").mkdir()
    remove_left_behind(tmp_path)
    other = TemporaryFolder()
    assert (place.path / "resources").is_dir()
    place.remove()
    place.remove()
    assert [path for path in tmp_path.iterdir() if path.suffix != ".lock"] == [other.path]  # Windows locks no folder
    other.remove()


@pytest.mark.parametrize("made", ["units.fmi.archive import TemporaryFolder", "formats.ssp_files import Workspace"])
def test_what_a_killed_process_leaves_is_removed(made: str, tmp_path: Path) -> None:
    code = f"from cosimo.{made} as F; f = F(); import os; os.kill(os.getpid(), 9)"
    processes.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    foreign = tmp_path / "cosimo-fmu-of-an-earlier-version"
    foreign.mkdir()
    assert len(list(tmp_path.iterdir())) == 2
    TemporaryFolder().remove()
    assert list(tmp_path.iterdir()) == [foreign]


def test_a_link_is_left_alone(tmp_path: Path) -> None:
    foreign, link = tmp_path / "cosimo-fmu-of-an-earlier-version", tmp_path / "cosimo-fmu-locked-link"
    foreign.mkdir()
    link.symlink_to(foreign)
    TemporaryFolder().remove()
    assert sorted(tmp_path.iterdir()) == sorted([foreign, link])
