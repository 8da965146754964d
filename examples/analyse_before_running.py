"""Ask for the verdict first, then run, and see that the run does what the verdict said.

A quarter car, cut between axle and body: unit `wheel` holds the axle on its tyre and the suspension, is given the
motion of the body and returns the suspension force; unit `body` is given that force and returns its motion.
"""

import numpy as np

import cosimo as co
from cosimo.units import Exact

AXLE, BODY = 40.0, 400.0  # kg
TYRE, SUSPENSION = 150e3, 21e3  # N/m
DAMPER = 1.5e3  # N s/m

wheel = co.Mechanical(
    AXLE,
    DAMPER,
    TYRE + SUSPENSION,
    B=[[SUSPENSION, DAMPER]],
    displacement=SUSPENSION,
    velocity=DAMPER,
    feedthrough=[[-SUSPENSION, -DAMPER]],
    initial=[0.01, 0.0],
    integrator=Exact(),
    inputs=["position", "velocity"],
    outputs=["force"],
)
body = co.Mechanical(
    BODY,
    0.0,
    0.0,
    B=1.0,
    displacement=[[1.0], [0.0]],
    velocity=[[0.0], [1.0]],
    integrator=Exact(),
    inputs=["force"],
    outputs=["position", "velocity"],
)
connections = [
    ("wheel.force", "body.force"),
    ("body.position", "wheel.position"),
    ("body.velocity", "wheel.velocity"),
]
car = co.System({"wheel": wheel, "body": body}, connections, name="quarter-car")

for step in (0.005, 0.05):
    master = co.masters.jacobi(car, step)
    verdict = co.analyse(car, master)
    print(verdict)

    # ρ(Φ) is the factor per macro step by which the slowest-decaying part changes; read it off a run as well.
    position = np.abs(co.run(car, master, stop=600 * step)["body.position"])
    early, late = position[200:400].max(), position[400:600].max()
    print(f"\n  in the run, amplitudes change by the factor {(late / early) ** (1 / 200):.4f} per macro step\n")
