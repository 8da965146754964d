"""Rows on disk: safe while a study goes on, resumed only for the same study, whole at the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import processes
from cosimo.core.errors import ConfigurationError, Interrupted, OutputError
from cosimo.studies import Grid, Outcome, Study, StudyStanding, read_study, run_study
from cosimo.studies.rows import SUFFIXES

STUDY = Study("two-mass", Grid({"kc": np.linspace(50.0, 150.0, 30).tolist(), "step": [1e-3, 5.0]}), ["max"], stop=1.0)
"""Half of its points fail: the step is longer than the run."""


@pytest.fixture(scope="module")
def whole() -> Outcome:
    return run_study(STUDY, workers=1)


def same(one: Outcome, other: Outcome) -> bool:
    """All columns but the time that runs took."""
    names = [name for name in one.table.schema.names if name != "seconds"]
    return one.table.schema.equals(other.table.schema) and all(
        one.table.column(name).equals(other.table.column(name)) for name in names
    )


class Stop:
    """Interrupts a study that has made so many runs."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, now: StudyStanding) -> None:
        if now.done >= self.after:
            raise KeyboardInterrupt


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are written one by one."""
    monkeypatch.setattr("cosimo.studies.pools.SAVED_EVERY", -1.0)  # clocks may stand still for a while


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.one_in(3)
def test_every_format_reads_back(suffix: str, whole: Outcome, tmp_path: Path) -> None:
    path = tmp_path / f"study{suffix}"
    made = run_study(STUDY, workers=1, output=path)
    found = read_study(path)
    assert same(made, whole)
    assert same(found, whole)
    assert found.complete
    assert found.parameters == ("kc", "step")
    assert found["seconds"].tolist() == made["seconds"].tolist()
    assert found.counts == {"ran": 30, "diverged": 0, "failed": 30, "crashed": 0}
    assert [file.name for file in tmp_path.iterdir() if "partial" in file.name or "new" in file.name] == []


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.one_in(3)
def test_an_interrupted_study_is_resumed(suffix: str, whole: Outcome, tmp_path: Path) -> None:
    path = tmp_path / f"study{suffix}"
    with pytest.raises(Interrupted, match=r"after 7 of 60 runs.*--resume"):
        run_study(STUDY, workers=1, output=path, progress=Stop(7))
    assert not path.exists()
    so_far = read_study(path)
    assert so_far["run"].tolist() == list(range(7))
    assert not so_far.complete
    found = run_study(STUDY, workers=1, output=path, resume=True)
    assert found.resumed == 7
    assert same(found, whole)
    # The rows from before were not made again.
    assert found["seconds"][:7].tolist() == so_far["seconds"].tolist()
    again = run_study(STUDY, workers=1, output=path, resume=True)
    assert again.resumed == 60
    assert again["seconds"].tolist() == found["seconds"].tolist()


@pytest.mark.usefixtures("eager")
def test_an_interrupted_study_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "study.parquet"
    with pytest.raises(Interrupted):
        run_study(STUDY, workers=1, output=path, progress=Stop(3))
    with pytest.raises(ConfigurationError, match=r"holds 3 rows .* resume it, or remove"):
        run_study(STUDY, workers=1, output=path)
    assert len(read_study(path)) == 3


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "change",
    [{"stop": 2.0}, {"measures": ["min"]}, {"points": Grid({"kc": [1.0], "step": [1e-3]})}, {"settings": {"m1": 3.0}}],
)
def test_another_study_is_not_resumed(change: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "study.arrow"
    with pytest.raises(Interrupted):
        run_study(STUDY, workers=1, output=path, progress=Stop(3))
    with pytest.raises(ConfigurationError, match="another study"):
        run_study(replace(STUDY, **change), workers=1, output=path, resume=True)  # type: ignore[arg-type]
    assert len(read_study(path)) == 3


@pytest.mark.usefixtures("eager")
def test_a_batch_that_was_cut_off_is_made_again(whole: Outcome, tmp_path: Path) -> None:
    path = tmp_path / "study.parquet"
    with pytest.raises(Interrupted):
        run_study(STUDY, workers=1, output=path, progress=Stop(9))
    stream = tmp_path / "study.parquet.partial"
    content = stream.read_bytes()
    stream.write_bytes(content[: int(0.8 * len(content))])
    kept = len(read_study(path))
    assert 0 < kept < 9
    found = run_study(STUDY, workers=1, output=path, resume=True)
    assert found.resumed == kept
    assert same(found, whole)


@pytest.mark.usefixtures("eager")
def test_rows_that_were_changed_are_found(tmp_path: Path) -> None:
    """A flipped bit of a number or of a text is found on reading, on resuming, and where a study would begin anew."""
    path, stream = tmp_path / "study.parquet", tmp_path / "study.parquet.partial"
    with pytest.raises(Interrupted):
        run_study(STUDY, workers=1, output=path, progress=Stop(9))
    content = stream.read_bytes()
    seconds, status = read_study(path)["seconds"], read_study(path)["status"]
    for value in (np.float64(seconds[3]).tobytes(), str(status[0]).encode()):
        changed = bytearray(content)
        changed[changed.rindex(value)] ^= 1
        stream.write_bytes(changed)
        with pytest.raises(ConfigurationError, match=r"partial' is damaged.*changed or are missing: the checksum"):
            read_study(path)
        for resume in (True, False):
            with pytest.raises(ConfigurationError, match="the checksum differs"):
                run_study(STUDY, workers=1, output=path, resume=resume)
        assert stream.read_bytes() == changed  # nothing was lost
    stream.write_bytes(content)
    assert len(read_study(path)) == 9


def test_files_that_are_no_studies(tmp_path: Path) -> None:
    (tmp_path / "study.parquet").write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match="damaged or not a study file"):
        run_study(STUDY, workers=1, output=tmp_path / "study.parquet", resume=True)
    with pytest.raises(ConfigurationError, match="check the path"):
        read_study(tmp_path / "none.parquet")
    with pytest.raises(ConfigurationError, match=r"written to \.parquet, \.arrow"):
        run_study(STUDY, workers=1, output=tmp_path / "study.mat")
    with pytest.raises(OutputError, match="folder that exists"):
        run_study(STUDY, workers=1, output=tmp_path / "no" / "study.csv")
    with pytest.raises(ConfigurationError, match="name it"):
        run_study(STUDY, workers=1, resume=True)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "cosimo.cli", "sweep", *arguments]


LONG = ["two-mass", "--vary", "kc=50:150:4000", "--stop-time", "10", "--measure", "max:two.x"]


def started(path: Path, *arguments: str) -> subprocess.Popen[str]:
    """A study on the command line that has begun to write rows."""
    going = processes.Popen(
        command(*LONG, "-o", str(path), *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )
    until = time.monotonic() + 120
    while time.monotonic() < until and going.poll() is None:
        try:
            if len(read_study(path)) > 5:
                return going
        except ConfigurationError:
            pass
        time.sleep(0.05)
    going.kill()
    raise AssertionError(going.communicate())


def test_a_killed_study_keeps_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "study.parquet"
    going = started(path, "--workers", "1")
    going.kill()
    going.communicate(timeout=120)
    assert 5 < len(read_study(path)) < 4000


def test_ctrl_c_says_what_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "study.csv"
    going = started(path, "--workers", "1", "--json")
    os.killpg(going.pid, signal.SIGINT)
    out, err = going.communicate(timeout=120)
    assert going.returncode == 130
    assert "which are kept" in err
    assert json.loads(out)["exit_code"] == 130
    assert 5 < len(read_study(path)) < 4000


@pytest.mark.slow
def test_ctrl_c_with_workers(tmp_path: Path) -> None:
    path = tmp_path / "study.parquet"
    going = started(path, "--workers", "2")
    os.killpg(going.pid, signal.SIGINT)
    _, err = going.communicate(timeout=120)
    assert going.returncode == 130
    assert "which are kept" in err
    assert "Traceback" not in err
    assert 5 < len(read_study(path)) < 4000
