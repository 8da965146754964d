"""How much may be wrong before a stable master becomes unstable.

    r(Φ; E, F) = inf { ‖Δ‖ : ρ(Φ + E Δ F) ≥ 1 } = 1 / max over |z| = 1 of μ(F (zI − Φ)⁻¹ E)

With E = F = I this is the stability radius of glumac2018, Eq. 60 (Hinrichsen and Pritchard 2005): min σ_min(zI − Φ).
Its size depends on the coordinates of z, and on the step: over a long step a unit forgets its state, ρ falls, and the
radius rises with it, although the coupling has come closer to instability. Within one step size, and for errors of
the discrete map itself, it is the right measure. Masters of different step sizes are compared by `relative_radius`,
whose changes (units that are faster, respond more) mean the same whatever the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.robustness import Crossing, first_crossing, relative_radius
from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.tuning.uncertainty import Structure, parameter_structure, unit_structure

__all__ = [
    "Crossing",
    "Radius",
    "Structure",
    "first_crossing",
    "parameter_structure",
    "relative_radius",
    "stability_radius",
    "unit_structure",
]


@dataclass(frozen=True, eq=False)
class Radius:
    """A stability radius between two bounds.

    `lower`: no perturbation smaller than this makes ρ ≥ 1 (proven up to rounding). `value`: the norm of
    `perturbation`, which puts an eigenvalue at `point` on the unit circle. With one block both agree to the tolerance
    of the search; with several the truth lies between them. Both are 0 when ρ ≥ 1 already, infinite when nothing that
    Δ changes ever reaches the circle.
    """

    value: float
    lower: float
    point: complex
    perturbation: Any
    real: bool


def stability_radius(
    uncertain: Structure | LinearSystem | Any,
    *,
    real: bool = False,
    tolerance: float = 1e-4,
    evaluations: int = 100_000,
) -> Radius:
    """The smallest ‖Δ‖ (2-norm, the largest of all blocks) with ρ(Φ(Δ)) ≥ 1, Δ complex or (`real`) real.

    `uncertain`: a `Structure` (`unit_structure`, `parameter_structure`, `Structure.of`), or a matrix Φ or a
    `LinearSystem`, of which then everything is uncertain. Guaranteed: ρ < 1 for every Δ smaller than `lower`, by bounds
    on arcs that cover the circle (`largest_gain`), complex or real alike; `lower` is within `tolerance` of `value` for
    one block unless `evaluations` run out. A single real number δ is found by an eigenvalue problem
    instead, exact up to its rounding. Real radii exist here for one block only.

    >>> print(round(stability_radius([[0.5, 0.0], [0.0, -0.8]]).value, 6))  # normal: 1 − ρ
    0.2
    >>> print(round(stability_radius([[0.5, 10.0], [0.0, -0.8]]).value, 6))  # far from normal: much less
    0.029662
    >>> turn = 0.9 * np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> scalar = Structure.of(turn, E=[[0.0], [1.0]], F=[[1.0, 0.0]])
    >>> complex_, real = stability_radius(scalar), stability_radius(scalar, real=True)
    >>> print(round(complex_.value, 4), round(real.value, 4))  # det(I z − Φ) = z² + 0.81 − 0.9 δ
    0.2111 0.2111
    """
    structure = uncertain if isinstance(uncertain, Structure) else Structure.of(uncertain)
    if not tolerance > 0:
        raise ConfigurationError(f"the tolerance of a stability radius must be positive, not {tolerance}.")
    if np.abs(np.linalg.eigvals(structure.Phi)).max(initial=0.0) >= 1:
        return Radius(0.0, 0.0, complex(np.nan), np.zeros(structure.E.shape[::-1]), real)
    if real:
        if len(structure.blocks) > 1:
            raise ConfigurationError(
                "a real stability radius is computed for one uncertain block; use the complex one as a lower bound, or "
                "first_crossing for named parameters."
            )
        return _real_radius(structure, tolerance, evaluations)
    gain, z, bound = largest_gain(structure, real=False, tolerance=tolerance, evaluations=evaluations)
    if gain == 0:
        return Radius(np.inf, np.inf, z, None, real)
    Delta = _complex_perturbation(structure, z)
    return Radius(float(np.linalg.norm(Delta, 2)), 1 / bound, z, Delta, real)


def _complex_perturbation(structure: Structure, z: complex) -> ComplexArray:
    """Δ with det(I − Δ T(z)) = 0: blocks of rank one along the vectors that a power iteration for μ settles on."""
    T = structure.transfer(np.array([z]))[0]
    left, right = (scale[0] for scale in scalings(structure, T[None]))
    b = np.linalg.svd(left[:, None] * T / right)[2][0].conj() / right
    best: ComplexArray = np.full(T.shape[::-1], np.inf, dtype=complex)
    smallest = np.inf
    for _ in range(1 if len(structure.blocks) == 1 else 60):
        a = T @ b
        Q = np.zeros_like(best)
        for i, j in structure.places:
            size = np.linalg.norm(b[i]) * np.linalg.norm(a[j])
            if size > 0:
                Q[i, j] = np.outer(b[i], a[j].conj()) / size
        values = np.linalg.eigvals(Q @ T)
        turned = values[np.abs(values).argmax()]
        if abs(turned) > 0 and 1 / abs(turned) < smallest:
            smallest, best = 1 / abs(turned), Q / turned
        # a = T b turned into blocks of b's sizes, w = Tᴴ of that, b in turn of a's.
        w = T.conj().T @ _resized(a, b, [(j, i) for i, j in structure.places])
        b = _resized(w, a, structure.places)
        b /= max(float(np.linalg.norm(b)), 1e-300)
    return best


def _resized(vector: ComplexArray, like: ComplexArray, places: Sequence[tuple[slice, slice]]) -> ComplexArray:
    """With every block as large as its counterpart in another vector."""
    found = vector.copy()
    for own, other in places:
        found[own] *= np.linalg.norm(like[other]) / max(float(np.linalg.norm(vector[own])), 1e-300)
    return found


# Real perturbations.


def _real_radius(structure: Structure, tolerance: float, evaluations: int) -> Radius:
    """On as few numbers as possible: Δ = P Δ' Qᵀ with orthonormal columns, of the same norm."""
    Q, P = (
        _basis(np.hstack([one, other])) for one, other in ((structure.F, structure.H), (structure.E.T, structure.H.T))
    )
    E, F, H = structure.E @ P, Q.T @ structure.F, Q.T @ structure.H @ P
    small = Structure(structure.Phi, E, F, H, (H.shape[::-1],))
    if 0 in H.shape:
        return Radius(np.inf, np.inf, complex(np.nan), None, True)
    if H.shape == (1, 1):
        delta, z = _scalar(small)
        value = abs(delta)
        return Radius(value, value * (1 - 1e-9), z, None if np.isinf(delta) else delta * P @ Q.T, True)
    gain, z, bound = largest_gain(small, real=True, tolerance=tolerance, evaluations=evaluations)
    if gain == 0:
        return Radius(np.inf, np.inf, z, None, True)
    Delta = P @ _real_perturbation(small, z) @ Q.T
    return Radius(float(np.linalg.norm(Delta, 2)), 1 / bound, z, Delta, True)


