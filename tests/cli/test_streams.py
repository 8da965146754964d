"""Standard output and standard error that are closed, full, or of few characters."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_standard_error_does_not_change_the_exit_code(unbuffered: str) -> None:
    surroundings = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run([*COMMAND, "nowhere"], stderr=full, env=surroundings, check=False)
    assert ended.returncode == 2


def test_a_document_of_an_error_that_nobody_reads_does_not_change_the_exit_code() -> None:
    """Neither on a full disk, nor into a pipe whose reader has gone, as that of `head`."""
    reading, writing = os.pipe()
    os.close(reading)
    for stream in (writing, os.open("/dev/full", os.O_WRONLY)):
        ended = subprocess.run(
            [*COMMAND, "nowhere", "--json"], stdout=stream, stderr=subprocess.PIPE, text=True, check=False
        )
        os.close(stream)
        assert ended.returncode == 2
        assert ended.stderr.startswith("cosimo: ")
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["analyse", "tank"], ["analyse", "tank", "--json"], ["problems"], ["--help"]])
def test_a_pipe_that_nobody_reads_ends_a_command_without_a_traceback(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run([*COMMAND[:-1], *words], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    said = "cosimo: standard output cannot be written: nobody reads it any more.\n"
    assert (ended.returncode, ended.stderr) == ((7, said) if sys.platform == "win32" else (1, ""))


def test_closed_streams_swallow_what_is_said() -> None:
    close = lambda: (os.close(1), os.close(2))  # noqa: E731
    assert subprocess.run([*COMMAND, "tank"], preexec_fn=close, check=False).returncode == 0


@pytest.mark.one_in(2)
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


def test_a_document_is_the_same_in_every_encoding(tmp_path: Path) -> None:
    """Also where FMUs might print in between, which have their own way to standard output."""
    subprocess.run([*COMMAND[:-1], "export", "two-mass", "--ssp", "-o", "two→.ssp"], cwd=tmp_path, check=True)
    said = []
    for encoding in ("utf-8", "cp1252"):
        surroundings = {**os.environ, "PYTHONIOENCODING": encoding}
        words = ["run", "two→.ssp", "--step-size", "1ms", "--stop-time", "0.01", "-o", "a→.csv", "--json"]
        done = subprocess.run([*COMMAND[:-1], *words], cwd=tmp_path, capture_output=True, env=surroundings, check=True)
        said.append(json.loads(done.stdout.decode(encoding)))
    assert said[0]["output_file"] == said[1]["output_file"]
    assert said[1]["output_file"].endswith("a→.csv")


def test_what_a_unit_wrote_is_there_after_the_end(tmp_path: Path) -> None:
    """Commands end without taking Python apart: files that a unit never closes, also in a cycle, are written before."""
    unit = """
class Scribe:
    inputs, outputs = {}, ("x",)
    def __init__(self):
        self.x, self.me, self.file = 0.0, self, open("written.txt", "w")
    def step(self, now, duration):
        self.file.write("step\\n")
"""
    (tmp_path / "scribe.py").write_text(unit)
    table = '[units.one]\nkind = "python"\nclass = "scribe.py:Scribe"\n'
    (tmp_path / "s.toml").write_text(f"step-size = 0.1\nstop-time = 1.0\n{table}")
    subprocess.run([*COMMAND[:-1], "run", "s.toml", "-o", "rows.csv"], cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "written.txt").read_text() == 10 * "step\n"
