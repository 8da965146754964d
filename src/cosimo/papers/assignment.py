"""The papers' design: gains that give the co-simulated system the poles and shapes of the monolithic one.

With the virtual forces u = −ΔG_R(s) q placed by B, every monolithic pair (λ_i, w_i) shall stay a solution,

    (ΔG_c(λ_i) + B ΔG_R(λ_i)) w_i = 0                                                       (tamellin2022, Eq. 21)

which is linear in the gains k = [d f g] of acceleration, velocity and position: L k = n (Eq. 22), real and imaginary
parts one below the other (Eq. 29). It has a solution if rank L = rank [L n] (Eq. 33). That is not enough: a solution
can make the compensated pencil singular for *every* s (the four-mass system does). Singular values below `SMALL` of
the largest are therefore left out, and regularity is tested apart. Poles are those of the continuous system; for gains
that are right for the schedule which really runs see `compensate`.

`with_feedback` puts the gains into a run. A force feeds back its own unit's coordinates at once, so that they change
the unit itself,

    (M + B d) q̈ + (C + B f) q̇ + (K + B g) q = …

with the acceleration solved inside the step; and those of other units as they last arrived, where an acceleration is
the last one the other unit computed: with symplectic Euler the difference of two velocities, (q̇_k − q̇_{k−1}) / h.
The result is an ordinary system and master; they run, and can be analysed, like any other.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize

from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.coupling import Mixer
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.schedule import Repeat, Step
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.papers.laplace import PrimaryPole, normalised
from cosimo.papers.roots import Matrix, Region, follow, roots_in
from cosimo.papers.stiffness import Coordinate, DynamicStiffness, Force, Signal, available_forces, mechanical_units
from cosimo.units import Mechanical
from cosimo.units.linear import SymplecticEuler

SMALL = 1e-6
"""Singular values of L below this part of the largest are left out: what they would add makes the pencil singular."""
REGULAR = 1e-3
"""A pencil whose smallest singular value falls below this part of the monolithic one's is singular for every s."""
SOLVED = 1e-4
"""Largest relative residual of L k = n that counts as assigned."""


