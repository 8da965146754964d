"""Recorder: choice of rows and variables, memory, the stream on disk, and what happens when it cannot be written."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pyarrow
import pytest

import processes
from cosimo.core.errors import ConfigurationError, DimensionError, OutputError, UnknownNameError
from cosimo.core.result import Result, Warned
from cosimo.execution import recording
from cosimo.execution.recording import Recorder, choose
from cosimo.formats.results import read_result

NAMES = ("truck.x", "truck.v", "tyre.x")


def rows(count: int, first: int = 0) -> np.ndarray:
    """Row k: t = 0.1 k, then 10 k + column."""
    k = np.arange(first, first + count, dtype=float)
    return np.column_stack([0.1 * k, 10 * k, 10 * k + 1, 10 * k + 2])


def in_memory(count: int, blocks: int, **options: object) -> Result:
    recorder = Recorder(None, NAMES, **options)  # type: ignore[arg-type]
    for block in np.array_split(rows(count), blocks):
        recorder.record(block)
    result = recorder.close(complete=True)
    assert result is not None
    return result


def run_python(code: str, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return processes.run(command, check=check, capture_output=True, text=True, timeout=300)


# ---- rows and variables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("blocks", [1, 3, 7, 20])
@pytest.mark.parametrize("every", [1, 2, 3, 7, 19, 20, 50])
def test_decimation_keeps_first_every_nth_and_last_whatever_the_blocks(every, blocks):
    result = in_memory(20, blocks, every=every)
    expected = sorted({*range(0, 20, every), 19})
    np.testing.assert_array_equal(result.to_numpy(), rows(20)[expected])


def test_empty_blocks_change_nothing():
    recorder = Recorder(None, NAMES, every=3)
    for block in (rows(0), rows(2), rows(0), rows(3, first=2), rows(0)):
        recorder.record(block)
    assert recorder.rows == 5
    np.testing.assert_array_equal(recorder.close(complete=True).time, rows(5)[[0, 3, 4], 0])


def test_no_rows_give_an_empty_result():
    result = Recorder(None, NAMES, every=2).close(complete=False)
    assert result.values.shape == (0, 3)
    assert not result.complete


def test_variables_are_chosen_by_pattern_in_the_order_of_the_names():
    result = in_memory(4, 2, variables=["tyre.x", "truck.?"])
    assert result.names == NAMES
    result = in_memory(4, 2, variables=["*.x"])
    assert result.names == ("truck.x", "tyre.x")
    np.testing.assert_array_equal(result["tyre.x"], rows(4)[:, 3])


def test_a_pattern_that_matches_nothing_names_itself_and_the_nearest():
    with pytest.raises(UnknownNameError, match=r"'truck\.y'; did you mean 'truck\.[xv]'"):
        choose(NAMES, ["truck.x", "truck.y"])


def test_a_whole_name_with_an_index_is_itself():
    assert choose(["a.x[1]", "a.x[2]", "a.x1"], ["a.x[2]"]) == [1]
    assert choose(["a.x[1]", "a.x[2]", "a.x1"], ["a.x[[]*"]) == [0, 1]


def test_patterns_respect_capitals():
    with pytest.raises(UnknownNameError):
        choose(NAMES, ["Truck.*"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"every": 0}, "every 0-th"),
        ({"flush_interval": -1.0}, "flush interval is -1.0"),
        ({"flush_interval": float("nan")}, "flush interval is nan"),
    ],
)
def test_wrong_options_are_refused(options, message):
    with pytest.raises(ConfigurationError, match=message):
        Recorder(None, NAMES, **options)


@pytest.mark.parametrize("names", [("a.x", "a.x"), ("a.x", "time")])
def test_names_must_tell_columns_apart(names):
    with pytest.raises(ConfigurationError, match="distinct names"):
        Recorder(None, names)


@pytest.mark.parametrize("shape", [(4,), (2, 3), (2, 5), (1, 2, 4)])
def test_blocks_of_another_width_are_refused(shape):
    with pytest.raises(DimensionError, match=r"expected \(any, 4\)"):
        Recorder(None, NAMES).record(np.zeros(shape))


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reserve", [0, 10, 5000, 10**15])
def test_memory_grows_and_copies_the_blocks(reserve):
    recorder = Recorder(None, NAMES)
    recorder.reserve(reserve)
    block = np.empty((700, 4))
    for number in range(7):
        block[:] = rows(700, first=700 * number)
        recorder.record(block)
    block[:] = np.nan
    np.testing.assert_array_equal(recorder.close(complete=True).to_numpy(), rows(4900))


def test_result_carries_warnings_and_info():
    recorder = Recorder(None, NAMES, metadata={"master": "jacobi"})
    recorder.record(rows(1))
    result = recorder.close(True, [Warned("careful", 0.5, 2)], info={"sweeps": 3})
    assert result.warnings == (Warned("careful", 0.5, 2),)
    assert result.info == {"master": "jacobi", "sweeps": 3}


def test_a_closed_recorder_takes_no_rows_and_is_not_closed_again():
    recorder = Recorder(None, NAMES)
    recorder.close(complete=True)
    with pytest.raises(ConfigurationError, match="closed"):
        recorder.record(rows(1))
    with pytest.raises(ConfigurationError, match="closed twice"):
        recorder.close(complete=True)


# ---- the stream ------------------------------------------------------------------------------------------------------


def test_the_stream_is_readable_from_the_first_moment_and_becomes_the_file(tmp_path):
    path = tmp_path / "out.arrows"
    recorder = Recorder(path, NAMES, flush_interval=1000.0, metadata={"step": 0.1})
    assert len(read_result(path)) == 0
    recorder.record(rows(5))
    assert len(read_result(path)) == 0  # still in the buffer
    recorder.flush()
    so_far = read_result(path)
    np.testing.assert_array_equal(so_far.to_numpy(), rows(5))
    assert not so_far.complete
    assert so_far.info["step"] == 0.1
    recorder.record(rows(2, first=5))
    assert recorder.close(True, [Warned("careful", 0.5)], info={"wall_time": np.float64(2.5)}) is None
    assert [file.name for file in tmp_path.iterdir()] == ["out.arrows"]
    result = read_result(path)
    np.testing.assert_array_equal(result.to_numpy(), rows(7))
    assert result.complete
    assert result.warnings == (Warned("careful", 0.5),)
    assert result.info["wall_time"] == 2.5
    assert set(result.info["versions"]) == {"cosimo", "python", "numpy"}
    assert result.info["started"].endswith("+00:00")


def test_rows_are_flushed_when_the_interval_has_passed(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(recording.time, "monotonic", lambda: now[0])
    path = tmp_path / "out.arrows"
    with Recorder(path, NAMES, flush_interval=1.0) as recorder:
        found = []
        for number in range(5):
            recorder.record(rows(1, first=number))
            found.append(len(read_result(path)))
            now[0] += 0.4
    assert found == [0, 0, 0, 4, 4]


@pytest.mark.parametrize("width", [1, 3, 300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_blocks_larger_than_the_buffer_and_wide_rows(tmp_path, width):
    count = 3 * recording.capacity(width) + 5
    block = np.arange(count * width, dtype=float).reshape(count, width)
    with Recorder(tmp_path / "o.arrows", [f"u.x{i}" for i in range(width - 1)]) as recorder:
        recorder.record(block)
        recorder.close(complete=True)
    np.testing.assert_array_equal(read_result(tmp_path / "o.arrows").to_numpy(), block)


def test_decimation_and_choice_reach_the_file(tmp_path):
    with Recorder(tmp_path / "o.arrows", NAMES, every=4, variables=["*.v"]) as recorder:
        for number in range(7):
            recorder.record(rows(1, first=number))
        recorder.close(complete=True)
    np.testing.assert_array_equal(read_result(tmp_path / "o.arrows").to_numpy(), rows(7)[[0, 4, 6]][:, [0, 2]])


def test_leaving_the_block_by_an_error_keeps_the_rows_as_incomplete(tmp_path):
    def fail() -> None:
        with Recorder(tmp_path / "o.arrows", NAMES) as recorder:
            recorder.record(rows(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    result = read_result(tmp_path / "o.arrows")
    assert len(result) == 3
    assert not result.complete


def test_other_suffixes_need_a_converter(tmp_path):
    with pytest.raises(ConfigurationError, match="ResultFile"):
        Recorder(tmp_path / "o.parquet", NAMES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("metadata", [{"step": float("nan")}, {"unit": object()}])
def test_metadata_that_is_not_plain_data_is_refused_before_the_first_step(tmp_path, metadata):
    with pytest.raises(ConfigurationError, match="metadata"):
        Recorder(tmp_path / "o.arrows", NAMES, metadata=metadata)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_run_left_is_replaced(tmp_path):
    (tmp_path / "o.arrows.partial").write_bytes(b"left behind")
    with Recorder(tmp_path / "o.arrows", NAMES) as recorder:
        recorder.record(rows(2))
    assert len(read_result(tmp_path / "o.arrows")) == 2


def test_two_runs_cannot_record_to_the_same_file(tmp_path):
    with Recorder(tmp_path / "o.arrows", NAMES) as recorder:
        with pytest.raises(OutputError, match="another run is recording"):
            Recorder(tmp_path / "o.arrows", NAMES)
        recorder.record(rows(2))
    assert len(read_result(tmp_path / "o.arrows")) == 2


# ---- places that cannot be written to --------------------------------------------------------------------------------


def test_a_missing_folder_is_told_before_the_first_step(tmp_path):
    with pytest.raises(OutputError, match=r"missing[/\\]o\.arrows': No such file or directory") as caught:
        Recorder(tmp_path / "missing" / "o.arrows", NAMES)
    assert caught.value.exit_code == 7


def test_a_folder_in_the_place_of_the_file_is_told_before_the_first_step(tmp_path):
    (tmp_path / "o.arrows").mkdir()
    with pytest.raises(OutputError, match=r"o\.arrows': Is a directory"):
        Recorder(tmp_path / "o.arrows", NAMES)


def test_a_file_in_the_place_of_the_folder_is_told_before_the_first_step(tmp_path):
    (tmp_path / "file").touch()
    reason = "No such file or" if sys.platform == "win32" else "Not a"
    with pytest.raises(OutputError, match=rf"file[/\\]o\.arrows': {reason} directory"):
        Recorder(tmp_path / "file" / "o.arrows", NAMES)


def test_a_read_only_folder_is_told_before_the_first_step(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    code = """
        import os, sys
        from cosimo.core.errors import OutputError
        from cosimo.execution.recording import Recorder
        Recorder(sys.argv[2], ["a.x"]).close(complete=True)  # loads what later may no longer be readable
        if os.geteuid() == 0:  # root may write anywhere: be somebody else
            os.seteuid(65534)
        try:
            Recorder(sys.argv[1], ["a.x"])
        except OutputError as error:
            print(error)
    """
    told = run_python(code, folder / "o.arrows", tmp_path / "open.arrows").stdout
    assert f"cannot write results to '{folder / 'o.arrows'}': Permission denied" in told


def test_a_full_disk_keeps_the_rows_before(tmp_path):
    code = """
        import resource, sys
        import numpy as np
        from cosimo.core.errors import OutputError
        from cosimo.execution.recording import Recorder
        resource.setrlimit(resource.RLIMIT_FSIZE, (5_000_000, 5_000_000))  # Python ignores SIGXFSZ: writes fail
        with Recorder(sys.argv[1], ["a.x", "a.v"]) as recorder:
            for number in range(1000):
                k = np.arange(4096 * number, 4096 * (number + 1), dtype=float)
                recorder.record(np.column_stack([k, -k, 2 * k]))
    """
    path = tmp_path / "o.arrows"
    ended = run_python(code, path, check=False)
    assert ended.returncode != 0
    assert ended.stderr.count("Traceback") == 1  # the failed write, and nothing on the way out
    assert f"OutputError: cannot write results to '{path}': File too large" in ended.stderr
    assert f"'{path}.partial'" in ended.stderr
    result = read_result(path)
    assert not result.complete
    assert len(result) * 24 > 3_000_000
    np.testing.assert_array_equal(result.time, np.arange(len(result)))
    np.testing.assert_array_equal(result["a.v"], 2 * result.time)


def test_importing_the_module_does_not_import_arrow():
    code = """
        import sys
        import cosimo.execution.recording, cosimo.formats.results
        print([name for name in sys.modules if name.split(".")[0] in ("pyarrow", "scipy", "pandas")])
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip() == "[]"


