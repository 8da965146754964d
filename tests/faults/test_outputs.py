"""Results that cannot be written: a full disk, a folder that is missing or read-only."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import suite_cases as case
from contract import COSIMO, command, note, require_contract, require_rows

RUN = ("run", "two-mass", "--step-size", "1e-3", "--stop-time", "1e5", "--json")


@cache
def may_mount() -> bool:
    """Whether this user may have mounts of his own."""
    there = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return there.returncode == 0


def mounted(folder: Path, options: str, *arguments: str) -> list[str]:
    """A program that runs cosimo with a file system of its own at `small`, and copies what is in it afterwards."""
    (folder / "small").mkdir()
    (folder / "copied").mkdir()
    words = " ".join(map(repr, (*COSIMO, *arguments)))
    script = f"mount -t tmpfs -o {options} none small && {words}; code=$?; cp -r small/. copied; exit $code"
    return ["unshare", "-rm", "sh", "-c", script]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_a_full_disk(suffix: str, tmp_path: Path) -> None:
    name = f"rows.{suffix}"
    if may_mount():
        program = mounted(tmp_path, "size=3m", *RUN, "--output-file", f"small/{name}")
        outcome = command(tmp_path, "--json", program=program)
        where = tmp_path / "copied"
    else:
        size = 3 << 20
        prepare = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
        outcome = command(tmp_path, *RUN, "--output-file", name, prepare=prepare)
        where = tmp_path
    require_contract(outcome, code=7, names=[name])
    rows = require_rows(where / name, at_least=10_000)
    assert np.array_equal(rows.time, 1e-3 * np.arange(len(rows)))
    note("disk full", rows=len(rows), wall=outcome.wall)


@pytest.mark.parametrize("mode", ["in-process", "isolated"])
def test_descriptors_that_a_unit_redirects(mode: str, tmp_path: Path) -> None:
    case.redirected(tmp_path, mode, 0)


@pytest.mark.parametrize("how", ["removed", "cut off"])
def test_rows_that_are_lost_while_the_run_goes_on(how: str, tmp_path: Path) -> None:
    case.touched(how)(tmp_path, "in-process", 0)


SWEEP = ("sweep", "two-mass", "--vary", "kc=50:150:100", "--stop-time", "1", "--workers", "1", "--output-file", "s.csv")


def test_a_full_disk_in_a_study(tmp_path: Path) -> None:
    size = 4 << 10
    prepare = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))  # noqa: E731
    outcome = command(tmp_path, *SWEEP, "--json", prepare=prepare)
    require_contract(outcome, code=7, names=["s.csv", "--resume", "the rows so far are kept in 's.csv.partial'"])
    resumed = command(tmp_path, *SWEEP, "--resume", "--json")
    assert resumed.code == 0, resumed.errors
    assert resumed.document["runs"] == 100


@pytest.mark.mounts  # the size of one file cannot tell the two apart: then the rows fail first, as above
def test_a_full_disk_while_checkpoints_are_written(tmp_path: Path) -> None:
    # Few rows, so that the stream stays small and the checkpoints do not fit; the rows then have no place either.
    few = ("--every", "100000", "--checkpoint-every", "0.1")
    program = mounted(tmp_path, "size=28k", *RUN, "--output-file", "small/rows.csv", *few)
    outcome = command(tmp_path, "--json", program=program)
    require_contract(outcome, code=7, names=["small/rows.csv", "No space left"])
    require_rows(tmp_path / "copied" / "rows.csv")


def test_a_missing_folder(tmp_path: Path) -> None:
    outcome = command(tmp_path, *RUN, "--output-file", "nowhere/rows.csv")
    require_contract(outcome, code=7, names=["nowhere/rows.csv", "No such file or directory"])
    assert not (tmp_path / "nowhere").exists()
    note("folder missing", wall=outcome.wall)


def test_a_read_only_folder(tmp_path: Path) -> None:
    if may_mount():
        program = mounted(tmp_path, "ro", *RUN, "--output-file", "small/rows.csv")
        outcome = command(tmp_path, "--json", program=program)
        require_contract(outcome, code=7, names=["small/rows.csv", "Read-only file system"])
        assert not list((tmp_path / "copied").iterdir())
    else:
        folder = tmp_path / "closed"
        folder.mkdir(mode=0o555)
        where = "/sys/rows.csv" if os.access(folder, os.W_OK) else "closed/rows.csv"  # nothing is closed to root
        outcome = command(tmp_path, *RUN, "--output-file", where)
        require_contract(outcome, code=7, names=[where])
    note("folder read-only", wall=outcome.wall)
