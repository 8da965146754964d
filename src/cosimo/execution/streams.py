"""The Arrow IPC stream that rows go to while a run goes on; what it holds survives the end of the process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import CheckpointError, OutputError

STREAM_SUFFIX = ".partial"
"""What the stream's name has beyond that of the final file."""

METADATA_KEY = b"cosimo"
"""Where Arrow and Parquet files keep the JSON document that describes the run."""

Convert = Callable[[Path, Path, Mapping[str, Any]], None]
"""Turns a finished stream (first path) into the final file (second) that carries the document."""

_BUFFER_BYTES = 1 << 20  # large enough that a batch costs little per row, small enough for the processor's cache


@dataclass(frozen=True)
class Position:
    """Where a recording stood: the rows it had taken, those of them in the stream, and the run they belong to."""

    taken: int
    written: int
    run: str


@contextmanager
def writing(path: Path, remedy: str, *, what: str = "results") -> Iterator[None]:
    """Turn a failed write into an error that names the file, the cause and the remedy."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else str(error)
        raise OutputError(f"cannot write {what} to '{path}': {cause}; {remedy}.") from None


def bring_to_disk(path: Path) -> None:
    """Wait until a file would survive a loss of power."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def bring_names_to_disk(folder: Path) -> None:
    """The same for the names of the files in a folder; not all file systems have that."""
    with suppress(OSError):
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def dump(document: Mapping[str, Any]) -> bytes:
    """The document as files hold it."""
    return json.dumps(document, ensure_ascii=False).encode()


def capacity(width: int) -> int:
    """Rows per batch: the buffer's size, but for wide rows so many that the cost per column is spread over some."""
    return max(_BUFFER_BYTES // (8 * width), min(512, 16 * _BUFFER_BYTES // (8 * width)), 1)


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
    ) -> None:
        import pyarrow as arrow

        self.final, self.path = final, final.with_name(final.name + STREAM_SUFFIX)
        self.failed, self.written = False, 0
        self._interval, self._flushed, self._used = interval, time.monotonic(), 0
        width = 1 + len(names)
        self._buffer = np.empty((width, capacity(width)))
        schema = arrow.schema([(name, arrow.float64()) for name in ("time", *names)], {METADATA_KEY: dump(document)})
        self._batch = arrow.RecordBatch.from_arrays([arrow.array(column) for column in self._buffer], schema=schema)
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
            self._writer.write_batch(self._batch.slice(0, 0))  # so that the stream can be read from now on

    def _go_on(self, schema: Any, position: Position) -> None:
        """A fresh stream with the rows of the old one up to the position; it takes its place when it has them all."""
        import pyarrow as arrow

        if not self._path.exists():
            raise CheckpointError(f"the rows of the run are missing: there is no '{self.path}'.")
        new = self._path.with_name(self._path.name + ".new")
        with self._path.open("rb") as old, ExitStack() as undo:
            _lock(old, self._path, self.path)
            new.unlink(missing_ok=True)  # whoever writes one holds the lock: this one was left by a run that was killed
            self._claim = undo.enter_context(new.open("xb"))
            undo.callback(new.unlink, missing_ok=True)
            _lock(self._claim, new, self.path)
            self._sink = undo.enter_context(arrow.OSFile(str(new), "ab"))
            self._writer = arrow.ipc.new_stream(self._sink, schema)
            for batch in self._before(position):
                self._writer.write_batch(batch)
                self.written += batch.num_rows
            self._writer.write_batch(self._batch.slice(0, 0))
            os.fsync(self._claim.fileno())  # the rows that it replaces are on the disk already
            os.replace(new, self._path)
            bring_names_to_disk(self._path.parent)
            undo.pop_all()  # held as long as the recording goes on

    def _before(self, position: Position) -> Iterator[Any]:
        """The batches of the old stream up to the position; refuses one that has not all of them."""
        import pyarrow as arrow

        missing = position.written
        try:
            with arrow.memory_map(str(self._path)) as source:
                reader = arrow.ipc.open_stream(source)
                found = json.loads((reader.schema.metadata or {}).get(METADATA_KEY, b"{}"))
                if found.get("run") != position.run or not reader.schema.equals(self._batch.schema):
                    raise CheckpointError(f"'{self.path}' has the rows of another run; give the file of this one.")
                while missing > 0:
                    batch = reader.read_next_batch().slice(0, missing)
                    missing -= batch.num_rows
                    yield batch
        except (StopIteration, OSError, ValueError) as problem:  # those of Arrow are among them
            reason = str(problem).rstrip(".") or f"it has {position.written - missing} of {position.written}"
            raise CheckpointError(f"'{self.path}' has not all rows before the checkpoint: {reason}.") from None

    def append(self, rows: Array) -> None:
        start, capacity = 0, self._buffer.shape[1]
        while start < len(rows):
            count = min(len(rows) - start, capacity - self._used)
            self._buffer[:, self._used : self._used + count] = rows[start : start + count].T
            start, self._used = start + count, self._used + count
            if self._used == capacity:
                self.flush()
        if time.monotonic() - self._flushed >= self._interval:
            self.flush()

    def flush(self) -> None:
        if self._used:
            with self._guard():
                self._writer.write_batch(self._batch.slice(0, self._used))
            self.written += self._used
            self._used = 0
        self._flushed = time.monotonic()

    def close(self, document: Mapping[str, Any]) -> None:
        """Write what waits, then the end."""
        self.flush()
        with self._guard():
            self._writer.write_batch(self._batch.slice(0, 0), {METADATA_KEY: dump(document)})
            self._writer.close()
            self._sink.close()

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
        with self._claim, writing(self.final, f"all rows are kept in '{self.path}', which can be read as it is"):
            if convert is not None:
                convert(self._path, self._final, document)
                if not keep:
                    self._path.unlink(missing_ok=True)
            elif keep:
                shutil.copyfile(self._path, self._final)
            else:
                os.fsync(self._claim.fileno())
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
        self._sink.close()
        self._claim.close()


def _claim(path: Path, shown: Path) -> IO[bytes]:
    """A fresh stream file. What a killed run left is removed; what another run is writing is refused.

    It is never truncated in place: somebody may be reading it.
    """
    with suppress(FileNotFoundError), path.open("rb") as old:
        _lock(old, path, shown)
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
    """Hold the file at `path` for this process until it ends, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held it until a moment ago may have put another file in its place: the lock then protects nothing.
        held = os.path.samestat(os.fstat(file.fileno()), path.stat())
    except (BlockingIOError, FileNotFoundError):
        held = False
    if not held:
        raise _taken(shown)


def _taken(shown: Path) -> OutputError:
    return OutputError(f"another run is recording to '{shown}'; give each run its own output file.")
