"""The rows of a study on disk: safe while it goes on, one file of the wanted format at its end.

    run | parameters … | status | trust | message | seconds | measures …

Rows arrive in any order and go at once into an Arrow IPC stream beside the file (`study.parquet.partial`), of which
every prefix can be read; its batches carry checksums, by which rows that were changed are found. A complete study is
sorted by `run` and written as .parquet, .arrow, .arrows or .csv; the stream is then removed, so that a stream that is
still there tells of a study that goes on or was interrupted.
"""

from __future__ import annotations

import errno
import io
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, OutputError, UnknownNameError
from cosimo.core.storage import hold_path, replacing, writing
from cosimo.execution.recording import (
    METADATA_KEY,
    STREAM_SUFFIX,
    DamagedRows,
    check_of,
    checked_batches,
    dump,
    open_rows,
)
from cosimo.formats.results import FORMATS, sidecar

if TYPE_CHECKING:
    import pandas
    import pyarrow


RUN, STATUS, TRUST, MESSAGE, SECONDS = "run", "status", "trust", "message", "seconds"
SUFFIXES = (".parquet", ".arrow", ".arrows", ".csv")
Status = Literal["ran", "diverged", "failed", "crashed"]
"""`ran`: to its end, which says nothing of whether it can be trusted. `diverged`: left the range of numbers, or was
stopped because it grows. `failed`: could not be built, or a unit gave an error. `crashed`: ended the process it ran in,
its own or that of a unit."""
STATUSES: tuple[Status, ...] = ("ran", "diverged", "failed", "crashed")


class Row(NamedTuple):
    """One run: its number, status and trust with a message, wall time, and the measures (None where there are none)."""

    run: int
    values: tuple[float, ...]
    status: Status
    trust: str
    message: str
    seconds: float
    measured: tuple[float | None, ...]


