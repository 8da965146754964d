"""Trials with units on other hosts, each in a network namespace: a host, a broker or the network between them is lost.

The unit `sick` lives with the worker 'lab' on host 1, `sound` on host 0, where the run is; both take 2 ms for a step.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import contract
from contract import COSIMO, Outcome, once_checkpointed, once_recording, require_contract, require_rows
from suite_trials import Seen, Trial, require_fields, write
from tests.hosts import Network, Site, is_running, processes_of

from cosimo.units.fmi.archive import remove_left_behind

PATIENCE = 3.0
"""Seconds without an answer after which a host is lost, in the scenario and of the workers."""
CLOCK = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *t) {
    long status = syscall(SYS_clock_gettime, id, t);
    if (id == CLOCK_REALTIME) t->tv_sec += 86400;
    return (int)status;
}
time_t time(time_t *given) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return given ? (*given = t.tv_sec) : t.tv_sec;
}
"""
"""A clock that is one day ahead, to be loaded before the C library."""
OTHER_VERSION = [
    sys.executable,
    "-c",
    "import cosimo.core as c; c.__version__ = '0.0.9'; from cosimo.cli import main; main()",
]
OTHER_TOKEN = {"COSIMO_TOKEN": "the token of somebody else"}
BROKER = """
import sys, time, helics
broker = helics.helicsCreateBroker("zmq", "", sys.argv[1])
print("ready", flush=True)
time.sleep(1e6)
"""


@contextmanager
def laboratory(folder: Path, stop: float = 1e6, where: str = "lab") -> Iterator[Site]:
    """Three hosts, and the scenario `s.toml`; at the end no process and no temporary file is left on any of them."""
    network = Network(3)
    site = Site(folder, network)
    write(folder, "slow", amount=0.002, at=0.0, slow=True)
    text = (folder / "s.toml").read_text().replace("stop-time = 2.0", f"stop-time = {stop}")
    (folder / "here.toml").write_text(text)
    text = text.replace('fmu = "sick.fmu"', f'fmu = "sick.fmu"\nhost = "{where}"')
    (folder / "s.toml").write_text(text + site.table(patience=PATIENCE))
    (folder / "elsewhere").mkdir()
    try:
        yield site
    finally:
        for worker in site.workers:
            for pid in processes_of(worker):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)  # where it was stopped
        site.close()
        left = [process for worker in site.workers for process in contract.await_orphans(worker.pid)]
        network.close()
    assert not left, left
    assert not [*(folder / "elsewhere").iterdir()]


def begin_worker(site: Site, name: str = "lab", host: int = 1, **more: object) -> subprocess.Popen[str]:
    """A worker whose temporary files are in `elsewhere`."""
    given = {"TMPDIR": str(site.folder / "elsewhere"), **dict(more.pop("environment", {}))}  # type: ignore[call-overload]
    return site.worker(name, host=host, environment=given, **more)  # type: ignore[arg-type]


def run_there(site: Site, *words: str, disturb: contract.Disturb | None = None) -> Outcome:
    """A command on host 0."""
    return contract.command(site.folder, *words, "--json", program=site.on(0, COSIMO), disturb=disturb)


def lost(site: Site, fault: Callable[[], None], says: str, within: float = PATIENCE + 2.5) -> Seen:
    """A run while something happens to its host: one line with host, unit and time, rows kept."""
    ready = once_recording(site.folder / "rows.arrows", rows=50)

    def disturb(process: subprocess.Popen[str]) -> None:
        ready(process)
        fault()

    outcome = run_there(site, "run", "s.toml", "--output-file", "rows.arrows", disturb=disturb)
    require_contract(outcome, code=4, names=["sick", "host 'lab'", "t = ", says], within=within)
    require_fields(outcome)
    rows = require_rows(site.folder / "rows.arrows", at_least=50)
    assert abs(rows.time[-1] - outcome.document["time"]) < 1e-9, (rows.time[-1], outcome.line)
    return Seen(outcome.line.removeprefix("cosimo: "), outcome.took)


def require_served(site: Site) -> None:
    """The worker 'lab' serves another run, with the rows of one machine."""
    rows = []
    for file in ("here", "s"):
        outcome = run_there(site, "run", f"{file}.toml", "--stop-time", "0.2", "--output-file", f"{file}.csv")
        assert outcome.code == 0, outcome.errors
        rows.append((site.folder / f"{file}.csv").read_bytes())
    assert rows[0] == rows[1]


def signal_all(worker: subprocess.Popen[str], number: int) -> None:
    """A signal to a worker and all that it has started."""
    for pid in processes_of(worker):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


