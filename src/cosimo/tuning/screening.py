"""Robustness of many masters at once, roughly: for the search; points of the front get the whole `relative_radius`.

Changes are those of the relative radius: gains of all units grow by 1 + s, rates of units grow or shrink by 1 + s.
Tried are rates all up, all down, unchanged and, for up to three units, every pattern of up and down: among these
directions the first crossing nearly always is. A master with the step h is one with the step 1 of units that are h
times as fast, so that steps and changes are one stack. Shells of s are halved rather than scanned, and log ρ is
interpolated between the last two: an island of instability may be missed here, but not by what is reported.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from cosimo.algebra import LinearSystem, Operations
from cosimo.analysis.robustness import rescaled
from cosimo.analysis.stability import is_stable
from cosimo.core.arrays import Array
from cosimo.core.coupling import CouplingMatrices, Sampling
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.couplings.nepce import nepce_matrices
from cosimo.tuning.goals import MOST_ROBUST

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
