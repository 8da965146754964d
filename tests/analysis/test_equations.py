"""Linear model-exchange FMUs are analysed as their equations are; all others are not taken for linear."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from hybrid import build_model

import cosimo as co
from cosimo.analysis.equations import with_equations
from cosimo.units.fmi.fmu import Fmu, FmuOptions
from cosimo.units.fmi.model_exchange import Solver
from cosimo.units.linear import Exact, ForwardEuler, Integrator, RungeKutta4

versions = pytest.mark.parametrize("version", [2, 3])


def coupled(units: dict[str, Any]) -> co.System:
    return co.System(units, [co.Connection("a.y", "b.u", 2.0), co.Connection("b.y", "a.u", 0.8)])


def equations(k: float, c: float, initial: float, integrator: Integrator, micro_steps: int) -> co.StateSpace:
    return co.StateSpace(
        [[0.0, 1.0], [-k, -c]], [[0.0], [1.0]], [[1.0, 0.0]], initial=[initial, 0.0], inputs=["u"], outputs=["y"],
        integrator=integrator, micro_steps=micro_steps,
    )  # fmt: skip


def numbers(fields: Any) -> Any:
    """All numbers of a verdict, and its words; its texts are made of them."""
    if isinstance(fields, dict):
        return {key: numbers(value) for key, value in fields.items()}
    if isinstance(fields, list | tuple):
        return [numbers(value) for value in fields]
    return pytest.approx(fields, rel=1e-8, abs=1e-12, nan_ok=True) if isinstance(fields, float) else fields


@versions
@pytest.mark.parametrize(
    ("solver", "integrator"),
    [
        (Solver(), Exact()),
        (Solver("euler", micro_steps=3), ForwardEuler()),
        (Solver("rk4", micro_steps=3), RungeKutta4()),
    ],
)
@pytest.mark.one_in(3)  # of both versions one
def test_the_verdict_is_that_on_the_equations(
    tmp_path: Path, version: int, solver: Solver, integrator: Integrator
) -> None:
    path, count = build_model(tmp_path, "LINEAR", version), solver.micro_steps or 1
    given: dict[str, Any] = {"options": FmuOptions(solver=solver), "isolate": False}
    fmus = {
        "a": Fmu(path, name="a", start={"x": 1.0}, **given),
        "b": Fmu(path, name="b", parameters={"k": 9.0, "c": 0.1}, **given),
    }
    known = {"a": equations(4.0, 0.4, 1.0, integrator, count), "b": equations(9.0, 0.1, 0.0, integrator, count)}
    verdicts = []
    for system in (coupled(fmus), coupled(known)):
        master = co.masters.gauss_seidel(system, step=0.05)
        verdicts.append(co.analyse(system, master, horizon=10.0))
    assert verdicts[0].evidence == "proved"
    assert verdicts[0].pilot_runs == verdicts[1].pilot_runs == 0
    fields = verdicts[0].fields()
    told = ["relative tolerance of 1e-06" in note for note in fields.pop("notes")]
    assert told == ([True, True] if solver.name == "cvode" else [])
    assert fields == numbers({key: value for key, value in verdicts[1].fields().items() if key != "notes"})


@versions
def test_a_run_does_what_was_predicted(tmp_path: Path, version: int) -> None:
    """One executed macro step is Φ z to the tolerance of the solver, with polynomials of the inputs too."""
    path = build_model(tmp_path, "LINEAR", version)
    options = FmuOptions(solver=Solver(relative_tolerance=1e-10))
    fmus = {
        "a": Fmu(path, name="a", start={"x": 1.0}, options=options, isolate=False),
        "b": Fmu(path, name="b", parameters={"k": 9.0, "c": 0.1}, options=options, isolate=False),
    }
    known = {"a": equations(4.0, 0.4, 1.0, Exact(), 1), "b": equations(9.0, 0.1, 0.0, Exact(), 1)}
    rows = []
    for system in (coupled(fmus), coupled(known)):
        master = co.masters.jacobi(system, step=0.1, coupling=co.couplings.Hold(2))
        rows.append(co.run(system, master, stop=5.0).values)
    assert np.abs(rows[0] - rows[1]).max() < 1e-8


@pytest.mark.parametrize("model", ["BALL", "OSCILLATOR", "STAIRS", "SAW"])
def test_others_are_not_taken_for_linear(tmp_path: Path, model: str) -> None:
    """Events, a product of states, steps in time, and x' = 1, which does not vanish at 0."""
    system = co.System({"u": Fmu(build_model(tmp_path, model), isolate=False)}, [])
    assert with_equations(system, 0.0, 1.0) is system


@pytest.mark.parametrize(
    "parameters", [{"square": 1e-3}, {"drift": 1e-3}, {"late": 1e-3}, {"stop": 100.0}, {"nan_at": 0.5}]
)
def test_small_departures_are_found(tmp_path: Path, parameters: dict[str, float]) -> None:
    """A small square of a state, a slow change in time, a memory of the past, a step event, no number later on."""
    path = build_model(tmp_path, "LINEAR")
    given: dict[str, Any] = {"isolate": False}
    linear = co.System({"u": Fmu(path, **given)}, [])
    assert with_equations(linear, 0.0, 1.0).units["u"].linear() is not None
    other = co.System({"u": Fmu(path, parameters=parameters, **given)}, [])
    assert with_equations(other, 0.0, 1.0) is other


def test_the_system_that_is_run_stays_as_it_is(tmp_path: Path) -> None:
    unit = Fmu(build_model(tmp_path, "LINEAR"), isolate=False)
    system = co.System({"u": unit}, [])
    assert co.analyse(system, co.masters.jacobi(system, step=0.1), horizon=5.0).evidence == "proved"
    assert unit.linear() is None
