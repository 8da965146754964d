"""A chain of n oscillators, for measuring how things grow with the number of units."""

from __future__ import annotations

import numpy as np

from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.units import Exact, Mechanical


def chain(*, n: int = 10, stiffness: float = 100.0, damping: float = 1.0, coupling: float = 20.0) -> System:
    """n unit masses, each with its own spring and damper to ground, neighbours joined by springs `coupling`.

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
