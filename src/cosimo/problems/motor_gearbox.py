"""A servomotor that drives a load through an elastic gearbox.

Unit `motor` holds rotor and gearbox; it is given the load's angle and speed and returns the gearbox torque
T_C = −k (θ_L − τ θ_M) − c (ω_L − τ ω_M), at once. Unit `load` is the inertia that this torque turns.
richiedei2024, Eqs. 1-5; the load starts turned by π/6 at rest.
"""

from __future__ import annotations

import numpy as np

from cosimo.core.system import Connection, System
from cosimo.units import Integrator, Mechanical


def motor_gearbox(
    *,
    rotor: float = 6.3e-5,
    gearbox: float = 1e-5,
    load: float = 1.025,
    k: float = 3.5e4,
    c: float = 1e-5,
    kt: float = 4.24,
    ct: float = 1e-5,
    integrator: Integrator | None = None,
) -> System:
    """Moments of inertia in kg m², stiffness k and kt in N m/rad, damping c and ct in N m s/rad; gear ratio 1/32."""
    ratio = 1 / 32
    motor = Mechanical(
        rotor + gearbox,
        ratio**2 * c + ct,
        ratio**2 * k + kt,
        B=[[ratio * k, ratio * c]],
        displacement=[[ratio * k], [1.0], [0.0]],
        velocity=[[ratio * c], [0.0], [1.0]],
        feedthrough=[[-k, -c], [0.0, 0.0], [0.0, 0.0]],
        integrator=integrator,
        inputs=["load_angle", "load_speed"],
        outputs=["torque", "angle", "speed"],
    )
    turned = Mechanical(
        load,
        0.0,
        0.0,
        B=1.0,
        displacement=[[1.0], [0.0]],
        velocity=[[0.0], [1.0]],
        initial=[np.pi / 6, 0.0],
        integrator=integrator,
        inputs=["torque"],
        outputs=["angle", "speed"],
    )
    connections = [
        Connection("motor.torque", "load.torque"),
        Connection("load.angle", "motor.load_angle"),
        Connection("load.speed", "motor.load_speed"),
    ]
    return System({"motor": motor, "load": turned}, connections, name="motor-gearbox")
