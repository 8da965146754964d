"""Masses on springs in linear units: those of the papers on compensation, a wheel, and a chain of any length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Connection, Source, System
from cosimo.problems import require
from cosimo.units import Exact, Integrator, Mechanical, StateSpace


def moving_mass(m: float, c: float, k: float, *, B: Any = 1.0, **more: Any) -> Mechanical:
    """A mass on a spring and a damper that is given a force and returns its position and velocity."""
    return Mechanical(m, c, k, B=B, displacement=[[1.0], [0.0]], velocity=[[0.0], [1.0]], **more)


def mass_with_spring(
    m: float,
    c: float,
    k: float,
    spring: tuple[float, float],
    *,
    outputs: Sequence[str],
    sign: float = 1.0,
    lever: float = 1.0,
    **more: Any,
) -> Mechanical:
    """A mass with c and k of its own that also holds the `spring` (stiffness, damping) to another mass.

    It is given the motion x, v of the other and returns the force `sign` (kc (lever q − x) + cc (lever q̇ − v)), at
    once, so that it has feedthrough; then, where `outputs` names them, its own position and velocity.
    """
    kc, cc = spring
    shown = slice(len(outputs))
    return Mechanical(
        m,
        lever**2 * cc + c,
        lever**2 * kc + k,
        B=[[lever * kc, lever * cc]],
        displacement=[[sign * lever * kc], [1.0], [0.0]][shown],
        velocity=[[sign * lever * cc], [0.0], [1.0]][shown],
        feedthrough=[[-sign * kc, -sign * cc], [0.0, 0.0], [0.0, 0.0]][shown],
        outputs=outputs,
        **more,
    )


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
    """Two masses between walls, cut at the coupling spring: force one way, displacement and velocity the other.

        wall –[k1, c1]– m1 –[kc, cc]– m2 –[k2, c2]– wall

    Unit `one` holds mass 1 and the coupling spring; it is given the motion of mass 2 and returns the coupling force
    f_c = −kc (x1 − x2) − cc (v1 − v2), at once: it has feedthrough. Unit `two` holds mass 2 and is given that force.
    tamellin2022, Sec. 2.3 (parameters) and 5.2 (initial velocities 100 and −100 m/s, symplectic Euler in both units).

    `damping` is c1 = c2 = cc in N s/m, stiffnesses in N/m, masses in kg.

    `dampers` gives c1, c2 and cc apart, `velocities` the initial ones in m/s, `force` an external force on mass 2.
    """
    c1, c2, cc = dampers or (damping, damping, damping)
    first: Any = {"initial": [0.0, velocities[0]], "inputs": ["x2", "v2"], "outputs": ["f"], "integrator": integrator}
    one = mass_with_spring(m1, c1, k1, (kc, cc), sign=-1.0, **first)
    inputs = ["f"] if force is None else ["f", "force"]
    second: Any = {"initial": [0.0, velocities[1]], "inputs": inputs, "outputs": ["x", "v"], "integrator": integrator}
    two = moving_mass(m2, c2, k2, B=[[1.0] * len(inputs)], **second)
    driven = {} if force is None else {"two.force": force}
    return System({"one": one, "two": two}, FORCE_AND_MOTION, inputs=driven, name=name)


# The coupling force acts on mass 2 in the opposite direction.
FORCE_AND_MOTION = (
    Connection("one.f", "two.f", gain=-1.0),
    Connection("two.x", "one.x2"),
    Connection("two.v", "one.v2"),
)


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


def two_mass_glumac(
    *,
    m1: float = 10.0,
    c1: float = 1.0,
    d1: float = 1.0,
    ck: float = 1.0,
    dk: float = 2.0,
    m2: float = 10.0,
    c2: float = 1.0,
    d2: float = 2.0,
) -> System:
    """The two-mass oscillator of glumac2018 (Sec. 3).

    Unit `one` returns the coupling force and has feedthrough; unit `two` returns its motion. Both are integrated
    exactly. B_2 is read as [0; 1/m2]. The paper gives no initial state; here mass 1 starts displaced by 1.

    Parameters of Eq. 41: masses m, stiffnesses c, dampings d; ck and dk couple the two.
    """
    one = StateSpace(
        [[0.0, 1.0], [-(c1 + ck) / m1, -(d1 + dk) / m1]],
        [[0.0, 0.0], [ck / m1, dk / m1]],
        [[ck, dk]],
        [[-ck, -dk]],
        initial=[1.0, 0.0],
        inputs=["x", "v"],
        outputs=["F"],
    )
    two = StateSpace([[0.0, 1.0], [-c2 / m2, -d2 / m2]], [[0.0], [1 / m2]], np.eye(2), inputs=["F"], outputs=["x", "v"])
    connections = [("one.F", "two.F"), ("two.x", "one.x"), ("two.v", "one.v")]
    return System({"one": one, "two": two}, connections, name="two-mass-glumac")


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
    """The double mass-spring-damper of gomes2018 (Fig. 2).

    Both units are exact. Unit `one` returns its motion; unit `two` holds the coupling spring, returns its force and has
    feedthrough.

    Masses m, springs c, dampers d as in the paper's figure; cc and dc couple the two.
    """
    one = moving_mass(m1, d1, c1, initial=[1.0, 0.0], integrator=Exact(), inputs=["f"], outputs=["x", "v"])
    two = mass_with_spring(m2, d2, c2, (cc, dc), integrator=Exact(), inputs=["x1", "v1"], outputs=["f"])
    connections = [("two.f", "one.f"), ("one.x", "two.x1"), ("one.v", "two.v1")]
    return System({"one": one, "two": two}, connections, name="double-mass-spring-damper")


VELOCITIES = (1.0, -2.0, 3.0, -4.0)
"""Initial velocities of the four masses; they start where the springs are relaxed."""


def four_mass(*, m1: float = 1.0, k1: float = 100.0, c1: float = 0.01, integrator: Integrator | None = None) -> System:
    """A chain of four masses between walls, cut in the middle: two units of two degrees of freedom each.

        wall –[k1]– m1 –[k2]– m2 –[k3]– m3 –[k4]– m4 –[k5]– wall          every spring with a damper beside it

    Unit `left` holds masses 1 and 2 and the coupling spring k3; it is given the motion of mass 3 and returns the
    coupling force. Unit `right` holds masses 3 and 4 and is given that force. tamellin2022, Sec. 6: m_i = i m1,
    k_i = i k1, c_i = i c1, and Sec. 6.2: initial velocities.
    """
    m = m1 * np.arange(1.0, 5.0)
    k, c = (first * np.arange(1.0, 6.0) for first in (k1, c1))

    def inner(values: Array, shared: float) -> Array:
        """Stiffness or damping of masses 1 and 2; the coupling spring holds mass 2 as well."""
        return np.array([[values[0] + values[1], -values[1]], [-values[1], values[1] + shared]])

    def outer(values: Array) -> Array:
        """Stiffness or damping of masses 3 and 4 without the coupling spring."""
        return np.array([[values[3], -values[3]], [-values[3], values[3] + values[4]]])

    left = Mechanical(
        np.diag(m[:2]),
        inner(c, c[2]),
        inner(k, k[2]),
        B=[[0.0, 0.0], [k[2], c[2]]],
        displacement=[[0.0, -k[2]], [1.0, 0.0], [0.0, 1.0]],
        velocity=[[0.0, -c[2]], [0.0, 0.0], [0.0, 0.0]],
        feedthrough=[[k[2], c[2]], [0.0, 0.0], [0.0, 0.0]],
        initial=[0.0, 0.0, *VELOCITIES[:2]],
        integrator=integrator,
        inputs=["x3", "v3"],
        outputs=["f", "x1", "x2"],
    )
    right = Mechanical(
        np.diag(m[2:]),
        outer(c),
        outer(k),
        B=[[1.0], [0.0]],
        displacement=[[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]],
        velocity=[[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]],
        initial=[0.0, 0.0, *VELOCITIES[2:]],
        integrator=integrator,
        inputs=["f"],
        outputs=["x3", "v3", "x4"],
    )
    back = Connection("left.f", "right.f", gain=-1.0)
    connections = [back, Connection("right.x3", "left.x3"), Connection("right.v3", "left.v3")]
    return System({"left": left, "right": right}, connections, name="four-mass")


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
    outputs = ["torque", "angle", "speed"]
    motor = mass_with_spring(
        rotor + gearbox, ct, kt, (k, c), lever=ratio, integrator=integrator,
        inputs=["load_angle", "load_speed"], outputs=outputs,
    )  # fmt: skip
    start = [np.pi / 6, 0.0]
    turned = moving_mass(load, 0.0, 0.0, initial=start, integrator=integrator, inputs=["torque"], outputs=outputs[1:])
    back = [("load.angle", "motor.load_angle"), ("load.speed", "motor.load_speed")]
    return System({"motor": motor, "load": turned}, [("motor.torque", "load.torque"), *back], name="motor-gearbox")


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
    require("quarter-truck", locals(), positive="ms mu", not_negative="ks cs kt", finite="road")
    how: Any = {"integrator": integrator or Exact(), "micro_steps": micro_steps}
    names, outputs = ["wheel_position", "wheel_velocity"], ["force", "position", "velocity"]
    chassis = mass_with_spring(ms, 0.0, 0.0, (ks, cs), inputs=names, outputs=outputs, **how)
    wheel = moving_mass(mu, 0.0, kt, B=[[1.0, kt]], inputs=["force", "road"], outputs=outputs[1:], **how)
    back = [("wheel.position", "chassis.wheel_position"), ("wheel.velocity", "chassis.wheel_velocity")]
    connections = [("chassis.force", "wheel.force"), *back]
    height = {"wheel.road": road if profile is None else profile}
    return System({"chassis": chassis, "wheel": wheel}, connections, inputs=height, name="quarter-truck")


def chain(*, n: int = 10, stiffness: float = 100.0, damping: float = 1.0, coupling: float = 20.0) -> System:
    """A chain of n oscillators, for measuring how things grow with the number of units.

    n unit masses, each with its own spring and damper to ground, neighbours joined by springs `coupling`.

    Every unit is given the displacements of its neighbours and returns its own: no feedthrough. Unit `u1` starts
    displaced by 1.
    """
    if not 1 <= n <= 100_000:
        raise ConfigurationError(f"a chain has 1 to 100,000 units, not {n}.")
    units, connections = {}, []
    for i in range(1, n + 1):
        neighbours = [name for name, there in (("left", i > 1), ("right", i < n)) if there]
        units[f"u{i}"] = Mechanical(
            1.0,
            damping,
            stiffness + coupling * len(neighbours),
            B=np.full((1, len(neighbours)), coupling),
            displacement=1.0,
            initial=[float(i == 1), 0.0],
            integrator=Exact(),
            inputs=neighbours,
            outputs=["x"],
        )
        connections += [(f"u{i - 1}.x", f"u{i}.left")] * (i > 1) + [(f"u{i + 1}.x", f"u{i}.right")] * (i < n)
    return System(units, connections, name=f"chain of {n}")
