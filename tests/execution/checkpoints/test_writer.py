"""Checkpoints on disk while runs begin, go on, are interrupted again, and get into each other's way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from interrupted import Choosy, change, interrupt, require_equal, wait_for_checkpoints, whole

from cosimo import masters
from cosimo.core.errors import Interrupted, OutputError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.checkpoints import read_checkpoint
from cosimo.execution.options import Checkpoint
from cosimo.execution.running import run
from cosimo.formats.results import ResultFile, read_result
from cosimo.formats.resuming import resume
from cosimo.units import PythonUnit, StateSpace


@pytest.fixture(autouse=True)
def _short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.execution.session.BLOCK", 7)


def ring() -> tuple[System, Master]:
    units = {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-2.0, 1.0, 1.0, initial=0.5)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    return system, masters.jacobi(system, 0.01)


def stop_at_once(now: float, _: float) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("suffix", ["csv", "arrows"])
def test_a_resumed_run_that_is_interrupted_before_its_own_first_checkpoint(suffix: str, tmp_path: Path) -> None:
    """The checkpoint it began from is still there, and needs the rows."""
    system, master = ring()
    cut = tmp_path / f"cut.{suffix}"
    interrupt(system, master, cut, at=0.3, stop=1.0)
    change(Path(f"{cut}.checkpoint"), every=3600.0)
    step = read_checkpoint(cut)["step"]
    for _ in range(2):
        with pytest.raises(Interrupted, match=rf"continues from t = {step * 0.01:g}\."):
            resume(cut, system, master, progress=stop_at_once)
        assert read_checkpoint(cut)["step"] == step
    resume(cut, system, master)
    require_equal(read_result(cut), whole(system, master, tmp_path / f"whole.{suffix}", stop=1.0))
    assert not list(tmp_path.glob("cut.*.*artial*")) + list(tmp_path.glob("*.checkpoint*"))


def test_the_checkpoint_that_a_run_goes_on_from_is_the_newest(tmp_path: Path) -> None:
    """Also when it is the one before a damaged one: that must not take its place."""
    system, master = ring()
    cut, newest = tmp_path / "cut.csv", tmp_path / "cut.csv.checkpoint"
    interrupt(system, master, cut, at=0.3, stop=1.0)
    newest.write_bytes(newest.read_bytes()[:-1])
    earlier = Path(f"{newest}.earlier")
    change(earlier, every=3600.0)
    kept = earlier.read_bytes()
    with pytest.raises(Interrupted):
        resume(earlier, system, master, progress=stop_at_once)
    assert newest.read_bytes() == kept
    assert not earlier.exists()
    resume(cut, system, master)
    require_equal(read_result(cut), whole(system, master, tmp_path / "whole.csv", stop=1.0))


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("back_to", [0.02, 0.2])
def test_a_run_that_catches_up_with_its_rows(back_to: float, every: int, tmp_path: Path) -> None:
    """After a discarded step the run begins again; its rows are there already, and stay the only ones."""
    units = {"a": PythonUnit(Choosy, since=0.3), "b": StateSpace(-1.0, 1.0, 1.0, initial=2.0)}
    system = System(units, [("a.y", "b.u1"), ("b.y1", "a.u")])
    master = masters.jacobi(system, 0.01, coupling=Hold(1))
    seen = [0.0]

    def progress(now: float, _: float) -> None:
        wait_for_checkpoints()
        seen.append(now)
        if back_to <= now < max(seen):
            raise KeyboardInterrupt

    cut = ResultFile(tmp_path / "cut.csv", every=every)
    with pytest.raises(Interrupted, match="continues from"):
        run(system, master, stop=0.5, output=cut, checkpoint=Checkpoint(every=0.0), progress=progress)
    saved = read_checkpoint(cut.path)
    assert saved["careful"]
    assert saved["step"] + 1 < saved["position"]["taken"]
    resume(cut.path, system, master)
    theirs = whole(system, master, tmp_path / "whole.csv", stop=0.5, file={"every": every})
    require_equal(read_result(cut.path), theirs)


def test_a_second_run_on_the_same_output_leaves_the_first_alone(tmp_path: Path) -> None:
    system, master = ring()
    output, new = ResultFile(tmp_path / "rows.csv"), tmp_path / "rows.csv.checkpoint.new"
    refused = []

    def progress(now: float, _: float) -> None:
        wait_for_checkpoints()
        if now < 0.5 or refused:
            return
        new.write_bytes(b"the next checkpoint of the first run")
        before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
        with pytest.raises(OutputError, match="another run is recording") as found:
            run(system, master, stop=1.0, output=output, checkpoint=Checkpoint(every=0.0))
        refused.append(found.value)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before

    run(system, master, stop=1.0, output=output, checkpoint=Checkpoint(every=0.0), progress=progress)
    assert refused
    require_equal(read_result(output.path), whole(system, master, tmp_path / "whole.csv", stop=1.0))
