"""Studies on Dask: a worker that is killed, a run that kills its worker, an existing cluster."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

import cosimo as co
from cosimo.core.errors import ConfigurationError, Interrupted, OutputError
from cosimo.studies import Grid, Outcome, Sample, Study, StudyStanding, Uniform, pools, read_study, run_study, runner
from cosimo.studies.pools import Chunk, Sensible, _Work, local_workers

POINTS = Sample({"kc": Uniform(50.0, 150.0), "step": Uniform(1e-3, 2e-3)}, runs=100, seed=5)
STUDY = Study("two-mass", POINTS, ["max:two.x", "rms:one.f"], stop=5.0)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers, which leave nothing in the folder for temporary files."""
    folder = tmp_path_factory.mktemp("temporary")
    with mock.patch("tempfile.tempdir", str(folder)), local_workers(2) as found:
        yield found
    assert not list(folder.iterdir())


@pytest.fixture(scope="module")
def serial() -> Outcome:
    return run_study(STUDY, workers=1)


@pytest.mark.parametrize("error", [OSError("closed"), TimeoutError(), CancelledError()])
def test_a_scheduler_that_is_gone_is_said(error: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Gone:
        def nthreads(self) -> dict[str, int]:
            return {"worker": 1}

        def cancel(self, *_: Any, **__: Any) -> None:
            raise error

        run = cancel

    monkeypatch.setattr("distributed.as_completed", lambda: iter(()))
    monkeypatch.setattr(_Work, "_submit", lambda *_: Gone().cancel())
    with pytest.raises(OutputError, match=r"the Dask scheduler has disappeared .* --resume") as found:
        run_study(STUDY, client=Gone(), output=tmp_path / "study.parquet")
    assert found.value.exit_code == 7
    assert (tmp_path / "study.parquet.partial").exists()


def test_workers_that_do_not_start_are_started_again() -> None:
    attempts = iter([RuntimeError("lost"), RuntimeError("lost again"), None])

    def make() -> str:
        if (problem := next(attempts)) is not None:
            raise problem
        return "cluster"

    assert pools._started(make) == "cluster"
    attempts = iter([RuntimeError("lost")] * 3)
    with pytest.raises(ConfigurationError, match=r"cannot be started \(lost\)"):
        pools._started(make)


def same(one: Outcome, other: Outcome) -> bool:
    """All columns but the time that runs took."""
    names = [name for name in one.table.schema.names if name != "seconds"]
    return all(one.table.column(name).equals(other.table.column(name)) for name in names)


def test_a_killed_worker_loses_nothing(client: Any, serial: Outcome, tmp_path: Path) -> None:
    """Killed in the middle of the study; what was finished is not made again, what was begun is."""
    path = tmp_path / "study.parquet"
    victim = next(iter(client.run(os.getpid).values()))
    kept: list[list[float]] = []

    def kill(now: StudyStanding) -> None:
        if not kept and now.done >= 15:
            kept.append(read_study(path)["seconds"].tolist())
            os.kill(victim, getattr(signal, "SIGKILL", signal.SIGTERM))  # on Windows the latter ends it at once

    found = run_study(STUDY, client=client, output=path, progress=kill)
    assert kept
    assert len(kept[0]) < len(POINTS.points())
    assert found.complete
    assert found.counts["ran"] == 100
    assert same(found, serial)
    assert same(read_study(path), serial)
    assert set(kept[0]) <= set(found["seconds"].tolist())
    assert any("lost" in note for note in found.notes)


def test_an_interrupted_study_on_workers_is_resumed(client: Any, serial: Outcome, tmp_path: Path) -> None:
    path = tmp_path / "study.csv"

    def stop(now: StudyStanding) -> None:
        if now.done >= 40:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"of 100 runs"):
        run_study(STUDY, client=client, output=path, progress=stop)
    before = len(read_study(path))
    assert 40 <= before < 100
    found = run_study(STUDY, client=client, output=path, resume=True)
    assert found.resumed == before
    assert same(found, serial)


def test_fmus_are_kept_by_every_worker(client: Any, tmp_path: Path) -> None:
    unit = co.Fmu(build(tmp_path, "lag2", defines=("KEEPS_STATE",)))
    gains = np.linspace(1.0, 2.0, 40)
    study = Study(co.System({"lag": unit}), Grid({"lag.gain": gains.tolist()}), ["final"], step=0.1, stop=2.0)
    client.wait_for_workers(2, timeout=300)  # one was killed above
    client.run(setattr, runner, "LONG", np.inf)  # however busy the machine is: after a long run, units are not kept
    found = run_study(study, client=client)
    assert found["final:lag.x"] == pytest.approx(gains * (1 - 0.9**20))
    assert len(found.notes) == 1
    assert "'lag.x' differed" in found.notes[0]
    # And let go of at the end.
    assert not any(client.run(eval, "__import__('cosimo.studies.pools').studies.pools._seats").values())


