"""Trajectories of linear systems with their inputs: of the co-simulation, and of the coupled system without coupling.

Both are a recursion with known inputs,

    v_{k+1} = F v_k + G e_k,   y_k = C v_k + D e_k,

for the co-simulation with F = Φ, G = Γ and e_k the samples that the master takes of external inputs; for the coupled
system with F = exp(A_c h / s) over s parts of a macro step, in each of which external inputs are parabolas through
three samples. Rows are computed in blocks of L: L steps are one product.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

from cosimo.algebra import CoupledModel, LinearSystem
from cosimo.assessment.local import LocalSystem
from cosimo.core.arrays import Array
from cosimo.core.master import Master
from cosimo.core.polynomial import external_fit
from cosimo.core.signals import ONE
from cosimo.core.sources import Constant, Source
from cosimo.core.system import System
from cosimo.core.unit import LinearModel
from cosimo.units.integrators import Exact, discretise

BLOCK = 32
PARTS = 8
"""Parts of a macro step over each of which an external input that varies is taken as a parabola."""


@dataclass(frozen=True)
class Recursion:
    """v' = F v + G e, y = C v + D e: F (n, n), G (n, m), C (p, n), D (p, m)."""

    F: Array
    G: Array
    C: Array
    D: Array

    def rows(self, start: Array, given: Array) -> Array:
        """y_0 … y_N (N + 1, p) for `given` e_0 … e_N (N + 1, m); overflow gives infinities, not errors."""
        (p, n), m, count = self.C.shape, self.G.shape[1], len(given)
        with np.errstate(over="ignore", invalid="ignore"):
            powers = [np.eye(n)]
            for _ in range(BLOCK):
                powers.append(self.F @ powers[-1])
            seen = np.vstack([self.C @ power for power in powers[:BLOCK]])
            answers = [self.D, *(self.C @ power @ self.G for power in powers[: BLOCK - 1])]
            driven = np.zeros((BLOCK, p, BLOCK, m))
            for row in range(BLOCK):
                for column in range(row + 1):
                    driven[row, :, column] = answers[row - column]
            pushed = np.hstack([power @ self.G for power in powers[BLOCK - 1 :: -1]])
            blocks = -(-count // BLOCK)
            padded = np.zeros((blocks * BLOCK, m))
            padded[:count] = given
            found, v = np.empty((blocks, BLOCK * p)), start
            flat = driven.reshape(BLOCK * p, BLOCK * m)
            for block, inputs in enumerate(padded.reshape(blocks, BLOCK * m)):
                found[block] = seen @ v + flat @ inputs
                v = powers[BLOCK] @ v + pushed @ inputs
        return found.reshape(blocks * BLOCK, p)[:count]


def cosimulated(local: LocalSystem, master: Master, *, start: float, steps: int) -> Array:
    """All outputs (steps + 1, p) of the linear co-simulation, from the initial states, with external inputs."""
    linear = LinearSystem(local.linear, master)
    Phi, Gamma = _dense(linear.one_step.Phi), _dense(linear.one_step.Gamma)
    selector = np.eye(linear.size)[linear.layout.indices("y")]
    process = Recursion(Phi, Gamma, selector, np.zeros((len(selector), Gamma.shape[1])))
    return process.rows(linear.start(start), _given(linear, start, steps)) + local.offsets


def _given(linear: LinearSystem, start: float, steps: int) -> Array:
    """e_k of all macro steps (steps + 1, m)."""
    given = np.ones((steps + 1, len(linear.given)))
    for column, block in enumerate(linear.given):
        if block == ONE:
            continue
        source = linear.system.inputs[str(block.owner)]
        moments: Array = start + (np.arange(steps + 1.0) + float(block.time or 0)) * linear.master.step
        given[:, column] = _samples(source, moments)
    return given


def undivided(
    local: LocalSystem, *, step: float, start: float, steps: int, coupled: CoupledModel | None = None
) -> Array:
    """All outputs (steps + 1, p) of the coupled system itself (or of `coupled`) at t_k = start + k step.

    With b(t) what is given to all inputs from outside, and y = C x + (I − D L)⁻¹ D b:

        ẋ = A_c x + B (I + L (I − D L)⁻¹ D) b(t)
    """
    drive = _Drive(local.linear, start)
    parts = PARTS if drive.varying else 1
    process = _flow(coupled or local.coupled, drive, step / parts)
    x = np.concatenate([unit.initial_state for unit in local.linear.units.values()])
    rows = process.rows(x, drive.samples(start, step / parts, steps * parts + 1))
    return rows[::parts] + local.offsets


def _flow(coupled: CoupledModel, drive: _Drive, duration: float) -> Recursion:
    """The exact step of the coupled system; inputs e = [1, b(0), b(½), b(1) of every input that varies]."""
    A, B, C, D, L = (_dense(part) for part in (coupled.A, coupled.B, coupled.C, coupled.D, coupled.L))
    through: Array = coupled.solve_loop(D)
    m = B.shape[1]
    discrete = discretise(LinearModel(A, B @ (np.eye(m) + L @ through), C, through), Exact(), 1, duration)
    fit = external_fit(2, Fraction(1))[1]
    constant = drive.constant[:, None]
    G, now = [discrete.B[:, :m] @ constant], [through @ constant]
    for i in drive.varying:
        G.append(discrete.B[:, [i, m + i, 2 * m + i]] @ fit)
        now.append(np.hstack([through[:, [i]], np.zeros((len(C), 2))]))
    return Recursion(discrete.A, np.hstack(G), C, np.hstack(now))


class _Drive:
    """What is given to the inputs of a system from outside: `constant` (m,) and the places of those that `varying`."""

    def __init__(self, system: System, start: float) -> None:
        inlets = [inlet for name in system.units for inlet in system.inlets[name]]
        sources = [inlet.source for inlet in inlets]
        self.varying = [i for i, source in enumerate(sources) if source and not isinstance(source, Constant)]
        self._sources: list[Source | None] = sources
        self.constant: Array = np.array(
            [
                inlet.link.connection.offset if inlet.link else inlet.source(start) if inlet.source else inlet.start
                for inlet in inlets
            ]
        )
        self.constant[self.varying] = 0.0

    def samples(self, start: float, duration: float, count: int) -> Array:
        """e at the beginning of `count` parts: 1, then three samples of each input that varies."""
        given = np.ones((count, 1 + 3 * len(self.varying)))
        moments: Array = start + np.arange(2.0 * count + 1) * (duration / 2)
        for place, i in enumerate(self.varying):
            source = self._sources[i]
            assert source is not None
            values = _samples(source, moments)
            for s in range(3):
                given[:, 1 + 3 * place + s] = values[s : s + 2 * count - 1 : 2]
        return given


def _samples(source: Source, moments: Array) -> Array:
    if isinstance(source, Constant):
        return np.full(len(moments), source.value)
    return np.array([source(moment) for moment in moments.tolist()], dtype=float)


def _dense(matrix: Any) -> Array:
    dense: Array = matrix.toarray() if sp.issparse(matrix) else matrix
    return dense


class Motion:
    """Co-simulation and coupled system side by side from one time on, with all their states."""

    def __init__(self, local: LocalSystem, linear: LinearSystem, start: float) -> None:
        self._local, self._linear, self._start = local, linear, start
        self._step = linear.master.step
        self._x = np.concatenate([unit.initial_state for unit in local.linear.units.values()])

    def errors(self, steps: int, ahead: Array | None) -> tuple[Array, Array]:
        """y_k − y(t_k) (steps + 1, p), and what z is ahead of a consistent start at the end.

        z begins that much `ahead` of a consistent start.
        """
        linear, local = self._linear, self._local
        Phi, Gamma = _dense(linear.one_step.Phi), _dense(linear.one_step.Gamma)
        process = Recursion(Phi, Gamma, np.eye(linear.size), np.zeros((linear.size, Gamma.shape[1])))
        z = linear.start(self._start) + (0.0 if ahead is None else ahead)
        rows = process.rows(z, _given(linear, self._start, steps))
        drive = _Drive(local.linear, self._start)
        parts = PARTS if drive.varying else 1
        flow = _flow(local.converted, drive, self._step / parts)
        states = Recursion(flow.F, flow.G, np.vstack([np.eye(len(self._x)), flow.C]), _below(flow))
        exact = states.rows(self._x, drive.samples(self._start, self._step / parts, steps * parts + 1))[::parts]
        n = len(self._x)
        with np.errstate(over="ignore", invalid="ignore"):
            difference = rows[:, linear.layout.indices("y")] - exact[:, n:]
            end = self._start + steps * self._step
            return difference, rows[-1] - self._consistent(exact[-1, :n], end)

    def _consistent(self, x: Array, time: float) -> Array:
        """z_c(x): the start of a run from x at `time`."""
        E = _dense(self._linear.start_map())
        moved: Array = self._linear.start(time) + E @ (x - self._x)
        return moved


def _below(flow: Recursion) -> Array:
    """No feedthrough to the states, that of the flow to the outputs."""
    return np.vstack([np.zeros((flow.F.shape[0], flow.D.shape[1])), flow.D])