class Columns(NamedTuple):
    """The names of a study's columns."""

    parameters: tuple[str, ...]
    measures: tuple[str, ...]

    def schema(self, document: Mapping[str, Any]) -> pyarrow.Schema:
        """The columns with their types, and what the file tells about the study."""
        import pyarrow

        number, text = pyarrow.float64(), pyarrow.string()
        fields = [(RUN, pyarrow.int64()), *((name, number) for name in self.parameters)]
        fields += [
            (STATUS, text),
            (TRUST, text),
            (MESSAGE, text),
            (SECONDS, number),
            *((name, number) for name in self.measures),
        ]
        return pyarrow.schema(fields, {METADATA_KEY: dump(document)})

    def batch(self, rows: Sequence[Row], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
        """The rows, column by column."""
        import pyarrow

        columns: list[Sequence[Any]] = [[row.run for row in rows]]
        columns += [[row.values[place] for row in rows] for place in range(len(self.parameters))]
        columns += [[getattr(row, name) for row in rows] for name in (STATUS, TRUST, MESSAGE, SECONDS)]
        columns += [[row.measured[place] for row in rows] for place in range(len(self.measures))]
        arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


class Journal:
    """Takes the rows of one study, in memory (`path` None) or to its stream, from which `resume` goes on."""

    def __init__(
        self, path: Path | None, columns: Columns, document: Mapping[str, Any], *, resume: bool = False
    ) -> None:
        self.path, self.columns = path, columns
        self.document = {**document, "started": datetime.now(UTC).isoformat(timespec="seconds")}
        self.schema = columns.schema({**self.document, "complete": False})
        self._batches: list[pyarrow.RecordBatch] = []
        self._sink: Any = None
        self._writer: Any = None
        self._claim = -1
        self._failed: OutputError | None = None
        self._written = 0
        if path is not None:
            _require_suffix(path)
            self._batches = self._recall(path) if resume else self._refuse(path)
            self._open(path)

    @property
    def done(self) -> set[int]:
        """The numbers of the runs whose rows are there."""
        return {number for batch in self._batches for number in batch.column(0).to_pylist()}

    def table(self) -> pyarrow.Table:
        """All rows, by number."""
        import pyarrow

        return pyarrow.Table.from_batches(self._batches, self.schema).sort_by(RUN)

    def add(self, rows: Sequence[Row]) -> None:
        """Take rows; once this returns they survive the end of the process."""
        batch = self.columns.batch(rows, self.schema)
        if self.path is not None:
            if self._failed is not None:  # what follows a batch that is cut off would not be found
                raise self._failed
            remedy = f"free some space and continue with --resume; the rows so far are kept in '{self._stream}'"
            try:
                with writing(self.path, remedy):
                    self._write(batch)
            except OutputError as error:
                self._failed = error
                raise
        self._batches.append(batch)

    def finish(self) -> None:
        """The study is complete: put the final file in place and remove the stream."""
        if self.path is None:
            return
        self.close()
        document = {**self.document, "complete": True}
        table = self.table().replace_schema_metadata({METADATA_KEY: dump(document)})
        form = FORMATS[self.path.suffix]
        with writing(self.path, f"all rows are kept in '{self._stream}'"):
            with replacing(self.path) as new:
                form.write(table.to_batches(), table.schema, new)
                if form.sidecar:
                    sidecar(self.path).write_bytes(dump(document) + b"\n")
            self._stream.unlink()

    def close(self) -> None:
        """Let go of the stream; what is in it stays."""
        if self.path is not None and self._sink is not None:
            with suppress(OSError):  # a full disk was told already
                self._writer.close()
                self._sink.close()
            self._sink = None
            os.close(self._claim)

    def _open(self, path: Path) -> None:
        """A stream with the rows that are there already; it replaces an earlier one at once and whole."""
        import pyarrow

        self._stream = _stream_of(path)
        new = self._stream.with_name(self._stream.name + ".new")
        with writing(path, "give a file in a folder that exists and can be written to"):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder")
            self._sink = _MovableFile(new)
            self._writer = pyarrow.ipc.new_stream(self._sink, self.schema)
            for batch in self._batches or [self.columns.batch([], self.schema)]:
                self._write(batch)
            self._sink.move(self._stream)
            self._claim = _claim(self._stream)

    def _write(self, batch: pyarrow.RecordBatch) -> None:
        self._writer.write_batch(batch, check_of(self._written, batch))
        self._written += batch.num_rows

    def _refuse(self, path: Path) -> list[pyarrow.RecordBatch]:
        stream = _stream_of(path)
        if stream.exists():
            rows = sum(batch.num_rows for batch in _read(stream)[1])
            raise ConfigurationError(
                f"'{stream}' holds {rows} rows of a study that was interrupted or is still running; resume it, or "
                "remove the file."
            )
        return []

    def _recall(self, path: Path) -> list[pyarrow.RecordBatch]:
        """The rows of the same study, from its stream or its final file; none where there is neither."""
        stream = _stream_of(path)
        if stream.exists():
            os.close(_claim(stream))  # refused while another study writes to it
        elif not path.exists():
            return []
        schema, batches = _read(stream if stream.exists() else path)
        found = document_of(schema)
        if found.get("fingerprint") != self.document["fingerprint"]:
            raise ConfigurationError(
                f"'{path}' holds rows of another study (system, master, times, points or measures differ); give "
                f"another file, or remove it."
            )
        import pyarrow

        kept: list[pyarrow.RecordBatch] = pyarrow.Table.from_batches(batches, schema).cast(self.schema).to_batches()
        return kept


class _MovableFile(io.RawIOBase):
    """A file that Arrow writes to and that is moved meanwhile: closed for it, as Windows wants."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb", buffering=0)

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        size = len(left)
        while left:
            left = left[self._file.write(left) :]
        return size

    def move(self, path: Path) -> None:
        self._file.close()
        os.replace(self._path, path)
        self._file = path.open("ab", buffering=0)

    def close(self) -> None:
        self._file.close()
        super().close()


def read_table(path: str | Path) -> pyarrow.Table:
    """The rows of a study by number, complete or not; what it was is in the schema's metadata (`document_of`)."""
    import pyarrow

    path = Path(path)
    stream = path if path.suffix == STREAM_SUFFIX else _stream_of(path)
    if not path.exists() and not stream.exists():
        raise ConfigurationError(f"no file '{path}' and no stream '{stream.name}' beside it; check the path.")
    schema, batches = _read(stream if stream.exists() else path)
    return pyarrow.Table.from_batches(batches, schema).sort_by(RUN)


def document_of(schema: pyarrow.Schema) -> dict[str, Any]:
    """What the file tells about the study."""
    document: dict[str, Any] = json.loads((schema.metadata or {}).get(METADATA_KEY, b"{}"))
    return document


def _stream_of(path: Path) -> Path:
    return path.with_name(path.name + STREAM_SUFFIX)


def _require_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise ConfigurationError(f"cannot write '{path}': studies are written to {', '.join(SUFFIXES)}.")


def _read(path: Path) -> tuple[pyarrow.Schema, list[pyarrow.RecordBatch]]:
    try:
        if path.suffix in (STREAM_SUFFIX, ".arrows"):
            schema, batches = _read_stream(path)
        else:
            _require_suffix(path)
            table = _read_csv(path) if path.suffix == ".csv" else _read_whole(path)
            schema, batches = table.schema, table.to_batches()
        if RUN not in schema.names or "fingerprint" not in document_of(schema):
            raise ValueError("it has no numbered runs")
    except ConfigurationError:
        raise
    except (OSError, ValueError) as problem:  # Arrow's own errors are among these
        raise ConfigurationError(f"'{path}' is damaged or not a study file: {problem}.") from None
    return schema, batches


def _read_stream(path: Path) -> tuple[pyarrow.Schema, list[pyarrow.RecordBatch]]:
    """All batches up to the end, or to one that was cut off when the writer was killed; one that changed is refused.

    Streams of earlier versions say nothing about their rows, and are taken as they are.
    """
    import pyarrow

    batches: list[pyarrow.RecordBatch] = []
    with open_rows(path) as source:
        reader = pyarrow.ipc.open_stream(source)
        try:
            batches.extend(batch for batch, _ in checked_batches(reader))
        except DamagedRows:
            raise
        except (pyarrow.ArrowInvalid, OSError):
            pass
        return reader.schema, batches


def _read_whole(path: Path) -> pyarrow.Table:
    import pyarrow
    import pyarrow.parquet

    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path)
    with open_rows(path) as source:
        return pyarrow.ipc.open_file(source).read_all()


