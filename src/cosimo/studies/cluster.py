"""Runs of a study on Dask workers: local processes, or an existing cluster.

Points travel in chunks of about a second of work, at most two per worker thread at a time, so that neither
messages nor waiting cost much and the memory of scheduler and client stays small however many points there are. Dask
gives the chunks of a lost worker to another one. A chunk whose workers die again and again is taken apart at the end:
its points run alone, one after the other, and the one that ends its process becomes a row that says so.
"""

from __future__ import annotations

import itertools
import logging
import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.studies.runner import Runner, Take
from cosimo.studies.worker import Packed, Reply, evaluate, forget, pack

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
        """Make these runs and hand over their rows as they come."""
        packed = pack(runner.study)
        with self._connected() as client:
            self.workers = max(self.workers, sum(client.nthreads().values()))
            work = _Work(client, packed, runs, take, self.notes)
            try:
                work.run(runner)
            finally:
                work.cancel()
                if self._client is not None or self._scheduler is not None:
                    with suppress(Exception):  # workers that are gone have nothing to forget
                        client.run(forget, packed.digest)

    @contextmanager
    def _connected(self) -> Iterator[Any]:
        if self._client is not None:
            yield self._client
            return
        with ExitStack() as stack:
            yield stack.enter_context(_remote(self._scheduler) if self._scheduler else local_workers(self.workers))


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
    with client:
        yield client


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
        "preload": ["cosimo.studies.preload"],
    }
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cosimo-study-", ignore_cleanup_errors=True))
        stack.enter_context(dask.config.set(LOCAL))
        try:
            cluster = stack.enter_context(LocalCluster(local_directory=folder, **options))
        except RuntimeError as error:
            raise ConfigurationError(
                f"the worker processes cannot be started ({error}); in a script, call run_study below 'if __name__ == "
                f'"__main__":\', or use one worker.'
            ) from None
        yield stack.enter_context(Client(cluster))


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
        """Until every run has its row."""
        while True:
            threads = self._threads()
            while self._left and len(self._under_way) < AHEAD * threads:
                self._submit(Chunk(tuple(itertools.islice(_popping(self._left), self._size(threads)))))
            if not self._under_way:
                if not self._suspects:
                    break
                self._submit(Chunk((self._suspects.popleft(),), alone=True))
            self._arrived(next(self._arriving), runner)
        if self._lost:
            many = len(self._lost)
            self._notes.append(
                f"{many} worker{'s were' if many > 1 else ' was'} lost; what it had begun was made again"
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
                f"a worker cannot make the runs: {type(error).__name__}: {error}; it needs the same version of cosimo, "
                f"and the files of the system at the same paths."
            ) from error
        if not chunk.alone:
            self._suspects.extend(chunk.runs)
            return
        self._take([runner.crashed(*chunk.runs)])

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


def _popping(queue: deque[int]) -> Iterator[int]:
    while queue:
        yield queue.popleft()
