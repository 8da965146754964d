"""What one waits for: whole commands, from the shell to the last line, in processor time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from benchmarks.measure import Table, scatter
from cosimo.formats.export import export_ssp
from cosimo.problems import two_mass

ANALYSE = "co.analyse(system, co.masters.jacobi(system, 0.01))"
CHAIN = "import cosimo as co; system = co.problems.chain(n={units}); {work}"
COMMANDS = {
    "python -c 'import numpy'": ["-c", "import numpy"],
    "import cosimo.problems": ["-c", "import cosimo.problems"],
    "cosimo problems": ["-m", "cosimo.cli", "problems"],
    "cosimo analyse two-mass": ["-m", "cosimo.cli", "analyse", "two-mass"],
    "cosimo analyse, two FMUs, no pilot runs": ["-m", "cosimo.cli", "analyse", "two-mass.ssp", "--no-pilots"],
    "cosimo analyse, two FMUs": ["-m", "cosimo.cli", "analyse", "two-mass.ssp"],
    "analyse, chain of 25 units": [
        "-c",
        CHAIN.format(units=25, work="co.analyse(system, co.masters.jacobi(system, 0.02))"),
    ],
    "cosimo run, two FMUs, 3,000 steps": [
        *("-m", "cosimo.cli", "run", "two-mass.ssp", "--stop-time", "3", "--step-size", "1ms", "-o", "rows.parquet")
    ],
    "cosimo tune two-mass, 2,000 evaluations": ["-m", "cosimo.cli", "tune", "two-mass"],
    "tune, chain of 20 units, 20 evaluations": ["-c", CHAIN.format(units=20, work="co.tune(system, evaluations=20)")],
    "tune, chain of 100 units": ["-c", CHAIN.format(units=100, work="co.tune(system)")],
    "analyse, chain of 1,000 units": ["-c", CHAIN.format(units=1000, work=ANALYSE)],
    "analyse, chain of 3,000 units": ["-c", CHAIN.format(units=3000, work=ANALYSE)],
    "analyse, chain of 10,000 units": ["-c", CHAIN.format(units=10_000, work=ANALYSE)],
}
WANTED = {
    "import cosimo.problems": 0.25,
    "cosimo analyse two-mass": 0.5,
    "cosimo analyse, two FMUs, no pilot runs": 0.7,
    "cosimo run, two FMUs, 3,000 steps": 0.45,
    "cosimo tune two-mass, 2,000 evaluations": 3.0,
    "tune, chain of 100 units": 10.0,
    "analyse, chain of 1,000 units": 3.0,
    "analyse, chain of 3,000 units": 15.0,
    "analyse, chain of 10,000 units": 60.0,
}
"""Seconds that the commands shall take at most."""
BOUNDS = (
    "Where it goes: loading modules takes 0.11 s of `analyse two-mass`, 0.18 s of the run, and half of `analyse` of "
    "two FMUs without pilot runs (pydantic for the annotation of the package, FMPy, lxml). `tune` looks for the "
    "robustness of 46 points, 37 of which are shown, by 1,350 eigenvalue problems each. Of a chain of 1,000 units, a "
    "quarter is the proof of the critical step (3,200 solutions of its equations), and a fifth the recommendation."
)
"""Where the time goes, as profiles told (`commands.imports` measures the imports)."""
LONG = 3
"""Turns of commands that take longer than `WHILE` seconds."""
WHILE = 5.0
ONCE = 30.0
"""Seconds from which on one turn is all."""

LAUNCHER = """
import json, os, subprocess, sys, time
begin = time.perf_counter()
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
took = time.perf_counter() - begin
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, took, used.ru_maxrss]))
"""
"""Starts a command from a small process: the peak memory of a process begins with that of the one that started it."""


VERBS = {
    "--help": ["--help"],
    "problems": ["problems"],
    "analyse": ["analyse", "two-mass"],
    "run": ["run", "two-mass", "--stop-time", "0.1", "-o", "rows.parquet"],
    "run, FMUs": ["run", "two-mass.ssp", "--stop-time", "0.1", "-o", "rows.parquet"],
    "compare": ["compare", "two-mass"],
    "compensate": ["compensate", "two-mass", "--step-size", "4ms"],
    "tune": ["tune", "two-mass", "--evaluations", "20"],
    "sweep": ["sweep", "two-mass", "--vary", "kc=100,200", "--workers", "1", "-o", "study.parquet"],
    "plot": ["plot", "rows.parquet", "two.x"],
    "report": ["report", "two-mass", "-o", "report.html"],
    "check-fmu": ["check-fmu", "one.fmu"],
    "export": ["export", "two-mass", "--ssp", "-o", "again.ssp"],
}
"""What is asked of every verb for the table of imports."""
PROBE = """
import importlib._bootstrap as loader, json, sys, time
own, inside, load = {}, [], loader._load_unlocked
def timed(spec):
    begin = time.process_time()
    inside.append(0.0)
    try:
        return load(spec)
    finally:
        took = time.process_time() - begin
        name = spec.name.partition(".")[0]
        own[name] = own.get(name, 0.0) + took - inside.pop()
        if inside:
            inside[-1] += took
