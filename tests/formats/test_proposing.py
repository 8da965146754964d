"""Connections proposed from descriptions, and the scenario they are written to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
from hybrid import build_model

from cosimo.core.errors import ConfigurationError
from cosimo.core.unit import UnitOfMeasure
from cosimo.formats.export import SuggestedExperiment, export_unit
from cosimo.formats.information import validate
from cosimo.formats.scenario import load
from cosimo.formats.writing import Proposals, name_units, propose, scaffold
from cosimo.problems import CATALOGUE
from cosimo.units import StateSpace
from cosimo.units.fmi.fmu import Fmu
from cosimo.units.fmi.variables import VariableInfo

NEWTON = UnitOfMeasure("N", (1, 1, -2, 0, 0, 0, 0, 0))
KILONEWTON = UnitOfMeasure("kN", (1, 1, -2, 0, 0, 0, 0, 0), factor=1000.0)
METRE = UnitOfMeasure("m", (0, 1, 0, 0, 0, 0, 0, 0))


class Described:
    """What `propose` looks at of an FMU: its inputs and outputs."""

    def __init__(self, inputs: dict[str, UnitOfMeasure | None], outputs: dict[str, UnitOfMeasure | None]) -> None:
        self.input_infos = [VariableInfo(name, "Float64", 0, unit=unit) for name, unit in inputs.items()]
        self.output_infos = [VariableInfo(name, "Float64", 0, unit=unit) for name, unit in outputs.items()]


def proposed(**units: Described) -> Proposals:
    return propose(units)  # type: ignore[arg-type]


def pairs(found: Proposals) -> list[tuple[str, str]]:
    return [(one.source, one.target) for one in found.connections]


SOLVED = ["two-mass", "two-mass-glumac", "double-mass-spring-damper", "four-mass", "motor-gearbox"]
SOLVED += ["quarter-truck", "dc-motor", "tank", "thermal-pair"]


@pytest.mark.parametrize("name", SOLVED)
def test_built_in_problems_are_put_together_again(name: str, tmp_path: Path) -> None:
    system = CATALOGUE[name].system()
    files = [export_unit(unit, tmp_path / f"{key}.fmu", name=key, fmi=2) for key, unit in system.units.items()]
    made = scaffold(tmp_path / "system.toml", files)
    assert set(pairs(made.proposals)) == {(c.source, c.target) for c in system.connections}
    assert {one.target for one in made.proposals.undecided} == set(system.inputs)


@pytest.mark.parametrize(
    ("output", "entry"),
    [("force", "f"), ("velocity", "v"), ("Force", "force_in"), ("outTorque", "inTorque"), ("T", "temperature")],
)
def test_other_words_for_the_same_quantity(output: str, entry: str) -> None:
    found = proposed(a=Described({}, {output: None, "other": None}), b=Described({entry: None}, {}))
    assert pairs(found) == [(f"a.{output}", f"b.{entry}")]
    assert found.connections[0].reason


def test_names_after_the_other_unit() -> None:
    found = proposed(
        motor=Described({}, {"speed": None}), fan=Described({}, {"speed": None}), c=Described({"motor_speed": None}, {})
    )
    assert pairs(found) == [("motor.speed", "c.motor_speed")]
    assert found.connections[0].reason == "named after the unit"


def test_a_name_that_begins_like_the_other() -> None:
    """`valve` feeds `valvecontrol`; one letter says nothing, and a name that fits better wins."""
    takes = Described({"valvecontrol": None}, {})
    found = proposed(c=Described({}, {"valve": None, "level": None}), tank=takes)
    assert pairs(found) == [("c.valve", "tank.valvecontrol")]
    assert found.connections[0].reason == "both begin with 'valve'"
    assert not pairs(proposed(c=Described({}, {"v": None}), tank=takes))
    assert pairs(proposed(c=Described({}, {"valve": None, "ValveControl": None}), tank=takes)) == [
        ("c.ValveControl", "tank.valvecontrol")
    ]


def test_units_of_measure_decide_and_convert() -> None:
    giver = Described({}, {"alpha": KILONEWTON, "beta": METRE})
    found = proposed(a=giver, b=Described({"gamma": NEWTON}, {}))
    assert pairs(found) == [("a.alpha", "b.gamma")]
    assert found.connections[0].reason == "converted from kN to N"
    clash = proposed(a=Described({}, {"x": METRE}), b=Described({"x": NEWTON}, {}))
    assert pairs(clash) == []


def test_what_is_ambiguous_is_left_open_with_its_reason() -> None:
    found = proposed(
        a=Described({}, {"force": NEWTON}), b=Described({}, {"force": NEWTON}), c=Described({"force": NEWTON}, {})
    )
    assert found.connections == ()
    assert found.undecided[0].target == "c.force"
    assert "2 outputs fit about equally well" in found.undecided[0].reason
    assert [one.source for one in found.undecided[0].candidates] == ["a.force", "b.force"]


def test_numbers_tell_elements_apart() -> None:
    found = proposed(a=Described({}, {"x[1]": None, "x[2]": None}), b=Described({"pos[1]": None, "pos[2]": None}, {}))
    assert pairs(found) == [("a.x[1]", "b.pos[1]"), ("a.x[2]", "b.pos[2]")]


def test_types_that_lose_values_are_not_proposed() -> None:
    switch = Described({}, {"mode": None})
    taker = Described({}, {})
    taker.input_infos = [VariableInfo("mode", "Boolean", 0)]
    assert pairs(proposed(a=switch, b=taker)) == []


def unit(inputs: list[str], outputs: list[str]) -> StateSpace:
    m, p = len(inputs), len(outputs)
    return StateSpace(
        [[-1.0]],
        [[1.0] * m],
        [[1.0]] * p,
        [[0.0] * m] * p,
        inputs=inputs,
        outputs=outputs,
        start=dict.fromkeys(inputs, 0.5),
    )


def test_the_file_loads_says_why_and_takes_the_fmus_times(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    slow = export_unit(
        unit(["f", "load_torque"], ["x"]),
        tmp_path / "parts" / "mass.fmu",
        name="mass",
        fmi=3,
        experiment=SuggestedExperiment(step=0.01, stop=4.0),
    )
    fast = export_unit(
        unit(["position"], ["force"]),
        tmp_path / "parts" / "spring.fmu",
        name="spring",
        fmi=2,
        experiment=SuggestedExperiment(step=0.002, stop=2.0),
    )
    path = tmp_path / "system.toml"
    made = scaffold(path, [slow, fast])
    path.write_text(made.text, encoding="utf-8")
    assert [str(found) for found in validate(path)] == []
    loaded = load(path)
    assert {(c.source, c.target) for c in loaded.system.connections} == {
        ("spring.force", "mass.f"),
        ("mass.x", "spring.position"),
    }
    assert (loaded.step, loaded.stop) == (0.002, 4.0)
    assert 'fmu = "parts/mass.fmu"' in made.text
    assert "the shortest that mass, spring suggest" in made.text
    for line in made.text.split("\n"):
        assert "->" not in line or "#" in line, f"no reason: {line}"
    assert "# mass.load_torque is left unconnected: no output" in made.text
    assert '# "mass.load_torque" = 0.5  # its start value' in made.text


def test_times_are_guessed_where_nobody_suggests_any(tmp_path: Path) -> None:
    file = export_unit(unit(["u"], ["y"]), tmp_path / "one.fmu", name="one", fmi=2)
    made = scaffold(tmp_path / "system.toml", [file])
    assert (made.step, made.stop) == (0.01, 10.0)
    assert made.text.count("a guess") == 2


def test_what_is_ambiguous_is_written_as_comments(tmp_path: Path) -> None:
    files = [
        export_unit(unit(["u"], ["force"]), tmp_path / f"{name}.fmu", name=name, fmi=2) for name in ("left", "right")
    ]
    files.append(export_unit(unit(["f"], ["z"]), tmp_path / "body.fmu", name="body", fmi=2))
    path = tmp_path / "system.toml"
    path.write_text(scaffold(path, files).text, encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert '  # "left.force -> body.f",  # both stand for a force' in text
    assert '  # "right.force -> body.f",  # both stand for a force' in text
    assert not validate(path)


def test_the_same_fmu_twice_and_odd_names() -> None:
    assert list(name_units(["wheel.fmu", "wheel.fmu", "a b.fmu"])) == ["wheel1", "wheel2", "a_b"]


@pytest.mark.parametrize(
    ("file", "fmus", "message"),
    [
        ("one.fmu", ["system.toml"], "must end in .toml; give the scenario first"),
        ("system.toml", ["one.toml"], "does not end in .fmu"),
        ("system.toml", [], "no FMU was given"),
        ("system.toml", ["oen.fmu"], r"did you mean '.*one\.fmu'"),
    ],
)
def test_wrong_arguments(file: str, fmus: list[str], message: str, tmp_path: Path) -> None:
    export_unit(unit(["u"], ["y"]), tmp_path / "one.fmu", name="one", fmi=2)
    with pytest.raises(ConfigurationError, match=message):
        scaffold(tmp_path / file, [tmp_path / fmu for fmu in fmus])


def test_fmus_are_described_not_loaded(tmp_path: Path) -> None:
    file = export_unit(unit(["u"], ["y"]), tmp_path / "one.fmu", name="one", fmi=2)
    made = scaffold(tmp_path / "system.toml", [file])
    assert isinstance(made.units["one"], Fmu)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.fmu"]


def test_the_solver_of_a_model_exchange_fmu_is_shown(tmp_path: Path) -> None:
    path = build_model(tmp_path, "BALL")
    text = scaffold(tmp_path / "new.toml", [path]).text
    assert '# solver = "cvode"  # for model exchange: cvode, euler, rk4\n' in text
