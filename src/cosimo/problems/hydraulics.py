"""The hydraulic cylinder of the manipulator (pikulinski2025, Eqs. 29–36) and the units that hold it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cosimo.core.errors import ConfigurationError
from cosimo.core.sources import Source
from cosimo.problems.checks import require_finite, require_not_negative, require_positive


@dataclass(frozen=True)
class Cylinder:
    """A piston between two chambers, each joined to pump and tank by valves that the spool position κ opens.

        f = (p2 − p1) a_p − c ṡ                                                              (29)
        ṗ1 = β1 / (a_p l1) [+a_p ṡ + κ a_f Q(p_P − p1) − (1 − κ) a_f Q(p1 − p_T)]            (30), (32), (35), (36)
        ṗ2 = β2 / (a_p l2) [−a_p ṡ + (1 − κ) a_f Q(p_P − p2) − κ a_f Q(p2 − p_T)]            (31), (33)
        Q(p) = c_d √(2 p / ρ) for p > 0, else 0;   β_i = (1 + a p_i + b p_i²) / (a + 2 b p_i)  (34)

    SI units; a in 1/Pa and b in 1/Pa², and 0.442 m is the cylinder's `stroke` l^a (Table 3 names these otherwise).
    """

    area: float = 65e-4
    stroke: float = 0.442
    friction: float = 1e5
    discharge: float = 0.67
    density: float = 850.0
    a: float = 6.53e-10
    b: float = -1.19e-18
    pump: float = 7.6e6
    tank: float = 0.1e6
    valve: float = 5e-4

    def __post_init__(self) -> None:
        require_positive(
            "manipulator",
            area=self.area,
            stroke=self.stroke,
            discharge=self.discharge,
            density=self.density,
            a=self.a,
            valve=self.valve,
        )
        require_not_negative("manipulator", friction=self.friction, tank=self.tank)
        require_finite("manipulator", b=self.b, pump=self.pump)
        if not self.pump > self.tank:
            raise ConfigurationError(
                f"the pump pressure of the manipulator ({self.pump:g} Pa) must exceed the tank's ({self.tank:g} Pa)."
            )

    def force(self, p1: float, p2: float, rate: float) -> float:
        """Eq. 29."""
        return (p2 - p1) * self.area - self.friction * rate

    def equilibrium(self, force: float) -> tuple[float, float, float]:
        """p1, p2 and the spool position κ0 at which the piston rests under `force`.

        No flow into either chamber: κ Q(p_P − p1) = (1 − κ) Q(p1 − p_T) and the same for 2 with κ and 1 − κ exchanged,
        so that p1 + p2 = p_P + p_T.
        """
        difference = force / self.area
        p1, p2 = (self.pump + self.tank - difference) / 2, (self.pump + self.tank + difference) / 2
        if not (self.tank < p1 < self.pump and self.tank < p2 < self.pump):
            raise ConfigurationError(
                f"the cylinder of the manipulator cannot hold {force:g} N between {self.tank:g} and {self.pump:g} Pa; "
                f"make its area larger or the pump stronger."
            )
        ratio = math.sqrt((p1 - self.tank) / (self.pump - p1))
        return p1, p2, ratio / (1 + ratio)

    def rates(self, p1: float, p2: float, opening: float, out: float, rate: float) -> tuple[float, float]:
        """ṗ1 and ṗ2 with the piston `out` of its middle by s − s(0) and moving with ṡ = `rate`."""
        factor = self.valve * self.discharge * math.sqrt(2 / self.density)
        into, over = factor * opening, factor * (1 - opening)
        flow1 = into * _root(self.pump - p1) - over * _root(p1 - self.tank)
        flow2 = over * _root(self.pump - p2) - into * _root(p2 - self.tank)
        l1, l2 = 0.5 * self.stroke - out, 0.5 * self.stroke + out
        return (
            self._bulk(p1) / l1 * (flow1 / self.area + rate),
            self._bulk(p2) / l2 * (flow2 / self.area - rate),
        )

    def _bulk(self, pressure: float) -> float:
        """β, Eq. 34."""
        return (1 + self.a * pressure + self.b * pressure * pressure) / (self.a + 2 * self.b * pressure)


def _root(value: float) -> float:
    return math.sqrt(value) if value > 0 else 0.0


class _Hydraulics:
    """What both units share: the pressures, and forward Euler under the inputs s and v and the control κ(t)."""

    inputs = ("s", "v")
    s: float
    v: float

    def __init__(self, cylinder: Cylinder, control: Source, middle: float, pressures: tuple[float, float]) -> None:
        self.cylinder, self.control, self.middle = cylinder, control, middle
        self.p1, self.p2 = pressures

    def step(self, time: float, duration: float) -> None:
        """One micro step."""
        out = self.s - self.middle
        if not abs(out) < 0.5 * self.cylinder.stroke:
            raise ArithmeticError(f"the piston has left its cylinder (s = {self.s:g} m); the coupling may be unstable")
        rate1, rate2 = self.cylinder.rates(self.p1, self.p2, self.control(time), out, self.v)
        self.p1 += duration * rate1
        self.p2 += duration * rate2

    def save(self) -> tuple[float, float]:
        """The pressures."""
        return self.p1, self.p2

    def restore(self, state: tuple[float, float]) -> None:
        """Put them back."""
        self.p1, self.p2 = state


class ForceHydraulics(_Hydraulics):
    """Returns the force, which depends at once on v through the friction."""

    outputs = ("f", "p1", "p2")

    @property
    def f(self) -> float:
        """Eq. 29."""
        return self.cylinder.force(self.p1, self.p2, self.v)


class PressureHydraulics(_Hydraulics):
    """Returns the pressures only."""

    outputs = ("p1", "p2")
