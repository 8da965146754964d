"""What is said about FMUs and systems, and what is found wrong with them."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fmus"))
sys.path.insert(0, str(Path(__file__).parent))
from fmu_builder import build
from hybrid import build_model
from ssp_builder import component, connectors, document, pack, system, wire, write

from cosimo.core.errors import ConfigurationError
from cosimo.formats.export import export_ssp
from cosimo.formats.information import describe, validate
from cosimo.problems import find
from cosimo.units.fmi.model_exchange import Solver

LOOP = wire("a.real_out", "b.real_in") + wire("b.real_out", "a.real_in")


def test_an_fmu_describes_itself(tmp_path: Path) -> None:
    said = describe(build(tmp_path, "feedthrough2", file="f.fmu"))
    assert (said["fmi_version"], said["model_name"], said["description"]) == ("2.0", "Feedthrough", "every type")
    assert said["generation_tool"] is None
    assert said["capabilities"]["restore"]
    assert not said["capabilities"]["event_mode"]
    assert said["experiment"] == {"startTime": 0.0, "stopTime": 2.0, "stepSize": 0.1}
    assert said["problems"] == ()
    variables = {v["name"]: v for v in said["variables"]}
    assert (variables["real_in"]["type"], variables["real_in"]["unit"], variables["real_in"]["start"]) == (
        "Float64",
        "m",
        1.5,
    )
    assert (variables["text_in"]["type"], variables["text_in"]["causality"]) == ("String", "input")
    assert ("real_in", "real_out") in said["feedthrough"]
    assert not [pair for pair in said["feedthrough"] if pair[1] == "integral"]


def test_an_fmu_as_text_and_as_json(tmp_path: Path) -> None:
    path = build(tmp_path, "feedthrough3", file="f.fmu", changes={'start="1.5"': 'start="INF"'})
    said = describe(path)
    text = str(said).splitlines()
    assert text[0] == f"{path}: co-simulation FMU, FMI 3.0"
    for line in (
        "  experiment   not specified",
        "  tool         not specified",
        "  Float64_in  Float64 in degC, start inf",
    ):
        assert line in text
    assert "  Float64_in → Float64_out" in text
    said_again = json.loads(json.dumps(said.to_dict(), allow_nan=False))
    assert said_again["kind"] == "fmu"
    assert next(v for v in said_again["variables"] if v["name"] == "Float64_in")["start"] == "inf"


def test_an_fmu_for_another_platform(tmp_path: Path) -> None:
    path = build(tmp_path, "feedthrough2", platform="win32")
    said = describe(path)
    assert said["platforms"] == ("win32",)
    assert len(said["problems"]) == 1
    (found,) = validate(path)
    assert (found.file, found.severity) == (str(path), "error")
    assert "win32" in str(found)


def test_a_system_is_described(tmp_path: Path) -> None:
    inside = connectors("k input")
    path = write(tmp_path, document(system(component("a") + component("b"), LOOP, inside)))
    said = describe(path)
    assert [(u["name"], u["kind"], u["file"], u["states"]) for u in said["units"]] == [
        ("a", "FMU 2.0", str(tmp_path / "f.fmu"), None),
        ("b", "FMU 2.0", str(tmp_path / "f.fmu"), None),
    ]
    assert said["loops"] == [("a.real_out", "b.real_out")]
    assert said["unconnected"]["a.int_in"] == -7.0
    assert "a.real_in" not in said["unconnected"]
    assert ("a.real_in", "a.real_out") in said["feedthrough"]
    assert said["experiment"] == {"start": None, "stop": None, "step": 0.1, "master": None}
    text = str(said)
    assert "a.real_out · 0.001 → b.real_in" in text
    assert "algebraic loops (1)\n  a.real_out → b.real_out" in text
    assert json.loads(json.dumps(said.to_dict(), allow_nan=False))["kind"] == "system"


def test_a_scenario_is_described(tmp_path: Path) -> None:
    text = """
