"""Induced norms of many small matrices at once.

The 2-norm is the root of the largest eigenvalue λ of S = M Mᵀ (or Mᵀ M, whichever is smaller). S is squared again and
again; with p_m = tr S^m, since S is symmetric and has no negative eigenvalues,

    (p_2m / p_m)^(1/m)  ≤  λ  ≤  p_m^(1/m),

and the two bounds meet as fast as the second eigenvalue dies away, or like log(n) / m when it does not. Squaring a
symmetric matrix loses nothing against its norm, so rounding stays at a few units.
"""

from __future__ import annotations

from cosimo.algebra.batch import Norm
from cosimo.core.errors import ConfigurationError
from cosimo.tuning.backends import Backend, Stack

ACCURACY = 1e-13
"""Relative accuracy of λ: between its bounds lies no more than this."""
CHECKS = (2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 30, 45)
"""After how many squarings it is asked which norms are found; after 45 even equal eigenvalues are."""


def norms(stack: Stack, backend: Backend, *, norm: Norm) -> Stack:
    """The induced 1- or 2-norm of every matrix of a stack, (N,); infinite where entries are not finite."""
    if norm not in (1, 2):
        raise ConfigurationError(f"the norm is 1 or 2, not {norm}.")
    if 0 in stack.shape[:2]:
        return backend.zeros(stack.shape[2])
    xp = backend.xp
    if norm == 1:
        found = (
            xp.amax(xp.abs(stack).sum(0), (0,)) if stack.shape[0] and stack.shape[1] else backend.zeros(stack.shape[2])
        )
        return xp.where(xp.isfinite(found), found, float("inf"))
    if norm != 2:
        raise ConfigurationError(f"the norm is 1 or 2, not {norm}.")
    if 0 in stack.shape[:2]:
        return backend.zeros(stack.shape[2])
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
    for k in range(CHECKS[-1] + 1):
        # p = 1 after scaling, so the upper bound is the level itself.
        S, level = S / p, level + xp.log(p) / m
        S = backend.multiply(S, S)
        p = backend.trace(S)
        if k in CHECKS:
            done = (-xp.log(p) / m < ACCURACY) | (k == CHECKS[-1])
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
