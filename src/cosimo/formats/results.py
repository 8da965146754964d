"""Result files: what a recording ends in, and how it is read back.

    suffix      holds                                     the document that describes the run is
    .parquet    Parquet, one row group per chunk          in the key-value metadata, key `cosimo`
    .arrow      Arrow IPC file                            in the schema's metadata, key `cosimo`
    .arrows     Arrow IPC stream, as it was recorded      in its first and last message, key `cosimo`
    .csv        text, every number reads back exactly     in `<file>.json`
    .mat        MATLAB level 4, as Modelica tools do      in `<file>.json`
    .h5         HDF5, one dataset per signal              in the dataset `cosimo`
    .mf4        ASAM MDF 4, one channel group             in the attachment `cosimo.json`

Conversion goes chunk by chunk and puts the finished file in place at once, so a final file is always whole. To add a
format, give a suffix its `Format` here and its place in `RESULT_SUFFIXES`: how record batches are written, how
they are read, who keeps the document, and which library it needs.
"""

from __future__ import annotations

import csv
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError, OutputError, no_such_file, require_regular
from cosimo.core.result import Result, Warned, quote_cell
from cosimo.core.storage import RESULT_SUFFIXES, bring_to_disk, replacing
from cosimo.core.unit import Text
from cosimo.execution.recording import (
    METADATA_KEY,
    NUMBERS,
    STREAM_SUFFIX,
    DamagedRows,
    Position,
    Recorder,
    checked_batches,
    dump,
    numbers_of,
    open_rows,
)

if TYPE_CHECKING:
    import pyarrow

    Batches = Iterable[pyarrow.RecordBatch]


_CHUNK_BYTES = (4 << 20, 32 << 20)
_CHUNK_ROWS = 4096  # Parquet keeps notes on every column of every chunk in memory: wide rows get larger chunks
_CSV_BLOCK = 16 << 20  # a line must fit into one block


@dataclass(frozen=True)
class FileRows:
    """What a reader found: names and columns, time first, and the document if the file holds it."""

    names: Sequence[str]
    rows: Array
    document: Mapping[str, Any] | None = None
    texts: Mapping[str, Sequence[Text]] = field(default_factory=dict)


@dataclass(frozen=True)
class Format:
    """How one suffix is written and read; `sidecar` when the document does not fit into the file itself.

    `needs` is the library that an extra of cosimo installs, and the name of that extra. `texts`: it holds columns that
    are no numbers; others leave them out.
    """

    write: Callable[[Batches, pyarrow.Schema, Path], None]
    read: Callable[[Path], FileRows]
    sidecar: bool = False
    needs: tuple[str, str] | None = None
    texts: bool = True


