"""Masses on springs in two and more linear units: those of the papers on compensation, and a chain of any length."""

from __future__ import annotations

import math

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import Connection, Source, System
from cosimo.units import Exact, Integrator, Mechanical, StateSpace


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


VELOCITIES = (1.0, -2.0, 3.0, -4.0)
"""Initial velocities of the four masses; they start where the springs are relaxed."""


def four_mass(*, m1: float = 1.0, k1: float = 100.0, c1: float = 0.01, integrator: Integrator | None = None) -> System:
    """A chain of four masses between walls, cut in the middle: two units of two degrees of freedom each.

        wall –[k1]– m1 –[k2]– m2 –[k3]– m3 –[k4]– m4 –[k5]– wall          every spring with a damper beside it

    Unit `left` holds masses 1 and 2 and the coupling spring k3; it is given the motion of mass 3 and returns the
    coupling
    force. Unit `right` holds masses 3 and 4 and is given that force. tamellin2022, Sec. 6: m_i = i m1, k_i = i k1,
    c_i = i c1.

    Initial velocities are those of tamellin2022, Sec. 6.2.
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
