"""The plain interpreter with macro steps of any length, counted in whole quanta of time.

    q = (stop − start) / 2^bits,        t = start + n q,        a macro step lasts `parts` quanta

Every length has an interpreter of its own, whose constants are worked out once; all share the same live units and
signals, so that a step of another length simply goes on. Couplings that remember samples see them at their true times:

    σ_j = (n_j − n) / parts             of the sample read at n_j quanta, for a coupling at n quanta

which are no longer the same from one macro step to the next; their matrices are worked out when first met.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from cosimo.core.arrays import Array, product
from cosimo.core.coupling import Coupling, CouplingMatrices, Sampling
from cosimo.core.system import Inlet
from cosimo.core.timing import TimedCouple, TimedRead
from cosimo.execution.live import Live
from cosimo.execution.reference import Action, Interpreter, Saved

KEPT = 512
"""Interpreters of different lengths, and coupling matrices, that are kept."""


@dataclass(frozen=True)
class Grid:
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


class VariableInterpreter(Interpreter):
    """An interpreter whose macro step lasts `parts` quanta of `grid`; its macro steps are numbered by their place."""

    def __init__(self, live: Live, grid: Grid, parts: int, nominal: float) -> None:
        self.grid, self.parts, self.nominal = grid, parts, nominal
        self._matrices: dict[tuple[Any, ...], CouplingMatrices] = {}
        self._lengths: dict[int, VariableInterpreter] = {parts: self}
        super().__init__(live)
        # The samples before the start are taken as equally far apart.
        self.read_at = {name: int((clock.read - 1) * parts) for name, clock in live.timeline.clocks.items()}
        newest = [(self.read_at[link.source.unit], len(live.w[link.number])) for link in live.system.links]
        self.stamps = [tuple(last - j * parts for j in range(length)) for last, length in newest]

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
        """Also when the samples were taken."""
        return replace(super().save(k), stamps=list(self.stamps), read_at=dict(self.read_at))

    def restore(self, saved: Saved) -> None:
        """Also when the samples were taken."""
        super().restore(saved)
        self.read_at.update(saved.read_at)
        self.stamps[:] = saved.stamps

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
