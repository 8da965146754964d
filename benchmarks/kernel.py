"""How far the kernel is from the bare C loop, in one process, the two interleaved."""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.bare import BareLoop, library
from benchmarks.measure import PLACES, PROCESSES, TURNS, Table, Turns, in_processes, in_turns, scatter
from cosimo import masters
from cosimo.core.master import Master
from cosimo.core.system import Connection, System
from cosimo.execution.engines import CarefulKernelEngine, KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.options import Adaptive, EngineOptions
from cosimo.execution.running import run
from cosimo.execution.session import BLOCK
from cosimo.formats.export import export_system
from cosimo.problems import chain, two_mass
from cosimo.units import Fmu, NativeUnit

REPEAT = 15


def as_fmus(system: System, folder: Path, fmi: int = 2) -> System:
    """The same system with every unit exported and loaded as an FMU."""
    files = export_system(system, folder, fmi=fmi)  # type: ignore[arg-type]
    return System({name: Fmu(path) for name, path in files.items()}, system.connections, name=system.name)


def start(system: System, master: Master | None = None) -> Live:
    """Initialised units, under Jacobi at 1 ms unless a master is given."""
    live = Live(system, master or masters.jacobi(system, 1e-3), 0.0)
    live.initialise()
    return live


class Steps:
    """A number of macro steps of an engine that stays alive; rows go into one warm block, or into `fresh` memory."""

    def __init__(self, engine: KernelEngine | BareLoop, width: int, steps: int, *, fresh: bool = False) -> None:
        self._engine, self.steps, self._at, self._fresh = engine, steps, 0, fresh
        self._rows = np.zeros((BLOCK, 1 + width))

    def __call__(self) -> None:
        left = self.steps
        new = np.empty((left, self._rows.shape[1])) if self._fresh else None
        while left:
            rows = self._rows if new is None else new[-left:][:BLOCK]
            self._engine.advance(self._at, rows[:left])
            self._at += self._engine.made
            left -= self._engine.made


def against_the_bare_loop() -> Table:
    """Jacobi, all outputs recorded in memory: the bare C loop and the kernel."""
    table = Table(
        "Kernel against a bare C loop over the same functions",
        ("system", "bare loop / ns per macro step", "kernel / ns per macro step", "ratio"),
        note=f"Exported FMI 2 FMUs, Jacobi, all outputs recorded in memory. {TURNS} {PLACES}",
    )
    for name, count in (("two-mass", 0), *((f"chain of {n}", n) for n in (10, 100, 1000))):
        steps = 4_000_000 // (10 * count) if count else 400_000
        found = in_processes(_both_loops, count, steps, processes=3 if count == 1000 else PROCESSES)
        each = (f"{found.median(work) / steps * 1e9:.1f}" for work in ("bare", "kernel"))
        table.add(name, *each, found.ratio("kernel", "bare"))
    return table


def _both_loops(count: int, steps: int) -> Turns:
    """The loops over so many units of a chain, or over two-mass."""
    with tempfile.TemporaryDirectory() as folder:
        fmus = as_fmus(chain(n=count) if count else two_mass(), Path(folder))
        ours, theirs = start(fmus), start(fmus)
        kernel = KernelEngine(ours, fmus.outputs, EngineOptions(parallel=False))
        works = {"bare": BareLoop(library(), theirs), "kernel": kernel}
        found = in_turns({name: Steps(own, len(fmus.outputs), steps) for name, own in works.items()}, 5)
        kernel.close()
        ours.close()
        theirs.close()
    return found


def varied() -> Table:
    """Macro steps that vary, or are saved to go back to, against plain ones in the kernel."""
    table = Table(
        "Macro steps of varying length",
        ("macro steps", "ns per step made", "in plain steps"),
        note="Two-mass as exported FMI 2 FMUs, Jacobi, all outputs recorded in memory, monitors off. Wall time, "
        "medians of turns; ratios are those within a turn, with their quartiles. Doubling makes three steps for two "
        "that are accepted; the time is that of one of the three, with saving and restoring. Careful: what a run does "
        "after a unit has discarded a step.",
    )
    took: dict[str, list[float]] = {name: [] for name in ("equal", "careful", "energy", "doubling")}
    with tempfile.TemporaryDirectory() as folder:
        fmus = as_fmus(two_mass(velocities=(1.0, -1.0), damping=1.0), Path(folder))
        for _ in range(REPEAT):
            for name, own in took.items():
                own.append(_per_step(fmus, name))
    found = Turns(took)
    for name in took:
        table.add(name, f"{found.median(name) * 1e9:.0f}", found.ratio(name, "equal"))
    return table


