"""What can be said of a large system without any full matrix: whether it stays bounded, and its slowest modes.

The eigenvalues of a chain of thousand units lie so close together in size that no iteration separates the largest, and
what an iteration did not converge to is no statement. Whether all of them lie inside the unit circle can be proved all
the same. A Möbius map B = (Φ − a I)(I − a Φ)⁻¹ with 0 ≤ a < 1 takes the inside of the circle to itself, and for every k

    ρ(B)^k ≤ ‖B^k‖ ≤ α √(2/π) max_j ‖B^k ω_j‖      but for a chance of α⁻ʳ, with r random columns ω_j

(Halko, Martinsson and Tropp, SIAM Review 53 (2011), Lemma 4.1): where some columns, led through k steps of B, have
become small enough, every eigenvalue of Φ lies inside the circle. As B = −I/a + (1/a − a)(I − a Φ)⁻¹, a step of B is
one solution of a sparse set of equations (`cosimo.algebra.sparse_step`); a is such that the middle of the frequencies
turns by a quarter in one step of B, so that what counts is the damping of the modes and not how short the macro step
is. The exact system is judged in the same way by its Cayley map (I + A τ/2)(I − A τ/2)⁻¹.

Where columns grow, they are nearly a sum of growing modes: near the largest eigenvalue that Φ has among them, Arnoldi's
method on (Φ − σ I)⁻¹ finds one of Φ itself, and |μ| > 1 with a residual of rounding size is instability, as exact as
full matrices give it. Where neither is reached, nothing is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np

from cosimo.algebra.product import LinearSystem
from cosimo.analysis.spectrum import Mode, nearest_pole, pair_modes
from cosimo.analysis.stability import AT_REST, EXACTLY, NEAR_ONE, RIGID, Rest, balanced, count_rest, grows
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError

COLUMNS = 4
CHANCE = 1e4
"""α; with four columns the bound fails with a chance of 1e-16."""
WORK = 4e8
"""Numbers that a proof may solve for, all steps and columns together: some ten seconds."""
MOST_SOLUTIONS = 20_000
GROWN, PATIENT = 50.0, 512
"""Powers of e by which columns have grown, and steps after which it is asked whether they will ever become small."""
BLOCKS = 8
SLOWEST = 6
"""Modes that are shown."""
AT_MOST_REST = 48
"""Poles 0 that are looked for at most."""
NEARBY = 1e-5
"""Where poles near 0 are looked for, in parts of the fastest: not at 0 itself, where the equations may be singular."""
ROUNDS = 5
PRECISE = 1e-10
"""Relative residual of an eigenvalue that is believed."""

SMALL = 400
"""Rows up to which all eigenvalues are computed all the same."""
CLEARLY = 1e-7
"""How far outside the unit circle an eigenvalue lies that is no rounding, and no error of identification."""

QUOTIENTS = 8
"""Rayleigh quotients until an eigenvalue is exact: they converge with the third power of the error."""

Apply = Callable[[Array], Array]
Pair = tuple[complex, ComplexArray]
"""An eigenvalue and its vector."""


class Slow:
    """The invariant subspace of the eigenvalues of a map T that lie nearest to a number, by inverse iteration."""

    def __init__(self, product: Apply, inverse: Apply, size: int, count: int) -> None:
        columns = np.random.default_rng(0).standard_normal((size, min(count, size)))
        for _ in range(6):
            columns = np.linalg.qr(inverse(columns))[0]
        self._product, self.basis = product, columns
        self.inner: Array = columns.T @ product(columns)

    def first(self, count: int) -> Array:
        """An orthonormal basis of the part of the `count` smallest eigenvalues."""
        import scipy.linalg

        sizes = np.append(np.sort(np.abs(np.linalg.eigvals(self.inner))), math.inf)
        # Between the last of them, which rounding moved away from 0, and the next.
        limit = math.sqrt(max(float(sizes[count - 1]), 1e-300) * float(sizes[count]))
        _, vectors, found = scipy.linalg.schur(self.inner, output="complex", sort=lambda value: abs(value) <= limit)
        if found != count:
            raise ConfigurationError("modes at rest cannot be told from slow ones; compare runs at two step sizes.")
        # Real, as eigenvalues come in conjugate pairs.
        span = scipy.linalg.svd(np.hstack([vectors[:, :count].real, vectors[:, :count].imag]))[0][:, :count]
        part: Array = self.basis @ span
        moved = self._product(part)
        if np.linalg.norm(moved - part @ (part.T @ moved)) > 1e-8 * max(1e-300, float(np.linalg.norm(self.inner))):
            raise ConfigurationError("modes at rest cannot be told from slow ones; compare runs at two step sizes.")
        return part


class LargePoles:
    """The poles of ẋ = A x, A sparse (n, n): the slowest, the fastest, how many are 0, and whether it grows."""

    def __init__(self, A: Any) -> None:
        self.A, self.scale = balanced(A)
        self.size = A.shape[0]

    @cached_property
    def fastest(self) -> float:
        """|λ|max; where Arnoldi's method does not converge, the norm of A in balanced units, which is above it."""
        from scipy.sparse.linalg import norm

        found = largest(self.A.__matmul__, self.size, count=2, tolerance=1e-3)
        return float(np.abs(found).max()) if len(found) else float(norm(self.A, np.inf))

    def _inverse(self, shift: complex) -> Apply:
        import scipy.sparse as sp
        from scipy.sparse.linalg import splu

        solve: Apply = splu(sp.csc_array(self.A - shift * sp.eye_array(self.size))).solve
        return solve

    @cached_property
    def slowest(self) -> tuple[ComplexArray, ComplexArray]:
        """The slowest pole that moves with those nearest to it, and their shapes (n, k)."""
        shift = NEARBY * self.fastest or 1.0
        some = nearest(self._inverse(shift), shift, self.size, 4 + self.rest.count, tolerance=1e-3)[0]
        # The modes of a long chain lie so close together that they are told apart from nearby only.
        near = complex(some[np.argsort(np.abs(some))[self.rest.count]])
        for _ in range(ROUNDS):
            near = complex(near.real, abs(near.imag)) * (1 + 1e-6j)
            values, vectors = nearest(self._inverse(near), near, self.size, 2 * SLOWEST)
            moving = values[np.abs(values) > RIGID * self.fastest]
            slowest = complex(moving[np.abs(moving).argmin()]) if len(moving) else near
            if abs(slowest) >= abs(near) * (1 - 1e-5):
                break
            near = slowest
        return values, vectors * self.scale[:, None]

    @cached_property
    def _slow(self) -> tuple[Rest, Slow | None]:
        inverse = self._inverse(-NEARBY * self.fastest or -1.0)
        count = 6
        while count < AT_MOST_REST:
            slow = Slow(self.A.__matmul__, inverse, self.size, count)
            found = count_rest(slow.inner, AT_REST * self.fastest, len(slow.inner))
            if found.count < len(slow.inner) or len(slow.inner) == self.size:
                return found, slow
            count *= 2
        raise ConfigurationError(f"more than {AT_MOST_REST // 2} modes are at rest; compare runs at two step sizes.")

    @property
    def rest(self) -> Rest:
        """The poles 0."""
        return self._slow[0]

    @cached_property
    def extremes(self) -> ComplexArray:
        """The slowest poles and one that is as fast as the fastest: what a horizon and a range of steps follow from."""
        slow = self._moving
        turning = bool((np.abs(slow.imag) > RIGID * self.fastest).any())
        return np.append(slow, 1j * self.fastest if turning else -self.fastest)

    @property
    def middle(self) -> float:
        """The geometric mean of the slowest and the fastest |λ| that moves."""
        return math.sqrt(float(np.abs(self._moving).min(initial=self.fastest)) * self.fastest) or 1.0

    @property
    def _moving(self) -> ComplexArray:
        """The slowest poles without those that are 0 but for rounding."""
        values = self.slowest[0]
        return values[np.abs(values) > RIGID * self.fastest]

    @cached_property
    def grows(self) -> bool | None:
        """Whether the coupled system grows by itself; None where neither was shown."""
        try:
            return self._grows()
        except ConfigurationError:
            return None

    def _grows(self) -> bool | None:
        if grows(self.extremes):
            return True
        tau = 2 / self.middle
        inverse = self._inverse(2 / tau)
        rest = self._slow[1].first(self.rest.count) if self._slow[1] and self.rest.count else None
        # (I + A τ/2)(I − A τ/2)⁻¹ = −I − (4/τ) (A − 2/τ)⁻¹
        fades, columns, _ = decays(lambda x: -x - (4 / tau) * inverse(x), self.size, self.size, rest)
        if fades:
            return False
        for near, _ in growing_values(lambda x: _without(rest, self.A @ x), columns, np.real):
            found = nearest(self._inverse(near), near, self.size, 4, partly=True)[0]
            if self.rest.count:  # multiple poles 0, which rounding drives apart, grow no faster than time
                found = found[np.abs(found) > NEAR_ONE * self.fastest]
            if grows(np.append(found, -self.fastest)):
                return True
        return None


