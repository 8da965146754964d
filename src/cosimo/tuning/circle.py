"""The largest gain of T(z) = H + F (zI − Φ)⁻¹ E over the unit circle, with a proof: arcs are bounded, split, discarded.

With R = (zI − Φ)⁻¹ at the middle of an arc, and z' on the arc at most d = 2 sin(a/2) away (a: half its angle),

    T(z') − T(z) = (z − z') F R(z') R(z) E,        ‖R(z') E‖ ≤ ‖R E‖ / (1 − d ‖R‖)        if d ‖R‖ < 1

so that every gain on the arc is at most that in the middle plus ε = d ‖F R‖ ‖R E‖ / (1 − d ‖R‖). For E = F = I this is
the statement that σ_min(zI − Φ) changes by no more than |z − z'|. The gain is

    complex Δ   σ_max(D T D⁻¹), with the scaling D of the blocks chosen anew on every arc (1 for one block)
    real Δ      inf over γ in (0, 1] of σ_2([Re T, −γ Im T; Im T / γ, Re T])           (Qiu et al. 1995, one block)

where for the second the bound on an arc is σ_2 + ε / γ, whatever γ. All matrices are real: half the circle is enough.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from cosimo.core.arrays import Array, ComplexArray
from cosimo.tuning.uncertainty import Structure

GAMMAS = np.geomspace(1e-3, 1.0, 9)
"""Where the valley of σ_2 in γ is looked for, before it is narrowed."""
WORK = 4_000_000
"""Complex numbers held at once while arcs are evaluated."""


@dataclass(frozen=True)
class Peak:
    """The largest gain found, its z, and what no gain on the circle exceeds."""

    gain: float
    point: complex
    bound: float


@dataclass(frozen=True)
class Arcs:
    """Gains in the middle of arcs, and bounds of the gain on them."""

    gain: Array
    bound: Array


def largest_gain(structure: Structure, *, real: bool, tolerance: float, evaluations: int) -> Peak:
    """Branch and bound: `bound` ends within `tolerance` of `gain`, or where `evaluations` ran out, farther away."""
    gain_at = _real_gain if real else _gain

    def refined(theta: float, half: float) -> tuple[float, float]:
        ends = (max(theta - half, 0.0), min(theta + half, np.pi))
        found = minimize_scalar(
            lambda t: -gain_at(structure, t), bounds=ends, method="bounded", options={"xatol": 1e-13}
        )
        return max((-float(found.fun), float(found.x)), (gain_at(structure, theta), theta))

    # Real z are singled out: there a real Δ need not move a pair of eigenvalues, and the gain may jump.
    best, where = max((gain_at(structure, t), t) for t in (0.0, np.pi))
    theta, half = np.pi * (np.arange(32) + 0.5) / 32, np.pi / 64
    spent, bound = 0, best
    while len(theta):
        arcs = _evaluate(structure, theta, half, real)
        spent += len(theta)
        top = int(arcs.gain.argmax())
        if arcs.gain[top] > best * (1 + tolerance / 10):
            best, where = max((best, where), refined(float(theta[top]), half))
        open_ = arcs.bound > best * (1 + tolerance)
        if spent + 2 * int(open_.sum()) > evaluations or half < 1e-15:
            bound = max(bound, float(arcs.bound[open_].max(initial=0.0)))
            break
        theta, half = (theta[open_][:, None] + np.array([-half / 2, half / 2])).ravel(), half / 2
    return Peak(best, complex(np.exp(1j * where)), max(bound, best * (1 + tolerance)))


def _evaluate(structure: Structure, theta: Array, half: float, real: bool) -> Arcs:
    n = len(structure.Phi)
    size = max(1, WORK // max(1, n * n * (8 if real else 3)))
    parts = [_arcs(structure, theta[i : i + size], half, real) for i in range(0, len(theta), size)]
    return Arcs(np.concatenate([part.gain for part in parts]), np.concatenate([part.bound for part in parts]))


def _arcs(structure: Structure, theta: Array, half: float, real: bool) -> Arcs:
    z = np.exp(1j * theta)
    R = np.linalg.inv(z[:, None, None] * np.eye(len(structure.Phi)) - structure.Phi)
    FR, RE = structure.F @ R, R @ structure.E
    T: Any = structure.H + structure.F @ RE
    left, right = scalings(structure, T)
    T = left[..., :, None] * T / right[..., None, :]
    d, size = 2 * np.sin(half / 2), _norm(R)
    with np.errstate(divide="ignore", invalid="ignore"):
        growth = d * _norm(left[..., :, None] * FR) * _norm(RE / right[..., None, :]) / (1 - d * size)
    growth = np.where(d * size < 1, growth, np.inf)
    if not real:
        gain = _norm(T)
        return Arcs(gain, gain + growth)
    return _real_arcs(T, growth)


def _real_arcs(T: ComplexArray, growth: Array) -> Arcs:
    """The lowest σ_2 + ε / γ found over γ: any γ gives a bound, the best of a grid is narrowed by golden section."""
    rough = np.stack([_second(T, gamma) for gamma in GAMMAS], axis=-1)
    finite = np.where(np.isfinite(growth), growth, 0.0)
    best = (rough + finite[:, None] / GAMMAS).argmin(axis=-1)
    low, high = (np.log(GAMMAS[np.clip(best + side, 0, len(GAMMAS) - 1)]) for side in (-1, 1))
    ratio = (np.sqrt(5) - 1) / 2
    gain, bound = rough.min(axis=-1), (rough + growth[:, None] / GAMMAS).min(axis=-1)
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    for _ in range(22):
        seconds = [_second(T, np.exp(x)[:, None, None]) for x in (a, b)]
        bounds = [second + finite / np.exp(x) for second, x in zip(seconds, (a, b), strict=True)]
        gain = np.minimum.reduce([gain, *seconds])
        bound = np.minimum.reduce([bound, *(np.where(np.isfinite(growth), value, np.inf) for value in bounds)])
        left = bounds[0] <= bounds[1]
        low, high = np.where(left, low, a), np.where(left, b, high)
        a, b = high - ratio * (high - low), low + ratio * (high - low)
    return Arcs(gain, bound)


def scalings(structure: Structure, T: ComplexArray) -> tuple[Array, Array]:
    """Factors per row and per column of T that lower σ_max(D T D⁻¹): Perron's of the norms of the blocks of T.

    Any positive scaling is allowed, as Δ is diagonal in blocks; this one brings σ_max to at most the Perron root.
    """
    rows, columns = [p for _, p in structure.blocks], [q for q, _ in structure.blocks]
    lead = T.shape[:-2]
    if len(rows) == 1:
        return np.ones((*lead, sum(rows))), np.ones((*lead, sum(columns)))
    i, j = np.cumsum([0, *rows]), np.cumsum([0, *columns])
    norms = np.array(
        [[_norm(T[..., i[a] : i[a + 1], j[b] : j[b + 1]]) for b in range(len(columns))] for a in range(len(rows))]
    )
    norms = np.moveaxis(norms, (0, 1), (-2, -1))
    scale = _balance(norms)
    norms = scale[..., :, None] * norms / scale[..., None, :]
    # A little of everything makes the matrix positive, and its Perron vectors too.
    norms = norms + 1e-6 * norms.max(axis=(-2, -1), keepdims=True) + 1e-300
    scale = scale * np.sqrt(_perron(np.swapaxes(norms, -1, -2)) / _perron(norms))
    return np.repeat(scale, rows, axis=-1), np.repeat(scale, columns, axis=-1)


def _balance(norms: Array) -> Array:
    """Osborne's balancing: rows and columns of equal size, whatever units of measure the signals have."""
    scale = np.ones(norms.shape[:-1])
    diagonal = np.eye(norms.shape[-1], dtype=bool)
    others = np.where(diagonal, 0.0, norms)
    for _ in range(10):
        for i in range(norms.shape[-1]):
            row = (others[..., i, :] / scale).sum(axis=-1)
            column = (others[..., :, i] * scale).sum(axis=-1)
            used = (row > 0) & (column > 0)
            scale[..., i] = np.where(used, np.sqrt(column / np.where(used, row, 1.0)), scale[..., i])
    return scale


