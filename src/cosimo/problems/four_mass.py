"""A chain of four masses between walls, cut in the middle: two units of two degrees of freedom each.

    wall –[k1]– m1 –[k2]– m2 –[k3]– m3 –[k4]– m4 –[k5]– wall          every spring with a damper beside it

Unit `left` holds masses 1 and 2 and the coupling spring k3; it is given the motion of mass 3 and returns the coupling
force. Unit `right` holds masses 3 and 4 and is given that force. tamellin2022, Sec. 6: m_i = i m1, k_i = i k1,
c_i = i c1.
"""

from __future__ import annotations

import numpy as np

from cosimo.core.arrays import Array
from cosimo.core.system import Connection, System
from cosimo.units import Integrator, Mechanical

VELOCITIES = (1.0, -2.0, 3.0, -4.0)
"""Initial velocities of the four masses; they start where the springs are relaxed."""


def four_mass(*, m1: float = 1.0, k1: float = 100.0, c1: float = 0.01, integrator: Integrator | None = None) -> System:
    """The system; initial velocities are those of tamellin2022, Sec. 6.2."""
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
