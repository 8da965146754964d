"""Where the runs of a study are made: in this process, on local worker processes, or on a Dask cluster.

Points travel in chunks of about a second of work, at most two per worker thread at a time, so that neither
messages nor waiting cost much and the memory of scheduler and client stays small however many points there are. Dask
gives the chunks of a lost worker to another one. A chunk whose workers die again and again is taken apart at the end:
its points run alone, one after the other, and the one that ends its process becomes a row that says so.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import math
import pickle
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from cosimo import __version__
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, CosimoError, OutputError
from cosimo.core.guarding import processors
from cosimo.core.system import System
from cosimo.studies.copies import could_crash, made_in_copies
from cosimo.studies.rows import Row
from cosimo.studies.runner import Runner, Take
from cosimo.studies.study import Study

SAVED_EVERY = 0.25
"""Seconds between two batches of rows made in this process: each costs some fractions of a millisecond."""
TRIAL = 1.0
"""Seconds after which it is known how long runs take."""
PAYS = 8.0
"""Seconds of work that are worth starting processes, which takes a few."""


class RunPool(Protocol):
    """Where the runs are made."""

    workers: int
    notes: list[str]

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take) -> None:
        """Make these runs and hand over their rows as they come, in any order."""


class Here:
    """One run after the other: in this process, or in a copy of it where a unit could take it down (`copies.py`)."""

    def __init__(self, *notes: str) -> None:
        self.workers, self.notes = 1, list(notes)

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take, *, enough: float = math.inf) -> None:
        """As `RunPool`; ends early after `enough` seconds."""
        waiting: list[Row] = []
        begin = saved = time.monotonic()
        make = made_in_copies if could_crash(runner) else made_here
        with closing(make(runner, runs)) as rows:
            try:
                for row in rows:
                    if row is not None:
                        waiting.append(row)
                        if time.monotonic() - begin > enough:
                            break
                    if waiting and time.monotonic() - saved > SAVED_EVERY:
                        batch, waiting = waiting, []
                        take(batch)
                        saved = time.monotonic()
            finally:
                if waiting:
                    take(waiting)
                if runner.note and runner.note not in self.notes:
                    self.notes.append(runner.note)


def made_here(runner: Runner, runs: Sequence[int]) -> Generator[Row, None, None]:
    """The rows of these runs, made in this process."""
    for number in runs:
        yield runner.evaluate(number)


class Sensible:
    """This process as long as that is quicker than starting others, then `workers` local processes."""

    def __init__(self, workers: int) -> None:
        self.workers, self.notes = 1, list[str]()
        self._most = workers

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take) -> None:
        begin, made = time.monotonic(), 0

        def count(rows: Sequence[Row]) -> None:
            nonlocal made
            made += len(rows)
            take(rows)

        here = Here()
        here.evaluate(runner, runs, count, enough=TRIAL)
        left = runs[made:]
        pool: RunPool = here
        if left and (time.monotonic() - begin) / made * len(left) > PAYS:
            pool = Cluster(workers=min(self._most, len(left)))
        try:
            if left:
                pool.evaluate(runner, left, take)
        finally:
            self.workers, self.notes = pool.workers, list(dict.fromkeys([*here.notes, *pool.notes]))


def choose_pool(left: Sequence[int], workers: int | None, scheduler: str | None, client: Any) -> RunPool:
    """Where the runs that are `left` are made, by what was asked for and what is installed."""
    if client is not None or scheduler is not None:
        return Cluster(client=client, scheduler=scheduler)
    count = min(workers or processors(), max(1, len(left)))
    if count == 1:
        return Here()
    if importlib.util.find_spec("distributed") is None:
        if workers is not None:
            raise ConfigurationError("several workers need Dask: pip install 'cosimo[cluster]', or use one worker.")
        return Here("run in one process: several workers need Dask (pip install 'cosimo[cluster]')")
    if workers is None:
        return Sensible(count)
    return Cluster(workers=count)


# ---- Dask workers: local processes, or an existing cluster -----------------------------------------------------------


WORK = 1.0
"""Seconds of work that a chunk should have."""
AHEAD = 2
"""Chunks per worker thread that are under way: one is run, one waits beside it."""
SHARE = 4
"""A chunk is at most this part of what is left for each thread, so that all end together,"""
LEAST = 20
"""but not smaller than this part of the usual: messages cost about as much as a run."""
LOCAL = {
    "distributed.scheduler.allowed-failures": 1,  # a process that dies twice over the same chunk is no accident
    "distributed.worker.profile.enabled": False,  # what nobody looks at takes some time from the runs
    # A process that died is started again; on a busy machine that takes longer than the 15 s after which Dask gives up.
    "distributed.deploy.lost-worker-timeout": "5m",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    # One thread each, as runs are side by side. Dask has processes give memory back at once; the rows of the next run
    # are as many as those of the last one, and taking it anew costs up to a quarter of a short run.
    "distributed.nanny.pre-spawn-environ": {
        "MALLOC_TRIM_THRESHOLD_": 2**27,
        "MALLOC_MMAP_THRESHOLD_": 2**25,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), 1),
    },
}
"""Settings of Dask for local processes."""
_TALKATIVE = ("distributed", "tornado", "asyncio")
"""Whose logs are kept from the user while a remote cluster works."""
CONNECTING = 10.0
"""Seconds to wait for a scheduler to answer."""


class Chunk(NamedTuple):
    """Runs that travel together; `alone` when they are suspected of ending the process they run in."""

    runs: tuple[int, ...]
    alone: bool = False


class Cluster:
    """Dask workers: `workers` local processes, the cluster at `scheduler`, or that of `client`."""

    def __init__(self, *, workers: int | None = None, scheduler: str | None = None, client: Any = None) -> None:
        self._client, self._scheduler = client, scheduler
        self.workers = workers or 0
        self.notes: list[str] = []

    def evaluate(self, runner: Runner, runs: Sequence[int], take: Take) -> None:
        packed = pack(runner.study)
        with self._connected() as client:
            self.workers = max(self.workers, sum(client.nthreads().values()))
            work = _Work(client, packed, runs, take, self.notes)
            try:
                work.run(runner)
            except (OSError, TimeoutError, CancelledError) as error:  # that of a closed connection is among them
                raise OutputError(
                    f"the Dask scheduler has disappeared ({type(error).__name__}); start it again and complete the "
                    "study with --resume: the rows so far are kept."
                ) from None
            finally:
                work.cancel()
                if self._client is not None or self._scheduler is not None:
                    with suppress(Exception):  # workers that are gone have nothing to forget
                        client.run(forget, packed.digest)

    def _connected(self) -> AbstractContextManager[Any]:
        if self._client is not None:
            return nullcontext(self._client)
        return _remote(self._scheduler) if self._scheduler else local_workers(self.workers)


@contextmanager
def _remote(address: str) -> Iterator[Any]:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECTING)
    except (OSError, ValueError, TimeoutError) as error:
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigurationError(
            f"no Dask scheduler answers at '{address}' ({cause}); start one with 'dask scheduler', or use --workers."
        ) from None
    with _silenced(), client:
        yield client


@contextmanager
def _silenced() -> Iterator[None]:
    """What Dask logs of a scheduler that is gone, tracebacks among it, is said by us in one sentence.

    After an error it stays silent: its threads find out one after the other, some when the process ends.
    """
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in _TALKATIVE]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in levels.items():
        logger.setLevel(level)


@contextmanager
def local_workers(workers: int) -> Iterator[Any]:
    """A `distributed.Client` of so many processes of this machine, which end with the block."""
    import dask
    from distributed import Client, LocalCluster

    options = {
        "n_workers": workers,
        "threads_per_worker": 1,
        "processes": True,
        "dashboard_address": ":0",  # any port: another study may have the usual one
        "silence_logs": logging.CRITICAL,
        "preload": ["cosimo.studies.pools"],
    }
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cosimo-study-", ignore_cleanup_errors=True))
        stack.enter_context(dask.config.set({**LOCAL, "temporary-directory": folder}))  # the scheduler's, too
        cluster = stack.enter_context(_started(lambda: LocalCluster(**options)))
        yield stack.enter_context(Client(cluster))


def _started(make: Callable[[], Any], attempts: int = 3) -> Any:
    """What `make` makes; a worker that is lost while it starts is no reason to give up at once."""
    while True:
        try:
            return make()
        except RuntimeError as error:
            attempts -= 1
            if attempts <= 0:
                raise ConfigurationError(
                    f"the worker processes cannot be started ({error}); in a script, call run_study below 'if __name__ "
                    f'== "__main__":\', or use one worker.'
                ) from None


class _Work:
    """The chunks of one study on their way."""

    def __init__(self, client: Any, packed: Packed, runs: Sequence[int], take: Take, notes: list[str]) -> None:
        from distributed import as_completed

        self._client, self._packed, self._take, self._notes = client, packed, take, notes
        self._left = deque(runs)
        self._suspects: deque[int] = deque()
        self._under_way: dict[Any, Chunk] = {}
        self._arriving = as_completed()
        self._seconds = self._made = 0.0
        self._seen: set[str] = set()
        self._lost: set[str] = set()

    def run(self, runner: Runner) -> None:
        while True:
            threads = self._threads()
            while self._left and len(self._under_way) < AHEAD * threads:
                size = min(self._size(threads), len(self._left))
                self._submit(Chunk(tuple(self._left.popleft() for _ in range(size))))
            if not self._under_way:
                if not self._suspects:
                    break
                self._submit(Chunk((self._suspects.popleft(),), alone=True))
            self._arrived(next(self._arriving), runner)
        if self._lost:
            many = len(self._lost)
            self._notes.append(
                f"{many} worker{'s were' if many > 1 else ' was'} lost; its unfinished runs were repeated"
            )

    def cancel(self) -> None:
        """Whatever is still under way is no longer wanted."""
        with suppress(Exception):  # the cluster may be gone
            self._client.cancel(list(self._under_way), force=True)

    def _submit(self, chunk: Chunk) -> None:
        future = self._client.submit(evaluate, self._packed, chunk.runs, pure=False)
        self._under_way[future] = chunk
        self._arriving.add(future)

    def _size(self, threads: int) -> int:
        """Runs per chunk: one until it is known how long a run takes."""
        wanted = int(WORK * self._made / self._seconds) if self._seconds else 1
        fair = max(-(-len(self._left) // (SHARE * threads)), wanted // LEAST)
        return max(1, min(fair, wanted))

    def _arrived(self, future: Any, runner: Runner) -> None:
        from distributed.scheduler import KilledWorker

        chunk = self._under_way.pop(future)
        if future.status == "finished":
            self._accept(future.result())
            return
        if future.status in ("cancelled", "lost"):  # the scheduler forgot it, such as after a restart
            self._left.extendleft(chunk.runs)
            return
        error = future.exception()
        if not isinstance(error, KilledWorker):
            if isinstance(error, CosimoError):
                raise error
            raise ConfigurationError(
                f"a worker cannot run the study: {type(error).__name__}: {error}; it needs the same version of cosimo "
                "and the system's files at the same paths."
            ) from error
        if not chunk.alone:
            self._suspects.extend(chunk.runs)
            return
        self._take([runner.crashed(chunk.runs[0])])

    def _accept(self, reply: Reply) -> None:
        self._take(reply.rows)
        self._made += len(reply.rows)
        self._seconds += sum(row.seconds for row in reply.rows)
        if reply.note and reply.note not in self._notes:
            self._notes.append(reply.note)

    def _threads(self) -> int:
        """Worker threads now; workers may come and go."""
        now: dict[str, int] = self._client.nthreads()
        self._lost |= self._seen - set(now)
        self._seen |= set(now)
        return max(1, sum(now.values()))


# ---- what a worker does: unpack the study once, keep its FMUs between chunks, make the runs of a chunk ---------------


@dataclass(frozen=True)
class Packed:
    """A study as it travels."""

    data: bytes
    digest: str
    version: str


class Reply(NamedTuple):
    """The rows of a chunk, and what there is to say about how they were made."""

    rows: list[Row]
    note: str


class _Seat(NamedTuple):
    """A runner and who may use it: one thread at a time."""

    runner: Runner
    lock: threading.Lock


_seats: dict[tuple[str, int], _Seat] = {}
"""By study and thread: an FMU instance must not be used by two threads at once."""
_finding = threading.Lock()


def pack(study: Study) -> Packed:
    """The study as bytes; files under names that are the same from every working directory."""
    import cloudpickle

    if not isinstance(study.source, System) and Path(study.source).is_file():
        study = replace(study, source=Path(study.source).absolute())
    if Path(study.reference).is_file():
        study = replace(study, reference=Path(study.reference).absolute())
    try:
        data: bytes = cloudpickle.dumps(study)
    except Exception as error:  # whatever the objects in the user's system raise
        raise ConfigurationError(
            f"the system cannot be sent to other processes: {type(error).__name__}: {error}; use one worker, or "
            f"describe it in a file."
        ) from None
    return Packed(data, hashlib.sha256(data).hexdigest(), __version__)


def evaluate(packed: Packed, runs: Sequence[int]) -> Reply:
    """Make these runs."""
    seat = _find(packed)
    with seat.lock:
        rows = [seat.runner.evaluate(number) for number in runs]
    if seat not in _seats.values():
        _leave([seat])  # it was forgotten meanwhile
    return Reply(rows, seat.runner.note)


def forget(digest: str) -> None:
    """Let go of a study; FMUs that are being used are closed at the end of the chunk."""
    with _finding:
        _leave([_seats.pop(key) for key in list(_seats) if key[0] == digest])


def _leave(seats: Sequence[_Seat]) -> None:
    for seat in seats:
        if seat.lock.acquire(blocking=False):
            try:
                seat.runner.close()
            finally:
                seat.lock.release()


def _find(packed: Packed) -> _Seat:
    if packed.version != __version__:
        raise ConfigurationError(
            f"a worker has cosimo {__version__}, the study comes from {packed.version}; install the same version."
        )
    thread = threading.get_ident()
    with _finding:
        for place in (thread, 0):
            if (packed.digest, place) in _seats:
                return _seats[packed.digest, place]
        _leave([_seats.pop(key) for key in list(_seats) if key[0] != packed.digest and key[1] in (thread, 0)])
        seat = _Seat(Runner(pickle.loads(packed.data)), threading.Lock())
        units = seat.runner.recipe.nominal.units.values()
        # FMUs that allow one instance per process are shared by all threads.
        only = any(unit.single_instance for unit in units)
        return _seats.setdefault((packed.digest, 0 if only else thread), seat)


def dask_setup(worker: object) -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes at once; the worker is ended by its nanny."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
