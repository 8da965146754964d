"""Folders of interrupted runs that are copied or moved: a run goes on where its checkpoint is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from interrupted import interrupt_scenario, wait_for_checkpoints, write_scenario

from cosimo.core.errors import CheckpointError, Interrupted
from cosimo.core.result import Result
from cosimo.formats.results import read_result
from cosimo.formats.resuming import resumable, resume


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.execution.session.BLOCK", 7)


def require_rows(path: Path, theirs: Result) -> None:
    ours = read_result(path)
    assert ours.complete
    np.testing.assert_array_equal(ours.to_numpy(), theirs.to_numpy())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"}


def test_a_copy_leaves_the_original_alone(tmp_path: Path) -> None:
    first, copy = tmp_path / "first", tmp_path / "copy"
    theirs = interrupt_scenario(write_scenario(first), first / "rows.csv")
    shutil.copytree(first, copy)
    before = contents(first)
    assert resumable(copy / "rows.csv").options.metadata["scenario"]["path"] == str(copy / "tank.toml")
    resume(copy / "rows.csv")
    require_rows(copy / "rows.csv", theirs)
    assert contents(first) == before
    resume(first / "rows.csv")
    require_rows(first / "rows.csv", theirs)


def test_values_and_an_input_file_of_the_command_line_go_along(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    scenario = write_scenario(first)
    (first / "in.csv").write_text("time,inflow,valve\n0,1,1\n0.7,1,1\n0.7,3,0\n")
    changes = {"settings": {"tank.area": 2.0}, "input_file": str(first / "in.csv")}
    theirs = interrupt_scenario(scenario, first / "rows.csv", changes)
    assert theirs["tank.level"][-1] > theirs["tank.level"][70] > 0.8
    first.rename(second)
    resume(second / "rows.csv")
    require_rows(second / "rows.csv", theirs)


def test_a_folder_that_is_moved_again_and_again(tmp_path: Path) -> None:
    """Also one that is interrupted where it was moved to, whose checkpoints are then written there."""
    first, second, third = (tmp_path / name for name in ("first", "deep/second", "third"))
    theirs = interrupt_scenario(write_scenario(first), first / "out" / "rows.csv")
    second.parent.mkdir()
    first.rename(second)

    def progress(now: float, _: float) -> None:
        wait_for_checkpoints()
        if now > 0.8:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        resume(second / "out" / "rows.csv", progress=progress)
    second.rename(third)
    resume(third / "out" / "rows.csv")
    require_rows(third / "out" / "rows.csv", theirs)
    assert not first.exists()
    assert not second.exists()


def test_what_stayed_is_found_where_it_was(tmp_path: Path) -> None:
    theirs = interrupt_scenario(write_scenario(tmp_path / "scenarios"), tmp_path / "runs" / "1" / "rows.csv")
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "runs" / "1").rename(tmp_path / "far" / "away" / "1")
    resume(tmp_path / "far" / "away" / "1" / "rows.csv")
    require_rows(tmp_path / "far" / "away" / "1" / "rows.csv", theirs)

    theirs = interrupt_scenario(tmp_path / "scenarios" / "tank.toml", tmp_path / "runs" / "2" / "rows.csv")
    alone = tmp_path / "c"
    (tmp_path / "runs" / "2" / "rows.csv.checkpoint").rename(alone)
    resume(alone)
    require_rows(tmp_path / "runs" / "2" / "rows.csv", theirs)


def test_rows_that_were_left_behind_are_named(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    interrupt_scenario(write_scenario(first), first / "rows.csv")
    first.rename(second)
    (second / "rows.csv.partial").unlink()
    with pytest.raises(CheckpointError, match=r"there is no '.*second.rows.csv.partial'"):
        resume(second / "rows.csv")
    (second / "tank.toml").unlink()
    with pytest.raises(CheckpointError, match=r"cannot build what '.*' belongs to: .*second.tank.toml' does not exist"):
        resume(second / "rows.csv")


def test_relative_paths_and_other_working_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = tmp_path / "first", tmp_path / "other"
    write_scenario(first)
    other.mkdir()
    monkeypatch.chdir(first)
    theirs = interrupt_scenario(Path("tank.toml"), Path("rows.csv"))
    monkeypatch.chdir(other)
    resume("../first/rows.csv")
    require_rows(first / "rows.csv", theirs)
    assert not any(other.iterdir())
