"""The processes behind the page: one that evaluates states, and the commands `analyse` and `run` as a user types them.

A unit may crash or hang: it ends one of these processes, the page says so, and the next request starts another. Runs
write the ordinary result files and belong to the server, not to a page: whoever opens the page again finds them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError, RunError
from cosimo.execution.recording import NUMBERS, STREAM_SUFFIX, numbers_of

LONGEST_ANSWER = 1 << 26
"""Bytes of one answer: a drawing of many units, or trajectories."""
PATIENCE = 120.0
"""Seconds that one evaluation may take before it is ended: identification of slow FMUs takes some ten."""
BUCKETS = 2_048
"""Parts of a signal of a run at most, with two points each: about two for every column of pixels of a screen."""
if sys.platform == "win32":  # which sends Ctrl-C to no group of processes but its own
    INTERRUPT, INTERRUPTED = signal.CTRL_BREAK_EVENT, 128 + signal.SIGBREAK
else:
    INTERRUPT, INTERRUPTED = signal.SIGINT, 128 + signal.SIGINT
"""What interrupts a process of `start`, and the exit code of a command that was interrupted."""
LOOK = 0.25
"""Seconds between two looks at the rows of a run; the run itself writes them once a second."""


async def start(*words: str, folder: Path, **pipes: Any) -> asyncio.subprocess.Process:
    """A Python process of this package; it is not interrupted with the server, which ends it itself."""
    command = [sys.executable, "-m", *words]
    if sys.platform == "win32":
        pipes["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
    return await asyncio.create_subprocess_exec(
        *command, cwd=folder, limit=LONGEST_ANSWER, start_new_session=True, **pipes
    )


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process that is no longer wanted, whatever it does."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class Evaluator:
    """Answers what a state evaluates to, one request at a time, in a process that is started when it is needed."""

    def __init__(self, folder: Path, isolation: Sequence[str] = ()) -> None:
        self.folder, self.isolation = folder, isolation
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def ask(self, request: Mapping[str, Any]) -> Any:
        """The answer; a `CosimoError` where the request, or a unit, is wrong."""
        async with self._turn:
            try:
                found = await asyncio.wait_for(self._exchange(request), PATIENCE)
            except TimeoutError:
                await self.close()
                raise RunError(
                    f"no answer within {PATIENCE:g} s: a unit hangs; change the setting or the unit."
                ) from None
            except BaseException:  # cancelled half way: the next answer would be that of this request
                await self.close()
                raise
        if "error" in found:
            raise ConfigurationError(found["error"])
        return found["answer"]

    async def _exchange(self, request: Mapping[str, Any]) -> Any:
        if self._process is None or self._process.returncode is not None:
            pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
            words = ("evaluate", "--json", *self.isolation)
            self._process = await start("cosimo.cli", *words, folder=self.folder, **pipes)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(ConnectionError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
        line = await self._process.stdout.readline()
        if not line:
            code = await self._process.wait()
            self._process = None
            how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            raise RunError(f"a unit ended the evaluation ({how}); isolate it, or replace it.")
        found = json.loads(line)
        if "exit_code" in found:  # its last words
            await self.close()
        return found

    async def close(self) -> None:
        """End the process."""
        if self._process is not None:
            await end(self._process)
            self._process = None


async def command(words: str, folder: Path) -> dict[str, Any]:
    """The document of `cosimo … --json`; a process that is ended when nobody waits for it any more."""
    pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.DEVNULL}
    process = await start("cosimo.cli", *shlex.split(words), "--json", folder=folder, **pipes)
    try:
        out, _ = await process.communicate()
    finally:
        await end(process)
    try:
        found: dict[str, Any] = json.loads(out)
    except ValueError:
        return {"error": f"cosimo {words.split()[0]} ended with exit code {process.returncode} and without an answer."}
    return found


class Envelopes:
    """The rows of a run: of every signal its smallest and its largest value in at most `BUCKETS` parts of equal length.

    Where there would be more parts, neighbours are joined: the past is as fine as the present. Rows of the part that is
    not whole yet are in memory, of a long run at most one in `BUCKETS` / 2. A part with values that are not finite ends
    in a gap.
    """

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.rows = 0
        self._width = 1
        self._kept: tuple[Array, ...] = ()  # parts, rows that are not a whole part yet, the first and the last row

    def add(self, names: tuple[str, ...], table: Array) -> None:
        """Further rows, (K, 1 + n), time first.

        >>> signals, values = Envelopes(), np.sin(np.arange(1e5))
        >>> for rows in np.split(np.column_stack([np.arange(1e5), values]), [7, 30_000, 30_001]):
        ...     signals.add(("a.x",), rows)
        >>> time, kept = signals.of("a.x")
        >>> len(time) <= 2 * BUCKETS + 4, bool(kept.max() == values.max()), (time[0].item(), time[-1].item())
        (True, True, (0.0, 99999.0))
        """
        if not len(table):
            return
        parts, left, ends = self._kept or (np.zeros((0, 4, len(names))), table[:0], table[:1])
        ends, rows, table = np.stack([ends[0], table[-1]]), len(table), np.concatenate([left, table])
        while True:
            count = min(len(table) // self._width, BUCKETS - len(parts))
            whole, table = np.split(table, [count * self._width])
            if count:
                parts = np.concatenate([parts, _extremes(whole.reshape(count, self._width, -1))])
            if len(parts) < BUCKETS:
                break
            parts = _joined(parts.reshape(BUCKETS // 2, 2, 4, -1))
            self._width *= 2
        self._kept = parts, table.copy(), ends  # at once: another thread may be reading
        self.names, self.rows = names, self.rows + rows

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last time."""
        return (float(self._kept[2][0, 0]), float(self._kept[2][1, 0])) if self.rows else (0.0, 0.0)

    def of(self, name: str) -> tuple[Array, Array]:
        """Times and values of one, the first and the last row among them."""
        place, (parts, left, ends) = self.names.index(name), self._kept
        own = parts[:, :, place]
        if len(left):
            own = np.concatenate([own, _extremes(left[None, :, [0, 1 + place]])[:, :, 0]])
        own = own.reshape(-1, 2, 2)  # of every part two points (time, value)
        own = np.where(own[:, :1, :1] > own[:, 1:, :1], own[:, ::-1], own).reshape(-1, 2)
        points = np.vstack([ends[:1, [0, 1 + place]], own, ends[-1:, [0, 1 + place]]])
        points = points[np.append(True, (points[1:] != points[:-1]).any(axis=1))]  # of one row both extremes are it
        return points[:, 0], points[:, 1]


