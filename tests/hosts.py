"""Hosts on this machine for tests, faults and benchmarks: network namespaces with a link that delays or drops packets,
and a `Site` of workers, on such hosts or on the loopback device."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.processes import COSIMO, Popen, run

TOKEN = "a token of the tests"
ENTER = """
import ctypes, os, sys
namespace = os.open(sys.argv.pop(1), os.O_RDONLY)
assert ctypes.CDLL(None).setns(namespace, 0x40000000) == 0
os.close(namespace)
from cosimo.cli import main
main()
"""
SOURCE = Path(__file__).with_name("network.c")


class Network:
    """Namespaces 0 … `count` − 1 with the addresses 10.25.0.1, … (`network.c`); needs root and /dev/net/tun."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._folder = tempfile.TemporaryDirectory(prefix="network-")
        program = str(Path(self._folder.name, "network"))
        subprocess.run(["cc", "-O2", "-o", program, str(SOURCE)], check=True)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._link = subprocess.Popen([program, str(count)], **pipes)  # type: ignore[call-overload]
        self._namespaces = self._link.stdout.readline().split()
        assert len(self._namespaces) == count, "namespaces with tun devices cannot be made here"

    def on(self, host: int, command: Sequence[str]) -> list[str]:
        """The command on this host."""
        namespace = f"/proc/{self._link.pid}/fd/{self._namespaces[host]}"
        if list(command[:3]) == COSIMO:  # as a fork (`processes.py`)
            return [sys.executable, "-c", ENTER, namespace, *command[3:]]
        return ["nsenter", f"--net={namespace}", *command]

    def address(self, host: int) -> str:
        return f"10.25.0.{host + 1}"

    def set(self, words: str) -> None:
        """`latency SECONDS` one way between any two hosts; `cut HOST`; `mend HOST`."""
        self._link.stdin.write(words + "\n")
        self._link.stdin.flush()

    def close(self) -> None:
        """Without the link there are no devices; programs there are not ended."""
        self._link.stdin.close()
        self._link.wait()
        self._link.stdout.close()
        self._folder.cleanup()


class Site:
    """A folder, a broker's address, and the workers that were started for it: worker k on host k, runs on host 0."""

    def __init__(self, folder: Path, network: Network | None = None) -> None:
        address = "127.0.0.1" if network is None else network.address(0)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.folder, self.network, self.broker, self.workers = folder, network, f"{address}:{port}", list[Popen]()
        (folder / "token").write_text(TOKEN)

    def table(self, core: str = "zmq", patience: float = 3.0) -> str:
        """The table of hosts in a scenario."""
        return (
            f'[hosts]\nbroker = "{self.broker}"\ncore = "{core}"\ntoken-file = "token"\n'
            f"patience = {patience}\nwait = 60.0\n"
        )

    def on(self, host: int, command: Sequence[str]) -> list[str]:
        """The command on a host of the network, if there is one."""
        return list(command) if self.network is None else self.network.on(host, command)

    def worker(
        self,
        name: str,
        *words: str,
        host: int = 1,
        program: Sequence[str] = COSIMO,
        environment: Mapping[str, str] | None = None,
    ) -> Popen:
        """Start a worker, in a session of its own."""
        command = [*program, "worker", "--broker", self.broker, "--name", name, "--patience", "3", *words]
        started = Popen(
            self.on(host, [*command, "--cache", f"cache{host}"]),
            cwd=self.folder,
            env={**os.environ, "COSIMO_TOKEN": TOKEN, **(environment or {})},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.workers.append(started)
        return started

    def cosimo(self, *words: str) -> tuple[int, str]:
        """Exit code and standard error of a command on host 0."""
        done = run(self.on(0, [*COSIMO, *words]), cwd=self.folder, capture_output=True, text=True, timeout=300)
        return done.returncode, done.stderr.strip()

    def close(self) -> list[str]:
        """End all workers; what they have said."""
        for worker in self.workers:
            worker.terminate()
        return [worker.communicate(timeout=60)[1] for worker in self.workers]


def processes_of(worker: subprocess.Popen[str]) -> list[int]:
    """A process and its descendants."""
    found = [worker.pid]
    for pid in found:
        listed = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
        found += map(int, listed.stdout.split())
    return found


def is_running(pid: int) -> bool:
    """Whether the process is there, and not only waits to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
