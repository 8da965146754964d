"""What is computed for every master of a batch.

An objective is a small frozen object. To add one, derive from `Objective` and provide `compute`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosimo.algebra.batch import Norm
from cosimo.analysis.cost import UnitSteps
from cosimo.analysis.stability import NEAR_ONE, is_stable, moving_radius
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.tuning.backends import Backend, Stack
from cosimo.tuning.binding import Bound
from cosimo.tuning.radius import spectral_radii

Columns = dict[str, Any]


class Objective(ABC):
    """Something to know about every master."""

    @abstractmethod
    def compute(self, bound: Bound) -> Columns:
        """The columns by name, one number (or truth value) per master each."""


@dataclass(frozen=True)
class Stability(Objective):
    """`spectral_radius` ρ(Φ) to a relative `accuracy`, and whether the master is `stable`, as `Spectrum` says it.

    ρ is infinite where Φ is not finite (an iteration without a fixed point, or overflow).
    """

    accuracy: float = 1e-10

    def compute(self, bound: Bound) -> Columns:
        found = spectral_radii(bound.cycle, bound.backend, accuracy=self.accuracy)
        host = bound.backend.host(found.stable).copy()
        return {"spectral_radius": found.value, "stable": self._without_rest(bound, found.value, host)}

    @staticmethod
    def _without_rest(bound: Bound, value: Stack, stable: Any) -> Any:
        """Modes at rest do not count (`cosimo.analysis.stability`): where ρ is near 1, they are divided out of Φ."""
        radius = bound.backend.host(value)
        doubtful = np.flatnonzero(~stable & (radius < 1 + NEAR_ONE))
        which = bound.varied.which
        for place in doubtful.tolist() if any(rest.count for rest in bound.program.rest) else ():
            rest = bound.program.rest[0 if which is None else int(which[place])]
            Phi = bound.backend.host(bound.cycle)[:, :, place]
            stable[place] = is_stable(moving_radius(Phi, rest, float(bound.varied.steps[place])))
        return stable


@dataclass(frozen=True)
class Consistency(Objective):
    """`consistency` δ = ‖(S_u − L S_y) Φ^k E‖ (glumac2018, Eq. 59; see `cosimo.analysis.accuracy`)."""

    k: int = 2
    norm: Norm = 2

    def __post_init__(self) -> None:
        if self.k < 1 or self.norm not in (1, 2):
            raise ConfigurationError(f"δ needs k ≥ 1 and the norm 1 or 2, not k = {self.k} and norm {self.norm}.")

    def compute(self, bound: Bound) -> Columns:
        rows = bound.start()
        for _ in range(self.k):
            rows = bound.macro_step(rows)
        defect = bound.full(bound.observe(bound.program.defects, rows))
        return {"consistency": norms(defect, bound.backend, norm=self.norm)}


@dataclass(frozen=True)
class Accuracy(Objective):
    """`global_error` = max_k ‖S_y Φ^k E − C_c exp(A_c k h)‖₂ for k h ≤ `horizon`, and `relative_error`.

    All communication points count where there are at most `samples` of them; where there are more, every q-th does,
    with the smallest whole q that makes them few enough. The relative error divides by max_k ‖C_c exp(A_c k h)‖₂.
    """

    horizon: float
    samples: int = 200

    def __post_init__(self) -> None:
        if not (np.isfinite(self.horizon) and self.horizon > 0) or self.samples < 1:
            raise ConfigurationError("the global error needs a positive horizon and at least one sample.")

    def points(self, steps: Array) -> tuple[Array, Array]:
        """How many macro steps lie between two samples, and how many samples there are; at least one each."""
        # A horizon of a whole number of steps must not lose the last one by rounding.
        count = np.maximum(np.floor(self.horizon / steps * (1 + 1e-12)), 1.0)
        stride = np.ceil(count / self.samples)
        return stride.astype(np.int64), np.floor(count / stride).astype(np.int64)

    def compute(self, bound: Bound) -> Columns:
        backend, xp, program = bound.backend, bound.backend.xp, bound.program
        stride, samples = self.points(bound.varied.steps)
        blocks = program.needed()
        end = bound.macro_step(bound.identity(blocks))
        with backend.quiet():
            Phi = bound.full(bound.gather(end, blocks))
            y = bound.full(bound.observe(program.outputs, end))
            C = bound.chosen(program.exact_outputs)
            exact = program.exact_flow.at(bound.grid, 1.0, backend)
            # y_k = Y Φ^(k−1) E: the samples k = q, 2q, … begin with Φ^(q−1).
            z = bound.gather(bound.start(), blocks)
            z = backend.multiply(_powers(Phi, stride - 1, backend), bound.full(z))
            x = flow = _powers(exact, stride, backend)
            leap = _powers(Phi, stride, backend)
            error = backend.zeros(bound.count)
            scale = bound.full(norms(bound.full(C), backend, norm=2)[None, None, :])[0, 0]
            number = backend.array(samples)
            for sample in range(1, int(samples.max()) + 1):
                true = backend.multiply(C, x)
                inside = number >= sample
                off = norms(backend.multiply(y, z) - true, backend, norm=2)
                error = xp.where(inside, xp.maximum(error, off), error)
                scale = xp.where(inside, xp.maximum(scale, norms(true, backend, norm=2)), scale)
                z, x = backend.multiply(leap, z), backend.multiply(flow, x)
            return {"global_error": error, "relative_error": error / scale}


def _powers(stack: Stack, exponents: Array, backend: Backend) -> Stack:
    """stack^exponent of every matrix, by squaring."""
    n, _, count = stack.shape
    found = backend.zeros(n, n, count) + backend.array(np.eye(n)[:, :, None])
    rest, base = exponents.copy(), stack
    while rest.any():
        odd = backend.array(rest % 2) > 0
        if (rest % 2).any():
            found = backend.xp.where(odd, backend.multiply(found, base), found)
        rest //= 2
        if rest.any():
            base = backend.multiply(base, base)
    return found


@dataclass(frozen=True)
class Cost(UnitSteps, Objective):
    """`cost` per simulated second, as `cosimo.analysis.cost.UnitSteps` counts it."""

    def compute(self, bound: Bound) -> Columns:
        return {"cost": self.per_step(bound.program.systems[0], bound.program.master) / bound.steps}


# ---- induced norms of many small matrices at once --------------------------------------------------------------------
# The 2-norm is the root of the largest eigenvalue λ of S = M Mᵀ (or Mᵀ M, whichever is smaller). S is squared again and
# again; with p_m = tr S^m, since S is symmetric and has no negative eigenvalues,
#
#     (p_2m / p_m)^(1/m)  ≤  λ  ≤  p_m^(1/m),
#
# and the two bounds meet as fast as the second eigenvalue dies away, or like log(n) / m when it does not. Squaring a
# symmetric matrix loses nothing against its norm, so rounding stays at a few units.


ACCURACY = 1e-13
"""Relative accuracy of λ: between its bounds lies no more than this."""
CHECKS = (2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 30, 45)
"""After how many squarings it is asked which norms are found; after 45 even equal eigenvalues are."""


def norms(stack: Stack, backend: Backend, *, norm: Norm) -> Stack:
    """The induced 1- or 2-norm of every matrix of a stack, (N,); infinite where entries are not finite."""
    if norm not in (1, 2):
        raise ConfigurationError(f"the norm is 1 or 2, not {norm}.")
    if 0 in stack.shape[:2]:
        return backend.zeros(stack.shape[2])
    xp = backend.xp
    if norm == 1:
        found = (
            xp.amax(xp.abs(stack).sum(0), (0,)) if stack.shape[0] and stack.shape[1] else backend.zeros(stack.shape[2])
        )
        return xp.where(xp.isfinite(found), found, float("inf"))
    if norm != 2:
        raise ConfigurationError(f"the norm is 1 or 2, not {norm}.")
    if 0 in stack.shape[:2]:
        return backend.zeros(stack.shape[2])
    with backend.quiet():
        return _two_norms(stack, backend)


def _two_norms(stack: Stack, backend: Backend) -> Stack:
    xp = backend.xp
    largest = xp.amax(xp.abs(stack), (0, 1))
    found = xp.where(xp.isfinite(largest), largest, float("inf"))
    if min(stack.shape[:2]) == 1:
        scaled = stack / xp.where(largest > 0, largest, 1.0)
        return xp.where(xp.isfinite(largest), largest * xp.sqrt(backend.square_sum(scaled)), float("inf"))
    ids = xp.where(xp.isfinite(largest) & (largest > 0))[0]
    M = backend.pick(stack, ids) / largest[ids]
    if M.shape[0] > M.shape[1]:
        M = M.swapaxes(0, 1)
    S, level, m = backend.gram(M), 0.0 * largest[ids], 1.0
    p = backend.trace(S)
    for k in range(CHECKS[-1] + 1):
        # p = 1 after scaling, so the upper bound is the level itself.
        S, level = S / p, level + xp.log(p) / m
        S = backend.multiply(S, S)
        p = backend.trace(S)
        if k in CHECKS:
            done = (-xp.log(p) / m < ACCURACY) | (k == CHECKS[-1])
            places, left = xp.where(done)[0], xp.where(~done)[0]
            if len(places):
                # Exact when one eigenvalue is left; the bounds are equal to the accuracy wanted.
                middle = level[places] + xp.log(p[places]) / (2 * m)
                found[ids[places]] = largest[ids[places]] * xp.exp(middle / 2)
                ids, level, p, S = ids[left], level[left], p[left], backend.pick(S, left)
            if len(ids) == 0:
                break
        m *= 2
    return found
