"""Compensation on identified units, before and after: the table of docs/compensation.md.

    python -m tests.compensation.before_after [FOREIGN]

Units cannot go back (save and restore are hidden), except in the column of the iteration. Every error is the largest
deviation of an output from a run that is 32 times finer and iterated, as a share of that output's largest value.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from tests.analysis.nonlinear_pairs import PAIRS
from tests.foreign import Case as Foreign
from tests.foreign import find_cases
from tests.testbed import systems

import cosimo as co
from cosimo.compensation import compensate
from cosimo.core.arrays import Array
from cosimo.core.errors import CosimoError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import Dmd, Hold
from cosimo.formats.export import export_system
from cosimo.formats.scenario import Scenario
from cosimo.problems import find
from cosimo.units import Fmu

FINER = 32
PYTHON = {pair.name: pair for pair in PAIRS}


@dataclass(frozen=True)
class Case:
    """A system, made with or without units that go back, its macro step and how many of them are run."""

    name: str
    make: Callable[[Path, bool], System]
    step: float
    steps: int
    linear: bool = False


@dataclass(frozen=True)
class Row:
    """Errors of the plain hold, of the iteration with rollback, of models learned in the run (`--adapt`), and of the
    compensated master; macro steps in which its inputs were held, and when first; why it is not offered, or nothing."""

    case: Case
    plain: float
    iterated: float
    learned: float
    compensated: float = float("nan")
    held: int = 0
    first: float | None = None
    refusal: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        held = "" if np.isnan(self.compensated) else f"{self.held} of {self.case.steps}"
        held += "" if self.first is None else f", first at {self.first:.3g} s"
        shown = "–" if np.isnan(self.compensated) else f"{self.compensated:.2e}"
        said = f"not offered: {self.refusal}" if self.refusal else "yes"
        errors = (f"{one:.2e}" for one in (self.plain, self.iterated, self.learned))
        return (self.case.name, *errors, shown, held, said)


def exported(name: str) -> Callable[[Path, bool], System]:
    """A built-in system of linear units as FMUs."""

    def make(folder: Path, restore: bool) -> System:
        system = find(name).system()
        units = {unit: Fmu(path) for unit, path in export_system(system, folder, fmi=2).items()}
        return _hidden(System(units, system.connections, inputs=system.inputs, name=name), restore)

    return make


def _hidden(system: System, restore: bool) -> System:
    for unit in system.units.values():
        unit.can_restore = unit.can_restore and restore
    return system


CASES = (
    *(Case(name, exported(name), find(name).step, 500, True) for name in ("quarter-truck", "dc-motor", "four-mass")),
    Case("tank", exported("tank"), find("tank").step, 500, True),
    Case("tank with √h and limits", lambda f, r: _hidden(systems(f, states=r)["tank-limited"], r), 1.0, 300),
    Case("pendulum with friction", lambda f, r: _hidden(systems(f, states=r)["pendulum"], r), 0.01, 400),
    Case("pendula", lambda f, r: _hidden(find("pendula").system(), r), 5e-3, 200),
    *(
        Case(name, lambda f, r, name=name: _hidden(PYTHON[name].system(), r), PYTHON[name].step, 400)  # type: ignore[misc]
        for name in ("stick and slip", "pendulum and Duffing", "inverted pendulum and PD")
    ),
)


def error(rows: Array, true: Array) -> float:
    """Of the worst output; infinite where the run diverged."""
    if len(rows) < len(true) or not np.isfinite(rows).all():
        return float("inf")
    size = np.abs(true).max(axis=0)
    return float((np.abs(rows - true).max(axis=0)[size > 0] / size[size > 0]).max())


def measure(case: Case, coupling: Hold, folder: Path) -> Row:
    """One row; the master is Jacobi with this coupling."""
    h, stop = case.step, case.steps * case.step
    both = case.make(folder, True)
    fine = co.masters.iterative(both, h / FINER, coupling=Hold(1), tolerance=1e-10)
    true = co.run(both, fine, stop=stop).values[::FINER]
    iterated = co.run(both, co.masters.iterative(both, h, coupling=coupling, tolerance=1e-10), stop=stop)
    system = case.make(folder, False)
    master = co.masters.jacobi(system, h, coupling=coupling)
    before, known = error(co.run(system, master, stop=stop).values, true), error(iterated.values, true)
    learning = co.run(system, co.masters.jacobi(system, h, coupling=Dmd(mean=True, watched=True)), stop=stop)
    learned = error(learning.values[:, : true.shape[1]], true)
    try:
        found = compensate(system, master, target="converged", horizon=stop)
    except CosimoError as refused:
        return Row(case, before, known, learned, refusal=str(refused))
    result = co.run(system, found.master, stop=stop)
    first = next((w.time for w in result.warnings if "no longer responds as its model" in str(w)), None)
    return Row(case, before, known, learned, error(result.values, true), int(result.info["held"]), first, found.refusal)


def table(coupling: Hold) -> Iterator[str]:
    """The rows in Markdown."""
    yield "| | plain | iterated, with rollback | learned | compensated | inputs held in | offered |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            yield f"| {' | '.join(measure(case, coupling, Path(folder)).cells)} |"


def foreign(folder: Path) -> Iterator[str]:
    """Couplings of other tools: error without, and with models learned in the run, by pilot runs; then whether a
    compensation on identified models is offered, and with which error, or why not."""
    yield "| coupling | plain | learned | compensated |"
    yield "| --- | --- | --- | --- |"
    for place in find_cases(folder):
        case = Foreign(place)
        scenario = case.scenario.changed(step=case.own_key()[1])
        system, plain = scenario.system, scenario.master
        learning = replace(plain, coupling=Dmd(mean=True, watched=True), couplings={})
        said = [_measured(scenario, master) for master in (plain, learning)]
        try:
            found = compensate(system, plain, target="converged", start=scenario.start, horizon=scenario.horizon)
            after = found.verdicts[1].error if found.verdicts else None
            worst = "–" if after is None else f"{after.worst:.2%}"
            said.append(f"{worst}{f', not offered: {found.refusal}' if found.refusal else ''}")
        except CosimoError as refused:
            said.append(f"not offered: {refused}")
        yield f"| {' | '.join([place.name, *said])} |"


def _measured(scenario: Scenario, master: Master) -> str:
    try:
        verdict = scenario.analyse(master, details=False)
    except CosimoError as refused:
        return str(refused)
    return verdict.headline if verdict.error is None else f"{verdict.error.worst:.2%} ({verdict.evidence})"


if __name__ == "__main__":
    for order in (0, 1):
        print(f"\nhold{order}\n")
        for line in table(Hold(order)):
            print(line, flush=True)
    for line in foreign(Path(sys.argv[1])) if len(sys.argv) > 1 else ():
        print(line, flush=True)
