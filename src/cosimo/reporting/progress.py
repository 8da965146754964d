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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from cosimo.core.result import Warned

if TYPE_CHECKING:
    from rich.console import Console

    from cosimo.analysis.pilots import Standing as PilotStanding
    from cosimo.studies import StudyStanding
    from cosimo.tuning import Progress as SearchStanding

DELAY = 0.6
"""Seconds before anything is shown of a run: most runs are over by then."""
WAITING = 1.0
"""Seconds without a macro step after which it is said who is being waited for."""
RECENT = 40
"""Drawings (five per second) over which speed is averaged."""
ASKED = 1.0
"""Seconds between two questions for warnings."""


class Meter(Protocol):
    """What a bar shows. `console` is the open drawing, for lines that are to stay; None while nothing is drawn."""

    console: Console | None

    @property
    def done(self) -> float:
        """How much is done."""

    @property
    def total(self) -> float | None:
        """Of how much; None where that is not known: the bar then moves to and fro."""

    def line(self) -> str:
        """What is said beside the bar."""


P = TypeVar("P", bound=Meter)


@contextmanager
def show(progress: P, *, console: Console | None = None, delay: float = 0.0) -> Iterator[P]:
    """Draw on `console` (standard error) while the block runs, once it has run for `delay` seconds."""
    bar = _Bar(progress, console, delay)
    try:
        yield progress
    finally:
        bar.close()


@contextmanager
def show_on_terminal(progress: P, *, shown: bool = True, delay: float = 0.0) -> Iterator[P | None]:
    """Draw on standard error; nothing, and None, where that is no terminal or the bar is not to be `shown`."""
    if not (shown and sys.stderr.isatty()):
        yield None
        return
    with show(progress, delay=delay):
        yield progress