def _basis(matrix: Any) -> Any:
    """Orthonormal columns that span those of a matrix."""
    U, sizes, _ = np.linalg.svd(matrix, full_matrices=False)
    return U[:, sizes > 1e-13 * sizes.max(initial=0.0)]


def _scalar(structure: Structure) -> tuple[float, complex]:
    """One real number δ: the smallest with 1 = δ T(z) on the circle, which needs T(z) = T(1/z), real.

    The z with T(z) − T(1/z) = 0 are eigenvalues of a pencil of size 2 n + 1 (T(1/z) = H + z F (I − z Φ)⁻¹ E).
    """
    import scipy.linalg

    Phi, E, F, n = structure.Phi, structure.E, structure.F, len(structure.Phi)
    right = scipy.linalg.block_diag(Phi, np.eye(n), 0.0)
    left = scipy.linalg.block_diag(np.eye(n), Phi, 0.0)
    right[:n, -1:], left[n:-1, -1:] = E, E
    right[-1:, :n], right[-1:, n:-1] = F, -F
    with np.errstate(divide="ignore", invalid="ignore"):
        values = scipy.linalg.eigvals(right, left)
    angles = np.angle(values[np.isfinite(values) & (np.abs(np.abs(values) - 1) < 1e-3)])
    best, where = np.inf, complex(np.nan)
    for z in np.exp(1j * np.concatenate([[0.0, np.pi], angles])):
        T = structure.transfer(np.array([z]))[0, 0, 0]
        if T.real == 0 or abs(1 / T.real) >= abs(best):
            continue
        delta = 1 / T.real
        # Candidates that are not on the circle after all, or where T is not real, leave ρ below 1.
        if np.abs(np.linalg.eigvals(structure.perturbed(np.array([[delta]])))).max() >= 1 - 1e-9:
            best, where = delta, complex(z)
    return best, where


