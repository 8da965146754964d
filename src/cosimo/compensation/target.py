"""What a compensated co-simulation shall follow, and what units and couplings see when it does."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import cache, cached_property
from math import lcm
from typing import Any

import numpy as np
import numpy.typing as npt

from cosimo.algebra.product import CoupledModel, LinearSystem
from cosimo.analysis.identification.models import split_modes
from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray, block_diagonal, value_row
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import JointCoupling, Master
from cosimo.core.system import Constant, System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedStep
from cosimo.core.unit import DiscreteModel
from cosimo.couplings import Hold
from cosimo.units import Exact, Mechanical, StateSpace
from cosimo.units.linear import LinearUnit, SymplecticEuler

SOLVED = 1e-9
"""Relative residual below which an equation counts as solved."""
SMALL = 1e-11
"""Relative size of singular values that are cut off."""
GONE = 1e-5
"""Modulus of eigenvalues of a target with modes that are gone within one step, below which they are such."""
NOTHING = 1e-13
"""Relative size of what is nothing but rounding."""

Gains = tuple[Array, ...]
"""K of one unit, one for each of its couplings within a macro step."""
UNIT = "whole"
"""The name of the coupled system as one unit; inputs and outputs are called as in the system, states `state 1`, …"""


class TargetMotion:
    """Maps on the target's trajectories: of a macro step F, and of every unit its state X and its inputs U.

    All but F act on [ξ; 1]: the last of their `n` columns is what offsets of connections, start values and constant
    external inputs bring. Inputs are polynomials in time over a step, of `degree(name)`: rows of U are the constant
    parts of all inputs, then the slopes, … A degree above 0 is used where a constant input cannot bring the unit where
    it shall be.
    """

    def __init__(self, system: System, master: Master, target: str) -> None:
        self.system, self.master, self.h = system, master, master.step
        self.units = require_linear(system)
        for link in system.links:
            fed = link.connection.target
            if link.target.unit not in master.mixers and isinstance(master.coupling_of(fed), JointCoupling):
                raise ConfigurationError(
                    f"the coupling of '{fed}' learns while running, so no compensation can be designed for it; "
                    "compensate a master whose inputs are held (Hold(0)): the correction replaces the prediction."
                )
        self.target = target
        self.linear = LinearSystem(system, master)
        self.coupled = self.linear.coupled.dense()
        self.operations = self.linear.operations.timeline.operations
        self.pattern = tick_pattern(system, self.operations)
        states = self.coupled.A.shape[0]
        self.n = states + 1
        begins = np.cumsum([0, *(len(unit.model.A) for unit in self.units.values())])
        self.place = {name: slice(a, b) for name, a, b in zip(self.units, begins[:-1], begins[1:], strict=True)}
        b = constant_inputs(system)
        through = self.coupled.solve_loop(self.coupled.D @ b)
        self.outputs = np.column_stack([self.coupled.C, through])
        """y on the coupled system itself."""
        self.inputs = np.column_stack([self.coupled.L @ self.coupled.C, self.coupled.L @ through + b])
        """u on the coupled system itself."""
        self.rate = np.zeros((self.n, self.n))
        self.rate[:-1] = np.column_stack([self.coupled.A, self.coupled.B @ self.inputs[:, -1]])
        self.tick = np.eye(self.n)
        if target == "converged":
            self.ends = self._end_shares()
            self.tick[:-1] = self._fixed_point()
        else:
            self.tick[:-1] = target_map(system, self.coupled, self.h / self.pattern.ticks, target, b)
        self.flow = cache(self._flow)
        self.F = self.flow(self.pattern.ticks)[:-1, :-1]
        self.used = [i for i, name in enumerate(system.outputs) if name in {c.source for c in system.connections}]

    @cached_property
    def _past(self) -> tuple[Array, Array]:
        return _backwards(self.tick)

    @property
    def back(self) -> Array:
        """From ξ now to ξ one tick earlier."""
        return self._past[0]

    @property
    def lasting(self) -> Array:
        """The projection of ξ on the motions that have a past: all but modes that are gone within one tick."""
        return self._past[1]

    @cached_property
    def X(self) -> dict[str, Array]:
        """The states of every unit."""
        return {name: self._followed(name, self.target) for name in self.units}

    @cached_property
    def U(self) -> dict[str, Array]:
        """The inputs of every unit over one of its steps."""
        return {name: self._inputs(name) for name in self.units}

    def _flow(self, ticks: int) -> Array:
        """From ξ now to ξ so many ticks later, or earlier."""
        return np.linalg.matrix_power(self.tick if ticks >= 0 else self.back, abs(ticks))

    def _followed(self, name: str, target: str) -> Array:
        """What the unit's state must be so that its positions are the target's.

        A symplectic velocity is (q − q(−h)) / h with the unit's own step h; that of the monolithic integration at the
        same step is just that.
        """
        unit, part, span = self.units[name], self.place[name], self.pattern.spans[name]
        whole = np.eye(self.n)[part]
        if not isinstance(unit.integrator, SymplecticEuler) or (target == "monolithic" and span == 1):
            return whole
        q = whole[: len(whole) // 2]
        return np.vstack([q, (q - q @ self.flow(-span)) / (self.h * span / self.pattern.ticks)])

    @cached_property
    def discrete(self) -> dict[str, DiscreteModel]:
        """One step of every unit; B for inputs that are polynomials in t / h with h the macro step."""
        found = {}
        for name, unit in self.units.items():
            share, m = self.pattern.spans[name] / self.pattern.ticks, len(unit.inputs)
            model = unit.discrete(self.h * share)
            powers = range(model.B.shape[1] // m) if m else range(0)
            found[name] = DiscreteModel(model.A, model.B * np.repeat([share**power for power in powers], m))
        return found

    # The fixed point of the iteration at this step: inputs are formed from the outputs at the end of the step, which
    # they lead to. With T [x; 1] all inputs of the coupled system, Hold(0) gives c_0 = T x', Hold(1) the line from T x
    # to T x', of which a unit that takes no slopes is given the mean, and x' = A x + B_0 c_0 + B_1 c_1.

    def _end_shares(self) -> Array:
        """E_0 and E_1: what every input has of the end of the step in c_0, and in c_1 (less the beginning)."""
        if self.pattern.ticks > 1:
            raise ConfigurationError(
                "target 'converged' is for masters that step every unit once in a macro step; use jacobi or "
                "gauss_seidel, or another target."
            )
        ends: Array = np.zeros((2, len(self.inputs)))
        number = {target: place for place, target in enumerate(self.system.input_names)}
        for link in self.system.links:
            fed, unit = link.connection.target, self.units[link.target.unit]
            coupling = self.master.coupling_of(fed)
            if not isinstance(coupling, Hold) or coupling.degree > 1:
                raise ConfigurationError(
                    f"target 'converged' with the coupling {coupling} of '{fed}' is not possible; use hold0 or hold1."
                )
            mean = coupling.degree > unit.input_degree
            ends[0 if mean else coupling.degree, number[fed]] = 0.5 if mean else 1.0
        return ends

    def _fixed_point(self) -> Array:
        """[F f] with x' = F x + f: (I − (B_0 E_0 + B_1 E_1) T) x' = A x + (B_0 (I − E_0) − B_1 E_1) T x."""
        A = block_diagonal([step.A for step in self.discrete.values()])
        powers = [block_diagonal([self._power(name, power) for name in self.units]) for power in (0, 1)]
        late = powers[0] * self.ends[0] + powers[1] * self.ends[1]
        early = powers[0] * (1 - self.ends[0]) - powers[1] * self.ends[1]
        T, t = self.inputs[:, :-1], self.inputs[:, -1]
        loop = np.eye(len(A)) - late @ T
        if np.linalg.cond(loop) > 1 / SMALL:
            raise ConfigurationError(
                f"the iteration at the step {self.h:g} s has no fixed point to follow; choose another step or target."
            )
        found: Array = np.linalg.solve(loop, np.column_stack([A + early @ T, (late + early) @ t]))
        return found

    def _power(self, name: str, power: int) -> Array:
        """B of one step for one power of the inputs."""
        m, B = len(self.units[name].inputs), self.discrete[name].B
        return B[:, power * m : (power + 1) * m] if B.shape[1] > power * m else np.zeros((len(B), m))

    def _converged_inputs(self, rows: BoolArray) -> Array:
        """U of a unit: what the iteration ends with."""
        begin, end = self.inputs[rows], self.inputs[rows] @ self.tick
        shares = self.ends[:, rows]
        c0 = begin + shares[0][:, None] * (end - begin)
        return np.vstack([c0, shares[1][:, None] * (end - begin)]) if shares[1].any() else c0

    def connected(self, name: str, degree: int) -> list[int]:
        """The rows of U, and columns of B, that belong to connected inputs."""
        m = len(self.units[name].inputs)
        return [power * m + link.target.index for power in range(degree + 1) for link in self.system.incoming(name)]

    def _inputs(self, name: str) -> Array:
        """U with B_d U = X F − A_d X: the true coupling where that solves it, otherwise the smallest change of it.

        Only connected inputs are changed; others are not the master's to choose.
        """
        step, X, m = self.discrete[name], self.X[name], len(self.units[name].inputs)
        free = step.A @ X
        needed = X @ self.flow(self.pattern.spans[name]) - free
        owners = np.repeat(list(self.units), [len(unit.inputs) for unit in self.units.values()])
        if self.target == "converged":
            return self._converged_inputs(owners == name)
        true = self.inputs[owners == name]
        powers = 1 if isinstance(self.units[name].integrator, SymplecticEuler) or not m else step.B.shape[1] // m
        for degree in range(powers):
            B = step.B[:, : (degree + 1) * m]
            # As the inputs really go on: u, h u̇, h² ü / 2.
            series = [true, true @ self.rate * self.h, true @ self.rate @ self.rate * self.h**2 / 2]
            U: Array = np.vstack(series[: degree + 1])
            # What the inputs must bring is a small difference of large numbers; below their rounding it is nothing.
            scale = max(float(np.abs(B @ U).max(initial=0.0)), float(np.abs(needed).max(initial=0.0)))
            enough = max(SOLVED * scale, NOTHING * float(np.abs(free).max(initial=0.0)))
            missing = needed - B @ U
            if np.abs(missing).max(initial=0.0) <= enough:
                return U
            chosen = self.connected(name, degree)
            U[chosen] += np.linalg.pinv(B[:, chosen], rcond=SMALL) @ missing
            if np.abs(B @ U - needed).max() <= enough:
                return U
        raise ConfigurationError(self._unreachable(name))

    def _unreachable(self, name: str) -> str:
        reach = f"unit '{name}' cannot follow the target: its connected inputs do not reach all states in one step"
        if not isinstance(self.units[name].integrator, SymplecticEuler):
            return f"{reach}; use target 'converged', or connect more inputs."
        if self.target == "monolithic" and self.units[name].micro_steps > 1:
            return (
                f"{reach}, because its {self.units[name].micro_steps} micro steps use one constant input; use "
                f"micro_steps=1 with a shorter macro step."
            )
        if self.pattern.spans[name] > 1:
            return f"{reach}; let it step as often as the others, or connect a force to every degree of freedom."
        return f"{reach}; use target 'monolithic', or connect a force to every degree of freedom."

    def degree(self, name: str) -> int:
        """The degree of the unit's inputs as polynomials in time."""
        m = len(self.units[name].inputs)
        return len(self.U[name]) // m - 1 if m else 0

    def terms(self, name: str, position: int) -> dict[int, Array]:
        """What a coupling of the unit sees of the connected outputs: the sum of matrices on ξ so many ticks later."""
        found: dict[int, Array] = {}
        row = 0
        for other, sighting in self.pattern.seen[name][position].items():
            unit, U = self.units[other], self.U[other]
            rows = slice(row, row := row + len(unit.outputs))
            m = len(unit.inputs)
            given = np.kron(value_row(self.degree(other), sighting.elapsed), np.eye(m)) @ U
            for offset, part in ((sighting.read, unit.model.C @ self.X[other]), (sighting.given, unit.model.D @ given)):
                if part.any():
                    found.setdefault(offset, np.zeros((len(self.system.outputs), self.n)))[rows] += part
        return {offset: whole[self.used] for offset, whole in found.items()}

    def samples(self, name: str, position: int = 0) -> Array:
        """S with the connected outputs seen at the unit's coupling equal to S ξ on the target."""
        none = np.zeros((len(self.used), self.n))
        return sum((part @ self.flow(offset) for offset, part in self.terms(name, position).items()), none)

    @cached_property
    def pushes(self) -> dict[str, Array]:
        """Where external forces of size 1 on a unit take ξ by the end of its step: any force on any mass."""
        whole = np.vstack([*self.X.values(), np.eye(self.n)[-1:]])
        found = {}
        for name, unit in self.units.items():
            size = len(unit.model.A)
            if isinstance(unit.integrator, SymplecticEuler):
                half = np.eye(size // 2)
                local = np.vstack([self.h * self.pattern.spans[name] / self.pattern.ticks * half, half])
            else:
                local = self.discrete[name].B[:, : len(unit.inputs)]
            states = np.zeros((self.n, local.shape[1]))
            states[self.place[name]] = local
            # In terms of ξ: a push changes the states of its own unit and leaves those of all others as they are.
            moved = np.linalg.solve(whole, states)
            sizes = np.linalg.norm(moved[:-1] / self.scale[:-1, None], axis=0)
            found[name] = moved / np.where(sizes > 0, sizes, 1.0)
        return found

    @cached_property
    def scale(self) -> Array:
        """Per state a measure in which the coupled system is balanced: whether in metres or millimetres, one size.

        0 for the constant part: gains follow from the motion alone.
        """
        import scipy.linalg

        _, (scale, _) = scipy.linalg.matrix_balance(self.coupled.A, permute=False, separate=True)
        sizes: Array = np.append(scale, 0.0)
        return sizes

    def hold(self, name: str) -> Array:
        """K⁰ on the present samples: the connections' gains, (connected inputs, connected outputs)."""
        links = self.system.incoming(name)
        gains = np.zeros((len(links), len(self.used)))
        for row, link in enumerate(links):
            gains[row, self.used.index(self.system.outputs.index(link.connection.source))] = link.connection.gain
        return gains


def target_map(system: System, coupled: CoupledModel, h: float, target: str, b: Array) -> Array:
    """[F f] with ξ' = F ξ + f over one step of length h, on the states of the units one after the other.

    `b` is what reaches all inputs from outside.
    """
    n, m = len(coupled.A), len(b)
    found = np.zeros((n, n + 1))
    if target == "exact":
        with np.errstate(over="ignore", invalid="ignore"):  # checked by whoever uses it
            found[:, :n] = coupled.flow(h)
            if b.any():
                found[:, n] = exact_unit(system, coupled).discrete(h).B[:, :m] @ b
        return found
    whole, order = monolithic_unit(system, coupled)
    step = whole.discrete(h)
    found[np.ix_(order, order)] = step.A
    found[order, n] = step.B[:, :m] @ b
    return found


def constant_inputs(system: System) -> Array:
    """What reaches all inputs from outside at all times: offsets, start values, constant external inputs."""
    given = []
    for name in system.units:
        for inlet in system.inlets[name]:
            outside = inlet.source.value if isinstance(inlet.source, Constant) else 0.0
            given.append(inlet.link.connection.offset if inlet.link else outside if inlet.source else inlet.start)
    return np.array(given, dtype=float)


def _backwards(whole: Array) -> tuple[Array, Array]:
    """The inverse of [F f; 0 1], for what happened before, and the projection on the motions that it is for.

    Modes that are gone within one step have no past: on the target they stay where f keeps them. With T⁻¹ F T =
    diag(F_s, N), N what is gone, and f_s, f_n the parts of T⁻¹ f:

        ξ_s ← F_s⁻¹ (ξ_s − f_s),   ξ_n ← (I − N)⁻¹ f_n
    """
    F, n = whole[:-1, :-1], len(whole) - 1
    if not np.isfinite(whole).all():
        raise ConfigurationError("the target overflows double precision within one step; shorten the step.")
    T, lasts = (np.eye(n), n) if np.linalg.cond(F) <= 1 / SMALL else split_modes(F, lambda z: abs(z) > GONE)
    inverse = np.linalg.inv(T)
    blocks, constant = inverse @ F @ T, inverse @ whole[:-1, -1]
    back, lasting = np.zeros_like(whole), np.zeros_like(whole)
    back[-1, -1] = lasting[-1, -1] = 1.0
    past = np.linalg.inv(blocks[:lasts, :lasts])
    rest = np.linalg.solve(np.eye(n - lasts) - blocks[lasts:, lasts:], constant[lasts:])
    back[:-1, :-1] = T[:, :lasts] @ past @ inverse[:lasts]
    back[:-1, -1] = T @ np.concatenate([-past @ constant[:lasts], rest])
    lasting[:-1, :-1] = T[:, :lasts] @ inverse[:lasts]
    lasting[:-1, -1] = T[:, lasts:] @ rest
    return back, lasting


# ---- when a schedule couples, steps and reads each unit, in whole ticks: the largest part of the macro step  ---------
# A compensation follows its target from tick to tick. At every coupling of a unit, the outputs it sees were read at
# some earlier (or, of units that went ahead, later) tick, and those that feed inputs through show inputs given at yet
# another.


@dataclass(frozen=True)
class Sighting:
    """How a coupling sees one unit: it was read `read` ticks later, under inputs given `given` ticks later.

    Both count from the moment of the coupling, so that they are mostly negative or 0; `elapsed` is the time from giving
    the inputs to reading, in macro steps.
    """

    read: int
    given: int
    elapsed: Fraction


@dataclass(frozen=True)
class TickPattern:
    """`ticks` per macro step; per unit the ticks of one step (`spans`), and what its couplings see of all units.

    `seen[name][p]` belongs to the coupling at tick p · spans[name].
    """

    ticks: int
    spans: dict[str, int]
    seen: dict[str, tuple[dict[str, Sighting], ...]]


def tick_pattern(system: System, operations: tuple[TimedOperation, ...]) -> TickPattern:
    """The ticks of a schedule; refused are those that iterate or in which couplings and steps do not alternate."""
    plain: list[TimedCouple | TimedStep | TimedRead] = []
    for operation in operations:
        if not isinstance(operation, TimedCouple | TimedStep | TimedRead):
            raise ConfigurationError(
                "compensation is for masters that do not iterate: it replaces iteration; use jacobi or gauss-seidel."
            )
        plain.append(operation)
    steps = {name: [op for op in plain if isinstance(op, TimedStep) and op.unit == name] for name in system.units}
    ticks = lcm(*(op.fraction.denominator for ops in steps.values() for op in ops))
    for name, own in steps.items():
        couples = [op.time for op in plain if isinstance(op, TimedCouple) and op.unit == name]
        if len({op.fraction for op in own}) > 1 or (system.incoming(name) and couples != [op.time for op in own]):
            raise ConfigurationError(
                f"unit '{name}' is not coupled exactly once before each of its steps, or its steps differ in length; "
                "a compensation corrects inputs step by step."
            )
    spans = {name: int(own[0].fraction * ticks) for name, own in steps.items()}
    return TickPattern(ticks, spans, _seen(system, plain, ticks))


def _seen(
    system: System, operations: list[TimedCouple | TimedStep | TimedRead], ticks: int
) -> dict[str, tuple[dict[str, Sighting], ...]]:
    """Follow the schedule until its pattern has settled: the second macro step is like all later ones."""
    read = dict.fromkeys(system.units, 0)
    shown = dict.fromkeys(system.units, 0)
    given = dict.fromkeys(system.units, 0)
    elapsed = dict.fromkeys(system.units, Fraction(0))
    found: dict[str, list[dict[str, Sighting]]] = {}
    for begin in (0, ticks):
        found = {name: [] for name in system.units}
        for operation in operations:
            name, now = operation.unit, begin + int(operation.time * ticks)
            if isinstance(operation, TimedCouple):
                found[name].append({o: Sighting(read[o] - now, shown[o] - now, elapsed[o]) for o in system.units})
                given[name] = now
            elif isinstance(operation, TimedRead):
                read[name], shown[name], elapsed[name] = now, given[name], operation.offset + operation.elapsed
    return {name: tuple(positions) for name, positions in found.items()}


# ---- the coupled system as one unit: what monolithic integration and the exact solution are computed with ------------


def require_linear(system: System) -> dict[str, LinearUnit]:
    """All units, which must be linear ones."""
    units: dict[str, LinearUnit] = {}
    for name, unit in system.units.items():
        if not isinstance(unit, LinearUnit):
            raise ConfigurationError(
                f"unit '{name}' is a {type(unit).__name__}, whose equations are not known; of identified units, "
                "Compensation.verdicts has the errors."
            )
        units[name] = unit
    return units


def rebuild(unit: LinearUnit, **changes: Any) -> LinearUnit:
    """The unit with some of the arguments it was made with replaced."""
    given: dict[str, Any] = {
        "initial": unit.initial_state,
        "integrator": unit.integrator,
        "micro_steps": unit.micro_steps,
        "inputs": unit.inputs,
        "outputs": unit.outputs,
        "start": unit.start,
    }
    if isinstance(unit, Mechanical):
        maps = ("M", "C", "K", "B", "displacement", "velocity", "acceleration")
        given |= {name: getattr(unit, name) for name in maps} | {"feedthrough": unit.direct}
        return Mechanical(**given | changes)
    return StateSpace(**given | vars(unit.model) | changes)


def monolithic_unit(system: System, coupled: CoupledModel) -> tuple[LinearUnit, npt.NDArray[np.intp]]:
    """The whole under the integrator that all units share, and which of the units' states its states are."""
    units = require_linear(system)
    kinds = {(unit.integrator, unit.micro_steps) for unit in units.values()}
    if len(kinds) != 1:
        raise ConfigurationError("the units have different integrators; only the target 'exact' is defined for them.")
    ((integrator, micro_steps),) = kinds
    order = np.arange(len(coupled.A))
    if not isinstance(integrator, SymplecticEuler):
        return _unit(system, coupled, order, integrator=integrator, micro_steps=micro_steps), order
    # Symplectic Euler wants all positions first, then all velocities.
    order = np.concatenate(state_places(len(unit.model.A) // 2 for unit in units.values())).astype(np.intp)
    return _unit(system, coupled, order, integrator=integrator, micro_steps=micro_steps), order


def exact_unit(system: System, coupled: CoupledModel) -> LinearUnit:
    """The whole without any error of integration; its states are those of the units, one after the other."""
    return _unit(system, coupled, np.arange(len(coupled.A)), integrator=Exact(), micro_steps=1)


def as_system(system: System, whole: LinearUnit) -> System:
    """The one unit with all that comes from outside: external inputs, offsets of connections, start values."""
    given: dict[str, Any] = {}
    for name in system.units:
        for inlet in system.inlets[name]:
            given[f"{UNIT}.{inlet.target}"] = (
                inlet.link.connection.offset if inlet.link else inlet.source if inlet.source else inlet.start
            )
    return System({UNIT: whole}, inputs=given, name=system.name)


def state_places(counts: Iterable[int]) -> tuple[list[int], list[int]]:
    """Where all positions, and all velocities, stand among the states [q; q̇] of units with so many coordinates each."""
    positions: list[int] = []
    velocities: list[int] = []
    begin = 0
    for n in counts:
        positions += range(begin, begin + n)
        velocities += range(begin + n, begin + 2 * n)
        begin += 2 * n
    return positions, velocities


def _unit(system: System, coupled: CoupledModel, order: npt.NDArray[np.intp], **solver: Any) -> LinearUnit:
    """ẋ = A_c x + B (I − L D)⁻¹ b, y = C_c x + (I − D L)⁻¹ D b, with b what reaches the inputs from outside."""
    n, through = len(order), coupled.solve_loop(coupled.D)
    A = coupled.A[np.ix_(order, order)]
    B: Array = (coupled.B + coupled.B @ coupled.L @ through)[order]
    C = np.vstack([coupled.C[:, order], np.eye(n)])
    D = np.vstack([through, np.zeros((n, B.shape[1]))])
    names: dict[str, Any] = {
        "inputs": system.input_names,
        "outputs": [*system.outputs, *(f"state {i + 1}" for i in range(n))],
        "initial": np.concatenate([unit.initial_state for unit in system.units.values()])[order],
    }
    if not isinstance(solver["integrator"], SymplecticEuler):
        return StateSpace(A, B, C, D, **names, **solver)
    half = n // 2
    return Mechanical(
        np.eye(half),
        -A[half:, half:],
        -A[half:, :half],
        B=B[half:],
        displacement=C[:, :half],
        velocity=C[:, half:],
        feedthrough=D,
        **names,
        **solver,
    )
