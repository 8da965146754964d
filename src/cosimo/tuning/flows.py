"""The maps of one step of a linear unit for many step sizes at once.

With the input u(θ) = Σ_j c_j θ^j over the step, the exact map x' = A_d x + Σ_j B_j c_j of a step δ is the power series

    A_d = Σ_i (A δ)^i / i!,        B_j = Σ_i j! A^i B δ^(i+1) / (i + j + 1)!,

whose coefficients do not depend on δ: for all steps together it is one product of a constant matrix with the powers of
δ. It is used for ‖A‖ δ ≤ 1, where 18 terms are exact to rounding; longer steps are halved s times first and the map is
doubled s times, each doubling being one product of stacks,

    A_d ← A_d²,        B ← (A_d B + B moved along) scaled by 2^-j,

as two steps with the same polynomial do. Steps come in rising order, so that each doubling concerns a tail of them.
"""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.polynomial import shift_matrix
from cosimo.core.unit import LinearModel, Unit
from cosimo.tuning.backends import Backend, Stack
from cosimo.units.integrators import Exact
from cosimo.units.linear import LinearUnit, StateSpace

TERMS = 19
"""Powers of δ in the series, 0 to 18: the remainder is below 1/19! ≈ 8e-18."""


class Steps:
    """The macro steps of N masters on the backend, what is distinct among them, and which system each master runs."""

    def __init__(self, steps: Array, backend: Backend, which: Any = None) -> None:
        self.all, self.which = backend.array(steps), which
        self.distinct, inverse = backend.distinct(self.all)
        self.inverse = inverse.reshape(-1)


class Flow:
    """[A_d B_0 … B_q] of a unit, or of the same unit in P systems with other parameters, for stacks of steps."""

    def __init__(self, units: list[Unit], degree: int) -> None:
        self.units, self.degree = units, degree
        models = [unit.linear() for unit in units]
        assert all(model is not None for model in models)
        # An identified unit has a map of its own, which need not be the exact one of its continuous model.
        self.exact = all(
            isinstance(unit, LinearUnit)
            and isinstance(unit.integrator, Exact)
            and type(unit).discrete is LinearUnit.discrete
            for unit in units
        )
        self.n, self.m = models[0].B.shape  # type: ignore[union-attr]
        if self.exact:
            self.series = np.stack([_series(model, degree) for model in models], axis=-1)  # type: ignore[arg-type]
            self.norms = np.array([np.abs(model.A).sum(axis=0).max(initial=0.0) for model in models])  # type: ignore[union-attr]

    @classmethod
    def of(cls, states: list[Array]) -> Flow:
        """The flows exp(A δ) of free systems ẋ = A x."""
        return cls([StateSpace(A, np.zeros((len(A), 0)), np.zeros((0, len(A)))) for A in states], 0)

    @property
    def width(self) -> int:
        """The number of columns."""
        return int(self.n + (self.degree + 1) * self.m)

    def at(self, steps: Steps, factor: float, backend: Backend) -> Stack:
        """(n, width, N) for `factor` times the steps."""
        if steps.which is not None and len(self.units) > 1:
            return self._mixed(backend.host(steps.all) * factor, steps.which, backend)
        durations = steps.distinct * factor
        if self.exact:
            maps = self._exact(durations, backend, None)
        else:
            maps = backend.array(self._discrete(0, backend.host(durations)))
        return backend.pick(maps, steps.inverse)

    def _mixed(self, durations: Array, which: Any, backend: Backend) -> Stack:
        """Every master has a system of its own, or some share one: in the order of ‖A‖ δ, or system by system."""
        if self.exact:
            order = np.argsort(self.norms[which] * durations, kind="stable")
            maps = self._exact(backend.array(durations[order]), backend, which[order])
        else:
            order = np.argsort(which, kind="stable")
            parts = [self._discrete(p, durations[which == p]) for p in np.unique(which).tolist()]
            maps = backend.array(np.concatenate(parts, axis=-1))
        return backend.pick(maps, backend.indices(np.argsort(order, kind="stable")))

    def _discrete(self, number: int, steps: Array) -> Array:
        """What the unit itself says, on the host: other integrators than the exact one, and units of other kinds."""
        found = self.units[number].discrete(steps)
        joined = np.concatenate([found.A, found.B[..., : self.width - self.n]], axis=-1)
        return np.ascontiguousarray(np.moveaxis(joined, 0, -1))

    def _exact(self, durations: Stack, backend: Backend, which: Any) -> Stack:
        """The series and the doublings, for durations with rising ‖A‖ δ."""
        xp = backend.xp
        sizes = durations * (float(self.norms[0]) if which is None else backend.array(self.norms[which]))
        longest = float(sizes[-1])
        limits = [2.0**s for s in range(int(np.ceil(np.log2(longest))) if longest > 1 else 0)]
        places = xp.searchsorted(sizes, backend.array(limits), side="right") if limits else backend.zeros(0)
        tails = backend.host(places).tolist()
        delta = 1.0 * durations
        for tail in tails:
            delta[tail:] *= 0.5
        if which is None:
            powers = backend.zeros(TERMS, len(delta)) + 1.0
            for i in range(1, TERMS):
                powers[i] = powers[i - 1] * delta
            series = backend.array(self.series[..., 0].reshape(-1, TERMS))
            maps = (series @ powers).reshape(self.n, self.width, len(delta))
        else:
            series, own = backend.array(self.series), backend.indices(which)
            maps = backend.pick(series[:, :, -1], own)
            for i in reversed(range(TERMS - 1)):
                maps = maps * delta + backend.pick(series[:, :, i], own)
        for tail in tails:
            maps[:, :, tail:] = self._doubled(maps[:, :, tail:], backend)
        return maps

    def _doubled(self, maps: Stack, backend: Backend) -> Stack:
        n, m = self.n, self.m
        product = backend.multiply(maps[:, :n], maps)
        along = shift_matrix(self.degree, 1.0)
        for j in range(self.degree + 1 if m else 0):
            columns = slice(n + j * m, n + (j + 1) * m)
            moved = sum(along[i, j] * maps[:, n + i * m : n + (i + 1) * m] for i in range(j + 1))
            product[:, columns] = (product[:, columns] + moved) * 0.5**j
        return product


def _series(model: LinearModel, degree: int) -> Array:
    """The coefficients (n, width, TERMS) of the powers of δ."""
    n, m = model.B.shape
    found = np.zeros((n, n + (degree + 1) * m, TERMS))
    power = np.eye(n)
    for i in range(TERMS):
        found[:, :n, i] = power / factorial(i)
        for j in range(degree + 1 if i + 1 < TERMS else 0):
            found[:, n + j * m : n + (j + 1) * m, i + 1] = power @ model.B * (factorial(j) / factorial(i + j + 1))
        power = power @ model.A
    return found
