"""Candidates in, numbers out: those of one structure share a schedule, all of a call the arithmetic on their maps.

What was evaluated once is not evaluated again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from cosimo import masters
from cosimo.algebra.backends import Backend, Stack, find_backend
from cosimo.algebra.batch import Consistency
from cosimo.algebra.batched_map import BatchedMap, MasterNumbers, SharedSchedule
from cosimo.algebra.product import LinearSystem, dense
from cosimo.algebra.spectral_radius import spectral_radii
from cosimo.analysis.cost import Cost
from cosimo.analysis.model import Model
from cosimo.analysis.stability import LARGEST_STABLE, Rest, find_rest, is_stable
from cosimo.core import dataclass
from cosimo.core.arrays import Array, BoolArray, exponential
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import MOST_ROBUST
from cosimo.core.system import Connection, Constant, System
from cosimo.core.unit import Conversion, DiscreteModel, Instance, LinearModel, Unit
from cosimo.tuning.goals import Goal, Trajectories, WorstOutputError, nondominated, without_rest
from cosimo.tuning.space import Resolved
from cosimo.units import StateSpace

COLUMNS = ("stable", "radius", "error", "robustness", "cost", "defect")
"""What is known of a candidate; columns that no goal asks for are NaN."""
STABLE, RADIUS, ERROR, ROBUSTNESS, COST, DEFECT = range(len(COLUMNS))
BEYOND_ALL = MOST_ROBUST
"""Robustness that no candidate exceeds: the scale ends there."""
UNSTABLE = 1e6
"""Stands for an error, or a ρ, that is not finite, in what the search sees."""


class CandidatePool:
    """All candidates evaluated so far: rows (N, width) with their columns (N, 6), in the order they were asked for."""

    def __init__(
        self,
        problem: TuningProblem,
        space: Resolved,
        goals: tuple[Goal, ...],
        *,
        cost: Cost,
        max_cost: float | None,
        backend: str = "numpy",
    ) -> None:
        self.problem, self.space, self.goals, self.cost, self.max_cost = problem, space, goals, cost, max_cost
        self.names = {goal.name for goal in goals} | ({"cost"} if max_cost else set())
        self._backend = find_backend(backend)
        self._schedules: dict[int, SharedSchedule] = {}
        self._free: dict[int, SharedSchedule] = {} if problem.joined else self._schedules
        self._known: dict[bytes, Array] = {}
        self._rows: dict[bytes, Array] = {}

    @property
    def count(self) -> int:
        """How many different candidates were asked for."""
        return len(self._rows)

    @property
    def rows(self) -> Array:
        """The candidates."""
        return np.array(list(self._rows.values())).reshape(-1, self.space.width)

    @property
    def columns(self) -> Array:
        """What is known of them."""
        return np.array([self._known[key] for key in self._rows]).reshape(-1, len(COLUMNS))

    @property
    def known(self) -> tuple[Array, Array]:
        """Rows and columns of all that is known, also of what was remembered and not asked for yet."""
        rows = np.array([np.frombuffer(key) for key in self._known]).reshape(-1, self.space.width)
        return rows, np.array(list(self._known.values())).reshape(-1, len(COLUMNS))

    def remember(self, rows: Array, columns: Array) -> None:
        """Take over what an earlier search evaluated; it counts when it is asked for."""
        for row, known in zip(rows, columns, strict=True):
            self._known[row.tobytes()] = known

    def admit(self, rows: Array, left: int) -> BoolArray:
        """Which candidates may be asked for when only `left` more may be: those asked for before, and the first new."""
        found = np.zeros(len(rows), dtype=bool)
        new: set[bytes] = set()
        for place, key in enumerate(row.tobytes() for row in rows):
            if key not in self._rows and len(new) < left:
                new.add(key)
            found[place] = key in self._rows or key in new
        return found

    def evaluate(self, rows: Array) -> Array:
        """The columns (N, 6) of candidates."""
        rows = self.space.tidy(rows)
        keys = [row.tobytes() for row in rows]
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._known}
        if new:
            asked = np.array(list(new.values()))
            for number in np.unique(self.space.structure_of(asked)).tolist():
                structure = self.space.structures[number]
                for schedules, system in ((self._schedules, self.problem.system), (self._free, self.problem.free)):
                    if number not in schedules:
                        master = structure.master(system, 1.0)
                        schedules[number] = SharedSchedule([system], master, structure.targets)
            size = max(schedule.layout.size for schedule in self._schedules.values())
            chunk = self._backend.chunk(size // 2)
            parts = [slice(begin, begin + chunk) for begin in range(0, len(asked), chunk)]
            done = self._backend.map(lambda part: self._columns(asked[part]), parts, None)
            self.remember(asked, np.concatenate(done))
        for key, row in zip(keys, rows, strict=True):
            self._rows.setdefault(key, row)
        return np.array([self._known[key] for key in keys])

    def scaled(self, columns: Array) -> Array:
        """What the search makes small (N, goals): finite everywhere, monotone in the goals."""
        found = [goal.scaled(columns[:, COLUMNS.index(goal.name)]) for goal in self.goals]
        return np.nan_to_num(np.column_stack(found), nan=UNSTABLE, posinf=UNSTABLE, neginf=-UNSTABLE)

    def violation(self, columns: Array) -> Array:
        """How far candidates are from what is allowed: stable (where the system itself is), within the
        largest cost, and not wrong by more than the outputs are large."""
        found = np.zeros(len(columns))
        if not self.problem.grows:
            unstable = columns[:, 0] == 0
            beyond = np.nan_to_num(columns[unstable, 1] - 1, nan=1e3, posinf=1e3)
            found[unstable] += 1e-9 + np.clip(beyond, 0.0, 1e3)
        if "error" in self.names:
            error = np.nan_to_num(columns[:, COLUMNS.index("error")], nan=UNSTABLE, posinf=UNSTABLE)
            found += np.log10(np.maximum(error, 1.0))
        if self.max_cost is not None:
            found += np.maximum(columns[:, COLUMNS.index("cost")] / self.max_cost - 1 - 1e-12, 0.0)
        return found

    # Evaluating new candidates, those of all structures together.

    @cached_property
    def _error(self) -> WorstOutputError:
        return WorstOutputError(self.problem.columns, self.problem.sizes, self.problem.horizon)

    @cached_property
    def _rest(self) -> Rest:
        return find_rest(next(iter(self._schedules.values())).linear[0].coupled.A)

    def _columns(self, rows: Array) -> Array:
        numbers = self.space.structure_of(rows)
        order = np.argsort(numbers, kind="stable")
        found = np.full((len(rows), len(COLUMNS)), np.nan)
        groups, free = [], []
        for number in np.unique(numbers).tolist():
            own, schedule = rows[numbers == number], self._schedules[number]
            # The macro step of a multirate master is a multiple of the step that is searched.
            steps = np.ascontiguousarray(self.space.steps_of(own) * schedule.master.step)
            variation = MasterNumbers(steps, self.space.gains_of(own, self.space.structures[number]))
            groups.append(BatchedMap(schedule, variation, self._backend))
            joined = self.problem.joined
            free.append(BatchedMap(self._free[number], variation, self._backend) if joined else groups[-1])
        with self._backend.quiet():
            found[order] = self._measured(groups, free)
        return found

    def _measured(self, groups: list[BatchedMap], free: list[BatchedMap]) -> Array:
        """The columns of all groups, one after the other."""
        backend, names = self._backend, self.names
        radii = spectral_radii(joined([g.cycle for g in groups], backend), backend, limit=LARGEST_STABLE)
        radius, ends = backend.host(radii.value), np.cumsum([group.count for group in groups]).tolist()
        found = np.full((len(radius), len(COLUMNS)), np.nan)
        parts = [slice(end - group.count, end) for group, end in zip(groups, ends, strict=True)]
        stable = [
            without_rest(g, radii.part(part), [self._rest] * g.count) for g, part in zip(groups, parts, strict=True)
        ]
        found[:, STABLE] = np.concatenate(stable) | is_stable(radius, identified=not self.problem.model.known)
        found[:, RADIUS] = radius
        if "cost" in names:
            prices = [self.cost.per_step(self.problem.system, group.schedule.master) for group in groups]
            pairs = zip(prices, groups, strict=True)
            found[:, COST] = np.concatenate([price / group.variation.steps for price, group in pairs])
        if "defect" in names:
            each = [Consistency(2, 2).compute(group)["consistency"] for group in groups]
            found[:, DEFECT] = np.concatenate([backend.host(defect) for defect in each])
        if "error" in names:
            each = [self._error.trajectories(group) for group in free]
            found[:, ERROR] = backend.host(self._error.errors(_together(each, backend), backend))
        if "robustness" in names:
            found[:, ROBUSTNESS] = 0.0
            self._measure_robustness(found, groups, parts)
        return found

    def _measure_robustness(self, found: Array, groups: list[BatchedMap], parts: list[slice]) -> None:
        """Fill the column of those that can still be on the front; it stays 0 for the others.

        What violates something is never on the front, however robust it is; nor is what one as robust as can be
        (`BEYOND_ALL`) dominates in all other goals. First go those that no other dominates in these.
        """
        others = [number for number, goal in enumerate(self.goals) if goal.name != "robustness"]
        values, left = self.scaled(found)[:, others], (self.violation(found) == 0) & (found[:, STABLE] == 1)
        for last in (False, True) if others else (True,):
            known = np.concatenate([self.known[1], found])
            best = self.scaled(known[known[:, ROBUSTNESS] >= BEYOND_ALL])[:, others]
            for row in best[nondominated(best)] if others and len(best) else ():
                left &= ~((row <= values).all(axis=1) & (row < values).any(axis=1))
            now = left.copy()
            if not last:
                now[left] = nondominated(values[left])
            asked = [
                (group.schedule, group.variation.part(np.flatnonzero(now[part])))
                for group, part in zip(groups, parts, strict=True)
                if now[part].any()
            ]
            if asked:
                found[now, ROBUSTNESS] = margins(asked, self._backend)
            left &= ~now


def joined(stacks: Sequence[Stack], backend: Backend) -> Stack:
    """Stacks of matrices of different sizes as one, with zeros below and to the right: these add eigenvalues 0."""
    rows, columns = (max(stack.shape[axis] for stack in stacks) for axis in (0, 1))
    if len(stacks) == 1:
        return stacks[0]
    found, begin = backend.zeros(rows, columns, sum(stack.shape[2] for stack in stacks)), 0
    for stack in stacks:
        found[: stack.shape[0], : stack.shape[1], begin : begin + stack.shape[2]] = stack
        begin += stack.shape[2]
    return found


def _together(each: Sequence[Trajectories], backend: Backend) -> Trajectories:
    """Masters of several structures side by side; the exact system is the same for all."""
    stacks = {name: joined([getattr(own, name) for own in each], backend) for name in ("Phi", "Y", "z", "flow", "x")}
    return Trajectories(steps=np.concatenate([own.steps for own in each]), C=each[0].C, **stacks)


# ---- robustness of many masters at once, roughly: for the search; points of the front get `relative_radius` -
# Changes are those of the relative radius: gains of all units grow by 1 + s, rates of units grow or shrink by 1 + s.
# Tried are rates all up, all down, unchanged and, for up to three units, every pattern of up and down: among these
# directions the first crossing nearly always is. Shells of s are not all scanned, and log ρ is interpolated
# between the last two: an island of instability may be missed here, but not by what is reported.


SHELLS, COARSE = 16, 4
"""Changes that are tried up to `MOST_ROBUST`, evenly spaced by their logarithm: every fourth, then those between."""
PATTERNS_UP_TO = 3
"""Number of units up to which every pattern of faster and slower ones is tried."""
WORK = 2_000_000
"""Numbers of Φ held at once."""
Asked = tuple[SharedSchedule, MasterNumbers]
"""Masters of one schedule."""


def patterns(names: Sequence[str]) -> Array:
    """Directions of change of the units' rates that are tried, (K, units)."""
    signs = itertools.product((1, -1), repeat=len(names)) if len(names) <= PATTERNS_UP_TO else ()
    same = [(sign,) * len(names) for sign in (1, -1, 0)]
    return np.array(list(dict.fromkeys([*signs, *same])), dtype=float)


