"""Units with different steps: a fast actuator takes ten steps while the slow structure, expensive to call, takes one.

With "held" inputs the actuator sees the structure's last value during the whole slow step. With "interpolated" inputs
the structure goes first, and the actuator interpolates between its two latest values.
"""

import cosimo as co
from cosimo.couplings import Hold
from cosimo.units import Exact, ForwardEuler

FAST, RATIO, STOP = 1e-3, 10, 4.0
structure = co.Mechanical(
    50.0,
    20.0,
    5000.0,
    B=1.0,
    velocity=1.0,
    initial=[0.1, 0.0],
    integrator=Exact(),
    inputs=["force"],
    outputs=["velocity"],
)
# A damping actuator that follows −200 N s/m times the velocity with a lag of 4 ms; its Euler solver needs small steps.
actuator = co.StateSpace(-250.0, -250.0 * 200.0, 1.0, integrator=ForwardEuler(), inputs=["velocity"], outputs=["force"])
system = co.System(
    {"structure": structure, "actuator": actuator},
    [("actuator.force", "structure.force"), ("structure.velocity", "actuator.velocity")],
    name="damped structure",
)

multiples = {"structure": RATIO}
masters = {
    "both 10 ms": co.masters.gauss_seidel(system, FAST * RATIO, coupling=Hold(1)),
    "both 1 ms": co.masters.gauss_seidel(system, FAST, coupling=Hold(1)),
    "multirate, held": co.masters.multirate(system, FAST, multiples=multiples),
    "multirate, interpolated": co.masters.multirate(system, FAST, multiples=multiples, inputs="interpolated"),
}
print(f"{'master':24} {'stable':7} {'structure called':>17} {'error of velocity':>18}")
for name, master in masters.items():
    verdict = co.analyse(system, master, horizon=STOP, details=False)
    steps = round(STOP / master.step)  # the macro step of a multirate master is the longest step in it
    error = f"{verdict.error.outputs['structure.velocity']:.2%}" if verdict.stable else "grows"
    print(f"{name:24} {'yes' if verdict.stable else 'NO':7} {steps:11d} times {error:>18}")

result = co.run(system, masters["multirate, interpolated"], stop=STOP)
print(f"{result}, schedule {str(masters['multirate, interpolated'])[:31]} …")
