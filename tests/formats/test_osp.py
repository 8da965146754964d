"""OSP system structures: connections of variables and groups, functions, steps, ports, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosimo import load, masters, run
from cosimo.core.errors import ConfigurationError, FileError
from cosimo.core.system import System
from cosimo.formats.export import export_unit
from cosimo.formats.information import validate
from cosimo.formats.osp import load_osp
from cosimo.problems import find
from cosimo.units import StateSpace
from cosimo.units.fmi.fmu import Fmu

HEAD = '<OspSystemStructure xmlns="http://opensimulationplatform.com/MSMI/OSPSystemStructure" version="0.1">\n'


def simulator(name: str, *, source: str = "", step: float | None = None, values: str = "") -> str:
    more = "" if step is None else f' stepSize="{step}"'
    inside = f"<InitialValues>{values}</InitialValues>" if values else ""
    return f'<Simulator name="{name}" source="{source or f"fmus/{name}.fmu"}"{more}>{inside}</Simulator>\n'


def value(variable: str, content: str) -> str:
    return f'<InitialValue variable="{variable}"><{content}/></InitialValue>'


def end(text: str, group: bool = False) -> str:
    """'unit.variable' of a simulator, 'function:signal' of a function."""
    function = ":" in text
    owner, _, name = text.partition(":" if function else ".")
    tag, word = ("Signal", "function") if function else ("Variable", "simulator")
    return f'<{tag}{"Group" * group} {word}="{owner}" name="{name}"/>'


def wire(start: str, target: str, group: bool = False) -> str:
    kind = "Signal" if ":" in start + target else "Variable"
    tag = f"{kind}{'Group' * group}Connection"
    return f"<{tag}>{end(start, group)}{end(target, group)}</{tag}>\n"


def structure(
    folder: Path, simulators: str, connections: str = "", functions: str = "", more: str = "", *, step: str = "0.1"
) -> Path:
    head = f"<StartTime>0.0</StartTime><BaseStepSize>{step}</BaseStepSize><Algorithm>fixedStep</Algorithm>\n"
    text = f"{HEAD}{head}<Simulators>\n{simulators}</Simulators>\n"
    text += (
        f"<Functions>\n{functions}</Functions>\n<Connections>\n{connections}</Connections>\n{more}</OspSystemStructure>"
    )
    path = folder / "OspSystemStructure.xml"
    path.write_text(text, encoding="utf-8")
    return path


def describe(folder: Path, name: str, groups: str) -> None:
    space = 'xmlns="https://open-simulation-platform.com/OspModelDescription/1.0.1" version="1.0"'
    text = f"<OspModelDescription {space}><VariableGroups>{groups}</VariableGroups></OspModelDescription>"
    (folder / "fmus" / f"{name}_OspModelDescription.xml").write_text(text, encoding="utf-8")


def group(tag: str, name: str, *variables: str, inside: str = "") -> str:
    refs = "".join(f'<Variable ref="{variable}"/>' for variable in variables)
    return f'<{tag} name="{name}">{refs}{inside}</{tag}>'


def ramp(slope: float) -> StateSpace:
    """y = slope · t, with the slope as an open input."""
    return StateSpace(0.0, 1.0, 1.0, inputs=["slope"], outputs=["y"], start={"slope": slope})


GAUGE = StateSpace(
    np.zeros((0, 0)),
    np.zeros((0, 2)),
    np.zeros((2, 0)),
    np.eye(2),
    inputs=["u", "v"],
    outputs=["w", "z"],
    start={"u": 0.0, "v": 0.0},
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ramps `a` (slope 1) and `b` (slope 10), and `c`, which shows its inputs."""
    (tmp_path / "fmus").mkdir()
    for name, unit in (("a", ramp(1.0)), ("b", ramp(10.0)), ("c", GAUGE)):
        export_unit(unit, tmp_path / "fmus" / f"{name}.fmu", name=name, fmi=2)
    return tmp_path


THREE = simulator("a") + simulator("b") + simulator("c")
SUM = '<Sum name="s" inputCount="2"/>\n'
SUMMED = wire("a.y", "s:in[0]") + wire("s:in[1]", "b.y") + wire("s:out", "c.u")