def _extremes(blocks: Array) -> Array:
    """Of blocks of rows (k, w, 1 + n): times and values of the smallest and of the largest, (k, 4, n)."""
    time, values = np.broadcast_to(blocks[:, :, :1], blocks[:, :, 1:].shape), blocks[:, :, 1:]
    finite = np.isfinite(values)
    lowest = np.where(finite, values, np.inf).argmin(axis=1)[:, None]
    highest = np.where(finite, values, np.inf).argmax(axis=1)[:, None]  # what is not finite is met first
    found = [np.take_along_axis(of, place, 1) for place in (lowest, highest) for of in (time, values)]
    return _gaps(np.concatenate(found, axis=1))


def _joined(pairs: Array) -> Array:
    """The same of two neighbours, (k, 2, 4, n) to (k, 4, n)."""
    low, high = pairs[:, :, 1], pairs[:, :, 3]
    lowest = np.where(np.isnan(low), np.inf, low).argmin(axis=1)[:, None, None]
    highest = np.where(np.isnan(high), np.inf, high).argmax(axis=1)[:, None, None]
    return np.concatenate(
        [np.take_along_axis(pairs[:, :, :2], lowest, 1)[:, 0], np.take_along_axis(pairs[:, :, 2:], highest, 1)[:, 0]],
        axis=1,
    )


def _gaps(parts: Array) -> Array:
    parts[:, 1::2] = np.where(np.isfinite(parts[:, 1::2]), parts[:, 1::2], np.nan)
    return parts