loader._load_unlocked = timed
sys.argv = ["cosimo", *sys.argv[1:]]
from cosimo.cli import main
try:
    main()
finally:
    print(json.dumps([len(sys.modules), time.process_time(), own]), file=sys.stderr)
"""
"""Runs a verb and tells the modules that were loaded, the processor time in all, and that of loading each package."""


def imports(repeat: int = 2) -> Table:
    """What every verb loads, and how long that takes of its time."""
    shown = ("numpy", "typer", "rich", "cosimo", "pydantic", "pyarrow", "fmpy", "scipy")
    table = Table(
        "Imports of every verb",
        ("verb", "modules", "in all / s", "loading / s", *(f"{name} / ms" for name in shown)),
        note=f"Processor time, the least of {repeat}; what a package loads of others counts for those. A verb that "
        "needs a second process is measured in the first.",
    )
    with tempfile.TemporaryDirectory() as folder:
        export_ssp(two_mass(), Path(folder) / "two-mass.ssp", fmi=2, step=1e-3, stop=3.0)
        with zipfile.ZipFile(Path(folder) / "two-mass.ssp") as package:
            name = next(name for name in package.namelist() if name.endswith(".fmu"))
            (Path(folder) / "one.fmu").write_bytes(package.read(name))
        surroundings = {**os.environ, "COSIMO_CACHE": "off", "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
        for verb, words in VERBS.items():
            best: tuple[int, float, dict[str, float]] | None = None
            for _ in range(repeat + 1):  # the first compiles
                command = [sys.executable, "-c", PROBE, *words]
                told = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=True)
                found = json.loads(told.stderr.splitlines()[-1])
                best = found if best is None or found[1] < best[1] else best
            assert best is not None
            modules, whole, own = best
            parts = (f"{1e3 * own.get(package, 0.0):.0f}" for package in shown)
            table.add(verb, str(modules), f"{whole:.2f}", f"{sum(own.values()):.2f}", *parts)
    return table


def start_up(repeat: int = 5) -> Table:
    """Commands in turns, each in a process of its own."""
    table = Table(
        "What one waits for",
        ("command", "processor time / s", "wanted / s", "by the clock / s", "peak memory / MB"),
        note=f"User and system time of the whole process, medians of {repeat} turns with quartiles ({LONG} of commands "
        f"that take longer than {WHILE:g} s, one from {ONCE:g} s on), after one that is not counted: it compiles the "
        "modules. Nothing else is kept from earlier commands (COSIMO_CACHE=off). The first line is what Python and "
        "NumPy alone take. " + BOUNDS,
    )
    seconds, clock = ({name: list[float]() for name in COMMANDS} for _ in range(2))
    memory: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        export_ssp(two_mass(), Path(folder) / "two-mass.ssp", fmi=2, step=1e-3, stop=3.0)
        surroundings = {**os.environ, "COSIMO_CACHE": "off", "PYTHONPYCACHEPREFIX": str(Path(folder) / "compiled")}
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
        for turn in range(repeat + 1):
            for name, words in COMMANDS.items():
                least = min(seconds[name], default=0.0)
                if least > ONCE or (len(seconds[name]) == LONG and least > WHILE):
                    continue
                command = [sys.executable, "-c", LAUNCHER, sys.executable, *words]
                told = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, check=True)
                code, used, took, peak = json.loads(told.stdout)
                assert code == 0, name
                if turn or used > ONCE:
                    seconds[name].append(used)
                    clock[name].append(took)
                memory[name] = max(memory.get(name, 0.0), peak / 1024)
    for name, own in seconds.items():
        by_clock = f"{np.median(clock[name]):.2f}"
        table.add(name, scatter(np.array(own)), WANTED.get(name, ""), by_clock, f"{memory[name]:.0f}")
    return table