@pytest.mark.slow
def test_a_run_that_ends_its_process_is_a_row(client: Any, tmp_path: Path) -> None:
    unit = co.Fmu(build(tmp_path, "lag2"))
    crashes = [1e300] * 12
    crashes[5] = 1.0
    study = Study(co.System({"lag": unit}), Grid({"lag.crash_at": crashes}), ["final"], step=0.1, stop=2.0)
    found = run_study(study, client=client)
    wanted = ["ran"] * 12
    wanted[5] = "crashed"
    assert found["status"].tolist() == wanted
    assert "crashed its process" in found["message"][5]
    assert found.table.column("final:lag.x").to_pylist()[5] is None
    good = np.delete(found["final:lag.x"].astype(float), 5)
    assert good == pytest.approx(1 - 0.9**20)


def test_the_address_of_a_scheduler(client: Any) -> None:
    study = Study("two-mass", Grid({"kc": [90.0, 100.0, 110.0]}), ["final:two.x"], stop=1.0)
    address = client.scheduler_info()["address"]
    assert same(run_study(study, scheduler=address), run_study(study, workers=1))


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosimo.studies.pools.CONNECTING", 0.5)
    with pytest.raises(
        ConfigurationError, match=r"no Dask scheduler answers at 'tcp://127\.0\.0\.1:9'.*dask scheduler"
    ):
        run_study(STUDY, scheduler="tcp://127.0.0.1:9")


def test_a_scheduler_that_is_gone_is_not_also_told_by_tracebacks_in_the_log(caplog):
    logger = logging.getLogger("distributed.client")
    before = logger.level
    with pools._silenced():
        logger.error("Traceback (most recent call last)")
    assert (caplog.records, logger.level) == ([], before)
    with caplog.at_level(logging.ERROR):
        logger.error("afterwards")
    assert caplog.messages == ["afterwards"]


def test_systems_that_cannot_travel(client: Any) -> None:
    class Pump:
        inputs, outputs = (), ("flow",)
        flow = 0.0

        def __init__(self, gain: float, beside: object) -> None:
            self.gain = gain

        def step(self, time: float, duration: float) -> None:
            self.flow += duration * self.gain

    system = co.System({"pump": co.PythonUnit(Pump, gain=1.0, beside=threading.Lock())})
    study = Study(system, Grid({"pump.gain": [1.0, 2.0]}), ["final"], step=0.1, stop=1.0)
    with pytest.raises(ConfigurationError, match="cannot be sent to other processes"):
        run_study(study, client=client)
    assert run_study(study, workers=1)["final:pump.flow"] == pytest.approx([1.0, 2.0])


def test_workers_without_the_files_say_so(client: Any, tmp_path: Path) -> None:
    """The file is there when the study is described, and gone when workers want it."""
    path = build(tmp_path, "lag2")
    study = Study(path, Grid({"lag2.gain": [1.0, 2.0]}), ["final"], step=0.1, stop=1.0)

    def remove(now: StudyStanding) -> None:
        path.unlink(missing_ok=True)

    with pytest.raises(ConfigurationError, match=r"lag2\.fmu"):
        run_study(study, client=client, progress=remove)


def test_short_studies_stay_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the first runs, of half a second each, take longer than the time for trying."""
    clock = SimpleNamespace(monotonic=itertools.count(0.0, 0.25).__next__, perf_counter=time.perf_counter)
    monkeypatch.setattr(pools, "time", clock)
    study = Study("two-mass", Grid({"kc": [80.0, 90.0, 100.0, 110.0, 120.0]}), ["final:two.x"], stop=1.0)
    assert run_study(study).workers == 1


def test_long_studies_move_to_workers(client: Any, serial: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made here before is not made again there."""
    monkeypatch.setattr(pools, "TRIAL", 0.02)
    monkeypatch.setattr(pools, "PAYS", 0.0)
    monkeypatch.setattr(pools.Cluster, "_connected", lambda self: _Open(client))
    monkeypatch.setattr(pools, "choose_pool", lambda *given: Sensible(2))
    found = run_study(STUDY)
    assert found.workers == 2
    assert same(found, serial)


class _Open:
    """A client that stays open."""

    def __init__(self, client: Any) -> None:
        self.client = client

    def __enter__(self) -> Any:
        return self.client

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("seconds", "left", "size"),
    [(0.0, 1000, 1), (0.001, 100_000, 1000), (0.001, 800, 100), (0.001, 80, 50), (1.0, 1000, 1)],
)
def test_chunks_have_a_second_of_work(seconds: float, left: int, size: int) -> None:
    work = _Work.__new__(_Work)
    work._left = range(left)  # type: ignore[assignment]
    work._made, work._seconds = (1.0, seconds) if seconds else (0.0, 0.0)
    assert work._size(2) == size
    assert Chunk((1,)).alone is False
