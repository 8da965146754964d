"""The verb `tune`, and its options: the space that is searched, and how."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from cosimo.cli.application import app
from cosimo.cli.console_output import present, say
from cosimo.cli.isolation_options import IsolationOptions
from cosimo.cli.option_groups import (
    Json,
    OptionGroup,
    SystemName,
    Texts,
    many,
    number,
    numbers,
    option,
    pairs,
    seconds,
    split,
    time_option,
)
from cosimo.cli.system_options import SystemChoice, require_file, write_advice
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, Interrupted

if TYPE_CHECKING:
    from cosimo.formats.scenario import Scenario
    from cosimo.tuning import Settings as SearchSettings
    from cosimo.tuning import Space, Tuned
    from cosimo.tuning.space import Steps


@dataclass(frozen=True)
class SpaceOptions(OptionGroup):
    """What is open, and the limits."""

    title: ClassVar[str | None] = "What is searched"
    step_size: Annotated[
        str | None, option("Step size: fixed 'H', one of 'H,H,…', or within 'LOW:HIGH'; default: searched.")
    ] = None
    masters: Annotated[str, option("Families to try, separated by commas: {tuned masters}.")] = (
        "jacobi,gauss-seidel,strang,iterative"
    )
    order: Annotated[str | None, option("A fixed calling order, 'a,b,c'; default: all distinct orders.")] = None
    groups: Annotated[Texts, many("Also try these groups, 'a,b;c': a and b step together.")] = None
    multiple: Annotated[Texts, many("Also try these multiples of the step, 'UNIT=N,UNIT=N'.")] = None
    sweeps: Annotated[str, option("Numbers of sweeps to try for iterative masters.")] = "2,3"
    couplings: Annotated[
        str | None, option("Couplings to try, separated by commas: {tuned couplings}; default: all.")
    ] = None
    coupling: Annotated[Texts, many("Other couplings for one input, 'UNIT.INPUT=hold0,hold1'.")] = None
    gains: Annotated[str, option("Range of the nepce gains.")] = "0:0.95"
    cannot_restore: Annotated[Texts, many("A unit that must not be rolled back.", metavar="UNIT")] = None
    compensation: Annotated[bool, option("Also try compensated masters, as by 'compensate'.")] = False
    max_cost: Annotated[float | None, option("Maximum cost of a simulated second.")] = None

    def space(self) -> Space:
        """The space that these options describe."""
        from cosimo.couplings import tuned_couplings
        from cosimo.tuning import Range, Space
        from cosimo.tuning.space import parse_kinds

        low, high = numbers("--gains", self.gains, ":", "LOW:HIGH", 2)
        kinds = {t: parse_kinds(split(words)) for t, _, words in (text.partition("=") for text in self.coupling or ())}
        return Space(
            steps=self._steps(),
            families=split(self.masters),
            order=split(self.order) if self.order else None,
            groups=tuple([split(group) for group in text.split(";")] for text in self.groups or ()),
            multiples=tuple(_by_unit("--multiple", text, int) for text in self.multiple or ()),
            sweeps=tuple(number("--sweeps", word, int, several=True) for word in split(self.sweeps)),
            kinds=parse_kinds(tuned_couplings() if self.couplings is None else split(self.couplings)),
            couplings=kinds,
            gains=Range(low, high),
            cannot_restore=tuple(self.cannot_restore or ()),
            compensation=self.compensation,
            max_cost=self.max_cost,
        )

    def _steps(self) -> Steps:
        from cosimo.tuning import Range

        if self.step_size is None:
            return None
        if ":" in self.step_size:
            low, high = numbers("--step-size", self.step_size, ":", "LOW:HIGH", 2, seconds)
            if not low > 0:
                raise ConfigurationError(f"--step-size expects a range of positive numbers, not '{self.step_size}'.")
            return Range(low, high)
        given = numbers("--step-size", self.step_size, kind=seconds)
        return given[0] if len(given) == 1 else given


@dataclass(frozen=True)
class SearchOptions(OptionGroup):
    """How to search, and what counts."""

    title: ClassVar[str | None] = "How"
    objectives: Annotated[str, option("Separated by commas: error, robustness, cost, radius, defect.")] = (
        "error,robustness,cost"
    )
    target_error: Annotated[
        float | None, option("The acceptable error as a fraction: 0.01 is 1 %.", "--target-error", "--max-error")
    ] = None
    min_robustness: Annotated[
        float, option("The change of unit dynamics that must stay stable, as a fraction: 0.25 is ± 25 %.")
    ] = 0.25
    evaluations: Annotated[int, option("Maximum number of candidates.")] = 2000
    seed: Annotated[int, option("Equal seeds give equal results.")] = 0
    method: Annotated[
        str, option("auto (local search from a grid), nsga2 or nsga3 (with pymoo), or grid (every point of a grid).")
    ] = "auto"
    weight: Annotated[Texts, many("UNIT=COST of one step of a unit; default 1.")] = None
    workers: Annotated[int, option("Number of workers that share the cost of units stepping in parallel.")] = 1
    measure_cost: Annotated[
        bool, option("Measure the run time of the units: cost in seconds per simulated second.")
    ] = False
    backend: Annotated[str, option("Array library: numpy, torch, cupy or auto.")] = "numpy"
    budget: Annotated[
        str | None, option("Budget of the pilot runs: seconds, or multiples of the run such as 50x; see 'analyse'.")
    ] = None
    resume: Annotated[
        Path | None, option("Store evaluations in this file and continue from it if it exists.", metavar="FILE")
    ] = None

    def settings(self, scenario: Scenario, step: float | None) -> SearchSettings:
        """For units that are identified at `step`; with `--measure-cost`, they are timed here."""
        from cosimo.tuning import Cost, Settings, Wanted, measured_weights

        weights = {unit: cost for text in self.weight or () for unit, cost in _by_unit("--weight", text).items()}
        if self.measure_cost:
            weights = {**measured_weights(scenario.system, step or 1e-3), **weights}
        error = scenario.target if self.target_error is None else self.target_error
        return Settings(
            method=cast(Any, self.method),
            cost=Cost(weights, self.workers),
            wanted=Wanted(error, self.min_robustness),
            backend=self.backend,
            resume=self.resume,
            identify_at=step,
        )


def _by_unit(option: str, text: str, kind: type[Any] = float) -> dict[str, Any]:
    given = pairs(option, split(text) or [text], "UNIT=NUMBER")
    return {unit: number(option, value, kind, several=True) for unit, value in given.items()}


@app.command()
def tune(
    target: SystemName,
    changes: SystemChoice,
    space: SpaceOptions,
    search: SearchOptions,
    isolation: IsolationOptions,
    verify: Annotated[
        int, option("Run the N best masters and compare predicted and measured errors.", metavar="N")
    ] = 0,
    stop_time: Annotated[float | None, time_option("Time until which errors are evaluated, in seconds.")] = None,
    goal: Annotated[
        str | None,
        option("Instead of a search: rates of the units for one output and its error.", metavar="OUTPUT=0.5%"),
    ] = None,
    figure: Annotated[
        Path | None, option("Plot the Pareto front to this file, such as front.png.", metavar="FILE")
    ] = None,
    write: Annotated[
        bool, option("Write the recommended master to the scenario file; keep a copy of the old file.")
    ] = False,
    json_: Json = False,
) -> None:
    """Search masters, step sizes and couplings: the Pareto front of accuracy, robustness and cost; recommend one."""
    from cosimo.reporting.pictures import draw_front
    from cosimo.reporting.pictures import require as require_figures

    searched = space.space()
    scenario = changes.load(target)
    scenario = scenario if stop_time is None else scenario.changed(stop=stop_time)
    if write:
        require_file(scenario)
    if goal is not None:
        _plan(scenario, goal, as_fields=json_)
        return
    if figure:
        require_figures()
    interrupted: Interrupted | None = None
    try:
        found = _tuned(scenario, searched, search, shown=not json_)
    except Interrupted as error:  # what was found until then is shown, and nothing more is computed
        interrupted, found = error, error.result
    found = replace(found, verified=found.verify(verify)) if verify and not interrupted else found
    drawn = str(draw_front(found, figure)) if figure else None
    if json_:
        ended = {"error": str(interrupted), "exit_code": interrupted.exit_code} if interrupted else {}
        say(found.fields() | {"figure": drawn, **ended})
    else:
        present(found.document, as_fields=False)
    if interrupted:
        raise interrupted
    if write:
        write_advice(scenario, found.recommendation)


def _plan(scenario: Scenario, text: str, *, as_fields: bool) -> None:
    """Steps where they matter to one output."""
    from cosimo.analysis.connections import plan_goal
    from cosimo.analysis.model import Model

    ((output, wanted),) = pairs("--goal", [text], "OUTPUT=ERROR, such as chassis.position=0.5%").items()
    share = number("--goal", wanted.removesuffix("%"), float) / (100 if wanted.endswith("%") else 1)
    model = Model(scenario.system, step=scenario.step, horizon=scenario.horizon, start=scenario.start)
    with closing(model.pilots):
        plan = plan_goal(model, output, share)
    present(plan.document, as_fields=as_fields)


def _tuned(scenario: Scenario, space: Space, search: SearchOptions, *, shown: bool) -> Tuned:
    from cosimo.analysis.pilots import Budget
    from cosimo.reporting.progress import SearchProgress, show_on_terminal

    settings = search.settings(scenario, max(space.given, default=scenario.step))
    budget = Budget.parse(search.budget) if search.budget is not None else None
    with show_on_terminal(SearchProgress(search.evaluations), shown=shown) as report:
        return scenario.tune(
            space,
            objectives=split(search.objectives),
            seed=search.seed,
            evaluations=search.evaluations,
            settings=settings,
            budget=budget,
            progress=report,
        )
