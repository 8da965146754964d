"""Recording: rows leave the run in blocks and are safe on disk while it goes on.

A row is [t, v_1 … v_n]. With a file, rows pass through one buffer of fixed size into an Arrow IPC *stream* beside it

    out.parquet  ←  out.parquet.partial          schema | batch | batch | …

of which every prefix can be read: what was flushed before a kill −9 stays. `close` hands the finished stream to a
converter and removes it, so a stream that is still there tells of a run that goes on or was interrupted. Without a
file the rows stay in memory. Memory for a file does not grow with the number of rows.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt

from cosimo.core.arrays import Array
from cosimo.core.errors import (
    ConfigurationError,
    DimensionError,
    Interrupted,
    RunError,
    UnknownNameError,
)
from cosimo.core.result import Result, Warned
from cosimo.execution.streams import METADATA_KEY, STREAM_SUFFIX, Convert, Position, Stream, dump, writing

__all__ = [
    "METADATA_KEY",
    "STREAM_SUFFIX",
    "Convert",
    "Output",
    "Position",
    "Recorder",
    "Session",
    "as_plain",
    "choose",
    "dump",
    "keeping_rows",
    "writing",
]

_RESERVE_BYTES = 1 << 30


class Output(Protocol):
    """Where a run's rows shall go: makes the recorder once the names are known."""

    def open(self, names: Sequence[str], metadata: Mapping[str, Any]) -> Recorder:
        """A recorder of these signals; raises before the first step what would stop it from writing."""


class Session(Protocol):
    """A run that can be ended at any time with what it has."""

    @property
    def reached(self) -> float:
        """The time of the last completed macro step."""

    @property
    def remedy(self) -> str:
        """How an interrupted run goes on; empty where it does not."""

    def close(self, recorder: Recorder, warnings: list[Warned], *, complete: bool) -> Result:
        """End the recording."""


@contextmanager
def keeping_rows(session: Session, recorder: Recorder) -> Iterator[None]:
    """Whatever ends the run early, an error or Ctrl-C, carries the rows completed so far in `.result`."""
    try:
        yield
    except RunError as error:
        error.result = session.close(recorder, [], complete=False)
        raise
    except KeyboardInterrupt:
        goes_on = f"; {session.remedy}" if session.remedy else ""
        interrupted = Interrupted(f"interrupted at t = {session.reached:g}; the rows so far are kept{goes_on}.")
        interrupted.result = session.close(recorder, [], complete=False)
        raise interrupted from None


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
    ) -> None:
        if every < 1:
            raise ConfigurationError(f"of the rows every {every}-th was asked for; give a whole number of 1 or more.")
        if not flush_interval >= 0:
            raise ConfigurationError(f"the flush interval is {flush_interval} s; give 0 or a positive number.")
        if "time" in names or len(set(names)) != len(names):
            raise ConfigurationError(f"recorded signals need different names other than 'time': {', '.join(names)}.")
        chosen = choose(names, variables)
        self.names = tuple(names[i] for i in chosen)
        self.rows = 0 if position is None else position.taken
        self.keep = False
        self._width, self._every, self._convert = 1 + len(names), every, convert
        self._columns = None if len(chosen) == len(names) else np.array([0, *(i + 1 for i in chosen)])
        self._metadata = dict(metadata or {})
        self._last: Array | None = None
        self._closed = False
        self._store = _Memory(1 + len(chosen)) if path is None else self._open(Path(path), flush_interval, position)

    def _open(self, path: Path, flush_interval: float, position: Position | None) -> Stream:
        if self._convert is None and path.suffix != ".arrows":
            raise ConfigurationError(f"'{path}' needs a converter; open it as a ResultFile, or call it '.arrows'.")
        self._metadata |= {"started": datetime.now(UTC).isoformat(timespec="seconds"), "versions": _versions()}
        return Stream(path, self.names, self._document(complete=False, warnings=()), flush_interval, position)

    def record(self, block: npt.ArrayLike) -> None:
        """Take rows (K, 1 + n), time first; the block may be overwritten afterwards."""
        rows = np.asarray(block, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] != self._width:
            raise DimensionError(f"a block of rows has the shape {rows.shape}; expected (any, {self._width}).")
        if self._closed:
            raise ConfigurationError("rows were given to a recorder that is closed; open a new one.")
        first, self.rows = self.rows, self.rows + len(rows)
        if self._columns is not None:
            rows = rows[:, self._columns]
        if self._every > 1 and len(rows):
            self._last = rows[-1:].copy()
            rows = rows[-first % self._every :: self._every]
        self._store.append(rows)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` to come: spares rows kept in memory from being moved as they grow."""
        if isinstance(self._store, _Memory):
            self._store.reserve(rows // self._every + 2)

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
            store.append(self._last)
        if isinstance(store, _Memory):
            rows = store.rows
            return Result(self.names, rows[:, 0].copy(), rows[:, 1:], tuple(warnings), complete, self._metadata)
        store.flush()
        document = self._document(complete, warnings)
        store.close(document)
        store.finish(document, self._convert, keep=self.keep and not complete)
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._closed:
            self.close(complete=False)

    def _document(self, complete: bool, warnings: Sequence[Warned]) -> dict[str, Any]:
        """What the file tells about the run, as plain data."""
        found = [asdict(warned) for warned in warnings]
        document = {**self._metadata, "complete": complete, "warnings": found}
        try:
            plain: dict[str, Any] = json.loads(json.dumps(document, default=as_plain, allow_nan=False))
        except (TypeError, ValueError) as problem:
            raise ConfigurationError(f"the metadata of the results cannot be written as JSON: {problem}.") from None
        return plain


def choose(names: Sequence[str], patterns: Sequence[str] | None) -> list[int]:
    """The places of the names that match a pattern, in the names' order; a pattern must match something.

    >>> choose(["truck.x", "truck.v", "tyre.x"], ["*.x"])
    [0, 2]
    """
    if patterns is None:
        return list(range(len(names)))
    chosen: set[int] = set()
    for pattern in patterns:
        # A whole name counts as itself: in "a.x[1]" the brackets are an index.
        matching = {i for i, name in enumerate(names) if name == pattern or fnmatchcase(name, pattern)}
        if not matching:
            raise UnknownNameError("variable to record", pattern, names)
        chosen |= matching
    return sorted(chosen)


class _Memory:
    """Rows side by side in one array that doubles when full."""

    def __init__(self, width: int) -> None:
        self._storage = np.empty((1024, width))
        self._used = 0

    def append(self, rows: Array) -> None:
        end = self._used + len(rows)
        if end > len(self._storage):
            self._grow(max(end, 2 * len(self._storage)))
        self._storage[self._used : end] = rows
        self._used = end

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
    from importlib.metadata import version

    return {"cosimo": version("cosimo"), "python": platform.python_version(), "numpy": np.__version__}


def as_plain(value: Any) -> Any:
    """Arrays, NumPy numbers and paths in the metadata as JSON knows them."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{value!r} is not plain data")
