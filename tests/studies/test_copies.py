"""Copies of a process in which runs of a study are made: they end, whatever happens to them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

SCRIPT = """
import io, os, signal, sys
import cosimo as co
from cosimo.studies import Grid, Study, run_study

class Output(io.StringIO):
    def flush(self):
        if os.getpid() != here:  # the last that a copy does; the parent may ask it to end just then
            open("flushed", "a").write("x")
            os.kill(os.getpid(), signal.SIGTERM)

here, sys.stdout = os.getpid(), Output()
unit = co.Fmu("lag2.fmu", isolate=False)
study = Study(co.System({"lag": unit}), Grid({"lag.gain": [1.0, 2.0]}), ["final"], step=0.1, stop=2.0)
try:
    found = run_study(study, workers=1)
finally:
    print("here" if os.getpid() == here else "in the copy", file=sys.stderr)
print(found.counts["ran"], file=sys.stderr)
"""


def test_a_copy_that_is_asked_to_end_as_it_ends_does_not_come_back(tmp_path: Path) -> None:
    """It went on in the code of the parent, and wrote over what that one writes."""
    build(tmp_path, "lag2")
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stderr == "here\n2\n"
    assert (tmp_path / "flushed").read_text() == "x"
