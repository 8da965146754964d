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
from dataclasses import field, replace
from typing import Any

import numpy as np
from scipy.linalg import block_diag
from scipy.optimize import brentq

from cosimo.algebra.product import connection_matrix, coupled_model
from cosimo.analysis.spectrum import Mode
from cosimo.core import dataclass
from cosimo.core.arrays import Array, ComplexArray
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.core.unit import LinearModel
from cosimo.papers.roots import Region, follow, roots_in, upper_pairs


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
        if not (0 <= self.send < np.inf and 0 <= self.receive < np.inf):
            raise ConfigurationError(
                f"delays of sending and receiving must be finite and not negative, not {self.send}, {self.receive}."
            )

    def transfer(self, s: ComplexArray, step: float) -> ComplexArray:
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
        require_step(step)
        models = {name: _require(system, name) for name in system.units}
        self.coupled = coupled_model(system, models)
        self.step = step
        self.units = LinearModel(*(block_diag(*(getattr(m, letter) for m in models.values())) for letter in "ABCD"))
        """All units side by side, not coupled."""
        self.connections: Array = connection_matrix(system).toarray()
        for target in delays or {}:
            system.input(target)
        self.delays = tuple((delays or {}).get(target, delay or Delay()) for target in system.input_names)

    def with_step(self, step: float) -> LaplaceModel:
        """The same system with another macro step."""
        require_step(step)
        other = copy.copy(self)
        other.step = step
        return other

    def shortened(self, share: float) -> LaplaceModel:
        """The same system with D(share · s): macro step and constant delays times `share`; 0 is monolithic."""
        other = copy.copy(self)
        other.step = share * self.step
        other.delays = tuple(replace(d, send=share * d.send, receive=share * d.receive) for d in self.delays)
        return other

    def matrix(self, s: Any) -> ComplexArray:
        """N(s), (…, n, n) for points s (…)."""
        points = np.asarray(s, dtype=complex)
        L = held_signals(self.delays, points, self.step)[..., None] * self.connections
        inner: Any = L @ self.units.C
        if self.units.D.any():
            inner = np.linalg.solve(np.eye(len(self.delays)) - L @ self.units.D, inner)
        identity = np.eye(len(self.units.A))
        found: ComplexArray = points[..., None, None] * identity - self.units.A - self.units.B @ inner
        return found

    def primary_poles(self) -> tuple[PrimaryPole, ...]:
        """The exact poles and shapes that the monolithic ones turn into (one of each conjugate pair), slowest first.

        Followed from D(0) = 1 to D(s) while macro step and delays grow; refused where two meet off the real axis.
        """
        pairs = upper_pairs(self.coupled.A)
        followed = follow(lambda share: self.shortened(share).matrix, pairs)
        return tuple(
            PrimaryPole(before, after, normalised(shape), normalised(moved))
            for (before, shape), (after, moved) in zip(pairs, followed, strict=True)
        )

    def sweep(self, steps: Sequence[float]) -> ComplexArray:
        """The primary poles at each of the macro steps, (steps, modes): how they move as the step grows."""
        return np.array([[pole.cosimulated for pole in self.with_step(h).primary_poles()] for h in steps])

    def critical_step(self) -> float:
        """The first macro step at which a primary pole reaches the imaginary axis; 0 if one is beyond at every step.

        Searched up to the step at which the fastest monolithic mode turns by one radian.
        """
        fastest = float(np.abs(np.linalg.eigvals(self.coupled.A)).max(initial=0.0))
        if fastest == 0:
            return float("inf")  # nothing moves, or all drifts freely: no step is long
        grid = np.geomspace(1e-4, 1.0, 60) / fastest

        def beyond(h: float) -> float:
            # Poles of rigid motion stay at 0, up to rounding: that is no crossing.
            return float(max(p.cosimulated.real for p in self.with_step(h).primary_poles())) - 1e-10 * fastest

        crossed = next((i for i, h in enumerate(grid.tolist()) if beyond(h) > 0), None)
        if crossed is None:
            return float("inf")
        if crossed == 0:
            return 0.0
        return float(brentq(beyond, grid[crossed - 1], grid[crossed], rtol=1e-10))

    def roots(self, region: Region) -> ComplexArray:
        """All roots of det N(s) in a rectangle, as many as the argument principle counts there."""
        return roots_in(self.matrix, region, spacing=0.3 / self.step)


def _require(system: System, name: str) -> LinearModel:
    model = system.units[name].linear()
    if model is None:
        raise ConfigurationError(f"unit '{name}' is not known to be linear; poles need its equations.")
    return model


def require_step(step: float) -> None:
    """A macro step is a positive number."""
    if not 0 < step < np.inf:
        raise ConfigurationError(f"the macro step must be a positive number, not {step}.")


def held_signals(delays: Sequence[Delay], points: ComplexArray, step: float) -> ComplexArray:
    """D(s) of all inputs, (…, inputs) for points s (…)."""
    transfers = {kind: kind.transfer(points, step) for kind in set(delays)}
    found: ComplexArray = np.zeros((*points.shape, len(delays)), dtype=complex)
    for column, kind in enumerate(delays):
        found[..., column] = transfers[kind]
    return found


def normalised(shape: ComplexArray) -> ComplexArray:
    """The shape with its largest entry 1."""
    scaled: ComplexArray = shape / shape[np.abs(shape).argmax()]
    return scaled
