"""Result files: every format there and back, interrupted runs, damaged files."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import asammdf
import h5py
import numpy as np
import pandas
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import processes
from cosimo.core.errors import ConfigurationError, OutputError
from cosimo.core.result import Result, Warned
from cosimo.core.storage import RESULT_SUFFIXES as KNOWN
from cosimo.formats import results
from cosimo.formats.results import FORMATS, ResultFile, read_result
from thinning import examples

NAMES = ("truck.x", "truck.v")
SUFFIXES = sorted(FORMATS)
WARNINGS = (Warned("the iteration did not converge", 0.25, 3), Warned("späte Warnung", 0.5))


def rows(count: int) -> np.ndarray:
    time_ = 0.1 * np.arange(count)
    return np.column_stack([time_, np.sin(time_) / 3, np.exp(-50 * time_)])


def write(path: Path, block: np.ndarray, *, complete: bool = True, names: tuple[str, ...] = NAMES) -> Path:
    with ResultFile(path).open(names, {"master": "jacobi", "step": 0.1, "scenario": {"units": ["truck"]}}) as recorder:
        recorder.record(block)
        recorder.close(complete, WARNINGS)
    return path


# ---- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("complete", [True, False])
def test_every_format_keeps_rows_and_document(tmp_path, suffix, complete):
    path = write(tmp_path / f"out{suffix}", rows(1000), complete=complete)
    result = read_result(path)
    assert result.names == NAMES
    np.testing.assert_array_equal(result.to_numpy(), rows(1000))
    assert result.complete is complete
    assert result.warnings == WARNINGS
    assert result.info["master"] == "jacobi"
    assert result.info["scenario"] == {"units": ["truck"]}
    assert set(result.info) == {"master", "step", "scenario", "started", "versions"}
    beside = [f"out{suffix}.json"] if FORMATS[suffix].sidecar else []
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([f"out{suffix}", *beside])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_runs_without_rows_and_without_variables(tmp_path, suffix):
    assert read_result(write(tmp_path / f"a{suffix}", rows(0))).values.shape == (0, 2)
    result = read_result(write(tmp_path / f"b{suffix}", rows(3)[:, :1], names=()))
    assert result.values.shape == (3, 0)
    np.testing.assert_array_equal(result.time, rows(3)[:, 0])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_many_small_flushes_become_few_chunks(tmp_path, suffix):
    recorder = ResultFile(tmp_path / f"o{suffix}", flush_interval=0.0).open(NAMES, {})
    for row in rows(300):
        recorder.record(row[None, :])
    recorder.close(complete=True)
    np.testing.assert_array_equal(read_result(tmp_path / f"o{suffix}").to_numpy(), rows(300))
    if suffix == ".parquet":
        assert pyarrow.parquet.ParquetFile(tmp_path / "o.parquet").num_row_groups == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_many_chunks(tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(results, "_CHUNK_BYTES", (1000, 2000))
    recorder = ResultFile(tmp_path / f"o{suffix}", flush_interval=0.0).open(NAMES, {})
    for block in np.array_split(rows(500), 100):
        recorder.record(block)
    recorder.close(complete=True)
    np.testing.assert_array_equal(read_result(tmp_path / f"o{suffix}").to_numpy(), rows(500))


@pytest.mark.parametrize("suffix", SUFFIXES)
@given(values=arrays(np.float64, (7, 3), elements=st.floats(width=64)))
@settings(max_examples=examples(60))
def test_every_double_reads_back_to_the_same_bits(suffix, values):
    with tempfile.TemporaryDirectory() as folder:
        found = read_result(write(Path(folder) / f"o{suffix}", values)).to_numpy()
    same = found.view(np.uint64) == values.view(np.uint64)
    assert (same | (np.isnan(found) & np.isnan(values))).all()


def test_random_bit_patterns_pass_through_text(tmp_path):
    bits = np.random.default_rng(1).integers(0, 2**64, size=(20_000, 3), dtype=np.uint64)
    values = np.where(np.isfinite(bits.view(np.float64)), bits.view(np.float64), 0.0)
    found = read_result(write(tmp_path / "o.csv", values)).to_numpy()
    np.testing.assert_array_equal(found.view(np.uint64), values.view(np.uint64))


def test_text_is_plain_and_shortest(tmp_path):
    values = np.array([[0.0, 0.1, 1 / 3], [1.0, 1e300, np.nan], [2.0, -np.inf, 5e-324]])
    text = write(tmp_path / "o.csv", values).read_text().splitlines()
    assert text == ["time,truck.x,truck.v", "0,0.1,0.3333333333333333", "1,1e+300,nan", "2,-inf,5e-324"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_awkward_names(tmp_path, suffix):
    names = ("a.x[1,2]", 'b."quoted name"', "größe.λ")
    block = np.arange(8.0).reshape(2, 4)
    assert read_result(write(tmp_path / f"o{suffix}", block, names=names)).names == names


def test_names_with_line_breaks_pass_through_text(tmp_path):
    path = write(tmp_path / "o.csv", rows(3), names=("a.'two\nlines'", "b.x"))
    result = read_result(path)
    assert result.names == ("a.'two\nlines'", "b.x")
    assert len(result) == 3


def test_pandas_reads_the_same(tmp_path):
    for suffix, read in ((".parquet", pandas.read_parquet), (".csv", pandas.read_csv), (".arrow", pandas.read_feather)):
        frame = read(write(tmp_path / f"o{suffix}", rows(50)))
        assert list(frame.columns) == ["time", *NAMES]
        np.testing.assert_allclose(frame.to_numpy(), rows(50), rtol=1e-15)


def test_the_sidecar_is_json_for_everybody(tmp_path):
    write(tmp_path / "o.csv", rows(3))
    document = json.loads((tmp_path / "o.csv.json").read_text())
    assert document["complete"] is True
    assert document["warnings"][0] == {
        "message": "the iteration did not converge",
        "time": 0.25,
        "count": 3,
        "grows": False,
    }


def test_text_written_by_a_result_is_read(tmp_path):
    written = Result(NAMES, rows(9)[:, 0], rows(9)[:, 1:])
    written.write_csv(tmp_path / "o.csv")
    result = read_result(tmp_path / "o.csv")
    np.testing.assert_array_equal(result.to_numpy(), written.to_numpy())
    assert result.complete


def test_options_reach_the_recorder(tmp_path):
    recorder = ResultFile(tmp_path / "o.parquet", variables=["*.v"], every=4).open(NAMES, {})
    recorder.record(rows(10))
    recorder.close(complete=True)
    np.testing.assert_array_equal(read_result(tmp_path / "o.parquet").to_numpy(), rows(10)[[0, 4, 8, 9]][:, [0, 2]])


def test_an_earlier_result_is_replaced_only_at_the_end(tmp_path):
    path = write(tmp_path / "o.parquet", rows(5))
    before = path.read_bytes()
    with ResultFile(path).open(NAMES, {}) as recorder:
        recorder.record(rows(8))
        recorder.flush()
        assert path.read_bytes() == before
        assert len(read_result(path)) == 8  # the stream is newer than the file
        recorder.close(complete=True)
    assert len(read_result(path)) == 8


# ---- interrupted runs ------------------------------------------------------------------------------------------------


def stream_bytes(folder: Path) -> tuple[Path, bytes]:
    """A stream of three batches of 4 rows, as a killed run leaves it."""
    path = folder / "o.parquet"
    recorder = ResultFile(path).open(NAMES, {"master": "jacobi"})
    for block in np.array_split(rows(12), 3):
        recorder.record(block)
        recorder.flush()
    stream = folder / "o.parquet.partial"
    data = stream.read_bytes()
    recorder.close(complete=True)
    return stream, data


def _schema_bytes(data: bytes) -> int:
    """The length of the first message, which holds the names of the columns."""
    source = pyarrow.BufferReader(data)
    pyarrow.ipc.read_message(source)
    return source.tell()


def test_a_stream_cut_within_the_names_of_its_columns_is_refused_by_name(tmp_path):
    stream, data = stream_bytes(tmp_path)
    for length in range(0, _schema_bytes(data), 7):
        stream.write_bytes(data[:length])
        with pytest.raises(ConfigurationError, match=r"o\.parquet\.partial' is damaged"):
            read_result(stream)


def test_a_stream_cut_anywhere_else_gives_the_rows_before_the_cut(tmp_path):
    stream, data = stream_bytes(tmp_path)
    counts = []
    for length in range(_schema_bytes(data), len(data) + 1):
        stream.write_bytes(data[:length])
        result = read_result(stream)
        assert not result.complete
        assert result.info["master"] == "jacobi"
        np.testing.assert_array_equal(result.to_numpy(), rows(12)[: len(result)])
        counts.append(len(result))
    assert counts == sorted(counts)
    assert set(counts) == {0, 4, 8, 12}


RECORDS_FOR_EVER = """
    import sys
    import numpy as np
    from cosimo.formats.results import ResultFile

    recorder = ResultFile(sys.argv[1], flush_interval=0.005).open(["a.x"], {"master": "jacobi"})
    count = 0
    while True:
        size = 1 + (7919 * count) % 5000
        k = np.arange(count, count + size, dtype=float)
        recorder.record(np.column_stack([k * 1e-3, np.sqrt(k)]))
        count += size
        if count % 3 == 0:
            recorder.flush()
            print(count, flush=True)
