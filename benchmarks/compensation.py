"""Compensated masters: what they add to a macro step, and how long their design takes."""

from __future__ import annotations

import ctypes
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.bare import BareLoop, library
from benchmarks.kernel import Steps, as_fmus, start
from benchmarks.measure import TURNS, Table, Turns, in_turns, scatter
from benchmarks.runs import STEP
from cosimo import masters, run
from cosimo.analysis import Model, warm_start
from cosimo.compensation import compensate
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Dmd
from cosimo.execution.engines import KernelEngine
from cosimo.execution.options import EngineOptions
from cosimo.papers.laplace import LaplaceModel
from cosimo.papers.roots import Region
from cosimo.problems import four_mass, two_mass, two_mass_undamped
from cosimo.units import NativeUnit

BUILDERS: Mapping[str, Callable[[System, float], Master]] = {
    "jacobi": masters.jacobi,
    "jacobi-early-read": masters.jacobi_early_read,
}
BUSY = 10_000
"""Nanoseconds that a step of a slow unit takes."""


def _busy(system: System, code: ctypes.CDLL) -> System:
    """The same names and connections; the units take `BUSY` nanoseconds per step and their outputs stay."""
    step = ctypes.cast(code.busy_still_step, ctypes.c_void_p).value or 0
    units = {
        name: NativeUnit(
            step,
            inputs=unit.inputs,
            outputs=unit.outputs,
            initial=[float(BUSY)],
            initial_outputs=[0.1] * len(unit.outputs),
        )
        for name, unit in system.units.items()
    }
    return System(units, system.connections)


def _in_turns(system: System, steps: int, repeat: int, bare: ctypes.CDLL | None = None) -> Turns:
    """Macro steps with and without compensation, under every master, and of the bare loop."""
    model = two_mass()
    plan: dict[str, Master] = {}
    for name, build in BUILDERS.items():
        plan[f"{name}, plain"] = build(system, STEP)
        # Designed on the linear units; FMUs and slow units take the corrections as they are.
        plan[f"{name}, compensated"] = compensate(model, build(model, STEP)).master
    live = {name: start(system, master) for name, master in plan.items()}
    engines = {n: KernelEngine(live[n], system.outputs, EngineOptions(parallel=False)) for n in plan}
    width = len(system.outputs)
    works: dict[str, Callable[[], object]] = {name: Steps(engine, width, steps) for name, engine in engines.items()}
    other = start(system, plan["jacobi, plain"])
    if bare is not None:
        works["bare"] = Steps(BareLoop(bare, other), width, steps)
    found = in_turns(works, repeat)
    for engine in engines.values():
        engine.close()
    for interpreter in (*live.values(), other):
        interpreter.close()
    return found


def macro_steps() -> Table:
    """Plain against compensated macro steps in the kernel, two-mass as FMUs and with slow units."""
    table = Table(
        "Compensated macro steps",
        ("units", "master", "plain / ns", "compensated / ns", "extra / ns", "extra / × bare loop", "extra / %"),
        note=f"Kernel, one thread, all outputs recorded in memory; {TURNS} Compensation with "
        f"target `monolithic`, macro step {STEP * 1e3:g} ms. The bare C loop is Jacobi over the same FMUs in the same "
        f"turns. Slow units have the names and connections of two-mass and take {BUSY / 1e3:g} µs per step each.",
    )
    code = library()
    with tempfile.TemporaryDirectory() as folder:
        # Not more steps: under damping the signals would become too small for normal numbers.
        fmus = _in_turns(as_fmus(two_mass(), Path(folder)), 200_000, 25, code)
    slow = _in_turns(_busy(two_mass(), code), 2_000, 25)
    for units, found, steps in (("two-mass as FMUs", fmus, 200_000), (f"{BUSY / 1e3:g} µs each", slow, 2_000)):
        for name in BUILDERS:
            plain, compensated = found.each(f"{name}, plain"), found.each(f"{name}, compensated")
            extra = compensated - plain
            against = scatter(extra / found.each("bare")) if "bare" in found.seconds else ""
            times = (f"{np.median(value) / steps * 1e9:.1f}" for value in (plain, compensated, extra))
            table.add(units, name, *times, against, scatter(100 * extra / plain))
    return table


