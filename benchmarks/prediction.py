"""Predicted inputs: what learning and predicting adds to a macro step in the kernel."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.kernel import Steps, start
from benchmarks.measure import TURNS, Table, in_turns, scatter
from cosimo import masters
from cosimo.core.coupling import Coupling
from cosimo.core.master import joints
from cosimo.couplings import Dmd, Hold
from cosimo.execution.engines import KernelEngine
from cosimo.execution.options import EngineOptions
from cosimo.problems import two_mass_damped

STEP = 1e-3
LIMITS = {"dmd:100": "2", "dmd": "8"}
"""Microseconds that a prediction may add to a macro step."""


def macro_steps() -> Table:
    """Held against predicted macro steps in the kernel, two states and one input."""
    table = Table(
        "Predicted macro steps",
        ("coupling", "per macro step / ns", "extra / µs", "limit / µs"),
        note="Kernel, one thread, two-mass-damped, both inputs of unit `one` predicted together (2 states, 1 input), "
        "macro step 1 ms, all signals recorded in memory. " + TURNS,
    )
    couplings: dict[str, Coupling] = {
        "hold0": Hold(0),
        "dmd:5": Dmd(window=5),
        "dmd:100": Dmd(window=100),
        "dmd:100:recursive": Dmd(window=100, method="recursive"),
        "dmd": Dmd(),
    }
    system, steps = two_mass_damped(), 20_000
    plan = {
        name: masters.jacobi(system, STEP, couplings=dict.fromkeys(("one.x2", "one.v2"), coupling))
        for name, coupling in couplings.items()
    }
    live = {name: start(system, master) for name, master in plan.items()}
    names = {
        name: (*system.outputs, *(signal for joint in joints(system, master) for signal in joint.signals))
        for name, master in plan.items()
    }
    engines = {name: KernelEngine(live[name], names[name], EngineOptions(parallel=False)) for name in plan}
    works: dict[str, Callable[[], object]] = {
        name: Steps(engine, len(names[name]), steps) for name, engine in engines.items()
    }
    found = in_turns(works, 9)
    for name in plan:
        extra = scatter(found.each(name, "hold0") / steps * 1e6) if name != "hold0" else ""
        table.add(name, f"{found.median(name) / steps * 1e9:.0f}", extra, LIMITS.get(name, ""))
    for engine in engines.values():
        engine.close()
    for interpreter in live.values():
        interpreter.close()
    return table
