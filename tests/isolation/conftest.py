"""What tests of isolated units share: the faulty FMU, and the certainty that no worker stays behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "faults"))
sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
import faulty
from isolation_processes import children


@pytest.fixture(autouse=True)
def _no_workers_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    yield
    until = time.monotonic() + 60.0
    while children() and time.monotonic() < until:
        time.sleep(0.02)
    assert not children()
    assert not list(folder.glob("cosimo-fmu-*"))


@pytest.fixture(scope="session")
def fmu(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The FMU with switchable faults."""
    return faulty.build(tmp_path_factory.mktemp("faulty") / "faulty.fmu")
