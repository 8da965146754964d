"""What checkpoints cost: the time of the processor that each takes, in the loop and in the thread that writes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.kernel import as_fmus
from benchmarks.measure import Table
from benchmarks.monitors import _busy
from cosimo import masters
from cosimo.execution import checkpoints as files
from cosimo.execution.options import Checkpoint
from cosimo.execution.running import run
from cosimo.execution.session import EqualSteps
from cosimo.formats.results import ResultFile
from cosimo.problems import chain, two_mass

OFTEN = 0.02
"""Seconds between checkpoints in the measurement: many of them in a short run."""


@dataclass
class Spent:
    """Per checkpoint: seconds in the loop, in the thread that writes, and bytes."""

    loop: list[float] = field(default_factory=list)
    thread: list[float] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    inner: float = 0.0


def checkpoints() -> Table:
    """Milliseconds per checkpoint, and what one per second costs."""
    table = Table(
        "Checkpoints",
        ("system", "checkpoints", "size / kB", "in the loop / ms", "in the thread / ms", "cost at 1 per s"),
        note="Kernel, Jacobi, all rows to a stream on disk; processor time per checkpoint, median. In the loop rows "
        "are flushed and the memory of the run is taken; a thread turns it into bytes and writes them.",
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = iter(Path(folder) / str(i) for i in range(9))
        cases = [
            ("two-mass as FMUs", as_fmus(two_mass(damping=1.0), next(paths)), 4_000_000),
            ("chain of 100 as FMUs", as_fmus(chain(n=100), next(paths)), 100_000),
            ("two units of 10 µs", _busy(10_000), 60_000),
        ]
        for name, system, steps in cases:
            with _measured() as spent:
                master, output = masters.jacobi(system, 1e-3), ResultFile(Path(folder) / "rows.arrows")
                run(system, master, stop=steps * 1e-3, output=output, checkpoint=Checkpoint(every=OFTEN))
            loop, thread = median(spent.loop), median(spent.thread)
            count, size = len(spent.size), spent.size[-1] / 1e3
            table.add(name, count, f"{size:.1f}", f"{loop * 1e3:.2f}", f"{thread * 1e3:.2f}", f"{loop + thread:.2%}")
    return table


@contextmanager
def _measured() -> Iterator[Spent]:
    """Watch the checkpoints of all runs inside."""
    spent = Spent()
    before = EqualSteps._checkpoint, EqualSteps._advance, files.encode, files.write_checkpoint

    def checkpoint(self: EqualSteps, *arguments: Any) -> None:
        begin, spent.inner = time.thread_time(), 0.0
        before[0](self, *arguments)
        spent.loop.append(time.thread_time() - begin - spent.inner)

    def advance(self: EqualSteps, *arguments: Any) -> None:
        begin = time.thread_time()
        before[1](self, *arguments)
        spent.inner += time.thread_time() - begin

    def encode(document: Any) -> bytes:
        spent.thread.append(-time.thread_time())
        return before[2](document)

    def write(path: Path, data: bytes) -> None:
        before[3](path, data)
        spent.thread[-1] += time.thread_time()
        spent.size.append(len(data))

    places: list[tuple[Any, str, Callable[..., Any]]] = [
        (EqualSteps, "_checkpoint", checkpoint),
        (EqualSteps, "_advance", advance),
        (files, "encode", encode),
        (files, "write_checkpoint", write),
    ]
    for place, name, watched in places:
        setattr(place, name, watched)
    try:
        yield spent
    finally:
        for (place, name, _), original in zip(places, before, strict=True):
            setattr(place, name, original)
