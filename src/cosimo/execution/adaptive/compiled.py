"""Steppers of the kernel: the same choice of macro steps as in plain Python, in the compiled loop (kernel/stepper.hpp).

Python is asked for what only it knows: external inputs, at every step, and the constants of a length that is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling, Sampling
from cosimo.core.errors import EndRequested, NonFiniteError, StepDiscarded
from cosimo.core.system import Link
from cosimo.execution.adaptive.stepping import (
    GROW,
    INTEGRAL,
    LEAST_ERROR,
    NOTHING,
    PROPORTIONAL,
    SAFETY,
    SETTLING,
    SHRINK,
    STUCK,
    Exchanged,
    Judged,
    Jumps,
    Plan,
    Stepper,
    Tally,
)
from cosimo.execution.adaptive.variable import first_places
from cosimo.execution.engines import KernelEngine
from cosimo.execution.live import Live
from cosimo.execution.lowering import Quanta, VariableLowering
from cosimo.execution.options import EngineOptions

BLOCK = 4096  # rows per call of the kernel


class AdaptiveLowering(VariableLowering):
    """The program of macro steps of whole quanta, with holds that know when their samples were taken."""

    def __init__(self, live: Live, names: Sequence[str], plan: Plan) -> None:
        grid, parts, self._timed = plan.lengths.grid, plan.lengths.first, False
        read_at, self._stamps = first_places(live, parts)
        super().__init__(live, names, Quanta(grid.quantum, parts, grid.time), kept=plan.kind == "doubling")
        flat = [number for places in self._stamps for number in (len(places), *places)]
        known = ([read_at[name] for name in self.system.units], flat) if self._timed else ([], [])
        self.program.vary(grid.quantum, parts, (grid.total, grid.stop), *known)

    def _link(self, link: Link, coupling: Coupling, sampling: Sampling, place: int, time: Fraction) -> None:
        if coupling.history == 1:
            return super()._link(link, coupling, sampling, place, time)
        self._timed = True
        connection, number = link.connection, link.number
        source = (self.y[link.source.unit] + link.source.index, connection.gain, connection.offset)
        m, unit = len(self.system.units[link.target.unit].inputs), self.numbers[link.source.unit]
        stamps = sum(1 + len(places) for places in self._stamps[:number])
        self.program.timed_link(source, place, m, self.w[number], coupling.history, (unit, stamps), float(time))
        return None

    def exchanged(self, signals: Exchanged) -> list[tuple[Any, ...]]:
        """Per signal the place of its output, gain and offset, and how its input is evaluated; whether it counts."""
        links = [link.connection for link in self.system.links]
        sources = [(self.system.outputs.index(link.source), link.gain, link.offset) for link in links]
        sources += [(0, 0.0, 0.0)] * len(signals.given)
        return [
            (*source, *self._value_now(target), counts)
            for source, target, counts in zip(sources, signals.targets, signals.counts.tolist(), strict=True)
        ]

    def inputs_of(self, name: str) -> list[tuple[Any, ...]]:
        """The same of all inputs of a unit, none of which has an output."""
        unit = self.system.units[name]
        found = [(variable not in unit.discrete_inputs, f"{name}.{variable}") for variable in unit.inputs]
        return [(0, 0.0, 0.0, *self._value_now(full), counts) for counts, full in found]


class KernelStepper(Stepper):
    """Makes macro steps by the kernel, many in one call."""

    def __init__(self, live: Live, plan: Plan, names: Sequence[str], options: EngineOptions) -> None:
        super().__init__(plan)
        system = live.system
        self._signals = Exchanged(system)
        self._places = [*self._signals.units, *(name for name, unit in system.units.items() for _ in unit.outputs)]
        self._names = [*self._signals.names, *system.outputs]
        lowering = AdaptiveLowering(live, names, plan)
        self._program = lowering.program
        self._begin(live, lowering)
        self._engine = KernelEngine(live, names, replace(options, parallel=False), lowering=lowering)
        self._rows = np.empty((BLOCK, len(names) + 2))

    def _begin(self, live: Live, lowering: AdaptiveLowering) -> None:
        plan, lengths = self.plan, self.plan.lengths
        outside = None
        if given := self._signals.given:
            jumps = Jumps(live.system, lengths.grid, live.sample)

            def now(place: int) -> list[float]:
                time = lengths.grid.time(place)
                return [live.sample(name, source, time) for name, source in given]

            outside = (jumps.next, lowering.sampled, now)
        shared = {
            "safety": SAFETY,
            "now": (INTEGRAL + PROPORTIONAL) * plan.exponent,
            "past": PROPORTIONAL * plan.exponent,
            "shrink": SHRINK,
            "grow": GROW,
            "least_error": LEAST_ERROR,
            "exponent": plan.exponent,
            "settling": SETTLING,
            "stuck": STUCK,
            "first": lengths.first,
            "shortest": lengths.shortest,
            "longest": lengths.longest,
            "relative": plan.tolerances.relative,
            "absolute": plan.tolerances.absolute,
            "exchanged": lowering.exchanged(self._signals),
            "given": lowering.sampled(0, lengths.first),
            "external": [0.0] * len(given),
            "outside": outside,
        }
        if plan.kind == "doubling":
            self._compare(shared, live, lowering)
            return
        pairs = [(bond.forward.number, bond.back.number, bond.back.connection.gain) for bond in plan.bonds]
        self._program.by_energy(shared, plan.nominal, pairs)

    def _compare(self, shared: dict[str, Any], live: Live, lowering: AdaptiveLowering) -> None:
        """By doubling: all units are saved, and those asked again whose outputs belong to another time or input."""
        units, changes = live.system.units, self.plan.changes
        counts = [name not in unit.discrete_outputs for unit in units.values() for name in unit.outputs]
        self._program.by_doubling(shared, self.plan.order, (changes.relative, changes.absolute), counts)
        lowering.keep_all()
        for name, unit in units.items():
            number, width = lowering.numbers[name], live.c[name].size
            early, through = live.timeline.clocks[name].read < 1, bool(unit.feedthrough().any())
            if early or through:
                inputs = lowering.inputs_of(name) if through else []
                self._program.asked(number, lowering.y[name], early, width, inputs)

    def advance(self) -> None:
        self.rows = ()
        try:
            self._engine.advance(0, self._rows)
        except (StepDiscarded, NonFiniteError, EndRequested):
            if not self._engine.retry():  # with a shorter step
                raise
        finally:
            self._take()
        if self._engine.too_short:
            raise self._too_short(self._judged(*self._program.judged))

    def _take(self) -> None:
        self.rows, self.ended = self._rows[: self._engine.made], self._engine.ended
        place, accepted, extremes, made, rejected, forced, at, first, energies = self._program.tally
        first_forced = self._judged(*first)
        self.tally = Tally(place, accepted, extremes, made, rejected, forced, at, first_forced, energies)

    def _judged(self, error: float, worst: int) -> Judged:
        return NOTHING if worst < 0 else Judged(error, self._places[worst], self._names[worst])

    def made_so_far(self) -> Array:
        """The rows that the call under way has completed; any thread may ask."""
        return self._rows[: self._engine.made_so_far]

    def close(self) -> None:
        self._engine.close()
