"""One bar on a terminal for all that takes long: a run, pilot runs, a search, a study.

What is going on only notes how far it is (`Meter`). `show` draws it five times per second, in a thread that starts
after a delay, so that short runs pay nothing and a unit that takes a minute for one step does not look like a program
that hangs. Afterwards nothing is left of the bar.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cosimo.core.formatting import percent, step_text
from cosimo.core.result import Warned

if TYPE_CHECKING:
    from rich.console import Console

DELAY = 0.6
"""Seconds before anything is shown of a run: most runs are over by then."""
WAITING = 1.0
"""Seconds without a macro step after which it is said who is being waited for."""
RECENT = 40
"""Drawings (five per second) over which speed is averaged."""
ASKED = 1.0
"""Seconds between two questions for warnings."""


class Meter:
    """What a bar shows: `done` of `total` (None where that is not known: it moves to and fro), and a line beside it.

    `console` is the open drawing, for lines that are to stay; None while nothing is drawn. `standing` is what was told
    last, by calling the meter.
    """

    console: Console | None = None
    standing: Any = None
    done: float = 0
    total: float | None = None

    def __init__(self) -> None:
        self.begin = self.heard = time.monotonic()

    def __call__(self, standing: Any) -> None:
        self.standing, self.heard = standing, time.monotonic()

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.begin

    def line(self) -> str:
        """What is said beside the bar."""
        raise NotImplementedError


P = TypeVar("P", bound=Meter)


@contextmanager
def show(progress: P, *, console: Console | None = None, delay: float = 0.0) -> Iterator[P]:
    """Draw on `console` (standard error) while the block runs, once it has run for `delay` seconds."""
    drawn: list[Any] = []
    lock, closed = threading.Lock(), threading.Event()

    def open_bar() -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, ProgressColumn, Task
        from rich.text import Text

        class Line(ProgressColumn):
            def render(self, task: Task) -> Text:
                bar.update(task.id, completed=progress.done, total=progress.total)
                return Text(progress.line())

        with lock:
            if closed.is_set():
                return
            where = console or Console(stderr=True)
            bar = Progress(BarColumn(bar_width=24), Line(), console=where, transient=True, refresh_per_second=5)
            bar.add_task("", total=progress.total)
            bar.start()
            drawn.append(bar)
            progress.console = bar.console

    timer = threading.Timer(delay, open_bar)
    timer.daemon = True
    timer.start()
    try:
        yield progress
    finally:
        timer.cancel()
        with lock:
            closed.set()
            progress.console = None
            for bar in drawn:
                bar.stop()


@contextmanager
def show_on_terminal(progress: P, *, shown: bool = True, delay: float = 0.0) -> Iterator[P | None]:
    """Draw on standard error; nothing, and None, where that is no terminal or the bar is not to be `shown`."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    with show(progress, delay=delay):
        yield progress


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


class Watched(Protocol):
    """A run that can be asked while it goes on."""

    def warnings_now(self) -> list[Warned]:
        """What there is to warn of so far; to be asked between two macro steps."""

    def busy(self) -> str | None:
        """The unit that is at work, where that is known; may be asked from another thread."""


