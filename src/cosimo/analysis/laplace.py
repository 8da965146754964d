"""Explicit co-simulation in continuous time: what holding the coupling signals does to poles and mode shapes.

Between communication points T apart a coupling signal is held, which in the Laplace domain multiplies its connection by

    D(s) = H(s) e^{−s τ},   zero-order hold: H(s) = (1 − e^{−sT}) / (sT)            (tamellin2022, Eqs. 1, 2)

For linear units side by side, ẋ = A x + B u, y = C x + D_u u, and connections u = L y, the coupled system is

    N(s) x = 0,   N(s) = sI − A − B (I − L_s D_u)⁻¹ L_s C,   L_s = L with every entry multiplied by its D(s)

and N(s) = sI − A_c for D = 1: all that is needed is derived from units and connections. Roots of det N(s) near
monolithic poles are the *primary* poles (spillover has moved them); the infinitely many others are *latent* roots.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.optimize import brentq

from cosimo.algebra import connection_matrix, coupled_model
from cosimo.analysis.roots import Region, refine_pair, roots_in
from cosimo.analysis.spectrum import Mode
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.core.unit import LinearModel


@dataclass(frozen=True)
class Delay:
    """D(s) of one connection: a hold of `order` 0, 1 or 2 over the step, and constant delays of sending and receiving.

    With h(s) = (1 − e^{−sT}) / (sT): h, (1 + sT) h², (1 + 3/2 sT + (sT)²) h³; each is 1 at s = 0.
    """

    order: int = 0
    send: float = 0.0
    receive: float = 0.0

    def __post_init__(self) -> None:
        if self.order not in (0, 1, 2):
            raise ConfigurationError(f"a hold has order 0, 1 or 2, not {self.order}.")
        if self.send < 0 or self.receive < 0:
            raise ConfigurationError("delays of sending and receiving cannot be negative.")

    def transfer(self, s: ComplexArray, step: float) -> ComplexArray:
        """D(s) for an array of points."""
        z = s * step
        small = np.abs(z) < 1e-6
        safe = np.where(small, 1.0, z)
        h = np.where(small, 1 - z / 2 + z * z / 6, -np.expm1(-safe) / safe)
        shaped = (h, (1 + z) * h**2, (1 + 1.5 * z + z * z) * h**3)[self.order]
        held: ComplexArray = shaped * np.exp(-s * (self.send + self.receive))
        return held


@dataclass(frozen=True)
class PrimaryPole:
    """A monolithic pole and shape beside those of the co-simulated system (states of all units, largest entry 1).

    `mode` gives the spillover: shift of frequency and of damping, and how alike the shapes are.
    """

    monolithic: complex
    cosimulated: complex
    monolithic_shape: ComplexArray = field(repr=False)
    cosimulated_shape: ComplexArray = field(repr=False)

    @property
    def mode(self) -> Mode:
        """The pair as a mode of the spillover table."""
        a, b = self.monolithic_shape, self.cosimulated_shape
        mac = float(abs(np.vdot(a, b)) ** 2 / (np.vdot(a, a).real * np.vdot(b, b).real))
        return Mode(self.monolithic, self.cosimulated, mac)


class LaplaceModel:
    """N(s) of a system under explicit co-simulation with macro step `step`; `delays` by target input, else `delay`."""

    def __init__(
        self, system: System, step: float, *, delay: Delay | None = None, delays: Mapping[str, Delay] | None = None
    ) -> None:
        if not step > 0:
            raise ConfigurationError(f"the macro step must be a positive number, not {step}.")
        models = {name: _require(system, name) for name in system.units}
        self.coupled = coupled_model(system, models)
        self.step = step
        self.units = LinearModel(*(_diagonal([getattr(m, letter) for m in models.values()]) for letter in "ABCD"))
        """All units side by side, not coupled."""
        self.connections: Array = connection_matrix(system).toarray()
        for target in delays or {}:
            system.input(target)
        self.delays = tuple((delays or {}).get(target, delay or Delay()) for target in system.input_names)

    def with_step(self, step: float) -> LaplaceModel:
        """The same system with another macro step."""
        other = copy.copy(self)
        other.step = step
        return other

    def matrix(self, s: Any) -> ComplexArray:
        """N(s), (…, n, n) for points s (…)."""
        points = np.asarray(s, dtype=complex)
        transfers = {kind: kind.transfer(points, self.step) for kind in set(self.delays)}
        held = np.stack([transfers[kind] for kind in self.delays], axis=-1)
        L = held[..., None] * self.connections
        inner: Any = L @ self.units.C
        if self.units.D.any():
            inner = np.linalg.solve(np.eye(len(self.delays)) - L @ self.units.D, inner)
        identity = np.eye(len(self.units.A))
        found: ComplexArray = points[..., None, None] * identity - self.units.A - self.units.B @ inner
        return found

    def primary_poles(self) -> tuple[PrimaryPole, ...]:
        """The exact poles and shapes that the monolithic ones turn into (one of each conjugate pair), slowest first."""
        values, shapes = np.linalg.eig(self.coupled.A)
        order = sorted((i for i in range(len(values)) if values[i].imag >= 0), key=lambda i: abs(values[i]))
        found = []
        for i in order:
            pole, shape = refine_pair(self.matrix, complex(values[i]), shapes[:, i].astype(complex))
            found.append(PrimaryPole(complex(values[i]), pole, _normalised(shapes[:, i]), _normalised(shape)))
        return tuple(found)

    def sweep(self, steps: Sequence[float]) -> ComplexArray:
        """The primary poles at each of the macro steps, (steps, modes): how they move as the step grows."""
        return np.array([[pole.cosimulated for pole in self.with_step(h).primary_poles()] for h in steps])

    def critical_step(self) -> float:
        """The first macro step at which a primary pole reaches the imaginary axis; 0 if one is beyond at every step.

        Searched up to the step at which the fastest monolithic mode turns by one radian.
        """
        fastest = float(np.abs(np.linalg.eigvals(self.coupled.A)).max())
        grid = np.geomspace(1e-4, 1.0, 60) / fastest

        def rightmost(h: float) -> float:
            return float(max(pole.cosimulated.real for pole in self.with_step(h).primary_poles()))

        crossed = next((i for i, h in enumerate(grid.tolist()) if rightmost(h) > 1e-9 * fastest), None)
        if crossed is None:
            return float("inf")
        if crossed == 0:
            return 0.0
        return float(brentq(rightmost, grid[crossed - 1], grid[crossed], rtol=1e-10))

    def roots(self, region: Region) -> ComplexArray:
        """All roots of det N(s) in a rectangle, as many as the argument principle counts there."""
        # Between roots log det N turns at most like e^{−3sT} per held signal; a tenth of that is resolved.
        return roots_in(self.matrix, region, spacing=0.3 / self.step)


def _require(system: System, name: str) -> LinearModel:
    model = system.units[name].linear()
    if model is None:
        raise ConfigurationError(f"unit '{name}' is not known to be linear; poles need its equations.")
    return model


def _diagonal(blocks: list[Array]) -> Array:
    total: Array = np.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)))
    row = column = 0
    for block in blocks:
        total[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return total


def _normalised(shape: ComplexArray) -> ComplexArray:
    scaled: ComplexArray = shape / shape[np.abs(shape).argmax()]
    return scaled
