"""A real Chromium, driven through its DevTools protocol: pages are opened and used as a reader would."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

OPTIONS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-port=0")
PATIENCE = 120.0
"""Seconds after which a browser that does not answer is given up; a busy machine may take many of them."""
TROUBLE = ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Network.requestWillBeSent")


class Page:
    """One page; `trouble` is everything it logged, threw, or asked of the network."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.number, self.trouble = socket, 0, []  # type: ignore[var-annotated]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")
        self.trouble.clear()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE))
            if message.get("method") in TROUBLE:
                self._note(message["method"], message["params"])
            if message.get("id") == self.number:
                assert "error" not in message, message["error"]
                return message["result"]

    def _note(self, method: str, found: dict[str, Any]) -> None:
        address = found.get("request", {}).get("url", "")
        if not address.startswith(("file:", "data:", "blob:")) or method != "Network.requestWillBeSent":
            self.trouble.append(json.dumps(found)[:600])

    def open(self, path: Path, *, dark: bool = False, width: int = 1280, height: int = 800) -> float:
        """Open a page and wait until everything is drawn; the seconds of the processor that the page took for it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait("document.documentElement?.dataset.ready")
        return self.busy()

    def busy(self) -> float:
        """Seconds of the processor that the thread of this page has spent; other work on the machine is not in it."""
        measured = {each["name"]: each["value"] for each in self.call("Performance.getMetrics")["metrics"]}
        return float(measured["TaskDuration"])

    def ask(self, script: str) -> Any:
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, patience: float = PATIENCE) -> Any:
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if found := self.ask(script):
                return found
            time.sleep(0.03)
        shown = self.ask("document.body?.innerText.slice(0, 600)")
        raise AssertionError(f"never true: {script}; the page says {shown!r}; {self.trouble}")


@contextmanager
def chromium(program: str) -> Iterator[Page]:
    """A fresh browser, gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        command = [program, *OPTIONS, f"--user-data-dir={folder}", "about:blank"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with connect(_address(Path(folder)), max_size=None, open_timeout=PATIENCE) as socket:
                page = Page(socket)
                yield page
                page.call("Browser.close")
            process.wait(timeout=PATIENCE)
        finally:
            process.kill()
            process.wait()


def _address(folder: Path) -> str:
    told = folder / "DevToolsActivePort"
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        lines = told.read_text().split() if told.exists() else []
        if len(lines) == 2:
            with urllib.request.urlopen(f"http://127.0.0.1:{lines[0]}/json", timeout=PATIENCE) as answer:
                targets = json.load(answer)
            return str(next(target["webSocketDebuggerUrl"] for target in targets if target["type"] == "page"))
        time.sleep(0.03)
    raise AssertionError("chromium does not start")
