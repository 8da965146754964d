"""Polynomials c_0 + c_1 σ + … + c_q σ^q as coefficient columns: shift, evaluate, interpolate, all as small matrices."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import comb

import numpy as np

from cosimo.core.arrays import Array

Time = float | Fraction


def shift_matrix(degree: int, offset: Time, *, keep: int | None = None) -> Array:
    """T with c' = T c the coefficients around `offset`: T_ij = binom(j, i) offset^(j−i); `keep` cuts higher powers off.

    >>> shift_matrix(2, 1.0)
    array([[1., 1., 1.],
           [0., 1., 2.],
           [0., 0., 1.]])
    """
    rows = (degree if keep is None else min(keep, degree)) + 1
    return np.array([[comb(j, i) * float(offset) ** max(j - i, 0) for j in range(degree + 1)] for i in range(rows)])


def value_row(degree: int, at: Time) -> Array:
    """The row that evaluates at `at`: [1, at, at², …]."""
    return np.array([float(at) ** j for j in range(degree + 1)])


def interpolation_matrix(points: Sequence[Time]) -> Array:
    """The matrix that turns values at distinct `points` into coefficients: the inverse of the Vandermonde matrix.

    Computed in exact fractions, so that holds on commensurable sample times have exact coefficients.

    >>> interpolation_matrix([0, -1])
    array([[ 1.,  0.],
           [ 1., -1.]])
    """
    nodes = [Fraction(point) for point in points]
    columns = []
    for i, node in enumerate(nodes):
        # The Lagrange basis polynomial that is 1 at this node and 0 at the others.
        basis = [Fraction(1)]
        for other in nodes[:i] + nodes[i + 1 :]:
            scale = node - other
            raised = [Fraction(0), *basis]
            for power, coefficient in enumerate(basis):
                raised[power] -= other * coefficient
            basis = [coefficient / scale for coefficient in raised]
        columns.append([float(coefficient) for coefficient in basis])
    return np.array(columns).T


def external_fit(degree: int, span: Fraction) -> tuple[list[Fraction], Array]:
    """Where an external signal is sampled over `span`, and the matrix from the samples to the coefficients.

    An external signal is known ahead, so a coupling of degree q interpolates it at q + 1 points of the step.
    """
    points = [span * j / degree for j in range(degree + 1)] if degree else [Fraction(0)]
    return points, interpolation_matrix(points)