def _real_perturbation(structure: Structure, z: complex) -> Any:
    """The smallest real Δ found with Δ T w = w for some complex w: from the second singular vectors at the best γ.

    Where σ_2 is a double singular value at the best γ, w is searched in the plane of its vectors.
    """
    T = structure.transfer(np.array([z]))[0]
    if z.imag == 0:
        U, S, V = np.linalg.svd(T.real)
        return np.outer(V[0], U[:, 0]) / S[0]
    gamma = _lowest_second(T)[1]
    V = np.linalg.svd(_stacked(T, gamma))[2]
    q = T.shape[1]

    def fitted(v: Any) -> Any:
        w = v[:q] + 1j * gamma * v[q:]
        target = T @ w
        return np.column_stack([w.real, w.imag]) @ np.linalg.pinv(np.column_stack([target.real, target.imag]))

    def size(v: Any) -> float:
        Delta = fitted(v)
        moved = np.abs(np.linalg.eigvals(structure.perturbed(Delta))).max()
        return float(np.linalg.norm(Delta, 2)) if moved > 1 - 1e-9 else np.inf

    tries = [V[1]]
    for other in (0, 2):
        if other < len(V):
            tries += [np.cos(t) * V[1] + np.sin(t) * V[other] for t in np.linspace(0, np.pi, 181)]
    return fitted(min(tries, key=size))


# ---- the largest gain of T(z) = H + F (zI − Φ)⁻¹ E over the unit circle, with a proof: arcs are bounded and halved ---
# With R = (zI − Φ)⁻¹ at the middle of an arc, and z' on the arc at most d = 2 sin(a/2) away (a: half its angle),
#
#     T(z') − T(z) = (z − z') F R(z') R(z) E,        ‖R(z') E‖ ≤ ‖R E‖ / (1 − d ‖R‖)        if d ‖R‖ < 1
#
# so that every gain on the arc is at most that in the middle plus ε = d ‖F R‖ ‖R E‖ / (1 − d ‖R‖). For E = F = I this
# is the statement that σ_min(zI − Φ) changes by no more than |z − z'|. The gain is
#
#     complex Δ   σ_max(D T D⁻¹), with the scaling D of the blocks chosen anew on every arc (1 for one block)
#     real Δ      inf over γ in (0, 1] of σ_2([Re T, −γ Im T; Im T / γ, Re T])           (Qiu et al. 1995, one block)
#
# where for the second the bound on an arc is σ_2 + ε / γ, whatever γ. All matrices are real: half the circle is enough.


GAMMAS = np.geomspace(1e-3, 1.0, 9)
"""Where the valley of σ_2 in γ is looked for, before it is narrowed."""
WORK = 4_000_000
"""Complex numbers held at once while arcs are evaluated."""


