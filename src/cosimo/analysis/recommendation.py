"""One recommender: which master to use, by the same candidates, costs, errors and words for `analyse` and `tune`.

Candidates are the usual masters (Jacobi, Gauss–Seidel in all orders that differ, two sweeps of an iteration where all
units can restore their states), with held inputs and, where units take slopes, linear extrapolation, at round steps.
Where a unit cannot go back, also Jacobi with compensated inputs (`cosimo.compensate`), if that is cheaper than all of
these: identified models must pass their checks, and runs of the units confirm it.
Of systems of more states than `FEW` only Jacobi is tried, and Gauss–Seidel in the order of the system where Φ is a full
matrix; their errors show first whether they are stable, and robustness is not looked for.
`tune` searches far more; its front contains these, so that what `tune` recommends `analyse` keeps.

Rule. Of the points that are stable, within the target error and robust enough, the cheapest; of those that cost at most
25 % more, the most robust, then the most accurate. The present master is kept if it meets the target, unless another
that does is at least 1.5 × cheaper.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from itertools import groupby, takewhile

import numpy as np

from cosimo.analysis.cost import Cost
from cosimo.analysis.critical import EigenvalueSizes
from cosimo.analysis.limits import SWEEPS, orders
from cosimo.analysis.model import Model
from cosimo.analysis.robustness import relative_radius
from cosimo.analysis.spectrum import Spectrum, sweep_factor
from cosimo.analysis.stability import is_stable
from cosimo.analysis.truth import OutputErrors, Truth, step_range
from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError, CosimoError
from cosimo.core.formatting import DIVERGED, amount, percent, robustness_text, step_text
from cosimo.core.master import Master
from cosimo.core.result import TARGET
from cosimo.core.schedule import Convergence, Repeat
from cosimo.core.system import System
from cosimo.couplings import SUBSTEPS, Hold
from cosimo.masters import gauss_seidel, iterative, jacobi, strang
from cosimo.masters.words import command_options, describe, scenario_lines

ABOUT = 1.25
"""Costs up to this factor count as equal when the cheapest is chosen."""
CHEAPER = 1.5
"""How many times cheaper another master must be to be advised where the present one meets the target."""
MARGIN = 0.97
"""Part of the target that the search asks for: full errors differ a little from those of the search."""
HOPEFUL = 1.5
"""How much better than its order a master may do from one step to a shorter one."""
CONFIRMATIONS = 6
"""Points that are judged in full before the search gives up."""
ENOUGH_ROBUST = 1.0
"""Beyond a change of ± 100 % robustness counts alike in the choice."""
FEW = 60
"""States up to which all usual masters are tried, and their robustness: many Φ cost more than the runs beyond."""
MOST_NUMBERS = 8e6
"""States times macro steps that an error of a system of more states is followed over: about half a second."""
HALVINGS = 6
"""How often the present step is halved where candidates must be run."""


@dataclass(frozen=True)
class Wanted:
    """What is good enough: the error of the worst output, and the change of the units that must not matter."""

    error: float = TARGET
    robustness: float = 0.25

    def __post_init__(self) -> None:
        if not (self.error > 0 and self.robustness >= 0):
            raise ConfigurationError(
                "the target error must be positive, and the target robustness must not be negative."
            )


@dataclass(frozen=True)
class Point:
    """A master and what is known of it: `errors` of its outputs, `robustness` (relative radius), `cost` per simulated
    second, `radius` ρ(Φ), `defect` δ; None or NaN where not computed. `cheaper` is how many times cheaper it is than
    plain Jacobi at the same error.
    """

    master: Master
    stable: bool | None
    errors: OutputErrors | None = None
    robustness: float = math.nan
    cost: float = math.nan
    radius: float = math.nan
    defect: float = math.nan
    cheaper: float = math.nan
    system: System | None = field(default=None, repr=False, compare=False)

    @property
    def error(self) -> float:
        """The error of the worst output; NaN where it is not known."""
        return self.errors.worst if self.errors is not None else math.nan

    @property
    def outputs(self) -> Mapping[str, float]:
        """The errors of all outputs that move; none where they are not known."""
        return self.errors.outputs if self.errors is not None else {}

    @property
    def within(self) -> str:
        """How wrong it is, in words."""
        until = self.errors.until if self.errors is not None else "the end"
        return f"every output within {percent(self.error)} until {until}"

    @property
    def step(self) -> float:
        """The macro step in seconds."""
        return self.master.step

    @property
    def name(self) -> str:
        """The master, with its step."""
        return describe(self.master, self.system)

    @property
    def words(self) -> str:
        """The master, without its step."""
        return describe(self.master, self.system, step=False)

    @property
    def options(self) -> str:
        """The options of the command line; empty where there are none."""
        return command_options(self.master, self.system)

    @property
    def sentence(self) -> str:
        """The point in plain words."""
        facts = [] if self.stable is not False else ["UNSTABLE"]
        if self.errors is not None:
            facts.append(f"error {percent(self.error)} ({self.errors.kind})")
        if not math.isnan(self.robustness) and self.stable:
            facts.append(f"stable for changes of {robustness_text(self.robustness)} in rates and gains of the units")
        if not math.isnan(self.defect):
            facts += [f"ρ {self.radius:.6g}", f"δ {self.defect:.6g}"]
        if self.cheaper >= 1.1:
            facts.append(f"{amount(self.cheaper)} × cheaper than Jacobi with held inputs at the same error")
        return f"{self.name}: {', '.join(facts)}"

    def meets(self, wanted: Wanted, *, grows: bool = False) -> bool:
        """Whether it is bounded (or the system itself grows), accurate and, where that is known, robust enough."""
        robust = not self.robustness < wanted.robustness
        settled = self.errors is not None and not self.errors.unsettled
        return (self.stable is not False or grows) and settled and self.error <= wanted.error and robust


@dataclass(frozen=True)
class Recommendation:
    """The recommendation: `text` in words; `keep` the present master, or use `master`; None where none was found.

    `error` is that of the worst output then; `output` names one whose errors before and after can be compared.
    `options` and `lines` write the master for the command line and for a scenario file, empty where it is kept.
    """

    text: str
    keep: bool = False
    name: str | None = None
    step_size: float | None = None
    error: float | None = None
    output: str | None = None
    output_error_before: float | None = None
    output_error: float | None = None
    cost: float | None = None
    cost_before: float | None = None
    options: str = ""
    lines: str = ""
    point: Point | None = field(default=None, repr=False, compare=False)

    @property
    def master(self) -> Master | None:
        """The master to use; None where none was found, or where this was read from a file."""
        return self.point.master if self.point is not None else None

    @property
    def better(self) -> Point | None:
        """What to use instead of the present master; None where that is kept, or nothing was found."""
        return None if self.keep else self.point

    def fields(self) -> dict[str, object]:
        """For JSON."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "point"}


