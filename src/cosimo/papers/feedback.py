"""The papers' compensator in a run: feedback inside the units, and corrections that cross the interface.

A force feeds back its own unit's coordinates at once, so that they change the unit itself,

    (M + B d) q̈ + (C + B f) q̇ + (K + B g) q = …

with the acceleration solved inside the step; and those of other units as they last arrived, where an acceleration is
the last one the other unit computed: with symplectic Euler the difference of two velocities, (q̇_k − q̇_{k−1}) / h.
The result is an ordinary system and master; they run, and can be analysed, like any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.coupling import Mixer
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Repeat, Step
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.papers.assignment import Assignment
from cosimo.papers.stiffness import Coordinate, Force, Signal, mechanical_units
from cosimo.units import Mechanical
from cosimo.units.linear import SymplecticEuler

Build = Callable[[System, float], Master]


@dataclass(frozen=True)
class _Correction:
    """What other units' coordinates add to one unit: the input that takes it, the signals, and d, f, g (3, signals)."""

    name: str
    column: Array
    signals: tuple[Signal, ...]
    gains: Array


def with_feedback(assignment: Assignment, master: Build, *, check: bool = True) -> tuple[System, Master]:
    """The system whose units hold their own feedback, and `master(system, step)` with the corrections across.

    Refused are gains that do not assign the eigenstructure, and schedules other than one step of every unit per macro
    step: D(s) of the design is that of one exchange per macro step. Without `check` any gains run (those printed in a
    paper, rounded); a `UserWarning` then says what they leave of L k = n.
    """
    if check:
        assignment.require()
    elif not assignment.assignable:
        warnings.warn(
            f"the gains of {assignment.stiffness.system.name} leave {assignment.residual:.1e} of L k = n: the "
            f"co-simulation has other poles than the coupled system.",
            stacklevel=2,
        )
    system = assignment.stiffness.system
    corrections = {name: _corrections(assignment, name) for name in system.units}
    shown = {s.coordinate for found in corrections.values() for c in found for s in c.signals}
    units = {name: _changed(assignment, name, corrections[name], shown) for name in system.units}
    added = [
        Connection(_position(correction.signals[0].coordinate), f"{name}.{correction.name}")
        for name, found in corrections.items()
        for correction in found
    ]
    changed = System(units, [*system.connections, *added], inputs=system.inputs, name=f"{system.name}, compensated")
    plain = master(changed, assignment.stiffness.step)
    if plain.coupling != Hold(0) or any(coupling != Hold(0) for coupling in plain.couplings.values()):
        raise ConfigurationError("the papers' compensator is designed for signals that are held; use Hold(0).")
    _require_one_step(plain, assignment.stiffness.step)
    mixers = {name: _mixer(assignment, changed, name, found) for name, found in corrections.items() if found}
    return changed, replace(plain, name=f"{plain.name}+feedback", mixers=mixers)


def _require_one_step(master: Master, step: float) -> None:
    operations = master.schedule.operations
    steps = [operation for operation in operations if isinstance(operation, Step)]
    repeated = any(isinstance(operation, Repeat) for operation in operations)
    if repeated or master.step != step or any(steps.count(Step(name)) != 1 for name in master.schedule.units):
        raise ConfigurationError(
            f"the papers' compensator is designed for one step of every unit per macro step of {step:g} s; master "
            f"'{master.name}' does otherwise. Use jacobi, jacobi_early_read or gauss_seidel, or `compensate`."
        )


def _corrections(assignment: Assignment, name: str) -> list[_Correction]:
    found = []
    for force, gains in zip(assignment.forces, assignment.gains, strict=True):
        place = _only_place(force)
        foreign = [i for i, signal in enumerate(force.sees) if signal.coordinate.unit != name]
        if place.unit == name and foreign:
            column = np.zeros(len(mechanical_units(assignment.stiffness.system)[name].M))
            column[place.index] = force.acts_on[0].gain
            seen = tuple(force.sees[i] for i in foreign)
            found.append(_Correction(f"feedback{place.index + 1}", column, seen, gains[:, foreign]))
    return found


def _only_place(force: Force) -> Coordinate:
    if len(force.acts_on) != 1:
        raise ConfigurationError(f"a run needs every force on one coordinate; this is a {force}.")
    return force.acts_on[0].coordinate


