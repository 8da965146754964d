"""One recommendation: the cheapest master and step whose predicted error is small enough.

Cost is counted in unit steps per simulated second: sweeps / h. Tried are Jacobi, Gauss–Seidel in all orders that
differ, and two sweeps of an iteration where all units can restore their states, each with held inputs and, where units
take slopes, with straight ones; at the given step, then at round numbers below it. What the search finds with the
error of the coupling alone is confirmed with the units identified at the recommended step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cosimo.assessment.accuracy import MOST_STEPS, Predicted, Prediction
from cosimo.assessment.limits import SWEEPS, orders
from cosimo.core.errors import CosimoError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.masters import gauss_seidel, iterative, jacobi

GOAL = 0.01
"""The error that is small enough, of the worst output."""
MARGIN = 0.8
"""Part of the goal that the search asks for, since predictions are not exact."""
DECADES = 4
"""How far below the given step is searched."""
CONFIRMATIONS = 6
HOPEFUL = 1.5
"""How much better than its order a master may do from one step to a shorter one."""
BETTER = 0.9
"""What the error of another master at the same cost must be of the present one's, to be worth a change."""


@dataclass(frozen=True)
class Candidate:
    """A master that can be run, how its options are written, and how many sweeps over all units it makes per step."""

    master: Master
    options: str
    sweeps: int

    @property
    def kind(self) -> str:
        """What it is but for its step."""
        return f"{self.master.name} {self.master.coupling}"

    @property
    def cost(self) -> float:
        """Steps of each unit per simulated second."""
        return self.sweeps / self.master.step


@dataclass(frozen=True)
class Recommendation:
    """`master` with its step, its predicted error, and `text` that says so in words; `options` for the command line.

    Where nothing reaches the goal, or no error can be predicted, `master` is None and the text says why.
    """

    text: str
    master: Master | None = None
    options: str = ""
    predicted_error: float = math.nan
    cost: float = math.nan


def recommend(system: System, present: Master, prediction: Prediction, now: Predicted) -> Recommendation:
    """The cheapest master that is predicted to keep every output within the goal; of equally cheap ones the best."""
    tried, bound = 0, math.inf
    for candidate, found in _search(system, present.step, prediction):
        if candidate.master.step > bound:
            continue
        try:
            whole = prediction.of(candidate.master)
        except CosimoError:
            continue
        if whole.worst < GOAL:
            return _word(present, candidate, whole, now)
        if whole.worst > 2 * found.worst:
            # The units' own solvers set the limit: no master helps, only a step that makes these good enough.
            bound = candidate.master.step * min(HOPEFUL * max(MARGIN * GOAL / whole.worst, 0.01), 0.99)
        tried += 1
        if tried == CONFIRMATIONS:
            break
    finest = max(present.step / 10**DECADES, prediction.horizon / MOST_STEPS)
    where = (
        f"down to {finest:.2g} s" if tried < CONFIRMATIONS else f"of the {tried} steps at which units were identified"
    )
    return Recommendation(
        f"no master was found that is predicted to be off by less than {GOAL:.0%} at any step {where}; the units' own "
        f"solvers, or outputs that jump, may set this limit."
    )


def _search(system: System, step: float, prediction: Prediction) -> Iterator[tuple[Candidate, Predicted]]:
    """What seems good enough by the error of the coupling alone, cheapest first and then best first."""
    ready: list[tuple[Candidate, Predicted]] = []
    promising: dict[str, float] = {}
    rungs = [rung for rung in ladder(step) if prediction.horizon / rung <= MOST_STEPS]
    for rung, following in zip(rungs, [*rungs[1:], 0.0], strict=True):
        for candidate in candidates(system, rung):
            if rung > promising.get(candidate.kind, math.inf):
                continue
            try:
                found = prediction.of_coupling(candidate.master)
            except CosimoError:
                continue
            if found.worst < MARGIN * GOAL:
                ready.append((candidate, found))
                promising[candidate.kind] = 0.0
            elif found.worst < 1:
                # An error of second order at best: no use in trying before it can be small enough.
                promising[candidate.kind] = HOPEFUL * rung * math.sqrt(GOAL / found.worst)
        # What costs no more than the cheapest candidates of all further rungs cannot be beaten by them.
        ready.sort(key=lambda entry: (round(entry[0].cost, 9), entry[1].worst))
        while ready and (not following or ready[0][0].cost <= (1 + 1e-9) / following):
            candidate, found = ready.pop(0)
            promising[candidate.kind] = rung  # to be tried again, finer
            yield candidate, found


def ladder(step: float) -> Iterator[float]:
    """The step itself, then 5, 2 and 1 times the powers of ten below it."""
    yield step
    power = math.floor(math.log10(step))
    for exponent in range(power, power - DECADES - 1, -1):
        for digit in (5, 2, 1):
            rung = float(f"{digit}e{exponent}")
            if step * (1 - 1e-9) > rung >= step / 10**DECADES:
                yield rung


def candidates(system: System, step: float) -> Iterator[Candidate]:
    """All masters that the units of the system can be run with."""
    takes_slopes = any(unit.input_degree > 0 for unit in system.units.values())
    restores = all(unit.can_restore for unit in system.units.values())
    for hold in (Hold(0), Hold(1)) if takes_slopes else (Hold(0),):
        slope = f" --coupling {hold}" if hold.degree else ""
        yield Candidate(jacobi(system, step, coupling=hold), f"--master jacobi{slope} --step-size {step:g}", 1)
        for order in orders(system):
            names = ",".join(order)
            options = f"--master gauss-seidel --order {names}{slope} --step-size {step:g}"
            yield Candidate(gauss_seidel(system, step, order=order, coupling=hold), options, 1)
        if restores:
            options = f"--master iterative --sweeps {SWEEPS}{slope} --step-size {step:g}"
            yield Candidate(iterative(system, step, sweeps=SWEEPS, coupling=hold), options, SWEEPS)


def _word(present: Master, chosen: Candidate, error: Predicted, now: Predicted) -> Recommendation:
    master = chosen.master
    same = master.name == present.name and str(master.coupling) == str(present.coupling) and not present.couplings
    good = now.worst < GOAL and (same or BETTER * now.worst <= error.worst)
    if master.step == present.step and good:
        text = (
            f"keep {present.name} at {present.step:g} s: the worst output is predicted to be off by "
            f"{_percent(now.worst)}, and no master tried does clearly better at this cost."
        )
        return Recommendation(text, present, "", now.worst, chosen.cost)
    held = "" if master.coupling.degree == 0 else ", inputs extrapolated as straight lines"
    worst = max(error.outputs, key=lambda name: error.outputs[name], default="")
    text = (
        f"use {master.name} at {master.step:g} s{held} ({chosen.options}): the worst output, {worst}, is predicted to "
        f"be off by {_percent(error.worst)} instead of {_percent(now.worst)}."
    )
    return Recommendation(text, master, chosen.options, error.worst, chosen.cost)


def _percent(value: float) -> str:
    if not math.isfinite(value):
        return "more than can be computed"
    if value >= 10:
        return f"{value:.1e} times its size"
    return f"{100 * value:.0f} %" if value >= 0.1 else f"{100 * value:.2g} %"
