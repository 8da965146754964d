"""What a peer is given and what it answers; runs in the peers' environment, where cosimo is not installed.

A peer is a module `peers_NAME` with a function `start(job, recording, variant)` that loads and initialises the system
and returns a `Session`. It is run as `python -m benchmarks.peers_job NAME VARIANT RECORDING FILE`, in a process of its
own, so that a crash ends nothing else, and prints `READY` once it made the steps that are compared. Then it takes a
number of steps a line, and answers `DONE` when they are made; at the end of the lines it prints its rows as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

CHECKED = 200
"""Rows of the trajectory that are compared."""
READY, DONE = "ready to advance", "advanced"


@dataclass(frozen=True)
class UnitFile:
    """An exported FMU and the value references of its variables."""

    name: str
    path: str
    inputs: dict[str, int]
    outputs: dict[str, int]


@dataclass(frozen=True)
class Job:
    """A system of FMI 2 FMUs; connections are (unit, output, unit, input), by position in `units`."""

    units: tuple[UnitFile, ...]
    connections: tuple[tuple[int, str, int, str], ...]
    step: float
    folder: str

    @classmethod
    def read(cls, path: str | Path) -> Job:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
        units = tuple(UnitFile(**unit) for unit in data["units"])
        return cls(units, tuple(map(tuple, data["connections"])), data["step"], data["folder"])

    @property
    def outputs(self) -> list[str]:
        """All outputs as `unit.variable`."""
        return [f"{unit.name}.{name}" for unit in self.units for name in unit.outputs]


class Session(Protocol):
    """A live simulation of a peer."""

    def advance(self, steps: int) -> None:
        """Make macro steps, recording all outputs or not."""

    def rows(self, count: int) -> list[list[float]]:
        """End the simulation; the outputs after step 1, 2, …, `count` as recorded by the peer itself."""


def main(name: str, variant: str, recording: str, path: str) -> None:
    if variant == "one core":  # before the peer is loaded: it makes one thread per processor it sees
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    session = importlib.import_module(f"benchmarks.peers_{name}").start(Job.read(path), recording == "yes", variant)
    session.advance(CHECKED)
    print(f"\n{READY}", flush=True)
    for line in sys.stdin:
        session.advance(int(line))
        print(f"\n{DONE}", flush=True)
    rows = session.rows(CHECKED) if recording == "yes" else []
    print("\n" + json.dumps({"rows": rows}), flush=True)
    # Some libraries crash or wait for threads when they are unloaded; nothing is left to do.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
