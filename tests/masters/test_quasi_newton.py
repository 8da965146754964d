"""Quasi-Newton iteration (IQN-ILS): few sweeps, also where plain substitution diverges; warm from models of units."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_units import KERNEL, REFERENCE, exported

from cosimo import load, run
from cosimo.algebra import LinearSystem
from cosimo.analysis import Model, warm_start
from cosimo.analysis.spectrum import sweep_jacobian
from cosimo.core.errors import ConfigurationError
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution.interpreter import Interpreter
from cosimo.execution.live import Live
from cosimo.masters import Convergence, MasterOptions, iterative
from cosimo.masters.words import options_of
from cosimo.problems import CATALOGUE, tank, thermal_pair, two_mass
from cosimo.units import PythonUnit, StateSpace

STEPS = 200
TABLE = {  # the table of docs/theory.md: sweeps per macro step to 1e-8 of plain, Anderson, cold and warm quasi-Newton
    "two-mass": (0.02, 11.9, 5.0, 2.0, 2.0),
    "two-mass-glumac": (1.0, 12.6, 4.9, 2.0, 2.0),
    "double-mass-spring-damper": (0.02, 12.6, 5.0, 2.0, 2.0),
    "four-mass": (0.06, 21.9, 5.0, 2.1, 2.0),
    "chain": (0.2, 23.7, 10.9, 2.0, 2.0),
    "motor-gearbox": (0.002, 18.9, 5.0, 2.0, 2.0),
    "quarter-truck": (0.02, 44.7, 5.0, 2.2, 2.0),
    "tank": (0.5, 7.6, 4.0, 2.0, 2.0),
    "thermal-pair": (1.0, None, 5.0, 2.0, 2.0),
    "dc-motor": (0.02, None, 2.7, 1.4, 1.4),
}


def sweeps(system: System, step: float, *, warm: bool = False, steps: int = STEPS, **how: Any) -> float | None:
    """Sweeps per macro step; None where the iteration does not converge."""
    master = iterative(system, step, sweeps=Convergence(1e-8, limit=60, **how))
    result = run(system, warm_start(system, master) if warm else master, stop=steps * step)
    return None if result.info["unconverged"] else result.info["sweeps"] / result.info["steps"]


@pytest.mark.parametrize("name", TABLE)
def test_sweeps_per_macro_step(name: str) -> None:
    system, (step, *wanted) = CATALOGUE[name].system({}), TABLE[name]
    ways: tuple[dict[str, Any], ...] = (
        {"steps": STEPS if wanted[0] else 3},
        {"anderson": 8, "steps": STEPS if wanted[1] else 3},
        {"quasi_newton": 20},
        {"quasi_newton": 20, "warm": True},
    )
    assert [found and round(found, 1) for found in (sweeps(system, step, **way) for way in ways)] == wanted


def test_a_warm_start_is_exact_after_one_correction_and_the_solution_is_the_fixed_point() -> None:
    system = thermal_pair()
    master = warm_start(system, iterative(system, 1.0, sweeps=Convergence(1e-12, quasi_newton=3)))
    result = run(system, master, stop=10.0)
    assert result.info["sweeps"] == 2 * 10
    linear = LinearSystem(system, master)
    z = linear.start()
    for row in result.values[1:]:
        z = linear.one_step.Phi @ z + linear.one_step.Gamma @ linear.given_values(0)
        assert row[: len(system.outputs)] == pytest.approx(linear.outputs(z), abs=1e-10)


@pytest.mark.parametrize("hold", [Hold(0), Hold(1), Hold(2)], ids=str)
def test_the_jacobian_of_a_sweep_is_what_a_sweep_does(hold: Hold) -> None:
    """Executed: the last kind of sweep, from outputs that differ in one number."""
    system = tank()
    master = iterative(system, 0.5, sweeps=Convergence(quasi_newton=4), coupling=hold)
    J = sweep_jacobian(LinearSystem(system, master))

    def swept(changed: int | None) -> np.ndarray:
        live = Live(system, master, 0.0)
        live.initialise()
        interpreter = Interpreter(live)
        interpreter.macro_step(0)
        y = interpreter._join()
        if changed is not None:
            y[changed] += 1.0
        interpreter._split(y)
        for operation in live.timeline.operations[-1].sweeps[-1]:  # type: ignore[union-attr]
            interpreter._action(operation)(0)
        return np.array(interpreter._join())

    base = swept(None)
    found = np.column_stack([swept(i) - base for i in range(len(base))])
    assert found == pytest.approx(J, abs=1e-12)


def test_units_without_equations_are_identified_for_a_warm_start(tmp_path: Path) -> None:
    system = exported(two_mass(), tmp_path, fmi=2)
    cold = iterative(system, 0.02, sweeps=Convergence(1e-8, quasi_newton=10))
    model = Model(system, step=0.02, horizon=1.0)
    warm = warm_start(system, cold, model=model)
    taken = [run(system, master, stop=0.2).info["sweeps"] for master in (cold, warm)]
    assert taken[1] == 2 * 10 < taken[0]


class Cube:
    """y = x − 4 tanh(u): plain substitution around a loop of gain −4 diverges."""

    inputs, outputs = ("u",), ("y",)

    def __init__(self) -> None:
        self.x = 1.0

    @property
    def y(self) -> float:
        return self.x - 4.0 * float(np.tanh(self.u))  # type: ignore[attr-defined]

    def step(self, time: float, duration: float) -> None:
        self.x -= duration * self.x


def test_a_nonlinear_loop_takes_fewer_sweeps_than_with_anderson() -> None:
    units = {"cube": PythonUnit(Cube), "gain": StateSpace([], [], [], 1.0, inputs=["u"], outputs=["y"])}
    system = System(units, [("cube.y", "gain.u"), ("gain.y", "cube.u")])
    taken = []
    for how in ({"anderson": 4}, {"quasi_newton": 4}):
        result = run(system, iterative(system, 0.1, sweeps=Convergence(**how)), stop=4.0)
        assert result.warnings == ()
        y, x = result["cube.y"][1:], 0.9 ** np.arange(1, 41)
        assert y + 4.0 * np.tanh(y) == pytest.approx(x, abs=1e-8)
        taken.append(result.info["sweeps"])
    assert taken[1] < taken[0]


def test_a_model_that_is_not_believed_leaves_the_iteration_cold() -> None:
    system = two_mass()
    master = iterative(system, 0.02, sweeps=Convergence(quasi_newton=5))
    assert warm_start(system, master, model=Model(system, step=0.02).distrusted()) == master


@pytest.mark.parametrize(
    ("J", "said"), [(((0.5,),), "1 rows, and the system 3 outputs"), (np.eye(3).tolist(), "no fixed point")]
)
def test_a_jacobian_that_does_not_fit_is_refused(J: Any, said: str) -> None:
    system = two_mass()
    master = iterative(system, 0.02, sweeps=Convergence(quasi_newton=5, jacobian=tuple(map(tuple, J))))
    for engine in (KERNEL, REFERENCE):
        with pytest.raises(ConfigurationError, match=said):
            run(system, master, stop=0.1, engine=engine)


def test_the_master_of_a_scenario_starts_warm_where_equations_are_known() -> None:
    options = MasterOptions("iterative", quasi_newton=4)
    scenario = load("thermal-pair").changed(step=1.0, options=options)
    assert scenario.run(stop=20.0).info["sweeps"] == 2 * 20
    assert options_of(scenario.master) == options