def _read_csv(path: Path) -> pyarrow.Table:
    from pyarrow.csv import ConvertOptions, ParseOptions, read_csv

    document = json.loads(sidecar(path).read_bytes())
    schema = Columns(tuple(document["parameters"]), tuple(document["columns"])).schema(document)
    types = {field.name: field.type for field in schema}
    options = ConvertOptions(column_types=types, strings_can_be_null=False, quoted_strings_can_be_null=False)
    table = read_csv(path, parse_options=ParseOptions(newlines_in_values=True), convert_options=options)
    return table.cast(schema)


def _claim(path: Path) -> int:
    """Hold the stream for this study, where the system has such locks."""
    try:
        return hold_path(path)
    except BlockingIOError:
        raise OutputError(f"another study is writing to '{path}'; give each its own output file.") from None


# ---- what a study found: its rows, and in a few numbers what is in them ----------------------------------------------


QUANTILES = (0.05, 0.5, 0.95)
ENOUGH = 10
"""Runs from which a correlation says something."""


@dataclass(frozen=True)
class Spread:
    """How one measure is distributed over the runs that have it; `least_at` and `most_at` are numbers of runs.

    `correlations` are Spearman's rank correlations with the parameters: ±1 where the measure rises (falls) whenever the
    parameter rises, 0 where they have nothing to do with each other. None where a parameter does not vary, the measure
    is always the same, or runs are few.
    """

    count: int
    least: float
    low: float
    median: float
    high: float
    most: float
    mean: float
    least_at: int
    most_at: int
    correlations: dict[str, float | None]


