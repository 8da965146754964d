"""The gains: one linear equation per unit, solved with the smallest change of the plain hold."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.optimize import linear_sum_assignment

from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum
from cosimo.compensation.start import Start
from cosimo.compensation.target import SMALL, SOLVED, Target
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.system import System

LEVELS = 8
"""Most samples of a signal that a correction may use."""
WEAK = 1e-6
"""The same where the equation is only wished for: gains must not become large for it."""
CALM = 0.9
"""What a design adds should decay at least this much per macro step; otherwise another one is tried."""


@dataclass(frozen=True)
class Compensation:
    """A compensated master and what is known of it before running.

    `residual` is the largest relative residual of K Σ = U; `levels` how many samples of each signal are used; `gains`
    K per unit; `latent_radius` the largest eigenvalue that the compensated co-simulation has beyond the target's.
    """

    master: Master
    target: str
    levels: dict[str, int]
    residual: float
    radius_before: float
    radius_after: float
    target_radius: float
    latent_radius: float
    gains: dict[str, Array] = field(repr=False)

    @property
    def stable(self) -> bool:
        """Whether nothing that the correction adds grows, and the target's own modes are met."""
        return self.latent_radius < 1 and self.radius_after <= self.target_radius * (1 + 1e-8)

    def __str__(self) -> str:
        used = ", ".join(f"{name}: {count}" for name, count in self.levels.items())
        return "\n".join(
            [
                f"compensated {self.master.name}, target {self.target}: {'stable' if self.stable else 'NOT STABLE'}",
                f"  spectral radius      {self.radius_before:.9f} before, {self.radius_after:.9f} after, "
                f"target {self.target_radius:.9f}",
                f"  latent eigenvalues   up to {self.latent_radius:.3g}",
                f"  samples per signal   {used}",
                f"  residual             {self.residual:.1e}",
            ]
        )


def compensate(
    system: System, master: Master, *, target: Literal["monolithic", "exact"] = "monolithic"
) -> Compensation:
    """The master with inputs corrected so that the co-simulation follows `target`, or why signals do not suffice."""
    if target not in ("monolithic", "exact"):
        raise ConfigurationError(f"a compensation aims at 'monolithic' or 'exact', not '{target}'.")
    path = Target(system, master, target)
    best: Compensation | None = None
    # With few samples and insensitive to external forces where that is stable; otherwise more samples, or without.
    for insensitive, more in ((True, 0), (True, 1), (False, 0), (False, 1), (False, 2)):
        found = _design(path, target, insensitive=insensitive, more=more)
        if best is None or found.latent_radius < best.latent_radius:
            best = found
        if best.latent_radius < CALM:
            break
    assert best is not None
    return best


def _design(path: Target, target: str, *, insensitive: bool, more: int) -> Compensation:
    """One choice of gains for all units, and what becomes of the eigenvalues."""
    system, master = path.system, path.master
    gains = {name: _gains(path, name, insensitive, more) for name in system.units if system.incoming(name)}
    starts = Start(path, {name: (K, count) for name, (K, count, _) in gains.items()})
    compensated = replace(master, name=f"{master.name}+{target}", mixers=starts.mixers())
    before, after = (Spectrum(LinearSystem(system, m)) for m in (master, compensated))
    wanted = np.linalg.eigvals(path.F).astype(complex)
    return Compensation(
        master=compensated,
        target=target,
        levels={name: count for name, (_, count, _) in gains.items()},
        residual=max((residual for _, _, residual in gains.values()), default=0.0),
        radius_before=before.radius,
        radius_after=after.radius,
        target_radius=float(np.abs(wanted).max()),
        latent_radius=_latent(after.eigenvalues, wanted),
        gains={name: K for name, (K, _, _) in gains.items()},
    )