def test_a_structure_runs_as_the_same_units_in_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "fmus").mkdir()
    problem = find("two-mass").system()
    for name, unit in problem.units.items():
        export_unit(unit, tmp_path / "fmus" / f"{name}.fmu", name=name, fmi=2)
    wires = "".join(wire(c.source, c.target) for c in problem.connections if c.identity)
    (reaction,) = (c for c in problem.connections if not c.identity)
    wires += wire(reaction.source, "minus:in") + wire("minus:out", reaction.target)
    minus = f'<LinearTransformation name="minus" factor="{reaction.gain}" offset="0"/>'
    loaded = load(structure(tmp_path, simulator("one") + simulator("two"), wires, minus, step="0.001"))
    assert (loaded.options.name, loaded.step, loaded.start, loaded.stop) == ("jacobi", 1e-3, 0.0, None)
    units = {name: Fmu(tmp_path / "fmus" / f"{name}.fmu") for name in problem.names}
    same = System(units, problem.connections)
    ours, theirs = loaded.run(stop=0.5), run(same, masters.jacobi(same, 1e-3), stop=0.5)
    assert np.array_equal(ours.values, theirs.values)


def test_sums_are_of_the_same_moment(folder: Path) -> None:
    """libcosim computes them when values are transferred: a(t) + b(t) at every row, and at c one step later."""
    loaded = load(structure(folder, THREE, SUMMED, SUM))
    assert (loaded.options.name, loaded.options.order) == ("groups", "a,b,c;s")
    result = loaded.run(stop=1.0)
    assert result["s.out"] == pytest.approx(11.0 * result.time)
    assert result["s.out"] == pytest.approx(result["a.y"] + result["b.y"])
    assert result["c.w"][1:] == pytest.approx(result["s.out"][:-1])


def test_sums_between_simulators_of_different_steps(folder: Path) -> None:
    """b takes steps of 0.2: between them its last value counts, and the sum is computed at each tick."""
    slow = simulator("a") + simulator("b", step=0.2) + simulator("c")
    loaded = load(structure(folder, slow, SUMMED, SUM))
    assert (loaded.options.name, loaded.options.order, loaded.options.multiples) == (
        "multirate",
        "a,b,c;s",
        {"b": 2},
    )
    result = loaded.run(stop=1.0, record="all")
    assert result["b.y"] == pytest.approx(10.0 * result.time)
    assert result["s.out"] == pytest.approx(result["a.y"] + result["b.y"])


def test_steps_that_are_no_multiple_are_told(folder: Path) -> None:
    loaded = load(structure(folder, simulator("a", step=0.25)))
    assert loaded.options.multiples == {"a": 2}
    assert ["is no multiple of the base step 0.1; it takes steps of 0.2" in str(w) for w in loaded.warnings] == [True]


def test_a_sum_of_sums_follows_them(folder: Path) -> None:
    functions = SUM + '<Sum name="r" inputCount="2"/>'
    wires = wire("a.y", "s:in[0]") + wire("b.y", "s:in[1]") + wire("s:out", "r:in[0]") + wire("a.y", "r:in[1]")
    loaded = load(structure(folder, THREE, wires, functions))
    assert loaded.options.order == "a,b,c;s;r"
    result = loaded.run(stop=0.5)
    assert result["r.out"] == pytest.approx(12.0 * result.time)


def test_linear_transformations_are_folded_into_the_connection(folder: Path) -> None:
    functions = '<LinearTransformation name="p" factor="2" offset="1"/><LinearTransformation name="q" factor="-3"/>'
    wires = wire("a.y", "p:in") + wire("p:out", "q:in") + wire("q:out", "c.u") + wire("p:out", "c.v")
    loaded = load(structure(folder, simulator("a") + simulator("c"), wires, functions))
    assert [(c.target, c.gain, c.offset) for c in loaded.system.connections] == [("c.u", -6.0, -3.0), ("c.v", 2.0, 1.0)]
    assert (loaded.system.names, loaded.options.name) == (("a", "c"), "jacobi")


