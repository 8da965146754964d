"""Trials that are more than one unit with one fault: runs that must go on, kills, paths, archives, sandboxes."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "formats"))
sys.path.insert(0, str(Path(__file__).parents[1] / "safety"))
import attacks
import contract
import faulty
import fmu_builder
import ssp_builder
import test_archives
import test_interruptions
from contract import Outcome, once_checkpointed, once_recording, require_contract, require_rows
from suite_trials import (
    AUTO,
    FLUSH,
    IN_PROCESS,
    ISOLATED,
    OPTIONS,
    STEP,
    Seen,
    Trial,
    observe,
    require_completed,
    require_fields,
    require_kept,
    seconds_since,
    workplace,
    write,
)

import processes
from cosimo.formats.results import read_result
from cosimo.studies import read_study
from cosimo.units import Fmu
from cosimo.units.fmi.archive import remove_left_behind
from cosimo.units.fmi.isolation import Isolation

OUT_OF_RANGE = {'<Real start="0"/></ScalarVariable>\n    <ScalarVariable name="u"': '<Real start="0" max="0.25"/>'
                '</ScalarVariable>\n    <ScalarVariable name="u"'}  # fmt: skip


# ---- runs that must go on --------------------------------------------------------------------------------------------


def slow(folder: Path, mode: str, number: int) -> Seen:
    """1,000 steps of 2 ms under a limit of 1 s; and whoever is waited for is said at a terminal."""
    write(folder, "slow", amount=0.002, at=0.0)
    outcome, rows = require_completed(folder, "--stop-time", "10", "--unit-timeout", "1", *OPTIONS[mode])
    assert outcome.document["steps"] == 1000
    assert len(rows) == 1001
    write(folder, "slow", amount=2.5, at=1.99)
    temporary = str(folder / "temporary")
    code, seen = processes.at_terminal("run", "s.toml", *OPTIONS[mode], cwd=folder, TMPDIR=temporary)
    assert code == 0, seen
    assert "waiting for unit 'sick'" in seen, seen
    return Seen("1000 macro steps; at the terminal: waiting for unit 'sick' for …")


def goes_on(folder: Path, mode: str, number: int) -> Seen:
    """NaN, and told to go on."""
    write(folder, "nan")
    outcome, rows = require_completed(folder, "--allow-non-finite", *OPTIONS[mode])
    (told,) = [warned for warned in outcome.document["warnings"] if "became nan" in warned]
    assert np.isnan(rows["sick.y"][31:]).all()
    assert np.isfinite(rows["sound.y"]).all()
    return Seen(f"warning: {told}")


def out_of_range(folder: Path, mode: str, number: int) -> Seen:
    """One warning per variable."""
    write(folder, "", changes=OUT_OF_RANGE)
    outcome, _ = require_completed(folder, *OPTIONS[mode])
    (told,) = [warned for warned in outcome.document["warnings"] if "outside" in warned]
    assert ": sick.y is " in told, told
    return Seen(f"warning: {told}")


def rolled_back(folder: Path, mode: str, number: int) -> Seen:
    """A unit that refuses steps above 3 ms from 0.3 s on: two halvings of 10 ms."""
    write(folder, "discard_long", amount=0.003)
    outcome, rows = require_completed(folder, *OPTIONS[mode])
    assert len(rows) == 201
    count = outcome.document["rollbacks"]
    assert count == 2, count
    return Seen(f"{outcome.document['steps']} macro steps, {count} rollbacks")


def compared(fault: str, *, own_changes: bool = False, early: bool = False) -> Trial:
    """A run with the fault gives the same rows, to the last bit, as one without; `own_changes`: but for its own."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        environment = {"LOCPATH": german().name} if fault == "locale" else {}
        rows = []
        for given in (fault, ""):
            write(folder, given, at=0.0, early=early)
            _, found = require_completed(folder, *OPTIONS[mode], environment=environment)
            names = ["sound.y"] if own_changes else list(found.names)
            rows.append((found.time, *(found[name] for name in names)))
            if given == "locale":
                numbers = (folder / "rows.csv").read_text().splitlines()[-1]
                assert numbers.startswith(("2.0,", "2,")), numbers
        assert np.array_equal(*rows)
        return Seen("the same rows, to the last bit; standard output is one JSON document")

    return trial


