"""The algorithm of pikulinski2025 as a plain loop around two live units: the oracle of every faster form of it.

At t_k both sides hold x_k, what the unit with feedthrough receives, and u_k, what it sends:

    push the pair (z_{k−1}, x_k), z_k = [x_k; u_k]; fit S over the window; x̃_{k+1} = S z_k
    the unit with feedthrough steps from x_k towards x̃_{k+1}, the other one with u_k
    u_{k+1} is formed with x̃_{k+1}
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.result import Result
from cosimo.core.system import Link, System


class Predictor(Protocol):
    """Called once per exchange with x_k and u_k; returns x̃_{k+1}."""

    def predict(self, x: Array, u: Array) -> Array: ...


class HeldInput:
    """x̃ = x."""

    def predict(self, x: Array, u: Array) -> Array:
        return x


class Extrapolation:
    """x̃ = 2 x_k − x_{k−1}; before the beginning signals are constant."""

    def __init__(self) -> None:
        self.last: Array | None = None

    def predict(self, x: Array, u: Array) -> Array:
        before = x if self.last is None else self.last
        self.last = x
        return 2 * x - before


class WindowedDmd:
    """S = argmin ‖Y − S Z‖ over the last `window` pairs, of smallest norm where there are several (Eq. 4).

    The paper's start: x is held until 2 pairs have been seen. With a `prior` S_0 the fit is the one nearest to S_0,
    S = S_0 + (Y − S_0 Z) Z⁺, from the first exchange on.
    """

    def __init__(self, window: int, prior: Array | None = None) -> None:
        self.pairs: deque[tuple[Array, Array]] = deque(maxlen=window)
        self.prior = prior
        self.last: Array | None = None
        self.models: list[Array | None] = []

    def predict(self, x: Array, u: Array) -> Array:
        if self.last is not None:
            self.pairs.append((self.last, x))
        self.last = np.concatenate([x, u])
        S = self.fit()
        self.models.append(S)
        return x if S is None else S @ self.last

    def fit(self) -> Array | None:
        if self.prior is None and len(self.pairs) < 2:
            return None
        if not self.pairs:
            return self.prior
        Z, Y = (np.array(rows) for rows in zip(*self.pairs, strict=True))
        if self.prior is None:
            return np.asarray(np.linalg.lstsq(Z, Y, rcond=None)[0].T)
        return np.asarray(self.prior + np.linalg.lstsq(Z, Y - Z @ self.prior.T, rcond=None)[0].T)


def kinematic(step: float, *, coordinates: int, forces: int) -> Array:
    """S_0 = [I hI 0; 0 I 0] on [positions; velocities; forces]."""
    S = np.eye(2 * coordinates, 2 * coordinates + forces)
    S[:coordinates, coordinates : 2 * coordinates] += step * np.eye(coordinates)
    return S


def cosimulate(system: System, through: str, *, step: float, steps: int, predictor: Predictor | None = None) -> Result:
    """`steps` macro steps of a system of two units, of which `through` has feedthrough; one row per macro step."""
    predictor = predictor or HeldInput()
    other = next(name for name in system.names if name != through)
    live = {name: unit.instantiate(0.0) for name, unit in system.units.items()}
    received, sent = system.incoming(through), system.incoming(other)
    x = _values(received, live[other].read())
    live[through].set_input(x[None, :], step)
    u = live[through].read()
    rows = [np.concatenate([live[name].read() for name in system.names])]
    for k in range(steps):
        x = _values(received, live[other].read())
        # What was really sent, before the connection turns its direction.
        ahead = predictor.predict(x, u[[link.source.index for link in sent]])
        live[through].set_input(np.array([x, ahead - x]), step)
        live[other].set_input(_values(sent, u)[None, :], step)
        for instance in live.values():
            instance.step(k * step, step)
        u = live[through].read()
        rows.append(np.concatenate([live[name].read() for name in system.names]))
    return Result(system.outputs, step * np.arange(steps + 1, dtype=float), np.array(rows))


def _values(links: Sequence[Link], outputs: Array) -> Array:
    return np.array([c.gain * outputs[link.source.index] + c.offset for link in links for c in (link.connection,)])
