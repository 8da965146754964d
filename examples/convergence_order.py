"""How fast the error of a run vanishes as the step shrinks: measured for each hold, beside the order it declares.

No exact solution is needed: if the error falls like h^p, then so does the difference of the runs with h and h/2. The
system is pushed smoothly from rest. That matters: before the start a coupling takes signals as constant, and where this
is wrong (an initial velocity) the first exchanges cost accuracy that no later one gives back. The last column shows it.
"""

from itertools import pairwise

import numpy as np

import cosimo as co
from cosimo.couplings import Hold

STEPS = [0.01, 0.005, 0.0025, 0.00125]
STOP = 2.0


def push(time: float) -> float:
    """A force that begins with value and first three derivatives zero."""
    return float(10.0 * np.sin(np.pi * time / STOP) ** 4)


def system(position: float, velocity: float) -> co.System:
    """An oscillator that drives a first-order filter, which acts back on it."""
    one = co.StateSpace(
        [[0.0, 1.0], [-9.0, -0.5]],
        [[0.0, 0.0], [1.0, 2.0]],
        [[1.0, 0.0]],
        initial=[position, velocity],
        inputs=["push", "back"],
        outputs=["x"],
    )
    two = co.StateSpace(-2.0, 2.0, 1.0, inputs=["x"], outputs=["lagged"])
    connections = [("one.x", "two.x"), ("two.lagged", "one.back")]
    return co.System({"one": one, "two": two}, connections, inputs={"one.push": push})


def differences(coupled: co.System, hold: Hold) -> list[float]:
    """How much the final values change each time the step is halved."""
    finals = []
    for step in STEPS:
        # The push is known ahead and interpolated, so that it does not limit the order.
        master = co.masters.jacobi(coupled, step, coupling=hold, couplings={"one.push": Hold(2)})
        finals.append(co.run(coupled, master, stop=STOP).values[-1])
    return [float(np.abs(coarse - fine).max()) for coarse, fine in pairwise(finals)]


at_rest, moving = system(0.0, 0.0), system(1.0, 5.0)
heads = "   ".join(f"{coarse:6g} → {fine:<7g}" for coarse, fine in pairwise(STEPS))
print(f"hold   declared   {heads}   from rest   with initial velocity")
for hold in (Hold(0), Hold(1), Hold(2)):
    found, moved = differences(at_rest, hold), differences(moving, hold)
    row = "   ".join(f"{difference:16.2e}" for difference in found)
    measured, affected = (np.log2(d[-2] / d[-1]) for d in (found, moved))
    print(f"{hold.degree:4d}   {hold.error_order:8d}   {row}   {measured:9.2f}   {affected:21.2f}")
