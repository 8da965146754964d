"""Whole runs: results kept on disk, sweeps of an iterative master, memory over many steps; two-mass as FMI 2 FMUs."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bare import BareLoop, library
from benchmarks.kernel import Steps, as_fmus, start
from benchmarks.measure import PLACES, TURNS, Table, Turns, in_processes, in_turns, scatter
from cosimo import masters
from cosimo.execution.engines import KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.monitoring import Watch
from cosimo.execution.options import EngineOptions
from cosimo.execution.power_bonds import power_bonds
from cosimo.execution.running import run
from cosimo.execution.session import BLOCK
from cosimo.formats.results import ResultFile
from cosimo.problems import two_mass

STEP = 1e-3


def _ways(folder: Path) -> dict[str, dict[str, Any]]:
    """Where rows of a run can go, as keywords of `run`."""
    files = {f"run, {end} file": {"output": ResultFile(folder / f"rows{end}")} for end in (".arrows", ".arrow")}
    silent = {"run, rows in memory, no monitors": {"engine": EngineOptions(monitors=False)}}
    return {**silent, "run, rows in memory": {}, **files}


def _needed(name: str, steps: int) -> float:
    """The peak of this process' resident memory above what it has after a run of one step, in MB."""
    with tempfile.TemporaryDirectory() as folder:
        fmus = as_fmus(two_mass(), Path(folder))
        options = _ways(Path(folder))[name]
        run(fmus, masters.jacobi(fmus, STEP), stop=STEP, **options)
        before = _resident()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        run(fmus, masters.jacobi(fmus, STEP), stop=steps * STEP, **options)
        status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    peak = next(line for line in status if line.startswith("VmHWM"))
    return float(peak.split()[1]) / 1024 - before


LOOPS = ("bare C loop", "bare C loop, rows in fresh memory", "kernel alone", "kernel, monitors on")


def recording(steps: int = 2_000_000) -> Table:
    """Rows kept in memory and on disk, against the bare loop."""
    table = Table(
        "Recording",
        ("what", "ns per macro step", "× bare loop", "memory / MB"),
        note=f"`run` on two-mass as FMUs, {steps:,} macro steps, all outputs; loading and initialising the FMUs (the "
        f"time of a run of one step) is subtracted. {TURNS} {PLACES} "
        f"The bare loop and the kernel alone write into one warm block of {BLOCK} rows, but for the second line: rows "
        "that are kept need memory that the system clears before it hands it out, which is what any recording takes "
        "at least. Memory: of loops, their rows; of runs, the peak of a process above what it has after a run of "
        "one step. "
        "Without monitors: `EngineOptions(monitors=False)`. "
        f"`.arrows` is the stream as recorded; `.arrow` is converted from it at the end, which is counted.",
    )
    found = in_processes(_all_ways, steps)
    rows = 8 * (1 + len(two_mass().outputs)) / 2**20
    for name in LOOPS:
        held = rows * (steps if "fresh" in name else BLOCK)
        table.add(name, f"{found.median(name) / steps * 1e9:.1f}", found.ratio(name, "bare C loop"), f"{held:.1f}")
    for name in _ways(Path()):
        took = float(np.median(found.each(name, f"{name}, one step"))) / steps
        ratio = found.ratio(name, "bare C loop", f"{name}, one step")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            table.add(name, f"{took * 1e9:.1f}", ratio, f"{pool.apply(_needed, (name, steps)):.1f}")
    return table


def _all_ways(steps: int) -> Turns:
    """Loops and runs, as `recording` names them."""
    with tempfile.TemporaryDirectory() as folder:
        fmus = as_fmus(two_mass(), Path(folder))
        master = masters.jacobi(fmus, STEP)
        live = start(fmus, master)
        outputs = _ways(Path(folder))

        def work(options: Mapping[str, Any], count: int) -> Callable[[], object]:
            return lambda: run(fmus, master, stop=count * STEP, **options)

        watched = dict(zip(LOOPS[2:], (None, Watch(fmus, power_bonds(fmus, ()))), strict=True))
        others = [start(fmus, master) for _ in watched]
        engines = {
            name: KernelEngine(other, fmus.outputs, EngineOptions(parallel=False), watch)
            for other, (name, watch) in zip(others, watched.items(), strict=True)
        }
        bare = BareLoop(library(), live)
        loops = {**dict.fromkeys(LOOPS[:2], bare), **engines}
        works: dict[str, Callable[[], object]] = {
            name: Steps(loop, len(fmus.outputs), steps, fresh="fresh" in name) for name, loop in loops.items()
        }
        for name, options in outputs.items():
            works |= {name: work(options, steps), f"{name}, one step": work(options, 1)}
        found = in_turns(works, 2)
        for engine in engines.values():
            engine.close()
        for units in (live, *others):
            units.close()
    return found


