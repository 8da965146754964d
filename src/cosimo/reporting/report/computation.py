"""What `cosimo report` works out for a system: tuning, compensation, runs beside a reference, a varied parameter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cosimo.analysis.analysing import analyse
from cosimo.analysis.model import AnalysisOptions, Model
from cosimo.analysis.recommendation import Wanted
from cosimo.analysis.trust import TARGET
from cosimo.analysis.truth import OutputErrors, output_errors
from cosimo.core import dataclass
from cosimo.core.arguments import duration
from cosimo.core.errors import ConfigurationError, CosimoError, RunError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.formats.results import read_result
from cosimo.masters.words import describe
from cosimo.reporting.progress import SearchProgress, show_on_terminal
from cosimo.reporting.report.contents import ReportedRun, Role, Variation, alternative

if TYPE_CHECKING:
    from cosimo.analysis.pilots import Standing
    from cosimo.tuning import Space, Tuned

FINER = 4
"""Rows of an exact reference per shortest macro step of the runs that are compared with it."""
MOST_ROWS = 400_000
WORTH = 10.0
"""Seconds that runs may take which nobody has asked for: as many as pilot runs may."""


@dataclass(frozen=True)
class Asked:
    """A system under a master from `start` to `stop`, and what is to be worked out for it.

    With `run` None it is run where that takes a few seconds.
    """

    system: System
    master: Master
    start: float = 0.0
    stop: float | None = None
    tune: bool = False
    space: Space | None = None
    evaluations: int = 600
    compensate: bool = False
    aim: Literal["monolithic", "exact", "converged"] = "monolithic"
    target: float = TARGET
    run: bool | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def horizon(self) -> float | None:
        """Seconds that are simulated or predicted."""
        return None if self.stop is None else duration(self.start, self.stop)


class Prepared(NamedTuple):
    """Ready for `report`: what it takes, what is known of the units, the run to compare with, seconds per step."""

    things: list[Any]
    model: Model
    reference: ReportedRun | None = None
    seconds: Mapping[str, float] = MappingProxyType({})


def prepare(asked: Asked, *, progress: Callable[[Standing], None] | None = None) -> Prepared:
    """Judge the system, and work out what is asked for; `progress` hears of pilot runs."""
    options = AnalysisOptions(asked.horizon, asked.start, asked.target, progress=progress)
    model = Model(asked.system, step=asked.master.step, options=options)
    verdict = analyse(asked.system, asked.master, model=model, options=options)
    things: list[Any] = [verdict]
    tuned = _tuned(asked) if asked.tune else None
    things += [tuned] if tuned is not None else []
    masters: dict[Role, Master] = {"given": asked.master}
    if other := alternative(tuned.recommendation if tuned is not None else verdict.recommendation, tuned):
        masters[other[0]] = other[1].master
    if asked.compensate:
        from cosimo.compensation import compensate

        things.append(compensate(asked.system, asked.master, target=asked.aim, model=model))
        masters["compensated"] = things[-1].master
    if asked.run is False:
        return Prepared(things, model)
    stop = asked.start + model.horizon if asked.stop is None else asked.stop
    seconds = _seconds(asked)
    if asked.run is None and _expected(seconds, masters, stop - asked.start) > WORTH:
        return Prepared(things, model, seconds=seconds)
    runs = [_run(asked, role, master, stop, model) for role, master in masters.items()]
    return Prepared([*things, *runs], model, _reference(asked, stop, list(masters.values())), seconds)


def _tuned(asked: Asked) -> Tuned:
    from cosimo.tuning import Settings, tune

    with show_on_terminal(SearchProgress(asked.evaluations)) as bar:
        return tune(
            asked.system,
            asked.space,
            evaluations=asked.evaluations,
            horizon=asked.horizon,
            start=asked.start,
            settings=Settings(wanted=Wanted(asked.target), identify_at=asked.master.step),
            progress=bar,
            present=asked.master,
        )


def _expected(seconds: Mapping[str, float], masters: Mapping[Role, Master], horizon: float) -> float:
    """Seconds that the runs will take, about; 0 where the units could not be timed."""
    return sum(seconds.values()) * sum(horizon / master.step for master in masters.values())


def _run(asked: Asked, role: Role, master: Master, stop: float, model: Model) -> ReportedRun:
    """A run with its measured errors; one that left the range of numbers has the rows before."""
    from cosimo.execution.running import run

    # A step that was found need not divide the time: the last step that fits ends the run, and nobody need be warned.
    whole = asked.start + int((stop - asked.start) / master.step * (1 + 1e-12)) * master.step
    end = stop if role == "given" else whole
    try:
        result = run(asked.system, master, start=asked.start, stop=end, record="all", metadata=asked.metadata)
    except RunError as error:
        if error.result is None:
            raise
        result = error.result
    return ReportedRun(f"{role}: {describe(master, asked.system)}", result, role, _measured(model, master, result))


def _measured(model: Model, master: Master, result: Result) -> OutputErrors | None:
    """The errors of the run; where equations are known by its own rows, else by pilot runs, which are remembered."""
    try:
        rows = result.values[:, : len(model.system.outputs)]
        if model.known and not model.rests and rows.shape == (truth := model.truth(master.step)).rows.shape:
            errors = output_errors(model.system, master, rows, truth, model.horizon, "measured", start=model.start)
        else:
            errors = model.measure(master).errors
    except CosimoError:
        return None  # there is no true solution to measure against
    return errors if errors.outputs else None


def _reference(asked: Asked, stop: float, masters: Sequence[Master]) -> ReportedRun | None:
    from cosimo.studies.trials import reference as reference_of

    steps = {master.step for master in masters}
    linear = all(unit.linear() is not None for unit in asked.system.units.values())
    step = min(steps)
    if linear and len(steps) > 1:
        step = max(step / FINER, (stop - asked.start) / MOST_ROWS)
    try:
        found = reference_of(asked.system, step=step, start=asked.start, stop=stop)
    except CosimoError:
        return None  # the system itself grows beyond all numbers, or its units cannot be run so finely
    return ReportedRun(f"{found.kind} solution", found.result, "reference")


def _seconds(asked: Asked) -> Mapping[str, float]:
    from cosimo.tuning import measured_weights

    try:
        return measured_weights(asked.system, asked.master.step)
    except Exception:  # a unit that is stepped by itself, away from the others, may raise whatever it likes
        return {}


def read_runs(paths: list[str]) -> list[ReportedRun]:
    """Result files as runs, named by their files and what ran in them."""
    found = []
    for path in paths:
        result = read_result(path)
        name = Path(path).name.removesuffix(".partial")
        master = f" ({result.info['master']})" if "master" in result.info else ""
        found.append(ReportedRun(f"{name}{master}{'' if result.complete else ', incomplete'}", result))
    return found


def parse_variation(text: str, build: Callable[[str, float], System], current: Mapping[str, float]) -> Variation:
    """NAME=a:b; `build(name, value)` makes the system with the parameter set."""
    name, equals, span = text.partition("=")
    low, colon, high = span.partition(":")
    try:
        if not (equals and colon):
            raise ValueError
        numbers = float(low), float(high)
    except ValueError:
        raise ConfigurationError(f"--parameter expects NAME=FROM:TO, such as kc=10:1000, not '{text}'.") from None
    name = name.strip()
    build(name, numbers[0])  # a parameter that nobody knows is refused at once
    return Variation(name, *numbers, lambda value: build(name, value), current.get(name))
