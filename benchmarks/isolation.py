"""What it costs to run units in processes of their own."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.kernel import Steps
from benchmarks.measure import Table, in_turns, scatter
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.options import EngineOptions
from cosimo.formats.export import export_system
from cosimo.problems import two_mass
from cosimo.units import Fmu
from cosimo.units.fmi.isolation import Isolation

ROUNDS, STEPS = 9, 40_000
WAYS: dict[str, bool | Isolation] = {
    "in the master's process": False,
    "isolated, spinning": Isolation(),
    "isolated, blocking": Isolation(spin=False),
}


@contextmanager
def _stepping(system: System) -> Iterator[Steps]:
    """Macro steps under Jacobi."""
    live = Live(system, masters.jacobi(system, 1e-3), 0.0)
    live.initialise()
    engine = KernelEngine(live, system.outputs, EngineOptions(parallel=False))
    yield Steps(engine, len(system.outputs), STEPS)
    engine.close()
    live.close()


def macro_steps() -> Table:
    """Jacobi on two-mass FMUs: one or both units isolated, against both in the master's process."""
    table = Table(
        "Price of isolation",
        ("units", "way", "µs per macro step", "more than in process / µs"),
        note=f"Exported FMI 2 FMUs, {ROUNDS} turns of {STEPS} macro steps; wall time, medians of turns, and of the "
        "differences within a turn with their quartiles. Two isolated units and the master are three processes; with "
        "two processors they take turns.",
    )
    with tempfile.TemporaryDirectory() as folder:
        files = export_system(two_mass(), Path(folder), fmi=2)
        for which in (("one",), ("one", "two")):
            with ExitStack() as stack:
                works: dict[str, Callable[[], object]] = {}
                for way, isolate in WAYS.items():
                    units = {n: Fmu(path, isolate=isolate if n in which else False) for n, path in files.items()}
                    works[way] = stack.enter_context(_stepping(System(units, two_mass().connections)))
                found = in_turns(works, ROUNDS, time.perf_counter)
            bare = next(iter(WAYS))
            for way in WAYS:
                more = scatter(found.each(way, bare) / STEPS * 1e6) if way != bare else "0"
                table.add(f"{len(which)} of 2", way, f"{found.median(way) / STEPS * 1e6:.2f}", more)
    return table


def starts() -> Table:
    """Instantiating and closing an exported FMU."""
    table = Table(
        "Start of an isolated unit",
        ("way", "ms", "more than in process / ms"),
        note="An exported FMI 2 FMU is instantiated and closed, 15 turns; wall time, medians of turns, and of the "
        "differences within a turn with their quartiles.",
    )
    ways = {"in the master's process": False, "isolated": Isolation(), "in a sandbox": Isolation(sandbox=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = export_system(two_mass(), Path(folder), fmi=2)["one"]
        works = {way: partial(_start, Fmu(path, isolate=isolate)) for way, isolate in ways.items()}
        found = in_turns(works, 15, time.perf_counter)
    bare = next(iter(ways))
    for way in ways:
        more = scatter(found.each(way, bare) * 1e3, 1) if way != bare else "0"
        table.add(way, f"{found.median(way) * 1e3:.1f}", more)
    return table


def _start(fmu: Fmu) -> None:
    fmu.instantiate(0.0).close()
