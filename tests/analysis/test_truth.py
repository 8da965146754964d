"""Horizon, true solution and error, against closed forms, an independent matrix exponential, and a fine run."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm

from cosimo import masters, problems
from cosimo.algebra import LinearSystem
from cosimo.analysis import analyse, truth
from cosimo.analysis import linearisation as locally
from cosimo.analysis.error_norms import _courses, global_error
from cosimo.analysis.linearisation import LocalSystem
from cosimo.analysis.truth import (
    MOST_STEPS,
    OutputErrors,
    Recursion,
    Truth,
    cosimulated,
    count_steps,
    default_horizon,
    exact_truth,
    offset_notes,
    output_errors,
    output_sizes,
    undivided,
    worst_start_errors,
)
from cosimo.core.errors import ConfigurationError
from cosimo.core.formatting import percent
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold
from cosimo.execution.running import run
from cosimo.units import Exact, StateSpace


def of(system: System) -> LocalSystem:
    return LocalSystem(system, np.zeros(len(system.outputs)), 1.0, {})


def pair() -> System:
    """ẋ = −x + 2 z + 1, ż = −3 z − x + 0.5 (the offset of a connection and a constant input)."""
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, initial=1.0, integrator=Exact()),
        "b": StateSpace(-3.0, [[1.0, 1.0]], 1.0, initial=-2.0, integrator=Exact()),
    }
    links = [Connection("b.y1", "a.u1", gain=2.0, offset=1.0), Connection("a.y1", "b.u1", gain=-1.0)]
    return System(units, links, inputs={"b.u2": 0.5}, name="pair")


# ---- horizon ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("poles", "seconds"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([-2.0], 10 / 2),  # ten time constants
        ([-2.0, -5.0], 10 / 2),
        ([3j, -3j], 10 * 2 * math.pi / 3),  # ten periods
        ([-3 + 4j, -3 - 4j, -7.0], 10 * 2 * math.pi / 5),
        ([-1.0, 20j, -20j], 10 * 2 * math.pi / 1),
        ([-1.0, -1e4], 3000 / 1e4),  # at most 3000 of the fastest
        ([-1.0, 1e4j, -1e4j], 3000 / 1e4),
        ([-0.9e-6, -1.0], 10.0),  # slower than a millionth of the fastest: rigid motion
        ([-1.1e-6, -1.0], 3000.0),
        ([-1.0, -0.5 + 0.9e-6j, -0.5 - 0.9e-6j], 20.0),  # a double pole driven apart by rounding is no oscillation
        ([-1.0, -0.5 + 1.1e-6j, -0.5 - 1.1e-6j], 20.0 * 2 * math.pi),
    ],
)
def test_the_horizon_where_no_stop_time_is_given(poles: list[complex], seconds: float) -> None:
    assert default_horizon(np.array(poles, dtype=complex)) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize(
    ("horizon", "step", "count"),
    [
        (1.0, 0.1, 10),
        (0.3, 0.1, 3),  # 0.3 / 0.1 is less than 3
        (0.39, 0.1, 3),
        (0.05, 0.1, 1),  # at least one
        (10 * (1 - 0.5e-12), 1.0, 10),
        (10 * (1 - 1.5e-12), 1.0, 9),
        (float(MOST_STEPS) - 0.5, 1.0, MOST_STEPS - 1),
    ],
)
def test_whole_steps_of_a_horizon(horizon: float, step: float, count: int) -> None:
    assert count_steps(horizon, step) == count


def test_too_many_steps_are_refused() -> None:
    assert MOST_STEPS == 2_000_000
    for horizon in (2_000_000.5, math.inf, math.nan):
        with pytest.raises(ConfigurationError, match="2,000,000 macro steps"):
            count_steps(horizon, 1.0)


# ---- errors ----------------------------------------------------------------------------------------------------------


def test_the_error_is_the_largest_deviation_over_the_largest_true_value() -> None:
    system = pair()
    wanted = np.array([[1.0, 0.0], [-4.0, 1.0], [2.0, -2.0]])
    rows = wanted + np.array([[0.0, 0.0], [0.3, 0.1], [-0.4, 0.2]])
    truth = Truth(wanted, np.array([5.0, 2.0]))  # sizes over time may be larger than at the communication points
    found = output_errors(system, masters.jacobi(system, 0.1), rows, truth, 0.25, "predicted")
    assert found.outputs == pytest.approx({"a.y1": 0.4 / 5, "b.y1": 0.2 / 2})
    assert (found.worst, found.output, found.horizon, found.kind) == (pytest.approx(0.1), "b.y1", 0.25, "predicted")
    squares = [0, 0.06**2, 0.08**2, 0, 0.05**2, 0.1**2]
    assert found.typical == pytest.approx(math.sqrt(sum(squares) / 6))
    assert float(found) == found.worst
    assert str(found) == "10 % of b.y1 until 0.25 s (predicted)"
    assert not found.any_start


def test_outputs_that_are_read_before_the_step_are_compared_there() -> None:
    """Early read of unit one: row k holds its output at the end of the step before, those of unit two are as usual."""
    system = problems.two_mass()
    assert system.outputs == ("one.f", "two.x", "two.v")
    true = np.array([[1.0, 10.0, 3.0], [2.0, 20.0, 6.0], [4.0, 40.0, 12.0]])
    truth = Truth(true, np.array([4.0, 40.0, 12.0]))
    late, early = masters.jacobi(system, 0.1), masters.jacobi_early_read(system, 0.1)
    shifted = true.copy()
    shifted[1:, 0] = true[:-1, 0]
    none = {"one.f": 0.0, "two.x": 0.0, "two.v": 0.0}
    assert output_errors(system, late, true, truth, 0.2, "measured").outputs == none
    assert output_errors(system, early, shifted, truth, 0.2, "measured").outputs == none
    assert output_errors(system, late, shifted, truth, 0.2, "measured").outputs == {**none, "one.f": 0.5}
    assert output_errors(system, early, true, truth, 0.2, "measured").outputs == {**none, "one.f": 0.5}
    assert truth.rows[1, 0] == 2.0  # what was given is not changed


def test_an_early_read_of_an_exact_run_has_no_error() -> None:
    """A meter with feedthrough that nothing is coupled to: read early or late, it has no coupling error."""
    meter = StateSpace(-1.0, 1.0, 1.0, 2.0, initial=1.0, integrator=Exact())
    alone = System({"meter": meter}, inputs={"meter.u1": 0.2})
    truth = exact_truth(of(alone), step=0.1, start=0.0, horizon=2.0)
    for master in (masters.jacobi(alone, 0.1), masters.jacobi_early_read(alone, 0.1)):
        rows = run(alone, master, stop=2.0).values
        assert output_errors(alone, master, rows, truth, 2.0, "measured").worst < 1e-12


def test_outputs_at_rest_have_no_error() -> None:
    system = pair()
    rows = np.array([[0.1, 1.0], [0.1, 1.5]])
    truth = Truth(np.array([[0.0, 1.0], [0.0, 2.0]]), np.array([0.0, 2.0]))
    found = output_errors(system, masters.jacobi(system, 0.1), rows, truth, 0.1, "measured")
    assert found.outputs == {"b.y1": 0.25}
    nothing = output_errors(system, masters.jacobi(system, 0.1), rows, Truth(truth.rows, np.zeros(2)), 0.1, "measured")
    assert (nothing.outputs, nothing.worst, nothing.output, nothing.typical) == ({}, 0.0, "", 0.0)


@pytest.mark.parametrize(("value", "infinite"), [(0.9e100, False), (1.5e100, True), (math.inf, True), (math.nan, True)])
def test_what_leaves_all_bounds_is_infinite(value: float, infinite: bool) -> None:
    system = pair()
    truth = Truth(np.zeros((2, 2)), np.ones(2))
    rows = np.array([[0.0, 0.0], [value, 0.0]])
    found = output_errors(system, masters.jacobi(system, 0.1), rows, truth, 0.1, "measured")
    assert (found.outputs == {"a.y1": math.inf, "b.y1": math.inf}) is infinite
    assert math.isinf(found.worst) is infinite
    assert math.isinf(found.typical) is infinite


def test_errors_of_nothing() -> None:
    assert (OutputErrors({}, 1.0).worst, OutputErrors({}, 1.0).output) == (0.0, "")


def test_the_worst_start_where_nothing_moves() -> None:
    system = System(
        {"a": StateSpace(-1.0, 1.0, 1.0), "b": StateSpace(-1.0, 1.0, 1.0)},
        [Connection("a.y1", "b.u1"), Connection("b.y1", "a.u1", gain=-1.0)],
    )
    linear = LinearSystem(system, masters.jacobi(system, 0.3))
    found = worst_start_errors(linear, 0.0, 1.0)
    assert found.any_start
    assert found.horizon == 1.0  # not that of the last whole step
    assert found.outputs == global_error(linear, steps=3).outputs
    assert found.worst > 0


def test_of_many_states_at_rest_no_error_is_claimed() -> None:
    system = problems.chain(n=60)
    linear = LinearSystem(system, masters.jacobi(system, 0.05))
    with pytest.raises(ConfigurationError, match="give it initial states"):
        worst_start_errors(linear, 0.0, 0.5)


# ---- the true solution -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 64, 101])
def test_recursion_is_the_plain_loop(count: int) -> None:
    rng = np.random.default_rng(1)
    F, G, C, D = (rng.normal(size=s) for s in ((4, 4), (4, 2), (3, 4), (3, 2)))
    F /= 1.1 * np.abs(np.linalg.eigvals(F)).max()
    v, fed, rows = rng.normal(size=4), rng.normal(size=(count, 2)), []
    x = v
    for e in fed:
        rows.append(C @ x + D @ e)
        x = F @ x + G @ e
    assert Recursion(F, G, C, D).rows(v, fed) == pytest.approx(np.array(rows), rel=1e-10, abs=1e-12)


def test_rows_do_not_depend_on_how_many_are_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    F, G, C, D = (rng.normal(size=s) for s in ((6, 6), (6, 1), (2, 6), (2, 1)))
    process = Recursion(F / 1.1 / np.abs(np.linalg.eigvals(F)).max(), G, C, D)
    v, fed, found = rng.normal(size=6), rng.normal(size=(77, 1)), []
    for length in (1, 2, 8, 32):
        monkeypatch.setattr(truth, "block_length", lambda *_, length=length: length)
        found.append(process.rows(v, fed))
    for other in found[1:]:
        assert other == pytest.approx(found[0], rel=1e-10, abs=1e-12)


def test_the_true_solution_is_the_matrix_exponential() -> None:
    """[ẋ; ż; 0] = M [x; z; 1], written by hand."""
    M = np.array([[-1.0, 2.0, 1.0], [-1.0, -3.0, 0.5], [0.0, 0.0, 0.0]])
    expected = np.array([(expm(M * 0.13 * k) @ [1.0, -2.0, 1.0])[:2] for k in range(41)])
    found = exact_truth(of(pair()), step=0.13, start=0.0, horizon=40.5 * 0.13)
    assert found.rows == pytest.approx(expected, rel=1e-10, abs=1e-12)
    assert found.own_error == 0
    late = exact_truth(of(pair()), step=0.13, start=7.0, horizon=40.5 * 0.13)
    assert late.rows == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_the_true_solution_is_what_a_fine_run_tends_to() -> None:
    system = pair()
    coarse, fine = (run(system, masters.jacobi(system, 0.1 / n), stop=3.0).values[::n] for n in (64, 128))
    found = exact_truth(of(system), step=0.1, start=0.0, horizon=3.0)
    assert found.rows == pytest.approx(2 * fine - coarse, abs=2e-5)
    assert np.abs(found.rows - fine).max() > 1e-4  # a test of the extrapolation, not of a loose tolerance


@pytest.mark.parametrize("start", [0.0, 1.5])
def test_inputs_that_vary_are_followed_exactly_where_they_are_parabolas(start: float) -> None:
    """ẋ = −x + s², x(start) = 0.4: x = s² − 2 s + 2 + c e^−(s − start), from any start."""
    unit = StateSpace(-1.0, 1.0, [[1.0], [2.0]], [[0.0], [0.5]], initial=0.4, integrator=Exact())
    system = System({"a": unit}, inputs={"a.u1": lambda s: s**2})
    s = start + 0.2 * np.arange(16)
    c = 0.4 - (start**2 - 2 * start + 2)
    x = s**2 - 2 * s + 2 + c * np.exp(-(s - start))
    found = undivided(of(system), step=0.2, start=start, steps=15)
    assert found == pytest.approx(np.column_stack([x, 2 * x + 0.5 * s**2]), rel=1e-9, abs=1e-11)


def test_inputs_that_vary_are_followed_closely_otherwise() -> None:
    """ẋ = −x + sin 5t, x(0) = 0: a step of 0.2 is an angle of 1; eight parabolas over it leave an error of 1e-6."""
    system = System({"a": StateSpace(-1.0, 1.0, 1.0, integrator=Exact())}, inputs={"a.u1": lambda t: math.sin(5 * t)})
    t = 0.2 * np.arange(51)
    x = (np.sin(5 * t) - 5 * np.cos(5 * t) + 5 * np.exp(-t)) / 26
    error = np.abs(undivided(of(system), step=0.2, start=0.0, steps=50)[:, 0] - x).max()
    assert error < 2e-6


def test_loops_and_gains_are_solved() -> None:
    """Two gains in a loop: y = 2 (z + 1) , z = −0.25 y + x: y = (2 x + 2) / 1.5; ẋ = −x."""
    gain = StateSpace(np.zeros((0, 0)), np.zeros((0, 1)), np.zeros((1, 0)), 2.0, inputs=["u"], outputs=["y"])
    lag = StateSpace(-1.0, [[0.0]], 1.0, -0.25, initial=1.0, inputs=["u"], outputs=["y"], integrator=Exact())
    system = System({"g": gain, "l": lag}, [Connection("l.y", "g.u", offset=1.0), Connection("g.y", "l.u")])
    x = np.exp(-0.1 * np.arange(11))
    y = (2 * x + 2) / 1.5
    rows = undivided(of(system), step=0.1, start=0.0, steps=10)
    assert rows == pytest.approx(np.column_stack([y, y / 2 - 1]), rel=1e-10)


def test_a_solution_beyond_all_numbers_is_refused() -> None:
    system = System({"a": StateSpace(50.0, 1.0, 1.0, initial=1.0)}, inputs={"a.u1": 0.0}, name="runaway")
    with pytest.raises(ConfigurationError, match=r"'runaway' overflows within 20 s"):
        exact_truth(of(system), step=0.1, start=0.0, horizon=20.0)


def test_large_systems_have_the_same_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = exact_truth(of(pair()), step=0.1, start=0.0, horizon=1.0)
    monkeypatch.setattr(locally, "LARGE", 1)
    sparse = exact_truth(of(pair()), step=0.1, start=0.0, horizon=1.0)
    assert sparse.rows == pytest.approx(dense.rows, rel=1e-10)
    assert sparse.sizes == pytest.approx(dense.sizes, rel=1e-12)


@pytest.mark.slow
def test_large_systems_are_driven_by_inputs_that_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = System(pair().units, pair().connections, inputs={"b.u2": lambda time: math.sin(7 * time)})
    dense = exact_truth(of(moved), step=0.3, start=0.5, horizon=3.0)
    monkeypatch.setattr(locally, "LARGE", 1)
    sparse = exact_truth(of(moved), step=0.3, start=0.5, horizon=3.0)
    assert sparse.rows == pytest.approx(dense.rows, rel=1e-10)
    assert sparse.sizes == pytest.approx(dense.sizes, rel=1e-10)


# ---- sizes -----------------------------------------------------------------------------------------------------------


def oscillator(speed: float) -> System:
    """y = cos(ω t + 1)."""
    initial = [math.cos(1.0), -math.sin(1.0)]
    unit = StateSpace([[0.0, speed], [-speed, 0.0]], [[0.0], [0.0]], [[1.0, 0.0]], initial=initial, integrator=Exact())
    return System({"a": unit}, inputs={"a.u1": 0.0})


def test_sizes_are_those_of_the_signal_and_not_of_its_samples() -> None:
    """Sampled once per period, a cosine looks constant."""
    system = oscillator(2 * math.pi)
    truth = exact_truth(of(system), step=1.0, start=0.0, horizon=5.0)
    assert truth.rows[:, 0] == pytest.approx(math.cos(1.0))
    assert truth.sizes == pytest.approx([1.0], rel=1e-4)


def test_sizes_include_the_communication_points() -> None:
    system = pair()
    truth = exact_truth(of(system), step=0.1, start=0.0, horizon=1.0, sizes=np.array([1e-3, 0.0]))
    assert truth.sizes == pytest.approx([np.abs(truth.rows[:, 0]).max(), 0.0])
    large = exact_truth(of(system), step=0.1, start=0.0, horizon=1.0, sizes=np.array([7.0, 9.0]))
    assert large.sizes.tolist() == [7.0, 9.0]


def test_sizes_are_looked_for_at_two_thousand_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = oscillator(2000.0)  # an angle of about 1 between the moments
    expected = np.abs(np.cos(1.0 + 2000.0 * np.arange(2001) / 2000 * 0.9)).max()
    every_half = np.abs(np.cos(1.0 + 2000.0 * np.arange(4001) / 4000 * 0.9)).max()
    found = output_sizes(of(fast), start=0.0, horizon=0.9)
    assert found == pytest.approx([expected], rel=1e-9)
    assert expected != pytest.approx(every_half, rel=1e-9)
    monkeypatch.setattr(locally, "LARGE", 1)
    assert output_sizes(of(fast), start=0.0, horizon=0.9) == pytest.approx([expected], rel=1e-9)


@pytest.mark.parametrize(("difference", "rests"), [(0.0, True), (1.5e-12, True), (3e-12, False), (1.0, False)])
def test_terms_that_cancel_are_rest(difference: float, rests: bool) -> None:
    """y = x₁ − x₂ of two constants near 1: what is left of terms of size 2 may be rounding up to 2e-12."""
    unit = StateSpace(np.zeros((2, 2)), np.zeros((2, 1)), [[1.0, -1.0], [1.0, 0.0]], initial=[1.0, 1.0 - difference])
    system = System({"a": unit}, inputs={"a.u1": 0.0})
    sizes = output_sizes(of(system), start=0.0, horizon=1.0)
    assert bool(sizes[0] == 0) is rests
    assert sizes[1] == 1


def test_offsets_and_feedthrough_are_terms_too() -> None:
    unit = StateSpace(np.zeros((1, 1)), [[0.0]], [[1.0], [0.0]], [[0.0], [1e-13]], initial=[1.0])
    system = System({"a": unit}, inputs={"a.u1": 1.0})
    assert (output_sizes(of(system), start=0.0, horizon=1.0) > 0).tolist() == [True, True]
    lacking = LocalSystem(system, np.array([-1.0 + 1.5e-12, 5.0]), 1.0, {})
    assert output_sizes(lacking, start=0.0, horizon=1.0) == pytest.approx([0.0, 5.0])
    lacking = LocalSystem(system, np.array([-1.0 + 3e-12, 5.0]), 1.0, {})
    assert output_sizes(lacking, start=0.0, horizon=1.0)[0] > 0


# ---- the co-simulation -----------------------------------------------------------------------------------------------


def two_sweeps(system: System, step: float, coupling: Hold) -> masters.Master:
    return masters.iterative(system, step, sweeps=2, coupling=coupling)


@pytest.mark.parametrize("build", [masters.jacobi, masters.gauss_seidel, masters.jacobi_early_read, two_sweeps])
def test_predicted_rows_are_those_of_runs(build: object) -> None:
    system = pair()
    driven = System(system.units, system.connections, inputs={"b.u2": lambda t: 0.5 + math.sin(t)})
    for one in (system, driven):
        for coupling in (Hold(0), Hold(1)):
            master = build(one, 0.1, coupling=coupling)  # type: ignore[operator]
            rows = cosimulated(of(one), master, start=2.0, steps=70)
            assert rows == pytest.approx(run(one, master, start=2.0, stop=9.0).values, rel=1e-9, abs=1e-11)


def test_predicted_rows_have_the_offsets_of_identified_units() -> None:
    system = pair()
    lacking = LocalSystem(system, np.array([1.0, -2.0]), 1.0, {})
    master = masters.jacobi(system, 0.1)
    plain = cosimulated(of(system), master, start=0.0, steps=5)
    assert cosimulated(lacking, master, start=0.0, steps=5) - plain == pytest.approx(np.tile([1.0, -2.0], (6, 1)))
    true = undivided(lacking, step=0.1, start=0.0, steps=5) - undivided(of(system), step=0.1, start=0.0, steps=5)
    assert true == pytest.approx(np.tile([1.0, -2.0], (6, 1)))


def test_large_systems_have_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from cosimo.algebra import product

    system = problems.chain(n=4)
    master = masters.jacobi(system, 0.05)
    dense = cosimulated(of(system), master, start=0.0, steps=40)
    monkeypatch.setattr(product, "SPARSE_FROM", 0)
    assert LinearSystem(system, master).sparse
    assert cosimulated(of(system), master, start=0.0, steps=40) == pytest.approx(dense, rel=1e-10, abs=1e-14)


@given(st.floats(0.01, 0.5), st.floats(-3, 3), st.floats(-3, 3))
def test_an_error_has_no_unit_of_measure(step: float, one: float, scale: float) -> None:
    """Measured in other units, outputs have the same error."""
    truth = Truth(np.array([[1.0, 1.0], [one, 2.0]]), np.array([max(1.0, abs(one)), 2.0]))
    rows = truth.rows + np.array([[0.0, 0.1], [0.3, -0.2]])
    system = pair()
    master = masters.jacobi(system, step)
    plain = output_errors(system, master, rows, truth, 1.0, "measured")
    factor = 10.0**scale
    other = output_errors(
        system, master, rows * factor, Truth(truth.rows * factor, truth.sizes * factor), 1.0, "measured"
    )
    assert other.outputs == pytest.approx(plain.outputs, rel=1e-9)
    assert other.typical == pytest.approx(plain.typical, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ([280.0, 300.0, 290.0], 0.005, "between 280 and 300: 0.5 % of its largest value is 7.5 %"),
        ([280.0, 300.0, 290.0], 0.0006, ""),  # 0.9 % of the range
        ([-300.0, -299.0, -299.5], 0.004, "between -300 and -299: 0.4 % of its largest value is 120 %"),
        ([200.0, 300.0, 290.0], 0.009, ""),  # a third of the largest value
        ([300.0, 300.0, 300.0], 0.009, ""),
        ([280.0, 300.0, 290.0], math.inf, ""),
    ],
)
def test_an_error_beside_a_large_offset_is_told_as_part_of_the_motion(
    values: list[float], error: float, said: str
) -> None:
    rows = np.column_stack([values, [0.0, 1.0, -1.0]])
    errors = OutputErrors({"a.y1": error, "b.y1": 0.5}, 1.0)
    found = offset_notes(pair(), errors, Truth(rows, np.abs(rows).max(axis=0)), 0.01)
    assert list(found) == ([f"a.y1 stays {said} of that range"] if said else [])


def test_a_verdict_tells_the_error_of_temperatures_beside_their_range() -> None:
    """Two rooms that exchange heat around 293 K."""
    starts = {"a": 296.0, "b": 290.0}
    units = {
        name: StateSpace(-1e-3, [[7e-4, 3e-4]], 1.0, initial=start, integrator=Exact())
        for name, start in starts.items()
    }
    links = [("a.y1", "b.u1"), ("b.y1", "a.u1")]
    system = System(units, links, inputs={"a.u2": 283.0, "b.u2": 293.0})
    verdict = analyse(system, masters.jacobi(system, 300.0), horizon=6000.0)
    assert verdict.error is not None
    assert verdict.error.worst < 0.01
    rows = exact_truth(of(system), step=300.0, start=0.0, horizon=6000.0).rows
    moved = np.ptp(rows[:, 0]) / np.abs(rows[:, 0]).max()
    assert any(f"is {percent(verdict.error.outputs['a.y1'] / moved)} of that range" in note for note in verdict.notes)


@given(st.integers(1, 6), st.integers(1, 700), st.integers(0, 2**32 - 1))
def test_small_matrices_are_applied_many_times_at_once(n: int, count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    M, first = draw.normal(size=(n, n)) / np.sqrt(n), draw.normal(size=(n, 2))
    one_by_one = np.concatenate([*_courses(partial(np.matmul, M), first, count)])
    together = np.concatenate([*_courses(M, first, count)])
    assert together.shape == (count, n, 2)
    scale = np.abs(one_by_one).max(axis=(1, 2), keepdims=True)
    assert (np.abs(together - one_by_one) <= 1e-9 * np.maximum.accumulate(scale)).all()