@dataclass(frozen=True)
class Assignment:
    """Gains of the forces and what is known of them. `gains[i]` (3, signals of force i): rows d, f, g."""

    stiffness: DynamicStiffness
    forces: tuple[Force, ...]
    L: Array = field(repr=False)
    n: Array = field(repr=False)
    gains: tuple[Array, ...]

    @property
    def rank(self) -> int:
        return _rank(self.L)

    @property
    def rank_augmented(self) -> int:
        return _rank(np.column_stack([self.L, self.n]))

    @property
    def assignable(self) -> bool:
        """Whether the gains solve L k = n (Eq. 33), judged by what is left of the equations.

        In exact arithmetic that is rank L = rank [L n]; near the limit of rounding ranks would refuse good gains.
        """
        return self.residual <= SOLVED

    @property
    def residual(self) -> float:
        """max |L k − n| relative to max |n|."""
        rest = self.L @ np.concatenate([np.ravel(part) for part in self.gains] or [np.zeros(0)]) - self.n
        return float(np.abs(rest).max(initial=0.0)) / max(float(np.abs(self.n).max(initial=0.0)), 1e-300)

    def matrix(self, s: Any) -> ComplexArray:
        """G_t(s) + ΔG_c(s) + B ΔG_R(s), (…, N, N)."""
        points = np.asarray(s, dtype=complex)
        found = self.stiffness.cosimulated(points)
        powers = np.stack([points * points, points, np.ones_like(points)], axis=-1)
        for force, gains in zip(self.forces, self.gains, strict=True):
            column, row = force.column(self.stiffness, points), force.row(self.stiffness, points)
            feedback = np.einsum("...p,ps,...sn->...n", powers, gains, row)
            found = found + column[..., :, None] * feedback[..., None, :]
        return found

    @property
    def regular(self) -> bool:
        """Whether the compensated pencil is regular: det not zero for every s."""
        # At points among the poles but off the axis; a singular pencil is singular at each of them.
        radius = 0.93 * (max(abs(pair.pole) for pair in self.stiffness.eigenpairs()) or 1 / self.stiffness.step)
        points = radius * np.exp(1j * np.array([0.4, 1.3, 2.1]))
        return bool((_distance(self.matrix(points)) > REGULAR * _distance(self.stiffness.monolithic(points))).all())

    def roots(self, region: Region) -> ComplexArray:
        """All poles of the compensated co-simulated system in a region, as many as the argument principle counts."""
        return roots_in(self.matrix, region, spacing=0.3 / self.stiffness.step)

    def primary_poles(self) -> tuple[PrimaryPole, ...]:
        """The compensated pole and shape next to each monolithic one."""
        pairs = self.stiffness.eigenpairs()

        def family(share: float) -> Matrix:
            """G_t(s) with a share of all that co-simulation and compensation add to it."""
            return lambda s: (1 - share) * self.stiffness.monolithic(s) + share * self.matrix(s)

        followed = follow(family, [(pair.pole, pair.shape) for pair in pairs])
        return tuple(
            PrimaryPole(pair.pole, pole, pair.shape, normalised(shape))
            for pair, (pole, shape) in zip(pairs, followed, strict=True)
        )

    def rightmost_latent_root(self) -> complex:
        """The root with the largest real part that is not a primary pole; where all lie far left, −12 / T stands."""
        T = self.stiffness.step
        upper = np.array([pole.cosimulated for pole in self.primary_poles()], dtype=complex)
        primary = np.concatenate([upper, upper[upper.imag != 0].conj()])
        roots = self._roots_around(T)
        # One to one: of a rigid-body pole at 0 and a latent root beside it only one is taken away.
        distance = np.abs(roots[:, None] - primary)
        largest = float(np.abs(primary).max(initial=0.0)) or 1 / T
        near = 1e-6 * np.maximum(np.abs(roots)[:, None], largest)
        rows, columns = linear_sum_assignment(distance)
        matched = {int(i) for i, j in zip(rows, columns, strict=True) if distance[i, j] <= near[i, 0]}
        latent = [s for i, s in enumerate(roots.tolist()) if i not in matched and s.imag >= -1e-9 * abs(s)]
        return complex(max(latent, key=lambda s: s.real, default=-12.0 / T))

    def _roots_around(self, T: float) -> ComplexArray:
        """All roots from −12 / T to 3 / T, above the real axis; edges are moved where a root lies on one."""
        for shift in (1.0, 1.013, 1.029):
            try:
                return self.roots(
                    Region(-12.017 / T * shift, 3.011 / T * shift, -0.0313 / T * shift, 14.03 / T * shift)
                )
            except ConfigurationError as error:
                failure = error
        raise failure

    def missing(self) -> tuple[str, ...]:
        """Single additions that would suffice, each alone; else one set of them; nothing where no set suffices.

        Tried are first the signals that a force's unit can see already and forces where the interface perturbs, then
        also coordinates of other units that would have to be exchanged.
        """
        near, far = _additions(self.stiffness, self.forces)
        for candidates in () if self.assignable else (near, [*near, *far]):
            alone = [one.also for one in candidates if assign(self.stiffness, one.to(self.forces)).assignable]
            if alone:
                return tuple(alone)
            if several := _together(self, candidates):
                return (" and ".join(one.also for one in several),)
        return ()

    def require(self) -> Assignment:
        """Itself, or an error that names what is missing.

        Gains that leave more of L k = n than the least-squares ones can be improved: that is said, not what is missing.
        """
        best = replace(self, gains=_shaped(np.linalg.pinv(self.L, rcond=SMALL) @ self.n, self.forces)).residual
        if not self.assignable and best <= SOLVED:
            raise ConfigurationError(
                f"the gains do not assign the eigenstructure: they leave {self.residual:.1e} of L k = n, where "
                f"{SOLVED:g} is the limit and {best:.1e} is possible. Use the gains of `assign` unrounded, or "
                f"`with_feedback(…, check=False)` to run these."
            )
        if not self.assignable:
            lacks = self.missing()
            remedy = (
                f"missing: {'; or '.join(lacks)}" if lacks else "no signals and forces of these units would suffice"
            )
            raise ConfigurationError(
                f"the eigenstructure cannot be assigned with {'; '.join(map(str, self.forces)) or 'no forces'}: "
                f"rank L = {self.rank}, rank [L n] = {self.rank_augmented}; {remedy}."
            )
        if not self.regular:
            raise ConfigurationError("the gains make the compensated system singular for every s; choose other forces.")
        return self


