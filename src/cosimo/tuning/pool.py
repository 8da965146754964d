"""Candidates in, numbers out: structures share a batch, and what was evaluated once is not evaluated again."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.algebra import LinearSystem, Operations
from cosimo.analysis.robustness import rescaled
from cosimo.analysis.stability import is_stable
from cosimo.core.arrays import Array, BoolArray
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.formatting import MOST_ROBUST
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings import nepce_matrices
from cosimo.tuning.evaluation import Evaluation
from cosimo.tuning.goals import Goal, OutputError
from cosimo.tuning.objectives import Consistency, Cost, Objective, Stability
from cosimo.tuning.program import Varied
from cosimo.tuning.scene import Scene
from cosimo.tuning.space import Resolved
from cosimo.tuning.structures import Structure

COLUMNS = ("stable", "radius", "error", "robustness", "cost", "defect")
"""What is known of a candidate; columns that no goal asks for are NaN."""
UNSTABLE = 1e6
"""Stands for an error, or a ρ, that is not finite, in what the search sees."""


class Pool:
    """All candidates evaluated so far: rows (N, width) with their columns (N, 6), in the order they were asked for."""

    def __init__(
        self,
        scene: Scene,
        space: Resolved,
        goals: tuple[Goal, ...],
        *,
        cost: Cost,
        budget: float | None,
        backend: str = "numpy",
        workers: int | None = None,
    ) -> None:
        self.scene, self.space, self.goals, self.cost, self.budget = scene, space, goals, cost, budget
        self.names = {goal.name for goal in goals} | ({"cost"} if budget else set())
        self._batches: dict[int, _Batch] = {}
        self._options: dict[str, Any] = {"backend": backend, "workers": workers}
        self._known: dict[bytes, Array] = {}
        self._rows: list[Array] = []
        self._asked: set[bytes] = set()

    @property
    def count(self) -> int:
        """How many different candidates were asked for."""
        return len(self._rows)

    @property
    def rows(self) -> Array:
        """The candidates."""
        return np.array(self._rows).reshape(-1, self.space.width)

    @property
    def columns(self) -> Array:
        """What is known of them."""
        return np.array([self._known[row.tobytes()] for row in self._rows]).reshape(-1, len(COLUMNS))

    @property
    def known(self) -> tuple[Array, Array]:
        """Rows and columns of all that is known, also of what was remembered and not asked for yet."""
        rows = [np.frombuffer(key) for key in self._known]
        width = (-1, self.space.width)
        return np.array(rows).reshape(width), np.array(list(self._known.values())).reshape(-1, len(COLUMNS))

    def remember(self, rows: Array, columns: Array) -> None:
        """Take over what an earlier search evaluated; it counts when it is asked for."""
        for row, known in zip(rows, columns, strict=True):
            self._known[row.tobytes()] = known

    def admit(self, rows: Array, left: int) -> BoolArray:
        """Which candidates may be asked for when only `left` more may be: those asked for before, and the first new."""
        found = np.zeros(len(rows), dtype=bool)
        new: set[bytes] = set()
        for place, key in enumerate(row.tobytes() for row in rows):
            if key not in self._asked and key not in new and len(new) < left:
                new.add(key)
            found[place] = key in self._asked or key in new
        return found

    def evaluate(self, rows: Array) -> Array:
        """The columns (N, 6) of candidates."""
        rows = self.space.tidy(rows)
        keys = [row.tobytes() for row in rows]
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._known}
        if new:
            asked = np.array(list(new.values()))
            numbers = self.space.structure_of(asked)
            for number in np.unique(numbers).tolist():
                own = asked[numbers == number]
                for row, found in zip(own, self._batch(number).columns(own), strict=True):
                    self._known[row.tobytes()] = found
        for key, row in zip(keys, rows, strict=True):
            if key not in self._asked:
                self._asked.add(key)
                self._rows.append(row)
        return np.array([self._known[key] for key in keys])

    def scaled(self, columns: Array) -> Array:
        """What the search makes small (N, goals): finite everywhere, monotone in the goals."""
        found = [goal.scaled(columns[:, COLUMNS.index(goal.name)]) for goal in self.goals]
        return np.nan_to_num(np.column_stack(found), nan=UNSTABLE, posinf=UNSTABLE, neginf=-UNSTABLE)

    def violation(self, columns: Array) -> Array:
        """How far candidates are from what is allowed: stable (where the system itself is), within the
        budget, and not wrong by more than the outputs are large."""
        found = np.zeros(len(columns))
        if not self.scene.grows:
            unstable = columns[:, 0] == 0
            beyond = np.nan_to_num(columns[unstable, 1] - 1, nan=1e3, posinf=1e3)
            found[unstable] += 1e-9 + np.clip(beyond, 0.0, 1e3)
        if "error" in self.names:
            error = np.nan_to_num(columns[:, COLUMNS.index("error")], nan=UNSTABLE, posinf=UNSTABLE)
            found += np.log10(np.maximum(error, 1.0))
        if self.budget is not None:
            found += np.maximum(columns[:, COLUMNS.index("cost")] / self.budget - 1 - 1e-12, 0.0)
        return found

    def _batch(self, number: int) -> _Batch:
        if number not in self._batches:
            self._batches[number] = _Batch(self, self.space.structures[number], self._options)
        return self._batches[number]


class _Batch:
    """One structure."""

    def __init__(self, pool: Pool, structure: Structure, options: Mapping[str, Any]) -> None:
        self.pool, self.structure, self.options = pool, structure, options

    def columns(self, rows: Array) -> Array:
        found = np.full((len(rows), len(COLUMNS)), np.nan)
        steps, gains = self.pool.space.steps_of(rows), self.pool.space.gains_of(rows, self.structure)
        try:
            self._fill(found, steps, gains)
        except AlgebraicLoopError:
            found[:, 0], found[:, 1] = 0.0, np.inf
        return found

    def _fill(self, found: Array, steps: Array, gains: dict[str, Array]) -> None:
        names, columns = self.pool.names, {name: i for i, name in enumerate(COLUMNS)}
        objectives: list[Objective] = [Stability()]
        objectives += [Consistency(2, 2)] if "defect" in names else []
        table = again(self._plain, steps, gains).compute(*objectives)
        stable = table.stable | is_stable(table["spectral_radius"], identified=not self.pool.scene.model.known)
        found[:, columns["stable"]] = stable
        found[:, columns["radius"]] = table["spectral_radius"]
        if "defect" in names:
            found[:, columns["defect"]] = table["consistency"]
        if "cost" in names:
            system, master = self.pool.scene.system, self._plain.program.master
            found[:, columns["cost"]] = self.pool.cost.per_step(system, master) / (steps * self._stretch)
        if "error" in names:
            found[:, columns["error"]] = again(self._free, steps, gains).compute(self._error)["error"]
        if "robustness" in names:
            places = np.flatnonzero(stable)
            found[:, columns["robustness"]] = 0.0
            if places.size:
                own = {target: gain[places] for target, gain in gains.items()}
                found[places, columns["robustness"]] = self._screen.margins(steps[places], own)

    @cached_property
    def _error(self) -> OutputError:
        scene = self.pool.scene
        return OutputError(scene.columns, scene.sizes, scene.horizon)

    @cached_property
    def _plain(self) -> Evaluation:
        return self._evaluation(False)

    @cached_property
    def _free(self) -> Evaluation:
        return self._evaluation(True) if self.pool.scene.joined else self._plain

    @cached_property
    def _screen(self) -> Screen:
        return Screen(self.pool.scene.system, self.structure.master(self.pool.scene.system, 1.0))

    @property
    def _stretch(self) -> float:
        """The macro step of a multirate master is a multiple of the step that is searched."""
        return self._plain.program.master.step

    def _evaluation(self, free: bool) -> Evaluation:
        system = self.pool.scene.free if free else self.pool.scene.system
        master = self.structure.master(system, 1.0)
        return Evaluation(system, master, gains=dict.fromkeys(self.structure.targets, 0.0), **self.options)


def again(evaluation: Evaluation, steps: Array, gains: Mapping[str, Array]) -> Evaluation:
    """The same batch with other numbers (N,), without setting everything up again.

    `steps` are those of the structure: its macro step is as much longer as that of the evaluation's master is than 1.
    """
    found = copy.copy(evaluation)
    stretch = evaluation.program.master.step
    found.shape = steps.shape
    found.varied = Varied(np.ascontiguousarray(steps * stretch), dict(gains))
    return found


# ---- robustness of many masters at once, roughly: for the search; points of the front get the whole `relativ ---------
# Changes are those of the relative radius: gains of all units grow by 1 + s, rates of units grow or shrink by 1 + s.
# Tried are rates all up, all down, unchanged and, for up to three units, every pattern of up and down: among these
# directions the first crossing nearly always is. A master with the step h is one with the step 1 of units that are h
# times as fast, so that steps and changes are one stack. Shells of s are halved rather than scanned, and log ρ is
# interpolated between the last two: an island of instability may be missed here, but not by what is reported.


SHELLS = 16
PATTERNS_UP_TO = 3
"""Number of units up to which every pattern of faster and slower ones is tried."""
WORK = 2_000_000
"""Numbers of Φ held at once."""


class _Filtered(Operations):
    """The matrices of the operations, with N gains of NEPCE at some inputs."""

    def __init__(self, system: System, master: Master, gains: Mapping[str, Array]) -> None:
        super().__init__(system, master)
        self._gains = {target: gain[:, None, None] for target, gain in gains.items()}

    def coupling_matrices(self, target: str, sampling: Sampling) -> CouplingMatrices:
        if target in self._gains:
            return nepce_matrices(self._gains[target])
        return super().coupling_matrices(target, sampling)


class Screen:
    """How far the masters of one structure stay stable; `master` has that structure, with step 1."""

    def __init__(self, system: System, master: Master) -> None:
        self.system, self.master = system, master
        names = system.names
        signs = itertools.product((1, -1), repeat=len(names)) if len(names) <= PATTERNS_UP_TO else ()
        same = [(sign,) * len(names) for sign in (1, -1, 0)]
        self.patterns: Array = np.array(list(dict.fromkeys([*signs, *same])), dtype=float)
        self.sizes: Array = np.log1p(MOST_ROBUST) * np.arange(SHELLS + 1) / SHELLS
        """ln(1 + s) of the shells, from 0."""

    def margins(self, steps: Array, gains: Mapping[str, Array]) -> Array:
        """About the smallest s at which each master (N,), stable itself, becomes unstable; at most 9."""
        count = len(steps)
        low, high = np.zeros(count, dtype=int), np.full(count, SHELLS + 1)
        rho_low, rho_high = np.full(count, np.nan), np.full(count, np.nan)
        while (high - low > 1).any():
            open_ = np.flatnonzero(high - low > 1)
            middle = (low[open_] + high[open_]) // 2
            rho = self.radii(steps[open_], {t: g[open_] for t, g in gains.items()}, self.sizes[middle])
            stable = is_stable(rho)
            low[open_[stable]], rho_low[open_[stable]] = middle[stable], rho[stable]
            high[open_[~stable]], rho_high[open_[~stable]] = middle[~stable], rho[~stable]
        left, right = self.sizes[low], self.sizes[np.minimum(high, SHELLS)]
        with np.errstate(divide="ignore", invalid="ignore"):
            a, b = np.log(rho_low), np.log(np.minimum(rho_high, 10.0))
            share = np.clip(-a / (b - a), 0.0, 1.0)
        share = np.where(np.isfinite(share), share, 0.5)
        return np.where(high > SHELLS, MOST_ROBUST, np.expm1(left + share * (right - left)))

    def radii(self, steps: Array, gains: Mapping[str, Array], logarithms: Array) -> Array:
        """The largest ρ over all patterns of change, for one ln(1 + s) per master."""
        patterns = len(self.patterns)
        rates = (steps[:, None, None] * np.exp(logarithms[:, None, None] * self.patterns)).reshape(
            -1, len(self.system.names)
        )
        stronger = np.repeat(np.exp(logarithms), patterns)
        alphas = {target: np.repeat(gain, patterns) for target, gain in gains.items()}
        states = sum(len(unit.initial_state) for unit in self.system.units.values())
        size = max(1, WORK // max(1, 8 * states**2))
        parts = [slice(i, i + size) for i in range(0, len(rates), size)]
        found = [self._radii(rates[p], stronger[p], {t: a[p] for t, a in alphas.items()}) for p in parts]
        worst: Array = np.concatenate(found).reshape(-1, patterns).max(axis=1)
        return worst

    def _radii(self, rates: Array, stronger: Array, alphas: Mapping[str, Array]) -> Array:
        names = self.system.names
        system = rescaled(
            self.system, rates=dict(zip(names, rates.T, strict=True)), gains=dict.fromkeys(names, stronger)
        )
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                Phi = LinearSystem(system, self.master, _Filtered(system, self.master, alphas)).cycle.matrix
            except AlgebraicLoopError:
                return np.full(len(rates), np.inf)
        Phi = np.broadcast_to(Phi, (len(rates), *Phi.shape[-2:]))
        finite = np.isfinite(Phi).all(axis=(-2, -1))
        rho = np.full(len(rates), np.inf)
        rho[finite] = np.abs(np.linalg.eigvals(Phi[finite])).max(axis=-1, initial=0.0)
        return rho
