"""Roots of det N(s) in a rectangle of the complex plane, with a certificate.

The number of roots inside a closed curve is how often det N(s) turns around zero along it (argument principle).
Rectangles are cut until each holds one root; the curve then also gives its place, (1/2πi) ∮ s d log f, which Newton's
method refines. What is returned has been counted: a root found twice or lost raises an error instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from cosimo.core.arrays import ComplexArray
from cosimo.core.errors import ConfigurationError

Matrix = Callable[[ComplexArray], ComplexArray]
TURN = 0.6
"""Largest change of phase between neighbouring points (radians) that counts as resolved."""
DEPTH = 40
NEWTON = 60


@dataclass(frozen=True)
class Region:
    """The rectangle left ≤ Re s ≤ right, bottom ≤ Im s ≤ top."""

    left: float
    right: float
    bottom: float
    top: float

    def __post_init__(self) -> None:
        if not (self.left < self.right and self.bottom < self.top):
            raise ConfigurationError("a region needs left < right and bottom < top.")

    @property
    def corners(self) -> ComplexArray:
        """The corners against the clock, the first one again at the end."""
        low, high = 1j * self.bottom, 1j * self.top
        return np.array([self.left + low, self.right + low, self.right + high, self.left + high, self.left + low])

    def halves(self) -> tuple[Region, Region]:
        """Cut across the longer side, a little off the middle (roots like to lie on axes of symmetry)."""
        if self.right - self.left > self.top - self.bottom:
            cut = self.left + 0.5123 * (self.right - self.left)
            return Region(self.left, cut, self.bottom, self.top), Region(cut, self.right, self.bottom, self.top)
        cut = self.bottom + 0.5123 * (self.top - self.bottom)
        return Region(self.left, self.right, self.bottom, cut), Region(self.left, self.right, cut, self.top)


class _LogDeterminant:
    """log det N(s) along curves, refined where its phase turns quickly."""

    def __init__(self, matrix: Matrix, spacing: float) -> None:
        self._matrix, self._spacing = matrix, spacing

    def along(self, region: Region) -> tuple[ComplexArray, ComplexArray]:
        """Points around the region, and the increments of log det between neighbours."""
        corners = region.corners
        sides = []
        for a, b in pairwise(corners):
            parts = max(8, int(np.ceil(abs(b - a) / self._spacing)))
            sides.append(a + (b - a) * np.arange(parts) / parts)
        points = np.append(np.concatenate(sides), corners[0])
        sign, size = np.linalg.slogdet(self._matrix(points))
        for _ in range(DEPTH):
            turn = np.angle(sign[1:] / sign[:-1])
            coarse = np.flatnonzero(np.abs(turn) > TURN)
            if not len(coarse):
                return points, (size[1:] - size[:-1]) + 1j * turn
            middle = (points[coarse] + points[coarse + 1]) / 2
            new_sign, new_size = np.linalg.slogdet(self._matrix(middle))
            points = np.insert(points, coarse + 1, middle)
            sign, size = np.insert(sign, coarse + 1, new_sign), np.insert(size, coarse + 1, new_size)
        raise ConfigurationError("a root lies on the edge of the region; move the edge a little.")


def count_roots(matrix: Matrix, region: Region, *, spacing: float) -> int:
    """How many roots of det N(s) lie in the region, by the argument principle.

    `spacing` is a distance over which the phase of det N(s) cannot turn by more than half a circle away from roots.
    """
    _, increments = _LogDeterminant(matrix, spacing).along(region)
    return round(float(increments.imag.sum()) / (2 * np.pi))


def roots_in(matrix: Matrix, region: Region, *, spacing: float) -> ComplexArray:
    """All roots of det N(s) in the region, sorted by real part, rightmost first; multiple ones repeated."""
    curve = _LogDeterminant(matrix, spacing)
    pending, found = [(region, 0)], []
    total = count_roots(matrix, region, spacing=spacing)
    while pending:
        part, depth = pending.pop()
        points, increments = curve.along(part)
        count = round(float(increments.imag.sum()) / (2 * np.pi))
        if count < 0:
            raise ConfigurationError("the determinant has poles in the region: an algebraic loop closes there.")
        if count == 0:
            continue
        if count > 1 and depth < DEPTH:
            pending += [(half, depth + 1) for half in part.halves()]
            continue
        middles = (points[1:] + points[:-1]) / 2
        guess = complex((middles * increments).sum() / (2j * np.pi)) / count
        root = _newton(matrix, guess)
        inside = part.left <= root.real <= part.right and part.bottom <= root.imag <= part.top
        if not inside and depth < DEPTH:
            pending += [(half, depth + 1) for half in part.halves()]
            continue
        found += [root] * count
    if len(found) != total:
        raise ConfigurationError(f"{len(found)} roots were found where {total} were counted; choose another region.")
    return np.array(sorted(found, key=lambda s: (-s.real, s.imag)), dtype=complex)


def _newton(matrix: Matrix, s: complex) -> complex:
    """Newton's method on det N(s): the step is 1 / tr(N⁻¹ N')."""
    for _ in range(50):
        shift = 1e-6 * max(1.0, abs(s))
        before, here, after = matrix(np.array([s - shift, s, s + shift]))
        slope = (after - before) / (2 * shift)
        try:
            step = 1 / complex(np.trace(np.linalg.solve(here, slope)))
        except (np.linalg.LinAlgError, ZeroDivisionError):
            return s
        s -= step
        if abs(step) <= 1e-13 * max(1.0, abs(s)):
            break
    return s


def refine_pair(matrix: Matrix, s: complex, shape: ComplexArray) -> tuple[complex, ComplexArray]:
    """Newton's method on N(s) v = 0 with v normalised against its first guess: the root and shape near (s, shape)."""
    v = shape / np.linalg.norm(shape)
    fixed = v.conj()
    for _ in range(NEWTON):
        shift = 1e-6 * max(1.0, abs(s))
        before, here, after = matrix(np.array([s - shift, s, s + shift]))
        slope = (after - before) / (2 * shift)
        system = np.block([[here, (slope @ v)[:, None]], [fixed[None, :], np.zeros((1, 1))]])
        change = np.linalg.solve(system, -np.append(here @ v, fixed @ v - 1))
        v, s = v + change[:-1], s + complex(change[-1])
        if abs(change[-1]) <= 1e-13 * max(1.0, abs(s)):
            break
    return s, v
