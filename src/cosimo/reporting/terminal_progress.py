"""Bars on a terminal: of a run, with speed, time left and warnings so far, and of pilot runs, with their budget.

The run only notes how far it is. A thread that starts after `DELAY` seconds draws, so that short runs pay nothing, and
a unit that takes a minute for one step does not look like a program that hangs.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cosimo.core.result import Warned

if TYPE_CHECKING:
    from rich.console import Console

    from cosimo.analysis.pilots import Standing

DELAY = 0.6
"""Seconds before anything is shown."""
WAITING = 1.0
"""Seconds without a macro step after which it is said who is being waited for."""
RECENT = 40
"""Drawings (five per second) over which speed is averaged."""
ASKED = 1.0
"""Seconds between two questions for warnings."""


class Watched(Protocol):
    """A run that can be asked while it goes on."""

    def warnings_now(self) -> list[Warned]:
        """What there is to warn of so far; to be asked between two macro steps."""

    def busy(self) -> str | None:
        """The unit that is at work, where that is known; may be asked from another thread."""


@dataclass(frozen=True)
class Speed:
    """How fast a run is: simulated seconds per second, macro steps per second, and seconds left."""

    factor: float
    steps: float
    left: float

    def __str__(self) -> str:
        return f"×{self.factor:.3g} real time, {self.steps:,.0f} steps/s, {clock(self.left)} left"


class RunProgress:
    """What `run(progress=…)` calls; `shown()` draws it."""

    def __init__(self, start: float, stop: float, step: float) -> None:
        self.start, self.stop, self.step, self.reached = start, stop, step, start
        self.begin = self.heard = time.monotonic()
        self.warnings: list[Warned] = []
        self._recent: deque[tuple[float, float]] = deque([(self.begin, start)], maxlen=RECENT)
        self._watched: Watched | None = None
        self._console: Console | None = None
        self._asked, self._told = self.begin + DELAY, 0

    def __call__(self, reached: float, stop: float) -> None:
        """Note how far the run is; from time to time, ask it for warnings."""
        self.reached, self.stop = reached, stop
        now = self.heard = time.monotonic()
        if self._console is not None and now >= self._asked and self._watched is not None:
            self._asked = now + ASKED
            self.warnings = self._watched.warnings_now()
            # Growth is said first and once, at once; of other warnings the number changes while the run goes on.
            if self.warnings and not self._told and self.warnings[0].grows:
                self._told = 1
                self._console.print(f"warning: {self.warnings[0]}", style="yellow", highlight=False, markup=False)

    def watch(self, watched: Watched) -> None:
        """Called by the run before its first macro step."""
        self._watched = watched

    @contextmanager
    def shown(self, console: Console | None = None, *, delay: float = DELAY) -> Iterator[RunProgress]:
        """Draw while the block runs, once it has run for `delay` seconds; afterwards nothing is left of it."""
        bar = _Bar(self, console, delay)
        try:
            yield self
        finally:
            bar.close()

    def speed(self) -> Speed:
        """Over the last seconds; called once per drawing."""
        now = time.monotonic()
        self._recent.append((now, self.reached))
        (then, before), total = self._recent[0], self.reached - self.start
        spent = max(now - then, 1e-9)
        factor = (self.reached - before) / spent
        if factor <= 0.0:
            factor = total / max(now - self.begin, 1e-9)
        return Speed(factor, factor / self.step, (self.stop - self.reached) / factor if factor > 0 else float("inf"))

    def line(self) -> str:
        """All that is said beside the bar."""
        now = time.monotonic()
        parts = [f"t = {self.reached:.4g} of {self.stop:.4g} s", str(self.speed())]
        if self.warnings:
            parts.append(f"{len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}")
        silent = now - self.heard
        if silent > WAITING:
            unit = self._watched.busy() if self._watched is not None else None
            parts.append(f"⌛ waiting for {f'unit {unit!r}' if unit else 'a step'} for {clock(silent)}")
        return ", ".join(parts)


@contextmanager
def run_progress(start: float, stop: float, step: float) -> Iterator[RunProgress | None]:
    """What to hand to `run(progress=…)`: a bar on standard error, or nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    with RunProgress(start, stop, step).shown() as progress:
        yield progress


class PilotProgress:
    """What `analyse(progress=…)` calls: how many pilot runs were made, and how much of their budget is used."""

    def __init__(self) -> None:
        self.standing: Standing | None = None
        self._heard = 0.0

    def __call__(self, standing: Standing) -> None:
        """Note where pilot runs stand."""
        self.standing, self._heard = standing, time.monotonic()

    @property
    def allowed(self) -> float | None:
        """Seconds that pilot runs may take; None where they are not limited so."""
        return self.standing.allowed if self.standing and math.isfinite(self.standing.allowed) else None

    @property
    def used(self) -> float:
        """Seconds that pilot runs took, the one that is being made included."""
        if self.standing is None:
            return 0.0
        return self.standing.seconds + (time.monotonic() - self._heard if self.standing.running else 0.0)

    def line(self) -> str:
        """What is said beside the bar."""
        if self.standing is None:
            return "identifying units"
        runs = self.standing.runs
        made = f"{runs} pilot run{'s' * (runs != 1)}, {self.used:.1f}"
        return f"{made} s" if self.allowed is None else f"{made} of {self.allowed:g} s"


@contextmanager
def pilot_progress(*, shown: bool) -> Iterator[PilotProgress | None]:
    """What to hand to `analyse(progress=…)`: a bar on standard error; nothing where that is no terminal."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task
    from rich.text import Text

    pilots = PilotProgress()

    class Line(ProgressColumn):
        def render(self, task: Task) -> Text:
            # Without a limit in seconds the bar moves to and fro.
            bar.update(task.id, completed=pilots.used, total=pilots.allowed)
            return Text(pilots.line())

    columns = (BarColumn(bar_width=24), Line())
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=5) as bar:
        bar.add_task("pilots", total=None)
        yield pilots


class _Bar:
    """Opens the drawing later, in a thread of its own."""

    def __init__(self, progress: RunProgress, console: Console | None, delay: float) -> None:
        self._progress, self._console = progress, console
        self._drawn: Any = None
        self._lock = threading.Lock()
        self._closed = False
        self._timer = threading.Timer(delay, self._open)
        self._timer.daemon = True
        self._timer.start()

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task
        from rich.text import Text

        progress = self._progress

        class Line(ProgressColumn):
            def render(self, task: Task) -> Text:
                bar.update(task.id, completed=progress.reached - progress.start, total=progress.stop - progress.start)
                return Text(progress.line())

        with self._lock:
            if self._closed:
                return
            console = self._console or Console(stderr=True)
            bar = Progress(BarColumn(bar_width=24), Line(), console=console, transient=True, refresh_per_second=5)
            bar.add_task("run", total=progress.stop - progress.start)
            bar.start()
            self._drawn, progress._console = bar, bar.console

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._progress._console = None
            if self._drawn is not None:
                self._drawn.stop()


def clock(seconds: float) -> str:
    """Minutes and seconds, hours where there are some.

    >>> clock(75.2), clock(3675.0), clock(float("inf"))
    ('1:15', '1:01:15', '?')
    """
    if not seconds < 1e9:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
