"""A quarter of a vehicle: the body on its suspension, the wheel on its tyre, cut between suspension and wheel.

    ms z̈s = −f,                     f = ks (zs − zw) + cs (żs − żw)
    mu z̈w =  f − kt (zw − r)

Unit `chassis` holds the sprung mass and the suspension; it is given the motion of the wheel and returns the suspension
force f, at once: it has feedthrough. Unit `wheel` holds the unsprung mass and the tyre; it is given f and the height r
of the road. Positions are measured from rest on a road of height 0. The values are usual for a passenger car: body
mode near 1 Hz, wheel hop near 11 Hz.
"""

from __future__ import annotations

from cosimo.core.sources import Source
from cosimo.core.system import Connection, System
from cosimo.problems.checks import require_finite, require_not_negative, require_positive
from cosimo.units import Exact, Integrator, Mechanical


def quarter_truck(
    *,
    ms: float = 400.0,
    mu: float = 40.0,
    ks: float = 18_000.0,
    cs: float = 1_200.0,
    kt: float = 180_000.0,
    road: float = 0.1,
    profile: Source | None = None,
    integrator: Integrator | None = None,
    micro_steps: int = 1,
) -> System:
    """Masses in kg, stiffnesses in N/m, damping in N s/m; the road is a step of height `road` in m at t = 0.

    `profile` gives the height of the road over time instead. Both units start at rest at height 0 and solve their
    equations exactly unless `integrator` says otherwise.
    """
    require_positive("quarter-truck", ms=ms, mu=mu)
    require_not_negative("quarter-truck", ks=ks, cs=cs, kt=kt)
    require_finite("quarter-truck", road=road)
    solver = integrator or Exact()
    chassis = Mechanical(
        ms,
        cs,
        ks,
        B=[[ks, cs]],
        displacement=[[ks], [1.0], [0.0]],
        velocity=[[cs], [0.0], [1.0]],
        feedthrough=[[-ks, -cs], [0.0, 0.0], [0.0, 0.0]],
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["wheel_position", "wheel_velocity"],
        outputs=["force", "position", "velocity"],
    )
    wheel = Mechanical(
        mu,
        0.0,
        kt,
        B=[[1.0, kt]],
        displacement=[[1.0], [0.0]],
        velocity=[[0.0], [1.0]],
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["force", "road"],
        outputs=["position", "velocity"],
    )
    connections = [
        Connection("chassis.force", "wheel.force"),
        Connection("wheel.position", "chassis.wheel_position"),
        Connection("wheel.velocity", "chassis.wheel_velocity"),
    ]
    height = road if profile is None else profile
    return System(
        {"chassis": chassis, "wheel": wheel}, connections, inputs={"wheel.road": height}, name="quarter-truck"
    )