def _recommendation(text: str, point: Point | None, present: Point | None, *, keep: bool = False) -> Recommendation:
    before = present.cost if present else None
    if point is None:
        return Recommendation(text, keep, cost_before=before)
    output = _output(point, present)
    return Recommendation(
        text,
        keep,
        name=point.master.name,
        step_size=point.step,
        error=point.error,
        output=output,
        output_error_before=present.outputs.get(output) if present else None,
        output_error=point.outputs.get(output),
        cost=point.cost,
        cost_before=before,
        options="" if keep else point.options,
        lines="" if keep else scenario_lines(point.master, point.system),
        point=point,
    )


def choose(points: Sequence[Point], wanted: Wanted, *, grows: bool = False) -> Point | None:
    """The point to recommend among those that are good enough; None where none is."""
    good = [point for point in points if point.meets(wanted, grows=grows)]
    if not good:
        return None
    least = min(point.cost for point in good)
    near = [point for point in good if point.cost <= ABOUT * least]
    return min(near, key=_preference)


def _preference(point: Point) -> tuple[float, float, float, float, int, str]:
    """What `choose` sorts by. Figures that read the same count alike before costs do; what is alike in all figures is
    told apart by its words, so that the choice does not depend on the order in which points were found.
    """
    robust = 0.0 if math.isnan(point.robustness) else round(min(point.robustness, ENOUGH_ROBUST), 2)
    said, exact = (float(f"{point.error:.{digits}g}") for digits in (2, 6))
    words = point.options
    return -robust, said, point.cost, exact, len(words), words


