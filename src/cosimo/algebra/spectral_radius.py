"""The spectral radius of many small matrices at once: by squaring where that settles it, else by eigenvalues.

Φ is squared again and again, P = Φ^m / scale with m = 2^k and ½ ≤ ‖P‖_F ≤ 1, and each squaring is one product of
stacks. Two facts are read off P.

**The label.** With E a bound on the rounding so far, ‖P̂ − P‖_F ≤ E (it goes along: E ← (2E + E² + γ) / scale),

    (|tr P̂| − √n E) / n  ≤  ρ(P)  ≤  ‖P̂‖_F + E,

and sharper, from the certificate below. The m-th root makes these bounds tight. "Stable" or "unstable" is said only
where they exclude the limit; they hold for every matrix, defective or not.

**The value.** Once all but one or two eigenvalues have died away, P nearly satisfies the cubic of a matrix of rank 2,

    T = P³ − s P² + d P ≈ 0,    s = tr P,   d = (s² − tr P²) / 2,

and since every eigenvalue μ of P obeys |μ (μ² − s μ + d)| ≤ ‖T‖, each lies near 0 or near a root of μ² − s μ + d. So
ρ(P) is the larger modulus R of the two roots, up to a computed distance; the m-th root divides its relative error by
m. A gap of 1 % to the third eigenvalue is enough after twelve squarings.

Matrices that neither settles (three eigenvalues of one modulus, ill-conditioned ones) and all near the limit go to
the eigenvalue solver, so that a label never rests on an estimate.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from cosimo.algebra.backends import Backend, Stack
from cosimo.core import dataclass
from cosimo.core.arrays import Array, balancing
from cosimo.core.errors import ConfigurationError

Norm = Literal[1, 2]
"""Which induced norm: the largest column sum, or the largest singular value."""
CHECKS = (5, 6, 7, 8, 10, 12, 14, 16)
"""After how many squarings it is asked what is settled."""
PATIENCE = 7
"""How many squarings are made before giving up is thought of."""
NEAR = 1e-8
"""Relative distance to the limit below which only eigenvalues decide."""
UNIT = 2.0**-53
"""The unit of rounding."""
SAFETY = 16
"""By how much the estimate of the rounding in a value is raised."""
SLACK = 1e-12
"""What the logarithms of the scales may be wrong by, generously."""


@dataclass(frozen=True)
class Radii:
    """`value` ρ of every matrix (infinite where it has entries that are not finite), whether it is at most the limit,
    and how many needed the eigenvalue solver."""

    value: Any
    stable: Any
    solved: int = 0

    def part(self, part: slice) -> Radii:
        """Some of the matrices."""
        return Radii(self.value[part], self.stable[part])


def spectral_radii(stack: Stack, backend: Backend, *, accuracy: float = 1e-10, limit: float = 1.0) -> Radii:
    """ρ of a stack (n, n, N), to the relative `accuracy`, and whether ρ ≤ `limit`."""
    n, _, count = stack.shape
    if n == 0:
        return Radii(backend.zeros(count), backend.zeros(count) == 0, 0)
    if n > backend.squares_up_to or count < backend.squares_from or _hopeless(stack, backend):
        return _solved(stack, backend, limit)
    with backend.quiet():
        search = _Search(backend, stack, accuracy, float(np.log(limit)))
        search.square()
    return search.finish(stack, limit)


def spectral_radius(matrices: Array, *, accuracy: float = 1e-10, limit: float = 1.0) -> Array:
    """ρ of matrices (…, n, n) of the host.

    >>> spectral_radius(np.array([[[0.5, 1.0], [0.0, 0.25]], [[0.0, -2.0], [2.0, 0.0]]]))
    array([0.5, 2. ])
    """
    flat = matrices.reshape(int(np.prod(matrices.shape[:-2])), *matrices.shape[-2:])
    found = spectral_radii(np.ascontiguousarray(np.moveaxis(flat, 0, -1)), Backend(), accuracy=accuracy, limit=limit)
    value: Array = found.value
    return value.reshape(matrices.shape[:-2])


class _Search:
    """The matrices not settled yet: P (n, n, K), log ρ(Φ) = `level` + log ρ(P) / m, and who they are (`ids`)."""

    def __init__(self, backend: Backend, stack: Stack, accuracy: float, log_limit: float) -> None:
        self.backend, self.xp = backend, backend.xp
        self.n, _, count = stack.shape
        self.accuracy, self.log_limit, self.m = accuracy, log_limit, 1.0
        self.value, self.stable = backend.zeros(count), backend.zeros(count) > 0
        xp = self.xp
        largest = xp.amax(xp.abs(stack), (0, 1))
        finite = xp.isfinite(largest)
        self.value[~finite] = float("inf")
        self.stable[largest == 0] = True
        self.ids = xp.where(finite & (largest > 0))[0]
        whole = len(self.ids) == count
        up, _, level = self._power_of_two(largest[self.ids])
        self.P = self._balanced((stack if whole else backend.pick(stack, self.ids)) * up)
        up, self.norm, more = self._power_of_two(xp.sqrt(backend.square_sum(self.P)))
        self.P *= up
        self.level = level + more
        self.rounding = 0 * self.level  # E; nothing has been rounded yet
        self.scales: list[Any] = []

    def square(self) -> None:
        """Square until all is settled, or the rest seems hopeless."""
        for k in range(CHECKS[-1] + 1):
            squared, before = self.backend.multiply(self.P, self.P), len(self.ids)
            if k in CHECKS or (k == 0 and self.n <= 2):
                squared = self.settle(squared)
                # Little progress: eigenvalues of one modulus. Where the solver is near at hand it is asked at once.
                if self.backend.impatient and k >= PATIENCE and len(self.ids) > 0.9 * before:
                    break
            if len(self.ids) == 0:
                break
            self.advance(squared)

    def _power_of_two(self, size: Any) -> tuple[Any, Any, Any]:
        """The power of two that brings `size` to between ½ and 1, what it becomes, and the logarithm of the inverse.

        Scaling by powers of two rounds nothing: only products of matrices do.
        """
        size = self.xp.clip(size, 1e-300, None)
        fraction, _ = self.xp.frexp(size)
        return fraction / size, fraction, self.xp.log(size / fraction)

    def _balanced(self, P: Stack) -> Stack:
        """One diagonal similarity with powers of two for all, from their mean: units of measure should not matter."""
        if self.n < 2 or P.shape[2] == 0:
            return P
        mean = self.backend.host(self.xp.abs(P).mean(2))
        scale = 2.0 ** np.round(np.log2(balancing(mean[None])[0]))
        if (scale != 1).any():
            P *= self.backend.array((scale[None, :] / scale[:, None])[:, :, None])
        return P

    def advance(self, squared: Stack) -> None:
        """P ← P² / scale."""
        up, self.norm, level = self._power_of_two(self.xp.sqrt(self.backend.square_sum(squared)))
        E = self.rounding
        self.rounding = (2 * E + E * E + (self.n + 1) * UNIT) * up
        self.m *= 2
        self.level = self.level + level / self.m
        self.scales.append(1 / up)
        squared *= up
        self.P = squared

    def noise(self, R: Any) -> Any:
        """An estimate of what the rounding of all products so far did to log ρ.

        Rounding by ε changes an eigenvalue R of P, with ‖P‖ ≤ 1, by about ε / R² of its size (nearly nilpotent pairs,
        else less), and log ρ by an m-th of that. Back from the present R, the one before was √(R · scale).
        """
        m, total = self.m, 0 * R
        for scale in reversed(self.scales):
            total = total + SAFETY * (self.n + 1) * UNIT / (scale * m * R * R)
            R, m = self.xp.sqrt(R * scale), m / 2
        return total

    def settle(self, squared: Stack) -> Stack:
        """Take out what is settled; P² of what is left."""
        xp, E, m, pick = self.xp, self.rounding, self.m, self.backend.pick
        roots = _Roots(self, squared)
        R, spread, good = roots.enclosure(0 * E)
        value = self.level + xp.log(R) / m
        error = spread / (R * m) + self.noise(R)
        settled = good & (error < self.accuracy) & (xp.abs(value - self.log_limit) > NEAR)
        # The bounds that hold whatever the rounding.
        _, spread, good = roots.enclosure(E)
        upper = xp.where(good, self.level + xp.log(R + spread) / m, float("inf"))
        lower = xp.where(good, self.level + xp.log(R - spread) / m, -float("inf"))
        norm = xp.where(E < 1, self.level + xp.log(self.norm + E) / m, float("inf"))
        trace = xp.clip((xp.abs(roots.s) - self.n**0.5 * E) / self.n, 0, None)
        below = xp.minimum(upper, norm) + SLACK < self.log_limit
        above = xp.maximum(lower, self.level + xp.log(trace) / m) - SLACK > self.log_limit
        settled = settled & (below | above)
        done, left = xp.where(settled)[0], xp.where(~settled)[0]
        if len(done) == 0:
            return squared
        ids = self.ids[done]
        self.value[ids], self.stable[ids] = xp.exp(value[done]), below[done]
        self.ids, self.level = self.ids[left], self.level[left]
        self.rounding, self.norm = self.rounding[left], self.norm[left]
        self.scales = [scale[left] for scale in self.scales]
        self.P = pick(self.P, left)
        return pick(squared, left)

    def finish(self, stack: Stack, limit: float) -> Radii:
        """The rest by eigenvalues, on the host."""
        count = len(self.ids)
        if count:
            rest = np.moveaxis(self.backend.host(self.backend.pick(stack, self.ids)), -1, 0)
            radius = self.backend.on_host(_by_eigenvalues, rest)
            self.value[self.ids] = self.backend.array(radius)
            self.stable[self.ids] = self.backend.array(radius) <= limit
        return Radii(self.value, self.stable, count)


def _hopeless(stack: Stack, backend: Backend) -> bool:
    """Whether a few of many matrices show that squaring settles little (undamped systems: all moduli alike)."""
    n, _, count = stack.shape
    if not backend.impatient or n < 6:
        return False
    some = np.ascontiguousarray(stack[:, :, :: max(1, count // 50)])
    with backend.quiet():
        search = _Search(backend, some, 1e-10, 0.0)
        search.square()
    return bool(len(search.ids) > some.shape[2] / 2)


def _solved(stack: Stack, backend: Backend, limit: float) -> Radii:
    """All by eigenvalues, on the host."""
    matrices = np.moveaxis(backend.host(stack), -1, 0)
    finite = np.isfinite(matrices).all(axis=(-2, -1))
    radius = np.full(len(matrices), np.inf)
    radius[finite] = backend.on_host(_by_eigenvalues, matrices[finite])
    return Radii(backend.array(radius), backend.array(radius) <= limit, int(finite.sum()))


def _by_eigenvalues(matrices: Array) -> Array:
    radius: Array = np.abs(np.linalg.eigvals(matrices)).max(axis=-1, initial=0.0)
    return radius


class _Roots:
    """The roots of μ² − s μ + d and how nearly P satisfies P (P² − s P + d) = 0."""

    def __init__(self, search: _Search, squared: Stack) -> None:
        xp, P = search.xp, search.P
        self.xp, self.n = xp, search.n
        self.s = search.backend.trace(P)
        self.d = (self.s * self.s - search.backend.trace(squared)) / 2
        rest = squared - self.s * P
        for i in range(self.n):
            rest[i, i] += self.d
        T = search.backend.multiply(P, rest)
        s, d = xp.abs(self.s), xp.abs(self.d)
        self.eta = xp.sqrt(search.backend.square_sum(T)) + 4 * (self.n + 4) * UNIT * (1 + s + d)
        discriminant = self.s * self.s - 4 * self.d
        self.gap = xp.sqrt(xp.abs(discriminant))
        real = discriminant > 0
        self.R = xp.where(real, (s + self.gap) / 2, xp.sqrt(d))
        self.single = real & (d < self.R * self.R / 2)

    def enclosure(self, E: Any) -> tuple[Any, Any, Any]:
        """R, the distance of ρ(P) from it, and where that holds, for any P within E (Frobenius) of the computed one.

        Every eigenvalue lies within `near` of a root or of 0; counting them with tr P and tr P² shows that, as long as
        n · near ≤ R / 20, one of them lies near the larger root. If the smaller root is below R / 2, only the larger
        matters, and the distance to it is linear in η / R²; otherwise the roots may merge, and the square root holds.
        """
        xp, R, n = self.xp, self.R, self.n
        s, d = xp.abs(self.s), xp.abs(self.d)
        eta = self.eta + E * (3 + 2 * s + d) + E * E * (3 + s) + E * E * E
        q = eta / R
        merged = xp.sqrt(4 * q)
        apart = xp.maximum(16 * q / R, xp.minimum(merged, 8 * q / self.gap))
        near = xp.where(self.single, merged, apart) + 3 * E / R
        spread = xp.where(self.single, 16 * q / (3 * R), (n + 1) * near)
        return R, spread, (n * near <= R / 20) & (E < 1)


# ---- induced norms of many small matrices at once --------------------------------------------------------------------
# The 2-norm is the root of the largest eigenvalue λ of S = M Mᵀ (or Mᵀ M, whichever is smaller). S is squared again and
# again; with p_m = tr S^m, since S is symmetric and has no negative eigenvalues,
#
#     (p_2m / p_m)^(1/m)  ≤  λ  ≤  p_m^(1/m),
#
# and the two bounds meet as fast as the second eigenvalue dies away, or like log(n) / m when it does not. Squaring a
# symmetric matrix loses nothing against its norm, so rounding stays at a few units.


NORM_ACCURACY = 1e-13
"""Relative accuracy of λ: between its bounds lies no more than this."""
NORM_CHECKS = (2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 30, 45)
"""After how many squarings it is asked which norms are found; after 45 even equal eigenvalues are."""


def norms(stack: Stack, backend: Backend, *, norm: Norm) -> Stack:
    """The induced 1- or 2-norm of every matrix of a stack, (N,); infinite where entries are not finite."""
    if norm not in (1, 2):
        raise ConfigurationError(f"the norm is 1 or 2, not {norm}.")
    if 0 in stack.shape[:2]:
        return backend.zeros(stack.shape[2])
    xp = backend.xp
    if norm == 1:
        found = xp.amax(xp.abs(stack).sum(0), (0,))
        return xp.where(xp.isfinite(found), found, float("inf"))
    with backend.quiet():
        return _two_norms(stack, backend)


def _two_norms(stack: Stack, backend: Backend) -> Stack:
    xp = backend.xp
    largest = xp.amax(xp.abs(stack), (0, 1))
    found = xp.where(xp.isfinite(largest), largest, float("inf"))
    if min(stack.shape[:2]) == 1:
        scaled = stack / xp.where(largest > 0, largest, 1.0)
        return xp.where(xp.isfinite(largest), largest * xp.sqrt(backend.square_sum(scaled)), float("inf"))
    ids = xp.where(xp.isfinite(largest) & (largest > 0))[0]
    M = backend.pick(stack, ids) / largest[ids]
    if M.shape[0] > M.shape[1]:
        M = M.swapaxes(0, 1)
    S, level, m = backend.gram(M), 0.0 * largest[ids], 1.0
    p = backend.trace(S)
    for k in range(NORM_CHECKS[-1] + 1):
        # p = 1 after scaling, so the upper bound is the level itself.
        S, level = S / p, level + xp.log(p) / m
        S = backend.multiply(S, S)
        p = backend.trace(S)
        if k in NORM_CHECKS:
            done = (-xp.log(p) / m < NORM_ACCURACY) | (k == NORM_CHECKS[-1])
            places, left = xp.where(done)[0], xp.where(~done)[0]
            if len(places):
                # Exact when one eigenvalue is left; the bounds are equal to the accuracy wanted.
                middle = level[places] + xp.log(p[places]) / (2 * m)
                found[ids[places]] = largest[ids[places]] * xp.exp(middle / 2)
                ids, level, p, S = ids[left], level[left], p[left], backend.pick(S, left)
            if len(ids) == 0:
                break
        m *= 2
    return found
