"""A two-link manipulator moved by a hydraulic cylinder: pikulinski2025, Sec. 3.3, Eqs. 26–36, Table 3.

Unit `mechanics` holds the two links; it is given the force f of the cylinder and returns the cylinder's length s and
rate v, with large steps (12 or 20 ms) of velocity-first symplectic Euler. Unit `hydraulics` holds the two chambers; it
is given s and v and returns f, with micro steps of 0.2 ms of forward Euler. Friction in the cylinder, −c v, makes f
depend at once on v: `hydraulics` has feedthrough.

`manipulator_pressure` exchanges the pressures p1, p2 instead; the force, friction included, is then formed in
`mechanics` from its own v, and nothing is fed through.

The paper's master with plain hold is `masters.jacobi(system, 0.012)`, run for 10 s (9.996 s are whole steps): during
its micro steps `hydraulics` sees the held s(k), v(k), and the force sent at the end is formed with the held v(k). A
coupling that yields the line from x_k to x̃_{k+1} is followed over the micro steps and its end enters the force.
"""

from __future__ import annotations

import math
from dataclasses import field

from cosimo.core import dataclass
from cosimo.core.errors import ConfigurationError
from cosimo.core.result import Result
from cosimo.core.system import Source, System, Table
from cosimo.problems import require
from cosimo.problems.oscillators import run_monolithic
from cosimo.units.python import FollowingUnit, PythonUnit

# ---- the hydraulic cylinder (Eqs. 29–36) and the units that hold it --------------------------------------------------


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
        positive = "area stroke discharge density a valve"
        require("manipulator", vars(self), positive=positive, not_negative="friction tank", finite="b pump")
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
        return (self._bulk(p1) / l1 * (flow1 / self.area + rate), self._bulk(p2) / l2 * (flow2 / self.area - rate))

    def _bulk(self, pressure: float) -> float:
        """β, Eq. 34."""
        return (1 + self.a * pressure + self.b * pressure * pressure) / (self.a + 2 * self.b * pressure)


def _root(value: float) -> float:
    return math.sqrt(value) if value > 0 else 0.0


class PressureHydraulics:
    """The pressures by forward Euler under the inputs s and v and the control κ(t); returns them only."""

    inputs: tuple[str, ...] = ("s", "v")
    outputs: tuple[str, ...] = ("p1", "p2")
    s: float
    v: float

    def __init__(self, cylinder: Cylinder, control: Source, middle: float, pressures: tuple[float, float]) -> None:
        self.cylinder, self.control, self.middle = cylinder, control, middle
        self.p1, self.p2 = pressures

    def step(self, time: float, duration: float) -> None:
        out = self.s - self.middle
        if not abs(out) < 0.5 * self.cylinder.stroke:
            raise ArithmeticError(f"the piston has left its cylinder (s = {self.s:g} m); the coupling may be unstable")
        rate1, rate2 = self.cylinder.rates(self.p1, self.p2, self.control(time), out, self.v)
        self.p1 += duration * rate1
        self.p2 += duration * rate2

    def save(self) -> tuple[float, float]:
        return self.p1, self.p2

    def restore(self, state: tuple[float, float]) -> None:
        self.p1, self.p2 = state


class ForceHydraulics(PressureHydraulics):
    """Returns the force as well, which has direct feedthrough from v through the friction."""

    outputs = ("f", "p1", "p2")

    @property
    def f(self) -> float:
        return self.cylinder.force(self.p1, self.p2, self.v)


