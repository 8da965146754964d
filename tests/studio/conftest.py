"""A studio that is served, as a user starts it."""

from __future__ import annotations

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

from processes import COSIMO, Popen

PATIENCE = 120.0
"""Seconds after which a studio that does not answer is given up."""


@dataclass
class Served:
    """A studio at an address; `process` is its process."""

    address: str
    process: Any

    @property
    def host(self) -> str:
        return self.address.split("/")[2]

    @property
    def token(self) -> str:
        return self.address.split("/")[3]

    def socket(self, **changed: Any) -> ClientConnection:
        """A connection as the page makes it, with what is `changed`."""
        given = {"origin": f"http://{self.host}", "max_size": None, "open_timeout": PATIENCE, **changed}
        address = given.pop("address", self.address.replace("http", "ws") + "live")
        return connect(address, **given)


def receive(socket: ClientConnection, kind: str, **wanted: Any) -> dict[str, Any]:
    """The next message of this kind; an error where the studio says one first."""
    while True:
        text = socket.recv(timeout=PATIENCE)
        if isinstance(text, bytes):
            continue
        message: dict[str, Any] = json.loads(text)
        if message["kind"] == kind and all(message[name] == value for name, value in wanted.items()):
            return message
        assert message["kind"] != "error", message


@contextmanager
def served(folder: Path, *words: str) -> Iterator[Served]:
    """A studio, ended by Ctrl-C; Windows sends that only to processes at the same console, and it is killed."""
    process = Popen([*COSIMO, "studio", *words, "--no-browser"], cwd=folder, stdout=-1, text=True)
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", process.stdout.readline())
        assert found is not None
        yield Served(found[0], process)
        if sys.platform != "win32":
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait(PATIENCE)
        process.stdout.close()


@pytest.fixture
def studio(tmp_path: Path) -> Callable[..., Any]:
    return lambda *words: served(tmp_path, *words)