@cache
def german() -> tempfile.TemporaryDirectory[str]:
    """A folder with the locale de_DE.UTF-8, whose decimals have a comma; it goes away with this process."""
    folder = tempfile.TemporaryDirectory(prefix="locale-")
    subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", f"{folder.name}/de_DE.UTF-8"], check=True)
    return folder


def flooded(version: int) -> Trial:
    """Of 20,000 messages in each of 100 steps, one costs at most 100 ns, about what writing its text costs."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        walls: dict[int, float] = {}
        for lines in (0, 20_000):
            write(folder, "log_flood", amount=lines, at=0.0)
            if version == 3:
                fmu_builder.build(folder, "peculiar3", file="sick.fmu", defines=("TALKS",) if lines else ())
                text = (folder / "s.toml").read_text().splitlines(keepends=True)
                (folder / "s.toml").write_text("".join(line for line in text if not line.startswith("parameters")))
            outcome, _ = require_completed(folder, "--stop-time", "1", *OPTIONS[mode])
            walls[lines] = outcome.document["wall_time"]
        each = (walls[20_000] - walls[0]) / (100 * 20_000)
        assert each <= 100e-9, f"{1e9 * each:.0f} ns for a message; {walls[0]:.2f} s without"
        told = [warned for warned in outcome.document["warnings"] if "suppressed" in warned]
        assert told, "nobody says how many messages were suppressed"
        return Seen(f"{1e9 * each:.0f} ns for a message; warning: {told[0]}")

    return trial


# ---- ended from outside ----------------------------------------------------------------------------------------------


def endless(folder: Path, fault: str = "slow") -> None:
    """Two units that take a millisecond for a step, without end; one has another fault beside, where asked for."""
    write(folder, fault, amount=0.001, at=0.0)
    text = (folder / "s.toml").read_text().replace("stop-time = 2.0", "stop-time = 1e6")
    (folder / "s.toml").write_text(text)


def signalled(which: signal.Signals, code: int, fault: str = "slow", within: float | None = 1.0) -> Trial:
    """Ctrl-C or termination: rows kept, the summary `within` a second (None: not judged by the clock)."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        endless(folder, fault)
        ready = once_recording(folder / "rows.arrows", seconds=0.2)

        def disturb(process: subprocess.Popen[str]) -> None:
            ready(process)
            os.kill(process.pid, which)

        outcome, *_ = observe(folder, "--output-file", "rows.arrows", *OPTIONS[mode], disturb=disturb)
        require_contract(outcome, code=code, names=["interrupted at t = "])
        rows = require_rows(folder / "rows.arrows")
        assert rows.time[-1] == outcome.document["end_time"]
        if within is not None:
            assert outcome.took is not None
            assert outcome.took <= within, f"summary after {outcome.took:.2f} s"
        return Seen(outcome.line.removeprefix("cosimo: "), outcome.took)

    return trial


def deaf(which: signal.Signals, code: int) -> Trial:
    """The unit ignores all signals in each of its steps; the run hears them nevertheless."""
    return signalled(which, code, fault="deaf", within=None)


def copied(folder: Path, mode: str, number: int) -> Seen:
    """The unit forks and both come back: one run goes on, with the rows of a unit that does not."""
    rows = []
    for fault in ("", "fork_return"):
        write(folder, fault)
        outcome, found = require_completed(folder, *OPTIONS[mode])
        rows.append(found)
    assert len(rows[1]) == 201
    assert np.array_equal(rows[0]["sound.y"], rows[1]["sound.y"])
    assert np.array_equal(rows[0]["sick.y"], rows[1]["sick.y"])
    told = [warned for warned in outcome.document["warnings"] if "fork" in warned]
    assert len(told) == 1, outcome.document["warnings"]
    return Seen(f"warning: {told[0]}")