class RunProgress(Meter):
    """What `run(progress=…)` calls: simulated time."""

    def __init__(self, start: float, stop: float, step: float) -> None:
        super().__init__()
        self.start, self.stop, self.step, self.reached = start, stop, step, start
        self.warnings: list[Warned] = []
        self._recent: deque[tuple[float, float]] = deque([(self.begin, start)], maxlen=RECENT)
        self._watched: Watched | None = None
        self._asked, self._told = self.begin + DELAY, False

    def __call__(self, reached: float, stop: float) -> None:  # type: ignore[override]  # told often: two plain numbers
        """Note how far the run is; from time to time, ask it for warnings."""
        self.reached, self.stop = reached, stop
        now = self.heard = time.monotonic()
        if self.console is not None and now >= self._asked and self._watched is not None:
            self._asked = now + ASKED
            self.warnings = self._watched.warnings_now()
            # Growth is said first and once, at once; of other warnings the number changes while the run goes on.
            if self.warnings and not self._told and self.warnings[0].grows:
                self._told = True
                self.console.print(f"warning: {self.warnings[0]}", style="yellow", highlight=False, markup=False)

    def watch(self, watched: Watched) -> None:
        """Called by the run before its first macro step."""
        self._watched = watched

    @property
    def done(self) -> float:  # type: ignore[override]
        return self.reached - self.start

    @property
    def total(self) -> float:  # type: ignore[override]
        return self.stop - self.start

    def _speed(self) -> str:
        """Simulated seconds per second over the last drawings, macro steps per second, and the time left."""
        now = time.monotonic()
        self._recent.append((now, self.reached))
        then, before = self._recent[0]
        factor = (self.reached - before) / max(now - then, 1e-9)
        if factor <= 0.0:
            factor = self.done / max(now - self.begin, 1e-9)
        left = (self.stop - self.reached) / factor if factor > 0 else math.inf
        return f"×{factor:.3g} real time, {factor / self.step:,.0f} steps/s, {clock(left)} left"

    def line(self) -> str:
        """Time, speed, time left, warnings so far, and the unit that is being waited for."""
        parts = [f"t = {self.reached:.4g} of {self.stop:.4g} s", self._speed()]
        if self.warnings:
            parts.append(f"{len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}")
        silent = time.monotonic() - self.heard
        if silent > WAITING:
            unit = self._watched.busy() if self._watched is not None else None
            parts.append(f"⌛ waiting for {f'unit {unit!r}' if unit else 'a step'} for {clock(silent)}")
        return ", ".join(parts)


class PilotProgress(Meter):
    """What `analyse(progress=…)` calls: how many pilot runs were made, and how many of their seconds are used."""

    @property
    def total(self) -> float | None:  # type: ignore[override]
        """Seconds that pilot runs may take; None where they are not limited so."""
        return self.standing.allowed if self.standing and math.isfinite(self.standing.allowed) else None

    @property
    def done(self) -> float:  # type: ignore[override]
        """Seconds that pilot runs took, the one that is being made included."""
        if self.standing is None:
            return 0.0
        running = time.monotonic() - self.heard if self.standing.running else 0.0
        return float(self.standing.seconds + running)

    def line(self) -> str:
        if self.standing is None:
            return "measuring how the units respond"
        runs = self.standing.runs
        made = f"confirming by short runs: {runs} made, {self.done:.1f}"
        return f"{made} s" if self.total is None else f"{made} of at most {self.total:g} s"


class SearchProgress(Meter):
    """What `tune(progress=…)` calls: candidates tried and the best of them so far, or pilot runs."""

    def __init__(self, evaluations: int) -> None:
        super().__init__()
        self.total: float | None = evaluations
        self._evaluations, self._pilots = evaluations, PilotProgress()

    def __call__(self, standing: Any) -> None:
        super().__call__(standing)
        if hasattr(standing, "hypervolume"):
            self.done, self.total = standing.evaluations, self._evaluations
        else:  # pilot runs; asking for their class would load the analysis
            self._pilots(standing)
            self.done, self.total = self._pilots.done, self._pilots.total

    def line(self) -> str:
        """Candidates tried, error and step of the best so far, and the time."""
        now, spent = self.standing, clock(self.spent)
        if not hasattr(now, "hypervolume"):
            self.done = self._pilots.done
            return f"{self._pilots.line()}, {spent}"
        tried = f"tried {now.evaluations:,} of {self._evaluations:,}"
        best = f"; best so far: {percent(now.error)} error at {step_text(now.step)}" if now.error == now.error else ""
        return f"{tried}{best}, {spent}"


class StudyProgress(Meter):
    """What `run_study(progress=…)` calls: runs, how many of them have no result, and the time left."""

    _before = 0

    def __call__(self, standing: Any) -> None:
        """Note how far the study is; one that is resumed begins with rows."""
        self._before = self._before if self.standing else standing.done
        super().__call__(standing)
        self.done, self.total = standing.done, standing.total

    def line(self) -> str:
        """Runs, time since the start, and time left at the speed so far."""
        now, spent = self.standing, self.spent
        if now is None:
            return "runs"
        made = now.done - self._before
        left = clock(spent / made * (now.total - now.done) if made else math.inf)
        return f"{now.done}/{now.total} runs, {now.failed} without result, {clock(spent)}, {left} left"
