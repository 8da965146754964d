"""Recording: rows leave the run in blocks and are safe on disk while it goes on.

A row is [t, v_1 … v_n]. With a file, rows pass through one buffer of fixed size into an Arrow IPC *stream* beside it

    out.parquet  ←  out.parquet.partial          schema | batch | batch | …

of which every prefix can be read: what was flushed before a kill −9 stays. `close` hands the finished stream to a
converter and removes it, so a stream that is still there tells of a run that goes on or was interrupted. Without a
file the rows stay in memory. Memory for a file does not grow with the number of rows.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from cosimo.core import __version__, dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import CheckpointError, ConfigurationError, DimensionError, OutputError, UnknownNameError
from cosimo.core.master import Master, formed_degree
from cosimo.core.result import Result, Warned
from cosimo.core.storage import bring_names_to_disk, hold, let_move, writing
from cosimo.core.system import System, matches
from cosimo.core.unit import Text
from cosimo.execution.options import RunOptions, as_plain

_RESERVE_BYTES = 1 << 30
STREAM_SUFFIX = ".partial"  # what the stream's name has beyond that of the final file

METADATA_KEY = b"cosimo"  # where Arrow and Parquet files keep the JSON document that describes the run

CHECK_KEY = b"rows"
"""Where a batch says the number of its first row, how many it has, and their CRC-32, column after column."""

Convert = Callable[[Path, Path, Mapping[str, Any]], None]
"""Turns a finished stream (first path) into the final file (second) that carries the document."""

_BUFFER_BYTES = 1 << 20  # large enough that a batch costs little per row, small enough for the processor's cache


@dataclass(frozen=True)
class Position:
    """Where a recording stood: the rows it had taken, those of them in the stream, and the run they belong to."""

    taken: int
    written: int
    run: str


def dump(document: Mapping[str, Any]) -> bytes:
    """The document as files hold it."""
    return json.dumps(document, ensure_ascii=False).encode()


def capacity(width: int) -> int:
    """Rows per batch: the buffer's size, but for wide rows so many that the cost per column is spread over some."""
    return max(_BUFFER_BYTES // (8 * width), min(512, 16 * _BUFFER_BYTES // (8 * width)), 1)


class Recorder:
    """Takes blocks of rows, keeps the wanted part, and ends in a file (`path`) or in a `Result` (None).

    `variables` are patterns such as `"truck.*"` on the names (None: all). Of the rows, the first, every `every`-th
    after it, and the last are kept. Rows wait in the buffer at most until the first `record` after `flush_interval`
    seconds. `metadata` is plain data that describes the run. `convert` makes the final file; without it the stream
    itself is the result and is called `.arrows`. With a `position`, the recording goes on there: the rows before it are
    taken over from the stream that an earlier recording left. With `keep`, the stream of a run that did not complete
    stays there, beside the final file, for a run that goes on with it.

    >>> with Recorder(None, ["a.x", "b.x"], every=2, variables=["b.*"]) as recorder:
    ...     recorder.record(np.array([[0.0, 1.0, 2.0], [0.1, 3.0, 4.0], [0.2, 5.0, 6.0], [0.3, 7.0, 8.0]]))
    ...     recorder.close(complete=True).to_numpy()
    array([[0. , 2. ],
           [0.2, 6. ],
           [0.3, 8. ]])
    """

    def __init__(
        self,
        path: str | Path | None,
        names: Sequence[str],
        *,
        every: int = 1,
        variables: Sequence[str] | None = None,
        flush_interval: float = 1.0,
        metadata: Mapping[str, Any] | None = None,
        convert: Convert | None = None,
        position: Position | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        if every < 1:
            raise ConfigurationError(f"of the rows every {every}-th was asked for; give a whole number of 1 or more.")
        if not flush_interval >= 0:
            raise ConfigurationError(f"the flush interval is {flush_interval} s; give 0 or a positive number.")
        known = [*names, *(texts or {})]
        if "time" in known or len(set(known)) != len(known):
            raise ConfigurationError(
                f"recorded signals need distinct names, and none may be 'time': {', '.join(known)}."
            )
        wanted = choose(known, variables)
        chosen = [i for i in wanted if i < len(names)]
        self.names = tuple(names[i] for i in chosen)
        self.texts = {known[i]: (texts or {})[known[i]] for i in wanted if i >= len(names)}
        self.text_source: Callable[[Array], Sequence[Sequence[Text]]] = lambda times: [[] for _ in texts or ()]
        """What the texts were at the times of rows, all that were announced."""
        self._places = [i - len(names) for i in wanted if i >= len(names)]
        self.rows = 0 if position is None else position.taken
        self.keep = False
        self._width, self._every, self._convert = 1 + len(names), every, convert
        self._columns = None if len(chosen) == len(names) else np.array([0, *(i + 1 for i in chosen)])
        self._metadata = dict(metadata or {})
        self._last: tuple[Array, list[Sequence[Text]]] | None = None
        self._closed = False
        self._store = (
            _Memory(1 + len(chosen), len(self.texts))
            if path is None
            else self._open(Path(path), flush_interval, position)
        )

    def _open(self, path: Path, flush_interval: float, position: Position | None) -> Stream:
        if self._convert is None and path.suffix != ".arrows":
            raise ConfigurationError(
                f"'{path}' needs a converter; open it as a ResultFile, or use the suffix '.arrows'."
            )
        self._metadata |= {"started": datetime.now(UTC).isoformat(timespec="seconds"), "versions": _versions()}
        document = self._document(complete=False, warnings=())
        return Stream(path, self.names, document, flush_interval, position, texts=self.texts)

    def record(self, block: npt.ArrayLike) -> None:
        """Take rows (K, 1 + n), time first; the block may be overwritten afterwards."""
        rows = np.asarray(block, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self._width:
            raise DimensionError(f"a block of rows has the shape {rows.shape}; expected (any, {self._width}).")
        if self._closed:
            raise ConfigurationError("the recorder is already closed; open a new one.")
        first, self.rows = self.rows, self.rows + len(rows)
        found = self.text_source(rows[:, 0]) if self.texts else ()
        texts = [found[place] for place in self._places]
        if self._columns is not None:
            rows = rows[:, self._columns]
        if self._every > 1 and len(rows):
            self._last = rows[-1:].copy(), [column[-1:] for column in texts]
            kept = slice(-first % self._every, None, self._every)
            rows, texts = rows[kept], [column[kept] for column in texts]
        self._store.append(rows, texts)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` to come: spares rows kept in memory from being moved as they grow."""
        if isinstance(self._store, _Memory):
            self._store.reserve(rows // self._every + 2)

    def room(self, rows: int) -> Array | None:
        """Where the next rows, so many, can be written before they are recorded, so that nothing is copied.

        None where rows go to a file, are chosen from, or do not fit into what is reserved.
        """
        if not isinstance(self._store, _Memory) or self._columns is not None or self._every > 1:
            return None
        return self._store.room(rows)

    def flush(self) -> None:
        """Bring all rows so far to the stream."""
        self._store.flush()

    def position(self, run: str) -> Position:
        """Bring all rows so far to the stream, and say how many there are."""
        if not isinstance(self._store, Stream):
            raise ConfigurationError("rows that are kept in memory are lost with the run; record them to a file.")
        self._store.flush()
        return Position(self.rows, self._store.written, run)

    def sync(self) -> Callable[[], None]:
        """What brings the rows in the stream safely to the disk; may be called in another thread."""
        assert isinstance(self._store, Stream)
        return self._store.sync()

    def close(
        self, complete: bool, warnings: Sequence[Warned] = (), *, info: Mapping[str, Any] | None = None
    ) -> Result | None:
        """End the recording; `info` adds to the metadata. The rows, if kept in memory; else None: they are in the file.

        After a failed write nothing more is written: the rows before it are in the stream.
        """
        if self._closed:
            raise ConfigurationError("a recorder was closed twice; close it once, with what is known at the end.")
        self._closed = True
        self._metadata |= info or {}
        store = self._store
        if isinstance(store, Stream) and store.failed:
            return None
        if self._last is not None and (self.rows - 1) % self._every:
            store.append(*self._last)
        if isinstance(store, _Memory):
            rows = store.rows
            texts = dict(zip(self.texts, store.texts, strict=True))
            return Result(self.names, rows[:, 0], rows[:, 1:], tuple(warnings), complete, self._metadata, texts)
        store.flush()
        document = self._document(complete, warnings)
        store.close(document)
        store.finish(document, self._convert, keep=self.keep and not complete)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._closed:
            self.close(complete=False)

    def _document(self, complete: bool, warnings: Sequence[Warned]) -> dict[str, Any]:
        """What the file tells about the run, as plain data."""
        found = [asdict(warned) for warned in warnings]
        document = {**self._metadata, "complete": complete, "warnings": found}
        document |= {"texts": self.texts} if self.texts else {}
        try:
            plain: dict[str, Any] = json.loads(json.dumps(document, default=as_plain, allow_nan=False))
        except (TypeError, ValueError) as problem:
            raise ConfigurationError(f"the metadata of the results cannot be written as JSON: {problem}.") from None
        return plain


def open_recorder(
    system: System,
    master: Master,
    options: RunOptions,
    names: Sequence[str],
    info: Mapping[str, Any],
    position: Position | None = None,
) -> Recorder:
    """Where the rows of a run go, with what is known before it begins; an interrupted one goes on from `position`."""
    about = {"system": system.name, "master": master.name, "schedule": str(master), "step": master.step}
    metadata = {**about, **options.metadata, **info}
    if measured := _physical_units(system, set(names)):
        metadata["physical_units"] = measured
    if held := _held_inputs(system, master, set(names)):
        metadata["held_inputs"] = held
    texts = recorded_texts(system)
    if options.output is None:
        return Recorder(None, names, metadata=metadata, texts=texts)
    for pattern in options.output.variables or ():
        if not any(matches(name, pattern) for name in (*names, *texts)):
            raise UnknownNameError("variable to record", pattern, (*names, *texts, *system.observable))
    more = {"texts": texts} if texts else {}
    return options.output.open(names, metadata, position, **more)


def recorded_texts(system: System) -> dict[str, str]:
    """The outputs of a system that are no numbers, with their types."""
    return {f"{name}.{text}": kind for name, unit in system.units.items() for text, kind in unit.text_outputs.items()}


def _physical_units(system: System, names: Container[str]) -> dict[str, str]:
    """The physical units of those signals for which they are declared."""
    found = {}
    for name, unit in system.units.items():
        for variable in (*unit.outputs, *unit.inputs):
            if f"{name}.{variable}" in names and (measure := unit.measure(variable)) is not None:
                found[f"{name}.{variable}"] = measure.name
    return found


def _held_inputs(system: System, master: Master, names: Container[str]) -> list[str]:
    """The recorded inputs that have one value during each macro step."""
    durations = master.durations
    return [
        inlet.target
        for name, inlets in system.inlets.items()
        if durations.get(name) == master.step
        for inlet in inlets
        if inlet.target in names and formed_degree(master, name, inlet) == 0
    ]


def choose(names: Sequence[str], patterns: Sequence[str] | None) -> list[int]:
    """The places of the names that match a pattern, in the names' order; a pattern must match something.

    >>> choose(["truck.x", "truck.v", "tyre.x"], ["*.x"])
    [0, 2]
    """
    if patterns is None:
        return list(range(len(names)))
    chosen: set[int] = set()
    for pattern in patterns:
        matching = {i for i, name in enumerate(names) if matches(name, pattern)}
        if not matching:
            raise UnknownNameError("variable to record", pattern, names)
        chosen |= matching
    return sorted(chosen)


class _Memory:
    """Rows side by side in one array that doubles when full."""

    def __init__(self, width: int, texts: int) -> None:
        self._storage = np.empty((1024, width))
        self._used = 0
        self.texts: list[list[Text]] = [[] for _ in range(texts)]

    def append(self, rows: Array, texts: Sequence[Sequence[Text]] = ()) -> None:
        for kept, column in zip(self.texts, texts, strict=True):
            kept.extend(column)
        end = self._used + len(rows)
        if end > len(self._storage):
            self._grow(max(end, 2 * len(self._storage)))
        place = self._storage[self._used : end]
        if rows.ctypes.data != place.ctypes.data:  # else they were written here
            place[:] = rows
        self._used = end

    def room(self, rows: int) -> Array | None:
        free = self._storage[self._used : self._used + rows]
        return free if len(free) == rows else None

    def reserve(self, rows: int) -> None:
        """At most some of it: a run may end long before its last step."""
        wanted = self._used + min(rows, _RESERVE_BYTES // (8 * self._storage.shape[1]))
        if wanted > len(self._storage):
            self._grow(wanted)

    def _grow(self, rows: int) -> None:
        grown = np.empty((rows, self._storage.shape[1]))
        grown[: self._used] = self.rows
        self._storage = grown

    def flush(self) -> None:
        """Nothing waits."""

    @property
    def rows(self) -> Array:
        return self._storage[: self._used]


@cache
def _versions() -> dict[str, str]:
    return {"cosimo": __version__, "python": platform.python_version(), "numpy": np.__version__}


# ---- the Arrow IPC stream that rows go to; what it holds survives the end of the process -----------------------------


NUMBERS = {"double": np.float64, "int64": np.int64}
"""The types of Arrow that are numbers in one block of memory, and those of NumPy."""


class DamagedRows(ValueError):
    """Rows of a stream that are not those that were written."""


def _check(first: int, count: int, columns: Iterable[Array]) -> dict[bytes, bytes]:
    check = 0
    for column in columns:
        check = zlib.crc32(np.ascontiguousarray(column).data, check)
    return {CHECK_KEY: f"{first} {count} {check}".encode()}


def check_of(first: int, batch: Any) -> dict[bytes, bytes]:
    """What a batch tells about its rows, of which the stream has `first` before it."""
    return _check(first, batch.num_rows, map(_values, batch.columns))


def _values(column: Any) -> Any:
    """The values of a column; written out where it has texts, or lacks some."""
    if str(column.type) in NUMBERS and not column.null_count:
        return numbers_of(column)
    return np.frombuffer(repr(column.to_pylist()).encode(), np.uint8)


def numbers_of(column: Any) -> Any:
    """A column of numbers that lacks none, as it lies in memory: Arrow's `to_numpy` would load pandas first (0.2 s)."""
    data = column.buffers()[1]
    values = np.frombuffer(data or b"", NUMBERS[str(column.type)])
    return values[column.offset : column.offset + len(column)]


def _fits(told: bytes, first: int, batch: Any) -> bool:
    try:
        batch.validate(full=True)  # texts may point anywhere
        return told == check_of(first, batch)[CHECK_KEY]
    except ValueError:  # Arrow's own, and texts that are none
        return False


def open_rows(path: Path) -> Any:
    """A file of rows for Arrow: mapped, or on Windows, where what is mapped cannot be replaced, read."""
    import pyarrow as arrow

    return arrow.OSFile(str(path)) if sys.platform == "win32" else arrow.memory_map(str(path))


def checked_batches(reader: Any) -> Iterator[tuple[Any, Mapping[bytes, bytes]]]:
    """The batches of a stream with what they carry; raises `DamagedRows` at the first that was changed or is missing.

    Streams of earlier versions say nothing about their rows, and are taken as they are.
    """
    rows = 0
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        carried = dict(metadata or {})
        told = carried.get(CHECK_KEY)
        if told is not None and not _fits(told, rows, batch):
            raise DamagedRows(f"row {rows} and those after it were changed or are missing: the checksum differs")
        rows += batch.num_rows
        yield batch, carried


class Stream:
    """The Arrow IPC stream beside the final file.

    Columns are collected in one buffer, over which one record batch lies for good: writing it costs no conversion.
    The end of a run is told by an empty batch that carries the final document. Messages show `final` and `path` as they
    were given; files are found by their absolute paths, since a unit may change the working directory meanwhile.
    """

    def __init__(
        self,
        final: Path,
        names: Sequence[str],
        document: Mapping[str, Any],
        interval: float,
        position: Position | None = None,
        *,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        import pyarrow as arrow

        self.final, self.path = final, final.with_name(final.name + STREAM_SUFFIX)
        self.failed, self.written = False, 0
        self._interval, self._flushed, self._used = interval, time.monotonic(), 0
        width = 1 + len(names)
        self._buffer = np.empty((width, capacity(width)))
        types = {"String": arrow.string(), "Binary": arrow.binary()}
        self._types = [types[kind] for kind in (texts or {}).values()]
        self._texts: list[list[Text]] = [[] for _ in self._types]
        fields = [(name, arrow.float64()) for name in ("time", *names)]
        carried = {METADATA_KEY: dump(document)}
        schema = arrow.schema([*fields, *zip(texts or {}, self._types, strict=True)], carried)
        # arrow.array would load pandas, which takes longer than many a run
        columns = [[None, arrow.py_buffer(column)] for column in self._buffer]
        arrays = [arrow.Array.from_buffers(arrow.float64(), self._buffer.shape[1], column) for column in columns]
        self._batch = arrow.RecordBatch.from_arrays(arrays, schema=arrow.schema(fields, carried))
        self._schema = schema
        with writing(final, "give a file in a folder that exists and can be written to"):
            self._final = final.absolute()
            self._path = self._final.with_name(self.path.name)
            if self._final.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder")
            if position is not None:
                self._go_on(schema, position)
                return
            self._claim = _claim(self._path, self.path)
            self._sink = arrow.OSFile(str(self._path), "ab")
            self._writer = arrow.ipc.new_stream(self._sink, schema)
            self._writer.write_batch(self._first(0))  # so that the stream can be read from now on
            self._size = self._length()

    def _go_on(self, schema: Any, position: Position) -> None:
        """A fresh stream with the rows of the old one up to the position; it takes its place when it has them all."""
        import pyarrow as arrow

        if not self._path.exists():
            raise CheckpointError(f"the rows of the run are missing: there is no '{self.path}'.")
        new = self._path.with_name(self._path.name + ".new")
        with self._path.open("rb") as old, ExitStack() as undo:
            _lock(old, self._path, self.path)
            new.unlink(missing_ok=True)  # whoever writes one holds the lock: this one was left by a run that was killed
            undo.callback(new.unlink, missing_ok=True)
            self._claim = undo.enter_context(new.open("xb"))
            _lock(self._claim, new, self.path)
            movable = _Movable(self._claim)
            windows = sys.platform == "win32"  # where a file must be closed to be moved
            self._sink = undo.enter_context(arrow.PythonFile(movable, "w") if windows else arrow.OSFile(str(new), "ab"))
            self._writer = arrow.ipc.new_stream(self._sink, schema)
            for batch in self._before(position):
                self._writer.write_batch(batch, check_of(self.written, batch))
                self.written += batch.num_rows
            self._writer.write_batch(self._first(0))
            os.fsync(self._claim.fileno())  # the rows that it replaces are on the disk already
            let_move(old)
            let_move(self._claim)
            os.replace(new, self._path)
            if self._claim.closed:
                self._claim = movable.file = undo.enter_context(self._path.open("ab"))
                _lock(self._claim, self._path, self.path)
            bring_names_to_disk(self._path.parent)
            undo.pop_all()  # held as long as the recording goes on
            self._size = self._length()

    def _before(self, position: Position) -> Iterator[Any]:
        """The batches of the old stream up to the position; refuses one that has not all of them."""
        import pyarrow as arrow

        missing = position.written
        try:
            with open_rows(self._path) as source:
                reader = arrow.ipc.open_stream(source)
                found = json.loads((reader.schema.metadata or {}).get(METADATA_KEY, b"{}"))
                if found.get("run") != position.run or not reader.schema.equals(self._schema):
                    raise CheckpointError(f"'{self.path}' has the rows of another run; give the file of this one.")
                for whole, _ in checked_batches(reader):
                    if missing <= 0:
                        break
                    batch = whole.slice(0, missing)
                    missing -= batch.num_rows
                    yield batch
                if missing > 0:
                    raise ValueError(f"it has {position.written - missing} of {position.written}")
        except (OSError, ValueError) as problem:  # those of Arrow are among them
            reason = str(problem).rstrip(".")
            raise CheckpointError(f"'{self.path}' lacks rows from before the checkpoint: {reason}.") from None

    def _first(self, count: int) -> Any:
        """The first rows of the buffer as a batch."""
        import pyarrow as arrow

        batch = self._batch.slice(0, count)
        if not self._types:
            return batch
        texts = [arrow.array(text[:count], kind) for text, kind in zip(self._texts, self._types, strict=True)]
        return arrow.RecordBatch.from_arrays([*batch.columns, *texts], schema=self._schema)

    def append(self, rows: Array, texts: Sequence[Sequence[Text]] = ()) -> None:
        start, capacity = 0, self._buffer.shape[1]
        while start < len(rows):
            count = min(len(rows) - start, capacity - self._used)
            self._buffer[:, self._used : self._used + count] = rows[start : start + count].T
            for kept, column in zip(self._texts, texts, strict=True):
                kept.extend(column[start : start + count])
            start, self._used = start + count, self._used + count
            if self._used == capacity:
                self.flush()
        if time.monotonic() - self._flushed >= self._interval:
            self.flush()

    def flush(self) -> None:
        if self._used:
            columns, batch = (column[: self._used] for column in self._buffer), self._first(self._used)
            numbers = _check(self.written, self._used, columns) if not self._types else None
            self._write(batch, numbers or check_of(self.written, batch))
            self._texts = [[] for _ in self._types]
            self.written += self._used
            self._used = 0
        self._flushed = time.monotonic()

    def close(self, document: Mapping[str, Any]) -> None:
        """Write what waits, then the end."""
        self.flush()
        nothing = self._first(0)
        self._write(nothing, {METADATA_KEY: dump(document), **check_of(self.written, nothing)})
        with self._guard():
            self._writer.close()
            self._sink.close()

    def _write(self, batch: Any, carried: Mapping[bytes, bytes]) -> None:
        """Write a batch; nobody may have touched the stream since the last one, and this one must have arrived."""
        self._require_whole()
        with self._guard():
            self._writer.write_batch(batch, carried)
        before, self._size = self._size, self._length()
        if self._size < before + batch.nbytes:
            raise self._lost("did not take what was written to it")

    def _length(self) -> int:
        """Bytes in the file that was opened, wherever it is now."""
        return os.fstat(self._claim.fileno()).st_size

    def _require_whole(self) -> None:
        try:
            if not os.path.samestat(os.fstat(self._claim.fileno()), self._path.stat()):
                raise self._lost("was replaced")
        except OSError as problem:
            raise self._lost("was removed" if problem.errno == errno.ENOENT else "was closed") from None
        if self._length() != self._size:
            raise self._lost("was changed by somebody else")

    def _lost(self, how: str) -> OutputError:
        """The error for a stream that is no longer what was written."""
        self.failed = True
        self._release()
        return OutputError(
            f"cannot write results to '{self.final}': '{self.path}' {how} during the run; {self._kept()}. Do not move "
            "or change it until the run has ended."
        )

    def _kept(self) -> str:
        """What can be read of the rows now."""
        import pyarrow as arrow

        found = 0
        with suppress(OSError, ValueError), open_rows(self._path) as source:
            for batch, _ in checked_batches(arrow.ipc.open_stream(source)):
                found += batch.num_rows
        given = self.written + self._used
        if found == given:
            return f"all rows are kept in '{self.path}', which can be read directly"
        return f"{found} of {given} rows can be read from '{self.path}'" if found else "no rows are left"

    def sync(self) -> Callable[[], None]:
        """See `Recorder.sync`; the stream may be closed meanwhile."""
        number = os.dup(self._claim.fileno())

        def work() -> None:
            try:
                os.fsync(number)
            finally:
                os.close(number)

        return work

    def finish(self, document: Mapping[str, Any], convert: Convert | None, *, keep: bool) -> None:
        """Put the final file in place and remove the stream, or keep it; no other run may take its place meanwhile."""
        with self._claim, writing(self.final, self._kept):
            if convert is not None:
                convert(self._path, self._final, document)
                if not keep:
                    let_move(self._claim)
                    self._path.unlink(missing_ok=True)
            elif keep:
                shutil.copyfile(self._path, self._final)
            else:
                os.fsync(self._claim.fileno())
                let_move(self._claim)
                os.replace(self._path, self._final)
                bring_names_to_disk(self._final.parent)

    @contextmanager
    def _guard(self) -> Iterator[None]:
        remedy = f"free some space or record fewer variables; the rows before are kept in '{self.path}'"
        try:
            with writing(self.final, remedy):
                yield
        except OutputError:
            self.failed = True
            self._release()
            raise

    def _release(self) -> None:
        for file in (self._sink, self._claim):
            with suppress(OSError):  # a unit may have closed it
                file.close()


class _Movable:
    """What Arrow writes to where the file beneath is closed, moved and opened again meanwhile."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, data: bytes) -> int:
        count = self.file.write(data)
        self.file.flush()
        return count

    def tell(self) -> int:
        return self.file.tell()

    def flush(self) -> None:
        self.file.flush()

    def close(self) -> None:
        self.closed = True  # the file beneath is held until the recording ends


def _claim(path: Path, shown: Path) -> IO[bytes]:
    """A fresh stream file. What a killed run left is removed; what another run is writing is refused.

    It is never truncated in place: somebody may be reading it.
    """
    with suppress(FileNotFoundError), path.open("rb") as old:
        _lock(old, path, shown)
        let_move(old)
        path.unlink()
    try:
        file = path.open("xb")
    except FileExistsError:
        raise _taken(shown) from None
    try:
        _lock(file, path, shown)
    except BaseException:
        file.close()
        raise
    return file


def _lock(file: IO[bytes], path: Path, shown: Path) -> None:
    """Hold the file at `path` for this process until it ends."""
    try:
        hold(file.fileno())
        # Who held it until a moment ago may have put another file in its place: the lock then protects nothing.
        held = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        held = False
    if not held:
        raise _taken(shown)


def _taken(shown: Path) -> OutputError:
    return OutputError(f"another run is recording to '{shown}'; give each run its own output file.")
