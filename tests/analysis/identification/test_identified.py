"""The identified unit in the algebra: the same Φ as the true units, conversion to other steps, honest refusals."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq

sys.path.insert(0, str(Path(__file__).parent))
from black_boxes import chain, distance, exported

import cosimo as co
from cosimo.algebra import LinearSystem
from cosimo.analysis import critical_step
from cosimo.analysis.identification import identify
from cosimo.analysis.identification.models import continuous_model
from cosimo.analysis.spectrum import Spectrum
from cosimo.core.errors import IdentificationError
from cosimo.core.system import System
from cosimo.formats.export import export_system
from cosimo.units import Exact, Fmu, ForwardEuler, Mechanical, PythonUnit, RungeKutta4, StateSpace
from thinning import mostly_slow

MEANS = ["derivatives", "differences", "experiments"]


def couple(system: System, units: dict) -> System:
    return System(units, [link.connection for link in system.links], inputs=dict(system.inputs), name=system.name)


def pair(**solver) -> System:
    """A damped mass on a spring whose force drives another one."""
    one = Mechanical(
        1.0, 0.4, 300.0, B=[[100.0, 1.0]], displacement=-100.0, feedthrough=[[100.0, 1.0]],
        inputs=["x", "v"], outputs=["f"], initial=[0.1, 0.0], **solver,
    )  # fmt: skip
    two = Mechanical(
        2.0, 0.6, 200.0, B=-1.0, displacement=[[1.0], [0.0]], velocity=[[0.0], [1.0]],
        inputs=["f"], outputs=["x", "v"], initial=[0.0, 0.5], **solver,
    )  # fmt: skip
    return System({"one": one, "two": two}, [("two.x", "one.x"), ("two.v", "one.v"), ("one.f", "two.f")])


@pytest.mark.parametrize("means", MEANS)
@pytest.mark.parametrize("build", [co.masters.jacobi, co.masters.gauss_seidel])
@pytest.mark.one_in(5)
def test_the_coupled_map_is_that_of_the_true_units(tmp_path, means, build):
    system = co.problems.two_mass()
    paths = export_system(system, tmp_path, fmi=3)
    found = {name: identify(Fmu(path), 4e-3, means=means) for name, path in paths.items()}
    modelled = couple(system, {name: one.unit() for name, one in found.items()})
    true, mine = (Spectrum(LinearSystem(s, build(s, 4e-3))) for s in (system, modelled))
    assert mine.radius == pytest.approx(true.radius, abs=1e-11)
    assert distance(mine.eigenvalues, true.eigenvalues) < 1e-6


@pytest.mark.parametrize("means", mostly_slow(MEANS, ["derivatives"]))
def test_critical_step_and_error_of_exact_units(tmp_path, means):
    """Units that solve exactly convert to every step, so one identification is enough."""
    system = pair(integrator=Exact())
    h = 2e-3
    paths = export_system(system, tmp_path, fmi=3)
    found = {name: identify(Fmu(path), h, means=means) for name, path in paths.items()}
    modelled = couple(system, {name: one.unit() for name, one in found.items()})
    for build in (co.masters.jacobi, co.masters.gauss_seidel):
        wanted = critical_step(system, build(system, h)).step
        assert critical_step(modelled, build(modelled, h)).step == pytest.approx(wanted, rel=1e-6)
    master, copy = co.masters.jacobi(system, h), co.masters.jacobi(modelled, h)
    start, mine = LinearSystem(system, master).start(), LinearSystem(modelled, copy).start()
    outputs = LinearSystem(system, master).outputs(start[:, None])
    np.testing.assert_allclose(LinearSystem(modelled, copy).outputs(mine[:, None]), outputs, atol=1e-8)


@pytest.mark.parametrize("means", mostly_slow(MEANS, ["experiments"]))
def test_critical_step_of_solvers_that_depend_on_the_step(tmp_path, means):
    """Symplectic Euler over the whole macro step: the converted map is wrong, the map identified anew is not."""
    system = co.problems.two_mass()
    fmus = {name: Fmu(path) for name, path in export_system(system, tmp_path, fmi=3).items()}
    first = {name: identify(fmu, 4e-3, means=means) for name, fmu in fmus.items()}

    def excess(h: float) -> float:
        modelled = couple(system, {name: found.at(h).unit() for name, found in first.items()})
        return Spectrum(LinearSystem(modelled, co.masters.jacobi(modelled, h))).radius - 1

    converted = couple(system, {name: found.unit() for name, found in first.items()})
    guess = critical_step(converted, co.masters.jacobi(converted, 4e-3)).step
    wanted = critical_step(system, co.masters.jacobi(system, 4e-3)).step
    assert guess == pytest.approx(wanted, rel=0.5)
    assert guess != pytest.approx(wanted, rel=0.1)
    assert brentq(excess, guess / 2, guess, rtol=1e-4) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("means", MEANS)
def test_run_of_identified_units_is_the_run_of_the_fmus(tmp_path, means):
    system = pair()
    h = 2e-3
    fmus = {name: Fmu(path) for name, path in export_system(system, tmp_path, fmi=2).items()}
    real = couple(system, fmus)
    modelled = couple(system, {name: identify(fmu, h, means=means).unit() for name, fmu in fmus.items()})
    wanted, got = (co.run(s, co.masters.jacobi(s, h), stop=1.0) for s in (real, modelled))
    np.testing.assert_allclose(got.values, wanted.values, atol=1e-7 * np.abs(wanted.values).max())


def test_other_steps_by_conversion_or_by_new_trials(tmp_path):
    unit = chain(2, integrator=ForwardEuler())
    found = identify(exported(unit, tmp_path), 1e-2, means="experiments")
    anew = found.at(5e-3)
    assert anew.step == 5e-3
    assert distance(anew.poles, np.linalg.eigvals(unit.discrete(5e-3).A)) < 1e-7
    # Forward Euler depends on the step, which a conversion cannot know: it keeps the continuous poles instead.
    converted = np.linalg.eigvals(found.unit().discrete(5e-3).A)
    assert distance(converted**2, found.poles) < 1e-7
    assert distance(converted, anew.poles) > 1e-3
    stack = found.unit().discrete(np.array([5e-3, 1e-2]))
    np.testing.assert_array_equal(stack.A[1], found.model.A)
    np.testing.assert_array_equal(stack.B[1], found.model.B)
    np.testing.assert_allclose(stack.A[0] @ stack.A[0], found.model.A, atol=1e-9)
    assert identify(unit, 1e-2).at(2e-2).step == 2e-2


def test_no_continuous_model(tmp_path):
    """Forward Euler beyond half its stable step: an eigenvalue −0.5, which no continuous system has."""
    unit = StateSpace(-1.0, 1.0, 1.0, integrator=ForwardEuler(), initial=1.0)
    found = identify(exported(unit, tmp_path), 1.5, means="experiments")
    assert found.valid
    assert found.continuous is None
    assert "eigenvalue -0.5 is negative" in " ".join(found.reasons)
    with pytest.raises(IdentificationError, match=r"has no continuous model.*shorter step"):
        found.unit()
    stand_in = found.unit(stand_in=True)
    assert stand_in.discrete(1.5).A[0, 0] == pytest.approx(-0.5)
    with pytest.raises(IdentificationError, match=r"identify it there with Identified.at\(1\)"):
        stand_in.discrete(1.0)


def test_alias_is_reported(tmp_path):
    unit = StateSpace([[0.0, 30.0], [-30.0, 0.0]], [[0.0], [1.0]], [[1.0, 0.0]])
    found = identify(exported(unit, tmp_path), 0.08, means="experiments")
    assert any("alias" in reason for reason in found.reasons)


def test_logarithm_returns_the_map():
    rng = np.random.default_rng(2)
    for _ in range(20):
        n, m = rng.integers(1, 8), rng.integers(1, 4)
        A = rng.normal(size=(n, n))
        unit = StateSpace(A * 10.0 ** rng.uniform(-2, 0.3), rng.normal(size=(n, m)), np.eye(n))
        step = 1.0 / max(1.0, np.abs(np.linalg.eigvals(unit.linear().A).imag).max())
        map_ = unit.discrete(step)
        found, notes = continuous_model(map_.A, map_.B[:, :m], np.eye(n), np.zeros((n, m)), step)
        assert notes == ()
        np.testing.assert_allclose(found.A, unit.linear().A, atol=1e-8)
        np.testing.assert_allclose(found.B, unit.linear().B, atol=1e-8)


@pytest.mark.parametrize("means", mostly_slow(["differences", "experiments"], ["differences"]))
def test_a_further_step_takes_over_what_does_not_depend_on_it(means, tmp_path):
    unit = chain(2, integrator=RungeKutta4(), micro_steps=1)
    fmu = exported(unit, tmp_path, fmi=2)
    first = identify(fmu, 0.02, means=means)
    assert first.manner is not None
    for step in (0.06, 0.01, 0.002):
        again, anew = identify(fmu, step, means=means, like=first), identify(fmu, step, means=means)
        assert again.valid
        assert distance(again.poles, np.linalg.eigvals(unit.discrete(step).A)) < 1e-8
        assert again.fit < 1e-7
        assert again.unit_steps < 0.45 * anew.unit_steps
        assert first.at(step).unit_steps == again.unit_steps


def test_nothing_is_taken_over_from_a_unit_that_is_not_linear(tmp_path):
    class Cubic:
        inputs, outputs = ("u",), ("y",)

        def __init__(self):
            self.u, self.y = 0.0, 0.5

        def step(self, time, duration):
            self.y += duration * (self.u - self.y - self.y**3)

    first = identify(PythonUnit(Cubic), 0.01)
    assert first.manner is None
    again = identify(PythonUnit(Cubic), 0.02, like=first)
    assert again.unit_steps == identify(PythonUnit(Cubic), 0.02).unit_steps


def test_what_does_not_hold_at_the_other_step_is_found_out_anew():
    """Linear up to steps of 0.1 s, beyond it has a limit: the unseen trial shows it, and all is done anew."""

    class Limited:
        inputs, outputs = ("u",), ("y",)

        def __init__(self):
            self.u, self.y = 0.0, 0.1

        def step(self, time, duration):
            moved = self.y + duration * (self.u - self.y)
            self.y = moved if duration < 0.1 else 0.2 * np.tanh(5 * moved)

    first = identify(PythonUnit(Limited), 0.01, means="experiments")
    assert first.manner is not None
    again = identify(PythonUnit(Limited), 0.2, means="experiments", like=first)
    anew = identify(PythonUnit(Limited), 0.2, means="experiments")
    np.testing.assert_array_equal(again.amplitudes, anew.amplitudes)
    assert again.manner is None
