"""What watching a run costs: the kernel with and without monitors, in turns, in one process."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.bare import BareLoop, library
from benchmarks.kernel import Steps, as_fmus, start
from benchmarks.measure import PLACES, TURNS, Table, Turns, in_processes, in_turns, scatter
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.engines import KernelEngine
from cosimo.execution.lowering import Lowering
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


def monitors() -> Table:
    """Nanoseconds per macro step with monitors off and on."""
    table = Table(
        "Monitors",
        ("system", "bare loop / ns", "off / ns", "on / ns", "on, × bare loop", "cost / bare loop", "cost / run"),
        note=f"Kernel, Jacobi, all outputs recorded in memory. {TURNS} {PLACES} "
        "Two-mass has three "
        "connections and a power bond; units named by a time are functions in C that take so long. "
        "`EngineOptions(monitors=False)` switches monitors off.",
    )
    cases = {"two-mass as FMUs": 200_000, "chain of 10 as FMUs": 40_000, "chain of 100 as FMUs": 4_000}
    for name, steps in (cases | {"two units of 1 µs": 4_000, "two units of 10 µs": 1_000}).items():
        found = in_processes(_off_and_on, name, steps)
        on, off = found.each("on"), found.each("off")
        times = (
            f"{found.median(key) / steps * 1e9:.1f}" if key in found.seconds else "" for key in ("bare", "off", "on")
        )
        bare = found.each("bare") if "bare" in found.seconds else None
        against = ("", "") if bare is None else (scatter(on / bare), scatter((on - off) / bare))
        table.add(name, *times, *against, f"{np.median((on - off) / off):.1%}")
    return table


PARTS = ("none", "extremes and sums of outputs", "growth", "defects of connections", "power bonds")


class _Some(Lowering):
    """Lets the kernel watch the first `parts` of what it can."""

    parts = len(PARTS)

    def watch(self, watch: Watch) -> None:
        links = [link.connection for link in self.system.links] if self.parts > 3 else []
        owned = (watch.owners, watch.groups) if self.parts > 2 else ([], [])
        self.program.watch(
            [(place, link.gain, link.offset) for place, link in zip(watch.sources, links, strict=False)],
            [self._value_now(link.target) for link in links],
            [(bond.forward.number, bond.back.number, bond.ratio) for bond in watch.bonds] if self.parts > 4 else [],
            *owned,
            False,
        )


def each(steps: int = 200_000, repeat: int = 25) -> Table:
    """What each of the monitors costs, added one after the other."""
    table = Table(
        "Each monitor on its own",
        ("monitor", "ns per macro step", "cost / ns", "cost / bare loop"),
        note="Kernel on two-mass as FMUs, Jacobi, all outputs recorded in memory. Each line has what the ones above it "
        f"have, and its own monitor; the cost is what that adds within a turn. {TURNS}",
    )
    with tempfile.TemporaryDirectory() as folder:
        system = as_fmus(two_mass(), Path(folder))
        watch, options = Watch(system, power_bonds(system, PAIR)), EngineOptions(parallel=False)
        live = [start(system) for _ in (*PARTS, "bare")]
        engines = {}
        for number, (part, units) in enumerate(zip(PARTS, live, strict=False), 1):
            lowering = _Some(units, system.outputs)
            lowering.parts = number
            engines[part] = KernelEngine(units, system.outputs, options, watch if number > 1 else None, lowering)
        loops = {"bare": BareLoop(library(), live[-1]), **engines}
        found = in_turns({name: Steps(loop, len(system.outputs), steps) for name, loop in loops.items()}, repeat)
        for engine in engines.values():
            engine.close()
        for units in live:
            units.close()
    for before, part in zip(("", *PARTS), PARTS, strict=False):
        cost = found.each(part, before) / steps * 1e9 if before else None
        added = ("", "") if cost is None else (scatter(cost, 1), scatter(found.each(part, before) / found.each("bare")))
        table.add(part, f"{found.median(part) / steps * 1e9:.1f}", *added)
    return table


def _off_and_on(name: str, steps: int) -> Turns:
    """The kernel with monitors off and on, and of FMUs the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        if "FMUs" in name:
            count = name.removeprefix("chain of ").partition(" ")[0]
            system = as_fmus(chain(n=int(count)) if count.isdigit() else two_mass(), Path(folder))
        else:
            system = _busy(10_000 if "10" in name else 1_000)
        master = masters.jacobi(system, STEP)
        live = [start(system, master) for _ in range(3)]
        plans = {"off": None, "on": Watch(system, power_bonds(system, PAIR if "two-mass" in name else ()))}
        engines = {
            key: KernelEngine(interpreter, system.outputs, EngineOptions(parallel=False), plan)
            for interpreter, (key, plan) in zip(live, plans.items(), strict=False)
        }
        loops = {key: Steps(engine, len(system.outputs), steps) for key, engine in engines.items()}
        if "FMUs" in name:
            loops["bare"] = Steps(BareLoop(library(), live[2]), len(system.outputs), steps)
        found = in_turns(loops, 5)
        for one in (*engines.values(), *live):
            one.close()
    return found
