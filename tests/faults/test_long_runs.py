"""Ten million steps: the master's memory and its open files stay as they are."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "kernel"))
from contract import command, note
from native_units import exported

from cosimo.problems import two_mass

PROGRAM = """
import json, os, sys
from pathlib import Path
from cosimo import masters
from cosimo.execution.options import Checkpoint
from cosimo.core.system import Connection, System
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile
from cosimo.units import Fmu

units = {name: Fmu(Path(f"fmi2/{name}.fmu"), name=name) for name in ("one", "two")}
system = System(units, [Connection("one.f", "two.f", gain=-1.0), ("two.x", "one.x2"), ("two.v", "one.v2")])
seen = []

def watch(now, stop):
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    seen.append((now, pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir("/proc/self/fd"))))

checkpoint = Checkpoint(every=float(sys.argv[1])) if len(sys.argv) > 1 else None
output = ResultFile("rows.arrows", every=100)
run(system, masters.jacobi(system, 1e-4), stop=1000.0, output=output, progress=watch, checkpoint=checkpoint)
warm = next(i for i, (now, *_) in enumerate(seen) if now > 50.0)
print(json.dumps({
    "growth": max(size for _, size, _ in seen[warm:]) - seen[warm][1],
    "files": [min(n for *_, n in seen[warm:]), max(n for *_, n in seen[warm:])],
    "steps": round(seen[-1][0] / 1e-4),
}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("every", [None, "1"])
def test_ten_million_steps(every: str | None, tmp_path: Path) -> None:
    exported(two_mass(damping=1.0), tmp_path, fmi=2)
    arguments = [] if every is None else [every]
    outcome = command(tmp_path, *arguments, program=[sys.executable, "-c", PROGRAM], timeout=600)
    assert outcome.code == 0, outcome.errors
    found = json.loads(outcome.output)
    note("10^7 steps", checkpoints=every, **found)
    assert found["steps"] == 10_000_000
    assert found["growth"] <= 5.0, found
    least, most = found["files"]
    assert most - least <= (0 if every is None else 3), found  # while a checkpoint is being written, its files are open
