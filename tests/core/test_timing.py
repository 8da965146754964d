"""When things happen: sample times worked out by hand, and every schedule that is not one macro step refused."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.coupling import Coupling
from cosimo.core.errors import ScheduleError
from cosimo.core.master import Master
from cosimo.core.schedule import Convergence, Couple, Operation, Read, Repeat, Restore, Save, Schedule, Step
from cosimo.core.system import System
from cosimo.core.timing import TimedCouple, TimedOperation, TimedRead, TimedRepeat, TimedStep, timeline
from cosimo.couplings import Hold
from cosimo.units import StateSpace

HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


def pair() -> System:
    """Two units that feed each other; `a` has feedthrough."""
    units = {"a": StateSpace(-1.0, 1.0, 1.0, 0.5), "b": StateSpace(-1.0, 1.0, 1.0)}
    return System(units, [("b.y1", "a.u1"), ("a.y1", "b.u1")])


def word(*operations: Operation, coupling: Coupling | None = None, system: System | None = None) -> Master:
    names = (system or pair()).names
    return Master("word", Schedule(names, operations), 0.1, coupling or Hold(0))


def couples(operations: tuple[TimedOperation, ...]) -> Iterator[TimedCouple]:
    for operation in operations:
        if isinstance(operation, TimedRepeat):
            for sweep in operation.sweeps:
                yield from couples(sweep)
        elif isinstance(operation, TimedCouple):
            yield operation


def stamps(master: Master, system: System | None = None) -> list[tuple[str, tuple[Fraction, ...]]]:
    """Unit and sample times of every coupling, in order, in macro steps from its own moment."""
    line = timeline(system or pair(), master)
    return [(op.unit, sampling.stamps) for op in couples(line.operations) for sampling in op.samplings]


# ---- sample times by hand ------------------------------------------------------------------------------------------


def test_jacobi_extrapolates_from_equidistant_samples() -> None:
    assert stamps(masters.jacobi(pair(), 0.1, coupling=Hold(2))) == [("a", (0, -1, -2)), ("b", (0, -1, -2))]


def test_gauss_seidel_second_unit_interpolates() -> None:
    # b is coupled at t_k, when a has already been read at t_{k+1}.
    assert stamps(masters.gauss_seidel(pair(), 0.1, coupling=Hold(2))) == [("a", (0, -1, -2)), ("b", (1, 0, -1))]


def test_early_read_delivers_the_value_of_the_step_before() -> None:
    # F2 F1 H1 G1 G2 H2: b is coupled before a is read, so a's newest output is that of t_{k−1}.
    assert stamps(masters.jacobi_early_read(pair(), 0.1, coupling=Hold(1))) == [("b", (-1, -2)), ("a", (0, -1))]


def test_held_multirate_sees_old_values_of_the_slow_unit() -> None:
    # b makes two steps per step of a (macro step 1): b's second coupling, at 1/2, sees a as of 0, and the same sample
    # again replaces the first. a is coupled once per macro step, so it remembers b a whole macro step ago.
    master = masters.multirate(pair(), 0.1, multiples={"a": 2}, inputs="held", coupling=Hold(1))
    assert stamps(master) == [("a", (0, -1)), ("b", (0, -1)), ("b", (-HALF, -HALF - 1))]


def test_interpolated_multirate_sees_the_future_of_the_slow_unit() -> None:
    master = masters.multirate(pair(), 0.1, multiples={"a": 2}, inputs="interpolated")
    assert stamps(master) == [("a", (0, -1)), ("b", (1, 0)), ("b", (HALF, -HALF))]


def test_multirate_of_coprime_steps() -> None:
    # a steps by 1/2 (3 base steps), b by 1/3 (2 base steps) of the hyperperiod; Hold(0) sees the last value read.
    master = masters.multirate(pair(), 0.1, multiples={"a": 3, "b": 2})
    assert str(master) == "F1 F2 G1(1/2) G2(1/3) H2 F2 G2(1/3) H1 F1 G1(1/2) H2 F2 G2(1/3) H1 H2"
    assert stamps(master) == [
        ("a", (0,)),
        ("b", (0,)),
        ("b", (-THIRD,)),
        ("a", (THIRD - HALF,)),
        ("b", (HALF - 2 * THIRD,)),
    ]


def test_iterative_first_sweep_extrapolates_the_next_interpolate() -> None:
    master = masters.iterative(pair(), 0.1, sweeps=3, coupling=Hold(1))
    first, later = [("a", (0, -1)), ("b", (0, -1))], [("a", (1, 0)), ("b", (1, 0))]
    # The sweeps after the second are like it and are not listed again.
    assert stamps(master)[:4] == first + later
    assert all(entry in later for entry in stamps(master)[4:])


def test_iterative_gauss_seidel_sweeps() -> None:
    master = masters.iterative(pair(), 0.1, sweeps=2, order=["a", "b"], coupling=Hold(1))
    assert stamps(master) == [("a", (0, -1)), ("b", (1, 0)), ("a", (1, 0)), ("b", (1, 0))]


def test_kept_slots_point_to_the_remembered_samples() -> None:
    line = timeline(pair(), masters.iterative(pair(), 0.1, sweeps=2, coupling=Hold(2)))
    a0, _, a1, _ = [sampling for op in couples(line.operations) for sampling in op.samplings]
    # First sweep at t_k: the newest memory, of t_k from the last sweep before, is replaced by the same sample.
    assert (a0.stamps, a0.kept) == ((0, -1, -2), (1, 2))
    # Second sweep: a new sample of t_{k+1} joins those of t_k and t_{k−1}.
    assert (a1.stamps, a1.kept) == ((1, 0, -1), (0, 1))


def test_a_sample_older_than_the_memory_drops_it() -> None:
    # b is coupled to a at its end (1), then a is rolled back, read again (0), and b coupled with the older sample: the
    # sample of 1 is forgotten, and what is left from the macro step before is that of −1.
    ahead = (Couple("a"), Save("a"), Step("a"), Read("a"), Couple("b"))
    again = (Restore("a"), Read("a"), Couple("b"), Step("b"), Read("b"), Step("a"), Read("a"))
    assert stamps(word(*ahead, *again, coupling=Hold(1))) == [("a", (0, -1)), ("b", (1, -1)), ("b", (0, -1))]


# ---- the rest of the constants ------------------------------------------------------------------------------------


def test_steps_know_where_in_the_polynomial_they_begin() -> None:
    operations = (Couple("a"), Couple("b"), Step("a", THIRD), Read("a"), Step("a", 2 * THIRD), Step("b"), Read("b"))
    timed = timeline(pair(), word(*operations)).operations
    assert [(op.unit, op.time, op.offset) for op in timed if isinstance(op, TimedStep)] == [
        ("a", 0, 0),
        ("a", THIRD, THIRD),
        ("b", 0, 0),
    ]
    assert [(op.unit, op.time, op.offset, op.elapsed) for op in timed if isinstance(op, TimedRead)] == [
        ("a", THIRD, 0, THIRD),
        ("b", 1, 0, 1),
    ]


def test_clocks_at_the_end() -> None:
    line = timeline(pair(), masters.jacobi_early_read(pair(), 0.1))
    assert line.clocks["a"].read == 0
    assert line.clocks["b"].read == 1
    assert line.clocks["a"].time == line.clocks["b"].time == 1


def test_external_inputs_are_sampled_at_each_coupling() -> None:
    system = System(
        {"a": StateSpace(-1.0, 1.0, 1.0), "b": StateSpace(-1.0, 1.0, 1.0)}, [("a.y1", "b.u1")], inputs={"a.u1": np.sin}
    )
    line = timeline(system, masters.multirate(system, 0.1, multiples={"b": 3}))
    assert line.external_times()["a"] == [(0, THIRD), (THIRD, THIRD), (2 * THIRD, THIRD)]


def test_sweeps_after_the_listed_ones_are_like_the_last() -> None:
    (*_, repeat) = timeline(pair(), masters.iterative(pair(), 0.1, sweeps=50)).operations
    assert isinstance(repeat, TimedRepeat)
    assert len(repeat.sweeps) < 5
    assert repeat.sweep(49) is repeat.sweeps[-1]
    assert repeat.sweep(0) is repeat.sweeps[0]


# ---- refused ---------------------------------------------------------------------------------------------------------

A, B = (Couple("a"), Step("a"), Read("a")), (Couple("b"), Step("b"), Read("b"))


@pytest.mark.parametrize(
    ("operations", "message"),
    [
        ((Couple("a"), Read("a"), *B), "'a' is never stepped"),
        ((*A, Step("b"), Read("b")), "'b' is never coupled"),
        ((*A, Couple("b"), Step("b")), "'b' is never read"),
        ((*A, Couple("b"), Step("b", HALF), Read("b")), "'b' advances by 1/2 of the macro step; it must be exactly 1"),
        ((*A, *B, Step("b", THIRD)), "'b' advances beyond the macro step; restore it first or step by less"),
        ((*A, Restore("b"), *B), "'b' is restored before it was saved"),
        ((Save("a"), *A, Restore("b"), *B), "'b' is restored before it was saved"),
        ((*A, *B, Save("a"), Repeat((Restore("a"), *A), 2)), "'a' advances beyond the macro step"),
        (
            (Save("a"), Save("b"), *B, Repeat((Restore("a"), Step("a", HALF), Read("a"), Couple("a")), 2)),
            "'a' advances by 1/2",
        ),
        ((*A, Couple("b"), Repeat((Step("b", THIRD), Read("b")), 4)), "'b' advances beyond the macro step"),
        (
            (*A, Couple("b"), Repeat((Step("b", Fraction(1, 100)), Read("b")), Convergence())),
            "must bring every unit back to the same time",
        ),
    ],
)
def test_what_is_not_one_macro_step_is_refused(operations: tuple[Operation, ...], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        timeline(pair(), word(*operations))


def test_an_input_that_is_never_renewed_is_refused() -> None:
    # The restore puts back the input of the macro step before, and of the one before that: it only grows older.
    stale = (Save("a"), Couple("a"), Restore("a"), Step("a"), Read("a"))
    with pytest.raises(ScheduleError, match="does not repeat from one macro step to the next"):
        timeline(pair(), word(*stale, *B))


def test_a_save_does_not_outlive_its_macro_step() -> None:
    # Were it remembered from the step before, the restore would put back an older time.
    with pytest.raises(ScheduleError, match="restored before it was saved"):
        timeline(pair(), word(Restore("a"), *A, *B, Save("a")))


@pytest.mark.parametrize("units", [("a",), ("a", "b", "c"), ("a", "c")])
def test_a_schedule_for_other_units_is_refused(units: tuple[str, ...]) -> None:
    operations = tuple(op for op in (*A, *B) if op.unit in units)
    with pytest.raises(ScheduleError, match="the schedule is for units"):
        timeline(pair(), Master("word", Schedule(units, operations), 0.1, Hold(0)))


def test_units_without_inputs_or_outputs_need_no_coupling_or_read() -> None:
    source = StateSpace(-1.0, np.zeros((1, 0)), 1.0, initial=1.0)
    sink = StateSpace(-1.0, 1.0, np.zeros((0, 1)))
    system = System({"source": source, "sink": sink}, [("source.y1", "sink.u1")])
    operations = (Step("source"), Read("source"), Couple("sink"), Step("sink"))
    assert len(timeline(system, word(*operations, system=system)).operations) == 4


def test_external_inputs_are_sampled_over_the_step_that_follows() -> None:
    """Two steps of unequal length, each coupled anew: each coupling looks ahead as far as its own step goes."""
    unit = StateSpace(-1.0, 1.0, 1.0)
    system = System({"a": unit}, inputs={"a.u1": np.sin})
    parts = (Fraction(1, 4), Fraction(3, 4))
    operations = [op for part in parts for op in (Couple("a"), Step("a", part))]
    master = Master("uneven", Schedule(("a",), (*operations, Read("a"))), 0.1, Hold(2))
    found = [op.span for op in timeline(system, master).operations if isinstance(op, TimedCouple)]
    assert found == list(parts)


def test_iterations_until_convergence_are_not_nested() -> None:
    """Their warnings would not know which of them failed."""
    system = System({"a": StateSpace(-1.0, 1.0, 1.0)}, [("a.y1", "a.u1")])
    inner = Repeat((Restore("a"), Couple("a"), Step("a"), Read("a")), Convergence())
    for operations in ((Save("a"), Repeat((inner,), 1)), (Save("a"), inner, inner)):
        with pytest.raises(ScheduleError, match="until convergence at most once"):
            timeline(system, Master("nested", Schedule(("a",), operations), 0.1, Hold(0)))
