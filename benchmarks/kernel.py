"""How far the kernel is from the bare C loop, in one process, the two interleaved."""

from __future__ import annotations

import ctypes
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.bare import BareLoop, library
from benchmarks.measure import Table
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.options import EngineOptions
from cosimo.formats.export import export_system
from cosimo.problems import chain, two_mass
from cosimo.units import Fmu, NativeUnit

REPEAT = 15


def as_fmus(system: System, folder: Path, fmi: int = 2) -> System:
    """The same system with every unit exported and loaded as an FMU."""
    files = export_system(system, folder, fmi=fmi)  # type: ignore[arg-type]
    return System({name: Fmu(path) for name, path in files.items()}, system.connections, name=system.name)


def _start(system: System) -> Live:
    live = Live(system, masters.jacobi(system, 1e-3), 0.0)
    live.initialise()
    return live


def _interleave(first: object, second: object, steps: int, width: int) -> tuple[float, float]:
    """Best seconds per macro step of two engines, measured in turns on the same warm buffer."""
    rows = np.zeros((min(steps, 4096), 1 + width))
    best = [np.inf, np.inf]
    at = [0, 0]
    for _ in range(REPEAT):
        for which, engine in enumerate((first, second)):
            begin = time.perf_counter()
            left = steps
            while left:
                part = rows[:left]
                engine.advance(at[which], part)  # type: ignore[attr-defined]
                at[which] += engine.made  # type: ignore[attr-defined]
                left -= engine.made  # type: ignore[attr-defined]
            best[which] = min(best[which], (time.perf_counter() - begin) / steps)
    return best[0], best[1]


def against_the_bare_loop() -> Table:
    """Jacobi, all outputs recorded in memory: the bare C loop and the kernel."""
    table = Table(
        "Kernel against a bare C loop over the same functions",
        ("system", "bare loop / ns per macro step", "kernel / ns per macro step", "ratio"),
        note="Exported FMI 2 FMUs, Jacobi, all outputs recorded in memory, best of interleaved repetitions.",
    )
    code = library()
    cases = [("two-mass", two_mass(), 400_000)]
    cases += [(f"chain of {n}", chain(n=n), 4_000_000 // (10 * n)) for n in (10, 100, 1000)]
    for name, system, steps in cases:
        with tempfile.TemporaryDirectory() as folder:
            fmus = as_fmus(system, Path(folder))
            ours, theirs = _start(fmus), _start(fmus)
            kernel = KernelEngine(ours, fmus.outputs, EngineOptions(parallel=False))
            bare = BareLoop(code, theirs)
            low, high = _interleave(bare, kernel, steps, len(fmus.outputs))
            kernel.close()
            ours.close()
            theirs.close()
        table.add(name, f"{low * 1e9:.1f}", f"{high * 1e9:.1f}", f"{high / low:.2f}")
    return table


def threads() -> Table:
    """Jacobi over two units of equal cost: serial against the kernel's own choice."""
    table = Table(
        "Two units in parallel (Jacobi)",
        ("cost of a unit step", "serial / µs", "kernel's choice / µs", "speed-up", "threads used"),
    )
    code = library()
    step = ctypes.cast(code.busy_step, ctypes.c_void_p).value or 0
    for nanoseconds in (500, 5_000, 50_000):
        units = {
            name: NativeUnit(
                step, inputs=["u"], outputs=["y"], initial=[1.0, float(nanoseconds)], initial_outputs=[1.0]
            )
            for name in ("a", "b")
        }
        system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
        engines = []
        for parallel in (False, None):
            live = _start(system)
            engines.append(KernelEngine(live, system.outputs, EngineOptions(parallel=parallel)))
        serial, chosen = _interleave(*engines, 40_000_000 // nanoseconds // 10, 2)
        used = "yes" if engines[1].shared else "no"
        table.add(
            f"{nanoseconds / 1e3:g} µs", f"{serial * 1e6:.2f}", f"{chosen * 1e6:.2f}", f"{serial / chosen:.2f}", used
        )
        for engine in engines:
            engine.close()
    return table