def recommend(
    points: Sequence[Point],
    present: Point | None,
    wanted: Wanted,
    *,
    grows: bool = False,
    searched: str = "",
    untried: str = "",
) -> Recommendation:
    """The recommendation: keep the present master, or change to the best of the `points`.

    A system at the edge of stability has no robust master; one that is accurate is still better than none. Where none
    is good enough, `searched` says where it was looked for, and `untried` what might do; alone it says why none was.
    """
    best = choose(points, wanted, grows=grows) or choose(points, replace(wanted, robustness=0.0), grows=grows)
    if present is not None and present.meets(replace(wanted, robustness=0.0), grows=grows):
        if best is None or not present.cost >= CHEAPER * best.cost:
            return _recommendation(f"keep {present.name}: {present.within}.", present, present, keep=True)
        text = f"use {best.name}: {_effect(best, present)}{_price(best, present)}.{_models(best)}"
        return _recommendation(text, best, present)
    if best is None and not searched and untried:
        return _recommendation(f"{untried}.", None, present)
    if best is None:
        where = f" {searched}" if searched else ""
        hint = untried or "the units' own solvers, or outputs that jump, may set this limit"
        missed = f"no master was found that keeps every output within {percent(wanted.error)}{where}; {hint}."
        return _recommendation(missed, None, present)
    frail = ""
    if best.robustness < wanted.robustness:
        change = f"± {percent(wanted.robustness)} in rates and gains of the units"
        frail = f" No accurate master was found that stays stable for changes of {change}."
    text = f"use {best.name}: {_effect(best, present)}{_price(best, present)}.{_models(best)}{frail}"
    return _recommendation(text, best, present)


def _models(best: Point) -> str:
    """What compensated inputs rest on."""
    if not best.master.mixers or math.isnan(best.robustness):
        return ""
    most = f"{percent(min(best.robustness, ENOUGH_ROBUST))}{' at least' * math.isinf(best.robustness)}"
    return f" Inputs are corrected by models of the units: stable for errors of their rates and gains up to {most}."


def untried_step(errors: Mapping[float, float], order: float | None, wanted: Wanted) -> str:
    """What the `errors` of the present master at other steps say of a step that was not judged; empty where nothing.

    >>> untried_step({0.1: 0.3, 0.05: 0.004, 0.025: 0.002}, 1.0, Wanted())
    'the present master kept every output within 0.4 % in a pilot run with steps of 50 ms: try --step-size 0.05'
    """
    steps = sorted(errors)
    good = list(takewhile(lambda step: errors[step] <= MARGIN * wanted.error, steps))
    if good:
        did = f"kept every output within {percent(errors[good[-1]])} in a pilot run with steps of {step_text(good[-1])}"
        return f"the present master {did}: try --step-size {good[-1]:g}"
    if not steps or (step := step_by_order(steps[0], errors[steps[0]], order, wanted)) is None:
        return ""
    needs = f"the present master needs steps of about {step_text(step)}"
    return f"by the order at which its error falls, {needs}: try --step-size {step:g}"


def step_by_order(step: float, error: float, order: float | None, wanted: Wanted) -> float | None:
    """The round step at which an error that falls as h^order meets the target; None where the order says nothing.

    >>> step_by_order(100.0, 0.19, 1.03, Wanted())
    5.0
    """
    if order is None or not 0.6 <= order <= 6 or not wanted.error < error < 1:
        return None
    needed = step * (MARGIN * wanted.error / error) ** (1 / order)
    return round_steps(needed / 3, needed)[0]


def _price(best: Point, present: Point | None) -> str:
    if present is None or not present.cost > 0 or not math.isfinite(best.cost / present.cost):
        return ""
    ratio = best.cost / present.cost
    if abs(ratio - 1) <= 0.005:
        return ", at the same cost"
    return f", at {amount(ratio)} × the cost" if ratio > 1 else f", {amount(1 / ratio)} × cheaper"


def _output(best: Point, present: Point | None) -> str:
    """The output whose error is told before and after: the one that is worst now."""
    if present is not None and present.errors is not None and present.errors.output in best.outputs:
        return present.errors.output
    return best.errors.output if best.errors is not None else ""


def _effect(best: Point, present: Point | None) -> str:
    name = _output(best, present)
    if present is None or name not in present.outputs or name not in best.outputs:
        return best.within
    before = present.outputs[name]
    instead = percent(before) if before < DIVERGED else "diverging"
    return f"{best.within} ({name} {percent(best.outputs[name])} instead of {instead})"


# ---- judging one master ----------------------------------------------------------------------------------------------


