"""How mechanical systems move, exactly, monolithically and co-simulated, and how far apart that is.

Trajectories are positions and velocities of all coordinates at t_k = k h; errors are NRMS (tamellin2022, Eq. 42).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from cosimo.analysis.error_norms import nrms as nrms
from cosimo.analysis.truth import Recursion
from cosimo.compensation.comparison import observed
from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.schedule import Read, Step, flatten
from cosimo.core.system import System
from cosimo.execution.running import run
from cosimo.papers.stiffness import DynamicStiffness, mechanical_units

Excitation = Callable[[float], float]


@dataclass(frozen=True)
class Motion:
    """Positions and velocities (rows of time, all coordinates, unit after unit)."""

    time: Array
    positions: Array
    velocities: Array

    @property
    def states(self) -> Array:
        """[q; q̇] side by side, coordinates as in `positions`."""
        return np.hstack([self.positions, self.velocities])


def energy(system: System, motion: Motion) -> Array:
    """½ q̇ᵀ M q̇ + ½ qᵀ K q of the whole system at every row."""
    M, _, K = DynamicStiffness(system, 1.0).matrices()
    kinetic = np.einsum("ti,ij,tj->t", motion.velocities, M, motion.velocities)
    elastic = np.einsum("ti,ij,tj->t", motion.positions, K, motion.positions)
    total: Array = (kinetic + elastic) / 2
    return total


def exact_motion(system: System, step: float, steps: int) -> Motion:
    """The free motion of the coupled system itself, e^{At} z_0 (Eq. 41)."""
    A, z = _first_order(system)
    return _rows(scipy.linalg.expm(A * step), z, step, np.zeros((steps, len(z))))


def exact_forced_motion(system: System, step: float, steps: int, on: int, force: Excitation) -> Motion:
    """The same under a force on coordinate number `on`, by Gauss–Legendre quadrature of Eq. 43 in every step."""
    A, z = _first_order(system)
    push = _push(system, on)
    nodes, weights = np.polynomial.legendre.leggauss(6)
    moved = [
        step / 2 * weight * scipy.linalg.expm(A * step * (1 - node) / 2) @ push
        for node, weight in zip(nodes, weights, strict=True)
    ]
    moments = (step * (1 + nodes) / 2).tolist()
    forces = np.array([[force(k * step + at) for at in moments] for k in range(steps)])
    return _rows(scipy.linalg.expm(A * step), z, step, forces @ np.array(moved))


def monolithic_motion(
    system: System, step: float, steps: int, *, on: int = 0, force: Excitation | None = None
) -> Motion:
    """Velocity-first symplectic Euler on the coupled system, optionally under a force on coordinate number `on`."""
    A, z = _first_order(system)
    n = len(z) // 2
    eye, push = np.eye(n), _push(system, on)[n:]
    velocity = np.hstack([np.zeros((n, n)), eye]) + step * A[n:]
    F = np.vstack([np.hstack([eye, np.zeros((n, n))]) + step * velocity, velocity])
    forces = np.array([force(k * step) if force else 0.0 for k in range(steps)])
    return _rows(F, z, step, forces[:, None] * np.concatenate([step**2 * push, step * push]))


def cosimulated_motion(system: System, master: Master, steps: int) -> Motion:
    """The motion of a real run; units that the schedule reads before stepping show it one row later."""
    result = run(*observed(system, master), stop=(steps + 1) * master.step)
    parts: dict[str, list[Array]] = {"position": [], "speed": []}
    last = {op.unit: type(op) for op in flatten(master.schedule.operations) if isinstance(op, Read | Step)}
    for name, unit in mechanical_units(system).items():
        late, n = int(last.get(name) is Step), len(unit.M)
        for first, columns in zip((0, n), parts.values(), strict=True):
            columns += [result[f"{name}.state {first + i + 1}"][late : late + steps + 1] for i in range(n)]
    return Motion(np.arange(steps + 1.0) * master.step, *(np.column_stack(columns) for columns in parts.values()))


def coupling_signal(system: System, motion: Motion, output: str) -> Array:
    """An output of the coupled system along a motion."""
    stiffness = DynamicStiffness(system, 1.0)
    row = stiffness.laplace.coupled.C[system.outputs.index(output)]
    signal: Array = motion.states @ row[stiffness.positions + stiffness.velocities]
    return signal


def _first_order(system: System) -> tuple[Array, Array]:
    """A and z_0 with z = [all positions; all velocities]."""
    stiffness = DynamicStiffness(system, 1.0)
    order = stiffness.positions + stiffness.velocities
    z0 = np.concatenate([unit.initial_state for unit in system.units.values()])
    return stiffness.laplace.coupled.A[np.ix_(order, order)], z0[order]


def _push(system: System, on: int) -> Array:
    M, _, _ = DynamicStiffness(system, 1.0).matrices()
    acceleration = np.linalg.solve(M, np.eye(len(M))[on])
    return np.concatenate([np.zeros(len(M)), acceleration])


def _rows(F: Array, z: Array, step: float, pushes: Array) -> Motion:
    """z_{k+1} = F z_k + the k-th of the pushes."""
    one, none = np.eye(len(z)), np.zeros((len(z), len(z)))
    states = Recursion(F, one, one, none).rows(z, np.vstack([pushes, none[:1]]))
    n = len(z) // 2
    return Motion(np.arange(len(pushes) + 1.0) * step, states[:, :n], states[:, n:])
