"""Result files: what a recording ends in, and how it is read back.

    suffix      holds                                     the document that describes the run is
    .parquet    Parquet, one row group per chunk          in the key-value metadata, key `cosimo`
    .arrow      Arrow IPC file                            in the schema's metadata, key `cosimo`
    .arrows     Arrow IPC stream, as it was recorded      in its first and last message, key `cosimo`
    .csv        text, every number reads back exactly     in `<file>.json`
    .mat        MATLAB level 4, as Modelica tools do      in `<file>.json`

Conversion goes chunk by chunk and puts the finished file in place at once, so a final file is always whole. To add a
format, give a suffix its `Format`: how record batches are written, how they are read, and who keeps the document.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.result import Result, Warned
from cosimo.core.storage import bring_to_disk, replacing
from cosimo.execution.recording import (
    METADATA_KEY,
    STREAM_SUFFIX,
    DamagedRows,
    Position,
    Recorder,
    checked_batches,
    dump,
)
from cosimo.formats.matfile import read_mat, write_mat

if TYPE_CHECKING:
    import pyarrow

    Batches = Iterable[pyarrow.RecordBatch]

_CHUNK_BYTES = (4 << 20, 32 << 20)
_CHUNK_ROWS = 4096  # Parquet keeps notes on every column of every chunk in memory: wide rows get larger chunks
_CSV_BLOCK = 16 << 20  # a line must fit into one block


@dataclass(frozen=True)
class Read:
    """What a reader found: names and columns, time first, and the document if the file holds it."""

    names: Sequence[str]
    rows: Array
    document: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Format:
    """How one suffix is written and read; `sidecar` when the document does not fit into the file itself."""

    write: Callable[[Batches, pyarrow.Schema, Path], None]
    read: Callable[[Path], Read]
    sidecar: bool = False


@dataclass(frozen=True)
class ResultFile:
    """Where and how to record: the file (its suffix says the format), which variables, which rows, how often flushed.

    >>> ResultFile("truck.xlsx")
    Traceback (most recent call last):
    cosimo.core.errors.ConfigurationError: cannot write 'truck.xlsx': use .arrow, .arrows, .csv, .mat or .parquet.
    """

    path: str | Path
    variables: Sequence[str] | None = None
    every: int = 1
    flush_interval: float = 1.0

    def __post_init__(self) -> None:
        _format(Path(self.path), "write")

    def open(self, names: Sequence[str], metadata: Mapping[str, Any], position: Position | None = None) -> Recorder:
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
                schema = reader.schema.with_metadata({METADATA_KEY: dump(document)})
                form.write(_chunks(batch for batch, _ in checked_batches(reader)), schema, new)
            if form.sidecar:
                sidecar(target).write_bytes(dump(document) + b"\n")
                bring_to_disk(sidecar(target))
    except (pyarrow.ArrowInvalid, DamagedRows) as problem:
        raise OSError(str(problem).rstrip(".")) from problem


def read_result(path: str | Path) -> Result:
    """The rows of a result file, of whatever format, or of the stream that an interrupted run left beside it.

    A stream is only there while a run goes on or when it was interrupted, and is then newer than the file. Of a file
    without the document, such as those of other tools, nothing is known; it is taken as complete.
    """
    path = Path(path)
    stream = path if path.suffix == STREAM_SUFFIX else path.with_name(path.name + STREAM_SUFFIX)
    if not os.path.exists(path) and not os.path.exists(stream):
        raise ConfigurationError(f"no result file '{path}', nor a stream '{stream.name}' beside it; check the path.")
    if os.path.exists(stream):
        path, form = stream, FORMATS[".arrows"]
    else:
        form = _format(path, "read")
    with _reading(path):
        found = form.read(path)
        if not found.names or found.names[0].lower() != "time":
            raise ValueError(f"its first column is '{found.names[0] if found.names else ''}', not 'time'")
    beside = sidecar(path)
    with _reading(beside if form.sidecar else path):
        document = json.loads(beside.read_bytes()) if form.sidecar and beside.exists() else dict(found.document or {})
        warnings = tuple(Warned(**item) for item in document.pop("warnings", ()))
        complete = bool(document.pop("complete", True))
    return Result(tuple(found.names[1:]), found.rows[:, 0], found.rows[:, 1:], warnings, complete, document)


def sidecar(path: Path) -> Path:
    """The JSON file beside a result file that has no room for the document."""
    return path.with_name(path.name + ".json")


def _format(path: Path, verb: str) -> Format:
    if path.suffix not in FORMATS:
        *others, last = sorted(FORMATS)
        raise ConfigurationError(f"cannot {verb} '{path}': use {', '.join(others)} or {last}.")
    return FORMATS[path.suffix]


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever a library finds wrong with a file becomes one sentence that names it."""
    try:
        yield
    except MemoryError:
        raise ConfigurationError(
            f"'{path}' does not fit into the memory; read a part of it with other tools."
        ) from None
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


