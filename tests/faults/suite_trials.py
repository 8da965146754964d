"""One trial of a fault: the files are made, the command runs in a process of its own, the common contract is judged.

A trial returns what the user saw, and raises AssertionError where the contract is broken.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import faulty
from contract import Disturb, Outcome, command, require_contract

from cosimo.core.result import Result
from cosimo.formats.results import read_result

IN_PROCESS, ISOLATED, SANDBOX, AUTO = "in-process", "isolated", "sandbox", "auto"
OPTIONS = {IN_PROCESS: ("--trust-units",), ISOLATED: ("--isolate",), SANDBOX: ("--sandbox",), AUTO: ()}
STEP, STOP = 0.01, 2.0
FLUSH = 1.25
"""Seconds between two flushes, and between two returns of the kernel."""
DEFAULT_LIMIT = 2.0
"""Seconds from the fault to the end of the command."""


@dataclass(frozen=True)
class Seen:
    """What one trial showed: the line that the user gets, and the seconds from the fault to the end of the command.

    `code` is the exit code, where the trial leaves judging it to the table.
    """

    line: str
    seconds: float | None = None
    code: int | None = None


Trial = Callable[[Path, str, int], Seen]
"""Of a folder, the mode, and the number of the trial."""


@dataclass(frozen=True)
class Fault:
    """A unit `sick` with a fault beside a `sound` one, and what the user must get.

    `rows` are those that must be kept, `longest` and `shortest` the seconds from the fault to the end of the command;
    without `moment`, the fault is no event that the unit could note.
    Where the unit takes the master with it, `sound` is slow, so that rows are flushed before the fault.
    """

    name: str
    code: int
    says: tuple[str, ...] = ()
    rows: int | None = 31
    options: tuple[str, ...] = ()
    amount: float = 0.0
    early: bool = False
    takes_master: bool = False
    changes: Mapping[str, str] = field(default_factory=dict)
    shortest: float = 0.0
    longest: float = DEFAULT_LIMIT
    moment: bool = True
    check: Callable[[Outcome, list[str]], None] = lambda outcome, stamps: None

    def __call__(self, folder: Path, mode: str, number: int) -> Seen:
        slow = self.takes_master and mode == IN_PROCESS
        at = 2.0 if slow else 0.3
        write(folder, self.name, amount=self.amount, at=at, early=self.early, changes=self.changes, slow=slow)
        options = ("--stop-time", "4") if slow else ()
        outcome, end, stamps = observe(folder, "--output-file", "rows.csv", *OPTIONS[mode], *options, *self.options)
        require_contract(outcome, code=self.code, names=self.says)
        if self.code in (3, 4, 5, 6):
            require_fields(outcome)
        if self.code in (4, 5):  # only there is it the master's process that the unit took along
            assert ("; with --isolate sick every completed row" in outcome.line) == (mode == IN_PROCESS), outcome.line
        self.check(outcome, [word for word, _ in stamps])
        if self.rows is not None:
            least = round(at / STEP) - round(FLUSH / STEP) if slow else self.rows
            require_kept(folder / "rows.csv", least, exactly=not slow)
        seconds = seconds_since(self.name, stamps, end, self.shortest, self.longest) if self.moment else None
        return Seen(outcome.line.removeprefix("cosimo: "), seconds)


def write(folder: Path, fault: str, *, at: float = 0.3, amount: float = 0.0, early: bool = False, **more: Any) -> None:
    """The scenario `s.toml` with its two FMUs; `text` is the one that some faults want."""
    changes = more.get("changes")
    faulty.build(folder / "sick.fmu", early=fault if early else "", changes=changes)
    faulty.build(folder / "sound.fmu")
    sound = 'parameters = { fault = "slow", amount = 0.01 }\n' if more.get("slow") else ""
    given = f'fault = "{"" if early else fault}", fault_time = {at}, amount = {amount}, text = "{more.get("text", "")}"'
    (folder / "s.toml").write_text(
        f'step-size = {STEP}\nstop-time = {STOP}\n[units.sick]\nfmu = "sick.fmu"\nparameters = {{ {given} }}\n'
        f'[units.sound]\nfmu = "sound.fmu"\n{sound}',
        encoding="utf-8",
    )


def observe(
    folder: Path,
    *options: str,
    verb: tuple[str, ...] = ("run", "s.toml"),
    disturb: Disturb | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Outcome, float, list[tuple[str, float]]]:
    """Run the scenario: the outcome, when the command ended, and the unit's own notes of what happened when."""
    stamps = folder / "stamps"
    stamps.unlink(missing_ok=True)
    begin = time.monotonic()
    outcome = command(
        folder, *verb, "--json", *options, disturb=disturb,
        environment={"FAULT_STAMP": str(stamps), **(environment or {})},
    )  # fmt: skip
    lines = stamps.read_text().splitlines() if stamps.exists() else []
    return outcome, begin + outcome.wall, [(line.split()[0], float(line.split()[1])) for line in lines]


