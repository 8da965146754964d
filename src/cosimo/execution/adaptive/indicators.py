"""How well a macro step went, told from what is exchanged alone: nothing is repeated and no state is needed.

Let link a carry s_a = g y + o, the sample its source has at the end of the step, while the unit behind it was given
u_a. The *defect* |u_a − s_a| is what the coupling guessed wrong. On a power bond (bonds.py) of the links a and b, the
two units disagree about the power that passes between them by the residual (Sadjina et al. 2017), up to the gain of b,

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

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.sources import Constant
from cosimo.execution.adaptive.variable import VariableInterpreter
from cosimo.execution.power_bonds import Bond


class Judged(NamedTuple):
    """The error of a step as a multiple of what is tolerated, and the unit and the signal it is worst at."""

    error: float
    unit: str
    worst: str


NOTHING = Judged(0.0, "", "")
"""For a system without anything to judge by."""


@dataclass(frozen=True)
class Tolerances:
    """`relative` to the largest size of a signal so far, and `absolute`."""

    relative: float
    absolute: float

    def of(self, sizes: Array) -> Array:
        """What is tolerated at signals of these sizes; never 0."""
        return np.maximum(self.relative * sizes + self.absolute, np.finfo(float).tiny)


@dataclass(frozen=True)
class Seen:
    """Of every link, then every external input that varies: the input used, the new sample, the one at the start, and
    the largest size so far."""

    used: Array
    new: Array
    old: Array
    sizes: Array


class Exchange:
    """What passes between the units of a live system."""

    def __init__(self, interpreter: VariableInterpreter) -> None:
        system = interpreter.system
        links = system.links
        self._given = [(name, source) for name, source in system.inputs.items() if not isinstance(source, Constant)]
        targets = [link.connection.target for link in links] + [name for name, _ in self._given]
        self._names = [str(link.connection) for link in links] + [name for name, _ in self._given]
        self._units = [system.input(name).unit for name in targets]
        self._source = np.array([system.outputs.index(link.connection.source) for link in links], dtype=int)
        self._target = np.array([system.input_names.index(name) for name in targets], dtype=int)
        self._gain = np.array([link.connection.gain for link in links])
        self._offset = np.array([link.connection.offset for link in links])
        # What is not continuous cannot be guessed better by a shorter step.
        discrete = {f"{name}.{variable}" for name, unit in system.units.items() for variable in unit.discrete_inputs}
        self._counts = np.array([name not in discrete for name in targets], dtype=bool)
        self._old = self._samples(interpreter, 0)
        self._sizes = np.abs(self._old)

    def look(self, interpreter: VariableInterpreter, place: int) -> Seen:
        """What the macro step that ended at `place` exchanged."""
        used, new = np.array(interpreter.live.inputs())[self._target], self._samples(interpreter, place)
        return Seen(used, new, self._old, np.maximum(self._sizes, np.maximum(np.abs(new), np.abs(used))))

    def accept(self, seen: Seen) -> None:
        """The macro step counts: the next one begins here."""
        self._old, self._sizes = seen.new, seen.sizes

    def first(self, interpreter: VariableInterpreter) -> Array:
        """The inputs as they were at the start of the step."""
        values: Array = np.concatenate([interpreter.c[name][0] for name in interpreter.system.units])[self._target]
        return values

    def counted(self, errors: Array, jumped: bool) -> Array:
        """Errors of what can be guessed: continuous, and external only where it has not `jumped`."""
        counts = self._counts.copy()
        if jumped:
            counts[len(self._source) :] = False
        return np.where(counts, errors, 0.0)

    def worst(self, errors: Array) -> Judged:
        """The largest of the errors."""
        if not len(errors):
            return NOTHING
        place = int(np.argmax(errors))
        return Judged(float(errors[place]), self._units[place], self._names[place])

    def _samples(self, interpreter: VariableInterpreter, place: int) -> Array:
        links = self._gain * np.array(interpreter.live.outputs())[self._source] + self._offset
        time = interpreter.grid.time(place)
        return np.concatenate([links, [interpreter.live.sample(name, source, time) for name, source in self._given]])


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