"""


@pytest.mark.parametrize("repetition", range(6))
@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
@pytest.mark.one_in(5)
def test_after_kill_minus_nine_the_ordinary_reader_returns_all_flushed_rows(tmp_path, suffix, repetition):
    path = tmp_path / f"out{suffix}"
    command = [sys.executable, "-c", textwrap.dedent(RECORDS_FOR_EVER), str(path)]
    with processes.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert int(process.stdout.readline()) > 0  # by now rows have been flushed
        time.sleep(random.Random(f"{suffix}{repetition}").uniform(0.0, 0.15))
        process.kill()
        told = [int(line) for line in process.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    assert not path.exists()
    result = read_result(path)
    k = np.arange(len(result), dtype=float)
    assert len(result) >= max(told, default=1)
    np.testing.assert_array_equal(result.time, k * 1e-3)
    np.testing.assert_array_equal(result["a.x"], np.sqrt(k))
    assert not result.complete
    assert result.info["master"] == "jacobi"


def test_a_disk_that_fills_up_during_conversion_keeps_the_stream(tmp_path):
    code = """
        import resource, sys
        import numpy as np
        from cosimo.core.errors import OutputError
        from cosimo.formats.results import ResultFile

        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
        recorder = ResultFile(sys.argv[1]).open(["a.x"], {})
        recorder.record(np.random.default_rng(0).random((40_000, 2)))  # 640 kB as numbers, 1.5 MB as text
        try:
            recorder.close(complete=True)
        except OutputError as error:
            print(error)
    """
    path = tmp_path / "o.csv"
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    told = processes.run(command, check=True, capture_output=True, text=True).stdout
    assert told.startswith(f"cannot write results to '{path}': File too large; all rows are kept in '{path}.partial'")
    assert [file.name for file in tmp_path.iterdir()] == ["o.csv.partial"]
    result = read_result(path)
    assert result.complete
    np.testing.assert_array_equal(result.to_numpy(), np.random.default_rng(0).random((40_000, 2)))


def test_a_stream_damaged_before_conversion_is_not_thrown_away(tmp_path):
    stream, data = stream_bytes(tmp_path)
    (tmp_path / "o.parquet").unlink()
    stream.write_bytes(data[:-20])
    with pytest.raises(OSError, match="Expected to be able to read"):  # the recorder says the rest
        results.convert(stream, tmp_path / "o.parquet", {})
    assert [file.name for file in tmp_path.iterdir()] == [stream.name]


# ---- wrong files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["o.xlsx", "o", "o.CSV.gz"])
def test_unknown_suffixes_list_the_known_ones(tmp_path, name):
    known = r"use \.parquet, \.csv, \.arrow, \.arrows, \.mat, \.h5 or \.mf4\."
    with pytest.raises(ConfigurationError, match=rf"cannot write .*{known}"):
        ResultFile(tmp_path / name)
    (tmp_path / name).touch()
    with pytest.raises(ConfigurationError, match=rf"cannot read .*{known}"):
        read_result(tmp_path / name)


def test_a_missing_folder_is_told_on_opening(tmp_path):
    with pytest.raises(OutputError, match=r"missing[/\\]o\.parquet"):
        ResultFile(tmp_path / "missing" / "o.parquet").open(NAMES, {})


@pytest.mark.parametrize("name", ["o.parquet", "o.parquet.partial"])
def test_a_missing_file_is_told(tmp_path, name):
    with pytest.raises(ConfigurationError, match=f"the file '.*{name}' does not exist"):
        read_result(tmp_path / name)


def test_a_folder_is_not_a_result_file(tmp_path):
    for suffix in SUFFIXES:
        (tmp_path / f"o{suffix}").mkdir()
        with pytest.raises(ConfigurationError, match=rf"o\{suffix}'"):
            read_result(tmp_path / f"o{suffix}")


@pytest.mark.parametrize("suffix", [*SUFFIXES, ".parquet.partial"])
@pytest.mark.parametrize("content", [b"", b"\0", b"hello, world\nthis, is text\n", bytes(range(256)) * 40])
def test_foreign_files_are_refused_by_name(tmp_path, suffix, content):
    path = tmp_path / f"o{suffix}"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError) as caught:
        read_result(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".arrow", ".mat", ".parquet"])
def test_files_cut_short_are_refused_by_name(tmp_path, suffix):
    path = write(tmp_path / f"o{suffix}", rows(100))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ConfigurationError, match=rf"o\{suffix}' is damaged or not a result file"):
        read_result(path)


@pytest.mark.parametrize("text", ["time,a.x\n0,1\n1\n", "time,a.x\n0,1\n1,two\n", "a.x,b.x\n0,1\n"])
def test_text_that_is_no_result_is_refused(tmp_path, text):
    (tmp_path / "o.csv").write_text(text)
    with pytest.raises(ConfigurationError, match=r"o\.csv' is damaged or not a result file"):
        read_result(tmp_path / "o.csv")


def test_a_damaged_sidecar_is_named(tmp_path):
    path = write(tmp_path / "o.csv", rows(3))
    (tmp_path / "o.csv.json").write_text("{")
    with pytest.raises(ConfigurationError, match=r"o\.csv\.json' is damaged"):
        read_result(path)


# ---- HDF5 and MDF of other tools -------------------------------------------------------------------------------------


def test_every_known_suffix_has_its_format():
    assert set(KNOWN) == set(FORMATS)


@pytest.mark.parametrize("suffix", [".h5", ".mf4"])
def test_other_tools_find_signals_by_name_with_their_physical_units(tmp_path, suffix):
    path = tmp_path / f"o{suffix}"
    with ResultFile(path).open(NAMES, {"physical_units": {"truck.v": "m/s"}}) as recorder:
        recorder.record(rows(10_000))
        recorder.close(complete=True)
    if suffix == ".h5":
        with h5py.File(path) as file:
            values, unit, scale = file["truck.v"][()], file["truck.v"].attrs["units"], file["truck.v"].dims[0][0]
            assert scale.name == "/time"
    else:
        with asammdf.MDF(path) as file:
            signal = file.get("truck.v")
            values, unit = signal.samples, signal.unit
            np.testing.assert_array_equal(signal.timestamps, rows(10_000)[:, 0])
    np.testing.assert_array_equal(values, rows(10_000)[:, 2])
    assert unit == "m/s"
    assert read_result(path).physical_units == {"truck.v": "m/s"}


def test_hdf_files_of_other_tools(tmp_path):
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file["time"], file["truck/x"], file["truck/count"] = [0.0, 0.5], [1.0, 2.0], np.array([3, 4], dtype=np.int16)
        file["note"], file["table"] = "made elsewhere", np.zeros((2, 2))
    result = read_result(tmp_path / "o.h5")
    assert result.names == ("truck/count", "truck/x")
    np.testing.assert_array_equal(result.to_numpy(), [[0.0, 3.0, 1.0], [0.5, 4.0, 2.0]])


def test_mdf_files_of_other_tools(tmp_path):
    time = np.array([0.0, 0.5])
    with asammdf.MDF() as file:
        file.append([asammdf.Signal(time + 1, time, name="x")])
        file.append([asammdf.Signal(time.astype(np.int8), time, name="n")])
        file.save(tmp_path / "same.mf4")
        file.append([asammdf.Signal(time, time + 0.1, name="late")])
        file.save(tmp_path / "other.mf4")
    np.testing.assert_array_equal(read_result(tmp_path / "same.mf4").to_numpy(), [[0.0, 1.0, 0.0], [0.5, 1.5, 0.0]])
    with pytest.raises(ConfigurationError, match="different times; save one of them, or resample it"):
        read_result(tmp_path / "other.mf4")


def test_hdf_without_time_is_refused(tmp_path):
    with h5py.File(tmp_path / "o.h5", "w") as file:
        file["x"] = [1.0]
    with pytest.raises(ConfigurationError, match=r"o\.h5' is damaged or not a result file: it has no dataset 'time'"):
        read_result(tmp_path / "o.h5")


@pytest.mark.parametrize(("suffix", "library", "extra"), [(".h5", "h5py", "hdf5"), (".mf4", "asammdf", "mdf")])
def test_a_missing_library_is_named_before_the_run(suffix, library, extra, monkeypatch):
    monkeypatch.setattr(results, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=f"without {library}: install cosimo with the extra '{extra}'"):
        ResultFile(f"o{suffix}")
