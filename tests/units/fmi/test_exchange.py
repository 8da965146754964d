"""Values of every type going into and out of live FMUs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import UnitError, UnknownNameError
from cosimo.units.fmi.fmu import Fmu

pytestmark = pytest.mark.usefixtures("temporary")


def values(*numbers: float) -> np.ndarray:
    return np.array([numbers], dtype=float)


@pytest.mark.parametrize("name", ["feedthrough2", "feedthrough3"])
def test_every_type_passes_through(tmp_path: Path, name: str) -> None:
    fmu = Fmu(build(tmp_path, name))
    given = {"Float64": -2.5, "Float32": 0.5, "Int8": -128, "UInt8": 255, "Int16": -(2**15), "UInt16": 2**16 - 1} | {
        "Int32": -(2**31), "UInt32": 2**32 - 1, "Int64": -(2**53), "UInt64": 2**53, "Boolean": 0, "Enumeration": 1
    }  # fmt: skip
    u = [given[info.type] for info in fmu.input_infos]
    instance = fmu.instantiate()
    assert instance.read()[0] == 1.5  # start values
    instance.set_input(values(*u), 0.1)
    y = dict(zip(fmu.outputs, instance.read(), strict=True))
    for number, info in zip(u, fmu.input_infos, strict=True):
        assert y[info.name.replace("_in", "_out")] == number
    instance.step(0.0, 0.1)
    assert dict(zip(fmu.outputs, instance.read(), strict=True))["integral"] == pytest.approx(-0.25, abs=1e-15)


@pytest.mark.parametrize(
    ("name", "source", "target"),
    [("feedthrough2", "text_in", "text_out"), ("feedthrough3", "String_in", "String_out")],
)
def test_strings(tmp_path: Path, name: str, source: str, target: str) -> None:
    assert Fmu(build(tmp_path, name)).instantiate().get_string(target) == "hello"
    instance = Fmu(build(tmp_path, name), start={source: "Grüße"}).instantiate()
    assert instance.get_string(target) == "Grüße"
    with pytest.raises(UnknownNameError, match=f"did you mean '{target}'"):
        instance.get_string(target[:-1])


def test_string_start_value(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough2"), start={"text_in": "other"})
    assert fmu.instantiate().get_string("text_out") == "other"


def test_arrays(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "arrays3"), parameters={"offset": [10, 20]}, start={"words[2]": "world"})
    instance = fmu.instantiate()
    assert instance.read().tolist() == [12, 14, 16, 28, 30, 32, 7, 7, 7]
    instance.set_input(values(0, 0, 1, 0, 0, 2, 1, 2, 3), 0.1)
    assert instance.read().tolist() == [10, 10, 12, 20, 20, 24, 3, 2, 1]
    assert [instance.get_string(f"echo[{i}]") for i in (1, 2)] == ["hello", "world"]


@pytest.mark.parametrize(
    ("variable", "value", "takes"),
    [
        ("Int8_in", 128, "a whole number from -128 to 127"),
        ("UInt16_in", -1, "a whole number from 0 to 65535"),
        ("Int32_in", 0.5, "a whole number"),
        ("Int64_in", 2.0**54, "a whole number"),
        ("Boolean_in", 2, "0 or 1"),
        ("Enumeration_in", float("nan"), "a whole number"),
    ],
)
def test_values_that_do_not_fit_the_type(tmp_path: Path, variable: str, value: float, takes: str) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough3"))
    u = np.array([[fmu.start[name] for name in fmu.inputs]])
    u[0, fmu.inputs.index(variable)] = value
    with pytest.raises(UnitError, match=f"input '{variable}' of type .* was given .*; it takes {takes}"):
        fmu.instantiate().set_input(u, 0.1)


@pytest.mark.parametrize(("kind", "value"), [("Int64", 2**53 + 1), ("Int64", -(2**60)), ("UInt64", 2**64 - 1)])
def test_integers_beyond_float64_are_not_rounded(tmp_path: Path, kind: str, value: int) -> None:
    path = build(tmp_path, "feedthrough3")
    instance = Fmu(path, start={f"{kind}_in": value}).instantiate()
    with pytest.raises(UnitError, match=f"'{kind}_out' is {value}, beyond 2\\^53"):
        instance.read()
