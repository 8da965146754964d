"""Masters: the schedules they write, what they refuse, and what iteration and multirate do when executed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from cosimo import masters
from cosimo.core.errors import ConfigurationError, UnknownNameError
from cosimo.core.system import Connection, System
from cosimo.couplings import Hold, Nepce
from cosimo.execution.running import run
from cosimo.masters import Convergence, Grants
from cosimo.masters.words import MasterOptions, build_master
from cosimo.problems import two_mass
from cosimo.units import PythonUnit, StateSpace


def three() -> System:
    """A ring of three; `b` has feedthrough."""
    units = {
        "a": StateSpace(-1.0, 1.0, 1.0, initial=1.0),
        "b": StateSpace(-2.0, 1.0, 1.0, 0.3),
        "c": StateSpace(-0.5, 1.0, 1.0),
    }
    return System(units, [("a.y1", "b.u1"), ("b.y1", "c.u1"), Connection("c.y1", "a.u1", -0.5)])


def stiff(gain: float) -> System:
    """Two units whose sweeps multiply the error by about −gain: y1 = x1 + gain·u1, y2 = x2 − u2."""
    units = {
        "one": StateSpace(-1.0, 1.0, 1.0, gain, initial=1.0),
        "two": StateSpace(-1.0, 1.0, 1.0, -1.0, initial=0.5),
    }
    return System(units, [("two.y1", "one.u1"), ("one.y1", "two.u1")])


# ---- the words -------------------------------------------------------------------------------------------------------


def test_jacobi() -> None:
    master = masters.jacobi(three(), 0.1)
    assert str(master) == "F1 F2 F3 G1 G2 G3 H1 H2 H3"
    assert (master.name, master.step, master.coupling) == ("jacobi", 0.1, Hold(0))


def test_jacobi_early_read() -> None:
    # b feeds through: it is coupled last and read before the step.
    assert str(masters.jacobi_early_read(three(), 0.1)) == "F1 F3 F2 H2 G1 G2 G3 H1 H3"


def test_early_read_without_feedthrough_is_jacobi() -> None:
    units = {"a": StateSpace(-1.0, 1.0, 1.0), "b": StateSpace(-1.0, 1.0, 1.0)}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1")])
    assert masters.jacobi_early_read(system, 0.1).schedule == masters.jacobi(system, 0.1).schedule


def test_gauss_seidel() -> None:
    assert str(masters.gauss_seidel(three(), 0.1)) == "F1 G1 H1 F2 G2 H2 F3 G3 H3"
    master = masters.gauss_seidel(three(), 0.1, order=["c", "a", "b"])
    assert str(master) == "F3 G3 H3 F1 G1 H1 F2 G2 H2"
    assert master.name == "gauss-seidel(c,a,b)"


def test_groups() -> None:
    master = masters.groups(three(), 0.1, order=[["c"], ["a", "b"]])
    assert str(master) == "F3 G3 H3 F1 F2 G1 G2 H1 H2"
    assert master.name == "groups(c;a,b)"


def test_groups_of_one_are_gauss_seidel_and_one_group_is_jacobi() -> None:
    assert (
        masters.groups(three(), 0.1, order=[["a"], ["b"], ["c"]]).schedule
        == masters.gauss_seidel(three(), 0.1).schedule
    )
    assert masters.groups(three(), 0.1, order=[["a", "b", "c"]]).schedule == masters.jacobi(three(), 0.1).schedule


def test_strang() -> None:
    assert str(masters.strang(two_mass(), 0.1)) == "F1 G1(1/2) H1 F2 G2 H2 F1 G1(1/2) H1"
    master = masters.strang(three(), 0.1, order=["c", "a", "b"])
    assert str(master) == "F3 G3(1/2) H3 F1 G1(1/2) H1 F2 G2 H2 F1 G1(1/2) H1 F3 G3(1/2) H3"
    assert master.name == "strang(c;a;b)"
    master = masters.strang(three(), 0.1, order=[["a", "c"], "b"])
    assert str(master) == "F1 F3 G1(1/2) G3(1/2) H1 H3 F2 G2 H2 F1 F3 G1(1/2) G3(1/2) H1 H3"
    assert master.name == "strang(a,c;b)"


def test_one_group_cannot_be_split() -> None:
    with pytest.raises(ConfigurationError, match="at least two parts of the system; use jacobi"):
        masters.strang(three(), 0.1, order=[["a", "b", "c"]])


def test_strang_in_words_takes_units_or_groups() -> None:
    for text, parts in (("c,a,b", ["c", "a", "b"]), ("c;a;b", ["c", "a", "b"]), ("a, c; b", [["a", "c"], "b"])):
        assert build_master(three(), 0.1, MasterOptions("strang", order=text)) == masters.strang(
            three(), 0.1, order=parts
        )


def test_multirate_held() -> None:
    master = masters.multirate(three(), 0.1, multiples={"a": 2})
    assert str(master) == "F1 F2 F3 G1 G2(1/2) G3(1/2) H2 H3 F2 F3 G2(1/2) G3(1/2) H1 H2 H3"
    assert master.step == 0.2
    assert master.coupling == Hold(0)
    assert master.name == "multirate(a:2,b:1,c:1;held)"


def test_multirate_in_groups() -> None:
    """At each tick the first group is read where its time has come, before the second is coupled."""
    master = masters.multirate(three(), 0.1, multiples={"a": 2}, order=[["a", "b"], ["c"]])
    assert str(master) == "F1 F2 G1 G2(1/2) H2 F3 G3(1/2) H3 F2 G2(1/2) H1 H2 F3 G3(1/2) H3"
    assert master.name == "multirate(a:2,b:1;c:1;held)"
    with pytest.raises(ConfigurationError, match="slowest first; leave out the order"):
        masters.multirate(three(), 0.1, multiples={}, inputs="interpolated", order=[["a", "b"], ["c"]])
    with pytest.raises(ConfigurationError, match="exactly once"):
        masters.multirate(three(), 0.1, multiples={}, order=[["a", "b"]])


def test_multirate_interpolated() -> None:
    master = masters.multirate(three(), 0.1, multiples={"c": 2}, inputs="interpolated")
    assert str(master) == "F3 G3 H3 F1 G1(1/2) H1 F2 G2(1/2) H2 F1 G1(1/2) H1 F2 G2(1/2) H2"
    assert master.coupling == Hold(1)


def test_multirate_hyperperiod() -> None:
    assert masters.multirate(three(), 0.1, multiples={"a": 4, "b": 6}).step == pytest.approx(1.2)


def test_iterative() -> None:
    master = masters.iterative(three(), 0.1, sweeps=3)
    assert str(master) == "S1 S2 S3 (R1 R2 R3 F1 F2 F3 G1 G2 G3 H1 H2 H3)^3"
    assert master.name == "iterative(jacobi;3)"
    master = masters.iterative(three(), 0.1, order=["b", "a", "c"])
    assert str(master) == "S1 S2 S3 (R1 R2 R3 F2 G2 H2 F1 G1 H1 F3 G3 H3)^*"
    assert master.name == "iterative(gauss-seidel;until converged)"


def test_couplings_are_taken_over() -> None:
    master = masters.jacobi(three(), 0.1, coupling=Hold(2), couplings={"a.u1": Nepce(0.2)})
    assert (master.coupling_of("a.u1"), master.coupling_of("b.u1")) == (Nepce(0.2), Hold(2))


# ---- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gauss_seidel", {"order": ["a", "b"]}),
        ("gauss_seidel", {"order": ["a", "b", "c", "a"]}),
        ("groups", {"order": [["a"], ["b"]]}),
        ("groups", {"order": [["a", "b"], ["b", "c"]]}),
        ("strang", {"order": ["a", "b"]}),
        ("strang", {"order": [["a", "b"], "b", "c"]}),
        ("iterative", {"order": ["a"]}),
        ("gauss_seidel", {"order": []}),
    ],
)
def test_an_order_names_every_unit_once(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="must name each of the units a, b, c exactly once"):
        getattr(masters, name)(three(), 0.1, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gauss_seidel", {"order": ["engin", "gearbox"]}),
        ("groups", {"order": [["engin"], ["gearbox"]]}),
        ("strang", {"order": ["engin", "gearbox"]}),
        ("iterative", {"order": ["engin", "gearbox"]}),
        ("multirate", {"multiples": {"engin": 2}}),
    ],
)
def test_unknown_units_come_with_a_suggestion(name: str, options: dict[str, Any]) -> None:
    units = {unit: StateSpace(-1.0, 1.0, 1.0, start={"u1": 0.0}) for unit in ("engine", "gearbox")}
    with pytest.raises(UnknownNameError, match=r"unknown unit 'engin'; did you mean 'engine'\?"):
        getattr(masters, name)(System(units), 0.1, **options)


BUILDERS: dict[str, dict[str, Any]] = {
    "jacobi": {},
    "jacobi_early_read": {},
    "gauss_seidel": {},
    "groups": {"order": [["a", "b", "c"]]},
    "strang": {},
    "multirate": {"multiples": {"a": 2}},
    "iterative": {},
}


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("step", [0.0, -0.1, float("nan"), float("inf")])
def test_a_step_must_be_positive(name: str, step: float) -> None:
    with pytest.raises(ConfigurationError, match="the macro step must be a positive number"):
        getattr(masters, name)(three(), step, **BUILDERS[name])


@pytest.mark.parametrize("name", BUILDERS)
def test_a_coupling_for_an_unknown_input(name: str) -> None:
    with pytest.raises(UnknownNameError, match="unknown input of unit 'a' 'u7'"):
        getattr(masters, name)(three(), 0.1, couplings={"a.u7": Hold(1)}, **BUILDERS[name])


@pytest.mark.parametrize("multiple", [0, -2, 1.5])
def test_multiples_are_positive_whole_numbers(multiple: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"(unit 'a' steps by|must be a whole number, not) {multiple}"):
        masters.multirate(three(), 0.1, multiples={"a": multiple})


def test_unknown_treatment_of_inputs() -> None:
    with pytest.raises(ConfigurationError, match="'inputs' must be 'held' or 'interpolated', not 'guessed'"):
        masters.multirate(three(), 0.1, multiples={}, inputs="guessed")  # type: ignore[arg-type]


@pytest.mark.parametrize("sweeps", [0, -1, 2.5, "many"])
def test_sweeps_are_counted_from_one(sweeps: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Repeat|'sweeps' must be a whole number"):
        masters.iterative(three(), 0.1, sweeps=sweeps)


def test_units_that_cannot_restore_are_not_iterated() -> None:
    system = three()
    system.units["b"].can_restore = False
    with pytest.raises(
        ConfigurationError, match="unit 'b' cannot restore its state; use a master that does not iterate"
    ):
        masters.iterative(system, 0.1)


# ---- iteration -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [None, ["a", "b", "c"], ["c", "b", "a"]])
@pytest.mark.parametrize("hold", [0, 1, 2])
def test_many_sweeps_and_until_convergence_agree(order: list[str] | None, hold: int) -> None:
    options: dict[str, Any] = {"order": order, "coupling": Hold(hold)}
    tight = masters.iterative(three(), 0.1, sweeps=Convergence(tolerance=1e-14), **options)
    many = masters.iterative(three(), 0.1, sweeps=40, **options)
    converged, fixed = run(three(), tight, stop=2.0), run(three(), many, stop=2.0)
    assert converged.values == pytest.approx(fixed.values, abs=1e-12)
    assert converged.warnings == ()
    assert converged.info["largest_residual"] <= 1e-14
    assert converged.info["sweeps"] < 40 * 20


def test_the_order_of_sweeps_does_not_matter_once_converged() -> None:
    tight = Convergence(tolerance=1e-14)
    results = [
        run(three(), masters.iterative(three(), 0.1, sweeps=tight, order=order), stop=2.0).values
        for order in (None, ["a", "b", "c"], ["b", "c", "a"])
    ]
    assert results[1] == pytest.approx(results[0], abs=1e-12)
    assert results[2] == pytest.approx(results[0], abs=1e-12)


def test_one_sweep_is_no_iteration() -> None:
    once = run(three(), masters.iterative(three(), 0.1, sweeps=1), stop=2.0)
    assert np.array_equal(once.values, run(three(), masters.jacobi(three(), 0.1), stop=2.0).values)
    once = run(three(), masters.iterative(three(), 0.1, sweeps=1, order=["b", "a", "c"]), stop=2.0)
    plain = run(three(), masters.gauss_seidel(three(), 0.1, order=["b", "a", "c"]), stop=2.0)
    assert np.array_equal(once.values, plain.values)


@pytest.mark.parametrize("order", [None, ["one", "two"]])
def test_divergence_of_substitution_is_reported(order: list[str] | None) -> None:
    system = stiff(3.0)
    master = masters.iterative(system, 0.1, sweeps=Convergence(limit=8), order=order)
    result = run(system, master, stop=0.5)
    (warned,) = result.warnings
    assert "did not converge in 8 sweeps" in warned.message
    assert "Anderson acceleration" in warned.message
    assert (warned.time, warned.count) == (0.0, 5)
    assert (result.info["sweeps"], result.info["unconverged"]) == (8 * 5, 5)
    assert result.info["largest_residual"] > 1e-2


@pytest.mark.parametrize("order", [None, ["one", "two"]])
def test_anderson_converges_where_substitution_diverges(order: list[str] | None) -> None:
    system = stiff(3.0)
    result = run(
        system, masters.iterative(system, 0.1, sweeps=Convergence(tolerance=1e-12, anderson=3), order=order), stop=2.0
    )
    assert result.warnings == ()
    assert result.info["largest_residual"] <= 1e-12
    assert result.info["sweeps"] <= 12 * 20
    # At the fixed point inputs held over each step equal the outputs at its end: y1 = x1 + 3 y2, y2 = x2 − y1, with
    # the states under constant inputs, solved here without any iteration.
    e, i = np.exp(-0.1), 1 - np.exp(-0.1)
    x = np.array([1.0, 0.5])
    for row in result.values[1:]:
        # y1 = e x1 + (i + 3) y2 and y2 = e x2 + (i − 1) y1.
        y = np.linalg.solve([[1.0, -(i + 3.0)], [-(i - 1.0), 1.0]], e * x)
        assert row == pytest.approx(y, abs=1e-9)
        x = e * x + i * y[::-1]


def test_anderson_on_a_nonlinear_loop() -> None:
    class Cube:
        inputs, outputs = ("u",), ("y",)

        def __init__(self) -> None:
            self.x = 1.0

        @property
        def y(self) -> float:
            return self.x - 4.0 * float(np.tanh(self.u))  # type: ignore[attr-defined]

        def step(self, time: float, duration: float) -> None:
            self.x -= duration * self.x

    units = {"cube": PythonUnit(Cube), "gain": StateSpace([], [], [], 1.0, inputs=["u"], outputs=["y"])}
    system = System(units, [("cube.y", "gain.u"), ("gain.y", "cube.u")])
    plain = run(system, masters.iterative(system, 0.1), stop=1.0)
    assert plain.warnings
    result = run(system, masters.iterative(system, 0.1, sweeps=Convergence(anderson=4)), stop=1.0)
    assert result.warnings == ()
    y, x = result["cube.y"][1:], 0.9 ** np.arange(1, 11)
    assert y + 4.0 * np.tanh(y) == pytest.approx(x, abs=1e-8)


def test_the_outputs_recorded_without_convergence_are_those_of_the_units() -> None:
    """Not a proposal of the accelerator that no unit ever gave."""
    system = stiff(3.0)
    master = masters.iterative(system, 0.1, sweeps=Convergence(limit=2, anderson=2))
    result = run(system, master, stop=0.1, record="all")
    assert len(result.warnings) == 1
    e, i = np.exp(-0.1), 1 - np.exp(-0.1)
    u1, u2 = result["one.u1"][1], result["two.u1"][1]
    assert result["one.y1"][1] == pytest.approx(e * 1.0 + (i + 3.0) * u1, abs=1e-12)
    assert result["two.y1"][1] == pytest.approx(e * 0.5 + (i - 1.0) * u2, abs=1e-12)


# ---- multirate -----------------------------------------------------------------------------------------------------


def sampled(inputs: Any, coupling: Hold | None = None) -> np.ndarray[Any, Any]:
    """What a fast unit receives from a slow ramp (one step of 4 against four of 1), as it was at each of its steps."""
    received: list[float] = []

    class Logger:
        inputs, outputs = ("u",), ("y",)
        y = 0.0

        def step(self, time: float, duration: float) -> None:
            received.append(self.u)  # type: ignore[attr-defined]

    slow = StateSpace(0.0, 1.0, 1.0, start={"u1": 1.0})
    system = System({"fast": PythonUnit(Logger), "slow": slow}, [("slow.y1", "fast.u")])
    master = masters.multirate(system, 1.0, multiples={"slow": 4}, inputs=inputs, coupling=coupling)
    run(system, master, stop=12.0)
    return np.array(received)


def test_held_inputs_stand_still_between_slow_steps() -> None:
    held = sampled("held")
    assert held == pytest.approx(np.repeat([0.0, 4.0, 8.0], 4), abs=1e-12)
    assert [len(set(part.tolist())) for part in held.reshape(3, 4)] == [1, 1, 1]


def test_interpolated_inputs_follow_the_slow_unit() -> None:
    assert sampled("interpolated") == pytest.approx(np.arange(12.0), abs=1e-12)


def test_held_inputs_extrapolate_with_a_higher_hold() -> None:
    assert sampled("held", Hold(1))[4:] == pytest.approx(np.arange(4.0, 12.0), abs=1e-12)


def test_multirate_of_equal_rates_is_jacobi_or_gauss_seidel() -> None:
    jacobi, seidel = masters.jacobi(three(), 0.1), masters.gauss_seidel(three(), 0.1)
    assert masters.multirate(three(), 0.1, multiples={}).schedule == jacobi.schedule
    assert masters.multirate(three(), 0.1, multiples={}, inputs="interpolated").schedule == seidel.schedule


def test_an_iteration_has_a_tolerance_or_sweeps() -> None:
    system = two_mass()
    assert masters.iterative(system, 0.1, tolerance=1e-6) == masters.iterative(system, 0.1, sweeps=Convergence(1e-6))
    with pytest.raises(ConfigurationError, match="give one of the two"):
        masters.iterative(system, 0.1, tolerance=1e-6, sweeps=3)


def test_a_federation_is_the_order_in_which_helics_shows_values() -> None:
    system = two_mass()

    def schedule(one: Grants, two: Grants, **options: Any) -> str:
        return str(masters.federation(system, 1e-3, members=[one, two], **options))

    half, quarter = Fraction(1, 2), Fraction(1, 4)
    ends, waits = Grants("one", program="FGH"), Grants("two", program="FGH", waits=True)
    assert schedule(ends, Grants("two", program="FGH")) == "F1 F2 G1 G2 H1 H2"
    assert schedule(ends, waits) == "F1 G1 H1 F2 G2 H2"
    assert schedule(Grants("one", program="FHG"), Grants("two", program="FHG")) == "G1 G2 F1 F2 H1 H2"
    assert schedule(Grants("one"), Grants("two", program="FHG")) == "G1 G2 F2 H1 F1 H2"  # feedthrough of one: H1 first
    assert schedule(ends, Grants("two", offset=half, program="FGH")) == "G2(1/2) H2 F1 G1 H1 F2 G2(1/2)"
    assert schedule(ends, Grants("two", half, offset=quarter)) == ("G2(1/4) F2 H2 G2(1/2) F2 H2 F1 G1 H1 G2(1/4)")
    assert schedule(ends, Grants("two", program="FGH"), sweeps=2) == "S1 S2 (R1 R2 F1 F2 G1 G2 H1 H2)^2"
    assert schedule(ends, Grants("two", program="FHG"), sweeps=2) == "G2 S1 (R1 F1 F2 G1 H1 H2)^2"


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (
            [Grants("one", program="FGH", waits=True), Grants("two", program="FGH", waits=True)],
            "each need what another one publishes",
        ),
        ([Grants("one", waits=True), Grants("two")], "iterate: federates that iterate have one period"),
        ([Grants("one")], "must name each of the units one, two exactly once"),
    ],
)
def test_federations_without_a_schedule_are_refused(members: list[Grants], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        masters.federation(two_mass(), 1e-3, members=members, sweeps=2)


def test_grants_that_do_not_repeat_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="a whole number of periods, at most 100,000, must make one"):
        Grants("one", Fraction(2, 3))
    with pytest.raises(ConfigurationError, match="the offset must not be negative, and less than the period"):
        Grants("one", offset=Fraction(1))
    with pytest.raises(ConfigurationError, match="says not when a federate is granted times"):
        Grants.parse("one:FGH:1/0")


def test_who_publishes_before_it_takes_inputs_shows_what_it_fed_through_before() -> None:
    """HFG with direct feedthrough: H before F; two such members that see each other have no order."""

    def through(k: float) -> StateSpace:
        return StateSpace(-1.0, 1.0, 1.0, k, inputs=["u"], outputs=["y"])

    pair = System({"a": through(0.5), "b": through(0.0)}, [("a.y", "b.u"), ("b.y", "a.u")])
    members = [Grants("a"), Grants("b")]
    assert str(masters.federation(pair, 0.1, members=members)) == "G1 G2 F2 H1 F1 H2"
    loop = System({"a": through(0.5), "b": through(0.5)}, [("a.y", "b.u"), ("b.y", "a.u")])
    with pytest.raises(ConfigurationError, match="a, b each need what another one publishes later"):
        masters.federation(loop, 0.1, members=members)