class _Bar:
    """Opens the drawing later, in a thread of its own."""

    def __init__(self, progress: Meter, console: Console | None, delay: float) -> None:
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
                bar.update(task.id, completed=progress.done, total=progress.total)
                return Text(progress.line())

        with self._lock:
            if self._closed:
                return
            console = self._console or Console(stderr=True)
            bar = Progress(BarColumn(bar_width=24), Line(), console=console, transient=True, refresh_per_second=5)
            bar.add_task("", total=progress.total)
            bar.start()
            self._drawn, progress.console = bar, bar.console

    def close(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._closed = True
            self._progress.console = None
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


# ---- a run -----------------------------------------------------------------------------------------------------------


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
    """What `run(progress=…)` calls."""

    def __init__(self, start: float, stop: float, step: float) -> None:
        self.start, self.stop, self.step, self.reached = start, stop, step, start
        self.begin = self.heard = time.monotonic()
        self.warnings: list[Warned] = []
        self.console: Console | None = None
        self._recent: deque[tuple[float, float]] = deque([(self.begin, start)], maxlen=RECENT)
        self._watched: Watched | None = None
        self._asked, self._told = self.begin + DELAY, 0

    def __call__(self, reached: float, stop: float) -> None:
        """Note how far the run is; from time to time, ask it for warnings."""
        self.reached, self.stop = reached, stop
        now = self.heard = time.monotonic()
        if self.console is not None and now >= self._asked and self._watched is not None:
            self._asked = now + ASKED
            self.warnings = self._watched.warnings_now()
            # Growth is said first and once, at once; of other warnings the number changes while the run goes on.
            if self.warnings and not self._told and self.warnings[0].grows:
                self._told = 1
                self.console.print(f"warning: {self.warnings[0]}", style="yellow", highlight=False, markup=False)

    def watch(self, watched: Watched) -> None:
        """Called by the run before its first macro step."""
        self._watched = watched

    @property
    def done(self) -> float:
        """Simulated seconds."""
        return self.reached - self.start

    @property
    def total(self) -> float:
        """Simulated seconds of the whole run."""
        return self.stop - self.start

    def speed(self) -> Speed:
        """Over the last seconds; called once per drawing."""
        now = time.monotonic()
        self._recent.append((now, self.reached))
        then, before = self._recent[0]
        factor = (self.reached - before) / max(now - then, 1e-9)
        if factor <= 0.0:
            factor = self.done / max(now - self.begin, 1e-9)
        return Speed(factor, factor / self.step, (self.stop - self.reached) / factor if factor > 0 else math.inf)

    def line(self) -> str:
        """Time, speed, time left, warnings so far, and the unit that is being waited for."""
        now = time.monotonic()
        parts = [f"t = {self.reached:.4g} of {self.stop:.4g} s", str(self.speed())]
        if self.warnings:
            parts.append(f"{len(self.warnings)} warning{'s' * (len(self.warnings) > 1)}")
        silent = now - self.heard
        if silent > WAITING:
            unit = self._watched.busy() if self._watched is not None else None
            parts.append(f"⌛ waiting for {f'unit {unit!r}' if unit else 'a step'} for {clock(silent)}")
        return ", ".join(parts)


# ---- pilot runs, searches, studies -----------------------------------------------------------------------------------


class PilotProgress:
    """What `analyse(progress=…)` calls: how many pilot runs were made, and how much of their budget is used."""

    def __init__(self) -> None:
        self.console: Console | None = None
        self.standing: PilotStanding | None = None
        self._heard = 0.0

    def __call__(self, standing: PilotStanding) -> None:
        """Note where pilot runs stand."""
        self.standing, self._heard = standing, time.monotonic()

    @property
    def total(self) -> float | None:
        """Seconds that pilot runs may take; None where they are not limited so."""
        return self.standing.allowed if self.standing and math.isfinite(self.standing.allowed) else None

    @property
    def done(self) -> float:
        """Seconds that pilot runs took, the one that is being made included."""
        if self.standing is None:
            return 0.0
        return self.standing.seconds + (time.monotonic() - self._heard if self.standing.running else 0.0)

    def line(self) -> str:
        """Runs and seconds."""
        if self.standing is None:
            return "identifying units"
        runs = self.standing.runs
        made = f"{runs} pilot run{'s' * (runs != 1)}, {self.done:.1f}"
        return f"{made} s" if self.total is None else f"{made} of {self.total:g} s"


class SearchProgress:
    """What `tune(progress=…)` calls: evaluations, the hypervolume of the front so far, and pilot runs."""

    def __init__(self, evaluations: int) -> None:
        self.console: Console | None = None
        self.begin, self._evaluations = time.monotonic(), evaluations
        self._search: SearchStanding | None = None
        self._pilots: PilotProgress | None = None

    def __call__(self, standing: SearchStanding | PilotStanding) -> None:
        """Note where the search, or its pilot runs, stand."""
        if not hasattr(standing, "hypervolume"):  # pilot runs; asking for their class would load the analysis
            self._pilots = self._pilots or PilotProgress()
            self._pilots(standing)
        else:
            self._search, self._pilots = cast("SearchStanding", standing), None

    @property
    def done(self) -> float:
        """Evaluations, or seconds of pilot runs."""
        return self._pilots.done if self._pilots else self._search.evaluations if self._search else 0

    @property
    def total(self) -> float | None:
        """Evaluations, or seconds, that are allowed."""
        return self._pilots.total if self._pilots else self._evaluations

    def line(self) -> str:
        """Stage, evaluations, points and hypervolume of the front, and the time."""
        if self._pilots is not None:
            return f"pilots: {self._pilots.line()}, {clock(time.monotonic() - self.begin)}"
        now, spent = self._search, clock(time.monotonic() - self.begin)
        if now is None:
            return f"grid, {spent}"
        front = f"front {now.front}, hypervolume {now.hypervolume:.4f}"
        return f"{now.stage}: {now.evaluations}/{self._evaluations}, {front}, {spent}"


class StudyProgress:
    """What `run_study(progress=…)` calls: runs, how many of them have no result, and the time left."""

    def __init__(self) -> None:
        self.console: Console | None = None
        self.begin = time.monotonic()
        self.standing: StudyStanding | None = None
        self._before = 0

    def __call__(self, standing: StudyStanding) -> None:
        """Note how far the study is."""
        self._before = self._before if self.standing else standing.done
        self.standing = standing

    @property
    def done(self) -> float:
        """Runs with a row."""
        return self.standing.done if self.standing else 0

    @property
    def total(self) -> float | None:
        """All runs."""
        return self.standing.total if self.standing else None

    def line(self) -> str:
        """Runs, time since the start, and time left at the speed so far."""
        now, spent = self.standing, time.monotonic() - self.begin
        if now is None:
            return "runs"
        made = now.done - self._before  # a study that is resumed begins with rows
        left = clock(spent / made * (now.total - now.done) if made else math.inf)
        return f"{now.done}/{now.total} runs, {now.failed} without result, {clock(spent)}, {left} left"
