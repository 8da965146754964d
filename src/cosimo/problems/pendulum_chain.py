"""A single pendulum and a chain of n links, their tips joined by a spring: pikulinski2025, Sec. 3.2.

    anchor (0, 0) –[l1, m1]– tip 1  ∿kc∿  tip 2 –[n links]– anchor (l1 + length, 0)

All links start horizontal and at rest with the two tips in one place; the spring has no rest length. Angles φ are
measured from the +x axis, masses are points at the ends of massless links, gravity acts along −y.

Unit `single` holds the pendulum and the spring: it is given the motion of tip 2 (x2, y2, vx2, vy2) and returns, at
once, the force f = kc (tip 2 − tip 1) on its own tip; it has feedthrough. Unit `chain` is given −f and returns position
and velocity of its tip. Both use velocity-first symplectic Euler.

The paper's master with plain hold is `masters.jacobi(system, 1e-3)`, run for 5 s.
"""

from __future__ import annotations

import math

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.result import Result
from cosimo.core.system import Connection, System
from cosimo.problems import require
from cosimo.problems.oscillators import run_monolithic
from cosimo.units.python import FollowingUnit, PythonUnit


@dataclass(frozen=True)
class Pendula:
    """Lengths in m, masses in kg, kc in N/m, g in m/s². `length` and `mass` are those of the whole chain.

    So any number of links spans the same gap; 10 links are those of the paper's Table 2 (0.5 m and 0.1 kg each).
    """

    links: int = 10
    l1: float = 2.0
    m1: float = 1.0
    length: float = 5.0
    mass: float = 1.0
    kc: float = 50.0
    g: float = 9.81
    name: str = "pendula"

    def __post_init__(self) -> None:
        if isinstance(self.links, bool) or not isinstance(self.links, int) or not 1 <= self.links <= 1000:
            raise ConfigurationError(
                f"parameter links of problem '{self.name}' must be a whole number from 1 to 1000, not {self.links!r}."
            )
        require(self.name, vars(self), positive="l1 m1 length mass", not_negative="kc", finite="g")

    def system(self) -> System:
        """Units `single` (outputs fx, fy, x, y, vx, vy, energy) and `chain` (outputs x, y, vx, vy, energy)."""
        single = FollowingUnit(SinglePendulum, length=self.l1, mass=self.m1, kc=self.kc, g=self.g)
        chain = PythonUnit(
            PendulumChain,
            lengths=np.full(self.links, self.length / self.links),
            masses=np.full(self.links, self.mass / self.links),
            anchor=self.l1 + self.length,
            g=self.g,
        )
        # The spring force acts on the chain in the opposite direction.
        forces = [Connection(f"single.f{axis}", f"chain.f{axis}", gain=-1.0) for axis in "xy"]
        motion = [Connection(f"chain.{signal}", f"single.{signal}2") for signal in ("x", "y", "vx", "vy")]
        return System({"single": single, "chain": chain}, [*forces, *motion], name=self.name)

    def reference(self, *, step: float, stop: float) -> Result:
        """All outputs of `system` under the same integrator on the undivided system."""
        return run_monolithic(self.system(), step=step, stop=stop)

    def energy(self, result: Result) -> Array:
        """Kinetic and potential energy of both units and ½ kc |tip 1 − tip 2|², in J, row by row (0 at the start)."""
        dx, dy = (result[f"single.{axis}"] - result[f"chain.{axis}"] for axis in "xy")
        total: Array = result["single.energy"] + result["chain.energy"] + 0.5 * self.kc * (dx**2 + dy**2)
        return total


