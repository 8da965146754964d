"""Describing FMUs: variables, start values, feedthrough, capabilities, libraries; nothing is loaded."""

from __future__ import annotations

import pickle
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "fmus"))
from fmu_builder import build

from cosimo.core.errors import ConfigurationError, UnknownNameError, UnsafeInputError
from cosimo.core.system import System
from cosimo.units.archives import ArchiveLimits
from cosimo.units.fmi.fmu import Experiment, Fmu, FmuOptions
from cosimo.units.fmi.variables import check_connection

INTEGERS = ("Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64")


def test_variables_of_fmi2(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough2"))
    assert fmu.inputs == ("real_in", "int_in", "bool_in", "enum_in")
    assert fmu.outputs == ("real_out", "integral", "int_out", "bool_out", "enum_out", "states")
    assert fmu.start == {"real_in": 1.5, "int_in": -7.0, "bool_in": 1.0, "enum_in": 2.0}
    assert fmu.discrete_inputs == ("int_in", "bool_in", "enum_in")
    gain = fmu.variables["gain"]
    assert (gain.type, gain.value_reference, gain.causality, gain.minimum, gain.maximum) == (
        "Float64", 2, "parameter", 0.0, 10.0,
    )  # fmt: skip
    assert (fmu.variables["enum_in"].type, fmu.variables["text_in"].start) == ("Enumeration", "hello")
    assert (fmu.fmi_version, fmu.major_version, fmu.model_name, fmu.description) == (
        "2.0", 2, "Feedthrough", "every type",
    )  # fmt: skip
    assert fmu.default_experiment == {"startTime": 0.0, "stopTime": 2.0, "stepSize": 0.1}


def test_variables_of_fmi3(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough3"))
    types = ("Float64", "Float32", *INTEGERS, "Boolean", "Enumeration")
    assert fmu.inputs == tuple(f"{name}_in" for name in types)
    assert fmu.outputs == (*(f"{name}_out" for name in types), "states", "integral")
    assert fmu.discrete_inputs == fmu.inputs[2:]
    assert fmu.variables["String_in"].start == "hello"
    assert fmu.variables["sum"].alias


def test_arrays_element_by_element(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "arrays3"))
    assert fmu.inputs == ("u[1,1]", "u[1,2]", "u[1,3]", "u[2,1]", "u[2,2]", "u[2,3]", "k[1]", "k[2]", "k[3]")
    assert fmu.start["u[2,1]"] == 4.0
    assert [fmu.start[f"k[{i}]"] for i in (1, 2, 3)] == [7.0] * 3
    assert fmu.variables["u[2,1]"].element == 3
    assert fmu.variables["blob"].start == b"\0"
    assert fmu.text_inputs == {"words[1]": "String", "words[2]": "String", "blob": "Binary"}


def test_capabilities(tmp_path: Path) -> None:
    rich, poor = Fmu(build(tmp_path, "feedthrough2")), Fmu(build(tmp_path, "minimal2"))
    newer, events = Fmu(build(tmp_path, "feedthrough3")), Fmu(build(tmp_path, "events3"))
    assert (rich.input_degree, poor.input_degree, newer.input_degree) == (2, 0, 0)
    for fmu, can in ((rich, True), (newer, True), (poor, False)):
        assert (fmu.can_restore, fmu.can_serialise, fmu.provides_directional_derivatives) == (can,) * 3
    assert events.capabilities.event_mode
    assert events.capabilities.early_return
    assert not events.single_instance


def test_feedthrough(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough2"))
    wanted = np.zeros((6, 4), dtype=bool)
    wanted[0, 0] = wanted[2, 1] = wanted[3, 2] = True
    wanted[4] = True  # declares nothing
    assert np.array_equal(fmu.feedthrough(), wanted)
    arrays = Fmu(build(tmp_path, "arrays3")).feedthrough()
    assert arrays[:6, :6].all()
    assert arrays[6:, 6:].all()
    assert not arrays[:6, 6:].any()
    assert not arrays[6:, :6].any()


def test_describing_reads_only_the_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = build(tmp_path, "feedthrough2")
    monkeypatch.setattr("tempfile.mkdtemp", lambda *_, **__: pytest.fail("extracted"))
    monkeypatch.setattr("ctypes.CDLL", lambda *_, **__: pytest.fail("loaded"))
    assert Fmu(path).feedthrough().any()


def test_importing_the_unit_does_not_import_fmpy() -> None:
    code = "import sys, cosimo.units.fmi.fmu; sys.exit('fmpy' in sys.modules or 'lxml' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_scheduled_execution_only_is_refused(tmp_path: Path) -> None:
    path = build(
        tmp_path,
        "arrays3",
        changes={"<CoSimulation": "<ScheduledExecution", 'canHandleVariableCommunicationStepSize="true"': ""},
    )
    with pytest.raises(ConfigurationError, match="is for scheduled execution only"):
        Fmu(path)


# ---- values given by the user ----------------------------------------------------------------------------------------


def test_given_values_replace_start_values(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "feedthrough2"), parameters={"gain": 3}, start={"real_in": 2, "integral": 5.0})
    assert fmu.given == {"gain": 3.0, "real_in": 2.0, "integral": 5.0}
    assert fmu.start["real_in"] == 2.0


def test_arrays_as_a_whole_or_by_element(tmp_path: Path) -> None:
    path = build(tmp_path, "arrays3")
    fmu = Fmu(path, parameters={"offset": [1, 2]}, start={"u": np.arange(6.0).reshape(2, 3), "k[2]": 5})
    assert [fmu.start[name] for name in fmu.inputs] == [0, 1, 2, 3, 4, 5, 7, 5, 7]
    assert fmu.given["offset[2]"] == 2.0
    with pytest.raises(ConfigurationError, match="'offset' has 2 elements, but 3 values were given"):
        Fmu(path, parameters={"offset": [1, 2, 3]})


@pytest.mark.parametrize(
    ("parameters", "start", "message"),
    [
        ({"gian": 1.0}, {}, "unknown variable of FMU '.*'; did you mean 'gain'"),
        ({"gain": "large"}, {}, "'gain' is of type Float64 and cannot be 'large'"),
        ({"gain": 11}, {}, "allows 0 to 10"),
        ({"real_in": 1.0}, {}, "not a parameter but has the causality input; give it as a start value"),
        ({}, {"real_out": 1.0}, "'real_out' is computed by the FMU"),
        ({}, {"int_in": 0.5}, "'int_in' is of type Int32 and cannot be 0.5"),
    ],
)
def test_values_that_cannot_be_given(
    tmp_path: Path, parameters: dict[str, object], start: dict[str, object], message: str
) -> None:
    message = message.replace("FMU '.*'", "FMU '.*feedthrough2.fmu' 'gian'")
    with pytest.raises(ConfigurationError, match=message):
        Fmu(build(tmp_path, "feedthrough2"), parameters=parameters, start=start)


@pytest.mark.parametrize("isolate", [False, True])
def test_structural_parameters_say_how_long_arrays_are(tmp_path: Path, isolate: bool) -> None:
    unit = Fmu(build(tmp_path, "arrays3"), parameters={"n": 5}, start={"k": [1, 2, 3, 4, 5]}, isolate=isolate)
    assert [name for name in unit.inputs if name.startswith("k")] == [f"k[{i}]" for i in range(1, 6)]
    with closing(unit.instantiate()) as live:
        live.finish_initialisation()
        assert live.get_variables([f"m[{i}]" for i in range(1, 6)]).tolist() == [5, 4, 3, 2, 1]
        assert live.get_variables(["n"]).tolist() == [5]
    other = unit.with_values({"n": 2})
    assert (other.start["k[1]"], other.start["k[2]"], len(other.inputs)) == (1, 2, len(unit.inputs) - 3)
    with closing(other.instantiate()) as live:
        assert live.get_variables(["m[1]", "m[2]"]).tolist() == [2, 1]


def test_start_values_of_another_size_are_to_be_given_anew(tmp_path: Path) -> None:
    several = {'<Int32 name="k" valueReference="4" causality="input" start="7">':
               '<Int32 name="k" valueReference="4" causality="input" start="7 8 9">'}  # fmt: skip
    path = build(tmp_path, "arrays3", changes=several)
    assert "k[1]" not in Fmu(path, start={"n": 4}).start
    assert Fmu(path).start["k[3]"] == 9
    with pytest.raises(ConfigurationError, match=r"input a\.k\[1\] is not connected and has no start value"):
        System({"a": Fmu(path, start={"n": 4})})


@pytest.mark.parametrize("wrong", [-1, 2.5, "two", 2**64])
def test_sizes_that_are_none_are_refused(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match=r"arrays3\.fmu': 'n' is of type UInt64 and cannot be"):
        Fmu(build(tmp_path, "arrays3"), parameters={"n": wrong})
    with pytest.raises(UnsafeInputError, match="scalars, more than"):
        Fmu(build(tmp_path, "arrays3"), parameters={"n": 2**40})


def test_unknown_name_type(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError):
        Fmu(build(tmp_path, "feedthrough2"), start={"nothing": 4})


def test_wrong_number_of_start_values(tmp_path: Path) -> None:
    path = build(tmp_path, "arrays3", changes={'start="1 2 3 4 5 6"': 'start="1 2"'})
    with pytest.raises(ConfigurationError, match=r"'u' \(line 6\) has 2 start values for 6 elements"):
        Fmu(path)


# ---- units of measure between FMUs -----------------------------------------------------------------------------------


def test_units_of_measure_between_fmus(tmp_path: Path) -> None:
    old, new = Fmu(build(tmp_path, "feedthrough2")).variables, Fmu(build(tmp_path, "feedthrough3")).variables
    assert check_connection(old["real_out"], old["real_in"]).gain == 1e-3
    to_celsius = check_connection(new["Float64_out"], new["Float64_in"])
    assert (to_celsius.gain, to_celsius.offset) == (1.0, -273.15)
    # A temperature difference: the attribute is on the variable.
    assert check_connection(new["Float32_out"], new["Float32_in"]).identity
    with pytest.raises(ConfigurationError, match=r"'real_out' is in 'mm' \(m\) and 'Float64_in' in 'degC' \(K\)"):
        check_connection(old["real_out"], new["Float64_in"])


# ---- libraries -------------------------------------------------------------------------------------------------------


def test_missing_library(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "minimal2", platform="sun64"))
    (problem,) = fmu.problems()
    assert "holds no library for this platform" in problem
    assert "it has: sun64" in problem
    with pytest.raises(ConfigurationError, match="it has: sun64"):
        fmu.instantiate()
    assert "it has: none" in Fmu(build(tmp_path, "minimal2", platform="")).problems()[0]


