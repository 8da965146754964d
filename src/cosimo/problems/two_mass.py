"""Two masses between walls, cut at the coupling spring: force one way, displacement and velocity the other.

    wall –[k1, c1]– m1 –[kc, cc]– m2 –[k2, c2]– wall

Unit `one` holds mass 1 and the coupling spring; it is given the motion of mass 2 and returns the coupling force
f_c = −kc (x1 − x2) − cc (v1 − v2), at once: it has feedthrough. Unit `two` holds mass 2 and is given that force.
tamellin2022, Sec. 2.3 (parameters) and 5.2 (initial velocities 100 and −100 m/s, symplectic Euler in both units).
"""

from __future__ import annotations

import math

from cosimo.core.sources import Source
from cosimo.core.system import Connection, System
from cosimo.units import Integrator, Mechanical


def two_mass(
    *,
    m1: float = 1.0,
    m2: float = 1.0,
    k1: float = 10.0,
    k2: float = 1000.0,
    kc: float = 100.0,
    damping: float = 0.1,
    dampers: tuple[float, float, float] | None = None,
    velocities: tuple[float, float] = (100.0, -100.0),
    force: Source | None = None,
    integrator: Integrator | None = None,
    name: str = "two-mass",
) -> System:
    """The system; `damping` is c1 = c2 = cc in N s/m, stiffnesses in N/m, masses in kg.

    `dampers` gives c1, c2 and cc apart, `velocities` the initial ones in m/s, `force` an external force on mass 2.
    """
    c1, c2, cc = dampers or (damping, damping, damping)
    one = Mechanical(
        m1,
        c1 + cc,
        k1 + kc,
        B=[[kc, cc]],
        displacement=-kc,
        velocity=-cc,
        feedthrough=[[kc, cc]],
        initial=[0.0, velocities[0]],
        integrator=integrator,
        inputs=["x2", "v2"],
        outputs=["f"],
    )
    two = Mechanical(
        m2,
        c2,
        k2,
        B=[[1.0]] if force is None else [[1.0, 1.0]],
        displacement=[[1.0], [0.0]],
        velocity=[[0.0], [1.0]],
        initial=[0.0, velocities[1]],
        integrator=integrator,
        inputs=["f"] if force is None else ["f", "force"],
        outputs=["x", "v"],
    )
    # The coupling force acts on mass 2 in the opposite direction.
    back = Connection("one.f", "two.f", gain=-1.0)
    connections = [back, Connection("two.x", "one.x2"), Connection("two.v", "one.v2")]
    driven = {} if force is None else {"two.force": force}
    return System({"one": one, "two": two}, connections, inputs=driven, name=name)


def chirp(*, first: float = 1.0, last: float = 10.0, duration: float = 20.0) -> Source:
    """A force of 1 N whose frequency grows evenly from `first` to `last` Hz (tamellin2022, Sec. 5.3)."""
    rate = (last - first) / (2 * duration)
    return lambda t: math.sin(2 * math.pi * (first + rate * t) * t)


def two_mass_undamped() -> System:
    """Scenario 1 of tamellin2022: no damping anywhere."""
    return two_mass(damping=0.0, name="two-mass-undamped")


def two_mass_damped() -> System:
    """Scenario 2 of tamellin2022: c1 = c2 = cc = 0.1 N s/m."""
    return two_mass(damping=0.1, name="two-mass-damped")
