"""Φ and its relatives: the start, the spectrum, the limit of an iteration, dense and sparse alike."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cosimo import masters, problems
from cosimo.algebra import LinearSystem, product
from cosimo.algebra.product import merge_equal
from cosimo.analysis import Spectrum
from cosimo.compensation import compensate
from cosimo.core.arrays import Array
from cosimo.core.errors import AlgebraicLoopError
from cosimo.core.master import Block, Master
from cosimo.core.schedule import Couple, Read, Repeat, Save, Schedule, Step
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedRead
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.masters import MASTERS, Convergence
from cosimo.problems import chain
from cosimo.units import StateSpace

MakeMaster = Callable[[System], Master]


def dense(matrix: Any) -> Array:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


# ---- executed equals multiplied ------------------------------------------------------------------------------------


def test_one_step_is_one_executed_step(make_system: Any, make_master: MakeMaster) -> None:
    system = make_system()
    master = make_master(system)
    tolerance = 1e-7 if "until" in master.name else 1e-12
    executed = run(system, master, stop=6 * master.step, record="all")
    assert executed.warnings == ()
    linear = LinearSystem(system, master)
    z = linear.start()
    for k, row in enumerate(executed.values):
        multiplied = np.concatenate([linear.outputs(z[:, None]), linear.inputs(z[:, None])])[:, 0]
        assert row == pytest.approx(multiplied, abs=tolerance * max(1.0, np.abs(row).max()))
        z = linear.one_step.Phi @ z + linear.one_step.Gamma @ linear.given_values(k)


@pytest.mark.parametrize("tolerance", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize("order", [None, ["a", "b", "c"]])
def test_the_iteration_approaches_its_limit_with_the_tolerance(
    make_system: Any, tolerance: float, order: list[str] | None
) -> None:
    system = make_system()
    master = masters.iterative(system, 0.1, sweeps=Convergence(tolerance), order=order)
    executed = run(system, master, stop=2.0)
    linear = LinearSystem(system, master)
    z, worst = linear.start(), 0.0
    for k, row in enumerate(executed.values):
        worst = max(worst, float(np.abs(row - linear.outputs(z[:, None])[:, 0]).max()))
        z = linear.one_step.Phi @ z + linear.one_step.Gamma @ linear.given_values(k)
    assert worst <= 20 * tolerance
    assert executed.info["largest_residual"] <= tolerance


def test_the_start_time_reaches_external_inputs(make_system: Any) -> None:
    system = make_system()
    master = masters.gauss_seidel(system, 0.1, coupling=Hold(1))
    executed = run(system, master, start=2.0, stop=2.1)
    linear = LinearSystem(system, master)
    z = linear.one_step.Phi @ linear.start(2.0) + linear.one_step.Gamma @ linear.given_values(0, 2.0)
    assert executed.values[1] == pytest.approx(linear.outputs(z[:, None])[:, 0], abs=1e-12)


# ---- the start -----------------------------------------------------------------------------------------------------


def test_the_start_is_consistent(make_system: Any, make_master: MakeMaster) -> None:
    """u = L y and y = C x + D u (glumac2018, Eqs. 52a, 52b), and the states are the given ones."""
    system = make_system()
    linear = LinearSystem(system, make_master(system))
    E = linear.start_map()
    n = sum(len(unit.initial_state) for unit in system.units.values())
    assert E.shape == (linear.size, n)
    x, y = E[linear.layout.indices("x")], E[linear.layout.indices("y")]
    u = np.concatenate([E[linear.layout[Block("u", name)]][: len(unit.inputs)] for name, unit in system.units.items()])
    C = sp.block_diag([linear.operations.models[name].C for name in system.names]).toarray()
    D = sp.block_diag([linear.operations.models[name].D for name in system.names]).toarray()
    assert np.array_equal(x, np.eye(n))
    assert u == pytest.approx(linear.coupled.L @ y, abs=1e-14)
    assert y == pytest.approx(C @ x + D @ u, abs=1e-14)


def test_the_start_is_the_limit_of_coupling_and_reading(make_system: Any) -> None:
    """Φ0 = (∏ H)(∏ F) leaves E as it is, and its powers lead to E from states alone (Eqs. 34, 52)."""
    system = make_system()
    linear = LinearSystem(system, masters.jacobi(system, 0.1))
    order = linear.operations.timeline.operations
    phi0 = [op for kind in (TimedCouple, TimedRead) for op in order if isinstance(op, kind)]
    E = linear.start_map()
    n = E.shape[1]
    given = np.zeros((linear.layout.size - linear.size, n))

    rows = linear.split(np.concatenate([E, given]))
    linear.apply(phi0, rows)
    assert linear.join(rows)[: linear.size] == pytest.approx(E, abs=1e-14)

    only_states = np.zeros((linear.layout.size, n))
    only_states[linear.layout.indices("x")] = np.eye(n)
    rows = linear.split(only_states)
    for _ in range(200):
        linear.apply(phi0, rows)
    assert linear.join(rows)[: linear.size] == pytest.approx(E, abs=1e-12)


def test_the_start_has_no_defect(make_system: Any) -> None:
    system = make_system()
    linear = LinearSystem(system, masters.jacobi(system, 0.1))
    assert np.abs(linear.defect(linear.start_map())).max() < 1e-14
    stepped = linear.one_step.Phi @ linear.start_map()
    assert np.abs(linear.defect(stepped)).max() > 1e-3


# ---- the spectrum --------------------------------------------------------------------------------------------------


def power_traces(matrix: Array, count: int = 8) -> Array:
    """tr Mᵏ: the same for two matrices exactly when their non-zero eigenvalues are, and well conditioned."""
    return np.array([np.trace(np.linalg.matrix_power(matrix, k)) for k in range(1, count + 1)])


def test_the_reduced_map_has_the_spectrum_of_the_full_one(make_system: Any, make_master: MakeMaster) -> None:
    system = make_system()
    linear = LinearSystem(system, make_master(system))
    full, reduced = linear.one_step.Phi, linear.cycle.matrix
    assert len(reduced) < len(full)
    assert power_traces(reduced) == pytest.approx(power_traces(full), abs=1e-11)
    large = [np.sort_complex(values[np.abs(values) > 1e-2]) for values in map(np.linalg.eigvals, (full, reduced))]
    assert len(large[0]) == len(large[1])
    assert large[0] == pytest.approx(large[1], abs=1e-9)


def test_save_slots_are_not_carried(make_system: Any, make_master: MakeMaster) -> None:
    system = make_system()
    linear = LinearSystem(system, make_master(system))
    assert not [block for block in linear.cycle.blocks if block.kind in "XU"]


def test_what_a_repeat_writes_itself_is_not_carried_into_it() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0), "b": StateSpace(-2.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    halves = (Couple("a"), Step("a", Fraction(1, 2)), Read("a"))
    operations = (Repeat(halves, 2), Couple("b"), Step("b"), Read("b"))
    linear = LinearSystem(system, Master("halves", Schedule(("a", "b"), operations), 0.1, Hold(0)))
    # Inputs and outputs are formed anew; just before b is read, nothing but the states lives.
    assert linear.cycle.blocks == (Block("x", "a"), Block("x", "b"))


def test_idle_slots_leave_no_eigenvalue_one() -> None:
    """A state saved and never restored, an output nobody reads, a stable unit: nothing of modulus 1."""
    units = {"a": StateSpace(-1.0, 1.0, [[1.0], [2.0]]), "b": StateSpace(-2.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    operations = (
        *(Couple("a"), Save("a"), Save("b"), Step("a"), Read("a")),
        *(Couple("b"), Step("b"), Read("b")),
    )
    master = Master("idle", Schedule(("a", "b"), operations), 0.1, Hold(0))
    eigenvalues = np.linalg.eigvals(LinearSystem(system, master).cycle.matrix)
    assert np.abs(eigenvalues).max() < 0.99
    plain = np.linalg.eigvals(LinearSystem(system, masters.gauss_seidel(system, 0.1)).cycle.matrix)
    assert np.abs(eigenvalues).max() == pytest.approx(np.abs(plain).max(), abs=1e-12)


def test_states_that_nobody_reads_count() -> None:
    """An unstable unit at the end of a chain is unstable, whether or not its output is used."""
    units = {"a": StateSpace(-1.0, np.zeros((1, 0)), 1.0), "sink": StateSpace(0.5, 1.0, 1.0)}
    system = System(units, [("a.y1", "sink.u1")])
    eigenvalues = np.linalg.eigvals(LinearSystem(system, masters.jacobi(system, 1.0)).cycle.matrix)
    assert np.abs(eigenvalues).max() == pytest.approx(np.exp(0.5), abs=1e-14)


def test_a_fine_step_tends_to_the_exact_flow(make_system: Any) -> None:
    """The states after T, co-simulated with ever finer steps, tend to those of exp(A_c T) with order one."""
    system = make_system()
    errors = []
    for steps in (400, 800, 1600):
        linear = LinearSystem(system, masters.jacobi(system, 1.0 / steps))
        states = linear.layout.indices("x")
        end = np.linalg.matrix_power(linear.one_step.Phi, steps) @ linear.start_map()
        errors.append(np.abs(end[states] - linear.coupled.flow(1.0)).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(1.0, abs=0.1)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(1.0, abs=0.1)


# ---- the limit of an iteration ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, ["c", "a", "b"]])
@pytest.mark.parametrize("hold", [0, 1, 2])
def test_the_limit_is_what_many_sweeps_give(make_system: Any, order: list[str] | None, hold: int) -> None:
    system = make_system()
    limit = LinearSystem(system, masters.iterative(system, 0.1, order=order, coupling=Hold(hold))).one_step
    many = LinearSystem(system, masters.iterative(system, 0.1, sweeps=80, order=order, coupling=Hold(hold))).one_step
    assert limit.Phi == pytest.approx(many.Phi, abs=1e-12)
    assert limit.Gamma == pytest.approx(many.Gamma, abs=1e-12)


def test_the_limit_exists_also_where_sweeps_diverge() -> None:
    units = {"one": StateSpace(-1.0, 1.0, 1.0, 3.0, initial=1.0), "two": StateSpace(-1.0, 1.0, 1.0, -1.0)}
    system = System(units, [("two.y1", "one.u1"), ("one.y1", "two.u1")])
    master = masters.iterative(system, 0.1, sweeps=Convergence(1e-13, anderson=4))
    executed, linear = run(system, master, stop=1.0), LinearSystem(system, master)
    assert executed.warnings == ()
    z = linear.start()
    for row in executed.values:
        assert row == pytest.approx(linear.outputs(z[:, None])[:, 0], abs=1e-10)
        z = linear.one_step.Phi @ z


@pytest.mark.parametrize("sparse_from", [0, 10_000])
def test_an_iteration_without_fixed_point_is_refused(sparse_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # y = x + u with u = y: every sweep adds x.
    monkeypatch.setattr(product, "SPARSE_FROM", sparse_from)
    system = System({"one": StateSpace(-1.0, 0.0, 1.0, 1.0)}, [("one.y1", "one.u1")])
    with pytest.raises(AlgebraicLoopError, match="no unique fixed point"):
        LinearSystem(system, masters.iterative(system, 0.1)).one_step  # noqa: B018


# ---- sparse --------------------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
def test_sparse_equals_dense(make_system: Any, make_master: MakeMaster, monkeypatch: pytest.MonkeyPatch) -> None:
    system = make_system()
    master = make_master(system)
    full = LinearSystem(system, master)
    assert not full.sparse
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    thin = LinearSystem(system, master)
    assert thin.sparse
    assert sp.issparse(thin.one_step.Phi)
    for name in ("Phi", "Gamma"):
        assert dense(getattr(thin.one_step, name)) == pytest.approx(getattr(full.one_step, name), abs=1e-13)
    for name in ("A", "B", "C", "D", "L"):
        assert dense(getattr(thin.coupled, name)) == pytest.approx(getattr(full.coupled, name), abs=1e-13)
    assert thin.cycle.blocks == full.cycle.blocks
    assert dense(thin.cycle.matrix) == pytest.approx(full.cycle.matrix, abs=1e-13)
    E, F = thin.start_map(), full.start_map()
    assert dense(E) == pytest.approx(F, abs=1e-13)
    assert thin.start(0.3) == pytest.approx(full.start(0.3), abs=1e-13)
    for name in ("inputs", "outputs", "defect"):
        assert dense(getattr(thin, name)(E)) == pytest.approx(getattr(full, name)(F), abs=1e-13)


def test_a_single_state_in_sparse_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    gain = StateSpace([], [], [], 0.5, inputs=["u"], outputs=["y"])
    system = System({"a": StateSpace(-1.0, 1.0, 1.0, 0.5), "b": gain}, [("a.y1", "b.u"), ("b.y", "a.u1")])
    linear = LinearSystem(system, masters.jacobi(system, 0.1))
    assert dense(linear.coupled.C) == pytest.approx(np.array([[4 / 3], [2 / 3]]))


def test_a_long_chain_stays_sparse(chain: Callable[[int], System]) -> None:
    system = chain(100)
    linear = LinearSystem(system, masters.jacobi(system, 0.05))
    assert linear.sparse
    Phi = linear.one_step.Phi
    assert Phi.nnz < 30 * linear.size
    # The first ten units do not yet feel the last, so a short chain gives the same first steps.
    short = LinearSystem(chain(10), masters.jacobi(chain(10), 0.05))
    long_z, short_z = linear.start(), short.start()
    for _ in range(3):
        long_z, short_z = Phi @ long_z, short.one_step.Phi @ short_z
    outputs = linear.outputs(sp.csr_array(long_z[:, None])).toarray()[:4, 0]
    assert outputs == pytest.approx(short.outputs(short_z[:, None])[:4, 0], abs=1e-14)


def test_equal_slots_are_merged_without_changing_the_spectrum() -> None:
    """Slots 0 … 4 move; 5 … 9 copy 0 … 4, 10 … 14 copy the copies and act back; 15 feeds and is never fed."""
    draw = np.random.default_rng(7)
    Phi = np.zeros((16, 16))
    Phi[:5, :5], Phi[:5, 5:10], Phi[:5, 15] = draw.normal(size=(5, 5)), draw.normal(size=(5, 5)), 1.0
    Phi[5:10] = Phi[10:15] = np.hstack([np.eye(5), np.zeros((5, 11))])
    Phi[:5, 10:15] = draw.normal(size=(5, 5))
    merged, place = merge_equal(sp.csr_array(Phi))
    assert merged.shape == (10, 10)
    assert place.tolist() == [*range(10), *range(5, 10), -1]
    assert power_traces(merged.toarray()) == pytest.approx(power_traces(Phi), rel=1e-12)
    alone, same = merge_equal(sp.csr_array(Phi[:5, :5]))
    assert (alone.toarray() == Phi[:5, :5]).all()
    assert same.tolist() == [*range(5)]


def test_modes_of_merged_slots_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    system = chain(n=6)
    master = compensate(system, masters.jacobi(system, 1e-2)).master
    full = Spectrum(LinearSystem(system, master))
    monkeypatch.setattr(product, "SPARSE_FROM", 1)
    thin = Spectrum(LinearSystem(system, master))
    assert thin.radius == pytest.approx(full.radius, rel=1e-12)
    assert thin.moving_radius == pytest.approx(full.moving_radius, rel=1e-12)
    assert len(thin.eigenvalues) == len(full.eigenvalues)
    for ours, theirs in zip(thin.modes(), full.modes(), strict=True):
        assert ours.cosimulated == pytest.approx(theirs.cosimulated, rel=1e-8)
        assert ours.mac == pytest.approx(theirs.mac, rel=1e-8)


@pytest.mark.parametrize("coupling", [Hold(0), Hold(1)])
@pytest.mark.parametrize("word", ["jacobi", "gauss-seidel", "strang", "iterative"])
def test_a_master_at_another_step_takes_over_what_does_not_depend_on_it(word: str, coupling: Hold) -> None:
    system = problems.quarter_truck()

    def master(step: float) -> Master:
        options = {"sweeps": 2} if word == "iterative" else {}
        return MASTERS[word].build(system, step, coupling=coupling, **options)

    before = LinearSystem(system, master(1e-3))
    before.one_step, before.cycle  # noqa: B018
    for step in (2e-3, 0.05):
        other, fresh = LinearSystem(system, master(step), like=before), LinearSystem(system, master(step))
        assert other.coupled is before.coupled
        assert (other.one_step.Phi == fresh.one_step.Phi).all()
        assert (other.one_step.Gamma == fresh.one_step.Gamma).all()
        assert other.cycle.blocks == fresh.cycle.blocks
        assert (other.cycle.matrix == fresh.cycle.matrix).all()
        assert not (other.one_step.Phi == before.one_step.Phi).all()


def test_a_master_with_other_couplings_takes_over_no_matrix_of_theirs() -> None:
    system = problems.quarter_truck()
    before = LinearSystem(system, masters.jacobi(system, 1e-3))
    before.one_step  # noqa: B018
    other = masters.jacobi(system, 2e-3, coupling=Hold(1))
    assert (LinearSystem(system, other, like=before).one_step.Phi == LinearSystem(system, other).one_step.Phi).all()
