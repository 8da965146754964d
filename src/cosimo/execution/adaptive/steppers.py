"""The two ways to judge a macro step: by what is exchanged alone ("energy"), and by step doubling ("doubling").

Both are written twice: in plain Python, and in the compiled loop (kernel/stepper.hpp), which makes the same choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from cosimo.core.arrays import Array, output_values, product
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
    PlainStepper,
    Plan,
    Seen,
    Stepper,
    Tally,
)
from cosimo.execution.adaptive.variable import VariableInterpreter, first_places
from cosimo.execution.engines import KernelEngine
from cosimo.execution.interpreter import Saved
from cosimo.execution.live import Live, Signals
from cosimo.execution.lowering import Quanta, VariableLowering
from cosimo.execution.options import EngineOptions

# ---- energy: steps chosen by what is exchanged alone; nothing is repeated and no state is needed ---------------------
# Let link a carry s_a = g y + o, the sample its source has at the end of the step, while the unit behind it was given
# u_a. The *defect* |u_a − s_a| is what the coupling guessed wrong. On a power bond (power_bonds.py) of the links a and
# b, the two units disagree about the power that passes between them by the residual (Sadjina et al. 2017), up to the
# gain of b,
#
#     δP = u_a s_b − u_b s_a = (u_a − s_a) s_b − (u_b − s_b) s_a,        |δE| ≤ h (|u_a − s_a| S_b + |u_b − s_b| S_a)
#
# over a step of length h, with S the largest size of each signal so far. The bound governs the step: it is linear in
# the signals where δE is quadratic, so that a motion that has faded is still followed, and it does not vanish where
# force or velocity pass through zero. Against the energy that the largest signals carry in the nominal macro step h₀,
#
#     ε = h (|u_a − s_a| S_b + |u_b − s_b| S_a) / (2 r S_a S_b h₀)
#
# with the tolerance r. Links outside bonds, and external inputs, count with ε = h |u − s| / ((r S + a) h₀), a the
# absolute tolerance, which joins r S in bonds as well. Where a source has stepped before, its future value was given:
# there the sample at the start of the step is compared too.
#
# Sadjina, Kyllingstad, Skjong, Pedersen: Energy conservation and power bonds in co-simulations: non-iterative adaptive
# step size control and error estimation. Engineering with Computers 33 (2017).


class EnergyStepper(PlainStepper):
    """Every step is accepted; what it left of residual energy and defects decides on the next."""

    def _advance(self) -> tuple[list[int], list[list[float]]]:
        length, jumped = self._length()
        step, end = self._make(self.place, length), self.place + length
        judged = self._judge(step, end, jumped)
        if judged.error > 1 and length <= self.lengths.shortest:
            self._force(judged)
        self._choose(length, judged.error, jumped)
        return [length], [self._row(end, length)]

    def _judge(self, step: VariableInterpreter, place: int, jumped: bool) -> Judged:
        """How well the macro step that ended at `place` went; external inputs that `jumped` there are left out."""
        h, exchange, seen = step.master.step, self._exchange, self._exchange.look(step, place)
        wrong = np.maximum(np.abs(seen.used - seen.new), np.abs(exchange.first(step) - seen.old))
        alone = exchange.counted(wrong / self.plan.tolerances.of(seen.sizes) * (h / self.plan.nominal), jumped)
        errors = alone.copy()
        pairs = [(bond.forward.number, bond.back.number, bond.back.connection.gain) for bond in self.plan.bonds]
        for a, b, _ in pairs:
            errors[[a, b]] = 0.0
        for bond, (a, b, gain) in enumerate(pairs):
            errors[[a, b]] = np.maximum(errors[[a, b]], (alone[a] + alone[b]) / 2.0)
            received, sent = float(seen.used[a] * seen.new[b]) / gain, float(seen.used[b] * seen.new[a]) / gain
            residual, passed = self.tally.energies[bond]
            self.tally.energies[bond] = (
                residual + h * (received - sent),
                passed + h * (abs(received) + abs(sent)) / 2.0,
            )
        exchange.accept(seen)
        return exchange.worst(errors)


# ---- step doubling: two macro steps and one of twice the length, from the same saved state ---------------------------
# For a master of order p the error of the two short steps is, to leading order (Richardson),
#
#     e = (y_short − y_long) / (2^p − 1).
#
# Outputs are compared at the same time and, where a unit feeds inputs through, under the same input: the input of a
# step is held or extrapolated, so that such an output is late by a step anyway, an error that does not add up and would
# hide that of the states. What neither of the two has seen yet cannot differ, such as a limit that is left in the last
# of the steps; so an input may not have changed by more than 2 r^(1/(p + 1)) of its size either, about the most that a
# smooth signal changes in a step with the error r.
#
# A pair of steps with an error above the tolerance is not accepted: all units go back and try shorter ones. A step that
# a unit discards, in which it wants the simulation to end, or that gives no finite value, is too long as well.


class DoublingStepper(PlainStepper):
    """Pairs of macro steps, each compared with one of twice the length."""

    pair = 2

    def __init__(self, live: Live, plan: Plan, names: Sequence[str]) -> None:
        super().__init__(live, plan, names)
        self._shrinks = 2.0**plan.order - 1.0
        units = live.system.units
        self._names = live.system.outputs
        self._units = [name for name, unit in units.items() for _ in unit.outputs]
        self._through = [name for name, unit in units.items() if unit.feedthrough().any()]
        self._early = {name for name, clock in live.timeline.clocks.items() if clock.read < 1}
        # What is not continuous differs by a step of its own, however short ours are.
        self._counts = np.array([name not in u.discrete_outputs for u in units.values() for name in u.outputs])
        self._sizes = np.abs(np.array(live.outputs()))
        self._stuck = 0
        self._seen: tuple[Array, Seen]  # of the last attempt

    def _memory(self) -> dict[str, Any]:
        return {**super()._memory(), "sizes": self._sizes, "stuck": self._stuck}

    def _load(self, memory: dict[str, Any]) -> None:
        super()._load(memory)
        self._sizes, self._stuck = np.array(memory["sizes"]), int(memory["stuck"])

    def _advance(self) -> tuple[list[int], list[list[float]]]:
        saved, refused, exponent = self.interpreter.save(self.place), 0, self.plan.exponent
        while True:
            length, jumped = self._length()
            half = length // 2
            if half == 0:  # jumps a quantum apart: nothing to compare
                self._make(self.place, length)
                self._choose(length, 1.0, jumped)
                return [length], [self._row(self.place + length, length)]
            # Before a jump, or the end, it may be that no shorter way leaves a rest that is long enough.
            shortest = half <= self.lengths.shortest or length == refused
            try:
                judged, rows = self._attempt(saved, half, length, jumped)
            except (StepDiscarded, NonFiniteError, EndRequested):
                if shortest:
                    raise
                judged, rows = Judged(math.inf, "", ""), []
            if judged.error <= 1 or shortest:
                self._accept()
                break
            self.tally.rejected, refused = self.tally.rejected + 1, length
            self.interpreter.restore(saved)
            self.wanted = self.lengths.fit(half * max(SAFETY * judged.error**-exponent, SHRINK))
        self._require_progress(judged)
        # What was just refused is not tried again at once.
        self._choose(half, max(judged.error, SAFETY ** (1 / exponent)) if refused else judged.error, jumped)
        return [half, length - half], rows

    def _attempt(self, saved: Saved, half: int, length: int, jumped: bool) -> tuple[Judged, list[list[float]]]:
        """The error of two steps from the `saved` state, which is the present one, and their rows."""
        interpreter, place = self.interpreter, saved.k
        end = place + length
        long = self._outputs(self._make(place, length), end, {})
        given = {name: _input(interpreter, name) for name in self._through}
        interpreter.restore(saved)
        self._make(place, half)
        rows = [self._row(place + half, half)]
        sizes = np.maximum(self._sizes, np.abs(interpreter.live.outputs()))
        last = self._make(place + half, length - half)
        rows.append(self._row(end, length - half))
        sizes = np.maximum(sizes, np.abs(interpreter.live.outputs()))
        difference = np.abs(self._outputs(last, end, given) - long)
        errors = np.where(self._counts, difference / self._shrinks / self.plan.tolerances.of(sizes), 0.0)
        errors[np.isnan(errors)] = math.inf
        worst = int(np.argmax(errors)) if len(errors) else -1
        judged = Judged(float(errors[worst]), self._units[worst], self._names[worst]) if len(errors) else NOTHING
        seen = self._exchange.look(last, end)
        changed = self._changed(seen, jumped)
        judged = changed if changed.error > judged.error else judged
        self._seen = sizes, seen
        return judged, rows

    def _accept(self) -> None:
        """The pair of steps counts."""
        self._sizes, seen = self._seen
        self._exchange.accept(seen)

    def _changed(self, seen: Seen, jumped: bool) -> Judged:
        """Defects against the change that is allowed; they go with h^p, where errors of a step go with h^(p+1)."""
        wrong = np.abs(seen.used - seen.new) / self.plan.changes.of(seen.sizes)
        worst, order = self._exchange.worst(self._exchange.counted(wrong, jumped)), self.plan.order
        return worst._replace(error=float(np.float64(worst.error) ** ((order + 1) / order)))

    def _outputs(self, step: VariableInterpreter, end: int, given: dict[str, Array]) -> Array:
        """All outputs at `end`, of units in `given` as they are under that input, which is then taken back."""
        parts = []
        for name, unit in step.system.units.items():
            if name not in given and name not in self._early:
                parts.append(step.y[name])
                continue
            instance, count = step.instances[name], len(unit.outputs)
            with step.guard(name, "read", end):
                if name in given:
                    own = _input(step, name)
                    fixed = [variable in unit.discrete_inputs for variable in unit.inputs]
                    instance.set_input(np.where(fixed, own, given[name])[None, :], step.master.step)
                    parts.append(output_values(instance.read(), count))
                    instance.set_input(own[None, :], step.master.step)
                else:
                    parts.append(output_values(instance.read(), count))
        return np.concatenate(parts) if parts else np.empty(0)

    def _require_progress(self, judged: Judged) -> None:
        if judged.error <= 1:
            self._stuck = max(self._stuck - 1, 0)
            return
        self._force(judged)
        self._stuck += 1
        if self._stuck > STUCK:
            raise self._too_short(judged)


def _input(step: VariableInterpreter, name: str) -> Array:
    """The unit's input at the end of the macro step."""
    value: Array = product(step.live.input_rows[name][None, :], step.c[name])[0]
    return value


# ---- compiled: Python is asked for external inputs, at every step, and for the constants of a length that is new -----
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
        self._pair = 2 if plan.kind == "doubling" else 1

    def _begin(self, live: Live, lowering: AdaptiveLowering) -> None:
        plan, lengths = self.plan, self.plan.lengths
        outside = None
        self._jumps = jumps = Jumps(live.system, lengths.grid, live.sample)
        if given := self._signals.given:

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

    def advance(self, *, once: bool = False) -> None:
        self.rows = ()
        try:
            self._engine.advance(0, self._rows[: self._pair] if once else self._rows)
        except (StepDiscarded, NonFiniteError, EndRequested):
            if not self._engine.retry():  # with a shorter step
                raise
        finally:
            self._take()
        if self._engine.too_short:
            raise self._too_short(self._judged(*self._program.judged))
        if once and not len(self.rows):  # what was just refused
            self.advance(once=True)

    def signals(self) -> Signals:
        return self._engine.signals()

    def memory(self, at: float) -> dict[str, Any]:
        return {**self._engine.memory(at), "jumps": self._jumps.memory()}

    def load(self, memory: dict[str, Any], at: float) -> None:
        self._engine.load(memory, at)
        self._jumps.load(memory["jumps"])
        self._take()

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
