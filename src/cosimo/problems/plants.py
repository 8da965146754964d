"""Small plants of two linear units, with a controller or a contact."""

from __future__ import annotations

import math
from typing import Any

from cosimo.core.system import System
from cosimo.problems import require
from cosimo.units import Exact, ForwardEuler, Integrator, RungeKutta4, StateSpace


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
    """A DC motor under a PI speed controller.

        L i̇ = V − R i − K ω,      J ω̇ = K i − b ω − T_load
        İ = ki (ω_ref − ω),       V = kp (ω_ref − ω) + I

    Unit `motor` (state [i, ω]) is given the voltage and the load torque; unit `controller` (state I) is given the speed
    and its set point and answers with the voltage at once: it has feedthrough. The motor starts at rest with the load
    attached.

    R in Ω, L in H, K in V s/rad (= N m/A), J in kg m², b in N m s/rad, kp in V s/rad, ki in V/rad.

    `reference` is the set point ω_ref in rad/s, `load` the torque in N m; both are constant. Both units make
    `micro_steps` steps of RK4 per macro step unless `integrator` says otherwise.
    """
    positive = "resistance inductance constant inertia"
    require("dc-motor", locals(), positive=positive, not_negative="friction kp ki", finite="reference load")
    how: Any = {"integrator": integrator or RungeKutta4(), "micro_steps": micro_steps}
    A = [[-resistance / inductance, -constant / inductance], [constant / inertia, -friction / inertia]]
    B, C = [[1 / inductance, 0.0], [0.0, -1 / inertia]], [[0.0, 1.0], [1.0, 0.0]]
    motor = StateSpace(A, B, C, inputs=["voltage", "load"], outputs=["speed", "current"], **how)
    controller = pi_controller(kp, ki, measured="speed", command="voltage", **how)
    connections = [("controller.voltage", "motor.voltage"), ("motor.speed", "controller.speed")]
    given = {"motor.load": load, "controller.reference": reference}
    return System({"motor": motor, "controller": controller}, connections, inputs=given, name="dc-motor")


def tank(
    *,
    area: float = 0.5,
    outflow: float = 0.02,
    level: float = 1.5,
    kp: float = 0.05,
    ki: float = 0.002,
    reference: float = 0.1,
    integrator: Integrator | None = None,
    micro_steps: int = 1,
) -> System:
    """A tank whose level a PI controller holds, linear about its operating point.

        a ẋ = q − k x,            k = c / (2 √h0)        from  a ḣ = Q − c √h  with  h = h0 + x,  Q = c √h0 + q
        İ = ki (x_ref − x),       q = kp (x_ref − x) + I

    Unit `tank` (state x, the level above h0) is given the change q of the inflow; unit `controller` (state I) is given
    the level and its set point and answers with q at once: it has feedthrough. The run begins with a step of the set
    point.

    `area` a in m², `outflow` c in m^2.5/s, operating `level` h0 in m, kp in m²/s, ki in m²/s², `reference` in m.
    """
    require("tank", locals(), positive="area outflow level", not_negative="kp ki", finite="reference")
    how: Any = {"integrator": integrator or Exact(), "micro_steps": micro_steps}
    rate = -outflow / (2 * math.sqrt(level) * area)
    vessel = StateSpace(rate, 1 / area, 1.0, inputs=["inflow"], outputs=["level"], **how)
    controller = pi_controller(kp, ki, measured="level", command="inflow", **how)
    connections = [("controller.inflow", "tank.inflow"), ("tank.level", "controller.level")]
    given = {"controller.reference": reference}
    return System({"tank": vessel, "controller": controller}, connections, inputs=given, name="tank")


def thermal_pair(
    *,
    c1: float = 2.0,
    c2: float = 2_000.0,
    contact: float = 5.0,
    g1: float = 0.05,
    g2: float = 2.0,
    power: float = 20.0,
    warm: float = 5.0,
    integrator: Integrator | None = None,
    micro_steps: int = 10,
) -> System:
    """A stiff thermal pair: a small body, quick to warm, on a large one that is slow.

        C1 Ṫ1 = P − q − g1 T1,       q = G (T1 − T2)
        C2 Ṫ2 = q − g2 T2

    Unit `device` holds the small body; it is given the heat flow q that leaves it and the power P. Unit `sink` holds
    the large body and the contact; it is given T1 and returns q at once: it has feedthrough. Temperatures are measured
    from the surroundings. The time constants C1/G and C2/g2 lie more than three decades apart; the small one limits the
    macro step.

    C1 and C2 in J/K, conductances G (`contact`), g1 and g2 in W/K, P in W; the sink starts `warm` K above all else.

    Both units make `micro_steps` forward Euler steps per macro step unless `integrator` says otherwise.
    """
    require("thermal-pair", locals(), positive="c1 c2", not_negative="contact g1 g2", finite="power warm")
    how: Any = {"integrator": integrator or ForwardEuler(), "micro_steps": micro_steps}
    device = StateSpace(-g1 / c1, [[-1 / c1, 1 / c1]], 1.0, inputs=["flow", "power"], outputs=["temperature"], **how)
    A, B, C, D = -(contact + g2) / c2, contact / c2, [[-contact], [1.0]], [[contact], [0.0]]
    outputs = ["flow", "own_temperature"]
    sink = StateSpace(A, B, C, D, initial=warm, inputs=["temperature"], outputs=outputs, **how)
    connections = [("sink.flow", "device.flow"), ("device.temperature", "sink.temperature")]
    return System({"device": device, "sink": sink}, connections, inputs={"device.power": power}, name="thermal-pair")


def pi_controller(kp: float, ki: float, *, measured: str, command: str, **how: Any) -> StateSpace:
    """A PI controller, İ = ki (r − y), u = kp (r − y) + I.

    It has state I, inputs `measured` (y) and `reference` (r), and output `command` (u), given at once.

    >>> pi_controller(2.0, 0.5, measured="speed", command="voltage").inputs
    ('speed', 'reference')
    """
    return StateSpace(0.0, [[-ki, ki]], 1.0, [[-kp, kp]], inputs=[measured, "reference"], outputs=[command], **how)
