"""Critical steps of masters over units whose maps are known only where they were identified.

A one-step map converted to another step by its continuous model is right only if the unit's solver is exact or its
micro step fixed. The first crossing g(h) found with an identification at h is therefore only where to identify next;
the search ends where g(h) = h.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.critical import CriticalStep, critical_step
from cosimo.analysis.identification import Identified
from cosimo.analysis.large import MOST_SOLUTIONS, LargePoles, LargeSpectrum
from cosimo.analysis.linearisation import Linearisation, LocalSystem
from cosimo.analysis.spectrum import Spectrum
from cosimo.analysis.stability import is_stable
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError, CosimoError, IdentificationError
from cosimo.core.formatting import step_text
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.masters import gauss_seidel, iterative, jacobi

SETTLED = 4e-3
"""Relative distance between the crossing and the step at which the units were identified, to be content with."""
SAME = 1e-5
"""Relative difference of answers up to which a converted map is that identified at the other step."""
ALIKE = 0.1
"""Relative difference of answers up to which a continuous model is that of the unit and not of an alias."""
FARTHEST = 3.0
"""How many times the step at which the units were identified the next one may be."""
OUTWARD = 4
"""How many times as far a master is followed that seems stable at all steps, before it is believed."""
LONG = 100.0
"""Powers of e that no guess of the next step is away from the last."""
INSTANT = 20.0
"""A mode that decays by more than e to this power within the step of identification counts as instantaneous."""
UNKNOWN = math.inf
"""ρ − 1 at a step at which a unit could not be identified: the search keeps below, and says nothing of it."""
ROUNDS = 12
FINEST = 6
"""How many times the step is halved in search of one at which the units can be told apart from their aliases."""
MOST_ORDERS = 24
SWEEPS = 2

Builder = Callable[[System, float], Master]


@dataclass(frozen=True)
class Limits:
    """Critical steps: of the master assessed, Jacobi, Gauss–Seidel in its best `order`, two sweeps of an iteration.

    None where there is none to be had (the coupled system itself is unstable, or units cannot restore their states);
    `reasons` says why. A step of 0 means unstable however small, infinity stable as far as was searched.
    """

    own: CriticalStep | None
    jacobi: CriticalStep | None
    gauss_seidel: CriticalStep | None
    order: tuple[str, ...]
    iterative: CriticalStep | None
    reasons: tuple[str, ...] = ()


def find_base(linearisation: Linearisation, step: float) -> LocalSystem:
    """The system at the largest of `step`, `step` / 2, … whose continuous models also hold at half the step.

    A mode that turns by more than half a period per step looks slower than it is; at half the step it shows. A solver
    whose error depends on the step shows there too.
    """
    local = linearisation.at(step)
    if not local.identified:
        return replace(local, exact=True)
    for _ in range(FINEST):
        finer = linearisation.at(local.step / 2)
        difference = max(apart(found, finer.units[name]) for name, found in local.units.items())
        if difference <= ALIKE:
            return replace(local, exact=difference <= SAME)
        local = finer
    return local


class CriticalStepSearch:
    """Critical steps of several masters with as few identifications as they need."""

    def __init__(self, linearisation: Linearisation, base: LocalSystem) -> None:
        self._linearisation, self._base = linearisation, base
        self._tried: dict[float, LocalSystem] = {base.step: base}
        self._converted: dict[tuple[str, Coupling], CriticalStep | None] = {}

    def converted(self, build: Builder) -> CriticalStep | None:
        """The first crossing with the models of the base, converted to other steps."""
        master, key = build(self._base.linear, self._base.step), None
        if not (master.couplings or master.mixers):
            key = str(master), master.coupling
        if key is not None and key in self._converted:
            return self._converted[key]
        found = critical_step(self._base.linear, master, identified=self._base.identified)
        if key is not None:
            self._converted[key] = found
        return found

    def crossing(self, build: Builder) -> CriticalStep | None:
        """The first crossing of the master that `build` makes of a system and a step."""
        found = self.converted(build)
        if found is None or found.step == 0 or (self._base.exact and self._converts(found.step)):
            if found is not None and found.step == 0 and self._base.growth_by_conversion:
                raise ConfigurationError(
                    "not known, as the error of the units' own solvers depends on the step; analyse at a smaller "
                    "--step-size."
                )
            return found
        bracket, guesses = _Bracket(), list[tuple[float, float]]()
        step, farthest = self._nearest(found.step), FARTHEST**OUTWARD * self._base.step
        for _ in range(ROUNDS):
            local = self._try(step)
            bracket.add(step, UNKNOWN if local is None else _excess(local.linear, build(local.linear, local.step)))
            predicted = self._predict(local, build)
            if predicted is not None:
                guesses.append((step, predicted.step))
                if abs(predicted.step / step - 1) <= SETTLED:
                    return predicted
            following = bracket.inside() or _follow(guesses, bracket, step)
            if bracket.narrow or (bracket.closed and abs(following / bracket.high - 1) <= SETTLED):
                return CriticalStep(bracket.known(following), found.searched)
            if not bracket.closed and following > farthest:
                return CriticalStep(math.inf, (found.searched[0], bracket.low))
            step = following
        if not bracket.low:
            return CriticalStep(bracket.known(0.0), (bracket.high, found.searched[1]))
        return CriticalStep(bracket.known(step), found.searched)

    def _converts(self, step: float) -> bool:
        """Whether exact models hold at a shorter step: what is gone within that of the base has a rate nobody knows."""
        gone = any((np.abs(found.poles) < math.exp(-INSTANT)).any() for found in self._base.units.values())
        if not gone or step >= self._base.step / 2:
            return True
        local = self._try(step)
        return local is not None and all(
            apart(found, local.units[name]) <= SAME for name, found in self._base.units.items()
        )

    def _nearest(self, wanted: float) -> float:
        """Of the steps tried, that nearest to the one wanted; the first where none is known."""
        if not math.isfinite(wanted):
            return self._base.step
        return min(self._tried, key=lambda tried: abs(math.log(tried / wanted)))

    def _predict(self, local: LocalSystem | None, build: Builder) -> CriticalStep | None:
        if local is None or not local.convertible:
            return None
        found = critical_step(local.linear, build(local.linear, local.step), identified=True)
        return found if found is not None and math.isfinite(found.step) and found.step > 0 else None

    def _try(self, step: float) -> LocalSystem | None:
        """The system identified at `step`; None where a unit fails there, or trials would take too long."""
        if step in self._tried:
            return self._tried[step]
        try:
            self._tried[step] = self._linearisation.at(step)
        except IdentificationError:
            return None
        return self._tried[step]


def _excess(system: System, master: Master) -> float:
    """ρ − 1; of a large system its sign alone, as the mode that proves growth need not be the largest."""
    linear = LinearSystem(system, master)
    if not linear.sparse:
        return Spectrum(linear).moving_radius - 1
    bounded, _ = LargeSpectrum(linear, LargePoles(linear.coupled.A)).look(MOST_SOLUTIONS)
    if bounded is None:
        raise ConfigurationError(f"not known: at {step_text(master.step)} neither decay nor growth could be proved.")
    return -1.0 if bounded else 1.0


class _Bracket:
    """The largest stable step tried and the unstable ones above it, and the root of ρ(h) − 1 between them.

    Below the crossing another mode may be the largest, so that ρ has a kink there; the secant through two unstable
    points sees only the mode that crosses.
    """

    def __init__(self) -> None:
        self.low, self._unstable = 0.0, list[tuple[float, float]]()

    @property
    def high(self) -> float:
        """The smallest unstable step tried."""
        return self._unstable[0][0] if self._unstable else math.inf

    @property
    def closed(self) -> bool:
        """Whether both ends are known."""
        return self.low > 0 and bool(self._unstable)

    @property
    def narrow(self) -> bool:
        """Whether the ends are as near as is wanted."""
        return self.closed and self.high / self.low < 1 + SETTLED

    def known(self, step: float) -> float:
        """The step, where what lies above it is unstable; an error where it is only not known."""
        if not self._unstable or self._unstable[0][1] < UNKNOWN:
            return step
        stable = f"stable up to {step_text(self.low)} at least, and " if self.low else ""
        raise ConfigurationError(f"not known; {stable}at {step_text(self.high)} units could not be identified.")

    def add(self, step: float, excess: float) -> None:
        """Take in ρ − 1 at a step."""
        if not is_stable(1 + excess):
            self._unstable = sorted([*self._unstable, (step, excess)])
        else:
            self.low = max(self.low, step)

    def inside(self) -> float | None:
        """The next step to try, where both ends are known."""
        if not self.closed:
            return None
        (high, excess), *others = self._unstable
        if others and excess < others[0][1] < math.inf:
            root = high - excess * (others[0][0] - high) / (others[0][1] - excess)
            if self.low < root < high:
                return root
        return math.sqrt(self.low * high)


def _follow(guesses: list[tuple[float, float]], bracket: _Bracket, last: float) -> float:
    """Where to identify next: the secant of log g(h) − log h, else g(h), not too far and on the open side."""
    step = guesses[-1][1] if guesses else FARTHEST * bracket.low if bracket.low else last / 2
    if len(guesses) > 1:
        (a, ga), (b, gb) = ((math.log(h), math.log(g / h)) for h, g in guesses[-2:])
        if gb != ga:
            step = math.exp(min(max(b - gb * (b - a) / (gb - ga), b - LONG), b + LONG))
    step = min(max(step, last / FARTHEST), FARTHEST * last)
    if bracket.low and step <= bracket.low:
        step = FARTHEST * bracket.low
    return min(step, bracket.high / 2) if step >= bracket.high else step


def critical_steps(linearisation: Linearisation, base: LocalSystem, master: Master) -> Limits:
    """The critical steps of the usual masters and of the given one."""
    system, search = linearisation.system, CriticalStepSearch(linearisation, base)
    reasons: list[str] = []
    masters_of: dict[str, list[str]] = {}

    def find(what: str, build: Builder) -> CriticalStep | None:
        try:
            return search.crossing(build)
        except CosimoError as error:
            masters_of.setdefault(str(error), []).append(what)
            return None

    plain = find("jacobi", jacobi)
    order = best_order(search, orders(system))
    seidel = find("gauss-seidel", partial(gauss_seidel, order=order))
    stuck = [name for name, unit in system.units.items() if not unit.can_restore]
    if stuck:
        reasons.append(f"no iterative master: {', '.join(stuck)} cannot restore the state")
    swept = None if stuck else find("iterative", lambda s, h: iterative(s, h, sweeps=SWEEPS))
    couplings = (master.coupling, *master.couplings.values())
    special = bool(master.mixers) or any(c.degree or c.history > 1 for c in couplings)
    usual = master.name == "jacobi" and not special
    mine = plain if usual else find(master.name, lambda _, h: master.with_step(h))
    unknown = [f"critical step of {', '.join(dict.fromkeys(names))}: {why}" for why, names in masters_of.items()]
    return Limits(mine, plain, seidel, order, swept, (*unknown, *reasons))


def best_order(search: CriticalStepSearch, candidates: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """The calling order with the largest critical step, the first of equals."""
    best, largest = candidates[0], -1.0
    for order in candidates:
        try:
            found = search.converted(partial(gauss_seidel, order=order))
        except ConfigurationError:
            continue
        step = found.step if found is not None else 0.0
        if step > largest * (1 + 1e-9):
            best, largest = order, step
    return best


def orders(system: System) -> list[tuple[str, ...]]:
    """Calling orders that differ: of two orders with the same unit first on every connection, one.

    All of them for few units; beyond, the order of the system, its reverse, and units with feedthrough last or first.
    """
    names = system.names
    if len(names) <= 4:
        candidates: Iterator[tuple[str, ...]] = itertools.permutations(names)
    else:
        late = [name for name, unit in system.units.items() if unit.feedthrough().any()]
        early = [name for name in names if name not in late]
        candidates = iter([names, names[::-1], (*early, *late), (*late, *early)])
    pairs = sorted({(link.source.unit, link.target.unit) for link in system.links})
    different: dict[tuple[bool, ...], tuple[str, ...]] = {}
    for order in candidates:
        different.setdefault(tuple(order.index(a) < order.index(b) for a, b in pairs), order)
    return list(different.values())[:MOST_ORDERS]


# ---- whether two one-step maps of a unit are of the same motion, told by what comes out and not by their sta ---------
# Eigenvalues will not do: a model of a unit that is not quite linear has states that hardly show, other ones at every
# identification. What is compared are the free motion and the answers to steps of the inputs.


ROWS = 40


def responses(found: Identified, A: Array, B: Array, rows: int = ROWS) -> Array:
    """What comes out over `rows` steps of the map A, B (n, m): answers to a step of every input, and the free motion.

    (rows, p, m + 1); the free motion is that under the inputs held at the operating point, less its first row.
    """
    n, m = B.shape
    push = found.held + found.input_offset
    states = np.hstack([np.zeros((n, m)), found.initial[:, None]])
    steady = np.hstack([B, (B @ push)[:, None]])
    through = np.hstack([found.D, (found.D @ push + found.output_offset)[:, None]])
    seen = np.empty((rows, len(found.C), m + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        for row in range(rows):
            seen[row] = found.C @ states + through
            states = A @ states + steady
        seen[:, :, m] -= seen[0, :, m].copy()
    return seen


def apart(found: Identified, other: Identified) -> float:
    """How far `found`, converted to the step of `other`, answers from it: relative, channel by channel, the largest.

    Infinite where `found` cannot be converted.
    """
    if found.means == "known":
        return 0.0
    if found.generator is None:
        return np.inf
    there, m = found.unit(stand_in=True).discrete(other.step), found.D.shape[1]
    ours, theirs = (responses(one, maps.A, maps.B[:, :m]) for one, maps in ((found, there), (other, other.model)))
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return np.inf
    size = np.abs(theirs).max(axis=0)
    # Channels that hardly show count by what shows most of the same output, or of the same input.
    size = np.maximum(size, 1e-3 * size.max(axis=1, keepdims=True) * (size > 0))
    difference = np.abs(ours - theirs).max(axis=0)
    share = np.divide(difference, size, out=np.zeros_like(size), where=size > 0)
    return float(share.max(initial=0.0))
