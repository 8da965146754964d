"""The same problem as linear units and as exported FMUs: the same trajectories."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from native_units import exported

from cosimo import masters
from cosimo.core.schedule import Convergence
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.problems import chain, two_mass
from cosimo.units import Fmu, Mechanical, RungeKutta4, StateSpace, SymplecticEuler


def motor() -> System:
    """A motor whose current settles in 0.1 ms, on a soft shaft with a heavy load: stiff, with micro steps."""
    electric = StateSpace(
        [[-1e4, -50.0], [20.0, -0.1]],
        [[1e3, 0.0], [0.0, -10.0]],
        [[0.0, 1.0], [1.0, 0.0]],
        integrator=RungeKutta4(),
        micro_steps=10,
        inputs=["voltage", "torque"],
        outputs=["speed", "current"],
        start={"voltage": 24.0},
    )
    load = Mechanical(
        0.5,
        0.3,
        40.0,
        B=[[0.3]],
        displacement=[[40.0], [1.0]],
        velocity=[[0.3], [0.0]],
        inputs=["speed"],
        outputs=["torque", "angle"],
    )
    return System({"motor": electric, "load": load}, [("motor.speed", "load.speed"), ("load.torque", "motor.torque")])


PROBLEMS: dict[str, tuple[Callable[[], System], float, float]] = {
    "two-mass": (lambda: two_mass(damping=0.1), 1e-3, 20.0),
    "chain": (lambda: chain(n=5), 5e-3, 10.0),
    "motor": (motor, 1e-3, 3.0),
}
MASTERS: dict[str, Callable[..., Any]] = {
    "jacobi": masters.jacobi,
    "early read": masters.jacobi_early_read,
    "gauss-seidel": masters.gauss_seidel,
    "two sweeps": lambda s, h, **o: masters.iterative(s, h, sweeps=2, **o),
    "converged": lambda s, h, **o: masters.iterative(s, h, sweeps=Convergence(1e-6, limit=20), **o),
    "multirate": lambda s, h, **o: masters.multirate(s, h, multiples={s.names[-1]: 2}, **o),
}


def difference(system: System, other: System, master: Callable[..., Any], *, step: float, stop: float) -> float:
    """The largest difference of any signal, as a part of the largest value of that signal."""
    ours, theirs = (run(s, master(s, step), stop=stop, record="all") for s in (system, other))
    assert ours.names == theirs.names
    assert np.array_equal(ours.time, theirs.time)
    scale = np.abs(ours.values).max(axis=0)
    assert (scale > 0).all()
    return float((np.abs(ours.values - theirs.values) / scale).max())


@pytest.mark.parametrize("kind", MASTERS)
@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.one_in(5)
def test_linear_units_and_their_fmus(fmi: int, problem: str, kind: str, tmp_path: Path) -> None:
    build, step, stop = PROBLEMS[problem]
    system = build()
    as_fmus = exported(system, tmp_path, fmi=fmi)
    assert all(isinstance(unit, Fmu) for unit in as_fmus.units.values())
    assert difference(system, as_fmus, MASTERS[kind], step=step, stop=stop) <= 1e-12


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.one_in(2)
def test_input_derivatives_reach_fmus(problem: str, tmp_path: Path) -> None:
    """With Hold(1), FMI 2.0 FMUs move along the same lines as the units themselves; FMI 3.0 has no such function.

    FMI 3.0 FMUs are held over the step, but read with the value of now: where the unit's own integrator uses only the
    value at the start, nothing is lost.
    """
    build, step, stop = PROBLEMS[problem]
    system = build()

    def extrapolated(s: System, h: float) -> Any:
        return masters.gauss_seidel(s, h, coupling=Hold(1))

    second = exported(system, tmp_path, fmi=2)
    assert min(unit.input_degree for unit in second.units.values()) >= 1
    assert difference(system, second, extrapolated, step=step, stop=stop) <= 1e-12
    third = difference(system, exported(system, tmp_path, fmi=3), extrapolated, step=step, stop=stop)
    start_only = all(isinstance(getattr(unit, "integrator", None), SymplecticEuler) for unit in system.units.values())
    assert third <= 1e-12 if start_only else third > 1e-6


def test_gains_and_external_inputs_reach_fmus(tmp_path: Path) -> None:
    lag = {name: StateSpace(-1.0, [[1.0, 0.5]], 1.0, [[0.0, 0.1]], initial=1.0) for name in ("a", "b")}
    ring = [Connection("a.y1", "b.u1", gain=-2.0, offset=0.5), Connection("b.y1", "a.u1", gain=0.3)]
    system = System(lag, ring, inputs={"a.u2": np.sin, "b.u2": 0.75})
    for fmi in (2, 3):
        other = exported(system, tmp_path, fmi=fmi)
        assert difference(system, other, masters.jacobi, step=0.01, stop=5.0) <= 1e-12
