"""Pictures are written in the format of their suffix, in one look."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosimo.core.errors import OutputError
from cosimo.reporting.pictures import picture


@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_every_format_is_written(suffix: str, begin: bytes, tmp_path: Path) -> None:
    path = tmp_path / f"picture.{suffix}"
    with picture(path, (2.0, 2.0), "choose another file") as (_, axes):
        axes.plot([0.0, 1.0], [0.0, 1.0])
    assert path.read_bytes().startswith(begin)


@pytest.mark.parametrize("name", ["picture.xyz", "nowhere/picture.png"])
def test_what_cannot_be_written_is_refused_with_the_remedy(name: str, tmp_path: Path) -> None:
    with (
        pytest.raises(OutputError, match=r"picture\.\w+': .*; choose another file, such as front\.png\.$"),
        picture(tmp_path / name, (2.0, 2.0), "choose another file, such as front.png"),
    ):
        pass