class LargeSpectrum:
    """Φ of a large system under a master; `poles` are those of its coupled system, which all masters share."""

    def __init__(self, linear: LinearSystem, poles: LargePoles) -> None:
        self.linear, self.poles, self.step = linear, poles, linear.master.step
        self._whole = linear.sparse_step
        self._map = self._whole.restricted(self._whole.carried)
        self.size = self._map.size

    @cached_property
    def _resting(self) -> Array | None:
        """A basis of the motion with eigenvalues 1, of modes at rest."""
        rest = self.poles.rest
        if not rest.count:
            return None
        inverse = self._map.inverse(1 + NEARBY)
        slow = Slow(lambda x: self._map.product(x) - x, inverse, self.size, rest.count + 2)
        tolerance = EXACTLY * max(1.0, float(np.linalg.norm(slow.inner, 2))) + 10 * rest.spread * self.step
        found = count_rest(slow.inner, tolerance, rest.count)
        try:
            return slow.first(found.count) if found.count else None
        except ConfigurationError:
            return None  # nothing is left out then: that it fades cannot be shown, that it grows can

    @cached_property
    def _turning(self) -> Apply:
        """B, by which the middle of the frequencies turns by a quarter."""
        turn = self.step * self.poles.middle
        a = max(math.tan(math.pi / 4 - turn / 2), 0.0) if turn < math.pi / 2 else 0.0
        apply: Apply = self._map.product
        if a > 0.01:
            inverse, factor = self._map.inverse(1 / a), (1 / a - a) / a
            # (I − a Φ)⁻¹ = −(Φ − I/a)⁻¹ / a
            apply = lambda x: -x / a - factor * inverse(x)  # noqa: E731
        return apply

    @cached_property
    def _bounded(self) -> bool | None:
        """Whether all eigenvalues but those of modes at rest lie inside the unit circle."""
        return self.look(MOST_SOLUTIONS)[0]

    def look(self, most: int, *, columns: int = COLUMNS) -> tuple[bool | None, Pair | None]:
        """Whether that can be told after at most so many steps of B; and the mode outside where it does not.

        A look that is not patient gives up where the columns shrink: what grows does not show by then.
        """
        count = min(columns, self.size)
        fades, led, slope = decays(self._turning, self.size, self._whole.size, self._resting, most=most, count=count)
        if fades:
            return True, None
        outside = self._outside(led, thorough=most >= MOST_SOLUTIONS) if slope > 0 or most >= MOST_SOLUTIONS else None
        return None if outside is None else False, outside

    def _outside(self, columns: Array, *, thorough: bool) -> Pair | None:
        """A mode outside the unit circle, near one of those that columns which have grown consist of."""
        rest = self._resting
        moved = lambda x: _without(rest, self._map.product(x))  # noqa: E731
        for near, shape in growing_values(moved, columns, lambda mu: np.abs(mu) - 1):
            found = [self.followed(near, shape)]
            if thorough and (found[0] is None or abs(found[0][0]) <= 1 + CLEARLY):
                found = list(zip(*self._nearest(near), strict=True))
            for pair in found:
                if pair is not None and abs(pair[0]) > 1 + CLEARLY and self._moves(pair[0]):
                    return complex(pair[0]), pair[1]
        return None

    def _nearest(self, near: complex) -> tuple[ComplexArray, ComplexArray]:
        values, vectors = nearest(self._map.inverse(near), near, self.size, 4, partly=True)
        return values, vectors.T

    def _moves(self, mu: complex) -> bool:
        """Whether it is none of multiple eigenvalues 1, which rounding drives apart: they grow no faster than time."""
        return not self.poles.rest.count or abs(mu - 1) > NEAR_ONE

    def followed(self, near: complex, shape: ComplexArray) -> Pair | None:
        """The eigenvalue that a number and a shape (size,) lead to, by Rayleigh quotients; None where they do not."""
        mu, x = near, shape / np.linalg.norm(shape)
        for _ in range(QUOTIENTS):
            x = self._map.inverse(mu * (1 + 1e-13))(x)
            x = x / np.linalg.norm(x)
            moved = self._map.product(x.real) + 1j * self._map.product(x.imag)
            mu = complex(np.vdot(x, moved))
            if not np.isfinite(mu):
                return None
            if float(np.linalg.norm(moved - mu * x)) <= PRECISE * abs(mu):
                return mu, x
        return None

    def stays_bounded(self, *, identified: bool = False) -> bool | None:
        """Whether the master stays bounded; None where that was not shown."""
        try:
            return self._bounded
        except ConfigurationError:
            return None

    exact_radius: float | None = None
    """That of the exact system takes the pole of the largest real part, which no iteration finds among thousands."""

    def foreign(self) -> complex | None:
        """None: which modes the master adds is not looked for."""
        return None

    @cached_property
    def radius(self) -> float | None:
        """ρ(Φ) where Arnoldi's method converges to it; None otherwise."""
        found = largest(self._map.product, self.size, count=4, tolerance=PRECISE)
        return float(np.abs(found).max()) if len(found) else None

    def modes(self) -> tuple[Mode, ...]:
        """The slowest modes of the coupled system, each with its counterpart of nearly the same value and shape."""
        poles, shapes = self.poles.slowest
        order = np.argsort(np.abs(poles), kind="stable")
        poles, shapes = poles[order], shapes[:, order]
        own = np.flatnonzero(poles.imag >= 0)[:SLOWEST]
        shift = complex(np.exp(poles[own[len(own) // 2]] * self.step))
        # Those of a long chain lie so close together that a few are told apart only: each that is, is exact.
        mu, vectors = nearest(self._map.inverse(shift), shift, self.size, 2 * SLOWEST, partly=True, rounds=ROUNDS)
        if not len(mu):
            raise ConfigurationError("eigenvalues lie too close together to be told apart; compare runs at two steps.")
        z = np.zeros((self._whole.size, len(mu)), dtype=complex)
        z[self._whole.carried] = vectors
        states = np.asarray(self._whole.step(z)[self.linear.layout.indices("x")], dtype=complex)
        rows, columns, mac = pair_modes(poles[own], shapes[:, own], mu, states, self.step)
        return tuple(
            Mode(complex(poles[own[i]]), nearest_pole(complex(mu[j]), self.step, poles[own[i]]), float(mac[i, j]))
            for i, j in zip(rows, columns, strict=True)
            if mac[i, j] > 0.5  # a counterpart of another shape is none
        )


def decays(
    apply: Apply, size: int, cost: int, rest: Array | None, *, most: int = MOST_SOLUTIONS, count: int = COLUMNS
) -> tuple[bool, Array, float]:
    """Lead `count` random columns through the map B (size, size) until they show that it is bounded; where they are
    then; and by which power of e they grew per step, in the last half of them.

    `cost` is how many numbers one application solves for; `rest` (size, r) spans what is left out; at most so many
    steps are made. With fewer columns the bound is wider, so that the chance remains.
    """
    most = int(min(most, WORK / (count * cost)))
    columns = _without(rest, np.random.default_rng(0).standard_normal((size, count)))
    log, history, slack = 0.0, {0: 0.0}, COLUMNS / count * math.log(CHANCE) + math.log(math.sqrt(2 / math.pi))
    k = 0
    for k in range(8, most + 1, 8):
        for _ in range(8):
            columns = _without(rest, apply(columns))
        largest = float(np.linalg.norm(columns, axis=0).max(initial=0.0))
        if largest == 0.0 or not math.isfinite(largest):
            return largest == 0.0, columns, math.inf
        log, columns = log + math.log(largest), columns / largest
        history[k] = log
        if log + slack < 0:
            return True, columns, -math.inf
        if log > GROWN:
            break
        if k >= PATIENT and k & (k - 1) == 0:
            slope = (log - history[k // 2]) / (k / 2)
            if log + slope * (most - k) + slack > 0:
                break
    half = k // 16 * 8
    return False, columns, (log - history[half]) / max(k - half, 1)


def _without(rest: Array | None, x: Array) -> Array:
    return x if rest is None else x - rest @ (rest.T @ x)


def growing_values(product: Apply, columns: Array, excess: Callable[[ComplexArray], Array]) -> Iterator[Pair]:
    """Of the values with a positive `excess` that a map has on some columns, or their Krylov space, the likeliest, with
    their vectors there."""
    if not np.isfinite(columns).all():
        return
    Q = block = np.linalg.qr(columns)[0]
    for blocks in range(BLOCKS + 1):
        if blocks in (0, BLOCKS):
            moved = product(Q)
            values, vectors = np.linalg.eig(Q.T @ moved)
            residuals = np.linalg.norm(moved @ vectors - (Q @ vectors) * values, axis=0)
            outside = excess(values.astype(complex))
            if (outside > 0).any():
                for place in dict.fromkeys([np.where(outside > 0, residuals, math.inf).argmin(), outside.argmax()]):
                    yield complex(values[place]), (Q @ vectors[:, place]).astype(complex)
        block = product(block)
        block = np.linalg.qr(block - Q @ (Q.T @ block))[0]
        Q = np.hstack([Q, block])


def nearest(
    inverse: Apply,
    shift: complex,
    size: int,
    count: int,
    *,
    tolerance: float = PRECISE,
    partly: bool = False,
    rounds: int = 20,
) -> tuple[ComplexArray, ComplexArray]:
    """The eigenvalues of a map nearest to `shift`, and their vectors, by Arnoldi's method on its `inverse`.

    With `partly` those that it converges to in so many `rounds`, else all or an error.
    """
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, eigs

    kind = complex if isinstance(shift, complex) else float
    if count >= size - 1:  # too few for Arnoldi's method
        values, vectors = np.linalg.eig(np.array([inverse(one) for one in np.eye(size, dtype=kind)]).T)
        return np.asarray(shift + 1 / values), np.asarray(vectors)
    operator = LinearOperator((size, size), matvec=inverse, dtype=kind)
    start = np.random.default_rng(0).standard_normal(size).astype(kind)
    try:
        values, vectors = eigs(
            operator, k=count, ncv=min(max(4 * count, 48), size), v0=start, tol=tolerance, maxiter=rounds
        )
    except ArpackNoConvergence as some:
        if not partly:
            raise ConfigurationError(
                f"eigenvalues lie too close together to be told apart ({some}); compare runs at two step sizes."
            ) from None
        values, vectors = some.eigenvalues, some.eigenvectors
    except ArpackError as error:
        raise ConfigurationError(
            f"eigenvalues lie too close together to be told apart ({error}); compare runs at two step sizes."
        ) from None
    return np.asarray(shift + 1 / values), np.asarray(vectors)


def largest(product: Apply, size: int, *, count: int, tolerance: float) -> ComplexArray:
    """The largest eigenvalues of a map where Arnoldi's method converges to them, none where it does not."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    if size <= SMALL:
        return np.linalg.eigvals(product(np.eye(size))).astype(complex)
    operator = LinearOperator((size, size), matvec=product, dtype=float)
    start = np.random.default_rng(0).standard_normal(size)
    try:
        found = eigs(operator, k=count, ncv=32, v0=start, tol=tolerance, maxiter=30, return_eigenvectors=False)
    except ArpackError:  # also where only some have converged: these need not be the largest
        found = np.zeros(0)
    return np.asarray(found, dtype=complex)
