"""The same two units at the same step under different masters: predicted before running, then measured.

Only the order of calls and the hold differ. `bound` is the worst case over all initial states (nothing simulated),
`run` the largest error of x2 in the run from the problem's own initial state, relative to the largest x2.
"""

import numpy as np

import cosimo as co
from cosimo.algebra import LinearSystem
from cosimo.analysis import Spectrum, global_error
from cosimo.couplings import Hold
from cosimo.masters import gauss_seidel, iterative, jacobi, jacobi_early_read
from cosimo.units import Exact

STEP, STOP = 4e-3, 5.0
system = co.problems.two_mass(integrator=Exact())
masters = {
    "jacobi": jacobi(system, STEP),
    "jacobi-early-read": jacobi_early_read(system, STEP),
    "jacobi, hold 1": jacobi(system, STEP, coupling=Hold(1)),
    "jacobi, hold 2": jacobi(system, STEP, coupling=Hold(2)),
    "gauss-seidel": gauss_seidel(system, STEP, order=["two", "one"]),
    "gauss-seidel, hold 1": gauss_seidel(system, STEP, order=["two", "one"], coupling=Hold(1)),
    "iterative, hold 1": iterative(system, STEP, coupling=Hold(1)),
}

# The exact solution: the coupled system as one model, stepped by its matrix exponential.
steps = round(STOP / STEP)
flow = LinearSystem(system, masters["jacobi"]).coupled.flow(STEP)
state = np.concatenate([unit.initial_state for unit in system.units.values()])
exact = []
for _ in range(steps + 1):
    exact.append(state[2])  # the state is [x1, v1, x2, v2]
    state = flow @ state

print(f"{'master':22} {'schedule':34} {'stable':7} {'bound':>8} {'run':>8}")
for name, master in masters.items():
    linear = LinearSystem(system, master)  # `co.analyse` gives all of this and more; these are its parts
    stable = "yes" if Spectrum(linear).stable else "NO"
    bound = global_error(linear, steps=steps).outputs["two.x"]
    error = np.abs(co.run(system, master, stop=STOP)["two.x"] - exact).max() / np.abs(exact).max()
    print(f"{name:22} {master!s:34} {stable:7} {bound:8.2%} {error:8.2%}")
