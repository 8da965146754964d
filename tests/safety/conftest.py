"""What the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder to work in; beside it lies the one for temporary files, and afterwards nothing else does."""
    folder, temporary = tmp_path / "work", tmp_path / "temporary files"
    folder.mkdir()
    temporary.mkdir()
    yield folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["temporary files", "work"]
    assert list(temporary.iterdir()) == []
