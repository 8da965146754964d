"""A unit in C: a few lines, compiled by the system's compiler, run in the compiled loop without any Python in between.

A `NativeUnit` is two C functions, given by address. All that the unit remembers stands in x, which the library saves,
restores and copies; the functions themselves must keep nothing. The same unit in Python shows that both say the same.
"""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import cosimo as co
from cosimo.units import NativeUnit

CODE = """
#include <math.h>

/* A pendulum of 1 m and 1 kg with a torque at its hinge; x = (angle, speed). Ten micro steps, speed first. */
int swing(double time, double duration, double *x, const double *u, double *y) {
    const double dt = duration / 10;
    for (int i = 0; i < 10; ++i) {
        x[1] += dt * (u[0] - 9.81 * sin(x[0]));
        x[0] += dt * x[1];
    }
    y[0] = x[0];
    y[1] = x[1];
    return 0;   /* anything else ends the run, with this number, the unit and the time in the error */
}
"""


class Pendulum:
    inputs, outputs = ("torque",), ("angle", "speed")

    def __init__(self) -> None:
        self.angle, self.speed, self.torque = 2.0, 0.0, 0.0

    def step(self, time: float, duration: float) -> None:
        dt = duration / 10
        for _ in range(10):
            self.speed += dt * (self.torque - 9.81 * math.sin(self.angle))
            self.angle += dt * self.speed


def compiled(folder: Path) -> int:
    """The address of `swing`. The loaded library stays in memory; the file may go."""
    (folder / "swing.c").write_text(CODE, encoding="utf-8")
    options = ["-O2", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run(["cc", *options, "swing.c", "-o", "swing.so", "-lm"], cwd=folder, check=True)
    return ctypes.cast(ctypes.CDLL(str(folder / "swing.so")).swing, ctypes.c_void_p).value or 0


with tempfile.TemporaryDirectory() as temporary:
    step = compiled(Path(temporary))
native = NativeUnit(step, inputs=["torque"], outputs=["angle", "speed"], initial=[2.0, 0.0], initial_outputs=[2.0, 0.0])
brake = co.StateSpace(-50.0, 50.0, -0.4, inputs=["speed"], outputs=["torque"])
connections = [("pendulum.speed", "brake.speed"), ("brake.torque", "pendulum.torque")]

angles = []
for unit in (native, co.PythonUnit(Pendulum)):
    system = co.System({"pendulum": unit, "brake": brake}, connections)
    angles.append(co.run(system, co.masters.gauss_seidel(system, step=0.01), stop=10.0)["pendulum.angle"])
print(f"angle after 10 s: {angles[0][-1]:.6f}")
print(f"largest difference between C and Python: {np.abs(angles[0] - angles[1]).max():.0e}")
