"""What the guard does when a unit takes the process down, inside of other guards and with many folders."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import processes

HEAD = """
import os, time
from pathlib import Path
from cosimo.core.guarding import enter, guard_options, guarded, in_unit, leave, not_temporary, temporary, unwatched
here = Path.cwd()
"""


def end(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return processes.run(
        [sys.executable, "-c", HEAD + program],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_all_folders_are_removed_and_nothing_else(tmp_path: Path) -> None:
    """More of them than fit into one call of `rm`, one with a path of more than 511 bytes, and one that is gone."""
    found = end(
        """
places = [here / f"folder {n}" for n in range(150)] + [here.joinpath("deep", *["d" * 200] * 4)]
with guard_options(exits=True):
    temporary(places[0])
    with guarded(None):
        for place in places:
            place.mkdir(parents=True)
            (place / "content").touch()
            temporary(place)
        not_temporary(places[7])
        temporary("folder 8")  # relative: wherever a unit has gone, it is not there
        enter("motor", "doStep", 0.5)
        os.abort()
""",
        tmp_path,
    )
    assert found.returncode == 4, found.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "folder 7"]
    parent = tmp_path.joinpath("deep", *["d" * 200] * 3)
    assert parent.is_dir()
    assert not list(parent.iterdir())


def test_a_forked_child_leaves_folders_to_its_parent(tmp_path: Path) -> None:
    found = end(
        """
(here / "folder").mkdir()
with guard_options(exits=True), guarded(None):
    temporary(here / "folder")
    if (child := os.fork()) == 0:
        enter("motor", "doStep", 0.5)
        os.abort()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
    assert (here / "folder").is_dir()
""",
        tmp_path,
    )
    assert found.returncode == 0, found.stderr


def test_the_newest_guard_counts_and_the_one_before_it_afterwards(tmp_path: Path) -> None:
    program = """
with guard_options(exits=True, timeout=1.5), guarded(None):
    with guarded(here / "first.csv"):
        pass
    with guard_options(timeout=None), guarded(here / "second.csv"):
        enter("motor", "doStep", 0.5)
        time.sleep(2.0)
        leave()
        INSIDE
    enter("motor", "doStep", 1.5)
    OUTSIDE
"""
    inside = end(program.replace("INSIDE", "enter('motor', 'get', 1.0); os.abort()").replace("OUTSIDE", ""), tmp_path)
    assert inside.returncode == 4
    assert "motor · get · t = 1 s" in inside.stderr
    assert f"rows written so far are in '{tmp_path / 'second.csv'}.partial'" in inside.stderr
    outside = end(program.replace("INSIDE", "").replace("OUTSIDE", "os.abort()"), tmp_path)
    assert outside.returncode == 4
    assert "motor · doStep · t = 1.5 s" in outside.stderr
    assert "it would have ended alone" in outside.stderr
    late = end(program.replace("INSIDE", "").replace("OUTSIDE", "time.sleep(600)"), tmp_path)
    assert late.returncode == 5
    assert "motor · doStep · t = 1.5 s · – · the unit took longer than its limit of 1.5 s" in late.stderr


def test_only_calls_of_units_of_this_process_are_timed(tmp_path: Path) -> None:
    """Calls of 0.6 s have 0.9 s to spare, which a busy machine does not use up."""
    program = """
with guard_options(exits=True, timeout=1.5), guarded(None):
    enter("motor", "instantiate", 0.0)
    with unwatched():
        time.sleep(2.0)
    with in_unit("other", "doStep", 0.0, isolated=True):
        time.sleep(2.0)
    for _ in range(3):
        with in_unit("other", "doStep", 0.0, isolated=False):
            time.sleep(0.6)
    leave()
    with in_unit("brake", "free", 2.0, isolated=False):
        time.sleep(600)
"""
    found = end(program, tmp_path)
    assert found.returncode == 5
    assert "brake · free · t = 2 s · – · the unit took longer" in found.stderr
