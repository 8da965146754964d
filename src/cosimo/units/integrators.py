"""The solvers inside linear units, each one micro step on a stack of columns.

A micro step of length δ maps the state and the input polynomial at its start, X = [x; c_0; c_1; c_2] with
u(θ) = Σ_j c_j θ^j for θ in [0, 1], to the state at its end. Applied to the identity it gives the matrix of the step;
n micro steps are a power of it once the polynomial is moved along.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.polynomial import shift_matrix
from cosimo.core.unit import DiscreteModel, LinearModel

DEGREE = 2
"""The highest power of the input that linear units take (`Exact` takes derivatives of quadratics)."""

Signal = Callable[[float], Array]


class Integrator(ABC):
    """To add an integrator, provide `advance`; `order` is the power of δ in its global error (a test measures it)."""

    order: float

    @abstractmethod
    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """The state one micro step of length `step` (…, 1, 1) after `x` (…, n, k), under the input `u(θ)` (m, k)."""


@dataclass(frozen=True)
class Exact(Integrator):
    """x' = e^{Aδ} x + δ ∫ e^{Aδ(1−θ)} B u(θ) dθ, by one exponential of an augmented matrix (A may be singular)."""

    order = np.inf

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """The augmented system [x, u, u', u''] in θ has constant coefficients, so its flow is one exponential."""
        from scipy.linalg import expm  # loaded where it is needed: it takes longer than all of cosimo

        n, m = model.B.shape
        top = np.concatenate([model.A, model.B, np.zeros((n, DEGREE * m))], axis=1) * step
        size = n + (DEGREE + 1) * m
        generator = np.zeros((*np.shape(step)[:-2], size, size))
        generator[..., :n, :] = top
        generator[..., n : n + DEGREE * m, n + m :] = np.eye(DEGREE * m)
        flow = expm(generator)[..., :n, :]
        # The derivatives at the start of a quadratic signal, from its values at three points.
        start, middle, end = u(0.0), u(0.5), u(1.0)
        derivatives = [start, 4 * middle - 3 * start - end, 4 * (start - 2 * middle + end)]
        columns: Array = flow[..., :n] @ x
        for j, derivative in enumerate(derivatives):
            columns = columns + flow[..., n + j * m : n + (j + 1) * m] @ derivative
        return columns


@dataclass(frozen=True)
class ForwardEuler(Integrator):
    """x' = x + δ (A x + B u(0))."""

    order = 1

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """One evaluation at the start."""
        return x + step * (model.A @ x + model.B @ u(0.0))


@dataclass(frozen=True)
class RungeKutta4(Integrator):
    """The classical method of four stages."""

    order = 4

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """Stages at θ = 0, ½, ½, 1."""

        def slope(state: Array, theta: float) -> Array:
            return step * (model.A @ state + model.B @ u(theta))

        k1 = slope(x, 0.0)
        k2 = slope(x + k1 / 2, 0.5)
        k3 = slope(x + k2 / 2, 0.5)
        k4 = slope(x + k3, 1.0)
        return x + (k1 + 2 * k2 + 2 * k3 + k4) / 6


@dataclass(frozen=True)
class SymplecticEuler(Integrator):
    """Velocity first: v' = v + δ a(q, v, u(0)), q' = q + δ v' (tamellin2022, Sec. 5.1). Needs x = [q; v]."""

    order = 1

    def advance(self, model: LinearModel, x: Array, u: Signal, step: Array) -> Array:
        """The lower half of A and B is the acceleration."""
        n = x.shape[-2] // 2
        q, v = x[..., :n, :], x[..., n:, :]
        v = v + step * (model.A[n:] @ x + model.B[n:] @ u(0.0))
        return np.concatenate([q + step * v, v], axis=-2)


def discretise(model: LinearModel, integrator: Integrator, micro_steps: int, duration: float | Array) -> DiscreteModel:
    """The map of `micro_steps` micro steps that together last `duration`; an array of durations gives a stack."""
    n, m = model.B.shape
    size = n + (DEGREE + 1) * m
    step = np.asarray(duration, dtype=float)[..., None, None] / micro_steps
    identity = np.eye(size)
    blocks = [identity[n + j * m : n + (j + 1) * m] for j in range(DEGREE + 1)]

    def u(theta: float) -> Array:
        return blocks[0] + theta * blocks[1] + theta**2 * blocks[2]

    start = np.broadcast_to(identity[:n], (*step.shape[:-2], n, size))
    matrix = np.zeros((*step.shape[:-2], size, size))
    matrix[..., :n, :] = integrator.advance(model, start, u, step)
    matrix[..., n:, n:] = np.kron(shift_matrix(DEGREE, 1.0), np.eye(m))
    matrix = np.linalg.matrix_power(matrix, micro_steps)
    # A polynomial over the whole step, in the micro steps' own measure of time: c_j / n^j.
    scale = np.repeat([float(micro_steps) ** -j for j in range(DEGREE + 1)], m)
    return DiscreteModel(matrix[..., :n, :n], matrix[..., :n, n:] * scale)


def require_micro_steps(count: int) -> None:
    """Refuse anything but a positive whole number."""
    if not isinstance(count, int) or count < 1:
        raise ConfigurationError(f"micro_steps must be a positive whole number, not {count}.")
