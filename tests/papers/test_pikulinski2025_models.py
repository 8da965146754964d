"""pikulinski2025: the benchmark problems, and the numbers that hold of them, with a plain form of its algorithm."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from thinning import mostly_slow

sys.path.insert(0, str(Path(__file__).parent))
from windowed_dmd import Extrapolation, Predictor, WindowedDmd, cosimulate, kinematic

from cosimo import masters
from cosimo.core.arrays import Array
from cosimo.core.result import Result
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.papers.pikulinski2025 import nmse, relative_error
from cosimo.problems.hydraulic_manipulator import Manipulator, manipulator_pressure, manipulator_steps, steps
from cosimo.problems.oscillators import LINEAR, NONLINEAR, Oscillator
from cosimo.problems.pendulum_chain import Pendula

CASES = {
    "oscillator-linear": (LINEAR.system(), "one", 0.01, 200),
    "oscillator-nonlinear": (NONLINEAR.system(), "one", 0.01, 200),
    "pendula": (Pendula().system(), "single", 1e-3, 200),
    "manipulator": (Manipulator().system(), "hydraulics", 0.012, 60),
    "manipulator-steps": (manipulator_steps(), "hydraulics", 0.012, 200),
}


def same(one: Result, two: Result, tolerance: float) -> None:
    """Equal to rounding, signal by signal."""
    assert one.names == two.names
    scale = np.maximum(1e-6, np.abs(one.values).max(axis=0))
    assert (np.abs(one.values - two.values).max(axis=0) <= tolerance * scale).all()


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_the_papers_master_with_plain_hold_is_jacobi(name: str, engine: str) -> None:
    system, through, step, count = CASES[name]
    ours = run(system, masters.jacobi(system, step), stop=count * step, engine=EngineOptions(engine))  # type: ignore[arg-type]
    same(ours, cosimulate(system, through, step=step, steps=count), 1e-9)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(3)
def test_a_line_to_the_predicted_value_is_followed_to_its_end(name: str, engine: str) -> None:
    # Hold(1) yields x_k + σ (x_k − x_{k−1}): the same polynomial that a prediction gives, with another end.
    system, through, step, count = CASES[name]
    targets = [f"{through}.{variable}" for variable in system.units[through].inputs]
    master = masters.jacobi(system, step, couplings=dict.fromkeys(targets, Hold(1)))
    ours = run(system, master, stop=count * step, engine=EngineOptions(engine))  # type: ignore[arg-type]
    assert not any("slope" in warned.message for warned in ours.warnings)
    same(ours, cosimulate(system, through, step=step, steps=count, predictor=Extrapolation()), 1e-9)
    held = cosimulate(system, through, step=step, steps=count)
    assert np.abs(ours.values - held.values).max() > 1e-6


def oscillator(problem: Oscillator, step: float, predictor: Predictor | None) -> tuple[Result, Result]:
    """The reference and the co-simulation over 10 s."""
    count = round(10 / step)
    found = cosimulate(problem.system(), "one", step=step, steps=count, predictor=predictor)
    return problem.reference(step=step, stop=10.0), found


def energy_error(problem: Oscillator, step: float, predictor: Predictor) -> Array:
    reference, found = oscillator(problem, step, predictor)
    return relative_error(problem.energy(reference), problem.energy(found))


def test_hold_adds_energy() -> None:
    system = LINEAR.system()
    energy = LINEAR.energy(run(system, masters.jacobi(system, 1e-3), stop=10.0))
    assert energy[0] == 10_000.0
    assert energy[-1] == pytest.approx(20243, rel=1e-3)


def test_three_pairs_give_equation_24() -> None:
    step, dmd = 0.01, WindowedDmd(100)
    cosimulate(LINEAR.system(), "one", step=step, steps=10, predictor=dmd)
    printed = np.array([[0.9, 0.01, -0.0001], [-10.0, 1.0, -0.01]])
    assert LINEAR.inferred(step) == pytest.approx(printed, abs=1e-15)
    assert dmd.models[1] is None
    found = dmd.models[2]
    assert found is not None
    assert np.abs(found - printed).max() > 1e-3
    for model in dmd.models[3:]:
        assert model == pytest.approx(LINEAR.inferred(step), rel=1e-10, abs=1e-12)


@pytest.mark.parametrize(("step", "expected"), [(0.01, 0.01800), pytest.param(0.001, 2.00e-4, marks=pytest.mark.slow)])
def test_dmd_keeps_the_energy_with_the_papers_start(step: float, expected: float) -> None:
    error = energy_error(LINEAR, step, WindowedDmd(100))
    assert error.max() == pytest.approx(expected, rel=0.01)


def test_all_of_that_error_comes_from_the_first_three_exchanges() -> None:
    # With the exact model from the first exchange on, nothing is left.
    exact = WindowedDmd(100, LINEAR.inferred(0.01))
    assert energy_error(LINEAR, 0.01, exact).max() < 1e-10


def test_dmd_keeps_the_energy_with_the_kinematic_start() -> None:
    error = energy_error(LINEAR, 0.01, WindowedDmd(100, kinematic(0.01, coordinates=1, forces=1)))
    assert 5e-4 < error.max() <= 1.1e-3


def positions(result: Result) -> Array:
    return np.column_stack([result["one.x"], result["two.x"]])


def test_nonlinear_spring_with_the_papers_start() -> None:
    reference, found = oscillator(NONLINEAR, 0.01, WindowedDmd(100))
    assert nmse(positions(reference), positions(found)) == pytest.approx(334, rel=0.05)
    _, held = oscillator(NONLINEAR, 0.01, None)
    assert nmse(positions(reference), positions(held)) > 1e5


def test_nonlinear_spring_with_the_kinematic_start() -> None:
    error = energy_error(NONLINEAR, 0.01, WindowedDmd(100, kinematic(0.01, coordinates=1, forces=1)))
    assert (error < 0.1).mean() >= 0.9


@pytest.mark.slow
def test_pendula_under_hold_and_dmd() -> None:
    problem = Pendula()
    system = problem.system()
    energy = problem.energy(problem.reference(step=1e-3, stop=5.0))
    held = problem.energy(run(system, masters.jacobi(system, 1e-3), stop=5.0))
    assert held[-1] - energy[-1] == pytest.approx(2.031, rel=0.01)
    found = cosimulate(system, "single", step=1e-3, steps=5000, predictor=WindowedDmd(10))
    assert np.abs(problem.energy(found) - energy).max() <= 5e-6


@pytest.mark.slow
def test_pendula_with_the_papers_window() -> None:
    problem = Pendula()
    energy = problem.energy(problem.reference(step=1e-3, stop=5.0))
    for prior in (None, kinematic(1e-3, coordinates=2, forces=2)):
        found = cosimulate(problem.system(), "single", step=1e-3, steps=5000, predictor=WindowedDmd(100, prior))
        assert np.abs(problem.energy(found) - energy).max() <= 1e-4


def motion(result: Result, reference: Result, step: float) -> tuple[Array, Array]:
    """The errors of s in mm and of v in mm/s at the communication points, for a reference in steps of 0.2 ms."""
    rows = round(step / 2e-4)
    s, v = (1e3 * (result[n] - reference[n][::rows][: len(result)]) for n in ("mechanics.s", "mechanics.v"))
    return s, v


@pytest.fixture(scope="module")
def sinusoid() -> Result:
    return Manipulator().reference()


RATE_ERRORS = {"hold": 7.20, "pressure": 1.47, "dmd": 0.870}


@pytest.mark.parametrize("kind", mostly_slow(RATE_ERRORS, ["dmd"]))
def test_manipulator_rate_error(kind: str, sinusoid: Result) -> None:
    system: System = manipulator_pressure() if kind == "pressure" else Manipulator().system()
    if kind == "dmd":
        found = cosimulate(system, "hydraulics", step=0.012, steps=833, predictor=WindowedDmd(10))
    else:
        found = run(system, masters.jacobi(system, 0.012), stop=833 * 0.012)
    _, rate = motion(found, sinusoid, 0.012)
    assert np.sqrt((rate**2).mean()) == pytest.approx(RATE_ERRORS[kind], rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("control", ["sinusoid", "steps"])
def test_manipulator_with_long_steps(control: str) -> None:
    problem = Manipulator() if control == "sinusoid" else Manipulator(control=steps(Manipulator().equilibrium[2]))
    reference, system = problem.reference(), problem.system()
    held, _ = motion(run(system, masters.jacobi(system, 0.02), stop=10.0), reference, 0.02)
    assert np.abs(held).max() > 100
    predicted = cosimulate(system, "hydraulics", step=0.02, steps=500, predictor=WindowedDmd(10))
    assert np.abs(motion(predicted, reference, 0.02)[0]).max() < 6
