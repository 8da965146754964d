"""The stream on disk: where it lies, who holds it, what a loss of power leaves, and how a later run goes on with it."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import processes
from cosimo.core.errors import CheckpointError, OutputError
from cosimo.execution import recording
from cosimo.execution.recording import Position, Recorder, checked_batches
from cosimo.formats.results import ResultFile, convert, read_result

NAMES = ("truck.x", "truck.v")
RUN = "1a2b"


def rows(count: int) -> np.ndarray:
    return np.arange(3.0 * count).reshape(count, 3)


def interrupted(path: Path) -> Position:
    """A stream of two batches of 20 rows that waits for a run to go on with it."""
    with Recorder(path, NAMES, metadata={"run": RUN}) as recorder:
        recorder.record(rows(40)[:20])
        recorder.flush()
        recorder.record(rows(40)[20:])
        position = recorder.position(RUN)
        recorder.keep = True
    return position


def going_on(path: Path, position: Position) -> Recorder:
    return Recorder(path, NAMES, metadata={"run": RUN}, position=position)


# ---- the working directory -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".arrows", ".csv", ".mat", ".parquet"])
def test_the_file_lies_where_it_was_asked_for(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    recorder = ResultFile(f"o{suffix}").open(NAMES, {})
    monkeypatch.chdir(elsewhere)
    recorder.record(rows(3))
    recorder.close(complete=True)
    assert not list(elsewhere.iterdir())
    assert len(read_result(tmp_path / f"o{suffix}")) == 3
    assert not list(tmp_path.glob("*.partial"))


def test_messages_show_the_path_as_it_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=r"to 'missing[/\\]o\.csv'"):
        ResultFile("missing/o.csv").open(NAMES, {})
    recorder = ResultFile("o.csv").open(NAMES, {})
    with pytest.raises(OutputError, match=r"to 'o\.csv\.partial'"):
        ResultFile("o.csv").open(NAMES, {})
    (tmp_path / "o.csv").mkdir()
    why = "Permission denied" if sys.platform == "win32" else "Is a directory"
    with pytest.raises(OutputError, match=rf"to 'o.csv': {why}; all rows are kept in 'o.csv.partial'"):
        recorder.close(complete=True)


def test_a_stream_that_cannot_be_converted_is_kept(tmp_path: Path) -> None:
    def damaged(stream: Path, target: Path, document: object) -> None:
        os.truncate(stream, stream.stat().st_size - 700)
        convert(stream, target, {})

    recorder = Recorder(tmp_path / "o.parquet", NAMES, convert=damaged)
    recorder.record(rows(3))
    recorder.flush()
    recorder.record(rows(3))
    with pytest.raises(OutputError, match=r"o\.parquet': .*; 3 of 6 rows can be read from '.*o\.parquet\.partial'"):
        recorder.close(complete=True)
    assert [file.name for file in tmp_path.iterdir()] == ["o.parquet.partial"]


# ---- a loss of power -------------------------------------------------------------------------------------------------


@pytest.fixture
def noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is brought to the disk, put in place and removed, by name and in order."""
    notes: list[str] = []

    def noting(word: str, do: Callable[..., None], name: Callable[..., str]) -> Callable[..., None]:
        def call(*given: object, **more: object) -> None:
            notes.append(f"{word} {name(*given)}")
            do(*given, **more)

        return call

    def existing(path: Path) -> str:
        return path.name if path.exists() else "nothing"

    def opened(descriptor: int) -> str:
        number = os.fstat(descriptor).st_ino
        return next(path.name for path in (tmp_path, *tmp_path.iterdir()) if path.stat().st_ino == number)

    monkeypatch.setattr(os, "fsync", noting("sync", os.fsync, opened))
    monkeypatch.setattr(os, "replace", noting("rename", os.replace, lambda old, new: Path(old).name))
    monkeypatch.setattr(Path, "unlink", noting("remove", Path.unlink, existing))
    return notes


def real(notes: list[str]) -> list[str]:
    return [note for note in notes if note != "remove nothing"]


def possible(notes: list[str], folder: Path) -> list[str]:
    """What this system can do of it: Windows brings no folder to the disk."""
    named = [note.format(folder=folder.name) for note in notes]
    return [note for note in named if sys.platform != "win32" or note != f"sync {folder.name}"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("o.arrows", ["sync o.arrows.partial", "rename o.arrows.partial", "sync {folder}"]),
        ("o.parquet", ["sync o.parquet.new", "rename o.parquet.new", "sync {folder}", "remove o.parquet.partial"]),
        (
            "o.csv",
            ["sync o.csv.json", "sync o.csv.new", "rename o.csv.new", "sync {folder}", "remove o.csv.partial"],
        ),
    ],
)
def test_the_final_file_is_on_the_disk_before_the_stream_goes(
    name: str, expected: list[str], tmp_path: Path, noted: list[str]
) -> None:
    with ResultFile(tmp_path / name).open(NAMES, {}) as recorder:
        recorder.record(rows(3))
        noted.clear()
        recorder.close(complete=True)
    assert real(noted) == possible(expected, tmp_path)