def seconds_since(
    word: str, stamps: list[tuple[str, float]], end: float, shortest: float = 0.0, longest: float = DEFAULT_LIMIT
) -> float:
    """From the last fault of this name to the end of the command, on the wall; it must be there, and not long ago."""
    moments = [at for noted, at in stamps if noted == word]
    assert moments, f"the unit did not note when '{word}' happened"
    seconds = end - moments[-1]
    assert shortest <= seconds <= longest, f"reported {seconds:.2f} s after the fault"
    return seconds


def require_fields(outcome: Outcome) -> None:
    """The line has its six fields, and the JSON document says the same."""
    fields, document = outcome.line.removeprefix("cosimo: ").split(" · "), outcome.document
    assert len(fields) == 6, outcome.line
    for place, name in ((0, "unit"), (1, "phase"), (3, "variable"), (4, "cause"), (5, "log")):
        assert fields[place] == ("–" if document[name] is None else document[name].rstrip(".")), (fields, document)
    assert fields[2] == f"t = {document['time']:g} s", (fields, document)


def require_kept(path: Path, rows: int, *, exactly: bool = True) -> None:
    """So many completed rows are there, marked incomplete, at the times they belong to."""
    found = read_result(path)
    assert not found.complete
    assert len(found) == rows if exactly else len(found) >= rows, f"{len(found)} rows, not {rows}"
    assert np.array_equal(found.time, STEP * np.arange(len(found)))


def require_completed(folder: Path, *options: str, **more: Any) -> tuple[Outcome, Result]:
    """A run that goes to its end, and its rows."""
    outcome, *_ = observe(folder, "--output-file", "rows.csv", *options, **more)
    assert outcome.code == 0, outcome.errors
    assert "Traceback" not in outcome.errors
    assert outcome.document["exit_code" if "exit_code" in outcome.document else "steps"] is not None
    assert not outcome.orphans, outcome.orphans
    assert not outcome.left, outcome.left
    rows = read_result(folder / "rows.csv")
    assert rows.complete
    return outcome, rows


def borrowed(test: Callable[..., None], *arguments: Any) -> Seen:
    """A test as the judge; the line is that of the last command it ran."""
    module, outcomes = sys.modules[test.__module__], []

    def recording(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            outcomes.append(original(*given, **named))
            return outcomes[-1]

        return call

    with ExitStack() as stack:
        for name in ("command", "cosimo"):
            if hasattr(module, name):
                stack.enter_context(mock.patch.object(module, name, recording(getattr(module, name))))
        test(*arguments)
    errors = [getattr(outcome, "errors", None) or getattr(outcome, "stderr", "") for outcome in outcomes]
    said = [line for text in errors for line in text.splitlines() if line.startswith("cosimo: ")]
    took = [outcome.took for outcome in outcomes if getattr(outcome, "took", None) is not None]
    codes = [getattr(outcome, "code", getattr(outcome, "returncode", None)) for outcome in outcomes]
    line = said[-1].removeprefix("cosimo: ") if said else ""
    return Seen(line, max(took, default=None), codes[-1] if codes else None)


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """A folder to work in, beside one for temporary files; afterwards nothing is outside the first."""
    work, temporary = folder / "work", folder / "temporary files"
    work.mkdir()
    temporary.mkdir()
    yield work
    assert sorted(path.name for path in folder.iterdir()) == ["temporary files", "work"]
    assert not list(temporary.iterdir())