class Rows:
    """The rows that a run is writing, read as they come; what was read can be read again, from any time on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._schema: Any = None
        self._place = 0
        self._begins: list[tuple[float, int]] = []

    def read(self) -> Iterator[tuple[tuple[str, ...], Array]]:
        """What is new since the last call, batch by batch; nothing where nothing is whole."""
        for place, following, table in self._batches(self._place):
            self._place = following
            if table is not None:
                self._begins.append((float(table[0, 0]), place))
                yield tuple(self._numeric[1:]), table

    def within(self, begin: float, end: float) -> Iterator[tuple[tuple[str, ...], Array]]:
        """The rows of a time range, of those that were read."""
        before = [place for time, place in self._begins if time <= begin]
        for place, _, table in self._batches(before[-1] if before else self._begins[0][1] if self._begins else 0):
            if table is not None and (table[0, 0] > end or place >= self._place):
                return
            if table is not None:
                yield tuple(self._numeric[1:]), table[(table[:, 0] >= begin) & (table[:, 0] <= end)]

    @property
    def _numeric(self) -> list[str]:
        """The columns that are numbers, time first."""
        return [one.name for one in self._schema if str(one.type) in NUMBERS]

    def _batches(self, place: int) -> Iterator[tuple[int, int, Array | None]]:
        """From a place in the file on: the place of every message, that of the next, and its rows."""
        import pyarrow

        try:
            with pyarrow.OSFile(str(self.path)) as source:
                source.seek(place)
                while True:
                    place = source.tell()
                    message = pyarrow.ipc.read_message(source)
                    table = None
                    if self._schema is None:
                        self._schema = pyarrow.ipc.read_schema(message)
                    elif message.type == "record batch":
                        batch = pyarrow.ipc.read_record_batch(message, self._schema).select(self._numeric)
                        table = np.column_stack([numbers_of(column) for column in batch.columns])
                    yield place, source.tell(), table if table is not None and len(table) else None
        except (OSError, EOFError, pyarrow.ArrowInvalid):  # not there, at its end, or while a batch is being written
            pass


class Run:
    """A run of `cosimo run`, followed while it writes its rows; `stop` is the time at which it will end."""

    numbers = itertools.count(1)

    def __init__(self, words: str, folder: Path, path: Path, stop: float | None = None) -> None:
        self.number, self.words, self.folder, self.path, self.stop_time = next(self.numbers), words, folder, path, stop
        self.state, self.said, self.stopping = "running", "", False
        self.document: dict[str, Any] = {}
        self.marks: list[dict[str, Any]] = []
        self.signals = Envelopes()
        self.changed = 0
        self._stream = Rows(path.with_name(path.name + STREAM_SUFFIX))
        self._process: asyncio.subprocess.Process | None = None
        self._clock = _Clock()

    @property
    def command(self) -> str:
        """As a user would type it."""
        return f"cosimo run {self.words} --unit-times -o {shlex.quote(self.path.name)}"

    def fields(self) -> dict[str, Any]:
        """For the page."""
        kept = ("end_time", "steps", "wall_time", "steps_per_second", "stopped_at", "error", "unit_times")
        begin, reached = self.signals.span
        spent = self.document.get("wall_time") or self._clock.seconds
        return {
            "number": self.number, "command": self.command, "words": self.words, "file": self.path.name,
            "state": self.state, "said": self.said, "stopping": self.stopping,
            "rows": self.signals.rows, "names": list(self.signals.names),
            "warnings": self.document.get("warnings", []), "marks": self.marks, "reached": reached,
            "stop": self.stop_time, "speed": (reached - begin) / spent if spent > 0 else None,
            **{name: self.document.get(name) for name in kept},
        }  # fmt: skip

    def signal(self, name: str, span: tuple[float, float] | None) -> tuple[Array, Array]:
        """Times and values of a signal, of all times or of a span of them: then from the file, as fine as it is."""
        if span is None:
            return self.signals.of(name)
        found = Envelopes()
        tables = finished_rows(self.path, name, *span) if self.path.exists() else self._stream.within(*span)
        for names, table in tables:
            found.add((name,), table[:, [0, 1 + names.index(name)]])
        return found.of(name) if found.names else (np.zeros(0), np.zeros(0))

    async def go(self) -> None:
        """Run to the end, following the rows."""
        pipes = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        words = [*shlex.split(self.words), "--unit-times", "-o", str(self.path), "--json"]
        process = self._process = await start("cosimo.cli", "run", *words, folder=self.folder, **pipes)
        ended = asyncio.ensure_future(process.communicate())
        try:
            while not ended.done():
                await asyncio.wait({ended}, timeout=LOOK)
                await asyncio.to_thread(self._follow, self._stream.read())
        finally:
            if not ended.done():
                await end(process)
            out, complaint = await ended
        await self._finish(process.returncode, out, complaint.decode(errors="replace"))

    def _follow(self, tables: Iterator[tuple[tuple[str, ...], Array]]) -> None:
        for names, table in tables:
            self.signals.add(names, table)
            self.changed += 1

    async def _finish(self, code: int | None, out: bytes, complaint: str) -> None:
        self._clock.hold()
        with suppress(ValueError):
            self.document = json.loads(out)
        silent = "it was ended" if self.stopping else f"exit code {code}"
        self.said = "" if code == 0 else (complaint.strip().splitlines() or [silent])[-1]
        if self.path.exists():
            from cosimo.formats.results import read_document

            kept = read_document(self.path).get("warnings", [])
            self.marks = [{"time": one["time"], "text": one["message"]} for one in kept]
            if self.document.get("steps") != self.signals.rows - 1:  # rows that came between the last look and the end
                self.signals = Envelopes()
                await asyncio.to_thread(self._follow, finished_rows(self.path))
        self.changed += 1
        self.state = "done" if code == 0 else "stopped" if code == INTERRUPTED else "failed"

    def stop(self) -> None:
        """As Ctrl-C does: the rows so far are kept. Asked a second time, end it: a unit that hangs hears nothing."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        if self.stopping:
            process.kill() if sys.platform == "win32" else os.killpg(process.pid, signal.SIGKILL)
        else:
            try:
                process.send_signal(INTERRUPT)
            except (OSError, SystemError):  # Windows without a console, which carries it
                process.kill()
        self.stopping = True
        if self.state == "paused":
            self.pause(False)

    def pause(self, wanted: bool) -> None:
        """Let the process rest where it is, or go on."""
        if not hasattr(signal, "SIGSTOP"):
            raise ConfigurationError("this system cannot pause a process; stop the run instead.")
        process = self._process
        if process is None or process.returncode is not None or wanted == (self.state == "paused"):
            return
        os.killpg(process.pid, signal.SIGSTOP if wanted else signal.SIGCONT)  # with the units in processes of their own
        self.state = "paused" if wanted else "running"
        (self._clock.hold if wanted else self._clock.go)()