def assign(
    stiffness: DynamicStiffness, forces: Sequence[Force] | None = None, *, search: int = 0, small: float = SMALL
) -> Assignment:
    """Minimum-norm gains of the forces (default: all that units can see), or the least-squares ones where none exist.

    With `search` > 0 that many evaluations go into moving the gains in the null space of L so that the rightmost latent
    root lies as far left as possible (tamellin2022, Eq. 23, where random numbers are tried).
    """
    chosen = tuple(available_forces(stiffness) if forces is None else forces)
    L, n = _equations(stiffness, chosen)
    k: Array = np.linalg.pinv(L, rcond=small) @ n
    found = Assignment(stiffness, chosen, L, n, _shaped(k, chosen))
    return _searched(found, k, search, small) if search > 0 else found


def _equations(stiffness: DynamicStiffness, forces: tuple[Force, ...]) -> tuple[Array, Array]:
    """L and n, real and imaginary parts one below the other; rows for the coordinates that matter."""
    blocks, right = [], []
    for pair in stiffness.eigenpairs():
        s = np.asarray(pair.pole)
        columns = []
        for force in forces:
            column, row = force.column(stiffness, s), force.row(stiffness, s)
            seen = row @ pair.shape
            columns += [np.outer(column, power * seen) for power in (s * s, s, 1.0)]
        count = len(stiffness.coordinates)
        block = np.hstack(columns) if columns else np.zeros((count, 0), dtype=complex)
        wanted = -stiffness.perturbation(s) @ pair.shape
        parts = (np.real, np.imag) if pair.pole.imag else (np.real,)
        blocks += [part(block) for part in parts]
        right += [part(wanted) for part in parts]
    L, n = np.vstack(blocks), np.concatenate(right)
    used = (np.abs(L).max(axis=1, initial=0.0) > 0) | (
        np.abs(n) > 1e-14 * max(float(np.abs(n).max(initial=0.0)), 1e-300)
    )
    return L[used], n[used]


def _rank(matrix: Array) -> int:
    """The rank with columns scaled: gains of accelerations and of positions differ by orders of magnitude."""
    size = np.abs(matrix).max(axis=0, initial=0.0)
    scaled = matrix / np.where(size > 0, size, 1.0)
    return int(np.linalg.matrix_rank(scaled, tol=1e-10 * np.sqrt(matrix.size))) if matrix.size else 0


def _distance(pencil: ComplexArray) -> Array:
    """How far from singular: smallest over largest singular value, rows and columns scaled."""
    for axis in (-1, -2):
        size = np.abs(pencil).max(axis=axis, keepdims=True)
        pencil = pencil / np.where(size > 0, size, 1.0)
    sizes = np.linalg.svd(pencil, compute_uv=False).astype(float)
    part: Array = sizes[..., -1] / np.where(sizes[..., 0] > 0, sizes[..., 0], 1.0)
    return part


