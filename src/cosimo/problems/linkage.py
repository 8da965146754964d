"""The two links of the hydraulic manipulator (pikulinski2025, Sec. 3.3) and the units that move them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosimo.core.errors import ConfigurationError
from cosimo.problems.checks import require_finite, require_positive
from cosimo.problems.hydraulics import Cylinder


@dataclass(frozen=True)
class Linkage:
    """A link L with mass m spread along it, and hanging from its end Q a massless link l2 with a point mass m_R at R.

    With absolute angles θ1, θ2 from the +x axis the equations are M θ̈ = r + Jᵀ f, where

        M = [[L² (m/3 + m_Q + m_R), L l2 m_R cos(θ1 − θ2)], [·, l2² m_R]],
        r = [−g L (m/2 + m_Q + m_R) cos θ1 − d θ̇2²; −g l2 m_R cos θ2 + d θ̇1²],   d = L l2 m_R sin(θ1 − θ2).

    The cylinder of length s reaches from B = (√3/2 L, 0) to the middle of the first link; s = L √(1 − √3/2 cos θ1) and
    ṡ = J θ̇ with J = [√3 L² sin θ1 / (4 s), 0]. Lengths in m, masses in kg, angles in rad, g in m/s². (Eq. 27 as
    printed has l2 where it must be l1.)
    """

    l1: float = 1.0
    l2: float = 0.5
    m: float = 200.0
    m_q: float = 250.0
    m_r: float = 100.0
    angle1: float = math.pi / 6
    angle2: float = 3 * math.pi / 2
    g: float = 9.81

    def __post_init__(self) -> None:
        require_positive("manipulator", l1=self.l1, l2=self.l2, m=self.m, m_q=self.m_q, m_r=self.m_r)
        require_finite("manipulator", angle1=self.angle1, angle2=self.angle2, g=self.g)
        if not self.lever(self.angle1):
            raise ConfigurationError(
                f"at angle1 = {self.angle1:g} the cylinder of the manipulator has no lever; choose another angle."
            )

    def reach(self, angle: float) -> float:
        """s(θ1)."""
        return self.l1 * math.sqrt(1 - math.sqrt(3) / 2 * math.cos(angle))

    def lever(self, angle: float) -> float:
        """∂s/∂θ1, the first entry of J."""
        return math.sqrt(3) * self.l1 * self.l1 * math.sin(angle) / (4 * self.reach(angle))

    @property
    def length(self) -> float:
        """s at the start."""
        return self.reach(self.angle1)

    @property
    def holding_force(self) -> float:
        """The force in N that keeps the first link where it starts (the second hangs)."""
        weight = self.g * self.l1 * (self.m / 2 + self.m_q + self.m_r)
        return weight * math.cos(self.angle1) / self.lever(self.angle1)


class _Mechanics:
    """What both units share: state θ1, θ2, θ̇1, θ̇2, and velocity-first symplectic Euler under a given force."""

    outputs = ("s", "v")

    def __init__(self, linkage: Linkage) -> None:
        self.linkage = linkage
        self._lift = linkage.g * linkage.l1 * (linkage.m / 2 + linkage.m_q + linkage.m_r)
        self._hang = linkage.g * linkage.l2 * linkage.m_r
        self._m11 = linkage.l1 * linkage.l1 * (linkage.m / 3 + linkage.m_q + linkage.m_r)
        self._m12 = linkage.l1 * linkage.l2 * linkage.m_r
        self._m22 = linkage.l2 * linkage.l2 * linkage.m_r
        self.restore((linkage.angle1, linkage.angle2, 0.0, 0.0))

    def advance(self, force: float, duration: float) -> None:
        """θ̇ first, then θ with the new θ̇."""
        angle1, angle2, rate1, rate2 = self._state
        cross = self._m12 * math.cos(angle1 - angle2)
        swing = self._m12 * math.sin(angle1 - angle2)
        first = self._lever * force - self._lift * math.cos(angle1) - swing * rate2 * rate2
        second = swing * rate1 * rate1 - self._hang * math.cos(angle2)
        determinant = self._m11 * self._m22 - cross * cross
        rate1 += duration * (self._m22 * first - cross * second) / determinant
        rate2 += duration * (self._m11 * second - cross * first) / determinant
        self.restore((angle1 + duration * rate1, angle2 + duration * rate2, rate1, rate2))

    def save(self) -> tuple[float, float, float, float]:
        """θ1, θ2, θ̇1, θ̇2."""
        return self._state

    def restore(self, state: tuple[float, float, float, float]) -> None:
        """Take the state; s and v follow."""
        self._state = state
        self._lever = self.linkage.lever(state[0])
        self.s, self.v = self.linkage.reach(state[0]), self._lever * state[2]


class ForceLinkage(_Mechanics):
    """Is given the force."""

    inputs = ("f",)
    f: float

    def step(self, time: float, duration: float) -> None:
        """Under the force held over the step."""
        self.advance(self.f, duration)


class PressureLinkage(_Mechanics):
    """Is given the pressures, and forms the force from its own rate (Eq. 29)."""

    inputs = ("p1", "p2")
    p1: float
    p2: float

    def __init__(self, linkage: Linkage, cylinder: Cylinder) -> None:
        self.cylinder = cylinder
        super().__init__(linkage)

    def step(self, time: float, duration: float) -> None:
        """Under the pressures held over the step, with the friction at its start."""
        self.advance(self.cylinder.force(self.p1, self.p2, self.v), duration)
