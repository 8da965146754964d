"""Masters and couplings tried out on one system, by running them: error against a reference, stability, cost.

The reference is the exact solution of the coupled system where all units are linear, and otherwise a fine run: the
fresh exchange (units that feed their inputs through are coupled and read again after the others were read) with a step
`FINER` times smaller, whose own error is estimated from one twice as coarse. Errors are NRMS (tamellin2022, Eq. 42).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.analysis.measures import nrms
from cosimo.compensation.whole import as_system, exact_unit
from cosimo.core.errors import ConfigurationError, NonFiniteError, RunError, UnknownNameError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.core.timing import timeline
from cosimo.couplings import Hold
from cosimo.execution import run
from cosimo.formats.masters import MasterOptions, build_master, parse_coupling
from cosimo.problems.monolithic import fresh
from cosimo.units.integrators import DEGREE
from cosimo.units.linear import LinearUnit

FINER = 32
REPEATS = 3
"""Runs that are timed; the shortest counts."""
DIVERGED = 100.0
"""An error this many times the range of the reference counts as divergence."""


@dataclass(frozen=True)
class Reference:
    """What runs are measured against: rows at t_k = k h, where they come from, and how wrong they are themselves."""

    kind: str
    result: Result
    own_error: float


@dataclass(frozen=True)
class Trial:
    """One master on the system. `errors` per output (NRMS), `worst` of them; `radius` of Φ where all is linear.

    A run that leaves the range of numbers says when (`diverged`). `reason` is why a master could not be tried.
    """

    master: str
    coupling: str
    errors: dict[str, float]
    worst: float
    radius: float | None
    diverged: float | None
    seconds_per_step: float
    reason: str = ""

    @property
    def stable(self) -> bool:
        """By Φ where there is one, otherwise by the run."""
        if self.reason:
            return False
        bounded = self.diverged is None and self.worst < DIVERGED
        return bounded if self.radius is None else bounded and self.radius <= 1 + 1e-9


@dataclass(frozen=True)
class Candidate:
    """A master to try, or why it cannot be built, with the words that name it and its couplings."""

    master: str
    coupling: str
    built: Master | str


def combinations(system: System, step: float, masters_: str, couplings: str) -> list[Candidate]:
    """Every master in words with every coupling; what cannot be built carries the reason."""
    found = []
    for name in _words("masters", masters_):
        for coupling in _words("couplings", couplings):
            parse_coupling(coupling)  # a word that means nothing is refused at once
            try:
                built: Master | str = build_master(system, step, MasterOptions(name=name, couplings=(coupling,)))
            except UnknownNameError:
                raise
            except ConfigurationError as error:
                built = str(error)
            found.append(Candidate(name, coupling, built))
    return found


def _words(what: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ConfigurationError(f"give at least one of the {what} to compare.")
    return words


def reference(system: System, *, step: float, start: float = 0.0, stop: float, kind: str = "auto") -> Reference:
    """The solution at every macro step; `kind`: "exact", "fine", "monolithic" (fresh exchange, same step) or "auto"."""
    linear = all(isinstance(unit, LinearUnit) for unit in system.units.values())
    if kind == "auto":
        kind = "exact" if linear else "fine"
    if kind == "exact":
        return Reference("exact", _exact(system, step, start, stop), 0.0)
    if kind == "monolithic":
        return Reference("monolithic", run(system, fresh(system, step), start=start, stop=stop), 0.0)
    if kind != "fine":
        raise UnknownNameError("reference", kind, ("exact", "fine", "monolithic", "auto"))
    fine, coarse = (_fine(system, step, parts, start, stop) for parts in (FINER, FINER // 2))
    gaps = [nrms(coarse[name], fine[name]) for name in system.outputs]
    return Reference("fine", fine, max((gap for gap in gaps if np.isfinite(gap)), default=0.0))


def try_masters(
    system: System, candidates: Sequence[Candidate], wanted: Reference, *, start: float = 0.0, stop: float
) -> list[Trial]:
    """Each master run and measured."""
    return [_try(system, candidate, wanted.result, start, stop) for candidate in candidates]


def _try(system: System, candidate: Candidate, wanted: Result, start: float, stop: float) -> Trial:
    names = (candidate.master, candidate.coupling)
    if isinstance(candidate.built, str):
        return Trial(*names, {}, np.inf, None, None, 0.0, candidate.built)
    master = candidate.built
    try:
        runs = [run(system, master, start=start, stop=stop) for _ in range(REPEATS)]
    except NonFiniteError as error:
        reached = error.result.time[-1] if error.result is not None and len(error.result) else start
        return Trial(*names, {}, np.inf, _radius(system, master), float(reached), 0.0)
    except (ConfigurationError, RunError) as error:
        return Trial(*names, {}, np.inf, None, None, 0.0, str(error))
    seconds, result = min(float(found.info["stepping_time"]) for found in runs), runs[0]
    errors = _errors(system, master, result, wanted)
    # Where the reference stays at rest there is no range to compare an error with.
    moving = [error for name, error in errors.items() if np.ptp(wanted[name]) > 0]
    worst = max(moving, default=0.0)
    return Trial(*names, errors, worst, _radius(system, master), None, seconds / max(1, len(result) - 1))


def _errors(system: System, master: Master, result: Result, wanted: Result) -> dict[str, float]:
    """Per output; outputs that are read before the step (early read) belong to the row before."""
    clocks = timeline(system, master).clocks
    found = {}
    for name in system.outputs:
        late = int(clocks[system.output(name).unit].read < 1)
        ours = result[name][late:]
        theirs = wanted[name][: len(ours)]
        found[name] = nrms(ours[: len(theirs)], theirs)
    return found


def _radius(system: System, master: Master) -> float | None:
    try:
        return Spectrum(LinearSystem(system, master)).radius
    except ConfigurationError:
        return None  # units or couplings without known matrices


def _exact(system: System, step: float, start: float, stop: float) -> Result:
    coupled = LinearSystem(system, masters.jacobi(system, step)).coupled
    whole = as_system(system, exact_unit(system, coupled))
    parts = 8 if system.inputs else 1
    couplings = {f"{next(iter(whole.units))}.{name}": Hold(DEGREE) for name in system.inputs}
    found = run(whole, masters.jacobi(whole, step / parts, couplings=couplings), start=start, stop=stop)
    return Result(system.outputs, found.time[::parts], found.values[::parts, : len(system.outputs)])


def _fine(system: System, step: float, parts: int, start: float, stop: float) -> Result:
    try:
        master = fresh(system, step / parts)
    except ConfigurationError:
        master = masters.jacobi(system, step / parts)
    found = run(system, master, start=start, stop=stop)
    return Result(found.names, found.time[::parts], found.values[::parts])
