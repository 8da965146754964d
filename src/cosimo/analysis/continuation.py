"""Roots of a family of matrices N_θ(s), followed from θ = 0, where they are known, to θ = 1.

A root that is searched from far away may turn out to be another one. Here every step of θ is so short that each root
moves by less than half of its distance to the others; what started apart stays apart, and what started together (the
double pole of rigid motion) is parted by deflation: a root that is already found is divided out. Where a real root
meets another one, both leave the axis as a conjugate pair, and the upper one is followed; where a conjugate pair meets
on the axis, its right one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, overload

import numpy as np
import scipy.linalg

from cosimo.analysis.roots import Matrix, newton
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError

Pair = tuple[complex, ComplexArray]
"""A root s and its shape v, N(s) v = 0."""
NEWTON = 60
SHORTEST = 2.0**-16
TOGETHER = 1e-6
"""Roots nearer than this part of the largest one are taken as one multiple root."""


def upper_pairs(A: Array) -> list[Pair]:
    """Eigenvalues and shapes of A, of a conjugate pair the upper one, slowest first.

    The multiple eigenvalue 0 of rigid motion comes out of the computation as a little cloud; it is put back to 0.
    """
    values, shapes = np.linalg.eig(A)
    values = values.astype(complex)
    if len(values):
        balanced, _ = scipy.linalg.matrix_balance(A, permute=False)
        sizes = np.linalg.svd(balanced, compute_uv=False)
        if sizes[-1] <= 1e-12 * sizes[0]:
            values[np.abs(values) <= 1e-7 * np.abs(values).max()] = 0
    order = sorted((i for i in range(len(values)) if values[i].imag >= 0), key=lambda i: float(abs(values[i])))
    return [(complex(values[i]), shapes[:, i].astype(complex)) for i in order]


def follow(family: Callable[[float], Matrix], pairs: Sequence[Pair]) -> list[Pair]:
    """The roots and shapes of N_1 that those of N_0 turn into; an error where two meet off the real axis."""
    found, theta, step = list(pairs), 0.0, 1.0
    scale = max((abs(s) for s, _ in pairs), default=0.0)
    while theta < 1 and found:
        step = min(step, 1 - theta)
        with np.errstate(all="ignore"):  # a search that leaves the range of numbers has failed, and is made shorter
            moved = _moved(family(theta + step), found, scale)
        if moved is not None:
            found, theta, step = moved, theta + step, 2 * step
        elif step > SHORTEST:
            step /= 2
        else:
            with np.errstate(all="ignore"):
                found, theta = _moved(family(theta + step), found, scale, passing=True), theta + step
    return found


@overload
def _moved(matrix: Matrix, pairs: list[Pair], scale: float) -> list[Pair] | None: ...
@overload
def _moved(matrix: Matrix, pairs: list[Pair], scale: float, *, passing: Literal[True]) -> list[Pair]: ...
def _moved(matrix: Matrix, pairs: list[Pair], scale: float, *, passing: bool = False) -> list[Pair] | None:
    """All roots at the next θ; None (`passing`: an error) where one moved too far to be sure, or two became one."""
    found: list[Pair] = []
    for number, (s, v) in enumerate(pairs):
        others = [other for i, (other, _) in enumerate(pairs) if i != number]
        apart = [abs(s - p) for other in others for p in {other, other.conjugate()} if abs(s - p) > TOGETHER * scale]
        if s.imag > TOGETHER * scale:
            apart.append(2 * s.imag)
        with_it = [f for (f, _), (before, _) in zip(found, pairs, strict=False) if abs(before - s) <= TOGETHER * scale]
        pair = _parted(matrix, s, v, with_it, scale) if with_it else refine_pair(matrix, s, v)
        if pair is None or abs(pair[0] - s) > min(apart, default=np.inf) / 2:
            if not passing:
                return None
            pair = _beyond(matrix, s, [f for f, _ in found])
            if pair is None:
                raise ConfigurationError(
                    f"the pole near {s:.4g} 1/s meets another one before the macro step is reached, so that none can "
                    f"be called the successor of a monolithic one; look at all roots in a region, or shorten the step."
                )
        found.append(pair)
    return found


def _beyond(matrix: Matrix, s: complex, known: list[complex]) -> Pair | None:
    """The root into which s turns where two roots have just met on the real axis; None where they met elsewhere."""
    near = 0.1 * abs(s)
    if abs(s.imag) > near:
        return None
    right = () if s.imag == 0 else (complex(s.real + 0.02 * abs(s)), complex(s.real))
    for start in (s.real + 0.02j * abs(s), *right):
        root = newton(matrix, start)
        shape = _null_vector(matrix, root)
        fresh = all(abs(root - other) > TOGETHER * abs(s) for other in known)
        if abs(root - s) <= near and fresh and shape is not None:
            return (root, shape) if root.imag >= 0 else (root.conjugate(), shape.conj())
    return None


def _null_vector(matrix: Matrix, s: complex) -> ComplexArray | None:
    """v with N(s) v = 0; None where s is no root."""
    here = matrix(np.array([s]))[0]
    if not np.isfinite(here).all():
        return None
    _, sizes, rows = np.linalg.svd(here)
    found: ComplexArray = rows[-1].conj()
    return found if sizes[-1] <= 1e-8 * sizes[0] else None


def _parted(matrix: Matrix, s: complex, v: ComplexArray, known: list[complex], scale: float) -> Pair | None:
    """The root near s that is not among the known ones, unless they are multiple."""
    near = refine_pair(matrix, s, v)
    if near is not None and min(abs(near[0] - other) for other in known) > TOGETHER * scale:
        return near
    here = matrix(np.array([s]))[0]
    sizes = np.linalg.svd(here, compute_uv=False)
    if len(sizes) > 1 and sizes[-2] <= 1e-13 * sizes[0] and np.linalg.norm(here @ v) <= 1e-13 * sizes[0]:
        return s, v  # several independent shapes: the unit is not touched by the coupling
    start = s + 1e-3 * max(scale, 1e-3) * (-1 + 0.3j)
    root = newton(matrix, start, tuple(known))
    if abs(root.imag) <= 1e-12 * max(1.0, abs(root)):
        root = complex(root.real)
    shape = _null_vector(matrix, root)
    return None if shape is None else (root, shape)


def refine_pair(matrix: Matrix, s: complex, shape: ComplexArray) -> Pair | None:
    """Newton's method on N(s) v = 0 with v normalised against its first guess: the root and shape near (s, shape)."""
    v = shape / np.linalg.norm(shape)
    fixed = v.conj()
    here = matrix(np.array([s]))[0]
    if np.linalg.norm(here @ v) <= 1e-15 * np.linalg.norm(here):
        return s, v
    for _ in range(NEWTON):
        shift = 1e-6 * max(1.0, abs(s))
        before, here, after = matrix(np.array([s - shift, s, s + shift]))
        slope = (after - before) / (2 * shift)
        system = np.block([[here, (slope @ v)[:, None]], [fixed[None, :], np.zeros((1, 1))]])
        right = -np.append(here @ v, fixed @ v - 1)
        try:
            change = np.linalg.solve(system, right)
        except np.linalg.LinAlgError:
            change = np.linalg.lstsq(system, right, rcond=1e-13)[0]
        v, s = v + change[:-1], s + complex(change[-1])
        if not np.isfinite(s):
            return None
        if abs(change[-1]) <= 1e-13 * max(1.0, abs(s)):
            return s, v
    here = matrix(np.array([s]))[0]
    solved = np.linalg.norm(here @ v) <= 1e-10 * np.linalg.norm(here) * np.linalg.norm(v)
    return (s, v) if solved else None
