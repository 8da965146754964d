"""Scenario files: everything they can say, and every way to get them wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build
from hybrid import build_model

from cosimo import masters, run
from cosimo.core.errors import ConfigurationError, FileError, FileFindings
from cosimo.core.system import Table
from cosimo.core.unit import Unit
from cosimo.formats.scenario_building import load_scenario
from cosimo.formats.scenario_tables import scenario_schema
from cosimo.masters.words import MasterOptions, build_master
from cosimo.problems import find
from cosimo.units import Exact, ForwardEuler, Mechanical, PythonUnit, StateSpace, SymplecticEuler
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.model_exchange import Solver

ROOT = Path(__file__).parents[2]
TANK = '[units.tank]\nkind = "state-space"\nA = -0.5\nB = 1\nC = 1.0\ninputs = ["inflow"]\noutputs = ["level"]\n'
FREE = TANK + "start = { inflow = 0.25 }\n"

TWO_MASS = """
name = "by hand"
stop-time = 2
step_size = 0.01
outputs = ["one.*", "two.x"]
connections = [
  { from = "one.f", to = "two.f", gain = -1.0 },  # the force acts back
  "two.x -> one.x2",
  "two.v->one.v2",
]

[master]
name = "gauss-seidel"
order = ["two", "one"]
couplings = ["hold1"]

[units.one]
kind = "mechanical"
M = 1.0
C = 0.2
K = 110.0
B = [[100.0, 0.1]]
displacement = -100.0
velocity = -0.1
feedthrough = [[100.0, 0.1]]
initial = [0.0, 100.0]
inputs = ["x2", "v2"]
outputs = ["f"]

[units.two]
kind = "mechanical"
M = 1
C = 0.1
K = 1000
B = 1
displacement = [[1.0], [0.0]]
velocity = [[0.0], [1.0]]
initial = [0, -100]
inputs = ["f"]
outputs = ["x", "v"]
"""


def write(folder: Path, text: str, **files: str) -> Path:
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content, encoding="utf-8")
    path = folder / "scenario.toml"
    path.write_text(text, encoding="utf-8")
    return path


def unit_of(folder: Path, text: str, name: str = "tank") -> Unit:
    return load_scenario(write(folder, text)).system.units[name]


# ---- what a scenario can say -----------------------------------------------------------------------------------------


def test_a_system_by_hand_is_the_built_in_one(tmp_path: Path) -> None:
    loaded = load_scenario(write(tmp_path, TWO_MASS))
    assert (loaded.system.name, loaded.step, loaded.start, loaded.stop) == ("by hand", 0.01, 0.0, 2.0)
    assert loaded.outputs == ("one.*", "two.x")
    assert loaded.options == MasterOptions("gauss-seidel", order="two,one", couplings=["hold1"])
    problem = find("two-mass").system()
    assert loaded.system.connections == problem.connections
    assert "options" in loaded.specified
    ours, theirs = (run(s, build_master(s, 0.01, loaded.options), stop=0.5) for s in (loaded.system, problem))
    assert np.array_equal(ours.values, theirs.values)


def test_fmus_for_model_exchange(tmp_path: Path) -> None:
    build_model(tmp_path, "LINEAR")
    text = """
[units.a]
fmu = "linear2.fmu"
kind = "model-exchange"
relative-tolerance = 1e-8
[units.b]
fmu = "linear2.fmu"
solver = "rk4"
micro-step = 0.01
[units.c]
fmu = "linear2.fmu"
"""
    units = load_scenario(write(tmp_path, text)).system.units
    solvers = [unit.solver for unit in units.values() if isinstance(unit, Fmu)]
    assert solvers == [Solver(relative_tolerance=1e-8), Solver("rk4", micro_step=0.01), Solver()]
    for wrong, said in (
        ('solver = "rk45"', "scenario.toml:3: units.a.solver: must be 'cvode'"),
        ("relative-tolerance = -1e-6", "is -1e-06; give a number between 0 and 1"),
        ('kind = "co-simulation"', "is for model-exchange only, not for co-simulation"),
        ('kind = "model exchange"', "did you mean 'model-exchange'"),
    ):
        with pytest.raises(FileError, match=said):
            load_scenario(write(tmp_path, f'[units.a]\nfmu = "linear2.fmu"\n{wrong}\n'))


def test_fmus_with_parameters_and_start_values(tmp_path: Path) -> None:
    (tmp_path / "units of mine").mkdir()
    build(tmp_path / "units of mine", "feedthrough2", file="ä.fmu")
    text = """