def _shaped(k: Array, forces: tuple[Force, ...]) -> tuple[Array, ...]:
    ends = np.cumsum([3 * len(force.sees) for force in forces])[:-1]
    return tuple(part.reshape(3, -1) for part in np.split(k, ends)) if forces else ()


def _searched(found: Assignment, k: Array, evaluations: int, small: float) -> Assignment:
    """Nelder and Mead's method on the free combinations, from the minimum-norm gains."""
    _, sizes, right = np.linalg.svd(found.L)
    rank = int((sizes > small * sizes[0]).sum())
    free = right[rank:].T
    if not free.shape[1]:
        return found
    T, scale = found.stiffness.step, float(np.abs(k).max())

    def at(x: Array) -> Assignment:
        return replace(found, gains=_shaped(k + scale * (free @ x), found.forces))

    def rightmost(x: Array) -> float:
        return at(x).rightmost_latent_root().real * T

    best = minimize(
        rightmost, np.zeros(free.shape[1]), method="Nelder-Mead", options={"maxfev": evaluations, "xatol": 1e-4}
    )
    return at(best.x) if best.fun < rightmost(np.zeros(free.shape[1])) else found


# ---- what an assignment lacks: the signals or forces that would make the eigenstructure assignable -------------------


class _Addition(NamedTuple):
    """`force` in place of force number `number` (None: beside the others); `also` says what is new in it."""

    also: str
    number: int | None
    signals: tuple[Signal, ...]
    force: Force

    def to(self, forces: tuple[Force, ...]) -> tuple[Force, ...]:
        if self.number is None:
            return (*forces, self.force)
        changed = replace(forces[self.number], sees=(*forces[self.number].sees, *self.signals))
        return (*forces[: self.number], changed, *forces[self.number + 1 :])


def _additions(stiffness: DynamicStiffness, forces: tuple[Force, ...]) -> tuple[list[_Addition], list[_Addition]]:
    """Signals that a force's unit sees already and forces where the interface perturbs; coordinates to be exchanged.

    The latter would come as the first connected input of the force's unit.
    """
    available = available_forces(stiffness)
    seen = {force.acts_on[0].coordinate.unit: force.sees for force in available}
    near: list[_Addition] = []
    far: list[_Addition] = []
    for number, force in enumerate(forces):
        own = force.acts_on[0].coordinate.unit
        links = stiffness.system.incoming(own)
        where = " and ".join(str(place.coordinate) for place in force.acts_on)
        used = {signal.coordinate for signal in force.sees}
        visible = [signal for signal in seen.get(own, ()) if signal.coordinate not in used]
        known = used | {signal.coordinate for signal in seen.get(own, ())}
        others = [c for c in stiffness.coordinates if links and c.unit != own and c not in known]
        exchanged = [Signal(coordinate, links[0].connection.target) for coordinate in others]
        for found, signals in ((near, visible), (far, exchanged)):
            found += [_Addition(f"signal {one} in the force on {where}", number, (one,), force) for one in signals]
    near += [_Addition(f"an independent {force}", None, (), force) for force in available if force not in forces]
    return near, far


def _together(assignment: Assignment, candidates: Sequence[_Addition]) -> list[_Addition]:
    """A set that suffices: always the addition that leaves least, then without those that turn out not to be needed."""

    def tried(additions: Sequence[_Addition]) -> Assignment:
        forces = assignment.forces
        for one in additions:
            forces = one.to(forces)
        return assign(assignment.stiffness, forces)

    chosen: list[_Addition] = []
    left = list(candidates)
    while not tried(chosen).assignable:
        if not left:
            return []
        # What differs by rounding counts alike, and of what is solved the first is as good as any: the simplest.
        best = min(left, key=lambda one: float(f"{max(tried([*chosen, one]).residual, SOLVED):.6g}"))
        left.remove(best)
        chosen.append(best)
    for one in list(chosen):
        rest = [other for other in chosen if other is not one]
        if tried(rest).assignable:
            chosen = rest
    return chosen


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