@dataclass(frozen=True)
class Outcome:
    """The rows of a study, by number. `study[name]` is a column: floats with NaN where a run has no such measure.

    `notes` say what happened on the way; `resumed` rows were in the file before.
    """

    table: pyarrow.Table = field(repr=False)
    document: dict[str, Any] = field(repr=False)
    workers: int = 1
    wall_time: float = 0.0
    resumed: int = 0
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, name: str) -> Array | npt.NDArray[np.object_]:
        if name not in self.table.schema.names:
            raise UnknownNameError("column", name, self.table.schema.names)
        column: Array = self.table.column(name).to_numpy()
        return column

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the varied parameters."""
        return tuple(self.document["parameters"])

    @property
    def measures(self) -> tuple[str, ...]:
        """The names of the measures."""
        return tuple(self.document["columns"])

    @property
    def complete(self) -> bool:
        """Whether every point has its row."""
        return len(self) == int(self.document["runs"])

    @property
    def counts(self) -> dict[str, int]:
        """How many runs ended in which way."""
        found = Counter(self.table.column(STATUS).to_pylist())
        return {status: found.get(status, 0) for status in STATUSES}

    @property
    def trust(self) -> dict[str, int]:
        """How many runs can be trusted, with care, not, or were not assessed."""
        found = Counter(self.table.column(TRUST).to_pylist())
        return {word: found.get(word, 0) for word in ("yes", "with care", "no", "not assessed")}

    def failures(self, most: int = 5) -> list[tuple[int, str, str]]:
        """Number, status and message of the first runs that have no result."""
        rows = zip(*(self.table.column(name).to_pylist() for name in (RUN, STATUS, MESSAGE)), strict=True)
        return [row for row in rows if row[1] != "ran"][:most]

    def point(self, run: int) -> dict[str, float]:
        """The parameter values of a run."""
        place = int(np.searchsorted(np.asarray(self[RUN], dtype=int), run))
        return {name: float(self[name][place]) for name in self.parameters}

    def spread(self, measure: str) -> Spread | None:
        """How a measure is distributed; None where no run has it."""
        values, runs = np.asarray(self[measure], dtype=float), np.asarray(self[RUN], dtype=int)
        there = np.isfinite(values)
        if not there.any():
            return None
        values, runs = values[there], runs[there]
        low, median, high = np.quantile(values, QUANTILES).tolist()
        lowest, highest = int(values.argmin()), int(values.argmax())
        return Spread(
            count=len(values),
            least=float(values[lowest]),
            low=low,
            median=median,
            high=high,
            most=float(values[highest]),
            mean=float(values.mean()),
            least_at=int(runs[lowest]),
            most_at=int(runs[highest]),
            correlations={name: _correlation(np.asarray(self[name])[there], values) for name in self.parameters},
        )

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame indexed by the number of the run (needs the extra `pandas`)."""
        return self.table.to_pandas().set_index(RUN)


def read_study(path: str | Path) -> Outcome:
    """The rows of a study from its file, or so far from the stream of one that goes on or was interrupted."""
    table = read_table(path)
    return Outcome(table, document_of(table.schema))


def _correlation(parameter: Array, measure: Array) -> float | None:
    from scipy.stats import rankdata

    if len(measure) < ENOUGH or np.ptp(parameter) == 0 or np.ptp(measure) == 0:
        return None
    ranks = np.corrcoef(rankdata(parameter), rankdata(measure))
    return float(ranks[0, 1])
