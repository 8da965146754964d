"""What `cosimo report` works out for a system: tuning, compensation, runs beside a reference, a varied parameter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cosimo.analysis.trust import TARGET
from cosimo.core.errors import ConfigurationError, CosimoError, RunError
from cosimo.core.formatting import step_text
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.formats.results import read_result
from cosimo.reporting.progress import SearchProgress, show_on_terminal
from cosimo.reporting.report.contents import Role, Run, Variation

if TYPE_CHECKING:
    from cosimo.analysis.model import Model
    from cosimo.analysis.truth import OutputErrors
    from cosimo.compensation import Compensation
    from cosimo.tuning import Space, Tuned

FINER = 4
"""Rows of an exact reference per shortest macro step of the runs that are compared with it."""
MOST_ROWS = 400_000


@dataclass(frozen=True)
class Asked:
    """A system under a master from `start` to `stop`, and what is to be worked out for it."""

    system: System
    master: Master
    start: float = 0.0
    stop: float | None = None
    tune: bool = False
    space: Space | None = None
    evaluations: int = 600
    compensate: bool = False
    aim: Literal["monolithic", "exact"] = "monolithic"
    target: float = TARGET
    run: bool = False
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def horizon(self) -> float | None:
        """Seconds that are simulated or predicted."""
        return None if self.stop is None else self.stop - self.start


class Prepared(NamedTuple):
    """All of it, ready for `report`: what it takes, the run to compare with, and seconds per step of each unit."""

    things: list[Any]
    reference: Run | None = None
    seconds: Mapping[str, float] = MappingProxyType({})


def prepare(asked: Asked) -> Prepared:
    """Work out what is asked for."""
    tuned = design = None
    if asked.tune:
        from cosimo.tuning import Settings, Wanted, tune

        # Without the optimisation library every point of a grid is tried instead.
        settings = Settings(method="auto" if find_spec("pymoo") else "grid")
        with show_on_terminal(SearchProgress(asked.evaluations)) as bar:
            tuned = tune(
                asked.system,
                asked.space,
                evaluations=asked.evaluations,
                horizon=asked.horizon,
                start=asked.start,
                settings=replace(settings, wanted=Wanted(asked.target), identify_at=asked.master.step),
                progress=bar,
                present=asked.master,
            )
    if asked.compensate:
        from cosimo.compensation import compensate

        design = compensate(asked.system, asked.master, target=asked.aim)
    found = [thing for thing in (tuned, design) if thing is not None]
    if not asked.run:
        return Prepared(found)
    if asked.stop is None:
        raise ConfigurationError("the system does not specify a stop time; give --stop-time.")
    runs = _runs(asked, asked.stop, tuned, design)
    return Prepared([*found, *runs], _reference(asked, asked.stop, tuned), _seconds(asked))


def _runs(asked: Asked, stop: float, tuned: Tuned | None, design: Compensation | None) -> Iterator[Run]:
    from cosimo.analysis.model import Model

    model = Model(asked.system, step=asked.master.step, horizon=asked.horizon, start=asked.start, identify=False)
    masters: list[tuple[Role, Master]] = [("given", asked.master)]
    masters += [("tuned", tuned.recommended)] if tuned is not None else []
    masters += [("compensated", design.master)] if design is not None else []
    for role, master in masters:
        # A tuned step need not divide the time: the last step that fits ends the run, and nobody need be warned.
        whole = asked.start + int((stop - asked.start) / master.step * (1 + 1e-12)) * master.step
        result = _run(asked, master, stop if role == "given" else whole)
        yield Run(f"{role}: {master.name}, {step_text(master.step)}", result, role, _measured(model, master))


def _measured(model: Model, master: Master) -> OutputErrors | None:
    try:
        errors = model.measure(master).errors
    except CosimoError:
        return None  # there is no true solution to measure against
    return errors if errors.outputs else None


def _run(asked: Asked, master: Master, stop: float) -> Result:
    """The rows; a run that left the range of numbers has those before."""
    from cosimo.execution.running import run

    try:
        return run(asked.system, master, start=asked.start, stop=stop, record="all", metadata=asked.metadata)
    except RunError as error:
        if error.result is None:
            raise
        return error.result


def _reference(asked: Asked, stop: float, tuned: Tuned | None) -> Run | None:
    from cosimo.studies.trials import reference as reference_of

    steps = [asked.master.step, *([tuned.recommended.step] if tuned else [])]
    linear = all(unit.linear() is not None for unit in asked.system.units.values())
    step = min(steps)
    if linear and len(set(steps)) > 1:
        step = max(step / FINER, (stop - asked.start) / MOST_ROWS)
    try:
        found = reference_of(asked.system, step=step, start=asked.start, stop=stop)
    except CosimoError:
        return None  # the system itself grows beyond all numbers, or its units cannot be run so finely
    return Run(f"{found.kind} solution", found.result, "reference")


def _seconds(asked: Asked) -> Mapping[str, float]:
    from cosimo.tuning import measured_weights

    try:
        return measured_weights(asked.system, asked.master.step)
    except Exception:  # a unit that is stepped by itself, away from the others, may raise whatever it likes
        return {}


def read_runs(paths: list[str]) -> list[Run]:
    """Result files as runs, named by their files and what ran in them."""
    found = []
    for path in paths:
        result = read_result(path)
        name = Path(path).name.removesuffix(".partial")
        master = f" ({result.info['master']})" if "master" in result.info else ""
        found.append(Run(f"{name}{master}{'' if result.complete else ', incomplete'}", result))
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
