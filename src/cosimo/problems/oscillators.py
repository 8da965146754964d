"""The two-mass oscillator of pikulinski2025, Secs. 2.1 and 3.1, with a linear or a nonlinear spring at mass 2.

    wall –[k1]– m1 –[kc]– m2 –[f2]– wall          f2 = k2 sgn(x2) |x2|^p,   p = 1, or ½ (Eq. 25)

Unit `one` holds mass 1 and the coupling spring: it is given the motion x2, v2 of mass 2 and returns, at once, the force
f = −kc (x1 − x2) on its own mass; it has feedthrough. Unit `two` holds mass 2 and is given −f. Both use velocity-first
symplectic Euler. The inferred model of Eq. 20 is of unit `two`: state [x2; v2], input f (Eq. 24 gives it for p = 1).

The paper's master with plain hold is `masters.jacobi(system, step)`: f(k + 1) is formed from x1(k + 1) and the held
x2(k). The paper uses steps of 1 ms (Fig. 2) and 10 ms (Table 1 and later), and 10 s.
"""

from __future__ import annotations

import math

import numpy as np

from cosimo.core import dataclass
from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.master import Master
from cosimo.core.result import Result
from cosimo.core.schedule import Couple, Operation, Read, Schedule, Step
from cosimo.core.system import System
from cosimo.core.unit import Unit
from cosimo.couplings import Hold
from cosimo.problems import require
from cosimo.problems.masses import FORCE_AND_MOTION, mass_with_spring, moving_mass
from cosimo.units.python import PythonUnit


@dataclass(frozen=True)
class Oscillator:
    """Masses in kg, stiffnesses in N/m (k2 in N/m^p), the opposite initial `speed` of both masses in m/s, p `power`."""

    m1: float = 1.0
    m2: float = 1.0
    k1: float = 10.0
    k2: float = 1000.0
    kc: float = 100.0
    speed: float = 100.0
    power: float = 1.0
    name: str = "oscillator-linear"

    def __post_init__(self) -> None:
        require(self.name, vars(self), positive="m1 m2 power", not_negative="k1 k2 kc", finite="speed")
        if self.power > 1:
            raise ConfigurationError(
                f"parameter power of problem '{self.name}' is at most 1 (a linear spring), not {self.power!r}."
            )

    def system(self) -> System:
        """Units `one` (outputs f, x, v) and `two` (outputs x, v)."""
        one = mass_with_spring(
            self.m1, 0.0, self.k1, (self.kc, 0.0), sign=-1.0, initial=[0.0, self.speed],
            inputs=["x2", "v2"], outputs=["f", "x", "v"],
        )  # fmt: skip
        two: Unit = PythonUnit(PowerSpringMass, mass=self.m2, stiffness=self.k2, power=self.power, speed=-self.speed)
        if self.power == 1:
            two = moving_mass(self.m2, 0.0, self.k2, initial=[0.0, -self.speed], inputs=["f"], outputs=["x", "v"])
        return System({"one": one, "two": two}, FORCE_AND_MOTION, name=self.name)

    def reference(self, *, step: float, stop: float) -> Result:
        """All outputs of `system` under the same integrator on the undivided oscillator."""
        return run_monolithic(self.system(), step=step, stop=stop)

    def energy(self, result: Result) -> Array:
        """E = ½ m1 v1² + ½ m2 v2² + ½ k1 x1² + ½ kc (x1 − x2)² + k2 |x2|^(p+1) / (p + 1), in J, row by row."""
        x1, v1, x2, v2 = (result[signal] for signal in ("one.x", "one.v", "two.x", "two.v"))
        kinetic = self.m1 * v1**2 + self.m2 * v2**2
        elastic = self.k1 * x1**2 + self.kc * (x1 - x2) ** 2
        wall = self.k2 * np.abs(x2) ** (self.power + 1) / (self.power + 1)
        total: Array = 0.5 * (kinetic + elastic) + wall
        return total

    def inferred(self, step: float) -> Array:
        """S with [x2; v2](k + 1) = S [x2; v2; f](k) for the linear spring, (2, 3): pikulinski2025, Eq. 24."""
        h, rate = step, self.k2 / self.m2
        return np.array([[1 - h * h * rate, h, -h * h / self.m2], [-h * rate, 1.0, -h / self.m2]])


class PowerSpringMass:
    """m ẍ = f − k sgn(x) |x|^p by velocity-first symplectic Euler (pikulinski2025, Eqs. 23 and 25)."""

    inputs, outputs = ("f",), ("x", "v")

    def __init__(self, mass: float, stiffness: float, power: float, speed: float) -> None:
        self.mass, self.stiffness, self.power = mass, stiffness, power
        self.x, self.v = 0.0, speed
        self.f: float

    def step(self, time: float, duration: float) -> None:
        """v first, then x with the new v."""
        spring = self.stiffness * math.copysign(abs(self.x) ** self.power, self.x)
        self.v += duration * (self.f - spring) / self.mass
        self.x += duration * self.v

    def save(self) -> tuple[float, float]:
        return self.x, self.v

    def restore(self, state: tuple[float, float]) -> None:
        self.x, self.v = state


LINEAR = Oscillator()
NONLINEAR = Oscillator(power=0.5, name="oscillator-nonlinear")


def oscillator_linear(
    *, m1: float = 1.0, m2: float = 1.0, k1: float = 10.0, k2: float = 1000.0, kc: float = 100.0, speed: float = 100.0
) -> System:
    """The oscillator with linear springs: both units are linear, so that it can be analysed and exported."""
    return Oscillator(m1, m2, k1, k2, kc, speed).system()


def oscillator_nonlinear(
    *,
    m1: float = 1.0,
    m2: float = 1.0,
    k1: float = 10.0,
    k2: float = 1000.0,
    kc: float = 100.0,
    speed: float = 100.0,
    power: float = 0.5,
) -> System:
    """The oscillator whose wall spring at mass 2 follows |x|^power, by default a square root (Eq. 25)."""
    return Oscillator(m1, m2, k1, k2, kc, speed, power, "oscillator-nonlinear").system()


# ---- the whole system integrated at once, by the integrators of its units: what a coupling should come near to ------
# With the exchange
#
#     F_two  G_one G_two  H_two  F_one H_one          (`one` feeds its input through to its output, `two` does not)
#
# all outputs belong to the same moment and every unit starts its step from them. Where the units' integrators use the
# inputs at the start of a step, this *is* the same integrator on the undivided system, to rounding.


def fresh(system: System, step: float) -> Master:
    """The master of the exchange above; no unit with feedthrough may be fed by another one."""
    late = [name for name, unit in system.units.items() if unit.feedthrough().any()]
    early = [name for name in system.names if name not in late]
    for link in system.links:
        if {link.source.unit, link.target.unit} <= set(late):
            raise ConfigurationError(
                f"connection {link.connection} joins two units with direct feedthrough; their outputs cannot all be "
                "read in one pass, so there is no fresh exchange."
            )
    operations: tuple[Operation, ...] = (
        *map(Couple, early),
        *map(Step, system.names),
        *map(Read, early),
        *map(Couple, late),
        *map(Read, late),
    )
    return Master("fresh", Schedule(system.names, operations), step, Hold(0))


def run_monolithic(system: System, *, step: float, stop: float) -> Result:
    """The trajectory of all outputs of the undivided system, one row per `step`."""
    from cosimo.execution.running import run

    return run(system, fresh(system, step), stop=stop)
