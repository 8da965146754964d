"""The analysis against what runs really do, and against hand calculation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.linalg import expm

import cosimo as co
from cosimo import masters
from cosimo.algebra import LinearSystem, product
from cosimo.analysis import Spectrum, analyse, consistency, convergence_order, critical_step, global_error, sweep_factor
from cosimo.analysis.verdict import Verdict
from cosimo.core.errors import AlgebraicLoopError, ConfigurationError, NonFiniteError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.problems import chain, quarter_truck, two_mass, two_mass_undamped
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
    verdict = analyse(system, masters.jacobi(system, 1e-3))
    assert "unstable at every step" in str(verdict)
    assert verdict.trust == "no"


def test_unstable_system_has_no_critical_step() -> None:
    unit = StateSpace(0.5, 1.0, 1.0, initial=1.0)
    system = System({"a": unit, "b": StateSpace(-1.0, 1.0, 1.0)}, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    verdict = analyse(system, masters.jacobi(system, 0.01))
    assert verdict.critical_step is None
    assert not verdict.exact_stable
    assert not verdict.stable
    assert "itself grows, whatever the master" in str(verdict)


def test_rigid_motion_counts_as_stable() -> None:
    """A free mass has the double eigenvalue 1; rounding must not make it unstable."""
    mass = StateSpace(
        [[0.0, 1.0], [0.0, 0.0]], [[0.0], [1.0]], np.eye(2), inputs=["f"], outputs=["x", "v"], start={"f": 0.0}
    )
    system = System({"a": mass, "b": StateSpace(-1.0, 1.0, 1.0)}, [("a.x", "b.u1")])
    assert analyse(system, masters.jacobi(system, 0.01), details=False).stable


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
@pytest.mark.one_in(4)
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
    verdict = analyse(system, masters.gauss_seidel(system, 1e-5, coupling=Hold(1)), horizon=0.1)
    poles = np.linalg.eigvals([[0, 1, 0, 0], [-110, -0.2, 100, 0.1], [0, 0, 0, 1], [100, 0.1, -1100, -0.2]])
    assert len(verdict.modes) == 2
    for mode, pole in zip(verdict.modes, sorted(poles[poles.imag > 0], key=abs), strict=True):
        assert mode.monolithic == pytest.approx(pole, rel=1e-10)
        assert mode.cosimulated == pytest.approx(pole, rel=1e-3)
        assert mode.mac == pytest.approx(1, abs=1e-6)


def test_spillover_sign() -> None:
    """Jacobi takes damping from the second mode: the damping shift is negative, and its mode shape stays close."""
    system = two_mass()
    first, second = analyse(system, masters.jacobi_early_read(system, 4e-3), horizon=0.5).modes
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
        verdict = analyse(system, master, details=False)
        assert verdict.converges is converges
        assert verdict.stable is converges
        if converges:
            assert not run(system, master, stop=0.05).warnings
        else:
            assert verdict.headline == "Do not trust: the iteration diverges"
            assert "each sweep makes the error" in str(verdict)
            with pytest.raises(NonFiniteError):
                run(system, master, stop=0.2)
    assert sweep_factor(LinearSystem(system, masters.jacobi(system, 0.01))) is None


def test_verdict_prints_what_matters() -> None:
    system = two_mass()
    verdict = analyse(system, masters.jacobi(system, 4e-3))
    text = str(verdict)
    first, *_ = text.splitlines()
    assert first == "two-mass with Jacobi at 4 ms. Do not trust: unstable."
    for part in (
        "amplitudes double every",
        "Fix: use",
        "F1 F2 G1 G2 H1 H2",
        "1.000355933",
        "largest stable step of",
        "0.00221482",
    ):
        assert part in text
    assert "mode " not in text
    assert "mode " in verdict.text(details=True)


def test_trust_rests_on_the_error_and_not_on_stability_alone() -> None:
    """Gauss–Seidel at 4 ms is stable, but its outputs are far off; at 0.1 ms with extrapolation they are not."""
    system = two_mass()
    wrong = analyse(system, masters.gauss_seidel(system, 4e-3), details=False)
    assert wrong.stable
    assert wrong.trust == "no"
    assert wrong.error is not None
    assert wrong.headline.startswith(f"Do not trust: {wrong.error.output} is off by")
    right = analyse(system, masters.gauss_seidel(system, 1e-4, coupling=Hold(1)), details=False)
    assert right.trust == "yes"
    assert right.headline.startswith("Trust: every output within")
    assert right.evidence == "proved"


def test_the_error_is_that_of_a_run() -> None:
    """Of every output, against the exact solution by an independent matrix exponential."""
    system, h, steps = two_mass(), 4e-3, 500
    verdict = analyse(system, masters.jacobi(system, h), horizon=steps * h, details=False)
    assert verdict.error is not None
    assert (verdict.error.kind, verdict.error.horizon) == ("predicted", 2.0)
    rows = run(system, masters.jacobi(system, h), stop=steps * h).values
    linear = LinearSystem(system, masters.jacobi(system, h))
    x = np.concatenate([unit.initial_state for unit in system.units.values()])
    exact = np.array([linear.coupled.C @ expm(linear.coupled.A * h * k) @ x for k in range(steps + 1)])
    fine = np.array([linear.coupled.C @ expm(linear.coupled.A * h * k / 8) @ x for k in range(8 * steps + 1)])
    expected = np.abs(rows - exact).max(axis=0) / np.abs(fine).max(axis=0)
    assert list(verdict.error.outputs.values()) == pytest.approx(expected, rel=1e-3)


def test_what_is_not_known_is_none_with_its_reason() -> None:
    system = chain(n=31)  # 62 states
    verdict = analyse(system, masters.jacobi(system, 0.01), horizon=0.1)
    assert verdict.limits is None
    assert verdict.connections == ()
    for name in ("limits", "connections"):
        assert "more than 60 states" in verdict.reasons[name]
    assert verdict.critical_step is not None
    assert "mode " in verdict.text(details=True)


def test_horizon_and_units_are_checked() -> None:
    system = two_mass()
    for wrong in (-1.0, 0.0, math.nan):
        with pytest.raises(ConfigurationError, match="horizon"):
            analyse(system, masters.jacobi(system, 1e-3), horizon=wrong)

    class Box:
        inputs, outputs = ("u",), ("y",)

        def step(self, time: float, duration: float) -> None: ...

    black = System(
        {"box": PythonUnit(Box), "tank": StateSpace(-1.0, 1.0, 1.0)}, [("tank.y1", "box.u"), ("box.y", "tank.u1")]
    )
    verdict = analyse(black, masters.jacobi(black, 0.1))
    assert (verdict.trust, verdict.stable, verdict.error, verdict.evidence) == ("not assessed", None, None, "none")
    assert "'Box' object has no attribute 'y'" in verdict.reasons["evidence"]
    assert "box could not be identified" in verdict.headline


def test_singular_loop_names_its_variables() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0, 1.0), "b": StateSpace(-1.0, 1.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    with pytest.raises(AlgebraicLoopError, match=r"a\.y1.*b\.y1|b\.y1.*a\.y1"):
        analyse(system, masters.jacobi(system, 0.1))


@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.iterative])
def test_sparse_and_dense_analyses_agree(build: object, monkeypatch: pytest.MonkeyPatch) -> None:
    system = chain(n=6)
    master = build(system, 0.05)  # type: ignore[operator]
    dense, defect = (
        analyse(system, master, horizon=5.0, details=False),
        consistency(LinearSystem(system, master), k=2, norm=2),
    )
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    sparse = analyse(system, master, horizon=5.0, details=False)
    assert LinearSystem(system, master).sparse
    assert consistency(LinearSystem(system, master), k=2, norm=2) == pytest.approx(defect, rel=1e-9)
    assert sparse.spectral_radius == pytest.approx(dense.spectral_radius, rel=1e-12)
    assert dense.error is not None
    assert sparse.error is not None
    assert sparse.error.outputs == pytest.approx(dense.error.outputs, rel=1e-9)
    assert (sparse.trust, sparse.stable) == (dense.trust, dense.stable)


def test_unstable_growth_beyond_all_bounds_is_reported_not_raised() -> None:
    system = two_mass()
    verdict = analyse(system, masters.jacobi(system, 0.2), horizon=2000.0)
    assert verdict.error is not None
    assert math.isinf(verdict.error.worst)
    assert set(verdict.error.outputs) == set(system.outputs)
    assert "diverges" in str(verdict)
    assert verdict.fields()["error"] is None  # JSON has no infinity
    assert Spectrum(LinearSystem(system, masters.jacobi(system, 0.2))).radius > 1


def test_rigid_motion_has_neither_frequency_nor_damping() -> None:
    """Rounding gives a pole at 0 a direction: "1.6e-12 Hz, damping −1, grows"."""
    free = co.StateSpace([[0, 1], [0, 0]], [[0], [1]], np.eye(2), inputs=["f"], outputs=["x", "v"], initial=[0.0, 1.0])
    spring = co.StateSpace([[-9e3]], [[-9e6, 9e6]], [[1.0]], inputs=["p", "q"], outputs=["f"])
    links = [("a.x", "spring.p"), ("b.x", "spring.q"), ("spring.f", "a.f"), co.Connection("spring.f", "b.f", gain=-1)]
    system = co.System({"a": free, "b": free, "spring": spring}, links)
    verdict = co.analyse(system, co.masters.jacobi(system, 1e-4), horizon=0.1)
    table = verdict.document.section("modes").tables[0]
    first, *others = table.cells()
    assert first[3:7] == ["rigid", "–", "–", "–"]
    assert not any("rigid" in cells for cells in others)
    assert verdict.fields()["modes"][0]["frequency"] == verdict.modes[0].frequency  # JSON has the numbers


def test_a_mode_that_the_master_adds_is_named() -> None:
    system = two_mass()
    verdict = analyse(system, masters.jacobi(system, 0.2))
    assert verdict.foreign is not None
    assert abs(np.exp(verdict.foreign * 0.2)) == pytest.approx(verdict.spectral_radius, rel=1e-9)
    assert "The growing mode is not a mode of the system: the coupling adds it." in str(verdict)
    assert verdict.order is None
    assert analyse(system, masters.jacobi(system, 4e-3)).foreign is None


def test_external_inputs_are_part_of_the_error() -> None:
    """A lag under sin t held over the step: the error is that of a hold, half a step late, and no coupling is there."""
    driven = System({"a": StateSpace(-1.0, 1.0, 1.0, integrator=Exact())}, inputs={"a.u1": np.sin})
    verdict = analyse(driven, masters.jacobi(driven, 0.1), horizon=10.0)
    t = np.arange(101) * 0.1
    exact = (np.sin(t) - np.cos(t) + np.exp(-t)) / 2
    measured = np.abs(run(driven, masters.jacobi(driven, 0.1), stop=10.0).values[:, 0] - exact).max()
    fine = np.linspace(0, 10, 10_001)
    size = np.abs((np.sin(fine) - np.cos(fine) + np.exp(-fine)) / 2).max()
    assert verdict.error is not None
    assert verdict.error.worst == pytest.approx(measured / size, rel=1e-4)


def test_a_system_at_rest_is_judged_from_any_start() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0), "b": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), Connection("b.y1", "a.u1", gain=-1.0)])
    verdict = analyse(system, masters.jacobi(system, 0.3), horizon=5.0)
    assert verdict.error is not None
    assert verdict.error.any_start
    assert verdict.error.horizon == 5.0
    assert "from the worst initial state" in " ".join(str(verdict).split())
    assert verdict.recommendation is not None
    assert verdict.recommendation.master is not None
    good = analyse(system, verdict.recommendation.master, horizon=5.0)
    assert good.trust == "yes"
    assert good.headline.endswith("from any initial state")


def test_at_the_edge_of_stability_an_accurate_master_is_advised() -> None:
    """Positive feedback of 1: a pole at 0. The slightest change makes it grow, so that no master is robust."""
    units = {"a": StateSpace(-1.0, 1.0, 1.0, initial=1.0), "b": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    verdict = analyse(system, masters.jacobi(system, 0.5), horizon=5.0)
    assert verdict.stable
    assert verdict.trust != "yes"
    assert verdict.recommendation is not None
    assert verdict.recommendation.master is not None
    assert analyse(system, verdict.recommendation.master, horizon=5.0, details=False).trust == "yes"


def test_of_many_states_at_rest_nothing_is_claimed() -> None:
    rest = chain(n=51)  # 102 states: more than those for which the error is computed for all initial ones
    for unit in rest.units.values():
        unit._initial = np.zeros(2)  # type: ignore[attr-defined]
    verdict = analyse(rest, masters.jacobi(rest, 0.05), details=False)
    assert verdict.error is None
    assert verdict.trust == "with care"
    assert "give it initial states" in verdict.reasons["error"]


def test_numbers_out_of_range_are_refused() -> None:
    system = two_mass()
    with pytest.raises(ConfigurationError, match="overflow double precision"):
        analyse(system, masters.jacobi(system, 1e300))
    with pytest.raises(ConfigurationError, match="check the step size"):
        run(system, masters.jacobi(system, 1e-300), stop=1.0)


@pytest.mark.parametrize(("step", "horizon"), [(1e-320, None), (1e-3, 1e12)])
def test_more_steps_than_can_be_followed_leave_the_error_open(step: float, horizon: float | None) -> None:
    system = two_mass()
    verdict = analyse(system, masters.jacobi(system, step), horizon=horizon, details=False)
    assert verdict.error is None
    assert verdict.trust == "with care"
    assert "2,000,000 macro steps" in verdict.reasons["error"]


def test_a_run_that_begins_late_is_judged_until_its_stop_time() -> None:
    """From 10 s to 14 s: every text names the end, not the duration; the error is that of the same run from 0 s."""
    system = quarter_truck()
    master = masters.jacobi(system, 1e-3)
    late, early = (analyse(system, master, start=start, horizon=4.0) for start in (10.0, 0.0))
    assert late.error is not None
    assert early.error is not None
    assert late.recommendation is not None
    assert late.error.worst == pytest.approx(early.error.worst, rel=1e-9)
    for said in (late.error.words, str(late), late.recommendation.text):
        assert "until 14 s" in said
        assert "until 4 s" not in said
    assert (late.fields()["start_time"], late.fields()["horizon"]) == (10.0, 4.0)
    again = Verdict.from_brief(late.brief())
    assert again.error is not None
    assert (again.headline, again.error.until) == (late.headline, "14 s")


def test_growth_of_the_system_itself_is_told_with_its_own_rate() -> None:
    """ẋ = 0.5 x doubles every ln 2 / 0.5 = 1.386 s; identified, the same is said of the models."""
    grows = StateSpace(0.5, 1.0, 1.0, initial=1.0, inputs=["u"], outputs=["y"])
    rests = StateSpace(-1.0, 1.0, 0.0, inputs=["u"], outputs=["y"])
    system = System({"a": grows, "b": rests}, [Connection("a.y", "b.u"), Connection("b.y", "a.u")])
    verdict = analyse(system, masters.jacobi(system, 0.01), horizon=1.0)
    said = "The coupled system itself grows, whatever the master: its amplitudes double every 1.386 s."
    assert said in " ".join(str(verdict).split())
    models = replace(verdict, evidence="confirmed")
    assert "According to its models the coupled system itself grows" in " ".join(str(models).split())
