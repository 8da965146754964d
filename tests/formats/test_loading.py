"""One way in for files of every kind and for built-in problems."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from fmu_builder import build

import cosimo as co
from cosimo.core.errors import ConfigurationError, FileError, FileFindings, Finding, Place, UnknownNameError
from cosimo.core.system import System
from cosimo.formats.export import export_ssp
from cosimo.formats.scenario import load
from cosimo.problems import find


def test_built_in_problems() -> None:
    loaded = load("two-mass")
    assert (loaded.system.names, loaded.step, loaded.stop) == (("one", "two"), 1e-3, 20.0)
    assert (loaded.source, loaded.outputs, loaded.specified) == (None, None, {"step", "stop"})
    assert len(load("chain", settings={"n": 3}).system.units) == 3


def test_an_fmu_alone_is_a_system(tmp_path: Path) -> None:
    loaded = load(build(tmp_path, "feedthrough2", file="some unit.fmu"))
    assert loaded.system.names == ("some unit",)
    assert (loaded.step, loaded.start, loaded.stop) == (0.1, 0.0, 2.0)
    assert loaded.source == tmp_path / "some unit.fmu"


def test_an_fmu_alone_is_simulated_in_one_call(tmp_path: Path) -> None:
    fmu = build(tmp_path, "feedthrough2")
    (tmp_path / "in.csv").write_text("t,real_in\n0,1\n1,1\n1,3\n")
    result = co.simulate(fmu, stop=2.0, settings={"gain": 2.0}, input_file=tmp_path / "in.csv")
    assert (len(result), result.time[-1]) == (21, 2.0), "by the step that the FMU suggests"
    assert result["feedthrough2.real_in"][[5, 15]].tolist() == [1.0, 3.0]
    assert result["feedthrough2.real_out"][[5, 15]].tolist() == [2.0, 6.0]
    assert result.physical_units == {"feedthrough2.real_in": "m", "feedthrough2.real_out": "mm"}
    assert len(co.simulate(build(tmp_path, "minimal2"), stop=1.0)) == 1001, "a thousand steps where nobody says"
    assert len(co.simulate("two-mass", stop=0.1, step=0.01)) == 11
    with pytest.raises(ConfigurationError, match="stop"):
        co.simulate(tmp_path / "minimal2.fmu")


def test_files_by_their_ending(tmp_path: Path) -> None:
    package = export_ssp(find("two-mass").system(), tmp_path / "two.SSP", fmi=2, step=0.1, stop=1.0)
    assert load(str(package)).system.names == ("one", "two")
    (tmp_path / "a.toml").write_text('problem = "two-mass"\n')
    assert load(tmp_path / "a.toml", settings={"kc": 3.0}).source == tmp_path / "a.toml"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("two-mas", "unknown system 'two-mas'; did you mean 'two-mass'?"),
        ("nothing", "a file (.toml, .ssp, .ssd, .xml, .json, .fmu)"),
        ("truk.toml", "truck.toml'?"),
        ("truck.tml", "the file 'truck.tml' does not exist; did you mean 'truck.toml'?"),
        ("truck", "unknown system 'truck'; did you mean 'truck.toml'?"),
        ("other.ssp", "does not exist; check the path"),
        ("nowhere/other.ssd", "does not exist; check the path"),
        ("folder", "is a folder; give a file in it"),
        ("folder.fmu", "is a folder; give a file"),
        ("note.txt", "cannot be read as a system; files end in .toml, .ssp, .ssd, .xml, .json, .fmu"),
    ],
)
def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, part: str) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("folder", "folder.fmu"):
        (tmp_path / folder).mkdir()
    for file in ("truck.toml", "note.txt"):
        (tmp_path / file).write_text("")
    with pytest.raises(ConfigurationError) as caught:
        load(name)
    assert part in str(caught.value)


def test_settings_of_problems_and_units(tmp_path: Path) -> None:
    fmu = build(tmp_path, "feedthrough2")
    for name in ("gain", "feedthrough2.gain"):  # the only unit need not be named
        unit = load(fmu, settings={name: 2.0}).system.units["feedthrough2"]
        assert isinstance(unit, co.Fmu)
        assert unit.given["gain"] == 2.0
    with pytest.raises(UnknownNameError, match="did you mean 'gain'"):
        load(fmu, settings={"gian": 2.0})
    with pytest.raises(UnknownNameError, match="did you mean 'kc'"):
        load("two-mass", settings={"kcc": 2.0})


def test_findings_are_kept_and_not_repeated() -> None:
    findings, place = FileFindings(), Place("a.ssd", 3)
    for _ in range(2):
        findings.warn("odd.", place)
        with findings.collect(place):
            raise ConfigurationError("wrong.")
    with findings.collect(place):
        raise FileError("elsewhere.", file="b.ssv", line=7)
    assert findings.all == [
        Finding("odd.", "a.ssd", 3, "warning"),
        Finding("wrong.", "a.ssd", 3),
        Finding("elsewhere.", "b.ssv", 7),
    ]
    assert [str(finding) for finding in findings.all] == [
        "a.ssd:3: warning: odd.",
        "a.ssd:3: wrong.",
        "b.ssv:7: elsewhere.",
    ]
    with pytest.raises(FileError, match=r"a\.ssd:3: wrong\. \(1 more"):
        findings.require_no_errors()


def test_findings_of_a_failed_load_can_be_seen(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("x = 1\ny = 2\n")
    findings = FileFindings()
    with pytest.raises(FileError):
        load(tmp_path / "a.toml", findings=findings)
    assert [finding.line for finding in findings.errors] == [1, 2]


TANKS = """
step-size = 0.5
stop-time = 2
connections = ["first.outflow -> second.inflow"]
[inputs]
"first.inflow" = 1.0
[units.first]
kind = "python"
class = "tanks.py:Tank"
[units.second]
kind = "python"
class = "tanks.py:Tank"
"""
TANK = """
class Tank:
    inputs, outputs = {"inflow": 0.0, "valve": 1.0}, ("outflow",)
    def __init__(self, rate=0.5):
        self.rate, self.outflow = rate, 0.0
    def step(self, time, duration):
        self.outflow += duration * self.rate * (self.inflow - self.valve * self.outflow)
