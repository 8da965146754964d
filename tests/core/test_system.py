"""A system is checked on construction: every wrong description is a typed error that names the thing and the remedy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.csgraph

from cosimo.core.errors import ConfigurationError, DimensionError, UnknownNameError
from cosimo.core.system import Connection, System, Table, Variable, components
from cosimo.problems import two_mass
from cosimo.units import Mechanical, PythonUnit, StateSpace


def tank(**options: Any) -> StateSpace:
    return StateSpace(-1.0, 1.0, 1.0, inputs=["inflow"], outputs=["level"], **options)


def gain(value: float) -> StateSpace:
    """Feedthrough and nothing else that matters."""
    return StateSpace(-1.0, 1.0, 1.0, value)


def two_tanks(*connections: Any, **options: Any) -> System:
    return System({"upper": tank(), "lower": tank()}, connections, **options)


# ---- wrong connections ---------------------------------------------------------------------------------------------


def test_unconnected_input_names_it_and_three_remedies() -> None:
    with pytest.raises(ConfigurationError, match=r"input upper\.inflow is not connected") as caught:
        two_tanks(("upper.level", "lower.inflow"))
    for remedy in ("connect it", "external input", "start value"):
        assert remedy in str(caught.value)


@pytest.mark.parametrize(
    ("connection", "message"),
    [
        (("upper.levl", "lower.inflow"), r"unknown output of unit 'upper' 'levl'; did you mean 'level'\?"),
        (("upper.level", "lower.inflw"), r"unknown input of unit 'lower' 'inflw'; did you mean 'inflow'\?"),
        (("uper.level", "lower.inflow"), r"unknown unit 'uper'; did you mean 'upper'\?"),
        (("upper.level", "cellar.inflow"), r"unknown unit 'cellar'; .*known: lower, upper"),
        # An input is no output, and the other way round.
        (("upper.inflow", "lower.inflow"), r"unknown output of unit 'upper' 'inflow'"),
        (("upper.level", "lower.level"), r"unknown input of unit 'lower' 'level'"),
    ],
)
def test_unknown_variable_offers_the_nearest(connection: tuple[str, str], message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        two_tanks(connection)


def test_a_unit_without_variable_is_told_how_to_write_it() -> None:
    with pytest.raises(ConfigurationError, match=r"'upper' is a unit; write the output as 'upper\.variable'"):
        two_tanks(("upper", "lower.inflow"))


def test_unknown_external_input() -> None:
    with pytest.raises(UnknownNameError, match="unknown input of unit 'upper' 'rain'"):
        two_tanks(("upper.level", "lower.inflow"), inputs={"upper.rain": 1.0})


def test_an_input_fed_twice_names_both_sources() -> None:
    with pytest.raises(
        ConfigurationError,
        match=r"lower\.inflow is fed twice: by upper\.level and by lower\.level; add them in a separate unit",
    ):
        two_tanks(("upper.level", "lower.inflow"), ("lower.level", "lower.inflow"))


def test_an_input_connected_and_external() -> None:
    with pytest.raises(ConfigurationError, match=r"lower\.inflow is both connected and an external input; remove one"):
        two_tanks(("upper.level", "lower.inflow"), inputs={"upper.inflow": 0.0, "lower.inflow": 0.0})


@pytest.mark.parametrize("options", [{"gain": math.nan}, {"offset": math.inf}])
def test_a_connection_has_finite_numbers(options: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match=r"upper\.level → lower\.inflow has the (gain|offset)"):
        Connection("upper.level", "lower.inflow", **options)


@pytest.mark.parametrize("value", [math.nan, math.inf, "rain", None])
def test_a_wrong_external_input_is_named(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"upper\.inflow.* (must be|is) .*(a|give a finite) number"):
        two_tanks(("upper.level", "lower.inflow"), inputs={"upper.inflow": value})


def test_a_start_value_must_be_finite() -> None:
    with pytest.raises(ConfigurationError, match=r"start value of a\.inflow is nan"):
        System({"a": tank(start={"inflow": math.nan})})


def test_an_empty_system() -> None:
    with pytest.raises(ConfigurationError, match="at least one unit"):
        System({})


# ---- wrong units ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ((np.eye(2), np.ones((3, 1)), np.eye(2)), "matrix B is 3 × 1; expected 2 × any"),
        ((np.eye(2), np.ones((2, 1)), np.eye(3)), "matrix C is 3 × 3; expected any × 2"),
        ((np.ones((2, 3)), np.ones((2, 1)), np.eye(2)), "matrix A is 2 × 3; expected 2 × 2"),
        ((np.eye(2), np.ones((2, 1)), np.eye(2), np.ones((1, 1))), "matrix D is 1 × 1; expected 2 × 1"),
        ((np.ones((1, 2, 2)), 1.0, 1.0), "matrix A is 1 × 2 × 2"),
    ],
)
def test_wrong_dimensions_name_the_matrix_and_both_shapes(matrices: tuple[Any, ...], message: str) -> None:
    with pytest.raises(DimensionError, match=message):
        StateSpace(*matrices)


@pytest.mark.parametrize("place", range(4))
def test_nan_in_a_state_space_matrix(place: int) -> None:
    matrices: list[Any] = [np.eye(2), np.ones((2, 1)), np.ones((1, 2)), np.ones((1, 1))]
    matrices[place] = matrices[place] * np.nan
    with pytest.raises(ConfigurationError, match=rf"{'ABCD'[place]} holds a non-finite number at index \(0, 0\)"):
        StateSpace(*matrices)


@pytest.mark.parametrize("name", ["M", "C", "K", "B", "displacement"])
def test_nan_in_a_mechanical_matrix(name: str) -> None:
    matrices: dict[str, Any] = {"M": 1.0, "C": 0.0, "K": 1.0, "B": 1.0, "displacement": 1.0, name: math.inf}
    with pytest.raises(ConfigurationError, match=f"{name} holds a non-finite number"):
        Mechanical(**matrices)


def test_nan_in_the_initial_state() -> None:
    with pytest.raises(ConfigurationError, match=r"initial holds a non-finite number at index \(1, 0\)"):
        StateSpace(np.eye(2), np.ones((2, 1)), np.eye(2), initial=[0.0, math.nan])


# ---- names with dots -----------------------------------------------------------------------------------------------


def test_names_with_dots() -> None:
    wheel = StateSpace(-1.0, 1.0, 1.0, inputs=["force.z"], outputs=["hub.z"])
    system = System(
        {"car.wheel": wheel, "car": wheel}, [("car.wheel.hub.z", "car.force.z")], inputs={"car.wheel.force.z": 1.0}
    )
    (link,) = system.links
    assert (link.source, link.target) == (Variable("car.wheel", 0), Variable("car", 0))
    assert system.outputs == ("car.wheel.hub.z", "car.hub.z")


def test_the_longest_unit_name_decides() -> None:
    a = StateSpace(-1.0, 1.0, 1.0, outputs=["b.c"], start={"u1": 0.0})
    ab = StateSpace(-1.0, 1.0, 1.0, outputs=["c"], start={"u1": 0.0})
    assert System({"a": a, "a.b": ab}).output("a.b.c") == Variable("a.b", 0)
    assert System({"a": a}).output("a.b.c") == Variable("a", 0)


# ---- what a system says --------------------------------------------------------------------------------------------


def test_inlets_say_what_feeds_each_input() -> None:
    mixer = StateSpace(-1.0, np.ones((1, 3)), 1.0, inputs=["hot", "cold", "dye"], start={"dye": 0.5})
    system = System(
        {"mixer": mixer, "boiler": tank(start={"inflow": 1.0})},
        [Connection("boiler.level", "mixer.hot", 2.0, -1.0)],
        inputs={"mixer.cold": Table([0, 1], [3, 4])},
    )
    hot, cold, dye = system.inlets["mixer"]
    assert hot.link is not None
    assert (hot.link.connection.gain, hot.link.connection.offset) == (2.0, -1.0)
    assert cold.source is not None
    assert cold.source(0.5) == 3.5
    assert (dye.link, dye.source, dye.start) == (None, None, 0.5)
    assert system.incoming("mixer") == system.links
    assert list(system.external("mixer")) == [1]
    assert system.names == ("mixer", "boiler")
    assert system.input_names == ("mixer.hot", "mixer.cold", "mixer.dye", "boiler.inflow")
    assert repr(system) == "System('system': 2 units, 1 connection)"


def test_a_connection_prints_as_an_arrow() -> None:
    assert str(Connection("a.y", "b.u", 3.0)) == "a.y → b.u"


# ---- algebraic loops -----------------------------------------------------------------------------------------------


def test_no_feedthrough_no_loop() -> None:
    assert two_tanks(("upper.level", "lower.inflow"), ("lower.level", "upper.inflow")).loops() == []


def test_one_unit_without_feedthrough_breaks_the_loop() -> None:
    units = {"a": gain(0.5), "b": gain(0.5), "c": gain(0.0)}
    assert System(units, [("a.y1", "b.u1"), ("b.y1", "c.u1"), ("c.y1", "a.u1")]).loops() == []


def test_a_loop_lists_its_outputs_only() -> None:
    units = {"a": gain(0.5), "b": gain(0.5), "after": gain(0.5), "before": gain(0.5)}
    mixed = StateSpace(-1.0, np.ones((1, 2)), 1.0, [[0.5, 0.5]])
    system = System(
        {**units, "a": mixed},
        [("a.y1", "b.u1"), ("b.y1", "a.u1"), ("before.y1", "a.u2"), ("b.y1", "after.u1")],
        inputs={"before.u1": 0.0},
    )
    assert system.loops() == [("a.y1", "b.y1")]


def test_a_unit_may_loop_with_itself() -> None:
    assert System({"a": gain(0.5)}, [("a.y1", "a.u1")]).loops() == [("a.y1",)]


def test_loops_go_by_variables_not_by_units() -> None:
    # a.u1 → a.y1 and a.u2 → a.y2 only: the way a.y1 → b → a.u2 → a.y2 does not close.
    split = StateSpace(-1.0, np.ones((1, 2)), [[1.0], [1.0]], np.diag([0.5, 0.5]))
    system = System({"a": split, "b": gain(0.5)}, [("a.y1", "b.u1"), ("b.y1", "a.u2")], inputs={"a.u1": 0.0})
    assert system.loops() == []


def test_two_separate_loops() -> None:
    units = {name: gain(0.5) for name in "abcd"}
    system = System(units, [("a.y1", "b.u1"), ("b.y1", "a.u1"), ("c.y1", "d.u1"), ("d.y1", "c.u1")])
    assert sorted(system.loops()) == [("a.y1", "b.y1"), ("c.y1", "d.y1")]


def test_python_units_declare_feedthrough_by_property() -> None:
    class Through:
        inputs, outputs = ("u",), ("y",)

        @property
        def y(self) -> float:
            return 0.0

        def step(self, time: float, duration: float) -> None:
            pass

    system = System({"a": PythonUnit(Through), "b": gain(0.1)}, [("a.y", "b.u1"), ("b.y1", "a.u")])
    assert system.loops() == [("a.y", "b.y1")]


@pytest.mark.parametrize("count", [1, 4, 30, 120])
def test_components_are_those_of_scipy(count: int) -> None:
    random = np.random.default_rng(count)
    for edges in (random.integers(0, count, (m, 2)) for m in (0, 1, count // 2, count, 2 * count)):
        graph = scipy.sparse.coo_array((np.ones(len(edges)), tuple(edges.T)), shape=(count, count))
        labels = scipy.sparse.csgraph.connected_components(graph, directed=True, connection="strong")[1]
        met = np.unique(edges)
        wanted = {tuple(np.flatnonzero(labels == label).tolist()) for label in labels[met]}
        found = components([(int(i), int(j)) for i, j in edges])
        assert {tuple(group) for group in found} == wanted
        assert found == sorted(found)


def test_components_of_a_long_chain_need_no_recursion() -> None:
    ring = [(i, (i + 1) % 5000) for i in range(5000)]
    assert components(ring) == [list(range(5000))]
    assert len(components(ring[:-1])) == 5000


def test_a_notebook_shows_a_drawing() -> None:
    drawn = two_mass()._repr_html_()
    assert drawn.startswith("<div style=")
    assert "svg.graph .unit" in drawn, "with its style"
    for name in ("one", "two", "x2", "v2"):
        assert f">{name}</text>" in drawn
    many = System({f"u{i}": StateSpace(-1.0, 1.0, 1.0, start={"u1": 0.0}) for i in range(50)}, name="<many>")
    assert many._repr_html_() == "<p>System(&#x27;&lt;many&gt;&#x27;: 50 units, 0 connections)</p>"
