"""How fast systems are analysed: chains of growing length, and many masters in one call."""

from __future__ import annotations

import multiprocessing
import time

import numpy as np

from benchmarks.measure import Table, peak_memory, seconds
from cosimo import masters
from cosimo.algebra import Batch
from cosimo.analysis import analyse
from cosimo.problems import chain, two_mass_glumac
from cosimo.problems.two_mass_glumac import paper_masters


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
