"""The table of faults: what goes wrong, where, and the trial that judges what the user gets."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[2]))
import suite_cases as case
import suite_hosts as far
import test_long_runs
import test_outputs
import test_process
import test_time_grid
from suite_trials import AUTO, IN_PROCESS, ISOLATED, SANDBOX, Fault, Seen, Trial, borrowed
from tests.cli import test_streams
from tests.core import test_arguments
from tests.safety import test_faults as files
from tests.units.fmi import test_peculiar

BOTH = (IN_PROCESS, ISOLATED)
NOWHERE = ("–",)
SAME = "both correct, to the last bit"
DEAF = test_process.test_a_unit_in_python_does_not_take_the_signals
CANNOT_RESTORE = {' canGetAndSetFMUstate="true" canSerializeFMUstate="true"': ""}


@dataclass(frozen=True)
class Row:
    """A line of the table with the exit code it wants; `times` where it is not repeated as often as the others."""

    fault: str
    mode: str
    trial: Trial
    code: int = 0
    times: int | None = None


def rows(fault: str, modes: tuple[str, ...], trial: Trial, code: int | None = None) -> Iterator[Row]:
    """One row for each mode; the exit code is the fault's own unless another is given."""
    expected = getattr(trial, "code", 0) if code is None else code
    return (Row(fault, mode, trial, expected) for mode in modes)


def crash(name: str, phase: str, cause: str, *, rows: int = 31, early: bool = False) -> Fault:
    """Exit code 4, with the phase and the signal; all rows are kept unless the master is taken along."""
    taken = phase == "doStep"
    return Fault(name, 4, ("sick", phase, cause), rows=rows, early=early, takes_master=taken)


def by_test(function: Callable[..., None], *arguments: Any, line: str = "", folder: bool = True) -> Trial:
    """A test of the suite as the trial; `line` where no command says one."""

    def trial(place: Path, mode: str, number: int) -> Seen:
        seen = borrowed(function, *arguments, *([place] if folder else []))
        return replace(seen, line=line or seen.line)

    return trial


def broken(name: str) -> Trial:
    """An FMU that is broken in one of the ways that the tests of input safety know."""
    return case.in_workplace(lambda work: borrowed(files.test_broken_fmus, work, name))


