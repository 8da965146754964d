"""Two masses between walls, cut at the coupling spring: force one way, displacement and velocity the other.

    wall –[k1, c1]– m1 –[kc, cc]– m2 –[k2, c2]– wall

Unit `one` holds mass 1 and the coupling spring; it is given the motion of mass 2 and returns the coupling force
f_c = −kc (x1 − x2) − cc (v1 − v2), at once: it has feedthrough. Unit `two` holds mass 2 and is given that force.
tamellin2022, Sec. 2.3 (parameters) and 5.2 (initial velocities 100 and −100 m/s, symplectic Euler in both units).
"""

from __future__ import annotations

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
    integrator: Integrator | None = None,
    name: str = "two-mass",
) -> System:
    """The system; `damping` is c1 = c2 = cc in N s/m, stiffnesses in N/m, masses in kg."""
    one = Mechanical(
        m1,
        2 * damping,
        k1 + kc,
        B=[[kc, damping]],
        displacement=-kc,
        velocity=-damping,
        feedthrough=[[kc, damping]],
        initial=[0.0, 100.0],
        integrator=integrator,
        inputs=["x2", "v2"],
        outputs=["f"],
    )
    two = Mechanical(
        m2,
        damping,
        k2,
        B=1.0,
        displacement=[[1.0], [0.0]],
        velocity=[[0.0], [1.0]],
        initial=[0.0, -100.0],
        integrator=integrator,
        inputs=["f"],
        outputs=["x", "v"],
    )
    # The coupling force acts on mass 2 in the opposite direction.
    back = Connection("one.f", "two.f", gain=-1.0)
    connections = [back, Connection("two.x", "one.x2"), Connection("two.v", "one.v2")]
    return System({"one": one, "two": two}, connections, name=name)


def two_mass_undamped() -> System:
    """Scenario 1 of tamellin2022: no damping anywhere."""
    return two_mass(damping=0.0, name="two-mass-undamped")


def two_mass_damped() -> System:
    """Scenario 2 of tamellin2022: c1 = c2 = cc = 0.1 N s/m."""
    return two_mass(damping=0.1, name="two-mass-damped")
