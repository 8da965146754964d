"""The gains of one unit: one linear equation per coupling, solved with the smallest change of the plain hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cosimo.compensation.target import SMALL, SOLVED, Target
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError

LEVELS = 8
"""Most samples of a signal that a correction may use."""
CAUTIONS = (1e-7, 1e-4, 1e-2)
"""μ: how much errors of the samples may count, compared with external pushes, when gains are chosen against these."""
MODEST = 5.0
"""How much larger gains may become for the sake of external pushes; where they would, errors of samples count more."""


@dataclass(frozen=True)
class Solution:
    """K of one unit for each of its couplings in a macro step, on `count` samples of all connected outputs.

    Columns: the present samples, then those of the coupling before, …; `residual` of K Σ = U, relative; `amplified`:
    how large the terms of the sum are, compared with the inputs.
    """

    gains: tuple[Array, ...]
    count: int
    residual: float
    amplified: float


def unit_gains(path: Target, name: str, insensitive: bool, more: int) -> Solution:
    """With as few samples as solve K Σ = U, plus `more`, or one beyond where that passes less rounding errors on."""
    found: list[Solution] = []
    for count in range(1, LEVELS + 1):
        solution = _all_couplings(path, name, count, insensitive)
        if solution is not None:
            found.append(solution)
        if len(found) == 2 + more:
            break
    if not found:
        raise ConfigurationError(
            f"unit '{name}' cannot be compensated: {LEVELS} samples of the connected outputs "
            f"{', '.join(path.system.outputs[i] for i in path.used)} do not determine its inputs on the target; "
            f"connect more outputs."
        )
    choice = found[more:] or found[-1:]
    least = min(solution.amplified for solution in choice)
    # Among equally calm ones the longest: it averages over more samples.
    return [solution for solution in choice if solution.amplified <= 2 * least][-1]


def _all_couplings(path: Target, name: str, count: int, insensitive: bool) -> Solution | None:
    """K for a number of samples at every coupling; None where one of them has no solution."""
    parts = []
    for position in range(len(path.rhythm.seen[name])):
        part = _solution(path, name, position, count, insensitive)
        if part is None:
            return None
        parts.append(part)
    gains, residuals, sizes = zip(*parts, strict=True)
    return Solution(gains, count, max(residuals), max(sizes))


def _solution(
    path: Target, name: str, position: int, count: int, insensitive: bool
) -> tuple[Array, float, float] | None:
    """K of one coupling, its residual, and how much it amplifies; None where K Σ = U has no solution."""
    U = path.U[name][path.connected(name, path.degree(name))] * path.scale
    S, S_e = _levels(path, name, position, count)
    S = S * path.scale
    hold = np.zeros((len(U), len(S)))
    plain = path.hold(name)
    hold[: len(plain), : len(path.used)] = plain
    scale = np.linalg.norm(S, axis=1)
    scale[scale == 0] = 1.0
    change, rest = _solve(S / scale[:, None], U - hold @ S)
    # Inputs have different units of measure: each is compared with itself.
    size = np.maximum(np.abs(U).max(axis=1), np.abs(hold @ S).max(axis=1))
    size[size == 0] = 1.0
    if (np.abs(rest).max(axis=1) > SOLVED * size).any():
        return None
    K = hold + change / scale
    # What is left free are combinations that vanish on the target: they are used against external forces.
    free = _null_rows(S / scale[:, None])
    if insensitive and len(free) and S_e.shape[1]:
        K = K + _calmed(K * scale, free, S_e / scale[:, None]) / scale
    return K, float((np.abs(K @ S - U).max(axis=1) / size).max()), float((np.abs(K * scale).max(axis=1) / size).max())


def _levels(path: Target, name: str, position: int, count: int) -> tuple[Array, Array]:
    """Σ on ξ at the coupling, and the same samples on external pushes, which arrive at the ends of units' steps.

    ξ(t + 1) = F ξ(t) + Σ_i G_i e_i(t + 1), with e_i where a step of unit i ends.
    """
    span, turns = path.rhythm.spans[name], len(path.rhythm.seen[name])
    seen = [
        {offset - level * span: part for offset, part in path.terms(name, (position - level) % turns).items()}
        for level in range(count)
    ]
    offsets = [offset for terms in seen for offset in terms] or [0]
    low, high = min(0, *offsets), max(0, *offsets)
    arrivals = [
        (tick, unit)
        for tick in range(low + 1, high + 1)
        for unit in path.units
        if (tick + position * span) % path.rhythm.spans[unit] == 0
    ]
    columns, width = {}, path.n
    for arrival in arrivals:
        columns[arrival] = slice(width, width := width + path.pushes[arrival[1]].shape[1])
    states = {0: np.hstack([np.eye(path.n), np.zeros((path.n, width - path.n))])}

    def pushed(tick: int) -> Array:
        total = np.zeros((path.n, width))
        for (at, unit), part in columns.items():
            if at == tick:
                total[:, part] = path.pushes[unit]
        return total

    for tick in range(1, high + 1):
        states[tick] = path.tick @ states[tick - 1] + pushed(tick)
    for tick in range(-1, low - 1, -1):
        states[tick] = path.back @ (states[tick + 1] - pushed(tick + 1))
    none = np.zeros((len(path.used), width))
    rows = np.vstack([sum((part @ states[offset] for offset, part in terms.items()), none) for terms in seen])
    return rows[:, : path.n], rows[:, path.n :]


def _solve(matrix: Array, right: Array, *, small: float = SMALL) -> tuple[Array, Array]:
    """The smallest Z with Z matrix = right, and what it leaves."""
    Z: Array = right @ np.linalg.pinv(matrix, rcond=small)
    return Z, right - Z @ matrix


def _calmed(K: Array, free: Array, S_e: Array) -> Array:
    """The change Z · free that makes ‖(K + Z · free) S_e‖² + μ² ‖Z · free‖² least.

    The first is what external pushes do to the inputs, the second what errors of the samples do through the change.
    """
    change = np.zeros_like(K)
    for caution in CAUTIONS:
        Z, _ = _solve(free @ np.hstack([S_e, caution * np.eye(len(S_e))]), np.hstack([-K @ S_e, np.zeros_like(K)]))
        change = Z @ free
        if np.linalg.norm(K + change) <= MODEST * np.linalg.norm(K):
            break
    return change


def _null_rows(matrix: Array) -> Array:
    """An orthonormal basis of the rows z with z matrix = 0."""
    left, sizes, _ = np.linalg.svd(matrix)
    rank = int((sizes > SMALL * sizes.max(initial=0.0)).sum())
    rows: Array = left[:, rank:].T
    return rows
