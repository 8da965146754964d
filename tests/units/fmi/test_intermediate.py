"""Intermediate update of FMI 3.0: an FMU that asks for its input within a step gets what the polynomial says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fmu_builder import build

import cosimo as co
from cosimo.core.errors import UnitError
from cosimo.execution.options import EngineOptions
from cosimo.units.fmi.fmu import Fmu

W = ' name="w" valueReference="2" causality='
FOLLOWED = {f'{W}"input"': f'{W}"parameter" variability="fixed"'}
C = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])  # u = w = 1 + 2 θ + 3 θ²


def middles(first: float, last: float) -> np.ndarray:
    """u in the middles of four micro steps from θ = `first` to `last`."""
    theta = first + (np.arange(4) + 0.5) * (last - first) / 4
    return C[0, 0] + C[1, 0] * theta + C[2, 0] * theta**2


@pytest.mark.parametrize("isolate", [False, True])
def test_requests_are_answered_with_the_polynomial(tmp_path: Path, isolate: bool) -> None:
    unit = Fmu(build(tmp_path, "intermediate3"), isolate=isolate)
    assert unit.input_degree == 2
    instance = unit.instantiate()
    instance.set_input(C, 0.5)
    instance.step(0.0, 0.5)
    x, v, through, asked = instance.read()
    assert x == pytest.approx(0.125 * middles(0.0, 1.0).sum(), abs=1e-15)
    assert (v, asked) == (0.5, 4)  # w is not asked for: its value at the beginning counts
    assert through == 6.0  # at the end of the step the input has the value that it has there
    held = instance.save()
    instance.set_input(C[:1], 0.5)  # no longer a polynomial
    instance.step(0.5, 0.5)
    assert instance.read()[0] == pytest.approx(x + 0.5, abs=1e-15)
    instance.restore(held)
    instance.step(0.5, 0.5)  # beyond the step for which it was formed the polynomial goes on
    assert instance.read()[0] == pytest.approx(x + 0.125 * middles(1.0, 2.0).sum(), abs=1e-14)
    instance.close()


def test_a_step_in_parts_follows_one_polynomial(tmp_path: Path) -> None:
    """The FMU returns early at 0.2 s, that is θ = 0.4, and is stepped on."""
    instance = Fmu(build(tmp_path, "intermediate3"), parameters={"early": 0.2}, isolate=False).instantiate()
    instance.set_input(C, 0.5)
    instance.step(0.0, 0.5)
    wanted = 0.05 * middles(0.0, 0.4).sum() + 0.075 * middles(0.4, 1.0).sum()
    x, _, through, asked = instance.read()
    assert (x, through, asked) == (pytest.approx(wanted, abs=1e-15), pytest.approx(6.0, abs=1e-15), 8)
    instance.close()


def pair(path: Path, **options: bool) -> co.System:
    """A body on a spring: two FMUs, x' = u each."""
    units = {name: Fmu(path, name=name, start={"u": 0.0}, **options) for name in ("speed", "place")}
    weight = {"speed.w": 0.0, "place.w": 0.0} if units["speed"].inputs[1:] else {}
    links = [co.Connection("speed.x", "place.u"), co.Connection("place.x", "speed.u", gain=-9.0, offset=9.0)]
    return co.System(units, links, inputs=weight)


def ran(system: co.System, step: float, order: int, kind: str = "kernel") -> co.Result:
    master = co.masters.jacobi(system, step=step, coupling=co.couplings.Hold(order))
    return co.run(system, master, stop=1.0, engine=EngineOptions(kind=kind))


@pytest.mark.parametrize("changes", [FOLLOWED, {}])
def test_engines_and_processes_agree_to_the_bit(tmp_path: Path, changes: dict[str, str]) -> None:
    """Also where one of two inputs is not asked for: such polynomials are given by the interpreter's way."""
    path = build(tmp_path, "intermediate3", changes=changes)
    wanted = ran(pair(path, isolate=False), 0.05, 1, "reference")
    for isolate, kind in ((False, "kernel"), (True, "kernel"), (True, "reference")):
        found = ran(pair(path, isolate=isolate), 0.05, 1, kind)
        assert all(np.array_equal(found[name], wanted[name]) for name in wanted.names)


def test_slopes_make_the_coupling_more_accurate(tmp_path: Path) -> None:
    """x = 1 − cos 3t: errors fall with h under held inputs, with h² under linear ones."""
    system = pair(build(tmp_path, "intermediate3", changes=FOLLOWED), isolate=False)

    def error(step: float, order: int) -> float:
        found = ran(system, step, order)
        return float(np.abs(found["place.x"] - (1 - np.cos(3 * found.time))).max())

    assert error(0.02, 0) / error(0.01, 0) == pytest.approx(2.0, rel=0.2)
    assert error(0.02, 1) / error(0.01, 1) == pytest.approx(4.0, rel=0.2)
    assert error(0.01, 1) < 0.05 * error(0.01, 0)


def test_an_fmu_that_does_not_ask_holds_its_input(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "intermediate3", defines=("SILENT",)), isolate=False).instantiate()
    instance.set_input(C, 0.5)
    instance.step(0.0, 0.5)
    assert instance.read().tolist() == [0.5, 0.5, 6.0, 0.0]
    instance.close()


def test_a_value_that_is_refused_within_a_step_ends_it(tmp_path: Path) -> None:
    instance = Fmu(build(tmp_path, "intermediate3"), isolate=False).instantiate()
    instance.set_input(1e7 * C, 0.5)
    with pytest.raises(UnitError, match=r"fmi3Error from fmi3DoStep from t = 0.0 to 0.5 .*it says: too large"):
        instance.step(0.0, 0.5)
    instance.close()


def test_the_callback_is_given_where_no_input_is_asked_for(tmp_path: Path) -> None:
    path = build(tmp_path, "intermediate3", changes={'start="0" intermediateUpdate="true"': 'start="0"'})
    unit = Fmu(path, isolate=False)
    assert unit.input_degree == 0
    system = co.System({"a": unit}, inputs={"a.u": 1.0, "a.w": 0.0})
    found = co.run(system, co.masters.jacobi(system, step=0.5), stop=1.0)
    assert found["a.x"].tolist() == [0.0, 0.5, 1.0]