def test_vectors_are_summed_by_component(folder: Path) -> None:
    for name in ("d", "e"):
        export_unit(GAUGE, folder / "fmus" / f"{name}.fmu", name=name, fmi=2)
    describe(folder, "d", group("Generic", "out", "w", "z"))
    describe(folder, "e", group("Generic", "out", "w", "z"))
    describe(folder, "C", group("Generic", "in", "u", "v"))
    values = value("u", 'Real value="1"') + value("v", 'Real value="2"')
    units = simulator("c") + simulator("d", values=values) + simulator("e", values=values.replace('"2"', '"5"'))
    wires = "".join(wire(*ends, group=True) for ends in (("d.out", "n:in[0]"), ("n:in[1]", "e.out"), ("n:out", "c.in")))
    functions = '<VectorSum name="n" inputCount="2" numericType="real" dimension="2"/>'
    result = load(structure(folder, units, wires, functions)).run(stop=0.3)
    assert (result["n.out[0]"][-1], result["n.out[1]"][-1]) == (2.0, 7.0)
    assert (result["c.w"][-1], result["c.z"][-1]) == (2.0, 7.0)


def port(force: str, velocity: str, swapped: bool = False) -> str:
    parts = [group("Force", "effort", force), group("LinearVelocity", "flow", velocity)]
    return group("LinearMechanicalPort", "port", inside="".join(parts[::-1] if swapped else parts))


def test_ports_give_power_pairs(tmp_path: Path) -> None:
    """Groups inside a port are matched by their kind, in whatever order they stand."""
    (tmp_path / "fmus").mkdir()
    mass = StateSpace(-1.0, 1.0, 1.0, inputs=["f"], outputs=["v"], start={"f": 0.0})
    spring = StateSpace(0.0, 1.0, 1.0, inputs=["v"], outputs=["f"], start={"v": 1.0})
    for name, unit in (("mass", mass), ("spring", spring)):
        export_unit(unit, tmp_path / "fmus" / f"{name}.fmu", name=name, fmi=2)
    describe(tmp_path, "mass", port("f", "v"))
    describe(tmp_path, "spring", port("f", "v", swapped=True))
    both = simulator("mass") + simulator("spring")
    loaded = load(structure(tmp_path, both, wire("mass.port", "spring.port", group=True)))
    assert sorted((c.source, c.target) for c in loaded.system.connections) == [
        ("mass.v", "spring.v"),
        ("spring.f", "mass.f"),
    ]
    assert loaded.power_pairs == (("mass.f", "mass.v"),)
    quasi = port("f", "v").replace("LinearMechanicalPort", "LinearMechanicalQuasiPort")
    describe(tmp_path, "mass", quasi)
    describe(tmp_path, "spring", quasi)
    assert load(structure(tmp_path, both, wire("mass.port", "spring.port", group=True))).power_pairs == ()


def test_proxies_are_run_in_processes_of_their_own(folder: Path) -> None:
    loaded = load(structure(folder, simulator("a", source="proxyfmu://localhost?file=fmus/a.fmu") + simulator("b")))
    assert [unit.isolated for unit in loaded.system.units.values()] == [True, False]


def test_other_algorithms_are_told(folder: Path) -> None:
    path = structure(folder, simulator("a"))
    path.write_text(path.read_text().replace("fixedStep", "ecco"))
    assert ["the algorithm 'ecco'" in str(w) for w in load(path).warnings] == [True]


def test_without_a_base_step_the_shortest_step_counts(folder: Path) -> None:
    path = structure(folder, simulator("a", step=0.4) + simulator("b", step=0.2))
    path.write_text(path.read_text().replace("<BaseStepSize>0.1</BaseStepSize>", ""))
    loaded = load(path)
    assert (loaded.step, loaded.options.multiples) == (0.2, {"a": 2})