def margins(asked: Sequence[Asked], backend: Backend) -> Array:
    """About the smallest s at which masters, stable themselves, become unstable, at most 9; in the order asked."""
    directions = patterns(asked[0][0].systems[0].names)
    radii, count = partial(_changed_radii, asked, directions, backend), sum(len(own.steps) for _, own in asked)
    sizes = np.log1p(MOST_ROBUST) * np.arange(SHELLS + 1) / SHELLS
    shells = np.full((count, SHELLS + 1, len(directions)), np.nan)
    coarse = np.zeros(shells.shape, dtype=bool)
    coarse[:, COARSE::COARSE] = True
    shells[coarse] = radii(coarse, sizes)
    unstable = coarse & ~is_stable(shells)
    # Between two shells only what is unstable at the outer one is followed.
    high = np.where(unstable.any(axis=(1, 2)), unstable.any(axis=2).argmax(axis=1), SHELLS + COARSE)
    places = np.arange(count)
    followed = unstable[places, np.minimum(high, SHELLS)]
    number = np.arange(SHELLS + 1)
    inner = (number > (high - COARSE)[:, None]) & (number < high[:, None]) & (high <= SHELLS)[:, None]
    fine = inner[:, :, None] & followed[:, None, :]
    shells[fine] = radii(fine, sizes)
    rho = np.where(coarse | fine, shells, -np.inf).max(axis=2)
    bad = (rho > 0) & ~is_stable(rho)
    high = np.where(bad.any(axis=1), bad.argmax(axis=1), SHELLS + 1)
    low = np.clip(high - 1, 0, SHELLS - 1)
    left, right = sizes[low], sizes[np.minimum(high, SHELLS)]
    with np.errstate(divide="ignore", invalid="ignore"):
        a, b = np.log(rho[places, low]), np.log(np.minimum(rho[places, np.minimum(high, SHELLS)], 10.0))
        share = np.clip(-a / (b - a), 0.0, 1.0)
    share = np.where(np.isfinite(share), share, 0.5)
    return np.where(high > SHELLS, MOST_ROBUST, np.expm1(left + share * (right - left)))


