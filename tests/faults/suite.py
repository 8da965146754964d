"""The fault suite: every row of the table again and again, judged by the common contract, and the page about it.

    make faults                     20 trials of each row, then docs/reliability.md
    FAULTS=3 make faults            fewer of them
    python -m tests.faults.suite hang "exit("      only rows with these words, and no page

All rows are tried once, then all again, so that the page can be written after each round. Where FAULT_TABLE names a
file, trials are kept there, those that are there already count, and a suite that was stopped goes on.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import contract
from suite_rows import Row, table

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
ROUNDS = 20
INTRO = """# Reliability

What happens when a unit crashes, hangs, returns nonsense or attacks the system, when the disk is full, or when
somebody kills the run? This page is a measurement: `make faults` provokes every fault below 20 times (`FAULTS=3 make
faults`: three times) and writes the table. `make test` includes its quick part. The table shows {rounds} trials per
row unless the row says otherwise.

## What is promised

- **One line** on standard error, `unit · phase · simulated time · variable · cause · log path`, with the same fields
  in the document of `--json`. A field that does not apply is "–".
- **The rows** up to the last completed macro step can be read as usual and are marked incomplete. If a unit in the
  master's own process takes that process down, the rows that were flushed remain: at most about the last second is
  lost.
- **The exit code**: 2 wrong input, 3 a unit returned an error, 4 a unit crashed, 5 a unit exceeded its time limit, 6
  a non-finite value, 7 results could not be written, 8 an input was refused as unsafe, 129, 130 and 143 interrupted.
- **Nothing is left behind**: no process and no temporary folder. What a killed process could not remove, the next
  start removes.
- **A prompt end**: within 2 s of the fault; within 1 s of a time limit; within 1 s of Ctrl-C, termination or hang-up.
  A cluster's scheduler counts as lost after 10 s without an answer, a host after its `patience` (3 s in these trials).

## What is not promised for a unit in the master's process

An FMU that fails its first trial is isolated ([My FMU crashes](isolation.md)). Faults that occur later, faults under
`--trust-units`, and faults of a unit written in Python happen in the master's process.

A unit that is not isolated shares the whole process, and cosimo notices what it does there only if it calls the C
library. `_exit`, `quick_exit`, `exec`, signal handlers and `fork` are noticed if the libraries in the FMU's archive
call them by name. Direct system calls, the same calls made by system libraries on behalf of the FMU, SIGKILL, and
daemons that the unit leaves behind are not noticed.

In a unit written in Python, `sys.exit`, `fork` and handlers set by `signal.signal` are noticed. `os._exit` and
`os.exec…` are not: the command ends with the exit code that the unit chose, and the flushed rows are in `.partial`.
`--isolate`, which is for FMUs, has none of these limits, with one exception: a daemon survives if its unit kills its
own worker with SIGKILL.

## How it is measured