def test_rows_taken_over_are_on_the_disk_before_the_old_ones_go(tmp_path: Path, noted: list[str]) -> None:
    position = interrupted(tmp_path / "o.arrows")
    noted.clear()
    with going_on(tmp_path / "o.arrows", position):
        before = real(noted)
    assert before == possible(["sync o.arrows.partial.new", "rename o.arrows.partial.new", "sync {folder}"], tmp_path)


# ---- going on --------------------------------------------------------------------------------------------------------


def test_rows_before_the_position_are_taken_over(tmp_path: Path) -> None:
    position = interrupted(tmp_path / "o.arrows")
    assert position.written == 40
    with going_on(tmp_path / "o.arrows", Position(25, 25, RUN)) as recorder:
        recorder.record(-rows(2))
        recorder.close(complete=True)
    np.testing.assert_array_equal(read_result(tmp_path / "o.arrows").to_numpy(), np.vstack([rows(40)[:25], -rows(2)]))
    assert [file.name for file in tmp_path.iterdir()] == ["o.arrows"]


@pytest.mark.parametrize("part", [0.0, 0.1, 0.3, 0.5, 0.6, 0.7])
def test_a_stream_that_was_cut_is_refused_as_such(part: float, tmp_path: Path) -> None:
    """In the schema, between batches, inside one: it is a wrong input, and nothing is wrong with the output."""
    position = interrupted(tmp_path / "o.arrows")
    stream = tmp_path / "o.arrows.partial"
    os.truncate(stream, int(part * stream.stat().st_size))
    left = stream.read_bytes()
    with pytest.raises(CheckpointError, match="lacks rows from before the checkpoint: ") as caught:
        going_on(tmp_path / "o.arrows", position)
    assert caught.value.exit_code == 2
    assert stream.read_bytes() == left
    assert not (tmp_path / "o.arrows.partial.new").exists()