start-time = 1.0
connections = ["a.real_out -> b.real_in", { from = "a.int_out", to = "b.int_in", gain = 2, offset = 1 }]
[units.a]
fmu = "units of mine/ä.fmu"
parameters = { gain = 2 }
start = { real_in = 3.5, text_in = "hi", bool_in = false }
exact-difference = true
[units.b]
fmu = "units of mine/ä.fmu"
"""
    system = load_scenario(write(tmp_path, text)).system
    a = system.units["a"]
    assert isinstance(a, Fmu)
    assert a.given == {"gain": 2.0, "real_in": 3.5, "text_in": "hi", "bool_in": False}
    assert (a.options.exact_difference, a.experiment.start_time) == (True, 1.0)
    first, second = system.connections
    assert first.gain == pytest.approx(1e-3)  # mm → m
    assert (second.gain, second.offset) == (2.0, 1.0)
    result = run(system, masters.jacobi(system, 0.1), start=1.0, stop=1.2, record="all")
    assert result["b.real_in"][-1] == pytest.approx(result["a.real_out"][-1] * 1e-3)


def test_state_space_units(tmp_path: Path) -> None:
    text = FREE + 'integrator = "forward-euler"\nmicro-steps = 3\ninitial = 2.0\nD = 0.5\n'
    tank = unit_of(tmp_path, text)
    assert isinstance(tank, StateSpace)
    assert (tank.inputs, tank.outputs, tank.start) == (("inflow",), ("level",), {"inflow": 0.25})
    assert (tank.micro_steps, tank.initial_state.tolist(), tank.model.D.tolist()) == (3, [2.0], [[0.5]])
    assert isinstance(tank.integrator, ForwardEuler)
    plain = unit_of(tmp_path, FREE)
    assert isinstance(plain, StateSpace)
    assert isinstance(plain.integrator, Exact)


def test_mechanical_units(tmp_path: Path) -> None:
    text = '[units.m]\nkind = "mechanical"\nM = 1\nC = 0\nK = 4\nB = 1\nacceleration = 1\nstart = { u1 = 1 }\n'
    mass = unit_of(tmp_path, text, "m")
    assert isinstance(mass, Mechanical)
    assert isinstance(mass.integrator, SymplecticEuler)
    assert mass.model.D.tolist() == [[1.0]]


def test_python_units(tmp_path: Path) -> None:
    code = """
class Tank:
    inputs, outputs = ("inflow",), ("level",)
    def __init__(self, level=0.0):
        self.level = level
    def step(self, time, duration):
        self.level += duration * self.inflow