def test_a_usable_fmu_has_no_problems(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "minimal2"))
    assert fmu.problems() == ()
    assert len(fmu.platforms) == 1


def test_unsafe_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsafeInputError, match="leads elsewhere"):
        Fmu(build(tmp_path, "minimal2", files={"../evil": "x"}))
    with pytest.raises(UnsafeInputError, match="more than 100; refused"):
        Fmu(build(tmp_path, "minimal2"), options=FmuOptions(limits=ArchiveLimits(total_size=100)))


def test_several_libraries_none_of_which_fits(tmp_path: Path) -> None:
    path = build(tmp_path, "minimal2", library="other")
    here = Fmu(path).library()
    assert here.rpartition("/")[2].startswith("other.")
    path = build(tmp_path, "minimal2", library="other", files={here.replace("other", "third"): "x"})
    with pytest.raises(ConfigurationError, match=r"but several others \(third\.\w+, other\.\w+\)"):
        Fmu(path).library()


def test_a_description_can_be_sent_to_another_process(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "arrays3"), parameters={"offset": [1, 2]})
    copy = pickle.loads(pickle.dumps(fmu))
    assert (copy.inputs, copy.given) == (fmu.inputs, fmu.given)
    assert np.array_equal(copy.feedthrough(), fmu.feedthrough())


def test_experiment_and_name_have_defaults(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "minimal2", file="some tank.fmu"))
    assert fmu.name == "some tank"
    assert fmu.experiment == Experiment(0.0, None, None)
    assert "1 input, 1 output)" in repr(fmu)
