"""`make bench`: run all benchmarks and write RESULTS.md."""

from __future__ import annotations

import os
import sys

# One thread per measurement; set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

from benchmarks import (
    analysis,
    checkpoints,
    commands,
    compensation,
    hosts,
    isolation,
    kernel,
    monitors,
    peers,
    prediction,
    runs,
    solvers,
    studio,
    sweep,
    tuning,
)
from benchmarks.measure import machine

HEAD = """# Results of `make bench`

Measured on {machine}. Machines are shared: compare ratios, not times. Every ratio is
taken in turns within one run, and is the median of the ratios of single turns; the quartiles stand beside it in
brackets. Tables may come from different runs (`python -m benchmarks NAME` measures single ones anew).
"""

MEASUREMENTS = (
    commands.start_up,
    commands.imports,
    analysis.chains,
    analysis.batched,
    analysis.pilot_runs,
    kernel.against_the_bare_loop,
    kernel.varied,
    kernel.events,
    kernel.threads,
    solvers.model_exchange,
    isolation.macro_steps,
    isolation.starts,
    monitors.monitors,
    monitors.each,
    checkpoints.checkpoints,
    runs.recording,
    runs.sweeps,
    runs.memory,
    compensation.macro_steps,
    compensation.accurate_steps,
    compensation.design,
    prediction.macro_steps,
    tuning.profile,
    tuning.cpu,
    tuning.gpu,
    sweep.workers,
    sweep.fmpy,
    studio.latency,
    studio.frames,
    studio.newcomer,
    studio.memory,
    hosts.latencies,
    hosts.heavy,
    peers.compared,
    peers.packed,
)


def main(wanted: list[str]) -> None:
    """All measurements, or only those named, alone or by module; the other tables stay as they are in RESULTS.md."""
    path = Path(__file__).with_name("RESULTS.md")
    known = {f"{measure.__module__.rpartition('.')[2]}.{measure.__name__}": measure for measure in MEASUREMENTS}
    for name in wanted:
        if not any(name in (own, own.partition(".")[0]) for own in known):
            sys.exit(f"no measurement '{name}'; there are {', '.join(known)}")
    wanted = [own for own in known if {own, own.partition(".")[0]} & set(wanted)]
    head, *sections = path.read_text(encoding="utf-8").split("\n## ") if wanted else [""]
    tables = {section.splitlines()[0]: "## " + section.rstrip() + "\n" for section in sections}
    for name, measure in known.items():
        if wanted and name not in wanted:
            continue
        print((measure.__doc__ or name).strip().splitlines()[0], flush=True)
        table = measure()
        tables[table.title] = table.markdown()
    if not wanted:
        head = HEAD.format(machine=machine("numpy", "scipy", "fmpy", "pyarrow"))
    path.write_text(head.rstrip() + "\n\n" + "\n".join(tables.values()), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
