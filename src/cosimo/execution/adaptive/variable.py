"""The lengths that macro steps may have, counted in whole quanta of time, and the plain interpreter that makes them.

    q = (stop − start) / 2^bits,        t = start + n q,        a macro step lasts `parts` quanta

Every length has an interpreter of its own, whose constants are worked out once; all share the same live units and
signals, so that a step of another length simply goes on. Couplings that remember samples see them at their true times:

    σ_j = (n_j − n) / parts             of the sample read at n_j quanta, for a coupling at n quanta

which are no longer the same from one macro step to the next; their matrices are worked out when first met.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from typing import Any

from cosimo.core import dataclass
from cosimo.core.arrays import Array, product
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Inlet
from cosimo.core.timing import TimedCouple, TimedRead
from cosimo.execution.interpreter import Action, Interpreter, Saved
from cosimo.execution.live import Live
from cosimo.execution.options import Adaptive

SHORTEST, LONGEST, FIRST = 1 / 128, 16.0, 1 / 16
"""The shortest, longest and first step, in macro steps of the master. Where nothing is repeated, steps get as short as
the tolerance: what has that length does even if all inputs are guessed wrong."""
FINER = 4  # the quantum is at least 2^FINER times smaller than the shortest step, so that steps grow evenly
MOST_BITS = 50  # beyond this, places of the grid could no longer be told apart
KEPT = 512  # interpreters of different lengths, and coupling matrices, that are kept


@dataclass(frozen=True)
class TimeGrid:
    """Where macro steps may begin and end: `total` = 2^bits quanta from `start` to `stop`."""

    start: float
    stop: float
    bits: int

    @property
    def total(self) -> int:
        """All quanta."""
        return 1 << self.bits

    @property
    def quantum(self) -> float:
        """q in seconds."""
        return (self.stop - self.start) / self.total

    def time(self, place: float) -> float:
        """t after `place` quanta, by multiplication; the end is exactly `stop`."""
        return self.stop if place == self.total else self.start + place * self.quantum


@dataclass(frozen=True)
class Lengths:
    """The grid of a run, and its first, shortest and longest step in quanta."""

    grid: TimeGrid
    first: int
    shortest: int
    longest: int

    def fit(self, wanted: float) -> int:
        """The length used for a wanted one: within the limits, rounded down to four binary digits."""
        parts = int(min(max(wanted, self.shortest), self.longest))
        low = max(parts.bit_length() - 4, 0)
        return max((parts >> low) << low, self.shortest)

    @property
    def usual(self) -> list[int]:
        """All lengths that `fit` gives, and the first, shortest first; only steps to a jump or the end have others."""
        found, parts = {self.shortest, self.first}, self.shortest
        while (parts := ((parts >> (low := max(parts.bit_length() - 4, 0))) + 1) << low) <= self.longest:
            found.add(parts)
        return sorted(found)


def choose_lengths(adaptive: Adaptive, nominal: float, start: float, stop: float) -> Lengths:
    """The quantum and the limits of steps for a run from `start` to `stop`."""
    span = stop - start
    pair = 2 if adaptive.kind == "doubling" else 1
    most = adaptive.relative if adaptive.kind == "energy" else math.inf
    longest = min(adaptive.longest or LONGEST * nominal, span / pair)
    shortest = adaptive.shortest or min(SHORTEST * nominal, most * nominal, longest, adaptive.first or math.inf)
    first = adaptive.first or min(max(min(FIRST, most) * nominal, shortest), longest)
    if shortest > longest:
        raise ConfigurationError(
            f"the shortest step ({shortest:g} s) is longer than the longest ({longest:g} s) that is possible between "
            f"{start:g} and {stop:g}; give a shorter one."
        )
    bits = FINER + max(0, math.ceil(math.log2(span / shortest)))
    if bits > MOST_BITS:
        raise ConfigurationError(f"{span / shortest:.1e} steps of {shortest:g} s fit into the run; give a longer one.")
    quantum = TimeGrid(start, stop, bits).quantum
    least = max(1, math.ceil(shortest / quantum * (1 - 1e-12)))
    greatest = max(least, math.floor(longest / quantum * (1 + 1e-12)))
    return Lengths(TimeGrid(start, stop, bits), min(max(least, round(first / quantum)), greatest), least, greatest)


def first_places(live: Live, parts: int) -> tuple[dict[str, int], list[tuple[int, ...]]]:
    """Where units were read before the start, and the samples of every link taken: `parts` quanta apart."""
    read_at = {name: int((clock.read - 1) * parts) for name, clock in live.timeline.clocks.items()}
    newest = [(read_at[link.source.unit], len(live.w[link.number])) for link in live.system.links]
    return read_at, [tuple(last - j * parts for j in range(length)) for last, length in newest]


class VariableInterpreter(Interpreter):
    """An interpreter whose macro step lasts `parts` quanta of `grid`; its macro steps are numbered by their place."""

    def __init__(self, live: Live, grid: TimeGrid, parts: int) -> None:
        self.grid, self.parts = grid, parts
        self._matrices: dict[tuple[Any, ...], CouplingMatrices] = {}
        self._lengths: dict[int, VariableInterpreter] = {parts: self}
        super().__init__(live)
        self.read_at, self.stamps = first_places(live, parts)

    def lasting(self, parts: int) -> VariableInterpreter:
        """The interpreter of the same live units and signals whose macro step lasts `parts` quanta."""
        found = self._lengths.get(parts)
        if found is None:
            if len(self._lengths) >= KEPT:
                self._lengths.clear()
            found = self._lengths[parts] = copy.copy(self)
            found.master, found.parts = self.master.with_step(parts * self.grid.quantum), parts
            found._prepare()
        return found

    def time(self, k: int, fraction: float) -> float:
        """The time `fraction` of this macro step after place k."""
        return self.grid.time(k + fraction * self.parts)

    def guard(self, name: str, doing: str, place: int) -> AbstractContextManager[None]:
        """Errors of the unit are told with its name and the time of `place`."""
        return self.live.guard(name, doing, self.grid.time(place))

    def save(self, k: int) -> Saved:
        return replace(super().save(k), stamps=list(self.stamps), read_at=dict(self.read_at))

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self.read_at.update(saved.read_at)
        self.stamps[:] = saved.stamps

    def memory(self) -> dict[str, Any]:
        places = {"stamps": [list(places) for places in self.stamps], "read_at": dict(self.read_at)}
        return {**super().memory(), **places}

    def load(self, memory: dict[str, Any]) -> None:
        super().load(memory)
        self.stamps[:] = [tuple(map(int, places)) for places in memory["stamps"]]
        self.read_at.update({name: int(memory["read_at"][name]) for name in self.read_at})

    # ---- samples at their true times -----------------------------------------------------------------------------

    def _read(self, operation: TimedRead) -> Action:
        act, name, ahead = super()._read(operation), operation.unit, int(operation.time * self.parts)

        def stamped(k: int) -> None:
            act(k)
            self.read_at[name] = k + ahead

        return stamped

    def _column(self, inlet: Inlet, operation: TimedCouple, sampling: Sampling | None) -> Callable[[int], Array]:
        coupling = self.master.coupling_of(inlet.target)
        if inlet.link is None or coupling.history == 1:
            return super()._column(inlet, operation, sampling)
        link, ahead = inlet.link, int(operation.time * self.parts)
        gain, offset = link.connection.gain, link.connection.offset

        def linked(k: int) -> Array:
            sample = gain * self.y[link.source.unit][link.source.index] + offset
            matrices = self._sampled(coupling, link.number, self.read_at[link.source.unit], k + ahead)
            w = product(matrices.ww, self.w[link.number]) + matrices.ws[:, 0] * sample
            self.w[link.number] = w
            return product(matrices.uw, w)

        return linked

    def _sampled(self, coupling: Coupling, link: int, newest: int, now: int) -> CouplingMatrices:
        """The matrices for a new sample from place `newest`, at a coupling at place `now`."""
        old = self.stamps[link]
        # As in core/timing.py: what is not older than the new sample is replaced by it.
        kept = tuple(slot for slot, stamp in enumerate(old) if stamp < newest)[: coupling.history - 1]
        self.stamps[link] = (newest, *(old[slot] for slot in kept))
        away = tuple(stamp - now for stamp in self.stamps[link])
        key = (coupling, self.parts, away, kept)
        matrices = self._matrices.get(key)
        if matrices is None:
            if len(self._matrices) >= KEPT:
                self._matrices.clear()
            stamps = tuple(Fraction(distance, self.parts) for distance in away)
            matrices = self._matrices[key] = coupling.matrices(Sampling(stamps, kept))
        return matrices