def accurate_steps() -> Table:
    """Macro steps that follow the converged iteration, by correction or by sweeps, in steps of the bare loop."""
    step, steps, repeat = 0.02, 4_000, 9
    table = Table(
        "Compensated and iterated macro steps in bare steps",
        ("macro step", "sweeps", "ns per macro step", "in bare steps"),
        note=f"Undamped two-mass as exported FMI 2 FMUs in the kernel, {step * 1e3:g} ms, one thread, outputs recorded "
        f"in memory. {TURNS} The bare C loop is Jacobi over the same FMUs. Compensated: target `converged`, "
        "designed on identified models, which are checked in every macro step. Iterated until 1e-8; warm: from the "
        "Jacobian of the identified models.",
    )
    with tempfile.TemporaryDirectory() as folder:
        system = as_fmus(two_mass_undamped(), Path(folder))
        plan = _accurate_masters(system, step)
        live = {label: start(system, master) for label, master in plan.items()}
        engines = {n: KernelEngine(live[n], system.outputs, EngineOptions(parallel=False)) for n in plan}
        other, width = start(system, plan["Jacobi"]), len(system.outputs)
        works: dict[str, Callable[[], object]] = {"bare": Steps(BareLoop(library(), other), width, steps)}
        found = in_turns(works | {n: Steps(engine, width, steps) for n, engine in engines.items()}, repeat)
        for label, master in plan.items():
            info = run(system, master, stop=repeat * steps * step).info
            sweeps = f"{info['sweeps'] / info['steps']:.1f}" if "sweeps" in info else "–"
            table.add(label, sweeps, f"{found.median(label) / steps * 1e9:.0f}", found.ratio(label, "bare"))
        for closed in (*engines.values(), *live.values(), other):
            closed.close()
    return table


def _accurate_masters(system: System, step: float) -> dict[str, Master]:
    def until(**how: int) -> Master:
        return masters.iterative(system, step, sweeps=masters.Convergence(1e-8, limit=60, **how))

    jacobi, model = masters.jacobi(system, step), Model(system, step=step, horizon=100 * step)
    return {
        "Jacobi": jacobi,
        "Jacobi, compensated, models checked": compensate(system, jacobi, target="converged", model=model).master,
        "Jacobi, inputs predicted (`dmd:adapt`)": masters.jacobi(system, step, coupling=Dmd(mean=True, watched=True)),
        "iterated, plain": until(),
        "iterated, Anderson 8": until(anderson=8),
        "iterated, quasi-Newton 20": until(quasi_newton=20),
        "iterated, quasi-Newton 20, warm": warm_start(system, until(quasi_newton=20), model=model),
    }


def _median(work: Callable[[], object], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def design() -> Table:
    """How long a compensator's design takes, and all roots of det N(s) in a region."""
    table = Table(
        "Design of compensators, and roots in a region",
        ("what", "median / ms"),
        note="Design: `compensate` with target `monolithic`, the check of all eigenvalues included, macro step 3 ms, "
        "101 times. Roots: `LaplaceModel.roots` on two-mass undamped, T = 1 ms, Re sT from −14 to 1, |Im sT| ≤ 90, 11 "
        "times.",
    )
    system = four_mass()
    for name, build in BUILDERS.items():
        master = build(system, 3e-3)
        table.add(f"four-mass, {name}", f"{_median(lambda m=master: compensate(system, m), 101) * 1e3:.1f}")  # type: ignore[misc]
    step = 1e-3
    model, region = LaplaceModel(two_mass_undamped(), step), Region(-14 / step, 1 / step, -90 / step, 90 / step)
    table.add(f"{len(model.roots(region))} roots", f"{_median(lambda: model.roots(region), 11) * 1e3:.0f}")
    return table
