"""Roots of det N(s) in a rectangle of the complex plane, with a certificate.

The number of roots inside a closed curve is how often det N(s) turns around zero along it (argument principle).
Rectangles are cut until each holds one root; the curve then also gives its place, (1/2πi) ∮ s d log f, which Newton's
method refines. Both sides of a cut use the same points, so that the counts of two halves always add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import scipy.linalg

from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError

Matrix = Callable[[ComplexArray], ComplexArray]
TURN = 1.0
"""Largest |d log det N| (radians) between neighbouring points that counts as resolved, by both ends' derivatives."""
PROBE = 1e-4
"""Length over which the derivative of log det N is formed, in parts of the spacing."""
REFINED = 40
SPLITS = 46
CUTS = (0.5123, 0.4711, 0.5537)
"""Where a rectangle is cut: a little off the middle (roots like to lie on axes of symmetry), or elsewhere."""


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
        if not np.isfinite([self.left, self.right, self.bottom, self.top]).all():
            raise ConfigurationError("the edges of a region must be finite numbers.")

    def __contains__(self, s: complex) -> bool:
        return self.left <= s.real <= self.right and self.bottom <= s.imag <= self.top


class _EdgeError(Exception):
    """A root lies on a line along which log det N was wanted."""


class _Line(NamedTuple):
    """Points on a straight line, derivatives of log det N there along it, and its increments between neighbours."""

    points: ComplexArray
    slopes: ComplexArray
    increments: ComplexArray

    def reversed(self) -> _Line:
        return _Line(self.points[::-1], -self.slopes[::-1], -self.increments[::-1])


class _LogDeterminant:
    """log det N(s) along lines, with points as close as its derivative demands.

    Where |f'/f| ds < 1 at both ends of an interval, no root is near enough to be passed unseen: a root at distance d
    from the line contributes 1 / d to f'/f, and every one beside the interval counts.
    """

    def __init__(self, matrix: Matrix, spacing: float) -> None:
        self._matrix, self._spacing = matrix, spacing

    def between(self, a: complex, b: complex) -> _Line:
        parts = max(4, int(np.ceil(abs(b - a) / self._spacing)))
        points: ComplexArray = (a + (b - a) * np.arange(parts + 1) / parts).astype(np.complex128)
        points[-1] = b
        probe = PROBE * self._spacing * (b - a) / abs(b - a)
        sign, size, slopes = self._at(points, probe)
        for _ in range(REFINED):
            way = np.abs(np.diff(points)) / abs(probe)
            turn = np.angle(sign[1:] / sign[:-1])
            steep = np.maximum(np.abs(slopes[1:]), np.abs(slopes[:-1])) * way
            coarse = np.flatnonzero((np.abs(turn) > TURN) | ~(steep <= TURN))
            if not len(coarse):
                return _Line(points, slopes, np.diff(size) + 1j * turn)
            middle: ComplexArray = (points[coarse] + points[coarse + 1]) / 2
            new = self._at(middle, probe)
            points = np.insert(points, coarse + 1, middle)
            sign, size, slopes = (
                np.insert(old, coarse + 1, part) for old, part in zip((sign, size, slopes), new, strict=True)
            )
        raise _EdgeError

    def _at(self, points: ComplexArray, probe: complex) -> tuple[ComplexArray, ComplexArray, ComplexArray]:
        """Phase and log of the size of det N, and the change of log det N over the probe."""
        sign, size = np.linalg.slogdet(self._matrix(np.concatenate([points, points + probe])))
        if not np.isfinite(size).all():
            raise _EdgeError
        n = len(points)
        return sign[:n], size[:n].astype(complex), size[n:] - size[:n] + 1j * np.angle(sign[n:] / sign[:n])

    def split(self, line: _Line, at: complex) -> tuple[_Line, _Line]:
        """The line up to a point on it, and from there on."""
        where = int(np.searchsorted(np.abs(line.points - line.points[0]), abs(at - line.points[0]), side="left"))
        i = min(max(where - 1, 0), len(line.increments) - 1)
        before, after = self.between(line.points[i], at), self.between(at, line.points[i + 1])
        low, high = slice(0, i), slice(i + 1, None)
        return (
            _joined(_Line(line.points[: i + 1], line.slopes[: i + 1], line.increments[low]), before),
            _joined(after, _Line(line.points[i + 1 :], line.slopes[i + 1 :], line.increments[high])),
        )


def _joined(first: _Line, second: _Line) -> _Line:
    return _Line(*(np.concatenate([a, b[skip:]]) for a, b, skip in zip(first, second, (1, 1, 0), strict=True)))


