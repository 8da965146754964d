"""The two-mass oscillator of glumac2018 (Sec. 3).

Unit `one` returns the coupling force and has feedthrough; unit `two` returns its motion. Both are integrated exactly.
B_2 is read as [0; 1/m2]. The paper gives no initial state; here mass 1 starts displaced by 1.
"""

from __future__ import annotations

import numpy as np

from cosimo.core.system import System
from cosimo.units import StateSpace


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
    """The system with the parameters of Eq. 41: masses m, stiffnesses c, dampings d; ck and dk couple the two."""
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