"""
    text = (
        '[units.tank]\nkind = "python"\nclass = "tanks.py:Tank"\nparameters = { level = 2.0 }\nstart = { inflow = 1 }\n'
    )
    system = load_scenario(write(tmp_path, text, tanks__py=code)).system
    assert isinstance(system.units["tank"], PythonUnit)
    result = run(system, masters.jacobi(system, 0.5), stop=1.0)
    assert result["tank.level"].tolist() == [2.0, 2.5, 3.0]


def test_python_units_are_those_of_the_file_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was changed within a second to one of the same size, as compiled code is kept for."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    found = []
    for level in (1.0, 2.0):
        code = f"class Tank:\n    inputs, outputs, y = (), ('y',), {level}\n    def step(self, t, h): pass\n"
        path = write(tmp_path, PYTHON.format("tanks.py:Tank"), tanks__py=code)
        os.utime(tmp_path / "tanks.py", (1e9, 1e9))
        system = load_scenario(path).system
        found.append(run(system, masters.jacobi(system, 0.5), stop=0.5)["p.y"][0])
    assert found == [1.0, 2.0]
    assert not (tmp_path / "__pycache__").exists()


def test_python_units_from_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_tanks_module.py").write_text(
        "class Tank:\n    inputs, outputs = (), ('y',)\n    y = 1.0\n    def step(self, t, h): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    unit = unit_of(tmp_path, '[units.tank]\nkind = "python"\nclass = "my_tanks_module:Tank"\n')
    assert unit.outputs == ("y",)


def test_external_inputs(tmp_path: Path) -> None:
    table = "t, inflow ,other\n0,1,5\n1, 2.5,6\n\n3,-1,7\n"
    text = f"""
{TANK}
[units.more]
kind = "state-space"
A = 0
B = [[1, 1, 1]]
C = 1
[inputs]
"tank.inflow" = {{ csv = "in.csv", column = "inflow" }}
"more.u1" = {{ csv = "in.csv", column = "inflow", time_column = "other", interpolation = "hold" }}
"more.u2" = 4
more.u3 = 0.5
"""
    path = write(tmp_path, text.replace("more.u3 = 0.5", '"more.u3" = 0.5'), in__csv=table)
    inputs = load_scenario(path).system.inputs
    linear, held = inputs["tank.inflow"], inputs["more.u1"]
    assert isinstance(linear, Table)
    assert [linear(t) for t in (0.0, 0.5, 2.0, 9.0)] == [1.0, 1.75, 0.75, -1.0]
    assert [held(t) for t in (5.0, 6.9, 7.0)] == [1.0, 2.5, -1.0]
    assert (inputs["more.u2"](0.0), inputs["more.u3"](1.0)) == (4.0, 0.5)


def test_csv_with_a_byte_order_mark(tmp_path: Path) -> None:
    text = TANK + '[inputs]\n"tank.inflow" = { csv = "in.csv", column = "u", time-column = "time" }\n'
    path = write(tmp_path, text, in__csv="\ufefftime,u\r\n0,1\r\n")
    assert load_scenario(path).system.inputs["tank.inflow"](0.0) == 1.0


def test_built_in_problems(tmp_path: Path) -> None:
    loaded = load_scenario(write(tmp_path, 'problem = "two-mass"\n'))
    assert (loaded.system.name, loaded.step, loaded.stop) == ("two-mass", 1e-3, 20.0)
    text = 'stop-time = 3.0\nstep-size = 0.1\n[problem]\nname = "chain"\n[problem.parameters]\nn = 4\n'
    loaded = load_scenario(write(tmp_path, text))
    assert (len(loaded.system.units), loaded.step, loaded.stop) == (4, 0.1, 3.0)
    assert len(load_scenario(write(tmp_path, text), settings={"n": 5}).system.units) == 5
    with pytest.raises(ConfigurationError, match="unknown parameter or input of unit 'tank' 'n'"):
        load_scenario(write(tmp_path, FREE), settings={"n": 5})


@pytest.mark.parametrize(
    ("master", "options"),
    [
        ("name = 'groups'\norder = [['one'], ['two']]", MasterOptions("groups", order="one;two")),
        ("name = 'groups'\norder = 'one;two'", MasterOptions("groups", order="one;two")),
        ("name = 'iterative'\nsweep-limit = 7", MasterOptions("iterative", sweep_limit=7)),
        ("name = 'iterative'\nsweep_limit = 7\ntolerance = 1", MasterOptions("iterative", sweep_limit=7, tolerance=1)),
        ("name = 'multirate'\nmultiples = {one = 2}", MasterOptions("multirate", multiples={"one": 2})),
    ],
)
def test_masters(tmp_path: Path, master: str, options: MasterOptions) -> None:
    loaded = load_scenario(write(tmp_path, f"problem = 'two-mass'\n[master]\n{master}\n"))
    assert "options" in loaded.specified
    assert {**vars(loaded.options), "couplings": ()} == vars(options)


# ---- what is refused -------------------------------------------------------------------------------------------------

PYTHON = '[units.p]\nkind = "python"\nclass = "{}"\n'
CSV = TANK + '[inputs]\n"tank.inflow" = {{ csv = "in.csv", column = "u"{} }}\n'
REFUSED: list[tuple[str, int | None, str]] = [
    ("units = \n", 1, "not valid TOML: Invalid value"),
    ("a = 1\na = 2\n", 2, "not valid TOML: Cannot overwrite a value"),
    ('name = "open\n', 1, "not valid TOML"),
    ("", None, "give units, or a built-in problem"),
    (FREE + '[problem]\nname = "two-mass"\n', None, "has its units, connections and inputs already"),
    ("stepsize = 0.1\n" + FREE, 1, "stepsize: unknown key 'stepsize'; did you mean 'step-size'?"),
    (FREE + "mass = 1\n", 9, "units.tank.mass: unknown key 'mass'"),
    (FREE.replace("outputs", "output"), 7, "units.tank.output: unknown key 'output'; did you mean 'outputs'?"),
    (FREE.replace("state-space", "statespace"), 1, "unknown kind of unit 'statespace'; did you mean 'state-space'?"),
    (FREE.replace('kind = "state-space"', ""), 1, "units.tank: a unit is a table with 'fmu' (a path) or 'kind'"),
    ("units.tank = 3\n", 1, "units.tank: a unit is a table"),
    ("units.tank = {kind = 3}\n", 1, "kind must be one of state-space, mechanical, python, not 3."),
    ('units.tank = {fmu = "a.fmu", kind = 3}\n', 1, "kind must be one of co-simulation, model-exchange, not 3."),
    (FREE.replace("C = 1.0\n", ""), 1, "units.tank.C: the key is missing"),
    (FREE.replace("A = -0.5", 'A = "x"'), 3, "units.tank.A: must be a number or a list, not 'x'"),
    (FREE.replace("A = -0.5", "A = [[1, 2],\n[3, true]]"), 4, "units.tank.A[1][1]: must be a number, not True"),
    (FREE.replace("A = -0.5", "A = nan"), 3, "units.tank.A: must be a finite number"),
    (FREE.replace("A = -0.5", "A = [[1, 2], [3, 4]]"), 1, "matrix B"),
    (FREE + "micro-steps = 0\n", 9, "units.tank.micro-steps: must be 1 or more, not 0"),
    (FREE + 'integrator = "euler"\n', 9, "must be 'exact', 'forward-euler'"),
    (FREE + "micro-steps = 1\nmicro_steps = 2\n", 1, "appears twice, as 'micro-steps' and as 'micro_steps'"),
    (TANK, 1, "units: input tank.inflow is not connected and has no start value"),
    ("step-size = 0\n" + FREE, 1, "step-size: must be a positive number, not 0"),
    ("start-time = 2\nstop-time = 1\n" + FREE, None, "stop-time must be greater than start-time"),
    ('connections = ["tank.level tank.inflow"]\n' + TANK, 1, "write a connection as 'unit.output -> unit.input'"),
    ("connections = [\n 3,\n]\n" + TANK, 2, "connections[0]: must be a text, not 3"),
    ('connections = [\n"tank.level -> tank.inflw"]\n' + TANK, 2, "did you mean 'inflow'?"),
    ('connections = ["tank.level -> tnk.inflow"]\n' + TANK, 1, "unknown unit 'tnk'; did you mean 'tank'?"),
    ('connections = [{ to = "tank.inflow" }]\n' + TANK, 1, "connections[0].from: the key is missing"),
    (
        '[[connections]]\nfrom = "a"\nto = "b"\n[[connections]]\nfrom = "b"\nto = "a"\ngan = 1\n' + TANK,
        7,
        "connections[1].gan: unknown key",
    ),
    ('connections = [{ from = "tank.level", to = "tank.inflow", gain = inf }]\n' + TANK, 1, "a finite number"),
    ('outputs = ["tank.*", "tnak.*"]\n' + FREE, 1, "outputs[1]: unknown variable to record 'tnak.*'"),
    (FREE + '[master]\nname = "jacobbi"\n', 9, "unknown master 'jacobbi'; did you mean 'jacobi'?"),
    (FREE + "[master]\nsweeps = 3\n", 9, "master 'jacobi' does not take the option sweeps"),
    (FREE + '[master]\ncouplings = ["hold9"]\n', 9, "unknown coupling 'hold9'"),
    (FREE + "[master]\nsweeps = 1.5\n", 10, "master.sweeps: must be a whole number, not 1.5"),
    (FREE + '[inputs]\n"tank.inflw" = 1\n', 10, "did you mean 'inflow'?"),
    (FREE + '[inputs]\n"tank.inflow" = "x"\n', 10, "must be a number, not 'x'"),
    (CSV.format(""), 9, "in.csv' cannot be read: No such file"),
    (CSV.format(', kind = "x"'), 9, "unknown key 'kind'"),
    ('problem = "two-mas"\n', 1, "did you mean 'two-mass'?"),
    ('[problem]\nname = "two-mass"\nparameters = { mm1 = 1 }\n', 1, "did you mean 'm1'?"),
    (PYTHON.format("p.py"), 3, "must be written 'file.py:Class' or 'module:Class', not 'p.py'"),
    (PYTHON.format("p.py:Tank"), 1, "p.py' does not exist"),
    (PYTHON.format("nowhere.at_all:Tank"), 1, "'nowhere.at_all' cannot be imported: ModuleNotFoundError"),
    (PYTHON.format("json:Tank"), 1, "unknown class in 'json' 'Tank'"),
    ('[units.f]\nfmu = "g.fmu"\n', 1, "did you mean 'f.fmu'?"),
    ('[units.f]\nfmu = "sub/g.fmu"\n', 1, "g.fmu' does not exist"),
    ('[units.f]\nfmu = "f.fmu"\nparameters = { gian = 1 }\n', 1, "did you mean 'gain'?"),
    ('[units.f]\nfmu = "f.fmu"\nparameters = { gain = 11 }\n', 1, "0 to 10"),
    ('[units.f]\nfmu = "f.fmu"\nparameters = { real_in = 11 }\n', 1, "give it as a start value"),
    ('connections = ["f.text_out -> f.int_in"]\n[units.f]\nfmu = "f.fmu"\n', 1, "'f.int_in' is a number"),
    (
        'connections = [{ from = "f.text_out", to = "f.text_in", gain = 2.0 }]\n[units.f]\nfmu = "f.fmu"\n',
        1,
        "has a gain or an offset, and no numbers",
    ),
    (
        'connections = ["f.text_out -> f.text_in", "f.text_out -> f.text_in"]\n[units.f]\nfmu = "f.fmu"\n',
        2,
        "input f.text_in is fed twice",
    ),
    ('connections = ["f.real_out -> f.int_in"]\n[units.f]\nfmu = "f.fmu"\n', 1, "fractions would be lost"),
]


@pytest.mark.parametrize(("text", "line", "part"), REFUSED, ids=[part for _, _, part in REFUSED])
def test_wrong_scenarios_are_refused(tmp_path: Path, text: str, line: int | None, part: str) -> None:
    build(tmp_path, "feedthrough2", file="f.fmu")
    path = write(tmp_path, text)
    with pytest.raises(FileError) as caught:
        load_scenario(path)
    assert part in str(caught.value)
    assert (caught.value.file, caught.value.line) == (str(path), line)


@pytest.mark.parametrize(
    ("table", "line", "part"),
    [
        ("", None, "in.csv' is empty"),
        ("t,u\n", None, "but no rows"),
        ("t,v\n0,1\n", None, "unknown column of"),
        ("t,u\n0,1\n1,x\n", 3, "column 'u' has 'x'; a finite number is needed"),
        ("t,u\n0,1\n1\n", 3, "column 'u' has ''"),
        ("t,u\n0,nan\n", 2, "'nan'"),
        ("t,u\n0,1\n2,1\n1,1\n", 4, "the time 1 is less than the one before (2)"),
        ("t,u\n0,1\n1,1\n1,2\n1,3\n", 5, "this is the third row at time 1; keep only the values before and"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, table: str, line: int | None, part: str) -> None:
    path = write(tmp_path, CSV.format(""), in__csv=table)
    with pytest.raises(FileError) as caught:
        load_scenario(path)
    assert part in str(caught.value)
    where = (str(path), 9) if line is None else (str(tmp_path / "in.csv"), line)
    assert (caught.value.file, caught.value.line) == where


def test_a_table_with_a_jump(tmp_path: Path) -> None:
    path = write(tmp_path, CSV.format(""), in__csv="t,u\n0,1\n1,2\n1,5\n2,4\n")
    source = load_scenario(path).system.inputs["tank.inflow"]
    assert [source(t) for t in (0.0, 0.5, 1.0, 1.5, 9.0)] == [1.0, 1.5, 5.0, 4.5, 4.0]
    path = write(tmp_path, CSV.format(', interpolation = "hold"'), in__csv="t,u\n0,1\n1,2\n1,5\n2,4\n")
    source = load_scenario(path).system.inputs["tank.inflow"]
    assert [source(t) for t in (0.0, 0.5, 1.0, 1.5, 9.0)] == [1.0, 1.0, 5.0, 5.0, 4.0]


def test_units_of_measure_that_do_not_fit(tmp_path: Path) -> None:
    build(tmp_path, "feedthrough2", file="f.fmu", changes={'<BaseUnit m="1" factor="0.001"/>': '<BaseUnit kg="1"/>'})
    path = write(tmp_path, 'connections = ["f.real_out -> f.real_in"]\n[units.f]\nfmu = "f.fmu"\n')
    with pytest.raises(FileError, match="incompatible physical units"):
        load_scenario(path)


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("raise RuntimeError('no')", "RuntimeError: no"),
        ("class Tank: pass", "has no 'inputs'"),
        ("class Tank:\n  inputs, outputs = (), ()\n  def step(self, t, h): pass", "does not take these parameters"),
        ("class Tank(:", "SyntaxError"),
    ],
)
def test_python_files_that_do_not_fit(tmp_path: Path, code: str, part: str) -> None:
    path = write(tmp_path, PYTHON.format("p.py:Tank") + "parameters = { x = 1 }\n", p__py=code)
    with pytest.raises(FileError, match=part):
        load_scenario(path)


def test_start_values_of_python_units_are_checked(tmp_path: Path) -> None:
    code = "class Tank:\n  inputs, outputs = ('u',), ()\n  def step(self, t, h): pass"
    path = write(tmp_path, PYTHON.format("p.py:Tank") + "start = { v = 1 }\n", p__py=code)
    with pytest.raises(FileError, match="unknown input of class Tank 'v'"):
        load_scenario(path)


def test_all_errors_are_found_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = 'stop-time = "x"\nstepsize = 1\n' + FREE.replace("C = 1.0", "C = 'c'\nD = []\nK = 1") + "[master]\nfoo = 1\n"
    findings = FileFindings()
    with pytest.raises(FileError, match=r"\(4 more; 'cosimo validate' lists all\)"):
        load_scenario(write(tmp_path, text), findings)
    assert [f.line for f in findings.errors] == [1, 2, 7, 9, 14]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"cannot be read: (No such file|File not found|The system cannot find)"
    ):
        load_scenario(tmp_path / "nothing.toml")
    (tmp_path / "latin.toml").write_bytes("\n# für\n".encode("latin-1"))
    with pytest.raises(FileError, match=r"latin\.toml:2: the text is not UTF-8"):
        load_scenario(tmp_path / "latin.toml")
    (tmp_path / "deep.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(FileError, match="not valid TOML"):
        load_scenario(tmp_path / "deep.toml")


# ---- the schema ------------------------------------------------------------------------------------------------------


def test_the_schema_in_the_documentation_is_current() -> None:
    written = (ROOT / "docs" / "scenario.schema.json").read_text(encoding="utf-8")
    now = json.dumps(scenario_schema(), indent=2, ensure_ascii=False) + "\n"
    assert written == now, (
        "write it anew: python -c 'import json; from cosimo.formats.scenario_tables import scenario_schema; "
        "print(json.dumps(scenario_schema(), indent=2, ensure_ascii=False))' > docs/scenario.schema.json"
    )


def test_every_field_is_described() -> None:
    schema = scenario_schema()
    for table in (schema, *schema["$defs"].values()):
        assert table["description"]
        assert table["additionalProperties"] is False
        for name, field in table["properties"].items():
            assert field.get("description"), name


def test_the_schema_knows_all_options_of_masters() -> None:
    keys = scenario_schema()["$defs"]["MasterTable"]["properties"]
    assert {key.replace("-", "_") for key in keys} == set(MasterOptions.__dataclass_fields__)


def test_the_documentation_is_true(tmp_path: Path) -> None:
    """Every scenario in the documentation loads, with the files it names beside it."""
    build(tmp_path, "feedthrough2", file="wheel.fmu", changes={"real_in": "road", "real_out": "force"})
    (tmp_path / "road.csv").write_text("time,height\n0,0\n1,0.1\n", encoding="utf-8")
    (tmp_path / "controller.py").write_text(
        "class Damper:\n    inputs, outputs = {'speed': 0.0}, ('force',)\n    force = 0.0\n"
        "    def __init__(self, rate=1.0): self.rate = rate\n    def step(self, time, duration): pass\n"
    )
    blocks = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8").split("```toml\n")[1:]
    assert len(blocks) >= 3
    for block in blocks:
        assert load_scenario(write(tmp_path, block.split("```")[0])).system.units


def test_the_command_line_does_not_load_the_model() -> None:
    code = "import sys; from cosimo.cli import app; import cosimo.formats.scenario; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