def with_daemon(*, crash: bool) -> Trial:
    """The unit starts a daemon in a session of its own; that ends with the unit, whichever way the unit ends."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        write(folder, "daemon", amount=float(crash))
        outcome, *_ = observe(folder, "--output-file", "rows.csv", *OPTIONS[mode])
        assert outcome.code == (4 if crash else 0), outcome.errors
        pid = int((folder / "stamps.daemon").read_text())
        deadline = time.monotonic() + contract.orphans_after
        while alive(pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not alive(pid), "the daemon is still there"
        return Seen(outcome.line.removeprefix("cosimo: ") if crash else "201 rows; no process after 1 s")

    return trial


def alive(pid: int) -> bool:
    """Whether the process is there, and not only waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def ends_badly(fault: str, status: str, says: str) -> Trial:
    """All rows are there; that the unit was not content with its end is a warning."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        write(folder, fault)
        outcome, _ = require_completed(folder, *OPTIONS[mode])
        (told,) = [warned for warned in outcome.document["warnings"] if "fmi2Terminate" in warned]
        assert f"unit 'sick' returned {status} from fmi2Terminate; it says: {says}" in told, told
        return Seen(f"warning: {told}")

    return trial


def threaded(folder: Path, mode: str, number: int) -> Seen:
    """The unit starts a thread that never ends; its library is not taken from under it."""
    write(folder, "thread")
    require_completed(folder, *OPTIONS[mode])
    return Seen("201 rows, exit code 0; the library stays loaded")


def killed(folder: Path, mode: str, number: int) -> Seen:
    """Kill −9 of the master at a random time: rows readable, few of them lost, workers gone within a second."""
    after = random.Random(number).uniform(0.0, 3.0)
    if mode == IN_PROCESS:
        (folder / "clock.py").write_text(test_interruptions.CLOCK)
        (folder / "s.toml").write_text(test_interruptions.SCENARIO)
        lost = test_interruptions.killed(folder, after)
        assert lost.wall < FLUSH, f"{lost.wall:.2f} s of rows lost"
        return Seen(f"rows readable, marked incomplete; at most {FLUSH} s of them lost")
    endless(folder)
    moments = []

    def disturb(process: subprocess.Popen[str]) -> None:
        while not (folder / "rows.arrows.partial").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        time.sleep(after)
        process.kill()
        moments.append(time.monotonic())

    outcome, _, stamps = observe(folder, "--output-file", "rows.arrows", *OPTIONS[mode], disturb=disturb)
    assert outcome.code == -signal.SIGKILL
    assert not outcome.orphans, outcome.orphans
    remove_left_behind(folder / "temporary")  # as the next process with an FMU does
    assert not list((folder / "temporary").iterdir())
    rows = read_result(folder / "rows.arrows")
    assert not rows.complete
    assert np.array_equal(rows.time, STEP * np.arange(len(rows)))
    # The unit notes when each of its steps begins; the first row is that of the start.
    ages = [moments[0] - at for _, at in stamps[max(len(rows) - 1, 0) :]]
    assert max(ages, default=0.0) < FLUSH, f"{ages[0]:.2f} s of rows lost"
    return Seen(f"rows readable, marked incomplete; at most {FLUSH} s of them lost; no worker after 1 s")


# ---- files -----------------------------------------------------------------------------------------------------------


def in_folder(name: str) -> Trial:
    """Everything lies in a folder of this name, and so do temporary files; the rows are those of a plain one."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        rows = []
        for place in (folder / "plain", folder / name):
            place.mkdir()
            write(place, "")
            rows.append(require_completed(place, *OPTIONS[mode])[1])
        assert rows[0].names == rows[1].names
        assert np.array_equal(rows[0].to_numpy(), rows[1].to_numpy())
        return Seen("the same rows, to the last bit")

    return trial


def archives(folder: Path, mode: str, number: int) -> Seen:
    """Every attack that `attacks` knows is refused with exit code 8 before anything is written."""
    said = ""
    with workplace(folder) as work:
        for attack, says in attacks.ATTACKS.values():
            path = attacks.fmu(work)
            path.write_bytes(attack(path.read_bytes()))
            said = test_archives.refused(work, "run", "a.fmu", "--step-size", "0.1", "--stop-time", "1")
            assert says in said, said
            path.unlink()
    return Seen(said.removeprefix("cosimo: "))


