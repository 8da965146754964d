"""The clock that counts what this process does; guards are tested in tests/kernel/test_guard.py and tests/faults."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from cosimo.core.guarding import own_clock

RIVALS = 3


def work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells who had the processors")
def test_what_other_processes_do_does_not_count() -> None:
    """Four processes share a processor: each waits three times as long as it computes."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        with ExitStack() as rivals:
            for _ in range(RIVALS):  # on the same processor as their parent
                rival = rivals.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
                rivals.callback(rival.kill)
            wall, own = time.perf_counter(), own_clock()
            work(0.15)
            wall, own = time.perf_counter() - wall, own_clock() - own
    finally:
        os.sched_setaffinity(0, before)
    assert 0.14 < own < 0.2
    assert wall > 1.5 * own


def test_what_is_waited_for_counts() -> None:
    begin, end = own_clock(), time.perf_counter() + 0.05
    while time.perf_counter() < end:  # a pause may end early
        time.sleep(0.01)
    assert own_clock() - begin > 0.04


def test_elsewhere_it_is_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: object, **__: object) -> None:
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", nowhere)
    monkeypatch.setattr(time, "perf_counter", lambda: 3.5)
    assert own_clock() == 3.5
