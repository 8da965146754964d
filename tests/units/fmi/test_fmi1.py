"""FMUs of FMI 1.0, called through the adapter: the numbers of FMPy, every type, every way to run them, and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fmpy import simulate_fmu
from fmu_builder import build

import cosimo as co
from cosimo.core.errors import ConfigurationError, UnitError
from cosimo.execution.options import EngineOptions
from cosimo.units.fmi.fmu import Experiment, Fmu
from cosimo.units.fmi.isolation import Isolation

PARAMETERS = {"gain": 1.5, "offset": 7, "inverted": True, "title": "a lag"}
NAMES = ("x", "steps", "above")


def rows(unit: Fmu, **options: object) -> co.Result:
    system = co.System({"a": unit}, inputs={"a.u": 0.75})
    return co.run(system, co.masters.jacobi(system, step=0.125), stop=2.0, **options)


@pytest.mark.parametrize("engine", ["kernel", "reference"])
@pytest.mark.parametrize("isolate", [False, True])
def test_it_has_the_numbers_of_fmpy_to_the_bit(tmp_path: Path, engine: str, isolate: bool) -> None:
    path = build(tmp_path, "lag1")
    found = rows(Fmu(path, parameters=PARAMETERS, isolate=isolate), engine=EngineOptions(kind=engine))
    start = {**PARAMETERS, "u": 0.75}
    names = dict.fromkeys(NAMES)
    known = simulate_fmu(path, stop_time=2.0, output_interval=0.125, start_values=start, output=[*names])
    assert np.array_equal(found.time, known["time"])
    for name in NAMES:
        assert np.array_equal(found[f"a.{name}"], known[name].astype(float)), name
    assert found["a.steps"][-1] == 23


@pytest.mark.sandbox
def test_it_runs_in_a_sandbox(tmp_path: Path) -> None:
    path = build(tmp_path, "lag1")
    apart = rows(Fmu(path, isolate=Isolation(sandbox=True, timeout=120.0)))
    assert np.array_equal(apart.values, rows(Fmu(path, isolate=False)).values)


def test_what_the_description_says_is_known(tmp_path: Path) -> None:
    fmu = Fmu(build(tmp_path, "lag1"))
    assert (fmu.fmi_version, fmu.inputs, fmu.outputs) == ("1.0", ("u",), NAMES)
    assert fmu.feedthrough().tolist() == [[False], [False], [True]]  # of the last one nothing is said
    assert not fmu.can_restore
    assert fmu.variable_step
    assert "minus x" not in fmu.variables  # its value would have the wrong sign


def test_texts_can_be_given_and_read(tmp_path: Path) -> None:
    live = Fmu(build(tmp_path, "lag1"), parameters=PARAMETERS).instantiate()
    live.finish_initialisation()
    assert live.get_string("label") == "a lag 7"
    live.close()


def test_a_step_that_goes_on_by_itself_is_waited_for(tmp_path: Path) -> None:
    late = rows(Fmu(build(tmp_path / "late", "lag1", defines=("LATE",))))
    assert np.array_equal(late.values, rows(Fmu(build(tmp_path, "lag1"))).values)


@pytest.mark.parametrize("isolate", [False, True])
def test_its_errors_name_unit_time_and_what_it_says(tmp_path: Path, isolate: bool) -> None:
    unit = Fmu(build(tmp_path, "lag1"), parameters={"fail_at": 1.0}, isolate=isolate)
    where = r"unit 'a'.*lag1\.fmu.*returned fmi2Error from fmi2DoStep from t = 1\.0"
    with pytest.raises(UnitError, match=where + ".*it says: step 8 at the wrong time"):
        rows(unit)


def test_it_is_reset_for_the_next_run(tmp_path: Path) -> None:
    from cosimo.units.fmi.instance import Reserve

    reserve, unit = Reserve(), Fmu(build(tmp_path, "lag1"), isolate=False)
    first = unit.with_values({"offset": 3}, reserve=reserve).instantiate()
    first.finish_initialisation()
    first.close()
    again = unit.with_values({"offset": 4}, reserve=reserve).instantiate()
    assert again.read().tolist() == [0.0, 4.0, 0.0]
    assert (reserve.fresh, reserve.reused) == (1, 1)
    again.close()
    reserve.close()


BAD = {
    "model exchange": ({"<Implementation>": "<!--", "</Implementation>": "-->"}, "for model exchange of FMI 1.0"),
    "a negated output": (
        {'"0" causality="internal" alias': '"0" causality="output" alias'},
        "'minus x' is the negated alias of another variable",
    ),
    "another name": ({'modelIdentifier="lag1"': 'modelIdentifier="lag"'}, "no function lag_fmiInstantiateSlave"),
    "no number": ({'<Real start="1"/>': '<Real start="one"/>'}, "is not valid"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_refused(tmp_path: Path, case: str) -> None:
    changes, reason = BAD[case]
    with pytest.raises(ConfigurationError, match=reason):
        Fmu(build(tmp_path, "lag1", changes=changes), experiment=Experiment()).instantiate()
