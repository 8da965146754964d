"""The table of faults: what goes wrong, where, and the trial that judges what the user gets."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import suite_cases as case
import test_long_runs
import test_outputs
import test_time_grid
from suite_trials import IN_PROCESS, ISOLATED, SANDBOX, Fault, Seen, Trial, borrowed
from tests.safety import test_faults as files

BOTH = (IN_PROCESS, ISOLATED)
NOWHERE = ("–",)
CANNOT_RESTORE = {' canGetAndSetFMUstate="true" canSerializeFMUstate="true"': ""}


@dataclass(frozen=True)
class Row:
    """A line of the table; `times` where it is not repeated as often as the others."""

    fault: str
    mode: str
    trial: Trial
    times: int | None = None


def crash(name: str, phase: str, cause: str, *, rows: int = 31, early: bool = False) -> Fault:
    """Exit code 4, with the phase and the signal; all rows are kept unless the master is taken along."""
    taken = phase == "doStep"
    return Fault(name, 4, ("sick", phase, cause), rows=rows, early=early, takes_master=taken)


def by_test(function: Callable[..., None], *arguments: Any, line: str = "", folder: bool = True) -> Trial:
    """A test of the suite as the trial; `line` where no command says one."""

    def trial(place: Path, mode: str, number: int) -> Seen:
        seen = borrowed(function, *arguments, *([place] if folder else []))
        return Seen(line or seen.line, seen.seconds)

    return trial


def broken(name: str) -> Trial:
    """An FMU that is broken in one of the ways that the tests of input safety know."""
    return case.in_workplace(lambda work: borrowed(files.test_broken_fmus, work, name))


HANG = Fault("hang", 5, ("sick", "t = 0.3 s", "limit of 3 s"), options=("--unit-timeout", "3"), shortest=3, longest=4)
UNITS: tuple[tuple[str, tuple[str, ...], Trial], ...] = (
    ("segmentation fault in doStep", BOTH, crash("segfault", "doStep", "SIGSEGV")),
    ("abort in doStep", BOTH, crash("abort", "doStep", "SIGABRT")),
    ("stack overflow in doStep", BOTH, crash("stack_overflow", "doStep", "crashed")),
    ("crash in instantiate", BOTH, crash("crash_instantiate", "instantiate", "SIGSEGV", rows=0, early=True)),
    ("crash in initialise", BOTH, crash("crash_initialise", "initialise", "SIGSEGV", rows=0)),
    ("crash in terminate", BOTH, crash("crash_terminate", "terminate", "SIGSEGV", rows=201)),
    ("crash in free", BOTH, crash("crash_free", "free", "SIGSEGV", rows=201)),
    ("`exit(0)` in doStep", BOTH, crash("exit", "doStep", "the unit ended the process")),
    ("hang in doStep, limit 3 s", BOTH, HANG),
    ("slow but alive, 1,000 steps", BOTH, case.slow),
    ("error status", BOTH, Fault("error", 3, ("sick", "no fuel at t = 0.3"))),
    ("fatal status", BOTH, Fault("fatal", 3, ("sick", "engine lost at t = 0.3"), check=case.never_called_again)),
    ("illegal status", BOTH, Fault("illegal", 3, ("sick", "42"))),
    (
        "discarded step, states cannot be restored",
        BOTH,
        Fault("discard", 3, ("sick", "t = 0.3 s"), changes=CANNOT_RESTORE, check=case.ten_retries),
    ),
    ("step that is always discarded", BOTH, Fault("discard", 3, ("sick", "t = 0.3 s"), check=case.ten_retries)),
    ("discarded step, states can be restored", BOTH, case.rolled_back),
    (
        "state restored wrongly",
        BOTH,
        Fault(
            "wrong_restore",
            2,
            ("unit 'sick' does not restore its state",),
            rows=None,
            options=("--master", "iterative", "--sweeps", "2"),
        ),
    ),
    ("NaN", BOTH, Fault("nan", 6, ("sick", "y became nan at t = 0.31"))),
    ("infinity", BOTH, Fault("infinity", 6, ("sick", "y became inf at t = 0.31"))),
    ("NaN with `--allow-non-finite`", BOTH, case.goes_on),
    ("value outside its declared range", BOTH, case.out_of_range),
    ("leak of 1 MB per step, limit 100 MB", (ISOLATED,), case.leaked),
    ("20,000 log lines per step", BOTH, case.flooded),
    ("logger called from a foreign thread", BOTH, case.compared("log_thread")),
    ("unit prints on standard output", BOTH, case.compared("print")),
    ("unit changes the locale", BOTH, case.compared("locale")),
    ("unit changes the working directory", BOTH, case.compared("folder")),
    ("unit changes the rounding mode (rows of the other unit)", BOTH, case.compared("rounding", own_changes=True)),
)
OTHERS: tuple[tuple[str, tuple[str, ...], Trial], ...] = (
    ("Ctrl-C (SIGINT)", BOTH, case.signalled(signal.SIGINT, 130)),
    ("termination (SIGTERM)", BOTH, case.signalled(signal.SIGTERM, 143)),
    ("disk full (Parquet)", NOWHERE, by_test(test_outputs.test_a_full_disk, "parquet")),
    ("disk full (CSV)", NOWHERE, by_test(test_outputs.test_a_full_disk, "csv")),
    ("output folder missing", NOWHERE, by_test(test_outputs.test_a_missing_folder)),
    ("output folder read-only", NOWHERE, by_test(test_outputs.test_a_read_only_folder)),
    ("path with spaces", BOTH, case.in_folder("with spaces and 'quotes'")),
    ("path with umlauts", BOTH, case.in_folder("Größe µ")),
    ("path with CJK characters", BOTH, case.in_folder("二質点 模型")),
    (
        "two units with equal symbol names",
        (IN_PROCESS,),
        case.in_workplace(lambda work: borrowed(files.test_two_units_with_equal_symbols, work)),
    ),
    (
        "single-instance unit used twice",
        (ISOLATED,),
        case.in_workplace(lambda work: borrowed(files.test_a_single_instance_unit_used_twice, work)),
    ),
    (f"archive attacks, {len(case.attacks.ATTACKS)} kinds (line of the last)", NOWHERE, case.archives),
    *((f"broken FMU: {name}", NOWHERE, broken(name)) for name in files.FAULTS),
    (
        "broken XML or TOML",
        NOWHERE,
        case.in_workplace(lambda work: borrowed(files.test_a_broken_description_is_named_with_its_line, work)),
    ),
    ("hostile unit: network", (SANDBOX,), case.hostile("network", "tried to open a network connection")),
    ("hostile unit: writes home", (SANDBOX,), case.hostile("write_home", "tried to write '{secret}'")),
    ("hostile unit: reads keys", (SANDBOX,), case.hostile("read_key", "tried to read '{secret}'")),
    ("hostile unit: fork bomb", (SANDBOX,), case.hostile("fork_bomb", "tried to start a process")),
    ("start of a sandbox, at most 10 ms", (SANDBOX,), case.started),
)
GRIDS = (
    (
        "h = 0.1 for 10⁶ steps",
        test_time_grid.test_a_million_steps_of_a_tenth,
        (),
        "1,000,001 rows, each stamp within 1 ulp of k·h, the end exact",
    ),
    (
        "h = 1/60 for an hour",
        test_time_grid.test_an_hour_in_sixtieths_of_a_second,
        (),
        "216,001 rows, each stamp within 1 ulp of k·h, the end exact",
    ),
    (
        "multirate 0.3 and 0.1 to 1.0",
        test_time_grid.test_multirate_that_does_not_fit,
        ("kernel",),
        "4 rows; warning: 1 is not a whole number of macro steps of 0.3 away",
    ),
)


def table() -> Iterator[Row]:
    """All rows, in the order of the page."""
    for title, modes, trial in UNITS:
        yield from (Row(title, mode, trial) for mode in modes)
    for title, function, arguments, line in GRIDS:
        yield Row(title, "–", by_test(function, *arguments, line=line, folder=False))
    steps = "memory grows by at most 5 MB, open files stay"
    yield Row("10⁷ steps", IN_PROCESS, by_test(test_long_runs.test_ten_million_steps, None, line=steps))
    yield from (Row("kill −9 of the master at a random time", mode, case.killed, times=30) for mode in BOTH)
    for title, modes, trial in OTHERS:
        yield from (Row(title, mode, trial) for mode in modes)