HANG = Fault("hang", 5, ("sick", "t = 0.3 s", "limit of 3 s"), options=("--unit-timeout", "3"), shortest=3, longest=4)
UNITS: tuple[Row, ...] = (
    *rows("segmentation fault in doStep", BOTH, crash("segfault", "doStep", "SIGSEGV")),
    *rows("abort in doStep", BOTH, crash("abort", "doStep", "SIGABRT")),
    *rows("stack overflow in doStep", BOTH, crash("stack_overflow", "doStep", "crashed")),
    *rows("crash in instantiate", BOTH, crash("crash_instantiate", "instantiate", "SIGSEGV", rows=0, early=True)),
    *rows("crash in initialise", BOTH, crash("crash_initialise", "initialise", "SIGSEGV", rows=0)),
    *rows("crash in terminate", BOTH, crash("crash_terminate", "terminate", "SIGSEGV", rows=201)),
    *rows("crash in free", BOTH, crash("crash_free", "free", "SIGSEGV", rows=201)),
    *rows("crash in get", BOTH, Fault("crash_get", 4, ("sick", "· get ·", "SIGSEGV"), rows=30, takes_master=True)),
    *(
        row
        for mode in BOTH
        for row in rows("crash in set", (mode,), by_test(test_process.test_the_phase_of_a_crash, "set", mode), 4)
    ),
    *rows("crash in the first trial of an FMU", (AUTO,), case.crashes_at_first, 4),
    *rows("crash after the first trial of an FMU", (AUTO,), case.crashes_later, 4),
    *rows("segmentation fault of a unit in an .ssp package", (IN_PROCESS,), case.packed, 4),
    *rows("`exit(0)` in doStep", BOTH, crash("exit", "doStep", "the unit ended the process")),
    *rows("`exit(0)` in doStep, `cosimo analyse`", (IN_PROCESS,), case.analysed, 4),
    *rows("`_exit(0)` in doStep", BOTH, crash("exit_at_once", "doStep", "the unit ended the process")),
    *rows("`quick_exit(0)` in doStep", BOTH, crash("quick_exit", "doStep", "the unit ended the process")),
    *rows("`exec` in doStep", (IN_PROCESS,), crash("exec", "doStep", "replace the process by 'true'")),
    *rows("`exec` in doStep", (ISOLATED,), crash("exec", "doStep", "the unit ended the process")),
    *rows("`sys.exit(0)` in a unit in Python", (IN_PROCESS,), case.quits, 4),
    *rows("parameter `kind` of a unit in Python", (IN_PROCESS,), case.named("kind")),
    *rows("crash that the unit handles itself", BOTH, crash("crash_handler", "doStep", "SIGSEGV")),
    *rows("fork, and both come back", BOTH, case.copied),
    *rows("thread that lives on when the library is unloaded", BOTH, case.threaded),
    *rows(
        "unit writes over the memory that it shares",
        (ISOLATED,),
        Fault("overwrite", 4, ("sick", "doStep", "overwrote the memory"), amount=255.0),
    ),
    *rows("daemon, and the unit ends as it should", (ISOLATED,), case.with_daemon(crash=False)),
    *rows("daemon, and the unit crashes", (ISOLATED,), case.with_daemon(crash=True), 4),
    *rows("hang in doStep, limit 3 s", BOTH, HANG),
    *rows("slow but alive, 1,000 steps", BOTH, case.slow),
    *rows("error status", BOTH, Fault("error", 3, ("sick", "no fuel at t = 0.3"))),
    *rows("error status from terminate", BOTH, case.ends_badly("error_terminate", "fmi2Error", "valve stuck")),
    *rows("fatal status from terminate", BOTH, case.ends_badly("fatal_terminate", "fmi2Fatal", "valve lost")),
    *rows(
        "last successful time before the step (FMI 3.0)",
        BOTH[:1],
        by_test(
            test_peculiar.test_a_step_that_goes_back_in_time_is_said, line="warning, and the same rows as isolated"
        ),
    ),
    *rows("fatal status", BOTH, Fault("fatal", 3, ("sick", "engine lost at t = 0.3"), check=case.never_called_again)),
    *rows("illegal status", BOTH, Fault("illegal", 3, ("sick", "42"))),
    *rows(
        "discarded step, states cannot be restored",
        BOTH,
        Fault("discard", 3, ("sick", "t = 0.3 s"), changes=CANNOT_RESTORE, check=case.ten_retries),
    ),
    *rows("step that is always discarded", BOTH, Fault("discard", 3, ("sick", "t = 0.3 s"), check=case.ten_retries)),
    *rows("discarded step, states can be restored", BOTH, case.rolled_back),
    *rows(
        "state restored wrongly",
        BOTH,
        Fault(
            "wrong_restore",
            2,
            ("unit 'sick' does not restore its state",),
            rows=None,
            options=("--master", "iterative", "--sweeps", "2"),
            moment=False,
        ),
    ),
    *rows("NaN", BOTH, Fault("nan", 6, ("sick", "y became nan at t = 0.31"))),
    *rows("infinity", BOTH, Fault("infinity", 6, ("sick", "y became inf at t = 0.31"))),
    *rows("NaN with `--allow-non-finite`", BOTH, case.goes_on),
    *rows("value outside its declared range", BOTH, case.out_of_range),
    *rows("leak of 1 MB per step, limit 100 MB", (ISOLATED,), case.leaked, 4),
    *rows("20,000 log lines per step", BOTH, case.flooded(2)),
    *rows("20,000 log lines per step (FMI 3.0)", BOTH, case.flooded(3)),
    *rows("logger called from a foreign thread", BOTH, case.compared("log_thread")),
    *rows("unit prints on standard output", BOTH, case.compared("print")),
    *rows("unit changes the locale", BOTH, case.compared("locale")),
    *rows("unit changes the working directory", BOTH, case.compared("folder")),
    *rows("unit changes the working directory in instantiate", BOTH, case.compared("folder_instantiate", early=True)),
    *rows("unit changes the rounding mode (rows of the other unit)", BOTH, case.compared("rounding", own_changes=True)),
)
OTHERS: tuple[Row, ...] = (
    *rows("Ctrl-C (SIGINT)", BOTH, case.signalled(signal.SIGINT, 130), 130),
    *rows("termination (SIGTERM)", BOTH, case.signalled(signal.SIGTERM, 143), 143),
    *rows("hang-up (SIGHUP)", BOTH, case.signalled(signal.SIGHUP, 129), 129),
    *rows("Ctrl-C, and the unit ignores it", BOTH, case.deaf(signal.SIGINT, 130), 130),
    *rows("termination, and the unit ignores it", BOTH, case.deaf(signal.SIGTERM, 143), 143),
    *rows("hang-up, and the unit ignores it", BOTH, case.deaf(signal.SIGHUP, 129), 129),
    *(
        Row(f"{what}, and a unit in Python ignores it", IN_PROCESS, by_test(DEAF, number, code), code)
        for what, (number, code) in zip(("Ctrl-C", "termination", "hang-up"), test_process.SIGNALS, strict=True)
    ),
    *rows("working directory removed, then Ctrl-C", BOTH, case.without_folder, 130),
    *rows(
        "standard output full", NOWHERE, by_test(test_streams.test_a_full_standard_output_is_one_line, folder=False), 7
    ),
    *rows(
        "standard error full",
        NOWHERE,
        by_test(test_streams.test_a_full_standard_error_does_not_change_the_exit_code, line="nothing", folder=False),
        2,
    ),
    *rows(
        "standard output and standard error closed",
        NOWHERE,
        by_test(test_streams.test_closed_streams_swallow_what_is_said, line="nothing", folder=False),
    ),
    *rows(
        "standard output in ASCII",
        NOWHERE,
        by_test(test_streams.test_every_encoding_will_do, "ascii", line="the same in ASCII characters", folder=False),
    ),
    *rows("crashes in a study of one process, which is killed and resumed", (IN_PROCESS,), case.study),
    *rows("worker of a study killed", NOWHERE, case.loses_worker(starting=False)),
    *rows("worker of a study killed while it starts", NOWHERE, case.loses_worker(starting=True)),
    *rows("scheduler of a study killed, resumed", NOWHERE, case.loses_scheduler, 7),
    *rows("disk full (Parquet)", NOWHERE, by_test(test_outputs.test_a_full_disk, "parquet"), 7),
    *rows("disk full (CSV)", NOWHERE, by_test(test_outputs.test_a_full_disk, "csv"), 7),
    *rows("disk full in a study, resumed", NOWHERE, by_test(test_outputs.test_a_full_disk_in_a_study), 0),
    *rows("unit redirects all descriptors", (IN_PROCESS,), case.redirected, 7),
    *rows("unit redirects all descriptors", (ISOLATED,), case.redirected),
    *rows("rows removed while the run goes on", (IN_PROCESS,), case.touched("removed"), 7),
    *rows("rows cut off while the run goes on", (IN_PROCESS,), case.touched("cut off"), 7),
    *rows("a bit of the rows flips before the run is resumed", NOWHERE, case.flipped, 2),
    *rows(
        "numbers that the caller changes later",
        NOWHERE,
        by_test(
            test_arguments.test_what_users_give_is_copied_and_read_only,
            line="units and tables keep those they were given",
            folder=False,
        ),
    ),
    *rows("FMU that is a pipe or a device", NOWHERE, case.no_file, 2),
    *rows("`multiples` of 10¹²", NOWHERE, case.without_end, 2),
    *rows("output folder missing", NOWHERE, by_test(test_outputs.test_a_missing_folder), 7),
    *rows("output folder read-only", NOWHERE, by_test(test_outputs.test_a_read_only_folder), 7),
    *rows("path with spaces", BOTH, case.in_folder("with spaces and 'quotes'")),
    *rows("path with umlauts", BOTH, case.in_folder("Größe µ")),
    *rows("path with CJK characters", BOTH, case.in_folder("二質点 模型")),
    *rows(
        "two units with equal symbol names",
        (IN_PROCESS,),
        case.in_workplace(lambda work: borrowed(files.test_two_units_with_equal_symbols, work), SAME),
    ),
    *rows(
        "single-instance unit used twice",
        (ISOLATED,),
        case.in_workplace(lambda work: borrowed(files.test_a_single_instance_unit_used_twice, work), SAME),
    ),
    *rows(f"archive attacks, {len(case.attacks.ATTACKS)} kinds (line of the last)", NOWHERE, case.archives, 8),
    *(row for name in files.FAULTS for row in rows(f"broken FMU: {name}", NOWHERE, broken(name), 2)),
    *rows(
        "broken XML or TOML",
        NOWHERE,
        case.in_workplace(lambda work: borrowed(files.test_a_broken_description_is_named_with_its_line, work)),
        2,
    ),
    *rows("hostile unit: network", (SANDBOX,), case.hostile("network", "tried to open a network connection")),
    *rows("hostile unit: writes home", (SANDBOX,), case.hostile("write_home", "tried to write '{secret}'")),
    *rows("hostile unit: reads keys", (SANDBOX,), case.hostile("read_key", "tried to read '{secret}'")),
    *rows("hostile unit: fork bomb", (SANDBOX,), case.hostile("fork_bomb", "tried to start a process")),
    *rows("start of a sandbox, at most 10 ms", (SANDBOX,), case.started),
)
TWO_HOSTS = ("two hosts",)
HOSTS: tuple[Row, ...] = (
    *rows("worker dies", TWO_HOSTS, far.dies, 4),
    *rows("worker dies, its run is resumed when it is back", TWO_HOSTS, far.comes_back(other=False), 4),
    *rows("worker dies, its run is resumed on another host", TWO_HOSTS, far.comes_back(other=True), 4),
    *rows("worker hangs, and comes back", TWO_HOSTS, far.hangs, 4),
    *rows("network to a worker is cut, and mended", TWO_HOSTS, far.cut_off, 4),
    *rows("network to a worker is cut for a second", TWO_HOSTS, far.cut_for_a_second),
    *rows("broker dies", TWO_HOSTS, far.broker_dies, 4),
    *rows("run with a unit on another host is killed", TWO_HOSTS, far.run_dies),
    *rows("Ctrl-C of a run with a unit on another host", TWO_HOSTS, far.interrupted, 130),
    *rows("second worker of one name", TWO_HOSTS, far.second_of_one_name, 2),
    *rows("two workers of one name, after one hung", TWO_HOSTS, far.two_of_one_name, 2),
    *rows("worker of another version", TWO_HOSTS, far.refused("and the worker 0.0.9", program=far.OTHER_VERSION), 2),
    *rows("worker with another token", TWO_HOSTS, far.refused("it has another token", environment=far.OTHER_TOKEN), 2),
    *rows("worker with another clock", TWO_HOSTS, far.another_clock),
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
        "4 rows; warning: the stop time 1 s is not a multiple of the step size 0.3 s",
    ),
)


def table() -> Iterator[Row]:
    """All rows, in the order of the page."""
    yield from UNITS
    for title, function, arguments, line in GRIDS:
        yield Row(title, "–", by_test(function, *arguments, line=line, folder=False))
    steps = "memory grows by at most 5 MB, open files stay"
    outside = by_test(
        test_process.test_a_crash_outside_of_a_call_is_said, line="crashed outside of a unit's call: SIGSEGV"
    )
    yield Row("crash outside of a unit's call", IN_PROCESS, outside)
    yield Row("10⁷ steps", IN_PROCESS, by_test(test_long_runs.test_ten_million_steps, None, line=steps))
    killed = "kill −9 of the master at a random time"
    yield from (Row(killed, mode, case.killed, -signal.SIGKILL, times=30) for mode in BOTH)
    yield from OTHERS
    yield from HOSTS