def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    code = """
        import sys
        from pathlib import Path
        import numpy as np
        from cosimo.formats.results import ResultFile

        def kilobytes(key):
            lines = Path("/proc/self/status").read_text().splitlines()
            return next(int(line.split()[1]) for line in lines if line.startswith(key))

        def record(count):
            recorder = ResultFile(sys.argv[1]).open(["a.x", "a.v", "b.x"], {})
            block = np.random.default_rng(0).standard_normal((4096, 4))
            for _ in range(count // 4096):
                recorder.record(block)
            recorder.close(complete=True)

        record(400_000)
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = kilobytes("VmHWM")
        record(2_000_000)  # 64 MB
        print(kilobytes("VmHWM") - before)
    """
    assert int(run_python(code, tmp_path / "o.parquet").stdout) < 16_000


def test_the_stream_is_plain_arrow(tmp_path):
    with Recorder(tmp_path / "o.arrows", NAMES) as recorder:
        recorder.record(rows(3))
    table = pyarrow.ipc.open_stream(tmp_path / "o.arrows").read_all()
    assert table.column_names == ["time", *NAMES]
    assert table.num_rows == 3


def test_paths_may_be_given_as_text_and_hold_any_characters(tmp_path):
    path = Path(tmp_path / "Ergebnis ü" / "run 1.arrows")
    path.parent.mkdir()
    with Recorder(str(path), NAMES) as recorder:
        recorder.record(rows(1))
    assert len(read_result(str(path))) == 1
