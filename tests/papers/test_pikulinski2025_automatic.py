"""The automatic window against the best window in hindsight, on parameters that were not used for tuning it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from cosimo.core.arrays import Array
from cosimo.core.coupling import Coupling
from cosimo.core.errors import RunError
from cosimo.couplings import Dmd
from cosimo.papers.pikulinski2025 import HELD, KINEMATIC, predicted
from cosimo.problems.hydraulic_manipulator import Manipulator, Sinusoid
from cosimo.problems.oscillators import LINEAR, NONLINEAR, Oscillator
from cosimo.problems.pendulum_chain import Pendula

WINDOWS = (4, 6, 10, 20, 50, 100)
Case = Callable[[Coupling], float]
"""From the coupling of the predicted inputs to the rms error of what is watched."""


def rms(found: Array, wanted: Array) -> float:
    return float(np.sqrt(np.mean((found - wanted) ** 2)))


def oscillator(problem: Oscillator, step: float) -> Case:
    wanted = problem.reference(step=step, stop=8.0)
    return lambda coupling: rms(
        predicted(problem.system(), "one", coupling, step=step, stop=8.0)["two.x"], wanted["two.x"]
    )


def pendulum(problem: Pendula, step: float) -> Case:
    wanted = problem.reference(step=step, stop=4.0)
    return lambda coupling: rms(
        predicted(problem.system(), "single", coupling, step=step, stop=4.0)["chain.x"], wanted["chain.x"]
    )


def manipulator(problem: Manipulator, step: float) -> Case:
    count, every = int(8.0 / step), round(step / 2e-4)
    wanted = problem.reference(step=2e-4, stop=count * step)["mechanics.v"][::every]
    return lambda coupling: rms(
        predicted(problem.system(), "hydraulics", coupling, step=step, stop=count * step)["mechanics.v"], wanted
    )


def smooth() -> dict[str, tuple[str, Case]]:
    opening = Manipulator().equilibrium[2]
    return {
        "linear, heavier and stiffer": ("one", oscillator(replace(LINEAR, m2=2.0, kc=300.0), 0.008)),
        "linear, soft walls": ("one", oscillator(replace(LINEAR, k1=30.0, k2=400.0), 0.012)),
        "pendula, 4 links": ("single", pendulum(Pendula(links=4), 1e-3)),
        "pendula, 7 links, 2 ms": ("single", pendulum(Pendula(links=7), 2e-3)),
        "manipulator, slower": ("hydraulics", manipulator(Manipulator(control=Sinusoid(opening, 0.08, 1.3)), 0.012)),
        "manipulator, 16 ms": ("hydraulics", manipulator(Manipulator(control=Sinusoid(opening, 0.1, 1.7)), 0.016)),
    }


@pytest.mark.slow
def test_as_good_as_the_best_window_where_signals_are_smooth() -> None:
    for name, (unit, case) in smooth().items():
        best = min(_error(case, Dmd(window, pairs=KINEMATIC[unit])) for window in WINDOWS)
        automatic = case(Dmd(pairs=KINEMATIC[unit]))
        assert automatic <= 1.01 * best, name
        assert automatic < _error(case, HELD), name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "step"), [({"speed": 55.0}, 0.01), ({"kc": 170.0}, 0.008), ({"m2": 1.7}, 0.012)], ids=str
)
def test_better_than_a_window_chosen_blindly_with_the_square_root_spring(change: dict[str, float], step: float) -> None:
    """A change of the initial speed by one per cent moves the error of any window by up to two orders of magnitude.

    Windows are therefore compared by the geometric mean over nine speeds. Against the best one in hindsight the
    automatic window has 0.95, 0.95 and 2.99 here.
    """
    problem, errors = replace(NONLINEAR, **change), {}
    couplings = {window: Dmd(window, pairs=KINEMATIC["one"]) for window in WINDOWS} | {0: Dmd(pairs=KINEMATIC["one"])}
    found: dict[int, list[float]] = {window: [] for window in couplings}
    for factor in np.linspace(0.97, 1.03, 9).tolist():
        case = oscillator(replace(problem, speed=problem.speed * factor), step)
        for window, coupling in couplings.items():
            found[window].append(_error(case, coupling))
    errors = {window: float(np.exp(np.mean(np.log(values)))) for window, values in found.items()}
    assert errors.pop(0) < np.median(list(errors.values()))


def _error(case: Case, coupling: Coupling) -> float:
    try:
        return case(coupling)
    except RunError:  # a window, or the hold, that diverges
        return np.inf
