"""Steps chosen by what is exchanged alone: nothing is repeated and no state is needed.

Let link a carry s_a = g y + o, the sample its source has at the end of the step, while the unit behind it was given
u_a. The *defect* |u_a − s_a| is what the coupling guessed wrong. On a power bond (power_bonds.py) of the links a and
b, the two units disagree about the power that passes between them by the residual (Sadjina et al. 2017), up to the gain
of b,

    δP = u_a s_b − u_b s_a = (u_a − s_a) s_b − (u_b − s_b) s_a,        |δE| ≤ h (|u_a − s_a| S_b + |u_b − s_b| S_a)

over a step of length h, with S the largest size of each signal so far. The bound governs the step: it is linear in the
signals where δE is quadratic, so that a motion that has faded is still followed, and it does not vanish where force or
velocity pass through zero. Against the energy that the largest signals carry in the nominal macro step h₀,

    ε = h (|u_a − s_a| S_b + |u_b − s_b| S_a) / (2 r S_a S_b h₀)

with the tolerance r. Links outside bonds, and external inputs, count with ε = h |u − s| / ((r S + a) h₀), a the
absolute tolerance, which joins r S in bonds as well. Where a source has stepped before, its future value was given:
there the sample at the start of the step is compared too.

Sadjina, Kyllingstad, Skjong, Pedersen: Energy conservation and power bonds in co-simulations: non-iterative adaptive
step size control and error estimation. Engineering with Computers 33 (2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cosimo.core.result import Warned
from cosimo.execution.adaptive.stepping import Advance, Exchange, Judged, Plan, Row, Stepper, Tolerances
from cosimo.execution.adaptive.variable import VariableInterpreter
from cosimo.execution.power_bonds import Bond


class EnergyStepper(Stepper):
    """Every step is accepted; what it left of residual energy and defects decides on the next."""

    def __init__(self, interpreter: VariableInterpreter, plan: Plan, row: Row) -> None:
        super().__init__(interpreter, plan, row)
        self._defects = Defects(interpreter, plan.bonds, plan.tolerances)
        self.indicator = "residual energy" if self._defects.bonds else "connection defect"

    def advance(self, place: int) -> Advance:
        length, jumped = self._length(place)
        step = self.interpreter.lasting(length)
        self.made += 1
        step.macro_step(place)
        end = place + length
        judged = self._defects.judge(step, end, jumped)
        if judged.error > 1 and length <= self.lengths.shortest:
            self._force(judged, place)
        self._choose(length, judged.error, jumped)
        return Advance([length], [self.row(end, length)])

    def told(self) -> dict[str, Any]:
        return super().told() | {"bonds": self._defects.told()}

    def warnings(self) -> list[Warned]:
        if self._defects.bonds:
            return super().warnings()
        message = "no power bond was found: the connection defects alone govern the step"
        return [Warned(message, self.lengths.grid.start), *super().warnings()]


class Defects:
    """Judges the macro steps of a live system by power bonds and connection defects."""

    def __init__(self, interpreter: VariableInterpreter, bonds: tuple[Bond, ...], tolerances: Tolerances) -> None:
        self.bonds, self._tolerances, self._nominal = bonds, tolerances, interpreter.nominal
        self._exchange = Exchange(interpreter)
        self._pairs = [(bond.forward.number, bond.back.number, bond.back.connection.gain) for bond in bonds]
        self._energies = [[0.0, 0.0] for _ in bonds]

    def judge(self, interpreter: VariableInterpreter, place: int, jumped: bool) -> Judged:
        """How well the macro step that ended at `place` went; external inputs that `jumped` there are left out."""
        h, seen = interpreter.master.step, self._exchange.look(interpreter, place)
        wrong = np.maximum(np.abs(seen.used - seen.new), np.abs(self._exchange.first(interpreter) - seen.old))
        alone = self._exchange.counted(wrong / self._tolerances.of(seen.sizes) * (h / self._nominal), jumped)
        errors = alone.copy()
        for a, b, _ in self._pairs:
            errors[[a, b]] = 0.0
        for (a, b, gain), energies in zip(self._pairs, self._energies, strict=True):
            errors[[a, b]] = np.maximum(errors[[a, b]], (alone[a] + alone[b]) / 2.0)
            received, sent = seen.used[a] * seen.new[b] / gain, seen.used[b] * seen.new[a] / gain
            energies[0] += h * (received - sent)
            energies[1] += h * (abs(received) + abs(sent)) / 2.0
        self._exchange.accept(seen)
        return self._exchange.worst(errors)

    def told(self) -> list[dict[str, Any]]:
        """For the result: per bond, the sums of the residual energy δE and of the energy that passed either way."""
        return [
            {"bond": str(bond), "why": bond.why, "residual_energy": residual, "exchanged_energy": passed}
            for bond, (residual, passed) in zip(self.bonds, self._energies, strict=True)
        ]