def judge_point(
    model: Model,
    master: Master,
    cost: Cost,
    *,
    robust: bool = True,
    limit: float = 1.0,
    shells: int = 16,
    errors: OutputErrors | None = None,
) -> Point:
    """All that the choice needs of one master: predicted where the model can be believed, else measured by runs.

    Robustness is looked for up to the change `limit`, at so many `shells` (see `relative_radius`), of systems of up to
    `FEW` states. `errors`: what `model` predicts, where that is known already.
    """
    price = master_cost(model, master, cost)
    if model.valid:
        here = model.checked(master.step)
        model, errors = here, errors if here is model else None  # of other units than those at this step
        # Where units are others in the parts of a macro step that they are stepped by, only a run tells: so they are
        # where their solvers' errors depend on the step.
        part = min(master.durations.values())
        divided = part < master.step * (1 - 1e-9)
        if model.valid and (model.checked(part) is not model or (divided and not model.local.exact)):
            model = model.distrusted()
    if not model.valid:
        pilot = model.pilots.of(master)
        return Point(master, pilot.bounded, pilot.errors, cost=price, system=model.system)
    spectrum = model.spectrum(master)
    stable = model.stability(master).stable
    errors = errors or model.predict(master)
    margin = math.nan
    # Changed rates are other steps: where conversion to these misleads, nothing is known.
    if robust and model.states <= FEW and not model.conversion_misleads(master.step):
        margin = relative_radius(model.at(master.step), master, limit=limit, shells=shells).change if stable else 0.0
    radius = spectrum.radius if isinstance(spectrum, Spectrum) else math.nan
    return Point(master, stable, errors, float(margin), price, radius, system=model.system)


def master_cost(model: Model, master: Master, cost: Cost) -> float:
    """The cost of a master; of an iteration until convergence with the sweeps that it is expected to take."""
    repeats = [op.times for op in master.schedule.operations if isinstance(op, Repeat)]
    until = next((times for times in repeats if isinstance(times, Convergence)), None)
    if until is not None and cost.sweeps is None:
        cost = replace(cost, sweeps=_sweeps(model, master, until))
    return cost.per_second(model.system, master)


def _sweeps(model: Model, master: Master, until: Convergence) -> float:
    """How many sweeps it takes: as it was run, else the tolerance by the factor per sweep, within its limit."""
    if (taken := model.pilots.sweeps(master)) is not None:
        return taken
    try:
        factor = sweep_factor(model.linear(master)) if model.valid else None
    except CosimoError:
        factor = None
    if factor is not None and until.quasi_newton:
        return 2.0  # a correction, and the sweep that confirms it
    if factor is None or not 0 < factor < 1:
        return float(until.limit if factor is None or factor >= 1 else 1)
    return float(min(max(math.ceil(math.log(until.tolerance) / math.log(factor)), 1), until.limit))


# ---- the usual candidates --------------------------------------------------------------------------------------------


def few_masters(model: Model, step: float) -> Iterator[Master]:
    """Of the usual masters those that are tried of systems of many states."""
    for hold in _holds(model.system):
        yield jacobi(model.system, step, coupling=hold)
        if model.large is None and len(model.system.units) > 1:
            yield gauss_seidel(model.system, step, coupling=hold)


def _holds(system: System) -> tuple[Hold, ...]:
    takes_slopes = any(unit.input_degree > 0 for unit in system.units.values())
    return (Hold(0), Hold(1)) if takes_slopes else (Hold(0),)


def usual_masters(system: System, step: float) -> Iterator[Master]:
    """The usual masters that the units of the system can be run with, at one step."""
    restores = all(unit.can_restore for unit in system.units.values())
    for hold in _holds(system):
        yield jacobi(system, step, coupling=hold)
        if len(system.units) > 1:
            for order in orders(system):
                yield gauss_seidel(system, step, order=order, coupling=hold)
        if restores:
            yield iterative(system, step, sweeps=SWEEPS, coupling=hold)
    # Order 2 without slopes and without restored states; straight lines in substeps where units take any step.
    if len(system.units) > 1:
        for order in orders(system):
            yield strang(system, step, order=order)
        if len(_holds(system)) == 1 and all(unit.variable_step for unit in system.units.values()):
            yield jacobi(system, step, coupling=Hold(1, substeps=SUBSTEPS))