def test_a_disk_that_is_full_is_not_taken_for_a_stream_that_was_cut(tmp_path: Path) -> None:
    interrupted(tmp_path / "o.arrows")
    code = """
        import resource, sys
        from cosimo.core.errors import OutputError
        from cosimo.execution.recording import Position, Recorder
        resource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))
        try:
            Recorder(sys.argv[1], ["truck.x", "truck.v"], metadata={"run": "1a2b"}, position=Position(40, 40, "1a2b"))
        except OutputError as error:
            print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path / "o.arrows")]
    assert "File too large" in processes.run(command, check=True, capture_output=True, text=True).stdout
    assert sorted(file.name for file in tmp_path.iterdir()) == ["o.arrows", "o.arrows.partial"]


# ---- who holds it ----------------------------------------------------------------------------------------------------


def test_what_another_run_is_taking_over_is_left_alone(tmp_path: Path) -> None:
    position = interrupted(tmp_path / "o.arrows")
    new = tmp_path / "o.arrows.partial.new"
    with going_on(tmp_path / "o.arrows", position):
        new.write_bytes(b"of the other one")
        with pytest.raises(OutputError, match="another run is recording"):
            going_on(tmp_path / "o.arrows", position)
        assert new.read_bytes() == b"of the other one"


def test_what_a_killed_run_was_taking_over_is_removed(tmp_path: Path) -> None:
    position = interrupted(tmp_path / "o.arrows")
    (tmp_path / "o.arrows.partial.new").write_bytes(b"left behind")
    with going_on(tmp_path / "o.arrows", position) as recorder:
        recorder.close(complete=True)
    assert [file.name for file in tmp_path.iterdir()] == ["o.arrows"]


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_is_no_longer_there_cannot_be_held(replaced: bool, tmp_path: Path) -> None:
    """Opened, and then another run put its own in place, or ended."""
    path = tmp_path / "o.arrows.partial"
    path.touch()
    with path.open("rb") as old:
        path.unlink()
        if replaced:
            path.touch()
        with pytest.raises(OutputError, match="another run is recording"):
            recording._lock(old, path, path)


def test_no_other_run_begins_while_the_final_file_is_made(tmp_path: Path) -> None:
    path, told = tmp_path / "o.parquet", []

    def slowly(stream: Path, target: Path, document: object) -> None:
        with pytest.raises(OutputError, match="another run is recording"):
            ResultFile(path).open(NAMES, {})
        told.append(stream.exists())
        convert(stream, target, {})

    with Recorder(path, NAMES, convert=slowly) as recorder:
        recorder.record(rows(3))
        recorder.close(complete=True)
    assert told == [True]
    assert len(read_result(path)) == 3


# ---- streams that are changed ----------------------------------------------------------------------------------------


def flip(path: Path, value: float) -> None:
    """Change one bit of the first number of this value."""
    data = bytearray(path.read_bytes())
    place = data.index(np.float64(value).tobytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_flipped_bit_is_noticed_on_reading(tmp_path: Path) -> None:
    with Recorder(tmp_path / "o.arrows", NAMES) as recorder:
        for part in np.split(rows(40), 4):
            recorder.record(part)
            recorder.flush()
        recorder.close(complete=True)
    assert read_result(tmp_path / "o.arrows").complete
    flip(tmp_path / "o.arrows", 61.0)  # in the third batch
    found = read_result(tmp_path / "o.arrows")
    assert len(found) == 20
    assert not found.complete
    assert "row 20 and those after it were changed" in found.warnings[-1].message


def test_a_flipped_bit_is_noticed_on_resuming(tmp_path: Path) -> None:
    position = interrupted(path := tmp_path / "o.arrows")
    flip(tmp_path / "o.arrows.partial", 61.0)
    with pytest.raises(CheckpointError, match="row 20 and those after it were changed"):
        going_on(path, position)


def test_a_flipped_bit_does_not_get_into_the_final_file(tmp_path: Path) -> None:
    def damaged(stream: Path, target: Path, document: object) -> None:
        flip(stream, 61.0)
        convert(stream, target, {})

    recorder = Recorder(tmp_path / "o.parquet", NAMES, convert=damaged)
    recorder.record(rows(10))
    recorder.flush()
    recorder.record(rows(40)[10:])
    with pytest.raises(OutputError, match=r"checksum differs; 10 of 40 rows can be read from '.*o\.parquet\.partial'"):
        recorder.close(complete=True)
    assert not (tmp_path / "o.parquet").exists()


def test_a_batch_that_is_missing_is_noticed(tmp_path: Path) -> None:
    import pyarrow

    with Recorder(tmp_path / "o.arrows", NAMES) as recorder:
        for part in np.split(rows(40), 4):
            recorder.record(part)
            recorder.flush()
        recorder.close(complete=True)
    reader = pyarrow.ipc.open_stream((tmp_path / "o.arrows").read_bytes())
    with pyarrow.OSFile(str(tmp_path / "less.arrows"), "wb") as sink, pyarrow.ipc.new_stream(sink, reader.schema) as to:
        for batch, carried in [entry for number, entry in enumerate(checked_batches(reader)) if number != 2]:
            to.write_batch(batch, carried)
    assert len(found := read_result(tmp_path / "less.arrows")) == 10
    assert not found.complete


@pytest.mark.parametrize(
    ("disturb", "says"),
    [
        (lambda path: path.unlink(), "was removed during the run; no rows are left"),
        (lambda path: os.truncate(path, 1000), "was changed by somebody else during the run; "),
        (lambda path: (path.unlink(), path.touch()), "was replaced during the run; no rows are left"),
        (
            lambda path: path.write_bytes(path.read_bytes() + b"x"),
            "changed by somebody else .*; 20 of 40 rows can be read",
        ),
    ],
)
def test_a_stream_that_somebody_touches_is_noticed(
    disturb: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    recorder = Recorder(tmp_path / "o.csv", NAMES, convert=convert)
    recorder.record(rows(20))
    recorder.flush()
    disturb(tmp_path / "o.csv.partial")
    recorder.record(rows(40)[20:])
    with pytest.raises(OutputError, match=says):
        recorder.flush()
    assert recorder.close(complete=False) is None  # nothing more is written


@pytest.mark.parametrize("which", ["_sink", "_claim"])
def test_a_descriptor_that_leads_elsewhere_is_noticed(which: str, tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "o.csv", NAMES, convert=convert)
    recorder.record(rows(20))
    nothing = os.open("/dev/null", os.O_WRONLY)
    os.dup2(nothing, getattr(recorder._store, which).fileno())
    os.close(nothing)
    with pytest.raises(OutputError, match=r"during the run; no rows are left"):
        recorder.flush()
