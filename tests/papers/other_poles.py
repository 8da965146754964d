"""Poles found in other ways: by Padé, delays replaced by rational functions, as in tamellin2022; and only counted.

e^{−z} ≈ Σ p_i z^i / Σ q_i z^i with q_i = (2n − i)! n! / ((2n)! i! (n − i)!) and p_i = (−1)^i q_i, i = 0 … n
(tamellin2022, Eq. 17, whose index starts at 0). Every held input then is a filter of its own; time is measured in
macro steps, so that coefficients have a moderate size.
"""

from __future__ import annotations

from itertools import pairwise
from math import factorial

import numpy as np
import scipy.signal

from cosimo.core.arrays import Array, ComplexArray
from cosimo.papers.laplace import Delay, LaplaceModel
from cosimo.papers.roots import Region

Filter = tuple[Array, Array, Array]
"""A, B, C of a filter from one held signal to the input it becomes; time in macro steps."""


def pade_poles(model: LaplaceModel, *, order: int = 6) -> ComplexArray:
    """All poles of the co-simulated system with delays approximated to `order`, slowest first."""
    units, T = model.units, model.step
    filters = [_filter(delay, T, order) for delay in model.delays]
    n, sizes = len(units.A), [len(A) for A, _, _ in filters]
    begins = n + np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    inputs = np.zeros((len(filters), int(begins[-1])))
    for row, (_, _, C) in enumerate(filters):
        inputs[row, begins[row] : begins[row + 1]] = C[0]
    outputs = units.D @ inputs
    outputs[:, :n] += units.C
    matrix = np.zeros((int(begins[-1]), int(begins[-1])))
    matrix[:n, :n] = units.A * T
    matrix[:n] += units.B * T @ inputs
    arriving = model.connections @ outputs
    for row, (A, B, _) in enumerate(filters):
        part = slice(begins[row], begins[row + 1])
        matrix[part, part] += A
        matrix[part] += B @ arriving[row : row + 1]
    poles = np.asarray(np.linalg.eigvals(matrix) / T, dtype=np.complex128)
    return poles[np.argsort(np.abs(poles))]


def _filter(delay: Delay, T: float, order: int) -> Filter:
    """D(s) of a connection as a strictly proper filter."""
    p, q = _pade(order)
    # h = (1 − p/q) / z: the numerator q − p vanishes at 0, so dividing by z just drops its last coefficient.
    h = np.polysub(q, p)[:-1]
    shape = ([1.0], [1.0, 1.0], [1.0, 1.5, 1.0])[delay.order]
    numerator, denominator = np.array(shape), np.array([1.0])
    for _ in range(delay.order + 1):
        numerator, denominator = np.polymul(numerator, h), np.polymul(denominator, q)
    late = (delay.send + delay.receive) / T
    if late:
        scale = late ** np.arange(order, -1, -1)
        numerator, denominator = np.polymul(numerator, p * scale), np.polymul(denominator, q * scale)
    A, B, C, _ = scipy.signal.tf2ss(numerator, denominator)
    return A, B, C


def _pade(n: int) -> tuple[Array, Array]:
    """p and q, highest power first."""
    q = [
        factorial(2 * n - i) * factorial(n) / (factorial(2 * n) * factorial(i) * factorial(n - i)) for i in range(n + 1)
    ]
    p = [(-1) ** i * value for i, value in enumerate(q)]
    return np.array(p[::-1]), np.array(q[::-1])


def count_turns(model: LaplaceModel, region: Region, spacing: float) -> int:
    """How often det N(s) turns around zero along the edge of the region, by its phase at points `spacing` apart."""
    a, b = complex(region.left, region.bottom), complex(region.right, region.top)
    corners = (a, complex(b.real, a.imag), b, complex(a.real, b.imag), a)
    sides = [np.linspace(p, q, 2 + int(abs(q - p) / spacing)) for p, q in pairwise(corners)]
    sign, _ = np.linalg.slogdet(model.matrix(np.concatenate(sides)))
    phase = np.unwrap(np.angle(sign))
    return round(float(phase[-1] - phase[0]) / (2 * np.pi))