def round_steps(shortest: float, longest: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two steps, longest first.

    >>> round_steps(0.03, 0.7)
    [0.5, 0.2, 0.1, 0.05]
    """
    powers = range(math.ceil(math.log10(longest)), math.floor(math.log10(shortest)) - 1, -1)
    steps = [float(f"{digit}e{power}") for power in powers for digit in (5, 2, 1)]
    return [step for step in steps if shortest * (1 - 1e-9) <= step <= longest * (1 + 1e-9)]


def searched_steps(model: Model) -> tuple[list[float], bool]:
    """The round steps that are searched with a model that is believed; and whether all that might do are among them."""
    speeds = np.abs(model.poles)
    fastest = float(speeds[speeds < model.instant].max(initial=0.0))
    shortest, longest = step_range(fastest, model.horizon)
    # Where nothing moves but very slowly, the range is that one step.
    steps = round_steps(shortest, longest) or [longest]
    quick = [step for step in steps if model.horizon / step * model.states <= MOST_NUMBERS] or steps[:1]
    return (steps, True) if model.states <= FEW else (quick, len(quick) == len(steps))


def usual_points(model: Model, wanted: Wanted, cost: Cost, present: Master | None = None) -> list[Point]:
    """Points of the usual masters that are good enough, the cheapest of them first; few, each judged in full.

    Where the model can be believed, errors are predicted at round steps. Elsewhere candidates are run, at halves of the
    step of the `present` master, whose pilot runs give the true solution.
    """
    if model.valid:
        rungs, _ = searched_steps(model)
        whole = model.rests or (model.base is not None and model.base.exact)
        quick: Predict = model.predict if whole else model.predict_coupling
    else:
        rungs, truth = measured_rungs(model, present or gauss_seidel(model.system, model.step))
        if truth is None:
            return []
        whole, quick = False, partial(model.pilots.against, truth=truth)
    found: list[Point] = []
    tried, helpful, grows = 0, math.inf, model.valid and model.grows

    def dearest() -> float:
        """What a candidate may cost to be of interest beside those that are good enough."""
        return ABOUT * min((point.cost for point in found if point.meets(wanted, grows=grows)), default=math.inf)

    for master, errors in _search(model, rungs, cost, quick, wanted.error, dearest):
        if tried >= CONFIRMATIONS and dearest() == math.inf:
            break
        if master.step > helpful:
            continue
        tried += 1
        try:
            point = judge_point(model, master, cost, errors=errors if whole else None)
        except _FAILS:
            continue
        found.append(point)
        if point.error > 2 * errors.worst and point.error > wanted.error:
            # The units' own solvers set the limit: only a step that makes these good enough helps.
            helpful = master.step * min(HOPEFUL * max(MARGIN * wanted.error / point.error, 0.01), 0.99)
    if model.valid:
        found += compensated_points(model, wanted, cost, rungs, found)
    return found


def measured_rungs(model: Model, present: Master) -> tuple[list[float], Truth | None]:
    """The halves of the step of `present` at which candidates are run, and what their runs are compared with.

    That is the solution which its pilot runs tend to; where they do not converge, those at steps 8 and 64 times shorter
    may. None where no runs do: then there is nothing to compare candidates with.
    """
    steps = [present.step / 2**halving for halving in range(HALVINGS + 1)]
    for halvings in range(0, HALVINGS + 1, 3):
        finer = replace(present, mixers={}).with_step(steps[halvings]) if halvings else present
        pilot = model.pilots.of(finer)
        if pilot.truth is not None and pilot.errors is not None:
            return steps[halvings:], pilot.truth
    return steps, None


def compensated_points(
    model: Model, wanted: Wanted, cost: Cost, rungs: Sequence[float], plain: Sequence[Point]
) -> list[Point]:
    """Jacobi with compensated inputs at the longest of the steps `rungs` where it is good enough: none, or one point.

    It is looked for where a unit cannot go back, and at steps that make it cheaper than every `plain` one that is good
    enough. It follows the converged iteration; of identified units, pilot runs must show that it is better than the
    same master without.
    """
    system, grows = model.system, model.grows
    if not system.links or all(unit.can_restore for unit in system.units.values()) or model.states > FEW:
        return []
    enough, hopeful = replace(wanted, robustness=0.0), math.inf
    dearest = min((point.cost for point in plain if point.meets(enough, grows=grows)), default=math.inf)
    frail: list[Point] = []
    compensate = importlib.import_module("cosimo.compensation").compensate  # which is built on the analysis
    for rung in rungs:
        master = jacobi(system, rung, coupling=Hold(1))
        if ABOUT * master_cost(model, master, cost) > dearest:
            break
        if rung > hopeful:
            continue
        try:
            corrected = compensate(system, master, target="converged", model=None if model.known else model)
            if not corrected.stable:
                continue
            point = judge_point(model, corrected.master, cost)
            good = point.meets(enough, grows=grows) and not corrected.refusal
        except _FAILS:
            continue
        if good and point.meets(wanted, grows=grows):
            return [point]
        frail += [point] * good
        if wanted.error < point.error < 1:
            hopeful = HOPEFUL * rung * math.sqrt(wanted.error / point.error)  # of second order
    return frail[:1]


Predict = Callable[[Master], OutputErrors]
_FAILS = (CosimoError, np.linalg.LinAlgError, ArithmeticError, ValueError)
"""What a master that does not fit the system may raise."""


def _search(
    model: Model, rungs: Sequence[float], cost: Cost, quick: Predict, target: float, dearest: Callable[[], float]
) -> Iterator[tuple[Master, OutputErrors]]:
    """Masters that seem good enough, with their errors, cheapest first and then best first, up to the `dearest`.

    Errors are looked at in the order of the costs: of what costs more than one that is good enough, none is computed.
    """
    many = model.valid and model.states > FEW
    kinds = list(few_masters(model, rungs[0]) if many else usual_masters(model.system, rungs[0]))
    hopeful = dict.fromkeys(range(len(kinds)), math.inf)
    if many:  # where not even the shortest step will do, none is walked down to
        brief = partial(quick, beyond=MARGIN * target) if quick == model.predict else quick
        hopeful = {number: math.inf for number, kind in enumerate(kinds) if _will_do(kind, rungs[-1], brief, target)}
    stable = _SeemsStable(model, rungs)
    prices = [rungs[0] * master_cost(model, master, cost) for master in kinds]  # of one macro step
    candidates = sorted((round(prices[number] / rung, 9), number, rung) for number in hopeful for rung in rungs)
    for price, group in groupby(candidates, key=lambda candidate: candidate[0]):
        if price > dearest() * (1 + 1e-9):
            return
        tried = [(number, kinds[number].with_step(rung)) for _, number, rung in group if rung <= hopeful[number]]
        if not model.valid:
            model.pilots.ahead((master, 1) for _, master in tried)
        ready: list[tuple[float, int, Master, OutputErrors]] = []
        for number, master in tried:
            if not stable(number, master):
                continue
            try:
                errors = quick(master)
            except _FAILS:
                continue
            if (error := errors.worst) < MARGIN * target:
                ready.append((error, number, master, errors))
            elif error < 1:
                # An error of second order at best: no use in trying before it can be small enough.
                hopeful[number] = HOPEFUL * master.step * math.sqrt(target / error)
        for _, _, master, errors in sorted(ready, key=lambda entry: entry[:2]):
            if price <= dearest() * (1 + 1e-9):
                yield master, errors


def _will_do(master: Master, step: float, quick: Predict, target: float) -> bool:
    """Whether a master seems good enough at a step."""
    try:
        return quick(master.with_step(step)).worst < MARGIN * target
    except _FAILS:
        return False


class _SeemsStable:
    """Whether Φ is stable where the model can be believed, at all `rungs` of a kind at once; else the run will tell."""

    def __init__(self, model: Model, rungs: Sequence[float]) -> None:
        self._model, self._rungs = model, np.array(rungs)
        self._stable: dict[int, dict[float, bool]] = {}

    def __call__(self, kind: int, master: Master) -> bool:
        if not self._model.valid or self._model.grows or self._model.states > FEW:
            return True
        if kind not in self._stable:
            self._stable[kind] = dict(zip(self._rungs.tolist(), self._over_steps(master), strict=True))
        return self._stable[kind][master.step]

    def _over_steps(self, master: Master) -> list[bool]:
        model = self._model
        system = model.system if model.known else model.local.linear
        try:
            radii = EigenvalueSizes(system, master).sizes(self._rungs)[:, 0]
            if not model.known:
                radii = radii / np.exp(model.local.growth_by_conversion * self._rungs)
        except _FAILS:
            return [False] * len(self._rungs)
        return is_stable(radii, identified=not model.known).tolist()  # type: ignore[no-any-return]
