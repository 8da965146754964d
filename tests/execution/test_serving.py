"""Units on other hosts, on loopback: the same bits as on one machine, and what is said when a host is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.hosts import Site, is_running, processes_of
from tests.processes import COSIMO, Popen, run

from cosimo.core import guarding
from cosimo.core.errors import ConfigurationError, StepDiscarded, UnsafeInputError
from cosimo.core.plain import from_bytes, to_bytes
from cosimo.execution import serving
from cosimo.execution.serving import Serving, serve
from cosimo.units.remote import HELLO, PLAIN, WELCOME, Hosts, RemoteInstance, Seal, failure, greeting, raise_failure

SCENARIO = """
step-size = 0.001
stop-time = {stop}
connections = [
  "two.x -> one.x2",
  "two.v -> one.v2",
  {{ from = "one.f", to = "two.f", gain = -1.0 }},
]
[units.one]
fmu = "fmus/one.fmu"
[units.two]
fmu = "fmus/two.fmu"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two FMUs."""
    folder = tmp_path_factory.mktemp("hosts")
    run([*COSIMO, "export", "two-mass", "-o", "fmus"], cwd=folder, check=True, capture_output=True)
    return folder


class Pair(Site):
    """A site for two masses as FMUs."""

    def scenario(self, hosts: dict[str, str], stop: float) -> str:
        """The file of a scenario with these units on these hosts."""
        text = SCENARIO.format(stop=stop)
        for unit, host in hosts.items():
            text = text.replace(f'"fmus/{unit}.fmu"', f'"fmus/{unit}.fmu"\nhost = "{host}"')
        name = f"{'-'.join(hosts) or 'local'}.toml"
        (self.folder / name).write_text(text + (self.table() if hosts else ""))
        return name


@pytest.fixture
def site(folder: Path) -> Iterator[Pair]:
    site = Pair(folder)
    yield site
    site.close()


def test_rows_on_two_hosts_are_those_of_one_machine(site: Pair) -> None:
    site.worker("a")
    site.worker("b")
    there, here = site.scenario({"one": "a", "two": "b"}, 0.02), site.scenario({}, 0.02)
    for words in ("--master jacobi", "--master gauss-seidel --coupling hold1", "--master iterative --tolerance 1e-8"):
        assert site.cosimo("run", here, "-o", "here.csv", "-q", *words.split()) == (0, "")
        assert site.cosimo("run", there, "-o", "there.csv", "-q", *words.split()) == (0, "")
        assert (site.folder / "there.csv").read_bytes() == (site.folder / "here.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize(("count", "latency", "core"), [(2, 0.005, "zmq"), (2, 0.0, "tcp"), (8, 0.005, "zmq")])
def test_rows_on_hosts_with_latency_are_those_of_one_machine(count: int, latency: float, core: str) -> None:
    """Every host is a network namespace; Jacobi, Gauss–Seidel, iterative with rollback, compensated."""
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from benchmarks.hosts import MASTERS, compared, hosts, write_chain

    with hosts(count, core) as (network, site):
        write_chain(site.folder, count, site.table(core))
        compared(network, site, dict.fromkeys(MASTERS, 20), latency)  # which compares the rows


@pytest.mark.slow
def test_a_run_goes_on_after_its_worker_was_killed(site: Pair) -> None:
    worker, stop = site.worker("b"), 3.0
    there, here = site.scenario({"two": "b"}, stop), site.scenario({}, stop)
    command = [*COSIMO, "run", there, "-o", "kept.csv", "--checkpoint-every", "0.02"]
    with Popen(command, cwd=site.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as going:
        while not (site.folder / "kept.csv.checkpoint").exists() and going.poll() is None:
            time.sleep(0.01)
        pids = processes_of(worker)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        _, said = going.communicate(timeout=120)
    assert going.returncode == 4, said
    assert re.search(r"two · \w+ · t = [\d.]+ s · – · host 'b' has not answered for \d+ s", said), said
    assert not any(is_running(pid) for pid in pids)
    site.worker("b")
    assert site.cosimo("resume", "kept.csv", "-q")[0] == 0
    site.cosimo("run", here, "-o", "whole.csv", "-q")
    assert (site.folder / "kept.csv").read_bytes() == (site.folder / "whole.csv").read_bytes()


def test_another_token_is_refused(site: Pair) -> None:
    scenario = site.scenario({"two": "b"}, 0.02)
    site.worker("b", environment={"COSIMO_TOKEN": "the token of somebody else"})
    code, said = site.cosimo("run", scenario, "-o", "no.csv")
    assert (code, "host 'b' refuses this run: it has another token" in said) == (2, True), said


def test_messages_cannot_be_forged_repeated_or_moved() -> None:
    one, two, other = Seal(b"k" * 32, 7), Seal(b"k" * 32, 7, worker=True), Seal(b"k" * 32, 8, worker=True)
    assert one.open(one.seal(PLAIN, 3, b"x")) is None  # sent back to its sender
    message = one.seal(PLAIN, 3, b"content")
    assert other.open(message) is None
    assert two.open(message[:-1] + bytes([message[-1] ^ 1])) is None
    assert two.open(message[:20] + b"x" + message[21:]) is None
    opened = two.open(message)
    assert opened is not None
    assert opened.content == b"content"
    assert two.open(message) is None


def test_errors_travel_with_what_they_know() -> None:
    told = from_bytes(to_bytes(failure(StepDiscarded("it stops.", 0.25), "doStep")))
    with pytest.raises(StepDiscarded, match=r"host 'lab3': it stops\.") as found:
        raise_failure(told, "lab3")
    assert (found.value.last_successful_time, found.value.phase) == (0.25, "doStep")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"broker": "lab3"}, "written ADDRESS:PORT"),
        ({"broker": "lab3:99999"}, "written ADDRESS:PORT"),
        ({"broker": "lab3:1", "core": "udp"}, "unknown core type 'udp'"),
        ({"broker": "lab3:1", "wait": 0.0}, "'wait' of hosts is 0"),
    ],
)
def test_hosts_are_checked(given: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        Hosts(**given)  # type: ignore[arg-type]


def test_a_token_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSIMO_TOKEN", "short")
    with pytest.raises(ConfigurationError, match="at least 16 characters in the environment variable COSIMO_TOKEN"):
        Hosts("127.0.0.1:1").token()


def test_a_file_must_be_what_its_name_says(tmp_path: Path) -> None:
    from cosimo.execution.serving import _Served

    served = _Served.__new__(_Served)
    served._taken, served._blobs = {}, {}
    with pytest.raises(UnsafeInputError, match="changed on its way"):
        served._take("0" * 64, 0, 3, b"abc")
    with pytest.raises(UnsafeInputError, match="larger than"):
        served._take("0" * 64, 0, 2**40, b"abc")
    with pytest.raises(UnsafeInputError, match="SHA-256"):
        served._file("../../etc/passwd", 3)


def test_a_run_that_greets_while_the_worker_joins_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The greeting is there before the worker listens."""
    hello, sent = Seal(b"k" * 32, 7), list[tuple[str, bytes]]()

    class Link:
        def __init__(self, hosts: Hosts, name: str, deliver: Callable[[str, bytes], None]) -> None:
            self.name, self._deliver = name, deliver

        def listen(self) -> None:
            self._deliver("run", hello.seal(HELLO, 0, to_bytes(greeting())))

        def send(self, target: str, message: bytes) -> None:
            sent.append((target, message))

        def others(self) -> list[str]:
            return ["run", self.name]

    monkeypatch.setattr(serving, "HelicsLink", Link)
    how = Serving(Hosts("127.0.0.1:1"), "lab", folder=tmp_path, say=lambda text: None)
    serving._Worker(how, b"k" * 32, tmp_path, 0)
    ((target, message),) = sent
    opened = hello.open(message)
    assert opened is not None
    assert (target, opened.kind) == ("run", WELCOME)


