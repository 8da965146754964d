"""`make bench`: run all benchmarks and write RESULTS.md."""

from __future__ import annotations

import os

# One thread per measurement; set before NumPy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

from benchmarks import analysis, kernel, peers, runs
from benchmarks.measure import machine

HEAD = """# Results of `make bench`

Measured on {machine}. Machines are shared: times are the best of several repetitions; compare ratios, not times.
"""

MEASUREMENTS = (
    analysis.chains,
    analysis.batched,
    kernel.against_the_bare_loop,
    kernel.threads,
    runs.recording,
    runs.sweeps,
    runs.memory,
    peers.compared,
)


def main() -> None:
    tables = []
    for measure in MEASUREMENTS:
        print(measure.__doc__.strip().splitlines()[0] if measure.__doc__ else measure.__name__, flush=True)
        tables.append(measure())
    text = (
        HEAD.format(machine=machine("numpy", "scipy", "fmpy", "pyarrow"))
        + "\n"
        + "\n".join(table.markdown() for table in tables)
    )
    Path(__file__).with_name("RESULTS.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
