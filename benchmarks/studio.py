"""The studio in Chromium: from the slider to the painted verdict, frames per second, memory of a long run."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from tests.reporting.browser import Page, chromium

from benchmarks.measure import Table
from cosimo.formats.export import SuggestedExperiment, export_system
from cosimo.problems import two_mass

BROWSER = os.environ.get("CHROMIUM", "chromium")
MOVES = 200
"""Movements of the slider over positions that are there."""
SETTINGS = 15
"""New settings, each with `FIRST` movements at once to positions that nobody has computed."""
FIRST = 4
ROWS = int(os.environ.get("ROWS", "10_000_000"))
"""Rows of the long run; an hour at 10^5 rows per second has 3.6e8."""

WATCH = """(() => {
  window.took = []; let began = null;
  const slider = document.getElementById('step'), root = document.documentElement;
  slider.addEventListener('keydown', (event) => { began = event.timeStamp; }, true);
  new MutationObserver(() => {
    if (!root.dataset.shown || began === null) return;
    const since = began, after = new MessageChannel();
    began = null;
    after.port1.onmessage = () => window.took.push(performance.now() - since);
    after.port2.postMessage(0);
  }).observe(root, { attributes: true, attributeFilter: ['data-shown'] });
  slider.focus();
})()"""
KEYS = {"ArrowLeft": 37, "ArrowRight": 39, "PageUp": 33, "PageDown": 34}


@contextmanager
def opened(folder: Path, *words: str) -> Iterator[tuple[Page, subprocess.Popen[str]]]:
    """A page of a studio that was just started, and the studio."""
    command = [sys.executable, "-m", "cosimo.cli", "studio", *words, "--no-browser"]
    studio = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    try:
        assert studio.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", studio.stdout.readline())
        assert found is not None
        with chromium(BROWSER) as page:
            page.call("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
            page.call("Page.navigate", url=found[0])
            page.wait("document.documentElement?.dataset.full")
            yield page, studio
    finally:
        studio.send_signal(signal.SIGINT)
        studio.wait(60)


def press(page: Page, key: str) -> None:
    """A key on the slider; returns when what it leads to is painted."""
    before = page.ask("window.took.length")
    words = {"key": key, "code": key, "windowsVirtualKeyCode": KEYS[key]}
    page.call("Input.dispatchKeyEvent", type="rawKeyDown", **words)
    page.call("Input.dispatchKeyEvent", type="keyUp", **words)
    page.wait(f"window.took.length > {before}")


def sized(values: list[float]) -> str:
    """Median and 95 %, in ms."""
    middle, high = np.quantile(values, (0.5, 0.95))
    return f"{middle:.0f}, {high:.0f}"


def latency() -> Table:
    """From the event of the slider to the painted verdict."""
    columns = (
        "states",
        "position is there / ms",
        "of it processor / ms",
        "first look / ms",
        "all positions after / s",
        "wanted / ms",
    )
    note = (
        f"Median and 95 % of {MOVES} and {SETTINGS * FIRST} movements by keys: from the event's own time until the "
        "page has painted verdict, bars and charts. A first look is computed by the server."
    )
    table = Table("Studio: slider to painted verdict", columns, note)
    for states, wanted in ((20, 16), (100, 50)):
        chain = "chain", "--set", f"n={states // 2}"
        with tempfile.TemporaryDirectory() as name, opened(Path(name), *chain) as (page, _):
            begin = time.monotonic()
            page.wait("document.documentElement.dataset.filled")
            filled = time.monotonic() - begin
            page.ask(WATCH)
            busy = page.busy()
            for move in range(MOVES):
                press(page, "ArrowRight" if move // 20 % 2 else "ArrowLeft")
            there, busy = page.ask("window.took"), 1e3 * (page.busy() - busy) / MOVES
            page.ask("window.took = []")
            for trial in range(SETTINGS):
                change = f"i.value = '{10 + 0.01 * (trial + 1)}'; i.dispatchEvent(new Event('change'));"
                page.ask(f"(() => {{ const i = document.getElementById('stop'); {change} }})()")
                page.wait("document.documentElement.dataset.shown")
                for _ in range(FIRST):
                    press(page, "PageUp" if trial % 2 else "PageDown")
            first = sized(page.ask("window.took"))
            table.add(states, sized(there), f"{busy:.1f}", first, f"{filled:.1f}", wanted)
    return table


FRAMES = """new Promise((done) => {
  const times = [], charts = [...document.querySelectorAll('#run-charts canvas')];
  const next = (now) => {
    times.push(now);
    for (const one of charts) one.redraw?.();
    times.length > COUNT ? done(times) : requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
})"""


def frames() -> Table:
    """Frames per second with the rows of a run on the page."""
    note = "Every frame draws both charts of the run anew. Median of the intervals, and the longest of 95 %."
    table = Table("Studio: frames with a run", ("rows", "frames per second", "95 % / ms", "processor time / ms"), note)
    with tempfile.TemporaryDirectory() as name:
        Path(name, "pair.toml").write_text('problem = "two-mass"\nstep-size = 2e-5\nstop-time = 20\n')
        with opened(Path(name), "pair.toml") as (page, _):
            page.ask("document.getElementById('runs').scrollIntoView()")
            page.ask("document.getElementById('run').click()")
            page.wait("document.getElementById('run-list').textContent.includes('done')")
            page.wait("Number(document.querySelector('#run-charts canvas')?.dataset.points) > 4000")
            busy = page.busy()
            gaps = np.diff(page.ask(FRAMES.replace("COUNT", "240")))
            busy = 1e3 * (page.busy() - busy) / len(gaps)
            table.add("1,000,001", f"{1e3 / np.median(gaps):.0f}", f"{np.quantile(gaps, 0.95):.0f}", f"{busy:.1f}")
    return table


def newcomer() -> Table:
    """Two FMUs dropped onto an empty page become a coupling that can be trusted."""
    note = "Wall time from the opened page on; the actions are made at once when what they need is on the page."
    table = Table("Studio: a newcomer with two FMUs", ("after action", "seconds", "the page says"), note)
    full = "document.documentElement.dataset.full && document.getElementById('evidence').textContent"
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as name, opened(Path(name)) as (page, _):
        usual = SuggestedExperiment(step=1e-3, stop=5.0)
        fmus = [str(file) for file in export_system(two_mass(), Path(made), fmi=2, experiment=usual).values()]
        begin, data = time.monotonic(), {"items": [], "files": fmus, "dragOperationsMask": 1}
        for kind in ("dragEnter", "dragOver", "drop"):
            page.call("Input.dispatchDragEvent", type=kind, x=600, y=500, data=data)
        text = "document.getElementById('{}').textContent.includes('{}')"
        for action, script, then in (
            ("1 drop two FMUs", "0", text.format("command", "system.toml")),
            (
                "2 change the sign of the force",
                "[...document.querySelectorAll('#proposals button')].at(-1).click()",
                text.format("proposals", "is written"),
            ),
            ("3 take the recommendation", "document.getElementById('take').click()", text.format("lines", "hold1")),
        ):
            page.ask(script)
            page.wait(then)
            page.wait(full)
            said = page.ask(f"document.getElementById('headline').textContent + '. ' + ({full})")
            table.add(action, f"{time.monotonic() - begin:.1f}", said)
    return table


def memory() -> Table:
    """Memory of the studio and of its page over a long run."""
    table = Table("Studio: memory over a run", ("rows", "rows per second", "studio / MB", "page / MB"))
    with tempfile.TemporaryDirectory() as name:
        Path(name, "pair.toml").write_text(f'problem = "two-mass"\nstep-size = 1e-3\nstop-time = {ROWS * 1e-6}\n')
        with opened(Path(name), "pair.toml") as (page, studio):
            start = {"kind": "run", "state": {"system": "pair.toml", "step": 1e-6}}
            address = "location.href.replace('http', 'ws').replace(/#.*/, '') + 'live'"
            told = (
                f"const s = new WebSocket({address}); s.onopen = () => {{ s.send('{json.dumps(start)}'); s.close(); }};"
            )
            page.ask(f"(() => {{ {told} }})()")
            begin, seen = time.monotonic(), 0
            while page.ask("!document.getElementById('run-list').textContent.includes('done')"):
                time.sleep(1)
                text = page.ask("document.querySelector('#run-list td:nth-child(4)')?.textContent ?? '0'")
                rows = int(str(text).replace(",", ""))
                if rows >= seen + ROWS // 8:
                    seen = rows
                    status = Path(f"/proc/{studio.pid}/status").read_text()
                    kept = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024
                    metrics = {one["name"]: one["value"] for one in page.call("Performance.getMetrics")["metrics"]}
                    rate = rows / (time.monotonic() - begin)
                    table.add(f"{rows:,}", f"{rate:,.0f}", f"{kept:.0f}", f"{metrics['JSHeapUsedSize'] / 1e6:.0f}")
    return table
