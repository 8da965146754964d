"""A DC motor under a PI speed controller.

    L i̇ = V − R i − K ω,      J ω̇ = K i − b ω − T_load
    İ = ki (ω_ref − ω),       V = kp (ω_ref − ω) + I

Unit `motor` (state [i, ω]) is given the voltage and the load torque; unit `controller` (state I) is given the speed and
its set point and answers with the voltage at once: it has feedthrough. The motor starts at rest with the load attached.
"""

from __future__ import annotations

from cosimo.core.system import Connection, System
from cosimo.problems.checks import require_finite, require_not_negative, require_positive
from cosimo.problems.control import pi_controller
from cosimo.units import Integrator, RungeKutta4, StateSpace


def dc_motor(
    *,
    resistance: float = 0.5,
    inductance: float = 1.5e-3,
    constant: float = 0.05,
    inertia: float = 2.5e-4,
    friction: float = 1e-4,
    kp: float = 0.25,
    ki: float = 5.0,
    reference: float = 100.0,
    load: float = 0.05,
    integrator: Integrator | None = None,
    micro_steps: int = 20,
) -> System:
    """R in Ω, L in H, K in V s/rad (= N m/A), J in kg m², b in N m s/rad, kp in V s/rad, ki in V/rad.

    `reference` is the set point ω_ref in rad/s, `load` the torque in N m; both are constant. Both units make
    `micro_steps` steps of RK4 per macro step unless `integrator` says otherwise.
    """
    require_positive("dc-motor", resistance=resistance, inductance=inductance, constant=constant, inertia=inertia)
    require_not_negative("dc-motor", friction=friction, kp=kp, ki=ki)
    require_finite("dc-motor", reference=reference, load=load)
    solver = integrator or RungeKutta4()
    motor = StateSpace(
        [[-resistance / inductance, -constant / inductance], [constant / inertia, -friction / inertia]],
        [[1 / inductance, 0.0], [0.0, -1 / inertia]],
        [[0.0, 1.0], [1.0, 0.0]],
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["voltage", "load"],
        outputs=["speed", "current"],
    )
    controller = pi_controller(kp, ki, measured="speed", command="voltage", integrator=solver, micro_steps=micro_steps)
    connections = [
        Connection("controller.voltage", "motor.voltage"),
        Connection("motor.speed", "controller.speed"),
    ]
    given = {"motor.load": load, "controller.reference": reference}
    return System({"motor": motor, "controller": controller}, connections, inputs=given, name="dc-motor")