Each trial is one `cosimo` command in its own process and folder. One unit is an FMU written for this purpose
(`tests/faults/faulty.c`), which has all the faults and records when one happens; the other unit is sound. A trial
counts as reached if it keeps all the promises and does what its row says. *Longest report* is the wall-clock time
from the fault to the end of the command, the longest of all trials; it is empty if the fault has no single moment or
the run continues to its end. After a kill −9 no process is left to remove the extracted FMU; the trial checks that
the next process which extracts one does it. *In-process* units run in the master's process, *isolated* ones in their
own ([My FMU crashes](isolation.md)), those in a *sandbox* also without network and files ([Security](security.md)).
In-process rows are measured with `--trust-units`; *auto* is what happens without an option: a first trial ([My FMU
crashes](isolation.md#the-first-trial)).

In rows on *two hosts* the unit lives with a worker in another network namespace ([How do I run units on other
machines?](hosts.md)); a trial also checks that no process and no temporary file is left there.

Measured on {machine}; load while measuring {load}. {summary}

## The table

| fault | mode | exit code | what the user gets | reached | longest report |
| --- | --- | --- | --- | --- | --- |
"""


def main(words: list[str]) -> int:
    """Try all rows; 0 when every trial was reached."""
    # Started in the background or by nohup, this ignores Ctrl-C or hang-ups, and so would every command that it starts.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    contract.orphans_after = 1.0
    rounds = int(os.environ.get("FAULTS", str(ROUNDS)))
    rows = [row for row in table() if not words or any(word in f"{row.fault} {row.mode}" for word in words)]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        os.environ.setdefault("FAULT_TABLE", str(Path(folder, "trials.jsonl")))
        for number in range(rounds):
            for row in rows:
                _try(row, number, rounds)
            if not words:
                PAGE.write_text(page(rows, kept()), encoding="utf-8")
        trials = kept()
    lost = [trial for row in rows for trial in trials[row.fault, row.mode] if not trial["reached"]]
    print(f"{len(lost)} trials were not reached" if lost else "every trial was reached")
    return int(bool(lost))


def _try(row: Row, number: int, rounds: int) -> None:
    """The trials of one row in one round: one, or its share of as many as it wants."""
    total = row.times or rounds
    for trial in range(total * number // rounds, total * (number + 1) // rounds):
        if any(done["trial"] == trial for done in kept()[row.fault, row.mode]):
            continue
        begin, line, seconds, reason = time.monotonic(), "", None, ""
        with tempfile.TemporaryDirectory(prefix="fault-") as folder:
            try:
                seen = row.trial(Path(folder), row.mode, trial)
                line, seconds = seen.line, seen.seconds
                assert seen.code in (None, row.code), f"exit code {seen.code}"
            except Exception as error:  # whatever it is, the row is not reached, and the next one is tried
                reason = " ".join((str(error) or traceback.format_exc()).split())
        figures: dict[str, Any] = {"mode": row.mode, "trial": trial, "reached": not reason, "line": line}
        contract.note(row.fault, **figures, seconds=seconds, reason=reason, load=os.getloadavg()[0])
        told = f"not reached: {reason[:300]}" if reason else line[:100]
        print(f"{number + 1}/{rounds} {row.fault} ({row.mode}) {time.monotonic() - begin:.1f} s: {told}", flush=True)


def kept() -> Mapping[tuple[str, str], list[dict[str, Any]]]:
    """Trials so far, by fault and mode."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    path = Path(os.environ["FAULT_TABLE"])
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        if "trial" in (figures := json.loads(line)):
            found[figures["row"], figures["mode"]].append(figures)
    return found


def page(rows: Iterable[Row], trials: Mapping[tuple[str, str], list[dict[str, Any]]]) -> str:
    """The page with the table."""
    lines, loads, tried, reached, most = [], [0.0], 0, 0, 0
    for row in rows:
        done = trials[row.fault, row.mode]
        good = [trial for trial in done if trial["reached"]]
        loads += [trial["load"] for trial in done if "load" in trial]
        tried, reached = tried + len(done), reached + len(good)
        most = most if row.times else max(most, len(done))
        seconds = [trial["seconds"] for trial in good if trial["seconds"] is not None]
        longest = f"{max(seconds):.2f} s" if seconds else ""
        shown = _cell(good[-1]["line"], 400) if good else ""
        if len(good) < len(done):
            why = _cell(next(trial["reason"] for trial in done if not trial["reached"]), 240)
            shown += f"{'; ' if shown else ''}**not reached**: {why}"
        lines.append(f"| {row.fault} | {row.mode} | {row.code} | {shown} | {len(good)} of {len(done)} | {longest} |")
    summary = f"Of {tried} trials, {reached} were reached."
    machine = (
        f"Linux {platform.release().split('-')[0]}, {os.cpu_count()} processors, Python {platform.python_version()}"
    )
    load = f"up to {max(loads):.1f}"
    return INTRO.format(rounds=most, machine=machine, load=load, summary=summary) + "\n".join(lines) + "\n"


def _cell(text: str, most: int) -> str:
    """As a cell of a table: one line, nothing that has a meaning there."""
    text = text if len(text) <= most else text[: most - 1] + "…"
    for sign in "\\|<>*_[]":
        text = text.replace(sign, f"\\{sign}")
    return text


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
