"""What it costs to run units in processes of their own."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import Table
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.options import EngineOptions
from cosimo.formats.export import export_system
from cosimo.problems import two_mass
from cosimo.units import Fmu
from cosimo.units.fmi.isolation import Isolation

ROUNDS, STEPS = 40, 2000
WAYS: dict[str, bool | Isolation] = {
    "in the master's process": False,
    "isolated, spinning": Isolation(),
    "isolated, blocking": Isolation(spin=False),
}


def _seconds(system: System) -> list[float]:
    """Seconds per macro step under Jacobi, for every round."""
    live = Live(system, masters.jacobi(system, 1e-3), 0.0)
    live.initialise()
    engine = KernelEngine(live, system.outputs, EngineOptions(parallel=False))
    rows, found, at = np.zeros((STEPS, 1 + len(system.outputs))), [], 0
    for _ in range(ROUNDS):
        begin, made = time.perf_counter(), 0
        while made < STEPS:
            engine.advance(at, rows[: STEPS - made])
            at, made = at + engine.made, made + engine.made
        found.append((time.perf_counter() - begin) / STEPS)
    engine.close()
    live.close()
    return found


def macro_steps() -> Table:
    """Jacobi on two-mass FMUs: one or both units isolated, against both in the master's process."""
    table = Table(
        "Price of isolation",
        ("units", "way", "best / µs per macro step", "median / µs", "more than in process / µs"),
        note=f"Exported FMI 2 FMUs, {ROUNDS} rounds of {STEPS} macro steps. Two isolated units and the master are "
        "three processes; with two processors they take turns.",
    )
    with tempfile.TemporaryDirectory() as folder:
        files = export_system(two_mass(), Path(folder), fmi=2)
        for which in (("one",), ("one", "two")):
            bare = 0.0
            for way, isolate in WAYS.items():
                units = {n: Fmu(path, isolate=isolate if n in which else False) for n, path in files.items()}
                found = _seconds(System(units, two_mass().connections))
                best = min(found)
                bare = bare or best
                table.add(
                    f"{len(which)} of 2",
                    way,
                    f"{best * 1e6:.2f}",
                    f"{np.median(found) * 1e6:.2f}",
                    f"{(best - bare) * 1e6:.2f}",
                )
    return table


def starts() -> Table:
    """Instantiating and closing an exported FMU."""
    table = Table("Start of an isolated unit", ("way", "best / ms", "median / ms", "more than in process / ms"))
    ways = {"in the master's process": False, "isolated": Isolation(), "in a sandbox": Isolation(sandbox=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = export_system(two_mass(), Path(folder), fmi=2)["one"]
        bare = 0.0
        for way, isolate in ways.items():
            fmu, found = Fmu(path, isolate=isolate), []
            for _ in range(15):
                begin = time.perf_counter()
                instance = fmu.instantiate(0.0)
                found.append(time.perf_counter() - begin)
                instance.close()
            bare = bare or min(found)
            table.add(
                way,
                f"{min(found) * 1e3:.1f}",
                f"{np.median(found) * 1e3:.1f}",
                f"{(min(found) - bare) * 1e3:.1f}",
            )
    return table
