"""What only a process of its own shows: rows that survive its end, and memory that does not grow."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import processes

sys.path.insert(0, str(Path(__file__).parent))
from native_units import exported

from cosimo.formats.results import read_result
from cosimo.problems import two_mass

HERE = Path(__file__).parent
HEAD = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from native_units import lag
import cosimo as co
from cosimo import masters
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile
from cosimo.units import Fmu
"""
COUPLED = """
units = {name: Fmu(Path(f"fmi2/{name}.fmu"), name=name) for name in ("one", "two")}
links = [co.Connection("one.f", "two.f", gain=-1.0), ("two.x", "one.x2"), ("two.v", "one.v2")]
"""
SLOW = """
units, links = {name: lag(step="slow_step", settings=(0.05,)) for name in "ab"}, [("a.y", "b.u"), ("b.y", "a.u")]
"""
RUN = """
system = System(units, links)
output = ResultFile("rows.parquet", flush_interval=0.2)
run(system, masters.jacobi(system, 1e-3), stop=1e6, output=output)
"""
SLOWER = COUPLED + "units['brake'] = lag(step='slow_step', settings=(0.01,))\n"


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(folder)}
    return processes.Popen(
        [sys.executable, "-c", HEAD + program], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True
    )


def wait_for_rows(process: subprocess.Popen[str], path: Path, count: int) -> int:
    """Wait until the reader finds more than `count` rows while the run goes on; how many it found."""
    deadline = time.monotonic() + 120
    found = 0
    while found <= count:
        assert process.poll() is None, process.stderr and process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
        if Path(f"{path}.partial").exists() and Path(f"{path}.partial").stat().st_size > 2000:
            found = len(read_result(path))
    return found


@pytest.mark.parametrize("units", [SLOW, SLOWER, COUPLED], ids=["native", "fmus, slow", "fmus"])
def test_rows_appear_while_a_run_goes_on_and_survive_a_kill(units: str, tmp_path: Path) -> None:
    exported(two_mass(), tmp_path, fmi=2)
    process = start(units + RUN, tmp_path)
    try:
        seen = wait_for_rows(process, tmp_path / "rows.parquet", 5)
    finally:
        process.kill()
        process.communicate()
    rows = read_result(tmp_path / "rows.parquet")
    assert len(rows) >= seen
    assert not rows.complete
    assert np.array_equal(rows.time, 1e-3 * np.arange(len(rows)))
    assert np.isfinite(rows.values).all()


MEMORY = """
import psutil

system = System(units, links)

def resident():
    return psutil.Process().memory_info().rss / 1e6

sizes = []
def watch(now, stop):
    sizes.append((now, resident()))

run(system, masters.jacobi(system, 1e-3), stop=2000.0, output=ResultFile("rows.arrows"), progress=watch)
warm = next(size for now, size in sizes if now > 200.0)
print(f"{max(size for _, size in sizes) - warm:.2f} {resident() - warm:.2f}", file=sys.stderr)
"""


def test_memory_does_not_grow_with_the_number_of_steps(tmp_path: Path) -> None:
    exported(two_mass(damping=1.0), tmp_path, fmi=2)
    process = start(COUPLED + MEMORY, tmp_path)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    running, afterwards = map(float, errors.split())
    assert running < 3.0
    assert afterwards < 3.0
    assert (tmp_path / "rows.arrows").stat().st_size > 2_000_000 * 8 * 4