def in_workplace(judge: Callable[[Path], Seen], line: str = "") -> Trial:
    """A trial in a folder beside which nothing may be left; `line` where no command says one."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        with workplace(folder) as work:
            seen = judge(work)
        return replace(seen, line=line or seen.line)

    return trial


def redirected(folder: Path, mode: str, number: int) -> Seen:
    """The unit points all open descriptors elsewhere: of its own worker, or of the process that writes the rows."""
    write(folder, "redirect")
    if mode != IN_PROCESS:
        require_completed(folder, *OPTIONS[mode])
        return Seen("201 rows: its descriptors are not the master's")
    # Without --json: the descriptor that the document would go to is one of them.
    outcome = contract.command(folder, "run", "s.toml", "--output-file", "rows.csv", *OPTIONS[mode])
    require_contract(outcome, code=7, names=["rows.csv.partial", "during the run"])
    assert not (folder / "rows.csv").exists()
    return Seen(outcome.line.removeprefix("cosimo: "))


def touched(how: str) -> Trial:
    """Somebody removes or cuts off the stream while the run goes on."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        endless(folder)
        ready = once_recording(folder / "rows.csv")

        def disturb(process: subprocess.Popen[str]) -> None:
            ready(process)
            stream = folder / "rows.csv.partial"
            stream.unlink() if how == "removed" else os.truncate(stream, 100)

        outcome, *_ = observe(folder, "--output-file", "rows.csv", *OPTIONS[mode], disturb=disturb)
        require_contract(outcome, code=7, names=["rows.csv.partial", "during the run; no rows are left"])
        return Seen(outcome.line.removeprefix("cosimo: "))

    return trial


def flipped(folder: Path, mode: str, number: int) -> Seen:
    """A bit of the rows that a killed run left flips; the run is not resumed from them."""
    options = ("--set", "damping=1", "--step-size", "1e-4", "--stop-time", "1e5", "--every", "1000")

    ready = once_checkpointed(folder / "cut.csv")

    def disturb(process: subprocess.Popen[str]) -> None:
        ready(process)
        process.kill()

    contract.command(
        folder, "run", "two-mass", *options, "--output-file", "cut.csv", "--checkpoint-every", "0.2", disturb=disturb
    )
    stream = folder / "cut.csv.partial"
    data = bytearray(stream.read_bytes())
    place = data.index(np.float64(1e-4 * 1000).tobytes()) + random.Random(number).randrange(8)  # the second row's time
    data[place] ^= 1 << random.Random(number).randrange(8)
    stream.write_bytes(data)
    outcome = contract.command(folder, "resume", "cut.csv", "--json")
    require_contract(outcome, code=2, names=["cut.csv.partial", "checksum"])
    return Seen(outcome.line.removeprefix("cosimo: ").replace(f"{folder}/", ""))


# ---- the sandbox -----------------------------------------------------------------------------------------------------