@dataclass(frozen=True)
class _Part:
    """A rectangle with its four sides against the clock: bottom, right, top, left."""

    region: Region
    sides: tuple[_Line, _Line, _Line, _Line]

    @property
    def count(self) -> int:
        turns = round(float(sum(side.increments.imag.sum() for side in self.sides)) / (2 * np.pi))
        if turns < 0:
            raise ConfigurationError(
                "the determinant has poles in the region: an algebraic loop closes there; avoid it."
            )
        return turns

    @property
    def centre(self) -> complex:
        """The mean of the roots inside, (1/2πi) ∮ s d log f / count."""
        moments = (((s.points[1:] + s.points[:-1]) / 2 * s.increments).sum() for s in self.sides)
        return complex(sum(moments)) / (2j * np.pi * self.count)

    def halves(self, curve: _LogDeterminant, cut: float) -> tuple[_Part, _Part]:
        """Cut across the longer side."""
        r, (bottom, right, top, left) = self.region, self.sides
        if r.right - r.left > r.top - r.bottom:
            x = r.left + cut * (r.right - r.left)
            low, high = complex(x, r.bottom), complex(x, r.top)
            middle = curve.between(low, high)
            (b1, b2), (t2, t1) = curve.split(bottom, low), curve.split(top, high)
            first = _Part(Region(r.left, x, r.bottom, r.top), (b1, middle, t1, left))
            return first, _Part(Region(x, r.right, r.bottom, r.top), (b2, right, t2, middle.reversed()))
        y = r.bottom + cut * (r.top - r.bottom)
        low, high = complex(r.left, y), complex(r.right, y)
        middle = curve.between(low, high)
        (r1, r2), (l2, l1) = curve.split(right, high), curve.split(left, low)
        first = _Part(Region(r.left, r.right, r.bottom, y), (bottom, r1, middle.reversed(), l1))
        return first, _Part(Region(r.left, r.right, y, r.top), (middle, r2, top, l2))


def _whole(curve: _LogDeterminant, region: Region) -> _Part:
    a, b = complex(region.left, region.bottom), complex(region.right, region.bottom)
    c, d = complex(region.right, region.top), complex(region.left, region.top)
    try:
        return _Part(region, (curve.between(a, b), curve.between(b, c), curve.between(c, d), curve.between(d, a)))
    except _EdgeError:
        raise ConfigurationError("a root lies on the edge of the region; move the edge slightly.") from None


def roots_in(matrix: Matrix, region: Region, *, spacing: float) -> ComplexArray:
    """All roots of det N(s) in the region, sorted by real part, rightmost first; multiple ones repeated.

    `spacing` is where refinement starts: a distance over which det N(s) turns by a moderate angle away from roots.
    """
    curve = _LogDeterminant(matrix, spacing)
    pending, found = [(_whole(curve, region), 0)], []
    while pending:
        part, depth = pending.pop()
        count = part.count
        if count == 0:
            continue
        if count == 1:
            root = newton(matrix, part.centre)
            if root in part.region:
                found.append(root)
                continue
        halves = _cut(curve, part) if depth < SPLITS else None
        if halves is None:  # as small as can be told apart: a multiple root, or one on the edge
            found += [newton(matrix, part.centre)] * count
        else:
            pending += [(half, depth + 1) for half in halves]
    return np.array(sorted(found, key=lambda s: (-s.real, s.imag)), dtype=complex)


def _cut(curve: _LogDeterminant, part: _Part) -> tuple[_Part, _Part] | None:
    """Two halves; None where roots lie on every cut, so near together that rounding cannot part them."""
    for cut in CUTS:
        try:
            return part.halves(curve, cut)
        except _EdgeError:
            continue
    return None


def newton(matrix: Matrix, s: complex, known: tuple[complex, ...] = ()) -> complex:
    """Newton's method on det N(s) / Π (s − known): the step is 1 / (tr(N⁻¹ N') − Σ 1 / (s − known))."""
    for _ in range(50):
        shift = 1e-6 * max(1.0, abs(s))
        before, here, after = matrix(np.array([s - shift, s, s + shift]))
        slope = (after - before) / (2 * shift)
        try:
            step = 1 / (complex(np.trace(np.linalg.solve(here, slope))) - sum(1 / (s - other) for other in known))
        except (np.linalg.LinAlgError, ZeroDivisionError):
            return s
        s -= step
        if abs(step) <= 1e-13 * max(1.0, abs(s)):
            break
    return s


# ---- roots of a family of matrices N_θ(s), followed from θ = 0, where they are known, to θ = 1 -----------------------
# A root that is searched from far away may turn out to be another one. Here every step of θ is so short that each root
# moves by less than half of its distance to the others; what started apart stays apart, and what started together (the
# double pole of rigid motion) is parted by deflation: a root that is already found is divided out. Where a real root
# meets another one, both leave the axis as a conjugate pair, and the upper one is followed; where a conjugate pair
# meets on the axis, its right one.


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
        passing = False
        with np.errstate(all="ignore"):  # a search that leaves the range of numbers has failed, and is made shorter
            moved = _moved(family(theta + step), found, scale, passing=False)
            if moved is None and step <= SHORTEST:
                moved, passing = _moved(family(theta + step), found, scale, passing=True), True
        if moved is None:
            step /= 2
        else:
            found, theta, step = moved, theta + step, step if passing else 2 * step
    return found


def _moved(matrix: Matrix, pairs: list[Pair], scale: float, *, passing: bool) -> list[Pair] | None:
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
                    f"the pole near {s:.4g} 1/s merges with another one before the macro step is reached, so it "
                    "cannot be traced to one monolithic pole; look at all roots in a region, or shorten the step."
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