REFUSED = [
    ("no such FMU", simulator("x"), "", "", 4, "simulator 'x': unknown file"),
    ("no name", simulator("a").replace('name="a"', ""), "", "", 4, "needs the attribute 'name'"),
    ("twice", simulator("a") + simulator("a"), "", "", 5, "are called 'a'"),
    ("another machine", simulator("a", source="proxyfmu://ship?file=fmus/a.fmu"), "", "", 4, "another machine"),
    ("a web address", simulator("a", source="http://x/a.fmu"), "", "", 4, "not a local file"),
    ("step 0", simulator("a", step=0.0), "", "", 4, "give a positive one"),
    ("unknown value", simulator("a", values=value("gain", 'Real value="1"')), "", "", 4, "unknown variable"),
    (
        "no value",
        simulator("a", values=value("slope", "Nothing")),
        "",
        "",
        4,
        "the initial value of 'slope' is missing",
    ),
    ("no number", simulator("a", values=value("slope", 'Real value="x"')), "", "", 4, "finite number"),
    ("unknown simulator", THREE, wire("d.y", "c.u"), "", 11, "unknown simulator 'd'"),
    ("unknown variable", THREE, wire("a.x", "c.u"), "", 11, "unknown variable of simulator 'a' 'x'"),
    ("unknown function", THREE, wire("a.y", "s:in[0]"), "", 11, "unknown function 's'"),
    ("unknown signal", THREE, wire("a.y", "s:in[2]"), SUM, 12, "unknown signal of function 's' 'in[2]'"),
    ("two outputs", THREE, wire("a.y", "b.y"), "", 11, "both give"),
    ("two inputs", THREE, wire("a.slope", "c.u"), "", 11, "both take"),
    ("fed twice", THREE, wire("a.y", "c.u") + wire("b.y", "c.u"), "", 12, "fed twice: by a.y and by b.y"),
    ("no groups", THREE, wire("a.out", "c.in", group=True), "", 11, "there is no 'a_OspModelDescription.xml'"),
    ("no group of signals", THREE, wire("a.y", "s:x", group=True), SUM, 12, "no variable groups"),
    ("unknown kind of function", THREE, "", '<Product name="s"/>', 9, "unknown function 'Product'"),
    ("no inputs", THREE, "", '<Sum name="s" inputCount="0"/>', 9, "give at least 1"),
    ("many inputs", THREE, "", '<VectorSum name="s" inputCount="9999" dimension="9999"/>', 9, "together at most"),
    ("no count", THREE, "", '<Sum name="s"/>', 9, "needs the attribute 'inputCount'"),
    ("open function", THREE, wire("p:out", "c.u"), '<LinearTransformation name="p"/>\n', 9, "has no input"),
    ("a loop", THREE, wire("s:out", "s:in[0]"), SUM, 9, "form a loop"),
    (
        "a loop of transformations",
        THREE,
        wire("p:out", "p:in") + wire("p:out", "c.u"),
        '<LinearTransformation name="p"/>\n',
        9,
        "form a loop",
    ),
    ("one end", THREE, f"<VariableConnection>{end('a.y')}</VariableConnection>", "", 11, "has 1 end;"),
    ("no connection", THREE, f"<Wire>{end('a.y')}{end('c.u')}</Wire>", "", 11, "Wire is no connection"),
]


@pytest.mark.parametrize(
    ("simulators", "wires", "functions", "line", "said"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_wrong_structures_are_refused_with_file_and_line(
    folder: Path, simulators: str, wires: str, functions: str, line: int, said: str
) -> None:
    path = structure(folder, simulators, wires, functions)
    with pytest.raises(FileError) as caught:
        load_osp(path)
    assert said in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(path), line)
    assert str(path) in str(validate(path)[0])


def test_wrong_groups_are_refused(folder: Path) -> None:
    describe(folder, "a", group("Generic", "out", "y"))
    describe(folder, "c", group("Generic", "in", "u", "v") + group("Generic", "one", "x"))
    for ends, said in (
        (("a.out", "c.in"), "the groups have 1 and 2 variables"),
        (("a.ot", "c.in"), "did you mean 'out'?"),
        (("a.out", "c.one"), "group 'one': unknown variable of simulator 'c' 'x'"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            load(structure(folder, THREE, wire(*ends, group=True)))
        assert said in str(caught.value)
    (folder / "fmus" / "a_OspModelDescription.xml").write_text("<Other/>")
    with pytest.raises(ConfigurationError, match=r"a_OspModelDescription\.xml:1: the root element is Other"):
        load(structure(folder, THREE))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<OspModelDescription/>", "the root element is OspModelDescription, not OspSystemStructure"),
        (HEAD + "</OspSystemStructure>", "has no Simulator"),
        (HEAD, "not well-formed XML"),
        (HEAD + "<StartTime>soon</StartTime></OspSystemStructure>", "'StartTime' of StartTime is 'soon'"),
        ("<!DOCTYPE x>" + HEAD + "</OspSystemStructure>", "DOCTYPE"),
    ],
)
def test_documents_that_are_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "s.xml"
    path.write_text(text, encoding="utf-8")
    (found, *_) = validate(path)
    assert said in str(found)