def hostile(fault: str, says: str) -> Trial:
    """What the unit tries is refused and named, and its numbers are those of a unit that tries nothing."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        descriptor, secret = tempfile.mkstemp(dir="/var/tmp")
        os.close(descriptor)
        try:
            rows = []
            for given in ("", fault):
                write(folder, given, at=0.0, text=secret)
                outcome, found = require_completed(folder, *OPTIONS[mode])
                rows.append(found)
        finally:
            os.unlink(secret)
        (told,) = [warned for warned in outcome.document["warnings"] if says.format(secret=secret) in warned]
        assert rows[1]["sick.allowed"][-1] == 0, "allowed"
        assert np.array_equal(rows[0].to_numpy(), rows[1].to_numpy())
        return Seen(f"warning: {told.replace(secret, '/var/tmp/secret')}")

    return trial


def started(folder: Path, mode: str, number: int) -> Seen:
    """A sandbox adds at most 10 ms to the start of an isolated unit: the shortest of 30 starts each, in turn."""
    path = faulty.build(folder / "faulty.fmu")
    taken: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(30):
        for sandbox, times in taken.items():
            begin = time.perf_counter()
            instance = Fmu(path, isolate=Isolation(sandbox=sandbox)).instantiate()
            times.append(time.perf_counter() - begin)
            instance.close()
    price = 1e3 * (min(taken[True]) - min(taken[False]))
    assert price <= 10.0, f"{price:.1f} ms"
    return Seen(f"{price:.1f} ms more than `--isolate`, the shortest of 30 starts each")


def leaked(folder: Path, mode: str, number: int) -> Seen:
    """1 MB per step from 0.3 s on, 100 MB allowed."""
    write(folder, "leak")
    outcome, end, stamps = observe(folder, "--output-file", "rows.csv", "--unit-memory", "100", *OPTIONS[mode])
    require_contract(outcome, code=4, names=["sick", "memory limit"])
    rows = len(read_result(folder / "rows.csv"))
    assert 100 < rows < 140, rows
    require_kept(folder / "rows.csv", rows)
    return Seen(outcome.line.removeprefix("cosimo: "), seconds_since("leak", stamps, end))


def packed(folder: Path, mode: str, number: int) -> Seen:
    """A segmentation fault of a unit in an .ssp package, which was extracted too."""
    unit = faulty.build(folder / "sick.fmu", early="segfault").read_bytes()
    ssp_builder.pack(
        folder,
        ssp_builder.document(ssp_builder.system(ssp_builder.component("sick", source="sick.fmu"))),
        {"sick.fmu": unit},
    )
    options = ("--step-size", str(STEP), "--stop-time", "2", "--output-file", "rows.csv", *OPTIONS[mode])
    outcome, end, stamps = observe(folder, *options, verb=("run", "s.ssp"))
    require_contract(outcome, code=4, names=["sick", "doStep", "SIGSEGV"])
    require_fields(outcome)
    require_kept(folder / "rows.csv", 0, exactly=False)
    return Seen(outcome.line.removeprefix("cosimo: "), seconds_since("segfault", stamps, end))


def analysed(folder: Path, mode: str, number: int) -> Seen:
    """A unit ends the process while it is identified, where no run is guarded."""
    write(folder, "exit", at=0.0)
    outcome, end, stamps = observe(folder, *OPTIONS[mode], verb=("analyse", "s.toml"))
    require_contract(outcome, code=4, names=["sick", "the unit ended the process"])
    return Seen(outcome.line.removeprefix("cosimo: "), seconds_since("exit", stamps, end))


# ---- FMUs that nobody knows yet --------------------------------------------------------------------------------------


def crashes_at_first(folder: Path, mode: str, number: int) -> Seen:
    """The first trial of an FMU takes a process down that is not the master's: it is isolated, and named."""
    write(folder, "segfault", at=0.0)
    cache = {"COSIMO_CACHE": str(folder / "cache")}  # others may have written the same FMU at this very moment
    outcome, end, stamps = observe(folder, "--output-file", "rows.csv", *OPTIONS[mode], environment=cache)
    require_contract(outcome, code=4, names=["sick", "doStep", "crashed in fmi2DoStep: SIGSEGV"])
    require_fields(outcome)
    (told,) = outcome.document["warnings"]
    assert "unit 'sick' is isolated after a first trial (crashed in fmi2DoStep: SIGSEGV" in told, told
    require_kept(folder / "rows.csv", 1)
    return Seen(outcome.line.removeprefix("cosimo: "), seconds_since("segfault", stamps, end))


def crashes_later(folder: Path, mode: str, number: int) -> Seen:
    """An FMU that gets through its first trial stays in the master's process and is remembered: it takes that along."""
    cache = {"COSIMO_CACHE": str(folder / "cache")}
    write(folder, "")
    shutil.copyfile(folder / "sick.fmu", folder / "sound.fmu")  # archives hold the time at which they were written
    (whole, rows), *others = (
        require_completed(folder, *OPTIONS[mode], environment=cache) for mode in (AUTO, IN_PROCESS, ISOLATED)
    )
    assert not whole.document["warnings"]
    for _, other in others:
        assert np.array_equal(rows.to_numpy(), other.to_numpy())
    assert len(list((folder / "cache").iterdir())) == 1  # both units are the same FMU
    (folder / "rows.csv").unlink()
    write(folder, "segfault")
    outcome, end, stamps = observe(folder, "--output-file", "rows.csv", *OPTIONS[mode], environment=cache)
    require_contract(outcome, code=4, names=["sick", "t = 0.3 s", "the unit crashed: SIGSEGV", "with --isolate sick"])
    return Seen(outcome.line.removeprefix("cosimo: "), seconds_since("segfault", stamps, end))


# ---- units in Python, and scenarios that ask for too much ------------------------------------------------------------


PYTHON = """import sys
class Unit:
    inputs, outputs = {{"u": 1.0}}, ("x",)
    def __init__(self, {parameter}=0.0):
        self.x = 0.0
    def step(self, now, duration):
        {first}
        self.x += duration * (self.u - self.x)
"""


def write_python(folder: Path, first: str = "", parameter: str = "amount") -> None:
    """The scenario `s.toml` with a unit in Python that does something first in each of its steps."""
    (folder / "unit.py").write_text(PYTHON.format(first=first, parameter=parameter))
    (folder / "s.toml").write_text(
        f'step-size = {STEP}\nstop-time = 2.0\n[units.sick]\nkind = "python"\nclass = "unit.py:Unit"\n'
        f"parameters = {{ {parameter} = 2.0 }}\n"
    )


