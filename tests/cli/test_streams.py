"""Standard output and standard error that are closed, full, or of few characters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "cosimo.cli", "analyse"]


def test_a_full_standard_output_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*COMMAND, "tank"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 7
    assert ended.stderr == "cosimo: standard output cannot be written: No space left on device.\n"


def test_a_full_standard_error_does_not_change_the_exit_code() -> None:
    with Path("/dev/full").open("w") as full:
        assert subprocess.run([*COMMAND, "nowhere"], stderr=full, check=False).returncode == 2


def test_closed_streams_swallow_what_is_said() -> None:
    close = lambda: (os.close(1), os.close(2))  # noqa: E731
    assert subprocess.run([*COMMAND, "tank"], preexec_fn=close, check=False).returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.one_in(2)
def test_every_encoding_will_do(encoding: str) -> None:
    surroundings = {**os.environ, "PYTHONIOENCODING": encoding}
    ended = subprocess.run([*COMMAND, "two-mass"], capture_output=True, env=surroundings, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    text = ended.stdout.decode(encoding)
    assert ("500 us" if encoding == "ascii" else "500 µs") in text
    assert ("×" if encoding != "ascii" else "2 x the cost") in text
    assert "?" not in text