class _Clock:
    """Seconds that a run has taken, pauses left out."""

    def __init__(self) -> None:
        self._before, self._since = 0.0, time.monotonic()
        self._going = True

    @property
    def seconds(self) -> float:
        return self._before + (time.monotonic() - self._since if self._going else 0.0)

    def hold(self) -> None:
        self._before, self._going = self.seconds, False

    def go(self) -> None:
        self._since, self._going = time.monotonic(), True


def finished_rows(
    path: Path, name: str | None = None, begin: float = -math.inf, end: float = math.inf
) -> Iterator[tuple[tuple[str, ...], Array]]:
    """The rows of a Parquet file, of all signals or one, in a time range, some at a time."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        schema = file.schema_arrow
        wanted = [one for one in schema.names[1:] if str(schema.field(one).type) in NUMBERS and one == (name or one)]
        sizes = [file.metadata.row_group(group).column(0).statistics for group in range(file.metadata.num_row_groups)]
        groups = [g for g, size in enumerate(sizes) if size is None or (size.max >= begin and size.min <= end)]
        for batch in file.iter_batches(row_groups=groups, columns=[schema.names[0], *wanted]):
            table = np.column_stack([numbers_of(column) for column in batch.columns])
            yield tuple(wanted), table[(table[:, 0] >= begin) & (table[:, 0] <= end)]


def free_file(folder: Path, stem: str, suffix: str = ".parquet") -> Path:
    """A file that does not exist yet, nor its stream."""
    places = (folder / f"{stem}-{number}{suffix}" for number in itertools.count(1))
    return next(path for path in places if not any(Path(f"{path}{end}").exists() for end in ("", STREAM_SUFFIX)))