def _perron(positive: Array) -> Array:
    values, vectors = np.linalg.eig(positive)
    first = values.real.argmax(axis=-1)
    picked: Array = np.abs(np.take_along_axis(vectors, first[..., None, None], axis=-1)[..., 0])
    return np.maximum(picked, 1e-12)


def _norm(matrix: Any) -> Array:
    if 0 in matrix.shape[-2:]:
        return np.zeros(matrix.shape[:-2])
    return np.asarray(np.linalg.svd(matrix, compute_uv=False)[..., 0], dtype=np.float64)


def stacked(T: ComplexArray, gamma: float | Array) -> Array:
    """[Re T, −γ Im T; Im T / γ, Re T]."""
    top = np.concatenate([T.real, -gamma * T.imag], axis=-1)
    bottom = np.concatenate([T.imag / gamma, T.real], axis=-1)
    return np.concatenate([top, bottom], axis=-2)


def _second(T: ComplexArray, gamma: float | Array) -> Array:
    return np.asarray(np.linalg.svd(stacked(T, gamma), compute_uv=False)[..., 1], dtype=np.float64)


def _gain(structure: Structure, theta: float) -> float:
    T = structure.transfer(np.array([np.exp(1j * theta)]))
    left, right = scalings(structure, T)
    return float(_norm(left[..., :, None] * T / right[..., None, :])[0])


def _real_gain(structure: Structure, theta: float) -> float:
    if theta in (0.0, np.pi):
        return float(_norm(structure.transfer(np.array([np.cos(theta) + 0j])))[0])
    return lowest_second(structure.transfer(np.array([np.exp(1j * theta)]))[0])[0]


def lowest_second(T: ComplexArray) -> tuple[float, float]:
    """inf over γ of σ_2, and its γ; σ_2 has one valley in γ, which is found by golden section in ln γ."""
    return _golden(lambda log: float(_second(T, float(np.exp(log)))), np.log(1e-7), 0.0)


def _golden(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    ratio = (np.sqrt(5) - 1) / 2
    a, b = high - ratio * (high - low), low + ratio * (high - low)
    fa, fb = function(a), function(b)
    while high - low > 1e-9:
        if fa <= fb:
            high, b, fb = b, a, fa
            a = high - ratio * (high - low)
            fa = function(a)
        else:
            low, a, fa = a, b, fb
            b = low + ratio * (high - low)
            fb = function(b)
    return min((fa, float(np.exp(a))), (fb, float(np.exp(b))), (function(0.0), 1.0))
