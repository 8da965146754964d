"""Every number of richiedei2024: the compensated motor, gearbox and load."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cosimo import masters
from cosimo.analysis.stiffness import DynamicStiffness
from cosimo.compensation.assignment import Assignment, assign
from cosimo.compensation.feedback import with_feedback
from cosimo.core.arrays import Array
from cosimo.problems.claims import Claim, pole_claim
from cosimo.problems.mechanics import Motion, cosimulated_motion, energy, exact_motion, monolithic_motion
from cosimo.problems.motor_gearbox import motor_gearbox

STEP, STOP = 1e-4, 0.5
PRINTED = np.array(
    [
        [-1.2e-8, -6.2e-6, -1.7e-6, -5.5e-4],
        [-2.9e-7, -0.055, -0.055, 3.499],
        [-7.05e-4, -2.2e-5, -0.045, -0.0014],
    ]
)
"""d, f, g as printed (Sec. 3.3)."""
HALF_DIGIT = np.array(
    [
        [0.05e-8, 0.05e-6, 0.05e-6, 0.05e-4],
        [0.05e-7, 0.0005, 0.0005, 0.0005],
        [0.005e-4, 0.05e-5, 0.0005, 0.00005],
    ]
)


def claims() -> Iterator[Claim]:
    """Published against computed."""
    stiffness = DynamicStiffness(motor_gearbox(), STEP)
    assignment = assign(stiffness).require()
    yield from _poles(stiffness)
    yield from _gains(assignment)
    yield from _printed(assignment)
    yield from _energies()


def motions() -> dict[str, Motion]:
    """The free motion from θ_L = π/6 at rest: exact, monolithic, co-simulated without and with compensation."""
    system, steps = motor_gearbox(), round(STOP / STEP)
    feedback = with_feedback(assign(DynamicStiffness(system, STEP)).require(), masters.jacobi_early_read)
    return {
        "exact": exact_motion(system, STEP, steps),
        "monolithic": monolithic_motion(system, STEP, steps),
        "without compensation": cosimulated_motion(system, masters.jacobi_early_read(system, STEP), steps),
        "with compensation": cosimulated_motion(*feedback, steps),
    }


def _poles(stiffness: DynamicStiffness) -> Iterator[Claim]:
    printed = ((-0.0038 + 59.678j, 0.1644 + 59.677j), (-0.0648 + 746.25j, 1.4718 + 746.18j))
    for mode, (pole, (monolithic, cosimulated)) in enumerate(
        zip(stiffness.laplace.primary_poles(), printed, strict=True), 1
    ):
        # The second mode is printed with five significant digits and a zero behind.
        rounding = 5e-5 + 1j * (5e-4 if mode == 1 else 5e-3)
        yield pole_claim(f"Table 1: monolithic pole {mode}", monolithic, pole.monolithic, rounding)
        yield pole_claim(f"Table 1: co-simulated pole {mode}", cosimulated, pole.cosimulated, rounding)
    shapes = [pair.shape / np.linalg.norm(pair.shape) for pair in stiffness.eigenpairs()]
    yield Claim("Table 1: |w1|, entry of the motor", 0.99939, float(abs(shapes[0][0])), tolerance=5e-6)
    yield Claim("Table 1: |w1|, entry of the load", 0.034868, float(abs(shapes[0][1])), tolerance=5e-7)
    yield Claim("Table 1: |w3|, entry of the load", 0.0020413, float(abs(shapes[1][1])), tolerance=5e-8)


def _gains(assignment: Assignment) -> Iterator[Claim]:
    computed: Array = np.hstack(assignment.gains)
    names = ("x_M", "x_L*", "x_M*", "x_L")
    for row, letter in enumerate("dfg"):
        for column, signal in enumerate(names):
            yield Claim(
                f"Sec. 3.3: {letter}{column + 1} ({signal})",
                float(PRINTED[row, column]),
                float(computed[row, column]),
                tolerance=float(HALF_DIGIT[row, column]) * (1 + 1e-9),
                reason="minimum-norm solution of Eq. 16",
            )


def _printed(assignment: Assignment) -> Iterator[Claim]:
    k, half = (np.concatenate([part[:, :2].ravel(), part[:, 2:].ravel()]) for part in (PRINTED, HALF_DIGIT))
    ratio = float((np.abs(assignment.L @ k - assignment.n) / (np.abs(assignment.L) @ half)).max())
    yield Claim(
        "Sec. 3.3: the printed gains solve L k = n",
        "within their rounding",
        f"residual {ratio:.2f} of what rounding can leave",
        holds=ratio <= 1.0,
    )
    rounded = Assignment(assignment.stiffness, assignment.forces, assignment.L, assignment.n, _split(PRINTED))
    slow = rounded.primary_poles()[0].cosimulated
    yield Claim(
        "Sec. 3.3: the compensated system with the printed gains is stable",
        "matches the monolithic one",
        f"real part of mode 1: {slow.real:+.4f}",
        holds=slow.real < 0,
        reason="the digits printed do not suffice; gains must not be rounded",
    )


def _split(gains: Array) -> tuple[Array, ...]:
    return gains[:, :2], gains[:, 2:]


def _energies() -> Iterator[Claim]:
    system = motor_gearbox()
    ratios = {name: _ratio(energy(system, motion)) for name, motion in motions().items()}
    near = abs(ratios["with compensation"] - ratios["monolithic"]) < 0.01
    expected = {
        "exact": ("decays", ratios["exact"] < 1),
        "monolithic": ("decays", ratios["monolithic"] < 1),
        "without compensation": ("unstable", ratios["without compensation"] > 1),
        "with compensation": ("approaches the monolithic one", near),
    }
    for name, (said, holds) in expected.items():
        yield Claim(f"Fig. 6: energy at 0.5 s over that at the start, {name}", said, f"{ratios[name]:.4f}", holds=holds)


def _ratio(values: Array) -> float:
    return float(values[-1] / values[0])