# ---- a worker --------------------------------------------------------------------------------------------------------


def dies(folder: Path, mode: str, number: int) -> Seen:
    """Kill −9 of a worker with all its processes, or of the first of them only."""
    with laboratory(folder) as site:
        worker = begin_worker(site)
        if number % 2:
            return lost(site, worker.kill, "the worker")
        seen = lost(site, lambda: signal_all(worker, signal.SIGKILL), "its worker has died, hangs or is cut off")
        remove_left_behind(folder / "elsewhere")  # as the next process with an FMU does
        return seen


def hangs(folder: Path, mode: str, number: int) -> Seen:
    """All processes of the worker are stopped; when they go on, it serves the next run."""
    with laboratory(folder) as site:
        worker = begin_worker(site)
        seen = lost(site, lambda: signal_all(worker, signal.SIGSTOP), "has not answered for")
        signal_all(worker, signal.SIGCONT)
        require_served(site)
        return seen


def cut_off(folder: Path, mode: str, number: int) -> Seen:
    """The network to the worker is cut; once it is mended, the worker serves the next run."""
    with laboratory(folder) as site:
        begin_worker(site)
        assert site.network is not None
        seen = lost(site, lambda: site.network.set("cut 1"), "has not answered for")  # type: ignore[union-attr]
        site.network.set("mend 1")
        require_served(site)
        return seen


def cut_for_a_second(folder: Path, mode: str, number: int) -> Seen:
    """The network is cut for less than the patience: the run waits, and its rows are those of one machine."""
    with laboratory(folder, stop=6.0) as site:
        begin_worker(site)
        ready = once_recording(folder / "there.csv", rows=50)

        def disturb(process: subprocess.Popen[str]) -> None:
            ready(process)
            site.network.set("cut 1")  # type: ignore[union-attr]
            time.sleep(1.0)
            site.network.set("mend 1")  # type: ignore[union-attr]

        there = run_there(site, "run", "s.toml", "--output-file", "there.csv", disturb=disturb)
        here = run_there(site, "run", "here.toml", "--output-file", "here.csv")
        assert (there.code, here.code) == (0, 0), there.errors
        assert (folder / "there.csv").read_bytes() == (folder / "here.csv").read_bytes()
        return Seen("the run waits, and goes on; the rows of one machine, to the last bit")