def _rows(batches: Batches, width: int) -> Array:
    """All rows (K, 1 + n), stored column by column."""
    kept = list(batches)
    rows = np.empty((sum(batch.num_rows for batch in kept), width), order="F")
    start = 0
    for batch in kept:
        for number, column in enumerate(batch.columns):
            rows[start : start + batch.num_rows, number] = column.to_numpy(zero_copy_only=False)
        start += batch.num_rows
    return rows


def _document(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any] | None:
    text = (metadata or {}).get(METADATA_KEY)
    document: dict[str, Any] | None = None if text is None else json.loads(text)
    return document


def _write_arrow(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    import pyarrow

    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_stream(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    import pyarrow

    with pyarrow.OSFile(str(path), "wb") as sink, pyarrow.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read_arrow(path: Path) -> Read:
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        reader = pyarrow.ipc.open_file(source)
        batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        return Read(reader.schema.names, _rows(batches, len(reader.schema)), _document(reader.schema.metadata))


def _read_stream(path: Path) -> Read:
    """Up to its end or to the first batch that is cut off or changed; complete is what says so in its last batch."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
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
        rows = _rows(batches, len(reader.schema))
        if damage:
            told = Warned(
                f"'{path.name}' is damaged, and is read up to here: {damage}", rows[-1, 0] if len(rows) else 0.0
            )
            newest |= {"complete": False, "warnings": [*newest.get("warnings", ()), asdict(told)]}
        return Read(reader.schema.names, rows, newest)


def _write_parquet(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    from pyarrow.parquet import ParquetWriter

    # Trajectories seldom repeat a value: dictionaries would only cost time.
    with ParquetWriter(path, schema, use_dictionary=False) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _read_parquet(path: Path) -> Read:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        schema = file.schema_arrow
        return Read(schema.names, _rows(file.iter_batches(), len(schema)), _document(schema.metadata))


# ---- text -----------------------------------------------------------------------------------------------------------


def _write_csv(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    """Shortest decimals that read back to the same bits, whatever the locale."""
    from pyarrow.csv import WriteOptions, write_csv

    options = WriteOptions(include_header=False)
    with path.open("wb") as file:
        file.write((",".join(map(_quoted, schema.names)) + "\n").encode())
        for batch in batches:
            write_csv(batch, file, options)


def _read_csv(path: Path) -> Read:
    import pyarrow
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        names, skip = next(lines, []), lines.line_num
    if not names:
        raise ValueError("it is empty")
    numbers = [f"{number}" for number in range(len(names))]
    reader = open_csv(
        path,
        ReadOptions(column_names=numbers, skip_rows=skip, block_size=_CSV_BLOCK),
        ParseOptions(newlines_in_values=False),
        ConvertOptions(column_types=dict.fromkeys(numbers, pyarrow.float64()), null_values=[]),
    )
    with reader:
        return Read(names, _rows(reader, len(names)))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(c in name for c in ',"\r\n') else name


# ---- Modelica -------------------------------------------------------------------------------------------------------


def _write_mat(batches: Batches, schema: pyarrow.Schema, path: Path) -> None:
    write_mat(path, schema.names, (_rows([batch], len(schema)) for batch in batches))


def _read_mat(path: Path) -> Read:
    return Read(*read_mat(path))


FORMATS: Mapping[str, Format] = {
    ".arrow": Format(_write_arrow, _read_arrow),
    ".arrows": Format(_write_stream, _read_stream),
    ".csv": Format(_write_csv, _read_csv, sidecar=True),
    ".mat": Format(_write_mat, _read_mat, sidecar=True),
    ".parquet": Format(_write_parquet, _read_parquet),
}
