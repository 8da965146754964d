"""All calling orders of one Gauss–Seidel master at once, by one formula.

With every input held and every unit making one step, an order enters through the connections only: L = L_f + L_s, those
whose source has already stepped (fresh) and the others (stale). With the units' matrices on the diagonals,

    u = L_f y' + L_s y,    x' = A x + B u,    y' = C x' + D u

give (I − K L_f) y' = C A x + K L_s y with K = C B + D, where K L_f is nilpotent, and from it Φ on [x; y]: the map that
the schedule multiplies out to, without going through it. Other couplings take the general way, order by order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from cosimo import masters
from cosimo.algebra import LinearSystem
from cosimo.algebra.coupled import coupled_model
from cosimo.analysis.accuracy import OPERATOR_UP_TO, global_error
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.couplings import Hold, Nepce
from cosimo.tuning.graph import Equal, Order

WORK = 4_000_000
"""Numbers of Φ held at once."""


@dataclass(frozen=True)
class Sequential:
    """A Gauss–Seidel master of a system whose order is still open: step and couplings."""

    system: System
    step: float
    coupling: Coupling | None = None
    couplings: Mapping[str, Coupling] | None = None

    @property
    def held(self) -> bool:
        """Whether every input is held, so that the formula applies."""
        used = [*(self.couplings or {}).values(), self.coupling or Hold(0)]
        return all(isinstance(coupling, Hold) and coupling.degree == 0 for coupling in used)

    @property
    def rotates(self) -> bool:
        """Whether no coupling looks at the times of its samples, so that rotated orders have the same ρ."""
        used = [*(self.couplings or {}).values(), self.coupling or Hold(0)]
        return all(isinstance(c, Nepce) or (isinstance(c, Hold) and c.degree == 0) for c in used)

    def linear(self, order: Order) -> LinearSystem:
        """The master with this order, multiplied out by its schedule."""
        made = masters.gauss_seidel(
            self.system, self.step, order=order, coupling=self.coupling, couplings=self.couplings
        )
        return LinearSystem(self.system, made)

    @cached_property
    def _parts(self) -> _Parts:
        return _Parts(self.system, self.step)

    def maps(self, orders: Sequence[Order]) -> Array:
        """Φ on [x; y] for every order, (N, n + p, n + p); for held inputs only."""
        return self._parts.maps(orders)


class _Parts:
    """What all orders share."""

    def __init__(self, system: System, step: float) -> None:
        self.system = system
        models = LinearSystem(system, masters.gauss_seidel(system, step)).operations.models
        discrete = {name: unit.discrete(step) for name, unit in system.units.items()}
        widths = {name: len(unit.inputs) for name, unit in system.units.items()}
        self.A = scipy.linalg.block_diag(*(d.A for d in discrete.values()))
        self.B = scipy.linalg.block_diag(*(d.B[:, : widths[name]] for name, d in discrete.items()))
        C, D = (scipy.linalg.block_diag(*(getattr(model, x) for model in models.values())) for x in "CD")
        self.coupled = coupled_model(system, models)
        self.K, self.CA = C @ self.B + D, C @ self.A
        self.L = np.asarray(self.coupled.L)
        self.giver = [i for i, unit in enumerate(system.units.values()) for _ in unit.outputs]
        self.taker = [i for i, unit in enumerate(system.units.values()) for _ in unit.inputs]

    def maps(self, orders: Sequence[Order]) -> Array:
        number = {name: i for i, name in enumerate(self.system.names)}
        rank = np.zeros((len(orders), len(number)), dtype=int)
        for row, order in zip(rank, orders, strict=True):
            row[[number[name] for name in order]] = range(len(number))
        fresh = np.where(rank[:, None, self.giver] < rank[:, self.taker, None], self.L, 0.0)
        stale = self.L - fresh
        n, p = len(self.A), len(self.K)
        right = np.concatenate([np.broadcast_to(self.CA, (len(orders), p, n)), self.K @ stale], axis=-1)
        y = np.linalg.solve(np.eye(p) - self.K @ fresh, right)
        u = fresh @ y
        u[..., n:] += stale
        x = self.B @ u
        x[..., :n] += self.A
        return np.concatenate([x, y], axis=-2)


@dataclass(frozen=True)
class RadiusOfOrders:
    """ρ(Φ) of many orders; call it with a sequence of orders.

    >>> from cosimo.problems import two_mass_glumac
    >>> score = RadiusOfOrders(Sequential(two_mass_glumac(), 4.0))
    >>> [round(rho, 9) for rho in score([("one", "two"), ("two", "one")])]
    [0.875470017, 0.875470017]
    """

    sequential: Sequential

    @property
    def equal(self) -> Equal:
        """Which orders need not be told apart."""
        return "radius" if self.sequential.rotates else "map"

    def __call__(self, orders: Sequence[Order]) -> list[float]:
        if not self.sequential.held:
            return [Spectrum(self.sequential.linear(order)).radius for order in orders]
        found: list[float] = []
        for part in _portions(self.sequential, orders):
            Phi = self.sequential.maps(part)
            if not np.isfinite(Phi).all():
                raise ConfigurationError("Φ of a calling order is not finite; check the units and the step.")
            found += np.abs(np.linalg.eigvals(Phi)).max(axis=-1, initial=0.0).tolist()
        return found


@dataclass(frozen=True)
class ErrorOfOrders:
    """The relative global error over `horizon` seconds of many orders (as `cosimo.analysis.global_error`).

    >>> from cosimo.problems import two_mass_glumac
    >>> score = ErrorOfOrders(Sequential(two_mass_glumac(), 1.0), horizon=20.0)
    >>> [round(error, 6) for error in score([("one", "two"), ("two", "one")])]
    [0.166278, 0.098982]
    """

    sequential: Sequential
    horizon: float

    @property
    def equal(self) -> Equal:
        """Which orders need not be told apart: the error sees all of Φ."""
        return "map"

    def __call__(self, orders: Sequence[Order]) -> list[float]:
        steps = max(1, round(self.horizon / self.sequential.step))
        if not self.sequential.held:
            return self._sized([global_error(self.sequential.linear(o), steps=steps).relative for o in orders])
        found: list[float] = []
        for part in _portions(self.sequential, orders):
            found += self._errors(self.sequential.maps(part), steps)
        return self._sized(found)

    def _errors(self, Phi: Array, steps: int) -> list[float]:
        coupled = self.sequential._parts.coupled
        n = len(coupled.A)
        units = self.sequential.system.units.values()
        x: Any = np.eye(n) if n <= OPERATOR_UP_TO else np.concatenate([unit.initial_state for unit in units])[:, None]
        z = np.broadcast_to(np.concatenate([x, coupled.C @ x]), (len(Phi), Phi.shape[-1], x.shape[1]))
        flow = coupled.flow(self.sequential.step)
        total, scale = np.zeros(len(Phi)), 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(steps + 1):
                exact = coupled.C @ x
                difference = z[:, n:] - exact
                finite = np.isfinite(difference).all(axis=(-2, -1))
                difference[~finite] = 0.0
                total = np.maximum(total, np.where(finite, np.linalg.norm(difference, 2, axis=(-2, -1)), np.inf))
                scale = max(scale, float(np.linalg.norm(exact, 2)))
                z, x = Phi @ z, flow @ x
        return (total / scale if scale else np.full(len(Phi), np.nan)).tolist()

    def _sized(self, errors: list[float]) -> list[float]:
        if np.isnan(errors).any():
            raise ConfigurationError(
                "the system is at rest, so that its error has no size; give its units initial states."
            )
        return errors


def _portions(sequential: Sequential, orders: Sequence[Order]) -> list[Sequence[Order]]:
    size = sum(len(unit.initial_state) + len(unit.outputs) for unit in sequential.system.units.values())
    count = max(1, WORK // max(1, size**2))
    return [orders[i : i + count] for i in range(0, len(orders), count)]
