"""The Arrow IPC stream that rows go to while a run goes on; what it holds survives the end of the process."""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
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


def dump(document: Mapping[str, Any]) -> bytes:
    """The document as files hold it."""
    return json.dumps(document, ensure_ascii=False).encode()


def capacity(width: int) -> int:
    """Rows per batch: the buffer's size, but for wide rows so many that the cost per column is spread over some."""
    return max(_BUFFER_BYTES // (8 * width), min(512, 16 * _BUFFER_BYTES // (8 * width)), 1)


class Stream:
    """The Arrow IPC stream beside the final file.

    Columns are collected in one buffer, over which one record batch lies for good: writing it costs no conversion.
    The end of a run is told by an empty batch that carries the final document.
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
            if final.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a folder")
            if position is not None:
                self._go_on(schema, position)
                return
            self._claim = _claim(self.path)
            self._sink = arrow.OSFile(str(self.path), "ab")
            self._writer = arrow.ipc.new_stream(self._sink, schema)
            self._writer.write_batch(self._batch.slice(0, 0))  # so that the stream can be read from now on

    def _go_on(self, schema: Any, position: Position) -> None:
        """A fresh stream with the rows of the old one up to the position; it takes its place when it has them all."""
        import pyarrow as arrow

        if not self.path.exists():
            raise CheckpointError(f"the rows of the run are missing: there is no '{self.path}'.")
        new = self.path.with_name(self.path.name + ".new")
        new.unlink(missing_ok=True)
        with self.path.open("rb") as old, new.open("xb") as claim, ExitStack() as undo:
            undo.callback(new.unlink, missing_ok=True)
            _lock(old, self.path)
            self._claim, self._sink = claim, undo.enter_context(arrow.OSFile(str(new), "ab"))
            self._writer = arrow.ipc.new_stream(self._sink, schema)
            try:
                with arrow.memory_map(str(self.path)) as source:
                    self._take_over(arrow.ipc.open_stream(source), position)
            except (StopIteration, arrow.ArrowInvalid, ValueError) as problem:
                reason = str(problem).rstrip(".") or f"it has {self.written} of {position.written}"
                raise CheckpointError(f"'{self.path}' has not all rows before the checkpoint: {reason}.") from None
            self._writer.write_batch(self._batch.slice(0, 0))
            os.replace(new, self.path)
            self._claim = open(os.dup(claim.fileno()), "rb")  # noqa: SIM115  held as long as the recording goes on
            _lock(self._claim, self.path)
            undo.pop_all()

    def _take_over(self, reader: Any, position: Position) -> None:
        found = json.loads((reader.schema.metadata or {}).get(METADATA_KEY, b"{}"))
        if found.get("run") != position.run or not reader.schema.equals(self._batch.schema):
            raise CheckpointError(f"'{self.path}' has the rows of another run; give the file of this one.")
        while (missing := position.written - self.written) > 0:
            batch = reader.read_next_batch().slice(0, missing)
            self._writer.write_batch(batch)
            self.written += batch.num_rows

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
        self._release()

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
        """Put the final file in place and remove the stream, or keep it."""
        with writing(self.final, f"all rows are kept in '{self.path}', which can be read as it is"):
            if convert is not None:
                convert(self.path, self.final, document)
            elif keep:
                shutil.copyfile(self.path, self.final)
            else:
                os.replace(self.path, self.final)
            if not keep:
                self.path.unlink(missing_ok=True)

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


def _claim(path: Path) -> IO[bytes]:
    """A fresh stream file. What a killed run left is removed; what another run is writing is refused.

    It is never truncated in place: somebody may be reading it.
    """
    if path.exists():
        with path.open("rb") as old:
            _lock(old, path)
        path.unlink()
    file = path.open("xb")
    _lock(file, path)
    return file


def _lock(file: IO[bytes], path: Path) -> None:
    """Hold the file for this process until it ends, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(f"another run is recording to '{path}'; give each run its own output file.") from None