def largest_gain(
    structure: Structure, *, real: bool, tolerance: float, evaluations: int
) -> tuple[float, complex, float]:
    """The largest gain found, its z, and what no gain on the circle exceeds, by branch and bound.

    The last ends within `tolerance` of the first, or where `evaluations` ran out, farther away.
    """
    from scipy.optimize import minimize_scalar

    gain_at = partial(_gain, structure, real=real)

    def refined(theta: float, half: float) -> tuple[float, float]:
        ends = (max(theta - half, 0.0), min(theta + half, np.pi))
        found = minimize_scalar(lambda t: -gain_at(t), bounds=ends, method="bounded", options={"xatol": 1e-13})
        return max((-float(found.fun), float(found.x)), (gain_at(theta), theta))

    # Real z are singled out: there a real Δ need not move a pair of eigenvalues, and the gain may jump.
    best, where = max((gain_at(t), t) for t in (0.0, np.pi))
    theta, half = np.pi * (np.arange(32) + 0.5) / 32, np.pi / 64
    spent, bound = 0, best
    size = max(1, WORK // max(1, len(structure.Phi) ** 2 * (8 if real else 3)))
    while len(theta):
        parts = [_arcs(structure, theta[i : i + size], half, real) for i in range(0, len(theta), size)]
        gains, bounds = (np.concatenate(part) for part in zip(*parts, strict=True))
        spent += len(theta)
        top = int(gains.argmax())
        if gains[top] > best * (1 + tolerance / 10):
            best, where = max((best, where), refined(float(theta[top]), half))
        open_ = bounds > best * (1 + tolerance)
        if spent + 2 * int(open_.sum()) > evaluations or half < 1e-15:
            bound = max(bound, float(bounds[open_].max(initial=0.0)))
            break
        theta, half = (theta[open_][:, None] + np.array([-half / 2, half / 2])).ravel(), half / 2
    return best, complex(np.exp(1j * where)), max(bound, best * (1 + tolerance))


def _arcs(structure: Structure, theta: Array, half: float, real: bool) -> tuple[Array, Array]:
    """Gains in the middle of arcs, and bounds of the gain on them."""
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
    if real:
        return _real_arcs(T, growth)
    gain = _norm(T)
    return gain, gain + growth


def _real_arcs(T: ComplexArray, growth: Array) -> tuple[Array, Array]:
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
    return gain, bound


def scalings(structure: Structure, T: ComplexArray) -> tuple[Array, Array]:
    """Factors per row and per column of T that lower σ_max(D T D⁻¹): Perron's of the norms of the blocks of T.

    Any positive scaling is allowed, as Δ is diagonal in blocks; this one brings σ_max to at most the Perron root.
    """
    columns, rows = zip(*structure.blocks, strict=True)
    lead = T.shape[:-2]
    if len(rows) == 1:
        return np.ones((*lead, sum(rows))), np.ones((*lead, sum(columns)))
    places = structure.places
    norms = np.moveaxis(np.array([[_norm(T[..., j, i]) for i, _ in places] for _, j in places]), (0, 1), (-2, -1))
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


def _stacked(T: ComplexArray, gamma: float | Array) -> Array:
    """[Re T, −γ Im T; Im T / γ, Re T]."""
    top = np.concatenate([T.real, -gamma * T.imag], axis=-1)
    bottom = np.concatenate([T.imag / gamma, T.real], axis=-1)
    return np.concatenate([top, bottom], axis=-2)


def _second(T: ComplexArray, gamma: float | Array) -> Array:
    return np.asarray(np.linalg.svd(_stacked(T, gamma), compute_uv=False)[..., 1], dtype=np.float64)


def _gain(structure: Structure, theta: float, real: bool) -> float:
    if real and theta in (0.0, np.pi):
        return float(_norm(structure.transfer(np.array([np.cos(theta) + 0j])))[0])
    T = structure.transfer(np.array([np.exp(1j * theta)]))
    if real:
        return _lowest_second(T[0])[0]
    left, right = scalings(structure, T)
    return float(_norm(left[..., :, None] * T / right[..., None, :])[0])


def _lowest_second(T: ComplexArray) -> tuple[float, float]:
    """inf over γ of σ_2, and its γ; σ_2 has one valley in γ, which is looked for in ln γ."""
    from scipy.optimize import minimize_scalar

    found = minimize_scalar(
        lambda log: float(_second(T, float(np.exp(log)))),
        bounds=(np.log(1e-7), 0.0),
        method="bounded",
        options={"xatol": 1e-9},
    )
    return min((float(found.fun), float(np.exp(found.x))), (float(_second(T, 1.0)), 1.0))