class SinglePendulum:
    """m l² φ̈ = −m g l cos φ + l (−sin φ f_x + cos φ f_y) from φ = 0 at rest, with f the force of the spring."""

    inputs = ("x2", "y2", "vx2", "vy2")
    outputs = ("fx", "fy", "x", "y", "vx", "vy", "energy")

    def __init__(self, length: float, mass: float, kc: float, g: float) -> None:
        self.length, self.mass, self.kc, self.g = length, mass, kc, g
        # What the spring does not need, the velocity of the other tip, is exchanged all the same (Eq. 20).
        self.x2: float
        self.y2: float
        self.restore((0.0, 0.0))

    @property
    def fx(self) -> float:
        """The force on the own tip, x component."""
        return self.kc * (self.x2 - self.x)

    @property
    def fy(self) -> float:
        """The force on the own tip, y component."""
        return self.kc * (self.y2 - self.y)

    def step(self, time: float, duration: float) -> None:
        """φ̇ first, then φ with the new φ̇."""
        cos, sin = self.x / self.length, self.y / self.length
        pull = self.fy * cos - self.fx * sin
        rate = self.rate + duration * (pull / self.mass - self.g * cos) / self.length
        self.restore((self.angle + duration * rate, rate))

    def save(self) -> tuple[float, float]:
        return self.angle, self.rate

    def restore(self, state: tuple[float, float]) -> None:
        """Take φ and φ̇; all outputs that do not depend on inputs follow."""
        self.angle, self.rate = state
        # An unstable coupling overflows sooner or later; that is found when outputs are read.
        angle = self.angle if math.isfinite(self.angle) else math.nan
        self.x, self.y = self.length * math.cos(angle), self.length * math.sin(angle)
        self.vx, self.vy = -self.y * self.rate, self.x * self.rate
        self.energy = self.mass * (0.5 * (self.length * self.rate) * (self.length * self.rate) + self.g * self.y)


class PendulumChain:
    """n links from φ = π at rest: M φ̈ = −N φ̇² − g μ_i l_i cos φ_i + l_i (−sin φ_i f_x + cos φ_i f_y), with

        M_ij = W_ij cos(φ_i − φ_j),   N_ij = W_ij sin(φ_i − φ_j),   W_ij = μ_max(i,j) l_i l_j,   μ_i = Σ_{k≥i} m_k.

    The force (f_x, f_y) pulls at the tip of the last link. With C = cos φ and S = sin φ both matrices are made of
    products: M = W ∘ (C Cᵀ + S Sᵀ) and N q = S ∘ W(C ∘ q) − C ∘ W(S ∘ q).
    """

    inputs = ("fx", "fy")
    outputs = ("x", "y", "vx", "vy", "energy")

    def __init__(self, lengths: Array, masses: Array, anchor: float, g: float) -> None:
        self.lengths, self.masses, self.anchor, self.g = lengths, masses, anchor, g
        carried = np.cumsum(masses[::-1])[::-1]
        place = np.arange(len(lengths))
        self._W = carried[np.maximum.outer(place, place)] * np.outer(lengths, lengths)
        self._weight = g * carried * lengths
        self.fx: float
        self.fy: float
        self.restore((np.full(len(lengths), np.pi), np.zeros(len(lengths))))

    def step(self, time: float, duration: float) -> None:
        """φ̇ first, then φ with the new φ̇."""
        from scipy.linalg.lapack import dposv

        cos, sin = self._directions
        # An unstable coupling overflows sooner or later; that is found when outputs are read.
        with np.errstate(over="ignore", invalid="ignore"):
            swing = (self._directions * (self.rates * self.rates)) @ self._W
            torque = cos * (swing[1] - self._weight + self.lengths * self.fy) - sin * (
                swing[0] + self.lengths * self.fx
            )
            _, acceleration, failed = dposv(self._W * (self._directions.T @ self._directions), torque)
            if failed:
                raise ArithmeticError("the mass matrix of the chain is not positive definite any more")
            rates = self.rates + duration * acceleration
            self.restore((self.angles + duration * rates, rates))

    def save(self) -> tuple[Array, Array]:
        """φ and φ̇ (n,), which are replaced and never changed in place."""
        return self.angles, self.rates

    def restore(self, state: tuple[Array, Array]) -> None:
        """Take φ and φ̇; all outputs follow."""
        self.angles, self.rates = state
        self._directions = np.array([np.cos(self.angles), np.sin(self.angles)])
        reach = (self.lengths * self._directions).cumsum(axis=1)
        speed = (self.lengths * self.rates * self._directions).cumsum(axis=1)
        self.x, self.y = self.anchor + float(reach[0, -1]), float(reach[1, -1])
        self.vx, self.vy = -float(speed[1, -1]), float(speed[0, -1])
        self.energy = float(self.masses @ (0.5 * (speed * speed).sum(axis=0) + self.g * reach[1]))


def pendula(
    *,
    links: int = 10,
    l1: float = 2.0,
    m1: float = 1.0,
    length: float = 5.0,
    mass: float = 1.0,
    kc: float = 50.0,
    g: float = 9.81,
) -> System:
    """A pendulum coupled to a chain of any number of links (see `Pendula` for the parameters)."""
    return Pendula(links, l1, m1, length, mass, kc, g).system()
