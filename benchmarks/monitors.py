"""What watching a run costs: the kernel with and without monitors, in turns, in one process."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

from benchmarks.bare import BareLoop, library
from benchmarks.kernel import as_fmus
from benchmarks.measure import Table
from benchmarks.runs import Steps, best_of, start
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.monitoring import Watch
from cosimo.execution.options import EngineOptions
from cosimo.execution.power_bonds import power_bonds
from cosimo.problems import chain, two_mass
from cosimo.units import NativeUnit

STEP = 1e-3
PAIR = [("two.f", "two.v")]


def _busy(nanoseconds: int) -> System:
    """Two units whose steps take that long, in a ring."""
    step = ctypes.cast(library().busy_step, ctypes.c_void_p).value or 0
    units = {
        name: NativeUnit(step, inputs=["u"], outputs=["y"], initial=[1.0, float(nanoseconds)], initial_outputs=[1.0])
        for name in ("a", "b")
    }
    return System(units, [("a.y", "b.u"), ("b.y", "a.u")])


def monitors(repeat: int = 25) -> Table:
    """Nanoseconds per macro step with monitors off and on."""
    table = Table(
        "Monitors",
        ("system", "bare loop / ns", "off / ns", "on / ns", "cost / ns", "cost / bare loop", "cost / run"),
        note="Kernel, Jacobi, all outputs recorded in memory, in turns, best of repetitions. Two-mass has three "
        "connections and a power bond; units named by a time are functions in C that take so long. "
        "`EngineOptions(monitors=False)` switches monitors off.",
    )
    with tempfile.TemporaryDirectory() as folder:
        paths = iter(Path(folder) / str(i) for i in range(9))
        cases = [
            ("two-mass as FMUs", as_fmus(two_mass(), next(paths)), 200_000),
            ("chain of 10 as FMUs", as_fmus(chain(n=10), next(paths)), 40_000),
            ("chain of 100 as FMUs", as_fmus(chain(n=100), next(paths)), 4_000),
            ("two units of 1 µs", _busy(1_000), 4_000),
            ("two units of 10 µs", _busy(10_000), 1_000),
        ]
        for name, system, steps in cases:
            _measure(table, name, system, steps, repeat)
    return table


def _measure(table: Table, name: str, system: System, steps: int, repeat: int) -> None:
    master = masters.jacobi(system, STEP)
    bonds = power_bonds(system, PAIR if "two-mass" in name else ())
    live = [start(system, master) for _ in range(3)]
    plans = {"off": None, "on": Watch(system, bonds)}
    engines = {
        key: KernelEngine(interpreter, system.outputs, EngineOptions(parallel=False), plan)
        for interpreter, (key, plan) in zip(live, plans.items(), strict=False)
    }
    loops = {key: Steps(engine, len(system.outputs), steps) for key, engine in engines.items()}
    if "FMUs" in name:
        loops["bare"] = Steps(BareLoop(library(), live[2]), len(system.outputs), steps)
    took = {key: seconds / steps * 1e9 for key, seconds in best_of(loops, repeat).items()}
    for engine in engines.values():
        engine.close()
    for interpreter in live:
        interpreter.close()
    off, on, bare = took["off"], took["on"], took.get("bare")
    table.add(
        name,
        "" if bare is None else f"{bare:.1f}",
        f"{off:.1f}",
        f"{on:.1f}",
        f"{on - off:.1f}",
        "" if bare is None else f"{(on - off) / bare:.2f}",
        f"{(on - off) / off:.1%}",
    )
