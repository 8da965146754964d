"""The double mass-spring-damper of gomes2018 (Fig. 2).

Both units are exact. Unit `one` returns its motion; unit `two` holds the coupling spring, returns its force and has
feedthrough.
"""

from __future__ import annotations

from cosimo.core.system import System
from cosimo.units import Exact, Mechanical


def double_mass_spring_damper(
    *,
    m1: float = 1.0,
    c1: float = 1.0,
    d1: float = 1.0,
    m2: float = 1.0,
    c2: float = 1.0,
    d2: float = 2.0,
    cc: float = 200.0,
    dc: float = 0.0,
) -> System:
    """Masses m, springs c, dampers d as in the paper's figure; cc and dc couple the two."""
    one = Mechanical(
        m1,
        d1,
        c1,
        B=1.0,
        displacement=[[1.0], [0.0]],
        velocity=[[0.0], [1.0]],
        initial=[1.0, 0.0],
        integrator=Exact(),
        inputs=["f"],
        outputs=["x", "v"],
    )
    two = Mechanical(
        m2,
        d2 + dc,
        c2 + cc,
        B=[[cc, dc]],
        displacement=cc,
        velocity=dc,
        feedthrough=[[-cc, -dc]],
        integrator=Exact(),
        inputs=["x1", "v1"],
        outputs=["f"],
    )
    connections = [("two.f", "one.f"), ("one.x", "two.x1"), ("one.v", "two.v1")]
    return System({"one": one, "two": two}, connections, name="double-mass-spring-damper")
