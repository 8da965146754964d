"""How fast systems are analysed: chains of growing length, and many masters in one call."""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import TURNS, Table, in_turns, peak_memory, seconds
from cosimo import masters
from cosimo.algebra import Batch
from cosimo.analysis import analyse
from cosimo.core.system import System
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems import chain, two_mass_glumac


def _analyse_chain(n: int, name: str) -> tuple[float, float]:
    start = time.perf_counter()
    system = chain(n=n)
    analyse(system, getattr(masters, name)(system, 0.01))
    return time.perf_counter() - start, peak_memory()


def chains() -> Table:
    """Each chain in a process of its own, so that peak memory is its own."""
    table = Table("Analysis of chains", ("units", "master", "time / s", "peak memory / MB"))
    context = multiprocessing.get_context("spawn")
    for n in (10, 100, 1000):
        for name in ("jacobi", "gauss_seidel"):
            with context.Pool(1) as pool:
                # The first call pays for imports; the chain itself is measured on the second.
                pool.apply(_analyse_chain, (2, name))
                took, memory = pool.apply(_analyse_chain, (n, name))
            table.add(n, name.replace("_", "-"), f"{took:.2f}", f"{memory:.0f}")
    return table


def batched(count: int = 20_000) -> Table:
    """ρ and δ of (α, h) pairs of Control21 on two-mass-glumac, one thread."""
    table = Table(
        "Masters evaluated per second",
        ("what", "masters per second"),
        note="One call of `Batch` on two-mass-glumac (Control21), ρ and δ (k = 2, 2-norm) of every master.",
    )
    system = two_mass_glumac()
    master = paper_masters(system, 1.0)["Control21"]
    rng = np.random.default_rng(0)
    grid = (np.geomspace(1e-3, 10, 200)[None, :], np.linspace(0, 0.99, count // 200)[:, None])
    scattered = (rng.uniform(1e-3, 10, count), rng.uniform(0, 0.99, count))
    for name, (h, alpha) in (("grid of 200 steps", grid), ("all steps different", scattered)):

        def work(h: object = h, alpha: object = alpha) -> None:
            batch = Batch(system, master, h, {"two.F": alpha})  # type: ignore[arg-type, dict-item]
            batch.spectral_radius()
            batch.consistency(k=2, norm=2)

        table.add(f"{count:,} masters, {name}", f"{count / seconds(work):,.0f}")
    return table


def pilot_runs(turns: int = 5) -> Table:
    """Two FMUs analysed with and without pilot runs, in turns, in one process; times of the processor, medians."""
    table = Table(
        "What pilot runs cost",
        ("FMUs", "step / s", "evidence", "without / s", "with / s", "ratio"),
        note="Processor time of `analyse` on the couplings of the test bed at a quarter of the step in the middle of "
        f"their search, in one process. {TURNS} Without pilot runs nothing is believed, so that no "
        "recommendation is worked out either; with them it is, and the critical step where only runs are believed.",
    )
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from testbed import CASES, systems

    with tempfile.TemporaryDirectory() as folder:
        for name, system in systems(Path(folder)).items():
            case = CASES[name]
            step = float(np.sqrt(case.search[0] * case.search[1])) / 4
            ways = {name: partial(_judge, system, case, step, pilots=name == "with") for name in ("with", "without")}
            evidence = ways["with"]()
            found = in_turns(ways, turns)
            took = (f"{found.median(way):.2f}" for way in ("without", "with"))
            table.add(name, f"{step:.3g}", evidence, *took, found.ratio("with", "without"))
    return table


def _judge(system: System, case: Any, step: float, *, pilots: bool) -> str:
    """The evidence of the verdict."""
    return analyse(system, masters.jacobi(system, step), horizon=case.horizon, pilots=pilots).evidence
