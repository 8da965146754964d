"""Tests whose program is missing are left out, and the end of the run says which, how many, why, and what to do."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FILES = [str(HERE / "isolation" / "test_sandbox.py"), str(HERE / "reporting" / "test_report_browser.py")]


def collected(*options: str, path: str) -> tuple[str, list[str]]:
    """What pytest prints for `FILES` with this search path, and the lines of it that say what was left out."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-v", *options, *FILES],
        cwd=HERE.parent,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, [line for line in done.stdout.splitlines() if line.startswith("LEFT OUT")]


def programs(folder: Path, **texts: str) -> str:
    """A search path with these shell scripts only."""
    for name, text in texts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_missing_programs_are_named(tmp_path: Path) -> None:
    shown, said = collected("--collect-only", path=programs(tmp_path))
    assert "test_without_bubblewrap" in shown
    assert "test_a_reader_clicks" not in shown
    assert "test_a_hostile_unit" not in shown
    assert re.fullmatch(
        r"LEFT OUT: \d+ tests marked 'browser': there is no program 'chromium', install the package chromium; "
        r"\d+ tests marked 'sandbox': there is no program 'bwrap', install the package bubblewrap",
        *said,
    )


def test_a_program_that_cannot_start_counts_as_missing(tmp_path: Path) -> None:
    refusing = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"
    shown, said = collected("--collect-only", path=programs(tmp_path, bwrap=refusing, chromium="exit 0"))
    assert "test_a_reader_clicks" in shown
    assert "test_a_hostile_unit" not in shown
    assert re.fullmatch(
        r"LEFT OUT: \d+ tests marked 'sandbox': 'bwrap' cannot start here \(bwrap: No permissions to create new "
        r"namespace\), allow user namespaces",
        *said,
    )


def test_nothing_is_left_out_where_all_is_there(tmp_path: Path) -> None:
    shown, said = collected("--collect-only", path=programs(tmp_path, bwrap="exit 0", chromium="exit 0"))
    assert "test_a_reader_clicks" in shown
    assert "test_a_hostile_unit" in shown
    assert not said


@pytest.mark.parametrize("workers", ["0", "1"])
def test_it_is_said_also_where_other_processes_collect(workers: str, tmp_path: Path) -> None:
    """And only of tests that were asked for."""
    shown, said = collected("-n", workers, "-k", "secrets_in or exit_code", path=programs(tmp_path))
    assert "1 passed" in shown
    assert said == ["LEFT OUT: 1 test marked 'sandbox': there is no program 'bwrap', install the package bubblewrap"]
