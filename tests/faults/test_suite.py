"""The fault suite itself: its table, and the page that it writes; `make faults` runs it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import suite
from contract import Outcome, require_contract
from suite_rows import Row, table
from suite_trials import Seen, seconds_since


def test_every_row_is_there_once() -> None:
    names = [(row.fault, row.mode) for row in table()]
    assert len(set(names)) == len(names)
    assert {mode for _, mode in names} == {"in-process", "isolated", "sandbox", "auto", "two hosts", "–"}


def test_trials_become_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULT_TABLE", str(tmp_path / "trials.jsonl"))

    def sometimes(folder: Path, mode: str, number: int) -> Seen:
        assert number != 1, "exit code 0, | not 4"
        return Seen("sick · doStep · a*b", 0.25 * number)

    rows = [Row("crash", "isolated", sometimes, 4), Row("kill", "–", lambda *_: Seen("kept"), times=5)]
    for _ in range(2):  # what is there already is not tried again
        for number in range(3):
            for row in rows:
                suite._try(row, number, 3)
    assert len((tmp_path / "trials.jsonl").read_text().splitlines()) == 8
    assert json.loads((tmp_path / "trials.jsonl").read_text().splitlines()[0])["reached"]
    text = suite.page(rows, suite.kept())
    assert r"| crash | isolated | 4 | sick · doStep · a\*b; **not reached**: exit code 0, \| not 4" in text
    assert "| 2 of 3 | 0.50 s |" in text
    assert "| kill | – | 0 | kept | 5 of 5 |  |" in text
    assert "Of 8 trials, 7 were reached." in text


def test_a_fault_must_be_noted_and_reported_in_time() -> None:
    stamps = [("hang", 1.0), ("after-fatal", 2.0), ("hang", 4.0)]
    assert seconds_since("hang", stamps, 5.5) == 1.5
    for word, end, longest in (("segfault", 5.5, 2.0), ("hang", 6.5, 2.0), ("hang", 4.5, 0.25)):
        with pytest.raises(AssertionError, match=r"did not note|reported"):
            seconds_since(word, stamps, end, 0.0, longest)
    with pytest.raises(AssertionError, match="reported"):
        seconds_since("hang", stamps, 5.5, 3.0, 4.0)


def test_the_clock_on_the_wall_counts() -> None:
    late = Outcome(("run",), 3, "", "cosimo: late", wall=9.0, took=2.5, orphans=(), left=())
    require_contract(late, code=3, within=3.0)
    with pytest.raises(AssertionError, match=r"reported after 2\.50 s"):
        require_contract(late, code=3, within=2.0)