def _per_step(system: System, name: str) -> float:
    """Seconds per macro step that was made."""
    options = EngineOptions(parallel=False, interval=0.0)
    if name in ("energy", "doubling"):
        adaptive = Adaptive(name)  # type: ignore[arg-type]
        info = run(system, masters.jacobi(system, 1e-3), stop=300.0, engine=options, adaptive=adaptive).info
        return float(info["stepping_time"] / info["macro_steps"])
    live, blocks = start(system), 5
    engine = (KernelEngine if name == "equal" else CarefulKernelEngine)(live, system.outputs, options)
    rows = np.empty((BLOCK, 1 + len(system.outputs)))
    begin = time.perf_counter()
    for block in range(blocks):
        engine.advance(block * len(rows), rows)
    took = (time.perf_counter() - begin) / len(rows) / blocks
    engine.close()
    live.close()
    return took


def events() -> Table:
    """Event mode and early returns of FMI 3.0 in the kernel, against the same unit without events."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fmus"))
    from fmu_builder import build

    table = Table(
        "Event mode and early return (FMI 3.0)",
        ("units", "events per macro step and unit", "ns per macro step", "in plain steps"),
        note="Two integrators that feed each other, with an integer input and output each, Jacobi, outputs recorded in "
        "memory, monitors off. A step that meets an event is two steps of the unit, entering and leaving event mode, "
        f"and two updates of its discrete states. {TURNS}",
    )
    told = {"hasEventMode": "true", "mightReturnEarlyFromDoStep": "true"}
    plain = {f'{name}="{value}"': f'{name}="false"' for name, value in told.items()}
    kinds = {
        "no event mode": (("PLAIN",), plain, 1e-3),
        "returns early, events are rare": ((), {}, 1e-3),
        "announces events, which are rare": (("ANNOUNCE",), {}, 1e-3),
        "returns early in every step": ((), {}, 0.26),
        "announces an event in every step": (("ANNOUNCE",), {}, 0.26),
    }
    steps, engines, live = 40_000, {}, []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (defines, changes, step)) in enumerate(kinds.items()):
            path = build(Path(folder), "events3", file=f"unit{number}.fmu", defines=defines, changes=changes)
            links = [("a.x", "b.u"), Connection("b.x", "a.u", gain=-1.0)]
            system = System({unit: Fmu(path) for unit in "ab"}, links)
            live.append(start(system, masters.jacobi(system, step)))
            engines[name] = KernelEngine(live[-1], system.outputs, EngineOptions(parallel=False))
        width = len(system.outputs)
        found = in_turns({name: Steps(engine, width, steps) for name, engine in engines.items()}, REPEAT)
        for engine, units in zip(engines.values(), live, strict=True):
            engine.close()
            units.close()
    for name, (defines, _, step) in kinds.items():
        count = "0" if "PLAIN" in defines else f"{step / 0.25:g}"
        took = f"{found.median(name) / steps * 1e9:.0f}"
        table.add(name, count, took, found.ratio(name, "no event mode"))
    return table


def threads() -> Table:
    """Jacobi over two units of equal cost: serial against the kernel's own choice."""
    table = Table(
        "Two units in parallel (Jacobi)",
        ("cost of a unit step", "serial / µs", "kernel's choice / µs", "speed-up", "threads used"),
    )
    code = library()
    code.round_trip.restype = ctypes.c_double
    step = ctypes.cast(code.busy_step, ctypes.c_void_p).value or 0
    for nanoseconds in (500, 5_000, 50_000):
        units = {
            name: NativeUnit(
                step, inputs=["u"], outputs=["y"], initial=[1.0, float(nanoseconds)], initial_outputs=[1.0]
            )
            for name in ("a", "b")
        }
        system = System(units, [("a.y", "b.u"), ("b.y", "a.u")])
        steps = 16_000_000 // nanoseconds
        ways = {"serial": False, "chosen": None}
        engines = {
            name: KernelEngine(start(system), system.outputs, EngineOptions(parallel=way)) for name, way in ways.items()
        }
        found = in_turns({name: Steps(engine, 2, steps) for name, engine in engines.items()}, REPEAT, time.perf_counter)
        used = "yes" if engines["chosen"].shared else "no"
        each = (f"{found.median(name) / steps * 1e6:.2f}" for name in ways)
        table.add(f"{nanoseconds / 1e3:g} µs", *each, found.ratio("serial", "chosen"), used)
        for engine in engines.values():
            engine.close()
    trips = np.array([code.round_trip() for _ in range(REPEAT)])
    table.note = (
        f"Wall time, {TURNS.partition(', ')[2]} A stage is handed over and waited for, which takes some round trips of "
        f"a cache line between two processors: {scatter(trips, 0)} ns each in this run."
    )
    return table
