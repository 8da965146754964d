"""Small tools for measuring on a shared machine: repeat, take the minimum, say what the machine was."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version


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
