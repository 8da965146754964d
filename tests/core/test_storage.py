"""Files that appear whole or not at all, are held by one process at a time, and are known by what they hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cosimo.core.errors import OutputError
from cosimo.core.storage import file_digest, hold_path, replacing, writing


@pytest.mark.parametrize("unique", [False, True])
def test_a_file_is_replaced_at_the_end_of_the_block(tmp_path: Path, unique: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")
    with replacing(path, unique=unique) as new:
        new.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.csv"]


@pytest.mark.parametrize("unique", [False, True])
def test_what_fails_changes_nothing(tmp_path: Path, unique: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text("old")

    def write_half() -> None:
        with replacing(path, unique=unique) as new:
            new.write_text("ne")
            raise ValueError("half done")

    with pytest.raises(ValueError, match="half"):
        write_half()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.csv"]


def test_files_of_their_own_name_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with replacing(path, unique=True) as one, replacing(path, unique=True) as other:
        assert one != other
        one.write_text("1")
        other.write_text("2")
    assert path.read_text() == "1"


def test_a_failed_write_names_the_file_and_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "a.csv"
    expected = r"cannot write rows to '.*a\.csv': No such file or directory; make the folder\."
    with pytest.raises(OutputError, match=expected), writing(path, "make the folder", what="rows"):
        path.write_text("x")


HOLD = """
import sys, time
from pathlib import Path
from cosimo.core.storage import hold_path
hold_path(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(600)
"""


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.stream"
    path.touch()
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BlockingIOError):
            hold_path(path)
    finally:
        other.kill()
        other.communicate()
    os.close(hold_path(path))


def test_a_digest_follows_the_content(tmp_path: Path) -> None:
    path = tmp_path / "a.fmu"
    path.write_bytes(b"abc")
    assert file_digest(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    path.write_bytes(b"abcd")
    assert file_digest(path).startswith("88d4266fd4e6338d")


@pytest.mark.parametrize("name", ["aux.csv", "COM1.parquet", "rows. "])
def test_names_that_windows_does_not_keep_are_refused_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(OutputError, match=r"cannot write results to '.*': it has .* Windows"), writing(Path(name), ""):
        pass