"""


def tanks(folder: Path, **changes: object) -> System:
    (folder / "tanks.py").write_text(TANK)
    (folder / "tanks.toml").write_text(TANKS)
    return load(folder / "tanks.toml", **changes).system  # type: ignore[arg-type]


def test_values_of_units(tmp_path: Path) -> None:
    system = tanks(tmp_path, settings={"first.rate": 2, "second.valve": 0.25, "first.inflow": 3.0})
    assert [unit.parameters for unit in system.units.values()] == [{"rate": 2}, {}]  # type: ignore[attr-defined]
    assert (system.units["second"].start["valve"], system.inlets["first"][0].start, system.inputs) == (0.25, 3.0, {})
    assert tanks(tmp_path).inputs["first.inflow"](0.0) == 1.0, "the file is as it was"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rate", "'rate' is no parameter of 'tanks'; write UNIT.PARAMETER, with one of the units first, second"),
        ("first.rat", "unknown parameter or input of unit 'first' 'rat'; did you mean 'rate'"),
        ("second.inflow", "second.inflow is fed by first.outflow; change a value of that unit"),
        ("third.rate", "'third.rate' is no parameter"),
    ],
)
def test_what_has_no_value_to_set(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        tanks(tmp_path, settings={name: 1.0})


def test_only_what_can_be_set_is_proposed(tmp_path: Path) -> None:
    path = build(tmp_path, "feedthrough2")
    with pytest.raises(ConfigurationError) as caught:
        load(path, settings={"feedthrough2.gains": 1.0})
    assert "did you mean 'gain'?" in str(caught.value)
    known = str(caught.value).partition("Known: ")[2]
    assert "bool_in, enum_in, gain, int_in, integral, real_in, text_in" in known
    assert "_out" not in known
    with pytest.raises(ConfigurationError, match=r"feedthrough2\.real_out is computed by its unit and cannot be given"):
        load(path, settings={"feedthrough2.real_out": 1.0})


def test_inputs_from_a_table(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t,inflow,second.valve\n0,0,1\n1,4,1\n1,8,0\n2,8,0\n")
    system = tanks(tmp_path, input_file=tmp_path / "in.csv")
    inflow, valve = (system.inputs[name] for name in ("first.inflow", "second.valve"))
    assert [inflow(time) for time in (0.5, 0.75, 1.0, 3.0)] == [2.0, 3.0, 8.0, 8.0], "linear, with a jump at 1 s"
    assert [valve(time) for time in (0.999, 1.0)] == [1.0, 0.0]
    (tmp_path / "in.csv").write_text("t,int_in\n0,1\n1,2\n")
    held = load(build(tmp_path, "feedthrough2"), input_file=tmp_path / "in.csv").system.inputs["feedthrough2.int_in"]
    assert [held(time) for time in (0.0, 0.9, 1.0)] == [1.0, 1.0, 2.0], "a whole number has nothing in between"


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("t,valve", "column 'valve' of .* fits first.valve and second.valve; write which one"),
        ("t,inflw", "unknown open input .* 'inflw'; did you mean 'inflow'"),
        ("t,second.inflow", "unknown open input .* 'second.inflow'"),
        ("t", "has only a time column"),
        ("t,inflow,first.inflow", "two columns for first.inflow"),
    ],
)
def test_columns_that_feed_nothing(tmp_path: Path, head: str, said: str) -> None:
    (tmp_path / "in.csv").write_text(f"{head}\n0,1,2\n")
    with pytest.raises(ConfigurationError, match=said):
        tanks(tmp_path, input_file=tmp_path / "in.csv")


def test_a_value_and_a_table_contradict_each_other(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("t,inflow\n0,1\n")
    with pytest.raises(ConfigurationError, match=r"first\.inflow has a value and an input over time"):
        tanks(tmp_path, input_file=tmp_path / "in.csv", settings={"first.inflow": 2.0})
    with pytest.raises(ConfigurationError, match=r"did you mean '.*in\.csv'"):
        tanks(tmp_path, input_file=tmp_path / "inn.csv")


def test_the_time_range_of_a_scenario_ends_with_its_stop_time() -> None:
    """A later start shortens it; other times of a call count alone; a range that is none is refused with both times."""
    truck = load("quarter-truck")
    late = truck.analyse(start=1.0, details=False)
    assert (late.start, late.horizon) == (1.0, 2.0)
    other = truck.analyse(start=5.0, horizon=1.0, details=False)
    assert (other.start, other.horizon) == (5.0, 1.0)
    said = r"the stop time \(3\) must be a number greater than the start time \(5\)"
    for verb in (truck.analyse, truck.tune, truck.report):
        with pytest.raises(ConfigurationError, match=said):
            verb(start=5.0)