step-size = 0.1
connections = [{ from = "a.y1", to = "b.u1", offset = -2 }]
[master]
name = "jacobi"
[units.a]
kind = "state-space"
A = 0
B = [[1, 1]]
C = 1
[units.b]
kind = "state-space"
A = 0
B = 1
C = 1
[inputs]
"a.u1" = 2
"a.u2" = { csv = "u.csv", column = "u" }
"""
    (tmp_path / "u.csv").write_text("t,u\n0,1\n4,1\n")
    (tmp_path / "s.toml").write_text(text)
    said = describe(tmp_path / "s.toml")
    assert said["external_inputs"] == {"a.u1": "2", "a.u2": "table from 0 s to 4 s, linear"}
    assert said["experiment"]["master"]["name"] == "jacobi"
    expected = {"source": "a.y1", "target": "b.u1", "gain": 1.0, "offset": -2.0, "convert": True}
    assert said["connections"] == [expected]
    lines = str(said).splitlines()
    assert "  a: StateSpace, 2 inputs, 1 output, 1 state" in lines
    assert "  a.y1 − 2 → b.u1" in lines
    assert "  experiment   step 0.1 s, master jacobi" in lines
    json.dumps(said.to_dict(), allow_nan=False)


def test_built_in_problems_and_packages(tmp_path: Path) -> None:
    said = describe("two-mass")
    assert (said["source"], said["name"]) == (None, "two-mass")
    path = export_ssp(find("chain").system({"n": 60}), tmp_path / "c.ssp", fmi=2, step=0.1, stop=1.0)
    said = describe(path)
    assert said["units"][0]["file"] == f"{path}/resources/{said['units'][0]['name']}.fmu"
    assert "… and 10 more" in str(said)


def test_describing_what_is_wrong_raises(tmp_path: Path) -> None:
    changes = {"<CoSimulation": "<ScheduledExecution", 'canHandleVariableCommunicationStepSize="true"': ""}
    with pytest.raises(ConfigurationError, match="scheduled execution only"):
        describe(build(tmp_path, "arrays3", changes=changes))


@pytest.mark.parametrize("version", [2, 3])
def test_a_model_exchange_fmu_tells_its_solver(tmp_path: Path, version: int) -> None:
    path = build_model(tmp_path, "BALL", version)
    said = describe(path)
    assert (said["interfaces"], said["solver"]) == (("model-exchange",), "cvode, relative tolerance 1e-06")
    assert str(said).startswith(f"{path}: model-exchange FMU, FMI {version}.0\n")
    assert "  solver       cvode, relative tolerance 1e-06\n" in str(said)
    said = describe(path, solver=Solver("rk4", micro_steps=4))
    assert said["units"][0]["kind"] == f"FMU {version}.0 for model exchange (rk4, 4 micro steps per macro step)"
    assert validate(path) == []


def test_nothing_wrong(tmp_path: Path) -> None:
    assert validate("two-mass") == []
    assert validate(build(tmp_path, "feedthrough2", file="f.fmu")) == []
    assert validate(write(tmp_path, document(system(component("a") + component("b"), LOOP)))) == []


def test_all_that_is_wrong_is_listed(tmp_path: Path) -> None:
    wires = wire("a.nothing", "b.real_in") + wire("a.text_out", "b.real_in")
    text = document(system(component("a") + component("b"), wires)).replace('version="1.0" name="test"', 'name="test"')
    path = write(tmp_path, text)
    found = validate(path)
    assert [(f.line, f.severity) for f in found] == [(9, "error"), (10, "error"), (2, "warning")]
    assert all("\n" not in str(f) and str(f).startswith(f"{path}:") for f in found)


def test_warnings_alone(tmp_path: Path) -> None:
    path = write(tmp_path, document(system(component("a"))).replace('version="1.0" name="test"', 'name="test"'))
    assert [f.severity for f in validate(path)] == ["warning"]


def test_a_missing_platform_in_a_package_is_called_by_its_name(tmp_path: Path) -> None:
    other = build(tmp_path, "feedthrough2", platform="win32").read_bytes()
    elements = component("a", source="g.fmu") + component("b", source="g.fmu")
    path = pack(tmp_path, document(system(elements)), {"g.fmu": other})
    (found,) = validate(path)
    assert f"{path}/g.fmu" in str(found)


def wrong_files(folder: Path) -> dict[str, bytes]:
    fmu = build(folder, "feedthrough2").read_bytes()
    return {
        "text.fmu": b"hello",
        "cut.fmu": fmu[: len(fmu) // 2],
        "empty.fmu": b"",
        "text.ssp": b"hello",
        "empty.ssp": b"",
        "empty.ssd": b"",
        "binary.ssd": bytes(range(256)),
        "doctype.ssd": b"<!DOCTYPE a><a/>",
        "other.ssd": b"<a/>",
        "empty.toml": b"",
        "binary.toml": bytes(range(256)),
        "syntax.toml": b"a =",
        "noted.txt": b"hello",
    }


def test_no_wrong_file_raises(tmp_path: Path) -> None:
    for name, content in wrong_files(tmp_path).items():
        (tmp_path / name).write_bytes(content)
        found = validate(tmp_path / name)
        assert found, name
        assert found[0].severity == "error"
        assert name in str(found[0]), name
        assert "\n" not in str(found[0])
    assert validate(tmp_path / "not there.toml")
    assert validate("no such problem")


def test_an_archive_within_its_description_only(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.fmu", "w") as archive:
        archive.writestr("modelDescription.xml", "<a/>")
    (found,) = validate(tmp_path / "x.fmu")
    assert "FMI version none" in str(found)