def test_a_unit_whose_step_was_interrupted_is_closed_without_its_answer() -> None:
    """The answer of the step would be taken for that of the closing."""
    sent: list[bytes] = []

    class Connection:
        going = True

        def send(self, host: object, kind: int, unit: int, content: bytes) -> None:
            sent.append(content)

        def wait(self, host: object, unit: int) -> None:
            raise KeyboardInterrupt if len(sent) == 1 else AssertionError("an answer is awaited")

    instance = RemoteInstance.__new__(RemoteInstance)
    vars(instance).update(_connection=Connection(), _host=SimpleNamespace(left=False), _number=1, _queue=[], _freed=[])
    vars(instance).update(_awaited=False, _closed=False, _failed=None)
    with pytest.raises(KeyboardInterrupt):
        instance.step(0.0, 0.1)
    instance.close()
    assert from_bytes(sent[-1]) == {"do": "close"}


@pytest.mark.parametrize(
    ("answers", "sessions", "age", "second"),
    [(True, {}, -1.0, True), (False, {}, -1.0, False), (True, {7: None}, -1.0, False), (True, {}, 1.0, False)],
)
def test_the_second_worker_of_a_name_leaves(answers: bool, sessions: dict[int, None], age: float, second: bool) -> None:
    """If the first one answers; not one that serves a run already, or was there for longer than its patience."""
    from cosimo.execution.serving import _Worker

    pulse = SimpleNamespace(silent=lambda name: 0.0, has_answered=lambda name: answers)
    worker = _Worker.__new__(_Worker)
    worker._sessions, worker._before = sessions, ["cosimo-worker.lab.1"]  # type: ignore[assignment]
    worker._settled, worker.link = time.monotonic() - 60 * age, SimpleNamespace(pulse=pulse)  # type: ignore[assignment]
    assert worker._is_second() is second


@pytest.mark.parametrize(
    ("parent", "alive", "orphan"), [(os.getppid(), True, False), (os.getppid(), False, True), (-1, True, True)]
)
def test_a_worker_whose_parent_is_gone_is_an_orphan(
    parent: int, alive: bool, orphan: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Windows the number of the parent stays when that has gone."""
    monkeypatch.setattr("multiprocessing.parent_process", lambda: SimpleNamespace(is_alive=lambda: alive))
    worker = serving._Worker.__new__(serving._Worker)
    worker._parent = parent
    assert worker._is_orphan() is orphan


def test_an_interrupt_that_got_lost_ends_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that came while the process of a broker was started, where Python loses what handlers raise."""
    monkeypatch.setenv("COSIMO_TOKEN", "of this test, long enough")
    monkeypatch.setattr(guarding._Present, "interrupted", False)
    with pytest.raises(KeyboardInterrupt):
        guarding.interrupt()
    with pytest.raises(KeyboardInterrupt):
        serve(Serving(Hosts("127.0.0.1:1"), "a", folder=tmp_path))
