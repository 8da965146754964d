"""Every claim of pikulinski2025: prediction of the other unit by windowed dynamic mode decomposition.

All runs use `masters.jacobi` with the inputs of the unit that feeds them through either held or predicted (`Dmd`); the
paper's own start holds the input until two pairs are known, ours begins with x + h v.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.couplings import Dmd, Hold
from cosimo.execution import run
from cosimo.problems.claims import Claim
from cosimo.problems.manipulator import Manipulator, manipulator_pressure, manipulator_steps, steps
from cosimo.problems.measures import nmse, relative_error
from cosimo.problems.oscillators import LINEAR, NONLINEAR, Oscillator
from cosimo.problems.pendula import Pendula

HELD = Hold(0)
FINE = 2e-4
"""The step of the hydraulics in s, and of the manipulator's reference."""
KINEMATIC = {
    "one": (("x2", "v2"),),
    "single": (("x2", "vx2"), ("y2", "vy2")),
    "hydraulics": (("s", "v"),),
}
"""Positions and velocities among the predicted inputs, by unit."""


def papers_dmd(window: int) -> Dmd:
    """The paper's method: recursive update and downdate, no prior knowledge."""
    return Dmd(window, "recursive", pairs=())


def robust_dmd(unit: str, window: int | None = None) -> Dmd:
    """Ours, with the kinematic start; without a window it is chosen automatically."""
    return Dmd(pairs=KINEMATIC[unit]) if window is None else Dmd(window, pairs=KINEMATIC[unit])


def predicted(system: System, unit: str, coupling: Coupling, *, step: float, stop: float) -> Result:
    """The system with this coupling at all inputs of `unit`, and holds elsewhere."""
    targets = [f"{unit}.{variable}" for variable in system.units[unit].inputs]
    return run(system, masters.jacobi(system, step, couplings=dict.fromkeys(targets, coupling)), stop=stop)


def oscillator_error(problem: Oscillator, coupling: Coupling, step: float, stop: float = 10.0) -> Array:
    """The relative error of the energy against the monolithic run."""
    found = predicted(problem.system(), "one", coupling, step=step, stop=stop)
    return relative_error(problem.energy(problem.reference(step=step, stop=stop)), problem.energy(found))


def oscillator_nmse(problem: Oscillator, coupling: Coupling, step: float = 0.01, stop: float = 10.0) -> float:
    """Eq. 21 of the two positions."""
    found = predicted(problem.system(), "one", coupling, step=step, stop=stop)
    return nmse(*(_positions(result) for result in (problem.reference(step=step, stop=stop), found)))


def pendula_error(coupling: Coupling, *, step: float = 1e-3, stop: float = 5.0) -> Array:
    """The error of the energy in J against the monolithic run."""
    problem = Pendula()
    found = predicted(problem.system(), "single", coupling, step=step, stop=stop)
    error: Array = problem.energy(found) - problem.energy(problem.reference(step=step, stop=stop))
    return error


def manipulator_errors(
    system: System, coupling: Coupling, *, step: float, stepped: bool = False
) -> tuple[Array, Array]:
    """The errors of the actuator's length in mm and rate in mm/s against the monolithic run at `FINE`."""
    count = int(10.0 / step)
    found = predicted(system, "hydraulics", coupling, step=step, stop=count * step)
    reference, every = _manipulator_reference(stepped), round(step / FINE)
    rows = slice(0, count * every + 1, every)
    length, rate = (1e3 * (found[name] - reference[name][rows]) for name in ("mechanics.s", "mechanics.v"))
    return length, rate


def claims() -> Iterator[Claim]:
    """Published against computed."""
    yield from _linear()
    yield from _nonlinear()
    yield from _pendula()
    yield from _manipulator()


@cache
def _manipulator_reference(stepped: bool) -> Result:
    problem = Manipulator(control=steps(Manipulator().equilibrium[2])) if stepped else Manipulator()
    return problem.reference(step=FINE, stop=10.0)


def _positions(result: Result) -> Array:
    return np.column_stack([result["one.x"], result["two.x"]])


def _linear() -> Iterator[Claim]:
    found = predicted(LINEAR.system(), "one", papers_dmd(100), step=0.01, stop=10.0)
    learned = np.array(found.info["learned"][0]["S"])
    printed = np.array([[0.9, 0.01, -0.0001], [-10.0, 1.0, -0.01]])
    for row, column in np.ndindex(printed.shape):
        yield Claim(
            f"Eq. 24: S[{row + 1}, {column + 1}] as learned",
            float(printed[row, column]),
            float(learned[row, column]),
            tolerance=5e-5,
        )
    after = predicted(LINEAR.system(), "one", papers_dmd(100), step=0.01, stop=0.04).info["learned"][0]["S"]
    gap = float(np.abs(np.array(after) - LINEAR.inferred(0.01)).max())
    yield Claim("Sec. 3.1.1: the model is exact after three pairs", "exact", f"differs by {gap:.0e}", holds=gap < 1e-10)
    held = predicted(LINEAR.system(), "one", HELD, step=1e-3, stop=10.0)
    energy = float(LINEAR.energy(held)[-1])
    yield Claim(
        "Sec. 2.1: hold adds energy, 1 ms, 10 s",
        "grows",
        f"{energy:.0f} J of 10000 J",
        holds=energy > 2e4,
    )
    for step in (0.01, 0.001):
        error = float(oscillator_error(LINEAR, papers_dmd(100), step).max())
        kinematic = float(oscillator_error(LINEAR, robust_dmd("one", 100), step).max())
        yield Claim(
            f"Fig. 9: DMD keeps the energy of the monolithic run, {step:g} s",
            "overlaps",
            f"largest relative error {error:.4g}",
            holds=error < 0.05,
            reason=f"all of it comes from the first three exchanges; {kinematic:.2g} when x + h v is expected first",
        )
    spread = [float(oscillator_error(LINEAR, robust_dmd("one", window), 0.01).max()) for window in (4, 10, 100)]
    yield Claim(
        "Sec. 3.1: in the linear case windows from 4 on make no difference",
        "little to no impact",
        f"errors {spread[0]:.4g}, {spread[1]:.4g}, {spread[2]:.4g} with 4, 10, 100",
        holds=max(spread) < 1.01 * min(spread),
    )


