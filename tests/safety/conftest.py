"""What the tests of this folder share."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosimo.units.fmi.archive import remove_left_behind


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder to work in; beside it lies the one for temporary files, and afterwards nothing else does."""
    folder, temporary = tmp_path / "work", tmp_path / "temporary files"
    folder.mkdir()
    temporary.mkdir()
    yield folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary files", "work"]
    if sys.platform == "win32":  # no library that is loaded is removed: the next process does it
        remove_left_behind(temporary)
    assert list(temporary.iterdir()) == []