def _latent(found: ComplexArray, wanted: ComplexArray) -> float:
    """The largest eigenvalue that is left when the target's are taken away, each with its nearest."""
    rows, _ = linear_sum_assignment(np.abs(found[:, None] - wanted))
    return float(np.abs(np.delete(found, rows)).max(initial=0.0))


def _gains(path: Target, name: str, insensitive: bool, more: int) -> tuple[Array, int, float]:
    """K of one unit on the present and a few earlier samples of the connected outputs.

    As few as solve K Σ = U, plus `more`, or one beyond where that passes less of the signals' rounding on.
    """
    found: list[tuple[float, Array, int, float]] = []
    for count in range(1, LEVELS + 1):
        solution = _solution(path, name, count, insensitive)
        if solution is not None:
            found.append((solution[2], solution[0], count, solution[1]))
        if len(found) == 2 + more:
            break
    if not found:
        raise ConfigurationError(
            f"unit '{name}' cannot be compensated: {LEVELS} samples of the connected outputs "
            f"{', '.join(path.system.outputs[i] for i in path.used)} do not determine its inputs on the target; "
            f"connect more outputs."
        )
    choice = found[more:] or found[-1:]
    least = min(entry[0] for entry in choice)
    # Among equally calm ones the longest: it averages over more samples.
    _, K, count, residual = [entry for entry in choice if entry[0] <= 2 * least][-1]
    return K, count, residual


def _solution(path: Target, name: str, count: int, insensitive: bool) -> tuple[Array, float, float] | None:
    """K for a number of samples, its residual, and how much it amplifies; None where K Σ = U has no solution."""
    links = path.system.incoming(name)
    U = path.U[name][[link.target.index for link in links]]
    S, S_e = _levels(path, name, count)
    hold = np.zeros((len(links), len(S)))
    for row, link in enumerate(links):
        output = path.system.outputs.index(link.connection.source)
        hold[row, path.used.index(output)] = link.connection.gain
    scale = np.abs(S).max(axis=1)
    scale[scale == 0] = 1.0
    size = max(float(np.abs(U).max()), 1e-300)
    change, rest = _solve(S / scale[:, None], U - hold @ S)
    if np.abs(rest).max() > SOLVED * size:
        return None
    K = hold + change / scale
    # What is left free are combinations that vanish on the target: they are used against external forces.
    free = _null_rows(S / scale[:, None])
    if insensitive and len(free):
        correction, _ = _solve(free @ (S_e / scale[:, None]), -K @ S_e, small=WEAK)
        K = K + correction @ free / scale
    return K, float(np.abs(K @ S - U).max()) / size, float(np.abs(K * scale).max()) / size


def _levels(path: Target, name: str, count: int) -> tuple[Array, Array]:
    """Σ on ξ(k), and the same samples on external pushes e(k − 1), e(k − 2), … with ξ(k) = F ξ(k − 1) + G e(k − 1)."""
    n, G = path.n, path.pushes
    now, before = (part[path.used] for part in path.seen[name])
    width = G.shape[1]
    history = np.hstack([np.eye(n), np.zeros((n, width * (count + 1)))])
    rows = []
    for level in range(count):
        push = np.zeros_like(history)
        push[:, n + level * width : n + (level + 1) * width] = G
        previous = path.back @ (history - push)
        rows.append(now @ history + before @ previous)
        history = previous
    stacked = np.vstack(rows)
    return stacked[:, :n], stacked[:, n:]


def _solve(matrix: Array, right: Array, *, small: float = SMALL) -> tuple[Array, Array]:
    """The smallest Z with Z matrix = right, and what it leaves."""
    Z: Array = right @ np.linalg.pinv(matrix, rcond=small)
    return Z, right - Z @ matrix


def _null_rows(matrix: Array) -> Array:
    """An orthonormal basis of the rows z with z matrix = 0."""
    left, sizes, _ = np.linalg.svd(matrix)
    rank = int((sizes > SMALL * sizes.max(initial=0.0)).sum())
    rows: Array = left[:, rank:].T
    return rows