def _nonlinear() -> Iterator[Claim]:
    error = oscillator_nmse(NONLINEAR, papers_dmd(100))
    held = oscillator_nmse(NONLINEAR, HELD)
    yield Claim(
        "Fig. 6: NMSE with window 100, nonlinear spring",
        "drawn, not printed",
        f"{error:.4g} (hold: {held:.3g})",
        holds=abs(error - 334) < 0.05 * 334,
        reason="334, computed independently; 23 when x + h v is expected first",
    )
    for name, coupling in (("the paper's start", papers_dmd(100)), ("kinematic start", robust_dmd("one", 100))):
        share = float((oscillator_error(NONLINEAR, coupling, 0.01) < 0.1).mean())
        yield Claim(
            f"Sec. 3.1.2: energy error below 10 % for most of the time, {name}",
            "most of the time",
            f"{share:.0%} of it",
            holds=share > 0.5,
            reason="" if share > 0.5 else "just below half; with the kinematic start it holds",
        )


def _pendula() -> Iterator[Claim]:
    held = float(pendula_error(HELD)[-1])
    yield Claim("Fig. 15: energy error of hold at 5 s", "grows linearly", f"{held:.4g} J", holds=held > 1.0)
    short, long = (float(np.abs(pendula_error(robust_dmd("single", window))).max()) for window in (10, 100))
    yield Claim(
        "Fig. 15: DMD maintains the energy, window 100",
        "constant",
        f"largest error {long:.1e} J",
        holds=long < 1e-3,
    )
    yield Claim(
        "Fig. 14: longer windows are better",
        "trend of a fitted curve",
        f"{short:.1e} J with 10, {long:.1e} J with 100",
        holds=long < short,
        reason="the short window is better: the chain moves on while a long one still remembers",
    )


def _rms(values: Array) -> float:
    return float(np.sqrt(np.mean(values**2)))


def _manipulator() -> Iterator[Claim]:
    force, pressure = Manipulator().system(), manipulator_pressure()
    rates = {
        "hold": _rms(manipulator_errors(force, HELD, step=0.012)[1]),
        "pressure": _rms(manipulator_errors(pressure, HELD, step=0.012)[1]),
        "DMD, window 10": _rms(manipulator_errors(force, papers_dmd(10), step=0.012)[1]),
        "DMD, automatic": _rms(manipulator_errors(force, robust_dmd("hydraulics"), step=0.012)[1]),
    }
    shown = ", ".join(f"{name} {value:.3g}" for name, value in rates.items())
    ordered = rates["hold"] > rates["pressure"] > rates["DMD, window 10"]
    yield Claim("Fig. 20: DMD beats pressure beats hold, rms of the rate, 12 ms", "so", f"{shown} mm/s", holds=ordered)
    for name, stepped, system in (("sinusoid", False, force), ("steps", True, manipulator_steps())):
        lengths = [
            float(np.abs(manipulator_errors(system, coupling, step=0.02, stepped=stepped)[0]).max())
            for coupling in (HELD, Dmd(10, pairs=()), robust_dmd("hydraulics"))
        ]
        yield Claim(
            f"Sec. 3.3.2: at 20 ms hold is unstable, DMD is not, {name}",
            "unstable; close to the monolithic run",
            f"largest error {lengths[0]:.0f} mm held, {lengths[1]:.2g} mm window 10, {lengths[2]:.2g} mm automatic",
            holds=lengths[0] > 100 and lengths[1] < 6,
        )
    held, found = _manipulator_nmse(HELD), _manipulator_nmse(papers_dmd(10))
    yield Claim(
        "Sec. 3.3.1: NMSE with hold / with DMD, window 10",
        "627 / 169",
        f"{held:.3g} / {found:.3g}",
        holds=abs(held - 627) < 0.5 and abs(found - 169) < 0.5,
        reason=f"neither comes out of the stated scenario; a factor of {held / found:.2g} here, {627 / 169:.2g} there",
    )


def _manipulator_nmse(coupling: Coupling) -> float:
    step, count = 0.012, int(10.0 / 0.012)
    found = predicted(Manipulator().system(), "hydraulics", coupling, step=step, stop=count * step)
    every = round(step / FINE)
    wanted = _manipulator_reference(False)["mechanics.s"][0 : count * every + 1 : every]
    return nmse(wanted, found["mechanics.s"])
