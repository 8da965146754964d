"""The continuous model that has the identified one-step map: the logarithm of its zero-order hold.

    log [A_d B_d; 0 I] / h = [A B; 0 0]      for the input held over the step

It exists and is real if A_d has no eigenvalue on the negative real axis (nor 0). Modes that are gone after one step,
|z| below e^−25, have no logarithm worth the name: they become lags of rate 25 / h with the same steady state, fast
enough to be instantaneous and slow enough to be numbers. An eigenvalue far round the circle may be the alias of a
faster one; that no data at this step can tell, so it is reported.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.unit import LinearModel

FAST = 25.0
"""A mode that decays by e^−FAST within one step counts as instantaneous."""
BARELY = 1e-3
"""A remainder so small and not positive is taken for instantaneous too: its sign is within what can be identified."""
FEW = np.pi / 2
"""Angle of an eigenvalue from which there are fewer than four steps per period."""


@dataclass(frozen=True)
class Continuous:
    """The model, or None, and what is to be said about it."""

    model: LinearModel | None
    notes: tuple[str, ...] = ()


def continuous_model(A: Array, B: Array, C: Array, D: Array, step: float) -> Continuous:
    """A continuous model of the one-step map A, B (n, m) with outputs C, D."""
    n, m = B.shape
    T, slow = _split(A)
    inverse = np.linalg.inv(T)
    blocks, entry = inverse @ A @ T, inverse @ B
    kept = blocks[:slow, :slow]
    values: ComplexArray = np.linalg.eigvals(kept).astype(complex)
    negative = values[(values.real < 0) & (np.abs(values.imag) <= 1e-9 * np.abs(values))]
    if len(negative):
        return Continuous(
            None,
            (
                f"no continuous model has this one-step map: its eigenvalue {negative[0].real:.6g} is negative, as of "
                f"a solver at the edge of its stability; use a shorter step",
            ),
        )
    generator = np.zeros((n, n + m))
    whole = np.zeros((slow + m, slow + m))
    whole[:slow] = np.hstack([kept, entry[:slow]])
    whole[slow:, slow:] = np.eye(m)
    logarithm = _logarithm(whole)
    if not (np.abs(np.imag(logarithm)) <= 1e-8 * max(1.0, float(np.abs(logarithm).max(initial=0.0)))).all():
        return Continuous(None, ("the one-step map has no real logarithm; use a shorter step",))
    generator[:slow, :slow] = logarithm.real[:slow, :slow] / step
    generator[:slow, n:] = logarithm.real[:slow, slow:] / step
    gone = n - slow
    settled = np.linalg.solve(np.eye(gone) - blocks[slow:, slow:], entry[slow:])
    generator[slow:, slow:n] = -FAST / step * np.eye(gone)
    generator[slow:, n:] = FAST / step * settled
    model = LinearModel(T @ generator[:, :n] @ inverse, T @ generator[:, n:], C, D)
    return Continuous(model, _notes(values, gone, whole, logarithm))


def _logarithm(matrix: Array) -> Array | ComplexArray:
    """log of a matrix whose rows may be in very different units of measure: balanced first."""
    import scipy.linalg

    if not matrix.size:
        return matrix
    balanced, scale = scipy.linalg.matrix_balance(matrix, permute=False)
    sizes = np.diag(scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # how accurate it is, is measured below
        found: Array | ComplexArray = scipy.linalg.logm(balanced)
    return sizes[:, None] * found / sizes


def _notes(values: ComplexArray, gone: int, whole: Array, logarithm: Array | ComplexArray) -> tuple[str, ...]:
    import scipy.linalg

    notes = []
    back = float(np.abs(scipy.linalg.expm(logarithm.real) - whole).max(initial=0.0))
    if back > 1e-6 * max(1.0, float(np.abs(whole).max(initial=0.0))):
        notes.append(f"the continuous model returns the one-step map only to {back:.1g}")
    angle = float(np.abs(np.angle(values)).max(initial=0.0))
    if angle > FEW:
        notes.append(
            f"the fastest oscillation has {2 * np.pi / angle:.1f} steps per period and may be an alias of a faster "
            f"one; the continuous model is to be trusted only at this step"
        )
    if gone:
        notes.append(f"{gone} mode(s) are gone after one step; in the continuous model they are instantaneous lags")
    return tuple(notes)


def _split(A: Array) -> tuple[Array, int]:
    """T with T⁻¹ A T block diagonal: first the modes that last, how many, then those gone after one step."""
    import scipy.linalg

    def lasts(real: float, imaginary: float) -> bool:
        size = np.hypot(real, imaginary)
        return bool(size > np.exp(-FAST) and (size > BARELY or real > 0))

    if all(lasts(z.real, z.imag) for z in np.linalg.eigvals(A)):
        return np.eye(len(A)), len(A)
    schur, Q, slow = scipy.linalg.schur(A, output="real", sort=lasts)
    decouple = np.eye(len(A))
    slower, faster, across = schur[:slow, :slow], schur[slow:, slow:], schur[:slow, slow:]
    decouple[:slow, slow:] = scipy.linalg.solve_sylvester(slower, -faster, -across)
    return Q @ decouple, int(slow)