# ---- the two links and the units that move them ----------------------------------------------------------------------


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
        require("manipulator", vars(self), positive="l1 l2 m m_q m_r", finite="angle1 angle2 g")
        if not self.lever(self.angle1):
            raise ConfigurationError(
                f"at angle1 = {self.angle1:g} the cylinder of the manipulator has no lever arm; choose another angle."
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


class ForceLinkage:
    """State θ1, θ2, θ̇1, θ̇2 by velocity-first symplectic Euler under the force f, held over the step."""

    inputs: tuple[str, ...] = ("f",)
    outputs: tuple[str, ...] = ("s", "v")
    f: float

    def __init__(self, linkage: Linkage) -> None:
        self.linkage = linkage
        self._lift = linkage.g * linkage.l1 * (linkage.m / 2 + linkage.m_q + linkage.m_r)
        self._hang = linkage.g * linkage.l2 * linkage.m_r
        self._m11 = linkage.l1 * linkage.l1 * (linkage.m / 3 + linkage.m_q + linkage.m_r)
        self._m12 = linkage.l1 * linkage.l2 * linkage.m_r
        self._m22 = linkage.l2 * linkage.l2 * linkage.m_r
        self.restore((linkage.angle1, linkage.angle2, 0.0, 0.0))

    def step(self, time: float, duration: float) -> None:
        self.advance(self.f, duration)

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
        return self._state

    def restore(self, state: tuple[float, float, float, float]) -> None:
        """Take the state; s and v follow."""
        self._state = state
        self._lever = self.linkage.lever(state[0])
        self.s, self.v = self.linkage.reach(state[0]), self._lever * state[2]


class PressureLinkage(ForceLinkage):
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


# ---- the manipulator -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sinusoid:
    """κ(t) = κ0 (1 − A(t) sin 2π f t): A grows from 0 to `amplitude` in 1 s, and is back at 0 at t = 10 s (Fig. 17)."""

    equilibrium: float
    amplitude: float = 0.1
    frequency: float = 2.0

    def __call__(self, time: float) -> float:
        envelope = max(0.0, min(time, 1.0, 10.0 - time))
        return self.equilibrium * (1 - self.amplitude * envelope * math.sin(2 * math.pi * self.frequency * time))


def steps(equilibrium: float) -> Table:
    """κ(t): κ0, from 2 s on κ0 − 0.01 (within 1 ms), from 6 s on κ0 + 0.02 (within 2 ms) (Fig. 17)."""
    values = [equilibrium, equilibrium - 0.01, equilibrium - 0.01, equilibrium + 0.02]
    return Table([2.0, 2.001, 6.0, 6.002], values)


@dataclass(frozen=True)
class Manipulator:
    """The linkage, the cylinder, the longest micro step of the hydraulics in s, and whether pressures are exchanged.

    `control` is the spool position κ over time, in (0, 1); None: the paper's sinusoid.
    """

    linkage: Linkage = field(default_factory=Linkage)
    cylinder: Cylinder = field(default_factory=Cylinder)
    micro_step: float = 2e-4
    pressure: bool = False
    control: Source | None = None
    name: str = "manipulator"

    def __post_init__(self) -> None:
        require(self.name, vars(self), positive="micro_step")
        if self.control is not None and not callable(self.control):
            raise ConfigurationError(
                f"the control of problem '{self.name}' is a function of time, not {self.control!r}."
            )

    @property
    def equilibrium(self) -> tuple[float, float, float]:
        """p1, p2 in Pa and κ0 that hold the linkage in its initial place."""
        return self.cylinder.equilibrium(self.linkage.holding_force)

    def system(self) -> System:
        """Units `hydraulics` (outputs f, p1, p2) and `mechanics` (outputs s, v)."""
        p1, p2, opening = self.equilibrium
        hydraulics = FollowingUnit(
            PressureHydraulics if self.pressure else ForceHydraulics,
            micro_step=self.micro_step,
            cylinder=self.cylinder,
            control=self.control or Sinusoid(opening),
            middle=self.linkage.length,
            pressures=(p1, p2),
        )
        if self.pressure:
            mechanics = PythonUnit(PressureLinkage, linkage=self.linkage, cylinder=self.cylinder)
            sent = ["p1", "p2"]
        else:
            mechanics = PythonUnit(ForceLinkage, linkage=self.linkage)
            sent = ["f"]
        forward = [(f"hydraulics.{signal}", f"mechanics.{signal}") for signal in sent]
        back = [(f"mechanics.{signal}", f"hydraulics.{signal}") for signal in ("s", "v")]
        return System({"hydraulics": hydraulics, "mechanics": mechanics}, [*forward, *back], name=self.name)

    def reference(self, *, step: float = 2e-4, stop: float = 10.0) -> Result:
        """All outputs of `system` under the same integrators on the undivided system, both with `step`."""
        return run_monolithic(self.system(), step=step, stop=stop)


def manipulator(*, micro_step: float = 2e-4) -> System:
    """Force coupling, sinusoidal control."""
    return Manipulator(micro_step=micro_step).system()


def manipulator_steps(*, micro_step: float = 2e-4) -> System:
    """Force coupling, control in steps."""
    opening = Manipulator().equilibrium[2]
    return Manipulator(micro_step=micro_step, control=steps(opening), name="manipulator-steps").system()


def manipulator_pressure(*, micro_step: float = 2e-4) -> System:
    """Pressure coupling, sinusoidal control."""
    return Manipulator(micro_step=micro_step, pressure=True, name="manipulator-pressure").system()