def _state_functions(live: Live, times: int) -> dict[str, Callable[[], object]]:
    """Loops in C over the units' own saving and restoring."""
    target = Path(tempfile.mkdtemp(prefix="cosimo-bench-")) / "states.so"
    source = Path(__file__).with_name("states.c")
    subprocess.run(["cc", "-O3", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
    code = ctypes.CDLL(str(target))
    natives = [live.instances[name].native(1) for name in live.system.names]  # type: ignore[attr-defined]
    many = ctypes.c_void_p * len(natives)
    components, states = many(*(native.component for native in natives)), many()

    def work(loop: str, function: str) -> Callable[[], object]:
        functions = many(*(native.address(function) for native in natives))
        sizes = ctypes.c_size_t(len(natives)), ctypes.c_longlong(times)
        return lambda: getattr(code, loop)(components, functions, states, *sizes)

    save, restore = work("save_states", "fmi2GetFMUstate"), work("restore_states", "fmi2SetFMUstate")
    save()  # for the turn in which restoring comes first
    return {"save": save, "restore": restore}


def sweeps(steps: int = 400_000, repeat: int = 15) -> Table:
    """One sweep of an iterative master against a plain macro step and the units' own saving and restoring."""
    table = Table(
        "One sweep of an iterative master",
        ("what", "ns", "bound: plain + own saving and restoring / ns", "ratio"),
        note="Kernel on two-mass as FMUs, successive substitution (Jacobi), a fixed number of sweeps. One sweep saves, "
        "restores, couples, steps and reads; a further sweep restores, couples, steps and reads. The units' own saving "
        "and restoring is measured by a loop in C over their functions. " + TURNS,
    )
    with tempfile.TemporaryDirectory() as folder:
        fmus = as_fmus(two_mass(), Path(folder))
        plan = {"plain": masters.jacobi(fmus, STEP)}
        plan |= {f"{n} sweeps": masters.iterative(fmus, STEP, sweeps=n) for n in (1, 4)}
        live = {name: start(fmus, master) for name, master in plan.items()}
        engines = {n: KernelEngine(live[n], fmus.outputs, EngineOptions(parallel=False)) for n in plan}
        works: dict[str, Callable[[], object]] = {n: Steps(e, len(fmus.outputs), steps) for n, e in engines.items()}
        other = start(fmus, plan["plain"])
        found = in_turns(works | _state_functions(other, steps), repeat)
        for engine in engines.values():
            engine.close()
        for units in (*live.values(), other):
            units.close()
    plain, save, restore = (found.each(name) / steps * 1e9 for name in ("plain", "save", "restore"))
    one, four = (found.each(f"{n} sweeps") / steps * 1e9 for n in (1, 4))
    table.add("plain macro step", f"{np.median(plain):.1f}", "", "")
    table.add("the units' own saving / restoring", f"{np.median(save):.1f} / {np.median(restore):.1f}", "", "")
    for name, took, bound in (
        ("macro step with one sweep", one, plain + save + restore),
        ("a further sweep", (four - one) / 3, plain + restore),
    ):
        table.add(name, f"{np.median(took):.1f}", f"{np.median(bound):.1f}", scatter(took / bound))
    return table


def _resident() -> float:
    """Resident memory of this process now, in MB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _grow(steps: int, suffix: str) -> tuple[float, float, float]:
    """Resident memory after a tenth of the steps, its greatest growth later, and its growth at the end."""
    seen: list[tuple[float, float]] = []

    def watch(at: float, stop: float) -> None:
        if not seen or at - seen[-1][0] >= stop / 200:
            seen.append((at, _resident()))

    with tempfile.TemporaryDirectory() as folder:
        fmus = as_fmus(two_mass(), Path(folder))
        output = ResultFile(Path(folder) / f"rows{suffix}")
        run(fmus, masters.jacobi(fmus, STEP), stop=steps * STEP, output=output, progress=watch)
        end = _resident()
    warm = next(resident for at, resident in seen if at >= steps * STEP / 10)
    later = max(resident for at, resident in seen if at >= steps * STEP / 10)
    return warm, later - warm, end - warm


def memory(steps: int = 10_000_000) -> Table:
    """Resident memory over many macro steps with output to disk."""
    table = Table(
        "Resident memory over 10^7 macro steps",
        ("file", "after a tenth of the steps / MB", "greatest growth later / MB", "growth after the run / MB"),
        note="`run` on two-mass as FMUs, all outputs to disk; after the run an `.arrow` file has been converted too.",
    )
    context = multiprocessing.get_context("spawn")
    for suffix in (".arrows", ".arrow"):
        with context.Pool(1) as pool:
            warm, later, end = pool.apply(_grow, (steps, suffix))
        table.add(suffix, f"{warm:.1f}", f"{later:.2f}", f"{end:.2f}")
    return table
