"""An isolated unit gives, to the last bit, what it gives in the master's own process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from fmu_builder import build

from cosimo import masters
from cosimo.analysis.identification import identify
from cosimo.core.master import Master
from cosimo.core.system import System
from cosimo.execution.options import EngineOptions
from cosimo.execution.running import run
from cosimo.formats.export import export_system
from cosimo.problems import two_mass
from cosimo.units import Fmu
from cosimo.units.fmi.isolation import Isolation

MASTERS: dict[str, Callable[[System], Master]] = {
    "jacobi": lambda system: masters.jacobi(system, 1e-3),
    "gauss-seidel": lambda system: masters.gauss_seidel(system, 1e-3),
    "iterative": lambda system: masters.iterative(system, 1e-3, sweeps=3),
}


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("exported")
    return {fmi: export_system(two_mass(), folder / str(fmi), fmi=fmi) for fmi in (2, 3)}  # type: ignore[arg-type]


def coupled(files: dict[str, Path], isolate: bool | Isolation) -> System:
    return System({n: Fmu(path, isolate=isolate) for n, path in files.items()}, two_mass().connections)


@pytest.mark.parametrize("fmi", [2, 3])
@pytest.mark.parametrize("master", MASTERS)
def test_runs(exported: dict[int, dict[str, Path]], fmi: int, master: str) -> None:
    values = []
    for isolate in (False, True):
        system = coupled(exported[fmi], isolate)
        values.append(run(system, MASTERS[master](system), stop=0.2, record="all").to_numpy())
    assert np.array_equal(*values)


@pytest.mark.parametrize(
    "isolation",
    [
        pytest.param(Isolation(spin=False), id="asleep"),
        pytest.param(Isolation(sandbox=True), id="sandbox", marks=pytest.mark.sandbox),
    ],
)
def test_ways_of_isolation(exported: dict[int, dict[str, Path]], isolation: Isolation) -> None:
    systems = coupled(exported[2], False), coupled(exported[2], isolation)
    found = [run(system, masters.jacobi(system, 1e-3), stop=0.1).to_numpy() for system in systems]
    assert np.array_equal(*found)


def test_one_of_two_units(exported: dict[int, dict[str, Path]]) -> None:
    both = coupled(exported[2], False)
    one = System(
        {n: Fmu(path, isolate=n == "one") for n, path in exported[2].items()},
        both.connections,
    )
    for engine in (EngineOptions(), EngineOptions(kind="reference"), EngineOptions(parallel=True)):
        found = [run(s, masters.jacobi(s, 1e-3), stop=0.05, engine=engine).to_numpy() for s in (both, one)]
        assert np.array_equal(*found)


@pytest.mark.parametrize("fmi", [2, 3])
def test_states(exported: dict[int, dict[str, Path]], fmi: int) -> None:
    instance = Fmu(exported[fmi]["one"], isolate=True).instantiate()
    other = Fmu(exported[fmi]["one"], isolate=True).instantiate()
    for step in range(3):
        instance.step(step * 0.01, 0.01)
    state, data = instance.save(), instance.serialise()
    instance.step(0.03, 0.01)
    after = instance.read()
    instance.restore(state)
    instance.step(0.03, 0.01)
    assert np.array_equal(instance.read(), after)
    other.deserialise(data)
    other.step(0.03, 0.01)
    assert np.array_equal(other.read(), after)
    instance.close()
    other.close()


def test_identification(exported: dict[int, dict[str, Path]]) -> None:
    bare, isolated = (identify(Fmu(exported[2]["one"], isolate=isolate), 1e-2) for isolate in (False, True))
    assert bare.means == isolated.means
    for a, b in ((bare.model.A, isolated.model.A), (bare.model.B, isolated.model.B), (bare.C, isolated.C)):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("name", ["feedthrough2", "feedthrough3", "arrays3", "events3"])
def test_types_arrays_and_events(tmp_path: Path, name: str) -> None:
    path = build(tmp_path, name)
    found = []
    for isolate in (False, True):
        instance = Fmu(path, isolate=isolate).instantiate()
        values = [instance.read()]
        for step in range(5):
            instance.step(step * 0.1, 0.1)
            values.append(instance.read())
        found.append(np.array(values))
        instance.close()
    assert np.array_equal(*found, equal_nan=True)


def test_texts(fmu: Path) -> None:
    instance = Fmu(fmu, isolate=True, parameters={"text": "größer, 大きい"}).instantiate()
    assert instance.get_string("text") == "größer, 大きい"
    instance.close()


def test_two_instances_of_a_unit_that_allows_one(tmp_path: Path) -> None:
    flag = {'modelIdentifier="awkward2"': 'modelIdentifier="awkward2" canBeInstantiatedOnlyOncePerProcess="true"'}
    fmu = Fmu(build(tmp_path, "awkward2", changes=flag, defines=("SINGLE",)))
    system = System({"a": fmu, "b": fmu})
    result = run(system, masters.jacobi(system, 0.1), stop=0.5)
    assert np.array_equal(result["a.y"], result["b.y"])
    assert result["a.y"][-1] == pytest.approx(0.5)


def test_missing_functions_are_named(tmp_path: Path) -> None:
    from cosimo.core.errors import UnitError

    restores = {
        "canHandleVariableCommunicationStepSize": 'canGetAndSetFMUstate="true" canHandleVariableCommunicationStepSize'
    }
    instance = Fmu(build(tmp_path, "minimal2", changes=restores), isolate=True).instantiate()
    with pytest.raises(UnitError, match="lacks the function fmi2GetFMUstate"):
        instance.save()
    instance.step(0.0, 0.1)  # and it goes on
    instance.close()
