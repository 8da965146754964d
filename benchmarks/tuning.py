"""How many masters are evaluated per second: on all cores, and on a graphics processor.

`python -m benchmarks.tuning gpu` needs NumPy, SciPy and PyTorch (or CuPy: `gpu cupy`) and the sources on the path,
nothing compiled.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from types import FrameType
from typing import Any

import numpy as np

from benchmarks.measure import Table, seconds
from cosimo.algebra.backends import Backend, find_backend
from cosimo.algebra.batch import Batch, Consistency
from cosimo.papers.glumac2018 import paper_masters
from cosimo.problems.masses import two_mass, two_mass_glumac
from cosimo.tuning import tune
from cosimo.tuning.goals import Stability

NOTE = (
    "Control21 on two-mass-glumac in double precision: ρ to 1e-10 with its label, and δ (k = 2, 2-norm), of every "
    "master; setting up, transfers and threads included."
)
COLUMNS = ("what", "masters per second", "largest difference to NumPy")
COMPARED = 20_000
REPEAT = 9
"""The machine is shared: the best of so many."""


def _masters(count: int, *, grid: bool) -> dict[str, Any]:
    """Steps and gains: a grid with 200 steps, or all different."""
    if grid:
        return {
            "steps": np.geomspace(1e-3, 10, 200)[None, :],
            "gains": {"two.F": np.linspace(0, 0.99, count // 200)[:, None]},
        }
    rng = np.random.default_rng(0)
    return {"steps": rng.uniform(1e-3, 10, count), "gains": {"two.F": rng.uniform(0, 0.99, count)}}


def _evaluate(count: int, *, grid: bool, backend: Backend, workers: int | None = None) -> Any:
    system = two_mass_glumac()
    master = paper_masters(system, 1.0)["Control21"]
    evaluation = Batch(system, master, backend=backend, workers=workers, **_masters(count, grid=grid))
    return evaluation.compute(Stability(), Consistency(k=2, norm=2))


def cpu(count: int = 200_000) -> Table:
    """ρ and δ of (α, h) pairs with NumPy, one thread and all cores."""
    table = Table("Masters evaluated per second, all cores", COLUMNS, note=NOTE)
    cores = len(os.sched_getaffinity(0))
    for name, grid in (("grid of 200 steps", True), ("all steps different", False)):
        for workers in dict.fromkeys((1, cores)):

            def work(grid: bool = grid, workers: int = workers) -> None:
                _evaluate(count, grid=grid, backend=Backend(), workers=workers)

            threads = "1 thread" if workers == 1 else f"{workers} threads"
            table.add(f"CPU, {count:,} masters, {name}, {threads}", f"{count / seconds(work, repeat=REPEAT):,.0f}", "-")
    return table


def gpu(count: int = 8_000_000, library: str = "auto") -> Table:
    """The same on a graphics processor, where there is one."""
    table = Table("Masters evaluated per second, graphics processor", COLUMNS, note=NOTE)
    backend = find_backend(library)
    if backend.name == "numpy" or getattr(backend, "place", "cuda") == "cpu":
        table.add("GPU", "no graphics processor here", "-")
        return table
    for name, grid in (("grid of 200 steps", True), ("all steps different", False)):
        reference = _evaluate(COMPARED, grid=grid, backend=Backend())
        found = _evaluate(COMPARED, grid=grid, backend=backend)
        columns = ("spectral_radius", "consistency")
        difference = max(float(np.abs(found[c] - reference[c]).max()) for c in columns)
        labels = int((found.stable != reference.stable).sum())

        def work(grid: bool = grid) -> None:
            _evaluate(count, grid=grid, backend=backend)

        work()  # Kernels are loaded and memory is taken once.
        table.add(
            f"GPU ({backend.device}), {count:,} masters, {name}",
            f"{count / seconds(work):,.0f}",
            f"{difference:.1e} on {COMPARED:,} masters, {labels} labels",
        )
    return table


STAGES = {
    "relative_radius": "robustness of the points shown",
    "usual_points": "what `analyse` would recommend",
    "judge_point": "stability and error of the points shown",
    "_measure_robustness": "robustness of candidates",
    "errors": "errors of candidates",
    "_measured": "stability of candidates",
    "run_through": "choice of candidates",
}
"""The stages of `tune`, by the innermost of these functions that is at work."""


def profile(evaluations: int = 2000, interval: float = 1e-3) -> Table:
    """Where the processor time of `tune two-mass` goes, by looking every millisecond of it."""
    table = Table(
        "Where `tune two-mass` spends its time",
        ("stage", "share / %"),
        note=f"{evaluations:,} evaluations, modules loaded before; a look at the stack every {1e3 * interval:g} ms of "
        "processor time.",
    )
    found: Counter[str] = Counter()

    def look(number: int, frame: FrameType | None) -> None:
        while frame is not None and frame.f_code.co_name not in STAGES:
            frame = frame.f_back
        found["all else" if frame is None else STAGES[frame.f_code.co_name]] += 1

    tune(two_mass(), evaluations=20)
    before = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, interval, interval)
    try:
        tune(two_mass(), evaluations=evaluations)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    for stage, count in found.most_common():
        table.add(stage, f"{100 * count / found.total():.0f}")
    return table


if __name__ == "__main__":
    chosen = sys.argv[1:] or ["cpu"]
    if chosen[0] == "gpu":
        print(gpu(library=chosen[1] if len(chosen) > 1 else "auto").markdown())
    else:
        print(cpu().markdown())