def comes_back(other: bool) -> Trial:
    """Kill −9 of the worker; when one of its name is there again (`other`: on another host), `resume` goes on."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        with laboratory(folder, stop=6.0) as site:
            worker = begin_worker(site)
            ready = once_checkpointed(folder / "rows.csv.checkpoint")

            def disturb(process: subprocess.Popen[str]) -> None:
                ready(process)
                signal_all(worker, signal.SIGKILL)

            words = ("--output-file", "rows.csv", "--checkpoint-every", "0.1")
            outcome = run_there(site, "run", "s.toml", *words, disturb=disturb)
            require_contract(outcome, code=4, names=["sick", "host 'lab'", "resume the run"])
            begin_worker(site, host=2 if other else 1)
            resumed = run_there(site, "resume", "rows.csv")
            here = run_there(site, "run", "here.toml", "--output-file", "here.csv")
            assert (resumed.code, here.code) == (0, 0), resumed.errors
            assert (folder / "rows.csv").read_bytes() == (folder / "here.csv").read_bytes()
            return Seen(outcome.line.removeprefix("cosimo: "), outcome.took)

    return trial


@contextmanager
def own_broker(site: Site) -> Iterator[subprocess.Popen[bytes]]:
    """A broker of its own on the third host, to which `s.toml` is changed."""
    port = site.broker.rpartition(":")[2]
    site.broker = f"10.25.0.3:{port}"
    text = (site.folder / "s.toml").read_text()
    (site.folder / "s.toml").write_text(text.replace("10.25.0.1:", "10.25.0.3:"))
    words = f"--federates=100 --port={port} --local_interface=10.25.0.3 --loglevel=no_print"
    broker = subprocess.Popen(site.on(2, [sys.executable, "-c", BROKER, words]), stdout=subprocess.PIPE)
    assert broker.stdout is not None
    broker.stdout.readline()
    try:
        yield broker
    finally:
        broker.kill()
        broker.communicate()


def broker_dies(folder: Path, mode: str, number: int) -> Seen:
    """A broker of its own is killed: the run ends, the worker waits for the next one, and no process is left."""
    with laboratory(folder) as site, own_broker(site) as broker:
        begin_worker(site)
        return lost(site, broker.kill, f"the HELICS broker at {site.broker} has not answered for")


def run_dies(folder: Path, mode: str, number: int) -> Seen:
    """Kill −9 of the run: the worker releases the unit, and serves the next one."""
    with laboratory(folder) as site:
        worker = begin_worker(site)
        ready, found = once_recording(folder / "rows.arrows", rows=50), list[int]()

        def disturb(process: subprocess.Popen[str]) -> None:
            ready(process)
            found.extend(processes_of(worker))
            process.kill()

        outcome = run_there(site, "run", "s.toml", "--output-file", "rows.arrows", disturb=disturb)
        assert outcome.code == -signal.SIGKILL
        units = found[2:]  # after the worker, and the process that has joined the broker
        assert units
        deadline = time.monotonic() + PATIENCE + 2.5
        while any(map(is_running, units)):
            assert time.monotonic() < deadline, "the unit was not released"
            time.sleep(0.05)
        require_rows(folder / "rows.arrows", at_least=50)
        remove_left_behind(folder / "temporary")
        require_served(site)
        return Seen("the unit is released, the worker serves the next run")


def interrupted(folder: Path, mode: str, number: int) -> Seen:
    """Ctrl-C of the run: it ends at once, and the worker serves the next one."""
    with laboratory(folder) as site:
        begin_worker(site)
        ready = once_recording(folder / "rows.arrows", rows=50)

        def disturb(process: subprocess.Popen[str]) -> None:
            ready(process)
            process.send_signal(signal.SIGINT)

        outcome = run_there(site, "run", "s.toml", "--output-file", "rows.arrows", disturb=disturb)
        require_contract(outcome, code=130, names=["interrupted at t = "], within=2.0)
        require_rows(folder / "rows.arrows", at_least=50)
        require_served(site)
        return Seen(outcome.line.removeprefix("cosimo: "), outcome.took)


# ---- what does not fit together --------------------------------------------------------------------------------------


def refused(says: str, **worker: object) -> Trial:
    """The run is refused before its first step."""

    def trial(folder: Path, mode: str, number: int) -> Seen:
        with laboratory(folder) as site:
            begin_worker(site, **worker)
            outcome = run_there(site, "run", "s.toml", "--output-file", "rows.csv")
            require_contract(outcome, code=2, names=["'lab'", says])
            return Seen(outcome.line.removeprefix("cosimo: "))

    return trial


def joined(site: Site, host: int) -> subprocess.Popen[str]:
    """A worker 'lab' on a host, once it has joined."""
    worker = begin_worker(site, host=host)
    assert worker.stderr is not None
    while "has joined the broker" not in worker.stderr.readline():
        assert worker.poll() is None
    return worker


def second_of_one_name(folder: Path, mode: str, number: int) -> Seen:
    """A worker 'lab' joins, on another host than the first one: it ends, and the first one serves."""
    with laboratory(folder) as site, own_broker(site):
        joined(site, 1)
        second = joined(site, 2)
        assert second.stderr is not None
        (line,) = second.stderr.read().splitlines()
        assert (second.wait(30), "another worker 'lab'" in line) == (2, True), line
        require_served(site)
        return Seen(line.removeprefix("cosimo: "))


def two_of_one_name(folder: Path, mode: str, number: int) -> Seen:
    """A worker hangs, another takes its name, and the first one goes on: the run is refused."""
    with laboratory(folder) as site, own_broker(site):
        first = joined(site, 1)
        signal_all(first, signal.SIGSTOP)
        joined(site, 2)
        time.sleep(PATIENCE + 0.5)  # for so long it would leave
        signal_all(first, signal.SIGCONT)
        outcome = run_there(site, "run", "s.toml", "--output-file", "rows.csv")
        require_contract(outcome, code=2, names=["2 workers", "are called 'lab'"])
        return Seen(outcome.line.removeprefix("cosimo: "))


def another_clock(folder: Path, mode: str, number: int) -> Seen:
    """The worker's clock is a day ahead, and has run for a day longer: the rows are those of one machine."""
    with laboratory(folder, stop=0.5) as site:
        (folder / "clock.c").write_text(CLOCK)
        shim = folder / "clock.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(shim), str(folder / "clock.c")], check=True)
        later = ["unshare", "--time", "--monotonic", "86400", "--boottime", "86400", "--fork", "--kill-child"]
        worker = begin_worker(site, program=[*later, *COSIMO], environment={"LD_PRELOAD": str(shim)})
        require_served(site)
        os.kill(processes_of(worker)[1], signal.SIGTERM)  # unshare itself does not hear it
        return Seen("clocks play no part: the rows of one machine, to the last bit")
