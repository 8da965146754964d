"""Small plants of two linear units: a servomotor, a wheel, and three with a controller or a contact."""

from __future__ import annotations

import math

import numpy as np

from cosimo.core.system import Connection, Source, System
from cosimo.problems.catalogue import require_finite, require_not_negative, require_positive
from cosimo.units import Exact, ForwardEuler, Integrator, Mechanical, RungeKutta4, StateSpace


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
    """A servomotor that drives a load through an elastic gearbox.

    Unit `motor` holds rotor and gearbox; it is given the load's angle and speed and returns the gearbox torque
    T_C = −k (θ_L − τ θ_M) − c (ω_L − τ ω_M), at once. Unit `load` is the inertia that this torque turns.
    richiedei2024, Eqs. 1-5; the load starts turned by π/6 at rest.

    Moments of inertia in kg m², stiffness k and kt in N m/rad, damping c and ct in N m s/rad; gear ratio 1/32.
    """
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
    """A quarter of a vehicle: the body on its suspension, the wheel on its tyre, cut between suspension and wheel.

        ms z̈s = −f,                     f = ks (zs − zw) + cs (żs − żw)
        mu z̈w =  f − kt (zw − r)

    Unit `chassis` holds the sprung mass and the suspension; it is given the motion of the wheel and returns the
    suspension force f, at once: it has feedthrough. Unit `wheel` holds the unsprung mass and the tyre; it is given f
    and the height r of the road. Positions are measured from rest on a road of height 0. The values are usual for a
    passenger car: body mode near 1 Hz, wheel hop near 11 Hz.

    Masses in kg, stiffnesses in N/m, damping in N s/m; the road is a step of height `road` in m at t = 0, or `profile`
    over time. Both units start at rest at height 0 and solve their equations exactly unless `integrator` is given.
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
    height = {"wheel.road": road if profile is None else profile}
    return System({"chassis": chassis, "wheel": wheel}, connections, inputs=height, name="quarter-truck")


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
    require_positive("tank", area=area, outflow=outflow, level=level)
    require_not_negative("tank", kp=kp, ki=ki)
    require_finite("tank", reference=reference)
    solver = integrator or Exact()
    vessel = StateSpace(
        -outflow / (2 * math.sqrt(level) * area),
        1 / area,
        1.0,
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["inflow"],
        outputs=["level"],
    )
    controller = pi_controller(kp, ki, measured="level", command="inflow", integrator=solver, micro_steps=micro_steps)
    connections = [Connection("controller.inflow", "tank.inflow"), Connection("tank.level", "controller.level")]
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
    require_positive("thermal-pair", c1=c1, c2=c2)
    require_not_negative("thermal-pair", contact=contact, g1=g1, g2=g2)
    require_finite("thermal-pair", power=power, warm=warm)
    solver = integrator or ForwardEuler()
    device = StateSpace(
        -g1 / c1,
        [[-1 / c1, 1 / c1]],
        1.0,
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["flow", "power"],
        outputs=["temperature"],
    )
    sink = StateSpace(
        -(contact + g2) / c2,
        contact / c2,
        [[-contact], [1.0]],
        [[contact], [0.0]],
        initial=warm,
        integrator=solver,
        micro_steps=micro_steps,
        inputs=["temperature"],
        outputs=["flow", "own_temperature"],
    )
    connections = [
        Connection("sink.flow", "device.flow"),
        Connection("device.temperature", "sink.temperature"),
    ]
    return System({"device": device, "sink": sink}, connections, inputs={"device.power": power}, name="thermal-pair")


def pi_controller(
    kp: float, ki: float, *, measured: str, command: str, integrator: Integrator, micro_steps: int
) -> StateSpace:
    """A PI controller, İ = ki (r − y), u = kp (r − y) + I.

    It has state I, inputs `measured` (y) and `reference` (r), and output `command` (u), given at once.

    >>> from cosimo.units import Exact
    >>> pi_controller(2.0, 0.5, measured="speed", command="voltage", integrator=Exact(), micro_steps=1).inputs
    ('speed', 'reference')
    """
    return StateSpace(
        0.0,
        [[-ki, ki]],
        1.0,
        [[-kp, kp]],
        integrator=integrator,
        micro_steps=micro_steps,
        inputs=[measured, "reference"],
        outputs=[command],
    )
