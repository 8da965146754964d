"""An algebraic loop: two units whose outputs depend on each other at the same instant.

A carrier is given a force and returns its acceleration; the payload on it is given the acceleration and returns its
inertial force, f = −m2 a. Around the loop the gain is m2 / m1 = 1.5: substituting outputs into inputs again and again
moves away from the solution. Anderson acceleration finds it in a few sweeps. Together the two are one mass m1 + m2 on
a spring, so that the right answer is known.
"""

import numpy as np

import cosimo as co
from cosimo.algebra import LinearSystem
from cosimo.analysis import sweep_factor
from cosimo.couplings import Hold
from cosimo.masters import Convergence, iterative
from cosimo.units import Exact

M1, M2, K = 10.0, 15.0, 1000.0
carrier = co.Mechanical(
    M1,
    0.0,
    K,
    B=1.0,
    displacement=[[1.0], [0.0]],
    acceleration=[[0.0], [1.0]],
    initial=[0.01, 0.0],
    integrator=Exact(),
    inputs=["force"],
    outputs=["position", "acceleration"],
)
payload = co.StateSpace(0.0, 1.0, 0.0, -M2, inputs=["acceleration"], outputs=["force"])
system = co.System(
    {"carrier": carrier, "payload": payload},
    [("payload.force", "carrier.force"), ("carrier.acceleration", "payload.acceleration")],
    name="carrier with payload",
)
plain = iterative(system, 0.01, sweeps=Convergence(limit=20), coupling=Hold(1))
anderson = iterative(system, 0.01, sweeps=Convergence(anderson=2), coupling=Hold(1))

print("algebraic loop:", " → ".join(system.loops()[0]))
factor = sweep_factor(LinearSystem(system, plain))
print(f"before running: each sweep of plain substitution multiplies the error by {factor:.3f}")

for name, master in (("plain", plain), ("Anderson", anderson)):
    result = co.run(system, master, stop=0.5)
    for warning in result.warnings:
        print(f"{name}: warning: {warning}")
    exact = 0.01 * np.cos(np.sqrt(K / (M1 + M2)) * result.time)
    error = np.abs(result["carrier.position"] - exact).max() / 0.01
    sweeps = result.info["sweeps"] / result.info["steps"]
    print(f"{name}: {sweeps:.1f} sweeps per step, error of the position {error:.2g} of its size")