def quits(folder: Path, mode: str, number: int) -> Seen:
    """A unit in Python calls `sys.exit(0)`; that is not how a run ends well."""
    write_python(folder, "now < 0.295 or sys.exit(0)")
    outcome, *_ = observe(folder, "--output-file", "rows.csv")
    require_contract(outcome, code=4, names=["sick", "doStep", "t = 0.3 s", "it called exit(0)"])
    require_fields(outcome)
    require_kept(folder / "rows.csv", 31)
    return Seen(outcome.line.removeprefix("cosimo: "))


def named(parameter: str) -> Trial:
    """A parameter of the unit's class has the name of one that the program's own functions have."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        write_python(folder, parameter=parameter)
        _, rows = require_completed(folder)
        return Seen(f"{len(rows)} rows")

    return trial


def without_folder(folder: Path, mode: str, number: int) -> Seen:
    """The working directory is removed while the run goes on; its rows are elsewhere."""
    endless(folder)
    (folder / "gone").mkdir()
    ready = once_recording(folder / "rows.csv")

    def disturb(process: subprocess.Popen[str]) -> None:
        ready(process)
        (folder / "gone").rmdir()
        os.kill(process.pid, signal.SIGINT)

    line = f'cd "{folder}/gone" && exec "$@"'
    program = ["sh", "-c", line, "sh", *contract.COSIMO]
    words = ("run", str(folder / "s.toml"), "--json", "--output-file", str(folder / "rows.csv"), *OPTIONS[mode])
    outcome = contract.command(folder, *words, program=program, disturb=disturb)
    require_contract(outcome, code=130, names=["interrupted at t = "])
    rows = require_rows(folder / "rows.csv")
    assert rows.time[-1] == outcome.document["end_time"]
    return Seen(outcome.line.removeprefix("cosimo: "))


def no_file(folder: Path, mode: str, number: int) -> Seen:
    """An FMU that is a pipe or a device is refused before it is read."""
    os.mkfifo(folder / "pipe")
    for name, says in (("/proc/self/mem", "not a zip archive"), ("/dev/zero", ""), ("pipe", "")):
        (folder / "s.toml").write_text(f'step-size = 0.01\nstop-time = 1.0\n[units.sick]\nfmu = "{name}"\n')
        outcome, *_ = observe(folder, "--output-file", "rows.csv")
        require_contract(outcome, code=2, names=["s.toml:3: units.sick", name, says or "is not a regular file"])
    return Seen(outcome.line.removeprefix("cosimo: "))


def without_end(folder: Path, mode: str, number: int) -> Seen:
    """A hyperperiod that nobody could go through is refused by `validate`, which would."""
    write_python(folder)
    text = (folder / "s.toml").read_text()
    (folder / "s.toml").write_text(f'{text}[master]\nname = "multirate"\nmultiples = {{ sick = 1000000000000 }}\n')
    says = "repeats after 1,000,000,000,000 base steps"
    outcome, *_ = observe(folder, verb=("validate", "s.toml"))
    assert (outcome.code, outcome.document["valid"]) == (2, False), outcome.errors
    assert says in outcome.document["problems"][0]
    outcome, *_ = observe(folder)
    require_contract(outcome, code=2, names=[says])
    return Seen(outcome.line.removeprefix("cosimo: "))


# ---- studies ---------------------------------------------------------------------------------------------------------


def study(folder: Path, mode: str, number: int) -> Seen:
    """A study of one process: crashes are rows; killed in a run that hangs, it is resumed behind them."""
    write(folder, "segfault")
    path = folder / "s.toml"
    path.write_text(path.read_text() + 'parameters = { fault = "hang", fault_time = 3.0 }\n')
    words = ("sweep", "s.toml", "--vary", "sick.fault_time=0.05,3", "--vary", "sound.fault_time=3,0.05")
    words += ("--workers", "1", "--output-file", "study.csv", *OPTIONS[mode])

    def disturb(process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + contract.PATIENCE
        while "hang" not in (stamps.read_text() if stamps.exists() else ""):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.01)
        while len(read_study(folder / "study.csv")) < 3:  # rows are put away while one lets wait for it
            assert time.monotonic() < until
            time.sleep(0.01)
        process.kill()

    stamps = folder / "stamps"
    cut, *_ = observe(folder, verb=words, disturb=disturb)
    assert cut.code == -signal.SIGKILL
    assert not cut.orphans, cut.orphans
    resumed, *_ = observe(folder, "--resume", "--unit-timeout", "1.5", verb=words)
    assert resumed.code == 0, resumed.errors
    assert not resumed.left, resumed.left
    found = {name: resumed.document[name] for name in ("runs", "ran", "crashed", "failed", "resumed")}
    assert found == {"runs": 4, "ran": 1, "crashed": 2, "failed": 1, "resumed": 3}, found
    rows = read_study(folder / "study.csv")
    assert rows["status"].tolist() == ["crashed", "crashed", "ran", "failed"]
    return Seen(f"a row: {rows['message'][0]}")


STUDY = ("sweep", "two-mass", "--vary", "kc=50:150:60", "--step-size", "1e-4", "--stop-time", "10")
STUDY += ("--output-file", "study.csv")


def worker_of(process: subprocess.Popen[str]) -> int:
    """A process of the command that makes runs, as soon as there is one."""
    until = time.monotonic() + contract.PATIENCE
    while True:
        for pid in contract._members(process.pid):
            with suppress(OSError):
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    return pid
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.005)


def once_rows(path: Path, rows: int) -> Callable[[subprocess.Popen[str]], None]:
    """Wait until a study has written so many rows."""

    def wait(process: subprocess.Popen[str]) -> None:
        until = time.monotonic() + contract.PATIENCE
        while not Path(f"{path}.partial").exists() or len(read_study(path)) < rows:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)

    return wait


def loses_worker(*, starting: bool) -> Trial:
    """One of two workers is killed, while it starts or in its runs: the study has all of its rows."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        def disturb(process: subprocess.Popen[str]) -> None:
            victim = worker_of(process)
            if not starting:
                once_rows(folder / "study.csv", 5)(process)
            os.kill(victim, signal.SIGKILL)

        outcome, *_ = observe(folder, "--workers", "2", verb=STUDY, disturb=disturb)
        assert outcome.code == 0, outcome.errors
        assert (outcome.document["ran"], len(read_study(folder / "study.csv"))) == (60, 60)
        assert not outcome.orphans, outcome.orphans
        assert not outcome.left, outcome.left
        return Seen("60 rows, as if nothing had happened")

    return trial


