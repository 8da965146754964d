"""What an assignment lacks: the signals or forces that would make the eigenstructure assignable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cosimo.compensation.assignment import Assignment, assign
from cosimo.compensation.forces import Force, Signal, available_forces


@dataclass(frozen=True)
class _Addition:
    """One more signal in force number `number`, or (None) one more force."""

    number: int | None
    signal: Signal | None
    force: Force

    def to(self, forces: tuple[Force, ...]) -> tuple[Force, ...]:
        """The forces with it."""
        if self.number is None or self.signal is None:
            return (*forces, self.force)
        changed = replace(forces[self.number], sees=(*forces[self.number].sees, self.signal))
        return (*forces[: self.number], changed, *forces[self.number + 1 :])

    def __str__(self) -> str:
        if self.signal is None:
            return f"an independent {self.force}"
        where = " and ".join(str(place.coordinate) for place in self.force.acts_on)
        return f"signal {self.signal} in the force on {where}"


def missing(assignment: Assignment) -> tuple[str, ...]:
    """Single additions that suffice, each alone; else one set of them; nothing where no set suffices.

    Tried are first the signals that a force's unit can see already and forces where the interface perturbs, then
    also coordinates of other units that would have to be exchanged.
    """
    if assignment.assignable:
        return ()
    stiffness, forces = assignment.stiffness, assignment.forces
    new = [_Addition(None, None, force) for force in available_forces(stiffness) if force not in forces]
    near = [*_visible(assignment), *new]
    for candidates in (near, [*near, *_exchanged(assignment)]):
        alone = [str(one) for one in candidates if assign(stiffness, one.to(forces)).assignable]
        if alone:
            return tuple(alone)
        several = _together(assignment, candidates)
        if several:
            return (" and ".join(map(str, several)),)
    return ()


def _together(assignment: Assignment, candidates: Sequence[_Addition]) -> list[_Addition]:
    """A set that suffices: always the addition that leaves least, then without those that turn out not to be needed."""
    stiffness = assignment.stiffness
    chosen: list[_Addition] = []

    def tried(additions: Sequence[_Addition]) -> Assignment:
        forces = assignment.forces
        for one in additions:
            forces = one.to(forces)
        return assign(stiffness, forces)

    left = list(candidates)
    while not tried(chosen).assignable:
        if not left:
            return []
        best = min(left, key=lambda one: tried([*chosen, one]).residual)
        left.remove(best)
        chosen.append(best)
    for one in list(chosen):
        rest = [other for other in chosen if other is not one]
        if tried(rest).assignable:
            chosen = rest
    return chosen


def _visible(assignment: Assignment) -> Iterator[_Addition]:
    """Signals that a force does not use although its unit can see them."""
    seen = {force.acts_on[0].coordinate.unit: force.sees for force in available_forces(assignment.stiffness)}
    for number, force in enumerate(assignment.forces):
        used = {signal.coordinate for signal in force.sees}
        for signal in seen.get(force.acts_on[0].coordinate.unit, ()):
            if signal.coordinate not in used:
                yield _Addition(number, signal, force)


def _exchanged(assignment: Assignment) -> Iterator[_Addition]:
    """Coordinates of other units that do not reach a force's unit yet; they would come as its first connected input."""
    stiffness = assignment.stiffness
    seen = {force.acts_on[0].coordinate.unit: force.sees for force in available_forces(stiffness)}
    for number, force in enumerate(assignment.forces):
        own = force.acts_on[0].coordinate.unit
        links = stiffness.system.incoming(own)
        known = {signal.coordinate for signal in (*force.sees, *seen.get(own, ()))}
        for coordinate in stiffness.coordinates if links else ():
            if coordinate.unit != own and coordinate not in known:
                yield _Addition(number, Signal(coordinate, links[0].connection.target), force)