def _changed_radii(
    asked: Sequence[Asked], directions: Array, backend: Backend, wanted: BoolArray, sizes: Array
) -> Array:
    """ρ(Φ) where it is `wanted` (masters, shells, directions), in the order of these, for ln(1 + s) of the shells."""
    names = asked[0][0].systems[0].names
    found: list[Array] = []
    pending: list[Stack] = []
    begin = 0
    for schedule, variation in asked:
        master, shell, pattern = np.nonzero(wanted[begin : begin + len(variation.steps)])
        begin += len(variation.steps)
        most = max(1, WORK // max(1, sum(map(schedule.layout.width, schedule.carried)) ** 2))
        for first in range(0, len(master), most):
            own = slice(first, first + most)
            rates = np.exp(sizes[shell[own], None] * directions[pattern[own]]).T
            changed = replace(
                variation.part(master[own]),
                rates=dict(zip(names, rates, strict=True)),
                strengths=dict.fromkeys(names, np.exp(sizes[shell[own]])),
            )
            pending.append(BatchedMap(schedule, changed, backend).cycle)
            if sum(stack.shape[0] ** 2 * stack.shape[2] for stack in pending) > WORK:
                found.append(_flush(pending, backend))
    return np.concatenate([*found, _flush(pending, backend)])


def _flush(pending: list[Stack], backend: Backend) -> Array:
    """ρ of all maps that were made, in one call."""
    if not pending:
        return np.zeros(0)
    radii = spectral_radii(joined(pending, backend), backend, limit=LARGEST_STABLE)
    pending.clear()
    value: Array = backend.host(radii.value)
    return value


# ---- the situation in which masters are compared: where the system starts, what drives it, for how long --------------
# Constant external inputs and start values of open inputs become outputs of one more unit, `OUTSIDE`, with a state that
# never changes; offsets of connections become such a state of the unit that gets them. The system is then free,
# ẋ = A_c x, and errors follow from powers of Φ and exp(A_c h) alone. Inputs that vary are left out while searching;
# predictions for the points of the front have them.


OUTSIDE = "(outside)"
GRID = 2000
"""Moments at which the sizes of the outputs are looked up."""


@dataclass(frozen=True, eq=False)
class TuningProblem:
    """`free`: the system with everything constant inside; `columns` (n, c): the initial states that errors are for.

    One column, the start of the system; or, where it starts at rest and nothing drives it, all unit vectors: errors are
    then those of the worst initial state. `left_out` tells that something else drives it.
    """

    system: System
    free: System
    columns: Array
    horizon: float
    left_out: bool
    model: Model

    @property
    def worst_case(self) -> bool:
        """Whether errors are for any initial state."""
        return bool(self.columns.shape[1] > 1)

    @property
    def joined(self) -> bool:
        """Whether something constant has joined the system."""
        return dict(self.free.units) != dict(self.system.units)

    @property
    def fastest(self) -> float:
        """|λ| of the fastest mode."""
        sizes = np.abs(self.model.poles)
        return float(sizes[sizes < self.model.instant].max(initial=0.0))

    @property
    def grows(self) -> bool:
        """Whether the coupled system itself is unstable."""
        return self.model.grows

    @cached_property
    def sizes(self) -> Array:
        """Of every output, the largest value of the exact solution within the horizon (p,); 0: it never moves."""
        coupled = LinearSystem(self.free, masters.jacobi(self.free, 1.0)).coupled
        A, C = dense(coupled.A), dense(coupled.C)
        # Enough moments for the slow motion; what is faster shows at some of them too, as they are no multiples of it.
        count = GRID
        flow, x = exponential(A * (self.horizon / count)), self.columns
        found, lacking = np.zeros(len(C)), np.zeros((len(C), 1))
        lacking[len(C) - len(self.system.outputs) :, 0] = self.model.local.offsets
        for _ in range(count + 1):
            found = np.maximum(found, np.linalg.norm(C @ x + lacking, axis=1))
            x = flow @ x
        if not np.isfinite(found).all():
            raise ConfigurationError(
                f"the exact solution of '{self.system.name}' overflows within {self.horizon:g} s; choose a shorter "
                "horizon."
            )
        return found


def tuning_problem(model: Model) -> TuningProblem:
    """How masters are compared on the linear picture of a model."""
    system = model.local.linear
    constants: dict[str, float] = {}
    left_out = False
    for inlets in system.inlets.values():
        for inlet in inlets:
            value = inlet.source.value if isinstance(inlet.source, Constant) else inlet.start
            left_out |= inlet.source is not None and not isinstance(inlet.source, Constant)
            if inlet.link is None and value != 0:
                constants[inlet.target] = value
    free = _free(system, constants)
    first = np.concatenate([unit.initial_state for unit in free.units.values()])
    moving = np.concatenate([unit.initial_state for unit in system.units.values()]).any()
    driven = bool(constants) or any(isinstance(unit, Pushed) for unit in free.units.values())
    columns = first[:, None] if moving or driven else np.eye(len(first))
    return TuningProblem(system, free, columns, model.horizon, left_out, model)


class Pushed(Unit):
    """A linear unit that gets u + d: the number 1 joins its states, [x; 1]' = [A_d B_0 d; 0 1] [x; 1] + [B; 0] u.

    Every coupling of ours passes a constant on as it is, so that it may as well come after the coupling.
    """

    def __init__(self, unit: Unit, push: Array) -> None:
        self.unit, self.push = unit, push
        self.inputs, self.outputs, self.start = unit.inputs, unit.outputs, unit.start
        self.input_degree, self.can_restore = unit.input_degree, unit.can_restore

    @property
    def discrete_inputs(self) -> tuple[str, ...]:
        return self.unit.discrete_inputs

    def instantiate(self, start_time: float = 0.0) -> Instance:
        raise TypeError(f"a {type(self).__name__} unit is analysed, not run")

    def feedthrough(self) -> BoolArray:
        return self.unit.feedthrough()

    def conversion(self, output: int, taker: Unit, variable: int) -> Conversion:
        return self.unit.conversion(output, taker.unit if isinstance(taker, Pushed) else taker, variable)

    @property
    def initial_state(self) -> Array:
        """The states of the unit and the number 1."""
        return np.append(self.unit.initial_state, 1.0)

    def linear(self) -> LinearModel | None:
        model = self.unit.linear()
        if model is None:
            return None
        A, B = (_bordered(part, 0.0) for part in (model.A, model.B))
        A[:-1, -1] = model.B @ self.push
        return LinearModel(A, B[:, :-1], np.column_stack([model.C, model.D @ self.push]), model.D)

    def discrete(self, duration: float | Array) -> DiscreteModel:
        found = self.unit.discrete(duration)
        A = _bordered(found.A, 1.0)
        A[..., :-1, -1] = found.B[..., : len(self.inputs)] @ self.push
        return DiscreteModel(A, _bordered(found.B, 0.0)[..., :-1])


def _bordered(matrix: Array, corner: float) -> Array:
    """With a row and a column of zeros, and the corner."""
    *lead, rows, columns = matrix.shape
    found = np.zeros((*lead, rows + 1, columns + 1))
    found[..., :rows, :columns] = matrix
    found[..., rows, columns] = corner
    return found


def _free(system: System, constants: dict[str, float]) -> System:
    """The system with one more unit for what is constant, and offsets inside; what varies is taken as 0."""
    rest = {target: 0.0 for target in system.inputs if target not in constants}
    units, connections = dict(system.units), []
    for name, unit in system.units.items():
        links = [inlet.link for inlet in system.inlets[name]]
        push = np.array([link.connection.offset if link else 0.0 for link in links])
        if push.any():
            units[name] = Pushed(unit, push)
    for link in system.links:
        own = link.connection
        # Measures are converted already, in the gain and the offset.
        connections.append(Connection(own.source, own.target, own.gain, 0.0, convert=False))
    if not constants:
        return System(units, connections, inputs=rest, name=system.name)
    values = np.array(list(constants.values()))[:, None]
    outside = StateSpace(np.zeros((1, 1)), np.zeros((1, 0)), values, initial=[1.0], inputs=[], outputs=list(constants))
    given = [(f"{OUTSIDE}.{target}", target) for target in constants]
    return System({OUTSIDE: outside, **units}, [*connections, *given], inputs=rest, name=system.name)
