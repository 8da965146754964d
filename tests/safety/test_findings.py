"""What the fuzzer found once stays found: every kept input is read again, or refused with a typed error of one line."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from fuzz import TARGETS, load

from cosimo.core.errors import CosimoError

FOUND = sorted(path for path in (Path(__file__).parent / "findings").rglob("*") if path.is_file())


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_findings(path: Path) -> None:
    read(path.parent.name, path.read_bytes())


def read(name: str, data: bytes) -> None:
    """Within 5 s of the processor, and with nothing but a typed error of one line."""
    target = load(name)
    begin = time.process_time()
    said = ""
    try:
        target.check(data)
    except CosimoError as error:
        said = str(error)
    assert "\n" not in said
    assert time.process_time() - begin < 5


@pytest.mark.parametrize("name", ["scenario", "structures"])
def test_large_ones(name: str) -> None:
    for data in load(name).large():
        read(name, data)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_reach_what_is_tested(name: str) -> None:
    """A fuzzer that begins with inputs that are refused at the door tests the door."""
    target = load(name)
    accepted = 0
    for seed in target.seeds():
        try:
            target.check(seed)
            accepted += 1
        except CosimoError:
            continue
    assert accepted >= 2
