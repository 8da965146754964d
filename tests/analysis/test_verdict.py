"""The analysis against what runs really do, and against hand calculation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cosimo import masters
from cosimo.algebra import LinearSystem, product
from cosimo.analysis import Spectrum, analyse, convergence_order, critical_step, global_error, sweep_factor
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError, NonFiniteError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence
from cosimo.core.system import System
from cosimo.couplings import Hold
from cosimo.execution import run
from cosimo.problems import chain, two_mass, two_mass_undamped
from cosimo.units import Exact, PythonUnit, StateSpace


def test_critical_step_is_where_runs_turn() -> None:
    system = two_mass()
    found = critical_step(system, masters.jacobi(system, 1e-3))
    assert found is not None
    for factor, stable in ((0.97, True), (1.03, False)):
        velocity = run(system, masters.jacobi(system, found.step * factor), stop=160.0)["two.v"]
        quarter = len(velocity) // 4
        # In the second half only the critical mode is left; below the limit it decays, above it grows.
        third, last = np.abs(velocity[2 * quarter : 3 * quarter]).max(), np.abs(velocity[3 * quarter :]).max()
        assert bool(last < third) is stable


@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.iterative])
@pytest.mark.parametrize("kc", [100.0, 0.01])
def test_undamped_systems_are_unstable_at_every_step(build: Callable[[System, float], Master], kc: float) -> None:
    """ρ − 1 falls with a power of h and drowns in rounding; that is no crossing."""
    system = two_mass(damping=0.0, kc=kc)
    found = critical_step(system, build(system, 1e-3))
    assert found is not None
    assert found.step == 0


def test_instability_at_every_step_is_said() -> None:
    system = two_mass_undamped()
    assert "unstable at every step" in str(analyse(system, masters.jacobi(system, 1e-3)))


def test_unstable_system_has_no_critical_step() -> None:
    unit = StateSpace(0.5, 1.0, 1.0, initial=1.0)
    system = System({"a": unit, "b": StateSpace(-1.0, 1.0, 1.0)}, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    verdict = analyse(system, masters.jacobi(system, 0.01))
    assert verdict.critical_step is None
    assert not verdict.exact_stable
    assert not verdict.stable
    assert "itself is unstable" in str(verdict)


def test_rigid_motion_counts_as_stable() -> None:
    """A free mass has the double eigenvalue 1; rounding must not make it unstable."""
    mass = StateSpace(
        [[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], np.eye(2), inputs=["f"], outputs=["x", "v"], start={"f": 0.0}
    )
    system = System({"a": mass, "b": StateSpace(-1.0, 1.0, 1.0)}, [("a.x", "b.u1")])
    assert analyse(system, masters.jacobi(system, 0.01)).stable


def metered(system: System, of: str, chain: int, scale: float = 1.0) -> System:
    """The system and a meter that integrates one of its outputs `chain` times, in a unit of measure of its own."""
    A = scale * np.eye(chain, k=1)
    B = np.zeros((chain, 1))
    B[-1] = scale
    meter = StateSpace(A, B, np.eye(chain)[:1], inputs=["u"], outputs=["y"])
    return System({**system.units, "meter": meter}, [*system.connections, (of, "meter.u")], inputs=system.inputs)


@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.iterative])
@pytest.mark.parametrize("chain", [1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 30.0])
def test_what_only_integrates_does_not_hide_the_critical_step(
    build: Callable[[System, float], Master], chain: int, scale: float
) -> None:
    """It has the eigenvalue 1 at every step, a chain of integrators even a defective one."""
    plain = two_mass()
    expected = critical_step(plain, build(plain, 1e-3))
    more = metered(plain, "two.x", chain, scale)
    found = critical_step(more, build(more, 1e-3))
    assert expected is not None
    assert found is not None
    assert 0 < found.step < np.inf
    assert found.step == pytest.approx(expected.step, rel=1e-9)
    assert Spectrum(LinearSystem(more, build(more, 1e-3))).rest.count == chain


def test_integrators_alone_are_stable_at_every_step() -> None:
    one = StateSpace(0.0, 1.0, 1.0, initial=1.0)
    system = System({"a": one, "b": StateSpace(0.0, 1.0, 1.0)}, [("a.y1", "b.u1")], inputs={"a.u1": 0.0})
    found = critical_step(system, masters.jacobi(system, 0.1))
    assert found is not None
    assert math.isinf(found.step)


def test_a_meter_does_not_make_an_undamped_system_stable() -> None:
    """Growth that is smaller than can be seen stays growth."""
    system = metered(two_mass(damping=0.0), "two.x", 2)
    found = critical_step(system, masters.jacobi(system, 1e-3))
    assert found is not None
    assert found.step == 0


def test_rigid_motion_that_the_coupling_feeds_is_not_at_rest() -> None:
    """Two masses that only a spring joins: moving on together is an eigenvalue 1, and Jacobi makes them grow."""
    system = two_mass(damping=0.0, k1=0.0, k2=0.0)
    spectrum = Spectrum(LinearSystem(system, masters.jacobi(system, 1e-3)))
    assert spectrum.rest.count == 2
    assert spectrum.moving_radius > 1 + 1e-6
    found = critical_step(system, masters.jacobi(system, 1e-3))
    assert found is not None
    assert found.step == 0


def test_modes_are_those_of_the_coupled_system() -> None:
    system = two_mass()
    verdict = analyse(system, masters.gauss_seidel(system, 1e-5, coupling=Hold(1)))
    poles = np.linalg.eigvals([[0, 1, 0, 0], [-110, -0.2, 100, 0.1], [0, 0, 0, 1], [100, 0.1, -1100, -0.2]])
    assert len(verdict.modes) == 2
    for mode, pole in zip(verdict.modes, sorted(poles[poles.imag > 0], key=abs), strict=True):
        assert mode.monolithic == pytest.approx(pole, rel=1e-10)
        assert mode.cosimulated == pytest.approx(pole, rel=1e-3)
        assert mode.mac == pytest.approx(1, abs=1e-6)


def test_spillover_sign() -> None:
    """Jacobi takes damping from the second mode: the damping shift is negative, and its mode shape stays close."""
    system = two_mass()
    first, second = analyse(system, masters.jacobi_early_read(system, 4e-3)).modes
    assert second.damping_shift < 0 < first.damping_shift
    assert second.cosimulated.real > 0 > second.monolithic.real


def test_global_error_is_that_of_executed_runs() -> None:
    """One run per unit vector as initial state gives the error operator, column by column."""
    system, steps, h = two_mass(integrator=Exact()), 60, 2e-3
    master = masters.jacobi(system, h)
    linear = LinearSystem(system, master)
    columns = []
    for place in range(4):
        started = two_mass(integrator=Exact())
        state = np.eye(4)[place]
        for unit, part in zip(started.units.values(), (state[:2], state[2:]), strict=True):
            unit._initial = part  # type: ignore[attr-defined]
        exact = [linear.coupled.C @ np.linalg.matrix_power(linear.coupled.flow(h), k) @ state for k in range(steps + 1)]
        columns.append(run(started, master, stop=steps * h).values - np.array(exact))
    operators = np.stack(columns, axis=-1)
    error = global_error(linear, steps=steps)
    assert error.absolute == pytest.approx(max(np.linalg.norm(operators, 2, axis=(1, 2))), rel=1e-9)
    assert error.final == pytest.approx(np.linalg.norm(operators[-1], 2), rel=1e-9)


@pytest.mark.parametrize(("order", "expected"), [(0, 1.0), (1, 2.0)])
def test_convergence_order_of_exact_units(order: int, expected: float) -> None:
    system = two_mass(integrator=Exact())
    measured = convergence_order(system, masters.jacobi(system, 1e-3, coupling=Hold(order)), horizon=0.2)
    assert measured == pytest.approx(expected, abs=0.1)


def test_sweep_factor_tells_whether_substitution_converges() -> None:
    for gain, converges in ((0.5, True), (3.0, False)):
        units = {"a": StateSpace(-1.0, 1.0, 1.0, gain, initial=1.0), "b": StateSpace(-1.0, 1.0, 1.0, -gain)}
        system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
        master = masters.iterative(system, 0.01, sweeps=Convergence(tolerance=1e-10, limit=200))
        factor = sweep_factor(LinearSystem(system, master))
        assert factor is not None
        assert (factor < 1) is converges
        assert analyse(system, master).converges is converges
        assert analyse(system, master).stable is converges
        if converges:
            assert not run(system, master, stop=0.05).warnings
        else:
            assert "DIVERGES" in str(analyse(system, master))
            with pytest.raises(NonFiniteError):
                run(system, master, stop=0.2)
    assert sweep_factor(LinearSystem(system, masters.jacobi(system, 0.01))) is None


def test_verdict_prints_what_matters() -> None:
    system = two_mass()
    text = str(analyse(system, masters.jacobi(system, 4e-3)))
    for part in ("UNSTABLE", "F1 F2 G1 G2 H1 H2", "1.000355933", "double every", "critical step", "0.00221482", "mode"):
        assert part in text


def test_horizon_and_units_are_checked() -> None:
    system = two_mass()
    with pytest.raises(ConfigurationError, match="horizon"):
        analyse(system, masters.jacobi(system, 1e-3), horizon=-1.0)

    class Box:
        inputs, outputs = ("u",), ("y",)

        def step(self, time: float, duration: float) -> None: ...

    black = System(
        {"box": PythonUnit(Box), "tank": StateSpace(-1.0, 1.0, 1.0)}, [("tank.y1", "box.u"), ("box.y", "tank.u1")]
    )
    with pytest.raises(ConfigurationError, match="unit 'box' is a PythonUnit"):
        analyse(black, masters.jacobi(black, 0.1))


def test_singular_loop_names_its_variables() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0, 1.0), "b": StateSpace(-1.0, 1.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    with pytest.raises(AlgebraicLoopError, match=r"a\.y1.*b\.y1|b\.y1.*a\.y1"):
        analyse(system, masters.jacobi(system, 0.1))


@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.iterative])
def test_sparse_and_dense_analyses_agree(build: object, monkeypatch: pytest.MonkeyPatch) -> None:
    system = chain(n=6)
    master = build(system, 0.05)  # type: ignore[operator]
    dense = analyse(system, master)
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    sparse = analyse(system, master)
    assert sparse.spectral_radius == pytest.approx(dense.spectral_radius, rel=1e-12)
    assert sparse.defect == pytest.approx(dense.defect, rel=1e-9)
    assert sparse.global_error.absolute == pytest.approx(dense.global_error.absolute, rel=1e-9)


def test_unstable_growth_beyond_all_bounds_is_reported_not_raised() -> None:
    system = two_mass()
    verdict = analyse(system, masters.jacobi(system, 0.2), horizon=2000.0)
    assert math.isinf(verdict.global_error.absolute)
    assert "unbounded" in str(verdict)
    assert Spectrum(LinearSystem(system, masters.jacobi(system, 0.2))).radius > 1


def test_a_mode_that_the_master_adds_is_named() -> None:
    system = two_mass()
    verdict = analyse(system, masters.jacobi(system, 0.2))
    assert verdict.foreign is not None
    assert abs(np.exp(verdict.foreign * 0.2)) == pytest.approx(verdict.spectral_radius, rel=1e-9)
    assert "the master's own" in str(verdict)
    assert math.isnan(verdict.order or 0.0)
    assert analyse(system, masters.jacobi(system, 4e-3)).foreign is None


def test_what_the_global_error_leaves_out_is_said() -> None:
    driven = System({"a": StateSpace(-1.0, 1.0, 1.0)}, inputs={"a.u1": np.sin})
    assert "external inputs left out" in str(analyse(driven, masters.jacobi(driven, 0.1)))
    rest = chain(n=60)
    for unit in rest.units.values():
        unit._initial = np.zeros(2)  # type: ignore[attr-defined]
    assert "unknown" in str(analyse(rest, masters.jacobi(rest, 0.05)))


@pytest.mark.parametrize("step", [1e-320, 1e300])
def test_numbers_out_of_range_are_refused(step: float) -> None:
    system = two_mass()
    with pytest.raises(ConfigurationError, match=r"range of double precision|macro step"):
        analyse(system, masters.jacobi(system, step))
    with pytest.raises(ConfigurationError, match="macro steps"):
        analyse(system, masters.jacobi(system, 1e-3), horizon=1e12)
    with pytest.raises(ConfigurationError, match="cannot be meant"):
        run(system, masters.jacobi(system, 1e-300), stop=1.0)
