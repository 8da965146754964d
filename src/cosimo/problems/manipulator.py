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
from dataclasses import dataclass, field

from cosimo.core.errors import ConfigurationError
from cosimo.core.result import Result
from cosimo.core.sources import Source, Table
from cosimo.core.system import System
from cosimo.problems.checks import require_positive
from cosimo.problems.following import FollowingUnit
from cosimo.problems.hydraulics import Cylinder, ForceHydraulics, PressureHydraulics
from cosimo.problems.linkage import ForceLinkage, Linkage, PressureLinkage
from cosimo.problems.monolithic import run_monolithic
from cosimo.units.python import PythonUnit


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
        require_positive(self.name, micro_step=self.micro_step)
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
