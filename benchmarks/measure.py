"""Small tools for measuring on a shared machine: in turns, medians with quartiles, and what the machine was."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from multiprocessing import get_context
from random import Random

import numpy as np


@dataclass
class Table:
    """A titled table of a report in Markdown."""

    title: str
    columns: tuple[str, ...]
    note: str = ""
    rows: list[tuple[str, ...]] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append(tuple(str(cell) for cell in cells))
        print("  " + " | ".join(self.rows[-1]), flush=True)

    def markdown(self) -> str:
        lines = [f"## {self.title}", "", "| " + " | ".join(self.columns) + " |", "|" + " --- |" * len(self.columns)]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        return "\n".join([*lines, *(["", self.note] if self.note else []), ""])


@dataclass(frozen=True)
class Turns:
    """Seconds of several works, measured in turns: one of each in every round."""

    seconds: Mapping[str, Sequence[float]]

    def median(self, name: str) -> float:
        """Seconds of a work."""
        return float(np.median(self.seconds[name]))

    def each(self, name: str, less: str | None = None) -> np.ndarray:
        """Seconds of a work in every round, less those of another one in the same round."""
        return np.array(self.seconds[name]) - (np.array(self.seconds[less]) if less is not None else 0.0)

    def ratio(self, name: str, to: str, less: str | None = None) -> str:
        """How many times longer than another work: the ratios within each round, so that slow drift falls out."""
        return scatter(self.each(name, less) / self.each(to))


def scatter(values: np.ndarray, digits: int = 2) -> str:
    """Median and quartiles.

    >>> scatter(np.array([1.0, 1.25, 1.5, 1.75, 2.0]))
    '1.50 (1.25–1.75)'
    """
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return f"{middle:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


TURNS = "Processor time, medians of turns; ratios are those within a turn, with their quartiles."
"""What a table says of figures by `in_turns`."""


def in_turns(
    works: Mapping[str, Callable[[], object]], repeat: int, clock: Callable[[], float] = time.process_time
) -> Turns:
    """Every work once, `repeat` times over: what else the machine does meanwhile, it does to all of them.

    In every round in another order: what a work leaves behind, memory to be cleared or files to be written, is not
    always paid by the same one. Processor time, unless another `clock` is given: what uses several threads is timed by
    the wall.
    """
    found: dict[str, list[float]] = {name: [] for name in works}
    order = Random(os.getpid())
    for _ in range(repeat):
        for name in order.sample(list(works), len(works)):
            begin = clock()
            works[name]()
            found[name].append(clock() - begin)
    return Turns(found)


PROCESSES = 9
PLACES = (
    f"In {PROCESSES} processes (of 1,000 units 3), one after the other: where the system puts code and data decides on "
    "up to half of the time of two small units, for any loop."
)
"""What a table says of figures by `in_processes`."""


def in_processes(work: Callable[..., Turns], *arguments: object, processes: int = PROCESSES) -> Turns:
    """The turns that a work measures, of as many new processes: each puts code and data elsewhere in memory."""
    with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        found = [pool.apply(work, arguments).seconds for _ in range(processes)]
    return Turns({name: [took for own in found for took in own[name]] for name in found[0]})


def seconds(work: Callable[[], object], *, repeat: int = 3) -> float:
    """The shortest of `repeat` wall times."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def peak_memory() -> float:
    """Peak resident memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def machine(*packages: str) -> str:
    """Processor, cores, Python and package versions, for the head of a report."""
    model = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}; {versions}"