@dataclass(frozen=True)
class ResultFile:
    """Where and how to record: the file (its suffix says the format), which variables, which rows, how often flushed.

    >>> ResultFile("a.xls")
    Traceback (most recent call last):
    cosimo.core.errors.ConfigurationError: cannot write 'a.xls': use .parquet, .csv, .arrow, .arrows, .mat, .h5 or .mf4.
    """

    path: str | Path
    variables: Sequence[str] | None = None
    every: int = 1
    flush_interval: float = 1.0

    def __post_init__(self) -> None:
        _format(Path(self.path), "write")

    def open(
        self,
        names: Sequence[str],
        metadata: Mapping[str, Any],
        position: Position | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> Recorder:
        """A recorder whose stream lies beside the file; raises `OutputError` when it cannot be written there."""
        return Recorder(
            self.path,
            names,
            every=self.every,
            variables=self.variables,
            flush_interval=self.flush_interval,
            metadata=metadata,
            convert=None if Path(self.path).suffix == ".arrows" else convert,
            position=position,
            texts=texts,
        )


def convert(stream: Path, target: Path, document: Mapping[str, Any]) -> None:
    """Turn the rows of `stream` into `target`; memory does not grow with the number of rows.

    Whoever removes the stream afterwards loses nothing, not even with the power: the file is then on the disk. Raises
    OSError where it cannot be written, whatever the library calls that.
    """
    import pyarrow

    form = _format(target, "write")
    try:
        with replacing(target) as new:
            with pyarrow.OSFile(str(stream)) as source:
                reader = pyarrow.ipc.open_stream(source)
                kept = [name for name in reader.schema.names if form.texts or name not in document.get("texts", {})]
                if not form.texts:
                    document = {name: value for name, value in document.items() if name != "texts"}
                fields = [reader.schema.field(name) for name in kept]
                schema = pyarrow.schema(fields, {METADATA_KEY: dump(document)})
                chunks = _chunks(batch for batch, _ in checked_batches(reader))
                form.write((chunk.select(kept) for chunk in chunks), schema, new)
            if form.sidecar:
                sidecar(target).write_bytes(dump(document) + b"\n")
                bring_to_disk(sidecar(target))
    except (pyarrow.ArrowInvalid, DamagedRows) as problem:
        raise OSError(str(problem).rstrip(".")) from problem


def save_result(result: Result, path: Path) -> Path:
    """Write a result that is in memory (`Result.save`)."""
    columns = {name: column for name, column in result.texts.items() if len(column)}
    texts = {name: "Binary" if isinstance(column[0], bytes) else "String" for name, column in columns.items()}
    with ResultFile(path).open(result.names, result.info, texts=texts) as recorder:
        recorder.text_source = lambda _: list(columns.values())
        recorder.record(result.to_numpy())
        recorder.close(result.complete, list(result.warnings))
    return path


def read_result(path: str | Path) -> Result:
    """The rows of a result file, of whatever format, or of the stream that an interrupted run left beside it.

    A stream is only there while a run goes on or when it was interrupted, and is then newer than the file. Of a file
    without the document, such as those of other tools, nothing is known; it is taken as complete.
    """
    path = Path(path)
    stream = path if path.suffix == STREAM_SUFFIX else path.with_name(path.name + STREAM_SUFFIX)
    if not os.path.exists(path) and not os.path.exists(stream):
        raise no_such_file(path, FORMATS)
    if os.path.exists(stream):
        path, form = stream, FORMATS[".arrows"]
    else:
        form = _format(path, "read")
    require_regular(path)
    with _reading(path):
        found = form.read(path)
        if not found.names or found.names[0].lower() != "time":
            raise ValueError(f"its first column is '{found.names[0] if found.names else ''}', not 'time'")
    beside = sidecar(path)
    with _reading(beside if form.sidecar else path):
        document = json.loads(beside.read_bytes()) if form.sidecar and beside.exists() else dict(found.document or {})
        warnings = tuple(Warned(**item) for item in document.pop("warnings", ()))
        complete = bool(document.pop("complete", True))
    values = (found.rows[:, 0], found.rows[:, 1:])
    return Result(tuple(found.names[1:]), *values, warnings, complete, document, found.texts)


def read_document(path: Path) -> dict[str, Any]:
    """What a Parquet file says of its run; empty where it says nothing or cannot be read."""
    from pyarrow.parquet import read_schema

    try:
        return _document(read_schema(path).metadata) or {}
    except (OSError, ValueError):
        return {}


def sidecar(path: Path) -> Path:
    """The JSON file beside a result file that has no room for the document."""
    return path.with_name(path.name + ".json")


def _format(path: Path, verb: str) -> Format:
    if path.suffix not in FORMATS:
        *others, last = RESULT_SUFFIXES
        raise ConfigurationError(f"cannot {verb} '{path}': use {', '.join(others)} or {last}.")
    form = FORMATS[path.suffix]
    if form.needs and find_spec(form.needs[0]) is None:
        library, extra = form.needs
        raise ConfigurationError(f"cannot {verb} '{path}' without {library}: install cosimo with the extra '{extra}'.")
    return form


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a library finds wrong with a file becomes one sentence that names it."""
    try:
        yield
    except MemoryError:
        raise ConfigurationError(f"'{path}' does not fit into memory; read part of it with another tool.") from None
    except CosimoError:
        raise
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno:
            raise ConfigurationError(f"cannot read '{path}': {os.strerror(problem.errno)}.") from problem
        cause = (str(problem).splitlines() or [type(problem).__name__])[0].rstrip(".")
        raise ConfigurationError(f"'{path}' is damaged or not a result file: {cause}.") from problem


# ---- Arrow ----------------------------------------------------------------------------------------------------------


def _chunks(batches: Batches) -> Iterator[pyarrow.RecordBatch]:
    """The same rows in larger pieces: a slow run flushes few rows at a time."""
    import pyarrow

    waiting: list[pyarrow.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if size >= _CHUNK_BYTES[1] or (size >= _CHUNK_BYTES[0] and rows >= _CHUNK_ROWS):
            yield pyarrow.concat_batches(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pyarrow.concat_batches(waiting)


def _found(batches: Batches, names: Sequence[str], document: dict[str, Any] | None) -> FileRows:
    """The columns of numbers and those that the document calls texts."""
    texts = (document or {}).get("texts", {})
    if not isinstance(texts, dict):
        raise ValueError("it does not say which of its columns are texts")
    kept = list(batches)
    places = [place for place, name in enumerate(names) if name not in texts]
    found: dict[str, list[Any]] = {name: [] for name in names if name in texts}
    for batch in kept:
        for name, column in zip(names, batch.columns, strict=True):
            if name in found:
                words = ["" if word is None else word for word in column.to_pylist()]
                binary = texts[name] == "Binary"
                found[name] += [bytes.fromhex(w) if binary and isinstance(w, str) else w for w in words]
    numbers = [batch.select(places) for batch in kept] if found else kept
    return FileRows([names[place] for place in places], _rows(numbers, len(places)), document, found)


def _rows(batches: Batches, width: int) -> Array:
    """All rows (K, 1 + n), stored column by column."""
    kept = list(batches)
    rows = np.empty((sum(batch.num_rows for batch in kept), width), order="F")
    start = 0
    for batch in kept:
        for number, column in enumerate(batch.columns):
            plain = str(column.type) in NUMBERS and not column.null_count
            values = numbers_of(column) if plain else column.to_numpy(zero_copy_only=False)
            rows[start : start + batch.num_rows, number] = values
        start += batch.num_rows
    return rows


def _document(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    text = (metadata or {}).get(METADATA_KEY)
    document: dict[str, Any] | None = None if text is None else json.loads(text)
    return document


def _ipc_writer(kind: Literal["new_file", "new_stream"]) -> Callable[[Batches, pyarrow.Schema, Path], None]:
    def write(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
        import pyarrow

        with pyarrow.OSFile(str(path), "wb") as sink, getattr(pyarrow.ipc, kind)(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)

    return write


def _read_arrow(path: Path) -> FileRows:
    import pyarrow

    with open_rows(path) as source:
        reader = pyarrow.ipc.open_file(source)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return _found(batches, reader.schema.names, _document(reader.schema.metadata))


def _read_stream(path: Path) -> FileRows:
    """Up to its end or to the first batch that is cut off or changed; complete is what says so in its last batch."""
    import pyarrow

    with open_rows(path) as source:
        reader = pyarrow.ipc.open_stream(source)
        batches, documents, damage = [], [_document(reader.schema.metadata)], ""
        try:
            for batch, metadata in checked_batches(reader):
                batches.append(batch)
                documents.append(_document(metadata))
        except DamagedRows as problem:
            damage = str(problem)
        except (pyarrow.ArrowInvalid, OSError):  # killed, or out of space, while this batch was being written
            pass
        known = [document for document in documents if document is not None]
        newest: dict[str, Any] = known[-1] if known else {"complete": False}
        found = _found(batches, reader.schema.names, newest)
        if damage:
            end = found.rows[-1, 0] if len(found.rows) else 0.0
            told = Warned(f"'{path.name}' is damaged, and is read up to here: {damage}", end)
            newest |= {"complete": False, "warnings": [*newest.get("warnings", ()), asdict(told)]}
        return found


def _write_parquet(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    from pyarrow.parquet import ParquetWriter

    # Trajectories seldom repeat a value: dictionaries would only cost time.
    with ParquetWriter(path, schema, use_dictionary=False) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read_parquet(path: Path) -> FileRows:
    from pyarrow.parquet import ParquetFile

    with open_rows(path) as source, ParquetFile(source) as file:  # closed also where it is damaged
        schema = file.schema_arrow
        return _found(file.iter_batches(), schema.names, _document(schema.metadata))


# ---- text -----------------------------------------------------------------------------------------------------------


def _write_csv(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    """Shortest decimals that read back to the same bits, whatever the locale; binary values in hexadecimal digits."""
    import pyarrow
    from pyarrow.csv import WriteOptions, write_csv

    options = WriteOptions(include_header=False)
    binary = [place for place, field in enumerate(schema) if str(field.type) == "binary"]
    with path.open("wb") as file:
        file.write((",".join(map(quote_cell, schema.names)) + "\n").encode())
        for batch in batches:
            for place in binary:
                words = pyarrow.array([value.hex() for value in batch.column(place).to_pylist()], pyarrow.string())
                batch = batch.set_column(place, schema.names[place], words)
            write_csv(batch, file, options)


def _read_csv(path: Path) -> FileRows:
    import pyarrow
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        names, skip = next(lines, []), lines.line_num
    if not names:
        raise ValueError("it is empty")
    numbers = [f"{number}" for number in range(len(names))]
    beside = sidecar(path)
    with _reading(beside):
        document = json.loads(beside.read_bytes()) if beside.exists() else None
    texts = document.get("texts", {}) if isinstance(document, dict) else {}
    types = {
        n: pyarrow.string() if name in texts else pyarrow.float64() for n, name in zip(numbers, names, strict=True)
    }
    reader = open_csv(
        path,
        ReadOptions(column_names=numbers, skip_rows=skip, block_size=_CSV_BLOCK),
        ParseOptions(newlines_in_values=bool(texts)),
        ConvertOptions(column_types=types, null_values=[]),
    )
    with reader:
        return _found(reader, names, {"texts": texts})


def _write_mat(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    write_mat(path, schema.names, (_rows([batch], len(schema)) for batch in batches))


# ---- HDF5 and ASAM MDF: for MATLAB, Julia, and the tools that read measurements --------------------------------------


_HDF_CHUNK = 4096  # rows that lie together: 32 kB of each signal


def _write_hdf(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    """One dataset per signal with its physical unit, over the dimension scale `time`."""
    import h5py

    units = _measures(schema)
    with h5py.File(path, "w", track_order=True) as file:
        for name in schema.names:
            file.create_dataset(name, shape=(0,), maxshape=(None,), chunks=(_HDF_CHUNK,), dtype="<f8")
            if name in units:
                file[name].attrs["units"] = units[name]
        for batch in batches:
            for name, column in zip(schema.names, batch.columns, strict=True):
                data = file[name]
                data.resize(len(data) + len(column), axis=0)
                data[len(data) - len(column) :] = numbers_of(column)
        file["time"].make_scale("time")
        for name in schema.names[1:]:
            file[name].dims[0].attach_scale(file["time"])
        file["cosimo"] = (schema.metadata or {})[METADATA_KEY].decode()


def _read_hdf(path: Path) -> FileRows:
    """Every dataset that has as many numbers as `time`, in the file's order; also in groups (`unit/variable`)."""
    import h5py

    with h5py.File(path, "r") as file:
        if not isinstance(file.get("time"), h5py.Dataset):
            raise ValueError("it has no dataset 'time'")
        kept, inside = {"time": file["time"]}, list(file.items())
        while inside:  # in the order of the file, which h5py's own visit does not follow
            name, data = inside.pop(0)
            if isinstance(data, h5py.Group):
                inside = [(f"{name}/{part}", one) for part, one in data.items()] + inside
            elif data.shape == kept["time"].shape and data.dtype.kind in "fiub":
                kept.setdefault(name, data)
        document = json.loads(file["cosimo"].asstr()[()]) if "cosimo" in file else None
        return FileRows(list(kept), _side_by_side([data[()] for data in kept.values()]), document)


def _write_mdf(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    """One channel group over the master channel `time`; with nothing else to record, `time` is in it twice."""
    from asammdf import MDF, Signal

    units, names = _measures(schema), schema.names[1:] or ["time"]
    with MDF(version="4.10") as file, tempfile.TemporaryDirectory(dir=path.parent, prefix=".mdf-") as folder:
        for number, rows in enumerate(_rows([batch], len(schema)) for batch in _at_least_one(batches, schema)):
            time, columns = rows[:, 0], rows.T[1:] if schema.names[1:] else rows.T
            if number:
                file.extend(0, [(time, None), *((column, None) for column in columns)])
            else:
                file.append(
                    [
                        Signal(column, time, name=name, unit=units.get(name, ""))
                        for name, column in zip(names, columns, strict=True)
                    ]
                )
        file.attach((schema.metadata or {})[METADATA_KEY], "cosimo.json", mime="application/json")
        os.replace(file.save(Path(folder, "rows.mf4")), path)


def _read_mdf(path: Path) -> FileRows:
    """The channels of the only group, or of all groups where they have the same times."""
    from asammdf import MDF

    with MDF(path) as file:
        if not file.groups:
            raise ValueError("it has no channel group")
        time, columns = file.get_master(0), dict[str, Any]()
        for group, channels in enumerate(file.groups):
            if not np.array_equal(file.get_master(group), time, equal_nan=True):
                raise ValueError("its channel groups have different times; save one of them, or resample it")
            for index, channel in enumerate(channels.channels):
                values = file.get(group=group, index=index).samples
                if channel.name != "time" and values.dtype.kind in "fiub" and values.ndim == 1:
                    columns.setdefault(channel.name, values)
        documents = [n for n, one in enumerate(file.attachments) if Path(one.file_name).name == "cosimo.json"]
        document = json.loads(file.extract_attachment(documents[0])[0]) if documents else None
    return FileRows(["time", *columns], _side_by_side([time, *columns.values()]), document)


def _measures(schema: pyarrow.Schema) -> dict[str, str]:
    """The physical units of the signals, as the document has them, and that of time."""
    return {**(_document(schema.metadata) or {}).get("physical_units", {}), "time": "s"}


def _at_least_one(batches: Batches, schema: pyarrow.Schema) -> Batches:
    """The batches, or one without rows where there are none."""
    import pyarrow

    empty = True
    for batch in batches:
        empty = False
        yield batch
    if empty:
        yield pyarrow.RecordBatch.from_pylist([], schema=schema)


def _side_by_side(columns: Sequence[Array]) -> Array:
    rows = np.empty((len(columns[0]), len(columns)), order="F")
    for number, column in enumerate(columns):
        rows[:, number] = column
    return rows


FORMATS: Mapping[str, Format] = {
    ".arrow": Format(_ipc_writer("new_file"), _read_arrow),
    ".arrows": Format(_ipc_writer("new_stream"), _read_stream),
    ".csv": Format(_write_csv, _read_csv, sidecar=True),
    ".h5": Format(_write_hdf, _read_hdf, needs=("h5py", "hdf5"), texts=False),
    ".mat": Format(_write_mat, lambda path: FileRows(*read_mat(path)), sidecar=True, texts=False),
    ".mf4": Format(_write_mdf, _read_mdf, needs=("asammdf", "mdf"), texts=False),
    ".parquet": Format(_write_parquet, _read_parquet),
}


# ---- mATLAB level-4 files in the layout that Modelica tools write and read ("binTrans") ------------------------------
# A file is a row of matrices, each a header of five 32-bit numbers (type, rows, columns, 0, length of the name), the
# name, and the elements column by column:
#
#     Aclass       "Atrajectory", "1.1", "", "binTrans"
#     name         one column per variable, time first
#     description  one column per variable
#     dataInfo     one column per variable: data matrix, ± row in it, interpolation, extrapolation
#     data_1       constants (time row first), here none
#     data_2       one *column* per time: time, then the variables; so rows of a run are appended as they come


_DOUBLE, _INT32, _TEXT = 0, 20, 51
_LINEAR, _UNDEFINED = 0, -1  # between the rows interpolate linearly; there is nothing outside of them
_MOST_ROWS = 2**31 - 1
_MOST_TYPE = 4052
_WIDTHS = {0: 8, 1: 4, 2: 4, 3: 2, 4: 2, 5: 1}  # bytes per element, by the second digit of the type from the right


def write_mat(path: Path, names: Sequence[str], blocks: Iterable[Array]) -> None:
    """Write rows (K, 1 + n) block by block; the number of rows and the time span are filled in at the end."""
    count, start, stop = 0, 0.0, 0.0
    info = [(0, 1, _LINEAR, _UNDEFINED), *((2, row, _LINEAR, _UNDEFINED) for row in range(2, len(names) + 1))]
    with path.open("wb") as file:
        _text(file, "Aclass", _lines(["Atrajectory", "1.1", "", "binTrans"]))
        _text(file, "name", _lines(names).T)
        _text(file, "description", _lines(["Time in [s]", *("" for _ in names[1:])]).T)
        _header(file, "dataInfo", _INT32, (4, len(info)))
        file.write(np.array(info, dtype="<i4").tobytes())
        _header(file, "data_1", _DOUBLE, (1, 2))
        span_at = file.tell()
        file.write(struct.pack("<2d", start, stop))
        header_at = file.tell()
        _header(file, "data_2", _DOUBLE, (len(names), 0))
        for block in blocks:
            start, stop = (start if count else float(block[0, 0])), float(block[-1, 0])
            count += len(block)
            if count > _MOST_ROWS:
                raise OutputError(f"'{path}' cannot hold more than {_MOST_ROWS} rows; use .parquet or decimate.")
            file.write(np.ascontiguousarray(block, dtype="<f8").data)
        file.seek(span_at)
        file.write(struct.pack("<2d", start, stop))
        file.seek(header_at)
        _header(file, "data_2", _DOUBLE, (len(names), count))


def read_mat(path: Path) -> tuple[list[str], Array]:
    """Names, time first, and rows (K, 1 + n); constants fill their columns, aliases get their sign."""
    from scipy.io import loadmat

    _require_level4(path)
    found: dict[str, Any] = loadmat(path, chars_as_strings=False)
    if missing := {"Aclass", "name", "dataInfo", "data_2"} - set(found):
        raise ValueError(f"it lacks {', '.join(sorted(missing))}, which Modelica results have")
    layout = _strings(found["Aclass"])[3:]
    if layout not in (["binTrans"], ["binNormal"]):
        raise ValueError(f"its layout is {layout}, not 'binTrans' or 'binNormal'")
    for key in ("name", "dataInfo", "data_1", "data_2") if layout == ["binTrans"] else ():
        found[key] = found[key].T if key in found else None
    names = _strings(found["name"])
    rows = np.empty((len(found["data_2"]), len(names)), order="F")
    for number, (matrix, place, *_) in enumerate(found["dataInfo"].astype(int)):
        # Matrix 0 means both: time. Of the constants, the first value is as good as any.
        values = found["data_1"][0] if matrix == 1 else found["data_2"].T
        rows[:, number] = np.sign(place) * values[abs(place) - 1]
    return names, rows


def _require_level4(path: Path) -> None:
    """Every matrix must lie inside the file: a header can claim any size, and room for it would be made."""
    size = path.stat().st_size
    with path.open("rb") as file:
        while head := file.read(20):
            if len(head) < 20:
                raise ValueError("it is cut off")
            order = "<" if 0 <= struct.unpack("<i", head[:4])[0] <= _MOST_TYPE else ">"
            kind, rows, columns, imaginary, name = struct.unpack(f"{order}5i", head)
            width = _WIDTHS.get(kind // 10 % 10)
            if not 0 <= kind <= _MOST_TYPE or width is None or kind % 10 > 1 or min(rows, columns, name) < 0:
                raise ValueError("it is not a level-4 file of full matrices")
            file.seek(name + rows * columns * width * (2 if imaginary else 1), 1)
            if file.tell() > size:
                raise ValueError("it is cut off")


def _header(file: IO[bytes], name: str, kind: int, shape: tuple[int, int]) -> None:
    file.write(struct.pack("<5i", kind, *shape, 0, len(name) + 1) + name.encode() + b"\0")


def _text(file: IO[bytes], name: str, characters: Any) -> None:
    _header(file, name, _TEXT, characters.shape)
    file.write(characters.tobytes(order="F"))


def _lines(lines: Sequence[str]) -> Any:
    """One row of bytes per line, padded with blanks."""
    encoded = [line.encode() for line in lines]
    width = max(1, *map(len, encoded))
    return np.frombuffer(b"".join(line.ljust(width) for line in encoded), dtype=np.uint8).reshape(-1, width)


def _strings(characters: Any) -> list[str]:
    """The lines of a character matrix; level-4 files know bytes only, which Modelica tools take for UTF-8."""
    return ["".join(line).rstrip(" \0").encode("latin-1").decode() for line in characters]