def _changed(assignment: Assignment, name: str, corrections: list[_Correction], shown: set[Coordinate]) -> Mechanical:
    """The unit with its own feedback inside, inputs for the corrections, and outputs that others feed back."""
    unit = mechanical_units(assignment.stiffness.system)[name]
    if not isinstance(unit.integrator, SymplecticEuler) or unit.micro_steps != 1:
        raise ConfigurationError(
            f"unit '{name}' is not stepped once per macro step by SymplecticEuler, which the papers' compensator needs."
        )
    inner = {"M": unit.M.copy(), "C": unit.C.copy(), "K": unit.K.copy()}
    for force, gains in zip(assignment.forces, assignment.gains, strict=True):
        place = _only_place(force)
        for number, signal in enumerate(force.sees):
            if place.unit == name == signal.coordinate.unit:
                for matrix, gain in zip(inner.values(), gains[:, number], strict=True):
                    matrix[place.index, signal.coordinate.index] += force.acts_on[0].gain * gain
    n = len(unit.M)
    own = [c.index for c in sorted(shown, key=lambda c: c.index) if c.unit == name]
    rows, none = np.eye(n)[own], np.zeros((len(own), n))
    extra = len(corrections)
    return Mechanical(
        *inner.values(),
        B=np.column_stack([unit.B, *(c.column for c in corrections)]),
        displacement=np.vstack([unit.displacement, rows, none]),
        velocity=np.vstack([unit.velocity, none, rows]),
        acceleration=np.vstack([unit.acceleration, none, none]),
        feedthrough=np.pad(unit.direct, ((0, 2 * len(own)), (0, extra))),
        initial=unit.initial_state,
        integrator=unit.integrator,
        inputs=[*unit.inputs, *(c.name for c in corrections)],
        outputs=[*unit.outputs, *(f"position{i + 1}" for i in own), *(f"speed{i + 1}" for i in own)],
        start=unit.start,
    )


def _position(coordinate: Coordinate) -> str:
    return f"{coordinate.unit}.position{coordinate.index + 1}"


def _mixer(assignment: Assignment, system: System, name: str, corrections: list[_Correction]) -> Mixer:
    """Plain holds for the unit's own connections; for each signal fed back q, q̇ and the velocity one step before."""
    stiffness, links = assignment.stiffness, system.incoming(name)
    h, A = stiffness.step, stiffness.laplace.coupled.A
    targets = {system.units[name].inputs[link.target.index]: row for row, link in enumerate(links)}
    added = {f"{name}.{correction.name}" for correction in corrections}
    plain = [link for link in links if link.connection.target not in added]
    signals = [(correction, number) for correction in corrections for number in range(len(correction.signals))]
    size, outputs = len(plain) + 3 * len(signals), system.outputs
    ww, wy, uw = np.zeros((size, size)), np.zeros((size, len(outputs))), np.zeros((len(links), size))
    start, states = np.zeros((size, len(A))), np.eye(len(A))
    for slot, link in enumerate(plain):
        wy[slot, outputs.index(link.connection.source)] = 1.0
        uw[links.index(link), slot] = link.connection.gain
    for number, (correction, which) in enumerate(signals):
        coordinate = correction.signals[which].coordinate
        q, v, before = (len(plain) + 3 * number + i for i in range(3))
        wy[q, outputs.index(_position(coordinate))] = 1.0
        wy[v, outputs.index(_position(coordinate).replace(".position", ".speed"))] = 1.0
        ww[before, v] = 1.0
        d, f, g = correction.gains[:, which]
        row = targets[correction.name]
        uw[row, [q, v, before]] = -g, -(f + d / h), d / h
        # Before the start the velocity was that of one step back: q̇(0) − h q̈(0).
        place = stiffness.velocities[stiffness.coordinates.index(coordinate)]
        start[v] = states[place] - h * A[place]
    x0 = np.concatenate([unit.initial_state for unit in mechanical_units(system).values()])
    inputs = tuple(link.connection.target for link in links)
    return Mixer(ww, wy, uw, start @ x0, start, outputs=outputs, inputs=inputs)