def loses_scheduler(folder: Path, mode: str, number: int) -> Seen:
    """The scheduler of a cluster is killed: the rows so far are kept, and `--resume` goes on without it."""
    where = folder / "scheduler.json"
    with ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            made = subprocess.Popen([*words, "--scheduler-file", str(where)], stderr=subprocess.DEVNULL, cwd=folder)
            stack.callback(made.wait)
            stack.callback(made.kill)
            return made

        scheduler = start(sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard")
        start(sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        until = time.monotonic() + contract.PATIENCE
        while not where.exists() or not where.read_text():
            assert time.monotonic() < until
            time.sleep(0.02)
        address = json.loads(where.read_text())["address"]
        ready = once_rows(folder / "study.csv", 5)

        def disturb(process: subprocess.Popen[str]) -> None:
            ready(process)
            scheduler.kill()

        outcome, *_ = observe(folder, "--scheduler", address, verb=STUDY, disturb=disturb)
    require_contract(outcome, code=7, names=["the Dask scheduler", "--resume", "the rows so far are kept"])
    resumed, *_ = observe(folder, "--workers", "1", "--resume", verb=STUDY)
    assert resumed.code == 0, resumed.errors
    assert resumed.document["ran"] == 60
    assert resumed.document["resumed"] >= 5
    return Seen(outcome.line.removeprefix("cosimo: "), outcome.took)


def never_called_again(outcome: Outcome, stamps: list[str]) -> None:
    """After a fatal status."""
    assert "after-fatal" not in stamps, f"called {stamps.count('after-fatal')} times after a fatal status"


def ten_retries(outcome: Outcome, stamps: list[str]) -> None:
    """A refused step is made again in shorter parts at most ten times, beside the attempts of the two engines."""
    assert outcome.document.get("rollbacks", 0) <= 10, outcome.document
    assert stamps.count("discard") <= 12, stamps
    assert outcome.document["time"] == 30 * STEP
