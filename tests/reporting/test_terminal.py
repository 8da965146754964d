"""Colours, tables and the bar of a run."""

from __future__ import annotations

import io
import threading
import time

import pytest
from rich.console import Console

import cosimo as co
from cosimo.analysis.pilots import Standing as PilotStanding
from cosimo.core.document import Document, Mark, as_text, colourful, paint, paint_mark
from cosimo.core.result import Warned
from cosimo.execution.options import EngineOptions
from cosimo.reporting.progress import RunProgress, SearchProgress, StudyProgress, show, show_on_terminal
from cosimo.studies import StudyStanding
from cosimo.tuning import Progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return Screen()


def test_colours_only_on_a_terminal(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert paint("x", "red", stream=screen) == "\x1b[31mx\x1b[0m"
    assert paint("x", "red", stream=io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colourful(screen)
    assert paint("x", "red", stream=screen) == "x"


def test_dumb_terminals_get_plain_text(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert paint("x", "red", stream=screen) == "x"


@pytest.mark.parametrize(("mark", "code"), [("good", "32"), ("care", "33"), ("bad", "31;1"), ("open", "2")])
def test_a_headline_has_the_colour_of_its_mark(mark: Mark, code: str, screen: Screen) -> None:
    """Whatever the words are: a unit may be called 'unstable'."""
    document = Document("unstable", mark, "stable", ("NO stable unstable",), advice="does not hold")
    painted = as_text(document, paint=lambda text, mark: paint_mark(text, mark, screen))
    assert painted == f"\x1b[{code}munstable. stable.\x1b[0m\n  NO stable unstable\n  does not hold"
    plain = as_text(document, paint=lambda text, mark: paint_mark(text, mark, io.StringIO()))
    assert plain == as_text(document)


def test_nothing_is_drawn_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    with show_on_terminal(RunProgress(0.0, 1.0, 0.1)) as progress:
        assert progress is None
    assert capsys.readouterr().err == ""


class Asked:
    def __init__(self, *warnings: Warned) -> None:
        self.warnings, self.questions = list(warnings), 0

    def warnings_now(self) -> list[Warned]:
        self.questions += 1
        return self.warnings

    def busy(self) -> str | None:
        return "tyre"


def drawn(progress: RunProgress, watched: Asked, *words: str) -> str:
    """What a terminal shows while a run reports every 10 ms, until it has shown these words and been asked twice."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160, color_system=None)
    progress.watch(watched)
    with show(progress, console=console):
        progress._asked = 0.0
        end = time.monotonic() + 60.0
        while watched.questions < 2 or not all(word in screen.getvalue() for word in words):
            assert time.monotonic() < end, screen.getvalue()
            progress(min(progress.stop, progress.reached + progress.step), progress.stop)
            time.sleep(0.01)
    return screen.getvalue()


def test_the_bar_shows_time_speed_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine may take seconds until the next step.
    monkeypatch.setattr("cosimo.reporting.progress.WAITING", 30.0)
    progress = RunProgress(0.0, 100.0, 0.01)
    shown = drawn(progress, Asked(), "of 100 s", "real time", "steps/s", "left")
    assert "waiting" not in shown


def test_growth_is_said_at_once_and_once() -> None:
    watched = Asked(Warned("two.v doubles", 0.3, grows=True), Warned("bond", 1.0))
    shown = drawn(RunProgress(0.0, 100.0, 0.01), watched, "2 warnings")
    assert shown.count("warning: t = 0.3: two.v doubles") == 1


def test_other_warnings_wait_until_the_run_is_over() -> None:
    shown = drawn(RunProgress(0.0, 100.0, 0.01), Asked(Warned("a value grows old", 0.3)), "1 warning")
    assert "warning: " not in shown
    assert "1 warning" in shown


def test_a_short_run_is_asked_nothing_and_draws_nothing() -> None:
    screen = io.StringIO()
    watched = Asked(Warned("x doubles", 0.0, grows=True))
    progress = RunProgress(0.0, 1.0, 0.001)
    progress.watch(watched)
    with show(progress, console=Console(file=screen, force_terminal=True), delay=60.0):
        for k in range(1000):
            progress(k * 0.001, 1.0)
    assert screen.getvalue() == ""
    assert watched.questions == 0


def test_a_call_costs_next_to_nothing() -> None:
    progress = RunProgress(0.0, 1.0, 0.001)
    begin = time.process_time()
    for k in range(100_000):
        progress(k * 1e-5, 1.0)
    assert time.process_time() - begin < 1.0, "more than 10 µs per call"


def test_a_silent_run_says_for_whom_it_waits() -> None:
    progress = RunProgress(0.0, 10.0, 0.01)
    progress.watch(Asked())
    progress.heard -= 75.0
    assert "⌛ waiting for unit 'tyre' for 1:15" in progress.line()


def test_searches_tell_their_front_and_pilot_runs_their_budget() -> None:
    progress = SearchProgress(200)
    assert (progress.done, progress.total) == (0, 200)
    assert progress.line().startswith("measuring how the units respond, 0:0")
    progress(Progress("search", 50, 200, 7, 0.123456))
    assert (progress.done, progress.total) == (50, 200)
    assert progress.line().startswith("tried 50 of 200, 0:0"), "nothing is good enough to be told"
    progress(Progress("search", 687, 2000, 7, 0.123456, 0.004, 2e-3))
    assert progress.line().startswith("tried 687 of 200; best so far: 0.4 % error at 2 ms, 0:0")
    progress(PilotStanding(3, 1.25, 60.0, False))
    assert (progress.done, progress.total) == (1.25, 60.0)
    assert progress.line().startswith("confirming by short runs: 3 made, 1.2 of at most 60 s, 0:0")


def test_studies_tell_what_is_left_at_the_speed_of_this_session() -> None:
    progress = StudyProgress()
    progress.begin -= 75.0
    progress(StudyStanding(100, 400, 0))
    assert progress.line() == "100/400 runs, 0 without result, 1:15, ? left"
    progress(StudyStanding(200, 400, 2))
    assert (progress.done, progress.total) == (200, 400)
    assert progress.line() == "200/400 runs, 2 without result, 1:15, 2:30 left"


@pytest.mark.parametrize("kind", ["kernel", "reference"])
def test_a_run_can_be_asked_while_it_goes_on(kind: str) -> None:
    """Warnings so far, without changing what is found at the end."""
    system = co.problems.two_mass()
    master = co.masters.jacobi(system, 4e-3)
    seen: list[list[Warned]] = []

    class Watching:
        run: RunProgress

        def watch(self, run: RunProgress) -> None:
            self.run = run

        def __call__(self, reached: float, stop: float) -> None:
            if kind == "kernel" or round(reached / 4e-3) % 501 == 0:
                seen.append(self.run.warnings_now())  # type: ignore[attr-defined]

    options = EngineOptions(kind=kind)  # type: ignore[arg-type]
    stop = {"kernel": 40.0, "reference": 12.0}[kind]
    watched = co.run(system, master, stop=stop, engine=options, progress=Watching())
    plain = co.run(system, master, stop=stop, engine=options)
    assert watched.warnings == plain.warnings
    assert watched.info["monitors"] == plain.info["monitors"]
    assert any(now[0].grows and "two.v of unit 'two' grows" in now[0].message for now in seen if now)


def test_the_kernel_knows_who_is_at_work() -> None:
    class Quick:
        inputs, outputs, y = ("u",), ("y",), 0.0

        def step(self, at: float, duration: float) -> None:
            pass

    class Slow(Quick):
        def step(self, at: float, duration: float) -> None:
            at_work.set()
            asked.wait(60)

    found: list[str | None] = []
    at_work, asked = threading.Event(), threading.Event()

    class Watching:
        def watch(self, run: RunProgress) -> None:
            self.asking = threading.Thread(target=self.ask, args=(run,))
            self.asking.start()

        def ask(self, run: RunProgress) -> None:
            at_work.wait(60)
            found.append(run.busy())  # type: ignore[attr-defined]
            asked.set()

        def __call__(self, reached: float, stop: float) -> None:
            pass

    units = {"quick": co.PythonUnit(Quick), "slow": co.PythonUnit(Slow)}
    system = co.System(units, [("quick.y", "slow.u"), ("slow.y", "quick.u")])
    watching = Watching()
    co.run(system, co.masters.jacobi(system, 0.1), stop=1.0, progress=watching)
    watching.asking.join()
    assert found == ["slow"]
